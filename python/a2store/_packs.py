"""Packs of run files, and iterators over batches of their runs and steps."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from ._a2store import Batch, PackIterator, Run, StepTable, _Pack, _permutation, _row_indices
from ._integers import any_integer, integer
from ._results import JsonlReport, PackStats, Rejected

__all__ = ["PackBatchIterator", "PackReader", "PackStepIterator"]

_Path: TypeAlias = os.PathLike[str] | str
_Progress: TypeAlias = bool | Callable[[dict[str, Any]], object] | None

if TYPE_CHECKING:
    # NumPy doubles the time of the import of this package, so the functions that need it import it.
    import numpy as np
    import numpy.typing as npt

    _Indices: TypeAlias = Sequence[int] | npt.NDArray[np.integer[Any]]


class PackReader:
    """A reader of the run files in an ``.a2pack``, which it maps into memory.

    Access to any run takes constant time. ``len(pack)`` is the number of runs, and ``pack[i]`` is ``pack.decode(i)``.
    ``for run in pack`` returns all runs in order and decodes several at a time in parallel. Threads may share a reader.
    It survives ``fork``, and its pickle holds only the path and the option. The file must not change while it is open.

    >>> pack = a2store.PackReader.open("games.a2pack")
    >>> len(pack), pack[0].meta.max_score
    (20, 11308)
    >>> max(run.meta.max_score for run in pack)
    82292
    """

    _pack: _Pack | None
    """``None`` once it is closed."""
    _path: Path
    _checksums: bool

    @staticmethod
    def open(path: _Path, checksums: bool = True) -> PackReader:
        """Open a pack, and check its header, index and footer, but not its runs.

        Opening a pack of 100,000 runs takes milliseconds.

        - ``path``: the file.
        - ``checksums``: whether to compare the checksum of each run that is read. ``False`` suits packs that
          ``validate`` has checked.

        Raises ``DecodeError``, whose ``kind`` is ``"header"`` or ``"checksum"``, and ``OSError``.

        >>> a2store.PackReader.open("games.a2pack", checksums=False)
        PackReader(".../games.a2pack", 20 runs)
        """
        # The process that unpickles the reader may have another working folder.
        absolute = Path(path).absolute()
        pack = PackReader.__new__(PackReader)
        pack._pack, pack._path, pack._checksums = _Pack(absolute, checksums), absolute, checksums
        return pack

    def close(self) -> None:
        """Close the pack. Every later operation on this object raises ``ValueError``.

        Iterators and runs of the pack stay valid. The file is unmapped when the last of these objects is gone. A second
        call has no effect. A ``with`` block calls ``close`` at its end.

        >>> with a2store.PackReader.open("games.a2pack") as pack:
        ...     len(pack)
        20
        >>> len(pack)
        Traceback (most recent call last):
        ValueError: the pack is closed
        """
        self._pack = None

    def __enter__(self) -> Self:
        """Return the reader itself.

        Raises ``ValueError`` if it is closed.
        """
        self._opened()
        return self

    def __exit__(self, *_error: object) -> None:
        """Close the pack."""
        self.close()

    def __len__(self) -> int:
        """Return the number of runs, including damaged ones."""
        return len(self._opened())

    def __getitem__(self, index: int, /) -> Run:
        """Return ``decode(index)``."""
        return self.decode(index)

    def __iter__(self) -> PackIterator:
        """Return ``iter()``."""
        return self.iter()

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._path

    def kind(self, index: int) -> Literal["v1", "v2"]:
        """Return the format of a run according to the index: ``"v1"`` is A2T1, ``"v2"`` is a2run2.

        - ``index``: the index of the run; a negative one counts from the end.

        Raises ``IndexError`` for an index that is out of bounds.

        >>> a2store.PackReader.open("games.a2pack").kind(0)
        'v2'
        """
        return self._opened().kind(self._place("index", index))

    def decode(self, index: int) -> Run:
        """Decode and return a run.

        - ``index``: the index of the run; a negative one counts from the end.

        Raises ``IndexError`` for an index that is out of bounds. Raises ``DecodeError``, with path, run and offset, for
        a damaged run.

        >>> a2store.PackReader.open("games.a2pack").decode(-1)
        Run(934 steps, max_score=16248, engine="a2store-expectimax-1", a2run2)
        """
        return self._opened().decode(self._place("index", index))

    def decode_batch(self, indices: Iterable[int]) -> list[Run]:
        """Decode runs in parallel and return them in the order of ``indices``.

        - ``indices``: the indices of the runs, with repetitions; negative ones count from the end.

        Raises as ``decode`` does, for the first damaged run, and ``KeyboardInterrupt`` on Ctrl-C.

        >>> pack = a2store.PackReader.open("games.a2pack")
        >>> [len(run) for run in pack.decode_batch([3, 0])]
        [1302, 646]
        """
        runs, errors = self._opened().decode_batch(self._places(indices), None, False)
        if errors:
            raise errors[0]
        return runs

    def iter(self, indices: Iterable[int] | None = None) -> PackIterator:
        """Return an iterator over runs; it decodes some megabytes at a time, in parallel.

        At a damaged run the iterator raises ``DecodeError``; the next call continues with the following run.

        - ``indices``: the indices of the runs, in this order, with repetitions; negative ones count from the end.
          ``None`` = all runs, in order.

        Raises ``IndexError`` at once for an index that is out of bounds.

        >>> pack = a2store.PackReader.open("games.a2pack")
        >>> sum(len(run) for run in pack.iter())
        29320
        >>> [run.meta.max_score for run in pack.iter([3, 0])]
        [25888, 11308]
        """
        return self._opened().iter(None if indices is None else self._places(indices))

    def iter_indices(self, indices: Iterable[int]) -> PackIterator:
        """Return an iterator over the runs at ``indices``, as ``iter`` does.

        - ``indices``: as in ``iter``.

        Raises as ``iter`` does.

        >>> pack = a2store.PackReader.open("games.a2pack")
        >>> [run.meta.max_score for run in pack.iter_indices([3, 0])]
        [25888, 11308]
        """
        return self.iter(self._places(indices))

    def iter_batches(
        self,
        batch_size: int,
        shuffle: bool = False,
        seed: int | None = None,
        workers: int | None = None,
        *,
        indices: Iterable[int] | None = None,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> PackBatchIterator:
        """Return an iterator over lists of ``batch_size`` runs; the last list may be shorter.

        - ``batch_size``: the number of runs in a list, at least 1.
        - ``shuffle``: whether to shuffle the runs. The order depends on ``seed`` alone.
        - ``seed``: in ``0..2**64``; ``None`` = a new seed each time.
        - ``workers``: threads to decode with, 1 to 1,024; ``None`` = a pool shared by all readers, one thread per core.
        - ``indices``: the indices of the runs, such as one part of ``split``; ``None`` = all.
        - ``on_error``: the effect of a damaged run. ``"raise"`` raises its error; the next call continues with the
          other runs of the same list. ``"skip"`` leaves the run out of its list and adds its error to ``errors`` of the
          iterator.

        Raises ``ValueError`` for an option out of range, and ``IndexError`` for an index that is out of bounds. The
        iterator raises ``DecodeError``.

        >>> pack = a2store.PackReader.open("games.a2pack")
        >>> [len(runs) for runs in pack.iter_batches(8, shuffle=True, seed=1)]
        [8, 8, 4]
        """
        import numpy as np

        if on_error not in ("skip", "raise"):
            raise ValueError(f"on_error: expected skip or raise, found {on_error}")
        if workers is not None:
            integer("workers", workers, 1, 1024)
        chosen = None if indices is None else np.array(self._places(indices), np.uint64)
        iterator = PackBatchIterator.__new__(PackBatchIterator)
        iterator._order = _BatchOrder(len(self), chosen, shuffle, seed, batch_size)
        iterator._pack, iterator._workers, iterator._skips_errors = self._opened(), workers, on_error == "skip"
        iterator._ready, iterator._errors, iterator._lock = deque(), [], Lock()
        return iterator

    def iter_step_batches(
        self,
        batch_size: int,
        shuffle: bool = False,
        seed: int | None = None,
        workers: int | None = None,
        *,
        indices: _Indices | None = None,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> PackStepIterator:
        """Read all steps into memory, 32 bytes each, and return an iterator over batches of them.

        A row's ``run_id`` is the index of the run in the pack. For training, ``to_table().loader(…)`` offers more.

        - ``batch_size``: rows per batch, at least 1; the last batch may have fewer.
        - ``shuffle``, ``seed``: as in ``iter_batches``, over all steps.
        - ``workers``: threads to read with, 1 to 1,024; ``None`` = one per core.
        - ``indices``: the steps to return, numbered through all runs that were read; ``None`` = all.
        - ``on_error``: as in ``to_table``.

        Raises ``DecodeError`` for a damaged run, and ``MemoryLimitError``. Otherwise raises as ``iter_batches`` does.

        >>> pack = a2store.PackReader.open("games.a2pack")
        >>> batch = next(pack.iter_step_batches(512, shuffle=True, seed=1))
        >>> batch.tokens.shape, batch.ev_values.dtype
        ((512, 16), dtype('float32'))
        """
        table = self.to_table(workers=workers, on_error=on_error)
        chosen = None if indices is None else _row_indices(indices, len(table))
        iterator = PackStepIterator.__new__(PackStepIterator)
        iterator._order = _BatchOrder(len(table), chosen, shuffle, seed, batch_size)
        iterator._table, iterator._lock = table, Lock()
        return iterator

    def to_table(self, *, workers: int | None = None, on_error: Literal["raise", "skip"] = "raise") -> StepTable:
        """Return the steps of all runs as a table. A row's ``run_id`` is the index of the run in the pack.

        - ``workers``, ``on_error``: as in ``StepTable.from_runs``.

        Raises as ``StepTable.from_runs`` does.

        >>> a2store.PackReader.open("games.a2pack").to_table()
        StepTable(29320 rows of 32 bytes)
        """
        return self._opened().to_table(workers, on_error)

    def train_test_split(
        self, test_size: float = 0.1, *, seed: int = 0
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """Split the runs, and return the ascending indices of the two parts, ``(train, test)``.

        ``test`` has the same runs as in ``to_table().train_test_split(…)``, and keeps them when the pack grows. Runs of
        one game are on the same side.

        - ``test_size``: the approximate share of runs in ``test``, in ``0..=1``.
        - ``seed``: the seed of the split, in ``0..2**64``.

        Raises ``ValueError`` for a share out of range, and ``DecodeError`` for a damaged run.

        >>> pack = a2store.PackReader.open("games.a2pack")
        >>> train, test = pack.train_test_split(0.2, seed=1)
        >>> set(test.tolist()) == set(pack.to_table().train_test_split(0.2, seed=1)[1]["run_id"].tolist())
        True
        """
        return _parts(self._opened().held_out(test_size, seed))

    def split(
        self,
        unit: Literal["run", "step"] = "run",
        *,
        test_pct: float | None = None,
        test_size: int | None = None,
        seed: int = 0,
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """Split the indices of all runs, or of all steps, at random; return (train, test), each in ascending order.

        - ``unit``: ``"run"`` or ``"step"``: whether to split runs or steps. ``"run"`` keeps all steps of a run on one
          side.
        - ``test_pct``: the test part as a fraction between 0 and 1. Its size is rounded down, but is at least one.
        - ``test_size``: the size of the test part as a number, instead of ``test_pct``.
        - ``seed``: in ``0..2**64``; equal seeds give equal splits.

        Raises ``ValueError`` unless exactly one of ``test_pct`` and ``test_size`` is given and in range, and for
        another ``unit``.

        >>> pack = a2store.PackReader.open("games.a2pack")
        >>> train, test = pack.split(test_pct=0.2, seed=1)
        >>> train.dtype, len(train), len(test)
        (dtype('uint64'), 16, 4)
        """
        if unit not in ("run", "step"):
            raise ValueError(f"unit: expected run or step, found {unit}")
        if (test_pct is None) == (test_size is None):
            raise ValueError("split: expected exactly one of test_pct and test_size")
        total = len(self) if unit == "run" else self.stats.total_steps
        if test_pct is None:
            size = integer("test_size", test_size, 0, total)
        elif 0 < test_pct < 1:
            # An empty pack has none to split off; any other has at least one.
            size = min(max(int(total * test_pct), 1), total)
        else:
            raise ValueError(f"test_pct: expected a fraction between 0 and 1, found {test_pct}")
        import numpy as np

        is_test = np.zeros(total, np.bool_)
        is_test[_permutation(total, integer("seed", seed, 0), 0, size)] = True
        return _parts(is_test)

    def to_jsonl(
        self,
        path: _Path,
        parallel: bool = True,
        by_step: bool = False,
        workers: int | None = None,
        progress: _Progress = None,
        *,
        compact: bool = False,
    ) -> JsonlReport:
        """Write the runs in order as JSON Lines, with one line per run or per step, in bounded memory.

        docs/formats.md lists the keys. The call skips and reports damaged runs. The complete file replaces an existing
        file atomically.

        - ``path``: the file.
        - ``parallel``: ``False`` = use one thread.
        - ``by_step``: ``True`` = one line per step.
        - ``workers``: the number of threads, 1 to 1,024; ``None`` = one per core.
        - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.
        - ``compact``: ``True`` = boards are uint64 and values are four numbers or nulls. ``False`` = boards are lists
          of cells, and values are lists of objects.

        Raises ``OSError`` if the file cannot be written, ``ValueError`` for an option out of range, and
        ``KeyboardInterrupt`` on Ctrl-C.

        >>> report = a2store.PackReader.open("games.a2pack").to_jsonl("games.jsonl")
        >>> report.num_runs, report.num_steps
        (20, 29320)
        """
        return self._opened().to_jsonl(path, parallel, by_step, workers, progress, compact)

    @property
    def stats(self) -> PackStats:
        """The statistics that the pack stores; without stored ones, the reader computes them once, in parallel.

        Raises ``KeyboardInterrupt`` on Ctrl-C.

        >>> a2store.PackReader.open("games.a2pack").stats
        PackStats(count=20, total_steps=29320, min_len=482, max_len=3773, mean_len=1466.0)
        """
        return self._opened().stats()

    def validate(
        self, *, sample: int | None = None, workers: int | None = None, progress: _Progress = None
    ) -> list[str]:
        """Decode every run, compare every checksum, and return a list of all problems.

        - ``sample``: check only this number of runs, evenly spread; ``None`` = all.
        - ``workers``, ``progress``: as in ``to_jsonl``.

        Raises ``KeyboardInterrupt`` on Ctrl-C.

        >>> a2store.PackReader.open("games.a2pack").validate()
        []
        """
        return self._opened().validate(sample, workers, progress)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the path and the options for ``pickle``; unpickling opens the pack again."""
        return PackReader.open, (self._path, self._checksums)

    def __repr__(self) -> str:
        pack = self._pack
        state = "closed" if pack is None else f"{len(pack)} runs"
        return f'PackReader("{self._path}", {state})'

    def _opened(self) -> _Pack:
        pack = self._pack
        if pack is None:
            raise ValueError("the pack is closed")
        return pack

    def _place(self, name: str, index: int) -> int:
        """Return the place of a run; a negative index counts from the end."""
        number, length = any_integer(name, index), len(self)
        place = number + length if number < 0 else number
        if not 0 <= place < length:
            raise IndexError(f"index {number} is out of bounds for a pack of {length} runs")
        return place

    def _places(self, indices: Iterable[int]) -> list[int]:
        try:
            each = iter(indices)
        except TypeError:
            raise TypeError(f"indices: expected integers, found {indices}") from None
        return [self._place("indices", index) for index in each]


