//! Writing Macroxue packs.

use super::layout::{NUMBERING, PackLayout};
use super::reader::{strays, usual_seed};
use super::row::{AlignedRow, PackRow, PackedRow, is_aligned, with_detail};
use super::valuation_types::ValuationTypes;
use crate::error::{Error, Result};
use crate::format::mapped::FileBytes;
use crate::format::npy::NpyHeader;
use crate::format::row_files::RowFiles;
use crate::format::rows::flatten;
use crate::format::session::{RowIndex, read_runs, stored_seed};
use crate::format::shards::{METADATA, RowShards, SINGLE, ShardNumbering, files_in, header_error};
use crate::format::sqlite::Database;
use crate::format::staged_folder::{StagedFolder, check_free};
use crate::publish::parent;
use crate::run::Run;
use crate::step_details::StepDetail;
use serde_json::Value;
use std::collections::{HashSet, VecDeque};
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
const INSERT_SESSION: &str = "INSERT INTO session VALUES (?1, ?2)";
/// The valuation type of a step that names none.
const USUAL_TYPE: &str = "search";
/// Rows that are copied at a time.
const CHUNK_ROWS: usize = 1 << 15;

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
    files: Files,
    database: Database,
    types: ValuationTypes,
    /// For an append, whether the pack has one file of rows, which is replaced.
    old_is_single: Option<bool>,
    ids: HashSet<u32>,
    /// The id of the next run without an id; `None` after the last id.
    next_id: Option<u32>,
}

enum Files {
    Packed(RowFiles<PackedRow>, Vec<PackedRow>),
    Aligned(RowFiles<AlignedRow>, Vec<AlignedRow>),
}

/// The contents of a new pack besides its runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PackContents<'a> {
    /// The rows of the table `session`.
    pub(crate) entries: &'a [(String, Option<String>)],
    /// The layout of the pack that the runs came from.
    pub(crate) layout: Option<&'a Value>,
    /// The maximum rows per shard. `None` = as in the layout, or else one `steps.npy`.
    pub(crate) shard_rows: Option<u64>,
}

impl MacroxuePackWriter {
    /// Creates a pack in the layout of the field's packer, with at most `shard_rows` rows per shard; `None` = one
    /// `steps.npy`. The folder must be missing or empty.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), for example if the folder is not empty;
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for shards of 0 rows.
    pub fn create(folder: impl AsRef<Path>, shard_rows: Option<u64>) -> Result<MacroxuePackWriter> {
        MacroxuePackWriter::create_as(folder.as_ref(), PackContents { shard_rows, ..PackContents::default() })
    }

    /// Does the same as [`create`](MacroxuePackWriter::create), with these contents.
    pub(crate) fn create_as(folder: &Path, contents: PackContents<'_>) -> Result<MacroxuePackWriter> {
        let PackContents { entries, layout, shard_rows } = contents;
        if shard_rows == Some(0) {
            return Err(Error::argument("shard_rows", "at least 1", 0));
        }
        let layout = match layout {
            Some(layout) => PackLayout::of_json(layout)?,
            None => PackLayout::of_packer(shard_rows.is_some())?,
        };
        let (numbering, planned) = match shard_rows {
            Some(_) => (Some(NUMBERING), VecDeque::new()),
            None => (layout.numbering(), layout.shard_rows()),
        };
        let shard_rows = shard_rows.or(numbering.and(planned.front().copied())).filter(|&rows| rows > 0);
        let types = layout.valuation_types()?;
        check_free(folder)?;
        let staging = StagedFolder::new_in(parent(folder))?;
        let at = staging.path();
        let shard_rows = numbering.map(|_| shard_rows.unwrap_or(u64::MAX));
        let numbering = numbering.unwrap_or(NUMBERING);
        let files = match layout.aligned {
            true => Files::Aligned(new_files(at, shard_rows, numbering, 0, &layout, planned), Vec::new()),
            false => Files::Packed(new_files(at, shard_rows, numbering, 0, &layout, planned), Vec::new()),
        };
        let database = Database::create(&staging.path().join(METADATA))?;
        database.execute("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF;")?;
        database.execute("BEGIN IMMEDIATE")?;
        database.execute(SCHEMA)?;
        for (key, value) in entries {
            // The table has no NULL.
            database.insert(INSERT_SESSION, (key, value.as_deref().unwrap_or("null")))?;
        }
        let folder = folder.to_owned();
        let ids = HashSet::new();
        Ok(MacroxuePackWriter { folder, staging, files, database, types, old_is_single: None, ids, next_id: Some(0) })
    }

    /// Opens a pack to append runs. New rows go into new shards, whose maximum size is the size of the largest existing
    /// shard. A single `steps.npy` is rewritten.
    ///
    /// # Errors
    /// The errors of [`MacroxuePack::open`](crate::MacroxuePack::open);
    /// [`ErrorKind::Header`](crate::ErrorKind::Header) also if rows belong to no run;
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if another process is writing.
    pub fn append(folder: impl AsRef<Path>) -> Result<MacroxuePackWriter> {
        let folder = folder.as_ref();
        let files = files_in(folder)?;
        let start = match files.first() {
            Some(path) => FileBytes::map(path)?,
            None => FileBytes::Held(Vec::new()),
        };
        let is_aligned = NpyHeader::parse(&start).map(|header| is_aligned(&header));
        let first = files.first().map_or(folder, PathBuf::as_path);
        match is_aligned.map_err(|error| error.of_header().with_path(first))? {
            true => Self::append_as::<AlignedRow>(folder, &start, |files| Files::Aligned(files, Vec::new())),
            false => Self::append_as::<PackedRow>(folder, &start, |files| Files::Packed(files, Vec::new())),
        }
    }

