-- How often each move is played, by phase of the game: as stored, and in the orientation of the canonical board. Games
-- that differ only by a symmetry have the same canonical moves, so engines that prefer different corners are
-- comparable. Steps without a known move are left out.
--
-- Parameters:
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--   by_engine bool = false: whether to compute separate rows for each engine
--
-- Columns:
--   engine string: the engine; null = runs without an engine, or all engines together
--   phase string: early, mid or late, in this order; a phase without known moves is left out
--   move uint8: 0 up, 1 down, 2 left, 3 right
--   num_played int64: the number of steps with this move
--   share_played float64: their share of the phase's steps with a known move, 0 to 1
--   num_canonical int64: the number of steps with this move on the canonical board
--   share_canonical float64: their share, 0 to 1
WITH moves AS (
  SELECT CAST(column1 AS TINYINT UNSIGNED) AS move
  FROM (VALUES (0), (1), (2), (3))
),
plays AS (
  SELECT
    CASE WHEN $by_engine THEN engine END AS engine,
    phase,
    move,
    canonical_move(board, move, tile_65536_mask) AS canonical_move,
    count(*) AS num_steps
  FROM steps
  WHERE move IS NOT NULL AND ($engine IS NULL OR engine = $engine)
  GROUP BY 1, 2, 3, 4
),
counts AS (
  SELECT
    plays.engine,
    plays.phase,
    moves.move,
    sum(plays.num_steps) AS num_steps,
    sum(CASE WHEN plays.move = moves.move THEN plays.num_steps ELSE 0 END) AS num_played,
    sum(CASE WHEN plays.canonical_move = moves.move THEN plays.num_steps ELSE 0 END) AS num_canonical
  FROM plays CROSS JOIN moves
  GROUP BY 1, 2, 3
)
SELECT
  engine,
  phase,
  move,
  num_played,
  CAST(num_played AS DOUBLE) / num_steps AS share_played,
  num_canonical,
  CAST(num_canonical AS DOUBLE) / num_steps AS share_canonical
FROM counts
ORDER BY engine, CASE phase WHEN 'early' THEN 0 WHEN 'mid' THEN 1 ELSE 2 END, move
