"""A batch as JAX arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Batch


def arrays(batch: Batch, device: Any) -> dict[str, Any]:
    """Return the columns as JAX arrays; 64-bit integers as NumPy arrays where JAX would cut them."""
    import jax

    bfloat16 = batch.bfloat16_columns
    found: dict[str, Any] = {}
    for name, column in batch.items():
        if column.dtype.kind in "iu" and column.dtype.itemsize == 8 and not jax.config.jax_enable_x64:
            found[name] = column
            continue
        # A copy: JAX may share the memory, which is writable.
        column = np.array(column.view(jax.numpy.bfloat16) if name in bfloat16 else column)
        found[name] = jax.device_put(column, device)
    return found
