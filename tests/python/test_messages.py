"""Error messages for users: clocks with any time, full disks, and inputs of other kinds.

No call panics. A message says what failed, where, what was expected and what was found, in the words of the system or
the formats.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import a2store
from a2store.selfplay import Recorder
from archives import chunks, grow, simulated
from faults.checks import LONG, assert_none, expect, failures
from faults.shim import IMPORTS, Fault, Shim, python, read_log

# Without warnings of what a format loses.
ENVIRONMENT = IMPORTS | {"PYTHONWARNINGS": "ignore::UserWarning"}
PHRASES = re.compile(r"panicked|inner writer|presence of|unwrap|RUST_BACKTRACE|Option|Err\(|ParquetError|ArrowError")
"""Technical jargon that messages must not contain."""


# Clocks

ALL_THAT_STAMPS = """
import sys
from pathlib import Path
import a2store
import recorder_script
from recorder_script import Recorder
root = Path(sys.argv[1])
a2store.simulate(root / "runs", runs=3, depth=0, progress=False)
archive = a2store.Archive.create(root / "games.a2")
archive.ingest(root / "runs", progress=False)
for target in (root / "selfplay", archive):
    recorder = Recorder(target, tag="v1")
    recorder_script.begin_one(recorder, 7).end(recorder_script.LAST)
    recorder.rotate()
    recorder_script.begin_one(recorder, 8).end(recorder_script.LAST)
    assert recorder.close().durable == 2
archive.refresh()
archive.compact(progress=False)
archive.expire(older_than=0, grace=0)
assert archive.verify(progress=False).problems == []
a2store.convert([root / "runs"], root / "npy", format="npy", progress=False)
a2store.convert([root / "runs"], root / "session", format="session", progress=False)
assert archive.history()[0].time
assert archive.num_runs == 5
"""
QUERY = "import sys, a2store; print(a2store.Archive.open(sys.argv[1]).sql('SELECT count(*) FROM runs').to_arrow())"
TIMES = {0: "1970-01-01", 1 << 33: "2242-03-16"}
"""Python's limit for times: 64 bits of nanoseconds."""


