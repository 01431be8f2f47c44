"""``skip_batches`` of loaders, and ``transform=`` of ``StepLoader``."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

import a2store
from compare import assert_same, row_keys


@pytest.fixture(scope="module")
def table(archive: a2store.Archive) -> a2store.StepTable:
    return archive.sql("SELECT * FROM steps").materialize(progress=False)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_skipped_batches(table: a2store.StepTable, prefetch: int) -> None:
    whole = row_keys(table.loader(500, seed=5))
    following = row_keys(table.loader(500, seed=5, epoch=1))
    for begun, skipped in [(0, 0), (0, 7), (3, 0), (3, 2), (10, 1)]:
        loader = table.loader(500, seed=5, prefetch=prefetch)
        assert len(list(islice(loader, begun))) == begun
        loader.skip_batches(skipped)
        assert loader.state_dict()["position"] == 500 * (begun + skipped)
        assert_same(row_keys(loader), whole[500 * (begun + skipped) :])
        assert_same(row_keys(loader), following)
    for too_many in (len(whole) // 500 + 1, 2**63, 2**64 - 1):
        loader = table.loader(500, seed=5, prefetch=prefetch)
        loader.skip_batches(too_many)
        assert loader.state_dict()["position"] == len(table)
        assert_same(row_keys(loader), following)
    ranks = [table.loader(500, seed=5, rank=rank, world_size=3, prefetch=prefetch) for rank in range(3)]
    for loader in ranks:
        loader.skip_batches(2)
    batches = [batch for step in zip(*ranks, strict=True) for batch in step]
    assert_same(row_keys(batches), whole[3000:])
    for n in (-1, 2**64):
        with pytest.raises(ValueError, match="n: expected"):
            table.loader().skip_batches(n)


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
    whole = [tensors["board"] for tensors in StepLoader(table, 700, seed=2)]
    skipping = StepLoader(table, 700, seed=2)
    assert len(list(islice(skipping, 4))) == 4
    skipping.skip_batches(3)
    rest = [tensors["board"] for tensors in skipping]
    assert torch.equal(torch.cat(rest), torch.cat(whole[7:]))
    assert skipping.epoch == 1
    with pytest.raises(TypeError, match="transform: expected a function of a batch, found str"):
        StepLoader(table, transform="double")  # type: ignore[arg-type]


def test_epochs_of_data_loaders(table: a2store.StepTable) -> None:
    """Each iteration of a ``DataLoader`` serves the next epoch in all workers, persistent or not."""
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    from a2store.torch import StepLoader

    whole = [torch.cat([t["board"] for t in StepLoader(table, 900, seed=8, epoch=epoch)]) for epoch in range(8)]
    for workers, persistent in [(0, False), (1, False), (2, False), (2, True)]:
        loader = StepLoader(table, 900, seed=8)
        served = DataLoader(loader, batch_size=None, num_workers=workers, persistent_workers=persistent)
        for epoch in range(3):
            assert torch.equal(torch.cat([t["board"] for t in served]), whole[epoch]), (workers, persistent, epoch)
        loader.set_epoch(5)
        for epoch in (5, 6):
            assert torch.equal(torch.cat([t["board"] for t in served]), whole[epoch]), (workers, persistent, epoch)
        loader.set_epoch(5)
        assert torch.equal(torch.cat([t["board"] for t in served]), whole[5])
    # A state of the middle of an epoch, in workers that live for one iteration.
    begun = StepLoader(table, 900, seed=8, epoch=3)
    assert len(list(islice(begun, 4))) == 4
    loader = StepLoader(table, 900, seed=8)
    loader.load_state_dict(begun.state_dict())
    served = DataLoader(loader, batch_size=None, num_workers=2)
    assert torch.equal(torch.cat([t["board"] for t in served]), whole[3][3600:])
    assert torch.equal(torch.cat([t["board"] for t in served]), whole[4])
    assert np.unique(torch.cat(whole[:2]).numpy()).size > 0


def test_a_stop_iteration_is_no_end(table: a2store.StepTable) -> None:
    def transform(batch: dict[str, Any]) -> Any:
        return next(iter(()))

    torch_loader = pytest.importorskip("a2store.torch").StepLoader(table, 1000, transform=transform)
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(torch_loader)


def test_ends_of_epochs(table: a2store.StepTable) -> None:
    loader = table.loader(1000, seed=1)
    assert len(list(loader)) == len(loader)
    loader.load_state_dict(loader.state_dict())
    loader.set_epoch(0)
    assert (len(list(loader)), loader.epoch) == (0, 1)
    # After a finished epoch, batches of the next one are skipped.
    assert len(list(loader)) == len(loader)
    loader.skip_batches(5)
    assert (loader.epoch, len(list(loader))) == (2, len(loader) - 5)


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
        served = DataLoader(loader, batch_size=None, num_workers=1, persistent_workers=persistent)
        expected = [tensors["board"].tolist() for tensors in StepLoader(table, 1000, seed=1, epoch=5)]
        assert [tensors["board"].tolist() for tensors in served] == expected
        expected = [tensors["board"].tolist() for tensors in StepLoader(table, 1000, seed=1, epoch=6)]
        assert [tensors["board"].tolist() for tensors in served] == expected
