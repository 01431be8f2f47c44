"""User tables beside ``steps`` and ``runs``: from every library, from Parquet files, and from the command."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import a2store
import duck
from compare import row_keys, rows
from oracle import Array
from test_command import run

LABELS = pa.table(
    {
        "run_id": pa.array([1, 4, 5, 21, 40, 41, 77, None], "uint32"),
        "label": ["good", "bad", "good", "γ", None, "bad", "none such", "null"],
        "weight": pa.array([1.5, 2.5, None, 0.25, 4.0, 8.0, 16.0, 32.0]),
    }
)
COUNT = """SELECT label, count(*) AS n, sum(weight) AS weight FROM steps JOIN labels USING (run_id)
    GROUP BY label ORDER BY label NULLS LAST"""


@pytest.fixture(scope="module")
def expected(archive: a2store.Archive) -> list[tuple[Any, ...]]:
    with duck.connect(archive) as connection:
        connection.register("labels", LABELS)
        found = connection.execute(COUNT).fetchall()
    assert [row[0] for row in found] == ["bad", "good", "γ", None]
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "labels.parquet"
    pq.write_table(LABELS, path)
    return path


# From libraries


def as_pandas() -> Any:
    pytest.importorskip("pandas")
    # The index has no name, and is not part of the table.
    return LABELS.to_pandas().astype({"run_id": "UInt32"}).set_axis(range(LABELS.num_rows, 0, -1)).sample(frac=1)


FORMS: dict[str, Callable[[], Any]] = {
    "pyarrow table": lambda: LABELS,
    "table with empty chunks": lambda: pa.concat_tables([LABELS.slice(0, 0), LABELS, LABELS.slice(0, 0)]),
    "slice": lambda: pa.concat_tables([LABELS.slice(4), LABELS]).slice(4),
    "struct array": lambda: LABELS.to_struct_array(),
    "dictionaries": lambda: LABELS.set_column(1, "label", LABELS["label"].dictionary_encode()),
    "string views": lambda: LABELS.set_column(1, "label", LABELS["label"].cast(pa.string_view())),
    "polars": lambda: polars.DataFrame(LABELS),
    "polars categories": lambda: polars.DataFrame(LABELS).with_columns(polars.col("label").cast(polars.Categorical)),
    "pandas": as_pandas,
    "duckdb": lambda: duckdb.from_arrow(LABELS),
}


@pytest.mark.parametrize("form", FORMS)
def test_libraries(archive: a2store.Archive, expected: list[tuple[Any, ...]], form: str) -> None:
    query = archive.sql(COUNT, tables={"labels": FORMS[form]()})
    assert rows(query) == expected
    assert rows(query) == expected


def test_a_reader_is_read_once(archive: a2store.Archive, expected: list[tuple[Any, ...]]) -> None:
    """Its rows are kept, so that the query can run several times."""
    reader = LABELS.to_reader()
    query = archive.sql(COUNT, tables={"labels": reader})
    assert rows(query) == expected
    assert rows(query) == expected
    assert query.count() == len(expected)
    assert rows(archive.sql("SELECT count(*) FROM labels", tables={"labels": reader})) == [(0,)]


def test_another_query(archive: a2store.Archive, one_run: a2store.Archive) -> None:
    """A query over the same archive, or over another one, can be a table."""
    best = archive.sql("SELECT run_id, max_score FROM runs ORDER BY max_score DESC LIMIT 3")
    sql = "SELECT DISTINCT run_id, s.max_score FROM steps s JOIN best USING (run_id) ORDER BY s.max_score DESC"
    assert rows(archive.sql(sql, tables={"best": best})) == rows(best)
    both = "SELECT count(*) FROM steps s JOIN other o USING (step_index, board) WHERE s.run_id = 0"
    other = one_run.sql("SELECT * FROM steps")
    assert rows(archive.sql(both, tables={"other": other})) == [(one_run.num_steps,)]


def test_joins_with_both_tables(archive: a2store.Archive, file: Path) -> None:
    second = pa.table({"engine": ["alpha", "γάμμα"], "colour": ["red", "green"]})
    for sql in (
        """SELECT r.run_id, label, colour, count(*) FROM steps s JOIN runs r USING (run_id)
            LEFT JOIN labels ON labels.run_id = r.run_id LEFT JOIN colours ON colours.engine = r.engine
            GROUP BY ALL ORDER BY 1, 2""",
        "SELECT run_id FROM runs WHERE run_id NOT IN (SELECT run_id FROM labels WHERE run_id IS NOT NULL) ORDER BY 1",
        "SELECT l.run_id, r.max_score FROM labels l LEFT JOIN runs r ON l.run_id = r.run_id ORDER BY 1 NULLS LAST",
        "SELECT label, max(weight) OVER (PARTITION BY label) AS w FROM labels ORDER BY 1 NULLS LAST, 2",
    ):
        with duck.connect(archive) as connection:
            connection.register("labels", LABELS)
            connection.register("colours", second)
            expected = connection.execute(sql.replace("GROUP BY ALL", "GROUP BY 1, 2, 3")).fetchall()
        for labels in (LABELS, file):
            query = archive.sql(
                sql.replace("GROUP BY ALL", "GROUP BY 1, 2, 3"),
                tables={"labels": labels, **({"colours": second} if "colours" in sql else {})},
            )
            assert rows(query) == expected
        assert len(expected) > 5


def test_no_rows_and_no_columns(archive: a2store.Archive, tmp_path: Path) -> None:
    none = LABELS.slice(0, 0)
    pq.write_table(none, tmp_path / "none.parquet")
    for table in (none, none.to_reader(), polars.DataFrame(none), tmp_path / "none.parquet"):
        query = archive.sql(COUNT, tables={"labels": table})
        assert rows(query) == []
        assert query.count() == 0
    bare = pa.table({"x": [1, 2]}).select([])
    assert rows(archive.sql("SELECT count(*) FROM bare", tables={"bare": bare})) in ([(0,)], [(2,)])


# Files


@pytest.mark.parametrize("as_type", [str, Path])
def test_a_file(
    archive: a2store.Archive, file: Path, expected: list[tuple[Any, ...]], as_type: Callable[[Path], str | Path]
) -> None:
    query = archive.sql(COUNT, tables={"labels": as_type(file)})
    assert rows(query) == expected
    assert rows(query) == expected
    plan = archive.sql("SELECT label FROM labels WHERE run_id > 5", tables={"labels": as_type(file)}).explain()
    assert "projection=[label]" in plan
    assert "run_id" in plan.split("predicate=")[1]


NAMES = [
    "a b.parquet",
    "x.csv",
    "a=b.parquet",
    "ü/ö ä/labels.parquet",
    "100%.parquet",
    "a%20b.parquet",
    "q?a=1#b.parquet",
    "[ab]*.parquet",
    "a\\b",
]


def test_names_of_files_and_folders(archive: a2store.Archive, tmp_path: Path, expected: list[tuple[Any, ...]]) -> None:
    for name in [*NAMES, *(f"in {name}/labels.parquet" for name in NAMES)]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(LABELS, path)
        assert rows(archive.sql(COUNT, tables={"labels": path})) == expected, name


def test_a_relative_path(
    archive: a2store.Archive, file: Path, expected: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path keeps its meaning when the working folder changes before the query runs."""
    monkeypatch.chdir(file.parent)
    query = archive.sql(COUNT, tables={"labels": file.name})
    monkeypatch.chdir("/")
    assert rows(query) == expected


