"""Sessions in the layout of a recorder that appends rows while many games run."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import a2store
import formats
from a2store.critic import CriticData, embed
from archives import first_ingest
from games import play
from macroxue_packs import TABLES
from oracle import Array, Game, cells
from sources import derived_moves

FIRST_ID = 40


@dataclass
class Recorded:
    """The games of a recording, and its rows in the order of the files."""

    games: list[Game]
    rows: Array
    embeddings: Array
    """The row's embedding: (N, 3) float32, all different."""


def record(
    folder: Path,
    games: Sequence[Game],
    *,
    live: int = 4,
    shard_rows: int = 100,
    cancelled: Sequence[int] = (),
    inline: bool = False,
    seed: int = 0,
) -> Recorded:
    """Record games; ``live`` games run at once. A cancelled game has no move for its last row."""
    folder.mkdir(parents=True)
    rng = random.Random(seed)
    waiting, running, order = list(range(len(games))), list[list[int]](), list[tuple[int, int]]()
    while waiting or running:
        while waiting and len(running) < live:
            running.append([waiting.pop(0), 0])
        chosen = rng.choice(running)
        order.append((chosen[0], chosen[1]))
        chosen[1] += 1
        if chosen[1] == len(games[chosen[0]]):
            running.remove(chosen)
    rows = np.zeros(len(order), formats.SESSION_ROW)
    rows["run_id"] = [FIRST_ID + game for game, _ in order]
    rows["step_idx"] = [step for _, step in order]
    rows["exps"] = [cells(games[game].boards[step]) for game, step in order]
    embeddings = np.arange(3 * len(rows), dtype="<f4").reshape(-1, 3) / 7
    for number, start in enumerate(range(0, len(rows), shard_rows), 1):
        np.save(folder / f"steps-{number:06}.npy", rows[start : start + shard_rows])
        if inline:
            np.save(folder / f"embeddings-{number:06}.npy", embeddings[start : start + shard_rows])
    with sqlite3.connect(folder / "metadata.db") as database:
        database.executescript(TABLES)
        for number, game in enumerate(games):
            steps = len(game) - (number in cancelled)
            values = (FIRST_ID + number, 0xC0FFEE + number, steps, game.max_score, game.highest_tile)
            database.execute("INSERT INTO runs VALUES(?,?,?,?,?)", values)
        database.execute("INSERT INTO session VALUES('model_id', 'v1_pretrained_50m')")
    database.close()
    return Recorded(list(games), rows, embeddings)


@pytest.fixture(scope="module")
def games() -> list[Game]:
    rng = random.Random(5)
    return [play(rng, rng.choice([1, 30, 80, 200])) for _ in range(20)]


def expected_table(recorded: Recorded) -> dict[str, list[Any]]:
    keys = [(FIRST_ID + number, step) for number, game in enumerate(recorded.games) for step in range(len(game))]
    derived = [derived_moves(range(len(game)), game.boards) for game in recorded.games]
    moves = [255 if move is None else move for of_game in derived for move in of_game]
    boards = [board for game in recorded.games for board in game.boards]
    return {
        "run_id": [run_id for run_id, _ in keys],
        "step_index": [step for _, step in keys],
        "board": boards,
        "move": moves,
    }


@pytest.mark.parametrize(("live", "shard_rows"), [(1, 77), (4, 10_000), (20, 77)])
def test_interleaved_rows_are_read_in_the_order_of_steps(
    games: list[Game], tmp_path: Path, live: int, shard_rows: int
) -> None:
    folder = tmp_path / "20260101_model=v1"
    recorded = record(folder, games, live=live, shard_rows=shard_rows, cancelled=[3, 8])
    expected = expected_table(recorded)
    table = np.asarray(a2store.StepTable.from_session(folder, progress=False))
    for name, values in expected.items():
        assert table[name].tolist() == values, name

    archive, report = first_ingest(tmp_path / "games.a2", folder)
    assert (report.errors, report.accepted, report.num_steps) == ([], len(games), len(recorded.rows))
    steps = pa.table(archive.sql("SELECT run_id, step_index, board, move FROM steps ORDER BY run_id, step_index"))
    assert steps["board"].to_pylist() == expected["board"]
    assert steps["move"].fill_null(255).to_pylist() == expected["move"]
    assert steps["step_index"].to_pylist() == expected["step_index"]
    runs = pa.table(archive.sql("SELECT source_id, seed, num_steps, game_steps, verified FROM runs ORDER BY run_id"))
    assert runs["source_id"].to_pylist() == [FIRST_ID + number for number in range(len(games))]
    assert runs["seed"].to_pylist() == [0xC0FFEE + number for number in range(len(games))]
    assert runs["num_steps"].to_pylist() == [len(game) for game in games]
    assert runs["game_steps"].to_pylist() == [len(game) - (k in (3, 8)) for k, game in enumerate(games)]
    assert all(runs["verified"].to_pylist())
    assert archive.verify(progress=False).problems == []

    # The exported session has the same rows, run after run.
    out = tmp_path / "out"
    archive.export_runs("SELECT run_id FROM runs", out, format="session", progress=False)
    rows = np.load(out / "steps.npy")
    rows["run_id"] += FIRST_ID
    np.testing.assert_array_equal(rows, np.sort(recorded.rows, order=["run_id", "step_idx"]))
    facts = "SELECT seed, steps, max_score, highest_tile FROM runs ORDER BY id"
    assert formats.query(out / "metadata.db", facts) == formats.query(folder / "metadata.db", facts)


