//! The runs of a session or a Macroxue pack: their rows, and their metadata in `metadata.db`. A recorder appends rows
//! while its games run, so the rows of a run may be in any order and in any shard.
//!
//! Memory holds 24 bytes per span, which is a stretch of consecutive rows of one run. A session whose runs are
//! consecutive has one span per run.

#[cfg(test)]
mod tests;

use super::metadata::SessionRun;
use crate::error::{Error, Result};
use crate::format::files::mapped_rows::{METADATA, MappedRows};
use crate::format::files::sqlite::InvalidValue;
use crate::format::rows::rebuild;
use crate::format::source::{RunSource, SourceFacts, SourceRun};
use crate::run::{Run, RunMeta, RunStep};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The runs of a folder, with the rows of each.
#[derive(Debug)]
pub(in crate::format) struct IndexedRuns {
    folder: PathBuf,
    pub(in crate::format) steps: MappedRows,
    /// The spans of all runs, in the order of run ids and then of rows.
    spans: Vec<Span>,
    key: RowKey,
    pub(in crate::format) runs: Vec<SessionRun>,
}

/// Returns the id of the run and the index of the step in a row.
type RowKey = fn(&[u8]) -> (u64, u32);

/// A stretch of consecutive rows of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    run_id: u64,
    first: u64,
    len: u64,
}

impl IndexedRuns {
    /// Scans all rows.
    pub(in crate::format) fn new(folder: &Path, steps: MappedRows, runs: Vec<SessionRun>, key: RowKey) -> IndexedRuns {
        let mut spans: Vec<Span> = Vec::new();
        for (first, row) in (0..).zip(steps.iter()) {
            let (run_id, _) = key(row);
            match spans.last_mut().filter(|last| last.run_id == run_id) {
                Some(last) => last.len += 1,
                None => spans.push(Span { run_id, first, len: 1 }),
            }
        }
        spans.sort_unstable();
        IndexedRuns { folder: folder.to_owned(), steps, spans, key, runs }
    }

    /// Returns the id of a run; `None` past the last run.
    pub(in crate::format) fn id(&self, index: usize) -> Option<u64> {
        self.runs.get(index).map(|record| record.id as u64)
    }

    /// Returns the spans of a run.
    fn spans_of(&self, index: usize) -> &[Span] {
        let Some(id) = self.id(index) else { return &[] };
        let start = self.spans.partition_point(|span| span.run_id < id);
        let end = self.spans.partition_point(|span| span.run_id <= id);
        self.spans.get(start..end).unwrap_or_default()
    }

    /// Returns the number of rows of a run.
    pub(in crate::format) fn num_rows(&self, index: usize) -> u64 {
        self.spans_of(index).iter().map(|span| span.len).sum()
    }

    /// Returns the rows of a run in the order of steps, each with its number.
    pub(in crate::format) fn rows(&self, index: usize) -> Vec<(u64, &[u8])> {
        let numbers = self.spans_of(index).iter().flat_map(|span| span.first..span.first + span.len);
        let mut rows: Vec<(u64, &[u8])> =
            numbers.filter_map(|number| Some((number, self.steps.row(number)?))).collect();
        rows.sort_by_key(|(_, row)| (self.key)(row).1);
        rows
    }

    /// Builds a run from its rows.
    pub(in crate::format) fn rebuild(
        &self,
        index: usize,
        rows: &[(u64, &[u8])],
        to_step: fn(&[u8]) -> Result<RunStep>,
        meta: RunMeta,
    ) -> Result<Run> {
        let steps = rows.iter().map(|(_, row)| to_step(row));
        rebuild(steps, self.steps.stride(), meta).map_err(|error| self.in_rows(error, index, rows))
    }

    /// Adds the run, the file and the offset in the file to an error about these rows of a run.
    pub(in crate::format) fn in_rows(&self, error: Error, index: usize, rows: &[(u64, &[u8])]) -> Error {
        let number = |place: u64| rows.get(place as usize).map_or(u64::MAX, |(number, _)| *number);
        self.steps.in_run(error, index as u64, number)
    }

    /// Returns the id and the number of rows of each run that `metadata.db` lacks, in the order of ids.
    pub(in crate::format) fn rows_without_run(&self) -> impl Iterator<Item = (u64, u64)> {
        // Runs are sorted by their ids as signed numbers.
        let has_run = |id: u64| self.runs.binary_search_by_key(&(id as i64), |record| record.id).is_ok();
        let runs = self.spans.chunk_by(|a, b| a.run_id == b.run_id);
        let runs = runs.map(|spans| (spans[0].run_id, spans.iter().map(|span| span.len).sum::<u64>()));
        runs.filter(move |&(id, _)| !has_run(id))
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
        found: impl fmt::Display,
    ) -> Error {
        let error = Error::decode(None, what, expected, found).with_path(self.folder.join(METADATA));
        error.located(|location| location.run = Some(index as u64))
    }
}

/// A folder with such runs.
pub(in crate::format) trait IndexedSource: Send + Sync + fmt::Debug {
    fn indexed(&self) -> &IndexedRuns;

    fn decode(&self, index: usize) -> Result<Run>;
}

impl<T: IndexedSource> RunSource for T {
    fn num_runs(&self) -> usize {
        self.indexed().runs.len()
    }

    fn num_bytes(&self, index: usize) -> u64 {
        self.indexed().num_rows(index) * self.indexed().steps.stride() as u64
    }

    fn facts(&self, index: usize) -> SourceFacts {
        let runs = self.indexed();
        SourceFacts { id: runs.id(index), num_steps: runs.runs.get(index).and_then(|record| record.num_steps) }
    }

    fn warning(&self) -> Option<String> {
        let without: Vec<(u64, u64)> = self.indexed().rows_without_run().collect();
        let &(id, _) = without.first()?;
        let num_rows: u64 = without.iter().map(|(_, num_rows)| num_rows).sum();
        let others = if without.len() > 1 { format!(" and {} others", without.len() - 1) } else { String::new() };
        let folder = self.indexed().folder.display();
        Some(format!("{folder}: {num_rows} rows are ignored, because metadata.db lacks their run {id}{others}"))
    }

    fn session(&self) -> Option<Arc<str>> {
        // The path may be `.`, for example.
        let folder = &self.indexed().folder;
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
        Some(folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into())
    }

    fn read(&self, index: usize) -> Result<SourceRun<'_>> {
        self.decode(index).map(SourceRun::Run)
    }
}
