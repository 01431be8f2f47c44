"""Encoders, which turn the tokens of boards into vectors. They are found by the name ``module:name``.

``module:name`` is always the encoder itself, ready to be called, not a class or a function that makes an encoder.
Modules are found as ``import`` finds them; ``a2store critic`` also searches the working folder.

The input and output of an encoder, for B boards:

- A ``torch.nn.Module`` gets an int64 tensor (B, 16) on its device, in ``eval`` mode and without gradients. Any other
  encoder gets a NumPy array (B, 16), uint8. Both hold exponents, row by row from the top left, 0 = empty.
- It returns (B, D), one vector per board; or (B, 16, D), one per cell; or (B, 17, D), where a cls token comes before
  the cells.

Vectors of tokens are pooled into one per board: ``"mean"`` is the mean over the 16 cells, ``"cls"`` the first of 17.
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

if TYPE_CHECKING:
    import torch

# These are unions because stubtest does not accept the shorter form.
Pooling: TypeAlias = Literal["mean"] | Literal["cls"]
Dtype: TypeAlias = Literal["bf16"] | Literal["f32"]

POOLINGS: tuple[Pooling, ...] = ("mean", "cls")
DTYPES: tuple[Dtype, ...] = ("bf16", "f32")


def load_encoder(name: str) -> Callable[[Any], Any]:
    """Return the encoder with the name ``module:name``, where ``name`` may contain dots.

    - ``name``: the name, such as ``"my_package.encoders:small"``.

    Raises ``ValueError`` for a name without an encoder. Errors of importing the module are raised unchanged.

    >>> from a2store.critic import load_encoder
    >>> load_encoder("a2store.critic.transformer:small").dim
    64
    """
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise ValueError(f"encoder: expected module:name (a critic's own: transformer, one-hot), found {name!r}")
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
    """Return whether an object is a ``torch.nn.Module``. This does not import PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(encoder, torch.nn.Module)


def encoder_sha(encoder: Callable[[Any], Any]) -> str:
    """Return a hash of an encoder's content, 16 hexadecimal digits of a SHA-256.

    For a torch module it covers the structure and all weights. For another encoder it is the attribute ``sha`` if there
    is one, else a hash of the encoder's name and source file.
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
    # Built-in objects and those typed at a prompt have no file.
    with suppress(TypeError, OSError):
        digest.update(Path(inspect.getfile(defined)).read_bytes())
    return digest.hexdigest()[:16]


def pool(vectors: Any, pooling: Pooling | None) -> Any:
    """Pool the output of an encoder, an array or a tensor, into one vector per board: (B, D).

    ``None`` means no pooling for (B, D), else the mean. Raises ``ValueError`` for another shape, and for a pooling that
    the vectors do not support.
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


def to_bf16(values: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    """Return the nearest bfloat16 of each number, ties to even, like PyTorch: uint16, same shape.

    NumPy has no such type; bfloat16 is the upper 16 bits of a float32. NaNs stay NaNs.
    """
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    # Adds half a unit of the last place, minus one if the last bit is even, so that a tie does not carry.
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> 16) & 1))) >> 16
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, (bits >> 16) | 0x40, rounded).astype("<u2")


class Runner:
    """An encoder, its device and its options, which runs on batches of tokens."""

    def __init__(
        self,
        encoder: Callable[[Any], Any],
        pooling: Pooling | None = None,
        dtype: Dtype = "bf16",
        device: str | None = None,
    ) -> None:
        """Prepare the encoder.

        - ``pooling``: the pooling of the vectors of tokens; ``None`` = mean.
        - ``dtype``: the type of the results.
        - ``device``: the device of a torch module; ``None`` = CUDA if it is available, else the CPU.
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
            raise ValueError(f"device: expected none for an encoder that is not a torch module, found {device!r}")

    def __call__(self, tokens: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[Any], str]:
        """Return the vectors (B, D) of tokens (B, 16), uint16 bit patterns or float32, and the pooling used.

        Raises ``ValueError`` for a result of another shape, and for a result that is not finite, with the row.
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
            # Rounds on the device, so that half as many bytes are copied.
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
