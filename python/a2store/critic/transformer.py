"""A small, trainable transformer over the 16 cells of a board, and a one-hot encoder."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from .._integers import integer

VOCABULARY = 18
"""The number of exponents, 0 to 17: the rules allow tiles up to 2**17 = 131072."""
CELLS = 16


class BoardTransformer(nn.Module):
    """A network from tokens (B, 16), int64, to vectors (B, 16, dim), float32; with a cls token first, (B, 17, dim).

    It has learned embeddings of exponent and cell, pre-norm blocks of self-attention and an MLP of four times the
    width, and a final layer norm. The initial weights depend on ``seed`` alone. They are normal with variance
    1 / fan-in; the last weights of a residual branch are scaled by ``1 / sqrt(2 * depth)``.

    - ``dim``: the width of a vector, a multiple of ``heads``.
    - ``depth``: the number of blocks, at least 1.
    - ``heads``: the number of heads of attention, at least 1.
    - ``cls``: whether there is a cls token in addition to the cells.
    - ``dropout``: the dropout rate of attention and of the MLP in training.
    - ``seed``: the seed of the initial weights; the state of the global generator does not matter.

    Raises ``ValueError`` for a number below 1, and if ``heads`` does not divide ``dim``.

    >>> import torch
    >>> from a2store.critic import BoardTransformer
    >>> BoardTransformer(dim=32, depth=1)(torch.zeros(8, 16, dtype=torch.int64)).shape
    torch.Size([8, 16, 32])
    """

    def __init__(
        self, dim: int = 64, depth: int = 2, heads: int = 4, *, cls: bool = False, dropout: float = 0.0, seed: int = 0
    ) -> None:
        super().__init__()
        dim, depth = integer("dim", dim, 1, 2**31), integer("depth", depth, 1, 2**31)
        heads, seed = integer("heads", heads, 1, 2**31), integer("seed", seed, 0)
        if dim % heads:
            raise ValueError(f"heads: expected a divisor of dim={dim}, found {heads}")
        self.dim, self.depth, self.heads = dim, depth, heads
        self.tile = nn.Embedding(VOCABULARY, dim)
        self.cell = nn.Parameter(torch.empty(CELLS, dim))
        self.cls = nn.Parameter(torch.empty(1, dim)) if cls else None
        self.blocks = nn.ModuleList(_Block(dim, heads, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self._initialise(seed)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return a vector for each token: (B, 16, dim), or (B, 17, dim) with a cls token, float32.

        - ``tokens``: the exponents of B boards: (B, 16), int64, 0 to 17.

        >>> import torch
        >>> from a2store.critic import BoardTransformer
        >>> BoardTransformer(dim=32, cls=True).forward(torch.zeros(8, 16, dtype=torch.int64)).shape
        torch.Size([8, 17, 32])
        """
        x = self.tile(tokens) + self.cell
        if self.cls is not None:
            x = torch.cat([self.cls.expand(len(x), 1, -1), x], 1)
        for block in self.blocks:
            x = block(x)
        vectors: torch.Tensor = self.norm(x)
        return vectors

    def _initialise(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, weight in self.named_parameters():
                if weight.dim() == 1:
                    weight.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
                    continue
                is_table = name in ("tile.weight", "cell", "cls")
                std = 0.5 if is_table else 1 / math.sqrt(weight.shape[1])
                if name.endswith(("project.weight", "mlp.2.weight")):
                    std /= math.sqrt(2 * self.depth)
                weight.normal_(0.0, std, generator=generator)


class _Block(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm_attention = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.project = nn.Linear(dim, dim)
        self.norm_mlp = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim), nn.Dropout(dropout))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, dim = x.shape
        qkv = self.qkv(self.norm_attention(x)).view(batch, tokens, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, tokens, dim))
        result: torch.Tensor = x + self.mlp(self.norm_mlp(x))
        return result


class OneHot(nn.Module):
    """A network from tokens (B, 16), int64, to one-hot vectors (B, 288), float32, 18 per cell. It has no weights."""

    dim = CELLS * VOCABULARY

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the one-hot vectors."""
        return functional.one_hot(tokens, VOCABULARY).flatten(1).float()


_READY: dict[str, dict[str, Any]] = {"small": {}, "small_cls": {"cls": True}, "medium": {"dim": 256, "depth": 4}}


def __getattr__(name: str) -> nn.Module:
    # Each access creates a new encoder, because encoders are moved between devices and get weights.
    if name == "one_hot":
        return OneHot()
    if name not in _READY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return BoardTransformer(**_READY[name])
