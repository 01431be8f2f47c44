"""Fixtures of the fault tests, and their lines in the summary."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .checks import LONG, WITHOUT, Inputs
from .shim import Shim, compile_shim

COUNTS = pytest.StashKey[Counter[str]]()
MEMORY = Path("/dev/shm")


def pytest_configure(config: pytest.Config) -> None:
    counts: Counter[str] = Counter()
    config.stash[COUNTS] = counts


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send a pytest-xdist worker's counts to the main process."""
    if hasattr(session.config, "workeroutput"):
        counts: Counter[str] = session.config.stash[COUNTS]
        session.config.workeroutput["faults"] = dict(counts)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    counts: Counter[str] = node.config.stash[COUNTS]
    counts.update(getattr(node, "workeroutput", {}).get("faults", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        text = str(report.longrepr)
        if WITHOUT in text:
            reasons[text[text.index(WITHOUT) :].rstrip("')")] += 1
    for reason, count in reasons.items():
        terminalreporter.write_line(f"{count} tests were skipped because {reason}")
    if counts := config.stash[COUNTS]:
        form = "long" if LONG else "short"
        tried = ", ".join(f"{count:,} {what}" for what, count in counts.items())
        terminalreporter.write_line(f"faults, {form} form: {tried}")


@pytest.fixture(scope="session")
def tally(pytestconfig: pytest.Config) -> Counter[str]:
    """The number of tries of each kind, for the summary."""
    return pytestconfig.stash[COUNTS]


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
