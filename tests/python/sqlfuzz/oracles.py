"""The checks. Each takes a statement and returns a finding, or ``None``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import a2store

from . import comparison, dialect, worker
from .comparison import Row, rows_of
from .data import Data
from .dtypes import F64, U32
from .tree import NONE, Node, duck_sql, engine_sql, lit, make, outputs, with_parameters


@dataclass
class Finding:
    """A wrong answer to a statement, or an error."""

    check: str
    kind: str
    """``wrong``, ``error``, ``internal`` or ``unstable``."""
    statement: Node
    found: str
    expected: str

    @property
    def signature(self) -> tuple[str, str, str]:
        """The parts that stay the same while the statement is shrunk."""
        return (self.check, self.kind, _head(self.found) if self.kind in ("error", "internal") else "")


@dataclass
class NoAnswerError(Exception):
    """A statement without an answer."""

    kind: str
    """``refused``, ``unsupported``, ``data``, ``internal`` or ``error``."""
    message: str


def _head(message: str) -> str:
    return re.sub(r"[a-z]*\d+|\"[^\"]*\"|'[^']*'|\([^)]*\)", "_", message)[:60]


INTERNAL = re.compile(
    "internal error|likely caused by a bug|panicked|schema mismatch|mismatch between schema|column types must match|"
    "does not satisfy|invalid comparison operation|unexpected|non-nullable|non-null|assertion failed|arraymap|"
    "arrays of different types",
    re.IGNORECASE,
)
UNSUPPORTED = re.compile("(not|n't) (support|implement|yet|be planned)|unsupported", re.IGNORECASE)
OF_DATA = re.compile("divi.* by zero|overflow|cast|out of range|parse|too large|not fit", re.IGNORECASE)


def failure_of(error: BaseException) -> NoAnswerError:
    message = str(error).strip() or repr(error)
    if isinstance(error, a2store.QueryRefusedError):
        return NoAnswerError("refused", message)
    if type(error).__name__ == "PanicException" or INTERNAL.search(message):
        return NoAnswerError("internal", message)
    if UNSUPPORTED.search(message):
        return NoAnswerError("unsupported", message)
    return NoAnswerError("data" if OF_DATA.search(message) else "error", message)


@dataclass
class Engine:
    """The engine under test and its oracle, over the same data."""

    data: Data
    workers: list[worker.Worker] = field(default_factory=list)
    """Processes with other numbers of threads."""
    met: Counter[str] = field(default_factory=Counter)
    """Counters of the checks' outcomes."""
    executor: Executor = field(default_factory=lambda: ThreadPoolExecutor(2))
    """Runs tasks of queries. Each plans its query anew, as in another process."""
    spoil: Callable[[Any, str], Any] | None = None
    """A planted fault, to test the fuzzer itself: turns an answer and its SQL into a wrong answer."""

    def query(
        self,
        sql: str,
        *,
        compacted: bool = False,
        divided: bool = False,
        params: list[Any] | None = None,
        tasks: int | None = None,
    ) -> a2store.Query:
        archive = self.data.compacted if compacted else self.data.plain
        query = archive.sql(sql, params, tables=self.data.divided if divided else self.data.tables)
        return query if tasks is None else query.on(self.executor, tasks=tasks)

    def table(self, sql: str, **where: Any) -> Any:
        """Return the answer as a ``pyarrow.Table``; raise ``NoAnswerError``."""
        try:
            query = self.query(sql, **where)
            table = pa.table(query)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise failure_of(error) from error
        if not table.schema.equals(pa.schema(query.schema)):
            raise NoAnswerError("internal", f"schema mismatch: {table.schema} instead of {pa.schema(query.schema)}")
        return self.spoil(table, sql) if self.spoil else table

    def rows(self, sql: str, **where: Any) -> list[Row]:
        return rows_of(self.table(sql, **where))

    def duck(self, sql: str) -> list[Row]:
        return rows_of(self.data.duck.sql(sql).to_arrow_table())


