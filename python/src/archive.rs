//! Archives, `a2store.Archive`, and functions over archives and runs.

use super::query_call::PyQuery;
use super::run::PyRun;
use super::sql::{LimitArguments, batches_of, named_params};
use super::view::{PyView, view};
use crate::error::{OrRaise, raised};
use crate::support::arrow::{ArrowBatch, ArrowSchema};
use crate::support::integers::{Bounded, Positive, U16, U32, U64, Workers};
use crate::support::interpreter::detached;
use crate::support::interrupt::{abandonable, cancellable, interruptible};
use crate::support::progress::{HIDDEN, ProgressOption};
use crate::support::results::{IntoInstance, instances, is_first, skips_errors};
use crate::support::values::{is_path, location, params as bound_params, paths_from, seconds};
use a2store::archive::{
    AnnotateOptions, AnnotationInput, Archive, CompactOptions, ExpireOptions, IngestOptions, Phases, StorageOptions,
    TableName, VersionName,
};
use a2store::error::{Error, Result};
use a2store::export::{ExportOptions, convert as convert_runs};
use a2store::query::{QueryOptions, SavedQuery};
use a2store::system::cancellation::CancellationToken;
use a2store::system::process::lock;
use a2store::system::progress::Progress;
use a2store_explore::{Report, ReportOptions, ViewOptions};
use arrow::compute::concat_batches;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBool, PyDict, PyInt, PyString, PyTuple, PyType};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

/// A growing collection of runs in a folder or an object store, at one version.
///
/// The folder holds Parquet files, which other tools can read, and for each version a manifest that lists the version's
/// files. Commits of other writers become visible with ``refresh``. ``ingest`` moves to the version that it commits. To
/// get an archive, call ``a2store.open``, ``Archive.create`` or ``Archive.open``. Threads may share it.
///
/// A pickled archive is a handle: the location, the version and ``storage_options``, with any credentials in them.
/// Unpickling opens the archive again, at the same version. ``repr`` shows no options.
///
/// >>> archive = a2store.Archive.create("new.a2")
/// >>> archive.ingest("runs/").accepted
/// 20
/// >>> archive.sql("SELECT phase, count(*) AS steps FROM steps GROUP BY phase ORDER BY steps").show()
/// +-------+-------+
/// | phase | steps |
/// +-------+-------+
/// | late  | 1950  |
/// | early | 10375 |
/// | mid   | 16995 |
/// +-------+-------+
/// 3 rows
#[pyclass(frozen, name = "Archive", module = "a2store")]
pub(crate) struct PyArchive {
    /// A thread holds this lock only briefly, and never while it waits for the interpreter's lock.
    archive: Mutex<Archive>,
    /// The executor of all queries; `None` = they run here.
    executor: Option<Py<PyAny>>,
}

/// A version by its number or its tag.
#[derive(Default)]
pub(crate) struct PyVersion(VersionName);

impl<'py> FromPyObject<'_, 'py> for PyVersion {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match value.cast::<PyString>() {
            Ok(tag) => Ok(PyVersion(VersionName::Tag(tag.to_cow()?.into_owned()))),
            Err(_) => Ok(PyVersion(VersionName::Number(U64::extract(value)?.get()))),
        }
    }
}

/// Options of an object store, from a dict. Values may be strings, bools and integers. Errors show no values.
#[derive(Default)]
pub(crate) struct PyStorageOptions(StorageOptions);

impl<'py> FromPyObject<'_, 'py> for PyStorageOptions {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let option = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            let name: String = name.extract()?;
            let text = if value.is_instance_of::<PyBool>() {
                value.extract::<bool>()?.to_string()
            } else if value.is_instance_of::<PyString>() || value.is_instance_of::<PyInt>() {
                value.str()?.to_string()
            } else {
                let found = value.get_type().name()?;
                return Err(PyTypeError::new_err(format!(
                    "storage_options: {name}: expected a str, a bool or an int, found {found}"
                )));
            };
            Ok((name, text))
        };
        value.cast::<PyDict>()?.iter().map(option).collect::<PyResult<_>>().map(PyStorageOptions)
    }
}

impl PyArchive {
    fn new(archive: Archive) -> PyArchive {
        PyArchive { archive: Mutex::new(archive), executor: None }
    }

    /// Returns a query, on the archive's executor if it has one.
    fn on_executor<'py>(&self, py: Python<'py>, query: PyQuery) -> PyResult<Bound<'py, PyAny>> {
        let query = Bound::new(py, query)?.into_any();
        self.executor.as_ref().map_or_else(|| Ok(query.clone()), |executor| query.call_method1("on", (executor,)))
    }

    pub(crate) fn archive(&self) -> Archive {
        lock(&self.archive).clone()
    }

    /// Does work that may make a new version, and moves to that version.
    fn change<T: Send>(
        &self,
        py: Python<'_>,
        progress: Option<ProgressOption>,
        work: impl FnOnce(&mut Archive, &dyn Progress, &CancellationToken) -> Result<T> + Send,
    ) -> PyResult<T> {
        let mut archive = self.archive();
        let value = interruptible(py, progress, |progress, cancel| work(&mut archive, progress, cancel))?;
        self.move_on(archive);
        Ok(value)
    }

    /// Moves to the version of `archive`, unless another thread has moved to a later version.
    fn move_on(&self, archive: Archive) {
        let mut current = lock(&self.archive);
        if archive.version() >= current.version() {
            *current = archive;
        }
    }
}

/// Open an archive, or create it.
///
/// - ``path``: the archive's folder, or a URL: ``s3://bucket/games.a2``, ``gs://...``, ``az://...``.
/// - ``version``: the version to open, by its number from 1 (the empty archive) or its tag; ``None`` = the newest.
/// - ``create``: ``True`` = creates an empty archive if ``path`` has no archive.
/// - ``storage_options``: options of the object store, named as in the Rust crate object_store and in polars:
///   ``aws_access_key_id``, ``aws_secret_access_key``, ``aws_endpoint``, ``aws_region``, ``allow_http``, .... They
///   override environment variables, and have no effect on a folder.
/// - ``executor``: the executor that runs all queries of this archive, as in ``Query.on``; ``None`` = this process.
///
/// Raises ``ValueError`` for ``version`` with ``create=True``, and for an unknown name in ``storage_options``.
/// Otherwise raises as ``Archive.open`` does.
///
/// >>> a2store.open("games.a2").num_runs
/// 20
/// >>> a2store.open("new.a2", create=True).ingest("runs").accepted
/// 20
#[pyfunction]
#[pyo3(signature = (path, *, version=None, create=false, storage_options=None, executor=None))]
pub(crate) fn open(
    py: Python<'_>,
    path: PathBuf,
    version: Option<PyVersion>,
    create: bool,
    storage_options: Option<PyStorageOptions>,
    executor: Option<Py<PyAny>>,
) -> PyResult<PyArchive> {
    if let Some(executor) = &executor {
        py.import("a2store.cluster")?.call_method1("_checked", (executor,))?;
    }
    if !create {
        let archive = open_at(py, path, version, None, storage_options)?;
        return Ok(PyArchive { executor, ..archive });
    }
    if let Some(PyVersion(version)) = version {
        let expected = "no version, because a new archive has none to choose";
        return Err(raised(Error::argument("version", expected, version)));
    }
    let options = storage_options.unwrap_or_default().0;
    let open = move |_: &dyn Progress, cancel: &CancellationToken| {
        Archive::open_or_create(path, Phases::default(), &options, cancel)
    };
    Ok(PyArchive { executor, ..PyArchive::new(abandonable(py, HIDDEN, open)?) })
}

