"""Processes that create, write and read an archive side by side."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from threads import HANGS

BEGIN = """
import sys
import a2store
url, *args = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
"""
CREATE = f"""{BEGIN}
try:
    a2store.Archive.create(url)
except a2store.ArchiveExistsError as error:
    assert (error.kind, error.path) == ("archive_exists", url)
    print("there is one")
else:
    print("created")
"""
WRITE = f"""{BEGIN}
print(sum(a2store.Archive.open(url).ingest(folder, progress=False).accepted for folder in args))
"""
READ = """
import select, sys
import a2store
url, *args = sys.argv[1:]
# The version before the other processes began.
seen, num_runs, over = {a2store.Archive.open(url).version}, 0, False
print("ready", flush=True)
sys.stdin.readline()
while num_runs < int(args[0]) and not over:
    # The input ends when the other processes have.
    over = bool(select.select([sys.stdin], [], [], 0)[0])
    archive = a2store.Archive.open(url)
    assert archive.num_runs >= num_runs, (archive.num_runs, num_runs)
    num_runs = archive.num_runs
    assert archive.sql("SELECT * FROM runs").count() == num_runs
    assert archive.sql("SELECT board FROM steps").count() == archive.num_steps
    seen.add(archive.version)
print(len(seen))
"""
INGEST = "import sys, a2store; a2store.Archive.open(sys.argv[1]).ingest(sys.argv[2:], progress=False)"


def race(*programs: Sequence[object]) -> list[str]:
    """Run processes in parallel once all of them are ready; return the line that each prints.

    The input of each process ends when all processes before it have ended.
    """
    with ExitStack() as stack:
        processes = []
        for code, *args in programs:
            command = [sys.executable, "-W", "error", "-c", str(code), *map(str, args)]
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
            processes.append(stack.enter_context(process))
            stack.callback(process.kill)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        printed = []
        for process in processes:
            out, errors = process.communicate(timeout=HANGS)
            assert (process.returncode, errors) == (0, "")
            printed.append(out.strip())
        return printed
