//! The error type: what failed, where, what was expected and what was found.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of any a2store operation.
///
/// It is one pointer wide, so that `Result<T>` stays small. [`Error::kind`] returns the parts for a program.
/// `Display` prints one line for a person: the file, the place in it, what was expected and what was found.
///
/// ```
/// use a2store::{Error, ErrorKind};
/// let error = a2store::format::decode_run(b"A2T1\x02").unwrap_err();
/// assert!(matches!(error.kind(), ErrorKind::Decode { .. }));
/// println!("{}", error.with_path("runs/ab.bin"));
/// ```
#[derive(Debug)]
pub struct Error(Box<ErrorKind>);

/// A place in an input: a file, a byte offset in it, and a step of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The file, if the input was a file.
    pub path: Option<PathBuf>,
    /// The index of the run in a file of several runs, from 0.
    pub run: Option<u64>,
    /// The byte offset from the start of the input. If a file holds several runs, the offset counts from the start of
    /// the file.
    pub offset: Option<u64>,
    /// The index of the step, from 0.
    pub step: Option<u64>,
}

/// The kinds of [`Error`], each with the facts that a program may need. `Display` prints all facts except the path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system returned an error.
    #[error("{source}")]
    Io {
        /// The file or folder, if the error is about one.
        path: Option<PathBuf>,
        /// The system's error.
        source: io::Error,
    },
    /// Bytes that do not conform to their format.
    #[error("{}{what}: expected {expected}, found {found}", .location.prefix())]
    Decode {
        /// The place in the input.
        location: Location,
        /// The field that was read.
        what: &'static str,
        /// The value that the format requires.
        expected: String,
        /// The value that was found.
        found: String,
    },
    /// A file of several runs whose header, index or footer does not conform to its format. No run of it can be read.
    #[error("{}{what}: expected {expected}, found {found}", .location.prefix())]
    Header {
        /// The place in the input.
        location: Location,
        /// The field that was read.
        what: &'static str,
        /// The value that the format requires.
        expected: String,
        /// The value that was found.
        found: String,
    },
    /// Bytes that changed after they were written.
    #[error("{}CRC32C of {what}: expected {expected:08x}, found {found:08x}", .location.prefix())]
    Checksum {
        /// The place in the input.
        location: Location,
        /// The bytes that the checksum covers.
        what: &'static str,
        /// The stored CRC32C.
        expected: u32,
        /// The CRC32C of the bytes that were read.
        found: u32,
    },
    /// [`Archive::create`](crate::Archive::create) on a folder that already holds an archive.
    #[error("an archive already exists")]
    ArchiveExists {
        /// The archive's folder.
        path: PathBuf,
    },
    /// A folder that is not an archive.
    #[error("not an archive: expected manifests in its folder _versions, found none")]
    NotAnArchive {
        /// The folder.
        path: PathBuf,
    },
    /// A commit or data file that contradicts the rest of the archive.
    #[error("damaged: {what}: expected {expected}, found {found}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The property that is wrong.
        what: &'static str,
        /// The value that the rest of the archive requires.
        expected: String,
        /// The value that was found.
        found: String,
    },
    /// An archive, or a file in it, with a schema version that this build cannot read.
    #[error(
        "schema version {found}, but this a2store reads {supported}: use the a2store that wrote it, or ingest the runs again"
    )]
    SchemaVersion {
        /// The file.
        path: PathBuf,
        /// The schema version that this build reads.
        supported: u32,
        /// The schema version of the file.
        found: u32,
    },
    /// A version that does not exist in the archive.
    #[error("version {version}: expected {oldest}..={newest}")]
    VersionNotFound {
        /// The archive's folder.
        path: PathBuf,
        /// The requested version.
        version: u64,
        /// The oldest version that has not expired.
        oldest: u64,
        /// The newest version.
        newest: u64,
    },
    /// Another writer holds the lock, or committed first.
    #[error("{what}")]
    Conflict {
        /// The archive's folder.
        path: PathBuf,
        /// The action of the other writer.
        what: String,
    },
    /// A commit that was written, but whose publication was not confirmed. The version may exist or not. Repeat the
    /// operation to find out; it applies the change only once.
    #[error("commit of version {version} not confirmed ({reason}): repeat the operation")]
    Unconfirmed {
        /// The commit's file.
        path: PathBuf,
        /// The version that the commit creates, if it was published.
        version: u64,
        /// The reason why the publication was not confirmed.
        reason: String,
    },
    /// SQL that failed to parse, to plan or to run.
    #[error("{message}")]
    Query {
        /// The query engine's message, on one line.
        message: String,
    },
    /// SQL that the guard rejects because it does more than read the tables of the archive.
    #[error("refused: {what}: {why}")]
    QueryRefused {
        /// The part of the statement.
        what: String,
        /// The reason for the rejection.
        why: String,
    },
    /// A query that was stopped because it exceeded a limit.
    #[error("the query exceeded its limit of {limit}: {allowed} allowed, {found}")]
    QueryLimit {
        /// The limit: `"rows"`, `"bytes"`, `"time"`, `"memory"` or `"spill"`.
        limit: &'static str,
        /// The allowed amount.
        allowed: String,
        /// The amount that was reached.
        found: String,
    },
    /// An invalid argument.
    #[error("{name}: expected {expected}, found {found}")]
    Argument {
        /// The name of the argument.
        name: &'static str,
        /// The allowed values.
        expected: String,
        /// The value that was passed.
        found: String,
    },
    /// A column of a query that a [`StepTable`](crate::StepTable) cannot hold.
    #[error("column {column}{}: expected {expected}, found {found}", .row.map(|row| format!(", row {row}")).unwrap_or_default())]
    Column {
        /// The file, if the rows came from a file.
        path: Option<PathBuf>,
        /// The name of the column.
        column: String,
        /// The row of the query result, from 0, if the error is about one row.
        row: Option<u64>,
        /// The value that was expected.
        expected: String,
        /// The value that was found.
        found: String,
    },
    /// An index outside a table.
    #[error("index {index} is out of bounds for a length of {len}")]
    IndexOutOfBounds {
        /// The index.
        index: i128,
        /// The number of rows; an index is in `0..len`.
        len: u64,
    },
    /// A table that would exceed its memory limit.
    #[error("the table needs at least {needed} bytes, but its memory limit is {limit} bytes")]
    MemoryLimit {
        /// The least number of bytes that the table needs.
        needed: u64,
        /// The allowed number of bytes.
        limit: u64,
    },
    /// A failed allocation.
    #[error("out of memory: {needed} bytes could not be allocated")]
    OutOfMemory {
        /// The requested number of bytes.
        needed: u64,
    },
    /// A recorder that reached a limit and accepts no more games or steps.
    #[error("the recorder reached its limit of {limit}: {allowed} allowed, {found}")]
    RecorderLimit {
        /// The limit: `"games"`, `"steps"`, `"ram"`, `"wall"` or `"disk"`.
        limit: &'static str,
        /// The allowed amount.
        allowed: String,
        /// The amount that was reached.
        found: String,
    },
    /// A loader state that belongs to other data or to another order.
    #[error("loader state does not match: {field}: expected {expected}, found {found}")]
    StateMismatch {
        /// The field that differs.
        field: &'static str,
        /// The value in the loader.
        expected: String,
        /// The value in the state.
        found: String,
    },
    /// A task of a query that failed on an engine, or that the engine lost.
    #[error("task {index}: {message}")]
    Task {
        /// The number of the task, from 0.
        index: usize,
        /// The engine's message, or the worker's.
        message: String,
        /// The engine's error.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The caller cancelled the work.
    #[error("cancelled")]
    Cancelled,
}

