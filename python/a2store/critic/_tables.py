"""Tables with the rows of sessions, and with attached embeddings."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import StepTable

EMBEDDING = "embedding"
META_NAME = "embeddings.json"
KEYS_NAME = "embeddings.steps.npy"
_CHUNK = 1 << 18

FIELDS = ["board", "ev_values", "run_id", "step_index", "move", "ev_legal"]
"""The fields of a row without extra columns."""

MASK = "tile_65536_mask"
"""The extra column with the cells that hold a tile of 65,536."""


def embeddings_name(dtype: str) -> str:
    """Return the file name of embeddings of a dtype, ``bf16`` or ``f32``."""
    return f"embeddings.{dtype}.npy"


def session_tiles(folder: Path) -> dict[int, int]:
    """Return the highest tile of each run of a session."""
    path = (folder / "metadata.db").absolute()
    log = path.with_name("metadata.db-wal")
    if not log.exists():
        return _tiles_in(f"{path.as_uri()}?mode=ro&immutable=1")
    # A recorder that still runs or has crashed leaves transactions in the log. To read them, SQLite would change the
    # folder. So this reads a copy.
    with tempfile.TemporaryDirectory(prefix="a2store-") as copy:
        for file in (path, log):
            shutil.copy(file, copy)
        return _tiles_in((Path(copy) / path.name).as_uri())


def _tiles_in(uri: str) -> dict[int, int]:
    database = sqlite3.connect(uri, uri=True)
    try:
        return dict(database.execute("SELECT id, coalesce(highest_tile, 0) FROM runs"))
    finally:
        database.close()


def embeddings_meta(folder: Path) -> dict[str, Any]:
    """Return the content of ``embeddings.json``, or the dimension and the type of embeddings that a recorder wrote.

    Raises ``FileNotFoundError`` if there are no embeddings, and ``ValueError`` if a file has another format.
    """
    recorded = recorded_embeddings(folder)
    if recorded:
        array = np.load(recorded[0], mmap_mode="r", allow_pickle=False)
        if array.ndim != 2 or array.dtype != np.dtype("<f4"):
            raise ValueError(f"{recorded[0]}: expected float32 (N, D), found {array.dtype} {array.shape}")
        return {"D": array.shape[1], "dtype": "f32", "dtype_bits": "f32"}
    path = folder / META_NAME
    try:
        meta = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON, {error}") from None
    # NumPy lacks bfloat16, so `dtype_bits` is the type of its bits. An array of native bfloat16 has only `dtype`.
    names = {"bf16": "bf16", "bfloat16": "bf16", "f32": "f32", "float32": "f32"}
    dtype = meta.get("dtype_bits", meta.get("dtype")) if isinstance(meta, dict) else None
    if dtype not in names:
        raise ValueError(f"{path}: expected dtype_bits, or dtype, bf16 or f32, found {dtype}")
    if not isinstance(meta.get("D"), int):
        raise ValueError(f"{path}: expected D, the dimension of an embedding, found {meta.get('D')}")
    return {**meta, "dtype_bits": names[dtype]}


def recorded_embeddings(folder: Path) -> list[Path]:
    """Return the embeddings that a recorder wrote beside its steps; none if ``embed`` wrote embeddings.

    These are ``embeddings.npy``, or the shards ``embeddings-000001.npy``, … in order.
    """
    if any((folder / embeddings_name(dtype)).exists() for dtype in ("bf16", "f32")):
        return []
    single = folder / "embeddings.npy"
    return [single] if single.exists() else sorted(folder.glob("embeddings-*.npy"))


def with_embeddings(table: StepTable, folder: Path) -> StepTable:
    """Return a table whose batches have a column ``embedding``, from the files in a folder."""
    if recorded_embeddings(folder):
        return table.attach(EMBEDDING, folder, progress=False)
    path = folder / embeddings_name(embeddings_meta(folder)["dtype_bits"])
    keys = folder / KEYS_NAME
    return table.attach(EMBEDDING, path, steps=keys if keys.exists() else None, progress=False)


def run_ids(table: StepTable) -> npt.NDArray[np.uint32]:
    """Return the run id of each row."""
    loader = table.loader(_CHUNK, shuffle=False, columns=["run_id"], prefetch=1)
    parts = [batch.run_id for batch in loader]
    return np.concatenate(parts) if parts else np.empty(0, np.uint32)


def limited(table: StepTable, limit: int, seed: int) -> StepTable:
    """Return a new table with at most ``limit`` rows of each run, in the table's order.

    A run of n > ``limit`` rows is divided into ``limit`` ranges; range k is ``k * n // limit`` to
    ``(k + 1) * n // limit``. A hash of seed, run and k selects one row of each range. So the rows are spread over the
    run, and they do not depend on the other runs.
    """
    rows = spread_rows(run_ids(table), limit, seed)
    names = [*FIELDS, *([MASK] if MASK in (table.dtype.names or ()) else [])]
    dtype = np.dtype([(name, table.dtype[name]) for name in names])
    whole = np.asarray(table)
    # Python code cannot create a table from arrays, so this writes a file and loads it.
    with tempfile.TemporaryDirectory(prefix="a2store-") as folder:
        path = Path(folder) / "rows.npy"
        with open(path, "wb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": dtype.descr, "fortran_order": False, "shape": (len(rows),)}
            )
            for start in range(0, len(rows), _CHUNK):
                part = whole[rows[start : start + _CHUNK]]
                plain = np.empty(len(part), dtype)
                for name in dtype.names or ():
                    plain[name] = part[name]
                file.write(plain.tobytes())
        return StepTable.load(path, progress=False)


def spread_rows(ids: npt.NDArray[np.uint32], limit: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the rows that ``limited`` keeps, in ascending order; ``ids`` (N,) are the runs of all rows."""
    if limit < 1:
        raise ValueError(f"max_steps_per_run: expected at least 1, found {limit}")
    # Rows of a run are usually adjacent, so this sort is fast.
    order = np.argsort(ids, kind="stable")
    runs, first, counts = np.unique(ids[order], return_index=True, return_counts=True)
    taken = np.minimum(counts, limit)
    run = np.repeat(np.arange(len(runs)), taken)
    k = np.arange(len(run)) - np.repeat(np.cumsum(taken) - taken, taken)
    low, high = k * counts[run] // taken[run], (k + 1) * counts[run] // taken[run]
    drawn = _mixed(_mixed(np.uint64(seed % 2**64) ^ runs[run].astype(np.uint64)) ^ k.astype(np.uint64))
    place = low + (drawn % (high - low).astype(np.uint64)).astype(np.int64)
    return np.sort(order[first[run] + place])


def _mixed(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return one step of SplitMix64 (Steele, Lea and Flood 2014)."""
    z = state + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed
