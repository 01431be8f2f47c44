//! Reading Macroxue packs.

use super::row::{Head, layouts, to_step};
use super::valuation_types::ValuationTypes;
use crate::error::{Error, Result};
use crate::format::rows::rebuild;
use crate::format::session::{IndexedRuns, read_runs};
use crate::format::shards::{METADATA, RowShards, files_in, part_of};
use crate::format::source::{RunSource, SourceFacts, SourceRun};
use crate::format::sqlite::Database;
use crate::run::{Run, RunMeta};
use crate::step_details::{StepDetail, StepDetails};
use std::path::Path;
use std::sync::Arc;

/// A Macroxue pack with memory-mapped rows. Any number of threads may read its runs in any order.
///
/// Opening reads `metadata.db` and scans all rows once to locate each run. The index takes 24 bytes per run. Rows that
/// belong to no run are reported as one damaged run for each of their ids, after all other runs. The files must not be
/// modified while the pack is open.
#[derive(Debug)]
pub struct MacroxuePack {
    /// The runs in the order of their rows.
    runs: IndexedRuns,
    /// The run ids that occur in rows only, each with its first row.
    strays: Vec<(u64, u64)>,
    types: ValuationTypes,
}

impl MacroxuePack {
    /// Opens a pack by its folder.
    ///
    /// # Errors
    /// [`ErrorKind::Header`](crate::ErrorKind::Header) if a shard is missing, or if a file is damaged or has the wrong
    /// format or size; [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn open(folder: impl AsRef<Path>) -> Result<MacroxuePack> {
        let folder = folder.as_ref();
        let database = Database::open(&folder.join(METADATA))?;
        let runs = read_runs(&database)?;
        let types = ValuationTypes::read(folder)?;
        let steps = RowShards::open(files_in(folder)?, &layouts())?;
        let mut runs = IndexedRuns::new::<Head>(folder, steps, runs);
        let strays = runs.rows_without_run().map(|own| (own.run_id, own.first())).collect();
        let IndexedRuns { index, runs: records, .. } = &mut runs;
        let first_row = |id: i64| index.rows_of(id as u64).map_or(u64::MAX, |own| own.first());
        records.sort_by_cached_key(|run| (first_row(run.id), run.id));
        Ok(MacroxuePack { runs, strays, types })
    }

    /// Returns the number of runs. Each id that occurs in rows only counts as a run.
    #[must_use]
    pub fn num_runs(&self) -> usize {
        self.runs.runs.len() + self.strays.len()
    }

    /// Returns the id of a run; `None` past the last run of `metadata.db`.
    #[must_use]
    pub fn id(&self, index: usize) -> Option<u64> {
        self.runs.id(index)
    }

    /// Decodes a run. Runs are in the order of their rows. A run has raw values and details, and no final board.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) with the run, and with the step and the offset in the file if a
    /// row holds no valid step. It is also returned if rows are missing, out of order, or belong to no run.
    /// [`ErrorKind::IndexOutOfBounds`](crate::ErrorKind::IndexOutOfBounds).
    pub fn decode(&self, index: usize) -> Result<Run> {
        let steps = &self.runs.steps;
        if let Some(stray) = index.checked_sub(self.runs.runs.len()) {
            let &(run_id, first) = self.strays.get(stray).ok_or_else(|| Error::no_index(index, self.num_runs()))?;
            let error = Error::decode(0, "run_id", "the id of a run in metadata.db", run_id);
            return Err(steps.in_run(error, index as u64, |_| first));
        }
        let (meta, num_steps) = self.runs.meta(index)?;
        let meta = RunMeta { raw_evs: true, ..meta };
        let Some(num_steps) = num_steps else {
            return Err(self.runs.damaged(index, "runs.steps", "an INTEGER in 0..=4294967295", "NULL"));
        };
        let expected = format!("{num_steps} (runs.steps)");
        let Some(own) = self.runs.rows_of(index) else {
            if num_steps == 0 {
                return Run::builder(0).finish(meta, None);
            }
            let found = format!("none with run_id {}", self.id(index).unwrap_or_default());
            // No file has a row of the run, so the error names the folder.
            let error = Error::decode(0, "rows of the run", expected, found).with_path(self.runs.folder());
            return Err(error.located(|location| (location.run, location.offset) = (Some(index as u64), None)));
        };
        let first = own.first();
        let in_run = |error: Error| steps.in_run(error, index as u64, |place| first.saturating_add(place));
        if let Some(again) = own.spans().get(1) {
            let expected = "consecutive rows of each run";
            let error = Error::decode(0, "run_id", expected, format_args!("{} again", own.run_id));
            return Err(steps.in_run(error, index as u64, |_| again.first));
        }
        if own.num_rows != u64::from(num_steps) {
            return Err(in_run(Error::decode(0, "rows of the run", expected, own.num_rows)));
        }
        let (rows, stride) =
            (steps.rows(first..first.saturating_add(own.num_rows)).unwrap_or_default(), steps.stride());
        let details = self.details(&rows).map_err(in_run)?;
        let run = rebuild(rows.chunks_exact(stride).map(to_step), stride, meta).map_err(in_run)?;
        Ok(run.with_details(details))
    }

    /// Returns the details in the rows of a run.
    fn details(&self, rows: &[u8]) -> Result<StepDetails> {
        let (names, stride) = (self.types.names(), self.runs.steps.stride());
        let heads = || rows.chunks_exact(stride).map(|row| *part_of::<Head>(row, 0));
        let has_evals = heads().any(|head| head.board_eval != 0);
        let mut details = StepDetails::default();
        for (place, Head { valuation_type: id, board_eval, .. }) in heads().enumerate() {
            let Some(name) = names[usize::from(id)] else {
                let offset = place * stride + std::mem::offset_of!(Head, valuation_type);
                let error = Error::decode(offset as u64, "valuation_type", "an id in valuation_types.json", id);
                return Err(error.located(|location| location.step = Some(place as u64)));
            };
            // A pack has at most 256 types, so each fits.
            details.push(StepDetail { valuation_type: Some(name), board_eval: has_evals.then_some(board_eval) });
        }
        Ok(details)
    }
}

impl RunSource for MacroxuePack {
    fn num_runs(&self) -> usize {
        self.num_runs()
    }

    fn offset(&self, index: usize) -> u64 {
        self.runs.offset(index)
    }

    fn num_bytes(&self, index: usize) -> u64 {
        self.runs.num_bytes(index)
    }

    fn facts(&self, index: usize) -> SourceFacts {
        self.runs.facts(index)
    }

    fn session(&self) -> Option<Arc<str>> {
        Some(self.runs.name().into())
    }

    fn read(&self, index: usize) -> Result<SourceRun<'_>> {
        self.decode(index).map(SourceRun::Run)
    }
}
