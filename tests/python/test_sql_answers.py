"""Statements that once had wrong answers, and similar ones: DuckDB on the same files, or rows counted by hand."""

from __future__ import annotations

import itertools
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import a2store
import oracle
from conftest import PHASES
from duck import of_files
from faults.checks import LONG
from faults.shim import python
from sqlfuzz import worker

USERS = pa.table({
    "run_id": pa.array([1, 2, None, 4000], pa.uint32()),
    "label": ["a", "b", "a", "a"],
    "weight": pa.array([0.1, None, 0.3, 1e6], pa.float64()),
})  # fmt: skip


@pytest.fixture(scope="module")
def duck(archive: a2store.Archive) -> duckdb.DuckDBPyConnection:
    return of_files(archive, u=USERS)


def asked(archive: a2store.Archive, sql: str) -> list[tuple[Any, ...]]:
    columns = pa.table(archive.sql(sql, tables={"u": USERS})).to_pydict()
    return list(zip(*columns.values(), strict=True))


def sampled(names: str, stride: int, *axes: list[Any]) -> pytest.MarkDecorator:
    """Try every combination, or in the short form every ``stride``-th one; each value of each axis occurs."""
    chosen = list(itertools.product(*axes))[:: 1 if LONG else stride]
    assert [set(column) for column in zip(*chosen, strict=True)] == [set(axis) for axis in axes]
    return pytest.mark.parametrize(names, chosen)


# CASE and similar expressions: the type of the result can hold the values of all branches.


@sampled(
    "shape, expression",
    2,
    [
        "SELECT {0} AS value FROM steps ORDER BY run_id, step_index",
        "SELECT sum({0}) AS value FROM steps",
        "SELECT min({0}), max({0}), count({0}) FROM steps",
        "SELECT {0} AS value, count(*) FROM steps GROUP BY 1 ORDER BY 1",
        "SELECT value FROM (SELECT run_id, step_index, {0} AS value FROM steps) ORDER BY run_id, step_index",
        "SELECT lag({0}) OVER (ORDER BY run_id, step_index) AS value FROM steps ORDER BY run_id, step_index",
        "SELECT DISTINCT {0} AS value FROM steps ORDER BY 1",
    ],
    [
        "CASE WHEN move > 1 THEN 1 ELSE 0.75 END",
        "CASE WHEN move > 1 THEN move ELSE -1 END",
        "CASE WHEN move > 1 THEN move ELSE 300 END",
        "CASE WHEN move > 1 THEN 300 ELSE move END",
        "CASE move WHEN 1 THEN step_index WHEN 2 THEN -0.5 ELSE 7 END",
        "CASE WHEN move > 1 THEN move END",
        "CASE WHEN move > 5 THEN NULL ELSE 300 END",
        "coalesce(CASE WHEN move > 1 THEN move END, -1)",
        "coalesce(CASE WHEN move > 1 THEN move END, 0.25)",
        "nullif(move, 0.5)",
        "nullif(move, -1)",
    ],
)
def test_branches_of_several_types(
    archive: a2store.Archive, duck: duckdb.DuckDBPyConnection, shape: str, expression: str
) -> None:
    sql = shape.format(expression)
    if "ORDER BY 1" in sql:
        sql += " NULLS LAST"
    found = [tuple(None if v is None else float(v) for v in row) for row in asked(archive, sql)]
    expected = [tuple(None if v is None else float(v) for v in row) for row in duck.execute(sql).fetchall()]
    assert found == expected


# Filters on runs, with divisions by zero in some of them.


