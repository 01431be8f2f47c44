"""The command ``a2pack`` in a child process: every subcommand, every option, and the exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import a2store
import formats
import packs
from archives import run_a2pack as run
from formats import A2RUN2, A2T1, Payload
from oracle import Game, crc32c
from packs import nearest
from threads import HANGS

COMMAND = Path(sys.executable).with_name("a2pack")
NUM_RUNS = 23


def report(*args: object, status: int = 0) -> Any:
    """Return the one JSON value that a command prints."""
    return json.loads(run(*args, "--json", status=status).stdout)


@pytest.fixture(scope="module")
def games() -> list[Game]:
    return packs.make_games(61, NUM_RUNS)


@pytest.fixture(scope="module")
def folder(games: list[Game], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder tree with run files in the order of the games, and other files between them."""
    folder = tmp_path_factory.mktemp("runs") / "in"
    for place, payload in enumerate(packs.payloads_of(games)):
        path = folder / f"{place // 10}" / f"{place:03}"
        path.parent.mkdir(parents=True, exist_ok=True)
        # For every fifth file, the name has no known suffix.
        suffix = ".dat" if place % 5 == 4 else ".bin" if payload.kind == A2T1 else ".a2run2"
        path.with_suffix(suffix).write_bytes(payload.data)
    (folder / "README.md").write_text("no run")
    (folder / "1" / "notes.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def pack(games: list[Game], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packs") / "runs.a2pack"
    packs.write(path, games, align=64)
    return path


@pytest.fixture
def damaged(pack: Path, tmp_path: Path) -> Path:
    path = tmp_path / "damaged.a2pack"
    path.write_bytes(pack.read_bytes())
    packs.flip(path, packs.entry(path, 5)[0] + 30)
    return path


# pack


@pytest.mark.parametrize("options", [[], ["--align", "1000", "--workers", "1"], ["--align", "8192", "--entry-crc"]])
def test_a_pack_holds_the_files_in_the_order_of_their_names(
    folder: Path, games: list[Game], tmp_path: Path, options: Sequence[str]
) -> None:
    out = tmp_path / "out.a2pack"
    done = report("pack", "--input", folder, "--output", out, *options)
    align = int(options[1]) if options else 4096
    lengths = [len(game) for game in games]
    assert formats.read_pack(out) == (packs.payloads_of(games), nearest(lengths))
    assert {packs.entry(out, place)[0] % align for place in range(NUM_RUNS)} == {0}
    # The packed runs are contiguous.
    entries = [packs.entry(out, place) for place in range(NUM_RUNS)]
    gaps = [out.read_bytes()[sum(one) : other[0]] for one, other in pairwise(entries)]
    assert not any(map(any, gaps))
    counts = {name: done[name] for name in ("packed", "rejected", "ignored", "num_steps", "num_bytes", "errors")}
    size = out.stat().st_size
    assert (done["path"], counts.pop("num_bytes")) == (str(out), size)
    assert counts == {"packed": NUM_RUNS, "rejected": 0, "ignored": 2, "num_steps": sum(lengths), "errors": []}


@pytest.mark.parametrize("compress", ["none", "zstd", "lz4"])
def test_a_pack_uses_the_given_compression(folder: Path, games: list[Game], tmp_path: Path, compress: str) -> None:
    out = tmp_path / "out.a2pack"
    text = run("pack", "--input", folder, "--output", out, "--align", 8, "--compress", compress, "--workers", 2)
    assert f"{NUM_RUNS} runs packed" in text.stdout
    reader = a2store.PackReader.open(out)
    assert [run.to_bytes() for run in reader] == [payload.data for payload in packs.payloads_of(games)]
    flags = [formats.ENTRY.unpack_from(out.read_bytes(), 28 + 32 * place)[3] for place in range(NUM_RUNS)]
    number = {"none": formats.NONE, "zstd": formats.ZSTD, "lz4": formats.LZ4}[compress]
    # A run that does not get shorter may stay uncompressed.
    assert set(flags) <= {number, formats.NONE}
    assert flags.count(number) > NUM_RUNS // 2
    if formats.has_codec(number):
        assert [entry.data for entry in formats.read_pack(out)[0] if isinstance(entry, Payload)] == [
            payload.data for payload in packs.payloads_of(games)
        ]


