"""Archives in states that a2store never produces, and inputs that no engine writes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import a2store
import oracle


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    a2store.simulate(tmp_path / "runs", runs=24, seed=1, depth=0, progress=False)
    return sorted((tmp_path / "runs").iterdir())


@pytest.fixture
def archive(tmp_path: Path, runs: list[Path]) -> a2store.Archive:
    """An archive of 18 commits, with a checkpoint at the 16th."""
    made = a2store.Archive.create(tmp_path / "games.a2")
    for run in runs[:17]:
        made.ingest(run, progress=False)
    return made


def commit(archive: a2store.Archive, version: int) -> Path:
    return Path(archive.path) / "_log" / f"{version:020}.json"


def test_a_lost_newest_commit_leaves_older_versions_readable(archive: a2store.Archive) -> None:
    version = int(min(archive.path.glob("_log/*.checkpoint.json")).name[:20])
    for later in range(version, archive.version + 1):
        commit(archive, later).unlink()
    with pytest.raises(a2store.DamagedError):
        a2store.Archive.open(archive.path)
    assert a2store.Archive.open(archive.path, version=3).num_runs == 2
    report = a2store.repair(archive.path, dry_run=False)
    # The checkpoint covers its commit. The later commits left no trace except their run ids.
    assert (report.version, report.done) == (version, True)
    again = a2store.Archive.open(archive.path)
    assert (again.version, again.num_runs) == (version + 1, version - 1)
    assert again.history()[0].next_run_id == archive.history()[0].next_run_id
    assert again.verify(deep=True, progress=False).problems == []


def test_no_archive_is_created_over_the_remains_of_one(archive: a2store.Archive, runs: list[Path]) -> None:
    for path in archive.path.glob("_log/*"):
        path.unlink()
    with pytest.raises(a2store.DamagedError, match="no data files without a commit"):
        a2store.Archive.create(archive.path)
    command = [sys.executable, "-m", "a2store", "ingest", str(runs[20]), str(archive.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no data files" in done.stderr
    assert len(list(archive.path.glob("steps/*.parquet"))) == 17


@pytest.mark.parametrize("number", [2**64 - 1, 9_999_999_999, 100])
def test_a_stray_number_in_the_log(archive: a2store.Archive, number: int) -> None:
    commit(archive, number).touch()
    with pytest.raises(a2store.DamagedError):
        a2store.Archive.open(archive.path)
    assert a2store.Archive.open(archive.path, version=archive.version).num_runs == 17
    assert a2store.verify(archive.path, progress=False).problems
    assert a2store.repair(archive.path, dry_run=False).version == archive.version
    again = a2store.Archive.open(archive.path)
    assert (again.num_runs, again.verify(progress=False).problems) == (17, [])


def test_ids_of_unreferenced_files_are_ignored(archive: a2store.Archive, runs: list[Path]) -> None:
    pq.write_table(pa.table({"run_id": pa.array([-1], pa.int32())}), archive.path / "steps" / "foreign.parquet")
    last = commit(archive, archive.version)
    last.write_bytes(last.read_bytes()[:-7])
    a2store.repair(archive.path, dry_run=False)
    again = a2store.Archive.open(archive.path)
    assert again.ingest(runs, progress=False).accepted == 24 - 16
    assert again.history()[0].next_run_id == 17 + 8


def test_an_impossible_next_run_id_is_damage(archive: a2store.Archive) -> None:
    last = commit(archive, archive.version)
    text = re.sub(r'"next_run_id":\d+', f'"next_run_id":{2**63}', last.read_text())
    body = text[: text.rindex(',"crc32c"')]
    last.write_text(f'{body},"crc32c":"{oracle.crc32c(body.encode()):08x}"}}\n')
    with pytest.raises(a2store.DamagedError, match="next_run_id: expected at most 4294967296"):
        a2store.Archive.open(archive.path)


def test_stored_original_files_do_not_accumulate_in_memory(tmp_path: Path, runs: list[Path]) -> None:
    """The start times are beyond any calendar, so each original file is stored."""
    game = oracle.decode(runs[0].read_bytes())
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
    script = (
        "import json, re, sys, a2store; from pathlib import Path; a = a2store.Archive.create(sys.argv[2]);"
        "r = a.ingest(sys.argv[1], workers=1, progress=False); t = Path('/proc/self/status').read_text();"
        "print(json.dumps([r.accepted, int(re.search(r'VmHWM:\\s+(\\d+)', t)[1]) << 10]))"
    )
    command = [sys.executable, "-c", script, str(folder), str(tmp_path / "odd.a2")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    accepted, peak = json.loads(done.stdout)
    assert accepted == count
    assert peak < 250 << 20
    shutil.rmtree(folder)


def test_arguments_out_of_range(archive: a2store.Archive, runs: list[Path]) -> None:
    for workers in (0, 1025, 10**6):
        with pytest.raises(ValueError, match=r"workers: expected 1\.\.=1024"):
            archive.ingest(runs[20], workers=workers, progress=False)
