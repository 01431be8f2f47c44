//! Run files → a table, without an archive.

use super::fingerprint::Fingerprint;
use super::layout::RowLayout;
use super::materialize_options::ChosenEv;
use super::memory::{Region, memory_limit};
use super::runs::{RunFacts, Runs};
use super::step_table::StepTable;
use super::wide::{MissingColumns, WideColumns, WideOffsets};
use crate::archive::{Phases, RunsOf, each_run};
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{PackReader, WideStep, flatten};
use crate::progress::Progress;
use crate::run::Run;
use crate::step::Step;
use derive_setters::Setters;
use std::path::{Path, PathBuf};

/// The options for loading runs into a table.
///
/// Set fields with the `with_*` methods: `FromRunsOptions::default().with_min_score(20_000)`.
#[derive(Clone, Debug, Default, PartialEq, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct FromRunsOptions {
    /// The lowest score of a run, inclusive.
    pub min_score: Option<u64>,
    /// The highest score of a run, inclusive.
    pub max_score: Option<u64>,
    /// The minimum number of steps of a run.
    pub min_steps: Option<u64>,
    /// The maximum number of steps of a run.
    pub max_steps: Option<u64>,
    /// The engine of a run.
    #[setters(into)]
    pub engine: Option<String>,
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

impl FromRunsOptions {
    fn wants(&self, run: &Run) -> bool {
        let (score, num_steps) = (run.meta().max_score, run.num_steps() as u64);
        self.min_score.is_none_or(|min| score >= min)
            && self.max_score.is_none_or(|max| score <= max)
            && self.min_steps.is_none_or(|min| num_steps >= min)
            && self.max_steps.is_none_or(|max| num_steps <= max)
            && self.engine.as_ref().is_none_or(|engine| run.meta().engine.as_ref() == Some(engine))
    }
}

impl StepTable {
    /// Reads run files, packs, pack.dat files, datasets, sessions and logs, and folders of them, directly into
    /// a table.
    ///
    /// A row's `run_id` is the index of its run among all runs, from 0. Filtered and skipped runs count too, so for a
    /// single pack the id is the index in the pack. A skipped file counts as one run. Rows are ordered by run. Files
    /// are read in the order of their paths. Phases have the default thresholds of an archive.
    ///
    /// # Errors
    /// The error of the first file or run that cannot be read, unless skipped; [`ErrorKind::MemoryLimit`];
    /// [`ErrorKind::Cancelled`].
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
        StepTable::of(&RunsOf::Paths(&paths), options, progress, cancel)
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
        StepTable::of(&RunsOf::Pack(pack), options, progress, cancel)
    }

    fn of(
        source: &RunsOf<'_>,
        options: &FromRunsOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<StepTable> {
        WideColumns::retry(|columns, missing| StepTable::of_rows(source, options, columns, missing, progress, cancel))
    }

    /// Reads runs into rows with these wide columns.
    fn of_rows(
        source: &RunsOf<'_>,
        options: &FromRunsOptions,
        columns: WideColumns,
        missing: &MissingColumns,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<StepTable> {
        let layout = RowLayout::new(columns.fields().collect());
        let offsets = WideOffsets::of(&layout);
        let is_wide = columns != WideColumns::default();
        let limit = memory_limit(options.memory_limit);
        let (mut region, reserved) = Region::reserve_most(limit)?;
        let (mut len, mut run_id) = (0, 0_u32);
        let mut facts = RunFacts::default();
        let mut hash = blake3::Hasher::new();
        let (mut rows, mut wide_rows, mut buffer): (Vec<Step>, Vec<WideStep>, Vec<u8>) = Default::default();
        let FromRunsOptions { workers, skip_errors, .. } = *options;
        let errors = each_run(source, workers, false, skip_errors, progress, cancel, |place, run| {
            if let (RunsOf::Pack(_), Some(place)) = (source, place) {
                // Runs that were removed from the pack may precede this one.
                run_id = place as u32;
            }
            if let Some((run, _)) = run.filter(|(run, _)| options.wants(run)) {
                columns.check(&run, missing)?;
                let is_one = options.chosen_ev == ChosenEv::One;
                let bytes: &[u8] = if is_wide {
                    wide_rows.clear();
                    flatten(&run, u64::from(run_id), &mut wide_rows)?;
                    wide_rows.iter_mut().filter(|_| is_one).for_each(|row| choose(&mut row.step));
                    buffer.clear();
                    buffer.resize(wide_rows.len() * layout.stride(), 0);
                    let slots = buffer.chunks_exact_mut(layout.stride()).zip(&wide_rows);
                    slots.for_each(|(slot, row)| offsets.write(row, slot));
                    &buffer
                } else {
                    rows.clear();
                    flatten(&run, u64::from(run_id), &mut rows)?;
                    rows.iter_mut().filter(|_| is_one).for_each(choose);
                    bytemuck::cast_slice(&rows)
                };
                let Some(slot) = region.bytes_mut()[..reserved as usize].get_mut(len..len + bytes.len()) else {
                    return Err(ErrorKind::MemoryLimit {
                        needed: (len + bytes.len()) as u64,
                        limit: limit.min(reserved),
                    }
                    .into());
                };
                slot.copy_from_slice(bytes);
                hash.update(bytes);
                len += bytes.len();
                facts.push(run_id, run.meta().max_score, run.meta().engine.clone());
            }
            run_id = run_id.checked_add(1).ok_or_else(|| Error::argument("runs", "at most 4294967295", "more"))?;
            Ok(())
        })?;
        let runs = Runs::of_facts(Phases::default(), facts);
        let fingerprint = Fingerprint::of_content(&hash.finalize());
        let mut table = StepTable::new(region.freeze(len)?, layout.clone(), fingerprint, runs)?;
        table.errors = errors.into();
        Ok(table)
    }
}

/// Sets the value of the chosen move to 1.0 if the step has values.
fn choose(step: &mut Step) {
    if let Some(value) = step.ev_values.get_mut(usize::from(step.chosen)).filter(|value| !value.is_nan()) {
        *value = 1.0;
    }
}
