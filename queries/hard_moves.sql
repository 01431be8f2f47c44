-- The steps at which the engine found it hardest to choose: those with the smallest gap between its best and second
-- best value. Steps without values or with a single one have no gap and are left out; whether the move is known does
-- not matter. Values of run files are normalised within the step, so that gaps are shares of the range of its values;
-- where `runs.raw_evs` is true they are in the engine's own unit and compare with those of the same engine only.
--
-- Parameters:
--   limit int64 = 100: rows at most
--   engine string = null: only runs of this engine; null = of all, also of none
--   phase string = null: only steps of this phase, early, mid or late; null = of all
--   min_gap float64 = 0.0: smaller gaps are left out; anything above 0 drops equal values, as symmetric boards have
--     them
--
-- Columns:
--   run_id uint32: the run
--   step_index uint32: the step
--   engine string: the run's engine; null = absent
--   phase string: the step's phase
--   board uint64: the board before the move
--   tiles string: the same, to be read: rows divided by " / ", an empty cell as "."
--   move uint8: the move that was chosen; null = not known
--   ev_up float32: the value of up; null = illegal
--   ev_down float32: the value of down
--   ev_left float32: the value of left
--   ev_right float32: the value of right
--   ev_gap float32: the best value less the second best
WITH gaps AS (
  SELECT run_id, step_index, ev_gap(ev_up, ev_down, ev_left, ev_right) AS ev_gap
  FROM steps
  WHERE has_evs
    AND ($engine IS NULL OR engine = $engine)
    AND ($phase IS NULL OR phase = $phase)
    -- No gap is below 0, and steps without one come last: by default it is computed once a step, for the order.
    AND ($min_gap <= 0 OR ev_gap(ev_up, ev_down, ev_left, ev_right) >= $min_gap)
),
hardest AS (
  SELECT * FROM gaps ORDER BY ev_gap NULLS LAST, run_id, step_index LIMIT $limit
)
-- Only the hardest steps' other columns are read.
SELECT
  run_id, step_index, engine, phase, board, board_text(board) AS tiles, move, ev_up, ev_down, ev_left, ev_right,
  hardest.ev_gap
FROM hardest
JOIN steps USING (run_id, step_index)
WHERE hardest.ev_gap IS NOT NULL
ORDER BY hardest.ev_gap, run_id, step_index
