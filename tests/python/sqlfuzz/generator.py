"""Random statements: all clauses, and combinations of all numeric types."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from . import data
from .dtypes import BOOL, F32, F64, I64, NULL, NUMBERS, STR, TIME, U64, WIDE, Type, common, common_of
from .tree import NONE, ClashError, Node, cast, engine_sql, lit, make, met_type, outputs

SMALL = [0, 1, 2, 3, 4, 5, 7, 9, 10, -1]
EDGES = [
    127, 128, 255, 256, 300, -128, -129, 32768, 65535, 65536, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1,
    -(2**63) + 1,
]  # fmt: skip
FLOATS = [0.75, 0.5, -0.5, 1.5, 2.0, 0.25, 3.0, 16777217.0]
FAR_FLOATS = [1e300, -1e300, 1e-300, 255.5]
STRINGS = ["alpha", "beta", "γάμμα", "early", "mid", "late", "a", "b", "abc", "", "zzz"]
PATTERNS = ["a%", "%a", "%l%", "_", "%", "", "al_ha", "A%"]


@dataclass
class Column:
    alias: str
    name: str
    type: Type

    def node(self) -> Node:
        return make("col", value=(self.alias, self.name), type=self.type)


@dataclass
class Scope:
    """The columns in scope of an expression."""

    columns: list[Column] = field(default_factory=list)
    keys: list[Node] | None = None
    """The columns that identify a row; ``None`` = unknown."""
    outer: list[Column] = field(default_factory=list)


class Generator:
    """A generator of one statement; ``rng`` determines it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.aliases = 0
        self.ctes: list[tuple[str, list[tuple[str, Type]]]] = []
        self.subqueries = 2
        self.conditional = False
        """Whether the expression is part of a WHERE: the engine accepts EXISTS and IN (subquery) only there."""

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def alias(self, letter: str) -> str:
        self.aliases += 1
        return f"{letter}{self.aliases}"

    def pick(self, *choices: tuple[float, Callable[[], Node]]) -> Node:
        (chosen,) = self.rng.choices([each for _, each in choices], [weight for weight, _ in choices])
        return chosen()

    # Expressions

    def column(self, scope: Scope, want: Callable[[Type], bool]) -> Node | None:
        fitting = [column for column in scope.columns if want(column.type)]
        return self.rng.choice(fitting).node() if fitting else None

    def number_literal(self) -> Node:
        draw = self.rng.random()
        values: Sequence[object] = SMALL if draw < 0.55 else EDGES if draw < 0.7 else FLOATS
        if draw > 0.97:
            values = FAR_FLOATS
        if draw > 0.94 and draw < 0.97:
            values = [None]
        return lit(self.rng.choice(values))

    def number(self, scope: Scope, depth: int) -> Node:
        """Return an expression of any numeric type."""
        saved, self.conditional = self.conditional, False
        try:
            return self._number(scope, depth)
        finally:
            self.conditional = saved

    def _number(self, scope: Scope, depth: int) -> Node:
        if depth <= 0 or self.chance(0.3):
            column = self.column(scope, lambda dtype: dtype.is_number)
            if column is None or self.chance(0.12):
                return self.number_literal()
            return column
        choices = [
            (4.0, lambda: self.arithmetic(scope, depth - 1)),
            (4.0, lambda: self.case(scope, depth - 1, self.number)),
            (1.5, lambda: self.switch(scope, depth - 1)),
            (2.0, lambda: self.coalesce(scope, depth - 1)),
            (1.5, lambda: self.nullif(scope, depth - 1)),
            (2.0, lambda: self.cast_number(scope, depth - 1)),
            (0.4, lambda: self.length(scope, depth - 1)),
            (0.5, lambda: self.negated(scope, depth - 1)),
            (0.5, lambda: self.extreme(scope, depth - 1)),
            (0.3, lambda: self.part_of_time(scope)),
        ]
        if self.subqueries > 0:
            choices.append((0.8, lambda: self.scalar(scope)))
        return self.pick(*choices)

    def meeting(self, scope: Scope, depth: int, count: int) -> list[Node]:
        """Return numbers whose types have a common type."""
        nodes = [self.number(scope, depth) for _ in range(count)]
        if met_type(nodes) is None:
            nodes = [cast(node, F64) if node.type == WIDE else node for node in nodes]
        if met_type(nodes) is None:
            # Integers whose common type is a decimal, and a float.
            nodes = [cast(node, F64) if node.type.is_int or node.type == WIDE else node for node in nodes]
        return nodes

    def arithmetic(self, scope: Scope, depth: int) -> Node:
        left, right = self.meeting(scope, depth, 2)
        if self.chance(0.6):
            right = lit(self.rng.choice([*SMALL[:-1], *FLOATS[:5]]))
        met = met_type([left, right])
        if met is None or met == NULL:
            return left
        operator = self.rng.choice("+-" if met == WIDE else "++--*/%")
        if met.is_float and operator in "/%":
            operator = "*"
        if operator in "/%":
            return self.division(scope, left, right, operator)
        return make("arith", left, right, value=operator)

    def division(self, scope: Scope, left: Node, right: Node, operator: str) -> Node:
        if right.op == "lit" and right.value not in (0, None):
            return make("arith", left, right, value=operator)
        zero = lit(0)
        kind = self.rng.random()
        if kind < 0.4:
            # Guarded: the division is evaluated only where the divisor is not 0.
            guard = make("cmp", right, zero, value=self.rng.choice(["<>", ">"]))
            return make("case", guard, make("arith", left, right, value=operator), NONE)
        if kind < 0.8:
            # The divisor of a constant gets the constant's type.
            return make("arith", left, cast(make("nullif", right, zero), right.type), value=operator)
        return make("arith", left, right, value=operator)

    def case(self, scope: Scope, depth: int, of: Callable[[Scope, int], Node]) -> Node:
        saved, self.conditional = self.conditional, False
        try:
            return self._case(scope, depth, of)
        finally:
            self.conditional = saved

    def _case(self, scope: Scope, depth: int, of: Callable[[Scope, int], Node]) -> Node:
        arms = self.rng.choice([1, 1, 2, 3])
        results = [of(scope, depth) for _ in range(arms + 1)]
        if self.chance(0.5):
            results[-1] = self.number_literal() if results[0].type.is_number else results[-1]
        results = self.together(results)
        parts: list[Node] = []
        for result in results[:-1]:
            parts += [self.condition(scope, min(depth, 1)), result]
        return make("case", *parts, NONE if self.chance(0.2) else results[-1])

    def together(self, nodes: list[Node]) -> list[Node]:
        if met_type(nodes) is not None:
            return nodes
        return [cast(node, F64) if node.type.is_int or node.type == WIDE else node for node in nodes]

    def switch(self, scope: Scope, depth: int) -> Node:
        value, *options = self.meeting(scope, min(depth, 1), 3)
        if self.chance(0.7):
            options = [lit(option) for option in self.rng.sample(SMALL, 2)]
        value, *options = self.together([value, *options])
        results = self.meeting(scope, depth, 3)
        other = NONE if self.chance(0.3) else results[2]
        return make("switch", value, options[0], results[0], options[1], results[1], other)

    def coalesce(self, scope: Scope, depth: int) -> Node:
        nodes = self.meeting(scope, depth, self.rng.choice([2, 2, 3]))
        if self.chance(0.5):
            nodes = self.together([*nodes[:-1], self.number_literal()])
        return make("coalesce", *nodes)

    def nullif(self, scope: Scope, depth: int) -> Node:
        return make("nullif", *self.meeting(scope, depth, 2))

    def cast_number(self, scope: Scope, depth: int) -> Node:
        column = self.column(scope, lambda dtype: dtype == STR)
        if column is not None and column.value[1] == "a_n" and self.chance(0.7):
            return cast(column, self.rng.choice([I64, U64, F64]))
        if self.chance(0.15):
            return cast(self.boolean(scope, depth), I64)
        node = self.number(scope, depth)
        to = self.rng.choice(NUMBERS)
        if node.type == WIDE:
            return cast(node, F64)
        fits = (node.type.is_int and to.lo <= node.type.lo and node.type.hi <= to.hi) or to.is_float
        if not fits and self.chance(0.8):
            to = F64
        return make("cast", node, value="CAST" if fits or self.chance(0.7) else "TRY_CAST", type=to)

    def length(self, scope: Scope, depth: int) -> Node:
        return make("func", self.string(scope, depth), value="character_length", type=I64)

    def negated(self, scope: Scope, depth: int) -> Node:
        node = self.number(scope, depth)
        # A constant beyond the range of I64 has another type with a sign.
        return make("neg", cast(node, F64) if node.type == WIDE or node.op == "lit" else node)

    def extreme(self, scope: Scope, depth: int) -> Node:
        node = self.number(scope, depth)
        return make("func", cast(node, F64), value="abs", type=F64)

    def part_of_time(self, scope: Scope) -> Node:
        column = self.column(scope, lambda dtype: dtype == TIME)
        if column is None:
            return self.number_literal()
        return make("func", lit(self.rng.choice(["year", "month", "hour"])), column, value="date_part", type=I64)

    def string(self, scope: Scope, depth: int) -> Node:
        column = self.column(scope, lambda dtype: dtype == STR)
        if depth <= 0 or self.chance(0.5):
            return column if column is not None and self.chance(0.8) else lit(self.rng.choice([*STRINGS, None]))
        first, second = self.string(scope, depth - 1), self.string(scope, depth - 1)
        return self.pick(
            (2, lambda: self.case(scope, depth - 1, self.string)),
            (2, lambda: make("coalesce", first, second)),
            (1, lambda: make("nullif", first, second)),
            (1, lambda: make("concat", first, second, type=STR)),
            (1, lambda: make("func", first, value=self.rng.choice(["upper", "lower"]), type=STR)),
            (0.5, lambda: make("cast", self.integer(scope), value="CAST", type=STR)),
        )

    def integer(self, scope: Scope) -> Node:
        return self.column(scope, lambda dtype: dtype.is_int) or lit(self.rng.choice(SMALL))

    def boolean(self, scope: Scope, depth: int) -> Node:
        """Return an expression of type BOOLEAN."""
        if self.chance(0.2):
            column = self.column(scope, lambda dtype: dtype == BOOL)
            if column is not None:
                return column
        if self.chance(0.04):
            return lit(self.rng.choice([True, False, None]))
        if depth > 0 and self.chance(0.12):
            return self.case(scope, depth - 1, self.boolean)
        if depth > 0 and self.chance(0.05) and not self.conditional:
            return make("coalesce", self.boolean(scope, depth - 1), self.boolean(scope, depth - 1))
        return self.condition(scope, depth)

    def condition(self, scope: Scope, depth: int) -> Node:
        choices = [
            (5.0, lambda: self.comparison(scope, depth - 1)),
            (1.5, lambda: self.between(scope, depth - 1)),
            (1.5, lambda: self.in_list(scope, depth - 1)),
            (1.0, lambda: self.is_null(scope, depth - 1)),
            (1.0, lambda: self.like(scope)),
            (0.7, lambda: self.of_strings(scope)),
            (0.7, lambda: self.several_of_one(scope)),
        ]
        if depth > 0:
            choices += [
                (2.0, lambda: self.logic("and", scope, depth - 1)),
                (2.0, lambda: self.logic("or", scope, depth - 1)),
                (1.0, lambda: make("not", self.boolean(scope, depth - 1))),
                (0.7, lambda: self.truth(scope, depth - 1)),
                (0.5, lambda: self.guarded(scope)),
            ]
        if self.subqueries > 0 and self.conditional:
            choices += [(1.0, lambda: self.exists(scope)), (1.2, lambda: self.in_query(scope))]
        return self.pick(*choices)

    def logic(self, op: str, scope: Scope, depth: int) -> Node:
        return make(op, *(self.boolean(scope, depth) for _ in range(self.rng.choice([2, 2, 3]))))

    def truth(self, scope: Scope, depth: int) -> Node:
        kinds = ["IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE", "IS UNKNOWN", "IS NOT UNKNOWN"]
        return make("is", self.boolean(scope, depth), value=self.rng.choice(kinds))

    def guarded(self, scope: Scope) -> Node:
        """Return a division that AND guards against zero."""
        left, right = self.integer(scope), self.integer(scope)
        if common(left.type, right.type) in (WIDE, None):
            left, right = cast(left, F64), cast(right, F64)
            left, right = lit(10), lit(3)
        guard = make("cmp", right, lit(0), value=self.rng.choice(["<>", ">"]))
        quotient = make("arith", left, right, value="/")
        return make(
            "and", guard, make("cmp", quotient, lit(self.rng.choice(SMALL)), value=self.rng.choice([">=", "<"]))
        )

    def comparison(self, scope: Scope, depth: int) -> Node:
        if self.chance(0.04):
            column = self.column(scope, lambda dtype: dtype == TIME)
            if column is not None:
                return make(
                    "cmp", column, make("cast", lit("2024-01-01T00:00:00Z"), value="CAST", type=TIME), value="<"
                )
        if self.chance(0.04):
            column = self.column(scope, lambda dtype: dtype.is_number)
            if column is not None:
                return make(
                    "text_cmp", column, value=(self.rng.choice(["=", "<", ">="]), self.rng.choice(["0", "7", "3"]))
                )
        left, right = self.meeting(scope, depth, 2)
        if self.chance(0.5):
            left, right = self.together([left, self.number_literal()])
        if self.chance(0.1):
            left, right = right, left
        operators = ["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
        return make("cmp", left, right, value=self.rng.choices(operators, [3, 2, 2, 2, 2, 2, 1, 1])[0])

    def several_of_one(self, scope: Scope) -> Node:
        """Return comparisons of one column with literals, which are on either side."""
        column = self.column(scope, lambda dtype: dtype.is_number or dtype == STR)
        if column is None:
            return self.comparison(scope, 0)
        literals: Sequence[object] = STRINGS if column.type == STR else SMALL
        parts = []
        for _ in range(self.rng.choice([2, 2, 3])):
            nodes = [column, lit(self.rng.choice(literals))]
            left, right = nodes if column.type == STR else self.together(nodes)
            if self.chance(0.5):
                left, right = right, left
            parts.append(make("cmp", left, right, value=self.rng.choice(["=", "=", "<", "<=", ">", ">="])))
        return make(self.rng.choice(["and", "and", "or"]), *parts)

    def between(self, scope: Scope, depth: int) -> Node:
        value, low, high = self.meeting(scope, depth, 3)
        if self.chance(0.6):
            value, low, high = self.together([value, self.number_literal(), self.number_literal()])
        return make("between", value, low, high, value=self.rng.choice(["BETWEEN", "BETWEEN", "NOT BETWEEN"]))

    def in_list(self, scope: Scope, depth: int) -> Node:
        count = self.rng.choice([1, 2, 3, 4, 6])
        if self.chance(0.3):
            value: Node = self.string(scope, depth)
            nodes = [value, *(lit(self.rng.choice([*STRINGS, None])) for _ in range(count))]
        else:
            nodes = [self.number(scope, depth), *(self.number_literal() for _ in range(count))]
            if self.chance(0.2):
                nodes[-1] = self.number(scope, depth)
            nodes = self.together(nodes)
        return make("in", *nodes, value=self.rng.choice(["IN", "IN", "NOT IN"]))

    def is_null(self, scope: Scope, depth: int) -> Node:
        of = self.rng.choice([self.number, self.string, self.boolean])
        return make("isnull", of(scope, depth), value=self.rng.choice(["IS NULL", "IS NOT NULL"]))

    def like(self, scope: Scope) -> Node:
        value = self.column(scope, lambda dtype: dtype == STR) or lit("alpha")
        pattern = lit(self.rng.choice(PATTERNS))
        return make("like", value, pattern, value=self.rng.choice(["LIKE", "NOT LIKE", "ILIKE"]))

    def of_strings(self, scope: Scope) -> Node:
        left, right = self.string(scope, 1), self.string(scope, 1)
        return make("cmp", left, right, value=self.rng.choice(["=", "<>", "<", ">=", "IS DISTINCT FROM"]))

    def where(self, scope: Scope, depth: int) -> Node:
        self.conditional = True
        node = self.boolean(scope, depth)
        self.conditional = False
        return node

    # Subqueries

    def small_source(self, outer: Scope | None = None) -> tuple[Node, Scope]:
        """Return one table for a subquery."""
        name = self.rng.choices(["runs", "u", "v", "e", "steps", "annotations"], [3, 4, 1, 0.5, 2, 1])[0]
        return self.table(name)

    def inner(self, scope: Scope, correlated: bool) -> tuple[Node, Scope, Node]:
        """Return the source, scope and condition of a subquery."""
        self.subqueries -= 1
        source, inside = self.small_source()
        conditions = []
        if correlated and scope.columns:
            own = self.column(inside, lambda dtype: dtype.is_int)
            other = self.column(scope, lambda dtype: dtype.is_int)
            if own is not None and other is not None and common(own.type, other.type) not in (None, WIDE):
                conditions.append(make("cmp", own, other, value="="))
        if self.chance(0.6):
            saved, self.conditional = self.conditional, False
            conditions.append(self.boolean(inside, 1))
            self.conditional = saved
        if not conditions:
            return source, inside, NONE
        return source, inside, conditions[0] if len(conditions) == 1 else make("and", *conditions)

    def select_of(self, expr: Node, source: Node, where: Node, distinct: bool = False) -> Node:
        items = make("items", make("item", expr, value="c0"))
        body = make("select", items, source, where, NONE, NONE, value=distinct)
        return make("query", make("ctes"), body, make("order"), NONE)

    def plain(self, inside: Scope) -> Node:
        saved, self.subqueries = self.subqueries, 0
        node = self.number(inside, 1)
        self.subqueries = saved
        return node

    def exists(self, scope: Scope) -> Node:
        source, _, where = self.inner(scope, self.chance(0.7))
        query = self.select_of(lit(1), source, where)
        return make("exists", query, value=self.rng.choice(["EXISTS", "NOT EXISTS"]))

    def in_query(self, scope: Scope) -> Node:
        # An IN that refers to the outer query is refused.
        source, inside, where = self.inner(scope, self.chance(0.02))
        if self.chance(0.25):
            value = self.string(scope, 0)
            found = self.string(inside, 0)
        else:
            value, found = self.number(scope, 1), self.plain(inside)
            if self.chance(0.5):
                value = self.column(scope, lambda dtype: dtype.is_int) or value
                found = self.column(inside, lambda dtype: dtype.is_int) or found
            if common(value.type, found.type) is None:
                value, found = self.together([value, found])
        query = self.select_of(found, source, where, self.chance(0.1))
        # NOT IN is refused unless its left side is a column.
        negated = self.chance(0.5 if value.op == "col" else 0.05)
        return make("inq", value, query, value="NOT IN" if negated else "IN")

    def scalar(self, scope: Scope) -> Node:
        source, inside, where = self.inner(scope, self.chance(0.5))
        saved, self.subqueries = self.subqueries, 0
        found = self.aggregate(inside)
        self.subqueries = saved
        if not found.type.is_number:
            found = make("agg", found.args[0], NONE, value=("count", False))
        return make("scalar", self.select_of(found, source, where))

    # Aggregates and windows

    def aggregate(self, scope: Scope) -> Node:
        condition = self.boolean(scope, 1) if self.chance(0.2) else NONE
        name = self.rng.choice([*("count", "sum") * 2, "min", "max", "avg", "bool_and", "bool_or", "string_agg"])
        if name.startswith("bool"):
            return make("agg", self.boolean(scope, 1), condition, value=(name, False))
        if name == "count" and self.chance(0.4):
            return make("agg", NONE, condition, value=("count", False))
        argument = self.number(scope, 2)
        if name == "string_agg" or (name in ("min", "max", "count") and self.chance(0.25)):
            argument = self.string(scope, 1)
        if name in ("sum", "avg"):
            argument = self.summable(argument)
        return make("agg", argument, condition, value=(name, name in ("count", "sum") and self.chance(0.2)))

    def summable(self, argument: Node) -> Node:
        """Cast large integers, because their sums overflow: one dialect wraps, the other fails."""
        if argument.type in (U64, WIDE) or (argument.type == I64 and self.chance(0.2)) or argument.type == NULL:
            return cast(argument, F64)
        return argument

    def window(self, scope: Scope) -> Node:
        saved, self.subqueries = self.subqueries, 0
        name = self.rng.choice(
            ["row_number", "rank", "dense_rank", "lag", "lead", "first_value", "last_value", "sum", "count", "min",
             "max", "avg"]
        )  # fmt: skip
        total = scope.keys is not None
        if name in ("row_number", "lag", "lead", "first_value", "last_value") and not total:
            name = "rank"
        partition = [self.group_key(scope) for _ in range(self.rng.choice([0, 1, 1, 2]))]
        order = [self.key(self.group_key(scope))] if self.chance(0.5) or name in ("rank", "dense_rank") else []
        frame = ""
        if total and scope.keys and (name not in ("rank", "dense_rank")) and (name in ("row_number", "lag", "lead",
                "first_value", "last_value") or self.chance(0.5)):  # fmt: skip
            order += [self.key(key) for key in scope.keys]
            if self.chance(0.4) and name not in ("row_number", "lag", "lead"):
                frame = self.rng.choice([
                    "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
                    "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
                    "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
                ])  # fmt: skip
        argument, default, more = NONE, NONE, None
        if name in ("lag", "lead"):
            argument, more = self.number(scope, 1), self.rng.choice([1, 2, 3])
            if self.chance(0.5):
                default = self.number_literal()
                met = common(argument.type, default.type) or F64
                if met != argument.type:
                    # The default value gets the argument's type.
                    argument = cast(argument, met)
        elif name not in ("row_number", "rank", "dense_rank", "count") or (name == "count" and self.chance(0.7)):
            argument = self.number(scope, 2)
            if name in ("sum", "avg"):
                argument = self.summable(argument)
                if argument.type in (F32, F64) and "UNBOUNDED PRECEDING" not in frame:
                    # The engine subtracts what leaves a frame, and keeps its rounding errors: see dialect.py.
                    frame = ""
        self.subqueries = saved
        value = (name, False, more, frame)
        return make("window", argument, default, make("list", *partition), make("list", *order), value=value)

    def key(self, node: Node) -> Node:
        nulls = self.rng.choice([None, None, "FIRST", "LAST"])
        return make("key", node, value=(self.chance(0.4), nulls))

    def group_key(self, scope: Scope) -> Node:
        draw = self.rng.random()
        if draw < 0.6:
            column = self.column(scope, lambda dtype: dtype.is_int or dtype in (STR, BOOL))
            if column is not None:
                return column
        if draw < 0.75:
            return self.boolean(scope, 1)
        if draw < 0.9:
            return self.number(scope, 1)
        return self.string(scope, 1)

    # Sources

    def table(self, name: str) -> tuple[Node, Scope]:
        alias = self.alias(name[0])
        columns = [Column(alias, column, dtype) for column, dtype in data.TABLES[name].items()]
        keys = [make("col", value=(alias, key), type=data.TABLES[name][key]) for key in data.KEYS[name]]
        return make("table", value=(name, alias)), Scope(columns, keys)

    def source(self, depth: int) -> tuple[Node, Scope]:
        draw = self.rng.random()
        if depth > 0 and draw < 0.12:
            query = self.query(depth - 1, limited=True)
            alias = self.alias("d")
            return make("derived", query, value=alias), Scope([Column(alias, *each) for each in outputs(query)])
        if self.ctes and draw < 0.3:
            name, columns = self.rng.choice(self.ctes)
            alias = self.alias("w")
            return make("table", value=(name, alias)), Scope([Column(alias, *each) for each in columns])
        if draw > 0.96:
            return self.values()
        name = self.rng.choices(["steps", "runs", "annotations", "u", "v", "e"], [5, 2.5, 2, 3, 1, 0.4])[0]
        return self.of_model() if name == "annotations" and self.chance(0.7) else self.table(name)

    def of_model(self) -> tuple[Node, Scope]:
        """Return the annotations of one model."""
        source, scope = self.table("annotations")
        model = next(column for column in scope.columns if column.name == "model")
        where = make("cmp", model.node(), lit(self.rng.choice(data.MODELS)), value="=")
        if self.chance(0.2):
            where = make("and", where, self.boolean(scope, 0))
        items = make("items", *(make("item", column.node(), value=column.name) for column in scope.columns))
        select = make("select", items, source, where, NONE, NONE, value=False)
        query = make("query", make("ctes"), select, make("order"), NONE, value="")
        alias = self.alias("d")
        columns = [Column(alias, *each) for each in outputs(query)]
        keys = [column.node() for column in columns if column.name in data.KEYS["annotations"]]
        return make("derived", query, value=alias), Scope(columns, keys)

    def values(self) -> tuple[Node, Scope]:
        """Return rows of constants, with mixed types in a column."""
        rows = [
            [self.number_literal(), lit(self.rng.choice([*STRINGS, None]))] for _ in range(self.rng.choice([1, 2, 3]))
        ]
        met = common_of([row[0].type for row in rows])
        if met is None or met == NULL:
            rows = [[lit(place), row[1]] for place, row in enumerate(rows)]
        text = common_of([row[1].type for row in rows])
        if text == NULL:
            rows[0][1] = lit("alpha")
        alias = self.alias("x")
        columns = [("n", common_of([row[0].type for row in rows]) or I64), ("t", STR)]
        node = make("values", *(make("row", *row) for row in rows), value=(alias, columns))
        return node, Scope([Column(alias, *each) for each in columns])

    def joined(self, depth: int) -> tuple[Node, Scope]:
        source, scope = self.source(depth)
        joins = self.rng.choices([0, 1, 2], [6, 3, 0.6])[0]
        for _ in range(joins):
            other, more = self.source(depth)
            kind = self.rng.choices(["INNER", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI"], [3, 3, 1.5, 2, 1, 1])[0]
            on = self.join_condition(scope, more, kind)
            if on is None:
                continue
            sides = [[column.name for column in side.columns] for side in (scope, more)]
            if kind in ("INNER", "LEFT") and [names.count("run_id") for names in sides] == [1, 1] and self.chance(0.15):
                on = make("using", value="run_id")
            source = make("join", source, other, on, value=kind)
            if kind in ("SEMI", "ANTI"):
                continue
            keys = None if scope.keys is None or more.keys is None else [*scope.keys, *more.keys]
            scope = Scope([*scope.columns, *more.columns], keys)
        return source, scope

    def join_condition(self, left: Scope, right: Scope, kind: str) -> Node | None:
        named = {column.name for column in left.columns} & {column.name for column in right.columns}
        pairs = []
        if "run_id" in named and self.chance(0.7):
            own = next(column for column in left.columns if column.name == "run_id")
            other = next(column for column in right.columns if column.name == "run_id")
            pairs.append((own.node(), other.node()))
            if "step_index" in named and self.chance(0.85):
                own = next(column for column in left.columns if column.name == "step_index")
                other = next(column for column in right.columns if column.name == "step_index")
                pairs.append((own.node(), other.node()))
        else:
            a = self.column(left, lambda dtype: dtype.is_int)
            b = self.column(right, lambda dtype: dtype.is_int)
            if a is None or b is None or common(a.type, b.type) in (None, WIDE):
                return None
            pairs.append((a, b))
        conditions = [make("cmp", a, b, value="=") for a, b in pairs]
        if self.chance(0.35):
            both = Scope([*left.columns, *right.columns])
            saved, self.subqueries = self.subqueries, 0
            conditions.append(self.boolean(both, 1))
            self.subqueries = saved
        return conditions[0] if len(conditions) == 1 else make("and", *conditions)

    # Queries

    def statement(self) -> Node:
        while True:
            try:
                return self.query(2, top=True)
            except ClashError:
                continue

    def query(self, depth: int, top: bool = False, limited: bool = False) -> Node:
        ctes = []
        outer = self.ctes
        if top and self.chance(0.12):
            inner = self.query(1)
            name = self.alias("cte")
            ctes.append(make("cte", inner, value=name))
            self.ctes = [*self.ctes, (name, outputs(inner))]
        body = self.set_operation(depth) if self.chance(0.12) else self.select(depth)
        order, limit, value = make("order"), NONE, ""
        if (top and self.chance(0.4)) or (limited and self.chance(0.3)):
            names = outputs(body)
            chosen = self.rng.sample(names, self.rng.randint(1, min(2, len(names))))
            order = make("order", *(self.key(make("col", value=("", name), type=kind)) for name, kind in chosen))
        if self.chance(0.2 if top or limited else 0.05):
            count = self.rng.choice([0, 1, 3, 10, 100, None])
            offset = self.rng.choice([0, 0, 1, 5]) if count is not None else 2
            if not top and self.chance(0.95):
                # An OFFSET in a subquery is refused.
                count, offset = count or 10, 0
            limit = make("limit", value=(count, offset))
            value = "total"
        self.ctes = outer
        return make("query", make("ctes", *ctes), body, order, limit, value=value)

    def set_operation(self, depth: int) -> Node:
        """Return a set operation over columns of different types."""
        kind = self.rng.choice(["UNION ALL", "UNION", "UNION", "INTERSECT", "EXCEPT"])
        sides = []
        for _ in range(2):
            source, scope = self.joined(0)
            where = self.where(scope, 1) if self.chance(0.6) else NONE
            sides.append((source, scope, where))
        columns: list[tuple[Node, Node]] = []
        for _ in range(self.rng.choice([1, 1, 2])):
            a, b = self.plain(sides[0][1]), self.plain(sides[1][1])
            if self.chance(0.25):
                a, b = self.string(sides[0][1], 1), self.string(sides[1][1], 1)
            if common(a.type, b.type) is None:
                a, b = self.together([a, b])
            both = common(a.type, b.type)
            if kind in ("INTERSECT", "EXCEPT") and a.type != b.type and both not in (None, WIDE) and self.chance(0.9):
                # Different types are refused.
                a, b = cast(a, both), cast(b, both)
            columns.append((a, b))
        made = []
        for place, (source, _, where) in enumerate(sides):
            items = make("items", *(make("item", pair[place], value=f"c{i}") for i, pair in enumerate(columns)))
            made.append(make("select", items, source, where, NONE, NONE, value=False))
        return make("setop", *made, value=kind)

    def select(self, depth: int) -> Node:
        source, scope = self.joined(depth)
        where = self.where(scope, 2) if self.chance(0.65) else NONE
        draw = self.rng.random()
        if draw < 0.12:
            return self.aggregated(source, scope, where)
        if draw < 0.4:
            return self.grouped(source, scope, where)
        return self.rows(source, scope, where)

    def rows(self, source: Node, scope: Scope, where: Node) -> Node:
        exprs = []
        for _ in range(self.rng.choice([1, 2, 3])):
            of = self.rng.choices([self.number, self.boolean, self.string], [5, 1.5, 1])[0]
            exprs.append(of(scope, 2))
        distinct = self.chance(0.15)
        if self.chance(0.2) and not distinct:
            exprs.append(self.window(scope))
        if not distinct and scope.keys and self.chance(0.7):
            exprs += scope.keys
        return make("select", self.items(exprs), source, where, NONE, NONE, value=distinct)

    def items(self, exprs: list[Node]) -> Node:
        return make("items", *(make("item", expr, value=f"c{place}") for place, expr in enumerate(exprs)))

    def aggregated(self, source: Node, scope: Scope, where: Node) -> Node:
        exprs = [self.aggregate(scope) for _ in range(self.rng.choice([1, 2, 3]))]
        return make("select", self.items(exprs), source, where, NONE, NONE, value=False)

    def grouped(self, source: Node, scope: Scope, where: Node) -> Node:
        saved, self.subqueries = self.subqueries, 0
        keys = [self.group_key(scope) for _ in range(self.rng.choice([1, 1, 2, 2, 3]))]
        # A constant would be a column number.
        keys = [key for key in keys if key.op != "lit"] or [scope.columns[0].node()]
        keys = list({engine_sql(key): key for key in keys}.values())
        kind = self.rng.choices(["", "ROLLUP", "CUBE", "SETS"], [8, 1, 1, 1])[0]
        group = make("group", *keys, value=kind)
        exprs = [*keys, *(self.aggregate(scope) for _ in range(self.rng.choice([1, 2])))]
        if kind and self.chance(0.5):
            exprs.append(make("func", keys[0], value="grouping", type=I64))
        having = NONE
        if self.chance(0.3):
            total = self.aggregate(scope)
            if total.type.is_number and total.type != WIDE:
                having = make("cmp", total, lit(self.rng.choice(SMALL)), value=self.rng.choice([">", "<=", "<>"]))
            else:
                having = make("isnull", total, value="IS NOT NULL")
        self.subqueries = saved
        return make("select", self.items(exprs), source, where, group, having, value=False)

    # Statements for the checks of conditions

    def filters(self) -> Node:
        while True:
            try:
                return self.filtered()
            except ClashError:
                continue

    def filtered(self) -> Node:
        """Return a statement with a condition, often one that is evaluated once per run."""
        source, scope = self.joined(1) if self.chance(0.5) else self.table("steps")
        seen = scope
        if self.chance(0.4):
            about_runs = ("run_id", "max_score", "highest_tile", "num_steps", "engine", "step_index")
            columns = [column for column in scope.columns if column.name in about_runs]
            seen = Scope(columns or scope.columns, scope.keys)
        where = self.where(seen, 3)
        exprs = [*(scope.keys or []), self.number(scope, 1)]
        if scope.keys is None or self.chance(0.3):
            exprs = exprs[-1:]
        body = make("select", self.items(exprs), source, where, NONE, NONE, value=self.chance(0.15))
        return make("query", make("ctes"), body, make("order"), NONE)

    # Statements that can be materialized

    def steps(self) -> Node:
        while True:
            try:
                return self.materializable()
            except ClashError:
                continue

    def sum_of_floats(self, scope: Scope) -> Node:
        name = self.rng.choice(["ev_up", "ev_left"])
        ev = next(column for column in scope.columns if column.name == name)
        number = make("arith", ev.node(), lit(0.1), value="*")
        return make("agg", number, NONE, value=(self.rng.choice(["sum", "avg"]), False))

    def boards_of_groups(self, source: Node, scope: Scope) -> Node:
        """Return a board per group and sums of floats, whose last bits depend on the order of addition."""
        key = self.group_key(scope)
        if key.op == "lit":
            key = scope.columns[0].node()
        board = make("agg", scope.columns[2].node(), NONE, value=(self.rng.choice(["min", "max"]), False))
        found = [("board", board), ("c0", key), ("c1", self.sum_of_floats(scope)), ("c2", self.aggregate(scope))]
        items = make("items", *(make("item", expr, value=name) for name, expr in found))
        where = self.where(scope, 1) if self.chance(0.4) else NONE
        body = make("select", items, source, where, make("group", key, value=""), NONE, value=False)
        return make("query", make("ctes"), body, make("order"), NONE)

    def materializable(self) -> Node:
        """Return a query with a board in each row and expressions of any type."""
        source, scope = self.table("steps")
        if self.chance(0.15):
            return self.boards_of_groups(source, scope)
        board = scope.columns[2].node()
        assert board.value[1] == "board"
        own = dict(zip(("run_id", "step_index"), scope.keys or [], strict=True))
        if self.chance(0.3):
            other, more = self.table(self.rng.choice(["u", "v", "runs"]))
            kind = self.rng.choice(["INNER", "LEFT", "SEMI", "ANTI"])
            on = self.join_condition(scope, more, kind)
            if on is not None:
                source = make("join", source, other, on, value=kind)
                if kind in ("INNER", "LEFT"):
                    scope = Scope([*scope.columns, *more.columns], [*(scope.keys or []), *(more.keys or [])])
        exprs = [board, *own.values()]
        names = ["board", *own]
        if self.chance(0.1):
            # A column `run_id` that is not the id of the run must not break ties.
            exprs[1] = make("arith", own["run_id"], lit(4), value="/")
        if self.chance(0.15):
            del exprs[1:], names[1:]
        for place in range(self.rng.choice([0, 1, 2, 3])):
            of = self.rng.choices([self.number, self.boolean, self.string], [5, 1.5, 1])[0]
            exprs.append(of(scope, 2))
            names.append(f"c{place}")
        if self.chance(0.1):
            exprs.append(self.window(scope))
            names.append("c9")
        if self.chance(0.08):
            # One sum of floats, whose last bits depend on the order of the rows.
            inner, inside = self.table("steps")
            total = self.sum_of_floats(inside)
            exprs.append(make("scalar", self.select_of(total, inner, NONE)))
            names.append("c8")
        where = self.where(scope, 2) if self.chance(0.7) else NONE
        items = make("items", *(make("item", expr, value=name) for name, expr in zip(names, exprs, strict=True)))
        body = make("select", items, source, where, NONE, NONE, value=self.chance(0.1))
        order, limit = make("order"), NONE
        if self.chance(0.5):
            chosen = self.rng.sample(outputs(body), 1)
            if self.chance(0.5) and not body.value:
                key = self.group_key(scope)
            else:
                key = make("col", value=("", chosen[0][0]), type=chosen[0][1])
            order = make("order", self.key(key))
        if self.chance(0.35):
            limit = make("limit", value=(self.rng.choice([1, 5, 10, 50]), self.rng.choice([0, 0, 3])))
        query = make("query", make("ctes"), body, order, limit)
        if self.chance(0.35):
            if limit.op != "none" and limit.value[1] and self.chance(0.95):
                # An OFFSET in a subquery is refused.
                query = query.with_arg(3, make("limit", value=(limit.value[0], 0)))
            alias = self.alias("d")
            inside = Scope([Column(alias, *each) for each in outputs(query)])
            columns = [make("item", column.node(), value=column.name) for column in inside.columns]
            where = self.where(inside, 1) if self.chance(0.7) else NONE
            derived = make("derived", query, value=alias)
            body = make("select", make("items", *columns), derived, where, NONE, NONE, value=False)
            query = make("query", make("ctes"), body, make("order"), NONE)
        return query
