"""All functions compared with NumPy, and all named queries with DuckDB, over ten million steps.

The short form uses a hundredth of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from duckdb.func import PythonUDFType

import a2store
import board_arrays as arrays
import duck
from board_rules import BOARDS, IMAGES, OF_BOARD, OF_BOARD_AND_NUMBER, text
from compare import column
from conftest import PHASES
from faults.checks import LONG
from oracle import Array, cells
from saved_cases import CASES, QUERIES, chosen, defaults
from saved_oracle import EXPECTED

RUNS = 9_500 if LONG else 95
"""Runs of each of three engines; a run has about 350 steps."""
STEPS = 10_000_000 if LONG else 90_000


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> a2store.Archive:
    """An archive with runs of two engines, and runs without an engine, which have no values."""
    folder = tmp_path_factory.mktemp("many")
    options: dict[str, Any] = {"runs": RUNS, "depth": 0, "progress": False}
    a2store.simulate(folder / "runs" / "alpha", seed=11, engine="alpha", **options)
    a2store.simulate(folder / "runs" / "beta", seed=12, engine="beta", **options)
    a2store.simulate(folder / "runs" / "none", seed=13, format="a2t1", **options)
    archive = a2store.Archive.create(folder / "games.a2", phases=PHASES)
    archive.ingest(folder / "runs", progress=False)
    assert archive.num_steps >= STEPS
    return archive


def test_the_numpy_oracle_agrees_with_the_rules_for_single_boards() -> None:
    boards = np.array(BOARDS, "u8")
    for call, result in arrays.functions_of_boards(boards):
        name, numbers = call[:-1].split("(board")
        if number := numbers.removeprefix(", "):
            expected = [OF_BOARD_AND_NUMBER[name][0](board, int(number)) for board in BOARDS]
        else:
            expected = [cells(board) if name == "exps" else OF_BOARD[name][0](board) for board in BOARDS]
        assert result.tolist() == expected, call
    assert arrays.board_texts(boards).to_pylist() == list(map(text, BOARDS))


def batches(archive: a2store.Archive, sql: str) -> Iterator[Any]:
    """Yield the batches of a query, which must return all steps, or all except the last of each run."""
    num_rows = 0
    for batch in pa.RecordBatchReader.from_stream(archive.sql(sql)):
        num_rows += len(batch)
        yield pa.table(batch)
    assert num_rows == archive.num_steps - archive.num_runs * (" JOIN " in sql)


def assert_equal(found: Any, expected: Array, call: str) -> None:
    """Compare a column with an array, in which NaN stands for null."""
    array = found.combine_chunks()
    if pa.types.is_fixed_size_list(array.type):
        assert array.null_count == 0, call
        np.testing.assert_array_equal(array.flatten().to_numpy(), expected.ravel(), err_msg=call)
        return
    is_null = np.isnan(expected) if expected.dtype.kind == "f" else np.zeros(len(expected), bool)
    np.testing.assert_array_equal(array.is_null().to_numpy(zero_copy_only=False), is_null, err_msg=call)
    found = array.drop_null().to_numpy(zero_copy_only=False)
    np.testing.assert_array_equal(found, expected[~is_null].astype(found.dtype), err_msg=call)


def selected(calls: list[str]) -> str:
    return ", ".join(f"{call} AS c{place}" for place, call in enumerate(calls))


def test_functions_of_boards(many: a2store.Archive) -> None:
    calls = [call for call, _ in arrays.functions_of_boards(np.zeros(1, "u8"))]
    for table in batches(many, f"SELECT board, {selected(calls)} FROM steps"):
        expected = arrays.functions_of_boards(column(table, "board"))
        for place, (call, result) in enumerate(expected):
            assert_equal(table[f"c{place}"], result, call)


def test_functions_of_boards_and_moves(many: a2store.Archive) -> None:
    """The move is the step's own move instead of a literal."""
    names = ("afterstate", "reward", "canonical_move")
    calls = [f"{name}(board, move)" for name in names]
    moves_of = {image: symmetry for symmetry in range(8) for image in [tuple(IMAGES[symmetry])]}
    turns = [f"transform_move(move, {symmetry})" for symmetry in moves_of.values()]
    for table in batches(many, f"SELECT board, move, {selected([*calls, *turns])} FROM steps"):
        moves = column(table, "move")
        by_call = dict(arrays.functions_of_boards(column(table, "board")))
        for place, name in enumerate(names):
            of_moves = [by_call[f"{name}(board, {move})"] for move in range(4)]
            assert_equal(table[f"c{place}"], arrays.chosen(of_moves, moves), name)
        for place, image in enumerate(moves_of, len(names)):
            assert_equal(table[f"c{place}"], np.array(image)[moves], f"transform_move {image}")


