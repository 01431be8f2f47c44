//! Reading and writing of NumPy headers.
//!
//! ```text
//!  0           6         8          10 | 12
//!  | \x93NUMPY | version | text_len | text, padded with spaces, ended by a newline | rows …
//!  | 6         | u8 × 2  | u16, from version 2 on u32
//! ```
//!
//! The text of a header is a Python dict of `descr`, `fortran_order` and `shape`. The format is NumPy's NEP 1:
//! versions 1.0 and 2.0 in Latin-1, version 3.0 in UTF-8. The parser accepts strings, integers, booleans, lists,
//! tuples and dicts.
//!
//! Supported arrays are one-dimensional arrays of fixed-size records, two-dimensional arrays of numbers, and
//! three-dimensional ones with a dimension for the four moves. All others are rejected, in particular objects, because
//! they are pickles.

#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use crate::format::files::bytes::ByteReader;
use serde_json::Value;
use std::borrow::Cow;
use std::fs::File;
use std::io::{Read, Seek};

pub(in crate::format) const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// NumPy aligns the first row to a multiple of this many bytes.
const ALIGN: usize = 64;
/// The number of digits that NumPy reserves for the number of rows.
const ROWS_DIGITS: usize = 21;
/// NumPy itself rejects longer texts.
const MAX_TEXT: usize = 10_000;
/// The maximum row size in bytes.
pub(crate) const MAX_STRIDE: usize = 1 << 20;

/// The parsed header of an array of records.
#[derive(Debug)]
pub(crate) struct NpyHeader {
    /// The offset of the first row.
    pub(crate) len: u64,
    pub(crate) num_rows: u64,
    pub(crate) stride: usize,
    pub(crate) fields: Vec<NpyField>,
}

/// The parsed header of a two-dimensional array of numbers.
#[derive(Debug)]
pub(crate) struct NpyMatrix {
    /// The offset of the first row.
    pub(crate) len: u64,
    pub(crate) num_rows: u64,
    pub(crate) values_per_row: u64,
    /// NumPy's name of the type, such as `"<u2"`.
    pub(crate) dtype: String,
}

/// A field of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NpyField {
    pub(crate) name: String,
    /// NumPy's name of the type, such as `"<u4"`.
    pub(crate) dtype: String,
    pub(crate) values: usize,
    pub(crate) offset: usize,
}

