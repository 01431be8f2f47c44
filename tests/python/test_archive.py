"""Archives: creating and opening, versions, and the files in other tools."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import a2store
from compare import assert_steps, column
from oracle import Array, Game


def test_a_new_archive_is_empty(tmp_path: Path) -> None:
    archive = a2store.Archive.create(tmp_path / "deep" / "games.a2")
    assert (archive.version, archive.num_runs, archive.num_steps) == (1, 0, 0)
    assert archive.path == tmp_path / "deep" / "games.a2"
    assert archive.phases == {"mid": 1024, "late": 4096}
    assert archive.files("steps") == archive.files("runs") == []
    assert [commit.operation for commit in archive.history()] == ["create"]


def test_create_over_an_existing_archive(one_run: a2store.Archive) -> None:
    with pytest.raises(a2store.ArchiveExistsError) as caught:
        a2store.Archive.create(one_run.path)
    assert (caught.value.kind, caught.value.path) == ("archive_exists", one_run.path)
    assert isinstance(caught.value, a2store.ArchiveError)
    assert a2store.Archive.open(one_run.path).num_runs == 1


def test_open_a_folder_that_is_not_an_archive(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        a2store.Archive.open(tmp_path / "absent.a2")
    assert str(tmp_path / "absent.a2") in str(missing.value.filename)
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "notes.txt").write_text("no archive")
    with pytest.raises(a2store.ArchiveError) as caught:
        a2store.Archive.open(tmp_path / "plain")
    assert (caught.value.kind, caught.value.path) == ("not_an_archive", tmp_path / "plain")
    assert not isinstance(caught.value, a2store.ArchiveExistsError)


@pytest.mark.parametrize(
    "phases",
    [
        {"mid": 1000},
        {"late": 0},
        {"mid": 1},
        {"mid": 4096},
        {"mid": 8192, "late": 4096},
        {"late": 65536},
        {"middle": 512},
    ],
)
def test_phases_must_be_tiles_in_order(tmp_path: Path, phases: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="phases"):
        a2store.Archive.create(tmp_path / "games.a2", phases=phases)
    assert not (tmp_path / "games.a2").exists()


def test_phases_of_other_types(tmp_path: Path) -> None:
    bad: list[Any] = [{"mid": "512"}, {"mid": 512.5}, [("mid", 512)]]
    for phases in bad:
        with pytest.raises(TypeError):
            a2store.Archive.create(tmp_path / "games.a2", phases=phases)


@pytest.mark.parametrize("phases", [{"mid": 2, "late": 4}, {"mid": 64}, {"late": 32768}])
def test_phases_stay_with_the_archive(tmp_path: Path, run_files: list[Path], phases: dict[str, int]) -> None:
    full = {"mid": 1024, "late": 4096} | phases
    archive = a2store.Archive.create(tmp_path / "games.a2", phases=phases)
    assert archive.phases == full
    archive = a2store.Archive.open(tmp_path / "games.a2")
    assert archive.phases == full
    archive.ingest(run_files[:3], progress=False)
    table = pa.table(archive.sql("SELECT max_exp, phase FROM steps"))
    for exp, phase in set(zip(column(table, "max_exp").tolist(), column(table, "phase").tolist(), strict=True)):
        tile = 2**exp
        assert phase == ("late" if tile >= full["late"] else "mid" if tile >= full["mid"] else "early")


def test_versions(run_files: list[Path], games: list[Game], tmp_path: Path) -> None:
    path = tmp_path / "games.a2"
    archive = a2store.Archive.create(path)
    stale = a2store.Archive.open(path)
    for count in range(3):
        archive.ingest(run_files[2 * count : 2 * count + 2], progress=False)
        assert (archive.version, archive.num_runs) == (2 + count, 2 + 2 * count)
    num_steps = [sum(map(len, games[:num_runs])) for num_runs in (0, 2, 4, 6)]
    for version, steps in enumerate(num_steps, start=1):
        pinned = a2store.Archive.open(path, version=version)
        assert (pinned.version, pinned.num_runs, pinned.num_steps) == (version, 2 * version - 2, steps)
        assert pinned.sql("SELECT * FROM steps").count() == steps
        assert pinned.sql("SELECT * FROM runs").count() == pinned.num_runs
        assert len(pinned.history()) == version
        assert pinned.files("steps") == archive.files("steps")[: version - 1]
    assert (stale.version, stale.num_runs) == (1, 0)
    stale.refresh()
    assert (stale.version, stale.num_runs) == (4, 6)
    pinned = a2store.Archive.open(path, version=2)
    pinned.refresh()
    assert pinned.version == 4
    for version in (0, 5):
        with pytest.raises(a2store.VersionNotFoundError) as caught:
            a2store.Archive.open(path, version=version)
        assert caught.value.kind == "version_not_found"


def test_history(run_files: list[Path], games: list[Game], tmp_path: Path) -> None:
    start = datetime.now(UTC)
    archive = a2store.Archive.create(tmp_path / "games.a2")
    archive.ingest(run_files[0], progress=False)
    archive.ingest(run_files[:3], progress=False)
    sizes = [len(game) for game in games[:3]]
    facts = [
        (commit.version, commit.operation, commit.added_runs, commit.added_steps, commit.num_runs, commit.num_steps)
        for commit in archive.history()
    ]
    assert facts == [
        (3, "ingest", 2, sizes[1] + sizes[2], 3, sum(sizes)),
        (2, "ingest", 1, sizes[0], 1, sizes[0]),
        (1, "create", 0, 0, 0, 0),
    ]
    times = [commit.time for commit in archive.history()]
    assert times == sorted(times, reverse=True)
    assert {time.tzinfo for time in times} == {UTC}
    # The log stores times in milliseconds.
    assert start.timestamp() - 0.001 <= times[-1].timestamp() <= times[0].timestamp() <= datetime.now(UTC).timestamp()


def test_files_lists_the_files_of_each_table(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    files = archive.files("steps")
    assert files == archive.files()
    assert len(files) == 3
    assert all(Path(file).is_absolute() and Path(file).is_file() for file in files)
    table = pa.concat_tables([pq.read_table(file) for file in files], promote_options="permissive")
    assert_steps(table, steps)
    assert sum(pq.read_metadata(file).num_rows for file in archive.files("runs")) == archive.num_runs
    frame = pl.read_parquet(files)
    assert frame["board"].to_numpy().tolist() == steps["board"].tolist()
    assert frame["phase"].cast(pl.String).to_list() == steps["phase"].tolist()
    with pytest.raises(ValueError, match="table"):
        archive.files("games")  # type: ignore[arg-type]


def test_duckdb_reads_the_folder_directly(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    with duckdb.connect() as connection:
        relation = connection.read_parquet(f"{archive.path}/steps/*.parquet").order("run_id, step_index")
        assert_steps(relation.to_arrow_table(), steps)
        types = dict(zip(relation.columns, map(str, relation.types), strict=True))
    assert types["board"] == "UBIGINT"
    assert types["run_id"] == "UINTEGER"


def test_the_columns_of_runs(archive: a2store.Archive, games: list[Game], run_files: list[Path]) -> None:
    rows = pa.table(archive.sql("SELECT * FROM runs")).to_pylist()
    assert len(rows) == len(games)
    for run_id, (row, game, path) in enumerate(zip(rows, games, run_files, strict=True)):
        assert row["run_id"] == run_id
        assert row["format"] == {".bin": "a2t1", ".a2run2": "a2run2"}[path.suffix]
        assert row["source"] == str(path)
        assert (row["engine"], row["elapsed_s"]) == (game.engine, game.elapsed_s)
        assert (row["start_time"].timestamp() if row["start_time"] else 0) == game.start_unix_s
        assert (row["num_steps"], row["max_score"], row["highest_tile"]) == (
            len(game),
            game.max_score,
            game.highest_tile,
        )
        assert row["final_board"] == game.final_board
        assert row["verified"] is True
        assert row["ingested_at"].tzinfo is not None
    assert len({row["digest"] for row in rows}) == len(rows)
    assert all(len(row["digest"]) == 32 for row in rows)


def test_a_changed_commit_is_noticed(one_run: a2store.Archive) -> None:
    (newest,) = (one_run.path / "_log").glob("*2.json")
    text = newest.read_text()
    changed = text.replace('"num_runs":1', '"num_runs":2').replace('"num_runs": 1', '"num_runs": 2')
    assert changed != text
    newest.chmod(0o644)
    newest.write_text(changed)
    with pytest.raises(a2store.DamagedError) as caught:
        a2store.Archive.open(one_run.path)
    assert (caught.value.kind, caught.value.path) == ("damaged", newest)
    assert a2store.Archive.open(one_run.path, version=1).num_runs == 0


def test_repr_names_the_archive(one_run: a2store.Archive) -> None:
    assert f"version={one_run.version}" in repr(one_run)
    assert "num_runs=1" in repr(one_run)
    assert "board" in repr(one_run.sql("SELECT board FROM steps"))
