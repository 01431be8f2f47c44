-- The number of different positions among the steps, both exact and up to the eight symmetries of the board. It shows
-- how much a sample repeats itself, and how much augmentation by symmetries could add. A board determines its phase, so
-- the numbers of several phases add up. Holds every different board in memory until the end.
--
-- Parameters:
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--   phase string = null: only steps of this phase: early, mid or late; null = all phases
--   min_score int64 = 0: the minimum score of a run
--
-- Columns:
--   phase string: early, mid or late, in this order; a phase without steps is left out
--   num_steps int64: the number of steps
--   num_boards int64: the number of different boards
--   num_positions int64: the number of different boards up to symmetry
WITH boards AS (
  -- Groups twice instead of counting distinct boards: canonical() runs once per board, and each key is one integer.
  SELECT board, min(max_exp) AS max_exp, count(*) AS num_steps
  FROM steps
  WHERE max_exp < 16
    AND max_score >= $min_score
    AND ($engine IS NULL OR engine = $engine)
    AND ($phase IS NULL OR phase = $phase)
  GROUP BY board
),
-- Boards with a tile of 65536 need their mask as a second key. Few boards have this tile.
wide_boards AS (
  SELECT board, tile_65536_mask AS mask, min(max_exp) AS max_exp, count(*) AS num_steps
  FROM steps
  WHERE max_exp = 16
    AND max_score >= $min_score
    AND ($engine IS NULL OR engine = $engine)
    AND ($phase IS NULL OR phase = $phase)
  GROUP BY board, tile_65536_mask
),
positions AS (
  SELECT min(max_exp) AS max_exp, sum(num_steps) AS num_steps, count(*) AS num_boards
  FROM boards
  GROUP BY canonical(board)
  UNION ALL
  SELECT min(max_exp) AS max_exp, sum(num_steps) AS num_steps, count(*) AS num_boards
  FROM wide_boards
  GROUP BY canonical(board, mask), canonical_mask(board, mask)
),
phases AS (
  SELECT phase_of(max_exp) AS phase, num_steps, num_boards
  FROM positions
)
SELECT phase, sum(num_steps) AS num_steps, sum(num_boards) AS num_boards, count(*) AS num_positions
FROM phases
GROUP BY phase
ORDER BY CASE phase WHEN 'early' THEN 0 WHEN 'mid' THEN 1 ELSE 2 END
