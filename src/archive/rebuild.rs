//! Rows of `steps` and of `runs` → the runs that they came from.

use super::schema::Phases;
use crate::board::{Board, Move};
use crate::error::{Error, Result};
use crate::format::SourceFormat;
use crate::run::{Branches, Run, RunMeta, RunStep};
use arrow::array::{
    Array, AsArray, BinaryArray, BooleanArray, DictionaryArray, Float32Array, RecordBatch, StringArray, UInt8Array,
};
use arrow::datatypes::{
    ArrowPrimitiveType, Float32Type, Int32Type, TimestampMillisecondType, UInt8Type, UInt32Type, UInt64Type,
};
use std::ops::Range;
use std::sync::Arc;

/// Rows of `steps` in today's schema, as typed columns.
pub(super) struct StepRows<'a> {
    pub(super) run_id: &'a [u32],
    step_index: &'a [u32],
    board: &'a [u64],
    moves: &'a UInt8Array,
    legal: &'a [u8],
    evs: [&'a Float32Array; 4],
    has_evs: &'a BooleanArray,
    max_exp: &'a [u8],
    phase: Words<'a>,
    max_score: &'a [u64],
    highest_tile: &'a [u32],
    num_steps: &'a [u32],
    engine: Words<'a>,
}

/// A row of `runs`.
#[derive(Clone, Debug)]
pub(super) struct RunFacts {
    pub(super) run_id: u32,
    pub(super) digest: [u8; 32],
    pub(super) format: String,
    pub(super) meta: RunMeta,
    pub(super) num_steps: u32,
    pub(super) final_board: Option<Board>,
    pub(super) verified: bool,
    /// Whether the file itself is kept, for what columns cannot give back.
    pub(super) has_original: bool,
    pub(super) version: Option<u64>,
    /// What it was read from.
    pub(super) source: String,
    /// The session that the run was played in, and the run's id there.
    pub(super) session: Option<String>,
    pub(super) source_id: Option<u64>,
    pub(super) game_steps: Option<u32>,
    pub(super) session_info: Option<Arc<str>>,
}

/// A row of `runs`, and the run's file where it was kept.
pub(super) type FactsAndOriginal<'a> = (RunFacts, Option<&'a [u8]>);

/// A dictionary of text.
struct Words<'a> {
    keys: &'a DictionaryArray<Int32Type>,
    values: &'a StringArray,
}

impl<'a> Words<'a> {
    fn get(&self, row: usize) -> Option<&'a str> {
        self.keys.key(row).map(|key| self.values.value(key))
    }
}

/// The columns of a batch by their names. The batch has the table's schema, so that only a mistake here can miss one.
struct Columns<'a>(&'a RecordBatch);

impl<'a> Columns<'a> {
    fn column(&self, name: &str) -> Result<&'a dyn Array> {
        let column = self.0.column_by_name(name);
        column.map(|column| column.as_ref()).ok_or_else(|| mistyped(name))
    }

    fn numbers<T: ArrowPrimitiveType>(&self, name: &str) -> Result<&'a [T::Native]> {
        Ok(self.column(name)?.as_primitive_opt::<T>().ok_or_else(|| mistyped(name))?.values())
    }

    fn words(&self, name: &str) -> Result<Words<'a>> {
        let keys = self.column(name)?.as_dictionary_opt::<Int32Type>().ok_or_else(|| mistyped(name))?;
        let values = keys.values().as_string_opt::<i32>().ok_or_else(|| mistyped(name))?;
        Ok(Words { keys, values })
    }

    fn bools(&self, name: &str) -> Result<&'a BooleanArray> {
        self.column(name)?.as_boolean_opt().ok_or_else(|| mistyped(name))
    }
}

fn mistyped(name: &str) -> Error {
    Error::other(format!("column {name} is not of its type"))
}

