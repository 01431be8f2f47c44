"""The page of ``a2store view`` in a browser, compared with DuckDB, NumPy and ``Archive.run``."""

from __future__ import annotations

import csv
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_plus

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.lib.recfunctions import repack_fields

import a2store
import duck
import oracle
from annotations import predictions
from browser import Page, percent
from oracle import Game
from test_large_tiles import GAMES, packed, write_log
from viewing import Server, short

EVIL = "<img src=x onerror=alert(1)>'; --"
RUNS = 14
FIRST_EVIL = 2 * RUNS
FIRST_LARGE = 3 * RUNS
TOTAL = 3 * RUNS + len(GAMES)
COLUMNS = ("run_id", "engine", "max_score", "highest_tile", "num_steps")

# Busy machines are slow.
LONG = 60

# The messages of the browser about error statuses and lost connections.
REFUSED = "Failed to load resource: the server responded with a status of 4"
LOST = "net::ERR_|Failed to load resource|EventSource"


def doubtful(game: Game, seed: int) -> Game:
    """Return the game with values that its player did not use: with losses, small gaps, and steps without values."""
    rng = np.random.default_rng(seed)
    branches: list[oracle.Branches | None] = []
    for step, board in enumerate(game.boards):
        values = rng.random(4).astype("f4")
        if step % 9 == 2:
            values[:] = values[0] + np.arange(4, dtype="f4") / 4096
        legal = oracle.legal_mask(board)
        up, down, left, right = (float(value) if legal >> way & 1 else None for way, value in enumerate(values))
        branches.append(None if step % 10 == 3 else (up, down, left, right))
    return replace(game, branches=tuple(branches), engine=EVIL, start_unix_s=1_700_000_000 + seed, elapsed_s=seed / 8)


def fill(archive: a2store.Archive, root: Path) -> None:
    """Add games of four engines, and predictions of two models."""
    options: dict[str, Any] = {"runs": RUNS, "depth": 0, "progress": False}
    for seed, engine in enumerate(("shallow", "middle", "plain")):
        a2store.simulate(root / engine, seed=seed, engine=engine, **options)
    games = []
    (root / "evil").mkdir()
    for number, path in enumerate(sorted((root / "plain").iterdir())):
        games.append(doubtful(oracle.decode(path.read_bytes()), number))
        (root / "evil" / path.name).write_bytes(oracle.encode_a2run2(games[-1]))
    for engine in ("shallow", "middle", "evil"):
        archive.ingest(root / engine, progress=False)
    for number, game in enumerate(GAMES):
        write_log(root / "logs", number, game)
    archive.ingest(root / "logs", progress=False)

    annotated = {FIRST_EVIL + number: game for number, game in enumerate(games[:3])}
    archive.annotate("two-heads", predictions(annotated, 0, 7), progress=False)
    rows = predictions(annotated, 1, 1)
    plain = [name for name in rows.dtype.names or () if name not in ("policy_logp", "policy_hard")]
    archive.annotate("top-bin", repack_fields(rows[plain]), progress=False)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> a2store.Archive:
    root = tmp_path_factory.mktemp("view_page")
    made = a2store.Archive.create(root / "games.a2")
    fill(made, root)
    assert made.num_runs == TOTAL
    return made


def eventually(look: Callable[[], Any], expected: Any) -> None:
    """Look at the page until it shows what is expected."""
    end = time.monotonic() + LONG
    while (seen := look()) != expected:
        if time.monotonic() > end:
            assert seen == expected
        # A look costs more work than most changes of the page.
        time.sleep(0.05)


class Explorer:
    """The page of a server in the browser, which has its cookie."""

    def __init__(self, page: Page, server: Server) -> None:
        self.page = page
        self.server = server
        self.allowed = "^$"
        """The messages that the page may log."""
        page.log("browser")
        page.log("performance")

    def open(self, address: str, width: int = 1280, theme: str = "light") -> None:
        self.page.visit(f"{self.server.origin}/{address}", width, theme)

    def __getattr__(self, name: str) -> Any:
        """Return a method of the page, such as ``js``, ``wait``, ``find`` and ``click``."""
        return getattr(self.page, name)

    def wait_for(self, selector: str, text: str) -> None:
        """Wait until the first element has this text."""
        eventually(lambda: self.text(selector), text)

    def text(self, selector: str) -> str | None:
        found: str | None = self.js("return document.querySelector(arguments[0])?.textContent", selector)
        return found

    def hash(self) -> str:
        return str(self.js("return location.hash"))

    def wait_hash(self, address: str) -> None:
        eventually(self.hash, address)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.press(key)

    def assert_quiet(self) -> None:
        """Check that the page asked no other server, logged only what is allowed and broke no rule of its policy."""
        origin = self.server.origin + "/"
        other = [url for url in self.page.requests() if not url.startswith((origin, "blob:", "about:"))]
        assert other == []
        logged = [entry["message"] for entry in self.page.log("browser")]
        assert [message for message in logged if not re.search(self.allowed, message)] == []
        assert self.js("return [window.violations, window.alerts]") == [[], []]


@pytest.fixture(scope="module")
def cookie(page: Page, viewer: Server) -> None:
    page.browser.get(viewer.url)


@pytest.fixture
def view(page: Page, viewer: Server, cookie: None) -> Iterator[Explorer]:
    """The page in the browser. After the test, it must have been quiet."""
    explorer = Explorer(page, viewer)
    yield explorer
    explorer.assert_quiet()
    explorer.js("localStorage.clear()")


# The list of runs

READ_ROWS = """
const list = document.querySelector(".run-list:not([aria-busy])");
if (list === null) return null;
const rows = [...list.querySelectorAll(".run-row[data-index]")].map((row) => [Number(row.dataset.index),
  [...row.querySelectorAll("[role=gridcell]")].map((cell) => cell.textContent)]);
return rows.some(([, cells]) => cells[0] === "…") ? null : rows;
"""


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def found(number: int) -> str:
    return count(TOTAL, "run") if number == TOTAL else f"{number} of {count(TOTAL, 'run')}"


