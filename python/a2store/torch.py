"""A table's rows as PyTorch tensors.

``StepLoader`` serves shuffled batches for training loops. A table itself is a map-style dataset, ``DataLoader(table)``,
for custom samplers. Both give dicts of tensors, with the columns of a ``Batch``, in the same order and shapes. The
``DataLoader`` needs a batch size, because PyTorch cannot convert the uint64 board of a single row, ``table[k]``. So a
``ConcatDataset`` of tables fails too. ``StepLoader`` mixes several tables.

``tokens`` are int64, or the requested type. Other columns keep their types, with three exceptions, because PyTorch
supports little arithmetic on wide unsigned types: uint16 (``step_index``) becomes int32, uint32 (``run_id``) becomes
int64, and uint64 (``board``) becomes int64 with the same bits. A column of strings has int16 codes. A bfloat16 column,
which NumPy lacks, is ``torch.bfloat16``.

>>> from a2store.torch import StepLoader
>>> next(iter(StepLoader(table, batch_size=256)))["tokens"].shape
torch.Size([256, 16])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Literal

import torch
from torch.utils.data import IterableDataset

from . import Query, StepTable
from ._query_loader import QueryLoader
from ._table_loader import TableLoader
from ._tensors import Tensors

__all__ = ["StepLoader"]


class StepLoader(IterableDataset[Tensors]):
    """A loader that serves a table's rows in batches, as dicts of tensors, one epoch per iteration.

    The loader is fastest without a ``DataLoader``: a thread prepares the batches ahead, and the tensors share their
    memory. ``len(loader)`` is the number of batches of an epoch on this rank.

    ``board`` is int64 with the bits of the uint64 board, because PyTorch supports little arithmetic on uint64. Before
    SQL or NumPy code uses boards, restore them: ``batch["board"].numpy().view("uint64")``.

    A ``DataLoader`` can use it as a dataset of whole batches: ``DataLoader(loader, batch_size=None)``. Each of n
    workers makes every n-th batch, so the ``DataLoader`` serves the same batches in the same order as without workers.
    Epochs advance and ``set_epoch`` works with workers too, even persistent ones. Workers that are not persistent
    recognize an iteration by PyTorch's seed, so call ``set_epoch`` in each epoch if you reset this seed. Workers share
    the table's memory, but each batch is copied between processes.

    Distributed training needs no sampler: all ranks get the same number of batches, and each row goes to one rank. If
    ``torch.distributed`` is initialised when the loader is created, it provides the rank and the world size. The last
    batch of an epoch may be shorter. It is empty on some ranks if fewer rows than ranks are left. To weight all rows
    equally, divide the sum of the losses by ``batch_size`` instead of taking the mean.

    Epochs advance as in ``a2store.Loader``.

    A pickled loader holds the table's handle, the options and the position. So a copy begins with the loader's next
    iteration.

    For more rows than one machine holds, give a query. In each epoch, every rank materializes another share of the
    query's rows, as ``Query.materialize`` does with ``shard``, and serves it in random order. Meanwhile a
    thread materializes the next share. All ranks get the same number of batches; a rank that has one row fewer may get
    an empty last batch. All ranks must read the same version of the archive. The query may only filter and select rows
    of ``steps``. Workers of a ``DataLoader`` need a table.

    - ``table``: the rows, a table or a view; several tables with their shares, as in ``a2store.mix``; or a query.
    - ``batch_size``, ``shuffle``, ``seed``, ``epoch``, ``drop_last``, ``symmetries``, ``columns``, ``prefetch``,
      ``replacement``, ``weights``, ``strata``, ``quotas``, ``num_samples``, ``window``: as in ``StepTable.loader``,
      with the same defaults.
    - ``rank``, ``world_size``: ``None`` = the rank and size of the default group of ``torch.distributed`` if it is
      initialised, else 0 and 1. Give both or none. To serve all rows on every rank, give 0 and 1.
    - ``tokens``: the type of ``tokens``, ``"int64"`` by default, which ``torch.nn.Embedding`` takes everywhere.
    - ``pin_memory``: ``True`` = copy each batch into page-locked memory, if CUDA is available.
    - ``device``: the device of the tensors; ``None`` = the CPU. Batches for a CUDA device are copied by way of
      page-locked memory, on a separate stream and one batch ahead. So the copy of a batch overlaps with the use of the
      previous batch.
    - ``transform``: a function of a batch, a dict of tensors on the CPU, that returns the dict to use instead. It is
      called in the loop's thread or in the worker, before tensors are copied to a device.
    - ``shard``: for a query: the rank and the world size; ``None`` = those of ``torch.distributed``, as above.
    - ``materialize``: for a query: options of ``Query.materialize``, such as ``{"extra": ["max_score"]}``.
    - ``prefetch_share``: for a query: ``False`` = the next share is materialized when its epoch begins, so that only
      one share is in memory.

    Raises ``ValueError`` for ``rank`` without ``world_size``, for options of ``StepTable.loader`` that ``a2store.mix``
    or a query lacks, and as ``StepTable.loader`` does. A loader of a query raises as ``Query.materialize`` does.

    >>> from a2store.torch import StepLoader
    >>> loader = StepLoader(table, batch_size=4096, symmetries=True)
    >>> for epoch in range(2):
    ...     for batch in loader:
    ...         tokens, move = batch["tokens"], batch["move"]
    >>> tokens.dtype, move.dtype, len(loader)
    (torch.int64, torch.uint8, 8)
    >>> loader = StepLoader(query, batch_size=1000, shard=(0, 2))
    >>> len(loader), sum(len(batch["move"]) for batch in loader)
    (15, 14660)
    """

    def __init__(
        self,
        table: StepTable | Query | Mapping[StepTable, float] | Iterable[tuple[StepTable, float]],
        batch_size: int = 4096,
        *,
        shuffle: bool = True,
        seed: int = 0,
        epoch: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        tokens: Literal["uint8", "int32", "int64"] = "int64",
        symmetries: bool = False,
        columns: Sequence[str] | None = None,
        prefetch: int = 2,
        replacement: bool = False,
        weights: str | None = None,
        strata: str | None = None,
        quotas: dict[Any, float] | None = None,
        num_samples: int | None = None,
        window: int | None = None,
        pin_memory: bool = False,
        device: torch.device | str | None = None,
        transform: Callable[[Tensors], Tensors] | None = None,
        shard: tuple[int, int] | None = None,
        materialize: Mapping[str, Any] | None = None,
        prefetch_share: bool = True,
    ) -> None:
        if isinstance(columns, str):
            columns = [columns]
        common: dict[str, Any] = {
            "shuffle": shuffle,
            "seed": seed,
            "epoch": epoch,
            "drop_last": drop_last,
            "tokens": tokens,
            "symmetries": symmetries,
            "columns": columns,
            "prefetch": prefetch,
            "window": window,
            "pin_memory": pin_memory,
            "device": device,
            "transform": transform,
        }
        if transform is not None and not callable(transform):
            raise TypeError(f"transform: expected a function of a batch, found {type(transform).__name__}")
        self._loader: TableLoader | QueryLoader
        if isinstance(table, Query):
            if rank is not None or world_size is not None:
                raise ValueError("rank and world_size: expected none for a query; use shard")
            for name, is_default in (
                ("replacement", replacement is False),
                ("weights", weights is None),
                ("strata", strata is None),
                ("quotas", quotas is None),
                ("num_samples", num_samples is None),
            ):
                if not is_default:
                    raise ValueError(f"{name}: expected the default for a query")
            self._loader = QueryLoader(
                table, batch_size, shard=shard, materialize=materialize, prefetch_share=prefetch_share, **common
            )
            return
        for name, is_default in (
            ("shard", shard is None),
            ("materialize", materialize is None),
            ("prefetch_share", prefetch_share is True),
        ):
            if not is_default:
                raise ValueError(f"{name}: expected none, because the rows are a table and not a query")
        self._loader = TableLoader(
            table,
            batch_size,
            rank=rank,
            world_size=world_size,
            replacement=replacement,
            weights=weights,
            strata=strata,
            quotas=quotas,
            num_samples=num_samples,
            **common,
        )

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration serves."""
        return self._loader.epoch

    @property
    def batch_size(self) -> int:
        """The number of rows per batch and rank."""
        return self._loader.batch_size

    def __repr__(self) -> str:
        """Return the rows, the options that determine the batches, and the epoch."""
        return repr(self._loader)

    def __copy__(self) -> StepLoader:
        """Return a loader of the same rows with its own position."""
        copied = type(self).__new__(type(self))
        copied.__dict__.update({**self.__dict__, "_loader": copy(self._loader)})
        return copied

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch on this rank, over all its workers."""
        return len(self._loader)

    def __iter__(self) -> Iterator[Tensors]:
        """Return an iterator over the epoch, from its beginning or from the position of a loaded state.

        In a worker of a ``DataLoader``, it serves only the worker's batches.

        Raises ``ValueError`` in a worker if the loader has ``pin_memory`` or a CUDA device.
        """
        return iter(self._loader)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the order, as ``Loader.set_epoch`` does.

        - ``epoch``: the number of the epoch, in ``0..2**63``.

        Raises ``ValueError`` for a number out of range.

        >>> from a2store.torch import StepLoader
        >>> loader = StepLoader(table)
        >>> loader.set_epoch(1)
        >>> loader.epoch
        1
        """
        self._loader.set_epoch(epoch)

    def skip_batches(self, n: int) -> None:
        """Skip batches of the epoch: the next iteration begins after them, as ``Loader.skip_batches`` describes.

        - ``n``: the number of batches of this loader's size, at least 0.

        Raises ``ValueError`` for a number out of range.

        >>> from a2store.torch import StepLoader
        >>> loader = StepLoader(table, batch_size=1000)
        >>> loader.skip_batches(20)
        >>> sum(len(batch["move"]) for batch in loader)
        9320
        """
        self._loader.skip_batches(n)

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position after the batches returned so far; batches made or copied ahead do not count.

        The state has the format of ``Loader.state_dict``, and each loader accepts the other's. A ``DataLoader`` with
        workers does not advance the loader that it was given. ``StatefulDataLoader`` of ``torchdata`` saves and
        restores the state of each worker's copy.

        >>> from a2store.torch import StepLoader
        >>> loader = StepLoader(table, batch_size=100)
        >>> batches = iter(loader)
        >>> batch = next(batches)
        >>> loader.state_dict()["position"]
        100
        """
        return self._loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration begin at the epoch and the position of a state.

        - ``state``: the dict that ``state_dict`` of this class or of ``Loader`` returned.

        Batch size, rank, world size, tokens, columns, device and workers may differ from those of the loader that made
        the state. The state of a ``StatefulDataLoader`` requires the same batch size, world size and number of workers.
        With a ``StatefulDataLoader``, call ``set_epoch`` before each epoch. Without workers, the ``StatefulDataLoader``
        loads this state only when its next iteration begins, after ``set_epoch``. So a state after an epoch's last
        batch, saved before the loop has ended, leads to the next epoch. With workers, it leads to an iteration without
        batches. To get the same epochs in both cases, save the state after the loop has ended.

        Raises ``StateMismatchError`` and ``ValueError`` as ``Loader.load_state_dict`` does.

        >>> from a2store.torch import StepLoader
        >>> loader = StepLoader(table, batch_size=100)
        >>> batch = next(iter(loader))
        >>> state = loader.state_dict()
        >>> loader = StepLoader(table, batch_size=200)
        >>> loader.load_state_dict(state)
        >>> sum(len(batch["move"]) for batch in loader) == len(table) - 100
        True
        """
        self._loader.load_state_dict(state)
