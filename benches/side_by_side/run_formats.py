"""Formats: packing compared with copying, JSON Lines with Python's own writer, datasets with NumPy; opening a pack.

The copies use ``cp -r``, once alone and once followed by ``sync -f``, because a finished pack is synced too.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from report import Report, median, millions, table

import a2store

ROUNDS = 5
RUNS = 4_000
"""Games of the built-in player with one spawn of look-ahead, about 6.5 million steps."""
PACKED_RUNS = 100_000
MOVES = ("UP", "DOWN", "LEFT", "RIGHT")


def timed(work: Callable[[], Any]) -> float:
    """Return the seconds that the work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def copy(runs: Path, to: Path, *, sync: bool) -> None:
    """Copy the folder, and sync it if requested."""
    subprocess.run(["cp", "-r", runs, to], check=True)
    if sync:
        subprocess.run(["sync", "-f", to], check=True)


def written(text: bytes, path: Path) -> None:
    """Write existing bytes to the disk."""
    with path.open("wb") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())


def lines_by_python(pack: a2store.PackReader, runs: int, path: Path) -> int:
    """Write the steps of the first runs as compact JSON Lines with ``json.dumps``, and return their number."""
    steps = 0
    with path.open("w") as out:
        for index in range(min(runs, len(pack))):
            run = pack.decode(index)
            for step, (board, move) in enumerate(zip(run.boards.tolist(), run.moves.tolist(), strict=True)):
                line = {"run_idx": index, "step_idx": step, "pre_board": board, "chosen": MOVES[move]}
                out.write(json.dumps(line) + "\n")
            steps += len(run)
    return steps


def run(report: Report, rounds: int | None) -> None:
    """Measure, and print a table."""
    rounds = rounds or ROUNDS
    with tempfile.TemporaryDirectory(prefix="a2store-formats-") as name:
        folder = Path(name)
        made = a2store.simulate(folder / "runs", runs=RUNS, seed=1, progress=False)
        packing(report, folder, made.num_steps, rounds)
        lines(report, folder, made.num_steps, rounds)
        datasets(report, folder, made.num_steps, rounds)
    with tempfile.TemporaryDirectory(prefix="a2store-formats-") as name:
        opening(report, Path(name), rounds)


def packing(report: Report, folder: Path, steps: int, rounds: int) -> None:
    """Pack a folder, and compare with copying it."""
    runs, pack = folder / "runs", folder / "games.a2pack"
    command = shutil.which("a2pack", path=os.path.dirname(sys.executable)) or "a2pack"
    work: dict[str, Callable[[], Any]] = {
        "cp -r": lambda: copy(runs, folder / "copy", sync=False),
        "cp -r; sync -f": lambda: copy(runs, folder / "copy", sync=True),
        "a2pack pack": lambda: subprocess.run(
            [command, "pack", "-q", "--input", runs, "--output", pack], check=True, stdout=subprocess.DEVNULL
        ),
        "a2pack validate": lambda: subprocess.run(
            [command, "validate", "-q", "--packfile", pack], check=True, stdout=subprocess.DEVNULL
        ),
    }
    secs: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, each in work.items():
            # Old output is removed and synced first.
            shutil.rmtree(folder / "copy", ignore_errors=True)
            if name == "a2pack pack":
                pack.unlink(missing_ok=True)
            subprocess.run(["sync", "-f", folder], check=True)
            secs[name].append(timed(each))
    assert a2store.PackReader.open(pack).stats.total_steps == steps
    base = median(secs["cp -r"])
    rows = []
    for name, each_secs in secs.items():
        report.add("formats", name, secs=median(each_secs), ratio=median(each_secs) / base)
        rows.append(
            (name, f"{median(each_secs):.2f} s", f"{median(each_secs) / base:.2f}", millions(steps / median(each_secs)))
        )
    size = sum(path.stat().st_size for path in runs.iterdir())
    table(f"{RUNS:,} run files of {size / 1e6:.0f} MB into a pack", ("", "median", "of cp -r", "steps/s"), rows)


