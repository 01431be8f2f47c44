"""Extra columns of several values per row: fixed-size lists of every type, in rows, batches, files and Arrow data."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
from compare import assert_same, column
from oracle import Array

RUNS = 2
SQL = "SELECT steps.*, t.* EXCLUDE (run_id, step_index) FROM steps JOIN t USING (run_id, step_index) "
SQL += "ORDER BY run_id, step_index"
TYPES = ["?", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"]


def lists(values: Array, mask: Array | None = None) -> pa.Array:
    """Return the rows of a matrix as fixed-size lists; rows of the mask are null."""
    items, length = pa.array(values.ravel()), values.shape[1]
    return pa.FixedSizeListArray.from_arrays(items, length, mask=None if mask is None else pa.array(mask))


@pytest.fixture(scope="module")
def keys(steps: dict[str, Array]) -> dict[str, Array]:
    chosen = steps["run_id"] < RUNS
    return {name: steps[name][chosen] for name in ("run_id", "step_index")}


def materialize(archive: a2store.Archive, keys: dict[str, Array], **options: Any) -> a2store.StepTable:
    """Materialize the steps with these columns. The rows of the joined table are in another order."""
    columns = {name: options.pop(name) for name in list(options) if name not in ("extra", "path")}
    order = np.random.default_rng(1).permutation(len(keys["run_id"]))
    table = pa.table({**keys, **columns}).take(order)
    return archive.sql(SQL, tables={"t": table}).materialize(progress=False, **options)


def random_values(dtype: str, num_rows: int, length: int) -> Array:
    bits = np.random.default_rng(length).integers(0, 2 if dtype == "?" else 100, (num_rows, length))
    return bits.astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("length", [2, 33])
def test_lists_of_every_type_and_length(
    archive: a2store.Archive, keys: dict[str, Array], dtype: str, length: int, tmp_path: Path
) -> None:
    values = random_values(dtype, len(keys["run_id"]), length)
    flag = keys["step_index"] % 3 == 0
    table = materialize(archive, keys, flag=flag, x=lists(values), extra=["flag", "x"])
    rows = np.asarray(table)
    fields = rows.dtype.fields
    assert fields is not None
    field, offset = fields["x"][:2]
    assert (field.base, field.shape, offset % field.base.itemsize) == (np.dtype(dtype), (length,), 0)
    width = 1 + length * np.dtype(dtype).itemsize
    assert table.stride == rows.dtype.itemsize == 32 + (width + 7) // 8 * 8
    assert_same(rows["x"], values)
    assert_same(rows["flag"], flag)

    order = np.random.default_rng(3).permutation(len(table))
    batch = table.take(order)
    assert batch["x"].shape == (len(table), length)
    assert_same(batch["x"], values[order])
    for exported, expected in ((pa.table(table), values), (pa.record_batch(batch), values[order])):
        column = exported["x"].combine_chunks() if isinstance(exported, pa.Table) else exported["x"]
        assert column.type == pa.list_(pa.field("item", pa.from_numpy_dtype(np.dtype(dtype)), nullable=False), length)
        assert_same(column.flatten().to_numpy(zero_copy_only=False).reshape(-1, length).astype(dtype), expected)

    table.save(tmp_path / "saved.npy", progress=False)
    np.save(tmp_path / "plain.npy", rows)
    packed = np.zeros(len(rows), [("x", dtype, (length,)), ("board", "<u8"), ("flag", "?")])
    for name in packed.dtype.names or ():
        packed[name] = rows[name]
    np.save(tmp_path / "packed.npy", packed)
    for name in ("saved", "plain", "packed"):
        loaded = a2store.StepTable.load(tmp_path / f"{name}.npy", progress=False)
        assert loaded.stride == table.stride
        assert_same(np.asarray(loaded)["x"], values)
        assert_same(loaded.take(order)["x"], values[order])
    assert_same(np.load(tmp_path / "saved.npy")["x"], values)
    mapped = a2store.StepTable.load(tmp_path / "saved.npy", mmap=True, progress=False)
    assert mapped.fingerprint == table.fingerprint
    assert_same(mapped.take(order)["x"], values[order])


def test_lists_in_files_views_loaders_and_processes(
    archive: a2store.Archive, keys: dict[str, Array], tmp_path: Path
) -> None:
    values = random_values("<f4", len(keys["run_id"]), 4)
    table = materialize(archive, keys, x=lists(values), extra=["x"])
    other = materialize(archive, keys, x=lists(values), extra=["x"], path=tmp_path / "t.npy")
    assert_same(np.asarray(other), np.asarray(table))
    view = table.filter(run_ids=[1])
    assert_same(np.asarray(view)["x"], values[keys["run_id"] == 1])
    assert_same(pickle.loads(pickle.dumps(table)).take([5, 0])["x"], values[[5, 0]])
    expected = {(int(r), int(s)): row.tobytes() for r, s, row in zip(*keys.values(), values, strict=True)}
    seen = 0
    for batch in table.loader(64, columns=["x", "step_index", "run_id"]):
        assert batch["x"].dtype == np.float32
        for run_id, step, row in zip(batch["run_id"], batch["step_index"], batch["x"], strict=True):
            assert expected[int(run_id), int(step)] == row.tobytes()
            seen += 1
    assert seen == len(table)


def test_nulls_in_lists_of_floats_are_nan(archive: a2store.Archive, keys: dict[str, Array]) -> None:
    for dtype in ("<f2", "<f4", "<f8"):
        values = random_values(dtype, len(keys["run_id"]), 4)
        mask = keys["step_index"] % 5 == 2
        items = pa.array(values.ravel(), mask=np.arange(values.size) % 7 == 3)
        column = pa.FixedSizeListArray.from_arrays(items, 4, mask=pa.array(mask))
        expected = values.copy()
        expected.ravel()[3::7] = np.nan
        expected[mask] = np.nan
        assert_same(np.asarray(materialize(archive, keys, x=column, extra=["x"]))["x"], expected, dtype)


def test_nulls_in_other_lists_are_rejected(archive: a2store.Archive, keys: dict[str, Array]) -> None:
    values = random_values("<i4", len(keys["run_id"]), 3)
    for nulls in (
        lists(values, np.arange(len(values)) == 11),
        pa.FixedSizeListArray.from_arrays(pa.array(values.ravel(), mask=np.arange(values.size) == 3 * 11 + 2), 3),
    ):
        with pytest.raises(a2store.ColumnError, match=r"column x, row [0-9]+: expected a value, found NULL"):
            materialize(archive, keys, x=nulls, extra=["x"])


@pytest.mark.parametrize(
    "column",
    [
        pa.list_(pa.float32()),
        pa.list_(pa.string(), 2),
        pa.list_(pa.list_(pa.float32(), 2), 2),
        pa.list_(pa.float32(), 0),
    ],
    ids=str,
)
def test_other_lists_are_rejected(archive: a2store.Archive, keys: dict[str, Array], column: pa.DataType) -> None:
    values = pa.nulls(len(keys["run_id"]), column)
    with pytest.raises(a2store.ColumnError, match=r"column x: expected booleans, .* or fixed-size lists of numbers"):
        materialize(archive, keys, x=values, extra=["x"])


def test_symmetries_do_not_turn_lists(archive: a2store.Archive, keys: dict[str, Array]) -> None:
    table = materialize(archive, keys, x=lists(random_values("<f4", len(keys["run_id"]), 4)), extra=["x"])
    message = "symmetries: expected false with the column x of 4 values per row, or columns without it"
    with pytest.raises(ValueError, match=message):
        table.loader(8, symmetries=True)
    assert len(next(iter(table.loader(8, symmetries=True, columns=["tokens", "move"])))) == 8


def test_rows_beyond_the_limit_of_a_header_are_rejected(archive: a2store.Archive) -> None:
    names = [f"x{number}" for number in range(140)]
    cell = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(1024)), 1024)
    wide = pa.table(dict.fromkeys(names, cell))
    sql = "SELECT board, w.* FROM steps CROSS JOIN w LIMIT 1"
    with pytest.raises(ValueError, match="extra: expected rows of less than 1048576 bytes, found 1146912"):
        archive.sql(sql, tables={"w": wide}).materialize(extra=names, progress=False)


# Strings: codes in rows and batches, dictionaries in Arrow


LABELS = {
    "engine": "engine",
    "phase": "arrow_cast(phase, 'Utf8')",
    # In ascending order, the first string is neither the first row's nor the last row's.
    "falling": "CAST(9000 - step_index AS VARCHAR)",
    "some": "CASE WHEN step_index % 2 = 0 THEN NULL ELSE concat('é', CAST(move AS VARCHAR)) END",
    "none": "CAST(NULL AS VARCHAR)",
    "empty": "''",
    "large": "arrow_cast(phase, 'LargeUtf8')",
    "dictionary": "arrow_cast(CAST(9 - move AS VARCHAR), 'Dictionary(UInt8, Utf8)')",
}


@pytest.mark.parametrize(
    "where", ["", "WHERE step_index > 3", "WHERE run_id > 99", "ORDER BY board, run_id, step_index"]
)
def test_strings_become_codes(archive: a2store.Archive, where: str) -> None:
    selected = ", ".join(f"{sql} AS {name}" for name, sql in LABELS.items() if sql != name)
    query = archive.sql(f"SELECT board, run_id, step_index, engine, {selected} FROM steps {where}")
    texts = {name: column(pa.table(query), name) for name in LABELS}
    table = query.materialize(extra=list(LABELS), progress=False)
    rows, columns, batch = np.asarray(table), pa.table(table), table.take(np.arange(len(table)))
    assert list(table.categories) == list(LABELS)
    for name, expected in texts.items():
        present = [text for text in expected if text is not None]
        categories = sorted(set(present), key=str.encode)
        assert table.categories[name] == categories
        codes = {None: -1, **{text: code for code, text in enumerate(categories)}}
        assert rows[name].dtype == np.dtype("i2")
        assert_same(rows[name], np.array([codes[text] for text in expected], "i2"), name)
        assert_same(batch[name], rows[name], name)
        assert pa.types.is_dictionary(columns.schema.field(name).type)
        assert columns[name].null_count == len(expected) - len(present)
        assert column(columns, name).tolist() == expected.tolist()
        assert pa.record_batch(batch)[name].to_pylist() == expected.tolist()


def test_string_views(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    query = archive.sql("SELECT board, arrow_cast(phase, 'Utf8View') AS phase FROM steps")
    table = query.materialize(extra=["phase"], progress=False)
    names = np.array(table.categories["phase"])
    assert names[np.asarray(table)["phase"]].tolist() == steps["phase"].tolist()
    # If the data do not match the schema's type, a reader of the stream crashes. So this check comes before other
    # reads.
    for batch in pa.RecordBatchReader.from_stream(query):
        batch.validate(full=True)


def test_too_many_strings(archive: a2store.Archive) -> None:
    def materialize(num_strings: int) -> a2store.StepTable:
        label = "concat(CAST(run_id AS VARCHAR), ' ', CAST(step_index AS VARCHAR), ' ', CAST(times.column1 AS VARCHAR))"
        steps = "steps CROSS JOIN (VALUES (0), (1)) AS times"
        query = archive.sql(f"SELECT board, {label} AS label FROM {steps} LIMIT {num_strings}")
        return query.materialize(extra=["label"], progress=False)

    with pytest.raises(a2store.ColumnError, match=r"label.*at most \d+ different strings") as caught:
        materialize(40_000)
    (most,) = (int(word) for word in str(caught.value).split() if word.isdigit())
    assert most >= 32_767
    assert len(materialize(most).categories["label"]) == most
    with pytest.raises(a2store.ColumnError, match="label"):
        materialize(most + 1)
