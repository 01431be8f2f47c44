"""Forged manifests and data files with correct checksums: verification finds each forgery."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import oracle
from archives import (
    Table,
    copied,
    data_files,
    forge,
    forge_data,
    found,
    grow,
    manifest_name,
    short_games,
    with_values,
)

Change = Callable[[Any], Any]
SCORE = 0x0123456789AB
"""A maximum whose bytes occur nowhere else in the file."""


@pytest.fixture(scope="module")
def template(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of three versions with two runs each.

    The third version has a run with an original and a run that breaks the rules.
    """
    folder = tmp_path_factory.mktemp("small")
    games = short_games(folder / "whole", 8)
    boards = (games[6].boards[0] ^ 0xF, *games[6].boards[1:])
    odd = [replace(games[6], boards=boards, max_score=SCORE), replace(games[7], start_unix_s=2**64 - 1)]
    for index, game in enumerate(odd):
        (folder / f"{index}.a2run2").write_bytes(oracle.encode_a2run2(game))
    groups = [runs[:2], runs[2:4], sorted(folder.glob("*.a2run2"))]
    return Path(grow(folder / "games.a2", groups).path)


def entry(fields: dict[str, Any], table: str) -> Any:
    """Return the last file of a table."""
    return [entry for entry in fields["files"] if entry["table"] == table][-1]


FORGERIES: list[tuple[str, Callable[[dict[str, Any]], object], str]] = [
    ("num_runs", lambda fields: fields.update(num_runs=5), "num_runs"),
    ("num_steps", lambda fields: fields.update(num_steps=fields["num_steps"] + 1), "num_steps"),
    ("next_run_id", lambda fields: fields.update(next_run_id=1), "next_run_id"),
    ("archive_id", lambda fields: fields.update(archive_id="0" * 32), "archive_id"),
    ("added_runs", lambda fields: fields.update(added_runs=7), "added_runs"),
    ("added_files", lambda fields: fields.update(added_files=7), "added_files"),
    ("phases", lambda fields: fields.update(phases={"mid": 2, "late": 4}), "phases"),
    ("version", lambda fields: fields.update(version=7), "version"),
    ("parent", lambda fields: fields.update(parent="0" * 32), "parent"),
    ("fields", lambda fields: fields.pop("txn"), "manifest"),
    ("operation", lambda fields: fields.update(operation="explode"), "manifest"),
]


@pytest.mark.parametrize(("change", "what"), [case[1:] for case in FORGERIES], ids=[c[0] for c in FORGERIES])
def test_forged_manifests(path: Path, change: Callable[[dict[str, Any]], object], what: str) -> None:
    forge(path, 3, change)
    assert (manifest_name(3), None, what) in found(path)


FORGED_ENTRIES: list[tuple[dict[str, object], str]] = [
    ({"first_run_id": 1}, "run ids"),
    ({"last_run_id": 9}, "run ids"),
    ({"num_rows": 7}, "number of rows"),
    ({"num_bytes": 7}, "length of the file"),
    ({"crc32c": "00000000"}, "CRC32C of the file"),
    ({"row_groups": [1, 1]}, "rows of the row groups"),
]


@pytest.mark.parametrize(("change", "what"), FORGED_ENTRIES, ids=[next(iter(c[0])) for c in FORGED_ENTRIES])
@pytest.mark.parametrize("table", ["steps", "runs"])
def test_forged_facts_about_files(path: Path, table: Table, change: dict[str, object], what: str) -> None:
    name = data_files(path, table)[-1]
    forge(path, 4, lambda fields: entry(fields, table).update(change))
    assert (name, None, what) in found(path)


def test_a_file_that_is_listed_twice(path: Path) -> None:
    forge(path, 4, lambda fields: fields["files"].append(entry(fields, "runs")))
    assert manifest_name(4) in {name for name, _, _ in found(path)}


# Data


def changed(column: str, row: int, change: Change) -> Change:
    def apply(table: Any) -> Any:
        values = table[column].to_pylist()
        values[row] = change(values[row])
        return with_values(table, column, values)

    return apply


def everywhere(column: str, value: object) -> Change:
    return lambda table: with_values(table, column, [value] * len(table))


def without(*rows: int) -> Change:
    return lambda table: table.take([index for index in range(len(table)) if index not in rows])


def other_move(table: Any) -> Any:
    """Replace the move at step 5 by another legal move, so that the next board does not follow from it."""
    row = table.slice(5, 1).to_pylist()[0]
    legal = [move for move in range(4) if row["ev_legal"] >> move & 1 and move != row["move"]]
    return changed("move", 5, lambda _: legal[0])(table)


def other_board(table: Any) -> Any:
    """Swap two tiles of the board at step 5; the largest tile stays the same."""

    def exchange(board: int) -> int:
        cells = oracle.cells(board)
        tile = next(cell for cell in range(16) if cells[cell] != cells[15])
        cells[tile], cells[15] = cells[15], cells[tile]
        return oracle.packed(cells)

    return changed("board", 5, exchange)(table)


def value(table: Any, row: int) -> tuple[str, float]:
    """Return the first non-null value at a step."""
    found = table.slice(row, 1).to_pylist()[0]
    name = next(name for name in oracle.EV_COLUMNS if found[name] is not None)
    return name, found[name]


