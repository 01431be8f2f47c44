"""Tables shared between processes: the pickle is small, and unpickling gives the same memory."""

from __future__ import annotations

import copy
import gc
import hashlib
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import a2store
from compare import row_keys

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is shared through Linux's memory files")
METHODS = ["fork", "spawn", "forkserver"]
MIB = 1 << 20


def digest(table: a2store.StepTable) -> list[Any]:
    """Return all properties of a table, and its rows by each access path."""
    keys, batch = row_keys(table.loader(700, seed=3)), table.take(range(min(len(table), 10)))
    # In the copy of a view, only the bytes of the fields are defined.
    rows = np.asarray(table)
    columns = [rows[name].tobytes() for name in rows.dtype.names or ()]
    sums = [hashlib.sha256(part).hexdigest() for part in (*columns, keys.tobytes(), batch.tokens.tobytes())]
    return [len(table), table.fingerprint, table.categories, str(table.dtype), table.is_view, *sums]


def digests(tables: list[a2store.StepTable]) -> list[Any]:
    found = [digest(table) for table in tables]
    # The metadata of runs is there too, and the unpickled table can be pickled again.
    filtered = [digest(pickle.loads(pickle.dumps(table.filter(engine="beta", phase="late")))) for table in tables]
    return [found, filtered]


@pytest.fixture
def own(archive: a2store.Archive) -> a2store.StepTable:
    """A table that no other test has pickled."""
    return archive.sql("SELECT * FROM steps").materialize(extra=["engine", "has_evs"], progress=False)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("method", METHODS)
def test_every_way_to_start_a_process(own: a2store.StepTable, tmp_path: Path, method: str) -> None:
    own.save(tmp_path / "table.npy", progress=False)
    mapped = a2store.StepTable.load(tmp_path / "table.npy", mmap=True)
    tables = [own, own.filter(phase=["mid", "late"]), own.split(0.3)[1], own.filter(run_ids=[]), mapped]
    with multiprocessing.get_context(method).Pool(2) as pool:
        found = pool.map(digests, [tables] * 3, chunksize=1)
    assert found == [digests(tables)] * 3


def test_a_handle_is_small(own: a2store.StepTable, archive: a2store.Archive) -> None:
    assert len(pickle.dumps(own)) < 1024
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert digest(pickle.loads(pickle.dumps(own, protocol))) == digest(own)
    view = own.filter(engine="alpha", run_ids=[1, 3])
    assert len(pickle.dumps(view)) < 1024
    again = pickle.loads(pickle.dumps(view))
    assert digest(again) == digest(view)
    assert digest(again.filter(phase="late")) == digest(view.filter(phase="late"))
    for twin in (copy.copy(own), copy.deepcopy(own)):
        assert digest(twin) == digest(own)
    empty = archive.sql("SELECT * FROM steps WHERE run_id > 99").materialize(extra=["engine"], progress=False)
    assert digest(pickle.loads(pickle.dumps(empty))) == digest(empty)


def test_arrays_stay_valid_when_the_table_moves(own: a2store.StepTable) -> None:
    rows = np.asarray(own)
    before = rows.copy()
    batches = iter(own.loader(700, seed=3, prefetch=2))
    first = next(batches)
    with ThreadPoolExecutor(4) as pool:
        handles = list(pool.map(lambda _: pickle.dumps(own), range(8)))
    assert len(set(handles)) == 1
    assert np.asarray(own).ctypes.data == rows.ctypes.data
    assert not rows.flags.writeable
    for name in before.dtype.names or ():
        np.testing.assert_array_equal(rows[name], before[name])
    served = row_keys([first, *batches])
    np.testing.assert_array_equal(served, row_keys(own.loader(700, seed=3)))
    attached = np.asarray(pickle.loads(handles[0]))
    assert not attached.flags.writeable
    assert attached.tobytes() == rows.tobytes()


