"""The package: its names, its errors, its types."""

from __future__ import annotations

import builtins
import pickle
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import a2store


def test_all_names_exist_and_are_listed() -> None:
    assert len(a2store.__all__) > 20
    assert len(set(a2store.__all__)) == len(a2store.__all__)
    public = {name for name in dir(a2store) if not name.startswith("_")} - {"cluster", "critic", "selfplay", "torch"}
    assert public == set(a2store.__all__) - {"__version__"}
    assert all(hasattr(a2store, name) for name in a2store.__all__)
    assert a2store.__version__ == version("a2store")
    assert (Path(a2store.__file__).parent / "py.typed").exists()


def test_errors_are_subclasses() -> None:
    names = [name for name in a2store.__all__ if name.endswith("Error") and name != "Error"]
    assert len(names) >= 10
    for name in names:
        error = getattr(a2store, name)
        assert issubclass(error, a2store.Error), name
        assert not hasattr(builtins, name)
        assert error.__name__ == error.__qualname__ == name
        assert error.__module__ == "a2store"
    for name in ("ArchiveExistsError", "ConflictError", "DamagedError", "VersionNotFoundError"):
        assert issubclass(getattr(a2store, name), a2store.ArchiveError)


def test_errors_survive_pickling() -> None:
    with pytest.raises(a2store.DecodeError) as caught:
        a2store.read_run(b"A2T1\x01")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.kind) == (a2store.DecodeError, str(caught.value), "decode")


@pytest.mark.parametrize(
    "name", ["Archive", "Query", "StepTable", "Loader", "Batch", "BatchIterator", "Run", "IngestReport", "Rejected"]
)
def test_only_the_library_creates_these_classes(name: str) -> None:
    cls: Any = getattr(a2store, name)
    assert cls.__module__ == "a2store"
    with pytest.raises(TypeError):
        cls()


def test_the_import_needs_no_other_package() -> None:
    script = "import sys, a2store; print({'numpy', 'pyarrow', 'torch', 'polars'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_arrow_tables_need_no_pandas(archive: a2store.Archive) -> None:
    # The import of pandas takes half a second.
    script = "import sys, a2store; sys.modules['pandas'] = None; a2store.open(sys.argv[1]).sql('SELECT 1').to_arrow()"
    subprocess.run([sys.executable, "-c", script, archive.path], check=True)
