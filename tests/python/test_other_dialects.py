"""SQL as people write it for other engines: functions, joins, LATERAL, structs, and errors that suggest another way."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import a2store

T = pa.table({
    "k": pa.array([1, 1, 1, 2, 2, 3, None, 4, 4], pa.int64()),
    "x": pa.array([1.5, None, 3.0, -1.0, float("nan"), None, 2.0, 0.5, 0.5]),
    "s": ["a", "b", None, "d", "e", "f", "g", "h", "i"],
    "b": [True, False, None, True, True, None, False, False, None],
})  # fmt: skip
OTHER = pa.table({"k": pa.array([2, 3, 5, None], pa.int64()), "y": [20, 30, 50, 0]})


@pytest.fixture(scope="module")
def duck(archive: a2store.Archive) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for table in ("steps", "runs"):
        connection.read_parquet(archive.files(table)).create_view(table)
    connection.register("t", T)
    connection.register("o", OTHER)
    return connection


def rows(archive: a2store.Archive, sql: str, **tables: Any) -> list[tuple[Any, ...]]:
    found = pa.table(archive.sql(sql, tables={"t": T, "o": OTHER, **tables}))
    return list(zip(*found.to_pydict().values(), strict=True))


def agree(archive: a2store.Archive, duck: duckdb.DuckDBPyConnection, sql: str, other: str | None = None) -> None:
    def plain(rows: list[tuple[Any, ...]]) -> list[str]:
        return sorted(str(tuple(round(v, 9) if isinstance(v, float) else v for v in row)) for row in rows)

    expected = duck.execute(other or sql).fetchall()
    if re.search("count_?if", sql, re.IGNORECASE):
        # DuckDB's count_if of no rows is null.
        expected = [(*row[:-1], row[-1] or 0) for row in expected]
    assert plain(rows(archive, sql)) == plain(expected)


FUNCTIONS = [
    "count_if(b)",
    "count_if(x > 1)",
    "COUNT_IF(x > 1)",
    '"count_if"(b)',
    "countif(b)",
    "count_if(b) FILTER (WHERE x > 0)",
    "count_if(b OR x > 0) FILTER (WHERE s <> 'a' OR b)",
    "variance(x) FILTER (WHERE NOT isnan(x))",
    "arg_max(s, x)",
    "arg_min(s, x)",
    "max_by(s, x)",
    "min_by(s, x)",
    '"arg_max"(s, x)',
    "arg_max(s, CASE WHEN x < 3 THEN x END)",
    "arg_max(DISTINCT s, x) FILTER (WHERE x < 3)",
    "arg_max(k + 1, -x)",
    "sum(b)",
    "sum(CASE WHEN b THEN 1 ELSE 0 END)",
]
TIES = "(k <> 4 OR k IS NULL) AND"
"""Rows with equal keys of arg_max are left out."""


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_of_other_engines(archive: a2store.Archive, duck: duckdb.DuckDBPyConnection, function: str) -> None:
    rest = f"FROM t WHERE {TIES} true"
    agree(archive, duck, f"SELECT {function} {rest}")
    agree(archive, duck, f"SELECT {function} {rest} AND false")
    agree(archive, duck, f"SELECT k, {function} AS value {rest} GROUP BY k")
    agree(archive, duck, f"SELECT DISTINCT {function} AS value {rest} GROUP BY k HAVING count(*) > 1")
    agree(archive, duck, f"WITH c AS (SELECT k, {function} AS value {rest} GROUP BY ROLLUP (k)) SELECT * FROM c")


@pytest.mark.parametrize("function", ["count_if(b)", "count_if(x > 1) FILTER (WHERE b)", "variance(k)", "sum(b)"])
def test_functions_of_other_engines_over_windows(
    archive: a2store.Archive, duck: duckdb.DuckDBPyConnection, function: str
) -> None:
    for over in ("", "PARTITION BY k", "ORDER BY s", "PARTITION BY k ORDER BY s ROWS 1 PRECEDING"):
        agree(archive, duck, f"SELECT s, {function} OVER ({over}) AS value FROM t WHERE s IS NOT NULL")


def test_functions_of_other_engines_over_steps(archive: a2store.Archive, duck: duckdb.DuckDBPyConnection) -> None:
    key = "num_steps * 100000 + step_index"
    agree(archive, duck, f"SELECT move, arg_max(board, {key}), arg_min(engine, {key}), count_if(has_evs), "
          "round(variance(step_index), 6) FROM steps GROUP BY move")  # fmt: skip


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "SELECT * FROM steps WHERE (run_id, step_index) IN (SELECT run_id, 0 FROM runs)",
            r"\(a, b\) IN \(SELECT …\).*write EXISTS \(SELECT 1 FROM … WHERE x = a AND y = b\), or a join",
        ),
        ("SELECT * FROM steps WHERE (run_id, 0) NOT IN (SELECT run_id, 0 FROM runs)", r"\(a, b\) IN \(SELECT …\)"),
        ("SELECT mode(move) FROM steps", "the function mode.*group by the value"),
        ("SELECT arg_max(k, x) OVER () FROM t", r"arg_max\(…\) OVER.*GROUP BY"),
        ("SELECT count_if(DISTINCT b) FROM t", r"count_if\(DISTINCT …\).*bool_or"),
        ("SELECT avg(b) FROM t", "over a boolean.*CAST"),
        ("DESCRIBE steps", "the tables are steps, runs and annotations.*a2store schema"),
        ("DESC steps", "the tables are steps, runs and annotations.*a2store schema"),
        ("SHOW TABLES", "the tables are steps, runs and annotations"),
        ("SHOW COLUMNS FROM steps", "the tables are steps, runs and annotations"),
    ],
)
def test_refusals_show_another_way(archive: a2store.Archive, sql: str, message: str) -> None:
    with pytest.raises(a2store.QueryRefusedError, match=message):
        rows(archive, sql)


@pytest.mark.parametrize("where", ["(k, s) IN ((1, 'a'), (2, 'e'))", "(k, s) = (1, 'a')"])
def test_tuples_in_lists(archive: a2store.Archive, duck: duckdb.DuckDBPyConnection, where: str) -> None:
    agree(archive, duck, f"SELECT k, s FROM t WHERE {where}")


# Joins by names

JOINS = [
    "t JOIN o USING (k)",
    "t LEFT JOIN o USING (k)",
    "t NATURAL JOIN o",
    "t NATURAL LEFT JOIN o",
    "(SELECT DISTINCT k FROM t) AS d NATURAL LEFT JOIN o",
]


@pytest.mark.parametrize("join", JOINS)
def test_joins_by_names(archive: a2store.Archive, duck: duckdb.DuckDBPyConnection, join: str) -> None:
    agree(archive, duck, f"SELECT k, count(*) AS n FROM {join} GROUP BY k")
    agree(archive, duck, f"SELECT k FROM {join} ORDER BY k")


REFUSED_JOINS = [
    ("t RIGHT JOIN o USING (k)", "RIGHT JOIN … USING"),
    ("t RIGHT OUTER JOIN o USING (k)", "RIGHT JOIN … USING"),
    ("t FULL JOIN o USING (k)", "FULL JOIN … USING"),
    ("t NATURAL RIGHT JOIN o", "NATURAL RIGHT JOIN"),
    ("t NATURAL FULL OUTER JOIN o", "NATURAL FULL JOIN"),
    ("t JOIN o AS p ON t.k = p.k FULL JOIN o USING (k)", "FULL JOIN … USING"),
    ("runs, t FULL JOIN o USING (k)", "FULL JOIN … USING"),
    ("(t FULL JOIN o USING (k))", "FULL JOIN … USING"),
    ("runs CROSS JOIN (t FULL JOIN o USING (k))", "FULL JOIN … USING"),
    ("runs JOIN ((t NATURAL RIGHT JOIN o) JOIN o AS p ON true) ON true", "NATURAL RIGHT JOIN"),
    ("(SELECT * FROM t FULL JOIN o USING (k)) AS d", "FULL JOIN … USING"),
    ("runs, LATERAL (SELECT * FROM t FULL JOIN o USING (k)) AS d", "FULL JOIN … USING"),
]


@pytest.mark.parametrize(("join", "what"), REFUSED_JOINS)
def test_joins_by_names_that_would_lose_keys(archive: a2store.Archive, join: str, what: str) -> None:
    for sql in (
        f"SELECT 1 FROM {join}",
        f"WITH c AS (SELECT 1 FROM {join}) SELECT * FROM c",
        f"SELECT 1 FROM runs WHERE EXISTS (SELECT 1 FROM {join})",
        f"SELECT 1 UNION ALL SELECT 1 FROM {join}",
        f"EXPLAIN SELECT 1 FROM {join}",
    ):
        with pytest.raises(a2store.QueryRefusedError, match=f"^refused: {what}: .*coalesce"):
            rows(archive, sql)


KEYS_WITH_TABLES = [
    "t JOIN o USING (k) WHERE {} > 1",
    "t NATURAL LEFT JOIN o WHERE {} > 1",
    "t LEFT JOIN o USING (k) LEFT JOIN o AS p USING (k)",
    "t LEFT JOIN (o LEFT JOIN o AS p USING (k)) USING (k)",
]


@pytest.mark.parametrize("rest", KEYS_WITH_TABLES)
def test_some_keys_need_their_table(archive: a2store.Archive, duck: duckdb.DuckDBPyConnection, rest: str) -> None:
    agree(archive, duck, f"SELECT t.k FROM {rest.format('t.k')}")
    with pytest.raises(
        a2store.QueryError, match=r"Ambiguous.* k: write the name of a table before it, as in runs\.run_id"
    ):
        rows(archive, f"SELECT k FROM {rest.format('k')}")


# LATERAL

LATERAL = [
    "t, LATERAL (SELECT y AS z FROM o WHERE o.k = t.k) AS l",
    "t CROSS JOIN LATERAL (SELECT y AS z FROM o WHERE o.k <= t.k) AS l",
    "t LEFT JOIN LATERAL (SELECT y AS z FROM o WHERE o.k = t.k) AS l ON true",
    "t LEFT JOIN LATERAL (SELECT y AS z FROM o WHERE o.k = t.k) AS l ON z > 20",
    "t JOIN LATERAL (SELECT y AS z FROM o WHERE o.k = t.k) AS l ON z > 20",
    "t, LATERAL (SELECT count(*) AS z FROM o WHERE o.k = t.k) AS l",
    "t LEFT JOIN LATERAL (SELECT count(*) + 1 AS z FROM o WHERE o.k = t.k) AS l ON true",
    "t, LATERAL (SELECT coalesce(sum(y), 0) AS z FROM o WHERE o.k = t.k) AS l",
    "t, LATERAL (SELECT arg_max(y, y) AS z FROM o WHERE o.k = t.k) AS l",
    "t, LATERAL (SELECT count(*) AS z FROM o WHERE o.k = t.k GROUP BY y) AS l",
    "t, LATERAL (SELECT DISTINCT y AS z FROM o WHERE o.k = t.k OR y = 0) AS l",
    "t, LATERAL (SELECT o.y AS z FROM o LEFT JOIN o AS p ON o.k = p.k WHERE o.k = t.k ORDER BY z) AS l",
    "t, LATERAL (SELECT y AS z FROM (SELECT * FROM o ORDER BY y LIMIT 2) AS q WHERE q.k = t.k) AS l",
    "t, LATERAL (SELECT row_number() OVER (ORDER BY y) AS z FROM o) AS l",
    "t, LATERAL (SELECT y FROM o WHERE o.k = t.k) AS l, LATERAL (SELECT max(y) AS z FROM o WHERE o.y = l.y) AS m",
]


@pytest.mark.parametrize("lateral", LATERAL)
def test_lateral_subqueries(archive: a2store.Archive, duck: duckdb.DuckDBPyConnection, lateral: str) -> None:
    agree(archive, duck, f"SELECT t.k, z FROM {lateral}")
    agree(archive, duck, f"SELECT count(*) FROM {lateral} WHERE z > 1 OR z IS NULL")


REFUSED_LATERAL = {
    "SELECT row_number() OVER (ORDER BY y) AS z FROM o WHERE o.k <= t.k": "has a window",
    "SELECT sum(y) OVER (ORDER BY y) AS z FROM (SELECT * FROM o WHERE o.k = t.k) AS q": "has a window",
    "SELECT count(*) AS z FROM o WHERE o.k = t.k HAVING count(*) > 0": "has HAVING",
    "SELECT count(*) AS z FROM o WHERE o.k = t.k GROUP BY y HAVING count(*) > 0": "has HAVING",
    "SELECT count(*) AS z FROM o WHERE o.k = t.k GROUP BY ROLLUP (y)": "has GROUPING SETS, CUBE or ROLLUP",
    "SELECT y AS z FROM o WHERE o.k = t.k ORDER BY y LIMIT 1": "has LIMIT or OFFSET",
    "SELECT y AS z FROM o WHERE o.k = t.k OFFSET 1": "has LIMIT or OFFSET",
    "SELECT y AS z FROM o WHERE o.k = t.k UNION ALL SELECT 0": "has UNION",
    "SELECT y AS z FROM o WHERE o.k = t.k UNION SELECT 0": "has UNION",
    "SELECT y AS z FROM o WHERE o.k = t.k INTERSECT SELECT y FROM o": "has an inner subquery, a set operation or ON",
    "SELECT y AS z FROM o EXCEPT SELECT y FROM o WHERE o.k = t.k": "has an inner subquery, a set operation or ON",
    "SELECT y AS z FROM (SELECT * FROM o WHERE o.k = t.k) AS q": "has an inner subquery, a set operation or ON",
    "WITH c AS (SELECT * FROM o WHERE o.k = t.k) SELECT y AS z FROM c": "has an inner subquery, a set operation or ON",
    "SELECT o.y AS z FROM o JOIN o AS p ON o.k = p.k AND p.k = t.k": "has an inner subquery, a set operation or ON",
    "SELECT o.y AS z FROM o LEFT JOIN o AS p ON p.k = t.k WHERE o.k = t.k": "has an inner subquery or ON",
    "SELECT t.k * 2 AS z": "has an outer column outside WHERE",
    "SELECT y + t.k AS z FROM o WHERE o.k = t.k": "has an outer column outside WHERE",
    "SELECT max(y + t.k) AS z FROM o": "has an outer column outside WHERE",
    "VALUES (t.k)": "has an inner subquery, a set operation or ON",
    "SELECT max(y) AS z FROM o WHERE o.k < t.k": "cannot rewrite as a join: compare the outer columns with = only",
    "SELECT count(*) AS z FROM o WHERE t.b": "cannot rewrite as a join: compare the outer columns with = only",
    "SELECT y AS z FROM o WHERE o.k IN (SELECT k FROM o AS p WHERE p.k = t.k)": "two or more levels out",
}


@pytest.mark.parametrize("lateral", REFUSED_LATERAL)
def test_lateral_subqueries_that_are_more_than_joins(archive: a2store.Archive, lateral: str) -> None:
    for join, on in ((",", ""), ("LEFT JOIN", "ON true")):
        with pytest.raises(a2store.QueryRefusedError, match=REFUSED_LATERAL[lateral]):
            rows(archive, f"SELECT * FROM t {join} LATERAL ({lateral}) AS l {on}")


@pytest.mark.parametrize(
    "condition",
    [
        "EXISTS (SELECT 1 FROM o WHERE o.k = t.k GROUP BY ROLLUP (o.k))",
        "t.k IN (SELECT o.k FROM o WHERE o.k = t.k GROUP BY CUBE (o.k))",
        "1 = (SELECT count(*) FROM o WHERE o.k = t.k GROUP BY GROUPING SETS (()))",
    ],
)
def test_grouping_sets_in_correlated_subqueries(archive: a2store.Archive, condition: str) -> None:
    message = "that refers to the outer query and has GROUPING SETS, CUBE or ROLLUP"
    with pytest.raises(a2store.QueryRefusedError, match=message):
        rows(archive, f"SELECT * FROM t WHERE {condition}")


# Fields of structs


@pytest.fixture(scope="module")
def structs() -> pa.Table:
    """Structs, in which pyarrow stores values below null."""
    inner = pa.array([{"a": 1}, {"a": 2}, {"a": 3}], pa.struct([pa.field("a", pa.int64(), nullable=False)]))
    outer = pa.StructArray.from_arrays([inner, pa.array([4, 5, 6])], ["i", "b"], mask=pa.array([False, True, False]))
    of_rows = pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}])
    return pa.table({"n": [0, 1, 2], "o": outer, "s": of_rows})


FIELDS: dict[str, list[Any]] = {
    "s['a']": [1, None, None],
    "st.s.a": [1, None, None],
    "st.s['b']": ["x", None, "y"],
    "o['b']": [4, None, 6],
    "o['i']['a']": [1, None, 3],
    "st.o.i.a": [1, None, 3],
    "o['i']": [{"a": 1}, None, {"a": 3}],
    "coalesce(o['b'], -1)": [4, -1, 6],
    "(CASE WHEN n < 2 THEN o END)['b']": [4, None, None],
    "coalesce(o, NULL)['b']": [4, None, 6],
    "nullif(o, o)['b']": [None, None, None],
}


@pytest.mark.parametrize("file", [False, True])
@pytest.mark.parametrize("field", FIELDS)
def test_fields_of_null_structs_are_null(
    archive: a2store.Archive, structs: pa.Table, tmp_path: Path, field: str, file: bool
) -> None:
    pq.write_table(structs, tmp_path / "st.parquet")
    tables: dict[str, Any] = {"st": str(tmp_path / "st.parquet") if file else structs}
    expected = FIELDS[field]
    assert rows(archive, f"SELECT {field} FROM st ORDER BY n", **tables) == [(value,) for value in expected]
    some = [(n,) for n, value in enumerate(expected) if value is not None]
    assert rows(archive, f"SELECT n FROM st WHERE {field} IS NOT NULL ORDER BY n", **tables) == some
    if isinstance(expected[0], int):
        ordered = sorted({value for value in expected if value is not None})
        sql = f"SELECT {field} AS f FROM st WHERE {field} IS NOT NULL GROUP BY {field} ORDER BY {field}"
        assert rows(archive, sql, **tables) == [(value,) for value in ordered]
        joined = f"SELECT count(*) FROM st JOIN o AS p ON {field} = p.y / 5"
        assert rows(archive, joined, **tables) == [(sum(value in (4, 6, 10) for value in expected),)]


def test_joins_on_fields_of_structs(archive: a2store.Archive, structs: pa.Table) -> None:
    """DataFusion cannot plan such a join. The refusal shows another way, and that way works."""
    for field in ("s['a']", "o['b']", "o['i']['a']"):
        with pytest.raises(a2store.QueryError, match=r"a join on a field of a struct .*: select the field"):
            rows(archive, f"SELECT count(*) FROM st AS l JOIN st AS r ON l.{field} = r.{field}", st=structs)
        named = f"(SELECT {field} AS k FROM st)"
        sql = f"SELECT count(*) FROM {named} AS l JOIN {named} AS r ON l.k = r.k"
        assert rows(archive, sql, st=structs) == [(sum(value is not None for value in FIELDS[field]),)]


# Plans that were wrong after DataFusion optimized them twice


@pytest.mark.parametrize(
    "sql",
    [
        # apache/datafusion#25065: the limit below the groups was lost.
        "SELECT b FROM (SELECT a, b FROM two ORDER BY a LIMIT 2) GROUP BY b",
        "SELECT b, count(*) FROM (SELECT a, b FROM two ORDER BY a DESC LIMIT 3) GROUP BY b",
        "SELECT count(*) FROM (SELECT a FROM two ORDER BY a LIMIT 3)",
        # apache/datafusion#24807: the limit of a merge was lost.
        "SELECT * FROM two ORDER BY a LIMIT 3",
        "SELECT * FROM (SELECT * FROM two ORDER BY b LIMIT 3) AS d ORDER BY a LIMIT 2",
        "SELECT * FROM (SELECT * FROM two ORDER BY b LIMIT 3) AS d JOIN o ON true ORDER BY a, k LIMIT 2",
        "SELECT a, row_number() OVER (ORDER BY a) AS n FROM (SELECT a FROM two ORDER BY a DESC LIMIT 3) AS d",
        "SELECT DISTINCT b FROM (SELECT b FROM two ORDER BY a LIMIT 2 OFFSET 1) AS d",
    ],
)
def test_limits_over_several_partitions(archive: a2store.Archive, sql: str) -> None:
    parts = [pa.table({"a": [1, 100], "b": [10, 99]}), pa.table({"a": [2, 200], "b": [20, 98]})]
    two = pa.concat_tables(parts)
    assert two["a"].num_chunks == 2
    connection = duckdb.connect()
    connection.register("two", two)
    connection.register("o", OTHER)
    expected = sorted(connection.execute(sql).fetchall(), key=str)
    assert sorted(rows(archive, sql, two=two), key=str) == expected
    query = archive.sql(sql, tables={"two": two, "o": OTHER})
    # Each of these optimizes the analyzed plan again.
    assert [query.count(), query.count(), query.limit(9).count()] == [len(expected)] * 3
