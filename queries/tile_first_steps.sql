-- For each run and tile, the first step whose board contains the tile. For a sampled run, it is the first such step
-- that was kept. A tile that no step's board contains has no row, even if the run's last move made it. The median over
-- runs is in `tile_reach`, which also counts larger tiles.
--
-- Parameters:
--   min_tile uint64 = 2048: the smallest tile to report
--   engine string = null: only runs of this engine; null = all runs, with or without an engine
--
-- Columns:
--   run_id uint32: the run
--   engine string: its engine; null = absent
--   tile uint32: the tile
--   step_index uint32: the index of the first step whose board contains it
WITH tiles AS (
  SELECT CAST(column1 AS TINYINT UNSIGNED) AS exp, CAST(column2 AS INT UNSIGNED) AS tile
  FROM (VALUES
    (1, 2), (2, 4), (3, 8), (4, 16), (5, 32), (6, 64), (7, 128), (8, 256), (9, 512), (10, 1024),
    (11, 2048), (12, 4096), (13, 8192), (14, 16384), (15, 32768),
    (16, 65536)
  )
  WHERE column2 >= $min_tile
),
boards AS (
  -- Bit k of `nibbles` is set if a nibble of the board is k. A nibble of 15 is a 32768 or a 65536, so boards with
  -- a 65536 have `has_32768` too. Few sets of tiles occur, so the join below is small.
  SELECT
    run_id,
    engine,
    max_exp,
    (1 << ((board >> 60) & 15)) | (1 << ((board >> 56) & 15)) | (1 << ((board >> 52) & 15))
      | (1 << ((board >> 48) & 15)) | (1 << ((board >> 44) & 15)) | (1 << ((board >> 40) & 15))
      | (1 << ((board >> 36) & 15)) | (1 << ((board >> 32) & 15)) | (1 << ((board >> 28) & 15))
      | (1 << ((board >> 24) & 15)) | (1 << ((board >> 20) & 15)) | (1 << ((board >> 16) & 15))
      | (1 << ((board >> 12) & 15)) | (1 << ((board >> 8) & 15)) | (1 << ((board >> 4) & 15))
      | (1 << (board & 15)) AS nibbles,
    CASE WHEN max_exp = 16 THEN array_has(exps(board, tile_65536_mask), 15) END AS has_32768,
    min(step_index) AS step_index
  FROM steps
  WHERE CAST(1 AS BIGINT UNSIGNED) << max_exp >= $min_tile AND ($engine IS NULL OR engine = $engine)
  GROUP BY 1, 2, 3, 4, 5
)
SELECT run_id, engine, tile, min(step_index) AS step_index
FROM boards CROSS JOIN tiles
WHERE CASE exp
  WHEN 15 THEN coalesce(has_32768, (nibbles >> 15) & 1 = 1)
  WHEN 16 THEN max_exp = 16
  ELSE (nibbles >> exp) & 1 = 1
END
GROUP BY run_id, engine, tile
ORDER BY run_id, tile
