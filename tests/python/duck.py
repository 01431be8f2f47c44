"""DuckDB over an archive's own Parquet files, with the board functions as macros written from the rules.

Nothing here goes through a2store's SQL. A macro has the name of the function that it is compared with. Lists are
1-based, as DuckDB has them, and ``[f(x) for x in [value]][1]`` stands for "let x be value".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa

import a2store

CELLS = list(range(1, 17))
ROWS = [CELLS[at : at + 4] for at in range(0, 16, 4)]
COLUMNS = [CELLS[at::4] for at in range(4)]
WALLS = [COLUMNS, [line[::-1] for line in COLUMNS], ROWS, [line[::-1] for line in ROWS]]
"""For each move, the four lines of cells, each from the wall that the tiles move to."""

SOURCES: list[Callable[[int, int], tuple[int, int]]] = [
    lambda row, column: (row, column),
    lambda row, column: (3 - column, row),
    lambda row, column: (3 - row, 3 - column),
    lambda row, column: (column, 3 - row),
    lambda row, column: (row, 3 - column),
    lambda row, column: (3 - row, column),
    lambda row, column: (column, row),
    lambda row, column: (3 - column, 3 - row),
]
"""For each symmetry, the source of the tile at a row and column."""
PLACES = [[4 * source(cell // 4, cell % 4)[0] + source(cell // 4, cell % 4)[1] + 1 for cell in range(16)]
          for source in SOURCES]  # fmt: skip
IMAGES = [
    [0, 1, 2, 3],
    [3, 2, 0, 1],
    [1, 0, 3, 2],
    [2, 3, 1, 0],
    [0, 1, 3, 2],
    [1, 0, 2, 3],
    [2, 3, 0, 1],
    [3, 2, 1, 0],
]
"""For each symmetry, the images of up, down, left and right."""
PAIRS = [[line[at], line[at + 1]] for line in ROWS + COLUMNS for at in range(3)]
"""The cells that are side by side, from 1."""


def merging(prefix: str, most: int) -> str:
    """Return the macros that merge the tiles of a line. Tiles with the exponent ``most`` do not merge."""
    return f"""
CREATE MACRO {prefix}merges(a, b) AS (a = b AND a > 0 AND a < {most});
CREATE MACRO {prefix}merged(t) AS CASE
    WHEN {prefix}merges(t[1], t[2]) AND {prefix}merges(t[3], t[4]) THEN [t[1] + 1, t[3] + 1, 0, 0]
    WHEN {prefix}merges(t[1], t[2]) THEN [t[1] + 1, t[3], t[4], 0]
    WHEN {prefix}merges(t[2], t[3]) THEN [t[1], t[2] + 1, t[4], 0]
    WHEN {prefix}merges(t[3], t[4]) THEN [t[1], t[2], t[3] + 1, 0]
    ELSE [t[1], t[2], t[3], t[4]] END;
"""


MACROS = f"""
CREATE MACRO exps(board) AS [(board >> (60 - 4 * i)::UBIGINT & 15)::UTINYINT for i in range(16)];
CREATE MACRO pack(cells) AS list_sum([cells[i]::HUGEINT << (64 - 4 * i)::HUGEINT for i in range(1, 17)])::UBIGINT;
CREATE MACRO tile_of(exp) AS CASE exp WHEN 0 THEN 0 ELSE (1 << exp::INTEGER) END::UINTEGER;
CREATE MACRO tile(board, cell) AS tile_of(exps(board)[cell + 1]);
CREATE MACRO max_tile(board) AS tile_of(list_max(exps(board)));
CREATE MACRO empty_cells(board) AS len([e for e in exps(board) if e = 0])::UTINYINT;
CREATE MACRO tile_sum(board) AS list_sum([tile_of(e) for e in exps(board)])::UINTEGER;
CREATE MACRO board_score(board) AS
    list_sum([CASE WHEN e > 0 THEN (e::BIGINT - 1) * tile_of(e) ELSE 0 END for e in exps(board)])::BIGINT;

