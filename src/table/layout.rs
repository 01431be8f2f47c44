//! Which bytes of a row are which column: a [`Step`](crate::Step), then the extra columns, the widest first.

use crate::error::{Error, ErrorKind, Result};
use crate::step::{FIELDS, STEP_SIZE};
use arrow::datatypes::DataType;

/// The bytes of a row.
///
/// The first 32 are a [`Step`](crate::Step). Extra columns follow, ordered by width so that each is aligned without
/// gaps, and the stride is the next multiple of 8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowLayout {
    stride: usize,
    extras: Vec<ExtraField>,
}

/// An extra column of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraField {
    /// Its name in the query.
    pub name: String,
    /// The type of its values.
    pub dtype: ElementType,
    /// Where in the row it lies, in bytes.
    pub offset: usize,
}

/// The types of single values in rows and batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ElementType {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Float16,
    Float32,
    Float64,
}

impl RowLayout {
    /// A row with these extra columns, in the order in which they were asked for.
    pub(super) fn new(extras: Vec<(String, ElementType)>) -> RowLayout {
        let mut extras: Vec<ExtraField> =
            extras.into_iter().map(|(name, dtype)| ExtraField { name, dtype, offset: 0 }).collect();
        let mut by_width: Vec<&mut ExtraField> = extras.iter_mut().collect();
        by_width.sort_by_key(|extra| std::cmp::Reverse(extra.dtype.width()));
        let mut offset = STEP_SIZE;
        for extra in by_width {
            extra.offset = offset;
            offset += extra.dtype.width();
        }
        RowLayout { stride: offset.next_multiple_of(8), extras }
    }

    /// The size of a row in bytes, a multiple of 8.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The extra columns, in the order in which they were asked for.
    #[must_use]
    pub fn extras(&self) -> &[ExtraField] {
        &self.extras
    }

    /// The fields of NumPy's structured type of a row: name, type, number of values, offset in bytes.
    #[must_use = "an iterator does nothing by itself"]
    pub fn numpy_fields(&self) -> impl Iterator<Item = (&str, &'static str, usize, usize)> {
        let step = FIELDS.iter().map(|field| (field.name, field.numpy, field.values, field.offset));
        let extras = self.extras.iter().map(|extra| (extra.name.as_str(), extra.dtype.numpy(), 1, extra.offset));
        step.chain(extras)
    }
}

impl ElementType {
    /// The type of an extra column of this Arrow type.
    pub(super) fn of_arrow(name: &str, dtype: &DataType) -> Result<ElementType> {
        Ok(match dtype {
            DataType::Boolean => ElementType::Bool,
            DataType::Int8 => ElementType::Int8,
            DataType::Int16 => ElementType::Int16,
            DataType::Int32 => ElementType::Int32,
            DataType::Int64 => ElementType::Int64,
            DataType::UInt8 => ElementType::UInt8,
            DataType::UInt16 => ElementType::UInt16,
            DataType::UInt32 => ElementType::UInt32,
            DataType::UInt64 => ElementType::UInt64,
            DataType::Float16 => ElementType::Float16,
            DataType::Float32 => ElementType::Float32,
            DataType::Float64 => ElementType::Float64,
            other => {
                return Err(Error::from(ErrorKind::Column {
                    column: name.into(),
                    row: None,
                    expected: "a boolean, an integer or a float as an extra column (CAST it in the query)".into(),
                    found: other.to_string(),
                }));
            }
        })
    }

    /// The Arrow type.
    #[must_use]
    pub fn arrow(self) -> DataType {
        match self {
            ElementType::Bool => DataType::Boolean,
            ElementType::Int8 => DataType::Int8,
            ElementType::Int16 => DataType::Int16,
            ElementType::Int32 => DataType::Int32,
            ElementType::Int64 => DataType::Int64,
            ElementType::UInt8 => DataType::UInt8,
            ElementType::UInt16 => DataType::UInt16,
            ElementType::UInt32 => DataType::UInt32,
            ElementType::UInt64 => DataType::UInt64,
            ElementType::Float16 => DataType::Float16,
            ElementType::Float32 => DataType::Float32,
            ElementType::Float64 => DataType::Float64,
        }
    }

    /// The size of a value in bytes.
    #[must_use]
    pub const fn width(self) -> usize {
        match self {
            ElementType::Bool | ElementType::Int8 | ElementType::UInt8 => 1,
            ElementType::Int16 | ElementType::UInt16 | ElementType::Float16 => 2,
            ElementType::Int32 | ElementType::UInt32 | ElementType::Float32 => 4,
            ElementType::Int64 | ElementType::UInt64 | ElementType::Float64 => 8,
        }
    }

    /// NumPy's name of the type, `"<u4"` for example.
    #[must_use]
    pub const fn numpy(self) -> &'static str {
        match self {
            ElementType::Bool => "|b1",
            ElementType::Int8 => "|i1",
            ElementType::Int16 => "<i2",
            ElementType::Int32 => "<i4",
            ElementType::Int64 => "<i8",
            ElementType::UInt8 => "|u1",
            ElementType::UInt16 => "<u2",
            ElementType::UInt32 => "<u4",
            ElementType::UInt64 => "<u8",
            ElementType::Float16 => "<f2",
            ElementType::Float32 => "<f4",
            ElementType::Float64 => "<f8",
        }
    }
}
