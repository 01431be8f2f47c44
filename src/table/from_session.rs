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
use rayon::prelude::*;
use std::path::Path;

/// The number of steps that are decoded at a time.
const WINDOW: u64 = 1 << 20;

impl StepTable {
    /// Reads a session directly into a table. A row has the session's own `run_id`, and `step_index` is the
    /// step's index in its game, so the session's embeddings can be [attached](StepTable::attach). Rows are
    /// ordered by both, whatever their order in the session.
    ///
    /// The values are NaN. A move that the session lacks is derived if the rules allow only one; otherwise it is 255.
    /// [`filter`](StepTable::filter) can filter by the scores and engines of the runs. Phases have the default
    /// thresholds of an archive. `memory_limit` is the limit for the rows in bytes; `None` = the memory that the system
    /// has available.
    ///
    /// # Errors
    /// Any error of [`Session::open`] and [`Session::decode`];
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for a run id above 4,294,967,295, which a row cannot hold;
    /// [`ErrorKind::MemoryLimit`](crate::ErrorKind::MemoryLimit);
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub fn from_session(
        path: impl AsRef<Path>,
        memory_limit: Option<u64>,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<StepTable> {
        let threads = workers::shared()?;
        let session = Session::open(path)?;
        session.ignored_rows().iter().for_each(|text| progress.warn(text));
        let indices = indices(&session)?;
        let num_rows: u64 = indices.iter().map(|&(index, _)| session.num_rows_of(index)).sum();
        WideColumns::retry(|columns, missing| {
            let layout = RunLayout::new(columns, missing, ChosenEv::Stored);
            let needed = num_rows.saturating_mul(layout.stride() as u64);
            let memory = RowMemory::exact(needed, self::memory_limit(memory_limit))?;
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

/// Returns each run's index in the session and its id, ordered by id.
fn indices(session: &Session) -> Result<Vec<(usize, u32)>> {
    let run_id = |id: u64| {
        u32::try_from(id).map_err(|_| {
            Error::argument("run_id", "at most 4294967295, the largest run id of a row", format!("run {id}"))
        })
    };
    let ids = (0..session.num_runs()).filter_map(|index| Some((index, session.id(index)?)));
    ids.map(|(index, id)| Ok((index, run_id(id)?))).collect()
}
