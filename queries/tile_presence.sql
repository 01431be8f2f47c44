-- What boards look like so far into a run: for each bin of step indices, the share of its steps whose largest tile is
-- just this one, and of those whose largest tile is at least this one. Only runs that are alive have steps in a bin, so
-- far bins tell of survivors: see survivorship. Tiles that are no board's largest in a bin are left out of it.
--
-- Parameters:
--   width uint64 = 1000: step indices in a bin, 1 to 4294967295
--   engine string = null: only runs of this engine; null = of all, also of none
--
-- Columns:
--   first_step uint32: the least step index of the bin, a multiple of `width`
--   max_tile uint32: the largest tile on a board; 0 for an empty one
--   num_steps int64: the steps of the bin with this largest tile
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
