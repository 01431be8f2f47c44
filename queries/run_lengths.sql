-- The distribution of run lengths per engine, as quantiles of the number of steps (nearest rank). For a sampled run,
-- only the steps that were kept count. Reads only `runs`.
--
-- Parameters:
--   min_score int64 = 0: the minimum score of a run
--
-- Columns:
--   engine string: the engine; null = runs without an engine
--   num_runs int64: the number of its runs
--   mean_steps float64: their mean length
--   min_steps uint32: the shortest
--   p10_steps uint32: the length that nine runs in ten exceed
--   p25_steps uint32: the first quartile
--   median_steps uint32: the median
--   p75_steps uint32: the third quartile
--   p90_steps uint32: the length that one run in ten exceeds
--   p99_steps uint32: the length that one run in a hundred exceeds
--   max_steps uint32: the longest
WITH engines AS (
  SELECT engine, count(*) AS num_runs, avg(num_steps) AS mean_steps, array_sort(array_agg(num_steps)) AS lengths
  FROM runs
  WHERE max_score >= $min_score
  GROUP BY engine
)
SELECT
  engine,
  num_runs,
  mean_steps,
  lengths[1] AS min_steps,
  lengths[1 + (10 * (num_runs - 1) + 50) / 100] AS p10_steps,
  lengths[1 + (25 * (num_runs - 1) + 50) / 100] AS p25_steps,
  lengths[1 + (50 * (num_runs - 1) + 50) / 100] AS median_steps,
  lengths[1 + (75 * (num_runs - 1) + 50) / 100] AS p75_steps,
  lengths[1 + (90 * (num_runs - 1) + 50) / 100] AS p90_steps,
  lengths[1 + (99 * (num_runs - 1) + 50) / 100] AS p99_steps,
  lengths[num_runs] AS max_steps
FROM engines
ORDER BY engine
