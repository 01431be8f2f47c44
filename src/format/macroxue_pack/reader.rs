//! Reading Macroxue packs.

use super::row::{Head, layouts, to_step};
use super::valuation_types::ValuationTypes;
use crate::error::{Error, ErrorKind, Location, Result};
use crate::format::rows::rebuild;
use crate::format::session::{RowIndex, SessionRun, name_of_folder, read_runs};
use crate::format::shards::{METADATA, RowShards, files_in, part_of};
use crate::format::source::{RunSource, SourceFacts, SourceRun};
use crate::format::sqlite::{Database, InvalidValue};
use crate::run::{Run, RunMeta};
use crate::step_details::{StepDetail, StepDetails};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A Macroxue pack with memory-mapped rows. Any number of threads may read its runs in any order.
///
/// Opening reads `metadata.db` and scans all rows once to locate each run. The index takes 24 bytes per run. Rows that
/// belong to no run are reported as one damaged run for each of their ids, after all other runs. The files must not be
/// modified while the pack is open.
#[derive(Debug)]
pub struct MacroxuePack {
    folder: PathBuf,
    steps: RowShards,
    index: RowIndex,
    /// The runs in the order of their rows.
    runs: Vec<SessionRun>,
    /// The run ids that occur in rows only, each with its first row.
    strays: Vec<(u64, u64)>,
    types: ValuationTypes,
}

impl MacroxuePack {
    /// Opens a pack by its folder.
    ///
    /// # Errors
    /// [`ErrorKind::Header`] if a shard is missing, or if a file is damaged or has the wrong format or size;
    /// [`ErrorKind::Io`].
    pub fn open(folder: impl AsRef<Path>) -> Result<MacroxuePack> {
        let folder = folder.as_ref().to_owned();
        let database = Database::open(&folder.join(METADATA))?;
        let mut runs = read_runs(&database)?;
        database.finish_reading()?;
        let types = ValuationTypes::read(&folder)?;
        let steps = RowShards::open(files_in(&folder)?, &layouts())?;
        let index = RowIndex::new::<Head>(&steps);
        // The runs are in the order of their ids.
        let has_run = |id: u64| runs.binary_search_by_key(&(id as i64), |record| record.id).is_ok();
        let without = index.iter().filter(|own| !has_run(own.run_id));
        let strays = without.map(|own| (own.run_id, own.first().unwrap_or_default())).collect();
        runs.sort_by_key(|run| (index.rows_of(run.id as u64).and_then(|own| own.first()).unwrap_or(u64::MAX), run.id));
        Ok(MacroxuePack { folder, steps, index, runs, strays, types })
    }

    /// Returns the number of runs. Each id that occurs in rows only counts as a run.
    #[must_use]
    pub fn num_runs(&self) -> usize {
        self.runs.len() + self.strays.len()
    }

    /// Returns the id of a run; `None` past the last run of `metadata.db`.
    #[must_use]
    pub fn id(&self, index: usize) -> Option<u64> {
        self.runs.get(index).map(|run| run.id as u64)
    }

