"""One ingest of a folder with all formats: each is detected by content, and the archive has the data of each source."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import a2store
import archives
import formats
import oracle
import packs
import sources
from sources import Expected, assert_archive
from trees import Games, Tree, write_tree


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return write_tree(tmp_path_factory.mktemp("many") / "tree", 11)


@pytest.fixture(scope="module")
def expected(tree: Tree) -> list[Expected]:
    expected = tree.expected()
    # The runs differ in every property that can differ.
    assert {run.format for run in expected} == {"a2t1", "a2run2", "packdat", "npy", "session", "macroxue"}
    assert {run.verified for run in expected} == {True, False}
    for name in ("npy", "session", "a2run2"):
        assert {run.verified for run in expected if run.format == name} == {True, False}
    assert {run.final_board is None for run in expected if run.format == "macroxue"} == {True, False}
    unknown = Counter(run.moves.count(None) for run in expected if run.format == "session")
    assert unknown[0] > 3
    assert max(unknown) > 5
    assert {len(run) for run in expected if run.indices[-1] >= len(run)}
    assert any(values is None for run in expected if run.format == "npy" for values in run.branches)
    return expected


@pytest.fixture(scope="module")
def ingested(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> tuple[a2store.Archive, a2store.IngestReport]:
    return archives.first_ingest(tmp_path_factory.mktemp("many") / "games.a2", tree.root)


def test_the_report_counts_runs_and_files(
    ingested: tuple[a2store.Archive, a2store.IngestReport], tree: Tree, expected: list[Expected]
) -> None:
    """The rows of a log are read with its meta file; other files of a dataset or session belong to it."""
    archive, report = ingested
    assert report.errors == []
    assert (report.accepted, report.duplicates, report.rejected) == (len(expected), 0, 0)
    assert report.num_steps == sum(map(len, expected)) == archive.num_steps
    assert archive.version == 2
    # Files of unknown content are ignored.
    assert sorted(report.ignored) == sorted(tree.others)
    assert len(tree.others) == 10


def test_a_second_ingest_adds_nothing(
    ingested: tuple[a2store.Archive, a2store.IngestReport], tree: Tree, expected: list[Expected], tmp_path: Path
) -> None:
    archive = a2store.Archive.open(archives.copied(ingested[0].path, tmp_path / "copy.a2"))
    # The same files in another folder and in another order.
    shutil.copytree(tree.root, tmp_path / "elsewhere")
    for paths in ([tree.root], sorted((tmp_path / "elsewhere").iterdir(), reverse=True)):
        report = archive.ingest([path for path in paths if path.name != "notes"], progress=False)
        assert (report.accepted, report.duplicates, report.rejected) == (0, len(expected), 0)
        assert report.num_steps == 0
        assert archive.version == 2
    assert len(archive.history()) == 2


def test_the_archive_is_sound_before_and_after_compaction(tree: Tree, expected: list[Expected], tmp_path: Path) -> None:
    archive = a2store.Archive.create(tmp_path / "games.a2")
    for path in sorted(tree.root.iterdir()):
        archive.ingest(path, progress=False)
    assert archive.num_runs == len(expected)
    assert archive.version > 5
    assert_archive(archive, tree.expected())
    report = a2store.verify(archive.path, progress=False)
    assert report.problems == []
    assert (report.num_runs, report.num_steps) == (len(expected), archive.num_steps)
    before, version = archives.tables(archive), archive.version
    compacted = archive.compact(progress=False)
    assert (compacted.files_after, len(archive.files("steps"))) == (2, 1)
    assert compacted.files_before > 10
    archives.assert_same_tables(archives.tables(archive), before)
    assert_archive(archive, expected)
    archives.assert_same_tables(archives.tables(a2store.Archive.open(archive.path, version=version)), before)
    assert a2store.verify(archive.path, progress=False).problems == []


def test_a_source_may_be_given_by_any_or_several_of_its_files(tree: Tree, tmp_path: Path) -> None:
    for number, (path, name) in enumerate(tree.sources.items()):
        files = [[path]]
        if name in ("npy", "session"):
            steps = sorted(path.glob("steps*.npy"))
            files += [[path / "metadata.db"], [steps[0]], [steps[-1], path / "metadata.db", path]]
        expected = sources.read(path, name)
        for place, paths in enumerate(files):
            archive, report = archives.first_ingest(tmp_path / f"{number}-{place}.a2", paths)
            assert (report.accepted, report.duplicates, report.errors) == (len(expected), 0, []), paths
            assert_archive(archive, expected)


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_a_log_may_be_given_by_both_of_its_files(tree: Tree, tmp_path: Path, order: list[int]) -> None:
    """A shell passes both for ``logs/*``."""
    for number, path in enumerate(path for path, name in tree.sources.items() if name == "macroxue"):
        (rows,) = path.parent.glob(path.name.split(".")[0] + ".jsonl*")
        archive, report = archives.first_ingest(tmp_path / f"{number}.a2", [[path, rows][place] for place in order])
        assert (report.accepted, report.duplicates, report.errors) == (1, 0, [])
        assert_archive(archive, sources.read(path, "macroxue"))


def test_a_file_given_by_its_path_must_hold_runs(tree: Tree, tmp_path: Path) -> None:
    archive = a2store.Archive.create(tmp_path / "games.a2")
    assert {path.suffix for path in tree.others} >= {".md", ".npy", ".db"}
    for path in tree.others:
        report = archive.ingest(path, progress=False)
        assert (report.accepted, report.rejected, report.ignored) == (0, 1, []), path
        (error,) = report.errors
        assert (error.path, error.run) == (path, None)
        assert error.kind in ("decode", "header", "checksum")
        assert "expected" in error.message
        assert str(path) not in error.message
        with pytest.raises(a2store.DecodeError, match="expected") as caught:
            archive.ingest(path, progress=False, on_error="raise")
        assert caught.value.path == path
    assert archive.version == 1


def test_a_run_is_a_duplicate_in_any_format_with_the_same_data(tmp_path: Path) -> None:
    """Run files and packs have the same data of a game. Datasets have less, so their runs are different."""
    (game,) = Games(12).take(1)
    game = replace(game, branches=(None,) * len(game), engine="plain")
    (tmp_path / "a.a2run2").write_bytes(oracle.encode_a2run2(game))
    (tmp_path / "b.bin").write_bytes(oracle.encode_a2t1(game))
    formats.write_pack(tmp_path / "c.a2pack", packs.payloads_of([game] * 3))
    archive, report = archives.first_ingest(tmp_path / "games.a2", tmp_path)
    assert (report.accepted, report.duplicates) == (1, 4)
    assert pa.table(archive.sql("SELECT source FROM runs"))["source"].to_pylist() == [str(tmp_path / "a.a2run2")]
    formats.write_pack_dat(tmp_path / "pack.dat", [game, game], evs=False)
    formats.write_dataset(tmp_path / "dataset", [game, game])
    report = archive.ingest([tmp_path / "pack.dat", tmp_path / "dataset"], progress=False)
    assert (report.accepted, report.duplicates) == (1, 3)
    assert archive.num_runs == 2
