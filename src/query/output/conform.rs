//! Conversion of batches to the schema of a result.

use crate::error::Result;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Field, SchemaRef};
use arrow::error::ArrowError;
use std::collections::HashSet;
use std::sync::Arc;

/// Converts a batch to the types of the schema. Consumers behind a C interface would not notice other types.
///
/// Only the encoding of a column may change here, never a value. The schema comes from the analyzed plan.
pub(in crate::query) fn conform(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let fields = schema.fields();
    let fits =
        |(column, field): (&ArrayRef, &Arc<Field>)| column.data_type() == field.data_type() && !is_irregular(column);
    if batch.columns().iter().zip(fields).all(fits) {
        return Ok(batch);
    }
    let encoded = |(column, field): (&ArrayRef, &Arc<Field>)| {
        if !is_encoding_of(column.data_type(), field.data_type()) {
            let (name, expected, found) = (field.name(), field.data_type(), column.data_type());
            let message = format!("column {name} of the query engine: expected {expected}, found {found}");
            return Err(ArrowError::ComputeError(message));
        }
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let decoded = match column.as_any_dictionary_opt() {
            Some(dictionary) if is_irregular(column) => cast(column, dictionary.values().data_type())?,
            _ => Arc::clone(column),
        };
        cast_with_options(&decoded, field.data_type(), &options)
    };
    let columns = batch.columns().iter().zip(fields).map(encoded).collect::<Result<Vec<_>, _>>();
    RecordBatch::try_new(Arc::clone(schema), columns?)
}

/// Returns whether values of these types differ only in their encoding.
pub(in crate::query) fn is_encoding_of(one: &DataType, other: &DataType) -> bool {
    fn plain(dtype: &DataType) -> &DataType {
        match dtype {
            DataType::Dictionary(_, values) => plain(values),
            DataType::LargeUtf8 | DataType::Utf8View => &DataType::Utf8,
            DataType::LargeBinary | DataType::BinaryView => &DataType::Binary,
            other => other,
        }
    }
    let (one, other) = (plain(one), plain(other));
    match (one, other) {
        (DataType::Null, _) => true,
        (DataType::List(a) | DataType::LargeList(a), DataType::List(b) | DataType::LargeList(b)) => {
            is_encoding_of(a.data_type(), b.data_type())
        }
        (DataType::FixedSizeList(a, len), DataType::FixedSizeList(b, other_len)) => {
            len == other_len && is_encoding_of(a.data_type(), b.data_type())
        }
        (DataType::Struct(a), DataType::Struct(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_encoding_of(a.data_type(), b.data_type()))
        }
        (one, other) => one.equals_datatype(other),
    }
}

/// Returns whether a dictionary has a null or a repeated text among its values. DataFusion makes such dictionaries where a
/// file lacks the column, and where it merges batches. pyarrow cannot concatenate the first kind, and pandas rejects the
/// second one.
fn is_irregular(column: &ArrayRef) -> bool {
    let Some(dictionary) = column.as_any_dictionary_opt() else { return false };
    let values = dictionary.values();
    let repeats = values.as_string_opt::<i32>().is_some_and(|texts| {
        let mut seen = HashSet::with_capacity(texts.len());
        !texts.iter().all(|text| seen.insert(text))
    });
    repeats || values.null_count() > 0
}
