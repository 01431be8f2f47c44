"""A simple implementation of the board functions from their definitions, and boards to test them with."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

import oracle
from oracle import Array, cells, legal_mask, packed, slide

RNG = random.Random(2048)
BOARDS = [
    0,
    1,
    2**63,
    2**64 - 1,
    0x1111_1111_1111_1111,
    0x1212_2121_1212_2121,
    0xFF00_0000_0000_00FF,
    0xEE00_FF00_EE00_FF00,
    0x0123_4567_89AB_CDEF,
    *(1 << shift for shift in range(0, 64, 5)),
    *(RNG.getrandbits(64) for _ in range(200)),
    *(packed([RNG.choice([0, 0, 1, 1, 2, 3]) for _ in range(16)]) for _ in range(300)),
    *(packed([RNG.choice([0, 13, 14, 15]) for _ in range(16)]) for _ in range(100)),
    *(packed([RNG.choice([1, 2]) for _ in range(16)]) for _ in range(100)),
]
"""Edge cases, random boards, and boards with many merges, few empty cells, or tiles that no longer merge."""


# The rules


def tile_of(exp: int) -> int:
    return 2**exp if exp else 0


def grid(board: int) -> Array:
    return np.array(cells(board)).reshape(4, 4)


TURNS: list[Callable[[Array], Array]] = [
    lambda square: square,
    lambda square: np.rot90(square, -1),
    lambda square: np.rot90(square, 2),
    lambda square: np.rot90(square, 1),
    np.fliplr,
    np.flipud,
    np.transpose,
    lambda square: np.rot90(square, 2).T,
]
"""The eight symmetries in the order of their numbers; quarter turns are clockwise."""
SIDES = np.zeros((4, 4, 4), bool)
SIDES[0, 0, :] = SIDES[1, 3, :] = SIDES[2, :, 0] = SIDES[3, :, 3] = True
IMAGES = [[next(m for m in range(4) if (turn(side) == SIDES[m]).all()) for side in SIDES] for turn in TURNS]
"""For each symmetry, the image of each move."""


def transform(board: int, symmetry: int) -> int:
    return packed(TURNS[symmetry](grid(board)).ravel().tolist())


def turned(board: int) -> list[int]:
    return [transform(board, symmetry) for symmetry in range(8)]


def canonical_move(board: int, move: int) -> int:
    """Return the smallest image of a move under the symmetries that make the board canonical."""
    boards = turned(board)
    return min(IMAGES[symmetry][move] for symmetry in range(8) if boards[symmetry] == min(boards))


def reward(board: int, move: int) -> int:
    """Return the sum of the tiles that merges create; each merge replaces two equal tiles by one."""
    before, after = sorted(cells(board)), sorted(cells(slide(board, move)))
    made = 0
    # From small to large exponents: each pair of missing tiles was merged into one of the next exponent.
    carried = 0
    for exp in range(1, 15):
        carried = (before.count(exp) + carried - after.count(exp)) // 2
        made += carried * 2 ** (exp + 1)
    return made


def spawn(board: int, move: int, after: int) -> dict[str, int] | None:
    slid = slide(board, move)
    if slid == board or not oracle.spawns(slid, after):
        return None
    (cell,) = (cell for cell in range(16) if cells(slid)[cell] != cells(after)[cell])
    return {"cell": cell, "tile": tile_of(cells(after)[cell])}


def score(board: int) -> int:
    return sum((exp - 1) * 2**exp for exp in cells(board) if exp)


def text(board: int) -> str:
    return " / ".join(" ".join("." if exp == 0 else str(2**exp) for exp in row) for row in grid(board).tolist())


def smoothness(board: int) -> int:
    """Return minus the sum of differences between each tile and the nearest tiles to the right and below."""
    square, total = grid(board), 0
    for y, x in zip(*np.nonzero(square), strict=True):
        for line in (square[y, x + 1 :], square[y + 1 :, x]):
            nearest = [exp for exp in line.tolist() if exp]
            total -= abs(int(square[y, x]) - nearest[0]) if nearest else 0
    return total


def steps_of_line(line: Sequence[int]) -> tuple[int, int]:
    """Return the falls and the rises of a line, negated, as ``monotonicity2`` in grid.js of 2048-AI adds them."""
    down, up = 0, 0
    current, following = 0, 1
    while following < 4:
        while following < 4 and line[following] == 0:
            following += 1
        if following >= 4:
            following -= 1
        if line[current] > line[following]:
            down += line[following] - line[current]
        elif line[following] > line[current]:
            up += line[current] - line[following]
        current = following
        following += 1
    return down, up


def monotonicity(board: int) -> int:
    total = 0
    for lines in (grid(board), grid(board).T):
        total += max(map(sum, zip(*map(steps_of_line, lines.tolist()), strict=True)))
    return total


Evs = tuple[float | None, float | None, float | None, float | None]


def known(evs: Sequence[float | None]) -> list[np.float32]:
    return [np.float32(ev) for ev in evs if ev is not None and ev == ev]


def ev_gap(*evs: float | None) -> float | None:
    ordered = sorted(known(evs), reverse=True)
    return float(ordered[0] - ordered[1]) if len(ordered) > 1 else None


def ev_loss(move: int, *evs: float | None) -> float | None:
    own = known(evs[move : move + 1])
    return float(max(known(evs)) - own[0]) if own else None


def best_move(*evs: float | None) -> int | None:
    best = max(known(evs), default=None)
    return None if best is None else [ev is not None and ev == best for ev in evs].index(True)


OF_BOARD: dict[str, tuple[Callable[[int], Any], Any]] = {
    "max_tile": (lambda board: tile_of(max(cells(board))), pa.uint32()),
    "empty_cells": (lambda board: cells(board).count(0), pa.uint8()),
    "tile_sum": (lambda board: sum(map(tile_of, cells(board))), pa.uint32()),
    "board_score": (score, pa.int64()),
    "legal_moves": (legal_mask, pa.uint8()),
    "num_legal": (lambda board: legal_mask(board).bit_count(), pa.uint8()),
    "is_terminal": (lambda board: legal_mask(board) == 0, pa.bool_()),
    "canonical": (lambda board: min(turned(board)), pa.uint64()),
    "canonical_symmetry": (lambda board: turned(board).index(min(turned(board))), pa.uint8()),
    "board_text": (text, pa.string()),
    "monotonicity": (monotonicity, pa.int32()),
    "smoothness": (smoothness, pa.int32()),
}
OF_BOARD_AND_NUMBER: dict[str, tuple[Callable[[int, int], Any], int, Any]] = {
    "tile": (lambda board, cell: tile_of(cells(board)[cell]), 16, pa.uint32()),
    "afterstate": (slide, 4, pa.uint64()),
    "reward": (reward, 4, pa.uint32()),
    "transform": (transform, 8, pa.uint64()),
    "canonical_move": (canonical_move, 4, pa.uint8()),
}
"""Functions of a board and a number, how many values the number has (from 0), and the type of the result."""
