//! Rows of a result as JSON, for pages.

use crate::error::Result;
use crate::query::engine::errors::query_error;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int64Type, UInt64Type};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::scalar::ScalarValue;
use serde_json::{Value, json};

/// The largest integer up to which JavaScript numbers represent all integers.
const MAX_SAFE: u64 = 1 << 53;

/// Returns whether a column has boards, which pages show as pictures. A column of boards has the type uint64
/// and a known name.
#[must_use]
pub fn is_board(name: &str, dtype: &DataType) -> bool {
    let is_named = matches!(
        name,
        "board" | "position" | "next_board" | "final_board" | "canonical" | "canonical_board" | "afterstate"
    );
    is_named && *dtype == DataType::UInt64
}

/// Returns each row as an array of values.
///
/// Boards are texts of sixteen hexadecimal digits. Integers beyond 2^53 are texts of decimal digits, because
/// JavaScript numbers cannot represent all of them. NaN and infinities are null. Lists are arrays, structs are
/// objects, bytes are hexadecimal digits, and values of other types have the same text as in other results.
///
/// # Errors
/// [`ErrorKind::Query`](crate::ErrorKind::Query) for values that cannot be shown as text.
pub fn json_rows(batch: &RecordBatch) -> Result<Vec<Vec<Value>>> {
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns()).map(|(field, column)| {
        if is_board(field.name(), field.data_type()) {
            let boards = column.as_primitive::<UInt64Type>();
            return Ok(boards.iter().map(|board| json!(board.map(|board| format!("{board:016x}")))).collect());
        }
        values(column)
    });
    let columns: Vec<Vec<Value>> =
        columns.collect::<Result<_, ArrowError>>().map_err(|error| query_error(error.into()))?;
    let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
    Ok((0..batch.num_rows()).map(|_| columns.iter_mut().filter_map(Iterator::next).collect()).collect())
}

/// Returns the value of a parameter of a named query.
#[must_use]
pub fn json_scalar(value: &ScalarValue) -> Value {
    let values = value.to_array().ok().and_then(|array| values(&array).ok());
    values.and_then(|mut values| values.pop()).unwrap_or_default()
}

/// Returns the float64 with the same shortest text as a float32: 0.1 for 0.1, not 0.10000000149.
#[must_use]
pub fn short(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::NAN)
}

