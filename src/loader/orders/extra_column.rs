//! Reading an extra column of a table, for weights or strata.

use crate::error::{Error, Result};
use crate::system::cancellation::CancellationToken;
use crate::table::{ExtraField, StepTable};

/// Returns the extra column of this name.
///
/// # Errors
/// [`ErrorKind::Argument`](crate::ErrorKind::Argument) with the argument's name if there is no such column, or if it
/// has several values per row.
pub(in crate::loader) fn extra_column<'a>(
    table: &'a StepTable,
    argument: &'static str,
    column: &str,
) -> Result<&'a ExtraField> {
    if let Some(extra) = table.layout().extra(column) {
        if extra.values_per_row > 1 {
            let found = format!("{column} with {} values per row", extra.values_per_row);
            return Err(Error::argument(argument, "a column of one value per row", found));
        }
        return Ok(extra);
    }
    let names: Vec<&str> = table.layout().extras().iter().map(|extra| extra.name.as_str()).collect();
    let expected = match names.as_slice() {
        [] => "an extra column, and the table has none".to_owned(),
        names => format!("an extra column of the table: {}", names.join(", ")),
    };
    Err(Error::argument(argument, expected, column))
}

/// Checks for cancellation every million rows.
pub(in crate::loader) fn check_at(row: u64, cancel: &CancellationToken) -> Result<()> {
    if row > 0 && row.is_multiple_of(1 << 20) { cancel.check() } else { Ok(()) }
}
