-- Quantiles of the first step at which runs reach each tile (nearest rank). A run reaches a tile at the first step
-- whose board has it or a larger one; for a sampled run, at the first such step that was kept. A tile that no step's
-- board shows has no row. Runs that never reach a tile do not count in its row. `tile_reach` has the share of runs that
-- reach a tile, and `tile_first_steps` has the steps of each run.
--
-- Parameters:
--   min_tile uint64 = 512: the smallest tile to report
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--   by_engine bool = false: whether to compute separate rows for each engine
--
-- Columns:
--   engine string: the engine; null = runs without an engine, or all engines together
--   tile uint32: the tile
--   num_runs int64: the number of runs with such a step
--   min_step uint32: the smallest index of their first such steps
--   p10_step uint32: the index that nine runs in ten exceed
--   p25_step uint32: the first quartile
--   median_step uint32: the median
--   p75_step uint32: the third quartile
--   p90_step uint32: the index that one run in ten exceeds
--   max_step uint32: the largest index
WITH tiles AS (
  SELECT CAST(column1 AS TINYINT UNSIGNED) AS exp, CAST(column2 AS INT UNSIGNED) AS tile
  FROM (VALUES
    (1, 2), (2, 4), (3, 8), (4, 16), (5, 32), (6, 64), (7, 128), (8, 256), (9, 512), (10, 1024),
    (11, 2048), (12, 4096), (13, 8192), (14, 16384), (15, 32768),
    (16, 65536)
  )
  WHERE column2 >= $min_tile
),
-- At most 17 rows per run, so the joins below are small.
firsts AS (
  SELECT run_id, max_exp, min(step_index) AS step
  FROM steps
  WHERE CAST(1 AS BIGINT UNSIGNED) << max_exp >= $min_tile AND ($engine IS NULL OR engine = $engine)
  GROUP BY run_id, max_exp
),
reached AS (
  SELECT firsts.run_id, tiles.tile, min(firsts.step) AS step
  FROM firsts JOIN tiles ON firsts.max_exp >= tiles.exp
  GROUP BY firsts.run_id, tiles.tile
),
grouped AS (
  SELECT
    CASE WHEN $by_engine THEN runs.engine END AS engine,
    reached.tile,
    count(*) AS num_runs,
    array_sort(array_agg(reached.step)) AS steps
  FROM reached JOIN runs USING (run_id)
  GROUP BY 1, 2
)
SELECT
  engine,
  tile,
  num_runs,
  steps[1] AS min_step,
  steps[1 + (10 * (num_runs - 1) + 50) / 100] AS p10_step,
  steps[1 + (25 * (num_runs - 1) + 50) / 100] AS p25_step,
  steps[1 + (50 * (num_runs - 1) + 50) / 100] AS median_step,
  steps[1 + (75 * (num_runs - 1) + 50) / 100] AS p75_step,
  steps[1 + (90 * (num_runs - 1) + 50) / 100] AS p90_step,
  steps[num_runs] AS max_step
FROM grouped
ORDER BY engine, tile
