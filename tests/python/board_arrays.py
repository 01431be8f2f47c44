"""The board functions over whole arrays, by tables of lines, because ``board_rules`` is too slow for many boards."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from board_rules import IMAGES, TURNS, reward, smoothness, steps_of_line, text, tile_of
from oracle import Array, slide_line

CELLS = np.arange(16).reshape(4, 4)
WALLS = [CELLS.T, CELLS.T[:, ::-1], CELLS, CELLS[:, ::-1]]
"""For each move, the cells of each line, from the wall that the tiles move to."""
PLACES = [turn(CELLS).ravel() for turn in TURNS]
"""For each symmetry, the source cell of each cell."""
SHIFTS = np.arange(60, -1, -4, dtype="u8")
IN_LINE = np.array([12, 8, 4, 0], "u2")
LINES = np.arange(1 << 16, dtype="u2")[:, None] >> IN_LINE & np.uint16(15)
"""The exponents of every line, by its number."""
TILES = np.array([tile_of(exp) for exp in range(16)], "u8")
SCORES = np.array([(exp - 1) * tile_of(exp) if exp else 0 for exp in range(16)], "u8")


@cache
def slid() -> Array:
    """Return each line after a move towards its first cell."""
    lines = [slide_line(tuple(line)) for line in LINES.tolist()]
    numbers: Array = np.bitwise_or.reduce(np.array(lines, "u2") << IN_LINE, axis=1)
    return numbers


def _of_lines(dtype: str, function: Any) -> Array:
    """Return the value of a function for each board that has one line at the top and is otherwise empty."""
    return np.array([function(line << 48) for line in range(1 << 16)], dtype)


@cache
def earned() -> Array:
    return _of_lines("u4", lambda board: reward(board, 2))


@cache
def differences() -> Array:
    return _of_lines("i4", smoothness)


@cache
def down_and_up() -> Array:
    return np.array([steps_of_line(line) for line in LINES.tolist()], "i4")


@cache
def texts() -> Any:
    return pa.array([text(line).split(" / ")[-1] for line in range(1 << 16)])


def exps(boards: Array) -> Array:
    return (boards[:, None] >> SHIFTS & np.uint64(15)).astype("u1")


def packed(cells: Array) -> Array:
    boards: Array = np.bitwise_or.reduce(cells.astype("u8") << SHIFTS, axis=1)
    return boards


def line_numbers(cells: Array, move: int) -> Array:
    numbers: Array = np.bitwise_or.reduce(cells[:, WALLS[move]].astype("u2") << IN_LINE, axis=2)
    return numbers


def afterstate(cells: Array, move: int) -> Array:
    after = np.empty_like(cells)
    after[:, WALLS[move]] = LINES[slid()[line_numbers(cells, move)]]
    return packed(after)


def chosen(by_move: list[Array], moves: Array) -> Array:
    """Return for each row the value of the chosen move."""
    return np.choose(moves, by_move)


def functions_of_boards(boards: Array) -> Iterator[tuple[str, Array]]:
    """Yield calls of functions of a board and literals, with their results."""
    cells = exps(boards)
    yield "exps(board)", cells
    for cell in range(16):
        yield f"tile(board, {cell})", TILES[cells[:, cell]]
    yield "max_tile(board)", TILES[cells.max(axis=1)]
    yield "empty_cells(board)", (cells == 0).sum(axis=1)
    yield "tile_sum(board)", TILES[cells].sum(axis=1)
    yield "board_score(board)", SCORES[cells].sum(axis=1)
    after = [afterstate(cells, move) for move in range(4)]
    legal = [boards != slid for slid in after]
    for move in range(4):
        yield f"afterstate(board, {move})", after[move]
        yield f"reward(board, {move})", earned()[line_numbers(cells, move)].sum(axis=1)
    yield "legal_moves(board)", np.sum([can.astype("u1") << move for move, can in enumerate(legal)], axis=0)
    yield "num_legal(board)", np.sum(legal, axis=0)
    yield "is_terminal(board)", ~np.any(legal, axis=0)
    turned = [packed(cells[:, places]) for places in PLACES]
    for symmetry in range(8):
        yield f"transform(board, {symmetry})", turned[symmetry]
    yield "canonical(board)", np.min(turned, axis=0)
    yield "canonical_symmetry(board)", np.argmin(turned, axis=0)
    for move in range(4):
        yield f"canonical_move(board, {move})", canonical_move(turned, move)
    rows, columns = line_numbers(cells, 2), line_numbers(cells, 0)
    yield "smoothness(board)", differences()[rows].sum(axis=1) + differences()[columns].sum(axis=1)
    along = [down_and_up()[lines].sum(axis=1).max(axis=1) for lines in (rows, columns)]
    yield "monotonicity(board)", along[0] + along[1]


def canonical_move(turned: list[Array], move: int) -> Array:
    least = np.min(turned, axis=0)
    images = [np.where(board == least, IMAGES[symmetry][move], 4) for symmetry, board in enumerate(turned)]
    smallest: Array = np.min(images, axis=0)
    return smallest


def board_texts(boards: Array) -> Any:
    rows = line_numbers(exps(boards), 2)
    return pc.binary_join_element_wise(*(texts().take(pa.array(row)) for row in rows.T), " / ")


def functions_of_values(moves: Array, evs: Array) -> Iterator[tuple[str, Array]]:
    """Yield calls of functions of the four values of each step, with their results; NaN stands for null."""
    ranked = np.where(np.isnan(evs), np.float32(-np.inf), evs)
    ordered, number = np.sort(ranked, axis=1), (~np.isnan(evs)).sum(axis=1)
    arguments = "ev_up, ev_down, ev_left, ev_right"
    with np.errstate(invalid="ignore"):
        yield f"ev_gap({arguments})", np.where(number > 1, ordered[:, 3] - ordered[:, 2], np.float32("nan"))
        own = np.take_along_axis(evs, moves[:, None], axis=1)[:, 0]
        yield f"ev_loss(move, {arguments})", ordered[:, 3] - own
    yield f"best_move({arguments})", np.where(number > 0, ranked.argmax(axis=1), np.nan)


def spawns(after: Array, following: Array) -> tuple[Array, Array, Array]:
    """Return whether one 2 or 4 spawned on each board, its cell, and its tile."""
    before, now = exps(after), exps(following)
    changed = before != now
    cell = changed.argmax(axis=1)
    rows = np.arange(len(cell))
    came = (changed.sum(axis=1) == 1) & (before[rows, cell] == 0) & (now[rows, cell] <= 2) & (now[rows, cell] > 0)
    return came, cell, TILES[now[rows, cell]]
