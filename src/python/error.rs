//! Conversion of the crate's errors to Python's own exceptions where they exist, else to subclasses of `a2store.Error`.

use crate::error::{Error, ErrorKind};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyIndexError, PyKeyboardInterrupt, PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;

create_exception!(a2store, A2Error, PyException);
create_exception!(a2store, ArchiveError, A2Error);
create_exception!(a2store, ArchiveExistsError, ArchiveError);
create_exception!(a2store, ConflictError, ArchiveError);
create_exception!(a2store, DamagedError, ArchiveError);
create_exception!(a2store, VersionNotFoundError, ArchiveError);
create_exception!(a2store, UnconfirmedError, ArchiveError);
create_exception!(a2store, DecodeError, A2Error);
create_exception!(a2store, QueryError, A2Error);
create_exception!(a2store, QueryRefusedError, QueryError);
create_exception!(a2store, QueryLimitError, QueryError);
create_exception!(a2store, ColumnError, A2Error);
create_exception!(a2store, MemoryLimitError, A2Error);
create_exception!(a2store, RecorderLimitError, A2Error);
create_exception!(a2store, StateMismatchError, A2Error);

pub(super) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    for (name, exception) in [
        ("Error", py.get_type::<A2Error>()),
        ("ArchiveError", py.get_type::<ArchiveError>()),
        ("ArchiveExistsError", py.get_type::<ArchiveExistsError>()),
        ("ConflictError", py.get_type::<ConflictError>()),
        ("DamagedError", py.get_type::<DamagedError>()),
        ("VersionNotFoundError", py.get_type::<VersionNotFoundError>()),
        ("UnconfirmedError", py.get_type::<UnconfirmedError>()),
        ("DecodeError", py.get_type::<DecodeError>()),
        ("QueryError", py.get_type::<QueryError>()),
        ("QueryRefusedError", py.get_type::<QueryRefusedError>()),
        ("QueryLimitError", py.get_type::<QueryLimitError>()),
        ("ColumnError", py.get_type::<ColumnError>()),
        ("MemoryLimitError", py.get_type::<MemoryLimitError>()),
        ("RecorderLimitError", py.get_type::<RecorderLimitError>()),
        ("StateMismatchError", py.get_type::<StateMismatchError>()),
    ] {
        exception.setattr("__name__", name)?;
        exception.setattr("__qualname__", name)?;
        if name == "Error" {
            // These attributes are None on exceptions that do not set them.
            for attribute in ["kind", "path", "run", "offset", "step"] {
                exception.setattr(attribute, py.None())?;
            }
        }
        module.add(name, exception)?;
    }
    Ok(())
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
            let _ = value.setattr("path", error.path().map(|path| path.to_string_lossy().into_owned()));
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
    let number = source.raw_os_error().or(match source.kind() {
        std::io::ErrorKind::AlreadyExists => Some(libc::EEXIST),
        std::io::ErrorKind::NotFound => Some(libc::ENOENT),
        std::io::ErrorKind::IsADirectory => Some(libc::EISDIR),
        _ => None,
    });
    match (number, error.path()) {
        (Some(number), Some(path)) => {
            // `OSError(errno, text, filename)` creates the subclass for the number, such as `FileNotFoundError`.
            let text = source.to_string();
            let text = text.split(" (os error").next().unwrap_or_default().to_owned();
            PyOSError::new_err((number, text, path.to_string_lossy().into_owned()))
        }
        _ => PyOSError::new_err(error.to_string()),
    }
}
