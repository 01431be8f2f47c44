//! Limits on the rows, bytes and time of a result, enforced while it is delivered.

use crate::error::{Error, ErrorKind, Result};
use crate::query::engine::errors::query_error;
use crate::query::options::QueryOptions;
use crate::system::cancellation::CancellationToken;
use arrow::array::{Array, RecordBatch};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The limits of one execution, with its counters and start time. Threads may share it.
pub(crate) struct QueryLimits {
    options: QueryOptions,
    num_rows: AtomicU64,
    num_bytes: AtomicU64,
    begun: Instant,
}

impl QueryLimits {
    pub(in crate::query) fn new(options: &QueryOptions) -> QueryLimits {
        let (num_rows, num_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        QueryLimits { options: options.clone(), num_rows, num_bytes, begun: Instant::now() }
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

    /// Returns whether the rows or bytes of the result are limited.
    pub(in crate::query) fn count_rows(&self) -> bool {
        self.options.row_limit.is_some() || self.options.byte_limit.is_some()
    }

    /// Counts the rows and bytes of a batch before it is delivered.
    pub(crate) fn count(&self, batch: &RecordBatch) -> Result<()> {
        let total = |counter: &AtomicU64, more: u64| counter.fetch_add(more, Ordering::Relaxed).saturating_add(more);
        let num_rows = total(&self.num_rows, batch.num_rows() as u64);
        if let Some(limit) = self.options.row_limit.filter(|&limit| num_rows > limit) {
            return Err(limit_error("rows", limit, "rows", num_rows));
        }
        if let Some(limit) = self.options.byte_limit {
            let mut num_bytes = 0;
            for column in batch.columns() {
                let bytes = column.to_data().get_slice_memory_size();
                num_bytes += bytes.map_err(|error| query_error(error.into()))? as u64;
            }
            let num_bytes = total(&self.num_bytes, num_bytes);
            if num_bytes > limit {
                return Err(limit_error("bytes", limit, "bytes", num_bytes));
            }
        }
        Ok(())
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
