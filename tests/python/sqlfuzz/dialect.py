"""The differences between the two dialects, and how the fuzzer avoids each of them.

The generator avoids a difference, or ``tree.py`` writes the statement so that both dialects agree.
"""

from __future__ import annotations

from .dtypes import STR, U64, WIDE
from .tree import Node

DIFFERENCES = {
    "division of integers": "`/` in the engine, `//` in DuckDB",
    "overflow of integers": "wraps in the engine; DuckDB computes the remainder of 128 bits",
    "types of constants": "1 is a BIGINT, or a UBIGINT beside one, and 0.5 a DOUBLE in the engine; cast so in DuckDB",
    "minus of unsigned integers": "a BIGINT in the engine; cast the operand in DuckDB",
    "integers beside floats": "DuckDB is told by casts in which float they meet, as the engine's rules have it",
    "decimals beside floats": "BIGINT UNSIGNED beside signed integers is a decimal, which meets a float as a decimal "
    "of 15 digits behind the point: such operands are cast to DOUBLE in both",
    "division, remainder and product of decimals": "the engine gives them digits behind the point: not generated",
    "sum": "64 bits in the engine, 128 in DuckDB: cast to 64; 64-bit arguments are cast to DOUBLE",
    "floats to integers": "the engine truncates, DuckDB rounds: `trunc` before the cast",
    "floats to text": "1e300 is written in two ways: not generated",
    "order of NULLs": "DuckDB is set to the engine's default",
    "NaN": "greatest and equal to itself in both",
    "zero and minus zero": "the engine tells them apart for long lists of IN, NULLIF and CASE, and in orders: "
    "products get `+ 0`, which makes zero of both",
    "SEMI and ANTI": "`LEFT SEMI JOIN` in the engine, `SEMI JOIN` in DuckDB",
    "IS UNKNOWN": "`IS NULL` in DuckDB",
    "booleans beside numbers": "an error of planning in the engine, a cast in DuckDB: cast explicitly in both",
    "types of parameters": "`$1 || $2` and `sum($1)` are not planned, as parameters have no types by themselves, "
    "and those of a WITH that nothing names do not exist: an error is no fault where constants are bound",
    "parameters in UNION": "types are settled before values are bound, so a parameter without a type may be text: "
    "not compared",
    "sums of floats over sliding frames": "the engine adds and subtracts, and keeps the rounding errors of values that "
    "have left the frame: not generated",
    "lag and lead": "a default is cast to the argument's type, by truncation or rounding: given in a type that fits",
    "LIMIT over ties": "rows in no definite order: compared with DuckDB only with an ORDER BY of all columns",
}


def is_definite(node: Node) -> bool:
    """Whether the SQL determines a statement's rows."""

    def is_chosen(query: Node) -> bool:
        # Rounding errors of sums of floats break ties of the sort.
        return query.value == "total" and not any(map(_is_rounded, query.walk()))

    # They also decide which values are distinct.
    parts = [*node.walk()]
    is_distinct = any(part.op == "agg" and part.value[1] and part.args[0].type.is_float for part in parts)
    if is_distinct and any(map(_is_rounded, parts)):
        return False
    return all(part.args[3].op == "none" or is_chosen(part) for part in parts if part.op == "query")


def _is_rounded(node: Node) -> bool:
    """Whether a node is a sum or mean of floats, whose rounding errors depend on the order of the rows."""
    return node.op in ("agg", "window") and node.value[0] in ("sum", "avg") and node.args[0].type.is_float


def has_inner_limit(node: Node) -> bool:
    return any(part.args[3].op != "none" for part in node.walk() if part.op == "query" and part is not node)


def may_fail(node: Node) -> bool:
    """Whether an error may be the right answer: a cast that may overflow, or arithmetic with wide decimals."""
    match node.op:
        case "neg" if node.args[0].type == U64:
            return True
        case "arith" if WIDE in (node.type, *(arg.type for arg in node.args)):
            return True
        case "cast" if node.value == "CAST":
            of, to = node.args[0], node.type
            if of.op == "nullif" and of.args[0].type == to:
                return any(may_fail(arg) for arg in of.args)
            if of.type == STR and not (of.op == "col" and of.value[1] == "a_n") and to != STR and to.family != "time":
                return True
            narrow = (
                of.type.is_number and to.is_int and not (of.type.is_int and to.lo <= of.type.lo and of.type.hi <= to.hi)
            )
            if narrow or to == WIDE:
                return True
    return any(may_fail(arg) for arg in node.args)
