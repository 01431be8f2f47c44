"""Unusual inputs and outputs, unusual shapes, and data larger than a row group."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import struct
from pathlib import Path
from random import Random

import numpy as np
import pytest

import a2store
import games
import logs
from archives import first_ingest, run_a2pack, run_command, simulated
from faults.shim import python
from oracle import crc32c


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("some") / "runs"
    a2store.simulate(folder, runs=12, seed=5, depth=0, progress=False)
    return folder


def test_row_groups_are_exported_in_parallel(tmp_path: Path) -> None:
    archive = simulated(tmp_path, runs=3_200, seed=1, depth=0)
    assert len(archive.files("steps")) == 1
    assert archive.num_steps > 2 << 19
    files = sorted((tmp_path / "runs").rglob("*.a2run2"))
    for workers in (1, 4):
        out = tmp_path / str(workers)
        archive.export_runs("SELECT run_id FROM runs", out, format="original", workers=workers, progress=False)
        written = sorted(out.rglob("*.a2run2"))
        assert len(written) == len(files)
        for file, copy in zip(files, written, strict=True):
            assert copy.read_bytes() == file.read_bytes()


@pytest.mark.filterwarnings("ignore:.*repeat the game")
def test_compressed_packs_are_decompressed_in_small_parts(tmp_path: Path) -> None:
    # Three bytes per step in the file, almost nothing in the pack, and twenty-seven in memory.
    steps = 60_000
    count = bytes([steps & 0x7F | 0x80, steps >> 7 & 0x7F | 0x80, steps >> 14])
    run = count + b"\0" + struct.pack("<f", 0) + b"\0\0\0" + count + b"\1\0\0" * steps + b"\1"
    (tmp_path / "runs").mkdir()
    for number in range(200):
        (tmp_path / "runs" / f"{number:03}.a2run2").write_bytes(run[:3] + bytes([number & 0x7F]) + run[4:])
    pack = tmp_path / "dense.a2pack"
    a2store.convert(tmp_path / "runs", pack, format="a2pack", compress="zstd", align=8, progress=False)
    assert pack.stat().st_size < 200 * 1_000
    code = """
import re, sys
from pathlib import Path
import a2store
for run in a2store.PackReader.open(sys.argv[1]):
    pass
a2store.Archive.create(sys.argv[2]).ingest(sys.argv[1], workers=2, progress=False)
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""
    done = python("-c", code, pack, tmp_path / "games.a2")
    assert done.returncode == 0, done.stderr
    # All runs at once would take 330 MB, in addition to the 60 MB of an idle process.
    assert int(done.stdout) < 330 << 10


