"""Kills of recorders with many threads: a session is valid at any moment and holds all promised games.

``test_recorder_faults.py`` kills small recorders at each system call. Here NumPy, SQLite and the package's own reader
read the sessions.
"""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import a2store
import recorder_child
from a2store.selfplay import Recorder
from faults.checks import LONG

pytestmark = pytest.mark.filterwarnings("ignore:.*the recorder crashed:RuntimeWarning")

KILLS = 50 if LONG else 12
"""The number of kills of each kind: with a journal, and without one."""
SEED = 2048


@dataclass
class Promised:
    """The promises of a process about its session before it was killed."""

    journal: bool
    ended: dict[int, int] = field(default_factory=dict)
    """The seeds of ended games, by id."""
    durable: int = 0
    """Games below this id were reported as durable."""

    def kept(self) -> dict[int, int]:
        return {run: seed for run, seed in self.ended.items() if self.journal or run < self.durable}


@dataclass
class Held:
    """The content of a session."""

    seeds: dict[int, int]
    finished: bool
    num_files: int


def read(folder: Path) -> Held:
    """Read a session, and check that it is complete and matches its seeds."""
    # NumPy rejects a truncated file.
    files = sorted(folder.glob("*.npy"))
    rows = np.concatenate([np.load(path) for path in files])
    assert sum(path.stat().st_size for path in files) >= rows.nbytes
    with closing(sqlite3.connect(f"file:{folder}/metadata.db?mode=ro", uri=True)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        runs = database.execute("SELECT id, seed, steps, max_score, highest_tile FROM runs ORDER BY id").fetchall()
        session = {key: json.loads(value) for key, value in database.execute("SELECT * FROM session")}
    assert session["model"] == {"tag": "killed"}
    assert [run[0] for run in runs] == list(range(len(runs)))
    weights = (16 ** np.arange(15, -1, -1, dtype=object)).astype(np.uint64)
    starts = np.flatnonzero(np.diff(rows["run_id"], prepend=np.uint64(1 << 63)))
    ends = np.append(starts, len(rows))[1:]
    stretches = {int(rows["run_id"][start]): rows[start:end] for start, end in zip(starts, ends, strict=True)}
    assert len(stretches) == len(starts), "the rows of a run stand in one stretch"
    for run_id, seed, steps, max_score, highest_tile in runs:
        expected, stretch = recorder_child.boards(seed), stretches[run_id]
        assert steps == len(expected) == len(stretch)
        assert (stretch["step_idx"] == np.arange(steps)).all()
        assert ((stretch["exps"] * weights).sum(axis=1, dtype=np.uint64) == expected).all()
        assert (stretch["action"] == recorder_child.moves(seed, steps)).all()
        final = [int(expected[0]) >> shift & 15 for shift in range(0, 64, 4)]
        assert max_score == sum((exp - 1) << exp for exp in final if exp)
        assert highest_tile == (1 << max(final) if any(final) else 0)
    return Held({run[0]: run[1] for run in runs}, session["finished"], len(files))


@dataclass
class Said:
    """The output of a process so far."""

    folder: Path | None
    promised: Promised
    told: list[str]
    """Recovered sessions of other processes."""

    @staticmethod
    def read(said: Path, journal: bool) -> Said:
        found = Said(None, Promised(journal), [])
        # The last line may be incomplete.
        for line in said.read_text().split("\n")[:-1]:
            kind, rest = line.split(" ", 1)
            if kind == "F":
                found.folder = Path(rest)
            elif kind == "U":
                found.told.append(rest)
            elif kind == "E":
                run, game = map(int, rest.split())
                found.promised.ended[run] = game
            elif kind == "R":
                found.promised.durable = int(rest)
        return found


def record_and_kill(root: Path, seed: int, journal: bool, durable: int) -> Said:
    """Let a process record until ``durable`` games are durable and some later games are running."""
    command = [sys.executable, recorder_child.__file__, str(root), str(seed), str(int(journal))]
    said = root.with_name(f"said-{seed}.txt")
    # The output goes to a file, because a full pipe would block the process.
    with said.open("wb") as out, said.open() as lines:
        process = subprocess.Popen(command, stdout=out)
        line, reached = "", 0
        while reached < durable:
            line += lines.readline()
            if not line.endswith("\n"):
                assert process.poll() is None
                time.sleep(0.001)
                continue
            if line.startswith("R "):
                reached = int(line[2:])
            line = ""
        process.kill()
        assert process.wait(timeout=60) == -signal.SIGKILL
    return Said.read(said, journal)


def check(folder: Path, promised: Promised, *, recovered: bool) -> Held:
    held = read(folder)
    missing = {run: seed for run, seed in promised.kept().items() if held.seeds.get(run) != seed}
    if promised.journal and not recovered:
        # Recovery adds the games of the journal to the session.
        missing = {run: seed for run, seed in missing.items() if run < promised.durable}
    assert not missing, f"{len(missing)} games of {len(promised.ended)}"
    assert len(held.seeds) >= promised.durable
    assert not held.finished
    return held


@pytest.mark.parametrize("journal", [False, True], ids=["plain", "journal"])
def test_promised_games_survive_any_kill(tmp_path: Path, journal: bool) -> None:
    rng = random.Random(SEED + journal)
    root, sessions = tmp_path / "selfplay", dict[Path, Promised]()
    told: dict[str, list[int]] = {}
    for number in range(KILLS):
        said = record_and_kill(root, number, journal, rng.randrange(1, 150))
        for line in said.told:
            path, *counts = line.split()
            told[path] = [int(count) for count in counts]
        assert said.folder is not None
        sessions[said.folder] = said.promised
        check(said.folder, said.promised, recovered=False)
        # Each process but the first recovers the session of the previous one.
        assert len(told) == number
    # The package's own reader accepts a session before its recovery.
    unmended = max(path for path in root.iterdir() if (path / "recording.json").exists())
    archive = a2store.Archive.create(tmp_path / "unmended.a2")
    assert archive.ingest([unmended], progress=False).accepted == len(read(unmended).seeds)

    with Recorder(root, tag="last") as last:
        told |= {str(u.folder): [u.runs, u.from_journal, u.lost_runs, u.lost_steps, u.live] for u in last.unfinished}
        assert not [u.error for u in last.unfinished if u.error]
    for folder, promised in sessions.items():
        held = check(folder, promised, recovered=True)
        names = {path.name for path in folder.iterdir()}
        assert names == {"metadata.db"} | {f"steps-{n + 1:06}.npy" for n in range(held.num_files)}
        runs, from_journal, lost_runs, lost_steps, live = told[str(folder)]
        assert runs == len(held.seeds)
        assert live <= recorder_child.THREADS
        # A game may have ended before its thread could report it.
        assert 0 <= runs + lost_runs - len(promised.ended) <= recorder_child.THREADS
        assert (lost_steps > 0) == (lost_runs > 0)
        assert lost_runs == 0 if journal else from_journal == 0
    assert len(told) == len(sessions) == KILLS
    assert not [path for path in root.iterdir() if (path / "recording.json").exists()]
    everything = a2store.Archive.create(tmp_path / "all.a2")
    report = everything.ingest(list(sessions), progress=False)
    assert report.accepted == sum(len(read(folder).seeds) for folder in sessions)
    assert report.rejected == 0
