"""Packs from Python: runs by index and in order, and errors of damaged packs."""

from __future__ import annotations

import pickle
import random
import struct
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import a2store
import formats
import oracle
import packs
from formats import A2RUN2, A2T1, Payload
from oracle import Game
from packs import places
from sources import assert_run

NUM_RUNS = 41


@pytest.fixture(scope="module")
def games() -> list[Game]:
    return packs.make_games(1, NUM_RUNS)


@pytest.fixture(scope="module")
def path(games: list[Game], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packs") / "runs.a2pack"
    packs.write(path, games)
    return path


@pytest.fixture
def damaged(path: Path, tmp_path: Path) -> Path:
    """The pack with a wrong byte in run 5 and in run 30, one in each format."""
    copy = tmp_path / "damaged.a2pack"
    copy.write_bytes(path.read_bytes())
    for index, kind in ((5, A2T1), (30, A2RUN2)):
        assert packs.kind_of(index) == kind
        offset, length = packs.entry(copy, index)
        packs.flip(copy, offset + length // 2)
    return copy


def test_every_run_equals_the_packed_one(pack: a2store.PackReader, games: list[Game], path: Path) -> None:
    assert (len(pack), pack.path) == (NUM_RUNS, path)
    assert str(NUM_RUNS) in repr(pack)
    for index, game in enumerate(games):
        kind = packs.kind_of(index)
        assert pack.kind(index) == ("v1" if kind == A2T1 else "v2")
        for run in (pack.decode(index), pack[index], pack.decode(index - NUM_RUNS), pack[index - NUM_RUNS]):
            assert_run(run, game, kind)
    assert {pack.kind(index) for index in range(len(pack))} == {"v1", "v2"}
    assert pack.kind(-1) == pack.kind(NUM_RUNS - 1)


@pytest.mark.parametrize("align", [8, 64, 4096])
def test_packs_of_any_alignment(games: list[Game], tmp_path: Path, align: int) -> None:
    payloads = packs.write(tmp_path / "a.a2pack", games, align=align, stats=False)
    pack = a2store.PackReader.open(str(tmp_path / "a.a2pack"))
    assert [run.to_bytes() for run in pack] == [payload.data for payload in payloads]
    assert pack.validate(progress=False) == []


@pytest.mark.parametrize("compression", [formats.ZSTD, formats.LZ4])
def test_compressed_runs(games: list[Game], tmp_path: Path, compression: int) -> None:
    if not formats.has_codec(compression):
        pytest.skip("the module of this compression is not installed")
    plain, packed = packs.payloads_of(games), packs.payloads_of(games, compression)
    mixed = [pair[place % 2] for place, pair in enumerate(zip(plain, packed, strict=True))]
    # Earlier builds wrote version 1.
    for version in (1, 2):
        formats.write_pack(tmp_path / "a.a2pack", mixed, version=version)
        pack = a2store.PackReader.open(tmp_path / "a.a2pack")
        for index, game in enumerate(games):
            assert_run(pack[index], game, packs.kind_of(index))
        assert pack.validate(progress=False) == []


@pytest.mark.parametrize("name", ["mixed.a2pack", "jsonl/two.a2pack"])
def test_packs_of_the_existing_tool(fixtures: Path, name: str) -> None:
    entries, _ = formats.read_pack(fixtures / name)
    payloads = [entry for entry in entries if isinstance(entry, Payload)]
    pack = a2store.PackReader.open(fixtures / name)
    assert len(pack) == len(payloads) == (31 if name == "mixed.a2pack" else 2)
    for index, (run, payload) in enumerate(zip(pack, payloads, strict=True)):
        assert_run(run, formats.decode_file(payload.data), payload.kind)
        assert pack.kind(index) == f"v{payload.kind}"
        assert run.to_bytes() == payload.data
        assert run.verify() is None
    assert pack.validate(progress=False) == []


@pytest.mark.parametrize("end", [0, 28, 4096])
def test_an_empty_pack(tmp_path: Path, end: int) -> None:
    path = tmp_path / "none.a2pack"
    formats.write_pack(path, [])
    data = bytearray(path.read_bytes())
    # The existing tool has 0 here; earlier builds of this package wrote 4096.
    struct.pack_into("<Q", data, len(data) - 32, end)
    struct.pack_into("<I", data, len(data) - 8, oracle.crc32c(bytes(data[-32:-8])))
    path.write_bytes(data)
    pack = a2store.PackReader.open(tmp_path / "none.a2pack")
    assert (len(pack), list(pack), pack.decode_batch([]), pack.validate(progress=False)) == (0, [], [], [])
    assert list(pack.iter_batches(4, shuffle=True, seed=1)) == []
    assert list(pack.iter_step_batches(4)) == []
    stats = pack.stats
    assert (stats.count, stats.total_steps, stats.mean_len, stats.highest_tiles, stats.engines) == (0, 0, 0, {}, {})
    for index in (0, -1):
        with pytest.raises(IndexError):
            pack.decode(index)


def test_batches_of_indices_keep_the_order(pack: a2store.PackReader, games: list[Game]) -> None:
    indices = [3, 0, 40, 3, -1, 17, -41, 3]
    expected = [index % NUM_RUNS for index in indices]
    for runs in (pack.decode_batch(indices), list(pack.iter_indices(indices)), pack.decode_batch(iter(indices))):
        assert places(runs) == expected
        for place, run in zip(expected, runs, strict=True):
            assert_run(run, games[place], packs.kind_of(place))
    assert places(pack.decode_batch(range(NUM_RUNS - 1, -1, -1))) == list(range(NUM_RUNS))[::-1]
    assert list(pack.iter_indices([])) == pack.decode_batch([]) == []


def test_each_iteration_starts_at_the_beginning(pack: a2store.PackReader) -> None:
    assert places(pack) == places(pack.iter()) == places(pack) == list(range(NUM_RUNS))
    # Two independent iterators, each of which stays at its end.
    one, other = pack.iter(), iter(pack)
    assert iter(one) is one
    assert places([next(one), next(other), next(one), next(other)]) == [0, 0, 1, 1]
    assert places(one) == list(range(2, NUM_RUNS))
    assert next(one, None) is None


def test_iterators_outlive_their_reader(path: Path) -> None:
    iterators: list[Iterable[a2store.Run]] = [
        a2store.PackReader.open(path).iter(),
        a2store.PackReader.open(path).iter_indices(range(NUM_RUNS)),
        (run for runs in a2store.PackReader.open(path).iter_batches(3) for run in runs),
    ]
    for iterator in iterators:
        assert places(iterator) == list(range(NUM_RUNS))


@pytest.mark.parametrize("index", [NUM_RUNS, -NUM_RUNS - 1, 2**40])
def test_indices_out_of_range(pack: a2store.PackReader, index: int) -> None:
    for method in (pack.decode, pack.kind, pack.__getitem__):
        with pytest.raises(IndexError, match=str(index)):
            method(index)
    # The error comes at once, before any run is decoded.
    for call in (pack.decode_batch, pack.iter_indices, lambda indices: pack.iter_batches(2, indices=indices)):
        with pytest.raises(IndexError):
            call([0, index])


@pytest.mark.parametrize("index", ["0", 1.5, None])
def test_indices_of_another_type(pack: a2store.PackReader, index: Any) -> None:
    for call in (pack.decode, pack.kind, lambda value: pack.decode_batch([value]), pack.iter_indices):
        with pytest.raises(TypeError):
            call(index)


# Damage


def check_error(error: a2store.DecodeError, path: Path, run: int, kind: str) -> None:
    assert (error.kind, error.path, error.run) == (kind, path, run)
    offset, length = packs.entry(path, run)
    assert error.offset is not None
    assert offset <= error.offset < offset + length
    assert str(error).startswith(str(path))
    assert "\n" not in str(error)


def test_a_damaged_run_raises_in_order_and_affects_no_other(damaged: Path) -> None:
    pack = a2store.PackReader.open(damaged)
    assert (len(pack), pack.kind(5), pack.kind(30)) == (NUM_RUNS, "v1", "v2")
    order = random.Random(2).sample(range(NUM_RUNS), NUM_RUNS)
    for iterator, indices in ((pack.iter(), list(range(NUM_RUNS))), (pack.iter_indices(order), order)):
        for index in indices:
            if index in (5, 30):
                with pytest.raises(a2store.DecodeError) as caught:
                    next(iterator)
                check_error(caught.value, damaged, index, "checksum")
            else:
                assert places([next(iterator)]) == [index]
        assert next(iterator, None) is None


def test_every_access_to_a_damaged_run_reports_its_location(damaged: Path) -> None:
    pack = a2store.PackReader.open(damaged)
    ways: list[tuple[Callable[[], object], int]] = [
        (lambda: pack.decode(5), 5),
        (lambda: pack[30 - NUM_RUNS], 30),
        (lambda: pack.decode_batch([1, 30, 5]), 30),
        (lambda: list(pack.iter_batches(64)), 5),
        (lambda: list(pack.iter_batches(64, indices=[30, 5])), 30),
        (lambda: pack.to_table(), 5),
        (lambda: pack.iter_step_batches(64), 5),
    ]
    for way, index in ways:
        with pytest.raises(a2store.DecodeError) as caught:
            way()
        check_error(caught.value, damaged, index, "checksum")
    assert places(pack.decode_batch([4, 6, 29, 31])) == [4, 6, 29, 31]
    problems = pack.validate(progress=False)
    assert len(problems) == 2
    assert all(str(damaged) in problem for problem in problems)


def test_damage_with_a_correct_checksum_is_found_while_decoding(games: list[Game], tmp_path: Path) -> None:
    path = tmp_path / "a.a2pack"
    payloads = packs.payloads_of(games)
    wrong_move = replace(games[3], moves=(*games[3].moves[:-1], 9))
    payloads[3] = Payload(oracle.encode_a2run2(wrong_move), A2RUN2)
    payloads[6] = replace(payloads[6], data=payloads[6].data + b"\0")
    payloads[7] = replace(payloads[7], kind=7)
    payloads[8] = replace(payloads[8], kind=A2RUN2)
    payloads[9] = replace(payloads[9], kind=A2T1)
    payloads[10] = replace(payloads[10], data=payloads[10].data[:-1])
    formats.write_pack(path, payloads)
    pack = a2store.PackReader.open(path)
    wrong = [3, 6, 7, 8, 9, 10]
    for index in wrong:
        with pytest.raises(a2store.DecodeError) as caught:
            pack.decode(index)
        offset, length = packs.entry(path, index)
        error = caught.value
        assert (error.path, error.run) == (path, index)
        # The missing bytes are noticed at the end.
        assert error.offset is not None
        assert offset <= error.offset <= offset + length
        if index == 3:
            assert (error.kind, error.step) == ("decode", len(games[3]) - 1)
            assert path.read_bytes()[error.offset] == 9
        if index == 7:
            assert (error.kind, str(error).endswith("found 7")) == ("decode", True)
    others = [index for index in range(NUM_RUNS) if index not in wrong]
    assert places(pack.decode_batch(others)) == others
    assert len(pack.validate(progress=False)) == len(wrong)


def test_checksums_can_be_skipped(games: list[Game], tmp_path: Path) -> None:
    path = tmp_path / "a.a2pack"
    game = next(index for index, game in enumerate(games) if len(game) > 9 and packs.kind_of(index) == A2RUN2)
    packs.write(path, games)
    # The lowest bit of the final board. The last byte of its last varint has higher bits.
    offset, length = packs.entry(path, game)
    last = oracle.varint(games[game].final_board)
    packs.flip(path, offset + length - len(last))
    packs.flip(path, sum(packs.entry(path, 2)) - 5)
    assert packs.kind_of(2) == A2T1
    pack = a2store.PackReader.open(path, checksums=False)
    assert pack.decode(game).final_board == games[game].final_board ^ 1
    # A reader pickles with its choice.
    assert pickle.loads(pickle.dumps(pack)).decode(game).final_board == games[game].final_board ^ 1
    checked = a2store.PackReader.open(path)
    for reader in (checked, pickle.loads(pickle.dumps(checked))):
        with pytest.raises(a2store.DecodeError, check=lambda error: error.kind == "checksum"):
            reader.decode(game)
    # A2T1 has a checksum inside the run.
    with pytest.raises(a2store.DecodeError, check=lambda error: error.kind == "checksum"):
        pack.decode(2)


def test_a_wrong_pack_index_is_rejected(games: list[Game], tmp_path: Path) -> None:
    """The checksums are correct, but entries lie beyond the data, inside the index, or overlap."""
    path = tmp_path / "a.a2pack"
    packs.write(path, games[:6])
    data = path.read_bytes()
    offset, length = packs.entry(path, 3)
    for change in (
        (len(data), length),
        (2**63, length),
        (28, length),
        (offset, 2**31),
        (packs.entry(path, 2)[0], length),
    ):
        forged = bytearray(data)
        struct.pack_into("<QI", forged, 28 + 32 * 3, *change)
        foot = forged[-32:-8]
        struct.pack_into("<I", foot, 8, oracle.crc32c(bytes(forged[28 : 28 + 32 * 6])))
        forged[-32:-4] = bytes(foot) + struct.pack("<I", oracle.crc32c(bytes(foot)))
        path.write_bytes(forged)
        with pytest.raises(a2store.DecodeError) as caught:
            a2store.PackReader.open(path)
        assert caught.value.kind == "header", change


def test_missing_files_and_files_that_are_not_packs(run_files: list[Path], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        a2store.PackReader.open(tmp_path / "absent.a2pack")
    assert caught.value.filename == str(tmp_path / "absent.a2pack")
    with pytest.raises(OSError, match=tmp_path.name):
        a2store.PackReader.open(tmp_path)
    with pytest.raises(a2store.DecodeError, check=lambda error: error.kind == "header"):
        a2store.PackReader.open(run_files[0])
    with pytest.raises(TypeError):
        a2store.PackReader.open(7)  # type: ignore[arg-type]
