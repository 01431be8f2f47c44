"""The page that replays a run, and boards as pictures in tables, in a browser."""

from __future__ import annotations

import html
from pathlib import Path

import numpy as np
import pytest

import a2store
from archives import run_command, simulated
from browser import Page
from report_page import data_of

EVIL = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> a2store.Archive:
    return simulated(tmp_path_factory.mktemp("replay_page"), runs=2, seed=5, depth=1, engine=EVIL)


READ = """
const text = (node) => node.textContent.trim();
return {
  heading: text(document.querySelector("h1")),
  facts: text(document.querySelector(".run-facts")),
  place: text(document.querySelector(".position-text")),
  tiles: [...document.querySelectorAll(".board-frame .tile")].map((cell) => Number(cell.textContent)),
  groups: [...document.querySelectorAll(".move-table .group")].map(text),
  titles: [...document.querySelectorAll(".move-table thead tr:last-child th")].map(text),
  moves: [...document.querySelectorAll(".move-table tbody tr")].map((row) => ({
    played: row.classList.contains("played"),
    cells: [...row.querySelectorAll("td")].map(text),
  })),
};
"""
"""Reads what the page shows."""


def tiles_at(run: a2store.Run, at: int) -> list[int]:
    tiles: list[int] = np.ravel(run.position(at).board.tiles).tolist()
    return tiles


def place_of(run: a2store.Run, at: int) -> str:
    position = run.position(at)
    what = "Final board" if position.step is None else f"Step {position.step:,}"
    return f"{what} · score {position.score:,} · "


def test_keys_and_the_slider(page: Page, archive: a2store.Archive) -> None:
    run = archive.run(0)
    page.open(run.replay(10).to_html())
    seen = page.js(READ)
    assert seen["heading"] == "Run 0"
    score, largest = run.meta.max_score, run.meta.highest_tile
    assert seen["facts"] == f"{EVIL} · score {score:,} · {len(run):,} steps · largest tile {largest:,}"
    at = 10
    for keys, move in [("l", 1), ("h", -1), ("g", -(10**9)), ("G", 10**9), ("h", -1), ("[", -10), ("]", 10), ("h", -1)]:
        page.press(keys)
        at = min(max(at + move, 0), len(run))
        seen = page.js(READ)
        assert seen["place"].startswith(place_of(run, at))
        assert seen["tiles"] == tiles_at(run, at)
    page.js("const at = document.querySelector('.scrubber'); at.value = 100; at.dispatchEvent(new Event('input'))")
    seen = page.js(READ)
    assert seen["tiles"] == tiles_at(run, 100)
    for direction, move in enumerate(seen["moves"]):
        expected = run.position(100).values[direction]
        assert (
            move["cells"][0] == "–"
            if expected is None
            else float(move["cells"][0]) == pytest.approx(expected, abs=1e-5)
        )
        assert move["played"] == (run.position(100).played == direction)
    # The page has no links to pages of the explorer.
    assert page.js("return document.querySelectorAll('a').length") == 0
    page.assert_quiet()
    assert page.axe() == []


def test_a_notebook_shows_the_page_in_a_frame(page: Page, archive: a2store.Archive) -> None:
    run = archive.run(0)
    page.open(f"<!doctype html><title>t</title>{run.replay(5)._repr_html_()}")
    page.browser.switch_to.frame(0)
    try:
        assert page.js(READ)["tiles"] == tiles_at(run, 5)
        page.click("button[aria-label='One position forward']")
        assert page.js(READ)["tiles"] == tiles_at(run, 6)
    finally:
        page.browser.switch_to.default_content()
    page.assert_quiet()


def test_the_page_is_one_file(archive: a2store.Archive, tmp_path: Path) -> None:
    replay = archive.run(0).replay(-1, min_loss=0.01)
    replay.save(tmp_path / "replay.html")
    text = (tmp_path / "replay.html").read_text(encoding="utf-8")
    assert text == replay.to_html()
    assert EVIL not in text
    game = data_of(text)
    assert (game["run"]["engine"], game["at"], game["min_loss"]) == (EVIL, len(archive.run(0)), 0.01)
    assert html.unescape(replay._repr_html_().split('srcdoc="', 1)[1].split('" sandbox="allow-scripts"')[0]) == text
    for wrong, error in [({"index": 10**6}, IndexError), ({"min_loss": 0}, ValueError)]:
        with pytest.raises(error):
            archive.run(0).replay(**wrong)  # type: ignore[arg-type]


