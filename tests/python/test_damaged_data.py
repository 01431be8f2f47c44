"""Queries and ingest over damaged data files: they may raise an exception, but the process never dies."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

import a2store
from archives import Table, contents, copied, grow, tables
from faults.checks import LONG
from faults.shim import python
from threads import HANGS

POSITIONS = 10**6 if LONG else 8


@pytest.fixture(scope="module")
def template(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(grow(tmp_path_factory.mktemp("template") / "games.a2", [runs[:3], runs[3:6]]).path)


QUERIES = """
import random, sys
import pyarrow as pa, a2store
path, file, table, positions = *sys.argv[1:4], int(sys.argv[4])
with open(file, "rb") as opened:
    good = opened.read()
# Flips everywhere, more of them in the footer and the page indexes before it, and files that are too short.
begin = max(0, len(good) - int.from_bytes(good[-8:-4], "little") - 1500)
draw = random.Random(2048)
flips = [*range(0, len(good), max(1, len(good) // positions)), *draw.choices(range(begin, len(good)), k=4 * positions)]
damages = [(at, draw.randrange(8)) for at in flips] + [(draw.randrange(len(good)), None) for _ in range(positions // 3)]
for at, bit in damages:
    bad = bytearray(good[:at] if bit is None else good)
    if bit is not None:
        bad[at] ^= 1 << bit
    with open(file, "wb") as opened:
        opened.write(bad)
    # Without checksums, the damage reaches the readers. test_flipped_bits.py has queries with checksums.
    archive = a2store.Archive.open(path, checksums=False)
    sqls = [
        f"SELECT * FROM {table}",
        f"SELECT max_score FROM {table} WHERE max_score >= 100 AND run_id < 5",
        f"SELECT engine, max(max_score), min(run_id) FROM {table} GROUP BY engine",
        f"SELECT * FROM {table} WHERE engine = 'alpha' ORDER BY max_score DESC LIMIT 3",
    ]
    works = [lambda sql=sql: pa.table(archive.sql(sql)) for sql in sqls]
    works += [archive.sql(f"SELECT * FROM {table}").count, lambda: a2store.verify(path, progress=False)]
    works += [lambda: a2store.Archive.open(path).compact(progress=False), lambda: a2store.restore(path)]
    if table == "steps":
        works.append(lambda: archive.sql("SELECT * FROM steps").materialize(progress=False))
    # Printed first, so that the last line is this position if the process dies.
    print(at, bit, flush=True)
    for work in works:
        try:
            work()
        except (a2store.Error, OSError):
            pass
        except Exception as error:
            # Arrow's exception for an error in a stream.
            assert type(error).__module__.startswith("pyarrow"), (at, bit, error)
        except BaseException as error:
            raise SystemExit(f"byte {at}, bit {bit}: {type(error).__name__}: {error}")
print("done")
"""


@pytest.mark.parametrize("table", ["steps", "runs"])
def test_work_over_a_damaged_file(fresh: a2store.Archive, table: Table) -> None:
    """Parquet readers panic on some files. Users only see an exception."""
    args = (QUERIES, fresh.path, fresh.files(table)[0], table, POSITIONS)
    done = python("-c", *args, timeout=7200 if LONG else 2 * HANGS)
    last = done.stdout.splitlines()[-1]
    assert (done.returncode, last, done.stderr) == (0, "done", ""), f"after {last}: {done.stderr[-2000:]}"


def with_schema(data: bytes, old: bytes, new: bytes) -> bytes:
    """Return the file with other bytes in the Arrow schema of its footer."""
    assert len(old) == len(new)
    encoded = re.search(rb"[A-Za-z0-9+/]{200,}={0,2}", data[len(data) - 8 - int.from_bytes(data[-8:-4], "little") :])
    assert encoded is not None
    schema = base64.b64decode(encoded[0])
    assert old in schema
    return data.replace(encoded[0], base64.b64encode(schema.replace(old, new)))


NUL = """
import sys
import pyarrow as pa, a2store
query = a2store.Archive.open(sys.argv[1], checksums=False).sql("SELECT * FROM steps")
try:
    pa.table(query)
except Exception as error:
    print(type(error).__name__)
"""


def test_a_message_with_a_null_byte(fresh: a2store.Archive) -> None:
    """The message quotes a column name, and readers of the Arrow stream get it as a C string."""
    path = Path(fresh.files("steps")[0])
    path.write_bytes(with_schema(path.read_bytes(), b"max_score", b"max\0score"))
    done = python("-c", NUL, fresh.path)
    assert done.returncode == 0, (done.returncode, done.stderr[-1000:])
    assert done.stdout.strip() != ""
    assert "panicked" not in done.stderr


def test_ingest_over_damaged_runs(fresh: a2store.Archive, runs: list[Path], tmp_path: Path) -> None:
    """For any damage, ingest adds no run twice, and reports the files that it cannot read."""
    name = Path(fresh.files("runs")[0]).relative_to(fresh.path)
    good = (fresh.path / name).read_bytes()
    before = contents(fresh.path)
    wrong = []
    positions = range(0, len(good), max(1, len(good) // (5 * POSITIONS)))
    for at in positions:
        path = copied(fresh.path, tmp_path / "copy.a2")
        (path / name).write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        there = contents(path)
        opened = a2store.Archive.open(path)
        try:
            report = opened.ingest(runs[:8], progress=False)
        except BaseException as error:
            # A panic is not a subclass of Exception.
            if not isinstance(error, a2store.DamagedError) or error.path != path / name:
                wrong.append(f"byte {at}: {type(error).__name__}: {error}")
            elif contents(path) != there:
                wrong.append(f"byte {at}: something is left")
        else:
            if (report.accepted, report.duplicates) != (2, 6):
                wrong.append(f"byte {at}: {report}")
    assert not wrong, f"{len(wrong)} of {len(positions)}: {wrong[:5]}"
    assert contents(fresh.path) == before


def test_a_missing_file_is_named(fresh: a2store.Archive, runs: list[Path]) -> None:
    for table in ("steps", "runs"):
        path = copied(fresh.path, fresh.path.parent / f"{table}.a2")
        opened = a2store.Archive.open(path)
        file = Path(opened.files("steps" if table == "steps" else "runs")[1])
        file.unlink()
        with pytest.raises(a2store.DamagedError) as caught:
            opened.sql(f"SELECT * FROM {table} WHERE max_score > 7").count()
        assert caught.value.path == file
        assert "no file" in str(caught.value)
        if table == "runs":
            with pytest.raises(a2store.DamagedError) as caught:
                opened.ingest(runs[:8], progress=False)
            assert caught.value.path == file
    # The other table and the other versions still work.
    opened = a2store.Archive.open(fresh.path.parent / "steps.a2")
    assert opened.sql("SELECT max_score FROM runs").count() == 6
    assert len(tables(a2store.Archive.open(opened.path, version=2))["steps"]) == 60
