"""Attached columns from queries, Arrow tables and structured arrays: each row has the value of its step."""

from __future__ import annotations

import multiprocessing
import pickle
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
import formats
import games
from a2store._a2store import _attach
from annotations import Array, predictions, write_annotations
from compare import assert_same

FIRST_ID = 1000
"""The first id of ``formats.write_session``."""
SQL = "SELECT run_id, step_index, policy_p1 FROM annotations WHERE model = 'm'"


@dataclass(frozen=True)
class Made:
    archive: a2store.Archive
    table: a2store.StepTable
    rows: Array
    """The annotations of model ``m``, with the archive's run ids."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Return an archive whose model has annotated all runs but the last."""
    folder = tmp_path_factory.mktemp("attach")
    played = {FIRST_ID + i: games.play(random.Random(i), steps) for i, steps in enumerate((30, 1, 77, 12))}
    formats.write_session(folder / "pool", list(played.values()), action=True)
    archive = a2store.Archive.create(folder / "games.a2")
    archive.ingest(folder / "pool", progress=False)
    rows = predictions({run_id: game for run_id, game in played.items() if run_id < FIRST_ID + 3})
    write_annotations(folder / "p", rows)
    shutil.copy(folder / "pool" / "metadata.db", folder / "p")
    archive.annotate("other", folder / "p", progress=False)
    archive.annotate("m", folder / "p", progress=False)
    rows["run_id"] -= FIRST_ID
    table = archive.sql("SELECT * FROM steps WHERE run_id < 3").materialize(progress=False)
    return Made(archive, table, rows)


def by_step(rows: Array, field: str) -> dict[tuple[int, int], bytes]:
    keys = zip(rows["run_id"].tolist(), rows["step_index"].tolist(), strict=True)
    return {key: value.tobytes() for key, value in zip(keys, rows[field], strict=True)}


def assert_values(batch: a2store.Batch, name: str, values: dict[tuple[int, int], bytes]) -> None:
    keys = zip(batch.run_id.tolist(), batch.step_index.tolist(), strict=True)
    assert [value.tobytes() for value in batch[name]] == [values[key] for key in keys]


def test_a_query_of_annotations(made: Made) -> None:
    table = made.table.attach("policy_p1", made.archive.sql(SQL), progress=False)
    assert (table.attached, made.table.attached) == (["policy_p1"], [])
    assert (table.fingerprint, table.stride, table.nbytes) == (made.table.fingerprint, 32, made.table.nbytes)
    batch = table.take(np.arange(len(table)))
    assert (batch["policy_p1"].dtype, batch["policy_p1"].shape) == (np.dtype("f4"), (len(table), 4))
    assert_same(batch["policy_p1"], made.rows["policy_p1"])
    values = by_step(made.rows, "policy_p1")
    seen = 0
    for batch in table.loader(16, columns=["policy_p1", "run_id", "step_index", "tokens"]):
        assert_values(batch, "policy_p1", values)
        seen += len(batch)
    assert seen == len(table)
    for view in (table.filter(run_ids=[2]), *table.train_test_split(0.5, seed=2)):
        assert_values(view.take(np.arange(len(view))), "policy_p1", values)
    column = pa.table(table)["policy_p1"].combine_chunks()
    assert column.type == pa.list_(pa.field("item", pa.float32(), nullable=False), 4)
    assert_same(column.flatten().to_numpy().reshape(-1, 4), made.rows["policy_p1"])
    with pytest.raises(ValueError, match="symmetries: expected false with the attached column policy_p1"):
        table.loader(8, symmetries=True)


def tables(rows: Array, order: Array) -> Iterator[Any]:
    """Yield the same rows in every form: structured array, Arrow table, stream, batch, other key types."""
    shuffled = rows[order]
    array = np.zeros(len(rows), [("pad", "u1"), ("step_idx", "<i2"), ("prob", "<f4"), ("run_id", "<u8")])
    for name, field in (("step_idx", "step_index"), ("prob", "argmax_prob"), ("run_id", "run_id")):
        array[name] = shuffled[field]
    yield array[["step_idx", "prob", "run_id"]]
    arrow = pa.table({name: shuffled[name] for name in ("run_id", "step_index", "argmax_prob")})
    yield arrow
    yield arrow.to_reader(max_chunksize=7)
    yield arrow.to_batches()[0]
    yield arrow.set_column(0, "run_id", arrow["run_id"].cast(pa.int16()))


@pytest.mark.parametrize("order", ["same", "reversed", "random"])
def test_rows_of_every_form_and_order(made: Made, order: str) -> None:
    places = np.arange(len(made.rows))
    if order != "same":
        places = places[::-1] if order == "reversed" else np.random.default_rng(0).permutation(places)
    values = by_step(made.rows, "argmax_prob")
    for rows in tables(made.rows, places):
        table = made.table.attach("prob", rows, progress=False)
        assert table.take([])["prob"].dtype == np.float32
        assert_values(table.take(places), "prob", values)
    # A view needs only its own rows.
    view = made.table.filter(run_ids=[1, 2])
    rows = made.rows[places][made.rows[places]["run_id"] != 0]
    part = pa.table({name: rows[name] for name in ("run_id", "step_index", "argmax_prob")})
    assert_values(view.attach("prob", part).take(np.arange(len(view))), "prob", values)


