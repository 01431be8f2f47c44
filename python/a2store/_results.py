"""Results of calls: reports, and descriptions of commits, queries and functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "AnnotateReport",
    "CommitInfo",
    "CompactReport",
    "ExpireReport",
    "ExportReport",
    "IngestReport",
    "JsonlReport",
    "ModelInfo",
    "PackStats",
    "PlayResult",
    "Problem",
    "RecorderStats",
    "Rejected",
    "RestoreReport",
    "RunMeta",
    "SavedParameter",
    "SavedQuery",
    "Shard",
    "SimulateReport",
    "SqlFunction",
    "VerifyReport",
]


@dataclass(frozen=True)
class CommitInfo:
    """One commit in an archive's history.

    - ``version``: the version that the commit created.
    - ``time``: the time of the commit: a ``datetime.datetime`` in UTC, in milliseconds.
    - ``operation``: the operation that made the commit.
    - ``txn``: the unique id of the commit: 32 hexadecimal digits.
    - ``added_runs``: the number of added runs. If the archive is in a folder, their ids are ``next_run_id - added_runs
      .. next_run_id``.
    - ``added_steps``: the number of added steps.
    - ``next_run_id``: the first run id that was unused after the commit.
    - ``added_files``: the number of added data files.
    - ``removed_files``: the number of data files that the commit removed from the archive's list.
    - ``num_runs``: the number of runs in the archive after the commit.
    - ``num_steps``: the number of steps in the archive after the commit.

    >>> commit = archive.history()[0]
    >>> commit.operation, commit.added_runs, commit.added_steps
    ('ingest', 20, 29320)
    """

    version: int
    time: datetime
    operation: Literal["create", "ingest", "compact", "expire", "restore", "annotate"]
    txn: str = field(repr=False)
    added_runs: int
    added_steps: int
    next_run_id: int = field(repr=False)
    added_files: int = field(repr=False)
    removed_files: int = field(repr=False)
    num_runs: int = field(repr=False)
    num_steps: int = field(repr=False)


@dataclass(frozen=True)
class IngestReport:
    """A summary of an ingest.

    - ``accepted``: the number of added runs.
    - ``duplicates``: the number of skipped runs, which were already in the archive or occurred earlier in the input.
    - ``twins``: the number of added twins, which are runs with the same boards as another run.
    - ``rejected``: the number of runs, and of whole files, that could not be read. Each is listed in ``errors``.
    - ``ignored``: the files in folders that were skipped because their content is unknown, as paths. With
      ``on_error="raise"``, such a file is an error.
    - ``num_steps``: the number of added steps.
    - ``num_bytes``: the size of the input files, in bytes.
    - ``errors``: the runs and files that could not be read or decoded, in the order of the paths.

    >>> report = archive.ingest("runs")
    >>> report.accepted, report.duplicates, report.rejected
    (0, 20, 0)
    """

    accepted: int
    duplicates: int
    twins: int
    rejected: int
    ignored: list[Path] = field(repr=False)
    num_steps: int
    num_bytes: int = field(repr=False)
    errors: list[Rejected] = field(repr=False)


@dataclass(frozen=True)
class Rejected:
    """A run, or a whole file, that an ingest rejected or ``on_error="skip"`` skipped, with the reason.

    - ``path``: the file; the folder of a dataset, a session or a pack if no single file is wrong.
    - ``offset``: the position of the failure in the file, in bytes from its start, if known.
    - ``run``: the index of the rejected run in its file, from 0; ``None`` = the whole file, or the only run in it.
    - ``step``: the step of the run with the failure, from 0, if known.
    - ``kind``: a short name of the failure: ``"decode"``, ``"checksum"``, ``"header"`` or ``"io"``.
    - ``message``: the failure and its place, in one line, without the path.

    >>> from pathlib import Path
    >>> _ = Path("damaged.a2run2").write_bytes(Path("runs/run-00000.a2run2").read_bytes()[:-100])
    >>> rejected = archive.ingest("damaged.a2run2").errors[0]
    >>> rejected.path, rejected.kind
    (PosixPath('damaged.a2run2'), 'decode')
    >>> rejected.message
    'byte 18969 (step 642): value of a branch: expected 4 bytes, found 3 before the end'
    """

    path: Path
    offset: int | None
    run: int | None
    step: int | None
    kind: str
    message: str


@dataclass(frozen=True)
class AnnotateReport:
    """A summary of an import of annotations.

    - ``model``: the model.
    - ``num_runs``: the number of annotated runs.
    - ``num_rows``: the number of annotated steps.
    - ``missing_steps``: the number of steps without annotations in the annotated runs.
    - ``replaced_rows``: the number of rows that were replaced.

    >>> predictions = np.asarray(table)[[0, 1, 2]][["run_id", "step_index"]]
    >>> report = archive.annotate("model-v1", predictions, partial=True)
    >>> report.num_rows, report.missing_steps
    (3, 643)
    """

    model: str
    num_runs: int
    num_rows: int
    missing_steps: int = field(repr=False)
    replaced_rows: int = field(repr=False)


@dataclass(frozen=True)
class ModelInfo:
    """The annotations of a model.

    - ``model``: the model.
    - ``num_rows``: the number of annotated steps.
    - ``num_files``: the number of data files.
    - ``num_bytes``: the size of the data files, in bytes.
    - ``first_run_id``: the first annotated run.
    - ``last_run_id``: the last annotated run.

    >>> predictions = np.asarray(table)[[0, 1, 2]][["run_id", "step_index"]]
    >>> report = archive.annotate("model-v1", predictions, partial=True)
    >>> model = archive.annotations()[0]
    >>> model.model, model.num_rows, model.first_run_id
    ('model-v1', 3, 0)
    """

    model: str
    num_rows: int
    num_files: int = field(repr=False)
    num_bytes: int = field(repr=False)
    first_run_id: int
    last_run_id: int


@dataclass(frozen=True)
class ExportReport:
    """A summary of an export.

    - ``path``: the written file or folder.
    - ``runs``: the number of written runs.
    - ``num_steps``: the number of steps of those runs.
    - ``num_files``: the number of run files; 1 for formats with several runs per file.
    - ``errors``: the runs and files that were skipped with ``on_error="skip"``, in order.

    >>> report = archive.export_runs("SELECT run_id FROM runs LIMIT 3", "out")
    >>> report.runs, report.num_files
    (3, 3)
    """

    path: Path
    runs: int
    num_steps: int
    num_files: int = field(repr=False)
    errors: list[Rejected] = field(repr=False)


@dataclass(frozen=True)
class CompactReport:
    """A summary of a compaction.

    - ``files_before``: the number of data files before the compaction.
    - ``files_after``: the number of data files after the compaction.
    - ``bytes_before``: the size of the data files before the compaction, in bytes.
    - ``bytes_after``: the size of the data files after the compaction, in bytes.
    - ``num_rows``: the number of rewritten rows in both tables.

    >>> report = archive.compact()
    >>> report.files_before, report.files_after
    (2, 2)
    """

    files_before: int
    files_after: int
    bytes_before: int = field(repr=False)
    bytes_after: int = field(repr=False)
    num_rows: int


@dataclass(frozen=True)
class ExpireReport:
    """A summary of what ``expire`` removed or, with ``dry_run``, would remove.

    - ``first_version``: the oldest version that can still be opened without a tag.
    - ``tags``: the tags of older versions, which are kept.
    - ``num_versions``: the number of versions that expired.
    - ``num_files``: the number of removed data files.
    - ``num_bytes``: the size of the removed data files in bytes.
    - ``paths``: the removed files, relative to the archive: data files, manifests and leftovers of interrupted writers.

    >>> report = archive.expire()
    >>> report.first_version, report.num_versions
    (1, 0)
    """

    first_version: int
    tags: list[str] = field(repr=False)
    num_versions: int
    num_files: int
    num_bytes: int = field(repr=False)
    paths: list[str] = field(repr=False)


@dataclass(frozen=True, repr=False)
class VerifyReport:
    """The result of ``verify``.

    - ``problems``: the problems found; empty if the archive is intact.
    - ``version``: the newest version, or 0 if it cannot be read.
    - ``num_versions``: the number of versions that have not expired.
    - ``num_files``: the number of data files read, including files of older versions.
    - ``num_bytes``: the size of the data files read, in bytes.
    - ``num_runs``: the number of runs at the newest version.
    - ``num_steps``: the number of steps at the newest version.
    - ``unnamed_files``: the number of data files that no kept version references. They are harmless. ``expire`` removes
      them, except the file with the highest run ids.

    >>> report = archive.verify()
    >>> report.problems, report.num_versions, report.num_runs
    ([], 2, 20)
    """

    problems: list[Problem]
    version: int
    num_versions: int
    num_files: int
    num_bytes: int
    num_runs: int
    num_steps: int
    unnamed_files: int

    def __repr__(self) -> str:
        numbers = f"version={self.version}, num_files={self.num_files}, num_runs={self.num_runs}"
        return f"VerifyReport({len(self.problems)} problems, {numbers})"


@dataclass(frozen=True)
class Problem:
    """A problem in an archive.

    - ``path``: the file, relative to the archive.
    - ``run_id``: the run with the problem, if it concerns one run.
    - ``what``: the property that is wrong.
    - ``expected``: the value that the rest of the archive requires.
    - ``found``: the value that was found.

    >>> from pathlib import Path
    >>> Path(archive.files("runs")[0]).unlink()
    >>> problem = archive.verify().problems[0]
    >>> problem.what, problem.found
    ('data file', 'no file')
    """

    path: str
    run_id: int | None
    what: str
    expected: str
    found: str


@dataclass(frozen=True, repr=False)
class RestoreReport:
    """A summary of what a restore did or, with ``dry_run``, would do.

    - ``version``: the version whose files the archive continues with.
    - ``new_version``: the new version; ``None`` if the newest version has these files already.
    - ``adopted_runs``: the number of runs in data files that no manifest listed.
    - ``adopted``: the data files that no manifest listed, relative to the archive.
    - ``lost``: the annotation files that the version lists but that no longer exist, relative to the archive. They
      expired after a later version whose manifest is damaged, and the new version lacks them.
    - ``damaged``: the damaged manifests, which ``restore`` removes, relative to the archive.
    - ``done``: whether the archive was changed.

    >>> from pathlib import Path
    >>> manifest = sorted(Path("games.a2/_versions").glob("*.json"))[0]
    >>> _ = manifest.write_text("{}")
    >>> report = a2store.restore("games.a2")
    >>> report.version, report.new_version, report.adopted_runs
    (1, 3, 20)
    """

    version: int
    new_version: int | None
    adopted_runs: int
    adopted: list[str]
    lost: list[str]
    damaged: list[str]
    done: bool

    def __repr__(self) -> str:
        numbers = f"version={self.version}, new_version={self.new_version}, adopted_runs={self.adopted_runs}"
        return f"RestoreReport({numbers}, done={self.done})"


@dataclass(frozen=True)
class PackStats:
    """Statistics of a pack. Lengths are numbers of steps; a percentile is the length at the nearest rank.

    - ``count``: the number of runs.
    - ``total_steps``: the number of steps of all runs.
    - ``min_len``: the length of the shortest run.
    - ``max_len``: the length of the longest run.
    - ``mean_len``: the mean length.
    - ``p50``: the median length.
    - ``p90``: the 90th percentile of the lengths.
    - ``p99``: the 99th percentile of the lengths.
    - ``unreadable``: the number of runs whose header cannot be read. ``highest_tiles`` and ``engines`` exclude them.
    - ``highest_tiles``: the number of runs by highest tile.
    - ``engines``: the number of runs by engine, in descending order of the number.

    >>> stats = a2store.PackReader.open("games.a2pack").stats
    >>> stats.count, stats.p50, stats.highest_tiles
    (20, 1483, {512: 1, 1024: 7, 2048: 10, 4096: 2})
    """

    count: int
    total_steps: int
    min_len: int
    max_len: int
    mean_len: float
    p50: int = field(repr=False)
    p90: int = field(repr=False)
    p99: int = field(repr=False)
    unreadable: int = field(repr=False)
    highest_tiles: dict[int, int] = field(repr=False)
    engines: dict[str | None, int] = field(repr=False)

    # The names in older tools for packs.

    @property
    def p50_len(self) -> int:
        """``p50``, under its name in older tools for packs."""
        return self.p50

    @property
    def p90_len(self) -> int:
        """``p90``, under its name in older tools for packs."""
        return self.p90

    @property
    def p99_len(self) -> int:
        """``p99``, under its name in older tools for packs."""
        return self.p99

    @property
    def highest_tile_hist(self) -> dict[int, int]:
        """``highest_tiles``, under its name in older tools for packs."""
        return self.highest_tiles

    @property
    def engine_counts(self) -> dict[str | None, int]:
        """``engines``, under its name in older tools for packs."""
        return self.engines


@dataclass(frozen=True)
class RunMeta:
    """The metadata of a run file, as the engine wrote it. a2store does not check it against the steps.

    - ``num_steps``: the number of steps.
    - ``start_unix_s``: the time at which the game began, in seconds since 1970 UTC; 0 = unknown.
    - ``elapsed_s``: the duration of the game, in seconds.
    - ``max_score``: the final score as the engine counts it.
    - ``highest_tile``: the largest tile reached, such as 2048.
    - ``engine``: the engine's name; ``None`` = the file has none. In a2run2, ``None`` differs from an empty name.
    - ``seed``: the seed of the game, which run files do not store.
    - ``raw_evs``: whether the values are the engine's raw numbers, not normalized to [0, 1). Run files do not store
      this flag.
    - ``format``: the format from which the run was read.

    >>> meta = a2store.read_run("runs/run-00000.a2run2").meta
    >>> meta.num_steps, meta.max_score, meta.highest_tile, meta.format
    (646, 11308, 1024, 'a2run2')
    """

    num_steps: int
    start_unix_s: int = field(repr=False)
    elapsed_s: float = field(repr=False)
    max_score: int
    highest_tile: int
    engine: str | None
    seed: int | None = field(repr=False)
    raw_evs: bool = field(repr=False)
    format: Literal["a2t1", "a2run2"]


@dataclass(frozen=True)
class Shard:
    """The share of a query's rows that a table holds, from ``Query.materialize``.

    - ``rank``: the rank of the share, from 0.
    - ``world_size``: the number of ranks.
    - ``seed``: the seed of the orders of all rounds.
    - ``round``: the number of the round.
    - ``total_rows``: the number of rows of all shares. A share has this number divided by ``world_size``, rounded down
      or up.

    >>> archive.sql("SELECT * FROM steps").materialize(shard=(1, 2)).shard
    Shard(rank=1, world_size=2, seed=0, round=0, total_rows=29320)
    """

    rank: int
    world_size: int
    seed: int
    round: int
    total_rows: int


@dataclass(frozen=True)
class JsonlReport:
    """A summary of what ``PackReader.to_jsonl`` wrote.

    - ``num_runs``: the number of runs written.
    - ``num_steps``: the number of steps of those runs.
    - ``num_bytes``: the number of bytes written.
    - ``errors``: one message for each run that could not be read.

    >>> report = a2store.PackReader.open("games.a2pack").to_jsonl("games.jsonl", by_step=True)
    >>> report.num_runs, report.errors
    (20, [])
    """

    num_runs: int
    num_steps: int
    num_bytes: int
    errors: list[str] = field(repr=False)


@dataclass(frozen=True)
class SavedQuery:
    """A named query: an SQL file whose header declares its parameters. ``Archive.query`` runs it.

    - ``name``: the name of the file without ``.sql``.
    - ``purpose``: the purpose of the query, as its header states it.
    - ``parameters``: the parameters of the query.
    - ``sql``: the text of the whole file. Its header also describes the columns of the result.

    >>> query = next(query for query in a2store.queries() if query.name == "high_score")
    >>> [parameter.name for parameter in query.parameters], query.parameters[0].default
    (['min_score', 'engine', 'phase'], 20000)
    """

    name: str
    purpose: str
    parameters: tuple[SavedParameter, ...] = field(repr=False)
    sql: str = field(repr=False)


@dataclass(frozen=True)
class SavedParameter:
    """A parameter of a named query.

    - ``name``: the name of the parameter.
    - ``type``: the type of the parameter. A value of another type is rejected.
    - ``default``: the default value.
    - ``doc``: the description of the parameter.

    >>> query = next(query for query in a2store.queries() if query.name == "high_score")
    >>> parameter = query.parameters[0]
    >>> parameter.name, parameter.type, parameter.default
    ('min_score', 'int64', 20000)
    """

    name: str
    type: Literal["bool", "int64", "uint64", "float64", "string"]
    default: bool | int | float | str | None
    doc: str = field(repr=False)


@dataclass(frozen=True)
class SqlFunction:
    """An SQL function over boards, moves or values of moves.

    - ``name``: the name of the function.
    - ``signature``: the form of a call: ``"tile(board, cell[, tile_65536_mask])"``. Brackets enclose optional
      arguments.
    - ``returns``: the Arrow type of the result.
    - ``doc``: the description of the result, with its range.
    - ``example``: a call with literals, and its value as text.

    >>> function = next(function for function in a2store.functions() if function.name == "tile")
    >>> function.signature, function.returns, function.example
    ('tile(board, cell[, tile_65536_mask])', 'UInt32', ('tile(1306927023419491499, 15)', '2048'))
    """

    name: str = field(repr=False)
    signature: str
    returns: str
    doc: str = field(repr=False)
    example: tuple[str, str] = field(repr=False)


@dataclass(frozen=True)
class SimulateReport:
    """A summary of what ``simulate`` wrote.

    - ``runs``: the number of files.
    - ``num_steps``: the number of steps in the files.
    - ``num_bytes``: the size of the files in bytes.

    >>> report = a2store.simulate("more", runs=2, seed=2, depth=0)
    >>> report.runs
    2
    """

    runs: int
    num_steps: int
    num_bytes: int


@dataclass(frozen=True, repr=False, eq=False)
class PlayResult:
    """The result of ``a2store.selfplay.play``.

    The arrays have one row per finished game, in the order of the games' numbers.

    - ``games``: the numbers of the games: ``0..len`` unless ``stopped``.
    - ``scores``: the score of each game: the sum over its merges. The ``max_score`` of an archive is derived from the
      final board. It is higher by 4 for each spawned 4.
    - ``highest_tiles``: the largest tile of each final board, such as 2048 (not its exponent 11).
    - ``num_steps``: the number of steps of each game.
    - ``final_boards``: the board after the last step of each game.
    - ``terminated``: whether the game ended without a legal move; false for a game that was truncated at
      ``max_steps``.
    - ``total_steps``: the number of steps made, including the steps of abandoned games.
    - ``seconds``: the duration in seconds, including the policy's time.
    - ``stopped``: the recorder's limit that stopped play early, such as ``"games"`` or ``"disk"``; else ``None``.

    >>> from a2store import selfplay
    >>> result = selfplay.play(selfplay.Player(depth=0), 10, seed=1)
    >>> len(result), int(result.scores.max()), result.terminated.dtype
    (10, 7092, dtype('bool'))
    """

    games: npt.NDArray[np.uint64]
    scores: npt.NDArray[np.int64]
    highest_tiles: npt.NDArray[np.int64]
    num_steps: npt.NDArray[np.int64]
    final_boards: npt.NDArray[np.uint64]
    terminated: npt.NDArray[np.bool_]
    total_steps: int
    seconds: float
    stopped: str | None

    def __len__(self) -> int:
        """Return the number of finished games."""
        return len(self.games)

    @property
    def steps_per_second(self) -> float:
        """``total_steps / seconds``."""
        # The maximum avoids a division by zero.
        return self.total_steps / max(self.seconds, 1e-9)

    def __repr__(self) -> str:
        mean = self.scores.mean() if len(self) else float("nan")
        return f"PlayResult({len(self)} games, {self.total_steps} steps, mean score {mean:.1f})"


@dataclass(frozen=True)
class RecorderStats:
    """The counters of a recorder.

    - ``begun``: the number of games that began.
    - ``live``: the number of running games. When the recorder is closed, these games are lost.
    - ``ended``: the number of games that ended and are kept.
    - ``abandoned``: the number of games that were abandoned, or rejected at their end.
    - ``steps``: the number of kept steps in ended games.
    - ``durable``: the number of durable games: the games with an id below this number.
    - ``rotations``: the number of rotations that wrote games.
    - ``disk_bytes``: the size of everything written, in bytes.
    - ``ram_bytes``: the bytes of steps in memory.
    - ``failure``: the error of the last rotation, if it failed; the games stay in memory, and the next rotation writes
      them.

    >>> from a2store import selfplay
    >>> recorder = selfplay.Recorder("selfplay", tag="v1")
    >>> game = recorder.begin()
    >>> game.abandon()
    >>> recorder.stats()
    RecorderStats(begun=1, live=0, ended=0, steps=0, durable=0)
    """

    begun: int
    live: int
    ended: int
    abandoned: int = field(repr=False)
    steps: int
    durable: int
    rotations: int = field(repr=False)
    disk_bytes: int = field(repr=False)
    ram_bytes: int = field(repr=False)
    failure: str | None = field(repr=False)


for _name in __all__:
    _is_of_selfplay = _name in ("PlayResult", "RecorderStats")
    globals()[_name].__module__ = "a2store.selfplay" if _is_of_selfplay else "a2store"
