"""Attached columns: each row has the values of its step for any order of table and array; mismatches are rejected."""

from __future__ import annotations

import multiprocessing
import pickle
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
import formats
import sources
from games import play
from oracle import Array, Game

NAME = "embeddings.bf16.npy"
WIDTH = 12


@pytest.fixture(scope="module")
def games() -> list[Game]:
    return [play(random.Random(seed), length) for seed, length in enumerate((70, 31, 1, 55, 40, 120))]


@pytest.fixture
def session(games: list[Game], tmp_path: Path) -> Path:
    formats.write_session(tmp_path / "session", games, embedding=WIDTH)
    return tmp_path / "session"


def values_by_step(folder: Path) -> dict[tuple[int, int], Array]:
    """Return the bits of each step's embedding, read by NumPy alone."""
    rows = formats.load_shards(folder, [formats.SESSION_ROW, formats.SESSION_ROW_ACTION])
    keys = zip(rows["run_id"].tolist(), rows["step_idx"].tolist(), strict=True)
    return dict(zip(keys, np.load(folder / NAME), strict=True))


def expected(batch: a2store.Batch, values: dict[tuple[int, int], Array]) -> Array:
    keys = zip(batch.run_id.tolist(), batch.step_index.tolist(), strict=True)
    return np.array([values[key] for key in keys], dtype="u2").reshape(len(batch), -1)


def attached(folder: Path, **options: Any) -> a2store.StepTable:
    return a2store.StepTable.from_session(folder, progress=False).attach("embedding", folder / NAME, **options)


def shuffled(folder: Path, seed: int) -> None:
    """Permute the rows of a session together with their embeddings."""
    rows, values = np.load(folder / "steps.npy"), np.load(folder / NAME)
    order = np.random.default_rng(seed).permutation(len(rows))
    (folder / "keys").mkdir()
    np.save(folder / "keys" / "steps.npy", rows[["run_id", "step_idx"]][order])
    np.save(folder / "keys" / NAME, values[order])
    (folder / "keys" / "embeddings.json").write_text((folder / "embeddings.json").read_text())


def test_the_fixture(fixtures: Path) -> None:
    table = attached(fixtures / "session")
    values = values_by_step(fixtures / "session")
    assert len(table) == len(values) == 2398
    batch = table.take(range(len(table)))
    assert (batch.embedding.dtype, batch.embedding.shape) == (np.dtype("u2"), (2398, 8))
    assert batch.bfloat16_columns == table.attached == ["embedding"]
    assert (batch.embedding == expected(batch, values)).all()
    assert set(batch.run_id.tolist()) == {1000, 1001, 1002, 1003}


def test_a_session_as_a_table(session: Path, games: list[Game]) -> None:
    table = a2store.StepTable.from_session(session, progress=False)
    at = 0
    for run_id, game in enumerate(games, 1000):
        batch = table.take(range(at, at + len(game)))
        assert (batch.run_id == run_id).all()
        assert batch.step_index.tolist() == list(range(len(game)))
        assert batch.board.tolist() == list(game.boards)
        assert np.isnan(batch.ev_values).all()
        moves = sources.derived_moves(range(len(game)), game.boards)
        assert batch.move.tolist() == [255 if move is None else move for move in moves]
        at += len(game)
    assert len(table) == at
    best = max(game.max_score for game in games)
    assert set(np.asarray(table.filter(min_score=best, engine="test"))["run_id"].tolist()) == {
        run_id for run_id, game in enumerate(games, 1000) if game.max_score == best
    }


