"""Atomic and durable replacement of files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def replace(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file under a temporary name in the same folder, sync it, and rename it to ``path``."""
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
    """Wait until the written bytes of a file are on disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names of the files in a folder are on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
