//! The columns of `runs` and `steps`: what every reader of the Parquet files meets.
//!
//! `steps` repeats what filters need of the run (`max_score`, `highest_tile`, `num_steps`, `engine`), so that no tool
//! has to join; run-length and dictionary encoding make the repetition free.

use super::TableName;
use crate::board::Board;
use crate::error::{Error, Result};
use crate::format::SourceFormat;
use crate::run::Run;
use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanArray, DictionaryArray, FixedSizeBinaryBuilder, Float32Array, Int32Array,
    Int32Builder, RecordBatch, StringArray, StringDictionaryBuilder, TimestampMillisecondArray, UInt8Array,
    UInt32Array, UInt64Array, new_null_array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef, TimeUnit};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// The version of the schema below and of the commit log. Readers refuse a newer one and read every older one, whose
/// missing columns are null; docs/archive.md has the rule and what each version changed.
pub(super) const SCHEMA_VERSION: u32 = 4;
/// The key in the metadata of Parquet files under which it stands.
pub(super) const SCHEMA_VERSION_KEY: &str = "a2store.schema_version";

/// The tiles from which a step counts as of the middle and of the late game, by the largest tile on its board.
///
/// ```
/// use a2store::{Phase, Phases};
/// let phases = Phases::default();
/// assert_eq!((phases.mid, phases.late), (1024, 4096));
/// assert_eq!(phases.of_max_exp(10), Phase::Mid);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phases {
    /// The smallest tile of `mid`; below it is `early`.
    pub mid: u32,
    /// The smallest tile of `late`.
    pub late: u32,
}

/// The part of a game that a step belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Below the threshold of [`Phases::mid`].
    Early,
    /// From [`Phases::mid`] on.
    Mid,
    /// From [`Phases::late`] on.
    Late,
}

impl Default for Phases {
    fn default() -> Self {
        Phases { mid: 1024, late: 4096 }
    }
}

impl Phases {
    /// The phase of a board whose largest exponent is `max_exp`.
    #[must_use]
    pub fn of_max_exp(self, max_exp: u8) -> Phase {
        let tile = 1u32 << max_exp;
        if tile >= self.late {
            Phase::Late
        } else if tile >= self.mid {
            Phase::Mid
        } else {
            Phase::Early
        }
    }

    pub(super) fn check(self) -> Result<()> {
        let is_tile = |tile: u32| tile.is_power_of_two() && (2..=32768).contains(&tile);
        if !is_tile(self.mid) || !is_tile(self.late) || self.mid >= self.late {
            let found = format!("mid {}, late {}", self.mid, self.late);
            return Err(Error::argument("phases", "tiles (2, 4, …, 32768) with mid below late", found));
        }
        Ok(())
    }
}

impl Phase {
    /// The phases in order.
    pub const ALL: [Phase; 3] = [Phase::Early, Phase::Mid, Phase::Late];

    /// `"early"`, `"mid"` or `"late"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["early", "mid", "late"][self as usize]
    }
}

/// A run on its way into the archive, with what the archive says of it beside its content.
pub(super) struct IngestedRun {
    pub(super) run_id: u32,
    pub(super) run: Run,
    pub(super) info: RunInfo,
}

/// What `runs` has beside a run's content.
pub(super) struct RunInfo {
    pub(super) digest: [u8; 32],
    pub(super) format: SourceFormat,
    pub(super) source: String,
    /// The run's place in a source of many.
    pub(super) source_index: Option<u64>,
    /// The session that it was played in.
    pub(super) session: Option<Arc<str>>,
    /// Its id there.
    pub(super) source_id: Option<u64>,
    /// The steps of the whole game, where the source says so.
    pub(super) game_steps: Option<u32>,
    /// What the session says of itself, as JSON.
    pub(super) session_info: Option<Arc<str>>,
    pub(super) verified: bool,
    /// The file itself, when encoding the run would not give it back.
    pub(super) original: Option<Vec<u8>>,
}

/// A row of `runs`: what remains of a run once its steps are written.
pub(super) struct RunRow {
    run_id: u32,
    info: RunInfo,
    meta: crate::run::RunMeta,
    num_steps: u32,
    final_board: Option<Board>,
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
    /// What it has in text and files, about.
    pub(super) fn num_bytes(&self) -> usize {
        let engine = self.meta.engine.as_ref().map_or(0, String::len);
        let original = self.info.original.as_ref().map_or(0, Vec::len);
        engine + original + self.info.source.len() + self.info.session.as_ref().map_or(0, |session| session.len())
    }
}

