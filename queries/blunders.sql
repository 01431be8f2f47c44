-- The steps whose move is worth much less than the best one, by the engine's own values, worst first: exploration, a
-- budget that ran out, or an error. Steps without values, without a known move, or without a value of that move are
-- left out. Values of run files are normalised within the step, so that losses are shares of the range of its values;
-- where `runs.raw_evs` is true they are in the engine's own unit and compare with those of the same engine only.
--
-- Parameters:
--   min_loss float64 = 0.1: the least loss
--   limit int64 = 100: rows at most
--   engine string = null: only runs of this engine; null = of all, also of none
--   phase string = null: only steps of this phase, early, mid or late; null = of all
--
-- Columns:
--   run_id uint32: the run
--   step_index uint32: the step
--   engine string: the run's engine; null = absent
--   phase string: the step's phase
--   board uint64: the board before the move
--   tiles string: the same, to be read: rows divided by " / ", an empty cell as "."
--   move uint8: the move that was chosen
--   best_move uint8: the move of the best value, the first of equals
--   ev_up float32: the value of up; null = illegal
--   ev_down float32: the value of down
--   ev_left float32: the value of left
--   ev_right float32: the value of right
--   ev_loss float32: the best value less that of the move
WITH worst AS (
  SELECT
    run_id, step_index, engine, phase, board, move, ev_up, ev_down, ev_left, ev_right,
    ev_loss(move, ev_up, ev_down, ev_left, ev_right) AS ev_loss
  FROM steps
  WHERE has_evs
    AND ($engine IS NULL OR engine = $engine)
    AND ($phase IS NULL OR phase = $phase)
    AND ev_loss(move, ev_up, ev_down, ev_left, ev_right) >= $min_loss
  ORDER BY ev_loss DESC, run_id, step_index
  LIMIT $limit
)
SELECT
  run_id, step_index, engine, phase, board, board_text(board) AS tiles, move,
  best_move(ev_up, ev_down, ev_left, ev_right) AS best_move,
  ev_up, ev_down, ev_left, ev_right, ev_loss
FROM worst
ORDER BY ev_loss DESC, run_id, step_index
