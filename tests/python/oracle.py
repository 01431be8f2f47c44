"""The oracle of the tests: the rules of 2048, both run formats and CRC32C, simply written from their definitions.

Nothing here uses a2store. A board is an int of sixteen 4-bit exponents, cell 0 in the highest four bits. Moves are in
the order up, down, left, right (UDLR).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Branches = tuple[float | None, float | None, float | None, float | None]
"""The value of each move; None for an illegal move."""


@dataclass(frozen=True)
class Game:
    """One run, as a file stores it."""

    boards: tuple[int, ...]
    moves: tuple[int, ...]
    branches: tuple[Branches | None, ...]
    final_board: int
    start_unix_s: int
    elapsed_s: float
    max_score: int
    highest_tile: int
    engine: str | None

    def __len__(self) -> int:
        return len(self.boards)


# Checksums


def _crc32c_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _crc32c_table()


@lru_cache(maxsize=512)
def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


# Rules


def cells(board: int) -> list[int]:
    return [board >> (4 * (15 - cell)) & 15 for cell in range(16)]


def packed(exps: Sequence[int]) -> int:
    board = 0
    for exp in exps:
        board = board << 4 | exp
    return board


@cache
def slide_line(line: tuple[int, ...]) -> tuple[int, ...]:
    """Slide a line towards its first cell; a tile merges once."""
    tiles = [exp for exp in line if exp]
    out: list[int] = []
    while tiles:
        exp = tiles.pop(0)
        # Two tiles of the largest value that a cell can hold do not merge.
        if tiles and tiles[0] == exp and exp < 15:
            tiles.pop(0)
            exp += 1
        out.append(exp)
    return tuple(out + [0] * (4 - len(out)))


@cache
def lines(move: int) -> list[list[int]]:
    """Return the cells of each line, from the wall that the tiles move to."""
    rows = [[4 * row + column for column in range(4)] for row in range(4)]
    columns = [[4 * row + column for row in range(4)] for column in range(4)]
    return [columns, [line[::-1] for line in columns], rows, [line[::-1] for line in rows]][move]


def slide(board: int, move: int) -> int:
    exps = cells(board)
    for line in lines(move):
        for cell, exp in zip(line, slide_line(tuple(exps[cell] for cell in line)), strict=True):
            exps[cell] = exp
    return packed(exps)


@cache
def legal_mask(board: int) -> int:
    return sum(1 << move for move in range(4) if slide(board, move) != board)


def spawns(before: int, after: int) -> bool:
    """Return whether ``after`` is ``before`` with one empty cell turned into a 2 or a 4."""
    changed = [(old, new) for old, new in zip(cells(before), cells(after), strict=True) if old != new]
    return len(changed) == 1 and changed[0] in [(0, 1), (0, 2)]


def reward(board: int, move: int) -> int:
    """Return the sum of the tiles that merges create; each merge replaces two equal tiles by one."""
    before, after = sorted(cells(board)), sorted(cells(slide(board, move)))
    made = 0
    # From small to large exponents: each pair of missing tiles was merged into one of the next exponent.
    carried = 0
    for exp in range(1, 15):
        carried = (before.count(exp) + carried - after.count(exp)) // 2
        made += carried * 2 ** (exp + 1)
    return made


# Formats


def decode(data: bytes) -> Game:
    return decode_a2t1(data) if data.startswith(b"A2T1") else decode_a2run2(data)


def decode_a2t1(data: bytes) -> Game:
    assert struct.unpack("<I", data[-4:])[0] == crc32c(data[:-4])
    magic, version, endianness, steps, start, elapsed, score, tile, engine_len = struct.unpack_from("<4sBBIQfQIH", data)
    assert (magic, version, endianness) == (b"A2T1", 1, 0)
    states_at = 36 + engine_len
    moves_at = states_at + 8 * (steps + 1)
    states = struct.unpack_from(f"<{steps + 1}Q", data, states_at)
    moves = tuple(data[moves_at : moves_at + steps])
    assert moves_at + steps + 4 == len(data)
    # The format cannot tell a run without an engine's name from one whose name is empty.
    engine = data[36:states_at].decode() or None
    return Game(states[:-1], moves, (None,) * steps, states[-1], start, elapsed, score, tile, engine)


def encode_a2t1(game: Game) -> bytes:
    engine = (game.engine or "").encode()
    fields = (len(game), game.start_unix_s, game.elapsed_s, game.max_score, game.highest_tile, len(engine))
    head = struct.pack("<4sBBIQfQIH", b"A2T1", 1, 0, *fields)
    states = struct.pack(f"<{len(game) + 1}Q", *game.boards, game.final_board)
    body = head + engine + states + bytes(game.moves)
    return body + struct.pack("<I", crc32c(body))


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, length: int) -> bytes:
        assert self.at + length <= len(self.data)
        self.at += length
        return self.data[self.at - length : self.at]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def f32(self) -> float:
        value: float = struct.unpack("<f", self.take(4))[0]
        return value

    def branch(self) -> float | None:
        tag = self.varint()
        assert tag in (0, 1)
        return self.f32() if tag == 0 else None


def decode_a2run2(data: bytes) -> Game:
    reader = _Reader(data)
    steps, start, elapsed, score, tile = (
        reader.varint(),
        reader.varint(),
        reader.f32(),
        reader.varint(),
        reader.varint(),
    )
    engine = reader.take(reader.varint()).decode() if reader.varint() else None
    assert reader.varint() == steps
    boards, moves, branches = [], [], []
    for _ in range(steps):
        boards.append(reader.varint())
        moves.append(reader.varint())
        has = reader.varint()
        branches.append((reader.branch(), reader.branch(), reader.branch(), reader.branch()) if has else None)
    final_board = reader.varint()
    assert reader.at == len(data)
    return Game(tuple(boards), tuple(moves), tuple(branches), final_board, start, elapsed, score, tile, engine)


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_a2run2(game: Game) -> bytes:
    out = bytearray(varint(len(game)) + varint(game.start_unix_s) + struct.pack("<f", game.elapsed_s))
    out += varint(game.max_score) + varint(game.highest_tile)
    if game.engine is None:
        out += b"\0"
    else:
        out += b"\1" + varint(len(game.engine.encode())) + game.engine.encode()
    out += varint(len(game))
    for board, move, branches in zip(game.boards, game.moves, game.branches, strict=True):
        out += varint(board) + varint(move) + (b"\0" if branches is None else b"\1")
        for value in branches or ():
            out += b"\1" if value is None else b"\0" + struct.pack("<f", value)
    return bytes(out + varint(game.final_board))


# Columns


def step_columns(games: Sequence[Game], phases: tuple[int, int]) -> dict[str, Array]:
    """Return the expected columns of ``steps`` for these runs, with the ids 0, 1, …; missing values are NaN."""
    mid, late = phases

    def phase(exp: int) -> str:
        return "late" if 2**exp >= late else "mid" if 2**exp >= mid else "early"

    def mask(board: int, branches: Branches | None) -> int:
        if branches is None:
            return legal_mask(board)
        return sum(1 << move for move in range(4) if branches[move] is not None)

    rows = [(game, index) for game in games for index in range(len(game))]
    boards = [game.boards[index] for game, index in rows]
    branches = [game.branches[index] for game, index in rows]
    nan = float("nan")
    evs = [[nan if value is None else value for value in values or [None] * 4] for values in branches]
    max_exp = [max(cells(board)) for board in boards]
    columns: dict[str, Array] = {
        "run_id": np.repeat(np.arange(len(games), dtype="u4"), [len(game) for game in games]),
        "step_index": np.array([index for _, index in rows], "u4"),
        "board": np.array(boards, "u8"),
        "move": np.array([game.moves[index] for game, index in rows], "u1"),
        "ev_legal": np.array([mask(*pair) for pair in zip(boards, branches, strict=True)], "u1"),
        "has_evs": np.array([values is not None for values in branches]),
        "max_exp": np.array(max_exp, "u1"),
        "phase": np.array([phase(exp) for exp in max_exp]),
        "max_score": np.array([game.max_score for game, _ in rows], "i8"),
        "highest_tile": np.array([game.highest_tile for game, _ in rows], "u4"),
        "num_steps": np.array([len(game) for game, _ in rows], "u4"),
        "engine": np.array([game.engine for game, _ in rows], object),
        "tile_65536_mask": np.zeros(len(rows), "u2"),
    }
    for move, name in enumerate(EV_COLUMNS):
        columns[name] = np.array(evs, "f4").reshape(-1, 4)[:, move]
    return columns


EV_COLUMNS = ("ev_up", "ev_down", "ev_left", "ev_right")


def table_evs(columns: dict[str, Array]) -> Array:
    """Return the four values in the form of a table: 0.0 for an illegal move, four NaNs for a step without values."""
    evs = np.stack([columns[name] for name in EV_COLUMNS], axis=1)
    return np.where(columns["has_evs"][:, None], np.nan_to_num(evs), np.float32("nan")).astype("f4")


def tokens(boards: Array) -> Array:
    shifts = np.arange(60, -1, -4, dtype="u8")
    return (boards[:, None] >> shifts & np.uint64(15)).astype("u1")


def mask_bits(masks: Array) -> Array:
    return (masks[:, None] >> np.arange(4, dtype="u1") & 1).astype(bool)