@pytest.fixture(scope="module")
def with_empty_game(run_files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> a2store.Archive:
    root = tmp_path_factory.mktemp("empty")
    games = [oracle.decode(path.read_bytes()) for path in run_files[:6]]
    (root / "runs").mkdir()
    for i, game in enumerate(games):
        (root / "runs" / f"{i}.a2run2").write_bytes(oracle.encode_a2run2(game))
    empty = replace(games[0], boards=(), moves=(), branches=(), final_board=games[0].boards[0], max_score=0)
    (root / "runs" / "9.a2run2").write_bytes(oracle.encode_a2run2(empty))
    archive = a2store.Archive.create(root / "games.a2", phases=PHASES)
    assert archive.ingest(root / "runs", progress=False).accepted == 7
    assert 0 in pa.table(archive.sql("SELECT num_steps FROM runs"))["num_steps"].to_pylist()
    return archive


@pytest.mark.parametrize(
    "condition",
    [
        "num_steps > 0 AND max_score / num_steps >= 0",
        "max_score / num_steps >= 0 AND num_steps > 0",
        "max_score / num_steps >= 0",
        "max_score % num_steps >= 0 AND engine IS NOT NULL OR run_id < 2",
        "CASE WHEN run_id <> 3 THEN 10 / (CAST(run_id AS BIGINT) - 3) > 0 ELSE FALSE END",
        "CASE WHEN run_id = 3 THEN FALSE ELSE 10 / (CAST(run_id AS BIGINT) - 3) < 0 END",
        "run_id <> 3 AND 10 / (CAST(run_id AS BIGINT) - 3) > 0",
        "10 / (CAST(run_id AS BIGINT) - 3) > 0 AND run_id <> 3",
        "run_id = 3 OR 10 / (CAST(run_id AS BIGINT) - 3) > 0",
        "run_id <> 3 AND (step_index < 5 AND 10 / (CAST(run_id AS BIGINT) - 3) > 0)",
        "step_index > 0 AND 100 / step_index > 3",
        "100 / step_index > 3 AND step_index > 0",
        "step_index = 0 OR 100 / step_index > 3",
        "move <> 2 AND 7 / (CAST(move AS INT) - 2) > 0",
        "CASE WHEN move = 2 THEN phase = 'early' ELSE 7 / (CAST(move AS INT) - 2) > 0 END",
    ],
)
@pytest.mark.parametrize(
    "shape",
    [
        "SELECT run_id, step_index FROM steps WHERE {0} ORDER BY run_id, step_index",
        "SELECT count(*), sum(move) FROM steps WHERE {0}",
        "SELECT count(*) FROM steps s JOIN runs r ON s.run_id = r.run_id WHERE {1}",
        "SELECT sum(CASE WHEN {0} THEN 1 ELSE 0 END) FROM steps",
    ],
)
def test_a_division_raises_no_error(with_empty_game: a2store.Archive, condition: str, shape: str) -> None:
    archive = with_empty_game
    qualified = re.sub(r"\b(num_steps|max_score|engine|run_id|step_index|move|phase)\b", r"s.\1", condition)
    sql = shape.format(condition, qualified)
    connection = of_files(archive)
    # DuckDB divides integers by //, and here gives null for a division by zero.
    connection.execute("SET error_on_division_by_zero = false")
    expected = connection.execute(sql.replace("/", "//")).fetchall()
    found = asked(archive, sql)
    assert [tuple(map(int, row)) for row in found] == [tuple(map(int, row)) for row in expected]


def test_a_random_condition_is_evaluated_once_per_row(archive: a2store.Archive) -> None:
    """About half of 20,000 rows are left. If each row were drawn twice, a quarter would be left."""
    both, either = "random() < 0.5 AND 100 / (step_index + 1) >= 0", "random() < 0.5 OR 100 / (step_index + 1) < 0"
    for condition in (both, either, f"NOT ({either})"):
        for select in (f"count(*) FROM steps WHERE {condition}", f"sum(CASE WHEN {condition} THEN 1 END) FROM steps"):
            ((left,),) = asked(archive, f"SELECT {select}")
            assert 0.4 < left / archive.num_steps < 0.6, select


def test_a_division_by_zero_is_null(with_empty_game: a2store.Archive) -> None:
    for divided in ("CAST(run_id AS BIGINT) - 3", "run_id - 3", "CAST(run_id - 3 AS DECIMAL(9, 1))", "0"):
        for operator in "/%":
            sql = f"SELECT run_id, 10 {operator} ({divided}) AS x FROM runs WHERE run_id = 3"
            assert asked(with_empty_game, sql) == [(3, None)], sql
    assert asked(with_empty_game, "SELECT 1.0 / 0 AS x, 6 / 4 AS y, 6 % 4 AS z") == [(float("inf"), 1, 2)]


# Tables: a query that determines its rows gives the same table on any number of threads.

DETERMINED = (
    "SELECT * FROM steps WHERE move <> 1",
    "SELECT * FROM (SELECT * FROM steps ORDER BY phase, run_id, step_index LIMIT 10) WHERE move < 3",
    "SELECT run_id/4 AS run_id, step_index, board FROM steps ORDER BY move, step_index, run_id, board",
    "SELECT run_id % 3 AS run_id, step_index, board FROM steps",
    "SELECT a.run_id, a.step_index, b.board FROM steps a JOIN steps b ON a.run_id = b.run_id "
    "AND b.step_index < 3 WHERE a.step_index < 4",
    "SELECT board, count(*) AS n FROM steps GROUP BY board",
    "SELECT board, avg(step_index) AS n FROM steps GROUP BY board",
    "SELECT board, row_number() OVER (ORDER BY phase, run_id, step_index) AS n, engine FROM steps",
    "SELECT board FROM steps WHERE move = 1 UNION ALL SELECT final_board FROM runs",
    "SELECT DISTINCT board, phase AS n FROM steps",
)
TABLE = """
import sys
import numpy as np
import a2store
for sql in sys.argv[2:]:
    extra = ["n"] if " AS n" in sql else []
    table = a2store.open(sys.argv[1]).sql(sql).materialize(extra=extra, progress=False)
    print(table.fingerprint, hash(np.asarray(table).tobytes()))
"""


def test_minus_zero(archive: a2store.Archive) -> None:
    zeros = pa.table({"x": [0.0, -0.0], "zero": [0.0, 0.0]})

    def are_equal(condition: str) -> list[bool]:
        query = archive.sql(f"SELECT {condition} AS same FROM zeros", tables={"zeros": zeros})
        return list(query.to_numpy()["same"].tolist())

    def values(sql: str) -> list[str]:
        query = archive.sql(sql, tables={"zeros": zeros})
        return [str(value) for value in query.to_numpy()["v"].tolist()]

    assert values("SELECT count(*) AS v FROM zeros GROUP BY x") == ["2"]
    assert values("SELECT count(DISTINCT x) AS v FROM zeros") == ["1"]
    assert values("SELECT count(*) AS v FROM zeros a JOIN zeros b ON a.x = b.zero") == ["4"]
    assert values("SELECT x AS v FROM zeros ORDER BY x") == ["-0.0", "0.0"]
    assert values("SELECT min(x) AS v FROM zeros") == ["-0.0"]
    equal = ("x = zero", "x >= zero", "x IS NOT DISTINCT FROM zero", "x BETWEEN zero AND zero", "x IN (0, 5, 6)")
    for condition in equal:
        assert are_equal(condition) == [True, True], condition
    for condition in ("nullif(x, zero) IS NULL", "CASE x WHEN zero THEN true ELSE false END", "x IN (0, 5, 6, 7, 8)"):
        assert are_equal(condition) == [True, False], condition
        assert are_equal(condition.replace("x", "x + 0.0", 1)) == [True, True], condition


def test_equal_queries_give_equal_tables(archive: a2store.Archive, tmp_path: Path) -> None:
    """On one and on seven threads, and on the compacted archive."""
    compacted = tmp_path / "compacted.a2"
    shutil.copytree(archive.path, compacted)
    a2store.open(compacted).compact(progress=False)
    assert a2store.open(compacted).version > archive.version
    library = worker.compiled(tmp_path)
    cores = [{"LD_PRELOAD": str(library), "CORES": n} for n in ("1", "7")] if library else []
    environments = [(archive.path, {}), (compacted, {}), *((archive.path, few) for few in cores)]
    found = []
    for path, environment in environments:
        done = python("-c", TABLE, path, *DETERMINED, environment={"PYTHONHASHSEED": "1", **environment})
        assert done.returncode == 0, done.stderr
        found.append(done.stdout)
    assert len(set(found)) == 1
    assert len(found[0].splitlines()) == len(set(found[0].splitlines())) == len(DETERMINED)


@pytest.mark.parametrize("sql", DETERMINED)
def test_the_order_of_a_table(archive: a2store.Archive, sql: str, tmp_path: Path) -> None:
    extra = ["n"] if " AS n" in sql else []
    query = archive.sql(sql)
    table = query.materialize(extra=extra, progress=False)
    rows = np.asarray(table)
    if re.search("JOIN|GROUP|DISTINCT|UNION|OVER", sql) is None:
        # The order of the query: of `steps`, or of its ORDER BY.
        assert rows["board"].tolist() == query.to_arrow()["board"].to_pylist()
    else:
        order = [(row["run_id"], row["step_index"], row.tobytes()) for row in rows]
        assert order == sorted(order)
    in_file = query.materialize(extra=extra, path=tmp_path / "rows.npy", progress=False)
    assert np.asarray(in_file).tobytes() == rows.tobytes()
    assert in_file.fingerprint == table.fingerprint
    assert a2store.StepTable.load(tmp_path / "rows.npy", progress=False).fingerprint == table.fingerprint
    again = a2store.open(archive.path).sql(sql).materialize(extra=extra, progress=False)
    again.loader(batch_size=8, seed=3).load_state_dict(table.loader(batch_size=8, seed=3).state_dict())


def test_fingerprints_of_other_rows_differ(archive: a2store.Archive, tmp_path: Path) -> None:
    sql = "SELECT board, random() AS n FROM steps"
    tables = [archive.sql(sql).materialize(extra=["n"], progress=False) for _ in range(2)]
    tables.append(archive.sql(sql).materialize(extra=["n"], path=tmp_path / "rows.npy", progress=False))
    assert len({table.fingerprint for table in tables}) == 3
    counts = "SELECT board, row_number() OVER (ORDER BY step_index, run_id) AS n FROM steps WHERE move < $1"
    other = [archive.sql(counts, [limit]).materialize(extra=["n"], progress=False) for limit in (2, 3)]
    assert other[0].fingerprint != other[1].fingerprint


# IN (SELECT …) with nulls, and filters above joins.

IN_SETS = [
    "SELECT run_id FROM u",
    "SELECT run_id FROM u WHERE run_id IS NOT NULL",
    "SELECT run_id FROM u WHERE run_id > 5000",
    "SELECT run_id FROM u WHERE run_id IS NULL",
    "SELECT run_id FROM runs WHERE run_id < 9",
    "SELECT u.run_id FROM u WHERE u.run_id <= r.run_id",
    "SELECT u.run_id FROM u WHERE u.label = CASE WHEN r.run_id % 2 = 0 THEN 'a' ELSE 'b' END",
    "SELECT o.num_steps FROM runs o WHERE o.run_id = nullif(r.run_id, 5)",
    "SELECT 3 FROM u WHERE u.run_id = nullif(r.run_id, 2)",
]


@sampled(
    "condition, value, rows",
    5,
    [
        "{0} IN ({1})",
        "{0} NOT IN ({1})",
        "NOT ({0} IN ({1}))",
        "{0} NOT IN ({1}) OR r.run_id = 3",
        "{0} IN ({1}) OR r.run_id = 3",
        "({0} IN ({1})) IS NULL",
        "({0} NOT IN ({1})) IS NOT TRUE",
        "CASE WHEN {0} IN ({1}) THEN FALSE ELSE TRUE END",
        "({0} IN ({1})) = FALSE",
        "{0} NOT IN ({1}) AND r.run_id > 5",
        "coalesce({0} IN ({1}), r.run_id < 10)",
    ],
    ["r.run_id", "nullif(r.run_id, 3)", "3", "CAST(NULL AS INT)"],
    IN_SETS,
)
def test_in_with_nulls(
    archive: a2store.Archive, duck: duckdb.DuckDBPyConnection, condition: str, value: str, rows: str
) -> None:
    sql = f"SELECT r.run_id FROM runs r WHERE {condition.format(value, rows)} ORDER BY 1"
    is_negated = condition in ("{0} NOT IN ({1})", "NOT ({0} IN ({1}))", "{0} NOT IN ({1}) AND r.run_id > 5")
    is_condition = condition in (
        "{0} IN ({1})", "{0} IN ({1}) OR r.run_id = 3", "CASE WHEN {0} IN ({1}) THEN FALSE ELSE TRUE END"
    )  # fmt: skip
    if "r." not in rows and (is_condition or (is_negated and value == "r.run_id")):
        assert asked(archive, sql) == duck.execute(sql).fetchall()
    else:
        with pytest.raises(a2store.QueryRefusedError, match="EXISTS"):
            archive.sql(sql, tables={"u": USERS})


@sampled(
    "condition, join, columns, left",
    7,
    [
        "s.run_id IS NULL AND u.label = 'a'",
        "u.run_id IS NULL",
        "s.run_id IS NULL",
        "u.run_id IS NULL AND s.num_steps > 100",
        "s.run_id IS NOT NULL AND u.run_id IS NULL",
        "s.run_id IS NULL OR u.weight IS NULL",
        "coalesce(s.run_id, 7) = 7",
        "coalesce(u.run_id, 7) = 7 AND s.run_id IS NOT NULL",
        "(s.run_id = u.run_id) IS NULL",
        "(s.run_id IS DISTINCT FROM u.run_id) AND u.label IS NOT NULL",
    ],
    ["LEFT", "RIGHT", "FULL", "INNER"],
    ["count(*)", "s.run_id, u.run_id, u.label", "u.run_id"],
    ["runs s", "u"],
)
def test_filters_above_joins(
    archive: a2store.Archive, duck: duckdb.DuckDBPyConnection, columns: str, condition: str, join: str, left: str
) -> None:
    right = "u" if left == "runs s" else "runs s"
    sql = f"SELECT {columns} FROM {left} {join} JOIN {right} ON s.run_id = u.run_id WHERE {condition}"
    if columns != "count(*)":
        sql = sql.replace("s.run_id, u.run_id", "s.run_id AS a, u.run_id AS b")
    assert sorted(asked(archive, sql), key=repr) == sorted(duck.execute(sql).fetchall(), key=repr), sql


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT run_id, CAST(run_id AS BIGINT), count(*) FROM runs GROUP BY run_id, CAST(run_id AS BIGINT)",
        "SELECT sum(num_steps) OVER (PARTITION BY max_score) AS a, "
        "sum(num_steps) OVER (PARTITION BY CAST(max_score AS DOUBLE)) AS b FROM runs",
        "SELECT sum(ev_up) AS a, sum(CAST(ev_up AS BIGINT)) AS b FROM steps",
    ],
)
def test_equal_column_names_are_an_error(archive: a2store.Archive, sql: str) -> None:
    """The engine names an expression without its casts, but never uses one instead of the other."""
    with pytest.raises(a2store.QueryError, match=r"duplicate unqualified field name|unique expression names") as caught:
        asked(archive, sql)
    assert "run_id" in str(caught.value) or "num_steps" in str(caught.value) or "ev_up" in str(caught.value)