impl Error {
    /// Returns the kind of this error, with its parts.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// Converts this error into its kind.
    #[must_use]
    pub fn into_kind(self) -> ErrorKind {
        *self.0
    }

    /// Adds the path of the file that was being read, unless the error already has a path.
    #[must_use]
    pub fn with_path(mut self, path: impl AsRef<Path>) -> Self {
        let slot = match &mut *self.0 {
            ErrorKind::Io { path, .. } | ErrorKind::Column { path, .. } => path,
            ErrorKind::Decode { location, .. }
            | ErrorKind::Header { location, .. }
            | ErrorKind::Checksum { location, .. } => &mut location.path,
            _ => return self,
        };
        slot.get_or_insert_with(|| path.as_ref().to_path_buf());
        self
    }

    /// Adds the path, if it is known.
    pub(crate) fn with_path_of(self, path: Option<&Path>) -> Self {
        match path {
            Some(path) => self.with_path(path),
            None => self,
        }
    }

    /// Turns an error about some bytes into an error about a whole file of several runs.
    pub(crate) fn of_header(self) -> Self {
        match *self.0 {
            ErrorKind::Decode { location, what, expected, found } => {
                ErrorKind::Header { location, what, expected, found }.into()
            }
            other => other.into(),
        }
    }

    /// Returns an error about the bytes at an offset, or about the input as a whole.
    pub(crate) fn decode(
        offset: impl Into<Option<u64>>,
        what: &'static str,
        expected: impl Into<String>,
        found: impl fmt::Display,
    ) -> Self {
        let location = Location { offset: offset.into(), ..Location::default() };
        ErrorKind::Decode { location, what, expected: expected.into(), found: found.to_string() }.into()
    }

