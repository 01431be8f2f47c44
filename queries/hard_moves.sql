-- The steps whose two best values almost agree, smallest gap first: the engine's hardest choices. If the two values are
-- equal, either move is right, so the step is left out. Steps with fewer than two values are left out. Steps without a
-- known move are included. Raw values are normalized first (`raw_evs` of `ev_gap`).
--
-- Parameters:
--   max_gap float64 = 0.001: the maximum gap
--   limit int64 = 100: the maximum number of rows
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--   phase string = null: only steps of this phase: early, mid or late; null = all phases
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
--   ev_gap float32: the best value minus the second best value, both normalized
WITH gaps AS (
  SELECT run_id, step_index, ev_gap(ev_up, ev_down, ev_left, ev_right, raw_evs) AS ev_gap
  FROM steps
  JOIN (SELECT run_id, raw_evs FROM runs) AS units USING (run_id)
  WHERE has_evs
    AND ($engine IS NULL OR engine = $engine)
    AND ($phase IS NULL OR phase = $phase)
),
hardest AS (
  SELECT * FROM gaps
  WHERE ev_gap <= CAST($max_gap AS FLOAT) AND ev_gap > 0
  ORDER BY ev_gap, run_id, step_index
  LIMIT $limit
)
-- The other columns are read only for the hardest steps.
SELECT
  run_id, step_index, engine, phase, board, tile_65536_mask, board_text(board, tile_65536_mask) AS tiles, move,
  ev_up, ev_down, ev_left, ev_right, hardest.ev_gap
FROM hardest
JOIN steps USING (run_id, step_index)
ORDER BY hardest.ev_gap, run_id, step_index
