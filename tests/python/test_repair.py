"""Repair: an archive with damaged newest commits continues from the last intact version, and no id is reused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import a2store
import oracle
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
@pytest.mark.parametrize("damage", ["torn", "flipped", "empty"])
def test_damage_to_checkpoints_and_digests(
    long_log: Path, tmp_path: Path, runs: list[Path], name: str, damage: str
) -> None:
    path = copied(long_log, tmp_path / "games.a2")
    file = path / "_log" / f"{name.partition('.')[0]:0>20}.{name.partition('.')[2]}"
    expected = tables(a2store.Archive.open(path))
    bad = spoil(file, DAMAGES[damage])
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


# Commits that a checkpoint covers


def lines(commit: a2store.CommitInfo) -> tuple[object, ...]:
    sizes = commit.added_runs, commit.added_steps, commit.num_runs, commit.num_steps, commit.next_run_id
    return commit.version, commit.time, commit.operation, commit.txn, *sizes


@pytest.fixture(scope="module")
def covered(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive with ingests, a compaction with a checkpoint at version 10, and more ingests."""
    archive = grow(tmp_path_factory.mktemp("covered") / "games.a2", [[run] for run in runs[:8]])
    archive.compact(progress=False)
    grow(Path(archive.path), [[run] for run in runs[8:15]])
    return Path(archive.path)


LOST: list[tuple[tuple[int, ...], str]] = [
    *((versions, "torn") for versions in [(1, 5), (4, 5), (12, 17)]),
    *((versions, "missing") for versions in [(1,), (9, 10)]),
    ((1, 10, 17), "foreign"),
]


@pytest.mark.parametrize(("versions", "how"), LOST, ids=str)
def test_commits_that_a_checkpoint_covers(
    covered: Path, runs: list[Path], tmp_path: Path, versions: tuple[int, ...], how: str
) -> None:
    path = copied(covered, tmp_path / "games.a2")
    archive = a2store.Archive.open(path)
    # Now there are checkpoints of version 10 and of version 17 or later.
    archive.ingest(runs[15:17], progress=False)
    archive.compact(progress=False)
    newest, expected = archive.version, tables(archive)
    kept = (1, 4, 5, 9, 10, 12, 17, newest)
    every = {version: tables(a2store.Archive.open(path, version=version)) for version in kept}
    sound = contents(path)
    other = grow(tmp_path / "other.a2", [[run] for run in runs[17:20]])
    for version in versions:
        commit = commit_path(path, version)
        if how == "torn":
            commit.write_bytes(commit.read_bytes()[:-30])
        elif how == "missing":
            commit.unlink()
        else:
            shutil.copy(commit_path(other.path, 3), commit)
    problems = a2store.verify(path, progress=False).problems
    assert {each.path for each in problems} == {f"_log/{version:020}.json" for version in versions}
    report = a2store.repair(path, dry_run=False)
    assert (report.version, report.done) == (newest, True)
    assert {step.path for step in report.steps} == {f"_log/{version:020}.json" for version in versions}
    assert a2store.verify(path, progress=False).problems == []
    assert a2store.repair(path).steps == []
    if 1 in versions:
        assert commit_path(path, 1).read_bytes() == sound[f"_log/{1:020}.json"]
    again = a2store.Archive.open(path)
    assert again.version == newest
    assert [lines(line) for line in again.history()] == [lines(line) for line in archive.history()]
    for version, table in every.items():
        found = tables(a2store.Archive.open(path, version=version))
        assert all(found[name].equals(table[name]) for name in table), version
    # No other file has changed, and the log is complete without any checkpoint.
    damaged = {f"_log/{version:020}.json" for version in versions}
    now = contents(path)
    assert {name: data for name, data in now.items() if ".damaged" not in name and name not in damaged} == {
        name: data for name, data in sound.items() if name not in damaged
    }
    for name in now:
        if ".checkpoint" in name or name.endswith(".digests"):
            (path / name).unlink()
    assert all(tables(a2store.Archive.open(path))[name].equals(expected[name]) for name in expected)
    assert a2store.Archive.open(path).ingest(runs[:20], progress=False).duplicates == 17
    assert a2store.verify(path, progress=False).problems == []


def test_a_checkpoint_keeps_what_expired(runs: list[Path], tmp_path: Path) -> None:
    archive = grow(tmp_path / "games.a2", [[run] for run in runs[:6]])
    archive.expire(older_than=0, grace=0)
    version = archive.version
    commit_path(archive.path, version).unlink()
    a2store.repair(archive.path, dry_run=False)
    with pytest.raises(a2store.VersionNotFoundError):
        a2store.Archive.open(archive.path, version=2)
    assert a2store.Archive.open(archive.path).num_runs == 6
    assert a2store.verify(archive.path, progress=False).problems == []


@pytest.mark.parametrize("version", [2, 4, 8])
def test_a_lost_commit_whose_files_have_expired(runs: list[Path], tmp_path: Path, version: int) -> None:
    archive = grow(tmp_path / "games.a2", [[run] for run in runs[:6]])
    archive.compact(progress=False)
    archive.ingest(runs[6], progress=False)
    history, expected = [lines(line) for line in archive.history()], tables(archive)
    archive.expire(older_than=0, grace=0)
    spoil(commit_path(archive.path, version), DAMAGES["torn"])
    name = commit_path(archive.path, version).relative_to(archive.path).as_posix()
    assert [each.path for each in a2store.verify(archive.path, progress=False).problems] == [name]
    assert [step.path for step in a2store.repair(archive.path, dry_run=False).steps] == [name]
    again = a2store.Archive.open(archive.path)
    assert again.verify(progress=False).problems == []
    assert a2store.repair(archive.path).steps == []
    # The log alone gives the same archive.
    for file in (archive.path / "_log").glob("*.checkpoint.json"):
        file.unlink()
    again = a2store.Archive.open(archive.path)
    assert [lines(line) for line in again.history()][1:] == history
    assert all(tables(again)[name].equals(expected[name]) for name in expected)
    assert again.verify(progress=False).problems == []


