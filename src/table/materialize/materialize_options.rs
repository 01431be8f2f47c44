//! The options of materializing a query.

use crate::error::{Error, Result};
use crate::table::materialize::shard::Shard;
use derive_setters::Setters;
use std::path::PathBuf;
use std::str::FromStr;

/// The options for materializing a query.
///
/// Set fields with the `with_*` methods: `MaterializeOptions::default().with_extra(["max_score"])`.
#[derive(Clone, Debug, Default, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct MaterializeOptions {
    /// Columns of the query to append to each row, in addition to the columns of a step. A fixed-size list becomes a
    /// column of several values per row.
    #[setters(skip)]
    pub extra: Vec<String>,
    /// The columns of the query that a row gets, instead of all columns of a step and `extra`. `board` must be one of
    /// them. `ev_values` stands for `ev_up`, `ev_down`, `ev_left` and `ev_right`. Columns that a step does not have
    /// become extra columns, in this order. `run_id`, `step_index` and `tile_65536_mask` are always kept. Other columns
    /// of a step that are not named are not read; their fields have the values of missing columns.
    #[setters(skip)]
    pub columns: Option<Vec<String>>,
    /// The value of the chosen branch.
    pub chosen_ev: ChosenEv,
    /// The memory limit for the rows in bytes; `None` = the memory that the system has available.
    pub memory_limit: Option<u64>,
    /// A `.npy` file for the rows, which are mapped from it instead of being in memory. It has the format of
    /// [`StepTable::save`](crate::StepTable::save). It may be larger than memory; no limit applies.
    #[setters(into)]
    pub path: Option<PathBuf>,
    /// The share of one rank; `None` = all rows. The query may then only filter and select rows.
    pub shard: Option<Shard>,
}

/// The value of the chosen branch, for steps that have values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChosenEv {
    /// The value in the source, usually 1 - 2^-23.
    #[default]
    Stored,
    /// Exactly 1.0, as some trainers expect.
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
    /// Sets the columns of a row.
    #[must_use]
    pub fn with_columns<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        self.columns = Some(columns.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the extra columns.
    #[must_use]
    pub fn with_extra<S: Into<String>>(mut self, extra: impl IntoIterator<Item = S>) -> Self {
        self.extra = extra.into_iter().map(Into::into).collect();
        self
    }
}
