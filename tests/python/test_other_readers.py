"""The Parquet files in other readers: equal rows, equal types, and statistics that let a filter skip most of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import a2store
from archives import Table, Tables, grow, plain, short_runs, tables
from oracle import EV_COLUMNS

ENGINES = ("alpha", "beta", "gamma")
RUNS_PER_ENGINE = 800
SHORT = 12

WITHOUT_STATISTICS = {
    "steps": {"board", *EV_COLUMNS, "step_index", "move", "ev_legal", "has_evs"},
    "runs": {"digest", "game", "final_board", "original", "elapsed_s"},
}
"""Columns on which no filter can prune."""
# The reader decodes text into dictionaries for any writer.
WITH_DICTIONARIES = {"steps": {"phase", "engine", "valuation_type"}, "runs": {"format", "engine"}}
TABLES: tuple[Table, ...] = ("steps", "runs")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> a2store.Archive:
    """Three engines, ingested one by one and compacted into two row groups; then a few short runs in a separate file.

    No unreferenced file is left, so a glob finds exactly the files of the newest version.
    """
    folder = tmp_path_factory.mktemp("others")
    for seed, engine in enumerate(ENGINES):
        options: dict[str, Any] = {"runs": RUNS_PER_ENGINE, "seed": seed, "engine": engine, "depth": 0}
        a2store.simulate(folder / engine, progress=False, **options)
    phases = {"mid": 256, "late": 512}
    archive = grow(folder / "games.a2", [[folder / engine] for engine in ENGINES], phases=phases)
    archive.compact(progress=False)
    archive.ingest(short_runs(folder / "short", SHORT), progress=False)
    archive.expire(older_than=0, grace=0)
    assert len(archive.files("steps")) == 2
    assert pq.read_metadata(archive.files("steps")[0]).num_row_groups == 2
    return archive


@pytest.fixture(scope="module")
def expected(archive: a2store.Archive) -> Tables:
    return tables(archive)


def glob(archive: a2store.Archive, table: str) -> str:
    return f"{archive.path}/{table}/*.parquet"


# Rows


def test_a_glob_finds_the_files_of_the_version(archive: a2store.Archive) -> None:
    for table in TABLES:
        found = {str(path) for path in (Path(archive.path) / table).glob("*.parquet")}
        assert found == set(archive.files(table))


def by_duckdb(files: list[str] | str, table: str) -> Any:
    order = "run_id, step_index" if table == "steps" else "run_id"
    return duckdb.read_parquet(files).order(order).to_arrow_table()


def by_polars(files: list[str] | str, table: str) -> Any:
    order = ["run_id", "step_index"] if table == "steps" else ["run_id"]
    return pl.scan_parquet(files).sort(order).collect().to_arrow()


def by_pyarrow(files: list[str] | str, table: str) -> Any:
    paths = files if isinstance(files, list) else sorted(map(str, Path(files).parent.glob(Path(files).name)))
    order = [("run_id", "ascending")] + [("step_index", "ascending")] * (table == "steps")
    return pa.concat_tables([pq.read_table(path) for path in paths], promote_options="permissive").sort_by(order)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("which", ["files", "glob"])
@pytest.mark.parametrize("read", [by_duckdb, by_polars, by_pyarrow])
def test_all_rows(archive: a2store.Archive, expected: Tables, read: Any, which: str, table: Table) -> None:
    found = plain(read(archive.files(table) if which == "files" else glob(archive, table), table))
    assert found.column_names == expected[table].column_names
    for name in found.column_names:
        assert found[name].cast(expected[table][name].type).equals(expected[table][name]), name


def test_the_files_have_the_documented_types(archive: a2store.Archive) -> None:
    for table in TABLES:
        schema = pa.schema(archive.schema(table))
        for file in archive.files(table):
            assert pq.read_schema(file).remove_metadata().equals(schema.remove_metadata())
        dictionaries = {field.name for field in schema if pa.types.is_dictionary(field.type)}
        assert dictionaries == WITH_DICTIONARIES[table]
    frame = pl.scan_parquet(archive.files("steps")).collect_schema()
    assert isinstance(frame["phase"], pl.Categorical | pl.Enum)
    assert [frame[name] for name in ("board", "run_id", "move")] == [pl.UInt64(), pl.UInt32(), pl.UInt8()]
    relation = duckdb.read_parquet(glob(archive, "runs"))
    types = dict(zip(relation.columns, map(str, relation.types), strict=True))
    assert (types["digest"], types["start_time"]) == ("BLOB", "TIMESTAMP WITH TIME ZONE")
    assert (types["final_board"], types["game"], types["verified"]) == ("UBIGINT", "BIGINT", "BOOLEAN")


def test_other_engines_join_the_tables(archive: a2store.Archive) -> None:
    sql = """
        SELECT runs.engine, runs.format, count(*) AS n, max(steps.max_score) AS best
        FROM steps JOIN runs USING (run_id) GROUP BY ALL ORDER BY ALL
    """
    ours = pa.table(archive.sql(sql.replace("GROUP BY ALL ORDER BY ALL", "GROUP BY 1, 2 ORDER BY 1, 2")))
    with duckdb.connect() as connection:
        for table in TABLES:
            connection.execute(f"CREATE VIEW {table} AS FROM read_parquet('{glob(archive, table)}')")
        rows = connection.execute(sql).fetchall()
    assert rows == [tuple(row.values()) for row in plain(ours).to_pylist()]


# Metadata of a file


@pytest.mark.parametrize("table", TABLES)
def test_statistics_and_page_indexes(archive: a2store.Archive, expected: Tables, table: Table) -> None:
    offset = 0
    for file in archive.files(table):
        metadata = pq.read_metadata(file)
        assert metadata.created_by.startswith("a2store ")
        assert metadata.metadata[b"a2store.schema_version"] == b"1"
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            rows = expected[table].slice(offset, group.num_rows)
            offset += group.num_rows
            for at in range(group.num_columns):
                column = group.column(at)
                name = column.path_in_schema
                assert column.compression == "ZSTD"
                assert column.has_offset_index, name
                if name in WITHOUT_STATISTICS[table]:
                    assert not column.is_stats_set, name
                    assert not column.has_column_index, name
                    continue
                assert column.is_stats_set, name
                assert column.has_column_index, name
                check_statistics(column.statistics, rows[name], name)


def check_statistics(statistics: Any, values: Any, name: str) -> None:
    assert statistics.null_count == values.null_count, name
    if values.null_count == len(values):
        assert not statistics.has_min_max, name
        return
    bounds = pc.min_max(values).as_py()
    if name == "elapsed_s":
        # The bounds include zeros of both signs.
        assert statistics.min <= bounds["min"] <= bounds["max"] <= statistics.max
    elif name == "source":
        # Long paths are truncated to 64 bytes: the minimum is rounded down, the maximum up.
        assert statistics.min == bounds["min"][:64]
        assert statistics.max >= bounds["max"]
        assert statistics.max[:63] == bounds["max"][:63]
    else:
        assert (statistics.min, statistics.max) == (bounds["min"], bounds["max"]), name


def test_the_files_declare_their_sort_order(archive: a2store.Archive) -> None:
    expected: list[tuple[Table, list[int]]] = [("steps", [0, 1]), ("runs", [0])]
    for table, columns in expected:
        for file in archive.files(table):
            metadata = pq.read_metadata(file)
            for index in range(metadata.num_row_groups):
                sorting = metadata.row_group(index).sorting_columns
                assert [each.column_index for each in sorting] == columns
                assert not any(each.descending for each in sorting)


# Skipped data


def duckdb_work(archive: a2store.Archive, where: str) -> tuple[int, dict[str, Any]]:
    """Return the number of rows that a filter selects, and DuckDB's metrics of the scan."""
    sql = f"SELECT count(*), sum(board) FROM read_parquet('{glob(archive, 'steps')}') WHERE {where}"
    with duckdb.connect() as connection:
        row = connection.execute(sql).fetchone()
        ((_, text),) = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}").fetchall()
    assert row is not None
    return row[0], json.loads(text)["query"]


