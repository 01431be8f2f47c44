"""The tables of the report, compared with the four plots of a dataset that are common in the field.

The plots are: scores, lengths with the steps at which each run first shows a tile, boards that contain a tile, and runs
that are still alive. NumPy computes their numbers from the source files, as those plots do.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
import formats
import macroxue_packs
import oracle
import report_page
from conftest import FIXTURES, WITHOUT_FIXTURES
from oracle import Array

BINS = 50
MAX_BARS = 60
FIRST_TILES = [512, 1024, 2048, 4096, 8192, 16384, 32768]
PRESENT_TILES = [8192, 16384, 32768, 65536]
# The bins of the field's plots, and narrower ones for shorter games.
WIDTHS = [500, 40]


@dataclass(frozen=True)
class Source:
    """The content of a source folder, in the order of its runs."""

    scores: Array
    lengths: Array
    runs: Array
    """The place of each step's run."""
    steps: Array
    tiles: Array
    """The tiles of each step's board, shape (n, 16); 0 for an empty cell."""

    def first_steps(self, shows: Array) -> list[tuple[int, int]]:
        """Return each run with its first step for which ``shows`` holds."""
        firsts: dict[int, int] = {}
        for run, step in zip(self.runs[shows].tolist(), self.steps[shows].tolist(), strict=True):
            firsts[run] = min(step, firsts.get(run, step))
        return sorted(firsts.items())

    def containing(self, tile: int) -> Array:
        found: Array = (self.tiles == tile).any(1)
        return found

    def alive(self, first_step: int) -> int:
        return int((self.lengths > first_step).sum())


def read(folder: Path) -> Source:
    """Read a NumPy dataset or a Macroxue pack, with NumPy and SQLite alone."""
    rows = np.concatenate([np.load(path) for path in sorted(folder.glob("steps*.npy"))])
    is_pack = "tile_65536_mask" in (rows.dtype.names or ())
    columns = f"id, {'steps' if is_pack else 'num_steps'}, max_score"
    with closing(sqlite3.connect(f"file:{folder / 'metadata.db'}?mode=ro&immutable=1", uri=True)) as database:
        ids, lengths, scores = np.array(database.execute(f"SELECT {columns} FROM runs ORDER BY id").fetchall()).T
    exps = rows["board"][:, None] >> np.arange(60, -4, -4, dtype="u8") & np.uint64(15)
    if is_pack:
        exps += rows["tile_65536_mask"].astype("u8")[:, None] >> np.arange(16, dtype="u8") & np.uint64(1)
    tiles = np.where(exps > 0, np.uint64(1) << exps, 0)
    return Source(scores, lengths, np.searchsorted(ids, rows["run_id"]), rows["step_index"], tiles)


# Sources


def simulated(folder: Path) -> None:
    """Write a dataset of games of two depths."""
    for depth in (0, 1):
        a2store.simulate(folder / f"runs-{depth}", runs=12, seed=depth, depth=depth, progress=False)
    files = sorted(folder.glob("runs-*/*"))
    formats.write_dataset(folder / "source", [oracle.decode(path.read_bytes()) for path in files])


def played(rng: np.random.Generator, start: Array, num_steps: int) -> list[tuple[Array, int, int]]:
    """Play a game by a simple rule. Return the exponents of each board, the move, and the legal moves."""
    steps: list[tuple[Array, int, int]] = []
    board = start
    while len(steps) < num_steps:
        after = [slid(board, move) for move in range(4)]
        legal = [move for move in (2, 1, 3, 0) if (after[move] != board).any()]
        if not legal:
            break
        steps.append((board, legal[0], sum(1 << move for move in legal)))
        board = after[legal[0]].copy()
        board[rng.choice(np.flatnonzero(board == 0))] = rng.choice([1, 1, 1, 2])
    return steps


