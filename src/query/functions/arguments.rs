//! Arguments of functions, and the checked conversion of arrays of any numeric type to slices.
//!
//! A literal in SQL is an int64, and a column of moves is uint8. A cast between them would turn values out of
//! range into nulls, or into an error that does not name the function and the argument. So this module converts
//! them.

use crate::archive::Phases;
use crate::board::{Board, WideBoard};
use crate::error::{Error, Result};
use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Float32Array, PrimitiveArray, downcast_integer_array,
};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{ArrowNativeType, DataType, UInt64Type};
use std::fmt;
use std::sync::Arc;

/// An argument of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    pub(crate) name: &'static str,
    /// The kind, which determines the valid values.
    pub(crate) kind: ArgumentKind,
}

/// The kind of an [`Argument`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentKind {
    /// A board of sixteen exponents; any uint64 is valid.
    Board,
    /// A move, a cell, a symmetry or an exponent: a number from 0 to this maximum.
    Number(u8),
    /// The EV of a branch, any number; null or NaN for an absent branch.
    Ev,
    /// The cells of a board that hold 65,536, as a mask 0..=65535: bit `i` for cell `i`. Null stands for 0.
    Mask,
    /// A boolean. Null stands for false.
    Flag,
}

impl ArgumentKind {
    /// Returns the natural type. Functions accept other types too, so no cast is needed.
    pub(crate) fn data_type(self) -> DataType {
        match self {
            ArgumentKind::Board => DataType::UInt64,
            ArgumentKind::Ev => DataType::Float32,
            ArgumentKind::Mask => DataType::UInt16,
            ArgumentKind::Flag => DataType::Boolean,
            ArgumentKind::Number(_) => DataType::UInt8,
        }
    }
}

/// The arguments of a call. All arrays have the same length.
pub(super) struct Arguments<'a> {
    function: &'static str,
    required: &'static [Argument],
    optional: &'static [Argument],
    arrays: &'a [ArrayRef],
    pub(super) phases: Phases,
}

impl<'a> Arguments<'a> {
    /// Checks that all arrays have the same length. The caller has checked their number.
    pub(super) fn new(
        function: &'static str,
        [required, optional]: [&'static [Argument]; 2],
        arrays: &'a [ArrayRef],
        phases: Phases,
    ) -> Result<Arguments<'a>> {
        let arguments = Arguments { function, required, optional, arrays, phases };
        for (index, array) in arrays.iter().enumerate() {
            if array.len() != arguments.num_rows() {
                let expected = format!("{} rows as in {}", arguments.num_rows(), required[0].name);
                return Err(arguments.error(index, expected, array.len()));
            }
        }
        Ok(arguments)
    }

    pub(super) fn num_rows(&self) -> usize {
        self.arrays.first().map_or(0, Array::len)
    }

    /// Returns the index of the first mask, if the call has one.
    pub(super) fn first_mask(&self) -> Option<usize> {
        (0..self.arrays.len()).find(|&index| self.kind(index) == Some(ArgumentKind::Mask))
    }

    /// Returns whether the call has optional arguments.
    pub(super) fn has_optional(&self) -> bool {
        self.arrays.len() > self.required.len()
    }

