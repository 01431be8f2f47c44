"""Structured arrays that NumPy or other tools saved, loaded as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import a2store
import formats
import oracle
from compare import assert_same, row_keys
from oracle import Array
from test_save_load import load

# Rows as other tools write them, with unaligned floats.
PACKED: list[Any] = formats.DATASET_ROW.descr
NAMES = [field[0] for field in PACKED]


@pytest.fixture(scope="module")
def packed(table: a2store.StepTable) -> Array:
    rows = np.asarray(table)
    packed = np.empty(len(rows), PACKED)
    for name in NAMES:
        packed[name] = rows[name]
    assert packed.itemsize == 32
    return packed


def saved(array: Array, path: Path) -> Path:
    np.save(path, array)
    return path


@pytest.mark.parametrize(
    "names", [NAMES, NAMES[::-1], ["run_id", "board", "ev_values", "step_index", "ev_legal", "move"]]
)
def test_fields_in_any_order(packed: Array, table: a2store.StepTable, tmp_path: Path, names: list[str]) -> None:
    dtype = np.dtype([next(field for field in PACKED if field[0] == name) for name in names])
    array = np.empty(len(packed), dtype)
    for name in names:
        array[name] = packed[name]
    path = saved(array, tmp_path / "foreign.npy")
    found = load(path)
    rows = np.asarray(found)
    assert rows.tobytes() == np.asarray(table).tobytes()
    assert (found.dtype, found.categories, found.is_view) == (table.dtype, {}, False)
    assert_same(found.take([7, 3]).tokens, oracle.tokens(packed["board"][[7, 3]]))
    assert_same(np.sort(row_keys(found.loader(999, seed=1))), row_keys([table.take(range(len(table)))]))
    assert set(np.unique(rows["run_id"] % 4)) == {0, 1, 2, 3}
    assert len(found.filter(run_ids=[5])) == (packed["run_id"] == 5).sum()
    with pytest.raises(ValueError, match="mmap"):
        load(path, mmap=True)
    # A loaded array can be saved, and then be mapped.
    found.save(tmp_path / "own.npy", progress=False)
    again = load(tmp_path / "own.npy", mmap=True)
    assert np.asarray(again).tobytes() == rows.tobytes()
    assert again.fingerprint == found.fingerprint


def test_the_rows_of_a_table(table: a2store.StepTable, tmp_path: Path) -> None:
    path = saved(np.asarray(table), tmp_path / "rows.npy")
    for mmap in (False, True):
        found = load(path, mmap)
        assert np.asarray(found).tobytes() == np.asarray(table).tobytes()
        assert_same(row_keys(found.loader(500, shuffle=False)), row_keys(table.loader(500, shuffle=False)))
    assert load(path).fingerprint == load(path, mmap=True).fingerprint


def test_the_fingerprint_depends_only_on_the_rows(packed: Array, tmp_path: Path) -> None:
    reordered = packed[::-1]
    changed = packed.copy()
    changed["step_index"][-1] += 1
    arrays = [packed, packed.copy(), reordered, changed, packed[:-1]]
    found = [load(saved(array, tmp_path / "rows.npy")) for array in arrays]
    assert len({table.fingerprint for table in found}) == 4
    assert found[0].fingerprint == found[1].fingerprint
    state = found[0].loader(100).state_dict()
    found[1].loader(100).load_state_dict(state)
    assert (state["archive"], state["archive_version"]) == ("", 0)
    with pytest.raises(a2store.StateMismatchError, match="rows"):
        found[3].loader(100).load_state_dict(state)


def test_fields_that_are_missing(packed: Array, tmp_path: Path) -> None:
    boards = packed["board"].astype([("board", "<u8")])
    rows = np.asarray(load(saved(boards, tmp_path / "boards.npy")))
    assert_same(rows["board"], packed["board"])
    assert np.isnan(rows["ev_values"]).all()
    assert [set(rows[name].tolist()) for name in ("move", "run_id", "step_index")] == [{255}, {0}, {0}]
    assert rows["ev_legal"].tolist() == [oracle.legal_mask(board) for board in packed["board"].tolist()]


def test_additional_fields_become_extra_columns(packed: Array, tmp_path: Path) -> None:
    types = ["|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"]
    extras: list[Any] = [(f"extra {k}'", dtype) for k, dtype in enumerate(types)]
    array = np.empty(1000, [*extras[:5], *PACKED, *extras[5:]])
    numbers = np.random.default_rng(8).integers(0, 120, (len(extras), 1000))
    for name in NAMES:
        array[name] = packed[name][:1000]
    for (name, _), values in zip(extras, numbers, strict=True):
        array[name] = values
    found = load(saved(array, tmp_path / "more.npy"))
    # A row has the widest fields first; a batch has the order of the file.
    by_width = sorted(extras, key=lambda extra: -np.dtype(extra[1]).itemsize)
    assert list(found.dtype.names or ())[6:] == [name for name, _ in by_width]
    rows, batch = np.asarray(found), found.take(range(999, 0, -3))
    assert batch.keys()[7:] == [name for name, _ in extras]
    for name in NAMES:
        assert_same(rows[name], array[name], name)
    for name, dtype in extras:
        assert rows[name].dtype == np.dtype(dtype)
        assert_same(rows[name], array[name], name)
        assert_same(batch[name], array[name][999:0:-3], name)


def test_facts_that_the_file_does_not_have(packed: Array, tmp_path: Path) -> None:
    found = load(saved(packed, tmp_path / "rows.npy"))
    conditions: list[dict[str, Any]] = [{"min_score": 1}, {"max_score": 1}, {"engine": "alpha"}]
    for options in conditions:
        with pytest.raises(ValueError, match="scores and engines"):
            found.filter(**options)
    largest = oracle.tokens(packed["board"]).max(axis=1)
    assert len(found.filter(phase="early")) == (largest < 10).sum()
    assert len(found.filter(phase=["mid", "late"])) == (largest >= 10).sum()


LAYOUTS = ["packed", "aligned"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("name", "value"), [("move", 4), ("move", 254), ("ev_legal", 16), ("ev_legal", 254)])
def test_values_that_do_not_fit(
    packed: Array, table: a2store.StepTable, tmp_path: Path, layout: str, name: str, value: int
) -> None:
    array = packed.copy() if layout == "packed" else np.array(table)
    array[name][777] = value
    path = saved(array, tmp_path / "rows.npy")
    with pytest.raises(a2store.ColumnError, match=rf"{name}, row 777.*{value}"):
        load(path)
    if layout == "aligned":
        with pytest.raises(a2store.ColumnError, match=rf"{name}, row 777.*{value}"):
            load(path, mmap=True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_that_mean_null(packed: Array, table: a2store.StepTable, tmp_path: Path, layout: str) -> None:
    array = packed.copy() if layout == "packed" else np.array(table)
    array["move"] = 255
    assert_same(np.asarray(load(saved(array, tmp_path / "rows.npy")))["move"], array["move"])


def with_type(name: str, *dtype: Any) -> list[Any]:
    return [(name, *dtype) if field[0] == name else field for field in PACKED]


# An invalid dtype, and the field that the error must name.
REFUSED: dict[str, tuple[Any, str]] = {
    "no board": (PACKED[1:], "board"),
    "signed board": (with_type("board", "<i8"), "board"),
    "float board": (with_type("board", "<f8"), "board"),
    "big-endian board": (with_type("board", ">u8"), "board"),
    "several boards": (with_type("board", "<u8", (2,)), "board"),
    "wide values": (with_type("ev_values", "<f8", (4,)), "ev_values"),
    "three values": (with_type("ev_values", "<f4", (3,)), "ev_values"),
    "a table of values": (with_type("ev_values", "<f4", (2, 2)), "ev_values"),
    "wide ids": (with_type("run_id", "<u8"), "run_id"),
    "big-endian ids": (with_type("run_id", ">u4"), "run_id"),
    "wide steps": (with_type("step_index", "<u8"), "step_index"),
    "signed steps": (with_type("step_index", "<i4"), "step_index"),
    "signed move": (with_type("move", "|i1"), "move"),
    "text": ([*PACKED, ("name", "<U8")], "name"),
    "bytes": ([*PACKED, ("name", "S8")], "name"),
    "complex": ([*PACKED, ("number", "<c8")], "number"),
    "time": ([*PACKED, ("time", "<M8[s]")], "time"),
    "big-endian extra": ([*PACKED, ("number", ">i4")], "number"),
    "list": ([*PACKED, ("numbers", "<i4", (3, 2))], "numbers"),
    "nested": ([*PACKED, ("more", [("a", "<i4")])], "more"),
    # Batches already have a column with this name.
    "tokens": ([*PACKED, ("tokens", "|u1")], "tokens"),
    "plain": ("<u8", "<u8"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("mmap", [False, True])
def test_other_types(tmp_path: Path, name: str, mmap: bool) -> None:
    dtype, field = REFUSED[name]
    path = saved(np.zeros(3, dtype), tmp_path / "other.npy")
    with pytest.raises(a2store.Error, match=field) as caught:
        load(path, mmap)
    assert str(path) in str(caught.value)
    assert caught.value.path == path


def test_other_shapes(packed: Array, tmp_path: Path) -> None:
    square = packed[:16].reshape(4, 4)
    arrays = [square, np.asfortranarray(square), packed[0], packed[:4].reshape(4, 1), packed[:4].astype(object)]
    for array in arrays:
        np.save(tmp_path / "other.npy", array, allow_pickle=True)
        for mmap in (False, True):
            with pytest.raises(a2store.DecodeError, match=r"other\.npy"):
                load(tmp_path / "other.npy", mmap)


HEADER = "{'descr': [('board', '<u8')], 'fortran_order': False, 'shape': (2,), }"


@pytest.mark.parametrize(
    "header",
    [
        HEADER.replace("(2,)", "(3,)"),
        HEADER.replace("(2,)", "(-1,)"),
        HEADER.replace("(2,)", "(18446744073709551615,)"),
        HEADER.replace("(2,)", "(99999999999999999999999,)"),
        HEADER.replace("(2,)", "()"),
        HEADER.replace("(2,)", "(2, 1)"),
        HEADER.replace("False", "True"),
        HEADER.replace("'shape'", "'shake'"),
        HEADER.replace("('board', '<u8')", "('board', '<u8'), ('board', '<u8')"),
        HEADER.replace("'<u8'", "'<u8', (9223372036854775807,)"),
        HEADER.replace("[('board', '<u8')]", "__import__('os').abort()"),
        HEADER[:-3],
        HEADER + "}",
        "[" * 5000,
        "",
        "\0" * 100,
    ],
)
def test_headers_with_unexpected_contents(tmp_path: Path, header: str) -> None:
    path = tmp_path / "other.npy"
    data = bytes(range(16))

    def write(header: str) -> None:
        path.write_bytes(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode() + data)

    write(HEADER)
    assert np.asarray(load(path))["board"].tobytes() == data
    write(header)
    for mmap in (False, True):
        with pytest.raises((a2store.Error, ValueError), match=r"other\.npy"):
            load(path, mmap)


# Names that NumPy writes unchanged, as an escape, and only in UTF-8.
ODD_NAMES = ["größe", "it's", 'say "x"', "back\\slash", "Δ", "手数", "🎲"]


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)], ids=str)
@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
def test_names_in_every_encoding(packed: Array, tmp_path: Path, version: tuple[int, int], name: str) -> None:
    array = np.empty(100, [*PACKED, (name, "<u4")])
    for field in NAMES:
        array[field] = packed[field][:100]
    array[name] = np.arange(100)
    path = tmp_path / "named.npy"
    try:
        with path.open("wb") as file:
            np.lib.format.write_array(file, array, version)
    except UnicodeEncodeError:
        assert version < (3, 0)
        assert ord(max(name)) > 255
        return
    found = load(path)
    for field in (*NAMES, name):
        assert_same(np.asarray(found)[field], array[field], field)
    assert_same(found.take(range(100))[name], array[name])
