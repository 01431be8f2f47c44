"""Real files of other tools, read by every reader, compared with facts from an independent decoder."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
import oracle
from compare import column
from oracle import EV_COLUMNS, Array, crc32c

Facts = dict[str, Any]

META = ("num_steps", "start_unix_s", "elapsed_s", "max_score", "highest_tile", "engine", "final_board")
NUM_FILES = 31


def step_facts(boards: Array, moves: Array, evs: Array, legal: Array, has_evs: Array) -> Facts:
    """Return a run's facts as in ``expected.json``: illegal moves count as 0.0, steps without values do not count."""
    facts: Facts = {
        "board_crc32c": crc32c(boards.astype("<u8").tobytes()),
        "moves": np.bincount(moves, minlength=4).tolist(),
        "steps_with_evs": int(has_evs.sum()),
    }
    if has_evs.any():
        facts["ev_crc32c"] = crc32c(evs[has_evs].astype("<f4").tobytes())
        facts["legal_mask_counts"] = dict(Counter(f"{mask:04b}" for mask in legal[has_evs].tolist()))
    return facts


def facts_of_rows(rows: Any) -> Facts:
    """Return the facts of the rows of one run, a ``pyarrow.Table`` with the columns of ``steps``."""
    evs = np.stack([np.nan_to_num(column(rows, name)) for name in EV_COLUMNS], axis=1)
    names = ("ev_legal", "has_evs")
    return step_facts(column(rows, "board"), column(rows, "move"), evs, *(column(rows, name) for name in names))


@pytest.fixture(scope="module")
def paths(fixtures: Path) -> list[Path]:
    paths = sorted(path for path in (fixtures / "runs").iterdir() if path.suffix in (".bin", ".a2run2"))
    assert len(paths) == NUM_FILES
    return paths


@pytest.fixture(scope="module")
def expected(fixtures: Path, paths: list[Path]) -> dict[str, Facts]:
    expected: dict[str, Facts] = json.loads((fixtures / "runs" / "expected.json").read_text())
    assert sorted(expected) == [path.name for path in paths]
    return {name: {**facts, "final_board": int(facts["final_board"], 16)} for name, facts in expected.items()}


@pytest.fixture(scope="module")
def expected_steps(expected: dict[str, Facts]) -> dict[str, Facts]:
    keys = ("board_crc32c", "moves", "steps_with_evs", "ev_crc32c", "legal_mask_counts")
    return {name: {key: facts[key] for key in keys if key in facts} for name, facts in expected.items()}


@pytest.fixture(scope="module")
def fixture_archive(paths: list[Path], tmp_path_factory: pytest.TempPathFactory) -> a2store.Archive:
    archive = a2store.Archive.create(tmp_path_factory.mktemp("fixtures") / "games.a2")
    report = archive.ingest(paths[0].parent, progress=False)
    assert (report.accepted, report.duplicates, report.rejected, len(report.ignored)) == (NUM_FILES, 0, 0, 1)
    return archive


@pytest.fixture(scope="module")
def names(fixture_archive: a2store.Archive) -> dict[int, str]:
    """Return the files' names by run id."""
    runs = pa.table(fixture_archive.sql("SELECT run_id, source FROM runs")).to_pydict()
    return {run_id: Path(source).name for run_id, source in zip(runs["run_id"], runs["source"], strict=True)}


def test_the_fixture_files_match_the_facts(paths: list[Path], expected: dict[str, Facts]) -> None:
    for path in paths:
        data = path.read_bytes()
        assert (len(data), crc32c(data)) == (expected[path.name]["bytes"], expected[path.name]["file_crc32c"])


