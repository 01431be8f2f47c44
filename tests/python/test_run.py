"""Single runs: reading, writing, checking, and the errors of files that are not runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import a2store
import oracle
from formats import A2RUN2, A2T1
from oracle import Game
from sources import assert_run


def test_runs_are_read_and_converted_as_by_the_oracle(run_files: list[Path], games: list[Game]) -> None:
    for path, game in zip(run_files, games, strict=True):
        assert_run(a2store.read_run(path), game, A2T1 if path.suffix == ".bin" else A2RUN2)
        run = a2store.read_run(str(path))
        assert run.to_bytes() == path.read_bytes()
        assert run.to_bytes("a2t1") == oracle.encode_a2t1(game)
        assert run.to_bytes("a2run2") == oracle.encode_a2run2(game)


def test_a_large_board_and_an_empty_run(games: list[Game]) -> None:
    full = replace(games[0], boards=(2**64 - 1,), moves=(3,), branches=(None,), final_board=2**64 - 1, engine="")
    run = a2store.read_run(oracle.encode_a2run2(full))
    assert run.boards.tolist() == [2**64 - 1]
    assert run.final_board == 2**64 - 1
    assert run.ev_legal.tolist() == [[False] * 4]
    assert run.meta.engine == ""
    empty = replace(full, boards=(), moves=(), branches=(), engine=None)
    run = a2store.read_run(oracle.encode_a2run2(empty))
    assert (len(run), run.boards.shape, run.ev_values.shape) == (0, (0,), (0, 4))
    assert run.meta.engine is None


def test_verify(run_files: list[Path], games: list[Game]) -> None:
    assert a2store.read_run(run_files[0]).verify() is None
    boards = list(games[0].boards)
    boards[17] ^= 1 << 60
    violation = a2store.read_run(oracle.encode_a2run2(replace(games[0], boards=tuple(boards)))).verify()
    assert violation is not None
    assert "16" in violation or "17" in violation
    legal = games[0].branches[5]
    assert legal is not None
    none_legal = (*games[0].branches[:5], (None, None, None, None), *games[0].branches[6:])
    assert a2store.read_run(oracle.encode_a2run2(replace(games[0], branches=none_legal))).verify() is not None


def test_errors_have_a_location(games: list[Game], tmp_path: Path) -> None:
    # Cut in the middle of the varint of the board of step 100.
    head = replace(games[0], boards=games[0].boards[:100], moves=games[0].moves[:100], branches=games[0].branches[:100])
    length = len(oracle.encode_a2run2(head)) - len(oracle.varint(head.final_board))
    path = tmp_path / "cut.a2run2"
    path.write_bytes(oracle.encode_a2run2(games[0])[: length + 2])
    with pytest.raises(a2store.DecodeError) as caught:
        a2store.read_run(path)
    error = caught.value
    assert (error.kind, error.path, error.step) == ("decode", path, 100)
    assert error.offset is not None
    assert length <= error.offset <= length + 2
    assert str(path) in str(error)

    with pytest.raises(a2store.DecodeError, match=r"trailing|end") as caught:
        a2store.read_run(oracle.encode_a2run2(games[0]) + b"\0")
    assert caught.value.path is None
    assert caught.value.offset == len(oracle.encode_a2run2(games[0]))
