//! Conversion of the crate's errors to Python's own exceptions where they exist, else to subclasses of `a2store.Error`.

use super::cluster::EngineError;
use crate::support::interpreter::Inside;
use crate::support::values::location;
use a2store::error::{Error, ErrorKind};
use pyo3::exceptions::{PyIndexError, PyKeyboardInterrupt, PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;

/// A result of a2store, whose error becomes a Python exception.
pub(crate) trait OrRaise<T> {
    fn or_raise(self) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Error> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(raised)
    }
}

/// An exception, of Python code or for an error of a2store.
pub(crate) struct Exception(pub(crate) PyErr);

impl From<PyErr> for Exception {
    fn from(error: PyErr) -> Exception {
        Exception(error)
    }
}

impl From<Error> for Exception {
    fn from(error: Error) -> Exception {
        Exception(raised(error))
    }
}

/// Returns an error of a2store as an exception.
pub(crate) fn raised(error: Error) -> PyErr {
    let message = error.to_string();
    let class = match error.kind() {
        ErrorKind::Io { source, .. } => return io_error(source, &error),
        ErrorKind::Argument { .. } => return PyValueError::new_err(message),
        ErrorKind::IndexOutOfBounds { .. } => return PyIndexError::new_err(message),
        ErrorKind::OutOfMemory { .. } => return PyMemoryError::new_err(message),
        ErrorKind::Cancelled => return PyKeyboardInterrupt::new_err(()),
        ErrorKind::Task { source, .. } => return task_error(source.as_ref(), &error),
        ErrorKind::ArchiveExists { .. } => "ArchiveExistsError",
        ErrorKind::Damaged { .. } => "DamagedError",
        ErrorKind::VersionNotFound { .. } => "VersionNotFoundError",
        ErrorKind::Conflict { .. } => "ConflictError",
        ErrorKind::Unconfirmed { .. } => "UnconfirmedError",
        ErrorKind::NotAnArchive { .. } | ErrorKind::SchemaVersion { .. } => "ArchiveError",
        ErrorKind::Decode { .. } | ErrorKind::Header { .. } | ErrorKind::Checksum { .. } => "DecodeError",
        ErrorKind::Query { .. } => "QueryError",
        ErrorKind::QueryRefused { .. } => "QueryRefusedError",
        ErrorKind::QueryLimit { .. } => "QueryLimitError",
        ErrorKind::Column { .. } => "ColumnError",
        ErrorKind::MemoryLimit { .. } => "MemoryLimitError",
        ErrorKind::RecorderLimit { .. } => "RecorderLimitError",
        ErrorKind::StateMismatch { .. } => "StateMismatchError",
        _ => "Error",
    };
    Python::attach(|py| own_error(py, class, message, &error).unwrap_or_else(|other| other))
}

/// Returns the exception that a worker raised, or a `ClusterError` for one of the engine.
fn task_error(source: &(dyn std::error::Error + Send + Sync + 'static), error: &Error) -> PyErr {
    Python::attach(|py| {
        if let Some(own) = source.downcast_ref::<PyErr>() {
            // Without the note, the exception still says what failed.
            let _ = own.value(py).call_method1("add_note", ("a task of the query raised this on its worker",));
            return own.clone_ref(py);
        }
        let found = own_error(py, "ClusterError", error.to_string(), error).unwrap_or_else(|error| error);
        found.set_cause(py, source.downcast_ref::<EngineError>().map(|error| error.0.clone_ref(py)));
        found
    })
}

/// Makes an exception of a class in `python/a2store/_errors.py`, which documents its attributes.
fn own_error(py: Python<'_>, class: &str, message: String, error: &Error) -> PyResult<PyErr> {
    let _inside = Inside::new(py);
    let exception = py.import("a2store._errors")?.getattr(class)?.call1((message,))?;
    let place = error.location();
    exception.setattr("kind", error.kind_name())?;
    exception.setattr("path", error.path().map(|path| location(py, path)).transpose()?)?;
    exception.setattr("run", place.and_then(|place| place.run))?;
    exception.setattr("offset", place.and_then(|place| place.offset))?;
    exception.setattr("step", place.and_then(|place| place.step))?;
    Ok(PyErr::from_value(exception))
}

/// Returns `OSError`, or its subclass for the error number, with the file's name.
fn io_error(source: &std::io::Error, error: &Error) -> PyErr {
    // Errors that were found without a system call get the number of the equivalent system error.
    let cause = source.get_ref().and_then(|own| own.source()?.downcast_ref::<std::io::Error>());
    let number = source.raw_os_error().or_else(|| cause?.raw_os_error()).or(match source.kind() {
        std::io::ErrorKind::AlreadyExists => Some(libc::EEXIST),
        std::io::ErrorKind::NotFound => Some(libc::ENOENT),
        std::io::ErrorKind::IsADirectory => Some(libc::EISDIR),
        std::io::ErrorKind::PermissionDenied => Some(libc::EACCES),
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
