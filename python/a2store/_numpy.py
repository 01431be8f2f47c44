"""The columns of an Arrow stream as NumPy arrays, for ``Query.to_numpy``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def arrays(stream: Any) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of a stream by name."""
    table = pa.table(stream)
    return {name: _array(column) for name, column in zip(table.column_names, table.columns, strict=True)}


def _array(column: Any) -> npt.NDArray[Any]:
    types, dtype = pa.types, column.type
    if types.is_dictionary(dtype):
        return _array(column.cast(dtype.value_type))
    if types.is_fixed_size_list(dtype) and types.is_primitive(dtype.value_type) and not column.null_count:
        values = pa.chunked_array([chunk.flatten() for chunk in column.chunks], dtype.value_type)
        return _array(values).reshape(len(column), dtype.list_size)
    if column.null_count and (types.is_integer(dtype) or types.is_boolean(dtype)):
        values = column.fill_null(pa.scalar(0).cast(dtype)).to_numpy()
        masked: npt.NDArray[Any] = np.ma.MaskedArray(values, column.is_null().to_numpy())
        return masked
    if types.is_list(dtype) and types.is_integer(dtype.value_type) and pc.list_flatten(column).null_count:
        # pyarrow converts these integers to float64, which cannot represent every board.
        lists = np.empty(len(column), object)
        lists[:] = [_array(pa.chunked_array([row.values])) if row.is_valid else None for row in column]
        return lists
    array: npt.NDArray[Any] = column.to_numpy()
    # A single chunk is a read-only view of Arrow's memory.
    return array if array.flags.writeable else array.copy()
