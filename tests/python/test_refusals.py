"""Statements that DataFusion answers wrongly: each is refused, and the alternative gives DuckDB's answer.

``src/query/refused/tests.rs`` shows that DataFusion answers them wrongly.
"""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import a2store
from duck import of_files

# For each entry: a refused statement, and one with the same answer.
REFUSALS = {
    "IN (SELECT …) or EXISTS outside WHERE and HAVING": (
        "SELECT run_id, run_id IN (SELECT run_id FROM v) AS x FROM runs",
        "SELECT r.run_id, v.run_id IS NOT NULL AS x FROM runs AS r LEFT JOIN v ON r.run_id = v.run_id",
    ),
    "IN (SELECT …) that refers to the outer query": (
        "SELECT run_id FROM runs AS r WHERE run_id IN (SELECT u.run_id FROM u WHERE u.weight < r.num_steps)",
        "SELECT run_id FROM runs AS r WHERE EXISTS (SELECT 1 FROM u WHERE u.run_id = r.run_id AND u.weight < "
        "r.num_steps)",
    ),
    "IN (SELECT …) inside another expression than AND, OR and CASE": (
        "SELECT run_id FROM runs WHERE (run_id IN (SELECT run_id FROM v)) = FALSE",
        "SELECT run_id FROM runs WHERE NOT EXISTS (SELECT 1 FROM v WHERE v.run_id = runs.run_id)",
    ),
    "NOT IN (SELECT …) beside OR, or with another left side than a column": (
        "SELECT run_id FROM runs WHERE run_id + 1 NOT IN (SELECT run_id FROM v) OR run_id = 1",
        "SELECT run_id FROM runs WHERE NOT EXISTS (SELECT 1 FROM v WHERE v.run_id = runs.run_id + 1) OR run_id = 1",
    ),
    "(a, b) IN (SELECT …)": (
        "SELECT run_id FROM runs WHERE (run_id, run_id) IN (SELECT run_id, 2 FROM u)",
        "SELECT run_id FROM runs WHERE EXISTS (SELECT 1 FROM u WHERE u.run_id = runs.run_id AND 2 = runs.run_id)",
    ),
    "a subquery that refers to the outer query, beyond a comparison in its WHERE": (
        "SELECT run_id, (SELECT count(*) FROM v WHERE v.run_id < r.run_id) AS n FROM runs AS r",
        "SELECT r.run_id, count(v.run_id) AS n FROM runs AS r LEFT JOIN v ON v.run_id < r.run_id GROUP BY r.run_id",
    ),
    "a LATERAL subquery that refers to the outer query": (
        "SELECT r.run_id, d.n FROM runs AS r, LATERAL (SELECT count(*) AS n FROM v WHERE v.run_id = r.run_id) AS d "
        "WHERE d.n > 0",
        "SELECT r.run_id, d.n FROM runs AS r JOIN (SELECT run_id, count(*) AS n FROM v GROUP BY run_id) AS d "
        "ON r.run_id = d.run_id",
    ),
    "a scalar subquery with outer columns in GROUP BY, ORDER BY, an aggregate, or before IN (SELECT …)": (
        "SELECT run_id FROM runs AS r WHERE (SELECT count(*) FROM v WHERE v.run_id = r.run_id) IN "
        "(SELECT run_id FROM u)",
        "SELECT run_id FROM (SELECT run_id, (SELECT count(*) FROM v WHERE v.run_id = r.run_id) AS k FROM runs AS r) "
        "AS d WHERE k IN (SELECT run_id FROM u)",
    ),
    "a subquery that refers to a query two or more levels out": (
        "SELECT run_id FROM runs AS r WHERE EXISTS (SELECT 1 FROM u WHERE EXISTS (SELECT 1 FROM v WHERE "
        "v.run_id = r.run_id))",
        "SELECT run_id FROM runs AS r WHERE EXISTS (SELECT 1 FROM u JOIN v ON TRUE WHERE v.run_id = r.run_id)",
    ),
    "a subquery that refers to an outer column of mixed types": (
        "SELECT c FROM (SELECT run_id AS c FROM runs UNION ALL SELECT 0.5) AS d WHERE EXISTS (SELECT 1 FROM v WHERE "
        "v.run_id = d.c)",
        "SELECT c FROM (SELECT CAST(run_id AS DOUBLE) AS c FROM runs UNION ALL SELECT 0.5) AS d WHERE EXISTS "
        "(SELECT 1 FROM v WHERE v.run_id = d.c)",
    ),
    "INTERSECT ALL or EXCEPT ALL": (
        "SELECT engine FROM runs EXCEPT ALL SELECT engine FROM runs WHERE run_id < 2",
        "SELECT engine FROM (SELECT engine, row_number() OVER (PARTITION BY engine) AS n FROM runs EXCEPT "
        "SELECT engine, row_number() OVER (PARTITION BY engine) FROM runs WHERE run_id < 2) AS d",
    ),
    "INTERSECT or EXCEPT over columns of different types": (
        "SELECT c / 2 FROM (SELECT run_id AS c FROM runs INTERSECT SELECT 3.0) AS d",
        "SELECT c / 2 FROM (SELECT CAST(run_id AS DOUBLE) AS c FROM runs INTERSECT SELECT CAST(3.0 AS DOUBLE)) AS d",
    ),
    "RIGHT JOIN or FULL JOIN with USING or NATURAL": (
        "SELECT run_id FROM v FULL JOIN runs USING (run_id)",
        "SELECT coalesce(v.run_id, runs.run_id) FROM v FULL JOIN runs ON v.run_id = runs.run_id",
    ),
    "OFFSET in a subquery": (
        "SELECT sum(a) FROM (SELECT run_id AS a FROM runs ORDER BY run_id DESC OFFSET 2) AS d",
        "SELECT sum(a) FROM (SELECT run_id AS a, row_number() OVER (ORDER BY run_id DESC) AS n FROM runs) AS d "
        "WHERE n > 2",
    ),
    "an aggregate with FILTER over an aggregate without GROUP BY": (
        "SELECT count(n) FILTER (WHERE n <> 1) FROM (SELECT count(*) AS n FROM runs) AS d",
        "SELECT count(CASE WHEN n <> 1 THEN n END) FROM (SELECT count(*) AS n FROM runs) AS d",
    ),
    "ORDER BY a result column that has the name of another column, which GROUP BY casts": (
        "SELECT run_id AS num_steps, CAST(num_steps AS DOUBLE) AS x FROM runs GROUP BY GROUPING SETS ((run_id, "
        "CAST(num_steps AS DOUBLE))) ORDER BY num_steps",
        "SELECT run_id AS id, CAST(num_steps AS DOUBLE) AS x FROM runs GROUP BY run_id, CAST(num_steps AS DOUBLE) "
        "ORDER BY id",
    ),
    "a comparison with CASE or COALESCE as a key of ORDER BY or PARTITION BY": (
        "SELECT run_id, sum(run_id) OVER (PARTITION BY coalesce(engine, 'x') > 'b') AS n FROM runs",
        "SELECT run_id, sum(run_id) OVER (PARTITION BY k) AS n FROM (SELECT run_id, coalesce(engine, 'x') > 'b' AS k "
        "FROM runs) AS d",
    ),
    "a field of a struct that CASE, COALESCE or NULLIF returns": (
        "SELECT (CASE WHEN s['a'] < 2 THEN s END)['a'] FROM structs",
        "SELECT CASE WHEN s['a'] < 2 THEN s['a'] END FROM structs",
    ),
    "IS DISTINCT FROM beside AND or OR": (
        "SELECT run_id FROM runs WHERE engine IS DISTINCT FROM 'alpha' AND run_id < 9",
        "SELECT run_id FROM runs WHERE (engine IS DISTINCT FROM 'alpha') AND run_id < 9",
    ),
    "arrow_cast to Decimal32 or Decimal64": ("SELECT arrow_cast(1, 'Decimal32(5, 2)')", "SELECT 1::DECIMAL(5, 2)"),
}
TABLES = {
    "u": pa.table({"run_id": pa.array([1, 2, None], pa.uint32()), "weight": [0.5, 1e9, 0.5]}),
    "structs": pa.table({"s": [{"a": 1}, {"a": 2}, {"a": None}]}),
    "v": pa.table({"run_id": pa.array([2, 3, 5], pa.uint32())}),
}


