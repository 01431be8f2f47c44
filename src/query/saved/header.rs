//! The header of a named query's file.

use super::saved_query::{SavedColumn, SavedParameter, SavedQuery};
use crate::error::{ErrorKind, Location, Result};
use datafusion::scalar::ScalarValue;
use std::path::Path;

/// Types of parameters.
const TYPES: [&str; 5] = ["bool", "int64", "uint64", "float64", "string"];

/// Parses a query's file.
pub(super) fn parse(name: &str, text: &str, path: Option<&Path>) -> Result<SavedQuery> {
    let mut query = SavedQuery {
        name: name.to_owned(),
        purpose: String::new(),
        parameters: Vec::new(),
        columns: Vec::new(),
        sql: text.to_owned(),
    };
    read(text, &mut query)
        .map_err(|HeaderError { line, expected, found }| {
            let path = path.map_or_else(|| format!("{name}.sql").into(), Path::to_path_buf);
            let location = Location { path: Some(path), ..Location::default() };
            let found = format!("line {line}: {found}");
            ErrorKind::Header { location, what: "header of a query", expected: expected.to_owned(), found }.into()
        })
        .map(|()| query)
}

/// Returns a file's text.
pub(super) fn text<'a>(bytes: &'a [u8], path: &Path) -> Result<&'a str> {
    std::str::from_utf8(bytes).map_err(|error| {
        let location = Location {
            path: Some(path.to_path_buf()),
            offset: Some(error.valid_up_to() as u64),
            ..Location::default()
        };
        let (expected, found) = ("UTF-8".to_owned(), error.to_string());
        ErrorKind::Header { location, what: "text of a query", expected, found }.into()
    })
}

/// Keyword arguments of calls, which parameters must not shadow.
const OPTIONS: [&str; 8] =
    ["folder", "tables", "memory_limit", "spill_limit", "spill_folder", "row_limit", "byte_limit", "time_limit"];

