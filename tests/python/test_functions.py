"""The board functions in SQL, compared with the explicit rules in ``board_rules`` and ``oracle``."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import a2store
from asking import CALLS, ask, boards, literal, refusal, values
from board_rules import (
    BOARDS,
    IMAGES,
    OF_BOARD,
    OF_BOARD_AND_NUMBER,
    Evs,
    best_move,
    ev_gap,
    ev_loss,
    spawn,
    text,
    tile_of,
    turned,
)
from compare import column
from conftest import PHASES
from oracle import cells, legal_mask, slide

# Values


def test_the_sample_has_boards_of_every_kind() -> None:
    assert len(BOARDS) > 700
    assert {max(cells(board)) for board in BOARDS} >= {0, 1, 3, 15}
    masks = {legal_mask(board) for board in BOARDS}
    assert masks >= {0, 3, 12, 15}
    assert len(masks) >= 10
    assert {len(set(turned(board))) for board in BOARDS} >= {1, 4, 8}


@pytest.mark.parametrize("name", OF_BOARD)
def test_functions_of_a_board(archive: a2store.Archive, name: str) -> None:
    function, dtype = OF_BOARD[name]
    found = ask(archive, f"{name}(board)", boards())
    assert found.type == dtype
    assert found.to_pylist() == list(map(function, BOARDS))


def test_exps(archive: a2store.Archive) -> None:
    found = ask(archive, "exps(board)", boards())
    assert pa.types.is_fixed_size_list(found.type)
    assert (found.type.list_size, found.type.value_type) == (16, pa.uint8())
    assert not found.type.value_field.nullable
    assert found.to_pylist() == list(map(cells, BOARDS))


@pytest.mark.parametrize("name", OF_BOARD_AND_NUMBER)
def test_functions_of_a_board_and_a_number(archive: a2store.Archive, name: str) -> None:
    function, count, dtype = OF_BOARD_AND_NUMBER[name]
    pairs = [(board, number) for number in range(count) for board in BOARDS[number::count]]
    found = ask(archive, f"{name}(board, number)", values(pairs, board="BIGINT UNSIGNED", number="TINYINT UNSIGNED"))
    assert found.type == dtype
    assert found.to_pylist() == [function(*pair) for pair in pairs]
    for number in range(count):
        of_column = ask(archive, f"{name}(board, {number})", boards(BOARDS[:50]))
        assert of_column.to_pylist() == [function(board, number) for board in BOARDS[:50]]
    numbers = values([(number,) for number in range(count)], number="TINYINT UNSIGNED")
    board = literal(BOARDS[-1], "BIGINT UNSIGNED")
    of_literal = ask(archive, f"{name}({board}, number)", numbers)
    assert of_literal.to_pylist() == [function(BOARDS[-1], number) for number in range(count)]


def test_the_reward_is_the_increase_of_the_score_if_only_twos_spawn(archive: a2store.Archive) -> None:
    """The two definitions of the score agree here; if one were wrong, they would not."""
    grown = "board_score(afterstate(board, move)) - board_score(board)"
    pairs = [(board, move) for board in BOARDS for move in range(4)][:2000]
    source = values(pairs, board="BIGINT UNSIGNED", move="TINYINT UNSIGNED")
    found = ask(archive, f"CAST({grown} AS BIGINT) - reward(board, move)", source)
    assert found.to_pylist() == [0] * len(pairs)


def test_spawn(archive: a2store.Archive) -> None:
    rows = []
    for number, board in enumerate(BOARDS):
        move = number % 4
        slid = slide(board, move)
        empty = [cell for cell, exp in enumerate(cells(slid)) if exp == 0]
        nexts = {slid, board, BOARDS[number - 1]}
        for cell in empty[:2] + empty[-1:]:
            nexts |= {slid | exp << 4 * (15 - cell) for exp in (1, 2, 3)}
        if len(empty) > 1:
            nexts.add(slid | 1 << 4 * (15 - empty[0]) | 1 << 4 * (15 - empty[1]))
        rows += [(board, move, after) for after in sorted(nexts)]
    rows = rows[::3]
    expected = [spawn(*row) for row in rows]
    spawned = [one for one in expected if one]
    assert len(rows) - len(spawned) > 300
    assert {one["tile"] for one in spawned} == {2, 4}
    assert {one["cell"] for one in spawned} == set(range(16))
    for at in range(0, len(rows), 500):
        source = values(rows[at : at + 500], board="BIGINT UNSIGNED", move="TINYINT UNSIGNED", after="BIGINT UNSIGNED")
        found = ask(archive, "spawn(board, move, after)", source)
        assert found.type == pa.struct({"cell": pa.uint8(), "tile": pa.uint32()})
        assert found.to_pylist() == expected[at : at + 500]


def test_the_spawned_tiles_of_a_game(archive: a2store.Archive) -> None:
    """Every step except a run's last is followed by a board that its spawn explains."""
    sql = """SELECT spawn(s.board, s.move, n.board) AS spawned FROM steps s
        JOIN steps n ON n.run_id = s.run_id AND n.step_index = s.step_index + 1"""
    spawned = pa.table(archive.sql(sql))["spawned"].to_pylist()
    assert len(spawned) == archive.num_steps - archive.num_runs
    assert None not in spawned
    fours = sum(one["tile"] == 4 for one in spawned)
    assert 0.08 < fours / len(spawned) < 0.12


