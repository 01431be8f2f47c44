"""Games with a tile of 65,536: from logs and sessions into an archive, SQL, tables and batches, and out again."""

from __future__ import annotations

import gzip
import json
import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
import formats
import games
from archives import first_ingest
from compare import assert_same
from conftest import FIXTURES, WITHOUT_FIXTURES
from oracle import lines
from test_functions import refusal

MOVES = ("up", "down", "left", "right")
Cells = tuple[int, ...]


@dataclass(frozen=True)
class LargeGame:
    """A game whose boards are sixteen exponents, each 0 to 16."""

    boards: list[Cells]
    moves: list[int]
    final: Cells


def slide(cells: Cells, move: int) -> tuple[Cells, int]:
    """Return the cells after a move and its reward, by the rules with tiles up to 65,536."""
    out, reward = [0] * 16, 0
    for line in lines(move):
        tiles = [cells[cell] for cell in line if cells[cell]]
        merged: list[int] = []
        while tiles:
            tile = tiles.pop(0)
            if tiles and tiles[0] == tile and tile < 16:
                tiles.pop(0)
                tile += 1
                reward += 2**tile
            merged.append(tile)
        for cell, tile in zip(line, merged, strict=False):
            out[cell] = tile
    return tuple(out), reward


def play(rng: random.Random, start: Sequence[int], num_steps: int) -> LargeGame:
    cells, boards, moves = tuple(start), [], []
    for _ in range(num_steps):
        legal = [move for move in range(4) if slide(cells, move)[0] != cells]
        if not legal:
            break
        move = rng.choice(legal)
        boards.append(cells)
        moves.append(move)
        after = list(slide(cells, move)[0])
        after[rng.choice([cell for cell in range(16) if not after[cell]])] = rng.choice([1, 1, 2])
        cells = tuple(after)
    return LargeGame(boards, moves, cells)