def test_types_of_values(made: Made) -> None:
    keys = {name: made.rows[name] for name in ("run_id", "step_index")}
    number = np.arange(len(made.rows)) % 100
    for dtype in ("?", "<i1", "<i8", "<u2", "<u4", "<f2", "<f8"):
        values = number.astype(dtype)
        batch = made.table.attach("x", pa.table({**keys, "value": values})).take(np.arange(len(made.rows)))
        assert_same(batch["x"], values, dtype)
    holes = pa.array(number.astype("f4"), mask=number % 7 == 0)
    batch = made.table.attach("x", pa.table({**keys, "value": holes})).take(np.arange(len(made.rows)))
    assert_same(batch["x"], np.where(number % 7 == 0, np.nan, number).astype("f4"))


def test_boards_are_compared(made: Made) -> None:
    batch = made.table.take(np.arange(len(made.table)))
    rows = {"run_id": batch.run_id, "step_index": batch.step_index, "board": batch.board.copy(), "x": batch.move}
    assert_same(made.table.attach("x", pa.table(rows)).take(np.arange(len(made.table)))["x"], batch.move)
    rows["board"][40] ^= 1
    message = "column x, row 40: expected a row of run 2, step 9, found another board in row 40 of the attached rows"
    with pytest.raises(a2store.ColumnError, match=message):
        made.table.attach("x", pa.table(rows))


def test_rows_that_do_not_fit(made: Made, tmp_path: Path) -> None:
    rows = made.rows
    columns: dict[str, Any] = {name: rows[name] for name in ("run_id", "step_index", "argmax_prob")}
    plain = pa.table(columns)

    def refused(table: Any, error: type[Exception], message: str, **options: Any) -> None:
        with pytest.raises(error, match=message):
            made.table.attach("x", table, progress=False, **options)

    missing = r"column x, row 31: expected a row of run 2, step 0, found none in the attached rows"
    refused(plain.filter(pa.array((rows["run_id"] != 2) | (rows["step_index"] > 3))), a2store.ColumnError, missing)
    everything = made.archive.sql("SELECT * FROM steps").materialize(progress=False)
    with pytest.raises(a2store.ColumnError, match="row 108: expected a row of run 3, step 0"):
        everything.attach("policy_p1", made.archive.sql(SQL), progress=False)
    twice = pa.concat_tables([plain, plain.slice(5, 1)])
    refused(twice, a2store.ColumnError, f"row {len(rows)}: expected each step of each run once, found run 0, step 5")
    # Both models have the same steps.
    query = made.archive.sql("SELECT run_id, step_index, argmax_prob FROM annotations")
    refused(query, a2store.ColumnError, "each step of each run once")
    shape = "rows: expected the columns run_id and step_index, one column of values"
    refused(plain.drop_columns(["run_id"]), ValueError, shape)
    refused(plain.drop_columns(["argmax_prob"]), ValueError, shape)
    refused(plain.append_column("more", plain["argmax_prob"]), ValueError, shape)
    refused(plain.append_column("step_idx", plain["step_index"]), ValueError, shape)
    refused(plain.append_column("run_id", plain["run_id"]), ValueError, shape)
    floats = plain.set_column(0, "run_id", plain["run_id"].cast(pa.float32()))
    refused(floats, a2store.ColumnError, "run_id: expected integers, found Float32")
    board = plain.append_column("board", plain["argmax_prob"])
    refused(board, a2store.ColumnError, "board: expected uint64, found Float32")
    null = plain.set_column(1, "step_index", pa.array(rows["step_index"], mask=np.arange(len(rows)) == 9))
    refused(null.to_reader(max_chunksize=4), a2store.ColumnError, "step_index, row 9: expected a value, found NULL")
    text = plain.set_column(2, "argmax_prob", plain["argmax_prob"].cast(pa.string()))
    refused(text, a2store.ColumnError, "argmax_prob: expected booleans, integers, floats")
    refused(plain, ValueError, "steps: expected none, because the rows have the keys", steps=tmp_path)
    refused(plain, a2store.MemoryLimitError, "but its memory limit is 100 bytes", memory_limit=100)
    refused(5, TypeError, "path: x: expected a file's path, or a table")
    limited = made.archive.sql(SQL, row_limit=3)
    refused(limited, a2store.QueryLimitError, "limit of rows: 3 rows allowed")
    with pytest.raises(ValueError, match="name: expected an unused column name"):
        made.table.attach("move", plain)


def policies(table: a2store.StepTable) -> Any:
    return table.take(range(len(table)))["policy_p1"].tobytes()


@pytest.mark.parametrize("order", ["the table's", "any"])
def test_other_processes_have_the_column(made: Made, order: str) -> None:
    sql = SQL if order == "any" else f"{SQL} ORDER BY run_id, step_index"
    whole = made.table.attach("policy_p1", made.archive.sql(sql), progress=False)
    # The values may come in any order: here from the last step to the first.
    rows = pa.table(made.archive.sql(SQL))
    whole = whole.attach("last", rows.take(np.arange(len(rows))[::-1]), progress=False)
    for table in (whole, whole.filter(run_ids=[1, 2])):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(policies, (table,)) == policies(table)
        again = pickle.loads(pickle.dumps(table))
        assert again.attached == ["policy_p1", "last"]
        assert again.take(range(len(again)))["last"].tobytes() == policies(table)
    assert len(pickle.dumps(whole)) < 2048
    changed = bytearray(whole.__reduce__()[1][0])
    for place in range(0, len(changed), 3):
        changed[place] ^= 1
        try:
            found = _attach(bytes(changed))
        except (a2store.Error, OSError, ValueError):
            pass
        else:
            found.take(range(len(found)))
        changed[place] ^= 1


def test_an_empty_table(made: Made) -> None:
    empty = made.archive.sql("SELECT * FROM steps WHERE run_id > 99").materialize(progress=False)
    query = made.archive.sql(SQL + " AND run_id > 99")
    assert empty.attach("policy_p1", query, progress=False).take([])["policy_p1"].shape == (0, 4)
