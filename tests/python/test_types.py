"""Types and texts of what the package returns: times, paths, and the repr of every class."""

from __future__ import annotations

import importlib
import inspect
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import a2store
import reference


def public_classes() -> set[type]:
    """Return every public class that is no exception."""
    found = set()
    for module_name in reference.MODULES:
        pytest.importorskip(module_name.partition(".")[0])
        module = importlib.import_module(module_name)
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) and not issubclass(value, BaseException):
                found.add(value)
    return found


def test_every_class_has_a_repr() -> None:
    """The examples in docstrings show what it says."""
    plain = inspect.getattr_static(object, "__repr__")
    assert [cls.__name__ for cls in public_classes() if inspect.getattr_static(cls, "__repr__") is plain] == []


def test_times_are_datetimes(tmp_path: Path) -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    archive = a2store.Archive.create(tmp_path / "games.a2")
    time = archive.history()[0].time
    assert type(time) is datetime
    assert time.tzinfo is UTC
    assert before <= time <= datetime.now(UTC)
    assert time.microsecond % 1000 == 0
    rows = archive.sql("SELECT CAST($t AS TIMESTAMP) <= now() AS past", {"t": time}).to_arrow().to_pylist()
    assert rows == [{"past": True}]


def test_paths_are_paths(tmp_path: Path) -> None:
    a2store.simulate(tmp_path / "runs", runs=2, seed=1, depth=0, progress=False)
    archive = a2store.Archive.create(str(tmp_path / "games.a2"))
    archive.ingest(str(tmp_path / "runs"), progress=False)
    cut = tmp_path / "cut.a2run2"
    cut.write_bytes((tmp_path / "runs/run-00000.a2run2").read_bytes()[:-9])
    report = archive.ingest(str(cut), progress=False)
    with pytest.raises(a2store.DecodeError) as caught:
        a2store.read_run(str(cut))
    exported = archive.export_runs("SELECT run_id FROM runs", str(tmp_path / "o.dat"), format="packdat", progress=False)
    with pytest.raises(a2store.ArchiveError) as absent:
        a2store.Archive.open(str(tmp_path / "runs"))
    found = [report.errors[0].path, caught.value.path, exported.path, absent.value.path, archive.path]
    assert found == [cut, cut, tmp_path / "o.dat", tmp_path / "runs", tmp_path / "games.a2"]
    assert all(isinstance(path, Path) for path in found)
    with pytest.raises(a2store.Error) as unknown:
        a2store.read_run(b"A2T1")
    assert unknown.value.path is None
