"""Queries materialized into tables: extra columns, defaults, values out of range, and queries of every kind."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
import oracle
from compare import assert_same
from duck import of_files
from oracle import Array


def materialize(archive: a2store.Archive, sql: str, **options: Any) -> a2store.StepTable:
    return archive.sql(sql).materialize(progress=False, **options)


EXTRAS = {
    "flag": ("has_evs", "?", "has_evs"),
    "i8": ("CAST(step_index % 100 AS TINYINT) - 50", "<i1", None),
    "i16": ("CAST(step_index AS SMALLINT)", "<i2", "step_index"),
    "i32": ("CAST(step_index AS INT)", "<i4", "step_index"),
    "i64": ("max_score", "<i8", "max_score"),
    "u8": ("max_exp", "<u1", "max_exp"),
    "u16": ("CAST(num_steps AS SMALLINT UNSIGNED)", "<u2", "num_steps"),
    "u32": ("highest_tile", "<u4", "highest_tile"),
    "u64": ("board", "<u8", "board"),
    "f16": ("arrow_cast(max_exp, 'Float16')", "<f2", "max_exp"),
    "f32": ("ev_down", "<f4", "ev_down"),
    "f64": ("CAST(ev_left AS DOUBLE)", "<f8", "ev_left"),
}


@pytest.mark.parametrize(
    "names",
    [
        *([name] for name in EXTRAS),
        ["flag", "u64"],
        ["u8", "f32", "u16"],
        ["i8", "f64", "i16", "u32", "flag"],
        list(EXTRAS),
        list(reversed(EXTRAS)),
    ],
    ids=",".join,
)
def test_extra_columns(archive: a2store.Archive, steps: dict[str, Array], names: list[str]) -> None:
    selected = ", ".join(f"{EXTRAS[name][0]} AS {name}" for name in names)
    if "i8" in names:
        selected = selected.replace(EXTRAS["i8"][0], f"CAST({EXTRAS['i8'][0]} AS TINYINT)")
    table = materialize(archive, f"SELECT board, {selected} FROM steps", extra=names)
    rows = np.asarray(table)
    assert rows.dtype.names is not None
    # A row has the widest columns first; a batch has the requested order.
    assert list(rows.dtype.names[6:]) == sorted(names, key=lambda name: -rows.dtype[name].itemsize)
    assert table.take([]).keys()[7:] == names

    fields = rows.dtype.fields
    assert fields is not None
    ends = sorted((fields[name][1], fields[name][1] + fields[name][0].itemsize) for name in fields)
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))
    for name in names:
        dtype, offset = fields[name][:2]
        assert dtype == np.dtype(EXTRAS[name][1])
        assert offset % dtype.itemsize == 0
    width = sum(fields[name][0].itemsize for name in names)
    assert table.stride == 32 + (width + 7) // 8 * 8 == rows.dtype.itemsize

    order = np.random.default_rng(3).permutation(len(table))[:1000]
    batch, columns, record = table.take(order), pa.table(table), pa.record_batch(table.take(order))
    for name in names:
        source = EXTRAS[name][2]
        values = steps[source] if source else steps["step_index"].astype("i8") % 100 - 50
        expected = values.astype(EXTRAS[name][1])
        assert_same(rows[name], expected, name)
        assert_same(batch[name], expected[order], name)
        assert_same(getattr(batch, name), expected[order], name)
        assert_same(columns[name].to_numpy().astype(expected.dtype), expected, name)
        assert_same(record[name].to_numpy(zero_copy_only=False), expected[order], name)
    assert_same(rows["board"], steps["board"])


def test_null_floats_of_16_bits_are_nan(archive: a2store.Archive) -> None:
    half = "CASE WHEN step_index = 3 THEN NULL ELSE arrow_cast(step_index, 'Float16') END AS half"
    rows = np.asarray(materialize(archive, f"SELECT board, {half} FROM steps WHERE run_id = 0", extra=["half"]))
    assert np.flatnonzero(np.isnan(rows["half"])).tolist() == [3]


@pytest.mark.parametrize(
    ("sql", "extra", "error", "names"),
    [
        ("SELECT *, X'00' AS label FROM steps", ["label"], a2store.ColumnError, ["label"]),
        ("SELECT *, [move] AS label FROM steps", ["label"], a2store.ColumnError, ["label"]),
        ("SELECT *, now() AS time FROM steps", ["time"], a2store.ColumnError, ["time"]),
        ("SELECT * FROM steps", ["missing"], a2store.ColumnError, ["missing"]),
        ("SELECT board, nullif(step_index, 5) AS label FROM steps", ["label"], a2store.ColumnError, ["label", "row 5"]),
        ("SELECT board, nullif(has_evs, true) AS label FROM steps", ["label"], a2store.ColumnError, ["label", "row 0"]),
        ("SELECT * FROM steps", ["max_exp", "max_exp"], ValueError, ["extra"]),
        ("SELECT * FROM steps", ["move"], ValueError, ["extra"]),
        ('SELECT *, 1 AS "" FROM steps', [""], ValueError, ["extra"]),
        ("SELECT * FROM steps", ["ev_values"], (ValueError, a2store.ColumnError), ["ev_values"]),
    ],
)
def test_rejected_extra_columns(
    archive: a2store.Archive, sql: str, extra: list[str], error: Any, names: list[str]
) -> None:
    with pytest.raises(error) as caught:
        materialize(archive, sql, extra=extra)
    assert all(name in str(caught.value) for name in names), str(caught.value)


def test_chosen_ev_one(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    evs = oracle.table_evs(steps)
    evs[steps["has_evs"], steps["move"][steps["has_evs"]]] = 1.0
    assert_same(np.asarray(materialize(archive, "SELECT * FROM steps", chosen_ev="one"))["ev_values"], evs)
    stored = np.asarray(materialize(archive, "SELECT * FROM steps", chosen_ev="stored"))
    assert not (stored["ev_values"] == 1.0).any()
    # Without a move column, no value is replaced.
    no_move = np.asarray(materialize(archive, "SELECT * EXCEPT (move) FROM steps", chosen_ev="one"))
    assert_same(no_move["ev_values"], oracle.table_evs(steps))
    with pytest.raises(ValueError, match="chosen_ev"):
        materialize(archive, "SELECT * FROM steps", chosen_ev="two")


def test_defaults_of_missing_columns(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    rows = np.asarray(materialize(archive, "SELECT board FROM steps"))
    assert_same(rows["board"], steps["board"])
    assert np.isnan(rows["ev_values"]).all()
    for name, value in {"move": 255, "run_id": 0, "step_index": 0}.items():
        assert set(rows[name].tolist()) == {value}
    assert rows["ev_legal"].tolist() == [oracle.legal_mask(board) for board in steps["board"].tolist()]
    some = np.asarray(materialize(archive, "SELECT board, ev_left, move FROM steps"))
    left = np.where(np.isnan(steps["ev_left"]), np.float32("nan"), 0.0).astype("f4")
    for branch in (0, 1, 3):
        assert_same(some["ev_values"][:, branch], left)
    assert_same(some["ev_values"][:, 2], steps["ev_left"])


def test_masks_of_any_board_follow_the_rules(archive: a2store.Archive) -> None:
    boards = [0, 2**64 - 1, 0x1111_1111_1111_1111, 0x1234_2345_3456_4567, 0x1234_4321_1234_4321, 0xF000_0000_0000_000F]
    boards += np.random.default_rng(4).integers(0, 2**64, 2_000, "u8").tolist()
    values = ", ".join(f"({board})" for board in boards)
    sql = f"SELECT CAST(column1 AS BIGINT UNSIGNED) AS board, column1 % 7 AS run_id FROM (VALUES {values})"
    rows = np.asarray(materialize(archive, sql))
    assert sorted(rows["board"].tolist()) == sorted(boards)
    assert rows["ev_legal"].tolist() == [oracle.legal_mask(board) for board in rows["board"].tolist()]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ("step_index + 4294967296 AS step_index", ["step_index", "row 0", "4294967296"]),
        ("CASE WHEN run_id = 2 THEN 4294967296 ELSE step_index END AS step_index", ["step_index", "4294967296"]),
        ("CAST(step_index AS BIGINT) - 1 AS step_index", ["step_index", "row 0"]),
        ("CAST(run_id AS BIGINT) - 1 AS run_id", ["run_id", "row 0"]),
        ("nullif(run_id, 0) AS run_id", ["run_id", "row 0"]),
        ("nullif(board, board) AS board", ["board", "row 0"]),
        ("move + 4 AS move", ["move", "row 0"]),
        ("phase AS move", ["move"]),
        ("phase AS board", ["board"]),
        ("ev_up AS ev_legal", ["ev_legal"]),
        ("CAST(board AS DOUBLE) AS board", ["board"]),
        ("ev_legal + 16 AS ev_legal", ["ev_legal", "row 0"]),
        ("CASE WHEN run_id = 2 THEN -1e300 ELSE 'inf'::DOUBLE END AS ev_up", ["ev_up", "row ", "-1e300"]),
    ],
)
def test_values_that_do_not_fit(archive: a2store.Archive, change: str, names: list[str]) -> None:
    name = change.rsplit(" ", 1)[1]
    with pytest.raises(a2store.ColumnError) as caught:
        materialize(archive, f"SELECT * EXCEPT ({name}), {change} FROM steps")
    assert caught.value.kind == "column"
    assert all(name in str(caught.value) for name in names), str(caught.value)


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        ("", ["step_index", "run_id"]),
        ("WHERE max_score > 0", ["step_index", "run_id"]),
        ("ORDER BY board, run_id", ["step_index", "run_id", "board"]),
    ],
)
def test_the_row_of_a_value_that_does_not_fit(
    archive: a2store.Archive, steps: dict[str, Array], where: str, keys: list[str]
) -> None:
    order = np.lexsort([steps[key] for key in keys])
    row = np.flatnonzero((steps["run_id"][order] == 41) & (steps["step_index"][order] == 17))[0]
    move = "CASE WHEN run_id = 41 AND step_index = 17 THEN 97 ELSE move END AS move"
    with pytest.raises(a2store.ColumnError, match=rf"move, row {row}:.*97"):
        materialize(archive, f"SELECT * EXCEPT (move), {move} FROM steps {where}")


def test_the_largest_values_that_fit(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    sql = "SELECT board, 65535 - step_index AS step_index, 4294967295 - run_id AS run_id, 255 AS move FROM steps"
    rows = np.asarray(materialize(archive, sql))
    assert_same(rows["step_index"], (65_535 - steps["step_index"].astype("i8")).astype("u2"))
    assert_same(rows["run_id"], (4_294_967_295 - steps["run_id"].astype("i8")).astype("u4"))
    assert_same(rows["board"], steps["board"])


def test_a_query_without_boards_or_with_several(archive: a2store.Archive) -> None:
    with pytest.raises(a2store.ColumnError, match="board"):
        materialize(archive, "SELECT move FROM steps")
    with pytest.raises((a2store.ColumnError, a2store.QueryError)):
        materialize(archive, "SELECT s.board, t.board FROM steps s JOIN steps t USING (run_id, step_index)")


SETS = [
    "SELECT DISTINCT board, max_exp AS run_id FROM steps",
    "SELECT board, count(*) AS run_id FROM steps GROUP BY board",
    "SELECT s.board, s.run_id, s.step_index, s.move FROM steps s JOIN runs r USING (run_id) WHERE r.max_score > 5000",
    "SELECT board, run_id, step_index FROM steps WHERE run_id < 3 UNION ALL SELECT final_board, run_id, 9999 FROM runs",
    "SELECT board, run_id, row_number() OVER (PARTITION BY run_id ORDER BY step_index DESC) AS step_index FROM steps",
    "SELECT final_board AS board, run_id, num_steps AS step_index FROM runs",
]


@pytest.mark.parametrize("sql", SETS)
def test_queries_of_any_kind_have_a_definite_order(archive: a2store.Archive, sql: str) -> None:
    tables = [np.asarray(materialize(archive, sql)) for _ in range(3)]
    assert tables[0].tobytes() == tables[1].tobytes() == tables[2].tobytes()
    relation = of_files(archive).sql(sql)
    names = relation.columns
    expected = sorted(relation.fetchall())
    assert len(expected) >= archive.num_runs
    found = list(zip(*(tables[0][name].tolist() for name in names), strict=True))
    assert sorted(found) == expected
    keys = [name for name in ("run_id", "step_index") if name in names]
    order = np.lexsort([tables[0][name] for name in reversed(keys)])
    for key in keys:
        assert_same(tables[0][key], tables[0][key][order])


def test_order_by_and_limit(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    for sql, order in [
        (
            "SELECT * FROM steps ORDER BY max_score DESC, run_id, step_index",
            np.argsort(-steps["max_score"].astype("i8"), kind="stable"),
        ),
        ("SELECT * FROM steps ORDER BY phase, board, run_id, step_index", np.lexsort((steps["board"], steps["phase"]))),
        ("SELECT * FROM steps LIMIT 7000 OFFSET 5", np.arange(5, 7005)),
        ("SELECT * FROM steps WHERE run_id >= 30 LIMIT 10", np.flatnonzero(steps["run_id"] >= 30)[:10]),
        ("SELECT * FROM steps WHERE run_id > 99", np.arange(0)),
    ]:
        rows = np.asarray(materialize(archive, sql))
        assert rows["board"].tolist() == steps["board"][order].tolist(), sql
        assert_same(rows["run_id"], steps["run_id"][order])
        assert_same(rows["ev_values"], oracle.table_evs(steps)[order])


def test_an_empty_table(archive: a2store.Archive, tmp_path: Path) -> None:
    empty = a2store.Archive.create(tmp_path / "empty.a2")
    for source in (archive, empty):
        table = materialize(source, "SELECT * FROM steps WHERE run_id > 1000000", extra=["max_exp"])
        assert (len(table), table.nbytes, table.stride) == (0, 0, 40)
        assert np.asarray(table).shape == (0,)
        assert pa.table(table).num_rows == 0
        assert len(pa.array(table.rows_array())) == 0
        assert len(table.take([])) == 0
        assert list(table.loader()) == []
        with pytest.raises(IndexError):
            table.take([0])