fn open_at(
    py: Python<'_>,
    path: PathBuf,
    version: Option<PyVersion>,
    checksums: Option<bool>,
    storage_options: Option<PyStorageOptions>,
) -> PyResult<PyArchive> {
    let options = storage_options.unwrap_or_default().0;
    let version = version.unwrap_or_default().0;
    let archive = abandonable(py, HIDDEN, move |_, _| Archive::open_with(path, version, &options))?;
    let checksums = checksums.unwrap_or(archive.has_checksums());
    Ok(PyArchive::new(archive.with_checksums(checksums)))
}

/// Check an archive for problems, even one that is too damaged to open.
///
/// It checks the manifest of every kept version. For every file of a kept version it checks presence, length, checksum,
/// rows and ids. It rebuilds every run from its rows, compares it with its digest, and checks ``runs.verified`` by the
/// rules of the game. The report lists the problems; they never raise.
///
/// - ``path``: the archive's folder or URL.
/// - ``storage_options``: as in ``a2store.open``.
/// - ``workers``: the number of threads, 1 to 1,024; ``None`` = one per core.
/// - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.
///
/// Raises ``ArchiveError`` if there is no archive. Raises ``ConflictError`` if other processes keep replacing and
/// expiring the newest version during the check. Also raises ``OSError``, and ``KeyboardInterrupt`` on Ctrl-C.
///
/// >>> report = a2store.verify("games.a2")
/// >>> for problem in report.problems:
/// ...     print(problem.path, problem.what, problem.expected, problem.found)
/// >>> report
/// VerifyReport(0 problems, version=2, num_files=2, num_runs=20)
#[pyfunction]
#[pyo3(signature = (path, *, workers=None, progress=None, storage_options=None))]
pub(crate) fn verify<'py>(
    py: Python<'py>,
    path: PathBuf,
    workers: Option<Workers>,
    progress: Option<ProgressOption>,
    storage_options: Option<PyStorageOptions>,
) -> PyResult<Bound<'py, PyAny>> {
    let (storage, workers) = (storage_options.unwrap_or_default().0, workers.map(Bounded::get));
    abandonable(py, progress, move |progress, cancel| Archive::verify(path, workers, &storage, progress, cancel))?
        .into_instance(py)
}

/// Make a new version with the files of an older version, even if the newest manifest is damaged.
///
/// The new version also adopts data files that no manifest lists, if they hold whole runs that the version does not
/// have. So a damaged manifest loses no run. ``restore`` removes the damaged manifests that the new version replaces.
/// If you repeat an interrupted restore, the result is the same archive. On an object store, no other writer may write
/// during the restore.
///
/// - ``path``: the archive's folder or URL.
/// - ``version``: the version whose files to use, by its number or its tag; ``None`` = the newest intact version.
/// - ``dry_run``: ``True`` = only report the changes.
/// - ``storage_options``: as in ``a2store.open``.
///
/// Raises ``DamagedError`` if the version cannot be read. Raises ``ArchiveError`` if there is no archive or no such
/// version, or if a newer a2store wrote the archive. Also raises ``ConflictError``, ``OSError``, and
/// ``KeyboardInterrupt`` on Ctrl-C.
///
/// >>> a2store.restore("games.a2")
/// RestoreReport(version=2, new_version=None, adopted_runs=0, done=False)
#[pyfunction]
#[pyo3(signature = (path, *, version=None, dry_run=false, storage_options=None))]
pub(crate) fn restore<'py>(
    py: Python<'py>,
    path: PathBuf,
    version: Option<PyVersion>,
    dry_run: bool,
    storage_options: Option<PyStorageOptions>,
) -> PyResult<Bound<'py, PyAny>> {
    let (storage, version) = (storage_options.unwrap_or_default().0, version.unwrap_or_default().0);
    let restore =
        move |_: &dyn Progress, cancel: &CancellationToken| Archive::restore(path, version, dry_run, &storage, cancel);
    let report = if dry_run { abandonable(py, HIDDEN, restore) } else { interruptible(py, HIDDEN, restore) };
    report?.into_instance(py)
}

/// Read runs of any format and write them in another format, in the same order, without an archive.
///
/// - ``paths``: run files, packs, pack.dat files, datasets, sessions, logs, or folders of them. The content determines
///   the format. The output merges all paths.
/// - ``out``: a folder for run files, ``"npy"``, ``"session"`` and ``"macroxue"``. For other formats, the file, or a
///   folder for a file with the default name, such as ``runs.a2pack``.
/// - ``on_error``: the effect of a run that cannot be read, or that the format cannot hold. ``"raise"`` raises its
///   error and writes nothing. ``"skip"`` writes the other runs and lists the error in the report.
/// - ``format``: ``"a2t1"``, ``"a2run2"``, ``"a2pack"``, ``"packdat"``, ``"npy"``, ``"session"``, ``"macroxue"`` or
///   ``"jsonl"``.
/// - ``by_step``, ``compact``, ``compress``, ``align``, ``shard_rows``, ``moves``, ``workers``, ``progress``: as in
///   ``Archive.export_runs``.
///
/// Raises ``DecodeError`` or ``OSError`` for the first run that cannot be read, ``ValueError`` for an option of another
/// format or for a run that the format cannot hold, ``FileExistsError`` for a file that already exists, and
/// ``KeyboardInterrupt`` on Ctrl-C. The call writes files of several runs atomically. Issues warnings as
/// ``Archive.ingest`` and ``Archive.export_runs`` do.
///
/// >>> a2store.convert(["runs"], "all.dat", format="packdat")
/// ExportReport(path=PosixPath('all.dat'), runs=20, num_steps=29320)
#[pyfunction]
#[pyo3(signature = (
    paths, out, *, format, by_step=false, compact=false, compress="none", align=None, shard_rows=None,
    moves=None, workers=None, progress=None, on_error="raise"
))]
pub(crate) fn convert<'py>(
    py: Python<'py>,
    paths: &Bound<'_, PyAny>,
    out: PathBuf,
    format: &str,
    by_step: bool,
    compact: bool,
    compress: &str,
    align: Option<Bounded<u32, 1, { 1 << 20 }>>,
    shard_rows: Option<Positive>,
    moves: Option<bool>,
    workers: Option<Workers>,
    progress: Option<ProgressOption>,
    on_error: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let paths = paths_from(paths)?;
    let mut options =
        ExportOptions::new(format.parse().or_raise()?).with_skip_errors(skips_errors(on_error).or_raise()?);
    (options.by_step, options.compact, options.compression) = (by_step, compact, compress.parse().or_raise()?);
    options.align = align.map(Bounded::get);
    options.shard_rows = shard_rows.map(Bounded::get);
    (options.moves, options.workers) = (moves, workers.map(Bounded::get));
    interruptible(py, progress, |progress, cancel| convert_runs(&paths, &out, &options, progress, cancel))?
        .into_instance(py)
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
    seconds(name, secs).or_raise()
}