def test_outputs_never_replace_inputs(some: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(some, runs)
    first = sorted(runs.iterdir())[0]
    before = {path: path.read_bytes() for path in runs.iterdir()}
    assert "is not a pack" in run_a2pack("pack", "--input", runs, "--output", first, status=2).stderr
    pack = tmp_path / "x.a2pack"
    a2store.convert(runs, pack, format="a2pack", progress=False)
    with pytest.raises(ValueError, match="a file other than the pack"):
        a2store.PackReader.open(pack).to_jsonl(pack, progress=False)
    for format_name in ("a2run2", "a2t1"):
        with pytest.raises(ValueError, match="outside the inputs"):
            a2store.convert(runs, runs / "out", format=format_name, progress=False)
    assert {path: path.read_bytes() for path in runs.iterdir()} == before
    assert len(a2store.PackReader.open(pack)) == len(before)


def test_pipes_among_the_files_do_not_block(some: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.a2pack")
    with pytest.raises(OSError, match="not a regular file"):
        a2store.PackReader.open(tmp_path / "pipe.a2pack")
    dataset = tmp_path / "dataset"
    a2store.convert(some, dataset, format="npy", progress=False)
    (dataset / "manifest.json").unlink()
    os.mkfifo(dataset / "manifest.json")
    _, report = first_ingest(tmp_path / "games.a2", tmp_path)
    assert (report.accepted, report.rejected) == (0, 1)


def test_hidden_folders_and_zeros_hold_no_runs(some: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in (".git", "old.tmp"):
        shutil.copytree(some, tree / name)
    for length in (11, 4096):
        (tree / f"{length}.db-journal").write_bytes(bytes(length))
    archive, report = first_ingest(tmp_path / "games.a2", tree)
    assert (report.accepted, report.rejected, len(report.ignored)) == (0, 0, 2)
    assert archive.ingest(tree / ".git", progress=False).accepted == 12, "what is named itself is read"


def test_a_run_with_gaps_in_a_dataset_is_rejected(some: Path, tmp_path: Path) -> None:
    a2store.convert(some, tmp_path / "set", format="npy", progress=False)
    (tmp_path / "set" / "manifest.json").unlink()
    rows = np.load(tmp_path / "set" / "steps.npy")
    starts = np.flatnonzero(rows["step_index"] == 0)
    rows["step_index"][starts[4] + 3 : starts[5]] += 1
    np.save(tmp_path / "set" / "steps.npy", rows)
    archive, report = first_ingest(tmp_path / "games.a2", tmp_path / "set")
    assert (report.accepted, [error.run for error in report.errors]) == (11, [4])
    # Rows with an unknown layout raise a header error; they do not count as a missing dataset.
    aligned = np.zeros(3, [("board", "<u8"), ("move", "<i4")])
    np.save(tmp_path / "set" / "steps.npy", aligned)
    report = archive.ingest(tmp_path / "set", progress=False)
    assert [error.kind for error in report.errors] == ["header"]


def test_logs_whose_files_arrive_separately(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    meta = logs.write_macroxue(folder, "one", games.play(Random(1), 30, raw=True), 7)
    (rows,) = (path for path in folder.iterdir() if path != meta)
    later = tmp_path / rows.name
    rows.rename(later)
    archive = a2store.Archive.create(tmp_path / "games.a2")
    assert archive.ingest(folder, progress=False).rejected == 1
    later.rename(rows)
    assert archive.ingest(folder, progress=False).accepted == 1


def test_names_that_are_not_unicode_are_printed(some: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    (Path(os.fsdecode(os.fsencode(runs) + b"/\xff.a2run2"))).write_bytes(b"no run")
    done = run_command("ingest", runs, tmp_path / "games.a2", "--json", status=1)
    assert json.loads(done.stdout)["rejected"] == 1


def test_an_open_pack_survives_a_rename_and_a_change_of_directory(
    some: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a2store.convert(some, tmp_path / "x.a2pack", format="a2pack", progress=False)
    monkeypatch.chdir(tmp_path)
    pack = a2store.PackReader.open("x.a2pack")
    monkeypatch.chdir("/")
    rows = np.asarray(pack.to_table())
    (tmp_path / "x.a2pack").rename(tmp_path / "y.a2pack")
    assert (np.asarray(pack.to_table()) == rows).all()


def test_links_and_devices_are_not_replaced(some: Path, tmp_path: Path) -> None:
    a2store.convert(some, tmp_path / "x.a2pack", format="a2pack", progress=False)
    pack = a2store.PackReader.open(tmp_path / "x.a2pack")
    (tmp_path / "file.jsonl").write_text("old")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "file.jsonl")
    pack.to_jsonl(tmp_path / "link.jsonl", progress=False)
    assert (tmp_path / "link.jsonl").is_symlink()
    assert len((tmp_path / "file.jsonl").read_text().splitlines()) == 12
    (tmp_path / "null").symlink_to("/dev/null")
    pack.to_jsonl(tmp_path / "null", progress=False)
    with pytest.raises(OSError, match="pipe or a device"):
        pack.to_table().save(tmp_path / "null", progress=False)
    assert (tmp_path / "null").is_symlink()


def test_databases_keep_their_documented_shape(some: Path, tmp_path: Path) -> None:
    a2store.convert(some, tmp_path / "set", format="npy", progress=False)
    with sqlite3.connect(tmp_path / "set" / "metadata.db") as database:
        columns = [(name, kind) for _, name, kind, *_ in database.execute("PRAGMA table_info(runs)")]
        indexed = {
            row[2]
            for name in ("idx_runs_score", "idx_runs_len")
            for row in database.execute(f"PRAGMA index_info({name})")
        }
    assert columns == [
        ("id", "INTEGER"),
        ("first_step_idx", "INTEGER"),
        ("num_steps", "INTEGER"),
        ("max_score", "INTEGER"),
        ("highest_tile", "INTEGER"),
        ("engine", "TEXT"),
        ("start_time", "INTEGER"),
        ("elapsed_s", "REAL"),
    ]
    assert indexed == {"max_score", "num_steps"}
    assert crc32c(b"123456789") == 0xE3069283
