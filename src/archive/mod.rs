//! Runs → Parquet: a folder of immutable data files, and a log that says which of them count.
//!
//! ```text
//! games.a2/
//!   _log/00000000000000000001.json   one file per commit, checksummed and chained to the one before
//!   runs/<hash>.parquet              one row per run
//!   steps/<hash>.parquet             one row per step, runs whole and in order
//! ```
//!
//! Entry point is [`Archive`]. The log is the only truth: a data file that no commit names does not exist, so an
//! interrupted write leaves the archive as it was. A commit appears whole or not at all, and nothing in an archive is
//! ever changed after it was published.
//!
//! | file | owns |
//! | --- | --- |
//! | `schema.rs` | the columns of `runs` and `steps`, phases, and Arrow arrays of runs |
//! | `storage.rs`, `remote.rs` | where an archive lies: a folder, an object store |
//! | `commit.rs`, `log.rs`, `checkpoint.rs` | what a commit says, what a version holds, and how that is known quickly |
//! | `transaction.rs` | one change: locked, committed, tried again |
//! | `writer.rs`, `output.rs`, `read.rs` | Parquet files: encodings, row groups, checksums; writing and reading them back |
//! | `sound.rs` | the files that this process has compared with their commits |
//! | `ingest.rs`, `pipeline.rs`, `discover.rs`, `decode.rs`, `known.rs`, `digests.rs` | files → runs → Parquet; which runs are new |
//! | `stored.rs`, `feed.rs` | original runs, read from an archive; runs read from files without an archive |
//! | `compact.rs`, `expire.rs` | merging small files; removing old versions and unreferenced files |
//! | `chain.rs` | the chain of commits, with lost ones rebuilt from a checkpoint |
//! | `verify.rs`, `check.rs`, `rebuild.rs`, `repair.rs` | what is wrong with an archive, and what can be done |

mod chain;
mod check;
mod checkpoint;
mod commit;
mod compact;
mod decode;
mod digests;
mod discover;
mod expire;
mod feed;
mod ingest;
mod known;
mod log;
mod output;
mod pipeline;
mod read;
mod rebuild;
mod remote;
mod repair;
mod schema;
mod sound;
mod storage;
mod stored;
mod transaction;
mod verify;
mod writer;

pub use commit::{CommitInfo, Operation};
pub use compact::{CompactOptions, CompactReport};
pub use expire::{ExpireOptions, ExpireReport};
pub use ingest::{IngestOptions, IngestReport, OnError, Rejected, SeenFiles};
pub use repair::{Repair, RepairReport};
pub use schema::{Phase, Phases};
pub use verify::{Problem, VerifyOptions, VerifyReport};

pub(crate) use commit::DataFile;
pub(crate) use feed::{RunsOf, each_run};
pub(crate) use log::Snapshot;
pub(crate) use schema::table_schema;
pub(crate) use stored::{StoredMeta, StoredRun};

use crate::error::{Error, ErrorKind, Result};
use crate::format::Container;
use crate::progress::{Progress, check};
use arrow::datatypes::SchemaRef;
use commit::Commit;
use digests::KeptDigests;
use discover::Input;
use log::Log;
use object_store::ObjectStore;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use storage::Storage;

/// One of the two tables of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TableName {
    /// One row per run.
    Runs,
    /// One row per step.
    Steps,
}

/// A growing collection of runs, seen at one version.
///
/// An `Archive` is a cheap, immutable view: what others commit does not change it until [`refresh`](Archive::refresh)
/// is called, and its own [`ingest`](Archive::ingest) moves it to the version it made. Clones see the same version.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("games.a2");
/// use a2store::{Archive, IngestOptions, Phases};
/// let mut archive = Archive::create(&path, Phases::default())?;
/// # let runs = folder.path().join("runs");
/// # a2store::simulate(&runs, &a2store::SimulateOptions { runs: 2, ..Default::default() }, &())?;
/// let report = archive.ingest([&runs], &IngestOptions::default(), &())?;
/// assert_eq!((report.accepted, archive.num_runs(), archive.version()), (2, 2, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Archive {
    storage: Storage,
    snapshot: Arc<Snapshot>,
    /// Shared by clones.
    kept: Arc<KeptDigests>,
    /// Whether data files are compared with their commits before they are first read.
    checksums: bool,
}

