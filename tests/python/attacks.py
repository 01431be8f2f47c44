"""Statements that try to do more than read two tables, or need more resources than a process has."""

from __future__ import annotations

from itertools import pairwise

# Statements that are rejected before anything runs, grouped by what they try. Each has a word that the message must
# contain. {path} is a file of the archive, {folder} the archive, {host} a file beside it.

SEVERAL = [
    ("SELECT 1; SELECT 2", "2 statements"),
    ("SELECT 1; DROP TABLE steps", "2 statements"),
    ("SELECT 1;;;SELECT 2", "2 statements"),
    ("SELECT 1 -- one\n; SELECT 2", "2 statements"),
    ("SELECT 1 /* ; */; /* ; */ SELECT 2;", "2 statements"),
    ("SELECT ';'; SELECT $$;$$", "2 statements"),
    ("EXPLAIN SELECT 1; EXPLAIN SELECT 2", "2 statements"),
    ("/* SELECT 1 */", "no statement"),
    ("-- SELECT 1", "no statement"),
    (";;;", "no statement"),
    ("", "no statement"),
]


def named(words: int, *statements: str) -> list[tuple[str, str]]:
    """Return the statements, whose messages must contain their first words."""
    return [(sql, " ".join(sql.split()[:words])) for sql in statements]