def test_a_table_in_a_file_is_pickled_by_its_path(
    own: a2store.StepTable, archive: a2store.Archive, tmp_path: Path
) -> None:
    path = tmp_path / "table.npy"
    own.save(path, progress=False)
    mapped = a2store.StepTable.load(path, mmap=True)
    handle = pickle.dumps(mapped)
    assert str(path).encode() in handle
    assert len(handle) < 1024
    assert digest(pickle.loads(handle)) == digest(own)
    view = pickle.dumps(mapped.filter(engine="beta"))

    # A table that was read into memory no longer needs its file.
    read = a2store.StepTable.load(path)
    other = archive.sql("SELECT * FROM steps WHERE phase = 'late'").materialize(path=path, progress=False)
    assert digest(pickle.loads(pickle.dumps(other))) == digest(other)
    for stale in (handle, view):
        with pytest.raises(a2store.DamagedError, match=r"table\.npy"):
            pickle.loads(stale)
    path.unlink()
    for stale in (handle, view):
        with pytest.raises(FileNotFoundError, match=r"table\.npy"):
            pickle.loads(stale)
    assert digest(pickle.loads(pickle.dumps(read))) == digest(own)


def test_a_file_that_was_replaced_before_pickling(own: a2store.StepTable, tmp_path: Path) -> None:
    path = tmp_path / "table.npy"
    own.save(path, progress=False)
    mapped = a2store.StepTable.load(path, mmap=True)
    own.filter(phase="late").save(path, progress=False)
    # The mapping still has the old rows, so the new file must not be used for them.
    try:
        found = digest(pickle.loads(pickle.dumps(mapped)))
    except (a2store.Error, OSError):
        return
    assert found == digest(mapped)


@pytest.mark.parametrize("handle", [b"", b"{}", b"\xff{}", b"[1]", bytes(100)])
def test_bytes_that_are_not_a_handle(handle: bytes) -> None:
    from a2store._a2store import _attach

    with pytest.raises(a2store.DecodeError, match="handle"):
        _attach(handle)


def test_a_changed_handle(own: a2store.StepTable) -> None:
    attach, (handle,) = own.filter(phase="late").__reduce__()
    accepted = 0
    for place in range(0, len(handle), 3):
        changed = bytearray(handle)
        changed[place] ^= 1
        try:
            found = attach(bytes(changed))
        except (a2store.Error, OSError):
            continue
        # Any rows that the handle gives must be rows of the table.
        accepted += 1
        assert len(found.take(range(len(found)))) == len(found) <= len(own)
    assert accepted < len(handle) / 3


def test_a_reused_file_descriptor_is_rejected(archive: a2store.Archive) -> None:
    handle = pickle.dumps(archive.sql("SELECT * FROM steps").materialize(progress=False))
    pid = str(os.getpid())
    gc.collect()
    with pytest.raises(OSError, match=pid):
        pickle.loads(handle)
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(open(__file__, "rb"))
        with pytest.raises((a2store.Error, OSError), match=pid):
            pickle.loads(handle)
    others = [archive.sql("SELECT * FROM steps").materialize(progress=False) for _ in range(10)]
    assert all(pickle.dumps(other) for other in others)
    with pytest.raises((a2store.Error, OSError), match=pid):
        pickle.loads(handle)


# Unrelated processes

OWNER = """
import pickle, sys
import a2store
print("began", *memory(), flush=True)
table = a2store.StepTable.load(sys.argv[1], progress=False)
with open(sys.argv[2], "wb") as file:
    file.write(pickle.dumps(table))
"""
OTHER = """
import pickle, sys
import numpy, a2store
print("began", *memory(), flush=True)
with open(sys.argv[1], "rb") as file:
    table = pickle.load(file)
print("sum", numpy.asarray(table)["board"].sum(), flush=True)
"""
MEMORY = """
def memory():
    def field(file, name):
        with open(file) as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
    rollup = "/proc/self/smaps_rollup"
    return field(rollup, "Pss:"), field("/proc/self/status", "VmHWM:"), field(rollup, "Pss_Shmem:")
"""
COMMANDS = """
for line in sys.stdin:
    if line == "memory\\n":
        print(*memory(), flush=True)
    else:
        with open(line.strip(), "wb") as file:
            file.write(pickle.dumps(table))
        print("pickled", flush=True)
"""


