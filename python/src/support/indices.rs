//! Row indices and run ids from Python.

use super::integers::{exact_integer, shown};
use super::numpy::{strided_buffer, type_and_shape};
use crate::error::{OrRaise, raised};
use a2store::error::ErrorKind;
use a2store::system::machine::{filled, reserve};
use pyo3::buffer::Element;
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::fmt::Display;

/// Converts any iterable of integers to run ids.
pub(crate) fn run_ids_from(py: Python<'_>, ids: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    let refuse = |id: &dyn Display| PyValueError::new_err(format!("run_ids: expected 0..=4294967295, found {id}"));
    if let Some(ids) = words::<u64>(py, ids) {
        return ids?.into_iter().map(|id| u32::try_from(id).map_err(|_| refuse(&id))).collect();
    }
    let mut out = Vec::new();
    let wrong = |found: &Bound<'_, PyAny>| PyTypeError::new_err(format!("run_ids: expected integers, found {found}"));
    for id in ids.try_iter().map_err(|_| wrong(ids))? {
        let id = id?;
        let integer = exact_integer(&id).ok_or_else(|| wrong(&id))?;
        reserve(&mut out, 1).or_raise()?;
        out.push(u32::try_from(integer).map_err(|_| refuse(&id))?);
    }
    Ok(out)
}

/// Converts one index of a row; a negative one counts from the end.
fn row(index: i128, len: u64) -> PyResult<u64> {
    let row = if index < 0 { index + i128::from(len) } else { index };
    let outside = || raised(ErrorKind::IndexOutOfBounds { index, len }.into());
    u64::try_from(row).ok().filter(|row| *row < len).ok_or_else(outside)
}

/// Converts a one-dimensional sequence of integers to indices of rows. Negative ones count from the end.
pub(crate) fn row_indices(py: Python<'_>, indices: &Bound<'_, PyAny>, len: u64) -> PyResult<Vec<u64>> {
    // Arrays of 64-bit integers are read without a conversion.
    if let Some(signed) = words::<i64>(py, indices) {
        let mut signed = signed?;
        // Usually no index is negative. The compiler vectorizes this check.
        if signed.iter().fold(0, |signs, index| signs | index) < 0 {
            for index in signed.iter_mut().filter(|index| **index < 0) {
                // No table has 2^63 rows.
                *index = row((*index).into(), len)? as i64;
            }
        }
        return Ok(bytemuck::cast_vec(signed));
    }
    if let Some(unsigned) = words::<u64>(py, indices) {
        return unsigned;
    }
    let array = py.import("numpy")?.call_method1("asarray", (indices,))?;
    let (kind, shape) = type_and_shape(&array)?;
    if shape.len() != 1 {
        return Err(PyValueError::new_err("indices: expected one dimension"));
    }
    let dtype = array.getattr("dtype")?;
    let wrong = || PyTypeError::new_err(format!("indices: expected integers, found {dtype}"));
    match kind.as_str() {
        "i" | "u" => row_indices(py, &array.call_method1("astype", (format!("{kind}8"),))?, len),
        "b" if shape != [0] => Err(wrong()),
        // NumPy has no type for some integers, or for their mixture.
        _ => {
            let integers = indices.try_iter()?.map(|index| exact_integer(&index?).ok_or_else(wrong));
            let integers = integers.collect::<PyResult<Vec<i128>>>()?;
            integers.into_iter().map(|index| row(index, len)).collect()
        }
    }
}

/// Returns the elements of a one-dimensional buffer of this type.
fn words<T: Element + Default>(py: Python<'_>, array: &Bound<'_, PyAny>) -> Option<PyResult<Vec<T>>> {
    let buffer = strided_buffer::<T>(array, &[None])?;
    // An array with stride 0 can have more elements than memory can hold.
    let words = filled(buffer.item_count(), T::default()).or_raise();
    Some(words.and_then(|mut words| buffer.copy_to_slice(py, &mut words).map(|()| words)))
}

/// Returns the place of an index; a negative one counts from the end. `list` and `items` describe the list in errors.
pub(crate) fn place(index: i128, len: usize, (list, items): (&str, &str)) -> PyResult<usize> {
    let place = if index < 0 { index.saturating_add(len as i128) } else { index };
    let outside = || {
        let index = shown(index);
        PyIndexError::new_err(format!("index {index} is out of bounds for a {list} of {len} {items}"))
    };
    usize::try_from(place).ok().filter(|&place| place < len).ok_or_else(outside)
}
