-- How many different positions the steps hold, exactly and up to the eight symmetries of the board: how much a sample
-- repeats itself, and how much turning boards could add. The phase follows from the board, so that the numbers of
-- several phases add up. Every different board is held in memory until the end.
--
-- Parameters:
--   engine string = null: only runs of this engine; null = of all, also of none
--   phase string = null: only steps of this phase, early, mid or late; null = of all
--   min_score uint64 = 0: the least score of a run
--
-- Columns:
--   phase string: early, mid or late, in this order; a phase without steps is left out
--   num_steps int64: the steps
--   num_boards int64: the different boards among them
--   num_positions int64: the different boards up to symmetry
WITH boards AS (
  -- Grouped twice rather than counted distinct: a board is made canonical once, and a group's key is one integer.
  SELECT board, min(max_exp) AS max_exp, count(*) AS num_steps
  FROM steps
  WHERE max_score >= $min_score
    AND ($engine IS NULL OR engine = $engine)
    AND ($phase IS NULL OR phase = $phase)
  GROUP BY board
),
positions AS (
  SELECT min(max_exp) AS max_exp, sum(num_steps) AS num_steps, count(*) AS num_boards
  FROM boards
  GROUP BY canonical(board)
),
phases AS (
  SELECT phase_of(max_exp) AS phase, num_steps, num_boards
  FROM positions
)
SELECT phase, sum(num_steps) AS num_steps, sum(num_boards) AS num_boards, count(*) AS num_positions
FROM phases
GROUP BY phase
ORDER BY CASE phase WHEN 'early' THEN 0 WHEN 'mid' THEN 1 ELSE 2 END
