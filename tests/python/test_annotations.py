"""Annotations: import, SQL, versions, maintenance, and inputs that contradict the archive."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import a2store
import formats
import games
from annotations import MOVES, POLICIES, Array, columns, predictions, write_annotations, write_manifest, write_pool
from archives import copied, ingested, run_command
from compare import assert_same
from logs import write_macroxue
from oracle import Game

FIRST_ID, SEED = 1000, 7000
"""The first id and the first seed of ``formats.write_session``."""


@dataclass(frozen=True)
class Made:
    """An archive of a session and of the logs of other games, and annotations of the session."""

    folder: Path
    games: list[Game]
    rows: Array
    bins: Array

    def archive(self, to: Path) -> a2store.Archive:
        return a2store.Archive.open(copied(self.folder / "games.a2", to / "games.a2"))

    def annotations(self, to: Path) -> Path:
        return copied(self.folder / "predicted", to / "predicted")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("annotations")
    rng = random.Random(3)
    played = [games.play(rng, steps) for steps in (30, 1, 77, 12, 40)]
    for number in range(3):
        write_macroxue(folder / "logs", f"g{number}", games.play(rng, 15, raw=True), number)
    formats.write_session(folder / "pool", played, action=True)
    archive = ingested(folder / "games.a2", folder / "logs")
    archive.ingest(folder / "pool", progress=False)
    rows = predictions({FIRST_ID + i: game for i, game in enumerate(played)})
    bins = write_annotations(folder / "predicted", rows, shard_rows=50, bins=3)
    assert bins is not None
    shutil.copy(folder / "pool" / "metadata.db", folder / "predicted")
    return Made(folder, played, rows, bins)


def stored(archive: a2store.Archive, condition: str = "true") -> pa.Table:
    return pa.table(archive.sql(f"SELECT * FROM annotations WHERE {condition} ORDER BY model, run_id, step_index"))


def assert_rows(found: pa.Table, rows: Array, model: str, first_run_id: int = 3) -> None:
    """Compare rows of the table with a folder's. Its first run has the given id in the archive."""
    assert set(found["model"].to_pylist()) == {model}
    for name, expected in columns(rows).items():
        expected = expected - FIRST_ID + first_run_id if name == "run_id" else expected
        assert_same(found[name].to_numpy(), expected, name)


def test_a_folder_is_stored_with_the_archives_run_ids(made: Made, tmp_path: Path) -> None:
    archive = made.archive(tmp_path)
    assert (archive.annotations(), stored(archive).num_rows) == ([], 0)
    before = archive.version
    report = archive.annotate("model-v1", made.folder / "predicted", progress=False)
    assert (report.model, report.num_runs, report.num_rows) == ("model-v1", len(made.games), len(made.rows))
    assert (report.missing_steps, report.replaced_rows, archive.version) == (0, 0, before + 1)
    found = stored(archive)
    assert_rows(found, made.rows, "model-v1")
    assert_same(np.array(found["student_bins"].to_pylist(), "f4"), made.bins.reshape(len(made.rows), 12))

    [info] = archive.annotations()
    assert (info.model, info.num_rows, info.first_run_id, info.last_run_id) == ("model-v1", len(made.rows), 3, 7)
    [file] = archive.files("annotations")
    assert pq.read_table(file).num_rows == info.num_rows
    assert archive.history()[0].operation == "annotate"
    assert archive.verify(progress=False).problems == []
    assert a2store.Archive.open(archive.path, version=before).annotations() == []


