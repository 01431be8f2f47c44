-- How long the runs of each engine are: quantiles of their numbers of steps, each the nearest among the runs. Of a
-- sampled run only the steps that were kept count. Reads `runs` alone.
--
-- Parameters:
--   min_score uint64 = 0: the least score of a run
--
-- Columns:
--   engine string: the engine; null = runs without one
--   num_runs int64: its runs
--   mean_steps float64: their mean length
--   min_steps uint32: the shortest
--   p10_steps uint32: the length that nine in ten exceed
--   p25_steps uint32: the first quartile
--   median_steps uint32: the median
--   p75_steps uint32: the third quartile
--   p90_steps uint32: the length that one in ten exceeds
--   p99_steps uint32: the length that one in a hundred exceeds
--   max_steps uint32: the longest
WITH ranked AS (
  SELECT
    engine,
    num_steps,
    CAST(row_number() OVER (PARTITION BY engine ORDER BY num_steps) AS BIGINT) AS place,
    count(*) OVER (PARTITION BY engine) AS num_runs
  FROM runs
  WHERE max_score >= $min_score
)
SELECT
  engine,
  count(*) AS num_runs,
  avg(num_steps) AS mean_steps,
  min(num_steps) AS min_steps,
  max(CASE WHEN place = 1 + (10 * (num_runs - 1) + 50) / 100 THEN num_steps END) AS p10_steps,
  max(CASE WHEN place = 1 + (25 * (num_runs - 1) + 50) / 100 THEN num_steps END) AS p25_steps,
  max(CASE WHEN place = 1 + (50 * (num_runs - 1) + 50) / 100 THEN num_steps END) AS median_steps,
  max(CASE WHEN place = 1 + (75 * (num_runs - 1) + 50) / 100 THEN num_steps END) AS p75_steps,
  max(CASE WHEN place = 1 + (90 * (num_runs - 1) + 50) / 100 THEN num_steps END) AS p90_steps,
  max(CASE WHEN place = 1 + (99 * (num_runs - 1) + 50) / 100 THEN num_steps END) AS p99_steps,
  max(num_steps) AS max_steps
FROM ranked
GROUP BY engine
ORDER BY engine
