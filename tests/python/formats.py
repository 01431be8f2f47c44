"""Simple readers and writers of packs, datasets and sessions, written from the definitions of the formats.

Nothing here uses a2store. A reader returns a list with one entry per run. The entry of a damaged run is a
``FormatError``. If the container as a whole is damaged, the reader raises a ``FormatError``.
"""

from __future__ import annotations

import importlib
import json
import sqlite3
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np

from oracle import Array, Branches, Game, _Reader, cells, crc32c, decode_a2run2, decode_a2t1, packed, varint


class FormatError(ValueError):
    """A run or a container violates its format."""


@dataclass(frozen=True)
class Run:
    """A run as a container stores it; omitted data is None."""

    run_id: int
    indices: tuple[int, ...]
    boards: tuple[int, ...]
    moves: tuple[int, ...] | None
    branches: tuple[Branches | None, ...]
    max_score: int
    highest_tile: int
    final_board: int | None = None
    engine: str | None = None
    start_unix_s: int | None = None
    elapsed_s: float | None = None
    seed: int | None = None


def need(condition: object, message: str) -> None:
    if not condition:
        raise FormatError(message)


def _each(read: Callable[[int], Run], count: int) -> list[Run | FormatError]:
    def one(index: int) -> Run | FormatError:
        try:
            return read(index)
        except FormatError as error:
            return error

    return [one(index) for index in range(count)]


def mask_of(values: Branches) -> int:
    return sum(1 << move for move in range(4) if values[move] is not None)


def with_mask(values: Sequence[float], mask: int) -> Branches:
    pairs = [value if mask >> move & 1 else None for move, value in enumerate(values)]
    return cast(Branches, tuple(pairs))


def as_exported(values: Branches | None, chosen: int) -> Branches:
    """Return the values of a step in a dataset: the chosen move has 1. Without values, only that move is legal."""
    values = values or (None, None, None, None)
    return cast(Branches, tuple(1.0 if move == chosen else value for move, value in enumerate(values)))


# .a2pack

HEADER, ENTRY, FOOTER = struct.Struct("<8sIIQ"), struct.Struct("<QIHHII8x"), struct.Struct("<QIIQ")
A2T1, A2RUN2 = 1, 2
NONE, ZSTD, LZ4 = 0, 1, 2


@dataclass(frozen=True)
class Payload:
    """The bytes of a run file, before compression."""

    data: bytes
    kind: int
    compression: int = NONE


@dataclass(frozen=True)
class Stats:
    count: int
    total_steps: int
    min_len: int
    max_len: int
    mean_len: float
    p50: int
    p90: int
    p99: int


def has_codec(compression: int) -> bool:
    try:
        return compression == NONE or _codec(compression) is not None
    except ModuleNotFoundError:
        return False


def _codec(compression: int) -> tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]:
    """Return functions that compress and decompress. The tests do not require their modules."""
    if compression == NONE:
        return bytes, bytes
    need(compression in (ZSTD, LZ4), f"compression {compression}")
    if compression == LZ4:
        lz4: Any = importlib.import_module("lz4.frame")
        return lz4.compress, lz4.decompress
    zstd: Any = importlib.import_module("zstandard")
    return zstd.ZstdCompressor().compress, lambda data: zstd.ZstdDecompressor().decompressobj().decompress(data)


def stats_of(lengths: Sequence[int]) -> Stats:
    ordered = sorted(lengths)

    def percentile(share: float) -> int:
        return ordered[int(share * (len(ordered) - 1) + 0.5)]

    mean = sum(ordered) / len(ordered)
    percentiles = (percentile(0.5), percentile(0.9), percentile(0.99))
    return Stats(len(ordered), sum(ordered), ordered[0], ordered[-1], mean, *percentiles)