CHANGES = [
    *named(2,
        "CREATE TABLE mine AS SELECT * FROM steps", "CREATE OR REPLACE TABLE steps AS SELECT 1",
        "CREATE VIEW mine AS SELECT * FROM steps", "CREATE EXTERNAL TABLE mine STORED AS CSV LOCATION '/etc/passwd'",
        "CREATE SCHEMA mine", "CREATE DATABASE mine", "CREATE FUNCTION f() RETURNS INT RETURN 1",
        "CREATE INDEX i ON steps (board)", "DROP TABLE steps", "DROP VIEW IF EXISTS steps", "DROP FUNCTION abs",
        "ALTER TABLE steps ADD COLUMN x INT", "INSERT INTO steps SELECT * FROM steps", "INSERT INTO runs VALUES (1)",
        "UPDATE steps SET move = 1", "DELETE FROM steps",
        "MERGE INTO runs USING steps ON true WHEN MATCHED THEN DELETE",
    ),
    *named(1,
        "TRUNCATE TABLE steps", "COPY steps TO '{host}' STORED AS CSV", "COPY (SELECT 1) TO '{host}'",
        "EXPLAIN COPY steps TO '{host}'", "EXPLAIN DELETE FROM steps",
        "EXPLAIN ANALYZE CREATE TABLE mine AS SELECT 1", "EXPLAIN ANALYZE INSERT INTO steps SELECT * FROM steps",
    ),
    ("WITH gone AS (DELETE FROM steps RETURNING *) SELECT * FROM gone", "DELETE FROM"),
    ("WITH x AS (SELECT 1) INSERT INTO runs SELECT * FROM x", "INSERT INTO"),
    ("COPY steps FROM '/etc/passwd'", "FROM"),
    ("SELECT * INTO mine FROM steps", "INTO mine"),
    ("SELECT * INTO TEMPORARY mine FROM runs", "mine"),
    ("SELECT * FROM (SELECT * INTO mine FROM runs) r", "INTO mine"),
    ("SELECT * FROM runs FOR UPDATE", "FOR UPDATE"),
    ("SELECT * FROM runs FOR SHARE NOWAIT", "FOR UPDATE"),
    ("SELECT * FROM (SELECT * FROM runs FOR UPDATE) r", "FOR UPDATE"),
]  # fmt: skip
COMMANDS = [
    *named(2,
        "SHOW TABLES", "SHOW COLUMNS FROM steps", "SHOW CREATE TABLE steps", "SHOW FUNCTIONS",
    ),
    *named(1,
        "SET datafusion.execution.batch_size = 1", "SET datafusion.catalog.information_schema = true",
        "RESET datafusion.execution.batch_size", "SHOW ALL", "SHOW datafusion.execution.batch_size", "DESCRIBE steps",
        "PREPARE p AS SELECT 1", "EXECUTE p(1)", "DEALLOCATE p", "CALL system('id')", "USE a2store", "BEGIN",
        "COMMIT", "GRANT ALL ON steps TO public", "ANALYZE TABLE steps COMPUTE STATISTICS", "VACUUM", "LOAD 'lib.so'",
        "INSTALL httpfs", "ATTACH DATABASE '{host}' AS other", "PRAGMA database_list", "KILL 1", "DO $$ BEGIN END $$",
    ),
    ("SELECT 1 SETTINGS max_threads = 1", "max_threads"),
    ("SELECT 1 FORMAT JSON", "JSON"),
]  # fmt: skip
FILES = [
    (f"SELECT * FROM {name}", "the table")
    for name in (
        "'{path}'", '"{path}"', "`{path}`", "'{relative}'", '"{relative}"', "`{relative}`", "'file://{path}'",
        '"file://{path}"', "'{folder}'", "'{folder}/steps/'", "'{folder}/steps/*.parquet'", "'../games.a2/{relative}'",
        "'{host}'", '"{host}"', "'/etc/passwd'", '"/etc/passwd"', "'/proc/self/environ'", "'s3://bucket/key.parquet'",
        '"s3://bucket/key.parquet"', "'http://127.0.0.1:1/x.csv'", "'https://127.0.0.1:1/x.parquet'",
        "'a2store://archive/{relative}'", '"a2store://archive"', "'a2store://table-0/own.parquet'", '"own.parquet"',
        "'gs://b/k'", "'az://b/k'", "'data:text/csv,a'", "'~/.ssh/id_rsa'", "'\\\\host\\share'", '"steps "', '"STEPS"',
    )
] + [
    (f"SELECT * FROM {name}", "expected: identifier")
    for name in ("E'\\x2fetc\\x2fpasswd'", "U&'\\002Fetc'", "x'2f'", "$$a$$")
]  # fmt: skip
TABLE_FUNCTIONS = [
    ("SELECT * FROM read_csv('/etc/passwd')", "read_csv"),
    ("SELECT * FROM read_parquet('{path}')", "read_parquet"),
    ("SELECT * FROM parquet_metadata('{path}')", "parquet_metadata"),
    ("SELECT * FROM generate_series(1, 1000000000000)", "generate_series"),
    ("SELECT * FROM range(1, 1000000000000)", "range"),
    ("SELECT * FROM TABLE(generate_series(1, 9))", "TABLE"),
    ("SELECT * FROM runs, LATERAL generate_series(1, 9)", "generate_series"),
    ("SELECT * FROM steps('x')", "steps"),
    ("SELECT * FROM runs WHERE run_id IN (SELECT * FROM range(3))", "range"),
    ("SELECT * FROM JSON_TABLE('[]', '$' COLUMNS (a INT PATH '$'))", "JSON_TABLE"),
    ("SELECT * FROM runs TABLESAMPLE BERNOULLI (10)", "TABLESAMPLE"),
    ("SELECT * FROM runs FOR SYSTEM_TIME AS OF '2020-01-01'", "SYSTEM_TIME"),
    ("SELECT * FROM runs PIVOT (max(num_steps) FOR engine IN ('a'))", "PIVOT"),
    ("SELECT * FROM runs UNPIVOT (a FOR b IN (num_steps))", "UNPIVOT"),
]
CATALOGS = [
    (f"SELECT * FROM {name}", name.split(".")[-1].strip('"'))
    for name in (
        "information_schema.tables", "information_schema.df_settings", "information_schema.routines",
        "INFORMATION_SCHEMA.COLUMNS", '"information_schema"."tables"', "a2store.information_schema.tables",
        "pg_catalog.pg_tables", "pg_tables", "sqlite_master", "datafusion.public.steps", "a2store.v.steps", "v.steps",
        "metadata_cache", "duckdb_settings",
    )
]  # fmt: skip
HOST = [
    ("SELECT @@version", "@@version"),
    ("SELECT @@datafusion.execution.batch_size", "@@datafusion"),
    ("SELECT @user_variable", "@user_variable"),
    ("SELECT * FROM runs WHERE run_id = @@global.x", "@@global"),
    *[
        (f"SELECT {call}", call.partition("(")[0].strip('"'))
        for call in (
            "version()", "VERSION()", '"version"()', "input_file_name()", "file_row_index()", "arrow_metadata(1)",
            "current_database()", "current_schema()", "current_setting('a')", "getenv('HOME')",
            "pg_read_file('/etc/passwd')", "read_text('/etc/passwd')", "read_blob('x')", "glob('*')",
            "pg_sleep(100)", "sleep(100)", "benchmark(1, 1)", "inet_server_addr()", "load_extension('x')", "md5('x')",
            "sha512('x')", "digest('x', 'md5')", "current_timezone()",
            "arrow_cast(1, 'FixedSizeList(9, Int8)')",
            "arrow_try_cast(1, 'FixedSizeList(9, Int8)')",
        )
    ],
    ("SELECT * FROM runs ORDER BY input_file_name()", "input_file_name"),
    ("SELECT * FROM runs WHERE (SELECT version()) = ''", "version"),
    ("SELECT count(*) FILTER (WHERE version() = '') FROM runs", "version"),
    ("SELECT sum(num_steps) OVER (ORDER BY version()) FROM runs", "version"),
    ("VALUES (version())", "version"),
    ("SELECT arrow_cast(NULL, 'Union(Sparse)') FROM steps", "arrow_cast"),
]  # fmt: skip
ENLARGING = [
    (f"SELECT {call}", call.partition("(")[0].strip('"'))
    for call in (
        "repeat('a', 1000000000)", "array_repeat(1, 1000000000)", "list_repeat(1, 9)", "array_resize([1], 1000000000)",
        "list_resize([1], 1)", "range(1, 1000000000)", "generate_series(1, 1000000000)", "REPEAT('a', 1)",
        '"repeat"(\'a\', 1)', "space(1000000000)",
    )
]  # fmt: skip


