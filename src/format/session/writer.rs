//! Writing self-play sessions.

use super::metadata::stored_seed;
use super::row::{NUMBERING, fields, put_step};
use crate::error::{Error, Result};
use crate::format::files::row_folder::RowFolder;
use crate::format::files::staged_folder::check_free;
use crate::run::{Run, RunMeta};
use crate::system::publish::{self, parent};
use derive_setters::Setters;
use serde_json::Value;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

const SCHEMA: &str =
    "CREATE TABLE runs(id INTEGER PRIMARY KEY, seed BIGINT, steps INT, max_score INT, highest_tile INT);
CREATE TABLE session(meta_key TEXT PRIMARY KEY, meta_value TEXT);";
const INSERT: &str = "INSERT INTO runs VALUES (?1, ?2, ?3, ?4, ?5)";
const INSERT_SESSION: &str = "INSERT INTO session VALUES (?1, ?2)";

/// Options for writing a session.
///
/// Set fields with the `with_*` methods: `SessionOptions::default().with_rotate_rows(1_000_000)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct SessionOptions {
    /// Whether to write the moves. An existing Rust reader of sessions rejects sessions with moves. Without moves, a
    /// reader derives each move from the next board if only one move leads there.
    #[setters(rename = "with_action")]
    pub with_action: bool,
    /// The maximum rows per shard; `None` = one `steps.npy`.
    pub rotate_rows: Option<u64>,
}

/// A writer of a session. [`finish`](SessionWriter::finish) makes the session durable and publishes it under its
/// name.
///
/// # Examples
/// ```
/// # let folder = tempfile::tempdir()?;
/// use a2store::{Board, Move, Run};
/// use a2store::run::RunMeta;
/// let mut steps = Run::builder(1);
/// steps.push(Board(0x1100_0000_0000_0000), Move::Left, None);
/// let run = steps.finish(RunMeta { seed: Some(7), ..RunMeta::default() }, None)?;
///
/// let folder = folder.path().join("selfplay");
/// let options = a2store::format::SessionOptions::default().with_action(true);
/// let mut writer = a2store::format::SessionWriter::create(&folder, &[], options)?;
/// writer.push(1000, &run)?;
/// writer.finish()?;
///
/// let session = a2store::format::Session::open(&folder)?;
/// assert_eq!((session.id(0), session.decode(0)?.meta().seed), (Some(1000), Some(7)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SessionWriter {
    name: PathBuf,
    folder: RowFolder,
    with_action: bool,
    rows: Vec<u8>,
    ids: HashSet<u64>,
}

impl SessionWriter {
    /// Creates a session with these metadata entries. The folder must be missing or empty.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), for example if the folder is not empty;
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for shards of 0 rows or a repeated key.
    pub fn create(
        folder: impl AsRef<Path>,
        entries: &[(String, Value)],
        options: SessionOptions,
    ) -> Result<SessionWriter> {
        let name = folder.as_ref().to_owned();
        check_free(&name)?;
        let writer = SessionWriter::create_in(parent(&name), entries, options)?;
        Ok(SessionWriter { name, ..writer })
    }

    /// Creates a session that gets its name from [`finish_as`](SessionWriter::finish_as).
    pub(crate) fn create_in(
        parent: &Path,
        entries: &[(String, Value)],
        options: SessionOptions,
    ) -> Result<SessionWriter> {
        let mut keys = HashSet::new();
        if let Some((key, _)) = entries.iter().find(|(key, _)| !keys.insert(key)) {
            return Err(Error::argument("entries", "unique keys", key));
        }
        let SessionOptions { with_action, rotate_rows } = options;
        let folder = RowFolder::new_in(parent, fields(with_action), rotate_rows, NUMBERING, SCHEMA)?;
        let (name, rows, ids) = (PathBuf::new(), Vec::new(), HashSet::new());
        let writer = SessionWriter { name, folder, with_action, rows, ids };
        entries.iter().try_for_each(|(key, value)| writer.add_entry(key, value))?;
        Ok(writer)
    }

    /// Adds a metadata entry with a new key.
    pub(crate) fn add_entry(&self, key: &str, value: &Value) -> Result<()> {
        self.folder.database.insert(INSERT_SESSION, (key, value.to_string()))
    }

    /// Adds a run under an id. Omits branches, the final board, start time and duration, and also moves unless
    /// [`SessionOptions::with_action()`] is set. A sampled run is assumed to end with its last present step.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if the id is taken, if `max_score` exceeds 2^63 - 1, if
    /// the seed is 2^64 - 1, or if moves are to be written and some are unknown. The session is then unchanged.
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if a write fails. The session must then not be finished.
    pub fn push(&mut self, id: u64, run: &Run) -> Result<()> {
        self.push_part(id, run, Some(run.last_step().map_or(0, |step| step.index.saturating_add(1))))
    }

    /// Does the same as [`push`](SessionWriter::push), for a game of `num_steps` steps (`None` = unknown). The run
    /// may lack some of them. A cancelled game may have one step more, whose move was not made.
    ///
    /// # Errors
    /// The errors of [`push`](SessionWriter::push); [`ErrorKind::Argument`](crate::ErrorKind::Argument) also if the
    /// run has more than `num_steps` + 1 steps.
    pub fn push_part(&mut self, id: u64, run: &Run, num_steps: Option<u32>) -> Result<()> {
        if self.ids.contains(&id) {
            return Err(Error::argument("id", "unique ids", id));
        }
        if let Some(num_steps) = num_steps.filter(|&num_steps| run.num_steps() as u64 > u64::from(num_steps) + 1) {
            return Err(Error::argument("num_steps", format!("at least {}", run.num_steps() - 1), num_steps));
        }
        let RunMeta { seed, max_score, highest_tile, .. } = *run.meta();
        self.rows.clear();
        run.steps().try_for_each(|step| put_step(&mut self.rows, id, &step, self.with_action))?;
        let max_score = i64::try_from(max_score)
            .map_err(|_| Error::argument("max_score", "at most 9223372036854775807 in a session", max_score))?;
        let seed = stored_seed(seed)?;
        self.folder.database.insert(INSERT, (id as i64, seed, num_steps, max_score, highest_tile))?;
        self.folder.push(&self.rows)?;
        self.ids.insert(id);
        Ok(())
    }

    /// Finishes the session, makes it durable and publishes it under its name.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn finish(mut self) -> Result<()> {
        let name = std::mem::take(&mut self.name);
        publish::sync_parent(&self.finish_as([name])?)
    }

    /// Finishes the session, makes its files durable and gives it the first of the names that is free. Returns the
    /// name, which is durable after the next sync of its parent.
    pub(crate) fn finish_as(self, names: impl IntoIterator<Item = PathBuf>) -> Result<PathBuf> {
        self.folder.finish()?.0.rename_to_first_free(names)
    }
}