@pytest.mark.parametrize(
    "sql",
    [
        # A condition without columns above an aggregate without groups.
        "SELECT n FROM (SELECT count(*) AS n FROM steps) AS x WHERE (SELECT max(run_id) FROM runs) < 0",
        "SELECT d.n FROM (SELECT n, 'a' AS t FROM (SELECT count(*) AS n FROM steps) AS x) AS d WHERE d.t = 'b'",
        "SELECT d.n FROM (SELECT n, 'a' AS t FROM (SELECT count(*) AS n FROM runs) AS x) AS d WHERE t = 'a' AND n > 5",
        # Scalar subqueries without a row.
        "SELECT run_id FROM runs WHERE (SELECT num_steps FROM runs WHERE run_id = 999) IS NULL ORDER BY 1",
        "SELECT run_id FROM runs WHERE (SELECT num_steps FROM runs WHERE run_id = 999) IS NOT NULL",
        "SELECT run_id FROM runs WHERE coalesce((SELECT num_steps FROM runs WHERE run_id = 999), 1) = 1 ORDER BY 1",
        "SELECT run_id, (SELECT num_steps FROM runs WHERE run_id = 999) AS x FROM runs ORDER BY 1",
        "SELECT run_id, (SELECT num_steps FROM runs WHERE run_id = 3) AS x FROM runs ORDER BY 1",
        "SELECT count(*) FROM steps WHERE run_id NOT IN (SELECT max(run_id) FROM runs)",
        "SELECT count(*) FROM steps WHERE run_id IN (SELECT max(run_id) FROM runs GROUP BY engine)",
        # Several aggregates of one SELECT, of which the reader could drop rows for one.
        "SELECT max(max_score), max(num_steps + 1), min(run_id) FROM runs",
        # Keys of grouping sets that are constant in the input.
        "SELECT CASE WHEN ('abc' IS NULL) THEN ev_down ELSE 3 END AS c FROM steps "
        "GROUP BY ROLLUP (CASE WHEN ('abc' IS NULL) THEN ev_down ELSE 3 END) ORDER BY c",
        "SELECT t AS c, sum(n) FROM (SELECT 'late' AS t, run_id AS n FROM runs) AS x "
        "GROUP BY GROUPING SETS ((t, n), (t), ()) ORDER BY c DESC NULLS FIRST, 2 LIMIT 3",
        # A literal beside a CASE whose first branch alone is a uint64.
        "SELECT CASE run_id WHEN 2 THEN -1 WHEN 1 THEN c ELSE 3 END FROM (SELECT run_id, CASE WHEN run_id > 1 THEN "
        "final_board ELSE 1e300 END AS c FROM runs) AS d ORDER BY run_id",
        # CASE and literals over a UNION of several types.
        "SELECT CASE WHEN x > 0 THEN x ELSE -1 END AS c FROM (SELECT run_id AS x FROM runs UNION ALL SELECT 0.5) AS u "
        "ORDER BY c",
        "SELECT CASE x WHEN 0 THEN 10 WHEN 1 THEN 20 ELSE 30 END AS c FROM (SELECT run_id AS x FROM runs UNION SELECT "
        "0.5) AS u ORDER BY c",
        "SELECT CASE WHEN run_id > 1 THEN (SELECT max(run_id) FROM runs WHERE run_id > 99 UNION ALL SELECT 0.5 WHERE "
        "FALSE) ELSE -7 END AS c FROM runs ORDER BY c",
        "SELECT max(x + 1) FROM (SELECT run_id AS x FROM runs UNION ALL SELECT final_board FROM runs) AS u",
        "SELECT engine FROM runs INTERSECT SELECT 'beta'",
        "SELECT nullif(run_id, run_id) FROM runs INTERSECT SELECT NULL",
        # A sort above a UNION with columns that are equal or constant.
        "(SELECT n AS a, n AS b FROM (SELECT max(run_id) AS n FROM runs) AS d FULL JOIN (SELECT count(*) AS k FROM u) "
        "AS x ON TRUE) UNION ALL (SELECT run_id AS a, 1 AS b FROM u WHERE run_id = 2) ORDER BY b",
        # Comparisons with casts that round, or that are null for large values.
        "SELECT count(*) FROM runs WHERE TRY_CAST(num_steps AS TINYINT) > 3",
        "SELECT count(*) FROM runs WHERE NOT (TRY_CAST(num_steps AS TINYINT) < 3)",
        "SELECT count(*) FROM runs WHERE TRY_CAST(num_steps AS TINYINT) NOT IN (3, 4)",
        "SELECT count(*) FROM steps WHERE (TRY_CAST(board AS INT) > 3) IS NULL",
        "SELECT run_id, TRY_CAST(num_steps * 100 AS SMALLINT) <> 3 FROM runs ORDER BY 1",
        "SELECT count(*) FROM (SELECT run_id, CAST(run_id + 0.3 AS DECIMAL(10, 2)) AS a FROM runs) AS d "
        "WHERE CAST(a AS INT) = 2",
        "SELECT run_id, CAST(a AS INT) IN (2, 4) FROM (SELECT run_id, CAST(run_id + 0.3 AS DECIMAL(10, 2)) AS a "
        "FROM runs) AS d ORDER BY 1",
        "SELECT count(*) FROM (SELECT CAST(run_id + 0.26 AS DECIMAL(10, 2)) AS a FROM runs) AS d "
        "WHERE CAST(a AS DECIMAL(10, 1)) = 2.3",
        "SELECT x = TIMESTAMP '2024-01-01 00:00:01' FROM (SELECT CAST(t AS TIMESTAMP(0)) AS x FROM "
        "(VALUES (TIMESTAMP '2024-01-01 00:00:01.000'), (TIMESTAMP '2024-01-01 00:00:02')) AS v(t)) AS d",
        # ORDER BY of a column that is constant on the side of an outer join that is filled with nulls.
        "SELECT d.engine FROM runs AS r LEFT JOIN (SELECT * FROM runs WHERE engine = 'beta') AS d "
        "ON r.run_id = d.run_id ORDER BY d.engine LIMIT 5",
        "SELECT d.c FROM (SELECT run_id, 'x' AS c FROM runs WHERE run_id > 3) AS d RIGHT JOIN runs AS r "
        "ON r.run_id = d.run_id ORDER BY c NULLS FIRST",
        "SELECT d.c FROM (SELECT 1 AS k FROM u) AS w FULL JOIN (SELECT TRUE AS c, 0 AS k FROM steps) AS d ON w.k = d.k "
        "ORDER BY c NULLS LAST LIMIT 3",
        "SELECT d.engine FROM runs AS r LEFT JOIN (SELECT * FROM runs WHERE engine = 'beta') AS d "
        "ON r.run_id = d.run_id AND r.num_steps > d.run_id ORDER BY d.engine NULLS FIRST",
        # A sort above a window over an aggregate without groups.
        "SELECT n, row_number() OVER (PARTITION BY k) AS r FROM (SELECT max(run_id) AS k, count(*) AS n FROM runs) "
        "AS d WHERE n IN (SELECT num_steps FROM runs WHERE max_score < 5) ORDER BY n",
        "SELECT n, sum(n) OVER (PARTITION BY k ORDER BY n) AS r FROM (SELECT max(run_id) AS k, count(*) AS n "
        "FROM runs) AS d JOIN u ON u.run_id < d.n ORDER BY n, r",
        # Lists with columns, and subqueries with DISTINCT.
        "SELECT run_id FROM runs WHERE 3 NOT IN (1, coalesce(nullif(run_id, 4), 1)) ORDER BY 1",
        "SELECT run_id FROM runs WHERE run_id NOT IN (1, CASE WHEN run_id > 5 THEN num_steps END) ORDER BY 1",
        "SELECT run_id FROM runs WHERE run_id IN (1, CASE WHEN run_id > 5 THEN run_id END) ORDER BY 1",
        "SELECT run_id FROM runs AS r WHERE 0 IN (1, (SELECT count(*) FROM runs AS o WHERE o.engine = r.engine)) "
        "ORDER BY 1",
        "SELECT run_id, 3 NOT IN (1, (SELECT max(o.run_id) FROM runs AS o WHERE o.engine = r.engine)) FROM runs "
        "AS r ORDER BY 1",
        "SELECT run_id FROM runs AS r WHERE EXISTS (SELECT 1 FROM u WHERE u.run_id = r.run_id AND "
        "2 IN (1, coalesce(nullif(r.run_id, 1), 7))) ORDER BY 1",
        "SELECT run_id FROM runs WHERE run_id = 4 OR run_id IN (SELECT DISTINCT run_id FROM u) ORDER BY 1",
    ],
)
def test_optimizer_rules_that_went_too_far(archive: a2store.Archive, duck: duckdb.DuckDBPyConnection, sql: str) -> None:
    assert asked(archive, sql) == duck.execute(sql).fetchall()


