"""Packs in a process: statistics, validation, pickling, threads and forks."""

from __future__ import annotations

import multiprocessing
import pickle
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import a2store
import formats
import packs
from oracle import Game
from packs import nearest, places
from threads import HANGS

NUM_RUNS = 47


@pytest.fixture(scope="module")
def games() -> list[Game]:
    return packs.make_games(6, NUM_RUNS)


@pytest.fixture(scope="module")
def path(games: list[Game], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packs") / "runs.a2pack"
    packs.write(path, games)
    return path


# Statistics


def block(stats: a2store.PackStats) -> formats.Stats:
    names = ("count", "total_steps", "min_len", "max_len", "mean_len", "p50", "p90", "p99")
    return formats.Stats(*(getattr(stats, name) for name in names))


@pytest.mark.parametrize("count", [3, 4, 10, 11, NUM_RUNS])
def test_statistics_equal_numpys(games: list[Game], tmp_path: Path, count: int) -> None:
    packs.write(tmp_path / "a.a2pack", games[:count], stats=False)
    stats = a2store.PackReader.open(tmp_path / "a.a2pack").stats
    lengths = [len(game) for game in games[:count]]
    assert block(stats) == nearest(lengths)
    for place, share in enumerate((0.5, 0.9, 0.99)):
        percentile = (stats.p50, stats.p90, stats.p99)[place]
        near = (np.quantile(lengths, share, method="lower"), np.quantile(lengths, share, method="higher"))
        assert percentile in near


def test_statistics_of_tiles_and_engines(pack: a2store.PackReader, games: list[Game]) -> None:
    stats = pack.stats
    packed = packs.as_packed(games)
    assert stats.unreadable == 0
    assert stats.highest_tiles == Counter(game.highest_tile for game in games)
    assert stats.engines == Counter(game.engine for game in packed)
    counts = list(stats.engines.values())
    assert counts == sorted(counts, reverse=True)
    assert block(pack.stats) == block(stats)


def test_statistics_that_contradict_the_runs_are_not_used(games: list[Game], tmp_path: Path) -> None:
    stored = formats.Stats(7, 70, 1, 20, 10.5, 9, 19, 20)
    formats.write_pack(tmp_path / "a.a2pack", packs.payloads_of(games), stats=stored)
    pack = a2store.PackReader.open(tmp_path / "a.a2pack")
    assert block(pack.stats) == nearest([len(game) for game in games])
    (problem,) = pack.validate(progress=False)
    assert "stats" in problem


@pytest.mark.parametrize("name", ["mixed.a2pack", "jsonl/two.a2pack"])
def test_statistics_of_the_existing_tool(fixtures: Path, tmp_path: Path, name: str) -> None:
    entries, stored = formats.read_pack(fixtures / name)
    payloads = [entry for entry in entries if isinstance(entry, formats.Payload)]
    formats.write_pack(tmp_path / "none.a2pack", payloads)
    assert stored is not None
    for path in (fixtures / name, tmp_path / "none.a2pack"):
        assert block(a2store.PackReader.open(path).stats) == stored
    assert nearest([len(formats.decode_file(payload.data)) for payload in payloads]) == stored


def test_statistics_of_a_damaged_pack_count_what_cannot_be_read(games: list[Game], tmp_path: Path) -> None:
    path = tmp_path / "a.a2pack"
    payloads = packs.payloads_of(games)
    payloads[6] = formats.Payload(b"\xff" * 40, formats.A2RUN2)
    formats.write_pack(path, payloads)
    stats = a2store.PackReader.open(path).stats
    assert (stats.unreadable, sum(stats.engines.values()), sum(stats.highest_tiles.values())) == (
        1,
        *[NUM_RUNS - 1] * 2,
    )
    assert block(stats) == nearest([len(game) for index, game in enumerate(games) if index != 6])


# Validation


def test_validation_finds_each_damage_or_what_it_samples(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "a.a2pack"
    copy.write_bytes(path.read_bytes())
    wrong = [0, 13, NUM_RUNS - 1]
    for index in wrong:
        packs.flip(copy, packs.entry(copy, index)[0] + 12)
    pack = a2store.PackReader.open(copy)
    for workers in (None, 1, 2):
        problems = pack.validate(workers=workers, progress=False)
        assert len(problems) == len(wrong)
        for index, problem in zip(wrong, problems, strict=True):
            assert str(copy) in problem
            assert f"run {index}" in problem
    assert len(pack.validate(sample=1, progress=False)) <= 1
    assert pack.validate(sample=NUM_RUNS, progress=False) == problems
    assert pack.validate(sample=10**6, progress=False) == problems
    assert pack.validate(sample=0, progress=False) == []
    with pytest.raises(ValueError, match="workers"):
        pack.validate(workers=0, progress=False)


def test_validation_compares_the_checksum_of_all_data(games: list[Game], tmp_path: Path) -> None:
    path = tmp_path / "a.a2pack"
    formats.write_pack(path, packs.payloads_of(games), align=4096, data_crc=True)
    pack = a2store.PackReader.open(path)
    assert pack.validate(progress=False) == []
    # Padding, which no entry's checksum covers.
    offset, length = packs.entry(path, 3)
    packs.flip(path, offset + length + 5)
    pack = a2store.PackReader.open(path)
    (problem,) = pack.validate(progress=False)
    assert "data" in problem
    assert places(pack) == list(range(NUM_RUNS))


# Other processes and threads


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_reader_pickles_as_its_path(
    pack: a2store.PackReader, path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    monkeypatch.chdir(path.parent)
    relative = a2store.PackReader.open(path.name)
    handles = [pickle.dumps(reader, protocol) for reader in (pack, relative)]
    # This also works in a different folder from the one in which the path was given.
    monkeypatch.chdir(path.parent.parent)
    for handle in handles:
        assert len(handle) < 1000
        assert places(pickle.loads(handle)) == list(range(NUM_RUNS))
    with pytest.raises(FileNotFoundError):
        pickle.loads(handles[0].replace(b"runs.a2pack", b"nuns.a2pack"))


def use(pack: a2store.PackReader, out: Path) -> list[Any]:
    """Use every parallel operation of a reader; return results small enough to pickle."""
    lines = pack.to_jsonl(out, progress=False)
    return [
        places(pack.decode_batch(range(NUM_RUNS))),
        places(pack),
        [place for runs in pack.iter_batches(5, True, 3) for place in places(runs)],
        int(pack.to_table()["board"].sum()),
        pack.stats.total_steps,
        len(pack.validate(progress=False)),
        lines.num_bytes,
    ]


def in_child(pack: a2store.PackReader, out: Path, home: Connection) -> None:
    home.send(use(pack, out))
    home.close()


def received(child: Any, home: Connection) -> Any:
    """Start a child process, and return what it sends."""
    child.start()
    try:
        assert home.poll(HANGS), "the child hangs"
        return home.recv()
    finally:
        child.join(30)
        if child.is_alive():
            child.kill()
            child.join()


forks = pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python itself warns of forks beside threads")


@pytest.mark.parametrize("method", [pytest.param("fork", marks=forks), "spawn"])
def test_a_reader_works_in_another_process(pack: a2store.PackReader, tmp_path: Path, method: str) -> None:
    # The parent's threads have started by then. A forked child has none of them.
    here = use(pack, tmp_path / "here")
    context: Any = multiprocessing.get_context(method)
    for number in range(3 if method == "fork" else 1):
        home, other = context.Pipe(duplex=False)
        child = context.Process(target=in_child, args=(pack, tmp_path / f"there{number}", other))
        assert received(child, home) == here
        assert child.exitcode == 0
        assert use(pack, tmp_path / "here") == here


@forks
def test_an_iterator_continues_in_a_forked_child(pack: a2store.PackReader) -> None:
    """The iterator holds decoded runs when its process forks; then both processes return the rest."""
    iterator = pack.iter()
    assert places([next(iterator), next(iterator)]) == [0, 1]
    context: Any = multiprocessing.get_context("fork")
    home, other = context.Pipe(duplex=False)
    child = context.Process(target=lambda: other.send(places(iterator)))
    assert received(child, home) == list(range(2, NUM_RUNS))
    assert places(iterator) == list(range(2, NUM_RUNS))


def test_threads_share_a_reader_and_an_iterator(pack: a2store.PackReader, tmp_path: Path) -> None:
    alone = use(pack, tmp_path / "alone")
    with ThreadPoolExecutor(8) as threads:
        for found in threads.map(lambda number: use(pack, tmp_path / str(number)), range(16)):
            assert found == alone
        # Each run of one shared iterator goes to one of the threads.
        iterator, batches = pack.iter(), pack.iter_batches(3, True, 1)
        parts = threads.map(lambda _: places(iterator), range(8))
        assert sorted(place for part in parts for place in part) == list(range(NUM_RUNS))
        lists = threads.map(lambda _: [run for runs in batches for run in runs], range(8))
        assert sorted(place for part in lists for place in places(part)) == list(range(NUM_RUNS))
