-- The calibration of a model: its probability of the preferred move, compared with how often that move was played. A
-- calibrated model has equal values in mean_prob and agreement. Steps without a known move, and annotations without a
-- preferred move or its probability, are left out.
--
-- Parameters:
--   model string = null: only predictions of this model; null = all models
--   bins int64 = 10: the number of bins of equal width for the probability, at least 1
--   phase string = null: only steps of this phase: early, mid or late; null = all phases
--
-- Columns:
--   model string: the model
--   prob_from float64: the least probability of the bin; a bin without steps is left out
--   num_steps int64: the number of steps
--   mean_prob float64: the mean probability of the preferred move
--   agreement float64: the share of the steps where that move was played, 0 to 1
WITH compared AS (
  SELECT
    annotations.model,
    CAST(annotations.argmax_prob AS DOUBLE) AS prob,
    annotations.argmax_head = coalesce(steps.move, annotations.teacher_move) AS is_equal
  FROM annotations
  JOIN steps USING (run_id, step_index)
  WHERE ($model IS NULL OR annotations.model = $model) AND ($phase IS NULL OR steps.phase = $phase)
),
binned AS (
  SELECT model, prob, is_equal, least(floor(prob * greatest($bins, 1)), greatest($bins, 1) - 1) AS bin
  FROM compared
  WHERE is_equal IS NOT NULL AND prob IS NOT NULL
)
SELECT
  model,
  CAST(bin AS DOUBLE) / greatest($bins, 1) AS prob_from,
  count(*) AS num_steps,
  avg(prob) AS mean_prob,
  CAST(count(*) FILTER (WHERE is_equal) AS DOUBLE) / count(*) AS agreement
FROM binned
GROUP BY model, bin
ORDER BY model, bin