struct HeaderError {
    line: usize,
    expected: &'static str,
    found: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Section {
    Purpose,
    Parameters,
    Columns,
}

fn read(text: &str, query: &mut SavedQuery) -> Result<(), HeaderError> {
    let mut section = Section::Purpose;
    let mut num_lines = 0;
    // The indentation of an entry. Lines that are indented deeper continue it.
    let mut indent = None;
    for (i, line) in text.lines().enumerate() {
        let Some(comment) = line.strip_prefix("--") else { break };
        num_lines = i + 1;
        let wrong = |expected, found: &str| HeaderError { line: i + 1, expected, found: format!("{found:?}") };
        let (words, depth) = (comment.trim(), comment.len() - comment.trim_start().len());
        match (words, section) {
            ("", _) => {}
            ("Parameters:", Section::Purpose) => (section, indent) = (Section::Parameters, None),
            ("Columns:", Section::Purpose | Section::Parameters) => (section, indent) = (Section::Columns, None),
            (_, Section::Purpose) if words.ends_with(':') && !words.contains(' ') => {
                return Err(wrong("the sections `Parameters:` and `Columns:`", words));
            }
            (_, Section::Purpose) => append(&mut query.purpose, words),
            (_, section) if indent.is_some_and(|indent| depth > indent) => {
                let doc = match section {
                    Section::Parameters => query.parameters.last_mut().map(|parameter| &mut parameter.doc),
                    _ => query.columns.last_mut().map(|column| &mut column.doc),
                };
                if let Some(doc) = doc {
                    append(doc, words);
                }
            }
            (_, Section::Parameters) => {
                indent = Some(depth);
                let expected = "`name type [= default]: description` with type bool, int64, uint64, float64 or string";
                let parameter = parameter(words).ok_or_else(|| wrong(expected, words))?;
                if query.parameters.iter().any(|other| other.name == parameter.name) {
                    return Err(wrong("unique names", words));
                }
                if OPTIONS.contains(&parameter.name.as_str()) {
                    return Err(wrong("a name that is not an option of queries", words));
                }
                query.parameters.push(parameter);
            }
            (_, Section::Columns) => {
                indent = Some(depth);
                let column = column(words).ok_or_else(|| wrong("`name type: description`", words))?;
                if query.columns.iter().any(|other| other.name == column.name) {
                    return Err(wrong("unique names", words));
                }
                query.columns.push(column);
            }
        }
    }
    let missing =
        |expected| Err(HeaderError { line: num_lines + 1, expected, found: "the end of the header".to_owned() });
    if query.purpose.is_empty() {
        return missing("a line with the purpose");
    }
    if query.columns.is_empty() {
        return missing("`-- Columns:` and a line for each column");
    }
    Ok(())
}

fn append(text: &mut String, words: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(words);
}

/// Parses `name type [= default]: description`.
fn parameter(words: &str) -> Option<SavedParameter> {
    let (name, rest) = words.split_once(' ')?;
    let (dtype, rest) = rest.trim_start().split_at_checked(rest.trim_start().find([' ', ':', '='])?)?;
    let dtype = TYPES.into_iter().find(|known| *known == dtype)?;
    let rest = rest.trim_start();
    let (default, doc) = match rest.strip_prefix('=') {
        Some(rest) => {
            // A text may contain a colon, so the value ends where its JSON ends.
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<serde_json::Value>();
            let value = values.next()?.ok()?;
            let rest = rest.get(values.byte_offset()..)?;
            (Some(scalar(&value, dtype)?), rest.trim_start().strip_prefix(':')?)
        }
        None => (None, rest.strip_prefix(':')?),
    };
    let doc = doc.trim().to_owned();
    is_name(name).then(|| SavedParameter { name: name.to_owned(), dtype, default, doc })
}

/// Parses `name type: description`. A type may have spaces inside brackets.
fn column(words: &str) -> Option<SavedColumn> {
    let (name, rest) = words.split_once(' ')?;
    let mut depth = 0;
    let end = rest.find(|c| {
        depth += i32::from(c == '<') - i32::from(c == '>');
        c == ':' && depth == 0
    })?;
    let (dtype, doc) = (rest[..end].trim(), rest[end + 1..].trim());
    let is_whole = is_name(name) && !dtype.is_empty() && !doc.is_empty();
    is_whole.then(|| SavedColumn { name: name.to_owned(), dtype: dtype.to_owned(), doc: doc.to_owned() })
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

fn scalar(value: &serde_json::Value, dtype: &str) -> Option<ScalarValue> {
    if value.is_null() {
        return Some(match dtype {
            "bool" => ScalarValue::Boolean(None),
            "int64" => ScalarValue::Int64(None),
            "uint64" => ScalarValue::UInt64(None),
            "float64" => ScalarValue::Float64(None),
            _ => ScalarValue::Utf8(None),
        });
    }
    match dtype {
        "bool" => value.as_bool().map(ScalarValue::from),
        "int64" => value.as_i64().map(ScalarValue::from),
        "uint64" => value.as_u64().map(ScalarValue::from),
        "float64" => value.as_f64().map(ScalarValue::from),
        _ => value.as_str().map(ScalarValue::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "-- What it is\n-- for.\n--\n-- Parameters:\n--   min uint64 = 5: the least\n--     of all\n\
                         --   engine string = null: whose\n--   text string = \"a: b\": a text\n--   must float64: given\n\
                         -- Columns:\n--   run_id uint32: the run\n--   s struct<a: uint8, b: utf8>: both\nSELECT 1";

    #[test]
    fn a_complete_header_is_parsed() {
        let query = parse("name", WHOLE, None).unwrap();
        assert_eq!(query.purpose, "What it is for.");
        let found: Vec<_> = query.parameters.iter().map(|p| (&*p.name, p.dtype, p.default.clone(), &*p.doc)).collect();
        assert_eq!(
            found,
            [
                ("min", "uint64", Some(ScalarValue::UInt64(Some(5))), "the least of all"),
                ("engine", "string", Some(ScalarValue::Utf8(None)), "whose"),
                ("text", "string", Some(ScalarValue::from("a: b")), "a text"),
                ("must", "float64", None, "given"),
            ]
        );
        let found: Vec<_> = query.columns.iter().map(|c| (&*c.name, &*c.dtype, &*c.doc)).collect();
        assert_eq!(found, [("run_id", "uint32", "the run"), ("s", "struct<a: uint8, b: utf8>", "both")]);
        assert_eq!(query.sql, WHOLE);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line) in [
            ("SELECT 1", 1),
            ("-- For.\nSELECT 1", 2),
            ("-- For.\n-- Parameters:\n--   Min uint64: x\n-- Columns:\n--   a uint8: x", 3),
            ("-- For.\n-- Parameters:\n--   min number: x\n-- Columns:\n--   a uint8: x", 3),
            ("-- For.\n-- Parameters:\n--   min uint64 = -1: x\n-- Columns:\n--   a uint8: x", 3),
            ("-- For.\n-- Parameters:\n--   min uint64 = x: x\n-- Columns:\n--   a uint8: x", 3),
            ("-- For.\n-- Parameters:\n--   a bool: x\n--   a bool: y\n-- Columns:\n--   a uint8: x", 4),
            ("-- For.\n-- Columns:\n--   a\nSELECT 1", 3),
            ("-- For.\n-- Columns:\n--   a uint8: x\n--   a uint8: y\nSELECT 1", 4),
            ("-- For.\n-- Arguments:\n--   a uint8: x\nSELECT 1", 2),
            ("-- For.\n-- Columns:\nSELECT 1", 3),
        ] {
            let error = parse("name", text, Some(Path::new("folder/name.sql"))).unwrap_err().to_string();
            let expected = format!("line {line}: ");
            assert!(error.starts_with("folder/name.sql: ") && error.contains(&expected), "{text}: {error}");
        }
    }
}
