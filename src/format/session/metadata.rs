//! The tables in a session's `metadata.db`.

use crate::error::{Error, Result};
use crate::format::files::mapped::header_error;
use crate::format::files::sqlite::{Database, InvalidValue, Values, integer, nullable, text};
use rusqlite::types::ValueRef;
use serde_json::Value;
use std::path::Path;

/// The stored seed of a run whose seed is unknown. An existing Rust reader of sessions rejects NULL.
const UNKNOWN_SEED: i64 = -1;

/// Returns the seed as `runs.seed` stores it.
///
/// # Errors
/// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for the seed that stands for an unknown one.
pub(in crate::format) fn stored_seed(seed: Option<u64>) -> Result<i64> {
    match seed.map_or(UNKNOWN_SEED, |seed| seed as i64) {
        UNKNOWN_SEED if seed.is_some() => {
            Err(Error::argument("seed", "at most 18446744073709551614 in a session", u64::MAX))
        }
        stored => Ok(stored),
    }
}

/// The metadata of a run in `metadata.db`.
#[derive(Clone, Debug)]
pub(crate) struct SessionRun {
    pub(crate) id: i64,
    pub(crate) seed: Option<u64>,
    pub(crate) max_score: u64,
    pub(crate) num_steps: Option<u32>,
    pub(crate) highest_tile: u32,
    /// The first invalid value. The fields are then defaults.
    pub(in crate::format) problem: Option<Box<InvalidValue>>,
}

const SELECT: &str = "SELECT id, seed, steps, max_score, highest_tile FROM runs ORDER BY id";
const SELECT_SESSION: &str = "SELECT meta_value FROM session WHERE meta_key = ?1";

/// The name and the valid values of each column.
const EXPECTED: [(&str, &str); 5] = [
    ("runs.id", "an INTEGER"),
    ("runs.seed", "NULL or an INTEGER"),
    ("runs.steps", "NULL or an INTEGER in 0..=4294967295"),
    ("runs.max_score", "NULL or an INTEGER of at least 0"),
    ("runs.highest_tile", "NULL or an INTEGER in 0..=4294967295"),
];

/// The maximum length of a text that is parsed as JSON, in bytes. Parsed JSON takes up to a hundred times as much
/// memory.
const MAX_JSON_LEN: usize = 1 << 16;

/// Reads the runs of a `metadata.db`. An invalid value is an error.
pub(in crate::format) fn runs_in(path: &Path) -> Result<Vec<SessionRun>> {
    let database = Database::open(path)?;
    let runs = read_runs(&database)?;
    match runs.iter().find_map(|run| Some((run.id, run.problem.as_deref()?))) {
        None => Ok(runs),
        Some((id, InvalidValue { what, expected, found })) => {
            Err(header_error(what, *expected, format!("{found} in run {id}"), path))
        }
    }
}

pub(in crate::format) fn read_runs(database: &Database) -> Result<Vec<SessionRun>> {
    let mut runs = Vec::new();
    database.each(SELECT, [], |row| {
        let mut values = Values { row, problem: None };
        let mut get = |column: usize, least: i64, most: i64| {
            let valid = |value| nullable(value, |value| integer(value, least..=most));
            values.get(column, EXPECTED[column], valid)
        };
        let id = get(0, i64::MIN, i64::MAX).unwrap_or(0);
        let seed = get(1, i64::MIN, i64::MAX).filter(|&seed| seed != UNKNOWN_SEED).map(|seed| seed as u64);
        let num_steps = get(2, 0, i64::from(u32::MAX)).map(|steps| steps as u32);
        let max_score = get(3, 0, i64::MAX).unwrap_or(0) as u64;
        let highest_tile = get(4, 0, i64::from(u32::MAX)).unwrap_or(0) as u32;
        runs.push(SessionRun { id, seed, max_score, num_steps, highest_tile, problem: values.problem });
        Ok(())
    })?;
    if let Some(pair) = runs.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(database.error("runs.id", "unique ids", format!("{} twice", pair[0].id)));
    }
    Ok(runs)
}

/// Reads an entry of the table `session`. Returns `None` if the table lacks it, or if its value is not JSON.
pub(super) fn read_entry(database: &Database, key: &str) -> Result<Option<Value>> {
    let mut entry = None;
    database.each(SELECT_SESSION, [key], |row| {
        entry = match row.get_ref(0) {
            Ok(ValueRef::Integer(value)) => Some(value.into()),
            _ => {
                text(row, 0).filter(|text| text.len() <= MAX_JSON_LEN).and_then(|text| serde_json::from_str(text).ok())
            }
        };
        Ok(())
    })?;
    Ok(entry)
}
