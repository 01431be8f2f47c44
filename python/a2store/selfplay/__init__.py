"""Self-play: games that a policy plays and a recorder stores. Rust steps the games, and Python chooses the moves.

``play`` plays whole games and records them. ``VectorEnv`` steps games in which the caller chooses the moves.
``a2store.selfplay.gym`` wraps it as a Gymnasium environment.

>>> from a2store import selfplay
>>> result = selfplay.play(lambda tokens, legal: legal.argmax(axis=1), num_games=1000)
>>> len(result), result.scores.dtype
(1000, dtype('int64'))
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
    Recorder,
    VectorEnv,
    _play,
)
from .._results import PlayResult, RecorderStats

if TYPE_CHECKING:
    import torch

__all__ = [
    "Game",
    "PlayResult",
    "Player",
    "Policy",
    "Recorder",
    "RecorderStats",
    "VectorEnv",
    "play",
]

Policy: TypeAlias = Callable[[npt.NDArray[Any], npt.NDArray[np.bool_]], Any]
"""A function from tokens (B, 16) and legality (B, 4) to moves (B,) or logits (B, 4)."""


def play(
    policy: Policy | torch.nn.Module | Player,
    num_games: int,
    batch_size: int = 1024,
    seed: int = 0,
    recorder: Recorder | None = None,
    *,
    tokens: Literal["uint8", "int64"] = "uint8",
    max_steps: int | None = None,
    progress: bool | Callable[[dict[str, Any]], object] | None = None,
) -> PlayResult:
    """Play games with a policy, many at the same time.

    A game depends on the seed, its number and the policy's answers, but not on ``batch_size``. When a game ends, the
    next one begins; towards the end the batches shrink.

    - ``policy``: one of

      - a callable that takes ``tokens``, (B, 16) exponents row by row, and ``legal``, (B, 4) bool in the order UDLR. It
        returns either moves, (B,) integers, all legal, or logits, (B, 4) floats. For logits, ``play`` makes the legal
        move with the greatest logit; in a tie, the first such move. It may return NumPy arrays, or PyTorch tensors on
        any device. It may keep or modify its arguments. A policy that does not need ``legal`` still gets it.
      - a ``torch.nn.Module`` that returns logits (B, 4) for tokens (B, 16) int64 alone. It is called in eval mode under
        ``torch.inference_mode``, on the device of its parameters. Afterwards its previous mode is restored.
      - a ``Player``, which chooses moves in Rust on several threads. ``simulate`` also writes the player's values of
        the moves.

    - ``num_games``: the number of games, in ``0..2**64``.
    - ``batch_size``: the maximum number of boards in one call of the policy, in ``1..=2**24``.
    - ``seed``: the seed of all games, in ``0..2**64``.
    - ``recorder``: the recorder of every step; ``None`` = nothing is recorded. Games are stored in the order in which
      they end. Once the recorder reaches a limit, no game begins, and ``PlayResult.stopped`` names the limit.
    - ``tokens``: the type of ``tokens`` for a callable, ``"uint8"`` or ``"int64"``.
    - ``max_steps``: truncates games after this many steps, at least 1; ``None`` = no limit.
    - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.

    Raises ``ValueError`` for an answer of the wrong length, and for an illegal move or a NaN logit, with the row.
    Raises ``TypeError`` for an answer of another type or shape, and ``ValueError`` for an option out of range.
    Exceptions of the policy are raised unchanged, and Ctrl-C raises ``KeyboardInterrupt``. After an exception, running
    games are abandoned in the recorder.

    >>> from a2store import selfplay
    >>> with selfplay.Recorder("selfplay", tag="player") as recorder:
    ...     result = selfplay.play(selfplay.Player(depth=0), 10, seed=1, recorder=recorder)
    >>> len(result), result.stopped
    (10, None)
    """
    # The policy can be a module only if PyTorch has been imported.
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(policy, torch.nn.Module):
        return _play(policy, num_games, batch_size, seed, recorder, tokens, max_steps, progress)
    modes = [(module, module.training) for module in policy.modules()]
    parameter = next(chain(policy.parameters(), policy.buffers()), None)
    device = torch.device("cpu") if parameter is None else parameter.device

    def ask(tokens: npt.NDArray[np.int64], legal: npt.NDArray[np.bool_]) -> Any:
        return policy(torch.from_numpy(tokens).to(device))

    policy.eval()
    try:
        with torch.inference_mode():
            return _play(ask, num_games, batch_size, seed, recorder, "int64", max_steps, progress)
    finally:
        for module, was_training in modes:
            module.training = was_training
