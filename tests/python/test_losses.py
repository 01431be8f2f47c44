"""What an export loses: the warning with its counts, the table in docs/formats.md, and derived final boards."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import a2store
import formats
import oracle
from archives import ingested, run_command
from games import score
from oracle import Game
from trees import Games, write_tree

ALL = "SELECT run_id FROM runs"
WHOLE = f"{ALL} WHERE final_board IS NOT NULL"
DOCS = Path(__file__).parents[2] / "docs" / "formats.md"

WITH_VALUES = "run_id IN (SELECT run_id FROM steps WHERE coalesce(ev_up, ev_down, ev_left, ev_right) IS NOT NULL)"
CHOSEN = "CASE move WHEN 0 THEN ev_up WHEN 1 THEN ev_down WHEN 2 THEN ev_left ELSE ev_right END"
CONDITIONS = {
    "final boards": "final_board IS NOT NULL",
    "moves": "run_id NOT IN (SELECT run_id FROM steps WHERE move IS NULL)",
    "values": WITH_VALUES,
    "raw values": f"raw_evs AND {WITH_VALUES}",
    "exact values": WITH_VALUES,
    "values of chosen moves": WITH_VALUES,
    "raw values of chosen moves": "raw_evs AND run_id IN "
    f"(SELECT run_id FROM steps WHERE {CHOSEN} > 0.999999 AND {CHOSEN} <> 1)",
    "start times": "start_time IS NOT NULL",
    "durations": "elapsed_s <> 0",
    "scores": "true",
    "engine names": "engine <> ''",
    "seeds": "seed IS NOT NULL",
    "details of steps": "run_id IN (SELECT run_id FROM steps WHERE valuation_type IS NOT NULL)",
}
"""The runs that have each part, by a condition in SQL."""

LAYOUTS: dict[str, dict[str, Any]] = {
    "jsonl compact": {"format": "jsonl", "compact": True},
    "jsonl by step": {"format": "jsonl", "by_step": True},
}


def lost_parts() -> dict[str, dict[str, str]]:
    """Return the cells of the table in the documentation, by format and part."""
    text = DOCS.read_text().partition("## Losses\n")[2].partition("\n## ")[0]
    header, _, *lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")
    ]
    assert [part for part, *_ in lines] == list(CONDITIONS)
    cells: dict[str, dict[str, str]] = {}
    for place, names in enumerate(header[1:], 1):
        for name in names.split(", "):
            cells[name] = {line[0]: line[place] for line in lines}
    return cells


def count(archive: a2store.Archive, query: str, part: str) -> int:
    found = archive.sql(f"SELECT count(*) AS n FROM ({ALL} WHERE run_id IN ({query}) AND {CONDITIONS[part]})")
    number: int = pa.table(found)["n"][0].as_py()
    return number


def warned(call: Any, *args: Any, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*args, progress=False, **options)
    assert {warning.category for warning in caught} <= {UserWarning}
    return [str(warning.message) for warning in caught]


def text(name: str, counts: dict[str, int]) -> list[str]:
    parts = [f"the {part} of {number} {'run' if number == 1 else 'runs'}" for part, number in counts.items()]
    return [f"{name} loses {', '.join(parts)}"] if parts else []


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> a2store.Archive:
    """An archive of runs that together have every part."""
    folder = tmp_path_factory.mktemp("rich")
    tree = write_tree(folder / "tree", 43)
    return ingested(folder / "games.a2", [path for path, name in tree.sources.items() if name != "session"])


@pytest.mark.parametrize("name", list(lost_parts()))
def test_the_warning_counts_what_the_documented_table_says(rich: a2store.Archive, tmp_path: Path, name: str) -> None:
    query = f"{ALL} WHERE format IN ('a2t1', 'a2run2')" if name == "original" else WHOLE
    lost = {part: count(rich, query, part) for part, cell in lost_parts()[name].items() if cell and part != "moves"}
    assert all(lost.values()), lost
    said = warned(rich.export_runs, query, tmp_path / "out", **LAYOUTS.get(name, {"format": name}))
    # The parts are in the order of the format.
    expected = text(name.removesuffix(" compact"), lost)
    assert [sorted(re.split(", | loses ", line)) for line in said] == [
        sorted(re.split(", | loses ", line)) for line in expected
    ]


def test_compact_lines_keep_raw_values(rich: a2store.Archive, tmp_path: Path) -> None:
    assert "value" not in str(warned(rich.export_runs, ALL, tmp_path / "o", format="jsonl", by_step=True, compact=True))


def test_moves_are_lost_only_on_request(rich: a2store.Archive, tmp_path: Path) -> None:
    cell = lost_parts()["session"]["moves"]
    assert "moves=False" in cell
    (with_moves,) = warned(rich.export_runs, WHOLE, tmp_path / "moves", format="session")
    (without,) = warned(rich.export_runs, WHOLE, tmp_path / "boards", format="session", moves=False)
    lost = f"the moves of {count(rich, WHOLE, 'moves')} runs"
    assert (lost in with_moves, lost in without) == (False, True)
    assert formats.load_shards(tmp_path / "moves", [formats.SESSION_ROW_ACTION]).dtype == formats.SESSION_ROW_ACTION
    assert formats.load_shards(tmp_path / "boards", [formats.SESSION_ROW]).dtype == formats.SESSION_ROW


def test_a_session_without_moves_decides_for_all_runs(tmp_path: Path) -> None:
    games = Games(44).take(5)
    formats.write_session(tmp_path / "boards", games[:2])
    formats.write_pack(tmp_path / "others.a2pack", [formats.Payload(oracle.encode_a2run2(g), 2) for g in games[2:]])
    archive = ingested(tmp_path / "games.a2", [tmp_path / "boards", tmp_path / "others.a2pack"])
    (said,) = warned(archive.export_runs, ALL, tmp_path / "out", format="session")
    assert "the moves of 3 runs" in said
    assert formats.load_shards(tmp_path / "out", [formats.SESSION_ROW]).dtype == formats.SESSION_ROW
    # The moves of this session are derived from the boards, as before.
    query = f"{ALL} WHERE format = 'session'"
    assert warned(archive.export_runs, query, tmp_path / "same", format="session") == []
    with pytest.raises(ValueError, match="an unknown move at step"):
        archive.export_runs(query, tmp_path / "moves", format="session", moves=True, progress=False)


def test_a_conversion_warns_once(tmp_path: Path) -> None:
    games = [replace(game, start_unix_s=place) for place, game in enumerate(Games(45).take(3))]
    for place, game in enumerate(games):
        (tmp_path / f"{place}.a2run2").write_bytes(oracle.encode_a2run2(game))
    files = sorted(tmp_path.glob("*.a2run2"))
    lost = {"final boards": 3, "start times": 2, "durations": 3, "scores": 3}
    lost["engine names"] = sum(bool(game.engine) for game in games)
    (said,) = warned(a2store.convert, files, tmp_path / "steps.jsonl", format="jsonl", by_step=True)
    assert [said] == text("jsonl by step", lost)
    # A dataset of a dataset is a copy.
    (said,) = warned(a2store.convert, files, tmp_path / "one", format="npy")
    assert [said] == text("npy", {"final boards": 3, "values of chosen moves": 3})
    assert warned(a2store.convert, tmp_path / "one", tmp_path / "two", format="npy") == []
    assert len(warned(a2store.convert, tmp_path / "one", tmp_path / "1.dat", format="packdat")) == 1
    assert warned(a2store.convert, tmp_path / "1.dat", tmp_path / "2.dat", format="packdat") == []
    assert warned(a2store.convert, files, tmp_path / "copy.a2pack", format="a2pack") == []


def test_the_command_prints_one_warning(rich: a2store.Archive, tmp_path: Path) -> None:
    args = ("export", rich.path, "--where", "run_id < 2 AND final_board IS NOT NULL", "--format", "packdat")
    said = run_command(*args, "-o", tmp_path / "loud").stderr
    assert re.fullmatch(r"a2store: warning: packdat loses the final boards of 2 runs, .*\n", said)
    assert run_command("--quiet", *args, "-o", tmp_path / "quiet").stderr == ""


# Final boards


def is_determined(game: Game) -> bool:
    """Return whether the last move leaves one cell empty and the score differs from the score of the last step."""
    after = oracle.slide(game.boards[-1], game.moves[-1])
    return oracle.cells(after).count(0) == 1 and score(game.final_board) != score(game.boards[-1])


@pytest.fixture(scope="module")
def played() -> list[Game]:
    return [*Games(46).take(30, whole=True), *Games(47).take(5)]


def test_final_boards_that_the_score_determines_are_derived(played: list[Game], tmp_path: Path) -> None:
    formats.write_dataset(tmp_path / "dataset", played)
    archive = ingested(tmp_path / "games.a2", tmp_path / "dataset")
    assert pa.table(archive.sql(WHOLE)).num_rows == 0
    determined = [place for place, game in enumerate(played) if is_determined(game)]
    lacking = [place for place in range(len(played)) if place not in determined]
    assert len(determined) > 10
    assert len(lacking) > 4
    for name in ("a2t1", "a2run2", "a2pack", "jsonl"):
        out = tmp_path / name
        with pytest.raises(ValueError, match="whole games") as caught:
            archive.export_runs(ALL, out, format=name, progress=False)
        said = str(caught.value)
        assert f"{len(lacking)} runs without a final board" in said
        assert f"runs {', '.join(map(str, lacking[:10]))}{', …' if len(lacking) > 10 else ''}; " in said
        assert "final_board IS NOT NULL" in said
        assert not out.exists()
        report = archive.export_runs(ALL, out, format=name, on_error="skip", progress=False)
        assert (report.runs, len(report.errors)) == (len(determined), len(lacking))
        for place, error in zip(lacking, report.errors, strict=True):
            assert f"run {place};" in error.message
    files = [(tmp_path / "a2run2" / f"run-{place:08}.a2run2").read_bytes() for place in determined]
    found = [oracle.decode_a2run2(data) for data in files]
    assert [game.final_board for game in found] == [played[place].final_board for place in determined]
    lines = (tmp_path / "jsonl").read_text().splitlines()
    assert [json.loads(line)["final_board"] for line in lines] == [game.final_board for game in found]
    # A conversion does the same.
    report = a2store.convert(
        tmp_path / "dataset", tmp_path / "c.a2pack", format="a2pack", on_error="skip", progress=False
    )
    assert (report.runs, len(report.errors)) == (len(determined), len(lacking))
    runs = a2store.PackReader.open(tmp_path / "c.a2pack")
    assert [run.final_board for run in runs] == [played[place].final_board for place in determined]


# Skipped runs


def test_export_skips_runs_that_do_not_fit(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", 48)
    archive = ingested(tmp_path / "games.a2", tree.root)
    gaps = "SELECT run_id FROM steps GROUP BY run_id HAVING max(step_index) >= count(*) OR count(move) < count(*)"
    unfit = pa.table(archive.sql(f"{ALL} WHERE run_id IN ({gaps}) ORDER BY run_id"))["run_id"].to_pylist()
    assert 5 < len(unfit) < archive.num_runs
    report = archive.export_runs(ALL, tmp_path / "out", format="npy", on_error="skip", progress=False)
    assert report.runs == archive.num_runs - len(unfit)
    assert [int(re.findall(r"\brun (\d+)", error.message)[0]) for error in report.errors] == unfit
    assert {error.path for error in report.errors} == {archive.path}
    with pytest.raises(ValueError, match=rf"run {unfit[0]}\b"):
        archive.export_runs(ALL, tmp_path / "raised", format="npy", progress=False)
    with pytest.raises(ValueError, match="on_error"):
        archive.export_runs(ALL, tmp_path / "raised", format="npy", on_error="ignore")  # type: ignore[arg-type]
    # Runs of other formats have no original.
    args = ("export", archive.path, "--format", "original", "-o", tmp_path / "files", "--skip-errors", "--json")
    done = run_command(*args, status=1)
    files = pa.table(archive.sql(f"{ALL} WHERE format IN ('a2t1', 'a2run2')")).num_rows
    printed = json.loads(done.stdout)
    assert (printed["runs"], len(printed["errors"])) == (files, archive.num_runs - files)
    assert len([path for path in (tmp_path / "files").rglob("*") if path.is_file()]) == files
    assert len(done.stderr.splitlines()) == archive.num_runs - files
