//! Integer arguments.
//!
//! Entry point: [`Bounded`]. Invariant: an integer of any size that is out of range raises `ValueError`, and anything
//! else, even a bool, raises `TypeError`. Both name the argument.

use a2store::loader::LoaderOptions;
use a2store::system::workers::MAX_WORKERS;
use pyo3::exceptions::{PyBaseException, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyCFunction, PyDict, PyTuple};

/// An integer argument in `MIN..=MAX`.
#[derive(Clone, Copy)]
pub(crate) struct Bounded<T, const MIN: i128, const MAX: i128>(T);

/// Any integer of 64 bits.
pub(crate) type U64 = Bounded<u64, 0, { u64::MAX as i128 }>;
/// An integer of 64 bits that is at least 1.
pub(crate) type Positive = Bounded<u64, 1, { u64::MAX as i128 }>;
/// Any integer of 32 bits.
pub(crate) type U32 = Bounded<u32, 0, { u32::MAX as i128 }>;
/// Any integer of 16 bits.
pub(crate) type U16 = Bounded<u16, 0, { u16::MAX as i128 }>;
/// A search depth of the built-in player.
pub(crate) type Depth = Bounded<u8, 0, 3>;
/// A number of games that are stepped together.
pub(crate) type NumEnvs = Bounded<usize, 1, { 1 << 24 }>;
/// A number of threads.
pub(crate) type Workers = Bounded<usize, 1, { MAX_WORKERS as i128 }>;
/// A number of rows in a batch of a loader.
pub(crate) type BatchSize = Bounded<usize, 1, { LoaderOptions::MAX_BATCH_SIZE as i128 }>;
/// A number of processes that share the rows of a loader.
pub(crate) type WorldSize = Bounded<usize, 1, { LoaderOptions::MAX_WORLD_SIZE as i128 }>;
/// The number of a process, which the loader compares with the number of processes.
pub(crate) type Rank = Bounded<usize, 0, { LoaderOptions::MAX_WORLD_SIZE as i128 - 1 }>;
/// A number of batches that a loader prepares ahead.
pub(crate) type Prefetch = Bounded<usize, 0, { LoaderOptions::MAX_PREFETCH as i128 }>;
/// Any integer, for indices that may count from the end.
pub(crate) type AnyInt = Bounded<i128, { i128::MIN }, { i128::MAX }>;
/// A number of rows in an epoch.
pub(crate) type NumSamples = Bounded<u64, 0, { LoaderOptions::MAX_NUM_SAMPLES as i128 }>;

impl<T: TryFrom<i128>, const MIN: i128, const MAX: i128> Bounded<T, MIN, MAX> {
    pub(crate) fn get(self) -> T {
        self.0
    }

    /// Extracts an argument with a default, for `from_py_with`. The default must be a literal of a type of Rust;
    /// otherwise `help` shows it as `...`.
    pub(crate) fn int(value: &Bound<'_, PyAny>) -> PyResult<T> {
        value.extract::<Self>().map(Self::get)
    }

    /// Converts a value that is a part of the argument `name`.
    pub(crate) fn part(name: &str, value: &Bound<'_, PyAny>) -> PyResult<T> {
        Self::of(value).map_err(|error| match add_name(error.value(value.py()), name) {
            Ok(()) => error,
            Err(other) => other,
        })
    }

    /// Converts a value. The errors do not name the argument.
    fn of(value: &Bound<'_, PyAny>) -> PyResult<T> {
        let Some(integer) = exact_integer(value) else {
            let found = value.get_type().name()?;
            return Err(PyTypeError::new_err(format!("expected an int, found {found}")));
        };
        let inside = Some(integer).filter(|integer| (MIN..=MAX).contains(integer));
        let inside = inside.and_then(|integer| T::try_from(integer).ok());
        inside.ok_or_else(|| PyValueError::new_err(format!("expected {MIN}..={MAX}, found {}", shown(integer))))
    }
}

impl<'py, T: TryFrom<i128>, const MIN: i128, const MAX: i128> FromPyObject<'_, 'py> for Bounded<T, MIN, MAX> {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Self::of(&value).map(Bounded).map_err(|error| to_be_named(value.py(), error))
    }
}

/// Puts the argument's name before the message of an error.
fn add_name(error: &Bound<'_, PyBaseException>, name: &str) -> PyResult<()> {
    error.setattr("args", (format!("{name}: {error}"),))
}

/// Returns an error of an extractor, which gets the argument's name from pyo3.
///
/// Pyo3 does not tell an extractor the name. It only calls `add_note("while processing 'seed'")` on the exception; see
/// `argument_extraction_error` in its sources. So the exception gets an attribute `add_note` that adds the name to the
/// message instead, and removes itself.
fn to_be_named(py: Python<'_>, error: PyErr) -> PyErr {
    let exception = error.value(py).clone().unbind();
    let add_note = move |args: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| -> PyResult<()> {
        let exception = exception.bind(args.py());
        exception.delattr("add_note")?;
        let note: String = args.get_item(0)?.extract()?;
        // The name of an argument that is a word of Rust is `r#move`.
        add_name(exception, note.split('\'').nth(1).unwrap_or(&note).trim_start_matches("r#"))
    };
    let add_note = PyCFunction::new_closure(py, None, None, add_note);
    // Without the attribute, the exception has pyo3's note.
    let _ = add_note.and_then(|add_note| error.value(py).setattr("add_note", add_note));
    error
}

/// Returns an integer of Python or NumPy, and `None` for anything else. A bool is an integer in Python, but gives
/// `None` too: it is a mistake as a number, and a sequence of bools is a mask. An integer beyond 128 bits becomes the
/// nearest one.
pub(crate) fn exact_integer(value: &Bound<'_, PyAny>) -> Option<i128> {
    if value.is_instance_of::<PyBool>() {
        return None;
    }
    // Most integers are small, and `i64` is faster than `i128`.
    if let Ok(integer) = value.extract::<i64>() {
        return Some(integer.into());
    }
    match value.extract::<i128>() {
        Ok(integer) => Some(integer),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
            Some(if value.lt(0).unwrap_or(false) { i128::MIN } else { i128::MAX })
        }
        Err(_) => None,
    }
}

/// Returns an integer for a message.
pub(crate) fn shown(value: i128) -> String {
    match value {
        i128::MAX => "an integer above 127 bits".into(),
        i128::MIN => "a negative integer above 127 bits".into(),
        value => value.to_string(),
    }
}
