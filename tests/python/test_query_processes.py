"""Queries in many threads, and in children of processes that run queries."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import a2store
from archives import plain
from attacks import ENDLESS
from faults.checks import LONG
from faults.shim import python
from threads import HANGS, planned

SORTED = "SELECT board, run_id, step_index FROM steps ORDER BY board, run_id, step_index"
QUERIES = [
    "SELECT board, max_score FROM steps WHERE max_score >= 4000",
    "SELECT phase, engine, count(*) AS n, max(board) AS board FROM steps GROUP BY phase, engine ORDER BY phase, engine",
    f"{SORTED} LIMIT 777",
    "SELECT r.highest_tile, count(*) AS n FROM steps s JOIN runs r USING (run_id) GROUP BY 1 ORDER BY 1",
]


@pytest.mark.parametrize("options", [{}, {"memory_limit": 64 << 20, "time_limit": 3600}], ids=["plain", "limited"])
def test_threads_share_a_query(archive: a2store.Archive, options: dict[str, Any]) -> None:
    turns = 10 if options and not LONG else 50
    queries = [archive.sql(sql, **options) for sql in QUERIES]
    expected = [plain(pa.table(query)) for query in queries]

    def work(number: int) -> int:
        same = 0
        for turn in range(turns):
            at = (number + turn) % len(queries)
            # Half of the queries are made in this thread.
            query = queries[at] if turn % 2 else archive.sql(QUERIES[at], **options)
            same += plain(pa.table(query)).equals(expected[at])
            same += query.count() == len(expected[at])
        return same

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [2 * turns] * 8


def test_the_end_of_a_query_disturbs_no_other(archive: a2store.Archive) -> None:
    """Ending at a time limit retires the threads that other queries run on."""
    expected = pa.table(archive.sql(SORTED))
    sql = f"SELECT a.board + b.board AS x FROM {ENDLESS} ORDER BY x"
    endless = planned(lambda seconds: archive.sql(sql, time_limit=seconds), 0.05)

    def end(_: int) -> str:
        with pytest.raises(a2store.QueryLimitError) as caught:
            endless.explain(analyze=True)
        return str(caught.value).split(":")[0]

    with ThreadPoolExecutor(3) as pool:
        ended = pool.map(end, range(6))
        assert [pa.table(archive.sql(SORTED)).equals(expected) for _ in range(20)] == [True] * 20
        assert set(ended) == {"the query exceeded its limit of time"}


FORKED = """
import os, sys, threading, time
import pyarrow as pa
import a2store
archive = a2store.Archive.open(sys.argv[1])
text, count = sys.argv[2], int(sys.argv[3])
query = archive.sql(text, memory_limit=64 << 20, spill_folder=sys.argv[4])
expected = pa.table(query)
running, failed = True, []
def work():
    while running:
        if not pa.table(query).equals(expected):
            failed.append("parent")
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for turn in range(count):
    # At another moment of the others' work each time.
    time.sleep(0.003 * (turn % 7))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            same = pa.table(query).equals(expected)
            again = archive.sql(text + " LIMIT 99")
            same &= pa.table(again).equals(expected.slice(0, 99)) and query.count() == len(expected)
            same &= a2store.Archive.open(sys.argv[1]).sql("SELECT 1").count() == 1
            status = int(not same)
        finally:
            os._exit(status)
    end = time.monotonic() + float(sys.argv[5])
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, 9)
        time.sleep(0.005)
    if done[1]:
        failed.append(f"child {turn}: {os.waitstatus_to_exitcode(done[1])}")
running = False
for thread in threads:
    thread.join()
del query
print(failed, os.listdir(sys.argv[4]))
"""


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python itself warns of forks beside threads")
def test_forks_while_queries_run(archive: a2store.Archive, tmp_path: Path) -> None:
    done = python("-c", FORKED, archive.path, SORTED, 200 if LONG else 20, tmp_path, HANGS / 2)
    assert (done.stdout, done.stderr, done.returncode) == ("[] []\n", "", 0)


BEGUN = """
import os, signal, sys
import pyarrow as pa
import a2store
query = a2store.Archive.open(sys.argv[1]).sql("SELECT a.board FROM steps a, runs b")
reader = pa.RecordBatchReader.from_stream(query)
reader.read_next_batch()
child = os.fork()
if child == 0:
    signal.alarm(int(sys.argv[2]))
    said = "nothing"
    try:
        while True:
            reader.read_next_batch()
    except pa.ArrowException as error:
        said = str(error)
    del reader
    assert query.count() > 0
    print(said, flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1], sum(map(len, reader)) > 0)
"""


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python itself warns of forks beside threads")
def test_a_stream_stays_with_its_process(archive: a2store.Archive) -> None:
    done = python("-c", BEGUN, archive.path, int(HANGS / 2))
    said, parent = done.stdout.splitlines()
    assert "the stream was started by another process" in said
    assert (parent, done.stderr, done.returncode) == ("0 True", "", 0)
