"""Ingest: added runs, rejected runs, and the report."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import a2store
import oracle
from compare import assert_steps
from oracle import Array, Game


@pytest.fixture
def empty(tmp_path: Path) -> a2store.Archive:
    return a2store.Archive.create(tmp_path / "games.a2", phases={"mid": 256, "late": 512})


@pytest.fixture
def with_bad_files(run_files: list[Path], games: list[Game], tmp_path: Path) -> Path:
    """A folder of two good files, with three bad ones between and around them."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    shutil.copy(run_files[0], folder / "b-good.a2run2")
    shutil.copy(run_files[20], folder / "d-good.bin")
    (folder / "a-cut.a2run2").write_bytes(run_files[1].read_bytes()[:1000])
    checksum = bytearray(run_files[21].read_bytes())
    checksum[60] ^= 0x10
    (folder / "c-checksum.bin").write_bytes(checksum)
    moves = (*games[22].moves[:9], 7, *games[22].moves[10:])
    (folder / "e-move.bin").write_bytes(oracle.encode_a2t1(replace(games[22], moves=moves)))
    (folder / "notes.txt").write_text("ignored")
    return folder


def test_every_column_of_every_step(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    table = pa.table(archive.sql("SELECT * FROM steps"))
    of_macroxue = ("valuation_type", "board_eval")
    assert set(table.column_names) == {*steps, *of_macroxue}
    assert_steps(table, steps)
    assert all(table[name].null_count == len(table) for name in of_macroxue)


def test_repeated_ingest_adds_nothing_and_makes_no_version(
    empty: a2store.Archive, run_folders: list[Path], run_files: list[Path]
) -> None:
    empty.ingest(run_folders[0], progress=False)
    before = pa.table(empty.sql("SELECT * FROM runs"))
    report = empty.ingest(run_folders[0], progress=False)
    assert (report.accepted, report.duplicates, report.num_steps) == (0, 20, 0)
    assert (empty.version, len(empty.history())) == (2, 2)
    assert a2store.Archive.open(empty.path).version == 2
    # With another name and twice in one call, it is still the same run.
    copy = empty.path.parent / "copy.a2run2"
    shutil.copy(run_files[0], copy)
    report = empty.ingest([copy, run_files[20], run_files[20]], progress=False)
    assert (report.accepted, report.duplicates) == (1, 2)
    after = pa.table(empty.sql("SELECT * FROM runs"))
    assert after.slice(0, 20) == before
    assert after["run_id"].to_pylist() == list(range(21))


def test_runs_that_differ_in_one_bit_are_different(empty: a2store.Archive, games: list[Game], tmp_path: Path) -> None:
    variants = [
        games[0],
        replace(games[0], engine=None),
        replace(games[0], engine=""),
        replace(games[0], elapsed_s=0.5),
        replace(games[0], branches=(None,) * len(games[0])),
    ]
    for index, game in enumerate(variants):
        (tmp_path / f"{index}.a2run2").write_bytes(oracle.encode_a2run2(game))
    report = empty.ingest(sorted(tmp_path.glob("*.a2run2")), progress=False)
    assert (report.accepted, report.duplicates) == (len(variants), 0)
    engines = pa.table(empty.sql("SELECT engine FROM runs"))["engine"].to_pylist()
    assert engines == ["alpha", None, "", "alpha", "alpha"]


def test_bad_files_are_reported_and_other_files_are_added(
    empty: a2store.Archive, with_bad_files: Path, games: list[Game]
) -> None:
    report = empty.ingest(with_bad_files, progress=False)
    assert (report.accepted, report.rejected, len(report.ignored)) == (2, 3, 1)
    assert [error.path.name for error in report.errors] == ["a-cut.a2run2", "c-checksum.bin", "e-move.bin"]
    cut, checksum, move = report.errors
    assert cut.kind == "decode"
    assert cut.offset is not None
    assert 980 <= cut.offset <= 1000
    assert cut.step is not None
    assert checksum.kind == "checksum"
    assert (move.kind, move.step) == ("decode", 9)
    data = (with_bad_files / "e-move.bin").read_bytes()
    assert move.offset == len(data) - 4 - len(games[22]) + 9
    assert data[move.offset] == 7
    for error in report.errors:
        assert error.path == with_bad_files / error.path.name
        assert error.run is None
        assert error.message
        assert str(error.path) not in error.message
        assert "\n" not in error.message
    assert "7" in move.message
    steps = oracle.step_columns([games[0], games[20]], (256, 512))
    assert_steps(pa.table(empty.sql("SELECT * FROM steps")), steps)


def test_on_error_raise_adds_nothing(empty: a2store.Archive, with_bad_files: Path) -> None:
    with pytest.raises(a2store.DecodeError, check=lambda error: error.path == with_bad_files / "a-cut.a2run2"):
        empty.ingest(with_bad_files, progress=False, on_error="raise")
    for archive in (empty, a2store.Archive.open(empty.path)):
        assert (archive.version, archive.num_runs, archive.num_steps) == (1, 0, 0)
    assert empty.ingest(with_bad_files, progress=False).accepted == 2
    with pytest.raises(ValueError, match="on_error"):
        empty.ingest(with_bad_files, on_error="ignore")  # type: ignore[arg-type]


@pytest.mark.skipif(os.geteuid() == 0, reason="no file is unreadable for root")
def test_an_unreadable_file_is_reported(empty: a2store.Archive, run_files: list[Path], tmp_path: Path) -> None:
    shutil.copy(run_files[0], tmp_path / "closed.a2run2")
    (tmp_path / "closed.a2run2").chmod(0)
    report = empty.ingest([tmp_path / "closed.a2run2", run_files[1]], progress=False)
    assert (report.accepted, report.rejected, report.errors[0].kind) == (1, 1, "io")


def test_paths(empty: a2store.Archive, run_files: list[Path], tmp_path: Path) -> None:
    nested = tmp_path / "traces" / "20250101" / "ab"
    nested.mkdir(parents=True)
    shutil.copy(run_files[0], nested / "one.a2run2")
    shutil.copy(run_files[20], nested.parent / "two.bin")
    shutil.copy(run_files[1], nested / "one.tmp")
    # In folders, files are selected by content, at any depth, except files that are still being written. A file given
    # by its own path may have any name.
    report = empty.ingest(str(tmp_path / "traces"), progress=False)
    assert (report.accepted, len(report.ignored)) == (2, 1)
    assert empty.ingest(nested / "one.tmp", progress=False).accepted == 1
    assert empty.ingest(iter(run_files[2:4]), progress=False).accepted == 2
    assert empty.ingest([], progress=False).accepted == 0
    version = empty.version
    with pytest.raises(FileNotFoundError):
        empty.ingest([run_files[4], tmp_path / "absent"], progress=False)
    with pytest.raises(TypeError):
        empty.ingest(7)  # type: ignore[arg-type]
    assert a2store.Archive.open(empty.path).version == version


def test_run_ids_follow_the_order_of_the_paths(
    empty: a2store.Archive, run_files: list[Path], games: list[Game]
) -> None:
    order = [41, 3, 25, 0, 59]
    empty.ingest([run_files[i] for i in order], progress=False)
    assert_steps(pa.table(empty.sql("SELECT * FROM steps")), oracle.step_columns([games[i] for i in order], (256, 512)))


def test_runs_without_steps(empty: a2store.Archive, games: list[Game], tmp_path: Path) -> None:
    no_steps = replace(games[0], boards=(), moves=(), branches=())
    (tmp_path / "a.a2run2").write_bytes(oracle.encode_a2run2(no_steps))
    report = empty.ingest(tmp_path / "a.a2run2", progress=False)
    assert (report.accepted, report.num_steps) == (1, 0)
    assert empty.sql("SELECT * FROM steps").count() == 0
    (tmp_path / "b.a2run2").write_bytes(oracle.encode_a2run2(games[1]))
    empty.ingest(tmp_path / "b.a2run2", progress=False)
    table = pa.table(empty.sql("SELECT run_id, num_steps FROM runs"))
    assert table.to_pydict() == {"run_id": [0, 1], "num_steps": [0, len(games[1])]}
    assert set(pa.table(empty.sql("SELECT run_id FROM steps"))["run_id"].to_pylist()) == {1}


def test_runs_that_break_the_rules_are_kept_and_marked(
    empty: a2store.Archive, games: list[Game], tmp_path: Path
) -> None:
    boards = (games[0].boards[0] ^ 0xF, *games[0].boards[1:])
    (tmp_path / "a.a2run2").write_bytes(oracle.encode_a2run2(replace(games[0], boards=boards)))
    (tmp_path / "b.a2run2").write_bytes(oracle.encode_a2run2(games[0]))
    assert empty.ingest([tmp_path / "a.a2run2", tmp_path / "b.a2run2"], progress=False).accepted == 2
    assert pa.table(empty.sql("SELECT verified FROM runs"))["verified"].to_pylist() == [False, True]
    found = pa.table(empty.sql("SELECT board FROM steps WHERE run_id = 0"))["board"].to_pylist()
    assert tuple(found) == boards
