"""Statements as trees, and their text in both dialects.

All parts of a statement are nodes of one class, so the minimizer needs no special code for each part. A node's type
follows from its arguments, so replacing them updates the type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .dtypes import BOOL, F32, F64, I64, NULL, U64, WIDE, Type, common, common_of, of_literal, of_sum


@dataclass(frozen=True, eq=False)
class Node:
    """A part of a statement: its kind, its children, further options, and the type of an expression."""

    op: str
    args: tuple[Node, ...] = ()
    value: Any = None
    type: Type = NULL

    def walk(self) -> Iterator[Node]:
        yield self
        for arg in self.args:
            yield from arg.walk()

    def with_args(self, args: tuple[Node, ...]) -> Node:
        return make(self.op, *args, value=self.value, type=self.type)

    def with_arg(self, place: int, arg: Node) -> Node:
        return self.with_args((*self.args[:place], arg, *self.args[place + 1 :]))


class ClashError(Exception):
    """An expression whose types have no common type."""


def met_type(nodes: Sequence[Node]) -> Type | None:
    """Return the common type of operands and results. Beside a U64, a constant of at least 0 is a U64."""
    types = [node.type for node in nodes]
    if U64 in types:
        is_constant = [node.op == "lit" and node.type == I64 and node.value >= 0 for node in nodes]
        types = [U64 if constant else dtype for constant, dtype in zip(is_constant, types, strict=True)]
    return common_of(types)


def _meeting(args: tuple[Node, ...]) -> Type:
    met = met_type(args)
    if met is None:
        raise ClashError([arg.type.name for arg in args])
    return met


def _compared(args: tuple[Node, ...]) -> None:
    """Check that a list of values has a common type. Constants have their own type there."""
    if common_of([arg.type for arg in args]) is None:
        raise ClashError([arg.type.name for arg in args])


def _branches(args: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the results of a CASE. Its arguments are alternating conditions and results, then ELSE."""
    return (*args[1:-1:2], args[-1])


def _aggregate(name: str, argument: Type) -> Type:
    if name in ("count", "row_number", "rank", "dense_rank"):
        return I64
    if name in ("min", "max", "first_value", "last_value", "nth_value", "string_agg"):
        return argument
    if name in ("bool_and", "bool_or"):
        return BOOL
    return of_sum(argument) if name == "sum" else F64


def _of(op: str, args: tuple[Node, ...], value: Any, given: Type) -> Type:
    match op:
        case "lit":
            return of_literal(value)
        case "cmp":
            _meeting(args)
            return BOOL
        case "between" | "in":
            _compared(args)
            return BOOL
        case "inq":
            if common(args[0].type, outputs(args[1])[0][1]) is None:
                raise ClashError
            return BOOL
        case "and" | "or" | "not" | "isnull" | "like" | "is" | "exists" | "text_cmp":
            return BOOL
        case "arith":
            return _meeting(args)
        case "neg":
            return I64 if args[0].type.is_int and args[0].type.lo == 0 else args[0].type
        case "case":
            return _meeting(_branches(args))
        case "switch":
            _compared((args[0], *args[1:-1:2]))
            return _meeting(_branches(args[1:]))
        case "coalesce" | "nullif":
            return _meeting(args)
        case "agg":
            return _aggregate(value[0], args[0].type)
        case "window":
            if value[0] in ("lag", "lead"):
                return args[0].type
            return _aggregate(value[0], args[0].type)
        case "scalar":
            return outputs(args[0])[0][1]
        case _:
            return given


def make(op: str, *args: Node, value: Any = None, type: Type = NULL) -> Node:  # noqa: A002
    return Node(op, args, value, _of(op, args, value, type))


NONE = Node("none")


def lit(value: object) -> Node:
    return make("lit", value=value)


def cast(node: Node, to: Type) -> Node:
    return make("cast", node, value="CAST", type=to)


def outputs(query: Node) -> list[tuple[str, Type]]:
    """The names and types of the columns of a query, SELECT or set operation."""
    if query.op == "query":
        return outputs(query.args[1])
    if query.op == "setop":
        left, right = outputs(query.args[0]), outputs(query.args[1])
        return [(name, common(own, other) or own) for (name, own), (_, other) in zip(left, right, strict=False)]
    return [(item.value, item.args[0].type) for item in query.args[0].args]


