"""Growth: the rate of each stage for archives of growing size.

If the rate of a stage stays constant, its time is proportional to the size of the archive. Rounds alternate between the
sizes.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from report import Report, median, millions, table

import a2store

SIZES = (1_000_000, 10_000_000, 100_000_000)
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
    tables = {
        size: archive.sql("SELECT * FROM steps").materialize(progress=False) for size, archive in archives.items()
    }
    # The system would write the new files to the disk during the measurement.
    os.sync()
    for at in range(rounds or ROUNDS):
        for size in SIZES:
            for name, stage in stages(archives[size], tables[size], at).items():
                start = time.perf_counter()
                number = stage()
                rates[size].setdefault(name, []).append(number / (time.perf_counter() - start))
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


def stages(archive: a2store.Archive, steps: a2store.StepTable, seed: int) -> dict[str, Callable[[], int]]:
    """Return the stages. Each returns the number of its units, after it has checked its answer."""
    rows = np.asarray(steps)
    indices = [np.random.default_rng([seed, at]).integers(0, len(rows), BATCH) for at in range(TAKES)]

    def opened() -> int:
        assert a2store.open(archive.path).num_steps == len(rows)
        return 1

    def filtered() -> int:
        # About one run in a hundred.
        sql = "SELECT count(*) AS n, sum(num_steps) AS steps FROM runs WHERE run_id % 100 = 7"
        found = archive.sql(sql).to_arrow().to_pylist()[0]
        steps_of = archive.sql("SELECT board FROM steps WHERE run_id % 100 = 7").count()
        assert steps_of == (found["steps"] or 0), found
        return len(rows)

    def materialized() -> int:
        return len(archive.sql("SELECT * FROM steps").materialize(progress=False))

    def taken() -> int:
        for some in indices:
            batch = steps.take(some)
        assert np.array_equal(batch.board, rows["board"][indices[-1]])
        return TAKES * BATCH

    def loaded() -> int:
        number = sum(len(batch) for batch in steps.loader(BATCH, seed=seed))
        assert number == len(rows)
        return number

    return {
        "open, archives/s": opened,
        "1 % of the runs, steps of the archive/s": filtered,
        "materialize, rows/s": materialized,
        f"take {BATCH:,} random rows, rows/s": taken,
        "loader, rows/s": loaded,
    }
