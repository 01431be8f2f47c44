//! Runs on their way into an archive, and their rows of the table `runs`.

use super::schema::table_schema;
use super::table_name::TableName;
use crate::board::WideBoard;
use crate::error::{Error, Result};
use crate::format::SourceFormat;
use crate::run::{Run, RunMeta};
use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanArray, FixedSizeBinaryBuilder, Float32Array, Int64Array, RecordBatch, StringArray,
    StringDictionaryBuilder, TimestampMillisecondArray, UInt16Array, UInt32Array, UInt64Array,
};
use arrow::datatypes::Int32Type;
use std::sync::Arc;

/// A run to be written, with its id and the archive's facts about it.
pub(super) struct IngestedRun {
    pub(super) run_id: u32,
    pub(super) run: Run,
    pub(super) info: RunInfo,
}

/// The columns of `runs` that are not part of a run's content.
pub(super) struct RunInfo {
    pub(super) digest: [u8; 32],
    /// [`Run::game`].
    pub(super) game: Option<i64>,
    pub(super) format: SourceFormat,
    pub(super) source: String,
    /// The run's index in its source, if the source holds several runs.
    pub(super) source_index: Option<u64>,
    /// The session that the run was played in.
    pub(super) session: Option<Arc<str>>,
    /// The run's id in its source.
    pub(super) source_id: Option<u64>,
    /// The number of steps of the whole game, if the source has it.
    pub(super) game_steps: Option<u32>,
    pub(super) verified: bool,
    /// The original run file, if encoding the run would not reproduce it.
    pub(super) original: Option<Vec<u8>>,
}

/// A row of `runs`: the part of a run that remains after its steps are written.
pub(super) struct RunRow {
    run_id: u32,
    info: RunInfo,
    meta: RunMeta,
    num_steps: u32,
    final_board: Option<WideBoard>,
}

impl From<IngestedRun> for RunRow {
    fn from(ingested: IngestedRun) -> RunRow {
        let IngestedRun { run_id, run, info } = ingested;
        RunRow {
            run_id,
            info,
            meta: run.meta().clone(),
            num_steps: run.num_steps() as u32,
            final_board: run.final_board(),
        }
    }
}

impl RunRow {
    /// Returns the approximate size of the row's texts and files.
    pub(super) fn num_bytes(&self) -> usize {
        let engine = self.meta.engine.as_ref().map_or(0, String::len);
        let original = self.info.original.as_ref().map_or(0, Vec::len);
        engine + original + self.info.source.len() + self.info.session.as_ref().map_or(0, |session| session.len())
    }
}

/// Returns whether the column `start_time` can hold this time, as milliseconds in 63 bits.
pub(super) fn start_time_fits(start_unix_s: u64) -> bool {
    start_millis(start_unix_s).is_some() || start_unix_s == 0
}

fn start_millis(start_unix_s: u64) -> Option<i64> {
    i64::try_from(start_unix_s).ok()?.checked_mul(1000).filter(|&millis| millis != 0)
}

/// Returns rows of `runs`. `version` is the version that adds them.
pub(super) fn runs_batch(rows: &[RunRow], ingested_at_ms: i64, version: u64) -> Result<RecordBatch> {
    let mut digest = FixedSizeBinaryBuilder::with_capacity(rows.len(), 32);
    let mut format = StringDictionaryBuilder::<Int32Type>::new();
    let mut engine = StringDictionaryBuilder::<Int32Type>::new();
    let mut original = BinaryBuilder::new();
    for row in rows {
        digest.append_value(row.info.digest).map_err(Error::other)?;
        format.append_value(row.info.format.name());
        engine.append_option(row.meta.engine.as_deref());
        original.append_option(row.info.original.as_deref());
    }
    fn column<T, A: FromIterator<T>>(rows: &[RunRow], value: impl Fn(&RunRow) -> T) -> A {
        rows.iter().map(value).collect()
    }
    let start_time: TimestampMillisecondArray = column(rows, |row| start_millis(row.meta.start_unix_s));
    let elapsed_s: Vec<f32> = column(rows, |row| row.meta.elapsed_s);
    let run_id: Vec<u32> = column(rows, |row| row.run_id);
    let num_steps: Vec<u32> = column(rows, |row| row.num_steps);
    let game: Int64Array = column(rows, |row| row.info.game);
    let max_score: Vec<i64> = column(rows, |row| row.meta.max_score as i64);
    let highest_tile: Vec<u32> = column(rows, |row| row.meta.highest_tile);
    let final_board: UInt64Array = column(rows, |row| row.final_board.map(|board| board.board().0));
    let final_mask: UInt16Array = column(rows, |row| row.final_board.map(WideBoard::tile_65536_mask));
    let seed: UInt64Array = column(rows, |row| row.meta.seed);
    let session: StringArray = rows.iter().map(|row| row.info.session.as_deref()).collect();
    let source_index: Int64Array = column(rows, |row| row.info.source_index.map(|index| index as i64));
    let source_id: Int64Array = column(rows, |row| row.info.source_id.map(|id| id as i64));
    let game_steps: UInt32Array = column(rows, |row| row.info.game_steps);
    let raw_evs: Vec<bool> = column(rows, |row| row.meta.raw_evs);
    let source: Vec<&str> = rows.iter().map(|row| row.info.source.as_str()).collect();
    let verified: Vec<bool> = column(rows, |row| row.info.verified);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(UInt32Array::from(run_id)),
        Arc::new(digest.finish()),
        Arc::new(game),
        Arc::new(format.finish()),
        Arc::new(StringArray::from(source)),
        Arc::new(source_index),
        Arc::new(source_id),
        Arc::new(session),
        Arc::new(engine.finish()),
        Arc::new(seed),
        Arc::new(start_time.with_timezone("UTC")),
        Arc::new(Float32Array::from(elapsed_s)),
        Arc::new(UInt32Array::from(num_steps)),
        Arc::new(game_steps),
        Arc::new(Int64Array::from(max_score)),
        Arc::new(UInt32Array::from(highest_tile)),
        Arc::new(final_board),
        Arc::new(final_mask),
        Arc::new(BooleanArray::from(verified)),
        Arc::new(BooleanArray::from(raw_evs)),
        Arc::new(TimestampMillisecondArray::from(vec![ingested_at_ms; rows.len()]).with_timezone("UTC")),
        Arc::new(Int64Array::from(vec![version as i64; rows.len()])),
        Arc::new(original.finish()),
    ];
    RecordBatch::try_new(table_schema(TableName::Runs), columns).map_err(Error::other)
}
