"""Ingests that go on until they are told to stop, and those that are told to stop before they are done."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import a2store
from archives import command, contents, grow, names, run_command, short_runs

PERIOD = 0.1
DEADLINE = 30.0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return short_runs(tmp_path_factory.mktemp("short") / "runs", 12)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough to be in the midst of it when the signal comes."""
    folder = tmp_path_factory.mktemp("many")
    a2store.simulate(folder / "runs", runs=6_000, seed=1, depth=0, progress=False)
    return folder / "runs"


def eventually(what: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not what():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.02)


class Watcher:
    """An ``a2store ingest --watch`` at work, whose reports go to files."""

    def __init__(self, folder: Path, runs: Path, archive: Path) -> None:
        self.archive, self.out, self.err = archive, folder / "out", folder / "err"
        args = command("ingest", runs, archive, "--watch", f"{int(PERIOD * 1000)}ms", "--json", "--workers", 1)
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(args, stdout=out, stderr=err)

    def reports(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.read_text().splitlines()]

    def num_runs(self) -> int:
        try:
            return a2store.Archive.open(self.archive).num_runs
        except (FileNotFoundError, a2store.ArchiveError):
            return -1

    def wait_for(self, num_runs: int) -> None:
        eventually(lambda: self.num_runs() == num_runs)

    def stop(self, number: int = signal.SIGINT) -> tuple[int, float]:
        """The exit status, and how long it took."""
        start = time.monotonic()
        self.process.send_signal(number)
        status = self.process.wait(timeout=DEADLINE)
        return status, time.monotonic() - start


@contextmanager
def watching(folder: Path, runs: Path, archive: Path) -> Iterator[Watcher]:
    watcher = Watcher(folder, runs, archive)
    try:
        yield watcher
    finally:
        watcher.process.kill()
        watcher.process.wait()
    assert "panicked" not in watcher.err.read_text()


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    (tmp_path / "inbox").mkdir()
    return tmp_path / "inbox"


def appear(file: Path, folder: Path) -> Path:
    """As a careful writer makes a file appear: whole."""
    shutil.copy(file, folder / f"{file.name}.tmp")
    return (folder / f"{file.name}.tmp").rename(folder / file.name)


