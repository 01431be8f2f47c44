"""The exceptions of the package. The extension raises them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

__all__ = [
    "ArchiveError",
    "ArchiveExistsError",
    "ClusterError",
    "ColumnError",
    "ConflictError",
    "DamagedError",
    "DecodeError",
    "Error",
    "MemoryLimitError",
    "QueryError",
    "QueryLimitError",
    "QueryRefusedError",
    "RecorderLimitError",
    "StateMismatchError",
    "UnconfirmedError",
    "VersionNotFoundError",
]


class Error(Exception):
    """The base class of a2store's own exceptions.

    The message is one line: the file, the place in it, what was expected and what was found. Some failures raise
    Python's own exceptions, which lack the attributes below: ``ValueError`` or ``TypeError`` for wrong arguments,
    ``IndexError`` for a missing row, ``OSError`` for a failed system call, ``MemoryError`` for a failed allocation, and
    ``KeyboardInterrupt`` for Ctrl-C.

    - ``kind``: a short name of the failure. It is sometimes more specific than the class.
    - ``path``: the file or folder with the failure, if there is one: a ``pathlib.Path``, or a str for a URL.
    - ``run``: the index of the run in a file of several runs, from 0, if the failure is in one run.
    - ``offset``: the position of the failure in the input, in bytes from its start, if known.
    - ``step``: the step of the run with the failure, from 0, if known.

    >>> try:
    ...     a2store.read_run(b"A2T1")
    ... except a2store.Error as error:
    ...     print(f"{error.kind} at byte {error.offset}: {error}")
    decode at byte 4: byte 4: version: expected 1 bytes, found 0 before the end
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
            "task",
            "unconfirmed",
            "version_not_found",
        ]
        | None
    ) = None
    """A short name of the failure. It is sometimes more specific than the class."""
    path: Path | str | None = None
    """The file or folder with the failure, if there is one: a ``pathlib.Path``, or a str for a URL."""
    run: int | None = None
    """The index of the run in a file of several runs, from 0, if the failure is in one run."""
    offset: int | None = None
    """The position of the failure in the input, in bytes from its start, if known."""
    step: int | None = None
    """The step of the run with the failure, from 0, if known."""


class ArchiveError(Error):
    """The folder is not a usable archive: it holds no archive, or a newer a2store wrote it.

    ``kind`` is ``"not_an_archive"`` or ``"schema_version"``, or the kind of a subclass.

    >>> a2store.Archive.open("runs")
    Traceback (most recent call last):
    a2store.ArchiveError: .../runs: not an archive: expected manifests in its folder _versions, found none
    """


class ArchiveExistsError(ArchiveError):
    """``Archive.create`` found an archive that already exists.

    >>> a2store.Archive.create("games.a2")
    Traceback (most recent call last):
    a2store.ArchiveExistsError: .../games.a2: an archive already exists
    """


class ConflictError(ArchiveError):
    """Another process holds the archive; a retry may succeed.

    A writer raises it if another writer on this machine held the archive for longer than ``wait``, or if other writers
    committed first in every attempt.

    >>> import fcntl
    >>> with open("games.a2/_versions/.lock", "a") as lock:
    ...     fcntl.flock(lock, fcntl.LOCK_EX)
    ...     try:
    ...         archive.ingest("runs", wait=0)
    ...     except a2store.ConflictError as error:
    ...         print(error.kind)
    conflict
    """


class DamagedError(ArchiveError):
    """A file of an archive or of a table contradicts its checksum or other metadata.

    >>> from pathlib import Path
    >>> _ = Path("games.a2/_versions/18446744073709551613.json").write_text("{}")
    >>> try:
    ...     a2store.Archive.open("games.a2")
    ... except a2store.DamagedError as error:
    ...     print(error.kind)
    damaged
    """


