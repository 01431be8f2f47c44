-- The steps with the smallest gap between the best and the second best value: the engine's hardest choices. Steps with
-- fewer than two values have no gap and are left out. Steps without a known move are included. The values in run files
-- are normalised within each step, so a gap is a share of the range of the step's values. If `runs.raw_evs` is true,
-- gaps are in the engine's own unit and are comparable only within one engine.
--
-- Parameters:
--   limit int64 = 100: the maximum number of rows
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--   phase string = null: only steps of this phase: early, mid or late; null = all phases
--   min_gap float64 = 0.0: the minimum gap; any value above 0 drops steps with equal best values, which symmetric
--     boards have
--
-- Columns:
--   run_id uint32: the run
--   step_index uint32: the step
--   engine string: the run's engine; null = absent
--   phase string: the step's phase
--   board uint64: the board before the move
--   tile_65536_mask uint16: the cells with 65536, bit i for cell i; null = 0
--   tiles string: the board as text: rows separated by " / ", empty cells as "."
--   move uint8: the chosen move; null = unknown
--   ev_up float32: the value of up; null if illegal
--   ev_down float32: the value of down
--   ev_left float32: the value of left
--   ev_right float32: the value of right
--   ev_gap float32: the best value minus the second best value
WITH gaps AS (
  SELECT run_id, step_index, ev_gap(ev_up, ev_down, ev_left, ev_right) AS ev_gap
  FROM steps
  WHERE has_evs
    AND ($engine IS NULL OR engine = $engine)
    AND ($phase IS NULL OR phase = $phase)
    -- A gap is never below 0, and steps without a gap sort last. So by default the gap is computed once, for the order.
    AND ($min_gap <= 0 OR ev_gap(ev_up, ev_down, ev_left, ev_right) >= $min_gap)
),
hardest AS (
  SELECT * FROM gaps ORDER BY ev_gap NULLS LAST, run_id, step_index LIMIT $limit
)
-- The other columns are read only for the hardest steps.
SELECT
  run_id, step_index, engine, phase, board, tile_65536_mask, board_text(board, tile_65536_mask) AS tiles, move,
  ev_up, ev_down, ev_left, ev_right, hardest.ev_gap
FROM hardest
JOIN steps USING (run_id, step_index)
WHERE hardest.ev_gap IS NOT NULL
ORDER BY hardest.ev_gap, run_id, step_index