def test_transform_move(archive: a2store.Archive) -> None:
    pairs = list(itertools.product(range(4), range(8)))
    source = values(pairs, move="TINYINT UNSIGNED", symmetry="TINYINT UNSIGNED")
    found = ask(archive, "transform_move(move, symmetry)", source)
    assert found.type == pa.uint8()
    assert found.to_pylist() == [IMAGES[symmetry][move] for move, symmetry in pairs]


def test_symmetries_and_moves_commute(archive: a2store.Archive) -> None:
    rows = [(board, n % 4, n % 8) for n, board in enumerate(BOARDS)]
    source = values(rows, board="BIGINT UNSIGNED", move="TINYINT UNSIGNED", symmetry="TINYINT UNSIGNED")
    same = """transform(afterstate(board, move), symmetry)
        = afterstate(transform(board, symmetry), transform_move(move, symmetry))
        AND transform(board, canonical_symmetry(board)) = canonical(board)
        AND canonical(transform(board, symmetry)) = canonical(board)"""
    assert ask(archive, same, source).to_pylist() == [True] * len(rows)


def evs_of(rng: random.Random) -> Evs:
    drawn = [rng.choice([None, float("nan"), 0.5, -0.25, 0.0, rng.random(), -1e6 * rng.random()]) for _ in range(4)]
    return (drawn[0], drawn[1], drawn[2], drawn[3])


def test_functions_of_values(archive: a2store.Archive) -> None:
    rng = random.Random(5)
    rows = [(rng.choice([0, 1, 2, 3]), *evs_of(rng)) for _ in range(600)]
    rows += [(1, None, None, None, None), (1, 1.0, 1.0, 1.0, 1.0), (0, -1.0, None, None, None)]
    source = values(rows, move="TINYINT UNSIGNED", u="FLOAT", d="FLOAT", l="FLOAT", r="FLOAT")
    calls: list[tuple[str, Any, list[Any]]] = [
        ("ev_gap(u, d, l, r)", pa.float32(), [ev_gap(*row[1:]) for row in rows]),
        ("ev_loss(move, u, d, l, r)", pa.float32(), [ev_loss(*row) for row in rows]),
        ("best_move(u, d, l, r)", pa.uint8(), [best_move(*row[1:]) for row in rows]),
    ]
    for call, dtype, expected in calls:
        found = ask(archive, call, source)
        assert found.type == dtype
        assert found.to_pylist() == expected, call
        assert 2 < expected.count(None) < 400
    assert ask(archive, "ev_loss(move, u, d, l, r) >= 0", source).to_pylist().count(False) == 0


def test_values_of_other_types(archive: a2store.Archive) -> None:
    """Literals are doubles and integers; an EV given as NULL has no type."""
    assert ask(archive, "ev_gap(0.5, NULL, 0.25, 0)", "runs LIMIT 1").to_pylist() == [0.25]
    assert ask(archive, "ev_loss(3, 0.5, NULL, 0.25, 0)", "runs LIMIT 1").to_pylist() == [0.5]
    assert ask(archive, "best_move(NULL, NULL, 1, 1)", "runs LIMIT 1").to_pylist() == [2]