def test_bad_files_are_listed_and_other_files_are_packed(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    good = sorted(folder.rglob("*.a2run2"))[:3]
    for place, path in enumerate(good):
        (source / f"{place}.a2run2").write_bytes(path.read_bytes())
    (source / "1b.a2run2").write_bytes(good[2].read_bytes()[:-2])
    (source / "2b.bin").write_bytes(b"A2T1" + bytes(60))
    done = run("pack", "--input", source, "--output", tmp_path / "out", "--json", status=1)
    found = json.loads(done.stdout)
    assert (found["packed"], found["rejected"]) == (3, 2)
    assert [Path(error["path"]).name for error in found["errors"]] == ["1b.a2run2", "2b.bin"]
    for error in found["errors"]:
        assert error["kind"] in ("decode", "checksum")
        assert error["path"] in done.stderr
    assert [run.to_bytes() for run in a2store.PackReader.open(tmp_path / "out")] == [path.read_bytes() for path in good]


def test_a_pack_replaces_another_unless_no_run_was_packed(folder: Path, tmp_path: Path) -> None:
    out, empty = tmp_path / "out", tmp_path / "empty"
    out.write_bytes(b"old")
    empty.mkdir()
    assert "is not a pack" in run("pack", "--input", folder, "--output", out, status=2).stderr
    assert out.read_bytes() == b"old"
    out.unlink()
    run("pack", "--input", folder, "--output", out)
    assert len(a2store.PackReader.open(out)) == NUM_RUNS
    assert "no run files" in run("pack", "--input", empty, "--output", out, status=2).stderr
    (empty / "bad.a2run2").write_bytes(b"no run")
    done = run("pack", "--input", empty, "--output", out, "--json", status=1)
    assert (json.loads(done.stdout)["rejected"], "was not written" in done.stderr) == (1, True)
    assert len(a2store.PackReader.open(out)) == NUM_RUNS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "out"]


# validate, stats, inspect


def test_validate(pack: Path, damaged: Path, games: list[Game]) -> None:
    found = report("validate", "--packfile", pack)
    wanted = {
        "path": str(pack),
        "sound": True,
        "num_runs": NUM_RUNS,
        "num_checked": NUM_RUNS,
        "num_steps": sum(map(len, games)),
        "stats_checked": True,
        "problems": [],
    }
    assert {name: found[name] for name in wanted} == wanted
    assert run("validate", "--packfile", pack, "--workers", 1).stdout.startswith("sound")
    sampled = report("validate", "--packfile", pack, "--sample", 4)
    assert (sampled["sound"], sampled["num_checked"], sampled["num_runs"]) == (True, 4, NUM_RUNS)

    found = report("validate", "--packfile", damaged, status=2)
    (problem,) = found["problems"]
    assert (found["sound"], problem["run"], problem["kind"], problem["path"]) == (False, 5, "checksum", str(damaged))
    offset, length = packs.entry(damaged, 5)
    assert offset <= problem["offset"] < offset + length
    text = run("validate", "--packfile", damaged, status=2).stdout
    assert "run 5" in text
    assert "1 problem" in text
    # A damaged run outside the sample is not found.
    assert report("validate", "--packfile", damaged, "--sample", 1)["sound"]


def test_a_file_that_cannot_be_opened_is_not_valid(pack: Path, tmp_path: Path) -> None:
    data = bytearray(pack.read_bytes())
    data[30] ^= 1
    for number, content in enumerate((bytes(data), pack.read_bytes()[:-1], b"", b"A2PACK\0\0" + bytes(100))):
        path = tmp_path / f"{number}.a2pack"
        path.write_bytes(content)
        found = report("validate", "--packfile", path, status=2)
        assert not found["sound"]
        assert found["problems"][0]["kind"] in ("header", "checksum")
        assert str(path) in run("stats", "--packfile", path, status=1).stderr


def test_stats(pack: Path, games: list[Game], tmp_path: Path) -> None:
    found = report("stats", "--packfile", pack)
    block = nearest([len(game) for game in games])
    assert {name: found[name] for name in vars(block)} == vars(block)
    assert (found["path"], found["num_bytes"], found["unreadable"]) == (str(pack), pack.stat().st_size, 0)
    packed = packs.as_packed(games)
    tiles = {entry["highest_tile"]: entry["runs"] for entry in found["highest_tiles"]}
    assert tiles == {tile: sum(game.highest_tile == tile for game in games) for tile in tiles}
    assert sum(tiles.values()) == NUM_RUNS
    engines = {entry["engine"]: entry["runs"] for entry in found["engines"]}
    assert engines == {name: sum(game.engine == name for game in packed) for name in (None, "plain", "γάμμα", "")}
    text = run("stats", "--packfile", pack).stdout
    # The existing tool prints exactly these lines.
    assert text.splitlines()[:6] == [
        f"packfile: {pack}",
        f"runs: {NUM_RUNS}",
        f"total_steps: {block.total_steps}",
        f"min_len: {block.min_len}",
        f"max_len: {block.max_len}",
        f"mean_len: {block.mean_len:.3f}",
    ]
    # Without a stats block, the statistics are computed, and unreadable runs are reported.
    payloads = packs.payloads_of(games)
    payloads[3] = Payload(b"\xff" * 50, A2RUN2)
    formats.write_pack(tmp_path / "a", payloads)
    found = report("stats", "--packfile", tmp_path / "a", status=1)
    assert (found["unreadable"], found["count"]) == (1, NUM_RUNS - 1)


