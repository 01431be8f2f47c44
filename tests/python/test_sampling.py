"""The rows of an epoch: drawn with replacement, by weight, by strata, or shuffled within windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import a2store
from compare import assert_same, row_keys
from duck import of_files
from oracle import Array

WEIGHTS = {
    "w_mod": "step_index % 7",
    "w_score": "max_score",
    "w_flag": "has_evs",
    "w_skewed": "CASE WHEN step_index = 0 THEN 250000.0 ELSE step_index * 0.5 END",
    "w_one": "CASE WHEN run_id = 7 AND step_index = 11 THEN 3 ELSE 0 END",
    "w_small": "CAST(step_index % 3 AS FLOAT) * 1e-30",
}
BAD = {
    "negative": ("CASE WHEN step_index = 5 THEN -1e-9 ELSE 1.0 END", "row 5"),
    "nan": ("CASE WHEN step_index = 5 THEN CAST('NaN' AS DOUBLE) ELSE 1.0 END", "row 5"),
    "infinite": ("CASE WHEN step_index = 5 THEN CAST('inf' AS DOUBLE) ELSE 1.0 END", "row 5"),
    "nothing": ("0.0", "sum"),
    "huge": ("1.7e308", "sum"),
    "tiny": ("CASE WHEN step_index % 2 = 0 THEN 5e-324 ELSE 1e-323 END", "mean"),
}
STRATA = ["phase", "engine", "has_evs", "max_exp", "half"]


@pytest.fixture(scope="module")
def table(archive: a2store.Archive) -> a2store.StepTable:
    columns = ", ".join(f"{sql} AS {name}" for name, sql in [*WEIGHTS.items(), ("half", "max_exp * 0.5")])
    bad = ", ".join(f"{sql} AS {name}" for name, (sql, _) in BAD.items())
    extra = [*WEIGHTS, *STRATA, *BAD]
    return archive.sql(f"SELECT *, {columns}, {bad} FROM steps").materialize(extra=extra, progress=False)


def rows_of(loader: a2store.Loader, all_keys: Array) -> Array:
    """Return the rows of the table that a loader serves, in order."""
    return np.searchsorted(all_keys, row_keys(loader))


COLUMNS = ["run_id", "step_index"]


def test_weights(archive: a2store.Archive, table: a2store.StepTable, all_keys: Array, steps: dict[str, Array]) -> None:
    """The weights are those of the column. The crate's tests show that the draws follow them."""
    view = table.filter(phase="late", engine="alpha")
    some = (steps["phase"] == "late") & (steps["engine"] == "alpha")
    for name, sql in WEIGHTS.items():
        chosen = f"SELECT CAST({sql} AS DOUBLE) AS w FROM steps ORDER BY run_id, step_index"
        weights: Array = of_files(archive).execute(chosen).fetchnumpy()["w"]
        options: dict[str, Any] = {"weights": name, "num_samples": 100_000, "columns": COLUMNS}
        drawn = rows_of(table.loader(5000, seed=1, **options), all_keys)
        assert (weights[drawn] > 0).all()
        # The mean weight of a drawn row is the sum of squares by the sum.
        mean = (weights**2).sum() / weights.sum()
        deviation = ((weights**3).sum() / weights.sum() - mean**2) ** 0.5
        assert abs(weights[drawn].mean() - mean) <= 6 * deviation / len(drawn) ** 0.5 + 1e-9 * mean, name
        assert_same(rows_of(table.loader(777, seed=1, replacement=True, **options), all_keys), drawn)
        if (weights * some).any():
            drawn = rows_of(view.loader(5000, seed=1, **options), all_keys)
            assert ((weights * some)[drawn] > 0).all()


