"""Embeddings of sessions and tables: computed row by row, resumed, replaced and rejected."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import a2store
import formats
from a2store.critic.__main__ import main
from a2store.critic.embedding import embed
from a2store.critic.encoder import encoder_sha, load_encoder, to_bf16
from a2store.critic.transformer import BoardTransformer
from faults.shim import python
from games import play
from oracle import Game

pytestmark = pytest.mark.usefixtures("one_thread")
WEIGHTS = np.random.default_rng(0).normal(size=(16, 5)).astype("f4")


def linear(tokens: Any) -> Any:
    """An encoder of NumPy arrays that computes each row independently of its batch."""
    assert (tokens.dtype, tokens.shape[1:]) == (np.uint8, (16,))
    return np.stack([(row[:, None] * WEIGHTS).sum(0) for row in tokens.astype("f4")])


@pytest.fixture(scope="module")
def played() -> list[Game]:
    rng = random.Random(7)
    return [play(rng, 60) for _ in range(12)]


@pytest.fixture(params=[None, 3], ids=["whole", "shards"])
def session(request: pytest.FixtureRequest, played: list[Game], tmp_path: Path) -> Path:
    formats.write_session(tmp_path / "session", played, shards=request.param)
    return tmp_path / "session"


def exps(folder: Path) -> Any:
    return formats.load_shards(folder, [formats.SESSION_ROW])["exps"]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith("steps")} - {"metadata.db"}


def test_numpy_encoder(session: Path) -> None:
    report = embed(session, linear, batch_size=100, progress=False)
    expected = linear(exps(session))
    found = np.load(report.path)
    assert report.path == session / "embeddings.bf16.npy"
    assert (found.dtype, report.num_rows, report.dim) == (np.dtype("<u2"), len(expected), 5)
    assert (report.resumed_at, report.remark, report.pooling) == (0, "", "none")
    np.testing.assert_array_equal(found, to_bf16(expected))
    # PyTorch rounds in the same way.
    rounded = torch.from_numpy(expected).to(torch.bfloat16).view(torch.int16).numpy().view("u2")
    np.testing.assert_array_equal(found, rounded)
    assert json.loads((session / "embeddings.json").read_text()) == {
        "model_sha": encoder_sha(linear),
        "pooling": "none",
        "D": 5,
        "dtype": "bf16",
        "dtype_bits": "bf16",
        "rows": len(expected),
    }
    assert names(session) == {"embeddings.bf16.npy", "embeddings.json"}
    # The session still reads as before, and the embeddings have the documented shape.
    assert len(formats.read_session(session)) == 12


@pytest.mark.parametrize("cls", [False, True])
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_torch_encoder(session: Path, cls: bool, dtype: Any) -> None:
    encoder = BoardTransformer(8, 1, 2, cls=cls, seed=3)
    tokens = torch.from_numpy(exps(session)).long()
    with torch.no_grad():
        vectors = encoder.eval()(tokens)
    assert vectors.shape == (len(tokens), 17 if cls else 16, 8)
    poolings: list[Any] = [None, "mean", "cls"] if cls else [None, "mean"]
    for pooling in poolings:
        report = embed(session, encoder, pooling=pooling, dtype=dtype, overwrite=True, batch_size=64, progress=False)
        expected = vectors[:, 0] if pooling == "cls" else vectors[:, int(cls) :].mean(1)
        found = np.load(session / f"embeddings.{dtype}.npy")
        if dtype == "f32":
            np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)
        else:
            values = torch.from_numpy(found.view("i2")).view(torch.bfloat16).float()
            torch.testing.assert_close(values, expected, rtol=2**-8, atol=1e-4)
        assert report.pooling == (pooling or "mean")
    # There is one array, and the description belongs to it.
    assert names(session) == {f"embeddings.{dtype}.npy", "embeddings.json"}


class StoppedError(Exception):
    pass


class Failing:
    """An encoder that raises an error after some calls, and counts its boards."""

    sha = "stated"

    def __init__(self, calls: int | None, error: BaseException | None = None, scale: int = 1) -> None:
        self.calls, self.error, self.scale, self.boards = calls, error or StoppedError(), scale, 0

    def __call__(self, tokens: Any) -> Any:
        if self.calls == 0:
            raise self.error
        if self.calls is not None:
            self.calls -= 1
        self.boards += len(tokens)
        return linear(tokens) * self.scale


def test_resume(session: Path) -> None:
    rows = len(exps(session))
    for calls, error in ((3, StoppedError()), (4, KeyboardInterrupt())):
        with pytest.raises(type(error)):
            embed(session, Failing(calls, error), batch_size=50, progress=False)
        assert names(session) == {".embeddings.part", ".embeddings.state"}
    # A killed process may leave uncounted rows, and part of a row.
    with open(session / ".embeddings.part", "ab") as file:
        file.write(b"\xff" * 100_000)
    encoder = Failing(None)
    report = embed(session, encoder, batch_size=50, progress=False)
    # The first call of each run only determines the size of the output.
    assert report.resumed_at == 50 * (2 + 3)
    assert encoder.boards == rows - report.resumed_at + 1
    assert report.model_sha == "stated"
    assert report.path.stat().st_size == 128 + rows * 5 * 2
    np.testing.assert_array_equal(np.load(report.path), to_bf16(linear(exps(session))))
    assert names(session) == {"embeddings.bf16.npy", "embeddings.json"}
    again = embed(session, Failing(1), progress=False)
    assert again.resumed_at == rows
    assert "nothing was done" in again.remark


@pytest.mark.parametrize("change", ["sha", "dtype", "steps", "rows", "state", "part"])
def test_embedding_starts_over_after_any_change(played: list[Game], tmp_path: Path, change: str) -> None:
    session = tmp_path / "session"
    formats.write_session(session, played)
    with pytest.raises(StoppedError):
        embed(session, Failing(3), batch_size=50, progress=False)
    options: dict[str, Any] = {}
    if change == "sha":
        options["model_sha"] = "other"
    elif change == "dtype":
        options["dtype"] = "f32"
    elif change == "state":
        (session / ".embeddings.state").write_text("{")
    elif change == "part":
        os.truncate(session / ".embeddings.part", 300)
    else:
        rows = np.load(session / "steps.npy")
        if change == "steps":
            rows["exps"][10, 3] += 1
        np.save(session / "steps.npy", rows[: -1 if change == "rows" else None])
    report = embed(session, Failing(None), progress=False, **options)
    assert (report.resumed_at, "starting over" in report.remark) == (0, True)
    expected = linear(exps(session))
    np.testing.assert_array_equal(np.load(report.path), expected if change == "dtype" else to_bf16(expected))


def test_the_description_always_matches_the_array(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an interruption at any rename or removal, embeddings.json is absent or matches the array."""
    plain = linear(exps(session))
    embed(session, Failing(None), model_sha="1", progress=False)
    real = os.replace
    finished, scale = False, 1
    while not finished:
        scale += 1
        calls = 0

        def replace(source: Any, target: Any, last: int = scale - 2) -> None:
            nonlocal calls
            if calls == last:
                raise StoppedError
            calls += 1
            real(source, target)

        options: dict[str, Any] = {"model_sha": str(scale), "overwrite": True, "progress": False}
        monkeypatch.setattr(os, "replace", replace)
        try:
            embed(session, Failing(None, scale=scale), **options)
            finished = True
        except StoppedError:
            pass
        monkeypatch.setattr(os, "replace", real)
        if (session / "embeddings.json").exists():
            described = int(json.loads((session / "embeddings.json").read_text())["model_sha"])
            assert described in (scale - 1, scale)
            np.testing.assert_array_equal(np.load(session / "embeddings.bf16.npy"), to_bf16(plain * described))
        encoder = Failing(None, scale=scale)
        embed(session, encoder, **options)
        np.testing.assert_array_equal(np.load(session / "embeddings.bf16.npy"), to_bf16(plain * scale))
        assert names(session) == {"embeddings.bf16.npy", "embeddings.json"}
        # Work whose state is on disk is not repeated, except for the call that determines the size of the output.
        assert scale == 2 or encoder.boards == 1
    # The three calls write the state, the array and its description.
    assert calls == 3


