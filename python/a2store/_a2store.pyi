"""The extension module of ``a2store``, which re-exports all public names.

Conventions:

- A board is a uint64 of sixteen 4-bit exponents, row by row; cell 0 (top left) has the highest four bits.
- Exponent 0 is an empty cell; exponent ``k`` is the tile ``2**k``.
- The largest exponent of a board is 15. A cell with a tile of 65536 also has 15, and its bit in a separate mask
  (``tile_65536_mask``, uint16) is set: bit ``i`` for cell ``i``.
- The four moves are in the order up, down, left, right (UDLR), numbered 0 to 3.
- Bits 0 to 3 of a legality mask are up, down, left and right.
- Ranges are half-open: ``0..n`` excludes ``n``. Ranges written ``0..=n`` include ``n``.

A negative integer, or one that is too large for its argument, raises ``OverflowError``. A value that is not an integer
raises ``TypeError``; NumPy integers are accepted. Sequences of integers reject bools. A failed operation on a file or
folder raises ``OSError`` or a subclass, such as ``FileNotFoundError``, with ``filename`` set. A failed allocation for
batches, tables, orders or weights raises ``MemoryError``.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import date, time, timedelta
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, final

import numpy as np
import numpy.typing as npt

__all__ = [
    "AnnotateReport",
    "Archive",
    "ArchiveError",
    "ArchiveExistsError",
    "ArrowArray",
    "ArrowSchema",
    "Batch",
    "BatchIterator",
    "ColumnError",
    "CommitInfo",
    "CompactReport",
    "ConflictError",
    "DamagedError",
    "DecodeError",
    "Error",
    "ExpireReport",
    "ExportReport",
    "Game",
    "IngestReport",
    "JsonlReport",
    "Loader",
    "MemoryLimitError",
    "ModelInfo",
    "PackBatchIterator",
    "PackIterator",
    "PackReader",
    "PackStats",
    "PackStepIterator",
    "PlayResult",
    "Player",
    "Problem",
    "Query",
    "QueryError",
    "QueryLimitError",
    "QueryRefusedError",
    "Recorder",
    "RecorderLimitError",
    "RecorderReport",
    "RecorderStats",
    "Rejected",
    "Repair",
    "RepairReport",
    "Run",
    "RunMeta",
    "SavedColumn",
    "SavedParameter",
    "SavedQuery",
    "SimulateReport",
    "SqlFunction",
    "StateMismatchError",
    "StepTable",
    "UnconfirmedError",
    "Unfinished",
    "VectorEnv",
    "VerifyReport",
    "VersionNotFoundError",
    "__version__",
    "_attach",
    "_play",
    "_run_command",
    "convert",
    "functions",
    "queries",
    "read_run",
    "recover",
    "repair",
    "simulate",
    "verify",
]

_Path: TypeAlias = PathLike[str] | str
_TableName: TypeAlias = Literal["steps", "runs", "annotations"]
_RunFormat: TypeAlias = Literal["a2t1", "a2run2"]
_ExportFormat: TypeAlias = Literal[
    "original", "a2t1", "a2run2", "a2pack", "packdat", "npy", "session", "macroxue", "jsonl"
]
_Compression: TypeAlias = Literal["none", "zstd", "lz4"]
_Phase: TypeAlias = Literal["early", "mid", "late"]
_Indices: TypeAlias = Sequence[int] | npt.NDArray[np.integer[Any]]
_Duration: TypeAlias = float | timedelta
_Param: TypeAlias = bool | int | float | str | bytes | date | time | np.generic | None

__version__: str
"""The version of the package, equal to the version of the Rust crate."""

# Errors

class Error(Exception):
    """The base class of a2store's own exceptions.

    The message is one line: the file, the place in it, what was expected and what was found. Some failures raise
    Python's own exceptions, which lack the attributes below. These are ``ValueError`` or ``TypeError`` for wrong
    arguments, ``IndexError`` for a missing row, and ``OSError`` for a failed system call. A failed allocation raises
    ``MemoryError``, and Ctrl-C raises ``KeyboardInterrupt``.
    """

    kind: (
        Literal[
            "archive_exists",
            "checksum",
            "column",
            "conflict",
            "damaged",
            "decode",
            "header",
            "memory_limit",
            "not_an_archive",
            "query",
            "query_refused",
            "query_limit",
            "schema_version",
            "state_mismatch",
            "unconfirmed",
            "version_not_found",
        ]
        | None
    )
    """A short name of the failure. It is sometimes more specific than the class."""
    path: str | None
    """The file or folder with the failure, if there is one."""
    run: int | None
    """The index of the run in a file of several runs, from 0, if the failure is in one run."""
    offset: int | None
    """The position of the failure in the input, in bytes from its start, if known."""
    step: int | None
    """The step of the run with the failure, from 0, if known."""

class ArchiveError(Error):
    """The folder cannot be used as an archive: it holds none, or a newer a2store wrote it."""

class ArchiveExistsError(ArchiveError):
    """``Archive.create`` found an archive that already exists."""

class ConflictError(ArchiveError):
    """Another writer held the archive for longer than ``wait``; a retry may succeed."""

class DamagedError(ArchiveError):
    """A file of an archive or of a table contradicts its checksum or other metadata."""

class VersionNotFoundError(ArchiveError):
    """The archive does not have the requested version, or it has expired."""

class UnconfirmedError(ArchiveError):
    """A commit was written, but the disk or the object store did not confirm it, so it may or may not exist.

    Repeat the operation to find out: it is idempotent.
    """

class DecodeError(Error):
    """Bytes are not a valid run or table.

    ``kind`` is ``"checksum"`` if only the checksum is wrong, else ``"decode"``.
    """

class QueryError(Error):
    """SQL does not parse or plan, parameters do not match it, or the query failed while it ran."""

class QueryRefusedError(QueryError):
    """SQL does more than read the given tables; the message names the rejected part and the reason."""

class QueryLimitError(QueryError):
    """A query exceeded a limit of rows, bytes, time, memory or temporary files; the message says which one."""

class ColumnError(Error):
    """A ``StepTable`` cannot hold a column: it is missing, of another type, or has a value that does not fit."""

class MemoryLimitError(Error):
    """A table would exceed its memory limit."""

class RecorderLimitError(Error):
    """A recorder reached one of its limits and accepts no more data."""

class StateMismatchError(Error):
    """A loader's state belongs to other rows or to another order."""

# Runs

def read_run(path_or_bytes: _Path | bytes) -> Run:
    """Decode one run from a file or from the bytes of a run file.

    The content determines the format, A2T1 or a2run2; the file's name does not.

    Raises ``DecodeError`` for an invalid run, with the byte offset and, inside the steps, the step. Raises ``OSError``
    if the file cannot be read.

    >>> run = a2store.read_run("runs/run-00000.a2run2")
    >>> run.boards[0], run.moves[0], run.meta.max_score
    """

@final
class Run:
    """One decoded game, as columns with one entry per step.

    Each property returns a new, writable array, and a change to it does not change the run. ``len(run)`` is the number
    of steps.
    """

    @property
    def meta(self) -> RunMeta:
        """The metadata of the run file."""

    @property
    def boards(self) -> npt.NDArray[np.uint64]:
        """The board before each move: shape (steps,), uint64."""

    @property
    def moves(self) -> npt.NDArray[np.uint8]:
        """The move chosen at each step: shape (steps,), uint8, 0 to 3 in the order UDLR."""

    @property
    def ev_values(self) -> npt.NDArray[np.float32]:
        """The engine's expected value of each move: shape (steps, 4), float32, in the order UDLR.

        An illegal move has 0.0. A step without values has four NaNs.
        """

    @property
    def ev_legal(self) -> npt.NDArray[np.bool_]:
        """The legal moves: shape (steps, 4), bool, in the order UDLR.

        The engine reports the legal moves. For a step without values they follow from the rules of the game.
        """

    @property
    def has_evs(self) -> npt.NDArray[np.bool_]:
        """Whether each step has values: shape (steps,), bool."""

    @property
    def final_board(self) -> int | None:
        """The board after the last move; every run file has one."""

    def __len__(self) -> int:
        """Return the number of steps."""

    def to_bytes(self, format: _RunFormat | None = None) -> bytes:  # noqa: A002
        """Encode the run as the bytes of a run file.

        - ``format``: the format; ``None`` = the format of the source. ``"a2t1"`` omits the values of moves.

        Raises ``ValueError`` for an unknown format. In A2T1 it also raises ``ValueError`` for an engine name of more
        than 65,535 bytes.
        """

    def save(self, path: _Path, format: _RunFormat | None = None) -> None:  # noqa: A002
        """Write the run to a file; replace an existing file.

        - ``format``: as in ``to_bytes``; the file's name does not matter.

        Raises ``ValueError`` as ``to_bytes`` does, and ``OSError``.
        """

    def verify(self) -> str | None:
        """Check the run against the rules of the game.

        Every move must be legal. Every board must be the previous one after its move, plus one spawned 2 or 4. Every
        legality mask must match the rules.

        Returns a description of the first violation, with its step, or ``None`` for a valid run.
        """

@final
class RunMeta:
    """The metadata of a run file, as the engine wrote it. It is not checked against the steps."""

    @property
    def num_steps(self) -> int:
        """The number of steps."""

    @property
    def start_unix_s(self) -> int:
        """The time at which the game began, in seconds since 1970 UTC; 0 = unknown."""

    @property
    def elapsed_s(self) -> float:
        """The duration of the game, in seconds."""

    @property
    def max_score(self) -> int:
        """The final score as the engine counts it."""

    @property
    def highest_tile(self) -> int:
        """The largest tile reached, such as 2048."""

    @property
    def engine(self) -> str | None:
        """The engine's name; ``None`` = the file has none. In a2run2, ``None`` differs from an empty name."""

    @property
    def seed(self) -> int | None:
        """The seed of the game. Run files do not store one."""

    @property
    def raw_evs(self) -> bool:
        """Whether the values are the engine's raw numbers, not normalised to [0, 1). Run files do not store this."""

    @property
    def format(self) -> _RunFormat:
        """The format from which the run was read."""

def convert(
    paths: _Path | Iterable[_Path],
    out: _Path,
    *,
    format: Literal["a2t1", "a2run2", "a2pack", "packdat", "npy", "session", "macroxue", "jsonl"],  # noqa: A002
    append: bool = False,
    by_step: bool = False,
    compact: bool = False,
    compress: _Compression = "none",
    align: int | None = None,
    shard_rows: int | None = None,
    moves: bool | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    on_error: Literal["raise", "skip"] = "raise",
) -> ExportReport:
    """Read runs of any format and write them in another, without an archive, in the order in which they are read.

    - ``paths``: run files, packs, pack.dat files, datasets, sessions, logs, or folders of them. The content determines
      the format.
    - ``out``: a folder for run files, ``"npy"``, ``"session"`` and ``"macroxue"``. For other formats, the file, or a
      folder in which a file of the usual name is created.
    - ``append``: add to an existing ``"packdat"``, ``"npy"`` or ``"macroxue"``, atomically. Several ``paths`` are
      merged, with or without it.
    - ``on_error``: the effect of a run that cannot be read, or that the format cannot hold. ``"raise"`` raises its
      error and writes nothing. ``"skip"`` writes the other runs and lists the error in the report.
    - the others: as in ``Archive.export_runs``.

    Raises ``DecodeError`` or ``OSError`` for the first run that cannot be read, ``ValueError`` for one that the format
    cannot hold, ``FileExistsError`` for a file that already exists, and ``KeyboardInterrupt`` on Ctrl-C.
    Files of several runs are written atomically. Issues warnings as ``Archive.ingest`` does.

    >>> a2store.convert(["a/pack.dat", "b/pack.dat"], "all.dat", format="packdat")
    """

