"""Named queries: names, and values of parameters."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import a2store
from saved_cases import generated
from saved_oracle import EXPECTED


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> a2store.Archive:
    return generated(tmp_path_factory.mktemp("made"))


def test_an_unknown_name_raises_with_the_known_names(made: a2store.Archive) -> None:
    with pytest.raises(ValueError, match="found high_scores") as caught:
        made.query("high_scores")
    for name in EXPECTED:
        assert name in str(caught.value)


@pytest.mark.parametrize(
    "name", ["", ".", "high_score.sql", "queries/high_score.sql", "../queries/high_score", "/etc/passwd", "high score"]
)
def test_a_query_name_is_not_a_path(made: a2store.Archive, name: str) -> None:
    with pytest.raises(ValueError, match=f"expected one of .*, found {re.escape(name)}"):
        made.query(name)


@pytest.mark.parametrize(
    ("name", "params", "named"),
    [
        ("high_score", {"minimum": 1}, "minimum"),
        ("high_score", {"min_score": "many"}, "min_score"),
        ("high_score", {"min_score": 0.5}, "min_score"),
        ("high_score", {"engine": 7}, "engine"),
        ("survivorship", {"by_engine": 1}, "by_engine"),
        ("hard_moves", {"limit": float("nan")}, "limit"),
        ("hard_moves", {"limit": 2**63}, "limit"),
        ("blunders", {"min_loss": "0.1"}, "min_loss"),
    ],
)
def test_wrong_parameters_are_named(made: a2store.Archive, name: str, params: dict[str, Any], named: str) -> None:
    with pytest.raises(a2store.QueryError, match=named) as caught:
        made.query(name, **params)
    assert caught.value.kind == "query"
    assert "\n" not in str(caught.value)


def test_values_that_fit_their_types(made: a2store.Archive) -> None:
    count = made.query("high_score", min_score=500).count()
    assert 0 < count < made.num_steps
    for score in (np.uint64(500), np.int16(500), 500.0, np.float32(500)):
        assert made.query("high_score", min_score=score).count() == count
    assert made.query("high_score", min_score=2**63 - 1).count() == 0
    assert made.query("high_score", min_score=0, engine=None, phase=None).count() == made.num_steps
    assert made.query("blunders", min_loss=0, limit=10).count() == 10
    assert made.query("high_score", min_score=0, engine=np.str_("alpha")).count() > 0
    assert made.query("high_score", min_score=0, engine="alpha' OR 'x' = 'x").count() == 0


@pytest.mark.parametrize("name", ["length_histogram", "tile_presence", "survivorship"])
def test_bins_of_invalid_width(made: a2store.Archive, name: str) -> None:
    """A width with more bins than any run could fill is rejected. With a width of 0, the bins are null."""
    with pytest.raises(a2store.QueryError):
        made.query(name, width=2**32).count()
    assert made.query(name, width=2**32 - 1).count() > 0
    bins = made.query(name, width=0).to_arrow().columns
    assert any(column.null_count == len(column) > 0 for column in bins)


def test_limits_are_options(made: a2store.Archive) -> None:
    with pytest.raises(a2store.QueryLimitError, match="rows"):
        made.query("critic_labels", row_limit=10).materialize(extra=[], progress=False)
    with pytest.raises(ValueError, match=r"time_limit: expected seconds, 0 or more, found -1"):
        made.query("critic_labels", time_limit=-1)
