"""The critic's head, and an encoder combined with a head."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from .._integers import integer
from .encoder import Pooling, pool


class CriticHead(nn.Module):
    """A network from embeddings (B, in_dim) of any float type to logits (B, out_dim), float32.

    It is a linear probe or a small MLP, and computes in float32 for any input, also within ``torch.autocast``.

    Training with class weights, ``BCEWithLogitsLoss(pos_weight=w)``, treats the data as if it had w times the positive
    rows. So logits are too high by log(w) (Elkan 2001). ``probabilities`` corrects this with the weights in the buffer
    ``pos_weight``. The training code must fill that buffer.

    - ``in_dim``: the dimension of an embedding, at least 1.
    - ``out_dim``: the number of thresholds, at least 1.
    - ``hidden``: the widths of hidden layers, each followed by GELU; ``None``, 0 or an empty list = a linear probe.
    - ``dropout``: the dropout rate after each hidden layer.
    - ``seed``: the seed of the initial weights; ``None`` = PyTorch's generator.

    Raises ``ValueError`` for a dimension or a width below 1.

    >>> import torch
    >>> from a2store.critic import CriticHead
    >>> head = CriticHead(256, 3, hidden=[64], seed=1)
    >>> head(torch.zeros(8, 256)).shape
    torch.Size([8, 3])
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
        super().__init__()
        widths = list(hidden) if isinstance(hidden, Iterable) and not isinstance(hidden, str | bytes) else [hidden or 0]
        widths = [width for width in (integer("hidden", width, 0, 2**31) for width in widths) if width]
        in_dim, out_dim = integer("in_dim", in_dim, 1, 2**31), integer("out_dim", out_dim, 1, 2**31)
        self.in_dim, self.out_dim = in_dim, out_dim
        seed = None if seed is None else integer("seed", seed, 0)
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
        """Return the logits: (B, out_dim), float32.

        - ``embedding``: (B, in_dim), any float type.

        >>> import torch
        >>> from a2store.critic import CriticHead
        >>> CriticHead(256)(torch.zeros(8, 256, dtype=torch.bfloat16)).dtype
        torch.float32
        """
        with torch.autocast(embedding.device.type, enabled=False):
            logits: torch.Tensor = self.layers(embedding.float())
        return logits

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the probabilities of logits, corrected for the class weights: (B, out_dim), float32, in [0, 1].

        - ``logits``: (B, out_dim), the result of the network.

        >>> import torch
        >>> from a2store.critic import CriticHead
        >>> CriticHead(256, 3).probabilities(torch.zeros(1, 3))
        tensor([[0.5000, 0.5000, 0.5000]])
        """
        return torch.sigmoid(logits - self.pos_weight.log())


class TokenCritic(nn.Module):
    """A network from tokens (B, 16) to logits (B, out_dim): an encoder, pooling, and a head.

    - ``encoder``: the encoder; ``a2store.critic.encoder`` describes the output of encoders.
    - ``head``: the head, for the encoder's dimension.
    - ``pooling``: the pooling of the vectors of tokens, ``"mean"`` or ``"cls"``; ``None`` = mean.

    >>> import torch
    >>> from a2store.critic import BoardTransformer, CriticHead, TokenCritic
    >>> critic = TokenCritic(BoardTransformer(dim=64), CriticHead(64, 3))
    >>> critic(torch.zeros(8, 16, dtype=torch.int64)).shape
    torch.Size([8, 3])
    """

    def __init__(self, encoder: nn.Module, head: CriticHead, pooling: Pooling | None = None) -> None:
        super().__init__()
        self.encoder, self.head, self.pooling = encoder, head, pooling

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits: (B, out_dim), float32.

        - ``tokens``: the exponents of B boards: (B, 16), any integer type.

        Raises ``ValueError`` for an output of the encoder that cannot be pooled, and ``TypeError`` for other tokens
        than integers.

        >>> import torch
        >>> from a2store.critic import BoardTransformer, CriticHead, TokenCritic
        >>> critic = TokenCritic(BoardTransformer(dim=8), CriticHead(8, 3))
        >>> critic.forward(torch.zeros(1, 16, dtype=torch.int64)).shape
        torch.Size([1, 3])
        """
        if tokens.is_floating_point():
            raise TypeError(f"tokens: expected integers, found {tokens.dtype}")
        logits: torch.Tensor = self.head(pool(self.encoder(tokens.long()), self.pooling))
        return logits

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the probabilities of logits, as ``CriticHead.probabilities`` does.

        - ``logits``: (B, out_dim), the result of the network.

        >>> import torch
        >>> from a2store.critic import BoardTransformer, CriticHead, TokenCritic
        >>> critic = TokenCritic(BoardTransformer(dim=8), CriticHead(8, 3))
        >>> critic.probabilities(torch.zeros(1, 3))
        tensor([[0.5000, 0.5000, 0.5000]])
        """
        return self.head.probabilities(logits)
