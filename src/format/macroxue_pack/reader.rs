//! Reading Macroxue packs.

use super::row::{Head, key, layouts, to_step};
use super::valuation_types::ValuationTypes;
use crate::error::{Error, Result};
use crate::format::files::mapped_rows::{METADATA, MappedRows, files_in, part_of};
use crate::format::files::sqlite::Database;
use crate::format::session::{IndexedRuns, IndexedSource, read_runs};
use crate::run::{Run, RunMeta};
use crate::step_details::{StepDetail, StepDetails};
use std::mem::offset_of;
use std::path::Path;

/// A Macroxue pack with memory-mapped rows. Any number of threads may read its runs in any order.
///
/// Opening reads `metadata.db` and scans all rows once to locate each run. Reading a run then reads only its rows,
/// which may be in any order and in any shard. The index takes 24 bytes per stretch of consecutive rows of one run. The
/// files must not be modified while the pack is open.
#[derive(Debug)]
pub struct MacroxuePack {
    runs: IndexedRuns,
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
        let steps = MappedRows::open(files_in(folder)?, &layouts())?;
        Ok(MacroxuePack { runs: IndexedRuns::new(folder, steps, runs, key), types })
    }

    /// Decodes a run. Runs are in the order of their ids. A run has raw values and details, and no final board.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) with the run, and with the step and the offset in the file if a
    /// row holds no valid step, or if the step indices are not 0, 1, …. It is also returned if rows are missing.
    /// [`ErrorKind::IndexOutOfBounds`](crate::ErrorKind::IndexOutOfBounds).
    pub fn decode(&self, index: usize) -> Result<Run> {
        let (meta, num_steps) = self.runs.meta(index)?;
        let meta = RunMeta { raw_evs: true, ..meta };
        let Some(num_steps) = num_steps else {
            return Err(self.runs.damaged(index, "runs.steps", "an INTEGER in 0..=4294967295", "NULL"));
        };
        let num_rows = self.runs.num_rows(index);
        if num_rows != u64::from(num_steps) {
            let expected = format!("{num_steps} (runs.steps)");
            return Err(self.runs.damaged(index, "rows of the run", expected, num_rows));
        }
        let rows = self.runs.rows(index);
        let details = self.details(&rows).map_err(|error| self.runs.in_rows(error, index, &rows))?;
        Ok(self.runs.rebuild(index, &rows, to_step, meta)?.with_details(details))
    }

    /// Returns the details in the rows of a run.
    fn details(&self, rows: &[(u64, &[u8])]) -> Result<StepDetails> {
        let (names, stride) = (self.types.names(), self.runs.steps.stride());
        let heads = || rows.iter().map(|(_, row)| *part_of::<Head>(row, 0));
        let has_evals = heads().any(|head| head.board_eval != 0);
        let mut details = StepDetails::default();
        for (place, Head { step_index, valuation_type: id, board_eval, .. }) in heads().enumerate() {
            let at_step = |offset: usize, what: &'static str, expected: String, found: u32| {
                let error = Error::decode((place * stride + offset) as u64, what, expected, found);
                error.located(|location| location.step = Some(place as u64))
            };
            if step_index as usize != place {
                return Err(at_step(offset_of!(Head, step_index), "step_index", place.to_string(), step_index));
            }
            let Some(name) = names[usize::from(id)] else {
                let expected = "an id in valuation_types.json".to_owned();
                return Err(at_step(offset_of!(Head, valuation_type), "valuation_type", expected, id.into()));
            };
            // A pack has at most 256 types, so each fits.
            details.push(StepDetail { valuation_type: Some(name), board_eval: has_evals.then_some(board_eval) });
        }
        Ok(details)
    }
}

impl IndexedSource for MacroxuePack {
    fn indexed(&self) -> &IndexedRuns {
        &self.runs
    }

    fn decode(&self, index: usize) -> Result<Run> {
        self.decode(index)
    }
}
