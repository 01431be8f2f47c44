"""The output of the commands on a terminal: its width and colours."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

import pytest

import a2store
from archives import command, run_command
from threads import HANGS

ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
RED = "\x1b[31m"
CHOICES = ("NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE")


def environment(**changes: str) -> dict[str, str]:
    """Return this process's environment, without the user's choice of colours."""
    kept = {name: value for name, value in os.environ.items() if name not in CHOICES}
    return {**kept, "TERM": "xterm", **changes}


def on_terminal(columns: int, *args: object, status: int = 0, **changes: str) -> str:
    """Run ``a2store`` on a terminal of this width and return what it prints there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    with subprocess.Popen(command(*args), stdout=theirs, stderr=theirs, env=environment(**changes)) as process:
        os.close(theirs)
        printed = b""
        try:
            while part := os.read(ours, 1 << 16):
                printed += part
        except OSError:  # How Linux reports that the other side is closed.
            pass
        assert process.wait(timeout=HANGS) == status, printed.decode()
    os.close(ours)
    return printed.decode().replace("\r\n", "\n")


def plain(text: str) -> str:
    return ESCAPE.sub("", text)


ALL = "SELECT * FROM runs ORDER BY run_id"


@pytest.mark.parametrize("columns", [40, 200])
@pytest.mark.parametrize("sql", [ALL, "SELECT * FROM steps LIMIT 3", "SELECT digest, source, num_steps FROM runs"])
def test_a_table_fits_the_terminal(archive: a2store.Archive, columns: int, sql: str) -> None:
    text = plain(on_terminal(columns, "sql", archive.path, sql))
    *lines, _ = text.splitlines()
    whole = run_command("sql", archive.path, sql).stdout.splitlines()[:-1]
    cut = [line if len(line) <= columns else f"{line[: columns - 1]}…" for line in whole]
    assert lines == cut


def test_a_pipe_and_a_file_get_the_whole_table(archive: a2store.Archive, tmp_path: Path) -> None:
    piped = run_command("sql", archive.path, ALL).stdout
    assert "\x1b" not in piped
    assert "…" not in piped
    assert on_terminal(80, "sql", archive.path, ALL, "-o", tmp_path / "table.txt") == ""
    assert (tmp_path / "table.txt").read_text() == piped
    header = piped.splitlines()[1]
    assert [name.strip() for name in header.split("|")[1:-1]] == archive.schema("runs").names


def test_numbers_for_people_and_for_programs(archive: a2store.Archive) -> None:
    sql = "SELECT 1234567 AS n, 2 / 3.0 AS x, NULL AS nothing, chr(27) || 'a' AS text"
    cells = [cell.strip() for cell in run_command("sql", archive.path, sql).stdout.splitlines()[3].split("|")[1:-1]]
    assert cells == ["1234567", "0.666667", "", "\\u{1b}a"]
    csv = run_command("sql", archive.path, sql, "--format", "csv").stdout
    assert csv.splitlines()[1].startswith("1234567,0.6666666")


def test_errors_are_marked_on_a_terminal(tmp_path: Path) -> None:
    text = on_terminal(80, "info", tmp_path / "absent", status=2)
    assert RED in text
    assert plain(text).startswith("a2store: ")
    assert "\x1b" not in on_terminal(80, "info", tmp_path / "absent", status=2, NO_COLOR="1")
