use super::batch::PyBatch;
use crate::loader::{Batches, Loader, LoaderState};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Mutex;

/// Serves shuffled batches of a table.
#[pyclass(frozen, name = "Loader", module = "a2store")]
pub(super) struct PyLoader {
    loader: Loader,
}

impl PyLoader {
    pub(super) fn new(loader: Loader) -> PyLoader {
        PyLoader { loader }
    }
}

#[pymethods]
impl PyLoader {
    fn __len__(&self) -> usize {
        self.loader.num_batches() as usize
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<PyBatchIterator> {
        let batches = py.detach(|| self.loader.batches())?;
        Ok(PyBatchIterator { batches: Mutex::new(Some(batches)) })
    }

    #[getter]
    fn epoch(&self) -> u64 {
        self.loader.epoch()
    }

    #[getter]
    fn batch_size(&self) -> usize {
        self.loader.options().batch_size
    }

    fn set_epoch(&self, epoch: u64) {
        self.loader.set_epoch(epoch);
    }

    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = self.loader.state();
        let dict = PyDict::new(py);
        dict.set_item("version", state.version)?;
        dict.set_item("fingerprint", state.fingerprint)?;
        dict.set_item("num_rows", state.num_rows)?;
        dict.set_item("shuffle", state.shuffle)?;
        dict.set_item("seed", state.seed)?;
        dict.set_item("epoch", state.epoch)?;
        dict.set_item("position", state.position)?;
        Ok(dict)
    }

    fn load_state_dict(&self, state: &Bound<'_, PyDict>) -> PyResult<()> {
        fn field<'py, T: for<'a> FromPyObject<'a, 'py>>(state: &Bound<'py, PyDict>, name: &str) -> PyResult<T> {
            let value = state.get_item(name)?.ok_or_else(|| missing(name))?;
            value
                .extract()
                .map_err(|_| PyValueError::new_err(format!("loader state: {name}: of another type: {value}")))
        }
        fn missing(name: &str) -> PyErr {
            PyValueError::new_err(format!("loader state: {name}: missing"))
        }
        let state = LoaderState {
            version: field(state, "version")?,
            fingerprint: field(state, "fingerprint")?,
            num_rows: field(state, "num_rows")?,
            shuffle: field(state, "shuffle")?,
            seed: field(state, "seed")?,
            epoch: field(state, "epoch")?,
            position: field(state, "position")?,
        };
        Ok(self.loader.load_state(&state)?)
    }

    fn __repr__(&self) -> String {
        let options = self.loader.options();
        format!(
            "Loader({} rows, batch_size={}, shuffle={}, seed={}, epoch={}, rank={}, world_size={})",
            self.loader.table().num_rows(),
            options.batch_size,
            if options.shuffle { "True" } else { "False" },
            options.seed,
            self.loader.epoch(),
            options.rank,
            options.world_size,
        )
    }
}

/// The batches of one epoch.
#[pyclass(frozen, name = "BatchIterator", module = "a2store")]
pub(super) struct PyBatchIterator {
    batches: Mutex<Option<Batches>>,
}

#[pymethods]
impl PyBatchIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyBatch>> {
        let next = py.detach(|| {
            let mut batches = self.batches.lock().map_err(|_| PyRuntimeError::new_err("the loader failed before"))?;
            let next = batches.as_mut().and_then(Iterator::next);
            if next.is_none() {
                *batches = None;
            }
            Ok::<_, PyErr>(next)
        })?;
        Ok(next.map(PyBatch::new))
    }

    fn __length_hint__(&self) -> usize {
        let batches = self.batches.lock();
        batches.ok().and_then(|batches| batches.as_ref().map(|batches| batches.size_hint().0)).unwrap_or(0)
    }
}
