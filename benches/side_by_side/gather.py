"""Random batches from a table in memory: the time of each tool to select 4,096 rows.

Some competitors return bare rows. Others return columns with unpacked tokens, which is more work; the table shows
which. Each round times every competitor for a moment, in a rotating order, on new indices. The conversion of indices to
a tool's own type is not timed.
"""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from report import Report, median, note, percentile, table

import a2store

Indices: TypeAlias = npt.NDArray[np.int64]
Rows: TypeAlias = npt.NDArray[Any]
Columns: TypeAlias = dict[str, npt.NDArray[Any]]

BATCH = 4096
ROUNDS = 25
CALLS = 20  # calls of one competitor in one round
WARM_UP = 2  # untimed calls that warm up code and allocator
MOMENT = 0.25  # seconds after which a slow competitor's turn ends
REFERENCE = "np.take"
LANCE_ROWS = 20_000_000


@dataclass(frozen=True)
class Competitor:
    """One method of selecting rows."""

    name: str
    gives: str
    call: Callable[[Any], Any]
    columns: Callable[[Any], Columns]
    """Converts the result to columns for the check; not timed."""
    prepare: Callable[[Indices], Any] = lambda indices: indices
    rows: int | None = None
    """The number of rows it has, if it does not have all."""


def unpack(rows: Rows) -> Columns:
    """Transpose rows to the columns of a batch, as training code does with NumPy."""
    shifts = np.arange(60, -1, -4, dtype=np.uint64)
    bits = np.arange(4, dtype=np.uint8)
    return {
        "tokens": ((rows["board"][:, None] >> shifts) & np.uint64(15)).astype(np.uint8),
        "move": np.ascontiguousarray(rows["move"]),
        "ev_values": np.ascontiguousarray(rows["ev_values"]),
        "ev_legal": ((rows["ev_legal"][:, None] >> bits) & 1).astype(bool),
        "run_id": np.ascontiguousarray(rows["run_id"]),
        "step_index": np.ascontiguousarray(rows["step_index"]),
        "board": np.ascontiguousarray(rows["board"]),
    }


def competitors(steps: a2store.StepTable, folder: Path) -> Iterator[Competitor]:
    """Set up all installed competitors."""
    rows = np.asarray(steps)
    flat = rows.view(np.uint8).reshape(len(rows), steps.stride)
    binary = pa.array(steps.rows_array())
    kept = np.empty(BATCH, rows.dtype)

    def from_bytes(result: Any) -> Columns:
        return unpack(np.asarray(result).view(rows.dtype).reshape(-1))

    def from_arrow(result: Any) -> Columns:
        return unpack(np.frombuffer(b"".join(result.to_pylist()), rows.dtype))

    yield Competitor("a2store take", "columns", steps.take, lambda batch: dict(batch.to_dict()))
    yield Competitor(REFERENCE, "rows", lambda indices: np.take(rows, indices), unpack)
    yield Competitor(
        "np.take, unchecked, buffer kept", "rows", lambda indices: np.take(rows, indices, out=kept, mode="clip"), unpack
    )
    yield Competitor("np.take of (n, 32) bytes", "rows", lambda indices: np.take(flat, indices, axis=0), from_bytes)
    yield Competitor("NumPy rows[indices]", "rows", lambda indices: rows[indices], unpack)
    yield Competitor("np.take + collate", "columns", lambda indices: unpack(np.take(rows, indices)), dict)
    yield Competitor("pyarrow take", "rows", binary.take, from_arrow, pa.array)
    if importlib.util.find_spec("torch") is not None:
        yield torch_index_select(rows)
    if importlib.util.find_spec("lance") is not None:
        yield lance_take(steps, folder)


def torch_index_select(rows: Rows) -> Competitor:
    """Set up PyTorch on rows of four int64 each, because it has no structured types."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns that the table is read-only, but nothing here writes to it
        words = torch.from_numpy(rows.view(np.int64).reshape(len(rows), 4))
    return Competitor(
        "torch.index_select",
        "rows",
        lambda indices: torch.index_select(words, 0, indices),
        lambda result: unpack(result.numpy().view(rows.dtype).reshape(-1)),
        torch.from_numpy,
    )


def lance_take(steps: a2store.StepTable, folder: Path) -> Competitor:
    """Write the columns of the first rows to a Lance dataset, a format for random access on disk."""
    lance = importlib.import_module("lance")
    number = min(len(steps), LANCE_ROWS)
    stream = pa.RecordBatchReader.from_stream(steps)

    def first() -> Iterator[Any]:
        left = number
        for batch in stream:
            yield batch.slice(0, left)
            left -= min(len(batch), left)
            if left == 0:
                return

    dataset = lance.write_dataset(
        pa.RecordBatchReader.from_batches(stream.schema, first()), str(folder / "steps.lance")
    )

    def columns(result: Any) -> Columns:
        rows = np.empty(len(result), steps.dtype)
        for name in steps.dtype.names or ():
            column = result.column(name).combine_chunks()
            if name == "ev_values":
                rows[name] = column.flatten().to_numpy().reshape(-1, 4)
            else:
                rows[name] = column.to_numpy()
        return unpack(rows)

    return Competitor(
        f"pylance take, from disk ({number:,} rows)",
        "packed columns",
        dataset.take,
        columns,
        lambda indices: pa.array(indices % number),
        number,
    )


def check(competitor: Competitor, rows: Rows, indices: Indices) -> None:
    """Compare an answer with the rows of the table."""
    answer = competitor.columns(competitor.call(competitor.prepare(indices)))
    if competitor.rows is not None:
        indices = indices % competitor.rows
    for name, column in unpack(rows[indices]).items():
        np.testing.assert_array_equal(answer[name], column, f"{competitor.name}: {name}")


def turn(competitor: Competitor, number: int, rng: np.random.Generator) -> list[float]:
    """Return the times of one competitor's turn, in microseconds."""
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < WARM_UP + CALLS and (len(times) <= WARM_UP or time.perf_counter() - began < MOMENT):
        argument = competitor.prepare(rng.integers(0, number, BATCH))
        start = time.perf_counter()
        competitor.call(argument)
        times.append((time.perf_counter() - start) * 1e6)
    return times[WARM_UP:]


def run(report: Report, steps: a2store.StepTable, rounds: int | None) -> None:
    """Check and time all competitors."""
    rounds = rounds or ROUNDS
    rows = np.asarray(steps)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="side_by_side-") as folder:
        field = list(competitors(steps, Path(folder)))
        for competitor in field:
            check(competitor, rows, rng.integers(0, len(rows), BATCH))
        times: dict[str, list[float]] = {competitor.name: [] for competitor in field}
        for at in range(rounds):
            for competitor in field[at % len(field) :] + field[: at % len(field)]:
                times[competitor.name] += turn(competitor, len(rows), rng)

    reference = median(times[REFERENCE])
    lines = []
    for competitor in field:
        middle, high = median(times[competitor.name]), percentile(times[competitor.name], 99)
        report.add("gather", competitor.name, median_us=middle, p99_us=high, ratio=middle / reference)
        lines.append((competitor.name, competitor.gives, f"{middle:.0f}", f"{high:.0f}", f"{middle / reference:.2f}"))
    table(
        f"gather: {BATCH:,} random rows of {len(rows):,}, {rounds} rounds of {CALLS}",
        ("", "gives", "median µs", "p99 µs", f"× {REFERENCE}"),
        lines,
    )
    if importlib.util.find_spec("lance") is None:
        note("pylance is not installed: skipped")
