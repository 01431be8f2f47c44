//! NumPy's header of a structured array, written and read.
//!
//! ```text
//!  0           6         8          10 | 12
//!  | \x93NUMPY | version | text_len | text, padded with spaces, ended by a newline | rows …
//!  | 6         | u8 × 2  | u16, from version 2 on u32
//! ```
//!
//! The text is a Python dict of `descr`, `fortran_order` and `shape`; the format is NumPy's NEP 1, versions 1.0 to 3.0. Of
//! Python only what such a dict can hold is understood: strings, integers, booleans, lists, tuples. Arrays of anything but
//! records of fixed size in one dimension are refused, objects above all: they are pickles.

use super::bytes::ByteReader;
use crate::error::{Error, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;

pub(super) const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Rows begin at a multiple of this many bytes, as NumPy writes them.
const ALIGN: usize = 64;
/// NumPy itself refuses longer texts.
const MAX_TEXT: usize = 10_000;
/// Larger rows are no steps.
const MAX_STRIDE: usize = 1 << 20;

/// A header as it was read.
#[derive(Debug)]
pub(crate) struct NpyHeader {
    /// Where the rows begin.
    pub(crate) len: u64,
    pub(crate) num_rows: u64,
    pub(crate) stride: usize,
    pub(crate) fields: Vec<NpyField>,
}

/// A field of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NpyField {
    pub(crate) name: String,
    /// NumPy's name of the type, `"<u4"` for example.
    pub(crate) dtype: String,
    pub(crate) values: usize,
    pub(crate) offset: usize,
}

/// The header of an array of rows, of `min_len` bytes at least. The fields are in the order of their offsets, without
/// gaps; what the stride has beyond them is padding.
pub(crate) fn header(fields: &[NpyField], stride: usize, num_rows: u64, min_len: usize) -> Result<Vec<u8>> {
    let mut text = String::from("{'descr': [");
    let mut end = 0;
    for field in fields {
        let quoted = field.name.replace('\\', "\\\\").replace('\'', "\\'");
        let shape = if field.values > 1 { format!(", ({},)", field.values) } else { String::new() };
        text += &format!("('{quoted}', '{}'{shape}), ", field.dtype);
        end = field.offset + field.num_bytes().unwrap_or(0);
    }
    if stride > end {
        text += &format!("('', '|V{}'), ", stride - end);
    }
    text += &format!("], 'fortran_order': False, 'shape': ({num_rows},), }}");
    let len = (10 + text.len() + 1).next_multiple_of(ALIGN).max(min_len);
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
    /// Whether its rows have these fields without gaps, and nothing else.
    pub(crate) fn has_fields(&self, fields: &[(&str, &str, usize)]) -> bool {
        let fields = NpyField::packed(fields);
        let stride = fields.last().and_then(|last| last.num_bytes()?.checked_add(last.offset));
        self.fields == fields && Some(self.stride) == stride
    }

    /// Reads the header of a file.
    pub(crate) fn read(file: &File) -> Result<NpyHeader> {
        let mut start = vec![0; 12 + MAX_TEXT];
        let mut len = 0;
        while let Some(rest) = start.get_mut(len..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, len as u64) {
                Ok(0) => break,
                Ok(read) => len += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        start.truncate(len);
        NpyHeader::parse(&start)
    }

    /// Reads the header at the beginning of a file's bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Result<NpyHeader> {
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
        let text = reader.utf8(text_len, "NumPy's header")?;
        let (num_rows, fields, stride) = parse_text(text)
            .map_err(|Malformed { what, expected, found }| reader.error(text_len, what, expected, found))?;
        Ok(NpyHeader { len: reader.offset() as u64, num_rows, stride, fields })
    }

    /// Refuses a file that the rows do not end with.
    pub(super) fn check_file_len(&self, file_len: u64) -> Result<()> {
        let end = self.num_rows.checked_mul(self.stride as u64).and_then(|len| len.checked_add(self.len));
        if end == Some(file_len) {
            return Ok(());
        }
        let expected = match end {
            Some(end) => format!("{end} bytes, as {} rows of {} end there", self.num_rows, self.stride),
            None => format!("fewer than {} rows of {} bytes", self.num_rows, self.stride),
        };
        Err(Error::decode(self.len, "length of the file", expected, format_args!("{file_len} bytes")))
    }
}