-- Lines of exponents, from the wall that the move goes to; then without the empty cells, and filled up from behind.
CREATE MACRO lines(board, move) AS
    [[[e[cell] for cell in line] for line in {WALLS}[move::INTEGER + 1]] for e in [exps(board)]][1];
CREATE MACRO closed(line) AS [e for e in line if e > 0];
CREATE MACRO closed_lines(board, move) AS
    [list_resize(closed(line), 4, 0::UTINYINT) for line in lines(board, move)];
{merging("", 15)}
CREATE MACRO earned(t) AS CASE
    WHEN merges(t[1], t[2]) AND merges(t[3], t[4]) THEN tile_of(t[1] + 1) + tile_of(t[3] + 1)
    WHEN merges(t[1], t[2]) THEN tile_of(t[1] + 1)
    WHEN merges(t[2], t[3]) THEN tile_of(t[2] + 1)
    WHEN merges(t[3], t[4]) THEN tile_of(t[3] + 1)
    ELSE 0 END;
CREATE MACRO afterstate(board, move) AS
    [list_sum(flatten([
        [merged(slid[i])[j]::HUGEINT << (64 - 4 * {WALLS}[move::INTEGER + 1][i][j])::HUGEINT for j in range(1, 5)]
        for i in range(1, 5)]))::UBIGINT
    for slid in [closed_lines(board, move)]][1];
CREATE MACRO reward(board, move) AS list_sum([earned(line) for line in closed_lines(board, move)])::UINTEGER;
CREATE MACRO legal_moves(board) AS
    list_sum([CASE WHEN afterstate(board, m) <> board THEN 1 << m ELSE 0 END for m in [0, 1, 2, 3]])::UTINYINT;
CREATE MACRO num_legal(board) AS len([m for m in [0, 1, 2, 3] if afterstate(board, m) <> board])::UTINYINT;
CREATE MACRO is_terminal(board) AS num_legal(board) = 0;
CREATE MACRO changed(before, after) AS [i for i in range(1, 17) if before[i] <> after[i]];
CREATE MACRO spawn_between(before, after) AS
    CASE WHEN len(changed(before, after)) = 1 AND before[changed(before, after)[1]] = 0
        AND after[changed(before, after)[1]] IN (1, 2)
    THEN {{'cell': (changed(before, after)[1] - 1)::UTINYINT, 'tile': tile_of(after[changed(before, after)[1]])}} END;
CREATE MACRO spawn(board, move, next_board) AS
    [CASE WHEN slid <> board THEN spawn_between(exps(slid), exps(next_board)) END
    for slid in [afterstate(board, move)]][1];

CREATE MACRO transform(board, symmetry) AS
    [pack([e[place] for place in {PLACES}[symmetry::INTEGER + 1]]) for e in [exps(board)]][1];
CREATE MACRO transform_move(move, symmetry) AS {IMAGES}[symmetry::INTEGER + 1][move::INTEGER + 1]::UTINYINT;
CREATE MACRO turned(board) AS [transform(board, s) for s in range(8)];
CREATE MACRO canonical(board) AS list_min(turned(board));
CREATE MACRO canonical_symmetry(board) AS
    [list_position(t, list_min(t)) - 1 for t in [turned(board)]][1]::UTINYINT;
CREATE MACRO canonical_move(board, move) AS
    [list_min([transform_move(move, s) for s in range(8) if t[s + 1] = list_min(t)])
    for t in [turned(board)]][1]::UTINYINT;

CREATE MACRO board_text(board) AS array_to_string([
    array_to_string([CASE e WHEN 0 THEN '.' ELSE tile_of(e)::VARCHAR END for e in line], ' ')
    for line in lines(board, 2)], ' / ');
-- The same with the cells that hold 65,536.
CREATE MACRO wide_exps(board, mask) AS
    [exps(board)[i + 1] + (coalesce(mask, 0)::INTEGER >> i::INTEGER & 1) for i in range(16)];
CREATE MACRO wide_text(board, mask) AS array_to_string([
    array_to_string([CASE e WHEN 0 THEN '.' ELSE tile_of(e)::VARCHAR END for e in wide_exps(board, mask)[r:r + 3]], ' ')
    for r in [1, 5, 9, 13]], ' / ');