def test_tables_show_boards_as_pictures(page: Page, archive: a2store.Archive) -> None:
    query = archive.sql("SELECT run_id, board, tile_65536_mask, move FROM steps ORDER BY run_id, step_index LIMIT 3")
    text = query._repr_html_()
    assert text.count("<svg") == 3
    for at in range(3):
        assert f'<td title="{archive.run(0).boards[at]}"><svg' in text
    assert "<svg" not in archive.sql("SELECT board AS x, 1.5 AS board FROM steps LIMIT 3")._repr_html_()
    assert archive.sql("SELECT final_board, final_tile_65536_mask FROM runs")._repr_html_().count("<svg") == 2
    assert archive.sql("SELECT * FROM steps").materialize(progress=False)._repr_html_().count("<svg") == 10
    page.open(f"<!doctype html><html lang=en><title>t</title><meta charset=utf-8><main><h1>t</h1>{text}</main></html>")
    tiles = page.js("return [...document.querySelectorAll('tr svg text')].map((each) => Number(each.textContent))")
    expected = [tile for at in range(3) for tile in np.ravel(archive.run(0).position(at).board.tiles).tolist() if tile]
    assert tiles == expected
    assert page.axe() == []
    page.assert_quiet()


def test_models_and_a_policy_stand_beside_the_values(page: Page, tmp_path: Path) -> None:
    archive = simulated(tmp_path, runs=1, seed=6, depth=0)
    steps = len(archive.run(0))
    names = [("run_id", "u4"), ("step_index", "u4"), ("argmax_head", "u1"), ("argmax_prob", "f4")]
    rows = np.zeros(steps, [*names, ("teacher_move", "u1"), ("student_bins", "f4", (8,))])
    rows["step_index"], rows["argmax_prob"] = np.arange(steps), 0.75
    rows["argmax_head"], rows["teacher_move"] = np.arange(steps) % 4, archive.run(0).moves
    rows["student_bins"] = [0.25, 0.75] * 4
    archive.annotate(EVIL, rows, progress=False)

    calls = []

    def counting(tokens: np.ndarray, legal: np.ndarray) -> np.ndarray:
        calls.append(len(tokens))
        return np.where(legal, tokens[:, :4] + 0.25, np.inf)

    run = archive.run(0)
    page.open(run.replay(2, policy=counting).to_html())
    assert sum(calls) == steps + 1
    assert max(calls) <= 512
    page.wait("return document.querySelector('.move-table tbody').textContent.includes('T')")
    assert page.js(READ)["groups"] == ["Engine", "Policy: counting", EVIL]
    assert page.js(READ)["titles"] == ["Value", "Behind the best", "Value", "Prefers", "Value bins"]
    for at in (2, 3, steps):
        page.wait("return !document.querySelector('.move-table').textContent.includes('–  –')")
        seen = page.js(READ)
        position = run.position(at)
        exponents = [tile.bit_length() - 1 if tile else 0 for tile in np.ravel(position.board.tiles).tolist()][:4]
        for direction, move in enumerate(seen["moves"]):
            policy, prefers = move["cells"][2:4]
            is_played = at < steps and position.played == direction
            star = "★ 75.0 %" if at < steps and at % 4 == direction else ""
            assert prefers == f"{star}{' T' if is_played else ''}".strip()
            # The page does not show values that are not finite, such as the value of an illegal move.
            assert policy == "–" or float(policy.removeprefix("★ ")) == exponents[direction] + 0.25
        bars = "return [...document.querySelectorAll('.bin-bars')].map((each) => each.getAttribute('aria-label'))"
        labels = ["fullest bin 2 of 2, 75 %"] * 4 if at < steps else ["no distribution"] * 4
        assert [label.split(";")[0] for label in page.js(bars)] == labels
        page.press("l" if at == 2 else "G")
    assert page.js("return window.alerts") == []
    page.assert_quiet()
    with pytest.raises(ZeroDivisionError):
        run.replay(policy=lambda tokens, legal: 1 // 0)
    with pytest.raises(ValueError, match=r"policy: expected floats of shape \(\d+, 4\) or moves"):
        run.replay(policy=lambda tokens, legal: tokens[:, :3] * 0.5)


def test_the_command_writes_the_same_page(archive: a2store.Archive, tmp_path: Path) -> None:
    path = tmp_path / "game.html"
    run_command("replay", archive.path, "0", "--step", "5", "-o", path)
    assert path.read_text(encoding="utf-8") == archive.run(0).replay(5).to_html()
    inside = archive.path / "game.html"
    assert "expected a path outside" in run_command("replay", archive.path, "0", "-o", inside, status=2).stderr
