"""The page of `a2store report` in a browser, with the results of the named queries over simulated games."""

from __future__ import annotations

import base64
import copy
import gzip
import hashlib
import json
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest

import a2store
import report_page
from browser import ARROW_RIGHT, HOME, TAB, Page, percent
from report_page import ROOT, SECTIONS, Data

EXPLORER = "http://127.0.0.1:8080/?token=a"
WITHOUT_CHARTS = {"run_lengths", "first_reach_sample", "blunders", "hard_moves", "opening_book"}
HOSTILE = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a|b`c*d\\e\n<b>f</b>'; --",
    "x" * 300,
]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> a2store.Archive:
    """Games of three engines of different depths, real files if available, and predictions of two models."""
    root = tmp_path_factory.mktemp("report")
    made = a2store.Archive.create(root / "games.a2")
    for depth, runs, engine in ((0, 60, "shallow"), (1, 30, "middle"), (2, 4, "deep")):
        a2store.simulate(root / engine, runs=runs, seed=depth, depth=depth, engine=engine, progress=False)
        made.ingest(root / engine, progress=False)
    fixtures = ROOT.parent / "shared" / "fixtures" / "runs"
    if fixtures.is_dir():
        made.ingest(fixtures, progress=False)
    for seed, skill in enumerate((3, 6)):
        report_page.annotate(made, f"policy-{seed}", seed, skill)
    return made


@pytest.fixture(scope="module")
def data(archive: a2store.Archive) -> Data:
    return report_page.report(archive)


@pytest.fixture
def linked(data: Data) -> Data:
    return {**data, "explorer": EXPLORER}


def show(page: Page, data: Data | None, width: int = 1280, theme: str = "light") -> None:
    """Show a report, or the unfilled template."""
    text = report_page.TEMPLATE.read_text(encoding="utf-8") if data is None else report_page.page(data)
    page.open(text, width, theme)


def available(data: Data) -> dict[str, Data]:
    """Return the results without an error."""
    results = {key: result for key, result in data["results"].items() if result["error"] is None}
    assert len(results) >= 14
    return results


def hostile(data: Data) -> Data:
    """Return the data with markup in every text that users can choose."""
    names: dict[str, str] = {}

    def renamed(value: Any, column: str) -> Any:
        if column in ("engine", "other_engine", "model", "format") and isinstance(value, str):
            return names.setdefault(value, HOSTILE[len(names) % len(HOSTILE)] + str(len(names)))
        return value

    result = copy.deepcopy(data)
    for each in result["results"].values():
        each["rows"] = [
            [renamed(value, column) for value, column in zip(row, each["columns"], strict=True)] for row in each["rows"]
        ]
        each["parameters"]["engine"] = HOSTILE[2]
        each["note"] = HOSTILE[1]
    result["results"]["phase_mix"] |= {"error": HOSTILE[0], "rows": []}
    return {**result, "title": HOSTILE[0], "where": HOSTILE[1], "program": HOSTILE[1], "explorer": EXPLORER}


# The file


def test_the_template_has_one_marker_and_stays_small() -> None:
    text = report_page.TEMPLATE.read_text(encoding="utf-8")
    assert text.count(report_page.MARKER) == 1
    assert len(gzip.compress(text.encode())) <= 400_000
    assert text.index("charset") < 1024


def test_the_policy_allows_only_the_page_s_own_script_and_styles() -> None:
    text = report_page.TEMPLATE.read_text(encoding="utf-8")
    [policy] = re.findall(r'http-equiv="Content-Security-Policy"\s+content="([^"]*)"', text)
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    for name, pattern in (("script-src", r"<script>(.*?)</script>"), ("style-src", r"<style>(.*?)</style>")):
        [content] = re.findall(pattern, text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert directives.pop(name) == f"'sha256-{digest}'"
    assert directives == {"default-src": "'none'", "img-src": "data:", "base-uri": "'none'", "form-action": "'none'"}


# The page


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_is_quiet_and_fits_its_window(page: Page, linked: Data, theme: str, width: int) -> None:
    show(page, linked, width, theme)
    assert page.js("return document.documentElement.scrollWidth") <= width
    assert page.js("return document.querySelectorAll('section svg.a2').length") >= 8
    assert page.js("return document.querySelectorAll('section .charts > .error').length") == 0
    page.assert_quiet()


def test_every_section_has_its_charts_queries_and_data(page: Page, data: Data) -> None:
    show(page, data)
    sections = page.js("return [...document.querySelectorAll('main > section')].map((each) => each.id)")
    assert sections == list(SECTIONS)
    targets = page.js("return [...document.querySelectorAll('nav a')].map((each) => each.getAttribute('href'))")
    assert targets == [f"#{section}" for section in SECTIONS]
    for section, keys in SECTIONS.items():
        lede, charts, sources = page.js(
            """const section = document.getElementById(arguments[0]);
            return [section.querySelector(".lede").textContent,
              [...section.querySelectorAll("figure svg.a2")].map((each) => each.getAttribute("aria-label")),
              [...section.querySelectorAll(".source")].map((each) => each.id)]""",
            section,
        )
        assert len(lede) > 50
        assert sources == [f"data-{key}" for key in keys]
        assert len(set(charts)) == len(charts)
        if any(data["results"][key]["error"] is None for key in set(keys) - WITHOUT_CHARTS):
            assert charts
            assert all(charts)
    for key, result in data["results"].items():
        if result["error"] is not None:
            assert result["query"] in page.js("return document.querySelector('main').textContent"), key


def test_tables_show_the_results(page: Page, data: Data) -> None:
    show(page, data)
    for key, result in available(data).items():
        shown = page.js(
            """const details = document.querySelector(`#data-${arguments[0]} details`);
            details.open = true;
            return new Promise((resolve) => setTimeout(() => {
              const buttons = [...details.querySelectorAll("button")];
              buttons.find((each) => each.textContent.startsWith("Show all"))?.click();
              resolve([...details.querySelectorAll("tr")].map((row) => [...row.cells].map((cell) => cell.textContent)));
            }));""",
            key,
        )
        assert shown[0] == result["columns"]
        assert len(shown) == len(result["rows"]) + 1
        for texts, row in zip(shown[1:], result["rows"], strict=True):
            for text, value in zip(texts, row, strict=True):
                assert_shows(text, value)


def assert_shows(text: str, value: Any) -> None:
    """Check that a cell of a table shows a value."""
    if value is None:
        assert text == "null"
    elif isinstance(value, bool):
        assert text == str(value).lower()
    elif isinstance(value, int):
        assert text == f"{value:,}"
    elif isinstance(value, float):
        assert math.isclose(
            float(text.replace(",", "")), value, rel_tol=1e-3 if abs(value) < 1e-4 else 1e-5, abs_tol=1e-300
        )
    elif re.fullmatch("[0-9a-f]{16}", value):
        assert text.endswith(value)
    else:
        assert text == value


def commands(page: Page) -> dict[str, list[str]]:
    """Return the words of the command line of each result."""
    lines = page.js(
        """return [...document.querySelectorAll(".source")].map((each) =>
          [each.id, each.querySelector("code").textContent])"""
    )
    return {key.removeprefix("data-"): shlex.split(line) for key, line in lines}


def test_commands_repeat_the_queries(page: Page, data: Data, archive: a2store.Archive) -> None:
    show(page, data)
    shown = commands(page)
    assert set(shown) == set(data["results"])
    known = {query.name for query in a2store.queries()}
    checked = 0
    for key in ("engine_leaderboard", "score_histogram", "hard_moves", "spawn_check", "score_ecdf"):
        result, words = data["results"][key], shown[key]
        assert words[:4] == ["a2store", "query", "games.a2", result["query"]]
        if result["error"] is not None or result["query"] not in known:
            continue
        command = [sys.executable, "-m", "a2store", *words[1:], "--format", "json"]
        output = subprocess.run(
            command, cwd=Path(archive.path).parent, capture_output=True, text=True, check=True
        ).stdout
        assert len(output.splitlines()) == len(result["rows"])
        checked += 1
    assert checked >= 3


def test_command_lines_are_quoted(page: Page, data: Data) -> None:
    values = ["it's", "$(reboot)", "true", "12", '"x"', "", "a b", "`x`", None, True, 0.25]
    results = {
        key: {**result, "parameters": {"engine": value}}
        for (key, result), value in zip(data["results"].items(), values, strict=False)
    }
    show(page, {**data, "title": "-my games'.a2", "results": results})
    shown = commands(page)
    for (key, result), value in zip(results.items(), values, strict=True):
        words = shown[key]
        assert words[:5] == ["a2store", "query", "./-my games'.a2", result["query"], "-p"]
        text = words[5].removeprefix("engine=")
        # The command reads JSON scalars as such, and everything else as text.
        try:
            assert json.loads(text) == value
        except json.JSONDecodeError:
            assert text == value


def test_the_markdown_table(page: Page, data: Data) -> None:
    show(page, data)
    tiles = [65536, 32768, 16384, 8192, 4096, 2048]
    result = available(data)["tile_reach"]
    rows = [dict(zip(result["columns"], row, strict=True)) for row in result["rows"]]
    engines = {row["engine"]: row["num_runs"] for row in rows}
    shares = {(row["engine"], row["tile"]): row["share"] for row in rows}

    expected = ["| engine | games | 65536 | 32768 | 16384 | 8192 | 4096 | 2048 |"]
    expected.append("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for engine, runs in sorted(engines.items(), key=lambda item: (-item[1], item[0] is None, item[0] or "")):
        cells = [f"{percent(shares.get((engine, tile), 0.0))} %" for tile in tiles]
        expected.append(f"| {' | '.join([engine or 'no engine', f'{runs:,}', *cells])} |")
    assert page.js("return document.querySelector('.markdown').textContent").splitlines() == expected
    # Its copy button.
    page.js(
        """window.copied = [];
        Object.defineProperty(navigator, "clipboard", {value: {writeText: async (text) => window.copied.push(text)}});
        [...document.querySelectorAll("button")].find((each) => each.textContent === "Copy as Markdown").click();"""
    )
    page.settle()
    assert page.js("return window.copied") == ["\n".join(expected) + "\n"]


def test_marks_link_to_the_runs_that_they_stand_for(page: Page, linked: Data, archive: a2store.Archive) -> None:
    show(page, {**linked, "where": "num_steps > 1"})
    links = page.js(
        """return [...document.querySelectorAll("main figure a, .gallery a")].map((each) =>
          [each.closest("section").id, each.getAttribute("href") ?? each.getAttribute("xlink:href")
            ?? each.href.baseVal, each.getAttribute("aria-label") ?? each.textContent])"""
    )
    prefix = f"{EXPLORER}#/runs?where="
    assert len(links) > 200
    by_section: dict[str, list[tuple[str, str]]] = {}
    steps: list[tuple[str, int, int]] = []
    for section, href, label in links:
        assert label
        # Examples of steps lead to the step itself.
        if (place := re.fullmatch(rf"{re.escape(EXPLORER)}#/run/(\d+)/step/(\d+)", href)) is not None:
            steps.append((section, int(place[1]), int(place[2])))
            continue
        assert href.startswith(prefix), href
        by_section.setdefault(section, []).append((unquote(href.removeprefix(prefix)), label))
    for found in by_section.values():
        for condition, label in found[:: max(1, len(found) // 12)]:
            assert condition.startswith(("num_steps > 1", "(num_steps > 1)"))
            [count] = pa.table(archive.sql(f"SELECT count(*) AS n FROM runs WHERE {condition}"))["n"].to_pylist()
            if (stated := re.search(r"([\d,]+) of [\d,]+ runs? reach \d+$", label)) is not None:
                assert count == int(stated[1].replace(",", "")), label
            if (stated := re.search(r"([\d,]+) runs? \(.*(score from|steps)", label, re.DOTALL)) is not None:
                assert count == int(stated[1].replace(",", "")), label
    assert {"scores", "lengths", "tile-reach", "survival", "values"} <= set(by_section)
    assert {section for section, _, _ in steps} == {"values"}
    for _, run, step in steps:
        assert archive.run(run).position(step).loss is not None


def test_without_an_explorer_nothing_leads_out_of_the_page(page: Page, data: Data) -> None:
    for explorer in (None, "javascript:alert(1)//"):
        show(page, {**data, "explorer": explorer})
        targets = page.js("return [...document.querySelectorAll('a')].map((each) => each.getAttribute('href'))")
        assert targets
        assert all(target is not None and target.startswith("#") for target in targets)


@pytest.mark.parametrize("width", [360, 1280])
def test_hostile_names_are_inert(page: Page, data: Data, width: int) -> None:
    report = hostile(data)
    show(page, report, width)
    page.js("for (const each of document.querySelectorAll('details')) each.open = true")
    page.settle()
    page.assert_quiet()
    assert page.js("return document.querySelectorAll('img, iframe, object, b').length") == 0
    assert page.js("return document.querySelectorAll('script').length") == 2
    assert page.js("return document.documentElement.scrollWidth") <= width
    assert page.js("return document.title") == f"{' '.join(report['title'].split())} – a2store report"
    assert page.js("return document.querySelector('h1').textContent") == report["title"]
    text = page.js("return document.querySelector('main').textContent")
    engines = {row[0] for row in report["results"]["engine_leaderboard"]["rows"] if row[0] is not None}
    assert len(engines) >= 3
    assert all(engine in text for engine in engines)
    assert f"failed: {HOSTILE[0]}" in text
    for line in page.js("return document.querySelector('.markdown').textContent").splitlines():
        assert len(re.findall(r"(?<!\\)\|", line)) == 9


def test_keys_reach_every_control_and_every_mark(page: Page, linked: Data) -> None:
    show(page, linked)
    wanted = page.js(
        """window.controls = [...document.querySelectorAll("a, button, input, summary, [tabindex]")].filter((each) =>
          each.getAttribute("tabindex") !== "-1" && each.checkVisibility());
        return window.controls.length;"""
    )
    assert wanted > 60
    page.js(
        "window.reached = new Set(); document.addEventListener('focusin', (event) => window.reached.add(event.target))"
    )
    for _ in range(wanted + 10):
        page.press(TAB)
    missed = page.js("return window.controls.filter((each) => !window.reached.has(each)).map((each) => each.outerHTML)")
    assert missed == []
    stops = page.js(
        """return [...document.querySelectorAll("svg.a2")].filter((each) => each.querySelector("a") !== null).map(
          (each) => each.querySelectorAll("a[tabindex='0']").length)"""
    )
    assert len(stops) >= 7
    assert set(stops) == {1}
    # The arrow keys move between the marks of a chart.
    count = page.js(
        """const chart = [...document.querySelectorAll("svg.a2")].find((each) => each.querySelectorAll("a").length > 5);
        window.marks = [...chart.querySelectorAll("a")];
        window.reached.clear();
        window.marks[0].focus();
        return window.marks.length;"""
    )
    assert page.js("return document.querySelector('.tooltip').textContent === document.activeElement.ariaLabel")
    for _ in range(count - 1):
        page.press(ARROW_RIGHT)
    assert page.js("return window.marks.every((each) => window.reached.has(each))")
    page.press(HOME)
    assert page.js("return document.activeElement === window.marks[0]")


@pytest.mark.parametrize(("kind", "theme"), [("linked", "light"), ("plain", "dark"), ("hostile", "dark")])
def test_axe_finds_no_violation(page: Page, data: Data, kind: str, theme: str) -> None:
    report = {"plain": data, "linked": {**data, "explorer": EXPLORER}, "hostile": hostile(data)}[kind]
    show(page, report, 1280, theme)
    page.js(
        "for (const each of document.querySelectorAll('.reach details, #data-hard_moves details')) each.open = true"
    )
    page.settle()
    assert page.axe() == []


def test_the_theme_follows_the_system_until_it_is_chosen(page: Page, data: Data) -> None:
    background = "return getComputedStyle(document.documentElement).backgroundColor"
    show(page, data, theme="dark")
    dark = page.js(background)
    page.media("prefers-color-scheme", "light")
    light = page.js(background)
    assert light != dark
    button = "document.querySelector('button.theme')"
    shown = []
    for _ in range(3):
        page.js(f"{button}.click()")
        shown.append((page.js(f"return {button}.textContent"), page.js(background)))
    assert shown == [("Theme: light", light), ("Theme: dark", dark), ("Theme: system", light)]


def test_charts_show_only_the_chosen_engines(page: Page, data: Data) -> None:
    show(page, data)
    labels = page.js("return [...document.querySelectorAll('.engines label')].map((each) => each.textContent.trim())")
    assert {"shallow", "middle", "deep"} <= set(labels)
    text = "return document.querySelector('#scores').textContent + document.querySelector('.markdown').textContent"
    assert "middle" in page.js(text)
    page.js("document.querySelectorAll('.engines input')[arguments[0]].click()", labels.index("middle"))
    assert "middle" not in page.js(text)
    for index in range(len(labels)):
        if labels[index] != "middle":
            page.js("document.querySelectorAll('.engines input')[arguments[0]].click()", index)
    assert "No data for the chosen engines." in page.js(text)
    page.assert_quiet()


def test_missing_results_and_errors_are_stated(page: Page, data: Data) -> None:
    failed = {**data["results"]["score_histogram"], "error": "out of memory", "rows": [], "columns": [], "types": []}
    noted = {**data["results"]["tile_reach"], "note": "An estimate from 10 of 94 runs."}
    show(page, {**data, "results": {"score_histogram": failed, "tile_reach": noted}})
    texts = page.js(
        """return Object.fromEntries([...document.querySelectorAll("main > section")].map((each) =>
          [each.id, each.innerText]))"""
    )
    assert "The query score_histogram failed: out of memory" in texts["scores"]
    assert "This report has no result of score_ecdf." in texts["scores"]
    assert "tile_reach: An estimate from 10 of 94 runs." in texts["tile-reach"]
    assert "This archive has no annotations." in texts["annotations"]
    assert "This report has no result of move_mix, corner_occupancy." in texts["moves"]
    page.assert_quiet()


def test_results_of_all_runs_together(page: Page, data: Data) -> None:
    results = copy.deepcopy(data["results"])
    for result in results.values():
        if result["parameters"].pop("by_engine", None) is None or result["error"] is not None:
            continue
        at = result["columns"].index("engine")
        first = result["rows"][0][at]
        result["rows"] = [[*row[:at], None, *row[at + 1 :]] for row in result["rows"] if row[at] == first]
    show(page, {**data, "by": None, "results": results})
    assert page.js("return document.querySelector('#tile-reach .legend').textContent") == "all runs"
    assert page.js("return document.querySelectorAll('section .charts > .error').length") == 0
    page.assert_quiet()


def test_an_archive_without_games(page: Page, tmp_path: Path) -> None:
    show(page, report_page.report(a2store.Archive.create(tmp_path / "empty.a2")))
    assert page.js("return document.querySelectorAll('section .charts > .error').length") == 0
    assert "has no rows" in page.js("return document.querySelector('#scores').textContent")
    page.assert_quiet()


def test_the_template_without_data_says_so(page: Page) -> None:
    show(page, None)
    assert "This page has no data." in page.js("return document.body.innerText")
    page.assert_quiet()
