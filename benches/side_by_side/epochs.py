"""Shuffled batches from the formats that people train from: how long they take to write, to begin, and to serve.

Each competitor has the same rows on a disk, with the columns of a policy's training: run, step, board, move and values.
Its batches are in a random order. All work in one process, without workers. Competitors that are not installed are
skipped.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from gather import BATCH
from report import Report, median, note, table

import a2store

ROWS = 200_000
ROUNDS = 5
SECONDS = 2.0
"""The least time that a competitor serves batches in a round."""
COLUMNS = ["run_id", "step_index", "board", "move", "ev_values"]
Rows = np.ndarray[Any, Any]
Batches = Iterator[dict[str, Any]]


@dataclass(frozen=True)
class Competitor:
    """A format: writes rows to a folder, and serves epochs without end in shuffled batches of NumPy arrays."""

    name: str
    package: str
    write: Callable[[a2store.StepTable, Path], None]
    batches: Callable[[Path, int], Batches]


def write_npy(steps: a2store.StepTable, folder: Path) -> None:
    """Write one structured array."""
    np.save(folder / "rows.npy", np.asarray(steps))


def npy_batches(folder: Path, seed: int) -> Batches:
    """Read the array into memory, and take rows in the order of a permutation."""
    rows = np.load(folder / "rows.npy")
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(len(rows))
        for at in range(0, len(order), BATCH):
            picked = np.take(rows, order[at : at + BATCH])
            yield {name: np.ascontiguousarray(picked[name]) for name in COLUMNS}


def write_table(steps: a2store.StepTable, folder: Path) -> None:
    """Save the table."""
    steps.save(folder / "steps.table", progress=False)


def table_batches(folder: Path, seed: int) -> Batches:
    """Load the table into memory, and serve it."""
    steps = a2store.StepTable.load(folder / "steps.table", progress=False)
    loader = steps.loader(BATCH, seed=seed, columns=COLUMNS)
    while True:
        for batch in loader:
            yield {name: batch[name] for name in COLUMNS}


def write_lance(steps: a2store.StepTable, folder: Path) -> None:
    """Write a Lance dataset."""
    import lance

    lance.write_dataset(steps.to_arrow().select(COLUMNS), str(folder / "rows.lance"))


def lance_batches(folder: Path, seed: int) -> Batches:
    """Take rows in the order of a permutation."""
    import lance

    dataset = lance.dataset(str(folder / "rows.lance"))
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(dataset.count_rows())
        for at in range(0, len(order), BATCH):
            yield unlisted(dataset.take(order[at : at + BATCH], columns=COLUMNS))


def unlisted(table: Any) -> dict[str, Any]:
    """Return the columns of an Arrow table as arrays, lists of four as (rows, 4)."""
    columns = {name: table[name].combine_chunks() for name in COLUMNS}
    values = columns.pop("ev_values").flatten().to_numpy().reshape(-1, 4)
    return {name: column.to_numpy() for name, column in columns.items()} | {"ev_values": values}


def write_hugging_face(steps: a2store.StepTable, folder: Path) -> None:
    """Save a dataset of Hugging Face."""
    import datasets

    datasets.Dataset(steps.to_arrow().select(COLUMNS)).save_to_disk(str(folder / "rows"))


def hugging_face_batches(folder: Path, seed: int) -> Batches:
    """Shuffle the dataset, and iterate over it in batches. Its format "numpy" would turn boards into int64."""
    dataset = loaded(folder)
    for epoch in count(seed):
        yield from map(unlisted, dataset.shuffle(seed=epoch).iter(BATCH))


def flattened_batches(folder: Path, seed: int) -> Batches:
    """Copy the shuffled rows, which the documentation names as the remedy for slow indices."""
    dataset = loaded(folder)
    for epoch in count(seed):
        yield from map(unlisted, dataset.shuffle(seed=epoch).flatten_indices().iter(BATCH))


def buffered_batches(folder: Path, seed: int) -> Batches:
    """Shuffle rows within a buffer, as the documentation advises for speed."""
    dataset = loaded(folder).to_iterable_dataset()
    for epoch in count(seed):
        yield from map(unlisted, dataset.shuffle(seed=epoch, buffer_size=10_000).iter(BATCH))


def loaded(folder: Path) -> Any:
    """Return the saved dataset."""
    import datasets

    return datasets.load_from_disk(str(folder / "rows")).with_format("arrow")


def write_mds(steps: a2store.StepTable, folder: Path) -> None:
    """Write the shards of MosaicML Streaming."""
    from streaming import MDSWriter

    types = {
        "run_id": "uint32",
        "step_index": "uint16",
        "board": "uint64",
        "move": "uint8",
        "ev_values": "ndarray:float32:4",
    }
    with MDSWriter(out=str(folder / "rows"), columns=types) as writer:
        for row in np.asarray(steps):
            writer.write({name: row[name] for name in COLUMNS})


def mds_batches(folder: Path, seed: int) -> Batches:
    """Iterate over samples, and stack them."""
    from streaming import StreamingDataset

    dataset = StreamingDataset(local=str(folder / "rows"), shuffle=True, shuffle_seed=seed, batch_size=BATCH)
    while True:
        samples = iter(dataset)
        while picked := [sample for _, sample in zip(range(BATCH), samples, strict=False)]:
            yield {name: np.array([sample[name] for sample in picked]) for name in COLUMNS}


FIELD = (
    Competitor("a2store: load, loader", "a2store", write_table, table_batches),
    Competitor("npy: load, permutation, take", "numpy", write_npy, npy_batches),
    Competitor("Lance: take", "lance", write_lance, lance_batches),
    Competitor("Hugging Face: shuffle, iter", "datasets", write_hugging_face, hugging_face_batches),
    Competitor("Hugging Face: shuffle, flatten_indices", "datasets", write_hugging_face, flattened_batches),
    Competitor("Hugging Face: buffer of 10,000", "datasets", write_hugging_face, buffered_batches),
    Competitor("MosaicML Streaming: shuffle", "streaming", write_mds, mds_batches),
)


def served(competitor: int, folder: Path, seed: int) -> tuple[float, float]:
    """Return the seconds until the first batch, and the rate of the next ones in rows per second."""
    one = FIELD[competitor]
    # Seeds do not repeat, because Hugging Face datasets keep shuffled rows.
    next(one.batches(folder, 10_000 + seed))
    began = time.perf_counter()
    batches = one.batches(folder, seed)
    next(batches)
    first = time.perf_counter() - began
    began, rows = time.perf_counter(), 0
    for batch in batches:
        rows += len(batch["board"])
        if time.perf_counter() - began > SECONDS:
            break
    return first, rows / (time.perf_counter() - began)


def check(batch: dict[str, Any], rows: Rows) -> None:
    """Compare a batch with its rows, which runs and steps determine. It must not be in their order."""
    places = np.searchsorted(rows["run_id"], batch["run_id"]) + batch["step_index"]
    for name in COLUMNS:
        np.testing.assert_array_equal(batch[name], rows[name][places], name)
    assert len(places) == 1 or np.any(np.diff(places) < 0)


def run(report: Report, archive: a2store.Archive, rounds: int | None) -> None:
    """Write the rows in each format, check a batch, and time all competitors in turn."""
    steps = archive.sql("SELECT * FROM steps").limit(ROWS).materialize(progress=False)
    rows = np.asarray(steps)
    field = [one for one in FIELD if importlib.util.find_spec(one.package) is not None]
    with tempfile.TemporaryDirectory(prefix="side_by_side-") as name:
        written: dict[str, tuple[Path, float, int]] = {}
        for at, one in enumerate(field):
            folder = Path(name, str(at))
            folder.mkdir()
            began = time.perf_counter()
            one.write(steps, folder)
            seconds = time.perf_counter() - began
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            written[one.name] = (folder, seconds, size)
            check(next(one.batches(folder, 20_000)), rows)
        times: dict[str, list[tuple[float, float]]] = {one.name: [] for one in field}
        for seed in range(rounds or ROUNDS):
            for one in field[seed % len(field) :] + field[: seed % len(field)]:
                # Each in its own process, because some keep threads that would disturb the next.
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                    timed = pool.submit(served, FIELD.index(one), written[one.name][0], 100 * seed)
                    times[one.name].append(timed.result())
    lines = []
    for one in field:
        _, seconds, size = written[one.name]
        first, rate = (median(figures) for figures in zip(*times[one.name], strict=True))
        report.add("epochs", one.name, write_s=seconds, bytes_per_row=size / len(rows), first_s=first, rows_per_s=rate)
        lines.append((one.name, f"{seconds:.2f}", f"{size / len(rows):.0f}", f"{first * 1e3:.0f}", f"{rate:,.0f}"))
    table(
        f"epochs: {len(rows):,} rows in shuffled batches of {BATCH:,}, median of {rounds or ROUNDS} rounds",
        ("", "write s", "bytes a row", "first batch ms", "rows/s"),
        lines,
    )
    if absent := [one.package for one in FIELD if one not in field]:
        note(f"not installed: {', '.join(absent)}")
