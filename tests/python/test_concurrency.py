"""Concurrent processes on one archive: no run is lost or duplicated, and a reader sees one complete version."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import a2store
from archives import chunks, copied, grow, manifest_path, names, short_runs, tables, unsealed
from faults.checks import LONG
from threads import HANGS

WRITERS = 8
APPENDS = 100 if LONG else 5
READERS = 2
OPENS = 5_000 if LONG else 200
TIMEOUT = 1800 if LONG else 2 * HANGS

WRITER = """
import sys, time, a2store
from pathlib import Path
archive, others, *files = sys.argv[1:]
archive, others = a2store.Archive.open(archive), list(map(Path, others.split(",")))
for file in files:
    report = archive.ingest(file, workers=1, progress=False)
    assert (report.accepted, report.duplicates) == (1, 0), report
    # The others must see this version or a later one before the next commit, even on few cores.
    while any(not other.exists() or int(other.read_text()) < archive.version for other in others):
        time.sleep(0.002)
print("done")
"""

MET = """
import os
def met(version):
    with open(mine + ".tmp", "w") as file:
        file.write(str(version))
    os.replace(mine + ".tmp", mine)
"""

READER = f"""{MET}
import json, os, sys, time
import a2store
path, stop, mine, opens = *sys.argv[1:4], int(sys.argv[4])
last, count, seen = 0, 0, dict()
sql = "SELECT count(*) AS n, coalesce(max(run_id), 0) AS last, count(DISTINCT digest) AS digests FROM runs"
while count < opens or not os.path.exists(stop):
    archive = a2store.Archive.open(path)
    assert archive.version >= last, (archive.version, last)
    new = archive.version > last
    last, count = archive.version, count + 1
    facts = archive.num_runs, archive.num_steps
    assert seen.setdefault(last, facts) == facts, (last, seen[last], facts)
    history = archive.history()
    assert history[0].version == last
    assert len(history) == last or len(sys.argv) > 5
    met(last)
    if not new and count % 50:
        continue
    try:
        (runs,) = archive.sql(sql).to_arrow().to_pylist()
        steps = len(archive.sql("SELECT board FROM steps WHERE board > 0").to_arrow())
    except (a2store.Error, OSError) as error:
        # A version or its files may be missing only if they have expired since.
        is_gone = isinstance(error, a2store.VersionNotFoundError) or ".parquet" in str(error)
        is_gone = is_gone or "version " + str(last) + ": expected" in str(error)
        expired = len(sys.argv) > 5 and is_gone
        assert expired, error
        continue
    assert (runs["n"], runs["digests"], steps) == (facts[0], facts[0], facts[1]), (runs, steps, facts)
    if last > 1 and len(sys.argv) == 5:
        older = a2store.Archive.open(path, version=last - 1)
        assert older.num_runs <= facts[0] and older.version == last - 1
        assert older.sql("SELECT * FROM runs").count() == older.num_runs
print(json.dumps([count, len(seen)]))
"""

MAINTAINER = f"""{MET}
import os, sys, time, a2store
path, stop, mine, what = sys.argv[1:]
archive, count = a2store.Archive.open(path), 0
while not os.path.exists(stop):
    if what == "compact":
        archive.compact(file_rows=400, workers=1, progress=False)
    else:
        # No reader in this test reads a version for longer.
        archive.expire(older_than=2.0, grace=60)
    count += 1
    met(archive.version)
print(count)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return short_runs(tmp_path_factory.mktemp("short") / "runs", WRITERS * APPENDS, steps=12)


def start(*args: object) -> subprocess.Popen[str]:
    command = [sys.executable, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> str:
    out, error = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, error) == (0, ""), error
    return out


def assert_complete(archive: a2store.Archive, runs: list[Path]) -> None:
    """Check that every run is there once, ids and versions have no gaps, and each commit's totals match its rows."""
    rows = pa.table(archive.sql("SELECT run_id, source, num_steps FROM runs")).to_pylist()
    assert [row["run_id"] for row in rows] == list(range(len(runs)))
    assert sorted(row["source"] for row in rows) == sorted(map(str, runs))
    assert archive.num_steps == sum(row["num_steps"] for row in rows)
    history = archive.history()
    oldest = history[-1].version
    assert [line.version for line in history] == list(range(archive.version, oldest - 1, -1))
    added = [line for line in history if line.operation == "ingest"]
    assert {line.added_runs for line in added} <= {1}
    assert [line.next_run_id for line in added] == list(range(len(rows), len(rows) - len(added), -1))
    assert len({line.txn for line in history}) == len(history)
    report = archive.verify(progress=False)
    assert (report.problems, report.unnamed_files) == ([], 0)
    assert not [name for name in names(archive.path) if ".staged" in name]


