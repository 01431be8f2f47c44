"""Lazy frames of polars over a query, compared with polars on the archive's own Parquet files."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import a2store
from a2store import _polars

c = pl.col

PREDICATES: dict[str, pl.Expr] = {
    "comparison": c("max_score") >= 5000,
    "mirrored": pl.lit(5000) < c("max_score"),
    "and": (c("run_id") > 3) & (c("run_id") <= 17) & (c("move") != 2),
    "or": (c("move") == 1) | (c("step_index") < 5),
    "not": ~((c("move") == 1) | (c("engine") == "alpha")),
    "null or": (c("engine") == "alpha") | (c("engine").is_null() & c("has_evs")),
    "is_null": c("engine").is_null(),
    "is_not_null": c("engine").is_not_null() & ~c("has_evs"),
    "string": c("phase") == "late",
    "strings": c("phase").is_in(["late", "mid"]),
    "not strings": ~c("engine").is_in(["alpha", "beta"]),
    "integers": c("run_id").is_in([2, 3, 2**32 - 1]),
    "between": c("run_id").is_between(5, 7, closed="left"),
    "large": c("board") >= 2**63,
    "large in": c("board").is_in([2**63 + 1, 0]),
    "bool": c("has_evs") == False,  # noqa: E712
    "negative": c("step_index") > -1,
    "none": c("run_id") > 2**31,
    "long or": reduce(or_, [c("step_index") == step for step in range(60)]),
}
"""Predicates that the query evaluates in full."""
PARTLY: dict[str, pl.Expr] = {
    "float": (c("ev_up") > 0.5) & (c("run_id") < 9),
    "arithmetic": (c("run_id") % 2 == 0) & (c("phase") == "late"),
    "nested": ((c("ev_up") > 0.5) | (c("run_id") < 9)) & (c("step_index") >= 10),
}
"""Predicates of which the query evaluates one part."""
OTHERS: dict[str, pl.Expr] = {
    "zero": c("ev_left") >= 0.0,
    "two columns": c("step_index") > c("run_id"),
    "text function": c("engine").cast(pl.String).str.starts_with("al"),
    "or of a float": (c("ev_up") > 0.5) | (c("run_id") < 9),
    "null literal": c("engine").eq_missing(None),
}


@pytest.fixture(scope="module")
def query(archive: a2store.Archive) -> a2store.Query:
    return archive.sql("SELECT * FROM steps")


@pytest.fixture(scope="module")
def files(archive: a2store.Archive) -> pl.LazyFrame:
    """The same steps, read by polars."""
    return pl.concat([pl.scan_parquet(path) for path in archive.files("steps")])


def plain(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


def schema_of(query: a2store.Query) -> pl.Schema:
    schema: pl.Schema = query.limit(0).to_polars().schema
    return schema


def test_the_frame_is_the_result(query: a2store.Query, files: pl.LazyFrame) -> None:
    frame = query.lazy()
    assert frame.collect_schema() == query.to_polars().schema
    assert_frame_equal(frame.collect(), query.to_polars())
    assert_frame_equal(plain(frame.collect()), plain(files.collect()))
    assert frame.select(pl.len()).collect().item() == query.count()


@pytest.mark.parametrize("name", [*PREDICATES, *PARTLY, *OTHERS])
def test_filters_give_polars_rows(query: a2store.Query, files: pl.LazyFrame, name: str) -> None:
    predicate = (PREDICATES | PARTLY | OTHERS)[name]
    chosen: list[Callable[[pl.LazyFrame], pl.LazyFrame]] = [
        lambda frame: frame.filter(predicate),
        lambda frame: frame.filter(predicate).select("board", "run_id"),
        lambda frame: frame.filter(predicate).head(7).select("board"),
        lambda frame: frame.head(900).filter(predicate),
        lambda frame: frame.filter(predicate).group_by("run_id").len().sort("run_id"),
    ]
    for choose in chosen:
        assert_frame_equal(plain(choose(query.lazy()).collect()), plain(choose(files).collect()))
    count = files.filter(predicate).collect().height
    assert name in ("none", "large in", "negative", "zero") or 0 < count < query.count()


@pytest.mark.parametrize("name", [*PREDICATES, *PARTLY])
def test_the_scan_has_filter_and_columns(query: a2store.Query, name: str) -> None:
    predicate = (PREDICATES | PARTLY)[name]
    narrowed = _polars.narrowed(query, ["board"], predicate, schema_of(query))
    assert narrowed.columns == list(dict.fromkeys(["board", *predicate.meta.root_names()]))
    condition = _polars.translated(predicate, schema_of(query))
    assert condition is not None
    count = pl.DataFrame(narrowed).height
    matching = pl.DataFrame(query).filter(predicate).height
    # Polars filters what the query does not evaluate.
    assert count == matching if name in PREDICATES else matching < count < query.count()


def test_explain_shows_the_pushdown(query: a2store.Query) -> None:
    predicate = (c("max_score") >= 5000) & (c("move") == 1)
    plan = query.lazy().filter(predicate).select("board").explain()
    assert "PYTHON SCAN" in plan
    assert "SELECTION" in plan
    assert "PROJECT 3/" in plan
    narrowed = _polars.narrowed(query, ["board"], predicate, schema_of(query))
    plan = narrowed.explain()
    assert "filters on runs: steps.max_score >= 5000" in plan
    assert "move@1 = 1" in plan
    projection = plan.split("projection=[")[1].split("]")[0]
    assert "board" in projection
    assert "ev_up" not in projection


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM steps ORDER BY board, run_id, step_index",
        "SELECT board FROM steps ORDER BY run_id DESC, step_index",
        "SELECT * FROM steps LIMIT 500",
        "SELECT board, move FROM steps ORDER BY move, run_id, step_index LIMIT 500 OFFSET 3",
        "SELECT move, row_number() OVER (ORDER BY run_id, step_index) AS board FROM steps ORDER BY board",
        "SELECT board, count(*) AS n FROM steps GROUP BY board ORDER BY n DESC, board",
    ],
)
def test_order_and_limit_come_before_the_filter(archive: a2store.Archive, sql: str) -> None:
    query = archive.sql(sql)
    predicate = c("board") % 3 == 0 if "OVER" in sql else c("board") < 2**62
    expected = query.to_polars().filter(predicate)
    assert 0 < expected.height < query.count()
    assert_frame_equal(query.lazy().filter(predicate).collect(), expected)
    assert_frame_equal(query.lazy().filter(predicate).head(5).collect(), expected.head(5))
    assert_frame_equal(query.lazy().filter(c("board") > 10**4).collect(), query.to_polars().filter(c("board") > 10**4))


def test_a_failing_query_raises_polars_own_exception(archive: a2store.Archive) -> None:
    frame = archive.sql("SELECT CAST(source AS INT) AS one FROM runs").lazy()
    with pytest.raises(Exception, match="Cannot cast string"):
        frame.collect()