def lines(report: Report, folder: Path, steps: int, rounds: int) -> None:
    """Write JSON Lines."""
    pack = a2store.PackReader.open(folder / "games.a2pack")
    out = folder / "steps.jsonl"
    rows = []
    for name, by_step, compact in (
        ("a2store, a step a line", True, False),
        ("a2store, a step a line, compact", True, True),
        ("a2store, a run a line", False, False),
    ):
        write = partial(pack.to_jsonl, out, by_step=by_step, compact=compact, progress=False)
        secs = median([timed(write) for _ in range(rounds)])
        report.add("formats", name, steps_per_s=steps / secs)
        rows.append((name, millions(steps / secs), f"{out.stat().st_size / secs / 1e6:.0f} MB/s"))
    pack.to_jsonl(out, by_step=True, progress=False)
    text = out.read_bytes()

    def show(name: str, rate: float, num_bytes: float) -> None:
        report.add("formats", name, steps_per_s=rate)
        rows.append((name, millions(rate), f"{num_bytes * rate / 1e6:.0f} MB/s"))

    secs = median([timed(lambda: written(text, out)) for _ in range(rounds)])
    show("the bytes of a step a line, written and synced", steps / secs, len(text) / steps)
    nowhere = partial(pack.to_jsonl, "/dev/null", by_step=True, progress=False)
    secs = median([timed(nowhere) for _ in range(rounds)])
    show("a2store, a step a line, to /dev/null", steps / secs, len(text) / steps)
    start = time.perf_counter()
    lines_written = lines_by_python(pack, 100, out)
    rate = lines_written / (time.perf_counter() - start)
    show("json.dumps, four keys", rate, out.stat().st_size / lines_written)
    out.unlink()
    table("JSON Lines, to a file on the disk", ("", "steps/s", "text"), rows)


def datasets(report: Report, folder: Path, steps: int, rounds: int) -> None:
    """Write and read pack.dat and datasets."""
    rows = []

    def show(name: str, work: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> None:
        secs = []
        for _ in range(rounds):
            before()
            secs.append(timed(work))
        report.add("formats", name, steps_per_s=steps / median(secs))
        rows.append((name, millions(steps / median(secs))))

    pack, dat, npy = folder / "games.a2pack", folder / "pack.dat", folder / "dataset"
    read = a2store.StepTable.from_runs
    show("a2pack to table", lambda: read(pack, progress=False))
    show(
        "a2pack to pack.dat",
        lambda: a2store.convert(pack, dat, format="packdat", progress=False),
        lambda: dat.unlink(missing_ok=True),
    )
    show("pack.dat to table", lambda: read(dat, progress=False))
    show(
        "a2pack to dataset",
        lambda: a2store.convert(pack, npy, format="npy", progress=False),
        lambda: shutil.rmtree(npy, ignore_errors=True),
    )
    show("dataset to table", lambda: read(npy, progress=False))
    show("np.load of the dataset's rows", lambda: np.load(npy / "steps.npy"))
    with sqlite3.connect(npy / "metadata.db") as database:
        assert database.execute("SELECT sum(num_steps) FROM runs").fetchone() == (steps,)
    assert len(np.load(npy / "steps.npy")) == steps
    table("runs in one file; all cores, except for NumPy", ("", "steps/s"), rows)


def opening(report: Report, folder: Path, rounds: int) -> None:
    """Open a large pack."""
    a2store.simulate(folder / "runs", runs=1_000, seed=1, depth=0, progress=False)
    files = [path.read_bytes() for path in sorted((folder / "runs").iterdir())]
    many = folder / "many"
    for index in range(PACKED_RUNS):
        part = many / f"{index // 1000:04}"
        part.mkdir(parents=True, exist_ok=True)
        (part / f"{index:06}.a2run2").write_bytes(files[index % len(files)])
    report_of = a2store.convert(many, folder / "many.a2pack", format="a2pack", progress=False)
    assert report_of.runs == PACKED_RUNS
    secs = [timed(lambda: a2store.PackReader.open(folder / "many.a2pack")) for _ in range(4 * rounds)]
    pack = a2store.PackReader.open(folder / "many.a2pack")
    one = [timed(lambda: pack.decode(len(pack) // 2)) for _ in range(4 * rounds)]
    report.add("formats", "open", secs=median(secs))
    rows = [("open", f"{median(secs) * 1e3:.2f} ms"), ("decode one run", f"{median(one) * 1e6:.0f} µs")]
    table(f"a pack of {PACKED_RUNS:,} runs", ("", "median"), rows)
