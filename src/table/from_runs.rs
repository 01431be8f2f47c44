//! Run files → a table, without an archive.

use super::materialize_options::ChosenEv;
use super::memory::memory_limit;
use super::row_output::RowMemory;
use super::run_rows::{RunLayout, RunRows};
use super::step_table::StepTable;
use super::wide::WideColumns;
use crate::archive::{ReadRun, RunInput, each_window, runs_of_pack};
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::format::PackReader;
use crate::progress::Progress;
use derive_setters::Setters;
use std::path::{Path, PathBuf};

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
    /// use a2store::{CancellationToken, FromRunsOptions, SimulateOptions, StepTable};
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
        StepTable::of(RunInput::Paths(&paths), options, progress, cancel)
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
        StepTable::of(input, options, progress, cancel)
    }

    fn of(
        source: RunInput<'_>,
        options: &FromRunsOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<StepTable> {
        WideColumns::retry(|columns, missing| {
            let layout = RunLayout::new(columns, missing, options.chosen_ev);
            let memory = RowMemory::up_to(u64::MAX, memory_limit(options.memory_limit))?;
            let mut rows = RunRows::new(layout, memory);
            let mut run_id = 0_u32;
            let FromRunsOptions { workers, skip_errors, .. } = *options;
            let errors = each_window(source, workers, false, skip_errors, progress, cancel, |window| {
                let mut wanted = Vec::with_capacity(window.len());
                for ReadRun { index, run, .. } in window {
                    if let (RunInput::Open { .. }, Some(place)) = (source, index) {
                        // Runs that were removed from the pack may precede this one.
                        run_id = place as u32;
                    }
                    if let Some((run, _)) = run {
                        wanted.push((run_id, run));
                    }
                    let next = run_id.checked_add(1);
                    run_id = next.ok_or_else(|| Error::argument("runs", "at most 4294967295", "more"))?;
                }
                rows.append(&wanted)
            })?;
            let mut table = rows.into_table(cancel)?;
            table.errors = errors.into();
            Ok(table)
        })
    }
}