    /// Returns an error about a checksum over bytes that start at an offset.
    pub(crate) fn checksum(offset: u64, what: &'static str, expected: u32, found: u32) -> Self {
        let location = Location { offset: Some(offset), ..Location::default() };
        ErrorKind::Checksum { location, what, expected, found }.into()
    }

    /// Returns the error for an index that is out of bounds.
    pub(crate) fn no_index(index: usize, len: usize) -> Self {
        ErrorKind::IndexOutOfBounds { index: index as i128, len: len as u64 }.into()
    }

    /// Changes the place in the input, if the error is about some bytes of it.
    #[must_use]
    pub(crate) fn located(mut self, change: impl FnOnce(&mut Location)) -> Self {
        if let ErrorKind::Decode { location, .. } | ErrorKind::Checksum { location, .. } = &mut *self.0 {
            change(location);
        }
        self
    }

    /// Adds the index of the run in its file, and converts an offset in the run to an offset in the file.
    #[must_use]
    pub(crate) fn in_run(self, run: u64, start: u64) -> Self {
        self.located(|location| {
            if location.run.is_none() {
                location.run = Some(run);
                location.offset = Some(location.offset.unwrap_or_default() + start);
            }
        })
    }

    /// Returns the place in the input, if the error is about an input.
    #[must_use]
    pub fn location(&self) -> Option<&Location> {
        match self.kind() {
            ErrorKind::Decode { location, .. }
            | ErrorKind::Header { location, .. }
            | ErrorKind::Checksum { location, .. } => Some(location),
            _ => None,
        }
    }

    /// Returns the file or folder that this error is about.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self.kind() {
            ErrorKind::Io { path, .. } | ErrorKind::Column { path, .. } => path.as_deref(),
            ErrorKind::ArchiveExists { path }
            | ErrorKind::NotAnArchive { path, .. }
            | ErrorKind::Damaged { path, .. }
            | ErrorKind::SchemaVersion { path, .. }
            | ErrorKind::VersionNotFound { path, .. }
            | ErrorKind::Conflict { path, .. }
            | ErrorKind::Unconfirmed { path, .. } => Some(path),
            _ => self.location()?.path.as_deref(),
        }
    }

    /// Returns whether the system found no file of that name.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self.kind(), ErrorKind::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Returns the stable short name of the kind: `"io"`, `"decode"`, `"checksum"`, …
    #[must_use]
    pub fn kind_name(&self) -> &'static str {
        match self.kind() {
            ErrorKind::Io { .. } => "io",
            ErrorKind::Decode { .. } => "decode",
            ErrorKind::Header { .. } => "header",
            ErrorKind::Checksum { .. } => "checksum",
            ErrorKind::ArchiveExists { .. } => "archive_exists",
            ErrorKind::NotAnArchive { .. } => "not_an_archive",
            ErrorKind::Damaged { .. } => "damaged",
            ErrorKind::SchemaVersion { .. } => "schema_version",
            ErrorKind::VersionNotFound { .. } => "version_not_found",
            ErrorKind::Conflict { .. } => "conflict",
            ErrorKind::Unconfirmed { .. } => "unconfirmed",
            ErrorKind::Query { .. } => "query",
            ErrorKind::QueryRefused { .. } => "query_refused",
            ErrorKind::QueryLimit { .. } => "query_limit",
            ErrorKind::Argument { .. } => "argument",
            ErrorKind::Column { .. } => "column",
            ErrorKind::IndexOutOfBounds { .. } => "index_out_of_bounds",
            ErrorKind::MemoryLimit { .. } => "memory_limit",
            ErrorKind::OutOfMemory { .. } => "out_of_memory",
            ErrorKind::RecorderLimit { .. } => "recorder_limit",
            ErrorKind::StateMismatch { .. } => "state_mismatch",
            ErrorKind::Task { .. } => "task",
            ErrorKind::Cancelled => "cancelled",
        }
    }

    /// Returns the message without the path, for reports that print the path elsewhere.
    #[must_use]
    pub fn message(&self) -> String {
        self.0.to_string()
    }

    /// Returns an error of the file system.
    pub fn io(path: impl AsRef<Path>, source: io::Error) -> Self {
        ErrorKind::Io { path: Some(path.as_ref().to_path_buf()), source }.into()
    }

    /// Returns an I/O error without a path.
    pub fn other(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        io::Error::other(source).into()
    }

    /// Returns an error about a file that contradicts the rest of its archive or table.
    pub(crate) fn damaged(
        path: impl Into<PathBuf>,
        what: &'static str,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Self {
        let (expected, found) = (expected.to_string(), found.to_string());
        ErrorKind::Damaged { path: path.into(), what, expected, found }.into()
    }

    /// Returns an error about an argument.
    pub fn argument(name: &'static str, expected: impl Into<String>, found: impl fmt::Display) -> Self {
        ErrorKind::Argument { name, expected: expected.into(), found: found.to_string() }.into()
    }

    /// Returns an error unless the value of an argument is in its range.
    pub(crate) fn check_range<T: PartialOrd + fmt::Debug + fmt::Display>(
        name: &'static str,
        range: RangeInclusive<T>,
        value: T,
    ) -> Result<()> {
        if range.contains(&value) { Ok(()) } else { Err(Error::argument(name, format!("{range:?}"), value)) }
    }

    pub(crate) fn column(
        column: impl Into<String>,
        row: Option<u64>,
        expected: impl Into<String>,
        found: impl fmt::Display,
    ) -> Self {
        let (column, expected, found) = (column.into(), expected.into(), found.to_string());
        ErrorKind::Column { path: None, column, row, expected, found }.into()
    }

    /// Returns an error of a query.
    pub fn query(message: impl Into<String>) -> Self {
        ErrorKind::Query { message: message.into() }.into()
    }

    /// Returns the error of a statement that is rejected.
    pub fn refused(what: impl Into<String>, why: impl Into<String>) -> Self {
        ErrorKind::QueryRefused { what: what.into(), why: why.into() }.into()
    }
}

