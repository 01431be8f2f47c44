"""The archive in ``tests/golden`` can be read, verified, extended and compacted; other schema versions are rejected."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import a2store
from annotations import MOVES, POLICIES, columns, presence
from archives import (
    GOLDEN,
    GOLDEN_PHASES,
    Tables,
    assert_same_tables,
    contents,
    copied,
    forge,
    manifest_path,
    plain,
    run_command,
    short_runs,
    tables,
    unsealed,
)
from compare import assert_same
from golden import ARCHIVE, DROPPED, folder_rows, make, table_rows

SCHEMA_VERSION = 1
OF_THE_INGEST = ("ingested_at", "source")
"""Columns with the time and origin of a run."""


@pytest.fixture(scope="module", autouse=True)
def untouched() -> Iterator[None]:
    """Check that no test changes the files."""
    before = contents(GOLDEN)
    yield
    assert contents(GOLDEN) == before


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return copied(ARCHIVE, tmp_path / "games.a2")


def stored(archive: a2store.Archive, model: str) -> pa.Table:
    sql = "SELECT * FROM annotations WHERE model = $model ORDER BY run_id, step_index"
    return pa.table(archive.sql(sql, {"model": model}))


def assert_models(archive: a2store.Archive) -> None:
    """Compare both models with the files that they were made from."""
    rows, bins = folder_rows()
    found = stored(archive, "folder-v1")
    for name, expected in columns(rows).items():
        present = presence(rows, name)
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


def test_code_documentation_and_archive_have_the_same_schema_version(path: Path, tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "archive.md").read_text()
    assert re.findall(r"^\| `schema_version` \| (\d+);", text, re.M) == [str(SCHEMA_VERSION)]
    manifests = sorted((path / "_versions").glob("*.json"))
    assert len(manifests) == 9
    made = a2store.Archive.create(tmp_path / "new.a2").path
    for manifest in (*manifests, manifest_path(made, 1)):
        assert unsealed(manifest)["schema_version"] == SCHEMA_VERSION
    footer = pq.read_metadata(a2store.Archive.open(path).files("runs")[0]).metadata
    assert footer[b"a2store.schema_version"] == str(SCHEMA_VERSION).encode()


def test_the_archive_equals_a_new_one(path: Path, tmp_path: Path) -> None:
    archive = a2store.Archive.open(path)
    expected = make(tmp_path / "fresh.a2")
    assert (archive.num_runs, archive.num_steps) == (expected.num_runs, expected.num_steps) == (8, archive.num_steps)
    assert archive.phases == GOLDEN_PHASES
    found = tables(archive)
    assert_same_tables(found, tables(expected), but=OF_THE_INGEST)
    assert found["runs"]["verified"].to_pylist() == [True] * 5 + [False, True, True]
    originals = found["runs"]["original"].to_pylist()
    assert [data is not None for data in originals] == [False] * 6 + [True, False]
    assert originals[6] == (GOLDEN / "runs/gamma/longer.a2run2").read_bytes()
    # The last game has a tile of 65,536.
    assert found["runs"]["highest_tile"].to_pylist()[7] == 65536
    masks = found["steps"].filter(pa.array(found["steps"]["run_id"].to_numpy() == 7))["tile_65536_mask"].to_pylist()
    assert list(map(bool, masks)) == [False] * 4 + [True] * 8
    sources = [Path(source).name for source in found["runs"]["source"].to_pylist()]
    assert sources == [Path(path).name for path in tables(expected)["runs"]["source"].to_pylist()]
    for model in ("folder-v1", "table-v1"):
        assert plain(stored(archive, model)).equals(plain(stored(expected, model)))
    for table in ("runs", "steps", "annotations"):
        assert pa.schema(archive.schema(table)).equals(pa.schema(expected.schema(table)))


def test_it_is_sound_and_reading_changes_nothing(path: Path) -> None:
    before = contents(path)
    archive = a2store.Archive.open(path)
    assert_models(archive)
    assert [(info.model, info.num_files) for info in archive.annotations()] == [("folder-v1", 1), ("table-v1", 2)]
    joined = "SELECT step_index FROM steps JOIN annotations USING (run_id, step_index) WHERE legal_mask = ev_legal"
    assert archive.sql(joined).count() == len(folder_rows()[0])
    archive.sql("SELECT * FROM steps WHERE engine IS NOT NULL").materialize(progress=False)
    report = a2store.verify(path, progress=False)
    assert (report.problems, report.version, report.unnamed_files) == ([], 9, 0)
    assert run_command("verify", path).stdout.startswith("sound: ")
    assert a2store.restore(path, dry_run=True).new_version is None
    assert contents(path) == before
    rows = [pq.read_table(file).num_rows for file in archive.files("annotations")]
    assert sum(rows) == len(folder_rows()[0]) + len(table_rows())


def test_each_of_its_versions(path: Path) -> None:
    whole = tables(a2store.Archive.open(path))
    early, total = int((table_rows()["run_id"] < 2).sum()), len(table_rows())
    folder = {"folder-v1": len(folder_rows()[0])}
    models: list[dict[str, int]] = [{}, {}, {}, folder, folder | {"table-v1": early}, folder | {"table-v1": total}]
    models += [models[-1] | {DROPPED: 3}, models[-1] | {DROPPED: 5}, models[-1]]
    for version, (expected, num_runs) in enumerate(zip(models, [0, 5] + 7 * [8], strict=True), 1):
        archive = a2store.Archive.open(path, version=version)
        assert (archive.version, archive.num_runs, len(archive.history())) == (version, num_runs, version)
        for name, table in tables(archive).items():
            assert table.equals(whole[name].slice(0, len(table)))
        assert {info.model: info.num_rows for info in archive.annotations()} == expected
        assert archive.sql("SELECT model FROM annotations").count() == sum(expected.values())
    history = archive.history()
    assert [line.operation for line in history] == ["annotate"] * 6 + ["ingest"] * 2 + ["create"]
    assert [(line.added_runs, line.added_files, line.next_run_id) for line in history[6:]] == [
        (3, 2, 8),
        (5, 2, 5),
        (0, 0, 0),
    ]
    assert len({line.txn for line in history}) == 9


def test_it_accepts_new_runs(path: Path, tmp_path: Path) -> None:
    archive = a2store.Archive.open(path)
    before = tables(archive)
    report = archive.ingest(GOLDEN / "runs", progress=False)
    assert (report.accepted, report.duplicates, archive.version) == (0, 8, 9)
    more = short_runs(tmp_path / "more", 3)
    archive.ingest([GOLDEN / "runs", *more], progress=False)
    assert (archive.version, archive.num_runs) == (10, 11)
    after = tables(archive)
    assert_prefix(after, before)
    assert after["runs"]["run_id"].to_pylist() == list(range(11))
    assert archive.verify(progress=False).problems == []
    assert a2store.Archive.open(path, version=9).num_runs == 8

    archive.compact(progress=False)
    assert len(archive.files("runs")) == len(archive.files("steps")) == 1
    assert_same_tables(tables(archive), after)
    archive.expire(older_than=0, grace=0)
    assert_same_tables(tables(a2store.Archive.open(path)), after)
    assert archive.verify(progress=False).problems == []


def assert_prefix(whole: Tables, part: Tables) -> None:
    for name, table in part.items():
        assert whole[name].slice(0, len(table)).equals(table)


def test_it_accepts_new_annotations(path: Path) -> None:
    archive = a2store.Archive.open(path)
    games = tables(archive)
    # The same rows as another model, from the folder and from a table.
    archive.annotate("again", GOLDEN / "annotations", partial=True, progress=False)
    archive.annotate("rows", folder_rows()[0], partial=True, progress=False)
    again = plain(stored(archive, "again")).drop_columns(["model"])
    assert again.equals(plain(stored(archive, "folder-v1")).drop_columns(["model"]))
    archive.annotate("table-v1", table_rows()[:10], replace=True, partial=True, progress=False)
    assert {info.model: info.num_rows for info in archive.annotations()}["table-v1"] == 10
    shutil.rmtree(path)

    archive = a2store.Archive.open(copied(ARCHIVE, path))
    archive.compact(progress=False)
    assert [info.num_files for info in archive.annotations()] == [1, 1]
    assert_models(archive)
    archive.expire(older_than=0, grace=0)
    archive = a2store.Archive.open(path)
    assert_models(archive)
    assert len(list((path / "annotations").iterdir())) == 2
    found = tables(archive)
    assert all(found[name].equals(games[name]) for name in games)
    assert archive.verify(progress=False).problems == []


def test_annotations_of_damaged_manifests_are_adopted(path: Path) -> None:
    for version in (8, 9):
        manifest_path(path, version).write_bytes(b"{}")
    # The newest intact version has the dropped model, too.
    report = a2store.restore(path)
    assert (report.version, report.new_version, report.adopted) == (7, 10, [])
    archive = a2store.Archive.open(path)
    assert [info.model for info in archive.annotations()] == ["folder-v1", DROPPED, "table-v1"]
    archive.drop_annotations(DROPPED)
    assert_models(archive)
    assert archive.verify(progress=False).problems == []


@pytest.mark.parametrize("other", [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_another_schema_version_is_rejected(path: Path, tmp_path: Path, other: int) -> None:
    archive = a2store.Archive.open(path, version=3)
    forge(path, 9, lambda fields: fields.update(schema_version=other, files="of another shape"))
    before = contents(path)
    more = short_runs(tmp_path / "more", 1)
    for work in (
        lambda: a2store.Archive.open(path),
        archive.refresh,
        lambda: archive.ingest(more, progress=False),
        lambda: archive.compact(progress=False),
        lambda: archive.expire(older_than=0),
        lambda: a2store.restore(path, dry_run=True),
        lambda: a2store.restore(path),
    ):
        with pytest.raises(a2store.ArchiveError, match=f"schema version {other}, but this a2store reads 1") as caught:
            work()
        assert (caught.value.kind, caught.value.path) == ("schema_version", manifest_path(path, 9))
    assert contents(path) == before
    assert run_command("info", path, status=1).stderr.count("schema version") == 1
    # Earlier versions stay readable.
    assert a2store.Archive.open(path, version=2).num_runs == 5
