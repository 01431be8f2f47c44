"""A simple writer and reader of Macroxue packs, written from the definition of the format.

Nothing here uses a2store.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from formats import FormatError, Run, need, with_mask
from oracle import Array, Branches, Game, cells

FIELDS: list[Any] = [
    ("run_id", "<u4"),
    ("step_index", "<u4"),
    ("board", "<u8"),
    ("board_eval", "<i4"),
    ("tile_65536_mask", "<u2"),
    ("move_dir", "u1"),
    ("valuation_type", "u1"),
    ("ev_legal", "u1"),
    ("max_rank", "u1"),
    ("seed", "<u4"),
    ("branch_evs", "<f4", (4,)),
]
PACKED, ALIGNED = np.dtype(FIELDS), np.dtype(FIELDS, align=True)
TYPES = {"search": 0, "tuple11": 1, "tuple10": 2}
MOVES = ("up", "down", "left", "right")
TABLES = """
PRAGMA journal_mode = WAL;
CREATE TABLE runs(id INTEGER PRIMARY KEY, seed BIGINT NOT NULL, steps INT NOT NULL, max_score INT NOT NULL,
    highest_tile INT NOT NULL);
CREATE TABLE session(meta_key TEXT PRIMARY KEY, meta_value TEXT NOT NULL);
"""

RunRow = tuple[int, int, int, int, int]
"""The id, seed, steps, max_score and highest_tile of a run."""


@dataclass
class Pack:
    """All files of a pack."""

    rows: Array
    runs: list[RunRow]
    session: list[tuple[str, str]]
    types: dict[str, int]


def write(
    folder: Path,
    rows: Array,
    runs: Sequence[RunRow],
    *,
    types: Mapping[str, int] = TYPES,
    session: Sequence[tuple[str, str]] = (),
    shards: Sequence[int] | None = None,
) -> Path:
    """Write a pack. ``shards`` holds the number of rows of each shard."""
    folder.mkdir(parents=True)
    if shards is None:
        np.save(folder / "steps.npy", rows)
    else:
        assert sum(shards) == len(rows)
        ends = np.cumsum(shards)
        for number, (end, count) in enumerate(zip(ends, shards, strict=True)):
            np.save(folder / f"steps-{number:05}.npy", rows[end - count : end])
    (folder / "valuation_types.json").write_text(json.dumps(types))
    with closing(sqlite3.connect(folder / "metadata.db")) as database, database:
        database.executescript(TABLES)
        database.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", runs)
        database.executemany("INSERT INTO session VALUES (?, ?)", session)
    return folder


def row_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("steps*.npy"))


def read(folder: Path) -> Pack:
    """Read a pack with NumPy and SQLite."""
    rows = np.concatenate([np.load(path) for path in row_files(folder)])
    with closing(sqlite3.connect(f"file:{folder / 'metadata.db'}?mode=ro&immutable=1", uri=True)) as database:
        runs = database.execute("SELECT id, seed, steps, max_score, highest_tile FROM runs ORDER BY id").fetchall()
        session = database.execute("SELECT * FROM session ORDER BY meta_key").fetchall()
    return Pack(rows, runs, session, json.loads((folder / "valuation_types.json").read_text()))


def read_runs(folder: Path) -> list[Run | FormatError]:
    """Read the runs of a pack without tiles of 65,536."""
    pack = read(folder)

    def one(run: RunRow) -> Run:
        run_id, seed, steps, score, tile = run
        rows = pack.rows[pack.rows["run_id"] == run_id]
        need(rows["step_index"].tolist() == list(range(steps)), "step_index")
        need((rows["move_dir"] < 4).all(), "move_dir")
        need((rows["max_rank"] < 16).all(), "max_rank")
        need(np.isin(rows["valuation_type"], list(pack.types.values())).all(), "valuation_type")
        values = zip(rows["branch_evs"].tolist(), rows["ev_legal"].tolist(), strict=True)
        branches: list[Branches | None] = [with_mask(evs, legal) if legal else None for evs, legal in values]
        boards, moves = tuple(rows["board"].tolist()), tuple(rows["move_dir"].tolist())
        return Run(run_id, tuple(range(steps)), boards, moves, tuple(branches), score, tile, seed=seed)

    def outcome(run: RunRow) -> Run | FormatError:
        try:
            return one(run)
        except FormatError as error:
            return error

    return [outcome(run) for run in pack.runs]


def of_games(games: Sequence[Game], seed: int = 0) -> Pack:
    """Return a pack of games, with seeds from ``seed`` on."""
    rows, runs = [], []
    for run_id, game in enumerate(games):
        runs.append((run_id, seed + run_id, len(game), game.max_score, game.highest_tile))
        for step, (board, move, values) in enumerate(zip(game.boards, game.moves, game.branches, strict=True)):
            evs = values or (None,) * 4
            legal = sum(1 << place for place, value in enumerate(evs) if value is not None)
            low, rank = (seed + run_id) & 0xFFFFFFFF, max(cells(board))
            numbers = [value or 0.0 for value in evs]
            rows.append((run_id, step, board, 7 * step - 9, 0, move, step % 3, legal, rank, low, numbers))
    return Pack(np.array(rows, PACKED), runs, [], dict(TYPES))


def exps(board: int, mask: int) -> list[int]:
    return [(board >> 4 * (15 - cell) & 15) + (mask >> cell & 1) for cell in range(16)]


def pack_logs(logs: Sequence[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]], types: Mapping[str, int]) -> Pack:
    """Return what the field's packer makes of logs, a meta file and rows each, without board evaluations."""
    rows, runs = [], []
    for run_id, (meta, steps) in enumerate(logs):
        runs.append((run_id, meta["seed"], len(steps), meta["score"], meta["max_tile"]))
        for step in steps:
            cells, evs = step["board"], [step["branch_evs"][move] for move in MOVES]
            rows.append(
                (
                    run_id,
                    step["step_index"],
                    sum(min(exp, 15) << 4 * (15 - cell) for cell, exp in enumerate(cells)),
                    0,
                    sum(1 << cell for cell, exp in enumerate(cells) if exp >= 16),
                    MOVES.index(step["move"]),
                    types[step.get("valuation_type", "search")],
                    sum(1 << move for move, value in enumerate(evs) if value is not None),
                    step["max_rank"],
                    step["seed"] & 0xFFFFFFFF,
                    [value or 0.0 for value in evs],
                )
            )
    return Pack(np.array(rows, PACKED), runs, [], dict(types))