def test_a_policy_is_one_column_of_four_values(made: Made, tmp_path: Path) -> None:
    archive = made.archive(tmp_path)
    other = predictions({FIRST_ID + i: game for i, game in enumerate(made.games)}, seed=1, kinds=1)
    other["run_id"] -= FIRST_ID - 3
    hard = [f"policy_hard_{move}" for move in MOVES]
    archive.annotate("other", pa.table(columns(other)).drop_columns(hard), progress=False)
    archive.annotate("m", made.folder / "predicted", progress=False)
    sql = f"""SELECT steps.*, argmax_prob, {", ".join(POLICIES)} FROM steps JOIN annotations USING (run_id, step_index)
        WHERE model = $model"""
    extra = ["argmax_prob", *POLICIES]
    table = archive.sql(sql, {"model": "m"}).materialize(extra=extra, progress=False)
    assert table.stride == 32 + 4 + 3 * 16 + 4
    assert_same(np.asarray(table)["step_index"], made.rows["step_index"].astype("u2"))
    batch = next(iter(table.loader(len(table), shuffle=False)))
    for policy in POLICIES:
        assert batch[policy].shape == (len(table), 4)
        assert_same(batch[policy], made.rows[policy], policy)
    absent = archive.sql(sql, {"model": "other"}).materialize(extra=extra, progress=False)
    assert_same(np.asarray(absent)["policy_p1"], other["policy_p1"])
    assert np.isnan(np.asarray(absent)["policy_hard"]).all()


def test_lists_equal_their_columns_in_sql(made: Made, tmp_path: Path) -> None:
    archive = made.archive(tmp_path)
    table = pa.table(by_archive_ids(made.rows))
    lefts = pc.if_else(pc.equal(table["step_index"], 0), None, table["policy_hard_left"])
    table = table.set_column(table.column_names.index("policy_hard_left"), "policy_hard_left", lefts)
    archive.annotate("m", table.drop_columns([f"policy_logp_{move}" for move in MOVES]), progress=False)
    found = pa.table(archive.sql("SELECT * FROM annotations"))
    assert found.num_rows == table.num_rows
    for policy in POLICIES:
        assert found.schema.field(policy).type == pa.list_(pa.float32(), 4)
        by_move = [found[f"{policy}_{move}"].to_pylist() for move in MOVES]
        expected = [None if values == (None,) * 4 else list(values) for values in zip(*by_move, strict=True)]
        assert found[policy].to_pylist() == expected
    assert found["policy_logp"].null_count == found.num_rows
    sql = "SELECT count(*) AS n FROM annotations AS a WHERE a.policy_p1[2] = policy_p1_down AND a.policy_p1 IS NOT NULL"
    assert pa.table(archive.sql(sql))["n"].to_pylist() == [table.num_rows]
    with pytest.raises(a2store.QueryError, match="per_move"):
        archive.sql("SELECT per_move(ev_up, ev_down, ev_left, ev_right) FROM steps")


def test_absent_kinds_and_moves_are_null(made: Made, tmp_path: Path) -> None:
    archive = made.archive(tmp_path)
    rows = made.rows.copy()
    rows["policy_kind_mask"], rows["teacher_move"][::2] = 2, 255
    write_annotations(tmp_path / "p", rows)
    shutil.copy(made.folder / "pool" / "metadata.db", tmp_path / "p")
    archive.annotate("m", tmp_path / "p", progress=False)
    found = stored(archive)
    assert found["teacher_move"].null_count == len(rows[::2])
    for policy in POLICIES:
        assert found[f"{policy}_left"].null_count == (0 if policy == "policy_logp" else len(rows))
    assert found["student_bins"].null_count == len(rows)


def by_archive_ids(rows: Array) -> dict[str, Any]:
    return columns(rows) | {"run_id": rows["run_id"] - FIRST_ID + 3}


def test_an_arrow_table_has_the_archives_run_ids(made: Made, tmp_path: Path) -> None:
    archive = made.archive(tmp_path)
    table = pa.table(by_archive_ids(made.rows))
    shuffled = table.take(np.random.default_rng(0).permutation(len(table)))
    assert archive.annotate("m", shuffled, progress=False).num_rows == len(table)
    assert_rows(stored(archive), made.rows, "m")
    lists = pa.FixedSizeListArray.from_arrays(pa.array(made.rows["policy_p1"].ravel()), 4)
    archive.annotate("lists", table.select(["run_id", "step_index"]).append_column("policy_p1", lists), progress=False)
    found = stored(archive, "model = 'lists'")
    assert_same(found["policy_p1_down"].to_numpy(), made.rows["policy_p1"][:, 1])
    assert found["argmax_head"].null_count == found["policy_hard_up"].null_count == len(table)


