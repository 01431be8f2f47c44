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
    the loop has got.
    """

    def __init__(self, batches: BatchIterator, function: Callable[[Batch], Any], prefetch: int) -> None:
        self._batches = batches
        self._function = function
        self._process = os.getpid()
        self._failure: BaseException | None = None
        # Python ends this thread before it shuts down.
        self._thread = ThreadPoolExecutor(1, "a2store-transform") if prefetch else None
        self._ahead: deque[Future[tuple[Any, Any] | None]] = deque()
        for _ in range(prefetch):
            self._begin_one()

    def __iter__(self) -> Results:
        return self

    def __next__(self) -> Any:
        if self._failure is not None:
            raise self._failure
        try:
            if self._thread is None:
                found = _one(self._batches, self._function)
            elif os.getpid() != self._process:
                raise RuntimeError("the thread of this iterator is in another process; call iter(loader) in this one")
            else:
                # An interrupted call leaves the result for the next one.
                found = self._ahead[0].result()
                self._ahead.popleft()
                self._begin_one()
        except Exception as error:
            self._failure = error
            raise
        if found is None:
            raise StopIteration
        result, end = found
        end.mark()
        return result

    def __length_hint__(self) -> int:
        return self._batches.__length_hint__() + sum(1 for _ in self._ahead)

    def __del__(self) -> None:
        thread = getattr(self, "_thread", None)
        if thread is not None and os.getpid() == self._process:
            thread.shutdown(wait=False, cancel_futures=True)

    def __repr__(self) -> str:
        return f"Results({self._batches!r}, {self._function!r})"

    def _begin_one(self) -> None:
        assert self._thread is not None
        self._ahead.append(self._thread.submit(_one, self._batches, self._function))


def _one(batches: BatchIterator, function: Callable[[Batch], Any]) -> tuple[Any, Any] | None:
    found = batches._next_ahead()
    return None if found is None else (function(found[0]), found[1])
