//! Batches of rows, `a2store.Batch`.

use crate::error::OrRaise;
use crate::support::arrow::batch_capsules;
use crate::support::memory::{Memory, Owner};
use crate::support::numpy::array;
use a2store::table::{Batch, ElementType};
use pyo3::exceptions::{PyAttributeError, PyKeyError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict, PyIterator, PyList, PyTuple};
use pyo3_arrow::error::PyArrowResult;

/// A batch of rows as columns, in NumPy arrays that share the batch's memory.
///
/// Each column, including each extra column, is an attribute, ``batch.tokens``, and an item, ``batch["tokens"]``. A
/// column named like a method is only an item. A column that the loader does not serve raises ``AttributeError`` or
/// ``KeyError``.
///
/// A batch is a ``Mapping`` of names to arrays, but ``len(batch)`` is the number of rows, called n below.
///
/// The arrays are writable. The loader does not reuse their memory while one of them exists.
/// ``pyarrow.record_batch(batch)`` shares the memory too, except for columns of bools, which it copies.
///
/// - ``tokens``: the exponents of the boards: shape (n, 16), row by row from the top left; uint8, int32 or int64. They
///   are 0 to 15, and 16 for a tile of 65536 if the table has ``tile_65536_mask``.
/// - ``move``: the chosen move: shape (n,), uint8, 0 to 3 in the order UDLR, 255 = none.
/// - ``ev_values``: the value of each move: shape (n, 4), float32, in the order UDLR; 0.0 if illegal, four NaNs if
///   unknown.
/// - ``ev_legal``: the legal moves: shape (n, 4), bool, in the order UDLR.
/// - ``run_id``: the run's id in the archive: shape (n,), uint32.
/// - ``step_index``: the step's index in its run, from 0: shape (n,), uint16; uint32 if the table has an index above
///   65,535.
/// - ``board``: the board before the move: shape (n,), uint64.
///
/// An extra column of strings has codes: shape (n,), int16, -1 = null; ``table.categories`` has the strings. An extra
/// column of lists of D values, and an attached column, have the shape (n, D), or (n,) if D is 1.
///
/// >>> batch = next(iter(table.loader(batch_size=256)))
/// >>> batch
/// Batch(256 rows: tokens, move, ev_values, ev_legal, run_id, step_index, board)
/// >>> batch.tokens.shape, batch["ev_values"].dtype, "engine" in batch
/// ((256, 16), dtype('float32'), False)
#[pyclass(frozen, name = "Batch", module = "a2store")]
pub(crate) struct PyBatch {
    batch: Batch,
    memory: PyOnceLock<Py<Memory>>,
}

impl PyBatch {
    pub(crate) fn new(batch: Batch) -> PyBatch {
        PyBatch { batch, memory: PyOnceLock::new() }
    }

