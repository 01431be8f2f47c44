"""The format ``original`` for Macroxue packs: cases in which a copy would differ from the pack are rejected."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import a2store
import macroxue_packs as packs
from archives import run_command, short_runs
from macroxue_packs import Pack
from test_macroxue_packs import assert_same_files, ingest, made, write

ALL = "SELECT run_id FROM runs"


def original(archive: a2store.Archive, out: Path, sql: str = ALL, **options: Any) -> a2store.ExportReport:
    return archive.export_runs(sql, out, format="original", progress=False, **options)


def refused(archive: a2store.Archive, out: Path, message: str, sql: str = ALL, **options: Any) -> None:
    with pytest.raises(ValueError, match=message):
        original(archive, out, sql, **options)
    assert not out.exists()


def with_copy(pack: Pack, run: int, at: int) -> Pack:
    """Return the pack with a copy of a run, in seed too, as a run with this id. Ids stay in the order of rows."""
    copy = pack.rows[pack.rows["run_id"] == run].copy()
    copy["run_id"] = at
    rows = pack.rows.copy()
    rows["run_id"][rows["run_id"] >= at] += 1
    place = int((rows["run_id"] < at).sum())
    runs: list[Any] = [(run_id + (run_id >= at), *facts) for run_id, *facts in pack.runs]
    runs += [(at, *facts) for run_id, *facts in pack.runs if run_id == run]
    rows = np.concatenate([rows[:place], copy, rows[place:]])
    return Pack(rows, sorted(runs), pack.session, pack.types)


@pytest.mark.parametrize("at", [1, 3, 4])
@pytest.mark.parametrize("shards", [None, (50, 130)])
def test_a_game_that_is_in_a_pack_twice(tmp_path: Path, at: int, shards: tuple[int, ...] | None) -> None:
    pack = with_copy(made(), 0, at)
    folder = write(tmp_path / "pack", pack, shards=shards)
    archive, report = ingest(tmp_path, folder)
    assert (report.accepted, report.duplicates) == (4, 1)
    message = f"for original, all 5 runs of {re.escape(str(folder))}, found no run {at} of the pack in the archive"
    refused(archive, tmp_path / "out", message)
    assert (
        f"no run {at} of the pack"
        in run_command("export", archive.path, "--format", "original", "--out", tmp_path / "out", status=2).stderr
    )
    # A part of the pack, and the format macroxue, have the runs of the archive.
    original(archive, tmp_path / "part", f"{ALL} WHERE run_id > 0")
    assert len(packs.read(tmp_path / "part").runs) == 3
    archive.export_runs(ALL, tmp_path / "others", format="macroxue", progress=False)
    assert len(packs.read(tmp_path / "others").runs) == 4


def test_a_game_that_another_source_had_first(tmp_path: Path) -> None:
    first, both = made(2, seed=8), made(3, seed=8)
    archive, _ = ingest(tmp_path, write(tmp_path / "first", first))
    folder = write(tmp_path / "both", both)
    assert archive.ingest(folder, progress=False).duplicates == 2
    of_both = f"{ALL} WHERE source LIKE '%both'"
    refused(archive, tmp_path / "out", "all 3 runs of .*both, found no run 0 of the pack", of_both)
    original(archive, tmp_path / "copy", f"{ALL} WHERE source LIKE '%first'")
    assert_same_files(tmp_path / "copy", tmp_path / "first")


def test_a_damaged_run_is_missing(tmp_path: Path) -> None:
    pack = made()
    pack.rows["move_dir"][40] = 9
    archive, report = ingest(tmp_path, write(tmp_path / "pack", pack))
    assert (report.accepted, report.rejected) == (3, 1)
    refused(archive, tmp_path / "out", "all 4 runs of .*, found no run 1 of the pack")


def test_runs_of_several_sources(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", made(2, seed=1)), write(tmp_path / "b", made(2, seed=2))
    archive, _ = ingest(tmp_path, a)
    archive.ingest(b, progress=False)
    archive.ingest(short_runs(tmp_path / "runs", 1), progress=False)
    expected = "format: expected for original, runs that came from run files, or from one Macroxue pack, found "
    refused(archive, tmp_path / "out", f"{expected}run 0 from {a}, and run 2 from {b}$")
    refused(
        archive,
        tmp_path / "out",
        f"{expected}run 2 from {b}, and run 4 from .*00000.a2run2$",
        f"{ALL} WHERE run_id > 1",
    )
    original(archive, tmp_path / "file", f"{ALL} WHERE run_id = 4")
    for folder, ids in ((a, "0, 1"), (b, "2, 3")):
        original(archive, tmp_path / f"copy-{folder.name}", f"{ALL} WHERE run_id IN ({ids})")
        assert_same_files(tmp_path / f"copy-{folder.name}", folder)


def test_a_pack_that_was_replaced_by_another(tmp_path: Path) -> None:
    """Both packs have the same layout and the same ids."""
    folder = write(tmp_path / "pack", made(3, seed=1))
    shutil.copytree(folder, tmp_path / "old")
    archive, _ = ingest(tmp_path, folder)
    shutil.rmtree(folder)
    write(folder, made(3, seed=2))
    assert archive.ingest(folder, progress=False).accepted == 3
    assert archive.num_runs == 6
    refused(archive, tmp_path / "out", f"run 0 from {folder}, and run 3 from {folder}, with other contents$")
    for name, path, ids in (("first", tmp_path / "old", "< 3"), ("second", folder, ">= 3")):
        original(archive, tmp_path / name, f"{ALL} WHERE run_id {ids}")
        assert_same_files(tmp_path / name, path)
    # Other formats write all runs, numbered anew.
    archive.export_runs(ALL, tmp_path / "merged", format="macroxue", progress=False)
    assert [run[0] for run in packs.read(tmp_path / "merged").runs] == list(range(6))
    archive.export_runs(ALL, tmp_path / "session", format="session", progress=False)
    assert len(a2store.StepTable.from_session(tmp_path / "session")) == archive.num_steps


def test_the_shards_of_an_original_are_its_own(tmp_path: Path) -> None:
    archive, _ = ingest(tmp_path, write(tmp_path / "pack", made(), shards=(50, 100)))
    message = "shard_rows: expected none for original, which keeps the shards, found 10"
    refused(archive, tmp_path / "out", message, shard_rows=10)
    files = a2store.Archive.create(tmp_path / "files.a2")
    files.ingest(short_runs(tmp_path / "runs", 1), progress=False)
    refused(files, tmp_path / "out", message, shard_rows=10)
    failed = run_command(
        "export", archive.path, "--format", "original", "--out", tmp_path / "out", "--shard-rows", 10, status=2
    )
    assert "--shard-rows: expected none" in failed.stderr


def test_a_missing_row_is_an_error_of_the_file_of_rows(tmp_path: Path) -> None:
    pack = made()
    short = pack.rows[np.delete(np.arange(len(pack.rows)), 40)]
    folder = write(tmp_path / "pack", Pack(short, pack.runs, pack.session, pack.types))
    _, report = ingest(tmp_path, folder)
    [error] = report.errors
    path = folder / "steps.npy"
    offset = path.stat().st_size - (len(short) - 30) * 46
    assert error.path == path
    assert error.message == f"run 1: byte {offset}: rows of the run: expected 35 (runs.steps), found 34"


def test_a_run_without_rows_is_an_error_of_the_folder(tmp_path: Path) -> None:
    pack = made()
    folder = write(tmp_path / "pack", Pack(pack.rows[30:], pack.runs, pack.session, pack.types))
    archive = a2store.Archive.create(tmp_path / "games.a2")
    [error] = archive.ingest(folder, progress=False).errors
    assert error.path == folder
    assert "rows of the run: expected 30 (runs.steps), found none with run_id 0" in error.message
