-- The distribution of scores: the number of runs per score bin, for all engines together or for each engine. Bins
-- without runs are left out. Reads only `runs`.
--
-- Parameters:
--   width uint64 = 10000: the width of a bin, at least 1
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--   by_engine bool = false: whether to compute one histogram per engine
--
-- Columns:
--   engine string: the engine; null = runs without an engine, or all engines together
--   min_score int64: the lowest score of the bin, a multiple of `width`; the bin ends before `min_score + width`
--   num_runs int64: the number of runs with a score in the bin
--   share float64: their share of the histogram's runs, 0 to 1
WITH bins AS (
  SELECT
    CASE WHEN $by_engine THEN engine END AS engine,
    max_score - max_score % CAST($width AS BIGINT) AS min_score,
    count(*) AS num_runs
  FROM runs
  WHERE $engine IS NULL OR engine = $engine
  GROUP BY 1, 2
)
SELECT
  engine,
  min_score,
  num_runs,
  CAST(num_runs AS DOUBLE) / sum(num_runs) OVER (PARTITION BY engine) AS share
FROM bins
ORDER BY engine, min_score
