"""Games with a policy: independent of the batches, valid, recorded exactly; and rejected arguments."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import a2store
from a2store.selfplay import Player, PlayResult, Recorder, play
from oracle import Array, cells, legal_mask, packed, reward, slide, spawns

Policy = Callable[[Array, Array], Any]
QUIET: dict[str, Any] = {"progress": False}


def first_legal(tokens: Array, legal: Array) -> Array:
    moves: Array = legal.argmax(axis=1)
    return moves


def mixed(tokens: Array, legal: Array) -> Array:
    """Logits that depend on the board, and differ between boards and moves."""
    boards = tokens.astype(np.uint64) @ (np.uint64(31) ** np.arange(16, dtype=np.uint64))
    return (boards[:, None] * np.array([3, 5, 7, 11], np.uint64) % np.uint64(97)).astype(np.float32) / 32


def same(a: PlayResult, b: PlayResult) -> bool:
    names = ["games", "scores", "highest_tiles", "num_steps", "final_boards", "terminated"]
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


class Watcher:
    """A policy that stores its inputs and its answers."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.asked: list[tuple[Array, Array, Array]] = []

    def __call__(self, tokens: Array, legal: Array) -> Array:
        answer: Array = self.policy(tokens, legal)
        self.asked.append((tokens, legal, answer))
        return answer


def test_every_step_obeys_the_rules() -> None:
    watcher = Watcher(first_legal)
    result = play(watcher, 1, 1, seed=5, **QUIET)
    boards = [packed(tokens[0].tolist()) for tokens, _, _ in watcher.asked]
    assert cells(boards[0]).count(0) == 14
    score = 0
    for (_, legal, moves), board, after in zip(watcher.asked, boards, [*boards[1:], *result.final_boards], strict=True):
        move = int(moves[0])
        assert [bool(legal_mask(board) >> bit & 1) for bit in range(4)] == legal[0].tolist()
        slid = slide(board, move)
        assert slid != board
        assert spawns(slid, int(after))
        score += reward(board, move)
    final = int(result.final_boards[0])
    assert legal_mask(final) == 0
    assert result.scores.tolist() == [score]
    assert result.num_steps.tolist() == [len(boards)]
    assert result.highest_tiles.tolist() == [2 ** max(cells(final))]
    assert result.terminated.tolist() == [True]
    assert result.total_steps == len(boards)
    assert result.steps_per_second == pytest.approx(result.total_steps / result.seconds)
    assert len(play(first_legal, 0, **QUIET)) == 0


def test_games_do_not_depend_on_the_batches() -> None:
    whole = play(mixed, 60, 60, seed=3, **QUIET)
    assert whole.games.tolist() == list(range(60))
    assert len(set(whole.final_boards.tolist())) == 60
    for batch_size in [1, 7, 1024]:
        assert same(whole, play(mixed, 60, batch_size, seed=3, **QUIET))
    # A shorter play is a prefix of a longer one, and another seed gives other games.
    assert play(mixed, 20, 8, seed=3, **QUIET).scores.tolist() == whole.scores[:20].tolist()
    assert not same(whole, play(mixed, 60, 60, seed=4, **QUIET))


def test_a_policy_owns_its_arrays() -> None:
    kept: list[tuple[Array, Array, Array]] = []

    def policy(tokens: Array, legal: Array) -> Array:
        moves: Array = legal.argmax(axis=1)
        kept.append((tokens, legal, tokens.copy()))
        legal[:] = True
        return moves

    play(policy, 8, 8, **QUIET)
    gc.collect()
    assert all((tokens == copy).all() and legal.all() for tokens, legal, copy in kept)
    assert (kept[0][0].dtype.name, kept[0][0].shape) == ("uint8", (8, 16))
    assert (kept[0][1].dtype.name, kept[0][1].shape) == ("bool", (8, 4))
    wide = Watcher(first_legal)
    play(wide, 8, 8, tokens="int64", **QUIET)
    assert wide.asked[0][0].dtype == np.int64
    assert all((a[0] == b[2]).all() for a, b in zip(wide.asked, kept, strict=True))