/// The schema of a table, as its Parquet files carry it.
pub(crate) fn table_schema(table: TableName) -> SchemaRef {
    static RUNS: LazyLock<SchemaRef> = LazyLock::new(|| Schema::new(run_fields()).into());
    static STEPS: LazyLock<SchemaRef> = LazyLock::new(|| Schema::new(step_fields()).into());
    match table {
        TableName::Runs => Arc::clone(&RUNS),
        TableName::Steps => Arc::clone(&STEPS),
    }
}

fn text_dictionary() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))
}

fn run_fields() -> Vec<Field> {
    vec![
        Field::new("run_id", DataType::UInt32, false),
        Field::new("digest", DataType::FixedSizeBinary(32), false),
        Field::new("format", text_dictionary(), false),
        Field::new("source", DataType::Utf8, false),
        Field::new("engine", text_dictionary(), true),
        Field::new("start_time", timestamp(), true),
        Field::new("elapsed_s", DataType::Float32, false),
        Field::new("num_steps", DataType::UInt32, false),
        Field::new("max_score", DataType::UInt64, false),
        Field::new("highest_tile", DataType::UInt32, false),
        Field::new("final_board", DataType::UInt64, true),
        Field::new("seed", DataType::UInt64, true),
        Field::new("session", DataType::Utf8, true),
        Field::new("verified", DataType::Boolean, false),
        Field::new("ingested_at", timestamp(), false),
        Field::new("original", DataType::Binary, true),
        // Since schema version 2.
        Field::new("version", DataType::UInt64, true),
        // Since schema version 3, with which `final_board` and `steps.move` became nullable.
        Field::new("source_index", DataType::UInt64, true),
        Field::new("raw_evs", DataType::Boolean, true),
        // Since schema version 4.
        Field::new("source_id", DataType::UInt64, true),
        Field::new("game_steps", DataType::UInt32, true),
        Field::new("session_info", text_dictionary(), true),
    ]
}

fn step_fields() -> Vec<Field> {
    vec![
        Field::new("run_id", DataType::UInt32, false),
        Field::new("step_index", DataType::UInt32, false),
        Field::new("board", DataType::UInt64, false),
        Field::new("move", DataType::UInt8, true),
        Field::new("ev_legal", DataType::UInt8, false),
        Field::new("ev_up", DataType::Float32, true),
        Field::new("ev_down", DataType::Float32, true),
        Field::new("ev_left", DataType::Float32, true),
        Field::new("ev_right", DataType::Float32, true),
        Field::new("has_evs", DataType::Boolean, false),
        Field::new("max_exp", DataType::UInt8, false),
        Field::new("phase", text_dictionary(), false),
        Field::new("max_score", DataType::UInt64, false),
        Field::new("highest_tile", DataType::UInt32, false),
        Field::new("num_steps", DataType::UInt32, false),
        Field::new("engine", text_dictionary(), true),
    ]
}

/// Whether the columns of `runs` can hold this start time: they keep milliseconds in 63 bits.
pub(super) fn start_time_fits(start_unix_s: u64) -> bool {
    start_millis(start_unix_s).is_some() || start_unix_s == 0
}

fn start_millis(start_unix_s: u64) -> Option<i64> {
    i64::try_from(start_unix_s).ok()?.checked_mul(1000).filter(|&millis| millis != 0)
}

