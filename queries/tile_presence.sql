-- For each bin of step indices, the share of steps with a given largest tile, and the share with at least this tile.
-- Only runs that are still alive have steps in a bin, so late bins describe the survivors: see `survivorship`. A tile
-- that is never the largest in a bin has no row there.
--
-- Parameters:
--   width uint64 = 1000: step indices in a bin, 1 to 4294967295
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--
-- Columns:
--   first_step uint32: the smallest step index of the bin, a multiple of `width`
--   max_tile uint32: the largest tile on the board; 0 for an empty board
--   num_steps int64: the number of steps in the bin with this largest tile
--   share float64: their share of the bin's steps, 0 to 1
--   share_at_least float64: the share of the bin's steps with this largest tile or a larger one
WITH bins AS (
  SELECT step_index - step_index % CAST($width AS INT UNSIGNED) AS first_step, max_exp, count(*) AS num_steps
  FROM steps
  WHERE $engine IS NULL OR engine = $engine
  GROUP BY 1, 2
)
SELECT
  first_step,
  CASE WHEN max_exp = 0 THEN CAST(0 AS INT UNSIGNED) ELSE CAST(1 AS INT UNSIGNED) << max_exp END AS max_tile,
  num_steps,
  CAST(num_steps AS DOUBLE) / sum(num_steps) OVER (PARTITION BY first_step) AS share,
  CAST(sum(num_steps) OVER (PARTITION BY first_step ORDER BY max_exp DESC) AS DOUBLE)
    / sum(num_steps) OVER (PARTITION BY first_step) AS share_at_least
FROM bins
ORDER BY first_step, max_tile
