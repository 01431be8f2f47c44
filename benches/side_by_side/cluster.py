"""Queries by tasks on each installed engine, beside the same queries in this process, and a projection to more cores.

On two cores, tasks add cost without a gain. The figures show the cost, and the time that measured parts give on more
cores.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from typing import Any

from report import Report, median, millions, note, table

import a2store
from a2store import cluster

ROUNDS = 5
STARTS = 20
TASKS = (8, 64)
"""The numbers of tasks with which the parts are measured."""
CORES = (2, 16, 256)
TASKS_PER_CORE, TASK_STEPS = 4, 1 << 20
"""The default number of tasks: so many for each core, of at least so many steps."""
PROJECTED_STEPS = 1_000_000_000
NETWORK = 1.25e9
"""Bytes per second between workers and coordinator in the projection: 10 Gbit/s."""
QUESTIONS = {
    "few groups": "SELECT engine, max_tile(board) AS tile, count(*) AS n, avg(empty_cells(board)) AS empty FROM steps "
    "GROUP BY engine, tile",
    "first hundred": "SELECT board, ev_gap(ev_up, ev_down, ev_left, ev_right) AS gap FROM steps "
    "WHERE monotonicity(board) < -20 ORDER BY gap, board, run_id, step_index LIMIT 100",
    "a group per run": "SELECT run_id, count(*) AS n, sum(reward(board, move)) AS score, min(empty_cells(board)) "
    "AS least FROM steps GROUP BY run_id",
}


class Here(Executor):
    """Runs the tasks in this process, one after the other, and keeps their results and times."""

    workers = 1

    def __init__(self) -> None:
        self.results: dict[bytes, Any] = {}
        self.seconds = 0.0
        self._lock = threading.Lock()

    def submit(self, fn: Any, /, *args: Any, **_: Any) -> Future[Any]:
        """Run the task, or return the result that it had before."""
        _version, _query, task, _unique = args
        with self._lock:
            if task not in self.results:
                start = time.perf_counter()
                self.results[task] = fn(*args)
                self.seconds += time.perf_counter() - start
        future: Future[Any] = Future()
        future.set_result(self.results[task])
        return future

    @property
    def num_bytes(self) -> int:
        """The number of bytes that the tasks returned."""
        return sum(len(result) for result in self.results.values())


@contextmanager
def engines(cores: int) -> Iterator[dict[str, Any]]:
    """Start the installed engines, each with a process for each core."""
    with ExitStack() as stack:
        found: dict[str, Any] = {
            "processes": stack.enter_context(ProcessPoolExecutor(cores, mp_context=get_context("spawn")))
        }
        try:
            from distributed import Client, LocalCluster
        except ImportError:
            note("Dask is not installed")
        else:
            local = LocalCluster(n_workers=cores, threads_per_worker=1, processes=True, dashboard_address=":0")
            found["Dask"] = stack.enter_context(Client(stack.enter_context(local))).get_executor()
        try:
            import ray
        except ImportError:
            note("Ray is not installed")
        else:
            # Paths of sockets have at most 107 bytes.
            folder = tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True)
            ray.init(
                num_cpus=cores,
                include_dashboard=False,
                log_to_driver=False,
                _temp_dir=stack.enter_context(folder),
            )
            stack.callback(ray.shutdown)
            found["Ray"] = cluster.RayExecutor()
        yield found


def seconds(query: a2store.Query) -> float:
    """Run a query, and return its time."""
    start = time.perf_counter()
    assert query.to_arrow().num_rows > 0
    return time.perf_counter() - start


def parts(archive: a2store.Archive, sql: str, tasks: int) -> tuple[float, float, int]:
    """Return the time of all tasks, the time of the rest of the query, and the number of bytes between them."""
    here = Here()
    query = archive.sql(sql).on(here, tasks=tasks)
    rests = [seconds(query) for _ in range(4)]
    # The first time includes the tasks.
    return here.seconds, median(rests[1:]), here.num_bytes


def run(report: Report, archive: a2store.Archive, cores: int, rounds: int | None) -> None:
    """Measure the engines, the parts, and project."""
    times: dict[str, dict[str, list[float]]] = {name: {} for name in QUESTIONS}
    starts = {}
    with engines(cores) as found:
        for engine, executor in found.items():
            took = []
            for number in range(STARTS):
                start = time.perf_counter()
                # A short call of a module that the workers have. Dask answers a repeated call from memory.
                executor.submit(cluster._workers, number).result()
                took.append(time.perf_counter() - start)
            starts[engine] = median(took)
            report.add("cluster", engine, start_s=starts[engine])
        for number in range((rounds or ROUNDS) + 1):
            for name, sql in QUESTIONS.items():
                query = archive.sql(sql)
                queries = {"here": query} | {
                    engine: query.on(executor, tasks=TASKS_PER_CORE * cores) for engine, executor in found.items()
                }
                for engine, each in queries.items():
                    took_s = seconds(each)
                    if number > 0:  # The first round reads the files, and starts the workers.
                        times[name].setdefault(engine, []).append(took_s)
    lines = []
    for name, by_engine in times.items():
        here = median(by_engine["here"])
        for engine, all_times in by_engine.items():
            report.add("cluster", f"{name}, {engine}", s=median(all_times))
        cells = [f"{median(by_engine[engine]) / here:.2f}" for engine in by_engine if engine != "here"]
        lines.append((name, f"{here:.2f} s", *cells))
    table(f"queries by {TASKS_PER_CORE * cores} tasks, relative to this process", ("", "here", *starts), lines)
    table("start of a task", ("", *starts), [("", *(f"{start * 1e3:.1f} ms" for start in starts.values()))])
    project(report, archive, times, max(starts.values()))


def project(report: Report, archive: a2store.Archive, times: dict[str, dict[str, list[float]]], start: float) -> None:
    """Print the parts of each query, and the times that they give on more cores."""
    measured, projected = [], []
    for name, sql in QUESTIONS.items():
        few, many = (parts(archive, sql, tasks) for tasks in TASKS)
        for tasks, (work, rest, num_bytes) in zip(TASKS, (few, many), strict=True):
            measured.append((name, str(tasks), f"{work:.2f} s", f"{rest * 1e3:.0f} ms", f"{num_bytes / 1e6:.2f} MB"))
            report.add("cluster", f"{name}, {tasks} tasks", work_s=work, rest_s=rest, returned_bytes=num_bytes)
        # Each part is a line: what the rows need, and what each task adds.
        each = [max(0.0, (more - less) / (TASKS[1] - TASKS[0])) for less, more in zip(few, many, strict=True)]
        rows = [less - slope * TASKS[0] for less, slope in zip(few, each, strict=True)]
        for steps in (archive.num_steps, PROJECTED_STEPS):
            scale, cells = steps / archive.num_steps, []
            for cores in CORES:
                tasks = max(1, min(TASKS_PER_CORE * cores, steps // TASK_STEPS))
                work, rest, returned = (scale * a + b * tasks for a, b in zip(rows, each, strict=True))
                time_s = start + work / min(cores, tasks) + rest + returned / NETWORK
                cells.append(f"{time_s:.2f} s")
                report.add("cluster", f"{name}, {millions(steps)} steps, {cores} cores", projected_s=time_s)
            here = scale * median(times[name]["here"])
            projected.append((name, millions(steps), f"{here:.2f} s", *cells))
    table("parts of a query", ("", "tasks", "work on one core", "rest here", "returned"), measured)
    title = "projected: start + work / cores + rest + returned / network"
    table(title, ("", "steps", "here, 2 cores", *(f"{cores} cores" for cores in CORES)), projected)
    note("'here' is measured for the archive, and proportional for more steps")