def test_functions_of_values(many: a2store.Archive) -> None:
    calls = [call for call, _ in arrays.functions_of_values(np.zeros(1, "u1"), np.zeros((1, 4), "f4"))]
    names = ("ev_up", "ev_down", "ev_left", "ev_right")
    num_gaps = 0
    for table in batches(many, f"SELECT move, {', '.join(names)}, {selected(calls)} FROM steps"):
        evs = np.stack([column(table, name) for name in names], axis=1)
        for place, (call, result) in enumerate(arrays.functions_of_values(column(table, "move"), evs)):
            assert_equal(table[f"c{place}"], result, call)
        num_gaps += len(table) - table["c0"].null_count
    assert many.num_steps / 2 < num_gaps < many.num_steps


def test_texts_and_phases(many: a2store.Archive) -> None:
    phases = [
        "late" if tile >= PHASES["late"] else "mid" if tile >= PHASES["mid"] else "early" for tile in arrays.TILES
    ]
    sql = "SELECT board, max_exp, board_text(board) AS tiles, phase_of(max_exp) AS phase FROM steps"
    for table in batches(many, sql):
        assert table["tiles"].combine_chunks().equals(arrays.board_texts(column(table, "board")))
        assert (column(table, "phase") == np.array(phases, object)[column(table, "max_exp")]).all()


def test_spawns(many: a2store.Archive) -> None:
    """With the moves that were played, and with other moves, which usually explain no spawn."""
    sql = """SELECT s.board AS board, s.move AS move, n.board AS following, spawn(s.board, s.move, n.board) AS played,
            spawn(s.board, s.move ^ 1, n.board) AS other
        FROM steps s JOIN steps n ON n.run_id = s.run_id AND n.step_index = s.step_index + 1"""
    num_others = 0
    for table in batches(many, sql):
        boards, moves = column(table, "board"), column(table, "move")
        cells = arrays.exps(boards)
        after = [arrays.afterstate(cells, move) for move in range(4)]
        for name, tried in (("played", moves), ("other", moves ^ 1)):
            slid = arrays.chosen(after, tried)
            came, cell, tile = arrays.spawns(slid, column(table, "following"))
            came &= slid != boards
            spawned = table[name].combine_chunks()
            assert (spawned.is_valid().to_numpy(zero_copy_only=False) == came).all()
            for field, expected in (("cell", cell), ("tile", tile)):
                values = spawned.field(field).to_numpy(zero_copy_only=False)
                assert (values[came] == expected[came]).all()
            assert came.all() or name == "other"
            num_others += int(came.sum()) * (name == "other")
    assert 0 < num_others < many.num_steps / 10


def numpy_functions(connection: duckdb.DuckDBPyConnection) -> None:
    """Replace the macros that would take hours by NumPy functions."""

    def canonical(boards: Any) -> Any:
        cells = arrays.exps(boards.to_numpy())
        return pa.array(np.min([arrays.packed(cells[:, places]) for places in arrays.PLACES], axis=0))

    def canonical_move(boards: Any, moves: Any) -> Any:
        cells = arrays.exps(boards.to_numpy())
        turned = [arrays.packed(cells[:, places]) for places in arrays.PLACES]
        images = [arrays.canonical_move(turned, move) for move in range(4)]
        return pa.array(arrays.chosen(images, moves.to_numpy()).astype("u1"))

    for name in ("canonical", "canonical_move"):
        connection.execute(f"DROP MACRO {name}")
    arrow = PythonUDFType.ARROW
    connection.create_function("canonical", canonical, ["ubigint"], "ubigint", type=arrow)
    connection.create_function("canonical_move", canonical_move, ["ubigint", "utinyint"], "utinyint", type=arrow)


@pytest.mark.parametrize("name", EXPECTED)
def test_named_queries(many: a2store.Archive, name: str) -> None:
    text = (QUERIES / f"{name}.sql").read_text(encoding="utf-8")
    with duck.connect(many) as connection:
        numpy_functions(connection)
        for case in [{}, *CASES[name]]:
            params = chosen(case, "alpha")
            found = pa.table(many.query(name, folder=QUERIES, **params))
            assert_tables(found, duck.table(connection, EXPECTED[name], **defaults(text) | params), f"{name} {params}")


def assert_tables(found: Any, expected: Any, what: str) -> None:
    """Compare rows in order; sums of floats may have been added in any order."""
    assert len(found) == len(expected), what
    for name, other in zip(found.column_names, expected.columns, strict=True):
        column = found[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        other = other.cast(column.type)
        if pa.types.is_floating(column.type):
            assert column.is_null().equals(other.is_null()), f"{what}: {name}"
            values, others = (array.fill_null(0).to_numpy() for array in (column, other))
            np.testing.assert_allclose(values, others, rtol=1e-9, atol=1e-12, err_msg=f"{what}: {name}")
        else:
            assert column.equals(other), f"{what}: {name}"
