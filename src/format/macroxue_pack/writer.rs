//! Writing Macroxue packs.

use super::reader::strays;
use super::row::{NUMBERING, PackedRow};
use super::valuation_types::ValuationTypes;
use crate::error::{Error, Result};
use crate::format::row_files::RowFiles;
use crate::format::rows::flatten;
use crate::format::session::{RowIndex, read_runs, stored_seed};
use crate::format::shards::{METADATA, RowShards, files_in, header_error};
use crate::format::sqlite::Database;
use crate::format::staged_folder::{StagedFolder, check_free};
use crate::publish::parent;
use crate::run::Run;
use crate::step_details::StepDetail;
use std::path::{Path, PathBuf};

/// The tables of the field's packer.
const SCHEMA: &str = "CREATE TABLE runs (
            id INTEGER PRIMARY KEY,
            seed BIGINT NOT NULL,
            steps INT NOT NULL,
            max_score INT NOT NULL,
            highest_tile INT NOT NULL
        );
CREATE TABLE session (
            meta_key TEXT PRIMARY KEY,
            meta_value TEXT NOT NULL
        );";
const INSERT: &str = "INSERT INTO runs VALUES (?1, ?2, ?3, ?4, ?5)";
/// The valuation type of a step that names none.
const USUAL_TYPE: &str = "search";

/// A writer of a new pack, or of an append to one.
///
/// Steps are written to disk immediately. [`finish`](MacroxuePackWriter::finish) makes a new pack durable and publishes
/// it under its name.
///
/// An append first publishes the new valuation types, then the rows, and then commits the runs in one transaction. If
/// it is interrupted between the last two, the new rows belong to no run. Readers report them, and all other runs are
/// intact.
///
/// # Examples
/// ```
/// # let folder = tempfile::tempdir()?;
/// use a2store::{Board, MacroxuePack, MacroxuePackWriter, Move, Run, RunMeta};
/// let mut steps = Run::builder(1);
/// steps.push(Board(0x1100_0000_0000_0000), Move::Left, None);
/// let run = steps.finish(RunMeta { seed: Some(7), ..RunMeta::default() }, None)?;
///
/// let folder = folder.path().join("pack");
/// let mut writer = MacroxuePackWriter::create(&folder, None)?;
/// writer.push(&run)?;
/// writer.finish()?;
///
/// let run = MacroxuePack::open(&folder)?.decode(0)?;
/// assert_eq!(run.meta().seed, Some(7));
/// assert_eq!(run.details().and_then(|details| details.get(0).valuation_type), Some("search"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MacroxuePackWriter {
    folder: PathBuf,
    staging: StagedFolder,
    files: RowFiles<PackedRow>,
    rows: Vec<PackedRow>,
    database: Database,
    types: ValuationTypes,
    /// For an append, whether the pack has one file of rows, which is replaced.
    old_is_single: Option<bool>,
    /// The id of the next run; `None` after the last id.
    next_id: Option<u32>,
}

impl MacroxuePackWriter {
    /// Creates a pack with at most `shard_rows` rows per shard; `None` = one `steps.npy`. The folder must be missing or
    /// empty.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), for example if the folder is not empty;
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for shards of 0 rows.
    pub fn create(folder: impl AsRef<Path>, shard_rows: Option<u64>) -> Result<MacroxuePackWriter> {
        let folder = folder.as_ref().to_owned();
        if shard_rows == Some(0) {
            return Err(Error::argument("shard_rows", "at least 1", 0));
        }
        check_free(&folder)?;
        let staging = StagedFolder::new_in(parent(&folder))?;
        let files = RowFiles::new(staging.path(), shard_rows, NUMBERING, 0);
        let database = Database::create_tables(&staging.path().join(METADATA), SCHEMA)?;
        let (rows, types) = (Vec::new(), ValuationTypes::default());
        Ok(MacroxuePackWriter { folder, staging, files, rows, database, types, old_is_single: None, next_id: Some(0) })
    }

