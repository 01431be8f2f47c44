"""The expected runs of each format, from the simple readers and the rules alone, and comparisons with them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa

import a2store
import formats
import logs
import macroxue_packs
import oracle
from compare import assert_same, column
from formats import FormatError, Payload, Run
from games import f32
from oracle import EV_COLUMNS, Array, Branches, Game, cells, legal_mask, slide, spawns

Name = Literal["run", "pack", "packdat", "npy", "session", "macroxue", "macroxue_pack"]


@dataclass(frozen=True)
class Expected:
    """A run with its expected content in an archive."""

    source: Path
    source_index: int | None
    format: str
    indices: tuple[int, ...]
    boards: tuple[int, ...]
    moves: tuple[int | None, ...]
    branches: tuple[Branches | None, ...]
    max_score: int
    highest_tile: int
    final_board: int | None = None
    engine: str | None = None
    start_unix_s: int = 0
    elapsed_s: float = 0.0
    seed: int | None = None
    session: str | None = None
    raw_evs: bool = False
    verified: bool = True

    def __len__(self) -> int:
        return len(self.boards)


# The known data of a run


def of_game(path: Path, index: int | None, name: str, game: Game) -> Expected:
    meta = ("max_score", "highest_tile", "final_board", "engine", "start_unix_s", "elapsed_s")
    facts = {key: getattr(game, key) for key in meta}
    return _judged(
        Expected(path, index, name, tuple(range(len(game))), game.boards, game.moves, game.branches, **facts)
    )


def _of_run(path: Path, index: int, name: str, run: Run | FormatError) -> Expected:
    assert isinstance(run, Run)
    return Expected(
        source=path,
        source_index=index,
        format=name,
        indices=run.indices,
        boards=run.boards,
        moves=run.moves or derived_moves(run.indices, run.boards),
        branches=run.branches,
        max_score=run.max_score,
        highest_tile=run.highest_tile,
        final_board=run.final_board,
        engine=run.engine,
        start_unix_s=run.start_unix_s or 0,
        elapsed_s=f32(run.elapsed_s or 0.0),
        seed=run.seed,
    )


def read(path: Path, name: Name) -> list[Expected]:
    """Read the runs of a file, of the folder of a dataset or session, or of the log with this meta file."""
    if name == "run":
        data = path.read_bytes()
        kind = "a2t1" if data.startswith(b"A2T1") else "a2run2"
        return [of_game(path, None, kind, formats.decode_file(data))]
    if name == "pack":
        payloads = [entry for entry in formats.read_pack(path)[0] if isinstance(entry, Payload)]
        kinds = {formats.A2T1: "a2t1", formats.A2RUN2: "a2run2"}
        return [
            of_game(path, index, kinds[payload.kind], formats.decode_file(payload.data))
            for index, payload in enumerate(payloads)
        ]
    return list(map(_judged, _read(path, name)))


def _read(path: Path, name: Name) -> list[Expected]:
    if name == "macroxue":
        log = logs.read_macroxue(path)
        log = replace(log, branches=tuple(map(rounded, log.branches)), final_board=last_board(path, log))
        return [replace(_of_run(path, 0, name, log), raw_evs=True)]
    if name == "macroxue_pack":
        runs = [_of_run(path, index, "macroxue", run) for index, run in enumerate(macroxue_packs.read_runs(path))]
        return [replace(run, raw_evs=True, session=path.name) for run in runs]
    readers = {"packdat": formats.read_pack_dat, "npy": formats.read_dataset, "session": formats.read_session}
    expected = [_of_run(path, index, name, run) for index, run in enumerate(readers[name](path))]
    if name != "session":
        return [replace(run, branches=tuple(map(said, run.boards, run.moves, run.branches))) for run in expected]
    facts = dict(formats.query(path / "metadata.db", "SELECT meta_key, meta_value FROM session"))
    engine = json.loads(facts["model"])["tag"]
    return [replace(run, engine=engine, session=path.name) for run in expected]


def rounded(branches: Branches | None) -> Branches | None:
    """Round values to the nearest 32-bit floats."""
    return branches and cast(Branches, tuple(None if value is None else f32(value) for value in branches))


def said(board: int, move: int | None, branches: Branches | None) -> Branches | None:
    """Return the values of a row; ``None`` if only the chosen move has one although the rules allow another.

    The field's tools write a step without values in this form.
    """
    mask = 0 if branches is None else formats.mask_of(branches)
    alone = move is not None and mask == 1 << move and legal_mask(board) != mask
    return None if mask == 0 or alone else branches


def derived_moves(indices: Sequence[int], boards: Sequence[int]) -> tuple[int | None, ...]:
    """Return each move that the next board determines by the rules; ``None`` for all others."""
    moves: list[int | None] = []
    for place, board in enumerate(boards):
        leading: list[int] = []
        if place + 1 < len(boards) and indices[place + 1] == indices[place] + 1:
            leading = [move for move in range(4) if leads(board, move, boards[place + 1])]
        moves.append(leading[0] if len(leading) == 1 else None)
    return tuple(moves)


def leads(board: int, move: int, after: int | None) -> bool:
    slid = slide(board, move)
    return slid != board and (after is None or spawns(slid, after))


def last_board(meta_path: Path, run: Run) -> int | None:
    """Return the final board of a log. The sum of the tiles gives the last spawn if one cell is empty."""
    meta = json.loads(logs.read_text(meta_path))
    if not run.boards or run.moves is None:
        return None
    slid = slide(run.boards[-1], run.moves[-1])
    empty = [cell for cell, exp in enumerate(cells(slid)) if exp == 0]
    spawn = meta["sum_tile"] - sum(2**exp for exp in cells(slid) if exp)
    return slid | spawn // 2 << 4 * (15 - empty[0]) if len(empty) == 1 and spawn in (2, 4) else None


def _judged(run: Expected) -> Expected:
    """Return the run with ``verified``, which says whether it obeys the rules."""
    afters = [*run.boards[1:], run.final_board]
    for place, (board, move, branches) in enumerate(zip(run.boards, run.moves, run.branches, strict=True)):
        index, last = run.indices[place], place + 1 == len(run)
        after = afters[place] if last or run.indices[place + 1] == index + 1 else None
        possible = range(4) if move is None else [move]
        wrong = branches is not None and formats.mask_of(branches) != legal_mask(board)
        if wrong or not any(leads(board, move, after) for move in possible):
            return replace(run, verified=False)
    return run


# Comparison


def assert_archive(archive: a2store.Archive, expected: Sequence[Expected], first_id: int = 0) -> None:
    """Check that from an id on, both tables have exactly these runs."""
    ids = range(first_id, first_id + len(expected))
    assert_runs(pa.table(archive.sql(f"SELECT * FROM runs WHERE run_id >= {first_id} ORDER BY run_id")), expected, ids)
    query = f"SELECT * FROM steps WHERE run_id >= {first_id} ORDER BY run_id, step_index"
    assert_steps(pa.table(archive.sql(query)), expected, ids)


def assert_runs(table: Any, expected: Sequence[Expected], ids: Sequence[int]) -> None:
    assert table["run_id"].to_pylist() == list(ids)
    names = ["source_index", "format", "final_board", "engine", "seed", "session", "raw_evs", "verified"]
    for name in [*names, "max_score", "highest_tile"]:
        assert table[name].to_pylist() == [getattr(run, name) for run in expected], name
    assert table["source"].to_pylist() == [str(run.source) for run in expected]
    assert table["num_steps"].to_pylist() == [len(run) for run in expected]
    starts = [time and round(time.timestamp()) for time in table["start_time"].to_pylist()]
    assert starts == [run.start_unix_s or None for run in expected]
    assert_same(column(table, "elapsed_s"), np.array([run.elapsed_s for run in expected], "f4"), "elapsed_s")


def assert_steps(table: Any, expected: Sequence[Expected], ids: Sequence[int]) -> None:
    lengths = [len(run) for run in expected]
    assert len(table) == sum(lengths) > 0
    assert_same(column(table, "run_id"), np.repeat(np.array(ids, "u4"), lengths), "run_id")
    for name, values in {
        "step_index": [index for run in expected for index in run.indices],
        "board": [board for run in expected for board in run.boards],
        "move": [move for run in expected for move in run.moves],
        "has_evs": [step is not None for run in expected for step in run.branches],
        "ev_legal": [mask(*pair) for run in expected for pair in zip(run.boards, run.branches, strict=True)],
    }.items():
        assert table[name].to_pylist() == values, name
    for move, name in enumerate(EV_COLUMNS):
        evs = [None if step is None else step[move] for run in expected for step in run.branches]
        assert table[name].null_count == evs.count(None), name
        assert_same(column(table, name), np.array([np.nan if ev is None else ev for ev in evs], "f4"), name)
    for name in ("max_score", "highest_tile", "engine"):
        of_runs = [getattr(run, name) for run in expected for _ in run.boards]
        assert table[name].to_pylist() == of_runs, name


def mask(board: int, branches: Branches | None) -> int:
    return legal_mask(board) if branches is None else formats.mask_of(branches)


def assert_run(run: a2store.Run, game: Game, kind: int) -> None:
    """Check that a decoded run equals the game, as a run file of this kind stores it."""
    a2t1 = kind == formats.A2T1
    assert (len(run), run.meta.num_steps, run.final_board) == (len(game), len(game), game.final_board)
    assert run.meta.format == ("a2t1" if a2t1 else "a2run2")
    assert run.meta.engine == ((game.engine or None) if a2t1 else game.engine)
    for name in ("start_unix_s", "elapsed_s", "max_score", "highest_tile"):
        assert getattr(run.meta, name) == getattr(game, name), name
    if len(game) == 0:
        assert (run.boards.shape, run.ev_values.shape) == ((0,), (0, 4))
        return
    columns = oracle.step_columns([replace(game, branches=(None,) * len(game)) if a2t1 else game], (1024, 4096))
    assert_same(run.boards, columns["board"])
    assert_same(run.moves, columns["move"])
    assert_same(run.has_evs, columns["has_evs"])
    assert_same(run.ev_legal, oracle.mask_bits(columns["ev_legal"]))
    assert_same(run.ev_values, oracle.table_evs(columns))


def rows(batches: Sequence[a2store.Batch]) -> dict[str, Array]:
    """Concatenate the columns of batches."""
    names = ("board", "move", "ev_values", "ev_legal", "run_id", "step_index")
    return {name: np.concatenate([batch[name] for batch in batches]) for name in names}


def rows_of(games: Sequence[Game]) -> dict[str, Array]:
    """Return the expected columns of a table of these games."""
    columns = oracle.step_columns(games, (1024, 4096))
    return {
        "board": columns["board"],
        "move": columns["move"],
        "ev_values": oracle.table_evs(columns),
        "ev_legal": oracle.mask_bits(columns["ev_legal"]),
        "run_id": columns["run_id"],
        "step_index": columns["step_index"].astype("u2"),
    }