class PackBatchIterator:
    """An iterator over lists of runs of a pack. ``len`` is the total number of lists; it never decreases.

    A list whose runs are all skipped is left out, although ``len`` counts it.

    >>> batches = a2store.PackReader.open("games.a2pack").iter_batches(8, on_error="skip")
    >>> len(batches), len(next(batches)), batches.errors
    (3, 8, [])
    """

    _pack: _Pack
    _order: _BatchOrder
    _workers: int | None
    _skips_errors: bool
    _ready: deque[list[Run] | Exception]
    """Lists that were decoded but not returned yet, and errors that were not raised yet."""
    _errors: list[Rejected]
    _lock: Lock

    @property
    def errors(self) -> list[Rejected]:
        """The runs that were skipped so far with ``on_error="skip"``, in order."""
        return list(self._errors)

    def __iter__(self) -> PackBatchIterator:
        """Return the iterator itself."""
        return self

    def __len__(self) -> int:
        """Return the total number of lists."""
        return self._order.num_batches

    def __next__(self) -> list[Run]:
        """Return the next list of runs. The error of a damaged run is raised before its list is returned."""
        while True:
            with self._lock:
                if self._ready:
                    found = self._ready.popleft()
                    break
                places = self._order.take().tolist()
            if not places:
                raise StopIteration
            # Other threads decode other lists meanwhile.
            runs, errors = self._pack.decode_batch(places, self._workers, self._skips_errors)
            with self._lock:
                for error in errors:
                    if isinstance(error, Rejected):
                        self._errors.append(error)
                    else:
                        self._ready.append(error)
                if runs:
                    self._ready.append(runs)
        if isinstance(found, Exception):
            raise found
        return found

    def __repr__(self) -> str:
        return f"PackBatchIterator({len(self)} batches of {self._order.batch_size} runs)"


