"""Arrow tables as pandas frames, for ``to_pandas``."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa


def frame(table: pa.Table) -> pd.DataFrame:
    """Return a table as a frame. Columns of integers keep their type, even with nulls."""
    # Otherwise, integers beside a null in a list or struct become float64.
    made: pd.DataFrame = table.to_pandas(integer_object_nulls=True)
    for place, column in enumerate(table.columns):
        if column.null_count and pa.types.is_integer(column.type):
            # pyarrow has a type for these integers only on request. float64 cannot represent every board.
            sign = "Int" if pa.types.is_signed_integer(column.type) else "UInt"
            dtype: Any = pd.api.types.pandas_dtype(f"{sign}{column.type.bit_width}")
            made.isetitem(place, column.to_pandas(types_mapper=lambda _, dtype=dtype: dtype))
    return made