def test_other_embeddings_are_not_replaced(session: Path) -> None:
    embed(session, linear, progress=False)
    before = (session / "embeddings.bf16.npy").read_bytes()
    for options in ({"dtype": "f32"}, {"model_sha": "other"}):
        changed: Any = options
        with pytest.raises(FileExistsError, match=r"embeddings\.json"):
            embed(session, linear, progress=False, **changed)
    assert (session / "embeddings.bf16.npy").read_bytes() == before
    embed(session, linear, dtype="f32", overwrite=True, progress=False)
    assert names(session) == {"embeddings.f32.npy", "embeddings.json"}


def test_one_process_at_a_time(session: Path) -> None:
    def nested(tokens: Any) -> Any:
        if len(tokens) > 1:
            embed(session, linear, progress=False)
        return linear(tokens)

    with pytest.raises(BlockingIOError, match="another process"):
        embed(session, nested, progress=False)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (lambda tokens: np.zeros((len(tokens), 15, 2)), "expected \\(B, D\\)"),
        (lambda tokens: np.zeros((1, 2)), "expected a vector for each of 64 boards"),
        (lambda tokens: np.zeros((len(tokens), 0)), "expected a vector"),
        (lambda tokens: np.where(np.arange(len(tokens))[:, None] == 7, np.nan, 1.0), "row 7 .* rows 0..64"),
        (lambda tokens: np.zeros((len(tokens), min(2, len(tokens)))), "gave 1 numbers a board, and then 2"),
    ],
)
def test_invalid_outputs_of_an_encoder(session: Path, encoder: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        embed(session, encoder, batch_size=64, progress=False)
    assert "embeddings.json" not in names(session)


def test_rejected_arguments(session: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one vector a board"):
        embed(session, linear, pooling="mean", progress=False)
    with pytest.raises(ValueError, match="cls needs 17"):
        embed(session, BoardTransformer(4, 1, 1), pooling="cls", progress=False)
    with pytest.raises(ValueError, match="batch_size"):
        embed(session, linear, batch_size=0)
    with pytest.raises(ValueError, match="dtype: expected bf16 or f32"):
        embed(session, linear, dtype="f16")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="device"):
        embed(session, linear, device="cuda")
    with pytest.raises(ValueError, match="out: expected none for a session"):
        embed(session, linear, tmp_path / "out")
    with pytest.raises(ValueError, match=r"no steps\.npy"):
        embed(tmp_path, linear)
    np.save(tmp_path / "steps.npy", np.zeros(3, formats.DATASET_ROW))
    with pytest.raises(ValueError, match="rows of a session"):
        embed(tmp_path, linear)
    np.save(tmp_path / "steps.npy", np.zeros(0, formats.SESSION_ROW))
    with pytest.raises(ValueError, match="found none"):
        embed(tmp_path, linear)


def test_table(table: a2store.StepTable, archive: a2store.Archive, tmp_path: Path) -> None:
    out = tmp_path / "embedded"
    with pytest.raises(ValueError, match="out: expected a folder"):
        embed(table, linear)
    with pytest.raises(StoppedError):
        embed(table, Failing(2), out, batch_size=1000, progress=False)
    report = embed(table, Failing(None), out, batch_size=1000, progress=False)
    assert report.resumed_at == 1000
    rows = np.asarray(table)
    keys = np.load(out / "embeddings.steps.npy")
    assert keys.dtype == np.dtype([("run_id", "<u4"), ("step_index", "<u2"), ("board", "<u8")])
    for name in keys.dtype.names:
        np.testing.assert_array_equal(keys[name], rows[name])
    np.testing.assert_array_equal(np.load(report.path), to_bf16(linear(table.take(np.arange(len(table))).tokens)))
    assert names(out) == {"embeddings.bf16.npy", "embeddings.json", "embeddings.steps.npy"}
    # Runs with the same ids and lengths but other boards are different games.
    turned = "SELECT run_id, step_index, transform(board, 1) AS board FROM steps"
    table.attach("embedding", report.path, steps=out / "embeddings.steps.npy", progress=False)
    with pytest.raises(a2store.ColumnError, match="found another board"):
        archive.sql(turned).materialize(progress=False).attach(
            "embedding", report.path, steps=out / "embeddings.steps.npy", progress=False
        )
    # Keys without boards do not satisfy the request.
    np.save(out / "embeddings.steps.npy", np.load(out / "embeddings.steps.npy")[["run_id", "step_index"]])
    with pytest.raises(FileExistsError, match="or to other steps; overwrite=True or --force"):
        embed(table, linear, out, batch_size=1000, model_sha=report.model_sha, progress=False)
    embed(table, linear, out, batch_size=1000, model_sha=report.model_sha, overwrite=True, progress=False)
    np.testing.assert_array_equal(np.load(out / "embeddings.steps.npy"), keys)
    # Embeddings of other rows are different, even if their number is equal.
    view = table.filter(run_ids=[3])
    embed(view, linear, tmp_path / "one", progress=False)
    query = archive.sql("SELECT * FROM steps WHERE run_id = 3")
    again = embed(query, linear, tmp_path / "one", progress=False)
    assert "nothing was done" in again.remark
    with pytest.raises(FileExistsError):
        embed(archive.sql("SELECT * FROM steps WHERE run_id = 4"), linear, tmp_path / "one", progress=False)


def test_encoder_names() -> None:
    encoder = load_encoder("a2store.critic.transformer:small")
    again = load_encoder("a2store.critic.transformer:small")
    assert encoder is not again
    assert encoder_sha(encoder) == encoder_sha(again) != encoder_sha(BoardTransformer(seed=1))
    assert encoder_sha(linear) != encoder_sha(names)
    assert load_encoder("os:path.join") is os.path.join
    for name, message in (
        ("a2store", "expected module:name"),
        ("a2store.nothing:x", "no module"),
        ("a2store.critic.transformer:large", "large"),
        ("a2store.critic.transformer:BoardTransformer", "is a class"),
        ("a2store.critic.transformer:VOCABULARY", "cannot be called"),
    ):
        with pytest.raises(ValueError, match=message):
            load_encoder(name)


def test_command(played: list[Game], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sessions = [tmp_path / name for name in ("one", "two")]
    for number, session in enumerate(sessions):
        formats.write_session(session, played[number:])
    small = ["embed", str(sessions[0]), "--encoder", "a2store.critic.transformer:small", "--device", "cpu"]
    done = python("-m", "a2store.critic", "embed", *sessions, *small[2:], "--json")
    assert (done.returncode, done.stderr) == (0, "")
    for session, line in zip(sessions, done.stdout.splitlines(), strict=True):
        report = json.loads(line)
        assert (report["num_rows"], report["dim"]) == (len(exps(session)), 64)
        assert json.loads((session / "embeddings.json").read_text())["model_sha"] == report["model_sha"]

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            status = main([*small, *arguments])
        except SystemExit as stop:
            status = int(str(stop.code))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    status, out, err = run()
    assert (status, "nothing was done" in err, report["model_sha"] in out) == (0, True, True)
    status, out, err = run("--dtype", "f32")
    assert (status, out, err.startswith("error: "), err.count("\n")) == (1, "", True, 1)
    assert run("--dtype", "f32", "--force", "-q")[0] == 0
    assert run("--pooling", "max")[0] == 2
    assert run("--batch-size", "0")[0] == 2
    torch.save(BoardTransformer(seed=9).state_dict(), tmp_path / "weights.pt")
    status, out, _ = run("--weights", str(tmp_path / "weights.pt"), "--force", "--json")
    assert (status, json.loads(out)["model_sha"]) == (0, encoder_sha(BoardTransformer(seed=9)))
    torch.save({"a": 1}, tmp_path / "weights.pt")
    status, out, err = run("--weights", str(tmp_path / "weights.pt"))
    assert (status, out, "not the weights of BoardTransformer" in err) == (1, "", True)
    small[1] = str(tmp_path / "none")
    assert run()[0] == 1
    # A module in the working folder, and no PyTorch.
    (tmp_path / "mine.py").write_text("def zeros(tokens): return tokens[:, :4].astype('f4')")
    code = "import os, sys; os.chdir(sys.argv[1]); sys.path.remove(''); sys.modules['torch'] = None"
    code += "\nfrom a2store.critic.__main__ import main; sys.exit(main(['embed', *sys.argv[2:]]))"
    done = python("-c", code, tmp_path, "two", "--encoder", "mine:zeros", "--force")
    assert (done.returncode, "4 bf16" in done.stdout) == (0, True), done.stderr
    done = python("-c", code, tmp_path, "two", "--encoder", "a2store.critic.transformer:small", "--force")
    assert (done.returncode, done.stderr) == (1, "error: this command needs PyTorch: pip install 'a2store[torch]'\n")


WAITING = """
import sys
import numpy as np
from a2store.critic.__main__ import main

class Waiting:
    sha, batches = "waiting", 0
    def __call__(self, tokens):
        if len(tokens) > 1:
            self.batches += 1
            print("batch", file=sys.stderr, flush=True)
            if self.batches == 5:
                # The test sends the signal before it writes this line.
                sys.stdin.readline()
        return tokens[:, :4].astype("f4")

sys.modules["waiting"] = type(sys)("waiting")
sys.modules["waiting"].encoder = Waiting()
sys.exit(main(["embed", sys.argv[1], "--encoder", "waiting:encoder", "--batch-size", "10"]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_keep_finished_work(session: Path, number: signal.Signals) -> None:
    command, pipe = [sys.executable, "-c", WAITING, str(session)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stderr=pipe, text=True) as process:
        assert process.stderr is not None
        for _ in range(5):
            assert process.stderr.readline() == "batch\n"
        process.send_signal(number)
        process.communicate("go\n")
    assert process.returncode == 128 + number
    done = json.loads((session / ".embeddings.state").read_text())["done"]
    assert 40 <= done < len(exps(session))
    finished = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert finished.returncode == 0
    assert finished.stderr.count("batch") == -(-(len(exps(session)) - done) // 10)
    np.testing.assert_array_equal(np.load(session / "embeddings.bf16.npy"), to_bf16(exps(session)[:, :4]))
