"""Ingests that are killed or whose system calls fail: acknowledged runs are durable, and no run is partial.

Each ingest is disturbed at one call, then repeated without a fault, and must add exactly the missing runs. The short
form tries some of the calls, of every class. A2STORE_LONG_TESTS=1 tries each call in every way.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

import a2store
from faults.checks import LONG, Inputs, Unsound, assert_none, expect, failing, failures, sample, sound
from faults.power_loss import EXTREMES, NOTHING, Disk, read_tree, write_tree
from faults.shim import FAILURES, KILLS, Call, Fault, Shim, read_log, was_killed

ARCHIVE = "games.a2"
PER_CLASS = 3
"""Calls of each class that the short form disturbs."""
ERRORS = {"EIO": "Input/output error", "ENOSPC": "No space left on device"}


@dataclass(frozen=True)
class Start:
    """The state before a process is disturbed."""

    shim: Shim
    inputs: Inputs
    template: Path | None
    """An archive to copy, None for no archive."""
    held: frozenset[bytes]
    calls: list[Call]
    """The system calls of an undisturbed ingest of all inputs."""

    @property
    def version(self) -> int:
        return 2 if self.template else 0

    @property
    def all(self) -> frozenset[bytes]:
        return self.inputs.digests_of(self.inputs.files)

    def set_up(self, folder: Path) -> Path:
        """Create a disk with the archive on it."""
        disk = folder / "disk"
        disk.mkdir(parents=True)
        if self.template:
            shutil.copytree(self.template, disk / ARCHIVE)
        return disk

    def ingest(self, disk: Path, log: Path, fault: Fault | None = None) -> subprocess.CompletedProcess[str]:
        command = ("ingest", *self.inputs.files, disk / ARCHIVE, "--json", "--workers", 1)
        return self.shim.run(disk, *command, log=log, fault=fault)


@pytest.fixture(scope="module", params=["no archive", "an archive"])
def start(
    request: pytest.FixtureRequest, shim: Shim, inputs: Inputs, tmp_path_factory: pytest.TempPathFactory
) -> Start:
    folder = tmp_path_factory.mktemp("start")
    template = None
    if request.param == "an archive":
        template = folder / ARCHIVE
        a2store.Archive.create(template).ingest(inputs.groups[0], progress=False)
    held = inputs.digests_of(inputs.groups[0]) if template else frozenset()
    calm = Start(shim, inputs, template, held, [])
    done = calm.ingest(calm.set_up(folder), folder / "log")
    assert done.returncode == 0, done.stderr
    return Start(shim, inputs, template, held, read_log(folder / "log"))


def disturb(start: Start, scratch: Path, fault: Fault) -> None:
    """Ingest with a fault, check the state that it left, and repeat the ingest without a fault."""
    folder = scratch / str(fault).replace(" ", "-")
    disk = start.set_up(folder)
    before = Disk(disk)
    done = start.ingest(disk, folder / "log", fault)
    calls = read_log(folder / "log")
    expect("panicked" not in done.stderr, done.stderr)
    if fault.kind in KILLS:
        expect(was_killed(done), f"ended with status {done.returncode} before call {fault.at}")
    elif fault.kind in FAILURES:
        expect(len(calls) >= fault.at, f"made {len(calls)} calls only")
        check_end(start, disk, fault, done)

    present: frozenset[bytes] = frozenset()
    if done.returncode == 0 or start.template or is_archive(disk / ARCHIVE):
        version, present = sound(disk / ARCHIVE, start.inputs)
        expect(present in (start.held, start.all), f"{len(present)} runs are there")
        expect(version <= max(start.version, 1) + 1, f"version {version}")
    if done.returncode == 0:
        check_report(start, done, start.held)
        check_durable(start, deepcopy(before), calls, folder)

    done = start.ingest(disk, folder / "log")
    expect(done.returncode == 0, f"the repeated ingest: {done.stderr}")
    check_report(start, done, present)
    version, final = sound(disk / ARCHIVE, start.inputs)
    expect(final == start.all, f"{len(final)} runs in the end")
    expect(version == max(start.version, 1) + 1, f"version {version} in the end")
    check_durable(start, before, read_log(folder / "log"), folder)
    shutil.rmtree(folder)


def is_archive(path: Path) -> bool:
    """Return whether an archive was published there; an unfinished creation need not open."""
    return any((path / "_versions").glob("*.json"))


def check_end(start: Start, disk: Path, fault: Fault, done: subprocess.CompletedProcess[str]) -> None:
    """Check that the ingest was complete, or that its error has the cause and the place."""
    expect(done.returncode in (0, 1), f"status {done.returncode}: {done.stderr}")
    if done.returncode == 0:
        return
    expect(done.stdout == "", f"a report of what failed: {done.stdout}")
    error = ERRORS[fault.kind.removesuffix("-after")]
    expect(done.stderr.startswith("a2store: ") and error in done.stderr, f"the message: {done.stderr}")
    expect(str(disk) in done.stderr, f"the message names no file: {done.stderr}")


def check_report(start: Start, done: subprocess.CompletedProcess[str], present: frozenset[bytes]) -> None:
    report = json.loads(done.stdout)
    numbers = (report["accepted"], report["duplicates"], report["rejected"])
    expected = (len(start.all) - len(present), len(present), 0)
    expect(numbers == expected, f"accepted, duplicates, rejected are {numbers}, not {expected}")


def check_durable(start: Start, disk: Disk, calls: list[Call], folder: Path) -> None:
    """Check that all runs survive a power failure that drops all unsynced data."""
    for call in calls:
        disk.apply(call)
    expect(EXTREMES["everything"].tree(disk) == read_tree(Path(disk.path)), "the shim did not see all calls")
    write_tree(NOTHING.tree(disk), folder / "durable")
    try:
        _, durable = sound(folder / "durable" / ARCHIVE, start.inputs)
    except Exception as error:
        raise Unsound(f"acknowledged, but not durable: {error}") from error
    finally:
        shutil.rmtree(folder / "durable")
    expect(durable == start.all, f"{len(start.all) - len(durable)} acknowledged runs are not durable")


def test_killed_at_each_call(start: Start, scratch: Path) -> None:
    chosen = sample([call for call in start.calls if LONG or call.changes], PER_CLASS)
    # A kill after a call leaves the same disk as a kill before the next call.
    assert not start.calls[-1].changes
    places = {at for call in chosen for at in (call.number, call.number + 1) if at <= len(start.calls)}
    faults = [Fault(at, "kill-before") for at in sorted(places)]
    faults += [Fault(call.number, "kill-midwrite") for call in chosen if call.kind == "write"]
    assert_none(failures(partial(disturb, start, scratch), faults), len(faults))


def test_a_call_fails(start: Start, scratch: Path) -> None:
    faults = failing(sample(start.calls, PER_CLASS), one_in=2)
    assert_none(failures(partial(disturb, start, scratch), faults), len(faults))


@pytest.mark.parametrize("kind", ["short", "flip"])
def test_writes_that_are_short_or_store_wrong_bytes(start: Start, scratch: Path, kind: str) -> None:
    """Ingest completes short writes. It reads data back before publication, and so detects wrong bytes."""
    faults = [Fault(call.number, kind) for call in start.calls if call.kind == "write"]

    def one(fault: Fault) -> None:
        folder = scratch / str(fault)
        disk = start.set_up(folder)
        done = start.ingest(disk, folder / "log", fault)
        expect("panicked" not in done.stderr, done.stderr)
        if kind == "short":
            expect(done.returncode == 0, done.stderr)
            check_report(start, done, start.held)
        else:
            expect(done.returncode == 1, f"ended with status {done.returncode}")
            expect(str(disk) in done.stderr, f"the message names no file: {done.stderr}")
            if start.template or is_archive(disk / ARCHIVE):
                expect(sound(disk / ARCHIVE, start.inputs)[1] == start.held, "runs are there")
            done = start.ingest(disk, folder / "log")
            expect(done.returncode == 0, f"the repeated ingest: {done.stderr}")
        expect(sound(disk / ARCHIVE, start.inputs)[1] == start.all, "runs are missing")

    assert_none(failures(one, faults), len(faults))
