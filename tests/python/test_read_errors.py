"""Errors of reading an archive: of the operating system, of an expired version, and of a moved archive."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import a2store
from archives import GOLDEN, grow
from faults.checks import LONG
from faults.shim import Fault, Shim, read_log
from forked import run

SQL = "SELECT phase, count(*), max(step_index) FROM steps WHERE move <> 1 GROUP BY phase"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    runs = sorted((GOLDEN / "runs").rglob("*.*"))
    return Path(grow(tmp_path / "disk" / "games.a2", [runs[:3], runs[3:]]).path)


@pytest.mark.parametrize("work", ["with checksums", "without checksums", "verify"])
def test_each_failing_read_is_an_error_of_the_system(shim: Shim, path: Path, tmp_path: Path, work: str) -> None:
    """A failing disk is not reported as a damaged file."""
    checksums = "true" if work == "with checksums" else "false"
    sql = ("sql", path, SQL, "--format", "csv", "--checksums", checksums)
    args: tuple[object, ...] = ("verify", path) if work == "verify" else sql
    log = tmp_path / "log"
    whole = shim.run(path.parent, *args, log=log)
    assert whole.returncode == 0, whole.stderr
    reads = [call.number for call in read_log(log) if call.kind == "read" and "/steps/" in call.path]
    assert len(reads) >= 4
    # Of many equal reads, the first, the last and some between.
    for at in reads if LONG else sorted({reads[place * (len(reads) - 1) // 5] for place in range(6)}):
        done = shim.run(path.parent, *args, fault=Fault(at, "EIO"))
        said = done.stdout + done.stderr
        assert done.returncode == 1, (at, said)
        assert "Input/output error" in said, (at, said)
        if work != "verify":
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
