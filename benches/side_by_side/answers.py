"""Comparison of two answers, independent of row order and type widths.

Small answers are compared value by value. Floats have a tolerance, because a sum depends on the order of its terms.
Streamed rows are hashed bit by bit, and the hashes are summed.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Words: TypeAlias = npt.NDArray[np.uint64]
Digest: TypeAlias = tuple[int, int, tuple[str, ...]]

TOLERANCE = 1e-9
MULTIPLIER = np.uint64(0x9E37_79B9_7F4A_7C15)


def digest(batches: Iterable[pa.RecordBatch]) -> Digest:
    """Return the number of rows, the sum of their hashes, and the names of their columns."""
    rows, total = 0, np.uint64(0)
    names: tuple[str, ...] = ()
    with np.errstate(over="ignore"):
        for batch in batches:
            names = tuple(sorted(batch.schema.names))
            hashes = np.zeros(len(batch), np.uint64)
            for name in names:
                hashes = (hashes ^ _words(batch.column(name))) * MULTIPLIER
                hashes ^= hashes >> np.uint64(29)
            rows, total = rows + len(batch), total + np.add.reduce(hashes)
    return rows, int(total), names


def _words(column: Any) -> Words:
    """Return 64 bits for each value: equal for equal values of different widths, and one special value for nulls."""
    if pa.types.is_dictionary(column.type):
        of_values = _words(column.dictionary)
        codes = pc.fill_null(column.indices, 0).to_numpy(zero_copy_only=False)
        words = of_values[codes] if len(of_values) else np.zeros(len(column), np.uint64)
    elif _is_text(column.type):
        if len(column) > 1_000:
            return _words(column.dictionary_encode())
        texts = [zlib.crc32((text or "").encode()) for text in column.to_pylist()]
        words = np.asarray(texts, np.uint64).reshape(-1)
    elif pa.types.is_floating(column.type):
        # Adding zero turns -0.0 into 0.0.
        values = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False).astype(np.float64) + 0.0
        words = values.view(np.uint64)
    else:
        values = pc.fill_null(column, pa.scalar(0).cast(column.type)).to_numpy(zero_copy_only=False)
        words = values.astype(np.uint64)
    nulls = column.is_null().to_numpy(zero_copy_only=False)
    return np.where(nulls, MULTIPLIER, words)


def _is_text(type_: Any) -> bool:
    return any(is_(type_) for is_ in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def difference(ours: Any, theirs: Any) -> str | None:
    """Compare two tables, and return a description of the first difference."""
    names = sorted(ours.schema.names)
    if names != sorted(theirs.schema.names):
        return f"columns {names}, not {sorted(theirs.schema.names)}"
    if len(ours) != len(theirs):
        return f"{len(ours):,} rows, not {len(theirs):,}"
    exact = [name for name in names if not _is_inexact(ours[name].type) and not _is_inexact(theirs[name].type)]
    order = exact + [name for name in names if name not in exact]
    for one, other in zip(_sorted(ours, order), _sorted(theirs, order), strict=True):
        if not all(_same(a, b) for a, b in zip(one, other, strict=True)):
            return f"{dict(zip(order, one, strict=True))}, not {dict(zip(order, other, strict=True))}"
    return None


def _is_inexact(type_: Any) -> bool:
    return bool(pa.types.is_floating(type_))


def _sorted(table: Any, order: list[str]) -> list[tuple[Any, ...]]:
    """Return the rows as tuples, sorted by the columns in their order, nulls last."""
    columns = [[int(value) if _is_whole(value) else value for value in table[name].to_pylist()] for name in order]
    return sorted(zip(*columns, strict=True), key=lambda row: [(value is None, value or 0) for value in row])


def _is_whole(value: Any) -> bool:
    """Return whether the value is a decimal, the type of DuckDB's sums of integers."""
    return value is not None and not isinstance(value, str | float | bool | bytes)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and other is not None:
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE) or (one != one and other != other)
    return bool(one == other)
