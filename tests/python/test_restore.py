"""Restoring: an archive continues from an older version, nothing that was committed is lost, and no id is reused."""

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
    contents,
    copied,
    found,
    grow,
    manifest_name,
    manifest_path,
    run_command,
    tables,
    versions_in,
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


def spoil(path: Path, damage: Callable[[bytes], bytes]) -> None:
    path.write_bytes(damage(path.read_bytes()))


def run_ids(archive: a2store.Archive) -> list[int]:
    ids: list[int] = tables(archive)["runs"]["run_id"].to_pylist()
    return ids


@damages
def test_a_damaged_newest_manifest(path: Path, runs: list[Path], damage: Callable[[bytes], bytes]) -> None:
    expected = tables(a2store.Archive.open(path))
    manifest = manifest_path(path, NEWEST)
    spoil(manifest, damage)
    before = contents(path)
    with pytest.raises(a2store.DamagedError) as caught:
        a2store.Archive.open(path)
    assert caught.value.path == manifest
    assert re.search(r"version 4 can still be opened, and `restore` continues from it", str(caught.value))
    assert a2store.Archive.open(path, version=4).num_runs == 6
    with pytest.raises(a2store.DamagedError):
        a2store.Archive.open(path, version=4).ingest(runs[8], progress=False)
    assert {name for name, _, _ in found(path)} == {manifest_name(NEWEST)}

    planned = a2store.restore(path, dry_run=True)
    assert (planned.version, planned.new_version, planned.adopted_runs, planned.done) == (4, 6, 2, False)
    assert (sorted(planned.adopted), planned.damaged) == (unlisted(before, path, 4), [manifest_name(NEWEST)])
    assert contents(path) == before

    done = a2store.restore(path)
    assert (done.version, done.new_version, done.adopted, done.damaged, done.done) == (
        4, 6, planned.adopted, planned.damaged, True,
    )  # fmt: skip
    archive = a2store.Archive.open(path)
    assert (archive.version, versions_in(path)) == (6, [6, 4, 3, 2, 1])
    assert_same_tables(tables(archive), expected)
    line = archive.history()[0]
    assert (line.operation, line.added_runs, line.added_files, line.next_run_id) == ("restore", 2, 2, 8)
    report = archive.verify(progress=False)
    assert (report.problems, report.num_versions, report.unnamed_files) == ([], 5, 0)
    after = contents(path)
    for again in (a2store.restore(path, dry_run=True), a2store.restore(path)):
        assert (again.version, again.new_version, again.done) == (6, None, False)
    assert contents(path) == after
    again_ingested = archive.ingest(runs[:10], progress=False)
    assert (again_ingested.accepted, again_ingested.duplicates) == (2, 8)
    assert run_ids(archive) == [*range(10)]


def unlisted(files: dict[str, bytes], path: Path, version: int) -> list[str]:
    """Return the data files that a version does not have."""
    archive = a2store.Archive.open(path, version=version)
    listed = {Path(file).relative_to(path).as_posix() for table in ("runs", "steps") for file in archive.files(table)}
    return sorted(name for name in files if name.endswith(".parquet") and name not in listed)


def test_several_damaged_manifests(path: Path) -> None:
    expected = tables(a2store.Archive.open(path))
    for version in (3, 4, 5):
        spoil(manifest_path(path, version), DAMAGES["torn"])
    report = a2store.restore(path)
    assert (report.version, report.new_version, report.adopted_runs) == (2, 6, 6)
    archive = a2store.Archive.open(path)
    assert_same_tables(tables(archive), expected)
    assert versions_in(path) == [6, 2, 1]
    assert archive.verify(progress=False).problems == []
    with pytest.raises(a2store.DamagedError, match="no file"):
        a2store.Archive.open(path, version=4)


def test_everything_since_a_tagged_version(runs: list[Path], tmp_path: Path) -> None:
    """The files of the versions between have expired, and the runs of a merged file have their steps in other files."""
    archive = grow(tmp_path / "games.a2", [[run] for run in runs[:20]])
    expected = tables(archive)
    archive.tag("first", version=2)
    archive.expire(older_than=0, grace=0)
    last = archive.version
    for version in (last - 1, last):
        manifest_path(archive.path, version).write_bytes(b"{}")
    report = a2store.restore(archive.path)
    assert (report.version, report.new_version, report.adopted_runs) == (2, last + 1, 19)
    archive = a2store.Archive.open(archive.path)
    assert_same_tables(tables(archive), expected)
    assert archive.verify(progress=False).problems == []