    fn argument(&self, index: usize) -> Option<&'static Argument> {
        self.required.iter().chain(self.optional).nth(index)
    }

    /// Returns the kind of an argument.
    pub(super) fn kind(&self, index: usize) -> Option<ArgumentKind> {
        self.argument(index).map(|argument| argument.kind)
    }

    /// Returns the rows in which a required argument other than an EV or a mask is null.
    pub(super) fn nulls(&self) -> Option<NullBuffer> {
        let arguments = self.required.iter().zip(self.arrays);
        let counts = |kind| !matches!(kind, ArgumentKind::Ev | ArgumentKind::Mask);
        arguments.filter(|(argument, _)| counts(argument.kind)).fold(None, |nulls, (_, array)| {
            NullBuffer::union(nulls.as_ref(), array.logical_nulls().as_ref()).filter(|nulls| nulls.null_count() > 0)
        })
    }

    /// Returns an argument of boards. Null slots hold any board.
    pub(super) fn boards(&self, index: usize) -> Result<ScalarBuffer<u64>> {
        let array = &self.arrays[index];
        if let Some(array) = array.as_primitive_opt::<UInt64Type>() {
            return Ok(array.values().clone());
        }
        let values = self.integers(index, i64::MAX.cast_unsigned(), |found| {
            ("a uint64, as a board uses the top bit".to_owned(), format!("{found} ({})", array.data_type()))
        })?;
        Ok(values.into())
    }

    /// Returns an argument of moves, cells, symmetries or exponents. Null slots are in range too.
    pub(super) fn numbers(&self, index: usize) -> Result<ScalarBuffer<u8>> {
        let limit = match self.kind(index) {
            Some(ArgumentKind::Number(limit)) => limit,
            _ => u8::MAX,
        };
        let bits = u8::MAX >> limit.leading_zeros();
        let values = self.integers(index, limit.into(), |found| (format!("0..={limit}"), found.to_owned()))?;
        // This changes only null slots.
        Ok(values.into_iter().map(|value| value as u8 & bits).collect())
    }

    /// Returns an argument of masks. Null slots are 0.
    pub(super) fn masks(&self, index: usize) -> Result<ScalarBuffer<u16>> {
        let values = self.integers(index, u16::MAX.into(), |found| ("0..=65535".to_owned(), found.to_owned()))?;
        let valid = self.arrays[index].logical_nulls();
        let is_valid = |row: usize| valid.as_ref().is_none_or(|valid| valid.is_valid(row));
        let mask = |(row, value): (usize, u64)| if is_valid(row) { value as u16 } else { 0 };
        Ok(values.into_iter().enumerate().map(mask).collect())
    }

    /// Returns an argument of integers, with their signs extended to 64 bits. Null slots hold any value. Other values
    /// above the limit are an error, for which `wrong` makes the expected and the found value.
    fn integers(&self, index: usize, limit: u64, wrong: impl Fn(&str) -> (String, String)) -> Result<Vec<u64>> {
        let array = &self.arrays[index];
        downcast_integer_array! {
            array => {
                if let Some(found) = first_bad(array, |value| extended(value) > limit) {
                    let (expected, found) = wrong(&found.to_string());
                    return Err(self.error(index, expected, found));
                }
                Ok(array.values().iter().map(|value| extended(*value)).collect())
            }
            DataType::Null => Ok(vec![0; array.len()]),
            other => Err(self.error(index, "an integer", other)),
        }
    }

    /// Returns the rows in which a flag is true.
    pub(super) fn flagged(&self, index: usize) -> Result<Vec<usize>> {
        let array = &self.arrays[index];
        match array.data_type() {
            DataType::Boolean => {
                let flags = array.as_boolean();
                Ok(flags.values().set_indices().filter(|&row| flags.is_valid(row)).collect())
            }
            DataType::Null => Ok(Vec::new()),
            other => Err(self.error(index, "a boolean", other)),
        }
    }

    /// Returns an argument of EVs.
    pub(super) fn evs(&self, index: usize) -> Result<Float32Array> {
        let array = &self.arrays[index];
        match array.data_type() {
            dtype if dtype.is_numeric() || dtype.is_null() => {
                Ok(cast(array, &DataType::Float32).map_err(arrow_error)?.as_primitive().clone())
            }
            other => Err(self.error(index, "a number", other)),
        }
    }

    /// Returns a board with its mask, or the error for a mask that does not fit it.
    pub(super) fn wide_board(&self, index: usize, board: u64, mask: u16) -> Result<WideBoard> {
        let wrong = |_| self.error(index, "only cells with the exponent 15", format_args!("the mask {mask}"));
        WideBoard::new(Board(board), mask).map_err(wrong)
    }

    fn error(&self, index: usize, expected: impl fmt::Display, found: impl fmt::Display) -> Error {
        let (function, argument) = (self.function, self.argument(index).map_or("argument", |a| a.name));
        Error::query(format!("{function}: {argument}: expected {expected}, found {found}"))
    }
}

/// Returns the first value that is bad and not null. A loop without branches first checks whether any value is
/// bad, because bad values are rare.
fn first_bad<T: ArrowPrimitiveType>(
    array: &PrimitiveArray<T>,
    is_bad: impl Fn(T::Native) -> bool,
) -> Option<T::Native> {
    if !array.values().iter().fold(false, |any, &value| any | is_bad(value)) {
        return None;
    }
    array.iter().flatten().find(|&value| is_bad(value))
}

/// Extends the sign to 64 bits, so that a negative number is larger than every limit.
#[inline(always)]
fn extended(value: impl ArrowNativeType) -> u64 {
    value.as_usize() as u64
}

/// Converts an error that should not occur, because the arrays are built to match.
#[allow(clippy::needless_pass_by_value, reason = "what `map_err` asks for")]
pub(super) fn arrow_error(error: arrow::error::ArrowError) -> Error {
    Error::query(error.to_string())
}

pub(super) fn array<T: ArrowPrimitiveType>(values: Vec<T::Native>, nulls: Option<NullBuffer>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(values.into(), nulls))
}
