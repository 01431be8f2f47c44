//! The table of runs in `metadata.db`.

use crate::error::{Error, ErrorKind, Location, Result};
use crate::format::shards::header_error;
use crate::format::sqlite::{Database, Found};
use crate::run::RunMeta;
use rusqlite::types::ValueRef;
use std::collections::HashMap;
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

const COLUMNS: [&str; 8] =
    ["id", "first_step_idx", "num_steps", "max_score", "highest_tile", "engine", "start_time", "elapsed_s"];
const SELECT: &str = "SELECT id, first_step_idx, num_steps, max_score, highest_tile, engine, start_time, elapsed_s \
                      FROM runs ORDER BY id";
pub(super) const INSERT: &str = "INSERT INTO runs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

/// The maximum length of an engine name in bytes, as in every other format.
pub(super) const MAX_ENGINE_LEN: usize = 65_535;
/// The maximum number of names that are stored once and shared.
const MAX_SHARED_NAMES: usize = 1 << 10;

/// The runs in `metadata.db`, in the order of their ids.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    records: Vec<DatasetRun>,
    /// The concatenated names of engines.
    names: String,
}

/// The metadata of a run in compact form, hardly larger than its row in the table.
#[derive(Clone, Copy, Debug, Default)]
struct DatasetRun {
    id: i64,
    first_step: u64,
    max_score: u64,
    start_time: u64,
    /// The offset of the engine's name in `names`.
    name: u64,
    num_steps: u32,
    highest_tile: u32,
    elapsed_s: f32,
    name_len: u16,
    /// The first column with an invalid value, and the type of that value, whose number is in `first_step`. 0 = all
    /// columns are valid.
    bad: u8,
    found: Found,
}

impl Metadata {
    pub(super) fn read(path: &Path) -> Result<Metadata> {
        let database = Database::open(path)?;
        let metadata = Metadata::read_from(&database)?;
        database.finish_reading()?;
        Ok(metadata)
    }

    pub(super) fn read_from(database: &Database) -> Result<Metadata> {
        database.check_table("runs", &COLUMNS, true)?;
        let mut metadata = Metadata::default();
        // `quick_check` has visited every row, so this count can be trusted.
        metadata.records.reserve_exact(database.num_rows("runs")?);
        let mut shared: HashMap<String, (u64, u16)> = HashMap::new();
        database.each(SELECT, [], |row| {
            let values = std::array::from_fn(|column| row.get_ref(column).unwrap_or(ValueRef::Null));
            let record = DatasetRun::of(&values, |name| match shared.get(name) {
                Some(&place) => place,
                None => {
                    let place = (metadata.names.len() as u64, name.len() as u16);
                    metadata.names.push_str(name);
                    if shared.len() < MAX_SHARED_NAMES {
                        shared.insert(name.to_owned(), place);
                    }
                    place
                }
            });
            metadata.records.push(record);
            Ok(())
        })?;
        Ok(metadata)
    }

    pub(super) fn num_runs(&self) -> usize {
        self.records.len()
    }

    pub(super) fn last_id(&self) -> Option<i64> {
        self.records.last().map(|record| record.id)
    }

    pub(super) fn id(&self, index: usize) -> Option<i64> {
        self.records.get(index).map(|record| record.id)
    }

    /// Returns the first row of a run and the number of its rows, or `None` if its metadata is damaged.
    pub(super) fn rows(&self, index: usize) -> Option<(u64, u64)> {
        let record = self.records.get(index).filter(|record| record.bad == 0)?;
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
        let Some(record) = self.records.get(index) else {
            return Err(ErrorKind::IndexOutOfBounds { index: index as i128, len: self.records.len() as u64 }.into());
        };
        if record.bad != 0 {
            let (what, expected) = EXPECTED.get(usize::from(record.bad)).copied().unwrap_or(EXPECTED[0]);
            return Err(damaged(index, what, expected, Found::shown((record.found, record.first_step))));
        }
        let name = self.names.get(record.name as usize..).and_then(|rest| rest.get(..usize::from(record.name_len)));
        let meta = RunMeta {
            start_unix_s: record.start_time,
            elapsed_s: record.elapsed_s,
            max_score: record.max_score,
            highest_tile: record.highest_tile,
            engine: name.filter(|name| !name.is_empty()).map(str::to_owned),
            ..RunMeta::default()
        };
        Ok((meta, record.first_step, u64::from(record.num_steps)))
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

/// Returns an error about a run's metadata in `metadata.db`.
pub(super) fn damaged(index: usize, what: &'static str, expected: impl Into<String>, found: String) -> Error {
    let location = Location { run: Some(index as u64), ..Location::default() };
    ErrorKind::Decode { location, what, expected: expected.into(), found }.into()
}

impl DatasetRun {
    fn of(values: &[ValueRef<'_>; 8], mut place: impl FnMut(&str) -> (u64, u16)) -> DatasetRun {
        let mut record = DatasetRun::default();
        let mut bad = |column: u8, value: &ValueRef<'_>| {
            if record.bad == 0 {
                record.bad = column;
                (record.found, record.first_step) = Found::of(value);
            }
        };
        let mut natural = |column: u8, most: i64| match &values[usize::from(column)] {
            &ValueRef::Integer(value) if (0..=most).contains(&value) => value as u64,
            // Only the start time may be NULL or negative. It is an unsigned number in two's complement.
            ValueRef::Null if column == 6 => 0,
            &ValueRef::Integer(value) if column == 6 => value as u64,
            other => {
                bad(column, other);
                0
            }
        };
        let first_step = natural(1, i64::MAX);
        let num_steps = natural(2, i64::from(u32::MAX)) as u32;
        let max_score = natural(3, i64::MAX);
        let highest_tile = natural(4, i64::from(u32::MAX)) as u32;
        let start_time = natural(6, i64::MAX);
        let (name, name_len) = match &values[5] {
            ValueRef::Null => (0, 0),
            ValueRef::Text(text) if text.len() <= MAX_ENGINE_LEN => match std::str::from_utf8(text) {
                Ok(text) => place(text),
                Err(_) => {
                    bad(5, &values[5]);
                    (0, 0)
                }
            },
            other => {
                bad(5, other);
                (0, 0)
            }
        };
        let elapsed_s = match &values[7] {
            ValueRef::Null => 0.0,
            &ValueRef::Real(seconds) => seconds as f32,
            &ValueRef::Integer(seconds) => seconds as f32,
            other => {
                bad(7, other);
                0.0
            }
        };
        let id = if let ValueRef::Integer(id) = values[0] { id } else { 0 };
        DatasetRun {
            id,
            first_step: if record.bad == 0 { first_step } else { record.first_step },
            max_score,
            start_time,
            name,
            num_steps,
            highest_tile,
            elapsed_s,
            name_len,
            ..record
        }
    }
}
