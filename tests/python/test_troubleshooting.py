"""Each cause in docs/troubleshooting.md raises the message of its row."""

from __future__ import annotations

import fcntl
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import a2store
from archives import forge, grow, manifest_path, run_command, short_runs
from attacks import ENDLESS
from faults.shim import Fault, Shim, read_log
from packs import flip

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
CELLS = re.findall(r"^\| (`.*?) \|", PAGE.read_text(), re.MULTILINE)
MESSAGES = [message for cell in CELLS for message in re.findall("`([^`]+)`", cell)]
STEPS = "SELECT * FROM steps"
ROWS = "(SELECT a.board, b.board, c.board, d.board FROM steps a, steps b, steps c, steps d) AS {}(a, b, c, d)"


def rows(archive: a2store.Archive, sql: str = STEPS, **options: object) -> object:
    return archive.sql(sql, **options).to_arrow()  # type: ignore[arg-type]


def table(archive: a2store.Archive, **options: object) -> a2store.StepTable:
    return archive.sql(STEPS).materialize(progress=False, **options)  # type: ignore[arg-type]


def moved(archive: a2store.Archive, sql: str = STEPS, seed: int = 1) -> None:
    """Give the state of a loader to a loader that has other rows or another seed."""
    state = table(archive).loader(16, seed=1).state_dict()
    archive.sql(sql).materialize(progress=False).loader(16, seed=seed).load_state_dict(state)


def printed(archive: a2store.Archive, data: bytes) -> str:
    """Return what the command prints when it ingests a file with this content."""
    file = archive.path.parent / "file"
    file.write_bytes(data)
    done = run_command("ingest", file, archive.path, status=1)
    return done.stdout + done.stderr


def truncated(archive: a2store.Archive, num_bytes: int) -> str:
    """Return what the command prints for a run without its last bytes."""
    (run,) = short_runs(archive.path.parent / "more", 1)
    return printed(archive, run.read_bytes()[:-num_bytes])


def cut_pool(archive: a2store.Archive, form: Any) -> str:
    """Return what the command prints for the first half of a pack, or of the rows of a dataset."""
    pool = archive.path.parent / "pool"
    a2store.convert(short_runs(archive.path.parent / "more", 3), pool, format=form, progress=False)
    file = pool / "steps.npy" if pool.is_dir() else pool
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    done = run_command("ingest", pool, archive.path, status=1)
    return done.stdout + done.stderr


