"""From an archive's Parquet files to NumPy rows in memory, whole and filtered.

Every competitor reads only the columns of a row, in the order of ``(run_id, step_index)``, and produces the same bytes
in one array. Each runs in a new process, in rotating rounds, so that no competitor profits from memory that an earlier
one has touched.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from peers import Job
from report import Report, median, millions, note, table

import a2store

ROUNDS = 3
PHASES = ("mid", "early")
"""The phases of the filters: the first keeps few rows, the second many."""
PEERS = {"pyarrow": "pyarrow", "DuckDB": "duckdb", "polars": "polars"}


def do(job: Job) -> dict[str, Any]:
    """Run the job in a new process, and return its output."""
    command = [sys.executable, str(Path(__file__).with_name("peers.py"))]
    done = subprocess.run(command, input=json.dumps(dataclasses.asdict(job)), capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(
            f"{job.competitor} ended with status {done.returncode}: {done.stderr.strip() or 'no message'}"
        )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def compare(report: Report, what: str, field: list[str], job: Job, rounds: int) -> None:
    """Time one query for all competitors, and print a table."""
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in field}
    answers: dict[str, dict[str, int]] = {}
    for at in range(rounds):
        for name in field[at % len(field) :] + field[: at % len(field)]:
            result = do(dataclasses.replace(job, competitor=name, digest=at == 0))
            figures[name].append(result["figures"])
            answer = answers.setdefault(name, result["answer"])
            if name != "memory alone" and at == 0 and answer != answers.setdefault("a2store", answer):
                raise AssertionError(f"{name}: different rows: expected {answers['a2store']}, found {answer}")

    scanned, kept = job.num_rows, answers["a2store"]["rows"]
    lines = []
    for name in field:
        middle = {key: median([one[key] for one in figures[name]]) for key in figures[name][0]}
        times = [one["seconds"] for one in figures[name]]
        first, again = scanned / middle["seconds"], scanned / middle["again_s"]
        report.add(
            "materialize",
            f"{what}: {name}",
            scanned_rows_per_s=first,
            scanned_rows_per_s_again=again,
            result_rows_per_s=kept / middle["seconds"],
            **middle,
        )
        line = [
            name,
            millions(first),
            f"{millions(scanned / max(times))}–{millions(scanned / min(times))}",
            millions(again),
            millions(kept / middle["seconds"]),
            f"{middle['user_s']:.1f} + {middle['system_s']:.1f}",
            f"{middle['peak_over_table_bytes'] / 1e6:.0f}",
        ]
        lines.append(line if job.phase is not None else line[:4] + line[5:])
    header = ["", "rows/s", "range", "again", "CPU s + kernel's", "peak MB over the table"]
    if job.phase is not None:
        header[1:4] = ["scanned/s", "range", "again"]
        header.insert(4, "result rows/s")
    title = f"materialize, {what}: {kept:,} of {scanned:,} rows, {rounds} rounds, each in a fresh process"
    table(title, header, lines)


def run(report: Report, archive: a2store.Archive, rounds: int | None) -> None:
    """Compare the whole archive, a filter that keeps few rows, and a filter that keeps many."""
    installed = [name for name, module in PEERS.items() if importlib.util.find_spec(module) is not None]
    field = ["a2store", *installed]
    middle = pa.table(archive.sql("SELECT median(max_score) FROM runs")).column(0)[0].as_py()
    job = Job(str(archive.path), "", archive.files("steps"), archive.num_steps, int(middle), None, digest=True)
    compare(report, "whole", [*field, "memory alone"], job, rounds or ROUNDS)
    for phase in PHASES:
        what = f"max_score >= {job.min_score} AND phase = '{phase}'"
        compare(report, what, field, dataclasses.replace(job, phase=phase), rounds or ROUNDS)
    note("again: a second time in the same process, with warm memory; peak: the peak of the first time")
    for name in PEERS.keys() - set(installed):
        note(f"{name} is not installed: skipped")
