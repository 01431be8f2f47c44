//! The rows and columns that `table[key]` returns.

use super::batch::PyBatch;
use crate::error::OrRaise;
use crate::support::indices::{row_index, row_indices};
use crate::support::interrupt::checking;
use crate::support::numpy::type_and_shape;
use a2store::system::machine::reserve;
use a2store::table::StepTable;
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice, PyTuple};

/// Returns one row as a dict, or several rows as a batch.
pub(crate) fn rows_at<'py>(table: &StepTable, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let (py, len) = (key.py(), table.num_rows());
    if let Ok(slice) = key.cast::<PySlice>() {
        let at = slice.indices(len as isize)?;
        let mut rows = Vec::new();
        reserve(&mut rows, at.slicelength).or_raise()?;
        rows.extend((0..at.slicelength as isize).map(|place| (at.start + place * at.step) as u64));
        return batch(py, table, &rows);
    }
    match row_index(key, len) {
        Some(row) => {
            let row = [row?];
            let columns = PyBatch::new(checking(py, |cancel| table.take_unless_cancelled(&row, cancel))?);
            let row = PyDict::new(py);
            for (name, values) in columns.to_dict(py)? {
                row.set_item(name, values.get_item(0)?)?;
            }
            Ok(row.into_any())
        }
        None => batch(py, table, &several(table, key)?),
    }
}

fn batch<'py>(py: Python<'py>, table: &StepTable, rows: &[u64]) -> PyResult<Bound<'py, PyAny>> {
    let batch = checking(py, |cancel| table.take_unless_cancelled(rows, cancel))?;
    Ok(Bound::new(py, PyBatch::new(batch))?.into_any())
}

/// Returns the rows of an array of indices, or of a mask.
fn several(table: &StepTable, key: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    let (py, len) = (key.py(), table.num_rows());
    let is_array = key.hasattr("__array__")? || key.hasattr("__len__")?;
    if !is_array || key.is_instance_of::<PyTuple>() || key.is_instance_of::<PyDict>() {
        let found = key.get_type().name()?;
        let expected = "an index, a slice, an array of indices, a mask or a column's name";
        return Err(PyTypeError::new_err(format!("expected {expected}, found {found}")));
    }
    let array = py.import("numpy")?.call_method1("asarray", (key,))?;
    match type_and_shape(&array)? {
        (kind, shape) if kind == "b" && shape == [len as usize] => {
            row_indices(py, &py.import("numpy")?.call_method1("flatnonzero", (array,))?, len)
        }
        (kind, shape) if kind == "b" => {
            Err(PyIndexError::new_err(format!("a mask: expected the shape ({len},), found {shape:?}")))
        }
        _ => row_indices(py, key, len),
    }
}
