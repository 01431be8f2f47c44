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
///
/// >>> commit = archive.history()[0]
/// >>> commit.operation, commit.added_runs, commit.added_steps
/// ('ingest', 20, 29320)
#[pyclass(frozen, get_all, name = "CommitInfo", module = "a2store")]
pub(super) struct PyCommitInfo {
    /// The version that the commit created.
    version: u64,
    /// The time of the commit: a ``datetime.datetime`` in UTC, in milliseconds.
    time: Time,
    /// The operation that made the commit.
    operation: &'static str,
    /// The unique id of the commit: 32 hexadecimal digits.
    txn: String,
    /// The number of added runs. Their ids are ``next_run_id - added_runs .. next_run_id``.
    added_runs: u64,
    /// The number of added steps.
    added_steps: u64,
    /// The first run id that was unused after the commit.
    next_run_id: u64,
    /// The number of runs in the archive after the commit.
    num_runs: u64,
    /// The number of steps in the archive after the commit.
    num_steps: u64,
    /// The number of added data files.
    added_files: u64,
    /// The number of data files that the commit removed from the archive's list.
    removed_files: u64,
}

/// A time in RFC 3339, and a `datetime.datetime` in Python.
#[derive(Clone)]
struct Time(String);

impl<'py> IntoPyObject<'py> for Time {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("datetime")?.getattr("datetime")?.call_method1("fromisoformat", (self.0,))
    }
}

