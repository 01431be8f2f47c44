//! A session that grows by one shard at a time and stays readable throughout.
//!
//! An append first writes to a staging folder inside the session's folder: the rows as the next shard, and the runs
//! in a copy of `metadata.db`. It makes these files durable. Then it moves the shard into place, then the database.
//!
//! Invariant: at any moment the session opens and holds every run in `metadata.db`. One more shard may hold rows
//! of runs that `metadata.db` does not know yet. The staging folder then holds the database that lists them.
//!
//! The entry `recorded` states the number of shards and rows that `metadata.db` covers. A session without shards
//! has an empty first shard, which the first append replaces.

use super::metadata::stored_seed;
use super::recording::unrecorded_name;
use super::row::{ActionRow, BoardRow, NUMBERING, OfRun};
use super::writer::{INSERT_SESSION, SCHEMA};
use crate::error::{Error, Result};
use crate::format::npy::NpyHeader;
use crate::format::row_files::RowFiles;
use crate::format::shards::{METADATA, NpyRow, header_error};
use crate::format::sqlite::{Database, text};
use crate::format::staged_folder::StagedFolder;
use crate::publish;
use crate::run::RunStep;
use rusqlite::types::ValueRef;
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A run to append: its metadata and its steps.
pub(crate) struct NewRun<I> {
    pub(crate) id: u64,
    pub(crate) seed: Option<u64>,
    pub(crate) num_steps: u32,
    pub(crate) max_score: u64,
    pub(crate) highest_tile: u32,
    pub(crate) steps: I,
}

/// A session that is being recorded.
#[derive(Debug)]
pub(crate) struct GrowingSession {
    folder: PathBuf,
    with_action: bool,
    recorded: Recorded,
    num_runs: u64,
    /// An id greater than all run ids.
    next_id: u64,
    rows_len: u64,
    metadata_len: u64,
    /// The staging folder of an append that failed between its two moves.
    left: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Recorded {
    shards: u64,
    rows: u64,
}

/// The rows that are converted at a time.
const CHUNK_ROWS: usize = 4096;
const RECORDED: &str = "recorded";
const INSERT_RUN: &str = "INSERT OR REPLACE INTO runs VALUES (?1, ?2, ?3, ?4, ?5)";
const REPLACE_SESSION: &str = "INSERT OR REPLACE INTO session VALUES (?1, ?2)";
const COUNT: &str = "SELECT count(*), coalesce(max(id), -1) FROM runs";

impl GrowingSession {
    /// Creates a session without runs in a folder that is not yet visible to readers.
    pub(crate) fn create(folder: &Path, entries: &[(String, Value)], with_action: bool) -> Result<GrowingSession> {
        let recorded = Recorded { shards: 0, rows: 0 };
        let mut session = GrowingSession {
            folder: folder.to_owned(),
            with_action,
            recorded,
            num_runs: 0,
            next_id: 0,
            rows_len: 0,
            metadata_len: 0,
            left: None,
        };
        session.write_first(folder)?;
        let database = begin(&folder.join(METADATA))?;
        database.execute(SCHEMA)?;
        database.insert(INSERT_SESSION, (RECORDED, recorded.to_json().to_string()))?;
        for (key, value) in entries {
            database.insert(INSERT_SESSION, (key, value.to_string()))?;
        }
        end(database)?;
        session.measure()?;
        Ok(session)
    }

