//! Reports of operations on an archive.

use crate::archive::{
    AnnotateReport, CommitInfo, CompactReport, ExpireReport, IngestReport, ModelInfo, Problem, Rejected, Repair,
    RepairReport, VerifyReport,
};
use crate::error::{Error, Result};
use crate::export::ExportReport;
use pyo3::prelude::*;
use std::path::PathBuf;

/// One commit in an archive's history.
#[pyclass(frozen, get_all, name = "CommitInfo", module = "a2store")]
pub(super) struct PyCommitInfo {
    version: u64,
    time: String,
    operation: &'static str,
    txn: String,
    added_runs: u64,
    added_steps: u64,
    next_run_id: u64,
    num_runs: u64,
    num_steps: u64,
    added_files: u64,
    removed_files: u64,
}

impl From<CommitInfo> for PyCommitInfo {
    fn from(report: CommitInfo) -> PyCommitInfo {
        PyCommitInfo {
            version: report.version,
            time: report.time,
            operation: report.operation.name(),
            txn: report.txn,
            added_runs: report.added_runs,
            added_steps: report.added_steps,
            next_run_id: report.next_run_id,
            num_runs: report.num_runs,
            num_steps: report.num_steps,
            added_files: report.added_files,
            removed_files: report.removed_files,
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

/// A summary of an import of annotations.
#[pyclass(frozen, get_all, name = "AnnotateReport", module = "a2store")]
pub(super) struct PyAnnotateReport {
    model: String,
    num_runs: u64,
    num_rows: u64,
    missing_steps: u64,
    replaced_rows: u64,
}

impl From<AnnotateReport> for PyAnnotateReport {
    fn from(report: AnnotateReport) -> PyAnnotateReport {
        let AnnotateReport { model, num_runs, num_rows, missing_steps, replaced_rows, .. } = report;
        PyAnnotateReport { model, num_runs, num_rows, missing_steps, replaced_rows }
    }
}

#[pymethods]
impl PyAnnotateReport {
    fn __repr__(&self) -> String {
        let PyAnnotateReport { model, num_runs, num_rows, .. } = self;
        format!("AnnotateReport({model:?}, num_runs={num_runs}, num_rows={num_rows})")
    }
}

/// The annotations of a model.
#[pyclass(frozen, get_all, name = "ModelInfo", module = "a2store")]
pub(super) struct PyModelInfo {
    model: String,
    num_rows: u64,
    num_files: u64,
    num_bytes: u64,
    first_run_id: u32,
    last_run_id: u32,
}

impl From<ModelInfo> for PyModelInfo {
    fn from(info: ModelInfo) -> PyModelInfo {
        let ModelInfo { model, num_rows, num_files, num_bytes, first_run_id, last_run_id, .. } = info;
        PyModelInfo { model, num_rows, num_files, num_bytes, first_run_id, last_run_id }
    }
}

#[pymethods]
impl PyModelInfo {
    fn __repr__(&self) -> String {
        let PyModelInfo { model, num_rows, first_run_id, last_run_id, .. } = self;
        format!("ModelInfo({model:?}, num_rows={num_rows}, runs {first_run_id}..={last_run_id})")
    }
}

/// A summary of an export.
#[pyclass(frozen, get_all, name = "ExportReport", module = "a2store")]
pub(super) struct PyExportReport {
    path: PathBuf,
    runs: u64,
    num_steps: u64,
    num_files: u64,
    errors: Vec<PyRejected>,
}

impl From<ExportReport> for PyExportReport {
    fn from(report: ExportReport) -> PyExportReport {
        let ExportReport { path, runs, num_steps, num_files, errors, .. } = report;
        PyExportReport { path, runs, num_steps, num_files, errors: errors.iter().map(PyRejected::from).collect() }
    }
}

#[pymethods]
impl PyExportReport {
    fn __repr__(&self) -> String {
        let PyExportReport { path, runs, num_steps, .. } = self;
        format!("ExportReport({path:?}, runs={runs}, num_steps={num_steps})")
    }
}

/// A summary of a compaction.
#[pyclass(frozen, get_all, name = "CompactReport", module = "a2store")]
pub(super) struct PyCompactReport {
    files_before: u64,
    files_after: u64,
    bytes_before: u64,
    bytes_after: u64,
    num_rows: u64,
}

impl From<CompactReport> for PyCompactReport {
    fn from(report: CompactReport) -> PyCompactReport {
        let CompactReport { files_before, files_after, bytes_before, bytes_after, num_rows, .. } = report;
        PyCompactReport { files_before, files_after, bytes_before, bytes_after, num_rows }
    }
}

#[pymethods]
impl PyCompactReport {
    fn __repr__(&self) -> String {
        let PyCompactReport { files_before, files_after, num_rows, .. } = self;
        format!("CompactReport(files_before={files_before}, files_after={files_after}, num_rows={num_rows})")
    }
}

/// A summary of expired versions and removed files.
#[pyclass(frozen, get_all, name = "ExpireReport", module = "a2store")]
pub(super) struct PyExpireReport {
    first_version: u64,
    num_versions: u64,
    num_files: u64,
    num_bytes: u64,
    paths: Vec<String>,
}

impl From<ExpireReport> for PyExpireReport {
    fn from(report: ExpireReport) -> PyExpireReport {
        let ExpireReport { first_version, num_versions, num_files, num_bytes, paths, .. } = report;
        PyExpireReport { first_version, num_versions, num_files, num_bytes, paths }
    }
}

#[pymethods]
impl PyExpireReport {
    fn __repr__(&self) -> String {
        let PyExpireReport { first_version, num_versions, num_files, .. } = self;
        format!("ExpireReport(first_version={first_version}, num_versions={num_versions}, num_files={num_files})")
    }
}

/// The result of a verification.
#[pyclass(frozen, get_all, name = "VerifyReport", module = "a2store")]
pub(super) struct PyVerifyReport {
    problems: Vec<PyProblem>,
    version: u64,
    num_commits: u64,
    num_files: u64,
    num_bytes: u64,
    num_runs: u64,
    num_steps: u64,
    unnamed_files: u64,
}

impl From<VerifyReport> for PyVerifyReport {
    fn from(report: VerifyReport) -> PyVerifyReport {
        PyVerifyReport {
            problems: report.problems.into_iter().map(PyProblem::from).collect(),
            version: report.version,
            num_commits: report.num_commits,
            num_files: report.num_files,
            num_bytes: report.num_bytes,
            num_runs: report.num_runs,
            num_steps: report.num_steps,
            unnamed_files: report.unnamed_files,
        }
    }
}

#[pymethods]
impl PyVerifyReport {
    fn __repr__(&self) -> String {
        let PyVerifyReport { problems, version, num_files, num_runs, .. } = self;
        format!(
            "VerifyReport({} problems, version={version}, num_files={num_files}, num_runs={num_runs})",
            problems.len()
        )
    }
}

/// A problem in an archive.
#[pyclass(frozen, get_all, skip_from_py_object, name = "Problem", module = "a2store")]
#[derive(Clone)]
pub(super) struct PyProblem {
    path: String,
    run_id: Option<u32>,
    what: String,
    expected: String,
    found: String,
}

impl From<Problem> for PyProblem {
    fn from(report: Problem) -> PyProblem {
        let Problem { path, run_id, what, expected, found, .. } = report;
        PyProblem { path, run_id, what, expected, found }
    }
}

#[pymethods]
impl PyProblem {
    fn __repr__(&self) -> String {
        let PyProblem { path, what, expected, found, .. } = self;
        format!("Problem({path}: {what}: expected {expected}, found {found})")
    }
}

/// A summary of what a repair did, or would do.
#[pyclass(frozen, get_all, name = "RepairReport", module = "a2store")]
pub(super) struct PyRepairReport {
    version: u64,
    steps: Vec<PyRepair>,
    done: bool,
}

impl From<RepairReport> for PyRepairReport {
    fn from(report: RepairReport) -> PyRepairReport {
        PyRepairReport {
            version: report.version,
            steps: report.steps.into_iter().map(PyRepair::from).collect(),
            done: report.done,
        }
    }
}

#[pymethods]
impl PyRepairReport {
    fn __repr__(&self) -> String {
        format!("RepairReport(version={}, {} steps, done={})", self.version, self.steps.len(), self.done)
    }
}

/// One step of a repair.
#[pyclass(frozen, get_all, skip_from_py_object, name = "Repair", module = "a2store")]
#[derive(Clone)]
pub(super) struct PyRepair {
    path: String,
    action: String,
    reason: String,
}

impl From<Repair> for PyRepair {
    fn from(report: Repair) -> PyRepair {
        PyRepair { path: report.path, action: report.action, reason: report.reason }
    }
}

#[pymethods]
impl PyRepair {
    fn __repr__(&self) -> String {
        format!("Repair({}: {} ({}))", self.path, self.action, self.reason)
    }
}

/// A summary of an ingest.
#[pyclass(frozen, get_all, name = "IngestReport", module = "a2store")]
pub(super) struct PyIngestReport {
    accepted: u64,
    duplicates: u64,
    rejected: u64,
    ignored: u64,
    num_steps: u64,
    num_bytes: u64,
    errors: Vec<PyRejected>,
}

/// A run or a file that could not be read.
#[pyclass(frozen, get_all, skip_from_py_object, name = "Rejected", module = "a2store")]
#[derive(Clone)]
pub(super) struct PyRejected {
    path: String,
    offset: Option<u64>,
    run: Option<u64>,
    step: Option<u64>,
    kind: &'static str,
    message: String,
}

impl From<&Rejected> for PyRejected {
    fn from(rejected: &Rejected) -> PyRejected {
        let location = rejected.error.location();
        PyRejected {
            path: rejected.path.to_string_lossy().into_owned(),
            offset: location.and_then(|location| location.offset),
            run: location.and_then(|location| location.run),
            step: location.and_then(|location| location.step),
            kind: rejected.error.kind_name(),
            message: rejected.message(),
        }
    }
}

impl From<IngestReport> for PyIngestReport {
    fn from(report: IngestReport) -> PyIngestReport {
        PyIngestReport {
            accepted: report.accepted,
            duplicates: report.duplicates,
            rejected: report.rejected,
            ignored: report.ignored,
            num_steps: report.num_steps,
            num_bytes: report.num_bytes,
            errors: report.errors.iter().map(PyRejected::from).collect(),
        }
    }
}

/// Returns whether `on_error` is `"skip"`.
pub(super) fn skips_errors(on_error: &str) -> Result<bool> {
    match on_error {
        "skip" => Ok(true),
        "raise" => Ok(false),
        other => Err(Error::argument("on_error", "skip or raise", other)),
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
