//! The index of a session: the rows of each run. A recorder appends rows while its games run, so the rows of a run
//! may be in any order and in any shard.
//!
//! Memory holds 24 bytes per run and 8 bytes per span, which is a stretch of consecutive rows of one run. A session
//! whose runs are consecutive has one span per run.

#[cfg(test)]
mod tests;

use super::row::OfRun;
use crate::format::shards::{RowShards, part_of};
use std::borrow::Cow;
use std::collections::HashMap;

/// The rows of each run in a session.
#[derive(Debug, Default)]
pub(in crate::format) struct RowIndex {
    /// The runs that have rows, in the order of their ids.
    runs: Vec<IndexedRun>,
    /// The first row of each span, in the order of runs and then of rows.
    spans: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct IndexedRun {
    run_id: u64,
    num_rows: u64,
    /// The end of the run's spans in `RowIndex::spans`.
    end: usize,
}

/// The rows of one run.
#[derive(Clone, Copy, Debug)]
pub(in crate::format) struct RowsOfRun<'a> {
    pub(in crate::format) run_id: u64,
    pub(in crate::format) num_rows: u64,
    /// The first row of each span.
    spans: &'a [u64],
}

impl RowIndex {
    /// Scans all rows, which begin with an `R`.
    pub(in crate::format) fn new<R: OfRun>(steps: &RowShards) -> RowIndex {
        let (mut spans, mut runs) = (Vec::new(), HashMap::new());
        let rows = (0..).zip(steps.iter().map(|row| part_of::<R>(row, 0).run_id()));
        let (mut len, mut rows) = (0, rows.peekable());
        while let Some((number, run_id)) = rows.next() {
            len += 1;
            if rows.peek().is_none_or(|&(_, next)| next != run_id) {
                let run = runs.entry(run_id).or_insert(IndexedRun { run_id, num_rows: 0, end: 0 });
                run.num_rows += len;
                run.end += 1;
                spans.push(number + 1 - len);
                len = 0;
            }
        }
        let mut index = RowIndex { runs: runs.into_values().collect(), spans };
        index.runs.sort_unstable_by_key(|run| run.run_id);
        index.group_spans::<R>(steps);
        index
    }

    /// Returns the rows of a run, or `None` if it has no rows.
    pub(in crate::format) fn rows_of(&self, run_id: u64) -> Option<RowsOfRun<'_>> {
        self.get(self.runs.binary_search_by_key(&run_id, |run| run.run_id).ok()?)
    }

    /// Returns the rows of each run, in the order of ids.
    pub(in crate::format) fn iter(&self) -> impl Iterator<Item = RowsOfRun<'_>> {
        (0..self.runs.len()).filter_map(|place| self.get(place))
    }

    fn get(&self, place: usize) -> Option<RowsOfRun<'_>> {
        let &IndexedRun { run_id, num_rows, end } = self.runs.get(place)?;
        let start = place.checked_sub(1).and_then(|before| self.runs.get(before)).map_or(0, |before| before.end);
        Some(RowsOfRun { run_id, num_rows, spans: self.spans.get(start..end)? })
    }

    /// Changes the order of spans from rows to runs. Each `end` holds the number of the run's spans before, and their
    /// end afterwards.
    fn group_spans<R: OfRun>(&mut self, steps: &RowShards) {
        let mut next = 0;
        for run in &mut self.runs {
            (run.end, next) = (next, next + run.end);
        }
        let places: HashMap<u64, usize> = self.runs.iter().zip(0..).map(|(run, place)| (run.run_id, place)).collect();
        let mut grouped = vec![0; self.spans.len()];
        for &first in &self.spans {
            let place = steps.row(first).and_then(|row| places.get(&part_of::<R>(row, 0).run_id()));
            let Some(run) = place.and_then(|&place| self.runs.get_mut(place)) else { continue };
            if let Some(slot) = grouped.get_mut(run.end) {
                *slot = first;
            }
            run.end += 1;
        }
        self.spans = grouped;
    }
}

impl<'a> RowsOfRun<'a> {
    /// Returns the first row in the session.
    pub(in crate::format) fn first(self) -> Option<u64> {
        self.spans.first().copied()
    }

    /// Returns the first row of each span.
    pub(in crate::format) fn spans(self) -> &'a [u64] {
        self.spans
    }

    /// Returns the bytes of the rows in the order of steps, and the number of each row in the session. Copies them
    /// unless they are consecutive, in this order, and in one shard.
    pub(in crate::format) fn read<'r, R: OfRun>(self, steps: &'r RowShards) -> (Cow<'r, [u8]>, RowNumbers) {
        let step_of = |row: &[u8]| part_of::<R>(row, 0).step_idx();
        if let &[first] = self.spans {
            // The span was found among the rows, so it is in range.
            let rows = steps.rows(first..first.saturating_add(self.num_rows)).unwrap_or_default();
            if rows.chunks_exact(steps.stride()).is_sorted_by_key(step_of) {
                return (rows, RowNumbers::From(first));
            }
        }
        let mut rows: Vec<(u64, &[u8])> = Vec::with_capacity(self.num_rows as usize);
        for &first in self.spans {
            let own = (first..).map_while(|number| steps.row(number).map(|row| (number, row)));
            rows.extend(own.take_while(|(_, row)| part_of::<R>(row, 0).run_id() == self.run_id));
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
