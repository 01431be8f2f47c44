//! What can go wrong, where it went wrong, what was expected and what was found.

use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of any a2store operation.
///
/// One pointer wide, so that `Result<T>` stays small. [`Error::kind`] has the parts for a program,
/// `Display` one line for a person: the file, the place in it, what was expected and what was found.
///
/// ```
/// use a2store::{Error, ErrorKind};
/// let error = a2store::decode_run(b"A2T1\x02").unwrap_err();
/// assert!(matches!(error.kind(), ErrorKind::Decode { .. }));
/// println!("{}", error.with_path("runs/ab.bin"));
/// ```
pub struct Error(Box<ErrorKind>);

/// A place in an input: a file, a byte offset in it, a step of the run that it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The file, when the input was one.
    pub path: Option<PathBuf>,
    /// The run's index in a file of many, from 0.
    pub run: Option<u64>,
    /// Byte offset from the start of the input, which in a file of many runs is the file.
    pub offset: Option<u64>,
    /// Index of the step, from 0.
    pub step: Option<u64>,
}

/// The kinds of [`Error`], each with the facts a caller may want to act on.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused to read or write.
    Io {
        /// The file or folder, when there is one.
        path: Option<PathBuf>,
        /// What it said.
        source: io::Error,
    },
    /// Bytes that are not what their format demands.
    Decode {
        /// Where.
        location: Location,
        /// The field that was read.
        what: &'static str,
        /// What the format demands there.
        expected: String,
        /// What stood there.
        found: String,
    },
    /// A file of many runs whose header, index or footer is not what its format demands: nothing of it can be read.
    Header {
        /// Where.
        location: Location,
        /// The field that was read.
        what: &'static str,
        /// What the format demands there.
        expected: String,
        /// What stood there.
        found: String,
    },
    /// Bytes that are not those that were written.
    Checksum {
        /// Where.
        location: Location,
        /// What the checksum covers.
        what: &'static str,
        /// The CRC32C that was stored.
        expected: u32,
        /// The CRC32C of the bytes as they are.
        found: u32,
    },
    /// [`Archive::create`](crate::Archive::create) where an archive already stands.
    ArchiveExists {
        /// The archive's folder.
        path: PathBuf,
    },
    /// A folder that holds no archive.
    NotAnArchive {
        /// The folder.
        path: PathBuf,
        /// What is missing.
        missing: &'static str,
    },
    /// A commit or data file that contradicts the rest of the archive.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What about it.
        what: &'static str,
        /// What the rest of the archive demands.
        expected: String,
        /// What was found.
        found: String,
    },
    /// An archive, or a file in it, of a schema that this version cannot read.
    SchemaVersion {
        /// The file.
        path: PathBuf,
        /// The newest schema version that this build reads.
        supported: u32,
        /// The schema version of the file.
        found: u32,
    },
    /// A version that the archive does not have.
    VersionNotFound {
        /// The archive's folder.
        path: PathBuf,
        /// The version asked for.
        version: u64,
        /// The oldest version that has not expired.
        oldest: u64,
        /// The newest version there is.
        newest: u64,
    },
    /// Another writer holds the archive, or committed first.
    Conflict {
        /// The archive's folder.
        path: PathBuf,
        /// What the other did.
        what: String,
    },
    /// A commit that was written, but whose publishing was not confirmed. It may stand or not; repeating the operation
    /// tells, and does nothing twice.
    Unconfirmed {
        /// The commit's file.
        path: PathBuf,
        /// The version that it makes, if it stands.
        version: u64,
        /// What went wrong.
        reason: String,
    },
    /// SQL that does not parse or plan, or that failed while it ran.
    Query {
        /// What the engine said, in one line.
        message: String,
    },
    /// SQL that the guard does not let through: what it would do is not reading the archive's tables.
    QueryRefused {
        /// The part of the statement.
        what: String,
        /// Why it is refused.
        why: String,
    },
    /// A query that came to one of its limits, and was stopped.
    QueryLimit {
        /// The limit: `"rows"`, `"bytes"`, `"time"`, `"memory"` or `"spill"`.
        limit: &'static str,
        /// What is allowed.
        allowed: String,
        /// What it came to.
        found: String,
    },
    /// An argument outside what it may be.
    Argument {
        /// Its name.
        name: &'static str,
        /// What it may be.
        expected: String,
        /// What it was.
        found: String,
    },
    /// A column of a query that a [`StepTable`](crate::StepTable) cannot hold.
    Column {
        /// The file, where the rows came from one.
        path: Option<PathBuf>,
        /// The column.
        column: String,
        /// The row of the query's result, from 0, where one is to blame.
        row: Option<u64>,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
    },
    /// An index outside a table.
    IndexOutOfBounds {
        /// The index.
        index: i128,
        /// The number of rows; an index is in `0..len`.
        len: u64,
    },
    /// A table that would be larger than it may be.
    MemoryLimit {
        /// Bytes needed, at least.
        needed: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// A failed allocation.
    OutOfMemory {
        /// The requested bytes.
        needed: u64,
    },
    /// A recorder that came to one of its limits, and takes no more.
    RecorderLimit {
        /// The limit: `"games"`, `"steps"`, `"ram"`, `"wall"` or `"disk"`.
        limit: &'static str,
        /// What is allowed.
        allowed: String,
        /// What it came to.
        found: String,
    },
    /// A loader's state that belongs to other data or another order.
    StateMismatch {
        /// The part that differs.
        field: &'static str,
        /// Its value in the loader.
        expected: String,
        /// Its value in the state.
        found: String,
    },
    /// The caller asked to stop.
    Cancelled,
}