Check = Callable[[Engine, Node], Finding | None]


def shown(rows: Sequence[Row], other: Sequence[Row]) -> tuple[str, str]:
    if len(rows) <= 4 and len(other) <= 4:
        return str(list(rows)), str(list(other))
    only, missing = comparison.difference(rows, other)
    return f"{len(rows)} rows, only here {only}", f"{len(other)} rows, only here {missing}"


def _wrong(check: str, node: Node, rows: Sequence[Row], other: Sequence[Row]) -> Finding:
    return Finding(check, "wrong", node, *shown(rows, other))


def duck(engine: Engine, node: Node) -> Finding | None:
    """Compare with DuckDB over the same Parquet files."""
    ties = not dialect.is_definite(node)
    if ties and dialect.has_inner_limit(node):
        engine.met["duck: ties"] += 1
        return None
    failure = None
    try:
        rows = engine.rows(engine_sql(node))
    except NoAnswerError as error:
        failure = error
    if failure is not None and failure.kind == "internal":
        return Finding("duck", "internal", node, failure.message, "an answer, or an error of the data")
    if failure is not None and failure.kind in ("refused", "unsupported"):
        engine.met[f"duck: {failure.kind}"] += 1
        engine.met[f"{failure.kind}: {_head(failure.message)}"] += 1
        return None
    if failure is not None and failure.kind == "data" and dialect.may_fail(node):
        engine.met["duck: error of data"] += 1
        return None
    try:
        expected = engine.duck(duck_sql(node))
    except (duckdb.OutOfRangeException, duckdb.ConversionException):
        engine.met["duck: overflow there"] += 1
        return None
    except duckdb.Error as error:
        if "Division by zero" in str(error):
            engine.met["duck: error of data there"] += 1
            return None
        engine.met["duck: error there"] += 1
        engine.met[f"there: {_head(str(error))}"] += 1
        return None
    if failure is not None:
        return Finding("duck", "error", node, failure.message, str(expected[:5]))
    if ties:
        # With ties the rows may differ, but their number may not.
        engine.met["duck: numbers of rows compared"] += 1
        return None if len(rows) == len(expected) else _wrong("duck", node, rows, expected)
    engine.met["duck: compared"] += 1
    engine.met["duck: with rows"] += bool(expected)
    if not comparison.same_rows(rows, expected):
        return _wrong("duck", node, rows, expected)
    names = [name for name, _ in outputs(node)]
    keys = []
    for key in node.args[2].args:
        if key.args[0].op != "col" or key.args[0].value[0] or key.args[0].value[1] not in names:
            break
        keys.append(names.index(key.args[0].value[1]))
    if node.value == "total":
        keys = keys if len(keys) < len(node.args[2].args) else [*keys, *(i for i in range(len(names)) if i not in keys)]

    def ordered(rows: list[Row]) -> list[Row]:
        return [tuple(row[key] for key in keys) for row in rows]

    if keys and not comparison.same_sequence(ordered(rows), ordered(expected)):
        return Finding("duck", "wrong", node, f"order {ordered(rows)[:8]}", f"order {ordered(expected)[:8]}")
    return None


def _answer(engine: Engine, check: str, node: Node, sql: str, **where: Any) -> list[Row] | Finding | None:
    """Return rows, or a finding if there is an error; ``None`` = an allowed error."""
    try:
        return engine.rows(sql, **where)
    except NoAnswerError as failure:
        if failure.kind == "internal":
            return Finding(check, "internal", node, f"{failure.message}: {sql}", "an answer, or an error of the data")
        engine.met[f"{check}: no answer"] += 1
        return None


def _answers(engine: Engine, check: str, node: Node, *statements: str) -> list[list[Row]] | Finding | None:
    """Return the rows of each statement, or what ``_answer`` returns for the first one without rows."""
    found = []
    for sql in statements:
        rows = _answer(engine, check, node, sql)
        if not isinstance(rows, list):
            return rows
        found.append(rows)
    return found


