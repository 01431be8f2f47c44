"""Properties that an archive must have after any fault in the process that wrote it."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

import a2store
import oracle
from archives import ingested, versions_in

from .power_loss import read_tree
from .shim import CLASSES, FAILURES, Call, Fault

LONG = os.environ.get("A2STORE_LONG_TESTS") == "1"
"""Whether to try everything rather than a sample."""
WITHOUT = "faults cannot be made here: "
"""The beginning of the reason for a skipped test of this kind."""
NAMES = re.compile(
    r"_versions|runs|steps|_versions/\.lock|_versions/[0-9]{20}\.json"
    r"|(runs|steps)/[0-9]{10}-[0-9]{10}-[0-9a-f]{32}\.parquet|(_versions|runs|steps)/\.staged-[^/]*\.tmp"
)
"""The names that an archive's folder may contain after any fault."""

Case = TypeVar("Case")


class Unsound(AssertionError):  # noqa: N818
    """An archive violates a required property."""


def expect(condition: bool, message: str) -> None:
    if not condition:
        raise Unsound(message)


@dataclass(frozen=True)
class Inputs:
    """Run files in groups, one group per ingest, and their content."""

    groups: list[list[Path]]
    digests: dict[Path, bytes]
    boards: dict[bytes, bytes]
    """The boards of each run as the archive stores them, by digest."""
    moves: dict[bytes, bytes]
    known: dict[int, tuple[int, frozenset[bytes]]] = field(default_factory=dict)
    """Results of ``sound`` by the hash of an archive's tree. They depend on the tree only."""

    @staticmethod
    def simulate(folder: Path, groups: int, runs: int, seed: int = 1) -> Inputs:
        """Play ``groups`` × ``runs`` games, and get their digests from an undisturbed archive."""
        a2store.simulate(folder / "runs", runs=groups * runs, seed=seed, depth=0, progress=False)
        files = sorted((folder / "runs").iterdir())
        archive = ingested(folder / "undisturbed.a2", files)
        table = pa.table(archive.sql("SELECT source, digest FROM runs"))
        digests = {Path(row["source"]): row["digest"] for row in table.to_pylist()}
        games = {digests[path]: oracle.decode(path.read_bytes()) for path in files}
        boards = {digest: np.array(game.boards, "u8").tobytes() for digest, game in games.items()}
        moves = {digest: np.array(game.moves, "u1").tobytes() for digest, game in games.items()}
        return Inputs([files[at : at + runs] for at in range(0, len(files), runs)], digests, boards, moves)

    @property
    def files(self) -> list[Path]:
        return [path for group in self.groups for path in group]

    def digests_of(self, files: Iterable[Path]) -> frozenset[bytes]:
        return frozenset(self.digests[path] for path in files)


def sound(path: Path, inputs: Inputs) -> tuple[int, frozenset[bytes]]:
    """Read all of the newest version, check that it is complete, and return its number and the digests of its runs."""
    tree = read_tree(path)
    key = hash(tuple(tree.items()))
    if key in inputs.known:
        return inputs.known[key]
    archive = a2store.Archive.open(path)
    runs = pa.table(archive.sql("SELECT run_id, digest, num_steps FROM runs ORDER BY run_id"))
    ids, digests, sizes = (runs[name].to_pylist() for name in ("run_id", "digest", "num_steps"))
    expect(len(set(digests)) == len(digests), f"of {len(digests)} runs only {len(set(digests))} differ")
    expect(len(set(ids)) == len(ids), f"run ids are given twice: {ids}")
    expect(archive.num_runs == len(ids), f"num_runs is {archive.num_runs}, but there are {len(ids)}")
    expect(archive.num_steps == sum(sizes), f"num_steps is {archive.num_steps}, but the runs have {sum(sizes)}")

    steps = pa.table(archive.sql("SELECT run_id, step_index, board, move FROM steps ORDER BY run_id, step_index"))
    expect(steps.num_rows == sum(sizes), f"there are {steps.num_rows} steps of {sum(sizes)}")
    found = [steps[name].to_numpy() for name in ("run_id", "step_index", "board", "move")]
    expect(bool((found[0] == np.repeat(ids, sizes)).all()), "steps of other runs")
    at = 0
    for digest, size in zip(digests, sizes, strict=True):
        _, index, board, move = (column[at : at + size] for column in found)
        numbers = index.tolist()
        expect(numbers == [*range(size)], f"steps of a run are {numbers}")
        expect(board.tobytes() == inputs.boards.get(digest), "boards of a run")
        expect(move.tobytes() == inputs.moves.get(digest), "moves of a run")
        at += size

    versions = [commit.version for commit in archive.history()]
    expect(versions == list(range(archive.version, versions[-1] - 1, -1)), f"versions are {versions}")
    manifests = versions_in(path)
    expect(manifests[0] == archive.version, f"the manifests are of {manifests}")
    strays = [name for name in tree if not NAMES.fullmatch(name)]
    expect(not strays, f"{strays} lie in the archive")
    problems = [f"{each.path}: {each.what}, {each.expected}, {each.found}" for each in archive.verify().problems]
    expect(not problems, f"verify found {problems}")
    expect(read_tree(path) == tree, "reading changed the archive")
    return inputs.known.setdefault(key, (archive.version, frozenset(digests)))


def open_or_create(path: Path) -> a2store.Archive:
    """Open or create an archive as ``a2store ingest`` does; an interrupted creation is completed."""
    try:
        return a2store.Archive.open(path)
    except FileNotFoundError:
        return a2store.Archive.create(path)
    except a2store.ArchiveError as error:
        if error.kind != "not_an_archive":
            raise
        return a2store.Archive.create(path)


def spread(calls: list[Call], count: int) -> list[Call]:
    """Return all calls, or in the short form an even choice of them."""
    if LONG or len(calls) <= count:
        return calls
    return [calls[at * (len(calls) - 1) // max(count - 1, 1)] for at in range(count)]


def sample(calls: list[Call], per_class: int) -> list[Call]:
    """Return all calls; in the short form, an even choice of each class with the first and the last call."""
    chosen = [call for kind in CLASSES for call in spread([call for call in calls if call.kind == kind], per_class)]
    return sorted(chosen, key=lambda call: call.number)


def failing(calls: Iterable[Call], one_in: int) -> list[Fault]:
    """Return each way in which these calls can fail. The short form returns one of each ``one_in`` ways."""
    faults = [
        Fault(call.number, kind, for_good)
        for call in calls
        for kind in (FAILURES if call.changes else ("EIO",))
        for for_good in (False, True)
    ]
    return faults if LONG else sorted(random.Random(3).sample(faults, len(faults) // one_in), key=str)


def failures(check: Callable[[Case], object], cases: Sequence[Case]) -> list[str]:
    """Check cases in parallel, and return the failures."""

    def outcome(case: Case) -> str | None:
        try:
            check(case)
        except Exception as error:
            # One failing case must not hide the others.
            return f"{case}: {type(error).__name__}: {error}"
        return None

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [found for found in pool.map(outcome, cases) if found]


def assert_none(found: list[str], of: int) -> None:
    """Fail with one example of each kind of failure. Kinds ignore numbers and file names."""
    sorts: dict[str, list[str]] = {}
    for failure in found:
        sorts.setdefault(re.sub(r"/\S+|\d+", "", failure.partition(": ")[2]), []).append(failure)
    lines = [f"{len(some)} like this: {some[0].strip()}" for some in sorts.values()]
    assert not found, "\n".join([f"{len(found)} of {of} cases failed", *lines[:20]])
