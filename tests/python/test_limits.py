"""Limits of queries: spilling queries return correct results, limits stop queries, and stopped work ends."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
from attacker import MIB
from attacks import ENDLESS
from faults.shim import python
from forked import run
from oracle import Array
from threads import HANGS, eventually, planned

PAIRS = "SELECT a.board, a.run_id AS x, a.step_index AS i, b.run_id AS y FROM steps a, runs b"
SORT = f"{PAIRS} ORDER BY a.board, x, i, y"
GROUP = f"SELECT board, y, count(*) AS n FROM ({PAIRS}) p GROUP BY board, y"
JOIN = f"SELECT count(*) AS n FROM ({PAIRS}) p JOIN ({PAIRS}) q USING (board, x, i, y)"
ENOUGH = 32 * MIB
"""A memory limit in bytes under which these queries must spill."""
CROSS = f"SELECT a.board, b.board AS other FROM {ENDLESS}"
RESULTS: dict[str, Callable[[a2store.Query], object]] = {
    "stream": pa.table,
    "explain": lambda query: query.explain(analyze=True),
    "show": lambda query: query.show(max_rows=10**9),
    "notebook": lambda query: query._repr_html_(),
    "materialize": lambda query: query.materialize(progress=False),
    "to_arrow": lambda query: query.to_arrow(),
    "to_pandas": lambda query: query.to_pandas(),
    "to_polars": lambda query: query.to_polars(),
    "to_numpy": lambda query: query.to_numpy(),
}


def spilled(query: a2store.Query, folder: Path) -> tuple[Any, int]:
    """Return a query's rows, and the number of its files in this folder when the first rows came."""
    reader = pa.RecordBatchReader.from_stream(query)
    first = reader.read_next_batch()
    files = [path for path in folder.rglob("*") if path.is_file()]
    # The files are in the query's own folder.
    assert all(path.parent.parent == folder for path in files)
    return pa.Table.from_batches([first, *reader]), len(files)


def emptied(folder: Path) -> None:
    """Wait until a folder is empty."""
    eventually(lambda: not list(folder.iterdir()), f"an empty {folder}")


def found(caught: pytest.ExceptionInfo[Exception], limit: str) -> None:
    """An error that says which limit it was."""
    assert f"the query exceeded its limit of {limit}: " in str(caught.value)
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
    emptied(spill)
    runs = archive.num_runs
    order = np.lexsort((steps["step_index"], steps["run_id"], steps["board"]))
    for name, column in (("board", "board"), ("x", "run_id"), ("i", "step_index")):
        assert np.array_equal(table[name].to_numpy(), np.repeat(steps[column][order], runs)), name
    assert np.array_equal(table["y"].to_numpy(), np.tile(np.arange(runs), len(order)))


def test_groups_that_spill(archive: a2store.Archive, steps: dict[str, Array], spill: Path) -> None:
    table, _ = spilled(archive.sql(GROUP, memory_limit=32 * MIB, spill_folder=spill), spill)
    emptied(spill)
    boards, counts = np.unique(steps["board"], return_counts=True)
    board, y = table["board"].to_numpy(), table["y"].to_numpy()
    order = np.lexsort((y, board))
    assert np.array_equal(board[order], np.repeat(boards, archive.num_runs))
    assert np.array_equal(y[order], np.tile(np.arange(archive.num_runs), len(boards)))
    assert np.array_equal(table["n"].to_numpy()[order], np.repeat(counts, archive.num_runs))


