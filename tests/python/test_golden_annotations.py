"""Archives with annotations that older versions wrote can be read, verified, extended and compacted.

Each ``annotated-<schema version>.a2`` is the golden archive of that schema version with six more commits: model
``folder-v1`` from the folder ``annotations``; ``table-v1`` in two parts from ``annotations.npy``; and a model that was
added, replaced and dropped.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import a2store
from annotations import MOVES, POLICIES, Array, columns
from archives import GOLDEN, contents, copied, plain, run_command, tables
from compare import assert_same

ARCHIVES = sorted(GOLDEN.glob("annotated-*.a2"))
DROPPED = "of-old-versions"
KINDS = {"policy_p1": 1, "policy_logp": 2, "policy_hard": 4}

golden = pytest.mark.parametrize("golden", ARCHIVES, ids=lambda path: path.stem)


def folder_rows() -> tuple[Array, Array]:
    """Return the rows of the folder with the archive's run ids, and their student bins."""
    folder = GOLDEN / "annotations"
    rows = np.concatenate([np.load(path) for path in sorted(folder.glob("annotations-0*.npy"))])
    bins = np.concatenate([np.load(path) for path in sorted(folder.glob("annotations-student-*.npy"))])
    rows["run_id"] -= 40
    return rows, bins.reshape(len(rows), -1)


def table_rows() -> Array:
    rows: Array = np.load(GOLDEN / "annotations.npy")
    return rows


def stored(archive: a2store.Archive, model: str) -> pa.Table:
    sql = "SELECT * FROM annotations WHERE model = $model ORDER BY run_id, step_index"
    return pa.table(archive.sql(sql, {"model": model}))


def assert_models(archive: a2store.Archive) -> None:
    """Compare both models with the files that they were made from."""
    rows, bins = folder_rows()
    found = stored(archive, "folder-v1")
    for name, expected in columns(rows).items():
        policy = name.rsplit("_", 1)[0]
        present = np.ones(len(rows), bool)
        if policy in KINDS:
            present = rows["policy_kind_mask"] & KINDS[policy] != 0
        elif name == "teacher_move":
            present = expected != 255
        column = found[name].combine_chunks()
        assert_same(np.asarray(column.is_valid()), present, name)
        assert_same(column.drop_null().to_numpy(), expected[present], name)
    assert_same(np.array(found["student_bins"].to_pylist(), "f4"), bins)
    logp = pa.list_(pa.float32(), 4)
    assert {found.schema.field(policy).type for policy in POLICIES} == {logp}
    assert_same(np.array(found["policy_logp"].to_pylist(), "f4"), rows["policy_logp"])

    rows, found = table_rows(), stored(archive, "table-v1")
    for name in ("run_id", "step_index", "argmax_head", "argmax_prob"):
        assert_same(found[name].to_numpy(), rows[name], name)
    for place, move in enumerate(MOVES):
        assert_same(found[f"policy_logp_{move}"].to_numpy(), rows["policy_logp"][:, place])
    for name in ("teacher_move", "legal_mask", "policy_kind_mask", "policy_p1", "policy_hard_up", "student_bins"):
        assert found[name].null_count == len(rows), name


def test_the_newest_schema_version_has_such_an_archive(tmp_path: Path) -> None:
    made = a2store.Archive.create(tmp_path / "games.a2")
    [newest] = re.findall(r'"schema_version":(\d+)', (made.path / "_log" / f"{1:020}.json").read_text())
    assert [path.name for path in ARCHIVES] == [f"annotated-{version}.a2" for version in range(5, int(newest) + 1)]


@golden
def test_the_annotations_of_an_old_archive(golden: Path, tmp_path: Path) -> None:
    path = copied(golden, tmp_path / "games.a2")
    before = contents(path)
    archive = a2store.Archive.open(path)
    assert_models(archive)
    assert [(info.model, info.num_files) for info in archive.annotations()] == [("folder-v1", 1), ("table-v1", 2)]
    assert [commit.operation for commit in archive.history()[:6]] == ["annotate"] * 6
    joined = "SELECT step_index FROM steps JOIN annotations USING (run_id, step_index) WHERE legal_mask = ev_legal"
    assert archive.sql(joined).count() == len(folder_rows()[0])
    for deep in (False, True):
        report = archive.verify(deep=deep, progress=False)
        assert (report.problems, report.version, report.unnamed_files) == ([], 9, 0)
    assert run_command("verify", path, "--deep").stdout.startswith("sound: ")
    assert a2store.repair(path).steps == []
    assert contents(path) == before
    rows = [pq.read_table(file).num_rows for file in archive.files("annotations")]
    assert sum(rows) == len(folder_rows()[0]) + len(table_rows())


@golden
def test_each_of_its_versions(golden: Path, tmp_path: Path) -> None:
    path = copied(golden, tmp_path / "games.a2")
    early, total = int((table_rows()["run_id"] < 2).sum()), len(table_rows())
    whole = {"folder-v1": len(folder_rows()[0])}
    expected: list[dict[str, int]] = [{}, {}, {}, whole, whole | {"table-v1": early}, whole | {"table-v1": total}]
    expected += [expected[-1] | {DROPPED: 3}, expected[-1] | {DROPPED: 5}, expected[-1]]
    for version, models in enumerate(expected, 1):
        archive = a2store.Archive.open(path, version=version)
        assert {info.model: info.num_rows for info in archive.annotations()} == models
        assert archive.sql("SELECT model FROM annotations").count() == sum(models.values())


@golden
def test_an_old_archive_accepts_new_annotations(golden: Path, tmp_path: Path) -> None:
    path = copied(golden, tmp_path / "games.a2")
    archive = a2store.Archive.open(path)
    games = tables(archive)
    rows = folder_rows()[0]
    # The same rows as another model, from the folder and from a table.
    archive.annotate("again", GOLDEN / "annotations", partial=True, progress=False)
    archive.annotate("rows", rows, partial=True, progress=False)
    again = plain(stored(archive, "again")).drop_columns(["model"])
    assert again.equals(plain(stored(archive, "folder-v1")).drop_columns(["model"]))
    archive.annotate("table-v1", table_rows()[:10], replace=True, partial=True, progress=False)
    assert {info.model: info.num_rows for info in archive.annotations()}["table-v1"] == 10
    shutil.rmtree(path)

    archive = a2store.Archive.open(copied(golden, path))
    archive.compact(progress=False)
    assert [info.num_files for info in archive.annotations()] == [1, 1]
    assert_models(archive)
    archive.expire(older_than=0, grace=0)
    archive = a2store.Archive.open(path)
    assert_models(archive)
    assert len(list((path / "annotations").iterdir())) == 2
    found = tables(archive)
    assert all(found[name].equals(games[name]) for name in games)
    assert archive.verify(deep=True, progress=False).problems == []


@golden
def test_lost_commits_of_annotations_are_rebuilt(golden: Path, tmp_path: Path) -> None:
    path = copied(golden, tmp_path / "games.a2")
    for version in (5, 7):
        (path / "_log" / f"{version:020}.json").unlink()
    a2store.repair(path, dry_run=False)
    archive = a2store.Archive.open(path)
    assert archive.version == 9
    assert_models(archive)
    assert archive.verify(deep=True, progress=False).problems == []