NEWLINES = [
    ('SELECT * FROM "a\nb"', "the table"),
    ('SELECT * FROM a."b\nc"', "the table"),
    ('SELECT * FROM "a\nb"(1)', "table function"),
    ('SELECT @"a\nb"', ""),
    ('SELECT "a\nb"(1)', ""),
    ('SELECT "a\nb" FROM runs', ""),
    ("SELECT $\n$ \n $\n$", ""),
    ("SELECT\n\n(\n", ""),
    ("SELECT *\nFROM\nnowhere", "nowhere"),
    ('SELECT * FROM "a\x1b[31mb"', "the table"),
    (f"SELECT * FROM {'x' * 60_000}", "the table"),
    ('SELECT * INTO "a\nb" FROM runs', "INTO"),
    ('EXECUTE "a\nb"', "EXECUTE"),
]


REAL = "CAST(board AS DOUBLE)"


def doubled(levels: int, expression: str, last: str = "x", first: str = "board") -> str:
    """Return ``levels`` common table expressions; each computes ``expression`` over the previous one."""
    made = "".join(f", c{i + 1} AS (SELECT {expression} AS x FROM c{i})" for i in range(levels))
    return f"WITH c0 AS (SELECT {first} AS x FROM steps){made} SELECT {last} FROM c{levels}"


def through(inner: str, levels: int = 17) -> str:
    """Do the same with a query around each common table expression, and with a filter at the top."""
    made = "".join(f", c{i + 1} AS (SELECT x + x AS x FROM ({inner.format(f'c{i}')}) t)" for i in range(levels))
    return f"WITH c0 AS (SELECT CAST(board AS DOUBLE) AS x FROM steps){made} SELECT x FROM c{levels} WHERE x > 1"


def deep(around: str, levels: int, core: str = "1") -> str:
    before, after = around.split("_")
    return f"SELECT {before * levels}{core}{after * levels}"


def joined(levels: int, select: str, first: str) -> str:
    """Return common table expressions; each uses the previous one twice."""
    made = "".join(f", c{new} AS ({select.format(old=f'c{old}')})" for old, new in pairwise(range(levels + 1)))
    return f"WITH c0 AS ({first}){made} SELECT count(*) FROM c{levels}"


