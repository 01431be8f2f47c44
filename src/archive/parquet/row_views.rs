//! Columns of the tables with their types, and runs from rows of `steps`.

use crate::board::{Board, Move, WideBoard};
use crate::error::{Error, Result};
use crate::run::{Branches, Run, RunMeta, RunStep};
use crate::step_details::{StepDetail, StepDetails};
use arrow::array::{
    Array, ArrayAccessor, BooleanArray, DictionaryArray, Float32Array, Int32Array, RecordBatch, StringArray,
    TypedDictionaryArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow::datatypes::Int32Type;
use std::ops::Range;

/// Rows of `steps`, as typed columns: those that determine a run.
pub(in crate::archive) struct StepRows<'a> {
    pub(in crate::archive) run_id: &'a [u32],
    pub(in crate::archive) step_index: &'a [u32],
    pub(in crate::archive) board: &'a [u64],
    pub(in crate::archive) tile_65536_mask: &'a [u16],
    pub(in crate::archive) moves: &'a UInt8Array,
    pub(in crate::archive) legal: &'a [u8],
    evs: [&'a Float32Array; 4],
    has_evs: &'a BooleanArray,
    valuation_type: Words<'a>,
    board_eval: &'a Int32Array,
}

/// A dictionary column of text.
pub(super) type Words<'a> = TypedDictionaryArray<'a, Int32Type, StringArray>;

/// Returns a column of a batch. The batch has the table's schema, so a missing column is a programming error.
pub(super) fn column<'a, A: Array + 'static>(batch: &'a RecordBatch, name: &str) -> Result<&'a A> {
    let found = batch.column_by_name(name).and_then(|column| column.as_any().downcast_ref::<A>());
    found.ok_or_else(|| mistyped(name))
}

/// Returns a dictionary column of text.
pub(in crate::archive) fn words<'a>(batch: &'a RecordBatch, name: &str) -> Result<Words<'a>> {
    column::<DictionaryArray<Int32Type>>(batch, name)?.downcast_dict().ok_or_else(|| mistyped(name))
}

/// Returns the value of a row; `None` for null.
#[allow(clippy::needless_pass_by_value)] // Arrow implements the trait for references.
pub(in crate::archive) fn at<A: ArrayAccessor>(array: A, row: usize) -> Option<A::Item> {
    array.is_valid(row).then(|| array.value(row))
}

fn mistyped(name: &str) -> Error {
    Error::other(format!("column {name} is missing or has the wrong type"))
}

impl<'a> StepRows<'a> {
    pub(in crate::archive) fn new(batch: &'a RecordBatch) -> Result<StepRows<'a>> {
        let ev = |name: &str| column::<Float32Array>(batch, name);
        Ok(StepRows {
            run_id: column::<UInt32Array>(batch, "run_id")?.values(),
            step_index: column::<UInt32Array>(batch, "step_index")?.values(),
            board: column::<UInt64Array>(batch, "board")?.values(),
            tile_65536_mask: column::<UInt16Array>(batch, "tile_65536_mask")?.values(),
            moves: column::<UInt8Array>(batch, "move")?,
            legal: column::<UInt8Array>(batch, "ev_legal")?.values(),
            evs: [ev("ev_up")?, ev("ev_down")?, ev("ev_left")?, ev("ev_right")?],
            has_evs: column::<BooleanArray>(batch, "has_evs")?,
            valuation_type: words(batch, "valuation_type")?,
            board_eval: column::<Int32Array>(batch, "board_eval")?,
        })
    }

    /// Returns the range of rows of each run.
    pub(in crate::archive) fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        self.run_id.chunk_by(|a, b| a == b).scan(0, |start, run| {
            let range = *start..*start + run.len();
            *start = range.end;
            Some(range)
        })
    }

    /// Returns the board of a row.
    fn board(&self, row: usize) -> Result<WideBoard> {
        WideBoard::new(Board(self.board[row]), self.tile_65536_mask[row])
    }

    /// Builds the run of these rows.
    pub(in crate::archive) fn run(
        &self,
        rows: Range<usize>,
        meta: RunMeta,
        final_board: Option<WideBoard>,
    ) -> Result<Run> {
        let mut steps = Run::builder(rows.len());
        let details = self.details(rows.clone());
        for row in rows {
            let known = |index| Move::from_index(index).ok_or_else(|| Error::argument("move", "0..=3", index));
            let chosen = at(self.moves, row).map(known).transpose()?;
            let branches = self.has_evs.value(row).then(|| Branches {
                values: self.evs.map(|values| at(values, row).unwrap_or(0.0)),
                legal: self.legal[row],
            });
            steps.push_step(RunStep { index: self.step_index[row], board: self.board(row)?, chosen, branches })?;
        }
        let run = steps.finish(meta, final_board)?;
        Ok(if details.is_empty() { run } else { run.with_details(details) })
    }

    /// Returns the details of these rows. Names beyond the maximum number of them are left out, so that the run's
    /// digest differs.
    fn details(&self, rows: Range<usize>) -> StepDetails {
        let mut details = StepDetails::default();
        let arrays: [&dyn Array; 2] = [&self.valuation_type, self.board_eval];
        if arrays.iter().all(|array| array.null_count() == array.len()) {
            return details;
        }
        for row in rows {
            details.push(StepDetail {
                valuation_type: at(self.valuation_type, row),
                board_eval: at(self.board_eval, row),
            });
        }
        details
    }
}
