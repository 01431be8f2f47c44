"""Growth: the rate of each stage for archives of growing size.

If the rate of a stage stays constant, its time is proportional to the size of the archive. Rounds alternate between the
sizes. The temporary folder has all archives, and the run files of the largest one. In the figures of 0.1.0, the times
for 1 % of the runs, materialize and the loader include more work.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from report import Report, median, millions, table

import a2store

SIZES = (1_000_000, 10_000_000, 100_000_000, 400_000_000)
ROUNDS = 5
BATCH = 4096
TAKES = 2000
STEPS_PER_RUN = 358


def run(report: Report, folder: Path, rounds: int | None) -> None:
    """Make an archive of each size, and measure every stage."""
    archives, rates = {}, {}
    for size in SIZES:
        runs = max(1, size // STEPS_PER_RUN)
        a2store.simulate(folder / str(size), runs=runs, seed=1, depth=0, progress=False)
        archives[size] = a2store.Archive.create(folder / f"{size}.a2")
        start = time.perf_counter()
        archives[size].ingest(folder / str(size), progress=False)
        rates[size] = {"ingest, steps/s": [archives[size].num_steps / (time.perf_counter() - start)]}
        shutil.rmtree(folder / str(size))
    # The system would write the new files to the disk during the measurement.
    os.sync()
    for at in range(rounds or ROUNDS):
        for size in SIZES:
            for name, rate in rates_of(archives[size], at).items():
                rates[size].setdefault(name, []).append(rate)
    middle = {size: {name: median(each) for name, each in rates[size].items()} for size in SIZES}
    for size in SIZES:
        for name, rate in middle[size].items():
            report.add("growth", f"{name}, {size} steps", rate_per_s=rate)
    lines = [[name, *(shown(middle[size][name]) for size in SIZES)] for name in middle[SIZES[0]]]
    sizes = [f"{archives[size].num_steps:,} steps" for size in SIZES]
    table(f"growth: rates by the size of the archive, {rounds or ROUNDS} rounds", ("", *sizes), lines)


def shown(rate: float) -> str:
    """Return a rate in millions from 100,000 on, else as a whole number."""
    return millions(rate) if rate >= 1e5 else f"{rate:,.0f}"


def rates_of(archive: a2store.Archive, seed: int) -> dict[str, float]:
    """Return the rate of each stage, after it has checked its answer. Only one table is in memory at a time."""
    rates = {}

    def timed(name: str, number: int, stage: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = stage()
        rates[name] = number / (time.perf_counter() - start)
        return result

    opened = timed("open, archives/s", 1, lambda: a2store.open(archive.path))
    assert opened.num_steps == archive.num_steps
    # About one run in a hundred.
    sql = "SELECT board FROM steps WHERE run_id % 100 = 7"
    found = timed("1 % of the runs, steps of the archive/s", archive.num_steps, lambda: archive.sql(sql).count())
    (expected,) = archive.sql("SELECT sum(num_steps) AS steps FROM runs WHERE run_id % 100 = 7").to_arrow().to_pylist()
    assert found == (expected["steps"] or 0), expected

    whole = "SELECT * FROM steps"
    steps = timed("materialize, rows/s", archive.num_steps, lambda: archive.sql(whole).materialize(progress=False))
    rows = np.asarray(steps)
    assert len(rows) == archive.num_steps
    indices = [np.random.default_rng([seed, at]).integers(0, len(rows), BATCH) for at in range(TAKES)]
    takes = deque[a2store.Batch](maxlen=1)
    timed(f"take {BATCH:,} random rows, rows/s", TAKES * BATCH, lambda: takes.extend(map(steps.take, indices)))
    assert np.array_equal(takes[0].board, rows["board"][indices[-1]])
    loader = steps.loader(BATCH, seed=seed)
    assert timed("loader, rows/s", len(rows), lambda: sum(map(len, loader))) == len(rows)
    return rates
