//! The rows of the table `runs`.

use super::row_views::{at, column, words};
use crate::archive::schema::table_schema;
use crate::archive::table_name::TableName;
use crate::board::{Board, WideBoard};
use crate::error::{Error, Result};
use crate::format::SourceFormat;
use crate::run::RunMeta;
use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, DictionaryArray, FixedSizeBinaryArray, FixedSizeBinaryBuilder,
    Float32Array, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray, UInt16Array, UInt32Array,
    UInt64Array,
};
use arrow::datatypes::Int32Type;
use std::sync::Arc;

/// A row of `runs`, without the time of the ingest.
#[derive(Clone, Debug)]
pub(crate) struct RunRow {
    /// The run's id in the archive. 0 until an ingest accepts the run.
    pub(crate) run_id: u32,
    pub(in crate::archive) digest: [u8; 32],
    /// [`Run::game`](crate::run::Run::game).
    pub(in crate::archive) game: Option<i64>,
    /// The name of a [`SourceFormat`], or a name that no version up to this one has known.
    pub(in crate::archive) format: String,
    pub(in crate::archive) source: String,
    /// The run's index in its source, if the source holds several runs.
    pub(in crate::archive) source_index: Option<u64>,
    /// The session that the run was played in.
    pub(in crate::archive) session: Option<Arc<str>>,
    /// The run's id in its source.
    pub(in crate::archive) source_id: Option<u64>,
    /// The number of steps of the whole game, if the source has it.
    pub(crate) game_steps: Option<u32>,
    pub(in crate::archive) meta: RunMeta,
    pub(in crate::archive) num_steps: u32,
    pub(crate) final_board: Option<WideBoard>,
    pub(in crate::archive) verified: bool,
    /// The original run file, if encoding the run would not reproduce it.
    pub(in crate::archive) original: Option<Vec<u8>>,
}

impl RunRow {
    /// Returns the format of the run's source; `None` if no version up to this one has known it.
    pub(crate) fn source_format(&self) -> Option<SourceFormat> {
        SourceFormat::ALL.into_iter().find(|format| format.name() == self.format)
    }

    /// Returns the approximate size of the row's texts and files.
    pub(in crate::archive) fn num_bytes(&self) -> usize {
        let engine = self.meta.engine.as_ref().map_or(0, String::len);
        let original = self.original.as_ref().map_or(0, Vec::len);
        engine + original + self.source.len() + self.session.as_ref().map_or(0, |session| session.len())
    }
}

/// Returns whether the column `start_time` can hold this time, as milliseconds in 63 bits.
pub(in crate::archive) fn start_time_fits(start_unix_s: u64) -> bool {
    start_millis(start_unix_s).is_some() || start_unix_s == 0
}

fn start_millis(start_unix_s: u64) -> Option<i64> {
    i64::try_from(start_unix_s).ok()?.checked_mul(1000).filter(|&millis| millis != 0)
}

