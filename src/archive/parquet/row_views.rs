//! Rows of the tables as typed columns, and the runs that they describe.

use crate::board::{Board, Move, WideBoard};
use crate::error::{Error, Result};
use crate::format::SourceFormat;
use crate::run::{Branches, Run, RunMeta, RunStep};
use crate::step_details::{StepDetail, StepDetails};
use arrow::array::{
    Array, ArrayAccessor, AsArray, BinaryArray, BooleanArray, Float32Array, Int32Array, PrimitiveArray, RecordBatch,
    StringArray, TypedDictionaryArray, UInt8Array,
};
use arrow::datatypes::{
    ArrowPrimitiveType, Float32Type, Int32Type, Int64Type, TimestampMillisecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
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

/// Access to the columns of a batch by name. The batch has the table's schema, so a missing column is a
/// programming error.
struct TypedColumns<'a>(&'a RecordBatch);

impl<'a> TypedColumns<'a> {
    fn column(&self, name: &str) -> Result<&'a dyn Array> {
        let column = self.0.column_by_name(name);
        column.map(|column| column.as_ref()).ok_or_else(|| mistyped(name))
    }

    fn numbers<T: ArrowPrimitiveType>(&self, name: &str) -> Result<&'a [T::Native]> {
        Ok(self.column(name)?.as_primitive_opt::<T>().ok_or_else(|| mistyped(name))?.values())
    }

    fn words(&self, name: &str) -> Result<Words<'a>> {
        let keys = self.column(name)?.as_dictionary_opt::<Int32Type>().ok_or_else(|| mistyped(name))?;
        keys.downcast_dict().ok_or_else(|| mistyped(name))
    }

    fn nullable<T: ArrowPrimitiveType>(&self, name: &str) -> Result<&'a PrimitiveArray<T>> {
        self.column(name)?.as_primitive_opt::<T>().ok_or_else(|| mistyped(name))
    }

    fn text(&self, name: &str) -> Result<&'a StringArray> {
        self.column(name)?.as_string_opt().ok_or_else(|| mistyped(name))
    }

    fn bools(&self, name: &str) -> Result<&'a BooleanArray> {
        self.column(name)?.as_boolean_opt().ok_or_else(|| mistyped(name))
    }
}

/// Returns the value of a row; `None` for null.
#[allow(clippy::needless_pass_by_value)] // Arrow implements the trait for references.
pub(in crate::archive) fn at<A: ArrayAccessor>(array: A, row: usize) -> Option<A::Item> {
    array.is_valid(row).then(|| array.value(row))
}

/// Returns the column `model` of `annotations`.
pub(in crate::archive) fn models(batch: &RecordBatch) -> Result<Words<'_>> {
    TypedColumns(batch).words("model")
}

fn mistyped(name: &str) -> Error {
    Error::other(format!("column {name} is missing or has the wrong type"))
}

impl<'a> StepRows<'a> {
    pub(in crate::archive) fn new(batch: &'a RecordBatch) -> Result<StepRows<'a>> {
        let columns = TypedColumns(batch);
        let ev = |name: &str| columns.nullable::<Float32Type>(name);
        Ok(StepRows {
            run_id: columns.numbers::<UInt32Type>("run_id")?,
            step_index: columns.numbers::<UInt32Type>("step_index")?,
            board: columns.numbers::<UInt64Type>("board")?,
            tile_65536_mask: columns.numbers::<UInt16Type>("tile_65536_mask")?,
            moves: columns.nullable::<UInt8Type>("move")?,
            legal: columns.numbers::<UInt8Type>("ev_legal")?,
            evs: [ev("ev_up")?, ev("ev_down")?, ev("ev_left")?, ev("ev_right")?],
            has_evs: columns.bools("has_evs")?,
            valuation_type: columns.words("valuation_type")?,
            board_eval: columns.nullable::<Int32Type>("board_eval")?,
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
    let columns = TypedColumns(batch);
    let run_id = columns.numbers::<UInt32Type>("run_id")?;
    let digest = columns.column("digest")?.as_fixed_size_binary_opt().ok_or_else(|| mistyped("digest"))?;
    let (format, engine) = (columns.words("format")?, columns.words("engine")?);
    let start_time = columns.nullable::<TimestampMillisecondType>("start_time")?;
    let elapsed_s = columns.numbers::<Float32Type>("elapsed_s")?;
    let num_steps = columns.numbers::<UInt32Type>("num_steps")?;
    let max_score = columns.numbers::<Int64Type>("max_score")?;
    let game = columns.nullable::<Int64Type>("game")?;
    let highest_tile = columns.numbers::<UInt32Type>("highest_tile")?;
    let final_board = columns.nullable::<UInt64Type>("final_board")?;
    let seed = columns.nullable::<UInt64Type>("seed")?;
    let final_mask = columns.nullable::<UInt16Type>("final_tile_65536_mask")?;
    let raw_evs = columns.bools("raw_evs")?;
    let verified = columns.bools("verified")?;
    let original: &BinaryArray =
        columns.column("original")?.as_binary_opt::<i32>().ok_or_else(|| mistyped("original"))?;
    let session = columns.text("session")?;
    let source_id = columns.nullable::<Int64Type>("source_id")?;
    let game_steps = columns.nullable::<UInt32Type>("game_steps")?;
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
    /// Returns the format of the run's source; `None` if no version up to this one has known it.
    pub(crate) fn source_format(&self) -> Option<SourceFormat> {
        SourceFormat::ALL.into_iter().find(|format| format.name() == self.format)
    }
}