def write_pack(
    path: Path,
    payloads: Sequence[Payload],
    *,
    align: int = 4096,
    stats: Stats | None = None,
    data_crc: bool = False,
    version: int = 1,
) -> None:
    head = HEADER.pack(b"A2PACK\0\0", version, 0, len(payloads))
    data = bytearray(head + struct.pack("<I", crc32c(head)) + bytes(ENTRY.size * len(payloads)))
    index = bytearray()
    data += bytes(-len(data) % align)
    start = len(data)
    for number, payload in enumerate(payloads):
        stored = _codec(payload.compression)[0](payload.data)
        data += bytes(-len(data) % align if number else 0)
        index += ENTRY.pack(len(data), len(stored), payload.kind, payload.compression, crc32c(stored), 0)
        data += stored
    data[28 : 28 + len(index)] = index
    stats_at = len(data)
    # The existing tool requires 0 in a pack without runs.
    end = len(data) if payloads else 0
    if stats:
        counts = (stats.count, stats.total_steps, stats.min_len, stats.max_len)
        block = b"".join(map(varint, counts)) + struct.pack("<d", stats.mean_len)
        block += b"".join(map(varint, (stats.p50, stats.p90, stats.p99)))
        data += struct.pack("<I", len(block)) + block
    crc = crc32c(bytes(data[start:end])) if data_crc else 0
    foot = FOOTER.pack(end, crc32c(bytes(index)), crc, stats_at if stats else 0)
    path.write_bytes(data + foot + struct.pack("<I4x", crc32c(foot)))


def read_pack(path: Path) -> tuple[list[Payload | FormatError], Stats | None]:
    data = path.read_bytes()
    need(len(data) >= 60, "length of the file")
    magic, version, flags, count = HEADER.unpack_from(data)
    need((magic, flags) == (b"A2PACK\0\0", 0), "header")
    need(struct.unpack_from("<I", data, 24)[0] == crc32c(data[:24]), "CRC32C of the header")
    foot = data[-32:]
    end, index_crc, data_crc, stats_at = FOOTER.unpack_from(foot)
    need(struct.unpack_from("<I", foot, 24)[0] == crc32c(foot[:24]), "CRC32C of the footer")
    index_end = 28 + ENTRY.size * count
    need(index_end <= len(data) - 32 and end <= len(data) - 32, "length of the index")
    need(index_crc == crc32c(data[28:index_end]), "CRC32C of the index")
    entries = list(ENTRY.iter_unpack(data[28:index_end]))
    need(version in ((1, 2) if any(entry[3] for entry in entries) else (1,)), "version")
    # The existing tool has the same condition.
    need(end == max((entry[0] + entry[1] for entry in entries), default=0), "end of the data")
    need(all(a[0] + a[1] <= b[0] for a, b in pairwise(entries)), "order of the entries")
    need(not data_crc or data_crc == crc32c(data[entries[0][0] : end]), "CRC32C of the data")

    def one(entry: tuple[int, ...]) -> Payload | FormatError:
        offset, length, kind, compression, crc, reserved = entry
        stored = data[offset : offset + length]
        try:
            need(index_end <= offset and offset + length <= end and reserved == 0, "place of an entry")
            need(kind in (A2T1, A2RUN2), f"kind {kind}")
            need(not crc or crc == crc32c(stored), "CRC32C of an entry")
            return Payload(_codec(compression)[1](stored), kind, compression)
        except FormatError as error:
            return error

    stats = None
    if stats_at:
        (length,) = struct.unpack_from("<I", data, stats_at)
        need(stats_at >= end and stats_at + 4 + length == len(data) - 32, "place of the stats")
        reader = _Reader(data[stats_at + 4 : -32])
        counts = [reader.varint() for _ in range(4)]
        (mean,) = struct.unpack("<d", reader.take(8))
        stats = Stats(counts[0], counts[1], counts[2], counts[3], mean, *(reader.varint() for _ in range(3)))
        need(reader.at == length, "length of the stats")
    return [one(entry) for entry in entries], stats


def decode_file(data: bytes) -> Game:
    """Decode a run file of either kind; raise a ``FormatError`` for any damage."""
    try:
        game = decode_a2t1(data) if data.startswith(b"A2T1") else decode_a2run2(data)
    except (AssertionError, struct.error, UnicodeDecodeError) as error:
        raise FormatError("run file") from error
    need(all(move < 4 for move in game.moves), "move")
    return game


# pack.dat