def waited(archive: a2store.Archive) -> None:
    with (archive.path / "_versions" / ".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        archive.ingest(archive.path.parent, wait=0.01, progress=False)


def disturbed(archive: a2store.Archive, request: pytest.FixtureRequest, failure: str) -> str:
    """Return the output of an ingest whose first sync after the commit fails, or on a full disk the first write."""
    disk = archive.path.parent
    shim: Shim = request.getfixturevalue("shim")
    shutil.copytree(archive.path, disk / "calm.a2")
    more = short_runs(disk / "more", 1, steps=7)
    # Only calls on the archive are counted: threads read the run in no fixed order.
    shim.run(disk / "calm.a2", "ingest", *more, disk / "calm.a2", log=disk / "log")
    calls = [call for call in read_log(disk / "log") if call.changes]
    commit = next(call.number for call in calls if call.other.endswith(".json"))
    late, kind = (True, "sync") if failure == "EIO" else (False, "write")
    at = next(call.number for call in calls if call.kind == kind and (call.number > commit) == late)
    return shim.run(archive.path, "ingest", *more, archive.path, fault=Fault(at, failure)).stderr


def with_steps(archive: a2store.Archive, change: Callable[[Path], None]) -> object:
    change(Path(archive.files("steps")[0]))
    return rows(a2store.open(archive.path))


def cut(archive: a2store.Archive) -> None:
    path = manifest_path(archive.path, archive.version)
    path.write_bytes(path.read_bytes()[:-9])
    a2store.open(archive.path)


def other_schema(archive: a2store.Archive) -> None:
    forge(archive.path, archive.version, lambda fields: fields.update(schema_version=2))
    a2store.open(archive.path)


def loaded(archive: a2store.Archive) -> None:
    path = archive.path.parent / "rows.table"
    table(archive).save(path)
    flip(path, 5000)
    a2store.StepTable.load(path)


def with_embeddings(archive: a2store.Archive) -> None:
    folder = archive.path.parent / "session"
    archive.export_runs("SELECT run_id FROM runs", folder, format="session", progress=False)
    steps = a2store.StepTable.from_session(folder, progress=False)
    np.save(folder / "embeddings.npy", np.zeros((len(steps), 2), np.float32))
    steps.attach("embedding", folder / "embeddings.npy").loader(16, symmetries=True)


CAUSES: dict[str, Callable[[a2store.Archive, Path, pytest.FixtureRequest], object]] = {
    "not an archive: expected manifests in its folder _versions, found none": lambda a, folder, _: a2store.open(folder),
    "an archive already exists": lambda a, *_: a2store.Archive.create(a.path),
    "schema version …, but this a2store reads …": lambda a, *_: other_schema(a),
    "version …: expected …": lambda a, *_: a2store.open(a.path, version=9),
    "version: expected …, found NAME": lambda a, *_: a2store.open(a.path, version="best"),
    "s3://…: Generic S3 error: …": lambda *_: a2store.open(
        "s3://bucket/games.a2", storage_options={"endpoint": "http://127.0.0.1:1", "allow_http": "true"}
    ),
    "damaged: end of the file: expected a checksum, …": lambda a, *_: cut(a),
    "… rejected": lambda a, *_: truncated(a, 1),
    "…: expected …, found … before the end": lambda a, *_: truncated(a, 1),
    "number of steps: expected at most … in the bytes before the end": lambda a, *_: truncated(a, 590),
    "num_steps: expected at most as many as … bytes can hold": lambda a, *_: cut_pool(a, "packdat"),
    "length of the file: expected … bytes, the end of … rows": lambda a, *_: cut_pool(a, "npy"),
    "CRC32C of the footer: expected …": lambda a, *_: cut_pool(a, "a2pack"),
    "content: expected a run, found text": lambda a, *_: printed(a, b"# Games of last week\n"),
    "another process is writing to it, after … s of waiting": lambda a, *_: waited(a),
    "commit of version … not confirmed": lambda a, _, request: disturbed(a, request, "EIO"),
    "No space left on device": lambda a, _, request: disturbed(a, request, "ENOSPC"),
    "No field named …": lambda a, *_: rows(a, "SELECT bord FROM steps"),
    "refused: the table …: a query only reads these tables": lambda a, *_: rows(a, "SELECT * FROM 'labels.csv'"),
    "refused: …: DataFusion answers it wrongly or cannot plan it": lambda a, *_: rows(
        a, "SELECT run_id FROM runs WHERE run_id NOT IN (SELECT run_id FROM steps) OR run_id = 1"
    ),
    "no value for the parameters …": lambda a, *_: rows(a, "SELECT * FROM runs WHERE run_id = $a"),
    "the query exceeded its limit of memory: …": lambda a, *_: rows(
        a, f"SELECT count(*) FROM {ROWS.format('p')} JOIN {ROWS.format('q')} USING (a, b, c, d)", memory_limit=32 << 20
    ),
    "the query exceeded its limit of spill: …": lambda a, *_: rows(
        a, f"SELECT * FROM {ROWS.format('p')} ORDER BY d, c, b, a", memory_limit=32 << 20, spill_limit=1
    ),
    "the query exceeded its limit of rows: …": lambda a, *_: rows(a, row_limit=5),
    "… bytes: …": lambda a, *_: rows(a, byte_limit=5),
    "… time: …": lambda a, *_: rows(a, f"SELECT max(a.board + f.board) FROM {ENDLESS}", time_limit=0.05),
    "damaged: CRC32C of the file: expected …": lambda a, *_: with_steps(a, lambda path: flip(path, -99)),
    "damaged: data file: expected a file of … bytes, found no file": lambda a, *_: with_steps(a, Path.unlink),
    "column …: expected a column of boards": lambda a, *_: a.sql("SELECT move FROM steps").materialize(),
    "the table needs at least … bytes, but its memory limit is …": lambda a, *_: table(a, memory_limit=1),
    "loader state does not match: num_rows: …": lambda a, *_: moved(a, STEPS + " WHERE move = 1"),
    "loader state does not match: seed: …": lambda a, *_: moved(a, seed=2),
    "CRC32C of the rows: expected …": lambda a, *_: loaded(a),
    "symmetries: expected false with the attached column …": lambda a, *_: with_embeddings(a),
}


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_raised(message: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    archive = grow(tmp_path / "games.a2", [short_runs(tmp_path / "runs", 3)])
    (tmp_path / "folder").mkdir()
    try:
        text = str(CAUSES[message](archive, tmp_path / "folder", request))
    except (a2store.Error, OSError, TypeError, ValueError) as error:
        text = str(error)
    pattern = ".*".join(re.escape(part) for part in re.split("…|NAME", message))
    assert re.search(pattern, text, re.DOTALL), text


def test_each_cause_has_a_row() -> None:
    assert sorted(MESSAGES) == sorted(CAUSES)