impl Error {
    /// The parts of this error.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// Takes the parts out.
    #[must_use]
    pub fn into_kind(self) -> ErrorKind {
        *self.0
    }

    /// Names the file that was being read, unless the error already names one.
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

    /// This error about bytes as one about a file of many runs as a whole.
    pub(crate) fn of_header(self) -> Self {
        match *self.0 {
            ErrorKind::Decode { location, what, expected, found } => {
                ErrorKind::Header { location, what, expected, found }.into()
            }
            other => other.into(),
        }
    }

    /// An error about the bytes at an offset.
    pub(crate) fn decode(
        offset: u64,
        what: &'static str,
        expected: impl Into<String>,
        found: impl fmt::Display,
    ) -> Self {
        let location = Location { offset: Some(offset), ..Location::default() };
        ErrorKind::Decode { location, what, expected: expected.into(), found: found.to_string() }.into()
    }

    /// Says which run of a file of many was being read, and by how many bytes its offset falls short of one in the file.
    #[must_use]
    pub(crate) fn in_run(mut self, run: u64, start: u64) -> Self {
        if let ErrorKind::Decode { location, .. } | ErrorKind::Checksum { location, .. } = &mut *self.0
            && location.run.is_none()
        {
            location.run = Some(run);
            location.offset = Some(location.offset.unwrap_or_default() + start);
        }
        self
    }

    /// Where in the input, when the error is about an input.
    #[must_use]
    pub fn location(&self) -> Option<&Location> {
        match self.kind() {
            ErrorKind::Decode { location, .. }
            | ErrorKind::Header { location, .. }
            | ErrorKind::Checksum { location, .. } => Some(location),
            _ => None,
        }
    }

