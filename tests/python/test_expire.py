"""Expiry removes old versions and the files that no kept version references, and keeps everything else."""

from __future__ import annotations

import os
import random
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import a2store
from archives import (
    Tables,
    assert_same_tables,
    chunks,
    contents,
    forge,
    grow,
    manifest_name,
    names,
    run_command,
    tables,
)
from faults.checks import LONG

NOW: dict[str, Any] = {"older_than": 0, "grace": 0}
DAY = 24 * 60 * 60
SEEDS, ROUNDS = (12, 25) if LONG else (1, 15)


@pytest.fixture(scope="module")
def template(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive whose versions 2 to 7 add runs, version 8 compacts them, and version 9 adds another."""
    archive = grow(tmp_path_factory.mktemp("template") / "games.a2", chunks(runs[:12], 2))
    archive.compact(progress=False)
    archive.ingest(runs[12], progress=False)
    assert archive.version == 9
    return Path(archive.path)


def contents_of_versions(archive: a2store.Archive, first: int) -> dict[int, Tables]:
    versions = range(first, archive.version + 1)
    return {version: tables(a2store.Archive.open(archive.path, version=version)) for version in versions}


def assert_versions(path: Path, expected: dict[int, Tables]) -> None:
    """Check that each of these versions can be read completely, and no older one can."""
    for version, content in expected.items():
        assert_same_tables(tables(a2store.Archive.open(path, version=version)), content)
    for version in range(min(expected)):
        with pytest.raises(a2store.VersionNotFoundError):
            a2store.Archive.open(path, version=version)


def backdate(path: Path, secs: float) -> None:
    then = time.time() - secs
    os.utime(path, (then, then))


def test_nothing_is_old_enough(fresh: a2store.Archive) -> None:
    there = contents(fresh.path)
    for options in ({}, {"older_than": timedelta(days=1)}, {"older_than": 3600.0}, {"older_than": 10**9}):
        report = fresh.expire(**options)
        assert (report.first_version, report.num_versions, report.num_files, report.paths) == (1, 0, 0, [])
    assert (fresh.version, contents(fresh.path)) == (9, there)


@pytest.mark.parametrize("older_than", [0, timedelta(0)])
def test_expire_all_versions_except_the_newest(fresh: a2store.Archive, older_than: float | timedelta) -> None:
    last = tables(fresh)
    before = contents(fresh.path)
    report = fresh.expire(older_than=older_than)
    # The expiry adds a version with the same rows.
    assert (report.first_version, report.num_versions, fresh.version) == (9, 8, 10)
    assert_versions(fresh.path, {9: last, 10: last})
    gone = before.keys() - names(fresh.path)
    data = {name for name in gone if name.endswith(".parquet")}
    assert report.num_files == len(data) == 12
    assert report.num_bytes == sum(len(before[name]) for name in data)
    assert gone == data | {manifest_name(version) for version in range(1, 9)}
    assert sorted(gone) == sorted(report.paths)
    report = fresh.expire(older_than=older_than)
    assert (report.first_version, report.num_versions, fresh.version) == (10, 1, 11)


def test_expire_at_a_time_between_two_commits(runs: list[Path], tmp_path: Path) -> None:
    archive = grow(tmp_path / "games.a2", chunks(runs[:6], 2))
    archive.compact(progress=False)
    archive.ingest(runs[6], progress=False)
    archive.ingest(runs[7], progress=False)
    now = datetime.now(UTC)
    for version in range(1, 8):
        # One commit per day; the last one is a day old.
        then = (now - timedelta(days=8 - version)).isoformat()
        forge(archive.path, version, lambda fields, then=then: fields.update(time=then))  # type: ignore[misc]
    archive = a2store.Archive.open(archive.path)
    kept = contents_of_versions(archive, 5)
    # The version that was the newest 2.5 days ago is kept, because a reader may have opened the archive at that time.
    report = archive.expire(older_than=timedelta(days=2.5))
    assert (report.first_version, report.num_versions, report.num_files) == (5, 4, 6)
    assert_versions(archive.path, kept | {8: kept[7]})


def test_a_dry_run_lists_the_files_to_remove(fresh: a2store.Archive) -> None:
    (fresh.path / "steps" / ".staged-abc.tmp").write_bytes(b"left")
    (fresh.path / "runs" / ("0" * 32 + ".parquet")).write_bytes(b"nobody's")
    before = contents(fresh.path)
    planned = fresh.expire(dry_run=True, **NOW)
    assert (fresh.version, contents(fresh.path)) == (9, before)
    done = fresh.expire(**NOW)
    assert planned.paths == done.paths
    facts = [(each.first_version, each.num_versions, each.num_files, each.num_bytes) for each in (planned, done)]
    assert facts[0] == facts[1]
    gone = before.keys() - names(fresh.path)
    assert gone == set(planned.paths)
    assert {"steps/.staged-abc.tmp", "runs/" + "0" * 32 + ".parquet"} <= gone
    added = names(fresh.path) - before.keys()
    assert all(name.startswith("_versions/") for name in added)


def test_expired_versions(fresh: a2store.Archive) -> None:
    fresh.expire(**NOW)
    for version in (0, 1, 8, 11, 2**63):
        with pytest.raises(a2store.VersionNotFoundError, match=re.escape("9..=10")) as caught:
            a2store.Archive.open(fresh.path, version=version)
        assert (caught.value.kind, caught.value.path) == ("version_not_found", fresh.path)
        assert f"version {version}" in str(caught.value)


def test_leftovers_stay_for_their_grace_period(fresh: a2store.Archive) -> None:
    stray = "0123456789abcdef" * 2 + ".parquet"
    fresh.tag("newest")
    leftovers = [f"{folder}/.staged-x1.tmp" for folder in ("_versions", "_tags", "runs", "steps")]
    nobodys = [f"{folder}/{stray}" for folder in ("runs", "steps")]
    others = ["steps/notes.txt", "_versions/notes.tmp", "runs/.staged-no"]
    before = names(fresh.path)
    for name in [*leftovers, *nobodys, *others]:
        (fresh.path / name).write_bytes(b"12345")
        backdate(fresh.path / name, DAY - 60)
    report = fresh.expire(older_than=10**9)
    assert (report.num_files, report.paths) == (0, [])
    for name in [*leftovers, *nobodys, *others]:
        backdate(fresh.path / name, DAY + 60)
    (fresh.path / "steps" / ".staged-new.tmp").write_bytes(b"a writer's")
    report = fresh.expire(older_than=10**9)
    assert (report.num_files, report.num_bytes, report.num_versions) == (2, 10, 0)
    assert sorted(report.paths) == sorted([*leftovers, *nobodys])
    # Files of unknown origin stay, and so do files of a commit, at any age.
    assert fresh.version == 10
    before.add(manifest_name(10))
    assert names(fresh.path) == before | {*others, "steps/.staged-new.tmp"}
    report = fresh.expire(older_than=10**9, grace=timedelta(0))
    assert report.paths == ["steps/.staged-new.tmp"]
    for name in before:
        backdate(fresh.path / name, 100 * DAY)
    assert fresh.expire(older_than=10**9, grace=0).paths == []
    assert fresh.verify(progress=False).problems == []


def test_ids_of_a_lost_version_are_not_given_again(fresh: a2store.Archive, runs: list[Path]) -> None:
    """A power failure can lose a version that a reader has seen. Then no manifest lists its data files."""
    (fresh.path / manifest_name(9)).unlink()
    archive = a2store.Archive.open(fresh.path)
    # Only the names of its data files record the assigned ids, so one file stays until a version has higher ids.
    for dry_run, removed in [(True, 1), (False, 1), (True, 0), (False, 0)]:
        assert archive.expire(older_than=10**9, grace=0, dry_run=dry_run).num_files == removed
    archive.ingest(runs[13], progress=False)
    assert pa.table(archive.sql("SELECT run_id FROM runs"))["run_id"].to_pylist() == [*range(12), 13]
    assert archive.expire(older_than=10**9, grace=0).num_files == 1


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_order_of_work(runs: list[Path], tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    archive = a2store.Archive.create(tmp_path / "games.a2")
    waiting = runs[:40]
    kept = contents_of_versions(archive, 1)
    for _ in range(ROUNDS):
        work = draw.choice(["ingest", "ingest", "compact", "expire", "nothing"])
        if work == "ingest" and waiting:
            archive.ingest([waiting.pop() for _ in range(min(len(waiting), draw.randint(1, 4)))], progress=False)
        elif work == "compact":
            archive.compact(file_rows=draw.choice([30, 90, 10**6]), progress=False)
        elif work == "expire":
            older_than = time.time() - draw.choice(archive.history()).time.timestamp()
            planned = archive.expire(older_than=older_than, grace=0, dry_run=True)
            report = archive.expire(older_than=older_than, grace=0)
            # Time passes between the two calls.
            assert report.first_version >= planned.first_version
            kept = {version: content for version, content in kept.items() if version >= report.first_version}
        kept[archive.version] = tables(archive)
        assert_versions(archive.path, kept)
    assert archive.verify(progress=False).problems == []
    assert archive.ingest(waiting, progress=False).accepted == len(waiting)
    assert archive.num_runs == 40
    archive.compact(progress=False)
    archive.expire(**NOW)
    archive.expire(**NOW)
    left = {name for name in names(archive.path) if name.endswith(".parquet")}
    assert len(left) == 2


def test_the_command(fresh: a2store.Archive) -> None:
    text = run_command("expire", fresh.path, "--older-than", "0s").stdout
    assert text.startswith("8 versions and 12 data files (")
    assert ") would be removed; version 9 is the oldest" in text
    assert text.endswith("nothing was changed; --yes removes them\n")
    assert run_command("expire", fresh.path, "--older-than", "0s").stdout == text
    assert '"dry_run":true' in run_command("expire", fresh.path, "--older-than", "0s", "--json").stdout
    assert fresh.version == a2store.Archive.open(fresh.path).version
    text = run_command("expire", fresh.path, "--older-than", "0s", "--yes", "--json").stdout
    assert '"first_version":9' in text
    assert '"num_files":12' in text
    assert '"dry_run":false' in text
    assert run_command("expire", fresh.path).stdout.startswith("0 versions and ")
    run_command("expire", fresh.path, "--older-than", "soon", status=2)
    run_command("info", fresh.path, "--version", "3", status=2)
