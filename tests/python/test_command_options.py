"""Options, help texts, exit statuses and colours of ``a2store`` and ``a2pack``, in every subcommand."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import a2store
from archives import command, copied, manifest_path, run_a2pack, run_command
from faults.shim import python
from threads import HANGS

COMMANDS = re.compile(r"^  ([a-z][a-z-]+)  ", re.MULTILINE)
"""The names in the list of subcommands of a help text."""


RUN = {"a2store": run_command, "a2pack": run_a2pack}


@cache
def helps(name: str) -> dict[str, str]:
    """Return the help text of each subcommand."""
    names = COMMANDS.findall(RUN[name]("--help").stdout)
    return {each: RUN[name](each, "--help").stdout for each in names if each != "help"}


@pytest.mark.parametrize(("name", "outputs"), [("a2store", 7), ("a2pack", 3)])
def test_every_output_has_the_same_option(name: str, outputs: int) -> None:
    texts = helps(name)
    assert sum("-o, --output" in text for text in texts.values()) == outputs
    for text in texts.values():
        assert re.search(r"--out\b", text) is None
        assert ("--output" in text) == ("-o, --output" in text)


def test_the_short_form_of_the_output_is_accepted(tmp_path: Path) -> None:
    runs, archive = tmp_path / "runs", tmp_path / "games.a2"
    run_command("simulate", "--runs", 2, "--fast", "--out", runs)
    run_command("simulate", "--runs", 2, "--seed", 1, "--fast", "-o", tmp_path / "more")
    run_command("ingest", runs, tmp_path / "more", archive)
    for option in ("-o", "--out", "--output"):
        out = tmp_path / option
        run_command("export", archive, "--format", "original", option, out)
        assert len(list(out.iterdir())) == 4
        run_command("convert", runs, "--format", "npy", option, tmp_path / f"{option}.npy")
    run_a2pack("pack", "--input", runs, "-o", tmp_path / "runs.a2pack")
    assert len(a2store.PackReader.open(tmp_path / "runs.a2pack")) == 2


def test_ingest_names_the_archive_last_and_says_why() -> None:
    text = run_command("ingest", "--help").stdout
    assert "a2store ingest [OPTIONS] <INPUT>... <ARCHIVE>" in text
    assert "like `cp`" in " ".join(text.split())


BASH = """
source "$1"
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
_"$1" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
"""Prints the completions of a command line. Its last word is incomplete."""


@pytest.mark.parametrize("name", RUN)
def test_bash_completes_subcommands_options_and_values(name: str, tmp_path: Path) -> None:
    script = tmp_path / "completions"
    script.write_text(RUN[name]("completions", "bash").stdout)

    def completed(*words: str) -> set[str]:
        command = ["bash", "-c", BASH, "bash", str(script), name, *words]
        done = subprocess.run(command, capture_output=True, check=True, timeout=HANGS, text=True)
        assert done.stderr == ""
        return set(done.stdout.split())

    assert completed("") >= {"completions", *helps(name)}
    assert completed("comple") == {"completions"}
    assert completed("completions", "z") == {"zsh"}
    if name == "a2store":
        assert completed("ingest", "--w") == {"--wait", "--workers"}
        assert completed("sql", "--format", "") == {"table", "csv", "json", "parquet", "arrow"}
    else:
        assert completed("pack", "--compress", "") == {"none", "zstd", "lz4"}


@pytest.mark.parametrize("name", RUN)
def test_zsh_and_fish_have_completions(name: str) -> None:
    zsh = RUN[name]("completions", "zsh").stdout
    assert zsh.startswith(f"#compdef {name}\n")
    fish = RUN[name]("completions", "fish").stdout
    for each in helps(name):
        assert f"'{each}:" in zsh or f"{each}:" in zsh
        assert f'-a "{each}"' in fish
    RUN[name]("completions", "tcsh", status=2)


def test_critic_is_a_subcommand_of_the_package(tmp_path: Path) -> None:
    text = run_command("critic", "--help").stdout
    assert text.startswith("usage: a2store critic ")
    assert "embed" in text
    text = run_command("critic", "embed", "--help").stdout
    assert text.startswith("usage: a2store critic embed ")
    assert "--encoder" in text
    assert run_command("-q", "critic", "train", "--config", tmp_path / "absent", status=2).stderr.startswith("error: ")
    assert "invalid choice" in run_command("critic", "eval", status=2).stderr
    # The crate's own command, without the package.
    alone = "import sys; from a2store._a2store import _run_command as run; sys.exit(run(sys.argv[1:]))"
    done = python("-c", alone, "a2store", "critic", "train", "--config", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "a2store: critic train: needs the Python package: pip install a2store\n"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["ingset", "runs", "ARCHIVE"], "'ingest'"),
        (["info", "ARCHIVE", "--jsn"], "'--json'"),
        (["sql", "ARCHIVE", "SELECT 1", "--format", "pq"], "possible values: table, csv, json, parquet, arrow"),
        (["query", "ARCHIVE", "hig_score"], "did you mean high_score?"),
        (["queries", "Tile-Reach"], "did you mean tile_reach?"),
        (
            ["query", "ARCHIVE", "high_score", "-p", "min_scor=1"],
            "a2store: high_score: unknown parameters min_scor",
        ),
        (["sql", "ARCHIVE", "SELECT * FROM stepp"], "did you mean steps?"),
        (["sql", "ARCHIVE", "SELECT * FROM annotation a"], "did you mean annotations?"),
        (["sql", "ARCHIVE", "SELECT * FROM phase_mix"], "; phase_mix is a named query: `query` runs it, not `sql`"),
        (["sql", "ARCHIVE", "SELECT mov FROM steps"], "Did you mean 'steps.move'?"),
        (["sql", "ARCHIVE", "SELECT canonica(board) FROM steps"], "Did you mean 'canonical'?"),
    ],
)
def test_similar_names_are_suggested(archive: a2store.Archive, args: list[str], expected: str) -> None:
    done = run_command(*(archive.path if arg == "ARCHIVE" else arg for arg in args), status=2)
    assert expected in done.stderr
    assert done.stdout == ""


