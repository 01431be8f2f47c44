-- For each tile, the share of runs that reach it, and the median step at which they do. A run reaches a tile if its
-- source states this tile, or a larger one, as its highest. It reaches the tile at the first step whose board has it or
-- a larger one; for a sampled run, at the first such step that was kept. If only a run's last move made the tile, no
-- step's board shows it: the run counts as having reached it, but does not count in the median. The interval is
-- Wilson's (1927).
--
-- Parameters:
--   min_tile uint64 = 2048: the smallest tile to report; the largest is 32768, or 65536 if a run reached it
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--   by_engine bool = false: whether to compute separate rows for each engine
--
-- Columns:
--   engine string: the engine; null = runs without an engine, or all engines together
--   tile uint32: the tile
--   num_runs int64: the number of runs
--   num_reached int64: the runs that reached the tile
--   share float64: the share of runs that reached the tile, 0 to 1
--   low float64: the lower limit of its 95 % interval
--   high float64: the upper limit of its 95 % interval
--   median_step float64: the median step index at which these runs reached the tile; null if no step's board
--     shows it
WITH tiles AS (
  SELECT CAST(column1 AS TINYINT UNSIGNED) AS exp, CAST(column2 AS INT UNSIGNED) AS tile
  FROM (VALUES
    (1, 2), (2, 4), (3, 8), (4, 16), (5, 32), (6, 64), (7, 128), (8, 256), (9, 512), (10, 1024),
    (11, 2048), (12, 4096), (13, 8192), (14, 16384), (15, 32768),
    (16, 65536)
  )
  WHERE column2 >= $min_tile AND (column2 <= 32768 OR column2 <= (SELECT max(highest_tile) FROM runs))
),
players AS (
  SELECT run_id, highest_tile, CASE WHEN $by_engine THEN engine END AS engine
  FROM runs
  WHERE $engine IS NULL OR engine = $engine
),
-- At most 17 rows per run, so the joins below are small.
firsts AS (
  SELECT run_id, max_exp, min(step_index) AS step
  FROM steps
  WHERE highest_tile >= $min_tile AND ($engine IS NULL OR engine = $engine)
  GROUP BY run_id, max_exp
),
reached AS (
  SELECT firsts.run_id, tiles.tile, min(firsts.step) AS step
  FROM firsts JOIN tiles ON firsts.max_exp >= tiles.exp
  GROUP BY firsts.run_id, tiles.tile
),
counts AS (
  SELECT
    players.engine,
    tiles.tile,
    count(*) AS num_runs,
    count(*) FILTER (WHERE players.highest_tile >= tiles.tile) AS num_reached,
    avg(CASE WHEN players.highest_tile >= tiles.tile THEN 1.0 ELSE 0.0 END) AS share,
    quantile_cont(CASE WHEN players.highest_tile >= tiles.tile THEN reached.step END, 0.5) AS median_step
  FROM players
  CROSS JOIN tiles
  LEFT JOIN reached ON reached.run_id = players.run_id AND reached.tile = tiles.tile
  GROUP BY players.engine, tiles.tile
),
spreads AS (
  -- 1.96 is the quantile of the normal distribution at 97.5 %; 3.84 is its square, and 0.96 a quarter of the square.
  SELECT *, 1.959963984540054 * sqrt(num_reached * (1 - share) + 0.960364705173531) AS spread
  FROM counts
)
SELECT
  engine,
  tile,
  num_runs,
  num_reached,
  share,
  greatest((num_reached + 1.920729410347062 - spread) / (num_runs + 3.841458820694124), 0.0) AS low,
  least((num_reached + 1.920729410347062 + spread) / (num_runs + 3.841458820694124), 1.0) AS high,
  median_step
FROM spreads
ORDER BY engine, tile
