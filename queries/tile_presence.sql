-- For each bin of step indices and each tile, the share of steps whose board contains the tile. Other columns have the
-- share of steps with this tile as the largest, and the share with at least this tile. Only runs that are still alive
-- have steps in a bin, so late bins describe the survivors: see `survivorship`. A tile that no board of a bin contains
-- has no row there.
--
-- Parameters:
--   width uint64 = 1000: step indices in a bin, 1 to 4294967295
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--
-- Columns:
--   first_step uint32: the smallest step index of the bin, a multiple of `width`
--   tile uint32: the tile; 0 for empty boards
--   num_containing int64: the number of steps in the bin whose board contains the tile, in one cell or several
--   share_containing float64: their share of the bin's steps, 0 to 1
--   num_largest int64: the number of steps in the bin with this tile as the largest
--   share_largest float64: their share of the bin's steps, 0 to 1
--   share_at_least float64: the share of the bin's steps with this largest tile or a larger one
WITH tiles AS (
  SELECT CAST(column1 AS TINYINT UNSIGNED) AS exp, CAST(column2 AS INT UNSIGNED) AS tile
  FROM (VALUES
    (0, 0), (1, 2), (2, 4), (3, 8), (4, 16), (5, 32), (6, 64), (7, 128), (8, 256), (9, 512), (10, 1024),
    (11, 2048), (12, 4096), (13, 8192), (14, 16384), (15, 32768),
    (16, 65536)
  )
),
boards AS (
  -- Bit k of `nibbles` is set if a nibble of the board is k. A nibble of 15 is a 32768 or a 65536, so boards with
  -- a 65536 have `has_32768` too. Few sets of tiles occur, so the join below is small.
  SELECT
    step_index - step_index % CAST($width AS INT UNSIGNED) AS first_step,
    max_exp,
    (1 << ((board >> 60) & 15)) | (1 << ((board >> 56) & 15)) | (1 << ((board >> 52) & 15))
      | (1 << ((board >> 48) & 15)) | (1 << ((board >> 44) & 15)) | (1 << ((board >> 40) & 15))
      | (1 << ((board >> 36) & 15)) | (1 << ((board >> 32) & 15)) | (1 << ((board >> 28) & 15))
      | (1 << ((board >> 24) & 15)) | (1 << ((board >> 20) & 15)) | (1 << ((board >> 16) & 15))
      | (1 << ((board >> 12) & 15)) | (1 << ((board >> 8) & 15)) | (1 << ((board >> 4) & 15))
      | (1 << (board & 15)) AS nibbles,
    CASE WHEN max_exp = 16 THEN array_has(exps(board, tile_65536_mask), 15) END AS has_32768,
    count(*) AS num_steps
  FROM steps
  WHERE $engine IS NULL OR engine = $engine
  GROUP BY 1, 2, 3, 4
),
bins AS (
  SELECT
    first_step,
    tile,
    sum(num_steps) AS num_containing,
    sum(CASE WHEN max_exp = exp THEN num_steps ELSE 0 END) AS num_largest
  FROM boards CROSS JOIN tiles
  WHERE CASE exp
    WHEN 0 THEN max_exp = 0
    WHEN 15 THEN coalesce(has_32768, (nibbles >> 15) & 1 = 1)
    WHEN 16 THEN max_exp = 16
    ELSE (nibbles >> exp) & 1 = 1
  END
  GROUP BY first_step, tile
)
SELECT
  first_step,
  tile,
  num_containing,
  CAST(num_containing AS DOUBLE) / sum(num_largest) OVER (PARTITION BY first_step) AS share_containing,
  num_largest,
  CAST(num_largest AS DOUBLE) / sum(num_largest) OVER (PARTITION BY first_step) AS share_largest,
  CAST(sum(num_largest) OVER (PARTITION BY first_step ORDER BY tile DESC) AS DOUBLE)
    / sum(num_largest) OVER (PARTITION BY first_step) AS share_at_least
FROM bins
ORDER BY first_step, tile
