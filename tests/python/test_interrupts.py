"""Ctrl-C during calls that wait for an event that never happens: a pipe, a network response."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import a2store
from archives import command, grow, manifest_path, names, short_runs
from faults.shim import python
from threads import HANGS, eventually

SCRIPT = """
import os, signal, sys, threading
from pathlib import Path
import a2store

def interrupt_once(ready):
    # Called when the interrupted call is certain to wait.
    def wait():
        ready()
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=wait, daemon=True).start()

held = []

def reads(path):
    # Opening a pipe for writing waits for a reader, which then waits for data.
    return lambda: held.append(os.open(path, os.O_WRONLY))

path = Path(sys.argv[1])
manifest = lambda version: path / "_versions" / f"{2**64 - 1 - version:020}.json"

def pipe(file):
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    interrupt_once(reads(file))
"""


def interrupted(work: str, *args: object) -> None:
    """Run the script and then this work in a separate process, which must end with KeyboardInterrupt."""
    lines = "\n".join("    " + line for line in work.splitlines())
    code = f"{SCRIPT}\ntry:\n{lines}\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
    done = python("-c", code, *args)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = short_runs(tmp_path_factory.mktemp("short") / "runs", 4)
    return Path(grow(tmp_path_factory.mktemp("template") / "games.a2", [runs[:2], runs[2:]]).path)


@pytest.mark.parametrize(
    "work",
    [
        "a2store.Archive.open(path)",
        "a2store.Archive.open(path, version=2)",
        "a2store.verify(path)",
        "a2store.restore(path, dry_run=True)",
        "archive.refresh()",
        "archive.history()",
    ],
)
def test_reading_manifests(path: Path, work: str) -> None:
    opened = "archive = a2store.Archive.open(path)\n" if "archive." in work else ""
    version = {"a2store.Archive.open(path)": 3, "archive.refresh()": 4}.get(work, 2)
    interrupted(f"{opened}pipe(manifest({version}))\n{work}", path)


SILENCE = """\
import socket
server = socket.create_server(("127.0.0.1", 0))
for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
    os.environ[name] = "a2store"
os.environ.update(
    AWS_REGION="us-east-1", AWS_ENDPOINT_URL=f"http://127.0.0.1:{server.getsockname()[1]}", AWS_ALLOW_HTTP="true"
)

def is_asked():
    # Reads the whole request and never answers.
    connection, _ = server.accept()
    held.append(connection)
    while not connection.recv(1 << 16).endswith(b"\\r\\n\\r\\n"):
        pass

interrupt_once(is_asked)
"""


@pytest.mark.parametrize(
    "work",
    [
        "a2store.Archive.open('s3://bucket/games.a2')",
        "a2store.Archive.create('s3://bucket/games.a2')",
        "a2store.verify('s3://bucket/games.a2')",
        "a2store.restore('s3://bucket/games.a2', dry_run=True)",
    ],
)
def test_a_server_that_does_not_answer(path: Path, work: str) -> None:
    interrupted(SILENCE + work, path)


MOVED_ON = """
writer, mine = a2store.Archive.open(path), a2store.Archive.open(path)
first, second = sys.argv[2:]
writer.ingest(first, progress=False)
assert (mine.version, writer.version) == (3, 4)
aside = path / "aside.json"
os.rename(manifest(4), aside)
os.mkfifo(manifest(4))
refresh = threading.Thread(target=mine.refresh)
refresh.start()
# At this point the refresh has listed the log and is reading the commit of version 4.
pipe = os.open(manifest(4), os.O_WRONLY)
os.rename(aside, manifest(4))
mine.ingest(second, progress=False)
assert mine.version == 5
os.write(pipe, manifest(4).read_bytes())
os.close(pipe)
refresh.join()
print(mine.version)
mine.refresh()
print(mine.version)
"""


def test_a_refresh_never_moves_to_an_older_version(path: Path, tmp_path: Path) -> None:
    """Another thread has ingested through the same handle after the refresh read the log."""
    runs = short_runs(tmp_path / "runs", 6)[4:]
    done = python("-c", SCRIPT + MOVED_ON, path, *runs)
    assert (done.returncode, done.stdout.split()) == (0, ["5", "5"]), done.stderr
    assert a2store.Archive.open(path).num_runs == 6


def blocked_command(pipe: Path, number: signal.Signals, *args: object) -> tuple[int, str, str]:
    """Run ``a2store`` until it reads from a pipe, which never has data, send one signal, and wait for its end."""
    with subprocess.Popen(command(*args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        writers: list[int] = []

        def is_read() -> bool:
            # Without a reader, opening the pipe fails.
            with suppress(OSError):
                writers.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
            return bool(writers)

        eventually(is_read, "the read of the pipe")
        process.send_signal(number)
        try:
            out, error = process.communicate(timeout=HANGS)
        finally:
            process.kill()
            os.close(writers[0])
    return process.returncode, out, error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_ends_an_ingest_that_reads_from_a_pipe(path: Path, tmp_path: Path, number: signal.Signals) -> None:
    pipe = tmp_path / "run.a2run2"
    os.mkfifo(pipe)
    before = names(path)
    status, out, _ = blocked_command(pipe, number, "ingest", pipe, path)
    assert (status, out) == (128 + number, "")
    assert names(path) == before
    archive = a2store.Archive.open(path)
    assert (archive.version, archive.verify(progress=False).problems) == (3, [])


def test_one_signal_ends_a_verification_that_waits_for_a_file(path: Path) -> None:
    commit = manifest_path(path, 2)
    commit.unlink()
    os.mkfifo(commit)
    status, out, _ = blocked_command(commit, signal.SIGINT, "verify", path)
    assert (status, out) == (130, "")


STARTING = """
import os, signal, sys

class Finder:
    # Ctrl-C arrives while the package imports its extension.
    def find_spec(self, name, path, target=None):
        if name == "a2store._a2store":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("name", ["-m a2store", "a2store", "a2pack"])
def test_a_command_that_is_interrupted_while_it_starts_ends_silently(tmp_path: Path, name: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(STARTING)
    words = name.split()
    if len(words) == 1:
        # The script that an installation of the package writes.
        words = [str(tmp_path / name)]
        (tmp_path / name).write_text("import sys\nfrom a2store._command import main\nsys.exit(main())\n")
    done = python(*words, "--version", environment={"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])})
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_program_that_is_interrupted_while_it_imports_the_package_raises(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(STARTING)
    code = "try:\n    import a2store\nexcept KeyboardInterrupt:\n    print('interrupted')"
    done = python("-c", code, environment={"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])})
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")