def test_a_join_that_exceeds_the_memory_limit(archive: a2store.Archive, spill: Path) -> None:
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
    for sql, rows in ((SORT, 9), (SORT.replace("a.board,", "CAST(b.source AS INT),"), None)):
        with pytest.raises((a2store.QueryError, pa.ArrowException)):
            pa.table(archive.sql(sql, row_limit=rows, **small))
        emptied(spill)
    with pytest.raises((a2store.QueryError, pa.ArrowException)):
        pa.table(archive.sql(SORT, spill_limit=MIB, **small))
    emptied(spill)
    # After a stream that is not read to its end.
    query = archive.sql(SORT, **small)
    reader = pa.RecordBatchReader.from_stream(query)
    reader.read_next_batch()
    assert [path for path in spill.rglob("*") if path.is_file()]
    del reader, query
    emptied(spill)
    # Two concurrent queries do not disturb each other.
    queries = [archive.sql(f"{SORT} OFFSET {offset}", **small) for offset in (0, 1)]
    readers = [pa.RecordBatchReader.from_stream(query) for query in queries]
    firsts = [reader.read_next_batch() for reader in readers]
    assert len({path.parent for path in spill.rglob("*") if path.is_file()}) == 2
    del queries[0], readers[0]
    rest = sum(len(batch) for batch in readers[0])
    assert rest + len(firsts[1]) == archive.num_steps * archive.num_runs - 1
    queries.clear()
    readers.clear()
    emptied(spill)


def test_the_folder_of_temporary_files(archive: a2store.Archive, tmp_path: Path) -> None:
    for folder in (tmp_path / "none" / "such", Path(archive.files()[0])):
        with pytest.raises(OSError, match=re.escape(str(folder))):
            archive.sql("SELECT 1", spill_folder=folder)
    # The query creates its folder at the start, and not before.
    assert list(tmp_path.iterdir()) == []


# Rows, bytes, time


@pytest.mark.parametrize("result", RESULTS)
def test_rows(archive: a2store.Archive, result: str) -> None:
    for sql, rows in (("SELECT * FROM steps LIMIT 8", 8), ("SELECT board FROM steps ORDER BY board LIMIT 8", 8)):
        RESULTS[result](archive.sql(sql, row_limit=rows))
        # A stream that another package reads passes on only the text of an error.
        error = pa.ArrowException if result == "stream" else a2store.QueryLimitError
        with pytest.raises(error) as caught:
            RESULTS[result](archive.sql(sql, row_limit=rows - 1))
        found(caught, "rows")
        assert "7 rows allowed, 8 rows so far" in str(caught.value)
    assert archive.sql("SELECT * FROM steps LIMIT 8", row_limit=7).count() == 8
    RESULTS[result](archive.sql("SELECT board FROM steps WHERE false", row_limit=0))


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
    for path in (tmp_path / "table.npy", None):
        with pytest.raises(a2store.QueryLimitError):
            archive.sql("SELECT * FROM steps", **options).materialize(path=path, progress=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("seconds", [0, 0.2])
def test_time(archive: a2store.Archive, result: str, seconds: float) -> None:
    sql = CROSS if seconds and result != "notebook" else f"{CROSS} ORDER BY a.board + b.board + c.board"
    # Planning has the same limit. The query has its own memory limit, because earlier queries may still hold the memory
    # of the process.
    with pytest.raises((a2store.QueryLimitError, pa.ArrowException)) as caught:
        RESULTS[result](archive.sql(sql, time_limit=seconds, memory_limit=1 << 30))
    found(caught, "time")
    allowed, passed = re.findall(r"([0-9.]+) s (?:allowed|so far)", str(caught.value))
    assert float(allowed) == seconds < float(passed)


def test_the_time_limit_applies_to_each_result(archive: a2store.Archive) -> None:
    query = planned(lambda seconds: archive.sql(CROSS, time_limit=seconds), 0.1)
    for _ in range(3):
        with pytest.raises(a2store.QueryLimitError) as caught:
            query.explain(analyze=True)
        found(caught, "time")
    # The time starts with each result, not with the query.
    query = archive.sql("SELECT count(*) FROM steps", time_limit=HANGS)
    assert [query.count() for _ in range(3)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("memory_limit", [32 * MIB - 1, 2**64]),
        ("time_limit", [-0.001, float("nan"), float("inf"), 1e30]),
    ],
)
def test_invalid_limits(archive: a2store.Archive, name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=name):
            archive.sql("SELECT 1", **{name: value})
    assert archive.sql("SELECT 1", **{name: None}).count() == 1