def test_a_structured_array_has_the_archives_run_ids(made: Made, tmp_path: Path) -> None:
    """The rows of the field's files, in any order and with any stride."""
    archive = made.archive(tmp_path)
    rows = made.rows.copy()
    rows["run_id"] -= FIRST_ID - 3
    every_other = np.repeat(rows[np.random.default_rng(0).permutation(len(rows))], 2)[::2]
    assert archive.annotate("m", every_other, progress=False).num_rows == len(rows)
    assert_rows(stored(archive), made.rows, "m")
    swapped = np.zeros(1, [("run_id", ">u4"), ("step_index", "<u4")])
    with pytest.raises(TypeError, match=r"run_id: expected little-endian numbers, found >u4 of shape \[\]"):
        archive.annotate("n", swapped, progress=False)


def test_runs_of_logs_are_found_by_their_facts(tmp_path: Path) -> None:
    rng = random.Random(9)
    played = [games.play(rng, 20, raw=True) for _ in range(4)]
    for number, game in enumerate(played):
        write_macroxue(tmp_path / "logs", f"g{3 - number}", game, number)
    archive = ingested(tmp_path / "games.a2", tmp_path / "logs")
    rows = predictions({10 * number: game for number, game in enumerate(played)})
    write_annotations(tmp_path / "p", rows)
    write_pool(tmp_path / "p" / "metadata.db", {10 * number: (number, game) for number, game in enumerate(played)})
    archive.annotate("m", tmp_path / "p", progress=False)
    found = stored(archive)
    # The files are in the order of their names, so the last game has id 0.
    in_archive = np.concatenate([rows[rows["run_id"] == 10 * number] for number in (3, 2, 1, 0)])
    assert_same(found["argmax_prob"].to_numpy(), in_archive["argmax_prob"])
    empty = a2store.Archive.create(tmp_path / "empty.a2")
    with pytest.raises(a2store.DecodeError, match=r"run: expected run 0 with seed 0, 20 steps .* found no such run"):
        empty.annotate("m", tmp_path / "p", progress=False)


def test_equal_runs_of_two_sources_need_run_ids(made: Made, tmp_path: Path) -> None:
    archive = made.archive(tmp_path)
    formats.write_session(tmp_path / "pool", made.games, action=False)
    archive.ingest(tmp_path / "pool", progress=False)
    with pytest.raises(a2store.DecodeError, match="2 of them; annotate rows with run ids"):
        archive.annotate("m", made.folder / "predicted", progress=False)
    assert archive.annotations() == []


