"""Random SQL against DuckDB and against itself, and tests that the fuzzer finds planted faults.

A2STORE_LONG_TESTS=1 checks 50,000 statements; SQLFUZZ_SEED and SQLFUZZ_COUNT choose others. ``python -m sqlfuzz``
repeats any of them.
"""

from __future__ import annotations

import os
import random
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sqlfuzz import campaign, dialect
from sqlfuzz.campaign import Report, engine_in
from sqlfuzz.comparison import same_rows
from sqlfuzz.defects import DEFECTS, Defect
from sqlfuzz.dtypes import F64, I64, NULL, NUMBERS, U8, U64, WIDE, Type, common, common_of
from sqlfuzz.oracles import Engine, NoAnswerError
from sqlfuzz.tree import Node, duck_sql, engine_sql, lit, make

LONG = bool(os.environ.get("A2STORE_LONG_TESTS"))
SEED = int(os.environ.get("SQLFUZZ_SEED", "1"))
COUNT = int(os.environ.get("SQLFUZZ_COUNT", "50000" if LONG else "200"))
MANY = 200
"""The minimum number of statements for asserting coverage."""


REMEMBERED = 8
"""The number of answers that the engine keeps. More than one, because a check may ask another statement in between."""


@dataclass
class Remembering(Engine):
    """An engine that answers a statement once for all of its checks: several ask it as it is, after the first."""

    answers: dict[str, Any] = field(default_factory=dict)
    """The last answers, by statement and options."""

    def table(self, sql: str, **where: Any) -> Any:
        if self.spoil is not None:
            return super().table(sql, **where)
        key = f"{sql}\n{where}"
        if key not in self.answers:
            try:
                self.answers[key] = super().table(sql, **where)
            except NoAnswerError as error:
                self.answers[key] = error
            if len(self.answers) > REMEMBERED:
                del self.answers[next(iter(self.answers))]
        answer = self.answers[key]
        if isinstance(answer, NoAnswerError):
            raise NoAnswerError(answer.kind, answer.message)
        return answer


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engine_in(tmp_path_factory.mktemp("sqlfuzz")) as engine:
        yield Remembering(engine.data, engine.workers, executor=engine.executor)


def run_with_each_worker(engine: Engine) -> Report:
    """Check the statements. In the short form, each is compared with one of the workers only, in turn."""
    workers = engine.workers
    shares = [workers] if LONG or not workers else [[worker] for worker in workers]
    whole = Report()
    try:
        for place, share in enumerate(shares):
            engine.workers = share
            report = campaign.run(engine, SEED, range(place, COUNT, len(shares)), most=10)
            whole.findings += report.findings
            whole.statements += report.statements
            whole.parts += report.parts
            whole.answered += report.answered
            whole.pairs += report.pairs
            whole.met = report.met
    finally:
        engine.workers = workers
    return whole


@pytest.fixture(autouse=True)
def _unspoiled(engine: Engine) -> Iterator[None]:
    yield
    engine.spoil = None
    engine.met.clear()


@pytest.mark.filterwarnings("ignore:the table leaves out these columns:UserWarning")
def test_answers_are_right(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    report = run_with_each_worker(engine)
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
    for check in ("tlp", "tlp_sums", "norec", "row_level", "count", "compacted", "params", "materialize"):
        assert met[f"{check}: compared"] > 0.04 * report.statements, check
        # Subqueries and parameters are not accepted everywhere.
        assert met[f"{check}: no answer"] < 0.6 * met[f"{check}: compared"], check
    assert len(report.pairs) > 300


PARTS = [
    "DISTINCT", "FILTER", "HAVING", "WHERE", "agg avg", "agg bool_and", "agg bool_or", "agg count", "agg max",
    "agg min", "agg sum", "and", "arith", "case", "cast", "coalesce", "cte", "derived", "exists EXISTS",
    "exists NOT EXISTS", "group", "group CUBE", "group ROLLUP", "group SETS", "in IN", "in NOT IN", "inq IN",
    "inq NOT IN", "join ANTI", "join FULL", "join INNER", "join LEFT", "join RIGHT", "join SEMI", "like LIKE",
    "limit", "neg", "not", "nullif", "or", "scalar", "setop EXCEPT", "setop INTERSECT", "setop UNION",
    "setop UNION ALL", "switch", "NULLS FIRST", "NULLS LAST", "between BETWEEN", "between NOT BETWEEN",
    "isnull IS NULL", "isnull IS NOT NULL", "cmp IS DISTINCT FROM", "cmp IS NOT DISTINCT FROM", "window row_number",
    "window rank", "window lag", "window sum",
]  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.what)
def test_a_known_defect_is_still_there(engine: Engine, defect: Defect) -> None:
    """If this fails, remove the defect whose example is answered rightly from ``sqlfuzz/defects.py``."""
    assert engine.duck(defect.example) == defect.expected
    if defect.message:
        with pytest.raises(NoAnswerError) as caught:
            engine.rows(defect.example)
        assert re.search(defect.message, caught.value.message)
    else:
        assert engine.rows(defect.example) != defect.expected


