"""Recorded games: files read by NumPy and SQLite alone; limits, sampling, archives, errors."""

from __future__ import annotations

import json
import pickle
import random
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
import formats
from a2store.selfplay import Recorder
from faults.shim import IMPORTS, Shim, python
from games import play, score
from oracle import cells, legal_mask

Steps = list[tuple[int, int]]
RUNS = "SELECT id, seed, steps, max_score, highest_tile FROM runs ORDER BY id"


def game(seed: int) -> tuple[Steps, int]:
    """Return a short game: boards with moves, and the final board."""
    rng = random.Random(seed)
    played = play(rng, rng.randrange(3, 60))
    return list(zip(played.boards, played.moves, strict=True)), played.final_board


GAMES = [game(seed) for seed in range(40)]


def record(recorder: Recorder, which: range = range(40), final: bool = True) -> None:
    """Record games with every way to push steps."""
    for seed in which:
        steps, last = GAMES[seed]
        recorded = recorder.begin(seed=seed)
        boards = np.array([board for board, _ in steps], np.uint64)
        moves = np.array([move for _, move in steps], np.uint8)
        if seed % 3 == 0:
            for board, move in steps:
                recorded.push((board, cells(board), iter(cells(board)))[seed // 3 % 3], move)  # type: ignore[arg-type]
        elif seed % 3 == 1:
            recorded.push_batch(boards, moves)
        else:
            half = len(steps) // 2
            exps = np.array([cells(board) for board, _ in steps], np.uint8)
            recorded.push_batch(exps[:half], moves[:half].astype(np.int64))
            recorded.push_batch(exps[half:], moves[half:])
        assert len(recorded) == len(steps)
        assert recorded.end(last if final else None) >= 0


def record_on(recorder: Recorder) -> None:
    """Record until a limit is reached; a fast machine plays all games before a time limit."""
    record(recorder)
    while recorder.is_full is None:
        time.sleep(0.001)
    record(recorder, range(1))


def rows_of(recorder: Recorder) -> Any:
    return np.concatenate([np.load(folder / "steps.npy") for folder in recorder.sessions])


def runs_of(recorder: Recorder) -> list[tuple[Any, ...]]:
    return [run for folder in recorder.sessions for run in formats.query(folder / "metadata.db", RUNS)]


def test_a_session_follows_the_documented_format(tmp_path: Path) -> None:
    with Recorder(tmp_path, tag="v1", engine="greedy", model_hash="ab", meta={"note": [1, None]}) as recorder:
        record(recorder)
    (folder,) = recorder.sessions
    assert [folder] == list(tmp_path.iterdir())
    assert folder.name.endswith("Z_model=v1")
    assert sorted(path.name for path in folder.iterdir()) == ["metadata.db", "steps.npy"]
    rows = rows_of(recorder)
    assert rows.dtype == formats.SESSION_ROW_ACTION
    for seed, (steps, _) in enumerate(GAMES):
        own = rows[rows["run_id"] == seed]
        assert own["step_idx"].tolist() == list(range(len(steps)))
        assert own["exps"].tolist() == [list(cells(board)) for board, _ in steps]
        assert own["action"].tolist() == [move for _, move in steps]
    assert runs_of(recorder) == [
        (seed, seed, len(steps), score(last), 1 << max(cells(last))) for seed, (steps, last) in enumerate(GAMES)
    ]
    said = {key: json.loads(value) for key, value in formats.query(folder / "metadata.db", "SELECT * FROM session")}
    assert (said["model"], said["engine"]) == ({"tag": "v1", "sha": "ab"}, "greedy")
    assert (said["note"], said["sample_rate"]) == ([1, None], 1)
    assert said["started"] <= said["ended"]
    archive = a2store.Archive.create(tmp_path / "games.a2")
    assert archive.ingest(recorder.sessions, progress=False).accepted == len(GAMES)
    out = tmp_path / "out"
    archive.export_runs("SELECT run_id FROM runs", out, format="session", progress=False)
    assert (np.load(out / "steps.npy") == rows).all()
    assert formats.query(out / "metadata.db", RUNS) == runs_of(recorder)


def test_without_moves_and_final_boards(tmp_path: Path) -> None:
    with Recorder(tmp_path, tag="v1", moves=False, sample_rate=2) as recorder:
        recorded = recorder.begin()
        recorded.push(0x1100_0000_0000_0000)
        recorded.push_batch(np.array([[1] + [0] * 14 + [2], [3] + [0] * 15], np.uint8))
        recorded.end()
        with pytest.raises(ValueError, match=r"seed: expected 0\.\.=18446744073709551614"):
            recorder.begin(seed=2**64 - 1)
    assert rows_of(recorder).dtype == formats.SESSION_ROW
    assert rows_of(recorder)["step_idx"].tolist() == [0, 2]
    assert runs_of(recorder) == [(0, -1, 3, 16, 8)]


def test_rotations(tmp_path: Path) -> None:
    with Recorder(tmp_path, tag="v1", rotate_steps=100) as recorder:
        for seed in range(40):
            record(recorder, range(seed, seed + 1))
            if seed % 10 == 9:
                assert recorder.rotate() == seed + 1 == recorder.stats().durable
                assert [run[0] for run in runs_of(recorder)] == list(range(seed + 1))
                assert len(rows_of(recorder)) == sum(len(steps) for steps, _ in GAMES[: seed + 1])
    stats = recorder.close()
    assert (stats.ended, stats.steps) == (40, sum(len(steps) for steps, _ in GAMES))
    assert stats.rotations == len(recorder.sessions) == len(list(tmp_path.iterdir())) >= 4
    assert stats.disk_bytes == sum(path.stat().st_size for path in tmp_path.rglob("*.*") if path.is_file())


def test_many_threads(tmp_path: Path) -> None:
    with Recorder(tmp_path, tag="v1", rotate_steps=200) as recorder:
        threads = [threading.Thread(target=record, args=(recorder, range(k, 40, 8))) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    rows, runs = rows_of(recorder), runs_of(recorder)
    assert sorted(seed for _, seed, *_ in runs) == list(range(40))
    for run_id, seed, *_ in runs:
        own = rows[rows["run_id"] == run_id]
        assert own["action"].tolist() == [move for _, move in GAMES[seed][0]]


def test_abandoned_games(tmp_path: Path) -> None:
    with Recorder(tmp_path, tag="v1") as recorder:
        record(recorder, range(2))
        given_up, dropped = recorder.begin(seed=90), recorder.begin(seed=91)
        for recorded in (given_up, dropped):
            recorded.push(1, 2)
        given_up.abandon()
        del dropped, recorded
        with pytest.raises(ValueError, match="has ended"):
            given_up.push(1, 2)
        late = recorder.begin()
        late.push(1, 2)
        assert (recorder.stats().live, recorder.stats().abandoned, recorder.stats().ended) == (1, 2, 2)
    assert [row[1] for row in runs_of(recorder)] == [0, 1]
    assert recorder.close().live == 1
    with pytest.raises(ValueError, match="closed"):
        late.end()
    with pytest.raises(ValueError, match="closed"):
        recorder.begin()


@pytest.mark.parametrize(
    ("limit", "name"),
    [({"max_games": 5}, "games"), ({"max_steps": 60}, "steps"), ({"max_wall_ms": 1}, "wall")],
    ids=str,
)
def test_limits(tmp_path: Path, limit: dict[str, int], name: str) -> None:
    with Recorder(tmp_path, tag="v1", **limit) as recorder:  # type: ignore[arg-type]
        with pytest.raises(a2store.RecorderLimitError, match=name):
            record_on(recorder)
        assert recorder.is_full == name
        stats = recorder.stats()
        assert pickle.loads(pickle.dumps(stats)) == stats
        ended = stats.ended
    # A limit ends the recording, but not the running games.
    assert len(runs_of(recorder)) == ended <= 40
    if name == "games":
        assert ended == 5


def test_the_limit_on_disk(tmp_path: Path) -> None:
    with Recorder(tmp_path, tag="v1", max_disk_mb=1) as recorder:
        refused = 0
        steps = np.arange(5_000, dtype=np.uint64)
        for seed in range(12):
            try:
                recorded = recorder.begin(seed=seed)
            except a2store.RecorderLimitError:
                break
            recorded.push_batch(steps, np.zeros(5_000, np.uint8))
            try:
                recorded.end()
            except a2store.RecorderLimitError:
                refused += 1
        assert recorder.is_full == "disk"
    size = sum(path.stat().st_size for folder in recorder.sessions for path in folder.iterdir())
    assert 500_000 < size <= 1_000_000
    assert (refused, len(rows_of(recorder)) % 5_000) == (1, 0)


def test_into_an_archive(tmp_path: Path) -> None:
    archive = a2store.Archive.create(tmp_path / "games.a2")
    evs = np.array([[0.25, 0.5, 1, 0]], np.float32)
    with Recorder(archive, tag="v1", engine="greedy", rotate_steps=300) as recorder:
        record(recorder, range(20))
        assert recorder.rotate() == 20
        archive.refresh()
        before = archive.version
        record(recorder, range(20, 40))
        recorded = recorder.begin(seed=2**63)
        recorded.push(0x1100_0000_0000_0001, 2, [0.5, float("nan"), 1, 0.25])
        recorded.push_batch(np.array([0x2000_0000_0000_0011], np.uint64), np.array([3], np.uint8), evs)
        recorded.end(0x2000_0000_0000_0021)
    archive.refresh()
    assert archive.num_runs == 41
    assert archive.version > before >= 2
    assert archive.verify(progress=False).problems == []
    runs = pa.table(archive.sql("SELECT * FROM runs ORDER BY source_id")).to_pylist()
    for seed, ((steps, last), run) in enumerate(zip(GAMES, runs, strict=False)):
        assert (run["seed"], run["source_id"], run["engine"], run["num_steps"]) == (seed, seed, "greedy", len(steps))
        assert (run["final_board"], run["verified"], run["max_score"]) == (last, True, score(last))
        assert run["session"] == runs[0]["session"]
        own = pa.table(archive.sql("SELECT board, move FROM steps WHERE run_id = $1", [run["run_id"]])).to_pylist()
        assert [(step["board"], step["move"]) for step in own] == steps
    with_evs = archive.sql("SELECT * FROM steps WHERE run_id = $1", [runs[40]["run_id"]])
    values = pa.table(with_evs).select(["ev_up", "ev_left", "ev_right", "ev_legal"]).to_pylist()
    assert (values[0]["ev_left"], values[1]["ev_right"]) == (1, 0)
    assert values[0]["ev_legal"] == legal_mask(0x1100_0000_0000_0001)
    assert recorder.sessions == []
    # Another recorder may write to the archive at the same time, even with the same tag.
    with Recorder(archive, tag="v1") as one, Recorder(archive, tag="v1") as other:
        record(one, range(5))
        record(other, range(5))
    archive.refresh()
    assert archive.num_runs == 51


EQUAL = """
import sys
import a2store, recorder_script
from a2store.selfplay import Recorder
archive = a2store.Archive.open(sys.argv[1])
recorder = Recorder(archive, tag="v1")
for rotation in range(4):
    for _ in range(25):
        recorder_script.begin_one(recorder, 7).end(recorder_script.LAST)
    if rotation < 3:
        recorder.rotate()
assert recorder.close().durable == 100
"""


def test_equal_games_are_all_kept(shim: Shim, tmp_path: Path) -> None:
    """Games with equal seed, steps, second and duration differ only by their ids, in one rotation and in several."""
    archive = a2store.Archive.create(tmp_path / "games.a2")
    for recording in (1, 2):
        done = python("-c", EQUAL, archive.path, environment=IMPORTS | shim.clock(1_700_000_000, still=True))
        assert (done.returncode, done.stderr) == (0, "")
        archive.refresh()
        assert archive.num_runs == 100 * recording
    rows = pa.table(archive.sql("SELECT session, source_id, digest, run_id FROM runs ORDER BY run_id")).to_pylist()
    assert len({row["digest"] for row in rows}) == 1
    assert [row["source_id"] for row in rows] == [*range(100), *range(100)]
    assert len({row["session"] for row in rows}) == 2
    assert archive.verify(progress=False).problems == []
    # All operations accept such an archive.
    files = tmp_path / "files"
    archive.export_runs("SELECT run_id FROM runs WHERE run_id < 3", files, format="a2run2", progress=False)
    assert len({path.read_bytes() for path in files.rglob("*.a2run2")}) == 1
    # Ingest adds a file only if no run is equal to it.
    report = archive.ingest(files, progress=False)
    assert (report.accepted, report.duplicates) == (0, 3)
    session = tmp_path / "session"
    archive.export_runs("SELECT run_id FROM runs", session, format="session", progress=False)
    assert len(formats.query(session / "metadata.db", RUNS)) == 200
    archive.compact(progress=False)
    assert (archive.num_runs, archive.verify(progress=False).problems) == (200, [])
    # Other archives store them once, because there they are runs from files.
    other = a2store.Archive.create(tmp_path / "other.a2")
    assert (other.ingest(files, progress=False).accepted, other.num_runs) == (1, 1)


@pytest.mark.parametrize(
    "options",
    [
        {"tag": ""}, {"tag": "a/b"}, {"sample_rate": 0}, {"rotate_secs": float("nan")}, {"max_ram_mb": 1},
        {"meta": {"model": 1}}, {"meta": {"a": float("nan")}}, {"meta": {"a": {"b": [1, (2**64,)]}}},
    ],
    ids=str,
)  # fmt: skip
def test_invalid_options(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"expected .*|.*NaN.*"):
        Recorder(tmp_path, **{"tag": "v1", **options})
    assert list(tmp_path.iterdir()) == []


def test_invalid_targets(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        Recorder(tmp_path / "file", tag="v1")
    with pytest.raises(TypeError, match="target: expected a folder or an Archive, found int"):
        Recorder(7, tag="v1")  # type: ignore[arg-type]


def test_invalid_steps(tmp_path: Path) -> None:
    boards, moves = np.zeros(3, np.uint64), np.zeros(3, np.uint8)
    with Recorder(tmp_path, tag="v1") as recorder:
        recorded = recorder.begin()
        for board, move in ((-1, 0), (2**64, 0), ([16] * 16, 0), ([1] * 15, 0), (1, 4), (1, None)):
            with pytest.raises((ValueError, TypeError)):
                recorded.push(board, move)
        with pytest.raises(TypeError):
            recorded.push("board", 0)  # type: ignore[arg-type]
        for batch in (
            (boards, moves[:2]),
            (boards, moves + 0.5),
            (boards, moves.astype(np.int64) + 300),
            (boards,),
            (np.full((3, 16), 16), moves),
            (np.zeros((3, 15)), moves),
            (boards, moves, np.zeros((3, 3), np.float32)),
        ):
            with pytest.raises((ValueError, TypeError)):
                recorded.push_batch(*batch)
        assert len(recorded) == 0
        recorded.push_batch(boards, moves)
        assert len(recorded) == 3
        recorded.end()
    assert len(rows_of(recorder)) == 3
