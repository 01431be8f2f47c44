"""The saved queries of a2store, written for DuckDB.

Parameters are literals, and conditions that a parameter would switch off are omitted. a2store's functions become bit
operations and comparisons. Values are never NaN here, so only nulls are handled. All bit operators of DuckDB have the
same precedence, hence the parentheses. Masks are cast, because a literal of this size would use 128-bit arithmetic.
"""

from __future__ import annotations

from questions import VALUES
from terms import (
    CELLS,
    IMAGES,
    INNER,
    INNER_ROW,
    LATE,
    LIMIT,
    MID,
    MIN_TILE,
    OUTER,
    OUTER_ROW,
    QUARTERS,
    SCORES,
    TILES,
    WIDTH,
    Z,
)


def _mask(mask: int) -> str:
    return f"{mask}::UBIGINT"


def _reversed(near: int, inner: int, far: int, outer: int) -> str:
    """Reverse four fields of ``x``; the arguments are the distances to the mirrored positions, and the masks."""
    return (
        f"((x >> {far}) & {_mask(outer)}) | ((x >> {near}) & {_mask(inner)})"
        f" | ((x & {_mask(inner)}) << {near}) | ((x & {_mask(outer)}) << {far})"
    )


def _swapped(shift: int, stay: int, up: int, down: int) -> str:
    return f"(x & {_mask(stay)}) | ((x & {_mask(up)}) << {shift}) | ((x & {_mask(down)}) >> {shift})"


def _text(board: str) -> str:
    """Return SQL for a board as text, for the few rows that are displayed."""
    cells = [f"{TILES}[(({board} >> {shift}) & 15)::INT + 1]" for shift in range(60, -1, -4)]
    rows = [f"concat_ws(' ', {', '.join(cells[at : at + 4])})" for at in range(0, 16, 4)]
    return f"concat_ws(' / ', {', '.join(rows)})"


_IMAGES = [sum(1 << 4 * move + image for move, image in enumerate(images)) for images in IMAGES]
"""For each symmetry, four bits for each move: the bit of the move's image is set."""
_EIGHT = (
    "b0, columns_flipped(b6) AS b1, rows_flipped(columns_flipped(b0)) AS b2, rows_flipped(b6) AS b3, "
    "columns_flipped(b0) AS b4, rows_flipped(b0) AS b5, b6, rows_flipped(columns_flipped(b6)) AS b7"
)


def _case(each: str) -> str:
    """Return SQL with a WHEN for each move."""
    return " ".join(f"WHEN {each.format(move=move)}" for move in range(4))


def _filled(where: str) -> str:
    """Return SQL for steps with comparable values: nulls become the smallest value."""
    values = ", ".join(f"coalesce({name}, '-inf'::FLOAT) AS v{at}" for at, name in enumerate(VALUES))
    return f"filled AS (SELECT run_id, step_index, move, {values} FROM steps WHERE {where})"


# CASE, because greatest() and least() take two to three times as long.
MACROS = f"""
CREATE TEMP MACRO columns_flipped(x) AS {_reversed(4, INNER, 12, OUTER)};
CREATE TEMP MACRO rows_flipped(x) AS {_reversed(16, INNER_ROW, 48, OUTER_ROW)};
CREATE TEMP MACRO cells_swapped(x) AS {_swapped(*CELLS)};
CREATE TEMP MACRO quarters_swapped(x) AS {_swapped(*QUARTERS)};
CREATE TEMP MACRO more(x, y) AS CASE WHEN x > y THEN x ELSE y END;
CREATE TEMP MACRO less(x, y) AS CASE WHEN x > y THEN y ELSE x END;
CREATE TEMP MACRO board_text(board) AS {_text("board")};
"""


def _positions(columns: str, source: str) -> str:
    """Return SQL for columns of a source, with the position of each board and its eight images."""
    eight = ", ".join(f"b{at}" for at in range(8))
    return f"""
SELECT {columns}, less(least0, least1) AS position, {eight} FROM (
  SELECT *, less(least2, least3) AS least0, less(least4, least5) AS least1 FROM (
    SELECT *, less(b0, b1) AS least2, less(b2, b3) AS least3, less(b4, b5) AS least4, less(b6, b7) AS least5 FROM (
      SELECT {columns}, {_EIGHT} FROM (
        SELECT {columns}, b0, quarters_swapped(half) AS b6 FROM (
          SELECT {columns}, board AS b0, cells_swapped(board) AS half FROM {source}
        )
      )
    )
  )
)"""


