//! Reports and descriptions for Python: instances of the dataclasses in `python/a2store/_results.py`, which lists and
//! documents their fields.

use crate::archive::{
    AnnotateReport, CommitInfo, CompactReport, ExpireReport, IngestReport, ModelInfo, Problem, Rejected, Repair,
    RepairReport, VerifyReport,
};
use crate::error::{Error, Result};
use crate::export::ExportReport;
use crate::format::{JsonlReport, PackStats};
use crate::query::{Function, SavedQuery, ScalarValue};
use crate::selfplay::{RecorderStats, SimulateReport};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyTuple};

/// Makes an instance of a dataclass from fields of a value, and from other values: `field = value`.
macro_rules! instance {
    ($py:ident, $class:ident, $from:ident: $($field:ident $(= $other:expr)?),*) => {{
        let fields = PyDict::new($py);
        $(fields.set_item(stringify!($field), instance!(@value $from, $field $(= $other)?))?;)*
        $py.import("a2store._results")?.getattr(stringify!($class))?.call((), Some(&fields))
    }};
    (@value $from:ident, $field:ident = $other:expr) => { $other };
    (@value $from:ident, $field:ident) => { $from.$field };
}

/// A value that becomes an instance of a dataclass.
pub(super) trait IntoInstance {
    fn into_instance(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>>;
}

/// Converts several values.
pub(super) fn instances<T: IntoInstance>(
    py: Python<'_>,
    values: impl IntoIterator<Item = T>,
) -> PyResult<Vec<Bound<'_, PyAny>>> {
    values.into_iter().map(|value| value.into_instance(py)).collect()
}

impl IntoInstance for CommitInfo {
    fn into_instance(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let time = py.import("datetime")?.getattr("datetime")?.call_method1("fromisoformat", (self.time,))?;
        let operation = self.operation.name();
        instance! { py, CommitInfo, self:
            version, time = time, operation = operation, txn, added_runs, added_steps, next_run_id, num_runs,
            num_steps, added_files, removed_files
        }
    }
}

impl IntoInstance for IngestReport {
    fn into_instance(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let errors = instances(py, &self.errors)?;
        instance! { py, IngestReport, self:
            accepted, duplicates, twins, rejected, ignored, num_steps, num_bytes, errors = errors
        }
    }
}

impl IntoInstance for &Rejected {
    fn into_instance(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let location = self.error.location();
        instance! { py, Rejected, self:
            path = &self.path, offset = location.and_then(|location| location.offset),
            run = location.and_then(|location| location.run), step = location.and_then(|location| location.step),
            kind = self.error.kind_name(), message = self.message()
        }
    }
}

/// Implements the conversion of values whose fields are plain.
macro_rules! plain {
    ($($class:ident { $($field:ident),* })*) => {
        $(impl IntoInstance for $class {
            fn into_instance(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
                instance! { py, $class, self: $($field),* }
            }
        })*
    };
}

plain! {
    AnnotateReport { model, num_runs, num_rows, missing_steps, replaced_rows }
    ModelInfo { model, num_rows, num_files, num_bytes, first_run_id, last_run_id }
    CompactReport { files_before, files_after, bytes_before, bytes_after, num_rows }
    ExpireReport { first_version, num_versions, num_files, num_bytes, paths }
    Problem { path, run_id, what, expected, found }
    Repair { path, action, reason }
}

impl IntoInstance for ExportReport {
    fn into_instance(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let errors = instances(py, &self.errors)?;
        instance! { py, ExportReport, self: path, runs, num_steps, num_files, errors = errors }
    }
}

impl IntoInstance for VerifyReport {
    fn into_instance(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let problems = instances(py, self.problems)?;
        instance! { py, VerifyReport, self:
            problems = problems, version, num_commits, num_files, num_bytes, num_runs, num_steps, unnamed_files
        }
    }
}

impl IntoInstance for RepairReport {
    fn into_instance(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let steps = instances(py, self.steps)?;
        instance! { py, RepairReport, self: version, steps = steps, done }
    }
}

impl IntoInstance for PackStats {
    fn into_instance(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let highest_tiles = self.highest_tiles.into_py_dict(py)?;
        let engines = self.engines.into_py_dict(py)?;
        instance! { py, PackStats, self:
            count, total_steps, min_len, max_len, mean_len, p50, p90, p99, unreadable, highest_tiles = highest_tiles,
            engines = engines
        }
    }
}

impl IntoInstance for JsonlReport {
    fn into_instance(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let errors: Vec<String> = self.errors.iter().map(ToString::to_string).collect();
        instance! { py, JsonlReport, self: num_runs, num_steps, num_bytes, errors = errors }
    }
}

impl IntoInstance for SimulateReport {
    fn into_instance(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        instance! { py, SimulateReport, self: runs, num_steps, num_bytes }
    }
}

impl IntoInstance for RecorderStats {
    fn into_instance(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        instance! { py, RecorderStats, self:
            begun, live, ended, abandoned, steps, durable, rotations, disk_bytes, ram_bytes, failure
        }
    }
}

impl IntoInstance for SavedQuery {
    fn into_instance(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let parameter = |parameter: crate::query::SavedParameter| {
            instance! { py, SavedParameter, parameter:
                name, type = parameter.dtype, default = default_value(py, parameter.default)?, doc
            }
        };
        let parameters = self.parameters.into_iter().map(parameter).collect::<PyResult<Vec<_>>>()?;
        instance! { py, SavedQuery, self:
            name, purpose, parameters = PyTuple::new(py, parameters)?, sql
        }
    }
}

fn default_value(py: Python<'_>, value: ScalarValue) -> PyResult<Py<PyAny>> {
    Ok(match value {
        ScalarValue::Boolean(Some(value)) => value.into_pyobject(py)?.to_owned().into_any().unbind(),
        ScalarValue::Int64(Some(value)) => value.into_pyobject(py)?.into_any().unbind(),
        ScalarValue::UInt64(Some(value)) => value.into_pyobject(py)?.into_any().unbind(),
        ScalarValue::Float64(Some(value)) => value.into_pyobject(py)?.into_any().unbind(),
        ScalarValue::Utf8(Some(value)) => value.into_pyobject(py)?.into_any().unbind(),
        _ => py.None(),
    })
}

impl IntoInstance for &Function {
    fn into_instance(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let returns = self.return_type().to_string();
        instance! { py, SqlFunction, self: name, signature = self.signature(), returns = returns, doc, example }
    }
}

/// Returns whether `on_error` is `"skip"`, and not `"raise"`.
pub(super) fn skips_errors(on_error: &str) -> Result<bool> {
    is_first("on_error", on_error, ["skip", "raise"])
}

/// Returns whether an argument is the first of its two values.
pub(super) fn is_first(name: &'static str, value: &str, [first, second]: [&str; 2]) -> Result<bool> {
    if value != first && value != second {
        return Err(Error::argument(name, format!("{first} or {second}"), value));
    }
    Ok(value == first)
}
