"""One flipped bit in a data file: each query returns the right answer, or an error that names the file."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import a2store
from archives import Table, copied, grow, plain, short_runs
from faults.checks import LONG
from faults.shim import Shim, python, read_log
from packs import flip

POSITIONS = 10**6 if LONG else 25
"""The number of offsets in each file at which a bit is flipped."""

QUERIES = (
    "SELECT * FROM steps",
    "SELECT * FROM runs",
    "SELECT count(*), sum(board), max(ev_up) FROM steps WHERE move = 2",
    "SELECT engine, count(*) FROM steps GROUP BY engine ORDER BY engine",
    "SELECT step_index, board FROM steps WHERE run_id = 4",
    "SELECT count(*) FROM steps WHERE max_score > 250",
    "SELECT run_id, max_score FROM runs WHERE engine = 'alpha' ORDER BY max_score DESC LIMIT 2",
    "SELECT phase, count(*) FROM steps JOIN runs USING (run_id) WHERE source IS NOT NULL GROUP BY phase ORDER BY 1",
)


def answer(archive: a2store.Archive, query: str) -> Any:
    return plain(pa.table(archive.sql(query)))


def exported(archive: a2store.Archive, out: Path) -> bytes:
    archive.export_runs("SELECT run_id FROM runs", out, format="jsonl", progress=False)
    content = out.read_bytes()
    out.unlink()
    return content


def outcome(work: Callable[[a2store.Archive], Any], archive: a2store.Archive) -> Any:
    """Return the result of the work, or the error that it raises."""
    try:
        return work(archive)
    except a2store.DamagedError as error:
        return error


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = short_runs(tmp_path_factory.mktemp("short") / "runs", 8)
    return Path(grow(tmp_path_factory.mktemp("template") / "games.a2", [runs[:5], runs[5:]]).path)


def flipped(template: Path, folder: Path, table: Table) -> Iterator[tuple[Path, Path]]:
    """Yield copies of the archive with a flipped bit in the table's first file, and that file."""
    name = Path(a2store.Archive.open(template).files(table)[0]).relative_to(template)
    size = (template / name).stat().st_size
    for at in range(0, size, max(1, size // POSITIONS)):
        path = copied(template, folder / f"{at}.a2")
        flip(path / name, at, 1 << at % 8)
        yield path, path / name
        shutil.rmtree(path)


@pytest.mark.parametrize("table", ["steps", "runs"])
def test_a_query_raises_an_error_with_the_file_or_returns_the_right_answer(
    template: Path, table: Table, tmp_path: Path
) -> None:
    works: list[tuple[str, Callable[[a2store.Archive], Any]]] = [
        (query, partial(answer, query=query)) for query in QUERIES
    ]
    works.append(("count", lambda archive: archive.sql("SELECT board FROM steps WHERE run_id < 5").count()))
    works.append(
        ("materialize", lambda archive: archive.sql("SELECT * FROM steps").materialize(progress=False).fingerprint)
    )
    works.append(("export", lambda archive: exported(archive, tmp_path / "out.jsonl")))
    sound = a2store.Archive.open(template)
    expected = [work(sound) for _, work in works]
    errors = answers = 0
    for path, file in flipped(template, tmp_path, table):
        archive = a2store.Archive.open(path)
        for (name, work), right in zip(works, expected, strict=True):
            found = outcome(work, archive)
            if isinstance(found, a2store.DamagedError):
                assert (found.path, "CRC32C" in str(found)) == (file, True), (name, found)
                errors += 1
            else:
                assert found == right, f"{file}: {name}"
                answers += 1
    # A query that does not need the file succeeds.
    assert errors > 5 * POSITIONS if not LONG else errors > 0
    assert answers > 0


def test_without_checksums_files_are_not_compared(fresh: a2store.Archive) -> None:
    file = Path(fresh.files("steps")[0])
    # The bit is in the first page of the first column, run_id, which this query does not need.
    flip(file, 40)
    query = "SELECT sum(board % 1000) AS sum FROM steps"
    with pytest.raises(a2store.DamagedError, check=lambda error: error.path == file):
        answer(fresh, query)
    unchecked = a2store.Archive.open(fresh.path, checksums=False)
    assert len(answer(unchecked, query)) == 1
    # Metadata that was read without comparing is not used by queries with checksums.
    for checksums in (None, True):
        with pytest.raises(a2store.DamagedError):
            answer(a2store.Archive.open(fresh.path, checksums=checksums), query)


def test_a_change_after_the_first_read_is_noticed(fresh: a2store.Archive) -> None:
    file = Path(fresh.files("steps")[0])
    good, query = file.read_bytes(), "SELECT sum(board % 1000) AS sum FROM steps"
    right = answer(fresh, query)
    flip(file, len(good) // 2)
    with pytest.raises(a2store.DamagedError):
        answer(fresh, query)
    file.write_bytes(good)
    assert answer(fresh, query) == right


TWICE = """
import sys
from pathlib import Path
import a2store
path = Path(sys.argv[1])
mark = lambda: (path / "mark").read_bytes()
for _ in range(3):
    mark()
    archive = a2store.Archive.open(path)
    assert archive.sql("SELECT board FROM steps WHERE move = 1").count() > 0
mark()
"""


def test_a_process_compares_each_file_once(fresh: a2store.Archive, shim: Shim, tmp_path: Path) -> None:
    root, log = Path(fresh.path), tmp_path / "log"
    (root / "mark").write_bytes(b"")
    done = python("-c", TWICE, root, environment=shim.environment(root, log))
    assert done.returncode == 0, done.stderr
    opened: list[int] = []
    for call in read_log(log):
        if call.kind == "open" and call.path.endswith("/mark"):
            opened.append(0)
        elif call.kind == "open" and "/steps/" in call.path:
            opened[-1] += 1
    first, second, third, rest = opened
    assert rest == 0
    # Each of the two files is opened an extra time for the comparison.
    assert first >= second + 2
    assert second == third > 0
