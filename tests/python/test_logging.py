"""Log records: the library's events in Python's ``logging``, and on standard error of the command."""

from __future__ import annotations

import fcntl
import logging
import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import a2store
import forked
from archives import simulated
from faults import shim
from object_store.proxy import Fault, Faults, Proxy, once

ROOT = Path(__file__).parents[2]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    a2store.simulate(tmp_path / "runs", runs=4, depth=0, seed=1, progress=False)
    return tmp_path / "runs"


def of(caplog: pytest.LogCaptureFixture, name: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == f"a2store.{name}"]


def test_an_ingest_logs_what_it_did(runs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    archive = a2store.Archive.create(tmp_path / "games.a2")
    (runs / "bad.a2run2").write_bytes(b"A2RUN2\0\0 and no more")
    caplog.set_level(logging.INFO, "a2store")
    before = datetime.now(UTC)
    report = archive.ingest(runs, progress=False)
    begin, rejected, end = of(caplog, "ingest")
    [commit] = of(caplog, "commit")
    assert [record.levelname for record in (begin, rejected, end, commit)] == ["INFO", "WARNING", "INFO", "INFO"]
    assert rejected.fields["path"] == str(runs / "bad.a2run2")  # type: ignore[attr-defined]
    assert rejected.fields["reason"] == str(report.errors[0].message)  # type: ignore[attr-defined]
    fields = end.fields  # type: ignore[attr-defined]
    assert (fields["accepted"], fields["rejected"], fields["steps"]) == (4, 1, report.num_steps)
    assert fields["seconds"] > 0
    assert end.getMessage().startswith(
        f"ingest ended archive={archive.path} accepted=4 duplicates=0 twins=0 rejected=1 steps="
    )
    assert (commit.fields["version"], commit.fields["operation"]) == (2, "ingest")  # type: ignore[attr-defined]
    assert all(before.timestamp() - 1e-3 <= record.created for record in caplog.records)
    assert caplog.records.index(commit) < caplog.records.index(end)


def test_queries_tables_and_maintenance_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    archive = simulated(tmp_path, runs=4, depth=0, seed=1)
    caplog.set_level(logging.DEBUG, "a2store")
    sql = "SELECT * FROM steps WHERE move < $m"
    query = archive.sql(sql, {"m": 2})
    rows = sum(pa.record_batch(batch).num_rows for batch in query.to_batches())
    planned, complete = of(caplog, "query")
    assert (planned.fields["sql"], complete.fields["rows"]) == (sql, rows)  # type: ignore[attr-defined]
    assert (planned.levelno, rows > 0) == (logging.DEBUG, True)
    table = query.materialize(progress=False)
    [materialized] = of(caplog, "table")
    assert materialized.fields["rows"] == len(table) == rows  # type: ignore[attr-defined]
    archive.compact(progress=False)
    archive.expire(dry_run=True)
    a2store.restore(archive.path)
    done = [record.getMessage().split(" archive=")[0] for record in of(caplog, "maintenance")]
    assert done == ["compact ended", "expire ended", "restore ended"]


def test_a_recorder_logs_from_its_own_thread(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from a2store import selfplay

    caplog.set_level(logging.INFO, "a2store.recorder")
    with selfplay.Recorder(tmp_path, tag="v1") as recorder:
        for _ in range(3):
            game = recorder.begin()
            game.push(0x1000_0000_0000_0001, 0)
            game.end()
        assert recorder.rotate() == 3
        started, wrote = of(caplog, "recorder")
        assert started.getMessage().startswith("started a recorder")
        assert (wrote.fields["games"], wrote.fields["steps"]) == (3, 3)  # type: ignore[attr-defined]
    assert of(caplog, "recorder")[-1].getMessage().startswith("closed a recorder")


def test_levels_are_those_of_the_loggers(runs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    archive = a2store.Archive.create(tmp_path / "games.a2")
    caplog.set_level(logging.WARNING, "a2store")
    archive.ingest(runs, progress=False)
    assert caplog.records == []
    # A logger further down has its own level.
    caplog.set_level(logging.DEBUG, "a2store.query")
    archive.sql("SELECT 1").to_arrow()
    assert {record.name for record in caplog.records} == {"a2store.query"}
    caplog.clear()
    logging.disable(logging.CRITICAL)
    try:
        archive.sql("SELECT 1").to_arrow()
    finally:
        logging.disable(logging.NOTSET)
    archive.refresh()
    assert caplog.records == []


def test_waiting_for_a_lock_is_logged(runs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    archive = a2store.Archive.create(tmp_path / "games.a2")
    caplog.set_level(logging.INFO, "a2store")
    with (tmp_path / "games.a2" / "_versions" / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(a2store.ConflictError):
            archive.ingest(runs, wait=0.01, progress=False)
    [waiting] = of(caplog, "retry")
    assert waiting.getMessage().startswith(f"waiting for another writer's lock archive={archive.path}")


def test_a_repeated_request_is_logged(
    url: str, through: Callable[[Faults], Proxy], runs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    a2store.Archive.create(url).ingest(runs, progress=False)
    caplog.set_level(logging.DEBUG, "a2store")
    with through(once(r"GET .*\.parquet", Fault("503", performed=False))):
        assert a2store.Archive.open(url).sql("SELECT sum(move) FROM steps").to_arrow().num_rows == 1
    assert any("retry" in record.getMessage().lower() for record in of(caplog, "object_store")), caplog.records


def test_a_filter_that_raises_stops_work(runs: Path, tmp_path: Path) -> None:
    """Its exception has the effect of Ctrl-C. Here the work waits for a lock that is never released."""

    class Refuse(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise RuntimeError("no more")

    archive = a2store.Archive.create(tmp_path / "games.a2")
    logger, refuse = logging.getLogger("a2store.retry"), Refuse()
    logger.addFilter(refuse)
    logger.setLevel(logging.INFO)
    try:
        with (tmp_path / "games.a2" / "_versions" / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(RuntimeError, match="no more"):
                archive.ingest(runs, wait=None, progress=False)
    finally:
        logger.removeFilter(refuse)
        logger.setLevel(logging.NOTSET)
    assert archive.ingest(runs, progress=False).accepted == 4


QUIET = """
import logging, sys, a2store
archive = a2store.Archive.create(sys.argv[1])
report = archive.ingest(sys.argv[2])
assert report.rejected == 1
"""

FORKED = """
import logging, os, sys, threading, a2store
logging.basicConfig(level=logging.INFO, format="%(process)d %(name)s %(message)s", stream=sys.stdout)
archive = a2store.Archive.create(sys.argv[1])
archive.ingest(sys.argv[2], progress=False)
sys.stdout.flush()
child = os.fork()
if child == 0:
    other = a2store.Archive.open(sys.argv[1])
    other.ingest(sys.argv[2], progress=False)
    sys.stdout.flush()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def python(code: str, *args: object, **environment: str) -> subprocess.CompletedProcess[str]:
    done = shim.python("-c", code, *args, environment=environment)
    assert done.returncode == 0, done.stderr
    return done


def test_without_handlers_nothing_is_printed(runs: Path, tmp_path: Path) -> None:
    (runs / "bad.a2run2").write_bytes(b"A2RUN2\0\0 and no more")
    done = python(QUIET, tmp_path / "games.a2", runs)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_forked_child_logs_too(runs: Path, tmp_path: Path) -> None:
    done = python(FORKED, tmp_path / "games.a2", runs)
    ended = re.findall(r"^(\d+) a2store\.ingest ingest ended .* accepted=(\d)", done.stdout, re.MULTILINE)
    assert [accepted for _, accepted in ended] == ["4", "0"]
    assert len({process for process, _ in ended}) == 2


def test_the_page_lists_every_logger() -> None:
    sources = [
        path.read_text() for folder in ("src", "cli", "explore", "python/src") for path in (ROOT / folder).rglob("*.rs")
    ]
    targets = {target for source in sources for target in re.findall(r'target: "a2store::(\w+)"', source)}
    forwarded = set(
        re.findall(
            r'"(?:a2store::\w+|object_store)", "a2store\.(\w+)"', (ROOT / "python/src/support/logging.rs").read_text()
        )
    )
    listed = set(re.findall(r"^\| `a2store\.(\w+)` \|", (ROOT / "docs/logging.md").read_text(), re.MULTILINE))
    assert len(targets) >= 7
    assert forwarded == listed == targets | {"object_store"}


LINE = re.compile(r"\d{4}-\d\d-\d\dT\S+ +(ERROR|WARN|INFO|DEBUG|TRACE) (\S+): ")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, set()),
        ({"RUST_LOG": "a2store=info"}, {"a2store::ingest", "a2store::commit"}),
        ({"RUST_LOG": "a2store::commit=info"}, {"a2store::commit"}),
        ({"RUST_LOG": "warn"}, set()),
    ],
)
def test_the_command_logs(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: set[str]
) -> None:
    monkeypatch.delenv("RUST_LOG", raising=False)
    done = forked.run("ingest", "--json", runs, tmp_path / "games.a2", environment=environment)
    assert (done.returncode, '"accepted":4' in done.stdout) == (0, True), done
    lines = [LINE.match(line) for line in done.stderr.splitlines()]
    assert all(lines), done.stderr
    assert {line[2] for line in lines if line} == expected


def test_a_wrong_filter_is_a_usage_error(tmp_path: Path) -> None:
    done = forked.run("info", tmp_path, environment={"RUST_LOG": "a2store=loud"})
    assert done.returncode == 2
    assert done.stderr.startswith("a2store: RUST_LOG: ")
    assert "loud" in done.stderr


def test_progress_is_lines_without_a_terminal(runs: Path, tmp_path: Path) -> None:
    def ingest(*options: object, **environment: str) -> str:
        archive = tmp_path / f"{len(list(tmp_path.iterdir()))}.a2"
        done = forked.run(*options, "ingest", runs, archive, environment=environment)
        assert done.returncode == 0, done.stderr
        return done.stderr

    printed = ingest(A2STORE_PROGRESS_SECONDS="0").splitlines()
    assert len(printed) > 1
    # Before the size of the input is known, a line has no share.
    assert re.fullmatch(r"ingest: [\d.]+ k?B( of [\d.]+ k?B \(\d+ %\))?(, .*/s)?(, .* left)?", printed[0])
    assert re.fullmatch(r"ingest: [\d.]+ k?B in \d\d:\d\d:\d\d", printed[-1])
    # By default, short work prints no line.
    assert ingest(A2STORE_PROGRESS_SECONDS="1e9") == ""
    assert ingest("--quiet", A2STORE_PROGRESS_SECONDS="0") == ""
    lines = "import sys, a2store; a2store.simulate(sys.argv[1], runs=3, depth=0, progress={})"
    shown = python(lines.format("None"), tmp_path / "a", A2STORE_PROGRESS_SECONDS="0").stderr.splitlines()
    assert shown[-1].startswith("simulate: 3 runs in ")
    assert python(lines.format("False"), tmp_path / "b", A2STORE_PROGRESS_SECONDS="0").stderr == ""
