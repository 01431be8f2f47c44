"""The README's Python and shell blocks, run in order in one folder."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

README = Path(__file__).parents[2] / "README.md"


def blocks(language: str) -> list[str]:
    """Return the code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


def view_until_interrupted(command: list[str | Path], folder: Path) -> None:
    """Start the explorer, and stop it as Ctrl-C does."""
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert "games.a2" in server.stdout.readline()
        assert server.stdout.readline().startswith("http://127.0.0.1:")
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0


def test_python_and_shell_blocks_run(tmp_path: Path) -> None:
    first, *others, exports = blocks("python")
    assert len(others) >= 8
    # One process for several blocks, because later blocks use what earlier ones made. A reader may run them again; only
    # exports need a new folder.
    whole = "\n".join(others)
    for program in (first, whole, f"{whole}\n{exports}", first):
        if program == first:
            # The first block plays games into a new folder. In the second round, the archive has all of them.
            shutil.rmtree(tmp_path / "runs", ignore_errors=True)
        program += "\nassert archive.num_runs == 50\n"
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    lines = [line for block in blocks("bash") for line in block.splitlines()]
    assert len(lines) >= 7
    for line in lines:
        words = shlex.split(line, comments=True)
        assert words[0] in {"a2store", "a2pack", "python"}, line
        command = Path(sys.executable).with_name(words[0])
        # Expands patterns like the shell.
        args = [name for word in words[1:] for name in (sorted(map(str, tmp_path.glob(word))) or [word])]
        if words[1] == "view":
            view_until_interrupted([command, *args, "--no-browser"], tmp_path)
            continue
        done = subprocess.run([command, *args], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (line, done.stderr)
    assert pq.read_table(tmp_path / "best.parquet").num_rows > 0


def test_the_first_block_takes_six_lines_from_an_empty_folder_to_batches() -> None:
    lines = blocks("python")[0].splitlines()
    assert lines[:2] == ["import a2store", ""]
    statements = lines[2 : lines.index("for batch in table.loader(batch_size=1024, seed=0):") + 2]
    assert len(statements) == len(lines) - 2 == 6


def test_links_have_targets() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README.read_text())
    assert len(links) >= 6
    for link in links:
        assert (README.parent / link).exists(), link
