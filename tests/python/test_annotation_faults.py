"""Annotating, compacting and expiring annotations, killed or failing at each system call, then checked and repeated.

After each fault the archive has the annotations from before or from after the operation. Each row is there once. The
short form tries some of the calls; A2STORE_LONG_TESTS=1 tries each call in every way.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
import formats
import games
from annotations import Array, predictions, write_annotations
from archives import copied
from faults.checks import LONG, assert_none, expect, failures, names
from faults.shim import KILLS, Fault, Shim, read_log, was_killed
from test_repair_faults import faults_of

ARCHIVE = "games.a2"
FIRST_ID = 1000
"""The first id of ``formats.write_session``."""

COMMANDS: dict[str, tuple[str, tuple[str, ...], str | None]] = {
    "a new model": ("annotate", ("new", "whole"), "found annotations of runs"),
    "more runs of a model": ("annotate", ("early", "last"), "found annotations of runs"),
    "a replaced model": ("annotate", ("split", "other", "--replace"), None),
    "a dropped model": ("annotate", ("split", "--drop"), "MODEL: expected"),
    "compaction": ("compact", ("--workers", "1"), None),
    "expiry": ("expire", ("--yes", "--older-than", "0s", "--grace", "0s"), None),
}
"""Commands, their arguments, and the error of the repeated command after a success; ``None`` = it succeeds."""


@dataclass(frozen=True)
class Start:
    template: Path
    folders: dict[str, Path]
    keys: set[tuple[int, int]]
    """The steps of the archive."""

    def command(self, what: str, archive: Path) -> list[object]:
        name, arguments, _ = COMMANDS[what]
        return [name, archive, *(self.folders.get(argument, argument) for argument in arguments)]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Return an archive with a model in one file, a model in two, and a model that was replaced."""
    folder = tmp_path_factory.mktemp("annotated")
    played = {FIRST_ID + i: games.play(random.Random(i), steps) for i, steps in enumerate((30, 12, 20))}
    formats.write_session(folder / "pool", list(played.values()), action=True)
    whole, other = predictions(played), predictions(played, seed=1)
    late = whole["run_id"] == FIRST_ID + 2
    parts: dict[str, Array] = {"whole": whole, "other": other, "first": whole[~late], "last": whole[late]}
    folders = {}
    for name, rows in parts.items():
        folders[name] = folder / f"predicted-{name}"
        write_annotations(folders[name], rows, bins=2)
        shutil.copy(folder / "pool" / "metadata.db", folders[name])
    archive = a2store.Archive.create(folder / ARCHIVE)
    archive.ingest(folder / "pool", progress=False)
    for model, name in (("early", "first"), ("split", "first"), ("split", "last"), ("twice", "other")):
        archive.annotate(model, folders[name], progress=False)
    archive.annotate("twice", folders["whole"], replace=True, progress=False)
    steps = pa.table(archive.sql("SELECT run_id, step_index FROM steps")).to_pydict()
    return Start(archive.path, folders, set(zip(*steps.values(), strict=True)))


def annotated(start: Start, archive: a2store.Archive) -> list[dict[str, Any]]:
    """Return all annotations, after checking that each is of a step and there once."""
    table = pa.table(archive.sql("SELECT * FROM annotations ORDER BY model, run_id, step_index"))
    keys = list(zip(*(table[name].to_pylist() for name in ("model", "run_id", "step_index")), strict=True))
    expect(len(set(keys)) == len(keys), "an annotation is there twice")
    expect({key[1:] for key in keys} <= start.keys, "annotations of other steps")
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def check(start: Start, path: Path, expected: list[dict[str, Any]]) -> a2store.Archive:
    archive = a2store.Archive.open(path)
    expect(annotated(start, archive) == expected, f"other annotations in version {archive.version}")
    found = archive.verify(deep=True, progress=False).problems
    expect(not found, f"verify found {[(each.path, each.what, each.found) for each in found]}")
    expect(not a2store.repair(path).steps, "repair has something to do")
    return archive


@pytest.mark.parametrize("what", COMMANDS)
def test_disturbed_annotations(
    shim: Shim, start: Start, tmp_path: Path, scratch: Path, tally: Counter[str], what: str
) -> None:
    def work(disk: Path, log: Path, fault: Fault | None = None) -> subprocess.CompletedProcess[str]:
        return shim.run(disk, *start.command(what, disk / ARCHIVE), log=log, fault=fault)

    first = a2store.Archive.open(start.template)
    before = annotated(start, first)
    calm = copied(start.template, tmp_path / "calm" / ARCHIVE)
    done = work(calm.parent, tmp_path / "log")
    assert done.returncode == 0, done.stderr
    after = annotated(start, a2store.Archive.open(calm))
    version = a2store.Archive.open(calm).version
    assert version == first.version + 1
    assert (before == after) == (what in ("compaction", "expiry"))
    left = len([name for name in names(calm) if name.endswith(".parquet")])
    calls = read_log(tmp_path / "log")
    assert any(call.changes and "/annotations/" in call.path for call in calls) or what == "a dropped model"
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
        check(start, path, after if found == version else before)
        again = work(path.parent, folder / "log")
        error = COMMANDS[what][2]
        if found == version and error is not None:
            expect(again.returncode in (1, 2) and error in again.stderr, f"the repeated command: {again}")
        else:
            expect(again.returncode == 0, f"the repeated command: {again.stderr}")
        archive = check(start, path, after)
        expect(archive.version in (version, version + 1), f"version {archive.version} in the end")
        # Files of interrupted transactions are not part of the archive, and expiry removes them.
        archive.expire(older_than=0, grace=0)
        check(start, path, after)
        data = [name for name in names(path) if name.endswith(".parquet")]
        named = [Path(file).name for table in ("runs", "steps", "annotations") for file in archive.files(table)]
        expect(sorted(Path(name).name for name in data) == sorted(named), f"files are left: {data}")
        expect(what != "expiry" or len(data) == left, f"{len(data)} files, not {left}")
        shutil.rmtree(folder)

    tally[f"disturbed annotations, {what}"] += len(faults)
    assert_none(failures(one, faults), len(faults))


def test_repeated_annotations_equal_the_folder(start: Start) -> None:
    """The state that the tests start from has the values of the folders."""
    archive = a2store.Archive.open(start.template)
    rows = [np.load(start.folders[name] / "annotations.npy") for name in ("first", "last")]
    expected = np.concatenate(rows)["argmax_prob"]
    for model in ("split", "twice"):
        sql = "SELECT argmax_prob FROM annotations WHERE model = $model ORDER BY run_id, step_index"
        assert pa.table(archive.sql(sql, {"model": model}))["argmax_prob"].to_numpy().tobytes() == expected.tobytes()
