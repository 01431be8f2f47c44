"""The activity of a process, from the states of its threads: independent of the machine's speed and load."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import a2store

HANGS = 180.0
"""Seconds after which a test gives up on an expected event. No test passes or fails by less."""
POLL = 0.01
"""Seconds between two checks for an expected event."""


def eventually(happens: Callable[[], bool], what: str = "what was waited for", seconds: float = HANGS) -> None:
    """Wait until something happens, and fail if it never does."""
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, f"{what} never happened"
        time.sleep(POLL)


def planned(plan: Callable[[float], a2store.Query], seconds: float) -> a2store.Query:
    """Return a query with a time limit that is enough to plan it, at least ``seconds``."""
    with suppress(a2store.QueryLimitError):
        return plan(seconds)
    return planned(plan, 2 * seconds)


def others() -> dict[str, tuple[str, ...]]:
    """State of each other thread of this process, and how often it went to sleep and was interrupted."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        if int(task.name) == threading.get_native_id():
            continue
        try:
            lines = (task / "status").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        wanted = ("State:", "voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:")
        found[task.name] = tuple(line.split()[1] for line in lines if line.startswith(wanted))
    return found


def comes_to_rest(seconds: float = HANGS) -> bool:
    """Wait until every other thread of this process sleeps and none wakes; return whether that happened.

    A thread that computes is never asleep, even while it waits for a core.
    """
    end, last, rests = time.monotonic() + seconds, others(), 0
    while rests < 3:
        if time.monotonic() > end:
            return False
        time.sleep(POLL)
        now = others()
        rests = rests + 1 if now == last and all(state[0] == "S" for state in now.values()) else 0
        last = now
    return True
