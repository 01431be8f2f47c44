"""The statistics of the named queries, compared with loops over the games of small and unusual archives.

The loops read the archive's Parquet files and follow the definitions of the statistics. They share nothing with the
queries or with the SQL that ``saved_oracle`` has for DuckDB.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import a2store
import formats
import games
import oracle
import test_large_tiles
from saved_cases import QUERIES, assert_rows, rows

Cells = tuple[int, ...]
Row = tuple[Any, ...]
PHASES = ("early", "mid", "late")
Z = NormalDist().inv_cdf(0.975)
TURNS = [tuple(np.ravel(np.arange(16).reshape(4, 4)[turn]).tolist()) for turn in test_large_tiles.TURNS]
"""For each symmetry, the sources of the sixteen cells."""


@dataclass(frozen=True)
class Step:
    run: int
    index: int
    cells: Cells
    board: int
    mask: int
    move: int | None
    evs: tuple[float | None, ...]
    has_evs: bool
    phase: str
    engine: str | None
    raw: bool

    @property
    def top(self) -> int:
        return max(self.cells)

    @property
    def known(self) -> list[float]:
        return [ev for ev in self.evs if ev is not None and not math.isnan(ev)]

    def normal(self, ev: float) -> np.float32:
        """Return a raw value as a number from 0 to 1, as the field's formats store it."""
        if not self.raw:
            return np.float32(ev)
        least, most = min(self.known), max(self.known)
        if len(self.known) == 1:
            return np.float32(1 - 2**-23)
        return np.float32(0.5 if least == most else min((ev - least) / (most - least), 1 - 2**-23))

    @property
    def gap(self) -> float | None:
        if not self.has_evs or len(self.known) < 2:
            return None
        best, second = sorted(self.known)[:-3:-1]
        return float(self.normal(best) - self.normal(second))

    @property
    def loss(self) -> float | None:
        chosen = None if self.move is None or not self.has_evs else self.evs[self.move]
        return None if chosen is None else float(self.normal(max(self.known)) - self.normal(chosen))


@dataclass(frozen=True)
class Content:
    """The rows of an archive's files."""

    steps: list[Step]
    runs: list[dict[str, Any]]

    def steps_of(self, run: int) -> list[Step]:
        return [step for step in self.steps if step.run == run]


def wide(board: int, mask: int | None) -> Cells:
    return tuple(exp + ((mask or 0) >> cell & 1) for cell, exp in enumerate(oracle.cells(board)))


def content(archive: a2store.Archive) -> Content:
    steps = []
    runs = [run for file in archive.files("runs") for run in pq.read_table(file).to_pylist()]
    raw = {run["run_id"]: bool(run["raw_evs"]) for run in runs}
    for file in archive.files("steps"):
        for row in pq.read_table(file).to_pylist():
            mask = row["tile_65536_mask"] or 0
            evs = tuple(row[f"ev_{way}"] for way in ("up", "down", "left", "right"))
            place = (row["run_id"], row["step_index"], wide(row["board"], mask), row["board"], mask)
            rest = (row["has_evs"], row["phase"], row["engine"], raw[row["run_id"]])
            steps.append(Step(*place, row["move"], evs, *rest))
    steps.sort(key=lambda step: (step.run, step.index))
    return Content(steps, sorted(runs, key=lambda run: run["run_id"]))


# Archives


def mixed(folder: Path) -> list[Path]:
    """Write finished, stopped and empty games with and without values, a sampled session, and tiles of 65,536."""
    rng = random.Random(5)
    for number in range(36):
        engine = ("one", "two", None)[number % 3]
        length = (1000, 60, 1000, 0)[number % 4]
        game = games.play(rng, length, engine=engine, without_evs=(0.0, 0.3, 1.0)[number % 3])
        path = folder / "runs" / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(oracle.encode_a2t1(game) if number % 5 == 4 else oracle.encode_a2run2(game))
    # The last step of the second game is missing, but its indices have no gap.
    formats.write_session(folder / "session", [games.play(rng, length) for length in (50, 2, 50)], sample_rate=3)
    formats.write_session(folder / "moves", [games.play(rng, 40) for _ in range(3)], sample_rate=2, action=True)
    large(folder)
    return [folder / "runs", folder / "session", folder / "moves", folder / "logs"]


