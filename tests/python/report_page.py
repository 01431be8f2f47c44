"""The data of a report, and the page of `a2store report` filled with other data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import a2store

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "explore" / "assets" / "report.html"
MARKER = '<script type="application/json" id="data">{}</script>'

Data = dict[str, Any]

SECTIONS = {
    "contents": ["archive_summary", "engine_leaderboard"],
    "scores": ["score_histogram", "score_ecdf"],
    "lengths": ["length_histogram", "run_lengths", "first_reach", "first_reach_sample"],
    "tile-reach": ["tile_reach"],
    "survival": ["survivorship", "tile_survival"],
    "tiles": ["tile_presence", "phase_mix"],
    "values": ["ev_gap_histogram", "ev_loss_histogram", "blunder_rate", "blunders", "hard_moves"],
    "moves": ["move_mix", "corner_occupancy"],
    "agreement": ["engine_agreement"],
    "positions": ["repeated_positions", "first_moves", "opening_book"],
    "spawns": ["spawn_check"],
    "annotations": ["policy_agreement", "calibration"],
}
"""The sections of the page in their order, with the keys of their results."""


def data_of(page: str) -> Data:
    """Return the data of the page of a report or of a replay."""
    before, after = MARKER.split("{}")
    data: Data = json.loads(page.split(before, 1)[1].split(after, 1)[0])
    return data


def report(archive: a2store.Archive) -> Data:
    """Return the data in an archive's report."""
    return data_of(archive.report(progress=False).to_html())


def page(data: Data) -> str:
    """Return the page with this data, as the command writes it."""
    template = TEMPLATE.read_text(encoding="utf-8")
    assert template.count(MARKER) == 1
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return template.replace(MARKER, MARKER.replace("{}", text))


def annotate(archive: a2store.Archive, model: str, seed: int, skill: float) -> None:
    """Add predictions that prefer the played move with a probability that depends on `skill`."""
    steps = pa.table(archive.sql("SELECT run_id, step_index, move, ev_legal FROM steps WHERE move IS NOT NULL"))
    run_ids, indices, moves, legal = (steps[name].to_numpy() for name in steps.column_names)
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(len(moves), 4)) + skill * np.eye(4)[moves] * rng.random((len(moves), 1))
    mass = np.where(legal[:, None] >> np.arange(4) & 1 == 1, np.exp(logits), 0)
    mass /= mass.sum(1, keepdims=True)
    table = pa.table(
        {
            "run_id": run_ids,
            "step_index": indices,
            "teacher_move": moves.astype(np.uint8),
            "legal_mask": legal,
            "argmax_head": mass.argmax(1).astype(np.uint8),
            "argmax_prob": mass.max(1).astype(np.float32),
        }
    )
    archive.annotate(model, table, progress=False, partial=True)
