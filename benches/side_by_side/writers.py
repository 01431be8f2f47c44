"""Many processes that write to one archive at the same time: in a folder, and on S3 behind a proxy with delays.

Each process ingests one run after the other, as often as it can. In a second round, processes are killed and started
again. At the end, the archive must hold each run once.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

from report import Report, note, percentile, table

import a2store

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "python"))
from object_store.proxy import BUCKET, Proxy, endpoint, running

SECONDS = 120.0
IN_FOLDER, ON_S3 = 10, 50
"""The numbers of writers."""
DELAYS = (0.05, 0.5)
"""The shortest and the longest time by which the proxy delays a request, in seconds."""
KILLS_PER_WRITER = 2
"""How often a writer is killed."""

WRITER = """
import json, logging, sys, time
from pathlib import Path
import a2store

lost = 0
class Losses(logging.Handler):
    def emit(self, record):
        global lost
        lost += "another writer committed first" in record.getMessage()
logging.getLogger("a2store.retry").addHandler(Losses())
class Commits(logging.Handler):
    def emit(self, record):
        global attempts
        if record.fields["operation"] == "ingest":
            attempts = lost + 1
commits = logging.getLogger("a2store.commit")
commits.addHandler(Commits())
commits.setLevel(logging.INFO)

location, folder, seed, until = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
archive = a2store.Archive.open(location)
# What a killed process has left.
archive.ingest(folder, progress=False)
while time.time() < until:
    runs = folder / str(seed)
    a2store.simulate(runs, runs=1, seed=seed, depth=0, progress=False)
    lost, attempts, start = 0, 0, time.perf_counter()
    accepted = archive.ingest(runs, progress=False).accepted
    assert accepted == 1, accepted
    print(json.dumps([time.perf_counter() - start, attempts]), flush=True)
    seed += 1
"""


class SlowProxy(Proxy):
    """A proxy that delays each request by a random time, while ``is_slow``."""

    is_slow = False

    def fault(self, request: str) -> None:
        """Delay the request."""
        if self.is_slow:
            time.sleep(random.uniform(*DELAYS))
        super().fault(request)


@contextmanager
def s3() -> Iterator[tuple[str, SlowProxy]]:
    """Start a server and a proxy, and set the environment variables for connections."""
    from object_store.plugin import create_bucket, serve, variables

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="side_by_side-"))
        port = stack.enter_context(serve(Path(folder)))
        create_bucket(port)
        proxy = SlowProxy(port, lambda _: None)
        stack.enter_context(running(proxy))
        stack.enter_context(patch.dict(os.environ, variables(port)))
        os.environ["AWS_ENDPOINT_URL"] = endpoint(proxy.server_port)
        yield f"s3://{BUCKET}/{Path(folder).name}.a2", proxy


class Writer:
    """A process that writes, and is started again after it was killed."""

    def __init__(self, location: str, folder: Path, until: float, kills: int) -> None:
        self.lines: list[tuple[float, int]] = []
        self.num_kills = 0
        self._location, self._folder, self._until, self._kills = location, folder, until, kills
        folder.mkdir()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        """Wait for the end, and check it."""
        self._thread.join()
        assert self.error is None, self.error

    def _run(self) -> None:
        self.error: str | None = "its thread ended early"
        random_times = random.Random(self._folder.name)
        times = sorted(random_times.uniform(0, 1) for _ in range(self._kills))
        begun = time.time()
        kills = [begun + share * (self._until - begun) for share in times]
        for number in range(len(kills) + 1):
            seed = (int(self._folder.name) * 100 + number) * 100_000
            arguments = [self._location, self._folder, seed, self._until]
            process = subprocess.Popen(
                [sys.executable, "-c", WRITER, *map(str, arguments)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            wait = kills[number] - time.time() if number < len(kills) else None
            killed = False
            try:
                out, errors = process.communicate(timeout=None if wait is None else max(wait, 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                killed = True
                out, errors = process.communicate()
                self.num_kills += 1
            # The last line of a killed process can be cut.
            for line in out.splitlines(keepends=True):
                if line.endswith("\n"):
                    self.lines.append(tuple(json.loads(line)))
            if not killed:
                self.error = None if process.returncode == 0 else errors
                return


def check(location: str, folder: Path) -> a2store.Archive:
    """Check that the archive has each run of the folder once, and is sound."""
    archive = a2store.Archive.open(location)
    num_files = sum(1 for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    ids = archive.sql("SELECT count(DISTINCT run_id) AS ids, count(DISTINCT digest) AS digests FROM runs").to_arrow()
    assert ids.to_pylist() == [{"ids": archive.num_runs, "digests": archive.num_runs}]
    assert archive.num_runs == num_files, (archive.num_runs, num_files)
    assert archive.verify().problems == []
    return archive


def measure(
    report: Report, name: str, location: str, writers: int, kills: int, proxy: SlowProxy | None = None
) -> list[str]:
    """Let the writers write, check the archive, and return a line of figures."""
    a2store.Archive.create(location)
    with tempfile.TemporaryDirectory(prefix="side_by_side-") as folder:
        if proxy is not None:
            proxy.is_slow = True
        start = time.time()
        all_writers = [Writer(location, Path(folder) / str(n), start + SECONDS, kills) for n in range(writers)]
        for writer in all_writers:
            writer.join()
        seconds = time.time() - start
        if proxy is not None:
            proxy.is_slow = False
        archive = check(location, Path(folder))
    lines = [line for writer in all_writers for line in writer.lines]
    took, attempts = [line[0] for line in lines], [line[1] for line in lines]
    each = [len(writer.lines) for writer in all_writers]
    report.add(
        "writers", name, commits_per_s=len(lines) / seconds, attempts_p95=percentile(attempts, 95),
        attempts_max=max(attempts), median_s=percentile(took, 50), p95_s=percentile(took, 95),
    )  # fmt: skip
    return [
        name, str(archive.num_runs), f"{len(lines) / seconds:.2f}",
        *(f"{percentile(attempts, percent):.0f}" for percent in (50, 95, 100)),
        *(f"{percentile(took, percent):.2f} s" for percent in (50, 95, 100)),
        f"{min(each)} to {max(each)}", str(sum(writer.num_kills for writer in all_writers)),
    ]  # fmt: skip


def run(report: Report) -> None:
    """Measure writers of a folder and of an object store, without and with kills."""
    lines = []
    with tempfile.TemporaryDirectory(prefix="side_by_side-") as folder:
        for kills in (0, KILLS_PER_WRITER):
            name = "a folder, with kills" if kills else "a folder"
            lines.append(measure(report, name, f"{folder}/{kills}.a2", IN_FOLDER, kills))
    if importlib.util.find_spec("ministack") is None:
        note("ministack, the S3 server, is not installed")
    else:
        with s3() as (url, proxy):
            for kills in (0, KILLS_PER_WRITER):
                name = "S3, with kills" if kills else "S3"
                lines.append(measure(report, name, url.replace(".a2", f"-{kills}.a2"), ON_S3, kills, proxy))
    header = (
        "", "runs", "commits/s", "attempts", "p95", "most", "time", "p95", "longest", "by a writer", "kills",
    )  # fmt: skip
    table(f"writers of one archive: {IN_FOLDER} of a folder, {ON_S3} of S3, {SECONDS:.0f} seconds", header, lines)
