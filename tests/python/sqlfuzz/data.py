"""The data: a small archive with odd games, and user tables with NULLs of all types."""

from __future__ import annotations

import math
import random
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import a2store
import formats
import games
import oracle

from .dtypes import BOOL, F32, F64, I8, I16, I32, I64, STR, TIME, U8, U16, U32, U64, Type

PHASES = {"mid": 32, "late": 128}
STEPS: dict[str, Type] = {
    "run_id": U32, "step_index": U32, "board": U64, "move": U8, "ev_legal": U8, "ev_up": F32, "ev_down": F32,
    "ev_left": F32, "ev_right": F32, "has_evs": BOOL, "max_exp": U8, "phase": STR, "max_score": I64,
    "highest_tile": U32, "num_steps": U32, "engine": STR,
}  # fmt: skip
RUNS: dict[str, Type] = {
    "run_id": U32, "format": STR, "engine": STR, "start_time": TIME, "elapsed_s": F32, "num_steps": U32,
    "max_score": I64, "highest_tile": U32, "final_board": U64, "seed": U64, "verified": BOOL,
    "source_id": I64, "game_steps": U32, "raw_evs": BOOL,
}  # fmt: skip
ANNOTATIONS: dict[str, Type] = {
    "run_id": U32, "step_index": U32, "model": STR, "teacher_move": U8, "argmax_head": U8, "argmax_prob": F32,
}  # fmt: skip
MODELS = ("a", "b")
USER: dict[str, Type] = {
    "id": I64, "run_id": U32, "a_u8": U8, "a_u16": U16, "a_u32": U32, "a_u64": U64, "a_i8": I8, "a_i16": I16,
    "a_i32": I32, "a_i64": I64, "a_f32": F32, "a_f64": F64, "a_b": BOOL, "a_s": STR, "a_n": STR,
}  # fmt: skip
"""``a_s`` contains words, ``a_n`` contains integers as text."""
TABLES = {"steps": STEPS, "runs": RUNS, "annotations": ANNOTATIONS, "u": USER, "v": USER, "e": USER}
"""``u`` has NULLs, ``v`` is declared without NULLs, ``e`` has no rows."""
KEYS = {
    "steps": ("run_id", "step_index"), "runs": ("run_id",), "annotations": ("model", "run_id", "step_index"),
    "u": ("id",), "v": ("id",), "e": ("id",),
}  # fmt: skip
"""The columns that identify a row of each table."""
ARROW = {
    "u8": pa.uint8(), "u16": pa.uint16(), "u32": pa.uint32(), "u64": pa.uint64(), "i8": pa.int8(), "i16": pa.int16(),
    "i32": pa.int32(), "i64": pa.int64(), "f32": pa.float32(), "f64": pa.float64(), "bool": pa.bool_(),
    "str": pa.string(),
}  # fmt: skip
WORDS = ["a", "b", "abc", "alpha", "beta", "late", "", "Ab", "a_b", "x%"]


@dataclass
class Data:
    """An archive, its compacted copy, the user tables in one and in many batches, and DuckDB with the same rows."""

    plain: a2store.Archive
    compacted: a2store.Archive
    tables: dict[str, Any]
    """The user tables, each in one batch."""
    divided: dict[str, Any]
    """The user tables in batches of three rows, and ``u`` in a file."""
    duck: duckdb.DuckDBPyConnection


def build(folder: Path) -> Data:
    """Make all data in a new folder, deterministically."""
    _archive(folder)
    shutil.copytree(folder / "games.a2", folder / "compacted.a2")
    compacted = a2store.Archive.open(folder / "compacted.a2")
    compacted.compact(progress=False)
    pq.write_table(user_tables(random.Random(0))["u"], folder / "u.parquet", row_group_size=3)
    return attach(folder)


def attach(folder: Path) -> Data:
    """Open the data that ``build`` made."""
    plain = a2store.Archive.open(folder / "games.a2")
    tables = user_tables(random.Random(0))
    divided: dict[str, Any] = {n: pa.Table.from_batches(_pieces(t), t.schema) for n, t in tables.items()}
    divided["u"] = folder / "u.parquet"
    compacted = a2store.Archive.open(folder / "compacted.a2")
    return Data(plain, compacted, tables, divided, duck_of(plain, tables))