@pytest.fixture(scope="module")
def listed() -> dict[str, str]:
    """The list in the documentation."""
    text = (Path(__file__).parents[2] / "docs" / "sql.md").read_text()
    lines = text.split("| statement | instead |\n| --- | --- |\n")[1].split("\n\n")[0].splitlines()
    return dict(line.strip("| ").split(" | ") for line in lines)


def test_the_list_is_complete(listed: dict[str, str]) -> None:
    assert [*REFUSALS] == [*listed]


@pytest.mark.parametrize("what", REFUSALS)
def test_each_is_refused_and_its_alternative_is_answered(
    archive: a2store.Archive, listed: dict[str, str], what: str
) -> None:
    refused, instead = REFUSALS[what]
    for sql in (refused, f"WITH d AS ({refused}) SELECT count(*) FROM d"):
        with pytest.raises(a2store.QueryRefusedError) as caught:
            pa.table(archive.sql(sql, tables=TABLES))
        message = str(caught.value)
        assert message.startswith(f"refused: {what}: DataFusion answers it wrongly or cannot plan it")
        assert message.endswith(f": {listed[what]}")
        assert re.search(r"apache/datafusion#\d+", message) or "#" not in message
    duck = of_files(archive, **TABLES).execute("CREATE MACRO arrow_cast(x, dtype) AS x::DECIMAL(5, 2)")

    def plain(rows: list[tuple[Any, ...]]) -> list[str]:
        return sorted(str([float(v) if isinstance(v, int | float | Decimal) else str(v) for v in row]) for row in rows)

    columns = pa.table(archive.sql(instead, tables=TABLES)).to_pydict().values()
    assert plain([*zip(*columns, strict=True)]) == plain(duck.execute(refused).fetchall())


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM steps WHERE run_id NOT IN (SELECT run_id FROM u) AND move = 1",
        "SELECT * FROM runs WHERE engine = 'alpha' OR run_id IN (SELECT DISTINCT run_id FROM u)",
        "SELECT * FROM runs WHERE max_score > (SELECT avg(max_score) FROM runs)",
        "SELECT * FROM runs AS r WHERE max_score > (SELECT avg(max_score) FROM runs AS o WHERE o.engine = r.engine)",
        "SELECT * FROM runs AS r WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.run_id = r.run_id)",
        "SELECT engine FROM runs INTERSECT SELECT 'alpha'",
        "SELECT * FROM steps ORDER BY max_score LIMIT 10 OFFSET 5",
        "SELECT run_id, rank() OVER (PARTITION BY phase = 'late' ORDER BY ev_up DESC) FROM steps",
        "SELECT count(*) FILTER (WHERE n > 3) FROM (SELECT run_id, count(*) AS n FROM steps GROUP BY run_id) AS d",
        "SELECT s['tile'] FROM (SELECT spawn(board, move, board) AS s FROM steps) AS d",
        "SELECT * FROM runs LEFT JOIN u USING (run_id) JOIN v USING (run_id)",
    ],
)
def test_what_researchers_write_is_answered(archive: a2store.Archive, sql: str) -> None:
    archive.sql(sql, tables=TABLES).count()
