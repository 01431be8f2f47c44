"""Limits of queries: what spills and still is right, what ends at a limit, and that the work then ends too."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
from archives import command, run_command
from attacker import MIB, SETTLES
from oracle import Array

PAIRS = "SELECT a.board, a.run_id AS x, a.step_index AS i, b.run_id AS y FROM steps a, runs b"
SORT = f"{PAIRS} ORDER BY a.board, x, i, y"
GROUP = f"SELECT board, y, count(*) AS n FROM ({PAIRS}) p GROUP BY board, y"
JOIN = f"SELECT count(*) AS n FROM ({PAIRS}) p JOIN ({PAIRS}) q USING (board, x, i, y)"
ENOUGH = 32 * MIB
"""Bytes in which these fit only with the help of files."""
CROSS = "SELECT a.board, b.board FROM steps a, steps b, steps c"
RESULTS: dict[str, Callable[[a2store.Query], object]] = {
    "stream": pa.table,
    "explain": lambda query: query.explain(analyze=True),
    "show": lambda query: query.show(max_rows=10**9),
    "notebook": lambda query: query._repr_html_(),
    "materialize": lambda query: query.materialize(progress=False),
}


def spilled(query: a2store.Query, folder: Path) -> tuple[Any, int]:
    """A query's rows, and how many files it had in this folder when the first of them came."""
    reader = pa.RecordBatchReader.from_stream(query)
    first = reader.read_next_batch()
    files = [path for path in folder.rglob("*") if path.is_file()]
    # They lie in a folder of the query's own.
    assert all(path.parent.parent == folder for path in files)
    return pa.Table.from_batches([first, *reader]), len(files)


def is_emptied(folder: Path) -> bool:
    """Whether nothing is left in a folder, or will soon be."""
    end = time.monotonic() + 2
    while list(folder.iterdir()):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def found(caught: pytest.ExceptionInfo[Exception], limit: str) -> None:
    """An error that says which limit it was."""
    assert f"the query came to its limit of {limit}: " in str(caught.value)
    assert str(caught.value).isprintable()
    if isinstance(caught.value, a2store.QueryLimitError):
        assert isinstance(caught.value, a2store.QueryError)
        assert caught.value.kind == "query_limit"


@pytest.fixture
def spill(tmp_path: Path) -> Path:
    folder = tmp_path / "spill"
    folder.mkdir()
    return folder


# Memory and temporary files


def test_a_sort_that_spills(archive: a2store.Archive, steps: dict[str, Array], spill: Path) -> None:
    table, files = spilled(archive.sql(SORT, memory_limit=ENOUGH, spill_folder=spill), spill)
    assert files > 0
    assert is_emptied(spill)
    runs = archive.num_runs
    order = np.lexsort((steps["step_index"], steps["run_id"], steps["board"]))
    for name, column in (("board", "board"), ("x", "run_id"), ("i", "step_index")):
        assert np.array_equal(table[name].to_numpy(), np.repeat(steps[column][order], runs)), name
    assert np.array_equal(table["y"].to_numpy(), np.tile(np.arange(runs), len(order)))


def test_groups_that_spill(archive: a2store.Archive, steps: dict[str, Array], spill: Path) -> None:
    table, _ = spilled(archive.sql(GROUP, memory_limit=32 * MIB, spill_folder=spill), spill)
    assert is_emptied(spill)
    boards, counts = np.unique(steps["board"], return_counts=True)
    board, y = table["board"].to_numpy(), table["y"].to_numpy()
    order = np.lexsort((y, board))
    assert np.array_equal(board[order], np.repeat(boards, archive.num_runs))
    assert np.array_equal(y[order], np.tile(np.arange(archive.num_runs), len(boards)))
    assert np.array_equal(table["n"].to_numpy()[order], np.repeat(counts, archive.num_runs))


def test_a_sort_in_the_least_memory(archive: a2store.Archive, spill: Path) -> None:
    query = archive.sql(SORT, memory_limit=32 * MIB, spill_folder=spill)
    for _ in range(3):
        assert len(pa.table(query)) == archive.num_steps * archive.num_runs


