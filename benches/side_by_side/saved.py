"""The saved queries with their parameters; DuckDB and polars have their own versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import in_duckdb
import in_polars
from questions import Facts, Question
from terms import WIDTH

PARAMETERS: dict[str, dict[str, Any]] = {
    "score_histogram": {"by_engine": True},
    "tile_reach": {"by_engine": True},
    "tile_presence": {"width": WIDTH},
    "phase_mix": {},
    "hard_moves": {},
    "blunders": {},
    "unique_positions": {},
    "opening_book": {},
    "engine_agreement": {},
    "critic_labels": {},
}
STREAMED = {"critic_labels"}


def saved(facts: Facts) -> Iterator[Question]:
    """Yield a question for each saved query."""
    score = facts.scores[10]
    yield Question(
        "high_score",
        "rows",
        f"SELECT * FROM steps WHERE max_score >= {score}",
        lambda pl, steps, _runs: steps.filter(pl.col("max_score") >= score),
        saved="high_score",
        parameters={"min_score": score},
    )
    for name, parameters in PARAMETERS.items():
        yield Question(
            name,
            "rows" if name in STREAMED else "table",
            in_duckdb.STATEMENTS[name],
            getattr(in_polars, name),
            saved=name,
            parameters=parameters,
        )
