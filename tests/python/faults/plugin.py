"""Fixtures of the fault tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .checks import WITHOUT, Inputs
from .shim import Shim, compile_shim

MEMORY = Path("/dev/shm")


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Shim:
    compiled = compile_shim(tmp_path_factory.mktemp("shim"))
    if isinstance(compiled, str):
        pytest.skip(WITHOUT + compiled)
    return compiled


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """Three groups of three games."""
    return Inputs.simulate(tmp_path_factory.mktemp("inputs"), groups=3, runs=3)


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A folder, in memory if possible, because thousands of archives are written to it."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="a2store-faults-", dir=MEMORY)
    except OSError:
        yield tmp_path
        return
    with folder as path:
        yield Path(path)
