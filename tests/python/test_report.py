"""The report: its tables compared with named queries and with another archive, its page, and the command."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
from archives import ingested, run_command
from report_page import data_of

ENGINES = {"greedy": 0, "expectimax": 1, "</script><script>alert(1)</script>": 0}


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> a2store.Archive:
    folder = tmp_path_factory.mktemp("report")
    archive = a2store.Archive.create(folder / "games.a2")
    for seed, (engine, depth) in enumerate(ENGINES.items()):
        a2store.simulate(folder / str(seed), runs=8, depth=depth, seed=seed, engine=engine, progress=False)
        archive.ingest(folder / str(seed), progress=False)
    a2store.simulate(folder / "old", runs=3, depth=0, seed=9, format="a2t1", engine="greedy", progress=False)
    archive.ingest(folder / "old", progress=False)
    return archive


Calls = list[dict[str, Any]]


@pytest.fixture(scope="module")
def reported(games: a2store.Archive) -> tuple[a2store.Report, Calls]:
    """The report of all games, and its calls of ``progress``."""
    calls: Calls = []
    return games.report(progress=calls.append), calls


@pytest.fixture
def report(reported: tuple[a2store.Report, Calls]) -> a2store.Report:
    return reported[0]


def tables(report: a2store.Report) -> dict[str, pa.RecordBatch]:
    return {name: pa.record_batch(batch) for name, batch in report.data.items()}


def assert_equal(found: pa.RecordBatch, expected: pa.RecordBatch | pa.Table, name: str) -> None:
    """Compare rows. Floats may differ slightly, because an engine adds them in any order."""
    assert found.schema.names == expected.schema.names, name
    for column in expected.schema.names:
        left, right = found[column].to_pylist(), expected[column].to_pylist()
        if pa.types.is_floating(expected.schema.field(column).type):
            left, right = ([np.nan if value is None else value for value in values] for values in (left, right))
            np.testing.assert_allclose(left, right, rtol=1e-9, err_msg=f"{name} {column}")
        else:
            assert left == right, (name, column)


def test_every_table_is_the_result_of_its_named_query(games: a2store.Archive, report: a2store.Report) -> None:
    assert report.errors == {}
    found = tables(report)
    assert len(found) == 25
    parameters = {name: table["parameters"] for name, table in data_of(report.to_html())["results"].items()}
    for name, table in found.items():
        assert_equal(table, pa.table(games.query(name, **parameters[name])), name)
        assert table.num_rows > 0 or name in ("blunders", "engine_agreement"), name
    assert found["archive_summary"]["num_runs"].to_pylist() == [8, 8, 8, 3]


def test_a_condition_leaves_out_the_other_runs(games: a2store.Archive, tmp_path: Path) -> None:
    """The report of some runs equals that of an archive of these runs only."""
    condition = "max_score >= 2000 AND engine = 'expectimax' OR format = 'a2t1' -- not the rest"
    chosen = f"SELECT run_id FROM runs WHERE (\n{condition}\n)"
    games.export_runs(chosen, tmp_path / "some", format="original", progress=False)
    some = ingested(tmp_path / "some.a2", tmp_path / "some")
    assert 3 < some.num_runs == games.sql(chosen).count() < games.num_runs
    found, expected = tables(games.report(where=condition, progress=False)), tables(some.report(progress=False))
    assert set(found) == set(expected)
    # Run ids and times of ingest differ. So do the chosen examples, which depend on ids, and the order of equal values.
    ids = {"run_id", "first_ingest", "last_ingest"}
    for name in set(expected) - {"first_reach_sample", "blunders", "hard_moves"}:
        columns = [column for column in expected[name].schema.names if column not in ids]
        assert_equal(found[name].select(columns), expected[name].select(columns), name)


@pytest.mark.parametrize("by", ["ingest", "format", "session"])
def test_groups(games: a2store.Archive, by: str) -> None:
    found = tables(games.report(by=by, progress=False))  # type: ignore[arg-type]
    column = "ingested_at" if by == "ingest" else by
    sql = f"SELECT CAST({column} AS VARCHAR) AS engine, count(*) AS n, sum(num_steps) AS steps FROM runs GROUP BY 1"
    expected = {row["engine"]: (row["n"], row["steps"]) for row in pa.table(games.sql(sql)).to_pylist()}
    of_runs: dict[str, int] = {}
    for row in found["tile_reach"].to_pylist():
        of_runs[row["engine"]] = row["num_runs"]
    assert of_runs == {engine: runs for engine, (runs, _) in expected.items()}
    of_steps: dict[str, int] = {}
    for row in found["corner_occupancy"].to_pylist():
        if row["cell"] == 0:
            of_steps[row["engine"]] = of_steps.get(row["engine"], 0) + row["num_steps"]
    assert of_steps == {engine: steps for engine, (_, steps) in expected.items()}


def test_two_groups_are_compared(games: a2store.Archive) -> None:
    evil = "</script><script>alert(1)</script>"
    found = tables(games.report(compare=("expectimax", evil), progress=False))
    assert set(found["engine_leaderboard"]["engine"].to_pylist()) == {"expectimax", evil}
    assert sum(found["archive_summary"]["num_runs"].to_pylist()) == 16
    both = tables(games.report(by="format", compare=("a2t1", "a2run2"), where="max_score > 0", progress=False))
    assert sum(both["archive_summary"]["num_runs"].to_pylist()) == 27


def test_an_empty_archive_has_a_report(tmp_path: Path) -> None:
    archive = a2store.Archive.create(tmp_path / "games.a2")
    report = archive.report(progress=False)
    assert report.errors == {}
    assert data_of(report.to_html())["results"]["archive_summary"]["rows"] == []
    with pytest.warns(UserWarning, match="no run meets the condition"):
        report = archive.report(where="max_score > 5", by="ingest", progress=False)
    assert tables(report)["archive_summary"].num_rows == 0


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"where": "true) OR (true"}, a2store.QueryError, "where: "),
        ({"where": "nothing > 3"}, a2store.QueryError, "nothing"),
        ({"where": "1 = 1 ORDER BY run_id LIMIT 1"}, a2store.QueryError, "where: "),
        ({"where": "max_score"}, a2store.QueryError, "where: "),
        ({"where": ""}, a2store.QueryError, "where: "),
        ({"where": "random() < 0.5"}, a2store.QueryRefusedError, "where: a random number or the time"),
        ({"where": "now() > start_time"}, a2store.QueryRefusedError, "where: a random number or the time"),
        ({"by": "tag"}, ValueError, 'by: expected "engine", "ingest", "format" or "session", found tag'),
        ({"compare": ("greedy", "nobody")}, ValueError, 'compare: expected an engine with runs, found "nobody"'),
        ({"compare": ("greedy",)}, ValueError, "compare"),
        ({"by": "ingest", "compare": ("2", "77")}, ValueError, "compare: expected the time of an ingest with runs"),
    ],
)
def test_wrong_arguments(games: a2store.Archive, arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        games.report(**arguments, progress=False)


def test_text_of_the_archive_is_data_in_the_page(
    games: a2store.Archive, report: a2store.Report, tmp_path: Path
) -> None:
    report.save(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page == report.to_html()
    assert "<script>alert(1)" not in page
    data = data_of(page)
    assert (data["title"], data["version"], data["by"]) == ("games.a2", games.version, "engine")
    assert "</script><script>alert(1)</script>" in {row[0] for row in data["results"]["engine_leaderboard"]["rows"]}
    [board] = [i for i, name in enumerate(data["results"]["opening_book"]["columns"]) if name == "position"]
    boards = [row[board] for row in data["results"]["opening_book"]["rows"]]
    expected = pa.record_batch(report.data["opening_book"])["position"].to_pylist()
    assert [int(text, 16) for text in boards] == expected
    assert all(re.fullmatch("[0-9a-f]{16}", text) for text in boards)
    # Nothing in the page asks for another file.
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', page.split("<script", 1)[0]) == []
    shown = report._repr_html_()
    assert shown.startswith('<iframe srcdoc="')
    assert html.unescape(shown.split('srcdoc="', 1)[1].split('" sandbox="allow-scripts"')[0]) == page
    assert repr(report) == f"Report({games.path}, version {games.version}: 25 tables)"


def test_the_command(games: a2store.Archive, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    done = run_command("report", games.path, "-o", out, "--where", "engine = 'greedy'", "--by", "format")
    assert re.fullmatch(rf"{re.escape(str(out))}: 25 tables, \d+\.\d\d [kM]B in \d+\.\d s\n", done.stdout), done.stdout
    data = data_of(out.read_text())
    assert (data["where"], data["by"]) == ("engine = 'greedy'", "format")
    assert {row[0] for row in data["results"]["archive_summary"]["rows"]} == {"a2t1", "a2run2"}
    # An existing file is replaced only with --overwrite, and not by a failed command.
    before = out.read_bytes()
    done = run_command("report", games.path, "-o", out, "--overwrite", "--compare", "greedy", "nobody", status=2)
    assert done.stderr == 'a2store: compare: expected an engine with runs, found "nobody"\n'
    assert out.read_bytes() == before
    done = run_command("report", games.path, "-o", out, status=2)
    assert done.stderr == f"a2store: -o {out}: the file exists: --overwrite replaces it\n"
    assert run_command("--quiet", "report", games.path, "-o", out, "--overwrite").stdout == ""
    assert data_of(out.read_text())["where"] is None
    done = run_command("report", games.path, "-o", games.path / "report.html", status=2)
    assert not (games.path / "report.html").exists()


def test_progress_counts_the_queries(reported: tuple[a2store.Report, Calls]) -> None:
    _, calls = reported
    assert (calls[-1]["what"], calls[-1]["unit"]) == ("report", "queries")
    assert calls[-1]["done"] == calls[-1]["total"] == 24
