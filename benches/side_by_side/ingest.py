"""Ingest of run files compared with pyarrow's writer; many small files; an archive with hourly appends.

pyarrow gets the finished columns in memory and writes them to memory with the archive's settings, on one thread.
a2store reads the files, decodes, checks, encodes and writes them durably, on all cores.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from report import Report, median, millions, note, table

import a2store

ROUNDS = 5
RUNS = 4_000
"""Games of the built-in player with one spawn of look-ahead, about 6.5 million steps."""
SMALL_FILES = 100_000
APPENDS = 5_000
RUNS_PER_APPEND = 20
KEPT_APPENDS, APPENDS_PER_EXPIRY = 720, 24
"""For hourly appends: each day, the versions that are older than a month expire."""
LOOKED_AT = 100
"""The number of first appends and of last appends to compare."""
QUERIES_PER_PROCESS = 1
"""The number of ``FIRST_QUERIES`` that a process asks. With more than one, only the first is the first of its process.
"""

SPLIT = ["board"]
DELTA = ["run_id", "step_index"]
PLAIN = ["ev_up", "ev_down", "ev_left", "ev_right"]
WITHOUT_STATISTICS = {*SPLIT, *PLAIN, "step_index", "move", "ev_legal", "has_evs"}


def timed(work: Callable[[], Any]) -> float:
    """Return the seconds that the work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def encode(columns: pa.Table) -> pa.Buffer:
    """Encode the columns with pyarrow and the archive's settings."""
    out = pa.BufferOutputStream()
    names = columns.column_names
    pq.write_table(
        columns,
        out,
        version="2.6",
        data_page_version="1.0",
        compression="zstd",
        compression_level={name: 3 if name in SPLIT else 1 for name in names},
        row_group_size=1 << 19,
        max_rows_per_page=20_000,
        use_dictionary=[name for name in names if name not in {*SPLIT, *DELTA, *PLAIN}],
        column_encoding={
            **dict.fromkeys(SPLIT, "BYTE_STREAM_SPLIT"),
            **dict.fromkeys(DELTA, "DELTA_BINARY_PACKED"),
            **dict.fromkeys(PLAIN, "PLAIN"),
        },
        write_statistics=[name for name in names if name not in WITHOUT_STATISTICS],
        write_page_index=True,
    )
    return out.getvalue()


def ingest(runs: Path, archive: Path) -> a2store.Archive:
    """Create an archive from a folder."""
    shutil.rmtree(archive, ignore_errors=True)
    made = a2store.Archive.create(archive)
    made.ingest(runs, progress=False)
    return made


def rates(report: Report, folder: Path, rounds: int) -> None:
    """Compare ingest with pyarrow's writer, for both formats."""
    lines = []
    for format_ in ("a2run2", "a2t1"):
        runs = folder / format_
        a2store.simulate(runs, runs=RUNS, seed=5, format=format_, progress=False)
        archive = ingest(runs, folder / "games.a2")
        columns = pa.table(archive.sql("SELECT * FROM steps"))
        size = sum(Path(file).stat().st_size for file in archive.files("steps"))
        again = encode(columns)
        if not pq.read_table(pa.BufferReader(again)).equals(columns):
            raise AssertionError("pyarrow wrote different rows")
        ours, theirs, known = [], [], []
        for _ in range(rounds):
            ours.append(archive.num_steps / timed(partial(ingest, runs, folder / "games.a2")))
            archive = a2store.Archive.open(folder / "games.a2")
            known.append(archive.num_steps / timed(partial(archive.ingest, runs, progress=False)))
            theirs.append(len(columns) / timed(partial(encode, columns)))
        ratio = median([a / b for a, b in zip(ours, theirs, strict=True)])
        report.add(
            "ingest",
            format_,
            steps_per_s=median(ours),
            pyarrow_writer_steps_per_s=median(theirs),
            ratio=ratio,
            known_steps_per_s=median(known),
            bytes_per_step=size / archive.num_steps,
        )
        lines.append(
            (
                format_,
                millions(median(ours)),
                millions(median(theirs)),
                f"{ratio:.2f}",
                millions(median(known)),
                f"{size / archive.num_steps:.2f}",
                f"{len(again) / archive.num_steps:.2f}",
            )
        )
    table(
        f"ingest of {len(columns):,} steps, {rounds} rounds",
        ("", "a2store", "pyarrow's writer alone", "ratio", "all duplicates", "bytes/step", "pyarrow's"),
        lines,
    )


