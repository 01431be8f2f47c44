"""The exit status of every subcommand of ``a2store``: 0 = done, 1 = a problem in the data, 2 = wrong usage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import a2store
from archives import copied, manifest_path, run_command
from test_command_options import helps

COMMANDS = {
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
    assert set(COMMANDS) == set(helps("a2store"))


# `test_critic_*.py` runs `critic` itself, and `test_view_*.py` runs `view`, which serves until it is stopped.
@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"critic", "view"}))
def test_0_if_all_is_well(sound: Path, tmp_path: Path, name: str) -> None:
    folder = copied(sound, tmp_path / "sound")
    done = run_command(name, *arguments(folder, COMMANDS[name]))
    assert done.stderr == ""


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - READS_NO_DATA - {"critic"}))
def test_1_if_the_data_is_damaged(sound: Path, tmp_path: Path, name: str) -> None:
    folder = copied(sound, tmp_path / "sound")
    newest = manifest_path(folder / "ARCHIVE", 2)
    newest.write_bytes(newest.read_bytes()[:-9])
    for path in (folder / "RUNS").iterdir():
        path.write_bytes(path.read_bytes()[:-9])
    done = run_command(name, *arguments(folder, COMMANDS[name]), status=0 if name in REPAIRS else 1)
    assert done.stderr != "" or name in REPAIRS or name == "verify"


@pytest.mark.parametrize(
    "name", sorted(name for name, line in COMMANDS.items() if {"ARCHIVE", "RUNS"} & set(line.split()))
)
def test_2_for_an_absent_input(tmp_path: Path, name: str) -> None:
    done = run_command(name, *arguments(tmp_path, COMMANDS[name]), status=2)
    assert done.stdout == ""
    assert str(tmp_path) in done.stderr
    assert list(tmp_path.iterdir()) == []
