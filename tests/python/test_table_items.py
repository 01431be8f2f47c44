"""``table[key]``, and a table as a sequence of rows with columns: beside NumPy and pyarrow on the same rows."""

from __future__ import annotations

import random
import sys
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
import oracle
from compare import assert_same
from oracle import Array

NAMES = ["board", "ev_values", "run_id", "step_index", "move", "ev_legal", "engine", "max_score", "cells"]
SQL = "SELECT *, exps(board) AS cells FROM steps"


@pytest.fixture(scope="module", params=["table", "view", "attached", "no rows"])
def table(
    request: pytest.FixtureRequest, archive: a2store.Archive, tmp_path_factory: pytest.TempPathFactory
) -> a2store.StepTable:
    table = archive.sql(SQL).materialize(extra=["engine", "max_score", "cells"], progress=False)
    if request.param == "view":
        return table.filter(phase=["mid", "late"], min_score=500)
    if request.param == "attached":
        folder = tmp_path_factory.mktemp("attached")
        np.save(folder / "steps.npy", np.asarray(table)[["run_id", "step_index"]])
        empty = archive.sql("SELECT empty_cells(board) AS n FROM steps ORDER BY run_id, step_index").to_numpy()["n"]
        np.save(folder / "empty.npy", empty.reshape(-1, 1))
        return table.attach("empty", folder / "empty.npy", progress=False)
    return table.filter(run_ids=[]) if request.param == "no rows" else table


def check_batch(batch: a2store.Batch, rows: Array) -> None:
    assert len(batch) == len(rows)
    for name in ("board", "run_id", "step_index", "move", "ev_values", "engine", "max_score", "cells"):
        assert_same(batch[name], rows[name], name)
    assert_same(batch.tokens, oracle.tokens(rows["board"]))
    assert_same(batch.ev_legal, oracle.mask_bits(rows["ev_legal"]))


