-- The distribution of run lengths: the number of runs per bin of lengths, for all engines together or for each engine.
-- Bins without runs are left out. For a sampled run, only the steps that were kept count. Reads only `runs`.
--
-- Parameters:
--   width uint64 = 500: the width of a bin in steps, 1 to 4294967295
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--   by_engine bool = false: whether to compute one histogram per engine
--
-- Columns:
--   engine string: the engine; null = runs without an engine, or all engines together
--   min_steps uint32: the smallest length of the bin, a multiple of `width`; the bin ends before `min_steps + width`
--   num_runs int64: the number of runs with a length in the bin
--   share float64: their share of the histogram's runs, 0 to 1
WITH bins AS (
  SELECT
    CASE WHEN $by_engine THEN engine END AS engine,
    num_steps - num_steps % CAST($width AS INT UNSIGNED) AS min_steps,
    count(*) AS num_runs
  FROM runs
  WHERE $engine IS NULL OR engine = $engine
  GROUP BY 1, 2
)
SELECT
  engine,
  min_steps,
  num_runs,
  CAST(num_runs AS DOUBLE) / sum(num_runs) OVER (PARTITION BY engine) AS share
FROM bins
ORDER BY engine, min_steps
