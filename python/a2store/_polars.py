"""Queries as lazy frames of polars, for ``Query.lazy``."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from ._a2store import Query

COMPARISONS = {"Eq": "=", "NotEq": "<>", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
AND = ("And", "LogicalAnd")
OR = ("Or", "LogicalOr")
MAX_CONDITIONS = 100
"""Larger predicates stay with polars, because the planner is slow on them."""
MAX_DEPTH = 20
"""Deeper predicates stay with polars, because the parser limits the nesting of SQL."""


def scan(query: Query) -> pl.LazyFrame:
    """Return a lazy frame that runs the query when it is collected."""
    schema = pl.DataFrame(query.limit(0)).schema

    def source(
        columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        # Polars counts rows before it filters them.
        limited = query if n_rows is None else query.limit(n_rows)
        yield pl.DataFrame(schema=schema).select(pl.all() if columns is None else columns)
        for batch in narrowed(limited, columns, predicate, schema):
            frame = pl.DataFrame(batch)
            if predicate is not None:
                # The query evaluates only the simple parts of the predicate.
                frame = frame.filter(predicate)
            yield frame if columns is None else frame.select(columns)

    return register_io_source(source, schema=schema)


def narrowed(query: Query, columns: list[str] | None, predicate: pl.Expr | None, schema: pl.Schema) -> Query:
    """Return a query for the columns that polars needs, without rows that the simple parts of a predicate exclude."""
    if predicate is None:
        found = query._narrowed(columns, None)
    else:
        if columns is not None:
            columns = list(dict.fromkeys([*columns, *predicate.meta.root_names()]))
        condition = translated(predicate, schema)
        found = query._narrowed(columns, condition) or query._narrowed(columns, None)
    assert found is not None
    return found


def translated(predicate: pl.Expr, schema: pl.Schema) -> str | None:
    """Return a condition in SQL that holds wherever the predicate does; ``None`` if polars must evaluate all of it."""
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
    except (AttributeError, ValueError, pl.exceptions.PolarsError):
        # The form of a serialized expression is not stable.
        return None
    known = [found for part in flat(tree, *AND) if (found := exact(part, schema)) is not None]
    return conjunction(known) if 0 < len(known) <= MAX_CONDITIONS else None


def conjunction(conditions: list[str]) -> str:
    return " AND ".join(f"({condition})" for condition in conditions)


def quoted(name: str) -> str:
    """Return a column's name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def value_of(value: bool | int | str) -> str:
    """Return a literal in SQL."""
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def flat(tree: Any, *ops: str) -> list[Any]:
    """Return the operands at the top of an expression, which these operators connect."""
    found, rest = [], [tree]
    while rest:
        node = rest.pop()
        match node:
            case {"BinaryExpr": {"left": left, "op": op, "right": right}} if op in ops:
                rest += [right, left]
            case _:
                found.append(node)
    return found


def exact(tree: Any, schema: pl.Schema, depth: int = 0) -> str | None:
    """Return a condition with the truth value of the expression in each row; ``None`` if a query cannot have it.

    Polars orders floats differently from SQL, and categories may have their own order.
    """
    if depth > MAX_DEPTH:
        return None

    def operands(*ops: str) -> list[str] | None:
        parts = flat(tree, *ops)
        known = [found for part in parts if (found := exact(part, schema, depth + 1)) is not None]
        return known if len(known) == len(parts) <= MAX_CONDITIONS else None

    match tree:
        case {"Column": str(name)} if schema.get(name) == pl.Boolean:
            return f"{quoted(name)} = True"
        case {"BinaryExpr": {"op": "And" | "LogicalAnd"}}:
            parts = operands(*AND)
            return conjunction(parts) if parts else None
        case {"BinaryExpr": {"op": "Or" | "LogicalOr"}}:
            parts = operands(*OR)
            return " OR ".join(parts) if parts else None
        case {"BinaryExpr": {"left": {"Column": str(name)}, "op": str(op), "right": {"Literal": literal}}}:
            return comparison(COMPARISONS.get(op), name, literal, schema)
        case {"BinaryExpr": {"left": {"Literal": literal}, "op": str(op), "right": {"Column": str(name)}}}:
            return comparison(MIRRORED.get(COMPARISONS.get(op, "")), name, literal, schema)
        case {"Function": {"input": inputs, "function": {"Boolean": function}}}:
            return of_function(function, inputs, schema, depth)
    return None


def of_function(function: Any, inputs: Any, schema: pl.Schema, depth: int) -> str | None:
    """Return the condition of a function with a boolean result; ``None`` if a query cannot have it."""
    match function, inputs:
        case "Not", [operand]:
            condition = exact(operand, schema, depth + 1)
            return condition and f"NOT ({condition})"
        case "IsNull", [{"Column": str(name)}]:
            return f"{quoted(name)} IS NULL"
        case "IsNotNull", [{"Column": str(name)}]:
            return f"{quoted(name)} IS NOT NULL"
        case {"IsBetween": {"closed": str(closed)}}, [{"Column": str(name)}, {"Literal": low}, {"Literal": high}]:
            least = comparison(">=" if closed in ("Both", "Left") else ">", name, low, schema)
            most = comparison("<=" if closed in ("Both", "Right") else "<", name, high, schema)
            return least and most and conjunction([least, most])
        case {"IsIn": {"nulls_equal": False}}, [{"Column": str(name)}, {"Literal": literal}]:
            values = list_of(literal)
            if not values or not all(fits(value, schema.get(name), "=") for value in values):
                return None
            return f"{quoted(name)} IN ({', '.join(map(value_of, values))})"
    return None


def comparison(sign: str | None, name: str, literal: Any, schema: pl.Schema) -> str | None:
    """Return the comparison of a column with a literal; ``None`` if SQL would compare them in another way."""
    match literal:
        case {"Scalar": {**of_type}} | {"Dyn": {**of_type}} if len(of_type) == 1:
            values: dict[Any, Any] = of_type
            kind, value = next(iter(values.items()))
        case _:
            return None
    if kind not in ("String", "Boolean") and "Int" not in str(kind):
        return None
    return f"{quoted(name)} {sign} {value_of(value)}" if sign and fits(value, schema.get(name), sign) else None


def list_of(literal: Any) -> list[Any] | None:
    """Return the values of a literal list, which polars serializes as an Arrow IPC stream."""
    match literal:
        case {"Scalar": {"List": list(data)}}:
            try:
                return pl.read_ipc_stream(io.BytesIO(bytes(data))).to_series().to_list()
            except (ValueError, TypeError, pl.exceptions.PolarsError):
                return None
    return None


def fits(value: Any, dtype: Any, sign: str) -> bool:
    """Return whether SQL compares a column of this type with the value as polars does."""
    if isinstance(value, bool):
        return bool(dtype == pl.Boolean) and sign in ("=", "<>")
    if isinstance(value, int):
        return dtype is not None and dtype.is_integer() and -(2**63) <= value < 2**64
    text = dtype in (pl.String, pl.Categorical) or isinstance(dtype, pl.Enum)
    return isinstance(value, str) and text and sign in ("=", "<>")
