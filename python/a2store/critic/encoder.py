"""Encoders: whatever turns the tokens of boards into vectors, found by the name ``module:name``.

The one rule of names: ``module:name`` is the encoder itself, ready to be called, never a class or a function that makes
one. Modules are found as ``import`` finds them; ``python -m`` looks into the working folder too.

What an encoder takes and gives, for B boards:

- a ``torch.nn.Module`` gets an int64 tensor (B, 16) on its device, in ``eval`` mode and without gradients; anything
  else gets a NumPy array (B, 16), uint8. Both hold exponents, row by row from the top left, 0 = empty.
- it returns (B, D), one vector a board; or (B, 16, D), one a cell; or (B, 17, D), the vector of a token of its own, the
  cls token, before those of the cells.

Vectors of tokens are pooled into one a board: ``"mean"`` is the mean over the 16 cells, ``"cls"`` the first of 17.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from .bf16 import to_bf16

if TYPE_CHECKING:
    import torch

# As unions, which stubtest knows for such.
Pooling: TypeAlias = Literal["mean"] | Literal["cls"]
Dtype: TypeAlias = Literal["bf16"] | Literal["f32"]

POOLINGS: tuple[Pooling, ...] = ("mean", "cls")
DTYPES: tuple[Dtype, ...] = ("bf16", "f32")


def load_encoder(name: str) -> Callable[[Any], Any]:
    """Return the encoder of a name ``module:name``, where ``name`` may have dots.

    Raises ``ValueError`` for a name that leads to no encoder; what importing the module raises comes as it is.
    """
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise ValueError(f"encoder: expected module:name, found {name!r}")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise ValueError(f"encoder: no module {error.name!r}, looked for in {sys.path}") from None
        raise
    try:
        encoder: Any = reduce(getattr, path.split("."), module)
    except AttributeError as error:
        raise ValueError(f"encoder: {error}") from None
    if isinstance(encoder, type):
        raise ValueError(f"encoder: {name} is a class; expected the encoder itself, an instance")
    if not callable(encoder):
        raise ValueError(f"encoder: {name} is of type {type(encoder).__name__}, which cannot be called")
    found: Callable[[Any], Any] = encoder
    return found


def is_torch_module(encoder: object) -> bool:
    """Return whether an object is a ``torch.nn.Module``, without importing PyTorch for it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(encoder, torch.nn.Module)


def encoder_sha(encoder: Callable[[Any], Any]) -> str:
    """Return the name of an encoder's content, 16 hexadecimal digits of a SHA-256.

    Of a module it is made of its structure and all its weights. Anything else says itself in an attribute ``sha``, or
    is known by its name and the file that defines it.
    """
    digest = hashlib.sha256()
    if is_torch_module(encoder):
        module: torch.nn.Module = encoder  # type: ignore[assignment]
        digest.update(f"{type(module).__qualname__}\n{module}\n".encode())
        for name, tensor in sorted(module.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(_torch().uint8).numpy().tobytes())
        return digest.hexdigest()[:16]
    stated = getattr(encoder, "sha", None)
    if isinstance(stated, str):
        return stated
    defined = encoder if inspect.isroutine(encoder) else type(encoder)
    digest.update(f"{defined.__module__}.{defined.__qualname__}\n".encode())
    # What is built in, or was typed at a prompt, has no file.
    with suppress(TypeError, OSError):
        digest.update(Path(inspect.getfile(defined)).read_bytes())
    return digest.hexdigest()[:16]


def pool(vectors: Any, pooling: Pooling | None) -> Any:
    """Return one vector a board, (B, D), of what an encoder gave, array or tensor; ``None`` = mean, if need be.

    Raises ``ValueError`` for another shape, and for a pooling that the vectors do not have.
    """
    shape = tuple(vectors.shape)
    if len(shape) == 2:
        if pooling is not None:
            raise ValueError(f"pooling: the encoder gives one vector a board, {shape}; expected none, found {pooling}")
        return vectors
    if len(shape) != 3 or shape[1] not in (16, 17):
        raise ValueError(f"encoder: expected (B, D), (B, 16, D) or (B, 17, D), found {shape}")
    if pooling == "cls":
        if shape[1] == 16:
            raise ValueError(f"pooling: cls needs 17 vectors a board, found {shape}")
        return vectors[:, 0]
    return vectors[:, -16:].mean(1)


class Runner:
    """An encoder with what is needed to run it on batches of tokens."""

    def __init__(
        self,
        encoder: Callable[[Any], Any],
        pooling: Pooling | None = None,
        dtype: Dtype = "bf16",
        device: str | None = None,
    ) -> None:
        """Make the encoder ready.

        pooling: ``None`` = mean, where there is something to pool.
        dtype: of the results.
        device: where a torch module runs; ``None`` = CUDA where it is available, else the CPU.
        """
        if pooling not in (None, *POOLINGS):
            raise ValueError(f"pooling: expected mean or cls, found {pooling!r}")
        if dtype not in DTYPES:
            raise ValueError(f"dtype: expected bf16 or f32, found {dtype!r}")
        self._pooling, self._dtype = pooling, dtype
        self._encoder = encoder
        self._device = ""
        if is_torch_module(encoder):
            cuda = _torch().cuda.is_available()
            self._device = device or ("cuda" if cuda else "cpu")
            encoder.to(self._device).eval()  # type: ignore[attr-defined]
        elif device not in (None, "cpu"):
            raise ValueError(f"device: expected none for an encoder that is no torch module, found {device!r}")

    def __call__(self, tokens: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[Any], str]:
        """Return the vectors (B, D) of tokens (B, 16), uint16 bit patterns or float32; and how they were pooled.

        Raises ``ValueError`` for results of another shape, and for such as are not finite, with the row.
        """
        if self._device:
            values, pooling = self._run_torch(tokens)
        else:
            given = np.asarray(self._encoder(tokens))
            pooling = "none" if given.ndim == 2 else self._pooling or "mean"
            values = np.ascontiguousarray(pool(given, self._pooling), "<f4")
            self._check(len(tokens), values.shape, ~np.isfinite(values).all(1))
            if self._dtype == "bf16":
                values = to_bf16(values)
        return values, pooling

    def _run_torch(self, tokens: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[Any], str]:
        torch = _torch()
        with torch.inference_mode():
            given = self._encoder(torch.from_numpy(tokens).to(self._device).long())
            pooling = "none" if given.dim() == 2 else self._pooling or "mean"
            pooled = pool(given, self._pooling).float()
            self._check(len(tokens), pooled.shape, ~pooled.isfinite().all(1))
            if self._dtype == "f32":
                return pooled.cpu().numpy().astype("<f4"), pooling
            # Rounded where it is, so that half the bytes are copied.
            bits = pooled.to(torch.bfloat16).contiguous().view(torch.int16).cpu().numpy()
            return bits.view("<u2"), pooling

    @staticmethod
    def _check(rows: int, shape: tuple[int, ...], odd: Any) -> None:
        if len(shape) != 2 or shape[0] != rows or shape[1] == 0:
            raise ValueError(f"encoder: expected a vector for each of {rows} boards, found {tuple(shape)}")
        if bool(odd.any()):
            raise ValueError(f"encoder: row {int(odd.nonzero()[0][0])} of a batch has infinities or NaNs")


def _torch() -> Any:
    import torch

    return torch
