-- The cells that hold the largest tile, by phase of the game: on the board as stored, and on the canonical board.
-- Positions that differ only by a symmetry have the same canonical board, so engines that prefer different corners are
-- comparable. The canonical board is the smallest number of the eight symmetric boards, so its top left corner holds
-- the smallest of the four corner tiles. A step with several largest tiles counts in each of their cells, so shares may
-- add up to more than 1. Steps with an empty board are left out.
--
-- Parameters:
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--   by_engine bool = false: whether to compute separate rows for each engine
--
-- Columns:
--   engine string: the engine; null = runs without an engine, or all engines together
--   phase string: early, mid or late, in this order; a phase without steps is left out
--   cell uint8: the cell in row-major order, 0 for the top left one to 15
--   num_steps int64: the number of the phase's steps
--   num_largest int64: the number of steps whose stored board has its largest tile in this cell
--   share_largest float64: their share, 0 to 1
--   num_canonical int64: the number of steps whose canonical board has its largest tile in this cell
--   share_canonical float64: their share, 0 to 1
WITH cells AS (
  SELECT CAST(column1 AS TINYINT UNSIGNED) AS cell, CAST(column1 AS BIGINT UNSIGNED) AS number
  FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15))
),
boards AS (
  -- The exclusive or with the largest exponent in every cell leaves 0 exactly in the cells that hold it.
  SELECT
    CASE WHEN $by_engine THEN engine END AS engine,
    phase,
    max_exp = 16 AS has_65536,
    CASE
      WHEN max_exp = 16 THEN CAST(tile_65536_mask AS BIGINT UNSIGNED)
      ELSE board ^ (CAST(max_exp AS BIGINT UNSIGNED) * CAST(1229782938247303441 AS BIGINT UNSIGNED))
    END AS differences,
    CASE
      WHEN max_exp = 16 THEN CAST(canonical_mask(board, tile_65536_mask) AS BIGINT UNSIGNED)
      ELSE canonical(board) ^ (CAST(max_exp AS BIGINT UNSIGNED) * CAST(1229782938247303441 AS BIGINT UNSIGNED))
    END AS canonical_differences
  FROM steps
  WHERE max_exp > 0 AND ($engine IS NULL OR engine = $engine)
),
placed AS (
  -- One bit per cell, the lowest one of its nibble, is 0 if the cell holds the largest tile. Few such patterns occur.
  SELECT
    engine,
    phase,
    has_65536,
    CASE
      WHEN has_65536 THEN differences
      ELSE (differences | (differences >> 1) | (differences >> 2) | (differences >> 3)) & 1229782938247303441
    END AS places,
    CASE
      WHEN has_65536 THEN canonical_differences
      ELSE (
        canonical_differences | (canonical_differences >> 1) | (canonical_differences >> 2)
          | (canonical_differences >> 3)
      ) & 1229782938247303441
    END AS canonical_places,
    count(*) AS num_steps
  FROM boards
  GROUP BY 1, 2, 3, 4, 5
),
counts AS (
  SELECT
    placed.engine,
    placed.phase,
    cells.cell,
    sum(placed.num_steps) AS num_steps,
    sum(
      CASE
        WHEN placed.has_65536 AND (placed.places >> cells.number) & 1 = 1 THEN placed.num_steps
        WHEN NOT placed.has_65536 AND (placed.places >> (60 - 4 * cells.number)) & 1 = 0 THEN placed.num_steps
        ELSE 0
      END
    ) AS num_largest,
    sum(
      CASE
        WHEN placed.has_65536 AND (placed.canonical_places >> cells.number) & 1 = 1 THEN placed.num_steps
        WHEN NOT placed.has_65536 AND (placed.canonical_places >> (60 - 4 * cells.number)) & 1 = 0
        THEN placed.num_steps
        ELSE 0
      END
    ) AS num_canonical
  FROM placed CROSS JOIN cells
  GROUP BY 1, 2, 3
)
SELECT
  engine,
  phase,
  cell,
  num_steps,
  num_largest,
  CAST(num_largest AS DOUBLE) / num_steps AS share_largest,
  num_canonical,
  CAST(num_canonical AS DOUBLE) / num_steps AS share_canonical
FROM counts
ORDER BY engine, CASE phase WHEN 'early' THEN 0 WHEN 'mid' THEN 1 ELSE 2 END, cell
