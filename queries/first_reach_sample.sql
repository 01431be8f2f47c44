-- The first step at which runs reach each tile, for a sample of runs: the points of a scatter plot. A run reaches a
-- tile at the first step whose board has it or a larger one. The sample is taken from the runs that reach `min_tile`.
-- It depends only on the ids of runs, so it is the same each time. `first_reach` has quantiles over all runs.
--
-- Parameters:
--   min_tile uint64 = 512: the smallest tile to report
--   max_runs int64 = 200: the maximum number of runs
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--
-- Columns:
--   run_id uint32: the run
--   engine string: its engine; null = absent
--   num_steps uint32: its length
--   max_score int64: its score
--   tile uint32: the tile
--   step_index uint32: the index of the first step whose board has the tile or a larger one
WITH tiles AS (
  SELECT CAST(column1 AS TINYINT UNSIGNED) AS exp, CAST(column2 AS INT UNSIGNED) AS tile
  FROM (VALUES
    (1, 2), (2, 4), (3, 8), (4, 16), (5, 32), (6, 64), (7, 128), (8, 256), (9, 512), (10, 1024),
    (11, 2048), (12, 4096), (13, 8192), (14, 16384), (15, 32768),
    (16, 65536)
  )
  WHERE column2 >= $min_tile
),
chosen AS (
  SELECT run_id, engine, num_steps, max_score
  FROM runs
  WHERE highest_tile >= $min_tile AND ($engine IS NULL OR engine = $engine)
  -- Multiplicative hashing (Knuth) spreads the sample evenly over the ids.
  ORDER BY (CAST(run_id AS BIGINT UNSIGNED) * CAST(2654435761 AS BIGINT UNSIGNED)) & 4294967295, run_id
  LIMIT $max_runs
),
firsts AS (
  SELECT steps.run_id, steps.max_exp, min(steps.step_index) AS step_index
  FROM steps JOIN chosen USING (run_id)
  WHERE CAST(1 AS BIGINT UNSIGNED) << steps.max_exp >= $min_tile
  GROUP BY steps.run_id, steps.max_exp
)
SELECT
  chosen.run_id,
  chosen.engine,
  chosen.num_steps,
  chosen.max_score,
  tiles.tile,
  min(firsts.step_index) AS step_index
FROM firsts
JOIN tiles ON firsts.max_exp >= tiles.exp
JOIN chosen ON chosen.run_id = firsts.run_id
GROUP BY chosen.run_id, chosen.engine, chosen.num_steps, chosen.max_score, tiles.tile
ORDER BY chosen.run_id, tiles.tile
