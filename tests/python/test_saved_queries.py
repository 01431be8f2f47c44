"""The built-in named queries: their headers, and their rows compared with DuckDB's on the same files."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import a2store
import duck
import oracle
from archives import ingested, plain
from faults.checks import LONG
from oracle import Array
from saved_cases import (
    ARCHIVES,
    CASES,
    QUERIES,
    TEXTS,
    annotate,
    assert_rows,
    chosen,
    defaults,
    header_of,
    rows,
)
from saved_oracle import EXPECTED


@dataclass(frozen=True)
class Asked:
    """An archive, DuckDB on its files, one of its engines, and its kind."""

    archive: a2store.Archive
    connection: duckdb.DuckDBPyConnection
    engine: str
    name: str


REAL = ["session", "macroxue/logs", "runs/example.a2run2", "runs/run-00272.bin", "runs/ai2048-1.a2run2"]
SMALL = ("single", "bare", "no_steps")
"""The archives of one kind of games, which have few rows."""


@pytest.fixture(scope="module", params=[*ARCHIVES, "real"])
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param in ARCHIVES:
        archive = ARCHIVES[request.param](folder)
    else:
        archive = a2store.Archive.create(folder / "games.a2")
        fixtures: Path = request.getfixturevalue("fixtures")
        archive.ingest([fixtures / name for name in REAL], progress=False)
        annotate(archive)
    with duck.connect(archive) as connection:
        remember_positions(connection)
        ((engine,),) = connection.execute(
            "SELECT engine FROM runs GROUP BY 1 ORDER BY engine IS NULL, count(*) LIMIT 1"
        ).fetchall()
        # In the generated archive, this engine has runs of every length.
        yield Asked(archive, connection, "alpha" if request.param == "generated" else engine, request.param)


def remember_positions(connection: duckdb.DuckDBPyConnection) -> None:
    """Compute ``least_exps`` once for each board. Several queries call it for every step."""
    connection.execute("""
        CREATE TABLE least AS SELECT board, mask, least_exps(board, mask) AS exps
        FROM (SELECT DISTINCT board, coalesce(tile_65536_mask, 0) AS mask FROM steps)""")
    connection.execute("""
        CREATE OR REPLACE MACRO least_exps(b, m) AS (
            SELECT exps FROM least WHERE least.board = b AND least.mask = coalesce(m, 0))""")


def test_the_archives_have_all_cases_of_the_queries(asked: Asked) -> None:
    def number(sql: str) -> int:
        ((n,),) = asked.connection.execute(f"SELECT count(*) FROM {sql}").fetchall()
        return int(n)

    if asked.name not in ("generated", "real"):
        return
    conditions = ["move IS NULL", "engine IS NULL", "engine IS NOT NULL", "NOT has_evs", "has_evs", "phase = 'mid'"]
    for condition in conditions:
        assert number(f"steps WHERE {condition}") > 10, condition
    assert number("(SELECT DISTINCT engine FROM runs)") >= 3
    if asked.name == "generated":
        for condition in ("raw_evs", "NOT raw_evs", "game_steps > num_steps", "highest_tile > 32768", "num_steps = 0"):
            assert number(f"runs WHERE {condition}") > 0, condition


def test_each_file_of_the_folder_is_a_query_that_is_tested() -> None:
    assert {path.suffix for path in QUERIES.iterdir()} == {".sql"}
    assert set(TEXTS) == set(EXPECTED) == set(CASES)
    for text in TEXTS.values():
        header = header_of(text)
        assert header.purpose.endswith(".")
        assert header.columns
        assert set(re.findall(r"\$(\w+)", text)) == set(header.parameters)


def test_the_package_has_the_queries_of_the_folder() -> None:
    queries = a2store.queries()
    assert [query.name for query in queries] == sorted(TEXTS)
    for query in queries:
        header = header_of(TEXTS[query.name])
        assert query.purpose == header.purpose
        found = {p.name: (p.type, p.default, p.doc) for p in query.parameters}
        assert found == {
            name: (dtype, json.loads(default), doc) for name, (dtype, default, doc) in header.parameters.items()
        }
        assert list(found) == list(header.parameters)
        assert query.sql == TEXTS[query.name]
        assert query.name in repr(query)


def type_name(dtype: Any) -> str:
    """Return the name of a type as headers write it."""
    if pa.types.is_dictionary(dtype):
        dtype = dtype.value_type
    return {"float": "float32", "double": "float64", "large_string": "string"}.get(str(dtype), str(dtype))


@pytest.mark.parametrize("name", EXPECTED)
def test_columns_and_rows(asked: Asked, name: str) -> None:
    """The columns are those of the header. The rows are DuckDB's, in the same order each time."""
    columns = [(column, dtype) for column, (dtype, _) in header_of(TEXTS[name]).columns.items()]
    cases = CASES[name]
    # All parameters are compared on the generated archive. Some macros are slow on the real one.
    if asked.name == "real":
        cases = cases[:1]
    elif asked.name in SMALL and not LONG:
        # Each value is tried on one of the small archives, and each query without parameters on all of them.
        cases = cases[SMALL.index(asked.name) :: len(SMALL)]
    num_rows = []
    for case in [{}, *cases]:
        params = chosen(case, asked.engine)
        query = asked.archive.query(name, **params)
        table = pa.table(query)
        assert table.schema == pa.schema(query.schema)
        assert [(field.name, type_name(field.type)) for field in table.schema] == columns
        found = [tuple(row.values()) for row in table.to_pylist()]
        assert_rows(found, duck.fetch(asked.connection, EXPECTED[name], **defaults(TEXTS[name]) | params))
        num_rows.append(len(found))
    assert plain(pa.table(query)).equals(plain(table))
    if asked.name == "generated":
        # Parameters change the result, and rows were compared. A position has at most four moves.
        assert max(num_rows) > (1 if name == "position_moves" else 2)
        same = ("run_lengths", "phase_mix", "unique_positions", "engine_leaderboard")
        assert len(set(num_rows)) > 1 or name in same


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
    archive: a2store.Archive, name: str, values: dict[str, Any], instead: dict[str, Any]
) -> None:
    """The nearest valid value is used, so the number of rows stays limited."""
    assert rows(archive.query(name, **values)) == rows(archive.query(name, **instead))


