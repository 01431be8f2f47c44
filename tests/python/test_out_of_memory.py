"""Tables larger than memory: materialized into a file, mapped from it, shuffled within windows."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
from compare import assert_same, row_keys
from test_process import INTERRUPTED, NEVER, python
from threads import HANGS

EXTRAS = ["max_score", "engine", "label", "has_evs"]
# The strings do not arrive in sorted order, so all codes change at the end.
LABEL = "CASE WHEN step_index % 5 = 0 THEN NULL ELSE CAST(9000 - step_index AS VARCHAR) END AS label"
STEPS = f"SELECT *, {LABEL} FROM steps"
QUERIES = [
    STEPS,
    f"{STEPS} WHERE max_score >= 3000 AND phase <> 'early'",
    f"{STEPS} ORDER BY board DESC, run_id",
    f"{STEPS} WHERE move = 1 ORDER BY step_index, run_id LIMIT 3000 OFFSET 7",
    f"{STEPS} LIMIT 5000 OFFSET 11",
    f"{STEPS} WHERE run_id > 99",
    "SELECT s.*, r.engine AS label FROM steps s JOIN runs r USING (run_id) WHERE r.max_score > 3000",
]


@pytest.mark.filterwarnings("ignore:the table leaves out these columns:UserWarning")
@pytest.mark.parametrize("sql", QUERIES)
@pytest.mark.parametrize("extra", [[], EXTRAS], ids=",".join)
def test_a_table_in_a_file_equals_one_in_memory(
    archive: a2store.Archive, tmp_path: Path, sql: str, extra: list[str]
) -> None:
    query = archive.sql(sql)
    expected = query.materialize(extra=extra, progress=False)
    path = tmp_path / "table.npy"
    # A limit on memory does not apply to a file.
    found = query.materialize(extra=extra, path=path, memory_limit=1, progress=False)
    tables = [found, a2store.StepTable.load(path), a2store.StepTable.load(path, mmap=True)]
    for table in tables:
        rows = np.asarray(table)
        assert rows.tobytes() == np.asarray(expected).tobytes()
        assert not rows.flags.writeable
        for name in ("dtype", "stride", "nbytes", "fingerprint", "categories", "is_view"):
            assert getattr(table, name) == getattr(expected, name), name
        assert pa.table(table).schema == pa.table(expected).schema
        assert len(table.filter(engine="alpha", phase="late")) == len(expected.filter(engine="alpha", phase="late"))
    assert len(np.load(path)) == len(expected)
    assert [file.name for file in tmp_path.iterdir()] == ["table.npy"]
    if len(expected) and not extra:
        with pytest.raises(a2store.MemoryLimitError):
            query.materialize(memory_limit=1, progress=False)


@pytest.mark.filterwarnings("ignore:the table leaves out these columns:UserWarning")
def test_the_file_is_replaced_only_when_complete(archive: a2store.Archive, tmp_path: Path) -> None:
    path = tmp_path / "table.npy"
    first = archive.sql(STEPS).materialize(path=path, progress=False)
    rows, content = np.asarray(first).copy(), path.read_bytes()
    wrong = "SELECT * EXCEPT (move), CASE WHEN run_id = 59 THEN 97 ELSE move END AS move FROM steps"
    failures: list[tuple[str, dict[str, Any], Any]] = [
        (wrong, {}, a2store.ColumnError),
        (f"{wrong} ORDER BY board", {}, a2store.ColumnError),
        ("SELECT *, CAST(engine AS INT) AS never FROM steps", {"extra": ["never"]}, a2store.QueryError),
        ("SELECT move FROM steps", {}, a2store.ColumnError),
        (STEPS, {"extra": ["missing"]}, a2store.ColumnError),
        (STEPS, {"chosen_ev": "two"}, ValueError),
    ]
    for sql, options, error in failures:
        with pytest.raises(error):
            archive.sql(sql).materialize(path=path, progress=False, **options)
        assert path.read_bytes() == content
        with pytest.raises(error):
            archive.sql(sql).materialize(path=tmp_path / "new.npy", progress=False, **options)
    assert [file.name for file in tmp_path.iterdir()] == ["table.npy"]
    second = archive.sql(f"{STEPS} WHERE phase = 'late'").materialize(path=path, progress=False)
    assert len(np.load(path)) == len(second) < len(rows)
    assert np.asarray(first).tobytes() == rows.tobytes()


@pytest.mark.parametrize("sql", ["SELECT a.* FROM steps AS a, steps AS b, steps AS c", NEVER])
def test_ctrl_c_leaves_no_file(archive: a2store.Archive, tmp_path: Path, sql: str) -> None:
    (tmp_path / "folder").mkdir()
    setup = f"query = archive.sql('{sql}')"
    work = "query.materialize(path=out + '/table.npy', progress=False)"
    after = "assert os.listdir(out) == [], os.listdir(out)"
    code = INTERRUPTED.format(setup=setup, work=work, after=after)
    assert python(code, archive.path, tmp_path / "folder") == "interrupted\n"


# Writes the table in both ways to a disk, or under a limit, without enough room, and then again with enough room.
FULL = """
import os, sys
import a2store
query = a2store.Archive.open(sys.argv[1]).sql("SELECT * FROM steps")
table = query.materialize(progress=False)
folder = sys.argv[2]
path = os.path.join(folder, "table.npy")
small = table.filter(run_ids=[1])
small.save(path, progress=False)
for write in (lambda: table.save(path, progress=False), lambda: query.materialize(path=path, progress=False)):
    try:
        write()
    except OSError as error:
        print(error.errno, error.filename == path or error)
    assert os.listdir(folder) == ["table.npy"], os.listdir(folder)
    assert a2store.StepTable.load(path).fingerprint == small.fingerprint