def keys(rng: random.Random, length: int) -> list[Any]:
    """Return random keys of several rows, which NumPy takes too."""
    bounds = [None, 0, 1, -1, length, -length, length + 7, -length - 7, length // 2, 2**70, -(2**70)]
    steps = [None, 1, 2, -1, -3, 1000, 2**70, -(2**70)]
    found: list[Any] = [slice(rng.choice(bounds), rng.choice(bounds), rng.choice(steps)) for _ in range(60)]
    numbers = np.random.default_rng(rng.randrange(2**32))
    found.append(numbers.random(length) < 0.3)
    found.append([bool(bit) for bit in numbers.integers(0, 2, length)])
    if length:
        found += [numbers.integers(-length, length, 50).astype(dtype) for dtype in ("i8", "i4", ">i8")]
        found += [[0, -1, length - 1, -length], np.array([], "i8"), numbers.integers(0, length, 9).astype("u4")]
        found.append(np.arange(length, dtype="u8")[::-7])
    return found


def test_several_rows(table: a2store.StepTable) -> None:
    rows = np.asarray(table)
    of_lists = [key for seed in range(5) for key in keys(random.Random(seed), len(table))]
    assert len(of_lists) > 300
    for key in of_lists:
        check_batch(table[key], rows[key])


def test_one_row(table: a2store.StepTable) -> None:
    rows = np.asarray(table)
    places: list[Any] = (
        [0, 1, len(table) - 1, -1, -len(table), np.int32(2), np.uint64(3), np.array(4)] if len(table) else []
    )
    for place in places:
        row = table[place]
        assert list(row) == table.take([]).keys()
        for name in ("board", "run_id", "step_index", "move", "engine", "max_score"):
            assert (row[name], row[name].dtype) == (rows[name][place], rows[name].dtype)
        assert_same(row["tokens"], oracle.tokens(rows["board"][[place]])[0])
        assert_same(row["ev_values"], rows["ev_values"][place])
    assert [row["board"] for row, _ in zip(table, range(9), strict=False)] == rows["board"][:9].tolist()


def test_columns(table: a2store.StepTable) -> None:
    rows, attached = np.asarray(table), table.attached
    assert table.columns == [*NAMES[:6], "engine", "max_score", "cells", *attached] == pa.schema(table.schema).names
    assert table.shape == (len(table), len(table.columns))
    for name in NAMES:
        assert_same(table[name], rows[name], name)
    if attached:
        assert table["empty"].tolist() == table.take(np.arange(len(table)))["empty"].tolist()
        assert table["empty"].dtype == np.uint8
    elif not table.is_view:
        assert np.shares_memory(table["board"], np.asarray(table))


def test_wrong_keys(table: a2store.StepTable) -> None:
    length = len(table)
    outside: list[Any] = [
        length,
        -length - 1,
        2**63,
        -(2**100),
        [0, length],
        np.array([-length - 1]),
        [True] * (length + 1),
    ]
    for key in outside:
        with pytest.raises(IndexError):
            table[key]
    others: list[Any] = [1.5, (1, 2), None, {}, True, [1.5], ["a"], object()]
    for key in others:
        with pytest.raises(TypeError):
            table[key]
    for name in ("nope", "tokens", "Board"):
        with pytest.raises(KeyError, match=name):
            table[name]


def test_conversions(table: a2store.StepTable) -> None:
    arrow = table.to_arrow()
    assert arrow.schema == pa.table(table).schema == pa.schema(table.schema)
    for frame in (table.to_pandas(), table.to_polars()):
        assert list(frame.columns) == table.columns
        for name in ("board", "run_id", "step_index", "move", "max_score"):
            assert frame[name].to_list() == arrow[name].to_pylist() == table[name].tolist()
    values = np.array(arrow["ev_values"].to_pylist()).reshape(-1, 4)
    assert np.array_equal(values, table["ev_values"].astype(float), equal_nan=True)
    assert table.to_numpy().tobytes() == np.asarray(table).tobytes()


def test_first_random_and_all_rows(table: a2store.StepTable) -> None:
    rows = np.asarray(table)
    for n in (0, 1, 5, len(table), len(table) + 10):
        check_batch(table.head(n), rows[:n])
    chosen = [
        table.sample(n, seed=seed) for n in (0, 1, len(table) // 2, len(table)) for seed in (0, 7) if n <= len(table)
    ]
    for batch in chosen:
        keys = set(zip(batch.run_id.tolist(), batch.step_index.tolist(), strict=True))
        assert len(keys) == len(batch)
        assert keys <= set(zip(rows["run_id"].tolist(), rows["step_index"].tolist(), strict=True))
    if len(table) > 1000:
        assert table.sample(900, seed=1).board.tolist() == table.sample(900, seed=1).board.tolist()
        assert table.sample(900, seed=1).board.tolist() != table.sample(900, seed=2).board.tolist()
    for n in (len(table) + 1, -1):
        with pytest.raises(ValueError, match="n: expected"):
            table.sample(n)
    with pytest.raises(ValueError, match="n: expected"):
        table.head(-1)
    batches = list(table.loader(1000, shuffle=False))
    assert [len(batch) for batch in batches] == [1000] * (len(table) // 1000) + [len(table) % 1000] * (
        len(table) % 1000 > 0
    )
    for start, batch in zip(range(0, len(table), 1000), batches, strict=True):
        check_batch(batch, rows[start : start + 1000])
    few = list(table.loader(700, shuffle=False, columns=["move", "tokens"], tokens="int64"))
    assert all(batch.keys() == ["move", "tokens"] and batch.tokens.dtype == np.int64 for batch in few)


def test_html(table: a2store.StepTable) -> None:
    html = table._repr_html_()
    assert all(f"<th>{name}<br>" in html for name in table.columns)
    assert html.count("<tr>") == 1 + min(10, len(table))
    assert f"{len(table)} rows of {table.stride} bytes" in html


def test_a_batch_has_the_methods_of_a_mapping(table: a2store.StepTable) -> None:
    batch = table.take(np.arange(min(3, len(table))))
    assert isinstance(batch, Mapping)
    assert [name for name, _ in batch.items()] == batch.keys() == list(batch)
    for (name, column), value in zip(batch.items(), batch.values(), strict=True):
        assert_same(column, batch[name])
        assert_same(value, batch[name])
    columns = dict(batch)
    assert columns.keys() == batch.to_dict().keys()
    assert batch.get("nope") is None
    assert batch.get("nope", 3) == 3
    assert_same(batch.get("move", 3), batch.move)


def test_a_batch_as_tensors(table: a2store.StepTable) -> None:
    torch = pytest.importorskip("torch")
    batch = table.take(np.arange(min(3, len(table))))
    for tensors in (batch.to_torch(), batch.to_torch("cpu"), batch.to_torch(device=torch.device("cpu"))):
        assert list(tensors) == batch.keys()
        for name, tensor in tensors.items():
            assert tensor.shape == batch[name].shape
            assert_same(tensor.numpy().astype(batch[name].dtype), batch[name], name)
    assert batch.to_torch("meta")["tokens"].device.type == "meta"


def test_a_batch_as_jax_arrays(table: a2store.StepTable) -> None:
    pytest.importorskip("jax")
    batch = table.take(np.arange(min(3, len(table))))
    arrays = batch.to_jax()
    assert list(arrays) == batch.keys()
    for name, array in arrays.items():
        assert_same(np.asarray(array), batch[name], name)


def test_what_jax_cannot_hold(monkeypatch: pytest.MonkeyPatch, table: a2store.StepTable) -> None:
    """Without 64-bit types, JAX would cut boards in half."""
    jax = types.ModuleType("jax")
    jax.config = types.SimpleNamespace(jax_enable_x64=False)  # type: ignore[attr-defined]
    jax.device_put = lambda array, device: (device, array)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jax", jax)
    batch = table.take([])
    assert isinstance(batch.to_jax()["board"], np.ndarray)
    assert batch.to_jax("gpu")["move"][0] == "gpu"
    jax.config.jax_enable_x64 = True
    assert batch.to_jax("gpu")["board"][0] == "gpu"