impl Location {
    /// Returns the run, byte and step as the prefix of a message; empty if none is known.
    fn prefix(&self) -> String {
        let run = self.run.map(|run| format!("run {run}: ")).unwrap_or_default();
        let place = match (self.offset, self.step) {
            (Some(offset), Some(step)) => format!("byte {offset} (step {step}): "),
            (Some(offset), None) => format!("byte {offset}: "),
            (None, Some(step)) => format!("step {step}: "),
            (None, None) => String::new(),
        };
        run + &place
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = self.path() {
            write!(f, "{}: ", path.display())?;
        }
        write!(f, "{}", self.0)
    }
}

impl std::error::Error for Error {}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self(Box::new(kind))
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        ErrorKind::Io { path: None, source }.into()
    }
}

impl Error {
    /// Serializes an object with `path`, `kind`, `message`, `run`, `offset` and `step`; unknown ones are null. Bytes of
    /// the path that are not Unicode become U+FFFD.
    pub(crate) fn serialize_with<S: Serializer>(&self, path: Option<&Path>, serializer: S) -> Result<S::Ok, S::Error> {
        let location = self.location();
        let mut fields = serializer.serialize_struct("Error", 6)?;
        fields.serialize_field("path", &path.map(Path::to_string_lossy))?;
        fields.serialize_field("kind", self.kind_name())?;
        fields.serialize_field("message", &self.message())?;
        fields.serialize_field("run", &location.and_then(|location| location.run))?;
        fields.serialize_field("offset", &location.and_then(|location| location.offset))?;
        fields.serialize_field("step", &location.and_then(|location| location.step))?;
        fields.end()
    }
}

impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.serialize_with(self.path(), serializer)
    }
}

/// Serializes a path as text; bytes that are not Unicode become U+FFFD.
pub(crate) fn serialize_path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_one_pointer_wide() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }

    #[test]
    fn prints_place_field_expected_and_found() {
        let error = Error::from(ErrorKind::Decode {
            location: Location { offset: Some(5120), step: Some(311), ..Location::default() },
            what: "move",
            expected: "0..=3".into(),
            found: "7".into(),
        })
        .with_path("runs/ab.a2run2")
        .with_path("another");
        assert_eq!(error.to_string(), "runs/ab.a2run2: byte 5120 (step 311): move: expected 0..=3, found 7");
        assert_eq!(error.message(), "byte 5120 (step 311): move: expected 0..=3, found 7");
    }
}
