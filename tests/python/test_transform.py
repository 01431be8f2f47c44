"""``skip_batches`` of loaders, and ``transform=`` of ``StepLoader``."""

from __future__ import annotations

from typing import Any

import pytest

import a2store
from compare import assert_same, row_keys


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
        expected = [tensors["board"].tolist() for tensors in StepLoader(table, 1000, seed=1, epoch=5)]
        assert [tensors["board"].tolist() for tensors in served] == expected
        expected = [tensors["board"].tolist() for tensors in StepLoader(table, 1000, seed=1, epoch=6)]
        assert [tensors["board"].tolist() for tensors in served] == expected