PACK_DAT, PACK_META = struct.Struct("<4sIIQQ"), struct.Struct("<IIIQIH")
PACK_ROW = np.dtype(
    {
        "names": ["board", "run_id", "index", "move", "ev_mask", "ev_q", "zero"],
        "formats": ["<u8", "<u4", "<u4", "u1", "u1", ("<u2", (4,)), ("u1", (6,))],
        "offsets": [0, 8, 12, 16, 17, 18, 26],
        "itemsize": 32,
    }
)


def write_pack_dat(path: Path, games: Sequence[Game], *, evs: bool = True) -> None:
    rows = np.zeros(sum(map(len, games)), PACK_ROW)
    meta, at = b"", 0
    for run_id, game in enumerate(games):
        part = rows[at : at + len(game)]
        part["board"], part["move"] = game.boards, game.moves
        part["run_id"], part["index"] = run_id, np.arange(len(game))
        if evs:
            values = [as_exported(*pair) for pair in zip(game.branches, game.moves, strict=True)]
            part["ev_mask"] = [mask_of(step) for step in values]
            part["ev_q"] = quantized(np.array([[value or 0.0 for value in step] for step in values], "f4"))
        engine = (game.engine or "").encode()
        meta += PACK_META.pack(run_id, at, len(game), game.max_score, game.highest_tile, len(engine)) + engine
        meta += struct.pack("<Qf", game.start_unix_s, game.elapsed_s)
        at += len(game)
    body = PACK_DAT.pack(b"2048", 1, len(games), at, 28 + 32 * at) + rows.tobytes() + meta
    path.write_bytes(body + struct.pack("<I", crc32c(body)))


def quantized(values: Array) -> Array:
    """Return the nearest multiple of 1/65535 in single precision; a half is rounded up."""
    nearest: Array = np.floor(values.astype("f4") * np.float32(65535) + np.float32(0.5))
    return nearest.astype("u2")


def read_pack_dat(path: Path) -> list[Run | FormatError]:
    data = path.read_bytes()
    need(len(data) >= 32 and struct.unpack("<I", data[-4:])[0] == crc32c(data[:-4]), "CRC32C of the file")
    magic, version, num_runs, num_steps, meta_at = PACK_DAT.unpack_from(data)
    need((magic, version, meta_at) == (b"2048", 1, 28 + 32 * num_steps), "header")
    rows = np.frombuffer(data, PACK_ROW, num_steps, 28)
    reader, metas, next_step = _Reader(data[meta_at:-4]), [], 0
    for run_id in range(num_runs):
        *meta, engine_len = PACK_META.unpack(reader.take(PACK_META.size))
        engine = reader.take(engine_len).decode()
        need(meta[:2] == [run_id, next_step], "ids and first steps")
        next_step += meta[2]
        metas.append((*meta, engine, *struct.unpack("<Qf", reader.take(12))))
    need(next_step == num_steps and reader.at == len(reader.data), "metadata")

    def read(run_id: int) -> Run:
        _, first, steps, score, tile, engine, start, elapsed = metas[run_id]
        part = rows[first : first + steps]
        need((part["run_id"] == run_id).all() and (part["index"] == np.arange(steps)).all(), "ids of the rows")
        need((part["move"] < 4).all() and not part["zero"].any() and (part["ev_mask"] < 16).all(), "rows")
        evs = (part["ev_q"] / 65535).astype("f4").tolist()
        branches = (with_mask(*pair) if pair[1] else None for pair in zip(evs, part["ev_mask"].tolist(), strict=True))
        columns = (tuple(range(steps)), tuple(part["board"].tolist()), tuple(part["move"].tolist()), tuple(branches))
        meta = {"engine": engine or None, "start_unix_s": start, "elapsed_s": elapsed}
        return Run(run_id, *columns, score, tile, **meta)

    return _each(read, num_runs)


# NumPy dataset

DATASET_ROW = np.dtype(
    [
        ("board", "<u8"),
        ("move", "|u1"),
        ("ev_legal", "|u1"),
        ("ev_values", "<f4", (4,)),
        ("run_id", "<u4"),
        ("step_index", "<u2"),
    ]
)
DATASET_TABLES = """
CREATE TABLE runs(id INTEGER PRIMARY KEY, first_step_idx INTEGER NOT NULL, num_steps INTEGER NOT NULL,
    max_score INTEGER NOT NULL, highest_tile INTEGER NOT NULL, engine TEXT, start_time INTEGER, elapsed_s REAL);
CREATE INDEX idx_runs_score ON runs(max_score);
CREATE INDEX idx_runs_len ON runs(num_steps);
"""


