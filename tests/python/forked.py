"""The command ``a2store`` in forks of a process that has imported the package. So a run does not cost a start."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import io
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

from threads import HANGS

_idle: dict[str, list[_Server]] = {}
"""The servers that run no command, by the library that they preload."""
_open = contextlib.ExitStack()
atexit.register(_open.close)


class _Server:
    """A process that runs commands in forks, one at a time."""

    def __init__(self, library: str) -> None:
        self.outputs = [_open.enter_context(tempfile.TemporaryFile()) for _ in range(2)]  # noqa: SIM115
        numbers = [output.fileno() for output in self.outputs]
        process = subprocess.Popen(
            [sys.executable, __file__, *map(str, numbers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=numbers,
            start_new_session=True,
            env={**os.environ, "LD_PRELOAD": library},
        )
        self.process = _open.enter_context(process)
        assert self.process.stdin
        assert self.process.stdout
        self.requests, self.answers = self.process.stdin, self.process.stdout

    def run(self, words: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
        for output in self.outputs:
            output.seek(0)
            output.truncate()
        print(json.dumps([words, environment, os.getcwd()]), file=self.requests, flush=True)
        if not select.select([self.answers], [], [], HANGS)[0]:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(words, HANGS)
        status = int(self.answers.readline())
        for output in self.outputs:
            output.seek(0)
        return subprocess.CompletedProcess(words, status, *(output.read() for output in self.outputs))


def run_bytes(*args: object, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run ``a2store`` to its end."""
    whole = {**os.environ, **(environment or {})}
    library = whole.get("LD_PRELOAD", "")
    idle = _idle.setdefault(library, [])
    # Threads may run commands side by side.
    server = idle.pop() if idle else _Server(library)
    done = server.run(["a2store", *map(str, args)], whole)
    idle.append(server)
    return done


def run(*args: object, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``a2store`` to its end, and decode its output."""
    done = run_bytes(*args, environment=environment)
    texts = (io.TextIOWrapper(io.BytesIO(output)).read() for output in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, *texts)


def _serve(out: int, err: int) -> None:
    from a2store._command import main

    for request in sys.stdin:
        if os.fork() == 0:
            words, environment, folder = json.loads(request)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out, 1)
            os.dup2(err, 2)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            if "LD_PRELOAD" in environment:
                # The library has read its settings from the environment of the server.
                ctypes.CDLL(None).set_up_faults()
            sys.argv = words
            sys.exit(main())
        print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)


if __name__ == "__main__":
    _serve(*map(int, sys.argv[1:]))
