"""Files that appear whole or not at all, and are on disk when they do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def replace(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file beside its place, then put it there, in place of one that is."""
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(staged, "wb") as file:
            write(file)
            sync(file)
        os.replace(staged, path)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync(file: BinaryIO) -> None:
    """Wait until what was written to a file is on disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
