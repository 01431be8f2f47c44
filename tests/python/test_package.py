"""The package: its names, its errors, its types, and the texts of what it returns."""

from __future__ import annotations

import builtins
import importlib
import inspect
import pickle
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import a2store
import reference
from test_command_options import RUN


def test_all_names_exist_and_are_listed() -> None:
    assert len(a2store.__all__) > 20
    assert len(set(a2store.__all__)) == len(a2store.__all__)
    public = {name for name in dir(a2store) if not name.startswith("_")} - {"cluster", "critic", "selfplay", "torch"}
    assert public == set(a2store.__all__) - {"__version__"}
    assert all(hasattr(a2store, name) for name in a2store.__all__)
    assert a2store.__version__ == version("a2store")
    assert (Path(a2store.__file__).parent / "py.typed").exists()


def test_make_check_names_existing_tests() -> None:
    tests = Path(__file__).parent
    makefile = (tests.parents[1] / "Makefile").read_text().replace("\\\n", "")
    [names] = re.findall(r"^QUICK := (.*)$", makefile, re.MULTILINE)
    assert [name for name in names.split() if not (tests / f"test_{name}.py").is_file()] == []


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


# Times, paths, and the repr of every class


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
    with pytest.raises(a2store.Error, check=lambda error: error.path is None):
        a2store.read_run(b"A2T1")


# Names that scripts outside of the project rely on: classes, methods, options, subcommands


NAMES = {
    "": "open verify simulate read_run mix functions queries Error __version__",
    "Archive": (
        "create open ingest version num_runs num_steps schema history files verify export_runs sql query run report "
        "view annotate compact expire"
    ),
    "Query": (
        "explain count columns head limit to_batches to_numpy to_arrow to_polars to_pandas write_parquet write_csv "
        "lazy materialize on __arrow_c_stream__"
    ),
    "StepTable": (
        "nbytes stride dtype fingerprint take __array__ __arrow_c_stream__ rows_array filter split save load loader "
        "shape columns head sample to_arrow to_numpy to_polars to_pandas train_test_split __getitem__ __len__"
    ),
    "Loader": "set_epoch state_dict load_state_dict skip_batches __len__ __iter__",
    "Batch": "items get to_torch __arrow_c_array__ __getitem__ __len__",
    "Run": "meta boards moves ev_values ev_legal final_board to_bytes save verify position replay to_gif",
    "Report": "save data _repr_html_",
    "View": "url close",
    # Names of older tools for packs.
    "PackReader": "open kind decode decode_batch iter iter_indices iter_batches iter_step_batches split to_jsonl stats",
    "PackStats": "p50_len p90_len p99_len highest_tile_hist engine_counts",
    "IngestReport": "accepted duplicates rejected num_steps errors twins ignored",
    "Rejected": "path offset run step kind message",
    "torch": "StepLoader",
}
"""The attributes of each class, of the package (``""``), and of the module ``torch``."""

OPTIONS = {
    "open": "version create storage_options executor",
    "Archive.create": "phases",
    "Archive.ingest": "workers progress on_error",
    "Archive.report": "where by",
    "Archive.view": "policy port open_browser",
    "Query.explain": "analyze",
    "Query.on": "executor tasks",
    "Query.materialize": "columns extra chosen_ev memory_limit progress shard seed round",
    "StepTable.filter": "min_score max_score engine phase run_ids",
    "StepTable.split": "val seed",
    "StepTable.load": "mmap",
    "StepTable.loader": ("batch_size shuffle seed epoch drop_last rank world_size tokens symmetries columns prefetch"),
    "torch.StepLoader": "pin_memory device",
}
"""The options of each function."""

SUBCOMMANDS = {
    "a2store": (
        "simulate ingest info history sql query queries export verify compact bench report view replay show annotate "
        "critic completions schema"
    ),
    "a2pack": "pack validate stats to-jsonl extract inspect",
}


def found(name: str) -> object:
    """Return a class, a function or a method of the package by its name, such as ``Archive.open``."""
    if name.startswith("torch"):
        value: object = importlib.import_module("a2store.torch")
        name = name.removeprefix("torch").removeprefix(".")
    else:
        value = a2store
    for part in filter(None, name.split(".")):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("owner", NAMES)
def test_names(owner: str) -> None:
    names = NAMES[owner].split()
    fields = getattr(found(owner), "__dataclass_fields__", {})
    assert [name for name in names if not hasattr(found(owner), name) and name not in fields] == []


@pytest.mark.parametrize("function", OPTIONS)
def test_options(function: str) -> None:
    value = found(function)
    parameters = inspect.signature(value).parameters  # type: ignore[arg-type]
    assert [name for name in OPTIONS[function].split() if name not in parameters] == []


@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_subcommands(command: str) -> None:
    text = RUN[command]("--help").stdout
    listed = set(re.findall(r"(?m)^  ([a-z0-9-]+) ", text))
    assert set(SUBCOMMANDS[command].split()) <= listed
