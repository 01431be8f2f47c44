"""Integer arguments of the functions that are written in Python."""

from __future__ import annotations

from operator import index
from typing import Any


def integer(name: str, value: Any, least: int, most: int = 2**64 - 1) -> int:
    """Return an integer argument as an ``int``.

    Raises ``TypeError`` unless it is an integer of Python or NumPy, but no bool, and ``ValueError`` if it is out of
    range. Both name the argument.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an int, found {type(value).__name__}") from None
    if not least <= number <= most:
        raise ValueError(f"{name}: expected {least}..={most}, found {number}")
    return number
