//! Runs on their way into an archive, and their rows of the table `runs`.

use crate::archive::schema::table_schema;
use crate::archive::table_name::TableName;
use crate::board::WideBoard;
use crate::error::{Error, Result};
use crate::format::SourceFormat;
use crate::run::{Run, RunMeta};
use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, DictionaryArray, FixedSizeBinaryBuilder, Float32Array, Int64Array,
    RecordBatch, StringArray, TimestampMillisecondArray, UInt16Array, UInt32Array, UInt64Array,
};
use arrow::datatypes::Int32Type;
use std::sync::Arc;

/// A run to write, and its columns of `runs` that are not part of its content.
pub(in crate::archive) struct IngestedRun {
    pub(in crate::archive) run: Run,
    pub(in crate::archive) info: RunInfo,
}

/// The columns of `runs` that are not part of a run's content.
pub(in crate::archive) struct RunInfo {
    /// The run's id in the archive. 0 until the run is accepted.
    pub(in crate::archive) run_id: u32,
    pub(in crate::archive) digest: [u8; 32],
    /// [`Run::game`].
    pub(in crate::archive) game: Option<i64>,
    pub(in crate::archive) format: SourceFormat,
    pub(in crate::archive) source: String,
    /// The run's index in its source, if the source holds several runs.
    pub(in crate::archive) source_index: Option<u64>,
    /// The session that the run was played in.
    pub(in crate::archive) session: Option<Arc<str>>,
    /// The run's id in its source.
    pub(in crate::archive) source_id: Option<u64>,
    /// The number of steps of the whole game, if the source has it.
    pub(in crate::archive) game_steps: Option<u32>,
    pub(in crate::archive) verified: bool,
    /// The original run file, if encoding the run would not reproduce it.
    pub(in crate::archive) original: Option<Vec<u8>>,
}

/// A row of `runs`: the part of a run that remains after its steps are written.
pub(in crate::archive) struct RunRow {
    info: RunInfo,
    meta: RunMeta,
    num_steps: u32,
    final_board: Option<WideBoard>,
}

impl From<IngestedRun> for RunRow {
    fn from(ingested: IngestedRun) -> RunRow {
        let IngestedRun { run, info } = ingested;
        RunRow { info, meta: run.meta().clone(), num_steps: run.num_steps() as u32, final_board: run.final_board() }
    }
}

impl RunRow {
    /// Returns the approximate size of the row's texts and files.
    pub(in crate::archive) fn num_bytes(&self) -> usize {
        let engine = self.meta.engine.as_ref().map_or(0, String::len);
        let original = self.info.original.as_ref().map_or(0, Vec::len);
        engine + original + self.info.source.len() + self.info.session.as_ref().map_or(0, |session| session.len())
    }
}

/// Returns whether the column `start_time` can hold this time, as milliseconds in 63 bits.
pub(in crate::archive) fn start_time_fits(start_unix_s: u64) -> bool {
    start_millis(start_unix_s).is_some() || start_unix_s == 0
}

fn start_millis(start_unix_s: u64) -> Option<i64> {
    i64::try_from(start_unix_s).ok()?.checked_mul(1000).filter(|&millis| millis != 0)
}

/// Returns rows of `runs`.
pub(in crate::archive) fn runs_batch(rows: &[RunRow], ingested_at_ms: i64) -> Result<RecordBatch> {
    type Words = DictionaryArray<Int32Type>;
    fn array<'r, A: FromIterator<T>, T>(rows: &'r [RunRow], value: impl Fn(&'r RunRow) -> T) -> A {
        rows.iter().map(value).collect()
    }
    fn column<'r, A: Array + FromIterator<T> + 'static, T>(
        rows: &'r [RunRow],
        value: impl Fn(&'r RunRow) -> T,
    ) -> ArrayRef {
        Arc::new(array::<A, T>(rows, value))
    }
    let mut digest = FixedSizeBinaryBuilder::with_capacity(rows.len(), 32);
    rows.iter().try_for_each(|row| digest.append_value(row.info.digest)).map_err(Error::other)?;
    let start_time: TimestampMillisecondArray = array(rows, |row| start_millis(row.meta.start_unix_s));
    let columns: Vec<ArrayRef> = vec![
        column::<UInt32Array, _>(rows, |row| row.info.run_id),
        Arc::new(digest.finish()),
        column::<Int64Array, _>(rows, |row| row.info.game),
        column::<Words, _>(rows, |row| row.info.format.name()),
        column::<StringArray, _>(rows, |row| Some(&row.info.source)),
        column::<Int64Array, _>(rows, |row| row.info.source_index.map(|index| index as i64)),
        column::<Int64Array, _>(rows, |row| row.info.source_id.map(|id| id as i64)),
        column::<StringArray, _>(rows, |row| row.info.session.as_deref()),
        column::<Words, _>(rows, |row| row.meta.engine.as_deref()),
        column::<UInt64Array, _>(rows, |row| row.meta.seed),
        Arc::new(start_time.with_timezone("UTC")),
        column::<Float32Array, _>(rows, |row| row.meta.elapsed_s),
        column::<UInt32Array, _>(rows, |row| row.num_steps),
        column::<UInt32Array, _>(rows, |row| row.info.game_steps),
        column::<Int64Array, _>(rows, |row| row.meta.max_score as i64),
        column::<UInt32Array, _>(rows, |row| row.meta.highest_tile),
        column::<UInt64Array, _>(rows, |row| row.final_board.map(|board| board.board().0)),
        column::<UInt16Array, _>(rows, |row| row.final_board.map(WideBoard::tile_65536_mask)),
        column::<BooleanArray, _>(rows, |row| Some(row.info.verified)),
        column::<BooleanArray, _>(rows, |row| Some(row.meta.raw_evs)),
        Arc::new(TimestampMillisecondArray::from(vec![ingested_at_ms; rows.len()]).with_timezone("UTC")),
        column::<BinaryArray, _>(rows, |row| row.info.original.as_deref()),
    ];
    RecordBatch::try_new(table_schema(TableName::Runs), columns).map_err(Error::other)
}
