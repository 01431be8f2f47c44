"""Building the network of a configuration, and loading a trained one from a file."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn

from .config import Config, Model, config_from
from .encoder import load_encoder, pool
from .head import CriticHead, TokenCritic
from .transformer import BoardTransformer, OneHot

Critic = CriticHead | TokenCritic


def build(config: Config, dim: int | None) -> Critic:
    """Return the network on the CPU: a head for embeddings of dimension ``dim``, or for tokens if it is ``None``.

    Raises ``ValueError`` for an encoder that is not found or does not fit, and for weights of another encoder.
    """
    model, outputs = config.model, len(config.data.thresholds)
    if dim is not None:
        return CriticHead(dim, outputs, model.hidden, dropout=model.dropout, seed=model.seed)
    encoder = _encoder(model)
    encoder.requires_grad_(model.train_encoder)
    with torch.no_grad():
        dim = int(pool(encoder.eval()(torch.zeros(1, 16, dtype=torch.int64)), model.pooling).shape[1])
    head = CriticHead(dim, outputs, model.hidden, dropout=model.dropout, seed=model.seed)
    return TokenCritic(encoder, head, model.pooling)


def load_critic(path: str | os.PathLike[str]) -> Critic:
    """Return the best network of a training, on the CPU and in ``eval`` mode: a ``CriticHead`` or a ``TokenCritic``.

    - ``path``: the file ``best.pt`` in the folder ``run.out`` of the training.

    Raises ``OSError`` if the file cannot be read, and the errors of ``torch.load`` for a file of another kind.

    >>> import torch
    >>> from a2store.critic import Config, fit, load_critic
    >>> from a2store.critic.config import Data, Model, Optim, Run
    >>> config = Config(
    ...     data=Data(source="session", thresholds=(1024, 2048), max_steps_per_run=8, val=0.2, batch_size=64),
    ...     model=Model(encoder="one-hot"),
    ...     optim=Optim(epochs=1),
    ...     run=Run(out="critic", device="cpu"),
    ... )
    >>> report = fit(config, quiet=True)
    >>> critic = load_critic("critic/best.pt")
    >>> critic.probabilities(critic(torch.zeros(1, 16, dtype=torch.int64))).shape
    torch.Size([1, 2])
    """
    saved: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    # The file of the initial weights may no longer exist.
    saved["config"]["model"]["weights"] = None
    critic = build(config_from(saved["config"]), saved["dim"])
    critic.load_state_dict(saved["model"])
    return critic.eval()


def load_weights(module: nn.Module, path: str | os.PathLike[str]) -> None:
    """Load the weights of a module from a file, a state dict that ``torch.save`` wrote.

    Raises ``ValueError`` for a file of another kind or of another module, and ``OSError``.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        module.load_state_dict(state)
    except OSError:
        raise
    except Exception as error:
        # torch.load raises many types of exceptions for files that torch.save did not write.
        raise ValueError(f"{path}: not the weights of {type(module).__name__}: {error}") from None


def _encoder(model: Model) -> nn.Module:
    encoder: Any
    if model.encoder == "transformer":
        encoder = BoardTransformer(model.dim, model.depth, model.heads, cls=model.pooling == "cls", seed=model.seed)
    elif model.encoder == "one-hot":
        encoder = OneHot()
    else:
        encoder = load_encoder(model.encoder)
        if not isinstance(encoder, nn.Module):
            raise ValueError(f"model.encoder: expected a torch module, found a {type(encoder).__name__}")
    if model.weights is not None:
        load_weights(encoder, model.weights)
    module: nn.Module = encoder
    return module
