"""Malicious files and handles: each is rejected with a typed error, without a crash, a hang or large allocations."""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import a2store
import oracle
from faults.shim import python

FOOTER = struct.Struct("<QQIIII8s")


@pytest.fixture
def saved(archive: a2store.Archive, tmp_path: Path) -> Path:
    """Return the file of a table with a column of strings and a column of floats."""
    query = archive.sql("SELECT *, sqrt(max_score) AS root FROM steps WHERE run_id < 5")
    path = tmp_path / "table.npy"
    query.materialize(extra=["root", "phase"], progress=False).save(path, progress=False)
    return path


def rewrite(path: Path, change: Callable[[dict[str, Any]], None] | None = None, runs: bytes | None = None) -> None:
    """Change the contents of the footer and correct its checksum."""
    data = path.read_bytes()
    offset, size, json_len, runs_len, _, _, magic = FOOTER.unpack(data[-FOOTER.size :])
    start = len(data) - FOOTER.size - json_len - runs_len
    meta = json.loads(data[start : start + json_len])
    if change is not None:
        change(meta)
    text = json.dumps(meta).encode()
    runs = data[start + json_len : -FOOTER.size] if runs is None else runs
    head = struct.pack("<QQII", offset, size, len(text), len(runs))
    crc = oracle.crc32c(text + runs + head)
    path.write_bytes(data[:start] + text + runs + head + struct.pack("<II8s", crc, 0, magic))


def extras(meta: dict[str, Any]) -> list[dict[str, Any]]:
    return meta["layout"]["extras"]  # type: ignore[no-any-return]


CHANGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "categories of floats": lambda meta: extras(meta)[0].update(categories=["a"]),
    "categories in no order": lambda meta: extras(meta)[1].update(categories=["b", "a"]),
    "a reserved name": lambda meta: extras(meta)[0].update(name="tokens"),
    "an offset outside of the row": lambda meta: extras(meta)[0].update(offset=2**40),
    "more rows": lambda meta: meta.update(num_rows=2**63),
    "an unknown field": lambda meta: meta.update(more=1),
    "another type": lambda meta: extras(meta)[0].update(dtype="float32"),
}


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_footers_that_contradict_themselves(saved: Path, name: str, mmap: bool) -> None:
    rewrite(saved, CHANGES[name])
    with pytest.raises(a2store.Error, match=r"table\.npy"):
        a2store.StepTable.load(saved, mmap=mmap)


def test_invalid_runs_in_a_saved_table(saved: Path) -> None:
    """Loading does not read the runs; an operation that needs them reports the damage."""
    generator = random.Random(1)
    data = saved.read_bytes()
    _, _, _json_len, runs_len, *_ = FOOTER.unpack(data[-FOOTER.size :])
    runs = data[len(data) - FOOTER.size - runs_len : -FOOTER.size]
    refused = 0
    for _ in range(40):
        mutant = bytearray(runs)
        for _ in range(generator.randrange(1, 4)):
            mutant[generator.randrange(len(mutant))] = generator.choice([0, 1, 0x7F, 0x80, 0xFF])
        rewrite(saved, runs=bytes(mutant[: generator.choice([len(mutant), generator.randrange(1, len(mutant))])]))
        table = a2store.StepTable.load(saved)
        try:
            table.filter(min_score=1, engine="alpha")
        except a2store.DamagedError as error:
            assert "table.npy" in str(error)  # noqa: PT017
            refused += 1
    assert refused > 10


LOAD = """
import resource, sys
import a2store
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), resource.RLIM_INFINITY))
try:
    a2store.StepTable.load(sys.argv[1])
except (a2store.Error, MemoryError) as error:
    print(error.kind)
"""


def test_a_footer_larger_than_memory(saved: Path) -> None:
    size = 5 << 30
    with saved.open("r+b") as file:
        data = file.read()
        file.seek(size)
        rows = len(data) - FOOTER.size
        lengths = (2, 2**32 - 1)
        file.write(struct.pack("<QQII", 0, size - sum(lengths), *lengths) + struct.pack("<II8s", 0, 0, b"A2TABLE\x01"))
    assert rows > 0
    done = python("-c", LOAD, saved)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "memory_limit\n"


def test_a_row_count_whose_size_overflows(tmp_path: Path) -> None:
    """Their size in bytes overflows 64 bits, and so would an unchecked allocation size."""
    header = f"{{'descr': [('board', '|V0')], 'fortran_order': False, 'shape': ({2**59 + 5},), }}"
    for descr in ("('board', '<u8')", "('board', '<u8'), ('x', '|u1')"):
        text = header.replace("('board', '|V0')", descr).encode()
        text += b" " * (118 - len(text) % 128 + 128 - 1) + b"\n"
        path = tmp_path / "rows.npy"
        with path.open("wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text)
            try:
                file.truncate(file.tell() + 8 * (2**59 + 5))
            except OSError:
                file.truncate(1 << 40)
        with pytest.raises((a2store.Error, OSError)):
            a2store.StepTable.load(path)


def test_special_files_are_rejected(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/zero"), Path("/dev/null")):
        for mmap in (False, True):
            with pytest.raises((a2store.Error, OSError)):
                a2store.StepTable.load(path, mmap=mmap)


def unsealed(archive: a2store.Archive) -> tuple[int, bytes]:
    """Return an unsealed copy of a table's memory file, and a handle that refers to it."""
    table = archive.sql("SELECT * FROM steps WHERE run_id < 3").materialize(progress=False)
    handle = table.__reduce__()[1][0]
    place = json.loads(handle)
    file = place["rows"]["file"]
    data = Path(file["path"]).read_bytes()
    copy = os.memfd_create("copy")
    os.write(copy, data)
    status = os.stat(copy)
    file.update(path=f"/proc/{os.getpid()}/fd/{copy}", modified_ns=status.st_mtime_ns, inode=status.st_ino)
    return copy, json.dumps(place).encode()


def test_memory_that_may_change(archive: a2store.Archive) -> None:
    from a2store._a2store import _attach

    copy, handle = unsealed(archive)
    with pytest.raises(a2store.DamagedError, match="sealed"):
        _attach(handle)
    os.close(copy)