impl<'a> StepRows<'a> {
    pub(super) fn new(batch: &'a RecordBatch) -> Result<StepRows<'a>> {
        let columns = Columns(batch);
        let ev = |name: &str| columns.column(name)?.as_primitive_opt::<Float32Type>().ok_or_else(|| mistyped(name));
        Ok(StepRows {
            run_id: columns.numbers::<UInt32Type>("run_id")?,
            step_index: columns.numbers::<UInt32Type>("step_index")?,
            board: columns.numbers::<UInt64Type>("board")?,
            moves: columns.column("move")?.as_primitive_opt::<UInt8Type>().ok_or_else(|| mistyped("move"))?,
            legal: columns.numbers::<UInt8Type>("ev_legal")?,
            evs: [ev("ev_up")?, ev("ev_down")?, ev("ev_left")?, ev("ev_right")?],
            has_evs: columns.bools("has_evs")?,
            max_exp: columns.numbers::<UInt8Type>("max_exp")?,
            phase: columns.words("phase")?,
            max_score: columns.numbers::<UInt64Type>("max_score")?,
            highest_tile: columns.numbers::<UInt32Type>("highest_tile")?,
            num_steps: columns.numbers::<UInt32Type>("num_steps")?,
            engine: columns.words("engine")?,
        })
    }

    /// The rows of each run, one range after the other.
    pub(super) fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        self.run_id.chunk_by(|a, b| a == b).scan(0, |start, run| {
            let range = *start..*start + run.len();
            *start = range.end;
            Some(range)
        })
    }

    /// What is wrong with the columns of a run that repeat or derive from others: name, expected, found.
    pub(super) fn check_derived(
        &self,
        rows: Range<usize>,
        facts: Option<&RunFacts>,
        phases: Phases,
    ) -> Vec<(&'static str, String, String)> {
        let mut wrong = Vec::new();
        let mut expect = |name, expected: &dyn ToString, found: &dyn ToString| {
            wrong.push((name, expected.to_string(), found.to_string()));
        };
        let first = rows.start;
        if let Some(facts) = facts {
            let counted = rows.len() as u32;
            if counted != facts.num_steps {
                expect("number of steps", &facts.num_steps, &counted);
            }
            if self.num_steps[first] != facts.num_steps {
                expect("num_steps", &facts.num_steps, &self.num_steps[first]);
            }
            if self.max_score[first] != facts.meta.max_score {
                expect("max_score", &facts.meta.max_score, &self.max_score[first]);
            }
            if self.highest_tile[first] != facts.meta.highest_tile {
                expect("highest_tile", &facts.meta.highest_tile, &self.highest_tile[first]);
            }
            if self.engine.get(first) != facts.meta.engine.as_deref() {
                let name = |engine: Option<&str>| engine.unwrap_or("null").to_owned();
                expect("engine", &name(facts.meta.engine.as_deref()), &name(self.engine.get(first)));
            }
        }
        // Of files of older versions it is not known which runs they hold.
        let sampled = facts.is_none_or(|facts| SourceFormat::may_be_sampled(&facts.format));
        let is_gap = |(place, &index): (usize, &u32)| place as u32 != index;
        if !sampled && let Some(gap) = self.step_index[rows.clone()].iter().enumerate().position(is_gap) {
            expect("step_index", &gap, &self.step_index[first + gap]);
        }
        for row in rows {
            let at = |what: &dyn ToString| format!("{} at step {}", what.to_string(), self.step_index[row]);
            let constant = self.num_steps[row] == self.num_steps[first]
                && self.max_score[row] == self.max_score[first]
                && self.highest_tile[row] == self.highest_tile[first]
                && self.engine.get(row) == self.engine.get(first);
            if !constant {
                wrong.push(("columns of the run", "the same at every step".into(), at(&"others")));
            }
            let max_exp = Board(self.board[row]).max_exp();
            if self.max_exp[row] != max_exp {
                wrong.push(("max_exp", max_exp.to_string(), at(&self.max_exp[row])));
            }
            let phase = phases.of_max_exp(max_exp).name();
            if self.phase.get(row) != Some(phase) {
                wrong.push(("phase", phase.into(), at(&self.phase.get(row).unwrap_or("null"))));
            }
            let has_evs = self.has_evs.value(row);
            let valid =
                (0..4).filter(|&branch| self.evs[branch].is_valid(row)).fold(0, |mask, branch| mask | 1 << branch);
            let expected = if has_evs { self.legal[row] } else { 0 };
            if valid != expected {
                wrong.push(("values that are not null", format!("{expected:04b}"), at(&format!("{valid:04b}"))));
            }
            if self.moves.is_valid(row) && self.moves.value(row) > 3 {
                wrong.push(("move", "0..=3".into(), at(&self.moves.value(row))));
            }
            if wrong.len() > 8 {
                break;
            }
        }
        wrong
    }