def test_a_pool_that_holds_a_game_twice(made: Made, tmp_path: Path) -> None:
    """The archive holds the game once. Its annotations are those of both runs, which must be equal."""
    played = [*made.games, made.games[2]]
    twin, again = FIRST_ID + 2, FIRST_ID + 5
    formats.write_session(tmp_path / "pool", played, action=True)
    formats.execute(tmp_path / "pool" / "metadata.db", "UPDATE runs SET seed = ? WHERE id = ?", (SEED + 2, again))
    archive = a2store.Archive.create(tmp_path / "games.a2")
    assert archive.ingest(tmp_path / "pool", progress=False).duplicates == 1
    copy = made.rows[made.rows["run_id"] == twin].copy()
    copy["run_id"] = again

    def annotate(rows: Array) -> a2store.AnnotateReport:
        write_annotations(tmp_path / "p", np.concatenate([made.rows, rows]))
        shutil.copy(tmp_path / "pool" / "metadata.db", tmp_path / "p")
        return archive.annotate("m", tmp_path / "p", replace=True, partial=True, progress=False)

    report = annotate(copy)
    assert (report.num_runs, report.num_rows) == (5, len(made.rows))
    assert_rows(stored(archive), made.rows, "m", first_run_id=0)
    same = f"run: expected the annotations of run {twin}, which is the same run of the archive, found"
    with pytest.raises(a2store.DecodeError, match=f"{same} other annotations of run {again}"):
        annotate(copy[1:])
    for field in ("argmax_prob", "policy_p1"):
        other = copy.copy()
        other[field][7] = np.where(np.arange(4) == 2, 0.5, other[field][7]) if field == "policy_p1" else 0.5
        with pytest.raises(a2store.DecodeError, match=f"{same} other annotations of run {again}"):
            annotate(other)
    # A value of a kind that the row does not have is not stored, so it may differ.
    rows = np.concatenate([made.rows, copy])
    rows["policy_kind_mask"], rows["policy_p1"][-1] = 2, 0.25
    write_annotations(tmp_path / "p", rows)
    archive.annotate("other", tmp_path / "p", progress=False)
    assert [info.num_rows for info in archive.annotations()] == [len(made.rows)] * 2
    assert archive.verify(progress=False).problems == []


def test_a_model_is_replaced_extended_and_dropped(made: Made, tmp_path: Path) -> None:
    archive = made.archive(tmp_path)
    table = pa.table(by_archive_ids(made.rows))
    early = pc.less(table["run_id"], 5)
    archive.annotate("m", table.filter(early), progress=False)
    archive.annotate("m", table.filter(pc.invert(early)), progress=False)
    assert_rows(stored(archive), made.rows, "m")
    version = archive.version
    with pytest.raises(ValueError, match=r"model: expected a new model, .* found annotations of runs 3\.\.=7"):
        archive.annotate("m", table, progress=False)
    assert archive.version == version
    other = predictions({FIRST_ID + i: game for i, game in enumerate(made.games)}, seed=1)
    archive.annotate("a", table, progress=False)
    assert archive.annotate("m", pa.table(by_archive_ids(other)), replace=True, progress=False).replaced_rows == len(
        other
    )
    assert_rows(stored(archive, "model = 'm'"), other, "m")
    assert_rows(stored(archive, "model = 'a'"), made.rows, "a")
    assert [info.model for info in archive.annotations()] == ["a", "m"]
    assert archive.drop_annotations("m").num_rows == len(other)
    assert [info.model for info in archive.annotations()] == ["a"]
    with pytest.raises(ValueError, match="model: expected a, found m"):
        archive.drop_annotations("m")
    assert archive.verify(progress=False).problems == []


def test_the_command(made: Made, tmp_path: Path) -> None:
    archive = made.archive(tmp_path)
    folder = made.folder / "predicted"
    assert run_command("annotate", archive.path).stdout == "no annotations\n"
    assert "160 steps of 5 runs annotated" in run_command("annotate", archive.path, "m", folder).stdout
    assert "found annotations of runs" in run_command("annotate", archive.path, "m", folder, status=2).stderr
    assert "160 replaced" in run_command("annotate", archive.path, "m", folder, "--replace").stdout
    assert run_command("annotate", archive.path).stdout.startswith("m: 160 annotated steps of runs 3..=7")
    assert json.loads(run_command("info", archive.path, "--json").stdout)["annotations"][0]["model"] == "m"
    assert "160 annotated steps dropped" in run_command("annotate", archive.path, "m", "--drop").stdout
    assert json.loads(run_command("annotate", archive.path, "--json").stdout) == []
    run_command("annotate", archive.path, "m", status=2)


Change = Callable[[Array], Array | None]


def first(field: str, value: Any) -> Change:
    def change(rows: Array) -> None:
        rows[field][0] = value

    return change


def flipped(field: str) -> Change:
    def change(rows: Array) -> None:
        rows[field][0] ^= 1

    return change


def other_run(rows: Array) -> None:
    rows["run_id"][:30] = 5