    /// Opens a session whose writer may have stopped at any point. Takes over a shard whose runs are in the
    /// staging folder, then removes that folder. Renames a shard without known runs to `unrecorded-NNNNNN.npy`.
    pub(crate) fn recover(folder: &Path) -> Result<GrowingSession> {
        let (mut recorded, mut num_runs, mut next_id) = read(&folder.join(METADATA))?;
        let shard = folder.join(recorded.next_shard());
        let staged = publish::staged_in(folder)?;
        let num_rows = rows_in(&shard);
        if shard.exists() && !(recorded.shards == 0 && num_rows == Some(0)) {
            let next = Recorded { shards: recorded.shards + 1, rows: recorded.rows + num_rows.unwrap_or(0) };
            let knows = |beside: &PathBuf| {
                read(&beside.join(METADATA)).ok().filter(|known| known.0 == next && num_rows.is_some())
            };
            match staged.iter().find_map(|beside| Some((beside, knows(beside)?))) {
                Some((beside, known)) => {
                    rename(&beside.join(METADATA), &folder.join(METADATA))?;
                    (recorded, num_runs, next_id) = known;
                }
                None => rename(&shard, &folder.join(unrecorded_name(next.shards)))?,
            }
        }
        for beside in staged {
            let removed =
                if beside.is_dir() { std::fs::remove_dir_all(&beside) } else { std::fs::remove_file(&beside) };
            removed.map_err(|source| Error::io(&beside, source))?;
        }
        let first = folder.join(NUMBERING.name(NUMBERING.first));
        let with_action = match File::open(&first) {
            Ok(file) => {
                let header = NpyHeader::read(&file).map_err(|error| error.of_header().with_path(&first))?;
                header.has_fields(ActionRow::FIELDS)
            }
            // The first shard was renamed above. There are no rows yet, so either row layout is valid.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && recorded.shards == 0 => true,
            Err(error) => return Err(Error::io(&first, error)),
        };
        let mut session = GrowingSession {
            folder: folder.to_owned(),
            with_action,
            recorded,
            num_runs,
            next_id,
            rows_len: 0,
            metadata_len: 0,
            left: None,
        };
        if !first.exists() {
            let staging = StagedFolder::new_in(folder)?;
            session.write_first(staging.path())?;
            staging.publish_file(&recorded.next_shard(), folder, false)?;
        }
        session.rows_len = (1..=recorded.shards).map(|number| len_of(&folder.join(NUMBERING.name(number)))).sum();
        session.measure()?;
        Ok(session)
    }

    /// Appends runs as one more shard, and sets entries by key. After an error the session is unchanged, and the
    /// same runs can be appended again, alone or with more.
    pub(crate) fn append<I: Iterator<Item = RunStep>>(
        &mut self,
        runs: impl Iterator<Item = NewRun<I>>,
        entries: &[(&str, Value)],
    ) -> Result<()> {
        let staging = StagedFolder::new_in(&self.folder)?;
        let database = self.copy_metadata(staging.path())?;
        let (num_rows, next_id, num_runs) = match self.with_action {
            true => self.write::<ActionRow, I>(staging.path(), &database, runs)?,
            false => self.write::<BoardRow, I>(staging.path(), &database, runs)?,
        };
        let recorded = Recorded { shards: self.recorded.shards + 1, rows: self.recorded.rows + num_rows };
        let shard = self.recorded.next_shard();
        let shard_len = len_of(&staging.path().join(&shard));
        finish(database, recorded, entries)?;
        publish::sync(staging.path())?;
        publish::sync(&self.folder)?;
        if let Some(left) = self.left.take() {
            std::fs::remove_dir_all(&left).map_err(|source| Error::io(&left, source))?;
        }
        let published = staging
            .publish_file(&shard, &self.folder, true)
            .and_then(|()| staging.publish_file(METADATA, &self.folder, true));
        if let Err(error) = published {
            self.left = Some(staging.keep());
            return Err(error);
        }
        (self.recorded, self.next_id) = (recorded, next_id);
        self.num_runs += num_runs;
        self.rows_len += shard_len;
        self.measure()
    }

    /// Sets entries by key. Replaces existing ones.
    pub(crate) fn set_entries(&mut self, entries: &[(&str, Value)]) -> Result<()> {
        let staging = StagedFolder::new_in(&self.folder)?;
        finish(self.copy_metadata(staging.path())?, self.recorded, entries)?;
        staging.publish_file(METADATA, &self.folder, true)?;
        self.measure()
    }

    /// Updates the path after the folder was renamed.
    pub(crate) fn set_folder(&mut self, folder: &Path) {
        folder.clone_into(&mut self.folder);
    }

    pub(crate) fn with_action(&self) -> bool {
        self.with_action
    }

    pub(crate) fn num_runs(&self) -> u64 {
        self.num_runs
    }

    pub(crate) fn num_rows(&self) -> u64 {
        self.recorded.rows
    }

    /// Returns an id greater than the ids of all runs.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Returns the size of the rows and of the database in bytes.
    pub(crate) fn num_bytes(&self) -> (u64, u64) {
        (self.rows_len, self.metadata_len)
    }

    /// Returns the size of a row in bytes.
    pub(crate) fn row_len(with_action: bool) -> usize {
        if with_action { size_of::<ActionRow>() } else { size_of::<BoardRow>() }
    }