    /// The run that these rows are of.
    pub(super) fn run(&self, rows: Range<usize>, meta: RunMeta, final_board: Option<Board>) -> Result<Run> {
        let mut steps = Run::builder(rows.len());
        for row in rows {
            let chosen = match self.moves.is_valid(row).then(|| self.moves.value(row)) {
                None => None,
                Some(index) => Some(Move::from_index(index).ok_or_else(|| Error::argument("move", "0..=3", index))?),
            };
            let branches = self.has_evs.value(row).then(|| Branches {
                values: std::array::from_fn(|branch| match self.evs[branch].is_valid(row) {
                    true => self.evs[branch].value(row),
                    false => 0.0,
                }),
                legal: self.legal[row],
            });
            steps.push_step(RunStep {
                index: self.step_index[row],
                board: Board(self.board[row]),
                chosen,
                branches,
            })?;
        }
        steps.finish(meta, final_board)
    }
}

/// The rows of a batch of `runs` in today's schema, each with its original file if it has one.
pub(super) fn run_facts(batch: &RecordBatch) -> Result<Vec<FactsAndOriginal<'_>>> {
    let columns = Columns(batch);
    let run_id = columns.numbers::<UInt32Type>("run_id")?;
    let digest = columns.column("digest")?.as_fixed_size_binary_opt().ok_or_else(|| mistyped("digest"))?;
    let (format, engine) = (columns.words("format")?, columns.words("engine")?);
    let start_time = columns.column("start_time")?.as_primitive_opt::<TimestampMillisecondType>();
    let start_time = start_time.ok_or_else(|| mistyped("start_time"))?;
    let elapsed_s = columns.numbers::<Float32Type>("elapsed_s")?;
    let num_steps = columns.numbers::<UInt32Type>("num_steps")?;
    let max_score = columns.numbers::<UInt64Type>("max_score")?;
    let highest_tile = columns.numbers::<UInt32Type>("highest_tile")?;
    let optional = |name: &str| columns.column(name)?.as_primitive_opt::<UInt64Type>().ok_or_else(|| mistyped(name));
    let (final_board, seed, version) = (optional("final_board")?, optional("seed")?, optional("version")?);
    let raw_evs = columns.bools("raw_evs")?;
    let verified = columns.bools("verified")?;
    let original: &BinaryArray =
        columns.column("original")?.as_binary_opt::<i32>().ok_or_else(|| mistyped("original"))?;
    let source: &StringArray = columns.column("source")?.as_string_opt().ok_or_else(|| mistyped("source"))?;
    let session: &StringArray = columns.column("session")?.as_string_opt().ok_or_else(|| mistyped("session"))?;
    let source_id = optional("source_id")?;
    let game_steps = columns.column("game_steps")?.as_primitive_opt::<UInt32Type>();
    let game_steps = game_steps.ok_or_else(|| mistyped("game_steps"))?;
    let session_info = columns.words("session_info")?;
    // One for all runs of a session, as it may be long.
    let infos: Vec<Arc<str>> = session_info.values.iter().map(|info| info.unwrap_or_default().into()).collect();
    let row = |row: usize| {
        let original = original.is_valid(row).then(|| original.value(row));
        let start_unix_s = if start_time.is_valid(row) { start_time.value(row) / 1000 } else { 0 };
        let facts = RunFacts {
            run_id: run_id[row],
            digest: std::array::from_fn(|i| digest.value(row).get(i).copied().unwrap_or_default()),
            format: format.get(row).unwrap_or_default().to_owned(),
            meta: RunMeta {
                start_unix_s: start_unix_s.unsigned_abs(),
                elapsed_s: elapsed_s[row],
                max_score: max_score[row],
                highest_tile: highest_tile[row],
                engine: engine.get(row).map(str::to_owned),
                seed: seed.is_valid(row).then(|| seed.value(row)),
                raw_evs: raw_evs.is_valid(row) && raw_evs.value(row),
            },
            num_steps: num_steps[row],
            final_board: final_board.is_valid(row).then(|| Board(final_board.value(row))),
            verified: verified.value(row),
            has_original: original.is_some(),
            version: version.is_valid(row).then(|| version.value(row)),
            source: source.value(row).to_owned(),
            session: session.is_valid(row).then(|| session.value(row).to_owned()),
            source_id: source_id.is_valid(row).then(|| source_id.value(row)),
            game_steps: game_steps.is_valid(row).then(|| game_steps.value(row)),
            session_info: session_info.keys.key(row).and_then(|key| infos.get(key).cloned()),
        };
        (facts, original)
    };
    Ok((0..batch.num_rows()).map(row).collect())
}

impl RunFacts {
    /// The format that the run came in; `None` if no version so far has known it.
    pub(super) fn source_format(&self) -> Option<SourceFormat> {
        SourceFormat::ALL.into_iter().find(|format| format.name() == self.format)
    }
}
