"""A session that is ingested into an archive and exported again is unchanged."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
import formats
from games import play
from oracle import Game

RUNS = "SELECT id, seed, steps, max_score, highest_tile FROM runs ORDER BY id"
SESSION = "SELECT meta_key, meta_value FROM session ORDER BY meta_key"


@pytest.fixture(scope="module")
def games() -> list[Game]:
    return [play(random.Random(seed), length) for seed, length in enumerate((70, 31, 1, 55, 120))]


def ingested(folder: Path, *sessions: Path) -> a2store.Archive:
    archive = a2store.Archive.create(folder / "games.a2")
    for session in sessions:
        report = archive.ingest(session, progress=False)
        assert (report.errors, report.duplicates) == ([], 0)
    return archive


def export(archive: a2store.Archive, out: Path, where: str = "true", **options: Any) -> Path:
    archive.export_runs(f"SELECT run_id FROM runs WHERE {where}", out, format="session", progress=False, **options)
    return out


def assert_same_session(one: Path, other: Path) -> None:
    assert (one / "steps.npy").read_bytes() == (other / "steps.npy").read_bytes()
    assert_same_metadata(one, other)


def assert_same_metadata(one: Path, other: Path) -> None:
    for sql in (RUNS, SESSION, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name"):
        found = [formats.query(folder / "metadata.db", sql) for folder in (one, other)]
        assert [normalized(row) for row in found[0]] == [normalized(row) for row in found[1]], sql


def normalized(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the row, with normalized whitespace in SQL statements."""
    return tuple("".join(value.split()) if str(value).startswith("CREATE") else value for value in row)


def test_the_fixture_round_trips(fixtures: Path, tmp_path: Path) -> None:
    archive = ingested(tmp_path, fixtures / "session")
    assert_same_session(export(archive, tmp_path / "out"), fixtures / "session")


@pytest.mark.parametrize("action", [False, True])
@pytest.mark.parametrize("sample_rate", [1, 7])
@pytest.mark.parametrize("first_id", [0, 1000, 2**40])
def test_a_session_round_trips(
    games: list[Game], tmp_path: Path, action: bool, sample_rate: int, first_id: int
) -> None:
    session = tmp_path / "2026_model=test"
    formats.write_session(session, games, action=action, sample_rate=sample_rate, first_id=first_id)
    with sqlite3.connect(session / "metadata.db") as database:
        # Text that no JSON writer would reproduce, and NULL.
        odd = [("odd", '{"b" : 1,\n "a": 1.50}'), ("text", "no JSON"), ("none", None), ("γ", '"\\u03b3"')]
        database.executemany("INSERT INTO session VALUES(?,?)", odd)
        database.execute("UPDATE runs SET seed = NULL WHERE id = ?", (first_id + 1,))
        database.execute("UPDATE runs SET seed = -5 WHERE id = ?", (first_id + 2,))
    database.close()
    archive = ingested(tmp_path, session)
    with sqlite3.connect(session / "metadata.db") as database:
        # An export writes -1 for an unknown seed.
        database.execute("UPDATE runs SET seed = -1 WHERE seed IS NULL")
    database.close()
    assert_same_session(export(archive, tmp_path / "out"), session)
    # Compaction and another archive preserve it.
    archive.compact(progress=False)
    assert_same_session(export(archive, tmp_path / "compacted"), session)
    again = ingested(tmp_path / "again", tmp_path / "compacted")
    assert_same_session(export(again, tmp_path / "twice"), session)
    runs = pa.table(archive.sql("SELECT source_id, seed, game_steps, session_info FROM runs ORDER BY run_id"))
    assert runs["seed"].to_pylist()[1:3] == [None, 2**64 - 5]
    assert pa.table(again.sql("SELECT seed FROM runs ORDER BY run_id"))["seed"] == runs["seed"]
    assert runs["source_id"].to_pylist() == list(range(first_id, first_id + len(games)))
    assert runs["game_steps"].to_pylist() == [len(game) for game in games]
    assert json.loads(runs["session_info"][0].as_py())["has_actions"] is action


def test_shards_and_a_part_of_a_session(games: list[Game], tmp_path: Path) -> None:
    session = tmp_path / "session"
    formats.write_session(session, games, shards=3, sample_rate=2)
    archive = ingested(tmp_path, session)
    out = export(archive, tmp_path / "out")
    rows = formats.load_shards(session, [formats.SESSION_ROW])
    assert (np.load(out / "steps.npy") == rows).all()
    assert_same_metadata(out, session)
    out = export(archive, tmp_path / "sharded", shard_rows=50)
    assert (formats.load_shards(out, [formats.SESSION_ROW]) == rows).all()
    assert not (out / "steps.npy").exists()
    out = export(archive, tmp_path / "part", "source_id IN (1001, 1004)")
    assert (np.load(out / "steps.npy") == rows[np.isin(rows["run_id"], (1001, 1004))]).all()
    assert [row[0] for row in formats.query(out / "metadata.db", RUNS)] == [1001, 1004]
    assert formats.query(out / "metadata.db", SESSION) == formats.query(session / "metadata.db", SESSION)


