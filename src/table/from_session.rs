//! A self-play session → a table, without an archive. Rows keep the session's run ids.

#[cfg(test)]
mod tests;

use super::materialize_options::ChosenEv;
use super::memory::memory_limit;
use super::row_output::RowMemory;
use super::run_rows::{RunLayout, RunRows};
use super::step_table::StepTable;
use super::wide::WideColumns;
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::format::Session;
use crate::progress::{Progress, Unit};
use crate::run::Run;
use crate::workers;
use derive_setters::Setters;
use rayon::prelude::*;
use std::collections::HashSet;
use std::path::Path;

/// The options for loading the rows of a session.
///
/// Set fields with the `with_*` methods: `FromSessionOptions::default().with_run_ids([5, 7])`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct FromSessionOptions {
    /// The ids of the runs; `None` = all.
    #[setters(skip)]
    pub run_ids: Option<Vec<u64>>,
    /// Extra columns with facts on a row's run: `max_score` (uint64) and `highest_tile` (uint32).
    #[setters(skip)]
    pub extra: Vec<String>,
    /// The memory limit for the rows in bytes; `None` = the memory that the system has available.
    pub memory_limit: Option<u64>,
    /// The number of threads; `None` = one per core.
    pub workers: Option<usize>,
}

impl FromSessionOptions {
    /// Selects the runs with these ids.
    #[must_use]
    pub fn with_run_ids(mut self, run_ids: impl IntoIterator<Item = u64>) -> Self {
        self.run_ids = Some(run_ids.into_iter().collect());
        self
    }

    /// Sets the extra columns.
    #[must_use]
    pub fn with_extra<S: Into<String>>(mut self, extra: impl IntoIterator<Item = S>) -> Self {
        self.extra = extra.into_iter().map(Into::into).collect();
        self
    }
}

/// The number of steps that are decoded at a time.
const WINDOW: u64 = 1 << 20;

impl StepTable {
    /// Reads a session directly into a table. A row has the session's own `run_id`, and `step_index` is the
    /// step's index in its game, so the session's embeddings can be [attached](StepTable::attach). Rows are
    /// ordered by both, whatever their order in the session.
    ///
    /// The values are NaN. A move that the session lacks is derived if the rules allow only one; otherwise it
    /// is 255. [`filter`](StepTable::filter) can filter by the scores and engines of the runs. Phases have the
    /// default thresholds of an archive.
    ///
    /// # Errors
    /// Any error of [`Session::open`] and [`Session::decode`];
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for a run id above 4,294,967,295, which a row cannot
    /// hold, for an unknown run id, and for an unknown extra column;
    /// [`ErrorKind::MemoryLimit`](crate::ErrorKind::MemoryLimit);
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub fn from_session(
        path: impl AsRef<Path>,
        options: &FromSessionOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<StepTable> {
        let threads = workers::pool("session", options.workers)?;
        let session = Session::open(path)?;
        session.ignored_rows().iter().for_each(|text| progress.warn(text));
        let indices = indices(&session, options.run_ids.as_deref())?;
        let num_rows: u64 = indices.iter().map(|&(index, _)| session.num_rows_of(index)).sum();
        WideColumns::retry(|columns, missing| {
            let layout = RunLayout::new(columns, missing, ChosenEv::Stored, &options.extra)?;
            let needed = num_rows.saturating_mul(layout.stride() as u64);
            let memory = RowMemory::exact(needed, memory_limit(options.memory_limit))?;
            let mut rows = RunRows::new(layout, memory);
            progress.begin("session", Unit::Rows, num_rows);
            let filled = threads.install(|| {
                let mut rest = indices.as_slice();
                while !rest.is_empty() {
                    let (mut count, mut num_steps) = (0, 0);
                    while count < rest.len() && num_steps < WINDOW {
                        num_steps += session.num_rows_of(rest[count].0);
                        count += 1;
                    }
                    let (window, after) = rest.split_at(count);
                    let decode = |&(index, run_id): &(usize, u32)| {
                        cancel.check()?;
                        Ok((run_id, session.decode(index)?))
                    };
                    // The first failed run's error is returned, independent of thread scheduling.
                    let runs: Vec<Result<(u32, Run)>> = window.par_iter().map(decode).collect();
                    rows.append(&runs.into_iter().collect::<Result<Vec<_>>>()?)?;
                    progress.advance(num_steps);
                    rest = after;
                }
                Ok(())
            });
            progress.end();
            filled.and_then(|()| rows.into_table(cancel))
        })
    }
}

/// Returns each selected run's index in the session and its id, ordered by id.
fn indices(session: &Session, run_ids: Option<&[u64]>) -> Result<Vec<(usize, u32)>> {
    let mut left: Option<HashSet<u64>> = run_ids.map(|ids| ids.iter().copied().collect());
    let mut indices = Vec::new();
    for index in 0..session.num_runs() {
        let Some(id) = session.id(index).filter(|id| left.as_mut().is_none_or(|left| left.remove(id))) else {
            continue;
        };
        let run_id = u32::try_from(id).map_err(|_| {
            Error::argument("run_id", "at most 4294967295, the largest run id of a row", format!("run {id}"))
        })?;
        indices.push((index, run_id));
    }
    match left.into_iter().flatten().min() {
        Some(id) => Err(Error::argument("run_ids", "run ids of the session", id)),
        None => Ok(indices),
    }
}
