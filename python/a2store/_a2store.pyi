"""The extension module behind ``a2store``, which re-exports all public names here.

Conventions: a board is a uint64 of sixteen 4-bit exponents, cell 0 (top left) in the highest four bits, row by row; 0
is an empty cell and ``k`` the tile ``2**k``. The four moves are always in the order up, down, left, right (UDLR),
numbered 0 to 3. A legality mask has bit 0 for up to bit 3 for right. Ranges are half-open: ``0..n`` excludes ``n``.

An integer that is negative, or larger than its argument can hold, raises ``OverflowError``. Anything that is not an
integer raises ``TypeError``; NumPy's integers are integers. Sequences of integers have their own rules, and reject
bools. An operation on files and folders that the system rejects raises ``OSError`` or its subclass, such as
``FileNotFoundError``, with ``filename`` set. A failed allocation for batches, tables, orders or weights raises
``MemoryError``.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import date, time, timedelta
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, final

import numpy as np
import numpy.typing as npt

__all__ = [
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
_TableName: TypeAlias = Literal["steps", "runs"]
_RunFormat: TypeAlias = Literal["a2t1", "a2run2"]
_ExportFormat: TypeAlias = Literal["original", "a2t1", "a2run2", "a2pack", "packdat", "npy", "session", "jsonl"]
_Compression: TypeAlias = Literal["none", "zstd", "lz4"]
_Phase: TypeAlias = Literal["early", "mid", "late"]
_Indices: TypeAlias = Sequence[int] | npt.NDArray[np.integer[Any]]
_Duration: TypeAlias = float | timedelta
_Param: TypeAlias = bool | int | float | str | bytes | date | time | np.generic | None

__version__: str
"""The version of the package, that of the Rust crate."""

# Errors

class Error(Exception):
    """What goes wrong in a2store itself, where Python has no exception of its own for it.

    The message is one line: the file, the place in it, what was expected and what was found. Wrong arguments raise
    ``ValueError`` or ``TypeError``, a missing row ``IndexError``, a failed system call ``OSError``, a failed allocation
    ``MemoryError``, and Ctrl-C ``KeyboardInterrupt``. These exceptions do not have the attributes below.
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
    """A short name of what went wrong, finer than the exception's class in places."""
    path: str | None
    """The file or folder that the error is about, where there is one."""
    run: int | None
    """The run's index in a file of many, from 0, where the error is about one."""
    offset: int | None
    """Where in the input it is, in bytes from its start, where that is known."""
    step: int | None
    """The step of the run that it is in, from 0, where that is known."""

class ArchiveError(Error):
    """A folder that cannot be used as an archive: none is there, or a newer a2store wrote it."""

class ArchiveExistsError(ArchiveError):
    """``Archive.create`` where an archive already is."""

class ConflictError(ArchiveError):
    """Another writer held the archive for longer than was waited; trying again may succeed."""

class DamagedError(ArchiveError):
    """A file of an archive, or of a table, that contradicts its checksum or what else is known of it."""

class VersionNotFoundError(ArchiveError):
    """A version that the archive does not have, or not any more."""

class UnconfirmedError(ArchiveError):
    """A commit that was written, but not confirmed by the disk or the object store: it may stand or not.

    Repeating the operation tells, and does nothing twice.
    """

class DecodeError(Error):
    """Bytes that are no run or table: ``kind`` is ``"checksum"`` when only the checksum is wrong, else ``"decode"``."""

class QueryError(Error):
    """SQL that does not parse or plan, parameters that do not match it, or a failure while it ran."""

class QueryRefusedError(QueryError):
    """SQL that asks for more than reading the tables it was given; the message names the part and says why."""

class QueryLimitError(QueryError):
    """A query that came to a limit of rows, bytes, time, memory or temporary files; the message says which."""

class ColumnError(Error):
    """A column that a ``StepTable`` cannot hold: missing, of another type, or with a value that does not fit."""

class MemoryLimitError(Error):
    """A table that would be larger than its memory limit."""

class RecorderLimitError(Error):
    """A recorder came to one of its limits, and takes no more."""

class StateMismatchError(Error):
    """A loader's state that belongs to other rows or another order."""

# Runs

def read_run(path_or_bytes: _Path | bytes) -> Run:
    """Decode one run, from a file or from the bytes of one.

    The format, A2T1 or a2run2, is known by the content, never by the file's name.

    Raises ``DecodeError`` with the byte offset and, among the steps, the step; ``OSError`` when the file cannot be
    read.

    >>> run = a2store.read_run("runs/run-00000.a2run2")
    >>> run.boards[0], run.moves[0], run.meta.max_score
    """

@final
class Run:
    """One decoded game, in columns with one entry per step.

    Each property makes a new, writable array; changing it does not change the run. ``len(run)`` is the number of steps.
    """

    @property
    def meta(self) -> RunMeta:
        """What the file says of the run as a whole."""

    @property
    def boards(self) -> npt.NDArray[np.uint64]:
        """The board before each move: shape (steps,), uint64."""

    @property
    def moves(self) -> npt.NDArray[np.uint8]:
        """The move chosen at each step: shape (steps,), uint8, 0 to 3 in the order UDLR."""

    @property
    def ev_values(self) -> npt.NDArray[np.float32]:
        """The engine's expected value of each move: shape (steps, 4), float32, in the order UDLR.

        An illegal move has 0.0, and a step without values four NaNs.
        """

    @property
    def ev_legal(self) -> npt.NDArray[np.bool_]:
        """Which moves are legal: shape (steps, 4), bool, in the order UDLR.

        As the engine says, or by the rules of the game for a step without values.
        """

    @property
    def has_evs(self) -> npt.NDArray[np.bool_]:
        """Whether each step has values: shape (steps,), bool."""

    @property
    def final_board(self) -> int | None:
        """The board after the last move; every run file has it."""

    def __len__(self) -> int:
        """Return the number of steps."""

    def to_bytes(self, format: _RunFormat | None = None) -> bytes:  # noqa: A002
        """Encode the run as the bytes of a file.

        - ``format``: the format; ``None`` = the one that it was read from. ``"a2t1"`` has no room for the values of
          moves, which are left out.

        Raises ``ValueError`` for another format, and for an engine's name above the 65,535 bytes of A2T1.
        """

    def save(self, path: _Path, format: _RunFormat | None = None) -> None:  # noqa: A002
        """Write the run to a file, in place of one that is there.

        - ``format``: as in ``to_bytes``; the file's name has no part in it.

        Raises ``ValueError`` as ``to_bytes`` does, and ``OSError``.
        """

    def verify(self) -> str | None:
        """Check the run against the rules of the game.

        Every move must be legal, every board the one before it, slid, with one 2 or 4 spawned, and every legality mask
        that of the rules.

        Returns the first violation in words, with its step, or ``None`` when there is none.
        """

@final
class RunMeta:
    """What a run's file says of the run as a whole, in the engine's own words: nothing is checked against the steps."""

    @property
    def num_steps(self) -> int:
        """The number of steps."""

    @property
    def start_unix_s(self) -> int:
        """When the game began, in seconds since 1970 UTC; 0 = unknown."""

    @property
    def elapsed_s(self) -> float:
        """How long the game took, in seconds."""

    @property
    def max_score(self) -> int:
        """The final score as the engine counts it."""

    @property
    def highest_tile(self) -> int:
        """The largest tile reached, such as 2048."""

    @property
    def engine(self) -> str | None:
        """The engine's name; ``None`` = the file has none, which in a2run2 is different from an empty one."""

    @property
    def seed(self) -> int | None:
        """The seed that the game was played with; run files have none."""

    @property
    def raw_evs(self) -> bool:
        """Whether the values are the engine's own numbers rather than normalised to [0, 1); not in run files."""

    @property
    def format(self) -> _RunFormat:
        """The format that the run was read from."""

def convert(
    paths: _Path | Iterable[_Path],
    out: _Path,
    *,
    format: Literal["a2t1", "a2run2", "a2pack", "packdat", "npy", "session", "jsonl"],  # noqa: A002
    append: bool = False,
    by_step: bool = False,
    compact: bool = False,
    compress: _Compression = "none",
    align: int | None = None,
    shard_rows: int | None = None,
    workers: int | None = None,
    progress: bool | None = None,
) -> ExportReport:
    """Read runs of any format and write them in another, in the order in which they are read, without an archive.

    - ``paths``: run files, packs, pack.dat files, datasets, sessions and logs, and folders of them, told by their
      content.
    - ``out``: a folder for run files, ``"npy"`` and ``"session"``; else the file, or a folder for a file of
      the usual name.
    - ``append``: ``"packdat"`` and ``"npy"``: add to what is there, if anything is, whole or not at all. Together with
      several ``paths`` this merges.
    - the others: as in ``Archive.export_runs``.

    Raises ``DecodeError`` or ``OSError`` for the first run that cannot be read; ``FileExistsError`` for a file that is
    there already; ``ValueError`` for a run that the format has no room for; ``KeyboardInterrupt`` on Ctrl-C. Files of
    many runs appear whole or not at all.

    >>> a2store.convert(["a/pack.dat", "b/pack.dat"], "all.dat", format="packdat")
    """