def numbered(path: Path, first: int) -> Path:
    """Write a file of three ids; all such files have the same size."""
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"run_id": pa.array(range(first, first + 3), "uint32")}), path, compression="none")
    return path


def test_files_of_equal_name_in_two_folders(archive: a2store.Archive, tmp_path: Path) -> None:
    """Cached metadata of one file must not be used for the other, whose rows have other statistics."""
    first, second = numbered(tmp_path / "a" / "ids", 1), numbered(tmp_path / "b" / "ids", 41)
    assert first.stat().st_size == second.stat().st_size
    for path, least in ((first, 1), (second, 41)):
        found = rows(archive.sql("SELECT run_id FROM ids WHERE run_id >= $1", [least], tables={"ids": path}))
        assert found == [(least,), (least + 1,), (least + 2,)]
    tables = {"a": first, "b": second}
    sql = "SELECT a.run_id AS x, b.run_id AS y FROM a, b WHERE a.run_id < 2 AND b.run_id > 42"
    assert rows(archive.sql(sql, tables=tables)) == [(1, 43)]


def test_a_rewritten_file_is_read_again(archive: a2store.Archive, tmp_path: Path) -> None:
    for number, first in enumerate((1, 41)):
        path = numbered(tmp_path / "anew", first)
        os.utime(path, (1e9 + number, 1e9 + number))
        found = rows(archive.sql("SELECT run_id FROM ids WHERE run_id >= $1", [first], tables={"ids": path}))
        assert found == [(first,), (first + 1,), (first + 2,)]