@pytest.mark.parametrize(
    "answer",
    [
        lambda tokens, legal: mixed(tokens, legal).astype(np.float64),
        lambda tokens, legal: mixed(tokens, legal).tolist(),
        lambda tokens, legal: np.where(legal, mixed(tokens, legal), -np.inf),
        lambda tokens, legal: np.where(legal, mixed(tokens, legal), -np.inf).argmax(axis=1).astype(np.uint8).tolist(),
        lambda tokens, legal: np.repeat(np.where(legal, mixed(tokens, legal), -1).argmax(axis=1), 2)[::2],
    ],
)
def test_a_policy_may_return_many_types(answer: Policy) -> None:
    assert same(play(answer, 20, 8, **QUIET), play(mixed, 20, 8, **QUIET))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda moves: moves[:-1], ValueError, "moves: expected 6 rows, found 5"),
        (lambda moves: np.where(np.arange(6) == 4, 7, moves), ValueError, "moves: expected 0..=3 in row 4, found 7"),
        (lambda moves: moves.astype(float), TypeError, r"shape \(6,\), or logits.*found float64 of shape \(6,\)"),
        (lambda moves: np.zeros((6, 4), int), TypeError, r"found int64 of shape \(6, 4\)"),
        (lambda moves: None, TypeError, "found object"),
        (lambda moves: np.zeros((7, 4)), ValueError, "logits: expected 6 rows, found 7"),
        (lambda moves: np.array([[0, 0, 0, 0]] * 5 + [[0, np.nan, 0, 0]]), ValueError, "numbers or -inf in row 5"),
        (lambda moves: np.full((6, 4), -np.inf), ValueError, "logits: expected a number for .* in row 0"),
    ],
)
@pytest.mark.parametrize("asked_before", [0, 20])
def test_wrong_answers_are_rejected(
    change: Callable[[Array], Any], error: type[Exception], message: str, asked_before: int
) -> None:
    asked = 0

    def policy(tokens: Array, legal: Array) -> Any:
        nonlocal asked
        asked += 1
        moves = legal.argmax(axis=1)
        return change(moves) if asked > asked_before else moves

    with pytest.raises(error, match=message):
        play(policy, 6, 6, **QUIET)


def test_an_illegal_move_is_reported_with_its_row_and_board() -> None:
    asked: list[Array] = []

    def policy(tokens: Array, legal: Array) -> Array:
        asked.append(tokens)
        moves: Array = legal.argmax(axis=1)
        bad = ~legal.all(axis=1)
        row = int(bad.argmax())
        if bad.any():
            moves[row] = legal[row].argmin()
            asked.append(np.array([row]))
        return moves

    with pytest.raises(ValueError, match=r"moves: expected .* in row") as caught:
        play(policy, 5, 5, **QUIET)
    row = int(asked[-1][0])
    text = " / ".join(
        " ".join("." if exp == 0 else str(2**exp) for exp in line) for line in asked[-2][row].reshape(4, 4).tolist()
    )
    assert f"in row {row}, found " in str(caught.value)
    assert str(caught.value).endswith(f"which does not change {text}")


def test_errors_of_the_policy_are_raised_unchanged() -> None:
    class MineError(Exception):
        pass

    raised = MineError("as it is")

    def policy(tokens: Array, legal: Array) -> Array:
        raise raised

    with pytest.raises(MineError, check=lambda error: error is raised):
        play(policy, 6, **QUIET)


def test_a_policy_is_callable() -> None:
    with pytest.raises(TypeError, match="policy: expected a callable"):
        play(7, 3, **QUIET)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"depth: expected 0\.\.=3, found 4"):
        Player(4)


def test_games_are_truncated_at_max_steps() -> None:
    whole = play(mixed, 40, seed=2, **QUIET)
    most = int(np.median(whole.num_steps))
    cut = play(mixed, 40, seed=2, max_steps=most, **QUIET)
    assert (cut.num_steps == np.minimum(whole.num_steps, most)).all()
    assert (cut.terminated == (whole.num_steps <= most)).all()
    assert (cut.scores <= whole.scores).all()


# The built-in player


def test_the_player_plays_what_simulate_plays(tmp_path: Path) -> None:
    a2store.simulate(tmp_path, runs=6, seed=8, depth=0, progress=False)
    result = play(Player(0), 6, seed=8, **QUIET)
    runs = [a2store.read_run(path) for path in sorted(tmp_path.iterdir())]
    assert result.final_boards.tolist() == [run.final_board for run in runs]
    assert result.num_steps.tolist() == [len(run) for run in runs]
    assert same(result, play(Player(0, workers=1), 6, seed=8, **QUIET))
    # Used as an ordinary policy, the player makes the same moves.
    player = Player(depth=0)
    listed: Any = [[0] * 14 + [1, 1]]
    assert player(listed).tolist() == player(np.array(listed)).tolist()
    assert same(result, play(lambda tokens, legal: player(tokens, legal), 6, 4, seed=8, **QUIET))


# Recording


def recorded(recorder: Recorder, folder: Path) -> Any:
    recorder.close()
    archive = a2store.Archive.create(folder / "games.a2")
    accepted = archive.ingest(recorder.sessions, progress=False)
    assert accepted.rejected == 0
    return archive


