"""Training of a critic that can be interrupted and resumed with the same result.

Files in the folder ``run.out``:

- ``metrics.jsonl``: a line per validation: step, epoch, learning rate, losses, the scores of each threshold.
- ``checkpoint.pt``: everything needed to resume: weights, optimizer, position in the data, random generators.
- ``best.pt``: the weights with the best Brier score, for ``load_critic``.
- ``encoder.pt``: the encoder's weights.
- ``report.json``: the data, scores and calibration of the best weights.

Files are replaced atomically. A checkpoint stores the length of ``metrics.jsonl``; lines that a killed run wrote later
are removed and written again. A resumed run writes the same bits as an uninterrupted one. This requires equal devices,
numbers of threads and versions, and deterministic kernels.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from .. import Archive
from .._integers import integer
from .config import Config, ConfigError, config_from
from .data import CriticData, highest_tiles
from .files import replace
from .head import TokenCritic
from .metrics import Scores, calibration, evaluate
from .model import build
from .progress import Progress

CHECKPOINT, BEST, ENCODER = "checkpoint.pt", "best.pt", "encoder.pt"
METRICS, REPORT = "metrics.jsonl", "report.json"

# These options do not change the result, except for rounding.
_MAY_CHANGE = {"run.out", "run.device", "run.threads", "run.checkpoint_steps"}


@dataclass(frozen=True)
class TrainReport:
    """A summary of one call of ``fit``.

    - ``out``: the folder of the results, ``run.out``.
    - ``step``: the total number of optimizer steps, including those before a resumption.
    - ``finished``: whether training is over; otherwise it can be resumed.
    - ``signal``: the number of the signal that stopped it, or ``None``.
    - ``best_step``: the step of the best weights, those with the best Brier score; ``None`` before a validation.
    - ``scores``: the scores of the best weights on the held-out runs, as ``evaluate`` returns them; empty if training
      is not over.

    >>> from a2store.critic import Config, fit
    >>> from a2store.critic.config import Data, Model, Optim, Run
    >>> config = Config(
    ...     data=Data(source="session", thresholds=(1024, 2048), max_steps_per_run=8, val=0.2, batch_size=64),
    ...     model=Model(encoder="one-hot"),
    ...     optim=Optim(epochs=1),
    ...     run=Run(out="critic", device="cpu"),
    ... )
    >>> report = fit(config, stop_after=1, quiet=True)
    >>> report.step, report.finished, report.signal, report.scores
    (1, False, None, [])
    """

    out: Path
    step: int
    finished: bool
    signal: int | None
    best_step: int | None
    scores: list[Scores]


def fit(config: Config, *, resume: bool = False, stop_after: int | None = None, quiet: bool = False) -> TrainReport:
    """Train a critic as a configuration specifies.

    In the main thread, the first SIGINT or SIGTERM ends training after the current step, with a checkpoint. A second
    signal ends training at once.

    - ``config``: the configuration, such as ``load_config`` returns.
    - ``resume``: ``True`` = continue from the checkpoint in ``run.out`` if it exists, else begin.
    - ``stop_after``: stop after this many steps of this call, with a checkpoint; ``None`` = no limit.
    - ``quiet``: ``True`` = write nothing to standard error.

    Raises ``FileExistsError`` for an existing checkpoint without ``resume``. Raises ``ConfigError``, with the key, for
    a value of another type, such as an ``Archive`` in place of its path, and for a checkpoint of another configuration.
    Raises ``ValueError`` and others as ``CriticData`` does.

    >>> from a2store.critic import Config, fit
    >>> from a2store.critic.config import Data, Model, Optim, Run
    >>> config = Config(
    ...     data=Data(source="session", thresholds=(1024, 2048), max_steps_per_run=8, val=0.2, batch_size=64),
    ...     model=Model(encoder="one-hot"),
    ...     optim=Optim(epochs=1),
    ...     run=Run(out="critic", device="cpu"),
    ... )
    >>> report = fit(config, quiet=True)
    >>> report.finished, [score["threshold"] for score in report.scores]
    (True, [1024, 2048])
    """
    if stop_after is not None:
        stop_after = integer("stop_after", stop_after, 0)
    # The constructors do not check types, and an archive in place of its path would fail after the first epoch.
    config = config_from(config.to_dict())
    out = Path(config.run.out)
    checkpoint = out / CHECKPOINT
    saved: dict[str, Any] | None = None
    if checkpoint.exists():
        if not resume:
            raise FileExistsError(f"{checkpoint}: already exists; expected resume, or another run.out")
        saved = torch.load(checkpoint, map_location="cpu", weights_only=True)
        _compare(saved["config"], _plain(config.to_dict()), checkpoint)
    if config.run.threads is not None:
        torch.set_num_threads(config.run.threads)
    out.mkdir(parents=True, exist_ok=True)
    trainer = _Trainer(config, out, stop_after, quiet)
    if saved is None:
        trainer.begin()
    else:
        trainer.load(saved)
    with trainer.signals():
        finished = trainer.run()
    scores = trainer.report() if finished else []
    return TrainReport(out, trainer.state.step, finished, trainer.signal, trainer.state.best_step, scores)


@dataclass
class _State:
    """The progress of training, without weights and data."""

    step: int = 0
    epoch: int = 0
    loss_sum: float = 0.0
    """The sum over the rows since the last validation."""
    loss_rows: int = 0
    evaluated_at: int = -1
    """The step of the last validation."""
    best: float = math.inf
    best_step: int | None = None
    worse: int = 0
    """The number of validations since the best one."""
    metrics_bytes: int = 0


class _Stop(Exception):  # noqa: N818
    """A request to stop arrived during training."""


class _Trainer:
    def __init__(self, config: Config, out: Path, stop_after: int | None, quiet: bool) -> None:
        self.config, self.out, self.left, self.quiet = config, out, stop_after, quiet
        self.signal: int | None = None
        self.state = _State()
        name = config.run.device
        self.device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
        torch.manual_seed(config.run.seed)
        self.train, self.val = _load_data(config, self.device)
        self.val_open = self.val.open_steps()
        self.model = build(config, self.train.dim).to(self.device)
        self.head = self.model.head if isinstance(self.model, TokenCritic) else self.model
        optim = config.optim
        if optim.class_weights:
            weights = self.train.pos_weight
            if optim.max_pos_weight is not None:
                weights = weights.clamp(max=optim.max_pos_weight)
            self.head.pos_weight.copy_(weights)
        # Vectors, which are biases and scales, have no weight decay.
        weights_of = [weight for weight in self.model.parameters() if weight.requires_grad]
        groups = [
            {"params": [weight for weight in weights_of if weight.dim() > 1], "weight_decay": optim.weight_decay},
            {"params": [weight for weight in weights_of if weight.dim() <= 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=optim.lr, betas=(optim.beta1, optim.beta2))
        self.loss = nn.BCEWithLogitsLoss(pos_weight=self.head.pos_weight)
        self.num_steps = optim.epochs * len(self.train)
        # A tensor, so that a step need not wait for the device.
        self.loss_sum: torch.Tensor = torch.zeros((), dtype=torch.float64, device=self.device)
        self.began = time.monotonic()

    # The training loop

    def run(self) -> bool:
        """Train, and return whether training is over."""
        state, run = self.state, self.config.run
        line = Progress("step", self.num_steps, shown=False if self.quiet else None)
        try:
            # The interruption may have come before a validation that was due.
            self._evaluate_if_due()
            while state.epoch < self.config.optim.epochs and not self._is_stale():
                self.train.set_epoch(state.epoch)
                for inputs, labels in self.train:
                    if self._is_stale():
                        break
                    self._step(inputs, labels)
                    line.show(state.step)
                    self._evaluate_if_due()
                    if self._is_stopped():
                        raise _Stop
                    if state.step % run.checkpoint_steps == 0:
                        self._save()
                if state.evaluated_at != state.step:
                    self._evaluate()
                state.epoch += 1
                self._save()
        except _Stop:
            self._save()
            self._log(f"stopped at step {state.step:,} of {self.num_steps:,}; --resume goes on")
            return False
        finally:
            line.end()
        return True

    def _step(self, inputs: torch.Tensor, labels: torch.Tensor) -> None:
        optim, state = self.config.optim, self.state
        self.model.train()
        if isinstance(self.model, TokenCritic) and not self.config.model.train_encoder:
            self.model.encoder.eval()
        rate = learning_rate(state.step, self.num_steps, optim.lr, optim.min_lr, optim.warmup_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.model(inputs), labels)
        loss.backward()
        if optim.grad_clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), optim.grad_clip)
        self.optimizer.step()
        self.loss_sum += loss.detach().double() * len(labels)
        state.loss_rows += len(labels)
        state.step += 1
        if self.left is not None:
            self.left -= 1

    def _is_stopped(self) -> bool:
        return self.signal is not None or (self.left is not None and self.left <= 0)

    def _is_stale(self) -> bool:
        patience = self.config.run.patience
        return patience is not None and self.state.worse >= patience

    def _log(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Record the first SIGINT or SIGTERM instead of ending at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def note(number: int, frame: FrameType | None) -> None:
            self.signal = number
            signal.signal(number, before[signal.Signals(number)])

        for number in before:
            signal.signal(number, note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # Validation

    def _evaluate_if_due(self) -> None:
        every, state = self.config.run.eval_steps, self.state
        if every is not None and state.step and state.step % every == 0 and state.evaluated_at != state.step:
            self._evaluate()

    def _evaluate(self) -> None:
        state, optim = self.state, self.config.optim
        probabilities, labels, val_loss = self._predict()
        if not math.isfinite(val_loss) or not np.isfinite(probabilities).all():
            raise ValueError(
                f"the loss is not finite at step {state.step:,}: expected a lower optim.lr, found {optim.lr}"
            )
        scores = evaluate(probabilities, labels, self.train.thresholds, self.config.run.bins, self.val_open)
        mean = float(np.mean([score["brier"] for score in scores]))
        line = {
            "step": state.step,
            "epoch": state.epoch,
            "lr": learning_rate(max(0, state.step - 1), self.num_steps, optim.lr, optim.min_lr, optim.warmup_steps),
            "train_loss": float(self.loss_sum) / state.loss_rows if state.loss_rows else None,
            "val_loss": val_loss,
            "val_brier": mean,
            "val": scores,
        }
        with open(self.out / METRICS, "ab") as file:
            file.write(json.dumps(line, allow_nan=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            state.metrics_bytes = file.tell()
        self.loss_sum.zero_()
        state.loss_rows, state.evaluated_at = 0, state.step
        if mean < state.best:
            state.best, state.best_step, state.worse = mean, state.step, 0
            best = {
                "model": self.model.state_dict(),
                "dim": self.train.dim,
                "config": _plain(self.config.to_dict()),
                "step": state.step,
            }
            replace(self.out / BEST, lambda file: torch.save(best, file))
        else:
            state.worse += 1
        self._log(self._summary(line, scores))
        self._save()

    def _predict(self, stoppable: bool = True) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_], float]:
        """Return probabilities and labels of the held-out runs, (N, T), and the mean loss."""
        self.model.eval()
        probabilities, labels, loss_sum = [], [], 0.0
        with torch.inference_mode():
            for inputs, expected in self.val:
                if stoppable and self.signal is not None:
                    raise _Stop
                logits = self.model(inputs)
                loss_sum += float(self.loss(logits, expected)) * len(expected)
                probabilities.append(self.model.probabilities(logits).cpu().numpy())
                labels.append(expected.cpu().numpy() > 0.5)
        return np.concatenate(probabilities), np.concatenate(labels), loss_sum / self.val.num_rows

    def _summary(self, line: dict[str, Any], scores: list[Scores]) -> str:
        parts = [f"step {line['step']:,} epoch {line['epoch']} val loss {line['val_loss']:.4f}"]
        parts += [f"{score['threshold']}: {summary(score)}" for score in scores]
        return "; ".join(parts) + f"; {time.monotonic() - self.began:.0f} s"

    def report(self) -> list[Scores]:
        """Write the report of the best weights; return their scores."""
        run, thresholds = self.config.run, self.train.thresholds
        saved = torch.load(self.out / BEST, map_location=self.device, weights_only=True)
        self.model.load_state_dict(saved["model"])
        # Training is over, so a signal does not stop the report.
        probabilities, labels, _ = self._predict(stoppable=False)
        scores = evaluate(probabilities, labels, thresholds, run.bins, self.val_open)
        bins = {
            str(threshold): calibration(probabilities[:, k], labels[:, k], run.bins)
            for k, threshold in enumerate(thresholds)
        }
        report = {
            "step": self.state.step,
            "best_step": saved["step"],
            "train": _facts(self.train),
            "val": _facts(self.val),
            "pos_weight": self.head.pos_weight.tolist(),
            "scores": scores,
            "calibration": bins,
        }
        text = json.dumps(report, indent=2, allow_nan=False).encode() + b"\n"
        replace(self.out / REPORT, lambda file: file.write(text))
        if isinstance(self.model, TokenCritic) and self.model.encoder.state_dict():
            weights = self.model.encoder.state_dict()
            replace(self.out / ENCODER, lambda file: torch.save(weights, file))
        return scores

    # Checkpoints

    def begin(self) -> None:
        """Begin with an empty file of metrics; an existing one belongs to a run without a checkpoint."""
        (self.out / METRICS).write_bytes(b"")

    def _save(self) -> None:
        self.state.loss_sum = float(self.loss_sum)
        saved = {
            "config": _plain(self.config.to_dict()),
            "state": asdict(self.state),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "data": self.train.state_dict(),
            "inputs": self.train.inputs,
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state_all() if self.device.type == "cuda" else [],
        }
        replace(self.out / CHECKPOINT, lambda file: torch.save(saved, file))

    def load(self, saved: dict[str, Any]) -> None:
        """Restore a checkpoint."""
        if saved["inputs"] != self.train.inputs:
            raise ValueError(
                f"{self.out / CHECKPOINT}: expected inputs as before, {saved['inputs']}, found {self.train.inputs}"
            )
        self.state = _State(**saved["state"])
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.train.load_state_dict(saved["data"])
        torch.set_rng_state(saved["rng"])
        if self.device.type == "cuda" and len(saved["cuda_rng"]) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(saved["cuda_rng"])
        self.loss_sum.fill_(self.state.loss_sum)
        metrics = self.out / METRICS
        if metrics.stat().st_size < self.state.metrics_bytes:
            raise ValueError(f"{metrics}: expected {self.state.metrics_bytes} bytes or more, as the checkpoint states")
        os.truncate(metrics, self.state.metrics_bytes)
        self._log(f"resumed at step {self.state.step:,} of {self.num_steps:,}")


def learning_rate(step: int, num_steps: int, highest: float, last_share: float, warmup_steps: int) -> float:
    """Return the learning rate of a step, counted from 0.

    It rises in equal steps to ``highest`` at the end of ``warmup_steps``. Then it follows half a cosine (Loshchilov and
    Hutter 2017) to ``highest * last_share`` at the last step.
    """
    if step < warmup_steps:
        return highest * (step + 1) / warmup_steps
    share = (step - warmup_steps) / max(1, num_steps - 1 - warmup_steps)
    return highest * (last_share + (1 - last_share) * (1 + math.cos(math.pi * min(1.0, share))) / 2)


def summary(score: Scores) -> str:
    """Return a short text with the scores of a threshold."""
    if score["auc"] is None:
        return f"AUC undefined (base rate {score['base_rate']:.3g})"
    return (
        f"AUC {score['auc']:.3f} Brier {score['brier']:.4f} (base {score['brier_base']:.4f}) skill {score['skill']:.3f}"
    )


def _load_data(config: Config, device: torch.device) -> tuple[CriticData, CriticData]:
    given = config.data
    source: Any = given.source
    tiles = None
    if given.sql is not None:
        archive = Archive.open(source)
        # The tiles are looked up by run, so the rows need no column of tiles.
        source, tiles = archive.sql(given.sql), highest_tiles(archive)
    data = CriticData(
        source,
        given.batch_size,
        use_embeddings=given.use_embeddings,
        thresholds=given.thresholds,
        embeddings=given.embeddings,
        highest_tile=tiles,
        max_steps_per_run=given.max_steps_per_run,
        seed=given.seed,
        symmetries=given.symmetries,
        device=None if device.type == "cpu" else device,
        # One process, even in a distributed group.
        rank=0,
        world_size=1,
    )
    train, val = data.split(given.val, seed=given.split_seed)
    for name, part in (("train", train), ("val", val)):
        if not part.num_rows:
            raise ValueError(f"data.val: {given.val} of {data.num_runs} runs leaves none for {name}")
    return train, val


def _facts(data: CriticData) -> dict[str, Any]:
    return {
        "num_rows": data.num_rows,
        "num_runs": data.num_runs,
        "num_positive_runs": data.num_positive_runs.tolist(),
        "base_rate": data.base_rate.tolist(),
    }


def _compare(saved: dict[str, Any], given: dict[str, Any], path: Path) -> None:
    for section, values in given.items():
        for name, value in values.items():
            key = f"{section}.{name}"
            if key not in _MAY_CHANGE and saved.get(section, {}).get(name) != value:
                found = saved.get(section, {}).get(name)
                expected = f"{found!r}, as in {path}, or another run.out"
                raise ConfigError(f"{key}: expected {expected}, found {value!r}")


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(values))
    return plain
