"""A loader's state: resumption with other batch sizes and on other ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import a2store


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
    with pytest.raises(ValueError, match=field):
        loader.load_state_dict({name: value for name, value in state.items() if name != field})
    with pytest.raises(ValueError, match=field):
        loader.load_state_dict({**state, field: [1, 2]})
    with pytest.raises(TypeError):
        loader.load_state_dict([1, 2])  # type: ignore[arg-type]
    assert loader.state_dict() == state