SHAPES = [
    ("WITH RECURSIVE r AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM r) SELECT * FROM r", "RECURSIVE"),
    ("SELECT * FROM (WITH RECURSIVE r AS (SELECT 1 AS x UNION ALL SELECT x FROM r) SELECT * FROM r) s", "RECURSIVE"),
    (joined(30, "SELECT a.board FROM {old} a, {old} b", "SELECT board FROM steps"), "tables"),
    (joined(30, "SELECT * FROM {old} UNION ALL SELECT * FROM {old}", "SELECT board FROM steps"), "tables"),
    (joined(60, "SELECT * FROM {old} a JOIN {old} b USING (run_id)", "SELECT run_id FROM runs"), "tables"),
    (" UNION ALL ".join(["SELECT run_id FROM runs"] * 300), "SELECTs"),
    (" UNION ALL ".join(["SELECT 1"] * 5000), "bytes"),
    (f"SELECT '{'x' * 65_600}'", "65536"),
    (deep("(_)", 10_000), "recursion limit"),
    (deep("(SELECT _)", 3000), "recursion limit"),
    (f"SELECT 1 FROM {'(SELECT 1 FROM ' * 3000}runs{')' * 3000}", "recursion limit"),
    (deep("abs(_)", 5000), "recursion limit"),
    (deep("- _", 20_000), "recursion limit"),
    (deep("CASE WHEN true THEN _ END", 1500), ""),
    (deep("[_]", 10_000), "recursion limit"),
    ("SELECT x" + ".a" * 30_000 + " FROM runs", "recursion limit"),
    ("SELECT 1" + " IS NULL" * 8000, "nested"),
    ("SELECT 'a'" + " LIKE 'a'" * 7000, "nested"),
    ("SELECT 1" + " BETWEEN 1 AND 2" * 4000, "nested"),
    ("SELECT " + "+".join(["1"] * 600), "nested"),
    ("SELECT " + "||".join(["'a'"] * 600), "nested"),
    ("SELECT 1 FROM runs WHERE " + " AND ".join(["run_id > 1"] * 2000), "nested"),
    ("SELECT " + "/*" * 20_000 + "1" + "*/" * 10_000, "comment"),
    ("SELECT count(*) FROM steps GROUP BY " + ", ".join(["CUBE(board, move, run_id, step_index)"] * 8), "4096"),
    ("SELECT CAST(1 AS DECIMAL(999, 0))", "76"),
    ("SELECT CAST('a' AS BINARY(1000000000))", "BINARY"),
    ("SELECT '", "Unterminated"),
    ("SELECT $tag$ $other$", "Unterminated"),
    ('SELECT "', "EOF"),
    ("SELECT 1 \0", ""),
    ("\0", ""),
    ("SELECT * FROM st\0eps", ""),
    ("SELECT \u202e1 FROM ｓｔｅｐｓ", ""),
    ("ＳＥＬＥＣＴ 1", ""),
    ("SELECT 1\u2028FROM\u00a0nowhere", ""),
    ("\ufeffSELECT 1", ""),
    ("SELECT * FROM stеps", "table"),  # One letter of this name is Cyrillic.
    ("SELECT * FROM labels", "labels"),
    ("SELECT * FROM runs JOIN abs ON true", "abs"),
    ('SELECT * FROM "steps""; DROP TABLE runs; --"', "DROP TABLE"),
    ("SELECT * FROM runs WHERE run_id = $1; DROP TABLE runs", "2 statements"),
]

REFUSED = {
    "several": SEVERAL, "changes": CHANGES, "commands": COMMANDS, "files": FILES, "table-functions": TABLE_FUNCTIONS,
    "catalogs": CATALOGS, "host": HOST, "enlarging": ENLARGING, "newlines": NEWLINES, "shapes": SHAPES,
}  # fmt: skip

# Statements that run, and are stopped or finish within their limits; each has a name.

TEXT = "'abcdefgh' || CAST(board AS VARCHAR)"
SQUARE = "steps a, steps b"
ENDLESS = "steps a, steps b, steps c, steps d, steps e, steps f"
"""More rows than any machine can read, so that only a limit ends a query over them."""
LENGTH = "octet_length(x)"
WIDE = "[" + ", ".join(["1"] * 500) + "]"

