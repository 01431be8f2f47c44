"""``train_test_split`` of tables and packs."""

from __future__ import annotations

from pathlib import Path

import pytest

import a2store


def test_train_test_split(table: a2store.StepTable) -> None:
    """The sides are those of ``split``, which test_views.py tries."""
    for share in (0.0, 0.1, 0.25, 0.5, 1.0):
        sides = table.train_test_split(share, seed=5)
        assert [side.fingerprint for side in sides] == [side.fingerprint for side in table.split(share, seed=5)]


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
