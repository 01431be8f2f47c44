"""The answers of ``a2store view``, compared with DuckDB over the archive's files, NumPy, and other readers."""

from __future__ import annotations

import io
import random
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.json
import pyarrow.parquet as pq
import pytest

import a2store
import duck
import formats
import games as played_games
import oracle
import report_page
from annotations import predictions, write_annotations
from archives import ingested, run_command, short_runs
from conftest import PHASES, RUNS_PER_ENGINE
from faults.checks import LONG
from oracle import Array, Game
from test_large_tiles import GAMES, slide, write_log
from threads import HANGS, eventually
from viewing import UNAUTHORIZED, Client, Connection, Events, Server, short

SESSION_ID = 1000
"""The first id of ``formats.write_session``."""
LARGE = 3 * RUNS_PER_ENGINE
"""The first run with a tile of 65,536."""
POOL = LARGE + len(GAMES)
"""The first run of the session."""
ANNOTATED = [2, RUNS_PER_ENGINE + 3]
COLUMNS = [
    "run_id",
    "engine",
    "max_score",
    "highest_tile",
    "num_steps",
    "format",
    "start_time",
    "elapsed_s",
    "session",
    "raw_evs",
]
MAX_SAFE = 2**53
MOVES = ("up", "down", "left", "right")


@pytest.fixture(scope="module")
def archive(run_folders: list[Path], games: list[Game], tmp_path_factory: pytest.TempPathFactory) -> a2store.Archive:
    """Runs of four formats, some with tiles of 65,536, and predictions of two models."""
    root = tmp_path_factory.mktemp("view_server")
    made = a2store.Archive.create(root / "games.a2", phases=PHASES)
    for folder in run_folders:
        made.ingest(folder, progress=False)
    for number, game in enumerate(GAMES):
        write_log(root / "logs", number, game)
    made.ingest(root / "logs", progress=False)
    pool = {SESSION_ID + at: played_games.play(random.Random(at), steps) for at, steps in enumerate((30, 12))}
    formats.write_session(root / "pool", list(pool.values()), action=True)
    made.ingest(root / "pool", progress=False)

    made.annotate("plain", predictions({run: games[run] for run in ANNOTATED}), progress=False)
    write_annotations(root / "bins", predictions(pool, seed=1), bins=3)
    shutil.copy(root / "pool" / "metadata.db", root / "bins")
    made.annotate("with bins", root / "bins", progress=False)
    assert made.num_runs == POOL + 2
    return made


@pytest.fixture(scope="module")
def connection(archive: a2store.Archive) -> duckdb.DuckDBPyConnection:
    return duck.connect(archive)


def same_time(found: str | None, expected: datetime | None) -> bool:
    return (found and datetime.fromisoformat(found)) == expected


# The archive


def test_the_archive(client: Client, archive: a2store.Archive, connection: duckdb.DuckDBPyConnection) -> None:
    about = client.ask("/api/archive")
    engines = {name for (name,) in duck.fetch(connection, "SELECT DISTINCT engine FROM runs")}
    assert about["engines"] == [*sorted(engines - {None}), None]
    assert about["models"] == ["plain", "with bins"]
    for name in ("version", "num_runs", "num_steps"):
        assert about[name] == getattr(archive, name)
    assert (about["name"], about["path"]) == (Path(archive.path).name, str(archive.path))
    assert about["phases"] == PHASES
    assert about["policy"] is None
    assert about["program"] == f"a2store {a2store.__version__}"
    assert (about["max_rows"], about["min_loss"], about["max_gap"]) == (10_000, 0.1, 0.001)
    assert list(about["palettes"]) == ["classic", "safe"]
    for palette in about["palettes"].values():
        assert len(palette) == 17
        assert all(len(color) == 7 and color[0] == "#" for pair in palette for color in pair)


def test_the_files_of_the_page(client: Client) -> None:
    kinds = {"/": "text/html", "/app.js": "text/javascript", "/app.css": "text/css"}
    for target, kind in kinds.items():
        answer = client.get(target)
        assert (answer.status, (answer.header("content-type") or "").partition(";")[0]) == (200, kind)
        head = client.send("HEAD", target)
        assert (head.status, head.header("content-length")) == (200, answer.header("content-length"))
    page = client.get("/").body.decode()
    assert "<style" not in page
    assert " style=" not in page
    assert all("src=" in tag.partition(">")[0] for tag in page.split("<script")[1:])


# The list of runs

CONDITIONS = [
    "max_score % 3 = 0",
    "engine LIKE 'a%' OR engine IS NULL",
    "max_score > (SELECT avg(max_score) FROM runs)",
    "run_id IN (SELECT run_id FROM steps WHERE max_exp >= 9) -- a comment",
    "start_time IS NOT NULL AND elapsed_s > 1",
    "engine = 'γάμμα'",
    "highest_tile = 2 * 128 AND NOT num_steps < 100",
    "NULL",
    "false",
]


BOUNDS = {"score": "max_score", "steps": "num_steps", "tile": "highest_tile"}


def random_list(rng: random.Random, runs: list[dict[str, Any]]) -> tuple[dict[str, Any], str, str]:
    """Return a request for a list, and its condition and order in DuckDB's SQL."""
    terms, filters = [], {}
    for name, column in BOUNDS.items():
        for side, sign in (("min", ">="), ("max", "<=")):
            if rng.random() < 0.25:
                value = rng.choice(runs)[column] + rng.choice([-1, 0, 1])
                filters[f"{side}_{name}"] = value
                terms.append(f"{column} {sign} {value}")
    if rng.random() < 0.4:
        chosen = rng.sample(["alpha", "beta", "γάμμα", None, "nobody"], rng.randrange(4))
        filters["engines"] = chosen
        known = ", ".join(f"'{name}'" for name in chosen if name) or "''"
        terms.append(f"(engine IN ({known}) IS TRUE{' OR engine IS NULL' if None in chosen else ''})")
    if rng.random() < 0.05:
        filters["run_id"] = rng.randrange(POOL + 3)
        terms.append(f"run_id = {filters['run_id']}")
    condition = rng.choice(["", "", " \n", *CONDITIONS])
    if condition.strip():
        terms.append(f"({condition}\n)")
    request = {
        "filter": filters,
        "where": condition,
        "offset": rng.choice([0, 0, 3, 50]),
        "limit": rng.choice([7, 500]),
    }
    sort = rng.choice([*COLUMNS, None])
    if sort is not None:
        request["sort"] = sort
    if descending := rng.random() < 0.5:
        request["descending"] = True
    direction = "DESC" if descending else "ASC"
    order = f"{sort or 'run_id'} {direction} NULLS LAST, run_id {direction}"
    return request, " AND ".join(terms) or "true", order