CREATE MACRO wide_canonical(e) AS list_min([{{
    'board': pack([least(x, 15) for x in t]),
    'mask': list_sum([(t[i + 1] = 16)::INTEGER << i for i in range(16)]), 'exps': t
    }} for t in [[e[place] for place in places] for places in {PLACES}]]).exps;
CREATE MACRO least_exps(board, mask) AS
    -- A macro computes an argument again for each cell, so lists hold the values.
    CASE WHEN list_max(exps(board)) < 15 THEN [exps(c) for c in [canonical(board)]][1]::INTEGER[] ELSE
    [wide_canonical(e) for e in [wide_exps(board, mask)]][1]::INTEGER[] END;
{merging("wide_", 16)}
-- The cells in the order of the lines from the wall, before a move, after it, and on the next board.
CREATE MACRO wide_lines(e, move) AS [[e[cell] for cell in line] for line in {WALLS}[move::INTEGER + 1]];
CREATE MACRO wide_spawn(e, move, next) AS
    [[CASE WHEN slid <> flatten(wide_lines(e, move)) AND found IS NOT NULL THEN
        {{'cell': flatten({WALLS}[move::INTEGER + 1])[found.cell + 1] - 1, 'tile': found.tile}} END
    for found in [spawn_between(slid, flatten(wide_lines(next, move)))]][1]
    for slid in [flatten([wide_merged(list_resize(closed(line), 4, 0)) for line in wide_lines(e, move)])]][1];
-- No move is legal on a full board without equal tiles side by side, except for two of 65,536.
CREATE MACRO stuck(e) AS
    list_sum(e) = 0 OR (list_min(e) > 0 AND len([p for p in {PAIRS} if e[p[1]] = e[p[2]] AND e[p[1]] < 16]) = 0);
-- The nearest tile in a direction is the next one of a line without its empty cells.
CREATE MACRO roughness(t) AS
    coalesce(list_sum([abs(t[i]::INTEGER - t[i + 1]::INTEGER) for i in range(1, len(t))]), 0);
CREATE MACRO smoothness(board) AS
    -list_sum([roughness(closed(line)) for line in lines(board, 0) || lines(board, 2)])::INTEGER;
-- What monotonicity2 of the source walks over: the first cell, the tiles behind it, and the last cell if it is empty.
CREATE MACRO walked(t) AS
    [t[1]] || closed(t[2:4]) || CASE WHEN t[4] = 0 THEN [0::UTINYINT] ELSE []::UTINYINT[] END;
CREATE MACRO falls(w) AS list_sum([least(w[i + 1]::INTEGER - w[i]::INTEGER, 0) for i in range(1, len(w))]);
CREATE MACRO rises(w) AS list_sum([least(w[i]::INTEGER - w[i + 1]::INTEGER, 0) for i in range(1, len(w))]);
CREATE MACRO line_monotonicity(lines) AS
    greatest(list_sum([falls(walked(t)) for t in lines]), list_sum([rises(walked(t)) for t in lines]));
CREATE MACRO monotonicity(board) AS
    (line_monotonicity(lines(board, 0)) + line_monotonicity(lines(board, 2)))::INTEGER;

CREATE MACRO evs(u, d, l, r) AS [v for v in [u, d, l, r] if v IS NOT NULL AND NOT isnan(v)];
CREATE MACRO normalized(v, known) AS CASE
    WHEN v IS NULL OR isnan(v) THEN v
    WHEN len(known) = 1 THEN 1 - 2.0 ** -23
    WHEN list_max(known) = list_min(known) THEN 0.5
    ELSE least((v::DOUBLE - list_min(known)) / (list_max(known)::DOUBLE - list_min(known)), 1 - 2.0 ** -23) END::FLOAT;
CREATE MACRO ev_gap(u, d, l, r) AS
    [CASE WHEN len(v) > 1 THEN v[1] - v[2] END for v in [list_reverse_sort(evs(u, d, l, r))]][1]::FLOAT;
