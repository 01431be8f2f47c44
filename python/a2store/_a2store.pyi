"""The extension module. ``a2store`` re-exports its public names and states the conventions."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from datetime import date, time, timedelta
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, final, overload

import numpy as np
import numpy.typing as npt

from ._boards import Position
from ._pages import Replay, Report
from ._results import (
    AnnotateReport,
    CommitInfo,
    CompactReport,
    ExpireReport,
    ExportReport,
    IngestReport,
    JsonlReport,
    ModelInfo,
    PackStats,
    PlayResult,
    RecorderStats,
    Rejected,
    RestoreReport,
    RunMeta,
    SavedQuery,
    Shard,
    SimulateReport,
    SqlFunction,
    VerifyReport,
)

__all__ = [
    "Archive",
    "ArrowArray",
    "ArrowBatch",
    "ArrowSchema",
    "Batch",
    "BatchIterator",
    "Game",
    "Loader",
    "PackIterator",
    "Player",
    "Query",
    "QueryBatches",
    "Recorder",
    "Run",
    "StepTable",
    "VectorEnv",
    "View",
    "__version__",
    "_attach",
    "_board_svg",
    "_exponents",
    "_permutation",
    "_play",
    "_row_indices",
    "_run_command",
    "_write_page",
    "convert",
    "functions",
    "mix",
    "open",
    "queries",
    "read_run",
    "restore",
    "simulate",
    "verify",
]

_Path: TypeAlias = PathLike[str] | str
_StorageOptions: TypeAlias = dict[str, Any]
_TableName: TypeAlias = Literal["steps", "runs", "annotations"]
_RunFormat: TypeAlias = Literal["a2t1", "a2run2"]
_ExportFormat: TypeAlias = Literal[
    "original", "a2t1", "a2run2", "a2pack", "packdat", "npy", "session", "macroxue", "jsonl"
]
_Compression: TypeAlias = Literal["none", "zstd", "lz4"]
_Phase: TypeAlias = Literal["early", "mid", "late"]
_Progress: TypeAlias = bool | Callable[[dict[str, Any]], object] | None
_Indices: TypeAlias = Sequence[int] | npt.NDArray[np.integer[Any]]
_Duration: TypeAlias = float | timedelta
_Param: TypeAlias = bool | int | float | str | bytes | date | time | np.generic | None

__version__: str
"""The version of the package, equal to the version of the Rust crate."""

def mix(
    tables: Mapping[StepTable, float] | Iterable[tuple[StepTable, float]],
    batch_size: int = 4096,
    *,
    seed: int = 0,
    epoch: int = 0,
    num_samples: int | None = None,
    drop_last: bool = False,
    rank: int = 0,
    world_size: int = 1,
    tokens: Literal["uint8", "int32", "int64"] = "uint8",
    symmetries: bool = False,
    columns: Sequence[str] | None = None,
    prefetch: int = 2,
) -> Loader:
    """Return a loader of several tables, each with its share of the rows.

    Within a table, rows come in shuffled order, and no row repeats before all others have occurred. If an epoch serves
    ``m`` rows from a table of ``k`` rows, each of the ``k`` rows occurs ``m / k`` times, rounded down or up. In any
    window of the stream, each table's number of rows is exact to within one row (two rows for more than two tables).
    The stream is the same for any batch size and number of ranks.

    - ``tables``: pairs of a table and its share, or a dict from tables to shares. Shares are relative numbers of at
      least 0: 7 and 3 are the same as 0.7 and 0.3. Shares are rounded to 1/65,536 of their sum, unless whole numbers
      with a sum of at most 65,536 have the same ratios. All tables must have the columns of the first table, with the
      same types and categories. To serve only common columns, name them in ``columns``.
    - ``num_samples``: the number of rows per epoch over all ranks, in ``0..=2**62``; ``None`` = the rows of all tables.
    - ``batch_size``, ``seed``, ``epoch``, ``drop_last``, ``rank``, ``world_size``, ``tokens``, ``symmetries``,
      ``columns``, ``prefetch``: as in ``StepTable.loader``.

    Raises ``ValueError`` for options and shares out of range, for tables with different columns, and for a share of a
    table without rows. Raises ``TypeError`` for objects that are not tables.

    >>> weak, strong = table.filter(max_score=30_000), table.filter(min_score=30_001)
    >>> loader = a2store.mix([(weak, 0.25), (strong, 0.75)], batch_size=1000, seed=1)
    >>> loader
    Loader(29320 rows, mixed 1 3, batch_size=1000, seed=1, epoch=0, rank=0, world_size=1)
    >>> import numpy as np
    >>> int(np.isin(next(iter(loader)).run_id, strong["run_id"]).sum())
    750
    """

def read_run(path_or_bytes: _Path | bytes) -> Run:
    """Decode one run from a file or from the bytes of a run file.

    The content determines the format, A2T1 or a2run2; the file's name does not.

    - ``path_or_bytes``: the path of a run file (str or ``PathLike``), or its content (bytes).

    Raises ``DecodeError`` for an invalid run, with the byte offset and, inside the steps, the step. Raises ``OSError``
    if the file cannot be read.

    >>> run = a2store.read_run("runs/run-00000.a2run2")
    >>> len(run), run.meta.max_score, run.meta.engine
    (646, 11308, 'a2store-expectimax-1')
    """

@final
class Run:
    """One decoded game, as columns with one entry per step.

    The arrays are writable copies: changing them does not change the run. ``len(run)`` is the number of steps.

    >>> run = a2store.read_run("runs/run-00000.a2run2")
    >>> run
    Run(646 steps, max_score=11308, engine="a2store-expectimax-1", a2run2)
    >>> run.boards.shape, run.ev_values.shape
    ((646,), (646, 4))
    >>> hex(run.boards[0]), run.moves[:4]
    ('0x1020000', array([3, 0, 2, 3], dtype=uint8))
    """

    @property
    def meta(self) -> RunMeta:
        """The metadata of the run file."""

    @property
    def boards(self) -> npt.NDArray[np.uint64]:
        """The board before each move: shape (steps,), uint64."""

    @property
    def moves(self) -> npt.NDArray[np.uint8]:
        """The move chosen at each step: shape (steps,), uint8, 0 to 3 in the order UDLR, 255 = unknown."""

    @property
    def ev_values(self) -> npt.NDArray[np.float32]:
        """The engine's expected value of each move: shape (steps, 4), float32, in the order UDLR.

        An illegal move has 0.0. A step without values has four NaNs.
        """

    @property
    def ev_legal(self) -> npt.NDArray[np.bool_]:
        """The legal moves: shape (steps, 4), bool, in the order UDLR.

        The engine reports them; for a step without values, a2store derives them from the rules of the game.
        """

    @property
    def has_evs(self) -> npt.NDArray[np.bool_]:
        """Whether each step has values: shape (steps,), bool."""

    @property
    def final_board(self) -> int | None:
        """The board after the last move; ``None`` = unknown. Every run file stores it."""

    def __len__(self) -> int:
        """Return the number of steps."""

    def to_bytes(self, format: _RunFormat | None = None) -> bytes:  # noqa: A002
        """Encode the run as the bytes of a run file.

        - ``format``: ``"a2t1"`` or ``"a2run2"``; ``None`` = the format of the source. ``"a2t1"`` omits the values of
          moves.

        Raises ``ValueError`` for an unknown format, and in A2T1 for an engine name of more than 65,535 bytes.

        >>> run = a2store.read_run("runs/run-00000.a2run2")
        >>> len(run.to_bytes()), len(run.to_bytes("a2t1"))
        (19072, 5882)
        """

    def save(self, path: _Path, format: _RunFormat | None = None) -> None:  # noqa: A002
        """Write the run to a file; replace an existing file.

        - ``path``: the file.
        - ``format``: as in ``to_bytes``; the file's name does not matter.

        Raises ``ValueError`` as ``to_bytes`` does, and ``OSError``.

        >>> run = a2store.read_run("runs/run-00000.a2run2")
        >>> run.save("run.bin", "a2t1")
        >>> a2store.read_run("run.bin").meta.format
        'a2t1'
        """

    def position(self, index: int) -> Position:
        """Return one position of the run: its board, the values of the moves and the move that was played.

        - ``index``: the index in ``boards``; ``len(run)`` is the final board. Negative indices count from the end.

        Raises ``IndexError`` if the run has no such position.

        >>> run = a2store.read_run("runs/run-00000.a2run2")
        >>> position = run.position(0)
        >>> position.step, position.played, position.score
        (0, 3, 0)
        >>> run.position(-1).step is None
        True
        """
    def replay(
        self,
        index: int = 0,
        *,
        min_loss: float = 0.1,
        policy: Callable[[npt.NDArray[np.uint8], npt.NDArray[np.bool_]], Any] | None = None,
    ) -> Replay:
        """Return a page that replays the run: the explorer's replay in one file.

        A notebook shows the page below the cell. The page needs no other package and no network.

        - ``index``: the index of the first position to show, as in ``position``.
        - ``min_loss``: the smallest ``Position.loss`` that counts as a blunder.
        - ``policy``: a function whose values are shown too, as in ``Archive.view``.

        For a run from ``Archive.run``, the page also shows the annotations of models.

        Raises ``IndexError`` if the run has no such position, and ``ValueError`` unless ``min_loss`` is above 0.
        Exceptions of ``policy`` are raised unchanged.

        >>> run = a2store.read_run("runs/run-00000.a2run2")
        >>> run.replay(100).save("replay.html")
        """
    def to_gif(self, path: _Path, steps: Iterable[int] | None = None, *, seconds: float = 0.2) -> None:
        """Write the run as an animated GIF; replace an existing file. Needs ``pillow``.

        - ``path``: the file.
        - ``steps``: the indices of the positions, as in ``position``, such as ``range(0, 100)``; at most
          1,000; ``None`` = all.
        - ``seconds``: the duration of each frame, 0.02 to 655. Browsers slow down shorter frames.

        Raises ``IndexError`` for an index without a position. Raises ``ValueError`` for no positions or more than
        1,000, and for ``seconds`` out of range. Raises ``OSError`` if the file cannot be written, and
        ``ImportError`` without ``pillow``.

        >>> run = a2store.read_run("runs/run-00000.a2run2")
        >>> run.to_gif("game.gif", steps=range(0, 20))
        """
    def verify(self) -> str | None:
        """Check the run against the rules of the game.

        Every move must be legal. Every board must follow from the previous board, its move, and one spawned 2 or 4.
        Every legality mask must match the rules.

        Returns a description of the first violation, with its step, or ``None`` for a valid run.

        >>> a2store.read_run("runs/run-00000.a2run2").verify() is None
        True
        """

def convert(
    paths: _Path | Iterable[_Path],
    out: _Path,
    *,
    format: Literal["a2t1", "a2run2", "a2pack", "packdat", "npy", "session", "macroxue", "jsonl"],  # noqa: A002
    by_step: bool = False,
    compact: bool = False,
    compress: _Compression = "none",
    align: int | None = None,
    shard_rows: int | None = None,
    moves: bool | None = None,
    workers: int | None = None,
    progress: _Progress = None,
    on_error: Literal["raise", "skip"] = "raise",
) -> ExportReport:
    """Read runs of any format and write them in another format, in the same order, without an archive.

    - ``paths``: run files, packs, pack.dat files, datasets, sessions, logs, or folders of them. The content determines
      the format. The output merges all paths.
    - ``out``: a folder for run files, ``"npy"``, ``"session"`` and ``"macroxue"``. For other formats, the file, or a
      folder for a file with the default name, such as ``runs.a2pack``.
    - ``on_error``: the effect of a run that cannot be read, or that the format cannot hold. ``"raise"`` raises its
      error and writes nothing. ``"skip"`` writes the other runs and lists the error in the report.
    - ``format``: ``"a2t1"``, ``"a2run2"``, ``"a2pack"``, ``"packdat"``, ``"npy"``, ``"session"``, ``"macroxue"`` or
      ``"jsonl"``.
    - ``by_step``, ``compact``, ``compress``, ``align``, ``shard_rows``, ``moves``, ``workers``, ``progress``: as in
      ``Archive.export_runs``.

    Raises ``DecodeError`` or ``OSError`` for the first run that cannot be read, ``ValueError`` for an option of another
    format or for a run that the format cannot hold, ``FileExistsError`` for a file that already exists, and
    ``KeyboardInterrupt`` on Ctrl-C. The call writes files of several runs atomically. Issues warnings as
    ``Archive.ingest`` and ``Archive.export_runs`` do.

    >>> a2store.convert(["runs"], "all.dat", format="packdat")
    ExportReport(path=PosixPath('all.dat'), runs=20, num_steps=29320)
    """

@final
class _Pack:
    """An open pack."""

    def __new__(cls, path: _Path, checksums: bool) -> Self: ...
    def __len__(self) -> int: ...
    def kind(self, place: int) -> Literal["v1", "v2"]: ...
    def decode(self, place: int) -> Run: ...
    def decode_batch(
        self, places: Sequence[int], workers: int | None, skip_errors: bool
    ) -> tuple[list[Run], list[Any]]:
        """Decode runs in parallel. Return the sound runs, and the exceptions of the others.

        With ``skip_errors``, return instances of ``Rejected`` instead of exceptions, and none for removed runs.
        """

    def iter(self, places: Sequence[int] | None) -> PackIterator: ...
    def to_table(self, workers: int | None, on_error: str) -> StepTable: ...
    def held_out(self, test_size: float, seed: int) -> npt.NDArray[np.bool_]:
        """Return whether each run is held out by a split of this share."""

    def to_jsonl(
        self, path: _Path, parallel: bool, by_step: bool, workers: int | None, progress: _Progress, compact: bool
    ) -> JsonlReport: ...
    def stats(self) -> PackStats: ...
    def validate(self, sample: int | None, workers: int | None, progress: _Progress) -> list[str]: ...

@final
class PackIterator:
    """An iterator over runs of a pack, which ``PackReader.iter`` and ``PackReader.iter_indices`` return.

    ``next`` raises ``DecodeError`` at a damaged run; the call after it continues with the following run.

    >>> runs = a2store.PackReader.open("games.a2pack").iter()
    >>> next(runs).meta.num_steps
    646
    """

    def __iter__(self) -> PackIterator: ...
    def __next__(self) -> Run: ...

def simulate(
    out: _Path,
    *,
    runs: int = 100,
    seed: int = 0,
    format: _RunFormat = "a2run2",  # noqa: A002
    depth: int = 1,
    engine: str | None = None,
    workers: int | None = None,
    progress: _Progress = None,
) -> SimulateReport:
    """Play seeded games with the built-in player and write each game to its own run file.

    The same options give the same files for any number of workers. The first file is ``run-00000.a2run2``, or
    ``run-00000.bin`` in A2T1. If there are more than 10,000 runs, they go into subfolders of 1,000 files.

    - ``out``: the folder, created if it is missing.
    - ``runs``: the number of games, in ``0..2**32``.
    - ``seed``: the seed of all games, in ``0..2**64``.
    - ``format``: the format of the files, ``"a2t1"`` or ``"a2run2"``. ``"a2t1"`` omits the player's values of moves.
    - ``depth``: the search depth of the player in spawns, 0 to 3. Each level multiplies the time by about fifty.
    - ``engine``: the engine's name in the files, at most 65,535 bytes; ``None`` = a name that includes the depth.
    - ``workers``: threads to play with, 1 to 1,024; ``None`` = one per core.
    - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.

    Raises ``FileExistsError`` for an existing file with other contents, and never overwrites a file. A repeated call
    with the same options changes nothing. Raises ``ValueError`` for an option out of range. Raises
    ``KeyboardInterrupt`` on Ctrl-C; the files of finished games stay.

    >>> a2store.simulate("more", runs=2, seed=2, depth=0)
    SimulateReport(runs=2, num_steps=742, num_bytes=22199)
    """

# Recording games

@final
class Recorder:
    """A recorder of games in progress, many at once and from any number of threads.

    Each game stays in memory until a *rotation* writes all ended games at once: as a complete session
    ``<time>_model=<tag>`` in a folder, or as a commit of an archive. A push waits for a rotation only if the memory is
    used up. A crash loses only games that no rotation has written.

    - ``target``: a folder of sessions, created if it is missing, or an ``Archive``. An archive also stores values and
      final boards; call its ``refresh`` to see the games. Every ended game becomes a run, even if it equals another
      game; the columns ``session`` and ``source_id`` identify it. A rotation needs the memory of an ingest in addition
      to ``max_ram_mb``.
    - ``tag``: the model's name: letters, digits and ``._+-``, without a leading dot.
    - ``engine``, ``model_hash``, ``meta``: further metadata of each session, together at most 131,072 bytes. ``meta``
      maps keys to JSON values. In an archive, ``engine`` is the engine of the runs; ``None`` = the tag.
    - ``max_games``, ``max_steps``, ``max_wall_ms``: limits on the number of games, on the kept steps of ended games,
      and on the milliseconds since the start; ``None`` = no limit. Once a limit is reached, no game can begin. Running
      games continue, so a session holds only whole games.
    - ``max_ram_mb``: memory for unwritten steps in millions of bytes, at least 16. Pushes wait if the memory is used
      up. ``None`` = half of the available memory.
    - ``max_disk_mb``: disk space in millions of bytes, at least 1; ``None`` = no limit. The recorder rejects a game at
      its end if it would exceed the limit.
    - ``sample_rate``: keep one of every ``sample_rate`` steps, starting with the first; at least 1.
    - ``rotate_steps``, ``rotate_secs``: rotate once this many steps of ended games are unwritten, at least 1, or once
      an ended game has waited this many seconds, above 0; ``None`` = no time limit. A rotation also starts when
      unwritten steps fill two fifths of the memory.
    - ``moves``: whether a session keeps the moves. If so, every step needs a move. With ``False``, an existing Rust
      reader can read the session, but ``ingest`` must derive the moves from the boards, and some stay unknown.

    Raises ``ValueError`` for an option out of range, ``TypeError`` for a target of another type, and ``OSError`` if the
    folder is not writable.

    >>> from a2store import selfplay
    >>> run = a2store.read_run("runs/run-00000.a2run2")
    >>> with selfplay.Recorder("selfplay", tag="v1") as recorder:
    ...     game = recorder.begin(seed=7)
    ...     for board, move in zip(run.boards, run.moves):
    ...         game.push(int(board), int(move))
    ...     game_id = game.end(run.final_board)
    >>> archive.ingest(recorder.sessions).accepted
    1
    """

    def __new__(
        cls,
        target: _Path | Archive,
        *,
        tag: str,
        engine: str | None = None,
        model_hash: str | None = None,
        meta: dict[str, Any] | None = None,
        max_games: int | None = None,
        max_steps: int | None = None,
        max_ram_mb: int | None = None,
        max_wall_ms: int | None = None,
        max_disk_mb: int | None = None,
        sample_rate: int = 1,
        rotate_steps: int = 10_000_000,
        rotate_secs: float | None = 600.0,
        moves: bool = True,
    ) -> Recorder: ...
    def begin(self, seed: int | None = None) -> Game:
        """Begin a game.

        - ``seed``: the seed to store with the game, in ``0..2**64 - 1``; ``None`` = unknown.

        Raises ``RecorderLimitError`` if a limit is reached (see ``is_full``). Raises ``ValueError`` if the recorder is
        closed, and for the seed 2^64 - 1, which stands for an unknown seed in sessions. Raises ``OSError`` once after a
        failed rotation; the recorder loses no games and retries the rotation.

        >>> from a2store import selfplay
        >>> recorder = selfplay.Recorder("selfplay", tag="v1")
        >>> game = recorder.begin(seed=7)
        >>> game.push(0x1000_0000_0000_0001, 0)
        >>> game.end()
        0
        """

    def rotate(self) -> int:
        """Write all ended games, wait until they are durable, and return the number of durable games.

        All games with an id below this number are durable.

        Raises ``OSError`` if the games cannot be written; they stay in memory. Raises ``ValueError`` if the recorder is
        closed, or if a forked process inherited it.

        >>> from a2store import selfplay
        >>> recorder = selfplay.Recorder("selfplay", tag="v1")
        >>> game = recorder.begin()
        >>> game.push(0x1000_0000_0000_0001, 0)
        >>> game_id = game.end()
        >>> recorder.rotate()
        1
        """

    def close(self) -> RecorderStats:
        """Write the remaining ended games, end the recording, and return the final statistics.

        Running games are lost. ``close`` may be called again.

        Raises ``OSError`` if the games cannot be written; the recorder then stays open. Raises ``ValueError`` if a
        forked process inherited the recorder.

        >>> from a2store import selfplay
        >>> recorder = selfplay.Recorder("selfplay", tag="v1")
        >>> recorder.close().ended
        0
        """

    @property
    def is_full(self) -> str | None:
        """The limit that was reached: ``"games"``, ``"steps"``, ``"wall"`` or ``"disk"``; else ``None``."""

    @property
    def sessions(self) -> list[Path]:
        """The folders of the sessions that were written, in order; empty if the games go to an archive."""

    def stats(self) -> RecorderStats:
        """Return the current statistics.

        Raises ``MemoryError`` if an allocation fails.

        >>> from a2store import selfplay
        >>> recorder = selfplay.Recorder("selfplay", tag="v1")
        >>> game = recorder.begin()
        >>> recorder.stats().live
        1
        """

    def __enter__(self) -> Recorder:
        """Return the recorder itself."""
    def __exit__(self, *_exception: object) -> None:
        """Close the recorder."""

@final
class Game:
    """A game that is being recorded. One thread at a time may use it.

    Deleting a game before its end abandons it.

    >>> from a2store import selfplay
    >>> recorder = selfplay.Recorder("selfplay", tag="v1")
    >>> game = recorder.begin()
    >>> game.push(0x1000_0000_0000_0001, 0)
    >>> len(game)
    1
    >>> game.end()
    0
    """

    def push(
        self, board: int | Sequence[int], move: int | None = None, ev_values: Sequence[float] | None = None
    ) -> None:
        """Add a step.

        - ``board``: the board before the move: a packed board, an int in ``0..2**64``, or its sixteen exponents.
        - ``move``: 0 to 3 in the order UDLR; ``None`` = unknown.
        - ``ev_values``: the values of the four moves in the order UDLR; ``None`` or four NaNs = no values. The recorder
          ignores values of illegal moves. An archive keeps the values; a session does not. If a value is outside 0..1,
          the run's column ``raw_evs`` is true.

        Raises ``ValueError`` for an invalid board or move, and for a missing move if the recorder keeps moves. Raises
        ``RecorderLimitError`` if running games alone use all memory.

        >>> from a2store import selfplay
        >>> recorder = selfplay.Recorder(archive, tag="v1")
        >>> game = recorder.begin()
        >>> game.push(0x1000_0000_0000_0001, 0, ev_values=[0.5, 0.0, 0.0, 0.25])
        >>> len(game)
        1
        """

    def push_batch(
        self,
        boards: npt.NDArray[Any],
        moves: npt.NDArray[Any] | None = None,
        ev_values: npt.NDArray[Any] | None = None,
    ) -> None:
        """Add several steps, or none if any is invalid.

        - ``boards``: packed boards, shape (n,), uint64; or exponents, shape (n, 16).
        - ``moves``: shape (n,), integers, 0 to 3 in the order UDLR; ``None`` = unknown.
        - ``ev_values``: shape (n, 4), float32, in the order UDLR; ``None`` = no values.

        Raises as ``push`` does.

        >>> from a2store import selfplay
        >>> recorder = selfplay.Recorder("selfplay", tag="v1")
        >>> run = a2store.read_run("runs/run-00000.a2run2")
        >>> game = recorder.begin()
        >>> game.push_batch(run.boards, run.moves, run.ev_values)
        >>> len(game)
        646
        """

    def end(self, final_board: int | Sequence[int] | None = None) -> int:
        """End the game and return its id in the session.

        - ``final_board``: the board after the last move, as for ``push``; ``None`` = unknown.

        The next rotation writes the game. Raises ``RecorderLimitError`` if the game would exceed ``max_disk_mb``, and
        ``ValueError`` if the recorder is closed; the game is then lost.

        >>> from a2store import selfplay
        >>> recorder = selfplay.Recorder("selfplay", tag="v1")
        >>> game = recorder.begin()
        >>> game.push(0x1000_0000_0000_0001, 1)
        >>> game.end(0x0100_0000_0000_1001)
        0
        """

    def abandon(self) -> None:
        """Abandon the game and discard its steps.

        >>> from a2store import selfplay
        >>> recorder = selfplay.Recorder("selfplay", tag="v1")
        >>> game = recorder.begin()
        >>> game.abandon()
        >>> recorder.stats().abandoned
        1
        """

    def __len__(self) -> int:
        """Return the number of pushed steps, including steps that are not kept."""

# Games played with a policy

@final
class Player:
    """The built-in player, a policy for ``a2store.selfplay.play``.

    A call takes tokens, integers of shape (B, 16), and returns moves of shape (B,), uint8. A move is 0 if no move is
    legal. The call ignores the second argument of policies, ``legal``.

    - ``depth``: the search depth in spawns, 0 to 3. Each level multiplies the time by about fifty.
    - ``workers``: threads to play with, 1 to 1,024; ``None`` = one per core.

    Raises ``ValueError`` for a depth out of range. A call raises ``TypeError`` for tokens of another type or shape, and
    ``ValueError`` for exponents above 15.

    >>> from a2store import selfplay
    >>> player = selfplay.Player(depth=0)
    >>> env = selfplay.VectorEnv(4, seed=1)
    >>> player(env.tokens())
    array([0, 0, 2, 0], dtype=uint8)
    >>> selfplay.play(player, 10, seed=1).highest_tiles
    array([256, 256, 256, 256, 512, 256, 256, 256, 512, 256])
    """

    def __new__(cls, depth: int = 1, *, workers: int | None = None) -> Player: ...
    @property
    def depth(self) -> int:
        """The search depth in spawns."""

    @property
    def workers(self) -> int | None:
        """The number of threads, or ``None`` for one per core."""

    def __call__(self, tokens: npt.NDArray[Any], legal: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.uint8]:
        """Return the player's moves for boards: shape (B,), uint8."""

