"""Batches as PyTorch tensors."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import a2store
from a2store import _table_loader
from a2store._tensors import tensors_of
from a2store.torch import StepLoader
from compare import BATCH_COLUMNS, assert_same, row_keys

Tensors = dict[str, torch.Tensor]

WIDENED = {"tokens": torch.int64, "run_id": torch.int64, "step_index": torch.int32, "board": torch.int64}
"""The types of the columns that are unsigned and wide. All others keep their types."""
SHAPES = {"tokens": (16,), "ev_values": (4,), "ev_legal": (4,)}


def test_tensors_equal_the_arrays(table: a2store.StepTable) -> None:
    loader = StepLoader(table, 1000, seed=3)
    arrays = table.loader(1000, seed=3, tokens="int64")
    assert len(loader) == len(arrays)
    count = 0
    for tensors, batch in zip(loader, arrays, strict=True):
        assert list(tensors) == BATCH_COLUMNS
        for name, tensor in tensors.items():
            assert tensor.dtype == WIDENED.get(name, torch.from_numpy(batch[name]).dtype), name
            assert tensor.shape == (len(batch), *SHAPES.get(name, ()))
            assert (tensor.device.type, tensor.is_contiguous()) == ("cpu", True)
            expected = batch[name].view("i8") if name == "board" else batch[name]
            assert_same(tensor.numpy(), expected.astype(tensor.numpy().dtype), name)
        count += len(batch)
    assert count == len(table)


# Rows by index


@pytest.fixture(scope="module")
def rich(archive: a2store.Archive) -> a2store.StepTable:
    """A table with extra columns to draw by, and one column of every type that PyTorch lacks."""
    sql = """
        SELECT *, CAST(step_index + 1 AS DOUBLE) AS age, CAST(num_steps AS SMALLINT UNSIGNED) AS short,
            CAST(board AS BIGINT UNSIGNED) AS bits
        FROM steps"""
    extra = ["age", "engine", "phase", "short", "highest_tile", "bits", "max_score", "has_evs", "ev_up"]
    return archive.sql(sql).materialize(extra=extra, progress=False)


def as_tensors(batch: a2store.Batch, tokens: str = "int64") -> Tensors:
    """Return the expected tensors of a batch, by NumPy's conversions."""
    types = {"tokens": tokens, "run_id": "i8", "step_index": "i4", "board": "i8", "short": "i4", "bits": "i8"}
    types["highest_tile"] = "i8"
    arrays = batch.to_dict().items()
    return {name: torch.from_numpy(array.astype(types.get(name, array.dtype))) for name, array in arrays}


def assert_same_tensors(found: Tensors, expected: Tensors) -> None:
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert_same(found[name].numpy(), tensor.numpy(), name)


# Workers

forks = pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python itself warns of forks beside threads")
# DataLoader warns if a machine has few cores.
many_workers = pytest.mark.filterwarnings("ignore:This DataLoader will create")
workers_0_2 = pytest.mark.parametrize("workers", [0, pytest.param(2, marks=forks)])


@pytest.mark.parametrize("method", [pytest.param("fork", marks=forks), "spawn", "forkserver"])
def test_workers_of_every_start_method(rich: a2store.StepTable, method: str) -> None:
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        # Otherwise each worker imports PyTorch again.
        context.set_forkserver_preload(["a2store.torch"])
    # A spawned worker imports PyTorch, which takes longer than all else here.
    common: dict[str, Any] = {"num_workers": 1 if method == "spawn" else 2, "multiprocessing_context": context}
    if method == "fork":
        rows: list[int] = np.random.default_rng(4).integers(0, len(rich), 5000).tolist()
        batches = [rows[k : k + 1000] for k in range(0, 5000, 1000)]
        served: Any = DataLoader(rich, batch_sampler=batches, **common)  # type: ignore[arg-type]
        for tensors, batch in zip(served, batches, strict=True):
            assert_same_tensors(tensors, as_tensors(rich.take(batch)))

    loader = StepLoader(rich, 1000, seed=1)
    of_loader = DataLoader(loader, batch_size=None, persistent_workers=True, **common)
    for epoch in (3, 0):
        loader.set_epoch(epoch)
        for tensors, expected in zip(of_loader, loader, strict=True):
            assert_same_tensors(tensors, expected)


def keys(batches: Iterable[Tensors]) -> list[torch.Tensor]:
    """Return the keys of the rows in each batch: one number for each ``(run_id, step_index)``."""
    return [tensors["run_id"] << 32 | tensors["step_index"] for tensors in batches]


def assert_same_keys(found: Iterable[Tensors], expected: Iterable[torch.Tensor]) -> None:
    for ours, theirs in zip(keys(found), expected, strict=True):
        assert torch.equal(ours, theirs)