impl Archive {
    /// Creates an archive in a new or empty folder, or under a URL (`s3://bucket/games.a2`, `gs://…`, `az://…`), with its
    /// phase thresholds, which stay as they are for good.
    ///
    /// # Errors
    /// [`ErrorKind::ArchiveExists`] when there is one, [`ErrorKind::Argument`] for thresholds that are not tiles in
    /// order and for a folder with other files, [`ErrorKind::Io`].
    pub fn create(location: impl AsRef<Path>, phases: Phases) -> Result<Archive> {
        Archive::create_unless_cancelled(location, phases, &())
    }

    pub(crate) fn create_unless_cancelled(
        location: impl AsRef<Path>,
        phases: Phases,
        progress: &dyn Progress,
    ) -> Result<Archive> {
        phases.check()?;
        let storage = Storage::new(location.as_ref())?;
        if storage.is_local() {
            check_empty(storage.root())?;
        }
        let exists = || Err(ErrorKind::ArchiveExists { path: storage.root().to_path_buf() }.into());
        storage.create_folders([Log::FOLDER, "runs", "steps"])?;
        let log = Log::new(&storage);
        let names = log.names()?;
        if names.newest_commit().is_some() {
            return exists();
        }
        for table in TableName::ALL {
            let names = storage.names(table.name())?.unwrap_or_default();
            if let Some(name) = names.iter().find(|name| name.ends_with(".parquet")) {
                let expected = "no data files where there is no commit";
                return Err(commit::damaged(&storage.path(Log::FOLDER), "log", expected, format!("{table}/{name}")));
            }
        }
        check(progress)?;
        match log.append(None, &Commit::first(phases))? {
            Some(snapshot) => Ok(Archive::new(storage, snapshot)),
            None => exists(),
        }
    }

    /// Opens an archive at its newest version.
    ///
    /// # Errors
    /// [`ErrorKind::NotAnArchive`], [`ErrorKind::Damaged`] when a commit does not fit its checksum or the one before
    /// it, [`ErrorKind::SchemaVersion`] when a newer a2store wrote it, [`ErrorKind::Io`].
    pub fn open(location: impl AsRef<Path>) -> Result<Archive> {
        let storage = Storage::new(location.as_ref())?;
        let snapshot = Log::new(&storage).replay(None)?;
        Ok(Archive::new(storage, snapshot))
    }

    /// Opens an archive as it was at an earlier version, 1 being the empty one.
    ///
    /// # Errors
    /// As [`open`](Archive::open), and [`ErrorKind::VersionNotFound`], also for versions that have expired.
    pub fn open_at(location: impl AsRef<Path>, version: u64) -> Result<Archive> {
        let storage = Storage::new(location.as_ref())?;
        let snapshot = Log::new(&storage).replay(Some(version))?;
        Ok(Archive::new(storage, snapshot))
    }

    fn new(storage: Storage, snapshot: Snapshot) -> Archive {
        let checksums = storage.is_local();
        Archive { storage, snapshot: snapshot.into(), kept: Arc::default(), checksums }
    }

    /// Returns the same view with checksums on or off.
    ///
    /// If on, queries and exports compare the length and CRC32C of each data file with its commit. They do so before
    /// the first use of the file in a process, and read the whole file for it. If off, a flipped bit in a data file can
    /// change an answer. By default, files of a folder are compared, and files of an object store are not: that would
    /// fetch whole files where a query needs some ranges.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("games.a2");
    /// use a2store::{Archive, Phases};
    /// let archive = Archive::create(&path, Phases::default())?;
    /// assert!(archive.has_checksums());
    /// assert!(!archive.with_checksums(false).has_checksums());
    /// # Ok::<(), a2store::Error>(())
    /// ```
    #[must_use]
    pub fn with_checksums(mut self, checksums: bool) -> Archive {
        self.checksums = checksums;
        self
    }

    /// Whether data files are compared with their commits before they are first read.
    #[must_use]
    pub fn has_checksums(&self) -> bool {
        self.checksums
    }