def test_a_lost_newest_manifest(path: Path, runs: list[Path]) -> None:
    """It leaves no trace but its data files. No id is given twice, and no view goes back to the version before."""
    view = a2store.Archive.open(path)
    expected = tables(view)
    manifest_path(path, NEWEST).unlink()
    for work in (view.refresh, lambda: view.ingest(runs[8], progress=False), view.compact):
        with pytest.raises(a2store.DamagedError, match="expected version 5, read before, found version 4") as caught:
            work()
        assert caught.value.path == manifest_path(path, NEWEST)
    lost = copied(path, path.with_name("lost.a2"))
    archive = a2store.Archive.open(path)
    assert (archive.version, archive.ingest(runs[8:10], progress=False).accepted) == (4, 2)
    assert run_ids(archive) == [*range(6), 8, 9]
    assert a2store.restore(path).adopted_runs == 2
    archive.refresh()
    assert run_ids(archive) == [*range(10)]
    assert archive.verify(progress=False).problems == []
    assert (a2store.restore(lost).new_version, a2store.restore(lost).new_version) == (5, None)
    assert_same_tables(tables(a2store.Archive.open(lost)), expected)


def test_a_damaged_manifest_of_an_older_version(path: Path) -> None:
    spoil(manifest_path(path, 3), DAMAGES["flipped"])
    archive = a2store.Archive.open(path)
    assert archive.num_runs == 8
    for work in (lambda: a2store.Archive.open(path, version=3), archive.history):
        with pytest.raises(a2store.DamagedError, check=lambda error: error.path == manifest_path(path, 3)):
            work()
    with pytest.raises(a2store.DamagedError):
        a2store.restore(path, version=3)
    before = contents(path)
    assert a2store.restore(path).done is False
    assert contents(path) == before
    assert {name for name, _, _ in found(path)} == {manifest_name(3)}
    # It goes with its version.
    archive.expire(older_than=0)
    assert archive.verify(progress=False).problems == []


def test_an_older_version(path: Path, runs: list[Path]) -> None:
    newest = a2store.Archive.open(path)
    whole, early = tables(newest), tables(a2store.Archive.open(path, version=3))
    report = newest.restore(version=3)
    assert (report.version, report.new_version, report.adopted) == (3, 6, [])
    assert newest.version == 6
    assert_same_tables(tables(newest), early)
    line = newest.history()[0]
    assert (line.added_runs, line.added_files, line.removed_files) == (0, 0, 4)
    assert newest.restore(version=3).new_version is None
    # The runs of the versions that were left can be ingested again, under new ids.
    assert newest.ingest(runs[:6], progress=False).accepted == 2
    assert run_ids(newest) == [0, 1, 2, 3, 8, 9]
    newest.restore(version=5)
    assert_same_tables(tables(newest), whole)
    assert newest.verify(progress=False).problems == []
    newest.expire(older_than=0, grace=0)
    assert_same_tables(tables(a2store.Archive.open(path)), whole)
    with pytest.raises(a2store.VersionNotFoundError):
        newest.restore(version=3)


@pytest.mark.parametrize("left", ["without steps", "without runs", "torn", "of another archive", "known runs"])
def test_files_that_are_not_adopted(path: Path, runs: list[Path], tmp_path: Path, left: str) -> None:
    other = a2store.Archive.open(copied(path, tmp_path / "other.a2"))
    if left == "of another archive":
        other = a2store.Archive.create(tmp_path / "new.a2")
    other.ingest(runs[4:6] if left == "known runs" else runs[8:10], progress=False)
    if left == "known runs":
        other.compact(progress=False)
    before = contents(path)
    added = [name for name in contents(other.path) if name.endswith(".parquet") and name not in before]
    assert len(added) == 2
    for name in added:
        shutil.copy(other.path / name, path / name)
    if left.startswith("without"):
        (path / next(name for name in added if name.startswith(left.split()[1]))).unlink()
    elif left == "torn":
        name = next(name for name in added if name.startswith("steps"))
        data = (path / name).read_bytes()
        (path / name).write_bytes(data[:200] + bytes(20) + data[220:])
    report = a2store.restore(path)
    assert (report.new_version, report.adopted, report.done) == (None, [], False)
    archive = a2store.Archive.open(path)
    assert (archive.version, archive.num_runs) == (5, 8)


def test_runs_of_an_interrupted_ingest_are_adopted_once(path: Path, runs: list[Path], tmp_path: Path) -> None:
    """Two writers wrote the same runs, and neither committed."""
    for name in ("a", "b"):
        other = a2store.Archive.open(copied(path, tmp_path / name))
        other.ingest(runs[8:10], progress=False)
        for table in ("runs", "steps"):
            shutil.copy(other.files(table)[-1], path / table)
    report = a2store.restore(path)
    assert (report.adopted_runs, len(report.adopted)) == (2, 2)
    archive = a2store.Archive.open(path)
    assert (archive.num_runs, archive.verify(progress=False).problems) == (10, [])


