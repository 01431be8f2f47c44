"""Known defects of the engine. A campaign counts them and does not report them.

Each entry has an example with its right answer. If the engine answers an example rightly, ``test_sql_fuzz.py`` fails.
Then remove the entry, so that such statements are reported again. ``python -m sqlfuzz --strict`` reports all findings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .tree import Node


@dataclass(frozen=True)
class Defect:
    """A defect: its description, an example, and a test for affected statements."""

    what: str
    example: str
    expected: list[tuple[Any, ...]]
    concerns: Callable[[Node], bool]
    """Whether a statement may trigger it."""
    message: str = ""
    """A pattern of the error message; empty = the answer is wrong."""


def _has(*ops: str) -> Callable[[Node], bool]:
    return lambda node: any(part.op in ops for part in node.walk())


DEFECTS: list[Defect] = [
    Defect(
        "DISTINCT with LIMIT over a window",
        "SELECT DISTINCT id, lag(id, 2) OVER (ORDER BY id DESC NULLS LAST) AS c FROM e LIMIT 1 OFFSET 3",
        [],
        _has("window"),
        "Ordering direction required for DISTINCT with limit",
    ),
    Defect(
        "keys of ROLLUP, CUBE and GROUPING SETS that are rewritten are not found again",
        "SELECT (a_s || a_s) AS c FROM e GROUP BY CUBE ((a_s || a_s), a_i64)",
        [(None,)],
        lambda node: any(part.op == "group" and part.value in ("ROLLUP", "CUBE", "SETS") for part in node.walk()),
        "No field named|wrong number of fields",
    ),
    Defect(
        "names leave casts out",
        "SELECT count(*) FROM (SELECT 1 AS x FROM e GROUP BY a_u32, CAST(a_u32 AS BIGINT)) AS d",
        [(0,)],
        _has("cast"),
        "require unique expression names|duplicate unqualified field name",
    ),
    Defect(
        "|| of two NULLs without a type",
        "SELECT c || c AS c FROM (SELECT NULL AS c FROM u WHERE id = 3) AS d",
        [(None,)],
        _has("concat"),
        "Cannot infer common string type for string concat operation Null",
    ),
    Defect(
        "a filter above an outer join without keys to an empty table",
        "SELECT CASE e.a_u32 WHEN 1 THEN e.a_u16 END AS x, r.run_id AS y, e.id AS z FROM runs AS r LEFT JOIN e ON TRUE "
        "WHERE (1 <> e.run_id) IS NULL AND r.run_id = 1",
        [(None, 1, None)],
        _has("join"),
        "Input field name .* does not match with the projection expression",
    ),
    Defect(
        "ORDER BY of a column whose name the result gives to another",
        "SELECT 1 AS run_id FROM e ORDER BY e.run_id",
        [],
        _has("query"),
        "would be ambiguous",
    ),
    Defect(
        "a constant IN a subquery with DISTINCT, beside OR",
        "SELECT id FROM e WHERE 1 IN (SELECT DISTINCT a_i16 AS c FROM e WHERE FALSE) OR id < 0",
        [],
        _has("inq"),
        "require unique expression names but the expression .__correlated_sq",
    ),
    Defect(
        "a comparison with the result of a function as a sort key",
        "SELECT rank() OVER (ORDER BY a_i64 / id < 1) AS c FROM e WHERE id < 0",
        [],
        _has("query"),
        "does not satisfy order requirements",
    ),
    Defect(
        "PARTITION BY two expressions, one over each side's key of a join",
        "SELECT min(0) OVER (PARTITION BY s.run_id % 3, u.run_id % 2 ORDER BY u.id) AS c FROM steps AS s "
        "JOIN u ON s.run_id = u.run_id LIMIT 1",
        [(0,)],
        lambda node: _has("window")(node) and _has("join")(node),
        "Expects PARTITION BY expression to be ordered",
    ),
    Defect(
        "PARTITION BY a cast of a sort column of the rows, and another sort column",
        "SELECT avg(1) OVER (PARTITION BY CAST(a AS DOUBLE), b) AS c "
        "FROM (SELECT run_id AS a, raw_evs AS b FROM runs ORDER BY a, b LIMIT 1) AS d",
        [(1.0,)],
        _has("window"),
        "All partition by columns should have an ordering",
    ),
]


def known(statement: Node, kind: str, found: str) -> Defect | None:
    """Return the known defect that explains a finding, if any."""
    for defect in DEFECTS:
        if defect.message:
            if kind in ("error", "internal") and re.search(defect.message, found) and defect.concerns(statement):
                return defect
        elif kind in ("wrong", "unstable") and defect.concerns(statement):
            return defect
    return None