    /// Moves to the newest version.
    ///
    /// # Errors
    /// As [`open`](Archive::open).
    pub fn refresh(&mut self) -> Result<()> {
        self.snapshot = Log::new(&self.storage).replay_from(Some(&self.snapshot))?.into();
        Ok(())
    }

    /// As [`refresh`](Archive::refresh), and makes the newest version durable.
    pub(crate) fn refresh_durable(&mut self) -> Result<()> {
        self.snapshot = Log::new(&self.storage).replay_durable(Some(&self.snapshot))?.into();
        Ok(())
    }

    /// The ids of a session's runs within the session.
    pub(crate) fn source_ids(&self, session: &str) -> Result<BTreeSet<u64>> {
        known::source_ids(&self.storage, &self.snapshot, session, 0)
    }

    /// Reads run files, and folders of them with all their subfolders, and commits what is new as one version.
    ///
    /// A run that the archive already holds, known by the digest of its content, is skipped; a file that does not
    /// decode is reported and never costs another. Run ids follow the order of the paths, whatever the number of
    /// workers. When nothing is new, nothing is committed. Interrupted at any point and repeated, it ends in the same
    /// archive.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] for a path that is not there and for what the file system refuses, [`ErrorKind::Conflict`] when
    /// another process goes on writing, [`ErrorKind::Cancelled`]; with [`OnError::Raise`] also the first bad file's. In
    /// each case the archive is as it was. [`ErrorKind::Unconfirmed`] when the commit was written but not confirmed:
    /// repeat the call.
    pub fn ingest<P: AsRef<Path>>(
        &mut self,
        paths: impl IntoIterator<Item = P>,
        options: &IngestOptions,
        progress: &dyn Progress,
    ) -> Result<IngestReport> {
        self.ingest_files(paths, None, options, progress)
    }

    /// As [`ingest`](Archive::ingest), without reading again what is as it was when `seen` was given before: for whoever
    /// looks at the same folders again and again. About 150 bytes of memory a file.
    ///
    /// # Errors
    /// As [`ingest`](Archive::ingest).
    pub fn ingest_unseen<P: AsRef<Path>>(
        &mut self,
        paths: impl IntoIterator<Item = P>,
        seen: &mut SeenFiles,
        options: &IngestOptions,
        progress: &dyn Progress,
    ) -> Result<IngestReport> {
        self.ingest_files(paths, Some(seen), options, progress)
    }

    fn ingest_files<P: AsRef<Path>>(
        &mut self,
        paths: impl IntoIterator<Item = P>,
        seen: Option<&mut SeenFiles>,
        options: &IngestOptions,
        progress: &dyn Progress,
    ) -> Result<IngestReport> {
        let paths: Vec<PathBuf> = paths.into_iter().map(|path| path.as_ref().to_path_buf()).collect();
        self.ingest_input(Input::Paths(&paths), seen, options, progress)
    }

    /// Adds runs of a recording, like [`ingest`](Archive::ingest), but decides by id instead of content: adds all runs
    /// whose session and id are new. This view must not show any of them.
    pub(crate) fn ingest_recorded(
        &mut self,
        runs: &Arc<Container>,
        options: &IngestOptions,
        progress: &dyn Progress,
    ) -> Result<IngestReport> {
        let since = self.snapshot.newest().next_run_id;
        self.ingest_input(Input::Recorded { runs, since }, None, options, progress)
    }

    fn ingest_input(
        &mut self,
        input: Input<'_>,
        seen: Option<&mut SeenFiles>,
        options: &IngestOptions,
        progress: &dyn Progress,
    ) -> Result<IngestReport> {
        let (report, snapshot) =
            ingest::ingest(&self.storage, &self.snapshot, &self.kept, input, options, seen, progress)?;
        self.snapshot = snapshot.into();
        Ok(report)
    }

    /// Rewrites small data files, as hourly appends leave them, as files of full size, in a commit of its own: the rows,
    /// their order and their ids stay the same. Nothing is removed: older versions keep their files until
    /// [`expire`](Archive::expire) drops them.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] for a file that cannot be read back, [`ErrorKind::Conflict`], [`ErrorKind::Cancelled`],
    /// [`ErrorKind::Io`], [`ErrorKind::Unconfirmed`].
    pub fn compact(&mut self, options: &CompactOptions, progress: &dyn Progress) -> Result<CompactReport> {
        let (report, snapshot) = compact::compact(&self.storage, options, progress)?;
        self.snapshot = snapshot.into();
        Ok(report)
    }