# Derived columns, in the first run of version 2 (id 0) or of version 3.
STEPS: dict[str, tuple[Change, int | None, str]] = {
    "max_exp": (changed("max_exp", 3, lambda exp: exp + 1), 2, "max_exp"),
    "phase": (changed("phase", 3, lambda phase: "late" if phase != "late" else "mid"), 2, "phase"),
    "move": (changed("move", 3, lambda _: 4), 2, "move"),
    "score once": (changed("max_score", 3, lambda score: score + 1), 2, "max_score"),
    "score": (everywhere("max_score", 5), 2, "max_score"),
    "tile": (everywhere("highest_tile", 4), 2, "highest_tile"),
    "engine": (everywhere("engine", "others"), 2, "engine"),
    "engine null": (everywhere("engine", None), 3, "engine"),
    "num_steps": (everywhere("num_steps", 21), 2, "num_steps"),
    "first step": (without(0), 2, "step_index"),
    "a step": (without(7), 2, "step_index"),
    "last step": (without(19), 2, "number of steps"),
    "a run": (without(*range(20, 40)), 3, "steps of the run"),
    "a run twice": (lambda table: pa.concat_tables([table, table.slice(20)]), 3, "order of rows"),
    "order": (lambda table: pa.concat_tables([table.slice(20), table.slice(0, 20)]), 2, "order of rows"),
    "index": (changed("step_index", 7, lambda _: 0), 2, "order of rows"),
    "another run": (changed("run_id", 39, lambda _: 9), 9, "run"),
}


@pytest.mark.parametrize("name", STEPS)
def test_forged_steps(path: Path, name: str) -> None:
    change, run_id, what = STEPS[name]
    file = forge_data(path, 3, "steps", change)
    seen = {(each, number if run_id is not None else None, which) for each, number, which in found(path)}
    runs_file = data_files(path, "runs")[1]
    assert {(file, run_id, what), (runs_file, run_id, what)} & seen, seen


def test_steps_with_values_that_has_evs_denies(path: Path) -> None:
    file = forge_data(path, 3, "steps", changed("has_evs", 3, lambda has: not has))
    assert {(file, 2, name) for name in oracle.EV_COLUMNS} & found(path)


def test_a_file_rewritten_by_another_writer_is_valid(path: Path) -> None:
    """Verification detects wrong content, not a different writer program."""
    for version in (2, 3, 4):
        for table in ("steps", "runs"):
            forge_data(path, version, table, lambda table: table)
    assert found(path) == set()


OTHER_STEPS: dict[str, Change] = {
    "board": other_board,
    "value": lambda table: changed(value(table, 5)[0], 5, lambda ev: ev + 1)(table),
    "spawn": changed("board", 19, lambda board: board ^ (1 << 60)),
}


@pytest.mark.parametrize("name", OTHER_STEPS)
def test_steps_of_another_game(path: Path, name: str) -> None:
    file = forge_data(path, 2, "steps", OTHER_STEPS[name])
    wrong = {what for each, run_id, what in found(path) if (each, run_id) == (file, 0)}
    assert wrong & {"digest", "trajectory", "max_exp"}


def test_the_wrong_move_breaks_the_rules(path: Path) -> None:
    file = forge_data(path, 2, "steps", other_move)
    assert (file, 0, "trajectory") in found(path)


# In the runs of version 4: run 4 breaks the rules, and run 5 has its original file.
RUNS: dict[str, tuple[Change, int | None, str]] = {
    "verified": (changed("verified", 1, lambda _: False), 5, "trajectory"),
    "not verified": (changed("verified", 0, lambda _: True), 4, "trajectory"),
    "digest": (changed("digest", 0, lambda digest: digest[:-1] + b"!"), 4, "digest"),
    "digest of an original": (
        changed("digest", 1, lambda digest: digest[:-1] + b"!"),
        5,
        "digest of the original",
    ),
    "original": (changed("original", 1, lambda data: data[:-1] + b"!"), 5, "digest of the original"),
    "no original": (changed("original", 1, lambda _: None), 5, "digest"),
    "final board": (changed("final_board", 0, lambda board: board ^ 1), 4, "digest"),
    "elapsed_s": (changed("elapsed_s", 0, lambda secs: secs + 1), 4, "digest"),
    "start_time": (changed("start_time", 0, lambda _: None), 4, "digest"),
    "format": (changed("format", 0, lambda _: "chess"), 4, "format"),
    "score": (changed("max_score", 0, lambda score: score + 1), 4, "max_score"),
    "num_steps": (changed("num_steps", 0, lambda steps: steps + 1), 4, "number of steps"),
    "no steps": (changed("num_steps", 0, lambda _: 0), 4, "steps of the run"),
    "engine": (changed("engine", 0, lambda _: "others"), 4, "engine"),
    "the same digest": (lambda table: everywhere("digest", table["digest"][0].as_py())(table), 5, "digest"),
    "a run": (without(1), 5, "run"),
    "a run twice": (lambda table: pa.concat_tables([table, table.slice(1)]), 5, "order of rows"),
    "order": (lambda table: table.take([1, 0]), 4, "order of rows"),
    "an id": (changed("run_id", 1, lambda _: 77), 77, "run id"),
}


@pytest.mark.parametrize("name", RUNS)
def test_forged_runs(path: Path, name: str) -> None:
    change, run_id, what = RUNS[name]
    file = forge_data(path, 4, "runs", change)
    seen = found(path)
    assert (run_id, what) in {(number, each) for _, number, each in seen}, seen
    assert {each for each, _, _ in seen} & {file, data_files(path, "steps")[2]}


def test_columns_of_another_type(template: Path, path: Path, tmp_path: Path) -> None:
    def retyped(table: Any) -> Any:
        at = table.column_names.index("max_score")
        return table.set_column(at, "max_score", table["max_score"].cast(pa.uint64()))

    file = forge_data(path, 3, "steps", retyped)
    assert (file, None, "type of column max_score") in found(path)
    for column in ("board", "engine"):
        path = copied(template, tmp_path / "games.a2")
        file = forge_data(path, 3, "steps", lambda table, column=column: table.drop_columns([column]))  # type: ignore[misc]
        assert (file, None, "columns") in found(path)
