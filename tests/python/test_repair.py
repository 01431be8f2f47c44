"""Repair: an archive with damaged newest commits continues from the last intact version, and no id is reused."""

from __future__ import annotations

import json
import re
import shutil
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
    names,
    run_command,
    short_runs,
    tables,
)

NEWEST = 5
"""Version ``n`` adds runs ``2n - 4`` and ``2n - 3``."""

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "torn": lambda data: data[: len(data) // 2],
    "one byte short": lambda data: data[:-1],
    "flipped": lambda data: data[:50] + bytes([data[50] ^ 4]) + data[51:],
    "empty": lambda data: b"",
    "zeroed": lambda data: bytes(len(data)),
    "a zeroed block": lambda data: data[:100] + bytes(64) + data[164:],
    "doubled": lambda data: data + data,
    "no text": lambda data: b"\xff\xfe" * 200,
}
damages = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return short_runs(tmp_path_factory.mktemp("short") / "runs", 40)


@pytest.fixture(scope="module")
def template(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(grow(tmp_path_factory.mktemp("template") / "games.a2", chunks(runs[:8], 2)).path)


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    return copied(template, tmp_path / "games.a2")


@pytest.fixture(scope="module")
def long_log(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with a checkpoint and digests at version 16, and a checkpoint at version 18, a compaction."""
    archive = grow(tmp_path_factory.mktemp("log") / "games.a2", [[run] for run in runs[:16]])
    archive.compact(progress=False)
    shortcuts = {name for name in names(archive.path) if name.count(".") == 2 or name.endswith(".digests")}
    assert shortcuts == {
        f"_log/{version:020}.{suffix}"
        for version, suffix in [(16, "checkpoint.json"), (16, "digests"), (18, "checkpoint.json")]
    }
    return Path(archive.path)


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
    report = archive.verify(deep=True, progress=False)
    # The files of the lost version exist, but no commit references them.
    assert (report.problems, report.unnamed_files) == ([], 2)
    assert a2store.repair(path).steps == []
    assert a2store.repair(path, dry_run=False).done is False

    # The lost commit assigned the ids 6 and 7.
    report_again = archive.ingest(runs[:10], progress=False)
    assert (report_again.accepted, report_again.duplicates) == (4, 6)
    assert run_ids(archive) == [*range(6), 8, 9, 10, 11]
    assert archive.verify(deep=True, progress=False).problems == []


def test_two_damaged_commits(path: Path, runs: list[Path]) -> None:
    bad = {version: spoil(commit_path(path, version), DAMAGES["torn"]) for version in (4, 5)}
    with pytest.raises(a2store.DamagedError):
        a2store.Archive.open(path)
    for version in (4, 5):
        with pytest.raises(a2store.DamagedError):
            a2store.Archive.open(path, version=version)
    expected = tables(a2store.Archive.open(path, version=3))
    planned = a2store.repair(path)
    assert planned.version == 3
    assert [step.path for step in planned.steps] == [f"_log/{version:020}.json" for version in (5, 4)]
    a2store.repair(path, dry_run=False)
    archive = a2store.Archive.open(path)
    assert (archive.version, archive.num_runs) == (4, 4)
    assert_same_tables(tables(archive), expected)
    for version, data in bad.items():
        assert commit_path(path, version).with_suffix(".json.damaged").read_bytes() == data
    assert not commit_path(path, 5).exists()
    assert archive.verify(progress=False).problems == []
    archive.ingest(runs[:8], progress=False)
    assert run_ids(archive) == [0, 1, 2, 3, 8, 9, 10, 11]


def test_damage_before_intact_commits(path: Path, runs: list[Path]) -> None:
    bad = spoil(commit_path(path, 3), DAMAGES["flipped"])
    sound = {version: commit_path(path, version).read_bytes() for version in (4, 5)}
    for version in (None, 3, 4, 5):
        with pytest.raises(a2store.DamagedError) as caught:
            a2store.Archive.open(path, version=version)
        assert caught.value.path == commit_path(path, 3)
    planned = a2store.repair(path)
    assert planned.version == 2
    assert [step.path for step in planned.steps] == [f"_log/{version:020}.json" for version in (5, 4, 3)]
    a2store.repair(path, dry_run=False)
    archive = a2store.Archive.open(path)
    # Only the runs of the damaged commit are lost.
    assert (archive.version, archive.num_runs) == (3, 6)
    assert run_ids(archive) == [0, 1, 4, 5, 6, 7]
    for version, data in {**sound, 3: bad}.items():
        assert commit_path(path, version).with_suffix(".json.damaged").read_bytes() == data
    assert archive.verify(deep=True, progress=False).problems == []
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


def test_a_missing_commit_in_the_middle(path: Path, runs: list[Path]) -> None:
    commit_path(path, 3).unlink()
    with pytest.raises(a2store.DamagedError):
        a2store.Archive.open(path)
    assert a2store.repair(path).version == 2
    a2store.repair(path, dry_run=False)
    archive = a2store.Archive.open(path)
    assert archive.num_runs == 6
    assert archive.verify(progress=False).problems == []
    archive.ingest(runs[:4], progress=False)
    assert run_ids(archive) == [0, 1, *range(4, 10)]


def test_a_commit_from_another_history(path: Path, tmp_path: Path, runs: list[Path]) -> None:
    other = grow(tmp_path / "other.a2", chunks(runs[10:18], 2))
    shutil.copy(commit_path(other.path, NEWEST), commit_path(path, NEWEST))
    with pytest.raises(a2store.DamagedError, match="version 4 can still be opened"):
        a2store.Archive.open(path)
    a2store.repair(path, dry_run=False)
    assert a2store.Archive.open(path).num_runs == 6


@pytest.mark.parametrize("linked", [[5], [5, 4]])
@pytest.mark.parametrize("removed", [False, True])
def test_interrupted_and_repeated(path: Path, runs: list[Path], linked: list[int], removed: bool) -> None:
    """Damaged commits get a second name first. Then the first name is removed, or replaced if no intact one follows."""
    bad = {version: spoil(commit_path(path, version), DAMAGES["torn"]) for version in (4, 5)}
    for version in linked:
        commit = commit_path(path, version)
        commit.with_suffix(".json.damaged").hardlink_to(commit)
        if version == 5 and removed:
            commit.unlink()
    assert a2store.repair(path).version == 3
    a2store.repair(path, dry_run=False)
    kept = [data for name, data in contents(path).items() if "damaged" in name]
    assert all(data in kept for data in bad.values())
    archive = a2store.Archive.open(path)
    assert (archive.version, archive.num_runs) == (4, 4)
    assert archive.verify(progress=False).problems == []
    archive.ingest(runs[:8], progress=False)
    assert run_ids(archive) == [0, 1, 2, 3, 8, 9, 10, 11]


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
    assert archive.verify(deep=True, progress=False).problems == []


def test_files_of_lost_commits_stay_as_long_as_the_damaged_commits(path: Path, runs: list[Path]) -> None:
    spoil(commit_path(path, NEWEST), DAMAGES["torn"])
    a2store.repair(path, dry_run=False)
    archive = a2store.Archive.open(path)
    assert archive.expire(older_than=10**9, grace=0).num_files == 0
    commit_path(path, NEWEST).with_suffix(".json.damaged").unlink()
    assert archive.expire(older_than=10**9).num_files == 0
    assert archive.expire(older_than=10**9, grace=0).num_files == 2
    archive.ingest(runs[:8], progress=False)
    # The ids 6 and 7 stay unused, although no file records them any more.
    assert run_ids(archive) == [*range(6), 8, 9]


def test_nothing_is_damaged(path: Path, long_log: Path) -> None:
    for each in (path, long_log):
        before = contents(each)
        for dry_run in (True, False):
            report = a2store.repair(each, dry_run=dry_run)
            assert (report.steps, report.done) == ([], False)
            assert report.version == a2store.Archive.open(each).version
        assert contents(each) == before


@pytest.mark.parametrize("name", ["16.checkpoint.json", "16.digests", "18.checkpoint.json"])
@damages
def test_damage_to_checkpoints_and_digests(
    long_log: Path, tmp_path: Path, runs: list[Path], name: str, damage: Callable[[bytes], bytes]
) -> None:
    path = copied(long_log, tmp_path / "games.a2")
    file = path / "_log" / f"{name.partition('.')[0]:0>20}.{name.partition('.')[2]}"
    expected = tables(a2store.Archive.open(path))
    bad = spoil(file, damage)
    # This file is only a shortcut for reading.
    archive = a2store.Archive.open(path)
    assert_same_tables(tables(archive), expected)
    assert len(archive.history()) == archive.version == 18
    relative = file.relative_to(path).as_posix()
    (problem,) = archive.verify(progress=False).problems
    assert problem.path == relative
    report = a2store.repair(path, dry_run=False)
    assert (report.version, [step.path for step in report.steps], report.done) == (18, [relative], True)
    assert (path / f"{relative}.damaged").read_bytes() == bad
    assert not file.exists()
    archive = a2store.Archive.open(path)
    assert archive.version == 18
    assert archive.verify(progress=False).problems == []
    assert archive.ingest(runs[:20], progress=False).accepted == 4
    assert run_ids(archive) == list(range(20))


def test_a_damaged_commit_and_its_checkpoint(long_log: Path, tmp_path: Path, runs: list[Path]) -> None:
    path = copied(long_log, tmp_path / "games.a2")
    spoil(commit_path(path, 18), DAMAGES["torn"])
    with pytest.raises(a2store.DamagedError, match="version 17 can still be opened"):
        a2store.Archive.open(path)
    report = a2store.repair(path, dry_run=False)
    # The commit was a compaction, and its checkpoint has everything.
    assert (report.version, [step.path for step in report.steps]) == (18, [f"_log/{18:020}.json"])
    assert "rebuilt from the checkpoint of version 18" in report.steps[0].action
    archive = a2store.Archive.open(path)
    assert (archive.version, archive.num_runs, len(archive.files())) == (18, 16, 1)
    assert archive.verify(progress=False).problems == []
    assert archive.ingest(runs[:20], progress=False).accepted == 4


def test_after_versions_have_expired(long_log: Path, tmp_path: Path, runs: list[Path]) -> None:
    path = copied(long_log, tmp_path / "games.a2")
    archive = a2store.Archive.open(path)
    archive.expire(older_than=0, grace=0)
    archive.ingest(runs[16:18], progress=False)
    assert archive.version == 20
    spoil(commit_path(path, 20), DAMAGES["flipped"])
    a2store.repair(path, dry_run=False)
    archive = a2store.Archive.open(path)
    assert (archive.version, archive.num_runs, len(archive.history())) == (20, 16, 20)
    assert archive.verify(progress=False).problems == []
    archive.ingest(runs[:20], progress=False)
    assert run_ids(archive) == [*range(16), *range(18, 22)]
    with pytest.raises(a2store.VersionNotFoundError):
        a2store.Archive.open(path, version=17)


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
    assert run_command("repair", path, "--dry-run").stdout == text
    run_command("repair", path, "--dry-run", "--yes", status=2)
    assert contents(path) == before
    assert run_command("repair", path, "--yes").stdout.endswith("done: the archive continues from version 4\n")
    assert json.loads(run_command("info", path, "--json").stdout)["version"] == 5
    assert json.loads(run_command("repair", path, "--yes", "--json").stdout) == {
        "version": 5,
        "steps": [],
        "done": False,
    }
    run_command("repair", path / "absent", status=2)