@many_workers
@pytest.mark.parametrize("workers", [0, pytest.param(3, marks=forks)])
@pytest.mark.parametrize("drop_last", [False, True])
def test_each_row_once_with_any_number_of_workers(table: a2store.StepTable, workers: int, drop_last: bool) -> None:
    every = np.sort(row_keys(table.loader(4096)).astype("i8"))
    for batch_size, world_size in [(len(table) // 10 - 1, 1), (len(table) // 7, 2), (len(table), 3)]:
        ranks: list[list[torch.Tensor]] = []
        for rank in range(world_size):
            options: dict[str, Any] = {"seed": 2, "rank": rank, "world_size": world_size, "drop_last": drop_last}
            loader = StepLoader(table, batch_size, columns=["run_id", "step_index"], **options)
            served = DataLoader(loader, batch_size=None, num_workers=workers)
            ranks.append(keys(served))
            # The same batches in the same order as from the loader itself.
            assert len(ranks[-1]) == len(served) == len(loader)
            loader.set_epoch(0)
            assert_same_keys(loader, ranks[-1])
            expected = table.loader(batch_size, **options)
            for ours, batch in zip(ranks[-1], expected, strict=True):
                assert_same(ours.numpy(), row_keys([batch]).astype("i8"))
        assert len({len(rank) for rank in ranks}) == 1
        found = torch.cat([torch.tensor([], dtype=torch.int64), *(batch for rank in ranks for batch in rank)])
        if not drop_last:
            assert_same(np.sort(found.numpy()), every)


@forks
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_follow_epochs_and_states(table: a2store.StepTable, persistent: bool) -> None:
    whole = {epoch: keys(StepLoader(table, 1000, seed=5, epoch=epoch)) for epoch in range(4)}
    for start in (2, len(whole[1])):
        loader = StepLoader(table, 1000, seed=5)
        loader.load_state_dict({**loader.state_dict(), "epoch": 1, "position": min(1000 * start, len(table))})
        loader.set_epoch(1)
        served = DataLoader(loader, batch_size=None, num_workers=2, persistent_workers=persistent)
        # An iteration without batches counts too.
        for expected in (whole[1][start:], whole[2], whole[3]):
            assert_same_keys(served, expected)
        # The loaded position counts once.
        for epoch in (1, 2, 3, 3, 0):
            loader.set_epoch(epoch)
            assert_same_keys(served, whole[epoch])


@forks
def test_workers_reject_devices(table: a2store.StepTable) -> None:
    wrong: list[dict[str, Any]] = [{"pin_memory": True}, {"device": "cuda"}]
    for options in wrong:
        loader = StepLoader(table, 1000, **options)
        with pytest.raises(ValueError, match="pin_memory and device"):
            next(iter(DataLoader(loader, batch_size=None, num_workers=1)))


# States

# torchdata uses functions that PyTorch has deprecated.
without_warning = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")


@pytest.fixture(scope="module")
def stateful() -> Any:
    return pytest.importorskip("torchdata.stateful_dataloader")


@workers_0_2
@pytest.mark.parametrize("served", [0, 4, "all but one", "the last", "all"])
@without_warning
def test_a_stateful_data_loader_resumes(stateful: Any, table: a2store.StepTable, workers: int, served: Any) -> None:

    def make(epoch: int) -> tuple[StepLoader, Any]:
        loader = StepLoader(table, 1000, seed=1, epoch=epoch, columns=["run_id", "step_index"])
        return loader, stateful.StatefulDataLoader(loader, batch_size=None, num_workers=workers)

    whole = [keys(StepLoader(table, 1000, seed=1, epoch=epoch)) for epoch in range(4)]
    has_ended = served == "all"
    served = served if isinstance(served, int) else len(whole[2]) - (served == "all but one")
    _, before = make(2)
    if served:
        batches = iter(before)
        assert_same_keys(islice(batches, served), whole[2][:served])
        assert not has_ended or next(batches, None) is None
    state = pickle.loads(pickle.dumps(before.state_dict()))
    del before

    loader, after = make(0)
    after.load_state_dict(state)
    # After a whole epoch, the next iteration begins an epoch.
    if served < len(whole[2]):
        for number, batch in enumerate(after, served):
            assert torch.equal(keys([batch])[0], whole[2][number])
            if number == served + 1:
                again = after.state_dict()
        assert number == len(whole[2]) - 1
    elif not has_ended:
        loader.set_epoch(2)
        assert_same_keys(after, [] if workers else whole[3])
    # Whole epochs follow.
    loader.set_epoch(3)
    assert_same_keys(after, whole[3])
    # A state after a loaded state.
    if served + 2 < len(whole[2]):
        loader, after = make(0)
        after.load_state_dict(again)
        assert_same_keys(after, whole[2][served + 2 :])


def test_states_equal_those_of_the_inner_loader(table: a2store.StepTable) -> None:
    ours, theirs = StepLoader(table, 700, seed=1), table.loader(700, seed=1)
    for count, _ in enumerate(zip(ours, theirs, strict=True), 1):
        assert ours.state_dict() == theirs.state_dict()
        assert ours.state_dict()["position"] == min(700 * count, len(table))
    state = ours.state_dict()
    for wrong in ({**state, "seed": 9}, {**state, "position": -1}, {**state, "epoch": 2**63}, {}):
        with pytest.raises((a2store.StateMismatchError, ValueError)):
            ours.load_state_dict(wrong)
        assert ours.state_dict() == state
    for epoch in (-1, 1.5, "1"):
        with pytest.raises((ValueError, TypeError), match="epoch"):
            ours.set_epoch(epoch)  # type: ignore[arg-type]
        assert ours.state_dict() == state


def test_pickled_loaders(rich: a2store.StepTable) -> None:
    loader = StepLoader(rich, 700, strata="phase", quotas={"late": 2, "early": 1}, num_samples=9000, symmetries=True)
    loader.set_epoch(2)
    whole = list(loader)
    loader.set_epoch(0)
    loader.set_epoch(2)
    for _ in islice(loader, 5):
        pass
    loader.load_state_dict(loader.state_dict())
    again: StepLoader = pickle.loads(pickle.dumps(loader))
    assert len(pickle.dumps(loader)) < 4096
    assert (again.state_dict(), len(again), again.batch_size) == (loader.state_dict(), len(loader), 700)
    for copied in (again, copy.deepcopy(loader), loader):
        for tensors, expected in zip(copied, whole[5:], strict=True):
            assert_same_tensors(tensors, expected)
    # The copy is independent.
    again.set_epoch(7)
    assert loader.epoch == 3


# Options


@pytest.mark.parametrize(
    "options",
    [
        {"symmetries": True},
        {"replacement": True, "num_samples": 12_345},
        {"weights": "age"},
        {"weights": "age", "num_samples": 3000, "symmetries": True},
        {"strata": "engine", "quotas": {"alpha": 3, None: 1}},
        {"strata": "phase"},
        {"window": 4096},
        {"shuffle": False},
        {"columns": "tokens"},
        {"rank": 1, "world_size": 3, "drop_last": True, "prefetch": 0},
    ],
    ids=lambda options: "-".join(options),
)
@workers_0_2
def test_options_pass_through(rich: a2store.StepTable, options: dict[str, Any], workers: int) -> None:
    for table in (rich, rich.filter(phase=["mid", "late"])):
        loader = StepLoader(table, 900, seed=6, epoch=2, **options)
        expected = table.loader(900, seed=6, epoch=2, **options)
        assert loader.state_dict() == expected.state_dict()
        served = DataLoader(loader, batch_size=None, num_workers=workers)
        for tensors, batch in zip(served, expected, strict=True):
            assert_same_tensors(tensors, as_tensors(batch))


def test_ranks_of_a_process_group(table: a2store.StepTable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        single = keys(StepLoader(table, 1000, rank=0, world_size=1))
        assert_same_keys(StepLoader(table, 1000), single)
        # More ranks need more processes; see test_ddp.py.
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
        third = keys(StepLoader(table, 1000, rank=1, world_size=3))
        loader = StepLoader(table, 1000)
        assert_same_keys(loader, third)
        loader.set_epoch(0)
        assert_same_keys(StepLoader(table, 1000, rank=0, world_size=1), single)
    finally:
        torch.distributed.destroy_process_group()
    # The loader keeps its rank and world size, because workers are in no process group.
    assert_same_keys(pickle.loads(pickle.dumps(loader)), third)


# Memory and devices


def test_tensors_share_the_memory_of_their_batch(rich: a2store.StepTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_table_loader, "tensors_of", lambda batch: {**tensors_of(batch), "batch": batch})
    served: list[dict[str, Any]] = list(StepLoader(rich, 2000))
    assert len(served) > 5
    for tensors in served:
        batch = tensors.pop("batch")
        for name, tensor in tensors.items():
            # PyTorch cannot compute with the types of these columns, so they are copied.
            is_copy = name in ("run_id", "step_index", "short", "highest_tile")
            assert np.shares_memory(tensor.numpy(), batch[name]) != is_copy, name
            assert is_copy or tensor.data_ptr() == batch[name].__array_interface__["data"][0], name


class Streams:
    """A fake of CUDA's streams that records the calls in order. No tensor goes to a device."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.copying = False

        class Current:
            def wait_stream(_, stream: object) -> None:  # noqa: N805
                self.log.append("wait")

        @contextmanager
        def stream(side: object) -> Iterator[None]:
            self.copying = True
            yield
            self.copying = False

        def to(tensor: torch.Tensor, place: object, non_blocking: bool = False) -> torch.Tensor:
            assert self.copying
            if isinstance(place, torch.dtype):
                return original(tensor, place)
            assert non_blocking
            assert "pinned" in self.log[-1]
            self.log.append("copy")
            return tensor

        def pin(tensor: torch.Tensor) -> torch.Tensor:
            self.log.append("pinned")
            return tensor

        original = torch.Tensor.to
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: "side")
        monkeypatch.setattr(torch.cuda, "stream", stream)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Current())
        monkeypatch.setattr(torch.Tensor, "to", to)
        monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
        monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: self.log.append("record"))


def test_copies_run_one_batch_ahead(table: a2store.StepTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table.filter(run_ids=[0, 1, 2])
    expected = list(StepLoader(table, 100, seed=1))
    streams = Streams(monkeypatch)
    loader = StepLoader(table, 100, seed=1, device="cuda")
    copies = ["pinned", "copy"] * len(BATCH_COLUMNS)
    before = list(copies)
    for number, tensors in enumerate(loader):
        # A batch waits only for its own copy. The next copy starts after that, and before the batch is used.
        last = number == len(expected) - 1
        assert streams.log == [*before, "wait", *["record"] * len(BATCH_COLUMNS), *([] if last else copies)]
        streams.log.clear()
        before = []
        assert_same_tensors(tensors, expected[number])
        # Batches copied ahead do not count as served.
        assert loader.state_dict()["position"] == min(100 * (number + 1), len(table))
    assert number == len(expected) - 1
    assert streams.log == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
def test_batches_on_cuda(rich: a2store.StepTable) -> None:
    loader = StepLoader(rich, 1000, seed=1, device="cuda", symmetries=True)
    sums: list[Tensors] = []
    for count, tensors in enumerate(loader, 1):
        assert {tensor.device.type for tensor in tensors.values()} == {"cuda"}
        assert loader.state_dict()["position"] == min(1000 * count, len(rich))
        # This work is still queued when the next batches are copied.
        torch.cuda._sleep(1_000_000)  # type: ignore[no-untyped-call]
        sums.append({name: tensor.clone() for name, tensor in tensors.items()})
    for found, expected in zip(sums, StepLoader(rich, 1000, seed=1, symmetries=True), strict=True):
        assert_same_tensors({name: tensor.cpu() for name, tensor in found.items()}, expected)
    assert all(tensor.is_pinned() for tensors in StepLoader(rich, pin_memory=True) for tensor in tensors.values())


def test_a_table_is_a_map_style_dataset(table: a2store.StepTable) -> None:
    for rows, batch in enumerate(islice(DataLoader(table, batch_size=4), 3)):  # type: ignore[arg-type]
        assert_same_tensors(batch, as_tensors(table.take(range(4 * rows, 4 * rows + 4))))
    order = np.random.default_rng(0).permutation(len(table))[:500].tolist()
    (batch,) = DataLoader(table, batch_size=500, sampler=order)  # type: ignore[arg-type]
    assert_same_tensors(batch, as_tensors(table.take(order)))
    some = table.filter(run_ids=range(4))
    (shuffled,) = DataLoader(some, batch_size=len(some), shuffle=True)  # type: ignore[arg-type]
    boards = np.sort(shuffled["board"].numpy().view(np.uint64))
    assert np.array_equal(boards, np.sort(some["board"]))


def test_other_objects_than_tables(archive: a2store.Archive) -> None:
    for wrong, found in ((3, ""), (None, ""), (archive, "found Archive")):
        message = r"table: expected a StepTable, a Query such as archive.sql\(…\), or pairs"
        with pytest.raises(TypeError, match=f"{message}.*{found}"):
            StepLoader(wrong)  # type: ignore[arg-type]


def serve(loader: StepLoader, epochs: list[list[torch.Tensor]]) -> None:
    served = DataLoader(loader, batch_size=None, num_workers=1, multiprocessing_context="fork")
    for expected in epochs:
        assert_same_keys(served, expected)


@forks
def test_a_copy_has_its_own_position(table: a2store.StepTable) -> None:
    whole = [keys(StepLoader(table, 1000, seed=3, epoch=epoch)) for epoch in range(4)]
    loader = StepLoader(table, 1000, seed=3)
    next(iter(loader))
    for made in (copy.copy(loader), copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        assert made.epoch == loader.epoch == 1
        serve(made, whole[1:3])
        list(made)
        assert (made.epoch, loader.epoch, loader.state_dict()["position"]) == (2, 1, 1000)
        made.set_epoch(0)
    for method in ("fork", "spawn"):
        context: Any = multiprocessing.get_context(method)
        process = context.Process(target=serve, args=(loader, whole[1:3]))
        process.start()
        process.join()
        assert process.exitcode == 0
    serve(loader, whole[1:3])
