"""Named queries: names, parameter values, and user folders with invalid files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
from saved_cases import MINE, QUERIES, generated, own_queries, rows
from saved_oracle import EXPECTED


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> a2store.Archive:
    return generated(tmp_path_factory.mktemp("made"))


def test_an_unknown_name_raises_with_the_known_names(made: a2store.Archive, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="found high_scores") as caught:
        made.query("high_scores")
    for name in EXPECTED:
        assert name in str(caught.value)
    (tmp_path / "mine.sql").write_text(MINE, encoding="utf-8")
    with pytest.raises(ValueError, match="expected one of mine, found absent"):
        made.query("absent", folder=tmp_path)


@pytest.mark.parametrize(
    "name", ["", ".", "high_score.sql", "queries/high_score.sql", "../queries/high_score", "/etc/passwd", "high score"]
)
def test_a_query_name_is_not_a_path(made: a2store.Archive, name: str) -> None:
    for folder in (None, QUERIES):
        with pytest.raises(ValueError, match=f"expected one of .*, found {re.escape(name)}"):
            made.query(name, folder=folder)


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


def test_values_of_unsupported_types(made: a2store.Archive) -> None:
    with pytest.raises(TypeError):
        made.query("high_score", min_score=[1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected integers of"):
        made.query("high_score", min_score=2**64)


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


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("length_histogram", 2**32),
        ("tile_presence", 2**32),
        ("survivorship", 2**32),
    ],
)
def test_bins_of_invalid_width(made: a2store.Archive, name: str, width: int) -> None:
    """A width with more bins than any run could fill is rejected. With a width of 0, the bins are null."""
    with pytest.raises(a2store.QueryError):
        made.query(name, width=width).count()
    assert made.query(name, width=width - 1).count() > 0
    bins = made.query(name, width=0).to_arrow().columns
    assert any(column.null_count == len(column) > 0 for column in bins)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return own_queries(tmp_path / "mine")


def test_a_user_folder(made: a2store.Archive, folder: Path) -> None:
    every, best = a2store.queries(folder)
    assert (every.name, every.purpose, list(every.parameters)) == ("all", "All runs.", [])
    assert (best.name, best.purpose) == ("best_of", "Runs of one engine, the best first.")
    found = [(p.name, p.type, p.default, p.doc) for p in best.parameters]
    assert found[0] == ("engine", "string", None, "the engine, as its runs name it")
    assert [entry[2] for entry in found[1:]] == [0, 1e9, True, -1]
    assert best.columns[2].doc == "both, as text"
    assert made.query("all", folder=folder).count() == made.num_runs
    assert made.query("all", folder=str(folder)).count() == made.num_runs
    mine = rows(made.query("best_of", folder=folder, engine="alpha", least=300))
    expected = [row for row in rows(made.sql("SELECT * FROM runs")) if row["engine"] == "alpha"]
    expected = sorted((row for row in expected if row["max_score"] >= 300), key=lambda row: -row["max_score"])
    assert [row["max_score"] for row in mine] == [row["max_score"] for row in expected] != []
    # The folder replaces the built-in queries.
    with pytest.raises(ValueError, match="found high_score"):
        made.query("high_score", folder=folder)


def test_a_parameter_without_default_must_be_given(made: a2store.Archive, folder: Path) -> None:
    with pytest.raises(a2store.QueryError, match="engine"):
        made.query("best_of", folder=folder)
    with pytest.raises(a2store.QueryError, match="engine"):
        made.query("best_of", folder=folder, least=1)


def test_a_missing_folder(made: a2store.Archive, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        a2store.queries(tmp_path / "absent")
    with pytest.raises(FileNotFoundError):
        made.query("all", folder=tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    assert a2store.queries(tmp_path / "empty") == []


GOOD = MINE.splitlines()


def edited(line: int, *instead: str) -> str:
    """Return the valid query with other lines instead of one, counted from 1."""
    return "\n".join([*GOOD[: line - 1], *instead, *GOOD[line:]]) + "\n"


MALFORMED = {
    "no_header": ("SELECT run_id FROM runs\n", 1),
    "negative_default": (edited(7, "--   least uint64 = -1: the least score"), 7),
    "twice_a_column": (edited(14, GOOD[13], GOOD[13]), 15),
    "list_as_default": (edited(7, "--   least uint64 = [0]: the least score"), 7),
}
"""Some defects of a header, and the line that the error names. The crate's own tests have more."""


