"""Play, record, ingest, filter and train, three rounds of it, with PyTorch.

    python examples/selfplay_loop.py [--games 1000] [--seed 0] [--folder FOLDER] [--plot selfplay_loop.png]

The first games make random moves. After each round a network learns from the games of that round and the previous one.
It learns the worth of a board after a move. In the next round it chooses the move with the highest sum of reward and
worth. The script prints the scores of each round, and plots them if matplotlib is installed.

The training method is the n-step temporal difference of afterstates. The function is linear in the board's rows,
columns and squares, as in Szubert and Jaśkowski's "Temporal difference learning of n-tuple networks for the game 2048"
(2014).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

import a2store
from a2store import selfplay
from a2store.torch import StepLoader

ROUNDS = 3
STEPS_AHEAD = 10
"""The number of steps in a target: the worth of a board is their rewards, plus the worth of the board after them."""
DISCOUNT = 0.75
"""The weight of the later board's worth. It is below 1, so that worth grows little when the games become longer."""
POINTS = 64.0
"""The unit of worth: about the reward of ten random moves."""

# For each step of two rounds: the board after the move (in place of the board before it), the reward of the next steps,
# and the board after them (0 = the game was over).
STEPS = f"""
    SELECT run_id, step_index,
        afterstate(board, move) AS board,
        COALESCE(LEAD(afterstate(board, move), {STEPS_AHEAD}) OVER game, CAST(0 AS BIGINT UNSIGNED)) AS later,
        CAST(COALESCE(LEAD(board_score(afterstate(board, move)), {STEPS_AHEAD}) OVER game, max_score)
            - board_score(afterstate(board, move)) AS FLOAT) AS earned
    FROM steps WHERE engine IN ($newest, $previous)
    WINDOW game AS (PARTITION BY run_id ORDER BY step_index)
"""


class Worth(torch.nn.Module):
    """A network from the tokens of boards, (B, 16) int64, to the reward plus worth of each of the four moves, (B, 4).

    It implements the rules: it computes the four boards after the moves.
    """

    def __init__(self) -> None:
        super().__init__()
        cells = torch.arange(16).view(4, 4)
        squares = [cells[row : row + 2, column : column + 2].flatten() for row in range(3) for column in range(3)]
        # For each move, the cells of the four lines, in an order in which tiles slide to the left.
        turned = torch.stack([cells.T, cells.T.flip(1), cells, cells.flip(1)]).view(4, 16)
        self.tuples: torch.Tensor
        self.turned: torch.Tensor
        self.back: torch.Tensor
        self.left: torch.Tensor
        self.scores: torch.Tensor
        self.register_buffer("tuples", torch.stack([*cells, *cells.T, *squares]))
        self.register_buffer("turned", turned)
        self.register_buffer("back", turned.argsort(dim=1))
        self.register_buffer("left", torch.tensor([slide_left(row) for row in range(1 << 16)]))
        self.register_buffer("scores", torch.tensor([(exp - 1) * 2**exp if exp else 0 for exp in range(16)]))
        self.register_buffer("digits", torch.tensor([4096, 256, 16, 1]))
        self.digits: torch.Tensor
        self.weights = torch.nn.EmbeddingBag(len(self.tuples) << 16, 1, mode="sum", sparse=True)
        torch.nn.init.zeros_(self.weights.weight)

    def worth(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the worth of boards after a move, (B,)."""
        words = (tokens[:, self.tuples] * self.digits).sum(dim=2)
        first = torch.arange(len(self.tuples), device=tokens.device) << 16
        worth: torch.Tensor = self.weights(words + first).squeeze(1)
        return worth

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the reward of each move plus the worth of the board after it."""
        lines = (tokens[:, self.turned].view(-1, 4, 4, 4) * self.digits).sum(dim=3)
        slid = self.left[lines].unsqueeze(3).bitwise_right_shift(torch.tensor([12, 8, 4, 0], device=tokens.device)) & 15
        after = slid.view(-1, 4, 16).gather(2, self.back.expand(len(tokens), 4, 16)).view(-1, 16)
        return (self.scores[after].sum(dim=1) / POINTS + self.worth(after)).view(-1, 4)


def slide_left(row: int) -> int:
    """Return a row of four exponents, 4 bits each, after a move to the left."""
    tiles = [exp for exp in (row >> 12, row >> 8 & 15, row >> 4 & 15, row & 15) if exp]
    slid, cells = 0, 0
    while tiles:
        exp = tiles.pop(0)
        if tiles and tiles[0] == exp and exp < 15:
            exp += 1
            tiles.pop(0)
        slid, cells = slid << 4 | exp, cells + 1
    return slid << 4 * (4 - cells)


def train(model: Worth, archive: a2store.Archive, number: int, seed: int, epochs: int) -> int:
    """Train on the games of a round and of the previous one, and return the number of training steps."""
    query = archive.sql(STEPS, {"newest": f"round-{number}", "previous": f"round-{number - 1}"})
    table = query.materialize(extra=["later", "earned"], progress=False)
    # The loader applies symmetries to the boards, because the worth of a board does not depend on its orientation.
    loader = StepLoader(table, 1024, seed=seed, symmetries=True, columns=["tokens", "later", "earned"])
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    # The learning rate falls to zero, so that noise averages out.
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=epochs * len(loader))
    shifts = torch.arange(60, -1, -4)
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for batch in loader:
            later = batch["later"]
            with torch.no_grad():
                worth = model.worth(later.unsqueeze(1).bitwise_right_shift(shifts) & 15) * (later != 0)
            target = batch["earned"] / POINTS + DISCOUNT * worth
            loss = functional.mse_loss(model.worth(batch["tokens"]), target)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return len(table)


