"""Ingests with ``--watch``, and ingests that are stopped before they are done."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import a2store
from archives import command, contents, copied, grow, names, short_runs
from faults.checks import LONG
from faults.shim import Call, Fault, Shim, last_of_data, read_log
from threads import HANGS, eventually


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return short_runs(tmp_path_factory.mktemp("short") / "runs", 12)


class Watcher:
    """A running ``a2store ingest --watch``, with its reports in files and a record of its system calls."""

    def __init__(self, folder: Path, runs: Path, archive: Path, shim: Shim, fault: Fault | None) -> None:
        self.runs, self.archive, self.out, self.err = runs, archive, folder / "out", folder / "err"
        self.log = folder.with_name(f"{folder.name}.log")
        args = command("ingest", runs, archive, "--watch", "100ms", "--json", "--workers", 1)
        environment = {**os.environ, **shim.environment(folder, self.log, fault)}
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(args, stdout=out, stderr=err, env=environment)

    def reports(self) -> list[dict[str, Any]]:
        lines, _, _ = self.out.read_text().rpartition("\n")
        return [json.loads(line) for line in lines.splitlines()]

    def num_runs(self) -> int:
        try:
            return a2store.Archive.open(self.archive).num_runs
        except (FileNotFoundError, a2store.ArchiveError):
            return -1

    def eventually(self, happens: Callable[[], bool]) -> None:
        eventually(lambda: happens() or self.process.poll() is not None)
        assert happens(), self.err.read_text()

    def wait_for(self, num_runs: int) -> None:
        self.eventually(lambda: self.num_runs() == num_runs)

    def looks(self) -> int:
        """Return how often it has listed the folder of runs."""
        try:
            calls = read_log(self.log)
        except (struct.error, IndexError):
            # The last record is incomplete.
            return 0
        return sum(call.kind == "open" and call.path == str(self.runs) for call in calls)

    def look_twice(self) -> None:
        """Wait until it has finished two scans of all files."""
        self.eventually(lambda: self.looks() > 0)
        seen = self.looks()
        self.eventually(lambda: self.looks() >= seen + 3)

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(timeout=HANGS)


Watching = Callable[..., AbstractContextManager[Watcher]]


@pytest.fixture
def watching(shim: Shim, tmp_path: Path) -> Watching:
    @contextmanager
    def watch(runs: Path, fault: Fault | None = None) -> Iterator[Watcher]:
        watcher = Watcher(tmp_path, runs, tmp_path / "games.a2", shim, fault)
        try:
            yield watcher
        finally:
            watcher.process.kill()
            watcher.process.wait()
        assert "panicked" not in watcher.err.read_text()

    return watch


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    (tmp_path / "inbox").mkdir()
    return tmp_path / "inbox"


def appear(file: Path, folder: Path) -> Path:
    """Make a file appear atomically, by a rename."""
    return Path(shutil.copy(file, file.with_name("part"))).rename(folder / file.name)


def assert_tidy(path: Path) -> None:
    assert not [name for name in names(path) if ".staged" in name]
    report = a2store.verify(path, deep=True, progress=False)
    assert (report.problems, report.unnamed_files) == ([], 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_new_files_are_added(files: list[Path], inbox: Path, watching: Watching, number: int) -> None:
    appear(files[0], inbox)
    with watching(inbox) as watcher:
        watcher.wait_for(1)
        appear(files[1], inbox)
        watcher.wait_for(2)
        (inbox / "deep").mkdir()
        for file in files[2:5]:
            appear(file, inbox / "deep")
        watcher.wait_for(5)
        assert watcher.stop(number) == 0
        assert watcher.err.read_text() == ""
        assert sum(report["accepted"] for report in watcher.reports()) == 5
    archive = a2store.Archive.open(watcher.archive)
    assert {line.operation for line in archive.history()} == {"create", "ingest"}
    # Scans without new files make no commit.
    assert all(line.added_runs > 0 for line in archive.history()[:-1])
    assert sorted(pa.table(archive.sql("SELECT source FROM runs"))["source"].to_pylist()) == sorted(
        str(path) for path in inbox.rglob("*") if path.is_file()
    )
    assert_tidy(archive.path)


def test_unchanged_files_are_not_read_again(files: list[Path], inbox: Path, watching: Watching) -> None:
    for file in files[:6]:
        appear(file, inbox)
    sizes = [path.stat().st_size for path in sorted(inbox.iterdir())]
    with watching(inbox) as watcher:
        watcher.wait_for(6)
        watcher.look_twice()
        extra = appear(files[6], inbox)
        watcher.wait_for(7)
        watcher.eventually(lambda: len(watcher.reports()) >= 2)
        watcher.look_twice()
        reports = watcher.reports()
        assert watcher.stop() == 0
    # There is one report for each scan with new files, and none for the others.
    first, second = reports
    assert (first["accepted"], first["unchanged"], first["num_bytes"]) == (6, 0, sum(sizes))
    assert (second["accepted"], second["unchanged"], second["duplicates"]) == (1, 6, 0)
    assert second["num_bytes"] == extra.stat().st_size


def test_a_file_that_grows(files: list[Path], inbox: Path, watching: Watching) -> None:
    data = files[0].read_bytes()
    path = inbox / files[0].name
    path.write_bytes(data[: len(data) // 2])
    with watching(inbox) as watcher:
        watcher.eventually(lambda: any(report["rejected"] for report in watcher.reports()))
        assert watcher.num_runs() == 0
        (error,) = watcher.reports()[0]["errors"]
        assert error["path"] == str(path)
        watcher.look_twice()
        # The error is reported once.
        assert len([report for report in watcher.reports() if report["rejected"]]) == 1
        path.write_bytes(data)
        watcher.wait_for(1)
        # The exit status and the error output still report the file.
        assert watcher.stop() == 1
        assert str(path) in watcher.err.read_text()
    assert_tidy(watcher.archive)


def test_watching_beside_another_writer(files: list[Path], inbox: Path, watching: Watching, tmp_path: Path) -> None:
    archive = grow(tmp_path / "games.a2", [files[:2]])
    for file in files[:4]:
        appear(file, inbox)
    with watching(inbox) as watcher:
        watcher.wait_for(4)
        archive.ingest(files[4:6], progress=False)
        # All files appear at once, so that one scan finds them.
        (tmp_path / "more").mkdir()
        for file in files[4:8]:
            shutil.copy(file, tmp_path / "more")
        (tmp_path / "more").rename(inbox / "more")
        watcher.wait_for(8)
        a2store.Archive.open(archive.path).compact(progress=False)
        appear(files[8], inbox)
        watcher.wait_for(9)
        assert watcher.stop() == 0
        assert sum(report["duplicates"] for report in watcher.reports()) == 4
    archive.refresh()
    assert pa.table(archive.sql("SELECT run_id FROM runs"))["run_id"].to_pylist() == list(range(9))
    assert_tidy(archive.path)


# Signals during the work, each at a certain system call


def recorded(shim: Shim, root: Path, files: list[Path], path: Path) -> list[Call]:
    """Return the system calls below ``root`` of an undisturbed ingest by one worker; then remove its archive."""
    log = path.with_name("log")
    assert shim.run(root, "ingest", *files, path, "--workers", "1", log=log).returncode == 0
    shutil.rmtree(path)
    return read_log(log)


def middle(calls: list[Call]) -> int:
    """Return the number of the call that writes the first rows."""
    return next(call.number for call in calls if call.kind == "write" and "/steps/.staged" in call.path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(files: list[Path], shim: Shim, tmp_path: Path, number: signal.Signals) -> None:
    archive = grow(tmp_path / "template" / "games.a2", [files[:3]])
    before, path = contents(archive.path), tmp_path / "games.a2"
    calls = recorded(shim, path, files, copied(archive.path, path))
    first, last = middle(calls), last_of_data(calls)
    for at in range(first, last + 1) if LONG else (first, (first + last) // 2, last):
        copied(archive.path, path)
        fault = Fault(at, number.name)
        done = shim.run(path, "ingest", *files, path, "--workers", "1", fault=fault)
        assert (done.returncode, done.stdout) == (128 + number, "")
        assert "cancelled" in done.stderr
        assert "panicked" not in done.stderr
        assert contents(path) == before