BOUNDED = {
    "a regex for each row": (
        r"SELECT 1 FROM steps WHERE regexp_like(CAST(board AS VARCHAR), '\w{200}' || CAST(board AS VARCHAR))"
    ),
    "an operator with a regex for each row": (
        r"SELECT 1 FROM steps WHERE CAST(board AS VARCHAR) ~ ('\w{200}' || CAST(board AS VARCHAR))"
    ),
    "SIMILAR TO a regex for each row": (
        r"SELECT 1 FROM steps WHERE CAST(board AS VARCHAR) SIMILAR TO ('\w{200}' || CAST(board AS VARCHAR))"
    ),
    "||": doubled(18, "x || x", LENGTH, TEXT),
    "|| of constants": doubled(18, "x || x", LENGTH, f"'{'a' * 30}'"),
    "concat": doubled(18, "concat(x, x)", LENGTH, TEXT),
    "concat_ws": doubled(18, "concat_ws(x, x, x)", LENGTH, TEXT),
    "replace": doubled(18, "replace(x, 'a', x)", LENGTH, TEXT),
    "regexp_replace": doubled(18, "regexp_replace(x, '.', x, 'g')", LENGTH, TEXT),
    "regexp_replace of groups": doubled(18, r"regexp_replace(x, '(.*)', '\1\1\1\1')", LENGTH, TEXT),
    "regexp_replace of names": f"SELECT octet_length(regexp_replace(board, '(.*)', '{'${1}' * 10_000}')) FROM steps",
    "rpad": doubled(18, "rpad(x, CAST(2 * octet_length(x) AS BIGINT), x)", LENGTH, TEXT),
    "lpad": "SELECT lpad('a', 2147483647, 'b') FROM steps",
    "lpad of constants": "SELECT lpad('a', 20000000, 'b')",
    "overlay": doubled(18, "overlay(x PLACING x FROM octet_length(x) + 1 FOR 0)", LENGTH, TEXT),
    "to_char": doubled(18, "to_char(now(), x || x)", LENGTH, TEXT),
    "to_char of a long format": f"SELECT to_char(to_timestamp(step_index), '{'%A%B' * 10_000}') FROM steps",
    "array_concat": doubled(18, "array_concat(x, x)", "array_length(x)", "[board]"),
    "array_append": doubled(18, "array_append(make_array(x), x)", "array_length(x)"),
    "make_array": doubled(18, "make_array(x, x)", "cardinality(x)"),
    "flatten": doubled(18, "flatten(make_array(x, x))", "array_length(x)", "[board]"),
    "reverse": doubled(18, "reverse(x) || x", LENGTH, TEXT),
    "lpad in a filter": "SELECT 1 FROM steps WHERE lpad(CAST(board AS VARCHAR), 5000, 'a') LIKE '%b'",
}
LIMITED = {
    "cross join and ORDER BY": f"SELECT a.board, b.board FROM {ENDLESS} ORDER BY a.board + b.step_index + c.board",
    "cross join and GROUP BY": f"SELECT a.board, b.board, c.board, count(*) FROM {ENDLESS} GROUP BY 1, 2, 3",
    "cross join": f"SELECT a.board, b.board FROM {ENDLESS}",
    "cross join and DISTINCT": f"SELECT DISTINCT a.board + b.board * c.step_index FROM {ENDLESS}",
    "cross join and LIMIT": f"SELECT a.board FROM {ENDLESS} ORDER BY a.board + b.board + c.board LIMIT 100000000",
    "cross join and OFFSET": f"SELECT a.board FROM {ENDLESS} LIMIT 1 OFFSET 9000000000000000000",
    "hash join": "SELECT count(*) FROM steps a " + " ".join(f"JOIN steps {x} ON a.move = {x}.move" for x in "bcdefg"),
    "array_agg": f"SELECT array_agg(a.board) FROM {ENDLESS}",
    "array_agg of DISTINCT": f"SELECT array_agg(DISTINCT a.board + b.board) FROM {ENDLESS}",
    "string_agg": f"SELECT string_agg(CAST(a.board AS VARCHAR), '{'x' * 40}') FROM {ENDLESS}",
    "count of DISTINCT": f"SELECT count(DISTINCT a.board * b.board) FROM {ENDLESS}",
    "count of DISTINCT texts": f"SELECT count(DISTINCT CAST(a.board AS VARCHAR) || b.board) FROM {ENDLESS}",
    "count of DISTINCT lists": f"SELECT count(DISTINCT [a.board, b.board]) FROM {ENDLESS}",
    "median": f"SELECT median(a.board + b.board) FROM {ENDLESS}",
    "percentile": f"SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a.board + b.board) FROM {ENDLESS}",
    "a window over all": f"SELECT row_number() OVER (PARTITION BY a.move ORDER BY b.board) FROM {ENDLESS}",
    "a median in each window": f"SELECT median(a.board) OVER (ROWS 10000 PRECEDING) FROM {ENDLESS}",
    "many counts": f"SELECT {', '.join(f'count(DISTINCT a.board + {i}) AS c{i}' for i in range(60))} FROM {ENDLESS}",
    "unnest": f"SELECT unnest({WIDE}) FROM {ENDLESS}",
    "unnest of unnested": "WITH u AS (SELECT unnest([1, 2, 3, 4, 5, 6, 7, 8]) AS v) SELECT a.v FROM "
    + ", ".join(f"u AS {name}" for name in "abcdefghijklmnopqrstuvwx"),
}
HARMLESS = {
    "a huge LIMIT": "SELECT * FROM steps LIMIT 9223372036854775807 OFFSET 9223372036854775807",
    "a huge sorted LIMIT": "SELECT * FROM steps ORDER BY board LIMIT 9223372036854775807 OFFSET 9223372036854775800",
    "a huge top": "SELECT * FROM steps ORDER BY board LIMIT 4000000000",
    "a huge IN": f"SELECT 1 FROM steps WHERE board IN ({', '.join(map(str, range(9000)))})",
    "a wide CASE": f"SELECT CASE {' '.join(f'WHEN board = {i} THEN {i}' for i in range(1500))} END FROM steps",
    "many rows": f"VALUES {', '.join(['(1)'] * 10_000)}",
    "nested comments": "SELECT " + "/*" * 15_000 + "*/" * 15_000 + "1",
    "dollar quotes": "SELECT $$'; DROP TABLE steps; --$$, $a$ $$ $a$",
    "a quoted alias": 'SELECT 1 AS "x""; DROP TABLE steps"',
    "huge types of texts": "SELECT CAST('a' AS CHAR(2147483647)) AS a, CAST('a' AS VARCHAR(2147483647)) AS b",
    "huge frames": "SELECT sum(step_index) OVER (ORDER BY board ROWS BETWEEN 18446744073709551615 PRECEDING "
    "AND 18446744073709551615 FOLLOWING) FROM steps",
    "edges of integers": "SELECT lag(board, 9223372036854775807) OVER (ORDER BY board), left('abc', "
    "-9223372036854775808), round(1.5, 2147483647), 1 << 64, split_part('a,b', ',', -9223372036854775808) FROM steps",
    "random": f"SELECT count(*) FROM {SQUARE} WHERE random() < 0 OR random() > 2",
    "translate": doubled(18, "translate(x, 'a', x)", LENGTH, TEXT),
    "array_union": doubled(18, "array_concat(x, array_union(x, x))", "array_length(x)", "[board]"),
    "sums": doubled(18, "x + x", first=REAL),
    "a division in a filter": "SELECT 1 FROM steps WHERE 100 / (step_index - step_index) > 1",
    "division by zero": "SELECT 1 / (run_id - run_id) FROM runs",
    "random texts": "SELECT count(DISTINCT uuid()) FROM steps",
}
FAILING = {
    "a factorial in a filter": "SELECT 1 FROM steps WHERE factorial(step_index + 21) > 1",
    "the least integer": "SELECT -9223372036854775808 / -1",
    "its absolute value": "SELECT abs(-9223372036854775808)",
    "a surrogate": "SELECT chr(55296)",
    "an index": "SELECT array_slice([1, 2, 3], -9223372036854775808, 9223372036854775807)",
    "a date": "SELECT now() + INTERVAL '2147483647 months'",
    "a factorial": "SELECT factorial(21)",
    "a negative frame": "SELECT ntile(-1) OVER () FROM steps",
    "a regex that is too large": "SELECT regexp_like('a', '((((a{100}){100}){100}){100})')",
    "a regex in a filter": r"SELECT 1 FROM steps WHERE CAST(board AS VARCHAR) ~ '(\w{50}){50}'",
    "a regex that is too deep": f"SELECT regexp_like('a', '{'(' * 20_000}a{')' * 20_000}')",
}  # fmt: skip

