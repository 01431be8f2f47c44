"""Archives: creating and opening, versions, and the files in other tools."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize("read", [a2store.Archive.open, a2store.verify, a2store.restore])
def test_a_folder_that_is_not_an_archive(tmp_path: Path, read: Callable[..., object]) -> None:
    options: list[dict[str, bool]] = [{"dry_run": True}, {}] if read is a2store.restore else [{}]
    (tmp_path / "empty").mkdir()
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "notes.txt").write_text("no archive")
    for option in options:
        with pytest.raises(FileNotFoundError) as missing:
            read(tmp_path / "absent.a2", **option)
        assert str(tmp_path / "absent.a2") in str(missing.value.filename)
        for name in ("empty", "plain"):
            with pytest.raises(a2store.ArchiveError) as caught:
                read(tmp_path / name, **option)
            assert (caught.value.kind, caught.value.path) == ("not_an_archive", tmp_path / name)
            assert not isinstance(caught.value, a2store.ArchiveExistsError)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["empty", "notes.txt", "plain"]


def test_wrong_phases(tmp_path: Path) -> None:
    bad: list[Any] = [{"mid": "512"}, {"mid": 512.5}, [("mid", 512)]]
    for phases in bad:
        with pytest.raises(TypeError):
            a2store.Archive.create(tmp_path / "games.a2", phases=phases)
    for wrong in ({"mid": 1000}, {"mid": 8192, "late": 4096}, {"late": 65536}, {"middle": 512}):
        with pytest.raises(ValueError, match="phases"):
            a2store.Archive.create(tmp_path / "games.a2", phases=wrong)
    assert not (tmp_path / "games.a2").exists()


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


def test_files_lists_the_files_of_each_table(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    files = archive.files("steps")
    assert files == archive.files()
    assert len(files) == 3
    assert all(Path(file).is_absolute() and Path(file).is_file() for file in files)
    table = pa.concat_tables([pq.read_table(file) for file in files], promote_options="permissive")
    assert_steps(table, steps)
    assert sum(pq.read_metadata(file).num_rows for file in archive.files("runs")) == archive.num_runs
    with pytest.raises(ValueError, match="table"):
        archive.files("games")  # type: ignore[arg-type]


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


def test_repr_names_the_archive(one_run: a2store.Archive) -> None:
    assert f"version={one_run.version}" in repr(one_run)
    assert "num_runs=1" in repr(one_run)
    assert "board" in repr(one_run.sql("SELECT board FROM steps"))