class VersionNotFoundError(ArchiveError):
    """The requested version does not exist, or has expired.

    >>> a2store.Archive.open("games.a2", version=9)
    Traceback (most recent call last):
    a2store.VersionNotFoundError: .../games.a2: version 9: expected 1..=2
    """


class UnconfirmedError(ArchiveError):
    """A commit was written, but the disk or the object store did not confirm it, so it may or may not exist.

    Repeat the operation to find out: it is idempotent.

    >>> def ingest_until_confirmed(paths):
    ...     while True:
    ...         try:
    ...             return archive.ingest(paths)
    ...         except a2store.UnconfirmedError:
    ...             archive.refresh()
    >>> ingest_until_confirmed("runs").duplicates
    20
    """


class DecodeError(Error):
    """Bytes are not a valid run, file of runs, or table.

    ``kind`` is ``"checksum"`` if only the checksum is wrong, ``"header"`` for the header of a pack, else ``"decode"``.
    ``offset``, ``run`` and ``step`` are the place of the failure, if known.

    >>> a2store.read_run(b"A2T1")
    Traceback (most recent call last):
    a2store.DecodeError: byte 4: version: expected 1 bytes, found 0 before the end
    """


class QueryError(Error):
    """SQL does not parse or plan, parameters do not match it, or the query failed while it ran.

    >>> archive.sql("SELECT nothing FROM runs")
    Traceback (most recent call last):
    a2store.QueryError: No field named nothing. Valid fields are runs.run_id, ...
    """


class QueryRefusedError(QueryError):
    """SQL does more than read the given tables; the message names the rejected part and the reason.

    >>> archive.sql("DROP TABLE runs")
    Traceback (most recent call last):
    a2store.QueryRefusedError: refused: DROP TABLE: a query only reads: expected one SELECT, WITH or VALUES
    """


class QueryLimitError(QueryError):
    """A query exceeded a limit of rows, bytes, time, memory or temporary files; the message says which one.

    >>> archive.sql("SELECT * FROM steps", row_limit=1000).materialize()
    Traceback (most recent call last):
    a2store.QueryLimitError: the query exceeded its limit of rows: 1000 rows allowed, ... rows so far
    """


class ClusterError(Error):
    """An engine lost a task of a query, or could not run it; ``__cause__`` is the engine's own exception.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> executor = ThreadPoolExecutor(1)
    >>> executor.shutdown()
    >>> list(archive.sql("SELECT board FROM steps WHERE move = 1").on(executor, tasks=1))
    Traceback (most recent call last):
    a2store.ClusterError: task 0: RuntimeError: cannot schedule new futures after shutdown
    """

    kind = "task"


class ColumnError(Error):
    """A ``StepTable`` cannot hold a column: it is missing, of another type, or has a value that does not fit.

    >>> archive.sql("SELECT run_id FROM runs").materialize()
    Traceback (most recent call last):
    a2store.ColumnError: column board: expected a column of boards, found the columns run_id
    """


class MemoryLimitError(Error):
    """A table would exceed its memory limit.

    >>> query.materialize(memory_limit=500_000)
    Traceback (most recent call last):
    a2store.MemoryLimitError: the table needs at least 938240 bytes, but its memory limit is 500000 bytes
    """


class RecorderLimitError(Error):
    """A recorder reached one of its limits and accepts no more data.

    >>> from a2store import selfplay
    >>> recorder = selfplay.Recorder("selfplay", tag="v1", max_games=1)
    >>> game = recorder.begin()
    >>> recorder.begin()
    Traceback (most recent call last):
    a2store.RecorderLimitError: the recorder reached its limit of games: 1 allowed, 1 begun
    """


class StateMismatchError(Error):
    """A loader's state belongs to other rows or to another order.

    >>> state = table.loader(seed=1).state_dict()
    >>> table.loader(seed=2).load_state_dict(state)
    Traceback (most recent call last):
    a2store.StateMismatchError: loader state does not match: seed: expected 2, found 1
    """


for _name in __all__:
    globals()[_name].__module__ = "a2store"
