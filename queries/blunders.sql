-- The steps whose move is worth much less than the best move, by the engine's own values, largest loss first. Such a
-- move may be exploration, a search budget that ran out, or an error. Steps without values, without a known move, or
-- without a value for that move are left out. Raw values are normalized first (`raw_evs` of `ev_loss`).
--
-- Parameters:
--   min_loss float64 = 0.1: the minimum loss
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
--   move uint8: the chosen move
--   best_move uint8: the move with the best value; the first of equal ones
--   ev_up float32: the value of up; null if illegal
--   ev_down float32: the value of down
--   ev_left float32: the value of left
--   ev_right float32: the value of right
--   ev_loss float32: the best value minus the value of the chosen move, both normalized
WITH worst AS (
  SELECT
    run_id, step_index, engine, phase, board, tile_65536_mask, move, ev_up, ev_down, ev_left, ev_right,
    ev_loss(move, ev_up, ev_down, ev_left, ev_right, raw_evs) AS ev_loss
  FROM steps
  JOIN (SELECT run_id, raw_evs FROM runs) AS units USING (run_id)
  WHERE has_evs
    AND ($engine IS NULL OR engine = $engine)
    AND ($phase IS NULL OR phase = $phase)
    AND ev_loss(move, ev_up, ev_down, ev_left, ev_right, raw_evs) >= CAST($min_loss AS FLOAT)
  ORDER BY ev_loss DESC, run_id, step_index
  LIMIT $limit
)
SELECT
  run_id, step_index, engine, phase, board, tile_65536_mask, board_text(board, tile_65536_mask) AS tiles, move,
  best_move(ev_up, ev_down, ev_left, ev_right) AS best_move,
  ev_up, ev_down, ev_left, ev_right, ev_loss
FROM worst
ORDER BY ev_loss DESC, run_id, step_index
