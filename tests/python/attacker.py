"""Runs statements in a separate process, ``Attacker``, and measures their effect on it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import a2store
from threads import HANGS, comes_to_rest

MEMORY = 128 << 20
SPILL = 64 << 20
SECONDS = 0.5
"""Time limit of statements that never end without one."""
CORES = 2
"""Maximum number of cores of the process: memory grows with them."""
ADDRESSES = 10 << 30
"""Bytes of address space: an excessive allocation fails."""
MIB = 1 << 20
BEGIN = "/the-statements-begin"


@dataclass
class Answer:
    """The outcome of a statement."""

    error: str = ""
    message: str = ""
    rests: bool = False
    """Whether all threads of the process have ended their work."""
    grown: int = 0
    """The growth of the process's memory up to its peak, in bytes."""
    left: list[str] = field(default_factory=list)
    """The files in the folder for temporary files after the statement."""
    died: str = ""
    said: str = ""
    """The text on standard error."""


class Attacker:
    """A process that runs statements over an archive, and its successors."""

    def __init__(self, archive: str | Path, folder: Path, prefix: tuple[str, ...] = ()) -> None:
        self.spill = folder / "spill"
        self.spill.mkdir()
        self.errors = folder / "errors"
        self.command = [*prefix, sys.executable, __file__, str(archive), str(self.spill)]
        self.process: subprocess.Popen[str] | None = None

    def ask(self, sql: str, **options: Any) -> Answer:
        """Run a statement. If the process dies or is killed because it hangs, the next statement gets a new one."""
        process = self.process or self.start()
        assert process.stdin is not None
        assert process.stdout is not None
        self.errors.write_text("")
        killer = threading.Timer(3 * HANGS, process.kill)
        killer.start()
        process.stdin.write(json.dumps({"sql": sql, "options": options}) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        killer.cancel()
        answer = Answer(**json.loads(line)) if line else Answer(died=f"status {process.wait()}")
        answer.said = self.errors.read_text().lstrip("\0")
        if not line:
            self.stop()
        return answer

    def start(self) -> subprocess.Popen[str]:
        with self.errors.open("a") as errors:
            pipe = subprocess.PIPE
            # A backtrace reads the program and its symbols.
            environment = {**os.environ, "RUST_BACKTRACE": "0"}
            self.process = subprocess.Popen(
                self.command, env=environment, stdin=pipe, stdout=pipe, stderr=errors, text=True
            )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        return self.process

    def stop(self) -> None:
        """End the process, and remove the files that a killed process left."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None
        for path in sorted(self.spill.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()


def memory(name: str) -> int:
    """Return the value of a line of this process's status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


def run(archive: a2store.Archive, sql: str, spill: str, options: dict[str, Any]) -> Answer:
    answer = Answer()
    limits = {"memory_limit": MEMORY, "spill_limit": SPILL, "spill_folder": spill, "time_limit": SECONDS, **options}
    try:
        # This computes all rows, keeps none of them, and raises errors unchanged.
        archive.sql(sql, **limits).explain(analyze=True)
    except Exception as error:
        answer.error, answer.message = type(error).__name__, str(error)
    answer.rests = comes_to_rest()
    # All work has ended, so nothing will be removed later.
    answer.left = os.listdir(spill)
    return answer


def main(path: str, spill: str) -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    archive = a2store.Archive.open(path)
    warm = "SELECT s.phase, count(*) FROM steps s JOIN runs r USING (run_id) GROUP BY 1 ORDER BY 2"
    run(archive, warm, spill, {"time_limit": None})
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    # This call marks the point in a trace of system calls from which the statements run.
    Path(BEGIN).exists()
    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        before = memory("VmRSS")
        # This resets the peak memory, so that it is the peak of this statement.
        Path("/proc/self/clear_refs").write_text("5")
        answer = run(archive, job["sql"], spill, job["options"])
        answer.grown = memory("VmHWM") - before
        print(json.dumps(answer.__dict__), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
