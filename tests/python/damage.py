"""A folder of 600 runs in every format, with exactly 100 damaged runs. No damage affects another run."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import formats
import logs
import macroxue_packs
from formats import A2RUN2, A2T1, ENTRY, FormatError, Payload
from games import play
from oracle import Game, cells, decode_a2run2, encode_a2run2, encode_a2t1, varint

ENGINES = (None, "plain-d2", "γάμμα")


class Damage(NamedTuple):
    path: Path
    """The run file, the container's file or folder, or the meta file of a log."""
    run: int | None
    """The run's index in a container; None for a file of one run."""
    kind: str


class Sound(NamedTuple):
    path: Path
    run: int | None
    game: Game


@dataclass
class Corpus:
    damages: list[Damage] = field(default_factory=list)
    sound: list[Sound] = field(default_factory=list)


FILE_DAMAGES: dict[str, dict[str, int]] = {
    "a2run2": {
        "a2run2_truncated": 12,
        "a2run2_trailing_bytes": 9,
        "a2run2_steps_of_meta": 8,
        "a2run2_move_9": 8,
        "a2run2_empty_file": 6,
    },
    "a2t1": {"a2t1_truncated": 8, "a2t1_checksum": 8, "a2t1_move_7": 8},
}
CONTAINER_DAMAGES: dict[str, dict[str, int]] = {
    "packs/mixed.a2pack": {"a2pack_flipped_byte": 3, "a2pack_kind": 3},
    "packs/dense.a2pack": {"a2pack_flipped_byte": 3, "a2pack_kind": 3},
    "pack.dat": {"pack_dat_move_7": 3},
    "dataset": {"dataset_run_id": 4},
    "selfplay/20260101_model=test": {"session_exponent_17": 4},
    "strong/pack": {"macroxue_pack_move_9": 2, "macroxue_pack_rank_17": 2},
    "macroxue": {"macroxue_tile_131072": 2, "macroxue_truncated": 2, "macroxue_row_missing": 2},
}
NUM_FILES = {"a2run2": 130, "a2t1": 70}
NUM_IN_CONTAINER = {"packs/mixed.a2pack": 80, "packs/dense.a2pack": 80, "strong/pack": 30}
NUM_LOGS = 30
NUM_IN_OTHERS = 60
NUM_RUNS, NUM_DAMAGED = 600, 100


def write(folder: Path, seed: int, *, session_action: bool = True) -> Corpus:
    """Write the runs, which the seed determines. All sound runs have different boards.

    The session has moves unless ``session_action`` is False.
    """
    rng = random.Random(seed)
    corpus = Corpus()
    for name, count in NUM_FILES.items():
        for game, kind in _chosen(rng, count, FILE_DAMAGES[name]):
            path = folder / _file_path(rng, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_file(rng, game, name, kind))
            _add(corpus, path, None, game, kind)
    writers: dict[str, Callable[[random.Random, Path, _Chosen], None]] = {
        "packs/mixed.a2pack": lambda rng, path, chosen: _pack(rng, path, chosen, align=4096),
        "packs/dense.a2pack": lambda rng, path, chosen: _pack(rng, path, chosen, align=8),
        "pack.dat": _pack_dat,
        "dataset": _dataset,
        "selfplay/20260101_model=test": lambda rng, path, chosen: _session(rng, path, chosen, action=session_action),
        "strong/pack": _macroxue_pack,
    }
    for name, writer in writers.items():
        count, raw = NUM_IN_CONTAINER.get(name, NUM_IN_OTHERS), name == "strong/pack"
        chosen = list(_chosen(rng, count, CONTAINER_DAMAGES[name], raw=raw))
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        writer(rng, path, chosen)
        for run, (game, kind) in enumerate(chosen):
            _add(corpus, path, run, game, kind)
    for number, (game, kind) in enumerate(_chosen(rng, NUM_LOGS, CONTAINER_DAMAGES["macroxue"], raw=True)):
        _add(corpus, _log(rng, folder / "macroxue" / "d6", number, game, kind), None, game, kind)

    assert len({(sound.game.boards, sound.game.final_board) for sound in corpus.sound}) == NUM_RUNS - NUM_DAMAGED
    assert len(corpus.damages) == NUM_DAMAGED
    return corpus


_Chosen = Sequence[tuple[Game, str | None]]


def _chosen(
    rng: random.Random, count: int, damages: dict[str, int], *, raw: bool = False
) -> Iterator[tuple[Game, str | None]]:
    """Yield ``count`` games, each with its damage or ``None``."""
    kinds = [kind for kind, times in damages.items() for _ in range(times)]
    places = dict(zip(rng.sample(range(count), len(kinds)), kinds, strict=True))
    for place in range(count):
        game = play(rng, rng.randrange(20, 90), engine=ENGINES[place % 3], raw=raw, without_evs=[0.0, 0.1][place % 2])
        yield game, places.get(place)


def _add(corpus: Corpus, path: Path, run: int | None, game: Game, kind: str | None) -> None:
    if kind is None:
        corpus.sound.append(Sound(path, run, game))
    else:
        corpus.damages.append(Damage(path, run, kind))


def _with_move(rng: random.Random, game: Game, move: int) -> Game:
    place = rng.randrange(len(game))
    return replace(game, moves=(*game.moves[:place], move, *game.moves[place + 1 :]))


# Run files


def _file_path(rng: random.Random, name: str) -> Path:
    stem = str(uuid.UUID(int=rng.getrandbits(128), version=4))
    if name == "a2run2":
        return Path("runs") / stem[:2] / stem[2:4] / f"{stem}.a2run2"
    return Path("traces") / f"202601{rng.randrange(1, 29):02}" / f"{stem}.bin"


