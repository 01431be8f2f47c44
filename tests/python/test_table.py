"""Tables: the layout of rows, and every way to access them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import a2store
import oracle
from compare import BATCH_COLUMNS, assert_same, column
from duck import of_files
from oracle import Array


@pytest.fixture(scope="module")
def expected(steps: dict[str, Array]) -> dict[str, Array]:
    """The expected fields of the table."""
    return {
        "board": steps["board"],
        "ev_values": oracle.table_evs(steps),
        "run_id": steps["run_id"],
        "step_index": steps["step_index"].astype("u2"),
        "move": steps["move"],
        "ev_legal": steps["ev_legal"],
    }


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> a2store.Archive:
    """An archive whose steps take more than one row group."""
    folder = tmp_path_factory.mktemp("large")
    a2store.simulate(folder / "runs", runs=1_600, seed=9, depth=0, progress=False)
    archive = a2store.Archive.create(folder / "games.a2", phases={"mid": 256, "late": 512})
    archive.ingest(folder / "runs", progress=False)
    (file,) = archive.files("steps")
    groups = duckdb.execute(f"SELECT count(DISTINCT row_group_id) FROM parquet_metadata('{file}')").fetchall()
    assert groups[0][0] >= 2
    return archive


def test_the_layout_of_a_row(table: a2store.StepTable, steps: dict[str, Array]) -> None:
    dtype = table.dtype
    assert dtype.fields is not None
    offsets = {name: field[1] for name, field in dtype.fields.items()}
    assert offsets == {"board": 0, "ev_values": 8, "run_id": 24, "step_index": 28, "move": 30, "ev_legal": 31}
    assert dtype.names == tuple(offsets)
    types = [dtype[name] for name in offsets]
    assert types == [np.dtype(text) for text in ("<u8", "(4,)<f4", "<u4", "<u2", "u1", "u1")]
    assert (dtype.itemsize, table.stride) == (32, 32)
    assert len(table) == len(steps["board"])
    assert table.nbytes == 32 * len(table)


def test_asarray_is_the_data(table: a2store.StepTable, expected: dict[str, Array]) -> None:
    rows = np.asarray(table)
    assert (rows.dtype, rows.shape) == (table.dtype, (len(table),))
    for name, values in expected.items():
        assert_same(rows[name], values, name)


def test_asarray_is_a_read_only_view(table: a2store.StepTable) -> None:
    rows = np.asarray(table)
    assert not rows.flags.writeable
    assert not rows.flags.owndata
    with pytest.raises(ValueError, match=r"read-only|WRITEABLE"):
        rows["move"][0] = 1
    with pytest.raises(ValueError, match=r"read-only|WRITEABLE"):
        rows.flags.writeable = True
    again = np.asarray(table)
    assert np.shares_memory(rows, again)
    assert rows.ctypes.data == again.ctypes.data
    assert rows.ctypes.data % 64 == 0
    binary = pa.array(table.rows_array())
    assert binary.buffers()[1].address == rows.ctypes.data
    copy = np.array(table)
    assert copy.flags.writeable
    assert not np.shares_memory(rows, copy)
    with pytest.raises(ValueError, match="copy"):
        np.asarray(table, dtype="V32", copy=False)


def test_rows_array_has_the_bytes(table: a2store.StepTable) -> None:
    binary = pa.array(table.rows_array())
    assert binary.type == pa.binary(32)
    assert (len(binary), binary.null_count, len(table.rows_array())) == (len(table), 0, len(table))
    assert b"".join(binary.to_pylist()) == np.asarray(table).tobytes()


def test_columns(table: a2store.StepTable, expected: dict[str, Array]) -> None:
    columns = pa.table(table)
    assert columns.column_names == list(expected)
    assert all(not field.nullable for field in columns.schema)
    for name in ("board", "run_id", "step_index", "move", "ev_legal"):
        assert_same(column(columns, name), expected[name], name)
    evs = columns["ev_values"].combine_chunks()
    assert evs.type.list_size == 4
    assert_same(evs.values.to_numpy().reshape(-1, 4), expected["ev_values"])


@pytest.mark.parametrize(
    "indices",
    [
        [5, 0, 5, 20_000, 1],
        (3, 2, 1),
        range(100, 0, -7),
        [],
        (),
        np.array([], "u8"),
        np.array([], "f8"),
        np.array([7, 7, 3], "u8"),
        np.array([9, 1], "i4"),
        np.array([9, 1], ">i8"),
        np.array([200, 1], "u1"),
        np.arange(1000, dtype="i8")[::-3],
        np.random.default_rng(1).integers(0, 20_000, 10_000),
        # Enough rows for several threads.
        np.random.default_rng(1).integers(0, 20_000, 150_001),
        [np.uint16(3), np.uint16(65_535 % 20_000)],
    ],
)
def test_take(table: a2store.StepTable, expected: dict[str, Array], indices: Any) -> None:
    batch = table.take(indices)
    rows = np.asarray(indices).astype("i8")
    assert len(batch) == len(rows)
    for name in ("board", "run_id", "step_index", "move", "ev_values"):
        assert_same(batch[name], expected[name][rows], name)
        assert_same(getattr(batch, name), expected[name][rows], name)
    assert_same(batch.tokens, oracle.tokens(expected["board"][rows]))
    assert_same(batch.ev_legal, oracle.mask_bits(expected["ev_legal"][rows]))


@pytest.mark.parametrize("dtype", ["i8", "u8", "i4"])
def test_take_out_of_bounds(table: a2store.StepTable, dtype: str) -> None:
    for index in (len(table), len(table) + 5, 2**31 - 1):
        with pytest.raises(IndexError, match=str(index)):
            table.take(np.array([0, index, 10**9], dtype))
    table.take(np.array([len(table) - 1], dtype))


def test_take_of_negative_and_huge_indices(table: a2store.StepTable) -> None:
    length = len(table)
    ends = table.take([-1, 0, -length])
    assert [len(ends), *ends["step_index"][1:]] == [3, 0, 0]
    assert ends["board"][0] == np.asarray(table)["board"][-1]
    with pytest.raises(IndexError, match=str(-length - 1)):
        table.take([0, -length - 1])
    for index in (2**64, -(2**63) - 1, -(2**100)):
        with pytest.raises(IndexError, match=str(index)):
            table.take([3, index])
    with pytest.raises(IndexError, match=str(2**63)):
        # NumPy has no integer type for both.
        table.take([-1, 2**63])
    huge: list[Any] = [np.array([2**64 - 1], "u8"), [2**63], [2**200]]
    for indices in huge:
        with pytest.raises(IndexError):
            table.take(indices)


@pytest.mark.parametrize(
    "indices", [[0.0], np.array([1.5]), ["0"], [None], np.array([True, False]), [1, 2.0], [True], [2**64, True]]
)
def test_take_of_non_integers(table: a2store.StepTable, indices: Any) -> None:
    with pytest.raises(TypeError):
        table.take(indices)


def test_take_of_more_dimensions(table: a2store.StepTable) -> None:
    bad: list[Any] = [[[0, 1]], np.zeros((2, 2), "u8"), np.uint64(3), 3]
    for indices in bad:
        with pytest.raises(ValueError, match="dimension"):
            table.take(indices)


def test_a_batch_is_a_mapping(table: a2store.StepTable) -> None:
    batch = table.take([4, 2])
    names = ["tokens", "move", "ev_values", "ev_legal", "run_id", "step_index", "board"]
    assert batch.keys() == BATCH_COLUMNS == list(batch.to_dict())
    assert "move" in batch
    assert "phase" not in batch
    with pytest.raises(KeyError, match="phase"):
        batch["phase"]
    with pytest.raises(AttributeError, match="phase"):
        _ = batch.phase
    assert [batch[name].dtype.str for name in names] == ["|u1", "|u1", "<f4", "|b1", "<u4", "<u2", "<u8"]
    assert [batch[name].shape for name in names] == [(2, 16), (2,), (2, 4), (2, 4), (2,), (2,), (2,)]
    assert all(np.shares_memory(batch[name], batch[name]) for name in names)


def test_a_batch_is_a_record_batch(table: a2store.StepTable) -> None:
    batch = table.take(np.arange(500, 0, -1))
    record = pa.record_batch(batch)
    assert record.schema.names == batch.keys()
    assert record.num_rows == 500
    for name in ("move", "run_id", "step_index", "board"):
        assert_same(record[name].to_numpy(), batch[name], name)
        assert record[name].buffers()[1].address == batch[name].ctypes.data
    assert_same(record["tokens"].values.to_numpy().reshape(-1, 16), batch.tokens)
    assert_same(record["ev_values"].values.to_numpy().reshape(-1, 4), batch.ev_values)
    legal = record["ev_legal"].values.to_numpy(zero_copy_only=False).reshape(-1, 4)
    assert_same(legal, batch.ev_legal)
    assert pa.record_batch(table.take([])).num_rows == 0


@pytest.mark.parametrize(
    ("where", "order"),
    [
        ("", "run_id, step_index"),
        ("WHERE phase = 'late' AND max_score >= 5000", "run_id, step_index"),
        ("WHERE step_index % 3 = 1 LIMIT 150000", "run_id, step_index"),
        ("WHERE move = 2 ORDER BY max_score DESC, run_id, step_index", "max_score DESC, run_id, step_index"),
    ],
)
def test_many_rows_keep_their_order(large: a2store.Archive, where: str, order: str) -> None:
    table = large.sql(f"SELECT * FROM steps {where}").materialize(progress=False)
    limited = where if "ORDER" in where else where.replace(" LIMIT", f" ORDER BY {order} LIMIT")
    ordered = limited if "ORDER" in limited else f"{limited} ORDER BY {order}"
    sql = f"SELECT run_id, step_index, board, ev_left FROM steps {ordered}"
    expected = of_files(large).execute(sql).fetchnumpy()
    assert len(table) == len(expected["board"]) > 70_000
    rows, columns = np.asarray(table), pa.table(table)
    for name in ("run_id", "step_index", "board"):
        np.testing.assert_array_equal(rows[name], expected[name], err_msg=name)
        np.testing.assert_array_equal(column(columns, name), expected[name], err_msg=name)
    left = np.ma.filled(expected["ev_left"], 0.0)
    np.testing.assert_array_equal(rows["ev_values"][:, 2], left)
    again = large.sql(f"SELECT * FROM steps {where}").materialize(progress=False)
    assert np.asarray(again).tobytes() == rows.tobytes()
    assert again.fingerprint == table.fingerprint


def test_the_fingerprint_identifies_data_and_order(one_run: a2store.Archive, run_files: list[Path]) -> None:
    def fingerprint(sql: str, params: Any = None, **options: Any) -> str:
        return one_run.sql(sql, params).materialize(progress=False, **options).fingerprint

    sql = "SELECT * FROM steps WHERE max_score > $1"
    first = fingerprint(sql, [5])
    assert len(bytes.fromhex(first)) == 16
    assert fingerprint(sql, [5]) == first
    # Another query of the same rows has the same fingerprint.
    others = [
        fingerprint(sql, [6]),
        fingerprint(f"{sql} ORDER BY board", [5]),
        fingerprint(sql, [5], extra=["max_exp"]),
        fingerprint(sql, [5], chosen_ev="one"),
    ]
    assert others[0] == first
    one_run.ingest(run_files[1], progress=False)
    assert len({first, *others[1:], fingerprint(sql, [5])}) == 5
