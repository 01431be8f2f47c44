"""Power failures: in every possible state of the disk, no acknowledged run is lost, and ingest can continue.

The system calls of real processes are recorded. The states that they can leave a disk in are drawn at random and
checked; ``faults/power_loss.py`` has the model. A2STORE_LONG_TESTS=1 checks more than ten thousand states.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

import a2store
from faults.checks import LONG, Inputs, assert_none, expect, failures, open_or_create, sound
from faults.power_loss import EXTREMES, Disk, History, Step, Survival, Tree, chance, read_tree, write_tree
from faults.shim import FAILURES, KILLS, Call, Fault, Shim, python, read_log, was_killed

UNDISTURBED = 3_000 if LONG else 80
"""The number of states after a power failure without other faults."""
DISTURBED, HISTORIES = (10_000, 200) if LONG else (90, 3)
"""The numbers of states and of histories in which processes were killed and calls failed before the power failure."""
SEED = 2048
ARCHIVE = "games.a2"
PUBLISHED = re.compile(r".*\.(parquet|json)")
INGEST = """
import sys, a2store
path, *files = sys.argv[1:]
try:
    archive = a2store.Archive.open(path)
except (FileNotFoundError, a2store.ArchiveError):
    archive = a2store.Archive.create(path)
archive.ingest(files, workers=1, progress=False)
"""
MAINTAIN = {
    "compact": "import sys, a2store; a2store.Archive.open(sys.argv[1]).compact()",
    "expire": """