#[pymethods]
impl PyArchive {
    #[new]
    #[pyo3(signature = (*_args, **_options), text_signature = "()")]
    fn new_from_python(_args: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> PyResult<PyArchive> {
        Err(PyTypeError::new_err("use Archive.open or Archive.create to get an archive"))
    }

    /// Create an empty archive, at version 1.
    ///
    /// - ``path``: the archive's folder, created if it is missing, or a URL: ``s3://bucket/games.a2``, ``gs://...``,
    ///   ``az://...``. Credentials and endpoints come from the usual environment variables of each service, such as
    ///   ``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, ``GOOGLE_APPLICATION_CREDENTIALS`` and
    ///   ``AZURE_STORAGE_ACCOUNT_NAME``.
    /// - ``phases``: the smallest tiles of the phases ``"mid"`` and ``"late"``. The largest tile on the board
    ///   determines the phase of a step; below the ``"mid"`` tile, the phase is ``early``. The defaults are ``{"mid":
    ///   1024, "late": 4096}``. The phases of an archive never change.
    /// - ``storage_options``: as in ``a2store.open``.
    ///
    /// Raises ``ArchiveExistsError`` if the archive already exists; ``a2store.open(path, create=True)`` opens it
    /// instead. Raises ``ValueError`` for phases that are not tiles (2 to 32768) or not increasing, a folder with other
    /// files, and unknown ``storage_options``. Also raises ``OSError``, and ``KeyboardInterrupt`` on Ctrl-C.
    ///
    /// >>> archive = a2store.Archive.create("new.a2", phases={"mid": 2048, "late": 8192})
    /// >>> archive
    /// Archive(.../new.a2, version=1, num_runs=0, num_steps=0)
    #[classmethod]
    #[pyo3(signature = (path, *, phases=None, storage_options=None))]
    fn create(
        _cls: &Bound<'_, PyType>,
        py: Python<'_>,
        path: PathBuf,
        phases: Option<&Bound<'_, PyDict>>,
        storage_options: Option<PyStorageOptions>,
    ) -> PyResult<PyArchive> {
        let phases = phases.map_or_else(|| Ok(Phases::default()), phases_from)?;
        let options = storage_options.unwrap_or_default().0;
        let new = abandonable(py, HIDDEN, move |_, cancel| Archive::create_with(path, phases, &options, cancel))?;
        Ok(PyArchive::new(new))
    }

    /// Open an archive.
    ///
    /// - ``path``: the archive's folder or URL, as in ``create``.
    /// - ``version``: the version to open, by its number from 1 (the empty archive) or its tag; ``None`` = the newest.
    /// - ``checksums``: whether queries and exports verify the checksum of each data file when this process first reads
    ///   it. If off, a flipped bit in a data file can change an answer. ``None`` = on for a folder and off for a URL,
    ///   because the check downloads whole files.
    /// - ``storage_options``: as in ``a2store.open``.
    ///
    /// Raises ``ValueError`` for a negative version and for an unknown name in ``storage_options``. Raises
    /// ``FileNotFoundError`` if the folder does not exist, ``ArchiveError`` if it holds no archive or a newer a2store
    /// wrote it, and ``VersionNotFoundError`` for a missing version. Raises ``DamagedError`` if a commit contradicts
    /// its checksum or the previous commit, and ``KeyboardInterrupt`` on Ctrl-C.
    ///
    /// >>> a2store.Archive.open("games.a2").num_runs
    /// 20
    /// >>> a2store.Archive.open("games.a2", version=1).num_runs
    /// 0
    #[classmethod]
    #[pyo3(signature = (path, *, version=None, checksums=None, storage_options=None))]
    fn open(
        _cls: &Bound<'_, PyType>,
        py: Python<'_>,
        path: PathBuf,
        version: Option<PyVersion>,
        checksums: Option<bool>,
        storage_options: Option<PyStorageOptions>,
    ) -> PyResult<PyArchive> {
        open_at(py, path, version, checksums, storage_options)
    }

    /// Return the location, the version and the options for ``pickle``; unpickling opens the archive again.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let (py, archive) = (slf.py(), slf.get().archive());
        let options = PyDict::new(py);
        options.set_item("version", archive.version())?;
        options.set_item("checksums", archive.has_checksums())?;
        let storage = archive.storage_options();
        let storage: BTreeMap<&str, &str> = storage.iter().collect();
        if !storage.is_empty() {
            options.set_item("storage_options", storage)?;
        }
        let open = slf.get_type().getattr("open")?;
        let open = py.import("functools")?.getattr("partial")?.call((open,), Some(&options))?;
        Ok((open, (archive.path().to_string_lossy().into_owned(),)))
    }

