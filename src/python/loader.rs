//! The loader of batches, `a2store.Loader`.

use super::batch::PyBatch;
use super::interrupt::checking;
use crate::loader::{Batches, Loader, LoaderState, Sampling};
use pyo3::exceptions::{PyOverflowError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Mutex, PoisonError};

/// A loader that serves shuffled batches of a table.
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
        let LoaderState {
            version,
            archive_version,
            archive,
            query,
            view,
            num_rows,
            num_samples,
            order,
            seed,
            symmetries,
            epoch,
            position,
        } = self.loader.state();
        let dict = PyDict::new(py);
        dict.set_item("version", version)?;
        dict.set_item("archive_version", archive_version)?;
        dict.set_item("archive", archive)?;
        dict.set_item("query", query)?;
        dict.set_item("view", view)?;
        dict.set_item("num_rows", num_rows)?;
        dict.set_item("num_samples", num_samples)?;
        dict.set_item("order", order)?;
        dict.set_item("seed", seed)?;
        dict.set_item("symmetries", symmetries)?;
        dict.set_item("epoch", epoch)?;
        dict.set_item("position", position)?;
        Ok(dict)
    }

    fn load_state_dict(&self, state: &Bound<'_, PyDict>) -> PyResult<()> {
        fn field<'py, T: for<'a> FromPyObject<'a, 'py>>(state: &Bound<'py, PyDict>, name: &str) -> PyResult<T> {
            let value = state.get_item(name)?.ok_or_else(|| missing(name))?;
            value
                .extract()
                .map_err(|_| PyValueError::new_err(format!("loader state: {name}: unexpected type: {value}")))
        }
        fn missing(name: &str) -> PyErr {
            PyValueError::new_err(format!("loader state: {name}: missing"))
        }
        let state = LoaderState {
            version: field(state, "version")?,
            archive_version: field(state, "archive_version")?,
            archive: field(state, "archive")?,
            query: field(state, "query")?,
            view: field(state, "view")?,
            num_rows: field(state, "num_rows")?,
            num_samples: field(state, "num_samples")?,
            order: field(state, "order")?,
            seed: field(state, "seed")?,
            symmetries: field(state, "symmetries")?,
            epoch: field(state, "epoch")?,
            position: field(state, "position")?,
        };
        Ok(self.loader.load_state(&state)?)
    }

    fn __repr__(&self) -> String {
        let options = self.loader.options();
        format!(
            "Loader({} rows, {}, batch_size={}, seed={}, epoch={}, rank={}, world_size={})",
            self.loader.table().num_rows(),
            options.sampling,
            options.batch_size,
            options.seed,
            self.loader.epoch(),
            options.rank,
            options.world_size,
        )
    }
}

/// Returns the sampling that the options of `StepTable.loader` select.
pub(super) fn sampling(
    shuffle: bool,
    replacement: bool,
    weights: Option<String>,
    strata: Option<String>,
    quotas: Option<&Bound<'_, PyDict>>,
    window: Option<u64>,
) -> PyResult<Sampling> {
    let asked = [
        ("shuffle=False", !shuffle),
        ("weights", weights.is_some()),
        ("strata", strata.is_some()),
        ("window", window.is_some()),
        // Weighted rows are always drawn with replacement.
        ("replacement", replacement && weights.is_none()),
    ];
    let asked: Vec<&str> = asked.into_iter().filter(|(_, asked)| *asked).map(|(name, _)| name).collect();
    if asked.len() > 1 {
        return Err(PyValueError::new_err(format!("loader: {} cannot be combined", asked.join(" and "))));
    }
    if quotas.is_some() && strata.is_none() {
        return Err(PyValueError::new_err("loader: quotas: expected strata too, found none"));
    }
    Ok(match (weights, strata, window) {
        (Some(column), ..) => Sampling::Weighted { column },
        (_, Some(column), _) => {
            let quotas = quotas.map(|quotas| quotas.iter().map(quota).collect::<PyResult<_>>()).transpose()?;
            Sampling::Stratified { column, quotas }
        }
        (.., Some(window)) => Sampling::Windowed { window },
        _ if replacement => Sampling::Uniform,
        _ if shuffle => Sampling::Shuffled,
        _ => Sampling::Sequential,
    })
}

/// Returns a stratum's name and its share. The name may be a string, a number, a boolean or `None`.
fn quota((stratum, share): (Bound<'_, PyAny>, Bound<'_, PyAny>)) -> PyResult<(String, f64)> {
    let name = if stratum.is_none() {
        "null".to_owned()
    } else if let Ok(value) = stratum.extract::<bool>() {
        value.to_string()
    } else {
        stratum.str()?.extract()?
    };
    match share.extract() {
        Ok(share) => Ok((name, share)),
        Err(error) if error.is_instance_of::<PyOverflowError>(share.py()) => Err(PyValueError::new_err(format!(
            "quotas: expected a number that a float can hold for {name}, found a larger"
        ))),
        Err(_) => Err(PyTypeError::new_err(format!("quotas: expected a number for {name}, found {share}"))),
    }
}

/// An iterator over the batches of one epoch.
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
        if self.batches.is_poisoned() {
            return Err(PyRuntimeError::new_err("the loader has failed; create a new one"));
        }
        let next = checking(py, |cancel| {
            let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
            let next = match batches.as_mut() {
                Some(batches) => batches.next_unless_cancelled(cancel)?,
                None => None,
            };
            if next.is_none() {
                *batches = None;
            }
            Ok(next)
        })?;
        Ok(next.map(PyBatch::new))
    }

    fn __length_hint__(&self, py: Python<'_>) -> usize {
        // Detach the interpreter, because the thread that makes a batch may attach to check for signals.
        py.detach(|| {
            let batches = self.batches.lock();
            batches.ok().and_then(|batches| batches.as_ref().map(|batches| batches.size_hint().0)).unwrap_or(0)
        })
    }
}
