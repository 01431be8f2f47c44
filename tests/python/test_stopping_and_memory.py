"""Interrupted batches and tables, and failed allocations: both raise, and work can continue."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import a2store
import formats
from a2store.selfplay import Recorder
from compare import assert_same, row_keys
from faults.shim import python
from games import play

# More elements than any address space holds; all share one number in memory.
ENDLESS = np.broadcast_to(np.int64(0), (2**45,))
KEYS = ["run_id", "step_index"]
# Two chunks of work and a part of a third.
LARGE = 2_300_000


def test_more_indices_than_memory_holds(table: a2store.StepTable) -> None:
    asked: list[Callable[[], object]] = [
        lambda: table.take(ENDLESS),
        lambda: table.take(ENDLESS.view("u8")),
        lambda: table.filter(run_ids=ENDLESS.view("u8")),
    ]
    for ask in asked:
        with pytest.raises(MemoryError, match="out of memory: 281474976710656 bytes could not be allocated"):
            ask()
    assert len(table.take([1, 2])) == 2


def test_more_boards_than_memory_holds(tmp_path: Path) -> None:
    with Recorder(tmp_path, tag="v1") as recorder:
        game = recorder.begin()
        for boards in (np.broadcast_to(np.uint64(0x11), (2**45,)), np.broadcast_to(np.uint8(1), (2**45, 16))):
            with pytest.raises(MemoryError):
                game.push_batch(boards, np.zeros(2**20, "u1"))
        game.push_batch(np.array([0x11], "u8"), np.array([0], "u1"))
        assert len(game) == 1
        game.abandon()


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> a2store.StepTable:
    """Rows of a megabyte each, in a sparse file."""
    folder = tmp_path_factory.mktemp("wide")
    formats.write_session(folder, [play(random.Random(1), 20)])
    table = a2store.StepTable.from_session(folder, progress=False)
    values = np.lib.format.open_memmap(folder / "wide.npy", "w+", "<f4", (len(table), 2**18))
    del values
    return table.attach("wide", folder / "wide.npy")


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_batch_that_no_address_space_holds(wide: a2store.StepTable, prefetch: int) -> None:
    loader = wide.loader(2**28, replacement=True, num_samples=2**40, prefetch=prefetch)
    for _ in range(2):
        with pytest.raises(MemoryError, match="bytes could not be allocated"):
            next(iter(loader))
    assert loader.state_dict()["position"] == 0
    assert len(next(iter(wide.loader(3, prefetch=prefetch)))) == 3


# Work under an address space limit slightly above the process's current use.
LIMITED = """
import gc, resource, sys
import numpy as np
import a2store
folder, more = sys.argv[1], int(sys.argv[2])
table = a2store.StepTable.load(folder + "/rows.npy", mmap=True)
first = np.asarray(table)["board"][:5].copy()
len(next(iter(table.loader(16, columns=["run_id", "step_index"]))))
table.take(range(10)), table.filter(run_ids=[1])
def limit():
    gc.collect()
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, -1))
{work}
print("alive", (np.asarray(table)["board"][:5] == first).all())
"""
MEGABYTE = 1 << 20
ROWS = 2_000_000


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of two million rows with a weight and a stratum each."""
    folder = tmp_path_factory.mktemp("many")
    names = ["board", "ev_values", "run_id", "step_index", "move", "ev_legal", "weight", "stratum"]
    formats = ["<u8", "(4,)<f4", "<u4", "<u2", "|u1", "|u1", "<f4", "<i2"]
    rows = np.zeros(ROWS, list(zip(names, formats, strict=True)))
    rows["weight"] = 1
    rows["run_id"] = np.arange(ROWS) // 1000
    rows["step_index"] = np.arange(ROWS) % 1000
    rows["stratum"] = np.arange(ROWS) % 2
    np.save(folder / "foreign.npy", rows)
    a2store.StepTable.load(folder / "foreign.npy", progress=False).save(folder / "rows.npy", progress=False)
    return folder


def limited(folder: Path, work: str, more: int) -> str:
    # The limit must leave no memory that was freed or that is reserved for other threads.
    environment = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "131072"}
    done = python("-c", LIMITED.replace("{work}", work), folder, more, environment=environment)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
    return done.stdout


ASKED = [
    "table.loader(weights='weight')",
    "table.loader(strata='stratum')",
    "table.take(indices)",
    "np.asarray(view)",
    "view.rows_array()",
    "next(iter(table.loader(1_500_000, prefetch=0)))",
    "next(iter(table.loader(1_500_000, prefetch=2)))",
]


