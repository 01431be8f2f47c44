//! Integer arguments.
//!
//! Entry points: `int` and `optional_int`, then `within`. Invariant: an integer of any size that is out of range raises
//! `ValueError`, and anything else, even a bool, raises `TypeError`. Both name the argument.
//!
//! pyo3 raises `OverflowError` for a large integer, and adds the argument's name to errors only as a note. So functions
//! extract an i128 that cannot fail and check it together with the name. It must be an i128, because the defaults in
//! signatures are literals. Values below `LEAST` stand for what is not an integer.

use crate::error::Error;
use crate::workers::MAX_WORKERS;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBool;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};

/// The least integer that is represented by itself. Smaller ones become `LEAST`, which no range includes, and those
/// above 127 bits `i128::MAX`.
const LEAST: i128 = -(1 << 126);

/// The names of types that are no integers; `i128::MIN + k` stands for a value of the type `k`.
static OTHER_TYPES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Extracts an integer argument, for `from_py_with`.
pub(super) fn int(value: &Bound<'_, PyAny>) -> PyResult<i128> {
    if let Some(integer) = exact_integer(value) {
        return integer;
    }
    let name = value.get_type().name()?.to_string();
    let mut types = OTHER_TYPES.lock().unwrap_or_else(PoisonError::into_inner);
    let place = types.iter().position(|known| *known == name).unwrap_or_else(|| {
        types.push(name);
        types.len() - 1
    });
    Ok(i128::MIN + place as i128)
}

/// Extracts an integer argument or `None`, for `from_py_with`.
pub(super) fn optional_int(value: &Bound<'_, PyAny>) -> PyResult<Option<i128>> {
    if value.is_none() { Ok(None) } else { int(value).map(Some) }
}

/// Returns an integer of Python or NumPy, and `None` for anything else. A bool is an integer in Python, but gives
/// `None` too: it is a mistake as a number, and a sequence of bools is a mask.
pub(super) fn exact_integer(value: &Bound<'_, PyAny>) -> Option<PyResult<i128>> {
    if value.is_instance_of::<PyBool>() {
        return None;
    }
    // Most integers are small, and `i64` is faster than `i128`.
    if let Ok(integer) = value.extract::<i64>() {
        return Some(Ok(integer.into()));
    }
    match value.extract::<i128>() {
        Ok(integer) => Some(Ok(integer.max(LEAST))),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
            Some(value.lt(0).map(|is_negative| if is_negative { LEAST } else { i128::MAX }))
        }
        Err(_) => None,
    }
}

/// Returns the integer of an argument that `int` extracted.
pub(super) fn checked(name: &str, value: i128) -> PyResult<i128> {
    if value >= LEAST {
        return Ok(value);
    }
    let types = OTHER_TYPES.lock().unwrap_or_else(PoisonError::into_inner);
    let found = usize::try_from(value - i128::MIN).ok().and_then(|place| types.get(place));
    let found = found.map_or("another type", String::as_str);
    Err(PyTypeError::new_err(format!("{name}: expected an int, found {found}")))
}

/// Checks an integer argument, and converts it to another type.
pub(super) fn within<T>(name: &'static str, value: i128, range: RangeInclusive<T>) -> PyResult<T>
where
    T: TryFrom<i128> + PartialOrd + Display,
{
    let value = checked(name, value)?;
    match T::try_from(value) {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(Error::argument(name, format!("{}..={}", range.start(), range.end()), shown(value)).into()),
    }
}

/// Checks an optional integer argument.
pub(super) fn optional_within<T>(
    name: &'static str,
    value: Option<i128>,
    range: RangeInclusive<T>,
) -> PyResult<Option<T>>
where
    T: TryFrom<i128> + PartialOrd + Display,
{
    value.map(|value| within(name, value, range)).transpose()
}

/// Checks an integer argument that has no upper limit but its type's.
pub(super) fn at_least(min: u64, name: &'static str, value: i128) -> PyResult<u64> {
    within(name, value, min..=u64::MAX)
}

/// Checks an optional integer argument that has no upper limit but its type's.
pub(super) fn optional_at_least(min: u64, name: &'static str, value: Option<i128>) -> PyResult<Option<u64>> {
    optional_within(name, value, min..=u64::MAX)
}

/// Checks the argument `workers`.
pub(super) fn workers_from(workers: Option<i128>) -> PyResult<Option<usize>> {
    optional_within("workers", workers, 1..=MAX_WORKERS)
}

/// Returns an integer for a message.
pub(super) fn shown(value: i128) -> String {
    match value {
        i128::MAX => "an integer above 127 bits".into(),
        LEAST => "a negative integer of 127 bits or more".into(),
        value => value.to_string(),
    }
}