def test_names_without_similarity_get_no_suggestion(archive: a2store.Archive) -> None:
    for args in (("query", archive.path, "zzzzzz"), ("sql", archive.path, "SELECT * FROM zzzzzz")):
        assert "did you mean" not in run_command(*args, status=2).stderr


def test_commands_that_remove_versions_have_the_same_option() -> None:
    texts = helps("a2store")
    assert {name for name, text in texts.items() if "--yes" in text} == {"expire"}


# Exit statuses: 0 = done, 1 = a problem in the data, 2 = wrong usage


LINES = {
    "annotate": "ARCHIVE",
    "bench": "ARCHIVE --batch-size 16",
    "compact": "ARCHIVE",
    "convert": "RUNS --format a2run2 -o OUT --skip-errors",
    "completions": "bash",
    "critic": "train --config FILES/critic.toml",
    "expire": "ARCHIVE --yes",
    "export": "ARCHIVE --format a2run2 -o OUT",
    "history": "ARCHIVE",
    "info": "ARCHIVE",
    "ingest": "RUNS ARCHIVE",
    "queries": "",
    "query": "ARCHIVE high_score -p min_score=0",
    "restore": "ARCHIVE",
    "replay": "ARCHIVE 0 -o OUT",
    "report": "ARCHIVE -o OUT",
    "schema": "ARCHIVE",
    "show": "ARCHIVE 0",
    "simulate": "--runs 1 --fast -o OUT",
    "sql": "ARCHIVE values(1)",
    "tag": "ARCHIVE name",
    "verify": "ARCHIVE",
    "view": "ARCHIVE --no-browser",
}
"""Arguments of each subcommand. Words in capitals stand for paths."""

READS_NO_DATA = {"completions", "queries", "simulate"}
REPAIRS = {"restore"}
"""Damage is no error for these."""

Arguments = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def sound(run_files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive and run files, which all are sound."""
    folder = tmp_path_factory.mktemp("sound")
    (folder / "RUNS").mkdir()
    for path in run_files[:3]:
        (folder / "RUNS" / path.name).write_bytes(path.read_bytes())
    a2store.Archive.create(folder / "ARCHIVE").ingest(folder / "RUNS", progress=False)
    return folder


def arguments(folder: Path, line: str) -> list[str]:
    words = (word.partition("/") for word in line.split())
    return [str(folder / word / rest) if word.isupper() else word + slash + rest for word, slash, rest in words]


def test_every_subcommand_is_listed() -> None:
    assert set(LINES) == set(helps("a2store"))


# `test_critic_*.py` runs `critic` itself, and `test_view_*.py` runs `view`, which serves until it is stopped.
@pytest.mark.parametrize("name", sorted(set(LINES) - {"critic", "view"}))
def test_0_if_all_is_well(sound: Path, tmp_path: Path, name: str) -> None:
    folder = copied(sound, tmp_path / "sound")
    done = run_command(name, *arguments(folder, LINES[name]))
    assert done.stderr == ""


@pytest.mark.parametrize("name", sorted(set(LINES) - READS_NO_DATA - {"critic"}))
def test_1_if_the_data_is_damaged(sound: Path, tmp_path: Path, name: str) -> None:
    folder = copied(sound, tmp_path / "sound")
    newest = manifest_path(folder / "ARCHIVE", 2)
    newest.write_bytes(newest.read_bytes()[:-9])
    for path in (folder / "RUNS").iterdir():
        path.write_bytes(path.read_bytes()[:-9])
    done = run_command(name, *arguments(folder, LINES[name]), status=0 if name in REPAIRS else 1)
    assert done.stderr != "" or name in REPAIRS or name == "verify"


@pytest.mark.parametrize(
    "name", sorted(name for name, line in LINES.items() if {"ARCHIVE", "RUNS"} & set(line.split()))
)
def test_2_for_an_absent_input(tmp_path: Path, name: str) -> None:
    done = run_command(name, *arguments(tmp_path, LINES[name]), status=2)
    assert done.stdout == ""
    assert str(tmp_path) in done.stderr
    assert list(tmp_path.iterdir()) == []


# The output on a terminal: its width and colours


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
    assert cells == ["1234567", "0.666667", "null", "\\u{1b}a"]
    csv = run_command("sql", archive.path, sql, "--format", "csv").stdout
    assert csv.splitlines()[1].startswith("1234567,0.6666666")


def test_errors_are_marked_on_a_terminal(tmp_path: Path) -> None:
    text = on_terminal(80, "info", tmp_path / "absent", status=2)
    assert RED in text
    assert plain(text).startswith("a2store: ")
    assert "\x1b" not in on_terminal(80, "info", tmp_path / "absent", status=2, NO_COLOR="1")
