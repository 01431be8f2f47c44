use super::arrow::ArrowSchema;
use super::interrupt::interruptible;
use super::query::PyQuery;
use super::values::params as bound_params;
use crate::archive::{Archive, CommitInfo, IngestOptions, IngestReport, OnError, Phases, TableName};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyType};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A growing collection of runs, seen at one version.
#[pyclass(frozen, name = "Archive", module = "a2store")]
pub(super) struct PyArchive {
    archive: Mutex<Archive>,
}

impl PyArchive {
    fn new(archive: Archive) -> PyArchive {
        PyArchive { archive: Mutex::new(archive) }
    }

    fn lock(&self) -> MutexGuard<'_, Archive> {
        // Held for an instant at a time, and never while Python's lock is waited for.
        self.archive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn archive(&self) -> Archive {
        self.lock().clone()
    }
}

#[pymethods]
impl PyArchive {
    #[classmethod]
    #[pyo3(signature = (path, *, phases=None))]
    fn create(
        _cls: &Bound<'_, PyType>,
        py: Python<'_>,
        path: PathBuf,
        phases: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyArchive> {
        let phases = phases.map_or_else(|| Ok(Phases::default()), phases_from)?;
        Ok(PyArchive::new(py.detach(|| Archive::create(path, phases))?))
    }

    #[classmethod]
    #[pyo3(signature = (path, *, version=None))]
    fn open(_cls: &Bound<'_, PyType>, py: Python<'_>, path: PathBuf, version: Option<u64>) -> PyResult<PyArchive> {
        let archive = py.detach(|| match version {
            Some(version) => Archive::open_at(path, version),
            None => Archive::open(path),
        })?;
        Ok(PyArchive::new(archive))
    }

    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        let mut archive = self.archive();
        py.detach(|| archive.refresh())?;
        *self.lock() = archive;
        Ok(())
    }

    #[pyo3(signature = (paths, *, workers=None, progress=None, on_error="report"))]
    fn ingest(
        &self,
        py: Python<'_>,
        paths: &Bound<'_, PyAny>,
        workers: Option<usize>,
        progress: Option<bool>,
        on_error: &str,
    ) -> PyResult<PyIngestReport> {
        let on_error = match on_error {
            "report" => OnError::Report,
            "raise" => OnError::Raise,
            other => {
                return Err(PyValueError::new_err(format!(
                    "on_error: expected \"report\" or \"raise\", found {other:?}"
                )));
            }
        };
        let options = IngestOptions { workers, on_error };
        let paths = paths_from(paths)?;
        let mut archive = self.archive();
        let report = interruptible(py, progress, |progress| archive.ingest(&paths, &options, progress))?;
        {
            let mut current = self.lock();
            if archive.version() > current.version() {
                *current = archive;
            }
        }
        PyIngestReport::new(py, &report)
    }

    #[getter]
    fn path(&self) -> PathBuf {
        self.lock().path().to_path_buf()
    }

    #[getter]
    fn version(&self) -> u64 {
        self.lock().version()
    }

    #[getter]
    fn num_runs(&self) -> u64 {
        self.lock().num_runs()
    }

    #[getter]
    fn num_steps(&self) -> u64 {
        self.lock().num_steps()
    }

    #[getter]
    fn phases<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let phases = self.lock().phases();
        let dict = PyDict::new(py);
        dict.set_item("mid", phases.mid)?;
        dict.set_item("late", phases.late)?;
        Ok(dict)
    }

    #[pyo3(signature = (table="steps"))]
    fn schema(&self, table: &str) -> PyResult<ArrowSchema> {
        let table: TableName = table.parse()?;
        Ok(ArrowSchema { schema: self.lock().schema(table) })
    }

    fn history(&self) -> Vec<PyCommitInfo> {
        self.lock().history().into_iter().map(PyCommitInfo::from).collect()
    }

    #[pyo3(signature = (table="steps"))]
    fn files(&self, table: &str) -> PyResult<Vec<String>> {
        let table: TableName = table.parse()?;
        Ok(self.lock().files(table).into_iter().map(|path| path.to_string_lossy().into_owned()).collect())
    }

    #[pyo3(signature = (query, params=None))]
    fn sql(&self, py: Python<'_>, query: &str, params: Option<&Bound<'_, PyAny>>) -> PyResult<PyQuery> {
        let params = bound_params(params)?;
        let archive = self.archive();
        Ok(PyQuery::new(py.detach(|| archive.sql(query, params))?))
    }

    fn __repr__(&self) -> String {
        let archive = self.lock();
        let (path, version) = (archive.path().display(), archive.version());
        format!(
            "Archive({path}, version={version}, num_runs={}, num_steps={})",
            archive.num_runs(),
            archive.num_steps()
        )
    }
}