def test_the_first_and_the_newest_commit(runs: list[Path], tmp_path: Path) -> None:
    """Their checkpoint has everything that the archive needs."""
    archive = grow(tmp_path / "games.a2", [[run] for run in runs[:15]])
    expected = tables(archive)
    assert archive.version == 16
    for version in range(1, 17):
        commit_path(archive.path, version).write_bytes(b"")
    with pytest.raises(a2store.DamagedError):
        a2store.Archive.open(archive.path)
    a2store.repair(archive.path, dry_run=False)
    again = a2store.Archive.open(archive.path)
    assert all(tables(again)[name].equals(expected[name]) for name in expected)
    assert again.verify(progress=False).problems == []
    assert again.ingest(runs[:16], progress=False).accepted == 1


def test_digests_of_lost_runs(runs: list[Path], tmp_path: Path) -> None:
    """A run that is lost with its data file can be ingested again."""
    archive = grow(tmp_path / "games.a2", [[run] for run in runs[:17]])
    for table in ("runs", "steps"):
        Path(archive.files("runs" if table == "runs" else "steps")[2]).unlink()
    spoil(commit_path(archive.path, 18), DAMAGES["torn"])
    a2store.repair(archive.path, dry_run=False)
    again = a2store.Archive.open(archive.path)
    assert again.num_runs == 15
    assert again.ingest(runs[:17], progress=False).accepted == 2
    ids = tables(again)["runs"]["run_id"].to_pylist()
    assert len(set(ids)) == 17
    assert 2 not in ids


# Archives in states that a2store never produces


@pytest.fixture
def seventeen(eighteen_commits: Path, tmp_path: Path) -> a2store.Archive:
    return a2store.Archive.open(copied(eighteen_commits, tmp_path / "seventeen.a2"))


def test_a_lost_newest_commit_leaves_older_versions_readable(seventeen: a2store.Archive) -> None:
    version = int(min(seventeen.path.glob("_log/*.checkpoint.json")).name[:20])
    for later in range(version, seventeen.version + 1):
        commit_path(seventeen.path, later).unlink()
    with pytest.raises(a2store.DamagedError):
        a2store.Archive.open(seventeen.path)
    assert a2store.Archive.open(seventeen.path, version=3).num_runs == 2
    report = a2store.repair(seventeen.path, dry_run=False)
    # The checkpoint covers its commit. The later commits left no trace except their run ids.
    assert (report.version, report.done) == (version, True)
    again = a2store.Archive.open(seventeen.path)
    assert (again.version, again.num_runs) == (version + 1, version - 1)
    assert again.history()[0].next_run_id == seventeen.history()[0].next_run_id
    assert again.verify(progress=False).problems == []


def test_no_archive_is_created_over_the_remains_of_one(seventeen: a2store.Archive, runs: list[Path]) -> None:
    for path in seventeen.path.glob("_log/*"):
        path.unlink()
    with pytest.raises(a2store.DamagedError, match="no data files without a commit"):
        a2store.Archive.create(seventeen.path)
    done = run_command("ingest", runs[20], seventeen.path, status=1)
    assert "no data files" in done.stderr
    assert len(list(seventeen.path.glob("steps/*.parquet"))) == 17


@pytest.mark.parametrize("number", [0, 2**64 - 1, 100])
def test_a_stray_number_in_the_log(seventeen: a2store.Archive, number: int) -> None:
    commit_path(seventeen.path, number).touch()
    if number:
        with pytest.raises(a2store.DamagedError):
            a2store.Archive.open(seventeen.path)
    assert a2store.Archive.open(seventeen.path, version=seventeen.version).num_runs == 17
    assert a2store.verify(seventeen.path, progress=False).problems
    assert a2store.repair(seventeen.path, dry_run=False).version == seventeen.version
    again = a2store.Archive.open(seventeen.path)
    assert (again.num_runs, again.verify(progress=False).problems) == (17, [])


def test_ids_of_unreferenced_files_are_ignored(seventeen: a2store.Archive, runs: list[Path]) -> None:
    pq.write_table(pa.table({"run_id": pa.array([-1], pa.int32())}), seventeen.path / "steps" / "foreign.parquet")
    last = commit_path(seventeen.path, seventeen.version)
    last.write_bytes(last.read_bytes()[:-7])
    a2store.repair(seventeen.path, dry_run=False)
    again = a2store.Archive.open(seventeen.path)
    assert again.ingest(runs[:24], progress=False).accepted == 24 - 16
    assert again.history()[0].next_run_id == 17 + 8


def test_an_impossible_next_run_id_is_damage(seventeen: a2store.Archive) -> None:
    last = commit_path(seventeen.path, seventeen.version)
    text = re.sub(r'"next_run_id":\d+', f'"next_run_id":{2**63}', last.read_text())
    body = text[: text.rindex(',"crc32c"')]
    last.write_text(f'{body},"crc32c":"{oracle.crc32c(body.encode()):08x}"}}\n')
    with pytest.raises(a2store.DamagedError, match="next_run_id: expected at most 4294967296"):
        a2store.Archive.open(seventeen.path)


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
