"""The names that scripts outside of the project rely on: classes, methods, options, subcommands."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

import a2store
from test_command_options import RUN

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
