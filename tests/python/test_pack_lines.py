"""Packs as JSON Lines: the bytes of the existing tool, and a compact form for DuckDB and pyarrow."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.json
import pytest

import a2store
import formats
import logs
import packs
from formats import Payload
from oracle import Game, crc32c

NUM_RUNS = 23
WAYS: list[dict[str, Any]] = [{}, {"parallel": False}, {"workers": 1}, {"workers": 2}, {"workers": 5}]


@pytest.fixture(scope="module")
def games() -> list[Game]:
    # Two runs have more steps than are written in one chunk.
    return [*packs.make_games(3, NUM_RUNS - 2), *packs.make_games(4, 4, most_steps=3000)[2:]]


@pytest.fixture(scope="module")
def payloads(games: list[Game]) -> list[Payload]:
    return packs.payloads_of(games)


@pytest.fixture(scope="module")
def pack(payloads: list[Payload], tmp_path_factory: pytest.TempPathFactory) -> a2store.PackReader:
    path = tmp_path_factory.mktemp("packs") / "runs.a2pack"
    formats.write_pack(path, payloads)
    return a2store.PackReader.open(path)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def uuid_of(payload: Payload, index: int) -> str:
    return f"a2r-{crc32c(payload.data):08x}-{index:08x}"


# The form of the existing tool


@pytest.mark.parametrize("by_step", [False, True])
@pytest.mark.parametrize("options", WAYS)
def test_bytes_of_the_existing_tool(fixtures: Path, tmp_path: Path, by_step: bool, options: dict[str, Any]) -> None:
    expected = fixtures / "jsonl" / ("two.steps.jsonl" if by_step else "two.runs.jsonl")
    pack = a2store.PackReader.open(fixtures / "jsonl" / "two.a2pack")
    report = pack.to_jsonl(tmp_path / "out.jsonl", by_step=by_step, progress=False, **options)
    assert (tmp_path / "out.jsonl").read_bytes() == expected.read_bytes()
    num_steps = sum(map(len, pack))
    assert (report.num_runs, report.num_steps, report.errors) == (2, num_steps, [])
    assert report.num_bytes == expected.stat().st_size


def test_lines_equal_the_runs(
    pack: a2store.PackReader, payloads: list[Payload], games: list[Game], tmp_path: Path
) -> None:
    files: dict[bool, set[bytes]] = {False: set(), True: set()}
    for by_step, seen in files.items():
        for options in WAYS:
            report = pack.to_jsonl(tmp_path / "out", by_step=by_step, progress=False, **options)
            assert (report.num_runs, report.num_steps) == (NUM_RUNS, sum(map(len, games)))
            seen.add((tmp_path / "out").read_bytes())
        assert len(seen) == 1
        if by_step:
            logs.check_steps_jsonl(tmp_path / "out", [payload.data for payload in payloads])
        else:
            logs.check_runs_jsonl(tmp_path / "out", games)


# The compact form


def test_compact_steps_have_stored_values(
    pack: a2store.PackReader, payloads: list[Payload], games: list[Game], tmp_path: Path
) -> None:
    pack.to_jsonl(tmp_path / "out", by_step=True, compact=True, progress=False)
    found = iter(lines(tmp_path / "out"))
    for index, game in enumerate(packs.as_packed(games)):
        for step, (board, move, values) in enumerate(zip(game.boards, game.moves, game.branches, strict=True)):
            line = next(found)
            line["branches"] = [None if value is None else float(np.float32(value)) for value in line["branches"]]
            assert line == {
                "run_idx": index,
                "run_uuid": uuid_of(payloads[index], index),
                "step_idx": step,
                "pre_board": board,
                "chosen": logs.MOVES[move].upper(),
                "branches": list(values or [None] * 4),
            }
    assert next(found, None) is None


def test_compact_runs_name_their_engine(
    pack: a2store.PackReader, payloads: list[Payload], games: list[Game], tmp_path: Path
) -> None:
    pack.to_jsonl(tmp_path / "out", compact=True, progress=False)
    found = lines(tmp_path / "out")
    assert len(found) == NUM_RUNS
    for index, (line, game) in enumerate(zip(found, packs.as_packed(games), strict=True)):
        assert (line["run_idx"], line["run_uuid"]) == (index, uuid_of(payloads[index], index))
        assert (line["engine"], line["steps"], line["final_board"]) == (game.engine, len(game), game.final_board)
        assert line["states"] == [*game.boards, game.final_board]
    assert {line["engine"] for line in found} == {None, "plain", "γάμμα", ""}


def test_duckdb_reads_compact_lines_directly(pack: a2store.PackReader, games: list[Game], tmp_path: Path) -> None:
    """Boards are read as integers, even if some have the highest bit set; as UBIGINT on request."""
    high = replace(games[2], boards=tuple(board | 15 << 60 for board in games[2].boards))
    for name, some in {"low": games, "high": [*games[:2], high, *games[3:]], "only": [high]}.items():
        formats.write_pack(tmp_path / name, packs.payloads_of(some))
        steps, runs = tmp_path / "steps.jsonl", tmp_path / "runs.jsonl"
        packed = a2store.PackReader.open(tmp_path / name)
        packed.to_jsonl(steps, by_step=True, compact=True, progress=False)
        packed.to_jsonl(runs, compact=True, progress=False)
        boards = [board for game in some for board in game.boards]
        values = [list(step or [None] * 4) for game in packs.as_packed(some) for step in game.branches]
        with duckdb.connect() as connection:
            relation = connection.read_json(str(steps))
            types = dict(zip(relation.columns, map(str, relation.types), strict=True))
            assert types["pre_board"] in (["BIGINT", "UBIGINT"] if name == "low" else ["UBIGINT", "HUGEINT"])
            assert (types["branches"], types["chosen"]) == ("DOUBLE[]", "VARCHAR")
            columns = "{'pre_board': 'UBIGINT', 'branches': 'FLOAT[]', 'run_idx': 'UINTEGER', 'step_idx': 'UINTEGER'}"
            for options in ("", f", columns={columns}"):
                rows = connection.execute(
                    f"SELECT pre_board, branches::FLOAT[] FROM read_json('{steps}'{options}) ORDER BY run_idx, step_idx"
                ).fetchall()
                assert [row[0] for row in rows] == boards
                assert [row[1] for row in rows] == values
            finals = connection.execute(f"SELECT final_board, states FROM read_json('{runs}') ORDER BY run_idx")
            assert finals.fetchall() == [(game.final_board, [*game.boards, game.final_board]) for game in some]
    assert len(pack) == NUM_RUNS


def test_pyarrow_reads_compact_lines_with_a_schema(pack: a2store.PackReader, games: list[Game], tmp_path: Path) -> None:
    pack.to_jsonl(tmp_path / "out", by_step=True, compact=True, progress=False)
    schema = pa.schema([("pre_board", pa.uint64()), ("branches", pa.list_(pa.float32()))])
    table = pyarrow.json.read_json(tmp_path / "out", parse_options=pyarrow.json.ParseOptions(explicit_schema=schema))
    packed = packs.as_packed(games)
    assert table["pre_board"].to_pylist() == [board for game in packed for board in game.boards]
    assert table["branches"].type == pa.list_(pa.float32())
    assert table["branches"].to_pylist() == [list(step or [None] * 4) for game in packed for step in game.branches]


# The file


def test_damaged_runs_are_skipped_and_the_others_keep_their_numbers(
    payloads: list[Payload], games: list[Game], tmp_path: Path
) -> None:
    path, out = tmp_path / "a.a2pack", tmp_path / "out"
    formats.write_pack(path, payloads)
    offset, length = packs.entry(path, 4)
    packs.flip(path, offset + length // 2)
    pack = a2store.PackReader.open(path)
    for options in WAYS:
        report = pack.to_jsonl(out, progress=False, **options)
        assert [line["run_idx"] for line in lines(out)] == [index for index in range(NUM_RUNS) if index != 4]
        assert (report.num_runs, len(report.errors)) == (NUM_RUNS - 1, 1)
        assert report.num_steps == sum(map(len, games)) - len(games[4])
        assert str(path) in report.errors[0]
        report = pack.to_jsonl(out, by_step=True, progress=False, **options)
        found = lines(out)
        assert {line["run_idx"] for line in found} == {index for index, game in enumerate(games) if game.boards} - {4}
        assert (len(found), report.num_bytes) == (report.num_steps, out.stat().st_size)


def test_the_file_is_replaced_atomically(pack: a2store.PackReader, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("old")
    pack.to_jsonl(str(out), progress=False)
    assert len(lines(out)) == NUM_RUNS
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]
    with pytest.raises(FileNotFoundError):
        pack.to_jsonl(tmp_path / "absent" / "out.jsonl", progress=False)
    with pytest.raises(OSError, match="irectory"):
        pack.to_jsonl(tmp_path, progress=False)
    with pytest.raises(ValueError, match="workers"):
        pack.to_jsonl(tmp_path / "other", workers=0, progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_lines_go_through_a_pipe(pack: a2store.PackReader, tmp_path: Path) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    # The pipe has room for everything, so no process waits.
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    small = tmp_path / "small.a2pack"
    formats.write_pack(small, packs.payloads_of(packs.make_games(5, 4)[:2]))
    report = a2store.PackReader.open(small).to_jsonl(fifo, progress=False)
    data = os.read(reader, 1 << 16)
    os.close(reader)
    assert (len(data), data.count(b"\n")) == (report.num_bytes, 2)
    assert len(pack) == NUM_RUNS


def test_numbers_outside_json_are_null_in_the_compact_form(games: list[Game], tmp_path: Path) -> None:
    values = (float("nan"), float("inf"), -0.0, None)
    game = replace(games[0], boards=games[2].boards[:1], moves=(2,), branches=(values,), elapsed_s=float("nan"))
    formats.write_pack(tmp_path / "a.a2pack", packs.payloads_of([game]))
    pack = a2store.PackReader.open(tmp_path / "a.a2pack")
    assert pack.to_jsonl(tmp_path / "out", by_step=True, compact=True, progress=False).errors == []
    assert lines(tmp_path / "out")[0]["branches"] == [None, None, 0.0, None]
    assert pack.to_jsonl(tmp_path / "out", compact=True, progress=False).errors == []
    assert lines(tmp_path / "out")[0]["elapsed_s"] is None