@final
class PackReader:
    """The run files in an ``.a2pack``, which is mapped into memory: any of them is a constant time away.

    ``len(pack)`` is the number of runs, ``pack[i]`` is ``pack.decode(i)``, and ``for run in pack`` gives all of them in
    order, decoded ahead in parallel. A reader may be used from several threads, survives ``fork``, and pickles as its
    path. The file must not be changed while it is open.
    """

    @staticmethod
    def open(path: _Path, checksums: bool = True) -> PackReader:
        """Open a pack. Header, index and footer are checked, the runs are not: 100,000 of them take milliseconds.

        - ``checksums``: whether reading a run compares its checksum; ``False`` is for passes over what ``validate`` has
          seen.

        Raises ``DecodeError`` (``kind`` is ``"header"`` or ``"checksum"``), and ``OSError``.
        """

    def __len__(self) -> int:
        """Return the number of runs, damaged ones included."""

    def __getitem__(self, index: int, /) -> Run:
        """Return ``decode(index)``."""

    def __iter__(self) -> PackIterator:
        """Return ``iter()``."""

    @property
    def path(self) -> Path:
        """The file."""

    def kind(self, index: int) -> Literal["v1", "v2"]:
        """Return the format of a run, from the index: ``"v1"`` is A2T1, ``"v2"`` a2run2.

        Raises ``IndexError``.
        """

    def decode(self, index: int) -> Run:
        """Return a run; a negative index counts from the end.

        Raises ``IndexError``; ``DecodeError``, with path, run and offset, for a damaged run.
        """

    def decode_batch(self, indices: Iterable[int]) -> list[Run]:
        """Return runs in the order of their indices, decoded in parallel.

        Raises as ``decode`` does, for the first damaged run.
        """

    def iter(self) -> PackIterator:
        """Return an iterator over all runs in order, which decodes ahead in parallel, some megabytes at a time.

        A damaged run raises ``DecodeError`` when its turn comes; the next call goes on after it.
        """

    def iter_indices(self, indices: Iterable[int]) -> PackIterator:
        """Return an iterator over runs in the order of their indices, as ``iter`` does for all.

        Raises ``IndexError`` at once for an index that is none.
        """

    def iter_batches(
        self,
        batch_size: int,
        shuffle: bool = False,
        seed: int | None = None,
        workers: int | None = None,
        *,
        indices: Iterable[int] | None = None,
    ) -> PackBatchIterator:
        """Return an iterator over lists of ``batch_size`` runs, the last of which may be shorter.

        - ``shuffle``: whether the runs come in an order that depends on ``seed``, and on nothing else.
        - ``seed``: 0 to 2**64 - 1; ``None`` = another each time.
        - ``workers``: threads to decode with; ``None`` = those that all readers share, one per core.
        - ``indices``: the runs to give, such as one half of ``split``; ``None`` = all.

        Raises ``ValueError``, and ``IndexError`` for an index that is none; the iterator ``DecodeError``.
        """

    def iter_step_batches(
        self,
        batch_size: int,
        shuffle: bool = False,
        seed: int | None = None,
        workers: int | None = None,
        *,
        indices: Sequence[int] | npt.NDArray[np.integer[Any]] | None = None,
    ) -> PackStepIterator:
        """Return an iterator over batches of steps. All steps are read into memory first, 32 bytes each.

        A row's ``run_id`` is the run's index in the pack. For training, ``to_table().loader(…)`` does more.

        - ``batch_size``: rows in a batch, the last of which may have fewer.
        - ``shuffle``, ``seed``: as in ``iter_batches``, over all steps.
        - ``workers``: threads to read with; ``None`` = one per core.
        - ``indices``: the steps to give, counted through all runs; ``None`` = all.

        Raises ``DecodeError`` for a damaged run, ``MemoryLimitError``, and as ``iter_batches`` does.
        """

    def to_table(self, *, workers: int | None = None) -> StepTable:
        """Return the steps of all runs as a table; ``run_id`` is the run's index in the pack.

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
        """Return the indices of all runs, or of all steps, divided in two by chance: (train, test), each ascending.

        - ``unit``: what is counted; held-out runs keep neighbouring steps on one side.
        - ``test_pct``: how much is held out, in percent, 0 to 100, rounded to the nearest whole number.
        - ``test_size``: or how many.
        - ``seed``: equal seeds give equal halves.

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
        """Write the runs as JSON Lines, a run or a step a line, in order, in bounded memory.

        docs/formats.md has the keys. A damaged run is left out and reported. The file appears whole or not at all, in
        place of another of that name.

        - ``parallel``: ``False`` = on one thread.
        - ``by_step``: a line for each step.
        - ``workers``: threads; ``None`` = one per core.
        - ``progress``: ``False`` = no progress bar; else there is one where standard error is a terminal.
        - ``compact``: boards as uint64 and four values or nulls instead of lists of cells and of objects.

        Raises ``OSError``, ``ValueError``, ``KeyboardInterrupt``.
        """

    def stats(self, *, progress: bool | None = None) -> PackStats:
        """Return statistics, from the pack where it has them, else computed in parallel, once.

        Raises ``KeyboardInterrupt`` on Ctrl-C.
        """

    def validate(
        self, *, sample: int | None = None, workers: int | None = None, progress: bool | None = None
    ) -> list[str]:
        """Return all that is wrong with the pack: every run is decoded, every checksum compared.

        - ``sample``: look at so many runs only, evenly spread.
        - ``workers``, ``progress``: as in ``to_jsonl``.

        Raises ``KeyboardInterrupt`` on Ctrl-C.
        """

    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class PackStats:
    """What a pack holds. Lengths are numbers of steps, percentiles the nearest among them."""

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
    def unreadable(self) -> int:
        """The number of runs whose beginning cannot be read; they are not in what follows."""

    @property
    def highest_tiles(self) -> dict[int, int]:
        """How many runs have this highest tile, by tile."""

    @property
    def engines(self) -> dict[str | None, int]:
        """How many runs each engine has, the most first."""

@final
class JsonlReport:
    """What became JSON Lines."""

    @property
    def num_runs(self) -> int:
        """The number of runs that were written."""

    @property
    def num_steps(self) -> int:
        """The number of their steps."""

    @property
    def num_bytes(self) -> int:
        """The size of what was written, in bytes."""

    @property
    def errors(self) -> list[str]:
        """The runs that could not be read, and why."""

@final
class PackIterator:
    """Runs of a pack."""

    def __iter__(self) -> PackIterator: ...
    def __next__(self) -> Run: ...

@final
class PackBatchIterator:
    """Lists of runs of a pack. ``len`` is the number of all of them, given or not."""

    def __iter__(self) -> PackBatchIterator: ...
    def __len__(self) -> int: ...
    def __next__(self) -> list[Run]: ...

@final
class PackStepIterator:
    """Batches of steps of a pack. ``len`` is the number of all of them, given or not."""

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
    """Play seeded games with the built-in player and write each to a run file of its own.

    The files depend on the options alone, whatever the number of workers. They are called ``run-00000.a2run2``, or
    ``.bin`` in A2T1, and so on; above 10,000 runs they go into subfolders of a thousand.

    - ``out``: the folder, made if it is not there.
    - ``runs``: the number of games.
    - ``seed``: what the games follow from, in ``0..2**64``.
    - ``format``: the files' format. ``"a2t1"`` has no room for the player's values of moves.
    - ``depth``: how many spawns the player looks ahead, 0 to 3. Each costs about fifty times more than the one before.
    - ``engine``: the engine's name in the files; ``None`` = one that tells the depth.
    - ``workers``: threads to play with; ``None`` = one per core.
    - ``progress``: ``False`` = no progress bar; else there is one where standard error is a terminal.

    Raises ``FileExistsError`` where a file is already there, since none is overwritten; ``ValueError`` for options
    outside their range; ``KeyboardInterrupt`` on Ctrl-C. Games that were over by then stay.
    """

@final
class SimulateReport:
    """What ``simulate`` wrote."""

    @property
    def runs(self) -> int:
        """The number of files."""

    @property
    def num_steps(self) -> int:
        """The number of steps in them."""

    @property
    def num_bytes(self) -> int:
        """Their size in bytes."""

# Recording games

@final
class Recorder:
    """Records games while they are played, many at once and from any number of threads.

    Each game is kept in memory until it ends. Games that ended are written together, in *rotations*: to a session
    ``<time>_model=<tag>`` in a folder, which is whole at any moment, or straight into an archive. Nobody who pushes
    waits for a rotation while there is memory left.

    A process that dies loses the games that no rotation had written, or with ``journal=True`` only those that had not
    ended. The next recorder in the same folder makes what it left whole, tells of it in ``unfinished``, and warns
    (``RuntimeWarning``) of what is lost. One into an archive looks after those of its own tag and archive.

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
        with_action: bool = True,
    ) -> Recorder:
        """Begin a recording.

        - ``root``: the folder of sessions, made if it is not there. With ``sink`` it has the journal, in a folder of
          its own.
        - ``tag``: the model's name: letters, digits and ``._+-``.
        - ``engine``, ``model_hash``, ``config_hash``, ``meta``: more to say of the session, ``meta`` as JSON by key.
        - ``sink``: an archive that receives the games instead, with values and final boards; ``refresh`` shows them.
          Every finished game is a run, even if it equals another: ``session`` and ``source_id`` tell them apart. A
          rotation takes the memory of an ingest, beside ``max_ram_mb``.
        - ``max_games``, ``max_steps``, ``max_wall_ms``: once one is reached no game begins; those under way go on, so
          that a session holds whole games. Steps that are kept count.
        - ``max_ram_mb``: millions of bytes for steps that are not written yet, at least 16; pushes wait where they are
          used up. ``None`` = half of what the machine has to give.
        - ``max_disk_mb``: millions of bytes on disk; a game that would exceed them is refused when it ends.
        - ``sample_rate``: one step of so many is kept, from the first on.
        - ``rotate_steps``, ``rotate_secs``: when to write: when so many steps wait, or so many seconds have passed.
          Besides, when two fifths of the memory are used.
        - ``journal``: whether a game is durable as soon as ``end`` returns, at the price of writing it twice.
        - ``with_action``: whether a session keeps the moves. Each step must come with one then.

        Raises ``ValueError`` for options outside their range; ``OSError``; ``ConflictError`` when a recorder into an
        archive is at work under the same tag.
        """

    def begin(self, seed: int | None = None) -> Game:
        """Begin a game.

        Raises ``RecorderLimitError`` when a limit is reached, see ``is_full``; ``ValueError`` when the recorder is
        closed; ``OSError``, once, when a rotation failed, which is tried again and has lost nothing.
        """

    def rotate(self) -> int:
        """Write all games that ended, wait until they are durable, and return how many are: all whose id is below."""

    def close(self) -> RecorderReport:
        """Write what is left and end the recording. Games under way are lost. May be called again."""

    @property
    def is_full(self) -> str | None:
        """The limit because of which no game can begin: "games", "steps", "ram", "wall" or "disk"."""

    @property
    def folder(self) -> Path:
        """The session's folder, or that of the journal."""

    @property
    def unfinished(self) -> list[Unfinished]:
        """The recordings that were found unfinished when this one began, and what became of them."""

    def stats(self) -> RecorderStats:
        """Return how far it is."""

    def __enter__(self) -> Recorder: ...
    def __exit__(self, *_exception: object) -> None:
        """Close the recorder."""