"""
EFBIG, ENOSPC = 27, 28


def test_a_full_disk(archive: a2store.Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A separate namespace, so that no other process sees the disk.
    mount = f"mount -t tmpfs -o size=256k none '{tmp_path}'"
    unshare = [shutil.which("unshare") or "unshare", "--mount", "sh", "-c"]
    possible = shutil.which("unshare") and subprocess.run([*unshare, mount], capture_output=True, check=False)
    if not possible or possible.returncode != 0:
        reason = "no disk can be mounted here"
        with capsys.disabled():
            print(f"\ntest_a_full_disk: skipped: {reason}")
        pytest.skip(reason)
    command = [*unshare, f'{mount} && exec "$@"', "sh", sys.executable, "-c", FULL, str(archive.path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=HANGS, text=True)
    assert (done.stdout, done.stderr) == (f"{ENOSPC} True\n" * 2, "")


def test_a_limit_on_the_size_of_files(archive: a2store.Archive, tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    command = [sys.executable, "-c", FULL, str(archive.path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=HANGS, text=True, preexec_fn=limit)
    assert (done.stdout, done.stderr) == (f"{EFBIG} True\n" * 2, "")


@pytest.mark.parametrize("window", [300, 5000])
def test_windows_over_a_file(archive: a2store.Archive, tmp_path: Path, window: int) -> None:
    table = archive.sql(STEPS).materialize(extra=["label"], path=tmp_path / "table.npy", progress=False)
    rows = np.asarray(archive.sql(STEPS).materialize(extra=["label"], progress=False))
    keys = rows["run_id"].astype("u8") << np.uint64(32) | rows["step_index"]
    for source, expected in ((table, keys), (table.filter(phase="late"), row_keys([late(table)]))):
        for epoch in range(2):
            batches = list(source.loader(700, window=window, seed=1, epoch=epoch))
            served = row_keys(batches)
            assert_same(np.sort(served), expected)
            for batch in batches:
                at = np.searchsorted(keys, row_keys([batch]))
                for name in ("board", "move", "ev_values", "label"):
                    assert_same(batch[name], rows[name][at], name)
            # Released pages are read again.
            assert np.asarray(table)["board"].tobytes() == rows["board"].tobytes()


def late(table: a2store.StepTable) -> a2store.Batch:
    view = table.filter(phase="late")
    return view.take(range(len(view)))
