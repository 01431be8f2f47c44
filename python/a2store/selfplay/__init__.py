"""Games played with a policy, and recorded: a vectorised 2048, stepped in Rust, that asks Python for moves.

>>> from a2store import selfplay
>>> result = selfplay.play(lambda tokens, legal: legal.argmax(axis=1), num_games=1000)
>>> result.scores.mean(), result.steps_per_second

``play`` plays whole games and records them; ``VectorEnv`` steps games that the caller moves in, and
``a2store.selfplay.gym`` makes a Gymnasium environment of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from .._a2store import (
    Game,
    Player,
    PlayResult,
    Recorder,
    RecorderReport,
    RecorderStats,
    Unfinished,
    VectorEnv,
    _play,
    recover,
)

if TYPE_CHECKING:
    import torch

__all__ = [
    "Game",
    "PlayResult",
    "Player",
    "Policy",
    "Recorder",
    "RecorderReport",
    "RecorderStats",
    "Unfinished",
    "VectorEnv",
    "play",
    "recover",
]

Policy: TypeAlias = Callable[[npt.NDArray[Any], npt.NDArray[np.bool_]], Any]
"""From tokens (B, 16) and legality (B, 4) to moves (B,) or logits (B, 4)."""


def play(
    policy: Policy | torch.nn.Module | Player,
    num_games: int,
    batch_size: int = 1024,
    seed: int = 0,
    recorder: Recorder | None = None,
    *,
    tokens: Literal["uint8", "int64"] = "uint8",
    max_steps: int | None = None,
    temperature: float = 0.0,
    progress: bool | None = None,
) -> PlayResult:
    """Play games with a policy, many side by side.

    What is played in a game follows from the seed, the game's number and what the policy answers to its boards, and not
    from ``batch_size``. Where a game ends the next one begins; towards the end the batches shrink.

    policy: one of

        - a callable that gets ``tokens``, (B, 16) exponents row by row, and ``legal``, (B, 4) bool in the order UDLR,
          and returns either moves, (B,) integers, all legal; or logits, (B, 4) floats, those of illegal moves being
          ignored. NumPy arrays and PyTorch's tensors on any device will do. Both arguments are the callable's own, to
          keep or to write to. A policy that needs no ``legal`` still gets it.
        - a ``torch.nn.Module`` that returns logits (B, 4) for tokens (B, 16) int64 alone. It is called in eval mode
          under ``torch.inference_mode``, on the device of its parameters, and is afterwards in the mode that it was in.
        - a ``Player``: it plays in Rust, on several threads, and the values that it gives the moves are recorded too.

    num_games: how many games.
    batch_size: the most boards that the policy is asked about at once. A ``Player`` has no batches.
    seed: what the games follow from, in ``0..2**64``.
    recorder: what every step goes to; ``None`` = nothing is recorded. Games stand in it in the order in which they end,
        those of a ``Player`` in the order of their numbers. Once it has reached a limit no game begins, and
        ``PlayResult.stopped`` names the limit.
    tokens: the type of ``tokens`` for a callable.
    max_steps: games of so many steps end there; ``None`` = none does.
    temperature: above 0, moves are drawn from the softmax of ``logits / temperature`` over the legal ones; at 0 the
        legal move with the greatest logit is made, the first of equal ones. Only for policies that return logits.
    progress: ``False`` = no progress bar; else there is one where standard error is a terminal.

    Raises what the policy raises, as it is; ``ValueError`` for an answer of the wrong length, an illegal move or
    logits that are not numbers, with the row; ``TypeError`` for an answer of another type or shape; ``ValueError`` for
    options outside their range; ``KeyboardInterrupt`` on Ctrl-C. Games under way are then abandoned in the recorder.

    >>> recorder = selfplay.Recorder("sessions", tag="greedy")
    >>> selfplay.play(model, 10_000, seed=1, recorder=recorder, temperature=0.5)
    """
    # A module can only be one where PyTorch has been imported.
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(policy, torch.nn.Module):
        return _play(policy, num_games, batch_size, seed, recorder, tokens, max_steps, temperature, progress)
    modes = [(module, module.training) for module in policy.modules()]
    parameter = next(chain(policy.parameters(), policy.buffers()), None)
    device = torch.device("cpu") if parameter is None else parameter.device

    def ask(tokens: npt.NDArray[np.int64], legal: npt.NDArray[np.bool_]) -> Any:
        return policy(torch.from_numpy(tokens).to(device))

    policy.eval()
    try:
        with torch.inference_mode():
            return _play(ask, num_games, batch_size, seed, recorder, "int64", max_steps, temperature, progress)
    finally:
        for module, was_training in modes:
            module.training = was_training