def test_a_join_that_does_not_fit_says_so(archive: a2store.Archive, spill: Path) -> None:
    query = archive.sql(JOIN, memory_limit=32 * MIB, spill_folder=spill)
    with pytest.raises(a2store.QueryLimitError) as caught:
        query.explain(analyze=True)
    found(caught, "memory")
    assert "33554432 bytes allowed" in str(caught.value)
    query = archive.sql(JOIN, memory_limit=512 * MIB)
    assert pa.table(query)["n"].to_pylist() == [archive.num_steps * archive.num_runs]


@pytest.mark.parametrize("sql", [SORT, GROUP], ids=["sort", "group"])
@pytest.mark.parametrize("result", ["stream", "explain"])
def test_the_limit_of_temporary_files(archive: a2store.Archive, spill: Path, sql: str, result: str) -> None:
    query = archive.sql(sql, memory_limit=ENOUGH, spill_limit=MIB, spill_folder=spill)
    with pytest.raises((a2store.QueryLimitError, pa.ArrowException)) as caught:
        RESULTS[result](query)
    found(caught, "spill")
    assert "1048576 bytes allowed" in str(caught.value)
    assert "config" not in str(caught.value)


def test_no_temporary_files_are_left(archive: a2store.Archive, spill: Path) -> None:
    small: dict[str, Any] = {"memory_limit": ENOUGH, "spill_folder": spill}
    # After errors.
    for sql, rows in ((SORT, 9), (f"{SORT} LIMIT 1/0", None), (SORT.replace("a.board,", "1 / (b.run_id - 9),"), None)):
        with pytest.raises((a2store.QueryError, pa.ArrowException)):
            pa.table(archive.sql(sql, row_limit=rows, **small))
        assert is_emptied(spill), sql
    with pytest.raises((a2store.QueryError, pa.ArrowException)):
        pa.table(archive.sql(SORT, spill_limit=MIB, **small))
    assert is_emptied(spill)
    # After a stream that nobody reads to its end.
    query = archive.sql(SORT, **small)
    reader = pa.RecordBatchReader.from_stream(query)
    reader.read_next_batch()
    assert [path for path in spill.rglob("*") if path.is_file()]
    del reader, query
    assert is_emptied(spill)
    # Two at once do not disturb each other.
    queries = [archive.sql(f"{SORT} OFFSET {offset}", **small) for offset in (0, 1)]
    readers = [pa.RecordBatchReader.from_stream(query) for query in queries]
    firsts = [reader.read_next_batch() for reader in readers]
    assert len({path.parent for path in spill.rglob("*") if path.is_file()}) == 2
    del queries[0], readers[0]
    rest = sum(len(batch) for batch in readers[0])
    assert rest + len(firsts[1]) == archive.num_steps * archive.num_runs - 1
    queries.clear()
    readers.clear()
    assert is_emptied(spill)


def test_the_folder_of_temporary_files(archive: a2store.Archive, tmp_path: Path) -> None:
    for folder in (tmp_path / "none" / "such", Path(archive.files()[0])):
        with pytest.raises(OSError, match=re.escape(str(folder))):
            archive.sql("SELECT 1", spill_folder=folder)
    # It is asked for as soon as there is a query, and not before.
    assert list(tmp_path.iterdir()) == []


# Rows, bytes, time


@pytest.mark.parametrize("result", RESULTS)
def test_rows(archive: a2store.Archive, result: str) -> None:
    for sql, rows in (("SELECT * FROM steps LIMIT 8", 8), ("SELECT board FROM steps ORDER BY board LIMIT 8", 8)):
        RESULTS[result](archive.sql(sql, row_limit=rows))
        with pytest.raises((a2store.QueryLimitError, pa.ArrowException)) as caught:
            RESULTS[result](archive.sql(sql, row_limit=rows - 1))
        found(caught, "rows")
        assert "7 rows allowed, 8 rows so far" in str(caught.value)
    assert archive.sql("SELECT * FROM steps LIMIT 8", row_limit=7).count() == 8
    RESULTS[result](archive.sql("SELECT board FROM steps WHERE false", row_limit=0))