/// Returns the values of an array.
fn values(array: &ArrayRef) -> Result<Vec<Value>, ArrowError> {
    let some = |(row, value): (usize, Value)| if array.is_null(row) { Value::Null } else { value };
    Ok(match array.data_type() {
        DataType::Null => vec![Value::Null; array.len()],
        DataType::Boolean => array.as_boolean().iter().map(|value| json!(value)).collect(),
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
            let array = cast(array, &DataType::UInt64)?;
            let value = |value: u64| if value <= MAX_SAFE { json!(value) } else { json!(value.to_string()) };
            array.as_primitive::<UInt64Type>().iter().map(|each| each.map_or(Value::Null, value)).collect()
        }
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            let array = cast(array, &DataType::Int64)?;
            let value =
                |value: i64| if value.unsigned_abs() <= MAX_SAFE { json!(value) } else { json!(value.to_string()) };
            array.as_primitive::<Int64Type>().iter().map(|each| each.map_or(Value::Null, value)).collect()
        }
        DataType::Float32 => array.as_primitive::<Float32Type>().iter().map(|value| json!(value.map(short))).collect(),
        DataType::Float16 | DataType::Float64 => {
            let array = cast(array, &DataType::Float64)?;
            array.as_primitive::<Float64Type>().iter().map(|value| json!(value)).collect()
        }
        DataType::Dictionary(_, dtype) => values(&cast(array, dtype)?)?,
        DataType::List(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => values(&cast(array, &DataType::LargeList(item.clone()))?)?,
        DataType::LargeList(_) => {
            let lists = array.as_list::<i64>();
            let items = lists.iter().map(|list| list.map_or(Ok(Value::Null), |list| values(&list).map(Value::Array)));
            items.collect::<Result<_, _>>()?
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter().map(values).collect::<Result<Vec<_>, _>>()?;
            let object = |row: usize| {
                let members =
                    fields.iter().zip(&columns).map(|(field, column)| (field.name().clone(), column[row].clone()));
                members.collect::<Value>()
            };
            (0..array.len()).map(object).enumerate().map(some).collect()
        }
        _ => {
            let options = FormatOptions::default();
            let texts = ArrayFormatter::try_new(array, &options)?;
            let text = |row: usize| texts.value(row).try_to_string().map(|text| some((row, Value::String(text))));
            (0..array.len()).map(text).collect::<Result<_, _>>()?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        BinaryArray, BooleanArray, DictionaryArray, FixedSizeListArray, Float16Array, Float32Array, Float64Array,
        Int64Array, ListArray, NullArray, StringArray, StructArray, TimestampMillisecondArray, UInt8Array, UInt64Array,
    };
    use arrow::datatypes::{Field, Int32Type, UInt8Type};
    use std::sync::Arc;

    #[test]
    fn values_of_every_kind() {
        let pair: ArrayRef = Arc::new(StructArray::from(vec![(
            Arc::new(Field::new("a", DataType::UInt8, true)),
            Arc::new(UInt8Array::from(vec![Some(1), None])) as ArrayRef,
        )]));
        let fixed = FixedSizeListArray::from_iter_primitive::<UInt8Type, _, _>([Some([Some(1), None]), None], 2);
        let columns: [(&str, ArrayRef, [Value; 2]); 15] = [
            ("null", Arc::new(NullArray::new(2)), [json!(null), json!(null)]),
            ("bool", Arc::new(BooleanArray::from(vec![Some(true), None])), [json!(true), json!(null)]),
            ("board", Arc::new(UInt64Array::from(vec![Some(17), None])), [json!("0000000000000011"), json!(null)]),
            (
                "u64",
                Arc::new(UInt64Array::from(vec![1 << 53, u64::MAX])),
                [json!(1_u64 << 53), json!("18446744073709551615")],
            ),
            ("i64", Arc::new(Int64Array::from(vec![-1, i64::MIN])), [json!(-1), json!("-9223372036854775808")]),
            ("f16", Arc::new(Float16Array::from(vec![half::f16::ONE, half::f16::NAN])), [json!(1.0), json!(null)]),
            ("f32", Arc::new(Float32Array::from(vec![0.1, f32::INFINITY])), [json!(0.1), json!(null)]),
            ("f64", Arc::new(Float64Array::from(vec![0.1, f64::NAN])), [json!(0.1), json!(null)]),
            ("text", Arc::new(StringArray::from(vec![Some("</script>"), None])), [json!("</script>"), json!(null)]),
            (
                "dictionary",
                Arc::new([Some("a"), None].into_iter().collect::<DictionaryArray<Int32Type>>()),
                [json!("a"), json!(null)],
            ),
            (
                "list",
                Arc::new(ListArray::from_iter_primitive::<UInt64Type, _, _>([Some(vec![Some(u64::MAX)]), None])),
                [json!(["18446744073709551615"]), json!(null)],
            ),
            ("fixed", Arc::new(fixed), [json!([1, null]), json!(null)]),
            ("struct", pair, [json!({ "a": 1 }), json!({ "a": null })]),
            (
                "bytes",
                Arc::new(BinaryArray::from(vec![Some(b"\x01\xff".as_slice()), None])),
                [json!("01ff"), json!(null)],
            ),
            (
                "time",
                Arc::new(TimestampMillisecondArray::from(vec![Some(0), None])),
                [json!("1970-01-01T00:00:00"), json!(null)],
            ),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns.iter().map(|(name, column, _)| (*name, Arc::clone(column), true)),
        )
        .unwrap();
        let rows = json_rows(&batch).unwrap();
        for (at, (name, _, expected)) in columns.iter().enumerate() {
            assert_eq!([&rows[0][at], &rows[1][at]], [&expected[0], &expected[1]], "{name}");
        }
        assert_eq!(json_rows(&batch.slice(1, 1)).unwrap()[0], rows[1]);
    }
}