@final
class PackReader:
    """A reader of the run files in an ``.a2pack``, which it maps into memory.

    Access to any run takes constant time. ``len(pack)`` is the number of runs, and ``pack[i]`` is ``pack.decode(i)``.
    ``for run in pack`` returns all runs in order and decodes ahead in parallel. A reader may be shared between threads,
    survives ``fork``, and pickles as its path. The file must not change while it is open.
    """

    @staticmethod
    def open(path: _Path, checksums: bool = True) -> PackReader:
        """Open a pack, and check its header, index and footer, but not its runs.

        Opening a pack of 100,000 runs takes milliseconds.

        - ``checksums``: whether to compare the checksum of each run that is read. ``False`` suits packs that
          ``validate`` has checked.

        Raises ``DecodeError``, whose ``kind`` is ``"header"`` or ``"checksum"``, and ``OSError``.
        """

    def __len__(self) -> int:
        """Return the number of runs, including damaged ones."""

    def __getitem__(self, index: int, /) -> Run:
        """Return ``decode(index)``."""

    def __iter__(self) -> PackIterator:
        """Return ``iter()``."""

    @property
    def path(self) -> Path:
        """The path of the file."""

    def kind(self, index: int) -> Literal["v1", "v2"]:
        """Return the format of a run according to the index: ``"v1"`` is A2T1, ``"v2"`` is a2run2.

        Raises ``IndexError``.
        """

    def decode(self, index: int) -> Run:
        """Decode and return a run. A negative index counts from the end.

        Raises ``IndexError``. Raises ``DecodeError``, with path, run and offset, for a damaged run.
        """

    def decode_batch(self, indices: Iterable[int]) -> list[Run]:
        """Decode runs in parallel and return them in the order of ``indices``.

        Raises as ``decode`` does, for the first damaged run.
        """

    def iter(self) -> PackIterator:
        """Return an iterator over all runs in order; it decodes some megabytes ahead in parallel.

        At a damaged run it raises ``DecodeError``; the next call continues with the following run.
        """

    def iter_indices(self, indices: Iterable[int]) -> PackIterator:
        """Return an iterator like ``iter``, over the runs at ``indices``, in that order.

        Raises ``IndexError`` at once for an index that is out of bounds.
        """

    def iter_batches(
        self,
        batch_size: int,
        shuffle: bool = False,
        seed: int | None = None,
        workers: int | None = None,
        *,
        indices: Iterable[int] | None = None,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> PackBatchIterator:
        """Return an iterator over lists of ``batch_size`` runs; the last list may be shorter.

        - ``shuffle``: whether to shuffle the runs. The order depends on ``seed`` alone.
        - ``seed``: in ``0..2**64``; ``None`` = a new seed each time.
        - ``workers``: threads to decode with; ``None`` = a pool shared by all readers, one thread per core.
        - ``indices``: the indices of the runs, such as one half of ``split``; ``None`` = all.
        - ``on_error``: the effect of a damaged run. ``"raise"`` raises its error; the next call continues with the
          other runs of the same list. ``"skip"`` leaves the run out of its list and adds its error to ``errors`` of
          the iterator.

        Raises ``ValueError``, and ``IndexError`` for an index that is out of bounds. The iterator raises
        ``DecodeError``.
        """

    def iter_step_batches(
        self,
        batch_size: int,
        shuffle: bool = False,
        seed: int | None = None,
        workers: int | None = None,
        *,
        indices: Sequence[int] | npt.NDArray[np.integer[Any]] | None = None,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> PackStepIterator:
        """Return an iterator over batches of steps; first it reads all steps into memory, 32 bytes each.

        A row's ``run_id`` is the index of the run in the pack. For training, ``to_table().loader(…)`` offers more.

        - ``batch_size``: rows per batch; the last batch may have fewer.
        - ``shuffle``, ``seed``: as in ``iter_batches``, over all steps.
        - ``workers``: threads to read with; ``None`` = one per core.
        - ``indices``: the steps to return, numbered through all runs that were read; ``None`` = all.
        - ``on_error``: as in ``to_table``.

        Raises ``DecodeError`` for a damaged run, and ``MemoryLimitError``. Otherwise raises as ``iter_batches`` does.
        """

    def to_table(self, *, workers: int | None = None, on_error: Literal["raise", "skip"] = "raise") -> StepTable:
        """Return the steps of all runs as a table. A row's ``run_id`` is the index of the run in the pack.

        - ``workers``, ``on_error``: as in ``StepTable.from_runs``.

        Raises as ``StepTable.from_runs`` does.
        """

    def split(
        self,
        unit: Literal["run", "step"] = "run",
        *,
        test_pct: float | None = None,
        test_size: int | None = None,
        seed: int = 0,
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """Split the indices of all runs, or of all steps, at random; return (train, test), each in ascending order.

        - ``unit``: whether to split runs or steps. ``"run"`` keeps all steps of a run on one side.
        - ``test_pct``: the test part as a fraction between 0 and 1. Its size is rounded down, but is at least one.
        - ``test_size``: the size of the test part as a number, instead of ``test_pct``.
        - ``seed``: equal seeds give equal splits.

        Raises ``ValueError``.
        """

    def to_jsonl(
        self,
        path: _Path,
        parallel: bool = True,
        by_step: bool = False,
        workers: int | None = None,
        progress: bool | None = None,
        *,
        compact: bool = False,
    ) -> JsonlReport:
        """Write the runs in order as JSON Lines, with one line per run or per step, in bounded memory.

        docs/formats.md lists the keys. A damaged run is skipped and reported. The file is written atomically and
        replaces an existing one.

        - ``parallel``: ``False`` = use one thread.
        - ``by_step``: ``True`` = one line per step.
        - ``workers``: threads; ``None`` = one per core.
        - ``progress``: ``False`` = no progress bar; otherwise a bar is shown if standard error is a terminal.
        - ``compact``: ``True`` = boards are uint64 and values are four numbers or nulls. ``False`` = both are lists, of
          cells and of objects.

        Raises ``OSError``, ``ValueError``, ``KeyboardInterrupt``.
        """

    def stats(self, *, progress: bool | None = None) -> PackStats:
        """Return statistics. They are read from the pack if it has them, else computed in parallel once.

        Raises ``KeyboardInterrupt`` on Ctrl-C.
        """

    def validate(
        self, *, sample: int | None = None, workers: int | None = None, progress: bool | None = None
    ) -> list[str]:
        """Decode every run, compare every checksum, and return a list of all problems.

        - ``sample``: check only this number of runs, evenly spread.
        - ``workers``, ``progress``: as in ``to_jsonl``.

        Raises ``KeyboardInterrupt`` on Ctrl-C.
        """

    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class PackStats:
    """Statistics of a pack. Lengths are numbers of steps; a percentile is the length at the nearest rank."""

    @property
    def count(self) -> int:
        """The number of runs."""

    @property
    def total_steps(self) -> int:
        """The number of steps of all runs."""

    @property
    def min_len(self) -> int:
        """The length of the shortest run."""

    @property
    def max_len(self) -> int:
        """The length of the longest run."""

    @property
    def mean_len(self) -> float:
        """The mean length."""

    @property
    def p50(self) -> int:
        """The median length."""

    @property
    def p90(self) -> int:
        """The 90th percentile of the lengths."""

    @property
    def p99(self) -> int:
        """The 99th percentile of the lengths."""

    @property
    def p50_len(self) -> int:
        """``p50``, under its name in older tools for packs. The next four properties are such names too."""

    @property
    def p90_len(self) -> int:
        """``p90``."""

    @property
    def p99_len(self) -> int:
        """``p99``."""

    @property
    def highest_tile_hist(self) -> dict[int, int]:
        """``highest_tiles``."""

    @property
    def engine_counts(self) -> dict[str | None, int]:
        """``engines``."""

    @property
    def unreadable(self) -> int:
        """The number of runs whose header cannot be read. ``highest_tiles`` and ``engines`` exclude them."""

    @property
    def highest_tiles(self) -> dict[int, int]:
        """The number of runs by highest tile."""

    @property
    def engines(self) -> dict[str | None, int]:
        """The number of runs by engine, in descending order of the number."""

@final
class JsonlReport:
    """A summary of what ``PackReader.to_jsonl`` wrote."""

    @property
    def num_runs(self) -> int:
        """The number of runs written."""

    @property
    def num_steps(self) -> int:
        """The number of steps of those runs."""

    @property
    def num_bytes(self) -> int:
        """The number of bytes written."""

    @property
    def errors(self) -> list[str]:
        """One message for each run that could not be read."""

@final
class PackIterator:
    """An iterator over runs of a pack."""

    def __iter__(self) -> PackIterator: ...
    def __next__(self) -> Run: ...

@final
class PackBatchIterator:
    """An iterator over lists of runs of a pack. ``len`` is the total number of lists; it never decreases.

    A list whose runs are all skipped is left out, although ``len`` counts it.
    """

    @property
    def errors(self) -> list[Rejected]:
        """The runs that were skipped so far with ``on_error="skip"``, in order."""

    def __iter__(self) -> PackBatchIterator: ...
    def __len__(self) -> int: ...
    def __next__(self) -> list[Run]: ...

@final
class PackStepIterator:
    """An iterator over batches of steps of a pack. ``len`` is the total number of batches; it never decreases."""

    @property
    def errors(self) -> list[Rejected]:
        """The runs that were skipped with ``on_error="skip"``, in order."""

    def __iter__(self) -> PackStepIterator: ...
    def __len__(self) -> int: ...
    def __next__(self) -> Batch: ...

def simulate(
    out: _Path,
    *,
    runs: int = 100,
    seed: int = 0,
    format: _RunFormat = "a2run2",  # noqa: A002
    depth: int = 1,
    engine: str | None = None,
    workers: int | None = None,
    progress: bool | None = None,
) -> SimulateReport:
    """Play seeded games with the built-in player and write each game to its own run file.

    The files depend on the options alone, not on the number of workers. The first file is ``run-00000.a2run2``, or
    ``run-00000.bin`` in A2T1. If there are more than 10,000 runs, they go into subfolders of 1,000 files.

    - ``out``: the folder, created if it is missing.
    - ``runs``: the number of games.
    - ``seed``: the seed of all games, in ``0..2**64``.
    - ``format``: the format of the files. ``"a2t1"`` omits the player's values of moves.
    - ``depth``: the search depth of the player in spawns, 0 to 3. Each level takes about fifty times longer.
    - ``engine``: the engine's name in the files; ``None`` = a name that includes the depth.
    - ``workers``: threads to play with; ``None`` = one per core.
    - ``progress``: ``False`` = no progress bar; otherwise a bar is shown if standard error is a terminal.

    Raises ``FileExistsError`` for a file that already exists; nothing is overwritten. Raises ``ValueError`` for an
    option out of range. Raises ``KeyboardInterrupt`` on Ctrl-C; the files of finished games stay.
    """

@final
class SimulateReport:
    """A summary of what ``simulate`` wrote."""

    @property
    def runs(self) -> int:
        """The number of files."""

    @property
    def num_steps(self) -> int:
        """The number of steps in the files."""

    @property
    def num_bytes(self) -> int:
        """The size of the files in bytes."""

# Recording games

@final
class Recorder:
    """A recorder of games while they are played, many at once and from any number of threads.

    Each game stays in memory until it ends. A *rotation* writes all ended games at once: to an archive, or to a session
    ``<time>_model=<tag>`` in a folder. The session is consistent at any moment. A push waits for a rotation only if
    the memory is used up.

    A crash loses unwritten games; ``journal=True`` protects ended ones. The next recorder in the same folder recovers
    what the crashed one left, lists it in ``unfinished``, and issues a ``RuntimeWarning`` about lost games. A recorder
    with a ``sink`` recovers only recordings with the same tag and archive.

    >>> with selfplay.Recorder("selfplay", tag="v1") as recorder:
    ...     game = recorder.begin(seed=7)
    ...     game.push(board, move)
    ...     game.end()
    """

    def __new__(
        cls,
        root: _Path,
        *,
        tag: str,
        engine: str | None = None,
        model_hash: str | None = None,
        config_hash: str | None = None,
        meta: dict[str, Any] | None = None,
        sink: Archive | None = None,
        max_games: int | None = None,
        max_steps: int | None = None,
        max_ram_mb: int | None = None,
        max_wall_ms: int | None = None,
        max_disk_mb: int | None = None,
        sample_rate: int = 1,
        rotate_steps: int = 10_000_000,
        rotate_secs: float | None = None,
        journal: bool = False,
        moves: bool = True,
    ) -> Recorder:
        """Start a recording.

        - ``root``: the folder of sessions, created if it is missing. With ``sink``, the journal gets its own folder in
          it.
        - ``tag``: the model's name; letters, digits and ``._+-`` are allowed.
        - ``engine``, ``model_hash``, ``config_hash``, ``meta``: further metadata of the session. ``meta`` maps keys to
          JSON values.
        - ``sink``: an archive that stores the games, with values and final boards, instead of a session. ``refresh``
          shows them. Every ended game becomes a run, even if it equals another: ``session`` and ``source_id`` identify
          it. A rotation needs the memory of an ingest in addition to ``max_ram_mb``.
        - ``max_games``, ``max_steps``, ``max_wall_ms``: limits for new games. Once a limit is reached, no game can
          begin, but running games continue, so a session holds whole games. ``max_steps`` counts kept steps.
        - ``max_ram_mb``: memory for unwritten steps in millions of bytes, at least 16. Pushes wait if it is used up.
          ``None`` = half of the available memory.
        - ``max_disk_mb``: disk space in millions of bytes. A game that would exceed it is rejected when it ends.
        - ``sample_rate``: keep one step out of this many, starting with the first.
        - ``rotate_steps``, ``rotate_secs``: rotate after this many unwritten steps, or after this many seconds. A
          rotation also starts when two fifths of the memory are used.
        - ``journal``: whether a game is durable as soon as ``end`` returns. Each game is then written twice.
        - ``moves``: whether a session keeps the moves. If so, every step needs a move. With ``False``, an existing Rust
          reader of sessions can read it, but ``ingest`` has to derive the moves from the boards. Some stay unknown.

        Raises ``ValueError`` for an option out of range, and ``OSError``. Raises ``ConflictError`` if another recorder
        writes to the archive under the same tag.
        """

    def begin(self, seed: int | None = None) -> Game:
        """Begin a game.

        Raises ``RecorderLimitError`` if a limit is reached (see ``is_full``). Raises ``ValueError`` if the recorder is
        closed, and for the seed 2^64 - 1, which stands for an unknown seed in sessions. Raises ``OSError`` once after a
        failed rotation. Such a rotation loses nothing and is retried.
        """

    def rotate(self) -> int:
        """Write all ended games, wait until they are durable, and return the number of durable games.

        These are the games with an id below this number.
        """

    def close(self) -> RecorderReport:
        """Write the remaining ended games and end the recording.

        Running games are lost. Further calls are allowed.
        """

    @property
    def is_full(self) -> str | None:
        """The limit that was reached: ``"games"``, ``"steps"``, ``"ram"``, ``"wall"`` or ``"disk"``; else ``None``."""

    @property
    def folder(self) -> Path:
        """The folder of the session or, with a ``sink``, of the journal."""

    @property
    def unfinished(self) -> list[Unfinished]:
        """The unfinished recordings that this recorder found at its start, with the result of their recovery."""

    def stats(self) -> RecorderStats:
        """Return the current statistics."""

    def __enter__(self) -> Recorder: ...
    def __exit__(self, *_exception: object) -> None:
        """Close the recorder."""

@final
class Game:
    """A game that is being recorded. One thread at a time may use it.

    A game that is deleted before its end is abandoned.
    """

    def push(self, board: int | Sequence[int], move: int | None = None, ev: Sequence[float] | None = None) -> None:
        """Add a step.

        - ``board``: the board before the move: a packed board, or its sixteen exponents.
        - ``move``: 0 to 3 in the order UDLR.
        - ``ev``: the values of the four moves; four NaNs mean no values. Values of illegal moves are ignored. An
          archive keeps the values; a session does not.

        Raises ``ValueError`` for an invalid board or move, and for a missing move if moves are kept. Raises
        ``RecorderLimitError`` if running games alone use all memory.
        """

    def push_batch(
        self, boards: npt.NDArray[Any], moves: npt.NDArray[Any] | None = None, evs: npt.NDArray[Any] | None = None
    ) -> None:
        """Add steps. If one of them is invalid, none is added.

        - ``boards``: shape (n,) uint64, or shape (n, 16) exponents.
        - ``moves``: shape (n,), integers.
        - ``evs``: shape (n, 4), float32.

        Raises as ``push`` does.
        """

    def end(self, final_board: int | Sequence[int] | None = None) -> int:
        """End the game and return its id in the session.

        - ``final_board``: the board after the last move, if known.

        The game is not kept if this raises ``RecorderLimitError`` (it would exceed ``max_disk_mb``) or ``ValueError``
        (the recorder is closed). It is kept if this raises ``OSError`` (the journal cannot be written), but it is
        durable only after the next rotation.
        """

    def abandon(self) -> None:
        """Abandon the game. None of its steps is kept."""

    def __len__(self) -> int:
        """Return the number of pushed steps, including steps that are not kept."""

@final
class RecorderStats:
    """The current statistics of a recorder."""

    @property
    def begun(self) -> int:
        """The number of games that began."""

    @property
    def live(self) -> int:
        """The number of running games."""

    @property
    def ended(self) -> int:
        """The number of games that ended and are kept."""

    @property
    def abandoned(self) -> int:
        """The number of games that were abandoned, or rejected at their end."""

    @property
    def refused(self) -> int:
        """The number of games that were rejected at their end."""

    @property
    def steps(self) -> int:
        """The number of kept steps in ended games."""

    @property
    def durable(self) -> int:
        """The number of durable games: the games with an id below this number."""

    @property
    def rotations(self) -> int:
        """The number of rotations so far."""

    @property
    def disk_bytes(self) -> int:
        """The bytes on disk, including those that the next rotation may need temporarily."""

    @property
    def ram_bytes(self) -> int:
        """The bytes of steps in memory."""

    @property
    def failure(self) -> str | None:
        """The error of the last rotation, if it failed; the rotation is retried."""

@final
class RecorderReport:
    """A summary of a recording."""

    @property
    def folder(self) -> Path:
        """The folder of the session or, with a ``sink``, of the journal."""

    @property
    def runs(self) -> int:
        """The number of written games."""

    @property
    def steps(self) -> int:
        """The number of kept steps in those games."""

    @property
    def rotations(self) -> int:
        """The number of rotations."""

    @property
    def abandoned(self) -> int:
        """The number of games that were abandoned, or rejected at their end."""

    @property
    def refused(self) -> int:
        """The number of games that were rejected at their end."""

    @property
    def live(self) -> int:
        """The number of games that were running at the end and are lost."""

    @property
    def num_bytes(self) -> int:
        """The number of bytes on disk."""

    @property
    def elapsed_s(self) -> float:
        """The duration of the recording, in seconds."""

@final
class Unfinished:
    """A recording that was not closed by its recorder, with the result of its recovery."""

    @property
    def folder(self) -> Path:
        """The folder of the recording."""

    @property
    def runs(self) -> int:
        """The number of written games."""

    @property
    def from_journal(self) -> int:
        """The number of those games that were recovered from the journal."""

    @property
    def lost_runs(self) -> int:
        """The number of ended games that are lost. After a power failure, the true number may be higher."""

    @property
    def lost_steps(self) -> int:
        """The number of steps lost with those games, for a session."""

    @property
    def live(self) -> int:
        """The number of games that were running and are lost."""

    @property
    def error(self) -> str | None:
        """The reason why the recovery failed, or ``None``."""

def recover(folder: _Path, sink: Archive | None = None) -> Unfinished:
    """Recover the session of a crashed recorder and return the result.

    It does nothing if the session is complete.

    - ``folder``: the session or, with ``sink``, the folder of the journal.
    - ``sink``: the archive that the recording writes to, if any.

    Raises ``ConflictError`` if a recorder still uses the folder, ``OSError``, and ``Error`` for damaged files.
    """

# Games played with a policy

@final
class Player:
    """The built-in player, a policy for ``a2store.selfplay.play``.

    Called with tokens of shape (B, 16), it returns moves of shape (B,), uint8. A move is 0 if no move is legal.
    """

    def __new__(cls, depth: int = 1, *, workers: int | None = None) -> Player:
        """Create a player.

        - ``depth``: the search depth in spawns, 0 to 3. Each level takes about fifty times longer.
        - ``workers``: threads to play with; ``None`` = one per core.

        Raises ``ValueError`` for a depth out of range.
        """

    @property
    def depth(self) -> int:
        """The search depth in spawns."""

    @property
    def workers(self) -> int | None:
        """The number of threads, or ``None`` for one per core."""

    def __call__(self, tokens: npt.NDArray[Any], legal: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.uint8]:
        """Return the player's moves for boards: shape (B,), uint8."""

@final
class PlayResult:
    """The result of ``a2store.selfplay.play``.

    The arrays have one row per finished game, in the order of the games' numbers.
    """

    def __len__(self) -> int:
        """Return the number of finished games."""

    @property
    def games(self) -> npt.NDArray[np.uint64]:
        """The numbers of the games: ``0..len`` unless ``stopped``."""

    @property
    def scores(self) -> npt.NDArray[np.int64]:
        """The score of each game: the sum over its merges.

        The ``max_score`` of an archive is derived from the final board. It is higher by 4 for each spawned 4.
        """

    @property
    def highest_tiles(self) -> npt.NDArray[np.int64]:
        """The largest tile of each final board, such as 2048 (not its exponent 11)."""

    @property
    def num_steps(self) -> npt.NDArray[np.int64]:
        """The number of steps of each game."""

    @property
    def final_boards(self) -> npt.NDArray[np.uint64]:
        """The board after the last step of each game."""

    @property
    def terminated(self) -> npt.NDArray[np.bool_]:
        """Whether the game ended without a legal move; false for a game that was truncated at ``max_steps``."""

    @property
    def total_steps(self) -> int:
        """The number of steps made, including the steps of abandoned games."""

    @property
    def seconds(self) -> float:
        """The duration in seconds, including the policy's time."""

    @property
    def steps_per_second(self) -> float:
        """``total_steps / seconds``."""

    @property
    def stopped(self) -> str | None:
        """The recorder's limit that stopped play early, such as ``"games"`` or ``"disk"``; else ``None``."""

@final
class VectorEnv:
    """A vector of games, one per slot, in which the caller chooses the moves.

    A game depends on the seed, its number and the moves made in it. A slot whose game is over ignores moves until
    ``restart`` begins the next game in it. All returned arrays are copies.

    >>> env = VectorEnv(1024, seed=1)
    >>> while True:
    ...     rewards, over = env.step(policy(env.tokens(), env.legal()))
    ...     env.restart()
    """

    def __new__(cls, num_envs: int, seed: int = 0) -> VectorEnv:
        """Begin the first games of a seed.

        Raises ``ValueError`` unless ``num_envs`` is in ``1..=2**24``.
        """

    def __len__(self) -> int:
        """Return the number of slots."""

    @property
    def num_envs(self) -> int:
        """The number of slots."""

    @property
    def seed(self) -> int:
        """The seed of all games."""

    def tokens(self, dtype: Literal["uint8", "int64"] = "uint8") -> npt.NDArray[Any]:
        """Return the exponents of the boards, row by row: shape (n, 16)."""

    def legal(self) -> npt.NDArray[np.bool_]:
        """Return whether up, down, left and right are legal: shape (n, 4), bool. All are false if the game is over."""

    @property
    def boards(self) -> npt.NDArray[np.uint64]:
        """The boards: shape (n,), uint64."""

    @property
    def over(self) -> npt.NDArray[np.bool_]:
        """Whether the game in each slot is over: shape (n,), bool."""

    @property
    def games(self) -> npt.NDArray[np.uint64]:
        """The number of the game in each slot: shape (n,), uint64. Games are numbered in the order of their start."""

    @property
    def scores(self) -> npt.NDArray[np.int64]:
        """The score of each game so far, the sum over its merges: shape (n,), int64."""

    @property
    def num_steps(self) -> npt.NDArray[np.int64]:
        """The number of steps of each game so far: shape (n,), int64."""

    def step(
        self, moves: _Indices, *, illegal: Literal["raise", "ignore"] = "raise"
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
        """Make a move in each game that is not over; return (rewards, over).

        The rewards are the scores of the moves, and ``over`` says which games are now over. Both have shape (n,).

        - ``moves``: shape (n,), integers, 0 to 3.
        - ``illegal``: the effect of a move that does not change its board. ``"raise"`` raises before any game is
          stepped; ``"ignore"`` ignores the move.

        Raises ``ValueError`` for an illegal move, with its row and board, and for a wrong number of moves. Raises
        ``TypeError`` unless the moves are one-dimensional integers.
        """

    def restart(self, mask: npt.NDArray[np.bool_] | None = None) -> int:
        """Begin the next games in some slots and return their number.

        - ``mask``: shape (n,), bool: true for the slots to restart, even if their game is not over. ``None`` = the
          slots whose game is over.

        Raises ``ValueError`` for a mask of another shape or type.
        """

    def reset(self, seed: int | None = None) -> None:
        """Begin the first games of a seed again; ``None`` = the current seed."""

def _play(
    policy: Any,
    num_games: int,
    batch_size: int,
    seed: int,
    recorder: Recorder | None,
    tokens: str,
    max_steps: int | None,
    temperature: float,
    progress: bool | None,
) -> PlayResult:
    """Play games; the implementation of ``a2store.selfplay.play``."""

# Archive

@final
class Archive:
    """A growing collection of runs in a folder or an object store, seen at one version.

    The folder holds Parquet files, which any tool may read, and a log of commits, which says which files are valid.
    Commits of other writers become visible with ``refresh``. ``ingest`` moves to the version that it commits. To get an
    archive, call ``Archive.create`` or ``Archive.open``. Threads may share it.

    >>> archive = a2store.Archive.create("games.a2")
    >>> archive.ingest("runs/").accepted
    >>> archive.sql("SELECT count(*) FROM steps WHERE phase = 'late'")
    """

    @classmethod
    def create(cls, path: _Path, *, phases: dict[str, int] | None = None) -> Self:
        """Create an empty archive, at version 1.

        - ``path``: the archive's folder, created if it is missing, or a URL: ``s3://bucket/games.a2``, ``gs://...``,
          ``az://...``. Credentials and endpoints come from the usual environment variables of each service, such as
          ``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, ``GOOGLE_APPLICATION_CREDENTIALS`` and
          ``AZURE_STORAGE_ACCOUNT_NAME``.
        - ``phases``: the smallest tiles of the phases ``"mid"`` and ``"late"``. The largest tile on the board
          determines the phase of a step; below ``"mid"`` it is ``early``. The defaults are ``{"mid": 1024, "late":
          4096}``. The phases of an archive never change.

        Raises ``ArchiveExistsError`` if there already is an archive. Raises ``ValueError`` unless both phases are tiles
        (2, 4, ..., 32768) and mid is below late. Also raises ``OSError``, and ``KeyboardInterrupt`` on Ctrl-C.

        >>> archive = a2store.Archive.create("games.a2", phases={"mid": 2048, "late": 8192})
        """

    @classmethod
    def open(cls, path: _Path, *, version: int | None = None, checksums: bool | None = None) -> Self:
        """Open an archive.

        - ``path``: the archive's folder or URL, as in ``create``.
        - ``version``: the version to open, from 1 (the empty archive); ``None`` = the newest.
        - ``checksums``: whether queries and exports verify the checksum of each data file when this process first reads
          it. If off, a flipped bit in a data file can change an answer. ``None`` = on for a folder and off for a URL,
          because the check downloads whole files.

        Raises ``FileNotFoundError`` if the folder does not exist, ``ArchiveError`` if it holds no archive or a newer
        a2store wrote it, and ``VersionNotFoundError``. Raises ``DamagedError`` if a commit contradicts its checksum or
        the previous commit, and ``KeyboardInterrupt`` on Ctrl-C.
        """

    def refresh(self) -> None:
        """Move to the newest version, even from an older version that was opened on purpose.

        If another thread moves to a later version at the same time, that version stays. Raises as ``open`` does; the
        version then does not change.
        """

    def ingest(
        self,
        paths: _Path | Iterable[_Path],
        *,
        workers: int | None = None,
        progress: bool | None = None,
        on_error: Literal["report", "raise"] = "report",
        wait: _Duration | None = None,
    ) -> IngestReport:
        """Add the runs of files and folders, including all subfolders, as one commit.

        The content determines a file's format: run files, packs, pack.dat files, NumPy datasets, self-play sessions,
        and Macroxue logs and packs. docs/formats.md lists what each format stores. In folders, files of unknown content
        are skipped, and so are files whose names begin with a dot or end in ``.tmp``. Files named ``*.a2run2``,
        ``*.bin`` and ``*.a2t1`` must hold runs.

        A run whose content is already in the archive is skipped. Run ids follow the order of the paths and, in folders,
        of the names. If nothing is new, nothing is committed. In either case the archive moves to the newest version.
        An interrupted ingest can be repeated and ends in the same archive. Memory does not depend on the size of the
        input. It takes about 100 MB, about 50 MB per worker, and up to 34 bytes per run in the archive.

        - ``paths``: a file or folder, or several.
        - ``workers``: threads to decode and encode with, 1 to 1024; ``None`` = one per core.
        - ``progress``: ``False`` = no progress bar; otherwise a bar is shown if standard error is a terminal.
        - ``on_error``: the effect of a file that cannot be read or decoded. ``"report"`` lists it in the report and
          continues; ``"raise"`` raises its error and adds nothing.
        - ``wait``: how long to wait while another process on this machine writes to the archive, in seconds or as a
          ``timedelta``; ``None`` = ten minutes.

        Raises ``FileNotFoundError`` for a missing path, ``ConflictError`` if another writer holds the archive for
        longer than ``wait``, and ``KeyboardInterrupt`` on Ctrl-C. With ``on_error="raise"`` it also raises
        ``DecodeError`` or ``OSError`` for the first bad file. The archive is then unchanged. After ``UnconfirmedError``
        the commit may or may not exist; repeat the call to find out. Issues a ``UserWarning`` for a problem that does
        not affect runs, such as an outdated ``manifest.json`` of a dataset.

        >>> report = archive.ingest(["runs/", "more/run-00007.a2run2"])
        >>> for rejected in report.errors:
        ...     print(rejected.path, rejected.message)
        """

    def annotate(
        self,
        model: str,
        annotations: _Path | object,
        *,
        source: _Path | None = None,
        replace: bool = False,
        partial: bool = False,
        dry_run: bool = False,
        progress: bool | None = None,
        wait: _Duration | None = None,
    ) -> AnnotateReport:
        """Add a model's predictions for steps of the archive, in a new commit.

        The table ``annotations`` in SQL then has a row per model and annotated step. Every annotated step must exist in
        the archive. Its legal moves, and the move and the board if they are known, must equal those of ``steps``.

        - ``model``: the value of the column ``model``, 1 to 60 bytes.
        - ``annotations``: a folder in the layout that docs/formats.md describes, a table with the Arrow C interface,
          or a NumPy structured array, shape (n,). A folder numbers the runs as its pool does. Each run is found in the
          archive by the seed, steps, score and highest tile in the folder's ``metadata.db``. A table or array has the
          columns ``run_id`` and ``step_index`` of the archive, and any other columns of ``annotations`` except
          ``model``. There, ``policy_p1``, ``policy_logp`` and ``policy_hard`` may have 4 numbers per row. Rows may be
          in any order. A column ``board`` is compared with ``steps`` and not stored.
        - ``source``: for folders, the path that the runs were ingested from, or a folder above it; ``None`` = any.
        - ``replace``: ``True`` = replaces the model's annotations. Otherwise, a model that has annotations can get
          more of them only for later runs.
        - ``partial``: ``True`` = allows annotated runs to have steps without annotations.
        - ``dry_run``: ``True`` = only checks the annotations.
        - ``progress``, ``wait``: as in ``ingest``.

        Raises ``DecodeError`` for a folder, and ``ValueError`` or ``ColumnError`` for a table, that is damaged or
        contradicts the archive. Otherwise raises as ``ingest`` does. The archive is then unchanged.

        >>> archive.annotate("model-v1", "predictions/").num_rows
        """

    def drop_annotations(self, model: str, *, wait: _Duration | None = None) -> ModelInfo:
        """Drop a model's annotations, in a new commit. Older versions keep them until ``expire``.

        - ``wait``: as in ``ingest``.

        Raises ``ValueError`` for a model without annotations. Otherwise raises as ``ingest`` does.
        """

    def annotations(self) -> list[ModelInfo]:
        """Return the models with annotations, in the order of their names."""

    def compact(
        self,
        *,
        file_rows: int | None = None,
        workers: int | None = None,
        progress: bool | None = None,
        wait: _Duration | None = None,
    ) -> CompactReport:
        """Rewrite small data files as full-size ones, in a new commit.

        Rows, their order and their ids stay the same. It compares the new files with the old ones row by row before it
        commits them. Readers and writers may work at the same time. No file is removed: older versions keep their files
        until ``expire``.

        - ``file_rows``: the number of rows of a full file; ``None`` = 16,777,216. Files that are at least half full
          stay unchanged.
        - ``workers``, ``progress``, ``wait``: as in ``ingest``.

        Raises ``DamagedError`` for a file that cannot be read back. Otherwise raises as ``ingest`` does. The archive is
        then unchanged.
        """

    def expire(
        self,
        *,
        older_than: _Duration | None = None,
        grace: _Duration | None = None,
        dry_run: bool = False,
        wait: _Duration | None = None,
    ) -> ExpireReport:
        """Expire versions that were replaced long ago, and remove the data files that no kept version references.

        Commits are kept, so ``history`` lists all of them. The newest version is always kept. A reader that still uses
        an expired version will find its files missing.

        - ``older_than``: expire versions that were replaced longer ago than this, in seconds or as a ``timedelta``;
          ``None`` = 30 days.
        - ``grace``: how long an unreferenced file is kept after its last change; ``None`` = one day. Such a file may be
          the leftover of an interrupted writer, or belong to another machine that has not committed yet. While files
          that a repair set aside (``_log/*.damaged``) exist, unreferenced files are always kept.
        - ``dry_run``: ``True`` = only report what would be removed.
        - ``wait``: as in ``ingest``.

        Raises ``ValueError`` for a negative duration. Otherwise raises as ``ingest`` does.

        >>> archive.expire(older_than=timedelta(days=7)).num_bytes
        """

    def verify(self, *, deep: bool = False, workers: int | None = None, progress: bool | None = None) -> VerifyReport:
        """Check the archive for problems, at its newest version and all other kept versions.

        Equivalent to ``a2store.verify(archive.location, ...)``.
        """

    @property
    def location(self) -> str:
        """The archive's absolute folder, or its URL."""

    @property
    def path(self) -> Path:
        """The archive's absolute folder.

        Raises ``ValueError`` for an archive on an object store; use ``location`` there.
        """

    @property
    def version(self) -> int:
        """The version of this view; the empty archive is version 1."""

    @property
    def num_runs(self) -> int:
        """The number of runs at this version."""

    @property
    def num_steps(self) -> int:
        """The number of steps at this version."""

    @property
    def phases(self) -> dict[str, int]:
        """The smallest tiles of the phases ``"mid"`` and ``"late"``; see ``create``."""

    def schema(self, table: _TableName = "steps") -> ArrowSchema:
        """Return the schema of a table, which is the same at every version.

        Raises ``ValueError`` for an unknown table.

        >>> pyarrow.schema(archive.schema("runs"))
        """

    def history(self) -> list[CommitInfo]:
        """Return the commits up to this version, newest first, including those of expired versions."""

    def files(self, table: _TableName = "steps") -> list[str]:
        """Return the absolute paths, or URLs, of a table's Parquet files at this version, in order of their run ids.

        The files never change, and together they hold exactly the table's rows. For an empty table the list is empty.

        Raises ``ValueError`` for an unknown table.

        >>> duckdb.read_parquet(archive.files("steps")).aggregate("count(*)")
        """

    def sql(
        self,
        query: str,
        params: dict[str, Any] | Sequence[_Param] | None = None,
        *,
        tables: dict[str, Any] | None = None,
        memory_limit: int | None = None,
        spill_limit: int | None = None,
        spill_folder: _Path | None = None,
        row_limit: int | None = None,
        byte_limit: int | None = None,
        time_limit: float | None = None,
    ) -> Query:
        """Plan a query over the tables ``runs`` and ``steps`` at this version.

        The dialect is DataFusion's, with additional functions over boards (see ``a2store.functions()``). One SELECT,
        WITH, VALUES or EXPLAIN statement is allowed, and it can read only these tables and ``tables``. docs/sql.md
        lists what else is rejected. This call plans the query, so mistakes raise at once. The query runs when its
        result is read.

        - ``query``: the SQL text, with parameters as ``$name``, or as ``$1``, ``$2``, ....
        - ``params``: the values of all parameters: a dict for names, else a sequence. Values are bound, never
          interpolated into the text. They may be None, bool, int in ``-2**63..2**64``, float, str, bytes, NumPy scalars
          of these, dates and times.
        - ``tables``: your own tables by name, for joins. A value is an object with the Arrow C interface (pyarrow,
          polars, pandas, DuckDB, another query) or a NumPy structured array, shape (n,), which are kept in memory, or
          the path of a Parquet file.
        - ``memory_limit``: bytes that the query's operators may hold at once, at least 32 MiB. Sorts and groups spill
          to temporary files before they fail. ``None`` = half of the machine's memory, shared by all queries.
        - ``spill_limit``: the maximum number of bytes of temporary files; ``None`` = 64 GiB.
        - ``spill_folder``: the folder of temporary files. Each query removes its own subfolder.
        - ``row_limit``, ``byte_limit``: the maximum number of rows and bytes in the result.
        - ``time_limit``: the maximum number of seconds from the start of the result to its end.

        Raises ``QueryRefusedError`` for a statement that is not allowed. Raises ``QueryError`` for text that does not
        parse or plan, and for parameters that do not match it. Raises ``TypeError`` for a value or table of another
        type, and ``ValueError`` for an invalid name or limit. Raises ``OSError`` and ``DecodeError`` for files.
        Exceeding a limit raises ``QueryLimitError`` while the result is read.

        >>> archive.sql("SELECT * FROM steps WHERE max_score >= $min AND phase = 'late'", {"min": 20_000})
        >>> archive.sql("SELECT run_id, max_score FROM runs ORDER BY max_score DESC LIMIT $1", [10])
        >>> archive.sql("SELECT * FROM steps JOIN labels USING (run_id)", tables={"labels": labels})
        """

    def query(
        self,
        name: str,
        /,
        *,
        folder: _Path | None = None,
        tables: dict[str, Any] | None = None,
        memory_limit: int | None = None,
        spill_limit: int | None = None,
        spill_folder: _Path | None = None,
        row_limit: int | None = None,
        byte_limit: int | None = None,
        time_limit: float | None = None,
        **params: _Param,
    ) -> Query:
        """Plan a named query from ``a2store.queries()``.

        - ``name``: the query's name.
        - ``folder``: a folder of your own ``.sql`` files to use instead of the built-in queries.
        - ``tables``, ``memory_limit``, ``spill_limit``, ``spill_folder``, ``row_limit``, ``byte_limit``,
          ``time_limit``: as in ``sql``. No query parameter has one of these names.
        - ``params``: the values of the query's parameters; omitted ones have their defaults.

        Raises ``ValueError`` for an unknown name, listing the known ones, and for an invalid limit. Raises
        ``QueryError`` for a parameter that is missing, unknown or of another type. Raises ``DecodeError`` for a file
        with an invalid header. Exceeding a limit raises ``QueryLimitError`` while the result is read.

        >>> archive.query("high_score", min_score=20_000).materialize()
        >>> archive.query("unique_positions", memory_limit=512 << 20).to_arrow()
        """

    def export_runs(
        self,
        query: str,
        out: _Path,
        *,
        format: _ExportFormat = "original",  # noqa: A002
        params: dict[str, Any] | Iterable[_Param] | None = None,
        by_step: bool = False,
        compact: bool = False,
        compress: _Compression = "none",
        align: int | None = None,
        shard_rows: int | None = None,
        moves: bool | None = None,
        append: bool = False,
        workers: int | None = None,
        progress: bool | None = None,
    ) -> ExportReport:
        """Write the runs that a query selects, in the order of their ids, as files of any format.

        ``"original"`` restores the exact bytes of ingested run files, or the Macroxue pack that all runs came from. It
        rejects a pack of which the archive lacks a run, unless the query selects only some of its runs. Run files are
        named by id, as in ``out/run-00000042.a2run2``; if there are more than 1,000, they go into subfolders
        of 1,000 files. Data that a format cannot store is omitted, as docs/formats.md lists. If the format requires
        whole games, a run without a final board is rejected. No file is overwritten.

        - ``query``: SQL whose result has a column ``run_id``.
        - ``out``: a folder for run files, ``"npy"``, ``"session"`` and ``"macroxue"``. For other formats, the file, or
          a folder in which a file of the usual name is created.
        - ``format``: ``"original"``, ``"a2t1"``, ``"a2run2"``, ``"a2pack"``, ``"packdat"``, ``"npy"``,
          ``"session"``, ``"macroxue"`` or ``"jsonl"``.
        - ``params``: as in ``sql``.
        - ``by_step``: for ``"jsonl"``: ``True`` = one line per step.
        - ``compact``: for ``"jsonl"``: ``True`` = flat values that DuckDB reads without conversion.
        - ``compress``: for ``"a2pack"``: the compression of runs.
        - ``align``: for ``"a2pack"``: the alignment of runs in bytes, 1 to 1,048,576.
        - ``shard_rows``: for ``"npy"``, ``"session"`` and ``"macroxue"``: rows per file; ``None`` = one file, or the
          files of the Macroxue pack that all runs came from. ``"original"`` rejects it.
        - ``moves``: for ``"session"``: whether the rows have moves, which an existing Rust reader of sessions rejects.
          ``None`` = only if all runs come from one session with moves.
        - ``append``: for ``"packdat"``, ``"npy"`` and ``"macroxue"``: ``True`` = add to existing files.
        - ``workers``: threads; ``None`` = one per core.
        - ``progress``: ``False`` = no progress bar; otherwise a bar is shown if standard error is a terminal.

        Before it writes anything, it raises ``QueryError``, or ``ValueError`` for a query without ``run_id`` or a run
        that the format cannot store. Raises ``FileExistsError``, ``DamagedError``, and ``KeyboardInterrupt`` on Ctrl-C.

        >>> archive.export_runs("SELECT run_id FROM runs WHERE max_score >= 50000", "best.a2pack", format="a2pack")
        """

@final
class ExportReport:
    """A summary of an export."""

    @property
    def path(self) -> Path:
        """The written file or folder."""

    @property
    def runs(self) -> int:
        """The number of written runs."""

    @property
    def num_steps(self) -> int:
        """The number of steps of those runs."""

    @property
    def num_files(self) -> int:
        """The number of run files; 1 for formats with several runs per file."""

    @property
    def errors(self) -> list[Rejected]:
        """The runs and files that ``convert`` skipped with ``on_error="skip"``, in order."""

@final
class AnnotateReport:
    """A summary of an import of annotations."""

    @property
    def model(self) -> str:
        """The model."""

    @property
    def num_runs(self) -> int:
        """The number of annotated runs."""

    @property
    def num_rows(self) -> int:
        """The number of annotated steps."""

    @property
    def missing_steps(self) -> int:
        """The number of steps of these runs without annotations."""

    @property
    def replaced_rows(self) -> int:
        """The number of rows that were replaced."""

@final
class ModelInfo:
    """The annotations of a model."""

    @property
    def model(self) -> str:
        """The model."""

    @property
    def num_rows(self) -> int:
        """The number of annotated steps."""

    @property
    def num_files(self) -> int:
        """The number of data files."""

    @property
    def num_bytes(self) -> int:
        """The size of the data files, in bytes."""

    @property
    def first_run_id(self) -> int:
        """The first annotated run."""

    @property
    def last_run_id(self) -> int:
        """The last annotated run."""

@final
class CommitInfo:
    """One commit in an archive's history."""

    @property
    def version(self) -> int:
        """The version that the commit created."""

    @property
    def time(self) -> str:
        """The time of the commit in UTC, as in RFC 3339: ``2026-01-31T12:00:00.000Z``."""

    @property
    def operation(self) -> Literal["create", "ingest", "compact", "expire", "repair", "annotate"]:
        """The operation that made the commit."""

    @property
    def txn(self) -> str:
        """The unique id of the commit: 32 hexadecimal digits."""

    @property
    def added_runs(self) -> int:
        """The number of added runs. Their ids are ``next_run_id - added_runs .. next_run_id``."""

    @property
    def added_steps(self) -> int:
        """The number of added steps."""

    @property
    def next_run_id(self) -> int:
        """The first run id that was unused after the commit."""

    @property
    def added_files(self) -> int:
        """The number of added data files."""

    @property
    def removed_files(self) -> int:
        """The number of data files that the commit removed from the archive's list."""

    @property
    def num_runs(self) -> int:
        """The number of runs in the archive after the commit."""

    @property
    def num_steps(self) -> int:
        """The number of steps in the archive after the commit."""

@final
class IngestReport:
    """A summary of an ingest."""

    @property
    def accepted(self) -> int:
        """The number of added runs."""

    @property
    def duplicates(self) -> int:
        """The number of skipped runs, which were already in the archive or occurred earlier in the input."""

    @property
    def rejected(self) -> int:
        """The number of runs, and of whole files, that could not be read. Each is listed in ``errors``."""

    @property
    def ignored(self) -> int:
        """The number of files in folders that were skipped because their content is unknown."""

    @property
    def num_steps(self) -> int:
        """The number of added steps."""

    @property
    def num_bytes(self) -> int:
        """The size of the input files, in bytes."""

    @property
    def errors(self) -> list[Rejected]:
        """The runs and files that could not be read or decoded, in the order of the paths."""

@final
class Rejected:
    """A run, or a whole file, that an ingest rejected or ``on_error="skip"`` skipped, with the reason."""

    @property
    def path(self) -> str:
        """The file, or the folder of a dataset or session."""

    @property
    def offset(self) -> int | None:
        """The position of the failure in the file, in bytes from its start, if known."""

    @property
    def run(self) -> int | None:
        """The index of the rejected run in its file, from 0; ``None`` = the whole file, or the only run in it."""

    @property
    def step(self) -> int | None:
        """The step of the run with the failure, from 0, if known."""

    @property
    def kind(self) -> str:
        """A short name of the failure: ``"decode"``, ``"checksum"``, ``"header"`` or ``"io"``."""

    @property
    def message(self) -> str:
        """The failure and its place, in one line, without the path."""

@final
class CompactReport:
    """A summary of a compaction."""

    @property
    def files_before(self) -> int:
        """The number of data files before the compaction."""

    @property
    def files_after(self) -> int:
        """The number of data files after the compaction."""

    @property
    def bytes_before(self) -> int:
        """The size of the data files before the compaction, in bytes."""

    @property
    def bytes_after(self) -> int:
        """The size of the data files after the compaction, in bytes."""

    @property
    def num_rows(self) -> int:
        """The number of rewritten rows in both tables."""

@final
class ExpireReport:
    """A summary of what ``expire`` removed or, with ``dry_run``, would remove."""

    @property
    def first_version(self) -> int:
        """The oldest version that can still be opened."""

    @property
    def num_versions(self) -> int:
        """The number of versions that expired."""

    @property
    def num_files(self) -> int:
        """The number of removed data files."""

    @property
    def num_bytes(self) -> int:
        """The size of the removed data files in bytes."""

    @property
    def paths(self) -> list[str]:
        """The removed files, relative to the archive: data files and leftovers of interrupted writers."""

@final
class VerifyReport:
    """The result of ``verify``."""

    @property
    def problems(self) -> list[Problem]:
        """The problems found; empty if the archive is intact."""

    @property
    def version(self) -> int:
        """The newest version, or 0 if it cannot be read."""

    @property
    def num_commits(self) -> int:
        """The number of commits read."""

    @property
    def num_files(self) -> int:
        """The number of data files read, including files of older versions."""

    @property
    def num_bytes(self) -> int:
        """The size of the data files read, in bytes."""

    @property
    def num_runs(self) -> int:
        """The number of runs at the newest version."""

    @property
    def num_steps(self) -> int:
        """The number of steps at the newest version."""

    @property
    def unnamed_files(self) -> int:
        """The number of data files that no kept version references. They are harmless, and ``expire`` removes them."""

@final
class Problem:
    """A problem in an archive."""

    @property
    def path(self) -> str:
        """The file, relative to the archive."""

    @property
    def run_id(self) -> int | None:
        """The run with the problem, if it concerns one run."""

    @property
    def what(self) -> str:
        """The property that is wrong."""

    @property
    def expected(self) -> str:
        """The value that the rest of the archive requires."""

    @property
    def found(self) -> str:
        """The value that was found."""

@final
class RepairReport:
    """A summary of what a repair did or, with ``dry_run``, would do."""

    @property
    def version(self) -> int:
        """The last intact version, from which the archive continues."""

    @property
    def steps(self) -> list[Repair]:
        """The steps of the repair, in order; empty if there is nothing to repair."""

    @property
    def done(self) -> bool:
        """Whether the steps were carried out."""

@final
class Repair:
    """One step of a repair."""

    @property
    def path(self) -> str:
        """The file, relative to the archive."""

    @property
    def action(self) -> str:
        """The action on the file."""

    @property
    def reason(self) -> str:
        """The reason for the action."""

def verify(
    path: _Path, *, deep: bool = False, workers: int | None = None, progress: bool | None = None
) -> VerifyReport:
    """Check an archive for problems, even one that is too damaged to open.

    It checks every commit and the chain of commits. For every file of a kept version it checks presence, length,
    checksum, footer, rows, ids and statistics. It also checks that the tables agree. A problem never raises; it is
    listed in the report.

    - ``path``: the archive's folder or URL.
    - ``deep``: also rebuild every run from its columns, and check its digest and whether its moves obey the rules, as
      ``runs.verified`` states.
    - ``workers``: threads; ``None`` = one per core.
    - ``progress``: ``False`` = no progress bar; otherwise a bar is shown if standard error is a terminal.

    Raises ``ArchiveError`` if there is no archive. Raises ``ConflictError`` if other processes keep replacing and
    expiring the newest version during the check. Also raises ``OSError``, and ``KeyboardInterrupt`` on Ctrl-C.

    >>> for problem in a2store.verify("games.a2", deep=True).problems:
    ...     print(problem.path, problem.what, problem.expected, problem.found)
    """

def repair(path: _Path, *, dry_run: bool = True) -> RepairReport:
    """Repair an archive with damaged or missing commits.

    A lost commit that a checkpoint covers is rebuilt. Otherwise the archive continues from the last intact version,
    with the runs of all intact commits after it. No data is removed: replaced files are renamed to ``_log/*.damaged``.
    While such files exist, ``expire`` keeps unreferenced data files. You can ingest the runs of lost commits again;
    their old ids are not reused. An interrupted repair can be repeated and ends in the same archive.

    - ``path``: the archive's folder or URL.
    - ``dry_run``: ``True`` = only report the steps.

    Raises ``DamagedError`` if no version can be read, and ``ArchiveError`` if there is no archive or a newer a2store
    wrote it. Also raises ``ConflictError``, ``OSError``, and ``KeyboardInterrupt`` on Ctrl-C.
    """

# Query

def queries(folder: _Path | None = None) -> list[SavedQuery]:
    """Return the built-in named queries, or those in the ``.sql`` files of a folder, sorted by name.

    Raises ``DecodeError``, with file and line, for a file with an invalid header, and ``OSError``.

    >>> for query in a2store.queries():
    ...     print(query.name, query.purpose)
    """

@final
class SavedQuery:
    """A named query: an SQL file whose header declares its parameters and columns. ``Archive.query`` runs it."""

    @property
    def name(self) -> str:
        """The name of the file without ``.sql``."""

    @property
    def purpose(self) -> str:
        """The purpose of the query, as its header states it."""

    @property
    def parameters(self) -> tuple[SavedParameter, ...]:
        """The parameters of the query."""

    @property
    def columns(self) -> tuple[SavedColumn, ...]:
        """The columns of the result."""

    @property
    def sql(self) -> str:
        """The text of the whole file."""

@final
class SavedParameter:
    """A parameter of a named query."""

    @property
    def name(self) -> str:
        """The name of the parameter."""

    @property
    def type(self) -> Literal["bool", "int64", "uint64", "float64", "string"]:
        """The type of the parameter. A value of another type is rejected."""

    @property
    def default(self) -> bool | int | float | str | None:
        """The default value; see ``required``."""

    @property
    def required(self) -> bool:
        """Whether the parameter has no default."""

    @property
    def doc(self) -> str:
        """The description of the parameter."""

@final
class SavedColumn:
    """A column of a named query."""

    @property
    def name(self) -> str:
        """The name of the column."""

    @property
    def type(self) -> str:
        """The Arrow type of the column. Dictionaries of strings are ``"string"`` too."""

    @property
    def doc(self) -> str:
        """The description of the column."""

def functions() -> list[SqlFunction]:
    """Return a2store's own SQL functions over boards, moves and values.

    >>> for function in a2store.functions():
    ...     print(function.signature, function.doc)
    """

@final
class SqlFunction:
    """An SQL function over boards, moves or values of moves."""

    @property
    def name(self) -> str:
        """The name of the function."""

    @property
    def signature(self) -> str:
        """The form of a call: ``"tile(board, cell[, tile_65536_mask])"``. Brackets enclose optional arguments."""

    @property
    def returns(self) -> str:
        """The Arrow type of the result."""

    @property
    def doc(self) -> str:
        """The description of the result, with its range."""

    @property
    def example(self) -> tuple[str, str]:
        """A call with literals, and its value as text."""

@final
class Query:
    """A planned query over one version of an archive.

    Each read of the result runs the query again. Any Arrow stream consumer can read a query (``__arrow_c_stream__``).
    It receives batches as they are computed, so the result need not fit in memory. If the query fails while it runs,
    the consumer raises its own exception.

    A query that only filters, selects and computes on rows of one table keeps the table's order; ``steps`` is ordered
    by ``(run_id, step_index)``. Other queries follow their ORDER BY, or have no defined order.

    >>> query = archive.sql("SELECT board, move FROM steps WHERE phase = 'late'")
    >>> pyarrow.table(query)
    >>> polars.DataFrame(query)
    >>> duckdb.sql("SELECT move, count(*) FROM query GROUP BY move")
    """

    @property
    def schema(self) -> ArrowSchema:
        """The schema of the result."""

    def count(self) -> int:
        """Run the query and return only its number of rows.

        Raises ``QueryError``.
        """

    def explain(self, *, analyze: bool = False) -> str:
        """Return the plan as text; it shows which columns are read and where filters are applied.

        The first line lists run-level filters, if there are any. They are evaluated once per run, and only the steps of
        matching runs are read. ``predicate`` is the filter of the Parquet reader.

        - ``analyze``: run the query, discard its rows, and add what each operator did and how long it took.

        Raises ``QueryError``.
        """

    def show(self, max_rows: int = 20) -> None:
        """Print the first rows as a table.

        - ``max_rows``: the number of rows; the query stops once it has produced them.

        Raises ``QueryError``.
        """

    def _repr_html_(self) -> str:
        """Return the first ten rows as an HTML table, which notebooks display."""

    def to_arrow(self) -> Any:
        """Run the query and return a ``pyarrow.Table``.

        Raises ``ImportError`` if pyarrow is not installed. If the query fails, pyarrow raises its own exception.
        """

    def to_pandas(self) -> Any:
        """Run the query and return a ``pandas.DataFrame``, by way of pyarrow.

        Raises as ``to_arrow`` does.
        """

    def to_polars(self) -> Any:
        """Run the query and return a ``polars.DataFrame``.

        Raises as ``to_arrow`` does.
        """

    def materialize(
        self,
        *,
        extra: Sequence[str] = ...,
        chosen_ev: Literal["stored", "one"] = "stored",
        memory_limit: int | None = None,
        path: _Path | None = None,
        progress: bool | None = None,
    ) -> StepTable:
        """Run the query and store its rows in a table in memory or in a file.

        A row takes 32 bytes plus the extra columns. These columns of the result are used, by name; all others are
        ignored. Other numeric types are cast, and a value outside the range of the type raises:

        - ``board``, uint64: required.
        - ``move``, uint8: 0 to 3; 255 if it is null or missing.
        - ``ev_up``, ``ev_down``, ``ev_left``, ``ev_right``, float32: 0.0 if one is null or missing; four NaNs if all
          are.
        - ``ev_legal``, uint8: a legality mask; derived from the rules if it is null or missing.
        - ``run_id`` and ``step_index``, uint32: 0 if they are missing.
        - ``tile_65536_mask``, uint16: the cells with a tile of 65536. If a value is not 0, the table has the column
          as an extra column, its rows have at least 40 bytes, and the tokens of these cells are 16. Without the column
          in the query, these tokens are 15, with a warning if a row may have such a tile.

        Rows are in the order of the query's ORDER BY, then of ``(run_id, step_index)``. The number of threads does not
        affect the order.

        - ``extra``: further columns of the result to append to each row: bools, integers, floats, strings, or
          fixed-size lists of bools or numbers; by default none. Numbers keep their type; a null becomes NaN in floats
          and raises in other types. A null list counts as a list of nulls. Strings, and dictionaries of strings, become
          int16 codes: the string's index in ``table.categories``, -1 = null. A column may have at most 32,768 different
          strings.
        - ``chosen_ev``: the value of the chosen move, in steps that have values. ``"stored"`` = the archive's value,
          ``"one"`` = exactly 1.0.
        - ``memory_limit``: the maximum number of bytes of rows in memory; ``None`` = the memory that the system has
          available. It does not apply to rows in a file.
        - ``path``: a file for the rows, which is then mapped; it may be larger than memory. ``StepTable.load`` can read
          it. It is written atomically, is durable, and replaces an existing file.
        - ``progress``: ``False`` = no progress bar; otherwise a bar is shown if standard error is a terminal.

        Raises ``ColumnError``, with the row, for a column that is missing, of another type, or has a value that does
        not fit. Raises ``ValueError`` for an option out of range, and for an extra column that is named twice or
        already part of a row. Raises ``MemoryLimitError``, ``QueryError``, ``OSError`` if the file cannot be written,
        and ``KeyboardInterrupt`` on Ctrl-C. After an exception no file is left behind.

        >>> table = archive.sql("SELECT * FROM steps WHERE has_evs").materialize(extra=["max_score"], chosen_ev="one")
        >>> table.take([0, 1])["max_score"]
        >>> table = archive.sql("SELECT * FROM steps").materialize(extra=["engine"], path="steps.npy")
        >>> table.categories["engine"]
        >>> sql = "SELECT steps.*, policy_p1 FROM steps JOIN annotations USING (run_id, step_index) WHERE model = 'm'"
        >>> archive.sql(sql).materialize(extra=["policy_p1"]).take([0, 1])["policy_p1"]
        """

    def __arrow_c_schema__(self) -> object:
        """Return the result's schema as an ``arrow_schema`` capsule."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Run the query and return its result as an ``arrow_array_stream`` capsule.

        - ``requested_schema``: an ``arrow_schema`` capsule; columns are cast to its types where possible.

        Raises ``QueryError``.
        """

# Table

@final
class StepTable:
    """A table of fixed-size rows, in one read-only mapping of memory or of a file; or a view of some of its rows.

    A row has these fields, then the extra columns, widest first, and padding to a multiple of 8 bytes:

    - ``board``: uint64, at byte 0.
    - ``ev_values``: four float32 in the order UDLR, at byte 8; 0.0 where illegal, four NaNs for a step without values.
    - ``run_id``: uint32, at byte 24.
    - ``step_index``: uint16, at byte 28. If an index exceeds 65,535, it is uint32 and follows with the extra columns.
    - ``move``: uint8, 0 to 3 in the order UDLR, 255 = none, at byte 30.
    - ``ev_legal``: uint8, a legality mask, at byte 31.

    ``numpy.asarray(table)`` and ``rows_array`` share the table's memory. ``pyarrow.table(table)`` and other consumers
    of ``__arrow_c_stream__`` get copies, as columns. ``len(table)`` is the number of rows. To get a table, call
    ``Query.materialize``, ``StepTable.load``, ``StepTable.from_runs`` or ``StepTable.from_session``.

    ``filter`` and ``split`` return views, which support every operation of a table. A view shares the table's memory.
    An operation that needs all rows of a view in one piece copies them.

    A pickled table is a handle. A process of the same user on the same machine can unpickle it, and gets the same rows
    without a copy. So ``multiprocessing`` can pass tables as arguments. The first pickling moves a table into shared
    memory, at about the speed of a copy; existing arrays over it stay valid. The handle of a view takes 16 bytes per
    range of rows.

    A handle is valid while the process that pickled it keeps the table, or while the table's file is unchanged. Later,
    unpickling raises ``OSError`` or ``DamagedError``. A process that has unpickled the table keeps it, even after other
    processes end. The memory is freed when the last of them ends.

    >>> table = archive.sql("SELECT * FROM steps").materialize()
    >>> numpy.asarray(table)["ev_values"].mean(axis=0)
    """

    def __len__(self) -> int:
        """Return the number of rows."""

    @property
    def nbytes(self) -> int:
        """The size of the rows in bytes, ``len(table) * table.stride``."""

    @property
    def stride(self) -> int:
        """The size of a row in bytes: 32 without extra columns, else the next multiple of 8 that holds them."""

    @property
    def dtype(self) -> np.dtype[np.void]:
        """The structured NumPy type of a row, with the offsets of the fields and ``itemsize == stride``."""

    @property
    def fingerprint(self) -> str:
        """A hash of the data and its order, as 32 hexadecimal digits.

        Tables with the same fingerprint have the same rows in the same order. It is a hash of the archive and its
        version, the query's text and parameters, the options ``extra`` and ``chosen_ev``, and the filters and splits
        of a view. If a query does not determine its rows (window functions, sums of floats, ``random()``), the hash
        covers the rows instead of the text. A saved table keeps its fingerprint when it is loaded. The fingerprint of a
        file from another program is a hash of its rows.
        """

    @property
    def errors(self) -> list[Rejected]:
        """The runs and files that ``from_runs`` or ``PackReader.to_table`` skipped, in order."""

    @property
    def is_view(self) -> bool:
        """Whether this is a view, such as ``filter`` and ``split`` return."""

    @property
    def categories(self) -> dict[str, list[str]]:
        """The strings of the codes in extra columns, by column, in ascending order of their UTF-8 bytes.

        The code of ``categories[name][k]`` is ``k``. Columns of numbers are not included.

        >>> table.filter(run_ids=[7]).take([0])["engine"] == table.categories["engine"].index("expectimax")
        """

    def take(self, indices: _Indices) -> Batch:
        """Return the rows at ``indices`` as columns, in that order, with repetitions.

        - ``indices``: a one-dimensional sequence or array of integers in ``0..len(table)``. Negative indices are
          rejected.

        Raises ``IndexError`` with the first index that is out of bounds. Raises ``TypeError`` unless the indices are
        integers, and ``ValueError`` unless they have one dimension. Raises ``MemoryError``, and ``KeyboardInterrupt``
        on Ctrl-C, even in the middle of a long copy.

        >>> table.take([5, 0, 5]).tokens.shape
        (3, 16)
        """

    def take_rows(self, indices: _Indices) -> npt.NDArray[np.void]:
        """Return the rows at ``indices`` as a structured array, in that order, with repetitions.

        The array is new and writable: shape (indices,), of type ``table.dtype``.

        - ``indices``: as for ``take``.

        Raises as ``take`` does.
        """

    def rows_array(self) -> ArrowArray:
        """Return the rows as an Arrow array of ``FixedSizeBinary(stride)``.

        The array shares the table's memory. For a view it is a copy.
        """

    def filter(
        self,
        *,
        min_score: int | None = None,
        max_score: int | None = None,
        engine: str | Sequence[str] | None = None,
        phase: _Phase | Sequence[_Phase] | None = None,
        run_ids: _Indices | None = None,
    ) -> StepTable:
        """Return a view of the rows that meet all conditions, in the same order.

        This costs one pass over the table and about 20 bytes per range of rows. The first use of scores or engines
        reads them from the archive, at the table's version. A file that ``save`` wrote contains them.

        - ``min_score``, ``max_score``: bounds of the run's ``max_score``, both inclusive.
        - ``engine``: the run's engine, or several allowed ones. Runs without an engine never match.
        - ``phase``: the phase of the game, or several. It depends on the largest tile on the board and the archive's
          ``phases``.
        - ``run_ids``: the ids of the runs, in any order.

        Raises ``ValueError`` for an unknown phase, for ids outside ``0..2**32``, and for scores or engines if the rows
        come from a file without metadata of runs. Raises ``TypeError`` for values of another type. Raises
        ``QueryError``, ``DamagedError`` or ``OSError`` if the archive's runs can no longer be read.

        >>> late = table.filter(min_score=20_000, engine=["expectimax", "greedy"], phase="late")
        """

    def split(self, val: float = 0.1, *, seed: int = 0) -> tuple[StepTable, StepTable]:
        """Split the rows by run into two disjoint views, ``(train, val)``, and return them.

        A run's id and the seed alone determine whether the run is held out. So a run keeps its side when the archive
        grows, and a run in ``val`` stays there when ``val`` grows. Use another seed to split a view again.

        - ``val``: the approximate share of held-out runs, in ``0..=1``.
        - ``seed``: the seed of the split, in ``0..2**64``.

        Raises ``ValueError`` for a share out of range.

        >>> train, val = table.split(0.05)
        """

    def save(self, path: _Path, *, progress: bool | None = None) -> None:
        """Write the rows to a ``.npy`` file, which ``numpy.load`` opens as a structured array.

        The metadata for ``load`` follows the rows, where NumPy ignores it: the fingerprint, the categories, checksums,
        and the score and engine of each run. For a view, only its rows are written. The file is written atomically, is
        durable, and replaces an existing file. A process that has mapped the old file keeps the old content.

        - ``path``: the file.
        - ``progress``: ``False`` = no progress bar; otherwise a bar is shown if standard error is a terminal.

        Raises ``OSError``, and ``KeyboardInterrupt`` on Ctrl-C. Raises ``ValueError`` for a non-ASCII name of an extra
        column, which NumPy's header cannot hold. After an exception no file is left behind.
        """

    @staticmethod
    def load(
        path: _Path, *, mmap: bool = False, memory_limit: int | None = None, progress: bool | None = None
    ) -> StepTable:
        """Return the table of a ``.npy`` file, written by ``save`` or by another program.

        A saved table keeps its fingerprint, so the saved state of a loader still fits it. NumPy's header formats 1.0,
        2.0 and 3.0 are supported.

        Any other one-dimensional structured array works if it has a field ``board``. It may have the other fields of a
        row, with the same names and types, in any order: ``move``, ``ev_legal``, ``ev_values``, ``run_id`` and
        ``step_index``. Missing fields have the values that ``Query.materialize`` gives to missing columns. Further
        fields of numbers or bools, one or several per row, become extra columns. The phases begin at 1024 and 4096.

        - ``path``: the file.
        - ``mmap``: ``True`` = map the file, so that processes share its pages and it may be larger than memory. It must
          have the layout that ``save`` writes, and must not change while it is mapped. The checksum of the rows is not
          checked. ``False`` = read the file.
        - ``memory_limit``: the maximum number of bytes of rows that are read; ``None`` = the memory that the system has
          available.
        - ``progress``: ``False`` = no progress bar; otherwise a bar is shown if standard error is a terminal.

        Raises ``DecodeError`` or ``DamagedError`` for a file that is invalid, truncated or changed. Raises
        ``ColumnError`` for a field that is missing, of another type, or has a value that does not fit. Raises
        ``ValueError`` for a file that cannot be mapped. Raises ``MemoryLimitError``, ``OSError``, and
        ``KeyboardInterrupt`` on Ctrl-C.

        >>> table.save("late.npy")
        >>> table = a2store.StepTable.load("late.npy", mmap=True)
        """

    @staticmethod
    def from_runs(
        paths: _Path | Iterable[_Path],
        *,
        min_score: int | None = None,
        max_score: int | None = None,
        min_steps: int | None = None,
        max_steps: int | None = None,
        engine: str | None = None,
        chosen_ev: Literal["stored", "one"] = "stored",
        memory_limit: int | None = None,
        workers: int | None = None,
        progress: bool | None = None,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> StepTable:
        """Read runs of any format into a table, without an archive.

        A row's ``run_id`` is the index of the run among all runs, from 0. Runs that the options exclude and runs that
        cannot be read count too, so for a single pack it is the index in the pack. The phases begin at 1024 and 4096.

        - ``paths``: files and folders, as for ``Archive.ingest``, in the same order.
        - ``min_score``, ``max_score``: bounds of the score of a run, both inclusive.
        - ``min_steps``, ``max_steps``: bounds of the number of steps of a run, both inclusive.
        - ``engine``: the engine of the runs; ``None`` = any.
        - ``chosen_ev``: the value of the chosen move, as in ``Query.materialize``.
        - ``memory_limit``: the maximum number of bytes of rows; ``None`` = the memory that the system has available.
        - ``workers``: threads; ``None`` = one per core.
        - ``progress``: ``False`` = no progress bar; otherwise a bar is shown if standard error is a terminal.
        - ``on_error``: the effect of a run or file that cannot be read. ``"raise"`` raises its error. ``"skip"`` reads
          the others and adds the error to ``errors`` of the table. A skipped file counts as one run.

        Raises ``DecodeError`` or ``OSError`` for the first run that cannot be read, unless skipped. Raises
        ``ValueError`` for a run of more than 65,536 steps, ``MemoryLimitError``, and ``KeyboardInterrupt`` on Ctrl-C.
        Issues warnings as ``Archive.ingest`` does.

        >>> table = a2store.StepTable.from_runs("pack.dat", min_score=20_000)
        """

    @staticmethod
    def from_session(
        path: _Path,
        run_ids: _Indices | None = None,
        *,
        extra: Sequence[Literal["max_score", "highest_tile"]] | None = None,
        memory_limit: int | None = None,
        workers: int | None = None,
        progress: bool | None = None,
    ) -> StepTable:
        """Read a self-play session into a table that keeps the session's run ids.

        The session's rows may be in any order; the table has them in the order of ``run_id`` and ``step_index``. Their
        values are NaN. If the session does not store a move, it is derived from the boards; it is 255 if the rules
        allow several moves, and in the last row of a run. ``filter`` supports scores and engines; a run's engine is the
        ``tag`` of the session's ``model``. The phases begin at 1024 and 4096.

        - ``path``: the session's folder, or a file in it.
        - ``run_ids``: the ids of the runs; ``None`` = all.
        - ``extra``: extra columns with metadata of the run: ``max_score`` (uint64), ``highest_tile`` (uint32).
        - ``memory_limit``: the maximum number of bytes of rows; ``None`` = the memory that the system has available.
        - ``workers``: threads; ``None`` = one per core.
        - ``progress``: ``False`` = no progress bar; otherwise a bar is shown if standard error is a terminal.

        Raises ``DecodeError`` or ``OSError`` for a session that cannot be read. Raises ``ValueError`` for an id that is
        not in the session, and for run ids above 2**32 - 1. Raises ``MemoryLimitError``, and ``KeyboardInterrupt`` on
        Ctrl-C.

        >>> table = a2store.StepTable.from_session("selfplay/1").attach("embedding", "selfplay/1/embeddings.bf16.npy")
        """

    def attach(
        self,
        name: str,
        path: _Path | object,
        steps: _Path | None = None,
        *,
        mmap: bool = True,
        memory_limit: int | None = None,
        progress: bool | None = None,
    ) -> StepTable:
        """Return this table with an attached column: values of a ``.npy`` array of shape (rows, D), or of rows.

        Batches, ``take`` and Arrow data of the returned table have the column ``name`` of shape (n, D). So do its
        views, its loaders, and its copies in other processes. The rows themselves do not change: ``numpy.asarray``,
        ``take_rows``, ``dtype``, ``fingerprint``, the states of loaders and ``save`` omit the column. Attach it again
        after ``load``.

        A structured array of the same length holds the keys: the integers ``run_id`` and ``step_idx`` or
        ``step_index``. The array may have more steps than the table, in any order. If the orders are equal, the mapping
        takes no memory. Otherwise it takes 4 bytes per row of the table, or 8 for arrays of 2**32 rows and more. If the
        keys include boards, as ``board`` or ``exps``, these must equal the table's boards.

        The type is a little-endian float or integer, or bfloat16. An array is bfloat16 if it is ``<u2`` and the JSON
        object beside it has ``bf16`` as ``dtype_bits`` or ``dtype``. For ``embeddings.bf16.npy`` that file is
        ``embeddings.json``. Its ``D`` and type must match the array. NumPy and Arrow get the bits of bfloat16 as
        uint16; in Arrow, the field's metadata has ``a2store.dtype``. ``a2store.torch`` converts them to
        ``torch.bfloat16``.

        Instead of an array, ``path`` may be rows: a ``Query``, any table with the Arrow C interface, or a NumPy
        structured array. They have the integers ``run_id`` and ``step_index``, and one column of values: numbers,
        bools, or fixed-size lists of D of them. A column ``board``, uint64, is compared with the table's boards. The
        rows are read once, one batch at a time, and only their values stay in memory. A null is NaN in floats and
        raises in other types. A table with such a column cannot be pickled.

        - ``name``: the name of the new column.
        - ``path``: the array; or a folder with ``embeddings.npy``, or with its shards ``embeddings-<number>.npy``. The
          first shard has the rows of the first shard of ``steps.npy``, and so on. Or rows, as above.
        - ``steps``: the file of the keys, or a folder with ``steps.npy`` or its shards; ``None`` = the array's folder.
          Rows have their own keys.
        - ``mmap``: ``True`` = map the array, which may be larger than memory and must not change. The system reads its
          pages when a row is first gathered. ``False`` = read it now. A process that unpickles the table maps the
          array in either case, and matches the keys again.
        - ``memory_limit``: the maximum number of bytes that ``mmap=False`` may read, or of values and keys of rows;
          ``None`` = the memory that the system has available.
        - ``progress``: ``False`` = no progress bar; otherwise a bar is shown if standard error is a terminal.

        ``loader(symmetries=True)`` rejects attached columns, because they describe the original board. Use ``columns``
        to leave them out.

        Raises ``ColumnError``, with the row, if a row's step is not in the array, and if the keys have a step twice.
        Raises ``DecodeError`` for files of another kind, with different numbers of rows, or that contradict the JSON.
        Raises ``ValueError`` if the name is taken, and for rows with other columns. Raises ``MemoryLimitError``,
        ``OSError``, and ``KeyboardInterrupt`` on Ctrl-C. A query's own errors are raised too.

        >>> table = table.attach("embedding", "selfplay/1/embeddings.bf16.npy")
        >>> table.take([0]).embedding.shape
        (1, 256)
        >>> sql = "SELECT run_id, step_index, policy_p1 FROM annotations WHERE model = 'model-v1'"
        >>> table = table.attach("policy_p1", archive.sql(sql))
        """

    @property
    def attached(self) -> list[str]:
        """The names of the attached columns, in order of attachment."""

    def loader(
        self,
        batch_size: int = 4096,
        *,
        shuffle: bool = True,
        seed: int = 0,
        epoch: int = 0,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        tokens: Literal["uint8", "int32", "int64"] = "uint8",
        symmetries: bool = False,
        columns: Sequence[str] | None = None,
        prefetch: int = 2,
        replacement: bool = False,
        weights: str | None = None,
        strata: str | None = None,
        quotas: dict[Any, float] | None = None,
        num_samples: int | None = None,
        window: int | None = None,
    ) -> Loader:
        """Return a loader, which serves the rows in batches.

        One of ``shuffle``, ``window``, ``replacement``, ``weights`` and ``strata`` determines the rows of an epoch and
        their order. Without ``replacement``, ``weights`` and ``strata``, an epoch has every row once.

        - ``batch_size``: rows per batch and rank, in ``1..=2**28``.
        - ``shuffle``: ``True`` = a different random order in each epoch; ``False`` = the table's order.
        - ``seed``: the seed of the orders and the symmetries, in ``0..2**64``. Equal seeds and epochs give equal orders
          on every machine.
        - ``epoch``: the first epoch.
        - ``drop_last``: ``True`` = omit the last rows of an epoch that do not fill a batch on every rank. ``False`` =
          the ranks divide these rows evenly, and the last batch is smaller.
        - ``rank``: the number of this process, in ``0..world_size``.
        - ``world_size``: the number of processes that share the rows. All ranks get the same number of batches, and no
          two get the same row.
        - ``tokens``: the type of ``Batch.tokens``.
        - ``symmetries``: ``True`` = transform each row by one of the board's eight symmetries: board, tokens, move,
          values and mask, but not the extra columns. The seed, the epoch and the row's index determine the symmetry. It
          cannot be combined with attached columns and with extra columns of several values per row.
        - ``columns``: the names of the columns in a batch, in order; ``None`` = all, including extra and attached ones.
        - ``prefetch``: the number of batches that a background thread prepares ahead, at most 4,096; 0 = each batch is
          prepared on demand.
        - ``replacement``: ``True`` = draw rows uniformly with replacement.
        - ``weights``: an extra column of finite weights of at least 0; rows are drawn with replacement, in proportion
          to them. The loader takes 8 bytes per row, and two passes over the table when it is created.
        - ``strata``: an extra column whose values are the strata, at most 4,096 different ones. In any prefix of the
          stream each stratum has its quota, to within one row. Within a stratum the order is shuffled, and no row
          repeats before all others have occurred. The loader takes 4 bytes per row (6 in strata of fewer than 65,536
          rows), and one pass over the table when it is created.
        - ``quotas``: the relative shares of the strata to serve, by value: a string of ``categories``, a number, a
          bool, or ``None`` for null. Shares are at least 0 and have a finite sum; fractional shares are rounded to
          1/65,536 of it. ``None`` = equal shares.
        - ``num_samples``: the rows of an epoch over all ranks, in ``0..=2**62``, with ``replacement``, ``weights`` or
          ``strata``; ``None`` = the number of rows in the table.
        - ``window``: the approximate number of rows to shuffle at a time, at least 1, for mapped tables larger than
          memory. A window is 256 blocks of ``2**k`` rows from random places, with the largest ``k`` that fits. Each
          block is read once per epoch, in one piece. Two windows of rows should fit in memory.

        Raises ``ValueError`` for an option out of range, and for options that exclude each other. Raises
        ``ColumnError`` for an invalid weight, with the row, and for too many strata. Raises ``TypeError`` for a quota
        that is not a number, and ``MemoryError`` if weights or strata do not fit in memory.

        >>> loader = table.loader(batch_size=1024, seed=1, tokens="int64", columns=["tokens", "move"])
        >>> for epoch in range(3):
        ...     loader.set_epoch(epoch)
        ...     for batch in loader:
        ...         batch.tokens, batch.move
        >>> table.loader(strata="phase", quotas={"early": 1, "mid": 1, "late": 2}, symmetries=True)
        """

    def __reduce__(self) -> tuple[Callable[[bytes], StepTable], tuple[bytes]]:
        """Return a handle for ``pickle``; for a whole table in memory it is smaller than 1 KiB.

        Raises ``OSError`` if the system has no suitable shared memory. Only Linux has it.
        """

    def __array__(self, dtype: npt.DTypeLike | None = None, *, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return the rows as a structured array: shape (rows,), of type ``table.dtype``.

        The array shares the table's memory and is read-only, unless ``copy`` or another dtype requires a copy. For a
        view it is a copy.

        Raises ``ValueError`` if a copy is required and ``copy`` is ``False``.
        """

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as columns, in an ``arrow_array_stream`` capsule.

        Rows are transposed in chunks of 65,536, on demand. The columns are the fields of a row, then the extra columns.
        ``ev_values`` and columns of several values per row are fixed-size lists, and ``ev_legal`` is a mask. Columns of
        strings are dictionaries; only these have nulls.

        - ``requested_schema``: an ``arrow_schema`` capsule; columns are cast to its types where possible.
        """

@final
class Batch:
    """A batch of rows as columns, in NumPy arrays that share the batch's memory.

    Each column is an attribute, ``batch.tokens``, and an item, ``batch["tokens"]``. So are the extra columns, but a
    column named like a method is only an item. A column that the loader does not serve raises ``AttributeError`` or
    ``KeyError``. ``len(batch)`` is the number of rows, called n below.

    The arrays are writable. The loader does not reuse their memory while one of them exists.
    ``pyarrow.record_batch(batch)`` shares the memory too, except for columns of bools, which it copies.

    An extra column of strings has codes: shape (n,), int16, -1 = null; ``table.categories`` has the strings. An extra
    column of lists of D values, and an attached column, have the shape (n, D), or (n,) if D is 1.
    """

    tokens: npt.NDArray[np.uint8 | np.int32 | np.int64]
    """The exponents of the boards: shape (n, 16), row by row from the top left; uint8, int32 or int64.

    They are 0 to 15, and 16 for a tile of 65536 if the table has ``tile_65536_mask``.
    """
    move: npt.NDArray[np.uint8]
    """The chosen move: shape (n,), uint8, 0 to 3 in the order UDLR, 255 = none."""
    ev_values: npt.NDArray[np.float32]
    """The value of each move: shape (n, 4), float32, in the order UDLR; 0.0 if illegal, four NaNs if unknown."""
    ev_legal: npt.NDArray[np.bool_]
    """The legal moves: shape (n, 4), bool, in the order UDLR."""
    run_id: npt.NDArray[np.uint32]
    """The run's id in the archive: shape (n,), uint32."""
    step_index: npt.NDArray[np.uint16 | np.uint32]
    """The step's index in its run, from 0: shape (n,), uint16; uint32 if the table has an index above 65,535."""
    board: npt.NDArray[np.uint64]
    """The board before the move: shape (n,), uint64."""

    @property
    def bfloat16_columns(self) -> list[str]:
        """The names of the bfloat16 columns, whose bits are stored as uint16 because NumPy lacks bfloat16."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def keys(self) -> list[str]:
        """Return the names of the columns, in order."""

    def to_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return all columns by name, in order."""

    def __getitem__(self, name: str, /) -> npt.NDArray[Any]:
        """Return the column of this name.

        Raises ``KeyError`` if there is no such column.
        """

    def __contains__(self, name: str, /) -> bool:
        """Return whether there is a column of this name."""

    def __getattribute__(self, name: str, /) -> npt.NDArray[Any]:
        """Return the column of this name; a column named like a method is only an item.

        Raises ``AttributeError`` if there is no such column.
        """

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Return the batch as a struct of its columns, in the capsules ``arrow_schema`` and ``arrow_array``.

        ``tokens``, ``ev_values`` and ``ev_legal`` are fixed-size lists. Columns of strings are dictionaries; only these
        have nulls.

        - ``requested_schema``: an ``arrow_schema`` capsule; columns are cast to its types where possible.
        """

# Loader

@final
class Loader:
    """A loader that serves a table's rows in batches, one epoch per iteration.

    All ranks share one stream of rows. Each step takes the next ``world_size * batch_size`` rows, and every rank gets
    its part of them. A thread prepares batches ahead, so the loop rarely waits. Run one iteration of a loader at a
    time. ``len(loader)`` is the number of batches in a whole epoch. To get a loader, call ``StepTable.loader``.

    Ctrl-C can interrupt a batch, and a failed allocation raises ``MemoryError``. In both cases the next call returns
    the same batch, and the loader's position does not change.
    """

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch, which is the same on each rank."""

    def __iter__(self) -> BatchIterator:
        """Return an iterator over the epoch, from its beginning or, once, from the position of a loaded state.

        Raises ``MemoryError`` if there is no memory for one batch.
        """

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration serves."""

    @property
    def batch_size(self) -> int:
        """The number of rows per batch and rank."""

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the order.

        The epoch does not advance by itself. If ``epoch`` is the current one, the position of a loaded state is kept,
        so a loop over epochs continues at that position.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position after the batches returned so far; prefetched batches do not count.

        The state is a dict of at most 512 bytes as JSON. After the same number of batches, all ranks have the same
        state.

        - ``version``: int, the version of the dict and of the orders, 3.
        - ``archive_version``, ``archive``, ``query``, ``view``: an int and three strs, the parts of the table's
          fingerprint. They cover the archive's version, the archive at that version, the query with its parameters and
          options, and the filters and splits of a view. ``view`` is ``""`` for a whole table.
        - ``num_rows``, ``num_samples``: ints, the rows of the table and of an epoch.
        - ``order``: str, the rows of an epoch and their order, such as ``"shuffled"`` or ``"weighted by age"``. Equal
          orders have equal names: quotas of 2 and 4 have the same name as quotas of 1 and 2.
        - ``seed``, ``symmetries``: int and bool, the options.
        - ``epoch``: int.
        - ``position``: int, the rows of the epoch already served to all ranks, in ``0..=num_samples``.
        """

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a position: the next iteration begins there, in the state's epoch.

        Table, order, ``num_samples``, ``seed`` and ``symmetries`` must equal those of the loader that made the state.
        Batch size, rank, number of ranks, columns and tokens may differ. If the state is at the end of an epoch, the
        next iteration has no batches, and the one after it serves a whole epoch.

        A state of version 2 can be loaded if its order is unchanged and the options are spelled as before. These
        orders are unchanged: ``shuffle=False``, ``replacement``, ``weights``, and ``shuffle`` and ``strata`` of at
        least 65,536 rows in each served stratum. All other orders have changed, because small permutations are computed
        differently.

        Raises ``StateMismatchError``, with the name of the differing field, for a state of other rows or another order.
        Raises ``ValueError`` for an invalid state. The loader is then unchanged.

        >>> state = loader.state_dict()
        >>> loader = table.loader(batch_size=2048, seed=1)
        >>> loader.load_state_dict(state)
        >>> for epoch in range(loader.epoch, 3):
        ...     loader.set_epoch(epoch)
        ...     for batch in loader:
        ...         batch.tokens, batch.move
        """

@final
class BatchIterator:
    """An iterator over the batches of one epoch, or of its rest."""

    def __iter__(self) -> Self:
        """Return the iterator itself."""

    def __next__(self) -> Batch:
        """Return the next batch. The interpreter's lock is released while waiting.

        Raises ``MemoryError``, and ``KeyboardInterrupt`` on Ctrl-C.
        """

    def __length_hint__(self) -> int:
        """Return the number of remaining batches."""

# Arrow

@final
class ArrowArray:
    """An Arrow array for ``pyarrow.array`` and any other consumer of ``__arrow_c_array__``."""

    def __len__(self) -> int:
        """Return the number of values."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Return the array in the capsules ``arrow_schema`` and ``arrow_array``.

        - ``requested_schema``: an ``arrow_schema`` capsule; the values are cast to its type if it differs.
        """

@final
class ArrowSchema:
    """An Arrow schema for ``pyarrow.schema`` and any other consumer of ``__arrow_c_schema__``.

    ``len(schema)`` is the number of columns.
    """

    @property
    def names(self) -> list[str]:
        """The names of the columns, in order."""

    def __len__(self) -> int:
        """Return the number of columns."""

    def __arrow_c_schema__(self) -> object:
        """Return the schema as an ``arrow_schema`` capsule."""

def _attach(handle: bytes) -> StepTable:
    """Return the table of a handle; unpickling calls this.

    Raises ``OSError`` if the file, or the process that made the handle, is gone. Raises ``DamagedError`` if a different
    file or memory is in its place, and ``DecodeError`` for other bytes.
    """

def _run_command(args: Sequence[_Path], program: Sequence[_Path]) -> int:
    """Run the command ``a2store`` or ``a2pack`` with these arguments and return its exit status.

    The status is 0 for success, 1 for a problem in the data, and 2 for wrong usage.

    - ``args``: the command's name, then its arguments.
    - ``program``: the command line that starts this program again, in a separate process.
    """
