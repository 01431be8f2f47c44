//! Row indices and run ids from Python.

use super::integers::{exact_integer, shown};
use crate::error::{OrRaise, Raised};
use a2store::error::{Error, ErrorKind};
use a2store::system::machine::{filled, reserve};
use pyo3::buffer::{Element, PyBuffer, ReadOnlyCell};
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

/// Converts one index of a row; a negative one counts from the end. `None` if it is no integer.
pub(crate) fn row_index(index: &Bound<'_, PyAny>, len: u64) -> Option<PyResult<u64>> {
    let row = |index: i128| {
        let row = if index < 0 { index + i128::from(len) } else { index };
        u64::try_from(row).ok().filter(|row| *row < len).ok_or_else(|| out_of_bounds(index, len))
    };
    Some(row(exact_integer(index)?))
}

/// Converts a one-dimensional sequence of integers to indices of rows. Negative ones count from the end.
pub(crate) fn row_indices(py: Python<'_>, indices: &Bound<'_, PyAny>, len: u64) -> PyResult<Vec<u64>> {
    let to_rows = |mut indices: Vec<i64>| {
        // Usually no index is negative. The compiler vectorizes this check.
        if indices.iter().fold(0, |signs, index| signs | index) >= 0 {
            return Ok(bytemuck::cast_vec(indices));
        }
        // No table has 2^63 rows.
        let from_end = len as i64;
        for index in indices.iter_mut().filter(|index| **index < 0) {
            if *index < -from_end {
                return Err(out_of_bounds((*index).into(), len));
            }
            *index += from_end;
        }
        Ok(bytemuck::cast_vec(indices))
    };
    // Arrays of 64-bit integers are read without a conversion.
    if let Some(indices) = words::<i64>(py, indices) {
        return to_rows(indices?);
    }
    if let Some(indices) = words::<u64>(py, indices) {
        return indices;
    }
    let array = py.import("numpy")?.call_method1("asarray", (indices,))?;
    if array.getattr("ndim")?.extract::<usize>()? != 1 {
        return Err(PyValueError::new_err("indices: expected one dimension"));
    }
    let kind: String = array.getattr("dtype")?.getattr("kind")?.extract()?;
    let other = || {
        let dtype = array.getattr("dtype")?;
        Err(PyTypeError::new_err(format!("indices: expected integers, found {dtype}")))
    };
    match kind.as_str() {
        "u" => words::<u64>(py, &array.call_method1("astype", ("uint64",))?).unwrap_or_else(other),
        "i" => words::<i64>(py, &array.call_method1("astype", ("int64",))?).map_or_else(other, |found| to_rows(found?)),
        _ if array.len()? == 0 => Ok(Vec::new()),
        // NumPy has no type for some integers, or for their mixture. They are still integers, and out of bounds.
        "O" | "f" => {
            let mut first_outside = None;
            for index in indices.try_iter()? {
                match exact_integer(&index?) {
                    None => return other(),
                    Some(index) => {
                        if !(-i128::from(len)..i128::from(len)).contains(&index) {
                            first_outside.get_or_insert(index);
                        }
                    }
                }
            }
            first_outside.map_or_else(other, |index| Err(out_of_bounds(index, len)))
        }
        _ => other(),
    }
}

/// Returns the elements of a one-dimensional buffer of this type.
fn words<T: Element + Default>(py: Python<'_>, buffer: &Bound<'_, PyAny>) -> Option<PyResult<Vec<T>>> {
    let buffer = PyBuffer::<T>::get(buffer).ok().filter(|buffer| buffer.dimensions() == 1)?;
    // This function does not support big-endian buffers.
    if buffer.format().to_bytes().starts_with(b">") || buffer.format().to_bytes().starts_with(b"!") {
        return None;
    }
    // An empty buffer may have no address.
    if buffer.item_count() == 0 {
        return Some(Ok(Vec::new()));
    }
    if let Some(cells) = buffer.as_slice(py) {
        let mut words = Vec::new();
        let reserved = reserve(&mut words, cells.len()).or_raise();
        return Some(reserved.map(|()| words.extend(cells.iter().map(ReadOnlyCell::get))).map(|()| words));
    }
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

fn out_of_bounds(index: i128, len: u64) -> PyErr {
    Error::from(ErrorKind::IndexOutOfBounds { index, len }).raised()
}