def test_rows_of_the_whole_table(archive: a2store.Archive) -> None:
    for sql in ("SELECT board FROM steps", "SELECT board FROM steps ORDER BY board"):
        assert len(pa.table(archive.sql(sql, row_limit=archive.num_steps))) == archive.num_steps
        # What was within the limit is given.
        reader = pa.RecordBatchReader.from_stream(archive.sql(sql, row_limit=archive.num_steps - 1))
        given: list[int] = []
        with pytest.raises(pa.ArrowException, match="limit of rows"):
            given.extend(map(len, reader))
        assert sum(given) < archive.num_steps


def test_bytes(archive: a2store.Archive) -> None:
    size = 8 * archive.num_steps
    for sql in ("SELECT board FROM steps", "SELECT board FROM steps ORDER BY board"):
        assert len(pa.table(archive.sql(sql, byte_limit=size))) == archive.num_steps
        with pytest.raises(a2store.QueryLimitError) as caught:
            archive.sql(sql, byte_limit=size - 1).explain(analyze=True)
        found(caught, "bytes")
        assert f"{size - 1} bytes allowed, " in str(caught.value)


@pytest.mark.parametrize("options", [{"time_limit": 0}, {"row_limit": 9}, {"byte_limit": 9}], ids=str)
def test_limits_hold_for_tables(archive: a2store.Archive, tmp_path: Path, options: dict[str, Any]) -> None:
    query = archive.sql("SELECT * FROM steps", **options)
    for path in (tmp_path / "table.npy", None):
        with pytest.raises(a2store.QueryLimitError):
            query.materialize(path=path, progress=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("seconds", [0, 0.2])
def test_time(archive: a2store.Archive, result: str, seconds: float) -> None:
    sql = CROSS if seconds and result != "notebook" else f"{CROSS} ORDER BY a.board + b.board + c.board"
    query = archive.sql(sql.replace("b.board FROM", "b.board AS other FROM"), time_limit=seconds)
    begun = time.monotonic()
    with pytest.raises((a2store.QueryLimitError, pa.ArrowException)) as caught:
        RESULTS[result](query)
    assert seconds <= time.monotonic() - begun < seconds + 0.5
    found(caught, "time")
    assert f"{seconds} s allowed, " in str(caught.value)


def test_time_is_that_of_each_result(archive: a2store.Archive) -> None:
    query = archive.sql("SELECT count(*) FROM steps", time_limit=5)
    for _ in range(3):
        assert query.count() == 1
    with pytest.raises(a2store.QueryLimitError):
        archive.sql(KINDS["distinct"], time_limit=0.1).count()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("memory_limit", [-1, 0, 1, 32 * MIB - 1, 2**64]),
        ("spill_limit", [-1, 2**64]),
        ("row_limit", [-1, 2**64]),
        ("byte_limit", [-1, 2**64]),
        ("time_limit", [-1, -0.001, float("nan"), float("inf"), 1e30]),
    ],
)
def test_limits_that_cannot_be(archive: a2store.Archive, name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=name):
            archive.sql("SELECT 1", **{name: value})
    others: list[Any] = ["1", b"1", [1]]
    for value in others:
        with pytest.raises(TypeError):
            archive.sql("SELECT 1", **{name: value})
    assert archive.sql("SELECT 1", **{name: None}).count() == 1


def test_the_largest_limits(archive: a2store.Archive) -> None:
    most = 2**64 - 1
    query = archive.sql("SELECT 1", memory_limit=most, spill_limit=most, row_limit=most, byte_limit=most)
    assert len(pa.table(query)) == 1
    assert len(pa.table(archive.sql("SELECT 1", time_limit=1e18))) == 1
    assert len(pa.table(archive.sql("SELECT 1", spill_limit=0))) == 1


