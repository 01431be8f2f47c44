"""Repairs, expiries and compactions that are killed or fail at each system call, then checked and repeated.

After an interrupted repair the archive either shows the damage or is repaired. The next repair gives the same archive
as an uninterrupted one: no intact run is lost, and no run id is reused. The short form kills a repair at every call
that changes something, and disturbs some other calls; A2STORE_LONG_TESTS=1 tries each call in every way.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import a2store
from archives import commit_path, contents, copied, grow, names, short_runs, tables
from faults.checks import LONG, assert_none, expect, failures
from faults.shim import FAILURES, KILLS, Call, Fault, Shim, read_log, was_killed

pytest_plugins = ["faults.plugin"]

ARCHIVE = "games.a2"
SOME = 6
"""The number of calls that the short form disturbs if it does not take all."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return short_runs(tmp_path_factory.mktemp("short") / "runs", 24)


def spoil(path: Path, version: int) -> None:
    commit = commit_path(path, version)
    commit.write_bytes(commit.read_bytes()[:-40])


def lose(path: Path, version: int) -> None:
    commit_path(path, version).unlink()


DAMAGES: dict[str, tuple[int, dict[int, Callable[[Path, int], None]], int]] = {
    "a torn commit": (6, {4: spoil}, 5),
    "a missing commit": (6, {4: lose}, 5),
    "two commits": (6, {4: spoil, 6: lose}, 4),
    "a commit before a checkpoint": (18, {4: spoil}, 18),
    "commits on both sides of a checkpoint": (20, {1: lose, 18: spoil}, 19),
    "the newest commits, one of them with a checkpoint": (16, {16: lose, 17: lose}, 15),
}
"""Ingests of one run each, the commits that are then damaged, and the number of runs after a repair."""


@dataclass(frozen=True)
class Damaged:
    shim: Shim
    runs: list[Path]
    template: Path
    calls: list[Call]
    """The calls of an undisturbed repair."""
    num_runs: int
    ids: list[int]
    """The ids of all runs, after the lost runs were ingested again."""
    left: frozenset[str]
    """The existing files after the repair."""

    def repair(self, disk: Path, log: Path, fault: Fault | None = None) -> subprocess.CompletedProcess[str]:
        return self.shim.run(disk, "repair", disk / ARCHIVE, "--yes", log=log, fault=fault)


def run_ids(path: Path, runs: list[Path]) -> list[int]:
    """Return the ids of all runs, after ingesting the lost ones again."""
    archive = a2store.Archive.open(path)
    archive.ingest(runs, progress=False)
    table = pa.table(archive.sql("SELECT run_id, digest FROM runs ORDER BY run_id"))
    assert len(set(table["digest"].to_pylist())) == len(runs) == len(table)
    ids: list[int] = table["run_id"].to_pylist()
    return ids


