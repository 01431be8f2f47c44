"""Gather and loader beside NumPy, pyarrow and a trainer's own collate, on the same rows in the same process.

    python benches/side_by_side.py [STEPS]

STEPS is the size of the table, 20 million if not given: more than the caches hold. Each competitor's answer is checked
before it is timed. Rounds alternate between the competitors; the figures are medians.
"""

from __future__ import annotations

import datetime
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import a2store

BATCH = 4096
ROUNDS = 5
REPEATS = 60


def generate(steps: int, folder: Path) -> a2store.StepTable:
    """Return a table of about so many steps of fast games, and print what each stage of making it did."""
    start = time.perf_counter()
    report = a2store.simulate(folder / "runs", runs=steps // 350, seed=1, depth=0, progress=False)
    show("simulate", report.num_steps, time.perf_counter() - start)
    archive = a2store.Archive.create(folder / "games.a2")
    start = time.perf_counter()
    archive.ingest(folder / "runs", progress=False)
    show("ingest", archive.num_steps, time.perf_counter() - start)
    size = sum(Path(file).stat().st_size for file in archive.files("steps"))
    print(f"{'archive':28} {size / archive.num_steps:.1f} bytes a step")
    start = time.perf_counter()
    table = archive.sql("SELECT * FROM steps").materialize(progress=False)
    show("materialize", len(table), time.perf_counter() - start)
    return table


def show(what: str, rows: int, seconds: float) -> None:
    """Print a rate."""
    print(f"{what:28} {rows:,} rows in {seconds:.2f} s: {rows / seconds / 1e6:.1f}M/s")


def collate(rows: np.ndarray[Any, Any], indices: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Do as trainers do: fancy indexing, then one array per field."""
    picked = rows[indices]
    shifts = np.arange(60, -1, -4, dtype=np.uint64)
    bits = np.arange(4, dtype=np.uint8)
    return {
        "tokens": ((picked["board"][:, None] >> shifts) & np.uint64(15)).astype(np.uint8),
        "move": np.ascontiguousarray(picked["move"]),
        "ev_values": np.ascontiguousarray(picked["ev_values"]),
        "ev_legal": ((picked["ev_legal"][:, None] >> bits) & 1).astype(bool),
        "run_id": np.ascontiguousarray(picked["run_id"]),
        "step_index": np.ascontiguousarray(picked["step_index"]),
        "board": np.ascontiguousarray(picked["board"]),
    }


def gather(table: a2store.StepTable) -> None:
    """Time one random batch."""
    rows = np.asarray(table)
    flat = rows.view(np.uint8).reshape(len(table), 32)
    binary = pa.array(table.rows_array())
    competitors: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
        "a2store take (all columns)": table.take,
        "np.take (rows only)": lambda indices: np.take(flat, indices, axis=0),
        "np.take + collate": lambda indices: collate(rows, indices),
        "pyarrow take (rows only)": binary.take,
    }
    rng = np.random.default_rng(0)
    check = rng.integers(0, len(table), BATCH)
    expected = collate(rows, check)
    batch = table.take(check)
    for name, column in expected.items():
        np.testing.assert_array_equal(batch[name], column)
    assert pa.array(binary.take(pa.array(check))).to_pylist()[7] == flat[check[7]].tobytes()

    medians: dict[str, list[float]] = {name: [] for name in competitors}
    for _ in range(ROUNDS):
        for name, function in competitors.items():
            times = []
            for _ in range(REPEATS):
                indices = rng.integers(0, len(table), BATCH)
                argument = pa.array(indices) if name.startswith("pyarrow") else indices
                start = time.perf_counter()
                function(argument)
                times.append(time.perf_counter() - start)
            medians[name].append(statistics.median(times) * 1e6)
    ours = statistics.median(medians["a2store take (all columns)"])
    print(f"\n{BATCH} random rows of {len(table):,}, median of {ROUNDS} rounds")
    for name, values in medians.items():
        median = statistics.median(values)
        print(f"{name:28} {median:7.0f} µs  {median / ours:5.2f} ×  ({min(values):.0f} to {max(values):.0f})")


def epochs(table: a2store.StepTable) -> None:
    """Time epochs."""
    rows = np.asarray(table)

    def numpy_epoch() -> Iterator[int]:
        order = np.random.default_rng(0).permutation(len(rows))
        for at in range(0, len(rows), BATCH):
            yield len(collate(rows, order[at : at + BATCH])["move"])

    print("\nan epoch, shuffled")
    for name, tokens in (("a2store loader, uint8", "uint8"), ("a2store loader, int64", "int64")):
        loader = table.loader(BATCH, tokens=tokens, seed=1)  # type: ignore[arg-type]
        seconds = []
        for epoch in range(3):
            loader.set_epoch(epoch)
            start = time.perf_counter()
            served = sum(len(batch) for batch in loader)
            seconds.append(time.perf_counter() - start)
            assert served == len(table)
        show(name, len(table), statistics.median(seconds))
    start = time.perf_counter()
    assert sum(numpy_epoch()) == len(table)
    show("np.permutation + collate", len(table), time.perf_counter() - start)


def main() -> None:
    """Run all."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000_000
    print(
        f"{datetime.date.today()}, {platform.processor() or platform.machine()}, a2store {a2store.__version__},",
        end=" ",
    )
    print(f"NumPy {np.__version__}, pyarrow {pa.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        table = generate(steps, Path(folder))
    gather(table)
    epochs(table)


if __name__ == "__main__":
    main()
