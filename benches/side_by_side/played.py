"""Games from Python: the rate of recorded steps, and the rate of steps played by trivial policies.

There is no peer to compare with. The recorded steps are read back and compared.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
from report import Report, millions, table

from a2store import selfplay

ROUNDS = 3
GAME = 1000
"""Steps of a recorded game."""
GAMES = 10_000
"""The number of recorded games of a method; the fastest records twice as many."""
BATCHES = (256, 1024, 4096)
"""The numbers of games that are played side by side."""


def boards_and_moves() -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return a game's boards, packed and as exponents, and its moves; they need not follow the rules."""
    rng = np.random.default_rng(1)
    exps = rng.integers(0, 12, (GAME, 16), dtype=np.uint8)
    boards = np.zeros(GAME, np.uint64)
    for cell in range(16):
        boards = boards << np.uint64(4) | exps[:, cell].astype(np.uint64)
    return boards, exps, rng.integers(0, 4, GAME, dtype=np.uint8)


def recorded(boards: npt.NDArray[Any], moves: npt.NDArray[np.uint8], batch: int, games: int) -> tuple[float, float]:
    """Return steps per second until all were pushed, and until all were on disk."""
    parts = [(boards[at : at + batch], moves[at : at + batch]) for at in range(0, GAME, batch)]
    with tempfile.TemporaryDirectory(prefix="played-") as folder:
        recorder = selfplay.Recorder(folder, tag="bench")
        start = time.perf_counter()
        for seed in range(games):
            game = recorder.begin(seed)
            for part in parts:
                game.push_batch(*part)
            game.end()
        pushed = time.perf_counter() - start
        stats = recorder.close()
        durable = time.perf_counter() - start
        rows = [np.load(session / "steps.npy", mmap_mode="r") for session in recorder.sessions]
        assert sum(map(len, rows)) == stats.steps == games * GAME
        assert (rows[-1]["action"][-GAME:] == moves).all()
    return games * GAME / pushed, games * GAME / durable


def first_legal(_tokens: npt.NDArray[Any], legal: npt.NDArray[np.bool_]) -> Any:
    """Make the first legal move."""
    return np.argmax(legal, axis=1)


def constant(tokens: npt.NDArray[Any], _legal: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
    """Return the same logits for every board."""
    return np.broadcast_to(np.array([3, 2, 1, 0], np.float32), (len(tokens), 4))


def run(report: Report, rounds: int | None) -> None:
    """Measure recording and playing."""
    rounds = rounds or ROUNDS
    boards, exps, moves = boards_and_moves()
    lines = []
    for name, array, batch, games in (
        ("packed boards, batches of 1000", boards, 1000, 2 * GAMES),
        ("exponents, batches of 1000", exps, 1000, GAMES),
        ("packed boards, batches of 50", boards, 50, GAMES),
    ):
        rates = [recorded(array, moves, batch, games) for _ in range(rounds)]
        pushed, durable = (median(rate[k] for rate in rates) for k in range(2))
        report.add("played", f"record: {name}", steps_per_s=pushed, durable_steps_per_s=durable)
        lines.append((name, millions(pushed), millions(durable)))
    table(f"recording from one Python thread: medians of {rounds} rounds", ("", "pushed", "on disk"), lines)

    policies: list[tuple[str, Callable[..., Any]]] = [("first legal move", first_legal), ("constant logits", constant)]
    lines = []
    for name, policy in policies:
        for batch in BATCHES:
            rate = median(
                selfplay.play(policy, 4 * batch, batch_size=batch, seed=1, progress=False).steps_per_second
                for _ in range(rounds)
            )
            report.add("played", f"play: {name}, {batch}", steps_per_s=rate)
            lines.append((name, f"{batch:,} games", millions(rate)))
    table(f"playing with a policy in NumPy, on one core: medians of {rounds} rounds", ("", "", "steps/s"), lines)