impl From<CommitInfo> for PyCommitInfo {
    fn from(report: CommitInfo) -> PyCommitInfo {
        PyCommitInfo {
            version: report.version,
            time: Time(report.time),
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
        let PyCommitInfo { version, time: Time(time), operation, added_runs, added_steps, .. } = self;
        format!("CommitInfo(version={version}, time={time}, {operation}: +{added_runs} runs, +{added_steps} steps)")
    }
}

/// A summary of an import of annotations.
///
/// >>> predictions = table.take_rows([0, 1, 2])[["run_id", "step_index"]]
/// >>> report = archive.annotate("model-v1", predictions, partial=True)
/// >>> report.num_rows, report.missing_steps
/// (3, 643)
#[pyclass(frozen, get_all, name = "AnnotateReport", module = "a2store")]
pub(super) struct PyAnnotateReport {
    /// The model.
    model: String,
    /// The number of annotated runs.
    num_runs: u64,
    /// The number of annotated steps.
    num_rows: u64,
    /// The number of steps of these runs without annotations.
    missing_steps: u64,
    /// The number of rows that were replaced.
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
///
/// >>> predictions = table.take_rows([0, 1, 2])[["run_id", "step_index"]]
/// >>> report = archive.annotate("model-v1", predictions, partial=True)
/// >>> model = archive.annotations()[0]
/// >>> model.model, model.num_rows, model.first_run_id
/// ('model-v1', 3, 0)
#[pyclass(frozen, get_all, name = "ModelInfo", module = "a2store")]
pub(super) struct PyModelInfo {
    /// The model.
    model: String,
    /// The number of annotated steps.
    num_rows: u64,
    /// The number of data files.
    num_files: u64,
    /// The size of the data files, in bytes.
    num_bytes: u64,
    /// The first annotated run.
    first_run_id: u32,
    /// The last annotated run.
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
///
/// >>> report = archive.export_runs("SELECT run_id FROM runs LIMIT 3", "out")
/// >>> report.runs, report.num_files
/// (3, 3)
#[pyclass(frozen, get_all, name = "ExportReport", module = "a2store")]
pub(super) struct PyExportReport {
    /// The written file or folder.
    path: PathBuf,
    /// The number of written runs.
    runs: u64,
    /// The number of steps of those runs.
    num_steps: u64,
    /// The number of run files; 1 for formats with several runs per file.
    num_files: u64,
    /// The runs and files that were skipped with ``on_error="skip"``, in order.
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
///
/// >>> report = archive.compact()
/// >>> report.files_before, report.files_after
/// (2, 2)
#[pyclass(frozen, get_all, name = "CompactReport", module = "a2store")]
pub(super) struct PyCompactReport {
    /// The number of data files before the compaction.
    files_before: u64,
    /// The number of data files after the compaction.
    files_after: u64,
    /// The size of the data files before the compaction, in bytes.
    bytes_before: u64,
    /// The size of the data files after the compaction, in bytes.
    bytes_after: u64,
    /// The number of rewritten rows in both tables.
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

/// A summary of what ``expire`` removed or, with ``dry_run``, would remove.
///
/// >>> report = archive.expire()
/// >>> report.first_version, report.num_versions
/// (1, 0)
#[pyclass(frozen, get_all, name = "ExpireReport", module = "a2store")]
pub(super) struct PyExpireReport {
    /// The oldest version that can still be opened.
    first_version: u64,
    /// The number of versions that expired.
    num_versions: u64,
    /// The number of removed data files.
    num_files: u64,
    /// The size of the removed data files in bytes.
    num_bytes: u64,
    /// The removed files, relative to the archive: data files and leftovers of interrupted writers.
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

/// The result of ``verify``.
///
/// >>> report = archive.verify()
/// >>> report.problems, report.num_commits, report.num_runs
/// ([], 2, 20)
#[pyclass(frozen, get_all, name = "VerifyReport", module = "a2store")]
pub(super) struct PyVerifyReport {
    /// The problems found; empty if the archive is intact.
    problems: Vec<PyProblem>,
    /// The newest version, or 0 if it cannot be read.
    version: u64,
    /// The number of commits read.
    num_commits: u64,
    /// The number of data files read, including files of older versions.
    num_files: u64,
    /// The size of the data files read, in bytes.
    num_bytes: u64,
    /// The number of runs at the newest version.
    num_runs: u64,
    /// The number of steps at the newest version.
    num_steps: u64,
    /// The number of data files that no kept version references. They are harmless, and ``expire`` removes them.
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
///
/// >>> from pathlib import Path
/// >>> Path(archive.files("runs")[0]).unlink()
/// >>> problem = archive.verify().problems[0]
/// >>> problem.what, problem.found
/// ('data file', 'damaged: data file: expected a file of ... bytes, found no file')
#[pyclass(frozen, get_all, skip_from_py_object, name = "Problem", module = "a2store")]
#[derive(Clone)]
pub(super) struct PyProblem {
    /// The file, relative to the archive.
    path: String,
    /// The run with the problem, if it concerns one run.
    run_id: Option<u32>,
    /// The property that is wrong.
    what: String,
    /// The value that the rest of the archive requires.
    expected: String,
    /// The value that was found.
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

/// A summary of what a repair did or, with ``dry_run``, would do.
///
/// >>> report = a2store.repair("games.a2")
/// >>> report.version, report.steps, report.done
/// (2, [], False)
#[pyclass(frozen, get_all, name = "RepairReport", module = "a2store")]
pub(super) struct PyRepairReport {
    /// The last intact version, from which the archive continues.
    version: u64,
    /// The steps of the repair, in order; empty if there is nothing to repair.
    steps: Vec<PyRepair>,
    /// Whether the steps were carried out.
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
///
/// >>> from pathlib import Path
/// >>> _ = Path("games.a2/_log/00000000000000000002.json").write_text("{}")
/// >>> step = a2store.repair("games.a2").steps[0]
/// >>> step.path
/// '_log/00000000000000000002.json'
/// >>> step.reason
/// 'damaged: end of the file: expected a checksum, found 2 bytes without a checksum'
#[pyclass(frozen, get_all, skip_from_py_object, name = "Repair", module = "a2store")]
#[derive(Clone)]
pub(super) struct PyRepair {
    /// The file, relative to the archive.
    path: String,
    /// The action on the file.
    action: String,
    /// The reason for the action.
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
///
/// >>> report = archive.ingest("runs")
/// >>> report.accepted, report.duplicates, report.rejected
/// (0, 20, 0)
#[pyclass(frozen, get_all, name = "IngestReport", module = "a2store")]
pub(super) struct PyIngestReport {
    /// The number of added runs.
    accepted: u64,
    /// The number of skipped runs, which were already in the archive or occurred earlier in the input.
    duplicates: u64,
    /// The number of twins: new runs with the same boards as another run.
    ///
    /// ``on_twin`` of ``ingest`` decides whether they are added.
    twins: u64,
    /// The number of runs, and of whole files, that could not be read. Each is listed in ``errors``.
    rejected: u64,
    /// The files in folders that were skipped because their content is unknown, as paths.
    ///
    /// With ``on_error="raise"``, such a file is an error.
    ignored: Vec<PathBuf>,
    /// The number of added steps.
    num_steps: u64,
    /// The size of the input files, in bytes.
    num_bytes: u64,
    /// The runs and files that could not be read or decoded, in the order of the paths.
    errors: Vec<PyRejected>,
}

/// A run, or a whole file, that an ingest rejected or ``on_error="skip"`` skipped, with the reason.
///
/// >>> from pathlib import Path
/// >>> _ = Path("damaged.a2run2").write_bytes(Path("runs/run-00000.a2run2").read_bytes()[:-100])
/// >>> rejected = archive.ingest("damaged.a2run2").errors[0]
/// >>> rejected.path, rejected.kind
/// (PosixPath('damaged.a2run2'), 'decode')
/// >>> rejected.message
/// 'byte 18969 (step 642): value of a branch: expected 4 bytes, found 3 before the end'
#[pyclass(frozen, get_all, skip_from_py_object, name = "Rejected", module = "a2store")]
#[derive(Clone)]
pub(super) struct PyRejected {
    /// The file; the folder of a dataset, a session or a pack if no single file is wrong.
    path: PathBuf,
    /// The position of the failure in the file, in bytes from its start, if known.
    offset: Option<u64>,
    /// The index of the rejected run in its file, from 0; ``None`` = the whole file, or the only run in it.
    run: Option<u64>,
    /// The step of the run with the failure, from 0, if known.
    step: Option<u64>,
    /// A short name of the failure: ``"decode"``, ``"checksum"``, ``"header"`` or ``"io"``.
    kind: &'static str,
    /// The failure and its place, in one line, without the path.
    message: String,
}

impl From<&Rejected> for PyRejected {
    fn from(rejected: &Rejected) -> PyRejected {
        let location = rejected.error.location();
        PyRejected {
            path: rejected.path.clone(),
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
            twins: report.twins,
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
        format!("Rejected({}: {})", self.path.display(), self.message)
    }
}