@final
class VectorEnv:
    """A vector of games, one per slot, in which the caller chooses the moves.

    A game depends on the seed, its number and the moves made in it. A slot whose game is over ignores moves until
    ``restart`` begins the next game in it. All returned arrays are copies.

    - ``num_envs``: the number of slots, in ``1..=2**24``.
    - ``seed``: the seed of all games, in ``0..2**64``.

    Raises ``ValueError`` if ``num_envs`` is out of range.

    >>> from a2store import selfplay
    >>> env = selfplay.VectorEnv(1024, seed=1)
    >>> for _ in range(100):
    ...     rewards, over = env.step(env.legal().argmax(axis=1))
    ...     finished = env.restart()
    >>> rewards.dtype, env.tokens().shape
    (dtype('uint32'), (1024, 16))
    """

    def __new__(cls, num_envs: int, seed: int = 0) -> VectorEnv: ...
    def __len__(self) -> int:
        """Return the number of slots."""

    @property
    def num_envs(self) -> int:
        """The number of slots."""

    @property
    def seed(self) -> int:
        """The seed of all games."""

    def tokens(self, dtype: Literal["uint8", "int64"] = "uint8") -> npt.NDArray[Any]:
        """Return the exponents of the boards, row by row: shape (n, 16).

        - ``dtype``: ``"uint8"`` or ``"int64"``.

        Raises ``ValueError`` for another type.

        >>> from a2store import selfplay
        >>> selfplay.VectorEnv(4, seed=1).tokens("int64").shape
        (4, 16)
        """

    def legal(self) -> npt.NDArray[np.bool_]:
        """Return whether up, down, left and right are legal: shape (n, 4), bool; all false if the game is over.

        Raises ``MemoryError`` if an allocation fails.

        >>> from a2store import selfplay
        >>> selfplay.VectorEnv(2, seed=1).legal()
        array([[ True,  True,  True,  True],
               [ True,  True,  True,  True]])
        """

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

        ``rewards`` has the scores of the moves, and ``over`` says which games are now over. Both have shape (n,).

        - ``moves``: shape (n,), integers, 0 to 3.
        - ``illegal``: the effect of a move that does not change its board. ``"raise"`` raises before any game is
          stepped; ``"ignore"`` ignores the move.

        Raises ``ValueError`` for an illegal move, with its row and board, and for a wrong number of moves. Raises
        ``TypeError`` unless the moves are one-dimensional integers.

        >>> from a2store import selfplay
        >>> env = selfplay.VectorEnv(2, seed=1)
        >>> rewards, over = env.step(env.legal().argmax(axis=1))
        >>> rewards, over
        (array([0, 0], dtype=uint32), array([False, False]))
        """

    def restart(self, mask: npt.NDArray[np.bool_] | Sequence[bool] | None = None) -> int:
        """Begin the next games in some slots and return their number.

        - ``mask``: shape (n,), bool: true for the slots to restart, even if their game is not over. ``None`` = the
          slots whose game is over.

        Raises ``ValueError`` for a mask of another shape or type.

        >>> from a2store import selfplay
        >>> env = selfplay.VectorEnv(4, seed=1)
        >>> env.restart(np.array([True, False, False, True]))
        2
        >>> env.games
        array([4, 1, 2, 5], dtype=uint64)
        """

    def reset(self, seed: int | None = None) -> None:
        """Begin the first games of a seed again.

        - ``seed``: the seed of all games, in ``0..2**64``; ``None`` = the current seed.

        Raises ``ValueError`` for a seed out of range.

        >>> from a2store import selfplay
        >>> env = selfplay.VectorEnv(4, seed=1)
        >>> env.reset(seed=2)
        >>> env.seed
        2
        """

def _play(
    policy: Any,
    num_games: int,
    batch_size: int,
    seed: int,
    recorder: Recorder | None,
    tokens: str,
    max_steps: int | None,
    progress: _Progress,
) -> PlayResult:
    """Play games; the implementation of ``a2store.selfplay.play``."""

# Archive

@final
class Archive:
    """A growing collection of runs in a folder or an object store, at one version.

    The folder holds Parquet files, which other tools can read, and for each version a manifest that lists the version's
    files. Commits of other writers become visible with ``refresh``. ``ingest`` moves to the version that it commits. To
    get an archive, call ``a2store.open``, ``Archive.create`` or ``Archive.open``. Threads may share it.

    A pickled archive is a handle: the location, the version and ``storage_options``, with any credentials in them.
    Unpickling opens the archive again, at the same version. ``repr`` shows no options.

    >>> archive = a2store.Archive.create("new.a2")
    >>> archive.ingest("runs/").accepted
    20
    >>> archive.sql("SELECT phase, count(*) AS steps FROM steps GROUP BY phase ORDER BY steps").show()
    +-------+-------+
    | phase | steps |
    +-------+-------+
    | late  | 1950  |
    | early | 10375 |
    | mid   | 16995 |
    +-------+-------+
    3 rows
    """

    @classmethod
    def create(
        cls,
        path: _Path,
        *,
        phases: dict[str, int] | None = None,
        storage_options: _StorageOptions | None = None,
    ) -> Self:
        """Create an empty archive, at version 1.

        - ``path``: the archive's folder, created if it is missing, or a URL: ``s3://bucket/games.a2``, ``gs://...``,
          ``az://...``. Credentials and endpoints come from the usual environment variables of each service, such as
          ``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, ``GOOGLE_APPLICATION_CREDENTIALS`` and
          ``AZURE_STORAGE_ACCOUNT_NAME``.
        - ``phases``: the smallest tiles of the phases ``"mid"`` and ``"late"``. The largest tile on the board
          determines the phase of a step; below the ``"mid"`` tile, the phase is ``early``. The defaults are ``{"mid":
          1024, "late": 4096}``. The phases of an archive never change.
        - ``storage_options``: as in ``a2store.open``.

        Raises ``ArchiveExistsError`` if the archive already exists; ``a2store.open(path, create=True)`` opens it
        instead. Raises ``ValueError`` for phases that are not tiles (2 to 32768) or not increasing, a folder with other
        files, and unknown ``storage_options``. Also raises ``OSError``, and ``KeyboardInterrupt`` on Ctrl-C.

        >>> archive = a2store.Archive.create("new.a2", phases={"mid": 2048, "late": 8192})
        >>> archive
        Archive(.../new.a2, version=1, num_runs=0, num_steps=0)
        """

    @classmethod
    def open(
        cls,
        path: _Path,
        *,
        version: int | str | None = None,
        checksums: bool | None = None,
        storage_options: _StorageOptions | None = None,
    ) -> Self:
        """Open an archive.

        - ``path``: the archive's folder or URL, as in ``create``.
        - ``version``: the version to open, by its number from 1 (the empty archive) or its tag; ``None`` = the newest.
        - ``checksums``: whether queries and exports verify the checksum of each data file when this process first reads
          it. If off, a flipped bit in a data file can change an answer. ``None`` = on for a folder and off for a URL,
          because the check downloads whole files.
        - ``storage_options``: as in ``a2store.open``.

        Raises ``ValueError`` for a negative version and for an unknown name in ``storage_options``. Raises
        ``FileNotFoundError`` if the folder does not exist, ``ArchiveError`` if it holds no archive or a newer a2store
        wrote it, and ``VersionNotFoundError`` for a missing version. Raises ``DamagedError`` if a commit contradicts
        its checksum or the previous commit, and ``KeyboardInterrupt`` on Ctrl-C.

        >>> a2store.Archive.open("games.a2").num_runs
        20
        >>> a2store.Archive.open("games.a2", version=1).num_runs
        0
        """

    def refresh(self) -> None:
        """Move to the newest version, even if the archive was opened at an older version.

        If another thread moves to a later version at the same time, the archive stays at the later version. Raises as
        ``open`` does; the version then does not change.

        >>> report = a2store.simulate("more", runs=1, seed=2)
        >>> a2store.Archive.open("games.a2").ingest("more").accepted
        1
        >>> archive.num_runs
        20
        >>> archive.refresh()
        >>> archive.num_runs
        21
        """

    def ingest(
        self,
        paths: _Path | Iterable[_Path],
        *,
        workers: int | None = None,
        progress: _Progress = None,
        on_error: Literal["report", "raise"] = "report",
        wait: _Duration | None = None,
    ) -> IngestReport:
        """Add the runs of files and folders, including all subfolders, as one commit.

        The content determines a file's format: run files, packs, pack.dat files, NumPy datasets, self-play sessions,
        and Macroxue logs and packs. docs/formats.md lists what each format stores. In folders, ``ingest`` skips files
        of unknown content, and files whose names begin with a dot or end in ``.tmp``. Files named ``*.a2run2``,
        ``*.bin`` and ``*.a2t1`` must hold runs.

        ``ingest`` skips a run whose content is already in the archive. It adds twins: runs with the same boards as
        another run, such as one game in two formats. Splits keep twins on the same side. Run ids follow the order of
        the paths and, in folders, the order of the names. If no run is new, ``ingest`` commits nothing. In either case
        the archive moves to the newest version. If you repeat an interrupted ingest, the result is the same archive.
        For input of any size, ``ingest`` needs about 100 MB of memory, plus about 50 MB per worker and up to 68 bytes
        per run in the archive.

        - ``paths``: a file or folder, or several.
        - ``workers``: threads to decode and encode with, 1 to 1,024; ``None`` = one per core.
        - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.
        - ``on_error``: the effect of a file that cannot be read or decoded. ``"report"`` lists it in the report and
          continues; ``"raise"`` raises its error and adds nothing.
        - ``wait``: how long to wait while another process on this machine writes to the archive, in seconds or as a
          ``timedelta``; ``None`` = ten minutes.

        Raises ``FileNotFoundError`` for a missing path, ``ConflictError`` if another writer holds the archive for
        longer than ``wait``, and ``KeyboardInterrupt`` on Ctrl-C. With ``on_error="raise"`` it also raises
        ``DecodeError`` or ``OSError`` for the first bad file. The archive is then unchanged. After ``UnconfirmedError``
        the commit may or may not exist; repeat the call to find out. Issues a ``UserWarning`` for a problem that does
        not affect runs, such as an outdated ``manifest.json`` of a dataset.

        >>> report = a2store.simulate("more", runs=2, seed=2)
        >>> archive.ingest(["runs", "more/run-00001.a2run2"])
        IngestReport(accepted=1, duplicates=20, twins=0, rejected=0, num_steps=2347)
        """

    def annotate(
        self,
        model: str,
        annotations: _Path | object,
        *,
        replace: bool = False,
        partial: bool = False,
        progress: _Progress = None,
    ) -> AnnotateReport:
        """Add a model's predictions for steps of the archive, in a new commit.

        The table ``annotations`` in SQL then has a row per model and annotated step. Every annotated step must exist in
        the archive. The legal moves of a row, and its move if known, must equal those in ``steps``.

        - ``model``: the value of the column ``model``, 1 to 60 bytes.
        - ``annotations``: a folder in the layout that docs/formats.md describes, a table with the Arrow C interface, or
          a NumPy structured array, shape (n,). A folder numbers the runs as its pool does; a2store finds each run in
          the archive by the seed, steps, score and highest tile in the folder's ``metadata.db``. A table or array has
          the columns ``run_id`` and ``step_index`` of the archive, and any other columns of ``annotations`` except
          ``model``. ``policy_p1``, ``policy_logp`` and ``policy_hard`` may have 4 numbers per row. An array has no
          nulls, so these columns become null where ``policy_kind_mask`` lacks their bit. Rows may be in any order.
        - ``replace``: ``True`` = replaces the model's annotations. Otherwise, a model with annotations can get more
          annotations only for later runs.
        - ``partial``: ``True`` = allows annotated runs to have steps without annotations.
        - ``progress``: as in ``ingest``.

        Raises ``DecodeError`` for a folder, and ``ValueError`` or ``ColumnError`` for a table, that is damaged or
        contradicts the archive. Otherwise raises as ``ingest`` does. After any error except ``UnconfirmedError``, the
        archive is unchanged.

        >>> predictions = np.asarray(table)[[0, 1, 2]][["run_id", "step_index", "ev_legal"]]
        >>> columns = {"run_id": predictions["run_id"], "step_index": predictions["step_index"].astype("u4")}
        >>> columns |= {"legal_mask": predictions["ev_legal"], "argmax_head": np.array([3, 0, 3], "u1")}
        >>> archive.annotate("model-v1", pa.table(columns), partial=True)
        AnnotateReport(model='model-v1', num_runs=1, num_rows=3)
        """

    def drop_annotations(self, model: str) -> ModelInfo:
        """Drop a model's annotations in a new commit, and return their description.

        Older versions keep them until ``expire``.

        - ``model``: the value of the column ``model``.

        Raises ``ValueError`` for a model without annotations. Otherwise raises as ``ingest`` does.

        >>> predictions = np.asarray(table)[[0, 1, 2]][["run_id", "step_index"]]
        >>> report = archive.annotate("model-v1", predictions, partial=True)
        >>> archive.drop_annotations("model-v1")
        ModelInfo(model='model-v1', num_rows=3, first_run_id=0, last_run_id=0)
        """

    def annotations(self) -> list[ModelInfo]:
        """Return the models with annotations, in the order of their names.

        It reads no files, so it never raises an error of the archive.

        >>> predictions = np.asarray(table)[[0, 1, 2]][["run_id", "step_index"]]
        >>> report = archive.annotate("model-v1", predictions, partial=True)
        >>> archive.annotations()
        [ModelInfo(model='model-v1', num_rows=3, first_run_id=0, last_run_id=0)]
        """

    def compact(
        self,
        *,
        file_rows: int | None = None,
        workers: int | None = None,
        progress: _Progress = None,
    ) -> CompactReport:
        """Rewrite small data files as full-size ones, in a new commit.

        Rows, their order and their ids stay the same. ``compact`` checks the old files against their checksums. Readers
        and writers may work at the same time. Older versions keep their files until ``expire``.

        - ``file_rows``: the number of rows of a full file, at least 1; ``None`` = 16,777,216. Files that are at least
          half full stay unchanged.
        - ``workers``, ``progress``: as in ``ingest``.

        Raises ``DamagedError`` for a file that cannot be read back. Otherwise raises as ``ingest`` does. After any
        error except ``UnconfirmedError``, the archive is unchanged.

        >>> report = a2store.simulate("more", runs=2, seed=2)
        >>> archive.ingest("more").accepted
        2
        >>> archive.compact()
        CompactReport(files_before=4, files_after=2, num_rows=33059)
        """

    def expire(
        self,
        *,
        older_than: _Duration | None = None,
        grace: _Duration | None = None,
        dry_run: bool = False,
    ) -> ExpireReport:
        """Expire versions that were replaced long ago, and remove the data files that no kept version references.

        ``expire`` always keeps the newest version and tagged versions. A reader that still uses an expired version may
        find data files missing.

        - ``older_than``: expire versions that were replaced longer ago than this, in seconds or as a ``timedelta``;
          ``None`` = 30 days.
        - ``grace``: how long to keep an unreferenced file after its last change; ``None`` = one day. Such a file may be
          the leftover of an interrupted writer, or belong to another machine that has not committed yet. While a
          manifest is damaged, ``expire`` keeps all unreferenced files.
        - ``dry_run``: ``True`` = only report what would be removed.

        Raises ``ValueError`` for a negative duration. Otherwise raises as ``ingest`` does.

        >>> from datetime import timedelta
        >>> archive.expire(older_than=timedelta(days=7), dry_run=True)
        ExpireReport(first_version=1, num_versions=0, num_files=0)
        """

    def restore(self, *, version: int | str | None = None, dry_run: bool = False) -> RestoreReport:
        """Make a new version with the files of an older version, and move this view to it.

        It does the same as ``a2store.restore`` with the archive's ``path``.

        - ``version``, ``dry_run``: as in ``a2store.restore``.

        Raises as ``a2store.restore`` does.

        >>> archive.restore(version=1)
        RestoreReport(version=1, new_version=3, adopted_runs=0, done=True)
        >>> archive.num_runs
        0
        """
    def tag(self, name: str, version: int | None = None) -> None:
        """Name a version, so that ``expire`` keeps it. If the version already has the name, the call has no effect.

        - ``name``: 1 to 100 letters, digits and ``-_.``, but not only digits, and without a leading dot.
        - ``version``: the version; ``None`` = the version of this view.

        Raises ``ValueError`` for an invalid name, or if another version has the name. Raises ``VersionNotFoundError``
        if the version has expired, and ``ConflictError`` if it expires during the call; the tag then stays. Also raises
        ``OSError``.

        >>> archive.tag("baseline-3")
        >>> a2store.open("games.a2", version="baseline-3").version
        2
        """
    def tags(self) -> dict[str, int]:
        """Return the tags of the archive with their versions, in the order of their names.

        Raises ``DamagedError`` for a damaged tag, and ``OSError``.

        >>> archive.tag("first", version=1)
        >>> archive.tag("baseline-3")
        >>> archive.tags()
        {'baseline-3': 2, 'first': 1}
        """
    def untag(self, name: str) -> None:
        """Remove a tag. The version itself stays until it expires.

        - ``name``: the tag.

        Raises ``ValueError`` if there is no such tag, and ``OSError``.

        >>> archive.tag("baseline-3")
        >>> archive.untag("baseline-3")
        >>> archive.tags()
        {}
        """
    def verify(self, *, workers: int | None = None, progress: _Progress = None) -> VerifyReport:
        """Check all kept versions of the archive for problems.

        It does the same as ``a2store.verify`` with the archive's ``path``.

        - ``workers``, ``progress``: as in ``a2store.verify``.

        Raises as ``a2store.verify`` does.

        >>> archive.verify().problems
        []
        """

    @property
    def path(self) -> Any:
        """The archive's absolute folder, or its URL as a str."""

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

        - ``table``: ``"steps"``, ``"runs"`` or ``"annotations"``.

        Raises ``ValueError`` for an unknown table.

        >>> pa.schema(archive.schema("runs")).field("max_score").type
        DataType(int64)
        """

    def history(self) -> list[CommitInfo]:
        """Return the commits of the unexpired versions up to this version, newest first.

        Raises ``DamagedError`` if a version's manifest is damaged, and ``OSError``.

        >>> for commit in archive.history():
        ...     print(commit.version, commit.operation, commit.added_runs)
        2 ingest 20
        1 create 0
        """

    def files(self, table: _TableName = "steps") -> list[str]:
        """Return the absolute paths, or URLs, of a table's Parquet files at this version, in order of their run ids.

        The files never change, and together they hold exactly the table's rows. For an empty table the list is empty.

        - ``table``: ``"steps"``, ``"runs"`` or ``"annotations"``.

        Raises ``ValueError`` for an unknown table.

        >>> import duckdb
        >>> duckdb.read_parquet(archive.files("steps")).aggregate("count(*)").fetchall()
        [(29320,)]
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
        """Plan a query over the tables ``runs``, ``steps`` and ``annotations`` at this version.

        The dialect is DataFusion's, with additional functions over boards (see ``a2store.functions()``). One SELECT,
        WITH or VALUES statement is allowed, and it can read only these tables and those in ``tables``. docs/sql.md
        lists what else is rejected. This call plans the query, so a mistake raises at once. The query runs when its
        result is read.

        - ``query``: the SQL text, with parameters as ``$name``, or as ``$1``, ``$2``, ....
        - ``params``: the values of all parameters: a dict for names, else a sequence. Values are bound, never
          interpolated into the text. They may be None, bool, int in ``-2**63..2**64``, float, str, bytes, NumPy scalars
          of these, dates and times, also of NumPy and pandas. A ``NaT`` is null.
        - ``tables``: your own tables by name, for joins. A value is an object with the Arrow C interface (pyarrow,
          polars, pandas, DuckDB, another query) or a NumPy structured array, shape (n,), both kept in memory; or the
          path of a Parquet file.
        - ``memory_limit``: bytes that the query's operators may hold at once, at least 32 MiB. Sorts and groups spill
          to temporary files before they fail. ``None`` = half of the machine's memory, shared by all queries.
        - ``spill_limit``: the maximum number of bytes of temporary files; ``None`` = 64 GiB.
        - ``spill_folder``: the folder of temporary files; ``None`` = the system's. Each query removes its own
          subfolder.
        - ``row_limit``, ``byte_limit``: the maximum number of rows in the result, and of its bytes as Arrow arrays, in
          ``0..2**64``; ``None`` = no limit.
        - ``time_limit``: the maximum number of seconds for planning and, separately, for each read of the result; at
          least 0; ``None`` = no limit.

        Raises ``QueryRefusedError`` for a statement that is not allowed. Raises ``QueryError`` for text that does not
        parse or plan, and for parameters that do not match it. Raises ``TypeError`` for a value or table of another
        type, and ``ValueError`` for an invalid name or limit. Raises ``OSError`` and ``DecodeError`` for files that
        cannot be read. Exceeding a limit raises ``QueryLimitError`` while the result is read.

        >>> sql = "SELECT count(*) AS steps FROM steps WHERE max_score >= $min AND phase = 'late'"
        >>> archive.sql(sql, {"min": 20_000}).show()
        +-------+
        | steps |
        +-------+
        | 1950  |
        +-------+
        1 row
        >>> query = archive.sql("SELECT run_id, max_score FROM runs ORDER BY max_score DESC LIMIT $1", [3])
        >>> query.to_arrow().to_pylist()
        [{'run_id': 16, 'max_score': 82292}, {'run_id': 17, 'max_score': 46388}, {'run_id': 12, 'max_score': 38312}]
        >>> labels = pa.table({"run_id": pa.array([3, 7], pa.uint32()), "label": ["a", "b"]})
        >>> archive.sql("SELECT * FROM steps JOIN labels USING (run_id)", tables={"labels": labels}).count()
        2952
        """

    def run(self, run_id: int) -> Run:
        """Read one run.

        - ``run_id``: the id of the run in the archive.

        Raises ``ValueError`` if the archive has no such run, and ``DamagedError`` if its data is damaged.

        >>> run = archive.run(0)
        >>> len(run), run.meta.max_score
        (646, 11308)
        >>> print(run.position(0).board)
            .     .     .     .
            .     .     .     .
            .     2     .     4
            .     .     .     .
        """
    def view(
        self,
        policy: Callable[[npt.NDArray[np.uint8], npt.NDArray[np.bool_]], Any] | None = None,
        *,
        port: int = 0,
        follow: bool | None = None,
        open_browser: bool = True,
    ) -> View:
        """Explore the archive in a browser: runs, replays, positions, SQL, and the report.

        - ``policy``: a function whose values the explorer shows beside the engine's values. The explorer calls it with
          ``tokens``, uint8 of shape (n, 16), and ``legal``, bool of shape (n, 4), for at most 512 boards at once. The
          function returns floats of shape (n, 4), in the order up, down, left, right, or moves of shape (n,).
        - ``port``: the port on this machine; 0 = any free one.
        - ``follow``: whether to show new versions once committed; ``None`` = only if the archive is at its newest
          version.
        - ``open_browser``: whether to open the address in the user's browser.

        Returns at once. The server runs until the view is closed, or the process ends.

        Raises ``OSError`` if the port is in use, and ``TypeError`` for a policy that is not a function.

        >>> view = archive.view(open_browser=False)
        >>> view.close()
        """

    def report(
        self,
        *,
        where: str | None = None,
        by: Literal["engine", "ingest", "format", "session"] = "engine",
        compare: tuple[str, str] | None = None,
        progress: _Progress = None,
    ) -> Report:
        """Describe the runs of the archive: scores, lengths, tiles, survival, values, moves, positions, spawns.

        - ``where``: an SQL condition on the columns of ``runs``, such as ``"max_score >= 20000"``; ``None`` = all runs.
        - ``by``: the groups that the report compares: ``"engine"``, ``"ingest"`` (the ingest that added the run, named
          by its time), ``"format"`` or ``"session"``. For recordings and sessions, the engine is the model's tag.
        - ``compare``: two groups; the report leaves out the runs of other groups.
        - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.

        The call runs about 25 queries, and most of them read all steps.

        Raises ``QueryError`` and ``QueryRefusedError`` if ``where`` is not one condition on runs. Raises ``ValueError``
        for an unknown ``by``, and if one of the groups in ``compare`` has no runs.

        >>> report = archive.report(where="max_score >= 1000", by="format")
        >>> report.save("report.html")
        """

    def query(
        self,
        name: str,
        /,
        *,
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
        - ``memory_limit``, ``spill_limit``, ``spill_folder``, ``row_limit``, ``byte_limit``, ``time_limit``: as in
          ``sql``. No query parameter has one of these names.
        - ``params``: the values of the query's parameters; an omitted parameter has its default.

        Raises ``ValueError`` for an unknown name, listing the known names. Raises ``QueryError`` for a parameter that
        is missing, unknown or of another type. Otherwise raises as ``sql`` does.

        >>> archive.query("high_score", min_score=20_000).materialize()
        StepTable(23466 rows of 32 bytes)
        >>> archive.query("unique_positions", memory_limit=512 << 20).show()
        +-------+-----------+------------+---------------+
        | phase | num_steps | num_boards | num_positions |
        +-------+-----------+------------+---------------+
        | early | 10375     | 10375      | 10349         |
        | mid   | 16995     | 16995      | 16986         |
        | late  | 1950      | 1950       | 1950          |
        +-------+-----------+------------+---------------+
        3 rows
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
        on_error: Literal["raise", "skip"] = "raise",
        workers: int | None = None,
        progress: _Progress = None,
    ) -> ExportReport:
        """Write the runs that a query selects, in the order of their ids, as files of any format.

        ``"original"`` restores the exact bytes of ingested run files, and rejects other runs. Run files are named by
        id, as in ``out/run-00000042.a2run2``; if there are more than 1,000, they go into subfolders of 1,000 files. One
        ``UserWarning`` counts the runs that lose a part, such as the final board; docs/formats.md has a table of these
        losses. For a format that requires whole games, a2store derives a missing final board if the last move and the
        score determine it; otherwise it rejects the run. It overwrites no file.

        - ``query``: SQL whose result has a column ``run_id``.
        - ``out``: a folder for run files, ``"npy"``, ``"session"`` and ``"macroxue"``. For other formats, the file, or
          a folder for a file with the default name, such as ``runs.a2pack``.
        - ``format``: ``"original"``, ``"a2t1"``, ``"a2run2"``, ``"a2pack"``, ``"packdat"``, ``"npy"``, ``"session"``,
          ``"macroxue"`` or ``"jsonl"``.
        - ``params``: as in ``sql``.
        - ``by_step``: for ``"jsonl"``: ``True`` = one line per step.
        - ``compact``: for ``"jsonl"``: ``True`` = flat values that DuckDB reads without conversion.
        - ``compress``: for ``"a2pack"``: the compression of runs: ``"none"``, ``"zstd"`` or ``"lz4"``.
        - ``align``: for ``"a2pack"``: the alignment of runs in bytes, 1 to 1,048,576; ``None`` = 4,096.
        - ``shard_rows``: for ``"npy"``, ``"session"`` and ``"macroxue"``: rows per file, at least 1; ``None`` = one
          file.
        - ``moves``: for ``"session"``: whether the rows have moves. ``False`` is for an existing Rust reader of
          sessions, which rejects moves. ``None`` = with moves if the first run has all of its moves.
        - ``on_error``: the effect of a run that the format cannot hold. ``"raise"`` raises ``ValueError``. ``"skip"``
          writes the other runs and lists the error in the report.
        - ``workers``: the number of threads, 1 to 1,024; ``None`` = one per core.
        - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.

        Raises ``QueryError``, and ``ValueError`` for a query without ``run_id``, for a run that the format cannot
        store, or for an option of another format. Raises ``FileExistsError``, ``DamagedError``, and
        ``KeyboardInterrupt`` on Ctrl-C. After an error before the last file is written, no file of the call remains.

        >>> sql = "SELECT run_id FROM runs WHERE max_score >= 50000"
        >>> archive.export_runs(sql, "best.a2pack", format="a2pack")
        ExportReport(path=PosixPath('best.a2pack'), runs=1, num_steps=3773)
        """

