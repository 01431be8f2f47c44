"""Tags: names for versions, which expiry keeps."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import a2store
from archives import assert_same_tables, chunks, found, grow, ingested, names, run_command, tables, versions_in

NOW: dict[str, Any] = {"older_than": 0, "grace": 0}


@pytest.fixture(scope="module")
def template(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive whose versions 2 to 5 add two runs each, and whose version 6 is compacted."""
    archive = grow(tmp_path_factory.mktemp("template") / "games.a2", chunks(runs[:8], 2))
    archive.compact(progress=False)
    return Path(archive.path)


def test_a_tagged_version_never_expires(fresh: a2store.Archive, runs: list[Path]) -> None:
    expected = {version: tables(a2store.open(fresh.path, version=version)) for version in (3, 5)}
    fresh.tag("baseline-3", 3)
    fresh.tag("Second.try_1", version=5)
    assert fresh.tags() == {"Second.try_1": 5, "baseline-3": 3}
    planned = fresh.expire(older_than=0, grace=0, dry_run=True)
    report = fresh.expire(older_than=0, grace=0)
    assert planned == report
    assert (report.first_version, report.num_versions, report.tags) == (6, 3, ["Second.try_1", "baseline-3"])
    assert versions_in(fresh.path) == [7, 6, 5, 3]
    fresh.ingest(runs[8], progress=False)
    for name, version in fresh.tags().items():
        for opened in (a2store.open(fresh.path, version=name), a2store.open(fresh.path, version=version)):
            assert opened.version == version
            assert_same_tables(tables(opened), expected[version])
    for version in (1, 2, 4):
        with pytest.raises(a2store.VersionNotFoundError, match=re.escape("6..=8")):
            a2store.open(fresh.path, version=version)
    assert [line.version for line in fresh.history()] == [8, 7, 6, 5, 3]
    verified = fresh.verify(progress=False)
    assert (verified.problems, verified.num_versions, verified.unnamed_files) == ([], 5, 0)

    fresh.tag("again", version=3)
    fresh.untag("baseline-3")
    assert fresh.expire(older_than=10**9, grace=0).tags == ["Second.try_1", "again"]
    assert versions_in(fresh.path) == [8, 7, 6, 5, 3]
    fresh.untag("again")
    report = fresh.expire(older_than=10**9, grace=0)
    assert (report.num_versions, report.tags) == (1, ["Second.try_1"])
    assert versions_in(fresh.path) == [9, 8, 7, 6, 5]
    with pytest.raises(a2store.VersionNotFoundError):
        a2store.open(fresh.path, version=3)
    assert_same_tables(tables(a2store.open(fresh.path, version="Second.try_1")), expected[5])
    assert fresh.verify(progress=False).problems == []


def test_the_version_of_a_view(fresh: a2store.Archive) -> None:
    early = a2store.open(fresh.path, version=2)
    early.tag("early")
    fresh.tag("now")
    assert fresh.tags() == early.tags() == {"early": 2, "now": 6}
    # The same name for the same version is no error.
    early.tag("early")
    with pytest.raises(ValueError, match="name: expected a new name, found early, the tag of version 2"):
        fresh.tag("early")
    fresh.untag("early")
    fresh.tag("early")
    assert fresh.tags() == {"early": 6, "now": 6}


@pytest.mark.parametrize("name", ["", ".", ".hidden", "17", "a/b", "a b", "ü", "a" * 101, "../x", "a\n"])
def test_names(fresh: a2store.Archive, name: str) -> None:
    before = names(fresh.path)
    with pytest.raises(ValueError, match="name: expected 1 to 100 letters, digits"):
        fresh.tag(name)
    assert names(fresh.path) == before
    for name in ("a", "a" * 100, "1.0", "-", "v1_2-rc.3", "_"):
        fresh.tag(name)
        assert a2store.open(fresh.path, version=name).version == 6


