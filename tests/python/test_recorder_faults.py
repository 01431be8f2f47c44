"""Recorders that are killed or whose system calls fail, at each call.

Promised games are kept exactly once, and other recorders can continue.

A process records equal games (``recorder_script.py``). Its files are read unchanged, recovered, and recovered by the
next recorder. The short form tries some calls of every class; A2STORE_LONG_TESTS=1 tries each call in every way.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

import a2store
import formats
import recorder_script
from a2store.selfplay import Recorder, recover
from faults.checks import LONG, assert_none, expect, failures
from faults.power_loss import EXTREMES, NOTHING, Disk, read_tree, write_tree
from faults.shim import CLASSES, FAILURES, KILLS, Call, Fault, Shim, python, read_log, was_killed

pytest_plugins = ["faults.plugin"]
pytestmark = pytest.mark.filterwarnings("ignore:.*the recorder crashed:RuntimeWarning")

ROOT = Path("a", "selfplay")
ARCHIVE = "games.a2"
PER_CLASS = 3
"""The number of calls of each class that the short form disturbs."""
ERRORS = {
    # SQLite hides the system's error text. It calls a database that it cannot read absent or malformed.
    "EIO": (
        "Input/output error",
        "disk I/O error",
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

    journal: bool
    ended: dict[int, int] = field(default_factory=dict)
    """The seeds of games that ended, by id."""
    durable: int = 0
    """Games below this id were reported as durable."""
    closed: bool = False
    errors: list[str] = field(default_factory=list)

    @staticmethod
    def parse(text: str, journal: bool) -> Promised:
        promised = Promised(journal)
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
        everything = self.journal or self.closed
        return {run: seed for run, seed in self.ended.items() if everything or run < self.durable}


@dataclass(frozen=True)
class Start:
    """A way to record games, and the calls of an undisturbed process that does it."""

    shim: Shim
    template: Path
    into_archive: bool
    journal: bool
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
        script = (recorder_script.__file__, disk / ROOT, archive, int(self.journal), end)
        done = python(*script, environment=environment)
        return done, Promised.parse(done.stdout, self.journal)

    def archive(self, disk: Path) -> a2store.Archive | None:
        return a2store.Archive.open(disk / ARCHIVE) if self.into_archive else None

    def recordings(self, disk: Path) -> list[Path]:
        return sorted((disk / ROOT).glob("*_model=killed"))

    def held(self, disk: Path) -> list[dict[int, int]]:
        """Return the seeds of each recording, by id. All contents must be valid."""
        if self.into_archive:
            archive = a2store.Archive.open(disk / ARCHIVE)
            expect(archive.verify(deep=True, progress=False).problems == [], "verify found problems")
            rows = pa.table(archive.sql("SELECT session, source_id, seed FROM runs ORDER BY run_id")).to_pylist()
            rows = [row for row in rows if row["session"] is not None]
            names = list(dict.fromkeys(row["session"] for row in rows))
            of = {name: [(row["source_id"], row["seed"]) for row in rows if row["session"] == name] for name in names}
            found = list(of.values())
        else:
            text = "SELECT id, seed FROM runs ORDER BY id"
            found = [formats.query(folder / "metadata.db", text) for folder in self.recordings(disk)]
        for runs in found:
            expect([run for run, _ in runs] == list(range(len(runs))), f"the ids of games are {runs}")
        return [dict(runs) for runs in found]


@pytest.fixture(scope="module", params=["session", "session with journal", "archive", "archive with journal"])
def start(request: pytest.FixtureRequest, shim: Shim, tmp_path_factory: pytest.TempPathFactory) -> Start:
    folder = tmp_path_factory.mktemp("start")
    template = folder / "template"
    template.mkdir()
    into_archive, journal = "archive" in request.param, "journal" in request.param
    if into_archive:
        archive = a2store.Archive.create(template / ARCHIVE)
        a2store.simulate(folder / "runs", runs=1, depth=0, progress=False)
        archive.ingest(folder / "runs", progress=False)
    calm = Start(shim, template, into_archive, journal, [])
    disk = calm.set_up(folder)
    done, promised = calm.record(disk, folder / "log")
    assert (done.returncode, done.stderr) == (0, "")
    assert (promised.durable, promised.closed, promised.errors) == (6, True, [])
    seeds = {run: recorder_script.FIRST_SEED + run for run in range(recorder_script.GAMES)}
    assert calm.held(disk) == [promised.ended] == [seeds]
    return Start(shim, template, into_archive, journal, read_log(folder / "log"))


def sample(calls: list[Call]) -> list[Call]:
    """Return all calls; in the short form, an even choice of each class with the first and the last call."""
    if LONG:
        return calls
    chosen = []
    for kind in CLASSES:
        of_kind = [call for call in calls if call.kind == kind]
        count = min(len(of_kind), PER_CLASS)
        chosen += [of_kind[at * (len(of_kind) - 1) // max(count - 1, 1)] for at in range(count)]
    return sorted(chosen, key=lambda call: call.number)


def check_left(start: Start, disk: Path, promised: Promised, leftovers: bool = False) -> None:
    """Check the files of a process, recover them, and let another recorder find them.

    Staged files may remain if their removal has failed.
    """
    kept = promised.kept()
    durable = {run: seed for run, seed in kept.items() if promised.closed or run < promised.durable}
    before = start.held(disk)
    expect(len(before) <= 1, f"{len(before)} recordings")
    for held in before or [{}]:
        expect(durable.items() <= held.items(), f"as it was left, {held} are there, not {durable}")
    check_ingest(start, disk, sum(map(len, before)))

    recovered = disk.with_name("recovered")
    shutil.copytree(disk, recovered)
    for folder in start.recordings(recovered):
        found = recover(folder, sink=start.archive(recovered))
        expect(promised.closed or found.runs in (0, *map(len, start.held(recovered))), f"{found}")
        expect(recover(folder, sink=start.archive(recovered)).runs == 0, "recovery ended, and yet goes on")
    # The next recorder removes staged files of a process that died before it recorded anything.
    check_held(start, recovered, promised, 0, leftovers=True)

    with Recorder(disk / ROOT, tag="killed", sink=start.archive(disk)) as recorder:
        expect([left.error for left in recorder.unfinished if left.error] == [], "what was left cannot be recovered")
        game = recorder_script.begin_one(recorder, NEW_SEED)
        game.end(recorder_script.LAST)
    check_held(start, disk, promised, 1, leftovers)


def check_held(start: Start, disk: Path, promised: Promised, others: int, leftovers: bool = False) -> None:
    found = start.held(disk)
    games = [held for held in found if held != {0: NEW_SEED}]
    expect(len(found) - len(games) == others, f"{found}, and not one recording that another process made")
    # A session exists from the beginning; an archive only has its games.
    expect(len(games) <= 1, f"{len(games)} recordings")
    held = games[0] if games else {}
    expect(promised.kept().items() <= held.items(), f"{held} are there, not {promised.kept()}")
    expect(all(seed == recorder_script.FIRST_SEED + run for run, seed in held.items()), f"{held} are there")
    left = [path.name for folder in start.recordings(disk) for path in folder.iterdir()]
    left = [name for name in left if name.startswith(("recording", "journal", *([] if leftovers else ["."])))]
    expect(left == [], f"{left} are left")
    check_ingest(start, disk, len(held) + others)


def check_ingest(start: Start, disk: Path, expected: int) -> None:
    """Other programs can read a recorder's folders with all of its files in them."""
    if not (disk / ROOT).exists():
        return
    archive = a2store.Archive.create(disk.with_name(f"ingested-{disk.name}-{expected}"))
    report = archive.ingest(disk / ROOT, progress=False)
    expect(report.rejected == 0, f"{[(error.path, error.message) for error in report.errors]}")
    # In a session, equal games differ by their seeds; the archive compares ids.
    expect(report.accepted == (0 if start.into_archive else expected), f"{report.accepted} of {expected} runs")
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
    check_left(start, disk, promised, fault.kind in FAILURES)
    shutil.rmtree(folder)


