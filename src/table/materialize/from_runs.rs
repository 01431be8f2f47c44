//! Run files → a table, without an archive.

#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use crate::format::{
    Container, PackReader, ReadRun, RunInput, RunSource, Session, SourceFormat, each_window, runs_of_pack,
};
use crate::run::Run;
use crate::step::{NO_MOVE, Step};
use crate::system::cancellation::CancellationToken;
use crate::system::progress::Progress;
use crate::table::materialize::materialize_options::ChosenEv;
use crate::table::rows::layout::RowLayout;
use crate::table::rows::memory::memory_limit;
use crate::table::rows::row_output::RowMemory;
use crate::table::rows::runs::{Runs, TableRunFacts};
use crate::table::rows::wide::{Attempt, MAX_STEP_INDEX, WideColumns, WideOffsets};
use crate::table::step_table::StepTable;
use derive_setters::Setters;
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::slice::ChunksExactMut;
use std::sync::Arc;

/// The options for loading runs into a table.
///
/// Set fields with the `with_*` methods: `FromRunsOptions::default().with_workers(2)`.
#[derive(Clone, Debug, Default, PartialEq, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct FromRunsOptions {
    /// The value of the chosen branch.
    pub chosen_ev: ChosenEv,
    /// The memory limit for the rows in bytes; `None` = the memory that the system has available.
    pub memory_limit: Option<u64>,
    /// The number of threads; `None` = one per core.
    pub workers: Option<usize>,
    /// Whether to skip runs and files that cannot be read, and to list them in [`StepTable::errors`]. Otherwise loading
    /// stops at the first one and returns its error.
    pub skip_errors: bool,
}

impl StepTable {
    /// Reads run files, packs, pack.dat files, datasets, sessions and logs, and folders of them, directly into
    /// a table.
    ///
    /// A row's `run_id` is the index of its run among all runs, from 0. Skipped runs count too, so for a single pack
    /// the id is the index in the pack. A skipped file counts as one run. Rows are ordered by run. Files are read in
    /// the order of their paths. Phases have the default thresholds of an archive.
    ///
    /// # Errors
    /// The error of the first file or run that cannot be read, unless skipped;
    /// [`ErrorKind::MemoryLimit`](crate::ErrorKind::MemoryLimit);
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    ///
    /// # Examples
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let runs = folder.path().join("runs");
    /// use a2store::{CancellationToken, SimulateOptions, StepTable};
    /// use a2store::table::FromRunsOptions;
    /// let cancel = CancellationToken::new();
    /// a2store::simulate(&runs, &SimulateOptions::default().with_runs(4), &(), &cancel)?;
    /// let table = StepTable::from_runs([&runs], &FromRunsOptions::default(), &(), &cancel)?;
    /// assert_eq!(table.step(0).unwrap().run_id, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_runs<P: AsRef<Path>>(
        paths: impl IntoIterator<Item = P>,
        options: &FromRunsOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<StepTable> {
        let paths: Vec<PathBuf> = paths.into_iter().map(|path| path.as_ref().to_path_buf()).collect();
        StepTable::of(RunInput::Paths(&paths), &[], options, progress, cancel)
    }

    /// Reads a pack directly into a table. A row's `run_id` is the run's index in the pack.
    ///
    /// # Errors
    /// The errors of [`StepTable::from_runs`].
    pub fn from_pack(
        pack: &PackReader,
        options: &FromRunsOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<StepTable> {
        let input = RunInput::Open { runs: &runs_of_pack(pack), recorded_since: None };
        StepTable::of(input, &[], options, progress, cancel)
    }

    /// Reads a session directly into a table. A row has the session's own `run_id`, and `step_index` is the
    /// step's index in its game, so the session's embeddings can be [attached](StepTable::attach). Rows are
    /// in the order of both, also if the session has another order.
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
        let session = Session::open(&path)?;
        session.warning().iter().for_each(|text| progress.warn(text));
        let run_id = |id: u64| {
            let expected = "at most 4294967295, the largest run id of a row";
            u32::try_from(id).map_err(|_| Error::argument("run_id", expected, format!("run {id}")))
        };
        let run_ids = (0..session.num_runs()).filter_map(|index| session.id(index).map(run_id));
        let run_ids = run_ids.collect::<Result<Vec<u32>>>()?;
        let (source, path) = (Box::new(session), path.as_ref().to_path_buf());
        let runs = Arc::new(Container { source, path, format: SourceFormat::Session, session: None });
        let options = FromRunsOptions { memory_limit, ..FromRunsOptions::default() };
        StepTable::of(RunInput::Open { runs: &runs, recorded_since: None }, &run_ids, &options, progress, cancel)
    }