import datetime, sys, a2store
a2store.Archive.open(sys.argv[1]).expire(older_than=datetime.timedelta(0))
""",
}


class Recorder:
    """A recorder of processes that run one after another on one disk."""

    def __init__(self, shim: Shim, folder: Path, archive: str = ARCHIVE) -> None:
        self.shim, self.log, self.disk = shim, folder / "log", folder / "disk"
        self.archive = self.disk / archive
        self.disk.mkdir(parents=True)
        self.before = Disk(self.disk)
        self.began: int | None = None
        self.steps: list[Step] = []

    def step(self, runs: frozenset[bytes], *args: object, fault: Fault | None = None) -> bool:
        """Run a process that makes the archive hold ``runs``; return whether it acknowledged them."""
        if self.began is None:
            self.began = len(read_log(self.log))
        done = python(*args, environment=self.shim.environment(self.disk, self.log, fault))
        assert "panicked" not in done.stderr, (fault, done.stderr)
        if done.returncode == 0:
            self.steps.append(Step(self.began, len(read_log(self.log)), runs))
            self.began = None
        else:
            assert fault, done.stderr
            assert was_killed(done) or done.returncode == 1, (fault, done)
        return done.returncode == 0

    def ingest(self, inputs: Inputs, groups: int, fault: Fault | None = None) -> bool:
        """Ingest the first groups, most of which may already be in the archive."""
        files = [path for group in inputs.groups[:groups] for path in group]
        return self.step(inputs.digests_of(files), "-c", INGEST, self.archive, *files, fault=fault)

    def maintain(self, inputs: Inputs, what: str, fault: Fault | None = None) -> bool:
        """Compact or expire an archive of all inputs."""
        return self.step(inputs.digests_of(inputs.files), "-c", MAINTAIN[what], self.archive, fault=fault)

    def history(self) -> History:
        history = History(self.before, read_log(self.log), self.steps)
        *_, (_, disk) = history.states()
        found, modelled = read_tree(self.disk), EXTREMES["everything"].tree(disk)
        assert modelled.keys() == found.keys(), "some calls were not seen"
        assert modelled == found
        return history


@pytest.fixture(scope="module")
def undisturbed(shim: Shim, inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> History:
    """The history in which an archive is created and each group is ingested."""
    recorder = Recorder(shim, tmp_path_factory.mktemp("undisturbed"))
    recorder.step(frozenset(), "-c", INGEST, recorder.archive)
    for groups in range(1, len(inputs.groups) + 1):
        recorder.ingest(inputs, groups)
    for what in MAINTAIN:
        recorder.maintain(inputs, what)
    return recorder.history()


def disturbed(shim: Shim, inputs: Inputs, folder: Path, draw: random.Random) -> History:
    """The same history, but a process may be killed, or one of its calls may fail, before it is repeated."""
    recorder = Recorder(shim, folder)
    work: list[Callable[[Fault | None], bool]] = [
        *(partial(recorder.ingest, inputs, groups) for groups in range(1, len(inputs.groups) + 1)),
        *(partial(recorder.maintain, inputs, what) for what in MAINTAIN),
    ]
    for process in work:
        for _ in range(draw.choice((0, 1, 1, 2, 3))):
            kind = draw.choice((*KILLS, *KILLS, *FAILURES))
            process(Fault(draw.randint(1, 110), kind, draw.random() < 0.5))
        process(None)
    return recorder.history()


@dataclass(frozen=True)
class State:
    """A possible state of a disk after a power failure."""

    position: int
    after: Call | None
    survival: str
    tree: Tree
    possible: list[frozenset[bytes] | None]

    def __str__(self) -> str:
        return f"{self.survival} survived {self.position} calls, the last being {self.after}"

    def key(self) -> int:
        return hash((*self.tree.items(), *self.possible))


Draws = Iterable[tuple[int, str, Survival]]


def states(history: History, draws: Draws) -> Iterator[State]:
    """Yield the distinct states after these survivals at these positions."""
    at: dict[int, list[tuple[str, Survival]]] = {}
    for position, name, survival in draws:
        at.setdefault(position, []).append((name, survival))
    seen = set()
    for position, disk in history.states():
        for name, survival in at.get(position, []):
            after = history.calls[position - 1] if position else None
            state = State(position, after, name, survival.tree(disk), history.possible(position))
            if (key := state.key()) not in seen:
                seen.add(key)
                yield state


def acknowledgements(history: History) -> Draws:
    """Return the extreme survivals at each acknowledgement."""
    return [(step.acknowledged, name, survival) for step in history.steps for name, survival in EXTREMES.items()]


def drawn(history: History, count: int, seed: int) -> Draws:
    """Draw ``count`` survivals at random, more of them where more is not durable."""
    draw = random.Random(seed)
    doubt = {position: disk.doubt() for position, disk in history.states()}
    for number, position in enumerate(draw.choices(list(doubt), list(doubt.values()), k=count)):
        name = draw.choice([*EXTREMES, *2 * len(EXTREMES) * [f"what {number} of seed {seed} draws"]])
        yield position, name, EXTREMES.get(name) or chance(random.Random(seed << 32 | number))


def distinct(history: History, count: int, seed: int) -> Iterator[State]:
    """Yield ``count`` distinct states: those at acknowledgements, and others in the order of their positions."""
    first = list(states(history, acknowledgements(history)))
    yield from first
    keys = {state.key() for state in first}
    # Many survivals lead to the same state.
    others = [state for state in states(history, drawn(history, 8 * count, seed)) if state.key() not in keys]
    wanted = min(len(others), max(0, count - len(first)))
    yield from (others[index] for index in sorted(random.Random(seed).sample(range(len(others)), wanted)))


def check(whole: dict[str, bytes], inputs: Inputs, scratch: Path, state: State, archive: str = ARCHIVE) -> None:
    """Write a state to a folder, and use it as its owner would."""
    folder = scratch / f"{state.position}-{id(state)}"
    write_tree(state.tree, folder)
    try:
        for name, content in state.tree.items():
            expect(not PUBLISHED.fullmatch(name) or content == whole[name], f"{name} is not whole")
        present: frozenset[bytes] | None = None
        try:
            _, present = sound(folder / archive, inputs)
        except (FileNotFoundError, a2store.ArchiveError) as error:
            absent = isinstance(error, FileNotFoundError) or error.kind == "not_an_archive"
            expect(absent and None in state.possible, f"{type(error).__name__}: {error}")
        expect(present in state.possible, f"{lengths([present])} runs, not {lengths(state.possible)}")
        open_or_create(folder / archive).ingest(inputs.files, progress=False)
        _, repeated = sound(folder / archive, inputs)
        expect(repeated == inputs.digests_of(inputs.files), f"{len(repeated)} runs after ingest was repeated")
    finally:
        shutil.rmtree(folder)


def lengths(possible: list[frozenset[bytes] | None]) -> str:
    return " or ".join("no" if runs is None else str(len(runs)) for runs in possible)


def found_in(cases: Iterator[State], one: Callable[[State], None]) -> tuple[list[str], int]:
    """Return the failures and the number of states checked."""
    found, count = [], 0
    # All states at once would not fit in memory.
    while some := list(islice(cases, 200)):
        found += failures(one, some)
        count += len(some)
    return found, count


def test_power_failures(undisturbed: History, inputs: Inputs, scratch: Path) -> None:
    one = partial(check, undisturbed.final_contents(), inputs, scratch)
    found, count = found_in(distinct(undisturbed, UNDISTURBED, SEED), one)
    assert_none(found, count)


def test_power_failures_after_other_faults(shim: Shim, inputs: Inputs, scratch: Path, tmp_path: Path) -> None:
    def tried(number: int) -> tuple[list[str], int]:
        history = disturbed(shim, inputs, tmp_path / str(number), random.Random(SEED + number))
        one = partial(check, history.final_contents(), inputs, scratch / str(number))
        (scratch / str(number)).mkdir()
        found, count = found_in(distinct(history, DISTURBED // HISTORIES, SEED + number), one)
        return [f"history {number}: {failure}" for failure in found], count

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(tried, range(HISTORIES)))
    count = sum(tried for _, tried in results)
    assert count >= DISTURBED // 2
    assert_none([failure for found, _ in results for failure in found], count)


def test_folders_above_the_archive(shim: Shim, inputs: Inputs, scratch: Path, tmp_path: Path) -> None:
    archive = f"made/for/it/{ARCHIVE}"
    recorder = Recorder(shim, tmp_path / "recorded", archive)
    for groups in range(1, len(inputs.groups) + 1):
        recorder.ingest(inputs, groups)
    history = recorder.history()
    one = partial(check, history.final_contents(), inputs, scratch, archive=archive)
    found, count = found_in(states(history, acknowledgements(history)), one)
    assert_none(found, count)


@pytest.mark.parametrize(
    "forgotten",
    [r"/(steps|runs)/[^/]+", r"/_versions/[^/]+", r"/_versions", r"/(steps|runs)", rf"/{ARCHIVE}"],
    ids=["data", "commits", "the folder of commits", "the folders of data", "the archive's folder"],
)
def test_a_missing_sync_is_detected(undisturbed: History, inputs: Inputs, scratch: Path, forgotten: str) -> None:
    pattern = re.compile(rf".*/{ARCHIVE}{forgotten}" if ARCHIVE not in forgotten else f".*{forgotten}")

    def without(call: Call) -> Call:
        return replace(call, kind="read") if call.kind == "sync" and pattern.fullmatch(call.path) else call

    calls = [without(call) for call in undisturbed.calls]
    assert calls != undisturbed.calls
    history = replace(undisturbed, calls=calls)
    one = partial(check, undisturbed.final_contents(), inputs, scratch)
    found, _ = found_in(states(history, acknowledgements(history)), one)
    assert found
