"""Archives: creating and opening, versions, pickles, and the files in other tools."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import a2store
from archives import ingested, manifest_path
from compare import assert_steps, column
from object_store.plugin import KEY, REGION, SECRET
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


# Opening


def test_open_reads_and_creates(archive: a2store.Archive, tmp_path: Path) -> None:
    assert a2store.open(archive.path).version == archive.version
    assert a2store.open(str(archive.path), version=2).version == 2
    path = tmp_path / "deep" / "new.a2"
    with pytest.raises(FileNotFoundError):
        a2store.open(path)
    assert not path.exists()
    assert a2store.open(path, create=True).version == 1
    # The second call opens what the first one created.
    assert len(a2store.open(path, create=True).history()) == 1
    assert a2store.open(archive.path, create=True).num_runs == archive.num_runs


def test_open_never_creates_over_something(tmp_path: Path, one_run: a2store.Archive) -> None:
    (tmp_path / "notes.txt").write_text("no archive")
    with pytest.raises(a2store.ArchiveError, match="not an archive"):
        a2store.open(tmp_path, create=True)
    assert (tmp_path / "notes.txt").read_text() == "no archive"
    manifest_path(one_run.path, 1).unlink()
    manifest_path(one_run.path, 2).unlink()
    with pytest.raises(a2store.ArchiveError):
        a2store.open(one_run.path, create=True)


def test_versions_out_of_range(archive: a2store.Archive) -> None:
    with pytest.raises(a2store.VersionNotFoundError):
        a2store.open(archive.path, version=99)
    with pytest.raises(ValueError, match="version: expected no version"):
        a2store.open(archive.path, version=1, create=True)


def test_options_instead_of_environment_variables(
    url: str, monkeypatch: pytest.MonkeyPatch, run_files: list[Path]
) -> None:
    options: dict[str, Any] = {
        "aws_access_key_id": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "aws_region": REGION,
        "aws_endpoint": os.environ["AWS_ENDPOINT_URL"],
        "allow_http": True,
    }
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    # Nothing listens there. The options override the environment.
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    archive = ingested(url, run_files[:2], storage_options=options)
    assert a2store.open(url, storage_options=options).num_runs == 2
    assert a2store.open(url, create=True, storage_options=options).num_runs == 2
    assert a2store.verify(url, storage_options=options, progress=False).problems == []
    assert archive.verify(progress=False).problems == []
    assert a2store.restore(url, storage_options=options).version == 2
    assert SECRET not in repr(archive)
    again = pickle.loads(pickle.dumps(archive))
    assert pa.table(again.sql("SELECT * FROM runs")).num_rows == 2


def test_unknown_options_are_named(tmp_path: Path) -> None:
    calls: list[Any] = [a2store.open, a2store.Archive.open, a2store.Archive.create, a2store.verify, a2store.restore]
    for scheme in ("s3", "gs", "az"):
        for call in calls:
            with pytest.raises(ValueError, match=r"storage_options: expected .*, found aws_acess_key") as caught:
                call(f"{scheme}://bucket/games.a2", storage_options={"aws_acess_key": "not-to-be-shown"})
            assert "not-to-be-shown" not in str(caught.value)
    with pytest.raises(TypeError, match="storage_options: aws_region: expected a str, a bool or an int, found list"):
        a2store.open("s3://bucket/games.a2", storage_options={"aws_region": ["a"]})
    # A folder needs no options.
    assert a2store.open(tmp_path / "new.a2", create=True, storage_options={"aws_region": "x"}).version == 1


# Pickles


def test_a_pickled_archive_keeps_its_version(one_run: a2store.Archive, run_files: list[Path]) -> None:
    old = a2store.Archive.open(one_run.path, checksums=False)
    data = pickle.dumps(old)
    one_run.ingest(run_files[1], progress=False)
    again = pickle.loads(data)
    assert (again.path, again.version, again.num_runs) == (old.path, old.version, 1)
    again.refresh()
    assert again.num_runs == 2
    assert copy.copy(old).version == old.version


@pytest.mark.parametrize("params", [{"min": 3}, [3], (3,)])
def test_a_pickled_query_has_the_same_result(archive: a2store.Archive, params: Any) -> None:
    labels = pa.table({"run_id": pa.array([1, 5, 9], pa.uint32()), "label": ["a", "b", "c"]})
    mark = "$min" if isinstance(params, dict) else "$1"
    sql = f"SELECT * FROM runs JOIN labels USING (run_id) WHERE runs.run_id >= {mark} ORDER BY runs.run_id"
    query = archive.sql(sql, params, tables={"labels": labels}, row_limit=2)
    expected = pa.table(query)
    assert expected.num_rows == 2
    data = pickle.dumps(query)
    if not isinstance(params, tuple):
        # A later change of the arguments does not matter.
        params.clear()
        assert pickle.dumps(query) == data
    for again in (pickle.loads(data), copy.deepcopy(query)):
        assert pa.table(again).equals(expected)
    assert pa.table(pickle.loads(pickle.dumps(query.limit(5).limit(1)))).equals(expected.slice(0, 1))


def test_a_pickled_named_query(archive: a2store.Archive) -> None:
    query = archive.query("high_score", min_score=2000, memory_limit=64 << 20)
    again = pickle.loads(pickle.dumps(query))
    assert np.asarray(again.materialize()).tobytes() == np.asarray(query.materialize()).tobytes()
    assert again.materialize().fingerprint == query.materialize().fingerprint
