"""A critic of 2048 positions: which of the largest tiles a game that stands here will reach in the end.

Three parts, each usable by itself: embeddings of every step by any encoder (``embed_session``), data with labels made
from what the runs came to (``CriticData``), and a small head with its training (``CriticHead``, ``fit``). The commands
are ``python -m a2store.critic embed`` and ``train``; docs/critic.md has files, shapes and formulas.

PyTorch is imported by what needs it, when it is first asked for: embedding with a NumPy encoder, the metrics and the
configuration do without.

>>> from a2store.critic import CriticData, CriticHead
>>> train, val = CriticData("selfplay/0_model=a", 4096, use_embeddings=True, thresholds=(2048, 4096)).split()
>>> head = CriticHead(train.dim, len(train.thresholds))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import Config, ConfigError, load_config
    from .data import CriticData, highest_tiles
    from .embed import EmbedReport, embed_session, embed_table
    from .encoder import load_encoder
    from .head import CriticHead, TokenCritic
    from .metrics import auc, brier, calibration, evaluate
    from .model import load_critic
    from .train import TrainReport, fit
    from .transformer import BoardTransformer

__all__ = [
    "BoardTransformer",
    "Config",
    "ConfigError",
    "CriticData",
    "CriticHead",
    "EmbedReport",
    "TokenCritic",
    "TrainReport",
    "auc",
    "brier",
    "calibration",
    "embed_session",
    "embed_table",
    "evaluate",
    "fit",
    "highest_tiles",
    "load_config",
    "load_critic",
    "load_encoder",
]

_MODULES = {
    "config": ("Config", "ConfigError", "load_config"),
    "data": ("CriticData", "highest_tiles"),
    "embed": ("EmbedReport", "embed_session", "embed_table"),
    "encoder": ("load_encoder",),
    "head": ("CriticHead", "TokenCritic"),
    "model": ("load_critic",),
    "metrics": ("auc", "brier", "calibration", "evaluate"),
    "train": ("TrainReport", "fit"),
    "transformer": ("BoardTransformer",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