def test_lists_equal_duckdb(client: Client, archive: a2store.Archive, connection: duckdb.DuckDBPyConnection) -> None:
    rng = random.Random(5)
    runs = duck.table(connection, "SELECT * FROM runs").to_pylist()
    totals = set()
    for _ in range(120 if LONG else 60):
        request, condition, order = random_list(rng, runs)
        found = client.ask("/api/runs", request)
        sql = f"SELECT {', '.join(COLUMNS)} FROM runs WHERE {condition} ORDER BY {order}"
        expected = duck.table(connection, sql).to_pylist()
        assert (found["total"], found["version"]) == (len(expected), archive.version), request
        assert found["seconds"] >= 0
        page = expected[request["offset"] : request["offset"] + request["limit"]]
        assert [row["run_id"] for row in found["rows"]] == [row["run_id"] for row in page], request
        for row, other in zip(found["rows"], page, strict=True):
            assert list(row) == sorted(COLUMNS)
            assert same_time(row.pop("start_time"), other.pop("start_time"))
            other["elapsed_s"] = short(other["elapsed_s"])
            assert row == other
        totals.add(len(expected))
    assert len(totals) > 15
    assert {0, POOL + 2} <= totals


def test_an_end_of_the_list(client: Client) -> None:
    for offset in (POOL + 2, 2**32, 2**63, 2**64 - 1):
        found = client.ask("/api/runs", {"limit": 500, "offset": offset})
        assert (found["total"], found["rows"]) == (POOL + 2, [])
    assert client.ask("/api/runs", {"limit": 0})["rows"] == []


# Runs and predictions


def cells(board: str, mask: int) -> list[int]:
    """Return the tiles of a board in an answer."""
    exps = [int(digit, 16) + (mask >> cell & 1) for cell, digit in enumerate(board)]
    return [2**exp if exp else 0 for exp in exps]


@pytest.mark.parametrize("run_id", [0, RUNS_PER_ENGINE + 1, 2 * RUNS_PER_ENGINE + 4, LARGE, LARGE + 1, POOL])
def test_a_run_equals_the_archive(client: Client, archive: a2store.Archive, run_id: int) -> None:
    answer = client.ask(f"/api/runs/{run_id}")
    run = archive.run(run_id)
    meta = run.meta
    for name in ("engine", "max_score", "highest_tile"):
        assert answer[name] == getattr(meta, name)
    assert (answer["run_id"], answer["num_steps"], answer["version"]) == (run_id, len(run), archive.version)

    columns = answer["positions"]
    assert sorted(columns) == ["board", "gap", "legal", "loss", "mask", "played", "score", "step", "values"]
    # The run of a session has no final board.
    number = len(run) + (run.final_board is not None)
    assert (number == len(run)) == (run_id == POOL)
    assert {len(column) for column in columns.values()} == {number}
    for at in range(number):
        position = run.position(at)
        found = {name: column[at] for name, column in columns.items()}
        assert len(found["board"]) == 16
        assert cells(found["board"], found["mask"]) == np.ravel(position.board.tiles).tolist()
        assert found["mask"] == position.board.tile_65536_mask
        assert (found["step"], found["score"], found["played"]) == (position.step, position.score, position.played)
        assert found["values"] == [short(value) for value in position.values]
        assert found["loss"] == short(position.loss)
        exps = tuple(tile.bit_length() - 1 if tile else 0 for tile in np.ravel(position.board.tiles).tolist())
        assert found["legal"] == sum(1 << move for move in range(4) if slide(exps, move)[0] != exps)


