"""``show`` and ``replay``: a game in the terminal; boards and positions in Python."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import pickle
import pty
import random
import re
import select
import struct
import subprocess
import termios
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import a2store
from archives import command, run_command
from board_rules import reward
from test_command_terminal import environment, on_terminal, plain
from test_large_tiles import play, write_log
from threads import HANGS

NAMES = ["up", "down", "left", "right"]


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> a2store.Archive:
    folder = tmp_path_factory.mktemp("replay")
    a2store.simulate(folder / "runs", runs=3, depth=1, seed=4, engine="player", progress=False)
    archive = a2store.Archive.create(folder / "games.a2")
    archive.ingest(folder / "runs", progress=False)
    return archive


def steps(archive: a2store.Archive, run: int) -> list[dict[str, object]]:
    sql = "SELECT *, ev_loss(move, ev_up, ev_down, ev_left, ev_right) AS loss FROM steps WHERE run_id = $run"
    rows: list[dict[str, object]] = pa.table(archive.sql(f"{sql} ORDER BY step_index", {"run": run})).to_pylist()
    return rows


def numbers(lines: list[str]) -> list[int]:
    """Return the tiles that these lines show, 0 for an empty cell."""
    return [int(word.replace("·", "0")) for line in lines for word in re.findall(r"(?:^| )(·|\d+)(?= |$)", line[:33])]


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("step", [0, 100])
def test_show_prints_the_board_and_the_values(games: a2store.Archive, columns: int, step: int) -> None:
    text = plain(on_terminal(columns, "show", games.path, 1, "--step", step))
    lines = text.splitlines()
    assert all(len(line) <= columns or columns == 40 for line in lines)
    row = steps(games, 1)[step]
    rewards = [_reward(at) for at in steps(games, 1)[:step]]
    assert lines[0].startswith(f"run 1  player  score {row['max_score']:,}  {row['num_steps']:,} steps")
    board = int(row["board"])  # type: ignore[call-overload]
    tiles = [0 if exp == 0 else 2**exp for exp in (board >> shift & 15 for shift in range(60, -4, -4))]
    assert lines[1].startswith(f"step {step:,}  score {sum(rewards):,}  {tiles.count(0)} empty  largest {max(tiles)}")
    assert numbers(lines[3:15]) == tiles
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
    assert numbers(text.splitlines()[3:15]) == np.ravel(a2store.Board(final).tiles).tolist()
    assert text == run_command("show", games.path, 2, "--step", len(games.run(2))).stdout


def test_colours_of_the_terminal(games: a2store.Archive) -> None:
    classic = on_terminal(80, "show", games.path, 0)
    viridis = on_terminal(80, "show", games.path, 0, "--tiles", "viridis")
    assert classic != viridis
    assert plain(classic) == plain(viridis)
    assert "\x1b" in classic
    assert "\x1b" not in on_terminal(80, "show", games.path, 0, NO_COLOR="1")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((99,), "RUN: expected the id of one of 3 runs, found 99"),
        ((0, "--step", 99_999), "--step: expected a stored step of the run, 0 to "),
        ((0, "--step", -1), "unexpected argument '-1'"),
        (("x",), "invalid value 'x'"),
    ],
)
def test_wrong_arguments(games: a2store.Archive, arguments: tuple[object, ...], text: str) -> None:
    for name in ("show", "replay"):
        assert text in run_command(name, games.path, *arguments, status=2).stderr


def test_replay_needs_a_terminal(games: a2store.Archive) -> None:
    done = run_command("replay", games.path, 0, status=2)
    assert done.stderr == "a2store: replay: expected a terminal; `a2store show` prints one position\n"


def test_show_fits_with_several_models(tmp_path: Path) -> None:
    name = "an engine with a name that fills most of a line of eighty columns, as some do"
    a2store.simulate(tmp_path / "runs", runs=1, depth=0, seed=4, engine=name, progress=False)
    archive = a2store.Archive.create(tmp_path / "games.a2")
    archive.ingest(tmp_path / "runs", progress=False)
    rows = np.zeros(len(archive.run(0)), [("run_id", "u4"), ("step_index", "u4"), ("argmax_head", "u1")])
    rows["step_index"] = np.arange(len(rows))
    for model in ("one", "two", "three"):
        archive.annotate(model, rows, progress=False)
    text = plain(on_terminal(80, "show", archive.path, 0, "--step", 30, "--min-loss", "1e-9", "--max-gap", 1))
    assert all(len(line) <= 80 for line in text.splitlines()), text
    assert all(model in text for model in ("one", "two", "three"))
    terminal = Terminal("replay", archive.path, 0, "--step", 30)
    terminal.wait(r"value    behind +one +three")
    terminal.quit()


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
    archive = a2store.Archive.create(folder / "raw.a2")
    archive.ingest(folder / "logs", progress=False)
    return archive


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
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', run.replay().to_html(), re.DOTALL)
    page = json.loads(data)
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

    # The terminal.
    for at in (blunders[0], hard[0], *sorted(set(range(200)) - set(blunders) - set(hard))[:3]):
        [line] = [
            line
            for line in run_command("show", archive.path, 0, "--step", at).stdout.splitlines()
            if "step" in line[:4]
        ]
        assert (("[blunder]" in line), ("[hard move]" in line)) == (at in blunders, at in hard)


class Terminal:
    """A terminal of 80 columns and 24 lines in which a replay runs."""

    def __init__(self, *args: object, lines: int = 24, columns: int = 80) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        # A process that controls its terminal ends with it, such as after a failed test.
        self.process = subprocess.Popen(
            command(*args), stdin=theirs, stdout=theirs, stderr=theirs, env=environment(TERM="xterm-256color"),
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(theirs)
        self.cells = [[" "] * columns for _ in range(lines)]
        self.at, self.rest = [0, 0], b""

    def text(self) -> str:
        return "\n".join("".join(line).rstrip() for line in self.cells)

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def read(self) -> bool:
        """Read more output. Return whether more may follow."""
        try:
            if not select.select([self.ours], [], [], HANGS)[0]:
                return False
            self.rest += os.read(self.ours, 1 << 16)
        except OSError:  # Linux reports with this error that the other side is closed.
            return False
        try:
            text, self.rest = self.rest.decode(), b""
        except UnicodeDecodeError:
            return True
        # Keep an escape sequence that is not complete.
        match = re.search(r"\x1b(\[[0-9;?]*)?$", text)
        if match:
            text, self.rest = text[: match.start()], text[match.start() :].encode()
        for escape, place, end, letter in re.findall(r"\x1b(\[([0-9;?]*)([A-Za-z])|.)|([^\x1b])", text):
            if letter:
                self._put(letter)
            elif escape.startswith("[") and end == "H":
                row, _, column = place.partition(";")
                self.at = [int(row or 1) - 1, int(column or 1) - 1]
            elif end == "J":
                self.cells = [[" "] * len(line) for line in self.cells]
        return True

    def _put(self, letter: str) -> None:
        if letter == "\r":
            self.at[1] = 0
        elif letter == "\n":
            self.at[0] += 1
        elif self.at[0] < len(self.cells) and self.at[1] < len(self.cells[0]):
            self.cells[self.at[0]][self.at[1]] = letter
            self.at[1] += 1

    def wait(self, pattern: str) -> re.Match[str]:
        """Wait until the screen matches."""
        end = time.monotonic() + HANGS
        while not (match := re.search(pattern, self.text())):
            assert time.monotonic() < end, f"{pattern} not in\n{self.text()}"
            assert self.read(), f"{pattern} not in\n{self.text()}"
        return match

    def quit(self, keys: str = "q") -> None:
        self.press(keys)
        while self.read():
            pass
        assert self.process.wait(timeout=HANGS) == 0
        os.close(self.ours)


@pytest.fixture
def replay(games: a2store.Archive) -> Iterator[Terminal]:
    terminal = Terminal("replay", games.path, 1)
    yield terminal
    if terminal.process.poll() is None:
        terminal.process.kill()
        terminal.process.wait()


def test_keys(games: a2store.Archive, replay: Terminal) -> None:
    last = len(games.run(1)) - 1
    replay.wait(r"step 0  score 0 .*\n")
    assert len(replay.cells) == 24
    for keys, expected in [
        ("l", "step 1 "),
        ("l", "step 2 "),
        ("]", "step 12 "),
        ("h", "step 11 "),
        ("[", "step 1 "),
        ("hhhh", "step 0 "),
        ("G", "final board"),
        ("l", "final board"),
        ("h", f"step {last:,} "),
        ("g", "step 0 "),
        (":100\r", "step 100 "),
        (":9999999\r", f"step {last:,} "),
        ("\x1b[H", "step 0 "),
        ("\x1b[C", "step 1 "),
    ]:
        replay.press(keys)
        replay.wait(rf"\n{expected}")
    replay.press(":5")
    replay.wait("go to step: 5_")
    replay.press("\x1b")
    replay.wait(r"\nstep 1 [^$]*\npaused")
    replay.quit()


def test_jumps(games: a2store.Archive, replay: Terminal) -> None:
    rows = steps(games, 1)
    tiles = [int(row["max_exp"]) for row in rows]  # type: ignore[call-overload]
    new = [at for at in range(1, len(tiles)) if tiles[at] > max(tiles[:at])]
    replay.wait(r"\nstep 0 ")
    replay.press("4")
    replay.wait("n p new tile")
    for at in new[:5]:
        replay.press("n")
        replay.wait(rf"\nstep {at:,} .*\[new tile\]")
    replay.press("p")
    replay.wait(rf"\nstep {new[3]:,} ")
    replay.press("g1n")
    blunders = [at for at, row in enumerate(rows) if row["loss"] is not None and float(row["loss"]) >= 0.1]  # type: ignore[arg-type]
    if blunders:
        replay.wait(rf"\nstep {blunders[0]:,} .*\[blunder\]")
    else:
        replay.wait("no later blunder")
    replay.press("3n")
    replay.wait("no later disagreement")
    replay.quit("\x03")


def test_autoplay_ends_at_the_last_position(games: a2store.Archive) -> None:
    last = len(games.run(0)) - 1
    terminal = Terminal("replay", games.path, 0, "--step", last - 2)
    terminal.wait(rf"\nstep {last - 2:,} ")
    terminal.press("+++++ ")
    terminal.wait(r"\nfinal board")
    terminal.wait("paused")
    terminal.press("?")
    terminal.wait(r"next mark of the chosen kind")
    terminal.press("xs")
    terminal.wait("symmetry 1")
    terminal.quit()


def test_a_small_terminal_is_no_error(games: a2store.Archive) -> None:
    terminal = Terminal("replay", games.path, 0, lines=5, columns=20)
    terminal.wait(r"step 0")
    terminal.press("l?")
    terminal.wait(r"keys")
    terminal.quit("xq")


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
        score += _reward(row)
    final = run.position(-1)
    assert (final.step, final.played, final.best, final.loss, final.score) == (None, None, None, None, score)
    assert int(final.board) == run.final_board
    for wrong in (len(run) + 1, -len(run) - 2, 10**9, 2**200, -(2**100)):
        with pytest.raises(IndexError, match=r"^index .* is out of bounds for a run of"):
            run.position(wrong)
    for bad in (True, "1", 1.5):
        with pytest.raises(TypeError, match="index"):
            run.position(bad)  # type: ignore[arg-type]
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
    for arguments, error in [
        ((-1,), ValueError),
        ((2**64,), ValueError),
        ((1, 1), ValueError),
        ((1, 1 << 16), ValueError),
        (("1",), TypeError),
    ]:
        with pytest.raises(error):
            a2store.Board(*arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="colors: expected"):
        board.to_svg(colors="red")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="size: "):
        board.to_svg(0)


def test_a_game_is_an_animated_picture(games: a2store.Archive, tmp_path: Path) -> None:
    run = games.run(0)
    run.to_svg(tmp_path / "game.svg", steps=[0, 5, len(run)], seconds=0.5)
    root = ET.parse(tmp_path / "game.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    frames = root.findall(f"{space}g")
    assert [frame.attrib["display"] for frame in frames] == ["inline", "none", "none"]
    for frame, at in zip(frames, (0, 5, len(run)), strict=True):
        [animate] = frame.findall(f"{space}animate")
        assert animate.attrib["dur"] == "1.5s"
        tiles = [int(element.text or 0) for element in frame.iter(f"{space}text")]
        assert tiles == [tile for tile in np.ravel(run.position(at).board.tiles).tolist() if tile]
    run.to_svg(tmp_path / "game.svg", steps=range(100))
    assert len(ET.parse(tmp_path / "game.svg").getroot().findall(f"{space}g")) == 100
    for steps, error in [
        ([], ValueError),
        (range(1001), ValueError),
        ([len(run) + 1], IndexError),
        ([-(10**9)], IndexError),
        (["a"], TypeError),
    ]:
        with pytest.raises(error):
            run.to_svg(tmp_path / "x.svg", steps=steps)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seconds: "):
        run.to_svg(tmp_path / "x.svg", steps=[0], seconds=0)
    assert not (tmp_path / "x.svg").exists()


def test_positions_are_text_and_html(games: a2store.Archive) -> None:
    position = games.run(0).position(7)
    assert repr(position).startswith("Position(step 7: ")
    html = position._repr_html_()
    assert html.count("<svg") == 1
    assert html.count("<tr>") == 5
    assert "played" in html