    /// Reads runs. `run_ids` are the ids of the runs of a container; without them, the ids are their indices.
    fn of(
        source: RunInput<'_>,
        run_ids: &[u32],
        options: &FromRunsOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<StepTable> {
        WideColumns::default().or_more(|attempt| {
            let mut rows = RunRows {
                attempt,
                layout: RowLayout::new(attempt.columns.fields().collect()),
                chosen_ev: options.chosen_ev,
                memory: RowMemory::up_to(u64::MAX, memory_limit(options.memory_limit))?,
                facts: TableRunFacts::default(),
            };
            let mut next = 0_u32;
            let FromRunsOptions { workers, skip_errors, .. } = *options;
            let errors = each_window(source, workers, false, skip_errors, progress, cancel, |window| {
                let mut wanted = Vec::with_capacity(window.len());
                for ReadRun { index, run, .. } in window {
                    if let (RunInput::Open { .. }, Some(place)) = (source, index) {
                        // Runs that were removed from the pack may precede this run.
                        next = place as u32;
                    }
                    if let Some((run, _)) = run {
                        let run_id = run_ids.get(next as usize).copied().unwrap_or(next);
                        wanted.push((run_id, run));
                    }
                    let after = next.checked_add(1);
                    next = after.ok_or_else(|| Error::argument("runs", "at most 4294967295", "more"))?;
                }
                rows.append(&wanted)
            })?;
            let mut table = rows.memory.into_table(rows.layout, Runs::of_facts(rows.facts), None, cancel)?;
            table.errors = errors.into();
            Ok(table)
        })
    }
}

/// A table that is filled run by run.
struct RunRows<'a> {
    attempt: &'a Attempt,
    layout: RowLayout,
    chosen_ev: ChosenEv,
    memory: RowMemory,
    facts: TableRunFacts,
}

impl RunRows<'_> {
    /// Appends the steps of runs with ascending ids. The threads of the current pool write them.
    fn append(&mut self, runs: &[(u32, Run)]) -> Result<()> {
        let (stride, offsets) = (self.layout.stride(), WideOffsets::of(&self.layout));
        let mut num_steps = 0;
        for (_, run) in runs {
            self.attempt.check(run)?;
            num_steps += run.num_steps();
        }
        let mut rest = self.memory.extend(num_steps.saturating_mul(stride))?;
        let mut parts = Vec::with_capacity(runs.len());
        for (run_id, run) in runs {
            let (rows, after) = rest.split_at_mut(run.num_steps() * stride);
            parts.push((*run_id, run, rows));
            rest = after;
        }
        let chosen_ev = self.chosen_ev;
        let written = parts.into_par_iter().map(|(run_id, run, rows)| {
            write_steps(run_id, run, chosen_ev, offsets, rows.chunks_exact_mut(stride));
            (run_id, run.meta(), run.game())
        });
        for (run_id, meta, game) in written.collect::<Vec<_>>() {
            self.facts.push(run_id, meta.max_score, game, meta.engine.clone());
        }
        Ok(())
    }
}

/// Writes the steps of a run to rows.
fn write_steps(run_id: u32, run: &Run, chosen_ev: ChosenEv, offsets: WideOffsets, rows: ChunksExactMut<'_, u8>) {
    let (masks, indices) = (run.tile_65536_masks(), run.step_indices());
    let mut unknown_moves = run.unknown_moves().iter().peekable();
    let columns = run.boards().iter().zip(run.moves()).zip(run.ev_values()).zip(run.ev_legal()).enumerate();
    for (row, (place, (((&board, &chosen), &ev_values), &ev_legal))) in rows.zip(columns) {
        let is_unknown = unknown_moves.next_if(|&&next| next as usize == place).is_some();
        let chosen = if is_unknown { NO_MOVE } else { chosen as u8 };
        let index = indices.map_or(place as u32, |indices| indices[place]);
        let step_index = index.min(MAX_STEP_INDEX) as u16;
        let mut step = Step { board, ev_values, run_id, step_index, chosen, ev_legal };
        // A step without values has four NaNs.
        if let (ChosenEv::One, Some(value)) = (chosen_ev, step.ev_values.get_mut(usize::from(chosen)))
            && !value.is_nan()
        {
            *value = 1.0;
        }
        offsets.write(&step, masks.map_or(0, |masks| masks[place]), index, row);
    }
}
