"""2048 self-play games as a Parquet archive, SQL over it, and shuffled training batches at memory speed.

>>> import a2store
>>> archive = a2store.Archive.create("games.a2")
>>> report = archive.ingest("runs/")
>>> query = archive.sql("SELECT * FROM steps WHERE max_score >= $min", {"min": 20_000})
>>> table = query.materialize()
>>> for batch in table.loader(batch_size=4096):
...     batch.tokens, batch.ev_values, batch.ev_legal
"""

from ._a2store import (
    Archive,
    ArchiveError,
    ArchiveExistsError,
    ArrowArray,
    ArrowSchema,
    Batch,
    BatchIterator,
    ColumnError,
    CommitInfo,
    ConflictError,
    DamagedError,
    DecodeError,
    Error,
    IngestReport,
    Loader,
    MemoryLimitError,
    Query,
    QueryError,
    Rejected,
    Run,
    RunMeta,
    SimulateReport,
    StateMismatchError,
    StepTable,
    VersionNotFoundError,
    __version__,
    read_run,
    simulate,
)

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
    "ConflictError",
    "DamagedError",
    "DecodeError",
    "Error",
    "IngestReport",
    "Loader",
    "MemoryLimitError",
    "Query",
    "QueryError",
    "Rejected",
    "Run",
    "RunMeta",
    "SimulateReport",
    "StateMismatchError",
    "StepTable",
    "VersionNotFoundError",
    "__version__",
    "read_run",
    "simulate",
]