def test_the_facts_of_a_run(client: Client, connection: duckdb.DuckDBPyConnection) -> None:
    for row in duck.table(connection, "SELECT * FROM runs ORDER BY run_id").to_pylist()[:: RUNS_PER_ENGINE // 4]:
        answer = client.ask(f"/api/runs/{row['run_id']}")
        assert answer["raw_evs"] == row["raw_evs"]
        info = answer["info"]
        for name in ("format", "source", "session", "verified", "source_id", "game_steps"):
            assert info[name] == row[name], name
        assert str(info["seed"]) == str(row["seed"])
        assert info["elapsed_s"] == short(row["elapsed_s"])
        assert same_time(info["start_time"], row["start_time"])
        assert same_time(info["ingested_at"], row["ingested_at"])


def test_predictions_equal_duckdb(client: Client, connection: duckdb.DuckDBPyConnection) -> None:
    for run_id, first, last in [(ANNOTATED[0], 0, 512), (ANNOTATED[0], 7, 9), (POOL, 5, 20), (POOL + 1, 0, 12)]:
        found = client.ask(f"/api/runs/{run_id}/annotations?from={first}&to={last}")["rows"]
        sql = f"""SELECT * FROM annotations WHERE run_id = {run_id} AND step_index BETWEEN {first} AND {last - 1}
            ORDER BY step_index, model"""
        expected = duck.table(connection, sql).to_pylist()
        assert len(found) == len(expected) > 0
        for row, other in zip(found, expected, strict=True):
            assert (row["step"], row["model"]) == (other["step_index"], other["model"])
            assert (row["preferred"], row["teacher"]) == (other["argmax_head"], other["teacher_move"])
            assert row["probability"] == short(other["argmax_prob"])
            for policy in ("p1", "logp", "hard"):
                assert row[policy] == [short(other[f"policy_{policy}_{name}"]) for name in MOVES]
            bins = other["student_bins"]
            assert (row["bins"] is None) == (bins is None) == (run_id < LARGE)
            if bins is not None:
                assert [value for each in row["bins"] for value in each] == [short(value) for value in bins]
                assert [len(each) for each in row["bins"]] == [3] * 4
        # The run itself has the preferred moves of all steps.
        (summary,) = client.ask(f"/api/runs/{run_id}")["models"]
        for name, of_row in (("at", "step"), ("preferred", "preferred"), ("probability", "probability"), ("p1", "p1")):
            assert summary[name][first:][: len(found)] == [row[of_row] for row in found]
    assert client.ask("/api/runs/0")["models"] == []
    for steps in ("from=0&to=0", "from=400000&to=400001"):
        assert client.ask(f"/api/runs/{ANNOTATED[0]}/annotations?{steps}")["rows"] == []
    for steps in ("", "from=0&to=513", "from=2&to=1"):
        client.get(f"/api/runs/{ANNOTATED[0]}/annotations?{steps}").refusal(400, "argument")


# Positions


class Steps:
    """All steps of the archive as exponents, in the order of runs and steps."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        table = duck.table(
            connection,
            """SELECT run_id, step_index, board, tile_65536_mask, move, s.engine, s.max_score, s.num_steps,
                r.raw_evs,
                [ev_up, ev_down, ev_left, ev_right] AS evs
            FROM steps s JOIN runs r USING (run_id) ORDER BY run_id, step_index""",
        )
        self.rows = table.to_pylist()
        masks = np.array([row["tile_65536_mask"] or 0 for row in self.rows])
        self.exps = oracle.tokens(table["board"].to_numpy()) + (masks[:, None] >> np.arange(16) & 1).astype("u1")

    def turned(self, symmetry: int) -> Array:
        turned: Array = self.exps[:, np.array(duck.PLACES[symmetry]) - 1]
        return turned


@pytest.fixture(scope="module")
def steps_of(connection: duckdb.DuckDBPyConnection) -> Steps:
    return Steps(connection)


def written(exps: Array) -> tuple[str, int]:
    """Return a board as the page sends it."""
    mask = sum(1 << cell for cell, exp in enumerate(exps.tolist()) if exp == 16)
    return "".join(f"{min(exp, 15):x}" for exp in exps.tolist()), mask


def check_position(client: Client, steps: Steps, exps: Array, limit: int = 500) -> int:
    """Compare a search with one in NumPy over all steps and symmetries, and return the number of places."""
    board, mask = written(exps)
    answer = client.ask("/api/position", {"board": board, "mask": mask, "limit": limit})
    assert (answer["board"], answer["mask"]) == (board, mask)

    images = [exps[np.array(places) - 1] for places in duck.PLACES]
    canonical = min(images, key=lambda image: written(image)[0])
    same = [written(image) for image in images]
    assert (answer["canonical"], answer["canonical_mask"]) in same
    assert answer["canonical"] == written(canonical)[0]

    found: dict[int, set[int]] = {}
    for symmetry in range(8):
        for at in np.flatnonzero((steps.exps == images[symmetry]).all(1)).tolist():
            found.setdefault(at, set()).add(symmetry)
    # A run visits a position at most once.
    assert answer["num_found"] == len(found) == len({steps.rows[at]["run_id"] for at in found})

    # With a symmetric board, several symmetries lead to the same step: the first one counts.
    listed = answer["places"]
    assert len(listed) == min(len(found), limit)
    by_place = {(steps.rows[at]["run_id"], steps.rows[at]["step_index"]): at for at in found}
    assert len({(place["run_id"], place["step_index"]) for place in listed}) == len(listed)
    assert [place["max_score"] for place in listed] == sorted(
        (steps.rows[at]["max_score"] for at in found), reverse=True
    )[:limit]
    for place in listed:
        at = by_place[place["run_id"], place["step_index"]]
        row = steps.rows[at]
        assert (place["engine"], place["num_steps"]) == (row["engine"], row["num_steps"])
        assert place["symmetry"] == min(found[at])
        assert duck.IMAGES[place["symmetry"]][place["move"]] == row["move"]
        value = row["evs"][row["move"]]
        assert place["value"] == short(value)

    assert sum(move["num_steps"] for move in answer["moves"]) == len(found)
    check_moves(answer, steps, {at: min(symmetries) for at, symmetries in found.items()})
    for direction in range(4):
        check_after(answer["after"][direction], exps, direction)
    return len(found)


def check_moves(answer: dict[str, Any], steps: Steps, found: dict[int, int]) -> None:
    """Compare the moves and the next positions."""

    def asked_move(at: int) -> int:
        return duck.IMAGES[found[at]].index(steps.rows[at]["move"])

    counts = Counter(asked_move(at) for at in found)
    assert {move["move"]: move["num_steps"] for move in answer["moves"]} == counts
    assert [move["num_steps"] for move in answer["moves"]] == sorted(counts.values(), reverse=True)
    for move in answer["moves"]:
        rows = [steps.rows[at] for at in found if asked_move(at) == move["move"]]
        assert move["mean_score"] == pytest.approx(np.mean([row["max_score"] for row in rows]))
        assert move["max_score"] == max(row["max_score"] for row in rows)
        assert move["num_engines"] == len({row["engine"] for row in rows} - {None})
        values = [row["evs"][row["move"]] for row in rows if not row["raw_evs"]]
        values = [value for value in values if value is not None]
        assert move["mean_value"] == (pytest.approx(np.mean(values)) if values else None)

    following: Counter[tuple[int, str, int]] = Counter()
    for at, symmetry in found.items():
        if at + 1 < len(steps.rows) and steps.rows[at + 1]["run_id"] == steps.rows[at]["run_id"]:
            # The symmetry turns the asked board into the step's; its inverse turns the next board back.
            back = np.empty(16, "u1")
            back[np.array(duck.PLACES[symmetry]) - 1] = steps.exps[at + 1]
            following[asked_move(at), *written(back)] += 1
    seen = {(each["move"], each["board"], each["tile_65536_mask"]): each["num_steps"] for each in answer["next"]}
    assert len(seen) == len(answer["next"]) == min(len(following), 50)
    assert all(following[key] == number for key, number in seen.items())
    assert [each["num_steps"] for each in answer["next"]] == sorted(following.values(), reverse=True)[:50]


def check_after(after: dict[str, Any] | None, exps: Array, direction: int) -> None:
    """Compare the board after a move with the rules."""
    slid, reward = slide(tuple(exps.tolist()), direction)
    if slid == tuple(exps.tolist()):
        assert after is None
        return
    digits, wide = written(np.array(slid))
    assert after == {"board": digits, "mask": wide, "reward": reward}, (exps, direction)


def test_positions_equal_a_search_in_numpy(client: Client, steps_of: Steps) -> None:
    rng = np.random.default_rng(3)
    # The first board of each run, which often repeats up to a symmetry, and boards in the middle.
    firsts = [at for at, row in enumerate(steps_of.rows) if row["step_index"] == 0 and row["run_id"] < LARGE]
    counts = []
    for at in [*rng.choice(firsts, 20, replace=False), *rng.integers(len(steps_of.rows), size=8)]:
        exps = steps_of.turned(int(rng.integers(8)))[at]
        counts.append(check_position(client, steps_of, exps))
    assert min(counts) >= 1
    assert max(counts) > 2
    images = np.stack([steps_of.turned(symmetry)[firsts] for symmetry in range(8)])
    symmetric = np.flatnonzero((images[1:] == images[0]).all(2).any(0)).tolist()
    assert len(symmetric) >= 3
    for place in symmetric[:6]:
        assert check_position(client, steps_of, images[place % 8][place]) >= 1
    assert check_position(client, steps_of, np.arange(16, dtype="u1")) == 0
    assert check_position(client, steps_of, np.zeros(16, "u1")) == 0
    assert check_position(client, steps_of, steps_of.exps[firsts[0]], limit=0) >= 1


def test_positions_with_tiles_of_65536(client: Client, steps_of: Steps) -> None:
    large = np.flatnonzero((steps_of.exps == 16).any(1))
    assert len(large) > 20
    for number, at in enumerate(large[:: len(large) // 16].tolist()):
        exps = steps_of.turned(number % 8)[at]
        assert check_position(client, steps_of, exps) >= 1
        # The same digits without the mask are another position.
        assert check_position(client, steps_of, np.minimum(exps, 15)) == 0


# SQL


VALUES = {
    "CAST(18446744073709551615 AS BIGINT UNSIGNED)": ("uint64", "18446744073709551615"),
    "CAST(-9223372036854775807 AS BIGINT)": ("int64", "-9223372036854775807"),
    "9007199254740993": ("int64", "9007199254740993"),
    "9007199254740992": ("int64", MAX_SAFE),
    "CAST(-7 AS TINYINT)": ("int8", -7),
    "CAST('NaN' AS DOUBLE)": ("float64", None),
    "CAST('-inf' AS REAL)": ("float32", None),
    "CAST(0.1 AS REAL)": ("float32", 0.1),
    "1e300": ("float64", 1e300),
    "0.1": ("float64", 0.1),
    "true": ("bool", True),
    "NULL": ("null", None),
    "CAST(NULL AS INT)": ("int32", None),
    "CAST(NULL AS VARCHAR)": ("string", None),
    "chr(10) || '\"λ</script>'": ("string", '\n"λ</script>'),
    "arrow_cast('x', 'Dictionary(Int32, Utf8)')": ("string", "x"),
    "X'00ff'": ("binary", "00ff"),
    "CAST(1.25 AS DECIMAL(10, 3))": (None, "1.250"),
    "TIMESTAMP '2024-01-02T03:04:05.678'": ("timestamp[ns]", "2024-01-02T03:04:05.678"),
    "DATE '2024-01-02'": ("date", "2024-01-02"),
    "TIME '12:34:56'": ("time[ns]", "12:34:56"),
    "[1, 2, NULL]": ("list[int64]", [1, 2, None]),
    "[CAST(18446744073709551615 AS BIGINT UNSIGNED)]": ("list[uint64]", ["18446744073709551615"]),
    "named_struct('a', 1, 'b', 'x')": ("struct[a: int64, b: string]", {"a": 1, "b": "x"}),
    "[named_struct('a', [1.5])]": ("list[struct[a: list[float64]]]", [{"a": [1.5]}]),
}


def test_values_of_each_type(client: Client) -> None:
    names = [f"v{place}" for place in range(len(VALUES))]
    sql = "SELECT " + ", ".join(f"{value} AS {name}" for value, name in zip(VALUES, names, strict=True))
    answer = client.ask("/api/sql", {"sql": sql})
    assert [column["name"] for column in answer["columns"]] == names
    for (value, (kind, expected)), column, found in zip(
        VALUES.items(), answer["columns"], answer["rows"][0], strict=True
    ):
        assert kind in (None, column["type"]), value
        assert (found, type(found)) == (expected, type(expected)), value
        assert column["board"] is False
    assert (answer["num_rows"], answer["has_more"], answer["sql"]) == (1, False, sql)


def test_boards_are_hexadecimal(client: Client, connection: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT board, tile_65536_mask, run_id FROM steps WHERE run_id = $run ORDER BY step_index"
    answer = client.ask("/api/sql", {"sql": sql, "params": {"run": LARGE + 1}})
    rows = duck.fetch(connection, sql, run=LARGE + 1)
    assert answer["rows"] == [[f"{board:016x}", mask, run] for board, mask, run in rows]
    assert [column["board"] for column in answer["columns"]] == [True, False, False]
    (column,) = client.ask("/api/sql", {"sql": "SELECT final_board FROM runs"})["columns"]
    assert column["board"]


def test_limits_of_rows(client: Client) -> None:
    sql = "SELECT run_id FROM steps ORDER BY run_id, step_index"
    for limit, expected in [(0, 0), (1, 1), (9_999, 9_999), (10_000, 10_000), (None, 10_000)]:
        answer = client.ask("/api/sql", {"sql": sql} | ({} if limit is None else {"limit": limit}))
        assert (answer["num_rows"], len(answer["rows"]), answer["has_more"]) == (expected, expected, True)
    answer = client.ask("/api/sql", {"sql": "SELECT run_id FROM runs", "limit": POOL + 2})
    assert (answer["num_rows"], answer["has_more"]) == (POOL + 2, False)


def test_parameters(client: Client, connection: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT $a + 1 AS a, $b AS b, $c AS c, CAST($d AS DOUBLE) AS d"
    answer = client.ask("/api/sql", {"sql": sql, "params": {"a": 2, "b": "x'; --", "c": None, "d": 0.5}})
    assert answer["rows"] == [[3, "x'; --", None, 0.5]]
    board = duck.fetch(connection, "SELECT max(board) FROM steps")[0][0]
    assert board > MAX_SAFE
    (number,) = duck.fetch(connection, "SELECT count(*) FROM steps WHERE board = $board::UBIGINT", board=board)[0]
    sql = "SELECT count(*) AS n FROM steps WHERE board = CAST($board AS BIGINT UNSIGNED)"
    for value in (str(board), board):
        assert client.ask("/api/sql", {"sql": sql, "params": {"board": value}})["rows"] == [[number]]


def named(client: Client) -> dict[str, dict[str, Any]]:
    return {query["name"]: query for query in client.ask("/api/schema")["queries"]}


def test_named_queries(client: Client, archive: a2store.Archive) -> None:
    queries = named(client)
    assert list(queries) == sorted(queries) == sorted(query.name for query in a2store.queries())
    asked = 0
    for name, query in queries.items():
        if "random(" in query["sql"]:
            continue
        answer = client.ask("/api/sql", {"name": name, "params": {}})
        table = pa.table(archive.query(name))
        assert [column["name"] for column in answer["columns"]] == table.column_names
        assert answer["num_rows"] == min(len(table), 10_000), name
        assert answer["sql"].strip() == query["sql"].strip()
        asked += 1
    assert asked > 20
    answer = client.ask("/api/sql", {"name": "score_histogram", "params": {"width": 700, "engine": "γάμμα"}})
    assert answer["rows"] == [
        list(row.values()) for row in pa.table(archive.query("score_histogram", width=700, engine="γάμμα")).to_pylist()
    ]


def test_the_schema(client: Client) -> None:
    schema = client.ask("/api/schema")
    tables = {table["name"]: table["columns"] for table in schema["tables"]}
    assert list(tables) == ["runs", "steps", "annotations"]
    for name, columns in tables.items():
        answer = client.ask("/api/sql", {"sql": f"SELECT * FROM {name} LIMIT 0"})
        shown = [(column["name"], column["type"]) for column in answer["columns"]]
        assert [(column["name"], column["type"]) for column in columns] == shown
        assert [column["name"] for column in columns if not column["doc"]] == [], name
    for function in schema["functions"]:
        assert set(function) == {"name", "call", "type", "doc", "example", "result"}
        answer = client.ask("/api/sql", {"sql": f"SELECT {function['example']} AS x"})
        assert answer["columns"][0]["type"] == function["type"], function
    for query in schema["queries"]:
        assert query["purpose"]


# Downloads


def read_back(data: bytes, kind: str, integers: dict[str, Any] | None = None) -> Any:
    """Read a file with PyArrow. Without types, it would read large integers in a text file as floats."""
    file = io.BytesIO(data)
    if kind == "parquet":
        return pq.read_table(file)
    if kind == "arrow":
        return pa.ipc.open_file(file).read_all()
    if kind == "csv":
        return pa.csv.read_csv(file, convert_options=pa.csv.ConvertOptions(column_types=integers))
    return pa.json.read_json(file, parse_options=pa.json.ParseOptions(explicit_schema=pa.schema(integers or {})))


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "jsonl"])
def test_downloads(client: Client, archive: a2store.Archive, kind: str) -> None:
    sql = """SELECT run_id, step_index, board, move, engine, ev_up, has_evs, $word AS word FROM steps
        ORDER BY run_id, step_index"""
    answer = client.download({"sql": sql, "params": {"word": 'a "λ", b'}, "format": kind})
    types = {
        "parquet": "application/vnd.apache.parquet",
        "arrow": "application/vnd.apache.arrow.file",
        "csv": "text/csv; charset=utf-8",
        "jsonl": "application/jsonl; charset=utf-8",
    }
    assert answer.header("content-type") == types[kind]
    assert (answer.header("content-disposition") or "").startswith("attachment")
    found = read_back(answer.body, kind, {"board": pa.uint64()})
    expected = pa.table(archive.sql(sql, params={"word": 'a "λ", b'}))
    # PyArrow puts columns with a given type first.
    assert sorted(found.column_names) == sorted(expected.column_names)
    assert kind == "jsonl" or found.column_names == expected.column_names
    assert len(found) == len(expected) > 10_000
    for name in expected.column_names:
        ours, theirs = found[name].to_pylist(), expected[name].to_pylist()
        if name == "ev_up":
            ours, theirs = ([short(value) for value in each] for each in (ours, theirs))
        elif name == "engine" and kind == "csv":
            theirs = ["" if value is None else value for value in theirs]
        assert ours == theirs, name


def test_a_named_query_as_a_file(client: Client, archive: a2store.Archive) -> None:
    answer = client.download({"name": "score_histogram", "params": {"width": 900}, "format": "csv"})
    found = pa.csv.read_csv(io.BytesIO(answer.body))
    assert (
        found["num_runs"].to_pylist() == pa.table(archive.query("score_histogram", width=900))["num_runs"].to_pylist()
    )


@pytest.fixture
def growing(tmp_path: Path) -> tuple[Path, list[Path]]:
    """An archive of four runs, and the files of more runs."""
    files = short_runs(tmp_path / "runs", 12)
    archive = ingested(tmp_path / "games.a2", files[:4])
    return Path(archive.path), files[4:]


def test_commits_of_another_process_appear(growing: tuple[Path, list[Path]]) -> None:
    path, files = growing
    with Server(path) as server, Server(path, "--version", 2) as still:
        client = server.client
        assert client.ask("/api/runs", {"limit": 500, "sort": "max_score", "descending": True})["total"] == 4
        with Events(client) as events, Events(client) as others, Events(still.client) as nothing:
            for stream in (events, others, nothing):
                name, data = stream.next()
                assert (name, data["version"], data["num_runs"]) == ("archive", 2, 4)
            for version, num_runs in ((3, 6), (4, 8)):
                run_command("ingest", *files[:2], path)
                del files[:2]
                archive = a2store.Archive.open(path)
                for stream in (events, others):
                    data = stream.next_of("archive")
                    assert data == {"version": version, "num_runs": num_runs, "num_steps": archive.num_steps}
                assert archive.version == version
            assert {name: client.ask("/api/archive")[name] for name in data} == data
            found = client.ask("/api/runs", {"limit": 500, "sort": "max_score", "descending": True})
            assert (found["version"], found["total"]) == (4, 8)
            assert client.ask("/api/runs/7")["version"] == 4
            assert client.ask("/api/sql", {"sql": "SELECT count(*) AS n FROM runs"})["rows"] == [[8]]
            assert client.ask("/api/schema")
        # The other server shows one version only.
        assert still.client.ask("/api/archive")["version"] == 2
        assert still.client.ask("/api/runs", {"limit": 500})["total"] == 4
        still.client.get("/api/runs/7").refusal(404, "not_found")


def test_files_that_are_replaced(growing: tuple[Path, list[Path]]) -> None:
    path, files = growing
    with Server(path) as server:
        client = server.client
        before = client.ask("/api/runs/3")["positions"]
        archive = a2store.Archive.open(path)
        for each in files:
            archive.ingest(each, progress=False)
        with Events(client) as events:
            while events.next_of("archive")["version"] < archive.version:
                pass
            archive.compact(progress=False)
            archive.expire(older_than=0, grace=0)
            while events.next_of("archive")["version"] < archive.version:
                pass
        assert client.ask("/api/runs/3")["positions"] == before
        assert client.ask("/api/runs", {"limit": 500})["total"] == 12


# The report


def test_the_report(client: Client, archive: a2store.Archive) -> None:
    found = client.ask("/api/report", {})
    assert found["version"] == archive.version
    answer = client.get(found["url"])
    assert (answer.header("content-type") or "").startswith("text/html")
    policy = answer.header("content-security-policy") or ""
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'self'" in policy
    assert "script-src 'sha256-" in policy
    results, expected = report_page.data_of(answer.body.decode())["results"], report_page.report(archive)["results"]
    assert list(results) == list(expected)
    for name, result in expected.items():
        assert {**results[name], "seconds": 0} == {**result, "seconds": 0}, name
    # The server does not compute the same report again.
    assert client.ask("/api/report", {"by": "engine", "where": " "}) == found

    narrow = client.ask("/api/report", {"where": "engine = 'alpha' OR engine = 'beta'", "compare": ["alpha", "beta"]})
    data = report_page.data_of(client.get(narrow["url"]).body.decode())
    assert data["where"] == "engine = 'alpha' OR engine = 'beta'"
    counted = data["results"]["length_histogram"]
    place = counted["columns"].index("num_runs")
    assert sum(row[place] for row in counted["rows"]) == 2 * RUNS_PER_ENGINE


# Requests that are refused

EMPTY = "0" * 16
WRONG: dict[str, list[tuple[dict[str, Any], str]]] = {
    "/api/runs argument": [
        ({"limit": 501}, "limit: expected at most 500, found 501"),
        ({"limit": 1, "offset": -1}, "-1"),
        ({"limit": 1, "sort": "digest"}, "sort: expected one of run_id, engine, max_score"),
        ({"limit": 1, "sort": "max_score; DROP TABLE runs"}, "sort: expected one of"),
        ({"limit": 1, "order": "x"}, "order"),
    ],
    "/api/runs query": [
        ({"limit": 1, "where": "scor > 3"}, "scor"),
        ({"limit": 1, "where": "1 = 1) OR (1 = 1"}, "where"),
        ({"limit": 1, "where": "1 = 1) UNION SELECT 1 FROM (SELECT 1"}, "where"),
        ({"limit": 1, "where": "max_score"}, "boolean"),
        ({"limit": 1, "where": "count(*) > 1"}, "Aggregate"),
        ({"limit": 1, "where": "$a = 1"}, "$a"),
    ],
    "/api/runs query_refused": [
        ({"limit": 1, "where": "EXISTS (SELECT 1 FROM '/etc/passwd')"}, ""),
        ({"limit": 1, "where": "random() < 2"}, ""),
        ({"limit": 1, "where": "run_id IN (SELECT 1 FROM read_csv('x'))"}, ""),
    ],
    "/api/position argument": [
        *(({"board": board, "limit": 1}, "") for board in ("", EMPTY + "0", "g" * 16, "+" + "0" * 15, "é" * 8)),
        ({"board": EMPTY, "limit": 501}, ""),
        ({"board": EMPTY, "limit": 1, "mask": 1}, ""),
        ({"board": EMPTY, "limit": 1, "mask": 65536}, ""),
    ],
    "/api/sql argument": [
        ({"sql": "SELECT 1", "limit": 10_001}, "limit: expected at most 10000, found 10001"),
        ({"sql": "SELECT 1", "params": {"a": [1]}}, ""),
        ({"name": "score_histogra"}, "score_histogram"),
        ({}, ""),
        ({"sql": "SELECT 1", "name": "move_mix"}, ""),
    ],
    "/api/sql query": [
        ({"sql": "SELECT $a"}, ""),
        *(
            ({"name": "score_histogram", "params": params}, "")
            for params in ({"widht": 1}, {"width": "x"}, {"width": -1})
        ),
    ],
    "/api/download argument": [({"sql": "SELECT 1", "format": "xlsx"}, ""), ({"name": "nope", "format": "csv"}, "")],
    "/api/download query": [({"sql": "SELECT nope", "format": "csv"}, "nope")],
    "/api/download query_refused": [({"sql": "COPY runs TO 'x'", "format": "csv"}, "")],
    "/api/report query": [({"where": "nope > 1"}, "nope")],
    "/api/report argument": [({"by": "run_id"}, ""), ({"compare": ["a"]}, "")],
}
"""By target and kind of error: bodies of requests, and a word of each message."""


@pytest.mark.parametrize("case", WRONG)
def test_wrong_requests(client: Client, case: str) -> None:
    target, kind = case.split(" ")
    for body, word in WRONG[case]:
        message = client.post(target, body).refusal(403 if kind == "query_refused" else 400, kind)
        assert word in message, body
        assert "\n" not in message


# Many requests at once

HEAVY = "SELECT count(*) AS n FROM steps a, steps b, steps c WHERE a.board + b.board * 3 > c.board * 7"


def has_answer(connection: Connection) -> bool:
    return bool(select.select([connection.socket], [], [], 0)[0])


def test_a_dropped_request_ends_its_statement(archive: a2store.Archive) -> None:
    with Server(archive.path, env={"A2STORE_VIEW_TIMEOUT_SECONDS": "0.2"}) as server:
        client = server.client

        def is_busy() -> bool:
            answer = client.post("/api/sql", {"sql": "SELECT 1"})
            if answer.status != 200:
                answer.refusal(503, "busy")
            return answer.status != 200

        heavy = client.bytes_of("POST", "/api/sql", {"sql": HEAVY})
        for _ in range(3):
            with ExitStack() as stack:
                # The first statement is dropped last. All have the same time limit.
                statements = [stack.enter_context(Connection(server.port)) for _ in range(4)]
                for statement in statements:
                    statement.send(heavy)
                eventually(is_busy)
                for statement in statements[1:]:
                    statement.close()
                eventually(lambda: not is_busy())
                ended = has_answer(statements[0])
            eventually(lambda: not is_busy())
            if not ended:
                return
    pytest.fail("each time, the statements ended by themselves, or by their limits")


# The command


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_server(archive: a2store.Archive, number: signal.Signals) -> None:
    server = Server(archive.path)
    with Events(server.client) as events, Connection(server.port) as heavy, Connection(server.port) as half:
        events.next()
        heavy.send(server.client.bytes_of("POST", "/api/sql", {"sql": HEAVY}))
        half.send(b"GET / HTTP/1.1\r\nHost: ")
        started = time.monotonic()
        assert server.stop(number) == 0
        # The statement would run for a minute.
        assert time.monotonic() - started < 30
        with pytest.raises(ConnectionRefusedError):
            Connection(server.port)


def test_the_token_and_the_port(archive: a2store.Archive) -> None:
    token = "a-token_of-16-ok"
    with Server(archive.path, env={"A2STORE_VIEW_TOKEN": token}) as server:
        assert server.url == f"http://127.0.0.1:{server.port}/?token={token}"
        done = run_command("view", archive.path, "--no-browser", "--port", server.port, status=1)
        assert f"127.0.0.1:{server.port}" in done.stderr
        assert "in use" in done.stderr
        assert done.stdout == ""
        cookie = server.client.cookie
    assert cookie == f"a2store-{server.port}={token}"
    # A restarted server with the same token accepts an open page.
    with Server(archive.path, "--port", server.port, env={"A2STORE_VIEW_TOKEN": token}) as server:
        assert server.client.get("/api/archive", cookie=cookie).status == 200
    with Server(archive.path, "--port", server.port) as server:
        server.client.get("/api/archive", cookie=cookie).refusal(UNAUTHORIZED, "unauthorized")


def test_wrong_commands(archive: a2store.Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "absent.a2" in run_command("view", tmp_path / "absent.a2", "--no-browser", status=2).stderr
    assert "99" in run_command("view", archive.path, "--no-browser", "--version", 99, status=2).stderr
    run_command("view", archive.path, "--no-browser", "--port", 65_536, status=2)
    for name, values in {
        "A2STORE_VIEW_TOKEN": ["", "a" * 15, "a" * 16 + " ", "é" * 16, "a" * 15 + ";"],
        "A2STORE_VIEW_TIMEOUT_SECONDS": ["", "0", "-1", "NaN", "inf", "3601", "1s"],
    }.items():
        for value in values:
            monkeypatch.setenv(name, value)
            assert name in run_command("view", archive.path, "--no-browser", status=2).stderr
        monkeypatch.delenv(name)


# Python


def asked(client: Client, boards: list[tuple[str, int]]) -> Any:
    return client.ask("/api/policy", {"boards": boards})["values"]


BOARDS = [("0000000000000011", 0), ("123456789abcdef1", 0), ("f000000000000000", 1 << 0), ("1111000000000000", 0)]
LEGAL = [0b1101, 0b0000, 0b1010, 0b1110]
"""The legal moves on these boards."""


def test_a_policy(archive: a2store.Archive) -> None:
    calls: list[tuple[Array, Array]] = []

    def linear(tokens: Array, legal: Array) -> Array:
        calls.append((tokens.copy(), legal.copy()))
        values: Array = tokens.sum(1, dtype="f4")[:, None] + np.arange(4, dtype="f4") / 10
        return values

    with archive.view(linear, open_browser=False) as view:
        client = Client(view.url)
        assert client.ask("/api/archive")["policy"] == "linear"
        found = client.ask("/api/policy", {"boards": BOARDS})
        tokens = np.array([[int(digit, 16) for digit in board] for board, _ in BOARDS])
        tokens[2, 0] = 16
        (given,) = calls
        assert (given[0].dtype.str, given[1].dtype.str) == ("|u1", "|b1")
        assert given[0].tolist() == tokens.tolist()
        bits = [[bool(legal >> move & 1) for move in range(4)] for legal in LEGAL]
        assert given[1].tolist() == bits
        values = [
            [
                short(float(np.float32(total) + np.float32(move) / np.float32(10))) if row[move] else None
                for move in range(4)
            ]
            for total, row in zip(tokens.sum(1), bits, strict=True)
        ]
        assert found == {"name": "linear", "values": values}
        assert asked(client, []) == []
        assert asked(client, BOARDS[:1] * 512) == values[:1] * 512
        for wrong in (BOARDS[:1] * 513, [("1", 0)], [("0" * 16, 1)], ["0" * 16], [["0" * 16, 0, 0]]):
            client.post("/api/policy", {"boards": wrong}).refusal(400, "argument")
    assert (len(calls), view.closed) == (3, True)


def test_moves_and_odd_values_of_a_policy(archive: a2store.Archive) -> None:
    results: list[Any] = [
        np.array([0, 1, 2, 3]),
        np.array([[np.nan, 1, np.inf, 1]] * 4),
        [[1, 2, 3, 4]] * 4,
        np.array([3, 2, 1, 0], "u1"),
    ]
    with archive.view(lambda tokens, legal: results.pop(0), open_browser=False) as view:
        client = Client(view.url)
        assert asked(client, BOARDS) == [[1 if move == row else None for move in range(4)] for row in range(4)]
        assert asked(client, BOARDS)[3] == [None, 1, None, 1]
        assert asked(client, BOARDS)[3] == [None, 2, 3, 4]
        assert asked(client, BOARDS)[0] == [None, None, None, 1]


def test_errors_of_a_policy(archive: a2store.Archive) -> None:
    shapes: list[Any] = [(3, 4), (4, 3), (4, 4, 1), (), (16,)]
    results: list[Any] = [np.zeros(shape) for shape in shapes]
    results += [None, "up", np.zeros(4, bool), np.zeros(4), np.array(["a"] * 4), [[0.0] * 4] * 3 + [[0.0]], object()]
    waiting = list(results)

    def policy(tokens: Array, legal: Array) -> Any:
        if not waiting:
            raise KeyError("no such \n board")
        return waiting.pop(0)

    with archive.view(policy, open_browser=False) as view:
        client = Client(view.url)
        for result in results:
            message = client.post("/api/policy", {"boards": BOARDS}).refusal(400, "argument")
            assert "policy" in message, result
        assert waiting == []
        assert "no such" in client.post("/api/policy", {"boards": BOARDS}).refusal(400, "argument")
        waiting.append(np.ones((4, 4)))
        assert asked(client, BOARDS)[3] == [None, 1, 1, 1]
        assert client.ask("/api/archive")["policy"] == "policy"


def test_calls_of_a_policy_do_not_overlap(archive: a2store.Archive) -> None:
    running: list[int] = []
    most = 0

    def policy(tokens: Array, legal: Array) -> Array:
        nonlocal most
        running.append(0)
        most = max(most, len(running))
        time.sleep(0.01)
        running.pop()
        return np.ones((len(tokens), 4))

    with archive.view(policy, open_browser=False) as view:
        client = Client(view.url)
        assert client.cookie
        answers: list[Any] = []
        askers = [threading.Thread(target=lambda: answers.append(asked(client, BOARDS[:1]))) for _ in range(12)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join(HANGS)
    assert len(answers) == 12
    assert most == 1


def test_a_view_closes_while_requests_run(archive: a2store.Archive) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def policy(tokens: Array, legal: Array) -> Array:
        entered.set()
        go_on.wait(HANGS)
        return np.zeros((len(tokens), 4))

    view = archive.view(policy, open_browser=False)
    client = Client(view.url)
    closing_view = threading.Thread(target=view.close)
    try:
        with Connection(client.port) as heavy, Connection(client.port) as waiting, Events(client) as events:
            events.next()
            heavy.send(client.bytes_of("POST", "/api/sql", {"sql": HEAVY}))
            waiting.send(client.bytes_of("POST", "/api/policy", {"boards": BOARDS}))
            assert entered.wait(HANGS)
            closing_view.start()
            closing_view.join(HANGS)
            assert not closing_view.is_alive()
            assert view.closed
            assert heavy.rest() == waiting.rest() == b""
            with pytest.raises(ConnectionRefusedError):
                Connection(client.port)
    finally:
        go_on.set()
    view.close()


def test_views_side_by_side(archive: a2store.Archive, growing: tuple[Path, list[Path]]) -> None:
    path, files = growing
    other = a2store.Archive.open(path)
    older = a2store.Archive.open(path, version=1)
    with (
        archive.view(open_browser=False) as first,
        other.view(open_browser=False) as second,
        older.view(open_browser=False) as still,
        other.view(open_browser=False, follow=False) as also_still,
    ):
        clients = [Client(view.url) for view in (first, second, still, also_still)]
        assert [client.ask("/api/archive")["num_runs"] for client in clients] == [POOL + 2, 4, 0, 4]
        assert len({client.token for client in clients}) == len({client.port for client in clients}) == 4
        clients[1].get("/api/archive", cookie=clients[0].cookie).refusal(UNAUTHORIZED, "unauthorized")
        assert clients[1].get("/api/archive", cookie="; ".join(client.cookie for client in clients)).status == 200
        clients[0].post("/api/policy", {"boards": []}).refusal(404, "not_found")

        a2store.Archive.open(path).ingest(files, progress=False)
        streams = [Events(client) for client in clients[1:]]
        while streams[0].next_of("archive")["num_runs"] < 12:
            pass
        assert [stream.next_of("archive")["num_runs"] for stream in streams[1:]] == [0, 4]
        for stream in streams:
            stream.connection.close()
        # The archive object in Python stays at its version.
        assert other.num_runs == 4

        assert not first.closed
        assert repr(first) == f"View(http://127.0.0.1:{clients[0].port}/, open)"
        assert f'href="{first.url}"' in first._repr_html_()
        first.close()
        assert first.closed
        assert repr(first) == f"View(http://127.0.0.1:{clients[0].port}/, closed)"
        assert first.url not in first._repr_html_()
        assert clients[1].ask("/api/runs/0")["run_id"] == 0
    assert second.closed


def test_wrong_views(archive: a2store.Archive) -> None:
    with archive.view(open_browser=False) as view:
        with pytest.raises(OSError, match="in use"):
            archive.view(open_browser=False, port=Client(view.url).port)
        with pytest.raises(TypeError, match="policy: expected a function, found int"):
            archive.view(3, open_browser=False)  # type: ignore[arg-type]
        assert Client(view.url).ask("/api/archive")["num_runs"] == POOL + 2


def test_the_end_of_a_process_ends_its_views(archive: a2store.Archive) -> None:
    script = f"""
import a2store, sys
view = a2store.Archive.open({str(archive.path)!r}).view(lambda tokens, legal: legal, open_browser=False)
print(view.url, flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    with process:
        client = Client(process.stdout.readline().strip())
        with Events(client) as events:
            events.next()
            process.stdin.close()
            assert process.wait(HANGS) == 0
            with pytest.raises(ConnectionRefusedError):
                Connection(client.port)
