//! A function that this crate adds to SQL, and its calls.

use super::arguments::{Argument, Arguments};
use crate::archive::Phases;
use crate::error::{Error, Result};
use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;

/// A function that this crate adds to SQL.
#[derive(Debug)]
#[non_exhaustive]
pub struct Function {
    /// The name in SQL.
    pub name: &'static str,
    /// The required arguments.
    pub(crate) arguments: &'static [Argument],
    /// Arguments that may follow the required ones. A call has all or none of them.
    pub(crate) optional: &'static [Argument],
    /// The meaning and range of the result, in one or two sentences.
    pub doc: &'static str,
    /// A call with SQL literals, and its value as text.
    pub example: (&'static str, &'static str),
    pub(super) returns: fn() -> DataType,
    pub(super) kernel: fn(&Arguments<'_>) -> Result<ArrayRef>,
}

impl Function {
    /// Returns the call with the names of the arguments, for example `tile(board, cell[, tile_65536_mask])`.
    #[must_use]
    pub fn signature(&self) -> String {
        let names: Vec<&str> = self.arguments.iter().map(|argument| argument.name).collect();
        let optional: String = self.optional.iter().map(|argument| format!(", {}", argument.name)).collect();
        let optional = if optional.is_empty() { optional } else { format!("[{optional}]") };
        format!("{}({}{optional})", self.name, names.join(", "))
    }

    /// Returns the type of the result.
    #[must_use]
    pub fn return_type(&self) -> DataType {
        (self.returns)()
    }

    /// Computes the result for each row of the arguments, which are arrays of equal length.
    ///
    /// Boards, moves, cells, symmetries, exponents and masks may be integers of any type, and EVs may be numbers of
    /// any type. Each argument may also be an untyped null array. `phases` are the archive's phase boundaries.
    pub(in crate::query) fn call(&self, arguments: &[ArrayRef], phases: Phases) -> Result<ArrayRef> {
        if let Some(message) = self.wrong_count(arguments.len()) {
            return Err(Error::query(message));
        }
        let arguments = Arguments::new(self.name, [self.arguments, self.optional], arguments, phases)?;
        let result = (self.kernel)(&arguments)?;
        debug_assert_eq!((result.len(), result.data_type()), (arguments.num_rows(), &self.return_type()));
        Ok(result)
    }

    /// Returns the message for a call with this number of arguments, unless a call may have it.
    pub(crate) fn wrong_count(&self, found: usize) -> Option<String> {
        let (expected, most) = (self.arguments.len(), self.arguments.len() + self.optional.len());
        if found == expected || found == most {
            return None;
        }
        let or_more = if most == expected { String::new() } else { format!(" or {most}") };
        let plural = if most == 1 { "" } else { "s" };
        Some(format!("{}: expected {expected}{or_more} argument{plural}, found {found}", self.signature()))
    }
}
