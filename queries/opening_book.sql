-- The positions that runs pass through most often in their first steps, what was played there, and what the runs came
-- to. Boards that differ by a symmetry are one position, and moves are turned along with the board. Steps whose move is
-- not known count in `num_steps` alone.
--
-- Parameters:
--   first_steps uint64 = 20: only steps with an index below this
--   engine string = null: only runs of this engine; null = of all, also of none
--   limit int64 = 100: rows at most
--
-- Columns:
--   position uint64: the board, as the smallest of its eight symmetric ones
--   tiles string: the same, to be read: rows divided by " / ", an empty cell as "."
--   num_steps int64: how often it occurred; a run passes through a position once at most
--   num_up int64: how often up was played, on the board as `position` has it
--   num_down int64: how often down was played
--   num_left int64: how often left was played
--   num_right int64: how often right was played
--   mean_score float64: the mean score of the runs that passed through it
WITH plays AS (
  SELECT canonical(board) AS position, canonical_move(board, move) AS move, max_score
  FROM steps
  WHERE step_index < $first_steps AND ($engine IS NULL OR engine = $engine)
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