def shown_runs(view: Explorer) -> dict[int, list[str]]:
    """Return the cells of the rows that the list has elements for, by their place in the list."""
    rows = view.wait(READ_ROWS)
    return dict(rows)


@cache
def connected(archive: a2store.Archive, version: int) -> duckdb.DuckDBPyConnection:
    """Return a connection to a version's files. A new one takes longer than most statements."""
    assert archive.version == version
    return duck.connect(archive)


def asked(archive: a2store.Archive, sql: str) -> list[tuple[Any, ...]]:
    return duck.fetch(connected(archive, archive.version), sql)


def shown_cells(row: tuple[Any, ...]) -> list[str]:
    """Return the texts of a row's cells, without the times."""
    run_id, engine, score, tile, steps, form, raw = row
    return [str(run_id), engine, f"{score:,}", str(tile), f"{steps:,}", form, "raw" if raw else "0 to 1"]


def test_the_list_has_all_runs(view: Explorer, archive: a2store.Archive) -> None:
    view.open("#/runs")
    view.wait_for(".found strong", found(TOTAL))
    rows: dict[int, list[str]] = {}
    for first in range(TOTAL):
        if first in rows:
            continue
        view.js("document.querySelector('.run-scroll').scrollTop = arguments[0] * 32", first)
        view.wait("return document.querySelector(`.run-row[data-index='${arguments[0]}']`) !== null", first)
        rows |= shown_runs(view)
    expected = asked(
        archive,
        "SELECT run_id, engine, max_score, highest_tile, num_steps, format, raw_evs FROM runs ORDER BY run_id",
    )
    assert [rows[place][:6] + rows[place][9:] for place in range(TOTAL)] == [shown_cells(row) for row in expected]
    times = asked(archive, "SELECT strftime(start_time, '%Y-%m-%d %H:%M:%S UTC') FROM runs ORDER BY run_id")
    assert [rows[place][6] for place in range(TOTAL)] == [time or "" for (time,) in times]
    assert view.js("return document.querySelector('.run-list').getAttribute('aria-rowcount')") == str(TOTAL + 1)


def test_headers_sort(view: Explorer, archive: a2store.Archive) -> None:
    view.open("#/runs")
    for column in ("max_score", "engine", "num_steps", "highest_tile", "run_id"):
        place = COLUMNS.index(column)
        # For numbers other than run IDs, the greatest ones come first.
        orders = ["ascending", "descending"]
        for order in orders if column in ("engine", "run_id") else orders[::-1]:
            view.click(f".c-{column} button.sort")
            aria = f"return document.querySelector('.run-head .c-{column}').getAttribute('aria-sort')"
            eventually(lambda aria=aria: view.js(aria), order)  # type: ignore[misc]
            sql = f"SELECT {column} FROM runs ORDER BY 1 {'DESC' if order == 'descending' else 'ASC'}"
            expected = [str(value) for (value,) in asked(archive, sql)]
            rows = shown_runs(view)
            assert len(rows) > 10
            cells = {at: cells[place].replace(",", "") for at, cells in rows.items()}
            assert cells == {at: expected[at] for at in rows}, (column, order)


READ_ENGINES = """
return [...document.querySelectorAll(".engine-choice label")].map((label) =>
  [label.textContent, label.control.checked]);
"""


def test_filters_narrow_the_list(view: Explorer, archive: a2store.Archive) -> None:
    def check(condition: str) -> None:
        ids = [run for (run,) in asked(archive, f"SELECT run_id FROM runs WHERE {condition} ORDER BY run_id")]
        assert 0 < len(ids) < TOTAL
        view.wait_for(".found strong", found(len(ids)))
        eventually(lambda: [cells[0] for _, cells in sorted(shown_runs(view).items())][:9], list(map(str, ids))[:9])

    (median,) = asked(archive, "SELECT CAST(median(max_score) AS BIGINT) AS s FROM runs")[0]
    view.open("#/runs")
    view.find("[name=min_score]").send_keys(str(median))
    check(f"max_score >= {median}")
    view.find("[name=max_steps]").send_keys("400")
    check(f"max_score >= {median} AND num_steps <= 400")
    assert view.hash() == f"#/runs?min_score={median}&max_steps=400"
    view.page.browser.back()
    check(f"max_score >= {median}")
    assert view.js("return document.querySelector('[name=max_steps]').value") == ""
    view.page.browser.back()
    view.wait_for(".found strong", found(TOTAL))
    view.page.browser.forward()
    check(f"max_score >= {median}")
    assert view.js("return document.querySelector('[name=min_score]').value") == str(median)

    # The page opens with this address, and the form shows its conditions.
    view.open("#/runs?engine=middle&engine=shallow&min_tile=256")
    check("engine IN ('middle', 'shallow') AND highest_tile >= 256")
    assert view.js(READ_ENGINES) == [[name, name in ("middle", "shallow")] for name in sorted_engines(archive)]
    view.click(".engine-choice label:nth-of-type(1)")
    names = [name for name, checked in view.js(READ_ENGINES) if checked]
    assert len(names) != 2
    check(f"engine IN ({', '.join(map(quoted, names))}) AND highest_tile >= 256")


def sorted_engines(archive: a2store.Archive) -> list[str]:
    return sorted(name for (name,) in asked(archive, "SELECT DISTINCT engine FROM runs"))


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def test_a_condition_in_sql_and_its_error(view: Explorer, archive: a2store.Archive) -> None:
    view.open("#/runs")
    condition = "max_score % 3 = 0 AND engine LIKE 's%'"
    [(number,)] = asked(archive, f"SELECT count(*) FROM runs WHERE {condition}")
    view.find("#where").send_keys(condition + "\n")
    view.wait_for(".found strong", found(number))
    assert unquote_plus(view.hash()) == f"#/runs?where={condition}"
    assert 0 < number < RUNS
    view.assert_quiet()
    view.allowed = REFUSED
    errors = {None, ""}
    for wrong in ("scor > 3", "max_score >", "1; SELECT 1"):
        view.js("document.querySelector('#where').value = ''")
        view.find("#where").send_keys(wrong + "\n")
        eventually(lambda: view.text("#where-error:not([hidden])") in errors, False)
        errors.add(view.text("#where-error"))
        view.wait_for(".empty-list:not([hidden])", "The condition has an error.")
        assert view.js("return document.querySelector('#where').getAttribute('aria-invalid')") == "true"
    view.find("#where").clear()
    view.find("#where").send_keys(condition + "\n")
    view.wait_for(".found strong", found(number))
    assert view.js("return document.querySelector('#where-error').hidden")
    assert view.js("return document.querySelector('#where').getAttribute('aria-invalid')") is None


