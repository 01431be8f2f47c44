//! Conversion of the crate's errors to Python's own exceptions where they exist, else to subclasses of `a2store.Error`.

use super::values::Location;
use crate::error::{Error, ErrorKind};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyIndexError, PyKeyboardInterrupt, PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyType;

/// Creates the exceptions, and a function that returns each with its name.
macro_rules! exceptions {
    ($($class:ident: $base:ty = $doc:literal;)*) => {
        $(create_exception!(a2store, $class, $base, $doc);)*

        fn exceptions(py: Python<'_>) -> Vec<(&'static str, Bound<'_, PyType>)> {
            vec![$((stringify!($class), py.get_type::<$class>())),*]
        }
    };
}

exceptions! {
    A2Error: PyException = r#"The base class of a2store's own exceptions.

The message is one line: the file, the place in it, what was expected and what was found. Some failures raise
Python's own exceptions, which lack the attributes below. These are ``ValueError`` or ``TypeError`` for wrong
arguments, ``IndexError`` for a missing row, and ``OSError`` for a failed system call. A failed allocation raises
``MemoryError``, and Ctrl-C raises ``KeyboardInterrupt``.

- ``kind``: a short name of the failure. It is sometimes more specific than the class.
- ``path``: the file or folder with the failure, if there is one: a ``pathlib.Path``, or a str for a URL.
- ``run``: the index of the run in a file of several runs, from 0, if the failure is in one run.
- ``offset``: the position of the failure in the input, in bytes from its start, if known.
- ``step``: the step of the run with the failure, from 0, if known.

>>> try:
...     a2store.read_run(b"A2T1")
... except a2store.Error as error:
...     print(f"{error.kind} at byte {error.offset}: {error}")
decode at byte 4: byte 4: version: expected 1 bytes, found 0 before the end"#;
    ArchiveError: A2Error = r#"The folder cannot be used as an archive: it holds none, or a newer a2store wrote it.

``kind`` is ``"not_an_archive"`` or ``"schema_version"``, or the kind of a subclass.

>>> a2store.Archive.open("runs")
Traceback (most recent call last):
a2store.ArchiveError: .../runs: not an archive: _log/00000000000000000001.json is missing"#;
    ArchiveExistsError: ArchiveError = r#"``Archive.create`` found an archive that already exists.

>>> a2store.Archive.create("games.a2")
Traceback (most recent call last):
a2store.ArchiveExistsError: .../games.a2: an archive already exists"#;
    ConflictError: ArchiveError = r#"Another process holds the archive; a retry may succeed.

A writer raises it if another writer on this machine held the archive for longer than ``wait``, or if other writers
committed first in every attempt.

>>> import fcntl
>>> with open("games.a2/_log/.lock", "a") as lock:
...     fcntl.flock(lock, fcntl.LOCK_EX)
...     try:
...         archive.ingest("runs", wait=0)
...     except a2store.ConflictError as error:
...         print(error.kind)
conflict"#;
    DamagedError: ArchiveError = r#"A file of an archive or of a table contradicts its checksum or other metadata.

>>> from pathlib import Path
>>> _ = Path("games.a2/_log/00000000000000000002.json").write_text("{}")
>>> try:
...     a2store.Archive.open("games.a2")
... except a2store.DamagedError as error:
...     print(error.kind)
damaged"#;
    VersionNotFoundError: ArchiveError = r#"The archive does not have the requested version, or it has expired.

>>> a2store.Archive.open("games.a2", version=9)
Traceback (most recent call last):
a2store.VersionNotFoundError: .../games.a2: version 9: expected 1..=2"#;
    UnconfirmedError: ArchiveError = r#"A commit was written, but the disk or the object store did not confirm it, so it may or may not exist.

Repeat the operation to find out: it is idempotent.

>>> def ingest_until_confirmed(paths):
...     while True:
...         try:
...             return archive.ingest(paths)
...         except a2store.UnconfirmedError:
...             archive.refresh()
>>> ingest_until_confirmed("runs").duplicates
20"#;
    DecodeError: A2Error = r#"Bytes are not a valid run, file of runs, or table.

``kind`` is ``"checksum"`` if only the checksum is wrong, ``"header"`` for the header of a pack, else ``"decode"``.
``offset``, ``run`` and ``step`` are the place, if known.

>>> a2store.read_run(b"A2T1")
Traceback (most recent call last):
a2store.DecodeError: byte 4: version: expected 1 bytes, found 0 before the end"#;
    QueryError: A2Error = r#"SQL does not parse or plan, parameters do not match it, or the query failed while it ran.

>>> archive.sql("SELECT nothing FROM runs")
Traceback (most recent call last):
a2store.QueryError: No field named nothing. Valid fields are runs.run_id, ..."#;
    QueryRefusedError: QueryError = r#"SQL does more than read the given tables; the message names the rejected part and the reason.

>>> archive.sql("DROP TABLE runs")
Traceback (most recent call last):
a2store.QueryRefusedError: refused: DROP TABLE: a query only reads: expected one SELECT, WITH or VALUES"#;
    QueryLimitError: QueryError = r#"A query exceeded a limit of rows, bytes, time, memory or temporary files; the message says which one.

>>> archive.sql("SELECT * FROM steps", row_limit=1000).materialize()
Traceback (most recent call last):
a2store.QueryLimitError: the query exceeded its limit of rows: 1000 rows allowed, ... rows so far"#;
    ColumnError: A2Error = r#"A ``StepTable`` cannot hold a column: it is missing, of another type, or has a value that does not fit.

>>> archive.sql("SELECT run_id FROM runs").materialize()
Traceback (most recent call last):
a2store.ColumnError: column board: expected a column of boards, found the columns run_id"#;
    MemoryLimitError: A2Error = r#"A table would exceed its memory limit.

>>> query.materialize(memory_limit=500_000)
Traceback (most recent call last):
a2store.MemoryLimitError: the table needs at least 938240 bytes, but its memory limit is 500000 bytes"#;
    RecorderLimitError: A2Error = r#"A recorder reached one of its limits and accepts no more data.

>>> from a2store import selfplay
>>> recorder = selfplay.Recorder("selfplay", tag="v1", max_games=1)
>>> game = recorder.begin()
>>> recorder.begin()
Traceback (most recent call last):
a2store.RecorderLimitError: the recorder reached its limit of games: 1 allowed, 1 begun"#;
    StateMismatchError: A2Error = r#"A loader's state belongs to other rows or to another order.

>>> state = table.loader(seed=1).state_dict()
>>> table.loader(seed=2).load_state_dict(state)
Traceback (most recent call last):
a2store.StateMismatchError: loader state does not match: seed: expected 2, found 1"#;
}