/// Rows of `runs`, as the commit of a version adds them.
pub(super) fn runs_batch(rows: &[RunRow], ingested_at_ms: i64, version: u64) -> Result<RecordBatch> {
    let mut digest = FixedSizeBinaryBuilder::with_capacity(rows.len(), 32);
    let mut format = StringDictionaryBuilder::<Int32Type>::new();
    let mut engine = StringDictionaryBuilder::<Int32Type>::new();
    let mut original = BinaryBuilder::new();
    let mut session_info = StringDictionaryBuilder::<Int32Type>::new();
    for row in rows {
        session_info.append_option(row.info.session_info.as_deref());
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
    let max_score: Vec<u64> = column(rows, |row| row.meta.max_score);
    let highest_tile: Vec<u32> = column(rows, |row| row.meta.highest_tile);
    let final_board: UInt64Array = column(rows, |row| row.final_board.map(|board| board.0));
    let seed: UInt64Array = column(rows, |row| row.meta.seed);
    let session: StringArray = rows.iter().map(|row| row.info.session.as_deref()).collect();
    let source_index: UInt64Array = column(rows, |row| row.info.source_index);
    let source_id: UInt64Array = column(rows, |row| row.info.source_id);
    let game_steps: UInt32Array = column(rows, |row| row.info.game_steps);
    let raw_evs: Vec<bool> = column(rows, |row| row.meta.raw_evs);
    let source: Vec<&str> = rows.iter().map(|row| row.info.source.as_str()).collect();
    let verified: Vec<bool> = column(rows, |row| row.info.verified);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(UInt32Array::from(run_id)),
        Arc::new(digest.finish()),
        Arc::new(format.finish()),
        Arc::new(StringArray::from(source)),
        Arc::new(engine.finish()),
        Arc::new(start_time.with_timezone("UTC")),
        Arc::new(Float32Array::from(elapsed_s)),
        Arc::new(UInt32Array::from(num_steps)),
        Arc::new(UInt64Array::from(max_score)),
        Arc::new(UInt32Array::from(highest_tile)),
        Arc::new(final_board),
        Arc::new(seed),
        Arc::new(session),
        Arc::new(BooleanArray::from(verified)),
        Arc::new(TimestampMillisecondArray::from(vec![ingested_at_ms; rows.len()]).with_timezone("UTC")),
        Arc::new(original.finish()),
        Arc::new(UInt64Array::from(vec![version; rows.len()])),
        Arc::new(source_index),
        Arc::new(BooleanArray::from(raw_evs)),
        Arc::new(source_id),
        Arc::new(game_steps),
        Arc::new(session_info.finish()),
    ];
    RecordBatch::try_new(table_schema(TableName::Runs), columns).map_err(Error::other)
}

/// The steps of runs, in order.
pub(super) fn steps_batch(runs: &[IngestedRun], phases: Phases) -> Result<RecordBatch> {
    let columns = StepColumns::of(runs, phases)?;
    RecordBatch::try_new(table_schema(TableName::Steps), columns).map_err(Error::other)
}

/// The columns of `steps`, one function each. Loops run over slices, since of adapted iterators the compiler makes single
/// steps.
struct StepColumns<'a> {
    runs: &'a [IngestedRun],
    num_rows: usize,
}

