"""Simple readers and writers of JSON: Macroxue logs, and JSON Lines in the layout of the existing pack tool.

Nothing here uses a2store.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from formats import FormatError, Run, decode_file, need
from oracle import Branches, Game, cells, crc32c, packed

MOVES = ("up", "down", "left", "right")

# Macroxue logs


def write_macroxue(
    folder: Path,
    name: str,
    game: Game,
    seed: int,
    *,
    zipped: bool = True,
    zipped_meta: bool = False,
    extra: bool = False,
    exps: Mapping[int, Sequence[int]] | None = None,
) -> Path:
    """Write the two files of a log and return the meta file. ``exps`` holds boards that do not fit into 64 bits."""
    folder.mkdir(parents=True, exist_ok=True)
    exps = exps or {}
    lines = []
    for step, (board, move, values) in enumerate(zip(game.boards, game.moves, game.branches, strict=True)):
        cells_of = list(exps.get(step, cells(board)))
        row: dict[str, Any] = {"seed": seed, "step_index": step, "max_rank": max(cells_of), "move": MOVES[move]}
        if step % 3:
            row |= {"valuation_type": ("tuple10", "tuple11")[step % 2], "valuation": 0.5}
        row["board"] = cells_of
        if values is not None:
            row["branch_evs"] = {MOVES[place]: values[place] for place in (0, 2, 3, 1)}
        if extra:
            row["search"] = {"used": step % 2 == 0, "total_nodes": None, "by_depth": [1, [2, {"é": "\n}"}]]}
        lines.append(json.dumps(row, separators=(",", ":") if extra else None) + "\n")
    highest = max([2 ** max(cells_of) for cells_of in exps.values()] + [game.highest_tile])
    suffix = ".jsonl.gz" if zipped else ".jsonl"
    meta = {
        "seed": seed,
        "depth": 6,
        "game_index": 0,
        "steps_file": f"selfplay_logs/d6/{name}{suffix}",
        "num_moves": len(game),
        "score": game.max_score,
        "max_tile": highest,
        "max_rank": highest.bit_length() - 1,
        "sum_tile": sum(2**exp for exp in cells(game.final_board) if exp),
        "seconds": game.elapsed_s,
    }
    rows = "".join(lines).encode()
    (folder / (name + suffix)).write_bytes(gzip.compress(rows, mtime=0) if zipped else rows)
    path = folder / (name + (".meta.json.gz" if zipped_meta else ".meta.json"))
    text = json.dumps(meta).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if zipped_meta else text)
    return path


def read_text(path: Path) -> str:
    data = path.read_bytes()
    try:
        return (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode()
    except (EOFError, OSError, zlib.error) as error:
        raise FormatError("gzip stream") from error


def read_macroxue(meta_path: Path) -> Run:
    try:
        meta = json.loads(read_text(meta_path))
        lines = read_text(meta_path.parent / Path(meta["steps_file"]).name).split("\n")
        rows = [json.loads(line) for line in lines if line]
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FormatError("JSON") from error
    need(all(row["seed"] == meta["seed"] for row in rows), "seed")
    need([row["step_index"] for row in rows] == list(range(meta["num_moves"])), "step_index")
    need(all(len(row["board"]) == 16 and max(row["board"]) < 16 for row in rows), "an exponent above 15")
    need(meta["max_tile"] == 2 ** meta["max_rank"], "max_tile")
    evs = [row.get("branch_evs") for row in rows]
    return Run(
        run_id=0,
        indices=tuple(range(len(rows))),
        boards=tuple(packed(row["board"]) for row in rows),
        moves=tuple(MOVES.index(row["move"]) for row in rows),
        branches=tuple(None if step is None else cast(Branches, tuple(step[name] for name in MOVES)) for step in evs),
        max_score=meta["score"],
        highest_tile=meta["max_tile"],
        elapsed_s=meta["seconds"],
        engine=f"macroxue-d{meta['depth']}",
        seed=meta["seed"],
    )


# JSONL of the existing tool


def check_runs_jsonl(path: Path, games: Sequence[Game]) -> None:
    """Compare a file of one line per run with the expected games."""
    lines = path.read_text().splitlines()
    need(len(lines) == len(games), "number of runs")
    for run_idx, (line, game) in enumerate(zip(lines, games, strict=True)):
        found = json.loads(line)
        found["elapsed_s"] = float(np.float32(found["elapsed_s"]))
        meta = ("start_unix_s", "elapsed_s", "max_score", "highest_tile", "final_board")
        expected = {"run_idx": run_idx, "steps": len(game)} | {key: getattr(game, key) for key in meta}
        expected["states"] = [*game.boards, game.final_board]
        expected["moves"] = [MOVES[move].upper() for move in game.moves]
        need(found == expected and list(found) == list(expected), f"run {run_idx}")


def check_steps_jsonl(path: Path, payloads: Sequence[bytes]) -> None:
    """Compare a file of one line per step with the run files of these steps."""
    lines = iter(path.read_text().splitlines())
    for run_idx, payload in enumerate(payloads):
        game = decode_file(payload)
        uuid = f"a2r-{crc32c(payload):08x}-{run_idx:08x}"
        for step, (board, move) in enumerate(zip(game.boards, game.moves, strict=True)):
            found = json.loads(next(lines, "null"))
            need(found is not None, f"run {run_idx} ends at step {step}")
            for branch in found["branches"]:
                branch["value"] = float(np.float32(branch["value"]))
            values = list(game.branches[step] or [1.0 if other == move else None for other in range(4)])
            if (values[move] or 0) > 1 - 1e-6:
                values[move] = 1.0
            expected = {
                "run_idx": run_idx,
                "run_uuid": uuid,
                "step_idx": step,
                "pre_board": cells(board),
                "chosen": MOVES[move].upper(),
                "branches": [{"legal": value is not None, "value": value or 0.0} for value in values],
            }
            need(found == expected and list(found) == list(expected), f"run {run_idx}, step {step}")
    need(next(lines, None) is None, "end of the file")