    /// Returns the column at an index, as a view of the batch's memory.
    fn array<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (Some(column), Some(range)) = (self.batch.columns().nth(index), self.batch.range(index)) else {
            return Ok(None);
        };
        let memory = self.memory.get_or_try_init(py, || Py::new(py, Memory(Owner::Batch(self.batch.clone()))))?;
        let columns = (column.values_per_row > 1).then_some(column.values_per_row);
        let shape = (self.batch.num_rows(), columns);
        array(memory.bind(py).as_any(), column.dtype.numpy(), range.start, shape).map(Some)
    }

    pub(crate) fn find<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
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

    /// Return the names of the columns, in order.
    ///
    /// >>> table.take([0]).keys()
    /// ['tokens', 'move', 'ev_values', 'ev_legal', 'run_id', 'step_index', 'board']
    fn keys(&self) -> Vec<String> {
        self.batch.columns().map(|column| column.name.to_owned()).collect()
    }

    /// Return the names and columns, in order.
    ///
    /// Raises as ``to_dict`` does.
    ///
    /// >>> {name: column.shape for name, column in table.take([0, 1]).items()}["tokens"]
    /// (2, 16)
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        Ok(self.to_dict(py)?.items())
    }

    /// Return the columns, in order.
    ///
    /// Raises as ``to_dict`` does.
    ///
    /// >>> [column.ndim for column in table.take([0, 1]).values()]
    /// [2, 1, 2, 2, 1, 1, 1]
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        Ok(self.to_dict(py)?.values())
    }

    /// Return a column, or the default if there is no column of this name.
    ///
    /// - ``name``: the column's name.
    /// - ``default``: the value to return for a missing column.
    ///
    /// Raises as ``to_dict`` does.
    ///
    /// >>> table.take([0]).get("engine", "none")
    /// 'none'
    #[pyo3(signature = (name, default=None))]
    fn get<'py>(
        &self,
        name: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = match name.extract::<String>() {
            Ok(text) => self.find(name.py(), &text)?,
            Err(_) => None,
        };
        Ok(found.or(default))
    }

    /// Return all columns as PyTorch tensors by name, as ``a2store.torch`` describes them.
    ///
    /// On the CPU, the tensors share the batch's memory, except for the uint16 and uint32 columns, which are widened.
    ///
    /// - ``device``: a ``torch.device`` or its name; ``None`` = the CPU.
    ///
    /// Raises ``ImportError`` if torch is not installed.
    ///
    /// >>> table.take([0, 1]).to_torch()["tokens"].shape
    /// torch.Size([2, 16])
    #[pyo3(signature = (device=None))]
    fn to_torch<'py>(slf: &Bound<'py, Self>, device: Option<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("a2store._packages")?.call_method1("to_torch", (slf, device))
    }

    /// Return all columns as JAX arrays by name.
    ///
    /// A column of 64-bit integers stays a NumPy array unless ``jax_enable_x64`` is set, because JAX would cut its
    /// values to 32 bits. A bfloat16 column is ``jax.numpy.bfloat16``.
    ///
    /// - ``device``: a device or sharding, as ``jax.device_put`` takes it; ``None`` = the default device.
    ///
    /// Raises ``ImportError`` if jax is not installed.
    #[pyo3(signature = (device=None))]
    fn to_jax<'py>(slf: &Bound<'py, Self>, device: Option<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("a2store._packages")?.call_method1("to_jax", (slf, device))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.find(py, name)?.ok_or_else(|| PyKeyError::new_err(name.to_owned()))
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> bool {
        name.extract::<String>().is_ok_and(|name| self.batch.column(&name).is_some())
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        // Every column is an attribute, including the extra columns.
        self.find(py, name)?.ok_or_else(|| PyAttributeError::new_err(format!("the batch has no column {name:?}")))
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.keys())?.try_iter()
    }

    /// Return all columns by name, in order.
    ///
    /// The arrays share the batch's memory.
    ///
    /// Raises ``MemoryError`` if an allocation fails.
    ///
    /// >>> table.take([0]).to_dict()["move"].dtype
    /// dtype('uint8')
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (index, column) in self.batch.columns().enumerate() {
            dict.set_item(column.name, self.array(py, index)?)?;
        }
        Ok(dict)
    }

    /// The names of the bfloat16 columns, whose bits are stored as uint16 because NumPy lacks bfloat16.
    #[getter]
    fn bfloat16_columns(&self) -> Vec<&str> {
        let columns = self.batch.columns().filter(|column| column.dtype == ElementType::BFloat16);
        columns.map(|column| column.name).collect()
    }

    /// Return the batch as a struct of its columns, in the capsules ``arrow_schema`` and ``arrow_array``.
    ///
    /// ``tokens``, ``ev_values`` and ``ev_legal`` are fixed-size lists. Columns of strings are dictionaries; only these
    /// columns have nulls.
    ///
    /// - ``requested_schema``: an ``arrow_schema`` capsule; columns are cast to its types where possible.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyArrowResult<Bound<'py, PyTuple>> {
        let batch = self.batch.to_record_batch().or_raise()?;
        batch_capsules(py, batch, requested_schema)
    }

    fn __repr__(&self) -> String {
        format!("Batch({} rows: {})", self.batch.num_rows(), self.keys().join(", "))
    }
}
