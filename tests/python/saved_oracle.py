"""The expected result of each named query, as DuckDB's SQL over the same files, with the same parameter names.

These queries follow the headers but use other means: joins instead of windows, and lists instead of groups.
"""

EXPECTED = {
    "high_score": """
        FROM steps WHERE max_score >= $min_score
            AND CASE WHEN $engine::VARCHAR IS NULL THEN true ELSE engine IS NOT DISTINCT FROM $engine::VARCHAR END
            AND phase = coalesce($phase::VARCHAR, phase)
        ORDER BY run_id, step_index""",
    "engine_leaderboard": """
        WITH grouped AS (
            SELECT engine, list(max_score::DOUBLE) AS scores, list(highest_tile) AS tiles, sum(num_steps) AS num_steps
            FROM runs GROUP BY engine)
        SELECT engine, len(scores), num_steps, list_avg(scores),
            CASE WHEN len(scores) > 1 THEN list_stddev_samp(scores) / sqrt(len(scores)) END,
            list_sort(scores)[1 + floor(len(scores) / 2)::BIGINT], list_sort(scores)[1 + (9 * len(scores) - 4) // 10],
            list_max(scores), list_max(tiles), len([t for t in tiles if t >= $tile]) / len(tiles)
        FROM grouped WHERE len(scores) >= $min_runs ORDER BY 4 DESC, engine NULLS LAST""",
    "score_histogram": """
        WITH chosen AS (
            SELECT if($by_engine, engine, NULL) AS engine, (max_score // $width::UBIGINT * $width::UBIGINT) AS least
            FROM runs WHERE coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL))
        SELECT engine, least, count(*),
            count(*) / (SELECT count(*) FROM chosen c WHERE c.engine IS NOT DISTINCT FROM chosen.engine)
        FROM chosen GROUP BY engine, least ORDER BY engine NULLS LAST, least""",
    "run_lengths": """
        WITH grouped AS (
            SELECT engine, count(*) AS n, avg(num_steps) AS mean, min(num_steps) AS least, max(num_steps) AS most,
                list_sort(list(num_steps)) AS l
            FROM runs WHERE max_score >= $min_score GROUP BY engine)
        SELECT engine, n, mean, least, l[1 + (10 * n + 40) // 100], l[1 + (25 * n + 25) // 100], l[1 + n // 2],
            l[1 + (75 * n - 25) // 100], l[1 + (90 * n - 40) // 100], l[1 + (99 * n - 49) // 100], most
        FROM grouped ORDER BY engine NULLS LAST""",
    "tile_reach": """
        WITH largest AS (SELECT if(max(highest_tile) > 32768, 16, 15) AS exp FROM runs),
        tiles AS (SELECT (2 ** unnest(range(1, exp + 1)))::UINTEGER AS tile FROM largest),
        chosen AS (
            SELECT run_id, highest_tile, if($by_engine, engine, NULL) AS player
            FROM runs WHERE coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL)),
        each AS (
            SELECT player, tile, highest_tile >= tile AS reached, (
                SELECT min(step_index) FROM steps s WHERE s.run_id = chosen.run_id AND (1 << s.max_exp::INTEGER) >= tile
            ) AS step
            FROM chosen, tiles WHERE tile >= $min_tile)
        SELECT player, tile, count(*), countif(reached), countif(reached) / count(*), median(step) FILTER (reached)
        FROM each GROUP BY player, tile ORDER BY player NULLS LAST, tile""",
    "tile_presence": """
        WITH placed AS (
            SELECT step_index // $width::UINTEGER * $width::UINTEGER AS first,
                [tile_of(e) for e in wide_exps(board, tile_65536_mask)] AS cells
            FROM steps WHERE coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL)),
        sized AS (SELECT first, list(list_max(cells)) AS tops FROM placed GROUP BY first),
        each AS (
            SELECT first, unnest(list_distinct([t for t in cells if t > 0 OR list_max(cells) = 0])) AS tile
            FROM placed),
        counted AS (SELECT first, tile, count(*) AS n FROM each GROUP BY first, tile)
        SELECT first, tile, n, n / len(tops), len([t for t in tops if t = tile]),
            len([t for t in tops if t = tile]) / len(tops), len([t for t in tops if t >= tile]) / len(tops)
        FROM counted JOIN sized USING (first) ORDER BY first, tile""",
    "tile_first_steps": """
        WITH each AS (
            SELECT run_id, engine, step_index,
                unnest([tile_of(e) for e in wide_exps(board, tile_65536_mask)]) AS tile
            FROM steps WHERE coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL))
        SELECT DISTINCT ON (run_id, tile) run_id, engine, tile, step_index
        FROM each WHERE tile >= $min_tile AND tile > 0 ORDER BY run_id, tile, step_index""",
    "length_histogram": """
        WITH chosen AS (
            SELECT if($by_engine, engine, NULL) AS engine, (num_steps // $width::UINTEGER * $width::UINTEGER) AS least
            FROM runs WHERE coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL))
        SELECT engine, least, count(*),
            count(*) / (SELECT count(*) FROM chosen c WHERE c.engine IS NOT DISTINCT FROM chosen.engine)
        FROM chosen GROUP BY engine, least ORDER BY engine NULLS LAST, least""",
    "survivorship": """
        WITH chosen AS (
            SELECT if($by_engine, engine, NULL) AS engine, num_steps FROM runs
            WHERE num_steps <> 0 AND coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL)),
        bins AS (
            SELECT engine, unnest(range(0, max(num_steps)::BIGINT, $width::BIGINT)) AS first
            FROM chosen GROUP BY engine),
        counted AS (
            SELECT bins.engine, first, countif(num_steps > first) AS alive, count(*) AS runs,
                countif(num_steps > first AND num_steps <= first + $width::BIGINT) AS ended
            FROM bins JOIN chosen ON bins.engine IS NOT DISTINCT FROM chosen.engine GROUP BY ALL)
        SELECT engine, first, alive, alive / runs, ended FROM counted WHERE ended > 0
        ORDER BY engine NULLS LAST, first""",
    "disagreements": """
        FROM (
            SELECT s.run_id, s.step_index, model, engine, phase, board, tile_65536_mask,
                wide_text(board, tile_65536_mask), ifnull(move, teacher_move) AS played, argmax_head, argmax_prob
            FROM steps s, annotations a WHERE a.run_id = s.run_id AND a.step_index = s.step_index)
        WHERE model = coalesce($model::VARCHAR, model) AND played != argmax_head
            AND coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL)
            AND phase = coalesce($phase::VARCHAR, phase) AND coalesce(argmax_prob, 0) >= $min_prob
        ORDER BY argmax_prob DESC NULLS LAST, run_id, step_index, model LIMIT $limit""",
    "policy_agreement": """
        WITH played AS (
            SELECT s.*, a.*, ifnull(move, teacher_move) AS played,
                [policy_logp_up, policy_logp_down, policy_logp_left, policy_logp_right] AS logp
            FROM annotations a, steps s WHERE a.run_id = s.run_id AND a.step_index = s.step_index)
        SELECT model, engine, phase, valuation_type, count(*), countif(played = argmax_head) / count(*),
            avg(argmax_prob::DOUBLE), avg(logp[played + 1]::DOUBLE)
        FROM played WHERE played + argmax_head IS NOT NULL AND max_score >= $min_score
            AND model = coalesce($model::VARCHAR, model)
        GROUP BY model, engine, phase, valuation_type
        ORDER BY model, engine NULLS LAST, list_position(['early', 'mid', 'late'], phase), valuation_type""",
    "calibration": """
        WITH played AS (
            SELECT model, argmax_prob::DOUBLE AS prob, ifnull(move, teacher_move) = argmax_head AS equal,
                list_max([i for i in range($bins) if i = 0 or i <= argmax_prob::DOUBLE * $bins]) AS bin
            FROM annotations a, steps s WHERE a.run_id = s.run_id AND a.step_index = s.step_index
                AND phase = coalesce($phase::VARCHAR, phase) AND model = coalesce($model::VARCHAR, model))
        SELECT model, bin / $bins, count(*), avg(prob), avg(equal::INTEGER) FROM played
        WHERE equal IS NOT NULL AND prob IS NOT NULL GROUP BY model, bin ORDER BY model, bin""",
    "phase_mix": """
        WITH chosen AS (SELECT engine, phase_of(max_exp) AS phase FROM steps WHERE max_score >= $min_score)
        SELECT engine, phase, count(*),
            count(*) / (SELECT count(*) FROM chosen c WHERE c.engine IS NOT DISTINCT FROM chosen.engine)
        FROM chosen GROUP BY engine, phase
        ORDER BY engine NULLS LAST, list_position(['early', 'mid', 'late'], phase)""",
    "hard_moves": """
        SELECT run_id, step_index, engine, phase, board, tile_65536_mask, wide_text(board, tile_65536_mask), move,
            ev_up, ev_down, ev_left, ev_right,
            ev_gap(ev_up, ev_down, ev_left, ev_right) AS gap
        FROM steps WHERE gap >= $min_gap AND coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL)
            AND phase = coalesce($phase::VARCHAR, phase)
        ORDER BY gap, run_id, step_index LIMIT $limit""",
    "blunders": """
        SELECT run_id, step_index, engine, phase, board, tile_65536_mask, wide_text(board, tile_65536_mask), move,
            best_move(ev_up, ev_down, ev_left, ev_right), ev_up, ev_down, ev_left, ev_right,
            ev_loss(move, ev_up, ev_down, ev_left, ev_right) AS loss
        FROM steps WHERE loss >= $min_loss AND coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL)
            AND phase = coalesce($phase::VARCHAR, phase)
        ORDER BY loss DESC, run_id, step_index LIMIT $limit""",
    "critic_labels": """
        SELECT run_id, step_index, board, s.tile_65536_mask,
            r.highest_tile > 4096, r.highest_tile > 8192, r.highest_tile > 16384
        FROM steps s JOIN runs r USING (run_id)
        WHERE coalesce(s.engine = $engine::VARCHAR, $engine::VARCHAR IS NULL)
            AND phase = coalesce($phase::VARCHAR, phase)
        ORDER BY run_id, step_index""",
    "unique_positions": """
        SELECT phase, count(*), count(DISTINCT (board, tile_65536_mask)), count(DISTINCT canonical(board))
        FROM steps WHERE coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL)
            AND phase = coalesce($phase::VARCHAR, phase) AND max_score >= $min_score
        GROUP BY phase ORDER BY list_position(['early', 'mid', 'late'], phase)""",
    "opening_book": """
        WITH grouped AS (
            SELECT canonical(board) AS position, avg(max_score) AS score, count(*) AS n,
                list(canonical_move(board, move)) AS moves
            FROM steps WHERE step_index < $first_steps AND max_exp <> 16
                AND coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL)
            GROUP BY 1)
        SELECT position, board_text(position), n, len([m for m in moves if m = 0]), len([m for m in moves if m = 1]),
            len([m for m in moves if m = 2]), len([m for m in moves if m = 3]), score
        FROM grouped ORDER BY n DESC, position LIMIT $limit""",
    "engine_agreement": """
        WITH plays AS (
            SELECT coalesce('1' || engine, '2') AS player, canonical(board) AS position,
                canonical_move(board, move) AS move
            FROM steps WHERE move IS NOT NULL AND step_index < $first_steps AND max_exp <> 16),
        often AS (FROM plays QUALIFY count(*) OVER (PARTITION BY player, position) >= $min_steps),
        each AS (
            SELECT a.player AS one, b.player AS other, position, avg((a.move = b.move)::INTEGER) AS agreement
            FROM often a JOIN often b USING (position) WHERE a.player < b.player GROUP BY ALL)
        SELECT nullif(one, '2')[2:], nullif(other, '2')[2:], count(*), avg(agreement)
        FROM each GROUP BY one, other ORDER BY one, other""",
}