@pytest.mark.parametrize("seconds", TIMES, ids=TIMES.get)
def test_a_clock_may_show_any_time(shim: Shim, tmp_path: Path, seconds: int) -> None:
    done = python("-c", ALL_THAT_STAMPS, tmp_path, environment=ENVIRONMENT | shim.clock(seconds))
    assert (done.returncode, done.stderr) == (0, "")
    archive = a2store.Archive.open(tmp_path / "games.a2")
    assert all(commit.time.date().isoformat() == TIMES[seconds] for commit in archive.history())
    created = json.loads((tmp_path / "npy" / "manifest.json").read_text())["created"]
    assert re.fullmatch(rf"{TIMES[seconds]}T\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)", created), created
    stamps = pa.table(archive.sql("SELECT CAST(ingested_at AS BIGINT) AS ms FROM runs"))["ms"].to_pylist()
    assert {stamp // 1000 for stamp in stamps} == {seconds}
    sessions = [path.parent.name for path in (tmp_path / "selfplay").glob("*_model=v1/metadata.db")]
    assert sessions
    assert all(name.startswith(TIMES[seconds].replace("-", "")) for name in sessions)
    done = python("-c", QUERY, archive.path, environment=ENVIRONMENT | shim.clock(seconds))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("seconds", [-(1 << 40), -5000, 0, 1 << 33, 1 << 42])
def test_a_file_may_have_any_time(tmp_path: Path, seconds: int) -> None:
    archive = simulated(tmp_path, runs=3, depth=0)
    a2store.convert([tmp_path / "runs"], tmp_path / "npy", format="npy", progress=False)
    with Recorder(tmp_path / "selfplay", tag="v1") as recorder:
        game = recorder.begin(1)
        game.push(1, 2)
        game.end(2)
    table = archive.sql("SELECT * FROM steps").materialize(progress=False)
    table.save(tmp_path / "steps.npy")
    for path in tmp_path.rglob("*"):
        os.utime(path, (seconds, seconds))
    archive = a2store.Archive.open(archive.path)
    assert archive.ingest([tmp_path / "runs", tmp_path / "npy", tmp_path / "selfplay"], progress=False).rejected == 0
    for path in tmp_path.rglob("*"):
        os.utime(path, (seconds, seconds))
    assert archive.sql("SELECT * FROM steps").count() == archive.num_steps
    assert pa.table(archive.sql("SELECT board FROM steps")).num_rows == archive.num_steps
    assert len(a2store.StepTable.load(tmp_path / "steps.npy")) == len(table)
    archive.compact(progress=False)
    archive.expire(older_than=0, grace=0)
    assert archive.verify(progress=False).problems == []


# Disks

MAKERS = {
    "simulate": "a2store.simulate(out / 'runs', runs=3, depth=0, progress=False)",
    "ingest": "a2store.Archive.create(out / 'games.a2').ingest(runs, progress=False)",
    "compact": "a2store.Archive.open(out / 'games.a2').compact(progress=False)",
    "table": "archive.sql('SELECT * FROM steps').materialize(progress=False).save(out / 'steps.npy')",
    **{
        f"convert to {name}": f"a2store.convert([runs], out / 'converted', format={name!r}, progress=False)"
        for name in ("a2t1", "a2run2", "a2pack", "packdat", "npy", "session", "macroxue", "jsonl")
    },
    "export": "archive.export_runs('SELECT run_id FROM runs', out / 'exported', progress=False)",
    "recorder": "r = Recorder(out, tag='v1'); begin_one(r, 7).end(9); r.rotate(); r.close()",
}
SCRIPT = """
import sys
from pathlib import Path
import a2store
from recorder_script import Recorder, begin_one
out, runs, archive = Path(sys.argv[1]), Path(sys.argv[2]), a2store.Archive.open(sys.argv[3])
try:
    {}
except (OSError, a2store.Error) as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("maker", MAKERS)
def test_a_full_disk_is_named(shim: Shim, tmp_path: Path, scratch: Path, maker: str) -> None:
    """The disk is full after a given write. For each write, the message has the path and the system's error."""
    runs = tmp_path / "runs"
    a2store.simulate(runs, runs=4, depth=0, progress=False)
    archive = grow(tmp_path / "games.a2", chunks(sorted(runs.iterdir()), 1))

    def make(out: Path, fault: Fault | None = None) -> str:
        out.mkdir()
        if maker == "compact":
            shutil.copytree(archive.path, out / "games.a2")
        environment = ENVIRONMENT | shim.environment(out, out.with_suffix(".log"), fault)
        done = python("-c", SCRIPT.format(MAKERS[maker]), out, runs, archive.path, environment=environment)
        expect((done.returncode, done.stderr) == (0, ""), f"{done.stderr}")
        return done.stdout

    assert make(scratch / "calm") == ""
    writes = [call.number for call in read_log(scratch / "calm.log") if call.kind in ("write", "mkdir", "link")]
    assert writes
    # Two of the first, middle and last write; other makers have other two.
    places = [at for at in range(3) if at != len(maker) % 3]
    chosen = writes if LONG else sorted({writes[at * (len(writes) - 1) // 2] for at in places})

    def one(number: int) -> None:
        said = make(scratch / str(number), Fault(number, "ENOSPC", for_good=True))
        expect("No space left on device" in said and "Error " in said, f"said {said!r}")
        expect(str(scratch / str(number)) in said, f"said {said}")
        expect(not PHRASES.search(said), f"said {said}")

    assert_none(failures(one, chosen), len(chosen))


# Inputs


OTHERS = {
    "rows.jsonl": (
        json.dumps({"run_id": 1, "steps": [{"board": 1, "move": 2}]}).encode(),
        "expected a run, found JSON",
    ),
    "rows.csv": (b"run_id,step_index,board,move\n0,0,17,2\n", "expected a run, found text"),
    "renamed.a2run2": (b"# Games of last week, see the wiki\n", "expected a run, found text"),
    "empty.a2run2": (b"", "expected a run, found an empty file"),
    "cut.a2run2": (
        b"\x05\x00\x00\x00\x00\x00\x00\x00\x07",
        "engine: expected 0 (none) or 1 (its name follows), found 7",
    ),
    "games.parquet": (b"PAR1" + bytes(100) + b"PAR1", None),
    "image.png": (b"\x89PNG\r\n\x1a\n" + bytes(100), None),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_that_is_not_a_run_is_named(tmp_path: Path, name: str) -> None:
    content, expected = OTHERS[name]
    path = tmp_path / "in" / name
    path.parent.mkdir()
    path.write_bytes(content)
    archive = a2store.Archive.create(tmp_path / "games.a2")
    (rejected,) = archive.ingest(path, progress=False).errors
    messages = [rejected.message]
    for read in (
        lambda: a2store.read_run(path),
        lambda: a2store.read_run(content),
        lambda: a2store.convert([path], tmp_path / "out", format="a2run2", progress=False),
        lambda: archive.ingest(path, on_error="raise", progress=False),
    ):
        with pytest.raises(a2store.DecodeError) as raised:
            read()
        messages.append(str(raised.value))
    for message in messages:
        assert expected is None or expected in message
        assert "expected" in message
        assert "found" in message
        assert not PHRASES.search(message)
