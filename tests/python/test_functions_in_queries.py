"""The board functions in queries: in all clauses, beside tables, in other libraries, and compared with DuckDB."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pytest

import a2store
import duck
from asking import CALLS, ask
from board_rules import canonical_move, smoothness, tile_of, transform, turned
from compare import column
from oracle import Array, cells, legal_mask, slide

# Clauses


def test_in_every_place_of_a_query(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    by_tile = "SELECT max_tile(board) AS t, count(*) AS n FROM steps GROUP BY max_tile(board) ORDER BY max_tile(board)"
    tiles, counts = np.unique(2 ** steps["max_exp"].astype("i8"), return_counts=True)
    assert pa.table(archive.sql(by_tile)).to_pydict() == {"t": tiles.tolist(), "n": counts.tolist()}
    few = "SELECT count(*) AS n FROM steps WHERE empty_cells(board) < 4 AND is_terminal(board) = false"
    expected = sum(cells(board).count(0) < 4 for board in steps["board"].tolist())
    assert pa.table(archive.sql(few))["n"].to_pylist() == [expected]
    nested = "SELECT sum(tile(afterstate(transform(board, 1), move), 0)) AS n FROM steps WHERE step_index = 99"
    rows = np.flatnonzero(steps["step_index"] == 99)
    pairs = zip(steps["board"][rows].tolist(), steps["move"][rows].tolist(), strict=True)
    corners = [tile_of(cells(slide(transform(board, 1), move))[0]) for board, move in pairs]
    assert pa.table(archive.sql(nested))["n"].to_pylist() == [sum(corners)]


def test_rows_keep_their_natural_order(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    boards = steps["board"].tolist()
    assert ask(archive, "canonical(board)", "steps").to_pylist()[::97] == [min(turned(b)) for b in boards[::97]]
    places = pa.table(archive.sql("SELECT run_id, step_index FROM steps WHERE num_legal(board) = 2"))
    chosen = [n for n, board in enumerate(boards) if legal_mask(board).bit_count() == 2]
    assert column(places, "run_id").tolist() == steps["run_id"][chosen].tolist()
    assert column(places, "step_index").tolist() == steps["step_index"][chosen].tolist()


@pytest.mark.filterwarnings("ignore:the table leaves out these columns:UserWarning")
def test_equal_queries_make_equal_tables(archive: a2store.Archive) -> None:
    """The functions depend only on their arguments, so a table of such a query has a stable fingerprint."""
    calls = ", ".join(f"{call} AS {name}" for name, call in CALLS.items() if name not in ("exps", "spawn"))
    query = f"SELECT board, {calls} FROM steps WHERE canonical(board) % 2 = 0"
    first, second = (archive.sql(query).materialize(progress=False).fingerprint for _ in range(2))
    assert first == second


def test_a_column_for_training(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    query = archive.sql(
        "SELECT *, empty_cells(board) AS empty, smoothness(board) AS smooth FROM steps WHERE run_id < 3"
    )
    batch = query.materialize(extra=["empty", "smooth"], progress=False).take(range(100))
    assert batch["empty"].tolist() == [cells(board).count(0) for board in steps["board"][:100].tolist()]
    assert batch["smooth"].tolist() == [smoothness(board) for board in steps["board"][:100].tolist()]


# Lists, structs, joins and other libraries


def test_the_list_of_functions(archive: a2store.Archive) -> None:
    """The list has all functions, with their types and correct examples."""
    listed = a2store.functions()
    assert sorted(function.name for function in listed) == sorted(CALLS)
    for function in listed:
        assert function.signature.startswith(f"{function.name}(")
        required = function.signature.split("[")[0]
        assert required.count(",") == CALLS[function.name].count(",")
        call, value = function.example
        found = ask(archive, call, "runs LIMIT 1")
        if not pa.types.is_nested(found.type):
            names = {"Boolean": "bool", "Utf8": "string", "Float32": "float"}
            assert str(found.type) == names.get(function.returns, function.returns.lower())
        (answer,) = found.to_pylist()
        text = str(answer).lower() if isinstance(answer, bool) else str(answer).replace("'", "")
        assert text == value, function.name
        assert function.doc.endswith(".")
        assert function.name in repr(function)


def test_parts_of_lists_and_structs(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    number = int((steps["run_id"] < 6).sum())
    boards, moves = steps["board"][:number].tolist(), steps["move"][:number].tolist()
    source = "steps WHERE run_id < 6"
    for place in (1, 7, 16):
        found = ask(archive, f"exps(board)[{place}]", source)
        assert (found.type, found.to_pylist()) == (pa.uint8(), [cells(board)[place - 1] for board in boards])
    assert ask(archive, "exps(board)[17]", source).null_count == number
    assert ask(archive, f"spawn(board, move, {2**63})['cell']", source).null_count == number
    slid = "afterstate(board, move)"
    spawned = f"spawn(board, move, CASE tile({slid}, 15) WHEN 0 THEN {slid} | 2 END)"
    expected = [slide(board, move) & 15 == 0 for board, move in zip(boards, moves, strict=True)]
    assert 100 < sum(expected) < number - 100
    for field, value in (("cell", 15), ("tile", 4)):
        found = ask(archive, f"{spawned}['{field}']", source).to_pylist()
        assert found == [value if room else None for room in expected]
    assert archive.sql(f"SELECT * FROM {source} AND {spawned}['cell'] IS NOT NULL").count() == sum(expected)


def test_nulls_of_steps(archive: a2store.Archive) -> None:
    """Steps without values have no gap, and steps without a move have no afterstate."""
    sql = """SELECT count(*) AS n, count(ev_gap(ev_up, ev_down, ev_left, ev_right)) AS gaps,
            count(best_move(ev_up, ev_down, ev_left, ev_right)) AS best,
            count(CASE WHEN has_evs AND num_legal(board) > 1 THEN 1 END) AS several, count(ev_up) AS up,
            count(afterstate(board, nullif(move, 0))) AS slid, count(CASE WHEN move <> 0 THEN 1 END) AS others
        FROM steps"""
    (row,) = pa.table(archive.sql(sql)).to_pylist()
    with_values = pa.table(archive.sql("SELECT count(*) AS n FROM steps WHERE has_evs"))["n"].to_pylist()
    assert row["n"] > row["best"] == with_values[0] > row["gaps"] == row["several"] > row["up"]
    assert row["slid"] == row["others"] < row["n"]


def test_joins_and_orderings(archive: a2store.Archive) -> None:
    """Positions that two engines met, up to symmetry, with functions in every clause that allows them."""
    sql = """SELECT canonical(a.board) AS position, max_tile(min(a.board)) AS tile, count(*) AS n
        FROM steps a JOIN steps b ON canonical(a.board) = canonical(b.board) AND a.engine <> b.engine
        WHERE empty_cells(a.board) >= 12 AND a.step_index < 3 AND b.step_index < 3
        GROUP BY canonical(a.board) HAVING tile_sum(canonical(a.board)) > 4
        ORDER BY board_score(canonical(a.board)) DESC, canonical(a.board)"""
    found = [tuple(row.values()) for row in pa.table(archive.sql(sql)).to_pylist()]
    with duck.connect(archive) as connection:
        expected = connection.execute(sql.replace("max_tile(min(a.board))", "any_value(max_tile(a.board))")).fetchall()
    assert found == expected
    assert len(found) > 3


def test_other_libraries_read_lists_and_structs(archive: a2store.Archive) -> None:
    query = archive.sql(
        "SELECT board, exps(board) AS e, spawn(board, move, afterstate(board, move) | 1) AS s FROM steps LIMIT 500"
    )
    table = pa.table(query)
    expected = [cells(board) for board in table["board"].to_pylist()]
    assert table["e"].type == pa.list_(pa.field("item", pa.uint8(), nullable=False), 16)
    assert table["e"].to_pylist() == expected
    assert np.asarray(table["e"].combine_chunks().flatten()).reshape(-1, 16).tolist() == expected
    frame = polars.DataFrame(query)
    assert frame.schema["e"] == polars.Array(polars.UInt8, 16)
    assert frame["e"].to_numpy().tolist() == expected
    assert frame["s"].struct.fields == ["cell", "tile"]
    with duckdb.connect() as connection:
        connection.register("query", query)
        assert connection.execute("SELECT typeof(e), typeof(s) FROM query LIMIT 1").fetchone() == (
            "UTINYINT[16]",
            "STRUCT(cell UTINYINT, tile UINTEGER)",
        )
        assert [list(row) for (row,) in connection.execute("SELECT e FROM query").fetchall()] == expected
    spawned = frame["s"].to_list()
    assert table["s"].to_pylist() == [None if one is None or one["cell"] is None else one for one in spawned]


def test_boards_in_user_tables(archive: a2store.Archive) -> None:
    """Integers of other types, beside dictionary-encoded text."""
    boards = [0x1111, 0x0123_4567_89AB_CDEF, 1 << 62, None]
    table = pa.table(
        {
            "board": pa.array(boards, pa.int64()),
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
    moved = pa.table(archive.sql("SELECT canonical_move(board, move) AS m FROM b", tables={"b": table}))
    assert moved["m"].to_pylist() == [canonical_move(0x1111, 2), canonical_move(0x0123_4567_89AB_CDEF, 1), None, None]
    wrong = archive.sql("SELECT canonical(board) FROM b", tables={"b": pa.table({"board": pa.array([5, -7])})})
    with pytest.raises(a2store.QueryError, match=r"canonical: board: expected .*, found -7"):
        wrong.explain(analyze=True)


# Comparison with DuckDB


def assert_as_duckdb(archive: a2store.Archive, where: str) -> int:
    """Compare every function on every such step; return the number of steps."""
    # The macros do not support masks.
    calls = [call for name, call in CALLS.items() if not name.endswith("_mask")]
    calls += [*(f"{name}(board, move)" for name in ("afterstate", "reward", "canonical_move"))]
    calls += [f"transform(board, {symmetry})" for symmetry in range(8)]
    calls += ["tile(board, 0)", "tile(board, 15)"]
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
    assert assert_as_duckdb(archive, "step_index % 9 = 0") > 2000


def test_functions_on_real_games_agree_with_duckdb(fixtures: Path, tmp_path: Path) -> None:
    """The games include steps without moves and without values."""
    archive = a2store.Archive.create(tmp_path / "games.a2")
    archive.ingest(fixtures, progress=False)
    assert archive.sql("SELECT * FROM steps WHERE move IS NULL").count() > 10
    assert archive.sql("SELECT * FROM steps WHERE NOT has_evs").count() > 1000
    assert assert_as_duckdb(archive, "step_index % 9 = 0 OR move IS NULL AND step_index % 3 = 0") > 4000
