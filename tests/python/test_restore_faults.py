"""Restores, compactions, expiries and annotations that are killed or fail at each system call, and are then repeated.

After an interrupted restore the archive either shows the damage or is restored. The next restore gives the same archive
as an uninterrupted one: no run is lost, and no run id is reused. The short form kills a restore at every call
that changes something, and disturbs some other calls; A2STORE_LONG_TESTS=1 tries each call in every way.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import a2store
from annotations import write_models
from archives import Tables, copied, grow, manifest_path, names, plain
from faults.checks import LONG, assert_none, expect, failures, spread
from faults.shim import FAILURES, KILLS, Call, Fault, Shim, read_log, was_killed

ARCHIVE = "games.a2"
SOME = 3
"""The number of calls that the short form disturbs if it does not take all."""


def spoil(path: Path, version: int) -> None:
    manifest = manifest_path(path, version)
    manifest.write_bytes(manifest.read_bytes()[:-40])


def lose(path: Path, version: int) -> None:
    manifest_path(path, version).unlink()


DAMAGES: dict[str, dict[int, Callable[[Path, int], None]]] = {
    "a torn manifest": {5: spoil},
    "two manifests": {4: spoil, 5: lose},
}
"""The manifests that are damaged, after four ingests of one run each."""
RUNS = 4


@dataclass(frozen=True)
class Damaged:
    shim: Shim
    runs: list[Path]
    template: Path
    calls: list[Call]
    """The calls of an undisturbed restore."""
    left: frozenset[str]
    """The existing files after the restore."""

    def restore(self, disk: Path, log: Path, fault: Fault | None = None) -> subprocess.CompletedProcess[str]:
        return self.shim.run(disk, "restore", disk / ARCHIVE, log=log, fault=fault)


@pytest.fixture(scope="module", params=DAMAGES)
def damaged(
    request: pytest.FixtureRequest, shim: Shim, runs: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Damaged:
    folder = tmp_path_factory.mktemp("damaged")
    template = Path(grow(folder / ARCHIVE, [[run] for run in runs[:RUNS]]).path)
    for version, how in DAMAGES[request.param].items():
        how(template, version)
    disk = folder / "calm"
    shutil.copytree(template, disk / ARCHIVE)
    start = Damaged(shim, runs[:RUNS], template, [], frozenset())
    done = start.restore(disk, folder / "log")
    assert done.returncode == 0, done.stderr
    check_restored(disk / ARCHIVE)
    return Damaged(shim, start.runs, template, read_log(folder / "log"), frozenset(names(disk / ARCHIVE)))


def check_restored(path: Path) -> a2store.Archive:
    archive = a2store.Archive.open(path)
    table = pa.table(archive.sql("SELECT run_id, digest FROM runs ORDER BY run_id"))
    expect(table["run_id"].to_pylist() == [*range(RUNS)], f"the runs are {table['run_id'].to_pylist()}")
    expect(len(set(table["digest"].to_pylist())) == RUNS, "a run is there twice")
    found = archive.verify(progress=False).problems
    expect(not found, f"verify found {[(each.path, each.what, each.found) for each in found]}")
    return archive


def disturb(start: Damaged, scratch: Path, fault: Fault) -> None:
    """Restore with a fault, check the result, and restore again."""
    folder = scratch / str(fault).replace(" ", "-")
    disk = folder / "disk"
    shutil.copytree(start.template, disk / ARCHIVE)
    path = disk / ARCHIVE
    done = start.restore(disk, folder / "log", fault)
    expect("panicked" not in done.stderr, done.stderr)
    if fault.kind in KILLS:
        expect(was_killed(done), f"ended with status {done.returncode} before call {fault.at}")
    else:
        expect(done.returncode in (0, 1), f"status {done.returncode}: {done.stderr}")
    if is_readable(path):
        found = a2store.Archive.open(path).num_runs
        expect(found == RUNS, f"it opens with {found} runs of {RUNS}")
        # A writer may commit before the next restore.
        written = a2store.Archive.open(copied(path, folder / "written" / ARCHIVE))
        expect(written.ingest(start.runs, progress=False).accepted == 0, "a run was lost")
    else:
        expect(done.returncode != 0, "it cannot be opened")
    again = a2store.restore(path)
    expect(done.returncode != 0 or not again.done, f"something was left to do: {again}")
    check_restored(path)
    there = names(path) - {name for name in names(path) if ".staged-" in name}
    expect(there == start.left, f"other files: {sorted(there ^ start.left)}")
    expect(not a2store.restore(path).done, "a third restore has something to do")
    shutil.rmtree(folder)


def is_readable(path: Path) -> bool:
    try:
        a2store.Archive.open(path)
    except a2store.DamagedError:
        return False
    return True


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


def test_disturbed_restores(damaged: Damaged, request: pytest.FixtureRequest, scratch: Path) -> None:
    every = LONG or request.node.callspec.params["damaged"] == "a torn manifest"
    faults = faults_of(damaged.calls, every)
    assert_none(failures(partial(disturb, damaged, scratch), faults), len(faults))


# Compaction, expiry and annotations

COMMANDS: dict[str, tuple[str, tuple[str, ...], str | None]] = {
    "a new model": ("annotate", ("new", "whole"), "found annotations of runs"),
    "more runs of a model": ("annotate", ("early", "last"), "found annotations of runs"),
    "a replaced model": ("annotate", ("split", "other", "--replace"), None),
    "a dropped model": ("annotate", ("split", "--drop"), "model: expected"),
    "compaction": ("compact", ("--workers", "1"), None),
    "expiry": ("expire", ("--yes", "--older-than", "0s", "--grace", "0s"), None),
}
"""Commands, their arguments, and the error of the repeated command after a success; ``None`` = it succeeds."""


@dataclass(frozen=True)
class Start:
    template: Path
    folders: dict[str, Path]
    """The folders of annotations, which are arguments."""

    def command(self, what: str, archive: Path) -> list[object]:
        name, arguments, _ = COMMANDS[what]
        return [name, archive, *(self.folders.get(argument, argument) for argument in arguments)]


@pytest.fixture(scope="module")
def start(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Start:
    """An archive with a model in one file, a model in two, and a model that was replaced."""
    folder = tmp_path_factory.mktemp("annotated")
    folders, whole = write_models(folder)
    # The sixteenth ingest merges the small files of `runs`.
    archive = grow(folder / ARCHIVE, [[run] for run in runs[:16]])
    archive.compact(progress=False)
    grow(archive.path, [[folder / "pool"], runs[16:17]])
    archive.refresh()
    for model, name in (("early", "first"), ("split", "first"), ("split", "last"), ("twice", "other")):
        archive.annotate(model, folders[name], progress=False)
    archive.annotate("twice", folders["whole"], replace=True, progress=False)
    # The state that the tests start from has the values of the folders.
    for model in ("split", "twice"):
        sql = "SELECT argmax_prob FROM annotations WHERE model = $model ORDER BY run_id, step_index"
        found = pa.table(archive.sql(sql, {"model": model}))["argmax_prob"].to_numpy()
        assert found.tobytes() == whole["argmax_prob"].tobytes()
    return Start(archive.path, folders)


def everything(archive: a2store.Archive) -> Tables:
    """Return all rows, after checking that each annotation is of a step and there once."""
    order = {"runs": "run_id", "steps": "run_id, step_index", "annotations": "model, run_id, step_index"}
    rows = {name: plain(pa.table(archive.sql(f"SELECT * FROM {name} ORDER BY {by}"))) for name, by in order.items()}
    steps = {*keys(rows["steps"], "run_id", "step_index")}
    expect({*keys(rows["annotations"], "run_id", "step_index")} <= steps, "annotations of other steps")
    annotated = keys(rows["annotations"], "model", "run_id", "step_index")
    expect(len(set(annotated)) == len(annotated), "an annotation is there twice")
    return rows


def keys(rows: Any, *names: str) -> list[tuple[object, ...]]:
    return [*zip(*(rows[name].to_pylist() for name in names), strict=True)]


def check(path: Path, expected: Tables) -> a2store.Archive:
    archive = a2store.Archive.open(path)
    found = everything(archive)
    expect(found == expected, f"other {[name for name in found if found[name] != expected[name]]}")
    problems = archive.verify(progress=False).problems
    expect(not problems, f"verify found {[(each.path, each.what, each.found) for each in problems]}")
    expect(not a2store.restore(path, dry_run=True).damaged, "restore has something to do")
    return archive


@pytest.mark.parametrize("what", COMMANDS)
def test_disturbed_work(shim: Shim, start: Start, tmp_path: Path, scratch: Path, what: str) -> None:
    """The archive has its content from before or from after the work. Repeated work completes it."""

    def work(disk: Path, log: Path, fault: Fault | None = None) -> subprocess.CompletedProcess[str]:
        return shim.run(disk, *start.command(what, disk / ARCHIVE), log=log, fault=fault)

    first = a2store.Archive.open(start.template)
    before = everything(first)
    calm = copied(start.template, tmp_path / "calm" / ARCHIVE)
    done = work(calm.parent, tmp_path / "log")
    assert done.returncode == 0, done.stderr
    after, version = everything(a2store.Archive.open(calm)), a2store.Archive.open(calm).version
    assert version == first.version + 1
    assert (before == after) == (what in ("compaction", "expiry"))
    if what == "compaction":
        assert [info.num_files for info in a2store.Archive.open(calm).annotations()] == [1, 1, 1]
    left = len([name for name in names(calm) if name.endswith(".parquet")])
    calls = read_log(tmp_path / "log")
    faults = faults_of(calls, LONG)

    def one(fault: Fault) -> None:
        folder = scratch / str(fault).replace(" ", "-")
        path = copied(start.template, folder / "disk" / ARCHIVE)
        done = work(path.parent, folder / "log", fault)
        expect("panicked" not in done.stderr, done.stderr)
        expect(was_killed(done) if fault.kind in KILLS else done.returncode in (0, 1), f"{done}")
        found = a2store.Archive.open(path).version
        expect(found in (first.version, version), f"version {found}")
        expect(found == version or done.returncode != 0, "success without a commit")
        check(path, after if found == version else before)
        again = work(path.parent, folder / "log")
        error = COMMANDS[what][2]
        if found == version and error is not None:
            expect(again.returncode in (1, 2) and error in again.stderr, f"the repeated command: {again}")
        else:
            expect(again.returncode == 0, f"the repeated command: {again.stderr}")
        archive = check(path, after)
        # A repeated expiry removes the version that the first one created.
        expect(archive.version in (version, version + 1), f"version {archive.version} in the end")
        # Files of interrupted transactions are not part of the archive, and expiry removes them.
        archive.expire(older_than=0, grace=0)
        check(path, after)
        data = [name for name in names(path) if name.endswith(".parquet")]
        named = [Path(file).name for table in ("runs", "steps", "annotations") for file in archive.files(table)]
        expect(sorted(Path(name).name for name in data) == sorted(named), f"files are left: {data}")
        expect(what != "expiry" or len(data) == left, f"{len(data)} files, not {left}")
        shutil.rmtree(folder)

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
    for call in spread(opens, 4):
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