impl NpyField {
    /// The fields of rows that have no gaps, of the name, type and number of values of each.
    pub(super) fn packed(fields: &[(&str, &str, usize)]) -> Vec<NpyField> {
        let mut offset = 0;
        let next = |&(name, dtype, values): &(&str, &str, usize)| {
            let field = NpyField { name: name.to_owned(), dtype: dtype.to_owned(), values, offset };
            offset += field.num_bytes().unwrap_or(0);
            field
        };
        fields.iter().map(next).collect()
    }

    /// Of types of fixed size only; objects have none.
    fn num_bytes(&self) -> Option<usize> {
        // NumPy counts text in characters, of four bytes each.
        let unit = if self.dtype.get(1..2)? == "U" { 4 } else { 1 };
        self.dtype.get(2..)?.parse::<usize>().ok()?.checked_mul(unit)?.checked_mul(self.values)
    }
}

/// What is wrong with a header's text.
struct Malformed {
    what: &'static str,
    expected: &'static str,
    found: String,
}

fn malformed<T>(what: &'static str, expected: &'static str, found: impl Into<String>) -> Result<T, Malformed> {
    Err(Malformed { what, expected, found: found.into() })
}

fn parse_text(text: &str) -> Result<(u64, Vec<NpyField>, usize), Malformed> {
    let mut parser = Parser { rest: text.trim() };
    let entries = match parser.value(0) {
        Some(Literal::Dict(entries)) if parser.rest.is_empty() => entries,
        _ => {
            let found: String = text.trim().chars().take(200).collect();
            return malformed("NumPy's header", "a dict of descr, fortran_order and shape", found);
        }
    };
    let get = |key: &str| entries.iter().find(|(name, _)| name == key).map(|(_, value)| value);
    match get("fortran_order") {
        Some(Literal::Bool(false)) => {}
        Some(Literal::Bool(true)) => return malformed("fortran_order", "False", "True"),
        _ => return malformed("fortran_order", "False", "none"),
    }
    let num_rows = match get("shape") {
        Some(Literal::List(shape)) => match shape[..] {
            [Literal::Int(num_rows)] => num_rows,
            _ => return malformed("shape", "one dimension", format!("{} values", shape.len())),
        },
        _ => return malformed("shape", "one dimension", "none"),
    };
    let descr = match get("descr") {
        Some(Literal::List(descr)) => descr,
        Some(Literal::Text(dtype)) => return malformed("descr", "fields by name", format!("an array of {dtype}")),
        _ => return malformed("descr", "fields by name", "none"),
    };
    let (mut fields, mut stride): (Vec<NpyField>, usize) = (Vec::new(), 0);
    for field in descr {
        let parts = if let Literal::List(parts) = field { &parts[..] } else { &[] };
        let (name, dtype, values) = match parts {
            [Literal::Text(name), Literal::Text(dtype)] => (name, dtype, Some(1)),
            [Literal::Text(name), Literal::Text(dtype), Literal::List(shape)] => match shape[..] {
                [Literal::Int(values)] => (name, dtype, usize::try_from(values).ok()),
                _ => {
                    let found = format!("{} dimensions of {name}", shape.len());
                    return malformed("shape of a field", "one dimension", found);
                }
            },
            _ => return malformed("descr", "a name, a type and perhaps a shape of each field", "another thing"),
        };
        let field =
            NpyField { name: name.clone(), dtype: dtype.clone(), values: values.unwrap_or(usize::MAX), offset: stride };
        let end = field.num_bytes().and_then(|len| stride.checked_add(len)).filter(|&end| end < MAX_STRIDE);
        let Some(end) = end else {
            return malformed("type of a field", "one of a fixed and small size", format!("{name}: {dtype}"));
        };
        stride = end;
        // What has no name is padding.
        if !field.name.is_empty() {
            if fields.iter().any(|other| other.name == field.name) {
                return malformed("name of a field", "each once", field.name);
            }
            fields.push(field);
        }
    }
    if stride == 0 {
        return malformed("descr", "fields of at least a byte", "none");
    }
    Ok((num_rows, fields, stride))
}