def test_pandas_reads_every_query(asked: Asked) -> None:
    """Pandas rejects dictionaries with a text that occurs twice."""
    if asked.name != "generated":
        return
    for name in EXPECTED:
        assert len(asked.archive.query(name).to_pandas().columns) > 0
    for engine in (None, asked.engine):
        sql = "SELECT run_id % 3, engine, phase, count(*) FROM steps WHERE $1 IS NULL OR engine = $1 GROUP BY 1, 2, 3"
        assert len(asked.archive.sql(sql, [engine]).to_pandas()) > 3


def test_queries_of_an_empty_archive(tmp_path: Path) -> None:
    empty = a2store.Archive.create(tmp_path / "empty.a2")
    for name in EXPECTED:
        query = empty.query(name)
        table = pa.table(query)
        assert (table.schema, len(table)) == (pa.schema(query.schema), 0)


def test_shares_and_counts_add_up(asked: Asked) -> None:
    archive = asked.archive
    if asked.name not in ("generated", "real"):
        return
    num_runs = archive.num_runs
    assert sum(row["num_runs"] for row in rows(archive.query("engine_leaderboard"))) == num_runs
    assert sum(row["num_runs"] for row in rows(archive.query("run_lengths"))) == num_runs
    histogram = rows(archive.query("score_histogram", width=64))
    assert sum(row["num_runs"] for row in histogram) == num_runs
    assert math.isclose(sum(row["share"] for row in histogram), 1)
    lengths = rows(archive.query("length_histogram", width=1))
    assert sum(row["num_runs"] * row["min_steps"] for row in lengths) == archive.num_steps
    assert sum(row["num_runs"] for row in lengths) == num_runs
    mix = rows(archive.query("phase_mix"))
    assert sum(row["num_steps"] for row in mix) == archive.num_steps
    positions = rows(archive.query("unique_positions"))
    assert sum(row["num_steps"] for row in positions) == archive.num_steps
    assert all(row["num_positions"] <= row["num_boards"] <= row["num_steps"] for row in positions)
    alive = rows(archive.query("survivorship", width=50))
    assert alive[0]["share"] == 1
    assert sum(row["num_ended"] for row in alive) == alive[0]["num_alive"] <= num_runs
    assert alive[-1]["num_alive"] == alive[-1]["num_ended"]
    present = rows(archive.query("tile_presence", width=100_000))
    assert sum(row["num_largest"] for row in present) == archive.num_steps
    assert (present[0]["share_at_least"], present[-1]["share_largest"]) == (1, present[-1]["share_at_least"])
    assert all(row["num_largest"] <= row["num_containing"] for row in present)
    first = rows(archive.query("tile_first_steps", min_tile=2))
    assert len(first) == len({(row["run_id"], row["tile"]) for row in first}) > num_runs
    reach = rows(archive.query("tile_reach", min_tile=2))
    (highest,) = pa.table(archive.sql("SELECT max(highest_tile) AS tile FROM runs"))["tile"].to_pylist()
    assert [row["tile"] for row in reach] == [2**exp for exp in range(1, 17 if highest > 32768 else 16)]
    assert all(first["share"] >= second["share"] for first, second in pairwise(reach))
    book = rows(archive.query("opening_book", first_steps=1, limit=10_000))
    assert (
        sum(row["num_steps"] for row in book)
        == archive.sql("SELECT * FROM steps WHERE step_index = 0 AND max_exp < 16").count()
    )
    moves = ("num_up", "num_down", "num_left", "num_right")
    assert all(sum(row[move] for move in moves) <= row["num_steps"] for row in book)