@pytest.mark.parametrize("alias", ["steps", "steps AS s", "(SELECT * FROM steps) AS s"])
@pytest.mark.parametrize("sql", ["CAST(max_score AS INT) - 3 > 1997", "-CAST(num_steps AS INT) < -300"])
def test_filters_with_casts_of_run_columns(
    archive: a2store.Archive, duck: duckdb.DuckDBPyConnection, alias: str, sql: str
) -> None:
    """A cast that could fail is no reason to drop the filter."""
    found = asked(archive, f"SELECT count(*) FROM {alias} WHERE {sql}")
    assert found == duck.execute(f"SELECT count(*) FROM {alias} WHERE {sql}").fetchall()
    assert 0 < found[0][0] < archive.num_steps
    with pytest.raises((a2store.QueryError, pa.ArrowInvalid), match="Can't cast"):
        asked(archive, f"SELECT count(*) FROM {alias} WHERE CAST(max_score AS TINYINT) + 1 > 5")


def test_numbers_of_texts_are_plain_columns(archive: a2store.Archive, duck: duckdb.DuckDBPyConnection) -> None:
    """A text column with a dictionary gives numbers without one, which operators and functions take."""
    of = ["ascii", "bit_length", "character_length", "char_length", "length", "octet_length"]
    for column in ("phase", "engine"):
        terms = ", ".join(f"-{name}({column}) AS {name}, abs({name}({column})) * NULL" for name in of)
        sql = f"SELECT {terms} FROM steps ORDER BY run_id, step_index"
        assert pa.schema(archive.sql(sql).schema).types[::2] == [pa.int64()] * len(of)
        # DuckDB's octet_length takes no texts.
        expected = duck.execute(sql.replace("octet_length", "strlen")).fetchall()
        assert asked(archive, sql) == expected


