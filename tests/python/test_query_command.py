"""The commands ``queries`` and ``query``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import a2store
from archives import report
from saved_cases import TEXTS, generated, header_of, rows
from test_command import run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> a2store.Archive:
    return generated(tmp_path_factory.mktemp("made"))


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
