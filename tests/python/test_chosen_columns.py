"""``materialize(columns=...)``: the same rows as of a query that selects only these columns."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path

import numpy as np
import pytest

import a2store

OF_STEP = ["board", "move", "ev_values", "ev_legal", "run_id", "step_index"]
SQL = "SELECT *, empty_cells(board) AS empty, exps(board) AS cells FROM steps"


def rows_of(table: a2store.StepTable) -> bytes:
    # A copy of each field, because the bytes between fields are undefined.
    array = np.asarray(table)
    return b"".join(np.ascontiguousarray(array[name]).tobytes() for name in array.dtype.names or ())


def test_every_choice_of_a_steps_columns(archive: a2store.Archive) -> None:
    query = archive.sql(SQL)
    choices = [others for n in range(6) for others in itertools.combinations(OF_STEP[1:], n)]
    assert len(choices) == 32
    for others in choices:
        for extra in ([], ["empty"], ["cells", "engine", "max_score"]):
            chosen = query.materialize(columns=["board", *others, *extra], progress=False)
            # The ids are always kept.
            selected = ["board", *(name for name in others if name not in ("ev_values", "run_id", "step_index"))]
            selected += ["run_id", "step_index", *extra]
            selected += ["ev_up", "ev_down", "ev_left", "ev_right"] if "ev_values" in others else []
            text = f"SELECT {', '.join(selected)} FROM ({SQL}) ORDER BY run_id, step_index"
            expected = archive.sql(text).materialize(extra=extra, progress=False)
            assert chosen.dtype == expected.dtype
            assert rows_of(chosen) == rows_of(expected), (others, extra)
            assert chosen.fingerprint == expected.fingerprint


def test_all_columns_are_no_choice(archive: a2store.Archive) -> None:
    query = archive.sql("SELECT *, empty_cells(board) AS empty FROM steps")
    plain = query.materialize(extra=["engine", "empty"], progress=False)
    for order in (OF_STEP, OF_STEP[::-1]):
        chosen = query.materialize(columns=["engine", *order, "empty"], progress=False)
        assert chosen.fingerprint == plain.fingerprint
        assert rows_of(chosen) == rows_of(plain)


def test_only_chosen_columns_are_read(archive: a2store.Archive) -> None:
    """A value that does not fit raises only if its column is chosen."""
    query = archive.sql(
        "SELECT *, 300 + step_index AS n FROM (SELECT board, run_id, 77 AS move, step_index FROM steps)"
    )
    with pytest.raises(a2store.ColumnError, match="move"):
        query.materialize(columns=["board", "move"], progress=False)
    table = query.materialize(columns=["board", "n"], progress=False)
    assert set(np.unique(table["move"])) == {255}
    assert len(np.unique(table["run_id"])) > 10
    assert table["n"].min() == 300


def test_columns_in_a_file(archive: a2store.Archive, tmp_path: Path) -> None:
    query = archive.sql(SQL)
    in_memory = query.materialize(columns=["board", "run_id", "cells"], progress=False)
    table = query.materialize(columns=["board", "run_id", "cells"], path=tmp_path / "table.npy", progress=False)
    assert rows_of(table) == rows_of(in_memory)
    assert table.fingerprint == in_memory.fingerprint
    assert a2store.StepTable.load(tmp_path / "table.npy").fingerprint == in_memory.fingerprint


def test_a_choice_does_not_warn(archive: a2store.Archive) -> None:
    query = archive.sql(SQL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        query.materialize(columns=["board"], progress=False)
    with pytest.warns(UserWarning, match="empty, cells; .* `extra`, or choose all columns of a row with `columns`"):
        query.materialize(progress=False)


@pytest.mark.parametrize(
    ("columns", "extra", "error", "message"),
    [
        ([], None, ValueError, "columns: expected board and any other columns, found none"),
        (["move", "empty"], None, ValueError, "found move, empty"),
        (["board", "move", "board"], None, ValueError, "columns: expected each column once, found board"),
        (
            ["board"],
            "empty",
            ValueError,
            "extra: expected none together with columns, which names them too, found empty",
        ),
        (["board", "nope"], None, a2store.ColumnError, "column nope: expected a column of that name"),
        (["board", "ev_up"], None, ValueError, "columns: expected ev_values, or ev_up, ev_down, .*, found no ev_down"),
        (["board", "tokens"], None, a2store.ColumnError, "column tokens"),
        (["board", 3], None, TypeError, "columns: expected a name or an iterable of names, found int"),
    ],
)
def test_wrong_choices(
    archive: a2store.Archive, columns: list[str], extra: str | None, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        archive.sql(SQL).materialize(columns=columns, extra=extra, progress=False)
    with pytest.raises(a2store.ColumnError, match="column ev_values"):
        archive.sql("SELECT board FROM steps").materialize(columns=["board", "ev_values"], progress=False)


def test_filters_and_splits_of_few_columns(archive: a2store.Archive, table: a2store.StepTable) -> None:
    """A table always has the ids of its rows, so filters and splits by run are right."""
    few = archive.sql("SELECT * FROM steps").materialize(columns=["board"], progress=False)
    for name in ("run_id", "step_index", "board"):
        assert few[name].tolist() == table[name].tolist()
    assert few.filter(min_score=700)["board"].tolist() == table.filter(min_score=700)["board"].tolist()
    assert few.split(0.3)[1]["board"].tolist() == table.split(0.3)[1]["board"].tolist()