def beyond(rows: Array) -> Array:
    last = rows[-1:].copy()
    last["step_index"] += 1
    return np.concatenate([rows, last])


def swapped(rows: Array) -> Array:
    return np.concatenate([rows[1:2], rows[:1], rows[2:]])


WRONG: dict[str, tuple[Change, str]] = {
    "move": (first("teacher_move", 4), r"teacher_move: expected 0\.\.=3 or null, found 4"),
    "mask": (first("legal_mask", 16), r"legal_mask: expected 0\.\.=15 or null, found 16"),
    "kinds": (first("policy_kind_mask", 16), r"policy_kind_mask: expected 16, found \d+ at step"),
    "head": (first("argmax_head", 4), r"argmax_head: expected 0\.\.=3 or null, found 4"),
    "nan": (first("argmax_prob", np.nan), r"argmax_prob: expected 0\.\.=1 or null, found NaN"),
    "probability": (first("argmax_prob", 1.5), r"argmax_prob: expected 0\.\.=1 or null, found 1\.5"),
    "other legal moves": (flipped("legal_mask"), "legal_mask: expected"),
    "another move": (
        flipped("teacher_move"),
        r"teacher_move: expected \d, found \d at step 0 of archive run 3",
    ),
    "missing row": (lambda rows: rows[1:], "annotated steps: expected all 30 steps of the run"),
    "missing end": (lambda rows: rows[:-1], r"expected all 40 steps of the run.*found none at step 39"),
    "row too many": (beyond, "step_index: expected a step of the archive, found at step 40"),
    "order": (swapped, "step_index: expected above 1, found 0"),
    "split run": (
        lambda rows: np.concatenate([rows[1:], rows[:1]]),
        "the rows of each run in one place, found run 1000",
    ),
    "unknown run": (other_run, "metadata.db: expected run 5"),
}


@pytest.mark.parametrize("name", WRONG)
def test_rows_that_contradict_the_archive(made: Made, tmp_path: Path, name: str) -> None:
    archive = made.archive(tmp_path)
    change, expected = WRONG[name]
    rows = made.rows.copy()
    changed = change(rows)
    write_annotations(tmp_path / "p", rows if changed is None else changed)
    shutil.copy(made.folder / "pool" / "metadata.db", tmp_path / "p")
    version = archive.version
    with pytest.raises(a2store.DecodeError, match=expected):
        archive.annotate("m", tmp_path / "p", progress=False)
    assert (archive.version, archive.annotations()) == (version, [])
    assert not list(archive.path.glob("annotations/*"))
    if name.startswith("missing"):
        report = archive.annotate("m", tmp_path / "p", partial=True, progress=False)
        assert (report.missing_steps, report.num_rows) == (1, len(rows) - 1)


def test_files_that_contradict_each_other(made: Made, tmp_path: Path) -> None:
    archive = made.archive(tmp_path)

    def refused(change: Callable[[Path], object], expected: str) -> None:
        folder = made.annotations(tmp_path)
        change(folder)
        with pytest.raises((a2store.DecodeError, OSError), match=expected):
            archive.annotate("m", folder, progress=False)
        shutil.rmtree(folder)
        assert archive.annotations() == []

    def empty(folder: Path) -> None:
        shutil.rmtree(folder)
        write_annotations(folder, made.rows[:0])

    manifest = "annotation_manifest.json"
    refused(lambda p: (p / "annotations-00001.npy").unlink(), "expected shard 1 after shard 0")
    refused(lambda p: (p / "annotations-00003.npy").unlink(), "student bins: expected a file of rows for each")
    refused(lambda p: (p / "annotations-student-00001.npy").unlink(), "student bins: expected those of run")
    refused(
        lambda p: np.save(p / "annotations-student-00000.npy", made.bins[:49]), "rows of the student bins: expected 50"
    )
    refused(
        lambda p: np.save(p / "annotations-student-00000.npy", made.bins[:50, :, :2]), "num_bins: expected 3, found 2"
    )
    refused(lambda p: write_manifest(p, made.rows[:-40], 3), "runs: expected run 1004, which has rows")
    refused(lambda p: (p / manifest).write_text("{"), "manifest: expected JSON")
    refused(empty, "rows: expected at least one annotated step, found none")
    refused(lambda p: (p / "metadata.db").unlink(), "metadata.db")
    refused(lambda p: np.save(p / "annotations-00000.npy", made.rows[:50][["run_id"]]), "fields of a row")
    more = np.concatenate([made.rows, made.rows[-1:]])
    more["run_id"][-1] = 9
    refused(lambda p: write_manifest(p, more, 3), "runs: expected runs that have rows, found run 9")


