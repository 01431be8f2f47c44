"""Feed ``train_2048``, the trainer of 2048former, from an archive: through a pack for its loader, or a2store's loader.

    python examples/train_2048former.py [ARCHIVE] [--pack FOLDER]
    python examples/train_2048former.py [ARCHIVE] --compare
    python examples/train_2048former.py [ARCHIVE] --train 20 --mode binned_ev

Without an archive, the script plays some games first. It exports a Macroxue pack, which the trainer's loader reads, and
serves an epoch from memory with the same keys, shapes and types of batches. ``--compare`` checks that the batches of
both loaders are equal by run and step, and measures both. ``--train`` runs the trainer's own loop on a2store's loader.
Both options need ``train_2048`` and ``core_2048`` from https://github.com/EndlessReform/2048former on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import a2store
from a2store.torch import StepLoader

MODES = ("hard_move", "binned_ev")
COLUMNS = ["tokens", "move", "ev_values", "ev_legal"]
# The trainer's default edges. A value of 0 and a value of 1 have bins of their own, the first and the last.
EDGES = np.array([0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 1.0], "f4")
NUM_BINS = len(EDGES) + 1


def bins_of(values: torch.Tensor) -> torch.Tensor:
    """Return the bins of values, int64. Values are clamped to [0, 1]; a value on an edge is in the lower bin."""
    # torch.bucketize would start threads even for a small batch.
    clamped = values.clamp(0, 1).numpy()
    bins = np.searchsorted(EDGES[1:-1], clamped) + 1
    bins[clamped == 0] = 0
    bins[clamped == 1] = NUM_BINS - 1
    return torch.from_numpy(bins)


def trainer_batch(batch: dict[str, torch.Tensor], mode: str) -> dict[str, Any]:
    """Return a batch as the trainer's collate functions make it, with its keys, shapes and types.

    Both modes have ``tokens`` (B, 16) int64 and ``branch_values`` (B, 4) float32. ``hard_move`` adds ``move_targets``
    (B,) int64. ``binned_ev`` adds ``branch_bin_targets`` (B, 4) int64 and ``n_bins``, and ``branch_mask`` (B, 4) bool:
    the trainer's objective reads the mask, although its collate functions omit it.
    """
    # A step without values has NaNs in a table. In a pack, it has zeros and an empty mask.
    values = batch["ev_values"].nan_to_num()
    out: dict[str, Any] = {"tokens": batch["tokens"], "branch_values": values}
    if mode == "hard_move":
        return out | {"move_targets": batch["move"].long()}
    return out | {
        "branch_bin_targets": bins_of(values),
        "n_bins": NUM_BINS,
        "branch_mask": batch["ev_legal"] & ~batch["ev_values"].isnan(),
    }


class TrainerLoader:
    """A loader of a table for the trainer's loop. Each iteration is an epoch with another order."""

    def __init__(self, table: a2store.StepTable, mode: str, batch_size: int) -> None:
        self.mode = mode
        self.loader = StepLoader(table, batch_size, seed=0, columns=COLUMNS)
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.loader.set_epoch(self.epoch)
        self.epoch += 1
        for batch in self.loader:
            yield trainer_batch(batch, self.mode)


def play(folder: Path, runs: int) -> a2store.Archive:
    """Return an archive of newly played games."""
    a2store.simulate(folder / "runs", runs=runs, seed=1)
    archive = a2store.Archive.create(folder / "games.a2")
    archive.ingest(folder / "runs")
    return archive


# A pack holds whole runs and needs every move.
RUNS = "SELECT run_id FROM steps GROUP BY run_id HAVING bool_and(move IS NOT NULL)"


def load_table(archive: a2store.Archive) -> a2store.StepTable:
    """Return the steps of these runs, with their tiles of 65,536 if there are any."""
    largest = archive.sql("SELECT run_id FROM runs WHERE highest_tile >= 65536").count()
    query = f"SELECT * FROM steps WHERE run_id IN ({RUNS})"
    return archive.sql(query).materialize(extra=["tile_65536_mask"] if largest else [])


