"""A critic of 2048 positions: it predicts which of the largest tiles a game will finally reach.

It has three independent parts. ``embed`` computes an embedding of every step with any encoder. ``CriticData`` serves
batches with labels, which are run outcomes. ``CriticHead`` is a small network, and ``fit`` trains it. The commands are
``a2store critic embed`` and ``train``. docs/critic.md lists files, shapes and formulas.

PyTorch is imported on first use. Embedding with a NumPy encoder, the metrics and the configuration do not need it.

>>> from a2store.critic import CriticData, CriticHead, embed
>>> report = embed("session", lambda tokens: tokens.astype("float32"))
>>> train, val = CriticData("session", use_embeddings=True, thresholds=(1024, 2048)).split(0.3)
>>> head = CriticHead(train.dim, len(train.thresholds))
>>> embedding, labels = next(iter(train))
>>> head(embedding).shape
torch.Size([4096, 2])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import Config, ConfigError, load_config
    from .data import CriticData, highest_tiles
    from .embedding import EmbedReport, embed
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
    "embed",
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
    "embedding": ("EmbedReport", "embed"),
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
