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
//! | `log.rs` | commits: reading, checking, replaying, appending |
//! | `publish.rs` | making a file appear under its name, whole and durable or not at all |
//! | `writer.rs` | Parquet files: encodings, row groups, checksums |
//! | `ingest.rs` | files → runs → Parquet, in parallel |

mod ingest;
mod log;
mod publish;
mod schema;
mod writer;

pub use ingest::{IngestOptions, IngestReport, OnError, Rejected};
pub use log::{CommitInfo, Operation};
pub use schema::{Phase, Phases};

pub(crate) use log::{DataFile, Snapshot};
pub(crate) use publish::Staged;
pub(crate) use schema::table_schema;

use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use arrow::datatypes::SchemaRef;
use log::{Commit, Log};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

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
    root: PathBuf,
    snapshot: Arc<Snapshot>,
}

impl Archive {
    /// Creates an archive in a new or empty folder, with its phase thresholds, which stay as they are for good.
    ///
    /// # Errors
    /// [`ErrorKind::ArchiveExists`] when there is one, [`ErrorKind::Argument`] for thresholds that are not tiles in
    /// order and for a folder with other files, [`ErrorKind::Io`].
    pub fn create(path: impl AsRef<Path>, phases: Phases) -> Result<Archive> {
        let root = absolute(path.as_ref())?;
        phases.check()?;
        check_empty(&root)?;
        for folder in [root.clone(), root.join(Log::FOLDER), root.join("runs"), root.join("steps")] {
            std::fs::create_dir_all(&folder).map_err(|source| Error::io(&folder, source))?;
            publish::sync_parent(&folder)?;
        }
        match Log::new(&root).append(&Commit::first(phases)) {
            Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => {
                Err(ErrorKind::ArchiveExists { path: root }.into())
            }
            Err(error) => Err(error),
            Ok(()) => Archive::open(root),
        }
    }

    /// Opens an archive at its newest version.
    ///
    /// # Errors
    /// [`ErrorKind::NotAnArchive`], [`ErrorKind::Damaged`] when a commit does not fit its checksum or the one before
    /// it, [`ErrorKind::SchemaVersion`] when a newer a2store wrote it, [`ErrorKind::Io`].
    pub fn open(path: impl AsRef<Path>) -> Result<Archive> {
        let root = absolute(path.as_ref())?;
        let snapshot = Log::new(&root).replay(None)?.into();
        Ok(Archive { root, snapshot })
    }

    /// Opens an archive as it was at an earlier version, 1 being the empty one.
    ///
    /// # Errors
    /// As [`open`](Archive::open), and [`ErrorKind::VersionNotFound`].
    pub fn open_at(path: impl AsRef<Path>, version: u64) -> Result<Archive> {
        let root = absolute(path.as_ref())?;
        let snapshot = Log::new(&root).replay(Some(version))?.into();
        Ok(Archive { root, snapshot })
    }

    /// Moves to the newest version.
    ///
    /// # Errors
    /// As [`open`](Archive::open).
    pub fn refresh(&mut self) -> Result<()> {
        self.snapshot = Log::new(&self.root).replay(None)?.into();
        Ok(())
    }

    /// Reads run files, and folders of them with all their subfolders, and commits what is new as one version.
    ///
    /// A run that the archive already holds, known by the digest of its content, is skipped; a file that does not
    /// decode is reported and never costs another. Run ids follow the order of the paths, whatever the number of
    /// workers. When nothing is new, nothing is committed.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] for a path that is not there, [`ErrorKind::Conflict`] when another process is writing,
    /// [`ErrorKind::Cancelled`]; with [`OnError::Raise`] also the first bad file's. In each case the archive is as it
    /// was.
    pub fn ingest<P: AsRef<Path>>(
        &mut self,
        paths: impl IntoIterator<Item = P>,
        options: &IngestOptions,
        progress: &dyn Progress,
    ) -> Result<IngestReport> {
        let paths: Vec<PathBuf> = paths.into_iter().map(|path| path.as_ref().to_path_buf()).collect();
        let (report, snapshot) = ingest::ingest(&self.root, &paths, options, progress)?;
        self.snapshot = snapshot.into();
        Ok(report)
    }

    /// The archive's folder, absolute.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.root
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

    /// The commits up to this version, newest first.
    #[must_use]
    pub fn history(&self) -> Vec<CommitInfo> {
        self.snapshot.commits().iter().rev().map(Commit::info).collect()
    }

    /// The absolute paths of a table's Parquet files at this version, in the order of their run ids.
    #[must_use]
    pub fn files(&self, table: TableName) -> Vec<PathBuf> {
        self.snapshot.files(table).map(|file| self.root.join(&file.path)).collect()
    }

    /// The size of a table's files, in bytes.
    #[must_use]
    pub fn num_bytes(&self, table: TableName) -> u64 {
        self.snapshot.files(table).map(|file| file.num_bytes).sum()
    }

    pub(crate) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive")
            .field("path", &self.root)
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
    let Ok(entries) = std::fs::read_dir(root) else {
        return Ok(());
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

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|source| Error::io(path, source))
}