def test_a_failed_allocation_raises_memory_error(many: Path) -> None:
    work = f"""
indices = np.arange({ROWS})[::-1].copy()
view = table.split(0.4)[0]
limit()
for ask in {ASKED}:
    try:
        eval(ask)
    except MemoryError as error:
        print("refused", error)
"""
    *found, last = limited(many, work, 7 * MEGABYTE).splitlines()
    assert len(found) == len(ASKED)
    for line in found:
        assert line.startswith("refused out of memory: "), line
        assert line.endswith("bytes could not be allocated"), line
    assert last == "alive True"


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_epoch_continues_after_a_failed_allocation(many: Path, prefetch: int) -> None:
    # Kept batches use up the memory. After their release, the epoch continues with the batch that failed. The loop
    # allocates nothing itself but small objects, so that only a batch can fail.
    work = f"""
loader = table.loader(100_000, prefetch={prefetch}, seed=3, columns=["run_id", "step_index", "ev_values"])
batches = iter(loader)
run_ids, steps = np.zeros({ROWS}, "u4"), np.zeros({ROWS}, "u2")
kept, failures, position = [], 0, 0
limit()
while True:
    try:
        batch = next(batches, None)
    except MemoryError:
        failures += 1
        assert kept, "not even one"
        kept.clear()
        batch = None
        continue
    if batch is None:
        break
    run_ids[position : position + len(batch)] = batch.run_id
    steps[position : position + len(batch)] = batch.step_index
    kept.append(batch)
    position += len(batch)
    assert position == loader.state_dict()["position"]
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
served = run_ids * np.uint32(1000) + steps
again = [batch.run_id * 1000 + batch.step_index for batch in table.loader(100_000, seed=3)]
print(failures > 0, (served == np.concatenate(again)).all(), (np.sort(served) == np.arange({ROWS})).all())
"""
    assert limited(many, work, 12 * MEGABYTE) == "True True True\nalive True\n"


def test_tables_under_a_limit_on_the_address_space(many: Path, archive: a2store.Archive, run_files: list[Path]) -> None:
    # The number of rows is unknown, so a naive reservation would take all memory of the machine.
    work = f"""
archive = a2store.Archive.open({str(archive.path)!r})
query = archive.sql("SELECT * FROM steps ORDER BY board LIMIT 1000")
query.materialize(progress=False)
limit()
print(len(query.materialize(progress=False)), len(a2store.StepTable.from_runs({str(run_files[0])!r}, progress=False)))
"""
    expected = len(a2store.StepTable.from_runs(run_files[0], progress=False))
    assert limited(many, work, 256 * MEGABYTE) == f"1000 {expected}\nalive True\n"


# The signal is pending before the work begins. The interpreter handles it only at the next bytecode. C code makes all
# calls between the signal, the work and the record of its end, so there is no bytecode between them.
PENDING = """
import ctypes, operator, signal, sys
from functools import partial
import numpy as np
import a2store
raise_ = ctypes.CDLL(None)["raise"]
table = a2store.StepTable.load(sys.argv[1] + "/rows.npy", mmap=True)
view = table.split(0.0)[0]
indices = np.arange(3_500_000) % len(table)
def was_stopped(work):
    ended = []
    try:
        next(zip(map(raise_, [signal.SIGINT]), map(operator.call, [work]), map(ended.append, ["ended"])))
    except KeyboardInterrupt:
        return not ended
    return "not interrupted"
{work}
"""


def pending(folder: Path, work: str) -> str:
    done = python("-c", PENDING.replace("{work}", work), folder)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


WORKS = [
    "partial(table.take, indices)",
    "partial(view.take, indices)",
    "view.__array__",
    "partial(table.filter, run_ids=range(0, 2000, 3))",
    "partial(view.filter, run_ids=[1])",
    "table.split",
    "partial(table.loader, weights='weight')",
    "partial(table.loader, strata='stratum')",
    "partial(next, iter(table.loader(3_500_000, replacement=True, num_samples=2**40, prefetch=0)))",
    "partial(next, iter(table.loader(1_900_000, prefetch=0)))",
    "partial(next, iter(view.loader(1_900_000, prefetch=0)))",
    "partial(next, iter(table.loader(1_900_000, window=4096, prefetch=0)))",
    "partial(next, iter(table.loader(1_900_000, strata='stratum', prefetch=0)))",
]


def test_a_signal_stops_one_batch(many: Path) -> None:
    asked = "\n".join(f"print(was_stopped({work}))" for work in WORKS)
    assert pending(many, asked) == "True\n" * len(WORKS)


def test_an_interrupted_batch_is_returned_again(many: Path) -> None:
    work = """
options = {"seed": 5, "columns": ["run_id", "step_index"], "prefetch": 0}
loader = table.loader(1_500_000, **options)
expected = np.concatenate([batch.run_id * 1000 + batch.step_index for batch in table.loader(1000, **options)])
batches = iter(loader)
for _ in range(2):
    print(was_stopped(partial(next, batches)), loader.state_dict()["position"])
found = np.concatenate([batch.run_id * 1000 + batch.step_index for batch in batches])
print((found == expected).all(), loader.state_dict()["position"])
"""
    assert pending(many, work) == f"True 0\nTrue 0\nTrue {ROWS}\n"


@pytest.mark.parametrize(
    "order", [{}, {"window": 5000}, {"replacement": True}, {"weights": "weight"}, {"strata": "stratum"}], ids=str
)
def test_a_batch_made_in_pieces_is_the_same(many: Path, order: dict[str, Any]) -> None:
    table = a2store.StepTable.load(many / "rows.npy", mmap=True)
    view = table.filter(run_ids=range(0, 2000, 3))
    for rows in (table, view):
        options: dict[str, Any] = {"seed": 2, "columns": KEYS, **order}
        if "window" not in order and order:
            options["num_samples"] = LARGE
        pieces = row_keys(rows.loader(65_537, **options))
        for prefetch in (0, 2):
            assert_same(row_keys(rows.loader(LARGE, prefetch=prefetch, **options)), pieces)
