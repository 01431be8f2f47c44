"""``show`` and ``replay``: a game in the terminal; boards and positions in Python."""

from __future__ import annotations

import gzip
import json
import pickle
import random
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
from archives import ingested, run_command, simulated
from oracle import reward
from report_page import data_of
from test_command_options import on_terminal, plain
from test_large_tiles import play, write_log

NAMES = ["up", "down", "left", "right"]


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> a2store.Archive:
    return simulated(tmp_path_factory.mktemp("replay"), runs=3, depth=1, seed=4, engine="player")


def steps(archive: a2store.Archive, run: int) -> list[dict[str, object]]:
    sql = "SELECT *, ev_loss(move, ev_up, ev_down, ev_left, ev_right) AS loss FROM steps WHERE run_id = $run"
    rows: list[dict[str, object]] = pa.table(archive.sql(f"{sql} ORDER BY step_index", {"run": run})).to_pylist()
    return rows


def numbers(lines: list[str]) -> list[int]:
    """Return the tiles that these lines show, 0 for an empty cell."""
    return [int(word.replace(".", "0")) for line in lines for word in line.split()]


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("step", [0, 100])
def test_show_prints_the_board_and_the_values(games: a2store.Archive, columns: int, step: int) -> None:
    text = plain(on_terminal(columns, "show", games.path, 1, "--step", step))
    lines = text.splitlines()
    assert all(len(line) <= columns for line in lines)
    row = steps(games, 1)[step]
    rewards = [_reward(at) for at in steps(games, 1)[:step]]
    assert lines[0] == f"run 1  score {row['max_score']:,}  {row['num_steps']:,} steps  player"
    board = int(row["board"])  # type: ignore[call-overload]
    tiles = [0 if exp == 0 else 2**exp for exp in (board >> shift & 15 for shift in range(60, -4, -4))]
    summary = f"step {step:,}  score {sum(rewards):,}  {tiles.count(0)} empty  largest {max(tiles)}"
    assert lines[1].startswith(summary[: columns - 1])
    assert numbers(lines[3:7]) == tiles
    for direction, name in enumerate(NAMES):
        [line] = [line for line in lines if re.search(rf"[> ]{name}\b", line)]
        value = row[f"ev_{name}"]
        assert (f">{name}" in line) == (row["move"] == direction)
        if not int(row["ev_legal"]) >> direction & 1:  # type: ignore[call-overload]
            assert "illegal" in line
        else:
            assert f"{value:.4f}" in line


def _reward(row: dict[str, object]) -> int:
    return reward(int(row["board"]), int(row["move"]))  # type: ignore[call-overload]


def test_show_without_a_step_prints_the_final_board(games: a2store.Archive) -> None:
    text = run_command("show", games.path, 2).stdout
    final = games.run(2).final_board
    assert final is not None
    assert "final board  score " in text
    assert "\x1b" not in text
    assert numbers(text.splitlines()[3:7]) == np.ravel(a2store.Board(final).tiles).tolist()
    assert text == run_command("show", games.path, 2, "--step", len(games.run(2))).stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((99,), "run_id: expected the id of one of 3 runs, found 99"),
        ((0, "--step", 99_999), "--step: expected a stored step of the run, 0 to "),
        ((0, "--step", -1), "unexpected argument '-1'"),
        (("x",), "invalid value 'x'"),
    ],
)
def test_wrong_arguments(games: a2store.Archive, arguments: tuple[object, ...], text: str) -> None:
    for name in ("show", "replay"):
        assert text in run_command(name, games.path, *arguments, status=2).stderr


def raw_archive(folder: Path) -> a2store.Archive:
    """Make an archive of one game with raw values of any size."""
    rng = random.Random(5)
    write_log(folder / "logs", 0, play(rng, [1, 1] + [0] * 14, 200))
    path = folder / "logs" / "game0.jsonl.gz"
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    for row in rows:
        row["branch_evs"] = {
            way: None if value is None else 1000 * rng.random() for way, value in row["branch_evs"].items()
        }
        ways = [way for way, value in row["branch_evs"].items() if value is not None]
        if rng.random() < 0.2 and len(ways) > 2:
            # The two best values almost agree.
            row["branch_evs"] |= {ways[0]: 2000.0, ways[1]: 2000.0 - rng.random()}
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    return ingested(folder / "raw.a2", folder / "logs")


def test_blunders_and_hard_moves_have_one_rule(tmp_path: Path) -> None:
    archive = raw_archive(tmp_path)
    run = archive.run(0)
    assert run.meta.raw_evs
    values = np.where(run.ev_legal, run.ev_values.astype("f8"), np.nan)
    least, most = np.nanmin(values, 1, keepdims=True), np.nanmax(values, 1, keepdims=True)
    several = (run.ev_legal.sum(1) > 1)[:, None]
    shares = np.where(several, (values - least) / np.where(several, most - least, 1), np.where(run.ev_legal, 1, np.nan))
    loss = 1 - shares[np.arange(len(run)), run.moves]
    ranked = -np.sort(-np.nan_to_num(shares, nan=-1), axis=1)
    gap = np.where(several[:, 0], ranked[:, 0] - ranked[:, 1], np.inf)
    blunders, hard = np.flatnonzero(loss >= 0.1).tolist(), np.flatnonzero((gap > 0) & (gap <= 0.001)).tolist()
    assert 20 < len(blunders) < len(run) - 20
    assert 5 < len(hard) < 60

    # Python and pages.
    assert [run.position(at).loss for at in range(len(run))] == pytest.approx(loss.tolist(), abs=1e-6)
    page = data_of(run.replay().to_html())
    positions = page["run"]["positions"]
    assert [
        at for at, lost in enumerate(positions["loss"]) if lost is not None and lost >= page["min_loss"]
    ] == blunders
    found = [at for at, each in enumerate(positions["gap"]) if each is not None and 0 < each <= page["max_gap"]]
    assert found == hard

    # SQL and the report.
    for name, expected in (("blunders", blunders), ("hard_moves", hard)):
        assert sorted(pa.table(archive.query(name, limit=10_000))["step_index"].to_pylist()) == expected
    report = archive.report(progress=False)
    assert sum(pa.record_batch(report.data["blunder_rate"])["num_blunders"].to_pylist()) == len(blunders)


