"""Archives of older schema versions can be read, verified and extended; newer ones are rejected."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import a2store
from archives import (
    GOLDEN,
    GOLDEN_PHASES,
    Tables,
    assert_same_tables,
    contents,
    copied,
    forge,
    grow,
    run_command,
    sealed,
    short_runs,
    tables,
    unsealed,
)

NEWEST = 5
ARCHIVES = sorted(GOLDEN.glob("schema-*.a2"))
OF_THE_INGEST = ("ingested_at", "version", "source", "raw_evs", "tile_65536_mask", "final_tile_65536_mask")
"""Columns with the time and origin of a run, and those that older versions lack."""

golden = pytest.mark.parametrize("golden", ARCHIVES, ids=lambda path: path.stem)


def digest(folder: Path) -> str:
    whole = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        whole.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return whole.hexdigest()


@pytest.fixture(scope="module", autouse=True)
def untouched() -> Iterator[None]:
    """Check that no test changes the files of older versions."""
    before = digest(GOLDEN)
    yield
    assert digest(GOLDEN) == before


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of the same files, made by this version."""
    return Path(grow(tmp_path_factory.mktemp("fresh") / "games.a2", [[GOLDEN / "runs"]], phases=GOLDEN_PHASES).path)


def schema_version(golden: Path) -> int:
    return int(golden.stem.removeprefix("schema-"))


def test_every_older_version_has_a_golden_archive() -> None:
    assert {schema_version(path) for path in ARCHIVES} >= set(range(1, NEWEST))


def test_the_documentation_has_the_newest_version() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "archive.md").read_text()
    assert re.findall(r"^\| `schema_version` \| (\d+);", text, re.M) == [str(NEWEST)]
    assert [int(number) for number in re.findall(r"^\| (\d+) \| \d+\.\d+ \|", text, re.M)] == list(range(1, NEWEST + 1))


@golden
def test_an_old_archive_has_the_version_in_its_name(golden: Path) -> None:
    commits = sorted((golden / "_log").glob("*[0-9].json"))
    assert {unsealed(path)["schema_version"] for path in commits} == {schema_version(golden)}
    assert len(commits) == 3


@golden
def test_an_old_archive_equals_a_new_ingest(golden: Path, fresh: Path, tmp_path: Path) -> None:
    archive = a2store.Archive.open(copied(golden, tmp_path / "games.a2"))
    expected = a2store.Archive.open(fresh)
    assert (archive.num_runs, archive.num_steps) == (expected.num_runs, expected.num_steps) == (7, archive.num_steps)
    assert archive.phases == GOLDEN_PHASES
    found = tables(archive)
    assert_same_tables(found, tables(expected), but=OF_THE_INGEST)
    assert found["runs"]["verified"].to_pylist() == [True] * 5 + [False, True]
    originals = found["runs"]["original"].to_pylist()
    assert [data is not None for data in originals] == [False] * 6 + [True]
    assert originals[6] == (GOLDEN / "runs/gamma/longer.a2run2").read_bytes()
    sources = [Path(source).name for source in found["runs"]["source"].to_pylist()]
    assert sources == [Path(path).name for path in tables(expected)["runs"]["source"].to_pylist()]
    # Later columns are null.
    versions = found["runs"]["version"].to_pylist()
    assert versions == ([None] * 7 if schema_version(golden) == 1 else [2] * 5 + [3] * 2)
    raw_evs = found["runs"]["raw_evs"].to_pylist()
    assert raw_evs == [None if schema_version(golden) < 3 else False] * 7
    no_tile = None if schema_version(golden) < 5 else 0
    assert found["runs"]["final_tile_65536_mask"].to_pylist() == [no_tile] * 7
    assert set(found["steps"]["tile_65536_mask"].to_pylist()) == {no_tile}
    for table in ("runs", "steps"):
        assert pa.schema(archive.schema(table)).equals(pa.schema(expected.schema(table)))


@golden
def test_an_old_archive_is_intact(golden: Path, tmp_path: Path) -> None:
    path = copied(golden, tmp_path / "games.a2")
    for deep in (False, True):
        report = a2store.verify(path, deep=deep, progress=False)
        assert (report.problems, report.version, report.unnamed_files) == ([], 3, 0)
    assert run_command("verify", path, "--deep").stdout.startswith("sound: ")
    assert a2store.repair(path).steps == []


