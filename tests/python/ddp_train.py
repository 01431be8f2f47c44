"""One rank of a training run; test_ddp.py starts two of them.

Usage: ddp_train.py FOLDER table|query, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, and a TCPStore listening
there. Rank 0 plays games into FOLDER; every rank writes its results to ``FOLDER/rank-N.json``. The ranks share a table,
or each materializes its shares of a query.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import a2store
from a2store.torch import StepLoader

EPOCHS = 5
BATCH_SIZE = 256
PATIENCE = timedelta(minutes=5)


class Policy(torch.nn.Module):
    """A network from 16 tokens to a logit and an expected value for each move."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(16, 16)
        self.body = torch.nn.Sequential(
            torch.nn.Linear(256, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128), torch.nn.ReLU()
        )
        self.heads = torch.nn.Linear(128, 8)

    def forward(self, tokens: torch.Tensor, legal: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        heads = self.heads(self.body(self.embedding(tokens).flatten(1)))
        return heads[:, :4].masked_fill(~legal, -1e9), heads[:, 4:]


def loss_sums(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return two sums over the batch: the cross entropy of the move, and the squared errors of the values."""
    legal = batch["ev_legal"]
    logits, values = model(batch["tokens"], legal)
    errors = (values - batch["ev_values"]).square() * legal
    entropy = functional.cross_entropy(logits, batch["move"].long(), reduction="sum")
    return torch.stack([entropy, errors.sum()])


def held_out_losses(model: torch.nn.Module, table: a2store.StepTable) -> list[float]:
    """Return both losses per row; each rank computes its share of the rows."""
    sums = torch.zeros(2)
    with torch.no_grad():
        for batch in StepLoader(table, 1000, shuffle=False):
            sums += loss_sums(model, batch)
    dist.all_reduce(sums)
    losses: list[float] = (sums / len(table)).tolist()
    return losses


def row_keys(run_id: npt.NDArray[Any], step_index: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    keys: npt.NDArray[np.int64] = run_id.astype("i8") << 32 | step_index.astype("i8")
    return keys


def shared_table(folder: Path) -> a2store.StepTable:
    """Return rank 0's table, which the other ranks map, so only one copy exists."""
    table: list[Any] = [None]
    if dist.get_rank() == 0:
        a2store.simulate(folder / "runs", runs=60, seed=1, depth=1, progress=False)
        archive = a2store.Archive.create(folder / "games.a2")
        # Several commits make several row groups.
        for digit in range(10):
            archive.ingest(sorted((folder / "runs").glob(f"*{digit}.*")), progress=False)
        table = [archive.sql("SELECT * FROM steps WHERE has_evs").materialize(progress=False)]
    dist.broadcast_object_list(table)
    (received,) = table
    assert isinstance(received, a2store.StepTable)
    return received


def train(folder: Path, source: str) -> dict[str, Any]:
    table = shared_table(folder)
    training, held_out = table.train_test_split(0.1, seed=0)
    if source == "query":
        archive = a2store.open(folder / "games.a2", version=11)
        query = archive.sql("SELECT * FROM steps WHERE has_evs AND run_id % 10 > 0")
        training, held_out = table.filter("run_id % 10 > 0"), table.filter("run_id % 10 = 0")
    rows = np.asarray(training)
    expected = np.sort(row_keys(rows["run_id"], rows["step_index"]))

    # The parameters differ until DDP makes them equal.
    torch.manual_seed(dist.get_rank())
    policy = Policy()
    model = DistributedDataParallel(policy)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    # The loader takes the rank and the number of ranks from the process group.
    loader = StepLoader(query if source == "query" else training, BATCH_SIZE, seed=1, symmetries=True)

    found: dict[str, Any] = {"losses": [held_out_losses(policy, held_out)], "steps": [], "complete": [], "rows": []}
    for epoch in range(EPOCHS):
        loader.set_epoch(epoch)
        served = []
        for batch in loader:
            served.append(row_keys(batch["run_id"].numpy(), batch["step_index"].numpy()))
            # This is not the mean, because the last batch may be shorter on one rank than on another.
            loss = loss_sums(model, batch).sum() / BATCH_SIZE
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        shares: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(shares, np.concatenate(served))
        found["complete"].append(bool(np.array_equal(np.sort(np.concatenate(shares)), expected)))
        found["rows"].append(len(np.concatenate(served)))
        found["steps"].append(len(served))
        found["losses"].append(held_out_losses(policy, held_out))

    legal = held_out.take(np.arange(len(held_out))).ev_legal
    parameters = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in policy.parameters()))
    return {
        **found,
        "parameters": parameters.hexdigest(),
        "uniform": float(np.log(legal.sum(axis=1)).mean()),
        "fingerprint": table.fingerprint,
        "train": len(training),
        "held_out": len(held_out),
        "shared": "/memfd:a2store-table" in Path("/proc/self/maps").read_text(),
    }


def main() -> None:
    torch.set_num_threads(1)
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    store = dist.TCPStore(*address, is_master=False, timeout=PATIENCE)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=PATIENCE)
    folder = Path(sys.argv[1])
    try:
        result = train(folder, sys.argv[2])
        (folder / f"rank-{rank}.json").write_text(json.dumps(result))
        # The process that owns the table, and the process of the store, must wait for all others.
        dist.barrier()
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
