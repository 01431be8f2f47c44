"""``transform=`` and ``skip_batches`` of loaders."""

from __future__ import annotations

import gc
import os
import signal
import threading
from itertools import islice
from typing import Any

import pytest

import a2store
from compare import assert_same, row_keys


@pytest.fixture(scope="module")
def table(archive: a2store.Archive) -> a2store.StepTable:
    return archive.sql("SELECT * FROM steps").materialize(progress=False)


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_results_come_in_order(table: a2store.StepTable, prefetch: int) -> None:
    threads: set[int] = set()

    def transform(batch: a2store.Batch) -> tuple[list[int], str]:
        threads.add(threading.get_ident())
        return row_keys([batch]).tolist(), "of a batch"

    loader: Any = table.loader(1000, seed=3, prefetch=prefetch, transform=transform)
    plain = table.loader(1000, seed=3)
    for _ in range(2):
        for result, batch in zip(loader, plain, strict=True):
            assert result == (row_keys([batch]).tolist(), "of a batch")
            # Only results that the loop has got count.
            assert loader.state_dict() == plain.state_dict()
    assert (threading.get_ident() in threads) == (prefetch == 0)
    assert len(threads) <= 2


@pytest.mark.parametrize("prefetch", [0, 3])
def test_an_error_is_raised_at_its_batch(table: a2store.StepTable, prefetch: int) -> None:
    made: list[int] = []

    def transform(batch: a2store.Batch) -> int:
        made.append(len(made))
        if made[-1] == 4:
            raise RuntimeError("the fifth batch")
        return len(batch)

    loader: Any = table.loader(1000, prefetch=prefetch, transform=transform)
    results = iter(loader)
    assert list(islice(results, 4)) == [1000] * 4
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the fifth batch"):
            next(results)
    assert loader.state_dict()["position"] == 4000
    # The next iteration can continue at the batch that failed.
    loader.skip_batches(0)
    assert sum(loader) == len(table) - 4000


def test_a_loop_that_is_left(table: a2store.StepTable) -> None:
    for _ in range(5):
        for result in table.loader(100, transform=lambda batch: batch.move, prefetch=3):
            assert result is not None
            break
    gc.collect()
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("a2store-transform")]
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_in_a_forked_child(table: a2store.StepTable) -> None:
    loader: Any = table.loader(1000, seed=1, transform=lambda batch: batch.move)
    results = iter(loader)
    next(results)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            next(results)
        except RuntimeError as error:
            good = "belongs to another process" in str(error)
            good = good and sum(map(len, loader)) == len(table)
            os._exit(0 if good else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(next(results)) == 1000


def test_what_is_no_function(table: a2store.StepTable) -> None:
    with pytest.raises(TypeError, match="transform: expected a function of a batch, found int"):
        table.loader(transform=3)  # type: ignore[arg-type]


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
    with pytest.raises(TypeError, match="transform: expected a function of a batch, found str"):
        StepLoader(table, transform="double")  # type: ignore[arg-type]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_stop_iteration_is_no_end(table: a2store.StepTable, prefetch: int) -> None:
    def transform(batch: a2store.Batch) -> object:
        return next(iter(()))

    with pytest.raises(RuntimeError, match="the transform raised StopIteration"):
        list(table.loader(1000, prefetch=prefetch, transform=transform))
    torch_loader = pytest.importorskip("a2store.torch").StepLoader(table, 1000, transform=transform)
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(torch_loader)


def test_an_interrupted_transform_loses_no_batch(table: a2store.StepTable) -> None:
    interrupted: list[int] = []

    def transform(batch: a2store.Batch) -> int:
        if len(interrupted) == 0:
            interrupted.append(1)
            raise KeyboardInterrupt
        return len(batch)

    results: Any = iter(table.loader(1000, prefetch=0, transform=transform))
    with pytest.raises(KeyboardInterrupt):
        next(results)
    assert sum(results) == len(table)


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
