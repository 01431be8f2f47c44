-- The steps on a position, those of the best runs first. Boards that differ only by a symmetry are one position.
-- Moves are turned to the orientation of the given board.
--
-- Parameters:
--   board uint64 = 0: the board, as in `steps.board`
--   tile_65536_mask uint64 = 0: the cells with a tile of 65536, as in `steps.tile_65536_mask`
--   limit int64 = 100: the maximum number of rows
--
-- Columns:
--   run_id uint32: the run
--   step_index uint32: the step
--   engine string: the engine of the run
--   max_score int64: the score of the run
--   num_steps uint32: the number of steps of the run
--   move uint8: the move that was played: 0 up, 1 down, 2 left, 3 right; null = unknown
--   value float32: the value of this move in the unit of the engine; null = unknown
--   symmetry int64: the symmetry that turns the given board into the step's board, as in `transform`
WITH places AS (
  SELECT
    s.run_id,
    s.step_index,
    s.engine,
    s.max_score,
    s.num_steps,
    s.move,
    CASE s.move WHEN 0 THEN s.ev_up WHEN 1 THEN s.ev_down WHEN 2 THEN s.ev_left WHEN 3 THEN s.ev_right END AS value,
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
  FROM steps s
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
  run_id, step_index, engine, max_score, num_steps, transform_move(move, inverse) AS move, value, symmetry
FROM turned
ORDER BY max_score DESC, run_id, step_index
LIMIT $limit
