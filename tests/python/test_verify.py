"""Verification: an intact archive has no problems, and no damage at any place is missed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

import a2store
import oracle
from archives import (
    GOLDEN,
    Table,
    contents,
    copied,
    data_files,
    found,
    grow,
    manifest_name,
    names,
    run_command,
    short_games,
)
from faults.checks import LONG

POSITIONS = 100


@pytest.fixture(scope="module")
def template(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three versions with two runs each."""
    return Path(grow(tmp_path_factory.mktemp("small") / "games.a2", [runs[:2], runs[2:4], runs[4:6]]).path)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valid run, one that breaks the rules, one whose file the columns cannot reproduce, and one without steps."""
    folder = tmp_path_factory.mktemp("odd")
    games = short_games(folder / "whole", 8)
    boards = (games[1].boards[0] ^ 0xF, *games[1].boards[1:])
    data = [
        oracle.encode_a2run2(games[0]),
        oracle.encode_a2run2(replace(games[1], boards=boards)),
        oracle.encode_a2run2(replace(games[2], start_unix_s=2**64 - 1)),
        oracle.encode_a2run2(replace(games[3], boards=(), moves=(), branches=())),
        oracle.encode_a2t1(games[4]),
    ]
    # The number of steps takes one byte more than necessary.
    data.append(bytes([data[0][0] | 128, 0]) + oracle.encode_a2run2(games[5])[1:])
    for index, run in enumerate(data):
        (folder / f"{index}.{'bin' if run.startswith(b'A2T1') else 'a2run2'}").write_bytes(run)
    files = sorted(path for path in folder.iterdir() if path.is_file())
    archive = grow(folder / "games.a2", [files[:4], files[4:]])
    assert archive.num_runs == 6
    return Path(archive.path)


def paths(path: Path) -> set[str]:
    return {name for name, _, _ in found(path)}


# Intact archives


def archives(kind: str, small: Path, odd: Path, runs: list[Path], target: Path) -> a2store.Archive:
    if kind == "empty":
        return a2store.Archive.create(target)
    source = odd if kind == "odd" else GOLDEN / "games.a2" if "golden" in kind else small
    archive = a2store.Archive.open(copied(source, target))
    if kind in ("compacted", "expired"):
        archive.compact(progress=False)
    if kind == "expired":
        archive.expire(older_than=0, grace=0)
    if kind in ("expired", "grown golden"):
        archive.ingest(runs[6:9], progress=False)
    return archive


@pytest.mark.parametrize("kind", ["empty", "small", "odd", "golden", "compacted", "expired", "grown golden"])
def test_an_intact_archive_has_no_problems(kind: str, path: Path, odd: Path, runs: list[Path], tmp_path: Path) -> None:
    archive = archives(kind, path, odd, runs, tmp_path / "other.a2")
    before = contents(archive.path)
    report = archive.verify(progress=False)
    assert report.problems == []
    assert (report.version, report.num_runs, report.num_steps) == (
        archive.version,
        archive.num_runs,
        archive.num_steps,
    )
    kept = {name for name in before if name.endswith(".parquet")}
    assert (report.num_files, report.unnamed_files) == (len(kept), 0)
    assert report.num_bytes == sum(len(before[name]) for name in kept)
    assert report.num_versions == sum(name.endswith(".json") for name in before)
    assert a2store.verify(archive.path, workers=3).problems == []
    assert contents(archive.path) == before


def test_unreferenced_files_are_counted(path: Path) -> None:
    (path / "steps" / ("0" * 32 + ".parquet")).write_bytes(b"an interrupted writer's")
    (path / "runs" / ".staged-1.tmp").write_bytes(b"another's")
    report = a2store.verify(path)
    assert (report.problems, report.unnamed_files) == ([], 1)


# Single bytes


def every_byte(path: Path, name: str, positions: int) -> Iterable[int]:
    """Flip a bit in each byte of a file, or of a sample with both ends; yield the positions."""
    file = path / name
    good = file.read_bytes()
    step = 1 if LONG else max(1, len(good) // positions)
    ends = {*range(8), *range(len(good) - 40, len(good))}
    draw = random.Random(name)
    for at in sorted({*range(0, len(good), step), *ends} & set(range(len(good)))):
        bad = bytearray(good)
        bad[at] ^= 1 << draw.randrange(8)
        file.write_bytes(bad)
        yield at
    file.write_bytes(good)


def assert_every_flip_is_found(path: Path, name: str, positions: int = POSITIONS) -> None:
    missed = []
    for at in every_byte(path, name, positions):
        if name not in paths(path):
            missed.append(at)
    assert missed == []
    assert paths(path) == set()


def test_each_byte_of_a_manifest(path: Path) -> None:
    assert_every_flip_is_found(path, manifest_name(2))


@pytest.mark.parametrize("table", ["steps", "runs"])
def test_each_byte_of_a_data_file(path: Path, table: Table) -> None:
    assert_every_flip_is_found(path, data_files(path, table)[1])


def test_each_length_of_a_file(path: Path) -> None:
    for name in [manifest_name(4), manifest_name(2), *data_files(path, "runs")[:1]]:
        good = (path / name).read_bytes()
        for length in range(0, len(good), 1 if LONG else len(good) // 20):
            (path / name).write_bytes(good[:length])
            assert name in paths(path), length
        for more in (b"\0", b"\n", good):
            (path / name).write_bytes(good + more)
            assert name in paths(path)
        (path / name).write_bytes(bytes(len(good)))
        assert name in paths(path)
        (path / name).write_bytes(good)


# Whole files


def test_all_damage_is_listed(path: Path) -> None:
    steps, run_files = data_files(path, "steps"), data_files(path, "runs")
    # The newest version lists all files.
    manifest = manifest_name(3)
    damaged = {steps[0], steps[2], run_files[1], manifest}
    for name in damaged:
        data = (path / name).read_bytes()
        (path / name).write_bytes(data[:100] + b"!" + data[101:])
    (path / steps[1]).unlink()
    assert paths(path) >= damaged | {steps[1]}


def test_missing_files(template: Path, tmp_path: Path) -> None:
    for name in sorted(names(template)):
        path = copied(template, tmp_path / "games.a2")
        (path / name).unlink()
        # A missing newest manifest cannot be detected.
        newest = name == manifest_name(4)
        assert (name in paths(path)) is not newest
        if newest:
            report = a2store.verify(path)
            assert (report.version, report.unnamed_files) == (3, 2)


# The command


def test_the_command(template: Path, odd: Path, tmp_path: Path) -> None:
    for path in (template, odd):
        assert run_command("verify", path, "--workers", 1).stdout.startswith("sound: ")
    report = json.loads(run_command("verify", template, "--json").stdout)
    expected = a2store.verify(template)
    assert report == {
        "problems": [],
        **{name: getattr(expected, name) for name in ("version", "num_versions", "num_files", "num_bytes")},
        **{name: getattr(expected, name) for name in ("num_runs", "num_steps", "unnamed_files")},
    }
    path = copied(template, tmp_path / "games.a2")
    name = data_files(path, "steps")[1]
    (path / name).write_bytes((path / name).read_bytes() + b"1")
    (path / "runs" / ("0" * 32 + ".parquet")).write_bytes(b"nobody's")
    lines = run_command("verify", path, status=1).stdout.splitlines()
    assert any(line.startswith(f"{name}: length of the file: expected ") for line in lines)
    assert any("problems: " in line for line in lines)
    assert lines[-1].startswith("unreferenced files: 1;")
    report = json.loads(run_command("verify", path, "--json", status=1).stdout)
    assert {each["path"] for each in report["problems"]} >= {name}
    assert {"path", "what", "expected", "found"} <= report["problems"][0].keys()
    assert report["unnamed_files"] == 1
    run_command("verify", tmp_path, status=2)
