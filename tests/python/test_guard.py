"""Forbidden statements, tried one by one: each is rejected by name, or stopped by a limit while memory stays small."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import a2store
from attacker import BEGIN, CORES, MEMORY, MIB, Answer, Attacker
from attacks import BOUNDED, DANGEROUS, FAILING, HARMLESS, LATE, LIMITED, REFUSED
from faults.checks import LONG

TIMED = ("cross join", "cross join and OFFSET", "hash join", "a median in each window", "many counts",
         "unnest of unnested")  # fmt: skip
"""The statements of ``LIMITED`` that only the time limit stops. They keep few rows."""
LIMIT = "exceeded its limit"
linux = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured on Linux only")


def filled(archive: a2store.Archive, sql: str) -> str:
    """Return the statement with the names of files filled in."""
    path = Path(archive.files()[0])
    folder = Path(archive.path)
    names = {"path": path, "relative": path.relative_to(folder), "folder": folder, "host": folder.parent / "other.csv"}
    for name, value in names.items():
        sql = sql.replace(f"{{{name}}}", str(value))
    return sql


@pytest.mark.parametrize("group", REFUSED)
def test_rejected_statements(archive: a2store.Archive, group: str) -> None:
    before = sorted(Path(archive.path).parent.rglob("*"))
    for template, word in REFUSED[group]:
        sql = filled(archive, template)
        with pytest.raises(a2store.QueryError) as caught:
            pa.table(archive.sql(sql))
        message = str(caught.value)
        assert word.lower() in message.lower(), sql[:200]
        assert "panicked" not in message
        assert group != "newlines" or message.isprintable(), sql
        assert len(message) < 1000, sql[:200]
        # The message reveals nothing that the statement did not contain.
        assert str(archive.path) not in message or str(archive.path) in sql
    assert sorted(Path(archive.path).parent.rglob("*")) == before


def test_the_longest_statement(archive: a2store.Archive) -> None:
    for text in ("x", "é"):
        rest = 65_536 - len("SELECT ''")
        value = text * (rest // len(text.encode()))
        value += "y" * (rest - len(value.encode()))
        assert pa.table(archive.sql(f"SELECT '{value}'"))[0].to_pylist() == [value]
        with pytest.raises(a2store.QueryRefusedError, match=r"65537 bytes, expected at most 65536"):
            archive.sql(f"SELECT '{value}y'")


def test_rejections_are_query_errors(archive: a2store.Archive) -> None:
    with pytest.raises(a2store.QueryRefusedError) as caught:
        archive.sql("DROP TABLE steps")
    assert caught.value.kind == "query_refused"
    assert str(caught.value) == "refused: DROP TABLE: a query only reads: expected one SELECT, WITH or VALUES"


@pytest.mark.parametrize(
    "value",
    ["' OR 1 = 1 --", "'; DROP TABLE steps; --", "$1", "$$", "steps", "{folder}", "\0", "\u202e", "a\nb", "version()"],
)
def test_parameters_are_values(archive: a2store.Archive, value: str) -> None:
    value = filled(archive, value)
    assert pa.table(archive.sql("SELECT $1 AS x", [value]))["x"].to_pylist() == [value]
    assert archive.sql("SELECT * FROM runs WHERE engine = $e", {"e": value}).count() == 0
    with pytest.raises(a2store.QueryError):
        archive.sql("SELECT * FROM $1", [value])


@pytest.mark.parametrize(
    "name",
    ["abs", "repeat", "version", "pg_catalog", "a b", 'a"b', "select", "Steps", "é", "a.parquet", "' --"],
)
def test_tables_may_have_any_name(archive: a2store.Archive, name: str) -> None:
    table = pa.table({"a": [1, 2, 3]})
    quoted = '"' + name.replace('"', '""') + '"'
    query = archive.sql(f"SELECT sum(a) AS n FROM {quoted} AS t", tables={name: table})
    assert pa.table(query)["n"].to_pylist() == [6]
    with pytest.raises(a2store.QueryRefusedError, match="table function"):
        archive.sql(f"SELECT * FROM {quoted}(1)", tables={name: table})
    with pytest.raises(a2store.QueryRefusedError, match="the table"):
        archive.sql(f"SELECT * FROM {quoted}.tables", tables={name: table})


def test_plans_name_no_folders(archive: a2store.Archive, tmp_path: Path) -> None:
    path = tmp_path / "labels.parquet"
    pq.write_table(pa.table({"run_id": pa.array([1, 2], pa.uint32()), "label": ["a", "b"]}), path)
    sql = "SELECT * FROM steps JOIN labels USING (run_id) WHERE phase = 'late' ORDER BY board"
    query = archive.sql(sql, tables={"labels": path}, spill_folder=tmp_path)
    for text in (query.explain(), query.explain(analyze=True)):
        assert "DataSourceExec" in text
        assert str(archive.path) not in text
        assert str(tmp_path) not in text


@pytest.mark.parametrize("form", ["EXPLAIN", "EXPLAIN ANALYZE", "EXPLAIN (FORMAT TREE)", "EXPLAIN VERBOSE"])
def test_a_statement_is_no_explain(archive: a2store.Archive, form: str) -> None:
    with pytest.raises(a2store.QueryRefusedError, match=r"EXPLAIN: .* the method `explain` of a query"):
        archive.sql(f"{form} SELECT 1")


@pytest.fixture(scope="module")
def attacker(archive: a2store.Archive, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacker]:
    attacker = Attacker(archive.path, tmp_path_factory.mktemp("attacker"))
    yield attacker
    attacker.stop()


def contained(attacker: Attacker, archive: a2store.Archive, sql: str, **limits: float | None) -> Answer:
    """Return the outcome of a statement, after checking that it did no harm."""
    answer = attacker.ask(sql, **limits)
    try:
        assert not answer.died, answer.said[-300:]
        assert "panicked" not in answer.said
        assert answer.error in ("", "QueryError", "QueryLimitError", "QueryRefusedError"), answer.message
        assert "\n" not in answer.message
        assert str(archive.path) not in answer.message
        assert "worker ended early" not in answer.message
        # The limit does not count a function's argument and result: up to 64 and 128 MiB on each core.
        assert answer.grown < 1.5 * MEMORY + CORES * 256 * MIB
        assert answer.rests
        assert answer.left == []
    except AssertionError:
        # A new process, so that leftovers of this statement do not affect the next one.
        attacker.stop()
        raise
    return answer


@linux
@pytest.mark.parametrize("name", BOUNDED)
def test_results_that_would_be_too_large(attacker: Attacker, archive: a2store.Archive, name: str) -> None:
    answer = contained(attacker, archive, BOUNDED[name], time_limit=None)
    assert answer.error == "QueryRefusedError"
    assert re.fullmatch(
        r"refused: the function .*: (a batch of its values has|its value has|its argument \d must be a literal).*",
        answer.message,
    )


@linux
@pytest.mark.parametrize("name", LIMITED)
def test_queries_that_exceed_a_limit(attacker: Attacker, archive: a2store.Archive, name: str) -> None:
    # Two cores compute until the limit, so a late one costs most of this file's time.
    limits = {"time_limit": 0.15} if name in TIMED and not LONG else {}
    answer = contained(attacker, archive, LIMITED[name], **limits)
    assert answer.error == "QueryLimitError"
    assert LIMIT in answer.message


@linux
@pytest.mark.parametrize("name", LATE)
def test_queries_that_hold_more_than_their_limits(
    archive: a2store.Archive, run_files: list[Path], tmp_path: Path, name: str
) -> None:
    few = a2store.Archive.create(tmp_path / "few.a2")
    few.ingest(run_files[:6], progress=False)
    attacker = Attacker(few.path, tmp_path)
    answer = attacker.ask(LATE[name][0], time_limit=None)
    attacker.stop()
    assert (answer.error, answer.died, answer.rests, answer.left) == ("", "", True, []), answer
    if LONG:
        # The work after the limit grows with the square of the rows.
        (tmp_path / "long").mkdir()
        attacker = Attacker(archive.path, tmp_path / "long")
        answer = attacker.ask(LATE[name][0])
        attacker.stop()
        assert not answer.died, answer.said[-300:]
        assert answer.error in ("", "QueryLimitError"), answer.message


@linux
@pytest.mark.parametrize("name", HARMLESS)
def test_queries_that_only_look_dangerous(attacker: Attacker, archive: a2store.Archive, name: str) -> None:
    assert contained(attacker, archive, HARMLESS[name], time_limit=None).error == ""


@linux
@pytest.mark.parametrize("name", FAILING)
def test_queries_that_fail(attacker: Attacker, archive: a2store.Archive, name: str) -> None:
    answer = contained(attacker, archive, FAILING[name], time_limit=None)
    assert answer.error == "QueryError"
    assert answer.message


@linux
@pytest.mark.parametrize("name", DANGEROUS)
def test_queries_that_would_crash_the_engine(attacker: Attacker, archive: a2store.Archive, name: str) -> None:
    answer = contained(attacker, archive, DANGEROUS[name])
    assert answer.error == "QueryRefusedError"


CALL = re.compile(r'\d+ +(?P<name>\w+)\((?:(?:\d+|AT_FDCWD)<(?P<folder>[^>]*)>, )?(?P<path>"[^"]*")?')
MEASURED = ("/proc/self/status/", "/proc/self/clear_refs/", "/proc/self/task/")
"""Files that ``attacker.py`` itself reads."""
COUNTED = (
    *("/proc/self/cgroup/", "/proc/self/mountinfo/", "/sys/fs/cgroup/", "/sys/devices/system/cpu/online/"),
    "/proc/sys/vm/overcommit_memory/",
)
"""After a time limit, new threads start. Rust's library reads the number of cores that they may use. glibc reads the
number of all cores when threads compete for memory, and the last file before it returns a thread's memory."""


