"""The configuration of a training run, from a TOML file.

Every key has a type and a range. Unknown keys are rejected.
"""

from __future__ import annotations

import dataclasses
import math
import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

__all__ = ["Config", "ConfigError", "Data", "Model", "Optim", "Run", "load_config"]


class ConfigError(ValueError):
    r"""A configuration is invalid; the message has the key's full name, the expected and the found value.

    >>> from pathlib import Path
    >>> from a2store.critic import load_config
    >>> _ = Path("critic.toml").write_text('[data]\nsource = "session"\nval = 2.0\n[run]\nout = "critic"\n')
    >>> load_config("critic.toml")
    Traceback (most recent call last):
    a2store.critic.config.ConfigError: critic.toml: data.val: expected above 0 and below 1, found 2.0
    """


def _option(default: Any, expected: str, allowed: Callable[[Any], bool]) -> Any:
    """Return a field whose values satisfy ``allowed``; ``None`` is always allowed."""
    return field(default=default, metadata={"expected": expected, "allowed": allowed})


def _at_least(least: int, default: int | None) -> Any:
    return _option(default, f"{least} or more", lambda value: value >= least)


def _share(default: float) -> Any:
    return _option(default, "0 or more and below 1", lambda value: 0 <= value < 1)


def _above_zero(default: float | None) -> Any:
    return _option(default, "above 0", lambda value: 0 < value < math.inf)


@dataclass(frozen=True, kw_only=True)
class Data:
    """The training data of a ``Config``.

    All options are keywords, and keys of the TOML table ``data``.

    - ``source``: an archive (a folder or a URL), or the folder of a session. Required.
    - ``sql``: the query whose rows are used, for an archive; ``None`` = all steps.
    - ``use_embeddings``: whether the inputs are embeddings instead of tokens. Default: ``False``.
    - ``embeddings``: the folder of ``embeddings.json``; ``None`` = the session's folder.
    - ``thresholds``: tiles of 2 or more, in ascending order. Default: 8192, 16384 and 32768.
    - ``max_steps_per_run``: the maximum number of steps per run, 1 or more; ``None`` = all.
    - ``val``: the share of held-out runs, above 0 and below 1. Default: 0.1.
    - ``split_seed``: the seed of the split, 0 or more. Default: 0.
    - ``batch_size``: the number of rows per batch, 1 or more. Default: 1024.
    - ``symmetries``: whether to transform each board by one of eight symmetries; only for tokens. Default: ``False``.
    - ``seed``: the seed of the order, the symmetries and the selected steps, 0 or more. Default: 0.

    >>> from a2store.critic.config import Data
    >>> Data(source="session", thresholds=(1024, 2048)).batch_size
    1024
    """

    source: str
    sql: str | None = None
    use_embeddings: bool = False
    embeddings: str | None = None
    thresholds: tuple[int, ...] = _option(
        (8192, 16384, 32768),
        "tiles in ascending order",
        lambda tiles: bool(tiles) and tiles[0] >= 2 and all(a < b for a, b in pairwise(tiles)),
    )
    max_steps_per_run: int | None = _at_least(1, None)
    val: float = _option(0.1, "above 0 and below 1", lambda value: 0 < value < 1)
    split_seed: int = _at_least(0, 0)
    batch_size: int = _at_least(1, 1024)
    symmetries: bool = False
    seed: int = _at_least(0, 0)


@dataclass(frozen=True, kw_only=True)
class Model:
    """The network of a ``Config``.

    All options are keywords, and keys of the TOML table ``model``.

    - ``encoder``: the encoder of tokens: ``"transformer"``, ``"one-hot"``, or ``module:name`` of a torch module.
      Default: ``"transformer"``.
    - ``train_encoder``: whether the encoder's weights are trained too. Default: ``True``.
    - ``weights``: a file with the encoder's initial weights, a state dict; ``None`` = initialised from ``seed``.
    - ``pooling``: the pooling of the vectors of tokens, ``"mean"`` or ``"cls"``; ``None`` = mean.
    - ``dim``: the width of a vector, a multiple of ``heads``. Default: 64.
    - ``depth``: the number of blocks, 1 or more. Default: 2.
    - ``heads``: the number of heads of attention, 1 or more. Default: 4. ``dim``, ``depth`` and ``heads`` apply to
      ``"transformer"``.
    - ``hidden``: the widths of the head's hidden layers, 1 or more each. Default: none, a linear probe.
    - ``dropout``: the dropout rate after each hidden layer of the head, 0 or more and below 1. Default: 0.0.
    - ``seed``: the seed of the initial weights, 0 or more. Default: 0.

    >>> from a2store.critic.config import Model
    >>> Model(encoder="one-hot", hidden=(64,)).dropout
    0.0
    """

    encoder: str = "transformer"
    train_encoder: bool = True
    weights: str | None = None
    pooling: Literal["mean", "cls"] | None = None
    dim: int = _at_least(1, 64)
    depth: int = _at_least(1, 2)
    heads: int = _at_least(1, 4)
    hidden: tuple[int, ...] = _option((), "widths of 1 or more", lambda widths: all(width >= 1 for width in widths))
    dropout: float = _share(0.0)
    seed: int = _at_least(0, 0)