@pytest.mark.parametrize(
    ("option", "value", "sql", "said"),
    [
        ("--row-limit", "7", "SELECT * FROM steps LIMIT 8", "limit of rows: 7 rows allowed, 8 rows"),
        ("--byte-limit", "1KiB", "SELECT board FROM steps", "limit of bytes: 1024 bytes allowed"),
        ("--time-limit", "200ms", CROSS.replace("b.board FROM", "b.board AS other FROM"), "limit of time: 0.2 s"),
        ("--memory-limit", "32MiB", JOIN, "limit of memory: 33554432 bytes allowed"),
        ("--memory-limit", "1MiB", "SELECT 1", "expected at least 33554432 bytes, found 1048576"),
    ],
)
def test_options_of_the_command(archive: a2store.Archive, option: str, value: str, sql: str, said: str) -> None:
    args = command("sql", option, value, archive.path, sql, "--format", "csv")
    done = subprocess.run(args, capture_output=True, check=False, timeout=60, text=True)
    assert done.returncode != 0
    assert said in done.stderr
    assert done.stderr.startswith("a2store: ")
    assert done.stderr.count("\n") == 1


def test_options_of_the_command_that_are_enough(archive: a2store.Archive) -> None:
    limits = ["--row-limit", 8, "--byte-limit", "64b", "--time-limit", "1m", "--memory-limit", "64MiB"]
    sql = "SELECT board FROM steps LIMIT 8"
    done = run_command("sql", *limits, "--spill-limit", 0, archive.path, sql, "--format", "csv")
    assert len(done.stdout.splitlines()) == 9


# Stopping

SQUARE = "steps a, steps b"
KINDS = {
    "scan": "SELECT a.board FROM steps a, steps b, steps c",
    "sort": f"SELECT a.board + b.board AS board FROM {SQUARE} ORDER BY a.board + b.board",
    "group-by": f"SELECT a.board + b.board AS board, count(*) AS n FROM {SQUARE} GROUP BY a.board + b.board",
    "cross-join": f"SELECT sum(CAST(a.board + b.board + c.board AS DOUBLE)) AS board FROM {SQUARE}, steps c",
    "nested-loop": f"SELECT a.board FROM {SQUARE} WHERE a.board + b.step_index < b.board",
    "inequality": "SELECT count(*) AS board FROM steps a JOIN steps b ON a.board < b.board",
    "window": f"SELECT sum(CAST(a.board AS DOUBLE)) OVER (ORDER BY b.board, a.board) AS board FROM {SQUARE}",
    "distinct": f"SELECT DISTINCT a.board * b.step_index AS board FROM {SQUARE}",
    "regex": f"SELECT sum(regexp_count(CAST(a.board + b.board AS VARCHAR), '([13]*[57]+)+9?')) AS board FROM {SQUARE}",
    "unnest": f"SELECT unnest([a.board, b.board, 1, 2, 3, 4, 5, 6, 7, 8, 9]) AS board FROM {SQUARE}",
}
STOPPED = """
import gc, json, os, signal, sys, threading, time
sys.path.insert(0, sys.argv[4])
import pyarrow
import a2store
from attacker import used_until_idle
archive = a2store.Archive.open(sys.argv[1])
if "table" in {work!r} or "to_" in {work!r}:
    # The first table imports pandas, and that is not what shall be interrupted.
    pyarrow.table(archive.sql("SELECT 1 AS x"))
query = archive.sql(sys.argv[2], spill_folder=sys.argv[3], memory_limit=int(sys.argv[5]))
def interrupt():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)
def patiently(call):
    try:
        call()
    except pyarrow.ArrowException as error:
        assert "cancelled" in str(error), error
        # Who reads the stream hears of an error first; then the interpreter meets the signal.
        for _ in range(9):
            pass
result = "done"
{work}
begun = time.monotonic()
used = used_until_idle()
query = reader = None
gc.collect()
end = time.monotonic() + 1
while os.listdir(sys.argv[3]) and time.monotonic() < end:
    time.sleep(0.01)
print(json.dumps([result, used, os.listdir(sys.argv[3])]))
"""
INTERRUPTED = """
threading.Thread(target=interrupt, daemon=True).start()
try:
    {call}
except KeyboardInterrupt:
    result = "interrupted"
"""
DROPPED = """
reader = pyarrow.RecordBatchReader.from_stream(query)
reader.read_next_batch()
time.sleep(0.1)
del reader
result = "dropped"
"""
CALLS = {
    "stream": "patiently(lambda: pyarrow.table(query))",
    "batches": "patiently(lambda: list(map(len, pyarrow.RecordBatchReader.from_stream(query))))",
    "count": "query.count()",
    "explain": "query.explain(analyze=True)",
    "show": "query.show(10**9)",
    "materialize": "query.materialize(memory_limit=1 << 60, path=sys.argv[3] + '/../table.npy', progress=False)",
}