def test_tables_that_contradict_the_archive(made: Made, tmp_path: Path) -> None:
    archive = made.archive(tmp_path)
    good = by_archive_ids(made.rows)

    def refused(changed: dict[str, Any], expected: str) -> None:
        with pytest.raises((ValueError, a2store.Error), match=expected):
            archive.annotate("m", pa.table(changed), progress=False)
        assert archive.annotations() == []

    refused(good | {"surprise": good["run_id"]}, "found a column surprise")
    for wrong in (np.nan, 1.5, -0.25, np.inf):
        probs = np.where(good["step_index"] == 3, wrong, good["argmax_prob"]).astype("f4")
        refused(
            good | {"argmax_prob": probs}, r"argmax_prob: expected 0\.\.=1 or null, found .* at step 3 of archive run 3"
        )
    refused({"run_id": good["run_id"]}, "expected a column step_index")
    refused(good | {"run_id": good["run_id"] + 100}, "run_id: expected runs of the archive with steps, found run 103")
    refused(good | {"step_index": good["step_index"] * 0}, "each step once, found step 0 of run 3 twice")
    refused(good | {"run_id": good["run_id"].astype("f8")}, "run_id: expected UInt32")
    refused(good | {"run_id": good["run_id"].astype("i8") - 10}, "run_id: expected UInt32")
    refused(good | {"legal_mask": good["legal_mask"].astype("u2") + 16}, "legal_mask")
    huge = pa.array(np.full(4 * len(made.rows), 1e300))
    for name, column in (("policy_p1", pa.FixedSizeListArray.from_arrays(huge, 4)), ("policy_p1_up", huge[::4])):
        refused({**{k: good[k] for k in ("run_id", "step_index")}, name: column}, f"{name}: expected .*Float32.* 1e300")
    with pytest.raises(ValueError, match=r"annotations: expected .* each once, found a column run_id"):
        archive.annotate("m", pa.table(good).append_column("run_id", pa.array(good["run_id"])), progress=False)
    for name in ("", "x" * 61, "a\nb"):
        with pytest.raises(ValueError, match="model: expected a name"):
            archive.annotate(name, pa.table(good), progress=False)


def test_the_fields_own_folders(fixtures: Path, tmp_path: Path) -> None:
    folder = fixtures / "macroxue"
    archive = ingested(tmp_path / "games.a2", folder / "logs")
    for name in ("annotations", "annotations-sharded"):
        assert archive.annotate(name, folder / name, progress=False).num_rows == 824
    for name in ("annotations", "annotations-sharded"):
        suffixes = ["-00000", "-00001", "-00002"] if name.endswith("sharded") else [""]
        rows = np.concatenate([np.load(folder / name / f"annotations{suffix}.npy") for suffix in suffixes])
        found = stored(archive, f"model = '{name}'")
        for column, expected in columns(rows).items():
            assert_same(found[column].to_numpy(), expected, column)
        bins = np.concatenate([np.load(folder / name / f"annotations-student{suffix}.npy") for suffix in suffixes])
        assert_same(np.array(found["student_bins"].to_pylist(), "f4"), bins.reshape(824, -1))
    assert archive.verify(progress=False).problems == []