    /// Gives up versions that were replaced long ago, and removes the data files that no kept version names. Their
    /// commits stay in the log.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`], [`ErrorKind::Cancelled`], [`ErrorKind::Io`], [`ErrorKind::Unconfirmed`].
    pub fn expire(&mut self, options: &ExpireOptions, progress: &dyn Progress) -> Result<ExpireReport> {
        let (report, snapshot) = expire::expire(&self.storage, options, progress)?;
        self.snapshot = snapshot.into();
        Ok(report)
    }

    /// Looks for everything that is wrong with an archive, damage that keeps it from being opened included.
    ///
    /// Every commit, the chain that they form, and of every file that a kept version names: its presence, length,
    /// checksum, footer, numbers of rows, ids, statistics, and what `runs` and `steps` say of each other. With
    /// [`VerifyOptions::deep`] also every run: that its digest is that of its columns, and whether its moves obey the
    /// rules as `runs.verified` says.
    ///
    /// # Errors
    /// [`ErrorKind::NotAnArchive`], [`ErrorKind::Cancelled`], [`ErrorKind::Io`] for a place that cannot be read, and
    /// [`ErrorKind::Conflict`] when other processes repeatedly replace and expire the newest version meanwhile.
    /// Problems of the archive are in the report.
    pub fn verify(
        location: impl AsRef<Path>,
        options: &VerifyOptions,
        progress: &dyn Progress,
    ) -> Result<VerifyReport> {
        verify::verify(&Storage::new(location.as_ref())?, options, progress)
    }

    /// Repairs an archive with damaged or missing commits. With `dry_run`, only returns the planned changes.
    ///
    /// A lost commit that a checkpoint covers is rebuilt. Otherwise the archive continues from the last sound version,
    /// with the runs of all sound commits after it.
    ///
    /// No data is removed: replaced files are set aside under another name. While such files exist, unreferenced data
    /// files are kept too. The runs of lost commits can be ingested again; their old ids are not reused. An interrupted
    /// repair that is repeated ends in the same archive.
    ///
    /// # Errors
    /// [`ErrorKind::NotAnArchive`], [`ErrorKind::Damaged`] when no version can be determined, [`ErrorKind::Conflict`],
    /// [`ErrorKind::Io`].
    pub fn repair(location: impl AsRef<Path>, dry_run: bool) -> Result<RepairReport> {
        Archive::repair_unless_cancelled(location, dry_run, &())
    }

    pub(crate) fn repair_unless_cancelled(
        location: impl AsRef<Path>,
        dry_run: bool,
        progress: &dyn Progress,
    ) -> Result<RepairReport> {
        repair::repair(&Storage::new(location.as_ref())?, dry_run, progress)
    }

