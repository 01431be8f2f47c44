-- Survival by tile: the share of the runs with a tile that reach the next tile. The hazard at the tile is one minus
-- this share. A run reaches a tile if its source states this tile, or a larger one, as its highest. A run that
-- was stopped while a move was legal counts as one that did not reach the next tile. The interval is Wilson's (1927).
-- Reads only `runs`.
--
-- Parameters:
--   min_tile uint64 = 512: the smallest tile to report
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--   by_engine bool = false: whether to compute separate rows for each engine
--
-- Columns:
--   engine string: the engine; null = runs without an engine, or all engines together
--   tile uint32: the tile, at most 32768; a tile that no run reached has no row
--   num_reached int64: the number of runs that reached the tile
--   num_next int64: the number of these that reached the next tile
--   share float64: their share, 0 to 1
--   low float64: the lower limit of its 95 % interval
--   high float64: the upper limit of its 95 % interval
WITH tiles AS (
  SELECT CAST(column1 AS INT UNSIGNED) AS tile
  FROM (VALUES
    (2), (4), (8), (16), (32), (64), (128), (256), (512), (1024), (2048), (4096), (8192), (16384), (32768)
  )
  WHERE column1 >= $min_tile
),
players AS (
  SELECT CASE WHEN $by_engine THEN engine END AS engine, highest_tile, count(*) AS num_runs
  FROM runs
  WHERE $engine IS NULL OR engine = $engine
  GROUP BY 1, 2
),
counts AS (
  SELECT
    players.engine,
    tiles.tile,
    sum(players.num_runs) AS num_reached,
    sum(CASE WHEN players.highest_tile >= 2 * tiles.tile THEN players.num_runs ELSE 0 END) AS num_next
  FROM players JOIN tiles ON players.highest_tile >= tiles.tile
  GROUP BY players.engine, tiles.tile
),
spreads AS (
  -- 1.96 is the quantile of the normal distribution at 97.5 %; 3.84 is its square, and 0.96 a quarter of the square.
  SELECT
    engine,
    tile,
    num_reached,
    num_next,
    1.959963984540054 * sqrt(
      CAST(num_next AS DOUBLE) * (num_reached - num_next) / num_reached + 0.960364705173531
    ) AS spread
  FROM counts
)
SELECT
  engine,
  tile,
  num_reached,
  num_next,
  CAST(num_next AS DOUBLE) / num_reached AS share,
  greatest((num_next + 1.920729410347062 - spread) / (num_reached + 3.841458820694124), 0.0) AS low,
  least((num_next + 1.920729410347062 + spread) / (num_reached + 3.841458820694124), 1.0) AS high
FROM spreads
ORDER BY engine, tile
