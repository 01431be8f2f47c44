//! Files that could not be read.

use crate::error::{Error, Result};
use serde::{Serialize, Serializer};
use std::path::{Path, PathBuf};

/// A run or a whole file that could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub struct Rejected {
    /// The file; the folder of a dataset, a session or a pack if no single file is wrong.
    pub path: PathBuf,
    /// The reason.
    pub error: Error,
}

impl Rejected {
    /// Takes the path of the error. `source` is the path of the run, if the error has none.
    pub fn new(source: PathBuf, error: Error) -> Rejected {
        Rejected { path: error.path().map_or(source, Path::to_path_buf), error }
    }

    /// Returns the reason in one line, without the path.
    #[must_use]
    pub fn message(&self) -> String {
        self.error.message()
    }
}

impl Serialize for Rejected {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.error.serialize_with(Some(&self.path), serializer)
    }
}
