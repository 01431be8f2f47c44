"""SQL over an archive, compared with DuckDB on the same files and with the oracle's columns."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
from compare import assert_steps, column, rows
from duck import of_files
from oracle import Array

FILTER = "SELECT * FROM steps WHERE max_score >= $min AND engine = $e AND phase = $p"
PARAMS = {"min": 5_000, "e": "alpha", "p": "mid"}


def filtered(steps: dict[str, Array], minimum: int = 5_000, engine: str = "alpha", phase: str = "mid") -> Array:
    rows = np.flatnonzero((steps["max_score"] >= minimum) & (steps["engine"] == engine) & (steps["phase"] == phase))
    assert 0 < len(rows) < len(steps["board"])
    return rows


def duckdb_rows(archive: a2store.Archive, sql: str, params: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
    """Return a query's rows in DuckDB, with the archive's Parquet files as ``steps`` and ``runs``."""
    return of_files(archive).execute(sql, list(params)).fetchall()


def test_a_filter_returns_duckdbs_rows_in_natural_order(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    query = archive.sql(FILTER, PARAMS)
    sql = "SELECT * FROM steps WHERE max_score >= ? AND engine = ? AND phase = ? ORDER BY run_id, step_index"
    expected = duckdb_rows(archive, sql, PARAMS.values())
    found = rows(query)
    assert len(found) == len(filtered(steps)) == query.count()
    assert found == expected
    assert_steps(pa.table(query), steps, filtered(steps))


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("max_score >= $1 AND engine = $2 AND phase = $3", [5_000, "alpha", "mid"]),
        ("max_score >= $1 AND engine = $2 AND phase = $3", (5_000, "alpha", "mid")),
        ("phase = $3 AND engine = $2 AND max_score >= $1", [5_000, "alpha", "mid"]),
        ("max_score >= $min AND engine = $e AND phase = $p", PARAMS),
        ("max_score >= $min AND engine = $e AND phase = $p", {"$min": 5_000, "$e": "alpha", "$p": "mid"}),
        ("max_score >= $1 AND engine = $2 AND phase = $3", [np.uint64(5_000), np.str_("alpha"), "mid"]),
        ("max_score >= $1 AND engine = $2 AND phase = $3", [np.int32(5_000), "alpha", "mid"]),
        ("max_score >= $1 AND engine = $2 AND phase = $3", [np.float64(4_999.5), "alpha", "mid"]),
        ("max_score >= $1 AND engine = $2 AND phase = $3 AND $4", [np.array([5_000]), "alpha", "mid", np.bool_(True)]),
        ("max_score >= 5000 AND engine = 'alpha' AND phase = 'mid'", None),
        ("max_score >= 5000 AND engine = 'alpha' AND phase = 'mid'", []),
    ],
)
def test_parameters(archive: a2store.Archive, steps: dict[str, Array], text: str, params: Any) -> None:
    found = pa.table(archive.sql(f"SELECT * FROM steps WHERE {text}", params))
    assert_steps(found, steps, filtered(steps), ["run_id", "step_index", "board"])


def test_times_and_nulls_as_parameters(archive: a2store.Archive) -> None:
    values = [*np.array(["2024-05-06", "NaT"], "M8[ns]"), pytest.importorskip("pandas").NaT, np.ma.masked]
    found = archive.sql("SELECT $1 = '2024-05-06'::TIMESTAMP, $2 AS a, $3 AS b, $4 AS c, $1", values).to_arrow()
    assert ([column[0].as_py() for column in found][:4], found[4].type) == ([True, *[None] * 3], pa.timestamp("ns"))


def test_a_parameter_may_be_a_board_with_its_top_bit_set(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    board = int(steps["board"].max())
    assert board > 2**63
    found = pa.table(archive.sql("SELECT board FROM steps WHERE board = $1", [board]))
    assert column(found, "board").tolist() == steps["board"][steps["board"] == board].tolist()
    with pytest.raises(ValueError, match="expected integers of"):
        archive.sql("SELECT * FROM steps WHERE board = $1", [2**64])


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("SELECT * FROM steps WHERE max_score > $min", None),
        ("SELECT * FROM steps WHERE max_score > $min", {}),
        ("SELECT * FROM steps WHERE max_score > $min", {"max": 1}),
        ("SELECT * FROM steps WHERE max_score > $min", {"min": 1, "max": 1}),
        ("SELECT * FROM steps WHERE max_score > $1", [1, 2]),
        ("SELECT * FROM steps WHERE max_score > $2", [1]),
        ("SELECT * FROM steps", {"min": 1}),
        ("SELECT * FROM steps", [1]),
        ("SELECT nothing FROM steps", None),
        ("SELECT * FROM games", None),
        ("SELECT * FROM steps WHERE", None),
    ],
)
def test_rejected_statements(archive: a2store.Archive, text: str, params: Any) -> None:
    with pytest.raises(a2store.QueryError) as caught:
        archive.sql(text, params)
    refused = isinstance(caught.value, a2store.QueryRefusedError)
    assert caught.value.kind == ("query_refused" if refused else "query")
    assert "\n" not in str(caught.value)


def test_parameters_of_unsupported_types(archive: a2store.Archive) -> None:
    for params in ([object()], [[1, 2]], [np.arange(2)], [np.timedelta64(3)], "text", 7):
        with pytest.raises(TypeError, match=r"^params: expected "):
            archive.sql("SELECT * FROM steps WHERE run_id = $1", params)  # type: ignore[arg-type]


def test_order_by(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    names = ["run_id", "step_index", "board"]
    by_score = np.lexsort((steps["step_index"], steps["run_id"], -steps["max_score"].astype("i8")))
    found = pa.table(archive.sql("SELECT * FROM steps ORDER BY max_score DESC, run_id, step_index LIMIT 3000"))
    assert_steps(found, steps, by_score[:3000], names)
    by_board = np.lexsort((steps["run_id"], steps["step_index"], steps["board"]))
    found = pa.table(archive.sql("SELECT * FROM steps ORDER BY board, step_index, run_id"))
    assert_steps(found, steps, by_board, names)
    found = pa.table(archive.sql("SELECT * FROM steps ORDER BY run_id DESC, step_index DESC"))
    assert_steps(found, steps, np.arange(len(by_board))[::-1], names)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT phase, count(*), min(max_score), max(board) FROM steps GROUP BY phase ORDER BY phase",
        "SELECT engine, move, count(*), sum(step_index) FROM steps GROUP BY engine, move ORDER BY 1 NULLS LAST, 2",
        "SELECT count(*), count(engine), count(ev_up), count(DISTINCT run_id) FROM steps",
        "SELECT max_exp, count(*) FROM steps WHERE has_evs AND ev_legal & 4 = 4 GROUP BY max_exp ORDER BY max_exp",
        "SELECT s.phase, r.highest_tile, count(*) FROM steps s JOIN runs r USING (run_id) GROUP BY 1, 2 ORDER BY 1, 2",
        "SELECT run_id, num_steps, max_score FROM runs WHERE highest_tile >= 512 ORDER BY max_score DESC, run_id",
        "WITH best AS (SELECT run_id FROM runs ORDER BY max_score DESC, run_id LIMIT 5) "
        "SELECT run_id, count(*) FROM steps WHERE run_id IN (SELECT run_id FROM best) GROUP BY run_id ORDER BY run_id",
        "SELECT run_id, step_index FROM steps WHERE engine IS NULL AND step_index % 50 = 0 ORDER BY 1, 2",
        "SELECT max(board) FROM steps WHERE max_score BETWEEN 3000 AND 6000 AND phase IN ('mid', 'late')",
    ],
)
def test_aggregates_and_joins_equal_duckdbs(archive: a2store.Archive, sql: str) -> None:
    expected = duckdb_rows(archive, sql)
    assert len(expected) > 0
    assert rows(archive.sql(sql)) == expected


def test_count(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    assert archive.sql("SELECT * FROM steps").count() == len(steps["board"]) == archive.num_steps
    assert archive.sql("SELECT * FROM runs").count() == archive.num_runs
    assert archive.sql("SELECT DISTINCT phase FROM steps").count() == 3
    assert archive.sql("SELECT phase, count(*) FROM steps GROUP BY phase ORDER BY phase LIMIT 2").count() == 2
    assert archive.sql("SELECT * FROM steps WHERE false").count() == 0
    assert archive.sql("SELECT 1 AS board, 2 AS board2").count() == 1


def test_unions_have_a_common_type(archive: a2store.Archive) -> None:
    sql = "SELECT move AS x FROM steps WHERE run_id = 0 UNION ALL SELECT 1000 UNION ALL SELECT NULL"
    united = pa.table(archive.sql(sql))["x"]
    assert united.type == pa.int64() == pa.schema(archive.sql(sql).schema).field("x").type
    assert {0, 1, 1000, None} <= set(united.to_pylist())
    mixed = "SELECT max_exp, move FROM steps UNION SELECT highest_tile, CAST(num_steps AS INT) FROM runs ORDER BY 1, 2"
    assert pa.table(archive.sql(mixed))["max_exp"].to_pylist()[-1] >= 16
    halves = archive.sql("SELECT 1 AS x UNION ALL SELECT 0.5")
    assert sorted(pa.table(halves)["x"].to_pylist()) == [0.5, 1.0]
    inside = "SELECT max(x) AS x FROM (SELECT max_exp AS x FROM steps UNION ALL SELECT 70000.5)"
    assert pa.table(archive.sql(inside))["x"].to_pylist() == [70000.5]


def test_explain_shows_where_filters_are_applied(archive: a2store.Archive) -> None:
    """test_saved_queries.py and the crate's tests have filters on runs and on phases."""
    # A filter that keeps every fourth row at scattered places stays above the reader.
    plan = archive.sql("SELECT board FROM steps WHERE move = 2").explain()
    assert "FilterExec: move" in plan
    assert "predicate" not in plan
    # A filter that hardly any row passes is pushed down.
    plan = archive.sql("SELECT move FROM steps WHERE board = 5").explain()
    assert "FilterExec" not in plan
    assert "predicate=board" in plan
    analyzed = archive.sql(FILTER, PARAMS).explain(analyze=True)
    assert "metrics=" in analyzed


def test_a_query_sees_the_version_of_its_creation(one_run: a2store.Archive, run_files: list[Path]) -> None:
    query = one_run.sql("SELECT * FROM runs")
    one_run.ingest(run_files[1], progress=False)
    assert query.count() == 1
    assert one_run.sql("SELECT * FROM runs").count() == 2


def test_an_empty_archive_has_its_columns(tmp_path: Path) -> None:
    archive = a2store.Archive.create(tmp_path / "empty.a2")
    table = pa.table(archive.sql("SELECT * FROM steps WHERE max_score > 5"))
    assert table.num_rows == 0
    assert table.schema == pa.schema(archive.schema("steps"))
    assert archive.sql("SELECT * FROM runs").count() == 0
    assert rows(archive.sql("SELECT count(*) FROM steps")) == [(0,)]