@dataclass(frozen=True, kw_only=True)
class Optim:
    """The optimizer of a ``Config``: AdamW (Loshchilov and Hutter 2019), with a warm-up and a half cosine decay.

    All options are keywords, and keys of the TOML table ``optim``.

    - ``epochs``: the number of epochs, 1 or more. Default: 10.
    - ``lr``: the highest learning rate, above 0. Default: 0.001.
    - ``min_lr``: the last learning rate, as a share of ``lr``, 0 to 1. Default: 0.01.
    - ``warmup_steps``: the number of steps in which the learning rate rises from 0, 0 or more. Default: 100.
    - ``weight_decay``: the decay of weights that are matrices, 0 or more. Default: 0.01.
    - ``beta1``: the decay rate of the mean of gradients, 0 or more and below 1. Default: 0.9.
    - ``beta2``: the decay rate of the mean of squared gradients, 0 or more and below 1. Default: 0.999.
    - ``grad_clip``: the largest norm of the gradient, above 0; ``None`` = no limit.
    - ``class_weights``: whether positive rows have the weight ``pos_weight``. Probabilities are calibrated in both
      cases. Default: ``True``.
    - ``max_pos_weight``: the largest ``pos_weight``, above 0; ``None`` = no limit.

    >>> from a2store.critic.config import Optim
    >>> Optim(epochs=3).lr
    0.001
    """

    epochs: int = _at_least(1, 10)
    lr: float = _above_zero(1e-3)
    min_lr: float = _option(0.01, "0 to 1", lambda value: 0 <= value <= 1)
    warmup_steps: int = _at_least(0, 100)
    weight_decay: float = _option(0.01, "0 or more", lambda value: 0 <= value < math.inf)
    beta1: float = _share(0.9)
    beta2: float = _share(0.999)
    grad_clip: float | None = _above_zero(None)
    class_weights: bool = True
    max_pos_weight: float | None = _above_zero(None)


@dataclass(frozen=True, kw_only=True)
class Run:
    """The output and the course of a run of a ``Config``.

    All options are keywords, and keys of the TOML table ``run``.

    - ``out``: the folder of checkpoints and metrics. Required.
    - ``seed``: the seed of PyTorch's generator, which dropout uses, 0 or more. Default: 0.
    - ``device``: the device, such as ``"cpu"``; ``"auto"`` = CUDA if it is available. Default: ``"auto"``.
    - ``threads``: the number of PyTorch's CPU threads, 1 or more; ``None`` = PyTorch's default.
    - ``eval_steps``: the number of steps between validations, 1 or more; ``None`` = only at the end of each epoch,
      where a validation always runs.
    - ``checkpoint_steps``: the number of steps between checkpoints, 1 or more; each validation also writes one.
      Default: 500.
    - ``patience``: the number of validations without a better Brier score after which training stops, 1 or more;
      ``None`` = no limit.
    - ``bins``: the number of bins of the calibration, 1 or more. Default: 10.

    >>> from a2store.critic.config import Run
    >>> Run(out="critic", device="cpu").checkpoint_steps
    500
    """

    out: str
    seed: int = _at_least(0, 0)
    device: str = "auto"
    threads: int | None = _at_least(1, None)
    eval_steps: int | None = _at_least(1, None)
    checkpoint_steps: int = _at_least(1, 500)
    patience: int | None = _at_least(1, None)
    bins: int = _at_least(1, 10)


