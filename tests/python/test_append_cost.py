"""The number of files that an append and a refresh open does not grow with the number of commits."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import a2store
from archives import copied
from faults.shim import Call, Shim, python, read_log

pytest_plugins = ["faults.plugin"]

APPENDS = 40
"""The number of rounds: more than twice the distance between checkpoints, which is 16 commits here."""

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


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "games.a2"
    a2store.Archive.create(path)
    for name in ("mark", "stop"):
        (path / name).write_bytes(b"")
    return path


def kind(call: Call) -> str:
    """Return a file's folder and suffix, without the stem of its name."""
    path = Path(call.path)
    return f"{path.parent.name}/{re.sub(r'^[^.]*', '', path.name)}" if path.suffix else path.name


def opened(shim: Shim, root: Path, log: Path, work: str, runs: list[Path]) -> list[Counter[str]]:
    """Count the files that each round of the work opens for reading."""
    done = python("-c", SCRIPT, root, work, *runs, environment=shim.environment(root, log))
    assert done.returncode == 0, done.stderr
    rounds: list[Counter[str]] = []
    counts = False
    for call in read_log(log):
        if call.kind != "open" or not call.opens_for_reading:
            continue
        name = Path(call.path).name
        if name in ("mark", "stop"):
            counts = name == "mark"
            if counts:
                rounds.append(Counter())
        elif counts:
            rounds[-1][kind(call)] += 1
    assert len(rounds) == len(runs)
    return rounds


@pytest.mark.parametrize("work", ["append", "refresh"])
def test_an_open_archive_reads_only_new_files(
    shim: Shim, template: Path, runs: list[Path], tmp_path: Path, work: str
) -> None:
    root = copied(template, tmp_path / "games.a2")
    rounds = opened(shim, root, tmp_path / "log", work, runs[:APPENDS])
    # The first ingest has no cached digests. Rounds that write a checkpoint also list the log to remove older
    # checkpoints.
    usual = rounds[1]
    assert usual.total() >= 2
    with_checkpoint = [i for i, found in enumerate(rounds) if i and found["_log"] > usual["_log"]]
    assert len(with_checkpoint) == (2 if work == "append" else 0)
    for i, found in enumerate(rounds[1:], 1):
        if i not in with_checkpoint:
            assert found == usual, f"append {i}: {found}, not {usual}"
    # No file from before the last commit is opened.
    assert usual["runs/.parquet"] == usual["_log/.checkpoint.json"] == usual["_log/.digests"] == 0