CREATE MACRO ev_loss(move, u, d, l, r) AS
    [CASE WHEN NOT isnan(own) THEN list_max(evs(u, d, l, r)) - own END for own in [[u, d, l, r][move + 1]]][1]::FLOAT;
CREATE MACRO normal_gap(u, d, l, r) AS
    [ev_gap(normalized(u, v), normalized(d, v), normalized(l, v), normalized(r, v)) for v in [evs(u, d, l, r)]][1];
CREATE MACRO normal_loss(move, u, d, l, r) AS
    [ev_loss(move, normalized(u, v), normalized(d, v), normalized(l, v), normalized(r, v))
    for v in [evs(u, d, l, r)]][1];
CREATE MACRO best_move(u, d, l, r) AS CASE WHEN len(evs(u, d, l, r)) > 0 THEN
    list_position([CASE WHEN NOT isnan(v) THEN v END for v in [u, d, l, r]], list_max(evs(u, d, l, r))) - 1
    END::UTINYINT;

-- The limits of Wilson's interval for a share p of n, with -1 and 1 as the side.
CREATE MACRO wilson(p, n, side) AS
    [(p + z * z / (2 * n) + side * z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))) / (1 + z * z / n)
    for z in [1.9599639845400542::DOUBLE]][1];
"""


OF_RUNS = """
CREATE MACRO run_gap(run, u, d, l, r) AS CASE
    WHEN run IN (SELECT run_id FROM runs WHERE raw_evs) THEN normal_gap(u, d, l, r) ELSE ev_gap(u, d, l, r) END;
CREATE MACRO run_loss(run, move, u, d, l, r) AS CASE
    WHEN run IN (SELECT run_id FROM runs WHERE raw_evs) THEN normal_loss(move, u, d, l, r)
    ELSE ev_loss(move, u, d, l, r) END;
"""
"""The macros that read the table ``runs``."""


def of_files(archive: a2store.Archive, **tables: Any) -> duckdb.DuckDBPyConnection:
    """Return a connection with the tables of the archive as views, and other tables.

    Without other tables, tests of a version share a database, because a new one takes longer than most queries.
    """
    return _database(archive, **tables) if tables else _of_version(archive, archive.version).cursor()


@lru_cache(maxsize=4)
def _of_version(archive: a2store.Archive, version: int) -> duckdb.DuckDBPyConnection:
    return _database(archive)


def _database(archive: a2store.Archive, **tables: Any) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name, other in tables.items():
        connection.register(name, other)
    for table in ("steps", "runs", "annotations"):
        if files := archive.files(table):
            connection.read_parquet(files).create_view(table)
        else:
            connection.from_arrow(pa.table(archive.sql(f"SELECT * FROM {table}"))).create(table)
    return connection


def connect(archive: a2store.Archive) -> duckdb.DuckDBPyConnection:
    """Return a connection with the tables of the archive as views, and the board functions."""
    connection = _database(archive)
    define(connection, archive.phases)
    connection.execute(OF_RUNS)
    return connection


def define(connection: duckdb.DuckDBPyConnection, phases: dict[str, int]) -> None:
    """Create the macros; ``phase_of`` depends on an archive's thresholds."""
    connection.execute(MACROS)
    connection.execute(f"""CREATE MACRO phase_of(max_exp) AS CASE WHEN tile_of(max_exp) >= {phases["late"]} THEN 'late'
        WHEN tile_of(max_exp) >= {phases["mid"]} THEN 'mid' ELSE 'early' END""")


def table(connection: duckdb.DuckDBPyConnection, sql: str, **params: Any) -> Any:
    """Return the result of a query as a ``pyarrow.Table``.

    Parameters that do not occur as ``$name`` are ignored.
    """
    used = {name: value for name, value in params.items() if f"${name}" in sql}
    return connection.sql(sql, params=used).to_arrow_table()


def fetch(connection: duckdb.DuckDBPyConnection, sql: str, **params: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a query, with parameters as in ``table``."""
    used = {name: value for name, value in params.items() if f"${name}" in sql}
    return connection.execute(sql, used).fetchall()
