-- How often two engines would play the same move, over the positions that both met. Boards that differ only by a
-- symmetry are one position, and moves are transformed with the board. Draw one move from each engine's moves on a
-- position: the agreement is the probability that the two are equal. All positions have the same weight. Steps without
-- a known move are left out. Games diverge after their first moves, so only these are compared. Steps with a tile of
-- 65536 are left out.
--
-- Parameters:
--   first_steps uint64 = 100: only steps with an index below this
--   min_steps uint64 = 1: an engine's positions with fewer steps are left out
--
-- Columns:
--   engine string: the first engine, in the order of names
--   other_engine string: the second engine; null = runs without an engine, which sort last
--   num_positions int64: the number of positions that both met
--   agreement float64: the mean agreement over these positions, 0 to 1
WITH plays AS (
  SELECT engine, canonical(board) AS position, canonical_move(board, move) AS move
  FROM steps
  WHERE step_index < $first_steps AND max_exp < 16 AND move IS NOT NULL
),
positions AS (
  SELECT
    engine,
    position,
    count(*) AS num_steps,
    count(*) FILTER (WHERE move = 0) AS num_up,
    count(*) FILTER (WHERE move = 1) AS num_down,
    count(*) FILTER (WHERE move = 2) AS num_left,
    count(*) FILTER (WHERE move = 3) AS num_right
  FROM plays
  GROUP BY engine, position
  HAVING count(*) >= $min_steps
)
SELECT
  one.engine,
  other.engine AS other_engine,
  count(*) AS num_positions,
  avg(
    CAST(
      one.num_up * other.num_up + one.num_down * other.num_down
        + one.num_left * other.num_left + one.num_right * other.num_right AS DOUBLE
    ) / (one.num_steps * other.num_steps)
  ) AS agreement
FROM positions AS one
JOIN positions AS other ON one.position = other.position
WHERE one.engine < other.engine OR (one.engine IS NOT NULL AND other.engine IS NULL)
GROUP BY one.engine, other.engine
ORDER BY one.engine, other.engine