fn phases_from(dict: &Bound<'_, PyDict>) -> PyResult<Phases> {
    let mut phases = Phases::default();
    for (name, tile) in dict {
        let name: String = name.extract()?;
        match name.as_str() {
            "mid" => phases.mid = tile.extract()?,
            "late" => phases.late = tile.extract()?,
            other => {
                return Err(PyValueError::new_err(format!("phases: expected \"mid\" and \"late\", found {other:?}")));
            }
        }
    }
    Ok(phases)
}

/// One path, or any iterable of them.
fn paths_from(paths: &Bound<'_, PyAny>) -> PyResult<Vec<PathBuf>> {
    if paths.is_instance_of::<PyString>() || paths.hasattr("__fspath__")? {
        return Ok(vec![paths.extract()?]);
    }
    if paths.is_instance_of::<PyBytes>() {
        return Err(PyTypeError::new_err("paths: expected a str or os.PathLike, found bytes"));
    }
    match paths.try_iter() {
        Ok(paths) => paths.map(|path| path?.extract()).collect(),
        Err(_) => Err(PyTypeError::new_err("paths: expected a path or an iterable of paths")),
    }
}

/// One line of an archive's history.
#[pyclass(frozen, get_all, name = "CommitInfo", module = "a2store")]
pub(super) struct PyCommitInfo {
    version: u64,
    time: String,
    operation: String,
    added_runs: u64,
    added_steps: u64,
    num_runs: u64,
    num_steps: u64,
}

impl From<CommitInfo> for PyCommitInfo {
    fn from(info: CommitInfo) -> PyCommitInfo {
        PyCommitInfo {
            version: info.version,
            time: info.time,
            operation: format!("{:?}", info.operation).to_lowercase(),
            added_runs: info.added_runs,
            added_steps: info.added_steps,
            num_runs: info.num_runs,
            num_steps: info.num_steps,
        }
    }
}

#[pymethods]
impl PyCommitInfo {
    fn __repr__(&self) -> String {
        let PyCommitInfo { version, time, operation, added_runs, added_steps, .. } = self;
        format!("CommitInfo(version={version}, time={time}, {operation}: +{added_runs} runs, +{added_steps} steps)")
    }
}

/// What an ingest did.
#[pyclass(frozen, get_all, name = "IngestReport", module = "a2store")]
pub(super) struct PyIngestReport {
    accepted: u64,
    duplicates: u64,
    rejected: u64,
    ignored: u64,
    num_steps: u64,
    num_bytes: u64,
    errors: Vec<Py<PyRejected>>,
}

/// A file that did not decode.
#[pyclass(frozen, get_all, name = "Rejected", module = "a2store")]
pub(super) struct PyRejected {
    path: String,
    offset: Option<u64>,
    run: Option<u64>,
    step: Option<u64>,
    kind: &'static str,
    message: String,
}

impl PyIngestReport {
    fn new(py: Python<'_>, report: &IngestReport) -> PyResult<PyIngestReport> {
        let rejected = report.errors.iter().map(|rejected| {
            let location = rejected.error.location();
            Py::new(
                py,
                PyRejected {
                    path: rejected.path.to_string_lossy().into_owned(),
                    offset: location.and_then(|location| location.offset),
                    // These formats hold one run a file.
                    run: None,
                    step: location.and_then(|location| location.step),
                    kind: rejected.error.kind_name(),
                    message: rejected.error.message(),
                },
            )
        });
        Ok(PyIngestReport {
            accepted: report.accepted,
            duplicates: report.duplicates,
            rejected: report.rejected,
            ignored: report.ignored,
            num_steps: report.num_steps,
            num_bytes: report.num_bytes,
            errors: rejected.collect::<PyResult<_>>()?,
        })
    }
}

#[pymethods]
impl PyIngestReport {
    fn __repr__(&self) -> String {
        let PyIngestReport { accepted, duplicates, rejected, num_steps, .. } = self;
        format!(
            "IngestReport(accepted={accepted}, duplicates={duplicates}, rejected={rejected}, num_steps={num_steps})"
        )
    }
}

#[pymethods]
impl PyRejected {
    fn __repr__(&self) -> String {
        format!("Rejected({}: {})", self.path, self.message)
    }
}
