"""Memory of an ingest depends on the number of workers, not on the size of the input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import a2store
import oracle
from faults.shim import python

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
