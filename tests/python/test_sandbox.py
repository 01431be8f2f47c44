"""``a2store sql --sandbox``: the command reports any failure of a query in one line, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import a2store
from archives import command, run_command
from attacks import ENDLESS, ESCAPES
from threads import HANGS, eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits are complete on Linux only")

SQL = "SELECT run_id, step_index, board FROM steps WHERE max_score >= $min ORDER BY run_id, step_index"
NEVER = f"SELECT count(*) FROM {ENDLESS} WHERE a.board + b.step_index + c.run_id + d.run_id + e.run_id + f.run_id = 3"
HUNGRY = """
    SELECT a.board, a.run_id AS x, b.run_id AS y, b.step_index, count(*) AS n FROM steps a, steps b
    GROUP BY a.board, a.run_id, b.run_id, b.step_index
"""
LONG = f"SELECT a.board FROM {ENDLESS}"
FOREVER = ["--time-limit", "1h"]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, which must be empty at the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def sandboxed(*args: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    return run_command("sql", "--sandbox", *args, status=status)


def children(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def is_alive(process: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def endless(archive: a2store.Archive) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yield the command while it runs an endless query, and the id of the sandboxed process."""
    args = command("sql", "--sandbox", *FOREVER, archive.path, NEVER)
    environment = {**os.environ, "AWS_SECRET_ACCESS_KEY": "secret", "A2STORE_TEST_OTHER": "other"}
    with subprocess.Popen(args, text=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            eventually(lambda: len(children(process.pid)) == 1)
            (child,) = children(process.pid)
            # The query's threads start after the process is sandboxed.
            eventually(lambda: sum(1 for _ in Path(f"/proc/{child}/task").iterdir()) > 1)
            yield process, child
        finally:
            # Terminated rather than killed, it removes its files.
            process.terminate()
    eventually(lambda: not is_alive(child))


@pytest.mark.parametrize("name", ["table", "csv", "json", "parquet", "arrow"])
def test_the_same_rows(archive: a2store.Archive, tmp_path: Path, name: str) -> None:
    args = [archive.path, SQL, "-p", "min=5000", "--format", name, "--max-rows", 7]
    files = [tmp_path / "plain", tmp_path / "sandboxed"]
    assert run_command("sql", *args, "-o", files[0]).stdout == ""
    done = sandboxed(*args, "-o", files[1])
    assert (done.stdout, done.stderr) == ("", "")
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].stat().st_mode == files[1].stat().st_mode
    if name in ("table", "csv", "json"):
        assert sandboxed(*args).stdout.encode() == files[0].read_bytes()


def test_every_option_reaches_the_query(archive: a2store.Archive) -> None:
    for args in (
        [archive.path, "SELECT count(*) FROM runs", "--version", 2],
        [archive.path, SQL, "-p", "min=5000", "--explain"],
        [archive.path, "SELECT CAST($1 AS VARCHAR) || CAST($2 AS VARCHAR) AS both", "-p", "1=--sandbox", "-p", "2=a=b"],
        ["--quiet", "--format", "csv", "--", archive.path, "-- a remark\nSELECT 1"],
    ):
        assert sandboxed(*args).stdout == run_command("sql", *args).stdout


