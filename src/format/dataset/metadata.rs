//! The table of runs in `metadata.db`.

use crate::error::{Error, Result};
use crate::format::files::mapped::header_error;
use crate::format::files::sqlite::{Database, InvalidValue, Values, integer, nullable};
use crate::run::RunMeta;
use rusqlite::Row;
use rusqlite::types::ValueRef;
use std::path::Path;

pub(super) const SCHEMA: &str = "CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    first_step_idx INTEGER NOT NULL,
    num_steps INTEGER NOT NULL,
    max_score INTEGER NOT NULL,
    highest_tile INTEGER NOT NULL,
    engine TEXT,
    start_time INTEGER,
    elapsed_s REAL
);
CREATE INDEX idx_runs_score ON runs(max_score);
CREATE INDEX idx_runs_len ON runs(num_steps);";

const SELECT: &str = "SELECT id, first_step_idx, num_steps, max_score, highest_tile, engine, start_time, elapsed_s \
                      FROM runs ORDER BY id";
pub(super) const INSERT: &str = "INSERT INTO runs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

/// The maximum length of an engine name in bytes, as in every other format.
pub(super) const MAX_ENGINE_LEN: usize = 65_535;

/// The runs in `metadata.db`, in the order of their ids.
#[derive(Debug)]
pub(super) struct Metadata(Vec<DatasetRun>);

#[derive(Debug)]
struct DatasetRun {
    first_step: u64,
    num_steps: u32,
    meta: RunMeta,
    /// The first invalid value. The other fields are then defaults.
    problem: Option<Box<InvalidValue>>,
}

impl Metadata {
    pub(super) fn read(path: &Path) -> Result<Metadata> {
        let database = Database::open(path)?;
        let mut runs = Vec::new();
        database.each(SELECT, [], |row| {
            runs.push(DatasetRun::of(row));
            Ok(())
        })?;
        Ok(Metadata(runs))
    }

    pub(super) fn num_runs(&self) -> usize {
        self.0.len()
    }

    /// Returns the first row of a run and the number of its rows, or `None` if its metadata is damaged.
    pub(super) fn rows(&self, index: usize) -> Option<(u64, u64)> {
        let record = self.0.get(index).filter(|record| record.problem.is_none())?;
        Some((record.first_step, u64::from(record.num_steps)))
    }

    /// Returns the end of the last run's rows. Ignores runs that exceed `num_rows`.
    pub(super) fn end(&self, num_rows: u64) -> u64 {
        let ends = (0..self.num_runs()).filter_map(|index| self.rows(index));
        let ends = ends.filter(|&(_, len)| len > 0).filter_map(|(first, len)| first.checked_add(len));
        ends.filter(|&end| end <= num_rows).max().unwrap_or(0)
    }

    /// Returns whether the rows of all runs exist and end with the last of `num_rows` rows.
    pub(super) fn agree_with(&self, num_rows: u64) -> bool {
        let ends = |index| self.rows(index).and_then(|(first, len)| first.checked_add(len));
        let all_exist = (0..self.num_runs()).all(|index| ends(index).is_some_and(|end| end <= num_rows));
        all_exist && self.end(num_rows) == num_rows
    }

    /// Rejects overlapping runs that together claim more than four times the existing rows. Decoding them could
    /// take extremely long.
    pub(super) fn check_claims(&self, num_rows: u64, path: &Path) -> Result<()> {
        let within = |&(first, len): &(u64, u64)| first.checked_add(len).is_some_and(|end| end <= num_rows);
        let claimed = (0..self.num_runs()).filter_map(|index| self.rows(index)).filter(within);
        let claimed = claimed.fold(0_u64, |sum, (_, len)| sum.saturating_add(len));
        let most = num_rows.saturating_mul(4);
        if claimed > most {
            let expected = format!("at most {most} in total, four times the number of rows");
            return Err(header_error("num_steps of the runs", expected, claimed.to_string(), path));
        }
        Ok(())
    }

    /// Returns the metadata of a run, its first row and the number of its rows.
    pub(super) fn run(&self, index: usize) -> Result<(RunMeta, u64, u64)> {
        let Some(record) = self.0.get(index) else { return Err(Error::no_index(index, self.0.len())) };
        if let Some(InvalidValue { what, expected, found }) = record.problem.as_deref() {
            let error = Error::decode(None, what, *expected, found);
            return Err(error.located(|location| location.run = Some(index as u64)));
        }
        Ok((record.meta.clone(), record.first_step, u64::from(record.num_steps)))
    }
}

/// The name and the valid values of each column.
const EXPECTED: [(&str, &str); 8] = [
    ("runs.id", "an INTEGER"),
    ("runs.first_step_idx", "an INTEGER of at least 0"),
    ("runs.num_steps", "an INTEGER in 0..=4294967295"),
    ("runs.max_score", "an INTEGER of at least 0"),
    ("runs.highest_tile", "an INTEGER in 0..=4294967295"),
    ("runs.engine", "NULL or a TEXT of at most 65535 bytes of UTF-8"),
    ("runs.start_time", "NULL or an INTEGER"),
    ("runs.elapsed_s", "NULL or a number"),
];

impl DatasetRun {
    fn of(row: &Row<'_>) -> DatasetRun {
        let mut values = Values { row, problem: None };
        let mut natural =
            |column: usize, most: i64| values.get(column, EXPECTED[column], |value| integer(value, 0..=most)) as u64;
        let first_step = natural(1, i64::MAX);
        let num_steps = natural(2, i64::from(u32::MAX)) as u32;
        let max_score = natural(3, i64::MAX);
        let highest_tile = natural(4, i64::from(u32::MAX)) as u32;
        let text = |value: ValueRef<'_>| match value {
            ValueRef::Text(text) if text.len() <= MAX_ENGINE_LEN => std::str::from_utf8(text).ok().map(str::to_owned),
            _ => None,
        };
        let engine = values.get(5, EXPECTED[5], |value| nullable(value, text)).filter(|name| !name.is_empty());
        // A start time is an unsigned number in two's complement.
        let any = |value| nullable(value, |value| integer(value, i64::MIN..=i64::MAX));
        let start_unix_s = values.get(6, EXPECTED[6], any).unwrap_or(0) as u64;
        let number = |value: ValueRef<'_>| match value {
            ValueRef::Real(seconds) => Some(seconds as f32),
            ValueRef::Integer(seconds) => Some(seconds as f32),
            _ => None,
        };
        let elapsed_s = values.get(7, EXPECTED[7], |value| nullable(value, number)).unwrap_or(0.0);
        values.get(0, EXPECTED[0], |value| integer(value, i64::MIN..=i64::MAX));
        let meta = RunMeta { start_unix_s, elapsed_s, max_score, highest_tile, engine, ..RunMeta::default() };
        DatasetRun { first_step, num_steps, meta, problem: values.problem }
    }
}
