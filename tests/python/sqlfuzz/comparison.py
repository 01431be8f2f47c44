"""Comparing answers of two dialects."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]

TOLERANCE = 1e-6
"""Relative tolerance, because engines add floats in different orders."""
EXACT = 2**31
"""Smaller floats without a fraction are compared exactly. Sums of them are exact in any order, even with fractions."""


def plain(value: Any) -> Any:
    """Normalize a value: whole numbers become ints, all NaNs are equal, and so are both zeros."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else plain(float(value))
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return int(value) if value.is_integer() and abs(value) < EXACT else value
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat()
    return value


def rows_of(table: Any) -> list[Row]:
    """The rows of a ``pyarrow.Table``."""
    columns = []
    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        columns.append([plain(value) for value in column.to_pylist()])
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def _rank(value: Any, digits: int) -> tuple[int, Any]:
    if value is None:
        return (0, 0)
    if isinstance(value, bool):
        return (1, value)
    if isinstance(value, (int, float)):
        return (2, _rounded(value, digits))
    return (3, str(value))


def _rounded(value: float, digits: int) -> float:
    """Round a float to the digits that must agree; keep integers exact."""
    return value if isinstance(value, int) else float(f"{value:.{digits}g}")


def same_value(left: Any, right: Any) -> bool:
    if isinstance(left, bool) or isinstance(right, bool) or left is None or right is None:
        return left is right
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        if isinstance(left, int) and isinstance(right, int):
            return left == right
        try:
            return left == right or math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=1e-9)
        except OverflowError:
            return False
    return bool(left == right)


def same_row(left: Row, right: Row) -> bool:
    return len(left) == len(right) and all(map(same_value, left, right))


def same_sequence(left: Sequence[Row], right: Sequence[Row]) -> bool:
    return len(left) == len(right) and all(map(same_row, left, right))


def same_rows(left: Sequence[Row], right: Sequence[Row]) -> bool:
    """Whether two answers have the same rows, in any order."""
    if len(left) != len(right):
        return False
    if Counter(left) == Counter(right):
        # Python's True is 1.
        return _truths(left) == _truths(right)

    def in_order(rows: Iterable[Row], digits: int) -> list[Row]:
        return sorted(rows, key=lambda row: [_rank(value, digits) for value in row])

    # With all digits, close values of one column are compared with their own counterparts.
    if any(same_sequence(in_order(left, digits), in_order(right, digits)) for digits in (5, 17)):
        return True
    # Rounding may have swapped two close values.
    rest = list(right)
    for row in left:
        place = next((at for at, other in enumerate(rest) if same_row(row, other)), None)
        if place is None:
            return False
        del rest[place]
    return True


def _truths(rows: Sequence[Row]) -> set[int]:
    """Return the positions of boolean columns."""
    return {place for row in rows for place, value in enumerate(row) if isinstance(value, bool)}


def difference(left: Sequence[Row], right: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return up to five rows that only one of the answers has."""
    a, b = Counter(left), Counter(right)
    return list((a - b).elements())[:5], list((b - a).elements())[:5]
