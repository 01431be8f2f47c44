"""One game in several formats: recognized at ingest, and on one side of every split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
import formats
import oracle
from archives import first_ingest, ingested, run_command, short_games
from oracle import Game

FORMATS: tuple[Any, ...] = ("a2t1", "a2pack", "packdat", "npy", "session")
NUM_GAMES = 24
Table = Any


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> list[Game]:
    return short_games(tmp_path_factory.mktemp("games") / "whole", NUM_GAMES)


@pytest.fixture(scope="module")
def folder(games: list[Game], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each game once as a2run2 with values, and in a subfolder for each format without them."""
    folder = tmp_path_factory.mktemp("twins")
    (folder / "a2run2").mkdir()
    (folder / "a2t1").mkdir()
    for index, game in enumerate(games):
        (folder / "a2run2" / f"{index:03}.a2run2").write_bytes(oracle.encode_a2run2(game))
        (folder / "a2t1" / f"{index:03}.bin").write_bytes(oracle.encode_a2t1(game))
    for name in FORMATS[1:]:
        out = {"a2pack": "games.a2pack", "packdat": "pack.dat"}.get(name, "games")
        (folder / name).mkdir()
        a2store.convert(folder / "a2t1", folder / name / out, format=name, progress=False)
    return folder


@pytest.mark.filterwarnings("ignore")
def test_one_game_in_all_formats_is_one_game(folder: Path, tmp_path: Path) -> None:
    archive, first = first_ingest(tmp_path / "games.a2", folder / "a2run2")
    assert (first.accepted, first.twins) == (NUM_GAMES, 0)
    known = pa.table(archive.sql("SELECT game FROM runs"))["game"].to_pylist()
    assert len(set(known)) == NUM_GAMES
    assert all(0 <= game < 2**63 for game in known)
    num_twins = 0
    for name in FORMATS:
        report = archive.ingest(folder / name, progress=False)
        assert (report.accepted + report.duplicates, report.twins) == (NUM_GAMES, report.accepted), name
        num_twins += report.twins
    found = pa.table(archive.sql("SELECT game FROM runs"))["game"].to_pylist()
    assert num_twins >= 3 * NUM_GAMES
    assert sorted(found) == sorted(known * (1 + num_twins // NUM_GAMES))
    assert archive.verify(progress=False).problems == []


def test_the_command_counts_twins(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "games.a2"
    assert "twins" not in run_command("ingest", folder / "a2run2", path).stdout
    kept = run_command("ingest", folder / "a2t1", path).stdout
    assert f"{NUM_GAMES} runs added ({NUM_GAMES} have the same game as another run), 0 duplicates, 0 rejected" in kept
    assert "twins" not in run_command("ingest", folder / "a2t1", path).stdout
    assert '"twins":0' in run_command("ingest", folder / "a2t1", path, "--json").stdout.replace(" ", "")


def test_many_commits_remember_games(games: list[Game], tmp_path: Path) -> None:
    archive = a2store.Archive.create(tmp_path / "games.a2")
    for index, game in enumerate(games):
        path = tmp_path / f"{index}.a2run2"
        path.write_bytes(oracle.encode_a2run2(game))
        archive.ingest(path, progress=False)
    twins = tmp_path / "twins"
    twins.mkdir()
    for index, game in enumerate(games):
        (twins / f"{index}.a2run2").write_bytes(oracle.encode_a2run2(replace(game, engine="another")))
    report = a2store.open(archive.path).ingest(twins, progress=False)
    assert (report.accepted, report.twins) == (NUM_GAMES, NUM_GAMES)
    # A prefix of a game is another game.
    game = games[0]
    shorter = replace(game, boards=game.boards[:-1], moves=game.moves[:-1], branches=game.branches[:-1])
    (tmp_path / "shorter.bin").write_bytes(oracle.encode_a2t1(replace(shorter, final_board=game.boards[-1])))
    report = archive.ingest(tmp_path / "shorter.bin", progress=False)
    assert (report.accepted, report.twins) == (1, 0)


def of_archive(folder: Path, tmp_path: Path) -> Table:
    archive = ingested(tmp_path / "games.a2", [folder / "a2run2", folder / "a2t1"])
    return archive.sql("SELECT * FROM steps").materialize(progress=False)


def of_run_files(folder: Path, _: Path) -> Table:
    return a2store.StepTable.from_runs([folder / "a2run2", folder / "a2t1"], progress=False)


def of_file(folder: Path, tmp_path: Path) -> Table:
    of_archive(folder, tmp_path).save(tmp_path / "table.npy", progress=False)
    return a2store.StepTable.load(tmp_path / "table.npy", progress=False)


def of_session(folder: Path, tmp_path: Path) -> Table:
    games = [oracle.decode(path.read_bytes()) for path in sorted((folder / "a2t1").iterdir())]
    formats.write_session(tmp_path / "session", games + games)
    return a2store.StepTable.from_session(tmp_path / "session", progress=False)


def sides(table: Table, seed: int) -> list[set[tuple[int, int]]]:
    """Return the steps of both sides: the number of the game and the index in it.

    Runs k and k + NUM_GAMES are twins.
    """
    parts = table.train_test_split(0.4, seed=seed)
    assert sum(map(len, parts)) == len(table)
    first = int(np.asarray(table)["run_id"].min())
    rows = [np.asarray(part) for part in parts]
    games = [((part["run_id"] - first) % NUM_GAMES).tolist() for part in rows]
    return [set(zip(of, part["step_index"].tolist(), strict=True)) for of, part in zip(games, rows, strict=True)]


@pytest.mark.parametrize("make", [of_archive, of_run_files, of_file, of_session])
def test_splits_keep_a_game_on_one_side(make: Callable[[Path, Path], Table], folder: Path, tmp_path: Path) -> None:
    table = make(folder, tmp_path)
    assert len(table) == 2 * NUM_GAMES * 20
    for seed in range(5):
        train, test = sides(table, seed)
        assert train
        assert test
        assert train.isdisjoint(test), seed


def test_packs_and_their_tables_split_alike(folder: Path, tmp_path: Path) -> None:
    both = [folder / "a2run2", folder / "a2t1"]
    with pytest.warns(UserWarning, match="repeat the game"):
        a2store.convert(both, tmp_path / "both.a2pack", format="a2pack", progress=False)
    pack = a2store.PackReader.open(tmp_path / "both.a2pack")
    table = pack.to_table()
    for seed, share in ((0, 0.0), (1, 0.4), (2, 0.4), (3, 0.4), (4, 1.0)):
        train, test = pack.train_test_split(share, seed=seed)
        boards = [{pack[int(index)].boards.tobytes() for index in part} for part in (train, test)]
        assert boards[0].isdisjoint(boards[1])
        assert len(boards[0]) + len(boards[1]) == NUM_GAMES
        for found, view in zip((train, test), table.train_test_split(share, seed=seed), strict=True):
            assert found.dtype == np.uint64
            assert found.tolist() == np.unique(view["run_id"]).tolist()


def test_a_conversion_counts_repeated_games(folder: Path, tmp_path: Path) -> None:
    """A pack and the folder that it was made from hold each game twice."""
    done = run_command(
        "convert", folder / "a2t1", folder / "a2run2", "--format", "a2pack", "-o", tmp_path / "both.a2pack"
    )
    assert f"{NUM_GAMES} of {2 * NUM_GAMES} runs repeat the game of an earlier run" in done.stderr
    done = run_command("convert", folder / "a2run2", "--format", "a2pack", "-o", tmp_path / "one.a2pack")
    assert "repeat" not in done.stderr
    both = [folder / "a2t1", folder / "a2run2"]
    with pytest.warns(UserWarning, match=f"{NUM_GAMES} of {2 * NUM_GAMES} runs repeat"):
        a2store.convert(both, tmp_path / "again.a2pack", format="a2pack", progress=False)
