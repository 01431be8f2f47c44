//! Problems of an archive: as lines of a report, and as errors.

use crate::error::{Error, ErrorKind};
use serde::Serialize;
use std::fmt;

/// A problem of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// The file, relative to the archive.
    pub path: String,
    /// The run with the problem, if it affects one run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<u32>,
    /// The part of the file or run that is wrong.
    pub what: String,
    /// The value that the rest of the archive requires.
    pub expected: String,
    /// The value that was found.
    pub found: String,
}

impl Problem {
    #[allow(clippy::needless_pass_by_value)] // Numbers and text alike, without a borrow at every call.
    pub(super) fn new(path: &str, what: impl Into<String>, expected: impl ToString, found: impl ToString) -> Problem {
        let (what, expected, found) = (what.into(), expected.to_string(), found.to_string());
        Problem { path: path.to_owned(), run_id: None, what, expected, found }
    }

    pub(super) fn of_error(path: &str, error: &Error) -> Problem {
        match error.kind() {
            ErrorKind::Damaged { what, expected, found, .. } => Problem::new(path, *what, expected, found),
            _ => Problem::new(path, "file", "a readable file", error.message()),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path)?;
        if let Some(run_id) = self.run_id {
            write!(f, "run {run_id}: ")?;
        }
        write!(f, "{}: expected {}, found {}", self.what, self.expected, self.found)
    }
}
