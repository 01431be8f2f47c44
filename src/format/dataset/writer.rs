//! Writing NumPy datasets.

use super::manifest::{Manifest, check_crc};
use super::metadata::{INSERT, MAX_ENGINE_LEN, Metadata, SCHEMA};
use super::row::{DatasetRow, NUMBERING};
use crate::error::{Error, Result};
use crate::format::mapped::FileBytes;
use crate::format::row_files::RowFiles;
use crate::format::rows::flatten;
use crate::format::shards::{METADATA, RowShards, SINGLE, files_in};
use crate::format::sqlite::Database;
use crate::format::staged_folder::{StagedFolder, check_free};
use crate::publish::parent;
use crate::run::{Run, RunMeta};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Runs that are buffered before they are inserted into the database.
const BATCH: usize = 4096;

/// A writer of a new dataset, or of an append to one.
///
/// Steps are written to disk immediately. [`finish`](DatasetWriter::finish) makes a new dataset durable and
/// publishes it under its name.
///
/// An append is atomic for readers. `finish` first publishes the rows, which no run refers to yet. Then it
/// removes the manifest, commits the runs in one transaction, and writes the new manifest. The database is locked
/// for other writers from the start. Readers are not blocked.
///
/// # Examples
/// ```
/// # let folder = tempfile::tempdir()?;
/// use a2store::{Board, Move, Run, RunMeta};
/// let mut steps = Run::builder(1);
/// steps.push(Board(0x1100_0000_0000_0000), Move::Left, None);
/// let run = steps.finish(RunMeta::default(), None)?;
///
/// let set = folder.path().join("set");
/// let mut writer = a2store::DatasetWriter::create(&set, None)?;
/// writer.push(&run)?;
/// writer.finish()?;
///
/// let dataset = a2store::Dataset::open(&set)?;
/// assert_eq!((dataset.num_steps(), dataset.decode(0)?), (1, run));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DatasetWriter {
    folder: PathBuf,
    staging: StagedFolder,
    files: RowFiles<DatasetRow>,
    database: Database,
    old: Option<ExistingDataset>,
    rows: Vec<DatasetRow>,
    batch: Vec<BufferedRun>,
    next_id: u32,
}

/// The state of a dataset before an append.
struct ExistingDataset {
    is_single: bool,
    /// The rows in files that are kept.
    num_rows: u64,
    has_manifest: bool,
    crc32c: BTreeMap<String, String>,
}

struct BufferedRun {
    id: u32,
    first_step: u64,
    num_steps: u32,
    meta: RunMeta,
}

impl DatasetWriter {
    /// Creates a dataset with at most `shard_rows` rows per shard; `None` = one `steps.npy`. The folder must be missing
    /// or empty.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), for example if the folder is not empty;
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for shards of 0 rows.
    pub fn create(folder: impl AsRef<Path>, shard_rows: Option<u64>) -> Result<DatasetWriter> {
        let folder = folder.as_ref().to_owned();
        if shard_rows == Some(0) {
            return Err(Error::argument("shard_rows", "at least 1", 0));
        }
        check_free(&folder)?;
        let staging = StagedFolder::new_in(parent(&folder))?;
        let files = RowFiles::new(staging.path(), shard_rows, NUMBERING, 0);
        let database = Database::create_tables(&staging.path().join(METADATA), SCHEMA)?;
        let (rows, batch) = (Vec::new(), Vec::new());
        Ok(DatasetWriter { folder, staging, files, database, old: None, rows, batch, next_id: 0 })
    }

    /// Opens a dataset to append runs. New rows go into new shards, whose maximum size is the size of the largest
    /// existing shard. A single `steps.npy` is rewritten. Rows after those of the last run are kept.
    ///
    /// # Errors
    /// The errors of [`Dataset::open`](crate::Dataset::open); [`ErrorKind::Io`](crate::ErrorKind::Io) if another
    /// process is writing.
    pub fn append(folder: impl AsRef<Path>) -> Result<DatasetWriter> {
        let folder = folder.as_ref().to_owned();
        let database = Database::open_appending(&folder.join(METADATA))?;
        let runs = Metadata::read_from(&database)?;
        let steps = RowShards::<DatasetRow>::open(files_in(&folder)?)?;
        let manifest = Manifest::read(&folder)?;
        let num_rows = steps.num_rows();
        let checked = manifest.as_ref().map(|old| old.check(num_rows, runs.end(num_rows), runs.num_runs(), &folder));
        let is_current = match checked.transpose() {
            Err(error) if !runs.agree_with(num_rows) => return Err(error),
            checked => checked.is_ok(),
        };
        let next_id = match runs.last_id() {
            None => 0,
            Some(last) => u32::try_from(last.saturating_add(1))
                .map_err(|_| Error::argument("run_id", "at most 4294967295 in a dataset", last))?,
        };
        let is_single = steps.is_single();
        let staging = StagedFolder::new_in(&folder)?;
        // Kept shards retain their recorded checksums. A new checksum of damaged bytes would hide the damage. An
        // outdated manifest has the checksums of other files.
        let recorded = manifest.as_ref().filter(|_| is_current).map(|manifest| manifest.crc32c.clone());
        let mut crc32c = recorded.unwrap_or_default();
        let files = RowFiles::appending(staging.path(), &steps, NUMBERING)?;
        // A copy of damaged rows would get a new checksum.
        if is_single && let (Some(stored), Some((path, bytes))) = (crc32c.remove(SINGLE), steps.files().next()) {
            check_crc(path, &stored, bytes)?;
        }
        let kept_rows = if is_single { 0 } else { num_rows };
        let has_manifest = manifest.is_some();
        let old = Some(ExistingDataset { is_single, num_rows: kept_rows, has_manifest, crc32c });
        Ok(DatasetWriter { folder, staging, files, database, old, rows: Vec::new(), batch: Vec::new(), next_id })
    }

