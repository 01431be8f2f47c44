-- Pearson's chi-square tests of the spawned tiles against the rules of the game. The test `tile` expects a 2 in 90 % of
-- the spawns and a 4 in 10 %. The test `rank` expects each empty cell equally often: it numbers the empty cells from the
-- top left, row by row, and counts separately for each number of empty cells. Two consecutive steps with a known move
-- show a spawn. A spawn into the only empty cell counts only in `tile`. Large archives are sampled by whole runs, and
-- the sample depends only on the ids and lengths of the runs.
--
-- Parameters:
--   max_steps uint64 = 2000000: runs are added to the sample until it has this number of steps
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--   by_engine bool = false: whether to test each engine; the sample of runs is the same for both values
--
-- Columns:
--   engine string: the engine; null = runs without an engine, or all engines together
--   test string: tile or rank
--   num_empty uint8: the number of empty cells before the spawn; null for the test `tile`
--   value uint32: the tile, or the number of the cell among the empty ones, from 0
--   num_spawns int64: the number of such spawns
--   expected float64: the expected number
--   chi_square float64: the statistic of the whole test, the same in each of its rows
--   degrees int64: its degrees of freedom, the same in each of its rows
WITH samples AS (
  SELECT
    run_id,
    sum(num_steps) OVER (
      -- Multiplicative hashing (Knuth) spreads the sample evenly over the ids.
      ORDER BY (CAST(run_id AS BIGINT UNSIGNED) * CAST(2654435761 AS BIGINT UNSIGNED)) & 4294967295, run_id
      ROWS UNBOUNDED PRECEDING
    ) - num_steps AS num_before
  FROM runs
  WHERE $engine IS NULL OR engine = $engine
),
chosen AS (
  SELECT run_id FROM samples WHERE num_before < $max_steps
),
pairs AS (
  SELECT
    engine,
    board,
    move,
    tile_65536_mask,
    step_index,
    lead(board) OVER following AS next_board,
    lead(tile_65536_mask) OVER following AS next_mask,
    lead(step_index) OVER following AS next_step
  FROM steps
  WHERE run_id IN (SELECT run_id FROM chosen)
  WINDOW following AS (PARTITION BY run_id ORDER BY step_index)
),
spawns AS (
  SELECT engine, next_board, spawn(board, move, next_board, tile_65536_mask, next_mask) AS spawned
  FROM pairs
  WHERE next_step = step_index + 1 AND move IS NOT NULL
),
counts AS (
  SELECT
    CASE WHEN $by_engine THEN engine END AS engine,
    CAST(spawned['tile'] AS INT UNSIGNED) AS tile,
    empty_cells(next_board) + 1 AS num_empty,
    -- Fills the cells from the spawned one on, so that only the empty cells before it are counted.
    empty_cells(next_board | (18446744073709551615 >> CAST(4 * spawned['cell'] AS BIGINT UNSIGNED))) AS rank,
    count(*) AS num_spawns
  FROM spawns
  WHERE spawned IS NOT NULL
  GROUP BY 1, 2, 3, 4
),
-- Both tests come from one join, because a table that is named twice would be computed twice.
numbers AS (
  SELECT column1 AS test, CAST(column2 AS INT UNSIGNED) AS value
  FROM (VALUES
    ('tile', 2), ('tile', 4),
    ('rank', 0), ('rank', 1), ('rank', 2), ('rank', 3), ('rank', 4), ('rank', 5), ('rank', 6), ('rank', 7),
    ('rank', 8), ('rank', 9), ('rank', 10), ('rank', 11), ('rank', 12), ('rank', 13), ('rank', 14)
  )
),
sums AS (
  SELECT
    counts.engine,
    numbers.test,
    CAST(CASE WHEN numbers.test = 'rank' THEN counts.num_empty END AS TINYINT UNSIGNED) AS num_empty,
    numbers.value,
    sum(
      CASE WHEN numbers.value = CASE numbers.test WHEN 'rank' THEN counts.rank ELSE counts.tile END
        THEN counts.num_spawns
        ELSE 0
      END
    ) AS num_spawns,
    sum(counts.num_spawns) AS num_tests
  FROM counts
  JOIN numbers ON numbers.test = 'tile' OR (counts.num_empty > 1 AND numbers.value < counts.num_empty)
  GROUP BY 1, 2, 3, 4
),
cases AS (
  SELECT
    engine,
    test,
    num_empty,
    value,
    num_spawns,
    num_tests * CASE WHEN test = 'rank' THEN 1.0 / num_empty WHEN value = 2 THEN 0.9 ELSE 0.1 END AS expected
  FROM sums
)
SELECT
  engine,
  test,
  num_empty,
  value,
  num_spawns,
  expected,
  sum((num_spawns - expected) * (num_spawns - expected) / expected) OVER (
    PARTITION BY engine, test ORDER BY num_empty, value ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
  ) AS chi_square,
  -- The number of rows minus one for each total: of all tiles, and of each number of empty cells.
  count(*) OVER (PARTITION BY engine, test) - count(DISTINCT num_empty) OVER (PARTITION BY engine, test)
    - CASE test WHEN 'tile' THEN 1 ELSE 0 END AS degrees
FROM cases
ORDER BY engine, test, num_empty, value
