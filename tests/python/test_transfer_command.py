"""The commands ``a2store export`` and ``a2store convert``, and ``ingest`` of every format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import a2store
import formats
import logs
import packs
from archives import copied, ingested, report, run_command
from formats import Payload
from oracle import Game
from trees import Tree, write_tree

NUM_RUNS = 18


@dataclass
class Kept:
    """An archive of run files, and the pack from which they came."""

    archive: Path
    pack: Path
    games: list[Game]
    files: list[bytes]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    folder = tmp_path_factory.mktemp("kept")
    games = packs.make_games(71, NUM_RUNS)
    payloads = packs.write(folder / "runs.a2pack", games)
    archive = ingested(folder / "games.a2", folder / "runs.a2pack")
    return Kept(archive.path, folder / "runs.a2pack", packs.as_packed(games), [payload.data for payload in payloads])


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return write_tree(tmp_path_factory.mktemp("tree") / "tree", 72)


def check(path: Path, format_name: str, games: Sequence[Game], files: Sequence[bytes]) -> None:
    """Check that the output holds these runs."""
    if format_name in ("original", "a2t1", "a2run2"):
        found = [file.read_bytes() for file in sorted(path.rglob("run-*"), key=lambda path: path.name)]
        if format_name == "original":
            assert found == list(files)
        assert [formats.decode_file(data).boards for data in found] == [game.boards for game in games]
    elif format_name == "a2pack":
        entries, _ = formats.read_pack(path)
        found = [entry.data for entry in entries if isinstance(entry, Payload)]
        assert [formats.decode_file(data).boards for data in found] == [game.boards for game in games]
    elif format_name == "jsonl":
        logs.check_runs_jsonl(path, games)
    else:
        runs = formats.read_pack_dat(path) if format_name == "packdat" else formats.read_dataset(path)
        assert [run.boards for run in runs if isinstance(run, formats.Run)] == [game.boards for game in games]


@pytest.mark.parametrize("format_name", ["original", "a2run2", "a2pack", "packdat", "npy", "jsonl"])
def test_export_and_convert_write_every_format(kept: Kept, tmp_path: Path, format_name: str) -> None:
    out = tmp_path / "exported"
    done = report("export", kept.archive, "--format", format_name, "--out", out, "--workers", 2)
    check(out, format_name, kept.games, kept.files)
    wanted = {"path": str(out), "runs": NUM_RUNS, "num_steps": sum(map(len, kept.games))}
    wanted["num_files"] = NUM_RUNS if format_name in ("original", "a2t1", "a2run2") else 1
    assert {name: done[name] for name in wanted} == wanted
    args = ("convert", kept.pack, "--format", format_name, "--out", tmp_path / "converted")
    if format_name == "original":
        assert "original" in run_command(*args, status=2).stderr
    else:
        assert report(*args)["runs"] == NUM_RUNS
        check(tmp_path / "converted", format_name, kept.games, kept.files)


def test_where_selects_the_runs(kept: Kept, tmp_path: Path) -> None:
    scores = [game.max_score for game in kept.games]
    conditions = {
        "engine = 'plain'": [place for place, game in enumerate(kept.games) if game.engine == "plain"],
        "max_score >= 100 OR run_id = 0": [place for place, score in enumerate(scores) if score >= 100 or place == 0],
        # A comment must not swallow the text after it.
        "run_id = 3 -- the third": [3],
        "false": [],
    }
    for number, (condition, ids) in enumerate(conditions.items()):
        assert len(ids) < NUM_RUNS
        out = tmp_path / f"{number}"
        done = run_command("export", kept.archive, "--where", condition, "--format", "original", "--out", out)
        assert f"{len(ids)} runs" in done.stdout
        found = sorted(out.iterdir())
        assert [path.name[:12] for path in found] == [f"run-{place:08}" for place in ids]
        assert [path.read_bytes() for path in found] == [kept.files[place] for place in ids]
    run_command("export", kept.archive, "--where", "true) OR (true", "--format", "npy", "-o", tmp_path / "x", status=2)


def test_export_of_an_older_version(kept: Kept, tmp_path: Path) -> None:
    archive = a2store.Archive.open(copied(kept.archive, tmp_path / "games.a2"))
    archive.ingest(kept.pack, progress=False)
    formats.write_pack(tmp_path / "more.a2pack", packs.payloads_of(packs.make_games(73, 4)[2:]))
    archive.ingest(tmp_path / "more.a2pack", progress=False)
    for version, count in ((3, NUM_RUNS + 2), (2, NUM_RUNS), (1, 0)):
        args = ("--format", "a2pack", "--out", tmp_path / f"{version}", "--version", version)
        assert report("export", archive.path, *args)["runs"] == count
    run_command("export", archive.path, "--format", "a2pack", "--out", tmp_path / "9", "--version", 9, status=2)
    run_command("export", archive.path, "--format", "a2pack", "--out", archive.path / "steps" / "9", status=2)


def test_options_of_each_format(kept: Kept, tmp_path: Path) -> None:
    pack = a2store.PackReader.open(kept.pack)
    source: tuple[tuple[object, ...], ...] = (("export", kept.archive), ("convert", kept.pack))
    for place, command in enumerate(source):
        out = tmp_path / f"{place}"
        out.mkdir()
        run_command(*command, "--format", "jsonl", "--out", out / "steps", "--by-step", "--compact")
        rows = [json.loads(line) for line in (out / "steps").read_text().splitlines()]
        assert [row["pre_board"] for row in rows] == [board for game in kept.games for board in game.boards]
        run_command(*command, "--format", "npy", "--out", out / "npy", "--shard-rows", 100)
        shards = sorted((out / "npy").glob("steps-*.npy"))
        assert [len(np.load(shard)) for shard in shards[:-1]] == [100] * (len(shards) - 1)
        assert len(shards) > 3
        run_command(*command, "--format", "session", "--out", out / "plain", "--moves", "false")
        assert np.load(out / "plain" / "steps.npy").dtype == formats.SESSION_ROW
        for compress in ("zstd", "lz4", "none"):
            run_command(*command, "--format", "a2pack", "--out", out / compress, "--compress", compress)
            found = a2store.PackReader.open(out / compress)
            assert [run.boards.tolist() for run in found] == [run.boards.tolist() for run in pack]
        flags = {
            compress: {
                formats.ENTRY.unpack_from((out / compress).read_bytes(), 28 + 32 * place)[3] for place in range(5)
            }
            for compress in ("zstd", "lz4", "none")
        }
        assert (1 in flags["zstd"], 2 in flags["lz4"], flags["none"]) == (True, True, {0})
    run_command("export", kept.archive, "--format", "jsonl", "--out", tmp_path / "of-archive", "--by-step")
    logs.check_steps_jsonl(tmp_path / "of-archive", kept.files)


def test_bad_input_is_status_1_and_leaves_nothing(kept: Kept, tmp_path: Path) -> None:
    bad = tmp_path / "bad.a2pack"
    bad.write_bytes(kept.pack.read_bytes())
    packs.flip(bad, packs.entry(bad, 4)[0] + 20)
    for format_name in ("a2pack", "packdat", "npy", "jsonl"):
        args = ("convert", kept.pack, bad, "--format", format_name, "--out", tmp_path / "out")
        done = run_command(*args, status=1)
        assert done.stdout == ""
        assert f"{bad}: run 4" in done.stderr
        assert list(tmp_path.iterdir()) == [bad]
    out = tmp_path / "out.a2pack"
    done = run_command("convert", bad, "--format", "a2pack", "--out", out, "--skip-errors", "--json", status=1)
    (error,) = json.loads(done.stdout)["errors"]
    assert (error["path"], error["run"], f"{bad}: run 4" in done.stderr) == (str(bad), 4, True)
    entries = formats.read_pack(bad)[0]
    assert formats.read_pack(out)[0] == [entry for place, entry in enumerate(entries) if place != 4]


@pytest.mark.parametrize(
    "line",
    [
        "export ARCHIVE --format original",
        "export ARCHIVE --out out",
        "export ARCHIVE --format parquet --out out",
        "export ARCHIVE --format original --out out --where nothing=1",
        "export ARCHIVE --format a2pack --out out --compress gzip",
        "export ARCHIVE --format npy --out out --shard-rows 0",
        "export ARCHIVE --format a2pack --out out --workers 0",
        "convert --format npy --out out",
        "convert PACK --format original --out out",
        "convert PACK --format a2pack --out absent/out",
    ],
)
def test_wrong_usage_is_status_2_and_leaves_nothing(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [word.replace("ARCHIVE", str(kept.archive)).replace("PACK", str(kept.pack)) for word in line.split()]
    done = run_command(*words, status=2)
    assert done.stdout == ""
    assert len(done.stderr) > 10
    assert list(tmp_path.iterdir()) == []


def test_runs_that_do_not_fit_are_status_2(tree: Tree, tmp_path: Path) -> None:
    archive = tmp_path / "games.a2"
    ingested = report("ingest", tree.root, archive)
    expected = tree.expected()
    counts = {name: ingested[name] for name in ("accepted", "duplicates", "rejected", "num_steps")}
    assert counts == {"accepted": len(expected), "duplicates": 0, "rejected": 0, "num_steps": sum(map(len, expected))}
    assert report("info", archive)["num_runs"] == len(expected)
    for format_name in ("a2pack", "jsonl", "a2run2", "original"):
        said = run_command("export", archive, "--format", format_name, "--out", tmp_path / "out", status=2).stderr
        assert "final board" in said or "run files" in said
    run_command("verify", archive)
    done = report("export", archive, "--where", "format = 'a2t1'", "--format", "original", "--out", tmp_path / "v1")
    assert done["runs"] == sum(run.format == "a2t1" for run in expected) > 5
    assert all(formats.decode_file(path.read_bytes()) for path in (tmp_path / "v1").iterdir())
