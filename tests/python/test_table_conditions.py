"""``table.filter`` by SQL beside DuckDB on the archive's files, and ``train_test_split``."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import a2store
from compare import keys

COLUMNS: dict[str, list[Any]] = {
    "run_id": [0, 3, 17, 40, 59, 10**6],
    "step_index": [0, 1, 50, 127, 128, 65_535],
    "board": [0, 2**63, 0x1000_0000_0000_0001],
    "move": [0, 1, 3],
    "ev_legal": [0, 5, 15],
    "ev_up": [0.0, 0.5, 0.999],
    "ev_down": [0.25],
    "ev_left": [1.0],
    "ev_right": [0.0, 0.75],
    "max_exp": [1, 5, 8, 9, 16],
    "max_score": [0, 700, 1500, 2**40],
    "tile_65536_mask": [0, 1],
    "phase": ["'early'", "'mid'", "'late'", "'x'"],
    "engine": ["'alpha'", "'beta'", "'γάμμα'", "''"],
}
FLOATS = ["ev_up", "ev_down", "ev_left", "ev_right"]
SMALL = ["step_index", "move", "ev_legal", "max_exp"]


def condition(rng: random.Random, depth: int) -> str:
    """Return a random condition that DuckDB understands too."""
    if depth and rng.random() < 0.6:
        left, right = condition(rng, depth - 1), condition(rng, depth - 1)
        return rng.choice([f"({left} AND {right})", f"({left} OR {right})", f"(NOT {left})"])
    name = rng.choice(list(COLUMNS))
    values = COLUMNS[name]
    first, second = rng.choice(values), rng.choice(values)
    sign = rng.choice(["=", "<>", "<", "<=", ">", ">="])
    return rng.choice(
        [
            f"{name} {sign} {first}",
            f"{first} {sign} {name}",
            f"{name} BETWEEN {first} AND {second}",
            f"{name} IN ({first}, {second})",
            f"{name} NOT IN ({first}, {second})",
            f"{name} IS NULL",
            f"{name} IS NOT NULL",
            "has_evs",
            f"{rng.choice(FLOATS)} {sign} {rng.choice(FLOATS)}",
            f"{rng.choice(SMALL)} + {rng.choice(SMALL)} {sign} {rng.randrange(40)}",
            f"step_index % {rng.randrange(1, 9)} {sign} {rng.randrange(5)}",
            f"coalesce({rng.choice(FLOATS)}, 0.5) {sign} 0.5",
            f"CASE WHEN move > 1 THEN {name} ELSE NULL END {sign} {first}",
            "engine LIKE '%a'",
        ]
    )


@pytest.fixture(scope="module")
def table(archive: a2store.Archive) -> a2store.StepTable:
    return archive.sql("SELECT * FROM steps").materialize(progress=False)


def test_conditions_select_what_duckdb_selects(archive: a2store.Archive, table: a2store.StepTable) -> None:
    rng = random.Random(5)
    views = [table, table.filter(phase=["mid", "late"]), table.split(0.4, seed=3)[1]]
    sizes = []
    with duckdb.connect() as connection:
        connection.read_parquet(archive.files("steps")).create_view("steps")
        for _ in range(400):
            text = condition(rng, 3)
            rows = connection.execute(f"SELECT run_id, step_index FROM steps WHERE {text}").fetchnumpy()
            expected = np.sort(rows["run_id"].astype("u8") << np.uint64(32) | rows["step_index"].astype("u8"))
            whole = keys(table.filter(text))
            assert whole.tolist() == expected.tolist(), text
            view = rng.choice(views)
            inside = keys(view)
            found = keys(view.filter(text, min_score=600))
            by_score = set(keys(view.filter(min_score=600)).tolist())
            assert found.tolist() == [key for key in inside[np.isin(inside, expected)].tolist() if key in by_score], (
                text
            )
            sizes.append(len(whole))
    # Most conditions select some of the rows.
    assert sum(0 < size < len(table) for size in sizes) > 200


def test_conditions_use_functions_extra_and_attached_columns(archive: a2store.Archive) -> None:
    table = archive.sql(
        "SELECT *, exps(board) AS cells, step_index * 2 AS twice, engine AS player FROM steps"
    ).materialize(extra=["cells", "twice", "player", "max_score"], progress=False)
    table = table.attach("empty", archive.sql("SELECT run_id, step_index, empty_cells(board) AS n FROM steps"))
    for text, same in [
        ("empty_cells(board) = empty", "TRUE"),
        ("cells[1] = 0 AND twice > 20", "exps(board)[1] = 0 AND step_index > 10"),
        ("player = 'alpha'", "engine = 'alpha'"),
        ("player IS NULL AND max_score > 400", "engine IS NULL AND max_score > 400"),
        ("empty BETWEEN 2 AND 4", "empty_cells(board) BETWEEN 2 AND 4"),
    ]:
        expected = pa.table(archive.sql(f"SELECT run_id, step_index FROM steps WHERE {same}"))
        view = table.filter(text)
        assert view["run_id"].tolist() == expected["run_id"].to_pylist(), text
        assert view["step_index"].tolist() == expected["step_index"].to_pylist(), text
        assert view.attached == ["empty"]
    assert table.filter("twice > 3").fingerprint != table.filter("twice > 4").fingerprint
    assert table.filter("twice > 3").fingerprint == table.filter("twice > 3").fingerprint


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", a2store.QueryError, "expression"),
        ("nope = 1", a2store.QueryError, "nope"),
        ("1", a2store.QueryError, "boolean"),
        ("true) OR (true", a2store.QueryError, "end of expression"),
        ("true ORDER BY move", a2store.QueryError, "end of expression"),
        ("true; SELECT 1", a2store.QueryError, "end of expression"),
        ("move = (SELECT 1)", a2store.QueryRefusedError, "a subquery: a condition must depend only on the row"),
        ("EXISTS (SELECT 1 FROM steps)", a2store.QueryRefusedError, "a subquery"),
        ("move IN (SELECT move FROM steps)", a2store.QueryRefusedError, "a subquery"),
        ("random() < 0.5", a2store.QueryRefusedError, "a random number or the time"),
        ("now() > '2020-01-01'", a2store.QueryRefusedError, "a random number or the time"),
        ("row_number() OVER () = 1", a2store.QueryRefusedError, "a window function"),
        ("sum(move) > 1", a2store.QueryError, "Aggregate"),
        ("move = $1", a2store.QueryError, "1"),
        ("CAST(phase AS INT) > 1", a2store.QueryError, "Cannot cast string"),
        (f"{'NOT ' * 600}true", a2store.Error, "expression"),
        ("true AND " * 20_000 + "true", a2store.QueryRefusedError, "bytes"),
    ],
)
def test_wrong_conditions(table: a2store.StepTable, text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        table.filter(text)


def test_conditions_on_runs_need_their_metadata(table: a2store.StepTable, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.asarray(table))
    loaded = a2store.StepTable.load(tmp_path / "rows.npy")
    assert len(loaded.filter("step_index < 3")) == len(table.filter("step_index < 3"))
    for text in ("max_score > 3", "engine = 'alpha'"):
        with pytest.raises(ValueError, match="scores and engines of its runs"):
            loaded.filter(text)
    table.save(tmp_path / "saved.npy")
    saved = a2store.StepTable.load(tmp_path / "saved.npy")
    assert len(saved.filter("max_score > 700")) == len(table.filter(min_score=701))


@pytest.mark.parametrize("unit", ["run", "step"])
def test_train_test_split(archive: a2store.Archive, table: a2store.StepTable, unit: str) -> None:
    before: set[int] = set()
    for share in (0.0, 0.1, 0.25, 0.5, 1.0):
        train, test = table.train_test_split(share, seed=5, unit=unit)  # type: ignore[arg-type]
        sides = [keys(side).tolist() for side in (train, test)]
        assert sorted(sides[0] + sides[1]) == keys(table).tolist()
        assert sides[0] == sorted(sides[0])
        assert before <= set(sides[1])
        before = set(sides[1])
        if unit == "run":
            assert not set(train["run_id"].tolist()) & set(test["run_id"].tolist())
            assert [side.fingerprint for side in (train, test)] == [
                side.fingerprint for side in table.split(share, seed=5)
            ]
        else:
            # Five standard deviations of a binomial distribution.
            spread = 5 * (share * (1 - share) / len(table)) ** 0.5
            assert abs(len(test) / len(table) - share) <= spread
    assert len(before) == len(table)
    # A part of the archive has the same sides.
    part = archive.sql("SELECT * FROM steps WHERE run_id % 3 = 1 AND step_index > 9").materialize(progress=False)
    held_out = set(keys(table.train_test_split(0.3, seed=5, unit=unit)[1]).tolist())  # type: ignore[arg-type]
    for side, is_test in zip(part.train_test_split(0.3, seed=5, unit=unit), (False, True), strict=True):  # type: ignore[arg-type]
        assert all((key in held_out) == is_test for key in keys(side).tolist())


def test_a_pack_splits_like_its_table(archive: a2store.Archive, tmp_path: Path) -> None:
    archive.export_runs("SELECT run_id FROM runs WHERE run_id % 2 = 0", tmp_path / "p.a2pack", format="a2pack")
    pack = a2store.PackReader.open(tmp_path / "p.a2pack")
    table = pack.to_table()
    for share in (0.0, 0.3, 1.0):
        train, test = pack.train_test_split(share, seed=2)
        views = table.train_test_split(share, seed=2)
        for found, view in zip((train, test), views, strict=True):
            assert found.dtype == np.uint64
            assert found.tolist() == np.unique(view["run_id"]).tolist()


def test_wrong_splits(table: a2store.StepTable, archive: a2store.Archive, tmp_path: Path) -> None:
    archive.export_runs("SELECT run_id FROM runs WHERE run_id < 3", tmp_path / "p.a2pack", format="a2pack")
    for rows in (table, a2store.PackReader.open(tmp_path / "p.a2pack")):
        for share in (-0.1, 1.5, 200, float("nan")):
            with pytest.raises(ValueError, match=r"test_size: expected 0\.0\.\.=1\.0"):
                rows.train_test_split(share)
    with pytest.raises(ValueError, match='unit: expected "run" or "step", found "games"'):
        table.train_test_split(0.1, unit="games")  # type: ignore[arg-type]
