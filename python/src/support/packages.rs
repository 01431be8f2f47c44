//! Optional packages, and conversions to their tables by the Arrow C interface.

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

/// Returns a `pyarrow.Table` of an object with an Arrow stream.
pub(crate) fn to_arrow<'py, T>(rows: &Bound<'py, T>) -> PyResult<Bound<'py, PyAny>> {
    arrow_table(rows, "to_arrow")
}

/// Returns a `pyarrow.Table`. The error for a missing pyarrow names `method`. `pyarrow.table` would import pandas, which
/// takes half a second.
fn arrow_table<'py, T>(rows: &Bound<'py, T>, method: &str) -> PyResult<Bound<'py, PyAny>> {
    let reader = needed(rows.py(), "pyarrow", method)?.getattr("RecordBatchReader")?;
    reader.call_method1("from_stream", (rows.as_any(),))?.call_method0("read_all")
}

/// Returns a `pandas.DataFrame` of an object with an Arrow stream.
pub(crate) fn to_pandas<'py, T>(rows: &Bound<'py, T>) -> PyResult<Bound<'py, PyAny>> {
    needed(rows.py(), "pandas", "to_pandas")?;
    let table = arrow_table(rows, "to_pandas")?;
    rows.py().import("a2store._pandas")?.call_method1("frame", (table,))
}

/// Returns a `polars.DataFrame` of an object with an Arrow stream.
pub(crate) fn to_polars<'py, T>(rows: &Bound<'py, T>) -> PyResult<Bound<'py, PyAny>> {
    needed(rows.py(), "polars", "to_polars")?.call_method1("DataFrame", (rows.as_any(),))
}

/// Imports a package that a method requires.
pub(crate) fn needed<'py>(py: Python<'py>, package: &str, method: &str) -> PyResult<Bound<'py, PyModule>> {
    // The name of a few modules differs from that of their package.
    let module = if package == "pillow" { "PIL" } else { package };
    py.import(module).map_err(|error| match error.is_instance_of::<PyImportError>(py) {
        true => {
            let raised = PyImportError::new_err(format!("{method} needs {package}: pip install {package}"));
            raised.set_cause(py, Some(error));
            raised
        }
        false => error,
    })
}
