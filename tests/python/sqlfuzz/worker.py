"""Worker processes with any number of threads: ``python -m sqlfuzz.worker FOLDER``.

The engine reads the number of cores once per process and makes as many partitions. ``cores.c`` in LD_PRELOAD overrides
the number, so that tests use one thread and seven threads on any machine.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import a2store

from .data import Data, attach

SOURCE = Path(__file__).with_name("cores.c")
PACKAGES = Path(__file__).resolve().parents[1]


def compiled(folder: Path) -> Path | None:
    """Compile the library; return ``None`` if there is no compiler."""
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))), None)
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    library = folder / "cores.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, SOURCE], check=True)
    return library


class Worker:
    """A process that materializes statements."""

    def __init__(self, folder: Path, library: Path, cores: int) -> None:
        path = os.pathsep.join(filter(None, [str(PACKAGES), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, "LD_PRELOAD": str(library), "CORES": str(cores)}
        command = [sys.executable, "-m", "sqlfuzz.worker", str(folder)]
        self.cores = cores
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def held(self, sql: str, extras: list[str], *, divided: bool) -> Any:
        """Return the fingerprint and rows of a statement's table. Raise its error."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        pickle.dump((sql, extras, divided), self.process.stdin)
        self.process.stdin.flush()
        answer = pickle.load(self.process.stdout)
        if isinstance(answer, a2store.Error):
            raise answer
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def held(data: Data, sql: str, extras: list[str], *, divided: bool = False) -> tuple[str, Any]:
    """Return the fingerprint and rows of a statement's table."""
    query = data.plain.sql(sql, tables=data.divided if divided else data.tables)
    table = query.materialize(extra=extras, progress=False)
    return table.fingerprint, np.asarray(table)


def main() -> None:
    data = attach(Path(sys.argv[1]))
    while True:
        try:
            sql, extras, divided = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: Any = held(data, sql, extras, divided=divided)
        except a2store.Error as error:
            answer = error
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
