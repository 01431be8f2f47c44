-- The share of each phase of the game in the steps of each engine, by the archive's phase thresholds. A uniform sample
-- of steps has the same shares. Counts the steps in the archive, so a sampled run weighs less.
--
-- Parameters:
--   min_score int64 = 0: the minimum score of a run
--
-- Columns:
--   engine string: the engine; null = steps of runs without an engine
--   phase string: early, mid or late, in this order; a phase without steps is left out
--   num_steps int64: the number of the engine's steps in this phase
--   share float64: the phase's share of the engine's steps, 0 to 1
WITH mix AS (
  SELECT engine, phase, count(*) AS num_steps
  FROM steps
  WHERE max_score >= $min_score
  GROUP BY engine, phase
)
SELECT engine, phase, num_steps, CAST(num_steps AS DOUBLE) / sum(num_steps) OVER (PARTITION BY engine) AS share
FROM mix
ORDER BY engine, CASE phase WHEN 'early' THEN 0 WHEN 'mid' THEN 1 ELSE 2 END
