"""The main workflow on generated games: simulate, ingest, query, materialize, serve shuffled batches.

Run it with ``make demo``. It writes to the folder ``demo/``, which it empties first.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import a2store

FOLDER = Path("demo")
RUNS = FOLDER / "runs"
ARCHIVE = FOLDER / "games.a2"


def command(line: str) -> None:
    """Print a command line and run it."""
    print(f"\n$ a2store {line}", flush=True)
    subprocess.run([sys.executable, "-m", "a2store", *shlex.split(line)], check=True)


def rate(number: int, seconds: float) -> str:
    """Return a rate in millions per second."""
    return f"{number / seconds / 1e6:.1f}M/s"


def main() -> None:
    """Run the demo."""
    shutil.rmtree(FOLDER, ignore_errors=True)

    print("# 300 games by three engines, in both formats of run files")
    command(f"simulate --runs 100 --seed 1 --label expectimax --output {RUNS}/expectimax")
    command(f"simulate --runs 100 --seed 2 --label greedy --fast --output {RUNS}/greedy")
    command(f"simulate --runs 100 --seed 3 --label old-expectimax --format a2t1 --output {RUNS}/old")

    print("\n# into an archive; a second time, nothing is new")
    command(f"ingest {RUNS} {ARCHIVE}")
    command(f"ingest {RUNS} {ARCHIVE}")
    command(f"info {ARCHIVE}")

    print("\n# late positions of the best games of one engine, by SQL from Python")
    archive = a2store.Archive.open(ARCHIVE)
    query = archive.sql(
        "SELECT * FROM steps WHERE max_score >= $min AND engine = $engine AND phase = 'late'",
        {"min": 50_000, "engine": "expectimax"},
    )
    print(f"{query.count():,} of {archive.num_steps:,} steps; run-level filters are evaluated once per run:")
    by_run, plan = query.explain().split("\n", 1)
    print("  " + by_run)
    print("  in the Parquet reader: " + plan[plan.index("predicate=") : plan.index(", pruning_predicate=")])
    late = query.materialize()
    print(f"as a table: {late}, {late.nbytes / 1e6:.1f} MB")
    print("the first board, its expected values and the move (up, down, left, right = 0, 1, 2, 3):")
    first = late.take([0])
    print(2 ** first.tokens[0].astype(int).reshape(4, 4) * (first.tokens[0].reshape(4, 4) > 0))
    print(first.ev_values[0].round(3), first.move[0])

    print("\n# all steps in memory, and one shuffled epoch")
    start = time.perf_counter()
    table = archive.sql("SELECT * FROM steps").materialize()
    seconds = time.perf_counter() - start
    print(f"materialize  {len(table):,} rows in {seconds:.2f} s: {rate(len(table), seconds)}")

    loader = table.loader(batch_size=4096, shuffle=True, seed=0)
    seen = np.zeros(len(table), np.uint8)
    starts = np.searchsorted(np.asarray(table)["run_id"], np.arange(archive.num_runs))
    start = time.perf_counter()
    served = sum(len(batch) for batch in loader)
    seconds = time.perf_counter() - start
    print(f"one epoch    {served:,} rows in {len(loader)} batches, {seconds:.2f} s: {rate(served, seconds)}")
    for batch in loader:
        seen[starts[batch.run_id] + batch.step_index] += 1
    print(f"every row exactly once: {bool((seen == 1).all())}")

    indices = np.random.default_rng(0).integers(0, len(table), 4096)
    rows = np.asarray(table)
    times: dict[str, list[float]] = {"take": [], "np.take": []}
    for _ in range(200):
        for name, gather in (("take", table.take), ("np.take", lambda i: np.take(rows, i))):
            start = time.perf_counter()
            gather(indices)
            times[name].append(time.perf_counter() - start)
    ours, numpy = (sorted(times[name])[100] * 1e6 for name in ("take", "np.take"))
    print(f"4,096 random rows: take {ours:.0f} µs as columns, np.take {numpy:.0f} µs as rows")

    print("\n# the same archive, without a2store: DuckDB and pyarrow on its Parquet files")
    files = archive.files("steps")
    print(duckdb.sql(f"SELECT phase, count(*) AS steps FROM read_parquet({files}) GROUP BY phase ORDER BY steps DESC"))
    runs = pa.concat_tables([pq.read_table(file) for file in archive.files("runs")])
    print(f"pyarrow: {runs.num_rows} runs, best score {max(runs['max_score'].to_pylist()):,}")


if __name__ == "__main__":
    main()
