"""Integers in SQL beside unsigned columns, functions of other engines, and refusals that show another way."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import a2store

SOURCE = "FROM steps ORDER BY run_id, step_index"


@pytest.fixture(scope="module")
def columns(archive: a2store.Archive) -> dict[str, Any]:
    table = pa.table(archive.sql(f"SELECT * {SOURCE}"))
    return {name: table[name].to_numpy() for name in ("board", "max_score", "step_index", "num_steps")}


def values(archive: a2store.Archive, expression: str, params: Any = None) -> pa.ChunkedArray:
    return pa.table(archive.sql(f"SELECT {expression} AS value {SOURCE}", params))["value"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("board * 3", lambda c: c["board"] * np.uint64(3)),
        ("3 * board", lambda c: c["board"] * np.uint64(3)),
        ("board + 1", lambda c: c["board"] + np.uint64(1)),
        ("board - 1", lambda c: c["board"] - np.uint64(1)),
        ("(board + 1) & 15", lambda c: (c["board"] + np.uint64(1)) & np.uint64(15)),
        ("board >> 60", lambda c: c["board"] >> np.uint64(60)),
        ("(board >> 4) % 7", lambda c: (c["board"] >> np.uint64(4)) % np.uint64(7)),
        ("board / 10", lambda c: c["board"] // np.uint64(10)),
        ("board | 9223372036854775807", lambda c: c["board"] | np.uint64(2**63 - 1)),
        ("tile(board + 0, 3)", None),
        ("coalesce(nullif(board, 0), 7)", lambda c: c["board"]),
        ("CASE WHEN step_index = 0 THEN board ELSE 5 END", lambda c: np.where(c["step_index"] == 0, c["board"], 5)),
        ("greatest(board, 1000)", lambda c: np.maximum(c["board"], np.uint64(1000))),
    ],
)
def test_a_literal_beside_a_board_is_unsigned(
    archive: a2store.Archive, columns: dict[str, Any], expression: str, expected: Any
) -> None:
    found = values(archive, expression)
    if expected is None:
        expected, found_type = values(archive, expression.replace(" + 0", "")), found.type
        assert (found.to_pylist(), found_type) == (expected.to_pylist(), expected.type)
        return
    assert found.type == pa.uint64()
    assert found.to_numpy().tolist() == expected(columns).tolist()


def test_a_parameter_beside_a_board_is_unsigned(archive: a2store.Archive, columns: dict[str, Any]) -> None:
    found = values(archive, "board * $factor + $one", {"factor": 3, "one": 1})
    assert found.type == pa.uint64()
    assert found.to_numpy().tolist() == (columns["board"] * np.uint64(3) + np.uint64(1)).tolist()


def test_scores_in_thousands(archive: a2store.Archive, columns: dict[str, Any]) -> None:
    found = values(archive, "max_score / 1000 * 1000")
    assert pa.types.is_integer(found.type)
    assert found.to_numpy().tolist() == (columns["max_score"] // 1000 * 1000).tolist()
    groups = archive.sql(
        "SELECT max_score / 1000 AS bin, count(*) AS n FROM steps GROUP BY max_score / 1000 ORDER BY bin"
    )
    bins, counts = np.unique(columns["max_score"] // 1000, return_counts=True)
    table = pa.table(groups)
    assert (table["bin"].to_pylist(), table["n"].to_pylist()) == (bins.tolist(), counts.tolist())
    assert groups.count() == len(bins)


def test_groups_and_subqueries_keep_their_names(archive: a2store.Archive) -> None:
    sql = "SELECT board % 5, count(*) FROM steps WHERE board % 5 IN (SELECT board % 5 FROM steps WHERE step_index = 0) "
    table = pa.table(archive.sql(sql + "GROUP BY board % 5 HAVING board % 5 > 0 ORDER BY board % 5"))
    assert table.column_names[0] == "steps.board % Int64(5)"
    assert set(table.column(0).to_pylist()) <= {1, 2, 3, 4}


@pytest.mark.parametrize("column", ["step_index", "move", "num_steps", "highest_tile"])
def test_the_negative_of_an_unsigned_integer_is_signed(archive: a2store.Archive, column: str) -> None:
    found = values(archive, f"-{column}")
    assert found.type == pa.int64()
    plain = values(archive, column).to_pylist()
    assert found.to_pylist() == [None if value is None else -value for value in plain]
    assert archive.sql(f"SELECT 1 FROM steps WHERE -{column} < -1 ORDER BY -{column}").count() == sum(
        value is not None and value > 1 for value in plain
    )


def test_booleans_beside_0_and_1(archive: a2store.Archive) -> None:
    for condition, same in (
        ("verified = 1", "verified"),
        ("0 = verified", "NOT verified"),
        ("verified <> 0", "verified"),
    ):
        assert (
            archive.sql(f"SELECT * FROM runs WHERE {condition}").count()
            == archive.sql(f"SELECT * FROM runs WHERE {same}").count()
        )


@pytest.mark.parametrize(
    "select",
    [
        "count_if(move = 1)",
        "count_if(move = 1) FILTER (WHERE step_index > 3)",
        "arg_max(step_index, num_steps * 100000 + step_index)",
        "arg_min(step_index, num_steps * 100000 + step_index)",
        "max_by(run_id, run_id * 100000 + step_index)",
        "arg_max(step_index, CASE WHEN step_index < 5 THEN step_index END)",
        "round(variance(step_index), 6)",
    ],
)
def test_functions_of_other_engines(archive: a2store.Archive, select: str) -> None:
    steps = pa.table(archive.sql("SELECT * FROM steps"))
    sql = f"SELECT move, {select} AS value FROM steps GROUP BY move ORDER BY move"
    expected = duckdb.connect().execute(sql.replace("FROM steps", "FROM steps")).fetchall() if steps.num_rows else []
    found = [tuple(row.values()) for row in pa.table(archive.sql(sql)).to_pylist()]
    assert found == expected


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "SELECT * FROM steps WHERE (run_id, step_index) IN (SELECT run_id, 0 FROM runs)",
            r"\(a, b\) IN \(SELECT …\).*write EXISTS \(SELECT 1 FROM … WHERE x = a AND y = b\), or a join",
        ),
        ("SELECT mode(move) FROM steps", "the function mode.*group by the value"),
        ("DESCRIBE steps", "the tables are steps, runs and annotations.*a2store schema"),
        ("SHOW TABLES", "the tables are steps, runs and annotations"),
        ("SHOW COLUMNS FROM steps", "the tables are steps, runs and annotations"),
        ("SELECT sum(verified) FROM runs", "count_if"),
        ("SELECT run_id FROM steps RIGHT JOIN runs USING (run_id)", "RIGHT JOIN … USING.*coalesce"),
        ("SELECT run_id FROM steps FULL JOIN runs USING (run_id)", "FULL JOIN … USING.*coalesce"),
        ("SELECT run_id FROM steps NATURAL RIGHT JOIN runs", "NATURAL RIGHT JOIN.*22881"),
        ("SELECT run_id FROM steps NATURAL FULL OUTER JOIN runs", "NATURAL FULL JOIN.*22881"),
        (
            "SELECT r.run_id, n FROM runs r, LATERAL (SELECT row_number() OVER (ORDER BY step_index) AS n FROM steps s "
            "WHERE s.run_id = r.run_id) AS t",
            "a LATERAL subquery that refers to the outer query and has a window",
        ),
        (
            "SELECT run_id FROM runs r WHERE EXISTS (SELECT move, count(*) FROM steps s WHERE s.run_id = r.run_id "
            "GROUP BY ROLLUP (move))",
            "has GROUPING SETS, CUBE or ROLLUP",
        ),
        (
            "SELECT r.run_id, n FROM runs r, LATERAL (SELECT move, count(*) AS n FROM steps s "
            "WHERE s.run_id = r.run_id GROUP BY GROUPING SETS ((move), ())) AS t",
            "a LATERAL subquery that refers to the outer query and has GROUPING SETS",
        ),
    ],
)
def test_refusals_show_another_way(archive: a2store.Archive, sql: str, message: str) -> None:
    with pytest.raises(a2store.QueryError, match=message):
        archive.sql(sql).to_arrow()


def test_joins_with_names_that_are_right(archive: a2store.Archive) -> None:
    steps = archive.sql("SELECT * FROM steps").count()
    for join in ("JOIN runs USING (run_id)", "LEFT JOIN runs USING (run_id)"):
        assert archive.sql(f"SELECT run_id FROM steps {join}").count() == steps
