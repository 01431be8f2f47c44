"""Check the wheel in dist/ in fresh environments without a compiler: ``python tests/check_wheel.py [PYTHON ...]``.

For each Python, it installs the wheel, runs both commands and the README's Python code, and resolves the extras. It
prints the sizes and the times.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[1]
MAX_BYTES = 50_000_000
"""The budget of the wheel."""
EXIT = """
import sys, threading, time, types
import a2store

class Slow:
    seconds = 0.0
    def __del__(self, sleep=time.sleep):
        sleep(20 * self.seconds)  # The interpreter is shutting down, and a query ends meanwhile.

def queries():
    while True:
        begun = time.perf_counter()
        list(archive.sql("SELECT count(canonical(board)) FROM steps").to_batches())
        Slow.seconds = time.perf_counter() - begun
        ended.set()

# The thread's frame keeps the globals of this module.
sys.modules["slow"] = types.ModuleType("slow")
sys.modules["slow"].value = Slow()
ended = threading.Event()
a2store.simulate("runs", runs=50, depth=0, progress=False)
archive = a2store.open("games.a2", create=True)
archive.ingest("runs", progress=False)
threading.Thread(target=queries, daemon=True).start()
assert ended.wait(60)
"""
"""A process that ends while another thread runs queries."""
IMPORT = "import time; begun = time.perf_counter(); import a2store; print(time.perf_counter() - begun)"


def run(*words: str | Path, path: str) -> str:
    """Run a command in an empty folder, with only this PATH, and return its output."""
    environment = {**os.environ, "PATH": path}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def check(wheel: Path, python: str, extras: list[str]) -> None:
    """Install a wheel for one Python, and use it."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", folder], check=True)
        path = f"{folder}/bin"
        pip = (f"{path}/pip", "install", "--quiet", "--disable-pip-version-check")
        begun = time.perf_counter()
        run(*pip, wheel, path=path)
        installed = time.perf_counter() - begun
        for command in ("a2store", "a2pack"):
            print(run(f"{path}/{command}", "--version", path=path).strip())
        code = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
        assert code
        for block in code:
            run(f"{path}/python", "-W", "error", "-c", block, path=path)
        run(f"{path}/python", "-c", EXIT, path=path)
        imported = min(float(run(f"{path}/python", "-c", IMPORT, path=path)) for _ in range(5))
        for extra in extras:
            run(*pip, "--dry-run", f"{wheel}[{extra}]", path=path)
        version = run(f"{path}/python", "--version", path=path).strip()
        print(f"{version}: installed in {installed:.1f} s, imported in {imported * 1000:.0f} ms")


def main() -> None:
    """Check the newest wheel."""
    wheels = sorted((ROOT / "dist").glob("*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        raise SystemExit("dist: expected a wheel, found none: run make wheel")
    wheel = wheels[-1]
    if sys.platform == "darwin":
        assert "-abi3-macosx_" in wheel.name, wheel.name
    else:
        assert "-abi3-manylinux_2_28_" in wheel.name, wheel.name
        shown = subprocess.run(["auditwheel", "show", wheel], stdout=subprocess.PIPE, text=True, check=True).stdout
        print(shown.strip())
        assert '"manylinux_2_28_' in " ".join(shown.split())
    size = wheel.stat().st_size
    unpacked = sum(file.file_size for file in ZipFile(wheel).infolist())
    print(f"{wheel.name}: {size / 1e6:.1f} MB, {unpacked / 1e6:.1f} MB unpacked")
    assert size <= MAX_BYTES, f"expected at most {MAX_BYTES} bytes, found {size}"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for python in sys.argv[1:] or [sys.executable]:
        check(wheel, python, [extra for extra in extras if extra != "test"])


if __name__ == "__main__":
    main()
