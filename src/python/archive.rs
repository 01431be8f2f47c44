//! Archives, `a2store.Archive`, and functions over archives and runs.

use super::arrow::ArrowSchema;
use super::interrupt::{abandonable, interruptible};
use super::planned::PyQuery;
use super::reports::{
    PyAnnotateReport, PyCommitInfo, PyCompactReport, PyExpireReport, PyExportReport, PyIngestReport, PyModelInfo,
    PyRepairReport, PyVerifyReport, skips_errors,
};
use super::sql::{LimitArguments, batches_of, named_params};
use super::values::{is_path, params as bound_params, paths_from};
use crate::archive::{
    AnnotateOptions, AnnotationInput, Archive, CompactOptions, ExpireOptions, IngestOptions, OnError, Phases,
    TableName, VerifyOptions,
};
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::export::{ExportOptions, convert as convert_runs};
use crate::progress::Progress;
use crate::query::{QueryOptions, SavedQuery};
use arrow::compute::concat_batches;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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
        // A thread holds this lock only briefly, and never while it waits for the interpreter's lock.
        self.archive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn archive(&self) -> Archive {
        self.lock().clone()
    }

    /// Does work that may make a new version, and moves to that version.
    fn change<T: Send>(
        &self,
        py: Python<'_>,
        progress: Option<bool>,
        work: impl FnOnce(&mut Archive, &dyn Progress, &CancellationToken) -> Result<T> + Send,
    ) -> PyResult<T> {
        let before = self.archive();
        let mut archive = before.clone();
        let value = interruptible(py, progress, |progress, cancel| work(&mut archive, progress, cancel))?;
        self.move_on(&before, archive);
        Ok(value)
    }

    /// Replaces `before` with `archive`, unless another thread has moved to a later version.
    fn move_on(&self, before: &Archive, archive: Archive) {
        let mut current = self.lock();
        // After a repair the newest version can have a lower number.
        if Arc::ptr_eq(current.snapshot(), before.snapshot()) || archive.version() > current.version() {
            *current = archive;
        }
    }
}

#[pyfunction]
#[pyo3(signature = (path, *, deep=false, workers=None, progress=None))]
pub(super) fn verify(
    py: Python<'_>,
    path: PathBuf,
    deep: bool,
    workers: Option<usize>,
    progress: Option<bool>,
) -> PyResult<PyVerifyReport> {
    let options = VerifyOptions { deep, workers };
    Ok(abandonable(py, progress, move |progress, cancel| Archive::verify(path, &options, progress, cancel))?.into())
}

#[pyfunction]
#[pyo3(signature = (path, *, dry_run=true))]
pub(super) fn repair(py: Python<'_>, path: PathBuf, dry_run: bool) -> PyResult<PyRepairReport> {
    let repair =
        move |_: &dyn Progress, cancel: &CancellationToken| Archive::repair_unless_cancelled(path, dry_run, cancel);
    let report = if dry_run { abandonable(py, Some(false), repair) } else { interruptible(py, Some(false), repair) };
    Ok(report?.into())
}

/// Reads runs of any format and writes them in another, without an archive.
#[pyfunction]
#[pyo3(signature = (
    paths, out, *, format, append=false, by_step=false, compact=false, compress="none", align=None, shard_rows=None,
    moves=None, workers=None, progress=None, on_error="raise"
))]
#[allow(clippy::needless_pass_by_value, clippy::too_many_arguments)] // The shape that pyo3 asks for.
pub(super) fn convert(
    py: Python<'_>,
    paths: &Bound<'_, PyAny>,
    out: PathBuf,
    format: &str,
    append: bool,
    by_step: bool,
    compact: bool,
    compress: &str,
    align: Option<u32>,
    shard_rows: Option<u64>,
    moves: Option<bool>,
    workers: Option<usize>,
    progress: Option<bool>,
    on_error: &str,
) -> PyResult<PyExportReport> {
    let paths = paths_from(paths)?;
    let mut options = ExportOptions::new(format.parse()?).with_skip_errors(skips_errors(on_error)?);
    (options.by_step, options.compact, options.compression) = (by_step, compact, compress.parse()?);
    (options.align, options.shard_rows, options.append) = (align, shard_rows, append);
    (options.moves, options.workers) = (moves, workers);
    let report =
        interruptible(py, progress, |progress, cancel| convert_runs(&paths, &out, &options, progress, cancel))?;
    Ok(report.into())
}