def count(engine: Engine, node: Node) -> Finding | None:
    """Compare ``Query.count()`` with the number of rows."""
    rows = _answer(engine, "count", node, engine_sql(node))
    if not isinstance(rows, list):
        return rows
    try:
        number = engine.query(engine_sql(node)).count()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        failure = failure_of(error)
        if failure.kind == "data" and dialect.may_fail(node):
            return None
        return Finding("count", "error", node, failure.message, f"{len(rows)} rows")
    engine.met["count: compared"] += 1
    if number != len(rows):
        return Finding("count", "wrong", node, f"count() = {number}", f"{len(rows)} rows")
    return None


def compacted(engine: Engine, node: Node) -> Finding | None:
    """Compare with the compacted archive and tables in many batches."""
    if not dialect.is_definite(node):
        return None
    rows = _answer(engine, "compacted", node, engine_sql(node))
    if not isinstance(rows, list):
        return rows
    other = _answer(engine, "compacted", node, engine_sql(node), compacted=True, divided=True)
    if not isinstance(other, list):
        return other
    engine.met["compacted: compared"] += 1
    return None if comparison.same_rows(rows, other) else _wrong("compacted", node, other, rows)


def tasks(engine: Engine, node: Node) -> Finding | None:
    """Compare with tasks that each read a share of the row groups."""
    if not dialect.is_definite(node):
        return None
    sql = engine_sql(node)
    rows = _answer(engine, "tasks", node, sql)
    if not isinstance(rows, list):
        return rows
    other = _answer(engine, "tasks", node, sql, tasks=3)
    if not isinstance(other, list):
        return other
    engine.met["tasks: compared"] += 1
    engine.met["tasks: divided"] += "TasksExec" in engine.query(sql, tasks=3).explain()
    return None if comparison.same_rows(rows, other) else _wrong("tasks", node, other, rows)


def params(engine: Engine, node: Node) -> Finding | None:
    """Compare constants in the text with bound parameters."""
    if not dialect.is_definite(node):
        return None
    if any(part.op == "setop" for part in node.walk()):
        # Types are fixed before values are bound. In a UNION with a number, a parameter without a type may become text.
        return None
    rows = _answer(engine, "params", node, engine_sql(node))
    if not isinstance(rows, list):
        return rows
    sql, values = with_parameters(node)
    try:
        other = engine.rows(sql, params=values)
    except NoAnswerError as failure:
        if failure.kind == "internal":
            return Finding("params", "internal", node, f"{failure.message}: {sql} with {values}", f"{len(rows)} rows")
        # A parameter's type comes from its context, and some contexts have no type: see dialect.py.
        engine.met["params: no answer"] += 1
        return None
    engine.met["params: compared"] += 1
    return None if comparison.same_rows(rows, other) else _wrong("params", node, other, rows)


def limited(engine: Engine, node: Node) -> Finding | None:
    """Compare LIMIT with the first rows of the statement without it."""
    ctes, body, order, limit = node.args
    # Ties may come in any order.
    if limit.op == "none" or not is_row_by_row(node) or (order.args and node.value != "total"):
        return None
    unlimited = engine_sql(make("query", ctes, body, order, NONE))
    answers = _answers(engine, "limited", node, engine_sql(node), unlimited)
    if not isinstance(answers, list):
        return answers
    rows, whole = answers
    engine.met["limited: compared"] += 1
    number, offset = limit.value
    first = whole[offset : len(whole) if number is None else offset + number]
    return None if comparison.same_sequence(rows, first) else _wrong("limited", node, rows, first)