    fn append_as<R: PackRow>(
        folder: &Path,
        start: &[u8],
        wrap: impl FnOnce(RowFiles<R>) -> Files,
    ) -> Result<MacroxuePackWriter> {
        let database = Database::open_writing(&folder.join(METADATA))?;
        // WAL mode would not block readers either, but its log would remain.
        database.execute("PRAGMA journal_mode = DELETE; PRAGMA synchronous = EXTRA; BEGIN IMMEDIATE")?;
        let runs = read_runs(&database)?;
        let types = ValuationTypes::read(folder)?;
        // Lists the files again, because another process may have added some before this one got the lock.
        let paths = files_in(folder)?;
        let steps = RowShards::<R>::open(paths.clone())?;
        if let Some(&(run_id, first)) = strays(&RowIndex::new(&steps), &runs).first() {
            let path = steps.place(first).map_or(folder, |(path, _)| path);
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
        let num_rows = steps.slices().map(|rows| rows.len() as u64);
        let layout = PackLayout::of_pack(&paths, start, num_rows, None, &types)?;
        let staging = StagedFolder::new_in(folder)?;
        let is_single = paths.iter().all(|path| path.ends_with(SINGLE));
        let none = VecDeque::new();
        let files = if is_single {
            let mut files = new_files(staging.path(), None, NUMBERING, 0, &layout, none);
            for rows in steps.slices().flat_map(|rows| rows.chunks(CHUNK_ROWS)) {
                files.push(rows)?;
            }
            files
        } else {
            let (shard_rows, num_shards) = (steps.max_shard_rows().max(1), paths.len() as u64);
            let numbering = layout.numbering().unwrap_or(NUMBERING);
            new_files(staging.path(), Some(shard_rows), numbering, num_shards, &layout, none)
        };
        let (folder, files) = (folder.to_owned(), wrap(files));
        let ids = HashSet::new();
        Ok(MacroxuePackWriter { folder, staging, files, database, types, old_is_single: Some(is_single), ids, next_id })
    }

    /// Adds a run under the next id. Omits the final board, the engine's name, start time and duration. A step without
    /// a valuation type is stored as `search`, and a step without an evaluation with 0.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for an unknown move, for values that are not finite, for
    /// more than 256 valuation types, for the seed 2^64 - 1, and for a score above 2^63 - 1. The pack is then unchanged,
    /// except that it may have more valuation types.
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if a write fails. The pack must then not be finished.
    pub fn push(&mut self, run: &Run) -> Result<()> {
        self.push_as(None, run)
    }

    /// Does the same as [`push`](MacroxuePackWriter::push), under this id; `None` = the next id. The id must be free.
    pub(crate) fn push_as(&mut self, id: Option<u64>, run: &Run) -> Result<()> {
        let id = match id {
            Some(id) => u32::try_from(id).map_err(|_| Error::argument("run_id", "at most 4294967295", id))?,
            None => self.next_id.ok_or_else(|| Error::argument("runs", "at most 4294967296 in a pack", "one more"))?,
        };
        if self.ids.contains(&id) {
            return Err(Error::argument("id", "unique ids", id));
        }
        let meta = run.meta();
        let max_score = i64::try_from(meta.max_score)
            .map_err(|_| Error::argument("max_score", "at most 9223372036854775807 in a pack", meta.max_score))?;
        let seed = stored_seed(meta.seed)?;
        let types = self.types.clone();
        let pushed = match &mut self.files {
            Files::Packed(files, rows) => push(files, rows, run, id, &mut self.types),
            Files::Aligned(files, rows) => push(files, rows, run, id, &mut self.types),
        };
        // A rejected run adds no types.
        pushed.inspect_err(|_| self.types = types)?;
        self.database.insert(INSERT, (id, seed, run.num_steps() as u32, max_score, meta.highest_tile))?;
        self.ids.insert(id);
        self.next_id = id.checked_add(1);
        Ok(())
    }

    /// Finishes the pack, makes it durable and publishes it.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn finish(self) -> Result<()> {
        let MacroxuePackWriter { folder, staging, files, database, types, old_is_single, .. } = self;
        let even_if_empty = old_is_single.is_none();
        let written = match files {
            Files::Packed(files, _) => files.finish(even_if_empty)?,
            Files::Aligned(files, _) => files.finish(even_if_empty)?,
        };
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

fn new_files<R: PackRow>(
    folder: &Path,
    shard_rows: Option<u64>,
    numbering: ShardNumbering,
    num_shards: u64,
    layout: &PackLayout,
    planned: VecDeque<u64>,
) -> RowFiles<R> {
    RowFiles::new(folder, shard_rows, numbering, num_shards).with_planned(planned).with_header(layout.header())
}

fn push<R: PackRow>(
    files: &mut RowFiles<R>,
    rows: &mut Vec<R>,
    run: &Run,
    id: u32,
    types: &mut ValuationTypes,
) -> Result<()> {
    rows.clear();
    flatten(run, u64::from(id), rows)?;
    let seed = usual_seed(run.meta().seed);
    for (place, row) in rows.iter_mut().enumerate() {
        let detail = run.details().map_or(StepDetail::default(), |details| details.get(place));
        let valuation_type = types.id_or_add(detail.valuation_type.unwrap_or(USUAL_TYPE))?;
        *row = with_detail(row, detail, valuation_type, seed);
    }
    if let Some(details) = run.details() {
        R::set_padding(rows, details.padding());
    }
    files.push(rows)
}