@final
class Game:
    """A game that is being recorded, by one thread at a time. One that is dropped before its end is abandoned."""

    def push(self, board: int | Sequence[int], move: int | None = None, ev: Sequence[float] | None = None) -> None:
        """Add a step.

        - ``board``: before the move: a packed board, or its sixteen exponents.
        - ``move``: 0 to 3, UDLR.
        - ``ev``: the values of the four moves, which an archive keeps and a session does not; those of illegal ones do
          not count, and four NaNs are none.

        Raises ``ValueError`` for what is no board or move, and without a move where moves are kept;
        ``RecorderLimitError`` when games under way alone take all memory.
        """

    def push_batch(
        self, boards: npt.NDArray[Any], moves: npt.NDArray[Any] | None = None, evs: npt.NDArray[Any] | None = None
    ) -> None:
        """Add steps, or none of them.

        - ``boards``: (n,) uint64, or (n, 16) exponents.
        - ``moves``: (n,) integers.
        - ``evs``: (n, 4) float32.

        Raises as ``push``.
        """

    def end(self, final_board: int | Sequence[int] | None = None) -> int:
        """End the game, with the board after its last move where that is known, and return its id in the session.

        Raises ``RecorderLimitError`` when it would exceed ``max_disk_mb``, and ``ValueError`` when the recorder is
        closed: then it is not kept. ``OSError`` when the journal cannot be written: then it is kept, and durable only
        with the next rotation.
        """

    def abandon(self) -> None:
        """Give the game up: nothing of it is kept."""

    def __len__(self) -> int:
        """Return the number of steps so far, those that are not kept included."""

@final
class RecorderStats:
    """How far a recorder is."""

    @property
    def begun(self) -> int:
        """Games that were begun."""

    @property
    def live(self) -> int:
        """Games under way."""

    @property
    def ended(self) -> int:
        """Games that ended and are kept."""

    @property
    def abandoned(self) -> int:
        """Games that were given up, or refused at their end."""

    @property
    def refused(self) -> int:
        """Games that were refused at their end."""

    @property
    def steps(self) -> int:
        """Steps that are kept, of games that ended."""

    @property
    def durable(self) -> int:
        """Games that are written: those whose id is below this number."""

    @property
    def rotations(self) -> int:
        """Rotations so far."""

    @property
    def disk_bytes(self) -> int:
        """Bytes on disk."""

    @property
    def ram_bytes(self) -> int:
        """Bytes of steps in memory."""

    @property
    def failure(self) -> str | None:
        """What went wrong with the last rotation, which is tried again."""

@final
class RecorderReport:
    """What was recorded."""

    @property
    def folder(self) -> Path:
        """The session's folder, or that of the journal."""

    @property
    def runs(self) -> int:
        """Games that are written."""

    @property
    def steps(self) -> int:
        """Their steps that are kept."""

    @property
    def rotations(self) -> int:
        """Rotations."""

    @property
    def abandoned(self) -> int:
        """Games that were given up, or refused at their end."""

    @property
    def refused(self) -> int:
        """Games that were refused at their end."""

    @property
    def live(self) -> int:
        """Games that were under way, and are lost."""

    @property
    def num_bytes(self) -> int:
        """Bytes on disk."""

    @property
    def elapsed_s(self) -> float:
        """Seconds that it took."""

@final
class Unfinished:
    """A recording whose recorder did not close it, and what became of it."""

    @property
    def folder(self) -> Path:
        """Its folder."""

    @property
    def runs(self) -> int:
        """Games that were written."""

    @property
    def from_journal(self) -> int:
        """Games among them that only the journal had."""

    @property
    def lost_runs(self) -> int:
        """Games that ended and are lost. After a power failure there may be more."""

    @property
    def lost_steps(self) -> int:
        """Steps that are lost with them, of a session."""

    @property
    def live(self) -> int:
        """Games that were under way, and are lost."""

    @property
    def error(self) -> str | None:
        """Why it stays as it is, if it does."""

def recover(folder: _Path, sink: Archive | None = None) -> Unfinished:
    """Make a session whole whose recorder died, and tell what became of it. Does nothing where nothing is to be done.

    - ``folder``: the session, or the folder of a recording into an archive, which is then given as ``sink``.

    Raises ``ConflictError`` when a recorder is at work there; ``OSError``; ``Error`` when something is damaged.
    """

# Games played with a policy

@final
class Player:
    """The built-in player, as a policy for ``a2store.selfplay.play``.

    It is also a policy like any other: called with tokens (B, 16) it returns moves (B,) uint8, 0 where none is legal.
    """

    def __new__(cls, depth: int = 1, *, workers: int | None = None) -> Player:
        """Make a player.

        - ``depth``: how many spawns it looks ahead, 0 to 3. Each costs about fifty times more than the one before.
        - ``workers``: threads to play with; ``None`` = one per core.

        Raises ``ValueError`` for another depth.
        """

    @property
    def depth(self) -> int:
        """How many spawns it looks ahead."""

    @property
    def workers(self) -> int | None:
        """The number of its threads, if that was given."""

    def __call__(self, tokens: npt.NDArray[Any], legal: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.uint8]:
        """Return its moves on boards."""

@final
class PlayResult:
    """What ``a2store.selfplay.play`` played. The arrays have a row for each game, in the order of their numbers."""

    def __len__(self) -> int:
        """Return the number of games that were played to their end."""

    @property
    def games(self) -> npt.NDArray[np.uint64]:
        """Their numbers: all from 0 unless ``stopped``."""

    @property
    def scores(self) -> npt.NDArray[np.int64]:
        """What the merges earned.

        An archive's ``max_score``, which follows from the final board, exceeds it by 4 for each 4 that spawned.
        """

    @property
    def highest_tiles(self) -> npt.NDArray[np.int64]:
        """The largest tile of each final board: 2048, not 11."""

    @property
    def num_steps(self) -> npt.NDArray[np.int64]:
        """The number of steps."""

    @property
    def final_boards(self) -> npt.NDArray[np.uint64]:
        """The boards after the last steps."""

    @property
    def terminated(self) -> npt.NDArray[np.bool_]:
        """Whether no move was left; false of a game that came to ``max_steps``."""

    @property
    def total_steps(self) -> int:
        """All steps that were made, those of games that were given up included."""

    @property
    def seconds(self) -> float:
        """How long it took, the policy's time included."""

    @property
    def steps_per_second(self) -> float:
        """``total_steps / seconds``."""

    @property
    def stopped(self) -> str | None:
        """The recorder's limit because of which not all games were played: ``"games"``, ``"disk"`` and so on."""