def engine_sql(node: Node) -> str:
    return _Text(False).of(node)


def duck_sql(node: Node) -> str:
    return _Text(True).of(node)


def with_parameters(node: Node) -> tuple[str, list[object]]:
    """Return the engine's text with parameters instead of constants, and their values."""
    text = _Text(False, {})
    assert text.parameters is not None
    sql = text.of(node)
    return sql, [value for _, value in text.parameters]


class _Text:
    """A writer of trees as text in one dialect; ``dialect.py`` explains the differences."""

    def __init__(self, duck: bool, parameters: dict[tuple[str, object], str] | None = None) -> None:
        self.duck = duck
        self.parameters = parameters

    def of(self, node: Node) -> str:
        render: Callable[[Node], str] = getattr(self, f"_{node.op}")
        return render(node)

    def many(self, nodes: tuple[Node, ...], between: str = ", ") -> str:
        return between.join(self.of(node) for node in nodes)

    def meeting(self, node: Node, met: Type | None) -> str:
        """Write an operand; for DuckDB, cast it if the common type of all operands is a float."""
        text = self.of(node)
        return self.as_float(text, node.type, met) if self.duck and met is not None and met.is_float else text

    def as_float(self, text: str, own: Type, met: Type) -> str:
        """Write a cast to a float for DuckDB, which rounds a HUGEINT twice."""
        if own == met:
            return text
        if own == U64 and met == F32:
            # DuckDB may have computed with more bits than the type has.
            text = f"({text})::{U64.duck}"
        if own == WIDE:
            text = f"({text})::VARCHAR"
        return f"({text})::{met.duck}"

    # Expressions

    def _lit(self, node: Node) -> str:
        value = node.value
        if value is None:
            return "NULL"
        if self.parameters is not None:
            # Equal constants share a parameter, so that expressions still match those in GROUP BY.
            return self.parameters.setdefault((node.type.name, value), f"${len(self.parameters) + 1}")
        if isinstance(value, bool):
            return str(value).upper()
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        text = f"({value})" if value < 0 else str(value)
        return f"{text}::{node.type.duck}" if self.duck else text

    def _col(self, node: Node) -> str:
        table, name = node.value
        return f"{table}.{name}" if table else str(name)

    def _arith(self, node: Node) -> str:
        left, right = node.args
        a, b, to = self.of(left), self.of(right), node.type.duck
        # Normalizes minus zero to zero.
        zero = " + 0" if node.type.is_float and node.value == "*" else ""
        if not self.duck:
            return f"({a} {node.value} {b}{zero})"
        if node.type.is_float:
            return f"({a}::{to} {node.value} {b}::{to}{zero})"
        if node.type == NULL:
            return "NULL"
        operator = "//" if node.value == "/" else node.value
        text = f"({a}::HUGEINT {operator} {b}::HUGEINT)"
        if node.type.is_int and operator in "+-*":
            # The engine wraps around.
            size, lo = f"{node.type.hi - node.type.lo + 1}::HUGEINT", f"({node.type.lo})::HUGEINT"
            text = f"(({text} % {size} - {lo} + {size}) % {size} + {lo})"
        return f"{text}::{to}"

    def _neg(self, node: Node) -> str:
        text = self.of(node.args[0])
        if self.duck and node.type != node.args[0].type:
            text = f"{text}::{node.type.duck}"
        return f"({'0 ' if node.type.is_float else ''}- {text})"

    def _cmp(self, node: Node) -> str:
        left, right = node.args
        met = met_type(node.args)
        return f"({self.meeting(left, met)} {node.value} {self.meeting(right, met)})"

    def _text_cmp(self, node: Node) -> str:
        """Compare a number with a number in quotes; both dialects cast the text to the number's type."""
        operator, text = node.value
        return f"({self.of(node.args[0])} {operator} '{text}')"

    def _and(self, node: Node) -> str:
        return f"({self.many(node.args, ' AND ')})"

    def _or(self, node: Node) -> str:
        return f"({self.many(node.args, ' OR ')})"

    def _not(self, node: Node) -> str:
        return f"(NOT {self.of(node.args[0])})"

    def _isnull(self, node: Node) -> str:
        return f"({self.of(node.args[0])} {node.value})"

    def _is(self, node: Node) -> str:
        """Write IS TRUE and similar tests; DuckDB has no IS UNKNOWN."""
        text = self.of(node.args[0])
        if self.duck and node.value.endswith("UNKNOWN"):
            return f"({text} {node.value.replace('UNKNOWN', 'NULL')})"
        return f"({text} {node.value})"

    def _between(self, node: Node) -> str:
        met = common_of([arg.type for arg in node.args])
        value, low, high = (self.meeting(arg, met) for arg in node.args)
        return f"({value} {node.value} {low} AND {high})"

    def _in(self, node: Node) -> str:
        met = common_of([arg.type for arg in node.args])
        value, *options = (self.meeting(arg, met) for arg in node.args)
        return f"({value} {node.value} ({', '.join(options)}))"

    def _inq(self, node: Node) -> str:
        value, query = node.args
        (_, other), *_ = outputs(query)
        met = common(value.type, other)
        inner = self.of(query)
        if self.duck and met is not None and met.is_float:
            inner = f"SELECT {self.as_float('c0', other, met)} FROM ({inner}) AS q"
        return f"({self.meeting(value, met)} {node.value} ({inner}))"

    def _like(self, node: Node) -> str:
        return f"({self.of(node.args[0])} {node.value} {self.of(node.args[1])})"

    def _case(self, node: Node) -> str:
        *pairs, other = node.args
        arms = [
            f"WHEN {self.of(condition)} THEN {self.meeting(result, node.type)}"
            for condition, result in zip(pairs[::2], pairs[1::2], strict=True)
        ]
        if other.op != "none":
            arms.append(f"ELSE {self.meeting(other, node.type)}")
        return f"CASE {' '.join(arms)} END"

    def _switch(self, node: Node) -> str:
        """Write a CASE with a value."""
        value, *pairs, other = node.args
        met = common_of([value.type, *(option.type for option in pairs[::2])])
        arms = [
            f"WHEN {self.meeting(option, met)} THEN {self.meeting(result, node.type)}"
            for option, result in zip(pairs[::2], pairs[1::2], strict=True)
        ]
        if other.op != "none":
            arms.append(f"ELSE {self.meeting(other, node.type)}")
        return f"CASE {self.meeting(value, met)} {' '.join(arms)} END"

    def _coalesce(self, node: Node) -> str:
        return f"coalesce({', '.join(self.meeting(arg, node.type) for arg in node.args)})"

    def _nullif(self, node: Node) -> str:
        value, other = node.args
        met = met_type(node.args)
        return f"nullif({self.meeting(value, met)}, {self.meeting(other, met)})"

    def _cast(self, node: Node) -> str:
        text = self.of(node.args[0])
        if self.duck and node.args[0].type.is_float and node.type.is_int:
            text = f"trunc({text})"
        if self.duck and node.type.is_float:
            text = self.as_float(text, node.args[0].type, node.type)
        return f"{node.value}({text} AS {node.type.duck if self.duck else node.type.engine})"

    def _func(self, node: Node) -> str:
        return f"{node.value}({self.many(node.args)})"

    def _concat(self, node: Node) -> str:
        return f"({self.many(node.args, ' || ')})"

    def _scalar(self, node: Node) -> str:
        return f"({self.of(node.args[0])})"

    def _exists(self, node: Node) -> str:
        return f"({node.value} ({self.of(node.args[0])}))"

    def _call(self, name: str, distinct: bool, argument: Node) -> str:
        inside = "*" if argument.op == "none" else self.of(argument)
        order = f", '|' ORDER BY length({inside}) DESC, {inside}" if name == "string_agg" else ""
        return f"{name}({'DISTINCT ' if distinct else ''}{inside}{order})"

    def _agg(self, node: Node) -> str:
        (name, distinct), (argument, condition) = node.value, node.args
        text = self._call(name, distinct, argument)
        if condition.op != "none":
            text += f" FILTER (WHERE {self.of(condition)})"
        if self.duck and name == "sum" and argument.type.is_int:
            text = f"({text})::{node.type.duck}"
        return text

    def _window(self, node: Node) -> str:
        name, distinct, more, frame = node.value
        argument, default, partition, order = node.args
        inside = "" if name in ("row_number", "rank", "dense_rank") else "*"
        if argument.op != "none":
            inside = self.of(argument)
        if more is not None:
            inside += f", {more}"
        if default.op != "none":
            inside += f", {self.meeting(default, argument.type)}"
        over = []
        if partition.args:
            over.append(f"PARTITION BY {self.many(partition.args)}")
        if order.args:
            over.append(f"ORDER BY {self.many(order.args)}")
        if frame:
            over.append(frame)
        text = f"{name}({'DISTINCT ' if distinct else ''}{inside}) OVER ({' '.join(over)})"
        if self.duck and name == "sum" and argument.type.is_int:
            text = f"({text})::{node.type.duck}"
        return text

    # Queries

    def _query(self, node: Node) -> str:
        ctes, body, order, limit = node.args
        text = f"WITH {self.many(ctes.args)} " if ctes.args else ""
        text += self.of(body)
        keys = [self.of(key) for key in order.args]
        if node.value == "total":
            keys += [name for name, _ in outputs(body) if name not in {key.split(" ")[0] for key in keys}]
        if keys:
            text += f" ORDER BY {', '.join(keys)}"
        if limit.op != "none":
            count, offset = limit.value
            text += f" LIMIT {count}" if count is not None else ""
            text += f" OFFSET {offset}" if offset else ""
        return text

    def _cte(self, node: Node) -> str:
        return f"{node.value} AS ({self.of(node.args[0])})"

    def _key(self, node: Node) -> str:
        descending, nulls = node.value
        text = self.of(node.args[0])
        # A constant would be a column number.
        if node.args[0].op == "lit":
            text = f"({text} + 0)" if node.args[0].type.is_number else f"({text} IS NULL)"
        return text + (" DESC" if descending else "") + (f" NULLS {nulls}" if nulls else "")

    def _select(self, node: Node) -> str:
        items, source, where, group, having = node.args
        text = f"SELECT {'DISTINCT ' if node.value else ''}{self.many(items.args)}"
        if source.op != "none":
            text += f" FROM {self.of(source)}"
        if where.op != "none":
            text += f" WHERE {self.of(where)}"
        if group.op != "none":
            text += f" GROUP BY {self._groups(group)}"
        if having.op != "none":
            text += f" HAVING {self.of(having)}"
        return text

    def _item(self, node: Node) -> str:
        return f"{self.of(node.args[0])} AS {node.value}"

    def _groups(self, node: Node) -> str:
        keys = [self.of(key) for key in node.args]
        if node.value in ("ROLLUP", "CUBE"):
            return f"{node.value} ({', '.join(keys)})"
        if node.value == "SETS":
            sets = [keys[:end] for end in range(len(keys), -1, -1)] + [[key] for key in keys[1:]]
            return f"GROUPING SETS ({', '.join('(' + ', '.join(each) + ')' for each in sets)})"
        return ", ".join(keys)

    def _setop(self, node: Node) -> str:
        left, right = node.args
        if self.duck:
            types = [kind for _, kind in outputs(node)]
            return f"{self._side(left, types)} {node.value} {self._side(right, types)}"
        return f"({self.of(left)}) {node.value} ({self.of(right)})"

    def _side(self, node: Node, types: list[Type]) -> str:
        columns = []
        for (name, own), met in zip(outputs(node), types, strict=False):
            columns.append(f"{self.as_float(name, own, met)} AS {name}" if met.is_float else name)
        return f"(SELECT {', '.join(columns)} FROM ({self.of(node)}) AS side)"

    def _table(self, node: Node) -> str:
        name, alias = node.value
        return f"{name} AS {alias}"

    def _derived(self, node: Node) -> str:
        return f"({self.of(node.args[0])}) AS {node.value}"

    def _join(self, node: Node) -> str:
        left, right, on = node.args
        kind = node.value
        if not self.duck and kind in ("SEMI", "ANTI"):
            kind = f"LEFT {kind}"
        text = f"{self.of(left)} {kind} JOIN {self.of(right)}"
        if kind == "CROSS":
            return text
        return f"{text} USING ({on.value})" if on.op == "using" else f"{text} ON {self.of(on)}"

    def _values(self, node: Node) -> str:
        """Write a VALUES table."""
        names = ", ".join(name for name, _ in node.value[1])
        columns = [common_of([row.args[place].type for row in node.args]) for place in range(len(node.value[1]))]
        rows = (
            ", ".join(self.meeting(value, met) for value, met in zip(row.args, columns, strict=True))
            for row in node.args
        )
        return f"(VALUES {', '.join(f'({row})' for row in rows)}) AS {node.value[0]}({names})"
