"""Training of a critic: configuration, head, results, and resumption after an interruption."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import tomllib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import a2store
import formats
import oracle
from a2store.critic import (
    Config,
    ConfigError,
    CriticData,
    CriticHead,
    TokenCritic,
    embed,
    evaluate,
    fit,
    load_config,
    load_critic,
)
from a2store.critic.__main__ import main
from a2store.critic.config import config_from
from a2store.critic.train import learning_rate
from a2store.critic.transformer import BoardTransformer
from archives import simulated

pytestmark = [pytest.mark.filterwarnings("ignore:thresholds"), pytest.mark.usefixtures("one_thread")]
EXAMPLE = Path(__file__).resolve().parents[2] / "config" / "critic.example.toml"


# The configuration


def values(**changed: Any) -> dict[str, Any]:
    """Return a configuration as TOML gives it, with changes to keys such as ``data__val``."""
    result: dict[str, Any] = {
        "data": {"source": "games.a2", "thresholds": [256, 512], "batch_size": 256, "val": 0.3},
        "model": {"encoder": "one-hot", "hidden": [16], "dropout": 0.1},
        "optim": {"epochs": 2, "warmup_steps": 5},
        "run": {"out": "out", "device": "cpu", "threads": 1},
    }
    for key, value in changed.items():
        section, _, name = key.partition("__")
        result.setdefault(section, {})[name] = value
    return result


def test_config_of_the_example_is_complete() -> None:
    config = load_config(EXAMPLE)
    # Each commented-out key has a valid value.
    text = "".join(line.removeprefix("# ") for line in EXAMPLE.read_text().splitlines(keepends=True)[3:])
    every = tomllib.loads(text)
    every["data"].update(use_embeddings=True, symmetries=False)
    everything = config_from(every).to_dict()
    assert {name: set(section) for name, section in every.items()} == {
        name: set(section) for name, section in everything.items()
    }
    assert config_from(config.to_dict()) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data__sources": "x"}, r"data\.sources: is unknown; expected source, sql"),
        ({"data__batch_size": "64"}, r"data\.batch_size: expected an integer, found '64'"),
        ({"data__batch_size": 0}, r"data\.batch_size: expected 1 or more, found 0"),
        ({"data__val": 1}, r"data\.val: expected above 0 and below 1, found 1\.0"),
        ({"data__thresholds": [512, 256]}, r"data\.thresholds: expected tiles in ascending order, found \[512, 256\]"),
        ({"data__thresholds": [512.0]}, r"data\.thresholds: expected a list of integers, found \[512\.0\]"),
        ({"data__embeddings": "x"}, r"data\.embeddings: expected use_embeddings = true"),
        ({"data__use_embeddings": True, "data__symmetries": True}, r"data\.symmetries: expected false"),
        ({"model__pooling": "max"}, r"model\.pooling: expected 'mean' or 'cls', found 'max'"),
        ({"optim__lr": math.nan}, r"optim\.lr: expected above 0, found nan"),
        ({"run__out": 5}, r"run\.out: expected a string, found 5"),
    ],
)
def test_config_rejects(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        config_from(values(**change))


def test_config_rejects_missing_keys(tmp_path: Path) -> None:
    for section, key in (("data", "source"), ("run", "out")):
        given = values()
        del given[section][key]
        with pytest.raises(ConfigError, match=rf"^{section}\.{key}: is missing; expected a string"):
            config_from(given)
    with pytest.raises(ConfigError, match=r"^data: is missing; expected a table"):
        config_from({})
    with pytest.raises(ConfigError, match=r"^data: expected a table, found 1"):
        config_from({"data": 1})
    (tmp_path / "no.toml").write_text("[data")
    with pytest.raises(ConfigError, match=r"no\.toml: "):
        load_config(tmp_path / "no.toml")


# The head


def test_head_computes_in_float32() -> None:
    head = CriticHead(6, 2, seed=1)
    assert sum(weight.numel() for weight in head.parameters()) == 6 * 2 + 2
    embedding = torch.randn(5, 6).to(torch.bfloat16)
    layer: Any = head.layers[0]
    expected = embedding.float() @ layer.weight.T + layer.bias
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            logits = head(embedding)
        assert logits.dtype == torch.float32
        torch.testing.assert_close(logits, expected)
    deep = CriticHead(6, 3, (8, 4), dropout=0.5, seed=1)
    assert deep(embedding).shape == (5, 3)
    assert [tuple(weight.shape) for weight in deep.parameters() if weight.dim() == 2] == [(8, 6), (4, 8), (3, 4)]
    state = torch.get_rng_state()
    again = CriticHead(6, 3, (8, 4), seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(*pair) for pair in zip(deep.parameters(), again.parameters(), strict=True))
    with pytest.raises(ValueError, match="in_dim"):
        CriticHead(0)


@pytest.mark.parametrize("weight", [1.0, 19.0, 4.0])
def test_class_weights_leave_probabilities_calibrated(weight: float) -> None:
    """A head with a constant input must predict the base rate for any class weights."""
    labels = (torch.arange(1000) % 20 == 0).float()[:, None]
    inputs = torch.zeros(1000, 1)
    head = CriticHead(1, 1, seed=0)
    head.pos_weight.fill_(weight)
    loss = torch.nn.BCEWithLogitsLoss(pos_weight=head.pos_weight)
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=100)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value: torch.Tensor = loss(head(inputs), labels)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    logits = head(inputs[:1]).detach()
    assert head.probabilities(logits).item() == pytest.approx(0.05, abs=1e-4)
    # The weights shift the logits in this way.
    odds = weight * 0.05 / 0.95
    assert torch.sigmoid(logits).item() == pytest.approx(odds / (1 + odds), abs=1e-3)


def test_learning_rate() -> None:
    rates = [learning_rate(step, 100, 2.0, 0.1, 10) for step in range(100)]
    np.testing.assert_allclose(rates[:10], np.arange(1, 11) * 0.2)
    assert rates[10] == 2.0
    assert rates[-1] == pytest.approx(0.2)
    assert rates[10 + 89 // 2] == pytest.approx(1.1, abs=0.03)
    assert all(a >= b for a, b in pairwise(rates[10:]))
    assert learning_rate(0, 1, 2.0, 0.1, 0) == 2.0


# Training


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of 120 games by the weakest player."""
    return Path(simulated(tmp_path_factory.mktemp("critic"), runs=120, seed=4, depth=0).path)


