"""Joins of steps with the predictions of a model, compared with DuckDB and polars on the same Parquet files.

Every step has a prediction. Each answer is a small table of integers, which is checked before timing. Rounds rotate.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from report import Report, median, note, table

import a2store

ROUNDS = 5
Answer = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Join:
    """A question about steps and their predictions."""

    name: str
    kind: str
    """``INNER`` or ``LEFT``."""
    min_score: int
    """The minimum score of the runs."""


def annotate(archive: a2store.Archive) -> None:
    """Add a model that prefers the played move in two thirds of the steps."""
    keys = pa.table(archive.sql("SELECT run_id, step_index, move FROM steps"))
    rng = np.random.default_rng(1)
    other = rng.random(len(keys)) < 1 / 3
    moves = keys["move"].to_numpy()
    columns = {
        "argmax_head": np.where(other, (moves + 1) % 4, moves),
        "argmax_prob": rng.random(len(keys), "f4"),
        "policy_p1": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(4 * len(keys), "f4")), 4),
    }
    rows = keys.select(["run_id", "step_index"])
    for name, values in columns.items():
        rows = rows.append_column(name, values if isinstance(values, pa.Array) else pa.array(values))
    archive.annotate("model", rows, progress=False)


def sql(join: Join) -> str:
    """Return a question in the SQL of a2store and DuckDB."""
    return f"""
        SELECT phase, count(*) AS num_steps, sum(CASE WHEN argmax_head = move THEN 1 ELSE 0 END) AS equal
        FROM steps {join.kind} JOIN annotations USING (run_id, step_index)
        WHERE max_score >= {join.min_score} GROUP BY phase ORDER BY phase"""


def in_a2store(archive: a2store.Archive) -> Callable[[Join], Answer]:
    """Return a function that asks a2store."""
    return lambda join: [tuple(row.values()) for row in pa.table(archive.sql(sql(join))).to_pylist()]


def in_duckdb(archive: a2store.Archive) -> Callable[[Join], Answer]:
    """Return a function that asks DuckDB."""
    import duckdb

    connection = duckdb.connect()
    for name in ("steps", "annotations"):
        connection.read_parquet(archive.files(name)).create_view(name)
    return lambda join: connection.execute(sql(join)).fetchall()


def in_polars(archive: a2store.Archive) -> Callable[[Join], Answer]:
    """Return a function that asks polars."""
    import polars

    steps, annotations = (polars.scan_parquet(archive.files(name)) for name in ("steps", "annotations"))

    def ask(join: Join) -> Answer:
        equal = (polars.col("argmax_head") == polars.col("move")).fill_null(value=False)
        frame = (
            steps.filter(polars.col("max_score") >= join.min_score)
            .join(annotations, on=["run_id", "step_index"], how="left" if join.kind == "LEFT" else "inner")
            .group_by(polars.col("phase").cast(polars.String))
            .agg(polars.len().alias("num_steps"), equal.cast(polars.Int64).sum().alias("equal"))
            .sort("phase")
        )
        return frame.collect(engine="streaming").rows()

    return ask


PEERS = {"a2store": in_a2store, "DuckDB": in_duckdb, "polars": in_polars}


def run(report: Report, path: Path, rounds: int | None) -> None:
    """Annotate the archive, and compare the joins."""
    archive = a2store.Archive.open(path)
    start = time.perf_counter()
    annotate(archive)
    rate = archive.num_steps / (time.perf_counter() - start)
    report.add("annotations", "annotate", steps_per_s=rate)
    note(f"annotate: {rate / 1e6:.1f} million steps per second, with the making of the predictions")
    scores = pa.table(archive.sql("SELECT max_score FROM runs ORDER BY max_score"))["max_score"].to_pylist()
    joins = [
        Join("all steps", "INNER", 0),
        Join("all steps, LEFT", "LEFT", 0),
        Join("the best tenth of the runs", "INNER", scores[len(scores) * 9 // 10]),
    ]
    tools = {name: make for name, make in PEERS.items() if importlib.util.find_spec(name.lower())}
    asked = {name: make(archive) for name, make in tools.items()}
    lines = []
    for join in joins:
        expected = asked["a2store"](join)
        for name, ask in asked.items():
            if ask(join) != expected:
                raise RuntimeError(f"{name}: {join.name}: another answer than a2store's")
        seconds: dict[str, list[float]] = {name: [] for name in asked}
        names = list(asked)
        for number in range(rounds or ROUNDS):
            for at in range(len(names)):
                name = names[(at + number) % len(names)]
                start = time.perf_counter()
                asked[name](join)
                seconds[name].append(time.perf_counter() - start)
        own = median(seconds["a2store"])
        for name in names:
            report.add("annotations", f"{name}, {join.name}", seconds=median(seconds[name]))
            lines.append((join.name, name, f"{median(seconds[name]) * 1e3:,.0f}", f"{median(seconds[name]) / own:.2f}"))
    table("joins of steps with annotations", ("question", "", "ms", "ratio to a2store"), lines)
