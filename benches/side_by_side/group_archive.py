"""The archive of a group of engines: five engines, both formats, several ingests, compacted.

The archive is created once and kept in a cache folder, under a name with its size. Any part can use it with
``--archive``. Within an ingest, the games of an engine are contiguous, because each engine writes to its own folder.
Scores have no order.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from report import Report, millions, table

import a2store

CACHE = Path(__file__).resolve().parents[2] / "target" / "side_by_side"
MIX = 2  # increase it after changes below, so that a cached archive of an older mix is not used
INGESTS = 4


@dataclass(frozen=True)
class Engine:
    """An engine of the group: its search depth and its share of the steps."""

    name: str
    format: Literal["a2run2", "a2t1"]
    depth: int
    share: float
    steps_per_run: int
    """Approximate; it only determines the number of games for the share."""


ENGINES = (
    Engine("expectimax", "a2run2", 1, 0.46, 1_640),
    Engine("expectimax-2024", "a2t1", 1, 0.20, 1_640),
    Engine("greedy", "a2run2", 0, 0.22, 358),
    Engine("greedy-2024", "a2t1", 0, 0.11, 358),
    # The games of this engine are long and reach the largest tiles, but each step costs fifty times as much as with
    # depth 1.
    Engine("deep", "a2run2", 2, 0.01, 4_000),
)


def group_archive(report: Report, steps: int, cache: Path = CACHE) -> Path:
    """Return an archive of at least this many steps, from the cache if it is there."""
    kept = cache / f"group-{MIX}-{steps}.a2"
    if kept.exists():
        return kept
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="making-", dir=cache) as folder:
        made = _make(report, steps, Path(folder))
        made.rename(kept)
    return kept


def _make(report: Report, steps: int, folder: Path) -> Path:
    """Play, ingest in parts and compact, and print the rate of each stage."""
    seconds = dict.fromkeys(("simulate", "ingest", "compact"), 0.0)
    archive = a2store.Archive.create(folder / "games.a2")

    def add(seed: int, engines: tuple[Engine, ...], steps: float) -> None:
        runs = folder / "runs"
        start = time.perf_counter()
        for number, engine in enumerate(engines):
            a2store.simulate(
                runs / engine.name,
                runs=max(1, math.ceil(steps * engine.share / engine.steps_per_run)),
                seed=1_000 * seed + number,
                format=engine.format,
                depth=engine.depth,
                engine=engine.name,
                progress=False,
            )
        between = time.perf_counter()
        archive.ingest(runs, progress=False)
        seconds["simulate"] += between - start
        seconds["ingest"] += time.perf_counter() - between
        shutil.rmtree(runs)

    for at in range(INGESTS):
        add(at, ENGINES, steps / INGESTS)
    seed = INGESTS
    while archive.num_steps < steps:
        # The fast engine fills the gap if games were shorter than estimated.
        add(seed, (ENGINES[2],), max(2 * (steps - archive.num_steps), 0.01 * steps) / ENGINES[2].share)
        seed += 1

    start = time.perf_counter()
    archive.compact(progress=False)
    archive.expire(older_than=0, grace=0)
    seconds["compact"] = time.perf_counter() - start
    lines = []
    for stage, taken in seconds.items():
        report.add("group archive", stage, steps_per_s=archive.num_steps / taken)
        lines.append((stage, f"{archive.num_steps:,}", millions(archive.num_steps / taken)))
    table(f"a new archive of {len(ENGINES)} engines, kept in the cache", ("", "steps", "steps/s"), lines)
    return Path(archive.path)
