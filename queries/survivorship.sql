-- Survival: runs still alive at each step, as a life table with the Kaplan-Meier estimate. Any statistic per step index
-- is computed over these runs only. A run of n steps is alive at the step indices 0 to n - 1; runs without steps are
-- left out. A bin in which no run ends has no row; the next bin with a row has the same number of runs alive. A run
-- does not state why it ended. If its final board has a legal move, it was stopped, and the estimate treats it as
-- censored at its last step. All other runs, including those without a final board, count as games that were over. The
-- estimate follows Kaplan and Meier (1958). Its interval is pointwise: Greenwood's variance (1926) with the log-log
-- transformation of Kalbfleisch and Prentice (1980). Reads only `runs`, so a sampled run counts as a shorter run.
--
-- Parameters:
--   width uint64 = 1000: step indices in a bin, 1 to 4294967295
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--   by_engine bool = false: whether to compute one table per engine
--
-- Columns:
--   engine string: the engine; null = runs without an engine, or all engines together
--   first_step uint32: the smallest step index of the bin, a multiple of `width`
--   num_alive int64: the number of runs that have a step with this index
--   share float64: the share of the table's runs that are alive, 0 to 1
--   num_ended int64: the number of runs whose last step is in the bin
--   num_stopped int64: the number of these whose final board has a legal move
--   survival float64: the estimated share of games that have a step with this index, 0 to 1
--   low float64: the lower limit of the 95 % interval of `survival`; 1 while no game is over
--   high float64: the upper limit
--   hazard float64: the estimated share of the games alive at `first_step` that are over within the bin, 0 to 1;
--     `survival * (1 - hazard)` is the survival after the bin
WITH ends AS (
  SELECT
    CASE WHEN $by_engine THEN engine END AS engine,
    CAST(num_steps - 1 AS INT UNSIGNED) AS last_step,
    count(*) AS num_ended,
    count(*) FILTER (WHERE NOT is_terminal(final_board, final_tile_65536_mask)) AS num_stopped
  FROM runs
  WHERE num_steps > 0 AND ($engine IS NULL OR engine = $engine)
  GROUP BY 1, 2
),
alive AS (
  -- All windows are ascending, so the engine adds the terms of the sums below in this order and never subtracts any.
  SELECT
    engine,
    last_step,
    num_ended,
    num_stopped,
    num_ended - num_stopped AS num_over,
    sum(num_ended) OVER (PARTITION BY engine) AS num_runs,
    CAST(
      sum(num_ended) OVER (PARTITION BY engine) - sum(num_ended) OVER (PARTITION BY engine ORDER BY last_step)
        + num_ended AS DOUBLE
    ) AS num_alive
  FROM ends
),
terms AS (
  -- The terms are infinite where the last game is over; no later step needs them.
  SELECT
    *,
    ln((num_alive - num_over) / num_alive) AS log_term,
    CASE WHEN num_over < num_alive THEN ln((num_alive - num_over) / num_alive) ELSE 0.0 END AS finite_log_term,
    CASE WHEN num_over < num_alive THEN num_over / (num_alive * (num_alive - num_over)) ELSE 0.0 END AS variance_term
  FROM alive
),
sums AS (
  SELECT
    *,
    coalesce(sum(finite_log_term) OVER earlier, 0.0) AS log_before,
    coalesce(sum(variance_term) OVER earlier, 0.0) AS variance_before
  FROM terms
  WINDOW earlier AS (PARTITION BY engine ORDER BY last_step ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
bins AS (
  SELECT
    engine,
    last_step - last_step % CAST($width AS INT UNSIGNED) AS first_step,
    CAST(max(num_alive) AS BIGINT) AS num_alive,
    max(num_alive) / max(num_runs) AS share,
    sum(num_ended) AS num_ended,
    sum(num_stopped) AS num_stopped,
    max(log_before) AS log_before,
    min(log_before + log_term) AS log_until,
    min(variance_before) AS variance
  FROM sums
  GROUP BY 1, 2
),
spreads AS (
  -- 1.96 is the quantile of the normal distribution at 97.5 %.
  SELECT *, CASE WHEN log_before < 0 THEN exp(1.959963984540054 * sqrt(variance) / -log_before) ELSE 1.0 END AS spread
  FROM bins
)
SELECT
  engine,
  first_step,
  num_alive,
  share,
  num_ended,
  num_stopped,
  exp(log_before) AS survival,
  exp(log_before * spread) AS low,
  exp(log_before / spread) AS high,
  1.0 - exp(log_until - log_before) AS hazard
FROM spreads
ORDER BY engine, first_step
