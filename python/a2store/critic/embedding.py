"""Embeddings of every step, in the order of the steps.

Embeddings of a session are written to its folder, those of a table to any folder. The files are:

- ``embeddings.bf16.npy`` (N, D), ``<u2`` bit patterns, or ``embeddings.f32.npy`` (N, D), ``<f4``.
- ``embeddings.json``: the model and the options that made them.
- ``embeddings.steps.npy`` (N,), only for a table: the step of each row.

Rows are appended to ``.embeddings.part``. ``.embeddings.state`` stores the number of valid rows, the encoder and the
steps. An interrupted run continues after the valid rows if encoder and steps are unchanged. Finished files are synced
and renamed. ``embeddings.json`` is removed before the files that it describes change, and written last. So it always
matches them.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .. import Query, StepTable
from .._integers import integer
from ._steps import SessionSteps, Steps, TableSteps, Tokens, add_checksum, checksum
from ._tables import KEYS_NAME, META_NAME, embeddings_name
from .encoder import DTYPES, Dtype, Pooling, Runner, encoder_sha
from .files import replace, sync, sync_folder
from .progress import Progress

PART_NAME, STATE_NAME = ".embeddings.part", ".embeddings.state"


@dataclass(frozen=True)
class EmbedReport:
    """A summary of ``embed``.

    - ``path``: the file of the embeddings.
    - ``num_rows``: the number of rows.
    - ``dim``: the dimension D of an embedding.
    - ``model_sha``: the encoder's name in ``embeddings.json``.
    - ``pooling``: the pooling: ``"mean"``, ``"cls"``, or ``"none"`` for an encoder with one vector per board.
    - ``dtype``: ``"bf16"`` or ``"f32"``.
    - ``resumed_at``: the number of rows from an interrupted run; all rows if the embeddings existed already.
    - ``remark``: a remark, such as the reason for starting over; else empty.

    >>> from a2store.critic import embed
    >>> report = embed("session", lambda tokens: tokens.astype("float32"))
    >>> report.num_rows, report.dim, report.pooling, report.dtype
    (29320, 16, 'none', 'bf16')
    """

    path: Path
    num_rows: int
    dim: int
    model_sha: str
    pooling: str
    dtype: Dtype
    resumed_at: int
    remark: str


def embed(
    source: str | os.PathLike[str] | StepTable | Query,
    encoder: Callable[[Any], Any],
    out: str | os.PathLike[str] | None = None,
    *,
    pooling: Pooling | None = None,
    dtype: Dtype = "bf16",
    batch_size: int = 4096,
    device: str | None = None,
    model_sha: str | None = None,
    overwrite: bool = False,
    checkpoint_secs: float = 30.0,
    progress: bool | None = None,
) -> EmbedReport:
    """Embed every step of a self-play session, of a table, or of a query's result.

    The steps of a session are mapped, never read as a whole. A query is materialized. For a table or a query, it also
    writes ``embeddings.steps.npy``, a structured array (N,) of ``run_id``, uint32, ``step_index``, uint16 or uint32 as
    in the table, and ``board``, uint64. ``StepTable.attach`` uses it to find the rows for any table of the same games,
    and rejects a table of other games.

    - ``source``: the session's folder, the table, or the query.
    - ``encoder``: a torch module, or a function of NumPy arrays; ``a2store.critic.encoder`` describes its input and
      output.
    - ``out``: the folder of the embeddings, which is created if it is missing. ``None`` = the session's folder.
    - ``pooling``: the pooling of the vectors of tokens, ``"mean"`` or ``"cls"``; ``None`` = mean.
    - ``dtype``: ``"bf16"`` = rounded to nearest, ties to even; or ``"f32"``.
    - ``batch_size``: boards per call of the encoder, at least 1.
    - ``device``: the device of a torch module; ``None`` = CUDA if it is available.
    - ``model_sha``: the encoder's name in ``embeddings.json``; ``None`` = its hash.
    - ``overwrite``: ``True`` = replace embeddings of another encoder, pooling or dtype. Equal embeddings are kept.
    - ``checkpoint_secs``: the maximum number of seconds of work that a kill can lose, besides one batch; Ctrl-C loses
      at most one batch.
    - ``progress``: ``False`` = no progress line; otherwise a line is shown if standard error is a terminal.

    Raises ``FileExistsError`` for other embeddings without ``overwrite``. Raises ``ValueError`` for a folder that is
    not a session, for another ``out`` than a session's own folder, for a table's ``out`` that is a session or missing,
    and for an invalid result of the encoder, with the rows. Raises ``BlockingIOError`` if another process is embedding
    in the folder. Raises as ``Query.materialize`` does.

    >>> from a2store.critic import embed
    >>> report = embed("session", lambda tokens: tokens.astype("float32"), dtype="f32")
    >>> np.load(report.path, mmap_mode="r").shape
    (29320, 16)
    >>> report = embed(table, lambda tokens: tokens.astype("float32"), "embeddings")
    >>> table.attach("embedding", report.path, "embeddings/embeddings.steps.npy").take([0]).embedding.shape
    (1, 16)
    """
    runner = Runner(encoder, pooling, dtype, device)
    options = _Options(dtype, batch_size, model_sha or encoder_sha(encoder), overwrite, checkpoint_secs, progress)
    if isinstance(source, str | os.PathLike):
        folder = Path(source)
        if out is not None and Path(out) != folder:
            raise ValueError(f"out: expected none for a session, whose folder gets its embeddings, found {out}")
        return _Job(folder, SessionSteps(folder), runner, options, has_keys=False).run()
    if out is None:
        raise ValueError("out: expected a folder for the embeddings of a table or a query")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "metadata.db").exists():
        raise ValueError(f"{folder}: is a session or a dataset; expected a folder for embeddings alone")
    table = source if isinstance(source, StepTable) else source.materialize(progress=progress)
    return _Job(folder, TableSteps(table), runner, options, has_keys=True).run()


@dataclass(frozen=True)
class _Options:
    dtype: Dtype
    batch_size: int
    sha: str
    overwrite: bool
    checkpoint_secs: float
    progress: bool | None

    def __post_init__(self) -> None:
        integer("batch_size", self.batch_size, 1)


class _Job:
    """The process of making embeddings in one folder."""

    def __init__(self, folder: Path, steps: Steps, runner: Runner, options: _Options, *, has_keys: bool) -> None:
        if not len(steps):
            raise ValueError(f"{folder}: expected steps to embed, found none")
        self.folder, self.steps, self.runner, self.options, self.has_keys = folder, steps, runner, options, has_keys
        self.part, self.state, self.meta_path = folder / PART_NAME, folder / STATE_NAME, folder / META_NAME
        self.final = folder / embeddings_name(options.dtype)
        # The shape of the encoder's output is known only after a call.
        tokens, _ = next(steps.parts(0, 1))
        sample, self.pooling = runner(tokens)
        self.dim, self.row_bytes = sample.shape[1], sample.nbytes
        self.header = _npy_header(sample.dtype, (len(steps), self.dim))
        self.meta: dict[str, Any] = {
            "model_sha": options.sha,
            "pooling": self.pooling,
            "D": self.dim,
            "dtype": options.dtype,
            "dtype_bits": options.dtype,
            "rows": len(steps),
        }

    def run(self) -> EmbedReport:
        with _locked(self.folder):
            done, crc, remark = self._begun()
            if self._is_described():
                done, remark = len(self.steps), "the embeddings are there; nothing was done"
            elif done == len(self.steps) and not self.part.exists() and self._is_whole():
                # An earlier run was interrupted just before it wrote embeddings.json.
                self._describe()
            else:
                if self.meta_path.exists() and not self.options.overwrite:
                    raise FileExistsError(
                        f"{self.meta_path}: belongs to another encoder, pooling, type or number of rows, or to other "
                        "steps; overwrite=True or --force replaces it"
                    )
                if done and self._part_bytes() < len(self.header) + done * self.row_bytes:
                    done, crc, remark = 0, 0, "starting over: rows of an earlier run are missing"
                self._fill(done, crc)
                self._publish()
            self.part.unlink(missing_ok=True)
            self.state.unlink(missing_ok=True)
        options = self.options
        return EmbedReport(
            self.final, len(self.steps), self.dim, options.sha, self.pooling, options.dtype, done, remark
        )

    def _begun(self) -> tuple[int, int, str]:
        """Return the number of rows of an earlier run and their checksum, if its options match; and a remark."""
        try:
            state = json.loads(self.state.read_bytes())
            done, crc = int(state["done"]), int(state["crc32"])
        except FileNotFoundError:
            return 0, 0, ""
        except (ValueError, KeyError, TypeError):
            return 0, 0, "starting over: the state of an earlier run cannot be read"
        different = [name for name in self.meta if state.get(name) != self.meta[name]]
        if different:
            return 0, 0, f"starting over: an earlier run had another {', '.join(different)}"
        if not 0 <= done <= len(self.steps) or checksum(self.steps, done) != crc:
            return 0, 0, "starting over: the steps are not those of an earlier run"
        return done, crc, ""

    def _fill(self, done: int, crc: int) -> None:
        rows, options = len(self.steps), self.options
        if not done:
            # An old state would count rows of another run.
            self.state.unlink(missing_ok=True)
            sync_folder(self.folder)
        with open(self.part, "r+b" if done else "wb") as file:
            if done:
                # The interrupted run may have written more rows than its state counts.
                file.seek(len(self.header) + done * self.row_bytes)
                file.truncate()
            else:
                file.write(self.header)
            saved = time.monotonic()
            line = Progress("embedded", rows, shown=options.progress)
            try:
                for tokens, keys in self.steps.parts(done, options.batch_size):
                    file.write(self._embedded(tokens, done))
                    done, crc = done + len(tokens), add_checksum(crc, tokens, keys)
                    line.show(done)
                    if time.monotonic() - saved >= options.checkpoint_secs:
                        self._save(file, done, crc)
                        saved = time.monotonic()
            finally:
                line.end()
                self._save(file, done, crc)

    def _embedded(self, tokens: Tokens, start: int) -> bytes:
        try:
            values, _ = self.runner(tokens)
        except ValueError as error:
            raise ValueError(f"{error}; rows {start}..{start + len(tokens)} of {self.folder}") from error
        if values.shape[1] != self.dim:
            raise ValueError(f"encoder: gave {self.dim} numbers a board, and then {values.shape[1]}")
        return values.tobytes()

    def _save(self, file: BinaryIO, done: int, crc: int) -> None:
        # Rows first, so that the state never counts rows that are not on disk.
        sync(file)
        state = {**self.meta, "done": done, "crc32": crc}
        replace(self.state, lambda out: out.write(json.dumps(state).encode()))

    def _publish(self) -> None:
        # Without embeddings.json nothing describes the files while they change.
        self.meta_path.unlink(missing_ok=True)
        sync_folder(self.folder)
        if self.has_keys:
            replace(self.folder / KEYS_NAME, self._write_keys)
        os.replace(self.part, self.final)
        for dtype in DTYPES:
            if dtype != self.options.dtype:
                (self.folder / embeddings_name(dtype)).unlink(missing_ok=True)
        sync_folder(self.folder)
        self._describe()

    def _describe(self) -> None:
        replace(self.meta_path, lambda out: out.write(json.dumps(self.meta).encode()))

    def _is_described(self) -> bool:
        try:
            described = json.loads(self.meta_path.read_bytes())
        except (FileNotFoundError, ValueError):
            return False
        # Other tools omit the number of rows.
        return {"rows": len(self.steps), **described} == self.meta and self._is_whole()

    def _is_whole(self) -> bool:
        try:
            found = np.load(self.final, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError):
            return False
        return found.shape == (len(self.steps), self.dim) and (not self.has_keys or self._has_these_keys())

    def _has_these_keys(self) -> bool:
        try:
            found = np.load(self.folder / KEYS_NAME, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError):
            return False
        if found.dtype != self.steps.key or found.shape != (len(self.steps),):
            return False
        start = 0
        for _, keys in self.steps.parts(0, 1 << 16):
            if not np.array_equal(found[start : start + len(keys)], keys):
                return False
            start += len(keys)
        return True

    def _write_keys(self, file: BinaryIO) -> None:
        file.write(_npy_header(self.steps.key, (len(self.steps),)))
        for _, keys in self.steps.parts(0, 1 << 16):
            file.write(keys.tobytes())

    def _part_bytes(self) -> int:
        try:
            return self.part.stat().st_size
        except FileNotFoundError:
            return 0


def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    buffer = io.BytesIO()
    fields = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, fields)
    return buffer.getvalue()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder itself, which leaves no file behind and ends with the process."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(f"{folder}: another process embeds there") from None
        yield
    finally:
        os.close(descriptor)
