"""Batches as PyTorch tensors."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

import a2store
from a2store.torch import StepLoader
from compare import assert_same

DTYPES = {
    "tokens": torch.int64,
    "move": torch.uint8,
    "ev_values": torch.float32,
    "ev_legal": torch.bool,
    "run_id": torch.int64,
    "step_index": torch.int32,
    "board": torch.int64,
}
SHAPES = {"tokens": (16,), "ev_values": (4,), "ev_legal": (4,)}


def test_tensors_equal_the_arrays(table: a2store.StepTable) -> None:
    loader = StepLoader(table, 1000, seed=3)
    arrays = table.loader(1000, seed=3, tokens="int64")
    assert len(loader) == len(arrays)
    count = 0
    for tensors, batch in zip(loader, arrays, strict=True):
        assert {name: tensor.dtype for name, tensor in tensors.items()} == DTYPES
        for name, tensor in tensors.items():
            assert tensor.shape == (len(batch), *SHAPES.get(name, ()))
            assert (tensor.device.type, tensor.is_contiguous()) == ("cpu", True)
            expected = batch[name].view("i8") if name == "board" else batch[name]
            assert_same(tensor.numpy(), expected.astype(tensor.numpy().dtype), name)
        count += len(batch)
    assert count == len(table)


def test_boards_keep_their_bits(table: a2store.StepTable) -> None:
    (tensors,) = StepLoader(table, len(table), shuffle=False, columns=["board"])
    boards = np.asarray(table)["board"]
    assert (boards >= 2**63).any()
    assert_same(tensors["board"].numpy().view("u8"), boards)


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu"), None])
@pytest.mark.parametrize("tokens", ["uint8", "int32", "int64"])
def test_options(table: a2store.StepTable, tokens: Any, device: Any) -> None:
    loader = StepLoader(table, 4096, tokens=tokens, device=device, columns=("tokens", "move"), drop_last=True)
    batches = list(loader)
    assert len(batches) == len(loader) == len(table) // 4096
    for tensors in batches:
        assert list(tensors) == ["tokens", "move"]
        assert tensors["tokens"].dtype == getattr(torch, tokens)
        assert tensors["tokens"].shape == (4096, 16)


def test_ranks_and_epochs(table: a2store.StepTable) -> None:
    loaders = [StepLoader(table, 1000, seed=1, rank=rank, world_size=2, epoch=1) for rank in range(2)]
    for rank, loader in enumerate(loaders):
        loader.set_epoch(4)
        expected = table.loader(1000, seed=1, rank=rank, world_size=2, epoch=4)
        for tensors, batch in zip(loader, expected, strict=True):
            assert_same(tensors["board"].numpy().view("u8"), batch.board)


def test_extra_columns(archive: a2store.Archive) -> None:
    extra = ["max_score", "highest_tile", "has_evs", "ev_up", "short"]
    sql = "SELECT *, CAST(num_steps AS SMALLINT UNSIGNED) AS short FROM steps"
    table = archive.sql(sql).materialize(extra=extra, progress=False)
    rows = np.asarray(table)
    (tensors,) = StepLoader(table, len(table), shuffle=False, columns=extra)
    types = [torch.int64, torch.int64, torch.bool, torch.float32, torch.int32]
    assert [tensors[name].dtype for name in extra] == types
    for name in extra:
        np.testing.assert_array_equal(tensors[name].numpy(), rows[name])


def test_tensors_are_never_overwritten(table: a2store.StepTable) -> None:
    kept = list(StepLoader(table, 500, seed=1, columns=["board", "ev_values"]))
    copies = [{name: tensor.clone() for name, tensor in tensors.items()} for tensors in kept]
    for epoch in range(1, 3):
        for _ in StepLoader(table, 500, seed=1, epoch=epoch):
            pass
    for tensors, copy in zip(kept, copies, strict=True):
        assert torch.equal(tensors["board"], copy["board"])
        assert torch.equal(tensors["ev_values"].view(torch.int32), copy["ev_values"].view(torch.int32))


def test_state(table: a2store.StepTable) -> None:
    whole = torch.cat([tensors["board"] for tensors in StepLoader(table, 1000, seed=1, epoch=2)])
    loader = StepLoader(table, 1000, seed=1, epoch=2)
    for _ in islice(loader, 4):
        pass
    state = loader.state_dict()
    resumed = StepLoader(table, 777, seed=1)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert torch.equal(torch.cat([tensors["board"] for tensors in resumed]), whole[4000:])
    with pytest.raises(a2store.StateMismatchError, match="seed"):
        StepLoader(table, 777, seed=2).load_state_dict(state)


def test_a_step_of_training(table: a2store.StepTable) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(16, 4), torch.nn.Flatten(), torch.nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for tensors in StepLoader(table, 1000, seed=1, drop_last=True):
        loss = torch.nn.functional.cross_entropy(model(tensors["tokens"]), tensors["move"].long())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
