"""What a2store's queries take of memory under a limit, each in a process of its own.

``run`` starts this file, writes a job to it as JSON and reads what it prints. Besides the questions that have peers,
there are some that would hold most of the archive if they could: they may spill to disk, or end in an error that says
so, but not take more.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from report import Report, note, status_bytes, table

LIMIT = 512 << 20
BAR = LIMIT * 3 // 2 + (256 << 20)
"""What a query may take at most: what it does not account for is its own batches and those on their way."""

HUNGRY = {
    "everything by board": "SELECT * FROM steps ORDER BY board, run_id, step_index",
    "groups by board": "SELECT board, count(*) AS n, avg(max_score) AS score FROM steps GROUP BY board",
    "different boards": "SELECT count(DISTINCT board) AS n FROM steps",
    "runs as lists": "SELECT run_id, array_agg(board ORDER BY step_index) AS boards FROM steps GROUP BY run_id",
    "steps beside the next": "SELECT count(*) AS n FROM steps AS a JOIN steps AS b "
    "ON a.run_id = b.run_id AND a.step_index + 1 = b.step_index WHERE a.move = b.move",
    "gains by a window": "SELECT sum(gain) AS gain FROM "
    "(SELECT ev_up - lag(ev_up) OVER (PARTITION BY run_id ORDER BY step_index) AS gain FROM steps)",
}
MEBIBYTE = 1 << 20


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Ask one question, take its rows and let them go; return what that took."""
    import a2store

    archive = a2store.Archive.open(job["archive"])
    before = status_bytes("VmRSS")
    # Forgets the peak so far, where the kernel lets a process do so.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    rows, failure = 0, None
    start = time.perf_counter()
    try:
        if job["saved"] is None:
            query = archive.sql(job["sql"], memory_limit=LIMIT)
        else:
            query = archive.query(job["saved"], memory_limit=LIMIT, **job["parameters"])
        for batch in pa.RecordBatchReader.from_stream(query):
            rows += len(batch)
    except (a2store.Error, pa.ArrowException, OSError) as error:
        failure = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    seconds = time.perf_counter() - start
    return {"rows": rows, "seconds": seconds, "bytes": status_bytes("VmHWM") - before, "failure": failure}


def do(job: dict[str, Any]) -> dict[str, Any]:
    """Have a process of its own do the job, and return what it printed; one that dies has no figures."""
    done = subprocess.run([sys.executable, __file__], input=json.dumps(job), capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        return {"rows": 0, "seconds": 0.0, "bytes": 0, "failure": f"status {done.returncode}: {last}", "died": True}
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def run(report: Report, archive: Any, only: str | None = None) -> None:
    """Ask everything under the limit, and print what it took."""
    from queries import chosen  # not for the processes that ask

    jobs: dict[str, dict[str, Any]] = {}
    for group, questions in chosen(archive, only).items():
        for question in questions:
            jobs[f"{group}: {question.name}"] = {
                "sql": question.sql,
                "saved": question.saved,
                "parameters": question.parameters,
            }
    for name, sql in HUNGRY.items():
        if re.search(only or "", f"hungry: {name}"):
            jobs[f"hungry: {name}"] = {"sql": sql, "saved": None, "parameters": {}}
    lines, failures, over = [], [], []
    for name, job in jobs.items():
        result = do({"archive": str(archive.path), **job})
        failure = result["failure"]
        verdict = "above" if result["bytes"] > BAR else "died" if result.get("died") else "an error" if failure else ""
        if verdict in ("above", "died"):
            over.append(name)
        if failure is not None:
            failures.append(f"{name}: {failure}")
        report.add("query memory", name, peak_bytes=result["bytes"], rows=result["rows"], seconds=result["seconds"])
        lines.append(
            (name, f"{result['rows']:,}", f"{result['seconds']:.2f}", f"{result['bytes'] / MEBIBYTE:,.0f}", verdict)
        )
    title = f"memory of queries with a limit of {LIMIT // MEBIBYTE} MiB; at most {BAR // MEBIBYTE} MiB are to be taken"
    table(title, ("", "rows", "s", "peak MiB", ""), lines)
    for failure in failures:
        note(failure)
    if over:
        note(f"over the bar: {', '.join(over)}")


if __name__ == "__main__":
    print(json.dumps(work(json.load(sys.stdin))))
