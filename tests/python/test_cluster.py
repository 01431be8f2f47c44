"""Queries by tasks: the same answers as here, whatever the engine does, and what happens when tasks fail."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from itertools import chain, count, islice, repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

import a2store
from a2store import cluster
from archives import copied, ingested
from object_store.proxy import Faults, Proxy
from packs import flip
from saved_cases import generated
from sqlfuzz import oracles
from sqlfuzz.campaign import statement
from sqlfuzz.comparison import rows_of, same_rows, same_sequence
from sqlfuzz.data import build
from sqlfuzz.defects import known
from threads import eventually, planned

LONG = bool(os.environ.get("A2STORE_LONG_TESTS"))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> a2store.Archive:
    """Games in four files of steps, with predictions of two models."""
    return generated(tmp_path_factory.mktemp("cluster"))


@pytest.fixture(scope="module")
def threads() -> Iterator[Executor]:
    """Workers that plan each query anew, as other processes do, without their start."""
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.fixture(scope="module")
def processes() -> Iterator[Executor]:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        yield executor


def divided(query: a2store.Query) -> bool:
    return "TasksExec" in query.explain()


def assert_same(archive: a2store.Archive, sql: str, executor: Executor, *tasks: int) -> bool:
    """Compare the rows by tasks with those from here, and return whether the query was divided each time."""
    here = archive.sql(sql)
    expected = rows_of(here.to_arrow())
    same = same_sequence if "ORDER BY" in sql.rsplit(")", 1)[-1] else same_rows
    several = [here.on(executor, tasks=number) for number in tasks or [3]]
    for there in several:
        assert same(rows_of(there.to_arrow()), expected), sql
        assert there.count() == len(expected)
    return all(map(divided, several))


DIVIDED = [
    "SELECT move, count(*) AS n FROM steps GROUP BY move",
    "SELECT phase, engine, count(*), avg(ev_up), min(board), max(step_index) FROM steps GROUP BY phase, engine",
    "SELECT engine, phase, move, run_id, count(*) FROM steps GROUP BY engine, phase, move, run_id",
    "SELECT count(*), sum(step_index), approx_distinct(board) > 0 FROM steps",
    "SELECT count(DISTINCT board) FROM steps",
    "SELECT DISTINCT engine FROM steps",
    "SELECT * FROM steps WHERE move = 2 AND step_index > 3",
    "SELECT run_id, step_index, board FROM steps WHERE max_score > 300",
    "SELECT run_id, step_index FROM steps WHERE move = 1 ORDER BY run_id, step_index LIMIT 7 OFFSET 3",
    "SELECT board, step_index, run_id FROM steps ORDER BY step_index DESC, run_id, board LIMIT 9",
    "SELECT board, ev_up FROM steps WHERE ev_up IS NOT NULL ORDER BY ev_up DESC, board, run_id, step_index LIMIT 5",
    "SELECT s.run_id, s.step_index, a.argmax_head FROM steps s JOIN annotations a USING (run_id, step_index) "
    "WHERE a.model = 'sharp'",
    "SELECT r.engine, count(*) FROM steps s JOIN runs r USING (run_id) GROUP BY r.engine",
    "SELECT engine, count(*) FROM steps WHERE run_id IN (SELECT run_id FROM runs WHERE num_steps > 50) GROUP BY engine",
    "SELECT move, count(*) FROM steps WHERE step_index > (SELECT avg(num_steps) / 4 FROM runs) GROUP BY move",
    "SELECT move, count(*) FROM steps WHERE max_score >= (SELECT max(max_score) / 2 FROM steps) GROUP BY move",
    "SELECT x, n, sum(n) OVER () FROM (SELECT phase AS x, count(*) AS n FROM steps GROUP BY phase)",
    "SELECT phase, count(*) FROM steps GROUP BY phase HAVING count(*) > 10 ORDER BY count(*) DESC, phase",
    "SELECT phase, count(*) FROM steps GROUP BY phase UNION ALL SELECT engine, count(*) FROM steps GROUP BY engine",
    "WITH t AS (SELECT run_id, count(*) AS n FROM steps GROUP BY run_id) "
    "SELECT n > 50, count(*), sum(n) FROM t GROUP BY n > 50",
    "SELECT model, phase, count(*) FROM annotations a JOIN steps s USING (run_id, step_index) WHERE model = 'flat' "
    "GROUP BY model, phase",
    # The subquery groups by text, too, and each grouping numbers its texts.
    "SELECT s.phase, g.engine, g.best, count(*) FROM steps s JOIN "
    "(SELECT engine, max(max_score) AS best FROM runs GROUP BY engine) g ON s.engine = g.engine "
    "GROUP BY s.phase, g.engine, g.best",
]
GROUPS = DIVIDED[1]
NOT_ALIKE = [
    "SELECT s.run_id, count(*) FROM steps s JOIN (SELECT run_id FROM runs LIMIT 5) x USING (run_id) GROUP BY s.run_id",
    "SELECT count(*) FROM steps WHERE run_id IN (SELECT run_id FROM runs LIMIT 20)",
    "SELECT count(*) FROM steps JOIN (SELECT run_id, row_number() OVER (ORDER BY engine) AS n FROM runs) r "
    "USING (run_id) WHERE n < 9",
]
"""Statements with a side of a join that may differ between processes."""
HERE = [
    "SELECT engine, count(*) FROM runs GROUP BY engine",
    "SELECT run_id, step_index, board FROM steps",
    "SELECT count(*) FROM steps WHERE random() < 2",
    "VALUES (1), (2)",
    "SELECT run_id, row_number() OVER (PARTITION BY run_id ORDER BY step_index) AS n FROM steps",
]


@pytest.mark.parametrize("sql", DIVIDED)
def test_divided_queries_answer_as_here(archive: a2store.Archive, threads: Executor, sql: str) -> None:
    assert assert_same(archive, sql, threads, 2, 3, 100)
    assert_same(archive, sql, threads, 1)


@pytest.mark.parametrize("sql", HERE)
def test_other_queries_run_here(archive: a2store.Archive, threads: Executor, sql: str) -> None:
    assert not assert_same(archive, sql, threads)
    plan = archive.sql(sql).on(threads, tasks=3).explain()
    assert re.match(r"runs in this process: \w+", plan)
    assert ("; tasks can write its rows to a folder of files\n" in plan) == (sql == HERE[1])


def test_small_queries_run_here_unless_tasks_are_asked_for(archive: a2store.Archive, threads: Executor) -> None:
    query = archive.sql(DIVIDED[0])
    assert "too few rows" in query.on(threads).explain()
    assert not divided(query.on(threads))
    assert divided(query.on(threads, tasks=2))


@pytest.mark.parametrize("sql", NOT_ALIKE)
def test_what_may_differ_between_processes_is_not_divided(
    archive: a2store.Archive, threads: Executor, sql: str
) -> None:
    query = archive.sql(sql).on(threads, tasks=3)
    assert not divided(query)
    assert query.count() == archive.sql(sql).count()


def test_a_worker_that_plans_differently_leaves_its_share_here(archive: a2store.Archive) -> None:
    def differs(_index: int, _run: Callable[[], bytes]) -> bytes:
        header = json.dumps([{"is_other_plan": True, "parts": [], "texts": [], "num_written": 0}, []]).encode()
        return header + len(header).to_bytes(8, "little")

    joined = (
        "SELECT count(*) FROM steps s JOIN (SELECT highest_tile AS h, count(*) AS n FROM runs GROUP BY 1) m "
        "ON m.h > s.step_index"
    )
    for sql in (GROUPS, joined, *DIVIDED[6:10]):
        assert assert_same(archive, sql, Scripted(differs))


def test_a_query_on_an_engine_pickles_without_it(archive: a2store.Archive, threads: Executor) -> None:
    query = archive.sql(GROUPS)
    again = pickle.loads(pickle.dumps(query.on(threads, tasks=2)))
    assert not again.explain().startswith("runs in")
    assert same_rows(rows_of(again.to_arrow()), rows_of(query.to_arrow()))
    assert divided(query.on(threads, tasks=2).on(threads, tasks=3))
    assert archive.sql(DIVIDED[6]).on(threads).limit(3).on(threads, tasks=2).count() == 3
    opened = a2store.open(archive.path, executor=threads)
    assert "too few rows" in opened.sql(GROUPS).explain()
    assert divided(opened.sql(GROUPS).on(threads, tasks=2))
    rows = pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int64())]), [])
    assert opened.sql("SELECT count(*) AS n FROM t", tables={"t": rows}).count() == 1


def test_shipped_queries_answer_as_here(archive: a2store.Archive, threads: Executor) -> None:
    count = 0
    for saved in a2store.queries():
        here = archive.query(saved.name)
        there = here.on(threads, tasks=3)
        assert same_rows(rows_of(there.to_arrow()), rows_of(here.to_arrow())), saved.name
        count += divided(there)
    assert count >= 20


def test_processes_answer_as_here(archive: a2store.Archive, processes: Executor) -> None:
    for sql in DIVIDED[:12]:
        assert assert_same(archive, sql, processes)


def test_values_of_parameters_and_tables_travel(archive: a2store.Archive, processes: Executor) -> None:
    labels = pa.table({"run_id": pa.array([0, 3, 5], pa.uint32()), "label": ["a", None, "γ"]})
    sql = "SELECT label, count(*) AS n FROM steps JOIN labels USING (run_id) WHERE step_index < $most GROUP BY label"
    here = archive.sql(sql, {"most": 30}, tables={"labels": labels})
    there = here.on(processes, tasks=2)
    assert divided(there)
    assert same_rows(rows_of(there.to_arrow()), rows_of(here.to_arrow()))
    assert here.count() == 3


def test_changed_queries_are_divided(archive: a2store.Archive, threads: Executor) -> None:
    import polars as pl

    there = archive.sql("SELECT * FROM steps WHERE move = 2").on(threads, tasks=3)
    here = archive.sql("SELECT * FROM steps WHERE move = 2")
    assert there.limit(5).to_arrow() == here.limit(5).to_arrow()
    chosen = [frame.filter(pl.col("step_index") > 3).select("board", "step_index").collect() for frame in
              (there.lazy(), here.lazy())]  # fmt: skip
    assert chosen[0].equals(chosen[1])
    assert len(chosen[0])


@pytest.mark.parametrize("sql", [DIVIDED[6], DIVIDED[9], "SELECT DISTINCT board, tile_65536_mask FROM steps"])
def test_tables_are_the_same(archive: a2store.Archive, processes: Executor, sql: str) -> None:
    sql = sql.replace("board,", "board, engine,", 1)
    here = archive.sql(sql).materialize(extra="engine", progress=False)
    there = archive.sql(sql).on(processes, tasks=3).materialize(extra="engine", progress=False)
    assert len(here) > 0
    assert (there.fingerprint, there.categories) == (here.fingerprint, here.categories)


def test_limits_and_progress(archive: a2store.Archive, threads: Executor) -> None:
    shown: list[dict[str, Any]] = []
    table = archive.sql(DIVIDED[6]).on(threads, tasks=3).materialize(progress=shown.append)
    assert shown[-1]["done"] == shown[-1]["total"] >= len(table) > 100
    for query in (archive.sql(DIVIDED[6], row_limit=100), archive.sql(DIVIDED[6], byte_limit=100)):
        with pytest.raises(a2store.QueryLimitError, match="100"):
            query.on(threads, tasks=3).materialize(progress=False)


class Scripted(Executor):
    """An executor whose tasks do what a function says."""

    workers, threads = 2, 1

    def __init__(self, script: Callable[[int, Callable[[], bytes]], bytes], pool_size: int = 4) -> None:
        self.script = script
        self.pool = ThreadPoolExecutor(pool_size)
        self.futures: list[Future[bytes]] = []
        self.lock = threading.Lock()

    def submit(self, fn: Any, /, *args: Any, **_: Any) -> Future[Any]:
        with self.lock:
            future = self.pool.submit(self.script, len(self.futures), lambda: fn(*args))
            self.futures.append(future)
        return future


def losing(at: int, pool_size: int = 4) -> Scripted:
    """Return an executor that loses the task with this number."""

    def lost(index: int, run: Callable[[], bytes]) -> bytes:
        if index == at:
            raise RuntimeError("the worker died")
        return run()

    return Scripted(lost, pool_size)


def test_an_engine_may_repeat_and_reorder_tasks(archive: a2store.Archive) -> None:
    last = threading.Event()

    def late(index: int, run: Callable[[], bytes]) -> bytes:
        # The first task ends after the second one.
        assert index > 0 or last.wait(60)
        run()
        result = run()
        last.set()
        return result

    here = rows_of(archive.sql(GROUPS).to_arrow())
    assert same_rows(rows_of(archive.sql(GROUPS).on(Scripted(late), tasks=2).to_arrow()), here)


def test_a_failed_task_fails_the_query(archive: a2store.Archive) -> None:
    with pytest.raises(a2store.ClusterError, match=r"task \d: RuntimeError: the worker died") as caught:
        archive.sql(GROUPS).on(losing(1), tasks=2).to_arrow()
    assert caught.value.kind == "task"
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize("error", [
    a2store.QueryLimitError("the query exceeded its limit of memory"),
    FileNotFoundError(2, "No such file or directory", "/there/games.a2"),
    MemoryError("out of memory"),
])  # fmt: skip
def test_errors_of_workers_are_raised_as_themselves(archive: a2store.Archive, error: Exception) -> None:
    # A worker returns its exceptions.
    def fails(_index: int, _run: Callable[[], bytes]) -> Any:
        return error

    with pytest.raises(type(error)) as caught:
        archive.sql(GROUPS).on(Scripted(fails), tasks=2).count()
    assert str(caught.value) == str(error)
    assert any("on its worker" in note for note in caught.value.__notes__)


def test_another_version_of_a2store_is_refused(archive: a2store.Archive, run_folders: list[Path]) -> None:
    class Newer(Scripted):
        """Sends tasks as a newer a2store does."""

        def submit(self, fn: Any, /, _version: str, *args: Any, **_: Any) -> Future[Any]:  # type: ignore[override]
            return super().submit(fn, "9.9.0", *args)

    executor = Newer(lambda _index, run: run())
    message = f"expected a2store 9.9.0, as at the sender, found {a2store.__version__}"
    with pytest.raises(a2store.ClusterError, match=re.escape(message)):
        archive.sql(GROUPS).on(executor, tasks=2).count()
    with pytest.raises(a2store.ClusterError, match=re.escape(message)):
        cluster.ingest(archive, run_folders, executor)
    assert archive.version == a2store.open(archive.path).version


def test_an_engine_that_cannot_start_tasks(archive: a2store.Archive, run_folders: list[Path]) -> None:
    class Full(Scripted):
        def submit(self, fn: Any, /, *args: Any, **_: Any) -> Future[Any]:
            # A query submits its tasks from several threads.
            if next(self.submissions) > 0:
                raise OSError("no place")
            return super().submit(fn, *args)

        def __init__(self) -> None:
            super().__init__(lambda _index, run: run())
            self.submissions = count()

    copy = a2store.Archive.create(archive.path.with_name("full.a2"))
    with pytest.raises(a2store.ClusterError, match="OSError: no place") as caught:
        cluster.ingest(copy, run_folders, Full(), tasks=len(run_folders))
    assert isinstance(caught.value.__cause__, OSError)
    # The part that began is there.
    assert copy.num_runs == a2store.open(copy.path).num_runs == 20
    with pytest.raises(a2store.ClusterError, match="OSError: no place"):
        archive.sql(GROUPS).on(Full(), tasks=2).count()


@pytest.mark.parametrize(
    "result", [b"", b"\x05", b"\xff" * 40, b"{}\x02" + b"\0" * 7, b"[{},[9]]\x08" + b"\0" * 7, None, "text", 3]
)
def test_a_result_that_is_no_result_is_an_error(archive: a2store.Archive, result: Any) -> None:
    kinds = (a2store.QueryError, "message of a task") if isinstance(result, bytes) else (a2store.ClusterError, "bytes")
    with pytest.raises(kinds[0], match=kinds[1]):
        archive.sql(GROUPS).on(Scripted(lambda _index, _run: result), tasks=2).count()


def test_an_archive_that_workers_cannot_read(archive: a2store.Archive, processes: Executor, tmp_path: Path) -> None:
    copy = a2store.Archive.open(copied(archive.path, tmp_path / "copy.a2"))
    query = copy.sql(GROUPS)

    def moved(_index: int, run: Callable[[], bytes]) -> bytes:
        # The coordinator has planned the query by now. The workers open the archive.
        with suppress(FileNotFoundError):
            Path(copy.path).rename(tmp_path / "moved.a2")
        return run()

    class There(Scripted):
        def submit(self, fn: Any, /, *args: Any, **_: Any) -> Future[Any]:
            return super().submit(lambda: processes.submit(fn, *args).result())

    with pytest.raises(FileNotFoundError, match=re.escape(str(copy.path))) as caught:
        query.on(There(moved), tasks=2).count()
    assert any("on its worker" in note for note in caught.value.__notes__)


def test_a_version_that_expires_under_way_is_an_error(archive: a2store.Archive, tmp_path: Path) -> None:
    copy = a2store.Archive.open(copied(archive.path, tmp_path / "copy.a2"))
    expired = threading.Event()

    def expires(index: int, run: Callable[[], bytes]) -> bytes:
        if index == 0:
            writer = a2store.Archive.open(copy.path)
            writer.compact(progress=False)
            assert writer.expire(older_than=0, grace=0).num_files > 0
            expired.set()
        assert expired.wait(60)
        return run()

    with pytest.raises(a2store.VersionNotFoundError, match=rf"version {copy.version}\b"):
        copy.sql(GROUPS).on(Scripted(expires), tasks=2).count()


NUMBERED = "SELECT engine, row_number() OVER (PARTITION BY run_id ORDER BY step_index) AS n FROM steps"


@pytest.mark.parametrize("sql", [
    GROUPS,
    DIVIDED[6],
    f"SELECT phase, count(*) AS n FROM steps WHERE run_id < 2 GROUP BY phase UNION ALL {NUMBERED}",
])  # fmt: skip
def test_a_flipped_bit_is_found_where_the_file_is_read(
    archive: a2store.Archive, threads: Executor, tmp_path: Path, sql: str
) -> None:
    copy = a2store.Archive.open(copied(archive.path, tmp_path / "copy.a2"))
    query = copy.sql(sql).on(threads, tasks=4)
    assert divided(query)
    file = Path(copy.files("steps")[-1])
    flip(file, 100)
    with pytest.raises(a2store.DamagedError, match=file.name):
        query.count()


def test_tasks_are_cancelled_with_the_query(archive: a2store.Archive) -> None:
    freed = threading.Event()

    def stuck(index: int, run: Callable[[], bytes]) -> bytes:
        if index:
            freed.wait(60)
        return run()

    executor = Scripted(stuck, pool_size=1)
    try:
        with pytest.raises(a2store.QueryLimitError, match="time"):
            list(planned(lambda seconds: archive.sql(DIVIDED[6], time_limit=seconds), 0.5).on(executor, tasks=4))
        # The first task has ended, and the second one has the worker. The others wait, so they are cancelled soon.
        eventually(lambda: any(future.cancelled() for future in executor.futures))
    finally:
        freed.set()


NOISE = (
    "SELECT sin(board % 1000003 + k) AS a, cos(board % 1000003 + k) AS b, sin(board % 7919 * k) AS c FROM "
    f"(SELECT board, unnest(make_array({', '.join(map(str, range(1000)))})) AS k FROM steps) "
    "WHERE k < $copies"
)
"""Rows that no compression makes much smaller: three random mantissas."""


def test_a_limit_exceeded_on_a_worker(archive: a2store.Archive, processes: Executor) -> None:
    query = archive.sql(NOISE, {"copies": 1000}, memory_limit=32 << 20)
    with pytest.raises(a2store.QueryLimitError, match=r"memory.*33554432 bytes") as caught:
        list(query.on(processes, tasks=2))
    assert any("on its worker" in note for note in caught.value.__notes__)


def test_ctrl_c_cancels_the_tasks(archive: a2store.Archive) -> None:
    freed = threading.Event()

    def interrupts(index: int, run: Callable[[], bytes]) -> bytes:
        if index == 0:
            os.kill(os.getpid(), signal.SIGINT)
        freed.wait(60)
        return run()

    executor = Scripted(interrupts, pool_size=1)
    executor.workers = 4
    try:
        with pytest.raises(KeyboardInterrupt):
            archive.sql(DIVIDED[6]).on(executor, tasks=4).count()
        eventually(lambda: all(future.cancelled() for future in executor.futures[1:]))
    finally:
        freed.set()


def test_rows_that_tasks_return_count_as_memory(archive: a2store.Archive) -> None:
    # The largest batches of the archive are far smaller than the least memory limit, so the results are made larger.
    def large(_index: int, run: Callable[[], bytes]) -> bytes:
        return padded(run())

    query = archive.sql(GROUPS, memory_limit=32 << 20).on(Scripted(large), tasks=2)
    with pytest.raises(a2store.QueryLimitError, match="memory"):
        query.count()


def padded(message: bytes) -> bytes:
    """Return a result whose first block has 40 MiB more at its end."""
    blocks = message[: -8 - int.from_bytes(message[-8:], "little")]
    header, ends = json.loads(message[len(blocks) : -8])
    text = json.dumps([header, [end + (40 << 20) for end in ends]]).encode()
    return blocks[: ends[0]] + bytes(40 << 20) + blocks[ends[0] :] + text + len(text).to_bytes(8, "little")


def test_a_killed_worker_breaks_the_query_and_not_the_process(archive: a2store.Archive) -> None:
    class Killing(Executor):
        def __init__(self) -> None:
            self.pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))

        def submit(self, fn: Any, /, *args: Any, **_: Any) -> Future[Any]:
            self.pool.submit(os.kill, self.pool.submit(os.getpid).result(), signal.SIGKILL)
            return self.pool.submit(fn, *args)

    executor = Killing()
    with pytest.raises(a2store.ClusterError, match="BrokenProcessPool"):
        archive.sql(GROUPS).on(executor, tasks=2).count()
    executor.pool.shutdown()
    assert archive.sql(GROUPS).count() > 0


def test_ingest_by_many(archive: a2store.Archive, processes: Executor, run_folders: list[Path], tmp_path: Path) -> None:
    made = a2store.Archive.create(tmp_path / "many.a2")
    reports = cluster.ingest(made.path, run_folders, processes)
    made.refresh()
    assert sum(report.accepted for report in reports) == made.num_runs == 60
    again = cluster.ingest(made, run_folders, processes, tasks=3)
    assert (sum(report.accepted for report in again), sum(report.duplicates for report in again)) == (0, 60)
    boards = np.sort(made.sql("SELECT board FROM steps").to_numpy()["board"])
    whole = ingested(tmp_path / "one.a2", run_folders)
    assert np.array_equal(boards, np.sort(whole.sql("SELECT board FROM steps").to_numpy()["board"]))
    with pytest.raises(FileNotFoundError):
        cluster.ingest(made, [*run_folders, tmp_path / "none"], processes)


@pytest.mark.parametrize("executor", [None, 3, "pool", object()])
def test_an_executor_submits(archive: a2store.Archive, executor: Any) -> None:
    with pytest.raises(TypeError, match="executor: expected an object with submit"):
        archive.sql(GROUPS).on(executor)
    if executor is not None:
        with pytest.raises(TypeError, match="executor: expected an object with submit"):
            a2store.open(archive.path, executor=executor)


def parts_of(folder: Path) -> list[Path]:
    """Return the files of a folder, and check that nothing else is beside it."""
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    return sorted(folder.iterdir())


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_tasks_write_files(archive: a2store.Archive, processes: Executor, tmp_path: Path, tasks: int) -> None:
    sql = "SELECT run_id, step_index, board, engine, model FROM steps s JOIN annotations a USING (run_id, step_index)"
    for i, text in enumerate((DIVIDED[6], "SELECT * FROM steps", sql)):
        folder = tmp_path / str(i) / "out"
        folder.parent.mkdir()
        here = archive.sql(text)
        assert here.on(processes, tasks=tasks).write_parquet(f"{folder}/") == here.count()
        parts = parts_of(folder)
        assert [part.name for part in parts] == [f"part-{k:05}.parquet" for k in range(len(parts))]
        # The archive has four row groups of steps, and the join may have fewer partitions.
        assert len(parts) == min(tasks, 4) or text == sql
        written = pa.concat_tables([pq.read_table(part) for part in parts])
        assert written.schema.equals(here.to_arrow().schema)
        assert same_rows(rows_of(written), rows_of(here.to_arrow()))
    # Rows of steps are in order, from one file to the next.
    assert rows_of(pq.read_table(tmp_path / "1" / "out")) == rows_of(archive.sql("SELECT * FROM steps").to_arrow())


def test_one_file_unless_the_whole_query_is_divided(
    archive: a2store.Archive, threads: Executor, tmp_path: Path
) -> None:
    for i, sql in enumerate((GROUPS, DIVIDED[8], DIVIDED[9], HERE[0])):
        folder = tmp_path / str(i) / "out"
        folder.parent.mkdir()
        here = archive.sql(sql)
        assert here.on(threads, tasks=3).write_csv(f"{folder}/") == here.count()
        assert [part.name for part in parts_of(folder)] == ["part-00000.csv"]
    limited = tmp_path / "limited" / "out"
    limited.parent.mkdir()
    with pytest.raises(a2store.QueryLimitError, match="rows"):
        archive.sql(DIVIDED[6], row_limit=3).on(threads, tasks=3).write_parquet(f"{limited}/")
    assert list(limited.parent.iterdir()) == []
    assert archive.sql("SELECT * FROM runs").write_ipc(f"{limited}/") == archive.num_runs
    assert [part.name for part in parts_of(limited)] == ["part-00000.arrow"]


JOIN = "SELECT s.run_id, r.engine, s.board FROM steps s JOIN runs r USING (run_id) WHERE r.num_steps > 20"


@pytest.mark.parametrize("tasks", [1, 2])
def test_tasks_of_many_threads_write_joins(archive: a2store.Archive, tmp_path: Path, tasks: int) -> None:
    # All partitions of a task start together, because the small side of the join filters the other one.
    executor = Scripted(lambda _index, run: run())
    executor.threads = 64
    query = archive.sql(JOIN, time_limit=120)
    assert query.on(executor, tasks=tasks).write_parquet(f"{tmp_path / 'out'}/") == query.count()
    written = pa.concat_tables([pq.read_table(part) for part in parts_of(tmp_path / "out")])
    assert same_rows(rows_of(written), rows_of(query.to_arrow()))


def test_what_a_killed_worker_leaves_is_removed(archive: a2store.Archive, tmp_path: Path) -> None:
    def killed(index: int, run: Callable[[], bytes]) -> bytes:
        if index == 0:
            (folder,) = tmp_path.glob(".staged-*")
            (folder / ".staged-half.tmp").write_text("half of a file")
        return run()

    query = archive.sql(DIVIDED[6])
    assert query.on(Scripted(killed), tasks=2).write_parquet(f"{tmp_path / 'out'}/") == query.count()
    assert [part.name for part in parts_of(tmp_path / "out")] == ["part-00000.parquet", "part-00001.parquet"]


def test_workers_with_another_number_of_cores_plan_alike(archive: a2store.Archive) -> None:
    labels = pa.table({"run_id": pa.array(range(60), pa.uint32()), "label": [str(i % 7) for i in range(60)]})
    batches = labels.to_batches(max_chunksize=10)
    reader = pa.Table.from_batches(batches)
    sql = "SELECT label, count(*) AS n FROM steps JOIN labels USING (run_id) GROUP BY label"
    plans: list[Future[Any]] = []

    class Watching(Executor):
        workers = 2

        def submit(self, fn: Any, /, *args: Any, **_: Any) -> Future[Any]:
            future: Future[Any] = pool.submit(fn, *args)
            plans.append(future)
            return future

    one_core = (0, {min(os.sched_getaffinity(0))})
    with ProcessPoolExecutor(2, get_context("spawn"), os.sched_setaffinity, one_core) as pool:
        query = archive.sql(sql, tables={"labels": reader})
        there = query.on(Watching(), tasks=2)
        assert divided(there)
        assert same_rows(rows_of(there.to_arrow()), rows_of(query.to_arrow()))
    assert all(b'"is_other_plan":false' in future.result() for future in plans)


def test_repeated_tasks_write_their_files_once(archive: a2store.Archive, tmp_path: Path) -> None:
    def twice(_index: int, run: Callable[[], bytes]) -> bytes:
        run()
        return run()

    here = archive.sql(DIVIDED[6])
    assert here.on(Scripted(twice), tasks=3).write_parquet(f"{tmp_path / 'out'}/") == here.count()
    assert sum(pq.read_metadata(part).num_rows for part in parts_of(tmp_path / "out")) == here.count()


def test_nothing_is_left_of_a_write_that_fails(archive: a2store.Archive, tmp_path: Path) -> None:
    query = archive.sql(DIVIDED[6]).on(losing(2), tasks=3)
    with pytest.raises(a2store.ClusterError, match="the worker died"):
        query.write_parquet(f"{tmp_path / 'out'}/")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("taken")
    for name in ("taken", "file", "link"):
        with pytest.raises(FileExistsError, match=f"expected nothing, found a file or folder.*{name}"):
            query.write_parquet(f"{tmp_path / name}/")
    with pytest.raises(IsADirectoryError):
        query.write_parquet(tmp_path / "taken")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "link", "taken"]
    (tmp_path / "by-link").symlink_to(archive.path)
    for inside in (f"{tmp_path}/by-link/new/", f"{tmp_path}/by-link/new.parquet", f"{archive.path}/steps/"):
        with pytest.raises(ValueError, match="outside of the archive"):
            query.write_parquet(inside)
    with pytest.raises(FileNotFoundError):
        query.write_parquet(f"{tmp_path / 'none' / 'out'}/")


# With 2000 runs, each file has two row groups, which tasks can share.
@pytest.mark.parametrize(
    ("files", "runs", "share"), [(4, 60, 1.0), (2, 2000, 0.01)], ids=["all runs", "a hundredth of the runs"]
)
def test_workers_read_their_share_of_an_object_store(
    url: str, through: Callable[[Faults], Proxy], tmp_path: Path, files: int, runs: int, share: float
) -> None:
    made = a2store.Archive.create(url)
    for seed in range(files):
        a2store.simulate(tmp_path / str(seed), runs=runs, seed=seed, depth=0, progress=False)
        made.ingest(tmp_path / str(seed), progress=False)
    scores = np.sort(made.sql("SELECT max_score FROM runs").to_arrow()["max_score"].to_numpy())
    sql = (
        "SELECT max(board), avg(ev_up), avg(ev_down), avg(ev_left), avg(ev_right), max(max_score) FROM steps "
        f"WHERE max_score >= {scores[-int(share * len(scores))]}"
    )
    coordinator = a2store.open(url)
    spawn = get_context("spawn")
    # Processes that start later read by way of the proxy. The coordinator does not.
    proxy = through(lambda _: None)
    with ProcessPoolExecutor(1, mp_context=spawn) as executor:
        expected = executor.submit(a2store.Query.to_arrow, coordinator.sql(sql)).result()
    here = proxy.sent.total()
    proxy.sent.clear()
    with ProcessPoolExecutor(2, mp_context=spawn) as executor:
        query = coordinator.sql(sql).on(executor, tasks=2)
        assert divided(query)
        assert same_rows(rows_of(query.to_arrow()), rows_of(expected))
    assert same_rows(rows_of(expected), rows_of(coordinator.sql(sql).to_arrow()))
    assert 0 < proxy.sent.total() <= 1.3 * here


def test_tasks_write_to_an_object_store(
    url: str, processes: Executor, archive: a2store.Archive, filesystem: Any
) -> None:
    base = url.removesuffix("/games.a2")
    query = archive.sql(DIVIDED[6])

    def names(folder: str = "out") -> list[str]:
        selector = pyarrow.fs.FileSelector(f"{base.removeprefix('s3://')}/{folder}", allow_not_found=True)
        return sorted(file.base_name for file in filesystem.get_file_info(selector) if file.is_file)

    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        assert query.on(executor, tasks=3).write_parquet(f"{base}/out") == query.count()
    assert [re.sub("-[0-9a-f]{12}", "", name) for name in names()] == [f"part-{k:05}.parquet" for k in range(3)]
    written = pq.read_table(f"{base.removeprefix('s3://')}/out", filesystem=filesystem)
    assert same_rows(rows_of(written), rows_of(query.to_arrow()))
    with pytest.raises(FileExistsError, match="expected nothing, found part-00000-"):
        query.write_parquet(f"{base}/out")
    assert len(names()) == 3
    with pytest.raises(ValueError, match="expected a URL without"):
        query.write_parquet(f"{base}/new/?x=1")
    with pytest.raises(ValueError, match="outside of the archive"):
        a2store.Archive.create(url).sql("SELECT 1").write_parquet(f"{base}/out/../games.a2/new/")

    other = filesystem.open_output_stream

    def meanwhile(index: int, run: Callable[[], bytes]) -> bytes:
        if index == 2:
            with other(f"{base.removeprefix('s3://')}/other/precious") as file:
                file.write(b"1")
        return run()

    # An object of another writer is kept, and is not mixed with the result.
    with pytest.raises(FileExistsError, match="expected no other objects, found precious"):
        query.on(Scripted(meanwhile), tasks=3).write_parquet(f"{base}/other/")
    assert names("other") == ["precious"]

    with pytest.raises(a2store.ClusterError, match="the worker died"):
        query.on(losing(2, pool_size=1), tasks=3).write_parquet(f"{base}/failed/")
    assert names("failed") == []


@contextmanager
def on_dask() -> Iterator[Executor]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as local,
        distributed.Client(local) as client,
    ):
        yield client.get_executor()


@contextmanager
def on_ray() -> Iterator[Executor]:
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes.add_node(num_cpus=1)
    ray.init(address=nodes.address, log_to_driver=False)
    try:
        yield cluster.RayExecutor()
    finally:
        ray.shutdown()
        nodes.shutdown()


ENGINES = {"Dask": on_dask, "Ray": on_ray}


class Killing(Executor):
    """An executor that kills the worker of a task once at each of the next ``moments``.

    ``"during"`` is some milliseconds after the beginning of the work, or at its end if that comes first.
    """

    workers = 2

    def __init__(self, executor: Any, moments: Iterator[Sequence[str]], folder: Path) -> None:
        self.executor, self.moments, self.folder = executor, moments, folder

    def submit(self, fn: Any, /, *args: Any, **_: Any) -> Future[Any]:
        # Engines pickle this function by value, because it is not a global one.
        def killed(marks: str, fn: Any, *args: Any) -> Any:
            import os
            import random
            import signal

            for mark in sorted(os.listdir(marks)):
                os.remove(f"{marks}/{mark}")
                if mark.endswith("during"):
                    # Nothing handles the signal, so it ends the process.
                    signal.setitimer(signal.ITIMER_REAL, random.uniform(0.001, 0.1))
                if not mark.endswith("before"):
                    fn(*args)
                os.kill(os.getpid(), signal.SIGKILL)
            return fn(*args)

        moments = next(self.moments)
        if not moments:
            return self.executor.submit(fn, *args)  # type: ignore[no-any-return]
        marks = Path(tempfile.mkdtemp(dir=self.folder, prefix="kills-"))
        for number, moment in enumerate(moments):
            (marks / f"{number} {moment}").touch()
        return self.executor.submit(killed, str(marks), fn, *args)  # type: ignore[no-any-return]


MOMENTS = ["before", "during", "after"]
NEVER: Iterator[Sequence[str]] = repeat(())


@pytest.mark.parametrize("name", ENGINES)
def test_on_an_engine(archive: a2store.Archive, run_folders: list[Path], tmp_path: Path, name: str) -> None:
    with ENGINES[name]() as executor:
        assert cluster._workers(executor) == 2
        for sql in DIVIDED[:6]:
            assert assert_same(archive, sql, executor)
        # The engine repeats a task whose worker is killed three times, and gives up on one whose worker always is.
        thrice = archive.sql(GROUPS).on(Killing(executor, chain([MOMENTS], NEVER), tmp_path), tasks=2)
        assert same_rows(rows_of(thrice.to_arrow()), rows_of(archive.sql(GROUPS).to_arrow()))
        assert [*tmp_path.rglob("kills-*/*")] == []
        with pytest.raises(a2store.ClusterError):
            archive.sql(GROUPS).on(Killing(executor, repeat(["during"] * 100), tmp_path), tasks=2).count()
    with ENGINES[name]() as executor:
        # A worker dies before its part of an ingest, the next within it, and the third before its answer.
        made = a2store.Archive.create(tmp_path / "many.a2")
        reports = cluster.ingest(made, run_folders, Killing(executor, chain([MOMENTS], NEVER), tmp_path), tasks=3)
        # The last repetition of the first part finds its runs. Dask may also repeat a part that has ended.
        assert reports[0].duplicates == 20
        assert all(report.accepted + report.duplicates == 20 for report in reports)
        assert made.num_runs == made.sql("SELECT DISTINCT digest FROM runs").count() == 60
        assert made.verify(progress=False).problems == []


@pytest.mark.parametrize("name", ["processes", *ENGINES] if LONG else ["processes"])
def test_random_statements(processes: Executor, tmp_path: Path, name: str) -> None:
    """A worker is killed in each tenth statement, except in a pool of processes, which would be broken by that.

    Dask starts no new worker after about fifteen kills, so each fifty statements have new engines.
    """
    indices = count()
    fuzz = oracles.Engine(build(tmp_path))
    while fuzz.met["tasks: compared"] < (300 if LONG else 20):
        with nullcontext(processes) if name == "processes" else ENGINES[name]() as executor:
            for index in islice(indices, 50 if LONG else 20):
                moments = [MOMENTS[index // 10 % 3]] if index % 10 == 9 and name != "processes" else []
                fuzz.executor = Killing(executor, chain([moments], NEVER), tmp_path)
                node, _ = statement(1, index)
                finding = oracles.tasks(fuzz, node)
                is_known = finding is not None and known(node, finding.kind, finding.found)
                assert finding is None or is_known, f"statement {index}: {finding}"
    print(dict(fuzz.met))
    assert fuzz.met["tasks: divided"] > fuzz.met["tasks: compared"] // 4