@final
class View:
    """A running explorer of an archive, from ``Archive.view``.

    The server runs on background threads until ``close``, the end of a ``with`` block, or the end of the
    process. It accepts connections from this machine only, and each request needs the token in ``url``.

    >>> with archive.view(open_browser=False) as view:
    ...     print(view.url.partition("?")[0].rpartition(":")[0])
    http://127.0.0.1
    """

    @property
    def url(self) -> str:
        """The address to open in a browser on this machine, with the token. It stays the same after ``close``.

        >>> archive.view(open_browser=False).url.startswith("http://127.0.0.1:")
        True
        """

    @property
    def closed(self) -> bool:
        """Whether the server has ended.

        >>> view = archive.view(open_browser=False)
        >>> view.closed
        False
        """

    def close(self) -> None:
        """End the server and its open requests. If the server has ended, the call has no effect.

        >>> archive.view(open_browser=False).close()
        """

    def __enter__(self) -> Self:
        """Return the view itself."""

    def __exit__(self, *_args: object) -> None:
        """Close the view."""

    def _repr_html_(self) -> str:
        """Return a link to the explorer."""

def open(  # noqa: A001
    path: _Path,
    *,
    version: int | str | None = None,
    create: bool = False,
    storage_options: _StorageOptions | None = None,
    executor: Executor | None = None,
) -> Archive:
    """Open an archive, or create it.

    - ``path``: the archive's folder, or a URL: ``s3://bucket/games.a2``, ``gs://...``, ``az://...``.
    - ``version``: the version to open, by its number from 1 (the empty archive) or its tag; ``None`` = the newest.
    - ``create``: ``True`` = creates an empty archive if ``path`` has no archive.
    - ``storage_options``: options of the object store, named as in the Rust crate object_store and in polars:
      ``aws_access_key_id``, ``aws_secret_access_key``, ``aws_endpoint``, ``aws_region``, ``allow_http``, .... They
      override environment variables, and have no effect on a folder.
    - ``executor``: the executor that runs all queries of this archive, as in ``Query.on``; ``None`` = this process.

    Raises ``ValueError`` for ``version`` with ``create=True``, and for an unknown name in ``storage_options``.
    Otherwise raises as ``Archive.open`` does.

    >>> a2store.open("games.a2").num_runs
    20
    >>> a2store.open("new.a2", create=True).ingest("runs").accepted
    20
    """

