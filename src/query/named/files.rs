//! The files of named queries: the list of them, and the parser of their headers.

use super::saved_query::{SavedParameter, SavedQuery};
use arrow::datatypes::DataType;
use datafusion::scalar::ScalarValue;
use serde_json::Value;

macro_rules! shipped {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../queries/", $name, ".sql")))),*]
    };
}

/// The names and texts of the queries that are compiled into the crate. A test checks that the list has every query of
/// the folder `queries/`.
pub(super) const FILES: &[(&str, &str)] = shipped! {
    "archive_summary"
    "blunder_rate"
    "blunders"
    "calibration"
    "corner_occupancy"
    "critic_labels"
    "disagreements"
    "engine_agreement"
    "engine_leaderboard"
    "ev_gap_histogram"
    "ev_loss_histogram"
    "first_moves"
    "first_reach"
    "first_reach_sample"
    "hard_moves"
    "high_score"
    "length_histogram"
    "move_mix"
    "opening_book"
    "phase_mix"
    "policy_agreement"
    "position_moves"
    "position_next"
    "position_places"
    "repeated_positions"
    "run_lengths"
    "score_ecdf"
    "score_histogram"
    "spawn_check"
    "survivorship"
    "tile_first_steps"
    "tile_presence"
    "tile_reach"
    "tile_survival"
    "unique_positions"
};

/// Parses a query's file. Returns `None` for an invalid entry of the header; a test parses each file of the crate.
pub(super) fn parse(name: &str, text: &str) -> Option<SavedQuery> {
    let mut purpose = Vec::new();
    let mut parameters: Vec<SavedParameter> = Vec::new();
    let mut is_purpose = true;
    for comment in text.lines().map_while(|line| line.strip_prefix("--")) {
        let words = comment.trim();
        match words {
            "" => {}
            "Parameters:" => is_purpose = false,
            // Only people read the columns.
            "Columns:" => break,
            _ if is_purpose => purpose.push(words),
            // A deeper indentation continues the description of a parameter.
            _ if comment.starts_with("    ") => {
                let doc = &mut parameters.last_mut()?.doc;
                *doc = format!("{doc} {words}");
            }
            _ => parameters.push(parameter(words)?),
        }
    }
    Some(SavedQuery { name: name.to_owned(), purpose: purpose.join(" "), parameters, sql: text.to_owned() })
}

/// Parses `name type = default: description`.
fn parameter(words: &str) -> Option<SavedParameter> {
    let (name, rest) = words.split_once(' ')?;
    let (dtype, rest) = rest.split_once(' ')?;
    let (dtype, arrow) = match dtype {
        "bool" => ("bool", DataType::Boolean),
        "int64" => ("int64", DataType::Int64),
        "uint64" => ("uint64", DataType::UInt64),
        "float64" => ("float64", DataType::Float64),
        "string" => ("string", DataType::Utf8),
        _ => return None,
    };
    let rest = rest.strip_prefix('=')?;
    // A text may contain a colon, so the value ends where its JSON ends.
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
    let default = match values.next()?.ok()? {
        Value::Null => ScalarValue::try_new_null(&arrow).ok()?,
        Value::String(text) => ScalarValue::try_from_string(text, &arrow).ok()?,
        value => ScalarValue::try_from_string(value.to_string(), &arrow).ok()?,
    };
    let doc = rest.get(values.byte_offset()..)?.strip_prefix(':')?.trim().to_owned();
    Some(SavedParameter { name: name.to_owned(), dtype, default, doc })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const WHOLE: &str = "-- What it is\n-- for.\n--\n-- Parameters:\n--   min uint64 = 5: the least\n--     of all\n\
                         --   engine string = null: whose\n--   text string = \"a: b\": a text\n\
                         -- Columns:\n--   run_id uint32: the run\n--   s struct<a: uint8, b: utf8>: both\nSELECT 1";

    #[test]
    fn a_complete_header_is_parsed() {
        let query = parse("name", WHOLE).unwrap();
        assert_eq!(query.purpose, "What it is for.");
        let found: Vec<_> = query.parameters.iter().map(|p| (&*p.name, p.dtype, p.default.clone(), &*p.doc)).collect();
        assert_eq!(
            found,
            [
                ("min", "uint64", ScalarValue::UInt64(Some(5)), "the least of all"),
                ("engine", "string", ScalarValue::Utf8(None), "whose"),
                ("text", "string", ScalarValue::from("a: b"), "a text"),
            ]
        );
        assert_eq!(query.sql, WHOLE);
    }

    #[test]
    fn invalid_entries_are_rejected() {
        for text in [
            "-- For.\n-- Parameters:\n--   min number: x",
            "-- For.\n-- Parameters:\n--   min uint64 = -1: x",
            "-- For.\n-- Parameters:\n--   min uint64 = x: x",
            "-- For.\n-- Parameters:\n--   min uint64: x",
        ] {
            assert_eq!(parse("name", text), None, "{text}");
        }
    }

    #[test]
    fn the_headers_of_the_crate_are_valid() {
        // Parameters must not shadow the keyword arguments of calls.
        let options = ["memory_limit", "spill_limit", "spill_folder", "row_limit", "byte_limit", "time_limit"];
        for (name, text) in FILES {
            let query = parse(name, text).unwrap_or_else(|| panic!("{name}"));
            assert!(!query.purpose.is_empty(), "{name}");
            let is_name = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            let mut parameters = HashSet::from(options);
            assert!(query.parameters.iter().all(|p| is_name(&p.name) && parameters.insert(&p.name)), "{name}");
        }
    }
}