def test_missing_table_files(archive: a2store.Archive, tmp_path: Path) -> None:
    for table in (tmp_path / "absent.parquet", str(tmp_path / "absent" / "labels.parquet")):
        with pytest.raises(FileNotFoundError) as caught:
            archive.sql(COUNT, tables={"labels": table})
        assert caught.value.filename == str(table)
    with pytest.raises(ValueError, match="empty"):
        archive.sql(COUNT, tables={"labels": ""})
    for other in (tmp_path, Path("/dev/null")):
        with pytest.raises(ValueError, match=f"expected a Parquet file, found {other}"):
            archive.sql(COUNT, tables={"labels": other})


@pytest.mark.parametrize("data", [b"", b"PAR1", b"run_id,label\n1,good\n", b"PAR1" + bytes(40) + b"PAR1"])
def test_files_that_are_not_parquet(archive: a2store.Archive, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "labels.parquet"
    path.write_bytes(data)
    with pytest.raises(a2store.DecodeError) as caught:
        archive.sql(COUNT, tables={"labels": path})
    assert caught.value.path == path
    assert "\n" not in str(caught.value)


def test_a_file_is_removed_or_damaged_after_planning(archive: a2store.Archive, file: Path) -> None:
    """Each way to run the query raises an error, and the archive is unchanged."""
    query = archive.sql(COUNT, tables={"labels": file})
    good = file.read_bytes()
    file.write_bytes(good[:4] + bytes(64) + good[68:])
    with pytest.raises(a2store.Error):
        query.count()
    file.unlink()
    with pytest.raises((a2store.Error, OSError)):
        query.count()
    assert archive.verify(progress=False).problems == []
    file.write_bytes(good)
    with pytest.raises(a2store.DamagedError, match="changed since"):
        query.count()
    assert archive.sql(COUNT, tables={"labels": file}).count() == 4


# Names and objects


@pytest.mark.parametrize("name", ['a"b', "a.b", "größe", "select", "information_schema"])
def test_any_quoted_name(archive: a2store.Archive, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    assert rows(archive.sql(f"SELECT count(*) FROM {quoted}", tables={name: LABELS})) == [(8,)]


def test_unquoted_names_are_lower_case(archive: a2store.Archive) -> None:
    """As usual in SQL, a name without quotes is lower case."""
    assert rows(archive.sql("SELECT count(*) FROM Labels", tables={"labels": LABELS})) == [(8,)]
    assert rows(archive.sql('SELECT count(*) FROM "Labels"', tables={"Labels": LABELS})) == [(8,)]
    with pytest.raises(a2store.QueryError, match="Labels"):
        archive.sql("SELECT count(*) FROM Labels", tables={"Labels": LABELS})


@pytest.mark.parametrize("name", ["runs", "steps", "", "\0", "a\0b"])
def test_invalid_names(archive: a2store.Archive, name: str) -> None:
    with pytest.raises(ValueError, match="tables: expected unique names"):
        archive.sql("SELECT 1", tables={name: LABELS})


@pytest.mark.parametrize(
    "table",
    [None, 5, [1], {"a": [1]}, b"x", object(), LABELS.schema, polars.DataFrame(LABELS).lazy()],
    ids=lambda table: type(table).__name__,
)
def test_objects_that_are_not_tables(archive: a2store.Archive, table: Any) -> None:
    with pytest.raises(TypeError, match=r"tables: labels: expected a Parquet file's path, or a table"):
        archive.sql(COUNT, tables={"labels": table})


def test_a_structured_array(archive: a2store.Archive) -> None:
    array = np.zeros(5, [("run_id", "<u4"), ("x", "<f8"), ("pair", "<i2", (2,)), ("gap", "|u1")])
    array["run_id"], array["x"], array["pair"] = [3, 1, 2, 9, 0], np.arange(5) / 4, np.arange(10).reshape(5, 2)
    sql = "SELECT run_id, x, pair[2] AS second, num_steps FROM runs JOIN mine USING (run_id) ORDER BY run_id"
    lengths = dict(pa.table(archive.sql("SELECT run_id, num_steps FROM runs")).to_pandas().itertuples(index=False))
    expected = [(int(row["run_id"]), row["x"], row["pair"][1], lengths[row["run_id"]]) for row in np.sort(array)]
    for mine in (array, np.repeat(array, 3)[::3]):
        assert rows(archive.sql(sql, tables={"mine": mine})) == expected
    assert rows(archive.sql(sql, tables={"mine": array[:0]})) == []
    wrong: list[Any] = [np.arange(3), array.reshape(5, 1), np.zeros(2, [("run_id", ">u4")]), np.zeros(2, [("a", "S3")])]
    wrong += [pa.array([{"a": 1}, None]), pa.chunked_array([[{"a": 1}, None]])]
    for mine in wrong:
        with pytest.raises(TypeError, match="tables: mine: expected"):
            archive.sql(sql, tables={"mine": mine})


# Tables for training

LABELLED = "SELECT s.*, label = 'good' AS good FROM steps s JOIN labels USING (run_id)"


def materialized(archive: a2store.Archive, labels: Any, sql: str = LABELLED, **others: Any) -> a2store.StepTable:
    query = archive.sql(sql, tables={"labels": labels, **others})
    return query.materialize(extra=["good"] if "good" in sql else [], progress=False)


def test_a_column_for_training(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    labels = LABELS.filter(pa.compute.is_valid(LABELS["label"]))
    batch = (table := materialized(archive, labels)).take(range(len(table)))
    ids = labels["run_id"].drop_null().to_pylist()
    assert batch.run_id.tolist() == [run_id for run_id in steps["run_id"].tolist() if run_id in ids]
    assert batch["good"].tolist() == np.isin(batch.run_id, [1, 5]).tolist()


def test_a_loaders_state_belongs_to_the_labels(archive: a2store.Archive, file: Path, tmp_path: Path) -> None:
    labels = LABELS.filter(pa.compute.is_valid(LABELS["label"]))
    loader = materialized(archive, labels).loader(100, seed=1)
    served = list(islice(loader, 5))
    state = loader.state_dict()
    copy = pa.table(labels.to_pydict(), schema=labels.schema)
    resumed = materialized(archive, copy).loader(100, seed=1)
    resumed.load_state_dict(state)
    whole = row_keys(materialized(archive, labels).loader(100, seed=1))
    assert np.array_equal(np.concatenate([row_keys(served), row_keys(resumed)]), whole)
    for other in (labels.set_column(1, "label", [["good"] * len(labels)]), labels.slice(1)):
        with pytest.raises(a2store.StateMismatchError):
            materialized(archive, other).loader(100, seed=1).load_state_dict(state)
    # These labels give the same rows.
    same = labels.set_column(2, "weight", pa.array([0.0] * len(labels))).take([1, 0, *range(2, len(labels))])
    materialized(archive, same).loader(100, seed=1).load_state_dict(state)


# The command


def test_the_command(archive: a2store.Archive, file: Path, expected: list[tuple[Any, ...]], tmp_path: Path) -> None:
    odd = tmp_path / "a=b c.parquet"
    odd.write_bytes(file.read_bytes())
    for path in (file, odd):
        done = run("sql", archive.path, COUNT, "--table", f"labels={path}", "--format", "csv")
        lines = done.stdout.decode().splitlines()
        assert lines[0] == "label,n,weight"
        assert [line.split(",")[0] for line in lines[1:]] == [row[0] or "" for row in expected]
        assert [int(line.split(",")[1]) for line in lines[1:]] == [row[1] for row in expected]
    two = "SELECT (SELECT count(*) FROM a) AS a, (SELECT count(*) FROM b WHERE run_id > 5) AS b"
    done = run("sql", archive.path, two, "--table", f"a={file}", "--table", f"b={odd}", "--format", "csv")
    assert done.stdout == b"a,b\n8,4\n"


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ("labels", "NAME=FILE"),
        ("runs={file}", "runs"),
        ("={file}", "unique names"),
        ("labels=", "an empty path"),
        ("labels={file}.absent", "absent"),
        ("other={file}", "labels"),
    ],
)
def test_wrong_usage_of_the_command(archive: a2store.Archive, file: Path, table: str, named: str) -> None:
    done = run("sql", archive.path, COUNT, "--table", table.format(file=file), status=2)
    assert done.stdout == b""
    assert named in done.stderr.decode()
