"""``a2store.mix``: one stream of several tables, beside a count of every row."""

from __future__ import annotations

import itertools
import json
import types
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
import pytest

import a2store
from compare import assert_same, keys
from oracle import Array

pytestmark = pytest.mark.filterwarnings("ignore:the table leaves out these columns:UserWarning")


@pytest.fixture(scope="module")
def tables(archive: a2store.Archive) -> list[a2store.StepTable]:
    """A table in rows of 32 bytes, a view of wider rows, and a small table with its extra columns in another order."""
    sql = "SELECT *, exps(board) AS cells, step_index AS age FROM steps WHERE "
    first = archive.sql(sql + "engine = 'alpha'").materialize(extra=["age"], progress=False)
    second = archive.sql(sql + "engine = 'beta'").materialize(extra=["cells", "max_score", "age"], progress=False)
    third = archive.sql(sql + "run_id IN (44, 59)").materialize(extra=["num_steps", "age"], progress=False)
    return [first, second.split(0.3, seed=4)[0], third]


COLUMNS = ["tokens", "move", "ev_values", "ev_legal", "run_id", "step_index", "board", "age"]


def stream(batches: Iterable[a2store.Batch]) -> Array:
    return np.concatenate([np.array([], "u8"), *(keys(batch.to_dict()) for batch in batches)])


def sources(tables: list[a2store.StepTable], rows: Array) -> Array:
    """Return the number of the table that each row is from."""
    found = np.full(len(rows), -1)
    for k, table in enumerate(tables):
        found[np.isin(rows, keys(table))] = k
    return found


