"""Shuffled epochs in a training loop: rates, waits, the first batch, and memory."""

from __future__ import annotations

import importlib.util
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gather import BATCH, unpack
from report import Report, median, millions, percentile, status_bytes, table

import a2store

EPOCHS = 3
FIRST_BATCHES = 50
PEER_BATCHES = 200
STEADY_BATCHES = 10_000


def loaders(steps: a2store.StepTable) -> dict[str, a2store.Loader]:
    """Return the loaders to compare, by name."""
    return {
        "uint8 tokens, all columns": steps.loader(BATCH, seed=1),
        "int64 tokens, all columns": steps.loader(BATCH, seed=1, tokens="int64"),
        "uint8 tokens and moves": steps.loader(BATCH, seed=1, columns=["tokens", "move"]),
        # Mixing a table with itself costs as much as mixing two tables of its size.
        "a mix, 7 to 3": a2store.mix([(steps, 7), (steps, 3)], BATCH, seed=1, num_samples=len(steps)),
    }


def check(steps: a2store.StepTable) -> None:
    """Check that an epoch serves every row once, and that a batch has the columns of its rows."""
    rows = np.asarray(steps)
    loader = steps.loader(BATCH, seed=1)
    number, total = 0, np.uint64(0)
    with np.errstate(over="ignore"):
        for batch in loader:
            number += len(batch)
            total += np.add.reduce(batch.board)
    if number != len(rows) or total != np.add.reduce(rows["board"]):
        raise AssertionError("an epoch did not serve every row exactly once")
    # Runs are whole and in order here, so run and step determine a row's index.
    batch = next(iter(loader))
    places = np.searchsorted(rows["run_id"], batch.run_id) + batch.step_index
    for name, column in unpack(rows[places]).items():
        np.testing.assert_array_equal(batch[name], column, name)


def rates(report: Report, steps: a2store.StepTable) -> None:
    """Time whole epochs, and then one epoch batch by batch."""
    seconds: dict[str, list[float]] = {}
    waits: dict[str, list[float]] = {}
    field = loaders(steps)
    for epoch in range(EPOCHS + 1):
        for name, loader in field.items():
            loader.set_epoch(epoch)
            if epoch < EPOCHS:
                start = time.perf_counter()
                for _ in loader:
                    pass
                seconds.setdefault(name, []).append(time.perf_counter() - start)
            else:
                waits[name] = waits_of(iter(loader))
    lines = []
    for name, times in seconds.items():
        rate = len(steps) / median(times)
        middle, high, most = median(waits[name]), percentile(waits[name], 99), max(waits[name])
        report.add("loader", name, rows_per_s=rate, next_median_us=middle, next_p99_us=high, next_max_us=most)
        lines.append((name, millions(rate), f"{median(times):.2f}", f"{middle:.0f}", f"{high:.0f}", f"{most:.0f}"))
    table(
        f"loader: an epoch of {len(steps):,} rows in batches of {BATCH:,}, median of {EPOCHS}",
        ("", "rows/s", "s", "next() µs", "p99", "max"),
        lines,
    )


def waits_of(batches: Iterator[Any]) -> list[float]:
    """Return the time of each call of next(), in microseconds."""
    times: list[float] = []
    while True:
        start = time.perf_counter_ns()
        batch = next(batches, None)
        stop = time.perf_counter_ns()
        if batch is None:
            return times
        times.append((stop - start) / 1e3)


def numpy_batches(rows: np.ndarray[Any, Any], order: np.ndarray[Any, Any]) -> Iterator[dict[str, Any]]:
    """Serve batches as a short NumPy script would."""
    for at in range(0, len(order), BATCH):
        yield unpack(np.take(rows, order[at : at + BATCH]))


