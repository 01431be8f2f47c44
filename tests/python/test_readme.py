"""The README's Python and shell blocks, run in order in one folder."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

README = Path(__file__).parents[2] / "README.md"


def blocks(language: str) -> list[str]:
    """Return the code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


def test_python_and_shell_blocks_run(tmp_path: Path) -> None:
    python = blocks("python")
    assert len(python) >= 5
    # One process for all blocks, because later blocks use what earlier ones made.
    program = "\n".join(python) + "\nassert archive.num_runs == 50\n"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    lines = [line for block in blocks("bash") for line in block.splitlines()]
    assert len(lines) >= 7
    for line in lines:
        words = shlex.split(line, comments=True)
        assert words[0] in {"a2store", "a2pack", "python"}, line
        command = Path(sys.executable).with_name(words[0])
        # Expands patterns like the shell.
        args = [name for word in words[1:] for name in (sorted(map(str, tmp_path.glob(word))) or [word])]
        done = subprocess.run([command, *args], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (line, done.stderr)
    assert pq.read_table(tmp_path / "best.parquet").num_rows > 0


def test_links_have_targets() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README.read_text())
    assert len(links) >= 6
    for link in links:
        assert (README.parent / link).exists(), link
