//! The functions that this crate adds to SQL, over boards, moves and the EVs of a step.
//!
//! [`functions`] lists them. They compute on Arrow arrays without DataFusion, so Rust callers get the same
//! results as SQL.
//!
//! Invariants:
//!
//! * A null argument gives a null result. Only a null EV does not: it means an absent branch.
//! * Values under nulls have no effect.
//! * A value out of range is an error that names the function, the argument, the range and the value.
//! * The result has one row per row of the arguments, and the type [`Function::return_type`].
//!
//! | file | owns |
//! | --- | --- |
//! | `list.rs` | the functions: names, arguments, documentation, examples |
//! | `arguments.rs` | arrays of any numeric type → checked slices |
//! | `loops.rs` | a value for each row, for the registers that there are |
//! | `kernels.rs` | functions of boards that are numbers: sums, masks, slides, symmetries |
//! | `shaped.rs` | functions of boards that are more than a number: lists, structs, text |
//! | `features.rs` | monotonicity and smoothness, by tables over rows |
//! | `evs.rs` | functions of the EVs of the four branches |

mod arguments;
mod evs;
mod features;
mod kernels;
mod list;
mod loops;
mod shaped;
#[cfg(test)]
mod tests;

#[cfg(feature = "python")]
pub(crate) use features::build_tables;
pub use list::functions;

use crate::archive::Phases;
use crate::error::{Error, Result};
use arguments::Arguments;
pub(super) use arguments::wrong_count;
use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, Field, Fields};
use std::sync::Arc;

/// A function that this crate adds to SQL.
///
/// ```
/// use a2store::{Board, Phases, functions};
/// use arrow::array::{ArrayRef, AsArray, UInt64Array};
/// use arrow::datatypes::UInt32Type;
/// use std::sync::Arc;
///
/// let max_tile = functions().iter().find(|function| function.name == "max_tile").ok_or("no such function")?;
/// let board: Board = "2 2 . . / . 4 4 . / . . . . / . . . .".parse()?;
/// let boards: ArrayRef = Arc::new(UInt64Array::from(vec![board.0, 0]));
/// let tiles = max_tile.call(&[boards], Phases::default())?;
/// assert_eq!(tiles.as_primitive::<UInt32Type>().values(), &[4, 0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Function {
    /// The name in SQL.
    pub name: &'static str,
    /// The arguments. All are required.
    pub arguments: &'static [Argument],
    /// The meaning and range of the result, in one or two sentences.
    pub doc: &'static str,
    /// A call with SQL literals, and its value as text.
    pub example: (&'static str, &'static str),
    returns: Returns,
    kernel: Kernel,
}

/// An argument of a [`Function`].
///
/// ```
/// let tile = a2store::functions().iter().find(|function| function.name == "tile").unwrap();
/// let cell = tile.arguments[1];
/// assert_eq!((cell.name, cell.kind), ("cell", a2store::ArgumentKind::Cell));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Argument {
    /// The name.
    pub name: &'static str,
    /// The kind, which determines the valid values.
    pub kind: ArgumentKind,
}

/// The kind of an [`Argument`].
///
/// ```
/// use a2store::{ArgumentKind, functions};
/// let of_values = functions().iter().filter(|f| f.arguments.iter().any(|argument| argument.kind == ArgumentKind::Ev));
/// assert!(of_values.map(|function| function.name).any(|name| name == "ev_gap"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ArgumentKind {
    /// A board of sixteen exponents; any uint64 is valid.
    Board,
    /// A move, 0..=3: up, down, left, right.
    Move,
    /// A cell, 0..=15 in row-major order.
    Cell,
    /// A [`Symmetry`](crate::Symmetry), 0..=7.
    Symmetry,
    /// An exponent, 0..=15.
    Exponent,
    /// The EV of a branch, any number; null or NaN for an absent branch.
    Ev,
}

type Kernel = fn(&Arguments<'_>) -> Result<ArrayRef>;

/// The type of a function's result.
#[derive(Clone, Copy, Debug)]
enum Returns {
    Bool,
    UInt8,
    UInt32,
    UInt64,
    Int32,
    Float32,
    Text,
    Exps,
    Spawn,
}

impl Function {
    /// Returns the call with the names of the arguments, for example `tile(board, cell)`.
    #[must_use]
    pub fn signature(&self) -> String {
        let names: Vec<&str> = self.arguments.iter().map(|argument| argument.name).collect();
        format!("{}({})", self.name, names.join(", "))
    }

    /// Returns the natural types of the arguments. [`call`](Function::call) accepts other types too, so no cast
    /// is needed.
    #[must_use]
    pub fn argument_types(&self) -> Vec<DataType> {
        self.arguments.iter().map(|argument| argument.kind.data_type()).collect()
    }

    /// Returns the type of the result.
    #[must_use]
    pub fn return_type(&self) -> DataType {
        match self.returns {
            Returns::Bool => DataType::Boolean,
            Returns::UInt8 => DataType::UInt8,
            Returns::UInt32 => DataType::UInt32,
            Returns::UInt64 => DataType::UInt64,
            Returns::Int32 => DataType::Int32,
            Returns::Float32 => DataType::Float32,
            Returns::Text => DataType::Utf8,
            Returns::Exps => DataType::FixedSizeList(exps_field(), 16),
            Returns::Spawn => DataType::Struct(spawn_fields()),
        }
    }

    /// Computes the result for each row of the arguments, which are arrays of equal length.
    ///
    /// Boards, moves, cells, symmetries and exponents may be integers of any type, and EVs may be numbers of
    /// any type. Each argument may also be an untyped null array. `phases` are the archive's phase boundaries.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) for a wrong number of arguments, for arrays of different
    /// lengths, and for types and values that an argument does not accept.
    pub fn call(&self, arguments: &[ArrayRef], phases: Phases) -> Result<ArrayRef> {
        let arguments = Arguments::new(self, arguments, phases)?;
        let result = (self.kernel)(&arguments)?;
        debug_assert_eq!((result.len(), result.data_type()), (arguments.num_rows(), &self.return_type()));
        Ok(result)
    }
}

impl ArgumentKind {
    fn data_type(self) -> DataType {
        match self {
            ArgumentKind::Board => DataType::UInt64,
            ArgumentKind::Ev => DataType::Float32,
            ArgumentKind::Move | ArgumentKind::Cell | ArgumentKind::Symmetry | ArgumentKind::Exponent => {
                DataType::UInt8
            }
        }
    }

    /// Returns the largest value of a kind that is a small number. It is one less than a power of two.
    fn limit(self) -> Option<u8> {
        match self {
            ArgumentKind::Move => Some(3),
            ArgumentKind::Symmetry => Some(7),
            ArgumentKind::Cell | ArgumentKind::Exponent => Some(15),
            ArgumentKind::Board | ArgumentKind::Ev => None,
        }
    }
}

fn exps_field() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::UInt8, false))
}

/// The fields of a spawn. They are nullable, because a reader that extracts a field may ignore the nulls of the
/// struct.
fn spawn_fields() -> Fields {
    Fields::from(vec![Field::new("cell", DataType::UInt8, true), Field::new("tile", DataType::UInt32, true)])
}

/// Converts an error that should not occur, because the arrays are built to match.
#[allow(clippy::needless_pass_by_value, reason = "what `map_err` asks for")]
fn arrow_error(error: arrow::error::ArrowError) -> Error {
    Error::query(error.to_string())
}
