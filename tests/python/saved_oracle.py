"""The expected result of each named query, as DuckDB's SQL over the same files, with the same parameter names.

These queries follow the headers but use other means: joins instead of windows, and lists instead of groups.
"""

HISTOGRAM = """
    WITH each AS (
        SELECT if($by_engine, engine, NULL) AS player, phase, VALUE::DOUBLE AS value
        FROM steps WHERE coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL)),
    binned AS (
        SELECT player, phase, if(value = 0, 0, list_max(
            [i for i in range(-9 * $bins, 9 * $bins) if i = -9 * $bins OR value >= 10 ** (i / $bins)])) AS bin,
            value = 0 AS zero
        FROM each WHERE value IS NOT NULL)
    SELECT player, phase, if(zero, 0, 10 ** (bin / $bins)) AS least, if(zero, 0, 10 ** ((bin + 1) / $bins)),
        count(*), count(*) / (
            SELECT count(*) FROM binned b WHERE b.phase = binned.phase AND b.player IS NOT DISTINCT FROM binned.player)
    FROM binned GROUP BY player, phase, bin, zero
    ORDER BY player NULLS LAST, list_position(['early', 'mid', 'late'], phase), least"""

BINS = """
    WITH chosen AS (
        SELECT if($by_engine, engine, NULL) AS engine, (COLUMN // $width::TYPE * $width::TYPE) AS least
        FROM runs WHERE coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL))
    SELECT engine, least, count(*),
        count(*) / (SELECT count(*) FROM chosen c WHERE c.engine IS NOT DISTINCT FROM chosen.engine)
    FROM chosen GROUP BY engine, least ORDER BY engine NULLS LAST, least"""