def save_shards(folder: Path, rows: Array, shards: int | None, *, first: int, digits: int) -> None:
    """Save one ``steps.npy``, or this many shards, whose boundaries may lie within runs."""
    if shards is None:
        np.save(folder / "steps.npy", rows)
        return
    for number, part in enumerate(np.array_split(rows, shards)):
        np.save(folder / f"steps-{number + first:0{digits}}.npy", part)


def load_shards(folder: Path, dtypes: Iterable[np.dtype[Any]]) -> Array:
    single = folder / "steps.npy"
    paths = [single] if single.exists() else sorted(folder.glob("steps-*.npy"))
    need(paths, "no steps.npy")
    parts = [np.load(path, allow_pickle=False) for path in paths]
    need(any(all(part.dtype == dtype and part.ndim == 1 for part in parts) for dtype in dtypes), "type of the rows")
    return np.concatenate(parts)


def write_dataset(
    folder: Path,
    games: Sequence[Game],
    *,
    shards: int | None = None,
    manifest: bool = False,
    appended: int = 0,
) -> None:
    """Write a dataset. The last ``appended`` runs have ids from 0 again, as if the existing tool added them."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = np.zeros(sum(map(len, games)), DATASET_ROW)
    with sqlite3.connect(folder / "metadata.db") as database:
        database.executescript(DATASET_TABLES)
        at = 0
        for run_id, game in enumerate(games):
            part = rows[at : at + len(game)]
            before = len(games) - appended
            part["board"], part["move"], part["step_index"] = game.boards, game.moves, np.arange(len(game))
            part["run_id"] = run_id if run_id < before else run_id - before
            values = [as_exported(*pair) for pair in zip(game.branches, game.moves, strict=True)]
            part["ev_legal"] = [mask_of(step) for step in values]
            part["ev_values"] = [[value or 0.0 for value in step] for step in values]
            # SQLite's integers are signed.
            start = game.start_unix_s - 2**64 * (game.start_unix_s >= 2**63)
            meta = (game.max_score, game.highest_tile, game.engine or "", start, game.elapsed_s)
            database.execute("INSERT INTO runs VALUES(?,?,?,?,?,?,?,?)", (run_id, at, len(game), *meta))
            at += len(game)
    database.close()
    save_shards(folder, rows, shards, first=0, digits=5)
    if manifest:
        facts = {"version": 1, "num_steps": len(rows), "num_runs": len(games), "created": "2026-01-01T00:00:00Z"}
        (folder / "manifest.json").write_text(json.dumps(facts))


def execute(path: Path, sql: str, values: Sequence[Any] = ()) -> None:
    """Change a database, and close it."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(sql, values)


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    try:
        return database.execute(sql).fetchall()
    finally:
        database.close()


def read_dataset(folder: Path) -> list[Run | FormatError]:
    rows = load_shards(folder, [DATASET_ROW])
    columns = "id, first_step_idx, num_steps, max_score, highest_tile, engine, start_time, elapsed_s"
    metas = query(folder / "metadata.db", f"SELECT {columns} FROM runs ORDER BY id")
    if (folder / "manifest.json").exists():
        manifest = json.loads((folder / "manifest.json").read_text())
        found = [manifest[key] for key in ("version", "num_steps", "num_runs")]
        need(found == [1, len(rows), len(metas)], "manifest")

    def read(place: int) -> Run:
        run_id, first, steps, score, tile, engine, start, elapsed = metas[place]
        need(first >= 0 and first + steps <= len(rows), "place of a run")
        part = rows[first : first + steps]
        need(len(set(part["run_id"].tolist())) <= 1, "a change of run_id within a run")
        need((part["step_index"] == np.arange(steps) % 2**16).all(), "step_index")
        need((part["move"] < 4).all() and (part["ev_legal"] < 16).all(), "rows")
        pairs = zip(part["ev_values"].tolist(), part["ev_legal"].tolist(), strict=True)
        columns = (tuple(range(steps)), tuple(part["board"].tolist()), tuple(part["move"].tolist()))
        meta = {"engine": engine or None, "start_unix_s": start, "elapsed_s": elapsed}
        return Run(run_id, *columns, tuple(with_mask(*pair) for pair in pairs), score, tile, **meta)

    return _each(read, len(metas))


