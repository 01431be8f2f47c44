-- The engines by their mean score, with what is needed to judge whether a difference means anything: the number of runs
-- and the standard error of the mean. Runs without an engine are a group of their own. Reads `runs` alone.
--
-- Parameters:
--   tile uint64 = 2048: the tile whose share of runs is told
--   min_runs uint64 = 1: engines with fewer runs are left out
--
-- Columns:
--   engine string: the engine; null = runs without one
--   num_runs int64: its runs
--   num_steps uint64: their steps
--   mean_score float64: the mean of the runs' scores
--   score_error float64: the standard error of that mean; null for a single run
--   median_score uint64: the median score, the nearest among the runs
--   p90_score uint64: the score that one run in ten exceeds, the nearest among the runs
--   best_score uint64: the best score
--   best_tile uint32: the largest tile of any run
--   tile_share float64: the share of runs that reached `tile`, 0 to 1
WITH engines AS (
  SELECT
    engine,
    count(*) AS num_runs,
    sum(num_steps) AS num_steps,
    avg(max_score) AS mean_score,
    stddev_samp(max_score) / sqrt(count(*)) AS score_error,
    array_sort(array_agg(max_score)) AS scores,
    max(highest_tile) AS best_tile,
    avg(CASE WHEN highest_tile >= $tile THEN 1.0 ELSE 0.0 END) AS tile_share
  FROM runs
  GROUP BY engine
  HAVING count(*) >= $min_runs
)
SELECT
  engine,
  num_runs,
  num_steps,
  mean_score,
  score_error,
  scores[1 + (50 * (num_runs - 1) + 50) / 100] AS median_score,
  scores[1 + (90 * (num_runs - 1) + 50) / 100] AS p90_score,
  scores[num_runs] AS best_score,
  best_tile,
  tile_share
FROM engines
ORDER BY mean_score DESC, engine