def test_keys_of_the_list(view: Explorer, archive: a2store.Archive) -> None:
    view.open("#/runs")
    shown_runs(view)
    view.press(".")

    def active() -> int:
        return int(view.js("return document.activeElement.getAttribute('aria-activedescendant').slice(4)"))

    at = 0
    for key, move in [
        ("j", 1),
        ("\ue015", 1),
        ("j", 1),
        ("k", -1),
        ("\ue013", -1),
        ("\ue010", TOTAL),
        ("\ue011", -TOTAL),
    ]:
        view.press(key)
        at = min(max(at + move, 0), TOTAL - 1)
        assert active() == at
    view.press("j", "j", "\ue007")
    view.wait_hash("#/run/2/step/0")
    view.page.browser.back()
    view.wait_hash("#/runs")
    shown_runs(view)
    view.press("/")
    assert view.js("return document.activeElement.id") == "where"


# The replay


class Figures:
    """The figures of a run, computed with NumPy."""

    def __init__(self, archive: a2store.Archive, run_id: int) -> None:
        self.run_id = run_id
        self.run = archive.run(run_id)
        self.positions = [self.run.position(at) for at in range(len(self.run) + 1)]
        values = [[np.nan if value is None else short(value) for value in each.values] for each in self.positions]
        self.values = np.array(values)
        self.played = [each.played for each in self.positions]
        tiles = np.array([np.ravel(each.board.tiles) for each in self.positions])
        self.exps = np.log2(np.maximum(tiles, 1)).astype(int)
        known = np.where(np.isnan(self.values), -np.inf, self.values)
        ranked = -np.sort(-known, axis=1)
        self.best = ranked[:, 0]
        own = [np.nan if move is None else row[move] for move, row in zip(self.played, self.values, strict=True)]
        with np.errstate(invalid="ignore"):
            self.loss = self.best - np.array(own)
            self.gap = ranked[:, 0] - ranked[:, 1]

    def marks(self, disagreements: list[int], min_loss: float = 0.1, max_gap: float = 0.001) -> dict[str, list[int]]:
        """Return the positions of each kind of mark."""
        largest = np.maximum.accumulate(self.exps.max(1))
        return {
            "blunder": np.flatnonzero(self.loss >= min_loss).tolist(),
            "hard": np.flatnonzero((self.gap > 0) & (self.gap <= max_gap)).tolist(),
            "disagreement": disagreements,
            "tile": (np.flatnonzero(np.diff(largest)) + 1).tolist(),
        }


def preferences(archive: a2store.Archive, run_id: int, model: str) -> dict[int, dict[str, Any]]:
    """Return a model's predictions for a run by step."""
    sql = f"SELECT * FROM annotations WHERE run_id = {run_id} AND model = '{model}'"
    table = duck.table(connected(archive, archive.version), sql)
    return {row["step_index"]: row for row in table.to_pylist()}


def disagreeing(archive: a2store.Archive, run_id: int) -> list[int]:
    sql = f"""SELECT DISTINCT step_index FROM annotations JOIN steps USING (run_id, step_index)
        WHERE run_id = {run_id} AND argmax_head <> move ORDER BY 1"""
    return [step for (step,) in asked(archive, sql)]


READ_REPLAY = """
const text = (node) => node.textContent.trim();
return {
  place: document.querySelector(".position-text strong")?.textContent,
  facts: document.querySelector(".position-text")?.textContent,
  tiles: [...document.querySelectorAll(".board-frame .board .tile")].map((cell) => Number(cell.textContent)),
  groups: [...document.querySelectorAll(".move-table thead tr:first-child th")].map((th) => [text(th), th.colSpan]),
  titles: [...document.querySelectorAll(".move-table thead tr:last-child th")].map(text),
  moves: [...document.querySelectorAll(".move-table tbody tr")].map((tr) => ({
    name: tr.querySelector("th").textContent.split(" ")[1],
    played: tr.classList.contains("played"), best: tr.classList.contains("best"),
    cells: [...tr.querySelectorAll("td")].map(text)})),
};
"""


MOVE_SLIDER = """
const slider = document.querySelector(".scrubber");
slider.value = arguments[0];
slider.dispatchEvent(new Event("input"));
"""


def place_of(at: int, figures: Figures) -> str:
    return "Final board" if at == len(figures.run) else f"Step {at:,}"


def check_position(view: Explorer, figures: Figures, at: int) -> dict[str, Any]:
    """Compare the content of the replay with ``Archive.run``, and return this content."""
    names = [f"Run {figures.run_id}", place_of(at, figures)]
    eventually(lambda: [view.text("h1"), view.text(".position-text strong")], names)
    seen: dict[str, Any] = view.js(READ_REPLAY)
    position = figures.positions[at]
    assert seen["tiles"] == np.ravel(position.board.tiles).tolist()
    score = "score unknown" if position.score is None else f"score {position.score:,}"
    assert f" · {score} · " in seen["facts"]
    assert count(int((figures.exps[at] == 0).sum()), "empty cell") in seen["facts"]
    assert [move["name"] for move in seen["moves"]] == ["up", "down", "left", "right"]
    for direction, move in enumerate(seen["moves"]):
        value, best = figures.values[at][direction], figures.best[at]
        assert move["played"] == (position.played == direction)
        assert move["best"] == (value == best)
        text, behind = move["cells"][:2]
        assert (text == "–") == np.isnan(value)
        if not np.isnan(value):
            assert float(text.replace(",", "")) == pytest.approx(value, rel=1e-6, abs=6e-6)
            number = re.fullmatch(r"(?:best|−([\d.,e-]+))\s*[≈!]*", behind)
            assert number is not None, behind
            lost = float((number[1] or "0").replace(",", ""))
            assert lost == pytest.approx(best - value, rel=1e-6, abs=6e-6)
    return seen


