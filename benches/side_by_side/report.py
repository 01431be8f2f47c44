"""Reports of measurements: printed as tables, and kept as figures for a program."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import re
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

TOOLS = ("a2store", "numpy", "pyarrow", "duckdb", "polars", "torch", "pylance", "datasets", "streaming-community")


class Report:
    """Figures by part, competitor and name, in insertion order."""

    def __init__(self) -> None:
        self.environment: dict[str, str | int] = {
            "date": datetime.date.today().isoformat(),
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "python": platform.python_version(),
        }
        for tool in TOOLS:
            try:
                self.environment[tool] = importlib.metadata.version(tool)
            except importlib.metadata.PackageNotFoundError:
                continue
        self.results: dict[str, dict[str, dict[str, float]]] = {}

    def show_environment(self) -> None:
        """Print the machine and the versions of the tools."""
        versions = [f"{tool} {self.environment[tool]}" for tool in TOOLS if tool in self.environment]
        memory = int(self.environment["memory_bytes"]) / 2**30
        print(
            f"{self.environment['date']}, {self.environment['processor']}, {self.environment['cores']} cores,", end=" "
        )
        print(f"{memory:.0f} GiB\nPython {self.environment['python']}, {', '.join(versions)}")

    def add(self, part: str, name: str, **figures: float) -> None:
        """Add the figures of a competitor; the name of each figure ends in its unit."""
        self.results.setdefault(part, {}).setdefault(name, {}).update(figures)

    def write(self, path: Path) -> None:
        """Write all figures as JSON."""
        path.write_text(json.dumps({"environment": self.environment, "results": self.results}, indent=2) + "\n")


class Meanwhile:
    """The load by other processes during a part: on a busy machine, rates are less reliable."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._own = _own_seconds()
        self._others, self._stolen = _cores_seconds()

    def shares(self) -> tuple[float, float]:
        """Return the shares of the cores that other processes used and that the host took, since the creation."""
        cores = (time.perf_counter() - self._wall) * (os.cpu_count() or 1)
        busy, stolen = _cores_seconds()
        others = busy - self._others - (_own_seconds() - self._own)
        return max(0.0, others / cores), (stolen - self._stolen) / cores


def _own_seconds() -> float:
    """Return the processor time of this process and of its finished children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _cores_seconds() -> tuple[float, float]:
    """Return the time that all cores together were busy, and the time that the host gave to other machines."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    user, nice, system, _idle, _waiting, interrupts, soft, stolen = ticks[:8]
    second = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + interrupts + soft) / second, stolen / second


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, with names aligned left and figures aligned right."""
    widths = [max(len(row[at]) for row in (header, *rows)) for at in range(len(header))]
    print(f"\n{title}")
    for row in (header, *rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        print("  " + "  ".join(cells).rstrip(), flush=True)


def note(text: str) -> None:
    """Print a note below the table."""
    print(f"  ({text})", flush=True)


def millions(rate: float) -> str:
    """Return a rate in millions, with three significant digits."""
    return f"{rate / 1e6:.{2 if rate < 1e7 else 1 if rate < 1e8 else 0}f}M"


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile of the values."""
    return float(np.percentile(np.asarray(values), percent))


def status_bytes(name: str) -> int:
    """Return a memory figure of this process, such as ``VmHWM``, its peak.

    ``ru_maxrss`` would be wrong: a child inherits the peak of its parent, which may have held a whole table.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def _processor() -> str:
    """Return the processor's name, family and model, which ``platform`` does not provide on Linux."""
    lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    facts = dict(re.split(r"\s*: ?", line, maxsplit=1) for line in lines)
    if "model name" not in facts:
        return platform.machine()
    return f"{facts['model name']}, family {facts['cpu family']}, model {facts['model']}"
