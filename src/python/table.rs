//! The table of steps, `a2store.StepTable`.

use super::arrow::{ArrowArray, stream_capsule};
use super::batch::PyBatch;
use super::indices::{row_indices, run_ids_from};
use super::interrupt::{checking, interruptible};
use super::loader::{PyLoader, sampling};
use super::memory::Memory;
use super::numpy::array;
use super::planned::PyQuery;
use super::reports::{PyRejected, skips_errors};
use super::sql::stream_of;
use super::values::{is_path, paths_from};
use crate::archive::Phase;
use crate::cancellation::CancellationToken;
use crate::error::Error;
use crate::loader::LoaderOptions;
use crate::machine::filled;
use crate::table::{
    AttachOptions, AttachedColumn, FromRunsOptions, FromSessionOptions, LoadOptions, RowFilter, StepTable, TableHandle,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PyString};
use pyo3_arrow::error::PyArrowResult;
use std::path::PathBuf;
use std::sync::Arc;

/// A table of rows in memory or in a file.
#[pyclass(frozen, name = "StepTable", module = "a2store")]
pub(super) struct PyStepTable {
    table: StepTable,
    dtype: PyOnceLock<Py<PyAny>>,
}

impl PyStepTable {
    pub(super) fn new(table: StepTable) -> PyStepTable {
        PyStepTable { table, dtype: PyOnceLock::new() }
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
    fn fingerprint(&self) -> String {
        self.table.fingerprint().to_string()
    }

    /// Returns NumPy's structured type of a row.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(dtype) = self.dtype.get(py) {
            return Ok(dtype.bind(py).clone());
        }
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
        let dtype = py.import("numpy")?.call_method1("dtype", (fields,))?;
        Ok(self.dtype.get_or_init(py, || dtype.unbind()).bind(py).clone())
    }

    #[pyo3(signature = (dtype=None, *, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.table.is_view() {
            if copy == Some(false) {
                return Err(PyValueError::new_err(
                    "copy: expected None or True, because the rows of a view are not contiguous",
                ));
            }
            let len = self.table.num_rows() as usize;
            let rows = self.copied_rows(py, len, |rows, cancel| self.table.copy_all_rows(rows, cancel))?;
            return match dtype {
                Some(dtype) => rows.call_method1("astype", (dtype,)),
                None => Ok(rows),
            };
        }
        let memory = Bound::new(py, Memory::of_table(self.table.clone()))?;
        let rows = array(memory.as_any(), self.dtype(py)?, 0, (self.table.num_rows() as usize, None))?;
        match (dtype, copy) {
            (Some(dtype), _) if !rows.getattr("dtype")?.eq(&dtype)? => {
                if copy == Some(false) {
                    return Err(PyValueError::new_err("copy: expected None or True with another dtype, found False"));
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
        let batch = checking(py, |cancel| self.table.take_unless_cancelled(&indices, cancel))?;
        Ok(PyBatch::new(batch))
    }

    /// Returns the rows at `indices` as a structured array.
    fn take_rows<'py>(&self, py: Python<'py>, indices: &Bound<'_, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let indices = row_indices(py, indices, self.table.num_rows())?;
        self.copied_rows(py, indices.len(), |rows, cancel| {
            self.table.take_rows_unless_cancelled(&indices, rows, cancel)
        })
    }

    #[pyo3(signature = (*, min_score=None, max_score=None, engine=None, phase=None, run_ids=None))]
    fn filter(
        &self,
        py: Python<'_>,
        min_score: Option<u64>,
        max_score: Option<u64>,
        engine: Option<&Bound<'_, PyAny>>,
        phase: Option<&Bound<'_, PyAny>>,
        run_ids: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyStepTable> {
        let to_phase = |name: String| {
            let phase = Phase::ALL.into_iter().find(|phase| phase.name() == name);
            phase.ok_or_else(|| PyValueError::new_err(format!("phase: expected early, mid or late, found {name:?}")))
        };
        let phases = phase.map(names).transpose()?;
        let to_id = |id: u64| {
            u32::try_from(id)
                .map_err(|_| PyValueError::new_err(format!("run_ids: expected 0..=4294967295, found {id}")))
        };
        let run_ids = run_ids.map(|ids| run_ids_from(py, ids)).transpose()?;
        let filter = RowFilter {
            min_score,
            max_score,
            engines: engine.map(names).transpose()?,
            phases: phases.map(|names| names.into_iter().map(to_phase).collect::<PyResult<_>>()).transpose()?,
            run_ids: run_ids.map(|ids| ids.into_iter().map(to_id).collect::<PyResult<_>>()).transpose()?,
        };
        let view = checking(py, |cancel| self.table.filter_unless_cancelled(&filter, cancel))?;
        Ok(PyStepTable::new(view))
    }

    #[pyo3(signature = (val=0.1, *, seed=0))]
    fn split(&self, py: Python<'_>, val: f64, seed: u64) -> PyResult<(PyStepTable, PyStepTable)> {
        let (train, val) = checking(py, |cancel| self.table.split_unless_cancelled(val, seed, cancel))?;
        Ok((PyStepTable::new(train), PyStepTable::new(val)))
    }

    #[pyo3(signature = (path, *, progress=None))]
    #[allow(clippy::needless_pass_by_value)] // The shape that pyo3 asks for.
    fn save(&self, py: Python<'_>, path: PathBuf, progress: Option<bool>) -> PyResult<()> {
        interruptible(py, progress, |progress, cancel| self.table.save(&path, progress, cancel))
    }

    #[staticmethod]
    #[pyo3(signature = (path, *, mmap=false, memory_limit=None, progress=None))]
    #[allow(clippy::needless_pass_by_value)] // The shape that pyo3 asks for.
    fn load(
        py: Python<'_>,
        path: PathBuf,
        mmap: bool,
        memory_limit: Option<u64>,
        progress: Option<bool>,
    ) -> PyResult<PyStepTable> {
        let mut options = LoadOptions::default().with_mmap(mmap);
        options.memory_limit = memory_limit;
        let table = interruptible(py, progress, |progress, cancel| StepTable::load(&path, &options, progress, cancel))?;
        Ok(PyStepTable::new(table))
    }

    #[staticmethod]
    #[pyo3(signature = (
        paths, *, min_score=None, max_score=None, min_steps=None, max_steps=None, engine=None, chosen_ev="stored",
        memory_limit=None, workers=None, progress=None, on_error="raise"
    ))]
    #[allow(clippy::too_many_arguments)]
    fn from_runs(
        py: Python<'_>,
        paths: &Bound<'_, PyAny>,
        min_score: Option<u64>,
        max_score: Option<u64>,
        min_steps: Option<u64>,
        max_steps: Option<u64>,
        engine: Option<String>,
        chosen_ev: &str,
        memory_limit: Option<u64>,
        workers: Option<usize>,
        progress: Option<bool>,
        on_error: &str,
    ) -> PyResult<PyStepTable> {
        let paths = paths_from(paths)?;
        let chosen_ev = chosen_ev.parse()?;
        let skip_errors = skips_errors(on_error)?;
        let options = FromRunsOptions {
            min_score,
            max_score,
            min_steps,
            max_steps,
            engine,
            chosen_ev,
            memory_limit,
            workers,
            skip_errors,
        };
        let table =
            interruptible(py, progress, |progress, cancel| StepTable::from_runs(&paths, &options, progress, cancel))?;
        Ok(PyStepTable::new(table))
    }

    #[staticmethod]
    #[pyo3(signature = (path, run_ids=None, *, extra=None, memory_limit=None, workers=None, progress=None))]
    #[allow(clippy::needless_pass_by_value)] // The shape that pyo3 asks for.
    fn from_session(
        py: Python<'_>,
        path: PathBuf,
        run_ids: Option<&Bound<'_, PyAny>>,
        extra: Option<Vec<String>>,
        memory_limit: Option<u64>,
        workers: Option<usize>,
        progress: Option<bool>,
    ) -> PyResult<PyStepTable> {
        let mut options = FromSessionOptions::default().with_extra(extra.unwrap_or_default());
        options.run_ids = run_ids.map(|ids| run_ids_from(py, ids)).transpose()?;
        (options.memory_limit, options.workers) = (memory_limit, workers);
        let table =
            interruptible(py, progress, |progress, cancel| StepTable::from_session(&path, &options, progress, cancel))?;
        Ok(PyStepTable::new(table))
    }

    #[pyo3(signature = (name, path, steps=None, *, mmap=true, memory_limit=None, progress=None))]
    #[allow(clippy::needless_pass_by_value, clippy::too_many_arguments)] // The shape that pyo3 asks for.
    fn attach(
        &self,
        py: Python<'_>,
        name: &str,
        path: &Bound<'_, PyAny>,
        steps: Option<PathBuf>,
        mmap: bool,
        memory_limit: Option<u64>,
        progress: Option<bool>,
    ) -> PyResult<PyStepTable> {
        let mut options = AttachOptions::default().with_in_memory(!mmap);
        (options.steps, options.memory_limit) = (steps, memory_limit);
        let table = if is_path(path)? {
            let path: PathBuf = path.extract()?;
            interruptible(py, progress, |progress, cancel| self.table.attach(name, &path, &options, progress, cancel))?
        } else if let Ok(query) = path.cast::<PyQuery>() {
            let query = &query.get().query;
            interruptible(py, progress, |progress, cancel| {
                let mut stream = query.stream_unless_cancelled(cancel)?;
                let schema = stream.schema();
                let rows = std::iter::from_fn(|| stream.next_unless_cancelled(cancel).transpose());
                self.table.attach_rows(name, &schema, rows, &options, progress, cancel)
            })?
        } else {
            let (schema, batches) = stream_of(("path", "a file's path"), name, path)?;
            let rows = batches.map(|batch| batch.map_err(|error| Error::argument("path", "readable rows", error)));
            interruptible(py, progress, |progress, cancel| {
                self.table.attach_rows(name, &schema, rows, &options, progress, cancel)
            })?
        };
        Ok(PyStepTable::new(table))
    }

    /// Returns the names of the attached columns.
    #[getter]
    fn attached(&self) -> Vec<&str> {
        self.table.attached().iter().map(AttachedColumn::name).collect()
    }

    /// Returns the runs and files that were skipped.
    #[getter]
    fn errors(&self) -> Vec<PyRejected> {
        self.table.errors().iter().map(PyRejected::from).collect()
    }

    /// Returns whether this is a view.
    #[getter]
    fn is_view(&self) -> bool {
        self.table.is_view()
    }

    /// Returns the strings of the codes in extra columns, by column.
    #[getter]
    fn categories<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let categories = PyDict::new(py);
        for extra in self.table.layout().extras() {
            if let Some(names) = &extra.categories {
                categories.set_item(&extra.name, names.to_vec())?;
            }
        }
        Ok(categories)
    }

    /// Returns a handle with which another process on this machine gets the same table without a copy.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let handle = py.detach(|| self.table.handle())?;
        let attach = py.import("a2store._a2store")?.getattr("_attach")?;
        Ok((attach, (PyBytes::new(py, &handle.to_bytes()),)))
    }

    #[pyo3(signature = (
        batch_size=4096, *, shuffle=true, seed=0, epoch=0, drop_last=false, rank=0, world_size=1, tokens="uint8",
        symmetries=false, columns=None, prefetch=2, replacement=false, weights=None, strata=None, quotas=None,
        num_samples=None, window=None
    ))]
    #[allow(clippy::too_many_arguments)]
    fn loader(
        &self,
        py: Python<'_>,
        batch_size: usize,
        shuffle: bool,
        seed: u64,
        epoch: u64,
        drop_last: bool,
        rank: usize,
        world_size: usize,
        tokens: &str,
        symmetries: bool,
        columns: Option<Vec<String>>,
        prefetch: usize,
        replacement: bool,
        weights: Option<String>,
        strata: Option<String>,
        quotas: Option<&Bound<'_, PyDict>>,
        num_samples: Option<u64>,
        window: Option<u64>,
    ) -> PyResult<PyLoader> {
        let options = LoaderOptions {
            batch_size,
            sampling: sampling(shuffle, replacement, weights, strata, quotas, window)?,
            num_samples,
            seed,
            epoch,
            drop_last,
            rank,
            world_size,
            tokens: tokens.parse()?,
            symmetries,
            columns,
            prefetch,
        };
        let loader = checking(py, |cancel| self.table.loader_unless_cancelled(options, cancel))?;
        Ok(PyLoader::new(loader))
    }

    fn __repr__(&self) -> String {
        let (rows, stride) = (self.table.num_rows(), self.table.layout().stride());
        let view = if self.table.is_view() { ", a view" } else { "" };
        format!("StepTable({rows} rows of {stride} bytes{view})")
    }
}

