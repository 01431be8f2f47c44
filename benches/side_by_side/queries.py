"""SQL over an archive, compared with DuckDB and polars on the same Parquet files in the same process.

Each competitor has opened the archive (a view or a lazy frame of its files), the files are in the page cache, and all
cores are available. Rows are streamed batch by batch and dropped. Small answers are collected as Arrow tables. Each
answer is checked against a2store's answer before timing, which also warms up each competitor. Rounds rotate.

a2store returns rows in the order of the archive. The others may return any order, which is an advantage for them.
"""

from __future__ import annotations

import importlib.util
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa
from answers import difference, digest
from in_duckdb import MACROS
from questions import Facts, Question, by_data, by_statistics
from report import Report, median, note, table
from saved import saved

import a2store

ROUNDS = 5
GROUPS: dict[str, Callable[[Facts], Iterator[Question]]] = {
    "filters by statistics": by_statistics,
    "filters by data, and scans": by_data,
    "saved queries": saved,
}


@dataclass(frozen=True)
class Competitor:
    """One engine: a function that streams rows, and a function that returns a small answer."""

    name: str
    rows: Callable[[Question], Iterable[Any]]
    table: Callable[[Question], Any]
    arrow: Callable[[Any], Iterable[Any]] = lambda batch: [batch]
    """Converts a batch to pyarrow for the check."""


@dataclass
class Figures:
    """The measurements of one competitor for one question."""

    rows: int = 0
    seconds: list[float] = field(default_factory=list)
    failure: str | None = None

    def shown(self) -> tuple[str, str]:
        """Return the median and the range, in milliseconds."""
        if self.failure is not None:
            return "—", ""
        return _milliseconds(median(self.seconds)), f"{_milliseconds(min(self.seconds))}–" + _milliseconds(
            max(self.seconds)
        )


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.{0 if seconds >= 0.1 else 1}f}"


def ask(archive: a2store.Archive, question: Question) -> a2store.Query:
    """Return the query of a question."""
    if question.saved is None:
        return archive.sql(question.sql)
    return archive.query(question.saved, **question.parameters)


def a2store_competitor(archive: a2store.Archive) -> Competitor:
    """Set up a2store."""

    def rows(question: Question) -> Iterable[Any]:
        batches: Iterable[Any] = pa.RecordBatchReader.from_stream(ask(archive, question))
        return batches

    return Competitor("a2store", rows, lambda question: pa.table(ask(archive, question)))


def duckdb_competitor(archive: a2store.Archive) -> Competitor:
    """Set up DuckDB with cached footers and rows in any order."""
    import duckdb

    connection = duckdb.connect(config={"threads": cores()})
    connection.execute("SET preserve_insertion_order = false; SET parquet_metadata_cache = true")
    for name in ("steps", "runs"):
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet({archive.files(name)!r})")
    connection.execute(MACROS)

    # A relation streams; ``execute`` would materialize the whole result first.
    return Competitor(
        "DuckDB",
        lambda question: connection.sql(question.sql).to_arrow_reader(),
        lambda question: connection.sql(question.sql).to_arrow_table(),
    )


def polars_competitor(archive: a2store.Archive) -> Competitor:
    """Set up polars with its streaming engine, which filters before it decodes the other columns.

    This engine is faster here than any other ``parallel`` of ``scan_parquet``. Dropping batches is faster than
    ``collect``.
    """
    import polars as pl

    if pl.thread_pool_size() != cores():
        raise RuntimeError(f"threads of polars: expected {cores()}, as the others have, found {pl.thread_pool_size()}")
    steps, runs = (pl.scan_parquet(archive.files(name)) for name in ("steps", "runs"))

    def rows(question: Question) -> Iterable[Any]:
        frame = question.polars(pl, steps, runs)
        return frame.collect_batches(lazy=True, engine="streaming", maintain_order=False)  # type: ignore[no-any-return]

    def small(question: Question) -> Any:
        return question.polars(pl, steps, runs).collect(engine="streaming").to_arrow()

    return Competitor("polars", rows, small, lambda frame: frame.to_arrow().to_batches())


PEERS = {"DuckDB": ("duckdb", duckdb_competitor), "polars": ("polars", polars_competitor)}