class Process:
    """A process with a table, which reports its memory and may write files to a folder."""

    def __init__(self, folder: Path, code: str, *args: object) -> None:
        command = [sys.executable, "-c", MEMORY + code + COMMANDS, *map(str, args)]
        env = {**os.environ, "TMPDIR": str(folder)}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.before = int(self.read("began")[0])

    def read(self, expected: str) -> list[str]:
        assert self.process.stdout is not None
        first, *rest = self.process.stdout.readline().split()
        assert first == expected
        return rest

    def ask(self, command: object) -> list[str]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def grown(self) -> int:
        """The growth of its memory since before the table, with its share of shared memory."""
        return int(self.ask("memory")[0]) - self.before

    def peak(self) -> int:
        """The growth of its peak memory since before the table."""
        return int(self.ask("memory")[1]) - self.before

    def shared(self) -> int:
        """Its share of the shared memory; the shares of all processes add up to the whole."""
        return int(self.ask("memory")[2])

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def killed(processes: list[Process]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.kill()


def memory_files(process: int) -> set[int]:
    """Return the inodes of memory files with tables that a process has open or mapped."""
    name, found = "/memfd:a2store-table", set()
    for file in Path(f"/proc/{process}/fd").iterdir():
        # The listing includes its own descriptor, which is closed by now.
        with suppress(FileNotFoundError):
            if os.readlink(file).startswith(name):
                found.add(file.stat().st_ino)
    maps = Path(f"/proc/{process}/maps").read_text().splitlines()
    return found | {int(line.split()[4]) for line in maps if name in line}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, int]:
    """A file of 96 MiB of rows, the size of its rows, and the sum of its boards."""
    path = tmp_path_factory.mktemp("large") / "rows.npy"
    dtype = [("board", "<u8"), ("ev_values", "<f4", (4,)), ("run_id", "<u4"), ("step_index", "<u2")]
    rows = np.zeros(3 * MIB, [*dtype, ("move", "|u1"), ("ev_legal", "|u1")])
    rows["board"] = np.random.default_rng(4).integers(0, 2**64, len(rows), "u8")
    np.save(path, rows)
    return path, rows.nbytes, int(rows["board"].sum())


def test_all_processes_have_one_copy(large: tuple[Path, int, int], tmp_path: Path) -> None:
    path, size, total = large
    processes: list[Process] = []
    with killed(processes):
        owner = Process(tmp_path, OWNER, path, tmp_path / "handle")
        processes.append(owner)
        # The table was not in memory twice while it moved.
        assert size * 0.95 < owner.peak() < 1.6 * size
        assert (tmp_path / "handle").stat().st_size < 1024
        for _ in range(3):
            processes.append(Process(tmp_path, OTHER, tmp_path / "handle"))
            assert processes[-1].read("sum") == [str(total)]
        assert 0.99 * size < sum(process.shared() for process in processes) < 1.05 * size
        assert sum(process.grown() for process in processes) < 1.05 * size + 24 * MIB
        held = memory_files(owner.process.pid)
        assert len(held) == 1
        assert all(memory_files(process.process.pid) == held for process in processes)

        # After its owner has ended, no new process can unpickle the table. Processes that have it keep it and can
        # pickle it.
        pid = owner.process.pid
        owner.kill()
        with pytest.raises(OSError, match=str(pid)):
            pickle.loads((tmp_path / "handle").read_bytes())
        assert sum(process.shared() for process in processes[1:]) > 0.99 * size
        assert processes[1].ask(tmp_path / "second") == ["pickled"]
        processes.append(Process(tmp_path, OTHER, tmp_path / "second"))
        assert processes[-1].read("sum") == [str(total)]
        assert sum(process.grown() for process in processes[1:]) < 1.05 * size + 24 * MIB
    # All processes were killed without cleanup, and neither a name nor a memory file of this process remains.
    assert not held & memory_files(os.getpid())
    assert not [name for name in os.listdir("/dev/shm") if "a2store-table" in name]
    assert sorted(os.listdir(tmp_path)) == ["handle", "second"]
