"""Tables in files: NumPy and ``load`` read what was saved, and invalid files raise precise errors."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import a2store
from compare import assert_same
from oracle import Array

EXTRAS = ["has_evs", "max_score", "engine", "phase"]
START = 4096
"""The position of the first row in a saved table."""
REFUSALS = (a2store.Error, OSError, ValueError)


@pytest.fixture(scope="module")
def table(archive: a2store.Archive) -> a2store.StepTable:
    return archive.sql("SELECT * FROM steps").materialize(extra=EXTRAS, progress=False)


def load(path: Path, mmap: bool = False) -> a2store.StepTable:
    return a2store.StepTable.load(path, mmap=mmap, progress=False)


def save(table: a2store.StepTable, path: Path) -> Path:
    table.save(path, progress=False)
    return path


def assert_rows(found: Array, expected: Array) -> None:
    """Check that equal fields have equal types and offsets, in any order of their names."""
    assert (dict(found.dtype.fields or {}), found.itemsize) == (dict(expected.dtype.fields or {}), expected.itemsize)
    for name in expected.dtype.names or ():
        assert_same(found[name], expected[name], name)


def assert_same_table(found: a2store.StepTable, expected: a2store.StepTable) -> None:
    assert_rows(np.asarray(found), np.asarray(expected))
    for name in ("dtype", "stride", "nbytes", "fingerprint", "categories"):
        assert getattr(found, name) == getattr(expected, name), name
    assert not found.is_view


@pytest.mark.parametrize("extra", [[], EXTRAS, ["has_evs"], ["max_exp", "ev_up", "num_steps"]], ids=",".join)
def test_numpy_opens_it(archive: a2store.Archive, tmp_path: Path, extra: list[str]) -> None:
    table = archive.sql("SELECT * FROM steps").materialize(extra=extra, progress=False)
    path = save(table, tmp_path / "table.npy")
    for rows in (np.load(path), np.load(path, mmap_mode="r")):
        assert rows.shape == (len(table),)
        assert_rows(rows, np.asarray(table))
    mapped = np.load(path, mmap_mode="r")
    assert isinstance(mapped, np.memmap)
    assert mapped.offset == START


@pytest.mark.parametrize("mmap", [False, True])
def test_load_gives_the_same_table(
    table: a2store.StepTable, steps: dict[str, Array], tmp_path: Path, mmap: bool
) -> None:
    found = load(save(table, tmp_path / "table.npy"), mmap)
    assert_same_table(found, table)
    rows = np.asarray(found)
    assert not rows.flags.writeable
    assert np.shares_memory(rows, np.asarray(found))
    filters: list[dict[str, Any]] = [
        {"min_score": 3000, "max_score": 6000},
        {"engine": ["γάμμα", "alpha"]},
        {"phase": "mid", "run_ids": range(30)},
    ]
    for options in filters:
        view = found.filter(**options)
        assert 0 < len(view) < len(table)
        assert_rows(np.asarray(view), np.asarray(table.filter(**options)))
        assert view.fingerprint == table.filter(**options).fingerprint
    assert_same(np.sort(found.take(range(100))["max_score"]), np.sort(steps["max_score"][:100]))


@pytest.mark.parametrize("mmap", [False, True])
def test_a_view_saves_its_rows(table: a2store.StepTable, tmp_path: Path, mmap: bool) -> None:
    view = table.filter(engine="beta", phase=["early", "late"])
    path = save(view, tmp_path / "view.npy")
    assert_rows(np.load(path), np.asarray(view))
    found = load(path, mmap)
    assert_same_table(found, view)
    state = view.loader(100).state_dict()
    assert found.loader(100).state_dict() == state != table.loader(100).state_dict()
    assert_rows(np.asarray(found.filter(phase="late")), np.asarray(view.filter(phase="late")))


def test_the_file_needs_no_archive(run_files: list[Path], tmp_path: Path) -> None:
    archive = a2store.Archive.create(tmp_path / "gone.a2", phases={"mid": 64, "late": 128})
    archive.ingest(run_files[:5] + run_files[-5:], progress=False)
    table = archive.sql("SELECT * FROM steps").materialize(progress=False)
    path = save(table, tmp_path / "table.npy")
    expected = [table.filter(engine="alpha"), table.filter(min_score=3000), table.filter(phase="mid")]
    shutil.rmtree(tmp_path / "gone.a2")
    for mmap in (False, True):
        found = load(path, mmap)
        views = [found.filter(engine="alpha"), found.filter(min_score=3000), found.filter(phase="mid")]
        for view, other in zip(views, expected, strict=True):
            assert len(other) > 0
            assert_rows(np.asarray(view), np.asarray(other))


def test_an_empty_table(archive: a2store.Archive, tmp_path: Path) -> None:
    empty = archive.sql("SELECT * FROM steps WHERE run_id > 99").materialize(extra=["engine"], progress=False)
    path = save(empty, tmp_path / "empty.npy")
    assert np.load(path).shape == (0,)
    for mmap in (False, True):
        assert_same_table(load(path, mmap), empty)
        assert list(load(path, mmap).loader()) == []


def test_saving_replaces_atomically(table: a2store.StepTable, tmp_path: Path) -> None:
    path = save(table, tmp_path / "table.npy")
    mapped = load(path, mmap=True)
    rows = np.asarray(mapped)
    view = mapped.filter(phase="late")
    # The table is mapped from the file that it replaces.
    save(view, path)
    assert_rows(rows, np.asarray(table))
    assert_rows(np.asarray(view), np.asarray(table.filter(phase="late")))
    assert_same_table(load(path, mmap=True), view)
    save(table, path)
    assert_same_table(load(path), table)
    assert [file.name for file in tmp_path.iterdir()] == ["table.npy"]


def test_paths(table: a2store.StepTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table.save("tablé.npy", progress=False)
    mapped = a2store.StepTable.load("tablé.npy", mmap=True)
    monkeypatch.chdir("/")
    assert_same_table(mapped, table)
    assert_same_table(load(tmp_path / "tablé.npy"), table)


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("missing/table.npy", FileNotFoundError),
        ("file/table.npy", NotADirectoryError),
        ("folder", IsADirectoryError),
        ("/proc/table.npy", OSError),
    ],
)
def test_invalid_places(
    archive: a2store.Archive, table: a2store.StepTable, tmp_path: Path, place: str, error: type[OSError]
) -> None:
    (tmp_path / "file").write_text("a file")
    (tmp_path / "folder").mkdir()
    path = tmp_path / place
    for save in (
        lambda: table.save(path, progress=False),
        lambda: archive.sql("SELECT * FROM steps").materialize(path=path, progress=False),
    ):
        with pytest.raises(error) as caught:
            save()
        assert caught.value.filename.startswith("/proc" if place.startswith("/proc") else str(tmp_path))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]


def test_names_that_numpys_header_cannot_hold(archive: a2store.Archive, tmp_path: Path) -> None:
    extra = ["größe"]
    query = archive.sql("SELECT *, max_exp AS größe FROM steps")
    with pytest.raises(ValueError, match="ASCII"):
        query.materialize(extra=extra, progress=False).save(tmp_path / "table.npy", progress=False)
    with pytest.raises(ValueError, match="ASCII"):
        query.materialize(extra=extra, path=tmp_path / "table.npy", progress=False)
    assert list(tmp_path.iterdir()) == []


def test_memory_limit(table: a2store.StepTable, tmp_path: Path) -> None:
    path = save(table, tmp_path / "table.npy")
    with pytest.raises(a2store.MemoryLimitError, match=str(table.nbytes)):
        a2store.StepTable.load(path, memory_limit=table.nbytes - 1)
    assert len(a2store.StepTable.load(path, memory_limit=table.nbytes)) == len(table)
    assert len(a2store.StepTable.load(path, memory_limit=0, mmap=True)) == len(table)


# Truncated and changed files


@pytest.fixture(scope="module")
def small(archive: a2store.Archive, tmp_path_factory: pytest.TempPathFactory) -> tuple[a2store.StepTable, bytes]:
    """A table of a few rows, and the bytes of its file."""
    table = archive.sql("SELECT * FROM steps LIMIT 50").materialize(extra=EXTRAS, progress=False)
    return table, save(table, tmp_path_factory.mktemp("small") / "table.npy").read_bytes()


def refused(path: Path, mmap: bool) -> bool:
    """Return whether loading a file raises an error of the package."""
    try:
        load(path, mmap)
    except REFUSALS as error:
        return path.name in str(error)
    return False


@pytest.mark.parametrize("part", ["header and rows", "footer"])
def test_a_truncated_file_is_rejected(small: tuple[a2store.StepTable, bytes], tmp_path: Path, part: str) -> None:
    table, data = small
    end = START + table.nbytes
    lengths = [*range(0, end, 53), end - 1] if part == "header and rows" else range(end + 1, len(data), 5)
    assert len(lengths) > 100
    accepted = []
    for length in lengths:
        (tmp_path / "cut.npy").write_bytes(data[:length])
        accepted += [(length, mmap) for mmap in (False, True) if not refused(tmp_path / "cut.npy", mmap)]
    assert accepted == []


@pytest.mark.parametrize("part", ["header", "footer", "end"])
@pytest.mark.parametrize("mmap", [False, True])
def test_a_flipped_bit_is_rejected(
    small: tuple[a2store.StepTable, bytes], tmp_path: Path, part: str, mmap: bool
) -> None:
    table, data = small
    end = START + table.nbytes
    places = {
        "header": [*range(0, 600), *range(600, START, 97), START - 1],
        "footer": [*range(end, len(data) - 40, 5), *range(len(data) - 40, len(data) - 8)],
        "end": range(len(data) - 8, len(data)),
    }
    accepted = []
    for place in places[part]:
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        (tmp_path / "flipped.npy").write_bytes(changed)
        if refused(tmp_path / "flipped.npy", mmap):
            continue
        # Unused bytes may change: the minor version, and the padding at the end of the header.
        found = load(tmp_path / "flipped.npy", mmap)
        if found.fingerprint != table.fingerprint or np.asarray(found).tobytes() != np.asarray(table).tobytes():
            accepted.append(place)
    assert accepted == []


def test_changed_rows_are_rejected(small: tuple[a2store.StepTable, bytes], tmp_path: Path) -> None:
    table, data = small
    for place in range(START, START + table.nbytes, 61):
        changed = bytearray(data)
        changed[place] ^= 16
        (tmp_path / "changed.npy").write_bytes(changed)
        with pytest.raises(a2store.DecodeError, match=r"changed\.npy.*rows") as caught:
            load(tmp_path / "changed.npy")
        assert (caught.value.kind, caught.value.offset) == ("checksum", START)


@pytest.mark.parametrize("mmap", [False, True])
def test_an_extended_file_is_rejected(small: tuple[a2store.StepTable, bytes], tmp_path: Path, mmap: bool) -> None:
    table, data = small
    for more in (data[-1:], bytes(40), data[START : START + table.stride]):
        (tmp_path / "longer.npy").write_bytes(data + more)
        assert refused(tmp_path / "longer.npy", mmap)


def test_invalid_files_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "text.npy").write_text("board,move\n" * 1000)
    (tmp_path / "zeros.npy").write_bytes(bytes(10_000))
    (tmp_path / "folder.npy").mkdir()
    np.savez(tmp_path / "several.npz", np.zeros(3, [("board", "<u8")]))
    names = ["empty.npy", "text.npy", "zeros.npy", "folder.npy", "several.npz", "missing.npy"]
    for name in names:
        assert refused(tmp_path / name, mmap=False), name
        assert refused(tmp_path / name, mmap=True), name
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing.npy")


@pytest.mark.parametrize(
    "extra",
    [["label", "number"], ["small", "number", "label"], ["flag", "small", "label", "number", "half"]],
    ids=",".join,
)
@pytest.mark.filterwarnings("ignore:the table leaves out these columns:UserWarning")
def test_a_file_has_the_dtype_of_the_table(archive: a2store.Archive, tmp_path: Path, extra: list[str]) -> None:
    sql = """SELECT *, CAST(run_id AS TINYINT) AS small, max_score * 1.5 AS number, engine AS label,
             has_evs AS flag, CAST(step_index AS FLOAT) AS half FROM steps"""
    table = archive.sql(sql).materialize(extra=extra, progress=False)
    table.save(tmp_path / "saved.npy", progress=False)
    archive.sql(sql).materialize(extra=extra, path=tmp_path / "direct.npy", progress=False)
    view = table.filter(run_ids=[1, 2])
    view.save(tmp_path / "view.npy", progress=False)
    for rows, name in ((table, "saved"), (table, "direct"), (view, "view")):
        array, saved = np.asarray(rows), np.load(tmp_path / f"{name}.npy")
        assert saved.dtype == array.dtype == rows.dtype
        assert saved.dtype.names == array.dtype.names
        assert saved.dtype.fields == array.dtype.fields
        assert saved.tobytes() == array.tobytes()
    offsets = [table.dtype.fields[name][1] for name in table.dtype.names or ()]  # type: ignore[index]
    assert offsets == sorted(offsets)
    # Batches have the columns in the requested order.
    assert table.take([0]).keys()[-len(extra) :] == extra
    assert a2store.StepTable.load(tmp_path / "saved.npy").take([0]).keys()[-len(extra) :] == extra