FIRST = """
import sys, time
# The first query must not measure the import of pyarrow.
import pyarrow
import a2store
path, checksums, queries = sys.argv[1], sys.argv[2] == "True", sys.argv[3:]
archive = a2store.Archive.open(path, checksums=checksums)
# Starts the threads without reading a file.
archive.sql("SELECT 1").count()
for query in queries:
    for _ in range(2):
        start = time.perf_counter()
        archive.sql(query).to_arrow()
        print(time.perf_counter() - start)
"""
FIRST_QUERIES = {
    "one run": "SELECT board, move FROM steps WHERE run_id = 17",
    "runs alone": "SELECT engine, count(*) FROM runs GROUP BY engine",
    "a filter and sums": "SELECT count(*), sum(board % 1000), avg(ev_up) FROM steps WHERE move = 2",
    "every row": "SELECT * FROM steps",
}


def first_queries(report: Report, folder: Path, rounds: int) -> None:
    """Measure the cost of comparing data files with their checksums in the first query of a process."""
    runs, path = folder / "compared", folder / "compared.a2"
    a2store.simulate(runs, runs=5 * RUNS, seed=9, depth=0, progress=False)
    archive = ingest(runs, path)
    size = sum(Path(file).stat().st_size for table in ("runs", "steps") for file in archive.files(table))
    lines = []
    seconds: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    names = list(FIRST_QUERIES)
    for at in range(0, len(names), QUERIES_PER_PROCESS):
        asked = names[at : at + QUERIES_PER_PROCESS]
        for _ in range(rounds):
            for checksums in (True, False):
                command = [
                    sys.executable,
                    "-c",
                    FIRST,
                    str(path),
                    str(checksums),
                    *(FIRST_QUERIES[name] for name in asked),
                ]
                said = [*map(float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())]
                for name, pair in zip(asked, zip(said[::2], said[1::2], strict=True), strict=True):
                    seconds.setdefault((name, checksums), []).append(pair)
    for name in names:
        with_, again = (median(times) for times in zip(*seconds[name, True], strict=True))
        without = median([first for first, _ in seconds[name, False]])
        report.add("checksums", name, first_s=with_, without_s=without, again_s=again, ratio=with_ / without)
        times = (f"{1e3 * value:.1f}" for value in (without, with_, again))
        lines.append((name, *times, f"{with_ / without:.2f}"))
    table(
        f"the first query of a process over {archive.num_steps:,} steps, {size / 1e6:.0f} MB, {rounds} rounds",
        ("", "ms without checksums", "ms with", "ms of the second query", "ratio"),
        lines,
    )


def small_files(report: Report, folder: Path) -> None:
    """Ingest many small files, and compare with only opening and reading them."""
    runs = folder / "small"
    made = a2store.simulate(runs, runs=SMALL_FILES, seed=6, depth=0, progress=False)
    paths = [str(path) for path in runs.rglob("*.a2run2")]
    script = """
import os, sys, time
def read(path):
    descriptor = os.open(path, os.O_RDONLY)
    while os.read(descriptor, 1 << 20):
        pass
    os.close(descriptor)
paths = sys.stdin.read().split("\\n")
start = time.perf_counter()
for path in paths:
    read(path)
print(time.perf_counter() - start)
"""
    command = [sys.executable, "-c", script]
    texts = [subprocess.run(command, input="\n".join(paths), capture_output=True, text=True).stdout for _ in range(3)]
    read = min(float(text) for text in texts)
    whole = timed(lambda: ingest(runs, folder / "small.a2"))
    rate = made.num_steps / whole
    report.add("ingest", "small files", seconds=whole, read_seconds_of_one_thread=read, steps_per_s=rate)
    share = read / (os.cpu_count() or 1) / whole
    note(
        f"{SMALL_FILES:,} files, {made.num_steps:,} steps: {whole:.1f} s, {millions(rate)} steps/s; only opening and "
        f"reading them takes {read:.1f} s on one thread, which is {share:.0%} of the ingest's time on all cores"
    )


