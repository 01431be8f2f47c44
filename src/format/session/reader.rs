//! Reading self-play sessions.

use super::index::{RowIndex, RowsOfRun};
use super::metadata::{SessionRun, read_entries, read_runs};
use super::row::{BoardRow, fields, has_action, to_step};
use crate::board::Move;
use crate::error::{Error, ErrorKind, Location, Result};
use crate::format::rows::rebuild;
use crate::format::shards::{METADATA, RowShards, files_in};
use crate::format::source::{RunSource, SourceFacts, SourceRun};
use crate::format::sqlite::{Database, InvalidValue};
use crate::publish::parent;
use crate::run::{Run, RunMeta, after_states};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A self-play session with memory-mapped rows. Any number of threads may read its runs in any order.
///
/// Opening reads `metadata.db` and scans all rows once to locate each run. Reading a run then reads only its
/// rows, which may be in any order and in any shard. The index takes 24 bytes per run, and 8 bytes per stretch of
/// consecutive rows of one run. The files must not be modified while the session is open.
#[derive(Debug)]
pub struct Session {
    folder: PathBuf,
    steps: RowShards,
    index: RowIndex,
    runs: Vec<SessionRun>,
    entries: Vec<(String, Value)>,
    engine: Option<String>,
    /// The recorder's `sample_rate`; `None` = unknown.
    sample_rate: Option<u32>,
}

impl Session {
    /// Opens a session by its folder, or by any file in it.
    ///
    /// # Errors
    /// [`ErrorKind::Header`] if a shard is missing, or if a file is damaged or has the wrong format or size;
    /// [`ErrorKind::Io`].
    pub fn open(path: impl AsRef<Path>) -> Result<Session> {
        let path = path.as_ref();
        let folder = if path.is_dir() { path } else { parent(path) }.to_owned();
        let database = Database::open(&folder.join(METADATA))?;
        let (runs, entries) = (read_runs(&database)?, read_entries(&database)?);
        database.finish_reading()?;
        let entry = |name: &str| entries.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        let engine = entry("model").and_then(|model| model.get("tag")?.as_str()).map(str::to_owned);
        let rate = entry("sample_rate").and_then(Value::as_u64);
        let sample_rate = rate.and_then(|rate| u32::try_from(rate).ok()).filter(|&rate| rate > 0);
        let steps = RowShards::open(files_in(&folder)?, &[fields(false), fields(true)])?;
        let index = RowIndex::new::<BoardRow>(&steps);
        Ok(Session { folder, steps, index, runs, entries, engine, sample_rate })
    }

    /// Returns the session's name, which is the name of its folder.
    #[must_use]
    pub fn name(&self) -> String {
        name_of_folder(&self.folder)
    }

    /// Returns the session's metadata by key. Values are parsed as JSON. Text that is not JSON stays a string, and so
    /// does text beyond 64 KiB in total.
    #[must_use]
    pub fn entries(&self) -> &[(String, Value)] {
        &self.entries
    }

    /// Returns the number of runs.
    #[must_use]
    pub fn num_runs(&self) -> usize {
        self.runs.len()
    }

    /// Returns the number of rows, including rows that belong to no run.
    #[must_use]
    pub fn num_steps(&self) -> u64 {
        self.steps.num_rows()
    }

    /// Returns the number of rows of a run; 0 past the last run.
    #[must_use]
    pub fn num_rows_of(&self, index: usize) -> u64 {
        self.rows_of(index).map_or(0, |own| own.num_rows)
    }

    /// Returns whether the rows hold the moves.
    #[must_use]
    pub fn has_actions(&self) -> bool {
        has_action(self.steps.stride())
    }

    /// Returns the id of a run; `None` past the last run.
    #[must_use]
    pub fn id(&self, index: usize) -> Option<u64> {
        self.runs.get(index).map(|record| record.id as u64)
    }

    /// Returns the run ids that occur in rows but not in `metadata.db`, in ascending order, each with the number
    /// of its rows.
    #[must_use]
    pub fn rows_without_run(&self) -> Vec<(u64, u64)> {
        // Runs are sorted by their ids as signed numbers.
        let has_run = |id: u64| self.runs.binary_search_by_key(&(id as i64), |record| record.id).is_ok();
        let without = self.index.iter().filter(|own| !has_run(own.run_id));
        without.map(|own| (own.run_id, own.num_rows)).collect()
    }

    /// Returns a description of the rows that belong to no run, if there are any.
    pub(crate) fn ignored_rows(&self) -> Option<String> {
        let without = self.rows_without_run();
        let &(id, _) = without.first()?;
        let num_rows: u64 = without.iter().map(|(_, num_rows)| num_rows).sum();
        let others = if without.len() > 1 { format!(" and {} others", without.len() - 1) } else { String::new() };
        let folder = self.folder.display();
        Some(format!("{folder}: {num_rows} rows are ignored, because metadata.db lacks their run {id}{others}"))
    }

    /// Returns the metadata of a run without reading its steps.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] if the metadata is invalid; [`ErrorKind::IndexOutOfBounds`].
    pub fn meta(&self, index: usize) -> Result<RunMeta> {
        self.record(index).map(|record| self.meta_of(record))
    }

