"""Repair: an archive with damaged newest commits continues from the last intact version, and no id is reused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import a2store
from archives import (
    assert_same_tables,
    chunks,
    commit_path,
    contents,
    copied,
    forge,
    grow,
    run_command,
    tables,
)

NEWEST = 5
"""Version ``n`` adds runs ``2n - 4`` and ``2n - 3``."""

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "torn": lambda data: data[: len(data) // 2],
    "flipped": lambda data: data[:50] + bytes([data[50] ^ 4]) + data[51:],
    "empty": lambda data: b"",
    "zeroed": lambda data: bytes(len(data)),
}
damages = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)


@pytest.fixture(scope="module")
def template(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(grow(tmp_path_factory.mktemp("template") / "games.a2", chunks(runs[:8], 2)).path)


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    return copied(template, tmp_path / "games.a2")


def spoil(path: Path, damage: Callable[[bytes], bytes]) -> bytes:
    """Damage a file; return its new content."""
    path.write_bytes(damage(path.read_bytes()))
    return path.read_bytes()


def run_ids(archive: a2store.Archive) -> list[int]:
    ids: list[int] = tables(archive)["runs"]["run_id"].to_pylist()
    return ids


@damages
def test_a_damaged_newest_commit(path: Path, runs: list[Path], damage: Callable[[bytes], bytes]) -> None:
    commit = commit_path(path, NEWEST)
    bad = spoil(commit, damage)
    before = contents(path)
    with pytest.raises(a2store.DamagedError) as caught:
        a2store.Archive.open(path)
    assert caught.value.path == commit
    assert re.search(r"version 4 can still be opened, and `repair`", str(caught.value))
    older = a2store.Archive.open(path, version=4)
    assert (older.version, older.num_runs) == (4, 6)
    expected = tables(older)
    assert a2store.verify(path, progress=False).problems

    planned = a2store.repair(path)
    assert (planned.version, planned.done) == (4, False)
    (step,) = planned.steps
    name = commit.relative_to(path).as_posix()
    assert step.path == name
    assert f"{name}.damaged" in step.action
    assert step.reason
    assert contents(path) == before

    done = a2store.repair(path, dry_run=False)
    assert (done.version, done.done) == (4, True)
    assert [(each.path, each.action, each.reason) for each in done.steps] == [(step.path, step.action, step.reason)]
    assert (path / f"{name}.damaged").read_bytes() == bad
    changed = {each for each, data in before.items() if contents(path).get(each) != data}
    assert changed == {name}
    archive = a2store.Archive.open(path)
    assert (archive.version, archive.num_runs) == (5, 6)
    assert_same_tables(tables(archive), expected)
    assert archive.history()[0].operation == "repair"
    report = archive.verify(progress=False)
    # The files of the lost version exist, but no commit references them.
    assert (report.problems, report.unnamed_files) == ([], 2)
    assert a2store.repair(path).steps == []
    assert a2store.repair(path, dry_run=False).done is False

    # The lost commit assigned the ids 6 and 7.
    report_again = archive.ingest(runs[:10], progress=False)
    assert (report_again.accepted, report_again.duplicates) == (4, 6)
    assert run_ids(archive) == [*range(6), 8, 9, 10, 11]
    assert archive.verify(progress=False).problems == []


@pytest.mark.parametrize("missing", [False, True])
def test_damage_before_intact_commits(path: Path, runs: list[Path], missing: bool) -> None:
    kept = {3: spoil(commit_path(path, 3), DAMAGES["flipped"])}
    if missing:
        commit_path(path, 3).unlink()
        kept = {}
    sound = {version: commit_path(path, version).read_bytes() for version in (4, 5)}
    for version in (None, 3, 4, 5):
        with pytest.raises(a2store.DamagedError) as caught:
            a2store.Archive.open(path, version=version)
        assert caught.value.path == commit_path(path, 3)
    # Later commits are not reported.
    assert {each.path for each in a2store.verify(path, progress=False).problems} == {f"_log/{3:020}.json"}
    planned = a2store.repair(path)
    assert planned.version == 2
    assert [step.path for step in planned.steps] == [f"_log/{version:020}.json" for version in (5, 4, 3)]
    a2store.repair(path, dry_run=False)
    archive = a2store.Archive.open(path)
    # Only the runs of the damaged commit are lost.
    assert (archive.version, archive.num_runs) == (3, 6)
    assert run_ids(archive) == [0, 1, 4, 5, 6, 7]
    for version, data in {**sound, **kept}.items():
        assert commit_path(path, version).with_suffix(".json.damaged").read_bytes() == data
    assert archive.verify(progress=False).problems == []
    assert archive.ingest(runs[:8], progress=False).accepted == 2
    assert run_ids(archive) == [0, 1, *range(4, 10)]


def test_all_commits_are_damaged(path: Path) -> None:
    for version in range(1, NEWEST + 1):
        spoil(commit_path(path, version), DAMAGES["torn"])
    before = contents(path)
    for dry_run in (True, False):
        with pytest.raises(a2store.DamagedError):
            a2store.repair(path, dry_run=dry_run)
    assert contents(path) == before


def test_a_version_damaged_twice(path: Path, runs: list[Path]) -> None:
    """The file that the first repair set aside stays, even if the same version is damaged again."""
    first = spoil(commit_path(path, NEWEST), DAMAGES["torn"])
    a2store.repair(path, dry_run=False)
    archive = a2store.Archive.open(path)
    archive.ingest(runs[8:10], progress=False)
    second = spoil(commit_path(path, NEWEST), DAMAGES["zeroed"])
    a2store.repair(path, dry_run=False)
    kept = [data for name, data in contents(path).items() if "damaged" in name]
    assert first in kept
    assert second in kept
    archive = a2store.Archive.open(path)
    archive.ingest(runs[:10], progress=False)
    ids = run_ids(archive)
    assert len(ids) == len(set(ids)) == 10
    assert archive.verify(progress=False).problems == []


def test_nothing_is_damaged(path: Path) -> None:
    before = contents(path)
    for dry_run in (True, False):
        report = a2store.repair(path, dry_run=dry_run)
        assert (report.version, report.steps, report.done) == (NEWEST, [], False)
    assert contents(path) == before


def test_no_archive_is_created_over_the_remains_of_one(path: Path, runs: list[Path]) -> None:
    for commit in path.glob("_log/*"):
        commit.unlink()
    with pytest.raises(a2store.DamagedError, match="no data files without a commit"):
        a2store.Archive.create(path)
    assert "no data files" in run_command("ingest", runs[20], path, status=1).stderr
    assert len(list(path.glob("steps/*.parquet"))) == NEWEST - 1


# Other folders, and the command


def test_a_newer_schema_is_not_damage(path: Path) -> None:
    forge(path, NEWEST, lambda fields: fields.update(schema_version=99, later="unknown"))
    before = contents(path)
    for work in (
        lambda: a2store.Archive.open(path),
        lambda: a2store.repair(path),
        lambda: a2store.repair(path, dry_run=False),
    ):
        with pytest.raises(a2store.ArchiveError) as caught:
            work()
        assert caught.value.kind == "schema_version"
        assert "99" in str(caught.value)
    assert contents(path) == before


def test_a_folder_without_an_archive(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        a2store.repair(tmp_path / "absent")
    (tmp_path / "plain").mkdir()
    for dry_run in (True, False):
        with pytest.raises(a2store.ArchiveError) as caught:
            a2store.repair(tmp_path / "plain", dry_run=dry_run)
        assert caught.value.kind == "not_an_archive"
    assert list((tmp_path / "plain").iterdir()) == []


def test_the_command(path: Path) -> None:
    assert run_command("repair", path).stdout == "nothing to repair: version 5 can be read\n"
    spoil(commit_path(path, NEWEST), DAMAGES["torn"])
    before = contents(path)
    error = run_command("info", path, status=1).stderr
    assert "version 4 can still be opened" in error
    text = run_command("repair", path).stdout
    assert f"_log/{NEWEST:020}.json: set aside as " in text
    assert "nothing was changed; with --yes the archive would continue from version 4" in text
    planned: dict[str, Any] = json.loads(run_command("repair", path, "--json").stdout)
    assert (planned["version"], planned["done"], len(planned["steps"])) == (4, False, 1)
    assert contents(path) == before
    assert run_command("repair", path, "--yes").stdout.endswith("done: the archive continues from version 4\n")
    assert json.loads(run_command("info", path, "--json").stdout)["version"] == 5
    assert json.loads(run_command("repair", path, "--yes", "--json").stdout) == {
        "version": 5,
        "steps": [],
        "done": False,
    }
    run_command("repair", path / "absent", status=2)
