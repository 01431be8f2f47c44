"""Memory of a2store's queries under a limit, each in a separate process.

``run`` starts this file, writes a job to it as JSON and reads its output. Besides the questions with peers, there are
memory-hungry queries that could hold most of the archive. They may spill to disk or fail with a limit error, but they
may not use more memory than allowed.
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
"""The most memory that a query may use. The engine does not count output batches and batches between operators."""

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
    """Run one question and drop its rows; return time, rows and peak memory."""
    import a2store

    archive = a2store.Archive.open(job["archive"])
    before = status_bytes("VmRSS")
    # Resets the peak, if the kernel allows a process to do so.
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
    """Run the job in a new process, and return its output; a process that dies has no figures."""
    done = subprocess.run([sys.executable, __file__], input=json.dumps(job), capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        return {"rows": 0, "seconds": 0.0, "bytes": 0, "failure": f"status {done.returncode}: {last}", "died": True}
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def run(report: Report, archive: Any, only: str | None = None) -> None:
    """Run all questions under the limit, and print their memory."""
    from queries import chosen  # here, because the child processes do not need it

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
    title = f"memory of queries with a limit of {LIMIT // MEBIBYTE} MiB; at most {BAR // MEBIBYTE} MiB are allowed"
    table(title, ("", "rows", "s", "peak MiB", ""), lines)
    for failure in failures:
        note(failure)
    if over:
        note(f"above the allowed memory: {', '.join(over)}")


if __name__ == "__main__":
    print(json.dumps(work(json.load(sys.stdin))))
