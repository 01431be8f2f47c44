//! The rows of a statement, as one batch and in JSON, and the values of its parameters.

use a2store::archive::Archive;
use a2store::error::Result;
use a2store::query::{QueryOptions, ScalarValue, json_rows, no_params};
use a2store::system::cancellation::CancellationToken;
use arrow::array::RecordBatch;
use serde_json::{Map, Value};

/// Returns the rows of a statement.
///
/// # Errors
/// Those of the query.
pub fn read(archive: &Archive, sql: &str, options: &QueryOptions, cancel: &CancellationToken) -> Result<RecordBatch> {
    archive.sql_with(sql, no_params(), options, cancel)?.rows(cancel)
}

/// Returns each row as a JSON object.
///
/// # Errors
/// [`ErrorKind::Io`](a2store::ErrorKind::Io) for a column that has no form in JSON.
pub fn objects(batch: &RecordBatch) -> Result<Vec<Map<String, Value>>> {
    let schema = batch.schema();
    let names = schema.fields().iter().map(|field| field.name().clone());
    Ok(json_rows(batch)?.into_iter().map(|row| names.clone().zip(row).collect()).collect())
}

/// Returns the value of a parameter; `None` for a list or an object.
#[must_use]
pub fn scalar(value: &Value) -> Option<ScalarValue> {
    Some(match value {
        Value::Null => ScalarValue::Null,
        Value::Bool(value) => ScalarValue::from(*value),
        Value::String(text) => ScalarValue::from(text.as_str()),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => ScalarValue::from(value),
            (_, Some(value)) => ScalarValue::from(value),
            _ => ScalarValue::Float64(number.as_f64()),
        },
        Value::Array(_) | Value::Object(_) => return None,
    })
}
