"""Writers of Macroxue packs that are killed, or whose system calls fail, at each call that changes the disk.

A pack appears completely or not at all. The short form kills after some calls; A2STORE_LONG_TESTS=1 tries every fault
of every call.
"""

from __future__ import annotations

import shutil
import warnings
from collections import Counter
from pathlib import Path

import a2store
import macroxue_packs as packs
from faults.checks import LONG
from faults.shim import Call, Fault, Shim, read_log, was_killed
from test_macroxue_packs import made, write

NUM_RUNS = 3


def command(source: Path, out: Path, *options: object) -> tuple[object, ...]:
    return ("--quiet", "convert", source, "--out", out, "--format", "macroxue", "--workers", "1", *options)


def faults(calls: list[Call]) -> list[Fault]:
    changing = [call for call in calls if call.changes]
    if LONG:
        kinds = ("kill-before", "kill-after", "EIO", "ENOSPC-after")
        return [Fault(call.number, kind) for call in changing for kind in kinds]
    chosen = [call for place, call in enumerate(changing) if place % 4 == 0 or call.kind in ("rename", "unlink")]
    return [Fault(call.number, "kill-after") for call in chosen]


def runs_in(folder: Path) -> tuple[list[bytes], list[str]]:
    """Return the boards of each sound run, and the errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = a2store.StepTable.from_runs([folder], progress=False, on_error="skip")
    batch = table.take(range(len(table)))
    ids = batch.run_id.tolist()
    boards = [batch.board[batch.run_id == run].astype("<u8").tobytes() for run in dict.fromkeys(ids)]
    return boards, [error.message for error in table.errors]


def boards_of(pack: packs.Pack) -> list[bytes]:
    return [pack.rows["board"][pack.rows["run_id"] == run].astype("<u8").tobytes() for run, *_ in pack.runs]


def test_a_new_pack_appears_completely_or_not_at_all(shim: Shim, scratch: Path, tmp_path: Path) -> None:
    pack = made(NUM_RUNS)
    source, target, log = write(tmp_path / "source", pack), scratch / "pack", tmp_path / "log"

    def create(fault: Fault | None = None) -> bool:
        shutil.rmtree(target, ignore_errors=True)
        log.unlink(missing_ok=True)
        done = shim.run(scratch, *command(source, target, "--shard-rows", 50), log=log, fault=fault)
        assert done.returncode == 0 if fault is None else was_killed(done) or done.returncode in (0, 1), done.stderr
        return done.returncode == 0

    assert create()
    whole = {path.name: path.read_bytes() for path in target.iterdir()}
    assert runs_in(target) == (boards_of(pack), [])
    states: Counter[bool] = Counter()
    for fault in faults(read_log(log)):
        done = create(fault)
        exists = target.exists()
        states[exists] += 1
        assert exists or not done, fault
        if exists:
            assert {path.name: path.read_bytes() for path in target.iterdir()} == whole, fault
    assert min(states[True], states[False]) > 0, states
