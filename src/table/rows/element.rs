//! The types of single values in rows and batches, and their names in NumPy and Arrow.

use crate::error::{Error, Result};
use arrow::datatypes::DataType;
use serde::{Deserialize, Serialize};

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
    /// bfloat16: the upper half of a `Float32`. Only attached columns have this type. NumPy and Arrow lack it and get
    /// its bits as uint16.
    BFloat16,
}

impl ElementType {
    /// The types that NumPy and Arrow have.
    const OF_NUMPY: [ElementType; 12] = {
        use ElementType::{Bool, Float16, Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
        [Bool, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float16, Float32, Float64]
    };

    /// Returns the type of the values of an extra column of this Arrow type, and their number per row. Category columns
    /// are handled elsewhere.
    pub(in crate::table) fn of_arrow(name: &str, dtype: &DataType) -> Result<(ElementType, usize)> {
        let (item, values_per_row) = match dtype {
            DataType::FixedSizeList(item, len @ 1..) => (item.data_type(), *len as usize),
            other => (other, 1),
        };
        let element = ElementType::OF_NUMPY.into_iter().find(|element| element.arrow() == *item);
        let element = element.ok_or_else(|| {
            let expected = "booleans, integers, floats, strings, or fixed-size lists of numbers or booleans, as an \
                            extra column (CAST it in the query)";
            Error::column(name, None, expected, dtype)
        })?;
        Ok((element, values_per_row))
    }

    /// Returns the type of this NumPy name.
    #[must_use]
    pub fn of_numpy(name: &str) -> Option<ElementType> {
        ElementType::OF_NUMPY.into_iter().find(|dtype| dtype.numpy() == name)
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
    pub(crate) fn to_f64(self, bytes: &[u8]) -> f64 {
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

    /// Returns the size of a value in bytes.
    #[must_use]
    pub const fn width(self) -> usize {
        // The size is the last character of NumPy's name.
        (self.numpy().as_bytes()[2] - b'0') as usize
    }

    /// Returns NumPy's name of the type, for example `"<u4"`. For bfloat16 it is the name of the bits' type.
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
