"""``train_test_split`` of tables and packs."""

from __future__ import annotations

from pathlib import Path

import pytest

import a2store
from compare import keys


def test_train_test_split(archive: a2store.Archive, table: a2store.StepTable) -> None:
    before: set[int] = set()
    for share in (0.0, 0.1, 0.25, 0.5, 1.0):
        train, test = table.train_test_split(share, seed=5)
        sides = [keys(side).tolist() for side in (train, test)]
        assert sorted(sides[0] + sides[1]) == keys(table).tolist()
        assert sides[0] == sorted(sides[0])
        assert before <= set(sides[1])
        before = set(sides[1])
        assert not set(train["run_id"].tolist()) & set(test["run_id"].tolist())
        assert [side.fingerprint for side in (train, test)] == [side.fingerprint for side in table.split(share, seed=5)]
    assert len(before) == len(table)
    # A part of the archive has the same sides.
    part = archive.sql("SELECT * FROM steps WHERE run_id % 3 = 1 AND step_index > 9").materialize(progress=False)
    held_out = set(keys(table.train_test_split(0.3, seed=5)[1]).tolist())
    for side, is_test in zip(part.train_test_split(0.3, seed=5), (False, True), strict=True):
        assert all((key in held_out) == is_test for key in keys(side).tolist())


def test_wrong_splits(table: a2store.StepTable, archive: a2store.Archive, tmp_path: Path) -> None:
    archive.export_runs("SELECT run_id FROM runs WHERE run_id < 3", tmp_path / "p.a2pack", format="a2pack")
    for rows in (table, a2store.PackReader.open(tmp_path / "p.a2pack")):
        for share in (-0.1, 1.5, 200, float("nan")):
            with pytest.raises(ValueError, match=r"test_size: expected 0\.0\.\.=1\.0"):
                rows.train_test_split(share)


def test_an_empty_side_warns(table: a2store.StepTable) -> None:
    run = table.filter(run_ids=[int(table["run_id"][0])])
    with pytest.warns(UserWarning, match=r"^val=0.001: no run is held out; choose another seed or share$"):
        assert [len(side) for side in run.split(0.001)] == [len(run), 0]
    with pytest.warns(UserWarning, match=r"^test_size=0.999: all runs are held out"):
        assert [len(side) for side in run.train_test_split(0.999)] == [0, len(run)]
    # With a share of 0 or 1, and without rows, an empty side is no surprise.
    assert [len(side) for share in (0.0, 1.0) for side in run.split(share)] == [len(run), 0, 0, len(run)]
    assert [len(side) for side in table.filter(run_ids=[]).split(0.5)] == [0, 0]
