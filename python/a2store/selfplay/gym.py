"""2048 as a Gymnasium ``VectorEnv``.

Importing this module requires Gymnasium, and registers ``a2store/2048-v0`` for ``make_vec``.

>>> import gymnasium
>>> import a2store.selfplay.gym
>>> env = gymnasium.make_vec("a2store/2048-v0", num_envs=4)
>>> observations, infos = env.reset(seed=1)
>>> observations.shape
(4, 16)
"""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode

from .. import selfplay
from .._integers import integer

__all__ = ["GymVectorEnv"]

Observations = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Infos = dict[str, Any]


class GymVectorEnv(gymnasium.vector.VectorEnv[Observations, npt.NDArray[Any], npt.NDArray[Any]]):
    """A vector of games of 2048.

    An observation is a board's 16 exponents row by row, uint8 (n, 16). Actions are 0 to 3 for up, down, left and right.
    A reward, float64, is the score of the move. A game terminates when no move is legal.

    ``infos`` describes the observed boards: ``action_mask`` (n, 4) bool, ``score`` and ``num_steps`` (n,) int64. After
    a step it also has ``illegal`` (n,) bool. In mode ``SAME_STEP`` it also has ``final_obs`` and ``final_info`` of the
    games that ended, as Gymnasium's own environments do. ``_final_obs`` and ``_final_info`` mark the valid rows.

    An illegal action does not change the board and has reward 0. With ``illegal="truncate"`` it truncates the game.

    ``reset(seed=s)`` begins the first games of a seed. In these games equal actions have equal results for any
    ``num_envs``, if the games begin in the same order. ``reset()`` continues with the next games.

    - ``num_envs``: the number of games, in ``1..=2**24``.
    - ``autoreset_mode``: when the next game begins after a finished game. ``"NextStep"``: in the next step, which
      ignores the action for that game. ``"SameStep"``: in the same step.
    - ``illegal``: the effect of an illegal action: ``"ignore"`` it, ``"truncate"`` its game, or ``"raise"``
      ``ValueError``.
    - ``max_episode_steps``: truncates games after this many steps, at least 1; ``None`` = no limit. Illegal actions do
      not count.

    Raises ``ValueError`` for an option out of range.

    >>> from a2store.selfplay.gym import GymVectorEnv
    >>> env = GymVectorEnv(num_envs=1024)
    >>> observations, infos = env.reset(seed=1)
    >>> actions = infos["action_mask"].argmax(axis=1)
    >>> observations, rewards, terminations, truncations, infos = env.step(actions)
    >>> rewards.shape, rewards.dtype
    ((1024,), dtype('float64'))
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int = 1,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        illegal: Literal["ignore", "truncate", "raise"] = "ignore",
        max_episode_steps: int | None = None,
    ) -> None:
        super().__init__()
        if illegal not in ("ignore", "truncate", "raise"):
            raise ValueError(f"illegal: expected 'ignore', 'truncate' or 'raise', found {illegal!r}")
        num_envs = integer("num_envs", num_envs, 1, 2**24)
        if max_episode_steps is not None:
            max_episode_steps = integer("max_episode_steps", max_episode_steps, 1)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        if self.autoreset_mode == AutoresetMode.DISABLED:
            raise ValueError("autoreset_mode: expected NextStep or SameStep, found Disabled")
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.num_envs = num_envs
        self.single_observation_space = Box(0, 15, (16,), np.uint8)
        self.observation_space = Box(0, 15, (num_envs, 16), np.uint8)
        self.single_action_space = Discrete(4)
        self.action_space = MultiDiscrete(np.full(num_envs, 4))
        self._illegal = illegal
        self._max_steps = max_episode_steps
        self._env = selfplay.VectorEnv(num_envs)
        self._done: Bools = np.zeros(num_envs, bool)
        self._legal: Bools = self._env.legal()
        self._is_seeded = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observations, Infos]:
        """Begin all games; return (observations, infos), which the class describes.

        - ``seed``: begins the first games of this seed, in ``0..2**64``; ``None`` = the next games. The first call
          without a seed draws one.
        - ``options``: ignored.

        Raises ``ValueError`` for a seed out of range.

        >>> from a2store.selfplay.gym import GymVectorEnv
        >>> observations, infos = GymVectorEnv(2).reset(seed=1)
        >>> infos["score"]
        array([0, 0])
        """
        if seed is not None:
            seed = integer("seed", seed, 0)
        if seed is not None or not self._is_seeded:
            super().reset(seed=seed)
            drawn = int(self.np_random.integers(2**63)) if seed is None else seed
            self._env.reset(drawn)
            self._is_seeded = True
        else:
            self._env.restart(np.ones(self.num_envs, bool))
        self._done = np.zeros(self.num_envs, bool)
        return self._env.tokens(), self._infos()

    def step(self, actions: npt.NDArray[Any]) -> tuple[Observations, npt.NDArray[np.float64], Bools, Bools, Infos]:
        """Make a move in each game; return (observations, rewards, terminations, truncations, infos).

        The arrays have a row per game; the class describes them.

        - ``actions``: shape (n,), integers, 0 to 3 in the order UDLR.

        Raises ``TypeError`` unless the actions are n integers. Raises ``ValueError`` for other moves, and for an
        illegal one with ``illegal="raise"``.

        >>> from a2store.selfplay.gym import GymVectorEnv
        >>> env = GymVectorEnv(2)
        >>> observations, infos = env.reset(seed=1)
        >>> env.step(infos["action_mask"].argmax(axis=1))[2]
        array([False, False])
        """
        actions = np.asarray(actions)
        before = self._done
        # Games that begin in this step are replaced, so any legal move works for them.
        illegal = self._illegal_actions(actions) & ~before
        if self._illegal == "raise" and illegal.any():
            row = int(illegal.argmax())
            raise ValueError(f"actions: expected a legal move in row {row}, found {int(actions[row])}")
        earned, over = self._env.step(actions, illegal="ignore")
        rewards = earned.astype(np.float64)
        truncations = illegal & ~over if self._illegal == "truncate" else np.zeros(self.num_envs, bool)
        if self._max_steps is not None:
            truncations |= (self._env.num_steps >= self._max_steps) & ~over
        if before.any():
            self._env.restart(before)
            rewards[before], over[before], truncations[before] = 0.0, False, False
        done = over | truncations
        final: Infos = {}
        if self.autoreset_mode == AutoresetMode.SAME_STEP and done.any():
            values = {**self._values(), "illegal": illegal}
            last = {**values, **{f"_{key}": done.copy() for key in values}}
            final = {"final_obs": self._final(done), "final_info": last}
            final |= {f"_{key}": done.copy() for key in final}
            self._env.restart(done)
            self._done = np.zeros(self.num_envs, bool)
        else:
            self._done = done
        return self._env.tokens(), rewards, over, truncations, {**self._infos(), "illegal": illegal, **final}

    def _final(self, done: Bools) -> npt.NDArray[np.object_]:
        """Return the last observation of each game that ended, and None for the others."""
        final = np.full(self.num_envs, None, object)
        tokens = self._env.tokens()
        for row in np.flatnonzero(done):
            final[row] = tokens[row]
        return final

    def _illegal_actions(self, actions: npt.NDArray[Any]) -> Bools:
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            found = f"{actions.dtype} of shape {actions.shape}"
            raise TypeError(f"actions: expected integers of shape ({self.num_envs},), found {found}")
        if ((actions < 0) | (actions > 3)).any():
            raise ValueError("actions: expected 0 to 3")
        legal: Bools = np.take_along_axis(self._legal, actions[:, None].astype(np.intp), axis=1)[:, 0]
        return ~legal

    def _values(self) -> Infos:
        self._legal = self._env.legal()
        return {"action_mask": self._legal.copy(), "score": self._env.scores, "num_steps": self._env.num_steps}

    def _infos(self) -> Infos:
        values = self._values()
        # Gymnasium marks the valid rows of each value by a key with an underscore.
        return {**values, **{f"_{key}": np.ones(self.num_envs, bool) for key in values}}


if "a2store/2048-v0" not in gymnasium.registry:
    gymnasium.register("a2store/2048-v0", vector_entry_point="a2store.selfplay.gym:GymVectorEnv")