def is_row_by_row(node: Node) -> bool:
    """Whether a statement only filters and computes on rows of one table."""
    body = node.args[1]
    if (
        body.op != "select"
        or body.value
        or body.args[1].op != "table"
        or body.args[3].op != "none"
        or node.args[0].args
    ):
        return False
    if body.args[1].value[0] not in ("steps", "runs"):
        return False
    return not any(part.op in ("agg", "window", "query") for part in (*body.walk(), *node.args[2].walk()))


def _filtered(node: Node) -> tuple[Node, Node] | None:
    """Return the SELECT and the condition of a statement without groups, windows and LIMIT."""
    ctes, body, _, limit = node.args
    if ctes.args or body.op != "select" or limit.op != "none":
        return None
    items, _, where, group, _ = body.args
    if where.op == "none" or group.op != "none":
        return None
    if any(part.op in ("agg", "window") for item in items.args for part in own_parts(item)):
        return None
    return body, where


def own_parts(node: Node) -> Iterator[Node]:
    """Yield the parts of an expression, without its subqueries."""
    yield node
    for arg in node.args:
        if arg.op != "query":
            yield from own_parts(arg)


def _with_where(node: Node, where: Node, items: Node | None = None, distinct: bool | None = None) -> str:
    body = node.args[1]
    body = body.with_arg(2, where)
    if items is not None:
        body = body.with_arg(0, items)
    if distinct is not None:
        body = make("select", *body.args, value=distinct)
    return engine_sql(make("query", make("ctes"), body, make("order"), NONE))


def _partition(where: Node) -> list[Node]:
    return [where, make("not", where), make("isnull", where, value="IS NULL")]


def tlp(engine: Engine, node: Node) -> Finding | None:
    """Compare all rows with the combined rows of p, NOT p and p IS NULL."""
    filtered = _filtered(node)
    if filtered is None or not dialect.is_definite(node):
        return None
    body, where = filtered
    statements = [_with_where(node, condition) for condition in (NONE, *_partition(where))]
    answers = _answers(engine, "tlp", node, *statements)
    if not isinstance(answers, list):
        return answers
    whole, *others = answers
    parts = [row for rows in others for row in rows]
    engine.met["tlp: compared"] += 1
    if body.value:
        parts = list(dict.fromkeys(parts))
    return None if comparison.same_rows(parts, whole) else _wrong("tlp", node, parts, whole)


def tlp_sums(engine: Engine, node: Node) -> Finding | None:
    """Compare aggregates of all rows with the combined ones of p, NOT p and p IS NULL."""
    filtered = _filtered(node)
    if filtered is None or not dialect.is_definite(node):
        return None
    body, where = filtered
    number = next((item.args[0] for item in body.args[0].args if item.args[0].type.is_int), lit(1))
    # A sum of floats, small enough to be exact.
    small = make("arith", make("cast", number, value="CAST", type=F64), lit(0.5), value="*")
    exprs = [
        make("agg", NONE, NONE, value=("count", False)),
        make("agg", number, NONE, value=("count", False)),
        make("agg", number, NONE, value=("min", False)),
        make("agg", number, NONE, value=("max", False)),
        make("agg", small, NONE, value=("sum", False)),
    ]
    items = make("items", *(make("item", expr, value=f"c{place}") for place, expr in enumerate(exprs)))
    statements = [_with_where(node, condition, items, False) for condition in (NONE, *_partition(where))]
    answers = _answers(engine, "tlp_sums", node, *statements)
    if not isinstance(answers, list):
        return answers
    whole, *others = answers
    parts = [row for rows in others for row in rows]
    folds: list[Callable[[list[Any]], Any]] = [sum, sum, min, max, sum]
    columns = zip(folds, zip(*parts, strict=True), strict=True)
    together = [tuple(fold(values) if (values := [v for v in column if v is not None]) else None
                      for fold, column in columns)]  # fmt: skip
    engine.met["tlp_sums: compared"] += 1
    return None if comparison.same_rows(together, whole) else _wrong("tlp_sums", node, together, whole)