@pytest.mark.parametrize("order", ["same", "other"])
def test_every_access_to_the_column(session: Path, order: str) -> None:
    values = values_by_step(session)
    path = session / NAME
    if order == "other":
        shuffled(session, 3)
        path = session / "keys" / NAME
    plain = a2store.StepTable.from_session(session, progress=False)
    table = plain.attach("embedding", path)
    assert (plain.attached, table.attached, table.fingerprint) == ([], ["embedding"], plain.fingerprint)

    def check(batch: a2store.Batch) -> None:
        assert (batch.embedding == expected(batch, values)).all()

    check(table.take([5, 0, 5, len(table) - 1]))
    for view in (table.filter(run_ids=[1002, 1005]), *table.split(0.5, seed=1)):
        check(view.take(range(len(view))))
    for options in ({}, {"shuffle": False}, {"window": 64}, {"columns": ["embedding", "run_id", "step_index"]}):
        loader = table.loader(64, **options)
        batches = list(loader)
        assert sum(map(len, batches)) == len(table)
        for batch in batches:
            check(batch)
    # A loader's state depends only on the rows, so it fits with and without the column.
    loader = plain.loader(64)
    next(iter(loader))
    table.loader(64).load_state_dict(loader.state_dict())

    columns = pa.table(table)
    assert columns["embedding"].type == pa.list_(pa.field("item", pa.uint16(), nullable=False), WIDTH)
    assert columns.schema.field("embedding").metadata == {b"a2store.dtype": b"bfloat16"}
    flat = columns["embedding"].combine_chunks().flatten().to_numpy().reshape(-1, WIDTH)
    assert (flat == expected(table.take(range(len(table))), values)).all()
    batch = pa.record_batch(table.take([3]))
    assert batch.schema.field("embedding").metadata == {b"a2store.dtype": b"bfloat16"}
    # The column does not change the rows.
    assert np.asarray(table).dtype == plain.dtype == table.dtype
    table.save(session / "rows.npy", progress=False)
    assert a2store.StepTable.load(session / "rows.npy").attached == []


def test_an_attached_table_can_be_pickled(session: Path) -> None:
    table = attached(session)
    view = pickle.loads(pickle.dumps(table.filter(run_ids=[1000, 1005])))
    batch = view.take(range(len(view)))
    assert (batch.embedding == expected(batch, values_by_step(session))).all()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(total, (table,)) == total(table)
    handle = pickle.dumps(table)
    values = np.load(session / NAME)
    np.save(session / NAME, values + 1)
    with pytest.raises(a2store.DamagedError, match="the file of a shared table"):
        pickle.loads(handle)


def total(table: a2store.StepTable) -> int:
    return sum(int(batch.embedding.sum(dtype="u8")) for batch in table.loader(50))


@pytest.mark.parametrize("steps_of", ["u1 u2", "i8 u4", "u4 i2"])
def test_keys_of_any_integers(session: Path, steps_of: str, tmp_path: Path) -> None:
    run, step = steps_of.split()
    rows = np.load(session / "steps.npy")
    named = np.zeros(len(rows), [("pad", "V3"), ("step_index", f"<{step}"), ("run_id", f"<{run}")])
    named["run_id"], named["step_index"] = rows["run_id"] - 1000, rows["step_idx"]
    np.save(tmp_path / "keys.npy", named)
    saved = np.asarray(a2store.StepTable.from_session(session, progress=False)).copy()
    saved["run_id"] -= 1000
    np.save(tmp_path / "rows.npy", saved)
    table = a2store.StepTable.load(tmp_path / "rows.npy").attach("e", session / NAME, tmp_path / "keys.npy")
    values = values_by_step(session)
    batch = table.take(range(len(table)))
    keys = zip((batch.run_id + 1000).tolist(), batch.step_index.tolist(), strict=True)
    assert (batch.e == np.array([values[key] for key in keys])).all()


def test_shards_and_a_sample(games: list[Game], tmp_path: Path) -> None:
    formats.write_session(tmp_path, games, embedding=3, shards=3, sample_rate=4)
    table = attached(tmp_path)
    batch = table.take(range(len(table)))
    assert (batch.embedding == expected(batch, values_by_step(tmp_path))).all()
    assert set((batch.step_index % 4).tolist()) == {0}


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", "|i1", "<u2"])
def test_an_array_of_other_types(session: Path, dtype: str) -> None:
    values = np.random.default_rng(1).integers(0, 100, np.load(session / NAME).shape).astype(dtype)
    np.save(session / "other.npy", values)
    batch = a2store.StepTable.from_session(session).attach("other", session / "other.npy").take([7, 2])
    assert batch.bfloat16_columns == []
    assert batch.other.dtype == np.dtype(dtype)
    assert (batch.other == values[[7, 2]]).all()


