"""Damaged files never vanish: each game is read or is an error, or its file is listed as ignored."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

import a2store
import formats
import games
import logs
import oracle
from annotations import predictions, write_annotations, write_manifest
from archives import run_command
from faults.checks import LONG
from packs import flip

NUM_GAMES = 3


@pytest.fixture(scope="module")
def few() -> list[oracle.Game]:
    rng = random.Random(3)
    return [games.play(rng, length) for length in (9, 14, 5)]


def ingest(folder: Path, **options: str) -> a2store.IngestReport:
    archive = a2store.Archive.create(folder.parent / f"{folder.name}.a2")
    try:
        return archive.ingest(folder, progress=False, **options)  # type: ignore[arg-type]
    finally:
        shutil.rmtree(archive.path)


def variants(folder: Path, source: Path, name: str, contents: Iterable[bytes]) -> int:
    """Write copies of a folder in which one file has other bytes. Return their number."""
    count = 0
    for data in contents:
        copy = folder / f"{count:05}"
        shutil.copytree(source, copy)
        (copy / name).write_bytes(data)
        count += 1
    return count


def flips(data: bytes, places: Iterable[int]) -> Iterable[bytes]:
    for place in places:
        for bit in range(8) if LONG else (place % 8, (place + 5) % 8):
            yield data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def check_all_counted(report: a2store.IngestReport, expected: int) -> None:
    """Check that each of the copies of one game has an outcome."""
    assert report.accepted + report.duplicates + report.rejected == expected
    assert len(report.errors) == report.rejected > 0
    assert report.ignored == []


@pytest.mark.parametrize("zipped_meta", [False, True])
def test_meta_files_of_logs(few: list[oracle.Game], tmp_path: Path, zipped_meta: bool) -> None:
    source = tmp_path / "source"
    meta = logs.write_macroxue(source, "game", few[0], 7, zipped_meta=zipped_meta)
    data = meta.read_bytes()
    flipped = variants(tmp_path / "flips", source, meta.name, flips(data, range(len(data))))
    check_all_counted(ingest(tmp_path / "flips"), flipped)
    cut = variants(tmp_path / "cuts", source, meta.name, (data[:length] for length in range(len(data) - 1)))
    report = ingest(tmp_path / "cuts")
    check_all_counted(report, cut)
    assert report.rejected == cut


def write_pack(folder: Path, few: list[oracle.Game]) -> Path:
    folder.mkdir()
    formats.write_pack(folder / "games.a2pack", [formats.Payload(oracle.encode_a2run2(game), 2) for game in few])
    return folder / "games.a2pack"


def write_pack_dat(folder: Path, few: list[oracle.Game]) -> Path:
    folder.mkdir()
    formats.write_pack_dat(folder / "pack.dat", few)
    return folder / "pack.dat"


def write_dataset(folder: Path, few: list[oracle.Game]) -> Path:
    formats.write_dataset(folder, few)
    return folder / "steps.npy"


def write_session(folder: Path, few: list[oracle.Game]) -> Path:
    formats.write_session(folder, few)
    return folder / "steps.npy"


WRITERS = [write_pack, write_pack_dat, write_dataset, write_session]


@pytest.mark.parametrize("write", WRITERS)
def test_the_first_bytes_of_files_of_many_games(
    few: list[oracle.Game], tmp_path: Path, write: Callable[[Path, list[oracle.Game]], Path]
) -> None:
    source = tmp_path / "source"
    file = write(source, few)
    data = file.read_bytes()
    assert ingest(source).accepted == NUM_GAMES
    count = variants(tmp_path / "damaged", source, file.name, [*flips(data, range(6)), b"", data[:5]])
    report = ingest(tmp_path / "damaged")
    assert (report.accepted, report.rejected, len(report.errors), report.ignored) == (0, count, count, [])
    file.unlink()
    report = ingest(source)
    if (source / "metadata.db").exists():
        (error,) = report.errors
        assert error.path == source / "metadata.db"
        assert error.message.endswith(
            "file of steps: expected steps.npy or steps-<number>.npy beside it, found no such file"
        )


NAMES = ["x.a2run2", "x.bin", "x.a2t1", "x.a2pack", "pack.dat", "old-pack.dat", "steps.npy", "steps-00000.npy"]
NAMES += ["metadata.db", "x.meta.json", "x.meta.json.gz"]


@pytest.mark.parametrize("name", NAMES)
def test_empty_files_of_known_names(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / name).touch()
    report = ingest(folder)
    assert (report.rejected, report.ignored) == (1, [])
    assert report.errors[0].path in (folder / name, folder)
    run_command("ingest", folder, tmp_path / "games.a2", "--strict", status=1)


def test_strict_fails_on_ignored_files(few: list[oracle.Game], tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "a.a2run2").write_bytes(oracle.encode_a2run2(few[0]))
    (folder / "notes.txt").write_text("notes")
    report = ingest(folder)
    assert (report.accepted, report.ignored) == (1, [folder / "notes.txt"])
    with pytest.raises(a2store.DecodeError, match=r"notes\.txt.* content: expected runs in a known format, found none"):
        ingest(folder, on_error="raise")
    done = run_command("ingest", folder, tmp_path / "games.a2")
    assert "1 other files ignored" in done.stdout
    assert f"{folder / 'notes.txt'}: ignored, because its content is unknown" in done.stderr
    failed = run_command("ingest", folder, tmp_path / "strict.a2", "--strict", status=1)
    assert "notes.txt" in failed.stderr
    for name in ("b.tmp", *(f"notes-{number}.txt" for number in range(11))):
        (folder / name).write_text("notes")
    done = run_command("ingest", folder, tmp_path / "games.a2")
    assert "3 more files ignored; --json lists all of them" in done.stderr
    assert "b.tmp: ignored, because its name begins with a dot or ends in .tmp" in done.stderr
    assert run_command("ingest", "-q", folder, tmp_path / "games.a2").stderr == ""
    listed = json.loads(run_command("ingest", folder, tmp_path / "games.a2", "--json").stdout)["ignored"]
    assert len(listed) == 13


def test_files_that_belong_to_a_folder_of_runs_are_not_ignored(few: list[oracle.Game], tmp_path: Path) -> None:
    formats.write_dataset(tmp_path / "runs" / "dataset", few, manifest=True)
    formats.write_session(tmp_path / "runs" / "session", few, embedding=4)
    report = ingest(tmp_path / "runs", on_error="raise")
    assert (report.accepted, report.ignored) == (2 * NUM_GAMES, [])


def test_checksums_of_a_manifest_are_compared(few: list[oracle.Game], tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    formats.write_dataset(folder, few, manifest=True)
    manifest, steps = folder / "manifest.json", folder / "steps.npy"
    sums = {path.name: f"{oracle.crc32c(path.read_bytes()):08x}" for path in (steps, folder / "metadata.db")}
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"crc32c": sums}))
    assert ingest(folder).accepted == NUM_GAMES
    # This is the low byte of a value, so every other check still passes.
    flip(steps, -20)
    report = ingest(folder)
    assert (report.accepted, report.rejected, report.errors[0].kind) == (0, 1, "checksum")
    assert report.errors[0].path == steps


@pytest.mark.parametrize("missing", [[0], [8], [2, 5, 7]])
@pytest.mark.parametrize("sample_rate", [1, 3])
def test_lost_rows_of_a_session_are_not_sampling(
    few: list[oracle.Game], tmp_path: Path, missing: list[int], sample_rate: int
) -> None:
    folder = tmp_path / "runs"
    formats.write_session(folder, few, sample_rate=sample_rate)
    rows = np.load(folder / "steps.npy")
    own = np.flatnonzero(rows["run_id"] == rows["run_id"][0])
    lost = own[[place for place in missing if place < len(own)]]
    np.save(folder / "steps.npy", np.delete(rows, lost))
    report = ingest(folder)
    expected = NUM_GAMES - bool(len(lost))
    assert (report.accepted, report.rejected) == (expected, bool(len(lost)))


@pytest.mark.parametrize("name", ["annotations-value.npy", "values-00000.npy", "manifest"])
def test_predictions_of_values_are_refused(few: list[oracle.Game], tmp_path: Path, name: str) -> None:
    folder, pool = tmp_path / "annotations", dict(enumerate(few))
    archive = a2store.Archive.create(tmp_path / "games.a2")
    for number, game in pool.items():
        (tmp_path / f"{number}.a2run2").write_bytes(oracle.encode_a2run2(game))
        archive.ingest(tmp_path / f"{number}.a2run2", progress=False)
    folder.mkdir()
    rows = predictions(pool)
    write_annotations(folder, rows)
    write_manifest(folder, rows)
    if name == "manifest":
        path = folder / "annotation_manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"value": {"num_bins": 8}}))
    else:
        np.save(folder / name, np.zeros((len(rows), 8), np.float32))
    with pytest.raises(a2store.Error, match="kind of predictions: expected policies and student bins only, found"):
        archive.annotate("m", folder, progress=False)


def test_an_archive_in_a_folder_of_runs_is_no_input(few: list[oracle.Game], tmp_path: Path) -> None:
    (tmp_path / "game.a2run2").write_bytes(oracle.encode_a2run2(few[0]))
    archive = a2store.Archive.create(tmp_path / "games.a2")
    for accepted in (1, 0):
        report = archive.ingest(tmp_path, on_error="raise", progress=False)
        assert (report.accepted, report.ignored, report.errors) == (accepted, [], [])
