"""Saved tables and NumPy datasets, read into memory: a2store beside ``numpy.load`` of the same files."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from report import Report, median, millions, table

import a2store

ROUNDS = 7


def run(report: Report, archive: a2store.Archive, rounds: int | None) -> None:
    """Write the steps in both forms, and read each with both tools in alternating rounds."""
    with tempfile.TemporaryDirectory(prefix="side_by_side-") as name:
        folder = Path(name)
        steps = archive.sql("SELECT * FROM steps").materialize(progress=False)
        steps.save(folder / "steps.npy", progress=False)
        archive.export_runs("SELECT run_id FROM runs", folder / "dataset", format="npy", progress=False)
        num_rows = len(steps)
        del steps
        compare(report, "a saved table", num_rows, rounds or ROUNDS, {
            "np.load": lambda: np.load(folder / "steps.npy"),
            "StepTable.load": lambda: np.asarray(a2store.StepTable.load(folder / "steps.npy", progress=False)),
        })  # fmt: skip
        shards = sorted((folder / "dataset").glob("steps*.npy"))
        compare(report, "a dataset", num_rows, rounds or ROUNDS, {
            "np.load": lambda: [np.load(shard) for shard in shards],
            "StepTable.from_runs": lambda: np.asarray(
                a2store.StepTable.from_runs(folder / "dataset", progress=False)
            ),
        })  # fmt: skip


def compare(report: Report, what: str, num_rows: int, rounds: int, tools: dict[str, Callable[[], Any]]) -> None:
    """Check that all tools read the same boards, time them, and print a table."""
    boards = [boards_of(read()) for read in tools.values()]
    assert all(np.array_equal(boards[0], others) for others in boards)
    assert len(boards[0]) == num_rows
    seconds: dict[str, list[float]] = {tool: [] for tool in tools}
    for _ in range(rounds):
        for tool, read in tools.items():
            start = time.perf_counter()
            read()
            seconds[tool].append(time.perf_counter() - start)
    base = median(seconds["np.load"])
    lines = []
    for tool, each in seconds.items():
        report.add("files", f"{what}: {tool}", seconds=median(each), ratio=median(each) / base)
        lines.append((tool, f"{median(each):.3f} s", millions(num_rows / median(each)), f"{median(each) / base:.2f}"))
    table(f"{what} of {num_rows:,} rows, {rounds} rounds", ("", "median", "rows/s", "of np.load"), lines)


def boards_of(rows: Any) -> Any:
    """Return the boards of an array, or of the arrays of all shards."""
    return rows["board"] if isinstance(rows, np.ndarray) else np.concatenate([shard["board"] for shard in rows])
