"""Comparison of Arrow data and batches with the oracle's columns."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

import a2store
from oracle import Array

BATCH_COLUMNS = re.findall(r"^- ``(\w+)``:", a2store.Batch.__doc__ or "", re.MULTILINE)
"""The columns of every batch, as the docstring of ``Batch`` lists them."""


def column(table: Any, name: str) -> Array:
    """Convert a column of a ``pyarrow.Table`` to NumPy: null floats become NaN, and text becomes objects."""
    values = table[name].combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return np.array(values.to_pylist(), object)
    array: Array = values.to_numpy(zero_copy_only=False)
    return array


def assert_same(found: Array, expected: Array, name: str = "") -> None:
    """Check that arrays are equal. Floats are compared by bits, except that all NaNs are equal."""
    assert found.shape == expected.shape, name
    if expected.dtype.kind == "f":
        assert found.dtype == expected.dtype, name
        bits = f"u{expected.dtype.itemsize}"
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(~np.isnan(found), numbers, err_msg=name)
        found, expected = found[numbers].view(bits), expected[numbers].view(bits)
    np.testing.assert_array_equal(found, expected, err_msg=name)


def assert_steps(
    table: Any, steps: dict[str, Array], rows: Array | slice = slice(None), names: Iterable[str] = ()
) -> None:
    """Check that the columns of a ``pyarrow.Table`` equal the oracle's columns at these rows, in this order."""
    for name in names or steps:
        assert_same(column(table, name), steps[name][rows], name)


def rows(query: a2store.Query) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in pa.table(query).to_pylist()]


def row_keys(batches: Iterable[a2store.Batch]) -> Array:
    """Return one number per row that identifies its ``(run_id, step_index)``."""
    parts = [batch.run_id.astype("u8") << np.uint64(32) | batch.step_index for batch in batches]
    return np.concatenate([np.array([], "u8"), *parts])


def keys(rows: Any) -> Array:
    """Return the keys of rows with ``run_id`` and ``step_index``, in the form of ``row_keys``."""
    run_id, step_index = (np.asarray(rows[name]).astype("u8") for name in ("run_id", "step_index"))
    found: Array = run_id << np.uint64(32) | step_index
    return found
