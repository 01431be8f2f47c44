"""Datasets and pack.dat files to which other programs have appended runs."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import struct
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

import a2store
import formats
from archives import first_ingest, run_command
from games import play
from oracle import Branches, Game, crc32c, encode_a2run2


@pytest.fixture(scope="module")
def games() -> list[Game]:
    rng = random.Random(8)
    return [play(rng, rng.choice([1, 30, 90])) for _ in range(9)]


def outdate(folder: Path, num_runs: int, games: list[Game]) -> None:
    """Write the manifest of the first runs."""
    facts = {"version": 1, "num_steps": sum(map(len, games[:num_runs])), "num_runs": num_runs, "created": 0}
    (folder / "manifest.json").write_text(json.dumps(facts))


def boards_of(archive: a2store.Archive) -> list[int]:
    steps = pa.table(archive.sql("SELECT board FROM steps ORDER BY run_id, step_index"))
    return list(steps["board"].to_pylist())


def test_a_dataset_with_an_outdated_manifest(games: list[Game], tmp_path: Path) -> None:
    folder = tmp_path / "set"
    formats.write_dataset(folder, games, appended=4)
    outdate(folder, 5, games)
    archive = a2store.Archive.create(tmp_path / "games.a2")
    rows, before = sum(map(len, games)), sum(map(len, games[:5]))
    message = f"manifest.json: num_steps of the manifest: expected {rows}, the number of rows, found {before}"
    with pytest.warns(UserWarning, match=message):
        report = archive.ingest(folder, progress=False)
    assert (report.errors, report.accepted) == ([], len(games))
    boards = [board for game in games for board in game.boards]
    assert boards_of(archive) == boards
    with pytest.warns(UserWarning, match=message):
        table = a2store.StepTable.from_runs(folder, progress=False)
    assert np.asarray(table)["board"].tolist() == boards
    with pytest.warns(UserWarning, match=message):
        a2store.convert(folder, tmp_path / "copy", format="npy", progress=False)

    done = run_command("ingest", folder, tmp_path / "command.a2")
    assert done.stderr.count("a2store: warning: ") == 1
    assert message in done.stderr
    assert run_command("--quiet", "ingest", folder, tmp_path / "quiet.a2").stderr == ""


@pytest.mark.parametrize("statement", ["UPDATE runs SET num_steps = num_steps + 1", "DELETE FROM runs WHERE id = 8"])
def test_an_outdated_manifest_and_files_that_disagree(games: list[Game], tmp_path: Path, statement: str) -> None:
    folder = tmp_path / "set"
    formats.write_dataset(folder, games)
    outdate(folder, 5, games)
    formats.execute(folder / "metadata.db", statement)
    _, report = first_ingest(tmp_path / "games.a2", folder)
    assert (report.accepted, len(report.errors)) == (0, 1)
    assert "num_steps of the manifest" in report.errors[0].message


def metas(data: bytearray) -> list[tuple[int, int]]:
    """Return the offset of each run's metadata in a pack.dat, and its number of steps."""
    num_runs, at = struct.unpack_from("<I8xQ", data, 8)
    found = []
    for _ in range(num_runs):
        found.append((at, struct.unpack_from("<I", data, at + 8)[0]))
        at += 38 + struct.unpack_from("<H", data, at + 24)[0]
    return found


def save_pack_dat(path: Path, data: bytearray) -> None:
    data[-4:] = struct.pack("<I", crc32c(bytes(data[:-4])))
    path.write_bytes(data)


def test_a_pack_dat_whose_appended_runs_have_wrong_places(games: list[Game], tmp_path: Path) -> None:
    path = tmp_path / "pack.dat"
    formats.write_pack_dat(path, games)
    data = bytearray(path.read_bytes())
    before = sum(map(len, games[:5]))
    for offset, _ in metas(data)[5:]:
        # Another writer of this format adds the number of steps before the appended ones twice.
        (first,) = struct.unpack_from("<I", data, offset + 4)
        struct.pack_into("<I", data, offset + 4, first + before)
    save_pack_dat(path, data)
    archive, report = first_ingest(tmp_path / "games.a2", path)
    assert (report.errors, report.accepted) == ([], len(games))
    assert boards_of(archive) == [board for game in games for board in game.boards]
    # A copy has the right places.
    a2store.convert(path, tmp_path / "copy.dat", format="packdat", progress=False)
    formats.write_pack_dat(tmp_path / "right.dat", games)
    assert (tmp_path / "copy.dat").read_bytes() == (tmp_path / "right.dat").read_bytes()


