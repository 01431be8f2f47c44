"""System calls of the loader in its steady state, traced with strace.

This file starts itself under strace with an archive as its argument. The traced loop lies between two calls of stat on
marker paths.
"""

from __future__ import annotations

import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from report import Report, note, table

import a2store

BATCHES = 10_000
WARM_UP = 500
ROWS = 5_000_000  # enough, because the system calls do not depend on the table's size
BEGIN, END = "/side_by_side-begin", "/side_by_side-end"

KINDS = {
    "open": {"open", "openat", "openat2", "creat"},
    "read": {"read", "pread64", "readv", "preadv", "preadv2", "io_uring_enter"},
    "mmap": {"mmap", "mremap", "brk"},
}
# A call that another thread interrupts has a second line with "resumed", which does not count.
CALL = re.compile(r"^\d+ +(\w+)\((.*)")
PATH = re.compile(r'"([^"]*)"')


def serve(path: str) -> None:
    """Take batches between the two marks."""
    archive = a2store.Archive.open(path)
    runs = max(1, archive.num_runs * ROWS // max(archive.num_steps, ROWS))
    table_of_steps = archive.sql("SELECT * FROM steps WHERE run_id < $1", [runs]).materialize(progress=False)
    loader = table_of_steps.loader(4096, seed=1)
    take(loader, WARM_UP)
    mark(BEGIN)
    take(loader, BATCHES)
    mark(END)


def take(loader: a2store.Loader, number: int) -> None:
    """Take a number of batches, over as many epochs as necessary."""
    epoch = 0
    while number:
        epoch += 1
        loader.set_epoch(epoch)
        for _, _batch in zip(range(number), loader, strict=False):
            number -= 1


def mark(path: str) -> None:
    """Make a system call that marks a position in the trace."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return
    raise RuntimeError(f"{path}: expected no file, found one")


def between(trace: Path) -> tuple[collections.Counter[str], collections.Counter[str]]:
    """Count the system calls between the marks by name, and the opened paths."""
    counts: collections.Counter[str] = collections.Counter()
    paths: collections.Counter[str] = collections.Counter()
    inside = False
    with trace.open(errors="replace") as lines:
        for line in lines:
            if END in line:
                return counts, paths
            match = CALL.match(line)
            if inside and match is not None:
                counts[match[1]] += 1
                if match[1] in KINDS["open"]:
                    paths.update(PATH.findall(match[2])[:1])
            inside = inside or BEGIN in line
    raise ValueError(f"{trace}: the marks are not in the trace")


def run(report: Report, archive: a2store.Archive) -> None:
    """Trace the loop and print its system calls."""
    strace = shutil.which("strace")
    if strace is None:
        print("\nsyscalls: skipped, because strace is not installed")
        return
    with tempfile.TemporaryDirectory(prefix="side_by_side-") as folder:
        trace = Path(folder) / "trace"
        command = [strace, "-f", "-o", str(trace), sys.executable, __file__, str(archive.path)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            # A container may forbid tracing, which says nothing about the loader.
            print(f"\nsyscalls: skipped, because strace failed\n{done.stderr.strip()}")
            return
        counts, paths = between(trace)
    lines = []
    for kind, names in KINDS.items():
        found = {name: counts[name] for name in sorted(names) if counts[name]}
        report.add("syscalls", kind, calls=sum(found.values()))
        lines.append((kind, f"{sum(found.values()):,}", ", ".join(f"{name} {n:,}" for name, n in found.items())))
    table(f"syscalls: in {BATCHES:,} batches after {WARM_UP}", ("", "calls", ""), lines)
    if paths:
        note(f"opened: {', '.join(f'{path} {number:,}' for path, number in paths.most_common(10))}")
    known = set().union(*KINDS.values())
    others = [f"{name} {number:,}" for name, number in counts.most_common() if name not in known]
    report.add("syscalls", "other", calls=sum(counts.values()) - sum(counts[name] for name in known))
    note(f"others: {', '.join(others) or 'none'}")


if __name__ == "__main__":
    serve(sys.argv[1])