def test_aggregates_drop_no_rows_in_the_reader(archive: a2store.Archive) -> None:
    """Which rows the engine would drop depends on how fast other threads are, so the plan is looked at."""
    assert "DynamicFilter" not in archive.sql("SELECT max(ev_up), max(step_index + 1) FROM steps").explain()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM steps WHERE phase = 'late' AND 'late' = phase",
        "SELECT count(*) FROM steps WHERE phase <= 'late' AND 'late' > phase",
        "SELECT count(*) FROM steps WHERE move >= 1 AND 3 > move AND 2 = move AND move = 2",
        "SELECT count(*) FROM runs WHERE 3 IN (SELECT run_id FROM runs WHERE run_id = 3)",
        "SELECT count(*) FROM runs WHERE run_id NOT IN (SELECT run_id FROM runs WHERE 3 = run_id)",
        "SELECT count(*) FROM runs WHERE 'a' IN (SELECT label FROM u WHERE label = 'a' AND run_id < 3)",
        "SELECT count(*) FROM runs r JOIN u ON 'a' = u.label WHERE u.label = 'a'",
        "SELECT count(*) FROM runs r LEFT JOIN u ON r.run_id = u.run_id AND 'b' = u.label WHERE u.label = 'b'",
        "SELECT count(*) FROM (SELECT * FROM steps WHERE 5 < step_index) AS s WHERE step_index > 5 AND 6 <= step_index",
    ],
)
def test_literals_on_the_left(archive: a2store.Archive, duck: duckdb.DuckDBPyConnection, sql: str) -> None:
    assert asked(archive, sql) == duck.execute(sql).fetchall()


