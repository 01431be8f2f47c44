"""Compare a2store with NumPy, PyTorch, pyarrow, DuckDB and polars on the same rows of the same archive.

    python benches/side_by_side [PART ...] [--archive PATH | --steps N] [--rounds N] [--json FILE]
                                [--only REGEX] [--memory] [--seconds S] [--small]

The parts are ``gather``, ``loader``, ``materialize``, ``files``, ``epochs``, ``queries``, ``cluster``, ``growth``,
``ingest``, ``formats``, ``played``, ``annotations`` and ``writers``. The last six create their own files. Without a
part, all run. Each competitor's answer is checked first, rounds alternate between the competitors, and figures are
medians.

``queries`` and ``cluster`` create their archive once and cache it in ``target/side_by_side``. With ``--memory``,
``queries`` measures the memory of a2store's queries under a limit instead of times. ``--small`` runs everything once on
small data, to check the benchmarks themselves: its times mean nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import annotated
import cluster
import epochs
import files
import gather
import group_archive
import growth
import ingest
import loader
import materialize
import played
import queries
import query_memory
import run_formats
import writers
from report import Meanwhile, Report, millions, note, table

import a2store

PARTS = (
    "gather",
    "loader",
    "materialize",
    "files",
    "epochs",
    "queries",
    "cluster",
    "growth",
    "ingest",
    "formats",
    "played",
    "annotations",
    "writers",
)
STEPS = 20_000_000
QUERIED_STEPS = 30_000_000
SMALL: dict[Any, dict[str, Any]] = {
    cluster: {"STARTS": 2, "TASKS": (2, 6)},
    epochs: {"SECONDS": 0.1},
    gather: {"CALLS": 1, "LANCE_ROWS": 0},
    group_archive: {"INGESTS": 2},
    growth: {"SIZES": (1_000, 5_000), "TAKES": 2},
    ingest: {
        "RUNS": 4,
        "SMALL_FILES": 20,
        "APPENDS": 12,
        "RUNS_PER_APPEND": 2,
        "KEPT_APPENDS": 4,
        "APPENDS_PER_EXPIRY": 2,
        "LOOKED_AT": 4,
        "QUERIES_PER_PROCESS": 4,
    },
    loader: {"EPOCHS": 1, "FIRST_BATCHES": 2, "PEER_BATCHES": 2, "STEADY_BATCHES": 20},
    materialize: {"PHASES": ("early",)},
    played: {"GAMES": 20, "BATCHES": (4, 16)},
    run_formats: {"RUNS": 4, "PACKED_RUNS": 20},
    writers: {"SECONDS": 2.0, "IN_FOLDER": 2, "ON_S3": 2, "DELAYS": (0, 0.01), "KILLS_PER_WRITER": 1},
}
"""The sizes of ``--small``, which replace those of the modules."""
SMALL_STEPS = 20_000


def generate(report: Report, steps: int, folder: Path) -> Path:
    """Create an archive of about this many steps of fast games, and print the rate of each stage."""
    lines = []

    def show(stage: str, number: int, start: float) -> None:
        rate = number / (time.perf_counter() - start)
        report.add("archive", stage, steps_per_s=rate)
        lines.append((stage, f"{number:,}", millions(rate)))

    start = time.perf_counter()
    made = a2store.simulate(folder / "runs", runs=max(1, steps // 358), seed=1, depth=0, progress=False)
    show("simulate", made.num_steps, start)
    archive = a2store.Archive.create(folder / "games.a2")
    start = time.perf_counter()
    archive.ingest(folder / "runs", progress=False)
    show("ingest", archive.num_steps, start)
    shutil.rmtree(folder / "runs")
    table("a generated archive", ("", "steps", "steps/s"), lines)
    return Path(archive.path)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="side_by_side", description="Compare a2store with peers on the same rows.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"parts to run: {', '.join(PARTS)}; default: all")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--archive", type=Path, help="an existing archive; default: a temporary generated archive")
    source.add_argument(
        "--steps", type=int, help=f"size of a generated archive ({STEPS:,}; {QUERIED_STEPS:,} for queries)"
    )
    parser.add_argument("--rounds", type=int, help="rounds of each part; the default depends on the part")
    parser.add_argument("--seconds", type=float, help="how long the processes of ``writers`` write: 4 times this long")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all medians to a file")
    parser.add_argument("--only", metavar="REGEX", help="run only the queries whose group and name match")
    parser.add_argument("--memory", action="store_true", help="measure the memory of the queries instead of the time")
    parser.add_argument("--small", action="store_true", help="one round on small data, to check the benchmarks")
    options = parser.parse_args()
    if options.small:
        options.steps, options.rounds = options.steps or SMALL_STEPS, options.rounds or 1
        for module, sizes in SMALL.items():
            for name, size in sizes.items():
                assert hasattr(module, name), (module, name)
                setattr(module, name, size)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"unknown part: expected {', '.join(PARTS)}, found {', '.join(sorted(unknown))}")
    if (options.steps is not None and options.steps < 1) or (options.rounds is not None and options.rounds < 1):
        parser.error("--steps and --rounds must be at least 1")
    return options


def watched(report: Report, part: str, work: Callable[[], None]) -> None:
    """Run a part, and print the load by other processes during it."""
    meanwhile = Meanwhile()
    work()
    others, stolen = meanwhile.shares()
    report.add(part, "meanwhile", other_processes=others, stolen_by_host=stolen)
    note(f"other processes used {others:.0%} of the cores during this part, and the host took {stolen:.0%}")


def show_archive(archive: a2store.Archive) -> None:
    """Print the name and size of the archive."""
    paths = archive.files("steps")
    size = sum(Path(path).stat().st_size for path in paths) / archive.num_steps
    print(f"\n{archive.path}: {archive.num_steps:,} steps, {size:.1f} bytes per step, files: {len(paths)}")


def measure(report: Report, path: Path, parts: set[str], rounds: int | None) -> None:
    """Run the selected parts."""
    archive = a2store.Archive.open(path)
    show_archive(archive)
    if parts & {"gather", "loader"}:
        steps = archive.sql("SELECT * FROM steps").materialize(progress=False)
        if "gather" in parts:
            watched(report, "gather", lambda: gather.run(report, steps, rounds))
        if "loader" in parts:
            watched(report, "loader", lambda: loader.run(report, steps))
        # The parts below start processes, and each needs the memory for its own table.
        del steps
    if "materialize" in parts:
        watched(report, "materialize", lambda: materialize.run(report, archive, rounds))
    if "files" in parts:
        watched(report, "files", lambda: files.run(report, archive, rounds))
    if "epochs" in parts:
        watched(report, "epochs", lambda: epochs.run(report, archive, rounds))


def main() -> None:
    """Run the benchmark."""
    options = arguments()
    if options.seconds is not None:
        writers.SECONDS = options.seconds
    report = Report()
    report.show_environment()
    parts = set(options.parts or PARTS)
    if "growth" in parts:
        with tempfile.TemporaryDirectory(prefix="side_by_side-") as folder:
            watched(report, "growth", partial(growth.run, report, Path(folder), options.rounds))
    if "ingest" in parts:
        watched(report, "ingest", lambda: ingest.run(report, options.rounds))
    if "formats" in parts:
        watched(report, "formats", lambda: run_formats.run(report, options.rounds))
    if "played" in parts:
        watched(report, "played", lambda: played.run(report, options.rounds))
    if "writers" in parts:
        watched(report, "writers", lambda: writers.run(report))
    if "annotations" in parts:
        with tempfile.TemporaryDirectory(prefix="side_by_side-") as folder:
            made = generate(report, options.steps or QUERIED_STEPS, Path(folder))
            watched(report, "annotations", lambda: annotated.run(report, made, options.rounds))
    if parts & {"queries", "cluster"}:
        # A small archive takes seconds to make, and the cache would outlive changes of the format.
        cache = Path(tempfile.mkdtemp(prefix="side_by_side-")) if options.small else group_archive.CACHE
        steps = options.steps or QUERIED_STEPS
        archive = a2store.Archive.open(options.archive or group_archive.group_archive(report, steps, cache))
        show_archive(archive)
        if "cluster" in parts:
            # A process for each core. One is enough for a check.
            cores = 1 if options.small else len(os.sched_getaffinity(0))
            watched(report, "cluster", lambda: cluster.run(report, archive, cores, options.rounds))
        if "queries" in parts and options.memory:
            watched(report, "query memory", lambda: query_memory.run(report, archive, options.only))
        elif "queries" in parts:
            watched(report, "queries", lambda: queries.run(report, archive, options.rounds, options.only))
    if parts & {"gather", "loader", "materialize", "files", "epochs"}:
        with tempfile.TemporaryDirectory(prefix="side_by_side-") as folder:
            path = options.archive or generate(report, options.steps or STEPS, Path(folder))
            measure(report, path, parts, options.rounds)
    if options.json is not None:
        report.write(options.json)


if __name__ == "__main__":
    main()
