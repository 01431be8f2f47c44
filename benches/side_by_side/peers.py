"""The whole job of one competitor, from an archive's files to rows in memory, in a separate process.

``materialize`` starts this file, writes a job to it as JSON and reads its output. Only the tool for the job is
imported, so that the peak of memory includes no other tool.

All peers fill an array with room for every step. Unused memory after a filter is never touched and costs nothing, so no
peer has to count rows first.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from report import status_bytes

Rows: TypeAlias = npt.NDArray[Any]

INTEGERS = ["board", "run_id", "step_index", "move", "ev_legal"]
VALUES = ["ev_up", "ev_down", "ev_left", "ev_right"]
DTYPE = np.dtype(
    [
        ("board", "<u8"),
        ("ev_values", "<f4", (4,)),
        ("run_id", "<u4"),
        ("step_index", "<u2"),
        ("move", "u1"),
        ("ev_legal", "u1"),
    ]
)
CHUNK = 131_072


@dataclass(frozen=True)
class Share:
    """A part of an archive for one thread: some row groups of one file, with the ids of their runs."""

    file: str
    row_groups: list[int]
    first_run: int
    last_run: int
    first_row: int
    num_rows: int


@dataclass(frozen=True)
class Job:
    """The data to read; without a phase there is no filter."""

    archive: str
    competitor: str
    shares: list[Share]
    min_score: int
    phase: str | None
    digest: bool

    @property
    def files(self) -> list[str]:
        """The files of the archive's steps, in order."""
        return list(dict.fromkeys(share.file for share in self.shares))

    @property
    def num_rows(self) -> int:
        """The number of steps in the archive."""
        return sum(share.num_rows for share in self.shares)


@dataclass(frozen=True)
class Tool:
    """A tool: its batches of the whole archive or of one share, and a function that writes a batch to rows."""

    everything: Callable[[Job], Iterator[Any]]
    share: Callable[[Job, Share], Iterator[Any]]
    put: Callable[[Rows, Any], None]


# pyarrow


def put_arrow(rows: Rows, batch: Any) -> None:
    """Write a batch of pyarrow: a null among values becomes 0.0, and four nulls become NaN."""
    import pyarrow.compute as pc

    for name in INTEGERS:
        rows[name] = batch.column(name).to_numpy(zero_copy_only=False)
    columns = [batch.column(name) for name in VALUES]
    for at, column in enumerate(columns):
        rows["ev_values"][:, at] = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False)
    # On bitmaps this costs almost nothing, and few batches have such rows.
    if all(column.null_count for column in columns):
        up, down, left, right = (column.is_valid() for column in columns)
        valid = pc.or_(pc.or_(up, down), pc.or_(left, right))
        if valid.true_count < len(valid):
            rows["ev_values"][~valid.to_numpy(zero_copy_only=False)] = np.nan


def pyarrow_tool() -> Tool:
    """Set up pyarrow with its datasets, which decode ahead of the loop and skip row groups by their statistics."""
    import pyarrow.dataset as ds

    def condition(job: Job) -> Any:
        if job.phase is None:
            return None
        return (ds.field("max_score") >= job.min_score) & (ds.field("phase") == job.phase)

    def everything(job: Job) -> Iterator[Any]:
        yield from ds.dataset(job.files).to_batches(
            columns=INTEGERS + VALUES,
            filter=condition(job),
            batch_size=CHUNK,
            batch_readahead=4,
            fragment_readahead=1,
        )

    def share(job: Job, share: Share) -> Iterator[Any]:
        fragment = next(ds.dataset(share.file).get_fragments())
        yield from fragment.subset(row_group_ids=share.row_groups).to_batches(
            columns=INTEGERS + VALUES, filter=condition(job), batch_size=2 * CHUNK, use_threads=False
        )

    return Tool(everything, share, put_arrow)


# DuckDB


def put_ready(rows: Rows, batch: Any) -> None:
    """Write an Arrow batch without nulls."""
    for name in INTEGERS:
        rows[name] = batch.column(name).to_numpy(zero_copy_only=False)
    for at, name in enumerate(VALUES):
        rows["ev_values"][:, at] = batch.column(name).to_numpy(zero_copy_only=False)


def duckdb_tool(in_threads: bool) -> Tool:
    """Set up DuckDB. It handles nulls itself, which is faster than doing it batch by batch in Python."""
    import duckdb
    import pyarrow  # noqa: F401  # so that the first batch does not include the import

    none = " AND ".join(f"{name} IS NULL" for name in VALUES)
    columns = ", ".join(
        INTEGERS
        + [
            f"CASE WHEN {name} IS NOT NULL THEN {name} WHEN {none} THEN 'nan'::FLOAT ELSE 0::FLOAT END AS {name}"
            for name in VALUES
        ]
    )
    # With one cursor per core, additional threads of DuckDB would slow each other down.
    root = duckdb.connect(config={"threads": 1} if in_threads else {})

    def batches(job: Job, files: list[str], runs: tuple[int, int] | None) -> Iterator[Any]:
        conditions = []
        if runs is not None:
            conditions.append(f"run_id BETWEEN {runs[0]} AND {runs[1]}")
        if job.phase is not None:
            conditions.append(f"max_score >= {job.min_score} AND phase = '{job.phase}'")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        # A relation streams; ``execute`` would materialize the whole result first.
        relation = root.cursor().sql(f"SELECT {columns} FROM read_parquet({files!r}){where}")
        yield from relation.to_arrow_reader(CHUNK)

    def everything(job: Job) -> Iterator[Any]:
        return batches(job, job.files, None)

    def share(job: Job, share: Share) -> Iterator[Any]:
        return batches(job, [share.file], (share.first_run, share.last_run))

    return Tool(everything, share, put_ready)


