"""Full and read-only disks, visible to a single process.

``python -m faults.mounts CHECK INPUTS DISK …`` is that process: it runs a check with the disk already mounted.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import a2store
from threads import HANGS

from .checks import LONG, Inputs, expect, names, sound
from .shim import run

ARCHIVE = "games.a2"
PAGE = os.sysconf("SC_PAGESIZE")


@dataclass(frozen=True)
class Namespace:
    """A mount namespace in which a disk can be mounted."""

    folder: Path
    unshare: list[str]

    def run(self, options: str, check: str, inputs: Inputs, *args: str) -> int:
        """Run a check of this module on a new disk in memory, or on the folder itself if it is to be read-only."""
        quoted = f"'{self.folder}'"
        bind = f"mount --bind {quoted} {quoted} && mount -o remount,bind,ro {quoted}"
        mount = bind if options == "ro" else f"mount -t tmpfs -o {options} none {quoted}"
        pickled = self.folder.with_name("inputs.pickle")
        pickled.write_bytes(pickle.dumps(inputs))
        python = [sys.executable, "-m", "faults.mounts", check, str(pickled), str(self.folder), *args]
        command = [*self.unshare, "sh", "-c", f'{mount} && exec "$@"', "sh", *python]
        folder = Path(__file__).parents[1]
        done = subprocess.run(command, capture_output=True, check=False, timeout=HANGS, text=True, cwd=folder)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)


def namespace(folder: Path) -> Namespace | None:
    """Create the folder, and return a way to mount on it: as root, or as root of a user namespace; else ``None``."""
    folder.mkdir()
    if program := shutil.which("unshare"):
        for unshare in ([program, "--mount"], [program, "--mount", "--map-root-user"]):
            command = [*unshare, "sh", "-c", f"mount -t tmpfs none '{folder}' && mount --bind '{folder}' '{folder}'"]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                return Namespace(folder, unshare)
    return None


def read_only(inputs: Inputs, disk: Path) -> int:
    """Everything can be read, and each failed write raises an error."""
    path, held = disk / ARCHIVE, inputs.digests_of(inputs.groups[0])
    before = names(disk)
    expect(sound(path, inputs) == (2, held), "another archive")
    largest = pa.table(a2store.Archive.open(path).sql("SELECT max(max_score) AS score FROM runs"))
    expect(largest.num_rows == 1, "no row")
    for target in (path, disk / "new.a2"):
        done = run("ingest", *inputs.files, target)
        expect(done.returncode == 1, f"ended with status {done.returncode}: {done.stderr}")
        expect("Read-only file system" in done.stderr and str(target) in done.stderr, done.stderr)
        expect("panicked" not in done.stderr and done.stdout == "", done.stderr)
    expect(sound(path, inputs) == (2, held), "another archive")
    expect(names(disk) == before, "other files")
    return 1


def full(inputs: Inputs, disk: Path, what: str) -> int:
    """With more room, an ingest fails at a later place, until it fits; no failure changes the archive."""
    failed = 0
    # The short form gives more room by several pages.
    for room in range(0, 1000, 4 if what == "bytes" and not LONG else 1):
        path = disk / str(room) / ARCHIVE
        path.parent.mkdir()
        a2store.Archive.create(path).ingest(inputs.groups[0], progress=False)
        before = sound(path, inputs)
        with filled(disk, what, room):
            done = run("ingest", *inputs.files, path)
            expect(sound(path, inputs) == before or done.returncode == 0, f"with room for {room}: other runs")
        if done.returncode != 0:
            failed += 1
            expect("panicked" not in done.stderr and done.returncode == 1, done.stderr)
            expect("No space left" in done.stderr and str(path) in done.stderr, done.stderr)
        else:
            expect(failed > 2, f"room for {room} was enough")
        again = run("ingest", *inputs.files, path)
        expect(again.returncode == 0, again.stderr)
        expect(sound(path, inputs) == (3, inputs.digests_of(inputs.files)), f"after room for {room}: other runs")
        shutil.rmtree(path.parent)
        if done.returncode == 0:
            return failed
    raise AssertionError("the disk is never full")


@contextmanager
def filled(disk: Path, what: str, room: int) -> Iterator[None]:
    """Leave room for only ``room`` pages or files."""
    ballast = disk / "ballast"
    ballast.mkdir()
    free = os.statvfs(disk)
    if what == "bytes":
        with (ballast / "file").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, (free.f_bavail * free.f_frsize // PAGE - room) * PAGE)
    else:
        for number in range(free.f_favail - room):
            (ballast / str(number)).touch()
    yield
    shutil.rmtree(ballast)


def main(check: str, pickled: str, disk: str, *args: str) -> int:
    inputs = pickle.loads(Path(pickled).read_bytes())
    return full(inputs, Path(disk), *args) if check == "full" else read_only(inputs, Path(disk))


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