@pytest.fixture(scope="module", params=DAMAGES)
def damaged(
    request: pytest.FixtureRequest, shim: Shim, runs: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Damaged:
    count, damage, num_runs = DAMAGES[request.param]
    folder = tmp_path_factory.mktemp("damaged")
    template = Path(grow(folder / ARCHIVE, [[run] for run in runs[:count]]).path)
    for version, how in damage.items():
        how(template, version)
    assert a2store.verify(template, progress=False).problems
    disk = folder / "calm"
    shutil.copytree(template, disk / ARCHIVE)
    start = Damaged(shim, runs[:count], template, [], num_runs, [], frozenset())
    done = start.repair(disk, folder / "log")
    assert done.returncode == 0, done.stderr
    left = frozenset(names(disk / ARCHIVE))
    check_repaired(start, disk / ARCHIVE)
    ids = run_ids(disk / ARCHIVE, start.runs)
    assert len(set(ids)) == len(ids) == count
    return Damaged(shim, start.runs, template, read_log(folder / "log"), num_runs, ids, left)


def check_repaired(start: Damaged, path: Path) -> a2store.Archive:
    archive = a2store.Archive.open(path)
    expect(archive.num_runs == start.num_runs, f"{archive.num_runs} runs are left of {start.num_runs}")
    table = pa.table(archive.sql("SELECT run_id, digest FROM runs"))
    expect(len(table) == len(set(table["run_id"].to_pylist())) == start.num_runs, "runs are missing")
    found = archive.verify(deep=True, progress=False).problems
    expect(not found, f"verify found {[(each.path, each.what, each.found) for each in found]}")
    return archive


def disturb(start: Damaged, scratch: Path, fault: Fault) -> None:
    """Repair with a fault, check the result, and repair again."""
    folder = scratch / str(fault).replace(" ", "-")
    disk = folder / "disk"
    shutil.copytree(start.template, disk / ARCHIVE)
    path = disk / ARCHIVE
    done = start.repair(disk, folder / "log", fault)
    expect("panicked" not in done.stderr, done.stderr)
    if fault.kind in KILLS:
        expect(was_killed(done), f"ended with status {done.returncode} before call {fault.at}")
    else:
        expect(done.returncode in (0, 1), f"status {done.returncode}: {done.stderr}")
    readable = is_readable(path)
    expect(readable or (done.returncode != 0 and not is_readable(start.template)), "it cannot be opened")
    if readable:
        found = a2store.Archive.open(path).num_runs
        expect(found == start.num_runs, f"it opens with {found} runs of {start.num_runs}")
        # A writer may commit before the next repair.
        expect(
            run_ids(copied(path, folder / "written" / ARCHIVE), start.runs) == start.ids, "a writer's run ids differ"
        )
    again = a2store.repair(path, dry_run=False)
    expect(done.returncode != 0 or not again.steps, f"something was left to do: {again.steps}")
    check_repaired(start, path)
    there = names(path) - {name for name in names(path) if ".staged-" in name}
    expect(there == start.left, f"other files: {sorted(there ^ start.left)}")
    expect(a2store.repair(path).steps == [], "a third repair has something to do")
    expect(run_ids(path, start.runs) == start.ids, "run ids differ")
    expect(not a2store.verify(path, progress=False).problems, "verify, in the end")
    shutil.rmtree(folder)


def is_readable(path: Path) -> bool:
    try:
        a2store.Archive.open(path)
    except a2store.DamagedError:
        return False
    return True


def spread(calls: list[Call], count: int) -> list[Call]:
    """Return all calls, or in the short form an even choice of them."""
    if LONG or len(calls) <= count:
        return calls
    return [calls[at * (len(calls) - 1) // (count - 1)] for at in range(count)]


def faults_of(calls: list[Call], every: bool) -> list[Fault]:
    """Return kills at all calls that change something, or at some, and some calls that fail."""
    changing = [call for call in calls if call.changes]
    kills = [Fault(call.number, "kill-before") for call in (changing if every else spread(changing, SOME))]
    kills += [Fault(changing[-1].number, "kill-after")]
    kills += [Fault(call.number, "kill-midwrite") for call in spread([c for c in changing if c.kind == "write"], 2)]
    fail = [
        Fault(call.number, kind, for_good)
        for at, call in enumerate(spread(changing, SOME))
        for kind in (FAILURES if LONG else FAILURES[at % len(FAILURES) :][:1])
        for for_good in ((False, True) if LONG else (at % 2 == 0,))
    ]
    fail += [Fault(call.number, "EIO") for call in spread([call for call in calls if not call.changes], 3)]
    return kills + fail


def test_disturbed_repairs(
    damaged: Damaged, request: pytest.FixtureRequest, scratch: Path, tally: Counter[str]
) -> None:
    every = LONG or request.node.callspec.params["damaged"] == "a torn commit"
    faults = faults_of(damaged.calls, every)
    tally["disturbed repairs"] += len(faults)
    assert_none(failures(partial(disturb, damaged, scratch), faults), len(faults))


# Compaction and expiry

WORK: dict[str, tuple[object, ...]] = {
    "ingest": ("--workers", 1),
    "compact": ("--workers", 1),
    "expire": ("--older-than", "0s", "--grace", "0s", "--yes"),
}


@pytest.mark.parametrize("what", WORK)
def test_disturbed_compaction_and_expiry(
    shim: Shim, runs: list[Path], tmp_path: Path, scratch: Path, tally: Counter[str], what: str
) -> None:
    """The archive has an older checkpoint, digests, and versions that expire."""
    archive = grow(tmp_path / ARCHIVE, [[run] for run in runs[:16]])
    archive.compact(progress=False)
    archive.ingest(runs[16], progress=False)
    archive.ingest(runs[17], progress=False)
    template, before = archive.path, tables(archive)

    def work(disk: Path, log: Path, fault: Fault | None = None) -> subprocess.CompletedProcess[str]:
        inputs = runs[18:20] if what == "ingest" else []
        return shim.run(disk, what, *inputs, disk / ARCHIVE, *WORK[what], log=log, fault=fault)

    calm = tmp_path / "calm"
    shutil.copytree(template, calm / ARCHIVE)
    assert work(calm, tmp_path / "log").returncode == 0
    version = a2store.Archive.open(calm / ARCHIVE).version
    after = tables(a2store.Archive.open(calm / ARCHIVE))
    faults = faults_of(read_log(tmp_path / "log"), LONG)

    def one(fault: Fault) -> None:
        folder = scratch / str(fault).replace(" ", "-")
        shutil.copytree(template, folder / "disk" / ARCHIVE)
        path = folder / "disk" / ARCHIVE
        done = work(folder / "disk", folder / "log", fault)
        expect("panicked" not in done.stderr, done.stderr)
        expect(was_killed(done) if fault.kind in KILLS else done.returncode in (0, 1), f"{done}")
        opened = a2store.Archive.open(path)
        expected = before if opened.version == archive.version else after
        but = {"ingested_at"}
        for name in ("runs", "steps"):
            found = tables(opened)[name]
            columns = [column for column in found.column_names if column not in but]
            expect(found.select(columns).equals(expected[name].select(columns)), f"other {name}")
        expect(not opened.verify(deep=True, progress=False).problems, "verify")
        expect(not a2store.repair(path).steps, "repair")
        done = work(folder / "disk", folder / "log")
        expect(done.returncode == 0, f"the repeated {what}: {done.stderr}")
        opened = a2store.Archive.open(path)
        for name in ("runs", "steps"):
            found = tables(opened)[name]
            columns = [column for column in found.column_names if column not in but]
            expect(found.select(columns).equals(after[name].select(columns)), f"other {name} in the end")
        ids = tables(opened)["runs"]["run_id"].to_pylist()
        expect(len(set(ids)) == len(ids), f"run ids {ids}")
        # A repeated expiry removes the version that the first one created.
        expect(opened.version in (version, version + 1), f"version {opened.version}, not {version}")
        report = opened.verify(deep=True, progress=False)
        expect(not report.problems, "verify, in the end")
        shutil.rmtree(folder)

    tally[f"disturbed {what}"] += len(faults)
    assert_none(failures(one, faults), len(faults))


# Verification during expiry


@pytest.mark.parametrize("compacted", [False, True])
def test_verification_while_versions_expire(
    shim: Shim, runs: list[Path], tmp_path: Path, scratch: Path, compacted: bool
) -> None:
    """Verification stops at some of its calls, while expiry removes files that it is about to read."""
    archive = grow(tmp_path / ARCHIVE, [[run] for run in runs[:6]])
    if not compacted:
        archive.compact(progress=False)
    disk = scratch / "calm"
    shutil.copytree(archive.path, disk / ARCHIVE)
    done = shim.run(disk, "verify", disk / ARCHIVE, "--workers", 1, log=tmp_path / "log")
    assert done.returncode == 0
    opens = [call for call in read_log(tmp_path / "log") if call.kind == "open"]
    assert any(call.path.endswith(".parquet") for call in opens)
    for call in spread(opens, 8):
        disk = scratch / str(call.number)
        shutil.copytree(archive.path, disk / ARCHIVE)
        environment = os.environ | shim.environment(disk, fault=Fault(call.number, "stop"))
        command = [sys.executable, "-m", "a2store", "verify", str(disk / ARCHIVE), "--workers", "1"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status), status
            there = a2store.Archive.open(disk / ARCHIVE)
            if compacted:
                there.compact(progress=False)
            assert there.expire(older_than=0, grace=0).num_files > 0
            os.kill(process.pid, signal.SIGCONT)
            out, _ = process.communicate(timeout=60)
        assert process.returncode == 0, (str(call), out)
        # Real problems are still found.
        victim = Path(there.files("steps")[0])
        victim.write_bytes(victim.read_bytes()[:-1])
        assert a2store.verify(disk / ARCHIVE, progress=False).problems


# Commits that a checkpoint covers


def lines(commit: a2store.CommitInfo) -> tuple[object, ...]:
    sizes = commit.added_runs, commit.added_steps, commit.num_runs, commit.num_steps, commit.next_run_id
    return commit.version, commit.time, commit.operation, commit.txn, *sizes


@pytest.fixture(scope="module")
def covered(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive with ingests, a compaction with a checkpoint at version 10, and more ingests."""
    archive = grow(tmp_path_factory.mktemp("covered") / ARCHIVE, [[run] for run in runs[:8]])
    archive.compact(progress=False)
    grow(Path(archive.path), [[run] for run in runs[8:15]])
    return Path(archive.path)


LOST: list[tuple[tuple[int, ...], str]] = [
    *((versions, "torn") for versions in [(5,), (10,), (4, 5), (9, 10), (12, 17)]),
    *((versions, "missing") for versions in [(1,), (9, 10)]),
    *((versions, "foreign") for versions in [(1, 17), (10,)]),
]


@pytest.mark.parametrize(("versions", "how"), LOST, ids=str)
def test_commits_that_a_checkpoint_covers(
    covered: Path, runs: list[Path], tmp_path: Path, versions: tuple[int, ...], how: str
) -> None:
    path = copied(covered, tmp_path / ARCHIVE)
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
    assert a2store.verify(path, deep=True, progress=False).problems == []
    assert a2store.repair(path).steps == []
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
    assert a2store.verify(path, deep=True, progress=False).problems == []


def test_a_single_ingest_is_rebuilt_to_the_byte(covered: Path, tmp_path: Path) -> None:
    path = copied(covered, tmp_path / ARCHIVE)
    good = commit_path(path, 10).read_bytes()
    for version in (1, 12):
        before = commit_path(path, version).read_bytes()
        spoil(path, version)
        a2store.repair(path, dry_run=False)
        if version == 1:
            assert commit_path(path, version).read_bytes() == before
    assert commit_path(path, 10).read_bytes() == good


def test_a_checkpoint_keeps_what_expired(runs: list[Path], tmp_path: Path) -> None:
    archive = grow(tmp_path / ARCHIVE, [[run] for run in runs[:6]])
    archive.expire(older_than=0, grace=0)
    version = archive.version
    lose(archive.path, version)
    a2store.repair(archive.path, dry_run=False)
    with pytest.raises(a2store.VersionNotFoundError):
        a2store.Archive.open(archive.path, version=2)
    assert a2store.Archive.open(archive.path).num_runs == 6
    assert a2store.verify(archive.path, progress=False).problems == []


@pytest.mark.parametrize("version", [2, 4, 8])
def test_a_lost_commit_whose_files_have_expired(runs: list[Path], tmp_path: Path, version: int) -> None:
    archive = grow(tmp_path / ARCHIVE, [[run] for run in runs[:6]])
    archive.compact(progress=False)
    archive.ingest(runs[6], progress=False)
    history, expected = [lines(line) for line in archive.history()], tables(archive)
    archive.expire(older_than=0, grace=0)
    spoil(archive.path, version)
    name = commit_path(archive.path, version).relative_to(archive.path).as_posix()
    assert [each.path for each in a2store.verify(archive.path, progress=False).problems] == [name]
    assert [step.path for step in a2store.repair(archive.path, dry_run=False).steps] == [name]
    again = a2store.Archive.open(archive.path)
    assert again.verify(deep=True, progress=False).problems == []
    assert a2store.repair(archive.path).steps == []
    # The log alone gives the same archive.
    for file in (archive.path / "_log").glob("*.checkpoint.json"):
        file.unlink()
    again = a2store.Archive.open(archive.path)
    assert [lines(line) for line in again.history()][1:] == history
    assert all(tables(again)[name].equals(expected[name]) for name in expected)
    assert again.verify(deep=True, progress=False).problems == []


def test_the_first_and_the_newest_commit(runs: list[Path], tmp_path: Path) -> None:
    """Their checkpoint has everything that the archive needs."""
    archive = grow(tmp_path / ARCHIVE, [[run] for run in runs[:15]])
    expected = tables(archive)
    assert archive.version == 16
    for version in range(1, 17):
        commit_path(archive.path, version).write_bytes(b"")
    with pytest.raises(a2store.DamagedError):
        a2store.Archive.open(archive.path)
    a2store.repair(archive.path, dry_run=False)
    again = a2store.Archive.open(archive.path)
    assert all(tables(again)[name].equals(expected[name]) for name in expected)
    assert again.verify(deep=True, progress=False).problems == []
    assert again.ingest(runs[:16], progress=False).accepted == 1


def test_intact_versions_have_no_problems(runs: list[Path], tmp_path: Path) -> None:
    """A damaged commit that no checkpoint covers is one problem; later commits are not reported."""
    archive = grow(tmp_path / ARCHIVE, [[run] for run in runs[:6]])
    other = grow(tmp_path / "other.a2", [[run] for run in runs[6:12]]).path

    def replace(path: Path, version: int) -> None:
        shutil.copy(commit_path(other, version), commit_path(path, version))

    for damage in (spoil, lose, replace):
        path = copied(archive.path, tmp_path / "copy.a2")
        damage(path, 4)
        problems = a2store.verify(path, progress=False).problems
        assert {each.path for each in problems} == {f"_log/{4:020}.json"}
        a2store.repair(path, dry_run=False)
        assert a2store.verify(path, deep=True, progress=False).problems == []


def test_digests_of_lost_runs(runs: list[Path], tmp_path: Path) -> None:
    """A run that is lost with its data file can be ingested again."""
    archive = grow(tmp_path / ARCHIVE, [[run] for run in runs[:17]])
    for table in ("runs", "steps"):
        Path(archive.files("runs" if table == "runs" else "steps")[2]).unlink()
    spoil(archive.path, 18)
    a2store.repair(archive.path, dry_run=False)
    again = a2store.Archive.open(archive.path)
    assert again.num_runs == 15
    assert again.ingest(runs[:17], progress=False).accepted == 2
    ids = tables(again)["runs"]["run_id"].to_pylist()
    assert len(set(ids)) == 17
    assert 2 not in ids


def test_a_commit_of_version_0(runs: list[Path], tmp_path: Path) -> None:
    archive = grow(tmp_path / ARCHIVE, [[run] for run in runs[:2]])
    commit_path(archive.path, 0).write_bytes(b"{}")
    assert a2store.verify(archive.path, progress=False).problems
    a2store.repair(archive.path, dry_run=False)
    assert a2store.verify(archive.path, progress=False).problems == []
    assert a2store.Archive.open(archive.path).version == 3
