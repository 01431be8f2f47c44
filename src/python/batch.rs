//! Batches of rows, `a2store.Batch`.

use super::arrow::batch_capsules;
use super::memory::Memory;
use super::numpy::array;
use crate::table::{Batch, ElementType};
use pyo3::exceptions::{PyAttributeError, PyKeyError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict, PyIterator, PyList, PyTuple};
use pyo3_arrow::error::PyArrowResult;

/// A batch of rows as columns.
#[pyclass(frozen, name = "Batch", module = "a2store")]
pub(super) struct PyBatch {
    batch: Batch,
    memory: PyOnceLock<Py<Memory>>,
}

impl PyBatch {
    pub(super) fn new(batch: Batch) -> PyBatch {
        PyBatch { batch, memory: PyOnceLock::new() }
    }

    /// Returns the column at an index, as a view of the batch's memory.
    fn array<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (Some(column), Some(range)) = (self.batch.columns().nth(index), self.batch.range(index)) else {
            return Ok(None);
        };
        let memory = self.memory.get_or_try_init(py, || Py::new(py, Memory::of_batch(self.batch.clone())))?;
        let columns = (column.values_per_row > 1).then_some(column.values_per_row);
        let shape = (self.batch.num_rows(), columns);
        array(memory.bind(py).as_any(), column.dtype.numpy(), range.start, shape).map(Some)
    }

    fn find<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.batch.columns().position(|column| column.name == name) {
            Some(index) => self.array(py, index),
            None => Ok(None),
        }
    }
}

#[pymethods]
impl PyBatch {
    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// Returns the names of the columns.
    fn keys(&self) -> Vec<String> {
        self.batch.columns().map(|column| column.name.to_owned()).collect()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.find(py, name)?.ok_or_else(|| PyKeyError::new_err(name.to_owned()))
    }

    fn __contains__(&self, name: &str) -> bool {
        self.batch.column(name).is_some()
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        // Every column is an attribute, including the extra columns.
        self.find(py, name)?.ok_or_else(|| PyAttributeError::new_err(format!("the batch has no column {name:?}")))
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.keys())?.try_iter()
    }

    /// Returns all columns by name.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (index, column) in self.batch.columns().enumerate() {
            dict.set_item(column.name, self.array(py, index)?)?;
        }
        Ok(dict)
    }

    /// Returns the names of the bfloat16 columns, whose bits are stored as uint16.
    #[getter]
    fn bfloat16_columns(&self) -> Vec<&str> {
        let columns = self.batch.columns().filter(|column| column.dtype == ElementType::BFloat16);
        columns.map(|column| column.name).collect()
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyArrowResult<Bound<'py, PyTuple>> {
        let batch = self.batch.to_record_batch().map_err(PyErr::from)?;
        batch_capsules(py, batch, requested_schema)
    }

    fn __repr__(&self) -> String {
        format!("Batch({} rows: {})", self.batch.num_rows(), self.keys().join(", "))
    }
}