FILTERS = {
    "engine": ("engine = 'gamma'", 2),
    "no engine": ("engine IS NULL", 1),
    "run": ("run_id = 7", 1),
    "runs": (f"run_id >= {3 * RUNS_PER_ENGINE}", 1),
    "the last run of a row group": (f"run_id = {2 * RUNS_PER_ENGINE - 1}", 1),
    "score": ("max_score < 500", 1),
    "phase": ("phase = 'late'", 2),
    "length": ("num_steps = 20", 1),
}
"""Filters of ``steps``, and the number of the three row groups that can contain matching rows."""


@pytest.mark.parametrize("name", FILTERS)
def test_row_groups_are_skipped(archive: a2store.Archive, expected: Tables, name: str) -> None:
    where, groups = FILTERS[name]
    ours = archive.sql(f"SELECT count(*) AS n, sum(board) AS s FROM steps WHERE {where}")
    (row,) = pa.table(ours).to_pylist()
    count, work = duckdb_work(archive, where)
    assert row["n"] == count > 0
    assert work["total_row_groups_to_scan"] >= groups
    assert work["total_row_groups_scanned"] <= groups
    assert work["total_rows_scanned"] < len(expected["steps"])


def metrics(archive: a2store.Archive, where: str) -> dict[str, tuple[int, int]]:
    """Return what our own scan pruned: for each metric, the total and the number that remained."""
    plan = archive.sql(f"SELECT board FROM steps WHERE {where}").explain(analyze=True)
    (scan,) = [line for line in plan.splitlines() if "DataSourceExec" in line]
    found = {}
    for name, total, matched in re.findall(r"(\w+)=([\d.]+(?: [KM])?) total → ([\d.]+(?: [KM])?) matched", scan):
        found[name] = (number(total), number(matched))
    return found