def norec(engine: Engine, node: Node) -> Finding | None:
    """Compare a filter with the same condition computed for every row."""
    filtered = _filtered(node)
    if filtered is None:
        return None
    _, where = filtered

    def asked(condition: Node, expr: Node) -> str:
        return _with_where(node, condition, make("items", make("item", expr, value="c0")), False)

    counting = asked(where, make("agg", NONE, NONE, value=("count", False)))
    of_each = make("case", where, lit(1), lit(0))
    summing = asked(NONE, make("agg", of_each, NONE, value=("sum", False)))
    answers = _answers(engine, "norec", node, counting, summing)
    if not isinstance(answers, list):
        return answers
    counted, summed = answers
    engine.met["norec: compared"] += 1
    found, expected = counted[0][0], summed[0][0] or 0
    if found == expected:
        return None
    return Finding("norec", "wrong", node, f"{found} rows filtered", f"{expected} rows for which it is true")


def row_level(engine: Engine, node: Node) -> Finding | None:
    """Compare a filter with the same filter wrapped so that it is evaluated per row, never per run."""
    filtered = _filtered(node)
    if filtered is None or not dialect.is_definite(node):
        return None
    body, where = filtered
    steps = next(
        (part.value[1] for part in own_parts(body.args[1]) if part.op == "table" and part.value[0] == "steps"), None
    )
    if steps is None:
        return None
    place = make("col", value=(steps, "step_index"), type=U32)
    always = make("cmp", make("coalesce", place, lit(0)), lit(0), value=">=")
    dressed = make("case", always, where, lit(False))
    answers = _answers(engine, "row_level", node, engine_sql(node), _with_where(node, dressed))
    if not isinstance(answers, list):
        return answers
    rows, other = answers
    engine.met["row_level: compared"] += 1
    return None if comparison.same_rows(rows, other) else _wrong("row_level", node, rows, other)


# Tables in memory


BASE = ("board", "run_id", "step_index")


def _extras(schema: Any) -> list[str]:
    def fits(dtype: Any) -> bool:
        if pa.types.is_dictionary(dtype):
            dtype = dtype.value_type
        kinds = [pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string]
        return any(kind(dtype) for kind in kinds)

    return [field.name for field in schema if field.name not in BASE and fits(field.type)]


def _held(table: Any, extras: Sequence[str], names: Sequence[str]) -> list[Row]:
    """Return the rows of a ``StepTable`` as the stream has them, except that NULL floats are NaN."""
    array = np.asarray(table)
    columns: list[list[Any]] = []
    for name in names:
        values = array[name].tolist()
        if name in table.categories:
            texts = table.categories[name]
            values = [texts[code] if code >= 0 else None for code in values]
        columns.append([comparison.plain(value) for value in values])
    return list(zip(*columns, strict=True)) if columns else []


def materialize(engine: Engine, node: Node) -> Finding | None:
    """Compare a materialized table with the stream."""
    sql = engine_sql(node)
    try:
        table = engine.table(sql)
    except NoAnswerError as failure:
        if failure.kind == "internal":
            return Finding("materialize", "internal", node, failure.message, "an answer, or an error of the data")
        return None
    names = [name for name in table.column_names if name in BASE]
    extras = _extras(table.schema)
    null = [name for name in extras if table[name].null_count and not pa.types.is_floating(table[name].type)]
    texts = [name for name in null if pa.types.is_string(table[name].type) or pa.types.is_dictionary(table[name].type)]
    extras = [name for name in extras if name not in null or name in texts]
    try:
        held = engine.query(sql).materialize(extra=extras, progress=False)
    except a2store.ColumnError as error:
        engine.met["materialize: column"] += 1
        null = [name for name in [*names, *extras] if table[name].null_count]
        if dialect.is_definite(node) and "null" in str(error).lower() and not null:
            return Finding("materialize", "error", node, str(error), "no nulls, as in the stream")
        return None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        failed = failure_of(error)
        if failed.kind == "data" and dialect.may_fail(node):
            return None
        kind = "internal" if failed.kind == "internal" else "error"
        return Finding("materialize", kind, node, failed.message, "the rows of the stream")
    engine.met["materialize: compared"] += 1
    rows = _held(held, extras, [*names, *extras])
    keeps_order = is_row_by_row(node) and not node.args[2].args
    if not dialect.is_definite(node) and not keeps_order:
        if len(rows) != table.num_rows and not dialect.has_inner_limit(node):
            return Finding("materialize", "wrong", node, f"{len(rows)} rows", f"{table.num_rows} in the stream")
        return None
    expected = rows_of(table.select([*names, *extras]))
    expected = [tuple("NaN" if value is None and pa.types.is_floating(table[name].type) else value
                      for name, value in zip([*names, *extras], row, strict=True)) for row in expected]  # fmt: skip
    if keeps_order:
        return None if comparison.same_sequence(rows, expected) else _wrong("materialize", node, rows, expected)
    return None if comparison.same_rows(rows, expected) else _wrong("materialize", node, rows, expected)