@pytest.mark.parametrize("start", [2**63 // 1000 + 1, 2**64 - 1])
@pytest.mark.parametrize("kind", ["packdat", "npy"])
def test_a_start_beyond_the_calendar(
    games: list[Game], tmp_path: Path, start: int, kind: Literal["packdat", "npy"]
) -> None:
    changed = [dataclasses.replace(game, start_unix_s=start if number == 2 else 9) for number, game in enumerate(games)]
    write = formats.write_pack_dat if kind == "packdat" else formats.write_dataset
    write(tmp_path / "in", changed)
    archive, report = first_ingest(tmp_path / "games.a2", tmp_path / "in")
    assert (report.errors, report.accepted) == ([], len(games))
    starts = pa.table(archive.sql("SELECT start_time FROM runs ORDER BY run_id"))["start_time"].to_pylist()
    assert [start and start.timestamp() for start in starts] == [None if k == 2 else 9 for k in range(len(games))]
    assert archive.ingest(tmp_path / "in", progress=False).duplicates == len(games)
    assert archive.verify(progress=False).problems == []
    # A conversion keeps the number.
    a2store.convert(tmp_path / "in", tmp_path / "copy", format=kind, progress=False)
    if kind == "packdat":
        assert (tmp_path / "copy").read_bytes() == (tmp_path / "in").read_bytes()
    else:
        assert formats.read_dataset(tmp_path / "copy") == formats.read_dataset(tmp_path / "in")
        assert [row[0] for row in formats.query(tmp_path / "copy" / "metadata.db", "SELECT start_time FROM runs")] == [
            (start + 2**63) % 2**64 - 2**63 if number == 2 else 9 for number in range(len(games))
        ]


def test_values_outside_the_range_are_clamped(games: list[Game], tmp_path: Path) -> None:
    game = max(games, key=len)
    odd = [-1.0, -0.0, 1.5, 3e38, math.nan, math.inf, -math.inf, 0.25, 1.0, 0.49999997, 7.6e-06, 1e-45]
    rng = random.Random(3)

    def drawn(values: Branches | None) -> Branches:
        assert values is not None
        one, two, three, four = (None if value is None else rng.choice(odd) for value in values)
        return one, two, three, four

    changed = dataclasses.replace(game, branches=tuple(map(drawn, game.branches)), engine="odd")
    (tmp_path / "run.a2run2").write_bytes(encode_a2run2(changed))
    a2store.convert(tmp_path / "run.a2run2", tmp_path / "pack.dat", format="packdat", progress=False)
    data = (tmp_path / "pack.dat").read_bytes()
    rows = np.frombuffer(data, formats.PACK_ROW, len(game), 28)
    for row, move, values in zip(rows, changed.moves, changed.branches, strict=True):
        for direction, value in enumerate(values or ()):
            if value is None or not math.isfinite(value):
                value = 0.0
            stored = np.floor(np.float32(min(max(value, 0.0), 1.0)) * np.float32(65535) + np.float32(0.5))
            legal = values is not None and values[direction] is not None
            assert row["ev_q"][direction] == (65535 if direction == move else stored if legal else 0)


@pytest.mark.parametrize("kind", ["session", "pack.dat"])
def test_rows_that_belong_to_no_run(games: list[Game], tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "session":
        formats.write_session(path, games)
        formats.execute(path / "metadata.db", "DELETE FROM runs WHERE id IN (1003, 1007)")
        lost = [3, 7]
        message = (
            f"{len(games[3]) + len(games[7])} rows are ignored, because metadata.db lacks their run 1003 and 1 others"
        )
    else:
        formats.write_pack_dat(path, games)
        data = bytearray(path.read_bytes())
        place = metas(data)[-1][0] + 8
        struct.pack_into("<I", data, place, len(games[-1]) - 1)
        save_pack_dat(path, data)
        lost = []
        message = "1 rows are ignored, because they belong to no run"
    archive = a2store.Archive.create(tmp_path / "games.a2")
    with pytest.warns(UserWarning, match=message):
        report = archive.ingest(path, progress=False)
    assert (report.errors, report.accepted) == ([], len(games) - len(lost))
    if kind == "session":
        with pytest.warns(UserWarning, match=message):
            table = a2store.StepTable.from_session(path, progress=False)
        assert len(table) == sum(map(len, games)) - len(games[3]) - len(games[7])


@pytest.mark.parametrize("format_name", ["npy", "packdat", "session", "a2t1", "a2pack", "jsonl"])
def test_runs_that_the_format_cannot_hold_are_skipped(games: list[Game], tmp_path: Path, format_name: Any) -> None:
    """Runs with an engine name of more than 65,535 bytes, or with a seed that sessions do not store."""
    source = tmp_path / "in"
    source.mkdir()
    named = [dataclasses.replace(game, engine="x" * 70_000 if k in (2, 5) else "e") for k, game in enumerate(games)]
    for number, game in enumerate(named):
        (source / f"{number}.a2run2").write_bytes(encode_a2run2(game))
    report = a2store.convert(
        source,
        tmp_path / "out",
        format=format_name,
        progress=False,
        on_error="skip",
        moves=True if format_name == "session" else None,
    )
    bad = [] if format_name in ("session", "a2pack", "jsonl") else [2, 5]
    assert [error.path.name for error in report.errors] == [f"{k}.a2run2" for k in bad]
    assert all("at most 65535 bytes" in error.message for error in report.errors)
    assert report.runs == len(games) - len(bad)
    if format_name != "jsonl":
        kept = [board for k, game in enumerate(games) if k not in bad for board in game.boards]
        table = a2store.StepTable.from_runs(tmp_path / "out", progress=False)
        assert np.asarray(table)["board"].tolist() == kept
