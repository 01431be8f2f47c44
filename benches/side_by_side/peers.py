"""The whole job of one competitor, from an archive's files to rows in memory, in a separate process.

``materialize`` starts this file, writes a job to it as JSON and reads its output. Only the tool for the job is
imported, so that the peak of memory includes no other tool.

All peers fill an array with room for every step. Unused memory after a filter is never touched and costs nothing, so no
peer has to count rows first.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import zlib
from collections.abc import Callable, Iterator
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
class Job:
    """The data to read; without a phase there is no filter."""

    archive: str
    competitor: str
    files: list[str]
    """The files of the archive's steps, in order."""
    num_rows: int
    """The number of steps in the archive."""
    min_score: int
    phase: str | None
    digest: bool


@dataclass(frozen=True)
class Tool:
    """A tool: its batches, and a function that writes a batch to rows."""

    batches: Callable[[Job], Iterator[Any]]
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

    def batches(job: Job) -> Iterator[Any]:
        condition = None
        if job.phase is not None:
            condition = (ds.field("max_score") >= job.min_score) & (ds.field("phase") == job.phase)
        yield from ds.dataset(job.files).to_batches(
            columns=INTEGERS + VALUES, filter=condition, batch_size=CHUNK, batch_readahead=4, fragment_readahead=1
        )

    return Tool(batches, put_arrow)


# DuckDB


def put_ready(rows: Rows, batch: Any) -> None:
    """Write an Arrow batch without nulls."""
    for name in INTEGERS:
        rows[name] = batch.column(name).to_numpy(zero_copy_only=False)
    for at, name in enumerate(VALUES):
        rows["ev_values"][:, at] = batch.column(name).to_numpy(zero_copy_only=False)


def duckdb_tool() -> Tool:
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

    def batches(job: Job) -> Iterator[Any]:
        where = "" if job.phase is None else f" WHERE max_score >= {job.min_score} AND phase = '{job.phase}'"
        # A relation streams; ``execute`` would materialize the whole result first.
        relation = duckdb.sql(f"SELECT {columns} FROM read_parquet({job.files!r}){where}")
        assert relation is not None, "the statement is a SELECT"
        yield from relation.to_arrow_reader(CHUNK)

    return Tool(batches, put_ready)


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

    def batches(job: Job) -> Iterator[Any]:
        scan = pl.scan_parquet(job.files)
        if job.phase is not None:
            scan = scan.filter((pl.col("max_score") >= job.min_score) & (pl.col("phase") == job.phase))
        return scan.select(columns).collect_batches(lazy=True, engine="streaming")

    return Tool(batches, put_polars)


# All of them


def peer_job(job: Job, tool: Tool) -> Callable[[], Any]:
    """Set up a peer: the tool chooses its threads, and one loop takes its batches."""

    def work() -> Any:
        rows = np.empty(job.num_rows, DTYPE)
        at = 0
        for batch in tool.batches(job):
            tool.put(rows[at : at + len(batch)], batch)
            at += len(batch)
        return rows[:at]

    return work


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
    if job.competitor == "a2store":
        return a2store_job(job)
    if job.competitor == "memory alone":
        return memory_job(job)
    return peer_job(job, {"pyarrow": pyarrow_tool, "DuckDB": duckdb_tool, "polars": polars_tool}[job.competitor]())


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
    job = Job(**values)
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