def _file(rng: random.Random, game: Game, name: str, kind: str | None) -> bytes:
    data = encode_a2run2(game) if name == "a2run2" else encode_a2t1(game)
    match kind:
        case None:
            return data
        case "a2run2_truncated" | "a2t1_truncated":
            data = data[: rng.randrange(1, len(data))]
        case "a2run2_trailing_bytes":
            data += rng.randbytes(rng.randrange(1, 9))
        case "a2run2_steps_of_meta":
            data = varint(len(game) + rng.choice((-1, 1))) + data[len(varint(len(game))) :]
        case "a2run2_move_9":
            data = encode_a2run2(_with_move(rng, game, 9))
        case "a2run2_empty_file":
            data = b""
        case "a2t1_checksum":
            data = data[:-4] + bytes(byte ^ 0x55 for byte in data[-4:])
        case "a2t1_move_7":
            data = encode_a2t1(_with_move(rng, game, 7))
        case _:
            raise ValueError(kind)
    assert not _decodes(data), kind
    return data


def _decodes(data: bytes) -> bool:
    """Return whether the bytes decode as a run file of either kind."""
    for decode in (formats.decode_file, decode_a2run2):
        try:
            if all(move < 4 for move in decode(data).moves):
                return True
        except (FormatError, AssertionError, ValueError):
            pass
    return False


# Containers


def _pack(rng: random.Random, path: Path, chosen: _Chosen, *, align: int) -> None:
    payloads = []
    for place, (game, kind) in enumerate(chosen):
        data, file_kind = (encode_a2t1(game), A2T1) if place % 3 == 0 else (encode_a2run2(game), A2RUN2)
        payloads.append(Payload(data, 7 if kind == "a2pack_kind" else file_kind))
    formats.write_pack(path, payloads, align=align, stats=formats.stats_of([len(game) for game, _ in chosen]))
    file = bytearray(path.read_bytes())
    for place, (_, kind) in enumerate(chosen):
        if kind == "a2pack_flipped_byte":
            offset, length, *_rest = ENTRY.unpack_from(file, 28 + ENTRY.size * place)
            file[offset + rng.randrange(length)] ^= 1 << rng.randrange(8)
    path.write_bytes(file)


def _pack_dat(rng: random.Random, path: Path, chosen: _Chosen) -> None:
    formats.write_pack_dat(path, [_with_move(rng, game, 7) if kind else game for game, kind in chosen])


def _dataset(rng: random.Random, path: Path, chosen: _Chosen) -> None:
    formats.write_dataset(path, [game for game, _ in chosen], shards=2)
    for start, game in _damaged_rows(chosen):
        middle = start + len(game) // 2
        _patch(path, middle, start + len(game), "run_id", 1_000_000)


def _session(rng: random.Random, path: Path, chosen: _Chosen, *, action: bool) -> None:
    formats.write_session(path, [game for game, _ in chosen], action=action, shards=2)
    for start, game in _damaged_rows(chosen):
        step = rng.randrange(len(game))
        exps = cells(game.boards[step])
        exps[rng.randrange(16)] = 17
        _patch(path, start + step, start + step + 1, "exps", exps)


def _macroxue_pack(rng: random.Random, path: Path, chosen: _Chosen) -> None:
    pack = macroxue_packs.of_games([game for game, _ in chosen], 9_000)
    for run, (game, kind) in enumerate(chosen):
        own = np.flatnonzero(pack.rows["run_id"] == run)[rng.randrange(len(game))]
        match kind:
            case "macroxue_pack_move_9":
                pack.rows["move_dir"][own] = 9
            case "macroxue_pack_rank_17":
                pack.rows["max_rank"][own] = 17
    macroxue_packs.write(path, pack.rows, pack.runs, shards=[1000, len(pack.rows) - 1000])


def _damaged_rows(chosen: _Chosen) -> Iterator[tuple[int, Game]]:
    """Return the first row of each run to damage."""
    start = 0
    for game, kind in chosen:
        if kind is not None:
            yield start, game
        start += len(game)


def _patch(folder: Path, first: int, end: int, column: str, value: Any) -> None:
    """Set a column of a range of rows, which may span several shards."""
    start = 0
    for path in sorted(folder.glob("steps-*.npy")):
        rows = np.load(path)
        part = rows[max(first - start, 0) : max(end - start, 0)]
        if len(part):
            part[column] = value
            np.save(path, rows)
        start += len(rows)


def _log(rng: random.Random, folder: Path, number: int, game: Game, kind: str | None) -> Path:
    exps = {}
    if kind == "macroxue_tile_131072":
        exps = {len(game) - 1: [17, *cells(game.boards[-1])[1:]]}
    zipped = kind == "macroxue_truncated" or number % 4 != 3
    name, extra = f"depth06_game{number:06}", number % 5 == 2
    path = logs.write_macroxue(
        folder, name, game, 5_000 + number, zipped=zipped, zipped_meta=number % 7 == 3, extra=extra, exps=exps
    )
    if kind == "macroxue_truncated":
        rows = folder / f"{name}.jsonl.gz"
        data = rows.read_bytes()
        rows.write_bytes(data[: rng.randrange(1, len(data))])
    if kind == "macroxue_row_missing":
        meta = json.loads(logs.read_text(path))
        path.write_text(json.dumps(meta | {"num_moves": len(game) + 1}))
    return path
