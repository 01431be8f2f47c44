"""Packs for tests: of short games in both kinds of run files, identified by their start times, and damaged packs."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import a2store
import formats
from formats import A2RUN2, A2T1, ENTRY, Payload
from games import play
from oracle import Game, encode_a2run2, encode_a2t1

ENGINES = (None, "plain", "γάμμα", "")
FIRST = 1_700_000_000
"""The start time of the first game of a pack; each next game starts one second later."""


def make_games(seed: int, count: int, *, most_steps: int = 90) -> list[Game]:
    """Return games of many lengths, including one step and none; some steps have no values."""
    rng = random.Random(seed)
    lengths = [1, 0, *(rng.randrange(2, most_steps) for _ in range(count - 2))]
    games = [
        play(rng, length, engine=ENGINES[place % 4], without_evs=0.1 * (place % 2))
        for place, length in enumerate(lengths)
    ]
    return [replace(game, start_unix_s=FIRST + place) for place, game in enumerate(games)]


def kind_of(place: int) -> int:
    return A2T1 if place % 3 == 2 else A2RUN2


def payloads_of(games: Iterable[Game], compression: int = formats.NONE) -> list[Payload]:
    """Encode the games, every third in A2T1."""
    encoders = {A2T1: encode_a2t1, A2RUN2: encode_a2run2}
    kinds = [(game, kind_of(place)) for place, game in enumerate(games)]
    return [Payload(encoders[kind](game), kind, compression) for game, kind in kinds]


def as_packed(games: Iterable[Game]) -> list[Game]:
    """Return the games without the data that their files cannot store."""
    return [
        replace(game, branches=(None,) * len(game), engine=game.engine or None) if kind_of(place) == A2T1 else game
        for place, game in enumerate(games)
    ]


def write(path: Path, games: Sequence[Game], *, align: int = 8, stats: bool = True) -> list[Payload]:
    payloads = payloads_of(games)
    stats_of = formats.stats_of([len(game) for game in games]) if stats else None
    formats.write_pack(path, payloads, align=align, stats=stats_of)
    return payloads


def entry(path: Path, index: int) -> tuple[int, int]:
    """Return the offset and the length of an entry in a pack."""
    offset, length, *_ = ENTRY.unpack_from(path.read_bytes(), formats.HEADER.size + 4 + ENTRY.size * index)
    return offset, length


def flip(path: Path, offset: int, bits: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= bits
    path.write_bytes(data)


def places(runs: Iterable[a2store.Run]) -> list[int]:
    """Return the indices of the games that these runs are."""
    return [run.meta.start_unix_s - FIRST for run in runs]


nearest = formats.stats_of
