//! The types of results.

use arrow::datatypes::{DataType, Field, Fields};
use std::sync::Arc;

/// The type of a function's result.
#[derive(Clone, Copy, Debug)]
pub(super) enum Returns {
    Bool,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Int32,
    Int64,
    Float32,
    Text,
    Exps,
    Spawn,
}

impl Returns {
    pub(super) fn data_type(self) -> DataType {
        match self {
            Returns::Bool => DataType::Boolean,
            Returns::UInt8 => DataType::UInt8,
            Returns::UInt16 => DataType::UInt16,
            Returns::UInt32 => DataType::UInt32,
            Returns::UInt64 => DataType::UInt64,
            Returns::Int32 => DataType::Int32,
            Returns::Int64 => DataType::Int64,
            Returns::Float32 => DataType::Float32,
            Returns::Text => DataType::Utf8,
            Returns::Exps => DataType::FixedSizeList(exps_field(), 16),
            Returns::Spawn => DataType::Struct(spawn_fields()),
        }
    }
}

pub(super) fn exps_field() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::UInt8, false))
}

/// Returns the fields of a spawn. They are nullable, because a reader that extracts a field may ignore the nulls of the
/// struct.
pub(super) fn spawn_fields() -> Fields {
    Fields::from(vec![Field::new("cell", DataType::UInt8, true), Field::new("tile", DataType::UInt32, true)])
}