@pytest.mark.parametrize("shares", [[0.7, 0.3, 0], [1, 1, 1], [5, 2, 1], [0.61, 0.29, 0.1], [0, 0, 3]])
def test_shares_and_rows(tables: list[a2store.StepTable], shares: list[float]) -> None:
    for num_samples in (None, 1, 1000, 100_003):
        loader = a2store.mix(zip(tables, shares, strict=True), 997, seed=3, columns=COLUMNS, num_samples=num_samples)
        rows = stream(loader)
        total = sum(map(len, tables)) if num_samples is None else num_samples
        assert len(rows) == total
        from_table = sources(tables, rows)
        assert (from_table >= 0).all()
        for k, (table, share) in enumerate(zip(tables, shares, strict=True)):
            # By how much each prefix exceeds the share of the table. A window is the difference of two prefixes.
            ahead = np.cumsum(from_table == k) - np.arange(1, total + 1) * share / sum(shares)
            assert np.abs(ahead).max() < 1 + 1e-9
            assert np.ptp([0, *ahead]) < (1 if np.count_nonzero(shares) <= 2 else 2) + 1e-9
            # Every row is accounted for.
            counts = Counter(rows[from_table == k].tolist())
            every = [counts[key] for key in keys(table).tolist()]
            drawn = sum(every)
            assert set(every) <= {drawn // len(table), -(-drawn // len(table))}
            assert sum(counts.values()) == drawn


def test_values_are_those_of_the_tables(tables: list[a2store.StepTable]) -> None:
    for batch_size, tokens, prefetch in [(1, "uint8", 0), (4095, "int32", 2), (9000, "int64", 0)]:
        options: dict[str, Any] = {"tokens": tokens, "prefetch": prefetch, "columns": COLUMNS, "num_samples": 20_000}
        for batch in islice(a2store.mix([(table, 1) for table in tables], batch_size, **options), 5):
            from_table = sources(tables, keys(batch.to_dict()))
            for k, table in enumerate(tables):
                mine = np.flatnonzero(from_table == k)
                places = np.searchsorted(keys(table), keys(batch.to_dict())[mine])
                expected = table.take(places)
                for name in COLUMNS:
                    assert_same(batch[name][mine], expected[name].astype(batch[name].dtype), name)


def test_symmetries_turn_rows_as_alone(tables: list[a2store.StepTable]) -> None:
    columns = ["board", "run_id", "step_index", "tokens"]
    (alone,) = tables[0].loader(len(tables[0]), shuffle=False, seed=5, symmetries=True, columns=columns)
    mixed = a2store.mix([(tables[0], 2), (tables[1], 1)], 512, seed=5, symmetries=True, columns=columns)
    turned = dict(zip(keys(alone.to_dict()).tolist(), alone.board.tolist(), strict=True))
    for batch in islice(mixed, 20):
        own = [key in turned for key in keys(batch.to_dict()).tolist()]
        found = [turned.get(key) for key in keys(batch.to_dict()).tolist()]
        assert [board for board, is_own in zip(batch.board.tolist(), own, strict=True) if is_own] == [
            board for board in found if board is not None
        ]


def test_one_stream_on_any_number_of_ranks_and_after_a_resume(tables: list[a2store.StepTable]) -> None:
    parts = list(zip(tables, (0.5, 0.3, 0.2), strict=True))
    whole = stream(a2store.mix(parts, 4096, seed=9, epoch=1, columns=COLUMNS))
    for batch_size, world_size, prefetch in itertools.product((1, 333, 5000), (1, 2, 3), (0, 2)):
        if batch_size == 1 and prefetch:
            continue
        options: dict[str, Any] = {"seed": 9, "columns": COLUMNS, "prefetch": prefetch, "world_size": world_size}
        ranks = [a2store.mix(parts, batch_size, epoch=1, rank=rank, **options) for rank in range(world_size)]
        assert len({len(loader) for loader in ranks}) == 1
        steps = min(6, len(ranks[0]) - 1)
        begun = [list(islice(loader, steps)) for loader in ranks]
        first = [batch for step in zip(*begun, strict=True) for batch in step]
        assert_same(stream(first), whole[: steps * batch_size * world_size])
        states = [json.loads(json.dumps(loader.state_dict())) for loader in ranks]
        assert all(state == states[0] for state in states)
        after = a2store.mix(parts, 700, seed=9, columns=COLUMNS)
        after.load_state_dict(states[0])
        assert_same(stream(after), whole[steps * batch_size * world_size :])


def test_epochs_differ(tables: list[a2store.StepTable]) -> None:
    loader = a2store.mix([(tables[0], 1), (tables[1], 1)], 1000, seed=2, columns=COLUMNS)
    epochs = [stream(loader) for _ in range(3)]
    assert len({epoch.tobytes() for epoch in epochs}) == 3
    loader.set_epoch(1)
    assert_same(stream(loader), epochs[1])
    other = a2store.mix([(tables[0], 1), (tables[1], 1)], 1000, seed=3, columns=COLUMNS)
    assert stream(other).tobytes() != epochs[0].tobytes()


def test_states_of_other_mixes(tables: list[a2store.StepTable]) -> None:
    first, second, third = tables

    def mixed(*parts: tuple[a2store.StepTable, float], **options: Any) -> a2store.Loader:
        return a2store.mix(parts, columns=COLUMNS, **options)

    state = mixed((first, 1), (second, 3)).state_dict()
    own = first.loader().state_dict()
    assert (state["archive"], state["archive_version"]) == (own["archive"], own["archive_version"])
    assert state["query"] == ""
    assert mixed((first, 1), (first, 3)).state_dict()["query"] == own["query"] != ""
    mixed((first, 0.25), (second, 0.75)).load_state_dict(state)
    others = [
        mixed((first, 3), (second, 1)),
        mixed((second, 1), (first, 3)),
        mixed((first, 1), (third, 3)),
        mixed((first, 1), (second, 3), (third, 0)),
        mixed((first, 1), (second, 3), seed=1),
        first.loader(),
    ]
    for other in others:
        with pytest.raises(a2store.StateMismatchError):
            other.load_state_dict(state)


def test_wrong_mixes(tables: list[a2store.StepTable], archive: a2store.Archive) -> None:
    first, second, third = tables
    empty = first.filter(run_ids=[])
    codes = archive.sql("SELECT * FROM steps").materialize(extra=["engine"], progress=False)
    fewer = archive.sql("SELECT * FROM steps WHERE engine = 'beta'").materialize(extra=["engine"], progress=False)
    cases: list[tuple[Any, str]] = [
        ([], "tables: expected at least one, found none"),
        (
            [(first, 1), (second, 1)],
            r"tables: expected age <i?u?[0-9]+, as in table 0, found cells 16 × u1 in table 1|age",
        ),
        (
            [(codes, 1), (fewer, 1)],
            "tables: expected engine with the categories alpha, beta, γάμμα, as in table 0, found",
        ),
        ([(first, 1), (third, -1)], "shares: expected finite numbers of at least 0, found -1"),
        ([(first, 1), (third, float("nan"))], "shares: expected finite numbers"),
        ([(first, 0), (third, 0)], "shares: expected at least one above 0"),
        ([(first, 1), (third, 1e-9)], "shares: expected shares of at least 1 in 65536"),
        ([(first, 1), (empty, 1)], "shares: expected 0 for a table without rows, found 1 for table 1"),
    ]
    for parts, message in cases:
        columns = None if "categories" in message or "cells" in message else COLUMNS
        with pytest.raises(ValueError, match=message):
            a2store.mix(parts, columns=columns)
    assert len(a2store.mix([(first, 1), (empty, 0)], columns=COLUMNS)) > 0
    for wrong in (first, [first], [(first,)], [(1, 2)], None, 3):
        with pytest.raises(TypeError, match="tables: expected pairs of a StepTable and its share, or a dict"):
            a2store.mix(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="tables: expected a number as a table's share, found '1'"):
        a2store.mix([(first, "1")])  # type: ignore[list-item]


def test_a_mix_as_tensors(tables: list[a2store.StepTable]) -> None:
    torch = pytest.importorskip("torch")
    from a2store.torch import StepLoader

    parts = {tables[0]: 0.75, tables[1]: 0.25}
    expected = a2store.mix(parts, 640, seed=4, columns=["board", "move"], symmetries=True)
    loader = StepLoader(parts, 640, seed=4, columns=["board", "move"], symmetries=True)
    assert len(loader) == len(expected)
    for tensors, batch in zip(loader, expected, strict=True):
        assert torch.equal(tensors["board"], torch.from_numpy(batch.board.view("i8")))
    with pytest.raises(ValueError, match="weights: expected the default for several tables"):
        StepLoader(parts, weights="age")


def test_shares_that_are_rounded(tables: list[a2store.StepTable]) -> None:
    first, second, third = tables
    names = [
        ([(first, 0.7), (second, 0.3)], "mixed 7 3"),
        ([(first, 1 / 3), (second, 2 / 3)], "mixed 1 2"),
        ([(first, 0.1), (second, 0.2), (third, 0.7)], "mixed 1 2 7"),
        ([(first, 2**0.5), (second, 1)], "mixed 19601 13860"),
        ([(first, 1e-3), (second, 0.999)], "mixed 1 999"),
    ]
    for parts, name in names:
        assert a2store.mix(parts, columns=COLUMNS).state_dict()["order"] == name
    assert "mixed 7 3" in repr(a2store.mix(types.MappingProxyType({first: 0.7, second: 0.3}), columns=COLUMNS))