def stopped(archive: a2store.Archive, folder: Path, sql: str, work: str) -> list[Any]:
    """What became of a query, the processor time that the process used then, and the temporary files that were left."""
    spill = folder / "spill"
    spill.mkdir(exist_ok=True)
    code = STOPPED.format(work=work)
    # A window's sort merges what it has in memory before it spills, and may find too little left for that.
    memory = (1 << 30) if sql == KINDS["window"] else (128 << 20)
    args = [sys.executable, "-c", code, str(archive.path), sql, str(spill), str(Path(__file__).parent), str(memory)]
    done = subprocess.run(args, capture_output=True, check=False, timeout=30, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return list(json.loads(done.stdout))


def is_stopped(used: float) -> bool:
    return used <= SETTLES


@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_ends_the_work(archive: a2store.Archive, tmp_path: Path, kind: str) -> None:
    result, used, left = stopped(archive, tmp_path, KINDS[kind], INTERRUPTED.format(call=CALLS["batches"]))
    assert result == "interrupted"
    # An expression that takes seconds for a batch goes on to the end of that batch, whoever has stopped it.
    assert kind == "regex" or is_stopped(used)
    assert left == []


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_in_every_call(archive: a2store.Archive, tmp_path: Path, call: str) -> None:
    # Whose rows need not be made is counted at once.
    sql = KINDS["distinct" if call == "count" else "sort"]
    result, used, left = stopped(archive, tmp_path, sql, INTERRUPTED.format(call=CALLS[call]))
    assert result == "interrupted"
    assert is_stopped(used)
    assert left == []
    assert [path.name for path in tmp_path.iterdir()] == ["spill"]


@pytest.mark.parametrize("call", ["to_arrow", "to_pandas", "to_polars"])
def test_calls_of_other_packages(archive: a2store.Archive, tmp_path: Path, call: str) -> None:
    result, used, left = stopped(archive, tmp_path, KINDS["scan"], INTERRUPTED.format(call=f"query.{call}()"))
    assert (result, left) == ("interrupted", [])
    assert is_stopped(used)


@pytest.mark.parametrize("kind", ["scan", "unnest", "nested-loop"])
def test_a_dropped_stream_ends_the_work(archive: a2store.Archive, tmp_path: Path, kind: str) -> None:
    result, used, left = stopped(archive, tmp_path, KINDS[kind], DROPPED)
    assert result == "dropped"
    assert is_stopped(used)
    assert left == []


SLOW = [rf"regexp_like(CAST(board AS VARCHAR) || board || board, '(\d+)*(7|9)+x{i}')" for i in range(40)]
"""Of no row, and some milliseconds for each thousand of them."""


def test_a_table_of_no_rows_is_stopped(archive: a2store.Archive, tmp_path: Path) -> None:
    sql = f"SELECT board, run_id, step_index FROM steps WHERE {' OR '.join(SLOW)}"
    for path in (tmp_path / "table.npy", None):
        begun = time.monotonic()
        with pytest.raises(a2store.QueryLimitError):
            archive.sql(sql, time_limit=0.1).materialize(path=path, progress=False)
        assert time.monotonic() - begun < 0.1 + 0.5
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted on Linux only")
def test_stopped_queries_leave_nothing(archive: a2store.Archive) -> None:
    def held() -> int:
        return len(os.listdir("/proc/self/task")) + len(os.listdir("/proc/self/fd"))

    query = archive.sql(KINDS["distinct"], time_limit=0.02)
    counts = []
    for _ in range(12):
        with pytest.raises(a2store.QueryLimitError):
            query.explain(analyze=True)
        time.sleep(0.1)
        counts.append(held())
    # The next query's threads and files, and perhaps the last one's.
    assert counts[-1] <= counts[0] + (os.cpu_count() or 1) + 4