AGGREGATES = ["count(*)", "count(1)", "count({0})", "sum({0})", "min({0})", "max({0})", "count(DISTINCT {0})"]


def test_aggregates_of_aggregates(archive: a2store.Archive, duck: duckdb.DuckDBPyConnection) -> None:
    """Exact statistics of files stand in for an aggregate only if it is the one that reads the files."""
    statements = []
    for table, key in (("steps", "move"), ("runs", "run_id"), ("runs", "max_score")):
        for inner, outer in itertools.product(AGGREGATES, AGGREGATES):
            one, other = inner.format(key), outer.format("v")
            statements += [
                f"SELECT {other} FROM (SELECT {one} AS v FROM {table})",
                f"SELECT {other} FROM (SELECT {one} FILTER (WHERE {key} > 1) AS v FROM {table})",
                f"SELECT {other} FILTER (WHERE v > 1) FROM (SELECT {key}, {one} AS v FROM {table} GROUP BY {key})",
            ]
    assert len(statements) == 3 * 49 * 3
    # The stride meets each shape with each of the aggregates.
    for sql in statements if LONG else statements[::4]:
        found = [tuple(None if v is None else int(v) for v in row) for row in asked(archive, sql)]
        assert found == duck.execute(sql).fetchall(), sql


# Rewrites of a sort with LIMIT over groups: the sort's key must be the key of the groups, and nothing between may need
# all groups.


