"""The training data of a critic: shuffled batches of inputs and labels, resumable and divided among ranks."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from .. import Archive, Query, StepTable
from .._integers import integer
from ..torch import StepLoader
from ._tables import EMBEDDING, embeddings_meta, limited, run_ids, session_tiles, with_embeddings

Source: TypeAlias = str | os.PathLike[str] | Archive | Query | StepTable

THRESHOLDS = (8192, 16384, 32768)


def highest_tiles(archive: Archive) -> dict[int, int]:
    """Return the highest tile of each run in an archive, by run id, at the archive's version.

    - ``archive``: the archive.

    Raises ``QueryError``, ``DamagedError`` or ``OSError`` if the archive's runs can no longer be read.

    >>> from a2store.critic import highest_tiles
    >>> highest_tiles(archive)[0]
    1024
    """
    sql = "SELECT run_id, highest_tile, CAST(0 AS BIGINT UNSIGNED) AS board FROM runs"
    rows = np.asarray(archive.sql(sql).materialize(extra=["highest_tile"], progress=False))
    return dict(zip(rows["run_id"].tolist(), rows["highest_tile"].tolist(), strict=True))


_OF_ENCODER = ("model_sha", "pooling", "dtype_bits", "D")


class CriticData:
    """A loader of batches ``(inputs, labels)`` of the steps of games, one epoch per iteration.

    For B rows and T thresholds, the inputs are embeddings, (B, D) bfloat16 or float32 as stored, or tokens, (B, 16)
    int64. The labels are (B, T) float32: 1 if the row's run finally reached a tile of the threshold or more, else 0.
    Labels are looked up by run when a batch is made; they are not stored per step.

    ``len(data)`` is the number of batches of an epoch on this rank, and ``num_rows`` is the number of steps.

    - ``source``: a session's folder, an archive or its path, a query, or a table. For an archive, all steps are used. A
      query or a table needs the argument ``highest_tile``, or a column of this name: in the query's result, or as an
      extra column of the table.
    - ``batch_size``: rows per batch and rank.
    - ``use_embeddings``: ``True`` = the inputs are embeddings from ``a2store.critic.embed``. If the folder has none of
      these, the inputs are the float32 embeddings that a recorder wrote beside the steps. If the folder has
      no embeddings at all, the inputs are tokens, with a warning.
    - ``thresholds``: tiles of 2 or more, in ascending order.
    - ``embeddings``: the folder of the embeddings; ``None`` = the session's folder.
    - ``highest_tile``: the highest tile of each run, by its id, instead of the source's own values.
    - ``max_steps_per_run``: the maximum number of steps per run, because steps of one run are similar. The run is
      divided into this many equal ranges, and ``seed`` selects one step of each. The steps are copied. The whole
      table stays in memory, because ``split`` needs each run's game. ``None`` = all.
    - ``seed``: the seed of the order, the symmetries and the selected steps.
    - ``shuffle``, ``epoch``, ``drop_last``, ``rank``, ``world_size``, ``symmetries``, ``window``, ``prefetch``,
      ``pin_memory``, ``device``: as in ``a2store.torch.StepLoader``. Embeddings describe the original boards, so they
      exclude ``symmetries``.

    Raises ``ValueError`` for options that exclude each other, and for runs without a known highest tile. Errors of
    opening the source are raised unchanged.

    >>> import torch
    >>> from a2store.critic import CriticData, TokenCritic, BoardTransformer, CriticHead
    >>> train, val = CriticData("session", 256, thresholds=(1024, 2048)).split(0.3)
    >>> critic = TokenCritic(BoardTransformer(dim=16), CriticHead(16, len(train.thresholds)))
    >>> loss = torch.nn.BCEWithLogitsLoss(pos_weight=train.pos_weight)
    >>> tokens, labels = next(iter(train))
    >>> loss(critic(tokens), labels).backward()
    >>> tokens.shape, labels.shape
    (torch.Size([256, 16]), torch.Size([256, 2]))
    """

    def __init__(
        self,
        source: Source,
        batch_size: int = 4096,
        *,
        use_embeddings: bool = False,
        thresholds: Sequence[int] = THRESHOLDS,
        embeddings: str | os.PathLike[str] | None = None,
        highest_tile: Mapping[int, int] | None = None,
        max_steps_per_run: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        epoch: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        symmetries: bool = False,
        window: int | None = None,
        prefetch: int = 2,
        pin_memory: bool = False,
        device: torch.device | str | None = None,
    ) -> None:
        self.thresholds = tuple(integer("thresholds", threshold, 2) for threshold in thresholds)
        if not self.thresholds or any(low >= high for low, high in pairwise(self.thresholds)):
            found = list(thresholds)
            raise ValueError(f"thresholds: expected tiles of 2 or more in ascending order, found {found}")
        if use_embeddings and symmetries:
            raise ValueError("symmetries: expected False with embeddings, which describe the original boards")
        if isinstance(source, str | os.PathLike):
            source = _opened(source)
        folder = source if isinstance(source, Path) else None
        table, tiles = _table(source, highest_tile)
        whole = table
        if max_steps_per_run is not None:
            limit = integer("max_steps_per_run", max_steps_per_run, 1)
            table = limited(table, limit, integer("seed", seed, 0))
        self.inputs: dict[str, Any] = {"kind": "tokens"}
        """The kind of the inputs: tokens, or the embeddings of an encoder."""
        self.dim: int | None = None
        """The dimension D of an embedding; ``None`` = the inputs are tokens."""
        if use_embeddings:
            place = folder if embeddings is None else Path(embeddings)
            if place is None:
                raise ValueError("embeddings: expected a folder, because the source is not a session")
            try:
                meta = embeddings_meta(place)
            except FileNotFoundError as error:
                hint = "the inputs are tokens; `a2store critic embed` writes embeddings"
                warnings.warn(f"{error.filename}: not found; {hint}", stacklevel=2)
            else:
                self.dim = int(meta["D"])
                self.inputs = {"kind": "embeddings", **{name: meta.get(name) for name in _OF_ENCODER}}
                table = with_embeddings(table, place)
        self._runs = _Runs(tiles, self.thresholds)
        missed = [tile for k, tile in enumerate(self.thresholds) if not self._runs.reached[:, k].any()]
        if missed:
            warnings.warn(f"thresholds: no run reaches {missed}, so their labels are all 0", stacklevel=2)
        self._options: dict[str, Any] = {
            "batch_size": batch_size,
            "shuffle": shuffle,
            "seed": seed,
            "epoch": epoch,
            "drop_last": drop_last,
            "rank": rank,
            "world_size": world_size,
            "symmetries": symmetries,
            "window": window,
            "prefetch": prefetch,
            "pin_memory": pin_memory,
            "device": device,
        }
        self._take(table, table if max_steps_per_run is None else whole)

    def __repr__(self) -> str:
        """Return the size of the data, the kind of the inputs and the thresholds."""
        return (
            f"CriticData({self.num_rows} rows of {self.num_runs} runs, {self.inputs['kind']}, "
            f"thresholds={self.thresholds}, batch_size={self._options['batch_size']})"
        )

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch on this rank."""
        return len(self._loader)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Return an iterator over the epoch, from its beginning or, once, from the position of a loaded state."""
        # The loader's iteration begins here, not with the first batch.
        return map(self._pair, iter(self._loader))

    @property
    def num_rows(self) -> int:
        """The number of steps over all ranks."""
        return len(self.table)

    @property
    def num_runs(self) -> int:
        """The number of runs with steps in this data."""
        return int((self._steps_by_run > 0).sum())

    @property
    def num_positive_runs(self) -> npt.NDArray[np.int64]:
        """The number of runs that reach each threshold: (T,) int64."""
        positive: npt.NDArray[np.int64] = self._runs.reached[self._steps_by_run > 0].sum(0, dtype=np.int64)
        return positive

    @property
    def base_rate(self) -> npt.NDArray[np.float64]:
        """The share of steps whose run reaches each threshold: (T,) float64."""
        return self._num_positive / max(1, self.num_rows)

    @property
    def pos_weight(self) -> torch.Tensor:
        """The weight of positive rows that balances the classes, negatives / positives: (T,) float32.

        It is 1 for a threshold that all runs or no runs reach.
        """
        positive = self._num_positive
        negative = self.num_rows - positive
        ratio = np.divide(negative, positive, out=np.ones(len(positive)), where=(positive > 0) & (negative > 0))
        return torch.from_numpy(ratio.astype(np.float32))

    def open_steps(self) -> npt.NDArray[np.bool_]:
        """Return whether each step's board is below each threshold, in the table's order: (N, T) bool.

        >>> from a2store.critic import CriticData
        >>> CriticData("session", thresholds=(1024, 2048)).open_steps().shape
        (29320, 2)
        """
        loader = self.table.loader(1 << 16, shuffle=False, columns=["tokens"])
        highest = [batch.tokens.max(1, initial=0) for batch in loader]
        tiles = np.left_shift(1, np.concatenate([np.empty(0, np.int64), *highest], dtype=np.int64))
        is_open: npt.NDArray[np.bool_] = tiles[:, None] < np.asarray(self.thresholds)
        return is_open

    def split(self, val: float = 0.1, *, seed: int = 0) -> tuple[CriticData, CriticData]:
        """Split the data by run into ``(train, val)``, like ``StepTable.split``.

        ``train`` keeps the options. ``val`` has all rows in the table's order, and no symmetries.

        - ``val``: the approximate share of held-out runs, in ``0..=1``.
        - ``seed``: the seed of the split, in ``0..2**64``.

        Raises ``ValueError`` for a share out of range.

        >>> from a2store.critic import CriticData
        >>> train, val = CriticData("session", thresholds=(1024, 2048)).split(0.2)
        >>> train.num_runs + val.num_runs
        20
        """
        train, held_out = self._whole.split(val, seed=seed)
        plain = {"shuffle": False, "drop_last": False, "symmetries": False, "window": None}
        return self._part(train, {}), self._part(held_out, plain)

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration serves."""
        return self._loader.epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the order; see ``StepLoader.set_epoch``.

        - ``epoch``: the number of the epoch, in ``0..2**63``.

        >>> from a2store.critic import CriticData
        >>> data = CriticData("session", thresholds=(1024, 2048))
        >>> data.set_epoch(1)
        >>> data.epoch
        1
        """
        self._loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the position, as the state of the loader; see ``Loader.state_dict``.

        >>> from a2store.critic import CriticData
        >>> data = CriticData("session", 256, thresholds=(1024, 2048))
        >>> batch = next(iter(data))
        >>> data.state_dict()["position"]
        256
        """
        return self._loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a position; see ``StepLoader.load_state_dict``.

        - ``state``: the dict that ``state_dict`` returned.

        Raises ``StateMismatchError`` and ``ValueError`` as ``Loader.load_state_dict`` does.

        >>> from a2store.critic import CriticData
        >>> data = CriticData("session", 256, thresholds=(1024, 2048))
        >>> data.load_state_dict({**data.state_dict(), "position": 256})
        >>> data.state_dict()["position"]
        256
        """
        self._loader.load_state_dict(state)

    def _part(self, whole: StepTable, changed: dict[str, Any]) -> CriticData:
        """Return the data of the runs in ``whole``, a part of the rows before ``max_steps_per_run``."""
        is_limited = self._whole is not self.table
        table = self.table.filter(run_ids=np.unique(run_ids(whole))) if is_limited else whole
        part = object.__new__(CriticData)
        part.thresholds, part.dim, part._runs, part.inputs = self.thresholds, self.dim, self._runs, self.inputs
        part._options = {**self._options, **changed}
        part._take(table, whole)
        return part

    def _take(self, table: StepTable, whole: StepTable) -> None:
        # The copied rows of `max_steps_per_run` lack the games of the runs, which `split` needs.
        self._whole = whole
        self.table = table
        """The rows; with embeddings, a table with that column attached."""
        self._steps_by_run = self._runs.count(run_ids(table))
        self._num_positive = self._steps_by_run @ self._runs.reached
        self._input = "tokens" if self.dim is None else EMBEDDING
        self._loader = StepLoader(table, columns=[self._input, "run_id"], **self._options)

    def _pair(self, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return batch[self._input], self._runs.labels(batch["run_id"])


class _Runs:
    """The outcomes of runs, by run id."""

    def __init__(self, tiles: Mapping[int, int], thresholds: Sequence[int]) -> None:
        ids = np.fromiter(tiles.keys(), np.int64, len(tiles))
        order = np.argsort(ids)
        self.ids = ids[order]
        highest = np.fromiter(tiles.values(), np.int64, len(tiles))[order]
        self.reached = highest[:, None] >= np.asarray(thresholds)
        """Whether each run reached each threshold: (R, T) bool."""
        self._on: dict[torch.device, tuple[torch.Tensor, torch.Tensor]] = {}

    def count(self, ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
        """Return the number of rows of each known run, (R,); ``ids`` are the runs of all rows."""
        found, counts = np.unique(ids.astype(np.int64), return_counts=True)
        unknown = np.setdiff1d(found, self.ids)
        if len(unknown):
            raise ValueError(f"highest_tile: unknown for {len(unknown):,} runs, such as run {unknown[0]}")
        steps = np.zeros(len(self.ids), np.int64)
        steps[np.searchsorted(self.ids, found)] = counts
        return steps

    def labels(self, run_id: torch.Tensor) -> torch.Tensor:
        """Return the labels of rows with run ids ``run_id`` (B,) int64, on the same device."""
        device = run_id.device
        if device not in self._on:
            self._on[device] = torch.from_numpy(self.ids).to(device), torch.from_numpy(self.reached).to(device)
        ids, reached = self._on[device]
        return reached[torch.searchsorted(ids, run_id)].float()


def _opened(source: str | os.PathLike[str]) -> Archive | Path:
    """Open an archive, or return the folder of a session."""
    path = Path(source)
    if "://" not in str(source) and (path / "metadata.db").exists():
        return path
    return Archive.open(source)


def _table(source: Path | Archive | Query | StepTable, tiles: Mapping[int, int] | None) -> tuple[StepTable, Any]:
    if isinstance(source, Path):
        return StepTable.from_session(source, progress=False), session_tiles(source) if tiles is None else tiles
    if isinstance(source, Archive):
        query = source.sql("SELECT run_id, step_index, board, tile_65536_mask FROM steps")
        return query.materialize(progress=False), highest_tiles(source) if tiles is None else tiles
    if isinstance(source, Query):
        extra = ["highest_tile"] if tiles is None else []
        source = source.materialize(extra=extra, progress=False)
    return source, _tiles_of(source) if tiles is None else tiles


def _tiles_of(table: StepTable) -> dict[int, int]:
    """Return the highest tile of each run, from the rows."""
    if "highest_tile" not in (table.dtype.names or ()):
        raise ValueError("highest_tile: expected an extra column of the table, or the argument highest_tile")
    tiles: dict[int, int] = {}
    for batch in table.loader(1 << 18, shuffle=False, columns=["run_id", "highest_tile"]):
        pairs = np.unique(np.stack([batch.run_id, batch["highest_tile"]], 1).astype(np.int64), axis=0)
        for run_id, tile in pairs.tolist():
            if tiles.setdefault(run_id, tile) != tile:
                raise ValueError(f"highest_tile: run {run_id} has both {tiles[run_id]} and {tile}")
    return tiles