def large(folder: Path) -> list[Path]:
    """Write games that begin with tiles of 65,536."""
    # The nibbles of the first boards of the last two games are equal.
    starts = [[*first, 15, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] for first in ([16, 15], [15, 16])]
    last = [test_large_tiles.play(random.Random(4), start, 9) for start in starts]
    for number, game in enumerate([*test_large_tiles.GAMES, *last]):
        test_large_tiles.write_log(folder / "logs", number, game)
    return [folder / "logs"]


def single(folder: Path) -> list[Path]:
    """Write one finished game without an engine."""
    (folder / "game.bin").write_bytes(oracle.encode_a2run2(games.play(random.Random(1), 1000)))
    return [folder / "game.bin"]


def bare(folder: Path) -> list[Path]:
    """Write sampled games without moves and values."""
    formats.write_session(folder / "session", [games.play(random.Random(n), 70) for n in range(5)], sample_rate=2)
    return [folder / "session"]


def no_steps(folder: Path) -> list[Path]:
    """Write one game without steps."""
    (folder / "game.bin").write_bytes(oracle.encode_a2run2(games.play(random.Random(2), 0, engine="one")))
    return [folder / "game.bin"]


@dataclass(frozen=True)
class Asked:
    archive: a2store.Archive
    content: Content


@pytest.fixture(scope="module", params=[mixed, large, single, bare, no_steps], ids=lambda make: make.__name__)
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Asked:
    folder = tmp_path_factory.mktemp("sources")
    archive = a2store.Archive.create(folder / "games.a2", phases={"mid": 64, "late": 256})
    for path in request.param(folder):
        archive.ingest(path, progress=False)
    return Asked(archive, content(archive))


def test_the_archives_have_the_cases(tmp_path: Path) -> None:
    archive = a2store.Archive.create(tmp_path / "games.a2")
    for path in mixed(tmp_path):
        archive.ingest(path, progress=False)
    found = content(archive)
    assert {run["engine"] for run in found.runs} >= {"one", "two", None}
    assert any(run["num_steps"] == 0 for run in found.runs)
    assert {stopped(run) for run in found.runs} == {True, False}
    assert any(step.mask for step in found.steps)
    assert any(step.move is None for step in found.steps)
    assert any(not step.has_evs for step in found.steps)
    assert {step.raw for step in found.steps} == {True, False}
    assert any(run["format"] == "session" and run["game_steps"] > run["num_steps"] for run in found.runs)


# Statistics by their definitions


def wilson(share: float, size: float) -> list[float]:
    """Return the two shares whose distance from the found share is Z times their own standard error."""
    roots = np.roots([1 + Z * Z / size, -2 * share - Z * Z / size, share * share])
    return sorted(min(max(float(root.real), 0), 1) for root in roots)


def nearest(values: Sequence[int], percent: int) -> int:
    """Return the value whose place among the sorted values is nearest to this percentage, from 0."""
    return sorted(values)[math.floor(percent / 100 * (len(values) - 1) + 0.5)]


def legal(cells: Cells) -> list[int]:
    return [move for move in range(4) if test_large_tiles.slide(cells, move)[0] != cells]


def stopped(run: dict[str, Any]) -> bool:
    if run["final_board"] is None:
        return False
    return bool(legal(wide(run["final_board"], run["final_tile_65536_mask"])))


def turned(cells: Cells) -> tuple[Cells, list[int]]:
    """Return the canonical cells, and the numbers of all symmetries that lead to them."""
    images = [tuple(cells[cell] for cell in turn) for turn in TURNS]
    least = min(images, key=test_large_tiles.packed)
    return least, [number for number, image in enumerate(images) if image == least]


