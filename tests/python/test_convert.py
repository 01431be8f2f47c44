"""Conversion between formats without an archive: results, and the state after an interruption."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import a2store
import formats
import logs
import oracle
import packs
from archives import contents
from formats import FormatError, Payload, Run
from games import BEST, normalized
from oracle import Branches
from sources import Expected, rounded
from trees import Games, Tree, write_tree


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return write_tree(tmp_path_factory.mktemp("tree") / "tree", 41)


def convert(paths: Any, out: Path, **options: Any) -> a2store.ExportReport:
    return a2store.convert(paths, out, progress=False, **options)


def paths_of(expected: Sequence[Expected], wanted: Callable[[Expected], object]) -> tuple[list[Path], list[Expected]]:
    """Return the sources whose runs all satisfy the condition, in order, and these runs."""
    unwanted = {run.source for run in expected if not wanted(run)}
    runs = [run for run in expected if run.source not in unwanted]
    assert len(runs) > 10
    return list(dict.fromkeys(run.source for run in runs)), runs


def is_whole(run: Expected) -> bool:
    return run.final_board is not None and None not in run.moves and run.indices == tuple(range(len(run)))


def is_movable(run: Expected) -> bool:
    """Return whether a dataset can store the run."""
    return None not in run.moves and run.indices == tuple(range(len(run)))


def written(run: Expected) -> list[Branches | None]:
    """Return the values in their written form: raw values are normalized."""
    if not run.raw_evs:
        return list(run.branches)
    return [None if step is None or step == (None,) * 4 else normalized(step) for step in run.branches]


def close(found: Sequence[Branches | None], wanted: Sequence[Branches | None], bound: float) -> None:
    """Check that values are equal up to the rounding of normalized values; the extremes are exact."""
    for step, other in zip(found, wanted, strict=True):
        assert (step is None) == (other is None)
        for one, two in zip(step or (), other or (), strict=True):
            assert (one is None) == (two is None)
            if one is not None and two is not None:
                assert abs(one - two) <= (0 if two in (0.0, BEST, 0.5, 1.0) else bound)


def check_meta(found: Any, run: Expected) -> None:
    names = ("max_score", "highest_tile", "elapsed_s", "boards", "moves")
    assert [getattr(found, name) for name in names] == [getattr(run, name) for name in names]
    assert (found.start_unix_s or 0, found.engine or None) == (run.start_unix_s, run.engine or None)


def sound(runs: Iterable[Run | FormatError]) -> list[Run]:
    found = list(runs)
    assert not [run for run in found if isinstance(run, FormatError)]
    return [run for run in found if isinstance(run, Run)]


def check_dataset(runs: list[Run], expected: Sequence[Expected], *, quantized: bool) -> None:
    """Check that a reader of pack.dat or a dataset finds the expected runs; chosen branches have the value 1."""
    assert [run.run_id for run in runs] == list(range(len(expected)))
    for found, run in zip(runs, expected, strict=True):
        check_meta(found, run)
        steps: list[Branches | None] = []
        for place, step in enumerate(written(run)):
            values = None if step is None else formats.as_exported(step, run.moves[place] or 0)
            if values is not None and quantized:
                q = formats.quantized(np.array([value or 0.0 for value in values], "f4"))
                values = formats.with_mask((q / 65535).astype("f4").tolist(), formats.mask_of(values))
            steps.append(values)
        read = [None if step in (None, (None,) * 4) else step for step in found.branches]
        close(read, steps, 1 / 65535 + 1e-6 if quantized and run.raw_evs else 1e-6 if run.raw_evs else 0)


# Every format


def folder_files(folder: Path) -> list[Path]:
    return sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.name)


@pytest.mark.parametrize("format_name", ["a2t1", "a2run2", "a2pack"])
def test_whole_games_of_any_format_convert_to_run_files(
    expected: list[Expected], tmp_path: Path, format_name: str
) -> None:
    paths, runs = paths_of(expected, is_whole)
    assert {run.format for run in runs} == {"a2t1", "a2run2", "macroxue"}
    report = convert(paths, tmp_path / "out", format=format_name, workers=2)
    assert (report.runs, report.num_steps) == (len(runs), sum(map(len, runs)))
    if format_name == "a2pack":
        entries, stats = formats.read_pack(tmp_path / "out")
        files = [entry.data for entry in entries if isinstance(entry, Payload)]
        assert stats == packs.nearest([len(run) for run in runs])
        assert report.num_files == 1
    else:
        found = folder_files(tmp_path / "out")
        suffix = ".bin" if format_name == "a2t1" else ".a2run2"
        assert [path.name for path in found] == [f"run-{place:08}{suffix}" for place in range(len(runs))]
        files = [path.read_bytes() for path in found]
        assert report.num_files == len(runs)
    for data, run in zip(files, runs, strict=True):
        game = formats.decode_file(data)
        assert format_name == "a2pack" or data.startswith(b"A2T1") == (format_name == "a2t1")
        check_meta(game, run)
        assert game.final_board == run.final_board
        if data.startswith(b"A2T1"):
            assert set(game.branches) <= {None}
        else:
            assert game.engine == run.engine
            close(game.branches, written(run), 1e-6 if run.raw_evs else 0)


@pytest.mark.parametrize("workers", [None, 1])
def test_runs_with_all_moves_convert_to_pack_dat_and_datasets(
    expected: list[Expected], tmp_path: Path, workers: int | None
) -> None:
    paths, runs = paths_of(expected, is_movable)
    assert {run.format for run in runs} == {"a2t1", "a2run2", "packdat", "npy", "session", "macroxue"}
    report = convert(paths, tmp_path / "pack.dat", format="packdat", workers=workers)
    assert (report.path, report.runs, report.num_files) == (tmp_path / "pack.dat", len(runs), 1)
    check_dataset(sound(formats.read_pack_dat(tmp_path / "pack.dat")), runs, quantized=True)
    convert(paths, tmp_path / "dataset", format="npy", workers=workers)
    check_dataset(sound(formats.read_dataset(tmp_path / "dataset")), runs, quantized=False)
    assert sorted(path.name for path in (tmp_path / "dataset").iterdir()) == [
        "manifest.json",
        "metadata.db",
        "steps.npy",
    ]
    num_steps = sum(map(len, runs))
    assert np.load(tmp_path / "dataset" / "steps.npy", mmap_mode="r").shape == (num_steps,)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset", "pack.dat"]


def test_datasets_in_shards(expected: list[Expected], tmp_path: Path) -> None:
    paths, runs = paths_of(expected, is_movable)
    convert(paths, tmp_path / "dataset", format="npy", shard_rows=300)
    shards = sorted((tmp_path / "dataset").glob("steps-*.npy"))
    assert [shard.name for shard in shards] == [f"steps-{number:05}.npy" for number in range(len(shards))]
    lengths = [len(np.load(shard)) for shard in shards]
    assert lengths[:-1] == [300] * (len(shards) - 1)
    assert len(shards) > 3
    check_dataset(sound(formats.read_dataset(tmp_path / "dataset")), runs, quantized=False)


def test_lines(expected: list[Expected], tmp_path: Path) -> None:
    paths, runs = paths_of(expected, lambda run: run.format in ("a2t1", "a2run2"))
    for by_step in (False, True):
        (tmp_path / f"{by_step}").mkdir()
        report = convert(paths, tmp_path / f"{by_step}", format="jsonl", by_step=by_step)
        assert report.path == tmp_path / f"{by_step}" / ("steps.jsonl" if by_step else "runs.jsonl")
    convert(paths, tmp_path / "compact", format="jsonl", by_step=True, compact=True)
    lines = (tmp_path / "compact").read_text().splitlines()
    assert [json.loads(line)["pre_board"] for line in lines] == [board for run in runs for board in run.boards]
    convert(paths, tmp_path / "files.a2pack", format="a2pack")
    entries, _ = formats.read_pack(tmp_path / "files.a2pack")
    files = [entry.data for entry in entries if isinstance(entry, Payload)]
    assert len(files) == len(runs)
    logs.check_runs_jsonl(tmp_path / "False" / "runs.jsonl", [formats.decode_file(data) for data in files])
    logs.check_steps_jsonl(tmp_path / "True" / "steps.jsonl", files)


def test_conversions_reproduce_real_files(fixtures: Path, tmp_path: Path) -> None:
    """Real files: pack.dat and the dataset of the same runs, as the existing tools write them."""
    sources = [str(fixtures / "npy"), str(fixtures / "pack.dat")]
    convert(sources[1], tmp_path / "a.dat", format="packdat")
    assert (tmp_path / "a.dat").read_bytes() == (fixtures / "pack.dat").read_bytes()
    convert(sources[0], tmp_path / "b.dat", format="packdat")
    assert (tmp_path / "b.dat").read_bytes() == (fixtures / "pack.dat").read_bytes()
    convert(sources[0], tmp_path / "npy", format="npy")
    theirs, ours = np.load(fixtures / "npy" / "steps.npy"), np.load(tmp_path / "npy" / "steps.npy")
    assert (theirs.dtype, theirs.tobytes()) == (ours.dtype, ours.tobytes())
    rows = [
        formats.query(path / "metadata.db", "SELECT * FROM runs ORDER BY id")
        for path in (fixtures / "npy", tmp_path / "npy")
    ]
    assert [row[:5] + row[6:] for row in rows[0]] == [row[:5] + row[6:] for row in rows[1]]
    assert [row[5] or "" for row in rows[0]] == [row[5] or "" for row in rows[1]]


def test_raw_values_are_normalized(tmp_path: Path) -> None:
    games = Games(42).take(5, raw=True, whole=True)
    for seed, game in enumerate(games):
        logs.write_macroxue(tmp_path / "logs", f"game{seed}", game, seed)
    convert(tmp_path / "logs", tmp_path / "out", format="a2run2")
    files = folder_files(tmp_path / "out")
    seen = set()
    for path, game in zip(files, games, strict=True):
        found = oracle.decode_a2run2(path.read_bytes())
        assert (found.boards, found.moves, found.final_board) == (game.boards, game.moves, game.final_board)
        assert found.engine == "macroxue-d6"
        raw = [rounded(step) for step in game.branches]
        close(found.branches, [step and normalized(step) for step in raw], 1e-6)
        seen |= {value for step in found.branches for value in step or ()}
    assert {0.0, BEST, 0.5, None} <= seen
    assert all(value is None or 0 <= value < 1 for value in seen)


# Failures


@pytest.mark.parametrize("format_name", ["a2pack", "packdat", "npy", "jsonl"])
def test_a_failed_conversion_leaves_no_files(expected: list[Expected], tmp_path: Path, format_name: str) -> None:
    paths, _ = paths_of(expected, is_whole)
    bad = tmp_path / "bad.bin"
    bad.write_bytes(b"A2T1" + bytes(50))
    with pytest.raises(a2store.DecodeError):
        convert([*paths, bad], tmp_path / "out", format=format_name)
    with pytest.raises(FileNotFoundError):
        convert([*paths, tmp_path / "absent"], tmp_path / "out", format=format_name)
    assert list(tmp_path.iterdir()) == [bad]


@pytest.mark.parametrize("format_name", ["a2t1", "a2run2", "a2pack", "packdat", "npy", "session", "macroxue", "jsonl"])
def test_bad_runs_are_skipped_and_reported(expected: list[Expected], tmp_path: Path, format_name: str) -> None:
    paths, _ = paths_of(expected, is_whole)
    games = Games(44).take(5)
    pack, bad = tmp_path / "bad.a2pack", tmp_path / "bad.a2run2"
    formats.write_pack(pack, packs.payloads_of(games))
    packs.flip(pack, packs.entry(pack, 2)[0] + 7)
    bad.write_bytes(oracle.encode_a2run2(games[0])[:-3])
    with pytest.raises(a2store.DecodeError):
        convert([*paths, pack, bad, paths[0]], tmp_path / "out", format=format_name)
    report = convert([*paths, pack, bad, paths[0]], tmp_path / "skipped", format=format_name, on_error="skip")
    assert [(error.path, error.run, error.kind) for error in report.errors] == [
        (pack, 2, "checksum"),
        (bad, None, "decode"),
    ]
    sound = tmp_path / "sound.a2pack"
    formats.write_pack(sound, [payload for place, payload in enumerate(packs.payloads_of(games)) if place != 2])
    other = convert([*paths, sound, paths[0]], tmp_path / "wanted", format=format_name)
    assert (report.runs, report.num_steps, other.errors) == (other.runs, other.num_steps, [])
    if format_name in ("npy", "session"):
        assert np.array_equal(np.load(tmp_path / "skipped/steps.npy"), np.load(tmp_path / "wanted/steps.npy"))
    elif report.path.is_dir():
        assert contents(report.path) == contents(other.path)
    else:
        assert report.path.read_bytes() == other.path.read_bytes()


def test_bad_arguments(expected: list[Expected], tmp_path: Path) -> None:
    paths, _ = paths_of(expected, is_whole)
    lacking, _ = paths_of(expected, lambda run: run.format == "npy")
    for options in (
        {"format": "original"},
        {"format": "parquet"},
        {"format": "a2pack", "align": 0},
        {"format": "npy", "workers": 0},
    ):
        with pytest.raises(ValueError, match="expected"):
            convert(paths, tmp_path / "out", **options)
    for format_name in ("a2pack", "jsonl"):
        with pytest.raises(ValueError, match="final board"):
            convert([*paths, *lacking], tmp_path / "out", format=format_name)
    assert list(tmp_path.iterdir()) == []
