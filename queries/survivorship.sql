-- Survival: runs still alive at each step, as a life table. Any statistic per step index is computed over these runs
-- only. A run of n steps is alive at the step indices 0 to n - 1; runs without steps are left out. A bin in which no
-- run ends has no row; the next bin with a row has the same number of runs alive. Reads only `runs`, so a sampled run
-- counts as a shorter run.
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
WITH ends AS (
  SELECT
    CASE WHEN $by_engine THEN engine END AS engine,
    CAST(num_steps - 1 AS INT UNSIGNED) AS last_step
  FROM runs
  WHERE num_steps > 0 AND ($engine IS NULL OR engine = $engine)
),
bins AS (
  SELECT engine, last_step - last_step % CAST($width AS INT UNSIGNED) AS first_step, count(*) AS num_ended
  FROM ends
  GROUP BY 1, 2
)
SELECT
  engine,
  first_step,
  sum(num_ended) OVER (PARTITION BY engine ORDER BY first_step DESC) AS num_alive,
  CAST(sum(num_ended) OVER (PARTITION BY engine ORDER BY first_step DESC) AS DOUBLE)
    / sum(num_ended) OVER (PARTITION BY engine) AS share,
  num_ended
FROM bins
ORDER BY engine, first_step