def trainer_module(name: str) -> Any:
    """Import a module of the trainer, or explain how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SystemExit(
            f"{name}: {error}\nClone https://github.com/EndlessReform/2048former, add packages/train_2048/src and "
            "packages/core_2048/src to PYTHONPATH, and install pydantic, safetensors, tqdm and huggingface_hub."
        ) from None


def trainer_loader(pack: Path, mode: str, batch_size: int, workers: int) -> Any:
    """Return the trainer's own loader of a pack, for one epoch."""
    binning = trainer_module("train_2048.binning")
    return trainer_module("train_2048.dataloader").build_steps_dataloaders(
        str(pack),
        binning.Binner.from_config(binning.BinningConfig()),
        mode,
        batch_size,
        shard_locality=True,
        num_epochs=1,
        num_workers_train=workers,
    )[0]


class PackRows:
    """The rows of a pack by run and step of the archive."""

    def __init__(self, pack: Path, table: a2store.StepTable) -> None:
        steps = np.concatenate([np.load(path, mmap_mode="r") for path in sorted(pack.glob("steps*.npy"))])
        # An export numbers runs in the order of the archive's ids.
        _, first, places = np.unique(steps["run_id"], return_index=True, return_inverse=True)
        self.runs = np.unique(np.asarray(table)["run_id"])
        keys = np.argsort(np.argsort(first))[places].astype(np.int64) << 32 | steps["step_index"]
        self.order = np.argsort(keys)
        self.keys = keys[self.order]
        self.masks = steps["ev_legal"]

    def find(self, runs: Any, steps: Any) -> Any:
        """Return the row numbers of these steps."""
        keys = np.searchsorted(self.runs, runs).astype(np.int64) << 32 | steps
        found = np.searchsorted(self.keys, keys)
        assert (self.keys[found] == keys).all()
        return self.order[found]