def test_high_score_is_a_plain_filter(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    """It selects rows by run, filters the rest in the Parquet reader, and keeps the natural order."""
    plan = archive.query("high_score", min_score=5000, engine="alpha", phase="mid").explain()
    where = "max_score >= 5000 AND engine = 'alpha' AND phase = 'mid'"
    assert plan == archive.sql(f"SELECT * FROM steps WHERE {where}").explain()
    of_runs, of_steps = plan.split("\n", 1)
    assert of_runs.startswith("filters on runs")
    assert "max_score" in of_runs
    assert "engine" in of_runs
    assert "FilterExec" not in of_steps
    assert "phase" in of_steps.split("pruning_predicate=")[1]
    alone = archive.query("high_score", min_score=5000).explain()
    assert "engine =" not in alone
    assert "predicate" not in alone
    kept = np.flatnonzero(steps["max_score"] >= 5000)
    table = archive.query("high_score", min_score=5000).materialize(progress=False)
    assert np.asarray(table)["board"].tolist() == steps["board"][kept].tolist()
    same = archive.sql("SELECT * FROM steps WHERE max_score >= 5000")
    assert plain(pa.table(archive.query("high_score", min_score=5000))).equals(plain(pa.table(same)))


def test_critic_labels_become_columns_of_a_table(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    extra = ["reaches_8192", "reaches_16384", "reaches_32768"]
    table = archive.query("critic_labels").materialize(extra=extra, progress=False)
    batch = table.take(range(len(table)))
    assert all(batch[name].dtype == np.bool_ for name in extra)
    assert batch["reaches_8192"].tolist() == (steps["highest_tile"] >= 8192).tolist()
    assert batch.step_index.tolist() == steps["step_index"].tolist()


def test_agreement_of_an_engine_with_itself(run_files: list[Path], tmp_path: Path) -> None:
    """The same games have two engine names. They disagree only where a position occurred twice with different moves."""
    for number, path in enumerate(run_files[:10]):
        game = oracle.decode(path.read_bytes())
        for engine in ("one", "two"):
            renamed = replace(game, engine=engine)
            (tmp_path / f"{number}-{engine}.a2run2").write_bytes(oracle.encode_a2run2(renamed))
    archive = ingested(tmp_path / "games.a2", tmp_path)
    (pair,) = rows(archive.query("engine_agreement", first_steps=1_000_000))
    assert (pair["engine"], pair["other_engine"]) == ("one", "two")
    assert pair["num_positions"] > 1000
    assert 0.99 < pair["agreement"] <= 1
