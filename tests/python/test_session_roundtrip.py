"""A session that is ingested into an archive and exported again has the same content."""

from __future__ import annotations

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
from oracle import Array, Game

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


def load(folder: Path) -> Array:
    return np.concatenate([np.load(path) for path in sorted(folder.glob("steps*.npy"))])


def assert_same_games(found: Path, expected: Path, ids: list[int] | None = None) -> None:
    """Check that two sessions have the same runs and rows, in the order of ids. ``ids`` selects runs of the second."""
    ours, theirs = (formats.query(folder / "metadata.db", RUNS) for folder in (found, expected))
    theirs = [row for row in theirs if ids is None or row[0] in ids]
    assert [row[1:] for row in ours] == [(-1 if row[1] is None else row[1], *row[2:]) for row in theirs]
    assert [row[0] for row in ours] == sorted({row[0] for row in ours})
    rows, others = load(found), load(expected)
    assert rows.dtype == others.dtype
    for (mine, *_), (other, *_) in zip(ours, theirs, strict=True):
        one, two = rows[rows["run_id"] == mine], others[others["run_id"] == other % 2**64]
        for name in one.dtype.names or ():
            if name != "run_id":
                assert np.array_equal(one[name], two[name]), (name, other)


def test_the_fixture_round_trips(fixtures: Path, tmp_path: Path) -> None:
    archive = ingested(tmp_path, fixtures / "session")
    assert_same_games(export(archive, tmp_path / "out"), fixtures / "session")


@pytest.mark.parametrize("action", [False, True])
@pytest.mark.parametrize("sample_rate", [1, 7])
@pytest.mark.parametrize("first_id", [0, 2**40])
def test_a_session_round_trips(
    games: list[Game], tmp_path: Path, action: bool, sample_rate: int, first_id: int
) -> None:
    session = tmp_path / "2026_model=test"
    formats.write_session(session, games, action=action, sample_rate=sample_rate, first_id=first_id)
    with sqlite3.connect(session / "metadata.db") as database:
        # Text that is not JSON, and NULL.
        odd = [("odd", '{"b" : 1,\n "a": 1.50}'), ("text", "no JSON"), ("none", None)]
        database.executemany("INSERT INTO session VALUES(?,?)", odd)
        database.execute("UPDATE runs SET seed = NULL WHERE id = ?", (first_id + 1,))
        database.execute("UPDATE runs SET seed = -5 WHERE id = ?", (first_id + 2,))
    database.close()
    archive = ingested(tmp_path, session)
    out = export(archive, tmp_path / "out")
    assert_same_games(out, session)
    # Ids are those of the archive, and the only entry is the engine.
    assert [row[0] for row in formats.query(out / "metadata.db", RUNS)] == list(range(len(games)))
    assert formats.query(out / "metadata.db", SESSION) == [("model", '{"tag":"test"}')]
    # Compaction, another archive and a conversion preserve it.
    archive.compact(progress=False)
    assert_same_games(export(archive, tmp_path / "compacted"), session)
    again = ingested(tmp_path / "again", tmp_path / "compacted")
    assert_same_games(export(again, tmp_path / "twice"), session)
    a2store.convert(session, tmp_path / "converted", format="session", progress=False)
    assert_same_games(tmp_path / "converted", session)
    runs = pa.table(archive.sql("SELECT source_id, seed, game_steps FROM runs ORDER BY run_id"))
    assert runs["seed"].to_pylist()[1:3] == [None, 2**64 - 5]
    assert pa.table(again.sql("SELECT seed FROM runs ORDER BY run_id"))["seed"] == runs["seed"]
    assert runs["source_id"].to_pylist() == list(range(first_id, first_id + len(games)))
    assert runs["game_steps"].to_pylist() == [len(game) for game in games]


def test_shards_and_a_part_of_a_session(games: list[Game], tmp_path: Path) -> None:
    session = tmp_path / "session"
    formats.write_session(session, games, shards=3, sample_rate=2)
    archive = ingested(tmp_path, session)
    out = export(archive, tmp_path / "sharded", shard_rows=50)
    assert_same_games(out, session)
    assert not (out / "steps.npy").exists()
    out = export(archive, tmp_path / "part", "source_id IN (1001, 1004)")
    assert_same_games(out, session, [1001, 1004])


def test_runs_of_several_sessions_keep_the_archives_ids(games: list[Game], tmp_path: Path) -> None:
    formats.write_session(tmp_path / "a", games[:3], first_id=7)
    formats.write_session(tmp_path / "b", games[3:], first_id=7)
    archive = ingested(tmp_path, tmp_path / "a", tmp_path / "b")
    out = export(archive, tmp_path / "out")
    ids = pa.table(archive.sql("SELECT run_id FROM runs ORDER BY run_id"))["run_id"].to_pylist()
    assert [row[0] for row in formats.query(out / "metadata.db", RUNS)] == ids
    # Neither session had moves.
    assert load(out).dtype == formats.SESSION_ROW
    assert np.unique(load(out)["run_id"]).tolist() == ids
    assert_same_games(export(archive, tmp_path / "b again", "session = 'b'"), tmp_path / "b")


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


def test_ids_from_2_to_the_63_on_keep_their_bits(tmp_path: Path) -> None:
    """SQLite stores such ids as negative numbers, and so does ``runs.source_id``."""
    session = tmp_path / "session"
    formats.write_session(session, [play(random.Random(k), 30) for k in (1, 2)], action=True)
    rows = np.load(session / "steps.npy")
    rows["run_id"] += np.uint64(2**63)
    np.save(session / "steps.npy", rows)
    formats.execute(session / "metadata.db", "UPDATE runs SET id = id - 9223372036854775807 - 1")
    archive = ingested(tmp_path, session)
    ids = pa.table(archive.sql("SELECT source_id FROM runs ORDER BY run_id"))["source_id"].to_pylist()
    assert [number % 2**64 for number in ids] == np.unique(rows["run_id"]).tolist()
    assert_same_games(export(archive, tmp_path / "out"), session)
