"""Comparing Arrow data and batches with the oracle's columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

import a2store
from oracle import Array


def column(table: Any, name: str) -> Array:
    """A column of a ``pyarrow.Table`` as NumPy has it: null floats as NaN, text as objects."""
    values = table[name].combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return np.array(values.to_pylist(), object)
    array: Array = values.to_numpy(zero_copy_only=False)
    return array


def assert_same(found: Array, expected: Array, name: str = "") -> None:
    """Equal values in equal places; floats by their bits, but for NaNs, which are all the same."""
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
    """The columns of a ``pyarrow.Table`` are the oracle's, at some rows and in their order."""
    for name in names or steps:
        assert_same(column(table, name), steps[name][rows], name)


def row_keys(batches: Iterable[a2store.Batch]) -> Array:
    """Which rows batches hold, in their order: one number for each ``(run_id, step_index)``."""
    parts = [batch.run_id.astype("u8") << np.uint64(32) | batch.step_index for batch in batches]
    return np.concatenate([np.array([], "u8"), *parts])