@dataclass(frozen=True, kw_only=True)
class Config:
    """The configuration of a training run. Its sections are classes of ``a2store.critic.config``.

    ``load_config`` checks the types and ranges of all options; the constructors do not.

    - ``data``: the training data, a ``Data``.
    - ``run``: the output and the course of the run, a ``Run``.
    - ``model``: the network, a ``Model``; by default a small transformer and a linear head.
    - ``optim``: the optimizer, an ``Optim``; by default AdamW with a learning rate of 0.001.

    Raises ``ConfigError`` for options that exclude each other.

    >>> from a2store.critic import Config
    >>> from a2store.critic.config import Data, Run
    >>> config = Config(data=Data(source="session", thresholds=(1024, 2048)), run=Run(out="critic"))
    >>> config.optim.lr
    0.001
    """

    data: Data
    run: Run
    model: Model = Model()
    optim: Optim = Optim()

    def __post_init__(self) -> None:
        """Check the options together."""
        data = self.data
        if data.use_embeddings and data.symmetries:
            raise ConfigError("data.symmetries: expected false with use_embeddings, found true")
        if data.embeddings is not None and not data.use_embeddings:
            raise ConfigError("data.embeddings: expected use_embeddings = true beside it")

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as a dict of dicts with plain values, which ``json.dumps`` accepts.

        >>> from a2store.critic import Config
        >>> from a2store.critic.config import Data, Run
        >>> Config(data=Data(source="session"), run=Run(out="critic")).to_dict()["data"]["thresholds"]
        (8192, 16384, 32768)
        """
        return dataclasses.asdict(self)


def load_config(path: str | os.PathLike[str]) -> Config:
    r"""Read a configuration. Paths in it are relative to the working folder.

    - ``path``: a TOML file with the tables ``data``, ``run``, ``model`` and ``optim``; the last two may be missing.

    Raises ``ConfigError`` for invalid TOML, for an unknown or missing key, and for a value of another type or out of
    range. Also raises ``OSError``.

    >>> from pathlib import Path
    >>> from a2store.critic import load_config
    >>> _ = Path("critic.toml").write_text('[data]\nsource = "session"\n[run]\nout = "critic"\n')
    >>> load_config("critic.toml").data.source
    'session'
    """
    try:
        values = tomllib.loads(Path(path).read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    try:
        return config_from(values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def config_from(values: dict[str, Any]) -> Config:
    """Return the configuration of plain values. Raises ``ConfigError`` as ``load_config`` does."""
    config: Config = _section(Config, values, "")
    return config


def _section(cls: type, values: Any, path: str) -> Any:
    if not isinstance(values, dict):
        raise ConfigError(f"{path.rstrip('.')}: expected a table, found {values!r}")
    fields = {part.name: part for part in dataclasses.fields(cls)}
    for name in values:
        if name not in fields:
            raise ConfigError(f"{path}{name}: is unknown; expected {', '.join(fields)}")
    types = get_type_hints(cls)
    found = {}
    for name, part in fields.items():
        key, kind = path + name, types[name]
        if name not in values:
            if part.default is dataclasses.MISSING:
                raise ConfigError(f"{key}: is missing; expected {_described(kind)}")
        elif dataclasses.is_dataclass(kind):
            found[name] = _section(kind, values[name], f"{key}.")  # type: ignore[arg-type]
        else:
            value = _value(kind, values[name], key)
            allowed = part.metadata.get("allowed")
            if allowed is not None and value is not None and not allowed(value):
                raise ConfigError(f"{key}: expected {part.metadata['expected']}, found {_shown(value)}")
            found[name] = value
    return cls(**found)


def _value(kind: Any, value: Any, key: str) -> Any:
    for one in get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,):
        if one is float and type(value) is int:
            return float(value)
        if one in (bool, int, float, str) and type(value) is one:
            return value
        if one is NoneType and value is None:
            return None
        if get_origin(one) is tuple and isinstance(value, list | tuple) and all(type(item) is int for item in value):
            return tuple(value)
        if get_origin(one) is Literal and value in get_args(one):
            return value
    raise ConfigError(f"{key}: expected {_described(kind)}, found {_shown(value)}")


def _described(kind: Any) -> str:
    if get_origin(kind) in (Union, UnionType):
        # TOML has no null.
        return " or ".join(_described(one) for one in get_args(kind) if one is not NoneType)
    if get_origin(kind) is tuple:
        return "a list of integers"
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if dataclasses.is_dataclass(kind):
        return "a table"
    return {bool: "true or false", int: "an integer", float: "a number", str: "a string"}[kind]


def _shown(value: Any) -> str:
    shown = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else None
    return shown or (repr(list(value)) if isinstance(value, tuple) else repr(value))