def test_runs_of_several_sessions_get_new_ids(games: list[Game], tmp_path: Path) -> None:
    formats.write_session(tmp_path / "a", games[:3], first_id=7)
    formats.write_session(tmp_path / "b", games[3:], first_id=7)
    archive = ingested(tmp_path, tmp_path / "a", tmp_path / "b")
    out = export(archive, tmp_path / "out")
    ids = pa.table(archive.sql("SELECT run_id FROM runs ORDER BY run_id"))["run_id"].to_pylist()
    assert [row[0] for row in formats.query(out / "metadata.db", RUNS)] == ids
    assert formats.query(out / "metadata.db", SESSION) == [("model", '{"tag":"test"}')]
    rows = np.load(out / "steps.npy")
    # Neither session had moves.
    assert rows.dtype == formats.SESSION_ROW
    assert np.unique(rows["run_id"]).tolist() == ids
    assert_same_session(export(archive, tmp_path / "b again", "session = 'b'"), tmp_path / "b")


def test_whole_games_become_a_session(tmp_path: Path) -> None:
    a2store.simulate(tmp_path / "runs", runs=3, seed=1, depth=0, engine="alpha", progress=False)
    archive = ingested(tmp_path, tmp_path / "runs")
    plain = export(archive, tmp_path / "plain", moves=False)
    out = export(archive, tmp_path / "out")
    rows = np.load(out / "steps.npy")
    # An existing reader rejects moves, which are omitted on request, and NULL.
    fields = [name for name, _, *_ in formats.SESSION_FIELDS]
    np.testing.assert_array_equal(np.load(plain / "steps.npy"), rows[fields].astype(formats.SESSION_ROW))
    assert rows.dtype == formats.SESSION_ROW_ACTION
    for folder in (plain, out):
        assert formats.query(folder / "metadata.db", "SELECT DISTINCT seed FROM runs") == [(-1,)]
        again = a2store.Archive.create(tmp_path / f"{folder.name}.a2")
        assert again.ingest(folder, progress=False).accepted == 3
        assert pa.table(again.sql("SELECT seed FROM runs"))["seed"].null_count == 3
    steps = pa.table(archive.sql("SELECT run_id, step_index, move FROM steps ORDER BY run_id, step_index"))
    assert (rows["action"] == steps["move"].to_numpy()).all()
    assert (rows["step_idx"] == steps["step_index"].to_numpy()).all()
    assert formats.query(out / "metadata.db", SESSION) == [("model", '{"tag":"alpha"}')]
    with pytest.raises(FileExistsError):
        export(archive, out)


@pytest.mark.parametrize("action", [False, True])
def test_moves_of_an_exported_session(games: list[Game], tmp_path: Path, action: bool) -> None:
    session = tmp_path / "2026_model=test"
    formats.write_session(session, games, action=action)
    archive = ingested(tmp_path, session)
    plain = export(archive, tmp_path / "plain", moves=False)
    formats.write_session(tmp_path / "expected", games)
    assert_same_session(plain, tmp_path / "expected")
    if action:
        assert_same_session(export(archive, tmp_path / "moves", moves=True), session)
    else:
        with pytest.raises(ValueError, match="run 0: an unknown move at step"):
            export(archive, tmp_path / "moves", moves=True)
        assert not (tmp_path / "moves").exists()


def test_ids_from_2_to_the_63_on_keep_their_bits(tmp_path: Path) -> None:
    """SQLite stores such ids as negative numbers, and so does ``runs.source_id``."""
    session = tmp_path / "session"
    formats.write_session(session, [play(random.Random(k), 30) for k in (1, 2)], action=True)
    rows = np.load(session / "steps.npy")
    rows["run_id"] += np.uint64(2**63)
    np.save(session / "steps.npy", rows)
    with sqlite3.connect(session / "metadata.db") as database:
        database.execute("UPDATE runs SET id = id - 9223372036854775807 - 1")
    database.close()
    archive = a2store.Archive.create(tmp_path / "games.a2")
    archive.ingest(session, on_error="raise", progress=False)
    archive.export_runs("SELECT run_id FROM runs", tmp_path / "out", format="session", progress=False)
    assert np.load(tmp_path / "out" / "steps.npy").tobytes() == rows.tobytes()
