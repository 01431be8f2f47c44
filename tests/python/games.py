"""Random games by the rules, all different, with values in the form that engines write."""

from __future__ import annotations

import random
import struct
from typing import cast

from oracle import Branches, Game, cells, slide

BEST = 1 - 2.0**-23
"""The value of the best move: 1 minus the epsilon of f32."""


def f32(value: float) -> float:
    nearest: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return nearest


def normalized(values: Branches) -> Branches:
    """Return raw values in the form of run files: the best legal value just below 1, the worst 0, equal values 0.5."""
    legal = [value for value in values if value is not None]
    least, most = min(legal), max(legal)

    def one(value: float | None) -> float | None:
        if value is None:
            return None
        if len(legal) == 1:
            return BEST
        if least == most:
            return 0.5
        return f32(min((value - least) / (most - least), BEST))

    return cast(Branches, tuple(map(one, values)))


def spawned(rng: random.Random, board: int) -> int:
    empty = [cell for cell, exp in enumerate(cells(board)) if exp == 0]
    return board | (2 if rng.random() < 0.1 else 1) << 4 * (15 - rng.choice(empty))


def score(board: int) -> int:
    """Return the score that engines call ``max_score``."""
    return sum((exp - 1) * 2**exp for exp in cells(board) if exp)


def play(
    rng: random.Random,
    num_steps: int = 300,
    *,
    engine: str | None = None,
    raw: bool = False,
    without_evs: float = 0.0,
) -> Game:
    """Play a game of random moves, of at most this many steps.

    Each move is the best by random values: normalized, or, with ``raw``, of three decimals and any sign. A step has
    no values with a probability of ``without_evs``.
    """
    board = spawned(rng, spawned(rng, 0))
    boards, moves, branches = [], [], []
    for _ in range(num_steps):
        slid = [slide(board, move) for move in range(4)]
        legal = [move for move in range(4) if slid[move] != board]
        if not legal:
            break
        drawn: list[float | None] = [None] * 4
        for move in legal:
            drawn[move] = round(rng.uniform(-500, 1500), 3)
        if rng.random() < 0.02:
            drawn = [None if value is None else 1.5 for value in drawn]
        move = max(legal, key=lambda move: (cast(float, drawn[move]), rng.random()))
        values = cast(Branches, tuple(drawn))
        boards.append(board)
        moves.append(move)
        branches.append(None if rng.random() < without_evs else values if raw else normalized(values))
        board = spawned(rng, slid[move])
    return Game(
        boards=tuple(boards),
        moves=tuple(moves),
        branches=tuple(branches),
        final_board=board,
        start_unix_s=rng.randrange(1_600_000_000, 1_800_000_000),
        elapsed_s=f32(rng.uniform(0.01, 100)),
        max_score=score(board),
        highest_tile=2 ** max(cells(board)),
        engine=engine,
    )
