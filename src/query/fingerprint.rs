//! Hashes that identify a query and the user tables that it reads.

use super::user_tables::{UserTable, UserTableSource};
use crate::error::{Error, Result};
use arrow::row::{RowConverter, SortField};
use datafusion::common::ParamValues;

/// Hashes a query's text and parameters.
pub(super) fn of_query(text: &str, params: &ParamValues) -> blake3::Hash {
    let mut values: Vec<String> = match params {
        ParamValues::List(values) => values.iter().map(|value| format!("{:?}", value.value)).collect(),
        ParamValues::Map(values) => values.iter().map(|(name, value)| format!("{name}={:?}", value.value)).collect(),
    };
    if let ParamValues::Map(_) = params {
        values.sort();
    }
    let mut hasher = blake3::Hasher::new();
    for part in std::iter::once(text).chain(values.iter().map(String::as_str)) {
        add_part(&mut hasher, part.as_bytes());
    }
    hasher.finalize()
}

/// Adds a limit of rows to the hash of a query.
pub(super) fn with_limit(query: blake3::Hash, num_rows: i64) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for part in [query.as_bytes(), "limit".as_bytes(), &num_rows.to_le_bytes()] {
        add_part(&mut hasher, part);
    }
    hasher.finalize()
}

/// Adds the user's tables to the hash of a query.
pub(super) fn with_tables(query: blake3::Hash, tables: &[(String, UserTable)]) -> Result<blake3::Hash> {
    if tables.is_empty() {
        return Ok(query);
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(query.as_bytes());
    let mut tables: Vec<&(String, UserTable)> = tables.iter().collect();
    tables.sort_by_key(|(name, _)| name);
    for (name, table) in tables {
        add_part(&mut hasher, name.as_bytes());
        add_table(&mut hasher, table)?;
    }
    Ok(hasher.finalize())
}

/// Adds what identifies a table's content: the values of batches, or the path, length and modification time of a file.
fn add_table(hasher: &mut blake3::Hasher, table: &UserTable) -> Result<()> {
    match &table.0 {
        UserTableSource::Batches { schema, batches } => {
            // Hash row by row, because batch boundaries and the values under nulls do not matter.
            let failed = |error: arrow::error::ArrowError| Error::query(error.to_string());
            hasher.update(format!("{:?}", schema.fields()).as_bytes());
            let keys = schema.fields().iter().map(|field| SortField::new(field.data_type().clone())).collect();
            let converter = RowConverter::new(keys).map_err(failed)?;
            for batch in batches {
                for row in &converter.convert_columns(batch.columns()).map_err(failed)? {
                    add_part(hasher, row.data());
                }
            }
        }
        UserTableSource::Parquet(file) => {
            hasher.update(file.path.as_os_str().as_encoded_bytes());
            hasher.update(&file.num_bytes.to_le_bytes());
            hasher.update(&file.modified.to_le_bytes());
        }
    }
    Ok(())
}

/// Adds bytes with their length, so that different sequences of parts have different hashes.
fn add_part(hasher: &mut blake3::Hasher, part: &[u8]) {
    hasher.update(&(part.len() as u64).to_le_bytes());
    hasher.update(part);
}