# The fuzzer itself


def test_seed_and_number_determine_a_statement() -> None:
    statements = [engine_sql(campaign.statement(SEED, index)[0]) for index in range(30)]
    assert len(set(statements)) == 30
    for index in reversed(range(30)):
        assert engine_sql(campaign.statement(SEED, index)[0]) == statements[index]
    assert engine_sql(campaign.statement(SEED + 1, 7)[0]) != statements[7]


def of_column(change: Callable[[Any], Any]) -> Callable[[Any, str], Any]:
    """Return a fault that changes the first column of answers."""

    def spoiled(table: Any, _sql: str) -> Any:
        try:
            changed = change(table.column(0))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return table
        return table.set_column(0, table.schema.field(0).name, changed)

    return spoiled


def narrowed(column: Any) -> Any:
    """Cast numbers to a type that is too narrow."""
    return pc.cast(pc.cast(column, pa.int64(), safe=False), pa.uint8(), safe=False)


def without_nulls(column: Any) -> Any:
    return pc.fill_null(column, pa.scalar(0, pa.int64()).cast(column.type))


FAULTS: dict[str, tuple[Callable[[Any, str], Any], set[str]]] = {
    "numbers of a type that is too narrow": (of_column(narrowed), {"duck"}),
    "NULLs that become zero": (of_column(without_nulls), {"duck"}),
    "a row too few": (lambda table, _: table.slice(1) if not isinstance(table, np.ndarray) else table, {"duck"}),
    "conditions that take unknown for true": (
        lambda table, sql: table.slice(0, 0) if " IS NULL)" in sql[-10:] else table,
        {"tlp", "tlp_sums", "duck"},
    ),
    "rows in another order": (
        lambda table, sql: table[::-1] if isinstance(table, np.ndarray) and sql == "again" else table,
        {"fingerprint"},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(engine: Engine, fault: str) -> None:
    spoil, checks = FAULTS[fault]

    def once(table: Any, sql: str) -> Any:
        if isinstance(table, np.ndarray) and fault != "rows in another order":
            return table
        return spoil(table, sql)

    engine.spoil = once
    report = campaign.run(engine, SEED, range(200), most=1, budget=100)
    assert report.findings
    index, finding = report.findings[0]
    assert finding.check in checks
    assert f"--seed {SEED} --only {index}" in campaign.told(SEED, index, finding)
    # The small statement fails only while the fault is planted.
    assert campaign.check(engine, finding.statement, finding.check)
    engine.spoil = None
    assert campaign.check(engine, finding.statement, finding.check) is None


def test_findings_are_shrunk(engine: Engine) -> None:
    def without_cases(table: Any, sql: str) -> Any:
        return table.slice(0, 0) if "coalesce" in sql and not isinstance(table, np.ndarray) else table

    engine.spoil = without_cases
    report = campaign.run(engine, SEED, range(300), most=3)
    assert len(report.findings) == 3
    for _, finding in report.findings:
        sizes = len(list(finding.statement.walk()))
        assert "coalesce" in engine_sql(finding.statement)
        assert sizes <= 60, engine_sql(finding.statement)


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


def test_the_common_type_does_not_depend_on_the_order() -> None:
    for left in NUMBERS:
        assert common(left, NULL) == left
        for right in NUMBERS:
            assert common(left, right) == common(right, left)
    assert common(U64, I64) == WIDE
    assert common_of([U64, F64, I64]) is None


def test_statements_that_may_fail_are_recognized() -> None:
    column = make("col", value=("s", "move"), type=U8)
    wide = make("col", value=("u", "a_i64"), type=I64)

    def to(column: Node, dtype: Type, kind: str = "CAST") -> Node:
        return make("cast", column, value=kind, type=dtype)

    assert dialect.may_fail(make("arith", lit(1), to(wide, U8), value="/"))
    assert not dialect.may_fail(make("arith", lit(1), to(column, I64), value="/"))
    assert not dialect.may_fail(to(wide, U8, "TRY_CAST"))
    assert "//" in duck_sql(make("arith", lit(1), column, value="/"))


def test_the_command_repeats_a_statement(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaign, "engine_in", lambda _folder: nullcontext(engine))
    monkeypatch.setattr(sys, "argv", ["sqlfuzz", "--seed", "5", "--only", "3"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("sqlfuzz", run_name="__main__")
    assert engine_sql(campaign.statement(5, 3)[0]) in capsys.readouterr().out
    assert ended.value.code in (0, 1)