# Self-play session

SESSION_FIELDS: list[Any] = [("run_id", "<u8"), ("step_idx", "<u4"), ("exps", "|u1", (16,))]
SESSION_ROW, SESSION_ROW_ACTION = np.dtype(SESSION_FIELDS), np.dtype([*SESSION_FIELDS, ("action", "|u1")])
SESSION_TABLES = """
CREATE TABLE runs(id INTEGER PRIMARY KEY, seed BIGINT, steps INT, max_score INT, highest_tile INT);
CREATE TABLE session(meta_key TEXT PRIMARY KEY, meta_value TEXT);
"""


def write_session(
    folder: Path,
    games: Sequence[Game],
    *,
    action: bool = False,
    shards: int | None = None,
    sample_rate: int = 1,
    first_id: int = 1000,
    embedding: int = 0,
) -> None:
    """Write a session. Run ids count up from ``first_id``, and seeds from ``first_id`` + 6000."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    with sqlite3.connect(folder / "metadata.db") as database:
        database.executescript(SESSION_TABLES)
        for run_id, game in enumerate(games, first_id):
            steps = range(0, len(game), sample_rate)
            part = np.zeros(len(steps), SESSION_ROW_ACTION if action else SESSION_ROW)
            part["run_id"], part["step_idx"] = run_id, steps
            part["exps"] = [cells(game.boards[step]) for step in steps]
            if action:
                part["action"] = [game.moves[step] for step in steps]
            parts.append(part)
            meta = (run_id, run_id + 6000, len(game), game.max_score, game.highest_tile)
            database.execute("INSERT INTO runs VALUES(?,?,?,?,?)", meta)
        facts = {"model": {"tag": "test", "sha": "00000000"}, "sample_rate": sample_rate}
        pairs = [(key, json.dumps(value)) for key, value in facts.items()]
        database.executemany("INSERT INTO session VALUES(?,?)", pairs)
    database.close()
    rows = np.concatenate(parts)
    save_shards(folder, rows, shards, first=1, digits=6)
    if embedding:
        values = np.arange(len(rows) * embedding, dtype="f4").reshape(-1, embedding)
        np.save(folder / "embeddings.bf16.npy", (values.view("u4") >> 16).astype("u2"))
        shape = {"model_sha": "00000000", "pooling": "mean", "D": embedding, "dtype": "bf16", "dtype_bits": "bf16"}
        (folder / "embeddings.json").write_text(json.dumps(shape))


def read_session(folder: Path) -> list[Run | FormatError]:
    rows = load_shards(folder, [SESSION_ROW, SESSION_ROW_ACTION])
    metas = query(folder / "metadata.db", "SELECT id, seed, steps, max_score, highest_tile FROM runs ORDER BY id")
    session = dict(query(folder / "metadata.db", "SELECT meta_key, meta_value FROM session"))
    rate = json.loads(session.get("sample_rate", "1"))
    if (folder / "embeddings.json").exists():
        shape = json.loads((folder / "embeddings.json").read_text())
        embeddings = np.load(folder / "embeddings.bf16.npy", allow_pickle=False)
        need((embeddings.dtype, embeddings.shape) == (np.dtype("<u2"), (len(rows), shape["D"])), "embeddings")

    def read(place: int) -> Run:
        run_id, seed, steps, score, tile = metas[place]
        part = rows[rows["run_id"] == run_id]
        need(part["step_idx"].tolist() == list(range(0, steps, rate)), "step_idx")
        need((part["exps"] < 16).all(), "an exponent above 15")
        moves = None
        if "action" in (part.dtype.names or ()):
            moves = tuple(part["action"].tolist())
            need(all(move < 4 for move in moves), "action")
        boards = tuple(map(packed, part["exps"].tolist()))
        none = (None,) * len(part)
        return Run(run_id, tuple(part["step_idx"].tolist()), boards, moves, none, score, tile, seed=seed)

    return _each(read, len(metas))