def turned_move(move: int, turn: int) -> int:
    """Return the direction of a move after a symmetry: the side of the wall that the tiles slide to."""
    walls = ({0, 1, 2, 3}, {12, 13, 14, 15}, {0, 4, 8, 12}, {3, 7, 11, 15})
    side = {at for at, source in enumerate(TURNS[turn]) if source in walls[move]}
    return walls.index(side)


def in_order(found: Iterable[Row], phase: int | None = None) -> list[Row]:
    """Return rows sorted by engine, nulls last, then by phase. The sort is stable."""
    rows = sorted(found, key=lambda row: (row[0] is None, row[0] or ""))
    if phase is not None:
        rows.sort(key=lambda row: (row[0] is None, row[0] or "", PHASES.index(row[phase])))
    return rows


def grouped(things: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = defaultdict(list)
    for thing in things:
        found[key(thing)].append(thing)
    return found


def runs_by(found: Content, by_engine: bool) -> dict[Any, list[dict[str, Any]]]:
    return grouped(found.runs, lambda run: run["engine"] if by_engine else None)


def steps_by(found: Content, by_engine: bool) -> dict[Any, list[Step]]:
    return grouped(found.steps, lambda step: (step.engine if by_engine else None, step.phase))


def archive_summary(found: Content, limit: int) -> Iterator[Row]:
    rows = []
    for (engine, name), runs in grouped(found.runs, lambda run: (run["engine"], run["format"])).items():
        steps = {run["run_id"]: found.steps_of(run["run_id"]) for run in runs}
        sampled = sum(
            (run["game_steps"] or 0) > run["num_steps"]
            or [step.index for step in steps[run["run_id"]]] != list(range(run["num_steps"]))
            for run in runs
        )
        every = [step for of_run in steps.values() for step in of_run]
        starts = sorted(run["start_time"] for run in runs if run["start_time"] is not None)
        texts: list[str | None] = [f"{start:%Y-%m-%dT%H:%M:%SZ}" for start in starts]
        texts = texts or [None]
        rows.append(
            (
                engine,
                name,
                len(runs),
                len(every),
                sampled,
                sum(run["verified"] for run in runs),
                sum(bool(run["raw_evs"]) for run in runs),
                sum(bool(of_run) and all(step.move is None for step in of_run) for of_run in steps.values()),
                sum(bool(of_run) and not any(step.has_evs for step in of_run) for of_run in steps.values()),
                sum(run["final_board"] is None for run in runs),
                sum(map(stopped, runs)),
                sum(step.move is None for step in every),
                sum(not step.has_evs for step in every),
                min(run["max_score"] for run in runs),
                max(run["max_score"] for run in runs),
                max(run["highest_tile"] for run in runs),
                max(run["num_steps"] for run in runs),
                math.fsum(run["elapsed_s"] for run in runs),
                texts[0],
                texts[-1],
                min(run["version"] for run in runs),
                max(run["version"] for run in runs),
            )
        )
    rows.sort(key=lambda row: (-row[2], row[0] is None, row[0] or "", row[1]))
    yield from rows[:limit]


def score_ecdf(found: Content, points: int, by_engine: bool) -> Iterator[Row]:
    for engine, runs in runs_by(found, by_engine).items():
        scores = [run["max_score"] for run in runs]
        margin = math.sqrt(math.log(2 / 0.05) / (2 * len(scores)))
        places = set()
        for score in sorted(set(scores)):
            below = sum(other <= score for other in scores)
            place = (below - 1) * points // len(scores)
            if place not in places or below == len(scores):
                share = below / len(scores)
                yield engine, score, below, len(scores), share, max(share - margin, 0), min(share + margin, 1)
            places.add(place)


def firsts(found: Content, run: int, min_tile: int) -> list[tuple[int, int]]:
    """Return the tiles, and the first step of the run whose board has such a tile or a larger one."""
    steps = found.steps_of(run)
    tiles = [2**exp for exp in range(1, 17) if 2**exp >= min_tile]
    reached = [(tile, [step.index for step in steps if 2**step.top >= tile]) for tile in tiles]
    return [(tile, min(indices)) for tile, indices in reached if indices]


def first_reach(found: Content, min_tile: int, by_engine: bool) -> Iterator[Row]:
    for engine, runs in runs_by(found, by_engine).items():
        points = sorted(point for run in runs for point in firsts(found, run["run_id"], min_tile))
        for tile, of_tile in groupby(points, key=lambda point: point[0]):
            steps = [step for _, step in of_tile]
            quantiles = [nearest(steps, percent) for percent in (10, 25, 50, 75, 90)]
            yield engine, tile, len(steps), min(steps), *quantiles, max(steps)


def first_reach_sample(found: Content, min_tile: int, max_runs: int) -> Iterator[Row]:
    runs = [run for run in found.runs if run["highest_tile"] >= min_tile]
    runs.sort(key=lambda run: run["run_id"] * 2654435761 % 2**32)
    for run in sorted(runs[:max_runs], key=lambda run: run["run_id"]):
        for point in firsts(found, run["run_id"], min_tile):
            yield run["run_id"], run["engine"], run["num_steps"], run["max_score"], *point


def tile_reach(found: Content, min_tile: int, by_engine: bool) -> Iterator[Row]:
    most = max([32768, *(run["highest_tile"] for run in found.runs)])
    for engine, runs in runs_by(found, by_engine).items():
        for tile in (2**exp for exp in range(1, 17) if min_tile <= 2**exp <= most):
            reached = [run["run_id"] for run in runs if run["highest_tile"] >= tile]
            steps = [step for run in reached for first, step in firsts(found, run, tile) if first == tile]
            share = len(reached) / len(runs)
            median = float(np.median(steps)) if steps else None
            yield engine, tile, len(runs), len(reached), share, *wilson(share, len(runs)), median


def tile_survival(found: Content, min_tile: int, by_engine: bool) -> Iterator[Row]:
    for engine, runs in runs_by(found, by_engine).items():
        for tile in (2**exp for exp in range(1, 16) if 2**exp >= min_tile):
            reached = [run for run in runs if run["highest_tile"] >= tile]
            further = [run for run in reached if run["highest_tile"] >= 2 * tile]
            if reached:
                share = len(further) / len(reached)
                yield engine, tile, len(reached), len(further), share, *wilson(share, len(reached))


def survivorship(found: Content, width: int, by_engine: bool) -> Iterator[Row]:
    for engine, every in runs_by(found, by_engine).items():
        runs = [(run["num_steps"], stopped(run)) for run in every if run["num_steps"]]
        survival, variance = [1.0], [0.0]
        for step in range(max((length for length, _ in runs), default=0)):
            alive = sum(length > step for length, _ in runs)
            over = sum(length == step + 1 and not cut for length, cut in runs)
            survival.append(survival[-1] * (1 - over / alive))
            variance.append(variance[-1] + (over / (alive * (alive - over)) if alive > over else math.inf))
        for first in range(0, len(survival) - 1, width):
            ended = [cut for length, cut in runs if first < length <= first + width]
            if ended:
                value = survival[first]
                limits = (1.0, 1.0)
                if value < 1:
                    error = Z * math.sqrt(variance[first]) / abs(math.log(value))
                    center = math.log(-math.log(value))
                    limits = (math.exp(-math.exp(center + error)), math.exp(-math.exp(center - error)))
                alive = sum(length > first for length, _ in runs)
                after = survival[min(first + width, len(survival) - 1)]
                counts = (alive, alive / len(runs), len(ended), sum(ended))
                yield engine, first, *counts, value, *limits, 1 - after / value


def histogram(found: Content, measure: str, by_engine: bool, bins: int) -> Iterator[Row]:
    for (engine, phase), steps in steps_by(found, by_engine).items():
        values = [value for step in steps if (value := getattr(step, measure)) is not None]
        edges = [10 ** (edge / bins) for edge in range(-9 * bins, 9 * bins + 1)]
        counts: Counter[tuple[float, float]] = Counter()
        for value in values:
            at = min(max(int(np.searchsorted(edges, value, "right")) - 1, 0), len(edges) - 2)
            counts[(edges[at], edges[at + 1]) if value > 0 else (0.0, 0.0)] += 1
        for edge, count in sorted(counts.items()):
            yield engine, phase, *edge, count, count / len(values)


def blunder_rate(found: Content, min_loss: float, by_engine: bool) -> Iterator[Row]:
    for (engine, phase), steps in steps_by(found, by_engine).items():
        losses = grouped([step for step in steps if step.loss is not None], lambda step: step.run)
        every = [step.loss for of_run in losses.values() for step in of_run]
        if not every:
            continue
        share = sum(loss >= min_loss for loss in every) / len(every)
        effect = None
        if len(losses) > 1 and 0 < share < 1:
            sums = [sum((step.loss >= min_loss) - share for step in of_run) for of_run in losses.values()]
            variance = len(sums) / (len(sums) - 1) * math.fsum(value**2 for value in sums) / len(every) ** 2
            effect = max(variance / (share * (1 - share) / len(every)), 1)
        counts = (len(losses), len(every), round(share * len(every)), share)
        limits = wilson(share, len(every) / (effect or 1))
        yield engine, phase, *counts, *limits, math.fsum(every) / len(every), effect


def move_mix(found: Content, by_engine: bool) -> Iterator[Row]:
    for (engine, phase), every in steps_by(found, by_engine).items():
        steps = [(step.cells, step.move) for step in every if step.move is not None]
        moves = Counter(move for _, move in steps)
        canonical = Counter(min(turned_move(move, turn) for turn in turned(cells)[1]) for cells, move in steps)
        for move in range(4) if steps else ():
            shares = (canonical[move], canonical[move] / len(steps))
            yield engine, phase, move, moves[move], moves[move] / len(steps), *shares


def corner_occupancy(found: Content, by_engine: bool) -> Iterator[Row]:
    for (engine, phase), steps in steps_by(found, by_engine).items():
        for cell in range(16):
            here = sum(step.cells[cell] == step.top for step in steps)
            there = sum(turned(step.cells)[0][cell] == step.top for step in steps)
            yield engine, phase, cell, len(steps), here, here / len(steps), there, there / len(steps)


# The order in which the documentation numbers the symmetries, as the sources of the cells.
NUMBERED = [
    tuple(np.ravel(image(np.arange(16).reshape(4, 4))).tolist())
    for image in (
        lambda cells: cells,
        lambda cells: np.rot90(cells, -1),
        lambda cells: np.rot90(cells, 2),
        lambda cells: np.rot90(cells, 1),
        np.fliplr,
        np.flipud,
        np.transpose,
        lambda cells: np.rot90(np.transpose(cells), 2),
    )
]


def first_moves(found: Content, first_steps: int, by_engine: bool) -> Iterator[Row]:
    for engine, runs in runs_by(found, by_engine).items():
        games = []
        for run in runs:
            path = ""
            for step in found.steps_of(run["run_id"])[:first_steps]:
                if step.index != len(path) or step.move is None:
                    break
                if step.index == 0:
                    turn = min(turned(step.cells)[1], key=lambda turn: NUMBERED.index(TURNS[turn]))
                path += "UDLR"[turned_move(step.move, turn)]
            games.append((path, run["max_score"]))
        nodes = sorted({(length, path[:length]) for path, _ in games for length in range(1, len(path) + 1)})
        for length, node in nodes:
            scores = [score for path, score in games if path.startswith(node)]
            parent = sum(path.startswith(node[:-1]) and len(path) >= length for path, _ in games)
            yield engine, length, node, len(scores), len(scores) / parent, math.fsum(scores) / len(scores)


def spawn_check(found: Content, max_steps: int, by_engine: bool) -> Iterator[Row]:
    chosen, total = set(), 0
    for run in sorted(found.runs, key=lambda run: run["run_id"] * 2654435761 % 2**32):
        if total < max_steps:
            chosen.add(run["run_id"])
        total += run["num_steps"]
    spawns: dict[Any, list[tuple[int, int, int]]] = defaultdict(list)
    for step, following in zip(found.steps, found.steps[1:], strict=False):
        if step.run not in chosen or (following.run, following.index) != (step.run, step.index + 1):
            continue
        if step.move is not None:
            slid = test_large_tiles.slide(step.cells, step.move)[0]
            (cell,) = [cell for cell in range(16) if slid[cell] != following.cells[cell]]
            spawn = (2 ** following.cells[cell], slid[:cell].count(0), slid.count(0))
            spawns[step.engine if by_engine else None].append(spawn)
    for engine, found_spawns in spawns.items():
        cases: list[tuple[str, int | None, int, int, float]] = []
        for empty, of_empty in sorted(grouped(found_spawns, lambda spawn: spawn[2]).items()):
            for rank in range(empty) if empty > 1 else ():
                number = sum(spawn[1] == rank for spawn in of_empty)
                cases.append(("rank", empty, rank, number, len(of_empty) / empty))
        for tile, chance in ((2, 0.9), (4, 0.1)):
            number = sum(spawn[0] == tile for spawn in found_spawns)
            cases.append(("tile", None, tile, number, len(found_spawns) * chance))
        for _, of_test in groupby(cases, key=lambda case: case[0]):
            every = list(of_test)
            statistic = math.fsum((number - expected) ** 2 / expected for *_, number, expected in every)
            degrees = len(every) - len({case[1] for case in every})
            yield from ((engine, *case, statistic, degrees) for case in every)


def repeated_positions(found: Content, one_in: int) -> Iterator[Row]:
    steps = grouped(found.steps, lambda step: turned(step.cells)[0])
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for cells, of_position in steps.items():
        board = test_large_tiles.packed(cells)[0]
        if ((board ^ board >> 32) * 11400714819323198485 % 2**64 >> 32) % one_in == 0:
            counts[of_position[0].phase][len(of_position)] += 1
    for phase in (phase for phase in PHASES if counts[phase]):
        total = sum(times * number for times, number in counts[phase].items())
        for least in (2**power for power in range(20)):
            inside = {times: number for times, number in counts[phase].items() if least <= times < 2 * least}
            if inside:
                num_steps = sum(times * number for times, number in inside.items())
                yield phase, least, 2 * least - 1, sum(inside.values()), num_steps, num_steps / total


def of_phases(rows: Iterable[Row]) -> list[Row]:
    return in_order(rows, phase=1)


BOTH: list[dict[str, Any]] = [{"by_engine": False}, {"by_engine": True}]
NAIVE: dict[str, tuple[Callable[..., Iterable[Row]], list[dict[str, Any]]]] = {
    "archive_summary": (archive_summary, [{"limit": 100}, {"limit": 1}]),
    "score_ecdf": (
        lambda *args, **named: in_order(score_ecdf(*args, **named)),
        [case | {"points": points} for case in BOTH for points in (1, 7, 200)],
    ),
    "first_reach": (
        lambda *args, **named: in_order(first_reach(*args, **named)),
        [case | {"min_tile": tile} for case in BOTH for tile in (2, 100, 65536)],
    ),
    "first_reach_sample": (
        first_reach_sample,
        [{"min_tile": tile, "max_runs": runs} for tile in (2, 128, 32768) for runs in (3, 200)],
    ),
    "tile_reach": (
        lambda *args, **named: in_order(tile_reach(*args, **named)),
        [case | {"min_tile": tile} for case in BOTH for tile in (2, 32768)],
    ),
    "tile_survival": (
        lambda *args, **named: in_order(tile_survival(*args, **named)),
        [case | {"min_tile": tile} for case in BOTH for tile in (2, 100)],
    ),
    "survivorship": (
        lambda *args, **named: in_order(survivorship(*args, **named)),
        [case | {"width": width} for case in BOTH for width in (1, 20, 1000)],
    ),
    "ev_gap_histogram": (
        lambda found, **named: of_phases(histogram(found, "gap", **named)),
        [case | {"bins": bins} for case in BOTH for bins in (1, 5)],
    ),
    "ev_loss_histogram": (
        lambda found, **named: of_phases(histogram(found, "loss", **named)),
        [case | {"bins": bins} for case in BOTH for bins in (1, 20)],
    ),
    "blunder_rate": (
        lambda *args, **named: of_phases(blunder_rate(*args, **named)),
        [case | {"min_loss": loss} for case in BOTH for loss in (0.1, 0.0, 1.0, 1e9)],
    ),
    "move_mix": (lambda *args, **named: of_phases(move_mix(*args, **named)), BOTH),
    "corner_occupancy": (lambda *args, **named: of_phases(corner_occupancy(*args, **named)), BOTH),
    "first_moves": (
        lambda *args, **named: in_order(first_moves(*args, **named)),
        [case | {"first_steps": steps} for case in BOTH for steps in (0, 1, 4, 5)],
    ),
    "spawn_check": (
        lambda *args, **named: in_order(spawn_check(*args, **named)),
        [case | {"max_steps": steps} for case in BOTH for steps in (0, 100, 10**6)],
    ),
    "repeated_positions": (repeated_positions, [{"one_in": number} for number in (1, 4)]),
}
"""For each query, its rows by definition, and the parameters."""


@pytest.mark.parametrize("name", NAIVE)
def test_rows_follow_the_definitions(asked: Asked, name: str) -> None:
    naive, cases = NAIVE[name]
    for case in cases:
        found = [tuple(row.values()) for row in rows(asked.archive.query(name, folder=QUERIES, **case))]
        assert_rows(found, list(naive(asked.content, **case)))


@pytest.mark.parametrize("name", [name for name in NAIVE if name != "archive_summary"])
def test_an_engine_selects_its_runs(asked: Asked, name: str) -> None:
    naive, cases = NAIVE[name]
    case = {**cases[0], "engine": "one"}
    steps = [step for step in asked.content.steps if step.engine == "one"]
    of_engine = Content(steps, [run for run in asked.content.runs if run["engine"] == "one"])
    found = [tuple(row.values()) for row in rows(asked.archive.query(name, folder=QUERIES, **case))]
    expected = list(naive(of_engine, **cases[0]))
    if name == "tile_reach":
        # The largest tile to report does not depend on the engine.
        found = found[: len(expected)]
    assert_rows(found, expected)


@pytest.mark.parametrize(
    ("name", "values", "instead"),
    [
        ("score_ecdf", {"points": -3}, {"points": 1}),
        ("score_ecdf", {"points": 10**15}, {"points": 1000}),
        ("ev_gap_histogram", {"bins": 0}, {"bins": 1}),
        ("ev_loss_histogram", {"bins": 10**15}, {"bins": 20}),
        ("repeated_positions", {"one_in": 0}, {"one_in": 1}),
        ("first_moves", {"first_steps": 2**64 - 1}, {"first_steps": 5}),
    ],
)
def test_parameters_beyond_their_range(
    asked: Asked, name: str, values: dict[str, Any], instead: dict[str, Any]
) -> None:
    """The nearest valid value is used, so the number of rows stays limited."""
    found = rows(asked.archive.query(name, folder=QUERIES, **values))
    assert found == rows(asked.archive.query(name, folder=QUERIES, **instead))