@pytest.mark.parametrize(
    ("option", "value", "sql", "said"),
    [
        ("--row-limit", "7", "SELECT * FROM steps LIMIT 8", "limit of rows: 7 rows allowed, 8 rows"),
        ("--byte-limit", "1KiB", "SELECT board FROM steps", "limit of bytes: 1024 bytes allowed"),
        ("--time-limit", "200ms", CROSS, "limit of time: 0.2 s"),
        ("--memory-limit", "32MiB", JOIN, "limit of memory: 33554432 bytes allowed"),
        ("--memory-limit", "1MiB", "SELECT 1", "expected at least 33554432 bytes, found 1048576"),
    ],
)
def test_options_of_the_command(archive: a2store.Archive, option: str, value: str, sql: str, said: str) -> None:
    done = run("sql", option, value, archive.path, sql, "--format", "csv")
    assert done.returncode != 0
    assert said in done.stderr
    assert done.stderr.startswith("a2store: ")
    assert done.stderr.count("\n") == 1


# Stopping

KINDS = {
    "scan": f"SELECT a.board FROM {ENDLESS}",
    "sort": f"SELECT a.board + b.board AS board FROM {ENDLESS} ORDER BY a.board + b.board",
    "group-by": f"SELECT a.board + b.board AS board, count(*) AS n FROM {ENDLESS} GROUP BY a.board + b.board",
    "nested-loop": f"SELECT a.board FROM {ENDLESS} WHERE a.board + b.step_index + f.step_index < b.board",
    "distinct": f"SELECT DISTINCT a.board * b.step_index AS board FROM {ENDLESS}",
    "regex": f"SELECT sum(regexp_count(CAST(a.board + b.board AS VARCHAR), '([13]*[57]+)+9?')) AS board FROM {ENDLESS}",
    "unnest": f"SELECT unnest([a.board, b.board, 1, 2, 3, 4, 5, 6, 7, 8, 9]) AS board FROM {ENDLESS}",
}
"""These queries never end by themselves, so a query that ended was stopped."""
STOPPED = """
import gc, json, os, signal, sys, threading
from pathlib import Path
sys.path.insert(0, sys.argv[4])
import pyarrow
import a2store
from threads import comes_to_rest, eventually, others
archive = a2store.Archive.open(sys.argv[1])
spill, folder_of_files = Path(sys.argv[3]), sys.argv[6]
if "to_polars" in {work!r}:
    # The signal must not come during this import.
    import polars
query = archive.sql(sys.argv[2], spill_folder=spill, memory_limit=int(sys.argv[5]))
def used():
    times = os.times()
    return times.user + times.system
def is_at_work():
    # The planning uses far less time than this, so the engine's threads are running and the call waits for them.
    if used() < begun + 0.3:
        return False
    return not folder_of_files or any(path.is_file() for path in Path(folder_of_files).rglob("*"))
begun = used()
def interrupt():
    eventually(is_at_work)
    os.kill(os.getpid(), signal.SIGINT)
def patiently(call):
    try:
        call()
    except pyarrow.ArrowException as error:
        assert "cancelled" in str(error), error
        # The stream's reader raises an error first; then the interpreter handles the signal.
        for _ in range(9):
            pass
result = "done"
{work}
rests = comes_to_rest()
query = reader = None
gc.collect()
print(json.dumps([result, rests, os.listdir(spill)]))
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
def is_at_work():
    # The engine's threads sleep when they are far enough ahead. Reading a batch wakes them.
    reader.read_next_batch()
    return any(state[0] == "R" for state in others().values())
eventually(is_at_work)
del reader
result = "dropped"
"""
CALLS = {
    "batches": "patiently(lambda: list(map(len, pyarrow.RecordBatchReader.from_stream(query))))",
    "to_arrow": "query.to_arrow()",
    "to_polars": "query.to_polars()",
    "count": "query.count()",
    "explain": "query.explain(analyze=True)",
    "show": "query.show(10**9)",
    "materialize": "query.materialize(memory_limit=1 << 60, path=sys.argv[3] + '/../table.npy', progress=False)",
    "write_parquet": "query.write_parquet(sys.argv[3] + '/../rows.parquet')",
}


