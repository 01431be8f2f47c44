"""Named queries: names, values of parameters, and the commands ``queries`` and ``query``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
from archives import report
from saved_cases import TEXTS, generated, header_of, rows
from saved_oracle import EXPECTED
from test_command import run


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


# The commands


def test_the_command_describes_queries() -> None:
    described = report("queries")
    assert [query["name"] for query in described] == sorted(TEXTS)
    header = header_of(TEXTS["blunders"])
    (one,) = report("queries", "blunders")
    assert (one["name"], one["purpose"]) == ("blunders", header.purpose)
    assert [p["name"] for p in one["parameters"]] == list(header.parameters)
    assert one["parameters"][0] == {
        "name": "min_loss",
        "type": "float64",
        "default": 0.1,
        "doc": "the minimum loss",
    }
    assert run("queries", "blunders").stdout.decode() == one["sql"] == TEXTS["blunders"]


def test_the_command_runs_queries(made: a2store.Archive, tmp_path: Path) -> None:
    def printed(*args: object) -> list[dict[str, Any]]:
        return [json.loads(line) for line in run("query", made.path, *args, "--format", "json").stdout.splitlines()]

    found = printed("high_score", "-p", "min_score=500", "-p", "engine=alpha")
    assert len(found) == made.query("high_score", min_score=500, engine="alpha").count()
    by_engine = printed("survivorship", "-p", "width=10", "-p", "by_engine=true")
    expected = rows(made.query("survivorship", width=10, by_engine=True))
    assert [row.get("engine") for row in by_engine] == [row["engine"] for row in expected]
    assert [row["num_alive"] for row in by_engine] == [row["num_alive"] for row in expected]
    assert len(printed("blunders", "-p", "min_loss=0.5", "-p", "phase=null")) > 0
    greek = printed("high_score", "-p", "min_score=0", "-p", "engine=γάμμα")
    assert len(greek) == made.query("high_score", min_score=0, engine="γάμμα").count() > 0

    table = run("query", made.path, "engine_leaderboard").stdout.decode()
    assert "mean_score" in table
    assert "rows" in table
    file = tmp_path / "rows.csv"
    assert run("query", made.path, "phase_mix", "--format", "csv", "-o", file).stdout == b""
    assert file.read_text().startswith("engine,phase,num_steps,share\n")
    plan = run("query", made.path, "high_score", "-p", "min_score=300", "--explain").stdout.decode()
    assert plan == made.query("high_score", min_score=300).explain()
    first = run("query", made.path, "engine_leaderboard", "--version", 1, "--format", "json")
    assert first.stdout == b""


def test_the_command_lists_columns(made: a2store.Archive) -> None:
    described = report("schema", made.path)
    assert set(described) == {"runs", "steps", "annotations"}
    text = run("schema", made.path).stdout.decode()
    for table, columns in described.items():
        schema = pa.schema(made.sql(f"SELECT * FROM {table}").schema)
        assert [(c["name"], c["nullable"]) for c in columns] == [(field.name, field.nullable) for field in schema]
        types = {c["name"]: c["type"] for c in columns}
        assert all(types[field.name] == str(field.type) for field in schema if pa.types.is_integer(field.type))
        assert report("schema", made.path, table, "--version", 1) == {table: columns}
        lines = run("schema", made.path, table).stdout.decode().splitlines()
        assert [line.split()[:2] for line in lines] == [[c["name"], c["type"].split()[0]] for c in columns]
        assert ["nullable" in line for line in lines] == [c["nullable"] for c in columns]
        assert f"{table}\n" + "\n".join(lines) + "\n" in text
    assert {c["name"]: c["type"] for c in described["steps"]}["phase"] == "string"
    assert "steps" in run("schema", made.path, "step", status=2).stderr.decode()
