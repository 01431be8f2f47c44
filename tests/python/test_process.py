"""Signals, forks and threads in a process that uses the library."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import a2store
from attacks import ENDLESS
from compare import row_keys
from faults.shim import python as run_python

# A thread sends the signal. It can run only once the main thread has released the interpreter inside the work, because
# the switch interval is far longer than the test. The work is far longer than the test too, so it must have been
# stopped.
INTERRUPTED = """
import os, signal, sys, threading
import a2store
sys.setswitchinterval(10_000)
go = threading.Event()
def interrupt():
    go.wait()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
archive = a2store.Archive.open(sys.argv[1])
out, files = sys.argv[2], sys.argv[3:]
{setup}
try:
    go.set()
    {work}
except KeyboardInterrupt:
    print("interrupted")
else:
    print("done")
{after}
"""
GROWS = f"SELECT a.board FROM {ENDLESS}"
NEVER = f"SELECT a.board FROM {ENDLESS} WHERE a.board + b.step_index + c.run_id + d.run_id + e.run_id + f.run_id = 3"
"""A query that scans endlessly and finds no rows."""


def python(code: str, *args: object) -> str:
    done = run_python("-W", "error", "-c", code, *args)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


COUNTS_AGAIN = "assert archive.sql('SELECT * FROM steps').count() == archive.num_steps"


@pytest.mark.parametrize(
    ("setup", "work", "after"),
    [
        ("", "a2store.simulate(out, runs=100_000, depth=3, progress=False)", ""),
        (f"query = archive.sql('{GROWS}')", "query.materialize(memory_limit=10**15, progress=False)", COUNTS_AGAIN),
        (
            "other = a2store.Archive.create(out)",
            "other.ingest(files * 20_000, progress=False)",
            "assert other.version == a2store.Archive.open(out).version == 1\n"
            "assert other.ingest(files, progress=False).accepted == len(files)",
        ),
    ],
    ids=["simulate", "materialize", "ingest"],
)
def test_ctrl_c(
    archive: a2store.Archive, run_files: list[Path], tmp_path: Path, setup: str, work: str, after: str
) -> None:
    """test_limits.py interrupts the other calls of a query."""
    code = INTERRUPTED.format(setup=setup, work=work, after=after)
    assert python(code, archive.path, tmp_path / "out", *run_files) == "interrupted\n"


def test_a_user_signal_handler(archive: a2store.Archive, tmp_path: Path) -> None:
    setup = f"""
class Stop(Exception): pass
def stop(number, frame): raise Stop("enough")
signal.signal(signal.SIGINT, stop)
query = archive.sql('{NEVER}')"""
    code = INTERRUPTED.format(setup=setup, work="query.count()", after="").replace("KeyboardInterrupt", "Stop")
    assert python(code, archive.path, tmp_path) == "interrupted\n"


FORKED = """
import os, sys
import numpy as np, pyarrow as pa
import a2store
archive = a2store.Archive.open(sys.argv[1])
query = archive.sql("SELECT * FROM steps WHERE max_score > $1", [0])
table = query.materialize(progress=False)
loader = table.loader(1000, seed=1)
begun = iter(table.loader(1000, seed=2))
left = iter(table.loader(1000, seed=2))
next(begun), next(left)
def digest():
    loader.set_epoch(0)
    served = [batch.board.sum() for batch in loader]
    again = archive.sql("SELECT * FROM steps").materialize(progress=False)
    return served, query.count(), pa.table(query).num_rows, np.asarray(again).tobytes() == np.asarray(table).tobytes()
expected = digest()
assert expected[1:] == (len(table), len(table), True)
child = os.fork()
if child == 0:
    status = 1
    try:
        status = int(digest() != expected)
        # The thread that made the batches is not here.
        rest = sum(len(batch) for batch in begun)
        status |= int(rest != len(table) - 1000)
        del left
    finally:
        os._exit(status)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert digest() == expected
assert sum(len(batch) for batch in begun) == len(table) - 1000
print("same")
"""


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python itself warns of forks beside threads")
def test_a_forked_child_can_continue(archive: a2store.Archive) -> None:
    assert python(FORKED, archive.path) == "same\n"


CALLED_AT_EXIT = """
import atexit, os, sys, threading, time
import numpy as np
import a2store, a2store.selfplay
archive = a2store.Archive.open(sys.argv[1])
called, ending = threading.Event(), threading.Event()
atexit.register(ending.set)
def function(*args):
    if not ending.is_set():
        called.set()
        ending.wait()
        time.sleep(0.2)
        os.write(1, b"returned\\n")
    return np.zeros(len(args[0]), np.int8)
threading.Thread(target=lambda: {work}, daemon=True).start()
assert called.wait(60)
"""


USED_AT_EXIT = """
import atexit, sys, threading
ending = threading.Event()
def work():
    ending.wait()
    print(archive.sql("SELECT 1").count(), flush=True)
thread = threading.Thread(target=work, daemon=True)
def end():
    ending.set()
    thread.join(60)
atexit.register(end)
import a2store
archive = a2store.Archive.open(sys.argv[1])
thread.start()
"""


def test_a_function_of_atexit_waits_for_a_thread_that_uses_an_archive(archive: a2store.Archive) -> None:
    assert python(USED_AT_EXIT, archive.path) == "1\n"


@pytest.mark.parametrize("work", ["a2store.selfplay.play(function, num_games=8)", "archive.verify(progress=function)"])
def test_the_process_ends_while_a_thread_calls_a_function(archive: a2store.Archive, work: str) -> None:
    assert python(CALLED_AT_EXIT.format(work=work), archive.path) == "returned\n"


def test_threads_share_everything(archive: a2store.Archive, table: a2store.StepTable) -> None:
    loader = table.loader(1000, seed=1)
    expected = row_keys(loader)
    rows = pa.table(archive.sql("SELECT board FROM steps"))

    def work(number: int) -> bool:
        order = np.random.default_rng(number).integers(0, len(table), 5_000)
        boards = table.take(order).board
        same = bool((boards == np.asarray(table)["board"][order]).all())
        same &= bool((row_keys(table.loader(500 + number, seed=1)) == expected).all())
        return same and bool(pa.table(archive.sql("SELECT board FROM steps")) == rows)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(32))) == [True] * 32
