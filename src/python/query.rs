use super::arrow::{ArrowSchema, stream_capsule};
use super::interrupt::{Signals, interruptible};
use super::table::PyStepTable;
use crate::query::{ArrowReader, Query};
use crate::table::{ChosenEv, MaterializeOptions};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3_arrow::error::PyArrowResult;
use pyo3_arrow::ffi::to_schema_pycapsule;
use std::path::PathBuf;

/// A planned query; nothing runs until its result is asked for.
#[pyclass(frozen, name = "Query", module = "a2store")]
pub(super) struct PyQuery {
    query: Query,
}

impl PyQuery {
    pub(super) fn new(query: Query) -> PyQuery {
        PyQuery { query }
    }
}

#[pymethods]
impl PyQuery {
    #[getter]
    fn schema(&self) -> ArrowSchema {
        ArrowSchema { schema: self.query.schema() }
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyArrowResult<Bound<'py, PyCapsule>> {
        to_schema_pycapsule(py, self.query.schema().as_ref())
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyArrowResult<Bound<'py, PyCapsule>> {
        let stream = py.detach(|| self.query.stream()).map_err(PyErr::from)?;
        stream_capsule(py, ArrowReader { stream, progress: Box::new(Signals) }, requested_schema)
    }

    fn count(&self, py: Python<'_>) -> PyResult<u64> {
        interruptible(py, Some(false), |progress| self.query.count_unless_cancelled(progress))
    }

    #[pyo3(signature = (*, analyze=false))]
    fn explain(&self, py: Python<'_>, analyze: bool) -> PyResult<String> {
        interruptible(py, Some(false), |progress| self.query.explain_unless_cancelled(analyze, progress))
    }

    #[pyo3(signature = (*, extra=Vec::new(), chosen_ev="stored", memory_limit=None, path=None, progress=None))]
    fn materialize(
        &self,
        py: Python<'_>,
        extra: Vec<String>,
        chosen_ev: &str,
        memory_limit: Option<u64>,
        path: Option<PathBuf>,
        progress: Option<bool>,
    ) -> PyResult<PyStepTable> {
        let chosen_ev: ChosenEv = chosen_ev.parse()?;
        let mut options = MaterializeOptions::default().with_extra(extra).with_chosen_ev(chosen_ev);
        options.memory_limit = memory_limit;
        options.path = path;
        let table = interruptible(py, progress, |progress| self.query.materialize(&options, progress))?;
        Ok(PyStepTable::new(table))
    }

    fn __repr__(&self) -> String {
        let names: Vec<String> = self.query.schema().fields().iter().map(|field| field.name().clone()).collect();
        format!("Query({})", names.join(", "))
    }
}