    /// Decodes a run. The run has no final board and no branches. Without stored actions, some moves are unknown.
    ///
    /// A cancelled game may have one row more than steps. The run then has that row as its last step.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] with the run, the step and the offset in the file, if a row holds no valid step or a step
    /// that another row holds. The same error occurs if the run's rows are missing, or if it has at least two rows
    /// more than steps. [`ErrorKind::IndexOutOfBounds`].
    pub fn decode(&self, index: usize) -> Result<Run> {
        let record = self.record(index)?;
        let refuse = |what, expected: &str, found: String| Err(self.damaged(index, what, expected, found));
        let own = self.rows_of(index);
        let len = own.map_or(0, |own| own.num_rows);
        if own.is_none() && record.num_steps != Some(0) {
            return refuse("rows of the run", "at least one", format!("none with run_id {}", record.id as u64));
        }
        // A game that is cancelled between its row and its move has one row more than steps.
        let most = record.num_steps.map_or(u64::MAX, |num_steps| u64::from(num_steps) + 1);
        if len > most {
            return refuse("rows of the run", &format!("at most {most}, one more than runs.steps"), len.to_string());
        }
        let meta = self.meta_of(record);
        let run = self.rebuild(own, meta, index)?;
        let run = if self.has_actions() { run } else { derive_moves(&run)? };
        if let (Some(num_steps), Some(last)) = (record.num_steps, run.last_step())
            && last.index > num_steps
        {
            return refuse("step index", &format!("at most {num_steps} (runs.steps)"), last.index.to_string());
        }
        let Some(num_steps) = record.num_steps else { return Ok(run) };
        match self.sample_rate {
            Some(rate) => {
                let mut indices = run.steps().zip((0..).step_by(rate as usize));
                if let Some((step, expected)) = indices.find(|(step, index)| u64::from(step.index) != *index) {
                    let expected = format!("{expected} with sample_rate {rate}");
                    return refuse("step index", &expected, step.index.to_string());
                }
                if len < u64::from(num_steps.div_ceil(rate)) {
                    let expected = format!("{} (runs.steps {num_steps}, sample_rate {rate})", num_steps.div_ceil(rate));
                    return refuse("rows of the run", &expected, len.to_string());
                }
            }
            // Sampled games have gaps between step indices, unless only the first step was sampled.
            None if run.step_indices().is_none() && len > 1 && len < u64::from(num_steps) => {
                return refuse("rows of the run", &format!("{num_steps} (runs.steps)"), len.to_string());
            }
            None => {}
        }
        Ok(run)
    }

    fn rebuild(&self, own: Option<RowsOfRun<'_>>, meta: RunMeta, index: usize) -> Result<Run> {
        let Some(own) = own else { return Run::builder(0).finish(meta, None) };
        let (rows, numbers) = own.read::<BoardRow>(&self.steps);
        let stride = self.steps.stride();
        rebuild(rows.chunks_exact(stride).map(to_step), stride, meta)
            .map_err(|error| self.steps.in_run(error, index as u64, |place| numbers.get(place)))
    }

    fn meta_of(&self, record: &SessionRun) -> RunMeta {
        RunMeta {
            max_score: record.max_score,
            highest_tile: record.highest_tile,
            engine: self.engine.clone(),
            seed: record.seed,
            ..RunMeta::default()
        }
    }

    fn record(&self, index: usize) -> Result<&SessionRun> {
        let Some(record) = self.runs.get(index) else {
            return Err(ErrorKind::IndexOutOfBounds { index: index as i128, len: self.runs.len() as u64 }.into());
        };
        if let Some(InvalidValue { what, expected, found }) = record.problem.as_deref() {
            return Err(self.damaged(index, what, expected, found.clone()));
        }
        Ok(record)
    }

    fn rows_of(&self, index: usize) -> Option<RowsOfRun<'_>> {
        self.index.rows_of(self.id(index)?)
    }

    #[cold]
    fn damaged(&self, index: usize, what: &'static str, expected: &str, found: String) -> Error {
        let path = Some(self.folder.join(METADATA));
        let location = Location { run: Some(index as u64), path, ..Location::default() };
        ErrorKind::Decode { location, what, expected: expected.to_owned(), found }.into()
    }
}

impl RunSource for Session {
    fn num_runs(&self) -> usize {
        self.runs.len()
    }

    fn offset(&self, index: usize) -> u64 {
        let first = self.rows_of(index).and_then(RowsOfRun::first);
        first.and_then(|first| self.steps.place(first)).map_or(0, |(_, offset)| offset)
    }

    fn num_bytes(&self, index: usize) -> u64 {
        self.num_rows_of(index) * self.steps.stride() as u64
    }

    fn facts(&self, index: usize) -> SourceFacts {
        SourceFacts { id: self.id(index), num_steps: self.runs.get(index).and_then(|record| record.num_steps) }
    }

    fn warning(&self) -> Option<String> {
        self.ignored_rows()
    }

    fn session(&self) -> Option<Arc<str>> {
        Some(self.name().into())
    }

    fn read(&self, index: usize) -> Result<SourceRun<'_>> {
        self.decode(index).map(SourceRun::Run)
    }
}

/// Returns the name of a folder, also for a path such as `.`.
pub(in crate::format) fn name_of_folder(folder: &Path) -> String {
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned()
}

/// Returns the run with the moves that the rules determine.
fn derive_moves(run: &Run) -> Result<Run> {
    let mut steps = Run::builder(run.num_steps());
    for (place, mut step) in run.steps().enumerate() {
        let next = run.step(place + 1).filter(|next| step.index.checked_add(1) == Some(next.index));
        if let Some(next) = next {
            let leads = |&direction: &Move| {
                after_states(step.board, direction).any(|after| after != step.board && after.spawns_into(next.board))
            };
            let mut leading = Move::ALL.into_iter().filter(leads);
            step.chosen = leading.next().filter(|_| leading.next().is_none());
        }
        steps.push_step(step)?;
    }
    steps.finish(run.meta().clone(), None)
}