def _plays(columns: str, first_steps: int) -> str:
    """Return SQL for the first steps of runs, with their position and the move on it.

    If several symmetries lead to the position, the move is the smallest of its images under them.
    """
    images = " | ".join(f"CASE WHEN position = b{at} THEN {images} ELSE 0 END" for at, images in enumerate(_IMAGES))
    least = " ".join(f"WHEN {1 << move} THEN {move}" for move in range(4))
    source = f"(SELECT {columns}, board, move FROM steps WHERE step_index < {first_steps})"
    return f"""
SELECT {columns}, position, CASE images & -images {least} END AS move
FROM (
  SELECT {columns}, position, (({images}) >> (4 * move)) & 15 AS images
  FROM ({_positions(f"{columns}, move", source)})
)
"""


_MOVES = ", ".join(
    f"count(*) FILTER (WHERE move = {move}) AS num_{name}" for move, name in enumerate(("up", "down", "left", "right"))
)
_NIBBLES = " | ".join(f"(1 << ((board >> {shift}) & 15)::INT)" for shift in range(0, 64, 4))
"""SQL for a number whose bit k is set if a nibble of the board is k."""


STATEMENTS = {
    "score_histogram": f"""
WITH bins AS (
  SELECT engine, max_score - max_score % {SCORES} AS min_score, count(*) AS num_runs FROM runs GROUP BY ALL
)
SELECT *, num_runs / sum(num_runs) OVER (PARTITION BY engine) AS share FROM bins ORDER BY engine, min_score""",
    "tile_reach": f"""
WITH tiles AS (SELECT exp, (1 << exp)::UINTEGER AS tile FROM range({MIN_TILE}, 16) AS t(exp)),
firsts AS (
  SELECT run_id, max_exp, min(step_index) AS step FROM steps WHERE highest_tile >= {1 << MIN_TILE} GROUP BY ALL
),
reached AS (
  SELECT run_id, tile, min(step) AS step FROM firsts JOIN tiles ON max_exp >= exp GROUP BY ALL
),
counts AS (
  SELECT engine, tiles.tile, count(*) AS num_runs, count(*) FILTER (WHERE highest_tile >= tiles.tile) AS num_reached,
    avg((highest_tile >= tiles.tile)::INT) AS share,
    quantile_cont(step, 0.5) FILTER (WHERE highest_tile >= tiles.tile) AS median_step
  FROM runs CROSS JOIN tiles LEFT JOIN reached ON reached.run_id = runs.run_id AND reached.tile = tiles.tile
  GROUP BY engine, tiles.tile
),
spreads AS (SELECT *, {Z} * sqrt(num_reached * (1 - share) + {Z}::DOUBLE ** 2 / 4) AS spread FROM counts)
SELECT engine, tile, num_runs, num_reached, share,
  greatest((num_reached + {Z}::DOUBLE ** 2 / 2 - spread) / (num_runs + {Z}::DOUBLE ** 2), 0) AS low,
  least((num_reached + {Z}::DOUBLE ** 2 / 2 + spread) / (num_runs + {Z}::DOUBLE ** 2), 1) AS high, median_step
FROM spreads ORDER BY engine, tile""",
    "tile_presence": f"""
WITH boards AS (
  SELECT step_index // {WIDTH} * {WIDTH} AS first_step, max_exp, {_NIBBLES} AS nibbles, count(*) AS num_steps
  FROM steps GROUP BY ALL
),
bins AS (
  SELECT first_step, 1 << exp AS tile, sum(num_steps) AS num_containing,
    sum(CASE WHEN max_exp = exp THEN num_steps ELSE 0 END) AS num_largest
  FROM boards CROSS JOIN (SELECT unnest(range(1, 16))::INT AS exp) WHERE (nibbles >> exp) & 1 = 1 GROUP BY ALL
)
SELECT first_step, tile, num_containing,
  num_containing / sum(num_largest) OVER (PARTITION BY first_step) AS share_containing, num_largest,
  num_largest / sum(num_largest) OVER (PARTITION BY first_step) AS share_largest,
  sum(num_largest) OVER (PARTITION BY first_step ORDER BY tile DESC)
    / sum(num_largest) OVER (PARTITION BY first_step) AS share_at_least
FROM bins ORDER BY first_step, tile""",
    "phase_mix": """
WITH mix AS (SELECT engine, phase, count(*) AS num_steps FROM steps GROUP BY ALL)
SELECT *, num_steps / sum(num_steps) OVER (PARTITION BY engine) AS share FROM mix ORDER BY engine, phase""",
    "hard_moves": f"""
WITH {_filled("has_evs AND bit_count(ev_legal) > 1")},
gaps AS (
  SELECT run_id, step_index, more(high, top) - more(less(high, top), more(low, bottom)) AS ev_gap
  FROM (
    SELECT *, more(v0, v1) AS high, less(v0, v1) AS low, more(v2, v3) AS top, less(v2, v3) AS bottom FROM filled
  )
),
hardest AS (
  SELECT * FROM gaps WHERE ev_gap > 0 AND ev_gap <= 0.001::FLOAT ORDER BY ev_gap, run_id, step_index LIMIT {LIMIT}
)
SELECT run_id, step_index, engine, phase, board, tile_65536_mask, board_text(board) AS tiles, move,
  {", ".join(VALUES)}, ev_gap
FROM hardest JOIN steps USING (run_id, step_index) ORDER BY ev_gap, run_id, step_index""",
    "blunders": f"""
WITH {_filled("has_evs")},
losses AS (
  SELECT run_id, step_index, best - CASE move {_case("{move} THEN v{move}")} END AS ev_loss,
    CASE best {_case("v{move} THEN {move}")} END AS best_move
  FROM (SELECT *, more(high, top) AS best FROM (SELECT *, more(v0, v1) AS high, more(v2, v3) AS top FROM filled))
),
worst AS (
  SELECT * FROM losses WHERE ev_loss >= 0.1::FLOAT AND ev_loss < 'inf'::FLOAT
  ORDER BY ev_loss DESC, run_id, step_index LIMIT {LIMIT}
)
SELECT run_id, step_index, engine, phase, board, tile_65536_mask, board_text(board) AS tiles, move,
  best_move, {", ".join(VALUES)}, ev_loss
FROM worst JOIN steps USING (run_id, step_index) ORDER BY ev_loss DESC, run_id, step_index""",
    "unique_positions": f"""
WITH boards AS (SELECT board, min(max_exp) AS max_exp, count(*) AS num_steps FROM steps GROUP BY board),
positions AS (
  SELECT min(max_exp) AS max_exp, sum(num_steps) AS num_steps, count(*) AS num_boards
  FROM ({_positions("max_exp, num_steps", "boards")}) GROUP BY position
)
SELECT CASE WHEN max_exp >= {LATE} THEN 'late' WHEN max_exp >= {MID} THEN 'mid' ELSE 'early' END AS phase,
  sum(num_steps) AS num_steps, sum(num_boards) AS num_boards, count(*) AS num_positions
FROM positions GROUP BY phase ORDER BY phase""",
    "opening_book": f"""
WITH book AS (
  SELECT position, count(*) AS num_steps, {_MOVES}, avg(max_score) AS mean_score FROM ({_plays("max_score", 20)})
  GROUP BY position ORDER BY num_steps DESC, position LIMIT {LIMIT}
)
SELECT position, board_text(position) AS tiles, * EXCLUDE position FROM book ORDER BY num_steps DESC, position""",
    "engine_agreement": f"""
WITH positions AS (
  SELECT engine, position, count(*) AS num_steps, {_MOVES} FROM ({_plays("engine", 100)} WHERE move IS NOT NULL)
  GROUP BY engine, position
)
SELECT one.engine, other.engine AS other_engine, count(*) AS num_positions,
  avg((one.num_up * other.num_up + one.num_down * other.num_down + one.num_left * other.num_left
    + one.num_right * other.num_right) / (one.num_steps * other.num_steps)) AS agreement
FROM positions AS one JOIN positions AS other USING (position)
WHERE one.engine < other.engine OR (one.engine IS NOT NULL AND other.engine IS NULL)
GROUP BY ALL ORDER BY ALL""",
    "critic_labels": """
SELECT run_id, step_index, board, tile_65536_mask, highest_tile >= 8192 AS reaches_8192,
  highest_tile >= 16384 AS reaches_16384, highest_tile >= 32768 AS reaches_32768 FROM steps""",
}
