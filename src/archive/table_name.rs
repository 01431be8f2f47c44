//! The names of the tables.

use crate::system::names::text_form;
use serde::{Deserialize, Serialize};

/// A table of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TableName {
    /// One row per run.
    Runs,
    /// One row per step.
    Steps,
    /// One row per model and annotated step.
    Annotations,
}

impl TableName {
    /// All tables.
    pub const ALL: [TableName; 3] = [TableName::Runs, TableName::Steps, TableName::Annotations];

    /// Returns `"runs"`, `"steps"` or `"annotations"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["runs", "steps", "annotations"][self as usize]
    }
}

text_form!(TableName, "table", "runs, steps or annotations");
