-- The steps of runs with at least a minimum score, with every column of `steps`: the usual choice of training rows. The
-- query is a plain filter on columns with statistics, so row groups and pages of other runs are never read. Rows come
-- in the order of (run_id, step_index).
--
-- Parameters:
--   min_score int64 = 20000: the minimum score of a run, as its engine wrote it
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--   phase string = null: only steps of this phase: early, mid or late; null = all phases
--
-- Columns:
--   run_id uint32: the run
--   step_index uint32: the index of the step in the run, from 0; has gaps if the source was sampled
--   board uint64: the board before the move
--   tile_65536_mask uint16: the cells with 65536, bit i for cell i
--   move uint8: 0 up, 1 down, 2 left, 3 right; null = unknown
--   ev_up float32: the value of up; null if up is illegal or the step has no values
--   ev_down float32: the value of down
--   ev_left float32: the value of left
--   ev_right float32: the value of right
--   board_eval int32: the engine's heuristic value of the board (Macroxue packs); null = absent
--   valuation_type string: the kind of evaluation that chose the move (Macroxue); null = absent
--   ev_legal uint8: the legal moves, bit 0 up to bit 3 right
--   has_evs bool: whether the source had values for this step
--   max_exp uint8: the largest exponent on the board
--   phase string: early, mid or late, by the largest tile
--   max_score int64: the run's score
--   highest_tile uint32: the run's largest tile
--   num_steps uint32: the run's length
--   engine string: the run's engine; null = absent
SELECT *
FROM steps
WHERE max_score >= $min_score
  AND ($engine IS NULL OR engine = $engine)
  AND ($phase IS NULL OR phase = $phase)
