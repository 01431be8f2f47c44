//! The runs of a session or a Macroxue pack: their rows, and their metadata in `metadata.db`.

use super::index::{RowIndex, RowsOfRun};
use super::metadata::SessionRun;
use super::row::OfRun;
use crate::error::{Error, Result};
use crate::format::shards::{METADATA, RowShards};
use crate::format::source::SourceFacts;
use crate::format::sqlite::InvalidValue;
use crate::run::RunMeta;
use std::path::{Path, PathBuf};

/// The runs of a folder, with the rows of each.
#[derive(Debug)]
pub(in crate::format) struct IndexedRuns {
    folder: PathBuf,
    pub(in crate::format) steps: RowShards,
    pub(in crate::format) index: RowIndex,
    pub(in crate::format) runs: Vec<SessionRun>,
}

impl IndexedRuns {
    /// Scans all rows, which begin with an `R`.
    pub(in crate::format) fn new<R: OfRun>(folder: &Path, steps: RowShards, runs: Vec<SessionRun>) -> IndexedRuns {
        let index = RowIndex::new::<R>(&steps);
        IndexedRuns { folder: folder.to_owned(), steps, index, runs }
    }

    pub(in crate::format) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the name of the folder, also for a path such as `.`.
    pub(in crate::format) fn name(&self) -> String {
        let folder = std::path::absolute(&self.folder).unwrap_or_else(|_| self.folder.clone());
        folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned()
    }

    /// Returns the id of a run; `None` past the last run.
    pub(in crate::format) fn id(&self, index: usize) -> Option<u64> {
        self.runs.get(index).map(|record| record.id as u64)
    }

    pub(in crate::format) fn rows_of(&self, index: usize) -> Option<RowsOfRun<'_>> {
        self.index.rows_of(self.id(index)?)
    }

    /// Returns the rows of the runs that `metadata.db` lacks, in the order of ids. `runs` must be in that order too.
    pub(in crate::format) fn rows_without_run(&self) -> impl Iterator<Item = RowsOfRun<'_>> {
        // Runs are sorted by their ids as signed numbers.
        let has_run = |id: u64| self.runs.binary_search_by_key(&(id as i64), |record| record.id).is_ok();
        self.index.iter().filter(move |own| !has_run(own.run_id))
    }

    /// Returns the metadata of a run, and its number of steps.
    pub(in crate::format) fn meta(&self, index: usize) -> Result<(RunMeta, Option<u32>)> {
        let record = self.runs.get(index).ok_or_else(|| Error::no_index(index, self.runs.len()))?;
        if let Some(InvalidValue { what, expected, found }) = record.problem.as_deref() {
            return Err(self.damaged(index, what, *expected, found));
        }
        let &SessionRun { max_score, highest_tile, seed, num_steps, .. } = record;
        Ok((RunMeta { max_score, highest_tile, seed, ..RunMeta::default() }, num_steps))
    }

    /// Returns an error about a run in `metadata.db`.
    #[cold]
    pub(in crate::format) fn damaged(
        &self,
        index: usize,
        what: &'static str,
        expected: impl Into<String>,
        found: impl std::fmt::Display,
    ) -> Error {
        let in_run = Error::decode(0, what, expected, found)
            .located(|location| (location.run, location.offset) = (Some(index as u64), None));
        in_run.with_path(self.folder.join(METADATA))
    }

    /// Returns the offset of the first row of a run in its file.
    pub(in crate::format) fn offset(&self, index: usize) -> u64 {
        self.rows_of(index).and_then(|own| self.steps.place(own.first())).map_or(0, |(_, offset)| offset)
    }

    /// Returns the size of the rows of a run.
    pub(in crate::format) fn num_bytes(&self, index: usize) -> u64 {
        self.rows_of(index).map_or(0, |own| own.num_rows * self.steps.stride() as u64)
    }

    pub(in crate::format) fn facts(&self, index: usize) -> SourceFacts {
        SourceFacts { id: self.id(index), num_steps: self.runs.get(index).and_then(|record| record.num_steps) }
    }
}