def are_equal(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Return whether batches have the same keys, types, shapes and values."""
    return ours.keys() == theirs.keys() and all(
        value.dtype == theirs[key].dtype and torch.equal(value, theirs[key])
        if isinstance(value, torch.Tensor)
        else value == theirs[key]
        for key, value in ours.items()
    )


def check(table: a2store.StepTable, pack: Path, mode: str, batch_size: int) -> None:
    """Compare each batch of a2store's loader with the trainer's batch of the same runs and steps."""
    collate = trainer_loader(pack, mode, batch_size, 0).collate_fn
    rows = PackRows(pack, table)
    num_rows, num_batches, num_equal = 0, 0, 0
    for batch in StepLoader(table, batch_size, seed=0, columns=[*COLUMNS, "run_id", "step_index"]):
        found = rows.find(batch["run_id"].numpy(), batch["step_index"].numpy())
        ours, theirs = trainer_batch(batch, mode), collate(found)
        if mode == "binned_ev":
            # The collate function decodes the mask but does not return it.
            theirs.setdefault("branch_mask", torch.from_numpy(rows.masks[found][:, None] >> np.arange(4) & 1 == 1))
        num_equal += are_equal(ours, theirs)
        num_rows, num_batches = num_rows + len(found), num_batches + 1
    print(
        f"{mode}: {num_equal:,} of {num_batches:,} batches equal by run and step, with {num_rows:,} of the pack's "
        f"{len(rows.keys):,} rows"
    )


def rows_per_second(batches: Iterable[dict[str, Any]]) -> float:
    """Return the rate of an epoch, including the start of the loader."""
    start = time.perf_counter()
    num_rows = sum(len(batch["tokens"]) for batch in batches)
    return num_rows / (time.perf_counter() - start)


def measure(table: a2store.StepTable, pack: Path, mode: str, batch_size: int, rounds: int) -> None:
    """Print the rates of both loaders, as medians of alternating rounds."""
    loaders: dict[str, Callable[[], Iterable[dict[str, Any]]]] = {
        "a2store": lambda: TrainerLoader(table, mode, batch_size),
        "train_2048": lambda: trainer_loader(pack, mode, batch_size, 0),
        "train_2048, 2 workers": lambda: trainer_loader(pack, mode, batch_size, 2),
    }
    rates: dict[str, list[float]] = {name: [] for name in loaders}
    for _ in range(rounds):
        for name, make in loaders.items():
            rates[name].append(rows_per_second(make()))
    ours = statistics.median(rates["a2store"])
    for name, found in rates.items():
        median = statistics.median(found)
        print(
            f"{mode}, {name}: {median:,.0f} rows/s, from {min(found):,.0f} to {max(found):,.0f} in {rounds} rounds; "
            f"a2store's rate divided by it: {ours / median:.1f}"
        )


def train(table: a2store.StepTable, pack: Path, options: argparse.Namespace, folder: Path) -> None:
    """Run the trainer's loop on a2store's loader, with a small model. The pack provides the loop's list of runs."""
    loop, config = trainer_module("train_2048.training_loop"), trainer_module("train_2048.config")
    model = {
        "input_vocab_size": 17,
        "output_n_bins": NUM_BINS,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "layer_norm_eps": 1e-5,
        "head_type": "action_policy" if options.mode == "hard_move" else "binned_ev",
    }
    (folder / "init").mkdir()
    (folder / "init" / "config.json").write_text(json.dumps(model))
    cfg = config.TrainingConfig(
        init_dir=str(folder / "init"),
        checkpoint_dir=str(folder / "checkpoints"),
        target={"mode": options.mode},
        batch={"batch_size": options.batch_size},
        dataset={"dataset_dir": str(pack), "num_steps": options.train, "shard_locality": True},
        compile_enabled=False,
    )
    loader = TrainerLoader(table, options.mode, options.batch_size)
    # The loop gets its loaders from this function: for training, for validation, batches per epoch, and metadata.
    loop.init_datasets = lambda *_, **__: (loader, None, len(loader), {})
    _, steps = loop.run_training(cfg, "cpu")
    print(f"{options.mode}: the trainer's loop took {steps} steps on a2store's batches")


def processor() -> str:
    """Return the processor's name."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def use(options: argparse.Namespace, folder: Path) -> None:
    """Export the pack, load the table, and do what the options ask for."""
    archive = a2store.Archive.open(options.archive) if options.archive else play(folder, options.runs)
    pack = options.pack or folder / "pack"
    report = archive.export_runs(RUNS, pack, format="macroxue")
    print(f"pack {report.path}: {report.runs:,} runs, {report.num_steps:,} steps")
    table = load_table(archive)
    # The values of Macroxue's own engine are not in [0, 1], so every bin target would be the first or the last bin.
    raw = archive.sql("SELECT run_id FROM runs WHERE raw_evs").count()
    modes = [mode for mode in MODES if options.mode in (mode, None) and (mode != "binned_ev" or not raw)]
    if raw and options.mode != "hard_move":
        print(f"{raw:,} runs have raw values: binned_ev is left out")
    for mode in modes:
        batch = next(iter(TrainerLoader(table, mode, options.batch_size)))
        columns = {key: (tuple(v.shape), v.dtype) if isinstance(v, torch.Tensor) else v for key, v in batch.items()}
        print(f"{mode}: {columns}")
        if options.compare:
            check(table, pack, mode, options.batch_size)
            measure(table, pack, mode, options.batch_size, options.rounds)
    if options.compare:
        print(f"{processor()}, {torch.get_num_threads()} threads of PyTorch")
    if options.train and options.mode in modes:
        train(table, pack, options, folder)


def main() -> None:
    """Read the options, and work in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, nargs="?", help="default: newly played games")
    parser.add_argument("--pack", type=Path, help="the folder of the exported pack; default: a temporary one")
    parser.add_argument("--mode", choices=MODES, help="the training target; default: both, or hard_move with --train")
    parser.add_argument("--compare", action="store_true", help="compare and measure both loaders")
    parser.add_argument("--train", type=int, default=0, metavar="STEPS", help="steps of the trainer's loop")
    parser.add_argument("--runs", type=int, default=300, help="games to play without an archive")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.train and options.mode is None:
        options.mode = "hard_move"
    with tempfile.TemporaryDirectory() as folder:
        use(options, Path(folder))


if __name__ == "__main__":
    main()