def stopped(archive: a2store.Archive, folder: Path, kind: str, work: str) -> list[Any]:
    """Return the outcome of a query, whether its threads came to rest, and the remaining temporary files."""
    spill = folder / "spill"
    spill.mkdir(exist_ok=True)
    code = STOPPED.format(work=work)
    # A sort must spill to files; with the smallest memory limit it never fails. A written file is beside the folder.
    files = spill if kind == "sort" else folder if "write_parquet" in work else ""
    args = [archive.path, KINDS[kind], spill, Path(__file__).parent, ENOUGH, files]
    done = python("-c", code, *args, timeout=2 * HANGS)
    assert (done.returncode, done.stderr) == (0, "")
    return list(json.loads(done.stdout))


# `test_ctrl_c_in_every_call` interrupts the batches of a sort.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "sort"])
def test_ctrl_c_ends_the_work(archive: a2store.Archive, tmp_path: Path, kind: str) -> None:
    result = stopped(archive, tmp_path, kind, INTERRUPTED.format(call=CALLS["batches"]))
    assert result == ["interrupted", True, []]


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_in_every_call(archive: a2store.Archive, tmp_path: Path, call: str) -> None:
    # Counting the rows of a sort needs no sort and would end at once. The rows of a scan are written while it runs.
    kind = {"count": "distinct", "write_parquet": "scan"}.get(call, "sort")
    result = stopped(archive, tmp_path, kind, INTERRUPTED.format(call=CALLS[call]))
    assert result == ["interrupted", True, []]
    assert [path.name for path in tmp_path.iterdir()] == ["spill"]


@pytest.mark.parametrize("kind", ["scan", "unnest", "nested-loop"])
def test_a_dropped_stream_ends_the_work(archive: a2store.Archive, tmp_path: Path, kind: str) -> None:
    assert stopped(archive, tmp_path, kind, DROPPED) == ["dropped", True, []]


NO_ROWS = r"""
import os, random, sys
sys.path.insert(0, sys.argv[3])
import a2store
from threads import planned
archive = a2store.Archive.open(sys.argv[1])
# Each row takes milliseconds, because partial matches grow with every character, and no row matches.
bits = "".join(random.Random(1).choices("01", k=4000))
never = " OR ".join(f"regexp_like(CAST(board AS VARCHAR) || $1, '1[01]{{{200 + i}}}\\p{{Greek}}')" for i in range(40))
sql = f"SELECT board, run_id, step_index FROM steps WHERE {never}"
query = planned(lambda seconds: archive.sql(sql, [bits], time_limit=seconds), 0.1)
for path in (sys.argv[2] + "/table.npy", None):
    try:
        query.materialize(path=path, progress=False)
    except a2store.QueryLimitError as error:
        print(error)
# The engine will work on the first batch for hours.
sys.stdout.flush()
os._exit(0)
"""


def test_a_query_without_rows_is_stopped(archive: a2store.Archive, tmp_path: Path) -> None:
    """No row ever arrives, so the limit must be checked while the query waits for rows."""
    done = python("-c", NO_ROWS, archive.path, tmp_path, Path(__file__).parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(re.findall(r"the query exceeded its limit of time: [0-9.]+ s allowed", done.stdout)) == 2
    assert list(tmp_path.iterdir()) == []


REPEATED = """
import os, sys
sys.path.insert(0, sys.argv[2])
import a2store
from threads import comes_to_rest, planned
archive = a2store.Archive.open(sys.argv[1])
query = planned(lambda seconds: archive.sql(sys.argv[3], time_limit=seconds), 0.02)
for _ in range(12):
    try:
        query.explain(analyze=True)
    except a2store.QueryLimitError:
        assert comes_to_rest()
        print(len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted on Linux only")
def test_stopped_queries_leave_nothing(archive: a2store.Archive) -> None:
    done = python("-c", REPEATED, archive.path, Path(__file__).parent, KINDS["distinct"], timeout=2 * HANGS)
    assert (done.returncode, done.stderr) == (0, "")
    counts = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(counts) == 12
    # The first query may not have started all threads.
    assert max(counts[2:]) <= max(counts[:2])
