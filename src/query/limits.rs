//! Limits on the rows and the time of a result, enforced while it is delivered.

use super::options::QueryOptions;
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result};
use arrow::array::RecordBatch;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The limits of one execution, with its number of rows and its start time. Threads may share it.
pub(crate) struct QueryLimits {
    options: QueryOptions,
    num_rows: AtomicU64,
    begun: Instant,
}

impl QueryLimits {
    pub(super) fn new(options: &QueryOptions) -> QueryLimits {
        QueryLimits { options: options.clone(), num_rows: AtomicU64::new(0), begun: Instant::now() }
    }

    /// Checks the time limit, and whether the caller asked to stop.
    pub(crate) fn check(&self, cancel: &CancellationToken) -> Result<()> {
        cancel.check()?;
        let elapsed = self.begun.elapsed();
        match self.options.time_limit {
            Some(limit) if elapsed > limit => Err(limit_error("time", limit.as_secs_f64(), "s", elapsed.as_secs_f64())),
            _ => Ok(()),
        }
    }

    /// Counts the rows of a batch before it is delivered.
    pub(crate) fn count(&self, batch: &RecordBatch) -> Result<()> {
        let more = batch.num_rows() as u64;
        let num_rows = self.num_rows.fetch_add(more, Ordering::Relaxed).saturating_add(more);
        match self.options.row_limit {
            Some(limit) if num_rows > limit => Err(limit_error("rows", limit, "rows", num_rows)),
            _ => Ok(()),
        }
    }

    /// Adds the allowed number of bytes to an error about exhausted memory or spill space.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match error.into_kind() {
            ErrorKind::QueryLimit { limit, allowed, found } if allowed.is_empty() => {
                let options = &self.options;
                let bytes = if limit == "spill" { options.spill_bytes() } else { options.memory_bytes() };
                ErrorKind::QueryLimit { limit, allowed: format!("{bytes} bytes"), found }.into()
            }
            kind => kind.into(),
        }
    }
}

fn limit_error(limit: &'static str, allowed: impl fmt::Display, unit: &str, found: impl fmt::Display) -> Error {
    let (allowed, found) = (format!("{allowed} {unit}"), format!("{found:.9} {unit} so far"));
    ErrorKind::QueryLimit { limit, allowed, found }.into()
}
