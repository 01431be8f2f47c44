"""The rows that ``table[key]`` returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ._a2store import Batch, StepTable
from ._integers import any_integer


def item(table: StepTable, key: Any) -> dict[str, npt.NDArray[Any]] | Batch:
    """Return one row as a dict, or several rows as a batch."""
    try:
        row: int | None = any_integer("key", key)
    except TypeError:
        row = None
    if row is None:
        return table.take(_indices(key, len(table)))
    # An array needs no conversion, unlike a list.
    return {name: values[0] for name, values in table.take(np.array([row])).items()}


def _indices(key: Any, length: int) -> Any:
    """Return the indices of an array of indices, or of a mask."""
    if isinstance(key, tuple | dict) or not (hasattr(key, "__array__") or hasattr(key, "__len__")):
        expected = "an index, a slice, an array of indices, a mask or a column's name"
        raise TypeError(f"expected {expected}, found {type(key).__name__}")
    array = np.asarray(key)
    if array.dtype.kind != "b":
        return key
    if array.shape != (length,):
        raise IndexError(f"a mask: expected the shape ({length},), found {list(array.shape)}")
    return np.flatnonzero(array)