def test_mismatches_are_rejected(session: Path) -> None:
    """The crate's tests try other arrays, descriptions and keys."""
    table = a2store.StepTable.from_session(session, progress=False)
    rows, values = np.load(session / "steps.npy"), np.load(session / NAME)

    def refused(error: type[Exception], match: str, name: str = "embedding") -> None:
        with pytest.raises(error, match=match):
            table.attach(name, session / NAME)

    np.save(session / NAME, values[:-1])
    refused(a2store.DecodeError, rf"{NAME}: rows of the array: expected {len(rows)}, as many as .*steps.npy, found")
    np.save(session / NAME, values)
    refused(ValueError, "name: expected an unused column name", "move")
    with pytest.raises(ValueError, match="symmetries: expected false with the attached column embedding"):
        table.attach("embedding", session / NAME).loader(symmetries=True)
    other = rows.copy()
    other["step_idx"][40] = 500
    np.save(session / "steps.npy", other)
    refused(a2store.ColumnError, "column embedding, row 40: expected a row of run 1000, step 40, found none in .*steps")
    games = rows.copy()
    games["exps"][40, 3] ^= 1
    np.save(session / "steps.npy", games)
    refused(
        a2store.ColumnError, "row 40: expected a row of run 1000, step 40, found another board in row 40 of .*steps"
    )
    np.save(session / "steps.npy", games[::-1])
    refused(a2store.ColumnError, f"row 40: expected .* found another board in row {len(rows) - 41} of .*steps")


def test_boards_of_keys_that_cannot_be_compared(session: Path, tmp_path: Path) -> None:
    table = a2store.StepTable.from_session(session, progress=False)
    keys = np.zeros(2, [("run_id", "<u4"), ("step_index", "<u4"), ("exps", "u1", 16)])
    np.save(tmp_path / "values.npy", np.zeros((4, 3), "<f4"))
    np.save(tmp_path / "steps-00000.npy", keys)
    np.save(tmp_path / "steps-00001.npy", np.zeros(2, [("run_id", "<u4"), ("step_index", "<u4")]))
    with pytest.raises(a2store.DecodeError, match="boards in all files or in none"):
        table.attach("values", tmp_path / "values.npy")
    keys["exps"][1, 3] = 17
    np.save(tmp_path / "steps-00001.npy", keys)
    with pytest.raises(a2store.DecodeError, match=r"exps of a key: expected 0\.\.=16, found 17"):
        table.attach("values", tmp_path / "values.npy")


def test_files_that_are_missing(session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = a2store.StepTable.from_session(session, progress=False)
    monkeypatch.chdir(tmp_path / "session")
    (tmp_path / "empty").mkdir()
    missing = tmp_path / "empty" / "missing.npy"
    asked: list[tuple[dict[str, Any], str]] = [
        ({"path": missing}, str(missing)),
        ({"path": "/missing.npy"}, "/missing.npy"),
        ({"path": "missing.npy"}, str(session / "missing.npy")),
        ({"path": missing, "steps": missing}, str(missing)),
        ({"path": missing, "steps": session}, str(missing)),
        ({"path": NAME, "steps": missing}, str(missing)),
    ]
    for options, name in asked:
        with pytest.raises(FileNotFoundError) as caught:
            table.attach("embedding", **options)
        assert caught.value.filename == name
    with pytest.raises(a2store.DecodeError, match=r"empty: .* expected embeddings.npy or shards of it"):
        table.attach("embedding", tmp_path / "empty")


def test_tensors_of_bfloat16(session: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    from a2store.torch import StepLoader

    table = attached(session)
    values = {key: np.left_shift(bits.astype("u4"), 16).view("f4") for key, bits in values_by_step(session).items()}

    def check(batch: dict[str, Any]) -> None:
        found = batch["embedding"]
        assert (found.dtype, found.shape) == (torch.bfloat16, (len(batch["run_id"]), WIDTH))
        keys = zip(batch["run_id"].tolist(), batch["step_index"].tolist(), strict=True)
        assert (found.float().numpy() == np.array([values[key] for key in keys])).all()

    rows = 0
    for batch in StepLoader(table, 64):
        check(batch)
        rows += len(batch["run_id"])
    assert rows == len(table)
    if sys.platform == "linux":
        for batch in DataLoader(StepLoader(table, 64, prefetch=0), batch_size=None, num_workers=2):
            check(batch)
    (batch,) = DataLoader(table, batch_sampler=[[3, 1, 2]])  # type: ignore[arg-type]
    check(batch)
