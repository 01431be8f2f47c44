"""Annotations of archives on an object store: the operations of a folder, killed writers, and lost answers."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import a2store
import formats
import games
from annotations import POLICIES, predictions, write_annotations
from object_store.proxy import End, Fault, Faults, Proxy, once
from test_command import report, run
from threads import HANGS

Through: TypeAlias = Callable[[Faults], Proxy]
FIRST_ID = 1000
"""The first id of ``formats.write_session``."""


@dataclass(frozen=True)
class Pool:
    """A session of games, and annotations of all its games, by two models, and of its first and second part."""

    session: Path
    folders: dict[str, Path]
    num_rows: int

    def archive(self, path: str | Path) -> a2store.Archive:
        archive = a2store.Archive.create(path)
        archive.ingest(self.session, progress=False)
        return archive


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    folder = tmp_path_factory.mktemp("pool")
    played = {FIRST_ID + i: games.play(random.Random(i), steps) for i, steps in enumerate((30, 12, 20))}
    formats.write_session(folder / "pool", list(played.values()), action=True)
    whole = predictions(played)
    late = whole["run_id"] == FIRST_ID + 2
    parts = {"whole": whole, "other": predictions(played, seed=1), "early": whole[~late], "late": whole[late]}
    folders = {}
    for name, rows in parts.items():
        folders[name] = folder / name
        write_annotations(folders[name], rows, bins=2)
        shutil.copy(folder / "pool" / "metadata.db", folders[name])
    return Pool(folder / "pool", folders, len(whole))


def annotated(archive: a2store.Archive) -> list[dict[str, Any]]:
    sql = "SELECT * FROM annotations ORDER BY model, run_id, step_index"
    rows: list[dict[str, Any]] = pa.table(archive.sql(sql)).to_pylist()
    return rows


def test_a_store_equals_a_folder(url: str, pool: Pool, tmp_path: Path, filesystem: Any) -> None:
    """The same operations, on both, give the same annotations, versions and problems."""
    there, here = pool.archive(url), pool.archive(tmp_path / "games.a2")

    def assert_equal() -> None:
        opened = a2store.Archive.open(url)
        assert annotated(opened) == annotated(here) == annotated(there)
        assert [repr(info) for info in opened.annotations()] == [repr(info) for info in here.annotations()]
        assert [commit.operation for commit in opened.history()] == [commit.operation for commit in here.history()]
        assert opened.verify(deep=True, progress=False).problems == []

    for archive in (there, here):
        assert archive.annotate("a", pool.folders["early"], progress=False).num_runs == 2
        archive.annotate("a", pool.folders["late"], progress=False)
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
            archive.annotate("a", pool.folders["late"], progress=False)
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


def test_the_command(url: str, pool: Pool) -> None:
    run("ingest", pool.session, url)
    assert report("annotate", url, "m", pool.folders["whole"])["num_rows"] == pool.num_rows
    assert report("annotate", url, "m", pool.folders["other"], "--replace")["replaced_rows"] == pool.num_rows
    assert report("info", url)["annotations"][0]["num_rows"] == pool.num_rows
    run("verify", url, "--deep")
    run("compact", url)
    assert report("annotate", url, "m", "--drop")["num_rows"] == pool.num_rows
    assert a2store.Archive.open(url).annotations() == []


def test_verify_finds_a_changed_bit(url: str, pool: Pool, filesystem: Any) -> None:
    archive = pool.archive(url)
    archive.annotate("m", pool.folders["whole"], progress=False)
    [file] = archive.files("annotations")
    with filesystem.open_input_file(file.removeprefix("s3://")) as opened:
        data = bytearray(opened.read())
    data[len(data) // 2] ^= 1
    with filesystem.open_output_stream(file.removeprefix("s3://")) as opened:
        opened.write(bytes(data))
    [problem] = archive.verify(progress=False).problems
    assert (problem.path, problem.what) == (file.removeprefix(f"{url}/"), "CRC32C of the file")


ANNOTATE = "import sys, a2store; a2store.Archive.open(sys.argv[1]).annotate('m', sys.argv[2], progress=False)"


@pytest.mark.parametrize("performed", [False, True], ids=["before", "after"])
def test_a_writer_that_is_killed(url: str, through: Through, pool: Pool, performed: bool) -> None:
    """Kill a writer at each request that changes something, and repeat it: no row is lost, and none is there twice."""
    found: list[int] = []
    while True:
        place, left = f"{url}/{len(found)}", [None] * len(found)
        pool.archive(place)

        def kill(request: str, left: list[None] = left) -> Fault | None:
            if request.startswith(("GET", "HEAD")):
                return None
            return left.pop() if left else Fault("kill", performed)

        proxy = through(kill)
        command = [sys.executable, "-c", ANNOTATE, place, str(pool.folders["whole"])]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as proxy.client:
            _, errors = proxy.client.communicate(timeout=HANGS)
        proxy.faults = lambda _: None
        if not proxy.made:
            assert (proxy.client.returncode, errors) == (0, "")
            break
        assert proxy.client.returncode == -signal.SIGKILL
        archive = a2store.Archive.open(place)
        found.append(len(annotated(archive)))
        assert archive.version == (3 if found[-1] else 2)
        with pytest.raises(ValueError, match="found annotations of runs") if found[-1] else nullcontext():
            archive.annotate("m", pool.folders["whole"], progress=False)
        rows = annotated(archive)
        assert len(rows) == len({(row["run_id"], row["step_index"]) for row in rows}) == pool.num_rows
        assert archive.version == 3
        assert archive.verify(deep=True, progress=False).problems == []
    # The data file and the commit.
    assert found[:2] == [0, pool.num_rows if performed else 0]
    assert set(found[2:]) <= {pool.num_rows}


@pytest.mark.parametrize("performed", [False, True], ids=["dropped", "performed"])
@pytest.mark.parametrize("end", ["503", "close", "reset"])
def test_a_lost_response(url: str, through: Through, pool: Pool, end: End, performed: bool) -> None:
    pool.archive(url)
    proxy = through(once("PUT .*/_log/0*3.json", Fault(end, performed)))
    # The log shows whether the commit exists; if not, it could still arrive.
    with nullcontext() if performed else suppress(a2store.Error):
        a2store.Archive.open(url).annotate("m", pool.folders["whole"], progress=False)
    assert proxy.made == [Fault(end, performed)]
    archive = a2store.Archive.open(url)
    if archive.version == 2:
        archive.annotate("m", pool.folders["whole"], progress=False)
    assert (archive.version, len(annotated(archive))) == (3, pool.num_rows)
    assert archive.verify(deep=True, progress=False).problems == []


def test_a_commit_that_another_writer_made_first(url: str, through: Through, pool: Pool) -> None:
    """The annotations of both writers are there."""
    pool.archive(url)
    direct = a2store.Archive.open(url)
    refused = once("PUT .*/_log/0*3.json", Fault("503", performed=False))

    def overtake(request: str) -> Fault | None:
        fault = refused(request)
        if fault:
            # This happens while the first writer waits to retry.
            direct.annotate("first", pool.folders["other"], progress=False)
        return fault

    proxy = through(overtake)
    archive = a2store.Archive.open(url)
    archive.annotate("second", pool.folders["whole"], progress=False)
    assert (len(proxy.made), archive.version) == (1, 4)
    assert [info.model for info in archive.annotations()] == ["first", "second"]
    assert len(annotated(archive)) == 2 * pool.num_rows
    assert archive.verify(deep=True, progress=False).problems == []