    /// Opens a pack to append runs. New rows go into new shards, whose maximum size is the size of the largest existing
    /// shard. A single `steps.npy` is rewritten.
    ///
    /// # Errors
    /// The errors of [`MacroxuePack::open`](crate::MacroxuePack::open);
    /// [`ErrorKind::Header`](crate::ErrorKind::Header) also if rows belong to no run or are aligned to 48 bytes;
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if another process is writing.
    pub fn append(folder: impl AsRef<Path>) -> Result<MacroxuePackWriter> {
        let folder = folder.as_ref().to_owned();
        // Rejects aligned rows before the database changes its mode.
        RowShards::<PackedRow>::open(files_in(&folder)?)?;
        let database = Database::open_appending(&folder.join(METADATA))?;
        let runs = read_runs(&database)?;
        let types = ValuationTypes::read(&folder)?;
        // Another process may have added shards before this one got the lock.
        let steps = RowShards::<PackedRow>::open(files_in(&folder)?)?;
        if let Some(&(run_id, first)) = strays(&RowIndex::new(&steps), &runs).first() {
            let path = steps.place(first).map_or(folder.as_path(), |(path, _)| path);
            let found = format!("rows of run {run_id}");
            return Err(header_error("rows of the pack", "rows of runs in metadata.db", found, path));
        }
        let next_id = match runs.last() {
            None => Some(0),
            Some(last) => match u32::try_from(last.id.max(-1).saturating_add(1)) {
                Ok(next) => Some(next),
                Err(_) => return Err(Error::argument("run_id", "at most 4294967294 in a pack", last.id)),
            },
        };
        let staging = StagedFolder::new_in(&folder)?;
        let files = RowFiles::appending(staging.path(), &steps, NUMBERING)?;
        let (rows, old_is_single) = (Vec::new(), Some(steps.is_single()));
        Ok(MacroxuePackWriter { folder, staging, files, rows, database, types, old_is_single, next_id })
    }

    /// Adds a run under the next id. Omits the final board, the engine's name, start time and duration. A step without
    /// a valuation type is stored as `search`, and a step without an evaluation with 0.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for an unknown move, for values that are not finite, for
    /// more than 256 valuation types, for the seed 2^64 - 1, and for a score above 2^63 - 1. The pack is then unchanged.
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if a write fails. The pack must then not be finished.
    pub fn push(&mut self, run: &Run) -> Result<()> {
        let too_many = || Error::argument("runs", "at most 4294967296 in a pack", "one more");
        let id = self.next_id.ok_or_else(too_many)?;
        let meta = run.meta();
        let max_score = i64::try_from(meta.max_score)
            .map_err(|_| Error::argument("max_score", "at most 9223372036854775807 in a pack", meta.max_score))?;
        let seed = stored_seed(meta.seed)?;
        self.rows.clear();
        flatten(run, u64::from(id), &mut self.rows)?;
        // A rejected run adds no types.
        let mut types = self.types.clone();
        for (place, row) in self.rows.iter_mut().enumerate() {
            let detail = run.details().map_or(StepDetail::default(), |details| details.get(place));
            let valuation_type = types.id_or_add(detail.valuation_type.unwrap_or(USUAL_TYPE))?;
            *row = row.with_detail(valuation_type, detail.board_eval.unwrap_or(0), seed as u32);
        }
        self.files.push(&self.rows)?;
        self.types = types;
        self.database.insert(INSERT, (id, seed, run.num_steps() as u32, max_score, meta.highest_tile))?;
        self.next_id = id.checked_add(1);
        Ok(())
    }

    /// Finishes the pack, makes it durable and publishes it.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn finish(self) -> Result<()> {
        let MacroxuePackWriter { folder, staging, files, database, types, old_is_single, .. } = self;
        let written = files.finish(old_is_single.is_none())?;
        let Some(is_single) = old_is_single else {
            types.write(staging.path())?;
            database.execute("COMMIT")?;
            database.finish_writing()?;
            return staging.publish(&folder);
        };
        types.write(&folder)?;
        for (name, _) in written {
            staging.publish_file(&name, &folder, is_single)?;
        }
        database.execute("COMMIT")?;
        database.finish_writing()
    }
}
