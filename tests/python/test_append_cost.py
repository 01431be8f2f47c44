"""The number of files that an append and a refresh open does not grow with the number of commits."""

from __future__ import annotations

from pathlib import Path

import pytest

import a2store
from faults.shim import Shim, python, read_log

APPENDS = 40
"""The number of rounds."""

SCRIPT = """
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
    done = python("-c", SCRIPT, root, work, *runs[:APPENDS], environment=shim.environment(root, log))
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