def assert_tidy(path: Path) -> None:
    assert not [name for name in names(path) if ".staged" in name]
    report = a2store.verify(path, deep=True, progress=False)
    assert (report.problems, report.unnamed_files) == ([], 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_appears_is_added(files: list[Path], inbox: Path, tmp_path: Path, number: int) -> None:
    appear(files[0], inbox)
    with watching(tmp_path, inbox, tmp_path / "games.a2") as watcher:
        watcher.wait_for(1)
        appear(files[1], inbox)
        watcher.wait_for(2)
        (inbox / "deep").mkdir()
        for file in files[2:5]:
            appear(file, inbox / "deep")
        watcher.wait_for(5)
        status, secs = watcher.stop(number)
        assert status == 0
        assert secs < 1
        assert watcher.err.read_text() == ""
        assert sum(report["accepted"] for report in watcher.reports()) == 5
    archive = a2store.Archive.open(tmp_path / "games.a2")
    assert {line.operation for line in archive.history()} == {"create", "ingest"}
    # Nothing was committed for nothing.
    assert all(line.added_runs > 0 for line in archive.history()[:-1])
    assert sorted(pa.table(archive.sql("SELECT source FROM runs"))["source"].to_pylist()) == sorted(
        str(path) for path in inbox.rglob("*") if path.is_file()
    )
    assert_tidy(archive.path)


def test_files_that_stay_as_they_are_are_not_read_again(files: list[Path], inbox: Path, tmp_path: Path) -> None:
    for file in files[:6]:
        appear(file, inbox)
    sizes = [path.stat().st_size for path in sorted(inbox.iterdir())]
    with watching(tmp_path, inbox, tmp_path / "games.a2") as watcher:
        watcher.wait_for(6)
        time.sleep(5 * PERIOD)
        extra = appear(files[6], inbox)
        watcher.wait_for(7)
        eventually(lambda: len(watcher.reports()) >= 2)
        time.sleep(3 * PERIOD)
        reports = watcher.reports()
        assert watcher.stop()[0] == 0
    # One report for each time that something was new, and none for the others.
    first, second = reports
    assert (first["accepted"], first["unchanged"], first["num_bytes"]) == (6, 0, sum(sizes))
    assert (second["accepted"], second["unchanged"], second["duplicates"]) == (1, 6, 0)
    assert second["num_bytes"] == extra.stat().st_size


def test_a_file_that_is_touched_is_a_duplicate(files: list[Path], inbox: Path, tmp_path: Path) -> None:
    path = appear(files[0], inbox)
    with watching(tmp_path, inbox, tmp_path / "games.a2") as watcher:
        watcher.wait_for(1)
        path.touch()
        time.sleep(4 * PERIOD)
        appear(files[1], inbox)
        watcher.wait_for(2)
        status, _ = watcher.stop()
        assert status == 0
        assert a2store.Archive.open(watcher.archive).version == 3


def test_a_file_that_grows(files: list[Path], inbox: Path, tmp_path: Path) -> None:
    data = files[0].read_bytes()
    path = inbox / files[0].name
    path.write_bytes(data[: len(data) // 2])
    with watching(tmp_path, inbox, tmp_path / "games.a2") as watcher:
        eventually(lambda: any(report["rejected"] for report in watcher.reports()))
        assert watcher.num_runs() == 0
        (error,) = watcher.reports()[0]["errors"]
        assert error["path"] == str(path)
        time.sleep(4 * PERIOD)
        # It is said once.
        assert len([report for report in watcher.reports() if report["rejected"]]) == 1
        path.write_bytes(data)
        watcher.wait_for(1)
        status, secs = watcher.stop()
        assert secs < 1
        # It has been listed, as after every ingest of a file that does not decode.
        assert status == 1
        assert str(path) in watcher.err.read_text()
    assert_tidy(tmp_path / "games.a2")


def test_beside_another_writer(files: list[Path], inbox: Path, tmp_path: Path) -> None:
    archive = grow(tmp_path / "games.a2", [files[:2]])
    for file in files[:4]:
        appear(file, inbox)
    with watching(tmp_path, inbox, archive.path) as watcher:
        watcher.wait_for(4)
        archive.ingest(files[4:6], progress=False)
        for file in files[4:8]:
            appear(file, inbox)
        watcher.wait_for(8)
        a2store.Archive.open(archive.path).compact(progress=False)
        appear(files[8], inbox)
        watcher.wait_for(9)
        assert watcher.stop()[0] == 0
        assert sum(report["duplicates"] for report in watcher.reports()) == 4
    archive.refresh()
    assert pa.table(archive.sql("SELECT run_id FROM runs"))["run_id"].to_pylist() == list(range(9))
    assert_tidy(archive.path)


def test_an_empty_folder(inbox: Path, tmp_path: Path) -> None:
    with watching(tmp_path, inbox, tmp_path / "games.a2") as watcher:
        watcher.wait_for(0)
        time.sleep(3 * PERIOD)
        status, secs = watcher.stop()
        assert status == 0
        assert secs < 1
        # However long nothing comes, nothing needs to be said of it more than once.
        assert len(watcher.reports()) <= 1
    assert a2store.Archive.open(tmp_path / "games.a2").version == 1


def test_stopped_while_it_ingests(many: Path, tmp_path: Path) -> None:
    with watching(tmp_path, many, tmp_path / "games.a2") as watcher:
        eventually(lambda: bool(list((tmp_path / "games.a2" / "steps").glob(".staged-*"))))
        status, secs = watcher.stop()
        assert status == 0
        assert secs < 1.5
    assert a2store.Archive.open(tmp_path / "games.a2").version == 1
    assert_tidy(tmp_path / "games.a2")


# Without --watch


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after", [0.0, 0.1, 0.3])
def test_interrupted(files: list[Path], many: Path, tmp_path: Path, number: int, after: float) -> None:
    archive = grow(tmp_path / "games.a2", [files[:3]])
    before = contents(archive.path)
    process = subprocess.Popen(
        command("ingest", many, archive.path, "--workers", 1), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        eventually(lambda: bool(list((archive.path / "steps").glob(".staged-*"))))
        time.sleep(after)
        assert process.poll() is None
        start = time.monotonic()
        process.send_signal(number)
        out, error = process.communicate(timeout=DEADLINE)
        secs = time.monotonic() - start
    finally:
        process.kill()
    # Half a second on a machine that has nothing else to do.
    assert secs < 1.5
    assert (process.returncode, out) == (130, b"")
    assert b"cancelled" in error
    assert b"panicked" not in error
    assert contents(archive.path) == before


def test_interrupted_and_repeated(many: Path, tmp_path: Path) -> None:
    path = tmp_path / "games.a2"
    for _ in range(3):
        with subprocess.Popen(command("ingest", many, path), stdout=subprocess.PIPE) as process:
            eventually(lambda: bool(list((path / "steps").glob(".staged-*"))))
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=DEADLINE) == 130
        assert a2store.Archive.open(path).version == 1
        assert not [name for name in names(path) if re.search(r"parquet|staged", name)]
    report = json.loads(run_command("ingest", many, path, "--json").stdout)
    assert (report["accepted"], report["duplicates"], report["version"]) == (6_000, 0, 2)
    assert_tidy(path)


def test_wrong_periods(files: list[Path], tmp_path: Path) -> None:
    for period in ("soon", "-1s", "1"):
        done = run_command("ingest", files[0], tmp_path / "games.a2", f"--watch={period}", status=2)
        assert "--watch" in done.stderr
    assert not (tmp_path / "games.a2").exists()
    run_command("ingest", tmp_path / "absent", tmp_path / "games.a2", "--watch", "1s", status=2)
    assert not (tmp_path / "games.a2").exists()