PLACES = """
    WITH matched AS (
        SELECT s.*, list_position([transform($board::UBIGINT, k) for k in range(8)], s.board) - 1 AS k
        FROM steps s WHERE ifnull(s.tile_65536_mask, 0) = $tile_65536_mask),
    places AS (
        SELECT *, list_position([transform_move(m, k) for m in range(4)], move) - 1 AS m,
            [ev_up, ev_down, ev_left, ev_right][move + 1] AS value
        FROM matched WHERE k IS NOT NULL)"""

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
    "score_histogram": BINS.replace("COLUMN", "max_score").replace("TYPE", "UBIGINT"),
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
        SELECT player, tile, count(*), countif(reached), countif(reached) / count(*) AS share,
            wilson(share, count(*), -1), wilson(share, count(*), 1), median(step) FILTER (reached)
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
    "length_histogram": BINS.replace("COLUMN", "num_steps").replace("TYPE", "UINTEGER"),
    "survivorship": """
        WITH chosen AS (
            SELECT if($by_engine, engine, NULL) AS engine, num_steps,
                coalesce(stuck(wide_exps(final_board, final_tile_65536_mask)), true) AS over
            FROM runs WHERE num_steps <> 0 AND coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL)),
        ends AS (
            SELECT c.engine, c.last, countif(o.over AND o.num_steps = c.last + 1) AS d,
                countif(o.num_steps > c.last) AS n
            FROM (SELECT DISTINCT engine, num_steps::BIGINT - 1 AS last FROM chosen) c
            JOIN chosen o ON c.engine IS NOT DISTINCT FROM o.engine GROUP BY ALL),
        bins AS (
            SELECT engine, unnest(range(0, max(num_steps)::BIGINT, $width::BIGINT)) AS first
            FROM chosen GROUP BY engine),
        counted AS (
            SELECT bins.engine, first, countif(num_steps > first) AS alive, count(*) AS runs,
                countif(num_steps > first AND num_steps <= first + $width::BIGINT) AS ended,
                countif(num_steps > first AND num_steps <= first + $width::BIGINT AND NOT over) AS stopped
            FROM bins JOIN chosen ON bins.engine IS NOT DISTINCT FROM chosen.engine GROUP BY ALL),
        estimated AS (
            SELECT bins.engine, first,
                coalesce(product(1 - d / n) FILTER (last < first), 1) AS survival,
                coalesce(sum(d / (n * (n - d))) FILTER (last < first AND n > d), 0) AS greenwood,
                coalesce(product(1 - d / n) FILTER (last >= first AND last < first + $width::BIGINT), 1) AS inside
            FROM bins JOIN ends ON bins.engine IS NOT DISTINCT FROM ends.engine GROUP BY ALL)
        SELECT c.engine, c.first, alive, alive / runs, ended, stopped, survival,
            if(survival = 1, 1, survival ** exp(1.9599639845400542 * sqrt(greenwood) / abs(ln(survival)))),
            if(survival = 1, 1, survival ** exp(-1.9599639845400542 * sqrt(greenwood) / abs(ln(survival)))),
            1 - inside
        FROM counted c JOIN estimated e ON c.engine IS NOT DISTINCT FROM e.engine AND c.first = e.first
        WHERE ended > 0 ORDER BY c.engine NULLS LAST, c.first""",
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
            run_gap(run_id, ev_up, ev_down, ev_left, ev_right) AS gap
        FROM steps WHERE gap > 0 AND gap <= $max_gap::FLOAT
            AND coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL)
            AND phase = coalesce($phase::VARCHAR, phase)
        ORDER BY gap, run_id, step_index LIMIT $limit""",
    "blunders": """
        SELECT run_id, step_index, engine, phase, board, tile_65536_mask, wide_text(board, tile_65536_mask), move,
            best_move(ev_up, ev_down, ev_left, ev_right), ev_up, ev_down, ev_left, ev_right,
            run_loss(run_id, move, ev_up, ev_down, ev_left, ev_right) AS loss
        FROM steps WHERE loss >= $min_loss::FLOAT AND coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL)
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
        SELECT phase, count(*), count(DISTINCT (board, tile_65536_mask)),
            count(DISTINCT least_exps(board, tile_65536_mask))
        FROM steps WHERE coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL)
            AND phase = coalesce($phase::VARCHAR, phase) AND max_score >= $min_score
        GROUP BY phase ORDER BY list_position(['early', 'mid', 'late'], phase)""",
    "position_moves": PLACES
    + """
        SELECT m, count(*), count(DISTINCT p.engine), avg(p.max_score), max(p.max_score),
            avg(CASE WHEN NOT ifnull(r.raw_evs, false) THEN value END)
        FROM places p JOIN runs r USING (run_id) GROUP BY m ORDER BY 2 DESC, m NULLS LAST""",
    "position_places": PLACES
    + """
        SELECT run_id, step_index, engine, max_score, num_steps, m, value, k
        FROM places ORDER BY max_score DESC, run_id, step_index LIMIT $limit""",
    "position_next": PLACES
    + """
        SELECT m, [b for b in [transform(n.board, t) for t in range(8)] if transform(b, k) = n.board][1] AS next,
            0::USMALLINT, count(*), avg(p.max_score)
        FROM places p JOIN steps n ON n.run_id = p.run_id AND n.step_index = p.step_index + 1
        WHERE m IS NOT NULL GROUP BY m, next ORDER BY 4 DESC, m, next LIMIT $limit""",
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
    "archive_summary": """
        WITH held AS (
            SELECT run_id, list(step_index) AS places, list(move IS NULL) AS unknown, list(NOT has_evs) AS blank
            FROM steps GROUP BY run_id)
        SELECT engine, format, count(*) AS n, sum(num_steps),
            countif(ifnull(game_steps > num_steps, false) OR ifnull(list_max(places) <> len(places) - 1, false)),
            countif(verified), countif(ifnull(raw_evs, false)),
            countif(ifnull(list_bool_and(unknown), false)), countif(ifnull(list_bool_and(blank), false)),
            countif(final_board IS NULL),
            countif(NOT ifnull(stuck(wide_exps(final_board, final_tile_65536_mask)), true)),
            coalesce(sum(len([u for u in unknown if u])), 0), coalesce(sum(len([b for b in blank if b])), 0),
            min(max_score), max(max_score), max(highest_tile), max(num_steps), sum(elapsed_s::DOUBLE),
            strftime(min(start_time AT TIME ZONE 'UTC'), '%Y-%m-%dT%H:%M:%SZ'),
            strftime(max(start_time AT TIME ZONE 'UTC'), '%Y-%m-%dT%H:%M:%SZ'),
            replace(strftime(min(ingested_at AT TIME ZONE 'UTC'), '%Y-%m-%dT%H:%M:%S.%gZ'), '.000Z', 'Z'),
            replace(strftime(max(ingested_at AT TIME ZONE 'UTC'), '%Y-%m-%dT%H:%M:%S.%gZ'), '.000Z', 'Z')
        FROM runs LEFT JOIN held USING (run_id) GROUP BY engine, format
        ORDER BY n DESC, engine NULLS LAST, format LIMIT $limit""",
    "score_ecdf": """
        WITH chosen AS (
            SELECT if($by_engine, engine, NULL) AS player, max_score AS score
            FROM runs WHERE coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL)),
        ranked AS (
            SELECT a.player, a.score, countif(b.score <= a.score) AS below, count(*) AS n
            FROM (SELECT DISTINCT player, score FROM chosen) a JOIN chosen b ON a.player IS NOT DISTINCT FROM b.player
            GROUP BY ALL)
        SELECT player, score, below, n, below / n AS share,
            greatest(share - sqrt(ln(2 / 0.05) / (2 * n)), 0), least(share + sqrt(ln(2 / 0.05) / (2 * n)), 1)
        FROM ranked
        QUALIFY below = n OR row_number() OVER (PARTITION BY player, (below - 1) * $points // n ORDER BY score) = 1
        ORDER BY player NULLS LAST, score""",
    "first_reach": """
        WITH tiles AS (SELECT (2 ** unnest(range(1, 17)))::UINTEGER AS tile),
        each AS (
            SELECT if($by_engine, any_value(engine), NULL) AS player, tile, run_id, min(step_index) AS step
            FROM steps JOIN tiles ON tile >= $min_tile AND list_max(wide_exps(board, tile_65536_mask)) >= log2(tile)
            WHERE coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL) GROUP BY tile, run_id)
        SELECT player, tile, count(*) AS n, min(step), list_sort(list(step))[1 + (10 * n + 40) // 100],
            list_sort(list(step))[1 + (25 * n + 25) // 100], list_sort(list(step))[1 + n // 2],
            list_sort(list(step))[1 + (75 * n - 25) // 100], list_sort(list(step))[1 + (90 * n - 40) // 100], max(step)
        FROM each GROUP BY player, tile ORDER BY player NULLS LAST, tile""",
    "first_reach_sample": """
        WITH tiles AS (SELECT (2 ** unnest(range(1, 17)))::UINTEGER AS tile),
        chosen AS (
            FROM runs WHERE highest_tile >= $min_tile AND coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL)
            ORDER BY run_id::HUGEINT * 2654435761 % 4294967296 LIMIT $max_runs)
        SELECT run_id, chosen.engine, chosen.num_steps, chosen.max_score, tile, min(step_index)
        FROM steps JOIN chosen USING (run_id)
            JOIN tiles ON tile >= $min_tile AND list_max(wide_exps(board, tile_65536_mask)) >= log2(tile)
        GROUP BY ALL ORDER BY run_id, tile""",
    "tile_survival": """
        WITH tiles AS (SELECT (2 ** unnest(range(1, 16)))::UINTEGER AS tile),
        chosen AS (
            SELECT if($by_engine, engine, NULL) AS player, highest_tile
            FROM runs WHERE coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL))
        SELECT player, tile, count(*) AS n, countif(highest_tile > tile), countif(highest_tile > tile) / n AS share,
            wilson(share, n, -1), wilson(share, n, 1)
        FROM chosen JOIN tiles ON highest_tile >= tile WHERE tile >= $min_tile
        GROUP BY player, tile ORDER BY player NULLS LAST, tile""",
    "ev_gap_histogram": HISTOGRAM.replace("VALUE", "run_gap(run_id, ev_up, ev_down, ev_left, ev_right)"),
    "ev_loss_histogram": HISTOGRAM.replace("VALUE", "run_loss(run_id, move, ev_up, ev_down, ev_left, ev_right)"),
    "blunder_rate": """
        WITH each AS (
            SELECT if($by_engine, engine, NULL) AS player, phase, run_id,
                run_loss(run_id, move, ev_up, ev_down, ev_left, ev_right) AS loss
            FROM steps WHERE coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL)),
        rated AS (
            SELECT *, avg((loss >= $min_loss::FLOAT)::INTEGER) OVER (PARTITION BY player, phase) AS p
            FROM each WHERE loss IS NOT NULL),
        residuals AS (
            SELECT player, phase, run_id, count(*) AS n, countif(loss >= $min_loss::FLOAT) AS k, any_value(p) AS p,
                sum(loss::DOUBLE) AS loss, sum((loss >= $min_loss::FLOAT)::INTEGER - p) AS residual
            FROM rated GROUP BY player, phase, run_id),
        summed AS (
            SELECT player, phase, count(*) AS m, sum(n) AS n, sum(k) AS k, any_value(p) AS p, sum(loss) AS loss,
                sum(residual ** 2) AS squares
            FROM residuals GROUP BY player, phase),
        widened AS (
            SELECT *, if(m > 1 AND p > 0 AND p < 1,
                greatest((squares * m / (m - 1) / n ** 2) / (p * (1 - p) / n), 1), NULL) AS effect
            FROM summed)
        SELECT player, phase, m, n, k, p, wilson(p, n / ifnull(effect, 1), -1), wilson(p, n / ifnull(effect, 1), 1),
            loss / n, effect
        FROM widened ORDER BY player NULLS LAST, list_position(['early', 'mid', 'late'], phase)""",
    "move_mix": """
        WITH chosen AS (
            SELECT if($by_engine, engine, NULL) AS player, phase, move, canonical_move(board, move) AS turned
            FROM steps WHERE move IS NOT NULL AND coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL)),
        ways AS (SELECT unnest(range(4)) AS way)
        SELECT player, phase, way, countif(move = way), avg((move = way)::INTEGER), countif(turned = way),
            avg((turned = way)::INTEGER)
        FROM chosen, ways GROUP BY player, phase, way
        ORDER BY player NULLS LAST, list_position(['early', 'mid', 'late'], phase), way""",
    "corner_occupancy": """
        WITH chosen AS MATERIALIZED (
            SELECT if($by_engine, engine, NULL) AS player, phase, max_exp, canonical(board) AS board,
                wide_exps(board, tile_65536_mask) AS e
            FROM steps WHERE max_exp > 0 AND coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL)),
        turned AS MATERIALIZED (
            SELECT *, list_max(e) AS top, CASE WHEN max_exp < 15 THEN exps(board) ELSE wide_canonical(e) END AS c
            FROM chosen),
        marked AS (
            SELECT player, phase, [x = top for x in e] AS here, [x = top for x in c] AS there, count(*) AS n
            FROM turned GROUP BY ALL)
        SELECT player, phase, cell, sum(n), sum(if(here[cell + 1], n, 0)), sum(if(here[cell + 1], n, 0)) / sum(n),
            sum(if(there[cell + 1], n, 0)), sum(if(there[cell + 1], n, 0)) / sum(n)
        FROM marked, (SELECT unnest(range(16)) AS cell) GROUP BY player, phase, cell
        ORDER BY player NULLS LAST, list_position(['early', 'mid', 'late'], phase), cell""",
    "first_moves": """
        WITH games AS (
            SELECT if($by_engine, any_value(engine), NULL) AS player, any_value(max_score) AS score,
                list(move ORDER BY step_index) AS moves, list(step_index ORDER BY step_index) AS places,
                list(board ORDER BY step_index)[1] AS board
            FROM steps WHERE coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL) GROUP BY run_id),
        paths AS (
            SELECT player, score, n, list_min([[['U', 'D', 'L', 'R'][transform_move(m, s) + 1] for m in moves[:n]]
                for s in range(8) if transform(board, s) = canonical(board)]) AS path
            FROM games, (SELECT unnest(range(1, least($first_steps, 5) + 1)) AS n)
            WHERE places[:n] = range(n) AND list_count(moves[:n]) = n),
        counted AS (
            SELECT player, n, array_to_string(path, '') AS path, count(*) AS runs, avg(score) AS score FROM paths
            GROUP BY player, n, path)
        SELECT player, n, path, runs,
            runs / (SELECT sum(runs) FROM counted c WHERE c.player IS NOT DISTINCT FROM counted.player
                AND c.n = counted.n AND c.path[:-2] = counted.path[:-2]), score
        FROM counted ORDER BY player NULLS LAST, n, path""",
    "spawn_check": """
        WITH queue AS (
            SELECT run_id, num_steps, run_id::HUGEINT * 2654435761 % 4294967296 AS place
            FROM runs WHERE coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL)),
        chosen AS (
            SELECT run_id FROM queue WHERE $max_steps > coalesce((
                SELECT sum(num_steps) FROM queue q WHERE q.place < queue.place), 0)),
        pairs AS MATERIALIZED (
            SELECT if($by_engine, a.engine, NULL) AS player, a.board, a.move, b.board AS next, b.max_exp,
                wide_exps(a.board, a.tile_65536_mask) AS before, wide_exps(b.board, b.tile_65536_mask) AS e
            FROM steps a JOIN steps b ON a.run_id = b.run_id AND b.step_index = a.step_index + 1
            WHERE a.run_id IN (FROM chosen)),
        spawned AS MATERIALIZED (
            SELECT player, e,
                CASE WHEN max_exp < 15 THEN spawn(board, move, next) ELSE wide_spawn(before, move, e) END AS spawned
            FROM pairs),
        counted AS (
            SELECT player, spawned.tile, len([x for x in e if x = 0]) + 1 AS empty,
                len([x for x in e[:spawned.cell] if x = 0]) AS rank
            FROM spawned WHERE spawned IS NOT NULL),
        cases AS (
            SELECT player, 'tile' AS test, NULL AS empty, value, countif(tile = value) AS n,
                count(*) * if(value = 2, 0.9::DOUBLE, 0.1::DOUBLE) AS expected
            FROM counted, (SELECT unnest([2, 4]) AS value) GROUP BY player, value
            UNION ALL
            SELECT player, 'rank', empty, value, countif(rank = value), count(*) / empty
            FROM counted, (SELECT unnest(range(15)) AS value)
            WHERE value < empty AND empty > 1 GROUP BY player, empty, value),
        tests AS (
            SELECT player, test, sum((n - expected) ** 2 / expected) AS statistic,
                if(test = 'tile', 1, sum(DISTINCT empty) - count(DISTINCT empty)) AS degrees
            FROM cases GROUP BY player, test)
        SELECT c.player, c.test, empty, value, n, expected, statistic, degrees
        FROM cases c JOIN tests t ON c.player IS NOT DISTINCT FROM t.player AND c.test = t.test
        ORDER BY c.player NULLS LAST, c.test, empty, value""",
    "repeated_positions": """
        WITH met AS (
            SELECT any_value(phase) AS phase, count(*) AS times, least_exps(board, tile_65536_mask) AS exps FROM steps
            WHERE coalesce(engine = $engine::VARCHAR, $engine::VARCHAR IS NULL) GROUP BY exps),
        sampled AS (
            SELECT phase, times, list_max([i for i in range(40) if times >= 2 ** i]) AS bin,
                pack([least(x, 15) for x in exps]) AS position FROM met
            WHERE (xor(position, position >> 32)::UHUGEINT * 11400714819323198485 % 18446744073709551616
                // 4294967296) % $one_in = 0)
        SELECT phase, 2 ** bin AS least, 2 ** (bin + 1) - 1, count(*), sum(times),
            sum(times) / (SELECT sum(times) FROM sampled s WHERE s.phase = sampled.phase)
        FROM sampled GROUP BY phase, bin ORDER BY list_position(['early', 'mid', 'late'], phase), least""",
}