@sampled(
    "sql, direction, limit",
    5,
    [
        "SELECT 9 - n AS n FROM (SELECT DISTINCT CAST(move AS BIGINT) AS n FROM steps) ORDER BY n",
        "SELECT n % 3 AS n FROM (SELECT DISTINCT step_index AS n FROM steps) ORDER BY n",
        "SELECT CASE WHEN n BETWEEN 1 AND 9 THEN 'x' END AS n FROM (SELECT DISTINCT run_id AS n FROM steps) ORDER BY n",
        "SELECT n % 5 AS n FROM (SELECT step_index AS n FROM steps UNION SELECT max_score FROM runs) ORDER BY n",
        "SELECT n + 0 AS n FROM (SELECT DISTINCT 9 - CAST(step_index AS BIGINT) AS n FROM steps) ORDER BY n",
        "SELECT m AS k, k AS m FROM (SELECT move AS k, max(step_index) AS m FROM steps GROUP BY move) ORDER BY k, m",
        "SELECT k, -m AS m "
        "FROM (SELECT run_id AS k, max(CAST(step_index AS BIGINT)) AS m FROM steps GROUP BY run_id) ORDER BY m, k",
        "SELECT k, count(*) OVER () AS n FROM (SELECT DISTINCT step_index AS k FROM steps) ORDER BY k",
        "SELECT k, row_number() OVER (ORDER BY k DESC) AS n FROM (SELECT DISTINCT run_id AS k FROM steps) ORDER BY k",
        "SELECT k "
        "FROM (SELECT DISTINCT move AS k FROM steps "
        "UNION ALL SELECT DISTINCT 9 - CAST(run_id AS BIGINT) FROM runs) ORDER BY k",
        "SELECT a.k FROM (SELECT DISTINCT run_id AS k FROM steps) a JOIN (SELECT DISTINCT move AS k FROM steps) b "
        "ON a.k = b.k + 1 ORDER BY a.k",
        "SELECT DISTINCT step_index FROM steps ORDER BY step_index",
        "SELECT move, max(step_index) AS m FROM steps GROUP BY move ORDER BY m",
    ],
    ["ASC NULLS LAST", "DESC NULLS LAST", "ASC NULLS FIRST", "DESC NULLS FIRST"],
    [1, 3, 1000],
)
def test_limits_over_groups(
    archive: a2store.Archive, duck: duckdb.DuckDBPyConnection, sql: str, direction: str, limit: int
) -> None:
    head, _, keys = sql.rpartition(" ORDER BY ")
    sql = f"{head} ORDER BY {', '.join(f'{key} {direction}' for key in keys.split(', '))} LIMIT {limit}"
    found, expected = asked(archive, sql), duck.execute(sql).fetchall()
    assert len(found) == len(expected)
    if keys == "m":
        # Rows with equal keys may be in any order, so only the keys are compared.
        found, expected = [row[1] for row in found], [row[1] for row in expected]
    assert found == expected


