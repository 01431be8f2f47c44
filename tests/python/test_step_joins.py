"""Joins by run and step: answers as in DuckDB on the same files, their order, and which joins are planned so."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import a2store
import games
import oracle
from archives import simulated
from compare import assert_same
from duck import of_files

FILES, RUNS = 6, 3
"""The number of files of steps, and of runs in each."""
KEYS = "a.run_id = s.run_id AND a.step_index = s.step_index"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> a2store.Archive:
    """Steps in six files. Two models have annotations of some steps and runs, in three files each."""
    folder, rng = tmp_path_factory.mktemp("step_joins"), random.Random(5)
    archive = a2store.Archive.create(folder / "games.a2", phases={"mid": 16, "late": 64})
    for number in range(FILES):
        for run in range(RUNS):
            game = games.play(rng, rng.choice([1, 40, 90]), engine=rng.choice(["alpha", "beta"]))
            (folder / f"{number}").mkdir(exist_ok=True)
            (folder / f"{number}" / f"{run}").write_bytes(oracle.encode_a2run2(game))
        archive.ingest(folder / f"{number}", progress=False)
    steps = pa.table(archive.sql("SELECT run_id, step_index FROM steps"))
    for model, share in (("some", 0.6), ("most", 0.98)):
        for runs in (range(4), range(4, 11), range(12, 18)):
            chosen = [run in runs and rng.random() < share for run in steps["run_id"].to_pylist()]
            rows = steps.filter(pa.array(chosen))
            moves = pa.array([rng.randrange(4) for _ in range(len(rows))], pa.uint8())
            chances = pa.array([rng.choice([None, 0.25, 0.5, 1.0]) for _ in range(len(rows))], pa.float32())
            rows = rows.append_column("argmax_head", moves).append_column("argmax_prob", chances)
            archive.annotate(model, rows, partial=True, progress=False)
    return archive


@pytest.fixture(scope="module")
def duck(archive: a2store.Archive) -> duckdb.DuckDBPyConnection:
    return of_files(archive)


JOINS = {
    "inner": f"SELECT s.*, a.argmax_head FROM steps s JOIN annotations a ON {KEYS} WHERE model = 'some'",
    "inner, swapped": "SELECT s.move, a.run_id, a.step_index, a.model, a.argmax_prob "
    f"FROM annotations a JOIN steps s ON {KEYS} WHERE model = 'most'",
    "left": f"SELECT s.*, a.argmax_prob FROM steps s LEFT JOIN annotations a ON {KEYS} AND a.model = 'some'",
    "right": f"SELECT s.run_id, s.step_index, argmax_head FROM (SELECT * FROM annotations WHERE model = 'some') a "
    f"RIGHT JOIN steps s ON {KEYS}",
    "left, with a condition": f"SELECT s.run_id, s.step_index, a.argmax_prob FROM steps s LEFT JOIN annotations a "
    f"ON {KEYS} AND model = 'some' AND s.move < a.argmax_head AND a.argmax_prob > 0.3",
    "equal columns": f"SELECT s.run_id, s.step_index FROM steps s JOIN annotations a ON {KEYS} "
    "WHERE model = 'most' AND s.move = a.argmax_head",
    "semi": f"SELECT run_id, step_index FROM steps s WHERE EXISTS (SELECT 1 FROM annotations a WHERE {KEYS} "
    "AND model = 'some')",
    "anti": f"SELECT run_id, step_index FROM steps s WHERE NOT EXISTS (SELECT 1 FROM annotations a WHERE {KEYS} "
    "AND model = 'some' AND a.argmax_head = s.move)",
    "two models": f"SELECT s.run_id, s.step_index, a.argmax_head, b.argmax_head AS other FROM steps s "
    f"JOIN annotations a ON {KEYS} JOIN annotations b ON b.run_id = s.run_id AND b.step_index = s.step_index "
    "WHERE a.model = 'some' AND b.model = 'most'",
    "models with each other": "SELECT s.run_id, s.step_index, s.argmax_head FROM annotations s LEFT JOIN annotations a "
    f"ON {KEYS} AND a.model = 'some' WHERE s.model = 'most' AND a.argmax_head IS NULL",
    "steps with steps": f"SELECT s.run_id, s.step_index, a.move FROM steps s JOIN steps a ON {KEYS} "
    "WHERE a.phase = 'mid'",
    "some runs": f"SELECT s.run_id, s.step_index, a.argmax_head FROM steps s JOIN annotations a ON {KEYS} "
    "WHERE model = 'most' AND s.run_id IN (3, 4, 11, 17)",
    "runs without annotations": f"SELECT s.run_id, s.step_index, a.argmax_head FROM steps s LEFT JOIN annotations a "
    f"ON {KEYS} AND model = 'most' WHERE s.run_id = 11",
    "scattered steps": f"SELECT s.run_id, s.step_index, a.argmax_head FROM steps s JOIN annotations a ON {KEYS} "
    "WHERE model = 'most' AND s.move = 2 AND a.argmax_head <> 3",
    "runs": "SELECT s.run_id, s.step_index, r.engine, r.max_score FROM runs r JOIN steps s USING (run_id)",
    "runs, left": "SELECT s.run_id, s.step_index, r.seed FROM steps s LEFT JOIN runs r "
    "ON r.run_id = s.run_id AND s.step_index + 20 < r.num_steps",
    "runs, semi": "SELECT run_id, step_index FROM steps s WHERE EXISTS (SELECT 1 FROM runs r "
    "WHERE r.run_id = s.run_id AND s.step_index * 2 < r.num_steps)",
    "runs, anti": "SELECT run_id, step_index FROM steps s WHERE NOT EXISTS (SELECT 1 FROM runs r "
    "WHERE r.run_id = s.run_id AND s.step_index * 2 < r.num_steps)",
    "runs and annotations": f"SELECT s.run_id, s.step_index, r.verified, a.argmax_head FROM steps s JOIN runs r "
    f"USING (run_id) LEFT JOIN annotations a ON {KEYS} AND model = 'some' WHERE s.move > 0",
    "annotations and runs": "SELECT s.run_id, s.step_index, r.raw_evs, s.model FROM annotations s JOIN runs r "
    "ON r.run_id = s.run_id WHERE model = 'most'",
    "a reversed order": f"SELECT s.run_id, s.step_index, argmax_head FROM steps s JOIN annotations a ON {KEYS} "
    "WHERE model = 'most' ORDER BY s.run_id DESC, s.step_index DESC LIMIT 25",
}


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    return in_order([tuple(row.values()) for row in table.to_pylist()])


def in_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    # None does not compare with numbers, so texts are compared.
    return sorted(rows, key=repr)


@pytest.mark.parametrize("name", JOINS)
def test_answers_are_those_of_duckdb(archive: a2store.Archive, duck: duckdb.DuckDBPyConnection, name: str) -> None:
    expected = in_order(duck.execute(JOINS[name]).fetchall())
    # With less memory, a query has one partition, so `runs` is read once.
    for query in (archive.sql(JOINS[name]), archive.sql(JOINS[name], memory_limit=32 << 20)):
        assert rows_of(pa.table(query)) == expected
        assert query.count() == len(expected) > 0
    plan = query.explain()
    assert "StepJoinExec" in plan, plan
    assert "HashJoinExec" not in plan, plan


@pytest.mark.parametrize("name", ["inner", "left"])
def test_materialized_rows_are_in_order(archive: a2store.Archive, duck: duckdb.DuckDBPyConnection, name: str) -> None:
    query = archive.sql(JOINS[name])
    table = query.materialize(progress=False)
    batch = table.take(np.arange(len(table)))
    expected = duck.execute(f"SELECT run_id, step_index FROM ({JOINS[name]}) ORDER BY ALL").fetchnumpy()
    for key in ("run_id", "step_index"):
        assert_same(batch[key], expected[key].astype(batch[key].dtype), key)
    limited = archive.sql(f"{JOINS[name]} ORDER BY run_id, step_index LIMIT 50").materialize(progress=False)
    assert_same(limited.take(np.arange(50)).step_index, batch.step_index[:50], "limited")


NOT_BY_STEPS = {
    "several models": f"SELECT count(*) AS n FROM steps s JOIN annotations a ON {KEYS}",
    "all rows of both sides": "SELECT count(*) AS n FROM steps s FULL JOIN (SELECT * FROM annotations "
    f"WHERE model = 'some') a ON {KEYS}",
    "the next step": "SELECT count(*) AS n FROM steps s JOIN annotations a ON a.run_id = s.run_id "
    "AND a.step_index = s.step_index + 1 WHERE model = 'some'",
    "crossed keys": "SELECT count(*) AS n FROM steps s JOIN annotations a ON a.run_id = s.step_index "
    "AND a.step_index = s.run_id WHERE model = 'some'",
    "the run alone": "SELECT count(*) AS n FROM steps s JOIN annotations a ON a.run_id = s.run_id WHERE model = 'some'",
    "rows under a limit": "SELECT count(*) AS n FROM steps s JOIN (SELECT * FROM annotations WHERE model = 'some' "
    f"ORDER BY run_id, step_index LIMIT 30) a ON {KEYS}",
    "some runs": "SELECT count(*) AS n FROM steps JOIN (SELECT * FROM runs WHERE max_score > 100) USING (run_id)",
    "texts of runs": "SELECT count(source) AS n FROM steps JOIN runs USING (run_id)",
    "runs with steps": "SELECT count(s.move) AS n FROM runs r LEFT JOIN steps s USING (run_id)",
    "runs with runs": "SELECT count(*) AS n FROM runs r JOIN runs s USING (run_id)",
    "groups": "SELECT count(*) AS n FROM steps s JOIN (SELECT run_id, step_index FROM annotations "
    f"GROUP BY run_id, step_index) a ON {KEYS}",
    "computed keys": "SELECT count(*) AS n FROM (SELECT run_id + 1 AS run_id, step_index FROM steps) s "
    f"JOIN annotations a ON {KEYS} WHERE model = 'some'",
    "exchanged names": "SELECT count(*) AS n FROM (SELECT step_index AS run_id, run_id AS step_index FROM steps) s "
    f"JOIN annotations a ON {KEYS} WHERE model = 'some'",
}


@pytest.mark.parametrize("name", NOT_BY_STEPS)
def test_other_joins_stay(archive: a2store.Archive, duck: duckdb.DuckDBPyConnection, name: str) -> None:
    query = archive.sql(NOT_BY_STEPS[name])
    assert "StepJoinExec" not in query.explain()
    assert pa.table(query).to_pydict()["n"] == [duck.execute(NOT_BY_STEPS[name]).fetchall()[0][0]]


def test_a_condition_on_the_model_chooses_files(archive: a2store.Archive) -> None:
    sql = "SELECT count(*) AS n FROM annotations WHERE"
    by_model = {model.model: model.num_rows for model in archive.annotations()}
    for condition, expected in (
        ("model = 'some'", by_model["some"]),
        ("model <> 'some'", by_model["most"]),
        ("model LIKE '%o%'", sum(by_model.values())),
        ("model IN ('most', 'none')", by_model["most"]),
        ("model = 'none'", 0),
        ("upper(model) = 'MOST' AND run_id >= 0", by_model["most"]),
        ("model IS NULL", 0),
        ("model = 'some' OR run_id < 0", by_model["some"]),
    ):
        assert pa.table(archive.sql(f"{sql} {condition}"))["n"].to_pylist() == [expected], condition
    fails = archive.sql("SELECT 0 AS board FROM annotations WHERE CAST(length(model) * 100 AS TINYINT) > 0")
    with pytest.raises(a2store.QueryError, match="Can't cast value"):
        fails.materialize(progress=False)


def test_a_failing_condition_sees_pairs_only(archive: a2store.Archive, duck: duckdb.DuckDBPyConnection) -> None:
    sql = f"""SELECT count(*) AS n FROM steps s JOIN annotations a ON {KEYS}
        WHERE model = 'some' AND argmax_head <> move AND 1 / (CAST(argmax_head AS INT) - CAST(move AS INT)) >= 0"""
    query = archive.sql(sql)
    assert "StepJoinExec" in query.explain()
    assert pa.table(query)["n"].to_pylist() == [duck.execute(sql.replace(" / ", " // ")).fetchall()[0][0]]


@pytest.mark.parametrize("memory_limit", [None, 32 << 20], ids=["all partitions", "one partition"])
@pytest.mark.parametrize(
    "keys", ["s.board, s.run_id, s.step_index", "s.run_id DESC, s.step_index", "a.argmax_prob, 1, 2"]
)
@pytest.mark.parametrize("kind", ["", "LEFT"])
def test_an_order_by(
    archive: a2store.Archive, duck: duckdb.DuckDBPyConnection, kind: str, keys: str, memory_limit: int | None
) -> None:
    """Sorts stay above the join."""
    sql = f"""SELECT s.run_id, s.step_index, s.board, s.phase, a.argmax_head, a.argmax_prob FROM steps s
        {kind} JOIN annotations a ON {KEYS} AND a.model = 'some' ORDER BY {keys}"""
    duck.execute("SET default_null_order = 'NULLS_LAST_ON_ASC_FIRST_ON_DESC'")
    found = pa.table(archive.sql(sql, memory_limit=memory_limit))
    assert [tuple(row.values()) for row in found.to_pylist()] == duck.execute(sql).fetchall()


def test_rows_that_depend_on_the_order(archive: a2store.Archive) -> None:
    """They are materialized in one partition."""
    query = archive.sql(f"""SELECT s.*, a.argmax_head FROM steps s
        LEFT JOIN annotations a ON {KEYS} AND a.model = 'some'
        WHERE s.board <> (SELECT count(*) FROM (SELECT array_agg(move) FROM steps)) ORDER BY s.step_index DESC""")
    assert "StepJoinExec" in query.explain()
    table = query.materialize(progress=False)
    assert len(table) == query.count()
    steps = table.take(np.arange(len(table))).step_index
    assert bool((steps[:-1] >= steps[1:]).all())


def test_an_archive_without_annotations(tmp_path: Path) -> None:
    archive = simulated(tmp_path, runs=2, seed=1)
    left = archive.sql(f"SELECT s.run_id, a.argmax_head FROM steps s LEFT JOIN annotations a ON {KEYS} AND model = 'm'")
    assert pa.table(left)["argmax_head"].null_count == archive.num_steps
    assert archive.sql(f"SELECT s.run_id FROM steps s JOIN annotations a ON {KEYS} AND model = 'm'").count() == 0
