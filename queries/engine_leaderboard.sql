-- The engines by mean score, with the number of runs and the standard error of the mean, which show whether a
-- difference is significant. Runs without an engine form one group. Reads only `runs`.
--
-- Parameters:
--   tile uint64 = 2048: the tile for `tile_share`
--   min_runs uint64 = 1: engines with fewer runs are left out
--
-- Columns:
--   engine string: the engine; null = runs without an engine
--   num_runs int64: the number of its runs
--   num_steps int64: the number of steps of these runs
--   mean_score float64: the mean of the runs' scores
--   score_error float64: the standard error of the mean; null for a single run
--   median_score int64: the median score (nearest rank)
--   p90_score int64: the score that one run in ten exceeds (nearest rank)
--   best_score int64: the best score
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