def test_unknown_tags_and_versions(fresh: a2store.Archive, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="version: expected a tag of the archive, which has none, found nightly"):
        a2store.open(fresh.path, version="nightly")
    fresh.tag("weekly")
    for work in (
        lambda: a2store.open(fresh.path, version="nightly"),
        lambda: fresh.restore(version="nightly"),
        lambda: a2store.open(fresh.path, version="../weekly"),
    ):
        with pytest.raises(ValueError, match="version: expected weekly, found "):
            work()
    with pytest.raises(ValueError, match="name: expected weekly, found nightly"):
        fresh.untag("nightly")
    with pytest.raises(a2store.VersionNotFoundError):
        fresh.tag("later", version=7)
    fresh.expire(**NOW)
    with pytest.raises(a2store.VersionNotFoundError):
        fresh.tag("earlier", version=2)
    assert fresh.tags() == {"weekly": 6}
    with pytest.raises(FileNotFoundError):
        a2store.open(tmp_path / "absent", version="weekly")
    with pytest.raises(ValueError, match="version: expected no version"):
        a2store.open(tmp_path / "new.a2", version="weekly", create=True)
    with pytest.raises(TypeError):
        a2store.open(fresh.path, version=1.5)  # type: ignore[arg-type]


def test_a_damaged_tag(fresh: a2store.Archive) -> None:
    fresh.tag("first", version=2)
    path = fresh.path / "_tags" / "first.json"
    path.write_bytes(b"{")
    for work in (fresh.tags, lambda: a2store.open(fresh.path, version="first"), lambda: fresh.expire(**NOW)):
        with pytest.raises(a2store.DamagedError, match=r"number of a version.*--remove first") as caught:
            work()
        assert caught.value.path == path
    assert ("_tags/first.json", None, "tag") in found(fresh.path)
    # Without the tag, its version may expire.
    fresh.untag("first")
    assert fresh.expire(**NOW).num_versions == 5


def test_no_archive_is_created_among_tags(fresh: a2store.Archive) -> None:
    fresh.tag("old")
    for folder in ("_versions", "runs", "steps"):
        for path in (fresh.path / folder).iterdir():
            path.unlink()
    with pytest.raises(a2store.DamagedError, match="expected no tags without a manifest, found the tag old"):
        a2store.Archive.create(fresh.path)


def test_restoring_a_tagged_version(fresh: a2store.Archive) -> None:
    expected = tables(a2store.open(fresh.path, version=3))
    fresh.tag("good", version=3)
    fresh.expire(**NOW)
    report = fresh.restore(version="good")
    assert (report.version, report.new_version, fresh.version) == (3, 8, 8)
    assert_same_tables(tables(fresh), expected)
    assert fresh.verify(progress=False).problems == []


def test_on_an_object_store(url: str, run_files: list[Path]) -> None:
    archive = ingested(url, run_files[:2])
    archive.tag("two")
    archive.ingest(run_files[2:3], progress=False)
    archive.compact(progress=False)
    assert archive.expire(**NOW).tags == ["two"]
    assert a2store.open(url, version="two").sql("SELECT * FROM runs").count() == 2
    assert archive.verify(progress=False).problems == []
    archive.untag("two")
    archive.expire(**NOW)
    with pytest.raises(ValueError, match="version: expected a tag of the archive, which has none"):
        a2store.open(url, version="two")
    assert archive.tags() == {}


def test_the_command(fresh: a2store.Archive) -> None:
    assert run_command("tag", fresh.path).stdout == ""
    assert run_command("tag", fresh.path, "baseline").stdout == "      6  baseline\n"
    text = run_command("tag", fresh.path, "early", "--version", 2).stdout
    assert text == "      6  baseline\n      2  early\n"
    assert json.loads(run_command("tag", fresh.path, "--json").stdout) == {"baseline": 6, "early": 2}
    assert json.loads(run_command("info", fresh.path, "--version", "early", "--json").stdout)["version"] == 2
    text = run_command("expire", fresh.path, "--older-than", "0s").stdout
    assert "tags keep older versions: early\n" in text
    assert "expected a new name, found early" in run_command("tag", fresh.path, "early", status=2).stderr
    assert run_command("tag", fresh.path, "--remove", "early").stdout == "      6  baseline\n"
    assert "expected baseline, found early" in run_command("tag", fresh.path, "--remove", "early", status=2).stderr
    run_command("tag", fresh.path, "a", "--remove", "b", status=2)
    run_command("tag", fresh.path, "--version", 2, status=2)
