//! Hashes that identify a query and the user tables that it reads.

use super::user_tables::UserTable;
use crate::error::Result;
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
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
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
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
        table.identify(&mut hasher)?;
    }
    Ok(hasher.finalize())
}
