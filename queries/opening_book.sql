-- The most frequent positions in the first steps of runs, with the moves played there and the mean final score. Boards
-- that differ only by a symmetry are one position, and moves are transformed with the board. Steps without a known move
-- count only in `num_steps`. Steps with a tile of 65536 are left out; no opening has this tile.
--
-- Parameters:
--   first_steps uint64 = 20: only steps with an index below this
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--   limit int64 = 100: the maximum number of rows
--
-- Columns:
--   position uint64: the board in canonical form: the smallest of its eight symmetric boards
--   tiles string: the board as text: rows separated by " / ", empty cells as "."
--   num_steps int64: the number of steps on it; a run visits a position at most once
--   num_up int64: how often up was played, in the orientation of `position`
--   num_down int64: how often down was played
--   num_left int64: how often left was played
--   num_right int64: how often right was played
--   mean_score float64: the mean score of the runs that visited it
WITH plays AS (
  SELECT canonical(board) AS position, canonical_move(board, move) AS move, max_score
  FROM steps
  WHERE step_index < $first_steps AND max_exp < 16 AND ($engine IS NULL OR engine = $engine)
),
book AS (
  SELECT
    position,
    count(*) AS num_steps,
    count(*) FILTER (WHERE move = 0) AS num_up,
    count(*) FILTER (WHERE move = 1) AS num_down,
    count(*) FILTER (WHERE move = 2) AS num_left,
    count(*) FILTER (WHERE move = 3) AS num_right,
    avg(max_score) AS mean_score
  FROM plays
  GROUP BY position
  ORDER BY num_steps DESC, position
  LIMIT $limit
)
SELECT
  position, board_text(position) AS tiles, num_steps, num_up, num_down, num_left, num_right, mean_score
FROM book
ORDER BY num_steps DESC, position
