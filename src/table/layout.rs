//! The byte layout of a row: a [`Step`](crate::Step), then the extra columns, the widest first.

use super::convert::is_reserved;
use crate::error::{Error, Result};
use crate::step::{FIELDS, STEP_SIZE};
use arrow::datatypes::DataType;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The byte layout of a row.
///
/// The first 32 bytes are a [`Step`](crate::Step). Extra columns follow, ordered by width, so each is aligned
/// without gaps. The stride is the next multiple of 8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowLayout {
    stride: usize,
    extras: Vec<ExtraField>,
}

/// An extra column of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtraField {
    /// The column's name in the query.
    pub name: String,
    /// The type of the values.
    pub dtype: ElementType,
    /// The column's offset in the row, in bytes.
    pub offset: usize,
    /// The strings behind the codes, in ascending order, if the column holds categories. The codes are int16,
    /// -1 for null.
    pub categories: Option<Arc<[String]>>,
}

/// The types of single values in rows and batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
    /// The upper half of a `Float32`. Only attached columns have this type. NumPy and Arrow do not know it and
    /// see its bits as uint16.
    BFloat16,
}

impl RowLayout {
    /// Returns the layout of a row with these extra columns, in the requested order, and sets their offsets.
    pub(super) fn new(mut extras: Vec<ExtraField>) -> RowLayout {
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

    /// The extra columns, in the requested order.
    #[must_use]
    pub fn extras(&self) -> &[ExtraField] {
        &self.extras
    }

    /// Returns the extra column of this name.
    #[must_use]
    pub fn extra(&self, name: &str) -> Option<&ExtraField> {
        self.extras.iter().find(|extra| extra.name == name)
    }

    /// Whether every column is where [`RowLayout::new`] puts it. Layouts that come from outside are checked
    /// with this.
    pub(super) fn is_valid(&self) -> bool {
        let is_sound = |(k, extra): (usize, &ExtraField)| {
            let codes = extra.categories.as_ref().is_none_or(|names| {
                extra.dtype == ElementType::Int16 && names.len() <= 1 << 15 && names.is_sorted_by(|a, b| a < b)
            });
            let is_new = self.extras[..k].iter().all(|other| other.name != extra.name);
            codes && is_new && !is_reserved(&extra.name) && extra.dtype != ElementType::BFloat16
        };
        self.extras.len() < 1 << 10
            && self.extras.iter().enumerate().all(is_sound)
            && *self == RowLayout::new(self.extras.clone())
    }

    /// Returns the layout as bytes. Different layouts have different bytes.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| Error::from(std::io::Error::from(error)))
    }

    /// Sets the strings of the category columns, in the order of those columns.
    pub(super) fn with_categories(mut self, categories: Vec<Arc<[String]>>) -> RowLayout {
        let coded = self.extras.iter_mut().filter(|extra| extra.categories.is_some());
        for (extra, categories) in coded.zip(categories) {
            extra.categories = Some(categories);
        }
        self
    }

    /// The fields of a row's NumPy structured type, ordered by offset: name, type, number of values, offset in
    /// bytes.
    #[must_use = "an iterator does nothing by itself"]
    pub fn numpy_fields(&self) -> impl Iterator<Item = (&str, &'static str, usize, usize)> {
        let step = FIELDS.iter().map(|field| (field.name, field.numpy, field.values, field.offset));
        let mut extras: Vec<&ExtraField> = self.extras.iter().collect();
        // A NumPy header lists the fields by offset.
        extras.sort_by_key(|extra| extra.offset);
        let extras = extras.into_iter().map(|extra| (extra.name.as_str(), extra.dtype.numpy(), 1, extra.offset));
        step.chain(extras)
    }
}

