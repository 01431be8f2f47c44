"""The critic's head, and a head with an encoder before it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from .encoder import Pooling, pool


class CriticHead(nn.Module):
    """From embeddings (B, in_dim) of any float type to logits (B, out_dim), float32: a linear probe, or a small MLP.

    It computes in float32, whatever the inputs are, also within ``torch.autocast``.

    Trained with class weights, ``BCEWithLogitsLoss(pos_weight=w)``, logits are log(w) above those of the data's own
    proportions, since the loss is that of data with w times the positive rows (Elkan 2001). ``probabilities`` takes
    that back, by the weights in the buffer ``pos_weight``, which whoever trains a head fills.
    """

    pos_weight: torch.Tensor

    def __init__(
        self,
        in_dim: int,
        out_dim: int = 3,
        hidden: int | Sequence[int] | None = None,
        *,
        dropout: float = 0.0,
        seed: int | None = None,
    ) -> None:
        """Make a head.

        hidden: the widths of hidden layers, with GELU behind each; ``None``, 0 or none = a linear probe.
        dropout: behind each hidden layer.
        seed: what the first weights follow from; ``None`` = PyTorch's generator.
        """
        super().__init__()
        widths = [hidden] if isinstance(hidden, int) else list(hidden or ())
        widths = [width for width in widths if width]
        if min(in_dim, out_dim, *widths) < 1:
            raise ValueError(f"in_dim, out_dim, hidden: expected 1 or more, found {in_dim}, {out_dim}, {hidden}")
        self.in_dim, self.out_dim = in_dim, out_dim
        with torch.random.fork_rng(devices=[], enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
            layers: list[nn.Module] = []
            for width in widths:
                layers += [nn.Linear(in_dim, width), nn.GELU(), nn.Dropout(dropout)]
                in_dim = width
            self.layers = nn.Sequential(*layers, nn.Linear(in_dim, out_dim))
        self.register_buffer("pos_weight", torch.ones(out_dim))

    def forward(self, embedding: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        with torch.autocast(embedding.device.type, enabled=False):
            logits: torch.Tensor = self.layers(embedding.float())
        return logits

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the probabilities that logits stand for, with the class weights taken back."""
        return torch.sigmoid(logits - self.pos_weight.log())


class TokenCritic(nn.Module):
    """From tokens (B, 16), int64, to logits (B, out_dim): an encoder, pooled, and a head."""

    def __init__(self, encoder: nn.Module, head: CriticHead, pooling: Pooling | None = None) -> None:
        """Put a head behind an encoder, which gives what ``a2store.critic.encoder`` says."""
        super().__init__()
        self.encoder, self.head, self.pooling = encoder, head, pooling

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        logits: torch.Tensor = self.head(pool(self.encoder(tokens), self.pooling))
        return logits

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the probabilities that logits stand for."""
        return self.head.probabilities(logits)
