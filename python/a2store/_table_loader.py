"""The loader of tables, for `StepLoader`: an epoch serves the rows of a table, or of several."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing.context import get_spawning_popen
from typing import Any, Literal
from weakref import ref

import torch
from torch.utils.data import get_worker_info

from . import Batch, Loader, StepTable, mix
from ._a2store import _Position
from ._integers import integer
from ._tensors import Tensors, distributed_rank, placed, tensors_of, transformed

# The options of `StepTable.loader` that `mix` lacks, and their defaults.
_OTHERS_OF_A_TABLE: dict[str, Any] = {
    "shuffle": True,
    "replacement": False,
    "weights": None,
    "strata": None,
    "quotas": None,
    "window": None,
}

# The loaders of this process. Unlike a WeakSet, a set can be copied while another thread adds a loader.
_LOADERS: set[ref[TableLoader]] = set()


class TableLoader:
    """The batches of tables."""

    def __init__(
        self,
        table: StepTable | Mapping[StepTable, float] | Iterable[tuple[StepTable, float]],
        batch_size: int,
        *,
        shuffle: bool,
        seed: int,
        epoch: int,
        drop_last: bool,
        rank: int | None,
        world_size: int | None,
        tokens: Literal["uint8", "int32", "int64"],
        symmetries: bool,
        columns: Sequence[str] | None,
        prefetch: int,
        window: int | None,
        pin_memory: bool,
        device: torch.device | str | None,
        transform: Callable[[Tensors], Tensors] | None,
        replacement: bool = False,
        weights: str | None = None,
        strata: str | None = None,
        quotas: dict[Any, float] | None = None,
        num_samples: int | None = None,
    ) -> None:
        if (rank is None) != (world_size is None):
            raise ValueError("rank and world_size: expected both or none")
        if rank is None or world_size is None:
            rank, world_size = distributed_rank()
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
        # set, the number of times that it has set one, the number of iterations that workers have begun since then, and
        # the position at which the epoch begins.
        self._announced: torch.Tensor
        self._heard = 0
        # The process whose workers share this memory. A copy in another process gets its own memory, unless it is in a
        # worker.
        self._owner: int | None = None
        # In a worker: the number of its iterations, whether a state was loaded for the next one, and the values that
        # `_note_in_worker` writes.
        self._rounds = 0
        self._is_loaded = False
        self._note: list[int] | None = None
        _LOADERS.add(ref(self, _LOADERS.discard))
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

    def __iter__(self) -> Iterator[Tensors]:
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

        def serve() -> Iterator[Tensors]:
            row = start
            made: Iterable[Tensors] = map(tensors_of, batches)
            made = made if self._transform is None else transformed(made, self._transform)
            for tensors in placed(made, self._device, self._pin_memory, self._tokens):
                self._note_in_worker()
                row = position.row_after(row, stride)
                position.serve(iteration, row)
                yield tensors
            self._note_in_worker()
            position.serve(iteration, row)

        return serve()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch. If a state of this epoch was just loaded, the epoch begins at the state's position."""
        epoch = integer("epoch", epoch, 0, 2**63 - 1)
        self._own()
        if self._announced[2]:
            # Workers have begun at the position of a loaded state, so ignore the position.
            self._position.load(epoch, 0)
        self._position.set_epoch(epoch)
        self._announce()

    def skip_batches(self, n: int) -> None:
        """Let the next iteration begin after this number of batches."""
        self._position.skip(integer("n", n, 0, 2**64 - 1))
        self._announce()

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the batches returned so far; batches made or copied ahead do not count."""
        epoch, position = self._position.newest
        return {**self._engine().state_dict(), "epoch": epoch, "position": position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration begin at the position of a state."""
        self._engine().load_state_dict(state)
        epoch = integer("epoch", state["epoch"], 0, 2**63 - 1)
        self._position.load(epoch, state["position"])
        if get_worker_info() is not None:
            # A worker ends an epoch with the others, even if it has no more batches of it.
            self._position.set_epoch(epoch)
            self._is_loaded = True
        self._announce()

    def __getstate__(self) -> dict[str, Any]:
        self._own()
        state = {**self.__dict__, "_loader": None, "_position": (self._position.epoch, self._position.start)}
        # Share the memory only with a process that is being started, because it may be a worker.
        return state if get_spawning_popen() else {**state, "_announced": None, "_owner": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the pickled state."""
        self.__dict__.update(state)
        self._position = self._position_at(*state["_position"])
        if self._owner is None:
            self._announce()
        _LOADERS.add(ref(self, _LOADERS.discard))

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
        begin_at(position, epoch, row)
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
        process = os.getpid()
        if self._owner is None or (self._owner != process and get_worker_info() is None):
            self._announced = torch.zeros(4, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
            self._owner = process
        if self._owner == process:
            self._heard += 1
            self._announced.copy_(torch.tensor([self._position.epoch, self._heard, 0, self._position.start]))

    def _own(self) -> None:
        """Give a copy in another process its own shared memory, unless the process is a worker of a ``DataLoader``."""
        if self._owner != os.getpid():
            self._announce()

    def _turn_in_worker(self, iteration: int) -> None:
        """Turn to the epoch of a worker's iteration. All workers of an iteration share the number ``iteration``.

        A worker may be a new copy of the same loader in each iteration. So the workers write to shared memory how many
        iterations have returned batches or ended, and the number of the newest one. A persistent worker has one number
        for all iterations, so it counts them itself. All workers of an iteration write the same values, in any order.
        """
        epoch, heard, noted, start = self._announced.tolist()
        if heard != self._heard:
            self._heard, self._is_loaded = heard, False
            begin_at(self._position, epoch, start)
        self._rounds += 1
        name = 1 + (iteration + self._rounds) % (2**31 - 1)
        count, newest = divmod(noted, 2**31)
        count += newest not in (0, name)
        if count and not self._is_loaded:
            begin_at(self._position, epoch + count, 0)
        self._is_loaded = False
        # Store the first epoch of the count. A loaded state, or an iteration in the parent, may have changed it.
        self._note = [self._position.epoch - count, heard, count * 2**31 + name]

    def _note_in_worker(self) -> None:
        """Note that the iteration has returned a batch or ended, unless a newer iteration has."""
        if self._note is not None and self._announced[1:3].tolist() <= self._note[1:]:
            self._announced[:3] = torch.tensor(self._note)
        self._note = None


def begin_at(position: _Position, epoch: int, row: int) -> None:
    """Move to a row. At the end of an epoch, the next iteration has no batches."""
    position.load(epoch, row)
    position.set_epoch(epoch)


def _own_loaders() -> None:
    for reference in list(_LOADERS):
        if loader := reference():
            loader._own()


# The new process may be a worker, which shares the memory of this process.
os.register_at_fork(before=_own_loaders)
