//! Rows of the tables as typed columns, and the runs that they describe.

use crate::board::{Board, Move, WideBoard};
use crate::error::{Error, Result};
use crate::format::SourceFormat;
use crate::run::{Branches, Run, RunMeta, RunStep};
use crate::step_details::{StepDetail, StepDetails};
use arrow::array::{
    Array, ArrayAccessor, BinaryArray, BooleanArray, DictionaryArray, FixedSizeBinaryArray, Float32Array, Int32Array,
    Int64Array, RecordBatch, StringArray, TimestampMillisecondArray, TypedDictionaryArray, UInt8Array, UInt16Array,
    UInt32Array, UInt64Array,
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

/// A row of `runs`.
#[derive(Clone, Debug)]
pub(crate) struct RunFacts {
    pub(crate) run_id: u32,
    pub(in crate::archive) digest: [u8; 32],
    pub(in crate::archive) game: Option<i64>,
    pub(in crate::archive) format: String,
    pub(in crate::archive) meta: RunMeta,
    pub(in crate::archive) num_steps: u32,
    pub(crate) final_board: Option<WideBoard>,
    pub(in crate::archive) verified: bool,
    /// Whether the archive keeps the original file, because the columns cannot reproduce it.
    pub(in crate::archive) has_original: bool,
    /// The session that the run was played in. `source_id` is the run's id there.
    pub(in crate::archive) session: Option<String>,
    pub(in crate::archive) source_id: Option<u64>,
    pub(in crate::archive) game_steps: Option<u32>,
}

/// A row of `runs`, and the run's original file if the archive keeps it.
pub(in crate::archive) type FactsAndOriginal<'a> = (RunFacts, Option<&'a [u8]>);

/// A dictionary column of text.
type Words<'a> = TypedDictionaryArray<'a, Int32Type, StringArray>;

/// Returns a column of a batch. The batch has the table's schema, so a missing column is a programming error.
fn column<'a, A: Array + 'static>(batch: &'a RecordBatch, name: &str) -> Result<&'a A> {
    let found = batch.column_by_name(name).and_then(|column| column.as_any().downcast_ref::<A>());
    found.ok_or_else(|| mistyped(name))
}

/// Returns a dictionary column of text.
fn words<'a>(batch: &'a RecordBatch, name: &str) -> Result<Words<'a>> {
    column::<DictionaryArray<Int32Type>>(batch, name)?.downcast_dict().ok_or_else(|| mistyped(name))
}

/// Returns the value of a row; `None` for null.
#[allow(clippy::needless_pass_by_value)] // Arrow implements the trait for references.
pub(in crate::archive) fn at<A: ArrayAccessor>(array: A, row: usize) -> Option<A::Item> {
    array.is_valid(row).then(|| array.value(row))
}

/// Returns the column `model` of `annotations`.
pub(in crate::archive) fn models(batch: &RecordBatch) -> Result<Words<'_>> {
    words(batch, "model")
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

/// Returns the rows of a batch of `runs` in the current schema, each with its original file if it has one.
pub(in crate::archive) fn run_facts(batch: &RecordBatch) -> Result<Vec<FactsAndOriginal<'_>>> {
    let run_id = column::<UInt32Array>(batch, "run_id")?.values();
    let digest = column::<FixedSizeBinaryArray>(batch, "digest")?;
    let (format, engine) = (words(batch, "format")?, words(batch, "engine")?);
    let start_time = column::<TimestampMillisecondArray>(batch, "start_time")?;
    let elapsed_s = column::<Float32Array>(batch, "elapsed_s")?.values();
    let num_steps = column::<UInt32Array>(batch, "num_steps")?.values();
    let max_score = column::<Int64Array>(batch, "max_score")?.values();
    let game = column::<Int64Array>(batch, "game")?;
    let highest_tile = column::<UInt32Array>(batch, "highest_tile")?.values();
    let final_board = column::<UInt64Array>(batch, "final_board")?;
    let seed = column::<UInt64Array>(batch, "seed")?;
    let final_mask = column::<UInt16Array>(batch, "final_tile_65536_mask")?;
    let raw_evs = column::<BooleanArray>(batch, "raw_evs")?;
    let verified = column::<BooleanArray>(batch, "verified")?;
    let original = column::<BinaryArray>(batch, "original")?;
    let session = column::<StringArray>(batch, "session")?;
    let source_id = column::<Int64Array>(batch, "source_id")?;
    let game_steps = column::<UInt32Array>(batch, "game_steps")?;
    let row = |row: usize| {
        let original = at(original, row);
        let wide = |board| WideBoard::new(Board(board), at(final_mask, row).unwrap_or(0));
        let facts = RunFacts {
            run_id: run_id[row],
            digest: std::array::from_fn(|i| digest.value(row).get(i).copied().unwrap_or_default()),
            game: at(game, row),
            format: at(format, row).unwrap_or_default().to_owned(),
            meta: RunMeta {
                start_unix_s: (at(start_time, row).unwrap_or(0) / 1000).unsigned_abs(),
                elapsed_s: elapsed_s[row],
                max_score: max_score[row].unsigned_abs(),
                highest_tile: highest_tile[row],
                engine: at(engine, row).map(str::to_owned),
                seed: at(seed, row),
                raw_evs: raw_evs.value(row),
            },
            num_steps: num_steps[row],
            final_board: at(final_board, row).map(wide).transpose()?,
            verified: verified.value(row),
            has_original: original.is_some(),
            session: at(session, row).map(str::to_owned),
            source_id: at(source_id, row).map(|id| id as u64),
            game_steps: at(game_steps, row),
        };
        Ok((facts, original))
    };
    (0..batch.num_rows()).map(row).collect()
}

impl RunFacts {
    /// Returns the format of the run's source; `None` if this release does not know the format.
    pub(crate) fn source_format(&self) -> Option<SourceFormat> {
        SourceFormat::ALL.into_iter().find(|format| format.name() == self.format)
    }
}