# polars


def put_polars(rows: Rows, frame: Any) -> None:
    """Write a frame without nulls."""
    for name in INTEGERS:
        rows[name] = frame[name].to_numpy()
    for at, name in enumerate(VALUES):
        rows["ev_values"][:, at] = frame[name].to_numpy()


def polars_tool() -> Tool:
    """Set up polars with its streaming engine."""
    import polars as pl

    none = pl.all_horizontal(pl.col(name).is_null() for name in VALUES)
    columns = [
        *INTEGERS,
        *(
            pl.when(none).then(float("nan")).otherwise(pl.col(name).fill_null(0.0)).cast(pl.Float32).alias(name)
            for name in VALUES
        ),
    ]

    def batches(job: Job, scan: pl.LazyFrame) -> Iterator[Any]:
        if job.phase is not None:
            scan = scan.filter((pl.col("max_score") >= job.min_score) & (pl.col("phase") == job.phase))
        return scan.select(columns).collect_batches(lazy=True, engine="streaming")

    def everything(job: Job) -> Iterator[Any]:
        return batches(job, pl.scan_parquet(job.files))

    def share(job: Job, share: Share) -> Iterator[Any]:
        return batches(job, pl.scan_parquet(share.file).slice(share.first_row, share.num_rows))

    return Tool(everything, share, put_polars)


# All of them


def fill(rows: Rows, batches: Iterator[Any], put: Callable[[Rows, Any], None]) -> int:
    """Write batches one after the other and return the number of rows."""
    at = 0
    for batch in batches:
        put(rows[at : at + len(batch)], batch)
        at += len(batch)
    return at


def one_loop(job: Job, tool: Tool) -> Rows:
    """Run the job in the simple way: the tool chooses its threads, and one loop takes its batches."""
    rows = np.empty(job.num_rows, DTYPE)
    return rows[: fill(rows, tool.everything(job), tool.put)]


def in_threads(job: Job, tool: Tool) -> Rows:
    """Run the job with one thread per core; each thread decodes and writes shares.

    Gaps that a filter leaves are closed afterwards. Memory that was written before stays allocated.
    """
    rows = np.empty(job.num_rows, DTYPE)
    starts = np.cumsum([0, *(share.num_rows for share in job.shares)]).tolist()

    def one(at: int) -> int:
        return fill(rows[starts[at] : starts[at + 1]], tool.share(job, job.shares[at]), tool.put)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        counts = list(pool.map(one, range(len(job.shares))))
    end = 0
    for start, count in zip(starts, counts, strict=False):
        # In pieces, because NumPy copies overlapping ranges through a temporary copy.
        for at in range(0, count if start != end else 0, CHUNK):
            piece = min(CHUNK, count - at)
            rows[end + at : end + at + piece] = rows[start + at : start + at + piece]
        end += count
    return rows[:end]


def a2store_job(job: Job) -> Callable[[], Any]:
    """Set up a2store; the work includes opening the archive."""
    import a2store

    def work() -> Any:
        archive = a2store.Archive.open(job.archive)
        if job.phase is None:
            query = archive.sql("SELECT * FROM steps")
        else:
            query = archive.sql(
                "SELECT * FROM steps WHERE max_score >= $min AND phase = $phase",
                {"min": job.min_score, "phase": job.phase},
            )
        return query.materialize(progress=False)

    return work


def memory_job(job: Job) -> Callable[[], Any]:
    """Set up the lower bound for all competitors: memory for the rows, written once."""

    def work() -> Any:
        rows = np.empty(job.num_rows, DTYPE)
        rows.view(np.uint8).fill(1)
        return rows

    return work


def set_up(job: Job) -> Callable[[], Any]:
    """Import the competitor's tool and return its work; the import is not timed."""
    name, _, manner = job.competitor.partition(", ")
    if name == "a2store":
        return a2store_job(job)
    if name == "memory alone":
        return memory_job(job)
    threads = manner == "thread per core"
    tools = {"pyarrow": pyarrow_tool, "DuckDB": lambda: duckdb_tool(threads), "polars": polars_tool}
    tool = tools[name]()
    way = in_threads if threads else one_loop
    return lambda: way(job, tool)


def times() -> tuple[float, float, float]:
    """Return the wall time and the processor times in user mode and in the kernel."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter(), usage.ru_utime, usage.ru_stime


def main() -> None:
    """Run a job twice and print its cost.

    The second time, the memory already belongs to the process, or at least to the machine. On some virtual machines the
    first touch of a page costs more than everything else.
    """
    values = json.load(sys.stdin)
    job = Job(**{**values, "shares": [Share(**share) for share in values["shares"]]})
    work = set_up(job)
    before = times()
    result = work()
    after = times()
    peak = status_bytes("VmHWM")
    seconds, user, system = (late - early for late, early in zip(after, before, strict=True))
    rows = np.asarray(result)
    if rows.dtype != DTYPE:
        raise TypeError(f"rows of the table: expected {DTYPE}, as the peers have, found {rows.dtype}")
    answer = {
        "rows": len(rows),
        "xor": int(np.bitwise_xor.reduce(rows["board"])),
        "sum": int(np.add.reduce(rows["board"])),
        "crc32": zlib.crc32(rows.view(np.uint8).data) if job.digest else 0,
    }
    table_bytes = rows.nbytes
    del result, rows
    start = time.perf_counter()
    again = work()
    again_seconds = time.perf_counter() - start
    del again
    figures = {
        "seconds": seconds,
        "again_s": again_seconds,
        "user_s": user,
        "system_s": system,
        "peak_over_table_bytes": peak - table_bytes,
    }
    print(json.dumps({"answer": answer, "figures": figures}))


if __name__ == "__main__":
    main()