@linux
def test_no_file_or_socket_is_touched(archive: a2store.Archive, tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("there is no strace")
    trace = tmp_path / "trace"
    calls = ("-f", "-qq", "-y", "-s", "4096", "-o", str(trace), "-e", "trace=%file,%network", "-e", "signal=none")
    # With the filter, only traced calls stop the process. Old versions of strace lack the option.
    for command in ((strace, "--seccomp-bpf", *calls), (strace, *calls)):
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            break
    else:
        pytest.skip("nothing can be traced")
    attacker = Attacker(archive.path, tmp_path, command)
    try:
        # A process under a trace is slow. Each group has statements in the sample.
        for group in REFUSED.values():
            for template, _ in group if LONG else group[::4]:
                assert attacker.ask(filled(archive, template)).error.startswith("Query")
        for statements in (BOUNDED, DANGEROUS, FAILING, HARMLESS, LIMITED):
            for sql in [*statements.values()][:: 1 if LONG else 5]:
                assert not attacker.ask(sql, time_limit=0.1).died
        assert attacker.ask("SELECT count(*) FROM runs").error == ""
    finally:
        attacker.stop()
    lines = trace.read_text().splitlines()
    begin = next(number for number, line in enumerate(lines) if BEGIN in line)
    touched = set()
    for line in lines[begin + 1 :]:
        call = CALL.match(line)
        # Other lines are the ends of calls that another thread interrupted.
        if call is None:
            assert "resumed>" in line, line
            continue
        path = os.path.join(call["folder"] or "", (call["path"] or "").strip('"')).removesuffix("/")
        touched.add((call["name"], re.sub(r"^/proc/\d+/", "/proc/self/", path)))
    inside = tuple(f"{Path(folder).resolve()}/" for folder in (archive.path, attacker.spill))
    # The process resolves links in the archive's own path.
    above = {("readlink", str(path)) for path in Path(archive.path).parents} | {("getcwd", "")}
    outside = {call for call in touched if not f"{call[1]}/".startswith(inside)} - above
    assert {call for call in outside if not f"{call[1]}/".startswith((*MEASURED, *COUNTED))} == set()
    assert any(name.startswith("open") and path.startswith(inside[0]) for name, path in touched)
    # Nothing is written in the archive.
    writes = {name for name, path in touched if path.startswith(inside[0])}
    assert writes <= {"openat", "open", "stat", "newfstatat", "statx", "lstat", "access", "faccessat2", "readlink"}
