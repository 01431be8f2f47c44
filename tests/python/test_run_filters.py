"""Run-level filters, alone and combined with others: DuckDB's rows on the same files, in natural order."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import a2store
import duck
from archives import copied, ingested, plain
from compare import rows
from faults.checks import LONG
from test_query import duckdb_rows

COLUMNS = "run_id, step_index, board, move, ev_up, phase"


def conditions(archive: a2store.Archive) -> list[str]:
    """Return conditions on columns of runs, positions in a run, and single steps; each is true for some rows only."""
    scores = sorted(pa.table(archive.sql("SELECT max_score FROM runs"))["max_score"].to_pylist())
    middle, high = scores[len(scores) // 2], scores[-len(scores) // 5]
    return [
        f"max_score >= {middle}",
        f"max_score < {middle}",
        f"{high} <= max_score",
        f"max_score BETWEEN {middle} AND {high}",
        f"NOT (max_score > {high})",
        "engine = 'alpha'",
        "engine <> 'alpha'",
        "engine IS NULL",
        "engine IS NOT NULL",
        "engine IN ('beta', 'γάμμα')",
        "engine NOT IN ('beta', 'alpha')",
        "engine LIKE 'al%'",
        "coalesce(engine, 'none') = 'none'",
        "highest_tile IN (256, 512)",
        "num_steps % 2 = 0",
        "num_steps > 300 OR engine = 'beta'",
        "run_id = 17",
        "run_id BETWEEN 15 AND 42",
        "run_id IN (0, 19, 20, 59)",
        "run_id > 1000",
        "max_score + run_id > 5000",
        "step_index < 50",
        "step_index <= 0",
        "30 > step_index",
        "step_index = 100",
        "step_index BETWEEN 90 AND 110",
        "step_index >= 250",
        "step_index <> 3",
        "step_index < -1",
        "step_index < 12.5",
        "step_index > 9999999999",
        "step_index IN (1, 5, 300)",
        "step_index * 2 < num_steps",
        "step_index = num_steps - 1",
        "phase = 'mid'",
        "phase IN ('early', 'late')",
        "max_exp >= 8",
        "move = 2",
        "ev_up > 0.5",
        "ev_up IS NULL",
        "has_evs",
        "board % 3 = 0",
        "true",
    ]


@pytest.fixture(scope="module", params=["as it came", "compacted", "an older version"])
def shaped(
    request: pytest.FixtureRequest, archive: a2store.Archive, tmp_path_factory: pytest.TempPathFactory
) -> a2store.Archive:
    """The archive with three files of steps, with one, and with two."""
    if request.param == "an older version":
        return a2store.Archive.open(archive.path, version=archive.version - 1)
    if request.param == "compacted":
        path = copied(Path(archive.path), tmp_path_factory.mktemp("compacted") / "games.a2")
        compacted = a2store.Archive.open(path)
        compacted.compact(progress=False)
        assert len(compacted.files("steps")) == 1
        return compacted
    return archive


def test_each_condition(shaped: a2store.Archive) -> None:
    every = conditions(shaped)
    files = len(shaped.files("steps"))
    # All on the archive as it came, and half of them on each of the others.
    for condition in every if LONG or files == 3 else every[files - 1 :: 2]:
        sql = f"SELECT {COLUMNS} FROM steps WHERE {condition}"
        expected = duck.table(duck.of_files(shaped), f"{sql} ORDER BY run_id, step_index")
        query = shaped.sql(sql)
        assert plain(pa.table(query)).equals(plain(expected)), condition
        assert query.count() == len(expected), condition


def test_numeric_names_match_no_column(shaped: a2store.Archive) -> None:
    name = '"number of keys 1"'
    top = f"""
        SELECT min({name}), max({name}) FROM (
            SELECT max_exp AS {name}, move FROM (SELECT DISTINCT max_exp, move FROM steps WHERE move IS NOT NULL)
            ORDER BY {name} LIMIT 3)"""
    joined = f"""
        SELECT max_exp, move, n, m FROM (SELECT 4 AS e) s JOIN (
            SELECT max_exp, move, count(*) AS n, max({name}) AS m
            FROM (SELECT max_exp, move, board AS {name} FROM steps) GROUP BY max_exp, move
        ) g ON g.max_exp = s.e ORDER BY max_exp, move"""
    for sql in (top, joined):
        assert rows(shaped.sql(sql)) == duckdb_rows(shaped, sql)


@pytest.mark.parametrize("keys", ["max_exp", "max_exp, move", "phase", "phase, engine", "run_id"])
def test_distinct_with_a_limit_stops_early(shaped: a2store.Archive, keys: str) -> None:
    query = shaped.sql(f"SELECT DISTINCT {keys} FROM steps LIMIT 2")
    plan = query.explain()
    assert plan.count("lim=[2]") == plan.count("AggregateExec") > 0
    assert len(set(rows(query))) == 2


BINS = "SELECT max_exp, move, count(*) AS n FROM steps GROUP BY max_exp, move"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT max_exp % 2 AS a, move % 2 AS b, max_exp, move, "
        f"sum(n) OVER (PARTITION BY max_exp % 2 ORDER BY move % 2) FROM ({BINS}) ORDER BY a, b, max_exp, move",
        "SELECT move % 2 AS b, max_exp, move, n, sum(n) OVER (PARTITION BY move % 2) "
        f"FROM ({BINS}) ORDER BY b, max_exp, move",
        f"SELECT max_exp % 3 AS a, n, move, sum(n) OVER (PARTITION BY max_exp % 3), max_exp FROM ({BINS}) "
        "ORDER BY a, n DESC, move, max_exp",
        "SELECT step_index - step_index % 10 AS s, max_exp, n, sum(n) OVER (PARTITION BY step_index - step_index % 10) "
        "FROM (SELECT step_index, max_exp, count(*) AS n FROM steps GROUP BY step_index, max_exp) "
        "ORDER BY s, max_exp, n, step_index",
    ],
)
def test_packed_group_keys_keep_the_order(shaped: a2store.Archive, sql: str) -> None:
    assert rows(shaped.sql(sql)) == duckdb_rows(shaped, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT engine, count(*) FROM steps GROUP BY engine ORDER BY engine",
        "SELECT DISTINCT engine, phase FROM steps ORDER BY engine, phase",
        "SELECT DISTINCT phase FROM steps WHERE engine IS NULL ORDER BY phase",
        "SELECT engine, phase, move, count(*), count(DISTINCT run_id) FROM steps GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
        "SELECT engine, count(*) AS n FROM steps GROUP BY engine HAVING engine <> 'beta' ORDER BY n, engine",
        "SELECT upper(engine) AS e, phase, max(board) FROM steps GROUP BY engine, phase ORDER BY engine, phase",
        "SELECT engine, phase, count(*) FROM steps GROUP BY ROLLUP (engine, phase) ORDER BY 3, 1, 2",
        "SELECT a.engine, a.n AS x, b.n AS y FROM (SELECT engine, count(*) n FROM steps GROUP BY engine) a "
        "JOIN (SELECT engine, count(*) n FROM runs GROUP BY engine) b ON a.engine = b.engine ORDER BY 1",
        "SELECT count(DISTINCT engine), min(engine), max(phase) FROM steps",
        "SELECT engine, count(*) FROM (SELECT engine FROM runs UNION ALL SELECT engine FROM runs) "
        "GROUP BY engine ORDER BY engine",
        "SELECT engine FROM runs GROUP BY engine EXCEPT SELECT 'beta' ORDER BY 1",
        "SELECT phase, engine, row_number() OVER (PARTITION BY engine ORDER BY n, phase) AS place "
        "FROM (SELECT phase, engine, count(*) AS n FROM steps GROUP BY phase, engine) ORDER BY engine, place",
        "SELECT 'constant' AS c, engine, count(*) FROM steps GROUP BY c, engine ORDER BY engine",
        # Keys that are packed into one number, alone and combined with keys that do not fit.
        "SELECT engine, phase, count(*), min(board) FROM steps GROUP BY engine, phase ORDER BY engine, phase",
        "SELECT move, phase, step_index % 3, count(*) FROM steps GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
        "SELECT move, engine, max_score, count(*) FROM steps GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
        "SELECT has_evs, move, ev_legal, engine IS NULL, count(*) FROM steps GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4",
        "SELECT highest_tile, step_index, move, count(*) FROM steps GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
        "SELECT max_exp, CAST(move AS TINYINT) - CAST(2 AS TINYINT) AS m, count(*) FROM steps GROUP BY 1, 2 "
        "ORDER BY 1, 2",
        "SELECT CAST(step_index AS INT) - 9 AS s, CAST(move AS SMALLINT) AS m, count(*) FROM steps GROUP BY 1, 2 "
        "ORDER BY 1, 2",
        "SELECT CAST(start_time AS DATE) AS day, engine, count(*) FROM runs GROUP BY 1, 2 ORDER BY 1, 2",
        "SELECT run_id, max_exp, min(step_index) FROM steps GROUP BY run_id, max_exp ORDER BY run_id, max_exp",
        "SELECT count(*) FROM (SELECT DISTINCT move, phase FROM steps WHERE engine = 'none of them')",
        "SELECT move, max_exp, count(DISTINCT phase) FROM steps GROUP BY move, max_exp ORDER BY move, max_exp",
        "SELECT move, phase, n FROM (SELECT move, phase, count(*) AS n FROM steps GROUP BY move, phase) "
        "WHERE move IS NULL OR phase <> 'early' ORDER BY n DESC, move, phase LIMIT 5",
    ],
)
def test_groups_by_text(shaped: a2store.Archive, sql: str) -> None:
    assert rows(shaped.sql(sql)) == duckdb_rows(shaped, sql)


def test_sampled_runs_keep_their_step_indices(fixtures: Path, tmp_path: Path) -> None:
    """A bound on ``step_index`` must not be used as a position among the stored rows."""
    archive = ingested(tmp_path / "games.a2", fixtures)
    formats = {row[0] for row in rows(archive.sql("SELECT DISTINCT format FROM runs"))}
    assert "session" in formats
    for condition in ("step_index < 7", "step_index BETWEEN 5 AND 20", "step_index > 100", "step_index % 2 = 1"):
        expected = duckdb_rows(archive, f"SELECT {COLUMNS} FROM steps WHERE {condition} ORDER BY run_id, step_index")
        assert len(expected) > 0
        assert rows(archive.sql(f"SELECT {COLUMNS} FROM steps WHERE {condition}")) == expected


def test_cached_metadata_belongs_to_its_version(run_files: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "games.a2"
    archive = a2store.Archive.create(path)
    for i in range(1, 6):
        archive.ingest(run_files[i - 1], progress=False)
        assert archive.sql("SELECT DISTINCT run_id FROM steps WHERE max_score >= 0").count() == i
        older = a2store.Archive.open(path, version=max(2, archive.version - 1))
        assert older.sql("SELECT DISTINCT run_id FROM steps WHERE run_id >= 0").count() == older.num_runs


def test_another_archive_in_the_same_place(run_files: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "games.a2"
    for files in (run_files[:2], run_files[40:43]):
        archive = ingested(path, files)
        expected = duckdb_rows(archive, "SELECT run_id, step_index, board FROM steps WHERE max_score > 1 ORDER BY 1, 2")
        assert rows(archive.sql("SELECT run_id, step_index, board FROM steps WHERE max_score > 1")) == expected
        path.rename(tmp_path / f"moved-{len(files)}")