    /// Decodes a run. Runs are in the order of their rows. A run has raw values and details, and no final board.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] with the run, and with the step and the offset in the file if a row holds no valid step.
    /// It is also returned if rows are missing, out of order, or belong to no run. [`ErrorKind::IndexOutOfBounds`].
    pub fn decode(&self, index: usize) -> Result<Run> {
        let Some(record) = self.runs.get(index) else {
            let stray = index.checked_sub(self.runs.len()).and_then(|index| self.strays.get(index));
            let Some(&(run_id, first)) = stray else {
                let len = self.num_runs() as u64;
                return Err(ErrorKind::IndexOutOfBounds { index: index as i128, len }.into());
            };
            let error = Error::decode(0, "run_id", "the id of a run in metadata.db", run_id);
            return Err(self.steps.in_run(error, index as u64, |_| first));
        };
        let refuse = |what, expected: String, found: String| {
            let path = Some(self.folder.join(METADATA));
            let location = Location { run: Some(index as u64), path, ..Location::default() };
            Err(ErrorKind::Decode { location, what, expected, found }.into())
        };
        if let Some(InvalidValue { what, expected, found }) = record.problem.as_deref() {
            return refuse(what, (*expected).to_owned(), found.clone());
        }
        let Some(num_steps) = record.num_steps else {
            return refuse("runs.steps", "an INTEGER in 0..=4294967295".into(), "NULL".into());
        };
        let meta = RunMeta {
            max_score: record.max_score,
            highest_tile: record.highest_tile,
            seed: record.seed,
            raw_evs: true,
            ..RunMeta::default()
        };
        let Some(own) = self.index.rows_of(record.id as u64) else {
            if num_steps == 0 {
                return Run::builder(0).finish(meta, None);
            }
            // No file has a row of the run, so the error names the folder.
            let (expected, found) = (format!("{num_steps} (runs.steps)"), format!("none with run_id {}", record.id));
            let location = Location { run: Some(index as u64), path: Some(self.folder.clone()), ..Location::default() };
            return Err(ErrorKind::Decode { location, what: "rows of the run", expected, found }.into());
        };
        let first = own.first().unwrap_or_default();
        let in_run = |error: Error| self.steps.in_run(error, index as u64, |place| first.saturating_add(place));
        if let Some(&again) = own.spans().get(1) {
            let expected = "consecutive rows of each run";
            let error = Error::decode(0, "run_id", expected, format_args!("{} again", own.run_id));
            return Err(self.steps.in_run(error, index as u64, |_| again));
        }
        if own.num_rows != u64::from(num_steps) {
            let expected = format!("{num_steps} (runs.steps)");
            return Err(in_run(Error::decode(0, "rows of the run", expected, own.num_rows)));
        }
        let rows = self.steps.rows(first..first.saturating_add(own.num_rows)).unwrap_or_default();
        let stride = self.steps.stride();
        let details = self.details(&rows).map_err(in_run)?;
        let run = rebuild(rows.chunks_exact(stride).map(to_step), stride, meta).map_err(in_run)?;
        Ok(run.with_details(details))
    }

    /// Returns the details in the rows of a run.
    fn details(&self, rows: &[u8]) -> Result<StepDetails> {
        let names = self.types.names();
        let heads = || rows.chunks_exact(self.steps.stride()).map(|row| *part_of::<Head>(row, 0));
        let has_evals = heads().any(|head| head.board_eval != 0);
        let mut details = StepDetails::default();
        for (place, Head { valuation_type: id, board_eval, .. }) in heads().enumerate() {
            let Some(name) = names[usize::from(id)] else {
                let offset = place * self.steps.stride() + std::mem::offset_of!(Head, valuation_type);
                let location =
                    Location { offset: Some(offset as u64), step: Some(place as u64), ..Location::default() };
                let (expected, found) = ("an id in valuation_types.json".to_owned(), id.to_string());
                return Err(ErrorKind::Decode { location, what: "valuation_type", expected, found }.into());
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
        let first = self.runs.get(index).and_then(|run| self.index.rows_of(run.id as u64)).and_then(|own| own.first());
        first.and_then(|first| self.steps.place(first)).map_or(0, |(_, offset)| offset)
    }

    fn num_bytes(&self, index: usize) -> u64 {
        let own = self.runs.get(index).and_then(|run| self.index.rows_of(run.id as u64));
        own.map_or(0, |own| own.num_rows * self.steps.stride() as u64)
    }

    fn facts(&self, index: usize) -> SourceFacts {
        let run = self.runs.get(index);
        SourceFacts { id: run.map(|run| run.id as u64), num_steps: run.and_then(|run| run.num_steps) }
    }

    fn session(&self) -> Option<Arc<str>> {
        Some(name_of_folder(&self.folder).into())
    }

    fn read(&self, index: usize) -> Result<SourceRun<'_>> {
        self.decode(index).map(SourceRun::Run)
    }
}
