"""Ways to read and write the result of a query, compared with pyarrow, DuckDB and polars on the same result."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import a2store
from archives import plain
from duck import of_files

ORDERED = "SELECT run_id, max_score FROM runs ORDER BY max_score DESC, run_id"


@pytest.fixture(scope="module")
def query(archive: a2store.Archive) -> a2store.Query:
    return archive.sql("SELECT * FROM steps WHERE phase = 'mid'")


# Part of a result


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM steps",
        "SELECT board FROM steps WHERE max_score >= 5000",
        ORDERED,
        "SELECT run_id FROM runs ORDER BY run_id LIMIT 7",
        "SELECT run_id FROM runs ORDER BY run_id LIMIT 7 OFFSET 2",
        "SELECT board FROM steps OFFSET 5",
        "SELECT board FROM steps LIMIT 30",
        "SELECT phase, count(*) AS n FROM steps GROUP BY phase ORDER BY n",
    ],
)
@pytest.mark.parametrize("n", [0, 6, 2**64 - 1])
def test_limit_returns_the_first_rows(archive: a2store.Archive, sql: str, n: int) -> None:
    whole = plain(pa.table(archive.sql(sql)))
    limited = archive.sql(sql).limit(n)
    assert plain(pa.table(limited)).equals(whole.slice(0, min(n, whole.num_rows)))
    assert limited.count() == min(n, whole.num_rows)
    # A limit never adds rows.
    assert limited.limit(3).count() == min(n, 3, whole.num_rows)


def test_a_limited_table_has_its_own_fingerprint(archive: a2store.Archive) -> None:
    query = archive.sql("SELECT * FROM steps WHERE phase = 'late'")
    tables = [query.materialize(), query.limit(9).materialize(), query.limit(8).materialize()]
    assert [len(table) for table in tables[1:]] == [9, 8]
    assert len({table.fingerprint for table in tables}) == 3
    assert query.limit(9).materialize().fingerprint == tables[1].fingerprint
    np.testing.assert_array_equal(np.asarray(tables[1]), np.asarray(tables[0])[:9])


# Batches


def test_batches_are_the_whole_result(query: a2store.Query) -> None:
    batches = [pa.record_batch(batch) for batch in query.to_batches()]
    assert len(batches) > 1
    assert pa.Table.from_batches(batches).equals(pa.table(query))
    assert sum(len(batch) for batch in query) == query.count()
    assert pl.DataFrame(next(iter(query))).columns == query.columns


def test_batches_arrive_before_the_result_is_complete(archive: a2store.Archive) -> None:
    # The cast fails on the last rows only.
    sql = "SELECT CASE WHEN run_id < 50 THEN 1 ELSE CAST(engine AS INT) END AS one FROM steps"
    batches = archive.sql(sql).to_batches()
    assert len(next(batches)) > 0
    with pytest.raises(a2store.QueryError, match="Cannot cast string"):
        list(batches)
    assert list(batches) == []


# NumPy


def test_numpy_columns_are_duckdbs(archive: a2store.Archive) -> None:
    sql = "SELECT board, move, ev_up, has_evs, phase, engine FROM steps"
    found = archive.sql(sql).to_numpy()
    expected = of_files(archive).execute(f"{sql} ORDER BY run_id, step_index").fetchnumpy()
    assert list(found) == list(expected)
    for name in ("board", "move", "has_evs"):
        assert found[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(found[name], expected[name])
    np.testing.assert_array_equal(found["ev_up"], np.ma.filled(expected["ev_up"], np.nan))
    assert np.isnan(found["ev_up"]).any()
    assert found["phase"].tolist() == list(expected["phase"])
    assert None in found["engine"]
    assert all(array.flags.writeable for array in found.values())


@pytest.mark.parametrize("method", ["to_arrow", "to_pandas", "to_numpy"])
def test_a_missing_package_is_named(query: a2store.Query, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for module in ("_numpy", "_pandas"):
        monkeypatch.delitem(sys.modules, f"a2store.{module}", raising=False)
    with pytest.raises(ImportError, match=rf"^{method} needs pyarrow: pip install pyarrow$"):
        getattr(query, method)()


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("sign", ["Int", "UInt"])
def test_pandas_keeps_integers_beside_nulls(archive: a2store.Archive, sign: str, bits: int) -> None:
    largest = 2**bits - 1 if sign == "UInt" else 2 ** (bits - 1) - 1
    values = f"(VALUES (arrow_cast('{largest}', '{sign}{bits}'), 1), (NULL, 2)) AS t(x, y) ORDER BY y"
    frame = archive.sql(f"SELECT x, y, x AS z, {{b: x}} AS s, [x, NULL] AS l FROM {values}").to_pandas()
    assert [str(dtype) for dtype in frame.dtypes[:3]] == [f"{sign}{bits}", "int64", f"{sign}{bits}"]
    # A row of a frame has one type, so the values are taken by column.
    assert [frame[name].iloc[0] for name in "xyzs"] == [largest, 1, largest, {"b": largest}]
    assert frame["l"].iloc[0].tolist() == [largest, None]
    assert frame.iloc[1].isna().tolist() == [True, False, True, False, False]


def test_numpy_lists_and_nulls(archive: a2store.Archive) -> None:
    found = archive.sql(
        "SELECT exps(board) AS cells, board, [board, NULL] AS l, nullif(run_id, 1) AS id, nullif(run_id = 1, true) "
        "AS flag FROM runs JOIN (SELECT run_id, board FROM steps WHERE step_index = 3) USING (run_id) ORDER BY run_id"
    ).to_numpy()
    assert found["cells"].shape == (60, 16)
    assert [row.tolist() for row in found["l"]] == [[board, None] for board in found["board"].tolist()]
    ids, flags = found["id"], found["flag"]
    assert isinstance(ids, np.ma.MaskedArray)
    assert ids.tolist() == [0, None, *range(2, 60)]
    assert ids.dtype == np.int64
    assert flags.tolist() == [False, None, *[False] * 58]


# Files

WRITERS: dict[str, tuple[Callable[..., int], Callable[[Path], Any]]] = {
    "parquet": (a2store.Query.write_parquet, pq.read_table),
    "ipc": (a2store.Query.write_ipc, pa.feather.read_table),
    "csv": (a2store.Query.write_csv, pa.csv.read_csv),
}


@pytest.mark.parametrize("format", WRITERS)
def test_a_written_file_has_the_result(query: a2store.Query, tmp_path: Path, format: str) -> None:  # noqa: A002
    write, read = WRITERS[format]
    path = tmp_path / "rows"
    assert write(query, path) == query.count()
    expected = plain(pa.table(query))
    if format == "csv":
        assert path.read_text().splitlines()[0] == ",".join(query.columns)
        # Casts from the types that pyarrow infers; its own rules make empty strings null.
        convert = pa.csv.ConvertOptions(
            column_types=expected.schema, strings_can_be_null=True, true_values=["true"], false_values=["false"]
        )
        assert pa.csv.read_csv(path, convert_options=convert).equals(expected)
    else:
        assert plain(read(path)).equals(expected)
    assert [file.name for file in tmp_path.iterdir()] == ["rows"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) & 0o444 == 0o444 & ~mask


@pytest.mark.parametrize("format", WRITERS)
def test_a_failed_query_keeps_the_old_file(archive: a2store.Archive, tmp_path: Path, format: str) -> None:  # noqa: A002
    path = tmp_path / "rows"
    path.write_text("old")
    failing = archive.sql("SELECT CASE WHEN run_id < 50 THEN 1 ELSE CAST(engine AS INT) END AS one FROM steps")
    with pytest.raises(a2store.QueryError, match="Cannot cast string"):
        WRITERS[format][0](failing, path)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["rows"]


def test_a_column_that_csv_cannot_hold(archive: a2store.Archive, tmp_path: Path) -> None:
    with pytest.raises(a2store.QueryError, match="CSV"):
        archive.sql("SELECT exps(board) AS cells FROM steps").write_csv(tmp_path / "rows.csv")
    assert list(tmp_path.iterdir()) == []


def test_links_stay_and_folders_are_rejected(query: a2store.Query, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    query.write_parquet(link)
    assert link.is_symlink()
    assert pq.read_metadata(target).num_rows == query.count()
    for path in (tmp_path, tmp_path / "absent" / "rows"):
        with pytest.raises(OSError, match=str(tmp_path)):
            query.write_parquet(path)


def test_a_full_disk_is_an_os_error(query: a2store.Query) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    for write, _ in WRITERS.values():
        with pytest.raises(OSError, match="No space left", check=lambda error: error.filename == "/dev/full"):
            write(query, "/dev/full")


def test_no_file_inside_the_archive(one_run: a2store.Archive) -> None:
    query = one_run.sql("SELECT * FROM steps")
    writers: list[Callable[[Path], object]] = [query.write_parquet, query.materialize().save]
    writers.append(lambda path: query.materialize(path=path))
    for write in writers:
        with pytest.raises(ValueError, match="path: expected a file outside of the archive"):
            write(one_run.path / "steps" / "rows.parquet")
    with pytest.raises(ValueError, match="path: expected the path of a file, found an empty path"):
        query.materialize(path="")
    assert one_run.verify().problems == []


# Display


def test_types_and_floats_are_for_people(archive: a2store.Archive, capsys: pytest.CaptureFixture[str]) -> None:
    sql = (
        "SELECT engine, avg(max_score) / 3 AS mean, exps(min(final_board)) AS cells, 1.0 / 3e9 AS small, 2.0 AS two, "
        "make_array(2.0 / 3, 1e300) AS list, min(final_board) AS number, min(final_board) AS board "
        "FROM runs GROUP BY engine ORDER BY engine LIMIT 1"
    )
    query = archive.sql(sql)
    assert repr(query).startswith("Query(engine: string, mean: float64, cells: list[uint8, 16], small: float64, ")
    assert "Dictionary" not in repr(archive.sql("SELECT * FROM steps")) + repr(archive.schema("steps"))
    html = query._repr_html_()
    assert "<small>string</small>" in html
    mean = round(query.to_numpy()["mean"][0], 6)
    board = int(query.to_numpy()["board"][0])
    assert isinstance(board, int)
    query.show()
    text = capsys.readouterr().out
    assert f'<td title="{board}"><svg' in html
    for value in (str(mean), "3.33333e-10", "2.0", "[0.6666666666666666, 1e300]", str(board)):
        assert f"<td>{value}</td>" in html
        assert f" {value} " in text


# Tables


def test_extra_may_be_one_name(archive: a2store.Archive) -> None:
    query = archive.sql("SELECT * FROM steps")
    one, several = query.materialize(extra="engine"), query.materialize(extra=iter(["engine"]))
    assert one.fingerprint == several.fingerprint
    assert one.categories == several.categories
    bad: list[Any] = [5, [5], [["engine"]], b"engine"]
    for extra in bad:
        with pytest.raises(TypeError, match="extra: expected a name or an iterable of names, found "):
            query.materialize(extra=extra)


def test_computed_columns_that_are_left_out_warn(archive: a2store.Archive) -> None:
    labels = pa.table({"run_id": pa.array([1, 2], pa.uint32()), "label": ["a", "b"]})
    sql = "SELECT s.*, sqrt(s.max_score) AS weight, label FROM steps s JOIN labels USING (run_id)"
    query = archive.sql(sql, tables={"labels": labels})
    with pytest.warns(UserWarning, match="leaves out these columns of the query: weight, label; .* name it in `extra`"):
        query.materialize()
    with pytest.warns(UserWarning, match="of the query: weight;"):
        query.materialize(extra="label")
    # These must not warn, and warnings are errors here.
    query.materialize(extra=["label", "weight"])
    for text in ("SELECT * FROM steps", "SELECT * FROM steps JOIN runs USING (run_id)"):
        archive.sql(text).materialize()
    archive.sql("SELECT *, [move] AS list FROM steps").materialize()
