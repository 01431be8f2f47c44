//! NumPy's header of a structured array, written and read.
//!
//! `\x93NUMPY`, the version (1.0 to 3.0), the length of the text (u16, from version 2 on u32, little-endian), and the
//! text: a Python dict of `descr`, `fortran_order` and `shape`, padded with spaces and ended by a newline. The format is
//! NumPy's NEP 1. Of Python only what `descr` can hold is understood: strings, integers, booleans, lists, tuples.

use super::convert::{NO_MOVE, is_reserved};
use super::layout::{ElementType, ExtraField, RowLayout};
use crate::error::{Error, ErrorKind, Location, Result};
use crate::step::{FIELDS, STEP_SIZE, Step};
use std::fs::File;
use std::os::unix::fs::FileExt;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Rows begin at a multiple of this many bytes: a page.
const ALIGN: usize = 4096;
/// Longer headers than NumPy itself accepts.
const MAX_TEXT: usize = 10_000;

/// A header as it was read.
#[derive(Debug)]
pub(super) struct NpyHeader {
    /// Where the rows begin.
    pub(super) len: u64,
    pub(super) num_rows: u64,
    pub(super) stride: usize,
    fields: Vec<NpyField>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NpyField {
    name: String,
    /// NumPy's name of the type, `"<u4"` for example.
    dtype: String,
    values: usize,
    offset: usize,
}

/// How rows of another layout become rows of ours.
#[derive(Debug)]
pub(super) struct Conversion {
    /// The stride of those rows.
    pub(super) stride: usize,
    out_stride: usize,
    /// Where in such a row each field of a [`Step`] lies, in the order of [`FIELDS`].
    fields: [Option<usize>; FIELDS.len()],
    /// Where each extra lies there, where here, and its width.
    extras: Vec<(usize, usize, usize)>,
}

/// The header of a file of rows, of `min_len` bytes at least.
pub(super) fn header(layout: &RowLayout, num_rows: u64, min_len: usize) -> Result<Vec<u8>> {
    let mut text = String::from("{'descr': [");
    let mut end = 0;
    for field in fields_of(layout) {
        let quoted = field.name.replace('\\', "\\\\").replace('\'', "\\'");
        let shape = if field.values > 1 { format!(", ({},)", field.values) } else { String::new() };
        text += &format!("('{quoted}', '{}'{shape}), ", field.dtype);
        end = field.offset + field.num_bytes().unwrap_or(0);
    }
    if layout.stride() > end {
        text += &format!("('', '|V{}'), ", layout.stride() - end);
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

/// The fields of a row in the order of their offsets.
fn fields_of(layout: &RowLayout) -> Vec<NpyField> {
    let field = |(name, dtype, values, offset): (&str, &str, usize, usize)| NpyField {
        name: name.to_owned(),
        dtype: dtype.to_owned(),
        values,
        offset,
    };
    let mut fields: Vec<NpyField> = layout.numpy_fields().map(field).collect();
    fields.sort_by_key(|field| field.offset);
    fields
}

impl NpyHeader {
    pub(super) fn read(file: &File) -> Result<NpyHeader> {
        let mut start = [0; 12];
        read_at(file, &mut start[..10], 0)?;
        if !start.starts_with(MAGIC) {
            return Err(decode(0, "NumPy's header", "\\x93NUMPY", format!("{:02x?}", &start[..6])));
        }
        let (text_start, text_len) = match start[6] {
            1 => (10, usize::from(u16::from_le_bytes([start[8], start[9]]))),
            2 | 3 => {
                read_at(file, &mut start, 0)?;
                (12, u32::from_le_bytes([start[8], start[9], start[10], start[11]]) as usize)
            }
            version => return Err(decode(6, "NumPy's format version", "1, 2 or 3", version.to_string())),
        };
        if text_len > MAX_TEXT {
            return Err(decode(8, "length of NumPy's header", &format!("at most {MAX_TEXT}"), text_len.to_string()));
        }
        let mut text = vec![0; text_len];
        read_at(file, &mut text, text_start as u64)?;
        let text = String::from_utf8(text)
            .map_err(|error| decode(text_start as u64, "NumPy's header", "text", error.to_string()))?;
        let malformed = || {
            let expected = "a dict of descr (fields by name), fortran_order and shape (one dimension)";
            decode(text_start as u64, "NumPy's header", expected, text.trim().chars().take(200).collect())
        };
        let (num_rows, fields, stride) = parse_header(&text).ok_or_else(malformed)?;
        Ok(NpyHeader { len: (text_start + text_len) as u64, num_rows, stride, fields })
    }

    /// Whether rows of this layout have this header.
    pub(super) fn is_of(&self, layout: &RowLayout) -> bool {
        self.stride == layout.stride() && self.fields == fields_of(layout)
    }

    /// The layout that such rows have here, and how to bring them into it unless they are.
    pub(super) fn layout(&self) -> Result<(RowLayout, Option<Conversion>)> {
        let mut fields = [None; FIELDS.len()];
        let mut extras = Vec::new();
        for field in &self.fields {
            let step_field = FIELDS.iter().position(|own| own.name == field.name);
            let column = |expected: String| {
                let found = format!("{} × {}", field.values, field.dtype);
                Error::column(&field.name, None, expected, found)
            };
            if let Some(index) = step_field {
                let own = &FIELDS[index];
                if (own.numpy, own.values) != (&field.dtype, field.values) {
                    return Err(column(format!("{} × {}", own.values, own.numpy)));
                }
                fields[index] = Some(field.offset);
            } else {
                if is_reserved(&field.name) {
                    return Err(column("another name, as batches have a column of this one".into()));
                }
                let dtype = ElementType::of_numpy(&field.dtype).filter(|_| field.values == 1);
                let dtype = dtype.ok_or_else(|| column("one little-endian number or boolean".into()))?;
                extras.push(ExtraField { name: field.name.clone(), dtype, offset: field.offset, categories: None });
            }
        }
        if fields[0].is_none() {
            let found = self.fields.iter().map(|field| field.name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(Error::column("board", None, "a field of boards", found));
        }
        let layout = RowLayout::new(extras.clone());
        if self.is_of(&layout) {
            return Ok((layout, None));
        }
        let extras = extras.iter().zip(layout.extras());
        let extras = extras.map(|(there, here)| (there.offset, here.offset, here.dtype.width())).collect();
        let out_stride = layout.stride();
        Ok((layout, Some(Conversion { stride: self.stride, out_stride, fields, extras })))
    }
}

impl NpyField {
    fn num_bytes(&self) -> Option<usize> {
        // NumPy counts text in characters, of four bytes each.
        let unit = if self.dtype.get(1..2)? == "U" { 4 } else { 1 };
        self.dtype.get(2..)?.parse::<usize>().ok()?.checked_mul(unit)?.checked_mul(self.values)
    }
}

impl Conversion {
    /// Makes rows, the first of which is `first_row` of the file. What a row does not have is what a query's result
    /// without it gets.
    pub(super) fn convert(&self, rows: &[u8], out: &mut [u8], first_row: u64) -> Result<()> {
        let pairs = rows.chunks_exact(self.stride).zip(out.chunks_exact_mut(self.out_stride));
        for (k, (row, out)) in pairs.enumerate() {
            let mut step = Step { ev_values: [f32::NAN; 4], chosen: NO_MOVE, ..Step::default() };
            let bytes: &mut [u8; STEP_SIZE] = bytemuck::cast_mut(&mut step);
            for ((field, own), next) in self.fields.iter().zip(&FIELDS).zip(FIELD_ENDS) {
                if let Some(offset) = field {
                    bytes[own.offset..next].copy_from_slice(&row[*offset..][..next - own.offset]);
                }
            }
            if self.fields[EV_LEGAL].is_none() {
                step.ev_legal = step.board.legal_moves();
            }
            check_step(&step, first_row + k as u64)?;
            out[..STEP_SIZE].copy_from_slice(bytemuck::bytes_of(&step));
            for &(from, to, width) in &self.extras {
                out[to..to + width].copy_from_slice(&row[from..from + width]);
            }
        }
        Ok(())
    }
}

/// Refuses rows whose move or mask is none.
pub(super) fn check_steps(rows: &[u8], stride: usize) -> Result<()> {
    (0..).zip(rows.chunks_exact(stride)).try_for_each(|(row, bytes)| {
        let step: Step = bytemuck::pod_read_unaligned(&bytes[..STEP_SIZE]);
        check_step(&step, row)
    })
}

#[inline]
fn check_step(step: &Step, row: u64) -> Result<()> {
    if step.chosen > 3 && step.chosen != NO_MOVE {
        return Err(Error::column("move", Some(row), "0..=3, or 255 for none", step.chosen));
    }
    if step.ev_legal > 15 {
        return Err(Error::column("ev_legal", Some(row), "0..=15", step.ev_legal));
    }
    Ok(())
}

/// The place of the mask among [`FIELDS`].
const EV_LEGAL: usize = 5;

/// Where each of [`FIELDS`] ends.
const FIELD_ENDS: [usize; FIELDS.len()] = [8, 24, 28, 30, 31, 32];

fn parse_header(text: &str) -> Option<(u64, Vec<NpyField>, usize)> {
    let mut parser = Parser { rest: text.trim() };
    let Literal::Dict(entries) = parser.value(0)? else {
        return None;
    };
    let get = |key: &str| entries.iter().find(|(name, _)| name == key).map(|(_, value)| value);
    let (Literal::List(descr), Literal::Bool(false), Literal::List(shape)) =
        (get("descr")?, get("fortran_order")?, get("shape")?)
    else {
        return None;
    };
    let [Literal::Int(num_rows)] = shape[..] else {
        return None;
    };
    let (mut fields, mut stride): (Vec<NpyField>, usize) = (Vec::new(), 0);
    for field in descr {
        let Literal::List(parts) = field else {
            return None;
        };
        let (name, dtype, values) = match &parts[..] {
            [Literal::Text(name), Literal::Text(dtype)] => (name, dtype, 1),
            [Literal::Text(name), Literal::Text(dtype), Literal::List(shape)] => match shape[..] {
                [Literal::Int(values)] => (name, dtype, usize::try_from(values).ok()?),
                _ => return None,
            },
            _ => return None,
        };
        let field = NpyField { name: name.clone(), dtype: dtype.clone(), values, offset: stride };
        stride = stride.checked_add(field.num_bytes()?)?;
        // What has no name is padding.
        if !field.name.is_empty() {
            if fields.iter().any(|other| other.name == field.name) {
                return None;
            }
            fields.push(field);
        }
    }
    (parser.rest.is_empty() && (1..1 << 20).contains(&stride)).then_some((num_rows, fields, stride))
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

fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> Result<()> {
    file.read_exact_at(bytes, offset).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            decode(offset, "NumPy's header", &format!("{} bytes", bytes.len()), "the end of the file".into())
        }
        _ => error.into(),
    })
}

fn decode(offset: u64, what: &'static str, expected: &str, found: String) -> Error {
    let location = Location { offset: Some(offset), ..Location::default() };
    ErrorKind::Decode { location, what, expected: expected.into(), found }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PACKED: &str = "{'descr': [('board', '<u8'), ('move', '|u1'), ('ev_legal', '|u1'), ('ev_values', '<f4', (4,)), \
                          ('run_id', '<u4'), ('step_index', '<u2')], 'fortran_order': False, 'shape': (7,), }";

    #[test]
    fn reads_what_numpy_writes() {
        let (num_rows, fields, stride) = parse_header(PACKED).unwrap();
        assert_eq!((num_rows, stride, fields.len()), (7, 32, 6));
        assert_eq!(fields[3], NpyField { name: "ev_values".into(), dtype: "<f4".into(), values: 4, offset: 10 });
    }

    #[test]
    fn refuses_what_is_no_structured_array_of_one_dimension() {
        for (from, to) in [
            ("(7,)", "(7, 2)"),
            ("False", "True"),
            ("'shape'", "'form'"),
            ("'board'", "'move'"),
            ("]", ""),
            ("'<u8'", "'<uX'"),
            ("'<f4', (4,)", "'<f4', (18446744073709551615,)"),
            ("(7,)", "((((((7,),),),),),)"),
        ] {
            assert!(PACKED.contains(from));
            assert!(parse_header(&PACKED.replacen(from, to, 1)).is_none(), "{from} -> {to}");
        }
        assert!(parse_header("{'descr': '<u8', 'fortran_order': False, 'shape': (7,), }").is_none());
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_read(text in "[\\[\\](){}',:0-9a-z\\\\ ]{0,80}") {
            let _ = parse_header(&text);
            let _ = parse_header(&format!("{{'descr': {text}, 'fortran_order': False, 'shape': (1,)}}"));
        }
    }
}