def _archive(folder: Path) -> None:
    rng = random.Random(1)
    archive = a2store.Archive.create(folder / "games.a2", phases=PHASES)
    for number, engines in enumerate([("alpha", None, "beta"), ("γάμμα", "alpha"), (None, "beta", "alpha")]):
        into = folder / f"runs{number}"
        into.mkdir()
        for place, engine in enumerate(engines):
            game = games.play(rng, rng.randrange(15, 60), engine=engine, raw=place == 1, without_evs=0.3)
            game = replace(game, max_score=rng.choice([0, 3, game.max_score, game.max_score, 2**40]))
            encode = oracle.encode_a2t1 if engine == "beta" else oracle.encode_a2run2
            (into / f"{place}").write_bytes(encode(game))
        # A game that ended before its first move.
        if number == 1:
            empty = replace(game, boards=(), moves=(), branches=(), engine="alpha", max_score=0, start_unix_s=0)
            (into / "none").write_bytes(oracle.encode_a2t1(empty))
        archive.ingest(into, progress=False)
    sampled = [games.play(rng, 40) for _ in range(2)]
    # Every third step: first without moves and values, then with moves.
    for name, action in (("boards", False), ("moves", True)):
        formats.write_session(folder / name, sampled, action=action, sample_rate=3, first_id=7)
        archive.ingest(folder / name, progress=False)
    _annotate(archive, rng)


def _annotate(archive: a2store.Archive, rng: random.Random) -> None:
    """Add predictions of two models for some of the steps, in two files each."""
    rows = pa.table(archive.sql("SELECT run_id, step_index, move FROM steps"))
    for model in MODELS:
        for runs in (range(5), range(5, 20)):
            chosen = [run in runs and rng.random() < 0.7 for run in rows["run_id"].to_pylist()]
            part = rows.filter(pa.array(chosen))
            moves = [rng.randrange(4) for _ in range(len(part))]
            teachers = [rng.choice([None, move]) for move in part["move"].to_pylist()]
            part = part.drop_columns("move")
            # Sums of these are exact.
            probabilities = [rng.choice([None, 0.25, 0.5, 0.75, 1.0]) for _ in range(len(part))]
            part = part.append_column("argmax_head", pa.array(moves, pa.uint8()))
            part = part.append_column("teacher_move", pa.array(teachers, pa.uint8()))
            part = part.append_column("argmax_prob", pa.array(probabilities, pa.float32()))
            archive.annotate(model, part, partial=True, progress=False)


def user_tables(rng: random.Random) -> dict[str, Any]:
    found = {}
    for name, rows, nulls in (("u", 17, 0.25), ("v", 11, 0.0), ("e", 0, 0.25)):
        columns, fields = [], []
        for column, dtype in USER.items():
            values: list[Any] = [_value(rng, column, dtype) for _ in range(rows)]
            if column == "id":
                values = list(range(rows))
            else:
                values = [None if rng.random() < nulls else value for value in values]
            columns.append(pa.array(values, ARROW[dtype.name]))
            fields.append(pa.field(column, ARROW[dtype.name], nullable=bool(nulls) and column != "id"))
        found[name] = pa.table(columns, schema=pa.schema(fields))
    return found


def _value(rng: random.Random, column: str, dtype: Type) -> Any:
    if column == "run_id":
        return rng.randrange(14)
    if column == "a_n":
        return str(rng.choice([0, 1, 2, 3, 9, 10, 42, 300]))
    if dtype == BOOL:
        return rng.random() < 0.5
    if dtype == STR:
        return rng.choice(WORDS)
    if dtype.is_float:
        return rng.choice([0.0, 0.5, 0.75, 1.0, -1.5, 3.0, 255.0, 1e10, 16777216.0, math.nan])
    small = [0, 1, 2, 3, 4, 7, 9, 10, 100]
    # The ends of a type's range reveal types that are too narrow.
    # The least 64-bit integers are left out, because their sums with the largest depend on the order of rounding.
    least = dtype.hi - 1 if dtype.lo == 0 else max(dtype.lo, I32.lo)
    return rng.choice([*small, dtype.hi, max(dtype.lo, -1), least])


def _pieces(table: Any) -> list[Any]:
    pieces: list[Any] = table.to_batches(max_chunksize=3)
    return pieces


def duck_of(archive: a2store.Archive, tables: dict[str, Any]) -> duckdb.DuckDBPyConnection:
    """Return DuckDB with the rows of the archive's Parquet files and of the user tables."""
    duck = duckdb.connect(config={"threads": 1})
    duck.execute("SET TimeZone = 'UTC'")
    # Two optimizers of DuckDB answer wrongly. One stores sums in too few bits (196729 becomes 121).
    # The other drops the LIMIT above a LEFT JOIN whose condition is never true.
    duck.execute("SET disabled_optimizers = 'compressed_materialization,statistics_propagation'")
    names: tuple[Literal["steps", "runs", "annotations"], ...] = ("steps", "runs", "annotations")
    for name in names:
        duck.read_parquet(archive.files(name)).create(name)
    for user, table in tables.items():
        duck.register("arrow_table", table)
        duck.execute(f"CREATE TABLE {user} AS SELECT * FROM arrow_table")
        duck.unregister("arrow_table")
    duck.execute("SET default_null_order = 'NULLS_LAST_ON_ASC_FIRST_ON_DESC'")
    return duck