class PackStepIterator:
    """An iterator over batches of steps of a pack. ``len`` is the total number of batches; it never decreases.

    >>> batches = a2store.PackReader.open("games.a2pack").iter_step_batches(4096)
    >>> len(batches), len(next(batches))
    (8, 4096)
    """

    _table: StepTable
    _order: _BatchOrder
    _lock: Lock

    @property
    def errors(self) -> list[Rejected]:
        """The runs that were skipped with ``on_error="skip"``, in order."""
        return self._table.errors

    def __iter__(self) -> PackStepIterator:
        """Return the iterator itself."""
        return self

    def __len__(self) -> int:
        """Return the total number of batches."""
        return self._order.num_batches

    def __next__(self) -> Batch:
        """Return the next batch."""
        with self._lock:
            rows = self._order.take()
        if not len(rows):
            raise StopIteration
        return self._table.take(rows)

    def __repr__(self) -> str:
        return f"PackStepIterator({len(self)} batches of {self._order.batch_size} rows)"


class _BatchOrder:
    """The order in which an iterator returns runs or rows, one batch at a time."""

    def __init__(
        self, total: int, chosen: npt.NDArray[np.uint64] | None, shuffle: bool, seed: int | None, batch_size: int
    ) -> None:
        self.batch_size = integer("batch_size", batch_size, 1)
        seed = int.from_bytes(os.urandom(8), "little") if seed is None else integer("seed", seed, 0)
        self._seed = seed if shuffle else None
        self._chosen = chosen
        self._length = total if chosen is None else len(chosen)
        self._taken = 0
        self.num_batches = -(-self._length // self.batch_size)

    def take(self) -> npt.NDArray[np.uint64]:
        """Return the indices of the next batch; none at the end."""
        import numpy as np

        begin, self._taken = self._taken, min(self._taken + self.batch_size, self._length)
        if self._seed is None:
            indices = np.arange(begin, self._taken, dtype=np.uint64)
        else:
            indices = _permutation(self._length, self._seed, begin, self._taken)
        return indices if self._chosen is None else self._chosen[indices]


def _parts(is_test: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return the indices of the two parts of a split."""
    import numpy as np

    indices = np.arange(len(is_test), dtype=np.uint64)
    return indices[~is_test], indices[is_test]


for _name in __all__:
    globals()[_name].__module__ = "a2store"
