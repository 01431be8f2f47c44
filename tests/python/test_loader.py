"""Loaders: every row once per epoch, with any number of ranks, in the order of the epoch; their states, and skips."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
import oracle
from compare import assert_same, row_keys
from oracle import Array


def test_batches_hold_the_tables_values(table: a2store.StepTable, all_keys: Array) -> None:
    rows = np.asarray(table)
    for batch in table.loader(3000, seed=5):
        expected = rows[np.searchsorted(all_keys, row_keys([batch]))]
        for name in ("board", "move", "ev_values", "run_id", "step_index"):
            assert_same(batch[name], expected[name], name)
        assert_same(batch.tokens, oracle.tokens(expected["board"]))
        assert_same(batch.ev_legal, oracle.mask_bits(expected["ev_legal"]))


@pytest.mark.parametrize(
    "columns", [["tokens"], ["ev_legal", "move"], ["board", "run_id", "step_index", "ev_values", "tokens"], []]
)
def test_columns(table: a2store.StepTable, columns: list[str]) -> None:
    full = list(table.loader(4096, seed=2))
    some = list(table.loader(4096, seed=2, columns=columns[0] if len(columns) == 1 else columns))
    assert len(full) == len(some)
    for all_columns, batch in zip(full, some, strict=True):
        assert (batch.keys(), len(batch)) == (columns, len(all_columns))
        for name in columns:
            assert_same(batch[name], all_columns[name], name)
        for name in set(all_columns.keys()) - set(columns):
            assert name not in batch


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_batches_that_are_kept_are_never_overwritten(table: a2store.StepTable, all_keys: Array, prefetch: int) -> None:
    batches = list(table.loader(500, seed=7, prefetch=prefetch))
    copies = [{name: values.copy() for name, values in batch.to_dict().items()} for batch in batches]
    # Later epochs and loaders reuse only free memory.
    arrays = [batch.board for batch in batches]
    records = [pa.record_batch(batch) for batch in batches[:10]]
    for epoch in range(3):
        row_keys(table.loader(500, seed=8, epoch=epoch, prefetch=prefetch))
    assert_same(np.sort(row_keys(batches)), all_keys)
    for batch, copy in zip(batches, copies, strict=True):
        for name, values in copy.items():
            assert_same(batch[name], values, name)
    del batches, batch
    gc.collect()
    for array, copy in zip(arrays, copies, strict=True):
        assert_same(array, copy["board"])
    for record, copy in zip(records, copies, strict=False):
        assert_same(record["board"].to_numpy(), copy["board"])


def test_an_array_alone_keeps_its_memory(table: a2store.StepTable) -> None:
    kept, copies = [], []
    for batch in table.loader(500, seed=9, prefetch=2):
        kept.append(batch.ev_values[10:20])
        copies.append(kept[-1].copy())
        del batch
    for view, copy in zip(kept, copies, strict=True):
        assert_same(view, copy)


# States


def test_the_state_counts_served_batches(table: a2store.StepTable) -> None:
    loader = table.loader(1000, seed=1, prefetch=4)
    assert loader.state_dict()["position"] == 0
    for number, _ in enumerate(loader, start=1):
        assert loader.state_dict()["position"] == min(1000 * number, len(table))
    state = loader.state_dict()
    assert state["position"] == state["num_rows"] == len(table)
    assert (state["version"], state["order"], state["rows"]) == (1, "shuffled", table.fingerprint)
    assert state["symmetries"] is False
    assert (state["seed"], state["epoch"], state["num_samples"]) == (1, 0, len(table))
    assert table.loader(shuffle=False).state_dict()["order"] == "sequential"
    loader.set_epoch(1)
    assert (loader.state_dict()["position"], loader.state_dict()["epoch"]) == (0, 1)


@pytest.fixture(scope="module")
def with_extras(archive: a2store.Archive) -> a2store.StepTable:
    sql = "SELECT *, CAST(step_index AS FLOAT) AS step FROM steps"
    return archive.sql(sql).materialize(extra=["step", "phase"], progress=False)


def test_the_order_is_part_of_the_state(with_extras: a2store.StepTable) -> None:
    quotas: list[Any] = [{"early": 1, "late": 2}, {"late": 1, "early": 2}, {"early": 1, "late": 2, "mid": 1}]
    orders: list[dict[str, Any]] = [
        {},
        {"shuffle": False},
        {"replacement": True},
        {"window": 600},
        {"window": 1200},
        {"weights": "step"},
        {"strata": "step"},
        {"strata": "phase"},
        *({"strata": "phase", "quotas": some} for some in quotas),
    ]
    states = [with_extras.loader(**order).state_dict() for order in orders]
    assert len({state["order"] for state in states}) == len(orders)
    for order in orders:
        for state in (state for state, other in zip(states, orders, strict=True) if other is not order):
            with pytest.raises(a2store.StateMismatchError, match="order"):
                with_extras.loader(**order).load_state_dict(state)
    # The order of the quotas does not matter.
    reordered = with_extras.loader(strata="phase", quotas={"late": 2, "early": 1})
    assert reordered.state_dict() == states[8]
    # Quotas in the same proportion give the same state.
    multiples: list[dict[Any, float]] = [{"late": 4, "early": 2}, {"late": 6.0, "early": 3, "mid": 0}]
    for equal in multiples:
        assert with_extras.loader(strata="phase", quotas=equal).state_dict() == states[8]
    with pytest.raises(a2store.StateMismatchError, match="num_samples"):
        with_extras.loader(replacement=True, num_samples=5).load_state_dict(states[2])


def test_a_state_is_small(archive: a2store.Archive) -> None:
    name = "é" * 100
    sql = f'SELECT *, CAST(step_index AS VARCHAR) AS "{name}" FROM steps'
    table = archive.sql(sql).materialize(extra=[name], progress=False).filter(min_score=1)
    steps = table.categories[name]
    assert len(steps) > 300
    loaders = [
        table.loader(strata=name, quotas=dict.fromkeys(steps[start:], 0.5), num_samples=2**62, seed=2**64 - 1)
        for start in (0, 1)
    ]
    states = [{**loader.state_dict(), "epoch": 2**64 - 1, "position": 2**62} for loader in loaders]
    assert all(len(json.dumps(state, ensure_ascii=False).encode()) <= 512 for state in states)
    for loader, state in zip(loaders, states, strict=True):
        loader.load_state_dict(state)
    with pytest.raises(a2store.StateMismatchError, match="order"):
        loaders[0].load_state_dict(states[1])


def test_states_of_other_loaders(
    archive: a2store.Archive, table: a2store.StepTable, one_run: a2store.Archive, run_files: list[Path], tmp_path: Path
) -> None:
    other = archive.sql("SELECT * FROM steps WHERE phase = 'late'").materialize(progress=False)
    with pytest.raises(a2store.StateMismatchError, match=r"\bnum_rows\b") as caught:
        table.loader().load_state_dict(other.loader().state_dict())
    assert caught.value.kind == "state_mismatch"
    with pytest.raises(a2store.StateMismatchError, match="seed"):
        table.loader(seed=1).load_state_dict(table.loader(seed=2).state_dict())
    with pytest.raises(a2store.StateMismatchError, match=r"order.*shuffled.*sequential"):
        table.loader(shuffle=True).load_state_dict(table.loader(shuffle=False).state_dict())

    # The same rows of another archive, other rows of the same number, and then more rows.
    twin = a2store.Archive.create(tmp_path / "twin.a2")
    twin.ingest(run_files[0], progress=False)
    old, new = (source.sql("SELECT * FROM steps").materialize(progress=False) for source in (one_run, twin))
    state = old.loader().state_dict()
    assert state["archive_version"] == one_run.version
    assert state["query"] == new.loader().state_dict()["query"] != other.loader().state_dict()["query"]
    assert len({"", state["archive"], new.loader().state_dict()["archive"]}) == 3
    new.loader().load_state_dict(state)
    for sql in ("SELECT * FROM steps ORDER BY step_index DESC", "SELECT * EXCEPT (ev_up) FROM steps"):
        with pytest.raises(a2store.StateMismatchError, match=r"\brows\b"):
            one_run.sql(sql).materialize(progress=False).loader().load_state_dict(state)
    one_run.ingest(run_files[1], progress=False)
    new = one_run.sql("SELECT * FROM steps").materialize(progress=False)
    with pytest.raises(a2store.StateMismatchError, match="num_rows"):
        new.loader().load_state_dict(state)


FIELDS = [
    "version",
    "archive",
    "archive_version",
    "query",
    "rows",
    "num_rows",
    "num_samples",
    "order",
    "seed",
    "symmetries",
    "epoch",
    "position",
]


@pytest.mark.parametrize("field", FIELDS)
def test_invalid_states(table: a2store.StepTable, field: str) -> None:
    loader = table.loader()
    state = loader.state_dict()
    assert list(state) == FIELDS
    for wrong in ({name: value for name, value in state.items() if name != field}, {**state, field: [1, 2]}):
        with pytest.raises(ValueError, match=field):
            loader.load_state_dict(wrong)
    with pytest.raises(TypeError):
        loader.load_state_dict([1, 2])  # type: ignore[arg-type]
    assert loader.state_dict() == state


# ``skip_batches`` of loaders, and ``transform=`` of ``StepLoader``


@pytest.mark.parametrize("prefetch", [0, 2])
def test_skipped_batches(table: a2store.StepTable, prefetch: int) -> None:
    """On several ranks, and beyond the end. test_position.py skips at any place."""
    whole = row_keys(table.loader(500, seed=5))
    for too_many in (len(whole) // 500 + 1, 2**64 - 1):
        loader = table.loader(500, seed=5, prefetch=prefetch)
        loader.skip_batches(too_many)
        assert loader.state_dict()["position"] == len(table)
    ranks = [table.loader(500, seed=5, rank=rank, world_size=3, prefetch=prefetch) for rank in range(3)]
    for loader in ranks:
        loader.skip_batches(2)
    batches = [batch for step in zip(*ranks, strict=True) for batch in step]
    assert_same(row_keys(batches), whole[3000:])


def test_in_pytorch(table: a2store.StepTable) -> None:
    torch = pytest.importorskip("torch")
    from a2store.torch import StepLoader

    def doubled(batch: dict[str, Any]) -> dict[str, Any]:
        return {"twice": batch["move"] * 2}

    loader = StepLoader(table, 700, seed=2, transform=doubled)
    plain = StepLoader(table, 700, seed=2)
    for _ in range(2):
        for tensors, expected in zip(loader, plain, strict=True):
            assert list(tensors) == ["twice"]
            assert torch.equal(tensors["twice"], expected["move"] * 2)
    with pytest.raises(TypeError, match="transform: expected a function of a batch, found str"):
        StepLoader(table, transform="double")  # type: ignore[arg-type]


def test_a_stop_iteration_is_no_end(table: a2store.StepTable) -> None:
    def transform(batch: dict[str, Any]) -> Any:
        return next(iter(()))

    torch_loader = pytest.importorskip("a2store.torch").StepLoader(table, 1000, transform=transform)
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(torch_loader)


def test_positions_reach_persistent_workers(table: a2store.StepTable) -> None:
    pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    from a2store.torch import StepLoader

    for persistent in (True, False):
        loader = StepLoader(table, 1000, seed=1)
        served = DataLoader(loader, batch_size=None, num_workers=1, persistent_workers=persistent)
        assert len(list(served)) == len(loader)
        loader.load_state_dict({**loader.state_dict(), "epoch": 2, "position": 8000})
        assert len(list(served)) == len(loader) - 8
        loader.set_epoch(0)
        loader.skip_batches(3)
        assert len(list(served)) == len(loader) - 3
        # An iteration in this process counts too, if the workers are copies of the loader after it.
        loader = StepLoader(table, 1000, seed=1, epoch=4)
        next(iter(loader))
        served = DataLoader(loader, batch_size=None, num_workers=2, persistent_workers=persistent)
        for epoch in (5, 6):
            expected = [tensors["board"].tolist() for tensors in StepLoader(table, 1000, seed=1, epoch=epoch)]
            assert [tensors["board"].tolist() for tensors in served] == expected
