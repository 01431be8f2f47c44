"""Recorders that are killed or whose system calls fail, at each call.

Promised games are kept exactly once, and other recorders can continue.

A process records equal games (``recorder_script.py``). Its files are read unchanged, and after the next recorder. The
short form tries some calls of every class; A2STORE_LONG_TESTS=1 tries each call in every way.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

import a2store
import formats
import recorder_script
from a2store.selfplay import Recorder
from faults.checks import LONG, assert_none, expect, failing, failures, sample
from faults.power_loss import EXTREMES, NOTHING, Disk, read_tree, write_tree
from faults.shim import KILLS, Call, Fault, Shim, python, read_log, was_killed

ROOT = Path("a", "selfplay")
ARCHIVE = "games.a2"
PER_CLASS = 3
"""The number of calls of each class that the short form disturbs."""
ERRORS = {
    # SQLite tries to read a file that it cannot open for writing, which hides the first error. It calls a file that it
    # cannot read malformed.
    "EIO": (
        "Input/output error",
        "SQLite could open it for reading only",
        "unable to open database file",
        "database disk image is malformed",
    ),
    "ENOSPC": (
        "No space left on device",
        "SQLite could open it for reading only",
        "unable to open database file",
    ),
}
NEW_SEED = 7


@dataclass
class Promised:
    """The output of a process before it ended."""

    ended: dict[int, int] = field(default_factory=dict)
    """The seeds of games that ended, by id."""
    durable: int = 0
    """Games below this id were reported as durable."""
    closed: bool = False
    errors: list[str] = field(default_factory=list)

    @staticmethod
    def parse(text: str) -> Promised:
        promised = Promised()
        for line in text.splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "E":
                run, seed = map(int, rest.split())
                promised.ended[run] = seed
            elif kind == "R":
                promised.durable = int(rest)
            elif kind == "C":
                promised.closed = True
            elif kind == "X":
                promised.errors.append(rest)
        return promised

    def kept(self) -> dict[int, int]:
        return {run: seed for run, seed in self.ended.items() if self.closed or run < self.durable}


@dataclass(frozen=True)
class Start:
    """A way to record games, and the calls of an undisturbed process that does it."""

    shim: Shim
    template: Path
    into_archive: bool
    calls: list[Call]

    def set_up(self, folder: Path) -> Path:
        disk = folder / "disk"
        shutil.copytree(self.template, disk)
        return disk

    def record(
        self, disk: Path, log: Path, fault: Fault | None = None, end: str = "close"
    ) -> tuple[subprocess.CompletedProcess[str], Promised]:
        archive = disk / ARCHIVE if self.into_archive else "-"
        environment = self.shim.environment(disk, log, fault)
        done = python(recorder_script.__file__, disk / ROOT, archive, end, environment=environment)
        return done, Promised.parse(done.stdout)

    def held(self, disk: Path) -> dict[tuple[int, int], int]:
        """Return how often each id and seed is there. All contents must be valid."""
        if self.into_archive:
            archive = a2store.Archive.open(disk / ARCHIVE)
            expect(archive.verify(progress=False).problems == [], "verify found problems")
            rows = pa.table(archive.sql("SELECT source_id, seed FROM runs WHERE session IS NOT NULL")).to_pylist()
            found = [(row["source_id"], row["seed"]) for row in rows]
        else:
            text = "SELECT id, seed FROM runs ORDER BY id"
            folders = (disk / ROOT).glob("*_model=killed")
            found = [run for folder in folders for run in formats.query(folder / "metadata.db", text)]
        return Counter(found)


@pytest.fixture(scope="module", params=["sessions", "archive"])
def start(request: pytest.FixtureRequest, shim: Shim, tmp_path_factory: pytest.TempPathFactory) -> Start:
    folder = tmp_path_factory.mktemp("start")
    template = folder / "template"
    template.mkdir()
    into_archive = request.param == "archive"
    if into_archive:
        archive = a2store.Archive.create(template / ARCHIVE)
        a2store.simulate(folder / "runs", runs=1, depth=0, progress=False)
        archive.ingest(folder / "runs", progress=False)
    else:
        # A recorder that crashed left an unfinished session.
        unfinished = template / ROOT / ".staged-dead.tmp"
        unfinished.mkdir(parents=True)
        (unfinished / "steps.npy").write_bytes(b"any")
    calm = Start(shim, template, into_archive, [])
    disk = calm.set_up(folder)
    done, promised = calm.record(disk, folder / "log")
    assert (done.returncode, done.stderr) == (0, "")
    assert (promised.durable, promised.closed, promised.errors) == (6, True, [])
    seeds = {run: recorder_script.FIRST_SEED + run for run in range(recorder_script.GAMES)}
    assert promised.ended == seeds
    assert calm.held(disk) == dict.fromkeys(seeds.items(), 1)
    assert len(list((disk / ROOT).glob("*"))) == (0 if into_archive else 3)
    return Start(shim, template, into_archive, read_log(folder / "log"))


def check_left(start: Start, disk: Path, promised: Promised) -> None:
    """Check the files of a process, and let another recorder find them."""
    before = start.held(disk)
    expect(all(count == 1 for count in before.values()), f"games are there twice: {before}")
    expect(promised.kept().items() <= before.keys(), f"{before} are there, not {promised.kept()}")
    games = [(run, recorder_script.FIRST_SEED + run) for run in range(len(before))]
    expect(before.keys() == set(games), f"{before} are there")
    check_ingest(start, disk, len(before))

    with Recorder(
        a2store.Archive.open(disk / ARCHIVE) if start.into_archive else disk / ROOT, tag="killed"
    ) as recorder:
        recorder_script.begin_one(recorder, NEW_SEED).end(recorder_script.LAST)
    expect(start.held(disk) == before | {(0, NEW_SEED): 1}, f"{start.held(disk)} are there after the next recorder")
    left = [path.name for path in (disk / ROOT).glob("*") if not path.name.endswith("_model=killed")]
    expect(left == [], f"{left} are left")
    check_ingest(start, disk, len(before) + 1)


def check_ingest(start: Start, disk: Path, expected: int) -> None:
    """Other programs can read a recorder's folder with all of its files in it."""
    if start.into_archive or not (disk / ROOT).exists():
        return
    archive = a2store.Archive.create(disk.with_name(f"ingested-{expected}"))
    report = archive.ingest(disk / ROOT, progress=False)
    expect(report.rejected == 0, f"{[(error.path, error.message) for error in report.errors]}")
    # Equal games differ by their seeds.
    expect(report.accepted == expected, f"{report.accepted} of {expected} runs")
    shutil.rmtree(archive.path)


