"""Kills of recorders with many threads: each session is complete and holds its part of the promised games.

``test_recorder_faults.py`` kills small recorders at each system call. Here NumPy, SQLite and the package's own reader
read the sessions.
"""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np

import a2store
import recorder_child
from a2store.selfplay import Recorder
from faults.checks import LONG

KILLS = 50 if LONG else 12
SEED = 2048


def read(folder: Path) -> list[int]:
    """Read a session, check that it is complete and matches its seeds, and return the ids of its runs."""
    # NumPy rejects a truncated file.
    rows = np.load(folder / "steps.npy")
    with closing(sqlite3.connect(f"file:{folder}/metadata.db?mode=ro", uri=True)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        runs = database.execute("SELECT id, seed, steps, max_score, highest_tile FROM runs ORDER BY id").fetchall()
    assert runs
    weights = (16 ** np.arange(15, -1, -1, dtype=object)).astype(np.uint64)
    starts = np.flatnonzero(np.diff(rows["run_id"], prepend=np.uint64(1 << 63)))
    ends = np.append(starts, len(rows))[1:]
    stretches = {int(rows["run_id"][start]): rows[start:end] for start, end in zip(starts, ends, strict=True)}
    assert len(stretches) == len(starts), "the rows of a run stand in one stretch"
    assert sorted(stretches) == [run[0] for run in runs]
    for run_id, seed, steps, max_score, highest_tile in runs:
        expected, stretch = recorder_child.boards(seed), stretches[run_id]
        assert steps == len(expected) == len(stretch)
        assert (stretch["step_idx"] == np.arange(steps)).all()
        assert ((stretch["exps"] * weights).sum(axis=1, dtype=np.uint64) == expected).all()
        assert (stretch["action"] == recorder_child.moves(seed, steps)).all()
        final = [int(expected[0]) >> shift & 15 for shift in range(0, 64, 4)]
        assert max_score == sum((exp - 1) << exp for exp in final if exp)
        assert highest_tile == (1 << max(final) if any(final) else 0)
    return [run[0] for run in runs]


def record_and_kill(root: Path, seed: int, durable: int) -> int:
    """Kill a process once at least ``durable`` games are durable, and return the number that it promised."""
    command = [sys.executable, recorder_child.__file__, str(root), str(seed)]
    said = root.with_name(f"said-{seed}.txt")
    # The output goes to a file, because a full pipe would block the process.
    with said.open("wb") as out, said.open() as lines:
        process = subprocess.Popen(command, stdout=out)
        line, promised = "", 0
        while promised < durable:
            line += lines.readline()
            if not line.endswith("\n"):
                assert process.poll() is None
                time.sleep(0.001)
                continue
            promised, line = int(line.removeprefix("R ")), ""
        process.kill()
        assert process.wait(timeout=60) == -signal.SIGKILL
    # The last line may be incomplete.
    return int(said.read_text().rpartition("\n")[0].split()[-1])


def test_promised_games_survive_any_kill(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    root = tmp_path / "selfplay"
    num_runs = 0
    for seed in range(KILLS):
        promised = record_and_kill(root, seed, rng.randrange(1, 150))
        ids = [run for folder in root.glob(f"*_model=killed-{seed}") for run in read(folder)]
        assert sorted(ids) == list(range(len(ids)))
        assert len(ids) >= promised
        num_runs += len(ids)
    archive = a2store.Archive.create(tmp_path / "all.a2")
    report = archive.ingest(root, progress=False)
    assert (report.accepted, report.rejected) == (num_runs, 0)
    # The next recorder removes unfinished sessions.
    Recorder(root, tag="last").close()
    assert all("_model=killed-" in path.name for path in root.iterdir())
