-- The moves that were played in a position, and the scores of these games. Boards that differ only by a symmetry are
-- one position. Moves are turned to the orientation of the given board.
--
-- Parameters:
--   board uint64 = 0: the board, as in `steps.board`
--   tile_65536_mask uint64 = 0: the cells with a tile of 65536, as in `steps.tile_65536_mask`
--
-- Columns:
--   move uint8: 0 up, 1 down, 2 left, 3 right; null = unknown
--   num_steps int64: the number of steps with the position and the move; a run visits a position at most once
--   num_engines int64: the number of engines that played it
--   mean_score float64: the mean score of the runs
--   max_score int64: the highest score of the runs
--   mean_value float64: the mean value of the move in runs with values from 0 to 1; null = unknown
WITH places AS (
  SELECT
    s.engine,
    s.max_score,
    s.move,
    CASE WHEN r.raw_evs IS NOT TRUE THEN
      CASE s.move WHEN 0 THEN s.ev_up WHEN 1 THEN s.ev_down WHEN 2 THEN s.ev_left WHEN 3 THEN s.ev_right END
    END AS value,
    -- The symmetry that turns the given board into the step's board.
    CASE
      WHEN s.board = transform($board, 0, $tile_65536_mask)
        AND coalesce(s.tile_65536_mask, 0) = transform_mask($board, 0, $tile_65536_mask) THEN 0
      WHEN s.board = transform($board, 1, $tile_65536_mask)
        AND coalesce(s.tile_65536_mask, 0) = transform_mask($board, 1, $tile_65536_mask) THEN 1
      WHEN s.board = transform($board, 2, $tile_65536_mask)
        AND coalesce(s.tile_65536_mask, 0) = transform_mask($board, 2, $tile_65536_mask) THEN 2
      WHEN s.board = transform($board, 3, $tile_65536_mask)
        AND coalesce(s.tile_65536_mask, 0) = transform_mask($board, 3, $tile_65536_mask) THEN 3
      WHEN s.board = transform($board, 4, $tile_65536_mask)
        AND coalesce(s.tile_65536_mask, 0) = transform_mask($board, 4, $tile_65536_mask) THEN 4
      WHEN s.board = transform($board, 5, $tile_65536_mask)
        AND coalesce(s.tile_65536_mask, 0) = transform_mask($board, 5, $tile_65536_mask) THEN 5
      WHEN s.board = transform($board, 6, $tile_65536_mask)
        AND coalesce(s.tile_65536_mask, 0) = transform_mask($board, 6, $tile_65536_mask) THEN 6
      WHEN s.board = transform($board, 7, $tile_65536_mask)
        AND coalesce(s.tile_65536_mask, 0) = transform_mask($board, 7, $tile_65536_mask) THEN 7
    END AS symmetry
  FROM steps s JOIN runs r ON r.run_id = s.run_id
  -- The IN list lets the reader skip most rows before it compares masks.
  WHERE s.board IN (
      transform($board, 0, $tile_65536_mask), transform($board, 1, $tile_65536_mask),
      transform($board, 2, $tile_65536_mask), transform($board, 3, $tile_65536_mask),
      transform($board, 4, $tile_65536_mask), transform($board, 5, $tile_65536_mask),
      transform($board, 6, $tile_65536_mask), transform($board, 7, $tile_65536_mask)
    )
),
turned AS (
  SELECT
    *,
    -- The inverse of a quarter turn is the turn in the other direction. The others are their own inverses.
    CASE symmetry WHEN 1 THEN 3 WHEN 3 THEN 1 ELSE symmetry END AS inverse
  FROM places
  WHERE symmetry IS NOT NULL
)
SELECT
  transform_move(move, inverse) AS move,
  count(*) AS num_steps,
  count(DISTINCT engine) AS num_engines,
  avg(max_score) AS mean_score,
  max(max_score) AS max_score,
  avg(value) AS mean_value
FROM turned
GROUP BY 1
ORDER BY num_steps DESC, 1 NULLS LAST
