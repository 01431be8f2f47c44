-- The positions that followed a position, the most frequent first. Boards that differ only by a symmetry are one
-- position. Moves and boards are turned to the orientation of the given board.
--
-- Parameters:
--   board uint64 = 0: the board, as in `steps.board`
--   tile_65536_mask uint64 = 0: the cells with a tile of 65536, as in `steps.tile_65536_mask`
--   limit int64 = 50: the maximum number of rows
--
-- Columns:
--   move uint8: the move that was played: 0 up, 1 down, 2 left, 3 right
--   board uint64: the next board
--   tile_65536_mask uint16: its cells with a tile of 65536
--   num_steps int64: how often it followed
--   mean_score float64: the mean score of these runs
WITH places AS (
  SELECT
    s.run_id,
    s.step_index + 1 AS next_index,
    s.max_score,
    s.move,
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
  transform_move(t.move, t.inverse) AS move,
  transform(n.board, t.inverse, n.tile_65536_mask) AS board,
  transform_mask(n.board, t.inverse, n.tile_65536_mask) AS tile_65536_mask,
  count(*) AS num_steps,
  avg(t.max_score) AS mean_score
FROM turned t JOIN steps n ON n.run_id = t.run_id AND n.step_index = t.next_index
WHERE t.move IS NOT NULL
GROUP BY 1, 2, 3
ORDER BY num_steps DESC, 1, 2, 3
LIMIT $limit