/// Converts a number of seconds or a `datetime.timedelta`.
fn duration(name: &'static str, value: Option<&Bound<'_, PyAny>>, default: Duration) -> PyResult<Duration> {
    let Some(value) = value else { return Ok(default) };
    let secs: f64 = match value.call_method0("total_seconds") {
        Ok(secs) => secs.extract()?,
        Err(_) => value.extract().map_err(|_| {
            PyTypeError::new_err(format!("{name}: expected a number of seconds or a datetime.timedelta"))
        })?,
    };
    Duration::try_from_secs_f64(secs)
        .map_err(|_| PyValueError::new_err(format!("{name}: expected a duration of at least 0 s, found {secs} s")))
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
        let create =
            move |_: &dyn Progress, cancel: &CancellationToken| Archive::create_unless_cancelled(path, phases, cancel);
        Ok(PyArchive::new(abandonable(py, Some(false), create)?))
    }

    #[classmethod]
    #[pyo3(signature = (path, *, version=None, checksums=None))]
    fn open(
        _cls: &Bound<'_, PyType>,
        py: Python<'_>,
        path: PathBuf,
        version: Option<u64>,
        checksums: Option<bool>,
    ) -> PyResult<PyArchive> {
        let archive = abandonable(py, Some(false), move |_, _| match version {
            Some(version) => Archive::open_at(path, version),
            None => Archive::open(path),
        })?;
        let checksums = checksums.unwrap_or(archive.has_checksums());
        Ok(PyArchive::new(archive.with_checksums(checksums)))
    }

    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        let before = self.archive();
        let mut archive = before.clone();
        let archive = abandonable(py, Some(false), move |_, _| archive.refresh().map(|()| archive))?;
        self.move_on(&before, archive);
        Ok(())
    }

    #[pyo3(signature = (paths, *, workers=None, progress=None, on_error="report", wait=None))]
    fn ingest(
        &self,
        py: Python<'_>,
        paths: &Bound<'_, PyAny>,
        workers: Option<usize>,
        progress: Option<bool>,
        on_error: &str,
        wait: Option<&Bound<'_, PyAny>>,
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
        let options = IngestOptions { workers, wait: duration("wait", wait, IngestOptions::default().wait)?, on_error };
        let paths = paths_from(paths)?;
        let report =
            self.change(py, progress, |archive, progress, cancel| archive.ingest(&paths, &options, progress, cancel))?;
        Ok(report.into())
    }

    #[pyo3(signature = (
        model, annotations, *, source=None, replace=false, partial=false, dry_run=false, progress=None, wait=None
    ))]
    #[allow(clippy::too_many_arguments)] // The shape that pyo3 asks for.
    fn annotate(
        &self,
        py: Python<'_>,
        model: &str,
        annotations: &Bound<'_, PyAny>,
        source: Option<PathBuf>,
        replace: bool,
        partial: bool,
        dry_run: bool,
        progress: Option<bool>,
        wait: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyAnnotateReport> {
        let wait = duration("wait", wait, AnnotateOptions::default().wait)?;
        let options = AnnotateOptions { source, replace, partial, dry_run, wait };
        let report = if is_path(annotations)? {
            let folder: PathBuf = annotations.extract()?;
            self.change(py, progress, |archive, progress, cancel| {
                archive.annotate(model, AnnotationInput::Folder(&folder), &options, progress, cancel)
            })?
        } else {
            let (schema, batches) = batches_of(("annotations", "a folder's path"), model, annotations)?;
            self.change(py, progress, |archive, progress, cancel| {
                let rows = concat_batches(&schema, &batches).map_err(Error::other)?;
                archive.annotate(model, AnnotationInput::Rows(&rows), &options, progress, cancel)
            })?
        };
        Ok(report.into())
    }

    #[pyo3(signature = (model, *, wait=None))]
    fn drop_annotations(&self, py: Python<'_>, model: &str, wait: Option<&Bound<'_, PyAny>>) -> PyResult<PyModelInfo> {
        let default = AnnotateOptions::default();
        let options = AnnotateOptions { wait: duration("wait", wait, default.wait)?, ..default };
        let drop = |archive: &mut Archive, _: &dyn Progress, cancel: &CancellationToken| {
            archive.drop_annotations(model, &options, cancel)
        };
        Ok(self.change(py, Some(false), drop)?.into())
    }

    fn annotations(&self) -> Vec<PyModelInfo> {
        self.lock().annotations().into_iter().map(PyModelInfo::from).collect()
    }

    #[pyo3(signature = (*, file_rows=None, workers=None, progress=None, wait=None))]
    fn compact(
        &self,
        py: Python<'_>,
        file_rows: Option<u64>,
        workers: Option<usize>,
        progress: Option<bool>,
        wait: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyCompactReport> {
        let default = CompactOptions::default();
        let (file_rows, wait) = (file_rows.unwrap_or(default.file_rows), duration("wait", wait, default.wait)?);
        let options = CompactOptions { file_rows, workers, wait };
        Ok(self.change(py, progress, |archive, progress, cancel| archive.compact(&options, progress, cancel))?.into())
    }

    #[pyo3(signature = (*, older_than=None, grace=None, dry_run=false, wait=None))]
    fn expire(
        &self,
        py: Python<'_>,
        older_than: Option<&Bound<'_, PyAny>>,
        grace: Option<&Bound<'_, PyAny>>,
        dry_run: bool,
        wait: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyExpireReport> {
        let default = ExpireOptions::default();
        let older_than = duration("older_than", older_than, default.older_than)?;
        let grace = duration("grace", grace, default.grace)?;
        let options = ExpireOptions { older_than, grace, dry_run, wait: duration("wait", wait, default.wait)? };
        Ok(self.change(py, Some(false), |archive, _, cancel| archive.expire(&options, cancel))?.into())
    }

    #[pyo3(signature = (*, deep=false, workers=None, progress=None))]
    fn verify(
        &self,
        py: Python<'_>,
        deep: bool,
        workers: Option<usize>,
        progress: Option<bool>,
    ) -> PyResult<PyVerifyReport> {
        verify(py, self.lock().path().to_path_buf(), deep, workers, progress)
    }

    #[getter]
    fn location(&self) -> String {
        self.lock().path().to_string_lossy().into_owned()
    }

    #[getter]
    fn path(&self) -> PyResult<PathBuf> {
        let path = self.lock().path().to_path_buf();
        // A pathlib.Path would merge the two slashes of a URL.
        match path.to_str().filter(|path| path.contains("://")) {
            Some(url) => Err(PyValueError::new_err(format!(
                "path: expected an archive in a folder, found {url}; use `location`"
            ))),
            None => Ok(path),
        }
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

    #[pyo3(signature = (
        query, params=None, *, tables=None, memory_limit=None, spill_limit=None, spill_folder=None, row_limit=None,
        byte_limit=None, time_limit=None
    ))]
    #[allow(clippy::too_many_arguments)] // The shape that pyo3 asks for.
    fn sql(
        &self,
        py: Python<'_>,
        query: &str,
        params: Option<&Bound<'_, PyAny>>,
        tables: Option<&Bound<'_, PyDict>>,
        memory_limit: Option<i128>,
        spill_limit: Option<i128>,
        spill_folder: Option<PathBuf>,
        row_limit: Option<i128>,
        byte_limit: Option<i128>,
        time_limit: Option<f64>,
    ) -> PyResult<PyQuery> {
        let params = bound_params(params)?;
        let limits = LimitArguments { memory_limit, spill_limit, spill_folder, row_limit, byte_limit, time_limit };
        let options = limits.options(tables)?;
        let archive = self.archive();
        let planned =
            interruptible(py, Some(false), |_, cancel| archive.sql_unless_cancelled(query, params, &options, cancel));
        Ok(PyQuery { query: planned? })
    }

    #[pyo3(signature = (
        name, /, *, folder=None, tables=None, memory_limit=None, spill_limit=None, spill_folder=None, row_limit=None,
        byte_limit=None, time_limit=None, **params
    ))]
    #[allow(clippy::needless_pass_by_value, clippy::too_many_arguments)] // The shape that pyo3 asks for.
    fn query(
        &self,
        py: Python<'_>,
        name: &str,
        folder: Option<PathBuf>,
        tables: Option<&Bound<'_, PyDict>>,
        memory_limit: Option<i128>,
        spill_limit: Option<i128>,
        spill_folder: Option<PathBuf>,
        row_limit: Option<i128>,
        byte_limit: Option<i128>,
        time_limit: Option<f64>,
        params: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyQuery> {
        let params = named_params(params)?;
        let limits = LimitArguments { memory_limit, spill_limit, spill_folder, row_limit, byte_limit, time_limit };
        let options = limits.options(tables)?;
        let archive = self.archive();
        let planned = interruptible(py, Some(false), |_, cancel| {
            let query = SavedQuery::find(name, folder.as_deref())?;
            archive.query_unless_cancelled(&query, params, &options, cancel)
        });
        Ok(PyQuery { query: planned? })
    }

    #[pyo3(signature = (
        query, out, *, format="original", params=None, by_step=false, compact=false, compress="none", align=None,
        shard_rows=None, moves=None, append=false, workers=None, progress=None
    ))]
    #[allow(clippy::needless_pass_by_value, clippy::too_many_arguments)] // The shape that pyo3 asks for.
    fn export_runs(
        &self,
        py: Python<'_>,
        query: &str,
        out: PathBuf,
        format: &str,
        params: Option<&Bound<'_, PyAny>>,
        by_step: bool,
        compact: bool,
        compress: &str,
        align: Option<u32>,
        shard_rows: Option<u64>,
        moves: Option<bool>,
        append: bool,
        workers: Option<usize>,
        progress: Option<bool>,
    ) -> PyResult<PyExportReport> {
        let params = bound_params(params)?;
        let archive = self.archive();
        let mut options = ExportOptions::new(format.parse()?);
        (options.by_step, options.compact, options.compression) = (by_step, compact, compress.parse()?);
        (options.align, options.shard_rows, options.append) = (align, shard_rows, append);
        (options.moves, options.workers) = (moves, workers);
        let report = interruptible(py, progress, |progress, cancel| {
            let query = archive.sql_unless_cancelled(query, params, &QueryOptions::default(), cancel)?;
            query.export_runs(&out, &options, progress, cancel)
        })?;
        Ok(report.into())
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
