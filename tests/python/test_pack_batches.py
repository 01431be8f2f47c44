"""Batches of a pack's runs and steps, shuffled and split: each one once, in an order that the seed determines."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import a2store
import formats
import packs
from compare import assert_same, row_keys
from oracle import Array, Game, crc32c
from packs import places
from sources import assert_run, rows, rows_of

NUM_RUNS = 53
COLUMNS = ("board", "move", "ev_values", "ev_legal", "run_id", "step_index")


@pytest.fixture(scope="module")
def games() -> list[Game]:
    return packs.make_games(2, NUM_RUNS)


@pytest.fixture(scope="module")
def pack(games: list[Game], tmp_path_factory: pytest.TempPathFactory) -> a2store.PackReader:
    path = tmp_path_factory.mktemp("packs") / "runs.a2pack"
    packs.write(path, games)
    return a2store.PackReader.open(path)


@pytest.fixture(scope="module")
def expected(games: list[Game]) -> dict[str, Array]:
    """The rows of all steps, in order."""
    expected = rows_of(packs.as_packed(games))
    assert len(expected["board"]) > 1000
    assert np.isnan(expected["ev_values"]).any()
    return expected


def order_of(pack: a2store.PackReader, batch_size: int = 4, **options: Any) -> list[int]:
    return [place for runs in pack.iter_batches(batch_size, **options) for place in places(runs)]


def check_rows(batches: list[a2store.Batch], expected: dict[str, Array], order: Array) -> None:
    found = rows(batches)
    for name in COLUMNS:
        assert_same(found[name], expected[name][order], name)


# Runs


@pytest.mark.parametrize("batch_size", [1, 7, 53, 1000])
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_of_runs_have_every_run_once(
    pack: a2store.PackReader, games: list[Game], batch_size: int, shuffle: bool
) -> None:
    iterator = pack.iter_batches(batch_size, shuffle, 5)
    assert iter(iterator) is iterator
    assert len(iterator) == -(-NUM_RUNS // batch_size)
    batches = list(iterator)
    assert len(batches) == len(iterator)
    assert [len(runs) for runs in batches[:-1]] == [batch_size] * (len(batches) - 1)
    order = [place for runs in batches for place in places(runs)]
    assert sorted(order) == list(range(NUM_RUNS))
    assert (order == list(range(NUM_RUNS))) != shuffle
    for place, run in zip(order, (run for runs in batches for run in runs), strict=True):
        assert_run(run, games[place], packs.kind_of(place))
    assert next(iterator, None) is None


def test_the_order_of_runs_depends_on_the_seed_alone(pack: a2store.PackReader) -> None:
    order = order_of(pack, shuffle=True, seed=5)
    again = a2store.PackReader.open(pack.path)
    for workers in (None, 1, 2, 5):
        for batch_size in (1, 4, 64):
            assert order_of(again, batch_size, shuffle=True, seed=5, workers=workers) == order
    seeds = [0, 1, 6, 2**63, 2**64 - 1]
    orders = [tuple(order_of(pack, shuffle=True, seed=seed)) for seed in seeds]
    assert len({*orders, tuple(order)}) == len(seeds) + 1
    # Neighbours are separated, so the order is not only reversed.
    assert sum(abs(a - b) == 1 for a, b in pairwise(order)) < NUM_RUNS // 4


def test_without_a_seed_orders_differ(pack: a2store.PackReader) -> None:
    # With 53! orders, two are never equal.
    orders = {tuple(order_of(pack, shuffle=True)) for _ in range(4)}
    assert len(orders) == 4
    # An unshuffled iterator ignores the seed.
    assert order_of(pack, seed=9) == order_of(pack) == list(range(NUM_RUNS))


def test_batches_of_chosen_runs(pack: a2store.PackReader) -> None:
    indices = [9, 3, -1, 40, 3]
    expected = [9, 3, NUM_RUNS - 1, 40, 3]
    assert order_of(pack, 2, indices=indices) == expected
    assert order_of(pack, 2, indices=np.array(indices)) == expected
    assert order_of(pack, 2, indices=iter(indices)) == expected
    assert len(pack.iter_batches(2, indices=indices)) == 3
    shuffled = order_of(pack, 2, shuffle=True, seed=1, indices=range(0, NUM_RUNS, 2))
    assert sorted(shuffled) == list(range(0, NUM_RUNS, 2)) != shuffled
    assert list(pack.iter_batches(2, indices=[])) == []
    train, test = pack.split(test_size=10, seed=4)
    assert order_of(pack, indices=train) == train.tolist()
    assert sorted(order_of(pack, shuffle=True, indices=test)) == test.tolist()


@pytest.mark.parametrize("method", ["iter_batches", "iter_step_batches"])
def test_bad_arguments_of_batches(pack: a2store.PackReader, method: str) -> None:
    call: Callable[..., object] = getattr(pack, method)
    for options in ({"batch_size": 0}, {"batch_size": 4, "workers": 0}, {"batch_size": 4, "workers": 1_000_000}):
        with pytest.raises(ValueError, match="expected"):
            call(**options)
    with pytest.raises(TypeError):
        call()


# Steps


@pytest.mark.parametrize("workers", [None, 1, 2])
def test_batches_of_steps_are_the_rows_of_the_oracle(
    pack: a2store.PackReader, expected: dict[str, Array], workers: int | None
) -> None:
    num_steps = len(expected["board"])
    iterator = pack.iter_step_batches(100, workers=workers)
    assert iter(iterator) is iterator
    assert len(iterator) == -(-num_steps // 100)
    batches = list(iterator)
    assert [len(batch) for batch in batches] == [100] * (num_steps // 100) + [num_steps % 100]
    check_rows(batches, expected, np.arange(num_steps))
    assert next(iterator, None) is None
    first = batches[0]
    assert first.tokens.shape == (100, 16)
    assert first.tokens.dtype == np.uint8
    assert first.tokens[7].tolist() == [int(first.board[7]) >> shift & 15 for shift in range(60, -1, -4)]


def test_shuffled_steps_occur_once_in_an_order_determined_by_the_seed(
    pack: a2store.PackReader, expected: dict[str, Array]
) -> None:
    keys = expected["run_id"].astype("u8") << np.uint64(32) | expected["step_index"]

    def order(seed: int | None, batch_size: int = 64, workers: int | None = None) -> Array:
        batches = list(pack.iter_step_batches(batch_size, True, seed, workers))
        order: Array = np.searchsorted(keys, row_keys(batches))
        check_rows(batches, expected, order)
        np.testing.assert_array_equal(np.sort(order), np.arange(len(keys)))
        return order

    five = order(5)
    for batch_size, workers in ((1, 1), (1000, 2), (10**6, None)):
        np.testing.assert_array_equal(order(5, batch_size, workers), five)
    others = [five, order(6), order(None), order(None)]
    for one in range(4):
        assert sum((others[one] == other).mean() > 0.05 for other in others) == 1
    # Steps of one run do not stay together.
    neighbours = np.diff(expected["run_id"][five].astype("i8")) == 0
    assert neighbours.mean() < 0.2


def test_batches_of_chosen_steps(pack: a2store.PackReader, expected: dict[str, Array]) -> None:
    num_steps = len(expected["board"])
    chosen = np.array([17, 3, num_steps - 1, 3])
    check_rows(list(pack.iter_step_batches(3, indices=chosen)), expected, chosen)
    check_rows(list(pack.iter_step_batches(3, indices=chosen.tolist())), expected, chosen)
    train, test = pack.split("step", test_pct=0.25, seed=4)
    check_rows(list(pack.iter_step_batches(64, indices=test)), expected, test)
    shuffled = rows(list(pack.iter_step_batches(64, True, 1, indices=train)))
    assert sorted(shuffled["board"].tolist()) == sorted(expected["board"][train].tolist())
    assert shuffled["board"].tolist() != expected["board"][train].tolist()
    assert list(pack.iter_step_batches(3, indices=[])) == []
    for bad in (num_steps, -num_steps - 1):
        with pytest.raises(IndexError, match=str(num_steps)):
            pack.iter_step_batches(3, indices=[bad])


def test_a_table_of_a_pack_is_served_like_any_other(pack: a2store.PackReader, expected: dict[str, Array]) -> None:
    for workers in (None, 1, 2):
        table = pack.to_table(workers=workers)
        assert len(table) == len(expected["board"])
        check_rows([table.take(np.arange(len(table)))], expected, np.arange(len(table)))
    assert table.fingerprint == pack.to_table().fingerprint
    keys = row_keys(table.loader(64, seed=3))
    assert len(set(keys.tolist())) == len(table)
    scores = table.filter(run_ids=[2, 5])
    assert set(np.asarray(scores)["run_id"].tolist()) == {2, 5}


# Damaged runs

BAD = [4, 5, *range(30, 40)]
SOUND = [place for place in range(NUM_RUNS) if place not in BAD]


@pytest.fixture
def damaged(games: list[Game], tmp_path: Path) -> a2store.PackReader:
    path = tmp_path / "damaged.a2pack"
    packs.write(path, games)
    for place in BAD:
        packs.flip(path, packs.entry(path, place)[0] + 7)
    return a2store.PackReader.open(path)


def check_errors(errors: list[a2store.Rejected], pack: a2store.PackReader) -> None:
    assert sorted(error.run for error in errors if error.run is not None) == BAD
    assert {(error.path, error.kind) for error in errors} == {(pack.path, "checksum")}


@pytest.mark.parametrize("workers", [None, 2])
def test_damaged_runs_raise_once_and_lose_no_other_run(damaged: a2store.PackReader, workers: int | None) -> None:
    batches = damaged.iter_batches(10, workers=workers)
    raised: list[int | None] = []
    found: list[list[int]] = []
    while True:
        try:
            found.append(places(next(batches)))
        except StopIteration:
            break
        except a2store.DecodeError as error:
            raised.append(error.run)
    assert raised == BAD
    assert found == [[place for place in SOUND if place // 10 == tens] for tens in (0, 1, 2, 4, 5)]
    assert batches.errors == []


def test_damaged_runs_are_skipped_and_reported(damaged: a2store.PackReader) -> None:
    batches = damaged.iter_batches(10, on_error="skip")
    assert len(batches) == 6
    assert [places(runs) for runs in batches] == [
        [place for place in SOUND if place // 10 == tens] for tens in (0, 1, 2, 4, 5)
    ]
    assert [error.run for error in batches.errors] == BAD
    check_errors(batches.errors, damaged)
    shuffled = damaged.iter_batches(7, shuffle=True, seed=3, on_error="skip")
    assert sorted(place for runs in shuffled for place in places(runs)) == SOUND
    check_errors(shuffled.errors, damaged)
    some = damaged.iter_batches(2, indices=[5, 6, 7], on_error="skip")
    assert ([places(runs) for runs in some], [error.run for error in some.errors]) == ([[6], [7]], [5])


def test_a_table_of_the_sound_runs(damaged: a2store.PackReader, expected: dict[str, Array]) -> None:
    sound = np.flatnonzero(~np.isin(expected["run_id"], BAD))
    for table in (
        damaged.to_table(on_error="skip"),
        a2store.StepTable.from_runs(damaged.path, on_error="skip", progress=False),
    ):
        check_rows([table.take(np.arange(len(table)))], expected, sound)
        check_errors(table.errors, damaged)
        assert len(table.filter(run_ids=[0]).errors) == len(BAD)
    batches = damaged.iter_step_batches(64, on_error="skip")
    check_rows(list(batches), expected, sound)
    check_errors(batches.errors, damaged)


def test_removed_runs_are_not_errors(games: list[Game], tmp_path: Path) -> None:
    path = tmp_path / "removed.a2pack"
    packs.write(path, games)
    data = bytearray(path.read_bytes())
    # An entry of length 0 is a tombstone.
    struct.pack_into("<I", data, 28 + 32 * 5 + 8, 0)
    struct.pack_into("<I", data, len(data) - 24, crc32c(bytes(data[28 : 28 + 32 * NUM_RUNS])))
    struct.pack_into("<I", data, len(data) - 8, crc32c(bytes(data[-32:-8])))
    path.write_bytes(data)
    pack = a2store.PackReader.open(path)
    batches = pack.iter_batches(10, on_error="skip")
    assert [place for runs in batches for place in places(runs)] == [place for place in range(NUM_RUNS) if place != 5]
    table = pack.to_table(on_error="skip")
    assert batches.errors == table.errors == []
    assert 5 not in np.asarray(table)["run_id"]
    with pytest.raises(a2store.DecodeError, match="tombstone"):
        list(pack.iter_batches(10))


def test_sound_packs_have_no_errors(pack: a2store.PackReader) -> None:
    batches = pack.iter_batches(10, on_error="skip")
    assert sum(len(runs) for runs in batches) == NUM_RUNS
    assert batches.errors == pack.to_table(on_error="skip").errors == pack.to_table().errors == []
    wrong: Any = "ignore"
    for call in (pack.to_table, lambda **options: pack.iter_batches(4, **options)):
        with pytest.raises(ValueError, match="skip or raise, found ignore"):
            call(on_error=wrong)


# Splits


@pytest.mark.parametrize("unit", ["run", "step"])
@pytest.mark.parametrize("options", [{"test_pct": 0.2}, {"test_pct": 0.333}, {"test_size": 9}, {"test_pct": 0.001}])
def test_a_split_is_disjoint_complete_and_determined_by_the_seed(
    pack: a2store.PackReader, expected: dict[str, Array], unit: Any, options: dict[str, Any]
) -> None:
    total = NUM_RUNS if unit == "run" else len(expected["board"])
    size = options["test_size"] if "test_size" in options else max(1, int(total * options["test_pct"]))
    train, test = pack.split(unit, **options, seed=3)
    assert len(test) == size
    for part in (train, test):
        assert part.dtype == np.uint64
        assert (np.diff(part.astype("i8")) > 0).all()
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(total))
    again = a2store.PackReader.open(pack.path).split(unit, **options, seed=3)
    np.testing.assert_array_equal(again[0], train)
    np.testing.assert_array_equal(again[1], test)
    if size > 3:
        others = [pack.split(unit, **options, seed=seed)[1].tolist() for seed in (0, 4, 2**64 - 1)]
        assert len({tuple(part) for part in [*others, test.tolist()]}) == 4
        # The split is random, not a cut at one end.
        assert test.min() < total // 2 < test.max()


def test_splits_with_an_empty_part(pack: a2store.PackReader, tmp_path: Path) -> None:
    assert [len(part) for part in pack.split(test_size=0)] == [NUM_RUNS, 0]
    assert [len(part) for part in pack.split(test_size=NUM_RUNS)] == [0, NUM_RUNS]
    np.testing.assert_array_equal(pack.split(test_size=9)[1], pack.split(test_size=9, seed=0)[1])
    formats.write_pack(tmp_path / "none.a2pack", [])
    empty = a2store.PackReader.open(tmp_path / "none.a2pack")
    assert [len(part) for part in empty.split("step", test_pct=0.5)] == [0, 0]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"test_pct": 0.1, "test_size": 5},
        {"test_pct": -0.1},
        {"test_pct": 0},
        {"test_pct": 1},
        {"test_pct": 10},
        {"test_pct": float("nan")},
        {"test_size": NUM_RUNS + 1},
        {"unit": "game", "test_pct": 0.1},
    ],
)
def test_invalid_splits(pack: a2store.PackReader, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        pack.split(**options)