impl ElementType {
    /// Returns the type of an extra column of this Arrow type. Category columns are handled elsewhere.
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
                let expected = "a boolean, an integer, a float or strings as an extra column (CAST it in the query)";
                return Err(Error::column(name, None, expected, other));
            }
        })
    }

    /// Returns the type of this NumPy name.
    pub(super) fn of_numpy(name: &str) -> Option<ElementType> {
        use ElementType::{Bool, Float16, Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
        let all = [Bool, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float16, Float32, Float64];
        all.into_iter().find(|dtype| dtype.numpy() == name)
    }

    /// Returns the Arrow type. For bfloat16 it is the type of the bits.
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
            ElementType::BFloat16 => DataType::UInt16,
        }
    }

    /// Returns the value at the start of `bytes` as a float, rounded if a float cannot hold it. The bytes are
    /// little-endian.
    pub(super) fn to_f64(self, bytes: &[u8]) -> f64 {
        fn read<T: bytemuck::AnyBitPattern>(bytes: &[u8]) -> T {
            bytemuck::pod_read_unaligned(&bytes[..size_of::<T>()])
        }
        match self {
            ElementType::Bool => f64::from(u8::from(bytes[0] != 0)),
            ElementType::Int8 => f64::from(read::<i8>(bytes)),
            ElementType::Int16 => f64::from(read::<i16>(bytes)),
            ElementType::Int32 => f64::from(read::<i32>(bytes)),
            ElementType::Int64 => read::<i64>(bytes) as f64,
            ElementType::UInt8 => f64::from(bytes[0]),
            ElementType::UInt16 => f64::from(read::<u16>(bytes)),
            ElementType::UInt32 => f64::from(read::<u32>(bytes)),
            ElementType::UInt64 => read::<u64>(bytes) as f64,
            ElementType::Float16 => half::f16::from_bits(read::<u16>(bytes)).to_f64(),
            ElementType::Float32 => f64::from(read::<f32>(bytes)),
            ElementType::Float64 => read::<f64>(bytes),
            ElementType::BFloat16 => half::bf16::from_bits(read::<u16>(bytes)).to_f64(),
        }
    }

    /// Returns an integer key for the value at the start of `bytes`. Keys order and distinguish all values of
    /// the type. Both zeros have one key, and all NaNs have one key.
    pub(crate) fn to_key(self, bytes: &[u8]) -> i128 {
        let bits = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..self.width()].copy_from_slice(&bytes[..self.width()]);
            u64::from_le_bytes(word)
        };
        match self {
            ElementType::Bool => i128::from(bytes[0] != 0),
            ElementType::UInt8 | ElementType::UInt16 | ElementType::UInt32 | ElementType::UInt64 => {
                i128::from(bits(bytes))
            }
            ElementType::Int8 | ElementType::Int16 | ElementType::Int32 | ElementType::Int64 => {
                let unused = 64 - 8 * self.width() as u32;
                i128::from((bits(bytes) << unused).cast_signed() >> unused)
            }
            ElementType::Float16 | ElementType::Float32 | ElementType::Float64 | ElementType::BFloat16 => {
                let value = self.to_f64(bytes);
                let value = if value.is_nan() { f64::NAN } else { value + 0.0 };
                let bits = value.to_bits().cast_signed();
                // Among negative floats, larger bits mean a smaller value, so those bits are inverted.
                i128::from(bits ^ (bits >> 63) & i64::MAX)
            }
        }
    }

    /// Returns the text of the value that has this key.
    pub(crate) fn key_name(self, key: i128) -> String {
        match self {
            ElementType::Bool => (key != 0).to_string(),
            ElementType::Float16 | ElementType::Float32 | ElementType::Float64 | ElementType::BFloat16 => {
                let bits = key as i64;
                f64::from_bits((bits ^ (bits >> 63) & i64::MAX).cast_unsigned()).to_string()
            }
            _ => key.to_string(),
        }
    }

    /// The size of a value in bytes.
    #[must_use]
    pub const fn width(self) -> usize {
        match self {
            ElementType::Bool | ElementType::Int8 | ElementType::UInt8 => 1,
            ElementType::Int16 | ElementType::UInt16 | ElementType::Float16 | ElementType::BFloat16 => 2,
            ElementType::Int32 | ElementType::UInt32 | ElementType::Float32 => 4,
            ElementType::Int64 | ElementType::UInt64 | ElementType::Float64 => 8,
        }
    }

    /// NumPy's name of the type, for example `"<u4"`. For bfloat16 it is the name of the bits' type.
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
            ElementType::BFloat16 => "<u2",
        }
    }
}
