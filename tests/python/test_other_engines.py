"""The recipes of docs/distributed.md for other engines, on an object store of the tests or, for Spark, in a folder."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import a2store

RECIPES = (Path(__file__).parents[2] / "docs" / "distributed.md").read_text().split("## Other engines")[1]
Answer = dict[int, int]


def recipe(engine: str) -> str:
    """Return the code of a recipe."""
    found = re.search(rf"^\*\*{engine}\*\*.*?```python\n(.*?)```", RECIPES, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def run(engine: str, archive: a2store.Archive) -> Any:
    names: dict[str, Any] = {"archive": archive, "steps": archive.files("steps")}
    exec(recipe(engine), names)
    return names["answer"]


def grown(where: str | Path, folder: Path) -> tuple[a2store.Archive, Answer]:
    """Create an archive of three files and of unreferenced ones, and return it with the expected answer."""
    archive = a2store.Archive.create(where)
    for seed in range(4):
        a2store.simulate(folder / str(seed), runs=5, depth=0, seed=seed, progress=False)
    for seed in range(2):
        archive.ingest(folder / str(seed), progress=False)
    # The files before the compaction stay in the archive.
    archive.compact(progress=False)
    for seed in range(2, 4):
        archive.ingest(folder / str(seed), progress=False)
    assert len(archive.files("steps")) == 3
    moves = pa.table(archive.sql("SELECT move FROM steps WHERE max_score >= 1000"))["move"].to_pylist()
    return archive, dict(Counter(moves))


@pytest.fixture
def remote(url: str, tmp_path: Path) -> tuple[a2store.Archive, Answer]:
    return grown(url, tmp_path)


def test_polars(remote: tuple[a2store.Archive, Answer]) -> None:
    archive, expected = remote
    assert dict(run("polars", archive).iter_rows()) == expected


def test_duckdb(remote: tuple[a2store.Archive, Answer]) -> None:
    archive, expected = remote
    assert dict(run("DuckDB", archive)) == expected
