"""Games of more than 65,536 steps: from sessions into an archive, SQL, tables and batches, and out again."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import a2store
import formats
import games
from compare import BATCH_COLUMNS, assert_same, keys, row_keys
from oracle import Game

STEPS = 131_072
LENGTHS = [40, STEPS, 65_536, 65_537, 3]
RUN_ID = np.repeat(np.arange(len(LENGTHS)), LENGTHS).astype("u4")
STEP_INDEX = np.concatenate([np.arange(length) for length in LENGTHS]).astype("u4")
KEYS = keys({"run_id": RUN_ID, "step_index": STEP_INDEX})


def repeated(game: Game, length: int) -> Game:
    """Return a game whose boards and moves repeat. Its steps do not follow from one another."""
    take = [step % len(game) for step in range(length)]
    boards, moves = tuple(game.boards[step] for step in take), tuple(game.moves[step] for step in take)
    return replace(game, boards=boards, moves=moves, branches=tuple(game.branches[step] for step in take))


@pytest.fixture(scope="module")
def long_games() -> list[Game]:
    return [repeated(games.play(random.Random(seed), 200), length) for seed, length in enumerate(LENGTHS)]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory, long_games: list[Game]) -> Path:
    folder = tmp_path_factory.mktemp("long") / "session"
    formats.write_session(folder, long_games, action=True, first_id=0)
    return folder


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory, session: Path) -> a2store.Archive:
    archive = a2store.Archive.create(tmp_path_factory.mktemp("long") / "games.a2")
    report = archive.ingest(session, progress=False)
    assert (report.accepted, report.rejected) == (len(LENGTHS), 0)
    return archive


@pytest.fixture(scope="module")
def table(long: a2store.Archive) -> a2store.StepTable:
    return long.sql("SELECT * FROM steps").materialize(progress=False)


def is_whole(table: a2store.StepTable, games: list[Game]) -> None:
    """Check every row of a table with all steps."""
    rows = np.asarray(table)
    assert rows.dtype["step_index"] == np.dtype("u4")
    assert_same(rows["run_id"], RUN_ID)
    assert_same(rows["step_index"], STEP_INDEX)
    assert_same(rows["board"], np.array([board for game in games for board in game.boards], "u8"))
    assert_same(rows["move"], np.array([move for game in games for move in game.moves], "u1"))


def test_sql(long: a2store.Archive) -> None:
    sql = "SELECT run_id, count(*) AS n, max(step_index) AS last, sum(step_index) AS sum FROM steps GROUP BY run_id"
    found = pa.table(long.sql(f"{sql} ORDER BY run_id")).to_pydict()
    assert found["n"] == LENGTHS
    assert found["last"] == [length - 1 for length in LENGTHS]
    assert found["sum"] == [length * (length - 1) // 2 for length in LENGTHS]
    after = pa.table(long.sql("SELECT count(*) AS n FROM steps WHERE step_index > 65535"))["n"].to_pylist()
    assert after == [int((STEP_INDEX > 65_535).sum())]
    assert long.verify(progress=False).problems == []


def test_every_way_into_a_table(
    long: a2store.Archive, table: a2store.StepTable, session: Path, long_games: list[Game], tmp_path: Path
) -> None:
    is_whole(table, long_games)
    assert repr(table).startswith(f"StepTable({len(RUN_ID)} rows of 40 bytes)")
    is_whole(a2store.StepTable.from_session(session, progress=False), long_games)
    is_whole(a2store.StepTable.from_runs([session], progress=False), long_games)
    in_file = long.sql("SELECT * FROM steps").materialize(path=tmp_path / "rows.npy", progress=False)
    is_whole(in_file, long_games)
    # The same rows through one stream, with a filter, and with an extra column.
    for sql in (
        "SELECT * FROM steps ORDER BY run_id, step_index + 1",
        "SELECT * FROM steps WHERE max_exp < 17",
        "SELECT * FROM steps WHERE run_id + step_index >= 0 ORDER BY run_id, step_index",
    ):
        is_whole(long.sql(sql).materialize(extra=["max_exp", "phase"], progress=False), long_games)


def test_tables_of_short_games_stay_narrow(long: a2store.Archive) -> None:
    """Index 65,535 still fits."""
    short = long.sql("SELECT * FROM steps WHERE run_id IN (0, 2, 4)").materialize(progress=False)
    assert (short.dtype.itemsize, short.dtype["step_index"]) == (32, np.dtype("u2"))
    assert np.asarray(short)["step_index"].max() == 65_535
    assert next(iter(short.loader(64))).step_index.dtype == np.dtype("u2")


@pytest.mark.parametrize("symmetries", [False, True])
@pytest.mark.parametrize("columns", [None, ["step_index"], ["tokens", "step_index", "run_id", "board"]])
def test_batches(table: a2store.StepTable, long_games: list[Game], columns: list[str] | None, symmetries: bool) -> None:
    boards = np.array([board for game in long_games for board in game.boards], "u8")
    seen: list[npt.NDArray[Any]] = []
    for batch in table.loader(10_000, seed=3, columns=columns, symmetries=symmetries):
        assert batch.step_index.dtype == np.dtype("u4")
        assert batch.step_index.flags.aligned
        assert columns is None or batch.keys() == columns
        if columns != ["step_index"]:
            seen.append(row_keys([batch]))
            at = np.searchsorted(KEYS, seen[-1])
            if not symmetries:
                assert_same(batch.board, boards[at])
                cells = batch.board[:, None] >> np.arange(60, -1, -4, dtype="u8") & np.uint64(15)
                assert_same(batch.tokens, cells.astype("u1"))
        else:
            seen.append(batch.step_index)
    every = np.sort(np.concatenate(seen))
    assert_same(every, np.sort(STEP_INDEX if columns == ["step_index"] else KEYS))
    if columns is None:
        assert next(iter(table.loader(8))).keys() == BATCH_COLUMNS


def test_rows_views_and_copies(table: a2store.StepTable, long_games: list[Game], tmp_path: Path) -> None:
    picks = np.array([len(RUN_ID) - 1, 40 + 131_071, 0, 40 + 65_536], "i8")
    assert_same(table.take(picks).step_index, STEP_INDEX[picks])
    arrow = pa.table(table)
    assert arrow.schema.field("step_index").type == pa.uint32()
    assert_same(arrow["step_index"].to_numpy(), STEP_INDEX)
    only = table.filter(run_ids=[1])
    assert_same(np.asarray(only)["step_index"], np.arange(STEPS, dtype="u4"))
    is_whole(pickle.loads(pickle.dumps(table)), long_games)

    table.save(tmp_path / "saved.npy")
    assert_same(np.load(tmp_path / "saved.npy")["step_index"], STEP_INDEX)
    for mmap in (False, True):
        is_whole(a2store.StepTable.load(tmp_path / "saved.npy", mmap=mmap, progress=False), long_games)
    # A file by NumPy, whose rows have gaps of any content, and one with other fields.
    rows = np.asarray(table)
    np.save(tmp_path / "padded.npy", rows)
    packed = np.empty(len(rows), [("step_index", "<u4"), ("board", "<u8"), ("move", "u1"), ("run_id", "<u4")])
    for name in packed.dtype.names or ():
        packed[name] = rows[name]
    np.save(tmp_path / "packed.npy", packed)
    for name in ("padded.npy", "packed.npy"):
        is_whole(a2store.StepTable.load(tmp_path / name, progress=False), long_games)


def test_attached_by_step(table: a2store.StepTable, tmp_path: Path) -> None:
    steps = np.empty(len(RUN_ID), [("run_id", "<u4"), ("step_index", "<u4")])
    steps["run_id"], steps["step_index"] = RUN_ID, STEP_INDEX
    order = np.random.default_rng(0).permutation(len(steps))
    np.save(tmp_path / "steps.npy", steps[order])
    np.save(tmp_path / "values.npy", np.arange(len(steps), dtype="f4")[order, None])
    with_values = table.attach("value", tmp_path / "values.npy", progress=False)
    for batch in with_values.loader(50_000):
        assert_same(batch["value"], np.searchsorted(KEYS, row_keys([batch])).astype("f4"))


def test_exports(long: a2store.Archive, long_games: list[Game], tmp_path: Path) -> None:
    """A dataset stores indices modulo 65,536."""
    long.export_runs("SELECT run_id FROM runs", tmp_path / "session", format="session", progress=False)
    found = np.load(tmp_path / "session" / "steps.npy")
    assert_same(found["step_idx"], STEP_INDEX)
    long.export_runs("SELECT run_id FROM runs", tmp_path / "dataset", format="npy", progress=False)
    assert_same(np.load(tmp_path / "dataset" / "steps.npy")["step_index"], STEP_INDEX.astype("u2"))
    formats.write_dataset(tmp_path / "foreign", long_games)
    for folder in ("session", "dataset", "foreign"):
        is_whole(a2store.StepTable.from_runs([tmp_path / folder], progress=False), long_games)
