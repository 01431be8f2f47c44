"""Costs of an ingest: memory and opened files do not grow with the input and with the commits. Signals stop it."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

import a2store
import oracle
from archives import contents, copied, grow, short_runs
from faults.checks import LONG
from faults.shim import Call, Fault, Shim, last_of_data, python, read_log

WORKERS = 2
BOUND_BYTES = (100 + 50 * WORKERS) << 20
"""The bound of docs/archive.md; the names of files and the digests of runs take a few megabytes here."""

SCRIPT = """
import json, re, sys
from pathlib import Path
import a2store
archive = a2store.Archive.create(sys.argv[2])
report = archive.ingest(sys.argv[1], workers=int(sys.argv[3]), progress=False)
# The peak of getrusage would include the process that this one was forked from.
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
print(json.dumps({"peak": peak << 10, "num_bytes": report.num_bytes, "runs": report.accepted}))
"""


def ingested(runs: Path, archive: Path) -> dict[str, int]:
    """Ingest in a separate process, and return its peak memory."""
    done = python("-c", SCRIPT, runs, archive, WORKERS)
    assert done.returncode == 0, done.stderr
    figures: dict[str, int] = json.loads(done.stdout)
    return figures


@pytest.fixture(scope="module")
def many_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many") / "runs"
    a2store.simulate(folder, runs=22_000, seed=1, depth=0, progress=False)
    return folder


def test_memory_does_not_depend_on_the_size_of_the_input(many_runs: Path, tmp_path: Path) -> None:
    folders = sorted(many_runs.iterdir())
    assert len(folders) == 22, "a thousand files in each"
    # A part of the input fills every window and queue. From there on, the peak rises by about 5 MiB. Memory that grew
    # with the input would add 100 MB.
    part = tmp_path / "part"
    part.mkdir()
    for folder in folders[:11]:
        (part / folder.name).symlink_to(folder)

    small = ingested(part, tmp_path / "small.a2")
    large = ingested(many_runs, tmp_path / "large.a2")
    assert large["num_bytes"] - small["num_bytes"] > 100e6
    assert large["peak"] < BOUND_BYTES, large
    assert large["peak"] - small["peak"] < 32 << 20, (small, large)


def test_stored_original_files_do_not_accumulate_in_memory(tmp_path: Path) -> None:
    """The start times are beyond any calendar, so each original file is stored."""
    a2store.simulate(tmp_path / "runs", runs=1, seed=1, depth=0, progress=False)
    game = oracle.decode(next((tmp_path / "runs").iterdir()).read_bytes())
    long = replace(
        game,
        boards=game.boards * 40,
        moves=game.moves * 40,
        branches=game.branches * 40,
        start_unix_s=2**63,
    )
    encoded = oracle.encode_a2run2(long)
    stamp = oracle.varint(2**63)
    at = encoded.index(stamp)
    folder = tmp_path / "odd"
    folder.mkdir()
    count = 120_000_000 // len(encoded)
    for number in range(count):
        other = oracle.varint(2**63 + number)
        (folder / f"{number:05}.a2run2").write_bytes(encoded[:at] + other + encoded[at + len(stamp) :])
    figures = ingested(folder, tmp_path / "odd.a2")
    assert figures["runs"] == count
    # The files have 120 MB.
    assert figures["peak"] < 250 << 20


# Files that an append and a refresh open


APPENDS = 40
"""The number of rounds."""

APPEND = """
import sys
from pathlib import Path
import a2store
path, work, runs = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
writer, reader = a2store.Archive.open(path), a2store.Archive.open(path)
mark = lambda: (path / "mark").read_bytes()
for run in runs:
    if work == "append":
        mark()
    writer.ingest(run, progress=False)
    if work == "refresh":
        mark()
        reader.refresh()
        assert reader.version == writer.version
    (path / "stop").read_bytes()
"""


@pytest.mark.parametrize("work", ["append", "refresh"])
def test_an_open_archive_reads_only_new_files(shim: Shim, runs: list[Path], tmp_path: Path, work: str) -> None:
    root, log = tmp_path / "games.a2", tmp_path / "log"
    a2store.Archive.create(root)
    for name in ("mark", "stop"):
        (root / name).write_bytes(b"")
    done = python("-c", APPEND, root, work, *runs[:APPENDS], environment=shim.environment(root, log))
    assert done.returncode == 0, done.stderr
    # The files that each round of the work opens for reading.
    rounds: list[list[str]] = []
    counts = False
    for call in read_log(log):
        name = Path(call.path).name
        if call.kind != "open" or not call.opens_for_reading:
            continue
        if name in ("mark", "stop"):
            counts = name == "mark"
            if counts:
                rounds.append([])
        elif counts:
            rounds[-1].append(name)
    assert len(rounds) == APPENDS
    # The first ingest has no cached digests.
    others = [found for found in rounds[1:] if len(found) == len(rounds[1])]
    assert not [name for found in others for name in found if name.endswith(".parquet")]
    # An append that merges small files reads them.
    assert len(rounds) - 1 - len(others) <= (APPENDS // 8 if work == "append" else 0)


# Ingests that a signal stops, at certain system calls


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