def test_an_interleaved_session_equals_its_sorted_form(games: list[Game], tmp_path: Path) -> None:
    recorded = record(tmp_path / "recorded", games, live=7)
    (tmp_path / "sorted").mkdir()
    np.save(tmp_path / "sorted" / "steps.npy", np.sort(recorded.rows, order=["run_id", "step_idx"]))
    (tmp_path / "sorted" / "metadata.db").write_bytes((tmp_path / "recorded" / "metadata.db").read_bytes())
    one, other = (a2store.StepTable.from_session(tmp_path / name, progress=False) for name in ("recorded", "sorted"))
    assert one.fingerprint == other.fingerprint
    assert len(one.filter(run_ids=[FIRST_ID + 2, FIRST_ID + 9])) == len(games[2]) + len(games[9])
    archive = a2store.Archive.create(tmp_path / "games.a2")
    assert archive.ingest(tmp_path / "sorted", progress=False).accepted == len(games)
    assert archive.ingest(tmp_path / "recorded", progress=False).duplicates == len(games)


def test_a_session_whose_recorder_still_has_its_database_open(games: list[Game], tmp_path: Path) -> None:
    folder = tmp_path / "session"
    recorded = record(folder, games)
    database = sqlite3.connect(folder / "metadata.db")
    try:
        # The changes stay in the log, because this connection never writes them to the file.
        database.execute("PRAGMA wal_autocheckpoint = 0")
        database.execute("UPDATE runs SET highest_tile = 4 * highest_tile")
        database.commit()
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        data = CriticData(folder, 64, thresholds=(64, 128))
        tiles = np.repeat([4 * game.highest_tile for game in games], [len(game) for game in games])
        assert data.num_rows == len(recorded.rows)
        assert data.base_rate.tolist() == [(tiles >= threshold).mean() for threshold in (64, 128)]
        changed = {path.name for path in folder.iterdir() if path.read_bytes() != before.get(path.name)}
        assert changed <= {"metadata.db-shm"}
    finally:
        database.close()


@pytest.mark.parametrize("files", ["shards", "one file"])
def test_a_critic_learns_from_inline_embeddings(games: list[Game], tmp_path: Path, files: str) -> None:
    folder = tmp_path / "session"
    recorded = record(folder, games, cancelled=[1], inline=True)
    if files == "one file":
        for path in folder.glob("embeddings-*.npy"):
            path.unlink()
        np.save(folder / "embeddings.npy", recorded.embeddings)
    expected = {
        (int(row["run_id"]), int(row["step_idx"])): embedding.tolist()
        for row, embedding in zip(recorded.rows, recorded.embeddings, strict=True)
    }
    table = a2store.StepTable.from_session(folder, progress=False).attach("e", folder, progress=False)
    batch = table.take(np.arange(len(table)))
    keys = zip(batch.run_id.tolist(), batch.step_index.tolist(), strict=True)
    assert batch["e"].dtype == np.float32
    assert dict(zip(keys, batch["e"].tolist(), strict=True)) == expected

    data = CriticData(folder, 50, use_embeddings=True, thresholds=(64, 128), seed=4)
    assert (data.dim, data.num_rows) == (3, len(recorded.rows))
    assert data.inputs == {"kind": "embeddings", "model_sha": None, "pooling": None, "dtype_bits": "f32", "D": 3}
    labels_of = {
        tuple(embedding): [float(games[run_id - FIRST_ID].highest_tile >= threshold) for threshold in (64, 128)]
        for (run_id, _), embedding in expected.items()
    }
    found = []
    for embedding, labels in data:
        assert embedding.dtype == torch.float32
        for row, label in zip(embedding.tolist(), labels.tolist(), strict=True):
            assert labels_of[tuple(row)] == label
            found.append(tuple(row))
    assert sorted(found) == sorted(labels_of)

    # Embeddings with a description replace the recorder's own ones.
    embed(folder, lambda tokens: tokens.astype("f4"), progress=False)
    data = CriticData(folder, 50, use_embeddings=True, thresholds=(64, 128))
    assert (data.dim, data.inputs["dtype_bits"]) == (16, "bf16")


@pytest.mark.filterwarnings("ignore:thresholds")
def test_inline_embeddings_that_do_not_match(games: list[Game], tmp_path: Path) -> None:
    folder = tmp_path / "session"
    recorded = record(folder, games, inline=True)
    np.save(folder / "embeddings-000002.npy", recorded.embeddings[:99])
    with pytest.raises(a2store.DecodeError, match=r"embeddings-000002.npy: rows of the array: expected 100"):
        CriticData(folder, use_embeddings=True)
    np.save(folder / "embeddings-000001.npy", recorded.embeddings[:100].astype("f8"))
    with pytest.raises(ValueError, match=r"embeddings-000001.npy: expected float32 \(N, D\), found float64"):
        CriticData(folder, use_embeddings=True)
    for path in folder.glob("embeddings-*.npy"):
        path.unlink()
    with pytest.warns(UserWarning, match=r"embeddings.json: not found; the inputs are tokens"):
        CriticData(folder, use_embeddings=True)


def test_a_step_beyond_the_end_of_its_game_is_reported(games: list[Game], tmp_path: Path) -> None:
    recorded = record(tmp_path / "session", games, shard_rows=10_000)
    number = next(number for number, game in enumerate(games) if len(game) > 20)
    last = np.flatnonzero(recorded.rows["run_id"] == FIRST_ID + number)[-1]
    recorded.rows["step_idx"][last] = len(games[number]) + 3
    np.save(tmp_path / "session" / "steps-000001.npy", recorded.rows)
    _, report = first_ingest(tmp_path / "games.a2", tmp_path / "session")
    (error,) = report.errors
    assert report.accepted == len(games) - 1
    steps = len(games[number])
    assert f"step index: expected at most {steps} (runs.steps), found {steps + 3}" in error.message