@pytest.mark.parametrize("index", [5, NUM_RUNS - 1])
def test_inspect(pack: Path, games: list[Game], index: int) -> None:
    found = report("inspect", "--packfile", pack, "--index", index)
    game, payload = packs.as_packed(games)[index], packs.payloads_of(games)[index]
    offset, length = packs.entry(pack, index)
    wanted = {
        "path": str(pack),
        "index": index,
        "kind": f"v{payload.kind}",
        "offset": offset,
        "num_bytes": length,
        "crc32c": crc32c(payload.data),
        "num_steps": len(game),
        "engine": game.engine,
        "start_unix_s": game.start_unix_s,
        "max_score": game.max_score,
        "highest_tile": game.highest_tile,
        "steps_with_branches": sum(step is not None for step in game.branches),
        "final_board": game.final_board,
        "violation": None,
    }
    assert {name: found[name] for name in wanted} == wanted
    assert abs(found["elapsed_s"] - game.elapsed_s) < 1e-5
    text = run("inspect", "--packfile", pack, "--index", index).stdout
    assert "rules: every step is legal" in text
    # The existing tool prints exactly these lines.
    assert text.splitlines()[:8] == [
        f"packfile: {pack}",
        f"index: {index}",
        f"steps: {len(game)}",
        f"max_score: {game.max_score}",
        f"highest_tile: {game.highest_tile}",
        f"start_unix_s: {game.start_unix_s}",
        f"elapsed_s: {np.float32(game.elapsed_s):.3f}",
        f"final_board: {game.final_board:#018x}",
    ]


# to-jsonl, extract


def test_lines_in_each_shape(pack: Path, damaged: Path, tmp_path: Path) -> None:
    reader = a2store.PackReader.open(pack)
    for by_step in (False, True):
        for compact in (False, True):
            shape = ["--by-step"] * by_step + ["--compact"] * compact
            reader.to_jsonl(tmp_path / "same", by_step=by_step, compact=compact, progress=False)
            run("to-jsonl", "--packfile", pack, "--output", tmp_path / "out", *shape, "--parallel")
            assert (tmp_path / "out").read_bytes() == (tmp_path / "same").read_bytes()
            words = [str(COMMAND), "-q", "to-jsonl", "--packfile", str(pack), "--output", "-", *shape]
            piped = subprocess.run(words, capture_output=True, check=True, timeout=HANGS)
            assert (piped.stdout, piped.stderr) == ((tmp_path / "same").read_bytes(), b"")
    done = run("to-jsonl", "--packfile", damaged, "--output", tmp_path / "out", status=1)
    found = [json.loads(line)["run_idx"] for line in (tmp_path / "out").read_text().splitlines()]
    assert found == [place for place in range(NUM_RUNS) if place != 5]
    assert "run 5" in done.stderr


def test_a_closed_pipe_is_success(pack: Path) -> None:
    command = [str(COMMAND), "to-jsonl", "--packfile", str(pack), "--output", "-", "--by-step"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b'{"run_idx"')
        process.stdout.close()
        assert process.wait(timeout=HANGS) == 0


def test_extract(pack: Path, damaged: Path, games: list[Game], tmp_path: Path) -> None:
    payloads = packs.payloads_of(games)
    done = run("extract", "--packfile", pack, "--indices", " 11, 0,,5 ,0,", "--output", tmp_path / "new" / "out")
    # The existing tool uses these names for both kinds.
    written = {f"run-{place:06}.a2run2": place for place in (0, 5, 11)}
    assert {path.name for path in (tmp_path / "new" / "out").iterdir()} == set(written)
    for name, place in written.items():
        assert (tmp_path / "new" / "out" / name).read_bytes() == payloads[place].data
    listed = done.stdout.splitlines()
    assert [Path(line).name for line in listed] == [sorted(written)[number] for number in (2, 0, 1, 0)]
    # No file is overwritten, and if one target exists, nothing is written.
    before = sorted(os.listdir(tmp_path / "new" / "out"))
    run("extract", "--packfile", pack, "--indices", "1,5", "--output", tmp_path / "new" / "out", status=2)
    assert sorted(os.listdir(tmp_path / "new" / "out")) == before
    done = run("extract", "--packfile", damaged, "--indices", "4,5,6", "--output", tmp_path / "other", status=1)
    assert "run 5" in done.stderr
    assert sorted(os.listdir(tmp_path / "other")) == ["run-000004.a2run2", "run-000006.a2run2"]
    run("extract", "--packfile", pack, "--indices", ",", "--output", tmp_path / "none")
    assert os.listdir(tmp_path / "none") == []


# Wrong usage


@pytest.mark.parametrize(
    "line",
    [
        "pack --input absent --output out",
        "pack --input PACK --output out",
        "pack --input IN --output out --align 1048577",
        "pack --input IN --output absent/out",
        "validate --packfile absent",
        "stats --packfile absent",
        "inspect --packfile PACK --index 23",
        "to-jsonl --packfile PACK --output out --by-step --runs-only",
        "to-jsonl --packfile PACK --output absent/out",
        "extract --packfile PACK --indices 23 --output out",
    ],
)
def test_wrong_usage_is_status_2_and_leaves_nothing(
    folder: Path, pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*(word.replace("IN", str(folder)).replace("PACK", str(pack)) for word in line.split()), status=2)
    assert done.stdout == ""
    assert len(done.stderr) > 10
    assert list(tmp_path.iterdir()) == []