def slid(board: Array, move: int) -> Array:
    """Return the sixteen exponents after a move; 0 up, 1 down, 2 left, 3 right."""
    after = np.zeros((4, 4), int)
    square = board.reshape(4, 4)
    for index in range(4):
        line = square[:, index] if move < 2 else square[index]
        tiles = [int(exp) for exp in (line[::-1] if move % 2 else line) if exp]
        merged = []
        while tiles:
            exp = tiles.pop(0)
            if tiles and tiles[0] == exp and exp < 16:
                exp = tiles.pop(0) + 1
            merged.append(exp)
        merged += [0] * (4 - len(merged))
        view = after[:, index] if move < 2 else after[index]
        view[:] = merged[::-1] if move % 2 else merged
    return after.ravel()


def large(folder: Path) -> None:
    """Write a pack of games whose boards have tiles from 8,192 to 65,536."""
    rng = np.random.default_rng(7)
    rows, runs = [], []
    for run_id in range(24):
        start = np.zeros(16, int)
        start[:4] = [[15, 15, 14, 13], [16, 14, 13, 13], [13, 1, 0, 0], [16, 16, 15, 1]][run_id % 4]
        steps = played(rng, start, 160)
        for step, (exps, move, legal) in enumerate(steps):
            board = int("".join(f"{min(exp, 15):x}" for exp in exps), 16)
            mask = sum(1 << cell for cell, exp in enumerate(exps) if exp == 16)
            values = [1.0 if legal >> way & 1 else 0.0 for way in range(4)]
            rows.append((run_id, step, board, 0, mask, move, 0, legal, int(exps.max()), run_id, values))
        tile = 2 ** max(int(exps.max()) for exps, _, _ in steps)
        runs.append((run_id, run_id, len(steps), 1_000_000 + 4 * int(rng.integers(8)), tile))
    macroxue_packs.write(folder / "source", np.array(rows, macroxue_packs.PACKED), runs)


SOURCES: dict[str, Path | Callable[[Path], None]] = {
    "simulated": simulated,
    "large tiles": large,
    "real dataset": FIXTURES / "npy",
    "real pack": FIXTURES / "macroxue" / "merged",
}

Case = tuple[Source, a2store.Archive]


