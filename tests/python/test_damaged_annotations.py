"""Hundreds of damaged inputs of annotations. Each is rejected with an error, or stored exactly as it is."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
import formats
import games
from annotations import Array, columns, predictions, presence, write_annotations, write_pool
from archives import copied
from compare import assert_same
from faults.checks import LONG

LENGTHS = (9, 1, 14, 6)
BINS = 2
CASES_OF_FOLDERS, GROUPS = (900, 10) if LONG else (120, 2)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an archive of four games (ids 0 to 3) and with annotations of them in two shards."""
    folder = tmp_path_factory.mktemp("pool")
    rng = random.Random(11)
    played = {run_id: games.play(rng, length) for run_id, length in enumerate(LENGTHS)}
    formats.write_session(folder / "session", list(played.values()), action=True, first_id=0)
    a2store.Archive.create(folder / "games.a2").ingest(folder / "session", progress=False)
    write_annotations(folder / "p", predictions(played), shard_rows=18, bins=BINS)
    write_pool(folder / "p" / "metadata.db", {run_id: (run_id + 6000, game) for run_id, game in played.items()})
    return folder


def flip(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice([1, 1, 1, 3, 20])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def truncate(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data)) :]


def damage_rows(rng: random.Random, folder: Path) -> None:
    """Change fields of rows, so that the headers stay sound."""
    path = rng.choice(sorted(folder.glob("annotations-0*.npy")))
    rows = np.load(path)
    for _ in range(rng.choice([1, 2])):
        name = rng.choice(rows.dtype.names)
        value = rng.choice([0, 1, 2, 3, 4, 15, 16, 100, 255])
        rows[name][rng.randrange(len(rows))] = value
    if rng.random() < 0.3:
        rows = rows[np.array(rng.sample(range(len(rows)), len(rows)))]
    if rng.random() < 0.2:
        rows = rows[:-1]
    np.save(path, rows)


def damage_folder(rng: random.Random, folder: Path) -> None:
    if rng.random() < 0.4:
        damage_rows(rng, folder)
    else:
        path = rng.choice(sorted(folder.iterdir()))
        data = bytearray(path.read_bytes())
        rng.choice([flip, flip, truncate])(rng, data)
        path.write_bytes(data)


def rows_of(folder: Path) -> Array:
    return np.concatenate([np.load(path) for path in sorted(folder.glob("annotations-0*.npy"))])


def assert_stored(archive: a2store.Archive, rows: Array) -> None:
    """Check that the archive has these rows, bit by bit. The pool's ids are those of the archive."""
    rows = rows[np.argsort(rows["run_id"], kind="stable")]
    found = pa.table(archive.sql("SELECT * FROM annotations ORDER BY run_id, step_index"))
    assert found.num_rows == len(rows) == sum(LENGTHS)
    for name, expected in columns(rows).items():
        column = found[name].combine_chunks()
        present = presence(rows, name)
        assert_same(np.asarray(column.is_valid()), present, name)
        assert_same(column.drop_null().to_numpy(zero_copy_only=False), expected[present], name)


def attempt(archive: a2store.Archive, source: Any) -> bool:
    """Annotate and return whether it succeeded. Otherwise, check that the archive is unchanged."""
    before = (archive.version, sorted(archive.path.glob("annotations/*")))
    try:
        archive.annotate("m", source, replace=True, progress=False)
    except (a2store.Error, OSError, ValueError):
        assert (archive.version, sorted(archive.path.glob("annotations/*"))) == before
        return False
    return True


@pytest.mark.parametrize("group", range(GROUPS))
def test_damaged_folders(pool: Path, tmp_path: Path, group: int) -> None:
    archive = a2store.Archive.open(copied(pool / "games.a2", tmp_path / "games.a2"))
    assert attempt(archive, pool / "p")
    assert_stored(archive, rows_of(pool / "p"))
    rejected = 0
    for case in range(CASES_OF_FOLDERS // GROUPS):
        rng = random.Random(1000 * group + case)
        folder = copied(pool / "p", tmp_path / "p")
        damage_folder(rng, folder)
        if attempt(archive, folder):
            assert_stored(archive, rows_of(folder))
            values = np.concatenate([np.load(path) for path in sorted(folder.glob("annotations-student*.npy"))] or [[]])
            bins = pa.table(archive.sql("SELECT student_bins FROM annotations ORDER BY run_id, step_index"))
            assert_same(
                np.array(bins["student_bins"].drop_null().to_pylist(), "f4").ravel(), values.ravel().astype("f4")
            )
        else:
            rejected += 1
    assert rejected > CASES_OF_FOLDERS // GROUPS // 3
    assert archive.verify(progress=False).problems == []


def test_a_run_needs_no_annotations(pool: Path, tmp_path: Path) -> None:
    archive = a2store.Archive.open(copied(pool / "games.a2", tmp_path / "games.a2"))
    archive.annotate("m", pool / "p", progress=False)
    before = archive.run(0)
    assert before.replay() is not None
    data = next((tmp_path / "games.a2").rglob("annotations*/**/*.parquet"))
    data.write_bytes(bytes(data.stat().st_size))
    damaged = a2store.open(tmp_path / "games.a2").run(0)
    np.testing.assert_array_equal(damaged.boards, before.boards)
    for read in (lambda: damaged.position(0), damaged.replay):
        with pytest.raises(a2store.DamagedError):
            read()