def test_user_tables(archive: a2store.Archive, tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b c"]
    for number, folder in enumerate(folders):
        folder.mkdir()
        runs = pa.table({"run_id": pa.array([number, 7], pa.uint32()), "label": ["x", "y"]})
        pq.write_table(runs, folder / "labels.parquet")
    tables = [f"{name}={folder / 'labels.parquet'}" for name, folder in zip(("one", "two"), folders, strict=True)]
    sql = "SELECT one.run_id, two.label FROM runs JOIN one USING (run_id) JOIN two ON two.run_id = one.run_id"
    args = [archive.path, sql, "--table", tables[0], "--table", tables[1], "--format", "json"]
    done = sandboxed(*args)
    assert done.stdout == run_command("sql", *args).stdout
    assert json.loads(done.stdout)["label"] == "y"
    (folders[1] / "labels.parquet").unlink()
    assert sandboxed(*args, status=2).stdout == ""


LIMITS = ["--memory-limit", "512MiB", "--time-limit", "2s", "--spill-limit", "64MiB", "--format", "json"]


@pytest.mark.parametrize("name", ESCAPES)
def test_statements_that_only_the_sandbox_contains(archive: a2store.Archive, tmp_path: Path, name: str) -> None:
    """Statements that would harm a process with other work; see ``test_guard.py``."""
    sql, _ = ESCAPES[name]
    args = command("sql", "--sandbox", *LIMITS, "-o", tmp_path / "rows.txt", archive.path, sql)
    done = subprocess.run(args, capture_output=True, check=False, timeout=HANGS, text=True)
    assert done.stdout == ""
    assert done.returncode in (0, 1, 2)
    # The result is complete or missing.
    assert (tmp_path / "rows.txt").exists() == (done.returncode == 0)
    if done.returncode == 0:
        assert done.stderr == ""
    else:
        assert done.stderr.startswith("a2store: ")
        assert done.stderr.count("\n") == 1
    assert archive.sql("SELECT * FROM runs").count() == archive.num_runs


def test_ordinary_errors_are_unchanged(archive: a2store.Archive, tmp_path: Path) -> None:
    file = tmp_path / "rows.txt"
    file.write_text("old")
    for args in (
        [archive.path, "SELECT nothing FROM runs"],
        [tmp_path / "none.a2", "SELECT 1"],
        [archive.path, "DROP x"],
    ):
        plain = run_command("sql", *args, status=2)
        for extra in ([], ["-o", file, "--overwrite"]):
            done = sandboxed(*args, *extra, status=2)
            assert (done.stdout, done.stderr) == (plain.stdout, plain.stderr)
    assert "outside" in sandboxed(archive.path, "SELECT 1", "-o", Path(archive.path) / "rows.txt", status=2).stderr
    assert file.read_text() == "old"


def test_a_symbolic_link_to_an_archive(archive: a2store.Archive, tmp_path: Path) -> None:
    link = tmp_path / "link.a2"
    link.symlink_to(archive.path, target_is_directory=True)
    assert sandboxed(link, "SELECT count(*) AS n FROM runs", "--format", "csv").stdout == f"n\n{archive.num_runs}\n"


def test_time(archive: a2store.Archive) -> None:
    start = time.monotonic()
    done = sandboxed("--time-limit", "1s", archive.path, NEVER, status=1)
    assert (done.stdout, done.stderr) == ("", "a2store: query killed: time limit of 1s exceeded\n")
    assert time.monotonic() - start >= 1


def test_memory(archive: a2store.Archive, tmp_path: Path) -> None:
    file = tmp_path / "rows.txt"
    # Less than the program itself needs.
    for extra in ([], ["-o", file]):
        done = sandboxed("--memory-limit", "1MiB", archive.path, "SELECT 1", *extra, status=1)
        assert (done.stdout, done.stderr) == ("", "a2store: query killed: memory limit of 1 MiB exceeded\n")
    assert not file.exists()


def test_a_query_that_exceeds_the_memory_limit(archive: a2store.Archive) -> None:
    """The engine may stop within the limits; otherwise the process is killed."""
    limits = ["--memory-limit", "512MiB", "--spill-limit", "64MiB", *FOREVER]
    args = command("sql", "--sandbox", *limits, archive.path, HUNGRY)
    done = subprocess.run(args, capture_output=True, check=False, timeout=HANGS, text=True)
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert done.stderr.startswith("a2store: ")
    assert any(word in done.stderr.lower() for word in ("memory", "disk", "spill"))


def test_disk(archive: a2store.Archive, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("old")
    output = ["-o", file, "--overwrite"]
    done = sandboxed("--spill-limit", "4MiB", *FOREVER, archive.path, LONG, *output, status=1)
    assert done.stderr == "a2store: query killed: disk limit of 4 MiB exceeded\n"
    assert file.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv", "temporary"]


def test_a_killed_process_is_reported(endless: tuple[subprocess.Popen[str], int]) -> None:
    process, child = endless
    os.kill(child, signal.SIGSEGV)
    assert process.communicate(timeout=HANGS) == ("", "a2store: the query process ended by signal 11 (SIGSEGV)\n")
    assert process.returncode == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_termination_signal_is_handled(endless: tuple[subprocess.Popen[str], int], number: signal.Signals) -> None:
    process, child = endless
    process.send_signal(number)
    assert process.communicate(timeout=HANGS) == ("", "a2store: cancelled\n")
    assert process.returncode == 128 + number
    assert not is_alive(child)


def test_the_process_dies_with_its_parent(endless: tuple[subprocess.Popen[str], int], temporary: Path) -> None:
    process, child = endless
    process.kill()
    eventually(lambda: not is_alive(child))
    # No process is left to remove the parent's files.
    for folder in temporary.iterdir():
        folder.rmdir()


def test_the_rights_of_the_sandboxed_process(endless: tuple[subprocess.Popen[str], int], temporary: Path) -> None:
    _, child = endless
    proc = Path(f"/proc/{child}")
    environment = dict(entry.split("=", 1) for entry in (proc / "environ").read_text().split("\0") if entry)
    assert not environment.keys() & {"AWS_SECRET_ACCESS_KEY", "A2STORE_TEST_OTHER", "PATH"}
    assert Path(environment["TMPDIR"]).parent == temporary
    assert "\nNoNewPrivs:\t1\n" in (proc / "status").read_text()
    limits = {line[:26].strip(): line[26:].split()[:2] for line in (proc / "limits").read_text().splitlines()[1:]}
    assert limits["Max core file size"] == ["0", "0"]
    assert limits["Max file size"] == [str(8 << 30)] * 2
    assert limits["Max address space"][0] != "unlimited"
    assert limits["Max cpu time"][0] != "unlimited"
    assert os.getpgid(child) == child
    # No thread is older than the restrictions, because an older one would lack this flag.
    marked = 0
    for thread in (proc / "task").iterdir():
        # An idle thread may end during the check.
        with suppress(FileNotFoundError, ProcessLookupError):
            assert "\nNoNewPrivs:\t1\n" in (thread / "status").read_text()
            marked += 1
    assert marked > 1


def test_a_reader_that_closes_the_pipe(archive: a2store.Archive) -> None:
    args = command("sql", "--sandbox", *FOREVER, archive.path, LONG, "--format", "csv")
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"board\n"
        process.stdout.close()
        errors = process.stderr.read()
        assert (process.wait(timeout=HANGS), errors) == (0, b"")


def test_the_installed_command(archive: a2store.Archive) -> None:
    script = str(Path(sys.executable).with_name("a2store"))
    args = [script, "sql", "--sandbox", str(archive.path), "SELECT 1 AS x", "--format", "csv"]
    assert subprocess.run(args, capture_output=True, check=True, timeout=HANGS).stdout == b"x\n1\n"


def test_a_package_of_the_same_name_in_the_working_folder_is_not_run(archive: a2store.Archive, tmp_path: Path) -> None:
    (tmp_path / "a2store.py").write_text("raise SystemExit(77)")
    script = str(Path(sys.executable).with_name("a2store"))
    args = [script, "sql", "--sandbox", str(archive.path), "SELECT 1 AS x", "--format", "csv"]
    done = subprocess.run(args, capture_output=True, check=False, timeout=HANGS, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, b"x\n1\n")


def test_wrong_usage(archive: a2store.Archive) -> None:
    assert "--sandboxed" not in run_command("sql", "--help").stdout
    for args in (
        ["--sandboxed", os.getpid()],
        ["--sandbox", "--memory-limit", "1.5GiB"],
        ["--sandbox", "--memory-limit", "much"],
        ["--sandbox", "--memory-limit", "99999999999TiB"],
        ["--sandbox", "--time-limit", "soon"],
    ):
        assert run_command("sql", archive.path, "SELECT 1", *args, status=2).stdout == ""
    # The flag alone does not make a child process.
    done = run_command("sql", archive.path, "SELECT 1", "--sandbox", "--sandboxed", 1, status=1)
    assert "--sandboxed 1: not the parent of this process" in done.stderr
