"""Questions about an archive: filters on columns with statistics, filters on other columns, and whole scans.

a2store and DuckDB use the same SQL, unless a2store has a saved query for the question. For polars, a question is a
function of the module and the lazy frames of ``steps`` and ``runs``, so this file does not import polars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

import a2store

Frames: TypeAlias = Callable[[Any, Any, Any], Any]
"""From the polars module and the lazy frames of steps and runs to the lazy frame of the answer."""

COLUMNS = ("board", "ev_up", "ev_down", "ev_left", "ev_right", "move", "ev_legal", "run_id", "step_index")
"""The columns of a row of a training table."""
VALUES = COLUMNS[1:5]


@dataclass(frozen=True)
class Question:
    """One question, written for each competitor."""

    name: str
    form: Literal["rows", "table"]
    """Rows of steps, streamed and dropped, or a small table that is collected."""
    sql: str
    polars: Frames
    saved: str | None = None
    """The name of a2store's saved query; the SQL is then for DuckDB only."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """Parameters of the saved query."""


@dataclass(frozen=True)
class Filter:
    """A condition on steps, in SQL and for polars."""

    name: str
    sql: str
    polars: Callable[[Any], Any]


@dataclass(frozen=True)
class Facts:
    """Bounds for the filters, which select known shares of an archive's steps."""

    scores: dict[int, int]
    """By percentage of the steps: the minimum score of the runs with the highest scores that make up this share."""
    engine: str | None
    """The engine whose share of the steps is nearest to a fifth."""
    tile: int
    """The highest tile that the runs of about a tenth of the steps reach."""
    runs: tuple[int, int]
    """The first and the last id of a hundredth of the runs."""

    @classmethod
    def of(cls, archive: a2store.Archive) -> Facts:
        """Compute the bounds."""
        query = "SELECT run_id, max_score, highest_tile, num_steps, engine FROM runs ORDER BY max_score DESC"
        runs = pa.table(archive.sql(query))
        steps, tiles = runs["num_steps"].to_numpy(), runs["highest_tile"].to_numpy()
        reached = np.cumsum(steps) / steps.sum()
        scores = {
            percent: runs["max_score"][int(np.searchsorted(reached, percent / 100))].as_py() for percent in (1, 10, 50)
        }
        engines: dict[str, int] = {}
        for engine, number in zip(runs["engine"].to_pylist(), steps.tolist(), strict=True):
            if engine is not None:
                engines[engine] = engines.get(engine, 0) + number
        ids = np.sort(runs["run_id"].to_numpy())
        low = len(ids) * 2 // 5
        return cls(
            scores,
            _nearest({name: number / steps.sum() for name, number in engines.items()}, 0.2),
            _nearest({int(tile): steps[tiles >= tile].sum() / steps.sum() for tile in np.unique(tiles)}, 0.1) or 0,
            (int(ids[low]), int(ids[low + max(1, len(ids) // 100) - 1])),
        )


def _nearest(shares: dict[Any, float], share: float) -> Any:
    """Return the key whose share is nearest to the given one, or None if there is no key."""
    return min(shares, key=lambda key: abs(shares[key] - share), default=None)


def _quoted(text: str) -> str:
    """Write a string as a SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def _rows(where: Filter) -> Question:
    """Return a question for the filtered rows, with the columns of a training table."""
    return Question(
        f"{where.name}: rows",
        "rows",
        f"SELECT {', '.join(COLUMNS)} FROM steps WHERE {where.sql}",
        lambda pl, steps, _runs: steps.filter(where.polars(pl)).select(COLUMNS),
    )


def _sums(where: Filter) -> Question:
    """Return a question for sums over the filtered rows."""
    return Question(
        f"{where.name}: sums",
        "table",
        # In polars, the sum of no values is 0.
        f"SELECT count(*) AS n, sum(step_index) AS steps, coalesce(sum(ev_up), 0) AS up FROM steps WHERE {where.sql}",
        lambda pl, steps, _runs: steps.filter(where.polars(pl)).select(
            n=pl.len(), steps=pl.col("step_index").cast(pl.UInt64).sum(), up=pl.col("ev_up").cast(pl.Float64).sum()
        ),
    )


def _count(where: Filter) -> Question:
    """Return a question for the number of filtered rows."""
    return Question(
        f"{where.name}: count",
        "table",
        f"SELECT count(*) AS n FROM steps WHERE {where.sql}",
        lambda pl, steps, _runs: steps.filter(where.polars(pl)).select(n=pl.len()),
    )


def by_statistics(facts: Facts) -> Iterator[Question]:
    """Yield filters that columns of runs, or statistics of row groups and pages, answer completely or almost."""
    scores = [
        Filter(
            f"max_score, {percent} %",
            f"max_score >= {score}",
            lambda pl, score=score: pl.col("max_score") >= score,  # type: ignore[misc]
        )
        for percent, score in facts.scores.items()
    ]
    for where in scores:
        yield _rows(where)
        yield _sums(where)
    yield _count(scores[0])
    yield _count(scores[1])
    engine, tile, (first, last) = facts.engine, facts.tile, facts.runs
    middle = (first + last) // 2
    others = [
        Filter("highest_tile", f"highest_tile >= {tile}", lambda pl: pl.col("highest_tile") >= tile),
        Filter(
            "run_id, 1 %", f"run_id BETWEEN {first} AND {last}", lambda pl: pl.col("run_id").is_between(first, last)
        ),
        Filter("one run", f"run_id = {middle}", lambda pl: pl.col("run_id") == middle),
        Filter("openings", "step_index < 50", lambda pl: pl.col("step_index") < 50),
        Filter(
            "steps 500 to 600", "step_index BETWEEN 500 AND 600", lambda pl: pl.col("step_index").is_between(500, 600)
        ),
    ]
    if engine is not None:
        score = facts.scores[50]
        others[:0] = [
            Filter("engine", f"engine = {_quoted(engine)}", lambda pl: pl.col("engine") == engine),
            Filter(
                "engine and max_score",
                f"engine = {_quoted(engine)} AND max_score >= {score}",
                lambda pl: (pl.col("engine") == engine) & (pl.col("max_score") >= score),
            ),
        ]
    for where in others:
        yield _rows(where)
        yield _sums(where)


def by_data(facts: Facts) -> Iterator[Question]:
    """Yield filters that need the data itself, and whole scans."""
    score = facts.scores[10]
    for where in (
        Filter("late", "phase = 'late'", lambda pl: pl.col("phase") == "late"),
        Filter(
            "late and max_score",
            f"phase = 'late' AND max_score >= {score}",
            lambda pl: (pl.col("phase") == "late") & (pl.col("max_score") >= score),
        ),
        Filter("max_exp", "max_exp >= 12", lambda pl: pl.col("max_exp") >= 12),
        Filter("move", "move = 2", lambda pl: pl.col("move") == 2),
        Filter("ev_up", "ev_up > 0.9", lambda pl: pl.col("ev_up") > 0.9),
    ):
        yield _rows(where)
        yield _sums(where)
    yield Question(
        "all rows",
        "rows",
        f"SELECT {', '.join(COLUMNS)} FROM steps",
        lambda pl, steps, _runs: steps.select(COLUMNS),
    )
    yield Question(
        "sum of the boards' first cells",
        "table",
        "SELECT sum(board >> 60) AS cells FROM steps",
        # A right shift by a constant is a division by a power of two.
        lambda pl, steps, _runs: steps.select(cells=(pl.col("board") // (1 << 60)).sum()),
    )
    yield Question(
        "sums of the four values",
        "table",
        f"SELECT {', '.join(f'sum({name}) AS {name}' for name in VALUES)} FROM steps",
        lambda pl, steps, _runs: steps.select(pl.col(VALUES).cast(pl.Float64).sum()),
    )
    yield Question(
        "nine columns",
        "table",
        "SELECT bit_xor(board) AS board, sum(run_id) AS run_id, sum(step_index) AS step_index, sum(move) AS move, "
        f"sum(ev_legal) AS ev_legal, {', '.join(f'sum({name}) AS {name}' for name in VALUES)} FROM steps",
        lambda pl, steps, _runs: steps.select(
            pl.col("board").bitwise_xor(),
            pl.col("run_id", "step_index", "move", "ev_legal").cast(pl.UInt64).sum(),
            pl.col(VALUES).cast(pl.Float64).sum(),
        ),
    )
    yield Question(
        "steps by phase and move",
        "table",
        "SELECT phase, move, count(*) AS n, avg(step_index) AS step_index FROM steps GROUP BY phase, move",
        # Groups by codes, renamed afterwards, take less time than groups by categories.
        lambda pl, steps, _runs: (
            steps.group_by(pl.col("phase").to_physical(), "move")
            .agg(n=pl.len(), step_index=pl.col("step_index").mean())
            .with_columns(pl.col("phase").cat.to(pl.Categorical))
        ),
    )