# Python


def test_runs_of_an_archive(games: a2store.Archive) -> None:
    run = games.run(1)
    rows = steps(games, 1)
    assert run.boards.tolist() == [row["board"] for row in rows]
    assert run.moves.tolist() == [row["move"] for row in rows]
    assert run.meta.engine == "player"
    score = 0
    for at, row in enumerate(rows):
        position = run.position(at)
        assert (position.step, int(position.board), position.played) == (at, row["board"], row["move"])
        assert position.score == score
        expected = [row[f"ev_{name}"] for name in NAMES]
        legal = [int(row["ev_legal"]) >> direction & 1 for direction in range(4)]  # type: ignore[call-overload]
        assert position.values == [value if is_legal else None for value, is_legal in zip(expected, legal, strict=True)]
        assert position.loss == row["loss"]
        caption, board, moves = str(position).split("\n\n")
        assert (caption, board) == (f"step {at}, score {score}", str(position.board))
        for move, line in enumerate(moves.splitlines()):
            value = position.values[move]
            number = "" if value is None else f"{value:.5f}"
            marks = [name for name in ("played", "best") if getattr(position, name) == move]
            assert line.split() == f"{NAMES[move]} {number} {', '.join(marks)}".split()
        score += _reward(row)
    final = run.position(-1)
    assert (final.step, final.played, final.best, final.loss, final.score) == (None, None, None, None, score)
    assert int(final.board) == run.final_board
    assert str(final) == f"final board, score {score}\n\n{final.board}"
    for wrong in (len(run) + 1, -len(run) - 2, 10**9, 2**200, -(2**100)):
        with pytest.raises(IndexError, match=r"^index .* is out of bounds for a run of"):
            run.position(wrong)
    for wrong in (3, 2**32, -1):
        with pytest.raises(ValueError, match="run_id: "):
            games.run(wrong)


def test_a_board_is_text_and_a_picture() -> None:
    board = a2store.Board(0xF123_4567_89AB_CDEF, tile_65536_mask=0x8000)
    assert board.tiles[3][3] == 65536
    assert board.tiles[0] == [32768, 2, 4, 8]
    assert [int(word) for word in str(board).split()] == np.ravel(board.tiles).tolist()
    assert board == a2store.Board(0xF123_4567_89AB_CDEF, 0x8000) != a2store.Board(0xF123_4567_89AB_CDEF)
    assert pickle.loads(pickle.dumps(board)) == board
    for svg in (board._repr_svg_(), board.to_svg(64, colors="viridis")):
        root = ET.fromstring(svg)
        texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
        assert [int(text or 0) for text in texts] == np.ravel(board.tiles).tolist()
        assert "32768 2 4 8 / 16" in root.attrib["aria-label"]
    assert board.to_svg(64).count('width="64"') == 1
    for arguments in ((1, 1), (1, 1 << 16)):
        with pytest.raises(ValueError, match="tile_65536_mask"):
            a2store.Board(*arguments)
    with pytest.raises(ValueError, match="colors: expected"):
        board.to_svg(colors="red")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="size: "):
        board.to_svg(0)


def test_a_game_is_a_gif(games: a2store.Archive, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    run = games.run(0)
    path = tmp_path / "game.gif"
    run.to_gif(path, steps=[0, 5, len(run)], seconds=0.5)
    with image.open(path) as gif:
        assert (gif.format, gif.n_frames, gif.info["loop"], gif.info["duration"]) == ("GIF", 3, 0, 500)
        seen: dict[int, tuple[int, int, int]] = {}
        for frame, at in enumerate((0, 5, len(run))):
            gif.seek(frame)
            picture = gif.convert("RGB")
            assert picture.width == picture.height
            for cell, tile in enumerate(np.ravel(run.position(at).board.tiles).tolist()):
                # A point near the corner of a cell shows the color of its tile, which is the same on all boards.
                left, top = (picture.width * (0.06 + 0.235 * number) for number in (cell % 4, cell // 4))
                color = picture.getpixel((round(left), round(top)))
                assert seen.setdefault(tile, color) == color
        assert len(set(seen.values())) == len(seen) > 3
    wrong: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"steps": []}, ValueError),
        ({"seconds": 0.01}, ValueError),
        ({"seconds": 656}, ValueError),
        ({"steps": [-(10**9)]}, IndexError),
    ]
    for arguments, error in wrong:
        with pytest.raises(error):
            run.to_gif(tmp_path / "x.gif", **arguments)
    assert not (tmp_path / "x.gif").exists()