impl StepColumns<'_> {
    fn of(runs: &[IngestedRun], phases: Phases) -> Result<Vec<ArrayRef>> {
        let num_rows = runs.iter().map(|ingested| ingested.run.num_steps()).sum();
        let columns = StepColumns { runs, num_rows };
        let boards: Vec<u64> = columns.joined(|run| bytemuck::cast_slice(run.boards()));
        let max_exp: Vec<u8> = boards.iter().map(|&board| Board(board).max_exp()).collect();
        let phase_of: [i32; 16] = std::array::from_fn(|exp| phases.of_max_exp(exp as u8) as i32);
        let phase: Vec<i32> = max_exp.iter().map(|&exp| phase_of[usize::from(exp & 15)]).collect();
        let legal: Vec<u8> = columns.joined(Run::ev_legal);
        let has_evs: Vec<bool> = columns.joined(Run::has_evs);
        let moves: Vec<u8> = columns.joined(|run| crate::board::Move::as_bytes(run.moves()));
        let mut step_index: Vec<u32> = Vec::with_capacity(num_rows);
        for ingested in runs {
            match ingested.run.step_indices() {
                None => step_index.extend(0..ingested.run.num_steps() as u32),
                Some(indices) => step_index.extend_from_slice(indices),
            }
        }
        let [up, down, left, right] = columns.evs(&legal, &has_evs);
        Ok(vec![
            columns.repeated(|ingested| ingested.run_id),
            Arc::new(UInt32Array::from(step_index)),
            Arc::new(UInt64Array::from(boards)),
            Arc::new(UInt8Array::new(moves.into(), columns.known_moves())),
            Arc::new(UInt8Array::from(legal)),
            up,
            down,
            left,
            right,
            Arc::new(BooleanArray::from(has_evs)),
            Arc::new(UInt8Array::from(max_exp)),
            Arc::new(phases_array(phase)?),
            Arc::new(UInt64Array::from(columns.repeat(|ingested| ingested.run.meta().max_score))),
            columns.repeated(|ingested| ingested.run.meta().highest_tile),
            columns.repeated(|ingested| ingested.run.num_steps() as u32),
            Arc::new(columns.engines()?),
        ])
    }

    /// What runs have as columns of their own, one after the other.
    fn joined<T: Copy>(&self, values: impl Fn(&Run) -> &[T]) -> Vec<T> {
        let mut column = Vec::with_capacity(self.num_rows);
        self.runs.iter().for_each(|ingested| column.extend_from_slice(values(&ingested.run)));
        column
    }

    /// Which moves are known; `None` if all are.
    fn known_moves(&self) -> Option<NullBuffer> {
        if self.runs.iter().all(|ingested| ingested.run.unknown_moves().is_empty()) {
            return None;
        }
        let mut known = vec![true; self.num_rows];
        let mut start = 0;
        for ingested in self.runs {
            for &step in ingested.run.unknown_moves() {
                known[start + step as usize] = false;
            }
            start += ingested.run.num_steps();
        }
        Some(NullBuffer::from(known))
    }

    /// A value of each run, once for each of its steps.
    fn repeat<T: Copy>(&self, value: impl Fn(&IngestedRun) -> T) -> Vec<T> {
        let mut column = Vec::with_capacity(self.num_rows);
        for ingested in self.runs {
            column.resize(column.len() + ingested.run.num_steps(), value(ingested));
        }
        column
    }

    fn repeated(&self, value: impl Fn(&IngestedRun) -> u32) -> ArrayRef {
        Arc::new(UInt32Array::from(self.repeat(value)))
    }

    /// The values of the four branches; null where a branch is illegal or a step has none.
    fn evs(&self, legal: &[u8], has_evs: &[bool]) -> [ArrayRef; 4] {
        if !has_evs.contains(&true) {
            return std::array::from_fn(|_| new_null_array(&DataType::Float32, self.num_rows));
        }
        let mut values: [Vec<f32>; 4] = std::array::from_fn(|_| vec![0.0; self.num_rows]);
        let mut start = 0;
        for ingested in self.runs {
            let rows = ingested.run.ev_values();
            for (branch, column) in values.iter_mut().enumerate() {
                let column = &mut column[start..start + rows.len()];
                for i in 0..column.len() {
                    column[i] = rows[i][branch];
                }
            }
            start += rows.len();
        }
        let masks: Vec<u8> =
            legal.iter().zip(has_evs).map(|(&legal, &has)| legal & u8::from(has).wrapping_neg()).collect();
        let mut branch = 0;
        values.map(|values| {
            let bit = 1_u8 << branch;
            branch += 1;
            let valid = BooleanBuffer::collect_bool(masks.len(), |row| masks[row] & bit != 0);
            Arc::new(Float32Array::new(ScalarBuffer::from(values), Some(NullBuffer::new(valid)))) as ArrayRef
        })
    }

    fn engines(&self) -> Result<DictionaryArray<Int32Type>> {
        let mut names: Vec<&str> = Vec::new();
        let mut indices: HashMap<&str, i32> = HashMap::new();
        let mut keys = Int32Builder::with_capacity(self.num_rows);
        for ingested in self.runs {
            let num_steps = ingested.run.num_steps();
            if num_steps == 0 {
                continue;
            }
            let Some(engine) = ingested.run.meta().engine.as_deref() else {
                keys.append_nulls(num_steps);
                continue;
            };
            let key = *indices.entry(engine).or_insert_with(|| {
                names.push(engine);
                names.len() as i32 - 1
            });
            keys.append_value_n(key, num_steps);
        }
        DictionaryArray::try_new(keys.finish(), Arc::new(StringArray::from(names))).map_err(Error::other)
    }
}

fn phases_array(keys: Vec<i32>) -> Result<DictionaryArray<Int32Type>> {
    let names = StringArray::from(Phase::ALL.map(Phase::name).to_vec());
    DictionaryArray::try_new(Int32Array::from(keys), Arc::new(names)).map_err(Error::other)
}
