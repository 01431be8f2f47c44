//! Names of column types for people.

use arrow::datatypes::{DataType, FieldRef, TimeUnit};

/// Returns the name of a type without its encoding: `string` for a dictionary of strings, `list[float32, 4]` for a list
/// of fixed length.
#[must_use]
pub fn type_name(dtype: &DataType) -> String {
    let named = |field: &FieldRef| format!("{}: {}", field.name(), type_name(field.data_type()));
    let unit = |unit: &TimeUnit| match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    };
    match dtype {
        DataType::Boolean => "bool".into(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "string".into(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "binary".into(),
        DataType::FixedSizeBinary(len) => format!("binary[{len}]"),
        DataType::Dictionary(_, values) => type_name(values),
        DataType::RunEndEncoded(_, values) => type_name(values.data_type()),
        DataType::List(item) | DataType::LargeList(item) | DataType::ListView(item) | DataType::LargeListView(item) => {
            format!("list[{}]", type_name(item.data_type()))
        }
        DataType::FixedSizeList(item, len) => format!("list[{}, {len}]", type_name(item.data_type())),
        DataType::Struct(fields) => format!("struct[{}]", fields.iter().map(named).collect::<Vec<_>>().join(", ")),
        DataType::Date32 | DataType::Date64 => "date".into(),
        DataType::Time32(of) | DataType::Time64(of) => format!("time[{}]", unit(of)),
        DataType::Duration(of) => format!("duration[{}]", unit(of)),
        DataType::Timestamp(of, None) => format!("timestamp[{}]", unit(of)),
        DataType::Timestamp(of, Some(zone)) => format!("timestamp[{}, {zone}]", unit(of)),
        // The names of numbers, such as `UInt8`, differ only in case.
        dtype if dtype.is_numeric() && !dtype.is_decimal() || dtype.is_null() => dtype.to_string().to_lowercase(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::Field;
    use std::sync::Arc;

    #[test]
    fn encodings_have_no_names() {
        let item = |dtype| Arc::new(Field::new("item", dtype, true));
        let strings = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let pair = DataType::Struct(
            vec![Field::new("a", DataType::Int8, true), Field::new("b", strings.clone(), true)].into(),
        );
        for (dtype, name) in [
            (DataType::UInt64, "uint64"),
            (DataType::Float32, "float32"),
            (DataType::Boolean, "bool"),
            (DataType::Null, "null"),
            (DataType::LargeUtf8, "string"),
            (strings, "string"),
            (DataType::FixedSizeList(item(DataType::Float32), 4), "list[float32, 4]"),
            (DataType::List(item(DataType::LargeBinary)), "list[binary]"),
            (pair, "struct[a: int8, b: string]"),
            (DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), "timestamp[us, UTC]"),
            (DataType::Decimal128(10, 2), "Decimal128(10, 2)"),
        ] {
            assert_eq!(type_name(&dtype), name);
        }
    }
}
