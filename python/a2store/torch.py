"""A table's rows as PyTorch tensors.

``StepLoader`` serves shuffled batches for training loops. A table itself is a map-style dataset, ``DataLoader(table)``,
for custom samplers. Both give dicts of tensors, with the columns of a ``Batch`` in the same order:

- ``tokens``: (B, 16), int64 or the requested type.
- ``move``: (B,), uint8.
- ``ev_values``: (B, 4), float32.
- ``ev_legal``: (B, 4), bool.
- ``run_id``: (B,), int64.
- ``step_index``: (B,), int32; int64 if the table has an index above 65,535.
- ``board``: (B,), int64, the bits of the uint64.

Extra columns keep their types, except that uint16 becomes int32, uint32 becomes int64, and uint64 becomes int64 with
the same bits. A column of strings has int16 codes. Attached columns are (B, D). A bfloat16 column, which NumPy lacks,
is ``torch.bfloat16``.

>>> from a2store.torch import StepLoader
>>> next(iter(StepLoader(table, batch_size=256)))["tokens"].shape
torch.Size([256, 16])
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import IterableDataset, get_worker_info

from . import Batch, Loader, Query, StepTable, mix
from ._a2store import _Position
from ._integers import integer

__all__ = ["StepLoader"]

_Tensors: TypeAlias = dict[str, torch.Tensor]

# PyTorch supports little arithmetic on unsigned types, so these columns are widened to the next signed type.
_WIDENED: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype("uint16"): np.dtype("int32"),
    np.dtype("uint32"): np.dtype("int64"),
}
_UINT64, _INT64, _INT16 = np.dtype("uint64"), np.dtype("int64"), np.dtype("int16")


# The options of `StepTable.loader` that `mix` lacks, and their defaults.
_OTHERS_OF_A_TABLE: dict[str, Any] = {
    "shuffle": True,
    "replacement": False,
    "weights": None,
    "strata": None,
    "quotas": None,
    "window": None,
}


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


def _tensors(batch: Batch) -> _Tensors:
    bfloat16 = batch.bfloat16_columns
    return {name: _tensor(array, name in bfloat16) for name, array in batch.to_dict().items()}


def _to_device(batch: Batch, device: torch.device | str | None) -> _Tensors:
    """Return the tensors of a batch, for ``Batch.to_torch``."""
    tensors = _tensors(batch)
    return tensors if device is None else {name: tensor.to(device) for name, tensor in tensors.items()}


def _rows(table: StepTable, rows: Sequence[int]) -> list[_Tensors]:
    """Return rows as dicts of tensors, for ``StepTable.__getitems__``."""
    columns = _tensors(table.take(rows))
    columns["tokens"] = columns["tokens"].long()
    by_row = zip(*(column.unbind() for column in columns.values()), strict=True)
    return [dict(zip(columns, values, strict=True)) for values in by_row]


class StepLoader(IterableDataset[_Tensors]):
    """A loader that serves a table's rows in batches, as dicts of tensors, one epoch per iteration.

    Used directly it is fastest: a thread prepares the batches ahead, and the tensors share their memory.
    ``len(loader)`` is the number of batches of an epoch on this rank.

    A ``DataLoader`` can use it as a dataset of whole batches: ``DataLoader(loader, batch_size=None)``. Each of n
    workers makes every n-th batch, so the ``DataLoader`` serves the same batches in the same order as without workers.
    Epochs advance and ``set_epoch`` works there too, even with persistent workers. Other workers recognize an iteration
    by PyTorch's seed, so call ``set_epoch`` in each epoch if you reset that seed. Workers share the table's memory, but
    each batch is copied between processes.

    Distributed training needs no sampler: all ranks get the same number of batches, and each row goes to one rank. If
    ``torch.distributed`` is initialised when the loader is created, it provides the rank and the world size. The last
    batch of an epoch may be shorter. It is empty on some ranks if fewer rows than ranks are left. To weight all rows
    equally, divide the sum of the losses by ``batch_size`` instead of taking the mean.

    Each iteration serves the next epoch, in another order: the first one serves the option ``epoch``. An iteration
    counts once it has returned a batch, even if the loop is left early. ``set_epoch`` chooses an epoch.

    Loaders can be pickled, with the table's handle, the options and the position. The next iteration of a copy is the
    loader's next iteration.

    For more rows than one machine holds, give a query. Each epoch is then a round: every rank materializes another
    share of the query's rows, as ``Query.materialize`` does with ``shard``, and serves it in random order. Meanwhile a
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
      previous one.
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

    __signature__: ClassVar[inspect.Signature]

    def __new__(cls, table: object = None, *_: object, **__: object) -> Self:
        """Return a loader for the kind of rows. Unpickling has no arguments."""
        if cls is StepLoader and isinstance(table, Query):
            from ._query_loader import QueryLoader

            return super().__new__(QueryLoader)  # type: ignore[return-value]
        return super().__new__(cls)

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
        transform: Callable[[_Tensors], _Tensors] | None = None,
        shard: tuple[int, int] | None = None,
        materialize: Mapping[str, Any] | None = None,
        prefetch_share: bool = True,
    ) -> None:
        if isinstance(table, Query):
            name = type(self).__name__
            raise TypeError(f"table: expected a table for {name}, a subclass of StepLoader, found a query")
        for name, is_default in (
            ("shard", shard is None),
            ("materialize", materialize is None),
            ("prefetch_share", prefetch_share is True),
        ):
            if not is_default:
                raise ValueError(f"{name}: expected none, because the rows are a table and not a query")
        if transform is not None and not callable(transform):
            raise TypeError(f"transform: expected a function of a batch, found {type(transform).__name__}")
        if (rank is None) != (world_size is None):
            raise ValueError("rank and world_size: expected both or none")
        if rank is None or world_size is None:
            rank, world_size = _distributed_rank()
        # Converts NumPy integers, because multiplying them keeps their type and can overflow.
        batch_size = integer("batch_size", batch_size, 1, 1 << 28)
        world_size = integer("world_size", world_size, 1, 1 << 24)
        self._rows: Any = table
        if isinstance(table, Mapping):
            self._rows = list(table.items())
        elif not hasattr(table, "loader"):
            if not isinstance(table, Iterable):
                expected = "a StepTable, a Query such as archive.sql(…), or pairs of a StepTable and its share"
                raise TypeError(f"table: expected {expected}, found {type(table).__name__}")
            self._rows = list(table)
        self._transform = transform
        self._device = None if device is None else torch.device(device)
        self._pin_memory = pin_memory
        self._tokens = tokens
        self._prefetch = prefetch
        self._world_size = world_size
        self._options: dict[str, Any] = {
            "batch_size": batch_size,
            "shuffle": shuffle,
            "seed": seed,
            "drop_last": drop_last,
            "rank": rank,
            "world_size": world_size,
            "symmetries": symmetries,
            "columns": None if columns is None else list(columns),
            "replacement": replacement,
            "weights": weights,
            "strata": strata,
            "quotas": quotas,
            "num_samples": num_samples,
            "window": window,
        }
        if isinstance(self._rows, list):
            others = _OTHERS_OF_A_TABLE.items()
            wrong = [name for name, default in others if self._options.pop(name) != default]
            if wrong:
                raise ValueError(f"{wrong[0]}: expected the default for several tables")
        self._loader: Loader | None = None
        self._loader_in_worker = False
        # The epoch reaches the workers as a signed integer.
        epoch = integer("epoch", epoch, 0, 2**63 - 1)
        # The inner loader's own position differs, because it prefetches batches and skips batches of other workers.
        self._position = self._position_at(epoch, 0)
        # Each worker of a DataLoader has a copy of this object. Shared memory has the epoch that the parent process has
        # set, the number of times that it has set one, the number of iterations that have returned batches, and the
        # position at which the epoch begins.
        self._announced: torch.Tensor = torch.zeros(4, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        self._heard = 0
        # In a worker: the number of its iterations, whether a state was loaded for the next one, and the values that
        # `_note_in_worker` writes.
        self._rounds = 0
        self._is_loaded = False
        # The number of epochs that the loader had advanced without an announcement when it was copied.
        self._ahead = 0
        self._note: list[int] | None = None
        self._announce()

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration serves."""
        return self._position.epoch

    @property
    def batch_size(self) -> int:
        """The number of rows per batch and rank."""
        batch_size: int = self._options["batch_size"]
        return batch_size

    def __repr__(self) -> str:
        """Return the rows, the options that determine the batches, and the epoch."""
        state = self._engine().state_dict()
        options = ", ".join(f"{name}={self._options[name]}" for name in ("batch_size", "seed", "rank", "world_size"))
        return f"StepLoader({state['num_rows']} rows, {state['order']}, {options}, epoch={self.epoch})"

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch on this rank, over all its workers."""
        return len(self._engine())

    def __iter__(self) -> Iterator[_Tensors]:
        """Return an iterator over the epoch, from its beginning or from the position of a loaded state.

        In a worker of a ``DataLoader``, it serves only the worker's batches.

        Raises ``ValueError`` in a worker if the loader has ``pin_memory`` or a CUDA device.
        """
        # This is not a generator, because a generator would start only with the first batch. Until then the loaded
        # state would stay in effect, and another iteration would begin there too.
        worker = get_worker_info()
        if worker is not None:
            if self._pin_memory or self._on_cuda:
                raise ValueError(
                    "pin_memory and device: expected none in a worker; use the pin_memory of its DataLoader"
                )
            self._turn_in_worker(worker.seed - worker.id)
        loader, position = self._engine(), self._position
        epoch, start, iteration = position.begin()
        batches: Iterable[Batch]
        if worker is None:
            loader.load_state_dict(self.state_dict())
            # Without this call, a loader at the end of an epoch would serve the next epoch.
            loader.set_epoch(epoch)
            stride, batches = 1, iter(loader)
        else:
            # A worker's position assumes that every worker has made the same number of batches. So a worker's own state
            # leads to its next batch, and a state from outside the workers leads each worker to its first batch.
            stride = worker.num_workers
            batches = self._every(stride, position.row_after(start, worker.id))

        def serve() -> Iterator[_Tensors]:
            row = start
            made: Iterable[_Tensors] = map(_tensors, batches)
            made = made if self._transform is None else _transformed(made, self._transform)
            for tensors in self._placed(made):
                self._note_in_worker()
                row = position.row_after(row, stride)
                position.serve(iteration, row)
                yield tensors
            position.serve(iteration, row)

        return serve()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the order.

        The next iteration serves this epoch. If a state of this epoch was just loaded, it begins at the state's
        position. So a loop over epochs continues there.

        - ``epoch``: the number of the epoch, in ``0..2**63``.

        Raises ``ValueError`` for a number out of range.

        >>> from a2store.torch import StepLoader
        >>> loader = StepLoader(table)
        >>> loader.set_epoch(1)
        >>> loader.epoch
        1
        """
        self._position.set_epoch(integer("epoch", epoch, 0, 2**63 - 1))
        self._announce()

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
        self._position.skip(integer("n", n, 0, 2**64 - 1))
        self._announce()

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
        epoch, position = self._position.newest
        return {**self._engine().state_dict(), "epoch": epoch, "position": position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a position: the next iteration begins there, in the state's epoch.

        - ``state``: the dict that ``state_dict`` of this class or of ``Loader`` returned.

        Batch size, rank, world size, tokens, columns, device and workers may differ from those of the loader that made
        the state. The state of a ``StatefulDataLoader`` requires the same batch size, world size and number of workers.
        Without workers, a ``StatefulDataLoader`` loads this state only when its next iteration begins, after
        ``set_epoch``. With a
        ``StatefulDataLoader``, call ``set_epoch`` before each epoch.

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
        self._engine().load_state_dict(state)
        self._position.load(state["epoch"], state["position"])
        if get_worker_info() is not None:
            # A worker ends an epoch with the others, even if it has no more batches of it.
            self._position.set_epoch(state["epoch"])
            self._is_loaded = True
        self._announce()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loader": None, "_position": (self._position.epoch, self._position.start)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the pickled state."""
        self.__dict__.update(state)
        self._position = self._position_at(*state["_position"])
        # The tensor is still shared if multiprocessing passed it on, but not if it was pickled to bytes.
        self._announced.share_memory_()  # type: ignore[no-untyped-call]

    @property
    def _on_cuda(self) -> bool:
        return self._device is not None and self._device.type == "cuda"

    def _engine(self) -> Loader:
        """Return the loader that makes the batches. A worker does not prefetch, because it jumps between batches."""
        in_worker = get_worker_info() is not None
        if self._loader is None or self._loader_in_worker != in_worker:
            # A CUDA device widens tokens faster, and the copy is an eighth of the size.
            tokens: Literal["uint8", "int32", "int64"] = "uint8" if self._on_cuda else self._tokens
            prefetch = 0 if in_worker else self._prefetch
            make = partial(mix, self._rows) if isinstance(self._rows, list) else self._rows.loader
            self._loader = make(tokens=tokens, prefetch=prefetch, **self._options)
            self._loader_in_worker = in_worker
        return self._loader

    def _position_at(self, epoch: int, row: int) -> _Position:
        num_rows = self._engine().state_dict()["num_samples"]
        position = _Position(num_rows, self.batch_size, self._world_size, self._options["drop_last"], epoch)
        _begin_at(position, epoch, row)
        return position

    def _every(self, stride: int, row: int) -> Iterator[Batch]:
        """Return every ``stride``-th batch of the epoch, beginning with the batch at ``row``."""
        loader, state = self._engine(), self.state_dict()
        while True:
            loader.load_state_dict({**state, "position": row})
            loader.set_epoch(state["epoch"])
            batch = next(iter(loader), None)
            if batch is None:
                return
            yield batch
            row = self._position.row_after(row, stride)

    def _announce(self) -> None:
        """Publish the epoch and the position to the workers of a ``DataLoader``."""
        if get_worker_info() is None:
            self._heard += 1
            self._announced.copy_(torch.tensor([self._position.epoch, self._heard, 0, self._position.start]))

    def _turn_in_worker(self, iteration: int) -> None:
        """Turn to the epoch of a worker's iteration. All workers of an iteration share the number ``iteration``.

        A worker may be a new copy of the same loader in each iteration. So the workers write to shared memory how many
        iterations have returned batches, and the number of the newest one. A persistent worker has one number for all
        iterations, so it counts them itself. All workers of an iteration write the same values, in any order.
        """
        epoch, heard, noted, start = self._announced.tolist()
        if heard != self._heard:
            self._heard, self._is_loaded, self._rounds, self._ahead = heard, False, 0, 0
            _begin_at(self._position, epoch, start)
        elif not self._rounds and not self._is_loaded:
            self._ahead = self._position.epoch - epoch
        self._rounds += 1
        name = 1 + (iteration + self._rounds) % (2**31 - 1)
        count, newest = divmod(noted, 2**31)
        count += newest not in (0, name)
        if self._is_loaded:
            epoch = self._position.epoch - count
        elif count or self._rounds > 1:
            _begin_at(self._position, epoch + count + self._ahead, 0)
        self._is_loaded = False
        self._note = [epoch, heard, count * 2**31 + name]

    def _note_in_worker(self) -> None:
        """Note that the iteration has returned a batch, unless a newer one has."""
        if self._note is not None and self._announced[1:3].tolist() <= self._note[1:]:
            self._announced[:3] = torch.tensor(self._note)
        self._note = None

    def _placed(self, batches: Iterable[_Tensors]) -> Iterable[_Tensors]:
        """Return the batches in the requested memory or on the requested device."""
        if self._device is not None and self._on_cuda:
            widened = {"tokens": getattr(torch, self._tokens)}
            return _copied_ahead(batches, self._device, widened)
        if self._device is not None and self._device.type != "cpu":
            return _each(batches, lambda tensor: tensor.to(self._device))
        if self._pin_memory and torch.cuda.is_available():
            return _each(batches, torch.Tensor.pin_memory)
        return batches


# `inspect` would show the signature of `__new__`.
_signature = inspect.signature(StepLoader.__init__)
StepLoader.__signature__ = _signature.replace(
    parameters=list(_signature.parameters.values())[1:], return_annotation=inspect.Signature.empty
)


def _distributed_rank() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def _begin_at(position: _Position, epoch: int, row: int) -> None:
    """Move to a row. At the end of an epoch, the next iteration has no batches."""
    position.load(epoch, row)
    position.set_epoch(epoch)


def _transformed(batches: Iterable[_Tensors], transform: Callable[[_Tensors], _Tensors]) -> Iterator[_Tensors]:
    # In a generator, a StopIteration of the function becomes an error. In `map` it would end the epoch.
    for batch in batches:
        yield transform(batch)


def _each(batches: Iterable[_Tensors], change: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[_Tensors]:
    for batch in batches:
        yield {name: change(tensor) for name, tensor in batch.items()}


def _copied_ahead(
    batches: Iterable[_Tensors], device: torch.device, widened: dict[str, torch.dtype]
) -> Iterator[_Tensors]:
    """Copy batches to a CUDA device on a separate stream; each copy overlaps with the use of the previous batch."""
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def copy(batch: _Tensors) -> _Tensors:
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