@pytest.mark.parametrize("maintained", [False, True], ids=["alone", "maintained"])
def test_writers_and_readers(runs: list[Path], tmp_path: Path, maintained: bool) -> None:
    path, stop = tmp_path / "games.a2", tmp_path / "stop"
    a2store.Archive.create(path)
    expiring = ["expired"] if maintained else []
    works = ("compact", "expire") if maintained else ()
    met = [tmp_path / f"met.{number}" for number in range(READERS + len(works))]
    readers = [start("-c", READER, path, stop, mine, OPENS // READERS, *expiring) for mine in met[:READERS]]
    maintainers = [start("-c", MAINTAINER, path, stop, *some) for some in zip(met[READERS:], works, strict=True)]
    writers = [start("-c", WRITER, path, ",".join(map(str, met)), *some) for some in chunks(runs, APPENDS)]
    try:
        # If one writer failed, the others would wait for it forever.
        while any(writer.poll() is None for writer in writers):
            failed = [other for other in (*readers, *maintainers) if other.poll() is not None]
            assert not failed, end(failed[0])
            time.sleep(0.05)
        assert [end(writer) for writer in writers] == ["done\n"] * WRITERS
    except BaseException:
        # The others would wait forever for the process that failed.
        for process in (*readers, *maintainers, *writers):
            process.kill()
        raise
    finally:
        stop.touch()
    opens = [json.loads(end(reader)) for reader in readers]
    work = [int(end(maintainer)) for maintainer in maintainers]
    assert sum(count for count, _ in opens) >= OPENS
    # A writer waited for the readers after each of its commits.
    assert min(versions for _, versions in opens) >= APPENDS
    archive = a2store.Archive.open(path)
    if maintained:
        assert min(work) > 0
        archive.expire(older_than=0, grace=0)
    else:
        history = archive.history()
        merges = sum(line.operation == "compact" for line in history)
        assert len(history) == archive.version == len(runs) + merges + 1
        for version in range(1, archive.version + 1, 1 + len(runs) // 40):
            opened = a2store.Archive.open(path, version=version)
            added = sum(line.operation == "ingest" for line in history if line.version <= version)
            assert opened.num_runs == opened.sql("SELECT * FROM runs").count() == added
            fields = unsealed(manifest_path(path, version))
            assert (fields["num_runs"], fields["num_steps"]) == (opened.num_runs, opened.num_steps)
    assert_complete(archive, runs)


def test_concurrent_ingests_of_the_same_runs(runs: list[Path], tmp_path: Path) -> None:
    """The first writer adds a run, and the others count it as a duplicate."""
    path = tmp_path / "games.a2"
    a2store.Archive.create(path)
    code = """
import sys, a2store
archive = a2store.Archive.open(sys.argv[1])
print(sum(archive.ingest(file, workers=1, progress=False).accepted for file in sys.argv[2:]))
"""
    some = runs[:10]
    orders = [some, some[::-1], some[5:] + some[:5], some[::2] + some[1::2]]
    accepted = [int(end(process)) for process in [start("-c", code, path, *order) for order in orders]]
    assert sum(accepted) == len(some)
    assert_complete(a2store.Archive.open(path), some)


def test_concurrent_creation_by_processes(runs: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "games.a2"
    started = [start("-m", "a2store", "ingest", run, path, "--json") for run in runs[:6]]
    reports = [json.loads(end(process)) for process in started]
    assert [report["accepted"] for report in reports] == [1] * 6
    assert sorted(report["version"] for report in reports) == list(range(2, 8))
    assert_complete(a2store.Archive.open(path), runs[:6])


def test_threads_of_one_process(runs: list[Path], tmp_path: Path) -> None:
    shared = a2store.Archive.create(tmp_path / "games.a2")

    def add(number: int) -> int:
        archive = shared if number % 2 else a2store.Archive.open(shared.path)
        return archive.ingest(runs[number], workers=1, progress=False).accepted

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(add, range(16))) == [1] * 16
    shared.refresh()
    assert_complete(shared, runs[:16])


# Waiting


@pytest.fixture
def locked(runs: list[Path], tmp_path: Path) -> Any:
    """An archive of two versions with runs. The test holds the lock, like another process that writes."""
    archive = grow(tmp_path / "games.a2", [runs[:1], runs[1:2]])
    with (archive.path / "_versions" / ".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield archive, lock


def test_writers_fail_after_their_wait_time(locked: Any, runs: list[Path]) -> None:
    archive, _ = locked
    there = names(archive.path)
    with pytest.raises(a2store.ConflictError, match="another process is writing") as caught:
        archive.ingest(runs[2], wait=0, progress=False)
    assert (caught.value.kind, caught.value.path) == ("conflict", archive.path)
    assert " of waiting" not in str(caught.value)
    with pytest.raises(ValueError, match="wait"):
        archive.ingest(runs[2], wait=-1, progress=False)
    with pytest.raises(TypeError, match="wait"):
        archive.ingest(runs[2], wait="soon", progress=False)
    start = time.monotonic()
    with pytest.raises(a2store.ConflictError, match=r"after 0\.3 s of waiting"):
        archive.ingest(runs[2], wait=0.3, progress=False)
    assert time.monotonic() - start >= 0.3
    assert (archive.version, names(archive.path)) == (3, there)
    # Readers do not take the lock.
    assert a2store.Archive.open(archive.path).sql("SELECT * FROM steps").count() == archive.num_steps
    assert archive.verify(progress=False).problems == []
    assert a2store.restore(archive.path, dry_run=True).new_version is None


def test_a_waiting_writer_continues_after_the_release(locked: Any, runs: list[Path]) -> None:
    archive, lock = locked
    released = []

    def release() -> None:
        released.append(True)
        fcntl.flock(lock, fcntl.LOCK_UN)

    timer = threading.Timer(0.1, release)
    timer.start()
    assert archive.ingest(runs[2], progress=False).accepted == 1
    assert released
    timer.join()


FORKED = """
import os, sys, threading, warnings
import a2store
warnings.simplefilter("ignore", DeprecationWarning)
path, files = sys.argv[1], sys.argv[2:]
archive = a2store.Archive.open(path)
def ingest():
    for file in files[:10]:
        archive.ingest(file, workers=2, progress=False)
worker = threading.Thread(target=ingest)
worker.start()
children = []
for number in range(10, 16):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            mine = a2store.Archive.open(path)
            report = mine.ingest(files[number], workers=2, progress=False)
            status = int(report.accepted != 1)
        finally:
            os._exit(status)
    children.append(child)
worker.join()
assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * len(children)
print("done")
"""


def test_forks_while_it_ingests(runs: list[Path], tmp_path: Path) -> None:
    archive = grow(tmp_path / "games.a2", [])
    assert end(start("-c", FORKED, archive.path, *runs[:16])) == "done\n"
    archive.refresh()
    assert_complete(archive, runs[:16])


def test_a_fork_does_not_keep_the_lock(runs: list[Path], tmp_path: Path) -> None:
    """A child that was forked during a write and survives its parent does not hold the lock."""
    code = """
import os, signal, sys, threading, time, warnings
import a2store
warnings.simplefilter("ignore", DeprecationWarning)
path, files = sys.argv[1], sys.argv[2:]
archive = a2store.Archive.open(path)
stop = threading.Event()
def ingest():
    for file in files:
        archive.ingest(file, workers=1, progress=False)
worker = threading.Thread(target=ingest)
worker.start()
children = []
while worker.is_alive() and len(children) < 40:
    child = os.fork()
    if child == 0:
        while True:
            signal.pause()
    children.append(child)
    time.sleep(0.005)
worker.join(HANGS)
print("stuck" if worker.is_alive() else "done", flush=True)
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
    archive = grow(tmp_path / "games.a2", [])
    code = code.replace("HANGS", str(HANGS))
    assert end(start("-c", code, archive.path, *runs[:10])) == "done\n"
    archive.refresh()
    assert archive.num_runs == 10


def test_a_stale_handle_continues_from_the_newest_version(runs: list[Path], tmp_path: Path) -> None:
    archive = grow(tmp_path / "games.a2", [runs[:2], runs[2:4]])
    stale = a2store.Archive.open(archive.path, version=2)
    archive.compact(progress=False)
    archive.expire(older_than=0, grace=0)
    assert stale.ingest(runs[:6], progress=False).duplicates == 4
    assert (stale.version, stale.num_runs) == (6, 6)
    assert archive.version == 5
    copy = copied(archive.path, tmp_path / "copy.a2")
    assert tables(a2store.Archive.open(copy))["runs"]["run_id"].to_pylist() == list(range(6))
    assert os.path.samefile(stale.path, archive.path)