    /// Adds a run and returns its id. Omits the final board and normalises raw values ([`Run::normalized`]).
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument): the dataset is then unchanged. The causes are missing moves
    /// or steps, an engine name of more than 65,535 bytes, and a score above 2^63 - 1. Another cause is
    /// a dataset that already has 2^32 - 1 runs.
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if a write fails. The dataset must then not be finished.
    pub fn push(&mut self, run: &Run) -> Result<u64> {
        let id = self.next_id;
        let next_id =
            id.checked_add(1).ok_or_else(|| Error::argument("runs", "at most 4294967295 in a dataset", "one more"))?;
        if run.step_indices().is_some() {
            return Err(Error::argument("run", "a run with all its steps", "a sampled run"));
        }
        check_meta(run.meta())?;
        let run = &*run.normalized();
        self.rows.clear();
        flatten(run, u64::from(id), &mut self.rows)?;
        let first_step = self.num_rows();
        self.files.push(&self.rows)?;
        let (num_steps, meta) = (run.num_steps() as u32, run.meta().clone());
        self.batch.push(BufferedRun { id, first_step, num_steps, meta });
        self.next_id = next_id;
        // An append inserts all its runs in `finish`.
        if self.old.is_none() && self.batch.len() >= BATCH {
            self.flush()?;
        }
        Ok(u64::from(id))
    }

    /// Finishes the dataset, makes it durable and publishes it.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn finish(mut self) -> Result<()> {
        let num_rows = self.num_rows();
        let num_runs = u64::from(self.next_id);
        match self.old.take() {
            None => self.finish_new(num_rows, num_runs),
            Some(old) => self.finish_old(old, num_rows),
        }
    }

    fn finish_new(mut self, num_rows: u64, num_runs: u64) -> Result<()> {
        self.flush()?;
        let DatasetWriter { folder, staging, files, database, .. } = self;
        let mut crc32c: BTreeMap<String, String> =
            files.finish(true)?.into_iter().map(|(name, crc)| (name, hex(crc))).collect();
        database.execute("COMMIT")?;
        database.finish_writing()?;
        let path = staging.path().join(METADATA);
        crc32c.insert(METADATA.into(), hex(crc32c::crc32c(&FileBytes::map(&path)?)));
        Manifest::new(num_rows, num_runs, crc32c).write(staging.path())?;
        staging.publish(&folder)
    }

    fn finish_old(mut self, old: ExistingDataset, num_rows: u64) -> Result<()> {
        // Inserts the runs before it publishes the rows, so that a failed insert changes nothing.
        let batch = std::mem::take(&mut self.batch);
        let DatasetWriter { folder, staging, files, database, .. } = self;
        let mut crc32c = old.crc32c;
        insert(&database, &batch)?;
        for (name, crc) in files.finish(false)? {
            staging.publish_file(&name, &folder, old.is_single)?;
            crc32c.insert(name, hex(crc));
        }
        Manifest::remove(&folder)?;
        database.execute("COMMIT")?;
        let num_runs = database.num_rows("runs")? as u64;
        database.finish_writing()?;
        if old.has_manifest {
            crc32c.insert(METADATA.into(), hex(crc32c::crc32c(&FileBytes::map(&folder.join(METADATA))?)));
            Manifest::new(num_rows, num_runs, crc32c).write(&folder)?;
        }
        Ok(())
    }

    /// Returns the number of rows, including existing ones.
    fn num_rows(&self) -> u64 {
        self.files.num_rows() + self.old.as_ref().map_or(0, |old| old.num_rows)
    }

    fn flush(&mut self) -> Result<()> {
        insert(&self.database, &self.batch)?;
        self.batch.clear();
        Ok(())
    }
}

fn insert(database: &Database, batch: &[BufferedRun]) -> Result<()> {
    for BufferedRun { id, first_step, num_steps, meta } in batch {
        let engine = meta.engine.as_deref().unwrap_or_default();
        let (first_step, max_score) = (*first_step as i64, meta.max_score as i64);
        let (start_time, elapsed_s) = (meta.start_unix_s as i64, f64::from(meta.elapsed_s));
        let tile = meta.highest_tile;
        let values = (id, first_step, num_steps, max_score, tile, engine, start_time, elapsed_s);
        database.insert(INSERT, values)?;
    }
    Ok(())
}

fn check_meta(meta: &RunMeta) -> Result<()> {
    if i64::try_from(meta.max_score).is_err() {
        return Err(Error::argument("max_score", "at most 9223372036854775807 in a dataset", meta.max_score));
    }
    let len = meta.engine.as_deref().map_or(0, str::len);
    if len > MAX_ENGINE_LEN {
        return Err(Error::argument("engine", "at most 65535 bytes in a dataset", format!("{len} bytes")));
    }
    Ok(())
}

fn hex(crc: u32) -> String {
    format!("{crc:08x}")
}