def verify(
    path: _Path,
    *,
    workers: int | None = None,
    progress: _Progress = None,
    storage_options: _StorageOptions | None = None,
) -> VerifyReport:
    """Check an archive for problems, even one that is too damaged to open.

    It checks the manifest of every kept version. For every file of a kept version it checks presence, length, checksum,
    rows and ids. It rebuilds every run from its rows, compares it with its digest, and checks ``runs.verified`` by the
    rules of the game. The report lists the problems; they never raise.

    - ``path``: the archive's folder or URL.
    - ``storage_options``: as in ``a2store.open``.
    - ``workers``: the number of threads, 1 to 1,024; ``None`` = one per core.
    - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.

    Raises ``ArchiveError`` if there is no archive. Raises ``ConflictError`` if other processes keep replacing and
    expiring the newest version during the check. Also raises ``OSError``, and ``KeyboardInterrupt`` on Ctrl-C.

    >>> report = a2store.verify("games.a2")
    >>> for problem in report.problems:
    ...     print(problem.path, problem.what, problem.expected, problem.found)
    >>> report
    VerifyReport(0 problems, version=2, num_files=2, num_runs=20)
    """

def restore(
    path: _Path,
    *,
    version: int | str | None = None,
    dry_run: bool = False,
    storage_options: _StorageOptions | None = None,
) -> RestoreReport:
    """Make a new version with the files of an older version, even if the newest manifest is damaged.

    The new version also adopts data files that no manifest lists, if they hold whole runs that the version does not
    have. So a damaged manifest loses no run. ``restore`` removes the damaged manifests that the new version replaces.
    If you repeat an interrupted restore, the result is the same archive. On an object store, no other writer may write
    during the restore.

    - ``path``: the archive's folder or URL.
    - ``version``: the version whose files to use, by its number or its tag; ``None`` = the newest intact version.
    - ``dry_run``: ``True`` = only report the changes.
    - ``storage_options``: as in ``a2store.open``.

    Raises ``DamagedError`` if the version cannot be read. Raises ``ArchiveError`` if there is no archive or no such
    version, or if a newer a2store wrote the archive. Also raises ``ConflictError``, ``OSError``, and
    ``KeyboardInterrupt`` on Ctrl-C.

    >>> a2store.restore("games.a2")
    RestoreReport(version=2, new_version=None, adopted_runs=0, done=False)
    """

