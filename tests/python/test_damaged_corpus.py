"""Six hundred runs in every format, a hundred of them damaged: ingest reports each damage and adds all other runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

import a2store
import archives
import damage
import formats
import macroxue_packs
import oracle
from damage import Corpus, Damage
from sources import Expected, Name, assert_archive, read

SEED = 20
SESSION = "selfplay/20260101_model=test"
CONTAINERS: dict[str, Name] = {
    "packs/mixed.a2pack": "pack",
    "packs/dense.a2pack": "pack",
    "pack.dat": "packdat",
    "dataset": "npy",
    SESSION: "session",
    "strong/pack": "macroxue_pack",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("corpus") / "games"


@pytest.fixture(scope="module")
def corpus(folder: Path) -> Corpus:
    return damage.write(folder, SEED)


@pytest.fixture(scope="module")
def ingested(
    corpus: Corpus, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[a2store.Archive, a2store.IngestReport]:
    assert len(corpus.damages) + len(corpus.sound) == 600
    return archives.first_ingest(tmp_path_factory.mktemp("archive") / "games.a2", folder)


@pytest.fixture(scope="module")
def rejected(
    ingested: tuple[a2store.Archive, a2store.IngestReport], corpus: Corpus
) -> dict[tuple[Path, int | None], a2store.Rejected]:
    return {(source_of(error.path, corpus), error.run): error for error in ingested[1].errors}


def source_of(path: Path, corpus: Corpus) -> Path:
    """Return the folder of a file of rows, and the meta file of the rows of a log; otherwise the path."""
    metas = [path.with_name(path.name.split(".")[0] + suffix) for suffix in (".meta.json", ".meta.json.gz")]
    sources = {entry.path for entry in corpus.damages}
    return next(source for source in (path, path.parent, *metas) if source in sources)


def test_sound_runs_are_accepted_and_each_rejection_is_listed(
    ingested: tuple[a2store.Archive, a2store.IngestReport],
    rejected: dict[tuple[Path, int | None], a2store.Rejected],
    corpus: Corpus,
) -> None:
    archive, report = ingested
    assert (report.accepted, report.duplicates, report.rejected) == (500, 0, 100)
    assert (archive.num_runs, len(report.errors)) == (500, 100)
    assert report.num_steps == sum(len(sound.game) for sound in corpus.sound) == archive.num_steps
    assert set(rejected) == {(entry.path, entry.run) for entry in corpus.damages}
    for error in report.errors:
        assert error.kind in ("decode", "checksum", "header", "io")
        assert len(error.message) > 20
        assert "\n" not in error.message
        # The message does not repeat the path.
        assert str(error.path) not in error.message
    # Errors come in the order of the paths, which is also the order of the ids.
    places = [(source_of(error.path, corpus).parts, -1 if error.run is None else error.run) for error in report.errors]
    assert places == sorted(places)


def test_the_archive_has_every_column_of_the_sound_runs(
    ingested: tuple[a2store.Archive, a2store.IngestReport], corpus: Corpus, folder: Path, tmp_path: Path
) -> None:
    """Compare every column of every sound run."""
    assert_archive(ingested[0], sound_runs(corpus, folder))
    assert a2store.verify(ingested[0].path, progress=False).problems == []


def sound_runs(corpus: Corpus, folder: Path) -> list[Expected]:
    """Return the sound runs in the order of paths, as the independent readers read them."""
    indices: dict[Path, list[int]] = {}
    runs: list[Expected] = []
    for sound in corpus.sound:
        if sound.run is not None:
            indices.setdefault(sound.path, []).append(sound.run)
        else:
            runs += read(sound.path, "macroxue" if "macroxue" in sound.path.parts else "run")
    for name, kind in CONTAINERS.items():
        runs += read_some(folder / name, kind, indices[folder / name])
    return sorted(runs, key=lambda run: (run.source.parts, run.source_index or 0))


def read_some(path: Path, name: Name, wanted: list[int]) -> list[Expected]:
    """Read the sound runs only, like ``sources.read``."""
    readers: dict[str, Any] = {"packdat": "read_pack_dat", "npy": "read_dataset", "session": "read_session"}
    readers["macroxue_pack"] = "read_runs"
    with pytest.MonkeyPatch.context() as patch:
        if name == "pack":
            entries, stats = formats.read_pack(path)
            patch.setattr(formats, "read_pack", lambda _: ([entries[index] for index in wanted], stats))
        else:
            module = macroxue_packs if name == "macroxue_pack" else formats
            runs = getattr(module, readers[name])(path)
            patch.setattr(module, readers[name], lambda _: [runs[index] for index in wanted])
        found = read(path, name)
    assert len(found) == len(wanted)
    return [replace(run, source_index=index) for run, index in zip(found, wanted, strict=True)]


# Place of the damage


def of_kind(corpus: Corpus, *kinds: str) -> list[Damage]:
    found = [entry for entry in corpus.damages if entry.kind in kinds]
    assert len({entry.kind for entry in found}) == len(kinds)
    return found


def test_errors_name_the_place_in_run_files(
    rejected: dict[tuple[Path, int | None], a2store.Rejected], corpus: Corpus
) -> None:
    for entry in of_kind(corpus, *damage.FILE_DAMAGES["a2run2"], *damage.FILE_DAMAGES["a2t1"]):
        error, data = rejected[entry.path, None], entry.path.read_bytes()
        assert error.kind == ("checksum" if entry.kind == "a2t1_checksum" else error.kind), entry
        assert error.kind in ("decode", "checksum")
        assert error.offset is not None
        assert 0 <= error.offset <= len(data)
        match entry.kind:
            case "a2run2_move_9":
                step = oracle.decode_a2run2(data).moves.index(9)
                assert (error.step, data[error.offset]) == (step, 9)
                assert "9" in error.message
            case "a2t1_move_7":
                step = oracle.decode_a2t1(data).moves.index(7)
                assert (error.step, data[error.offset]) == (step, 7)
                assert error.kind == "decode"
            case "a2run2_truncated":
                # Missing bytes are reported at the end of the file, at a cut value, or as a wrong number of steps.
                assert error.offset > len(data) - 25 or "number of steps" in error.message
            case "a2run2_trailing_bytes":
                assert len(data) - 9 < error.offset < len(data)
            case "a2run2_empty_file":
                assert error.offset == 0


def test_errors_name_the_offset_of_a_wrong_value(
    rejected: dict[tuple[Path, int | None], a2store.Rejected], corpus: Corpus, folder: Path
) -> None:
    """The offset is the offset of the wrong value."""
    wrong: dict[str, Callable[[bytes, int], bool]] = {
        "pack_dat_move_7": lambda data, at: data[at] == 7,
        "dataset_run_id": lambda data, at: data[at : at + 4] == (1_000_000).to_bytes(4, "little"),
        "session_exponent_17": lambda data, at: data[at] == 17,
        "macroxue_pack_move_9": lambda data, at: data[at] == 9,
        "macroxue_pack_rank_17": lambda data, at: data[at] == 17,
    }
    for entry in of_kind(corpus, *wrong):
        error = rejected[entry.path, entry.run]
        assert (error.kind, error.step is None, error.offset is None) == ("decode", False, False), entry
        assert error.path in (sorted(entry.path.glob("steps*.npy")) if entry.path.is_dir() else [entry.path])
        assert wrong[entry.kind](error.path.read_bytes(), cast(int, error.offset)), entry
        if entry.kind == "dataset_run_id":
            query = f"SELECT num_steps FROM runs WHERE id = {entry.run}"
            ((num_steps,),) = formats.query(folder / "dataset" / "metadata.db", query)
            assert error.step == num_steps // 2


# Other readers


def test_a_repeated_ingest_adds_nothing_and_reports_the_same(
    ingested: tuple[a2store.Archive, a2store.IngestReport], corpus: Corpus, folder: Path, tmp_path: Path
) -> None:
    archive = a2store.Archive.open(archives.copied(ingested[0].path, tmp_path / "games.a2"))
    report = archive.ingest(folder, workers=2, progress=False)
    assert (report.accepted, report.duplicates, report.rejected, archive.version) == (0, 500, 100, 2)
    assert [str(error) for error in report.errors] == [str(error) for error in ingested[1].errors]
    with pytest.raises((a2store.DecodeError, OSError)):
        archive.ingest(folder, on_error="raise", progress=False)
    # A repaired file is added alone.
    mended = next(entry for entry in corpus.damages if entry.kind == "a2t1_checksum")
    data = mended.path.read_bytes()
    (tmp_path / "mended.bin").write_bytes(data[:-4] + oracle.crc32c(data[:-4]).to_bytes(4, "little"))
    assert archive.ingest(tmp_path / "mended.bin", progress=False).accepted == 1


def test_operations_without_partial_results_report_the_first_damage(
    corpus: Corpus, folder: Path, tmp_path: Path
) -> None:
    kinds: dict[str, Path] = {}
    for entry in corpus.damages:
        kinds.setdefault(entry.kind, entry.path)
    assert len(kinds) == 18
    for kind, path in kinds.items():
        indices = [entry.run for entry in corpus.damages if entry.path == path and entry.run is not None]
        for read_all in (
            lambda path=path: a2store.StepTable.from_runs(path, progress=False),
            lambda path=path: a2store.convert(path, tmp_path / "out", format="packdat", progress=False),
            lambda path=path: a2store.convert(path, tmp_path / "out", format="npy", progress=False),
        ):
            with pytest.raises(a2store.DecodeError) as caught:
                read_all()
            error = caught.value
            assert error.path is not None, kind
            assert isinstance(error.path, Path)
            assert error.path == path or error.path.parent in (path, path.parent), kind
            assert not indices or error.run == min(indices), kind
            assert error.kind in ("decode", "checksum")
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(a2store.DecodeError):
        a2store.StepTable.from_runs(folder, progress=False)
