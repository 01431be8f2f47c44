"""Compaction: fewer files with the same rows, without effect on concurrent readers and writers."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import a2store
from archives import (
    Table,
    Tables,
    assert_same_tables,
    chunks,
    contents,
    copied,
    grow,
    names,
    run_command,
    short_runs,
    tables,
)
from faults.checks import LONG
from faults.shim import Fault, Shim, last_of_data, python, read_log
from packs import flip
from threads import HANGS

APPENDS = 30
VERSION = APPENDS + 2
"""The version after thirty appends, each of which made one, and a merge of small files."""
FILES = 45
"""The files of thirty appends: the files of ``runs`` were merged once."""
ROW_GROUP = 1 << 19
"""The rows of a full row group of steps."""


@pytest.fixture(scope="module")
def template(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with two runs per hour for thirty hours."""
    return Path(grow(tmp_path_factory.mktemp("appends") / "games.a2", chunks(runs, 2)).path)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of three files whose rows together fill more than one row group."""
    folder = tmp_path_factory.mktemp("large")
    groups = [[folder / str(seed)] for seed in range(3)]
    for seed, [runs] in enumerate(groups):
        a2store.simulate(runs, runs=760, seed=seed, depth=0, progress=False)
    archive = grow(folder / "games.a2", groups)
    assert archive.num_steps > 1.5 * ROW_GROUP
    return Path(archive.path)


def sizes(archive: a2store.Archive) -> tuple[int, int]:
    files = [*archive.files("runs"), *archive.files("steps")]
    return len(files), sum(os.path.getsize(file) for file in files)


def assert_runs_are_whole(archive: a2store.Archive) -> None:
    """Check that no run is split between row groups or files, and that ids ascend."""
    last = -1
    for file in archive.files("steps"):
        reader = pq.ParquetFile(file)
        for group in range(reader.metadata.num_row_groups):
            rows = reader.read_row_group(group, columns=["run_id", "num_steps"])
            ids, sizes = rows["run_id"].to_numpy(), rows["num_steps"].to_numpy()
            starts = np.flatnonzero(np.diff(ids, prepend=-1))
            assert (np.diff(starts, append=len(ids)) == sizes[starts]).all()
            assert (np.diff(ids[starts].astype(int), prepend=last) > 0).all()
            last = int(ids[-1])


def test_thirty_appends_become_one_file_of_each_table(fresh: a2store.Archive) -> None:
    before, (files_before, bytes_before) = tables(fresh), sizes(fresh)
    num_runs, num_steps = fresh.num_runs, fresh.num_steps
    next_run_id = fresh.history()[0].next_run_id
    assert files_before == FILES
    report = fresh.compact(progress=False)
    assert (report.files_before, report.bytes_before) == (files_before, bytes_before)
    assert (report.files_after, report.bytes_after) == sizes(fresh)
    assert report.files_after == 2
    assert report.bytes_after < report.bytes_before / 3
    assert report.num_rows == num_runs + num_steps
    assert fresh.version == VERSION + 1
    for archive in (fresh, a2store.Archive.open(fresh.path)):
        assert (archive.num_runs, archive.num_steps) == (num_runs, num_steps)
        assert_same_tables(tables(archive), before)
        newest = archive.history()[0]
        assert (newest.version, newest.operation) == (VERSION + 1, "compact")
        assert (newest.added_runs, newest.added_steps) == (0, 0)
        assert (newest.num_runs, newest.num_steps, newest.next_run_id) == (num_runs, num_steps, next_run_id)
        assert (newest.added_files, newest.removed_files) == (2, files_before)
    assert_runs_are_whole(fresh)
    assert fresh.verify(progress=False).problems == []


def test_a_second_compaction_finds_nothing_to_do(fresh: a2store.Archive) -> None:
    fresh.compact(progress=False)
    version, there = fresh.version, names(fresh.path)
    report = fresh.compact(progress=False)
    assert (report.num_rows, report.files_before, report.files_after) == (0, 2, 2)
    assert report.bytes_before == report.bytes_after == sizes(fresh)[1]
    assert (fresh.version, names(fresh.path)) == (version, there)
    assert a2store.Archive.open(fresh.path).version == version
    empty = a2store.Archive.create(fresh.path.parent / "empty.a2")
    assert (empty.compact(progress=False).files_after, empty.version) == (0, 1)


@pytest.mark.parametrize(
    ("file_rows", "expected"),
    [(80, [40] * 30), (81, [120] * 10), (401, [440, 440, 320])],
)
def test_compaction_reaches_the_target_size(fresh: a2store.Archive, file_rows: int, expected: list[int]) -> None:
    before = tables(fresh)
    fresh.compact(file_rows=file_rows, progress=False)
    assert_same_tables(tables(fresh), before)
    assert [pq.read_metadata(file).num_rows for file in fresh.files("steps")] == expected
    assert_runs_are_whole(fresh)
    assert fresh.verify(progress=False).problems == []


def test_row_groups_hold_whole_runs(large: Path, tmp_path: Path) -> None:
    archive = a2store.Archive.open(copied(large, tmp_path / "games.a2"))
    before = tables(archive)
    archive.compact(workers=2, progress=False)
    (file,) = archive.files("steps")
    metadata = pq.read_metadata(file)
    groups = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
    assert len(groups) > 1
    assert all(rows >= ROW_GROUP for rows in groups[:-1])
    assert_runs_are_whole(archive)
    assert_same_tables(tables(archive), before)
    assert archive.verify(progress=False).problems == []


def test_readers_continue_during_compaction(large: Path, tmp_path: Path) -> None:
    archive = a2store.Archive.open(copied(large, tmp_path / "games.a2"))
    reader = a2store.Archive.open(archive.path)
    sql = "SELECT count(*) AS n, sum(step_index) AS s, max(board) AS b FROM steps"
    expected = pa.table(reader.sql(sql))
    query = reader.sql("SELECT run_id, board FROM steps")
    begun = pa.RecordBatchReader.from_stream(query)
    first = begun.read_next_batch()
    reading, stop, failed = threading.Event(), threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            if pa.table(reader.sql(sql)) != expected:
                failed.append("others")
            reading.set()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        assert reading.wait(HANGS)
        archive.compact(progress=False)
    finally:
        stop.set()
        thread.join()
    assert not failed
    assert reader.version == archive.version - 1
    rest = begun.read_all()
    assert first.num_rows + rest.num_rows == archive.num_steps
    assert pa.table(reader.sql(sql)) == pa.table(archive.sql(sql)) == expected
    reader.refresh()
    assert reader.version == archive.version


def test_a_reader_of_a_version_that_expires(fresh: a2store.Archive) -> None:
    reader = a2store.Archive.open(fresh.path)
    before, planned = (
        tables(reader),
        reader.sql("SELECT phase, max(step_index) FROM steps WHERE move <> 1 GROUP BY phase"),
    )
    fresh.compact(progress=False)
    assert fresh.expire(older_than=0, grace=0).num_files == 2 * APPENDS + 1
    # The reader gets an error instead of fewer rows.
    for name in ("runs", "steps"):
        # Footers may be cached, so that the error appears only when the stream is read.
        with pytest.raises(a2store.VersionNotFoundError, match=f"version {VERSION}: expected"):
            pa.table(reader.sql(f"SELECT * FROM {name}"))
    for read in (planned.to_arrow, lambda: reader.sql("SELECT * FROM steps").materialize(progress=False)):
        with pytest.raises(a2store.VersionNotFoundError, match=f"version {VERSION}: expected"):
            read()
    assert reader.version == VERSION
    reader.refresh()
    assert_same_tables(tables(reader), before)


@pytest.mark.parametrize("table", ["steps", "runs"])
def test_a_damaged_file_is_rejected(fresh: a2store.Archive, table: Table) -> None:
    path = Path(fresh.files(table)[11])
    good = path.read_bytes()
    there = contents(fresh.path)
    positions = range(0, len(good), 1 if LONG else len(good) // 12)
    compacted = []
    for at in positions:
        path.write_bytes(good)
        flip(path, at, 0x10)
        archive = a2store.Archive.open(fresh.path)
        try:
            archive.compact(progress=False)
        except BaseException as error:
            # A panic is not a subclass of Exception.
            if not isinstance(error, a2store.DamagedError) or error.path != path:
                compacted.append(f"byte {at}: {type(error).__name__}: {error}")
        else:
            compacted.append(f"byte {at}: compacted")
            for name in names(fresh.path) - there.keys():
                (fresh.path / name).unlink()
    path.write_bytes(good)
    assert not compacted, f"{len(compacted)} of {len(positions)}: {compacted[:5]}"
    assert contents(fresh.path) == there


INTERRUPTED = """
import sys, a2store
archive = a2store.Archive.open(sys.argv[1])
try:
    archive.compact(progress=False)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("how", ["command", "python"])