def test_phase_of(archive: a2store.Archive, tmp_path: Path) -> None:
    """The thresholds are the archive's."""
    exps = values([(exp,) for exp in range(16)], e="TINYINT UNSIGNED")
    other = a2store.Archive.create(tmp_path / "other.a2")
    for asked, (mid, late) in {archive: (PHASES["mid"], PHASES["late"]), other: (1024, 4096)}.items():
        found = ask(asked, "phase_of(e)", exps)
        expected = ["late" if tile_of(e) >= late else "mid" if tile_of(e) >= mid else "early" for e in range(16)]
        assert column(pa.table({"value": found}), "value").tolist() == expected
    mixed = "SELECT count(*) AS n FROM steps WHERE phase <> phase_of(max_exp) OR max_tile(board) <> power(2, max_exp)"
    assert pa.table(archive.sql(mixed))["n"].to_pylist() == [0]


# Nulls, literals, types


def test_a_null_argument_gives_null(archive: a2store.Archive) -> None:
    number = "CAST(NULL AS TINYINT UNSIGNED)"
    some = [BOARDS[9], None, BOARDS[-1], None]
    for name, (function, _) in OF_BOARD.items():
        expected = [None if board is None else function(board) for board in some]
        assert ask(archive, f"{name}(board)", boards(some)).to_pylist() == expected, name
        assert ask(archive, f"{name}(NULL)", "runs LIMIT 1").to_pylist() == [None], name
    assert ask(archive, "exps(board)", boards(some)).to_pylist() == [cells(BOARDS[9]), None, cells(BOARDS[-1]), None]
    for name, (of_both, _, _) in OF_BOARD_AND_NUMBER.items():
        expected = [None if board is None else of_both(board, 2) for board in some]
        assert ask(archive, f"{name}(board, 2)", boards(some)).to_pylist() == expected, name
        assert ask(archive, f"{name}(board, {number})", boards(some)).to_pylist() == [None] * 4, name
        assert ask(archive, f"{name}(board, NULL)", boards(some)).to_pylist() == [None] * 4, name
    for call in (
        f"transform_move({number}, 1)",
        f"transform_move(1, {number})",
        f"spawn(1, {number}, 2)",
        "spawn(NULL, 1, 2)",
        "spawn(1, 1, NULL)",
        f"ev_loss({number}, 0.5, 0.25, 0.0, 0.0)",
        "phase_of(NULL)",
    ):
        assert ask(archive, call, "runs LIMIT 1").to_pylist() == [None], call


def test_a_number_out_of_range_in_a_null_row_is_no_error(archive: a2store.Archive) -> None:
    """A value under a null is not evaluated."""
    rows = [(BOARDS[-1], 1, 1), (None, 1, 1), (BOARDS[-1], 77, None)]
    source = values(rows, board="BIGINT UNSIGNED", number="INT", flag="INT")
    hidden = "CASE WHEN flag IS NULL THEN NULL ELSE number END"
    for name, (function, _, _) in OF_BOARD_AND_NUMBER.items():
        found = ask(archive, f"{name}(board, {hidden})", source)
        assert found.to_pylist() == [function(BOARDS[-1], 1), None, None], name


def test_literals_and_parameters_give_the_same_results_as_columns(archive: a2store.Archive) -> None:
    board = 0x8000_1200_0342_1111
    for name, (function, dtype) in OF_BOARD.items():
        for sql, params in [(f"SELECT {name}({board}) AS v", []), (f"SELECT {name}($1) AS v", [board])]:
            table = pa.table(archive.sql(sql, params))
            assert (table["v"].to_pylist(), table["v"].type) == ([function(board)], dtype), sql
    for name, (of_both, _, _) in OF_BOARD_AND_NUMBER.items():
        table = pa.table(archive.sql(f"SELECT {name}($b, $n) AS v", {"b": board, "n": 3}))
        assert table["v"].to_pylist() == [of_both(board, 3)], name


