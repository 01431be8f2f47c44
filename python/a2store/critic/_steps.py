"""Steps in order, in parts of a given size, from a mapped session or from a table."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from .. import StepTable

SESSION_KEY = np.dtype([("run_id", "<u8"), ("step_idx", "<u4")])

Tokens: TypeAlias = npt.NDArray[np.uint8]
Keys: TypeAlias = npt.NDArray[Any]


class Steps(Protocol):
    """The rows to embed."""

    key: np.dtype[Any]
    """The dtype of the keys."""

    def __len__(self) -> int: ...

    def parts(self, start: int, size: int) -> Iterator[tuple[Tokens, Keys]]:
        """Yield tokens (n, 16) and keys (n,) from row ``start``, ``size`` rows at a time."""


class SessionSteps:
    """The steps of a session, mapped from ``steps.npy``, or from ``steps-<number>.npy`` in order."""

    key = SESSION_KEY

    def __init__(self, folder: Path) -> None:
        """Open the files.

        Raises ``ValueError`` for a folder without such files, and for files of another kind.
        """
        single = folder / "steps.npy"
        paths = [single] if single.exists() else sorted(folder.glob("steps-*.npy"), key=_shard_number)
        if not paths:
            raise ValueError(f"{folder}: expected a session, found no steps.npy or steps-<number>.npy")
        self._shards = [_mapped(path) for path in paths]
        self._starts = np.cumsum([0, *map(len, self._shards)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def parts(self, start: int, size: int) -> Iterator[tuple[Tokens, Keys]]:
        """Yield tokens (n, 16) and keys (n,) from row ``start``, ``size`` rows at a time."""
        while start < len(self):
            end = min(start + size, len(self))
            pieces = []
            for begin, shard in zip(self._starts, self._shards, strict=False):
                low, high = max(start - begin, 0), min(end - begin, len(shard))
                if low < high:
                    pieces.append(shard[low:high])
            rows = np.concatenate(pieces)
            keys = np.empty(len(rows), self.key)
            keys["run_id"], keys["step_idx"] = rows["run_id"], rows["step_idx"]
            yield np.ascontiguousarray(rows["exps"]), keys
            start = end


class TableSteps:
    """The rows of a table."""

    def __init__(self, table: StepTable) -> None:
        """Create the rows of ``table``."""
        self._table = table
        self.key = np.dtype([("run_id", "<u4"), ("step_index", table.dtype["step_index"]), ("board", "<u8")])

    def __len__(self) -> int:
        return len(self._table)

    def parts(self, start: int, size: int) -> Iterator[tuple[Tokens, Keys]]:
        """Yield tokens (n, 16) and keys (n,) from row ``start``, ``size`` rows at a time."""
        loader = self._table.loader(size, shuffle=False, columns=["tokens", *(self.key.names or ())])
        loader.load_state_dict({**loader.state_dict(), "position": start})
        for batch in loader:
            keys = np.empty(len(batch), self.key)
            for name in self.key.names or ():
                keys[name] = batch[name]
            yield batch["tokens"], keys


def checksum(steps: Steps, count: int) -> int:
    """Return the checksum of the first ``count`` rows."""
    crc, left = 0, count
    for tokens, keys in steps.parts(0, 1 << 16) if count else ():
        crc = add_checksum(crc, tokens[:left], keys[:left])
        left -= len(tokens)
        if left <= 0:
            break
    return crc


def add_checksum(crc: int, tokens: Tokens, keys: Keys) -> int:
    """Return the checksum of the rows of ``crc`` followed by these rows."""
    # Tokens and keys are interleaved by row, so the division of rows into parts does not change the checksum.
    rows = np.empty(len(tokens), [("tokens", "u1", 16), ("keys", keys.dtype)])
    rows["tokens"], rows["keys"] = tokens, keys
    return zlib.crc32(rows.tobytes(), crc)


def _shard_number(path: Path) -> tuple[int, str]:
    digits = path.stem.removeprefix("steps-")
    return (int(digits) if digits.isdigit() else -1, path.name)


def _mapped(path: Path) -> npt.NDArray[Any]:
    rows: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    fields: Mapping[str, Any] = rows.dtype.fields or {}
    found = {name: fields[name][0] for name in ("run_id", "step_idx", "exps") if name in fields}
    expected = {"run_id": np.dtype("<u8"), "step_idx": np.dtype("<u4"), "exps": np.dtype(("u1", 16))}
    if rows.ndim != 1 or found != expected:
        raise ValueError(f"{path}: expected rows of a session, run_id, step_idx and exps, found {rows.dtype}")
    return rows
