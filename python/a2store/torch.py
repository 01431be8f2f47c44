"""Batches as PyTorch tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch

from . import Batch, StepTable

__all__ = ["StepLoader"]

# PyTorch has few unsigned types that it can compute with, so these columns keep their values in the next larger one.
_WIDENED = {"uint16": "int32", "uint32": "int64"}


class StepLoader:
    """Serves a table's rows as dicts of tensors, one epoch per iteration.

    Options are those of ``StepTable.loader``, with ``int64`` tokens by default, which is what ``torch.nn.Embedding``
    takes, and two more:

    pin_memory: copy each batch into page-locked memory, from which transfers to a GPU run beside the computation.
    device: where the tensors go; transfers from pinned memory do not block.

    Each batch is a dict of: ``tokens`` (B, 16); ``move`` (B,) uint8; ``ev_values`` (B, 4) float32; ``ev_legal`` (B, 4)
    bool; ``run_id`` (B,) int64; ``step_index`` (B,) int32; ``board`` (B,) int64, the bits of the uint64; and the extra
    columns.
    """

    def __init__(
        self,
        table: StepTable,
        batch_size: int = 4096,
        *,
        shuffle: bool = True,
        seed: int = 0,
        epoch: int = 0,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        tokens: Literal["uint8", "int32", "int64"] = "int64",
        columns: Sequence[str] | None = None,
        prefetch: int = 2,
        pin_memory: bool = False,
        device: torch.device | str | None = None,
    ) -> None:
        self.loader = table.loader(
            batch_size,
            shuffle=shuffle,
            seed=seed,
            epoch=epoch,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
            tokens=tokens,
            columns=None if columns is None else list(columns),
            prefetch=prefetch,
        )
        self.pin_memory = pin_memory
        self.device = None if device is None else torch.device(device)

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return len(self.loader)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        """Serve the epoch."""
        for batch in self.loader:
            yield self._tensors(batch)

    def set_epoch(self, epoch: int) -> None:
        """Turn to an epoch; see ``Loader.set_epoch``."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader stands; see ``Loader.state_dict``."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a state stood; see ``Loader.load_state_dict``."""
        self.loader.load_state_dict(state)

    def _tensors(self, batch: Batch) -> dict[str, torch.Tensor]:
        tensors = {}
        for name, array in batch.to_dict().items():
            if array.dtype == "uint64":
                array = array.view("int64")
            elif array.dtype.name in _WIDENED:
                array = array.astype(_WIDENED[array.dtype.name])
            # The tensor shares the batch's memory, which is not used again before the tensor is gone.
            tensor = torch.from_numpy(array)
            if self.pin_memory:
                tensor = tensor.pin_memory()
            if self.device is not None:
                tensor = tensor.to(self.device, non_blocking=self.pin_memory)
            tensors[name] = tensor
        return tensors
