-- How often a model prefers the move that was played, by engine, phase of the game and kind of evaluation. Steps
-- without a known move, and annotations without a preferred move, are left out.
--
-- Parameters:
--   model string = null: only predictions of this model; null = all models
--   min_score int64 = 0: the minimum score of a run
--
-- Columns:
--   model string: the model
--   engine string: the engine; null = steps of runs without an engine
--   phase string: early, mid or late, in this order; a phase without steps is left out
--   valuation_type string: the kind of evaluation that chose the moves; null = unknown
--   num_steps int64: the number of compared steps
--   agreement float64: the share of these steps where the model prefers the played move, 0 to 1
--   mean_prob float64: the mean of the model's probability of its preferred move; null = unknown
--   mean_logp float64: the mean of the model's log probability of the played move; null = unknown
WITH compared AS (
  SELECT
    annotations.model,
    steps.engine,
    steps.phase,
    steps.valuation_type,
    annotations.argmax_head = coalesce(steps.move, annotations.teacher_move) AS is_equal,
    CAST(annotations.argmax_prob AS DOUBLE) AS prob,
    CAST(
      CASE coalesce(steps.move, annotations.teacher_move)
        WHEN 0 THEN annotations.policy_logp_up
        WHEN 1 THEN annotations.policy_logp_down
        WHEN 2 THEN annotations.policy_logp_left
        ELSE annotations.policy_logp_right
      END AS DOUBLE
    ) AS logp
  FROM annotations
  JOIN steps USING (run_id, step_index)
  WHERE ($model IS NULL OR annotations.model = $model) AND steps.max_score >= $min_score
)
SELECT
  model,
  engine,
  phase,
  valuation_type,
  count(*) AS num_steps,
  CAST(count(*) FILTER (WHERE is_equal) AS DOUBLE) / count(*) AS agreement,
  avg(prob) AS mean_prob,
  avg(logp) AS mean_logp
FROM compared
WHERE is_equal IS NOT NULL
GROUP BY model, engine, phase, valuation_type
ORDER BY model, engine, CASE phase WHEN 'early' THEN 0 WHEN 'mid' THEN 1 ELSE 2 END, valuation_type
