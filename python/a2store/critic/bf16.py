"""bfloat16 in NumPy, as uint16. NumPy has no such type; bfloat16 is the upper 16 bits of a float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def to_bf16(values: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    """Return the nearest bfloat16 of each number, ties to even, like PyTorch: uint16, same shape.

    NaNs stay NaNs. Other types are first converted to float32.
    """
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    # Adds half a unit of the last place, minus one if the last bit is even, so that a tie does not carry.
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> 16) & 1))) >> 16
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, (bits >> 16) | 0x40, rounded).astype("<u2")


def from_bf16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Return the exact values of bfloat16 bit patterns: float32, same shape."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
