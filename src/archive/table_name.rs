//! The names of the two tables.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A table of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TableName {
    /// One row per run.
    Runs,
    /// One row per step.
    Steps,
}

impl TableName {
    /// All tables.
    pub const ALL: [TableName; 2] = [TableName::Runs, TableName::Steps];

    /// Returns `"runs"` or `"steps"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            TableName::Runs => "runs",
            TableName::Steps => "steps",
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for TableName {
    type Err = Error;

    fn from_str(name: &str) -> Result<TableName> {
        TableName::ALL
            .into_iter()
            .find(|table| table.name() == name)
            .ok_or_else(|| Error::argument("table", "runs or steps", name))
    }
}
