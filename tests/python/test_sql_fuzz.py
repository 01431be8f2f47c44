"""Random SQL against DuckDB and against itself, and tests that the fuzzer finds planted faults.

A2STORE_LONG_TESTS=1 checks 50,000 statements; SQLFUZZ_SEED and SQLFUZZ_COUNT choose others. ``python -m sqlfuzz``
repeats any of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from sqlfuzz import campaign
from sqlfuzz.campaign import Report, engine_in
from sqlfuzz.comparison import same_rows
from sqlfuzz.oracles import Engine
from sqlfuzz.tree import engine_sql

LONG = bool(os.environ.get("A2STORE_LONG_TESTS"))
SEED = int(os.environ.get("SQLFUZZ_SEED", "1"))
COUNT = int(os.environ.get("SQLFUZZ_COUNT", "50000" if LONG else "300"))
MANY = 250
"""The minimum number of statements for asserting coverage."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engine_in(tmp_path_factory.mktemp("sqlfuzz")) as engine:
        yield engine


@pytest.mark.filterwarnings("ignore:the table leaves out these columns:UserWarning")
def test_answers_are_right(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    report = campaign.run(engine, SEED, range(COUNT), most=10)
    found = [campaign.told(SEED, index, finding) for index, finding in report.findings]
    with capsys.disabled():
        print(f"\n{report.summary()}")
    assert not found, "\n\n".join(["", *found])
    assert_covered(report)


def assert_covered(report: Report) -> None:
    """Fail if the campaign compared too little to find anything."""
    if report.statements < MANY:
        return
    met = report.met
    missing = [part for part in PARTS if not report.answered[part]]
    assert not missing
    # The generator makes few of the statements in the list of refusals (test_refusals.py).
    assert met["duck: refused"] < 0.15 * report.statements
    assert met["duck: compared"] > 0.7 * report.statements
    assert met["duck: with rows"] > 0.5 * met["duck: compared"]
    assert met["duck: error there"] < 0.01 * report.statements
    assert met["fingerprint: compared"] > 0.5 * report.statements
    assert met["limited: compared"] > 0.01 * report.statements
    for check in ("tlp", "row_level", "count", "compacted", "params", "materialize"):
        assert met[f"{check}: compared"] > 0.04 * report.statements, check
        # Subqueries and parameters are not accepted everywhere.
        assert met[f"{check}: no answer"] < 0.6 * met[f"{check}: compared"], check
    assert len(report.pairs) > 250


PARTS = [
    "DISTINCT", "FILTER", "HAVING", "WHERE", "agg avg", "agg bool_and", "agg bool_or", "agg count", "agg max",
    "agg min", "agg sum", "and", "arith", "case", "cast", "coalesce", "cte", "derived", "exists EXISTS",
    "exists NOT EXISTS", "group", "in IN", "in NOT IN", "inq IN",
    "inq NOT IN", "join ANTI", "join FULL", "join INNER", "join LEFT", "join RIGHT", "join SEMI", "like LIKE",
    "limit", "neg", "not", "nullif", "or", "scalar", "setop EXCEPT", "setop INTERSECT", "setop UNION",
    "setop UNION ALL", "NULLS FIRST", "NULLS LAST", "between BETWEEN", "between NOT BETWEEN",
    "isnull IS NULL", "isnull IS NOT NULL", "cmp IS DISTINCT FROM", "cmp IS NOT DISTINCT FROM",
]  # fmt: skip


# The fuzzer itself


def test_seed_and_number_determine_a_statement() -> None:
    statements = [engine_sql(campaign.statement(SEED, index)[0]) for index in range(30)]
    assert len(set(statements)) == 30
    for index in reversed(range(30)):
        assert engine_sql(campaign.statement(SEED, index)[0]) == statements[index]
    assert engine_sql(campaign.statement(SEED + 1, 7)[0]) != statements[7]


def test_rows_are_the_same_in_any_order_and_within_rounding() -> None:
    rows = [(1, "a", 0.1), (1, None, 0.2), (2, "b", float("inf"))]
    shuffled = random.Random(1).sample(rows, 3)
    assert same_rows(rows, shuffled)
    assert same_rows(rows, [(1, "a", 0.1 + 1e-12), *rows[1:]])
    assert not same_rows(rows, rows[:2])
    assert not same_rows(rows, [*rows[:2], rows[0]])
    assert not same_rows([(2**63,)], [(2**63 - 1,)])
    assert not same_rows([(True,)], [(1,)])
    assert not same_rows([(None,)], [(0,)])