def test_killed_at_each_call(start: Start, scratch: Path, tally: Counter[str]) -> None:
    faults = [
        Fault(call.number, kind)
        for call in sample([call for call in start.calls if LONG or call.changes])
        for kind in KILLS
        if kind != "kill-midwrite" or call.kind == "write"
        if LONG or kind != "kill-after" or call.kind in ("link", "rename")
    ]
    tally["kills of recorders"] += len(faults)
    assert len(faults) > 15
    assert_none(failures(lambda fault: disturb(start, scratch, fault), faults), len(faults))


def test_a_call_fails(start: Start, scratch: Path, tally: Counter[str]) -> None:
    faults = [
        Fault(call.number, kind, for_good)
        for call in sample([call for call in start.calls if LONG or call.changes])
        for kind in (FAILURES if call.changes else ("EIO",))
        for for_good in (False, True)
    ]
    if not LONG:
        # Each call in about one sixth of the faults.
        faults = sorted(random.Random(3).sample(faults, len(faults) // 6), key=str)
    tally["system calls of recorders that fail"] += len(faults)
    assert_none(failures(lambda fault: disturb(start, scratch, fault), faults), len(faults))


def test_recovery_is_killed_and_repeated(start: Start, tmp_path: Path, scratch: Path, tally: Counter[str]) -> None:
    """A process ends during its second rotation; another recovers its files, and is killed too."""
    # The last but one new name of a rotation: a shard's or a data file's.
    named = [call for call in start.calls if call.kind in ("link", "rename") and not call.path.endswith("-journal")]
    left = tmp_path / "left"
    left.mkdir()
    disk = start.set_up(left)
    done, promised = start.record(disk, left / "log", Fault(named[-3].number, "kill-after"))
    assert was_killed(done)
    (folder,) = start.recordings(disk)

    code = "import sys, a2store; from a2store.selfplay import recover; "
    code += "recover(sys.argv[1], sink=a2store.Archive.open(sys.argv[2]) if sys.argv[2] != '-' else None)"

    def recovery(disk: Path, log: Path, fault: Fault | None = None) -> subprocess.CompletedProcess[str]:
        archive = disk / ARCHIVE if start.into_archive else "-"
        environment = start.shim.environment(disk, log, fault)
        return python("-c", code, disk / ROOT / folder.name, archive, environment=environment)

    def one(fault: Fault) -> None:
        own = scratch / str(fault).replace(" ", "-")
        own.mkdir()
        disk = own / "disk"
        shutil.copytree(left / "disk", disk)
        done = recovery(disk, own / "log", fault)
        expect(was_killed(done), f"ended with status {done.returncode} before call {fault.at}: {done.stderr}")
        check_left(start, disk, promised)
        shutil.rmtree(own)

    calm = tmp_path / "calm"
    shutil.copytree(disk, calm)
    done = recovery(calm, tmp_path / "log")
    assert (done.returncode, done.stderr) == (0, "")
    check_held(start, calm, promised, 0)
    calls = [call for call in read_log(tmp_path / "log") if LONG or call.changes]
    faults = [
        Fault(call.number, kind)
        for call in sample(calls)
        for kind in KILLS
        if kind != "kill-midwrite" or call.kind == "write"
        if LONG or kind != "kill-after"
    ]
    tally["kills of recoveries"] += len(faults)
    assert len(faults) > 2
    assert_none(failures(one, faults), len(faults))


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


FULL_FOR_A_WHILE = """
import resource, sys
import a2store, recorder_script
from a2store.selfplay import Recorder

root, archive = sys.argv[1:]
sink = None if archive == "-" else a2store.Archive.open(archive)
recorder = Recorder(root, tag="killed", sink=sink, journal=True)

def end_one(seed):
    recorder_script.begin_in_spite_of_failures(recorder, seed).end(recorder_script.LAST)

unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
for seed in range(2):
    end_one(seed)
# A file may have 20 bytes: the header of a journal, but no game.
resource.setrlimit(resource.RLIMIT_FSIZE, (20, unlimited[1]))
for seed in range(2, 5):
    try:
        end_one(seed)
    except OSError as error:
        print(error.errno, error.filename, error, sep="|")
try:
    recorder.rotate()
except (OSError, a2store.Error):
    # From here on, no rotation runs, because none is due.
    print("failed")
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
end_one(5)
print(recorder.folder, flush=True)
recorder_script.os._exit(0)
"""


@pytest.mark.parametrize("into_archive", [False, True], ids=["session", "archive"])
def test_recovery_counts_the_games_that_are_there(tmp_path: Path, into_archive: bool) -> None:
    """Games that end while the disk is full are in memory only. Later games are in the journal again."""
    archive = a2store.Archive.create(tmp_path / ARCHIVE) if into_archive else None
    place = [tmp_path / ARCHIVE] if into_archive else ["-"]
    path = os.pathsep.join([str(Path(recorder_script.__file__).parent), *sys.path])
    done = python("-c", FULL_FOR_A_WHILE, tmp_path / "root", *place, environment={"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith("X ")]
    assert len(lines) == 5, lines
    for line in lines[:3]:
        number, journal, text = line.split("|")
        assert (int(number), Path(journal).suffix) == (errno.EFBIG, ".bin")
        assert "File too large; the game is kept in memory, and the next rotation writes it" in text
    found = recover(lines[4], sink=archive)
    assert (lines[3], found.runs, found.from_journal, found.lost_runs) == ("failed", 3, 3, 3)
    if archive is None:
        ids = [run for (run,) in formats.query(Path(lines[4]) / "metadata.db", "SELECT id FROM runs ORDER BY id")]
    else:
        archive.refresh()
        ids = pa.table(archive.sql("SELECT source_id FROM runs ORDER BY run_id"))["source_id"].to_pylist()
    assert ids == [0, 1, 5]