def disturb(start: Start, scratch: Path, fault: Fault) -> None:
    folder = scratch / str(fault).replace(" ", "-")
    folder.mkdir()
    disk = start.set_up(folder)
    done, promised = start.record(disk, folder / "log", fault)
    expect("panicked" not in done.stderr, done.stderr)
    if fault.kind in KILLS:
        expect(was_killed(done), f"ended with status {done.returncode} before call {fault.at}")
        expect(promised.errors == [], f"{promised.errors}")
    else:
        expect((done.returncode, done.stderr) == (0, ""), f"status {done.returncode}: {done.stderr}")
        for error in promised.errors:
            texts = ERRORS[fault.kind.removesuffix("-after")]
            expect(any(text in error for text in texts) and str(disk) in error, f"the message: {error}")
            expect("inner writer" not in error, f"the message: {error}")
    check_left(start, disk, promised)
    shutil.rmtree(folder)


def test_killed_at_each_call(start: Start, scratch: Path) -> None:
    faults = [
        Fault(call.number, kind)
        for call in sample([call for call in start.calls if LONG or call.changes], PER_CLASS)
        for kind in KILLS
        if kind != "kill-midwrite" or call.kind == "write"
        if LONG or kind != "kill-after" or call.kind in ("link", "rename")
    ]
    assert len(faults) > 15
    assert_none(failures(lambda fault: disturb(start, scratch, fault), faults), len(faults))


def test_a_call_fails(start: Start, scratch: Path) -> None:
    faults = failing(sample([call for call in start.calls if LONG or call.changes], PER_CLASS), one_in=6)
    assert_none(failures(lambda fault: disturb(start, scratch, fault), faults), len(faults))


def test_promised_games_survive_a_power_failure(start: Start, tmp_path: Path) -> None:
    """After a power failure, unsynced data is lost, including folders that the recorder created."""
    disk = start.set_up(tmp_path)
    durable = Disk(disk)
    done, promised = start.record(disk, tmp_path / "log", end="leave")
    assert (done.returncode, done.stderr, promised.durable) == (0, "", 6)
    for call in read_log(tmp_path / "log"):
        durable.apply(call)
    assert EXTREMES["everything"].tree(durable) == read_tree(disk), "the shim did not see all calls"
    shutil.rmtree(disk)
    write_tree(NOTHING.tree(durable), disk)
    check_left(start, disk, promised)
