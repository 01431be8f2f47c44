"""Train a small policy network on an archive's games, with PyTorch, in one process or several.

    python examples/train_torch.py [ARCHIVE]
    torchrun --standalone --nproc-per-node=2 examples/train_torch.py [ARCHIVE]

Without an archive, the script plays some games first. From a board, the network learns the engine's move and the
expected value of each move. One run in ten is held out for measuring. The script uses a GPU if one is available.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import a2store
from a2store.torch import StepLoader

COLUMNS = ["tokens", "move", "ev_values", "ev_legal"]


class Policy(torch.nn.Module):
    """A network from the 16 tokens of a board to a logit and an expected value for each move.

    Tokens are (B, 16) int64; logits and values are (B, 4) float32.
    """

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        # The exponents 0 to 16: a tile of 65,536 has the token 16.
        self.embedding = torch.nn.Embedding(17, 16)
        self.body = torch.nn.Sequential(
            torch.nn.Flatten(),
            torch.nn.Linear(16 * 16, width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, width),
            torch.nn.ReLU(),
        )
        self.logits = torch.nn.Linear(width, 4)
        self.values = torch.nn.Linear(width, 4)

    def forward(self, tokens: torch.Tensor, legal: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits and values. Illegal moves have the logit -1e9."""
        hidden = self.body(self.embedding(tokens))
        return self.logits(hidden).masked_fill(~legal, -1e9), self.values(hidden)


def loss_sums(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return two sums over a batch, (2,): the cross entropy of the moves and the squared errors of the values."""
    legal = batch["ev_legal"]
    logits, values = model(batch["tokens"], legal)
    entropy = functional.cross_entropy(logits, batch["move"].long(), reduction="sum")
    errors = (values - batch["ev_values"]).square() * legal
    return torch.stack([entropy, errors.sum()])


def mean_losses(model: torch.nn.Module, table: a2store.StepTable, device: torch.device) -> list[float]:
    """Return both losses per row of a table. Each rank processes its share of the rows."""
    sums = torch.zeros(2, device=device)
    with torch.no_grad():
        for batch in StepLoader(table, shuffle=False, columns=COLUMNS, device=device):
            sums += loss_sums(model, batch)
    if dist.is_initialized():
        dist.all_reduce(sums)
    losses: list[float] = (sums / max(1, len(table))).tolist()
    return losses


def load_table(path: Path | None) -> a2store.StepTable:
    """Return the steps with values of an archive, or of newly played games."""
    query = "SELECT * FROM steps WHERE has_evs"
    if path is not None:
        return a2store.Archive.open(path).sql(query).materialize()
    # Once the steps are in memory, the files may be deleted.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        a2store.simulate(folder / "runs", runs=200, seed=1)
        archive = a2store.Archive.create(folder / "games.a2")
        archive.ingest(folder / "runs")
        return archive.sql(query).materialize()


def share_table(path: Path | None) -> a2store.StepTable:
    """Return the table. One process loads it, and the other processes of the machine map the same memory."""
    if not dist.is_initialized():
        return load_table(path)
    # On several machines, the process with LOCAL_RANK 0 of each machine would load the table and broadcast it to its
    # group.
    table: list[Any] = [load_table(path) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(table)
    received: a2store.StepTable = table[0]
    return received


def train(options: argparse.Namespace, device: torch.device) -> None:
    """Train, and print the losses of each epoch."""
    is_first = not dist.is_initialized() or dist.get_rank() == 0
    table = share_table(options.archive)
    training, held_out = table.train_test_split(0.1)
    if is_first:
        print(f"{len(training):,} training steps, {len(held_out):,} held-out steps of other runs, on {device}")

    torch.manual_seed(0)
    model: torch.nn.Module = Policy().to(device)
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.rate)
    # In a process group, the loader knows its rank: each row goes to one rank, and all ranks take the same number of
    # steps. The loader applies one of the board's eight symmetries to each row, a different one in each epoch. A thread
    # prefetches batches and copies them to the GPU while the previous batch is in use.
    loader = StepLoader(training, options.batch_size, seed=0, symmetries=True, columns=COLUMNS, device=device)

    def report(name: str, seconds: float) -> None:
        entropy, error = mean_losses(model, held_out, device)
        if is_first:
            print(
                f"{name}: held-out cross entropy {entropy:.3f}, squared error {error:.3f}; {seconds:.1f} s", flush=True
            )

    report("untrained", 0.0)
    for epoch in range(options.epochs):
        loader.set_epoch(epoch)
        start = time.perf_counter()
        for batch in loader:
            # The sum, not the mean, because the last batch may be shorter on one rank than on another.
            loss = loss_sums(model, batch).sum() / options.batch_size
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        report(f"epoch {epoch}", time.perf_counter() - start)
        # A checkpoint would include loader.state_dict() beside the model's state, also in the middle of an epoch.


def main() -> None:
    """Read the options, join the process group if torchrun started one, and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, nargs="?", help="default: newly played games")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=512, help="rows per process")
    parser.add_argument("--rate", type=float, default=2e-3, help="learning rate")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if dist.is_torchelastic_launched():
        if device.type == "cuda":
            device = torch.device("cuda", dist.get_node_local_rank())
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        train(options, device)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