/// Returns rows as a batch of `runs`.
pub(in crate::archive) fn runs_batch(rows: &[RunRow], ingested_at_ms: i64) -> Result<RecordBatch> {
    type Words = DictionaryArray<Int32Type>;
    fn column<'r, A: Array + FromIterator<T> + 'static, T>(
        rows: &'r [RunRow],
        value: impl Fn(&'r RunRow) -> T,
    ) -> ArrayRef {
        Arc::new(rows.iter().map(value).collect::<A>())
    }
    let mut digest = FixedSizeBinaryBuilder::with_capacity(rows.len(), 32);
    rows.iter().try_for_each(|row| digest.append_value(row.digest)).map_err(Error::other)?;
    let start_time: TimestampMillisecondArray = rows.iter().map(|row| start_millis(row.meta.start_unix_s)).collect();
    let columns: Vec<ArrayRef> = vec![
        column::<UInt32Array, _>(rows, |row| row.run_id),
        Arc::new(digest.finish()),
        column::<Int64Array, _>(rows, |row| row.game),
        column::<Words, _>(rows, |row| row.format.as_str()),
        column::<StringArray, _>(rows, |row| Some(&row.source)),
        column::<Int64Array, _>(rows, |row| row.source_index.map(|index| index as i64)),
        column::<Int64Array, _>(rows, |row| row.source_id.map(|id| id as i64)),
        column::<StringArray, _>(rows, |row| row.session.as_deref()),
        column::<Words, _>(rows, |row| row.meta.engine.as_deref()),
        column::<UInt64Array, _>(rows, |row| row.meta.seed),
        Arc::new(start_time.with_timezone("UTC")),
        column::<Float32Array, _>(rows, |row| row.meta.elapsed_s),
        column::<UInt32Array, _>(rows, |row| row.num_steps),
        column::<UInt32Array, _>(rows, |row| row.game_steps),
        column::<Int64Array, _>(rows, |row| row.meta.max_score as i64),
        column::<UInt32Array, _>(rows, |row| row.meta.highest_tile),
        column::<UInt64Array, _>(rows, |row| row.final_board.map(|board| board.board().0)),
        column::<UInt16Array, _>(rows, |row| row.final_board.map(WideBoard::tile_65536_mask)),
        column::<BooleanArray, _>(rows, |row| Some(row.verified)),
        column::<BooleanArray, _>(rows, |row| Some(row.meta.raw_evs)),
        Arc::new(TimestampMillisecondArray::from(vec![ingested_at_ms; rows.len()]).with_timezone("UTC")),
        column::<BinaryArray, _>(rows, |row| row.original.as_deref()),
    ];
    RecordBatch::try_new(table_schema(TableName::Runs), columns).map_err(Error::other)
}

/// Returns the rows of a batch of `runs`, one after the other, so that memory holds one copy of an original file.
pub(in crate::archive) fn run_rows(batch: &RecordBatch) -> Result<impl Iterator<Item = Result<RunRow>>> {
    let run_id = column::<UInt32Array>(batch, "run_id")?.values();
    let digest = column::<FixedSizeBinaryArray>(batch, "digest")?;
    let (format, engine) = (words(batch, "format")?, words(batch, "engine")?);
    let source = column::<StringArray>(batch, "source")?;
    let source_index = column::<Int64Array>(batch, "source_index")?;
    let source_id = column::<Int64Array>(batch, "source_id")?;
    let session = column::<StringArray>(batch, "session")?;
    let seed = column::<UInt64Array>(batch, "seed")?;
    let start_time = column::<TimestampMillisecondArray>(batch, "start_time")?;
    let elapsed_s = column::<Float32Array>(batch, "elapsed_s")?.values();
    let num_steps = column::<UInt32Array>(batch, "num_steps")?.values();
    let game_steps = column::<UInt32Array>(batch, "game_steps")?;
    let max_score = column::<Int64Array>(batch, "max_score")?.values();
    let game = column::<Int64Array>(batch, "game")?;
    let highest_tile = column::<UInt32Array>(batch, "highest_tile")?.values();
    let final_board = column::<UInt64Array>(batch, "final_board")?;
    let final_mask = column::<UInt16Array>(batch, "final_tile_65536_mask")?;
    let raw_evs = column::<BooleanArray>(batch, "raw_evs")?;
    let verified = column::<BooleanArray>(batch, "verified")?;
    let original = column::<BinaryArray>(batch, "original")?;
    let row = move |row: usize| {
        let wide = |board| WideBoard::new(Board(board), at(final_mask, row).unwrap_or(0));
        Ok(RunRow {
            run_id: run_id[row],
            digest: std::array::from_fn(|i| digest.value(row).get(i).copied().unwrap_or_default()),
            game: at(game, row),
            format: at(format, row).unwrap_or_default().to_owned(),
            source: source.value(row).to_owned(),
            source_index: at(source_index, row).map(|index| index as u64),
            session: at(session, row).map(Arc::from),
            source_id: at(source_id, row).map(|id| id as u64),
            game_steps: at(game_steps, row),
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
            original: at(original, row).map(<[u8]>::to_vec),
        })
    };
    Ok((0..batch.num_rows()).map(row))
}