def number(text: str) -> int:
    digits, _, unit = text.partition(" ")
    return round(float(digits) * {"": 1, "K": 1_000, "M": 1_000_000}[unit])


def test_our_own_scan_skips_pages(archive: a2store.Archive) -> None:
    where = "max_exp >= 10"
    total, matched = metrics(archive, where)["page_index_rows_pruned"]
    assert total > 0
    assert matched < 0.9 * total
    count = archive.sql(f"SELECT * FROM steps WHERE {where}").count()
    assert 0 < count <= matched * 1.01


@pytest.mark.parametrize(
    ("where", "share"),
    [("run_id = 7", 0.2), ("run_id BETWEEN 100 AND 120", 0.2), ("max_score > 15000", 0.9), ("engine = 'alpha'", 0.8)],
)
def test_filters_on_runs_read_less(archive: a2store.Archive, where: str, share: float) -> None:
    def scanned(where: str) -> int:
        plan = archive.sql(f"SELECT board FROM steps WHERE {where}").explain(analyze=True)
        (found,) = re.findall(r"bytes_scanned=([\d.]+(?: [KM])?)", plan)
        return number(found)

    assert 0 < scanned(where) < share * scanned("true")


# The recipes of docs/distributed.md, on an object store of the tests or, for Spark, in a folder


RECIPES = (Path(__file__).parents[2] / "docs" / "distributed.md").read_text().split("## Other engines")[1]
Answer = dict[int, int]


def recipe(engine: str) -> str:
    """Return the code of a recipe."""
    found = re.search(rf"^\*\*{engine}\*\*.*?```python\n(.*?)```", RECIPES, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def run(engine: str, archive: a2store.Archive) -> Any:
    names: dict[str, Any] = {"archive": archive, "steps": archive.files("steps")}
    exec(recipe(engine), names)
    return names["answer"]


def grown(where: str | Path, folder: Path) -> tuple[a2store.Archive, Answer]:
    """Create an archive of three files and of unreferenced ones, and return it with the expected answer."""
    archive = a2store.Archive.create(where)
    for seed in range(4):
        a2store.simulate(folder / str(seed), runs=5, depth=0, seed=seed, progress=False)
    for seed in range(2):
        archive.ingest(folder / str(seed), progress=False)
    # The files before the compaction stay in the archive.
    archive.compact(progress=False)
    for seed in range(2, 4):
        archive.ingest(folder / str(seed), progress=False)
    assert len(archive.files("steps")) == 3
    moves = pa.table(archive.sql("SELECT move FROM steps WHERE max_score >= 1000"))["move"].to_pylist()
    return archive, dict(Counter(moves))


@pytest.fixture
def remote(url: str, tmp_path: Path) -> tuple[a2store.Archive, Answer]:
    return grown(url, tmp_path)


def test_polars(remote: tuple[a2store.Archive, Answer]) -> None:
    archive, expected = remote
    assert dict(run("polars", archive).iter_rows()) == expected


def test_duckdb(remote: tuple[a2store.Archive, Answer]) -> None:
    archive, expected = remote
    assert dict(run("DuckDB", archive)) == expected