def configured(games: Path, out: Path, **changed: Any) -> Config:
    # About 84 of the 120 runs are not held out. A short training beats the base rate only on some splits.
    options = {"data__source": str(games), "run__out": str(out), "data__max_steps_per_run": 40, "run__eval_steps": 4}
    return config_from(values(**{"data__split_seed": 2, **options, **changed}))


FILES = ["metrics.jsonl", "report.json"]


def results(out: Path) -> dict[str, bytes]:
    return {name: (out / name).read_bytes() for name in FILES}


def weights(out: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(out / "checkpoint.pt", weights_only=True)["model"]
    return found


def test_beats_the_base_rate(games: Path, tmp_path: Path) -> None:
    config = configured(
        games, tmp_path, optim__epochs=12, optim__lr=3e-3, data__symmetries=True, run__eval_steps=50, run__bins=5
    )
    report = fit(config, quiet=True)
    assert (report.finished, report.signal) == (True, None)
    saved = json.loads((tmp_path / "report.json").read_text())
    assert saved["scores"] == report.scores
    assert saved["train"]["num_runs"] + saved["val"]["num_runs"] == 120
    for score in report.scores:
        assert score["auc"] is not None
        assert score["auc"] > 0.6
        assert score["skill"] is not None
        assert score["skill"] > 0.02
        table = saved["calibration"][str(score["threshold"])]
        assert [part["low"] for part in table] == [0, 0.2, 0.4, 0.6, 0.8]
        assert sum(part["count"] for part in table) == score["num_rows"] == saved["val"]["num_rows"]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == report.step
    assert lines[-1]["train_loss"] < lines[0]["train_loss"]
    best = min(lines, key=lambda line: float(line["val_brier"]))
    assert best["step"] == report.best_step == saved["best_step"]
    assert best["val"] == report.scores
    # The saved weights give the same scores.
    critic = load_critic(tmp_path / "best.pt")
    archive = a2store.Archive.open(games)
    val = CriticData(archive, thresholds=(256, 512), max_steps_per_run=40).split(0.3, seed=2)[1]
    with torch.no_grad():
        parts = [(critic.probabilities(critic(tokens)), labels) for tokens, labels in val]
    probabilities, labels = (torch.cat(part).numpy() for part in zip(*parts, strict=True))
    again = evaluate(probabilities, labels, (256, 512), is_open=val.open_steps())
    for one, other in zip(again, report.scores, strict=True):
        assert one["brier"] == pytest.approx(other["brier"])
        assert one["open_auc"] == pytest.approx(other["open_auc"])


@pytest.mark.parametrize("encoder", ["one-hot", "transformer"])
def test_a_resumed_training_equals_an_uninterrupted_one(games: Path, tmp_path: Path, encoder: str) -> None:
    changed: dict[str, Any] = {
        "model__encoder": encoder,
        "model__dim": 8,
        "model__depth": 1,
        "model__heads": 2,
        "data__symmetries": True,
        "data__max_steps_per_run": 12,
        "data__batch_size": 64,
        "run__eval_steps": 7,
        "run__checkpoint_steps": 5,
        "optim__grad_clip": 1.0,
    }
    whole = fit(configured(games, tmp_path / "whole", **changed), quiet=True)
    per_epoch = whole.step // 2
    assert per_epoch > 10
    out = tmp_path / "parts"
    config = configured(games, out, **changed)
    # The stops are in the middle of an epoch, at a validation, at the end of an epoch, and near checkpoints.
    for steps in (3, 4, per_epoch - 7, 2, 5):
        part = fit(config, resume=True, stop_after=steps, quiet=True)
        assert (part.finished, part.signal, part.scores) == (False, None, [])
        # The generator's state must come from the checkpoint.
        torch.rand(3)
    report = fit(config, resume=True, quiet=True)
    assert (report.finished, report.step, report.best_step) == (True, whole.step, whole.best_step)
    assert results(out) == results(tmp_path / "whole")
    for name, weight in weights(tmp_path / "whole").items():
        assert torch.equal(weight, weights(out)[name]), name
    assert (out / "encoder.pt").exists() == (encoder == "transformer")
    # A further call has nothing left to do.
    assert fit(config, resume=True, quiet=True).scores == report.scores
    assert results(out) == results(tmp_path / "whole")


def write_toml(path: Path, config: Config) -> Path:
    lines = []
    for section, given in config.to_dict().items():
        lines.append(f"[{section}]")
        # For these values, TOML and JSON have the same syntax.
        lines += [f"{name} = {json.dumps(value)}" for name, value in given.items() if value is not None]
    path.write_text("\n".join(lines))
    assert load_config(path) == config
    return path


SIGNALLED: dict[str, Any] = {"data__batch_size": 32, "run__checkpoint_steps": 9, "run__eval_steps": 25}


# Each validation prints a line. The second line comes in the middle of the first epoch. The test sends a signal before
# the work continues.
WAITING = r"""
import sys
from a2store.critic.__main__ import main

class Waiting:
    said = ""
    def __getattr__(self, name):
        return getattr(sys.__stderr__, name)
    def write(self, text):
        sys.__stderr__.write(text)
        sys.__stderr__.flush()
        self.said += text
        if self.said.count("val loss") == 2 and self.said.endswith("\n"):
            self.said = ""
            sys.stdin.readline()

sys.stderr = Waiting()
for path in sys.argv[1:]:
    print(main(["train", "--config", path, "--json"]), flush=True)
"""


def test_signals(games: Path, tmp_path: Path) -> None:
    undisturbed = fit(configured(games, tmp_path / "whole", **SIGNALLED), quiet=True)
    outs = {number: tmp_path / number.name for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)}
    paths = [write_toml(out.with_suffix(".toml"), configured(games, out, **SIGNALLED)) for out in outs.values()]
    # The import of PyTorch takes longer than the training, so one process trains three times.
    command, pipe = [sys.executable, "-c", WAITING, *map(str, paths)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for number, out in outs.items():
            for _ in range(2):
                assert "val loss" in process.stderr.readline()
            process.send_signal(number)
            if number == signal.SIGKILL:
                break
            print("go", file=process.stdin, flush=True)
            assert process.stderr.readline().startswith("stopped at step")
            report = json.loads(process.stdout.readline())
            assert int(process.stdout.readline()) == 128 + number
            step = torch.load(out / "checkpoint.pt", weights_only=True)["state"]["step"]
            assert (report["finished"], report["signal"], report["step"]) == (False, number, step)
    assert process.returncode == -signal.SIGKILL
    # A kill may leave a partial line.
    with open(outs[signal.SIGKILL] / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 1')
    for path, out in zip(paths, outs.values(), strict=True):
        checkpoint = torch.load(out / "checkpoint.pt", weights_only=True)
        assert 25 <= checkpoint["state"]["step"] < undisturbed.step
        again = fit(load_config(path), resume=True, quiet=True)
        assert again.scores == undisturbed.scores
        assert results(out) == results(undisturbed.out)


def test_early_stopping(games: Path, tmp_path: Path) -> None:
    changed: dict[str, Any] = {"optim__epochs": 40, "optim__lr": 0.05, "run__patience": 3, "run__eval_steps": None}
    report = fit(configured(games, tmp_path / "whole", **changed), quiet=True)
    lines = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    briers = [line["val_brier"] for line in lines]
    assert len(lines) < 40
    assert briers.index(min(briers)) == len(briers) - 4
    assert report.best_step == lines[-4]["step"]
    config = configured(games, tmp_path / "parts", **changed)
    while not fit(config, resume=True, stop_after=17, quiet=True).finished:
        pass
    assert results(tmp_path / "parts") == results(tmp_path / "whole")


def test_session_with_embeddings_trains(games: Path, tmp_path: Path) -> None:
    played = [oracle.decode(path.read_bytes()) for path in sorted((games.parent / "runs").iterdir())]
    formats.write_session(tmp_path / "session", played, action=True)
    assert main([*["embed", "--encoder", "a2store.critic.transformer:one_hot", "-q"], str(tmp_path / "session")]) == 0
    changed: dict[str, Any] = {"data__use_embeddings": True, "data__thresholds": [256, 65536]}
    config = configured(
        tmp_path / "session", tmp_path / "out", **changed, model__hidden=[], optim__lr=0.02, optim__epochs=6
    )
    report = fit(config, quiet=True)
    reached, never = report.scores
    assert reached["skill"] is not None
    assert reached["skill"] > 0.05
    # For a tile that no run reaches, these metrics are undefined, and the others are computed.
    assert never["auc"] is never["skill"] is never["open_auc"] is None
    assert never["base_rate"] == 0.0
    assert json.loads((tmp_path / "out" / "report.json").read_text())["pos_weight"][1] == 1.0
    assert not (tmp_path / "out" / "encoder.pt").exists()
    critic = load_critic(tmp_path / "out" / "best.pt")
    assert isinstance(critic, CriticHead)
    assert critic.in_dim == 288


def test_a_trained_encoder_embeds(games: Path, tmp_path: Path) -> None:
    """An encoder trained on tokens computes embeddings, and a probe is trained on these."""
    small: dict[str, Any] = {
        "model__encoder": "transformer",
        "model__dim": 8,
        "model__depth": 1,
        "model__heads": 1,
        "model__hidden": [],
        "run__eval_steps": None,
    }
    fit(configured(games, tmp_path / "tokens", **small, optim__epochs=6, optim__lr=0.01), quiet=True)
    encoder = BoardTransformer(8, 1, 1)
    encoder.load_state_dict(torch.load(tmp_path / "tokens" / "encoder.pt", weights_only=True))
    archive = a2store.Archive.open(games)
    table = archive.sql("SELECT run_id, step_index, board FROM steps").materialize(progress=False)
    embed(table, encoder, tmp_path / "embedded", batch_size=8192, device="cpu", progress=False)
    changed: dict[str, Any] = {"data__use_embeddings": True, "data__embeddings": str(tmp_path / "embedded")}
    report = fit(configured(games, tmp_path / "probe", **changed, model__hidden=[], optim__lr=0.03), quiet=True)
    assert all(score["auc"] is not None and score["auc"] > 0.55 for score in report.scores)
    # An encoder that is not trained keeps its weights.
    frozen = {**small, "model__train_encoder": False, "model__weights": str(tmp_path / "tokens" / "encoder.pt")}
    fit(configured(games, tmp_path / "frozen", **frozen, optim__epochs=1), quiet=True)
    after = torch.load(tmp_path / "frozen" / "encoder.pt", weights_only=True)
    assert all(torch.equal(weight, encoder.state_dict()[name]) for name, weight in after.items())
    # The trained critic loads without the initial weights.
    (tmp_path / "tokens" / "encoder.pt").unlink()
    critic = load_critic(tmp_path / "frozen" / "best.pt")
    assert isinstance(critic, TokenCritic)
    # Batches have tokens of uint8.
    tokens = torch.arange(16, dtype=torch.uint8)[None]
    assert torch.equal(critic(tokens), critic(tokens.long()))
    with pytest.raises(TypeError, match=r"^tokens: expected integers, found torch\.float32"):
        critic(tokens.float())


def test_rejected_arguments(games: Path, tmp_path: Path) -> None:
    config = configured(games, tmp_path / "out", optim__epochs=1)
    fit(config, stop_after=1, quiet=True)
    with pytest.raises(FileExistsError, match="expected resume"):
        fit(config, quiet=True)
    with pytest.raises(ConfigError, match=r"^optim\.lr: expected 0\.001, as in .*, or another run\.out, found 0\.01"):
        fit(configured(games, tmp_path / "out", optim__epochs=1, optim__lr=0.01), resume=True, quiet=True)
    # Training stopped after one step, before the first validation, so an empty file is complete.
    (tmp_path / "out" / "metrics.jsonl").write_bytes(b"")
    fit(config, resume=True, quiet=True)
    (tmp_path / "out" / "metrics.jsonl").write_bytes(b"")
    with pytest.raises(ValueError, match=r"metrics\.jsonl: expected"):
        fit(config, resume=True, quiet=True)
    with pytest.warns(UserWarning, match="no run is held"), pytest.raises(ValueError, match="leaves none for val"):
        fit(configured(games, tmp_path / "none", data__val=1e-9), quiet=True)
    with pytest.raises(ValueError, match=r"model\.encoder: expected a torch module"):
        fit(configured(games, tmp_path / "none", model__encoder="test_critic_train:values"), quiet=True)
    # `CriticData` takes an archive, but a configuration has its path.
    archive: Any = a2store.Archive.create(tmp_path / "games.a2")
    with pytest.raises(ConfigError, match=r"^data\.source: expected a string, found Archive"):
        fit(replace(config, data=replace(config.data, source=archive)), quiet=True)


def test_command(games: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = configured(games, tmp_path / "out", optim__epochs=1, run__eval_steps=None)
    path = str(write_toml(tmp_path / "critic.toml", config))
    assert main(["train", "--config", path]) == 0
    captured = capsys.readouterr()
    # A header, and a line for each threshold.
    table = [line.split() for line in captured.out.splitlines()[2:]]
    assert [row[0] for row in table] == ["threshold", "256", "512"]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert table[1][2] == f"{report['scores'][0]['auc']:.4f}"
    assert "val loss" in captured.err
    assert main(["train", "--config", path]) == 1
    assert main(["train", "--config", str(tmp_path / "none.toml")]) == 2
    (tmp_path / "bad.toml").write_text("[data]\nsource = 5")
    assert main(["train", "--config", str(tmp_path / "bad.toml")]) == 2
    assert "data.source: expected a string, found 5" in capsys.readouterr().err
