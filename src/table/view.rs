//! Views: some of a table's rows, selected by run and game phase, without a copy.

use crate::archive::{Phase, Phases};
use crate::error::{Error, Result};
use crate::step::{STEP_SIZE, Step};
use crate::system::cancellation::CancellationToken;
use crate::table::gather::take::TableRows;
use crate::table::rows::runs::TableRunFacts;
use crate::table::rows::selection::Selection;
use crate::table::rows::threads::in_parts;
use crate::table::step_table::{StepTable, within};
use std::ops::Range;
use std::sync::Arc;

/// The conditions of a view. It shows the rows that meet every condition that is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowFilter {
    /// The lowest score of a run, which is `runs.max_score`.
    pub min_score: Option<u64>,
    /// The highest score of a run.
    pub max_score: Option<u64>,
    /// The engines of the runs.
    pub engines: Option<Vec<String>>,
    /// The game phases, by the largest tile on the board and the archive's thresholds.
    pub phases: Option<Vec<Phase>>,
    /// The run ids.
    pub run_ids: Option<Vec<u32>>,
}

/// Rows that are scanned between two cancellation checks.
const PART: u64 = 1 << 18;

impl StepTable {
    /// Returns a view of the rows that meet every condition, in the same order. The view shares the table's memory
    /// and takes about 20 bytes per range of consecutive rows. Finding them takes one pass over the table.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for a condition on scores, engines or phases if the rows came
    /// from a file without runs; [`ErrorKind::Query`](crate::ErrorKind::Query) or
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if the archive's runs can no longer be read;
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub fn filter(&self, filter: &RowFilter, cancel: &CancellationToken) -> Result<StepTable> {
        let RowFilter { min_score, max_score, engines, phases, run_ids } = filter;
        let sorted = |ids: &Vec<u32>| {
            let mut ids = ids.clone();
            ids.sort_unstable();
            ids.dedup();
            ids
        };
        let run_ids = run_ids.as_ref().map(sorted);
        let by_run = min_score.is_some() || max_score.is_some() || engines.is_some();
        let facts = match by_run {
            true => Some(self.runs.facts()?.ok_or_else(|| unknown("the scores and engines of its runs"))?),
            false => None,
        };
        let run = |run_id: u32| {
            run_ids.as_ref().is_none_or(|ids| ids.binary_search(&run_id).is_ok())
                && facts.as_ref().is_none_or(|facts: &Arc<TableRunFacts>| {
                    facts.get(run_id).is_some_and(|(score, engine)| {
                        min_score.is_none_or(|min| score >= min)
                            && max_score.is_none_or(|max| score <= max)
                            && engines.as_ref().is_none_or(|names| names.iter().any(|name| Some(&**name) == engine))
                    })
                })
        };
        let selection = match phases {
            None => self.select(run, |_| true, cancel)?,
            Some(phases) => {
                let thresholds: Phases = self.runs.phases.ok_or_else(|| unknown("thresholds of the game phases"))?;
                let wanted: u16 = (0..16_u8)
                    .filter(|&exp| phases.contains(&thresholds.of_max_exp(exp)))
                    .fold(0, |wanted, exp| wanted | 1 << exp);
                self.select(run, |step| wanted >> step.board.max_exp() & 1 == 1, cancel)?
            }
        };
        Ok(self.of_selection(selection))
    }

    /// Selects rows by run and by step. It evaluates `run` once per span of rows of one run.
    pub(in crate::table) fn select(
        &self,
        run: impl Fn(u32) -> bool + Sync,
        step: impl Fn(&Step) -> bool + Sync,
        cancel: &CancellationToken,
    ) -> Result<Selection> {
        let (num_rows, ranges) = (self.num_all_rows(), self.ranges());
        let part = |number: usize| {
            let start = number as u64 * PART;
            Ok(scan(self.all_rows(), within(&ranges, start..num_rows.min(start + PART)), &run, &step))
        };
        let found = in_parts(num_rows.div_ceil(PART) as usize, cancel, part)?;
        Ok(Selection::new(found.into_iter().flatten()))
    }
}

/// Returns the error of a filter by facts that the table does not know.
fn unknown(what: &str) -> Error {
    let found = "a table of a file without them, or whose archive is missing";
    Error::argument("filter", format!("a table with {what}"), found)
}

/// Returns the ranges of consecutive selected rows.
fn scan(
    rows: TableRows<'_>,
    within: impl Iterator<Item = Range<u64>>,
    run: impl Fn(u32) -> bool,
    step: impl Fn(&Step) -> bool,
) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    let mut last: Option<(u32, bool)> = None;
    for range in within {
        let mut open: Option<u64> = None;
        let bytes = &rows.bytes[range.start as usize * rows.stride..range.end as usize * rows.stride];
        for (index, row) in range.clone().zip(bytes.chunks_exact(rows.stride)) {
            let value: Step = bytemuck::pod_read_unaligned(&row[..STEP_SIZE]);
            let wanted = match last {
                Some((run_id, wanted)) if run_id == value.run_id => wanted,
                _ => {
                    let wanted = run(value.run_id);
                    last = Some((value.run_id, wanted));
                    wanted
                }
            };
            match (wanted && step(&value), open) {
                (true, None) => open = Some(index),
                (false, Some(start)) => {
                    found.push(start..index);
                    open = None;
                }
                _ => {}
            }
        }
        found.extend(open.map(|start| start..range.end));
    }
    found
}
