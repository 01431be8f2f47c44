"""Ingests that a signal stops, at certain system calls."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from archives import contents, copied, grow, short_runs
from faults.checks import LONG
from faults.shim import Call, Fault, Shim, last_of_data, read_log


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return short_runs(tmp_path_factory.mktemp("short") / "runs", 12)


def recorded(shim: Shim, root: Path, files: list[Path], path: Path) -> list[Call]:
    """Return the system calls below ``root`` of an undisturbed ingest by one worker; then remove its archive."""
    log = path.with_name("log")
    assert shim.run(root, "ingest", *files, path, "--workers", "1", log=log).returncode == 0
    shutil.rmtree(path)
    return read_log(log)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(files: list[Path], shim: Shim, tmp_path: Path, number: signal.Signals) -> None:
    archive = grow(tmp_path / "template" / "games.a2", [files[:3]])
    before, path = contents(archive.path), tmp_path / "games.a2"
    calls = recorded(shim, path, files, copied(archive.path, path))
    # From the call that writes the first rows.
    first = next(call.number for call in calls if call.kind == "write" and "/steps/.staged" in call.path)
    last = last_of_data(calls)
    for at in range(first, last + 1) if LONG else (first, (first + last) // 2, last):
        copied(archive.path, path)
        fault = Fault(at, number.name)
        done = shim.run(path, "ingest", *files, path, "--workers", "1", fault=fault)
        assert (done.returncode, done.stdout) == (128 + number, "")
        assert "cancelled" in done.stderr
        assert "panicked" not in done.stderr
        assert contents(path) == before
