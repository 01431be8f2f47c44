//! The index of a session: the rows of each run. A recorder appends rows while its games run, so the rows of a run
//! may be in any order and in any shard.
//!
//! Memory holds 24 bytes per span, which is a stretch of consecutive rows of one run. A session whose runs are
//! consecutive has one span per run.

#[cfg(test)]
mod tests;

use super::row::OfRun;
use crate::format::shards::{RowShards, part_of};
use std::borrow::Cow;

/// The rows of each run in a session.
#[derive(Debug)]
pub(in crate::format) struct RowIndex {
    /// The spans of all runs, in the order of runs and then of rows.
    spans: Vec<Span>,
}

/// A stretch of consecutive rows of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::format) struct Span {
    run_id: u64,
    pub(in crate::format) first: u64,
    len: u64,
}

/// The rows of one run, which has at least one.
#[derive(Clone, Copy, Debug)]
pub(in crate::format) struct RowsOfRun<'a> {
    pub(in crate::format) run_id: u64,
    pub(in crate::format) num_rows: u64,
    spans: &'a [Span],
}

impl RowIndex {
    /// Scans all rows, which begin with an `R`.
    pub(in crate::format) fn new<R: OfRun>(steps: &RowShards) -> RowIndex {
        let mut spans: Vec<Span> = Vec::new();
        for (first, row) in (0..).zip(steps.iter()) {
            let run_id = part_of::<R>(row, 0).run_id();
            match spans.last_mut().filter(|last| last.run_id == run_id) {
                Some(last) => last.len += 1,
                None => spans.push(Span { run_id, first, len: 1 }),
            }
        }
        spans.sort_unstable();
        RowIndex { spans }
    }

    /// Returns the rows of a run, or `None` if it has no rows.
    pub(in crate::format) fn rows_of(&self, run_id: u64) -> Option<RowsOfRun<'_>> {
        let start = self.spans.partition_point(|span| span.run_id < run_id);
        let own = self.spans.get(start..)?.chunk_by(|a, b| a.run_id == b.run_id).next()?;
        Some(RowsOfRun::of(own)).filter(|own| own.run_id == run_id)
    }

    /// Returns the rows of each run, in the order of ids.
    pub(in crate::format) fn iter(&self) -> impl Iterator<Item = RowsOfRun<'_>> {
        self.spans.chunk_by(|a, b| a.run_id == b.run_id).map(RowsOfRun::of)
    }
}

impl<'a> RowsOfRun<'a> {
    fn of(spans: &'a [Span]) -> RowsOfRun<'a> {
        let run_id = spans.first().map_or(0, |span| span.run_id);
        RowsOfRun { run_id, num_rows: spans.iter().map(|span| span.len).sum(), spans }
    }

    /// Returns the first row in the session.
    pub(in crate::format) fn first(self) -> u64 {
        self.spans.first().map_or(0, |span| span.first)
    }

    /// Returns the stretches of consecutive rows.
    pub(in crate::format) fn spans(self) -> &'a [Span] {
        self.spans
    }

    /// Returns the bytes of the rows in the order of steps, and the number of each row in the session. Copies them
    /// unless they are consecutive, in this order, and in one shard.
    pub(in crate::format) fn read<'r, R: OfRun>(self, steps: &'r RowShards) -> (Cow<'r, [u8]>, RowNumbers) {
        let step_of = |row: &[u8]| part_of::<R>(row, 0).step_idx();
        if let &[Span { first, len, .. }] = self.spans {
            // The span was found among the rows, so it is in range.
            let rows = steps.rows(first..first + len).unwrap_or_default();
            if rows.chunks_exact(steps.stride()).is_sorted_by_key(step_of) {
                return (rows, RowNumbers::From(first));
            }
        }
        let mut rows: Vec<(u64, &[u8])> = Vec::with_capacity(self.num_rows as usize);
        for &Span { first, len, .. } in self.spans {
            rows.extend((first..first + len).filter_map(|number| Some((number, steps.row(number)?))));
        }
        rows.sort_by_key(|(_, row)| step_of(row));
        let (numbers, rows): (Vec<u64>, Vec<&[u8]>) = rows.into_iter().unzip();
        (Cow::Owned(rows.concat()), RowNumbers::Listed(numbers))
    }
}

/// The number of each row of a run in the session.
pub(in crate::format) enum RowNumbers {
    /// Consecutive numbers, from this one.
    From(u64),
    Listed(Vec<u64>),
}

impl RowNumbers {
    /// Returns the number of the row at this place of the run.
    pub(in crate::format) fn get(&self, place: u64) -> u64 {
        match self {
            RowNumbers::From(first) => first.saturating_add(place),
            RowNumbers::Listed(numbers) => numbers.get(place as usize).copied().unwrap_or(u64::MAX),
        }
    }
}
