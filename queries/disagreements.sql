-- The steps where a model prefers another move than the teacher played, with the most confident predictions first. The
-- teacher is the player of the game. Steps without a known move, and annotations without a preferred move, are left out.
--
-- Parameters:
--   limit int64 = 100: the maximum number of rows
--   model string = null: only predictions of this model; null = all models
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--   phase string = null: only steps of this phase: early, mid or late; null = all phases
--   min_prob float64 = 0.0: the minimum probability of the preferred move; any value above 0 drops unknown ones
--
-- Columns:
--   run_id uint32: the run
--   step_index uint32: the step
--   model string: the model
--   engine string: the run's engine; null = absent
--   phase string: the step's phase
--   board uint64: the board before the move
--   tile_65536_mask uint16: the cells with 65536, bit i for cell i; null = 0
--   tiles string: the board as text: rows separated by " / ", empty cells as "."
--   teacher_move uint8: the move that was played
--   model_move uint8: the move that the model prefers
--   model_prob float32: the model's probability of this move; null = unknown
WITH chosen AS (
  SELECT
    steps.run_id, steps.step_index, annotations.model, steps.engine, steps.phase, steps.board, steps.tile_65536_mask,
    coalesce(steps.move, annotations.teacher_move) AS teacher_move,
    annotations.argmax_head AS model_move,
    annotations.argmax_prob AS model_prob
  FROM annotations
  JOIN steps USING (run_id, step_index)
  WHERE annotations.argmax_head <> coalesce(steps.move, annotations.teacher_move)
    AND ($model IS NULL OR annotations.model = $model)
    AND ($engine IS NULL OR steps.engine = $engine)
    AND ($phase IS NULL OR steps.phase = $phase)
    AND ($min_prob <= 0 OR annotations.argmax_prob >= $min_prob)
  ORDER BY annotations.argmax_prob DESC NULLS LAST, steps.run_id, steps.step_index, annotations.model
  LIMIT $limit
)
SELECT
  run_id, step_index, model, engine, phase, board, tile_65536_mask, board_text(board, tile_65536_mask) AS tiles,
  teacher_move, model_move, model_prob
FROM chosen
ORDER BY model_prob DESC NULLS LAST, run_id, step_index, model