BIG = "lpad('a', 16000000, 'b')"


def chain(operator: str, count: int, operand: str = "1") -> str:
    return operator.join([operand] * count)


DANGEROUS = {
    # Too expensive to plan.
    "a chain of sums": f"SELECT {chain('+', 10_000)}",
    "a chain of casts": f"SELECT 1{'::INT' * 12_000}",
    "a chain of UNION": chain(" UNION ", 2000, "SELECT 1"),
    "a chain of EXCEPT": chain(" EXCEPT ", 2000, "SELECT 1"),
    "many tables": f"SELECT count(*) FROM {', '.join(f'runs AS r{i}' for i in range(250))}",
    "CUBE": f"SELECT count(*) FROM steps GROUP BY CUBE ({', '.join(f'board + {i}' for i in range(25))})",
    "constants": "SELECT strpos(lpad('', 15000000, 'a'), lpad('b', 7000000, 'a'))",
    "approx_percentile_cont": "SELECT approx_percentile_cont(0.5, 1000000) WITHIN GROUP (ORDER BY a.board + b.board) "
    f"FROM {SQUARE}",
    "a wide CUBE": f"SELECT count(*) FROM steps GROUP BY CUBE ({', '.join(f'board + {i}' for i in range(12))})",
    "a doubled filter": doubled(17, "x + x", first=REAL) + " WHERE x > 1",
    "a doubled filter of a group": f"SELECT x FROM ({doubled(17, 'x + x', first=REAL)}) t GROUP BY x HAVING x > 1",
    "a doubled filter of a join": "SELECT 1 FROM runs r JOIN ("
    + doubled(17, "x + x", first=REAL)
    + ") t ON r.max_score < t.x",
    "a doubled filter of a union": "SELECT x FROM (SELECT CAST(1 AS DOUBLE) AS x UNION ALL ("
    + doubled(17, "x + x", first=REAL)
    + ")) t WHERE x > 1",
    "a doubled CASE": doubled(17, "CASE WHEN x > 1 THEN x ELSE x * 2 END", first=REAL) + " WHERE x > 1",
    "a doubled filter of a window": through("SELECT x, row_number() OVER (PARTITION BY x) AS r FROM {}"),
    "a doubled filter of unnested lists": through("SELECT x, unnest([1]) AS u FROM {}"),
    "a doubled filter of a subquery": "SELECT count(*) FROM (" + doubled(17, "x + x", first=REAL) + ") o "
    "WHERE EXISTS (SELECT 1 FROM runs r WHERE r.max_score = o.x)",
    # Too large for memory.
    "a window of lists": "SELECT array_agg(board) OVER () FROM steps",
    "a list of a fixed size": "SELECT CAST(NULL AS INT[2147483647])",
    "lists of a fixed size": "SELECT CAST(NULL AS INT[100000000]) FROM steps",
    "a list that is a constant": f"SELECT string_to_array({BIG}, 'b') FROM steps",
    "a text that is a constant": f"SELECT {BIG} FROM steps",
    "too many centroids": "SELECT approx_percentile_cont(board, 0.5, 1000000000) FROM steps",
    # Deep or odd enough to crash the engine.
    "a union without fields": "SELECT arrow_cast(NULL, 'Union(Sparse)') FROM steps",
    "a type of many lists": f"SELECT CAST(NULL AS INT{'[]' * 30_000})",
    "a type of many arrays": f"SELECT CAST(NULL AS {'ARRAY<' * 8000}INT{'>' * 8000})",
    "a type of many structs": f"SELECT CAST(NULL AS {'STRUCT<a ' * 5000}INT{'>' * 5000})",
    "a doubled type": doubled(18, "struct(x, x)", "arrow_typeof(x)"),
}
"""Statements that would exhaust or crash the engine without the guard."""

SLOW_END = "its work goes on for seconds after the limit"
UNCOUNTED = "its batches hold far more memory than the limit, which does not count them"
LATE: dict[str, tuple[str, str]] = {
    "a nested loop": (
        "SELECT 1 FROM (SELECT board FROM steps WHERE run_id < 3) a, steps b WHERE a.board + b.step_index = 3",
        SLOW_END,
    ),
    "a wide value beside each row": (
        "SELECT a.x, b.board FROM (SELECT array_agg(board) AS x FROM steps) a, steps b",
        UNCOUNTED,
    ),
    "a wide value of a subquery": ("SELECT (SELECT array_agg(board) FROM steps), board FROM steps", UNCOUNTED),
    "a wide literal": (
        f"SELECT x AS a, x AS b, x AS c, x AS d FROM (SELECT '{'x' * 60_000}' AS x FROM steps) s",
        UNCOUNTED,
    ),
}
"""Statements that do no harm over a few runs. Over many, they have the named effect: docs/sql.md warns of them."""
