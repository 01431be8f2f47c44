"""Games stepped by the caller, and as a Gymnasium environment, compared with the rules and with Gymnasium's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from a2store.selfplay import VectorEnv, play
from oracle import Array, legal_mask, packed, reward, slide, spawns


def legal_moves(boards: Array) -> Array:
    return np.array([[legal_mask(int(board)) >> bit & 1 for bit in range(4)] for board in boards], bool)


def drawn(random: np.random.Generator, legal: Array) -> Array:
    """Return a random legal move for each row; 0 if no move is legal."""
    moves: Array = np.where(legal, random.random(legal.shape), -1).argmax(axis=1)
    return moves


def test_steps_obey_the_rules() -> None:
    random = np.random.default_rng(1)
    env = VectorEnv(20, seed=3)
    assert (env.num_envs, len(env), env.seed) == (20, 20, 3)
    scores, steps = np.zeros(20, int), np.zeros(20, int)
    begun = 20
    for _ in range(250):
        before, over = env.boards, env.over
        legal = env.legal()
        assert (legal == legal_moves(before)).all()
        assert (over == ~legal.any(axis=1)).all()
        moves = drawn(random, legal)
        rewards, now_over = env.step(moves)
        for board, move, earned, after, was_over in zip(before, moves, rewards, env.boards, over, strict=True):
            if was_over:
                assert (after, earned) == (board, 0)
            else:
                assert spawns(slide(int(board), int(move)), int(after))
                assert earned == reward(int(board), int(move))
        scores += rewards
        steps += ~over
        assert (now_over == env.over).all()
        assert (env.scores == scores).all()
        assert (env.num_steps == steps).all()
        assert [packed(tokens) for tokens in env.tokens().tolist()] == env.boards.tolist()
        assert (env.tokens("int64") == env.tokens()).all()
        # Some restarts are skipped, so that finished games are stepped too.
        if begun % 2 == 0 or random.random() < 0.5:
            num_over = int(now_over.sum())
            assert env.restart() == num_over
            assert env.games[now_over].tolist() == list(range(begun, begun + num_over))
            begun += num_over
            scores[now_over] = steps[now_over] = 0
    assert begun > 30


def test_each_set_of_legal_moves() -> None:
    env, random, seen = VectorEnv(100), np.random.default_rng(1), set[int]()
    # Each game avoids a direction, until it is the only legal one.
    avoided = np.eye(4)[np.arange(100) % 4]
    while len(seen) < 16:
        legal = env.legal()
        assert (legal == legal_moves(env.boards)).all()
        seen.update((legal @ (1 << np.arange(4))).tolist())
        env.restart()
        env.step(np.where(legal, random.random(legal.shape) - avoided, -2).argmax(axis=1), illegal="ignore")


def test_games_equal_those_of_play() -> None:
    result = play(lambda tokens, legal: legal.argmax(axis=1), 12, 5, seed=7, progress=False)
    env = VectorEnv(12, seed=7)
    while not env.over.all():
        env.step(env.legal().argmax(axis=1))
    assert env.boards.tolist() == result.final_boards.tolist()
    assert env.scores.tolist() == result.scores.tolist()
    assert env.num_steps.tolist() == result.num_steps.tolist()


def test_resets_and_masks() -> None:
    env = VectorEnv(6, seed=1)
    first = env.boards
    mask = np.array([False, True, False, False, True, False])
    assert env.restart(mask.tolist()) == 2
    assert env.games.tolist() == [0, 6, 2, 3, 7, 5]
    assert ((env.boards == first) == ~mask).all()
    env.reset()
    assert env.boards.tolist() == first.tolist()
    env.reset(2)
    assert (env.seed, env.games.tolist()) == (2, [0, 1, 2, 3, 4, 5])
    assert env.boards.tolist() == VectorEnv(9, seed=2).boards.tolist()[:6]


def test_invalid_moves_are_rejected_before_any_step() -> None:
    env = VectorEnv(3, seed=1)
    legal = env.legal()
    # Restarts until a first board has an illegal move.
    while legal.all():
        env.restart(np.ones(3, bool))
        legal = env.legal()
    row = int((~legal).any(axis=1).argmax())
    moves = legal.argmax(axis=1)
    moves[row] = legal[row].argmin()
    before = env.boards
    with pytest.raises(ValueError, match=f"moves: expected .* in row {row}, found .*, which does not change"):
        env.step(moves)
    assert env.boards.tolist() == before.tolist()
    rewards, _ = env.step(moves, illegal="ignore")
    assert ((env.boards == before) == (np.arange(3) == row)).all()
    assert rewards[row] == env.num_steps[row] == 0
    for wrong, error in [
        (np.zeros(2, int), ValueError),
        (np.array([0, 4, 0]), ValueError),
        (np.zeros(3), TypeError),
        (np.zeros((3, 1), int), TypeError),
    ]:
        with pytest.raises(error, match="moves: expected"):
            env.step(wrong)
    with pytest.raises(ValueError, match="illegal: expected"):
        env.step(moves, illegal="keep")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mask: expected bools of shape"):
        env.restart(np.ones(2, bool))
    for num_envs in [0, 2**24 + 1]:
        with pytest.raises(ValueError, match=r"num_envs: expected 1\.\.="):
            VectorEnv(num_envs)


# Gymnasium


@pytest.fixture
def gym_env() -> Any:
    pytest.importorskip("gymnasium")
    from a2store.selfplay.gym import GymVectorEnv

    return GymVectorEnv


def check_spaces(env: Any, observations: Array, infos: dict[str, Any]) -> None:
    assert observations in env.observation_space
    assert observations.dtype == np.uint8
    boards = np.array([packed(row) for row in observations.tolist()], np.uint64)
    assert (infos["action_mask"] == legal_moves(boards)).all()


def test_gymnasium_makes_it(gym_env: Any) -> None:
    import gymnasium

    env = gymnasium.make_vec("a2store/2048-v0", num_envs=3, illegal="truncate")
    assert isinstance(env, gym_env)
    assert (env.num_envs, env.observation_space.shape, env.action_space.shape) == (3, (3, 16), (3,))
    assert env.single_observation_space.shape == (16,)
    assert env.single_action_space.n == 4
    observations, infos = env.reset(seed=5)
    check_spaces(env, observations, infos)
    again, _ = gymnasium.make_vec("a2store/2048-v0", num_envs=3).reset(seed=5)
    assert (observations == again).all()
    env.action_space.seed(0)
    for _ in range(200):
        observations, rewards, terminations, truncations, infos = env.step(env.action_space.sample())
        check_spaces(env, observations, infos)
        assert rewards.dtype == np.float64
        assert terminations.dtype == truncations.dtype == np.bool_
        assert not (terminations & truncations).any()
    env.close()


def test_the_next_game_begins_in_the_next_step(gym_env: Any) -> None:
    env = gym_env(8)
    assert env.metadata["autoreset_mode"].value == "NextStep"
    random = np.random.default_rng(0)
    _, infos = env.reset(seed=1)
    done = np.zeros(8, bool)
    returns, ended = np.zeros(8), 0
    for _ in range(400):
        before = infos
        observations, rewards, terminations, truncations, infos = env.step(drawn(random, infos["action_mask"]))
        check_spaces(env, observations, infos)
        # If a game ended in the previous step, this step only began another one.
        assert (rewards[done] == 0).all()
        assert not terminations[done].any()
        assert ((observations != 0).sum(axis=1)[done] == 2).all()
        assert (infos["num_steps"] == np.where(done, 0, before["num_steps"] + 1)).all()
        returns = np.where(done, 0, returns + rewards)
        assert (infos["score"] == returns).all()
        assert (terminations == ~infos["action_mask"].any(axis=1)).all()
        assert not truncations.any()
        done = terminations
        ended += int(done.sum())
    assert ended > 10


def test_the_next_game_begins_in_the_same_step(gym_env: Any) -> None:
    following, same = gym_env(5), gym_env(5, autoreset_mode="SameStep")
    _, infos = same.reset(seed=2)
    observations, _ = following.reset(seed=2)
    ended = 0
    # Until the first game ends, both show the same. Then one shows its last board, and the other keeps it.
    while not ended:
        actions = infos["action_mask"].argmax(axis=1)
        last, _, terminations, _, _ = following.step(actions)
        observations, _, done, _, infos = same.step(actions)
        assert (done == terminations).all()
        check_spaces(same, observations, infos)
        assert infos["action_mask"].any(axis=1).all()
        assert ("final_obs" in infos) == done.any()
        ended = int(done.sum())
    assert (infos["_final_obs"] == done).all()
    for row in range(5):
        if done[row]:
            assert (infos["final_obs"][row] == last[row]).all()
            assert (observations[row] != 0).sum() == 2
            assert not infos["final_info"]["action_mask"][row].any()
            assert infos["final_info"]["num_steps"][row] > infos["num_steps"][row] == 0
        else:
            assert infos["final_obs"][row] is None
            assert (observations[row] == last[row]).all()


def test_a_reset_begins_other_games(gym_env: Any) -> None:
    env = gym_env(4)
    # A reset with the same seed begins the same games.
    first, _ = env.reset(seed=0)
    other, _ = env.reset()
    assert (first != other).any()
    assert (env.reset(seed=0)[0] == first).all()
    with pytest.raises(ValueError, match="expected NextStep or SameStep, found Disabled"):
        gym_env(4, autoreset_mode="Disabled")


def test_illegal_actions(gym_env: Any) -> None:
    envs = {illegal: gym_env(60, illegal=illegal) for illegal in ["ignore", "truncate", "raise"]}
    for env in envs.values():
        observations, infos = env.reset(seed=4)
    mask = infos["action_mask"]
    wrong = ~mask.all(axis=1)
    assert wrong.any()
    actions = np.where(wrong, mask.argmin(axis=1), 0)
    for name in ["ignore", "truncate"]:
        after, rewards, terminations, truncations, infos = envs[name].step(actions)
        assert ((after == observations).all(axis=1) == wrong).all()
        assert (infos["illegal"] == wrong).all()
        assert (rewards[wrong] == 0).all()
        assert not terminations.any()
        assert (truncations == (wrong if name == "truncate" else False)).all()
    with pytest.raises(ValueError, match=f"a legal move in row {int(wrong.argmax())}"):
        envs["raise"].step(actions)
    for bad, error in [(np.full(60, 4), ValueError), (np.zeros(60), TypeError), (np.zeros(59, int), TypeError)]:
        with pytest.raises(error, match="actions: expected"):
            envs["ignore"].step(bad)
    with pytest.raises(ValueError, match="illegal: expected"):
        gym_env(2, illegal="whatever")


def test_gymnasiums_wrappers_take_it(gym_env: Any) -> None:
    from gymnasium.wrappers.vector import RecordEpisodeStatistics

    scores = {}
    for mode in ["NextStep", "SameStep"]:
        env = RecordEpisodeStatistics(gym_env(4, autoreset_mode=mode))
        _, infos = env.reset(seed=3)
        ended: dict[int, float] = {}
        while len(ended) < 4:
            _, _, _, _, infos = env.step(infos["action_mask"].argmax(axis=1))
            for row in np.flatnonzero(infos.get("_episode", np.zeros(4, bool))):
                ended.setdefault(int(row), float(infos["episode"]["r"][row]))
        scores[mode] = [ended[row] for row in range(4)]
    expected = play(lambda tokens, legal: legal.argmax(axis=1), 4, seed=3, progress=False).scores.tolist()
    assert scores["NextStep"] == scores["SameStep"] == expected
