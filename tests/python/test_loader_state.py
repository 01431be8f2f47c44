"""A loader's state: going on where another stood, with other batches and on other ranks."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest

import a2store
from compare import assert_same, row_keys
from oracle import Array


def epoch_keys(loaders: list[a2store.Loader]) -> Array:
    """The rest of the epoch as all ranks together serve it: step by step, in the order of the ranks."""
    return row_keys(batch for step in zip(*loaders, strict=True) for batch in step)


@pytest.fixture(scope="module")
def stream(table: a2store.StepTable) -> Array:
    """The whole epoch 2 of seed 1."""
    return row_keys(table.loader(4096, seed=1, epoch=2))


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize(("batch_size", "world_size"), [(500, 1), (501, 1), (1200, 2), (97, 3), (30_000, 1), (500, 4)])
def test_the_rest_of_an_epoch_on_another_topology(
    table: a2store.StepTable, batch_size: int, world_size: int, prefetch: int, shuffle: bool
) -> None:
    order: dict[str, Any] = {"seed": 1, "epoch": 2, "shuffle": shuffle}
    whole = row_keys(table.loader(4096, **order))
    before = [table.loader(700, rank=rank, world_size=2, prefetch=prefetch, **order) for rank in range(2)]
    served = [list(islice(loader, 5)) for loader in before]
    states = [loader.state_dict() for loader in before]
    assert states[0] == states[1]
    assert states[0]["position"] == 5 * 2 * 700
    # The state goes through JSON, as a checkpoint may have it.
    state = json.loads(json.dumps(states[0]))
    after = [
        table.loader(batch_size, rank=rank, world_size=world_size, prefetch=prefetch, seed=1, shuffle=shuffle)
        for rank in range(world_size)
    ]
    for loader in after:
        loader.load_state_dict(state)
        assert loader.epoch == 2
        assert loader.state_dict() == state
        # As a loop over epochs does on its way.
        loader.set_epoch(2)
    assert_same(epoch_keys(after), whole[7000:])
    both = [batch for step in zip(*served, strict=True) for batch in step]
    assert_same(row_keys(both), whole[:7000])
    # Only the next iteration goes on; the one after it is a whole epoch.
    assert_same(epoch_keys(after), whole)


def test_the_state_counts_what_was_handed_out(table: a2store.StepTable) -> None:
    loader = table.loader(1000, seed=1, prefetch=4)
    assert loader.state_dict()["position"] == 0
    for number, _ in enumerate(loader, start=1):
        assert loader.state_dict()["position"] == min(1000 * number, len(table))
    state = loader.state_dict()
    assert state["position"] == state["num_rows"] == len(table)
    assert state["fingerprint"] == table.fingerprint
    assert (state["seed"], state["epoch"], state["shuffle"]) == (1, 0, True)
    loader.set_epoch(1)
    assert (loader.state_dict()["position"], loader.state_dict()["epoch"]) == (0, 1)


def test_the_end_of_an_epoch(table: a2store.StepTable) -> None:
    loader = table.loader(1000, seed=1)
    whole = row_keys(loader)
    state = loader.state_dict()
    resumed = table.loader(2000, seed=1)
    resumed.load_state_dict(state)
    assert list(resumed) == []
    assert_same(row_keys(resumed), whole)
    resumed.load_state_dict(state)
    resumed.set_epoch(1)
    assert_same(row_keys(resumed), row_keys(table.loader(2000, seed=1, epoch=1)))


def test_a_state_with_drop_last(table: a2store.StepTable, stream: Array) -> None:
    loader = table.loader(1000, seed=1, epoch=2, drop_last=True)
    for _ in islice(loader, 3):
        pass
    resumed = table.loader(1500, seed=1, drop_last=True)
    resumed.load_state_dict(loader.state_dict())
    rest = row_keys(resumed)
    assert len(rest) == (len(stream) - 3000) // 1500 * 1500
    assert_same(rest, stream[3000 : 3000 + len(rest)])


def test_a_state_of_an_equal_table(archive: a2store.Archive, table: a2store.StepTable, stream: Array) -> None:
    loader = table.loader(1000, seed=1, epoch=2)
    for _ in islice(loader, 3):
        pass
    again = archive.sql("SELECT * FROM steps").materialize(progress=False)
    resumed = again.loader(1000, seed=1)
    resumed.load_state_dict(loader.state_dict())
    assert_same(row_keys(resumed), stream[3000:])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", 2),
        ("fingerprint", "0" * 32),
        ("num_rows", 5),
        ("shuffle", False),
        ("seed", 4),
        ("position", 10**9),
    ],
)
def test_a_state_that_does_not_match(table: a2store.StepTable, stream: Array, field: str, value: object) -> None:
    loader = table.loader(4096, seed=1, epoch=2)
    next(iter(loader))
    state = loader.state_dict()
    with pytest.raises(a2store.StateMismatchError, match=field) as caught:
        loader.load_state_dict({**state, "epoch": 7, "position": 1, field: value})
    assert caught.value.kind == "state_mismatch"
    # The loader stays as it was.
    assert loader.state_dict() == state
    assert_same(row_keys(loader), stream)


def test_states_of_other_loaders(archive: a2store.Archive, table: a2store.StepTable) -> None:
    other = archive.sql("SELECT * FROM steps WHERE phase = 'late'").materialize(progress=False)
    with pytest.raises(a2store.StateMismatchError, match="fingerprint"):
        table.loader().load_state_dict(other.loader().state_dict())
    with pytest.raises(a2store.StateMismatchError, match="seed"):
        table.loader(seed=1).load_state_dict(table.loader(seed=2).state_dict())
    with pytest.raises(a2store.StateMismatchError, match="shuffle"):
        table.loader(shuffle=True).load_state_dict(table.loader(shuffle=False).state_dict())


@pytest.mark.parametrize("field", ["version", "fingerprint", "num_rows", "shuffle", "seed", "epoch", "position"])
def test_what_is_no_state(table: a2store.StepTable, field: str) -> None:
    loader = table.loader()
    state = loader.state_dict()
    assert set(state) == {"version", "fingerprint", "num_rows", "shuffle", "seed", "epoch", "position"}
    with pytest.raises(ValueError, match=field):
        loader.load_state_dict({name: value for name, value in state.items() if name != field})
    with pytest.raises(ValueError, match=field):
        loader.load_state_dict({**state, field: [1, 2]})
    with pytest.raises(TypeError):
        loader.load_state_dict([1, 2])  # type: ignore[arg-type]
    assert loader.state_dict() == state
