-- The empirical distribution function of scores: the share of runs with at most a given score. At most `points` + 1
-- scores per engine are returned. They are spread evenly over the runs, and include the lowest and the highest score.
-- The band contains the true function at all scores with a probability of at least 95 %, if runs are independent. It
-- follows from the inequality of Dvoretzky, Kiefer and Wolfowitz (1956) with Massart's constant (1990). Reads only
-- `runs`.
--
-- Parameters:
--   points int64 = 200: the number of scores to return, 1 to 1000
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--   by_engine bool = false: whether to compute one function per engine
--
-- Columns:
--   engine string: the engine; null = runs without an engine, or all engines together
--   score int64: the score
--   num_at_most int64: the number of runs with this score or a lower one
--   num_runs int64: the number of the function's runs
--   share float64: their share, 0 to 1
--   low float64: the lower limit of the band
--   high float64: the upper limit of the band
WITH scores AS (
  SELECT CASE WHEN $by_engine THEN engine END AS engine, max_score AS score, count(*) AS num_here
  FROM runs
  WHERE $engine IS NULL OR engine = $engine
  GROUP BY 1, 2
),
counts AS (
  SELECT
    engine,
    score,
    sum(num_here) OVER (PARTITION BY engine ORDER BY score) AS num_at_most,
    sum(num_here) OVER (PARTITION BY engine) AS num_runs
  FROM scores
),
places AS (
  SELECT
    engine,
    score,
    num_at_most,
    num_runs,
    CASE
      WHEN num_at_most = num_runs THEN 1000
      ELSE (num_at_most - 1) * least(greatest($points, 1), 1000) / num_runs
    END AS place
  FROM counts
),
chosen AS (
  SELECT engine, min(score) AS score, min(num_at_most) AS num_at_most, min(num_runs) AS num_runs
  FROM places
  GROUP BY engine, place
)
SELECT
  engine,
  score,
  num_at_most,
  num_runs,
  CAST(num_at_most AS DOUBLE) / num_runs AS share,
  -- The band's half width is sqrt(ln(2 / 0.05) / (2 * num_runs)).
  greatest(CAST(num_at_most AS DOUBLE) / num_runs - sqrt(ln(40.0) / (2 * num_runs)), 0.0) AS low,
  least(CAST(num_at_most AS DOUBLE) / num_runs + sqrt(ln(40.0) / (2 * num_runs)), 1.0) AS high
FROM chosen
ORDER BY engine, score