@golden
def test_each_of_its_versions(golden: Path, tmp_path: Path) -> None:
    path = copied(golden, tmp_path / "games.a2")
    whole = tables(a2store.Archive.open(path))
    facts = []
    for version in (1, 2, 3):
        archive = a2store.Archive.open(path, version=version)
        facts.append((archive.version, archive.num_runs, len(archive.history())))
        for name, table in tables(archive).items():
            assert table.equals(whole[name].slice(0, len(table)))
    assert facts == [(1, 0, 1), (2, 5, 2), (3, 7, 3)]
    history = archive.history()
    assert [(line.added_runs, line.added_files, line.removed_files) for line in history] == [
        (2, 2, 0),
        (5, 2, 0),
        (0, 0, 0),
    ]
    assert [line.next_run_id for line in history] == [7, 5, 0]
    assert len({line.txn for line in history}) == 3


@golden
def test_reading_changes_nothing(golden: Path, tmp_path: Path) -> None:
    path = copied(golden, tmp_path / "games.a2")
    before = contents(path)
    archive = a2store.Archive.open(path)
    archive.sql("SELECT * FROM steps WHERE engine IS NOT NULL").materialize(progress=False)
    archive.sql("SELECT count(*) FROM runs WHERE version IS NULL").count()
    archive.verify(deep=True, progress=False)
    assert contents(path) == before


@golden
def test_an_old_archive_accepts_new_runs(golden: Path, tmp_path: Path) -> None:
    path = copied(golden, tmp_path / "games.a2")
    archive = a2store.Archive.open(path)
    before = tables(archive)
    report = archive.ingest(GOLDEN / "runs", progress=False)
    assert (report.accepted, report.duplicates, archive.version) == (0, 7, 3)
    more = short_runs(tmp_path / "more", 3)
    archive.ingest([GOLDEN / "runs", *more], progress=False)
    assert (archive.version, archive.num_runs) == (4, 10)
    assert unsealed(path / "_log" / f"{4:020}.json")["schema_version"] == NEWEST
    after = tables(archive)
    assert_prefix(after, before)
    assert after["runs"]["run_id"].to_pylist() == list(range(10))
    assert after["runs"]["version"].to_pylist()[7:] == [4, 4, 4]
    # A filter on a column that some files lack.
    assert archive.sql("SELECT * FROM runs WHERE version = 4").count() == 3
    assert archive.sql("SELECT * FROM runs WHERE version IS NULL OR version < 4").count() == 7
    assert archive.verify(deep=True, progress=False).problems == []
    assert a2store.Archive.open(path, version=3).num_runs == 7

    archive.compact(progress=False)
    assert len(archive.files("runs")) == len(archive.files("steps")) == 1
    assert_same_tables(tables(archive), after)
    archive.expire(older_than=0, grace=0)
    assert_same_tables(tables(a2store.Archive.open(path)), after)
    assert archive.verify(deep=True, progress=False).problems == []


def assert_prefix(whole: Tables, part: Tables) -> None:
    for name, table in part.items():
        assert whole[name].slice(0, len(table)).equals(table)


@golden
def test_a_writer_rejects_a_newer_version(golden: Path, tmp_path: Path) -> None:
    path = copied(golden, tmp_path / "games.a2")
    archive = a2store.Archive.open(path)
    forge(path, 3, lambda fields: fields.update(schema_version=NEWEST + 1, add="of another shape"))
    before = contents(path)
    more = short_runs(tmp_path / "more", 1)
    for work in (
        lambda: a2store.Archive.open(path),
        archive.refresh,
        lambda: archive.ingest(more, progress=False),
        lambda: archive.compact(progress=False),
        lambda: archive.expire(older_than=0),
        lambda: a2store.repair(path),
        lambda: a2store.repair(path, dry_run=False),
    ):
        with pytest.raises(a2store.ArchiveError, match=f"schema version {NEWEST + 1}.*upgrade") as caught:
            work()
        assert (caught.value.kind, caught.value.path) == ("schema_version", path / "_log" / f"{3:020}.json")
    assert contents(path) == before
    assert run_command("info", path, status=1).stderr.count("schema version") == 1
    # Earlier versions stay readable.
    assert a2store.Archive.open(path, version=2).num_runs == 5


def test_a_checkpoint_of_a_newer_version(fresh: Path, tmp_path: Path) -> None:
    path = copied(fresh, tmp_path / "games.a2")
    a2store.Archive.open(path).ingest(short_runs(tmp_path / "more", 2), progress=False)
    a2store.Archive.open(path).compact(progress=False)
    name = path / "_log" / f"{4:020}.checkpoint.json"
    name.write_bytes(sealed(unsealed(name) | {"schema_version": NEWEST + 1}))
    # The commits have the same content.
    assert a2store.Archive.open(path).num_runs == 9


def test_every_version_has_its_archive(tmp_path: Path) -> None:
    made = a2store.Archive.create(tmp_path / "games.a2")
    newest = json.loads((made.path / "_log" / f"{1:020}.json").read_text())["schema_version"]
    assert [path.name for path in ARCHIVES] == [f"schema-{version}.a2" for version in range(1, newest + 1)]
