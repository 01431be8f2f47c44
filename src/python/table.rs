use super::arrow::{ArrowArray, stream_capsule};
use super::batch::PyBatch;
use super::loader::PyLoader;
use super::memory::{Memory, array};
use crate::error::{Error, ErrorKind};
use crate::loader::LoaderOptions;
use crate::table::StepTable;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use pyo3_arrow::error::PyArrowResult;
use std::sync::Arc;

/// A query's rows in memory.
#[pyclass(frozen, name = "StepTable", module = "a2store")]
pub(super) struct PyStepTable {
    table: StepTable,
}

impl PyStepTable {
    pub(super) fn new(table: StepTable) -> PyStepTable {
        PyStepTable { table }
    }
}

#[pymethods]
impl PyStepTable {
    fn __len__(&self) -> usize {
        self.table.num_rows() as usize
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        self.table.num_bytes()
    }

    #[getter]
    fn stride(&self) -> usize {
        self.table.layout().stride()
    }

    #[getter]
    fn fingerprint(&self) -> &str {
        self.table.fingerprint()
    }

    /// NumPy's structured type of a row.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let layout = self.table.layout();
        let (mut names, mut formats, mut offsets) = (Vec::new(), Vec::new(), Vec::new());
        for (name, format, values, offset) in layout.numpy_fields() {
            names.push(name);
            formats.push(if values == 1 { format.to_owned() } else { format!("({values},){format}") });
            offsets.push(offset);
        }
        let fields = PyDict::new(py);
        fields.set_item("names", names)?;
        fields.set_item("formats", formats)?;
        fields.set_item("offsets", offsets)?;
        fields.set_item("itemsize", layout.stride())?;
        py.import("numpy")?.call_method1("dtype", (fields,))
    }

    #[pyo3(signature = (dtype=None, *, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let memory = Bound::new(py, Memory::of_table(self.table.clone()))?;
        let rows = array(memory.as_any(), self.dtype(py)?, 0, (self.table.num_rows() as usize, None))?;
        match (dtype, copy) {
            (Some(dtype), _) if !rows.getattr("dtype")?.eq(&dtype)? => {
                if copy == Some(false) {
                    return Err(PyValueError::new_err("another dtype needs a copy of the table"));
                }
                rows.call_method1("astype", (dtype,))
            }
            (_, Some(true)) => rows.call_method0("copy"),
            _ => Ok(rows),
        }
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyArrowResult<Bound<'py, PyCapsule>> {
        stream_capsule(py, self.table.column_reader(), requested_schema)
    }

    fn rows_array(&self) -> PyResult<ArrowArray> {
        Ok(ArrowArray { array: Arc::new(self.table.rows_array()?) })
    }

    fn take(&self, py: Python<'_>, indices: &Bound<'_, PyAny>) -> PyResult<PyBatch> {
        let indices = row_indices(py, indices, self.table.num_rows())?;
        let batch = py.detach(|| self.table.take(&indices))?;
        Ok(PyBatch::new(batch))
    }

    #[pyo3(signature = (
        batch_size=4096, *, shuffle=true, seed=0, epoch=0, drop_last=false, rank=0, world_size=1, tokens="uint8",
        columns=None, prefetch=2
    ))]
    #[allow(clippy::too_many_arguments)]
    fn loader(
        &self,
        batch_size: usize,
        shuffle: bool,
        seed: u64,
        epoch: u64,
        drop_last: bool,
        rank: usize,
        world_size: usize,
        tokens: &str,
        columns: Option<Vec<String>>,
        prefetch: usize,
    ) -> PyResult<PyLoader> {
        let tokens = tokens.parse()?;
        let options =
            LoaderOptions { batch_size, shuffle, seed, epoch, drop_last, rank, world_size, tokens, columns, prefetch };
        Ok(PyLoader::new(self.table.loader(options)?))
    }

    fn __repr__(&self) -> String {
        let (rows, stride) = (self.table.num_rows(), self.table.layout().stride());
        format!("StepTable({rows} rows of {stride} bytes)")
    }
}

/// Any one-dimensional sequence of integers as indices.
fn row_indices(py: Python<'_>, indices: &Bound<'_, PyAny>, len: u64) -> PyResult<Vec<u64>> {
    let array = py.import("numpy")?.call_method1("asarray", (indices,))?;
    if array.getattr("ndim")?.extract::<usize>()? != 1 {
        return Err(PyValueError::new_err("indices: expected one dimension"));
    }
    let kind: String = array.getattr("dtype")?.getattr("kind")?.extract()?;
    let empty = array.len()? == 0;
    match kind.as_str() {
        "u" => {
            let array = array.call_method1("astype", ("uint64",))?;
            PyBuffer::<u64>::get(&array)?.to_vec(py)
        }
        "i" => {
            let array = array.call_method1("astype", ("int64",))?;
            let indices = PyBuffer::<i64>::get(&array)?.to_vec(py)?;
            let to_row = |index: i64| u64::try_from(index).map_err(|_| negative(index, len));
            indices.into_iter().map(to_row).collect()
        }
        _ if empty => Ok(Vec::new()),
        _ => {
            let dtype = array.getattr("dtype")?;
            Err(PyTypeError::new_err(format!("indices: expected integers, found {dtype}")))
        }
    }
}

fn negative(index: i64, len: u64) -> PyErr {
    Error::from(ErrorKind::IndexOutOfBounds { index, len }).into()
}
