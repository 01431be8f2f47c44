"""Archives on an object store: the operations of a folder, concurrent writers, and requests whose answers are lost."""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Set
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import a2store
from annotations import POLICIES, write_models
from archives import ingested, manifest_name, report, simulated
from compare import assert_same, assert_steps, column
from conftest import PHASES, Steps
from object_store.processes import CREATE, INGEST, READ, WRITE, race
from object_store.proxy import BUCKET, End, Fault, Faults, Proxy, endpoint, free_port, once
from test_command import run
from threads import HANGS

Through: TypeAlias = Callable[[Faults], Proxy]
Few: TypeAlias = tuple[list[Path], a2store.Archive]


@pytest.fixture(scope="module")
def few(run_files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Few:
    """Some run files, and an archive of them in a folder."""
    archive = ingested(tmp_path_factory.mktemp("few") / "games.a2", run_files[::10], phases=PHASES)
    assert archive.num_runs == 6
    return run_files[::10], archive


@dataclass(frozen=True)
class Pool:
    """A session of games, and annotations of all its games, by two models, and of its first and second part."""

    session: Path
    folders: dict[str, Path]
    num_rows: int

    def archive(self, path: str | Path) -> a2store.Archive:
        return ingested(path, self.session)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    folder = tmp_path_factory.mktemp("pool")
    folders, whole = write_models(folder)
    return Pool(folder / "pool", folders, len(whole))


def annotated(archive: a2store.Archive) -> list[dict[str, Any]]:
    sql = "SELECT * FROM annotations ORDER BY model, run_id, step_index"
    rows: list[dict[str, Any]] = pa.table(archive.sql(sql)).to_pylist()
    return rows


def split(files: list[Path], folder: Path, count: int) -> list[Path]:
    """Divide the files among ``count`` folders."""
    folders = [folder / f"{number:02}" for number in range(count)]
    for number, part in enumerate(folders):
        part.mkdir()
        for file in files[number::count]:
            shutil.copy(file, part)
    return folders


def rows(archive: a2store.Archive, sql: str) -> Any:
    return pa.table(archive.sql(sql))


def assert_equal(found: Any, expected: Any, but: Set[str] = frozenset()) -> None:
    for name in set(expected.column_names) - but:
        assert_same(column(found, name), column(expected, name), name)


def assert_whole(url: str, expected: a2store.Archive) -> a2store.Archive:
    """Check that the archive is intact, has no gap in its versions, and holds each run of ``expected`` once.

    Ids of writers that lost a race or were killed are left out.
    """
    archive = a2store.Archive.open(url)
    runs = rows(archive, "SELECT run_id, digest FROM runs ORDER BY run_id")
    assert len(set(runs["run_id"].to_pylist())) == archive.num_runs
    digests = rows(expected, "SELECT digest FROM runs")["digest"].to_pylist()
    assert sorted(runs["digest"].to_pylist()) == sorted(digests)
    assert archive.num_steps == expected.num_steps == archive.sql("SELECT board FROM steps").count()
    history = archive.history()
    oldest = history[-1].version
    assert [line.version for line in history] == list(range(archive.version, oldest - 1, -1))
    assert oldest > 1 or sum(line.added_runs for line in history) == archive.num_runs
    assert archive.verify().problems == []
    return archive


def test_an_object_store_equals_a_folder(
    url: str, archive: a2store.Archive, run_folders: list[Path], table: a2store.StepTable, steps: Steps, filesystem: Any
) -> None:
    made = a2store.Archive.create(url, phases=PHASES)
    assert (made.version, made.num_runs, made.files("steps"), made.files("runs")) == (1, 0, [], [])
    for folder in run_folders:
        assert made.ingest(folder, progress=False).accepted == 20
    for there in (made, a2store.Archive.open(url), a2store.Archive.open(url + "/")):
        for attribute in ("version", "num_runs", "num_steps", "phases"):
            assert getattr(there, attribute) == getattr(archive, attribute)
        assert [commit.added_runs for commit in there.history()] == [20, 20, 20, 0]
        for name in ("runs", "steps"):
            found, expected = rows(there, f"SELECT * FROM {name}"), rows(archive, f"SELECT * FROM {name}")
            assert found.schema == expected.schema
            assert_equal(found, expected, but={"ingested_at", "source"} if name == "runs" else set())
        materialized = there.sql("SELECT * FROM steps").materialize(progress=False)
        assert np.asarray(materialized).tobytes() == np.asarray(table).tobytes()
        files = there.files("steps")
        assert all(file.startswith(f"{url}/steps/") and file.endswith(".parquet") for file in files)
        stored = [pq.read_table(file.removeprefix("s3://"), filesystem=filesystem) for file in files]
        assert_steps(pa.concat_tables(stored, promote_options="permissive"), steps)
    assert_whole(url, archive)


def test_annotations_equal_those_of_a_folder(url: str, pool: Pool, tmp_path: Path, filesystem: Any) -> None:
    """The same operations, on both, give the same annotations, versions and problems."""
    there, here = pool.archive(url), pool.archive(tmp_path / "games.a2")

    def assert_equal() -> None:
        opened = a2store.Archive.open(url)
        assert annotated(opened) == annotated(here) == annotated(there)
        assert [repr(info) for info in opened.annotations()] == [repr(info) for info in here.annotations()]
        assert [commit.operation for commit in opened.history()] == [commit.operation for commit in here.history()]
        assert opened.verify(progress=False).problems == []

    for archive in (there, here):
        assert archive.annotate("a", pool.folders["first"], progress=False).num_runs == 2
        archive.annotate("a", pool.folders["last"], progress=False)
        archive.annotate("b", pool.folders["whole"], progress=False)
    assert_equal()
    before, version = annotated(there), there.version
    assert len(before) == 2 * pool.num_rows
    files = there.files("annotations")
    assert all(file.startswith(f"{url}/annotations/") for file in files)
    stored = [pq.read_table(file.removeprefix("s3://"), filesystem=filesystem) for file in files]
    assert sum(table.num_rows for table in stored) == len(before)

    sql = f"""SELECT steps.*, {", ".join(POLICIES)} FROM steps JOIN annotations USING (run_id, step_index)
        WHERE model = 'a'"""
    tables = [archive.sql(sql).materialize(extra=POLICIES, progress=False) for archive in (there, here)]
    assert np.asarray(tables[0]).tobytes() == np.asarray(tables[1]).tobytes()
    assert len(tables[0]) == pool.num_rows

    for archive in (there, here):
        archive.compact(progress=False)
    assert [info.num_files for info in there.annotations()] == [1, 1]
    assert_equal()
    assert annotated(there) == before
    for archive in (there, here):
        replaced = archive.annotate("b", pool.folders["other"], replace=True, progress=False)
        assert replaced.replaced_rows == pool.num_rows
        with pytest.raises(ValueError, match="found annotations of runs"):
            archive.annotate("a", pool.folders["last"], progress=False)
    assert_equal()
    assert annotated(there) != before
    assert annotated(a2store.Archive.open(url, version=version)) == before
    for archive in (there, here):
        assert archive.drop_annotations("a").num_rows == pool.num_rows
        archive.expire(older_than=0, grace=0)
    assert_equal()
    assert {row["model"] for row in annotated(there)} == {"b"}
    with pytest.raises(a2store.VersionNotFoundError):
        a2store.Archive.open(url, version=version)


def test_a_flipped_bit(url: str, few: Few, filesystem: Any) -> None:
    """Files of an object store are compared with their commits only on request."""
    made = ingested(url, few[0])
    query, file = "SELECT sum(board % 1000) AS sum FROM steps", made.files("steps")[0]
    expected = rows(made, query)
    with filesystem.open_input_file(file.removeprefix("s3://")) as opened:
        data = bytearray(opened.read())
    # The query does not read the column with the bit.
    data[40] ^= 1
    with filesystem.open_output_stream(file.removeprefix("s3://")) as opened:
        opened.write(bytes(data))
    assert rows(a2store.Archive.open(url), query) == expected
    with pytest.raises(a2store.DamagedError, check=lambda error: error.path == file):
        rows(a2store.Archive.open(url, checksums=True), query)
    problem, *_ = made.verify(progress=False).problems
    assert (problem.path, problem.what) == (file.removeprefix(f"{url}/"), "CRC32C of the file")


EXPORT = """
import sys
import a2store
archive = a2store.Archive.open(sys.argv[1], checksums=sys.argv[3] == "True")
try:
    archive.export_runs("SELECT DISTINCT run_id FROM steps WHERE max_score < 1e9", sys.argv[2], format="jsonl")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("checksums", [True, False])
def test_ctrl_c_while_an_export_is_planned(
    url: str, through: Through, few: Few, tmp_path: Path, checksums: bool
) -> None:
    """The store does not respond while planning reads the footers of data files."""
    a2store.Archive.create(url).ingest(few[0], progress=False)
    asked, released = threading.Event(), threading.Event()

    def withhold(request: str) -> None:
        if ".parquet" in request:
            asked.set()
            released.wait()

    through(withhold)
    command = [sys.executable, "-c", EXPORT, url, str(tmp_path / "out.jsonl"), str(checksums)]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert asked.wait(60)
            child.send_signal(signal.SIGINT)
            try:
                assert child.communicate(timeout=60)[0] == "interrupted\n"
            finally:
                child.kill()
    finally:
        released.set()
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("where", ["", " WHERE move < 9"])
def test_a_time_limit_holds_while_the_store_does_not_respond(url: str, through: Through, few: Few, where: str) -> None:
    a2store.Archive.create(url).ingest(few[0], progress=False)
    withholds, released = threading.Event(), threading.Event()

    def withhold(request: str) -> None:
        if withholds.is_set() and "/steps/" in request:
            released.wait()

    through(withhold)
    archive = a2store.Archive.open(url)
    # Later plans have the footers of the files.
    assert len(archive.sql(f"SELECT * FROM steps{where}").materialize(progress=False)) == archive.num_steps
    withholds.set()
    # Without a limit, the query would wait for this.
    timer = threading.Timer(60, released.set)
    timer.start()
    try:
        with pytest.raises(a2store.QueryLimitError, match="time"):
            archive.sql(f"SELECT * FROM steps{where}", time_limit=1).materialize(progress=False)
        assert not released.is_set()
    finally:
        timer.cancel()
        released.set()


def test_a_failed_request_is_no_damage(url: str, through: Through, few: Few) -> None:
    ingested(url, few[0])
    through(lambda request: Fault("403", performed=False) if "/steps/" in request else None)
    with pytest.raises(PermissionError, check=lambda error: error.filename == url):
        a2store.Archive.open(url).sql("SELECT * FROM steps").materialize(progress=False)


def test_opening_a_url_without_an_archive(url: str, filesystem: Any) -> None:
    with filesystem.open_output_stream(f"{url.removeprefix('s3://')}/notes.txt") as stream:
        stream.write(b"no archive")
    for nothing in (url, url + "/deeper"):
        with pytest.raises(a2store.ArchiveError) as caught:
            a2store.Archive.open(nothing)
        assert (caught.value.kind, caught.value.path) == ("not_an_archive", nothing)
        assert not isinstance(caught.value, a2store.ArchiveExistsError)


def test_one_of_several_concurrent_creations_succeeds(url: str) -> None:
    printed = race(*[(CREATE, url)] * 8)
    assert sorted(printed) == ["created"] + ["there is one"] * 7
    assert a2store.Archive.open(url).version == 1


def test_the_command(url: str, run_folders: list[Path], archive: a2store.Archive) -> None:
    first, *more = run_folders
    options = ("--mid", PHASES["mid"], "--late", PHASES["late"])
    assert report("ingest", first, url, *options)["accepted"] == 20
    assert report("ingest", *run_folders, url)["accepted"] == 20 * len(more)
    assert report("ingest", first, url)["duplicates"] == 20
    info = report("info", url)
    assert (info["version"], info["num_runs"], info["num_steps"]) == (3, 60, archive.num_steps)
    assert report("info", url, "--version", 1)["num_runs"] == 0
    assert [commit["added_runs"] for commit in report("history", url)] == [40, 20, 0]
    count = run("sql", url, "SELECT count(*) AS n FROM steps WHERE phase = 'mid'", "--format", "csv").stdout
    (expected,) = rows(archive, "SELECT count(*) FROM steps WHERE phase = 'mid'")[0].to_pylist()
    assert count.split() == [b"n", b"%d" % expected]
    run("verify", url)
    run("compact", url)
    assert_whole(url, archive)
    missing = run("info", url + "/none", status=2)
    assert f"{url}/none" in missing.stderr.decode()


def test_a_file_of_several_parts(url: str, through: Through, tmp_path: Path) -> None:
    local = simulated(tmp_path, runs=5000, seed=5, depth=0)
    proxy = through(once("partNumber=2", Fault("503", performed=False)))
    a2store.Archive.create(url).ingest(tmp_path / "runs", progress=False)
    parts = {number for request in proxy.requests for number in re.findall("partNumber=([0-9]+)", request)}
    assert (len(proxy.made), {"1", "2"} <= parts) == (1, True)
    found, expected = (
        a2store.Archive.open(each).sql("SELECT * FROM steps").materialize(progress=False) for each in (url, local.path)
    )
    assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()


def test_concurrent_writers(url: str, archive: a2store.Archive, run_files: list[Path], tmp_path: Path) -> None:
    folders, writers = split(run_files, tmp_path, 16), 8
    a2store.Archive.create(url, phases=PHASES)
    *added, seen = race(*[(WRITE, url, *folders[number::writers]) for number in range(writers)], (READ, url, 60))
    assert sum(map(int, added)) == 60
    assert int(seen) > 1
    # Each ingest of a writer is one commit. The last may be followed by a merge of 16 small files.
    assert assert_whole(url, archive).version in (17, 18)


def test_concurrent_writers_of_the_same_runs(url: str, archive: a2store.Archive, run_folders: list[Path]) -> None:
    a2store.Archive.create(url, phases=PHASES)
    added = race(*[(WRITE, url, *run_folders[number:], *run_folders[:number]) for number in (0, 1, 2)])
    assert sum(map(int, added)) == 60
    assert assert_whole(url, archive).version == 4


ANNOTATE = "import sys, a2store; a2store.Archive.open(sys.argv[1]).annotate('m', sys.argv[2], progress=False)"


@dataclass(frozen=True)
class Work:
    """One commit of a writer: an ingest, or annotations of a session."""

    few: Few
    pool: Pool | None

    @property
    def code(self) -> list[str]:
        inputs = self.few[0] if self.pool is None else [self.pool.folders["whole"]]
        return [INGEST if self.pool is None else ANNOTATE, *map(str, inputs)]

    @property
    def version(self) -> int:
        """The version that it commits."""
        return 2 if self.pool is None else 3

    @property
    def total(self) -> int:
        return len(self.few[0]) if self.pool is None else self.pool.num_rows

    def begin(self, url: str) -> None:
        if self.pool is None:
            a2store.Archive.create(url, phases=PHASES)
        else:
            self.pool.archive(url)

    def do(self, archive: a2store.Archive) -> int:
        """Do the work or repeat it, and return the number of added runs or annotations."""
        if self.pool is None:
            return archive.ingest(self.few[0], progress=False).accepted
        if done := archive.annotations():
            with pytest.raises(ValueError, match="found annotations of runs"):
                archive.annotate("m", self.pool.folders["whole"], progress=False)
        return 0 if done else archive.annotate("m", self.pool.folders["whole"], progress=False).num_rows

    def check(self, url: str) -> a2store.Archive:
        """Check that the work is done once."""
        if self.pool is None:
            archive = assert_whole(url, self.few[1])
        else:
            archive = a2store.Archive.open(url)
            rows = annotated(archive)
            assert len(rows) == len({(row["run_id"], row["step_index"]) for row in rows}) == self.total
            assert archive.verify(progress=False).problems == []
        assert archive.version == self.version
        return archive


@pytest.fixture(params=["ingest", "annotate"])
def work(request: pytest.FixtureRequest, few: Few, pool: Pool) -> Work:
    return Work(few, pool if request.param == "annotate" else None)


def until_survived(through: Through, url: str, performed: bool, command: Callable[[str], list[str]]) -> Iterator[str]:
    """Kill a process at each request that changes something, each time with a new archive. Yield the URLs."""
    for kills in itertools.count():
        left = [None] * kills

        def kill(request: str, left: list[None] = left) -> Fault | None:
            if request.startswith(("GET", "HEAD")):
                return None
            return left.pop() if left else Fault("kill", performed)

        arguments = [sys.executable, "-c", *command(f"{url}/{kills}")]
        proxy = through(kill)
        with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as proxy.client:
            _, errors = proxy.client.communicate(timeout=HANGS)
        proxy.faults = lambda _: None
        if not proxy.made:
            assert (proxy.client.returncode, errors) == (0, "")
            return
        assert proxy.client.returncode == -signal.SIGKILL
        yield f"{url}/{kills}"


@pytest.mark.parametrize("performed", [False, True], ids=["before", "after"])
def test_a_writer_that_is_killed(url: str, through: Through, work: Work, performed: bool) -> None:
    def command(place: str) -> list[str]:
        work.begin(place)
        code, *inputs = work.code
        return [code, place, *inputs]

    found: list[int] = []
    for place in until_survived(through, url, performed, command):
        archive = a2store.Archive.open(place)
        is_done = archive.version == work.version
        assert is_done or archive.version == work.version - 1
        found.append(work.do(archive))
        assert found[-1] == (0 if is_done else work.total)
        work.check(place)
    # The reservation of run ids, the data files, and the manifest.
    data = 3 if work.pool is None else 1
    assert found[: data + 1] == [work.total] * data + [0 if performed else work.total]
    assert set(found[data + 1 :]) <= {0}
    assert work.pool is not None or len(found) == 4


@pytest.mark.parametrize("performed", [False, True], ids=["dropped", "performed"])
@pytest.mark.parametrize("end", ["500", "503", "close", "reset"])
def test_a_lost_response(url: str, through: Through, work: Work, end: End, performed: bool) -> None:
    work.begin(url)
    proxy = through(once(f"PUT .*/{manifest_name(work.version)}", Fault(end, performed)))
    added = 0
    # The log shows whether the commit exists; if not, it could still arrive.
    with nullcontext() if performed else suppress(a2store.Error):
        added = work.do(a2store.Archive.open(url))
    assert proxy.made == [Fault(end, performed)]
    assert added + work.do(a2store.Archive.open(url)) == work.total
    work.check(url)


@pytest.mark.parametrize("end", ["500", "close", "reset"])
def test_a_lost_response_to_a_creation(url: str, through: Through, end: End) -> None:
    proxy = through(once(f"PUT .*/{manifest_name(1)}", Fault(end)))
    assert a2store.Archive.create(url).version == 1
    assert proxy.made == [Fault(end)]
    with pytest.raises(a2store.ArchiveExistsError):
        a2store.Archive.create(url)


@pytest.mark.parametrize("meanwhile", ["ingest", "restore", "expire"])
def test_a_version_that_another_writer_made_first(
    url: str, through: Through, few: Few, filesystem: Any, meanwhile: str
) -> None:
    """A restore adopts the first writer's files. An expiry frees the name of its manifest, which counts as lost."""
    files, expected = few
    a2store.Archive.create(url, phases=PHASES)
    direct, server = a2store.Archive.open(url), {"aws_endpoint": os.environ["AWS_ENDPOINT_URL"]}
    refused = once(f"PUT .*/{manifest_name(2)}", Fault("503", performed=False))

    def overtake(request: str) -> Fault | None:
        fault = refused(request)
        # This happens while the first writer waits to retry.
        if fault and meanwhile == "restore":
            assert a2store.restore(url, storage_options=server).adopted_runs == 6
        elif fault:
            assert direct.ingest(files[:2], progress=False).accepted == 2
        if fault and meanwhile == "expire":
            direct.ingest(files[2:3], progress=False)
            direct.compact(progress=False)
            assert direct.expire(older_than=0).first_version == 4
        return fault

    proxy = through(overtake)
    archive = a2store.Archive.open(url)
    ingested = archive.ingest(files, progress=False)
    new = {"ingest": 4, "restore": 0, "expire": 3}[meanwhile]
    assert (ingested.accepted, ingested.duplicates, len(proxy.made)) == (new, 6 - new, 1)
    versions = [line.version for line in assert_whole(url, expected).history()]
    assert versions == {"ingest": [3, 2, 1], "restore": [2, 1], "expire": [6, 5, 4]}[meanwhile]
    manifests = filesystem.get_file_info(fs.FileSelector(f"{url.removeprefix('s3://')}/_versions"))
    assert len(manifests) == len(versions)


def test_annotations_that_another_writer_committed_first(url: str, through: Through, pool: Pool) -> None:
    """The annotations of both writers are there."""
    direct = pool.archive(url)
    refused = once(f"PUT .*/{manifest_name(3)}", Fault("503", performed=False))

    def overtake(request: str) -> Fault | None:
        fault = refused(request)
        if fault:
            direct.annotate("first", pool.folders["other"], progress=False)
        return fault

    proxy = through(overtake)
    archive = a2store.Archive.open(url)
    archive.annotate("second", pool.folders["whole"], progress=False)
    assert (len(proxy.made), archive.version) == (1, 4)
    assert [info.model for info in archive.annotations()] == ["first", "second"]
    assert len(annotated(archive)) == 2 * pool.num_rows


def test_a_store_with_intermittent_failures(
    url: str, through: Through, archive: a2store.Archive, run_files: list[Path], tmp_path: Path
) -> None:
    generator = random.Random(2048)

    def faults(request: str) -> Fault | None:
        if generator.random() > 0.15:
            return None
        if request.startswith("GET") and ".parquet" in request and generator.random() < 0.5:
            return Fault("cut")
        ends: list[End] = ["500", "503", "close"]
        return Fault(generator.choice(ends), performed=generator.random() < 0.5)

    proxy = through(faults)
    a2store.Archive.create(url, phases=PHASES)
    folders = split(run_files, tmp_path, 6)
    assert sum(map(int, race(*[(WRITE, url, *folders[number::2]) for number in range(2)]))) == 60
    made = assert_whole(url, archive)
    assert made.version == 7
    made.compact()
    assert assert_whole(url, archive).version == 8
    assert {fault.end for fault in proxy.made} == {"500", "503", "close", "cut"}


@pytest.mark.parametrize("wrong", ["key", "endpoint", "bucket"])
@pytest.mark.parametrize("name", ["open", "create"])
def test_an_unreachable_store(url: str, monkeypatch: pytest.MonkeyPatch, wrong: str, name: str) -> None:
    if wrong == "key":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    elif wrong == "endpoint":
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint(free_port()))
    else:
        url = url.replace(BUCKET, f"{BUCKET}-none")
    start = time.monotonic()
    with pytest.raises((OSError, a2store.Error), match=re.escape(url)):
        getattr(a2store.Archive, name)(url)
    # The client stops retrying after half a minute.
    assert time.monotonic() - start < HANGS
