//! The names of the two tables.

use crate::names::text_form;
use serde::{Deserialize, Serialize};

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

text_form!(TableName, "table", "runs or steps");
