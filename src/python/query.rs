//! The methods of planned queries, `a2store.Query`.

use super::arrow::{ArrowSchema, stream_capsule};
use super::interrupt::{interruptible, signals};
use super::planned::PyQuery;
use super::table::PyStepTable;
use crate::cancellation::CancellationToken;
use crate::progress::Progress;
use crate::query::ArrowReader;
use crate::table::{ChosenEv, MaterializeOptions};
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3_arrow::error::PyArrowResult;
use pyo3_arrow::ffi::to_schema_pycapsule;
use std::path::PathBuf;

/// The number of rows that a notebook shows.
const NOTEBOOK_ROWS: usize = 10;

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
        let stream = interruptible(py, Some(false), |_, cancel| self.query.stream_unless_cancelled(cancel))?;
        stream_capsule(py, ArrowReader { stream, cancel: signals() }, requested_schema)
    }

    fn count(&self, py: Python<'_>) -> PyResult<u64> {
        interruptible(py, Some(false), |_, cancel| self.query.count_unless_cancelled(cancel))
    }

    #[pyo3(signature = (*, analyze=false))]
    fn explain(&self, py: Python<'_>, analyze: bool) -> PyResult<String> {
        interruptible(py, Some(false), |_, cancel| self.query.explain_unless_cancelled(analyze, cancel))
    }

    #[pyo3(signature = (max_rows=20))]
    fn show(&self, py: Python<'_>, max_rows: usize) -> PyResult<()> {
        let preview =
            interruptible(py, Some(false), |_, cancel| self.query.preview_unless_cancelled(max_rows, cancel))?;
        py.import("builtins")?.call_method1("print", (preview.to_string(),))?;
        Ok(())
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let html = |_: &dyn Progress, cancel: &CancellationToken| {
            self.query.preview_unless_cancelled(NOTEBOOK_ROWS, cancel)?.to_html()
        };
        interruptible(py, Some(false), html)
    }

    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let table = needed(slf.py(), "pyarrow", "to_arrow")?.call_method1("table", (slf,));
        table.map_err(|error| signal_or(slf.py(), error))
    }

    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        needed(slf.py(), "pandas", "to_pandas")?;
        let table = needed(slf.py(), "pyarrow", "to_pandas")?.call_method1("table", (slf,));
        table.map_err(|error| signal_or(slf.py(), error))?.call_method0("to_pandas")
    }

    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let frame = needed(slf.py(), "polars", "to_polars")?.call_method1("DataFrame", (slf,));
        frame.map_err(|error| signal_or(slf.py(), error))
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
        let table = interruptible(py, progress, |progress, cancel| self.query.materialize(&options, progress, cancel))?;
        Ok(PyStepTable::new(table))
    }

    fn __repr__(&self) -> String {
        let names: Vec<String> = self.query.schema().fields().iter().map(|field| field.name().clone()).collect();
        format!("Query({})", names.join(", "))
    }
}

/// Returns the exception of a pending signal, or else `error`. A signal that ends a stream reaches its reader only as
/// an error.
fn signal_or(py: Python<'_>, error: PyErr) -> PyErr {
    match py.check_signals() {
        Err(signal) => {
            signal.set_cause(py, Some(error));
            signal
        }
        Ok(()) => error,
    }
}

/// Imports a package that a method requires.
fn needed<'py>(py: Python<'py>, package: &str, method: &str) -> PyResult<Bound<'py, PyModule>> {
    py.import(package).map_err(|error| match error.is_instance_of::<PyImportError>(py) {
        true => {
            let raised = PyImportError::new_err(format!("{method} needs {package}: pip install {package}"));
            raised.set_cause(py, Some(error));
            raised
        }
        false => error,
    })
}
