"""SQL types, and the common type of two of them.

DuckDB's rules differ. So DataFusion's rules are written here by hand, and casts give DuckDB the type of each
computation. Then values must be equal, and a wrong type in the engine shows as a difference.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Type:
    """A type, with its name in each dialect and, for integers, its range."""

    name: str
    family: str
    engine: str
    duck: str
    lo: int = 0
    hi: int = 0

    @property
    def is_int(self) -> bool:
        return self.family == "int"

    @property
    def is_float(self) -> bool:
        return self.family == "float"

    @property
    def is_number(self) -> bool:
        return self.family in ("int", "float", "wide")


def _integer(bits: int, signed: bool) -> Type:
    engine = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}[bits]
    duck = {8: "TINYINT", 16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}[bits]
    if signed:
        return Type(f"i{bits}", "int", engine, duck, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return Type(f"u{bits}", "int", f"{engine} UNSIGNED", f"U{duck}", 0, 2**bits - 1)


I8, I16, I32, I64 = (_integer(bits, True) for bits in (8, 16, 32, 64))
U8, U16, U32, U64 = (_integer(bits, False) for bits in (8, 16, 32, 64))
F32 = Type("f32", "float", "REAL", "REAL")
F64 = Type("f64", "float", "DOUBLE", "DOUBLE")
WIDE = Type("wide", "wide", "DECIMAL(20, 0)", "HUGEINT")
"""The common type of unsigned 64-bit and signed integers: a decimal of 20 digits. Constants of at least 0 are unsigned
there."""
BOOL = Type("bool", "bool", "BOOLEAN", "BOOLEAN")
STR = Type("str", "str", "VARCHAR", "VARCHAR")
TIME = Type("time", "time", "TIMESTAMP", "TIMESTAMPTZ")
NULL = Type("null", "null", "NULL", "NULL")

INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)
NUMBERS = (*INTEGERS, F32, F64)
ALL = {each.name: each for each in (*NUMBERS, WIDE, BOOL, STR, TIME, NULL)}


def common(left: Type, right: Type) -> Type | None:
    """Return the common type of two types; ``None`` = the generator does not combine them."""
    if left == right or right == NULL:
        return left
    if left == NULL:
        return right
    if not (left.is_number and right.is_number):
        return None
    if left.is_float or right.is_float:
        if WIDE in (left, right):
            return None
        return F64 if F64 in (left, right) else F32
    if WIDE in (left, right):
        return WIDE
    if U64 in (left, right):
        return WIDE if min(left.lo, right.lo) < 0 else U64
    # The narrowest type that holds the values of both.
    lo, hi = min(left.lo, right.lo), max(left.hi, right.hi)
    signed = [I8, I16, I32, I64] if lo < 0 else [U8, U16, U32]
    return next(each for each in signed if each.lo <= lo and hi <= each.hi)


def common_of(types: list[Type]) -> Type | None:
    """Return the common type of several types, if it does not depend on their order."""
    decimal = WIDE in types or (U64 in types and any(each.lo < 0 for each in types))
    if decimal and any(each.is_float for each in types):
        return None

    met: Type | None = NULL
    for each in types:
        met = None if met is None else common(met, each)
    return met


def of_literal(value: object) -> Type:
    """The engine's type for a constant."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return I64 if value <= I64.hi else U64
    return F64 if isinstance(value, float) else STR


def of_sum(argument: Type) -> Type:
    if argument.is_int:
        return U64 if argument == U64 else I64
    return WIDE if argument == WIDE else F64
