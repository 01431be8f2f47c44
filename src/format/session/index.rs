//! The index of a session: the rows of each run. A recorder appends rows while its games run, so the rows of a run
//! may be in any order and in any shard.
//!
//! Memory holds 24 bytes per span, which is a stretch of consecutive rows of one run. A session whose runs are
//! consecutive has one span per run.

#[cfg(test)]
mod tests;

use crate::format::files::shards::RowShards;

/// Returns the id of the run and the index of the step in a row.
pub(in crate::format) type RowKey = fn(&[u8]) -> (u64, u32);

/// The rows of each run in a session: the spans of all runs, in the order of runs and then of rows.
#[derive(Debug)]
pub(super) struct RowIndex(Vec<Span>);

/// A stretch of consecutive rows of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    run_id: u64,
    pub(super) first: u64,
    pub(super) len: u64,
}

impl RowIndex {
    /// Scans all rows.
    pub(super) fn new(steps: &RowShards, key: RowKey) -> RowIndex {
        let mut spans: Vec<Span> = Vec::new();
        for (first, row) in (0..).zip(steps.iter()) {
            let (run_id, _) = key(row);
            match spans.last_mut().filter(|last| last.run_id == run_id) {
                Some(last) => last.len += 1,
                None => spans.push(Span { run_id, first, len: 1 }),
            }
        }
        spans.sort_unstable();
        RowIndex(spans)
    }

    /// Returns the spans of a run.
    pub(super) fn spans_of(&self, run_id: u64) -> &[Span] {
        let start = self.0.partition_point(|span| span.run_id < run_id);
        let end = self.0.partition_point(|span| span.run_id <= run_id);
        self.0.get(start..end).unwrap_or_default()
    }

    /// Returns the id and the number of rows of each run, in the order of ids.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        let runs = self.0.chunk_by(|a, b| a.run_id == b.run_id);
        runs.map(|spans| (spans[0].run_id, spans.iter().map(|span| span.len).sum()))
    }
}