# Query

def queries() -> list[SavedQuery]:
    """Return the named queries, sorted by name.

    Raises ``MemoryError`` if an allocation fails.

    >>> [query.name for query in a2store.queries()][:3]
    ['archive_summary', 'blunder_rate', 'blunders']
    """

def functions() -> list[SqlFunction]:
    """Return a2store's own SQL functions over boards, moves and values.

    Raises ``MemoryError`` if an allocation fails.

    >>> [function.signature for function in a2store.functions()][:3]
    ['exps(board[, tile_65536_mask])', 'tile(board, cell[, tile_65536_mask])', 'max_tile(board[, tile_65536_mask])']
    """

@final
class Query:
    """A planned query over one version of an archive.

    Each read of the result runs the query again. Any Arrow stream consumer can read a query (``__arrow_c_stream__``).
    It receives batches as they are computed, so the result need not fit in memory. If the query fails while it runs,
    the consumer raises its own exception.

    A query that only filters, selects and computes on rows of one table keeps the table's order; ``steps`` is ordered
    by ``(run_id, step_index)``. Other queries follow their ORDER BY, or have no defined order.

    A pickled query has its text, parameters, limits and tables, and a handle of the archive at its version.

    >>> query = archive.sql("SELECT board, move FROM steps WHERE phase = 'late'")
    >>> pa.table(query).num_rows
    1950
    >>> import polars
    >>> polars.DataFrame(query).shape
    (1950, 2)
    >>> import duckdb
    >>> duckdb.sql("SELECT move, count(*) FROM query GROUP BY move ORDER BY move").fetchall()
    [(0, 308), (1, 704), (2, 227), (3, 711)]
    """

    @property
    def schema(self) -> ArrowSchema:
        """The schema of the result."""

    @property
    def columns(self) -> list[str]:
        """The names of the result's columns, in order."""

    def __iter__(self) -> QueryBatches: ...
    def limit(self, n: int) -> Query:
        """Return a query for the first rows of the result, like a LIMIT at the end of its text.

        Without an ORDER BY, the rows of a join or a grouped query have no defined order, so any of them may be first.

        - ``n``: the maximum number of rows, in ``0..2**64``.

        Raises ``ValueError`` for ``n`` out of range.

        >>> query = archive.sql("SELECT run_id, max_score FROM runs ORDER BY max_score DESC")
        >>> query.limit(2).to_polars().rows()
        [(16, 82292), (17, 46388)]
        """
    def head(self, n: int = 5) -> Query:
        """Return a query for the first rows of the result. It is ``limit`` with a default.

        - ``n``: as in ``limit``.

        Raises as ``limit`` does.

        >>> archive.sql("SELECT * FROM steps").head().count()
        5
        """
    def to_batches(self) -> QueryBatches:
        """Run the query and return an iterator over its record batches, which arrive as they are computed.

        ``pyarrow.record_batch(batch)``, ``polars.DataFrame(batch)`` and other consumers of the Arrow C interface read a
        batch without a copy. ``for batch in query`` does the same. Deleting the iterator stops the query.

        Raises as ``count`` does.

        >>> for batch in archive.sql("SELECT board, move FROM steps LIMIT 3").to_batches():
        ...     print(pa.record_batch(batch)["move"].to_pylist())
        [3, 0, 2]
        """
    def count(self) -> int:
        """Run the query and return its number of rows. ``row_limit`` and ``byte_limit`` do not apply.

        Raises ``QueryError`` if the query fails, ``QueryLimitError`` if it exceeds a limit, and ``KeyboardInterrupt``
        on Ctrl-C.

        >>> archive.sql("SELECT * FROM steps WHERE phase = 'late'").count()
        1950
        """

    def explain(self, *, analyze: bool = False) -> str:
        """Return the plan as text; it shows which columns are read and where filters are applied.

        The first line lists run-level filters, if there are any. The query evaluates them once per run, and reads only
        pages with steps of matching runs. ``predicate`` is the filter of the Parquet reader.

        - ``analyze``: ``True`` = run the query, discard its rows, and add what each operator did and how long it took.

        Raises as ``count`` does.

        >>> print(archive.sql("SELECT board FROM steps WHERE max_score > 50000").explain())
        filters on runs: steps.max_score > 50000
        DataSourceExec: ... projection=[board], file_type=parquet
        """

    def show(self, max_rows: int = 20) -> None:
        """Print the first rows as a table.

        - ``max_rows``: the maximum number of rows; the query stops once it has produced them.

        Floats are rounded to 6 decimals; floats below 0.1, to 6 significant digits. Raises ``ValueError`` for a
        negative number. Otherwise raises as ``count`` does.

        >>> archive.sql("SELECT run_id, max_score FROM runs ORDER BY max_score DESC").show(max_rows=2)
        +--------+-----------+
        | run_id | max_score |
        +--------+-----------+
        | 16     | 82292     |
        | 17     | 46388     |
        +--------+-----------+
        the first 2 rows
        """

    def _repr_html_(self) -> str:
        """Return the first ten rows as an HTML table, which notebooks display.

        Raises as ``count`` does.

        >>> "<table" in archive.sql("SELECT run_id FROM runs")._repr_html_()
        True
        """

    def to_arrow(self) -> Any:
        """Run the query and return a ``pyarrow.Table``.

        Raises ``ImportError`` if pyarrow is not installed. Otherwise raises as ``count`` does.

        >>> archive.sql("SELECT max_score FROM runs").to_arrow().schema
        max_score: int64 not null
        """

    def to_pandas(self) -> Any:
        """Run the query and return a ``pandas.DataFrame``, by way of pyarrow.

        A column of integers with a null has pandas' nullable type, such as ``UInt64``, so its values are exact.

        Raises as ``to_arrow`` does.

        >>> int(archive.sql("SELECT max_score FROM runs").to_pandas()["max_score"].max())
        82292
        """

    def to_polars(self) -> Any:
        """Run the query and return a ``polars.DataFrame``.

        Raises ``ImportError`` if polars is not installed. Otherwise raises as ``count`` does.

        >>> archive.sql("SELECT max_score, highest_tile FROM runs").to_polars().shape
        (20, 2)
        """

    def lazy(self) -> Any:
        """Return a ``polars.LazyFrame`` of the result, which runs the query when polars collects the frame.

        The query then reads only the columns that polars needs, and stops after the rows of ``head(n)`` or
        ``limit(n)``. It evaluates comparisons of integer, bool or string columns with values, ``is_in``, ``is_null``,
        ``is_between``, and their combinations by and, or and not. Polars evaluates all other filters. A query with a
        LIMIT leaves all filters to polars.

        Raises ``ImportError`` if polars is not installed. If the query fails, polars
        raises its own exception.

        >>> import polars as pl
        >>> frame = archive.sql("SELECT * FROM steps").lazy()
        >>> frame.filter(pl.col("max_score") > 50_000).select("board", "move").collect().shape
        (3773, 2)
        """
    def on(self, executor: Executor, *, tasks: int | None = None) -> Query:
        """Return this query, to be run as tasks by the workers of an executor.

        The returned query has the same methods and rows. Each task reads a share of the row groups of ``steps`` and
        ``annotations``, in another process or on another machine, and returns what the rest of the query needs, such as
        the counts of its groups. This process runs the rest. It also runs whole queries that read few rows or cannot be
        divided; ``explain`` shows the tasks, or why there are none. Workers need the same a2store, and must be able to
        read the archive under the same path or URL. docs/cluster.md describes engines, costs and limits.

        - ``executor``: a ``concurrent.futures.ProcessPoolExecutor``, the ``get_executor()`` of a Dask ``Client``, an
          ``a2store.cluster.RayExecutor``, or any other executor whose workers are processes.
        - ``tasks``: the number of tasks, at least 1; ``None`` = up to 4 for each worker, of at least 1,048,576 rows
          each.

        While it runs, the query raises ``ClusterError`` if the engine loses a task or a worker has another version of
        a2store. It raises an error of a worker, such as ``QueryLimitError`` or ``FileNotFoundError``, unchanged.

        >>> from concurrent.futures import ProcessPoolExecutor
        >>> from multiprocessing import get_context
        >>> with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        ...     query = archive.sql("SELECT move, count(*) AS n FROM steps GROUP BY move ORDER BY move")
        ...     query.on(executor, tasks=2).to_polars()["n"].sum()
        29320
        """
    def _on(self, engine: object, tasks: int | None) -> Query:
        """Return this query on an engine of ``a2store.cluster``."""
    def _run_task(self, task: bytes) -> bytes:
        """Run a task of this query on a worker, and return the message with its result."""
    def _narrowed(self, columns: Sequence[str] | None, condition: str | None) -> Query | None:
        """Return a query for some columns of the rows that meet a condition; ``None`` if the query cannot evaluate it.

        - ``columns``: the names of the columns; ``None`` = all.
        - ``condition``: a condition in SQL, as ``a2store._polars`` makes it; ``None`` = all rows.
        """
    def to_numpy(self) -> dict[str, npt.NDArray[Any]]:
        """Run the query and return its columns as NumPy arrays by name, by way of pyarrow.

        The columns of a result have different types, so the arrays are separate, as in ``Batch.to_dict``. They are
        writable, and have shape (rows,). A column of lists of ``k`` values has shape (rows, k). Strings are Python
        objects. A null is NaN in floats, NaT in times, and None in objects. A column of integers or bools with a null
        is a ``numpy.ma.MaskedArray``.

        Raises as ``to_arrow`` does.

        >>> columns = archive.sql("SELECT run_id, max_score, engine FROM runs").to_numpy()
        >>> columns["max_score"][:3], columns["engine"][0]
        (array([11308, 14944, 21612]), 'a2store-expectimax-1')
        """
    def write_parquet(self, path: _Path) -> int:
        """Run the query, write its rows to a Parquet file as they are computed, and return their number.

        The complete file replaces an existing file atomically and durably. After an exception, the existing file is
        unchanged.

        - ``path``: the file, which must not be in the archive. Rows for a pipe or a device are written directly. For a
          path that ends in ``/`` or a URL, the call writes files ``part-00000.parquet`` and so on, which hold the rows
          in the order of their names. The folder must not exist, and no object may exist under the URL. On an executor,
          each task writes a file if each row of the result needs the row groups of only one task; otherwise this
          process writes one file. A folder appears when it is complete. A URL uses the archive's ``storage_options``,
          and the names of its files have a random part. After an exception, the call removes the files.

        Raises ``ValueError`` for a path in the archive, ``FileExistsError`` for a folder or URL that exists, and
        ``OSError`` if a file cannot be written. Otherwise raises as ``count`` does.

        >>> archive.sql("SELECT * FROM steps WHERE phase = 'late'").write_parquet("late.parquet")
        1950
        """
    def write_csv(self, path: _Path) -> int:
        """Run the query, write its rows to a CSV file as they are computed, and return their number.

        The first line has the names of the columns. A null is an empty field. The guarantees of ``write_parquet`` hold.

        - ``path``: as in ``write_parquet``.

        Raises ``QueryError`` for a column of lists. Otherwise raises as ``write_parquet`` does.

        >>> archive.sql("SELECT run_id, max_score FROM runs ORDER BY run_id").write_csv("scores.csv")
        20
        >>> from pathlib import Path
        >>> Path("scores.csv").read_text().splitlines()[:2]
        ['run_id,max_score', '0,11308']
        """
    def write_ipc(self, path: _Path) -> int:
        """Run the query, write its rows to an Arrow IPC file as they are computed, and return their number.

        The file is not compressed, so ``pyarrow.feather`` and ``polars.read_ipc`` can map it into memory. Dictionaries
        of strings become strings. The guarantees of ``write_parquet`` hold.

        - ``path``: as in ``write_parquet``.

        Raises as ``write_parquet`` does.

        >>> archive.sql("SELECT * FROM runs").write_ipc("runs.arrow")
        20
        """
    def materialize(
        self,
        *,
        columns: Iterable[str] | None = None,
        extra: str | Iterable[str] | None = None,
        chosen_ev: Literal["stored", "one"] = "stored",
        memory_limit: int | None = None,
        path: _Path | None = None,
        shard: tuple[int, int] | None = None,
        seed: int = 0,
        round: int = 0,  # noqa: A002
        progress: _Progress = None,
    ) -> StepTable:
        """Run the query and store its rows in a table in memory or in a file.

        A row takes 32 bytes plus the extra columns. The table takes the columns below from the result, by name, and
        leaves out all others. A ``UserWarning`` names each left-out column that the query computes or takes from your
        own tables. Other numeric types are cast, and a value outside the range of the type raises:

        - ``board``, uint64: required.
        - ``move``, uint8: 0 to 3; 255 if it is null or missing.
        - ``ev_up``, ``ev_down``, ``ev_left``, ``ev_right``, float32: 0.0 if one is null or missing; four NaNs if all
          are.
        - ``ev_legal``, uint8: a legality mask; derived from the rules if it is null or missing.
        - ``run_id`` and ``step_index``, uint32: 0 if they are missing.
        - ``tile_65536_mask``, uint16: the cells with a tile of 65536. If a value is not 0, the table has the column
          as an extra column, its rows have at least 40 bytes, and the tokens of these cells are 16. Without the column
          in the query, these tokens are 15, with a warning if a row may have such a tile.

        If the query only filters and selects rows of ``steps``, the rows are in the order of ``(run_id, step_index)``.
        With an ORDER BY, the rows have its order; rows with equal keys come in any order. The rows of all other queries
        are sorted by run, step and their bytes. So a deterministic query gives the same table on any number of threads.

        - ``columns``: the names of the columns that a row gets, instead of all columns above and ``extra``; ``board``
          is required. ``ev_values`` stands for the four values. Columns that are not listed above become extra columns.
          ``run_id``, ``step_index`` and ``tile_65536_mask`` are always kept. The query does not read the other columns
          above; it treats them as missing.
        - ``extra``: further columns of the result to append to each row, as a name or an iterable of names; by default
          none. A column has bools, integers, floats, strings, or fixed-size lists of bools or numbers. Numbers keep
          their type; a null becomes NaN in floats and raises in other types. A null list counts as a list of nulls.
          Strings, and dictionaries of strings, become int16 codes: the string's index in ``table.categories``, -1 =
          null. A column may have at most 32,768 different strings.
        - ``chosen_ev``: the value of the chosen move, in steps that have values. ``"stored"`` = the archive's value,
          ``"one"`` = exactly 1.0.
        - ``memory_limit``: the maximum number of bytes of rows in memory; ``None`` = the memory that the system has
          available. It does not apply to rows in a file.
        - ``path``: a file for the rows, which the table maps, so it may be larger than memory. ``StepTable.load`` can
          read it. The complete file replaces an existing file atomically and durably. It must not be in the archive.
        - ``shard``: the share of one of several processes, as a rank and a world size; ``None`` = all rows. The shares
          of a round are disjoint and complete, and their sizes differ by at most one row. Each round has different
          shares. The query may only filter and select rows of ``steps``. A rank reads the row groups of its share, but
          columns of strings in ``extra`` as a whole. The rows are in the order of ``steps``. If the number of rows is
          not known in advance, each rank first reads the columns of the conditions to count the rows. All ranks must
          read the same version of the archive. Codes of strings are the same on all ranks and in all rounds.
          Materialize any other query once, save the table, load the file with ``mmap=True`` on each rank, and pass
          ``rank`` and ``world_size`` to its loader.
        - ``seed``, ``round``: determine the shares of a round; in ``0..2**64``.
        - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.

        Raises ``ColumnError``, with the row, for a column that is missing, has another type, or has a value that does
        not fit. Raises ``ValueError`` for an option out of range, for ``columns`` without ``board`` or together with
        ``extra``, for a column that is named twice, has an empty name or is already part of a row, and for a share of a
        query that does more than filter and select rows, or uses random numbers or the time. Raises
        ``MemoryLimitError``, ``QueryError``, ``OSError`` if the file cannot be written, and ``KeyboardInterrupt`` on
        Ctrl-C. After an exception no file is left behind.

        >>> query = archive.sql("SELECT * FROM steps WHERE has_evs AND phase = 'late'")
        >>> table = query.materialize(extra=["max_score"], chosen_ev="one")
        >>> table.take([0, 1])["max_score"]
        array([82292, 82292])
        >>> table = archive.sql("SELECT * FROM steps").materialize(extra=["engine"], path="steps.npy")
        >>> table.categories["engine"]
        ['a2store-expectimax-1']
        >>> query = archive.sql("SELECT *, exps(board) AS exps FROM steps")
        >>> query.materialize(extra=["exps"]).take([0, 1])["exps"].shape
        (2, 16)
        >>> query.materialize(columns=["board", "move", "max_score"]).stride
        40
        >>> query = archive.sql("SELECT * FROM steps")
        >>> [len(query.materialize(shard=(rank, 3), seed=1, round=5)) for rank in range(3)]
        [9773, 9773, 9774]
        """

    @property
    def _hash(self) -> str:
        """A hash of the archive's commit, the text and the parameters."""
    def __arrow_c_schema__(self) -> object:
        """Return the result's schema as an ``arrow_schema`` capsule."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Run the query and return its result as an ``arrow_array_stream`` capsule.

        - ``requested_schema``: an ``arrow_schema`` capsule; columns are cast to its types where possible.

        Raises as ``count`` does.
        """

