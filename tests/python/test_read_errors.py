"""Errors of reading an archive: of the operating system, of an expired version, and of a moved archive."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import a2store
from archives import GOLDEN, grow
from faults.shim import Fault, Shim, read_log, run

SQL = "SELECT phase, count(*), max(step_index) FROM steps WHERE move <> 1 GROUP BY phase"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    runs = sorted((GOLDEN / "runs").rglob("*.*"))
    return Path(grow(tmp_path / "disk" / "games.a2", [runs[:3], runs[3:]]).path)


@pytest.mark.parametrize("checksums", ["true", "false"])
@pytest.mark.parametrize("command", ["sql", "verify"])
def test_each_failing_read_is_an_error_of_the_system(
    shim: Shim, path: Path, tmp_path: Path, command: str, checksums: str
) -> None:
    """A failing disk is not reported as a damaged file."""
    args: tuple[object, ...] = ("verify", path) if command == "verify" else (
        "sql", path, SQL, "--format", "csv", "--checksums", checksums,
    )  # fmt: skip
    log = tmp_path / "log"
    whole = shim.run(path.parent, *args, log=log)
    assert whole.returncode == 0, whole.stderr
    reads = [call.number for call in read_log(log) if call.kind == "read" and "/steps/" in call.path]
    assert len(reads) >= 4
    for at in reads:
        done = shim.run(path.parent, *args, fault=Fault(at, "EIO"))
        said = done.stdout + done.stderr
        assert done.returncode == 1, (at, said)
        assert "Input/output error" in said, (at, said)
        if command == "sql":
            assert "damaged" not in said, (at, said)
    # Rows of groups have no order.
    assert sorted(run(*args).stdout.splitlines()) == sorted(whole.stdout.splitlines())


def test_a_moved_archive(path: Path, tmp_path: Path) -> None:
    archive = a2store.open(path)
    query = archive.sql(SQL)
    shutil.move(path, tmp_path / "elsewhere.a2")
    for read in (query.to_arrow, lambda: archive.sql(SQL).to_arrow(), archive.refresh):
        with pytest.raises(FileNotFoundError) as caught:
            read()
        assert caught.value.filename is not None
        assert str(path) in str(caught.value.filename)