@sampled(
    "source, key, direction, items",
    7,
    [
        "(SELECT move AS k, max(step_index) AS m FROM steps WHERE move IS NOT NULL GROUP BY move)",
        "(SELECT run_id + 0 AS k, 99 - CAST(run_id AS BIGINT) AS m FROM runs)",
        "(SELECT run_id AS k, num_steps * 1000 + run_id AS m FROM runs) AS d",
        "(SELECT k, m FROM (SELECT run_id AS k, num_steps * 1000 + run_id AS m FROM runs))",
        "(SELECT run_id AS k, num_steps * 1000 + run_id AS m FROM runs UNION ALL SELECT 1000, 1000)",
        "(VALUES (1, 30), (2, 10), (3, 20)) AS v (k, m)",
    ],
    ["k", "m", "1", "2", "m, k"],
    ["", " DESC", " LIMIT 2"],
    ["m AS k, k AS m", "k AS m, m AS k", "m + 1 AS k, k AS m", "k, m"],
)
def test_a_sort_by_an_output_name(
    archive: a2store.Archive, duck: duckdb.DuckDBPyConnection, source: str, key: str, direction: str, items: str
) -> None:
    """In ORDER BY, a name is an output column first, even if the names of two columns are exchanged."""
    sql = f"SELECT {items} FROM {source} ORDER BY {key}{direction}"
    found = [tuple(map(int, row)) for row in asked(archive, sql)]
    assert found == duck.execute(sql).fetchall(), sql


def test_a_union_of_constants_is_sorted_by_all_keys(archive: a2store.Archive) -> None:
    """DataFusion drops the constant key, although the inputs of the union share the limit of the other key."""
    union = "SELECT 2 AS k, step_index AS n FROM steps UNION ALL SELECT 1, step_index + 100 FROM steps"
    query = archive.sql(f"SELECT * FROM ({union}) ORDER BY k, n LIMIT 4")
    assert "SortExec: TopK(fetch=4), expr=[k@0 ASC NULLS LAST, n@1 ASC NULLS LAST]" in query.explain()
    assert pa.table(query).to_pydict() == {"k": [1] * 4, "n": [100] * 4}
