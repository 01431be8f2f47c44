"""A progress line on standard error, if that is a terminal."""

from __future__ import annotations

import sys
import time

_INTERVAL_SECS = 0.2


class Progress:
    """A progress line that is rewritten at most five times a second and cleared at the end."""

    def __init__(self, what: str, total: int, *, shown: bool | None = None) -> None:
        """Create a line.

        - ``what``: the verb at its start.
        - ``total``: the total number of items.
        - ``shown``: ``False`` = write nothing; otherwise the line is shown if standard error is a terminal.
        """
        self._what, self._total = what, total
        self._shown = shown is not False and sys.stderr.isatty()
        self._began = self._last = time.monotonic()
        self._first: int | None = None

    def show(self, done: int, remark: str = "") -> None:
        """Show the number of finished items. The rate counts the items since the first call."""
        now = time.monotonic()
        if self._first is None:
            self._first, self._began = done, now
        if not self._shown or now - self._last < _INTERVAL_SECS:
            return
        self._last = now
        rate = (done - self._first) / max(now - self._began, 1e-9)
        left = f"{(self._total - done) / rate:,.0f} s left" if rate > 0 else ""
        text = f"{self._what} {done:,} of {self._total:,}  {rate:,.0f}/s  {left}  {remark}"
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()

    def end(self) -> None:
        """Clear the line."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