# The first two tiles of each game merge to 65,536, or are 65,536 already.
STARTS = [
    [15, 15, 0, 0, 14, 13, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
    [16, 16, 15, 0, 0, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1],
    [14, 14, 15, 0, 16, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
    [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
]
GAMES = [play(random.Random(number), start, 60) for number, start in enumerate(STARTS)]


def packed(cells: Sequence[int]) -> tuple[int, int]:
    """Return the nibbles and the mask of a board."""
    board = 0
    for exp in cells:
        board = board << 4 | min(exp, 15)
    return board, sum(1 << cell for cell, exp in enumerate(cells) if exp == 16)


def write_log(folder: Path, number: int, game: LargeGame) -> None:
    rows = []
    for step, (cells, move) in enumerate(zip(game.boards, game.moves, strict=True)):
        evs = {MOVES[way]: step + way / 4 if slide(cells, way)[0] != cells else None for way in range(4)}
        row = {"seed": 7 + number, "step_index": step, "max_rank": max(cells), "move": MOVES[move]}
        rows.append(json.dumps(row | {"board": list(cells), "branch_evs": evs}))
    tiles = [2**exp for exp in game.final if exp]
    meta = {
        "seed": 7 + number,
        "depth": 6,
        "game_index": number,
        "steps_file": f"game{number}.jsonl.gz",
        "num_moves": len(game.boards),
        "score": sum((exp - 1) * 2**exp for exp in game.final if exp),
        "max_tile": max(tiles),
        "max_rank": max(game.final),
        "sum_tile": sum(tiles),
        "seconds": 1.5,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"game{number}.meta.json").write_text(json.dumps(meta))
    (folder / f"game{number}.jsonl.gz").write_bytes(gzip.compress("\n".join(rows).encode()))


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    for number, game in enumerate(GAMES):
        write_log(folder, number, game)
    return folder


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, logs: Path) -> a2store.Archive:
    with_games, report = first_ingest(tmp_path_factory.mktemp("large") / "games.a2", logs)
    assert (report.accepted, report.rejected, report.errors) == (len(GAMES), 0, [])
    return with_games


CELLS = [cells for game in GAMES for cells in game.boards]
MOVES_OF = [move for game in GAMES for move in game.moves]


def asked(archive: a2store.Archive, expression: str, source: str = "steps") -> list[Any]:
    table = pa.table(archive.sql(f"SELECT {expression} AS value FROM {source} ORDER BY run_id, step_index"))
    values: list[Any] = table["value"].to_pylist()
    return values


def test_steps_hold_the_boards(large: a2store.Archive) -> None:
    assert any(16 in cells for cells in CELLS)
    assert list(zip(asked(large, "board"), asked(large, "tile_65536_mask"), strict=True)) == [
        packed(cells) for cells in CELLS
    ]
    assert asked(large, "max_exp") == [max(cells) for cells in CELLS]
    early = ["late" if max(cells) >= 12 else "mid" if max(cells) >= 10 else "early" for cells in CELLS]
    assert asked(large, "phase") == early
    runs = pa.table(
        large.sql("SELECT highest_tile, verified, final_board, final_tile_65536_mask FROM runs")
    ).to_pylist()
    assert [run["highest_tile"] for run in runs] == [2 ** max(game.final) for game in GAMES]
    assert all(run["verified"] for run in runs)
    for run, game in zip(runs, GAMES, strict=True):
        # A log has no final board. It is known only if the last move left one empty cell.
        found = (run["final_board"], run["final_tile_65536_mask"])
        assert found in {packed(game.final), (None, None)}


def test_functions_take_the_mask(large: a2store.Archive) -> None:
    def check(call: str, expected: list[Any]) -> None:
        assert asked(large, call) == expected, call

    slid = [slide(cells, move) for cells, move in zip(CELLS, MOVES_OF, strict=True)]
    check("max_tile(board, tile_65536_mask)", [2 ** max(cells) for cells in CELLS])
    check("exps(board, tile_65536_mask)", [list(cells) for cells in CELLS])
    check("afterstate(board, move, tile_65536_mask)", [packed(cells)[0] for cells, _ in slid])
    check("afterstate_mask(board, move, tile_65536_mask)", [packed(cells)[1] for cells, _ in slid])
    check("reward(board, move, tile_65536_mask)", [reward for _, reward in slid])
    legal = [sum(1 << way for way in range(4) if slide(cells, way)[0] != cells) for cells in CELLS]
    check("legal_moves(board, tile_65536_mask)", legal)
    check("ev_legal", legal)
    check("tile(board, 0, tile_65536_mask)", [2 ** cells[0] if cells[0] else 0 for cells in CELLS])
    words = [["." if exp == 0 else str(2**exp) for exp in cells] for cells in CELLS]
    check(
        "board_text(board, tile_65536_mask)", [" / ".join(" ".join(w[r : r + 4]) for r in (0, 4, 8, 12)) for w in words]
    )
    # Without the mask, a function sees the nibbles alone.
    check("max_tile(board)", [2 ** min(max(cells), 15) for cells in CELLS])
    # The spawned tile is found if both boards have their masks.
    spawns = """SELECT s.run_id, s.step_index,
        spawn(s.board, s.move, n.board, s.tile_65536_mask, n.tile_65536_mask)['tile'] AS tile
        FROM steps s JOIN steps n ON n.run_id = s.run_id AND n.step_index = s.step_index + 1"""
    assert all(tile in (2, 4) for tile in asked(large, "tile", f"({spawns})"))


def test_a_mask_that_does_not_fit_is_rejected(large: a2store.Archive) -> None:
    for call in ("max_tile(board, 65535)", "max_tile(board, 65536)", "canonical(board, -1)"):
        assert "tile_65536_mask: expected" in refusal(large, f"SELECT {call} FROM steps")


def turns() -> list[tuple[Any, Any]]:
    """Return index arrays that turn a 4×4 array by each symmetry."""
    rows, columns = np.mgrid[:4, :4]
    found = []
    for transposed in (False, True):
        r, c = (columns, rows) if transposed else (rows, columns)
        found += [(r, c), (r[::-1], c[::-1]), (r[:, ::-1], c[:, ::-1]), (r[::-1, ::-1], c[::-1, ::-1])]
    return found


def test_batches_have_the_token_16(large: a2store.Archive, tmp_path: Path) -> None:
    table = large.sql("SELECT * FROM steps").materialize(progress=False)
    mapped = large.sql("SELECT * FROM steps").materialize(path=tmp_path / "rows.npy", progress=False)
    expected = np.array(CELLS, "u1")
    for of_rows in (table, mapped, a2store.StepTable.load(tmp_path / "rows.npy", progress=False)):
        assert of_rows.dtype.itemsize == 40
        batch = of_rows.take(range(len(of_rows)))
        assert_same(batch.tokens, expected)
        assert_same(batch["tile_65536_mask"], np.array([packed(cells)[1] for cells in CELLS], "u2"))
        assert_same(batch.board, np.array([packed(cells)[0] for cells in CELLS], "u8"))
    for tokens in ("int32", "int64"):
        (batch,) = table.loader(len(table), shuffle=False, tokens=tokens)
        assert_same(batch.tokens, expected.astype(tokens))


def test_all_shares_have_the_mask(large: a2store.Archive) -> None:
    query = large.sql("SELECT * FROM steps WHERE tile_65536_mask = 0")
    for world_size in (1, 3):
        for rank in range(world_size):
            share = query.materialize(shard=(rank, world_size), progress=False)
            assert share.dtype.names == large.sql("SELECT * FROM steps").materialize(progress=False).dtype.names
    with pytest.warns(UserWarning, match="no column tile_65536_mask"):
        without = large.sql("SELECT board, move FROM steps").materialize(shard=(0, 2), progress=False)
    assert without.stride == 32


def test_symmetries_turn_the_mask(large: a2store.Archive) -> None:
    table = large.sql("SELECT * FROM steps").materialize(progress=False)
    (batch,) = table.loader(len(table), shuffle=False, symmetries=True, seed=4)
    images = np.array([[np.array(cells).reshape(4, 4)[turn].ravel() for turn in turns()] for cells in CELLS])
    same = (images == batch.tokens[:, None]).all(axis=2)
    assert same.any(axis=1).all()
    assert not same[:, 0].all()
    for tokens, board, mask in zip(batch.tokens.tolist(), batch.board.tolist(), batch["tile_65536_mask"], strict=True):
        assert packed(tokens) == (board, mask)


def test_tables_without_the_tile_are_as_before(large: a2store.Archive) -> None:
    table = large.sql("SELECT * FROM steps WHERE highest_tile < 65536").materialize(progress=False)
    assert (table.dtype.itemsize, len(table)) == (32, len(GAMES[3].boards))
    wide = large.sql("SELECT * FROM steps WHERE highest_tile < 65536").materialize(
        extra=["tile_65536_mask"], progress=False
    )
    assert not wide.take(range(len(wide)))["tile_65536_mask"].any()


def test_a_mask_that_does_not_fit_its_board_makes_no_table(large: a2store.Archive) -> None:
    sql = "SELECT board, CAST(3 AS SMALLINT UNSIGNED) AS tile_65536_mask FROM steps WHERE run_id = 3"
    with pytest.raises(a2store.ColumnError, match=r"tile_65536_mask.*cells with the exponent 15"):
        large.sql(sql).materialize(progress=False)


def test_default_legality_does_not_depend_on_other_rows(large: a2store.Archive) -> None:
    """Two tiles of 32,768 merge only in rows with masks, independent of the other rows."""
    board, mask = packed((15, 15, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 7, 8))
    with_tile = packed((16, 15, 15, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 7, 8))
    columns = {"board": pa.array([board] * 20_000 + [with_tile[0]], pa.uint64())}
    columns["tile_65536_mask"] = pa.array([mask] * 20_000 + [with_tile[1]], pa.uint16())
    table = large.sql("SELECT * FROM given", tables={"given": pa.table(columns)}).materialize(progress=False)
    assert np.unique(table["ev_legal"]).tolist() == [0b1100]
    del columns["tile_65536_mask"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = large.sql("SELECT * FROM given", tables={"given": pa.table(columns)}).materialize(progress=False)
    assert np.unique(table["ev_legal"]).tolist() == [0]


@pytest.mark.parametrize("options", [{"columns": ["board"]}, {"columns": ["board", "move"]}, {}])
def test_two_tiles_of_32768_may_merge(large: a2store.Archive, options: dict[str, Any]) -> None:
    table = large.sql("SELECT * FROM steps ORDER BY run_id, step_index").materialize(**options, progress=False)
    legal = [sum(1 << way for way in range(4) if slide(cells, way)[0] != cells) for cells in CELLS]
    assert table["ev_legal"].tolist() == legal
    # The table can fail: the nibbles alone do not allow some of these merges.
    bare = large.sql("SELECT board FROM steps ORDER BY run_id, step_index")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert bare.materialize(progress=False)["ev_legal"].tolist() != legal


def test_critics_see_the_tile(large: a2store.Archive) -> None:
    critic = pytest.importorskip("a2store.critic")
    for options in ({}, {"max_steps_per_run": 20}):
        table = critic.CriticData(large, **options).table
        assert table.dtype.itemsize == 40
        assert table.take(range(len(table))).tokens.max() == 16


@pytest.mark.parametrize("dtype", ["<i8", "<f4", "|u1", "|b1"])
def test_a_file_with_a_mask_of_another_type_is_rejected(tmp_path: Path, dtype: str) -> None:
    np.save(tmp_path / "rows.npy", np.zeros(3, [("board", "<u8"), ("tile_65536_mask", dtype)]))
    with pytest.raises(a2store.ColumnError, match="tile_65536_mask: expected a mask"):
        a2store.StepTable.load(tmp_path / "rows.npy", progress=False)


@pytest.mark.parametrize("name", ["a2run2", "a2pack", "npy"])
def test_formats_without_room_reject_the_game(large: a2store.Archive, logs: Path, tmp_path: Path, name: Any) -> None:
    """A format of nibbles cannot hold the tile. The error names the run and the step."""
    expected = "tiles of at most 32768 in this format; session and macroxue hold larger tiles"
    with pytest.raises(ValueError, match=f"{expected}, found run 1: 65536 at step 0"):
        large.export_runs("SELECT * FROM runs WHERE run_id = 1", tmp_path / "out", format=name, progress=False)
    assert not (tmp_path / "out").exists() or not any(file.is_file() for file in (tmp_path / "out").rglob("*"))
    if name in {"packdat", "npy"}:
        with pytest.raises(ValueError, match="tiles of at most 32768"):
            a2store.convert([logs], tmp_path / "converted", format=name, progress=False)


def test_a_tile_of_131072_is_an_error(tmp_path: Path) -> None:
    game = GAMES[1]
    write_log(tmp_path / "logs", 0, LargeGame([(17, *game.boards[0][1:]), *game.boards[1:]], game.moves, game.final))
    _, report = first_ingest(tmp_path / "games.a2", tmp_path / "logs")
    assert (report.accepted, report.rejected) == (0, 1)
    assert "expected exponents of at most 16 (tile 65536), found 17 in cell " in str(report.errors[0])


def test_sessions_hold_the_tile(tmp_path: Path) -> None:
    """A session stores the exponents as bytes."""
    formats.write_session(tmp_path / "session", [games.play(random.Random(2), 40)])
    (path,) = (tmp_path / "session").glob("steps*.npy")
    rows = np.load(path)
    rows["exps"][:, 0] = 16
    np.save(path, rows)
    with_games = a2store.Archive.create(tmp_path / "games.a2")
    assert with_games.ingest(tmp_path / "session", progress=False).accepted == 1
    table = with_games.sql("SELECT * FROM steps").materialize(progress=False)
    assert_same(table.take(range(len(table))).tokens, rows["exps"])
    direct = a2store.StepTable.from_session(tmp_path / "session", progress=False)
    assert_same(direct.take(range(len(direct))).tokens, rows["exps"])
    with_games.export_runs("SELECT * FROM runs", tmp_path / "back", format="session", progress=False)
    (path,) = (tmp_path / "back").glob("**/steps*.npy")
    assert_same(np.load(path)["exps"], rows["exps"])


@pytest.mark.skipif(not FIXTURES.is_dir(), reason=WITHOUT_FIXTURES)
@pytest.mark.parametrize("name", ["logs", "logs2"])
def test_logs_of_the_field(tmp_path: Path, name: str) -> None:
    folder = FIXTURES / "macroxue" / name
    rows: dict[int, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.jsonl.gz")):
        steps = [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
        rows[steps[0]["seed"]] = steps
    with_games, report = first_ingest(tmp_path / "games.a2", folder)
    assert (report.accepted, report.rejected) == (len(rows), 0)
    assert any(max(row["board"]) == 16 for steps in rows.values() for row in steps)
    sql = """SELECT seed, s.step_index, s.board, s.tile_65536_mask AS mask, s.move, s.ev_up, s.ev_left
        FROM steps s JOIN runs USING (run_id) ORDER BY s.run_id, s.step_index"""
    for found in pa.table(with_games.sql(sql)).to_pylist():
        row = rows[found["seed"]][found["step_index"]]
        assert (found["board"], found["mask"]) == packed(row["board"])
        assert MOVES[found["move"]] == row["move"]
        for move in ("up", "left"):
            ev = row["branch_evs"][move]
            assert found[f"ev_{move}"] == (None if ev is None else np.float32(ev))
    assert with_games.verify(progress=False).problems == []


def test_boards_without_their_masks(large: a2store.Archive) -> None:
    """A table shows tiles of 65,536 as 32,768 if the query leaves their column out. It says so."""
    with pytest.warns(UserWarning, match="select tile_65536_mask too"):
        table = large.sql("SELECT board, run_id FROM steps").materialize(progress=False)
    assert (table.dtype.itemsize, table.take(range(len(table))).tokens.max()) == (32, 15)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        large.sql("SELECT board, tile_65536_mask FROM steps").materialize(progress=False)
        large.sql("SELECT board FROM steps WHERE max_exp < 15").materialize(progress=False)


def test_loaded_masks_fit_their_boards(tmp_path: Path) -> None:
    rows = np.zeros(3, [("board", "<u8"), ("tile_65536_mask", "<u2")])
    rows["board"], rows["tile_65536_mask"] = 0xF100_0000_0000_0000, [1, 0, 2]
    np.save(tmp_path / "rows.npy", rows)
    with pytest.raises(
        a2store.ColumnError, match="tile_65536_mask, row 2: expected cells with the exponent 15, found 2"
    ):
        a2store.StepTable.load(tmp_path / "rows.npy", progress=False)
    np.save(tmp_path / "rows.npy", rows[:2])
    assert next(iter(a2store.StepTable.load(tmp_path / "rows.npy", progress=False).loader(2))).tokens.max() == 16