def append(archive: Path, batch: list[Path]) -> None:
    """Open an archive and add files to it."""
    a2store.Archive.open(archive).ingest(batch, progress=False)


def append_all(report: Report, path: Path, files: list[Path], keeps_open: bool, expires: bool) -> None:
    """Append to a new archive, with one handle or one for each append, and compare last appends with first.

    With ``expires``, old versions expire meanwhile.
    """
    archive = a2store.Archive.create(path)
    seconds, ends = [], []
    for hour in range(APPENDS):
        batch = files[hour * RUNS_PER_APPEND : (hour + 1) * RUNS_PER_APPEND]
        work = partial(archive.ingest, batch, progress=False) if keeps_open else partial(append, path, batch)
        seconds.append(timed(work))
        ends.append(time.time())
        if expires and hour >= KEPT_APPENDS and hour % APPENDS_PER_EXPIRY == 0:
            a2store.Archive.open(path).expire(older_than=time.time() - ends[hour - KEPT_APPENDS])
    # The first appends warm up threads, the allocator and the list of digests.
    first, last = median(seconds[10 : LOOKED_AT + 10]), median(seconds[-LOOKED_AT:])
    name = "an append, one handle" if keeps_open else "an append, opened each time"
    name += ", old versions expire" if expires else ""
    report.add("appends", name, first_s=first, last_s=last, ratio=last / first)
    note(
        f"{name}: {APPENDS:,} of {RUNS_PER_APPEND} runs, {first * 1e3:.1f} ms each at the start and "
        f"{last * 1e3:.1f} ms at the end, ratio {last / first:.2f}"
    )


def appends(report: Report, folder: Path) -> None:
    """Append every hour, then measure opening and querying, before and after compaction."""
    source = folder / "hours"
    a2store.simulate(source, runs=APPENDS * RUNS_PER_APPEND, seed=7, depth=0, progress=False)
    files = sorted(source.rglob("*.a2run2"))
    for keeps_open in (True, False):
        append_all(report, folder / f"{keeps_open}.a2", files, keeps_open, expires=True)
    append_all(report, folder / "kept.a2", files, keeps_open=True, expires=False)
    append_all(report, folder / "hours.a2", files, keeps_open=False, expires=False)
    archive = a2store.Archive.open(folder / "hours.a2")
    query = "SELECT count(*), avg(ev_up) FROM steps WHERE max_score >= 5000 AND phase = 'early'"

    def look(when: str) -> None:
        archive = a2store.Archive.open(folder / "hours.a2")
        opening = median([timed(lambda: a2store.Archive.open(folder / "hours.a2")) for _ in range(9)])
        asking = median([timed(lambda: pa.table(archive.sql(query))) for _ in range(5)])
        size = sum(Path(file).stat().st_size for file in archive.files("steps")) / archive.num_steps
        report.add("appends", when, open_s=opening, query_s=asking, bytes_per_step=size)
        note(
            f"{when}: {len(archive.files('steps')):,} files, {size:.2f} bytes per step, open {opening * 1e3:.1f} ms, "
            f"a filtered query {asking * 1e3:.0f} ms"
        )

    look("before compact")
    archive.refresh()
    # Nothing has expired, so all files that were ever written are there.
    written = sum(file.stat().st_size for file in archive.path.rglob("*.parquet"))
    kept = sum(Path(file).stat().st_size for table in ("runs", "steps") for file in archive.files(table))
    report.add("appends", "write amplification", ratio=written / kept)
    note(f"write amplification: {written / kept:.1f} times the size of the archive in {APPENDS:,} appends")
    compacting = timed(lambda: archive.compact(progress=False))
    report.add("appends", "compact", seconds=compacting, steps_per_s=archive.num_steps / compacting)
    note(f"compact: {compacting:.1f} s, {millions(archive.num_steps / compacting)} steps/s, comparison included")
    look("after compact")


def run(report: Report, rounds: int | None) -> None:
    """Measure everything on newly created files."""
    with tempfile.TemporaryDirectory(prefix="side_by_side-ingest-") as name:
        folder = Path(name)
        rates(report, folder, rounds or ROUNDS)
        first_queries(report, folder, rounds or ROUNDS)
        small_files(report, folder)
        appends(report, folder)
