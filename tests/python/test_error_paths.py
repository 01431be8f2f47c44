"""An error about one file of a format with several files has the path of exactly that file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import a2store
import formats
import logs
import macroxue_packs as packs
import test_macroxue_packs
from trees import Games


def macroxue(folder: Path) -> None:
    pack = test_macroxue_packs.made()
    half = len(pack.rows) // 2
    packs.write(folder, pack.rows, pack.runs, types=pack.types, shards=(half, len(pack.rows) - half))


def dataset(folder: Path) -> None:
    formats.write_dataset(folder, Games(3).take(4), shards=2, manifest=True)


def session(folder: Path) -> None:
    formats.write_session(folder, Games(3).take(4), shards=2)


def log(folder: Path) -> None:
    logs.write_macroxue(folder, "game", Games(3).take(1)[0], 1, zipped=False)


def of_another_layout(path: Path) -> None:
    if path.suffix == ".npy":
        np.save(path, np.zeros(5, [("x", "<i8")]))
    else:
        path.write_text("{}")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def cut_in_its_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def missing(path: Path) -> None:
    path.unlink()


FORMATS: dict[Callable[[Path], None], list[str]] = {
    macroxue: ["metadata.db", "steps-00000.npy", "steps-00001.npy", "valuation_types.json"],
    dataset: ["manifest.json", "metadata.db", "steps-00000.npy", "steps-00001.npy"],
    session: ["metadata.db", "steps-000001.npy", "steps-000002.npy"],
    log: ["game.jsonl", "game.meta.json"],
}
DAMAGES = [of_another_layout, truncated, cut_in_its_header, empty, a_folder, missing]
ELSEWHERE = {
    **{
        ("macroxue", f"steps-0000{k}.npy", "missing"): "the rows of a run are missing, in the other shard" for k in "01"
    },
    **{("dataset", f"steps-0000{k}.npy", "missing"): "the manifest counts more rows" for k in "01"},
    ("session", "steps-000001.npy", "missing"): "the folder has a second shard, but no first one",
    ("session", "steps-000002.npy", "missing"): "metadata.db counts more rows",
    ("macroxue", "valuation_types.json", "of_another_layout"): "the rows have ids of types that it lacks",
    ("dataset", "manifest.json", "missing"): "the file is optional",
    ("log", "game.jsonl", "missing"): "the meta file names it",
    ("log", "game.jsonl", "a_folder"): "the meta file names it",
}
"""Damages that show in another file, or nowhere, with the reason."""
CASES = [(write, name, damage) for write, names in FORMATS.items() for name in names for damage in DAMAGES]


@pytest.mark.parametrize(
    ("write", "name", "damage"), CASES, ids=[f"{w.__name__}-{n}-{d.__name__}" for w, n, d in CASES]
)
def test_the_error_has_the_path_of_the_damaged_file(
    tmp_path: Path, write: Callable[[Path], None], name: str, damage: Callable[[Path], None]
) -> None:
    folder = tmp_path / "input"
    write(folder)
    assert sorted(path.name for path in folder.iterdir()) == FORMATS[write]
    damage(folder / name)
    archive = a2store.Archive.create(tmp_path / "games.a2")
    paths = {error.path for error in archive.ingest(folder, progress=False).errors}
    if (write.__name__, name, damage.__name__) in ELSEWHERE:
        assert folder / name not in paths
        return
    assert paths == {folder / name}
    with pytest.raises((a2store.DecodeError, OSError)) as caught:
        a2store.convert(folder, tmp_path / "out.a2pack", format="a2pack", progress=False)
    error: Any = caught.value
    assert Path(error.filename if isinstance(error, OSError) else error.path) == folder / name


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("-5", "the INTEGER -5"),
        ("0.5", "the REAL 0.5"),
        ("'soon'", "a TEXT of 4 bytes"),
        ("x'00ff'", "a BLOB of 2 bytes"),
    ],
)
@pytest.mark.parametrize("write", [macroxue, dataset, session])
def test_a_message_says_which_value_a_column_has(
    tmp_path: Path, write: Callable[[Path], None], value: str, found: str
) -> None:
    folder = tmp_path / "input"
    write(folder)
    metadata = folder / "metadata.db"
    formats.execute(metadata, f"UPDATE runs SET max_score = {value} WHERE rowid = (SELECT max(rowid) FROM runs)")
    [error] = a2store.Archive.create(tmp_path / "games.a2").ingest(folder, progress=False).errors
    assert (error.path, error.run) == (metadata, 3)
    assert "runs.max_score: expected" in error.message
    assert error.message.endswith(f"found {found}")


def test_folders_without_damage_have_no_errors(tmp_path: Path) -> None:
    for write in FORMATS:
        write(tmp_path / write.__name__)
    report = a2store.Archive.create(tmp_path / "games.a2").ingest(tmp_path, progress=False)
    assert (report.accepted, report.errors) == (13, [])
