"""The archive in ``tests/golden``, which freezes the schema. ``python golden.py`` writes it again."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from numpy.lib.recfunctions import repack_fields

import a2store
from annotations import Array
from archives import GOLDEN, GOLDEN_PHASES, grow

ARCHIVE = GOLDEN / "games.a2"
DROPPED = "of-old-versions"
"""A model that was added, replaced and dropped."""


def folder_rows() -> tuple[Array, Array]:
    """Return the rows of the folder ``annotations`` with the archive's run ids, and their student bins."""
    folder = GOLDEN / "annotations"
    rows = np.concatenate([np.load(path) for path in sorted(folder.glob("annotations-0*.npy"))])
    bins = np.concatenate([np.load(path) for path in sorted(folder.glob("annotations-student-*.npy"))])
    rows["run_id"] -= 40
    return rows, bins.reshape(len(rows), -1)


def table_rows() -> Array:
    rows: Array = np.load(GOLDEN / "annotations.npy")
    return rows


def make(path: Path) -> a2store.Archive:
    """Write an archive of two ingests, and six commits of annotations."""
    runs = GOLDEN / "runs"
    archive = grow(path, [[runs / "alpha", runs / "beta"], [runs / "gamma"]], phases=GOLDEN_PHASES)
    rows = repack_fields(table_rows()[["run_id", "step_index", "argmax_head", "argmax_prob", "policy_logp"]])
    early = rows["run_id"] < 2
    archive.annotate("folder-v1", GOLDEN / "annotations", partial=True, progress=False)
    archive.annotate("table-v1", rows[early], partial=True, progress=False)
    archive.annotate("table-v1", rows[~early], partial=True, progress=False)
    archive.annotate(DROPPED, rows[:3], partial=True, progress=False)
    archive.annotate(DROPPED, rows[:5], partial=True, replace=True, progress=False)
    archive.drop_annotations(DROPPED)
    return archive


if __name__ == "__main__":
    shutil.rmtree(ARCHIVE, ignore_errors=True)
    make(ARCHIVE)
