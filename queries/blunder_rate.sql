-- The share of steps whose move is worth much less than the best move, by phase of the game. `blunders` lists such
-- steps. Steps without values, without a known move, or without a value for that move are left out. Steps of one run
-- resemble each other, so the interval is Wilson's (1927) for a smaller number of steps. This is the number of steps
-- divided by the design effect (Kish 1965), which is estimated from the differences between runs. A single run has no
-- design effect, and its interval is too narrow. Raw values are normalized first (`raw_evs` of `ev_loss`).
--
-- Parameters:
--   min_loss float64 = 0.1: the minimum loss
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--   by_engine bool = false: whether to compute separate rows for each engine
--
-- Columns:
--   engine string: the engine; null = runs without an engine, or all engines together
--   phase string: early, mid or late, in this order; a phase without such steps is left out
--   num_runs int64: the number of runs with such steps
--   num_steps int64: the number of steps with a loss, which may be 0
--   num_blunders int64: the number of steps with a loss of at least `min_loss`
--   share float64: their share, 0 to 1
--   low float64: the lower limit of its 95 % interval
--   high float64: the upper limit of its 95 % interval
--   mean_loss float64: the mean loss of all these steps
--   design_effect float64: the factor by which the variance exceeds that of independent steps, at least 1; null for a
--     single run, and if all or none of the steps are blunders
WITH losses AS (
  SELECT
    CASE WHEN $by_engine THEN engine END AS engine,
    phase,
    run_id,
    ev_loss(move, ev_up, ev_down, ev_left, ev_right, raw_evs) AS loss
  FROM steps
  JOIN (SELECT run_id, raw_evs FROM runs) AS units USING (run_id)
  WHERE has_evs
    AND ($engine IS NULL OR engine = $engine)
),
by_run AS (
  SELECT
    engine,
    phase,
    run_id,
    CAST(count(*) AS DOUBLE) AS num_steps,
    CAST(count(*) FILTER (WHERE loss >= CAST($min_loss AS FLOAT)) AS DOUBLE) AS num_blunders,
    sum(CAST(loss AS DOUBLE)) AS loss
  FROM losses
  WHERE loss IS NOT NULL
  GROUP BY 1, 2, 3
),
-- A running sum, so that the losses are always added in the order of runs. It never falls, so its maximum is the sum.
ordered AS (
  SELECT
    engine,
    phase,
    num_steps,
    num_blunders,
    sum(loss) OVER (PARTITION BY engine, phase ORDER BY run_id ROWS UNBOUNDED PRECEDING) AS loss
  FROM by_run
),
sums AS (
  SELECT
    engine,
    phase,
    count(*) AS num_runs,
    sum(num_steps) AS num_steps,
    sum(num_blunders) AS num_blunders,
    sum(num_blunders) / sum(num_steps) AS share,
    max(loss) AS loss,
    sum(num_blunders * num_blunders) AS squares,
    sum(num_blunders * num_steps) AS products,
    sum(num_steps * num_steps) AS step_squares
  FROM ordered
  GROUP BY 1, 2
),
-- The variance of a ratio of two sums over runs, divided by the variance for independent steps.
effects AS (
  SELECT
    *,
    CASE
      WHEN num_runs > 1 AND share > 0 AND share < 1
      THEN greatest(
        (squares - 2 * share * products + share * share * step_squares) * num_runs / (num_runs - 1)
          / (num_steps * share * (1 - share)),
        1.0
      )
    END AS design_effect
  FROM sums
),
sizes AS (
  SELECT *, num_steps / coalesce(design_effect, 1.0) AS size
  FROM effects
),
spreads AS (
  -- 1.96 is the quantile of the normal distribution at 97.5 %; 3.84 is its square, and 0.96 a quarter of the square.
  SELECT *, 1.959963984540054 * sqrt(size * share * (1 - share) + 0.960364705173531) AS spread
  FROM sizes
)
SELECT
  engine,
  phase,
  num_runs,
  CAST(num_steps AS BIGINT) AS num_steps,
  CAST(num_blunders AS BIGINT) AS num_blunders,
  share,
  greatest((size * share + 1.920729410347062 - spread) / (size + 3.841458820694124), 0.0) AS low,
  least((size * share + 1.920729410347062 + spread) / (size + 3.841458820694124), 1.0) AS high,
  loss / num_steps AS mean_loss,
  design_effect
FROM spreads
ORDER BY engine, CASE phase WHEN 'early' THEN 0 WHEN 'mid' THEN 1 ELSE 2 END