def test_a_lost_expiry(path: Path) -> None:
    archive = a2store.Archive.open(path)
    archive.expire(older_than=0)
    spoil(manifest_path(path, archive.version), DAMAGES["torn"])
    assert a2store.restore(path).new_version == 7
    assert a2store.Archive.open(path).verify(progress=False).problems == []
    with pytest.raises(a2store.VersionNotFoundError, match=re.escape("5..=7")):
        a2store.Archive.open(path, version=2)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_tags_do_not_disturb_a_restore(path: Path, is_damaged: bool) -> None:
    archive = a2store.Archive.open(path)
    archive.tag("good")
    archive.expire(older_than=0)
    if is_damaged:
        (path / "_tags" / "good.json").write_text("{")
    spoil(manifest_path(path, archive.version), DAMAGES["torn"])
    a2store.restore(path)
    restored = a2store.Archive.open(path)
    assert (restored.version, restored.num_runs) == (7, 8)
    if not is_damaged:
        restored.tag("again", version=5)
        assert restored.verify(progress=False).problems == []


def test_annotations_that_a_lost_version_dropped(path: Path) -> None:
    """An `expire` was interrupted after it removed their file. A restore continues without them, and names the file."""
    archive = a2store.Archive.open(path)
    archive.annotate("model", archive.sql("SELECT run_id, step_index FROM steps"), progress=False)
    kept = contents(path)
    archive.drop_annotations("model")
    archive.expire(older_than=0)
    for name in kept.keys() - contents(path).keys():
        if name.startswith("_versions"):
            (path / name).write_bytes(kept[name])
    for version in (archive.version, archive.version - 1):
        spoil(manifest_path(path, version), DAMAGES["torn"])
    lost = [name for name in kept if name.startswith("annotations")]
    text = run_command("restore", path, "--dry-run").stdout
    assert f"{lost[0]}: gone or truncated, so the new version does not have these annotations\n" in text
    report = a2store.restore(path)
    assert (report.version, report.new_version, report.lost, report.adopted) == (6, 9, lost, [])
    archive = a2store.Archive.open(path)
    assert (archive.annotations(), archive.num_runs, archive.verify(progress=False).problems) == ([], 8, [])
    assert (a2store.restore(path).new_version, a2store.restore(path).lost) == (None, [])


def test_a_manifest_under_the_name_of_another(path: Path) -> None:
    manifest_path(path, 4).rename(manifest_path(path, 5))
    with pytest.raises(a2store.DamagedError, match="version: expected 5, found 4"):
        a2store.Archive.open(path)
    report = a2store.restore(path)
    assert (report.version, report.new_version, report.adopted_runs) == (3, 6, 4)


def test_all_manifests_are_damaged(path: Path) -> None:
    for version in range(1, NEWEST + 1):
        spoil(manifest_path(path, version), DAMAGES["torn"])
    before = contents(path)
    for dry_run in (True, False):
        with pytest.raises(a2store.DamagedError, check=lambda error: error.path == manifest_path(path, NEWEST)):
            a2store.restore(path, dry_run=dry_run)
    assert contents(path) == before


def test_no_archive_is_created_over_the_remains_of_one(path: Path, runs: list[Path]) -> None:
    for manifest in path.glob("_versions/*"):
        manifest.unlink()
    with pytest.raises(a2store.DamagedError, match="no data files without a manifest"):
        a2store.Archive.create(path)
    assert "no data files" in run_command("ingest", runs[20], path, status=1).stderr
    assert len(list(path.glob("*/*.parquet"))) == 2 * (NEWEST - 1)


def test_the_command(path: Path) -> None:
    assert "nothing to restore: version 5 is the newest and has all of its files" in run_command("restore", path).stdout
    spoil(manifest_path(path, NEWEST), DAMAGES["torn"])
    before = contents(path)
    error = run_command("info", path, status=1).stderr
    assert "version 4 can still be opened" in error
    text = run_command("restore", path, "--dry-run").stdout
    assert f"{manifest_name(NEWEST)}: would be removed, because it is damaged\n" in text
    assert text.endswith(
        "nothing was changed; without --dry-run, version 6 would continue from version 4, and adopt 2 runs\n"
    )
    planned: dict[str, Any] = json.loads(run_command("restore", path, "--dry-run", "--json").stdout)
    assert (planned["version"], planned["new_version"], planned["done"]) == (4, 6, False)
    assert contents(path) == before
    assert run_command("restore", path).stdout.endswith("version 6 continues from version 4, and adopts 2 runs\n")
    assert json.loads(run_command("info", path, "--json").stdout)["version"] == 6
    assert json.loads(run_command("restore", path, "--json").stdout) == {
        "version": 6, "new_version": None, "adopted_runs": 0, "adopted": [], "lost": [], "damaged": [], "done": False,
    }  # fmt: skip
    assert "version 7 continues from version 2" in run_command("restore", path, "--version", 2).stdout
    run_command("restore", path, "--version", 20, status=2)
