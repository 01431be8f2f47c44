"""Archives for tests: making them of short games, reading them, and forging them with correct checksums."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

import a2store
import forked
import oracle
from oracle import Game
from threads import HANGS

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
"""An archive that freezes the schema, and the run files that it contains."""
GOLDEN_PHASES = {"mid": 64, "late": 256}
ENGINES = ("alpha", "beta", None, "γάμμα")
TRAILER = len(',"crc32c":"00000000"}\n')
Table = Literal["runs", "steps"]
Tables = dict[str, Any]


# Making


@cache
def _whole_games(folder: Path) -> tuple[Game, ...]:
    a2store.simulate(folder, runs=8, seed=7, depth=0, progress=False)
    games = tuple(oracle.decode(path.read_bytes()) for path in sorted(folder.iterdir()))
    shutil.rmtree(folder)
    return games


def short_games(folder: Path, count: int, steps: int = 20) -> list[Game]:
    """Return pieces of simulated games: all different, of four engines, with ascending scores.

    ``folder`` must be new, and is removed at the end.
    """
    whole = _whole_games(folder)
    games = []
    for index in range(count):
        game = whole[index % len(whole)]
        at = index // len(whole) * 7 % (len(game) - steps - 1)
        boards = (*game.boards, game.final_board)
        tile = max(max(oracle.cells(board)) for board in boards[at : at + steps + 1])
        piece = replace(
            game,
            boards=boards[at : at + steps],
            moves=game.moves[at : at + steps],
            branches=game.branches[at : at + steps],
            final_board=boards[at + steps],
            start_unix_s=1_700_000_000 + 60 * index,
            elapsed_s=index / 8,
            max_score=100 * index,
            highest_tile=2**tile,
            engine=ENGINES[index % len(ENGINES)],
        )
        games.append(piece)
    return games


def short_runs(folder: Path, count: int, steps: int = 20) -> list[Path]:
    """Write run files of such games, every third of them in A2T1, and return their paths."""
    folder.mkdir(parents=True)
    paths = []
    for index, game in enumerate(short_games(folder / "whole", count, steps)):
        a2t1 = index % 3 == 2
        path = folder / f"{index:05}.{'bin' if a2t1 else 'a2run2'}"
        path.write_bytes(oracle.encode_a2t1(game) if a2t1 else oracle.encode_a2run2(game))
        paths.append(path)
    return paths


def grow(path: Path, groups: Iterable[Iterable[Path]], **options: Any) -> a2store.Archive:
    """Ingest each group of files as one version, and return the archive. Create it if it does not exist."""
    archive = a2store.Archive.open(path) if path.exists() else a2store.Archive.create(path, **options)
    for group in groups:
        archive.ingest(list(group), progress=False)
    return archive


def first_ingest(path: str | Path, source: Any, **options: Any) -> tuple[a2store.Archive, a2store.IngestReport]:
    """Create an archive of these runs, and return it with the report of the ingest."""
    archive = a2store.Archive.create(path, **options)
    return archive, archive.ingest(source, progress=False)


def ingested(path: str | Path, source: Any, **options: Any) -> a2store.Archive:
    """Create an archive of these runs."""
    return first_ingest(path, source, **options)[0]


def simulated(folder: Path, **options: Any) -> a2store.Archive:
    """Create the archive ``games.a2`` of simulated games, whose files are in ``runs``."""
    a2store.simulate(folder / "runs", progress=False, **options)
    return ingested(folder / "games.a2", folder / "runs")


def chunks(files: list[Path], size: int) -> list[list[Path]]:
    return [files[at : at + size] for at in range(0, len(files), size)]


# Reading


def plain(table: Any) -> Any:
    """Return the table without chunks and dictionaries, so that only values and types matter."""
    columns = []
    for column in table.combine_chunks().columns:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        columns.append(column)
    return pa.table(columns, names=table.column_names)


def tables(archive: a2store.Archive) -> Tables:
    """Return all rows of both tables, in the order of the archive."""
    return {name: plain(pa.table(archive.sql(f"SELECT * FROM {name}"))) for name in ("runs", "steps")}


def assert_same_tables(found: Tables, expected: Tables, but: Iterable[str] = ()) -> None:
    """Check that all columns of both tables are equal, except for the columns ``but``."""
    for name in ("runs", "steps"):
        assert found[name].schema.equals(expected[name].schema), name
        columns = [column for column in expected[name].column_names if column not in but]
        for column in columns:
            assert found[name][column].equals(expected[name][column]), f"{name}.{column}"


def names(path: Path) -> set[str]:
    """Return the files in an archive, relative to it, without the lock."""
    files = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
    return files - {"_versions/.lock"}


def contents(path: Path) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in names(path)}


def found(path: Path) -> set[tuple[str, int | None, str]]:
    """Return the problems that verification finds: the file, the run and what is wrong."""
    return {(each.path, each.run_id, each.what) for each in a2store.verify(path, progress=False).problems}


def data_files(path: Path, table: Table) -> list[str]:
    files = a2store.Archive.open(path).files(table)
    return [Path(file).relative_to(path).as_posix() for file in files]


def copied(source: Path, target: Path) -> Path:
    """Copy an archive, replace an earlier copy, and return the path."""
    if target.exists():
        shutil.rmtree(target)
    return Path(shutil.copytree(source, target))


def command(*args: object) -> list[str]:
    return [sys.executable, "-m", "a2store", *map(str, args)]


def run_command(*args: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run ``a2store`` to its end and check the exit status."""
    return checked(forked.run(*args), status)