def test_malformed_headers_are_rejected_with_the_line(made: a2store.Archive, tmp_path: Path) -> None:
    for name, (text, line) in MALFORMED.items():
        path = tmp_path / name / f"{name}.sql"
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
        for read in (
            lambda: made.query(name, folder=path.parent),  # noqa: B023
            lambda: a2store.queries(path.parent),  # noqa: B023
        ):
            with pytest.raises(a2store.DecodeError, match=rf"\bline {line}\b") as caught:
                read()
            assert caught.value.path == path
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (edited(7, GOOD[6], "--   spare int64 = 1: nothing"), "spare"),
        (edited(7), "least"),
        (MINE[: MINE.index("SELECT")], "expected|no statement|No SQL"),
        (MINE + "; SELECT 1\n", "2 statements"),
        (MINE[: MINE.index("SELECT")] + "DROP TABLE runs\n", "DROP"),
        (MINE.replace("concat", "concatenated"), "concatenated"),
    ],
)
def test_errors_in_the_sql(made: a2store.Archive, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.sql").write_text(text, encoding="utf-8")
    with pytest.raises(a2store.QueryError, match=message) as caught:
        made.query("mine", folder=tmp_path, engine="alpha")
    assert "\n" not in str(caught.value)


def test_lines_with_windows_line_ends(made: a2store.Archive, tmp_path: Path) -> None:
    (tmp_path / "windows.sql").write_bytes(MINE.replace("\n", "\r\n").encode())
    (query,) = a2store.queries(tmp_path)
    assert query.purpose == "Runs of one engine, the best first."
    assert query.columns[2].doc == "both, as text"
    assert made.query("windows", folder=tmp_path, engine="alpha").count() > 0


def test_limits_and_tables_are_options(made: a2store.Archive, tmp_path: Path) -> None:
    with pytest.raises(a2store.QueryLimitError, match="rows"):
        made.query("critic_labels", row_limit=10).materialize(extra=[], progress=False)
    with pytest.raises(ValueError, match=r"time_limit: expected seconds, 0 or more, found -1"):
        made.query("critic_labels", time_limit=-1)
    head = "-- Runs with a label.\n--\n-- Columns:\n--   run_id uint32: the run\n--   label string: its label\n"
    sql = "SELECT run_id, label FROM runs JOIN labels USING (run_id) ORDER BY run_id"
    (tmp_path / "labelled.sql").write_text(head + sql, encoding="utf-8")
    labels = pa.table({"run_id": pa.array([2, 1], pa.uint32()), "label": ["b", "a"]})
    query = made.query("labelled", folder=tmp_path, tables={"labels": labels}, memory_limit=64 << 20)
    assert rows(query) == [{"run_id": 1, "label": "a"}, {"run_id": 2, "label": "b"}]
    taken = head.replace(
        "-- Columns:", "-- Parameters:\n--   row_limit uint64 = 1: what calls have themselves\n--\n-- Columns:"
    )
    (tmp_path / "labelled.sql").write_text(taken + sql, encoding="utf-8")
    with pytest.raises(a2store.DecodeError, match=r"labelled\.sql.*a name that is not an option"):
        made.query("labelled", folder=tmp_path, row_limit=1)


def test_text_that_is_not_utf_8(made: a2store.Archive, tmp_path: Path) -> None:
    (tmp_path / "latin.sql").write_bytes(MINE.replace("engine,", "Größe").encode("latin-1"))
    with pytest.raises(a2store.DecodeError, match=r"latin\.sql"):
        a2store.queries(tmp_path)