def test_the_oracle_agrees_with_the_facts(paths: list[Path], expected: dict[str, Facts]) -> None:
    for path in paths:
        game = oracle.decode(path.read_bytes())
        columns = oracle.step_columns([game], (1024, 4096))
        evs = np.nan_to_num(np.stack([columns[name] for name in EV_COLUMNS], axis=1))
        facts = step_facts(columns["board"], columns["move"], evs, columns["ev_legal"], columns["has_evs"])
        meta = {"num_steps": len(game)} | {key: getattr(game, key) for key in META[1:]}
        assert {**meta, **facts} == {key: expected[path.name][key] for key in meta | facts}, path.name
        # The games obey the oracle's rules.
        states = [*game.boards, game.final_board]
        for before, move, after, mask in zip(states, game.moves, states[1:], columns["ev_legal"], strict=False):
            assert mask == oracle.legal_mask(before)
            assert oracle.spawns(oracle.slide(before, move), after)


def test_read_run(paths: list[Path], expected: dict[str, Facts], expected_steps: dict[str, Facts]) -> None:
    for path in paths:
        run = a2store.read_run(path)
        assert run.to_bytes() == path.read_bytes(), path.name
        meta = {key: getattr(run.meta, key) for key in META[:-1]} | {"final_board": run.final_board}
        assert meta == {key: expected[path.name][key] for key in META}, path.name
        assert run.meta.format == expected[path.name]["format"]
        assert run.verify() is None
        legal = run.ev_legal @ np.array([1, 2, 4, 8], "u1")
        found = step_facts(run.boards, run.moves, run.ev_values, legal, run.has_evs)
        assert found == expected_steps[path.name], path.name


def test_sql(fixture_archive: a2store.Archive, names: dict[int, str], expected_steps: dict[str, Facts]) -> None:
    found = {
        name: facts_of_rows(pa.table(fixture_archive.sql("SELECT * FROM steps WHERE run_id = $id", {"id": run_id})))
        for run_id, name in names.items()
    }
    assert found == expected_steps


def test_sql_over_runs(fixture_archive: a2store.Archive, expected: dict[str, Facts]) -> None:
    rows = pa.table(fixture_archive.sql("SELECT * FROM runs")).to_pylist()
    assert [row["run_id"] for row in rows] == list(range(NUM_FILES))
    found = {}
    for row in rows:
        assert row["verified"] is True
        row["start_unix_s"] = row["start_time"].timestamp()
        found[Path(row["source"]).name] = {key: row[key] for key in (*META, "format")}
    assert found == {name: {key: facts[key] for key in (*META, "format")} for name, facts in expected.items()}


def test_take(fixture_archive: a2store.Archive, names: dict[int, str], expected_steps: dict[str, Facts]) -> None:
    table = fixture_archive.sql("SELECT * FROM steps").materialize(progress=False, extra=["has_evs"])
    run_ids = np.asarray(table)["run_id"]
    found = {}
    for run_id, name in names.items():
        # In reverse order, so that the order of the indices matters.
        batch = table.take(np.flatnonzero(run_ids == run_id)[::-1])
        legal = batch.ev_legal @ np.array([1, 2, 4, 8], "u1")
        columns = (batch.board, batch.move, batch.ev_values, legal, batch["has_evs"])
        found[name] = step_facts(*(values[::-1] for values in columns))
        np.testing.assert_array_equal(batch.step_index[::-1], np.arange(len(batch)))
        np.testing.assert_array_equal(batch.tokens, oracle.tokens(batch.board))
    assert found == expected_steps


def test_masks_of_runs_without_values_follow_the_rules(
    fixture_archive: a2store.Archive, paths: list[Path], names: dict[int, str]
) -> None:
    rows = pa.table(fixture_archive.sql("SELECT run_id, board, ev_legal FROM steps WHERE NOT has_evs"))
    boards = column(rows, "board").tolist()
    assert len(boards) > 8_000
    assert column(rows, "ev_legal").tolist() == [oracle.legal_mask(board) for board in boards]
    without = {names[run_id] for run_id in set(column(rows, "run_id").tolist())}
    assert {path.name for path in paths if path.suffix == ".bin"} < without
