"""Types of integers in SQL: literals and parameters beside boards, the unary minus, counts and sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
from duck import of_files

SOURCE = "FROM steps ORDER BY run_id, step_index"
TOP_BIT = 2**63

U = np.uint64


@pytest.fixture(scope="module")
def columns(archive: a2store.Archive) -> dict[str, Any]:
    table = pa.table(archive.sql(f"SELECT * {SOURCE}"))
    columns = {name: table[name].to_numpy() for name in ("board", "max_score", "step_index", "num_steps")}
    assert columns["board"].dtype == np.uint64
    assert columns["board"].max() >= TOP_BIT
    return columns


def values(archive: a2store.Archive, expression: str, params: Any = None) -> pa.ChunkedArray:
    return pa.table(archive.sql(f"SELECT {expression} AS value {SOURCE}", params))["value"]


# Each expression with the same expression in NumPy, whose integers wrap around too.
OF_BOARDS = [
    ("board * 3", lambda c: c["board"] * U(3)),
    ("3 * board", lambda c: U(3) * c["board"]),
    ("1 - board", lambda c: U(1) - c["board"]),
    ("(board + 1) & 15", lambda c: (c["board"] + U(1)) & U(15)),
    ("(board >> (60 - 4 * 3)) & 15", lambda c: c["board"] >> U(48) & U(15)),
    ("board / 10 * 10", lambda c: c["board"] // U(10) * U(10)),
    ("board | 9223372036854775807", lambda c: c["board"] | U(2**63 - 1)),
    ("board ^ 9223372036854775808", lambda c: c["board"] ^ U(2**63)),
    ("board + 18446744073709551615", lambda c: c["board"] - U(1)),
    ("board * 0 + (18446744073709551615 - 5)", lambda c: c["board"] * U(0) + U(2**64 - 6)),
    ("coalesce(nullif(board, 0), 7)", lambda c: c["board"]),
    ("CASE WHEN step_index = 0 THEN board ELSE 5 END", lambda c: np.where(c["step_index"] == 0, c["board"], U(5))),
    ("CASE step_index WHEN 0 THEN 5 ELSE board END", lambda c: np.where(c["step_index"] == 0, U(5), c["board"])),
    ("CASE WHEN step_index % 2 = 0 THEN step_index ELSE board END - 3",
     lambda c: np.where(c["step_index"] % 2 == 0, c["step_index"].astype(U), c["board"]) - U(3)),
    ("(CASE WHEN step_index % 2 = 0 THEN step_index ELSE board END * step_index) + 3",
     lambda c: np.where(c["step_index"] % 2 == 0, c["step_index"], c["board"]) * c["step_index"].astype(U) + U(3)),
    ("greatest(board, 1000)", lambda c: np.maximum(c["board"], U(1000))),
    ("max(board + 1) OVER (PARTITION BY run_id, step_index)", lambda c: c["board"] + U(1)),
    ("(SELECT max(b.board + 1) FROM steps b WHERE b.run_id = steps.run_id AND b.step_index = steps.step_index)",
     lambda c: c["board"] + U(1)),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "expected"), OF_BOARDS)
def test_a_literal_beside_a_board_is_unsigned(
    archive: a2store.Archive, columns: dict[str, Any], expression: str, expected: Any
) -> None:
    found = values(archive, expression)
    assert found.type == pa.uint64()
    assert found.to_numpy().tolist() == expected(columns).tolist()


INTEGERS = {dtype for dtype in np.sctypeDict.values() if issubclass(dtype, np.integer)} - {np.timedelta64}


@pytest.mark.parametrize("dtype", [int, *sorted(INTEGERS, key=str)], ids=lambda dtype: dtype.__name__)
def test_a_parameter_beside_a_board_is_unsigned(archive: a2store.Archive, columns: dict[str, Any], dtype: Any) -> None:
    expected = columns["board"] * U(3) + U(1)
    for expression in ("board * $number + $one", "coalesce(board, $number) * $number + $one"):
        found = values(archive, expression, {"number": dtype(3), "one": 1})
        assert found.type == pa.uint64()
        assert found.to_numpy().tolist() == expected.tolist()
    assert values(archive, "board * 0 + $1", [2**64 - 1]).to_pylist() == [2**64 - 1] * len(expected)


@pytest.mark.parametrize("board", ["board + 0", "0 + board", "coalesce(board, 0)", "board * 1 / 1", "board | 0"])
def test_functions_take_computed_boards(archive: a2store.Archive, board: str) -> None:
    assert values(archive, f"tile({board}, 3)") == values(archive, "tile(board, 3)")
    assert values(archive, f"tile({board.replace('0', '$1')}, 3)", [0] if "0" in board else []) == values(
        archive, "tile(board, 3)"
    )


def test_beside_signed_integers_a_board_is_a_decimal(archive: a2store.Archive, columns: dict[str, Any]) -> None:
    boards = columns["board"].tolist()
    for expression, params in (("board + -1", None), ("board + $1", [-1]), ("board + CAST(-1 AS BIGINT)", None)):
        found = values(archive, expression, params)
        assert pa.types.is_decimal(found.type)
        assert [int(value) for value in found.to_pylist()] == [board - 1 for board in boards]
    for sql in ("SELECT board FROM steps UNION ALL SELECT -1", "SELECT board FROM steps UNION ALL VALUES (0)"):
        found = pa.table(archive.sql(sql))["board"]
        assert sorted(map(int, found.to_pylist()))[-len(boards) :] == sorted(boards)


@pytest.mark.parametrize("board", ["board + 1", "coalesce(board, 1)", "CASE WHEN move = 1 THEN 1 ELSE board END"])
@pytest.mark.parametrize(("other", "dtype"), [("board", pa.uint64()), ("ev_right", pa.float32()), ("$1", pa.uint64())])
def test_a_union_has_the_type_of_its_typed_columns(
    archive: a2store.Archive, board: str, other: str, dtype: pa.DataType
) -> None:
    params = [5] if other == "$1" else None
    if other == "$1":
        other = "board * $1"
    for first, second in ((board, other), (other, board)):
        for union in ("UNION", "UNION ALL", "UNION BY NAME"):
            sql = f"SELECT {first} AS k FROM steps {union} SELECT {second} AS k FROM steps"
            assert pa.schema(archive.sql(sql, params).schema).field("k").type == dtype, sql
            assert pa.table(archive.sql(f"SELECT k FROM ({sql}) WHERE k IS NOT NULL", params))["k"].type == dtype, sql


def test_columns_keep_their_names(archive: a2store.Archive) -> None:
    names = {
        "board % 5": "steps.board % Int64(5)",
        "-step_index": "(- steps.step_index)",
        "-(step_index + 1)": "(- steps.step_index + Int64(1))",
        "coalesce(board, 0)": "coalesce(steps.board,Int64(0))",
        "sum(move)": "sum(steps.move)",
    }
    for expression, name in names.items():
        assert pa.schema(archive.sql(f"SELECT {expression} FROM steps").schema).names == [name]
    key = "board % 5"
    inner = f"SELECT {key} FROM steps WHERE step_index = 0"
    sql = (
        f"SELECT {key}, count(*) FROM steps WHERE {key} IN ({inner}) GROUP BY {key} HAVING {key} > 0 ORDER BY -({key})"
    )
    found = pa.table(archive.sql(sql)).column(0).to_pylist()
    assert found == sorted(set(found), reverse=True)
    assert set(found) <= {1, 2, 3, 4}
    for sets in ("ROLLUP (coalesce(board, 0) % 5)", "CUBE (CASE WHEN move = 1 THEN board % 5 ELSE 0 END)"):
        inner = sets.partition("(")[2][:-1]
        table = pa.table(archive.sql(f"SELECT {inner} AS bin, count(*) AS n FROM steps GROUP BY {sets}"))
        assert None in table["bin"].to_pylist()


# The unary minus


@pytest.mark.parametrize("column", ["step_index", "move", "num_steps", "highest_tile"])
def test_the_negative_of_an_unsigned_integer_is_signed(archive: a2store.Archive, column: str) -> None:
    plain = values(archive, column).to_pylist()
    for expression, sign in ((f"-{column}", -1), (f"- -{column}", 1), (f"-({column} + 0)", -1), (f"-{column} * 2", -2)):
        found = values(archive, expression)
        assert found.type == pa.int64()
        assert found.to_pylist() == [None if value is None else sign * value for value in plain]
    expected = sorted(value for value in plain if value is not None and value > 1)[::-1]
    sql = f"SELECT {column} FROM steps WHERE -{column} < -1 ORDER BY -{column}"
    assert pa.table(archive.sql(sql))[column].to_pylist() == expected
    order = f"-{column} NULLS LAST, run_id, step_index"
    sql = f"SELECT row_number() OVER (ORDER BY {order}) AS n, {column} FROM steps ORDER BY n"
    found = pa.table(archive.sql(sql))[column].to_pylist()
    assert [value for value in found if value is not None and value > 1] == expected


def test_the_negative_of_a_board_fits_or_is_an_error(archive: a2store.Archive, columns: dict[str, Any]) -> None:
    small = [-board for board in columns["board"].tolist() if board < TOP_BIT]
    sql = "SELECT -board AS value FROM steps WHERE board < 9223372036854775808 ORDER BY run_id, step_index"
    assert pa.table(archive.sql(sql))["value"].to_pylist() == small
    with pytest.raises(a2store.QueryError, match=r"Can't cast value \d+ to type Int64"):
        archive.sql("SELECT -board FROM steps").to_arrow()


def test_the_negative_of_an_expression_that_a_board_makes_unsigned(archive: a2store.Archive) -> None:
    for expression, params in (
        ("nullif(1, board)", None),
        ("nullif($1, board)", [1]),
        ("CASE WHEN step_index >= 0 THEN 1 ELSE board END", None),
        ("least(board, 1)", None),
        ("(CASE WHEN board = 0 THEN board ELSE 1 END + 0)", None),
    ):
        found = values(archive, f"-{expression}", params)
        assert found.type == pa.int64(), expression
        assert set(found.to_pylist()) == {-1}, expression


@pytest.mark.parametrize(
    "key",
    [
        "coalesce(max(max_score), 0)",
        "nullif(max(max_score), 1)",
        "round(avg(max_score), 1)",
        "log2(avg(max_score))",
        "CASE WHEN max(max_score) > 1000 THEN 1 END",
        "CAST(max(board) % 5 AS BIGINT)",
    ],
)
def test_rows_in_the_order_of_the_minus_of_a_function(archive: a2store.Archive, key: str) -> None:
    grouped = "SELECT run_id % 7 AS bin, {0} AS k FROM steps GROUP BY run_id % 7"
    found = pa.table(archive.sql(f"{grouped.format(key)} ORDER BY -{key} NULLS LAST"))["k"].to_pylist()
    known = [value for value in found if value is not None]
    assert len(found) == 7
    assert known == sorted(known, reverse=True) == found[: len(known)]


def test_groups_by_the_minus_of_a_column(archive: a2store.Archive) -> None:
    numbers = "(SELECT CAST(step_index % 3 AS INT) AS n FROM steps) AS d"
    for sets in ("ROLLUP (-n)", "CUBE (-n)", "GROUPING SETS ((-n), ())"):
        table = pa.table(archive.sql(f"SELECT -n AS k, count(*) AS c FROM {numbers} GROUP BY {sets} ORDER BY k"))
        assert table["k"].to_pylist() == [-2, -1, 0, None]


def test_the_minus_of_other_types(archive: a2store.Archive) -> None:
    sql = (
        "SELECT -ev_up, -0.5, -(1), - INTERVAL '1' DAY, -NULL, -CAST(1.5 AS DECIMAL(5, 2)), -$1, -$2 FROM steps LIMIT 1"
    )
    row = [column[0].as_py() for column in pa.table(archive.sql(sql, [5, 0.5])).columns[1:]]
    assert [float(value) for value in (*row[:2], *row[4:])] == [-0.5, -1, -1.5, -5, -0.5]
    with pytest.raises(a2store.QueryError, match=r"^-: expected a number, found string$"):
        archive.sql("SELECT -format FROM runs")
    with pytest.raises(a2store.QueryError, match="Invalid function 'negative'"):
        archive.sql("SELECT negative(1)")


# Counts and sums


OF_STEPS = "SELECT run_id, step_index, {} AS value FROM steps ORDER BY run_id, step_index"
WINDOWS = [
    "row_number() OVER (PARTITION BY run_id ORDER BY step_index) - 10",
    "rank() OVER (PARTITION BY run_id ORDER BY move) - 10",
    "dense_rank() OVER (PARTITION BY run_id ORDER BY move) - 10",
    "ntile(4) OVER (PARTITION BY run_id ORDER BY step_index) - 10",
    "sum(move) OVER (PARTITION BY run_id ORDER BY step_index) - 1000",
    "sum(move) OVER (PARTITION BY run_id ORDER BY step_index ROWS 3 PRECEDING) - 1000",
    "sum(has_evs) OVER (PARTITION BY run_id) - 1000",
]
OF_RUNS = "SELECT run_id, {} - 100000 AS value FROM steps GROUP BY run_id ORDER BY run_id"
SUMS = ["sum(move)", "sum(DISTINCT move)", "sum(step_index) FILTER (WHERE move = 1)", "sum(has_evs)", "sum(move = 1)"]


@pytest.mark.parametrize("sql", [*map(OF_STEPS.format, WINDOWS), *map(OF_RUNS.format, SUMS)])
def test_counts_and_sums_are_signed(archive: a2store.Archive, sql: str) -> None:
    table = pa.table(archive.sql(sql))
    assert table["value"].type == pa.int64()
    assert [tuple(row.values()) for row in table.to_pylist()] == of_files(archive).execute(sql).fetchall()
    assert min(table["value"].to_pylist()) < 0


def test_sums_of_boards_are_unsigned(archive: a2store.Archive, columns: dict[str, Any]) -> None:
    (found,) = pa.table(archive.sql("SELECT sum(board) FROM steps")).columns
    assert (found.type, found[0].as_py()) == (pa.uint64(), int(columns["board"].sum()))
    (found,) = pa.table(archive.sql("SELECT min(max_score - board_score(board)) FROM steps")).columns
    scores = pa.table(archive.sql("SELECT board_score(board) AS s FROM steps ORDER BY run_id, step_index"))["s"]
    assert scores.type == pa.int64()
    assert int(found[0].as_py()) == (columns["max_score"].astype(np.int64) - scores.to_numpy()).min()


# Booleans


@pytest.mark.parametrize(
    ("condition", "same"),
    [
        ("verified = 1", "verified"),
        ("0 = verified", "NOT verified"),
        ("verified <> 0", "verified"),
    ],
)
def test_booleans_beside_0_and_1(archive: a2store.Archive, condition: str, same: str) -> None:
    counts = [archive.sql(f"SELECT * FROM runs WHERE {where}").count() for where in (condition, same)]
    assert counts[0] == counts[1]
    shown = [pa.table(archive.sql(f"SELECT {what} AS c FROM runs ORDER BY run_id"))["c"] for what in (condition, same)]
    assert shown[0] == shown[1]
