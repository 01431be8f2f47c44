-- The distribution of the loss of the chosen moves, by phase of the game: the best value minus the value of the chosen
-- move. Bins have equal width on a logarithmic scale, and a loss of 0, the best move, has its own bin. Steps without
-- values, without a known move, or without a value for that move are left out. Raw values are normalized first
-- (`raw_evs` of `ev_loss`).
--
-- Parameters:
--   bins int64 = 5: the number of bins per factor of ten, 1 to 20
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--   by_engine bool = false: whether to compute one histogram per engine
--
-- Columns:
--   engine string: the engine; null = runs without an engine, or all engines together
--   phase string: early, mid or late, in this order; a phase without such steps is left out
--   min_loss float64: the lower limit of the bin; 0 in the bin of best moves
--   max_loss float64: the bin ends before this; 0 in the same bin. The first bin above 0, from 1e-9, also has all
--     smaller values, and the last one, up to 1e9, all larger values
--   num_steps int64: the number of steps in the bin; a bin without steps has no row
--   share float64: their share of the phase's steps with a loss, 0 to 1
WITH values_of AS (
  SELECT
    CASE WHEN $by_engine THEN engine END AS engine,
    phase,
    CAST(ev_loss(move, ev_up, ev_down, ev_left, ev_right, raw_evs) AS DOUBLE) AS value
  FROM steps
  JOIN (SELECT run_id, raw_evs FROM runs) AS units USING (run_id)
  WHERE has_evs
    AND ($engine IS NULL OR engine = $engine)
),
counts AS (
  SELECT
    engine,
    phase,
    -- Null is the bin of 0.
    CASE
      WHEN value > 0
      THEN floor(least(greatest(log10(value), -9.0), 8.999) * least(greatest($bins, 1), 20))
    END AS bin,
    count(*) AS num_steps
  FROM values_of
  WHERE value IS NOT NULL
  GROUP BY 1, 2, 3
)
SELECT
  engine,
  phase,
  CASE WHEN bin IS NULL THEN 0.0 ELSE power(10.0, bin / least(greatest($bins, 1), 20)) END AS min_loss,
  CASE WHEN bin IS NULL THEN 0.0 ELSE power(10.0, (bin + 1) / least(greatest($bins, 1), 20)) END AS max_loss,
  num_steps,
  CAST(num_steps AS DOUBLE) / sum(num_steps) OVER (PARTITION BY engine, phase) AS share
FROM counts
ORDER BY engine, CASE phase WHEN 'early' THEN 0 WHEN 'mid' THEN 1 ELSE 2 END, min_loss
