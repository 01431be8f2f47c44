"""2048 self-play games as a Parquet archive, SQL over it, and shuffled training batches at memory speed.

Conventions:

- A board is a uint64 of sixteen 4-bit exponents, row by row; cell 0 (top left) has the highest four bits.
- Exponent 0 is an empty cell; exponent ``k`` is the tile ``2**k``.
- The largest exponent of a board is 15. A cell with a tile of 65536 also has 15, and its bit in a separate mask
  (``tile_65536_mask``, uint16) is set: bit ``i`` for cell ``i``.
- The four moves are in the order up, down, left, right (UDLR), numbered 0 to 3.
- Bits 0 to 3 of a legality mask are up, down, left and right.
- Ranges are half-open: ``0..n`` excludes ``n``. Ranges written ``0..=n`` include ``n``.
- A file or a folder is a ``pathlib.Path``, also as the ``path`` of an error. A URL is a str, because a ``Path`` would
  merge its slashes. The paths of ``Archive.files``, which other tools read, and the names of files in an archive, such
  as ``Problem.path``, are also strs.
- A time is a ``datetime.datetime`` in UTC.

An integer that is out of range raises ``ValueError``, and anything that is not an integer, even a bool, raises
``TypeError``. Both messages name the argument. NumPy integers are accepted. An index out of range raises
``IndexError``. A failed operation on a file or folder raises ``OSError`` or a subclass, such as ``FileNotFoundError``,
with ``filename`` set. A failed allocation for batches, tables, orders or weights raises ``MemoryError``.

Long work shows its progress: a bar in a terminal or notebook, else a line on standard error every 5 seconds.
``progress=False`` shows nothing. A function as ``progress`` is called with a dict a few times a second, and once at the
end. The dict has ``what``, the work; ``unit``, such as ``"runs"``, ``"rows"`` or ``"bytes"``; ``done`` and ``total``,
numbers of units; and ``seconds`` since the beginning. While files are still being counted, ``total`` is too small. The
thread that waits for the work calls the function. If the function raises, a2store cancels the work as on Ctrl-C, unless
the work is complete, and raises the exception.

Events, such as commits, rejected files and repeated requests, go to the loggers ``a2store.commit``, ``a2store.ingest``
and others of ``logging``; docs/logging.md lists them.

>>> import a2store
>>> archive = a2store.Archive.create("new.a2")
>>> report = archive.ingest("runs")
>>> query = archive.sql("SELECT * FROM steps WHERE max_score >= $min", {"min": 20_000})
>>> table = query.materialize()
>>> for batch in table.loader(batch_size=4096):
...     tokens, values, legal = batch.tokens, batch.ev_values, batch.ev_legal
>>> tokens.shape[1], values.dtype, legal.dtype
(16, dtype('float32'), dtype('bool'))
"""

# isort: off
from . import _start  # noqa: F401  # Before imports that take long.

# isort: on
from collections.abc import Mapping
from importlib import import_module as _import_module
from typing import TYPE_CHECKING

from ._a2store import (
    Archive,
    ArrowArray,
    ArrowBatch,
    ArrowSchema,
    Batch,
    BatchIterator,
    Loader,
    PackIterator,
    Query,
    QueryBatches,
    Run,
    StepTable,
    View,
    __version__,
    convert,
    functions,
    mix,
    open,  # noqa: A004
    queries,
    read_run,
    restore,
    simulate,
    verify,
)
from ._errors import (
    ArchiveError,
    ArchiveExistsError,
    ClusterError,
    ColumnError,
    ConflictError,
    DamagedError,
    DecodeError,
    Error,
    MemoryLimitError,
    QueryError,
    QueryLimitError,
    QueryRefusedError,
    RecorderLimitError,
    StateMismatchError,
    UnconfirmedError,
    VersionNotFoundError,
)

if TYPE_CHECKING:
    from ._boards import Board, Position
    from ._packs import PackBatchIterator, PackReader, PackStepIterator
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
        Problem,
        Rejected,
        RestoreReport,
        RunMeta,
        SavedParameter,
        SavedQuery,
        Shard,
        SimulateReport,
        SqlFunction,
        VerifyReport,
    )

Mapping.register(Batch)
del Mapping

__all__ = [
    "AnnotateReport",
    "Archive",
    "ArchiveError",
    "ArchiveExistsError",
    "ArrowArray",
    "ArrowBatch",
    "ArrowSchema",
    "Batch",
    "BatchIterator",
    "Board",
    "ClusterError",
    "ColumnError",
    "CommitInfo",
    "CompactReport",
    "ConflictError",
    "DamagedError",
    "DecodeError",
    "Error",
    "ExpireReport",
    "ExportReport",
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
    "Position",
    "Problem",
    "Query",
    "QueryBatches",
    "QueryError",
    "QueryLimitError",
    "QueryRefusedError",
    "RecorderLimitError",
    "Rejected",
    "Replay",
    "Report",
    "RestoreReport",
    "Run",
    "RunMeta",
    "SavedParameter",
    "SavedQuery",
    "Shard",
    "SimulateReport",
    "SqlFunction",
    "StateMismatchError",
    "StepTable",
    "UnconfirmedError",
    "VerifyReport",
    "VersionNotFoundError",
    "View",
    "__version__",
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

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a class of reports, boards, pages or packs. Eager imports would double the import time."""
        if name in __all__:
            for module in ("_results", "_boards", "_pages", "_packs"):
                if found := getattr(_import_module(f"a2store.{module}"), name, None):
                    globals()[name] = found
                    return found
        raise AttributeError(f"module 'a2store' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return [*globals(), *__all__]


del TYPE_CHECKING
