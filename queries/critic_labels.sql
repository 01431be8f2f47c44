-- Every step with the outcome of its run, as labels for a critic: which of the largest tiles the run reaches. The
-- outcome is the highest tile that the run's source states. Rows come in the order of (run_id, step_index). Materialise
-- them with `extra=["reaches_8192", "reaches_16384", "reaches_32768"]`, and split by run, because all steps of a run
-- share its labels.
--
-- Parameters:
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--   phase string = null: only steps of this phase: early, mid or late; null = all phases
--
-- Columns:
--   run_id uint32: the run
--   step_index uint32: the step
--   board uint64: the board before the move
--   tile_65536_mask uint16: the cells with 65536, bit i for cell i; null = 0
--   reaches_8192 bool: whether the run's highest tile is 8192 or more
--   reaches_16384 bool: whether it is 16384 or more
--   reaches_32768 bool: whether it is 32768 or more
SELECT
  run_id,
  step_index,
  board,
  tile_65536_mask,
  highest_tile >= 8192 AS reaches_8192,
  highest_tile >= 16384 AS reaches_16384,
  highest_tile >= 32768 AS reaches_32768
FROM steps
WHERE ($engine IS NULL OR engine = $engine)
  AND ($phase IS NULL OR phase = $phase)