@pytest.mark.parametrize("name", BAD)
def test_invalid_weights(table: a2store.StepTable, name: str) -> None:
    with pytest.raises(a2store.ColumnError, match=f"{name}.*{BAD[name][1]}"):
        table.loader(weights=name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "phase"}, "weights.*phase"),
        ({"strata": "missing"}, "strata.*missing"),
        ({"strata": "phase", "quotas": {"early": 1, "midle": 1}}, "quotas.*midle"),
        ({"strata": "phase", "quotas": {"early": -1, "mid": 2}}, "quotas.*early"),
        ({"strata": "phase", "quotas": {"early": float("nan")}}, "quotas.*early"),
        ({"strata": "phase", "quotas": {"early": 1e308, "mid": 1.5e308}}, "quotas.*finite sum"),
        ({"quotas": {"early": 1}}, "quotas.*strata"),
        ({"window": 0}, "window"),
        ({"window": 100, "shuffle": False}, "shuffle.*window"),
        ({"window": 100, "replacement": True}, "replacement"),
        ({"window": 100, "strata": "phase"}, "strata.*window"),
        ({"weights": "w_mod", "strata": "phase"}, "weights.*strata"),
        ({"replacement": True, "shuffle": False}, "shuffle.*replacement"),
        ({"num_samples": 5}, "num_samples"),
    ],
)
def test_invalid_options_are_rejected(table: a2store.StepTable, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        table.loader(**options)


@pytest.mark.parametrize("options", [{"replacement": True}, {"weights": "w_score"}, {"strata": "phase"}], ids=str)
@pytest.mark.parametrize("num_samples", [0, 1000, 50_000])
def test_num_samples(table: a2store.StepTable, all_keys: Array, options: Any, num_samples: int) -> None:
    ranks = [
        table.loader(300, num_samples=num_samples, rank=rank, world_size=2, seed=1, **options) for rank in range(2)
    ]
    assert [len(loader) for loader in ranks] == [-(-num_samples // 600)] * 2
    batches = [batch for step in zip(*ranks, strict=True) for batch in step]
    rows = np.searchsorted(all_keys, row_keys(batches))
    assert len(rows) == num_samples
    # A longer epoch continues a shorter one.
    longer = rows_of(table.loader(999, num_samples=60_000, seed=1, **options), all_keys)
    assert_same(rows, longer[:num_samples])
    whole = table.loader(999, seed=1, **options)
    assert sum(map(len, whole)) == len(table) == whole.state_dict()["num_samples"]


QUOTAS: list[tuple[str, Any, dict[Any, int]]] = [
    ("phase", {"early": 1, "mid": 2, "late": 1}, {"early": 1, "mid": 2, "late": 1}),
    ("phase", {"late": 0.25, "early": 0.75}, {"early": 3, "late": 1}),
    ("phase", {"late": 0.1, "early": 0.7, "mid": 0.2}, {"early": 7, "mid": 2, "late": 1}),
    ("phase", None, {"early": 1, "mid": 1, "late": 1}),
    ("engine", {None: 3, "γάμμα": 2}, {None: 3, "γάμμα": 2}),
    ("engine", None, {None: 1, "alpha": 1, "beta": 1, "γάμμα": 1}),
    ("has_evs", {True: 4, False: 1}, {True: 4, False: 1}),
    ("has_evs", {np.True_: 1, "false": 1}, {True: 1, False: 1}),
    ("max_exp", {np.uint8(7): 1, 8: 3}, {7: 1, 8: 3}),
    ("half", {3.5: 1, 4.0: 3}, {3.5: 1, 4.0: 3}),
]


@pytest.mark.parametrize(("column", "quotas", "shares"), QUOTAS, ids=[f"{c}-{q}" for c, q, _ in QUOTAS])
def test_strata(
    table: a2store.StepTable, all_keys: Array, steps: dict[str, Array], column: str, quotas: Any, shares: dict[Any, int]
) -> None:
    values = steps["max_exp"] * 0.5 if column == "half" else steps[column]
    num_samples = len(table)
    options: dict[str, Any] = {"strata": column, "quotas": quotas, "num_samples": num_samples, "columns": COLUMNS}
    cycle = sum(shares.values())
    batch_size = 60 * cycle
    loader = table.loader(batch_size, seed=1, **options)
    rows = rows_of(loader, all_keys)
    assert len(rows) == num_samples
    drawn = np.stack([values[rows] == value for value in shares], axis=1)
    assert drawn.any(1).all()
    quota = np.array(list(shares.values())) / cycle
    # In every batch and every prefix of an epoch, each stratum has its share, to within one row.
    for start in range(0, num_samples - batch_size, batch_size):
        assert (abs(drawn[start : start + batch_size].sum(0) - quota * batch_size) <= 1).all()
    expected = quota * np.arange(1, num_samples + 1)[:, None]
    assert (abs(drawn.cumsum(0) - expected) < 1 + 1e-9).all()
    assert_same(rows_of(table.loader(977, seed=1, **options), all_keys), rows)


SAME: list[tuple[str, list[Any]]] = [
    ("phase", [None, {"early": 1, "mid": 1, "late": 1}, {"early": 5, "mid": 5, "late": 5}]),
    ("phase", [{"early": 1, "late": 3}, {"late": 0.75, "early": 0.25}, {"early": 7, "late": 21, "mid": 0}]),
    ("phase", [{"mid": 1}, {"mid": 1e308}, {"mid": 0.3, "late": 0}]),
    ("has_evs", [{True: 2, False: 4}, {"true": 1, "false": 2}, {np.True_: 3, False: 6.0}]),
    ("half", [{4: 1, 3.5: 1}, {"4.0": 2, "3.5": 2}]),
    ("engine", [{None: 2, "alpha": 4}, {"null": 1, "alpha": 2}]),
]


@pytest.mark.parametrize(("column", "spellings"), SAME, ids=[f"{column}-{same}" for column, same in SAME])
def test_equal_orders_accept_each_others_states(
    table: a2store.StepTable, all_keys: Array, column: str, spellings: list[Any]
) -> None:
    loaders = [table.loader(700, strata=column, quotas=quotas, seed=4) for quotas in spellings]
    orders = [rows_of(loader, all_keys) for loader in loaders]
    for loader in loaders:
        loader.load_state_dict({**loader.state_dict(), "position": 2100})
    states = [loader.state_dict() for loader in loaders]
    for loader, order in zip(loaders, orders, strict=True):
        assert_same(order, orders[0])
        for state in states:
            assert state == states[0]
            loader.load_state_dict(state)
            assert_same(rows_of(loader, all_keys), orders[0][2100:])


@pytest.mark.parametrize("windows", [(512, 700, 1023), (1, 300, 511), (2 * 10**7, 10**9, 2**64 - 1)])
def test_windows_of_one_size(table: a2store.StepTable, all_keys: Array, windows: tuple[int, ...]) -> None:
    loaders = [table.loader(700, window=window, seed=4) for window in windows]
    orders = [rows_of(loader, all_keys) for loader in loaders]
    states = [loader.state_dict() for loader in loaders]
    for loader, order in zip(loaders, orders, strict=True):
        assert_same(order, orders[0])
        for state in states:
            loader.load_state_dict(state)


def test_strata_of_a_view(table: a2store.StepTable, all_keys: Array, steps: dict[str, Array]) -> None:
    view = table.filter(engine=["alpha", "beta"], phase=["mid", "late"])
    rows = rows_of(view.loader(100, strata="phase", quotas={"mid": 1, "late": 3}), all_keys)
    assert len(rows) == len(view)
    assert set(steps["engine"][rows]) == {"alpha", "beta"}
    assert abs((steps["phase"][rows] == "late").sum() - 0.75 * len(rows)) <= 1
    with pytest.raises(ValueError, match=r"quotas.*early"):
        view.loader(strata="phase", quotas={"early": 1, "mid": 1})


def test_too_many_strata(archive: a2store.Archive) -> None:
    sql = "SELECT board, run_id * 1000 + step_index AS number FROM steps LIMIT"
    table = archive.sql(f"{sql} 4096").materialize(extra=["number"], progress=False)
    assert len({int(batch["number"][0]) for batch in table.loader(1, strata="number")}) == 4096
    table = archive.sql(f"{sql} 4097").materialize(extra=["number"], progress=False)
    with pytest.raises(a2store.ColumnError, match=r"number.*4096"):
        table.loader(strata="number")