class MapStyle:
    """A map-style dataset of PyTorch over rows."""

    def __init__(self, rows: np.ndarray[Any, Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        """Return one row."""
        return self.rows[index]


class BatchWise(MapStyle):
    """The same dataset with PyTorch's method for whole batches."""

    def __getitems__(self, indices: list[int]) -> Any:
        """Return several rows in one array."""
        return np.take(self.rows, indices)


def collate(picked: Any) -> dict[str, Any]:
    """Convert rows to tensors."""
    import torch

    rows = np.asarray(picked)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        columns = unpack(rows)
        columns["run_id"] = columns["run_id"].astype(np.int64)
        columns["step_index"] = columns["step_index"].astype(np.int32)
        columns["board"] = columns["board"].view(np.int64)
        return {name: torch.from_numpy(column) for name, column in columns.items()}


def peers(report: Report, steps: a2store.StepTable) -> None:
    """Time the start of an epoch with NumPy and PyTorch."""
    rows = np.asarray(steps)
    field: dict[str, Callable[[], Iterator[Any]]] = {
        "np.random.permutation, np.take + collate": lambda: numpy_batches(rows, np.random.permutation(len(rows)))
    }
    if importlib.util.find_spec("torch") is not None:
        from torch.utils.data import DataLoader

        def torch_batches(dataset: MapStyle, workers: int) -> Iterator[Any]:
            return iter(DataLoader(dataset, BATCH, shuffle=True, num_workers=workers, collate_fn=collate))  # type: ignore[arg-type]

        field["torch DataLoader, row by row"] = lambda: torch_batches(MapStyle(rows), 0)
        field["torch DataLoader, __getitems__"] = lambda: torch_batches(BatchWise(rows), 0)
        field["torch DataLoader, __getitems__, 2 workers"] = lambda: torch_batches(BatchWise(rows), 2)
    lines = []
    for name, make in field.items():
        start = time.perf_counter()
        batches = make()
        first = len(next(batches)["move"])
        ready = time.perf_counter() - start
        served = 0
        start = time.perf_counter()
        for _, batch in zip(range(PEER_BATCHES), batches, strict=False):
            served += len(batch["move"])
        # With a single batch, there is nothing to extrapolate from.
        rate = served / (time.perf_counter() - start) if served else first / ready
        del batches
        epoch = ready + (len(rows) - first) / rate
        report.add(
            "loader", name, first_batch_s=ready, rows_per_s_after=rate, epoch_s=epoch, rows_per_s=len(rows) / epoch
        )
        lines.append((name, f"{ready:.2f}", millions(rate), f"{epoch:.0f}", millions(len(rows) / epoch)))
    table(
        f"loader: peers, extrapolated from {PEER_BATCHES} batches after the first",
        ("", "first batch s", "rows/s after it", "epoch s", "rows/s"),
        lines,
    )


def first_batch(report: Report, steps: a2store.StepTable) -> None:
    """Time the first batch of a new loader at any position, compared with creating an order in memory."""
    state = steps.loader(BATCH, seed=1).state_dict()
    rng = np.random.default_rng(0)
    middle = max(1, len(steps) - 2 * BATCH)

    def at(position: int) -> Iterator[a2store.Batch]:
        loader = steps.loader(BATCH, seed=1)
        loader.load_state_dict({**state, "position": position})
        return iter(loader)

    times = []
    for position in rng.integers(0, middle, FIRST_BATCHES).tolist():
        start = time.perf_counter()
        batches = at(position)
        batch = next(batches)
        times.append((time.perf_counter() - start) * 1e6)
        if len(steps) > 2 * BATCH:
            np.testing.assert_array_equal(next(at(position + BATCH)).board, next(batches).board)
        del batches, batch
    ours, high = median(times), percentile(times, 99)
    report.add("loader", "first batch", median_us=ours, p99_us=high)
    lines = [(f"a2store, any position, median of {FIRST_BATCHES}", f"{ours / 1e3:.2f} (p99 {high / 1e3:.2f})")]
    start = time.perf_counter()
    np.random.permutation(len(steps))
    seconds = {"np.random.permutation": time.perf_counter() - start}
    if importlib.util.find_spec("torch") is not None:
        import torch

        start = time.perf_counter()
        torch.randperm(len(steps))
        seconds["torch.randperm"] = time.perf_counter() - start
    for name, taken in seconds.items():
        report.add("loader", name, seconds=taken)
        lines.append((f"{name} alone, once", f"{taken * 1e3:,.0f}"))
    table("loader: from creation to the first batch", ("", "ms"), lines)


def allocations(report: Report, steps: a2store.StepTable) -> None:
    """Check that memory does not grow, and no new pages are touched, while batches are served."""
    loader = steps.loader(BATCH, seed=1)
    # Starts two epochs, so that all memory for the end of one and the start of the next is allocated.
    for _ in range(2):
        for _, _batch in zip(range(200), loader, strict=False):
            pass
    # Resets the peak, which may come from another part, to the current size.
    Path("/proc/self/clear_refs").write_text("5")
    before, faults = status_bytes("VmHWM"), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    epochs = until_number(loader, STEADY_BATCHES)
    grown = status_bytes("VmHWM") - before
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    report.add("loader", "memory", batches=STEADY_BATCHES, peak_grown_bytes=grown, page_faults=faults, epochs=epochs)
    print(f"\nloader: over {STEADY_BATCHES:,} batches peak memory grew by {grown / 1e6:.2f} MB,", end=" ")
    print(f"with {faults:,} page faults on new pages ({epochs} epochs)")


def until_number(loader: a2store.Loader, number: int) -> int:
    """Take a number of batches and return the number of started epochs."""
    epochs = 0
    while number:
        epochs += 1
        for _, _batch in zip(range(number), loader, strict=False):
            number -= 1
    return epochs


def run(report: Report, steps: a2store.StepTable) -> None:
    """Check the loader and run all measurements."""
    check(steps)
    rates(report, steps)
    peers(report, steps)
    first_batch(report, steps)
    allocations(report, steps)