    fn write<R: NpyRow + OfRun, I: Iterator<Item = RunStep>>(
        &self,
        staging: &Path,
        database: &Database,
        runs: impl Iterator<Item = NewRun<I>>,
    ) -> Result<(u64, u64, u64)> {
        let mut files = RowFiles::<R>::new(staging, Some(u64::MAX), NUMBERING, self.recorded.shards);
        let mut rows = Vec::with_capacity(CHUNK_ROWS);
        let (mut next_id, mut num_runs) = (self.next_id, 0);
        for NewRun { id, seed, num_steps, max_score, highest_tile, steps } in runs {
            let seed = stored_seed(seed)?;
            database.insert(INSERT_RUN, (id as i64, seed, num_steps, max_score as i64, highest_tile))?;
            next_id = next_id.max(id + 1);
            num_runs += 1;
            for step in steps {
                rows.push(R::from_step(id, &step)?);
                if rows.len() == CHUNK_ROWS {
                    files.push(&rows)?;
                    rows.clear();
                }
            }
        }
        files.push(&rows)?;
        let num_rows = files.num_rows();
        files.finish(true)?;
        Ok((num_rows, next_id, num_runs))
    }

    /// Writes a first shard without rows.
    fn write_first(&self, folder: &Path) -> Result<()> {
        match self.with_action {
            true => RowFiles::<ActionRow>::new(folder, Some(1), NUMBERING, 0).finish(true)?,
            false => RowFiles::<BoardRow>::new(folder, Some(1), NUMBERING, 0).finish(true)?,
        };
        Ok(())
    }

    fn copy_metadata(&self, staging: &Path) -> Result<Database> {
        let copy = staging.join(METADATA);
        std::fs::copy(self.folder.join(METADATA), &copy).map_err(|source| Error::io(&copy, source))?;
        begin(&copy)
    }

    fn measure(&mut self) -> Result<()> {
        let path = self.folder.join(METADATA);
        self.metadata_len = std::fs::metadata(&path).map_err(|source| Error::io(&path, source))?.len();
        Ok(())
    }
}

impl Recorded {
    fn next_shard(self) -> String {
        NUMBERING.name(NUMBERING.first + self.shards)
    }

    fn to_json(self) -> Value {
        json!({ "shards": self.shards, "rows": self.rows })
    }

    fn parse(text: &str) -> Option<Recorded> {
        let value: Value = serde_json::from_str(text).ok()?;
        Some(Recorded { shards: value.get("shards")?.as_u64()?, rows: value.get("rows")?.as_u64()? })
    }
}

/// Opens a database that no other process uses. Its content counts only once it is closed.
fn begin(path: &Path) -> Result<Database> {
    let database = Database::create(path)?;
    database.execute("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF;")?;
    database.execute("BEGIN IMMEDIATE")?;
    Ok(database)
}

fn finish(database: Database, recorded: Recorded, entries: &[(&str, Value)]) -> Result<()> {
    database.insert(REPLACE_SESSION, (RECORDED, recorded.to_json().to_string()))?;
    for (key, value) in entries {
        database.insert(REPLACE_SESSION, (key, value.to_string()))?;
    }
    end(database)
}

fn end(database: Database) -> Result<()> {
    database.execute("COMMIT")?;
    database.finish_writing()
}

/// Reads what a database covers, the number of its runs, and an id greater than theirs.
fn read(path: &Path) -> Result<(Recorded, u64, u64)> {
    let database = Database::open(path)?;
    let mut recorded = None;
    database.each("SELECT meta_value FROM session WHERE meta_key = ?1", [RECORDED], |row| {
        recorded = text(row, 0).and_then(Recorded::parse);
        Ok(())
    })?;
    let (mut num_runs, mut next_id) = (0, 0);
    database.each(COUNT, [], |row| {
        let integer = |column| if let Ok(ValueRef::Integer(value)) = row.get_ref(column) { value } else { 0 };
        (num_runs, next_id) = (integer(0) as u64, integer(1).saturating_add(1) as u64);
        Ok(())
    })?;
    database.finish_reading()?;
    let refuse = || header_error("session", format!("an entry {RECORDED}"), "none".into(), path);
    Ok((recorded.ok_or_else(refuse)?, num_runs, next_id))
}

/// Returns the number of rows of a complete file, or `None` if the file is incomplete.
fn rows_in(path: &Path) -> Option<u64> {
    let file = File::open(path).ok()?;
    let header = NpyHeader::read(&file).ok()?;
    header.check_file_len(file.metadata().ok()?.len()).ok()?;
    Some(header.num_rows)
}

fn len_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).map_err(|source| Error::io(to, source))?;
    publish::sync_parent(to)
}