@dataclass
class Round:
    """The mean score of a round's games, and its standard error."""

    name: str
    mean: float
    error: float


def report(name: str, result: selfplay.PlayResult) -> Round:
    """Print the results of a round, and return its scores."""
    mean, error = float(result.scores.mean()), float(result.scores.std(ddof=1) / len(result) ** 0.5)
    best = ", ".join(f"{tile} in {np.mean(result.highest_tiles >= tile):.0%}" for tile in (256, 512, 1024))
    print(f"{name}: mean score {mean:,.0f} ± {error:,.0f} of {len(result):,} games; {best}", flush=True)
    return Round(name, mean, error)


def loop(folder: Path, games: int, seed: int, epochs: int) -> list[Round]:
    """Play and train for three rounds, play once more, and return the scores."""
    archive = a2store.Archive.create(folder / "games.a2")
    model = Worth()
    random = np.random.default_rng(seed)

    def random_moves(tokens: npt.NDArray[np.uint8], legal: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
        # With random logits, all legal moves are equally likely.
        return random.random(legal.shape, np.float32)

    policy: selfplay.Policy | Worth = random_moves
    scores = []
    for number in range(1, ROUNDS + 1):
        start = time.perf_counter()
        with selfplay.Recorder(folder / "sessions", tag=f"round-{number}", engine=f"round-{number}") as recorder:
            # A different seed in each round, so that no game repeats.
            result = selfplay.play(policy, games, seed=10 * seed + number, recorder=recorder, progress=False)
        scores.append(report(f"round {number}", result))
        played = time.perf_counter()
        archive.ingest(recorder.sessions, progress=False)
        num_steps = train(model, archive, number, seed, epochs)
        policy = model
        print(f"  {played - start:.0f} s to play {result.total_steps:,} steps", end=", ")
        print(f"{time.perf_counter() - played:.0f} s to train on {num_steps:,} of {archive.num_steps:,}", flush=True)
    last = selfplay.play(model, games, seed=10 * seed + ROUNDS + 1, progress=False)
    return [*scores, report("afterwards", last)]


def plot(scores: list[Round], path: Path) -> None:
    """Plot the mean score of each round, with error bars of two standard errors."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    names = [score.name for score in scores]
    errors = [2 * score.error for score in scores]
    axes.errorbar(names, [score.mean for score in scores], errors, marker="o", capsize=4)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("mean score")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)
    print(f"plot written to {path}")


def main() -> None:
    """Read the options, and run the loop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=1000, help="per round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=3, help="per round")
    parser.add_argument("--folder", type=Path, help="folder for sessions and archive; default: a temporary folder")
    parser.add_argument("--plot", type=Path, default=Path("selfplay_loop.png"))
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    # A batch is too small for several threads: they would mostly wait for each other.
    torch.set_num_threads(1)
    # The optimizer creates sparse tensors. Without this line, PyTorch warns that it does not check them.
    torch.sparse.check_sparse_tensor_invariants.disable()  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as temporary:
        scores = loop(options.folder or Path(temporary), options.games, options.seed, options.epochs)
    plot(scores, options.plot)


if __name__ == "__main__":
    main()
