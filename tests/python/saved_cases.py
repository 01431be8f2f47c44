"""Archives and parameters for tests of the named queries, and readers of their headers and rows."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import a2store
import formats
import oracle
import test_large_tiles
from games import play
from oracle import Game

QUERIES = Path(__file__).resolve().parents[2] / "queries"
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(QUERIES.iterdir())}
ENGINES = ("alpha", "beta", None, "γάμμα")
PHASES = {"mid": 64, "late": 128}
ENGINE = object()
"""A placeholder for an engine of the archive."""

CASES: dict[str, list[dict[str, Any]]] = {
    "high_score": [{"min_score": 0}, {"min_score": 300, "engine": ENGINE}, {"min_score": 500, "phase": "mid"}],
    "engine_leaderboard": [{"tile": 64}, {"tile": 128, "min_runs": 5}, {"min_runs": 10_000}],
    "score_histogram": [
        {"width": 100},
        {"width": 137, "by_engine": True},
        {"width": 1, "engine": ENGINE},
        {"width": 50, "engine": ENGINE, "by_engine": True},
    ],
    "run_lengths": [{"min_score": 500}, {"min_score": 10**18}],
    "tile_reach": [
        {"min_tile": 2},
        {"min_tile": 100, "by_engine": True},
        {"min_tile": 8, "engine": ENGINE, "by_engine": True},
        {"min_tile": 32768},
    ],
    "tile_presence": [{"width": 10}, {"width": 7, "engine": ENGINE}, {"width": 1}],
    "tile_first_steps": [{"min_tile": 0}, {"min_tile": 64}, {"min_tile": 16, "engine": ENGINE}, {"min_tile": 32768}],
    "length_histogram": [
        {"width": 10},
        {"width": 37, "by_engine": True},
        {"width": 1, "engine": ENGINE},
        {"width": 50, "engine": ENGINE, "by_engine": True},
    ],
    "survivorship": [{"width": 10}, {"width": 1, "by_engine": True}, {"width": 33, "engine": ENGINE}],
    "phase_mix": [{"min_score": 300}],
    "hard_moves": [{"limit": 3}, {"max_gap": 1, "limit": 700}, {"engine": ENGINE, "phase": "early", "max_gap": 0.1}],
    "blunders": [
        {"limit": 1000},
        {"min_loss": 0, "limit": 50},
        {"min_loss": 0.5},
        {"min_loss": 1e-9, "phase": "mid", "engine": ENGINE},
    ],
    "critic_labels": [{"phase": "mid"}, {"engine": ENGINE}],
    "unique_positions": [{"engine": ENGINE}, {"phase": "early", "min_score": 300}],
    "opening_book": [{"first_steps": 3, "limit": 1000}, {"engine": ENGINE, "limit": 5}, {"first_steps": 0}],
    "position_moves": [{"board": 0x1_0000_1000}, {"board": 0x1_0100}],
    "position_next": [{"board": 0x1_0000_1000, "limit": 1000}, {"board": 0x1_0100, "limit": 1}],
    "position_places": [{"board": 0x1_0000_1000}, {"board": 0x1_0100, "limit": 2}],
    "disagreements": [
        {"limit": 1000},
        {"model": "sharp", "min_prob": 0.6, "limit": 40},
        {"engine": ENGINE, "phase": "early"},
    ],
    "policy_agreement": [{"model": "flat"}, {"min_score": 300}],
    "calibration": [{"bins": 3}, {"model": "sharp", "phase": "early"}, {"bins": 1}],
    "archive_summary": [{"limit": 2}],
    "score_ecdf": [
        {"points": 7},
        {"points": 3, "by_engine": True},
        {"points": 1, "engine": ENGINE},
        {"points": 10, "engine": ENGINE, "by_engine": True},
    ],
    "first_reach": [{"min_tile": 2}, {"min_tile": 16, "by_engine": True}, {"min_tile": 64, "engine": ENGINE}],
    "first_reach_sample": [{"min_tile": 2, "max_runs": 9}, {"min_tile": 32}, {"min_tile": 8, "engine": ENGINE}],
    "tile_survival": [{"min_tile": 0}, {"min_tile": 16, "by_engine": True}, {"min_tile": 3, "engine": ENGINE}],
    "ev_gap_histogram": [
        {"bins": 3},
        {"bins": 1, "by_engine": True},
        {"bins": 20, "engine": ENGINE},
    ],
    "ev_loss_histogram": [
        {"bins": 3},
        {"bins": 1, "by_engine": True},
        {"bins": 20, "engine": ENGINE},
    ],
    "blunder_rate": [
        {"min_loss": 0.3},
        {"min_loss": 0.01, "by_engine": True},
        {"min_loss": 0, "engine": ENGINE},
    ],
    "move_mix": [{"by_engine": True}, {"engine": ENGINE}],
    "corner_occupancy": [{"by_engine": True}, {"engine": ENGINE}],
    "first_moves": [{"first_steps": 5}, {"first_steps": 2, "by_engine": True}, {"first_steps": 3, "engine": ENGINE}],
    "spawn_check": [{"max_steps": 1000}, {"by_engine": True}, {"engine": ENGINE}],
    "repeated_positions": [{"one_in": 3}, {"engine": ENGINE}],
    "engine_agreement": [{"first_steps": 2}, {"min_steps": 2}, {"first_steps": 100_000}],
}
"""Values of parameters for each query. The tests also run each query without parameters."""


def games_of(rng: random.Random) -> list[Game]:
    """Return games of four engines and many lengths. Some steps have no values, and some moves are not the best."""
    games = []
    for number in range(80):
        length = [300, 0, 1, 40, 90][number % 5]
        game = play(rng, length, engine=ENGINES[number % 4], without_evs=[0.0, 0.2, 1.0][number % 3])
        branches = list(game.branches)
        for step, values in enumerate(branches):
            if values is not None and rng.random() < 0.1:
                legal = [value for value in values if value is not None]
                rng.shuffle(legal)
                branches[step] = tuple(None if value is None else legal.pop() for value in values)  # type: ignore[assignment]
        games.append(replace(game, branches=tuple(branches)))
    return games


def generated(folder: Path) -> a2store.Archive:
    """Return an archive of run files in both formats, of sampled sessions, and of games with tiles of 65,536."""
    games = games_of(random.Random(77))
    for number, game in enumerate(games[:-8]):
        path = folder / "runs" / f"{number % 2}" / f"{number:03}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(oracle.encode_a2t1(game) if number % 7 == 3 else oracle.encode_a2run2(game))
    formats.write_session(folder / "session", [game for game in games[-8:] if len(game)], sample_rate=3)
    formats.write_session(folder / "moves", [play(random.Random(n), 40) for n in range(3)], sample_rate=2, action=True)
    # The nibbles of the first boards of the last two games are equal.
    starts = [[*first, 15, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] for first in ([16, 15], [15, 16])]
    last = [test_large_tiles.play(random.Random(4), start, 9) for start in starts]
    for number, large in enumerate([*test_large_tiles.GAMES, *last]):
        test_large_tiles.write_log(folder / "logs", number, large)
    return made(folder, "runs", "session", "moves", "logs")


def made(folder: Path, *sources: str) -> a2store.Archive:
    """Ingest one source after another, and add predictions."""
    archive = a2store.Archive.create(folder / "games.a2", phases=PHASES)
    for source in sources:
        archive.ingest(folder / source, progress=False)
    if archive.num_steps:
        annotate(archive)
    return archive


def single(folder: Path) -> a2store.Archive:
    """Return an archive of one finished game without an engine."""
    (folder / "game.bin").write_bytes(oracle.encode_a2run2(play(random.Random(1), 1000)))
    return made(folder, "game.bin")


def bare(folder: Path) -> a2store.Archive:
    """Return an archive of sampled games without moves and values."""
    formats.write_session(folder / "session", [play(random.Random(n), 70) for n in range(5)], sample_rate=2)
    return made(folder, "session")


def no_steps(folder: Path) -> a2store.Archive:
    """Return an archive of one game without steps."""
    (folder / "game.bin").write_bytes(oracle.encode_a2run2(play(random.Random(2), 0, engine="one")))
    return made(folder, "game.bin")


ARCHIVES = {make.__name__: make for make in (generated, single, bare, no_steps)}


def annotate(archive: a2store.Archive) -> None:
    """Add the predictions of two models. Some have no preferred move, no probability or no policy."""
    keys = pa.table(archive.sql("SELECT run_id, step_index, move FROM steps ORDER BY run_id, step_index"))
    rng = np.random.default_rng(4)
    moves = keys["move"].to_numpy(zero_copy_only=False)
    for model, least in (("sharp", 0.7), ("flat", 0.25)):
        prob = rng.uniform(least, 1, len(keys)).astype("f4")
        equal = rng.random(len(keys)) < prob
        head = np.where(equal & (moves >= 0), moves, rng.integers(0, 4, len(keys))).astype("u1")
        columns = {
            "argmax_head": pa.array(head, mask=rng.random(len(keys)) < 0.1),
            "argmax_prob": pa.array(prob, mask=rng.random(len(keys)) < 0.1),
            "policy_logp": pa.FixedSizeListArray.from_arrays(pa.array(np.log(rng.random(4 * len(keys), "f4"))), 4),
        }
        chosen = keys.select(["run_id", "step_index"])
        for name, values in columns.items():
            chosen = chosen.append_column(name, values)
        archive.annotate(model, chosen, progress=False)


@dataclass(frozen=True)
class Header:
    purpose: str
    parameters: dict[str, tuple[str, str, str]]
    """The type, the unparsed default, and the description."""
    columns: dict[str, tuple[str, str]]


def header_of(text: str) -> Header:
    """Parse a header by its definition, line by line."""
    lines = [line[2:].rstrip() for line in text[: re.search(r"^(?!--)", text, re.M).start()].splitlines()]  # type: ignore[union-attr]
    blocks = [[line for line in block.splitlines() if line] for block in "\n".join(lines).split("\n\n")]
    parts: dict[str, dict[str, tuple[str, ...]]] = {"Parameters:": {}, "Columns:": {}}
    for title, *entries in blocks[1:]:
        joined: list[str] = []
        for entry in entries:
            indent = len(entry) - len(entry.lstrip())
            assert indent == 3 or (indent > 3 and joined), entry
            if indent == 3:
                joined.append(entry.strip())
            else:
                joined[-1] += " " + entry.strip()
        for entry in joined:
            match = re.fullmatch(r"(\w+) ([\w<>, ]+?)(?: = (\S+))?: (.+)", entry)
            assert match, entry
            name, *rest = match.groups()
            assert name not in parts[title.strip()]
            parts[title.strip()][name] = tuple(rest)
    columns = {name: (dtype, doc) for name, (dtype, _, doc) in parts["Columns:"].items()}
    purpose = " ".join(line.strip() for line in blocks[0])
    return Header(purpose, parts["Parameters:"], columns)  # type: ignore[arg-type]


def same(found: Any, expected: Any) -> bool:
    """Return whether values are equal; sums of floats may differ by rounding."""
    if isinstance(found, float) and expected is not None:
        return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-12) or (found != found and expected != expected)
    return bool(found == expected)


def assert_rows(found: Sequence[Sequence[Any]], expected: Sequence[Sequence[Any]]) -> None:
    for place, rows in enumerate(zip(found, expected, strict=False)):
        assert all(map(same, *rows)), f"row {place}: {rows[0]}, expected {rows[1]}"
    assert len(found) == len(expected)


def chosen(case: dict[str, Any], engine: str) -> dict[str, Any]:
    """Return the parameters of a case, for an archive with this engine."""
    return {name: engine if value is ENGINE else value for name, value in case.items()}


def defaults(text: str) -> dict[str, Any]:
    return {name: json.loads(default) for name, (_, default, _) in header_of(text).parameters.items()}


def rows(query: a2store.Query) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(query).to_pylist()
    return found