def test_a_deep_link_and_the_figures_of_the_replay(view: Explorer, archive: a2store.Archive) -> None:
    rng = np.random.default_rng(3)
    for run_id in (0, FIRST_EVIL, FIRST_LARGE, FIRST_LARGE + 1):
        figures = Figures(archive, run_id)
        places = [0, len(figures.run), *rng.integers(1, len(figures.run), 5).tolist()]
        view.open(f"#/run/{run_id}/step/{places[-1]}")
        for at in reversed(places):
            if at != places[-1]:
                view.js(MOVE_SLIDER, at)
            check_position(view, figures, at)
            view.wait_hash(f"#/run/{run_id}/step/{at}")
        meta = figures.run.meta
        facts = f"score {meta.max_score:,} · {count(len(figures.run), 'step')} · largest tile {meta.highest_tile:,}"
        assert view.text(".run-facts") == f"{meta.engine} · {facts}"
    assert figures.exps.max() == 16


def test_the_figures_of_models(view: Explorer, archive: a2store.Archive) -> None:
    run_id = FIRST_EVIL + 1
    figures = Figures(archive, run_id)
    models = {model: preferences(archive, run_id, model) for model in ("top-bin", "two-heads")}
    view.open(f"#/run/{run_id}/step/7")
    # The columns of "two-heads" need its details, which arrive later than the run.
    columns = {"top-bin": ["Prefers", "Top bin"], "two-heads": ["Prefers", "Top bin", "Log p", "p"]}
    expected = [["Engine", 2], *([model, len(titles)] for model, titles in columns.items())]
    eventually(lambda: [group for group in view.js(READ_REPLAY)["groups"] if group[0]][-3:], expected)
    for at in (7, 8, 40, len(figures.run) - 1):
        view.js(MOVE_SLIDER, at)
        eventually(lambda at=at: view.text(".position-text strong"), place_of(at, figures))  # type: ignore[misc]
        # Details of a step arrive later than its board.
        teacher = figures.played[at]
        eventually(lambda: [" T" in " " + move["cells"][2] for move in view.js(READ_REPLAY)["moves"]],
                   [way == teacher for way in range(4)])  # fmt: skip
        seen = check_position(view, figures, at)
        for direction, (move, name) in enumerate(zip(seen["moves"], ("up", "down", "left", "right"), strict=True)):
            one, two = models["top-bin"][at], models["two-heads"][at]
            prefers, top, prefers_two, top_two, logp, p = move["cells"][2:]
            for text, row in ((prefers, one), (prefers_two, two)):
                assert ("★" in text) == (row["argmax_head"] == direction)
                assert "★" not in text or f"★ {percent(short(row['argmax_prob']))} %" in text
            assert top == f"{percent(short(one[f'policy_p1_{name}']))} %"
            assert top_two == f"{percent(short(two[f'policy_p1_{name}']))} %"
            assert float(logp) == pytest.approx(two[f"policy_logp_{name}"], abs=6e-4)
            probability = np.exp(float(two[f"policy_logp_{name}"]))
            assert float(p.removesuffix(" %")) == pytest.approx(100 * probability, abs=0.06)