pub(super) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for (class, exception) in exceptions(module.py()) {
        let name = class.trim_start_matches("A2");
        exception.setattr("__name__", name)?;
        exception.setattr("__qualname__", name)?;
        module.add(name, exception)?;
    }
    // These attributes are None on exceptions that do not set them.
    let base = module.py().get_type::<A2Error>();
    ["kind", "path", "run", "offset", "step"].iter().try_for_each(|name| base.setattr(name, module.py().None()))
}

impl From<Error> for PyErr {
    fn from(error: Error) -> PyErr {
        let message = error.to_string();
        match error.kind() {
            ErrorKind::Io { source, .. } => return io_error(source, &error),
            ErrorKind::Argument { .. } => return PyValueError::new_err(message),
            ErrorKind::IndexOutOfBounds { .. } => return PyIndexError::new_err(message),
            ErrorKind::OutOfMemory { .. } => return PyMemoryError::new_err(message),
            ErrorKind::Cancelled => return PyKeyboardInterrupt::new_err(()),
            _ => {}
        }
        let exception = match error.kind() {
            ErrorKind::ArchiveExists { .. } => ArchiveExistsError::new_err(message),
            ErrorKind::Damaged { .. } => DamagedError::new_err(message),
            ErrorKind::VersionNotFound { .. } => VersionNotFoundError::new_err(message),
            ErrorKind::Conflict { .. } => ConflictError::new_err(message),
            ErrorKind::Unconfirmed { .. } => UnconfirmedError::new_err(message),
            ErrorKind::NotAnArchive { .. } | ErrorKind::SchemaVersion { .. } => ArchiveError::new_err(message),
            ErrorKind::Decode { .. } | ErrorKind::Header { .. } | ErrorKind::Checksum { .. } => {
                DecodeError::new_err(message)
            }
            ErrorKind::Query { .. } => QueryError::new_err(message),
            ErrorKind::QueryRefused { .. } => QueryRefusedError::new_err(message),
            ErrorKind::QueryLimit { .. } => QueryLimitError::new_err(message),
            ErrorKind::Column { .. } => ColumnError::new_err(message),
            ErrorKind::MemoryLimit { .. } => MemoryLimitError::new_err(message),
            ErrorKind::RecorderLimit { .. } => RecorderLimitError::new_err(message),
            ErrorKind::StateMismatch { .. } => StateMismatchError::new_err(message),
            _ => A2Error::new_err(message),
        };
        let location = error.location();
        Python::attach(|py| {
            let value = exception.value(py);
            // An exception whose attributes cannot be set still has its message.
            let _ = value.setattr("kind", error.kind_name());
            let _ = value.setattr("path", error.path().map(Location::from));
            let _ = value.setattr("run", location.and_then(|location| location.run));
            let _ = value.setattr("offset", location.and_then(|location| location.offset));
            let _ = value.setattr("step", location.and_then(|location| location.step));
        });
        exception
    }
}

/// Returns `OSError`, or its subclass for the error number, with the file's name.
fn io_error(source: &std::io::Error, error: &Error) -> PyErr {
    // Errors that were found without a system call get the number of the equivalent system error.
    let cause = source.get_ref().and_then(|own| own.source()?.downcast_ref::<std::io::Error>());
    let number = source.raw_os_error().or_else(|| cause?.raw_os_error()).or(match source.kind() {
        std::io::ErrorKind::AlreadyExists => Some(libc::EEXIST),
        std::io::ErrorKind::NotFound => Some(libc::ENOENT),
        std::io::ErrorKind::IsADirectory => Some(libc::EISDIR),
        _ => None,
    });
    match (number, error.path()) {
        (Some(number), Some(path)) => {
            // `OSError(errno, text, filename)` creates the subclass for the number, such as `FileNotFoundError`.
            let text = source.to_string().replace(&format!(" (os error {number})"), "");
            PyOSError::new_err((number, text, path.to_string_lossy().into_owned()))
        }
        _ => PyOSError::new_err(error.to_string()),
    }
}
