//! The rows of a statement, in JSON.

use crate::archive::Archive;
use crate::cancellation::CancellationToken;
use crate::error::Result;
use crate::query::{QueryOptions, json_rows, no_params};
use serde_json::Value;

/// Returns the rows of a statement.
pub(super) fn collect(
    archive: &Archive,
    sql: &str,
    options: &QueryOptions,
    cancel: &CancellationToken,
) -> Result<Vec<Vec<Value>>> {
    let query = archive.sql_unless_cancelled(sql, no_params(), options, cancel)?;
    let mut stream = query.stream_unless_cancelled(cancel)?;
    let mut rows = Vec::new();
    while let Some(batch) = stream.next_unless_cancelled(cancel)? {
        rows.extend(json_rows(&batch)?);
    }
    Ok(rows)
}
