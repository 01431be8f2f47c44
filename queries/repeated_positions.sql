-- How often positions repeat, by phase of the game: the number of positions that occur once, 2 or 3 times, 4 to 7
-- times, and so on. Boards that differ only by a symmetry are one position. A run visits a position at most once, so
-- the number of steps on it is the number of runs that visit it. Holds every different position in memory until the
-- end. With `one_in` = n, it holds and counts only about one position in n, with all steps on it. Multiply the counts
-- by n for an estimate.
--
-- Parameters:
--   one_in uint64 = 1: count only positions whose hash is a multiple of this; 1 = all positions
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--
-- Columns:
--   phase string: early, mid or late, in this order; a phase without such steps is left out
--   min_times int64: the minimum number of steps on a position, a power of 2
--   max_times int64: the maximum number of steps on a position
--   num_positions int64: the number of positions with such a number of steps
--   num_steps int64: the number of steps on these positions
--   share float64: their share of the phase's counted steps, 0 to 1
WITH positions AS (
  SELECT canonical(board) AS position, max_exp
  FROM steps
  WHERE max_exp < 16 AND ($engine IS NULL OR engine = $engine)
),
-- Boards with a tile of 65536 need their mask as a second key. Few boards have this tile.
wide_positions AS (
  SELECT canonical(board, tile_65536_mask) AS position, canonical_mask(board, tile_65536_mask) AS mask, max_exp
  FROM steps
  WHERE max_exp = 16 AND ($engine IS NULL OR engine = $engine)
),
-- The multiplier of Fibonacci hashing (Knuth).
counts AS (
  SELECT min(max_exp) AS max_exp, count(*) AS times
  FROM positions
  WHERE $one_in <= 1
    OR (((position ^ (position >> 32)) * CAST(11400714819323198485 AS BIGINT UNSIGNED)) >> 32)
      % greatest($one_in, CAST(1 AS BIGINT UNSIGNED)) = 0
  GROUP BY position
  UNION ALL
  SELECT min(max_exp) AS max_exp, count(*) AS times
  FROM wide_positions
  WHERE $one_in <= 1
    OR (((position ^ (position >> 32)) * CAST(11400714819323198485 AS BIGINT UNSIGNED)) >> 32)
      % greatest($one_in, CAST(1 AS BIGINT UNSIGNED)) = 0
  GROUP BY position, mask
),
sizes AS (
  SELECT phase_of(max_exp) AS phase, times, count(*) AS num_positions
  FROM counts
  GROUP BY 1, 2
),
bins AS (
  SELECT
    phase,
    CAST(power(2.0, floor(log2(CAST(times AS DOUBLE)))) AS BIGINT) AS min_times,
    sum(num_positions) AS num_positions,
    sum(num_positions * times) AS num_steps
  FROM sizes
  GROUP BY 1, 2
)
SELECT
  phase,
  min_times,
  2 * min_times - 1 AS max_times,
  num_positions,
  num_steps,
  CAST(num_steps AS DOUBLE) / sum(num_steps) OVER (PARTITION BY phase) AS share
FROM bins
ORDER BY CASE phase WHEN 'early' THEN 0 WHEN 'mid' THEN 1 ELSE 2 END, min_times
