"""Batches as dicts of PyTorch tensors, and their way to a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from . import Batch, StepTable

Tensors: TypeAlias = dict[str, torch.Tensor]

# PyTorch supports little arithmetic on unsigned types, so these columns are widened to the next signed type.
_WIDENED: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype("uint16"): np.dtype("int32"),
    np.dtype("uint32"): np.dtype("int64"),
}
_UINT64, _INT64, _INT16 = np.dtype("uint64"), np.dtype("int64"), np.dtype("int16")


def _tensor(array: npt.NDArray[Any], is_bfloat16: bool = False) -> torch.Tensor:
    dtype = array.dtype
    if is_bfloat16:
        return torch.from_numpy(array.view(_INT16)).view(torch.bfloat16)
    if dtype in _WIDENED:
        array = array.astype(_WIDENED[dtype])
    elif dtype == _UINT64:
        array = array.view(_INT64)
    # The tensor shares the batch's memory, which is not reused while the tensor exists.
    return torch.from_numpy(array)


def tensors_of(batch: Batch) -> Tensors:
    """Return the columns of a batch as tensors by name."""
    bfloat16 = batch.bfloat16_columns
    return {name: _tensor(array, name in bfloat16) for name, array in batch.to_dict().items()}


def to_device(batch: Batch, device: torch.device | str | None) -> Tensors:
    """Return the tensors of a batch, for ``Batch.to_torch``."""
    tensors = tensors_of(batch)
    return tensors if device is None else {name: tensor.to(device) for name, tensor in tensors.items()}


def rows(table: StepTable, rows: Sequence[int]) -> list[Tensors]:
    """Return rows as dicts of tensors, for ``StepTable.__getitems__``."""
    columns = tensors_of(table.take(rows))
    columns["tokens"] = columns["tokens"].long()
    by_row = zip(*(column.unbind() for column in columns.values()), strict=True)
    return [dict(zip(columns, values, strict=True)) for values in by_row]


def distributed_rank() -> tuple[int, int]:
    """Return the rank and the size of the default group of ``torch.distributed``, or those of a single process."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def placed(
    batches: Iterable[Tensors],
    device: torch.device | None,
    pin_memory: bool,
    tokens: Literal["uint8", "int32", "int64"],
) -> Iterable[Tensors]:
    """Return the batches in the requested memory or on the requested device. CUDA devices widen ``tokens``."""
    if device is not None and device.type == "cuda":
        return copied_ahead(batches, device, {"tokens": getattr(torch, tokens)})
    if device is not None and device.type != "cpu":
        return each(batches, lambda tensor: tensor.to(device))
    if pin_memory and torch.cuda.is_available():
        return each(batches, torch.Tensor.pin_memory)
    return batches


def transformed(batches: Iterable[Tensors], transform: Callable[[Tensors], Tensors]) -> Iterator[Tensors]:
    # In a generator, a StopIteration of the function becomes an error. In `map` it would end the epoch.
    for batch in batches:
        yield transform(batch)


def each(batches: Iterable[Tensors], change: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[Tensors]:
    for batch in batches:
        yield {name: change(tensor) for name, tensor in batch.items()}


def copied_ahead(
    batches: Iterable[Tensors], device: torch.device, widened: dict[str, torch.dtype]
) -> Iterator[Tensors]:
    """Copy batches to a CUDA device on a separate stream; each copy overlaps with the use of the previous batch."""
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def copy(batch: Tensors) -> Tensors:
        copied = {}
        with torch.cuda.stream(stream):
            for name, tensor in batch.items():
                # The page-locked tensor may be dropped once the copy has begun: PyTorch keeps its memory until the copy
                # ends.
                tensor = tensor.pin_memory().to(device, non_blocking=True)
                copied[name] = tensor.to(widened.get(name, tensor.dtype))
        return copied

    remaining = iter(batches)
    ahead = [copy(batch) for batch in islice(remaining, 1)]
    while ahead:
        (ready,) = ahead
        current = torch.cuda.current_stream(device)
        # This comes before the next copy is queued; otherwise the consumer would wait for that copy too.
        current.wait_stream(stream)
        for tensor in ready.values():
            # The memory belongs to the copy stream, which must not reuse it before the current stream has finished.
            tensor.record_stream(current)
        ahead = [copy(batch) for batch in islice(remaining, 1)]
        yield ready
