"""Arrow results in other libraries: schemas, streams, casts, and data that outlives its exporter."""

from __future__ import annotations

import gc
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import a2store
from compare import assert_steps, column
from oracle import Array

SQL = "SELECT run_id, step_index, board, ev_up, phase, engine, has_evs FROM steps WHERE phase <> 'early'"


@pytest.fixture(scope="module")
def query(archive: a2store.Archive) -> a2store.Query:
    return archive.sql(SQL)


@pytest.fixture(scope="module")
def expected_rows(steps: dict[str, Array]) -> Array:
    return np.flatnonzero(steps["phase"] != "early")


def test_schemas(archive: a2store.Archive, query: a2store.Query) -> None:
    text = pa.dictionary(pa.int32(), pa.string())
    steps = pa.schema(archive.schema("steps"))
    assert pa.schema(archive.schema()) == steps
    expected = [
        ("run_id", pa.uint32(), False),
        ("step_index", pa.uint32(), False),
        ("board", pa.uint64(), False),
        ("tile_65536_mask", pa.uint16(), False),
        ("move", pa.uint8(), True),
        *((f"ev_{move}", pa.float32(), True) for move in ("up", "down", "left", "right")),
        ("board_eval", pa.int32(), True),
        ("valuation_type", text, True),
        ("ev_legal", pa.uint8(), False),
        ("has_evs", pa.bool_(), False),
        ("max_exp", pa.uint8(), False),
        ("phase", text, False),
        ("max_score", pa.int64(), False),
        ("highest_tile", pa.uint32(), False),
        ("num_steps", pa.uint32(), False),
        ("engine", text, True),
    ]
    assert [(field.name, field.type, field.nullable) for field in steps] == expected
    assert archive.schema("steps").names == steps.names
    assert len(archive.schema("steps")) == len(steps)
    runs = pa.schema(archive.schema("runs"))
    assert {"run_id", "digest", "format", "source", "start_time", "final_board", "verified"} < set(runs.names)
    with pytest.raises(ValueError, match="table"):
        archive.schema("games")  # type: ignore[arg-type]
    assert pa.schema(query).names == pa.schema(query.schema).names == SQL.split(" FROM ")[0][7:].split(", ")
    assert pa.schema(query) == pa.table(query).schema


def test_a_query_can_be_read_repeatedly(query: a2store.Query, steps: dict[str, Array], expected_rows: Array) -> None:
    names = pa.schema(query).names
    first = pa.table(query)
    assert_steps(first, steps, expected_rows, names)
    assert pa.table(query) == first
    assert pa.RecordBatchReader.from_stream(query).read_all() == first
    frame = pl.DataFrame(query)
    assert frame["board"].to_numpy().tolist() == steps["board"][expected_rows].tolist()
    assert frame["engine"].cast(pl.String).to_list() == steps["engine"][expected_rows].tolist()
    assert frame["ev_up"].null_count() == np.isnan(steps["ev_up"][expected_rows]).sum()
    for _ in range(2):
        found = duckdb.execute("SELECT run_id, step_index, board, phase FROM query ORDER BY 1, 2").fetchall()
        columns = [steps[name][expected_rows].tolist() for name in ("run_id", "step_index", "board", "phase")]
        assert found == list(zip(*columns, strict=True))
    assert pa.table(query) == first


def test_empty_results_keep_their_columns(archive: a2store.Archive) -> None:
    query = archive.sql(f"{SQL} AND run_id > 1000000")
    table = pa.table(query)
    assert (table.num_rows, table.schema) == (0, pa.schema(query))
    assert pl.DataFrame(query).columns == table.column_names
    assert duckdb.execute("SELECT count(*) FROM query").fetchall() == [(0,)]


def test_a_requested_schema_casts(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    query = archive.sql("SELECT run_id, move, ev_up, phase FROM steps LIMIT 9000")
    schema = pa.schema([("run_id", pa.int64()), ("move", pa.int32()), ("ev_up", pa.float64()), ("phase", pa.string())])
    table = pa.RecordBatchReader.from_stream(query, schema=schema).read_all()
    assert table.schema.types == schema.types
    for name in ("run_id", "move", "phase"):
        assert column(table, name).tolist() == steps[name][:9000].tolist()
    np.testing.assert_array_equal(column(table, "ev_up"), steps["ev_up"][:9000].astype("f8"))


def test_a_stream_outlives_query_and_archive(run_files: list[Path], tmp_path: Path) -> None:
    archive = a2store.Archive.create(tmp_path / "games.a2")
    archive.ingest(run_files, progress=False)
    query = archive.sql("SELECT run_id, board FROM steps")
    expected = pa.table(query)
    reader = pa.RecordBatchReader.from_stream(query)
    first = reader.read_next_batch()
    del archive, query
    gc.collect()
    assert pa.Table.from_batches([first, *reader]) == expected
    del reader
    gc.collect()
    assert first.column("board").to_pylist() == expected["board"].to_pylist()[: len(first)]


def test_a_failure_while_running_reaches_the_reader(archive: a2store.Archive) -> None:
    failing = archive.sql("SELECT CAST(step_index * 20 AS TINYINT) AS value FROM steps")
    for query, schema in [(failing, None), (archive.sql("SELECT 300 AS n"), pa.schema([("n", pa.int8())]))]:
        with pytest.raises((pa.ArrowException, OSError), match="Can't cast value"):
            pa.table(query, schema=schema)
    with pytest.raises(a2store.QueryError, match="Can't cast value"):
        archive.sql("SELECT CAST(step_index * 20 AS TINYINT) AS board FROM steps").materialize(progress=False)


def test_views_outlive_the_table(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    table = archive.sql("SELECT * FROM steps").materialize(progress=False)
    rows, binary, batch = np.asarray(table), pa.array(table.rows_array()), table.take([5, 3])
    reader = pa.RecordBatchReader.from_stream(table)
    tokens, record = batch.tokens, pa.record_batch(batch)
    expected = rows.tobytes()
    del table, batch
    gc.collect()
    assert rows.tobytes() == expected
    assert b"".join(binary.to_pylist()) == expected
    assert record["board"].to_pylist() == steps["board"][[5, 3]].tolist()
    assert tokens.shape == (2, 16)
    assert_steps(reader.read_all(), steps, names=["board", "run_id", "move"])
    del rows
    gc.collect()
    assert binary[0].as_py() == expected[:32]
