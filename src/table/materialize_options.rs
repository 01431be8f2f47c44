//! The options of materializing a query.

use crate::error::{Error, Result};
use std::path::PathBuf;
use std::str::FromStr;

/// The options for materializing a query.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MaterializeOptions {
    /// Columns of the query to append to each row, in addition to the columns of a step.
    pub extra: Vec<String>,
    /// The value of the chosen branch.
    pub chosen_ev: ChosenEv,
    /// The memory limit for the rows in bytes; `None` = the memory that the system has available.
    pub memory_limit: Option<u64>,
    /// A `.npy` file for the rows, which are mapped from it instead of being in memory. It has the format of
    /// [`StepTable::save`](crate::StepTable::save). It may be larger than memory; no limit applies.
    pub path: Option<PathBuf>,
}

/// The value of the chosen branch, for steps that have values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChosenEv {
    /// The value in the source, usually 1 - 2^-23.
    #[default]
    Stored,
    /// Exactly 1.0, as the field's trainers expect.
    One,
}

impl FromStr for ChosenEv {
    type Err = Error;

    fn from_str(name: &str) -> Result<ChosenEv> {
        match name {
            "stored" => Ok(ChosenEv::Stored),
            "one" => Ok(ChosenEv::One),
            other => Err(Error::argument("chosen_ev", "\"stored\" or \"one\"", format!("{other:?}"))),
        }
    }
}

impl MaterializeOptions {
    /// Sets the extra columns.
    #[must_use]
    pub fn with_extra<S: Into<String>>(mut self, extra: impl IntoIterator<Item = S>) -> Self {
        self.extra = extra.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the value of the chosen branch.
    #[must_use]
    pub fn with_chosen_ev(mut self, chosen_ev: ChosenEv) -> Self {
        self.chosen_ev = chosen_ev;
        self
    }

    /// Sets the memory limit for the rows in bytes.
    #[must_use]
    pub fn with_memory_limit(mut self, memory_limit: u64) -> Self {
        self.memory_limit = Some(memory_limit);
        self
    }

    /// Sets the file for the rows.
    #[must_use]
    pub fn with_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = Some(path.into());
        self
    }
}