def fingerprint(engine: Engine, node: Node) -> Finding | None:
    """Compare tables of equal fingerprint, row by row, on several numbers of threads."""
    sql = engine_sql(node)
    try:
        schema = pa.schema(engine.query(sql).schema)
    except a2store.Error:
        return None
    extras = _extras(schema)
    first = None
    while first is None:
        try:
            first = worker.held(engine.data, sql, extras)
        except a2store.ColumnError as error:
            # Integers have no NULLs in a table.
            null = [name for name in extras if f"column {name}," in str(error)]
            if not null:
                return None
            extras.remove(null[0])
        except a2store.Error:
            return None
    others: list[tuple[str, Callable[[], Any]]] = [
        ("again", lambda: worker.held(engine.data, sql, extras)),
        ("tables in many batches", lambda: worker.held(engine.data, sql, extras, divided=True)),
    ]
    for process in engine.workers:
        how = f"{process.cores} threads"
        others.append((how, partial(process.held, sql, extras, divided=False)))
        others.append((f"{how}, many batches", partial(process.held, sql, extras, divided=True)))
    for how, make_again in others:
        try:
            other = make_again()
        except a2store.Error as error:
            is_of_data = failure_of(error).kind == "data" and dialect.may_fail(node)
            if not dialect.is_definite(node) and (is_of_data or isinstance(error, a2store.ColumnError)):
                # A LIMIT may choose other rows. An integer of theirs may be NULL, or a cast may fail.
                engine.met["fingerprint: another each time"] += 1
                continue
            return Finding("fingerprint", "unstable", node, f"{how}: {error}", "a table, as at first")
        name, rows = other
        if engine.spoil:
            rows = engine.spoil(rows, how)
        if name != first[0]:
            engine.met["fingerprint: another each time"] += 1
            continue
        engine.met["fingerprint: compared"] += 1
        if rows.tobytes() != first[1].tobytes():
            a, b = first[1], rows
            differ = (at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x.tobytes() != y.tobytes())
            at = next(differ, min(len(a), len(b)))
            return Finding("fingerprint", "unstable", node, f"{how}: row {at} of {len(b)}: {b[at : at + 1]}",
                           f"at first: row {at} of {len(a)}: {a[at : at + 1]}")  # fmt: skip
    return None


ROWS: dict[str, Check] = {"duck": duck}
FILTERS: dict[str, Check] = {"tlp": tlp, "tlp_sums": tlp_sums, "norec": norec, "row_level": row_level}
SELF: dict[str, Check] = {"count": count, "compacted": compacted, "params": params, "tasks": tasks}
TABLES: dict[str, Check] = {"fingerprint": fingerprint, "materialize": materialize, "limited": limited}
CHECKS: dict[str, Check] = {**ROWS, **FILTERS, **SELF, **TABLES}