def first_line(error: Exception) -> str:
    """Return the kind of an error and the first line of its message."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def cores() -> int:
    """Return the number of threads of each competitor."""
    return len(os.sched_getaffinity(0))


def take(competitor: Competitor, question: Question) -> int:
    """Run a question, and return the number of rows."""
    if question.form == "table":
        return len(competitor.table(question))
    return sum(len(batch) for batch in competitor.rows(question))


def check(field: list[Competitor], question: Question) -> dict[str, Figures]:
    """Compare the answers; record the error of a peer that fails, and exclude it."""
    figures = {competitor.name: Figures() for competitor in field}
    first: Any = None
    for competitor in field:
        try:
            if question.form == "table":
                answer = competitor.table(question)
                wrong = None if first is None else difference(answer, first)
            else:
                answer = digest(chain.from_iterable(map(competitor.arrow, competitor.rows(question))))
                wrong = None if first in (None, answer) else f"{answer}, not {first}"
        except Exception as error:  # any kind of error of a peer
            if competitor.name == "a2store":
                raise
            figures[competitor.name].failure = first_line(error)
            continue
        if wrong is not None:
            raise AssertionError(f"{question.name}: {competitor.name} returned {wrong}")
        first = answer if first is None else first
        figures[competitor.name].rows = len(answer) if question.form == "table" else answer[0]
    return figures


def measure(field: list[Competitor], question: Question, rounds: int) -> dict[str, Figures]:
    """Check a question, then time it in rotating rounds."""
    figures = check(field, question)
    able = [competitor for competitor in field if figures[competitor.name].failure is None]
    for at in range(rounds):
        for competitor in able[at % len(able) :] + able[: at % len(able)] if able else []:
            start = time.perf_counter()
            rows = take(competitor, question)
            figures[competitor.name].seconds.append(time.perf_counter() - start)
            assert rows == figures[competitor.name].rows
    return figures


def show(report: Report, group: str, measured: dict[str, dict[str, Figures]], names: list[str], rounds: int) -> None:
    """Print a group's table, and record its figures."""
    lines, failures, ratios = [], [], []
    for question, figures in measured.items():
        times = {name: median(one.seconds) for name, one in figures.items() if one.seconds}
        peers = [seconds for name, seconds in times.items() if name != "a2store"]
        kept: dict[str, float] = {"rows": max(one.rows for one in figures.values())}
        for name, seconds in times.items():
            kept[f"{name.lower()}_s"] = seconds
            kept[f"{name.lower()}_min_s"] = min(figures[name].seconds)
            kept[f"{name.lower()}_max_s"] = max(figures[name].seconds)
        if peers and "a2store" in times:
            kept["ratio"] = min(peers) / times["a2store"]
            ratios.append(kept["ratio"])
        report.add("queries", f"{group}: {question}", **kept)
        failures += [f"{question}, {name}: {one.failure}" for name, one in figures.items() if one.failure is not None]
        ratio = f"{kept['ratio']:.2f}" if "ratio" in kept else "—"
        lines.append((question, f"{kept['rows']:,}", *chain(*(figures[name].shown() for name in names)), ratio))
    header = ["", "rows", *chain(*((f"{name} ms", "range") for name in names)), "ratio"]
    table(f"queries, {group}: medians of {rounds} rounds, {cores()} threads each", header, lines)
    if ratios:
        won = sum(ratio >= 1 for ratio in ratios)
        note(f"ratio: the faster peer's time divided by a2store's; 1 or more in {won} of {len(measured)}")
    for failure in failures:
        note(failure)


def chosen(archive: a2store.Archive, only: str | None) -> dict[str, list[Question]]:
    """Return the questions by group, if "group: name" matches the pattern."""
    facts = Facts.of(archive)
    pattern = re.compile(only or "")
    return {
        group: [question for question in make(facts) if pattern.search(f"{group}: {question.name}")]
        for group, make in GROUPS.items()
    }


def run(report: Report, archive: a2store.Archive, rounds: int | None, only: str | None = None) -> None:
    """Run all questions with all competitors."""
    rounds = rounds or ROUNDS
    field = [a2store_competitor(archive)]
    for name, (module, make) in PEERS.items():
        if importlib.util.find_spec(module) is None:
            note(f"{name} is not installed: skipped")
        else:
            field.append(make(archive))
    for group, questions in chosen(archive, only).items():
        measured = {question.name: measure(field, question, rounds) for question in questions}
        if measured:
            show(report, group, measured, [competitor.name for competitor in field], rounds)