@pytest.fixture(scope="module", params=SOURCES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """The content of a source, and an archive of it."""
    folder = tmp_path_factory.mktemp("plots")
    source = SOURCES[request.param]
    if callable(source):
        source(folder)
        source = folder / "source"
    elif not source.is_dir():
        pytest.skip(WITHOUT_FIXTURES)
    archive = a2store.Archive.create(folder / "games.a2")
    report = archive.ingest(source, progress=False)
    content = read(source)
    assert (report.accepted, report.rejected) == (len(content.lengths), 0)
    return content, archive


def asked(archive: a2store.Archive, name: str, *columns: str, **parameters: Any) -> list[tuple[Any, ...]]:
    table = pa.table(archive.query(name, **parameters))
    return list(zip(*(table[column].to_pylist() for column in columns), strict=True))


def test_the_sources_have_what_the_plots_show(tmp_path: Path) -> None:
    """Without such games, the comparisons below would compare nothing."""
    large(tmp_path)
    content = read(tmp_path / "source")
    for tile in PRESENT_TILES:
        counts = np.bincount(content.steps[content.containing(tile)] // WIDTHS[1], minlength=3)
        assert (counts[:3] > 0).all(), (tile, counts)
    assert len(np.unique(content.scores)) < len(content.scores)
    assert len(np.unique(content.lengths)) > 10


# The plots


def test_scores(case: Case) -> None:
    content, archive = case
    exact = asked(archive, "score_histogram", "min_score", "num_runs", width=1)
    scores, counts = np.unique(content.scores, return_counts=True)
    assert len(scores) <= MAX_BARS
    assert exact == list(zip(scores.tolist(), counts.tolist(), strict=True))
    bars, edges = np.histogram(content.scores, BINS)
    found, found_edges = np.histogram([row[0] for row in exact], BINS, weights=[row[1] for row in exact])
    assert found.tolist() == bars.tolist()
    assert found_edges.tolist() == edges.tolist()


def test_lengths_and_first_steps(case: Case) -> None:
    content, archive = case
    exact = asked(archive, "length_histogram", "min_steps", "num_runs", width=1)
    bars, edges = np.histogram(content.lengths, BINS)
    found, found_edges = np.histogram([row[0] for row in exact], BINS, weights=[row[1] for row in exact])
    assert found.tolist() == bars.tolist()
    assert found_edges.tolist() == edges.tolist()

    points = asked(archive, "tile_first_steps", "run_id", "tile", "step_index", min_tile=FIRST_TILES[0])
    for tile in FIRST_TILES:
        shown = [(run, step) for run, shown_tile, step in points if shown_tile == tile]
        assert shown == content.first_steps(content.containing(tile)), tile


def test_boards_that_contain_a_tile(case: Case) -> None:
    content, archive = case
    for width in WIDTHS:
        rows = asked(archive, "tile_presence", "first_step", "tile", "num_containing", width=width)
        found = {(first, tile): count for first, tile, count in rows}
        for tile in PRESENT_TILES:
            counts = np.bincount(content.steps[content.containing(tile)] // width, minlength=1)
            expected = {(place * width, tile): count for place, count in enumerate(counts.tolist()) if count}
            assert {key: count for key, count in found.items() if key[1] == tile} == expected


def test_runs_alive(case: Case) -> None:
    content, archive = case
    for width in WIDTHS:
        rows = asked(archive, "survivorship", "first_step", "num_alive", width=width)
        for first in range(0, int(content.lengths.max()), width):
            # A bin in which no run ends has no row, and as many runs alive as the next bin with a row.
            found = next(alive for first_step, alive in rows if first_step >= first)
            assert found == content.alive(first), (width, first)
        assert rows[-1][0] == (content.lengths.max() - 1) // width * width


def test_the_report_has_these_numbers(case: Case) -> None:
    content, archive = case
    results = report_page.report(archive)["results"]

    def rows(key: str, *columns: str) -> list[tuple[Any, ...]]:
        result = results[key]
        assert result["error"] is None
        places = [result["columns"].index(column) for column in columns]
        return [tuple(row[place] for place in places) for row in result["rows"]]

    def width(key: str) -> int:
        found: int = results[key]["parameters"]["width"]
        return found

    for key, column, numbers in [
        ("score_histogram", "min_score", content.scores),
        ("length_histogram", "min_steps", content.lengths),
    ]:
        bins, counts = np.unique(numbers // width(key) * width(key), return_counts=True)
        found: dict[int, int] = {}
        for first, count in rows(key, column, "num_runs"):
            found[first] = found.get(first, 0) + count
        assert found == dict(zip(bins.tolist(), counts.tolist(), strict=True))

    points = rows("first_reach_sample", "run_id", "tile", "step_index")
    for tile in FIRST_TILES:
        reached = content.first_steps(np.max(content.tiles, axis=1) >= tile)
        assert [(run, step) for run, reached_tile, step in points if reached_tile == tile] == reached

    for tile in PRESENT_TILES:
        places = content.steps[content.containing(tile)] // width("tile_presence") * width("tile_presence")
        bins, counts = np.unique(places, return_counts=True)
        shown = [
            (first, count)
            for first, shown_tile, count in rows("tile_presence", "first_step", "tile", "num_containing")
            if shown_tile == tile
        ]
        assert shown == list(zip(bins.tolist(), counts.tolist(), strict=True))

    ended: dict[int, int] = {}
    for first, count in rows("survivorship", "first_step", "num_ended"):
        ended[first] = ended.get(first, 0) + count
    left = len(content.lengths)
    for first in sorted(ended):
        assert left == content.alive(first)
        left -= ended[first]
    assert left == 0
