//! Reading self-play sessions.

use super::indexed_runs::{IndexedRuns, IndexedSource};
use super::metadata::{read_entry, read_runs};
use super::row::{fields, has_action, key, to_step};
use crate::board::Move;
use crate::error::Result;
use crate::format::files::mapped_rows::{METADATA, MappedRows, files_in};
use crate::format::files::sqlite::Database;
use crate::run::{Run, RunMeta, after_states};
use crate::system::publish::parent;
use serde_json::Value;
use std::path::Path;

/// A self-play session with memory-mapped rows. Any number of threads may read its runs in any order.
///
/// Opening reads `metadata.db` and scans all rows once to locate each run. Reading a run then reads only its
/// rows, which may be in any order and in any shard. The index takes 24 bytes per stretch of consecutive rows of one
/// run. The files must not be modified while the session is open.
#[derive(Debug)]
pub struct Session {
    runs: IndexedRuns,
    engine: Option<String>,
    /// The recorder's `sample_rate`; `None` = unknown.
    sample_rate: Option<u32>,
}

impl Session {
    /// Opens a session by its folder, or by any file in it.
    ///
    /// # Errors
    /// [`ErrorKind::Header`](crate::ErrorKind::Header) if a shard is missing, or if a file is damaged or has the wrong
    /// format or size; [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn open(path: impl AsRef<Path>) -> Result<Session> {
        let path = path.as_ref();
        let folder = if path.is_dir() { path } else { parent(path) };
        let database = Database::open(&folder.join(METADATA))?;
        let runs = read_runs(&database)?;
        let (model, rate) = (read_entry(&database, "model")?, read_entry(&database, "sample_rate")?);
        let engine = model.and_then(|model| model.get("tag")?.as_str().map(str::to_owned));
        let rate = rate.as_ref().and_then(Value::as_u64);
        let sample_rate = rate.and_then(|rate| u32::try_from(rate).ok()).filter(|&rate| rate > 0);
        let steps = MappedRows::open(files_in(folder)?, &[fields(false), fields(true)])?;
        Ok(Session { runs: IndexedRuns::new(folder, steps, runs, key), engine, sample_rate })
    }

    /// Returns the number of rows, including rows that belong to no run.
    #[must_use]
    pub fn num_steps(&self) -> u64 {
        self.runs.steps.num_rows()
    }

    /// Returns whether the rows hold the moves.
    #[must_use]
    pub fn has_actions(&self) -> bool {
        has_action(self.runs.steps.stride())
    }

    /// Returns the id of a run; `None` past the last run.
    #[must_use]
    pub fn id(&self, index: usize) -> Option<u64> {
        self.runs.id(index)
    }

    /// Returns the run ids that occur in rows but not in `metadata.db`, in ascending order, each with the number
    /// of its rows.
    #[must_use]
    pub fn rows_without_run(&self) -> Vec<(u64, u64)> {
        self.runs.rows_without_run().collect()
    }

    /// Decodes a run. The run has no final board and no branches. Without stored actions, some moves are unknown.
    ///
    /// A cancelled game may have one row more than steps. The run then has that row as its last step.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) with the run, the step and the offset in the file, if a row
    /// holds no valid step or a step that another row holds. The same error occurs if the run's rows are missing, or if
    /// it has at least two rows more than steps. [`ErrorKind::IndexOutOfBounds`](crate::ErrorKind::IndexOutOfBounds).
    pub fn decode(&self, index: usize) -> Result<Run> {
        let (meta, num_steps) = self.runs.meta(index)?;
        let meta = RunMeta { engine: self.engine.clone(), ..meta };
        let refuse = |what, expected: &str, found: String| Err(self.runs.damaged(index, what, expected, found));
        let len = self.runs.num_rows(index);
        if len == 0 && num_steps != Some(0) {
            let id = self.id(index).unwrap_or_default();
            return refuse("rows of the run", "at least one", format!("none with run_id {id}"));
        }
        // A game that is cancelled between its row and its move has one row more than steps.
        let most = num_steps.map_or(u64::MAX, |num_steps| u64::from(num_steps) + 1);
        if len > most {
            return refuse("rows of the run", &format!("at most {most}, one more than runs.steps"), len.to_string());
        }
        let run = self.runs.rebuild(index, &self.runs.rows(index), to_step, meta)?;
        let run = if self.has_actions() { run } else { derive_moves(&run)? };
        let Some(num_steps) = num_steps else { return Ok(run) };
        if let Some(last) = run.last_step().filter(|last| last.index > num_steps) {
            return refuse("step index", &format!("at most {num_steps} (runs.steps)"), last.index.to_string());
        }
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
}

impl IndexedSource for Session {
    fn indexed(&self) -> &IndexedRuns {
        &self.runs
    }

    fn decode(&self, index: usize) -> Result<Run> {
        self.decode(index)
    }
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
