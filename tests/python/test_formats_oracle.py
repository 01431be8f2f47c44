"""The tests' own readers and writers of containers, compared with real files of other tools and with each other."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import damage
import formats
import logs
import macroxue_packs
import oracle
from formats import A2RUN2, A2T1, NONE, FormatError, Payload, Run
from games import BEST, play
from oracle import Branches, Game, crc32c


def sound(runs: list[Run | FormatError]) -> list[Run]:
    assert not [run for run in runs if isinstance(run, FormatError)]
    return [run for run in runs if isinstance(run, Run)]


def payloads_of(pack: Path) -> list[Payload]:
    entries, _ = formats.read_pack(pack)
    assert not [entry for entry in entries if isinstance(entry, FormatError)]
    return [entry for entry in entries if isinstance(entry, Payload)]


@pytest.fixture(scope="module")
def files(fixtures: Path) -> dict[str, bytes]:
    paths = sorted((fixtures / "runs").iterdir())
    return {path.name: path.read_bytes() for path in paths if path.suffix != ".json"}


@pytest.fixture(scope="module")
def games(files: dict[str, bytes]) -> dict[str, Game]:
    return {name: formats.decode_file(data) for name, data in files.items()}


@pytest.fixture(scope="module")
def expected(fixtures: Path) -> dict[str, dict[str, Any]]:
    facts: dict[str, dict[str, Any]] = json.loads((fixtures / "runs" / "expected.json").read_text())
    return facts


@pytest.fixture(scope="module")
def simulated() -> list[Game]:
    rng = random.Random(5)
    lengths = [20, 300, 1, *(rng.randrange(20, 300) for _ in range(9))]
    return [
        play(rng, length, engine=[None, "plain", "γάμμα"][index % 3], without_evs=[0, 0.1, 1][index % 3])
        for index, length in enumerate(lengths)
    ]


def by_boards(games: dict[str, Game]) -> dict[tuple[int, ...], tuple[str, Game]]:
    """Return the games with values by their boards; the games without values are the same games."""
    return {game.boards: (name, game) for name, game in games.items() if name.endswith(".a2run2")}


def exported(game: Game) -> tuple[Branches, ...]:
    return tuple(formats.as_exported(*pair) for pair in zip(game.branches, game.moves, strict=True))


# Real files


def test_packs_hold_the_run_files(
    fixtures: Path, files: dict[str, bytes], games: dict[str, Game], expected: dict[str, dict[str, Any]]
) -> None:
    entries, stats = formats.read_pack(fixtures / "mixed.a2pack")
    payloads = payloads_of(fixtures / "mixed.a2pack")
    names = {data: name for name, data in files.items()}
    assert sorted(names[payload.data] for payload in payloads) == sorted(files)
    for payload in payloads:
        facts = expected[names[payload.data]]
        assert {A2T1: "a2t1", A2RUN2: "a2run2"}[payload.kind] == facts["format"]
        assert (payload.compression, crc32c(payload.data)) == (NONE, facts["file_crc32c"])
    assert stats == formats.stats_of([len(game) for game in games.values()])
    assert len(entries) == 31


def test_packs_equal_the_output_of_the_existing_tool(fixtures: Path, tmp_path: Path) -> None:
    for name in ("mixed.a2pack", "jsonl/two.a2pack"):
        _, stats = formats.read_pack(fixtures / name)
        formats.write_pack(tmp_path / "again.a2pack", payloads_of(fixtures / name), stats=stats)
        assert (tmp_path / "again.a2pack").read_bytes() == (fixtures / name).read_bytes()


def test_jsonl(fixtures: Path, tmp_path: Path) -> None:
    payloads = [payload.data for payload in payloads_of(fixtures / "jsonl" / "two.a2pack")]
    logs.check_runs_jsonl(fixtures / "jsonl" / "two.runs.jsonl", [formats.decode_file(data) for data in payloads])
    logs.check_steps_jsonl(fixtures / "jsonl" / "two.steps.jsonl", payloads)

    # The check itself must be able to fail.
    lines = (fixtures / "jsonl" / "two.steps.jsonl").read_text().splitlines(keepends=True)
    for changed in (lines[:-1], [*lines, lines[-1]], [lines[1], lines[0], *lines[2:]]):
        (tmp_path / "changed.jsonl").write_text("".join(changed))
        with pytest.raises(FormatError):
            logs.check_steps_jsonl(tmp_path / "changed.jsonl", payloads)


def test_pack_dat_and_dataset_hold_the_same_runs(
    fixtures: Path, games: dict[str, Game], expected: dict[str, dict[str, Any]]
) -> None:
    packed, rows = sound(formats.read_pack_dat(fixtures / "pack.dat")), sound(formats.read_dataset(fixtures / "npy"))
    known = by_boards(games)
    assert (len(packed), len(rows)) == (12, 12)
    assert sum(len(run.boards) for run in rows) == 18_254
    for place, pair in enumerate(zip(packed, rows, strict=True)):
        name, game = known[pair[1].boards]
        facts = expected[name]
        for run in pair:
            assert (run.run_id, run.indices, run.moves) == (place, tuple(range(len(game))), game.moves)
            assert np.bincount(run.moves or (), minlength=4).tolist() == facts["moves"]
            assert crc32c(np.array(run.boards, "<u8").tobytes()) == facts["board_crc32c"]
            meta = (run.max_score, run.highest_tile, run.engine, run.start_unix_s, run.elapsed_s, run.final_board)
            keys = ("max_score", "highest_tile", "engine", "start_unix_s", "elapsed_s")
            assert meta == (*(facts[key] for key in keys), None)
        assert pair[1].branches == exported(game)
        counts = Counter(f"{formats.mask_of(step or (None,) * 4):04b}" for step in pair[1].branches)
        if facts["steps_with_evs"] == facts["num_steps"]:
            assert counts == facts["legal_mask_counts"]
        for exact, rounded in zip(pair[1].branches, pair[0].branches, strict=True):
            assert exact is not None
            assert rounded is not None
            for one, other in zip(exact, rounded, strict=True):
                assert (one is None) == (other is None)
                assert abs((one or 0) - (other or 0)) < 1 / 65535


def test_datasets_equal_the_output_of_the_existing_tools(
    fixtures: Path, games: dict[str, Game], tmp_path: Path
) -> None:
    known = by_boards(games)
    ordered = [known[run.boards][1] for run in sound(formats.read_dataset(fixtures / "npy"))]
    formats.write_pack_dat(tmp_path / "pack.dat", ordered)
    assert (tmp_path / "pack.dat").read_bytes() == (fixtures / "pack.dat").read_bytes()
    formats.write_dataset(tmp_path, ordered)
    theirs, ours = np.load(fixtures / "npy" / "steps.npy"), np.load(tmp_path / "steps.npy")
    assert (theirs.dtype, theirs.tobytes()) == (ours.dtype, ours.tobytes())
    everything = "SELECT * FROM runs ORDER BY id"
    pair = [formats.query(folder / "metadata.db", everything) for folder in (fixtures / "npy", tmp_path)]
    assert pair[0] == pair[1]


def test_session(fixtures: Path, games: dict[str, Game]) -> None:
    runs = sound(formats.read_session(fixtures / "session"))
    known = by_boards(games)
    assert [(run.run_id, run.seed) for run in runs] == [(1000 + place, 7000 + place) for place in range(4)]
    for run in runs:
        _, game = known[run.boards]
        assert (run.max_score, run.highest_tile) == (game.max_score, game.highest_tile)
        assert (run.moves, run.final_board, run.indices) == (None, None, tuple(range(len(game))))


# Round trips


def test_games_obey_the_rules(simulated: list[Game]) -> None:
    for game in simulated:
        states = [*game.boards, game.final_board]
        for place, (before, move, after) in enumerate(zip(states, game.moves, states[1:], strict=False)):
            assert oracle.spawns(oracle.slide(before, move), after)
            values = game.branches[place]
            assert values is None or formats.mask_of(values) == oracle.legal_mask(before)
            assert values is None or values[move] in (BEST, 0.5)
        for encode in (oracle.encode_a2t1, oracle.encode_a2run2):
            assert formats.decode_file(encode(game)).boards == game.boards
    assert max(map(len, simulated)) > 100


def test_a_corpus_is_damaged_at_the_listed_places(tmp_path: Path) -> None:
    corpus = damage.write(tmp_path, 3)
    found: dict[tuple[Path, int | None], tuple[int, ...] | None] = {}

    def add(path: Path, index: int | None, read: Callable[[], tuple[int, ...]]) -> None:
        try:
            found[path, index] = read()
        except FormatError:
            found[path, index] = None

    for path in [*tmp_path.rglob("*.bin"), *tmp_path.rglob("*.a2run2")]:
        add(path, None, lambda path=path: formats.decode_file(path.read_bytes()).boards)  # type: ignore[misc]
    for path in tmp_path.rglob("*.a2pack"):
        for place, entry in enumerate(formats.read_pack(path)[0]):
            found[path, place] = None
            if isinstance(entry, Payload):
                found[path, place] = formats.decode_file(entry.data).boards
    readers = [formats.read_pack_dat, formats.read_dataset, formats.read_session, macroxue_packs.read_runs]
    paths = [tmp_path / "pack.dat", tmp_path / "dataset", *(tmp_path / "selfplay").iterdir(), tmp_path / "strong/pack"]
    for read, path in zip(readers, paths, strict=True):
        for place, run in enumerate(read(path)):
            found[path, place] = run.boards if isinstance(run, Run) else None
    for path in tmp_path.rglob("*.meta.json*"):
        add(path, None, lambda path=path: logs.read_macroxue(path).boards)  # type: ignore[misc]

    assert {(sound.path, sound.run): sound.game.boards for sound in corpus.sound} == {
        key: boards for key, boards in found.items() if boards is not None
    }
    assert {entry[:2] for entry in corpus.damages} == {key for key, boards in found.items() if boards is None}
    assert (len(found), len(corpus.damages), len(corpus.sound)) == (damage.NUM_RUNS, 100, damage.NUM_RUNS - 100)
    assert len({entry.kind for entry in corpus.damages}) == 18