INTEGERS = ["TINYINT", "SMALLINT", "INT", "BIGINT"]


@pytest.mark.parametrize("dtype", [*INTEGERS, *(f"{name} UNSIGNED" for name in INTEGERS)])
def test_integers_of_any_type(archive: a2store.Archive, dtype: str) -> None:
    numbers = values([(n,) for n in range(4)], n=dtype)
    board = BOARDS[-1]
    for name, (function, _, _) in OF_BOARD_AND_NUMBER.items():
        found = ask(archive, f"{name}({board}, n)", numbers)
        assert found.to_pylist() == [function(board, n) for n in range(4)], name
    assert ask(archive, "transform_move(n, n)", numbers).to_pylist() == [IMAGES[n][n] for n in range(4)]
    assert ask(archive, "board_text(n)", numbers).to_pylist() == list(map(text, range(4)))
    assert column(pa.table({"v": ask(archive, "phase_of(n)", numbers)}), "v").tolist() == ["early"] * 4
    assert ask(archive, "ev_loss(n, 1.0, 0.5, 0.25, 0.0)", numbers).to_pylist() == [0, 0.5, 0.75, 1]


@pytest.mark.parametrize(
    ("call", "what", "found"),
    [
        ("tile(board, 16)", "cell", "16"),
        ("tile(board, -1)", "cell", "-1"),
        ("afterstate(board, 4)", "move", "4"),
        ("afterstate(board, 255)", "move", "255"),
        ("reward(board, -3)", "move", "-3"),
        ("spawn(board, 7, board)", "move", "7"),
        ("transform(board, 8)", "symmetry", "8"),
        ("transform(board, 256)", "symmetry", "256"),
        ("canonical_move(board, 4)", "move", "4"),
        ("canonical_move(-1, 0)", "board", "-1"),
        ("transform_move(4, 0)", "move", "4"),
        ("transform_move(0, 8)", "symmetry", "8"),
        ("ev_loss(4, ev_up, ev_down, ev_left, ev_right)", "move", "4"),
        ("phase_of(17)", "max_exp", "17"),
        ("phase_of(-1)", "max_exp", "-1"),
        ("exps(-1)", "board", "-1"),
        ("canonical(-2)", "board", "-2"),
        ("spawn(board, 1, -9)", "next_board", "-9"),
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


@pytest.mark.parametrize(
    "call",
    [
        *(f"{name}()" for name in CALLS),
        *(f"{name}('text')" for name in (*OF_BOARD, "exps", "phase_of")),
        *(f"{name}(0.5)" for name in (*OF_BOARD, "exps", "phase_of")),
        *(f"{name}(true)" for name in (*OF_BOARD, "exps", "phase_of")),
        *(f"{name}(board, board, board, board, board, board)" for name in CALLS),
        *(f"{name}(board, 'up')" for name in OF_BOARD_AND_NUMBER),
        *(f"{name}(board, 0.5)" for name in OF_BOARD_AND_NUMBER),
        "canonical(engine)",
        "canonical(exps(board))",
        "afterstate(board)",
        "transform_move('up', 1)",
        "spawn(board, move)",
        "ev_gap(ev_up, ev_down, ev_left)",
        "ev_gap('a', 'b', 'c', 'd')",
        "ev_loss(0.5, ev_up, ev_down, ev_left, ev_right)",
        "best_move(ev_up, ev_down, ev_left, true)",
        "canonicals(board)",
    ],
)
def test_wrong_types_and_numbers_of_arguments(archive: a2store.Archive, call: str) -> None:
    message = refusal(archive, f"SELECT {call} FROM steps")
    assert call.split("(", maxsplit=1)[0].rstrip("s") in message, message


def test_no_rows(archive: a2store.Archive, tmp_path: Path) -> None:
    empty = a2store.Archive.create(tmp_path / "empty.a2")
    for call in CALLS.values():
        full = pa.table(archive.sql(f"SELECT {call} AS v FROM steps LIMIT 3"))
        none = [archive.sql(f"SELECT {call} AS v FROM steps WHERE false"), empty.sql(f"SELECT {call} AS v FROM steps")]
        for table in map(pa.table, none):
            assert (len(table), table.schema) == (0, full.schema), call