    /// The file or folder that this error is about.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self.kind() {
            ErrorKind::Io { path, .. } | ErrorKind::Column { path, .. } => path.as_deref(),
            ErrorKind::Decode { location, .. }
            | ErrorKind::Header { location, .. }
            | ErrorKind::Checksum { location, .. } => location.path.as_deref(),
            ErrorKind::ArchiveExists { path }
            | ErrorKind::NotAnArchive { path, .. }
            | ErrorKind::Damaged { path, .. }
            | ErrorKind::SchemaVersion { path, .. }
            | ErrorKind::VersionNotFound { path, .. }
            | ErrorKind::Conflict { path, .. }
            | ErrorKind::Unconfirmed { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Whether the system found no file.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self.kind(), ErrorKind::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// A short stable name of the kind: `"io"`, `"decode"`, `"checksum"`, …
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
            ErrorKind::Cancelled => "cancelled",
        }
    }

    /// The message without the file: what a report that has a column for the file prints beside it.
    #[must_use]
    pub fn message(&self) -> String {
        struct WithoutPath<'a>(&'a Error);
        impl fmt::Display for WithoutPath<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt_parts(f, false)
            }
        }
        WithoutPath(self).to_string()
    }

    pub(crate) fn io(path: impl AsRef<Path>, source: io::Error) -> Self {
        ErrorKind::Io { path: Some(path.as_ref().to_path_buf()), source }.into()
    }

    pub(crate) fn argument(name: &'static str, expected: impl Into<String>, found: impl fmt::Display) -> Self {
        ErrorKind::Argument { name, expected: expected.into(), found: found.to_string() }.into()
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

    pub(crate) fn query(message: impl Into<String>) -> Self {
        ErrorKind::Query { message: message.into() }.into()
    }

    pub(crate) fn refused(what: impl Into<String>, why: impl Into<String>) -> Self {
        ErrorKind::QueryRefused { what: what.into(), why: why.into() }.into()
    }

    fn fmt_parts(&self, f: &mut fmt::Formatter<'_>, with_path: bool) -> fmt::Result {
        if with_path && let Some(path) = self.path() {
            write!(f, "{}: ", path.display())?;
        }
        match self.kind() {
            ErrorKind::Io { source, .. } => write!(f, "{source}"),
            ErrorKind::Decode { location, what, expected, found }
            | ErrorKind::Header { location, what, expected, found } => {
                location.fmt_place(f)?;
                write!(f, "{what}: expected {expected}, found {found}")
            }
            ErrorKind::Checksum { location, what, expected, found } => {
                location.fmt_place(f)?;
                write!(f, "CRC32C of {what}: expected {expected:08x}, found {found:08x}")
            }
            ErrorKind::ArchiveExists { .. } => write!(f, "an archive is already there"),
            ErrorKind::NotAnArchive { missing, .. } => write!(f, "not an archive: {missing} is missing"),
            ErrorKind::Damaged { what, expected, found, .. } => {
                write!(f, "damaged: {what}: expected {expected}, found {found}")
            }
            ErrorKind::SchemaVersion { supported, found, .. } => {
                write!(f, "schema version {found}, but this a2store reads up to {supported}: upgrade a2store")
            }
            ErrorKind::VersionNotFound { version, oldest, newest, .. } => {
                write!(f, "version {version}: expected {oldest}..={newest}")
            }
            ErrorKind::Conflict { what, .. } => write!(f, "{what}"),
            ErrorKind::Unconfirmed { version, reason, .. } => {
                write!(f, "whether version {version} was committed is not known ({reason}): repeat the operation")
            }
            ErrorKind::Query { message } => write!(f, "{message}"),
            ErrorKind::QueryRefused { what, why } => write!(f, "refused: {what}: {why}"),
            ErrorKind::QueryLimit { limit, allowed, found } => {
                write!(f, "the query came to its limit of {limit}: {allowed} allowed, {found}")
            }
            ErrorKind::Argument { name, expected, found } => {
                write!(f, "{name}: expected {expected}, found {found}")
            }
            ErrorKind::Column { column, row, expected, found, .. } => {
                write!(f, "column {column}")?;
                if let Some(row) = row {
                    write!(f, ", row {row}")?;
                }
                write!(f, ": expected {expected}, found {found}")
            }
            ErrorKind::IndexOutOfBounds { index, len } => {
                write!(f, "index {index} is out of bounds for a table of {len} rows")
            }
            ErrorKind::MemoryLimit { needed, limit } => {
                write!(f, "the table needs at least {needed} bytes, but its memory limit is {limit} bytes")
            }
            ErrorKind::OutOfMemory { needed } => write!(f, "out of memory: {needed} bytes could not be allocated"),
            ErrorKind::RecorderLimit { limit, allowed, found } => {
                write!(f, "the recorder came to its limit of {limit}: {allowed} allowed, {found}")
            }
            ErrorKind::StateMismatch { field, expected, found } => {
                write!(f, "state of another loader: {field}: expected {expected}, found {found}")
            }
            ErrorKind::Cancelled => write!(f, "cancelled"),
        }
    }
}

impl Location {
    fn fmt_place(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Location { run, offset, step, .. } = self;
        if let Some(run) = run {
            write!(f, "run {run}: ")?;
        }
        match (offset, step) {
            (Some(offset), Some(step)) => write!(f, "byte {offset} (step {step}): "),
            (Some(offset), None) => write!(f, "byte {offset}: "),
            (None, Some(step)) => write!(f, "step {step}: "),
            (None, None) => Ok(()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_parts(f, true)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
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

/// The fields of an [`Error`] in JSON; unknown ones are null.
#[derive(Serialize)]
pub(crate) struct ErrorFields<'a> {
    /// Bytes that are not Unicode become U+FFFD.
    pub(crate) path: Option<Cow<'a, str>>,
    pub(crate) kind: &'static str,
    /// The message without the path.
    pub(crate) message: String,
    pub(crate) run: Option<u64>,
    pub(crate) offset: Option<u64>,
    pub(crate) step: Option<u64>,
}

impl Error {
    /// Returns the fields to serialize.
    pub(crate) fn fields(&self) -> ErrorFields<'_> {
        let location = self.location();
        ErrorFields {
            path: self.path().map(Path::to_string_lossy),
            kind: self.kind_name(),
            message: self.message(),
            run: location.and_then(|location| location.run),
            offset: location.and_then(|location| location.offset),
            step: location.and_then(|location| location.step),
        }
    }
}

/// Serializes an object with `path`, `kind`, `message`, `run`, `offset` and `step`.
impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.fields().serialize(serializer)
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
    fn says_what_where_expected_and_found() {
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