@pytest.mark.parametrize("policy", [mixed, Player(0)])
def test_recorded_games_equal_the_played_ones(policy: Any, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "sessions", tag="mixed", engine="mixed")
    result = play(policy, 30, 8, seed=1, recorder=recorder, **QUIET)
    assert result.stopped is None
    archive = recorded(recorder, tmp_path)
    runs = archive.sql("SELECT run_id, num_steps, highest_tile FROM runs ORDER BY run_id").to_arrow().to_pydict()
    assert sorted(runs["num_steps"]) == sorted(result.num_steps.tolist())
    assert sorted(runs["highest_tile"]) == sorted(result.highest_tiles.tolist())
    steps = np.asarray(archive.sql("SELECT * FROM steps ORDER BY run_id, step_index").materialize(progress=False))
    assert len(steps) == result.total_steps
    for first, second in pairwise(steps):
        if first["run_id"] == second["run_id"]:
            assert spawns(slide(int(first["board"]), int(first["move"])), int(second["board"]))


def test_a_full_recorder_ends_play(tmp_path: Path) -> None:
    with Recorder(tmp_path / "sessions", tag="few", max_games=10) as recorder:
        result = play(mixed, 50, 4, recorder=recorder, **QUIET)
        assert (len(result), result.stopped) == (10, "games")
        assert result.terminated.all()
        assert result.scores.tolist() == play(mixed, 10, **QUIET).scores.tolist()
        assert recorder.stats().ended == 10
        again = play(mixed, 50, 4, recorder=recorder, **QUIET)
        assert (len(again), again.stopped) == (0, "games")


def test_running_games_are_abandoned_on_an_error(tmp_path: Path) -> None:
    asked = 0

    def policy(tokens: Array, legal: Array) -> Array:
        nonlocal asked
        asked += 1
        if asked > 200:
            raise RuntimeError("enough")
        return first_legal(tokens, legal)

    with Recorder(tmp_path / "sessions", tag="cut") as recorder:
        with pytest.raises(RuntimeError, match="enough"):
            play(policy, 50, 8, recorder=recorder, **QUIET)
        stats = recorder.stats()
    assert stats.abandoned == 8
    assert stats.live == 0
    assert stats.ended == stats.begun - 8 > 0


# Interrupts


@pytest.mark.parametrize("policy", ["lambda tokens, legal: legal.argmax(axis=1)", "Player(3)"])
def test_ctrl_c_stops_it(policy: str) -> None:
    code = f"""
from a2store.selfplay import Player, play
print("ready", flush=True)
play({policy}, 10**9, 64, progress=False)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    timer = threading.Timer(0.5, process.send_signal, [signal.SIGINT])
    timer.start()
    try:
        _, errors = process.communicate(timeout=60)
    finally:
        timer.cancel()
        process.kill()
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")


# PyTorch


def test_a_module_runs_in_eval_mode_and_its_mode_is_restored() -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(16, 4)
            self.dropout = torch.nn.Dropout(0.5)
            self.frozen = torch.nn.Dropout(0.5).eval()
            self.seen: set[tuple[bool, bool, Any]] = set()

        def forward(self, tokens: Any) -> Any:
            self.seen.add((self.training, torch.is_inference_mode_enabled(), tokens.dtype))
            return self.frozen(self.dropout(self.embedding(tokens))).sum(dim=1)

    torch.manual_seed(0)
    net = Net().train()
    net.frozen.eval()
    play(net, 20, 8, **QUIET)
    assert net.seen == {(False, True, torch.int64)}
    assert (net.training, net.dropout.training, net.frozen.training) == (True, True, False)
    # Sums of quarters are exact in any order.
    with torch.no_grad():
        net.embedding.weight.copy_((net.embedding.weight * 4).round() / 4)
    table = net.embedding.weight.detach().numpy()
    result = play(net, 20, 8, **QUIET)
    assert same(result, play(lambda tokens, legal: table[tokens].sum(axis=1), 20, 5, **QUIET))
    net.forward = lambda tokens: (_ for _ in ()).throw(RuntimeError("broken"))
    with pytest.raises(RuntimeError, match="broken"):
        play(net, 5, **QUIET)
    assert (net.training, net.frozen.training) == (True, False)


def test_a_policy_may_return_tensors_of_any_float_type() -> None:
    torch = pytest.importorskip("torch")

    def answer(dtype: Any) -> Policy:
        # Quarters below 8 are exact in all these types.
        return lambda tokens, legal: torch.from_numpy(np.floor(mixed(tokens, legal) * 4) / 4).to(dtype).requires_grad_()

    expected = play(lambda tokens, legal: np.floor(mixed(tokens, legal) * 4) / 4, 20, **QUIET)
    for dtype in [torch.float32, torch.float64, torch.float16, torch.bfloat16]:
        assert same(expected, play(answer(dtype), 20, **QUIET))
    moves = play(lambda tokens, legal: torch.from_numpy(legal).int().argmax(dim=1), 20, **QUIET)
    assert same(moves, play(first_legal, 20, **QUIET))
