-- The contents of an archive by engine and format: runs, steps, scores and missing data. The group with the most runs
-- comes first.
--
-- Parameters:
--   limit int64 = 1000: the maximum number of rows
--
-- Columns:
--   engine string: the engine; null = runs without an engine
--   format string: the format of the source
--   num_runs int64: the number of runs
--   num_steps int64: the number of their steps
--   num_sampled int64: the runs that lack steps of their game: the source states more, or the step indices have gaps
--   num_verified int64: the runs in which every step follows from the previous one by the rules
--   num_raw_evs int64: the runs whose values are in the engine's own unit
--   num_without_moves int64: the runs with steps but without any known move
--   num_without_evs int64: the runs with steps but without any values
--   num_without_final int64: the runs without a final board
--   num_stopped int64: the runs whose final board has a legal move
--   steps_without_move int64: the steps without a known move
--   steps_without_evs int64: the steps without values
--   min_score int64: the lowest score
--   max_score int64: the highest score
--   best_tile uint32: the largest tile of any run
--   max_steps uint32: the length of the longest run in steps
--   elapsed_s float64: the playing time of all runs in seconds
--   first_start string: the start of the first run, as ISO 8601 in UTC; null = unknown
--   last_start string: the start of the last run, as ISO 8601 in UTC; null = unknown
--   first_ingest string: the first ingest that added one of the runs, as ISO 8601 in UTC
--   last_ingest string: the last ingest that added one of the runs, as ISO 8601 in UTC
WITH held AS (
  SELECT
    run_id,
    count(*) AS num_rows,
    count(move) AS num_moves,
    count(*) FILTER (WHERE has_evs) AS num_evs,
    max(step_index) AS last_step
  FROM steps
  GROUP BY run_id
)
SELECT
  engine,
  format,
  count(*) AS num_runs,
  sum(num_steps) AS num_steps,
  count(*) FILTER (WHERE coalesce(game_steps > num_steps, false) OR coalesce(last_step >= num_rows, false))
    AS num_sampled,
  count(*) FILTER (WHERE verified) AS num_verified,
  count(*) FILTER (WHERE raw_evs) AS num_raw_evs,
  count(*) FILTER (WHERE num_moves = 0) AS num_without_moves,
  count(*) FILTER (WHERE num_evs = 0) AS num_without_evs,
  count(*) FILTER (WHERE final_board IS NULL) AS num_without_final,
  count(*) FILTER (WHERE NOT is_terminal(final_board, final_tile_65536_mask)) AS num_stopped,
  coalesce(sum(num_rows - num_moves), 0) AS steps_without_move,
  coalesce(sum(num_rows - num_evs), 0) AS steps_without_evs,
  min(max_score) AS min_score,
  max(max_score) AS max_score,
  max(highest_tile) AS best_tile,
  max(num_steps) AS max_steps,
  sum(CAST(elapsed_s AS DOUBLE)) AS elapsed_s,
  CAST(min(start_time) AS VARCHAR) AS first_start,
  CAST(max(start_time) AS VARCHAR) AS last_start,
  CAST(min(ingested_at) AS VARCHAR) AS first_ingest,
  CAST(max(ingested_at) AS VARCHAR) AS last_ingest
FROM runs
LEFT JOIN held USING (run_id)
GROUP BY engine, format
ORDER BY num_runs DESC, engine, format
LIMIT $limit
