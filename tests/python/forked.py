"""The command ``a2store`` in forks of a process that has imported the package. This avoids a start for each run.

Forks share what a start determines, such as the hash seed and the umask.
"""

from __future__ import annotations

import atexit
import ctypes
import io
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping

from threads import HANGS

_idle: dict[str, list[subprocess.Popen[bytes]]] = {}
"""Processes that run commands in forks, one at a time, and run none now, by the library that they preload."""


def _started(library: str) -> subprocess.Popen[bytes]:
    words, environment, pipe = [sys.executable, __file__], {**os.environ, "LD_PRELOAD": library}, subprocess.PIPE
    server = subprocess.Popen(words, stdin=pipe, stdout=pipe, env=environment, start_new_session=True)
    atexit.register(server.__exit__, None, None, None)
    return server


def run_bytes(*args: object, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run ``a2store`` to its end."""
    words = ["a2store", *map(str, args)]
    whole = {**os.environ, **(environment or {})}
    idle = _idle.setdefault(whole.get("LD_PRELOAD", ""), [])
    # Threads may run commands side by side.
    try:
        server = idle.pop()
    except IndexError:
        server = _started(whole.get("LD_PRELOAD", ""))
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        pickle.dump((words, whole, os.getcwd()), server.stdin)
        server.stdin.flush()
        if not select.select([server.stdout], [], [], HANGS)[0]:
            raise subprocess.TimeoutExpired(words, HANGS)
        done = subprocess.CompletedProcess(words, *pickle.load(server.stdout))
    except BaseException:
        os.killpg(server.pid, signal.SIGKILL)
        raise
    idle.append(server)
    return done


def run(*args: object, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``a2store`` to its end, and decode its output."""
    done = run_bytes(*args, environment=environment)
    texts = (io.TextIOWrapper(io.BytesIO(output)).read() for output in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, *texts)


def _serve() -> None:
    from a2store._command import main

    requests = os.fdopen(0, "rb", closefd=False)
    while requests.peek(1):
        sys.argv, environment, folder = pickle.load(requests)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            if os.fork() == 0:
                for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), out.fileno(), err.fileno())):
                    os.dup2(file, number)
                os.chdir(folder)
                os.environ.clear()
                os.environ.update(environment)
                sys.path[0] = folder
                # The library for faults has read its settings from the environment of the server.
                if hasattr(library := ctypes.CDLL(None), "set_up_faults"):
                    library.set_up_faults()
                sys.exit(main())
            status = os.waitstatus_to_exitcode(os.wait()[1])
            out.seek(0)
            err.seek(0)
            pickle.dump((status, out.read(), err.read()), sys.stdout.buffer)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve()
