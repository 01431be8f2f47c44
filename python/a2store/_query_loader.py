"""The loader of a query, for `StepLoader`: in each epoch, every rank materializes another share of the rows."""

from __future__ import annotations

import os
import struct
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from typing import Any, Literal

import torch
from torch.utils.data import get_worker_info

from . import Query, StateMismatchError, StepTable
from ._a2store import _Position
from ._integers import integer
from ._table_loader import TableLoader
from ._tensors import Tensors, distributed_rank, tensors_of

_VERSION = 1
_FIXED = ("version", "archive", "archive_version", "query", "total_rows", "seed", "shuffle", "symmetries")
"""The fields of a state that any loader of the same rows must have."""
_NUMBERS = {"epoch": (0, 2**63 - 1), "position": (0, 2**64 - 1), "batch_size": (1, 1 << 28), "world_size": (1, 1 << 24)}
"""The fields of a state that are numbers, and their ranges."""
_TOPOLOGY = ("world_size", "batch_size", "drop_last", "window")
"""The fields of a state that a loader must have to continue in the middle of an epoch."""


class QueryLoader:
    """The batches of a query."""

    def __init__(
        self,
        query: Query,
        batch_size: int,
        *,
        shuffle: bool,
        seed: int,
        epoch: int,
        drop_last: bool,
        tokens: Literal["uint8", "int32", "int64"],
        symmetries: bool,
        columns: Sequence[str] | None,
        prefetch: int,
        window: int | None,
        pin_memory: bool,
        device: torch.device | str | None,
        transform: Callable[[Tensors], Tensors] | None,
        shard: tuple[int, int] | None,
        materialize: Mapping[str, Any] | None,
        prefetch_share: bool,
    ) -> None:
        self._query = query
        if shard is None:
            shard = distributed_rank()
        elif not isinstance(shard, Sequence) or len(shard) != 2:
            raise TypeError(f"shard: expected a rank and a world size, found {shard!r}")
        rank, world_size = shard
        world_size = integer("shard: world_size", world_size, 1, 1 << 24)
        self._shard = integer("shard: rank", rank, 0, world_size - 1), world_size
        self._seed = integer("seed", seed, 0, 2**64 - 1)
        self._materialize = dict(materialize or {})
        for name in ("shard", "seed", "round", "path", "progress"):
            if name in self._materialize:
                raise ValueError(f"materialize: expected no {name}, because the loader sets it")
        self._prefetches = prefetch_share
        self._made_options: dict[str, Any] = {
            "batch_size": integer("batch_size", batch_size, 1, 1 << 28),
            "shuffle": shuffle,
            "seed": self._seed,
            "tokens": tokens,
            "symmetries": symmetries,
            "columns": None if columns is None else list(columns),
            "prefetch": prefetch,
            "window": window,
            "pin_memory": pin_memory,
            "device": device,
            "transform": transform,
        }
        # A table without rows checks the options, and knows the archive.
        probe = query.limit(0).materialize(**self._materialize, shard=(0, 1), progress=False)
        options = {**self._made_options, "drop_last": drop_last}
        state = TableLoader(probe, epoch=0, rank=0, world_size=1, **options).state_dict()
        # States have no NumPy types.
        self._drops_last = bool(drop_last)
        window = None if window is None else int(window)
        self._made_options |= {"shuffle": bool(shuffle), "symmetries": bool(symmetries), "window": window}
        self._identity = {
            "archive": state["archive"],
            "archive_version": state["archive_version"],
            "query": query._hash,
        }
        self._total_rows: int | None = None
        self._position = self._position_at(integer("epoch", epoch, 0, 2**63 - 1), 0)
        self._share: StepTable | None = None
        self._next: _Prefetched | None = None

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration serves."""
        return self._position.epoch

    @property
    def batch_size(self) -> int:
        """The number of rows per batch and rank."""
        batch_size: int = self._made_options["batch_size"]
        return batch_size

    def __repr__(self) -> str:
        """Return the share, the options that determine the batches, and the epoch."""
        return (
            f"StepLoader({self._query!r}, shard={self._shard}, batch_size={self.batch_size}, "
            f"seed={self._seed}, epoch={self.epoch})"
        )

    def __len__(self) -> int:
        """Return the number of batches of an epoch, which is the same on all ranks."""
        self._num_rows()
        return self._position.num_batches

    def __iter__(self) -> Iterator[Tensors]:
        """Return an iterator over the epoch, from its beginning or from the position of a loaded state."""
        if get_worker_info() is not None:
            raise ValueError("StepLoader: expected a table in a worker of a DataLoader, found a query")
        share = self._share_of(self.epoch)
        position = self._position
        epoch, start, iteration = position.begin()

        def serve() -> Iterator[Tensors]:
            row = start
            for batch in self._batches(share, epoch, start):
                if self._prefetches and position.newest[0] == epoch:
                    self._make_ahead(epoch + 1)
                row = position.row_after(row, 1)
                position.serve(iteration, row)
                yield batch
            position.serve(iteration, row)

        return serve()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which has the same number as the round.

        If a state of this epoch was just loaded, the next iteration begins at the state's position.
        """
        self._position.set_epoch(integer("epoch", epoch, 0, 2**63 - 1))

    def skip_batches(self, n: int) -> None:
        """Skip batches of the epoch: the next iteration begins after them."""
        self._num_rows()
        self._position.skip(integer("n", n, 0, 2**64 - 1))

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the batches returned so far. It is the same on all ranks."""
        return {**self._state(), "total_rows": self._num_rows()}

    def _state(self) -> dict[str, Any]:
        epoch, position = self._position.newest
        return {
            "version": _VERSION,
            **self._identity,
            "total_rows": None,
            "seed": self._seed,
            "shuffle": self._made_options["shuffle"],
            "symmetries": self._made_options["symmetries"],
            "world_size": self._shard[1],
            "batch_size": self.batch_size,
            "drop_last": self._drops_last,
            "window": self._made_options["window"],
            "epoch": epoch,
            "position": position,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a position. The state of an ended epoch fits any number of ranks and any batch size."""
        expected = self._state()
        if set(state) != set(expected):
            raise ValueError(f"state: expected the state of a loader of a query, found the keys {sorted(state)}")
        for name, (least, most) in _NUMBERS.items():
            integer(name, state[name], least, most)
        total_rows = integer("total_rows", state["total_rows"], 0, 2**64 - 1)
        if self._total_rows is None:
            # The first share shows whether the number is right.
            expected["total_rows"] = total_rows
        else:
            expected["total_rows"] = self._total_rows
        for name in _FIXED:
            _check(name, expected[name], state[name])
        epoch, row = state["epoch"], state["position"]
        step = state["batch_size"] * state["world_size"]
        if row > total_rows or (row < total_rows and row % step):
            expected_row = f"a multiple of {step} in 0..={total_rows}"
            raise StateMismatchError(f"loader state does not match: position: expected {expected_row}, found {row}")
        their = _Position(total_rows, state["batch_size"], state["world_size"], bool(state["drop_last"]), 0)
        their.load(0, row)
        if their.epoch == 0 and row > 0:
            for name in _TOPOLOGY:
                _check(name, expected[name], state[name])
        self._total_rows = total_rows
        self._position.set_num_rows(total_rows)
        # The end of an epoch may be at another row in this topology.
        self._position.load(epoch, row if their.epoch == 0 else total_rows)

    def __getstate__(self) -> dict[str, Any]:
        position = (self._position.epoch, self._position.start)
        return {**self.__dict__, "_share": None, "_next": None, "_position": position}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the pickled state."""
        self.__dict__.update(state)
        self._position = self._position_at(*state["_position"])

    def _position_at(self, epoch: int, row: int) -> _Position:
        position = _Position(self._total_rows or 0, self.batch_size, self._shard[1], self._drops_last, epoch)
        position.load(epoch, row)
        position.set_epoch(epoch)
        return position

    def _num_rows(self) -> int:
        """Return the number of rows of all ranks, which is the same in all epochs."""
        if self._total_rows is None:
            self._share_of(self.epoch)
        assert self._total_rows is not None
        return self._total_rows

    def _batches(self, share: StepTable, epoch: int, start: int) -> Iterator[Tensors]:
        """Return the batches of an epoch. A rank with one row fewer than others ends with an empty batch."""
        position = self._position
        skipped = min(-(-start // (self.batch_size * self._shard[1])), position.num_batches)
        # Each rank has its own orders and symmetries.
        parts = struct.pack("<QQ", self._seed, self._shard[0])
        seed = int.from_bytes(blake2b(parts, digest_size=8).digest(), "little")
        options = {**self._made_options, "seed": seed}
        loader = TableLoader(share, epoch=epoch, drop_last=False, rank=0, world_size=1, **options)
        loader.skip_batches(skipped)
        rest, count = position.num_batches - skipped, 0
        # Without this call, a loader without further batches would serve the next epoch.
        loader.set_epoch(epoch)
        for batch in islice(loader, rest):
            count += 1
            yield batch
        for _ in range(rest - count):
            batch = tensors_of(share.take([]))
            batch["tokens"] = batch["tokens"].to(getattr(torch, self._made_options["tokens"]))
            columns = self._made_options["columns"]
            batch = batch if columns is None else {name: batch[name] for name in columns}
            transform, device = self._made_options["transform"], self._made_options["device"]
            batch = batch if transform is None else transform(batch)
            yield batch if device is None else {name: tensor.to(device) for name, tensor in batch.items()}

    def _share_of(self, epoch: int) -> StepTable:
        """Return the share of a round: the current share, the prefetched share, or a new share."""
        if self._share is None or _round(self._share) != epoch:
            # Both shares need not be in memory longer than necessary.
            self._share = None
            ahead, self._next, share = self._next, None, None
            if ahead is not None and ahead.epoch == epoch and ahead.is_here:
                share = ahead.result()
            elif ahead is not None:
                ahead.stop()
            if share is None:
                share = self._query.materialize(**self._options_of(epoch))
            total_rows = _total_rows(share)
            if self._total_rows is not None:
                _check("total_rows", total_rows, self._total_rows)
            self._share, self._total_rows = share, total_rows
            self._position.set_num_rows(total_rows)
        return self._share

    def _options_of(self, epoch: int) -> dict[str, Any]:
        return {**self._materialize, "shard": self._shard, "seed": self._seed, "round": epoch}

    def _make_ahead(self, epoch: int) -> None:
        if self._next is None or self._next.epoch != epoch:
            if self._next is not None:
                self._next.stop()
            self._next = _Prefetched(self, epoch, self._query, self._options_of(epoch))


class _Prefetched:
    """The share of a round, which a thread makes."""

    def __init__(self, loader: QueryLoader, epoch: int, query: Query, options: dict[str, Any]) -> None:
        self.epoch = epoch
        self._process = os.getpid()
        self._table: StepTable | None = None
        self._is_stopped = False
        # The thread must not keep a loader alive that nothing else uses.
        owner = weakref.ref(loader)

        def goes_on(_: object) -> None:
            if self._is_stopped or owner() is None or not threading.main_thread().is_alive():
                raise _StoppedError

        def work() -> None:
            # A share that fails here is made again when its epoch begins. Then the memory of the previous share is
            # free, and an unreachable store may be back. If that call fails too, it raises the error.
            with suppress(Exception):
                self._table = query.materialize(**options, progress=goes_on)

        self._thread = threading.Thread(target=work, name="a2store-share")
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether the thread runs in this process; a forked child lacks it."""
        return self._process == os.getpid()

    def stop(self) -> None:
        self._is_stopped = True

    def result(self) -> StepTable | None:
        """Wait for the share and return it; ``None`` if it failed."""
        self._thread.join()
        return self._table


class _StoppedError(Exception):
    """Nothing needs the share any more."""


def _round(share: StepTable) -> int:
    assert share.shard is not None
    return share.shard.round


def _total_rows(share: StepTable) -> int:
    assert share.shard is not None
    return share.shard.total_rows


def _check(name: str, expected: object, found: object) -> None:
    if expected != found:
        raise StateMismatchError(f"loader state does not match: {name}: expected {expected}, found {found}")