/// Returns the header of an array of records. The bytes equal NumPy's own, unless `min_len` demands more padding. The
/// length does not depend on the number of rows. Fields must be in the order of their offsets. Gaps between them, and
/// the rest of the stride, are padding.
pub(crate) fn header(fields: &[NpyField], stride: usize, num_rows: u64, min_len: usize) -> Result<Vec<u8>> {
    let (mut descr, mut end) = (Vec::with_capacity(fields.len() + 1), 0);
    let padding = |from: usize, to: usize| (from < to).then(|| format!("('', '|V{}')", to - from));
    for field in fields {
        descr.extend(padding(end, field.offset));
        let quoted = field.name.replace('\\', "\\\\").replace('\'', "\\'");
        let shape = if field.values > 1 { format!(", ({},)", field.values) } else { String::new() };
        descr.push(format!("('{quoted}', '{}'{shape})", field.dtype));
        end = field.offset + field.num_bytes().unwrap_or(0);
    }
    descr.extend(padding(end, stride));
    let shape = num_rows.to_string();
    let text = format!("{{'descr': [{}], 'fortran_order': False, 'shape': ({shape},), }}", descr.join(", "));
    // NumPy reserves this many digits for the number of rows, and pads with at least one space.
    let room = text.len() + ROWS_DIGITS - shape.len();
    let len = (10 + room + 1 + 1).next_multiple_of(ALIGN).max(min_len);
    let text_len = len - 10;
    if text_len > MAX_TEXT || !text.chars().all(|c| c.is_ascii() && !c.is_control()) {
        let expected = format!("ASCII names that fit NumPy's header of {MAX_TEXT} bytes");
        return Err(Error::argument("extra", expected, format!("{} bytes", text.len())));
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend((text_len as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.resize(len - 1, b' ');
    bytes.push(b'\n');
    Ok(bytes)
}

impl NpyHeader {
    /// Returns the fields and the size of a row, for a message.
    pub(in crate::format) fn shown(&self) -> String {
        format!("{}, {} bytes in all", NpyField::shown(&self.fields), self.stride)
    }

    /// Reads the header of a file.
    pub(crate) fn read(file: &File) -> Result<NpyHeader> {
        NpyHeader::parse(&start_of(file)?)
    }

    /// Parses the header at the start of a file's bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Result<NpyHeader> {
        let ((num_rows, fields, stride), len) = parse_start(bytes, parse_records)?;
        Ok(NpyHeader { len, num_rows, stride, fields })
    }

    /// Checks that the file ends with the last row.
    pub(crate) fn check_file_len(&self, file_len: u64) -> Result<()> {
        check_file_len(self.len, self.num_rows, self.stride as u64, file_len)
    }
}

impl NpyMatrix {
    /// Reads the header of a file.
    pub(crate) fn read(file: &File) -> Result<NpyMatrix> {
        NpyMatrix::parse(&start_of(file)?, false)
    }

    /// Parses the header at the start of a file's bytes. With `per_move`, the array has the shape (rows, 4, n), and a
    /// row has 4 × n values.
    pub(in crate::format) fn parse(bytes: &[u8], per_move: bool) -> Result<NpyMatrix> {
        let ((num_rows, values_per_row, dtype), len) = parse_start(bytes, |text| parse_matrix(text, per_move))?;
        Ok(NpyMatrix { len, num_rows, values_per_row, dtype })
    }

    /// Checks that the file ends with the last row of `stride` bytes.
    pub(crate) fn check_file_len(&self, stride: u64, file_len: u64) -> Result<()> {
        check_file_len(self.len, self.num_rows, stride, file_len)
    }
}

fn check_file_len(start: u64, num_rows: u64, stride: u64, file_len: u64) -> Result<()> {
    let end = num_rows.checked_mul(stride).and_then(|len| len.checked_add(start));
    if end == Some(file_len) {
        return Ok(());
    }
    let expected = match end {
        Some(end) => format!("{end} bytes, the end of {num_rows} rows of {stride} bytes"),
        None => format!("fewer than {num_rows} rows of {stride} bytes"),
    };
    Err(Error::decode(start, "length of the file", expected, format_args!("{file_len} bytes")))
}

/// Reads the maximum length of a header from the start of a file.
fn start_of(mut file: &File) -> Result<Vec<u8>> {
    let mut start = Vec::new();
    file.rewind()?;
    file.take(12 + MAX_TEXT as u64).read_to_end(&mut start)?;
    file.rewind()?;
    Ok(start)
}

/// Parses a header with `parse` for its text. Returns the result and the offset of the first row.
fn parse_start<T>(bytes: &[u8], parse: impl Fn(&str) -> Result<T, Malformed>) -> Result<(T, u64)> {
    let mut reader = ByteReader::new(bytes);
    let magic = reader.array::<6>("NumPy's magic")?;
    if magic != *MAGIC {
        return Err(reader.error(6, "NumPy's magic", "\\x93NUMPY", format_args!("{}", magic.escape_ascii())));
    }
    let [version, _] = reader.array("NumPy's format version")?;
    let text_len = match version {
        1 => usize::from(reader.u16("length of NumPy's header")?),
        2 | 3 => reader.u32("length of NumPy's header")? as usize,
        _ => return Err(reader.error(2, "NumPy's format version", "1, 2 or 3", version)),
    };
    if text_len > MAX_TEXT {
        let back = if version == 1 { 2 } else { 4 };
        return Err(reader.error(back, "length of NumPy's header", format!("at most {MAX_TEXT}"), text_len));
    }
    let text: Cow<'_, str> = match version {
        3 => reader.utf8(text_len, "NumPy's header")?.into(),
        // In Latin-1, each byte equals the code point of its character.
        _ => reader.take(text_len, "NumPy's header")?.iter().copied().map(char::from).collect(),
    };
    let parsed =
        parse(&text).map_err(|Malformed { what, expected, found }| reader.error(text_len, what, expected, found))?;
    Ok((parsed, reader.offset() as u64))
}

impl NpyField {
    /// Returns fields for a message.
    pub(crate) fn shown(fields: &[NpyField]) -> String {
        let field = |field: &NpyField| format!("{} {}×{}", field.name, field.values, field.dtype);
        fields.iter().map(field).collect::<Vec<_>>().join(", ")
    }

    /// Returns the fields of rows without gaps from the name, type and number of values of each.
    pub(in crate::format) fn packed(fields: &[(&str, &str, usize)]) -> Vec<NpyField> {
        let mut offset = 0;
        let next = |&(name, dtype, values): &(&str, &str, usize)| {
            let field = NpyField { name: name.to_owned(), dtype: dtype.to_owned(), values, offset };
            offset += field.num_bytes().unwrap_or(0);
            field
        };
        fields.iter().map(next).collect()
    }

    /// Returns the size of the field, or `None` for a type without a fixed size, such as objects.
    pub(in crate::format) fn num_bytes(&self) -> Option<usize> {
        // NumPy counts text in characters of four bytes.
        let unit = if self.dtype.get(1..2)? == "U" { 4 } else { 1 };
        self.dtype.get(2..)?.parse::<usize>().ok()?.checked_mul(unit)?.checked_mul(self.values)
    }
}

/// An error in a header's text.
struct Malformed {
    what: &'static str,
    expected: &'static str,
    found: String,
}

fn malformed<T>(what: &'static str, expected: &'static str, found: impl Into<String>) -> Result<T, Malformed> {
    Err(Malformed { what, expected, found: found.into() })
}

/// Parses the type and shape of an array in C order.
fn parse_text(text: &str) -> Result<(Value, Vec<Value>), Malformed> {
    let Some(Value::Object(mut entries)) = parse_literal(text.trim_ascii()) else {
        let found: String = text.trim_ascii().chars().take(200).collect();
        return malformed("NumPy's header", "a dict of descr, fortran_order and shape", found);
    };
    match entries.get("fortran_order") {
        Some(Value::Bool(false)) => {}
        Some(Value::Bool(true)) => return malformed("fortran_order", "False", "True"),
        _ => return malformed("fortran_order", "False", "none"),
    }
    let Some(Value::Array(shape)) = entries.remove("shape") else {
        return malformed("shape", "a tuple of integers", "none");
    };
    match entries.remove("descr") {
        Some(descr) => Ok((descr, shape)),
        None => malformed("descr", "a type", "none"),
    }
}

/// Returns the integers of a shape, or `None` if it has other values.
fn sizes(shape: &[Value]) -> Option<Vec<u64>> {
    shape.iter().map(Value::as_u64).collect()
}

/// Parses the number of rows, the values per row, and their type.
fn parse_matrix(text: &str, per_move: bool) -> Result<(u64, u64, String), Malformed> {
    let (descr, shape) = parse_text(text)?;
    let sizes = match sizes(&shape).as_deref() {
        Some(&[num_rows, values]) if !per_move => Some((num_rows, values)),
        Some(&[num_rows, 4, values]) if per_move => values.checked_mul(4).map(|values| (num_rows, values)),
        _ => None,
    };
    match (sizes, descr) {
        (Some((num_rows, values_per_row)), Value::String(dtype)) => Ok((num_rows, values_per_row, dtype)),
        (Some(_), _) => malformed("descr", "one type of numbers", "fields"),
        (None, _) => {
            let expected = if per_move { "(rows, 4, values)" } else { "two dimensions" };
            malformed("shape", expected, format!("{} values", shape.len()))
        }
    }
}

/// Parses the number of rows, the fields, and the row size.
fn parse_records(text: &str) -> Result<(u64, Vec<NpyField>, usize), Malformed> {
    let (descr, shape) = parse_text(text)?;
    let Some(&[num_rows]) = sizes(&shape).as_deref() else {
        return malformed("shape", "one dimension", format!("{} values", shape.len()));
    };
    let descr = match descr {
        Value::Array(descr) => descr,
        Value::String(dtype) => return malformed("descr", "fields by name", format!("an array of {dtype}")),
        _ => return malformed("descr", "fields by name", "none"),
    };
    let (mut fields, mut stride): (Vec<NpyField>, usize) = (Vec::new(), 0);
    for field in &descr {
        let (name, dtype, values) = match field.as_array().map_or(&[][..], Vec::as_slice) {
            [Value::String(name), Value::String(dtype)] => (name, dtype, Some(1)),
            [Value::String(name), Value::String(dtype), Value::Array(shape)] => match sizes(shape).as_deref() {
                Some(&[values]) => (name, dtype, usize::try_from(values).ok()),
                _ => {
                    let found = format!("{} dimensions of {name}", shape.len());
                    return malformed("shape of a field", "one dimension", found);
                }
            },
            _ => return malformed("descr", "a name, a type and an optional shape per field", field.to_string()),
        };
        let field = NpyField {
            name: name.clone(),
            dtype: dtype_of(dtype),
            values: values.unwrap_or(usize::MAX),
            offset: stride,
        };
        let end = field.num_bytes().and_then(|len| stride.checked_add(len)).filter(|&end| end < MAX_STRIDE);
        let Some(end) = end else {
            return malformed("type of a field", "a type of fixed and small size", format!("{name}: {dtype}"));
        };
        stride = end;
        // A field without a name is padding.
        if !field.name.is_empty() {
            if fields.iter().any(|other| other.name == field.name) {
                return malformed("name of a field", "unique names", field.name);
            }
            fields.push(field);
        }
    }
    if stride == 0 {
        return malformed("descr", "fields of at least a byte", "none");
    }
    Ok((num_rows, fields, stride))
}

/// Returns the name of a type as NumPy writes it. Some writers give types of one byte a byte order.
fn dtype_of(dtype: &str) -> String {
    match dtype.strip_prefix(['<', '>', '=']) {
        Some(kind @ ("u1" | "i1" | "b1")) => format!("|{kind}"),
        _ => dtype.to_owned(),
    }
}

/// The deepest value of a header is in four brackets: a field's shape is a tuple in a tuple in a list in a dict.
const MAX_DEPTH: usize = 4;

/// Parses a Python literal of dicts, lists, tuples, strings, integers and booleans, by translation to JSON.
fn parse_literal(text: &str) -> Option<Value> {
    let (mut json, mut open, mut chars) = (String::with_capacity(text.len()), Vec::new(), text.chars());
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => json += &Value::String(parse_string(&mut chars, c)?).to_string(),
            '[' | '(' | '{' if open.len() < MAX_DEPTH => {
                open.push(c);
                json.push(if c == '(' { '[' } else { c });
            }
            ']' | ')' | '}' if matches!((open.pop()?, c), ('[', ']') | ('(', ')') | ('{', '}')) => {
                // JSON has no comma after the last value.
                let values = json.trim_end();
                json.truncate(values.strip_suffix(',').unwrap_or(values).len());
                json.push(if c == ')' { ']' } else { c });
            }
            'T' | 'F' => {
                let word = if c == 'T' { "true" } else { "false" };
                if !word[1..].chars().all(|letter| chars.next() == Some(letter)) {
                    return None;
                }
                json += word;
            }
            '0'..='9' | ',' | ':' => json.push(c),
            c if c.is_ascii_whitespace() => json.push(c),
            _ => return None,
        }
    }
    serde_json::from_str(&json).ok()
}

/// Parses a Python string up to its closing quote.
fn parse_string(chars: &mut std::str::Chars<'_>, quote: char) -> Option<String> {
    let mut text = String::new();
    loop {
        match chars.next()? {
            // Python also escapes unprintable characters. A name with them is rejected.
            '\\' => text.push(chars.next().filter(|escaped| matches!(escaped, '\\' | '\'' | '"'))?),
            c if c == quote => return Some(text),
            c => text.push(c),
        }
    }
}
