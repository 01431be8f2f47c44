"""The command ``a2store`` in a child process."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest

import a2store
import forked
from archives import command, report, run_command
from compare import assert_steps
from conftest import PHASES
from oracle import Array
from threads import HANGS

NAMES = ["run_id", "step_index", "board", "move"]
SQL = "SELECT run_id, step_index, board, move FROM steps WHERE max_score >= $min AND phase = $p"
PARAMS = ["-p", "min=5000", "-p", "p=mid"]


def run(*args: object, status: int = 0) -> subprocess.CompletedProcess[bytes]:
    """Run ``a2store`` to its end and check the exit status."""
    done = forked.run_bytes(*args)
    assert done.returncode == status, done.stderr.decode()
    return done


@pytest.fixture(scope="module")
def rows(steps: dict[str, Array]) -> Array:
    rows: Array = ((steps["max_score"] >= 5000) & (steps["phase"] == "mid")).nonzero()[0]
    assert len(rows) > 100
    return rows


def test_from_games_to_rows(tmp_path: Path) -> None:
    runs, archive = tmp_path / "runs", tmp_path / "games.a2"
    played = report("simulate", "--runs", 6, "--seed", 1, "--fast", "--out", runs)
    assert played["runs"] == 6 == len(list(runs.iterdir()))
    assert played["num_bytes"] == sum(path.stat().st_size for path in runs.iterdir())
    # The same call from Python.
    again = a2store.simulate(tmp_path / "again", runs=6, seed=1, depth=0, progress=False)
    assert (again.runs, again.num_steps, again.num_bytes) == (6, played["num_steps"], played["num_bytes"])
    for path in runs.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()

    ingested = report("ingest", runs, archive)
    counts = {name: ingested[name] for name in ("accepted", "duplicates", "rejected", "version", "num_steps")}
    assert counts == {"accepted": 6, "duplicates": 0, "rejected": 0, "version": 2, "num_steps": played["num_steps"]}
    assert report("ingest", runs, archive)["duplicates"] == 6

    info = report("info", archive)
    assert (info["version"], info["num_runs"], info["num_steps"]) == (2, 6, played["num_steps"])
    assert info["phases"] == {"mid": 1024, "late": 4096}
    assert report("info", archive, "--version", 1)["num_runs"] == 0
    history = report("history", archive)
    assert [(commit["version"], commit["operation"], commit["added_runs"]) for commit in history] == [
        (2, "ingest", 6),
        (1, "create", 0),
    ]
    opened = a2store.Archive.open(archive)
    assert (opened.num_runs, opened.num_steps) == (6, played["num_steps"])


@pytest.mark.parametrize("name", ["csv", "json", "parquet", "arrow"])
def test_formats(archive: a2store.Archive, steps: dict[str, Array], rows: Array, tmp_path: Path, name: str) -> None:
    def read(data: bytes) -> Any:
        source = io.BytesIO(data)
        if name == "csv":
            options = pyarrow.csv.ConvertOptions(column_types={"board": pa.uint64()})
            return pyarrow.csv.read_csv(source, convert_options=options)
        if name == "json":
            schema = pa.schema([(column, pa.uint64()) for column in NAMES])
            return pyarrow.json.read_json(source, parse_options=pyarrow.json.ParseOptions(explicit_schema=schema))
        return pq.read_table(source) if name == "parquet" else pa.ipc.open_stream(source).read_all()

    done = run("sql", archive.path, SQL, *PARAMS, "--format", name)
    assert done.stderr == b""
    assert_steps(read(done.stdout), steps, rows, NAMES)
    file = tmp_path / "out"
    assert run_command("sql", archive.path, SQL, *PARAMS, "--format", name, "-o", file).stdout == ""
    assert_steps(read(file.read_bytes()), steps, rows, NAMES)


def test_wrong_usage(tmp_path: Path) -> None:
    """test_command_options.py tries absent inputs of every subcommand."""
    done = run_command("simulate", "--depth", 9, "--out", tmp_path / "somewhere", status=2)
    assert done.stdout == ""
    assert done.stderr != ""
    assert list(tmp_path.iterdir()) == []


def test_bad_files_are_listed(run_files: list[Path], tmp_path: Path) -> None:
    bad = tmp_path / "bad.a2run2"
    bad.write_bytes(run_files[0].read_bytes()[:500])
    archive = tmp_path / "games.a2"
    done = run_command("ingest", run_files[1], bad, archive, "--json", status=1)
    ingested = json.loads(done.stdout)
    assert (ingested["accepted"], ingested["rejected"]) == (1, 1)
    (error,) = ingested["errors"]
    assert (error["path"], error["kind"]) == (str(bad), "decode")
    assert error["offset"] <= 500
    assert str(bad) in done.stderr
    strict = run_command("ingest", run_files[2], bad, archive, "--strict", status=1)
    assert strict.stdout == ""
    assert a2store.Archive.open(archive).num_runs == 1


def test_phases_of_a_new_archive(run_files: list[Path], tmp_path: Path) -> None:
    archive = tmp_path / "games.a2"
    run_command("ingest", run_files[0], archive, "--mid", PHASES["mid"], "--late", PHASES["late"])
    assert a2store.Archive.open(archive).phases == PHASES
    run_command("ingest", run_files[1], tmp_path / "other.a2", "--mid", "5", status=2)
    assert not (tmp_path / "other.a2").exists()


def test_a_closed_pipe_does_not_change_the_status(archive: a2store.Archive, tmp_path: Path) -> None:
    bad, (reader, writer) = tmp_path / "bad.bin", os.pipe()
    bad.touch()
    os.close(reader)
    for status, *words in (
        (0, "sql", archive.path, "SELECT * FROM steps", "--format", "csv"),
        (1, "convert", bad, "--skip-errors", "--format", "jsonl", "-o", tmp_path / "out"),
    ):
        done = subprocess.run(command(*words), stdout=writer, stderr=subprocess.PIPE, timeout=HANGS, check=False)
        assert (done.returncode, b"Broken pipe" in done.stderr) == (status, False)
    os.close(writer)


def test_the_installed_command(archive: a2store.Archive) -> None:
    script = Path(sys.executable).with_name("a2store")
    done = subprocess.run([script, "info", archive.path, "--json"], capture_output=True, check=True, timeout=HANGS)
    assert json.loads(done.stdout)["num_steps"] == archive.num_steps


def test_the_ending_of_the_output_file_determines_the_format(archive: a2store.Archive, tmp_path: Path) -> None:
    sql = ("sql", archive.path, "SELECT run_id FROM runs")
    readers: dict[str, Any] = {
        "rows.parquet": lambda path: pq.read_table(path).num_rows,
        "rows.CSV": lambda path: len(path.read_text().splitlines()) - 1,
        "rows.json": lambda path: len(path.read_text().splitlines()),
        "rows.jsonl": lambda path: len(path.read_text().splitlines()),
        "rows.arrow": lambda path: pa.ipc.open_file(path).read_all().num_rows,
        "rows.ARROW": lambda path: pa.ipc.open_file(path).read_all().num_rows,
        "rows.arrows": lambda path: pa.ipc.open_stream(path).read_all().num_rows,
    }
    for name, num_rows in readers.items():
        assert run_command(*sql, "-o", tmp_path / name).stdout == ""
        assert num_rows(tmp_path / name) == archive.num_runs
    run_command(*sql, "-o", tmp_path / "rows.txt")
    assert "the first 40 rows" in (tmp_path / "rows.txt").read_text()
    for options, message in (
        (("-o", tmp_path / "rows.xlsx"), "expected the ending .parquet, .csv, .json, .jsonl, .arrow, .arrows or .txt"),
        (("-o", tmp_path / "rows"), "or --format"),
        (("-o", tmp_path / "new.parquet", "--format", "csv"), "new.parquet, found csv"),
        (("--overwrite",), "--output"),
    ):
        done = run_command(*sql, *options, status=2)
        assert message in done.stderr, done.stderr


def test_an_existing_file_is_kept_without_overwrite(archive: a2store.Archive, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("precious")
    for args in (("sql", archive.path, "SELECT 1 AS one"), ("query", archive.path, "phase_mix")):
        done = run_command(*args, "-o", file, status=2)
        assert done.stderr == (f"a2store: -o {file}: the file exists: --overwrite replaces it\n")
        assert file.read_text() == "precious"
    run_command("sql", archive.path, "SELECT 1 AS one", "-o", file, "--overwrite")
    assert file.read_text() == "one\n1\n"
    # A device needs no --overwrite.
    run_command("sql", archive.path, "SELECT 1 AS one", "--format", "csv", "-o", "/dev/null")


def test_swapped_arguments_of_ingest_create_nothing(archive: a2store.Archive, tmp_path: Path) -> None:
    done = run_command("ingest", archive.path, tmp_path / "new", status=2)
    assert "found an archive; the archive comes last, as in `a2store ingest" in done.stderr
    assert not (tmp_path / "new").exists()
    (tmp_path / "run").touch()
    done = run_command("ingest", tmp_path, tmp_path / "run", status=2)
    assert "found a file; the archive comes last, as in `a2store ingest" in done.stderr
    assert "comes last" not in run_command("ingest", archive.path, archive.path, status=2).stderr
    with pytest.raises(ValueError, match="paths: expected files and folders of runs, found an archive"):
        a2store.Archive.create(tmp_path / "games.a2").ingest(archive.path, progress=False)
