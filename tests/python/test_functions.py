"""The board functions in SQL: in all clauses, of all kinds of arguments, in other libraries, and compared with DuckDB.

The crate's own tests compare each function with rules over cells, for boards of every kind.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pytest

import a2store
import duck
from faults.checks import LONG
from oracle import cells

OF_BOARD = [
    *("max_tile", "empty_cells", "tile_sum", "board_score", "legal_moves", "num_legal", "is_terminal", "canonical"),
    *("canonical_symmetry", "board_text", "monotonicity", "smoothness", "exps"),
]
OF_BOARD_AND_NUMBER = ("tile", "afterstate", "reward", "transform", "canonical_move")
CALLS = {
    **{name: f"{name}(board)" for name in OF_BOARD},
    **{name: f"{name}(board, 1)" for name in OF_BOARD_AND_NUMBER},
    "afterstate_mask": "afterstate_mask(board, 1, 0)",
    "transform_mask": "transform_mask(board, 1, 0)",
    "canonical_mask": "canonical_mask(board, 0)",
    "transform_move": "transform_move(move, 1)",
    "spawn": "spawn(board, move, board)",
    "ev_gap": "ev_gap(ev_up, ev_down, ev_left, ev_right)",
    "ev_loss": "ev_loss(move, ev_up, ev_down, ev_left, ev_right)",
    "best_move": "best_move(ev_up, ev_down, ev_left, ev_right)",
    "phase_of": "phase_of(max_exp)",
}
"""Every function, called with columns of ``steps``."""


def ask(archive: a2store.Archive, call: str, source: str = "runs LIMIT 1") -> Any:
    """Return the single column of a query, as a ``pyarrow.ChunkedArray``."""
    return pa.table(archive.sql(f"SELECT {call} AS value FROM {source}"))["value"]


def refusal(archive: a2store.Archive, sql: str) -> str:
    """Return the error message of a query that fails when it is planned or when it runs."""
    with pytest.raises(a2store.QueryError) as caught:
        archive.sql(sql).explain(analyze=True)
    assert caught.value.kind == "query"
    assert "\n" not in str(caught.value)
    assert "panicked" not in str(caught.value)
    return str(caught.value)


# Comparison with DuckDB


def assert_as_duckdb(archive: a2store.Archive, where: str) -> int:
    """Compare every function on every such step; return the number of steps."""
    # The macros do not support masks.
    calls = [call for name, call in CALLS.items() if not name.endswith("_mask")]
    calls += [*(f"{name}(board, move)" for name in ("afterstate", "reward", "canonical_move"))]
    calls += [f"transform(board, {symmetry})" for symmetry in range(8)]
    calls += [f"transform_move(move, {symmetry})" for symmetry in range(8)]
    calls += [f"tile(board, {cell})" for cell in range(16)]
    names = [f"c{place}" for place in range(len(calls))]
    selected = ", ".join(f"{call} AS {name}" for call, name in zip(calls, names, strict=True))
    sql = f"SELECT {selected} FROM steps WHERE {where} ORDER BY run_id, step_index"
    found = pa.table(archive.sql(sql))
    with duck.connect(archive) as connection:
        expected = connection.sql(sql).to_arrow_table()
    assert len(found) == len(expected)
    for name, call in zip(names, calls, strict=True):
        assert found[name].to_pylist() == expected[name].to_pylist(), call
    return len(found)


def test_functions_on_simulated_games_agree_with_duckdb(archive: a2store.Archive) -> None:
    assert assert_as_duckdb(archive, "true" if LONG else "step_index % 9 = 0") > 2000


def test_functions_on_real_games_agree_with_duckdb(fixtures: Path, tmp_path: Path) -> None:
    """The games include steps without moves and without values."""
    archive = a2store.Archive.create(tmp_path / "games.a2")
    archive.ingest(fixtures, progress=False)
    assert archive.sql("SELECT * FROM steps WHERE move IS NULL").count() > 10
    assert archive.sql("SELECT * FROM steps WHERE NOT has_evs").count() > 1000
    some = "step_index % 9 = 0 OR move IS NULL AND step_index % 3 = 0"
    assert assert_as_duckdb(archive, "true" if LONG else some) > 4000


CLAUSES = [
    "SELECT max_tile(board) AS t, count(*) AS n FROM steps GROUP BY max_tile(board) ORDER BY max_tile(board)",
    "SELECT count(*) AS n FROM steps WHERE empty_cells(board) < 4 AND is_terminal(board) = false",
    "SELECT sum(tile(afterstate(transform(board, 1), move), 0)) AS n FROM steps WHERE step_index = 99",
    # Positions that two engines met, up to symmetry.
    """SELECT canonical(a.board) AS position, max_tile(min(a.board)) AS tile, count(*) AS n
        FROM steps a JOIN steps b ON canonical(a.board) = canonical(b.board) AND a.engine <> b.engine
        WHERE empty_cells(a.board) >= 12 AND a.step_index < 3 AND b.step_index < 3
        GROUP BY canonical(a.board) HAVING tile_sum(canonical(a.board)) > 4
        ORDER BY board_score(canonical(a.board)) DESC, canonical(a.board)""",
    """SELECT s.run_id, s.step_index, spawn(s.board, s.move, n.board)['cell'] AS cell,
        spawn(s.board, s.move, n.board)['tile'] AS tile, spawn(s.board, (s.move + 1) % 4, n.board)['cell'] AS other
        FROM steps s JOIN steps n ON n.run_id = s.run_id AND n.step_index = s.step_index + 1
        WHERE s.step_index % 7 = 0 ORDER BY s.run_id, s.step_index""",
    "SELECT exps(board)[7] AS x, tile(board, exps(board)[16]) AS y FROM steps WHERE run_id < 6 "
    "ORDER BY run_id, step_index",
]


@pytest.mark.parametrize("sql", CLAUSES)
def test_functions_in_every_clause(archive: a2store.Archive, sql: str) -> None:
    with duck.connect(archive) as connection:
        expected = connection.execute(sql.replace("max_tile(min(a.board))", "any_value(max_tile(a.board))")).fetchall()
    assert [tuple(row.values()) for row in pa.table(archive.sql(sql)).to_pylist()] == expected
    assert expected


# Arguments


def test_literals_parameters_and_nulls(archive: a2store.Archive) -> None:
    """Constants give the same values as columns, and a null argument gives null."""
    row = {"board": 0x8000_1200_0342_1111, "move": 2, "max_exp": 7, "ev_up": 0.5, "ev_down": 0.25, "ev_left": 0.0}
    row["ev_right"] = 1.0
    given = "(SELECT " + ", ".join(f"{value!r} AS {name}" for name, value in row.items()) + ")"
    for name, call in CALLS.items():
        of_columns = ask(archive, call, given).to_pylist()
        written = re.sub(r"\b(?<!\w)(\w+)\b(?!\()", lambda word: repr(row.get(word[0], word[0])).strip("'"), call)
        assert ask(archive, written).to_pylist() == of_columns, written
        bound = re.sub(r"\b([a-z]\w*)\b(?!\()", r"$\1", call)
        used = {key: value for key, value in row.items() if f"${key}" in bound}
        assert pa.table(archive.sql(f"SELECT {bound} AS v", used))["v"].to_pylist() == of_columns, bound
        if not name.startswith("ev_gap") and name != "best_move":
            null = re.sub(r"\b(board|move|max_exp)\b(?!\()", "NULL", call, count=1)
            assert ask(archive, null, given).to_pylist() == [None], null
    assert ask(archive, "ev_gap(0.5, NULL, 0.25, 0)").to_pylist() == [0.25]
    assert ask(archive, "ev_loss(3, 0.5, NULL, 0.25, 0)").to_pylist() == [0.5]
    assert ask(archive, "best_move(NULL, NULL, 1, 1)").to_pylist() == [2]
    # A value under a null is not evaluated.
    hidden = "(SELECT board, CASE WHEN step_index < 9 THEN 77 ELSE 1 END AS n FROM steps WHERE run_id = 0)"
    found = ask(archive, "afterstate(board, CASE WHEN n = 77 THEN NULL ELSE n END)", hidden)
    assert found.null_count == 9


@pytest.mark.parametrize(
    ("call", "what", "found"),
    [
        ("tile(board, 16)", "cell", "16"),
        ("afterstate(board, 255)", "move", "255"),
        ("reward(board, -3)", "move", "-3"),
        ("spawn(board, 1, -9)", "next_board", "-9"),
        ("transform(board, 256)", "symmetry", "256"),
        ("canonical_move(-1, 0)", "board", "-1"),
        ("ev_loss(4, ev_up, ev_down, ev_left, ev_right)", "move", "4"),
        ("phase_of(17)", "max_exp", "17"),
        ("exps(-1)", "board", "-1"),
    ],
)
def test_an_out_of_range_number_raises_an_error_with_its_name(
    archive: a2store.Archive, call: str, what: str, found: str
) -> None:
    column_call = call.replace(found, f"CAST({found} + run_id - run_id AS BIGINT)")
    for sql in (f"SELECT {call} FROM steps", f"SELECT {column_call} FROM steps"):
        message = refusal(archive, sql)
        assert message.startswith(f"{call[: call.index('(')]}: {what}: expected "), message
        assert f", found {found}" in message, message


def test_wrong_types_and_numbers_of_arguments(archive: a2store.Archive) -> None:
    calls = [
        f"{name}{arguments}" for name in CALLS for arguments in ("()", "(board, board, board, board, board, board)")
    ]
    calls += [f"{name}({wrong})" for name in (*OF_BOARD, "phase_of") for wrong in ("'text'", "0.5", "true")]
    calls += [f"{name}(board, {wrong})" for name in OF_BOARD_AND_NUMBER for wrong in ("'up'", "0.5")]
    calls += ["canonical(engine)", "canonical(exps(board))", "afterstate(board)", "transform_move('up', 1)"]
    calls += ["ev_gap('a', 'b', 'c', 'd')", "ev_loss(0.5, ev_up, ev_down, ev_left, ev_right)", "canonicals(board)"]
    calls += ["best_move(ev_up, ev_down, ev_left, true)", "ev_gap(ev_up, ev_down, ev_left)", "spawn(board, move)"]
    for call in calls:
        message = refusal(archive, f"SELECT {call} FROM steps")
        assert call.split("(", maxsplit=1)[0].rstrip("s") in message, message


# Lists, structs and other libraries


def test_the_list_of_functions(archive: a2store.Archive) -> None:
    """The list has all functions, with their types and correct examples."""
    listed = a2store.functions()
    assert sorted(function.name for function in listed) == sorted(CALLS)
    for function in listed:
        assert function.signature.startswith(f"{function.name}(")
        required = function.signature.split("[")[0]
        assert required.count(",") == CALLS[function.name].count(",")
        call, value = function.example
        found = ask(archive, call)
        if not pa.types.is_nested(found.type):
            names = {"Boolean": "bool", "Utf8": "string", "Float32": "float"}
            assert str(found.type) == names.get(function.returns, function.returns.lower())
        (answer,) = found.to_pylist()
        text = str(answer).lower() if isinstance(answer, bool) else str(answer).replace("'", "")
        assert text == value, function.name
        assert function.doc.endswith(".")
        assert function.name in repr(function)


def test_other_libraries_read_lists_and_structs(archive: a2store.Archive) -> None:
    query = archive.sql(
        "SELECT board, exps(board) AS e, spawn(board, move, afterstate(board, move) | 1) AS s FROM steps LIMIT 500"
    )
    table = pa.table(query)
    expected = [cells(board) for board in table["board"].to_pylist()]
    assert table["e"].type == pa.list_(pa.field("item", pa.uint8(), nullable=False), 16)
    assert table["s"].type == pa.struct({"cell": pa.uint8(), "tile": pa.uint32()})
    assert table["e"].to_pylist() == expected
    assert np.asarray(table["e"].combine_chunks().flatten()).reshape(-1, 16).tolist() == expected
    frame = polars.DataFrame(query)
    assert frame.schema["e"] == polars.Array(polars.UInt8, 16)
    assert frame["e"].to_numpy().tolist() == expected
    assert frame["s"].struct.fields == ["cell", "tile"]
    with duckdb.connect() as connection:
        connection.register("query", query)
        types = connection.execute("SELECT typeof(e), typeof(s) FROM query LIMIT 1").fetchone()
        assert types == ("UTINYINT[16]", "STRUCT(cell UTINYINT, tile UINTEGER)")
        assert [list(row) for (row,) in connection.execute("SELECT e FROM query").fetchall()] == expected


def test_boards_in_user_tables(archive: a2store.Archive) -> None:
    """Integers of other types, beside dictionary-encoded text."""
    table = pa.table(
        {
            "board": pa.array([0x1111, 0x0123_4567_89AB_CDEF, 1 << 62, None], pa.int64()),
            "move": pa.array([2, 1, None, 0], pa.int8()),
            "kind": pa.array(["a", "b", "a", None]).dictionary_encode(),
        }
    )
    sql = """SELECT kind, count(*) AS n, sum(tile_sum(afterstate(board, move))) AS sum, max(board_text(board)) AS text
        FROM b GROUP BY kind ORDER BY kind"""
    found = [tuple(row.values()) for row in pa.table(archive.sql(sql, tables={"b": table})).to_pylist()]
    assert found == [
        ("a", 2, 8, "16 . . . / . . . . / . . . . / . . . ."),
        ("b", 1, 65_534, ". 2 4 8 / 16 32 64 128 / 256 512 1024 2048 / 4096 8192 16384 32768"),
        (None, 1, None, None),
    ]
    wrong = archive.sql("SELECT canonical(board) FROM b", tables={"b": pa.table({"board": pa.array([5, -7])})})
    with pytest.raises(a2store.QueryError, match=r"canonical: board: expected .*, found -7"):
        wrong.explain(analyze=True)
