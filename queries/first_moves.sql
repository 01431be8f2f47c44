-- The first moves of runs as a tree: for each sequence of moves, the number of runs that begin with it and their mean
-- final score. Moves are transformed with the symmetry that makes the run's first board canonical, so games that differ
-- only by a symmetry count together. If several symmetries do, the first sequence of the alphabet counts. A sequence ends
-- before the first step that is missing or has no known move.
--
-- Parameters:
--   first_steps uint64 = 4: the length of the longest sequences, 1 to 5
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--   by_engine bool = false: whether to compute one tree per engine
--
-- Columns:
--   engine string: the engine; null = runs without an engine, or all engines together
--   num_moves uint8: the length of the sequence
--   path string: the moves as letters of U, D, L and R, the first move first
--   num_runs int64: the number of runs that begin with these moves
--   share float64: their share of the runs that begin with all of these moves but the last and have a known next
--     move, 0 to 1
--   mean_score float64: the mean score of these runs
WITH lengths AS (
  SELECT CAST(column1 AS TINYINT UNSIGNED) AS num_moves
  FROM (VALUES (1), (2), (3), (4), (5))
  WHERE column1 <= $first_steps
),
symmetries AS (
  SELECT CAST(column1 AS TINYINT UNSIGNED) AS symmetry
  FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7))
),
starts AS (
  SELECT
    run_id,
    CASE WHEN $by_engine THEN engine END AS engine,
    max(max_score) AS max_score,
    max(CASE WHEN step_index = 0 THEN board END) AS board,
    max(CASE WHEN step_index = 0 THEN tile_65536_mask END) AS mask,
    max(CASE WHEN step_index = 0 THEN move END) AS first_move,
    max(CASE WHEN step_index = 1 THEN move END) AS second_move,
    max(CASE WHEN step_index = 2 THEN move END) AS third_move,
    max(CASE WHEN step_index = 3 THEN move END) AS fourth_move,
    max(CASE WHEN step_index = 4 THEN move END) AS fifth_move
  FROM steps
  WHERE step_index < 5 AND ($engine IS NULL OR engine = $engine)
  GROUP BY 1, 2
),
letters AS (
  SELECT
    run_id,
    engine,
    max_score,
    substr('UDLR', transform_move(first_move, symmetry) + 1, 1) AS one,
    substr('UDLR', transform_move(second_move, symmetry) + 1, 1) AS two,
    substr('UDLR', transform_move(third_move, symmetry) + 1, 1) AS three,
    substr('UDLR', transform_move(fourth_move, symmetry) + 1, 1) AS four,
    substr('UDLR', transform_move(fifth_move, symmetry) + 1, 1) AS five
  FROM starts CROSS JOIN symmetries
  WHERE
    transform(board, symmetry, mask) = transform(board, canonical_symmetry(board, mask), mask)
    AND transform_mask(board, symmetry, mask) = transform_mask(board, canonical_symmetry(board, mask), mask)
),
paths AS (
  -- A sequence with an unknown move is null.
  SELECT
    letters.run_id,
    letters.engine,
    letters.max_score,
    lengths.num_moves,
    min(CASE lengths.num_moves
      WHEN 1 THEN one
      WHEN 2 THEN one || two
      WHEN 3 THEN one || two || three
      WHEN 4 THEN one || two || three || four
      ELSE one || two || three || four || five
    END) AS path
  FROM letters CROSS JOIN lengths
  GROUP BY 1, 2, 3, 4
),
nodes AS (
  SELECT engine, num_moves, path, count(*) AS num_runs, avg(max_score) AS mean_score
  FROM paths
  WHERE path IS NOT NULL
  GROUP BY 1, 2, 3
)
SELECT
  engine,
  num_moves,
  path,
  num_runs,
  CAST(num_runs AS DOUBLE)
    / sum(num_runs) OVER (PARTITION BY engine, num_moves, substr(path, 1, num_moves - 1)) AS share,
  mean_score
FROM nodes
ORDER BY engine, num_moves, path
