"""Results of a function of batches, computed ahead of the loop that gets them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from . import Batch, BatchIterator


class Results:
    """An iterator over the results of a function of batches, in order.

    One thread calls the function for up to ``prefetch`` batches ahead. The loader's position counts only results that
    the loop has got. An exception of the function is raised at its batch, and again by every later call.
    """

    def __init__(self, batches: BatchIterator, function: Callable[[Batch], Any], prefetch: int) -> None:
        self._batches = batches
        self._function = function
        self._process = os.getpid()
        self._failure: Exception | None = None
        # Python ends this thread before it shuts down.
        self._thread = ThreadPoolExecutor(1, "a2store-transform") if prefetch else None
        self._ahead: deque[Future[tuple[Batch | None, Any, Any]]] = deque()
        self._taken: tuple[Batch | None, Any] | None = None
        for _ in range(prefetch):
            self._begin_one()

    def __iter__(self) -> Results:
        return self

    def __next__(self) -> Any:
        if self._failure is not None:
            raise self._failure
        try:
            batch, end, result = self._next()
        except StopIteration as error:
            # It must not look like the end of the epoch.
            self._failure = RuntimeError("the transform raised StopIteration")
            raise self._failure from error
        except Exception as error:
            self._failure = error
            raise
        if end is not None:
            end.mark()
        if batch is None:
            raise StopIteration
        return result

    def __length_hint__(self) -> int:
        return self._batches.__length_hint__() + sum(1 for _ in self._ahead)

    def __del__(self) -> None:
        thread = getattr(self, "_thread", None)
        if thread is not None and os.getpid() == self._process:
            thread.shutdown(wait=False, cancel_futures=True)

    def __repr__(self) -> str:
        return f"Results({self._batches!r}, {self._function!r})"

    def _next(self) -> tuple[Batch | None, Any, Any]:
        # A call that Ctrl-C interrupts leaves its batch or result for the next call.
        if self._thread is None:
            if self._taken is None:
                self._taken = self._batches._next_ahead()
            found = _applied(self._taken, self._function)
            self._taken = None
            return found
        if os.getpid() != self._process:
            raise RuntimeError("this iterator belongs to another process; call iter(loader) in this process")
        found = self._ahead[0].result()
        self._ahead.popleft()
        self._begin_one()
        return found

    def _begin_one(self) -> None:
        assert self._thread is not None
        self._ahead.append(self._thread.submit(_one, self._batches, self._function))


def _one(batches: BatchIterator, function: Callable[[Batch], Any]) -> tuple[Batch | None, Any, Any]:
    return _applied(batches._next_ahead(), function)


def _applied(taken: tuple[Batch | None, Any], function: Callable[[Batch], Any]) -> tuple[Batch | None, Any, Any]:
    batch, end = taken
    return batch, end, None if batch is None else function(batch)