@final
class QueryBatches:
    """The record batches of a query's result, as ``Query.to_batches`` returns them.

    >>> sum(len(batch) for batch in archive.sql("SELECT board FROM steps").to_batches())
    29320
    """

    def __iter__(self) -> QueryBatches:
        """Return the iterator itself."""

    def __next__(self) -> ArrowBatch:
        """Return the next batch."""

# Table

@final
class StepTable:
    """A table of fixed-size rows in one read-only mapping of memory or of a file; or a view of some rows of a table.

    A row has these fields, then the extra columns, widest first, and padding to a multiple of 8 bytes:

    - ``board``: uint64, at byte 0.
    - ``ev_values``: four float32 in the order UDLR, at byte 8; 0.0 where illegal, four NaNs for a step without values.
    - ``run_id``: uint32, at byte 24.
    - ``step_index``: uint16, at byte 28. If an index exceeds 65,535, the field is uint32 and one of the extra columns.
    - ``move``: uint8, 0 to 3 in the order UDLR, 255 = none, at byte 30.
    - ``ev_legal``: uint8, a legality mask, at byte 31.

    ``numpy.asarray(table)`` and ``rows_array`` share the table's memory. ``pyarrow.table(table)`` and other consumers
    of ``__arrow_c_stream__`` get copies, as columns. ``len(table)`` is the number of rows. To get a table, call
    ``Query.materialize``, ``StepTable.load``, ``StepTable.from_runs`` or ``StepTable.from_session``.

    ``filter``, ``split`` and ``train_test_split`` return views, which support every operation of a table. A view shares
    the table's memory. An operation that needs all rows of a view in one piece copies them.

    A pickled table is a handle. A process of the same user on the same machine can unpickle it, and gets the same rows
    without a copy. So ``multiprocessing`` can pass tables as arguments. The first pickling moves a table into shared
    memory, at about the speed of a copy; existing arrays over it stay valid. The handle of a view takes about 20 bytes
    per range of rows.

    A handle is valid while the process that pickled it keeps the table, or while the table's file is unchanged. Later,
    unpickling raises ``OSError`` or ``DamagedError``. A process that has unpickled the table keeps it, even after other
    processes end. The memory is freed when the last such process ends.

    >>> table = archive.sql("SELECT * FROM steps").materialize()
    >>> table
    StepTable(29320 rows of 32 bytes)
    >>> np.asarray(table)["board"].dtype, pa.table(table).num_columns
    (dtype('uint64'), 6)
    """

    def __len__(self) -> int:
        """Return the number of rows."""

    @overload
    def __getitem__(self, key: int, /) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: str, /) -> npt.NDArray[Any]: ...
    @overload
    def __getitem__(self, key: slice | _Indices | npt.NDArray[np.bool_], /) -> Batch: ...
    def __getitems__(self, rows: Sequence[int]) -> Sequence[dict[str, Any]]:
        """Return the rows at some indices as dicts of tensors, for ``torch.utils.data.DataLoader(table)``.

        ``a2store.torch.StepLoader`` is much faster.
        """
    def __iter__(self) -> Iterator[dict[str, Any]]: ...
    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows, and the number of ``columns``.

        >>> table.shape
        (29320, 6)
        """
    @property
    def columns(self) -> list[str]:
        """The names of the columns: the fields of a row, the extra columns, the attached columns.

        >>> table.columns
        ['board', 'ev_values', 'run_id', 'step_index', 'move', 'ev_legal']
        """
    @property
    def schema(self) -> ArrowSchema:
        """The names and types of ``columns``, as ``to_arrow`` returns them.

        >>> pa.schema(table.schema).field("board").type
        DataType(uint64)
        """
    @property
    def nbytes(self) -> int:
        """The size of the rows in bytes, ``len(table) * table.stride``."""

    @property
    def stride(self) -> int:
        """The size of a row in bytes: 32, plus any extra columns, rounded up to a multiple of 8."""

    @property
    def dtype(self) -> np.dtype[np.void]:
        """The structured NumPy type of a row, with the offsets of the fields and ``itemsize == stride``."""

    @property
    def fingerprint(self) -> str:
        """A hash of the rows, their order and their layout, as 32 hexadecimal digits.

        Tables with the same fingerprint have the same rows in the same order. A view's fingerprint is a hash of the
        table's fingerprint and of the indices of the view's rows. A saved table or view keeps its fingerprint when it
        is loaded.
        """

    @property
    def errors(self) -> list[Rejected]:
        """The runs and files that ``from_runs`` or ``PackReader.to_table`` skipped, in order."""

    @property
    def shard(self) -> Shard | None:
        """The share of a query that the table holds; ``None`` for other tables, for views, and for tables from files.

        >>> query.materialize(shard=(0, 4), round=2).shard.round
        2
        """

    @property
    def is_view(self) -> bool:
        """Whether this table is a view, such as ``filter`` and ``split`` return."""

    @property
    def categories(self) -> dict[str, list[str]]:
        """The strings of each extra column of strings, in ascending order of their UTF-8 bytes.

        The code of ``categories[name][k]`` is ``k``. Columns of numbers are not included.

        >>> table = query.materialize(extra=["engine"])
        >>> table.categories["engine"][table.take([0])["engine"][0]]
        'a2store-expectimax-1'
        """

    def to_arrow(self) -> Any:
        """Return the rows as a ``pyarrow.Table``, as ``__arrow_c_stream__`` does.

        Raises ``ImportError`` if pyarrow is not installed, and ``KeyboardInterrupt`` on Ctrl-C.

        >>> table.to_arrow().column_names
        ['board', 'ev_values', 'run_id', 'step_index', 'move', 'ev_legal']
        """
    def to_pandas(self) -> Any:
        """Return the rows as a ``pandas.DataFrame``, by way of pyarrow.

        Raises as ``to_arrow`` does.

        >>> table.to_pandas().shape
        (29320, 6)
        """
    def to_polars(self) -> Any:
        """Return the rows as a ``polars.DataFrame``.

        Raises ``ImportError`` if polars is not installed, and ``KeyboardInterrupt`` on Ctrl-C.

        >>> table.to_polars().height
        29320
        """
    def to_numpy(self) -> npt.NDArray[np.void]:
        """Return the rows as a structured array: shape (rows,), of type ``dtype``. It is ``numpy.asarray(table)``.

        Raises ``MemoryError`` if the copy of a view does not fit in memory.

        >>> table.to_numpy()["step_index"].max()
        np.uint16(3772)
        """
    def head(self, n: int = 5) -> Batch:
        """Return the first rows.

        - ``n``: the maximum number of rows, at least 0.

        Raises ``ValueError`` for a negative number. Otherwise raises as ``take`` does.

        >>> table.head(3)["step_index"]
        array([0, 1, 2], dtype=uint16)
        """
    def sample(self, n: int, *, seed: int = 0) -> Batch:
        """Return random rows without repetition, in random order.

        - ``n``: the number of rows, in ``0..=len(table)``.
        - ``seed``: in ``0..2**64``; equal seeds give equal rows on every machine.

        Raises ``ValueError`` for a number out of range. Otherwise raises as ``take`` does.

        >>> table.sample(100, seed=1).tokens.shape
        (100, 16)
        """
    def _repr_html_(self) -> str:
        """Return the first ten rows as an HTML table, which notebooks display.

        >>> "29320 rows" in table._repr_html_()
        True
        """
    def take(self, indices: _Indices) -> Batch:
        """Return the rows at ``indices`` as a batch, in this order; indices may repeat.

        - ``indices``: a one-dimensional sequence or array of integers in ``-len(table)..len(table)``. Negative indices
          count from the end.

        Raises ``IndexError`` with the first index that is out of bounds. Raises ``TypeError`` unless the indices are
        integers, and ``ValueError`` unless they have one dimension. Raises ``MemoryError``, and ``KeyboardInterrupt``
        on Ctrl-C, even in the middle of a long copy.

        >>> table.take([5, 0, 5]).tokens.shape
        (3, 16)
        >>> table.take([len(table)])
        Traceback (most recent call last):
        IndexError: index 29320 is out of bounds for a length of 29320
        """

    def rows_array(self) -> ArrowArray:
        """Return the rows as an Arrow array of ``FixedSizeBinary(stride)``.

        The array shares the table's memory; for a view, it is a copy.

        Raises ``MemoryError`` if a copy does not fit in memory.

        >>> pa.array(table.rows_array()).type
        FixedSizeBinaryType(fixed_size_binary[32])
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
        """Return a view of the rows that meet all given conditions, in the same order.

        The call costs one pass over the table and about 20 bytes per range of rows. The first use of scores or engines
        reads them from the archive, at the table's version. A file that ``save`` wrote contains the scores and engines.

        - ``min_score``, ``max_score``: bounds of the score of the run, both inclusive. The score is ``runs.max_score``.
        - ``engine``: the run's engine, or several allowed engines. Runs without an engine never match.
        - ``phase``: the phase of the game, ``"early"``, ``"mid"`` or ``"late"``, or several. It depends on the largest
          tile on the board and the archive's ``phases``.
        - ``run_ids``: the ids of the runs, in any order, in ``0..2**32``.

        Raises ``ValueError`` for an unknown phase, for ids outside ``0..2**32``, and for scores or engines if the rows
        come from a file without metadata of runs. Raises ``TypeError`` for values of another type. Raises
        ``QueryError``, ``DamagedError`` or ``OSError`` if the archive's runs can no longer be read.

        >>> table.filter(min_score=20_000, phase=["mid", "late"])
        StepTable(16514 rows of 32 bytes, a view)
        >>> len(table.filter(engine="a2store-expectimax-1", run_ids=[3, 7]))
        2952
        """

    def train_test_split(self, test_size: float = 0.1, *, seed: int = 0) -> tuple[StepTable, StepTable]:
        """Split the rows by run into two disjoint views, ``(train, test)``, and return them.

        ``split(test_size, seed=seed)`` returns the same views. ``PackReader.train_test_split`` chooses the same runs.

        - ``test_size``: the approximate share of runs in ``test``, in ``0..=1``.
        - ``seed``: the seed of the split, in ``0..2**64``.

        Raises as ``split`` does.

        >>> train, test = table.train_test_split(0.2, seed=1)
        >>> set(train["run_id"]) & set(test["run_id"])
        set()
        """
    def split(self, val: float = 0.1, *, seed: int = 0) -> tuple[StepTable, StepTable]:
        """Split the rows by run into two disjoint views, ``(train, val)``, and return them.

        Only the run's game, ``val`` and ``seed`` determine whether the run is held out. So a run keeps its side when
        the archive grows, a held-out run stays held out when ``val`` increases, and runs of one game are on the same
        side. To split a view again, use another seed.

        - ``val``: the approximate share of held-out runs, in ``0..=1``.
        - ``seed``: the seed of the split, in ``0..2**64``.

        Issues a ``UserWarning`` if a view is empty although ``val`` is neither 0 nor 1, as can happen with few runs.
        Raises ``ValueError`` for a share out of range, ``MemoryError``, and the errors of reading the archive's runs.

        >>> train, val = table.split(0.2)
        >>> len(train) + len(val) == len(table)
        True
        """

    def save(self, path: _Path, *, progress: _Progress = None) -> None:
        """Write the rows to a ``.npy`` file, which ``numpy.load`` opens as a structured array.

        The metadata for ``load`` follows the rows, where NumPy ignores it: the fingerprint, the categories, checksums,
        and the score, game and engine of each run. ``save`` of a view writes only its rows. The complete file replaces
        an existing file atomically and durably. A process that has mapped the old file keeps the old content.

        - ``path``: the file, which must not be in the archive that the rows were queried from.
        - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.

        Raises ``OSError``, and ``KeyboardInterrupt`` on Ctrl-C. Raises ``ValueError`` for a path in the archive,
        and for a non-ASCII name of an extra column, which NumPy's header cannot hold. After an exception no file is
        left behind.

        >>> table.filter(phase="late").save("late.npy")
        >>> np.load("late.npy").shape
        (1950,)
        """

    @staticmethod
    def load(
        path: _Path, *, mmap: bool = False, memory_limit: int | None = None, progress: _Progress = None
    ) -> StepTable:
        """Return the table in a ``.npy`` file that ``save`` or another program wrote.

        A saved table keeps its fingerprint, so the saved state of a loader still fits it. NumPy's header formats 1.0,
        2.0 and 3.0 are supported.

        Any other one-dimensional structured array works if it has a field ``board``. It may have the other fields of a
        row, with the same names and types, in any order: ``move``, ``ev_legal``, ``ev_values``, ``run_id`` and
        ``step_index``. Missing fields have the values that ``Query.materialize`` gives to missing columns. Further
        fields of numbers or bools, one or several per row, become extra columns. The phases ``"mid"`` and ``"late"``
        begin at the tiles 1024 and 4096.

        - ``path``: the file.
        - ``mmap``: ``True`` = map the file, so that processes share its pages and it may be larger than memory. The
          file must have the layout that ``save`` writes, and must not change while it is mapped. ``load`` then does not
          check the checksum of the rows. ``False`` = read the file.
        - ``memory_limit``: the maximum number of bytes of rows that are read; ``None`` = the memory that the system has
          available.
        - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.

        Raises ``DecodeError`` or ``DamagedError`` for a file that is invalid, truncated or changed. Raises
        ``ColumnError`` for a field that is missing, has another type, or has a value that does not fit. Raises
        ``ValueError`` for a file that cannot be mapped. Raises ``MemoryLimitError``, ``OSError``, and
        ``KeyboardInterrupt`` on Ctrl-C.

        >>> table.save("steps.npy")
        >>> table = a2store.StepTable.load("steps.npy", mmap=True)
        >>> len(table)
        29320
        """

    @staticmethod
    def from_runs(
        paths: _Path | Iterable[_Path],
        *,
        chosen_ev: Literal["stored", "one"] = "stored",
        memory_limit: int | None = None,
        workers: int | None = None,
        progress: _Progress = None,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> StepTable:
        """Read runs of any format into a table, without an archive.

        A row's ``run_id`` is the index of the run among all runs, from 0. Runs that cannot be read count too, so
        ``run_id`` of a single pack is the index in the pack. The phases ``"mid"`` and ``"late"`` begin at the tiles
        1024 and 4096.

        - ``paths``: files and folders, as for ``Archive.ingest``, in the same order.
        - ``chosen_ev``: the value of the chosen move, as in ``Query.materialize``.
        - ``memory_limit``: the maximum number of bytes of rows; ``None`` = the memory that the system has available.
        - ``workers``: the number of threads, 1 to 1,024; ``None`` = one per core.
        - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.
        - ``on_error``: the effect of a run or file that cannot be read. ``"raise"`` raises its error. ``"skip"`` reads
          the other runs and adds the error to ``errors`` of the table. A skipped file counts as one run.

        Raises ``DecodeError`` or ``OSError`` for the first run that cannot be read, unless skipped. Raises
        ``ValueError`` for a run of more than 65,536 steps, ``MemoryLimitError``, and ``KeyboardInterrupt`` on Ctrl-C.
        Issues warnings as ``Archive.ingest`` does.

        >>> a2store.StepTable.from_runs(["runs", "games.a2pack"]).filter(min_score=20_000)
        StepTable(46932 rows of 32 bytes, a view)
        """

    @staticmethod
    def from_session(path: _Path, *, memory_limit: int | None = None, progress: _Progress = None) -> StepTable:
        """Read a self-play session into a table that keeps the session's run ids.

        The session's rows may be in any order; the table has them in the order of ``run_id`` and ``step_index``. The
        values of moves are NaN. If the session does not store a move, a2store derives it from the boards. A move is 255
        if the rules allow several moves, and in the last row of a run. ``filter`` supports scores and engines. A run's
        engine is the ``tag`` of the session's ``model``. The phases ``"mid"`` and ``"late"`` begin at the tiles 1024
        and 4096.

        - ``path``: the session's folder, or a file in it.
        - ``memory_limit``: the maximum number of bytes of rows; ``None`` = the memory that the system has available.
        - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.

        Raises ``DecodeError`` or ``OSError`` for a session that cannot be read. Raises ``ValueError`` for run ids above
        2**32 - 1. Raises ``MemoryLimitError``, and ``KeyboardInterrupt`` on Ctrl-C.

        >>> table = a2store.StepTable.from_session("session")
        >>> table.take([0]).step_index
        array([0], dtype=uint16)
        """

    def attach(
        self,
        name: str,
        path: _Path,
        steps: _Path | None = None,
        *,
        progress: _Progress = None,
    ) -> StepTable:
        """Return this table with an attached column: values of a ``.npy`` array of shape (rows, D).

        Batches, ``take`` and Arrow data of the returned table have the column ``name``, of shape (n, D). So do its
        views, its loaders, and its copies in other processes. The rows themselves do not change: ``numpy.asarray``,
        ``dtype``, ``fingerprint``, the states of loaders and ``save`` omit the column. Attach it again after ``load``.

        A structured array of the same length holds the keys: the integers ``run_id`` and ``step_idx`` or
        ``step_index``. The array may have more steps than the table, in any order, and fewer than 2**32 - 1 steps. If
        array and table have the same order, the mapping takes no memory; otherwise it takes 4 bytes per row of the
        table. If the keys include boards, as ``board`` or ``exps``, the boards must equal the table's boards.

        The array's type is a little-endian float or integer, or bfloat16. An array is bfloat16 if it is ``<u2`` and the
        JSON file beside it has ``bf16`` as ``dtype_bits`` or ``dtype``. The JSON file of ``embeddings.bf16.npy`` is
        ``embeddings.json``; its ``D`` and type must match the array. NumPy and Arrow get the bits of bfloat16 as
        uint16; in Arrow, the field's metadata has ``a2store.dtype``. ``a2store.torch`` converts the bits to
        ``torch.bfloat16``.

        - ``name``: the name of the new column.
        - ``path``: the array, which is mapped and must not change; or a folder with ``embeddings.npy``, or with its
          shards ``embeddings-<number>.npy``. The first shard has the rows of the first shard of ``steps.npy``, and so
          on.
        - ``steps``: the file of the keys, or a folder with ``steps.npy`` or its shards; ``None`` = the array's folder.
        - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.

        ``loader(symmetries=True)`` rejects attached columns, because they describe the original board. Use ``columns``
        to leave them out.

        Raises ``ColumnError``, with the row, if a row's step is not in the array, and if the keys have a step twice.
        Raises ``DecodeError`` for files of another kind, for different numbers of rows, and for files that contradict
        the JSON. Raises ``ValueError`` if the name is taken. Raises ``OSError``, and ``KeyboardInterrupt`` on Ctrl-C.

        >>> steps = np.zeros(len(table), [("run_id", "<u4"), ("step_index", "<u4")])
        >>> steps["run_id"], steps["step_index"] = np.asarray(table)["run_id"], np.asarray(table)["step_index"]
        >>> np.save("steps.npy", steps)
        >>> np.save("embeddings.npy", np.zeros((len(table), 8), np.float32))
        >>> table = table.attach("embedding", "embeddings.npy", "steps.npy")
        >>> table.take([0]).embedding.shape
        (1, 8)
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
        - ``epoch``: the first epoch, in ``0..2**64``.
        - ``drop_last``: ``True`` = omit the last rows of an epoch that do not fill a batch on every rank. ``False`` =
          the ranks divide these rows evenly, and the last batch is smaller.
        - ``rank``: the number of this process, in ``0..world_size``.
        - ``world_size``: the number of processes that share the rows, at least 1. All ranks get the same number of
          batches, and no two ranks get the same row.
        - ``tokens``: the type of ``Batch.tokens``: ``"uint8"``, ``"int32"`` or ``"int64"``.
        - ``symmetries``: ``True`` = transform each row by one of the board's eight symmetries: board, tokens, move,
          values and mask, but not the extra columns. The seed, the epoch and the row's index determine the symmetry. It
          cannot be combined with attached columns, or with extra columns of several values per row.
        - ``columns``: the names of the columns in a batch, in order; ``None`` = all, including extra and attached
          columns.
        - ``prefetch``: the number of batches that a background thread prepares ahead, at most 4,096; 0 = each batch is
          prepared on demand.
        - ``replacement``: ``True`` = draw rows uniformly with replacement.
        - ``weights``: an extra column of finite weights of at least 0; rows are drawn with replacement, in proportion
          to the weights. The loader takes 8 bytes per row, and up to three passes over the table when it is created.
        - ``strata``: an extra column whose values are the strata; at most 4,096 different values. In any prefix of an
          epoch each stratum has its quota, to within one row. Within a stratum the order is shuffled, and no row
          repeats before all others have occurred. The loader takes 4 bytes per row (up to 8 in strata of fewer than
          65,536 rows), and one pass over the table when it is created.
        - ``quotas``: the relative shares of the strata to serve, by value: a string of ``categories``, a number, a
          bool, or ``None`` for null. Shares are at least 0 and have a finite sum; fractional shares are rounded to
          1/65,536 of the sum. ``None`` = equal shares.
        - ``num_samples``: the number of rows per epoch over all ranks, in ``0..=2**62``, with ``replacement``,
          ``weights`` or ``strata``; ``None`` = the number of rows in the table.
        - ``window``: the approximate number of rows to shuffle at a time, at least 1, for mapped tables larger than
          memory. A window is 256 blocks of ``2**k`` rows from random places, with the largest ``k`` that fits. Each
          block is read once per epoch, in one piece. The memory should hold two windows of rows.

        Raises ``ValueError`` for an option out of range, and for options that exclude each other. Raises
        ``ColumnError`` for an invalid weight, with the row, and for too many strata. Raises ``TypeError`` for a quota
        that is not a number, and ``MemoryError`` if weights or strata do not fit in memory.

        >>> loader = table.loader(batch_size=1024, seed=1, tokens="int64", columns=["tokens", "move"])
        >>> for epoch in range(2):
        ...     for batch in loader:
        ...         tokens, move = batch.tokens, batch.move
        >>> len(loader), tokens.dtype
        (29, dtype('int64'))
        >>> table = query.materialize(extra=["phase"])
        >>> table.loader(strata="phase", quotas={"early": 1, "mid": 1, "late": 2}, symmetries=True)
        Loader(29320 rows, stratified by phase: early=1 late=2 mid=1, batch_size=4096, ...)
        """

    def __reduce__(self) -> tuple[Callable[[bytes], StepTable], tuple[bytes]]:
        """Return a handle for ``pickle``; for a whole table in memory it is smaller than 1 KiB.

        Raises ``OSError`` if the system lacks suitable shared memory, which only Linux has.
        """

    def __array__(self, dtype: npt.DTypeLike | None = None, *, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return the rows as a structured array: shape (rows,), of type ``table.dtype``.

        The array shares the table's memory and is read-only, unless ``copy`` or another dtype requires a copy. For a
        view, the array is a copy.

        Raises ``ValueError`` if a copy is required and ``copy`` is ``False``.
        """

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as columns, in an ``arrow_array_stream`` capsule.

        Rows are transposed in chunks of 65,536, on demand. The columns are the fields of a row, then the extra columns.
        ``ev_values`` and columns of several values per row are fixed-size lists, and ``ev_legal`` is a mask. Columns of
        strings are dictionaries; only these columns have nulls.

        - ``requested_schema``: an ``arrow_schema`` capsule; columns are cast to its types where possible.
        """

@final
class Batch:
    """A batch of rows as columns, in NumPy arrays that share the batch's memory.

    Each column, including each extra column, is an attribute, ``batch.tokens``, and an item, ``batch["tokens"]``. A
    column named like a method is only an item. A column that the loader does not serve raises ``AttributeError`` or
    ``KeyError``.

    A batch is a ``Mapping`` of names to arrays, but ``len(batch)`` is the number of rows, called n below.

    The arrays are writable. The loader does not reuse their memory while one of them exists.
    ``pyarrow.record_batch(batch)`` shares the memory too, except for columns of bools, which it copies.

    - ``tokens``: the exponents of the boards: shape (n, 16), row by row from the top left; uint8, int32 or int64. They
      are 0 to 15, and 16 for a tile of 65536 if the table has ``tile_65536_mask``.
    - ``move``: the chosen move: shape (n,), uint8, 0 to 3 in the order UDLR, 255 = none.
    - ``ev_values``: the value of each move: shape (n, 4), float32, in the order UDLR; 0.0 if illegal, four NaNs if
      unknown.
    - ``ev_legal``: the legal moves: shape (n, 4), bool, in the order UDLR.
    - ``run_id``: the run's id in the archive: shape (n,), uint32.
    - ``step_index``: the step's index in its run, from 0: shape (n,), uint16; uint32 if the table has an index above
      65,535.
    - ``board``: the board before the move: shape (n,), uint64.

    An extra column of strings has codes: shape (n,), int16, -1 = null; ``table.categories`` has the strings. An extra
    column of lists of D values, and an attached column, have the shape (n, D), or (n,) if D is 1.

    >>> batch = next(iter(table.loader(batch_size=256)))
    >>> batch
    Batch(256 rows: tokens, move, ev_values, ev_legal, run_id, step_index, board)
    >>> batch.tokens.shape, batch["ev_values"].dtype, "engine" in batch
    ((256, 16), dtype('float32'), False)
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

    def items(self) -> list[tuple[str, npt.NDArray[Any]]]:
        """Return the names and columns, in order.

        Raises as ``to_dict`` does.

        >>> {name: column.shape for name, column in table.take([0, 1]).items()}["tokens"]
        (2, 16)
        """
    def values(self) -> list[npt.NDArray[Any]]:
        """Return the columns, in order.

        Raises as ``to_dict`` does.

        >>> [column.ndim for column in table.take([0, 1]).values()]
        [2, 1, 2, 2, 1, 1, 1]
        """
    def get(self, name: object, default: Any = None) -> Any:
        """Return a column, or the default if there is no column of this name.

        - ``name``: the column's name.
        - ``default``: the value to return for a missing column.

        Raises as ``to_dict`` does.

        >>> table.take([0]).get("engine", "none")
        'none'
        """
    def to_torch(self, device: Any = None) -> dict[str, Any]:
        """Return all columns as PyTorch tensors by name, as ``a2store.torch`` describes them.

        On the CPU, the tensors share the batch's memory, except for the uint16 and uint32 columns, which are widened.

        - ``device``: a ``torch.device`` or its name; ``None`` = the CPU.

        Raises ``ImportError`` if torch is not installed.

        >>> table.take([0, 1]).to_torch()["tokens"].shape
        torch.Size([2, 16])
        """
    def to_jax(self, device: Any = None) -> dict[str, Any]:
        """Return all columns as JAX arrays by name.

        A column of 64-bit integers stays a NumPy array unless ``jax_enable_x64`` is set, because JAX would cut its
        values to 32 bits. A bfloat16 column is ``jax.numpy.bfloat16``.

        - ``device``: a device or sharding, as ``jax.device_put`` takes it; ``None`` = the default device.

        Raises ``ImportError`` if jax is not installed.
        """
    def keys(self) -> list[str]:
        """Return the names of the columns, in order.

        >>> table.take([0]).keys()
        ['tokens', 'move', 'ev_values', 'ev_legal', 'run_id', 'step_index', 'board']
        """

    def to_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return all columns by name, in order.

        The arrays share the batch's memory.

        Raises ``MemoryError`` if an allocation fails.

        >>> table.take([0]).to_dict()["move"].dtype
        dtype('uint8')
        """

    def __getitem__(self, name: str, /) -> npt.NDArray[Any]:
        """Return the column of this name.

        Raises ``KeyError`` if there is no such column.
        """

    def __contains__(self, name: object, /) -> bool:
        """Return whether there is a column of this name."""

    def __getattribute__(self, name: str, /) -> npt.NDArray[Any]:
        """Return the column of this name; a column named like a method is only an item.

        Raises ``AttributeError`` if there is no such column.
        """

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Return the batch as a struct of its columns, in the capsules ``arrow_schema`` and ``arrow_array``.

        ``tokens``, ``ev_values`` and ``ev_legal`` are fixed-size lists. Columns of strings are dictionaries; only these
        columns have nulls.

        - ``requested_schema``: an ``arrow_schema`` capsule; columns are cast to its types where possible.
        """

# Loader

@final
class Loader:
    """A loader that serves a table's rows in batches, one epoch per iteration.

    All ranks share one stream of rows. Each step takes the next ``world_size * batch_size`` rows, and every rank gets
    its part of them. A thread prepares batches ahead, so the loop rarely waits. Run one iteration of a loader at a
    time. ``len(loader)`` is the number of batches in a whole epoch. To get a loader, call ``StepTable.loader`` or
    ``a2store.mix``.

    The first iteration serves the epoch of the option ``epoch``, and each further iteration serves the next epoch, in
    another order. An iteration counts once it has returned a batch, even if the loop ends early. ``set_epoch`` chooses
    an epoch.

    Ctrl-C can interrupt a batch, and a failed allocation raises ``MemoryError``. In both cases the next call returns
    the same batch, and the loader's position does not change.

    >>> loader = table.loader(batch_size=4096, seed=1)
    >>> len(loader)
    8
    >>> sum(len(batch) for batch in loader)
    29320
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

    def skip_batches(self, n: int) -> None:
        """Skip batches of the epoch: the next iteration begins after them.

        The skipped batches follow the loader's position, which ``state_dict`` returns. After a spike of the loss, load
        an older state, skip the batches that led to the spike, and continue. ``skip_batches(0)`` continues an iteration
        that the loop left early. If no more batches are left in the epoch, the next iteration serves the next epoch.

        - ``n``: the number of batches of this loader's size, in ``0..2**64``.

        Raises ``ValueError`` for a number out of range.

        >>> loader = table.loader(batch_size=1000)
        >>> loader.skip_batches(20)
        >>> sum(len(batch) for batch in loader)
        9320
        """
    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the order.

        The next iteration serves this epoch. If you have just loaded a state of this epoch, the iteration begins at the
        state's position. So a loop that calls ``set_epoch`` for each epoch can resume in the middle of an epoch.

        - ``epoch``: the number of the epoch, in ``0..2**64``.

        Raises ``ValueError`` for a number out of range.

        >>> loader = table.loader(seed=1)
        >>> loader.set_epoch(1)
        >>> loader.epoch
        1
        """

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position after the batches returned so far; prefetched batches do not count.

        The state is a dict of at most 512 bytes as JSON. After the same number of batches, all ranks have the same
        state.

        - ``version``: int, 1, the version of the dict and of the orders.
        - ``archive``, ``archive_version``: str and int, the archive's id and version.
        - ``query``: str, a hash of the query's text, parameters and limits. For rows of other origin, these three
          values are ``""``, 0 and ``""``. ``load_state_dict`` does not compare them.
        - ``rows``: str, the table's ``fingerprint``.
        - ``num_rows``, ``num_samples``: ints, the numbers of rows of the table and of an epoch.
        - ``order``: str, the rows of an epoch and their order, such as ``"shuffled"`` or ``"weighted by age"``. Equal
          orders have equal names: quotas of 2 and 4 have the same name as quotas of 1 and 2.
        - ``seed``, ``symmetries``: int and bool, the options.
        - ``epoch``: int.
        - ``position``: int, the number of rows of the epoch served so far to all ranks together, in
          ``0..=num_samples``.

        Raises ``MemoryError`` if an allocation fails.

        >>> loader = table.loader(batch_size=100)
        >>> batch = next(iter(loader))
        >>> state = loader.state_dict()
        >>> state["epoch"], state["position"], state["order"]
        (0, 100, 'shuffled')
        """

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration begin at the epoch and the position of a state.

        Rows, order, ``num_samples``, ``seed`` and ``symmetries`` must equal those of the loader that made the state.
        The rows may come from another version of the archive, such as a compacted version, or from another archive.
        Batch size, rank, number of ranks, columns and tokens may differ. If the state is at the end of an epoch, the
        next iteration serves the next epoch. If you then call ``set_epoch`` with the state's epoch, that iteration has
        no batches.

        - ``state``: a dict that ``state_dict`` returned.

        Raises ``StateMismatchError``, with the name of the differing field, for a state of other rows or another order.
        Raises ``ValueError`` for an invalid state. The loader is then unchanged.

        >>> loader = table.loader(batch_size=1024, seed=1)
        >>> batch = next(iter(loader))
        >>> state = loader.state_dict()
        >>> loader = table.loader(batch_size=2048, seed=1)
        >>> loader.load_state_dict(state)
        >>> sum(len(batch) for batch in loader) == len(table) - 1024
        True
        """

@final
class _Position:
    """The position of a loader written in Python, with the state machine of ``Loader``."""

    def __new__(cls, num_rows: int, batch_size: int, world_size: int, drop_last: bool, epoch: int) -> Self: ...
    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
    @property
    def start(self) -> int:
        """The row at which the next iteration begins."""
    @property
    def newest(self) -> tuple[int, int]:
        """The epoch and the row of a saved state."""
    @property
    def num_batches(self) -> int:
        """The number of batches of a whole epoch."""
    def set_num_rows(self, num_rows: int) -> None: ...
    def set_epoch(self, epoch: int) -> None: ...
    def skip(self, num_batches: int) -> None: ...
    def load(self, epoch: int, row: int) -> None: ...
    def begin(self) -> tuple[int, int, int]:
        """Begin an iteration, and return its epoch, its first row and its number."""
    def serve(self, iteration: int, row: int) -> None:
        """Record that an iteration has returned the batch before ``row``, or has ended at ``row``."""
    def row_after(self, row: int, num_batches: int) -> int: ...

@final
class BatchIterator:
    """An iterator over the remaining batches of an epoch, which ``iter(loader)`` returns.

    >>> batches = iter(table.loader(batch_size=4096))
    >>> len(next(batches))
    4096
    """

    def __iter__(self) -> Self:
        """Return the iterator itself."""

    def __next__(self) -> Batch:
        """Return the next batch. While it waits, other Python threads can run.

        Raises ``MemoryError``, and ``KeyboardInterrupt`` on Ctrl-C.
        """

    def __length_hint__(self) -> int:
        """Return the number of remaining batches."""

# Arrow

@final
class ArrowArray:
    """An Arrow array for ``pyarrow.array`` and any other consumer of ``__arrow_c_array__``.

    >>> rows = table.rows_array()
    >>> len(rows), pa.array(rows).type
    (29320, FixedSizeBinaryType(fixed_size_binary[32]))
    """

    def __len__(self) -> int:
        """Return the number of values."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Return the array in the capsules ``arrow_schema`` and ``arrow_array``.

        - ``requested_schema``: an ``arrow_schema`` capsule; the values are cast to its type if it differs.
        """

@final
class ArrowBatch:
    """An Arrow record batch for ``pyarrow.record_batch`` and any other consumer of ``__arrow_c_array__``.

    ``len(batch)`` is the number of rows.

    >>> batch = next(iter(archive.sql("SELECT run_id, max_score FROM runs")))
    >>> batch
    ArrowBatch(20 rows: run_id: uint32, max_score: int64)
    >>> pa.record_batch(batch)["max_score"][0]
    <pyarrow.Int64Scalar: 11308>
    """

    @property
    def schema(self) -> ArrowSchema:
        """The schema of the batch."""
    def __len__(self) -> int:
        """Return the number of rows."""

    def __arrow_c_schema__(self) -> object:
        """Return the batch's schema as an ``arrow_schema`` capsule."""
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Return the batch as a struct of its columns, in the capsules ``arrow_schema`` and ``arrow_array``.

        - ``requested_schema``: an ``arrow_schema`` capsule; columns are cast to its types where possible.
        """

@final
class ArrowSchema:
    """An Arrow schema for ``pyarrow.schema`` and any other consumer of ``__arrow_c_schema__``.

    ``len(schema)`` is the number of columns.

    >>> schema = archive.schema("steps")
    >>> schema.names[:3], len(schema)
    (['run_id', 'step_index', 'board'], 19)
    >>> pa.schema(schema).field("board").type
    DataType(uint64)
    """

    @property
    def names(self) -> list[str]:
        """The names of the columns, in order."""

    def __len__(self) -> int:
        """Return the number of columns."""

    def __arrow_c_schema__(self) -> object:
        """Return the schema as an ``arrow_schema`` capsule."""

def _board_svg(board: int, tile_65536_mask: int, size: int, colors: Literal["classic", "viridis"]) -> str:
    """Return a board as SVG."""

def _exponents(board: int, tile_65536_mask: int) -> bytes:
    """Return the exponents of a board, 16 for a tile of 65536."""

def _permutation(length: int, seed: int, begin: int, end: int) -> npt.NDArray[np.uint64]:
    """Return elements ``begin..end`` of a permutation of ``0..length`` as an array."""

def _row_indices(indices: _Indices, length: int) -> npt.NDArray[np.uint64]:
    """Return indices of rows as an array of places; negative ones count from the end."""

def _write_page(path: _Path, page: str) -> None:
    """Write text to a file. Replace an existing file atomically."""

def _attach(handle: bytes) -> StepTable:
    """Return the table of a handle; unpickling calls this.

    Raises ``OSError`` if the file, or the process that made the handle, is gone. Raises ``DamagedError`` if a different
    file or memory has replaced it, and ``DecodeError`` for bytes that are not a handle.
    """

def _run_command(args: Sequence[_Path]) -> int:
    """Run the command ``a2store`` or ``a2pack`` with these arguments and return its exit status.

    The status is 0 for success, 1 for a problem in the data, and 2 for wrong usage.

    - ``args``: the command's name, then its arguments.
    """