def run_a2pack(*args: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run ``a2pack`` to its end and check the exit status."""
    words = [str(Path(sys.executable).with_name("a2pack")), *map(str, args)]
    return checked(subprocess.run(words, capture_output=True, check=False, timeout=HANGS, text=True), status)


def report(*args: object, status: int = 0) -> Any:
    """Return the one JSON value that ``a2store`` prints."""
    return json.loads(run_command(*args, "--json", status=status).stdout)


def checked(done: subprocess.CompletedProcess[str], status: int) -> subprocess.CompletedProcess[str]:
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    assert "panicked" not in done.stderr
    return done


# Forging


def manifest_path(archive: Path, version: int) -> Path:
    return archive / manifest_name(version)


def manifest_name(version: int) -> str:
    """Return the manifest of a version, relative to the archive. The newest comes first in a listing."""
    return f"_versions/{2**64 - 1 - version:020}.json"


def version_of(manifest: Path) -> int:
    return 2**64 - 1 - int(manifest.stem)


def versions_in(archive: Path) -> list[int]:
    """Return the versions that have a manifest, newest first."""
    return [version_of(path) for path in sorted((archive / "_versions").glob("*.json"))]


def sealed(fields: dict[str, Any]) -> bytes:
    """Return a manifest as the bytes of a file."""
    body = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)[:-1].encode()
    return body + f',"crc32c":"{oracle.crc32c(body):08x}"}}\n'.encode()


def unsealed(path: Path) -> dict[str, Any]:
    """Check the checksum of a manifest, and return the fields."""
    data = path.read_bytes()
    fields: dict[str, Any] = json.loads(data)
    assert fields.pop("crc32c") == f"{oracle.crc32c(data[:-TRAILER]):08x}"
    return fields


def forge(archive: Path, version: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a manifest, and correct its checksum."""
    path = manifest_path(archive, version)
    fields = unsealed(path)
    change(fields)
    path.write_bytes(sealed(fields))


def forge_data(archive: Path, version: int, table: str, change: Callable[[Any], Any]) -> str:
    """Rewrite the one file that a version adds to a table, correct the manifests, and return its relative path."""
    before = {entry["path"] for entry in unsealed(manifest_path(archive, version - 1))["files"]}
    files = unsealed(manifest_path(archive, version))["files"]
    (name,) = [str(entry["path"]) for entry in files if entry["table"] == table and entry["path"] not in before]
    path = archive / name
    rows = change(pq.read_table(path))
    pq.write_table(rows, path, compression="zstd", write_page_index=True)
    data = path.read_bytes()
    ids = rows["run_id"].to_pylist()
    facts = {"num_bytes": len(data), "crc32c": f"{oracle.crc32c(data):08x}", "num_rows": len(rows)}
    facts |= {"first_run_id": ids[0], "last_run_id": ids[-1], "row_groups": [len(rows)]}

    def rewrite(fields: dict[str, Any]) -> None:
        for entry in fields["files"]:
            if entry["path"] == name:
                entry.update(facts)

    for number in versions_in(archive):
        forge(archive, number, rewrite)
    return name


def with_values(table: Any, column: str, values: list[Any]) -> Any:
    """Replace the values of a column; its name and type stay the same."""
    field = table.schema.field(column)
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    array = pa.array(values, kind)
    if pa.types.is_dictionary(field.type):
        array = array.dictionary_encode()
    return table.set_column(table.column_names.index(column), field, pa.chunked_array([array]).cast(field.type))