    /// The archive's folder, absolute, or its URL.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.storage.root()
    }

    /// The version that this view shows; the empty archive is version 1.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.snapshot.newest().version
    }

    /// The number of runs.
    #[must_use]
    pub fn num_runs(&self) -> u64 {
        self.snapshot.newest().num_runs
    }

    /// The number of steps.
    #[must_use]
    pub fn num_steps(&self) -> u64 {
        self.snapshot.newest().num_steps
    }

    /// The phase thresholds.
    #[must_use]
    pub fn phases(&self) -> Phases {
        self.snapshot.newest().phases
    }

    /// A name that no other archive has, 32 hexadecimal digits.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.snapshot.newest().archive_id
    }

    /// The columns of a table.
    #[must_use]
    pub fn schema(&self, table: TableName) -> SchemaRef {
        table_schema(table)
    }

    /// The commits up to this version, newest first, those of versions that have expired included.
    #[must_use]
    pub fn history(&self) -> Vec<CommitInfo> {
        self.snapshot.history.iter().rev().cloned().collect()
    }

    /// The absolute paths, or the URLs, of a table's Parquet files at this version, in the order of their run ids.
    #[must_use]
    pub fn files(&self, table: TableName) -> Vec<PathBuf> {
        self.snapshot.files(table).map(|file| self.storage.path(&file.path)).collect()
    }

    /// The size of a table's files, in bytes.
    #[must_use]
    pub fn num_bytes(&self, table: TableName) -> u64 {
        self.snapshot.files(table).map(|file| file.num_bytes).sum()
    }

    /// The files that must be compared with their commits before they are read.
    pub(crate) fn unchecked<'a>(&self, files: impl IntoIterator<Item = &'a DataFile>) -> Result<Vec<&'a DataFile>> {
        let mut unchecked = Vec::new();
        for file in files {
            if self.checksums && !sound::is_sound(&self.storage, file)? {
                unchecked.push(file);
            }
        }
        Ok(unchecked)
    }

    /// Compares a file with its commit, unless it was compared before or checksums are off.
    pub(crate) fn check_file(&self, file: &DataFile) -> Result<()> {
        if !self.checksums {
            return Ok(());
        }
        sound::check_once(&self.storage, file).map_err(|error| match error.into_kind() {
            ErrorKind::Damaged { path, what, expected, found } if found == "no file" => {
                ErrorKind::Damaged { path, what, expected, found: self.absent() }.into()
            }
            kind => kind.into(),
        })
    }

    /// Names the file in an error about one that could not be read, as far as lengths tell.
    pub(crate) fn blame(&self, error: Error) -> Error {
        match error.into_kind() {
            ErrorKind::Damaged { path, what, expected, found } if path.as_os_str().is_empty() => {
                let unfit = self.unfit_file().unwrap_or_else(|| {
                    let found = format!("{found}; `verify` names it");
                    (self.path().to_path_buf(), expected, found)
                });
                let (path, expected, found) = unfit;
                ErrorKind::Damaged { path, what, expected, found }.into()
            }
            kind => kind.into(),
        }
    }

    /// The first data file of this version that is not there, or not of its length.
    fn unfit_file(&self) -> Option<(PathBuf, String, String)> {
        TableName::ALL.into_iter().find_map(|table| {
            let entries = self.storage.list(table.name()).ok()?.unwrap_or_default();
            let lengths: HashMap<&str, u64> =
                entries.iter().map(|entry| (entry.name.as_str(), entry.num_bytes)).collect();
            self.snapshot.files(table).find_map(|file| {
                let name = file.path.rsplit('/').next().unwrap_or_default();
                let found = match lengths.get(name) {
                    Some(&num_bytes) if num_bytes == file.num_bytes => return None,
                    Some(num_bytes) => format!("{num_bytes} bytes"),
                    None => self.absent(),
                };
                Some((self.storage.path(&file.path), format!("{} bytes", file.num_bytes), found))
            })
        })
    }

    /// The text of errors about a missing data file of this version.
    fn absent(&self) -> String {
        format!("no file; version {} may have expired", self.version())
    }

    pub(crate) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// What its data files are read through; the root is the archive.
    pub(crate) fn store(&self) -> Result<Arc<dyn ObjectStore>> {
        self.storage.store()
    }
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive")
            .field("path", &self.path())
            .field("version", &self.version())
            .field("num_runs", &self.num_runs())
            .field("num_steps", &self.num_steps())
            .finish()
    }
}

impl TableName {
    /// Both tables.
    pub const ALL: [TableName; 2] = [TableName::Runs, TableName::Steps];

    /// `"runs"` or `"steps"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            TableName::Runs => "runs",
            TableName::Steps => "steps",
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for TableName {
    type Err = Error;

    fn from_str(name: &str) -> Result<TableName> {
        TableName::ALL
            .into_iter()
            .find(|table| table.name() == name)
            .ok_or_else(|| Error::argument("table", "runs or steps", name))
    }
}

/// Refuses a folder of other things. One that holds an archive, or the beginnings of one, is left to the log.
fn check_empty(root: &Path) -> Result<()> {
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(Error::io(root, source)),
    };
    for entry in entries {
        let name = entry.map_err(|source| Error::io(root, source))?.file_name();
        if ![Log::FOLDER, "runs", "steps"].iter().any(|own| name == *own) {
            let found = format!("{} with {} in it", root.display(), name.display());
            return Err(Error::argument("path", "a new or empty folder", found));
        }
    }
    Ok(())
}
