"""A writer of annotation folders: a model's predictions for the games of a pool.

Nothing here uses a2store.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from formats import write_session
from games import play
from oracle import Game, legal_mask

Array = np.ndarray[Any, Any]
POLICIES = ("policy_p1", "policy_logp", "policy_hard")
MOVES = ("up", "down", "left", "right")
ROW = np.dtype(
    [
        ("run_id", "<u4"),
        ("step_index", "<u4"),
        ("teacher_move", "|u1"),
        ("legal_mask", "|u1"),
        ("policy_kind_mask", "|u1"),
        ("argmax_head", "|u1"),
        ("argmax_prob", "<f4"),
        *((name, "<f4", (4,)) for name in POLICIES),
    ]
)


def predictions(games: Mapping[int, Game], seed: int = 0, kinds: int = 7) -> Array:
    """Return random predictions for each step of the games, by run id."""
    rng = np.random.default_rng(seed)
    parts = []
    for run_id, game in games.items():
        part = np.zeros(len(game), ROW)
        part["run_id"], part["step_index"] = run_id, np.arange(len(game))
        part["teacher_move"] = game.moves
        part["legal_mask"] = [legal_mask(board) for board in game.boards]
        part["policy_kind_mask"] = kinds
        legal = part["legal_mask"][:, None] >> np.arange(4) & 1 == 1
        mass = np.where(legal, rng.random((len(game), 4)) + 1e-3, 0)
        mass /= mass.sum(1, keepdims=True)
        part["argmax_head"], part["argmax_prob"] = mass.argmax(1), mass.max(1)
        if kinds & 1:
            part["policy_p1"] = rng.random((len(game), 4))
        if kinds & 2:
            part["policy_logp"] = np.log(np.maximum(mass, 1e-9))
        if kinds & 4:
            part["policy_hard"] = np.eye(4)[part["teacher_move"]]
        parts.append(part)
    return np.concatenate(parts)


def write_pool(path: Path, games: Mapping[int, tuple[int, Game]]) -> None:
    """Write a ``metadata.db`` with the seed and the game of each run id."""
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE runs(id INTEGER PRIMARY KEY, seed BIGINT, steps INT, max_score INT, highest_tile INT)"
        )
        for run_id, (seed, game) in games.items():
            row = (run_id, seed, len(game), game.max_score, game.highest_tile)
            database.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", row)
    database.close()


def write_annotations(folder: Path, rows: Array, *, shard_rows: int | None = None, bins: int = 0) -> Array | None:
    """Write the files of annotations except ``metadata.db``. Return the student bins, if there are any."""
    folder.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(5).random((len(rows), 4, bins), dtype="f4") if bins else None
    size = shard_rows or max(len(rows), 1)
    for number, start in enumerate(range(0, max(len(rows), 1), size)):
        suffix = "" if shard_rows is None else f"-{number:05}"
        np.save(folder / f"annotations{suffix}.npy", rows[start : start + size])
        if values is not None:
            np.save(folder / f"annotations-student{suffix}.npy", values[start : start + size])
    write_manifest(folder, rows, bins)
    return values


def write_models(folder: Path) -> tuple[dict[str, Path], Array]:
    """Write the session ``pool`` of three games, and predictions for all games, for the first two and for the last one.

    Return the folders of the predictions, and the rows of ``whole``.
    """
    played = {1000 + i: play(random.Random(i), steps) for i, steps in enumerate((30, 12, 20))}
    write_session(folder / "pool", list(played.values()), action=True)
    whole = predictions(played)
    last = whole["run_id"] == max(played)
    parts = {"whole": whole, "other": predictions(played, seed=1), "first": whole[~last], "last": whole[last]}
    folders = {}
    for name, rows in parts.items():
        folders[name] = folder / f"predicted-{name}"
        write_annotations(folders[name], rows, bins=2)
        shutil.copy(folder / "pool" / "metadata.db", folders[name])
    return folders, whole


def write_manifest(folder: Path, rows: Array, bins: int = 0) -> None:
    ids, first = np.unique(rows["run_id"], return_index=True)
    masks: Sequence[int] = [int(rows["policy_kind_mask"][at]) | (8 if bins else 0) for at in first]
    runs = [{"run_id": int(i), "policy_kind_mask": mask} for i, mask in zip(ids, masks, strict=True)]
    kinds = {"policy_p1": 1, "policy_logprobs": 2, "policy_hard": 4, "policy_student_bins": 8}
    manifest = {"kinds": kinds, "runs": runs} | ({"student_bins": {"dtype": "f32", "num_bins": bins}} if bins else {})
    (folder / "annotation_manifest.json").write_text(json.dumps(manifest))


def presence(rows: Array, name: str) -> Array:
    """Return the rows that have a value in a column of the archive's table."""
    kinds = {policy: 1 << place for place, policy in enumerate(POLICIES)}
    if (kind := kinds.get(name.rsplit("_", 1)[0])) is not None:
        return np.asarray(rows["policy_kind_mask"] & kind != 0)
    return rows["teacher_move"] != 255 if name == "teacher_move" else np.ones(len(rows), bool)


def columns(rows: Array) -> dict[str, Array]:
    """Return the columns of the archive's table by name, without the model."""
    plain = {name: rows[name] for name in ROW.names or () if name not in POLICIES}
    return plain | {
        f"{policy}_{move}": rows[policy][:, place] for policy in POLICIES for place, move in enumerate(MOVES)
    }
