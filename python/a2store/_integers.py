"""Integer arguments of the functions that are written in Python."""

from __future__ import annotations

from operator import index
from typing import Any


def any_integer(name: str, value: Any) -> int:
    """Return an integer argument of any size as an ``int``.

    Raises ``TypeError``, which names the argument, unless it is an integer of Python or NumPy other than a bool.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        return index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an int, found {type(value).__name__}") from None


def integer(name: str, value: Any, least: int, most: int = 2**64 - 1) -> int:
    """Return an integer argument as an ``int``.

    Raises ``TypeError`` as ``any_integer`` does, and ``ValueError``, which names the argument, if it is out of range.
    """
    number = any_integer(name, value)
    if not least <= number <= most:
        raise ValueError(f"{name}: expected {least}..={most}, found {number}")
    return number