impl PyStepTable {
    /// Returns a new structured array of `num_rows` rows, filled by `copy`.
    fn copied_rows<'py>(
        &self,
        py: Python<'py>,
        num_rows: usize,
        copy: impl FnOnce(&mut [u8], &CancellationToken) -> crate::Result<()> + Send,
    ) -> PyResult<Bound<'py, PyAny>> {
        // A stride is a multiple of eight bytes.
        let len = num_rows.saturating_mul(self.table.layout().stride() / size_of::<u64>());
        let rows = checking(py, |cancel| {
            let mut rows = filled(len, 0_u64)?;
            copy(bytemuck::cast_slice_mut(&mut rows), cancel).map(|()| rows)
        })?;
        let memory = Bound::new(py, Memory::of_rows(rows))?;
        array(memory.as_any(), self.dtype(py)?, 0, (num_rows, None))
    }
}

/// Returns the table of a handle.
#[pyfunction]
#[pyo3(name = "_attach")]
pub(super) fn attach(py: Python<'_>, handle: &Bound<'_, PyBytes>) -> PyResult<PyStepTable> {
    let handle = TableHandle::from_bytes(handle.as_bytes())?;
    Ok(PyStepTable::new(py.detach(|| StepTable::from_handle(&handle))?))
}

/// Extracts one name or several.
fn names(value: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    match value.cast::<PyString>() {
        Ok(name) => Ok(vec![name.extract()?]),
        Err(_) => value.try_iter()?.map(|name| name?.extract()).collect(),
    }
}