@final
class VectorEnv:
    """Games side by side, one in each slot, in which the caller moves.

    A game follows from the seed, its number and the moves made in it. A slot whose game is over stays as it is,
    whatever move is made there, until ``restart`` begins the next game in it. All arrays are copies.

    >>> env = VectorEnv(1024, seed=1)
    >>> while True:
    ...     rewards, over = env.step(policy(env.tokens(), env.legal()))
    ...     env.restart()
    """

    def __new__(cls, num_envs: int, seed: int = 0) -> VectorEnv:
        """Begin the first games of a seed.

        Raises ``ValueError`` for no games, or above 2**24.
        """

    def __len__(self) -> int:
        """Return the number of slots."""

    @property
    def num_envs(self) -> int:
        """The number of slots."""

    @property
    def seed(self) -> int:
        """What the games follow from."""

    def tokens(self, dtype: Literal["uint8", "int64"] = "uint8") -> npt.NDArray[Any]:
        """Return the boards' exponents row by row: (n, 16)."""

    def legal(self) -> npt.NDArray[np.bool_]:
        """Return whether up, down, left and right are legal: (n, 4). None is where the game is over."""

    @property
    def boards(self) -> npt.NDArray[np.uint64]:
        """The boards."""

    @property
    def over(self) -> npt.NDArray[np.bool_]:
        """Whether the game in each slot is over."""

    @property
    def games(self) -> npt.NDArray[np.uint64]:
        """The number of the game in each slot. They are numbered in the order in which they begin."""

    @property
    def scores(self) -> npt.NDArray[np.int64]:
        """What the merges of each game earned so far."""

    @property
    def num_steps(self) -> npt.NDArray[np.int64]:
        """The number of steps of each game so far."""

    def step(
        self, moves: _Indices, *, illegal: Literal["raise", "ignore"] = "raise"
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
        """Make a move in each game that is not over; return what each earned, and whether it is over now.

        - ``moves``: (n,) integers, 0 to 3.
        - ``illegal``: what a move does that does not change its board: raise, and no game is stepped; or nothing.

        Raises ``ValueError`` for an illegal move, with its row and board, and for more or fewer moves than slots;
        ``TypeError`` when they are not integers of one dimension.
        """

    def restart(self, mask: npt.NDArray[np.bool_] | None = None) -> int:
        """Begin the next games where a mask is true, over or not; ``None`` = where games are over.

        Returns how many began. Raises ``ValueError`` for a mask of another shape or type.
        """

    def reset(self, seed: int | None = None) -> None:
        """Begin anew with the first games of a seed; ``None`` = the same seed."""

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
    """Play games, for ``a2store.selfplay.play``."""

# Archive

@final
class Archive:
    """A growing collection of runs in a folder, or under the URL of an object store, seen at one version.

    The folder holds Parquet files, which any tool may read, and a log of commits that says which of them count. What
    others commit is not seen until ``refresh``; ``ingest`` moves to the version that it makes. Make one with
    ``Archive.create`` or ``Archive.open``. Threads may share it.

    >>> archive = a2store.Archive.create("games.a2")
    >>> archive.ingest("runs/").accepted
    >>> archive.sql("SELECT count(*) FROM steps WHERE phase = 'late'")
    """

    @classmethod
    def create(cls, path: _Path, *, phases: dict[str, int] | None = None) -> Self:
        """Create an empty archive, at version 1.

        - ``path``: the archive's folder, made if it is not there, or a URL: ``s3://bucket/games.a2``, ``gs://...``,
          ``az://...``. Credentials and endpoints are taken from the environment, as each service's tools do:
          ``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, ``GOOGLE_APPLICATION_CREDENTIALS``,
          ``AZURE_STORAGE_ACCOUNT_NAME`` and so on.
        - ``phases``: the smallest tile of the phase ``"mid"`` and of the phase ``"late"``, by the largest tile on the
          board; below ``"mid"`` a step is ``early``. The default is ``{"mid": 1024, "late": 4096}``, for either one
          that is left out too. An archive keeps its phases for good.

        Raises ``ArchiveExistsError`` when there already is one; ``ValueError`` unless both are tiles (2, 4, ..., 32768)
        with mid below late; ``OSError``; ``KeyboardInterrupt`` on Ctrl-C.

        >>> archive = a2store.Archive.create("games.a2", phases={"mid": 2048, "late": 8192})
        """

    @classmethod
    def open(cls, path: _Path, *, version: int | None = None, checksums: bool | None = None) -> Self:
        """Open an archive.

        - ``path``: the archive's folder or URL, as in ``create``.
        - ``version``: the version to see, from 1, which is the empty archive; ``None`` = the newest.
        - ``checksums``: whether queries and exports compare each data file with the checksum in its commit, the first
          time that this process reads the file. If off, a flipped bit in a data file can change an answer. ``None`` =
          on for a folder; off for a URL, because it would fetch whole files.

        Raises ``FileNotFoundError`` when there is no such folder; ``ArchiveError`` when it holds no archive, or one
        that a newer a2store wrote; ``VersionNotFoundError``; ``DamagedError`` when a commit does not fit its checksum
        or the one before it; ``KeyboardInterrupt`` on Ctrl-C.
        """

    def refresh(self) -> None:
        """Move to the newest version, also from an older one that was asked for.

        If another thread has moved to a later version meanwhile, the archive stays at that version. Raises as ``open``
        does; the archive then stays at its version.
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
        """Add the runs of files, and of those in folders with all their subfolders, as one commit.

        Run files, packs, pack.dat files, NumPy datasets, self-play sessions and Macroxue logs are told by their
        content. In folders, files that hold nothing known are passed over, and so are those whose names begin with a
        dot or end in ``.tmp``; files named ``*.a2run2``, ``*.bin`` and ``*.a2t1`` are expected to hold runs.
        docs/formats.md says what each format has and lacks. A run that the archive already holds, known by its content,
        is skipped. Run ids follow the order of the paths, and in folders that of the names. When nothing is new,
        nothing is committed. Either way this archive then shows the newest version. Interrupted at any moment and
        repeated, it ends in the same archive. Memory does not depend on the size of the input: about 100 MB, some 50 MB
        a worker, and up to 34 bytes a run of the archive.

        - ``paths``: a file or folder, or several.
        - ``workers``: threads to decode and encode with, 1 to 1024; ``None`` = one per core.
        - ``progress``: ``False`` = no progress bar; else there is one where standard error is a terminal.
        - ``on_error``: what a file that does not decode, or cannot be read, does. ``"report"`` lists it in the report
          and goes on, ``"raise"`` raises its error and adds nothing at all.
        - ``wait``: how long to wait for another process of this machine that is writing to the archive, in seconds or
          as a ``timedelta``; ``None`` = ten minutes.

        Raises ``FileNotFoundError`` for a path that is not there; ``ConflictError`` when another goes on writing;
        ``UnconfirmedError``; ``KeyboardInterrupt`` on Ctrl-C; with ``on_error="raise"`` also ``DecodeError`` or
        ``OSError`` for the first bad file. The archive is then as it was, except that after ``UnconfirmedError`` only
        repeating the call tells.

        >>> report = archive.ingest(["runs/", "more/run-00007.a2run2"])
        >>> for rejected in report.errors:
        ...     print(rejected.path, rejected.message)
        """

    def compact(
        self,
        *,
        file_rows: int | None = None,
        workers: int | None = None,
        progress: bool | None = None,
        wait: _Duration | None = None,
    ) -> CompactReport:
        """Rewrite small data files, as hourly appends leave them, as files of full size, in a commit of its own.

        Rows, their order and their ids stay the same; the new files are compared with the old ones row by row before
        they are committed. Readers and writers may be at work. Nothing is removed: older versions keep their files
        until ``expire``.

        - ``file_rows``: rows from which a file is full; ``None`` = 16,777,216. A file with half of them is left alone.
        - ``workers``, ``progress``, ``wait``: as in ``ingest``.

        Raises ``DamagedError`` for a file that cannot be read back, and as ``ingest`` does. The archive is then as it
        was.
        """

    def expire(
        self,
        *,
        older_than: _Duration | None = None,
        grace: _Duration | None = None,
        dry_run: bool = False,
        wait: _Duration | None = None,
    ) -> ExpireReport:
        """Give up versions that were replaced long ago, and remove the data files that no kept version names.

        Commits stay, so ``history`` has them all. The newest version is always kept. Whoever still reads a version
        that is given up will miss its files.

        - ``older_than``: versions that were replaced longer ago than this go, in seconds or as a ``timedelta``;
          ``None`` = 30 days.
        - ``grace``: how long files that no commit names stay after they were last changed. Interrupted writers leave
          such files, but they may also be another machine's, which has yet to commit. ``None`` = one day. While a
          repair has set commits aside (``_log/*.damaged``), these files stay in any case.
        - ``dry_run``: only report what would go.
        - ``wait``: as in ``ingest``.

        Raises ``ValueError`` for negative durations, and as ``ingest`` does.

        >>> archive.expire(older_than=timedelta(days=7)).num_bytes
        """

    def verify(self, *, deep: bool = False, workers: int | None = None, progress: bool | None = None) -> VerifyReport:
        """Look for everything that is wrong with the archive, at its newest and all other kept versions.

        As ``a2store.verify(archive.location, ...)``.
        """

    @property
    def location(self) -> str:
        """The archive's folder, absolute, or its URL."""

    @property
    def path(self) -> Path:
        """The archive's folder, absolute.

        Raises ``ValueError`` for an archive on an object store, which has a ``location`` only.
        """

    @property
    def version(self) -> int:
        """The version that is seen; the empty archive is version 1."""

    @property
    def num_runs(self) -> int:
        """The number of runs at this version."""

    @property
    def num_steps(self) -> int:
        """The number of steps at this version."""

    @property
    def phases(self) -> dict[str, int]:
        """The smallest tile of the phases ``"mid"`` and ``"late"``; see ``create``."""

    def schema(self, table: _TableName = "steps") -> ArrowSchema:
        """Return the columns of a table, the same at every version.

        Raises ``ValueError`` for another table.

        >>> pyarrow.schema(archive.schema("runs"))
        """

    def history(self) -> list[CommitInfo]:
        """Return the commits up to this version, the newest first, those of versions that have expired included."""

    def files(self, table: _TableName = "steps") -> list[str]:
        """Return the absolute paths, or URLs, of a table's Parquet files at this version, in order of their run ids.

        They never change, and together hold exactly the table's rows. The list is empty while the table is.

        Raises ``ValueError`` for another table.

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

        The dialect is DataFusion's, with functions over boards (``a2store.functions()``). One SELECT, WITH, VALUES or
        EXPLAIN is allowed, and nothing but these tables can be read; docs/sql.md says what else is refused. The query
        is planned here, so that mistakes show at once, and runs when its result is asked for.

        - ``query``: the text, with ``$name``, or ``$1``, ``$2``, ..., where parameters stand.
        - ``params``: their values, a dict for names, else a sequence; all of them and no others. Values are bound,
          never pasted into the text. They may be None, bool, int in ``-2**63..2**64``, float, str, bytes, NumPy scalars
          of these, dates and times.
        - ``tables``: tables of your own by name, to join with: whatever speaks the Arrow C interface (pyarrow, polars,
          pandas, DuckDB, another query), which is kept in memory, or the path of a Parquet file.
        - ``memory_limit``: bytes that the query's operators may hold at once, at least 32 MiB; sorts and groups go to
          temporary files before they fail. ``None`` = half of the machine's memory, for all queries together.
        - ``spill_limit``, ``spill_folder``: bytes of such files, ``None`` = 64 GiB, and where they lie, in a folder of
          their own that goes with the query.
        - ``row_limit``, ``byte_limit``: rows and bytes that the result may have.
        - ``time_limit``: seconds from the beginning of the result to its end.

        Raises ``QueryRefusedError`` for text that is not such a query, ``QueryError`` for text that does not parse or
        plan, and for parameters that do not match it; ``TypeError`` for a value or a table of another type;
        ``ValueError`` for a name or a limit that cannot be; ``OSError`` and ``DecodeError`` for files. At a limit the
        result raises ``QueryLimitError``.

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
        """Plan a named query: one of ``a2store.queries()``.

        - ``name``: its name.
        - ``folder``: a folder of ``.sql`` files of your own, in place of those that come with a2store.
        - ``tables``, ``memory_limit``, ``spill_limit``, ``spill_folder``, ``row_limit``, ``byte_limit``,
          ``time_limit``: as in ``sql``. No parameter has one of these names.
        - ``params``: values of its parameters; those not given have their defaults.

        Raises ``ValueError`` for a name that is not there, with those that are, and for a limit that cannot be;
        ``QueryError`` for a parameter that is missing, unknown or of another type; ``DecodeError`` for a file whose
        head does not say what it must. At a limit the result raises ``QueryLimitError``.

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
        append: bool = False,
        workers: int | None = None,
        progress: bool | None = None,
    ) -> ExportReport:
        """Write the runs that a query names, in the order of their ids, as files of any format.

        ``"original"`` gives back the very bytes of run files, each in the format it came in. Run files are named by id,
        ``out/run-00000042.a2run2``, a thousand to a folder if there are more. What a format has no room for is left out
        as docs/formats.md says, but a run without a final board is refused where a whole game is needed. No file is
        replaced.

        - ``query``: SQL whose result has a column ``run_id``.
        - ``out``: a folder for run files and for ``"npy"``; else the file, or a folder for a file of the usual name.
        - ``format``: ``"original"``, ``"a2t1"``, ``"a2run2"``, ``"a2pack"``, ``"packdat"``, ``"npy"``,
          ``"session"`` or ``"jsonl"``.
        - ``params``: as in ``sql``.
        - ``by_step``, ``compact``: ``"jsonl"``: a line for each step; the shape that DuckDB reads as it is.
        - ``compress``, ``align``: ``"a2pack"``: how runs are stored, and at multiples of how many bytes, 8 to 4096.
        - ``shard_rows``: ``"npy"`` and ``"session"``: rows to a file; ``None`` = all in one.
        - ``append``: ``"packdat"`` and ``"npy"``: add to what is there.
        - ``workers``: threads; ``None`` = one per core.
        - ``progress``: ``False`` = no progress bar; else there is one where standard error is a terminal.

        Raises ``QueryError``; ``ValueError`` for a query without ``run_id`` and a run that the format has no room for,
        before anything is written; ``FileExistsError``; ``DamagedError``; ``KeyboardInterrupt`` on Ctrl-C.

        >>> archive.export_runs("SELECT run_id FROM runs WHERE max_score >= 50000", "best.a2pack", format="a2pack")
        """

@final
class ExportReport:
    """What was exported."""

    @property
    def path(self) -> Path:
        """The file that was written, or the folder."""

    @property
    def runs(self) -> int:
        """The number of runs."""

    @property
    def num_steps(self) -> int:
        """The number of their steps."""

    @property
    def num_files(self) -> int:
        """The number of run files, or 1."""

@final
class CommitInfo:
    """One line of an archive's history."""

    @property
    def version(self) -> int:
        """The version that the commit made."""

    @property
    def time(self) -> str:
        """When it was made, in UTC as in RFC 3339: ``2026-01-31T12:00:00.000Z``."""

    @property
    def operation(self) -> Literal["create", "ingest", "compact", "expire", "repair"]:
        """What it did."""

    @property
    def txn(self) -> str:
        """What names this commit among all: 32 hexadecimal digits."""

    @property
    def added_runs(self) -> int:
        """The number of runs that it added: those with the ids ``next_run_id - added_runs .. next_run_id``."""

    @property
    def added_steps(self) -> int:
        """The number of steps that it added."""

    @property
    def next_run_id(self) -> int:
        """Ids below this one had been given out after it."""

    @property
    def added_files(self) -> int:
        """The number of data files that it added."""

    @property
    def removed_files(self) -> int:
        """The number of data files that later versions do not have any more."""

    @property
    def num_runs(self) -> int:
        """The number of runs in the archive after it."""

    @property
    def num_steps(self) -> int:
        """The number of steps in the archive after it."""

@final
class IngestReport:
    """What an ingest did."""

    @property
    def accepted(self) -> int:
        """The number of runs that were added."""

    @property
    def duplicates(self) -> int:
        """The number of runs that the archive, or the input itself, already held."""

    @property
    def rejected(self) -> int:
        """The number of runs, and of whole files, that could not be read; each is one of ``errors``."""

    @property
    def ignored(self) -> int:
        """The number of files in folders that hold nothing known."""

    @property
    def num_steps(self) -> int:
        """The number of steps that were added."""

    @property
    def num_bytes(self) -> int:
        """The size of the files that were read, in bytes."""

    @property
    def errors(self) -> list[Rejected]:
        """The runs and files that did not decode or could not be read, in the order of the paths."""

@final
class Rejected:
    """A run, or a whole file, that an ingest could not take, and why."""

    @property
    def path(self) -> str:
        """The file, or the folder of a dataset or session."""

    @property
    def offset(self) -> int | None:
        """Where in the file it is wrong, in bytes from its start, where that is known."""

    @property
    def run(self) -> int | None:
        """Which of the file's runs is wrong, from 0; ``None`` = the file as a whole, or the only run in it."""

    @property
    def step(self) -> int | None:
        """The step of the run that is wrong, from 0, where that is known."""

    @property
    def kind(self) -> str:
        """A short name of what is wrong: ``"decode"``, ``"checksum"``, ``"header"`` or ``"io"``."""

    @property
    def message(self) -> str:
        """What is wrong and where, in one line, without the path."""

@final
class CompactReport:
    """What a compaction did."""

    @property
    def files_before(self) -> int:
        """The number of data files before."""

    @property
    def files_after(self) -> int:
        """The number of data files since."""

    @property
    def bytes_before(self) -> int:
        """Their size before, in bytes."""

    @property
    def bytes_after(self) -> int:
        """Their size since, in bytes."""

    @property
    def num_rows(self) -> int:
        """The number of rows that were rewritten, of both tables."""

@final
class ExpireReport:
    """What was given up and removed, or would be."""

    @property
    def first_version(self) -> int:
        """The oldest version that can be opened since."""

    @property
    def num_versions(self) -> int:
        """The number of versions that cannot be opened any more."""

    @property
    def num_files(self) -> int:
        """The number of data files that were removed."""

    @property
    def num_bytes(self) -> int:
        """Their size in bytes."""

    @property
    def paths(self) -> list[str]:
        """All that was removed, relative to the archive: data files and leftovers of interrupted writers."""

@final
class VerifyReport:
    """What was looked at, and what was wrong."""

    @property
    def problems(self) -> list[Problem]:
        """All that is wrong; empty = the archive is sound."""

    @property
    def version(self) -> int:
        """The newest version, 0 when it cannot be read."""

    @property
    def num_commits(self) -> int:
        """The number of commits that were read."""

    @property
    def num_files(self) -> int:
        """The number of data files that were read, those of older versions included."""

    @property
    def num_bytes(self) -> int:
        """Their size in bytes."""

    @property
    def num_runs(self) -> int:
        """The number of runs at the newest version."""

    @property
    def num_steps(self) -> int:
        """The number of steps at the newest version."""

    @property
    def unnamed_files(self) -> int:
        """The number of data files that no kept version names; they do no harm, and ``expire`` removes them."""

@final
class Problem:
    """Something that is wrong with an archive."""

    @property
    def path(self) -> str:
        """The file, relative to the archive."""

    @property
    def run_id(self) -> int | None:
        """The run, where one is to blame."""

    @property
    def what(self) -> str:
        """What about it is wrong."""

    @property
    def expected(self) -> str:
        """What the rest of the archive demands."""

    @property
    def found(self) -> str:
        """What was found."""

@final
class RepairReport:
    """What a repair did, or would do."""

    @property
    def version(self) -> int:
        """The last sound version, from which the archive goes on."""

    @property
    def steps(self) -> list[Repair]:
        """The steps in their order; empty when there is nothing to repair."""

    @property
    def done(self) -> bool:
        """Whether the steps were taken."""

@final
class Repair:
    """One step of a repair."""

    @property
    def path(self) -> str:
        """The file, relative to the archive."""

    @property
    def action(self) -> str:
        """What happens to it."""

    @property
    def reason(self) -> str:
        """Why."""

def verify(
    path: _Path, *, deep: bool = False, workers: int | None = None, progress: bool | None = None
) -> VerifyReport:
    """Look for everything that is wrong with an archive, damage that keeps it from being opened included.

    Every commit and the chain that they form; of every file that a kept version names its presence, length, checksum,
    footer, rows, ids and statistics; and what the tables say of each other. Nothing that is wrong raises: it is listed.

    - ``path``: the archive's folder or URL.
    - ``deep``: also rebuild every run from its columns: its digest, and whether its moves obey the rules, as
      ``runs.verified`` says.
    - ``workers``: threads; ``None`` = one per core.
    - ``progress``: ``False`` = no progress bar; else there is one where standard error is a terminal.

    Raises ``ArchiveError`` where there is no archive; ``ConflictError`` when other processes repeatedly replace and
    expire the newest version meanwhile; ``OSError``; ``KeyboardInterrupt``.

    >>> for problem in a2store.verify("games.a2", deep=True).problems:
    ...     print(problem.path, problem.what, problem.expected, problem.found)
    """

def repair(path: _Path, *, dry_run: bool = True) -> RepairReport:
    """Repair an archive with damaged or missing commits.

    A lost commit that a checkpoint covers is rebuilt. Otherwise the archive continues from the last sound version, with
    the runs of all sound commits after it. No data is removed: replaced files are renamed to ``_log/*.damaged``. While
    such files exist, ``expire`` keeps unreferenced data files. You can ingest the runs of lost commits again; their old
    ids are not reused. An interrupted repair that is repeated ends in the same archive.

    - ``path``: the archive's folder or URL.
    - ``dry_run``: only say what would be done.

    Raises ``DamagedError`` when no version can be read; ``ArchiveError`` where there is no archive, or a newer a2store
    wrote it; ``ConflictError``; ``OSError``; ``KeyboardInterrupt`` on Ctrl-C.
    """

# Query

def queries(folder: _Path | None = None) -> list[SavedQuery]:
    """Return the named queries that come with a2store, or those in the ``.sql`` files of a folder, by name.

    Raises ``DecodeError`` with file and line for a file whose head does not say what it must; ``OSError``.

    >>> for query in a2store.queries():
    ...     print(query.name, query.purpose)
    """

@final
class SavedQuery:
    """A named query: a file of SQL whose head says what it takes and gives. ``Archive.query`` runs it."""

    @property
    def name(self) -> str:
        """The file's name without ``.sql``."""

    @property
    def purpose(self) -> str:
        """What it is for."""

    @property
    def parameters(self) -> tuple[SavedParameter, ...]:
        """What it takes."""

    @property
    def columns(self) -> tuple[SavedColumn, ...]:
        """What it gives."""

    @property
    def sql(self) -> str:
        """The whole file."""

@final
class SavedParameter:
    """A parameter of a named query."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def type(self) -> Literal["bool", "int64", "uint64", "float64", "string"]:
        """Its type; a value of another is refused."""

    @property
    def default(self) -> bool | int | float | str | None:
        """Its value when none is given; see ``required``."""

    @property
    def required(self) -> bool:
        """Whether it must be given."""

    @property
    def doc(self) -> str:
        """What it is."""

@final
class SavedColumn:
    """A column of a named query."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def type(self) -> str:
        """Its Arrow type; ``"string"`` for dictionaries of strings too."""

    @property
    def doc(self) -> str:
        """What it is."""

def functions() -> list[SqlFunction]:
    """Return the functions over boards, moves and values that SQL has beside the engine's own.

    >>> for function in a2store.functions():
    ...     print(function.signature, function.doc)
    """

@final
class SqlFunction:
    """A function over boards, moves or values of moves."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def signature(self) -> str:
        """The call, such as ``"tile(board, cell)"``."""

    @property
    def returns(self) -> str:
        """The Arrow type of the result."""

    @property
    def doc(self) -> str:
        """What it returns, and in which range."""

    @property
    def example(self) -> tuple[str, str]:
        """A call with literals, and its value as text."""

@final
class Query:
    """A planned query over one version of an archive.

    Nothing runs until the result is asked for, and each time it is asked for the query runs anew. Whatever reads Arrow
    streams reads a query (``__arrow_c_stream__``), batch by batch as they are made, so that the result need not fit in
    memory. A failure while the query runs is then raised by the reader, in an exception of its own.

    A query that only filters, selects and computes on rows of one table gives them in the order of the table, ``steps``
    by ``(run_id, step_index)``; any other has the order of its ORDER BY, or none in particular.

    >>> query = archive.sql("SELECT board, move FROM steps WHERE phase = 'late'")
    >>> pyarrow.table(query)
    >>> polars.DataFrame(query)
    >>> duckdb.sql("SELECT move, count(*) FROM query GROUP BY move")
    """

    @property
    def schema(self) -> ArrowSchema:
        """The columns of the result."""

    def count(self) -> int:
        """Run the query for the number of its rows alone.

        Raises ``QueryError``.
        """

    def explain(self, *, analyze: bool = False) -> str:
        """Return the plan as text: which columns are read, and where filters are applied.

        The first line, if there is such a filter, has the filters that are decided once a run, so that only the steps
        of those runs are read; ``predicate`` is what the Parquet reader filters by.

        - ``analyze``: run the query, discard its rows, and add what each part did and how long it took.

        Raises ``QueryError``.
        """

    def show(self, max_rows: int = 20) -> None:
        """Print the first rows as a table.

        - ``max_rows``: how many; the query is stopped once they are there.

        Raises ``QueryError``.
        """

    def _repr_html_(self) -> str:
        """Return the first ten rows as an HTML table: what a notebook shows."""

    def to_arrow(self) -> Any:
        """Run the query into a ``pyarrow.Table``.

        Raises ``ImportError`` where pyarrow is not installed, and what pyarrow makes of a failure of the query.
        """

    def to_pandas(self) -> Any:
        """Run the query into a ``pandas.DataFrame``, by way of pyarrow; raises as ``to_arrow``."""

    def to_polars(self) -> Any:
        """Run the query into a ``polars.DataFrame``; raises as ``to_arrow``."""

    def materialize(
        self,
        *,
        extra: Sequence[str] = ...,
        chosen_ev: Literal["stored", "one"] = "stored",
        memory_limit: int | None = None,
        path: _Path | None = None,
        progress: bool | None = None,
    ) -> StepTable:
        """Run the query into a table in memory, or in a file, 32 bytes a row without extra columns.

        These columns of the result are taken by name; all others are left out. A column of another numeric type is
        cast, and a value outside the range of the type is an error:

        - ``board``, uint64: must be there.
        - ``move``, uint8: 0 to 3; 255 where it is null, or not in the result.
        - ``ev_up``, ``ev_down``, ``ev_left``, ``ev_right``, float32: 0.0 where one is null, or not in the result; four
          NaNs where all are.
        - ``ev_legal``, uint8: a legality mask; that of the rules where it is null, or not in the result.
        - ``run_id``, uint32, and ``step_index``, at most 65,535: 0 when they are not in the result.

        Rows are in the order of the query's ORDER BY, or else of ``(run_id, step_index)``, whatever the number of
        threads. Rows that an ORDER BY leaves equal are in that order too.

        - ``extra``: further columns of the result to append to each row, of bools, integers, floats or strings. Numbers
          keep their type; a null is NaN among floats and an error among others. Of strings and dictionaries of strings,
          at most 32,767 different ones, rows have codes: int16, the string's place in ``table.categories``, -1 = null.
          The default is none.
        - ``chosen_ev``: what stands as the value of the chosen move, for steps that have values. ``"stored"`` = the
          archive's value, ``"one"`` = exactly 1.0.
        - ``memory_limit``: the most bytes that the rows may take in memory; ``None`` = the memory that the system has
          available. Rows in a file have no limit.
        - ``path``: a file for the rows, of the kind that ``StepTable.save`` writes, from which they are then mapped. It
          may be larger than memory, and appears, in place of one of that name, when it is whole and on disk.
        - ``progress``: ``False`` = no progress bar; else there is one where standard error is a terminal.

        Raises ``ColumnError`` for a column that is missing, of another type, or with a value that does not fit, with
        the row; ``MemoryLimitError``; ``QueryError``; ``ValueError`` for options outside their range, and for an extra
        column that is named twice or that a row has anyway; ``OSError`` where the file cannot be written;
        ``KeyboardInterrupt`` on Ctrl-C. None of them leaves a file behind.

        >>> table = archive.sql("SELECT * FROM steps WHERE has_evs").materialize(extra=["max_score"], chosen_ev="one")
        >>> table.take([0, 1])["max_score"]
        >>> table = archive.sql("SELECT * FROM steps").materialize(extra=["engine"], path="steps.npy")
        >>> table.categories["engine"]
        """

    def __arrow_c_schema__(self) -> object:
        """Return the result's schema as an ``arrow_schema`` capsule."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Run the query and return its result as an ``arrow_array_stream`` capsule.

        - ``requested_schema``: an ``arrow_schema`` capsule of the types to cast the columns to, as far as it goes.

        Raises ``QueryError``.
        """

# Table

@final
class StepTable:
    """A query's rows, one after the other in one read-only mapping of memory or of a file; or a view of some of them.

    A row has these fields, then the extra columns, the widest first, and is padded to a multiple of 8 bytes:

    - ``board``: uint64, at byte 0.
    - ``ev_values``: four float32 in the order UDLR, at byte 8; 0.0 where illegal, four NaNs for a step without values.
    - ``run_id``: uint32, at byte 24.
    - ``step_index``: uint16, at byte 28.
    - ``move``: uint8, 0 to 3 in the order UDLR, 255 = none, at byte 30.
    - ``ev_legal``: uint8, a legality mask, at byte 31.

    ``numpy.asarray(table)`` shares its memory, as does ``rows_array``; ``pyarrow.table(table)`` and other readers of
    ``__arrow_c_stream__`` get columns, which are copies. ``len(table)`` is the number of rows. Make one with
    ``Query.materialize``, ``StepTable.load``, ``StepTable.from_runs`` or ``StepTable.from_session``.

    ``filter`` and ``split`` give views, which do all that a table does. They share its memory; only what asks for all
    their rows in one piece gets a copy of them.

    A table can be pickled, as ``multiprocessing`` does with arguments: what is pickled is a handle, and the process
    that unpickles it, of the same user on the same machine, has the same rows without a copy. The first time, a table
    in memory moves into memory that processes can share, in place and at about the speed of a copy; arrays made of it
    before stay valid. The handle is good as long as the process that made it has the table, or, for a table in a file,
    as long as the file stays as it is; after that unpickling raises ``OSError`` or ``DamagedError``. A process that has
    the table keeps it whatever becomes of the others, and when the last one ends its memory is free. Of a view the
    handle has its stretches of rows, 16 bytes each.

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
        """NumPy's structured type of a row, with the fields' offsets and ``itemsize == stride``."""

    @property
    def fingerprint(self) -> str:
        """The name of the data and its order, 32 hexadecimal digits.

        Tables with the same fingerprint have the same rows in the same order. It is a hash of the archive and its
        version, the query's text and parameters, the options ``extra`` and ``chosen_ev``, and the filters and splits
        of a view. If a query does not determine its rows (window functions, sums of floats, ``random()``), the hash
        covers the rows instead of the text. A saved table keeps its fingerprint when it is loaded. A table from a
        file of another program has a hash of its rows.
        """

    @property
    def is_view(self) -> bool:
        """Whether this is a view, as ``filter`` and ``split`` give them."""

    @property
    def categories(self) -> dict[str, list[str]]:
        """The strings that the codes of extra columns stand for, by column: in ascending order, by their UTF-8 bytes.

        The code of ``categories[name][k]`` is ``k``. Columns of numbers are not in it.

        >>> table.filter(run_ids=[7]).take([0])["engine"] == table.categories["engine"].index("expectimax")
        """

    def take(self, indices: _Indices) -> Batch:
        """Return the rows at some indices as columns, in that order and as often as they stand there.

        - ``indices``: a one-dimensional sequence or array of integers in ``0..len(table)``. Negative ones do not count
          from the end.

        Raises ``IndexError`` with the first index that is out of bounds; ``TypeError`` when they are not integers;
        ``ValueError`` when they do not have one dimension; ``MemoryError``; ``KeyboardInterrupt`` on Ctrl-C, also in
        the middle of a long copy.

        >>> table.take([5, 0, 5]).tokens.shape
        (3, 16)
        """

    def take_rows(self, indices: _Indices) -> npt.NDArray[np.void]:
        """Return the rows at some indices as they are, in that order and as often as they stand there.

        - ``indices``: as for ``take``.

        Returns a new, writable structured array: shape (indices,), of type ``table.dtype``. Raises as ``take`` does.
        """

    def rows_array(self) -> ArrowArray:
        """Return the rows as an Arrow array of ``FixedSizeBinary(stride)``.

        It shares the table's memory; that of a view is a copy.
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
        """Return a view of the rows that meet every condition, in the same order.

        It costs one pass over the table and 16 bytes for each stretch of rows. The scores and engines of the runs are
        read from the archive, at the table's version, when they are first asked for; a file that ``save`` wrote has
        them.

        - ``min_score``, ``max_score``: the lowest and the highest ``max_score`` of a run, both included.
        - ``engine``: the run's engine, or one of several. No row of a run without an engine meets it.
        - ``phase``: the phase of the game, or one of several, by the largest tile on the board and the archive's
          ``phases``.
        - ``run_ids``: the runs' ids, in any order.

        Raises ``ValueError`` for another phase, for ids outside ``0..2**32``, and for scores and engines where the rows
        came from a file that knows nothing of its runs; ``TypeError`` for values of another type; ``QueryError``,
        ``DamagedError`` or ``OSError`` when the archive's runs can no longer be read.

        >>> late = table.filter(min_score=20_000, engine=["expectimax", "greedy"], phase="late")
        """

    def split(self, val: float = 0.1, *, seed: int = 0) -> tuple[StepTable, StepTable]:
        """Return two views, ``(train, val)``: disjoint by run, and together all rows.

        Whether a run is held out follows from its id and the seed alone. So it stays where it is when the archive
        grows, and no run leaves ``val`` when its share does. To split a view again, take another seed.

        - ``val``: about the share of the runs that are held out, in ``0..=1``.
        - ``seed``: what the choice follows from, in ``0..2**64``.

        Raises ``ValueError`` for another share.

        >>> train, val = table.split(0.05)
        """

    def save(self, path: _Path, *, progress: bool | None = None) -> None:
        """Write the rows to a ``.npy`` file, which ``numpy.load`` opens as a structured array.

        What ``load`` needs beside them stands behind the rows, where NumPy does not look: the fingerprint, categories
        and checksums, and score and engine of each run. Of a view, the rows that it shows are written. The file appears
        when it is whole and on disk; one that was there before is replaced, and stays what it was for whoever has it
        mapped.

        - ``path``: the file.
        - ``progress``: ``False`` = no progress bar; else there is one where standard error is a terminal.

        Raises ``OSError``; ``ValueError`` for names of extra columns that NumPy's header cannot hold, which are those
        that are not ASCII; ``KeyboardInterrupt`` on Ctrl-C. None of them leaves a file behind.
        """

    @staticmethod
    def load(
        path: _Path, *, mmap: bool = False, memory_limit: int | None = None, progress: bool | None = None
    ) -> StepTable:
        """Return the table of a ``.npy`` file: one that ``save`` wrote, or any with the fields of a row.

        A table that was saved comes back as it was, fingerprint included, so that a loader's state of before goes on.

        Headers of NumPy's formats 1.0, 2.0 and 3.0 are supported, each in its encoding.

        Any other structured array of one dimension will do that has a field ``board``, and of ``move``, ``ev_legal``,
        ``ev_values``, ``run_id`` and ``step_index`` what it has, by name and of the types above, at any places. What is
        missing is as in ``Query.materialize``; further fields of one number or bool become extra columns. Its phases
        begin at 1024 and 4096.

        - ``path``: the file.
        - ``mmap``: ``True`` = map the file, so that processes share its pages and it may be larger than memory. It must
          then lie as ``save`` writes it, and not change while it is mapped; the rows' checksum is not compared.
          ``False`` = read it.
        - ``memory_limit``: the most bytes that the rows may take when they are read; ``None`` = the memory that the
          system has available.
        - ``progress``: ``False`` = no progress bar; else there is one where standard error is a terminal.

        Raises ``DecodeError`` and ``DamagedError`` for a file that is no such thing, was cut short or changed;
        ``ColumnError`` for a field that is missing, of another type, or with a value that does not fit; ``ValueError``
        for a file that cannot be mapped; ``MemoryLimitError``; ``OSError``; ``KeyboardInterrupt`` on Ctrl-C.

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
    ) -> StepTable:
        """Read runs of any format straight into a table, without an archive.

        A row's ``run_id`` is the run's place among all that were read, from 0, wanted or not: for a single pack, its
        index there. Phases begin at 1024 and 4096.

        - ``paths``: what ``Archive.ingest`` takes, in the same order.
        - ``min_score``, ``max_score``: only runs of such scores, bounds included.
        - ``min_steps``, ``max_steps``: only runs of so many steps, bounds included.
        - ``engine``: only runs of this engine.
        - ``chosen_ev``: the value of the chosen move, as in ``Query.materialize``.
        - ``memory_limit``: the most bytes that the rows may take; ``None`` = the memory that the system has available.
        - ``workers``: threads; ``None`` = one per core.
        - ``progress``: ``False`` = no progress bar; else there is one where standard error is a terminal.

        Raises ``DecodeError`` or ``OSError`` for the first run that cannot be read; ``ValueError`` for a run of more
        than 65,536 steps; ``MemoryLimitError``; ``KeyboardInterrupt`` on Ctrl-C.

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
        """Read a self-play session straight into a table whose rows keep the session's run ids.

        Rows are in the order of ``run_id`` and ``step_index``. Their values are NaN. A move that the session does not
        say is derived where the rules leave one, and 255 elsewhere. ``filter`` knows scores and the engine of the runs,
        which is the ``tag`` of the session's ``model``; phases begin at 1024 and 4096.

        - ``path``: the session's folder, or a file in it.
        - ``run_ids``: the ids of the runs; ``None`` = all.
        - ``extra``: extra columns of what the session says of a row's run: ``max_score`` (uint64), ``highest_tile``
          (uint32).
        - ``memory_limit``: the most bytes that the rows may take; ``None`` = the memory that the system has available.
        - ``workers``: threads; ``None`` = one per core.
        - ``progress``: ``False`` = no progress bar; else there is one where standard error is a terminal.

        Raises ``DecodeError`` or ``OSError`` for a session that cannot be read; ``ValueError`` for an id that the
        session does not have, run ids above 2**32 - 1, and step indices above 65,535; ``MemoryLimitError``;
        ``KeyboardInterrupt`` on Ctrl-C.

        >>> table = a2store.StepTable.from_session("selfplay/1").attach("embedding", "selfplay/1/embeddings.bf16.npy")
        """

    def attach(
        self,
        name: str,
        path: _Path,
        steps: _Path | None = None,
        *,
        mmap: bool = True,
        memory_limit: int | None = None,
        progress: bool | None = None,
    ) -> StepTable:
        """Return this table with one more column, of a ``.npy`` array of shape (rows, D) beside its rows.

        Batches, ``take`` and Arrow data of the table that is returned have the column ``name``: shape (n, D), the
        values of each row's step. So have its views, its loaders, and its copies in other processes. Rows stay what
        they were: ``numpy.asarray``, ``take_rows``, ``dtype``, ``fingerprint``, the states of loaders, and what
        ``save`` writes know nothing of the column; after ``load`` attach it again.

        Which step a row of the array is of is said by the integers ``run_id`` and ``step_idx`` or ``step_index`` of a
        structured array of as many rows. The array may have more steps than the table, in any order. Where it has
        the table's order this takes no memory, elsewhere 4 bytes a row of the table, or 8 for arrays of 2**32 rows
        and more. Where it has boards too, ``board`` or ``exps``, those of the table must be the same.

        The type is a little-endian float or integer, or bfloat16: ``<u2`` where a JSON object beside the array,
        ``embeddings.json`` for ``embeddings.bf16.npy``, has ``bf16`` as ``dtype_bits`` or ``dtype``. What it says of
        ``D`` and the type must hold. NumPy gets the bits of bfloat16 as uint16, Arrow too, with ``a2store.dtype`` in
        the field's metadata; ``a2store.torch`` makes ``torch.bfloat16`` of them.

        - ``name``: a name that no column has.
        - ``path``: the array.
        - ``steps``: the file of the keys, or a folder of ``steps.npy`` or its shards; ``None`` = the array's folder.
        - ``mmap``: ``True`` = map the array, which may be larger than memory and must not change meanwhile; the system
          reads its pages when a row is first gathered. ``False`` = read it now. A process that unpickles the table
          maps it in either case, and aligns it again.
        - ``memory_limit``: the most bytes that it may take when it is read; ``None`` = the memory that the system has
          available.
        - ``progress``: ``False`` = no progress bar; else there is one where standard error is a terminal.

        ``loader(symmetries=True)`` refuses attached columns, which belong to the board as it was; name others with
        ``columns``.

        Raises ``ColumnError`` for a row whose step the array does not have, and for a step that the keys have twice;
        ``DecodeError`` for files that are no such arrays, differ in their number of rows, or contradict the JSON;
        ``ValueError`` for a name that is taken; ``MemoryLimitError``; ``OSError``; ``KeyboardInterrupt`` on Ctrl-C.

        >>> table = table.attach("embedding", "selfplay/1/embeddings.bf16.npy")
        >>> table.take([0]).embedding.shape
        (1, 256)
        """

    @property
    def attached(self) -> list[str]:
        """The names of the attached columns, in the order in which they were attached."""

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
        """Return a loader, which serves the rows in batches: every row once an epoch, unless rows are drawn.

        Which rows an epoch has, and in what order, is said by one of ``shuffle``, ``window``, ``replacement``,
        ``weights`` and ``strata``.

        - ``batch_size``: rows per batch and rank, in ``1..=2**28``.
        - ``shuffle``: ``True`` = each epoch has an order of its own, ``False`` = all have the table's.
        - ``seed``: what the orders and the symmetries follow from, in ``0..2**64``; equal seeds and epochs give equal
          orders on every machine.
        - ``epoch``: the epoch to begin with.
        - ``drop_last``: leave out the rows at the end of an epoch that do not fill a batch on every rank. Otherwise the
          ranks divide them evenly, and the last batch is smaller.
        - ``rank``: this process's number, in ``0..world_size``.
        - ``world_size``: the number of processes that share the rows. All take the same number of batches, and none the
          same row.
        - ``tokens``: the type of ``Batch.tokens``.
        - ``symmetries``: ``True`` = turn each row by one of the board's eight symmetries: board, tokens, move, values
          and mask alike, and no extra column. Which one follows from seed, epoch and the row's index, so that each
          epoch has another. Not together with attached columns.
        - ``columns``: the names of the columns that batches have, in that order; ``None`` = all, extra and
          attached ones too.
        - ``prefetch``: batches that are made ahead, by a thread of their own, at most 4,096; 0 = each is made when it
          is asked for.
        - ``replacement``: ``True`` = draw each row of the stream by itself, all rows being equally likely.
        - ``weights``: an extra column of finite numbers of at least 0, in proportion to which rows are drawn, by
          themselves and so with replacement. Takes 8 bytes a row, and two passes over the table when the loader is
          made.
        - ``strata``: an extra column whose values, at most 4,096 different ones, are strata. Up to any place of the
          stream each stratum has had its quota, to within one row; within a stratum rows come in shuffled order, each
          once before any is repeated. Takes 4 bytes a row, 6 in strata of fewer than 65,536, and a pass over the table
          when the loader is made.
        - ``quotas``: the strata that are served, by value (a string of ``categories``, a number, a bool, ``None`` =
          null), and their shares in proportion to each other's, at least 0 and of a finite sum; ``None`` = equal ones.
          Shares that are not whole numbers are rounded to 1/65,536 of their sum.
        - ``num_samples``: the rows of an epoch over all ranks, in ``0..=2**62``, where rows may come more than once, as
          with the three options before; ``None`` = as many as the table has.
        - ``window``: shuffle about so many rows at a time, at least 1, for tables that are mapped from a file and
          larger than memory. A window is 256 blocks of ``2**k`` rows from random places, as many as fit the number;
          each block is read once an epoch and in one piece. Two windows of rows should fit memory.

        Raises ``ValueError`` for options outside their range or that exclude each other; ``ColumnError`` for invalid
        weights, with the row, and for too many strata; ``TypeError`` for quotas that are not numbers; ``MemoryError``
        for weights and strata.

        >>> loader = table.loader(batch_size=1024, seed=1, tokens="int64", columns=["tokens", "move"])
        >>> for epoch in range(3):
        ...     loader.set_epoch(epoch)
        ...     for batch in loader:
        ...         batch.tokens, batch.move
        >>> table.loader(strata="phase", quotas={"early": 1, "mid": 1, "late": 2}, symmetries=True)
        """

    def __reduce__(self) -> tuple[Callable[[bytes], StepTable], tuple[bytes]]:
        """Return a handle, for ``pickle``: below 1 KiB for a whole table in memory.

        Raises ``OSError`` where the system has no memory that processes can share so, as outside of Linux.
        """

    def __array__(self, dtype: npt.DTypeLike | None = None, *, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return the rows as a structured array: shape (rows,), of type ``table.dtype``.

        It shares the table's memory and is read-only, unless a copy is asked for or another dtype needs one. Of a view
        it is a copy.

        Raises ``ValueError`` when a copy is needed and ruled out.
        """

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as columns, in an ``arrow_array_stream`` capsule.

        They are transposed 65,536 rows at a time, as the reader takes them: the fields of a row, ``ev_values`` as a
        fixed-size list of four and ``ev_legal`` as a mask, then the extra columns, those of strings as dictionaries.
        Only these have nulls.

        - ``requested_schema``: an ``arrow_schema`` capsule of the types to cast the columns to, as far as it goes.
        """

@final
class Batch:
    """Rows of a table as columns, in NumPy arrays that share the batch's memory.

    Each column is an attribute, ``batch.tokens``, and an item, ``batch["tokens"]``; so are the extra columns, by their
    names, but for one that has the name of a method. A column that the loader was not asked for raises
    ``AttributeError`` or ``KeyError``. ``len(batch)`` is the number of rows, n below.

    The arrays are writable and belong to whoever took the batch: no later batch is written to their memory while one of
    them exists. ``pyarrow.record_batch(batch)`` shares the memory too, but for columns of bools, which are copied.

    An extra column of strings has their codes: shape (n,), int16, -1 = null; ``table.categories`` has the strings. An
    attached column has the shape (n, D), or (n,) where D is 1.
    """

    tokens: npt.NDArray[np.uint8 | np.int32 | np.int64]
    """The boards' exponents, 0 to 15: shape (n, 16), row by row from the top left; uint8, int32 or int64."""
    move: npt.NDArray[np.uint8]
    """The chosen move: shape (n,), uint8, 0 to 3 in the order UDLR, 255 = none."""
    ev_values: npt.NDArray[np.float32]
    """The value of each move: shape (n, 4), float32, in the order UDLR; 0.0 where illegal, four NaNs for none."""
    ev_legal: npt.NDArray[np.bool_]
    """Which moves are legal: shape (n, 4), bool, in the order UDLR."""
    run_id: npt.NDArray[np.uint32]
    """The run's id in the archive: shape (n,), uint32."""
    step_index: npt.NDArray[np.uint16]
    """The step's place in its run, from 0: shape (n,), uint16."""
    board: npt.NDArray[np.uint64]
    """The board before the move: shape (n,), uint64."""

    @property
    def bfloat16_columns(self) -> list[str]:
        """The names of the columns whose uint16 are the bits of bfloat16, which NumPy does not have."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def keys(self) -> list[str]:
        """Return the names of the columns, in order."""

    def to_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return all columns by name, in order."""

    def __getitem__(self, name: str, /) -> npt.NDArray[Any]:
        """Return the column of that name.

        Raises ``KeyError`` when there is none.
        """

    def __contains__(self, name: str, /) -> bool:
        """Return whether there is a column of that name."""

    def __getattribute__(self, name: str, /) -> npt.NDArray[Any]:
        """Return the column of that name; one that is called like a method is an item only.

        Raises ``AttributeError`` when there is none.
        """

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Return the batch as capsules, ``arrow_schema`` and ``arrow_array``, of a struct of its columns.

        ``tokens``, ``ev_values`` and ``ev_legal`` are fixed-size lists, and columns of strings dictionaries, the only
        ones that have nulls.

        - ``requested_schema``: an ``arrow_schema`` capsule of the types to cast the columns to, as far as it goes.
        """

# Loader

@final
class Loader:
    """Serves a table's rows in batches, one epoch per iteration.

    All ranks read one stream of rows: each step takes the next ``world_size * batch_size`` of them, and every rank its
    part. The batches are made ahead by a thread, so the loop rarely waits. Take one iteration of a loader at a time.
    ``len(loader)`` is the number of batches of a whole epoch. Make one with ``StepTable.loader``.

    Ctrl-C stops a batch in the middle, and a failed allocation raises ``MemoryError``. In both cases the next call
    returns the same batch, and the loader's position does not change.
    """

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch on this rank, the same on each."""

    def __iter__(self) -> BatchIterator:
        """Serve the epoch from its beginning or, once, from the position of a loaded state.

        Raises ``MemoryError`` when there is no memory for one batch.
        """

    @property
    def epoch(self) -> int:
        """The epoch that an iteration serves."""

    @property
    def batch_size(self) -> int:
        """The number of rows per batch and rank."""

    def set_epoch(self, epoch: int) -> None:
        """Turn to an epoch, and so to its order.

        The epoch does not change by itself. Turning to the current one keeps the position of a state that was just
        loaded, so a loop over epochs goes on where the state stood.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader stands: after the batches that were handed out, whatever was made ahead.

        It is a dict that takes at most 512 bytes as JSON. Every rank has the same after the same number of batches.

        - ``version``: int, the version of the dict and of the orders, 3.
        - ``archive_version``, ``archive``, ``query``, ``view``: int and three strs, the parts of the table's
          fingerprint: the archive's version, the archive itself at that version, the query with its parameters and
          options, and the filters and splits of a view, ``""`` for a whole table.
        - ``num_rows``, ``num_samples``: ints, the rows of the table and of an epoch.
        - ``order``: str, which rows an epoch has and in what order, such as ``"shuffled"`` or ``"weighted by age"``.
          Equal orders have equal names: quotas of 2 and 4 have the same name as quotas of 1 and 2.
        - ``seed``, ``symmetries``: int and bool, the options.
        - ``epoch``: int.
        - ``position``: int, the rows of the epoch that all ranks together have been given, in ``0..=num_samples``.
        """

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a state stood: the next iteration begins there, in the state's epoch.

        Table, order, ``num_samples``, ``seed`` and ``symmetries`` must be those of the loader that made the state.
        Batch size, rank, number of ranks, columns and tokens may differ. After a state from the end of an epoch the
        next iteration serves nothing, and the one after it a whole epoch.

        A state of version 2 can be loaded if its order is unchanged and the options are spelled as they were. These
        orders are unchanged: ``shuffle=False``, ``replacement``, ``weights``, and ``shuffle`` and ``strata`` of at
        least 65,536 rows in each served stratum. All other orders have changed, because small permutations are computed
        differently.

        Raises ``StateMismatchError`` for a state of other rows or another order, with the name of the field that
        differs, and ``ValueError`` for what is not a state. The loader then stays as it was.

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
    """The batches of one epoch, or of the rest of one."""

    def __iter__(self) -> Self:
        """Return itself."""

    def __next__(self) -> Batch:
        """Return the next batch; release the interpreter's lock while waiting.

        Raises ``MemoryError``, and ``KeyboardInterrupt`` on Ctrl-C.
        """

    def __length_hint__(self) -> int:
        """Return the number of batches that are left."""

# Arrow

@final
class ArrowArray:
    """An Arrow array, for ``pyarrow.array`` and any other reader of ``__arrow_c_array__``."""

    def __len__(self) -> int:
        """Return the number of values."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Return the array as capsules, ``arrow_schema`` and ``arrow_array``.

        - ``requested_schema``: an ``arrow_schema`` capsule of the type to cast the values to, where it differs.
        """

@final
class ArrowSchema:
    """An Arrow schema, for ``pyarrow.schema`` and any other reader of ``__arrow_c_schema__``.

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
    """Return the table that a handle leads to, which is what unpickling calls.

    Raises ``OSError`` when the process that made the handle, or the file, is gone; ``DamagedError`` when something else
    is in its place; ``DecodeError`` for other bytes.
    """

def _run_command(args: Sequence[_Path], program: Sequence[_Path]) -> int:
    """Run the command ``a2store`` or ``a2pack`` with these arguments, the first being its name.

    ``program`` are the arguments that start the first of them once more, in a process of its own.

    Returns its exit status.

    0 = done, 1 = something was wrong with the data, 2 = wrong usage.
    """
