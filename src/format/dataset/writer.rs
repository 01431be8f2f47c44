//! Writing NumPy datasets.

use super::manifest::{self, Manifest};
use super::metadata::{INSERT, MAX_ENGINE_LEN, SCHEMA};
use super::row::{DatasetRow, NUMBERING, fields};
use crate::error::{Error, Result};
use crate::format::files::mapped::{map_file, write_json};
use crate::format::files::mapped_rows::METADATA;
use crate::format::files::row_folder::RowFolder;
use crate::format::files::staged_folder::check_free;
use crate::format::rows::check_whole;
use crate::run::{Run, RunMeta};
use crate::system::publish::parent;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A writer of a dataset. [`finish`](DatasetWriter::finish) makes the dataset durable and publishes it under its name.
///
/// # Examples
/// ```
/// # let folder = tempfile::tempdir()?;
/// use a2store::{Board, Move, Run};
/// use a2store::run::RunMeta;
/// let mut steps = Run::builder(1);
/// steps.push(Board(0x1100_0000_0000_0000), Move::Left, None);
/// let run = steps.finish(RunMeta::default(), None)?;
///
/// let set = folder.path().join("set");
/// let mut writer = a2store::format::DatasetWriter::create(&set, None)?;
/// writer.push(&run)?;
/// writer.finish()?;
///
/// let dataset = a2store::format::Dataset::open(&set)?;
/// assert_eq!((dataset.num_steps(), dataset.decode(0)?), (1, run));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DatasetWriter {
    name: PathBuf,
    folder: RowFolder,
    rows: Vec<DatasetRow>,
    next_id: u32,
}

impl DatasetWriter {
    /// Creates a dataset with at most `shard_rows` rows per shard; `None` = one `steps.npy`. The folder must be missing
    /// or empty.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), for example if the folder is not empty;
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for shards of 0 rows.
    pub fn create(folder: impl AsRef<Path>, shard_rows: Option<u64>) -> Result<DatasetWriter> {
        let name = folder.as_ref().to_owned();
        check_free(&name)?;
        let folder = RowFolder::new_in(parent(&name), fields(), shard_rows, NUMBERING, SCHEMA)?;
        Ok(DatasetWriter { name, folder, rows: Vec::new(), next_id: 0 })
    }

    /// Adds a run and returns its id. Omits the final board and normalizes raw values ([`Run::normalized`]).
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
        check_whole(run)?;
        check_meta(run.meta())?;
        let run = &*run.normalized();
        self.rows.clear();
        for step in run.steps() {
            self.rows.push(DatasetRow::from_step(id, &step)?);
        }
        let first_step = self.folder.num_rows as i64;
        self.folder.push(bytemuck::cast_slice(&self.rows))?;
        let RunMeta { max_score, highest_tile, start_unix_s, elapsed_s, .. } = *run.meta();
        let (max_score, start_time, elapsed_s) = (max_score as i64, start_unix_s as i64, f64::from(elapsed_s));
        let (num_steps, engine) = (run.num_steps() as u32, run.meta().engine.as_deref().unwrap_or_default());
        let values = (id, first_step, num_steps, max_score, highest_tile, engine, start_time, elapsed_s);
        self.folder.database.insert(INSERT, values)?;
        self.next_id = next_id;
        Ok(u64::from(id))
    }

    /// Finishes the dataset, makes it durable and publishes it.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn finish(self) -> Result<()> {
        let (num_rows, num_runs) = (self.folder.num_rows, u64::from(self.next_id));
        let (staging, files) = self.folder.finish()?;
        let mut crc32c: BTreeMap<String, u32> = files.into_iter().collect();
        crc32c.insert(METADATA.into(), crc32c::crc32c(&map_file(&staging.path().join(METADATA))?));
        let crc32c = crc32c.into_iter().map(|(name, crc)| (name, format!("{crc:08x}"))).collect();
        write_json(staging.path(), manifest::NAME, &Manifest::new(num_rows, num_runs, crc32c))?;
        staging.publish(&self.name)
    }
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