def test_keys_of_the_replay(view: Explorer, archive: a2store.Archive) -> None:
    run_id = 3
    figures = Figures(archive, run_id)
    last = len(figures.run)
    view.open(f"#/run/{run_id}/step/12")
    check_position(view, figures, 12)
    at = 12
    left, right, home, end = "\ue012", "\ue014", "\ue011", "\ue010"
    moves = [("l", 1), ("h", -1), (right, 1), (left, -1), ("]", 10), ("[", -10), ("g", -last), ("h", -1), ("[", -10)]
    for key, move in [*moves, ("G", last), ("l", 1), ("]", 10), (home, -last), (end, last), ("h", -1)]:
        view.press(key)
        at = min(max(at + move, 0), last)
        check_position(view, figures, at)
    view.wait_hash(f"#/run/{run_id}/step/{at}")

    view.js("Math.random = () => 0.25")
    view.press("r")
    check_position(view, figures, (last + 1) // 4)

    # Space plays, and pauses.
    at = (last + 1) // 4
    view.press(" ")
    eventually(lambda: view.text(".position-text strong") == place_of(at, figures), False)
    assert "Pause" in (view.text("button.play") or "")
    view.press(" ")
    assert "Play" in (view.text("button.play") or "")
    stopped = view.text(".position-text strong")
    assert int((stopped or "").replace(",", "").split()[1]) > at
    view.press("g")
    check_position(view, figures, 0)

    view.press("J")
    check_position(view, Figures(archive, run_id + 1), 0)
    view.wait_hash(f"#/run/{run_id + 1}/step/0")
    view.press("K")
    check_position(view, figures, 0)
    view.js("document.querySelector('.limits').open = true; document.querySelector('.limits input').focus()")
    # Keys in a field are text.
    view.press("l")
    check_position(view, figures, 0)
    view.js("document.activeElement.blur()")
    view.press("?")
    assert view.js("return document.querySelector('dialog[open] h2').textContent") == "Keys"
    listed = view.js("return [...document.querySelectorAll('dialog .keys kbd')].map((key) => key.textContent)")
    assert {"l", "h", "[", "]", "g", "G", "n", "p", "1", "4", "Space", "r", "s", "J", "K", "?"} <= set(listed)
    view.press("\ue00c")
    eventually(lambda: view.js("return document.querySelector('dialog') === null"), True)


def test_jumps_to_marks(view: Explorer, archive: a2store.Archive) -> None:
    run_id = FIRST_EVIL + 2
    figures = Figures(archive, run_id)
    marks = figures.marks(disagreeing(archive, run_id))
    names = {"blunder": "Blunders", "hard": "Hard moves", "disagreement": "Disagreements", "tile": "New tiles"}
    assert all(len(marks[kind]) > 4 for kind in names), {kind: len(each) for kind, each in marks.items()}
    view.open(f"#/run/{run_id}")
    check_position(view, figures, 0)
    options = view.js("return [...document.querySelectorAll('.mark-steps option')].map((each) => each.textContent)")
    assert options == [f"{name} ({len(marks[kind])})" for kind, name in names.items()]
    chips = {"blunder": "blunder", "hard": "hard move", "disagreement": "disagreement", "tile": "new tile"}

    def at() -> int:
        place = view.text(".position-text strong") or ""
        return len(figures.run) if place == "Final board" else int(place.replace(",", "").split()[1])

    for number, kind in enumerate(names):
        view.press("g", "1234"[number])
        expected = [each for each in marks[kind] if each > 0]
        walked = []
        for _ in expected[:12]:
            view.press("n")
            walked.append(at())
            shown = view.js("return [...document.querySelectorAll('.mark-chip')].map((chip) => chip.textContent)")
            assert shown == [chip for each, chip in chips.items() if walked[-1] in marks[each]]
        assert walked == expected[:12]
        view.press("G")
        walked = []
        for _ in marks[kind][-12:]:
            view.press("p")
            walked.append(at())
        assert walked == [each for each in reversed(marks[kind]) if each < len(figures.run)][:12]
    view.click(".limits summary")
    view.find(".limits input").clear()
    view.find(".limits input").send_keys("0.5")
    blunders = figures.marks([], min_loss=0.5)["blunder"]
    assert 0 < len(blunders) < len(marks["blunder"])
    first = "return document.querySelector('.mark-steps option').textContent"
    eventually(lambda: view.js(first), f"Blunders ({len(blunders)})")


def test_symmetries_and_copies(view: Explorer, archive: a2store.Archive) -> None:
    run_id, at = FIRST_LARGE, 9
    figures = Figures(archive, run_id)
    view.page.browser.execute_cdp_cmd(
        "Browser.grantPermissions",
        {"origin": view.server.origin, "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]},
    )
    view.open(f"#/run/{run_id}/step/{at}")
    seen = check_position(view, figures, at)
    exps, played = figures.exps[at].tolist(), figures.played[at]
    assert played is not None
    names = [move["cells"][0] for move in seen["moves"]]
    for symmetry in range(8):
        # DuckDB's places count cells from 1.
        turned = [exps[place - 1] for place in duck.PLACES[symmetry]]
        seen = view.js(READ_REPLAY)
        assert seen["tiles"] == [2**exp if exp else 0 for exp in turned], symmetry
        assert [move["played"] for move in seen["moves"]].index(True) == duck.IMAGES[symmetry][played]
        assert [seen["moves"][duck.IMAGES[symmetry][way]]["cells"][0] for way in range(4)] == names
        view.wait_hash(f"#/run/{run_id}/step/{at}" + (f"?symmetry={symmetry}" if symmetry else ""))
        if symmetry in (0, 6):
            view.click("button[aria-label^='Hex']")
            eventually(lambda: clipboard(view), "".join(f"{min(exp, 15):x}" for exp in turned))
        view.press("s")
    assert view.js(READ_REPLAY)["tiles"] == [2**exp if exp else 0 for exp in exps]
    view.open(f"#/run/{run_id}/step/{at}?symmetry=5")
    eventually(
        lambda: view.js(READ_REPLAY)["tiles"],
        [2 ** exps[place - 1] if exps[place - 1] else 0 for place in duck.PLACES[5]],
    )
    view.click("button[aria-label^='SQL']")
    eventually(lambda: clipboard(view).startswith("SELECT"), True)
    steps = pa.table(archive.sql(clipboard(view))).to_pylist()
    assert (run_id, at) in [(row["run_id"], row["step_index"]) for row in steps]
    view.click("button[aria-label^='Link']")
    eventually(lambda: clipboard(view), view.js("return location.href"))


def clipboard(view: Explorer) -> str:
    read = "navigator.clipboard.readText().then(arguments[0], (error) => arguments[0](String(error)))"
    return str(view.page.browser.execute_async_script(read))


# Downloads


@pytest.fixture
def downloads(view: Explorer, tmp_path: Path) -> Path:
    """The folder of the browser's downloads."""
    parameters = {"behavior": "allow", "downloadPath": str(tmp_path)}
    view.page.browser.execute_cdp_cmd("Browser.setDownloadBehavior", parameters)
    return tmp_path


def downloaded(folder: Path, suffix: str) -> Path:
    """Wait until the only download with a suffix is complete, and return it."""

    def files() -> list[Path]:
        return [path for path in folder.iterdir() if path.suffix == suffix]

    eventually(lambda: len(files()) == 1 and not list(folder.glob("*.crdownload")), True)
    return files()[0]


# Positions


READ_MOVES = """
return [...document.querySelectorAll("table.moves tbody tr")].map((tr) => [
  tr.querySelector("th").textContent.split(" ")[1],
  ...[...tr.querySelectorAll("td")].slice(1).map((td) => td.textContent.trim())]);
"""
READ_PLACES = """
return [...document.querySelectorAll("[aria-label=Places] tbody tr")].map((tr) => [tr.querySelector("a").textContent,
  ...[...tr.querySelectorAll("td")].slice(1, 5).map((td) => td.textContent.trim())]);
"""


def check_found(view: Explorer, digits: str, mask: int = 0) -> None:
    """Compare the page with the server's answer, which test_view_server.py compares with NumPy."""
    answer = view.server.client.ask("/api/position", {"board": digits, "mask": mask, "limit": 50})
    assert answer["num_found"] > 0
    view.wait_for(".found strong", f"{count(answer['num_found'], 'place')} in {count(answer['num_found'], 'run')}")
    names = ("up", "down", "left", "right")
    shown = {name: cells for name, *cells in view.js(READ_MOVES)}
    for move in answer["moves"]:
        num, part, mean, best = shown.pop(names[move["move"]])[:4]
        assert (num, part) == (f"{move['num_steps']:,}", f"{percent(move['num_steps'] / answer['num_found'])} %")
        assert best == f"{move['max_score']:,}"
        assert float(mean.replace(",", "")) == pytest.approx(move["mean_score"], rel=1e-3)
    assert {cells[0] for cells in shown.values()} <= {"0"}
    places = [
        [
            f"Run {each['run_id']}, step {each['step_index']}",
            each["engine"],
            f"{each['max_score']:,}",
            names[each["move"]],
        ]
        for each in answer["places"]
    ]
    seen = view.js(READ_PLACES)
    assert [[name, engine, score, move.split(" ")[-1]] for name, engine, score, _, move in seen] == places


def test_positions(view: Explorer, archive: a2store.Archive) -> None:
    # The most frequent asymmetric position, turned, so that the page must turn the moves back.
    turns = ", ".join(f"transform(board, {symmetry}) AS t{symmetry}" for symmetry in range(8))
    counted = "SELECT canonical(board) AS board, count(*) AS n FROM steps GROUP BY canonical(board)"
    rows = pa.table(archive.sql(f"SELECT n, {turns} FROM ({counted}) ORDER BY n DESC, board LIMIT 50")).to_pylist()
    frequent = next(row for row in rows if len({row[f"t{symmetry}"] for symmetry in range(8)}) == 8)
    assert frequent["n"] > 3
    digits = f"{frequent['t3']:016x}"
    exps = [int(digit, 16) for digit in digits]

    view.open("#/position")
    view.wait("return document.querySelector('.next-boards li')")
    view.press("e")
    for cell, exp in enumerate(exps):
        if exp:
            view.js(f"document.querySelector('[data-cell=\"{cell}\"]').focus()")
            for digit in str(2**exp):
                view.press(digit)
    view.wait_hash(f"#/position/{digits}")
    check_found(view, digits)
    assert view.js("return document.querySelector('#board-text').value") == digits

    # A click doubles a tile, and undo restores it.
    first = next(cell for cell, exp in enumerate(exps) if exp)
    tiled = f"[data-cell='{first}']"
    view.click(tiled)
    view.wait_for(tiled, str(2 ** (exps[first] + 1)))
    view.press("u")
    view.wait_for(tiled, str(2 ** exps[first]))
    check_found(view, digits)

    # The next position and the path back.
    view.click(".position-content .next-boards li a")
    eventually(lambda: view.hash() != f"#/position/{digits}", True)
    check_found(view, view.hash().split("/")[2])
    assert view.js("return document.querySelectorAll('.position-path li').length") == 2
    view.click(".position-path li:first-child a")
    view.wait_hash(f"#/position/{digits}")
    check_found(view, digits)
    view.click("[aria-label=Places] tbody a")
    eventually(lambda: re.fullmatch(r"#/run/\d+/step/\d+", view.hash()) is not None, True)


def test_positions_with_the_largest_tile(view: Explorer) -> None:
    exps = [GAMES[1].boards[3][place - 1] for place in duck.PLACES[1]]
    board, mask = packed(exps)
    assert mask
    view.open(f"#/position/{board:016x}/mask/{mask}")
    check_found(view, f"{board:016x}", mask)
    tiles = "return [...document.querySelectorAll('.editor .tile')].map((cell) => Number(cell.textContent))"
    assert view.js(tiles) == [2**exp if exp else 0 for exp in exps]
    # The same digits without the mask are another position.
    view.open(f"#/position/{board:016x}")
    view.wait_for(".found strong", "Not in the archive")


def test_keys_of_positions(view: Explorer) -> None:
    digits = "0000310001200000"

    def turned(symmetry: int) -> str:
        return "".join(digits[place - 1] for place in duck.PLACES[symmetry])

    def wait_board(board: str) -> None:
        view.wait_hash(f"#/position/{board}")
        # The page handles a new address shortly after the address has changed.
        eventually(lambda: view.js("return document.querySelector('#board-text').value"), board)

    view.open(f"#/position/{digits}")
    view.find(".position-content p")
    # Turn, undo, mirror, and the least of the eight boards.
    for key, board in [("r", turned(1)), ("u", digits), ("m", turned(4)), ("u", digits)]:
        view.press(key)
        wait_board(board)
    eventually(lambda: "Not in the archive" in (view.text(".found") or ""), True)
    eventually(lambda: view.js("return document.querySelector('.board-tools button:last-child').disabled"), False)
    view.press("c")
    wait_board(min(turned(symmetry) for symmetry in range(8)))
    view.press("/")
    assert view.js("return document.activeElement.id") == "board-text"
    # Keys in a field are text.
    view.press("r")
    assert view.js("return document.activeElement.value") == "r"
    view.js("document.activeElement.blur()")


def test_boards_are_read_from_text(view: Explorer) -> None:
    texts = ["0000000000120031", "1179697", "0 0 0 0 / 0 0 0 0 / 0 0 2 4 / 0 0 8 2", "0000 0000 0012 0031"]
    for text in [*texts, "[[0,0,0,0],[0,0,0,0],[0,0,2,4],[0,0,8,2]]", EVIL]:
        view.open("#/position")
        view.find("#board-text").clear()
        view.find("#board-text").send_keys(text + "\n")
        if text != EVIL:
            view.wait_hash("#/position/0000000000120031")
    error = "#board-text-error:not([hidden])"
    eventually(lambda: "expected 16 hex digits" in (view.text(error) or ""), True)


# SQL

READ_GRID = """
return [...document.querySelectorAll("table.grid tbody tr:not(.grid-spacer)")].map((tr) =>
  [...tr.querySelectorAll("td")].map((td) => td.textContent));
"""


def number(value: Any) -> str:
    """Return a value as the table of a result shows it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float) and not value.is_integer():
        return f"{float(f'{value:.6g}'):,.10g}"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


STATEMENTS = [
    "SELECT engine, count(*) AS runs, avg(max_score) AS mean_score FROM runs GROUP BY engine ORDER BY engine",
    "SELECT move, count(*) AS num FROM steps GROUP BY move ORDER BY num DESC, move",
    "SELECT engine AS name, max_score / 8.0 AS x, NULL AS nothing, num_steps > 300 AS b FROM runs ORDER BY run_id",
    "SELECT run_id, chr(10) || 'λ' AS note FROM runs ORDER BY run_id LIMIT 2",
]


def test_results_equal_duckdb(view: Explorer, archive: a2store.Archive) -> None:
    for sql in STATEMENTS:
        view.open("#/sql?q=" + quote(sql))
        expected = [[number(value) for value in row] for row in asked(archive, sql)]
        assert expected
        arrows = dict(zip("0123", "↑↓←→", strict=True))
        if sql.startswith("SELECT move"):
            expected = [[f"{move} {arrows[move]}", num] for move, num in expected]
        eventually(lambda expected=expected: view.js(READ_GRID), expected)  # type: ignore[misc]
        assert view.text(".result-facts strong") == count(len(expected), "row")


def editor(view: Explorer) -> Any:
    """Return the editor's text field, which is in a shadow root."""
    view.wait("return document.querySelector('.sql-editor')?.shadowRoot?.querySelector('.cm-content')")
    return view.js("return document.querySelector('.sql-editor').shadowRoot.querySelector('.cm-content')")


def type_statement(view: Explorer, sql: str) -> None:
    # Ctrl+A, Delete. Each call puts the cursor at the end.
    editor(view).send_keys("\ue009a\ue000\ue017" + sql)


def offered(view: Explorer) -> list[str]:
    labels: list[str] = view.js(
        """return [...document.querySelector(".sql-editor").shadowRoot
        .querySelectorAll(".cm-tooltip-autocomplete .cm-completionLabel")].map((each) => each.textContent)"""
    )
    return labels


def test_the_editor_completes_names(view: Explorer) -> None:
    view.open("#/sql")
    view.wait("return document.querySelector('.query')")
    for text, name in [
        ("SELECT * FROM run", "runs"),
        ("SELECT * FROM annot", "annotations"),
        ("SELECT * FROM steps WHERE tile_65", "tile_65536_mask"),
        ("SELECT max_til", "max_tile"),
        ("score_histo", "score_histogram"),
    ]:
        type_statement(view, text)
        eventually(lambda name=name: name in offered(view), True)  # type: ignore[misc]
        editor(view).send_keys("\ue00c")
        eventually(lambda: offered(view), [])


def test_statements_run_from_the_editor(view: Explorer) -> None:
    view.open("#/sql")
    view.wait("return document.querySelector('.query')")
    sql = "SELECT count(*) AS num FROM runs"
    type_statement(view, sql + "\ue00c")
    editor(view).send_keys("\ue009\ue007")
    eventually(lambda: view.js(READ_GRID), [[f"{TOTAL}"]])
    assert unquote_plus(view.hash()) == f"#/sql?q={sql}"
    view.assert_quiet()
    view.allowed = REFUSED

    type_statement(view, "SELECT 1,\n  scor FROM runs\ue00c")
    editor(view).send_keys("\ue009\ue007")
    eventually(lambda: "scor" in (view.text(".sql-error:not([hidden]) .error") or ""), True)
    assert view.text(".sql-error button") == "Go to line 2, column 3"
    # The rows of the first statement, and their downloads, are gone.
    assert view.js("return document.querySelectorAll('.result, .downloads button').length") == 0


def test_a_chart_appears_and_files_are_offered(view: Explorer, archive: a2store.Archive, downloads: Path) -> None:
    sql = "SELECT engine, avg(max_score) AS mean_score FROM runs GROUP BY engine ORDER BY engine"
    view.open("#/sql?q=" + quote(sql))
    eventually(lambda: len(view.js(READ_GRID)), len(sorted_engines(archive)))
    view.click(".view-choice button:last-child")
    bars = view.wait("return document.querySelectorAll('.chart-plot svg rect').length")
    assert bars == len(sorted_engines(archive))
    assert view.js("return document.querySelector('.chart-view svg').getBoundingClientRect().width") > 300
    expected: list[Any] = [(engine, pytest.approx(mean)) for engine, mean in asked(archive, sql)]
    view.click("[aria-label='Download as CSV']")
    with downloaded(downloads, ".csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["engine", "mean_score"]
    assert [(engine, float(mean)) for engine, mean in rows[1:]] == expected
    view.click("[aria-label='Download as Parquet']")
    table = pq.read_table(downloaded(downloads, ".parquet"))
    assert list(zip(table["engine"].to_pylist(), table["mean_score"].to_pylist(), strict=True)) == expected


def test_a_named_query(view: Explorer, archive: a2store.Archive) -> None:
    view.open("#/sql?query=score_histogram&p.width=500&p.engine=" + quote(EVIL))
    rows = pa.table(archive.query("score_histogram", width=500, engine=EVIL)).to_pylist()
    assert len(rows) > 3
    eventually(lambda: view.js(READ_GRID), [[number(value) for value in row.values()] for row in rows])
    assert "score_histogram" in (view.text(".result-facts") or "")


# The overview, commits, and servers that stop


@pytest.fixture
def growing(tmp_path: Path) -> a2store.Archive:
    """A small archive for tests that change it."""
    made = a2store.Archive.create(tmp_path / "growing.a2")
    grow(made, 1)
    return made


def grow(archive: a2store.Archive, seed: int) -> None:
    """Commit three more runs."""
    folder = Path(archive.path).parent / f"more-{seed}"
    a2store.simulate(folder, runs=3, seed=seed, depth=0, engine=f"engine {seed}", progress=False)
    archive.ingest(folder, progress=False)


@contextmanager
def showing(page: Page, archive: a2store.Archive) -> Iterator[Explorer]:
    """Show the page of a new server."""
    with Server(archive.path) as server:
        view = Explorer(page, server)
        page.browser.get(server.url)
        yield view
        view.assert_quiet()
        page.browser.get("about:blank")


READ_REPORT = """
const frames = [...document.querySelectorAll("iframe:not(.coming)")];
const page = frames.length === 1 ? frames[0].contentDocument : null;
return page?.querySelector("main > section") ? [page.title, page.querySelectorAll("section svg.a2").length > 5,
  page.querySelector("#data").textContent] : null;
"""


def version_of_report(view: Explorer) -> int:
    data = view.wait(READ_REPORT)[2]
    version: int = json.loads(data)["version"]
    return version


def test_the_overview_follows_commits(page: Page, growing: a2store.Archive) -> None:
    with showing(page, growing) as view:
        view.open("#/overview")
        assert view.wait(READ_REPORT)[1]
        assert version_of_report(view) == 2
        assert (view.text(".report-facts") or "").startswith("Version 2, ")
        grow(growing, 2)
        view.wait_for(".banner.news:not([hidden])", "Version 3: 3 new runs. Show them")
        view.click(".banner.news button")
        eventually(lambda: version_of_report(view), 3)
        assert (view.text(".report-facts") or "").startswith("Version 3, ")
        results = json.loads(view.wait(READ_REPORT)[2])["results"]
        counted = results["length_histogram"]
        num_runs = counted["columns"].index("num_runs")
        assert sum(row[num_runs] for row in counted["rows"]) == growing.num_runs == 6

        # A condition and two groups are part of the address.
        view.find("#report-where").send_keys("run_id > 1")
        view.click(".report-form button[type=submit]")
        eventually(lambda: unquote_plus(view.hash()), "#/overview?where=run_id > 1")
        eventually(lambda: json.loads(view.wait(READ_REPORT)[2])["where"], "run_id > 1")


def test_a_commit_is_announced(page: Page, growing: a2store.Archive) -> None:
    with showing(page, growing) as view:
        view.open("#/runs?sort=max_score&order=descending")
        view.wait_for(".found strong", "3 runs")
        grow(growing, 2)
        view.wait_for(".banner.news:not([hidden])", "Version 3: 3 new runs. Show them")
        # The list changes only at the request of the reader.
        assert view.text(".found strong") == "3 runs"
        assert (view.text(".facts") or "").startswith("version 2 · 3 runs · ")
        view.click(".banner.news button")
        view.wait_for(".found strong", "6 runs")
        assert (view.text(".facts") or "").startswith("version 3 · 6 runs · ")
        scores = [f"{score:,}" for (score,) in asked(growing, "SELECT max_score FROM runs ORDER BY 1 DESC")]
        eventually(lambda: [cells[2] for _, cells in sorted(shown_runs(view).items())], scores)
        assert [name for name, _ in view.js(READ_ENGINES)] == ["engine 1", "engine 2"]
        assert view.js("return document.querySelector('.banner.news').hidden")
        view.open("#/run/1")
        view.wait("return document.querySelector('.position-text strong')")
        grow(growing, 3)
        view.wait_for(".banner.news:not([hidden])", "Version 4: 3 new runs. Show them")
        view.click(".banner.news button")
        view.wait_hash("#/runs?sort=run_id&order=descending")
        eventually(lambda: [cells[0] for _, cells in sorted(shown_runs(view).items())], list("876543210"))


def test_a_server_that_stops_is_found_again(page: Page, growing: a2store.Archive) -> None:
    token = "0123456789abcdef0123456789abcdef"
    server = Server(growing.path, env={"A2STORE_VIEW_TOKEN": token})
    again = ["--port", server.port]
    try:
        assert server.url.endswith(f"?token={token}")
        view = Explorer(page, server)
        page.browser.get(server.url)
        view.open("#/run/1/step/4")
        view.wait_for(".position-text strong", "Step 4")
        server.stop()
        trouble = ".banner.trouble:not([hidden])"
        view.wait_for(trouble, "The server does not answer. The page tries again every few seconds.")
        # The replay needs no server.
        view.press("l")
        view.wait_for(".position-text strong", "Step 5")
        server = Server(growing.path, *again, env={"A2STORE_VIEW_TOKEN": token})
        eventually(lambda: view.text(trouble), None)
        view.click("nav a[href='#/runs']")
        view.wait_for(".found strong", "3 runs")

        server.stop()
        view.wait_for(trouble, "The server does not answer. The page tries again every few seconds.")
        server = Server(growing.path, *again, env={"A2STORE_VIEW_TOKEN": token[::-1]})
        view.wait_for(trouble, "The server restarted. Open the address that it printed in the terminal.")
        view.allowed = LOST
        view.assert_quiet()
        view.allowed = "^$"
        page.browser.get(server.url)
        view.wait_for(".found strong", "3 runs")
        view.assert_quiet()
        page.browser.get("about:blank")
    finally:
        server.stop()


# Texts and accessibility


def test_markup_in_names_is_text(view: Explorer, archive: a2store.Archive) -> None:
    view.open("#/runs?engine=" + quote(EVIL))
    view.wait_for(".found strong", found(RUNS))
    assert {cells[1] for cells in shown_runs(view).values()} == {EVIL}
    view.js("location.hash = arguments[0]", f"#/run/{FIRST_EVIL}")
    eventually(lambda: (view.text(".run-facts") or "").startswith(f"{EVIL} · score"), True)
    view.click(".run-facts a")
    view.wait_for(".found strong", found(RUNS))
    view.click(".in-sql")
    eventually(lambda: [row[1] for row in view.js(READ_GRID)], [EVIL] * RUNS)
    assert view.js("return document.querySelectorAll('main img').length") == 0
    view.open("#/" + quote(EVIL))
    view.wait_for("h1", "Unknown address")


PAGES = {
    "#/runs": ".run-row[data-index='5']",
    f"#/run/{FIRST_EVIL}/step/7": ".move-table tbody tr",
    "#/position/0000000000120031": ".position-content p",
    "#/sql?query=score_histogram": "table.grid tbody tr",
    "#/overview": "iframe:not(.coming)",
}


@pytest.mark.parametrize("address", PAGES)
def test_each_page_is_accessible_and_fits_its_window(view: Explorer, address: str) -> None:
    problems = []
    for width, theme in [(1280, "light"), (1280, "dark"), (360, "light"), (360, "dark")]:
        if theme == "light":
            view.open(address, width)
            view.find(PAGES[address])
        else:
            view.page.media("prefers-color-scheme", theme)
        view.page.settle()
        # Texts are light on dark pages.
        colour = view.js("return getComputedStyle(document.body).color")
        assert (sum(map(int, re.findall(r"\d+", colour)[:3])) > 380) == (theme == "dark"), colour
        if (seen := view.js("return document.documentElement.scrollWidth")) > width:
            problems.append((width, theme, seen))
        problems += [(width, theme, violation) for violation in view.page.axe()]
    assert problems == []
