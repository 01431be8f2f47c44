"""The source of each run, the history, and the contents of each version."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import a2store
from archives import chunks, grow, short_runs

COMMITS = 60
FACTS = ("version", "time", "operation", "txn", "added_runs", "added_steps", "next_run_id")
MORE_FACTS = ("num_runs", "num_steps", "added_files", "removed_files")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return short_runs(tmp_path_factory.mktemp("short") / "runs", COMMITS + 20, steps=8)


def lines(archive: a2store.Archive) -> list[tuple[Any, ...]]:
    """Return the history, oldest first."""
    return [tuple(getattr(line, name) for name in FACTS + MORE_FACTS) for line in reversed(archive.history())]


# History


def test_each_line_of_the_history(runs: list[Path], tmp_path: Path) -> None:
    archive = grow(tmp_path / "games.a2", [runs[:3], runs[3:4], runs[:4], runs[2:9]])
    archive.compact(progress=False)
    before = lines(archive)
    archive.expire(older_than=0, grace=0)
    archive.ingest(runs[9:10], progress=False)
    expected = [
        # version, operation, added runs and steps, next id, runs, steps, files added and removed
        (1, "create", 0, 0, 0, 0, 0, 0, 0),
        (2, "ingest", 3, 24, 3, 3, 24, 2, 0),
        (3, "ingest", 1, 8, 4, 4, 32, 2, 0),
        (4, "ingest", 5, 40, 9, 9, 72, 2, 0),
        (5, "compact", 0, 0, 9, 9, 72, 2, 6),
        (6, "expire", 0, 0, 9, 9, 72, 0, 0),
        (7, "ingest", 1, 8, 10, 10, 80, 2, 0),
    ]
    # The first four versions have expired.
    whole = [*before[:4], *lines(archive)]
    assert [(line[0], line[2], *line[4:]) for line in whole] == expected
    txns = [line[3] for line in whole]
    assert len(set(txns)) == len(txns)
    assert all(len(txn) == 32 and int(txn, 16) >= 0 for txn in txns)
    times = [line[1] for line in whole]
    assert times == sorted(times)
    for version in (5, 6, 7):
        assert lines(a2store.Archive.open(archive.path, version=version)) == lines(archive)[: version - 4]
    for line in archive.history():
        assert f"version={line.version}" in repr(line)
        assert line.operation in repr(line)


def test_a_run_joins_its_commit(runs: list[Path], tmp_path: Path) -> None:
    groups = [runs[:3], runs[3:4], runs[1:9], runs[9:12]]
    archive = grow(tmp_path / "games.a2", groups)
    archive.compact(progress=False)
    archive.ingest(runs[12:14], progress=False)
    by_version = {line.version: line for line in archive.history()}
    rows = pa.table(archive.sql("SELECT run_id, source, ingested_at, digest FROM runs")).to_pylist()
    assert [row["source"] for row in rows] == [str(path) for path in runs[:14]]
    for version, count in {2: 3, 3: 1, 4: 5, 5: 3, 7: 2}.items():
        line = by_version[version]
        # The commit assigned a range of ids.
        own = [row for row in rows if line.next_run_id - line.added_runs <= row["run_id"] < line.next_run_id]
        assert line.added_runs == len(own) == count
        assert len({row["ingested_at"] for row in own}) == 1
        assert timedelta(0) <= line.time - own[0]["ingested_at"] < timedelta(minutes=1)
    # A SQL query for the runs added between two times.
    between = archive.sql(
        "SELECT count(*) AS n FROM runs WHERE ingested_at > $1 AND ingested_at <= $2",
        [by_version[2].time, by_version[5].time],
    )
    assert pa.table(between)["n"].to_pylist() == [9]


def test_digests_depend_only_on_the_run(runs: list[Path], tmp_path: Path) -> None:
    def digests(groups: list[list[Path]], name: str) -> list[bytes]:
        archive = grow(tmp_path / name, groups)
        found: list[bytes] = pa.table(archive.sql("SELECT digest FROM runs"))["digest"].to_pylist()
        return found

    together = digests([runs[:12]], "together.a2")
    assert len(set(together)) == 12
    assert digests(chunks(runs[:12], 5), "apart.a2") == together
    assert digests([runs[11::-1]], "backwards.a2") == together[::-1]
    moved = [Path(shutil.copy(path, tmp_path / f"other-{path.name}")) for path in runs[:12]]
    assert digests([moved], "moved.a2") == together