#[derive(Debug)]
enum Literal {
    Text(String),
    Int(u64),
    Bool(bool),
    List(Vec<Literal>),
    Dict(Vec<(String, Literal)>),
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    /// Skips spaces, then a token if it comes next.
    fn eat(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn value(&mut self, depth: usize) -> Option<Literal> {
        // A field's shape stands in a tuple in the list in the dict.
        if depth > 4 {
            return None;
        }
        for (open, close) in [("[", "]"), ("(", ")")] {
            if self.eat(open) {
                let mut items = Vec::new();
                while !self.eat(close) {
                    items.push(self.value(depth + 1)?);
                    if !self.eat(",") && !self.rest.trim_start().starts_with(close) {
                        return None;
                    }
                }
                return Some(Literal::List(items));
            }
        }
        if self.eat("{") {
            let mut entries = Vec::new();
            while !self.eat("}") {
                let Some(Literal::Text(key)) = self.value(depth + 1) else {
                    return None;
                };
                if !self.eat(":") {
                    return None;
                }
                entries.push((key, self.value(depth + 1)?));
                if !self.eat(",") && !self.rest.trim_start().starts_with('}') {
                    return None;
                }
            }
            return Some(Literal::Dict(entries));
        }
        if self.eat("True") {
            return Some(Literal::Bool(true));
        }
        if self.eat("False") {
            return Some(Literal::Bool(false));
        }
        for quote in ['\'', '"'] {
            if self.rest.starts_with(quote) {
                return self.text(quote);
            }
        }
        let digits = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        number.parse().ok().map(Literal::Int)
    }

    fn text(&mut self, quote: char) -> Option<Literal> {
        let mut text = String::new();
        let mut chars = self.rest.chars();
        chars.next();
        loop {
            match chars.next()? {
                '\\' => match chars.next()? {
                    escaped @ ('\\' | '\'' | '"') => text.push(escaped),
                    _ => return None,
                },
                c if c == quote => break,
                c => text.push(c),
            }
        }
        self.rest = chars.as_str();
        Some(Literal::Text(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PACKED: &str = "{'descr': [('board', '<u8'), ('move', '|u1'), ('ev_legal', '|u1'), ('ev_values', '<f4', (4,)), \
                          ('run_id', '<u4'), ('step_index', '<u2')], 'fortran_order': False, 'shape': (7,), }";

    fn array(text: &str) -> Vec<u8> {
        let len = (text.len() as u16).to_le_bytes();
        [MAGIC, &[1, 0][..], &len, text.as_bytes()].concat()
    }

    fn refused(bytes: &[u8]) -> String {
        NpyHeader::parse(bytes).unwrap_err().to_string()
    }

    #[test]
    fn reads_what_numpy_writes() {
        let header = NpyHeader::parse(&array(PACKED)).unwrap();
        assert_eq!((header.num_rows, header.stride, header.fields.len()), (7, 32, 6));
        assert_eq!(header.len, 10 + PACKED.len() as u64);
        assert_eq!(header.fields[3], NpyField { name: "ev_values".into(), dtype: "<f4".into(), values: 4, offset: 10 });
        let wide = [MAGIC, &[2, 0][..], &(PACKED.len() as u32).to_le_bytes(), PACKED.as_bytes()].concat();
        assert_eq!(NpyHeader::parse(&wide).unwrap().len, 12 + PACKED.len() as u64);
    }

    #[test]
    fn refuses_what_is_no_structured_array_of_one_dimension() {
        for (from, to, message) in [
            ("(7,)", "(7, 2)", "shape: expected one dimension, found 2 values"),
            ("(7,)", "()", "shape: expected one dimension, found 0 values"),
            ("False", "True", "fortran_order: expected False, found True"),
            ("'shape'", "'form'", "shape: expected one dimension, found none"),
            ("'board'", "'move'", "name of a field: expected each once, found move"),
            ("]", "", "NumPy's header: expected a dict"),
            ("'<u8'", "'<uX'", "type of a field: expected one of a fixed and small size, found board: <uX"),
            ("'<u8'", "'|O'", "type of a field: expected one of a fixed and small size, found board: |O"),
            ("'<u8'", "'|O8', (2, 2)", "shape of a field: expected one dimension, found 2 dimensions of board"),
            ("'<u8'", "8", "descr: expected a name, a type"),
            ("'<u8'", "[('a', '<u8')]", "NumPy's header: expected a dict"),
            ("'<f4', (4,)", "'<f4', (18446744073709551615,)", "type of a field"),
            ("(7,)", "((((((7,),),),),),)", "NumPy's header: expected a dict"),
        ] {
            assert!(PACKED.contains(from));
            let error = refused(&array(&PACKED.replacen(from, to, 1)));
            assert!(error.contains(message), "{from} -> {to}: {error}");
        }
        let plain = refused(&array("{'descr': '<u8', 'fortran_order': False, 'shape': (7,), }"));
        assert!(plain.contains("descr: expected fields by name"), "{plain}");
        let objects = refused(&array("{'descr': '|O', 'fortran_order': False, 'shape': (7,), }"));
        assert!(objects.contains("descr: expected fields by name"), "{objects}");
    }

    #[test]
    fn says_what_is_wrong_before_the_text() {
        assert!(refused(b"\x93NUMPX\x01\0\0\0").starts_with("byte 0: NumPy's magic: expected"));
        assert!(
            refused(b"\x93NUMPY\x04\0\0\0").contains("byte 6: NumPy's format version: expected 1, 2 or 3, found 4")
        );
        assert!(
            refused(b"\x93NUMPY\x01\0\xff\xff").contains("byte 8: length of NumPy's header: expected at most 10000")
        );
        assert!(refused(b"\x93NUMPY\x02\0\xff\xff\xff\xff").contains("found 4294967295"));
        let good = array(PACKED);
        for len in 0..good.len() {
            assert!(NpyHeader::parse(&good[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn a_file_ends_with_its_rows() {
        let header = NpyHeader::parse(&array(PACKED)).unwrap();
        let end = header.len + 7 * 32;
        assert!(header.check_file_len(end).is_ok());
        assert!(header.check_file_len(end - 1).is_err());
        assert!(header.check_file_len(end + 1).is_err());
        let huge = PACKED.replace("(7,)", "(18446744073709551615,)");
        let error = NpyHeader::parse(&array(&huge)).unwrap().check_file_len(end).unwrap_err().to_string();
        assert!(error.contains("expected fewer than 18446744073709551615 rows"), "{error}");
    }

    #[test]
    fn reads_what_it_writes() {
        let fields = NpyField::packed(&[("board", "<u8", 1), ("it's", "<f4", 4), ("x\\y", "|u1", 1)]);
        for (num_rows, min_len) in [(0, 0), (u64::MAX, 0), (7, 256), (7, 4096)] {
            let bytes = header(&fields, 32, num_rows, min_len).unwrap();
            assert!(bytes.len().is_multiple_of(64) && bytes.len() >= min_len);
            let back = NpyHeader::parse(&bytes).unwrap();
            assert_eq!((back.len, back.num_rows, back.stride), (bytes.len() as u64, num_rows, 32));
            assert_eq!(back.fields, fields);
        }
        assert!(header(&NpyField::packed(&[("größe", "<u8", 1)]), 8, 1, 0).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_read(text in "[\\[\\](){}',:0-9a-z\\\\ ]{0,80}") {
            let _ = NpyHeader::parse(&array(&text));
            let text = format!("{{'descr': {text}, 'fortran_order': False, 'shape': (1,)}}");
            let _ = NpyHeader::parse(&array(&text));
        }
    }
}
