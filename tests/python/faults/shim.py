"""Processes whose system calls on one folder are recorded and disturbed, by ``shim.c`` in LD_PRELOAD."""

from __future__ import annotations

import os
import re
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import forked
from threads import HANGS

SOURCE = Path(__file__).with_name("shim.c")
CLASSES = ("open", "read", "write", "sync", "link", "rename", "unlink", "mkdir", "truncate")
"""The classes of counted calls, in the order of ``enum class`` in ``shim.c``."""
KILLS = ("kill-before", "kill-after", "kill-midwrite")
FAILURES = ("EIO", "ENOSPC", "EIO-after", "ENOSPC-after")
"""The kinds of failure: the call is not performed, or it is performed but reports an error."""

IMPORTS = {"PYTHONPATH": os.pathsep.join([str(SOURCE.parents[1]), *sys.path])}
"""The environment of a process that imports test modules."""

_RECORD = struct.Struct("<4IiIQQ4I")


@dataclass(frozen=True)
class Call:
    """One counted call from the log."""

    number: int
    """The number of the call in its process, from 1."""
    process: int
    kind: str
    """One of ``CLASSES``."""
    performed: bool
    error: int
    """The result that the caller saw; a performed call can report a failure."""
    flags: int
    inode: int
    offset: int
    path: str
    other: str
    """The target of a link or a rename."""
    data: bytes

    @property
    def opens_for_reading(self) -> bool:
        return self.kind == "open" and not self.flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    @property
    def changes(self) -> bool:
        """Whether the call can change the disk."""
        return self.kind != "read" and not self.opens_for_reading

    def __str__(self) -> str:
        names = " -> ".join("/".join(Path(path).parts[-2:]) for path in (self.path, self.other) if path)
        return f"{self.kind} {self.number} of {names}"


@dataclass(frozen=True)
class Fault:
    """A fault in one of the calls."""

    at: int
    kind: str
    """One of ``KILLS`` or ``FAILURES``, or ``short``, ``flip``, ``SIGINT``, ``SIGTERM``, ``stop``."""
    for_good: bool = False
    """Whether all later calls that would change something fail too."""

    def environment(self) -> dict[str, str]:
        return {"FAULT_AT": str(self.at), "FAULT_KIND": self.kind, "FAULT_FOR_GOOD": str(int(self.for_good))}

    def __str__(self) -> str:
        return f"{self.kind} at {self.at}{' for good' if self.for_good else ''}"


@dataclass(frozen=True)
class Shim:
    """The compiled library."""

    library: Path

    def environment(self, root: Path, log: Path | None = None, fault: Fault | None = None) -> dict[str, str]:
        """Return the environment variables with which a process's calls on ``root`` are counted."""
        added = {"LD_PRELOAD": str(self.library), "FAULT_ROOT": str(root.resolve())}
        if log is not None:
            added["FAULT_LOG"] = str(log)
        return added | (fault.environment() if fault else {})

    def clock(self, seconds: int, *, still: bool = False) -> dict[str, str]:
        """Return the environment that sets the process's clock; with ``still``, monotonic clocks stop too."""
        return {"LD_PRELOAD": str(self.library), "FAULT_CLOCK": str(seconds), "FAULT_STILL": str(int(still))}

    def run(
        self, root: Path, *args: object, log: Path | None = None, fault: Fault | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run ``a2store`` with its calls on ``root`` recorded in ``log``, and one of them disturbed."""
        return forked.run(*args, environment=self.environment(root, log, fault))


def python(
    *args: object, environment: Mapping[str, str] | None = None, timeout: float = HANGS
) -> subprocess.CompletedProcess[str]:
    """Run this interpreter to its end."""
    command = [sys.executable, *map(str, args)]
    env = {**os.environ, **(environment or {})}
    return subprocess.run(command, capture_output=True, check=False, timeout=timeout, text=True, env=env)


def was_killed(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode == -signal.SIGKILL


def compile_shim(folder: Path) -> Shim | str:
    """Compile the library; return the reason if that is not possible."""
    if not sys.platform.startswith("linux"):
        return "calls are disturbed on Linux only"
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))), None)
    if compiler is None:
        return "there is no C compiler"
    library = folder / "shim.so"
    options = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *options, "-o", library, SOURCE, "-ldl"], check=True)
    return Shim(library)


def read_log(log: Path) -> list[Call]:
    """Return the calls of all processes that wrote to this log."""
    return list(_calls(log.read_bytes())) if log.exists() else []


def _calls(data: bytes) -> Iterator[Call]:
    at = 0
    while at < len(data):
        number, process, kind, performed, error, flags, inode, offset, *lengths = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        parts = []
        for length in lengths[:3]:
            parts.append(data[at : at + length])
            at += length
        path, other = map(os.fsdecode, parts[:2])
        kind = CLASSES[kind]
        yield Call(number, process, kind, bool(performed), error, flags, inode, offset, path, other, parts[2])


def last_of_data(calls: Sequence[Call]) -> int:
    """Return the number of the last call that changes data files before the commit; a signal there undoes all."""
    commit = next(call.number for call in calls if call.changes and "/_versions/.staged" in call.path)
    data = re.compile("/(steps|runs)/")
    return max(call.number for call in calls if call.changes and call.number < commit and data.search(call.path))
