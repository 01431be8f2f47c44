"""Options and help texts of the commands ``a2store`` and ``a2pack``, in every subcommand."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

import a2store
from archives import run_a2pack, run_command
from faults.shim import python
from threads import HANGS

COMMANDS = re.compile(r"^  ([a-z][a-z-]+)  ", re.MULTILINE)
"""The names in the list of subcommands of a help text."""


RUN = {"a2store": run_command, "a2pack": run_a2pack}


@cache
def helps(name: str) -> dict[str, str]:
    """Return the help text of each subcommand."""
    names = COMMANDS.findall(RUN[name]("--help").stdout)
    return {command: RUN[name](command, "--help").stdout for command in names if command != "help"}


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
    for command in helps(name):
        assert f"'{command}:" in zsh or f"{command}:" in zsh
        assert f'-a "{command}"' in fish
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