    /// Move to the newest version, even if the archive was opened at an older version.
    ///
    /// If another thread moves to a later version at the same time, the archive stays at the later version. Raises as
    /// ``open`` does; the version then does not change.
    ///
    /// >>> report = a2store.simulate("more", runs=1, seed=2)
    /// >>> a2store.Archive.open("games.a2").ingest("more").accepted
    /// 1
    /// >>> archive.num_runs
    /// 20
    /// >>> archive.refresh()
    /// >>> archive.num_runs
    /// 21
    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        let mut archive = self.archive();
        let archive = abandonable(py, HIDDEN, move |_, _| archive.refresh().map(|()| archive))?;
        self.move_on(archive);
        Ok(())
    }

    /// Add the runs of files and folders, including all subfolders, as one commit.
    ///
    /// The content determines a file's format: run files, packs, pack.dat files, NumPy datasets, self-play sessions,
    /// and Macroxue logs and packs. docs/formats.md lists what each format stores. In folders, ``ingest`` skips files
    /// of unknown content, and files whose names begin with a dot or end in ``.tmp``. Files named ``*.a2run2``,
    /// ``*.bin`` and ``*.a2t1`` must hold runs.
    ///
    /// ``ingest`` skips a run whose content is already in the archive. It adds twins: runs with the same boards as
    /// another run, such as one game in two formats. Splits keep twins on the same side. Run ids follow the order of
    /// the paths and, in folders, the order of the names. If no run is new, ``ingest`` commits nothing. In either case
    /// the archive moves to the newest version. If you repeat an interrupted ingest, the result is the same archive.
    /// For input of any size, ``ingest`` needs about 100 MB of memory, plus about 50 MB per worker and up to 68 bytes
    /// per run in the archive.
    ///
    /// - ``paths``: a file or folder, or several.
    /// - ``workers``: threads to decode and encode with, 1 to 1,024; ``None`` = one per core.
    /// - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.
    /// - ``on_error``: the effect of a file that cannot be read or decoded. ``"report"`` lists it in the report and
    ///   continues; ``"raise"`` raises its error and adds nothing.
    /// - ``wait``: how long to wait while another process on this machine writes to the archive, in seconds or as a
    ///   ``timedelta``; ``None`` = ten minutes.
    ///
    /// Raises ``FileNotFoundError`` for a missing path, ``ConflictError`` if another writer holds the archive for
    /// longer than ``wait``, and ``KeyboardInterrupt`` on Ctrl-C. With ``on_error="raise"`` it also raises
    /// ``DecodeError`` or ``OSError`` for the first bad file. The archive is then unchanged. After ``UnconfirmedError``
    /// the commit may or may not exist; repeat the call to find out. Issues a ``UserWarning`` for a problem that does
    /// not affect runs, such as an outdated ``manifest.json`` of a dataset.
    ///
    /// >>> report = a2store.simulate("more", runs=2, seed=2)
    /// >>> archive.ingest(["runs", "more/run-00001.a2run2"])
    /// IngestReport(accepted=1, duplicates=20, twins=0, rejected=0, num_steps=2347)
    #[pyo3(signature = (paths, *, workers=None, progress=None, on_error="report", wait=None))]
    fn ingest<'py>(
        &self,
        py: Python<'py>,
        paths: &Bound<'_, PyAny>,
        workers: Option<Workers>,
        progress: Option<ProgressOption>,
        on_error: &str,
        wait: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut options = IngestOptions::default();
        options.strict = is_first("on_error", on_error, ["raise", "report"]).or_raise()?;
        options.wait = duration("wait", wait, options.wait)?;
        options.workers = workers.map(Bounded::get);
        let paths = paths_from(paths)?;
        self.change(py, progress, |archive, progress, cancel| archive.ingest(&paths, &options, progress, cancel))?
            .into_instance(py)
    }

    /// Add a model's predictions for steps of the archive, in a new commit.
    ///
    /// The table ``annotations`` in SQL then has a row per model and annotated step. Every annotated step must exist in
    /// the archive. The legal moves of a row, and its move if known, must equal those in ``steps``.
    ///
    /// - ``model``: the value of the column ``model``, 1 to 60 bytes.
    /// - ``annotations``: a folder in the layout that docs/formats.md describes, a table with the Arrow C interface, or
    ///   a NumPy structured array, shape (n,). A folder numbers the runs as its pool does; a2store finds each run in
    ///   the archive by the seed, steps, score and highest tile in the folder's ``metadata.db``. A table or array has
    ///   the columns ``run_id`` and ``step_index`` of the archive, and any other columns of ``annotations`` except
    ///   ``model``. ``policy_p1``, ``policy_logp`` and ``policy_hard`` may have 4 numbers per row. An array has no
    ///   nulls, so these columns become null where ``policy_kind_mask`` lacks their bit. Rows may be in any order.
    /// - ``replace``: ``True`` = replaces the model's annotations. Otherwise, a model with annotations can get more
    ///   annotations only for later runs.
    /// - ``partial``: ``True`` = allows annotated runs to have steps without annotations.
    /// - ``progress``: as in ``ingest``.
    ///
    /// Raises ``DecodeError`` for a folder, and ``ValueError`` or ``ColumnError`` for a table, that is damaged or
    /// contradicts the archive. Otherwise raises as ``ingest`` does. After any error except ``UnconfirmedError``, the
    /// archive is unchanged.
    ///
    /// >>> predictions = np.asarray(table)[[0, 1, 2]][["run_id", "step_index", "ev_legal"]]
    /// >>> columns = {"run_id": predictions["run_id"], "step_index": predictions["step_index"].astype("u4")}
    /// >>> columns |= {"legal_mask": predictions["ev_legal"], "argmax_head": np.array([3, 0, 3], "u1")}
    /// >>> archive.annotate("model-v1", pa.table(columns), partial=True)
    /// AnnotateReport(model='model-v1', num_runs=1, num_rows=3)
    #[pyo3(signature = (model, annotations, *, replace=false, partial=false, progress=None))]
    fn annotate<'py>(
        &self,
        py: Python<'py>,
        model: &str,
        annotations: &Bound<'_, PyAny>,
        replace: bool,
        partial: bool,
        progress: Option<ProgressOption>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut options = AnnotateOptions::default();
        options.replace = replace;
        options.partial = partial;
        let folder: PathBuf;
        let rows;
        let input = if is_path(annotations)? {
            folder = annotations.extract()?;
            AnnotationInput::Folder(&folder)
        } else {
            let (schema, batches) = batches_of(("annotations", "a folder's path"), model, annotations)?;
            rows = detached(py, || concat_batches(&schema, &batches)).map_err(Error::other).or_raise()?;
            AnnotationInput::Rows(&rows)
        };
        self.change(py, progress, |archive, progress, cancel| {
            archive.annotate(model, input, &options, progress, cancel)
        })?
        .into_instance(py)
    }

    /// Drop a model's annotations in a new commit, and return their description.
    ///
    /// Older versions keep them until ``expire``.
    ///
    /// - ``model``: the value of the column ``model``.
    ///
    /// Raises ``ValueError`` for a model without annotations. Otherwise raises as ``ingest`` does.
    ///
    /// >>> predictions = np.asarray(table)[[0, 1, 2]][["run_id", "step_index"]]
    /// >>> report = archive.annotate("model-v1", predictions, partial=True)
    /// >>> archive.drop_annotations("model-v1")
    /// ModelInfo(model='model-v1', num_rows=3, first_run_id=0, last_run_id=0)
    fn drop_annotations<'py>(&self, py: Python<'py>, model: &str) -> PyResult<Bound<'py, PyAny>> {
        self.change(py, HIDDEN, |archive, _, cancel| archive.drop_annotations(model, cancel))?.into_instance(py)
    }

    /// Return the models with annotations, in the order of their names.
    ///
    /// It reads no files, so it never raises an error of the archive.
    ///
    /// >>> predictions = np.asarray(table)[[0, 1, 2]][["run_id", "step_index"]]
    /// >>> report = archive.annotate("model-v1", predictions, partial=True)
    /// >>> archive.annotations()
    /// [ModelInfo(model='model-v1', num_rows=3, first_run_id=0, last_run_id=0)]
    fn annotations<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        instances(py, self.archive().annotations())
    }

    /// Rewrite small data files as full-size ones, in a new commit.
    ///
    /// Rows, their order and their ids stay the same. ``compact`` checks the old files against their checksums. Readers
    /// and writers may work at the same time. Older versions keep their files until ``expire``.
    ///
    /// - ``file_rows``: the number of rows of a full file, at least 1; ``None`` = 16,777,216. Files that are at least
    ///   half full stay unchanged.
    /// - ``workers``, ``progress``: as in ``ingest``.
    ///
    /// Raises ``DamagedError`` for a file that cannot be read back. Otherwise raises as ``ingest`` does. After any
    /// error except ``UnconfirmedError``, the archive is unchanged.
    ///
    /// >>> report = a2store.simulate("more", runs=2, seed=2)
    /// >>> archive.ingest("more").accepted
    /// 2
    /// >>> archive.compact()
    /// CompactReport(files_before=4, files_after=2, num_rows=33059)
    #[pyo3(signature = (*, file_rows=None, workers=None, progress=None))]
    fn compact<'py>(
        &self,
        py: Python<'py>,
        file_rows: Option<Positive>,
        workers: Option<Workers>,
        progress: Option<ProgressOption>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut options = CompactOptions::default();
        options.file_rows = file_rows.map_or(options.file_rows, Bounded::get);
        options.workers = workers.map(Bounded::get);
        self.change(py, progress, |archive, progress, cancel| archive.compact(&options, progress, cancel))?
            .into_instance(py)
    }

    /// Expire versions that were replaced long ago, and remove the data files that no kept version references.
    ///
    /// ``expire`` always keeps the newest version and tagged versions. A reader that still uses an expired version may
    /// find data files missing.
    ///
    /// - ``older_than``: expire versions that were replaced longer ago than this, in seconds or as a ``timedelta``;
    ///   ``None`` = 30 days.
    /// - ``grace``: how long to keep an unreferenced file after its last change; ``None`` = one day. Such a file may be
    ///   the leftover of an interrupted writer, or belong to another machine that has not committed yet. While a
    ///   manifest is damaged, ``expire`` keeps all unreferenced files.
    /// - ``dry_run``: ``True`` = only report what would be removed.
    ///
    /// Raises ``ValueError`` for a negative duration. Otherwise raises as ``ingest`` does.
    ///
    /// >>> from datetime import timedelta
    /// >>> archive.expire(older_than=timedelta(days=7), dry_run=True)
    /// ExpireReport(first_version=1, num_versions=0, num_files=0)
    #[pyo3(signature = (*, older_than=None, grace=None, dry_run=false))]
    fn expire<'py>(
        &self,
        py: Python<'py>,
        older_than: Option<&Bound<'_, PyAny>>,
        grace: Option<&Bound<'_, PyAny>>,
        dry_run: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut options = ExpireOptions::default();
        options.older_than = duration("older_than", older_than, options.older_than)?;
        options.grace = duration("grace", grace, options.grace)?;
        options.dry_run = dry_run;
        self.change(py, HIDDEN, |archive, _, cancel| archive.expire(&options, cancel))?.into_instance(py)
    }

    /// Make a new version with the files of an older version, and move this view to it.
    ///
    /// It does the same as ``a2store.restore`` with the archive's ``path``.
    ///
    /// - ``version``, ``dry_run``: as in ``a2store.restore``.
    ///
    /// Raises as ``a2store.restore`` does.
    ///
    /// >>> archive.restore(version=1)
    /// RestoreReport(version=1, new_version=3, adopted_runs=0, done=True)
    /// >>> archive.num_runs
    /// 0
    #[pyo3(signature = (*, version=None, dry_run=false))]
    fn restore<'py>(&self, py: Python<'py>, version: Option<PyVersion>, dry_run: bool) -> PyResult<Bound<'py, PyAny>> {
        let archive = self.archive();
        let storage = PyStorageOptions(archive.storage_options());
        let report = restore(py, archive.path().to_path_buf(), version, dry_run, Some(storage))?;
        if report.getattr("done")?.is_truthy()? {
            self.refresh(py)?;
        }
        Ok(report)
    }

    /// Name a version, so that ``expire`` keeps it. If the version already has the name, the call has no effect.
    ///
    /// - ``name``: 1 to 100 letters, digits and ``-_.``, but not only digits, and without a leading dot.
    /// - ``version``: the version; ``None`` = the version of this view.
    ///
    /// Raises ``ValueError`` for an invalid name, or if another version has the name. Raises ``VersionNotFoundError``
    /// if the version has expired, and ``ConflictError`` if it expires during the call; the tag then stays. Also raises
    /// ``OSError``.
    ///
    /// >>> archive.tag("baseline-3")
    /// >>> a2store.open("games.a2", version="baseline-3").version
    /// 2
    #[pyo3(signature = (name, version=None))]
    fn tag(&self, py: Python<'_>, name: String, version: Option<U64>) -> PyResult<()> {
        let (archive, version) = (self.archive(), version.map(Bounded::get));
        abandonable(py, HIDDEN, move |_, _| archive.tag(&name, version))
    }

    /// Return the tags of the archive with their versions, in the order of their names.
    ///
    /// Raises ``DamagedError`` for a damaged tag, and ``OSError``.
    ///
    /// >>> archive.tag("first", version=1)
    /// >>> archive.tag("baseline-3")
    /// >>> archive.tags()
    /// {'baseline-3': 2, 'first': 1}
    fn tags(&self, py: Python<'_>) -> PyResult<BTreeMap<String, u64>> {
        let archive = self.archive();
        abandonable(py, HIDDEN, move |_, _| archive.tags())
    }

    /// Remove a tag. The version itself stays until it expires.
    ///
    /// - ``name``: the tag.
    ///
    /// Raises ``ValueError`` if there is no such tag, and ``OSError``.
    ///
    /// >>> archive.tag("baseline-3")
    /// >>> archive.untag("baseline-3")
    /// >>> archive.tags()
    /// {}
    fn untag(&self, py: Python<'_>, name: String) -> PyResult<()> {
        let archive = self.archive();
        abandonable(py, HIDDEN, move |_, _| archive.untag(&name))
    }

    /// Check all kept versions of the archive for problems.
    ///
    /// It does the same as ``a2store.verify`` with the archive's ``path``.
    ///
    /// - ``workers``, ``progress``: as in ``a2store.verify``.
    ///
    /// Raises as ``a2store.verify`` does.
    ///
    /// >>> archive.verify().problems
    /// []
    #[pyo3(signature = (*, workers=None, progress=None))]
    fn verify<'py>(
        &self,
        py: Python<'py>,
        workers: Option<Workers>,
        progress: Option<ProgressOption>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let archive = self.archive();
        let storage = PyStorageOptions(archive.storage_options());
        verify(py, archive.path().to_path_buf(), workers, progress, Some(storage))
    }

    /// The archive's absolute folder, or its URL as a str.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        location(py, self.archive().path())
    }

    /// The version of this view; the empty archive is version 1.
    #[getter]
    fn version(&self) -> u64 {
        self.archive().version()
    }

    /// The number of runs at this version.
    #[getter]
    fn num_runs(&self) -> u64 {
        self.archive().num_runs()
    }

    /// The number of steps at this version.
    #[getter]
    fn num_steps(&self) -> u64 {
        self.archive().num_steps()
    }

    /// The smallest tiles of the phases ``"mid"`` and ``"late"``; see ``create``.
    #[getter]
    fn phases<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let phases = self.archive().phases();
        [("mid", phases.mid), ("late", phases.late)].into_py_dict(py)
    }

    /// Return the schema of a table, which is the same at every version.
    ///
    /// - ``table``: ``"steps"``, ``"runs"`` or ``"annotations"``.
    ///
    /// Raises ``ValueError`` for an unknown table.
    ///
    /// >>> pa.schema(archive.schema("runs")).field("max_score").type
    /// DataType(int64)
    #[pyo3(signature = (table="steps"))]
    fn schema(&self, table: &str) -> PyResult<ArrowSchema> {
        let table: TableName = table.parse().or_raise()?;
        Ok(ArrowSchema { schema: self.archive().schema(table) })
    }

    /// Return the commits of the unexpired versions up to this version, newest first.
    ///
    /// Raises ``DamagedError`` if a version's manifest is damaged, and ``OSError``.
    ///
    /// >>> for commit in archive.history():
    /// ...     print(commit.version, commit.operation, commit.added_runs)
    /// 2 ingest 20
    /// 1 create 0
    fn history<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let archive = self.archive();
        instances(py, abandonable(py, HIDDEN, move |_, _| archive.history())?)
    }

    /// Return the absolute paths, or URLs, of a table's Parquet files at this version, in order of their run ids.
    ///
    /// The files never change, and together they hold exactly the table's rows. For an empty table the list is empty.
    ///
    /// - ``table``: ``"steps"``, ``"runs"`` or ``"annotations"``.
    ///
    /// Raises ``ValueError`` for an unknown table.
    ///
    /// >>> import duckdb
    /// >>> duckdb.read_parquet(archive.files("steps")).aggregate("count(*)").fetchall()
    /// [(29320,)]
    #[pyo3(signature = (table="steps"))]
    fn files(&self, table: &str) -> PyResult<Vec<String>> {
        let table: TableName = table.parse().or_raise()?;
        Ok(self.archive().files(table).into_iter().map(|path| path.to_string_lossy().into_owned()).collect())
    }

    /// Plan a query over the tables ``runs``, ``steps`` and ``annotations`` at this version.
    ///
    /// The dialect is DataFusion's, with additional functions over boards (see ``a2store.functions()``). One SELECT,
    /// WITH or VALUES statement is allowed, and it can read only these tables and those in ``tables``. docs/sql.md
    /// lists what else is rejected. This call plans the query, so a mistake raises at once. The query runs when its
    /// result is read.
    ///
    /// - ``query``: the SQL text, with parameters as ``$name``, or as ``$1``, ``$2``, ....
    /// - ``params``: the values of all parameters: a dict for names, else a sequence. Values are bound, never
    ///   interpolated into the text. They may be None, bool, int in ``-2**63..2**64``, float, str, bytes, NumPy scalars
    ///   of these, dates and times, also of NumPy and pandas. A ``NaT`` is null.
    /// - ``tables``: your own tables by name, for joins. A value is an object with the Arrow C interface (pyarrow,
    ///   polars, pandas, DuckDB, another query) or a NumPy structured array, shape (n,), both kept in memory; or the
    ///   path of a Parquet file.
    /// - ``memory_limit``: bytes that the query's operators may hold at once, at least 32 MiB. Sorts and groups spill
    ///   to temporary files before they fail. ``None`` = half of the machine's memory, shared by all queries.
    /// - ``spill_limit``: the maximum number of bytes of temporary files; ``None`` = 64 GiB.
    /// - ``spill_folder``: the folder of temporary files; ``None`` = the system's. Each query removes its own
    ///   subfolder.
    /// - ``row_limit``, ``byte_limit``: the maximum number of rows in the result, and of its bytes as Arrow arrays, in
    ///   ``0..2**64``; ``None`` = no limit.
    /// - ``time_limit``: the maximum number of seconds for planning and, separately, for each read of the result; at
    ///   least 0; ``None`` = no limit.
    ///
    /// Raises ``QueryRefusedError`` for a statement that is not allowed. Raises ``QueryError`` for text that does not
    /// parse or plan, and for parameters that do not match it. Raises ``TypeError`` for a value or table of another
    /// type, and ``ValueError`` for an invalid name or limit. Raises ``OSError`` and ``DecodeError`` for files that
    /// cannot be read. Exceeding a limit raises ``QueryLimitError`` while the result is read.
    ///
    /// >>> sql = "SELECT count(*) AS steps FROM steps WHERE max_score >= $min AND phase = 'late'"
    /// >>> archive.sql(sql, {"min": 20_000}).show()
    /// +-------+
    /// | steps |
    /// +-------+
    /// | 1950  |
    /// +-------+
    /// 1 row
    /// >>> query = archive.sql("SELECT run_id, max_score FROM runs ORDER BY max_score DESC LIMIT $1", [3])
    /// >>> query.to_arrow().to_pylist()
    /// [{'run_id': 16, 'max_score': 82292}, {'run_id': 17, 'max_score': 46388}, {'run_id': 12, 'max_score': 38312}]
    /// >>> labels = pa.table({"run_id": pa.array([3, 7], pa.uint32()), "label": ["a", "b"]})
    /// >>> archive.sql("SELECT * FROM steps JOIN labels USING (run_id)", tables={"labels": labels}).count()
    /// 2952
    #[pyo3(signature = (
        query, params=None, *, tables=None, memory_limit=None, spill_limit=None, spill_folder=None, row_limit=None,
        byte_limit=None, time_limit=None
    ))]
    fn sql<'py>(
        &self,
        py: Python<'py>,
        query: &str,
        params: Option<&Bound<'_, PyAny>>,
        tables: Option<&Bound<'_, PyDict>>,
        memory_limit: Option<U64>,
        spill_limit: Option<U64>,
        spill_folder: Option<PathBuf>,
        row_limit: Option<U64>,
        byte_limit: Option<U64>,
        time_limit: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // An iterator cannot be copied; a query with one cannot be pickled.
        let copy = py.import("copy")?;
        let values = params.map(|params| copy.call_method1("copy", (params,)).unwrap_or_else(|_| params.clone()));
        let params = bound_params(params)?;
        let limits = LimitArguments { memory_limit, spill_limit, spill_folder, row_limit, byte_limit, time_limit };
        let keywords = limits.keywords(py)?;
        keywords.set_item("tables", tables.map(PyDictMethods::copy).transpose()?)?;
        let options = limits.options(tables)?;
        let archive = self.archive();
        let planned = cancellable(py, |cancel| archive.sql_with(query, params, &options, cancel))?;
        let owner = Bound::new(py, PyArchive::new(archive))?.into_any();
        self.on_executor(py, PyQuery::called(planned, &owner, "sql", (query, values), &keywords)?)
    }

    /// Read one run.
    ///
    /// - ``run_id``: the id of the run in the archive.
    ///
    /// Raises ``ValueError`` if the archive has no such run, and ``DamagedError`` if its data is damaged.
    ///
    /// >>> run = archive.run(0)
    /// >>> len(run), run.meta.max_score
    /// (646, 11308)
    /// >>> print(run.position(0).board)
    ///     .     .     .     .
    ///     .     .     .     .
    ///     .     2     .     4
    ///     .     .     .     .
    fn run(&self, py: Python<'_>, run_id: U32) -> PyResult<PyRun> {
        let (archive, run_id) = (self.archive(), run_id.get());
        let stored = cancellable(py, |cancel| archive.run(run_id, cancel))?;
        let format = stored.format();
        Ok(PyRun::new(stored.run, format, Some((archive, run_id))))
    }

    /// Explore the archive in a browser: runs, replays, positions, SQL, and the report.
    ///
    /// - ``policy``: a function whose values the explorer shows beside the engine's values. The explorer calls it with
    ///   ``tokens``, uint8 of shape (n, 16), and ``legal``, bool of shape (n, 4), for at most 512 boards at once. The
    ///   function returns floats of shape (n, 4), in the order up, down, left, right, or moves of shape (n,).
    /// - ``port``: the port on this machine; 0 = any free one.
    /// - ``follow``: whether to show new versions once committed; ``None`` = only if the archive is at its newest
    ///   version.
    /// - ``open_browser``: whether to open the address in the user's browser.
    ///
    /// Returns at once. The server runs until the view is closed, or the process ends.
    ///
    /// Raises ``OSError`` if the port is in use, and ``TypeError`` for a policy that is not a function.
    ///
    /// >>> view = archive.view(open_browser=False)
    /// >>> view.close()
    #[pyo3(signature = (policy=None, *, port=0, follow=None, open_browser=true))]
    fn view(
        &self,
        py: Python<'_>,
        policy: Option<Py<PyAny>>,
        #[pyo3(from_py_with = U16::int)] port: u16,
        follow: Option<bool>,
        open_browser: bool,
    ) -> PyResult<PyView> {
        let archive = self.archive();
        let is_newest = || {
            let mut newest = archive.clone();
            newest.refresh().map(|()| newest.version() == archive.version())
        };
        let follows = follow.map_or_else(|| detached(py, is_newest), Ok).or_raise()?;
        let mut options = ViewOptions::from_environment().or_raise()?;
        options.port = port;
        options.follows = follows;
        view(py, archive, options, policy, open_browser)
    }

    /// Describe the runs of the archive: scores, lengths, tiles, survival, values, moves, positions, spawns.
    ///
    /// - ``where``: an SQL condition on the columns of ``runs``, such as ``"max_score >= 20000"``; ``None`` = all runs.
    /// - ``by``: the groups that the report compares: ``"engine"``, ``"ingest"`` (the ingest that added the run, named
    ///   by its time), ``"format"`` or ``"session"``. For recordings and sessions, the engine is the model's tag.
    /// - ``compare``: two groups; the report leaves out the runs of other groups.
    /// - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.
    ///
    /// The call runs about 25 queries, and most of them read all steps.
    ///
    /// Raises ``QueryError`` and ``QueryRefusedError`` if ``where`` is not one condition on runs. Raises ``ValueError``
    /// for an unknown ``by``, and if one of the groups in ``compare`` has no runs.
    ///
    /// >>> report = archive.report(where="max_score >= 1000", by="format")
    /// >>> report.save("report.html")
    #[pyo3(signature = (*, r#where=None, by="engine", compare=None, progress=None))]
    fn report<'py>(
        &self,
        py: Python<'py>,
        r#where: Option<String>,
        by: &str,
        compare: Option<[String; 2]>,
        progress: Option<ProgressOption>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = ReportOptions { condition: r#where, groups: by.parse().or_raise()?, compare, explorer: None };
        let archive = self.archive();
        let report = interruptible(py, progress, |progress, cancel| Report::of(&archive, &options, progress, cancel))?;
        let page = detached(py, || report.to_html()).or_raise()?;
        let (data, errors) = (PyDict::new(py), PyDict::new(py));
        for table in report.tables {
            match table.rows {
                Ok(batch) => data.set_item(table.query, ArrowBatch { batch })?,
                Err(reason) => errors.set_item(table.query, reason)?,
            }
        }
        let values = (report.archive, report.version, data, errors, page);
        py.import("a2store._pages")?.call_method1("Report", values)
    }

    /// Plan a named query from ``a2store.queries()``.
    ///
    /// - ``name``: the query's name.
    /// - ``memory_limit``, ``spill_limit``, ``spill_folder``, ``row_limit``, ``byte_limit``, ``time_limit``: as in
    ///   ``sql``. No query parameter has one of these names.
    /// - ``params``: the values of the query's parameters; an omitted parameter has its default.
    ///
    /// Raises ``ValueError`` for an unknown name, listing the known names. Raises ``QueryError`` for a parameter that
    /// is missing, unknown or of another type. Otherwise raises as ``sql`` does.
    ///
    /// >>> archive.query("high_score", min_score=20_000).materialize()
    /// StepTable(23466 rows of 32 bytes)
    /// >>> archive.query("unique_positions", memory_limit=512 << 20).show()
    /// +-------+-----------+------------+---------------+
    /// | phase | num_steps | num_boards | num_positions |
    /// +-------+-----------+------------+---------------+
    /// | early | 10375     | 10375      | 10349         |
    /// | mid   | 16995     | 16995      | 16986         |
    /// | late  | 1950      | 1950       | 1950          |
    /// +-------+-----------+------------+---------------+
    /// 3 rows
    #[pyo3(signature = (
        name, /, *, memory_limit=None, spill_limit=None, spill_folder=None, row_limit=None, byte_limit=None,
        time_limit=None, **params
    ))]
    fn query<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        memory_limit: Option<U64>,
        spill_limit: Option<U64>,
        spill_folder: Option<PathBuf>,
        row_limit: Option<U64>,
        byte_limit: Option<U64>,
        time_limit: Option<f64>,
        params: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let limits = LimitArguments { memory_limit, spill_limit, spill_folder, row_limit, byte_limit, time_limit };
        let keywords = limits.keywords(py)?;
        params.map_or(Ok(()), |params| keywords.update(params.as_mapping()))?;
        let params = named_params(params)?;
        let options = limits.options(None)?;
        let archive = self.archive();
        let planned = cancellable(py, |cancel| {
            let query = SavedQuery::find(name)?;
            archive.query_with(&query, params, &options, cancel)
        })?;
        let owner = Bound::new(py, PyArchive::new(archive))?.into_any();
        self.on_executor(py, PyQuery::called(planned, &owner, "query", (name,), &keywords)?)
    }

    /// Write the runs that a query selects, in the order of their ids, as files of any format.
    ///
    /// ``"original"`` restores the exact bytes of ingested run files, and rejects other runs. Run files are named by
    /// id, as in ``out/run-00000042.a2run2``; if there are more than 1,000, they go into subfolders of 1,000 files. One
    /// ``UserWarning`` counts the runs that lose a part, such as the final board; docs/formats.md has a table of these
    /// losses. For a format that requires whole games, a2store derives a missing final board if the last move and the
    /// score determine it; otherwise it rejects the run. It overwrites no file.
    ///
    /// - ``query``: SQL whose result has a column ``run_id``.
    /// - ``out``: a folder for run files, ``"npy"``, ``"session"`` and ``"macroxue"``. For other formats, the file, or
    ///   a folder for a file with the default name, such as ``runs.a2pack``.
    /// - ``format``: ``"original"``, ``"a2t1"``, ``"a2run2"``, ``"a2pack"``, ``"packdat"``, ``"npy"``, ``"session"``,
    ///   ``"macroxue"`` or ``"jsonl"``.
    /// - ``params``: as in ``sql``.
    /// - ``by_step``: for ``"jsonl"``: ``True`` = one line per step.
    /// - ``compact``: for ``"jsonl"``: ``True`` = flat values that DuckDB reads without conversion.
    /// - ``compress``: for ``"a2pack"``: the compression of runs: ``"none"``, ``"zstd"`` or ``"lz4"``.
    /// - ``align``: for ``"a2pack"``: the alignment of runs in bytes, 1 to 1,048,576; ``None`` = 4,096.
    /// - ``shard_rows``: for ``"npy"``, ``"session"`` and ``"macroxue"``: rows per file, at least 1; ``None`` = one
    ///   file.
    /// - ``moves``: for ``"session"``: whether the rows have moves. ``False`` is for an existing Rust reader of
    ///   sessions, which rejects moves. ``None`` = with moves if the first run has all of its moves.
    /// - ``on_error``: the effect of a run that the format cannot hold. ``"raise"`` raises ``ValueError``. ``"skip"``
    ///   writes the other runs and lists the error in the report.
    /// - ``workers``: the number of threads, 1 to 1,024; ``None`` = one per core.
    /// - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.
    ///
    /// Raises ``QueryError``, and ``ValueError`` for a query without ``run_id``, for a run that the format cannot
    /// store, or for an option of another format. Raises ``FileExistsError``, ``DamagedError``, and
    /// ``KeyboardInterrupt`` on Ctrl-C. After an error before the last file is written, no file of the call remains.
    ///
    /// >>> sql = "SELECT run_id FROM runs WHERE max_score >= 50000"
    /// >>> archive.export_runs(sql, "best.a2pack", format="a2pack")
    /// ExportReport(path=PosixPath('best.a2pack'), runs=1, num_steps=3773)
    #[pyo3(signature = (
        query, out, *, format="original", params=None, by_step=false, compact=false, compress="none", align=None,
        shard_rows=None, moves=None, on_error="raise", workers=None, progress=None
    ))]
    fn export_runs<'py>(
        &self,
        py: Python<'py>,
        query: &str,
        out: PathBuf,
        format: &str,
        params: Option<&Bound<'_, PyAny>>,
        by_step: bool,
        compact: bool,
        compress: &str,
        align: Option<Bounded<u32, 1, { 1 << 20 }>>,
        shard_rows: Option<Positive>,
        moves: Option<bool>,
        on_error: &str,
        workers: Option<Workers>,
        progress: Option<ProgressOption>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let params = bound_params(params)?;
        let archive = self.archive();
        let mut options =
            ExportOptions::new(format.parse().or_raise()?).with_skip_errors(skips_errors(on_error).or_raise()?);
        (options.by_step, options.compact, options.compression) = (by_step, compact, compress.parse().or_raise()?);
        options.align = align.map(Bounded::get);
        options.shard_rows = shard_rows.map(Bounded::get);
        (options.moves, options.workers) = (moves, workers.map(Bounded::get));
        let report = interruptible(py, progress, |progress, cancel| {
            let query = archive.sql_with(query, params, &QueryOptions::default(), cancel)?;
            query.export_runs(&out, &options, progress, cancel)
        })?;
        report.into_instance(py)
    }

    fn __repr__(&self) -> String {
        let archive = self.archive();
        let (path, version) = (archive.path().display(), archive.version());
        format!(
            "Archive({path}, version={version}, num_runs={}, num_steps={})",
            archive.num_runs(),
            archive.num_steps()
        )
    }
}

fn phases_from(dict: &Bound<'_, PyDict>) -> PyResult<Phases> {
    type Tile = Bounded<u32, 2, { 1 << 15 }>;
    let mut phases = Phases::default();
    for (name, tile) in dict {
        let name: String = name.extract()?;
        match name.as_str() {
            "mid" => phases.mid = Tile::part("phases", &tile)?,
            "late" => phases.late = Tile::part("phases", &tile)?,
            other => {
                return Err(PyValueError::new_err(format!("phases: expected \"mid\" and \"late\", found {other:?}")));
            }
        }
    }
    Ok(phases)
}