def test_ctrl_c(fresh: a2store.Archive, shim: Shim, tmp_path: Path, how: str) -> None:
    """Send the signal in each of several system calls, from the first call that changes something."""
    work = ["-m", "a2store", "compact"] if how == "command" else ["-c", INTERRUPTED]
    there, before = contents(fresh.path), tables(fresh)
    path, log = copied(fresh.path, tmp_path / "interrupted.a2"), tmp_path / "log"
    assert python(*work, path, environment=shim.environment(path, log)).returncode == 0
    calls = read_log(log)
    first, last = next(call.number for call in calls if call.changes), last_of_data(calls)
    for at in range(first, len(calls) + 1) if LONG else (first, (first + last) // 2, last, len(calls)):
        path = copied(fresh.path, tmp_path / "interrupted.a2")
        done = python(*work, path, environment=shim.environment(path, fault=Fault(at, "SIGINT")))
        if how == "python":
            # The process checks for signals periodically, so the work may end before the check.
            assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")
            undone = contents(path) == there
        else:
            undone = done.returncode == 130
            assert done.returncode in (0, 130), done.stderr
            assert undone or at > last
        if undone:
            assert contents(path) == there
            continue
        archive = a2store.Archive.open(path)
        assert archive.history()[0].operation == "compact"
        assert archive.version == fresh.version + 1
        assert there.items() <= contents(path).items()
        assert_same_tables(tables(archive), before)
        assert archive.verify(progress=False).problems == []
        assert archive.compact(progress=False).files_after == 2


def test_the_command(fresh: a2store.Archive) -> None:
    text = run_command("compact", fresh.path, "--json").stdout
    assert f'"version":{VERSION + 1}' in text
    assert f'"files_before":{FILES}' in text
    assert '"files_after":2' in text
    again = run_command("compact", fresh.path).stdout
    assert again.startswith("2 files (")
    assert "0 rows rewritten" in again
    run_command("compact", fresh.path, "--file-rows", "0", status=2)


def test_many_appends_merge_the_last_small_files(runs: list[Path], tmp_path: Path) -> None:
    """Rows, order and ids stay the same, and older versions stay readable."""
    files = short_runs(tmp_path / "runs", 140, steps=3)
    archive = a2store.Archive.create(tmp_path / "games.a2")
    most: dict[Table, int] = {"runs": 0, "steps": 0}
    for count, file in enumerate(files, 1):
        archive.ingest(file, progress=False)
        most = {table: max(number, len(archive.files(table))) for table, number in most.items()}
        if count in (64, 65, 129):
            older = a2store.open(archive.path, version=archive.version - 2)
            assert_same_tables(tables(older), first(tables(archive), older.num_runs))
    assert most == {"runs": 15, "steps": 63}
    merges = [line for line in archive.history() if line.operation == "compact"]
    assert archive.version == 1 + 140 + len(merges)
    assert [(line.added_runs, line.added_files, line.removed_files) for line in merges[-1:]] == [(0, 1, 16)]
    whole = grow(tmp_path / "whole.a2", [files])
    assert_same_tables(tables(archive), tables(whole), but=("ingested_at",))
    assert archive.verify(progress=False).problems == []
    report = a2store.Archive.open(archive.path).ingest(files, progress=False)
    assert (report.accepted, report.duplicates) == (0, 140)


def first(whole: Tables, num_runs: int) -> Tables:
    """Return the rows of the first runs."""
    return {name: table.filter(pc.less(table["run_id"], num_runs)) for name, table in whole.items()}


def test_appends_do_not_depend_on_small_files_that_are_damaged(tmp_path: Path) -> None:
    files = short_runs(tmp_path / "runs", 66, steps=3)
    archive = grow(tmp_path / "games.a2", [[file] for file in files[:63]])
    damaged = Path(archive.files("steps")[10])
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert archive.ingest(files[63:], progress=False).accepted == 3
    assert (archive.num_runs, len(archive.files("steps"))) == (66, 64)
    assert f"steps/{damaged.name}" in {problem.path for problem in archive.verify(progress=False).problems}
