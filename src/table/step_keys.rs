//! The keys (run and step) of an array's rows, and an index from a key to its row.
//!
//! The keys stay in their NumPy files, one or several, or are in memory. They are the fields `run_id` and `step_idx` or `step_index`. Memory
//! holds one entry per span: consecutive rows of one run with ascending steps. Usual files have one span per
//! run. In the worst order there is one span per row.

use super::element::ElementType;
use super::layout::ExtraField;
use crate::board::Board;
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result};
use crate::format::npy::{NpyField, NpyHeader};
use crate::format::{FileBytes, header_error, step_files_in};
use crate::machine::reserve;
use std::path::{Path, PathBuf};

/// A step: its run id and its step index. Negative numbers of a file become large ones, which no table row has.
pub(super) type StepKey = (u64, u64);

/// The keys of an array's rows, in mapped files or in memory.
pub(super) struct StepKeys {
    files: Vec<KeyFile>,
    num_rows: u64,
}

struct KeyFile {
    /// `None` for keys in memory.
    path: Option<PathBuf>,
    bytes: FileBytes,
    /// The offset of the first row, and the stride, in bytes.
    start: usize,
    stride: usize,
    run_id: IntegerField,
    step: IntegerField,
    board: Option<BoardField>,
    first_row: u64,
    num_rows: u64,
}

/// The field of a row that holds its board, if any.
#[derive(Clone, Copy)]
enum BoardField {
    Packed(IntegerField),
    /// Sixteen exponents, one byte each, at this offset.
    Exps(usize),
}

/// An integer field of a row.
#[derive(Clone, Copy)]
struct IntegerField {
    offset: usize,
    width: usize,
    signed: bool,
}

/// Consecutive rows of one run with ascending steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeySpan {
    run_id: u64,
    first_step: u64,
    last_step: u64,
    first_row: u64,
    num_rows: u64,
}

/// An index from keys to rows.
pub(super) struct KeyIndex<'a> {
    keys: &'a StepKeys,
    /// The spans, ordered by key. No two spans interleave.
    spans: Vec<KeySpan>,
}

/// The names of a step index, of which a key has one, and of a board.
pub(super) const STEPS: [&str; 2] = ["step_idx", "step_index"];
pub(super) const BOARD: &str = "board";

/// Keys that are read between two cancellation checks.
const CHUNK: usize = 1 << 20;

impl IntegerField {
    /// Returns the field with one of these names, if it holds integers.
    fn find(fields: &[NpyField], names: &[&str]) -> Option<IntegerField> {
        let field = fields.iter().find(|field| names.contains(&field.name.as_str()))?;
        let (width, signed) = match field.dtype.as_str() {
            "|u1" => (1, false),
            "<u2" => (2, false),
            "<u4" => (4, false),
            "<u8" => (8, false),
            "|i1" => (1, true),
            "<i2" => (2, true),
            "<i4" => (4, true),
            "<i8" => (8, true),
            _ => return None,
        };
        (field.values == 1).then_some(IntegerField { offset: field.offset, width, signed })
    }

    /// Returns the field of a packed row.
    fn of_field(field: &ExtraField) -> IntegerField {
        use ElementType::{Int8, Int16, Int32, Int64};
        let signed = matches!(field.dtype, Int8 | Int16 | Int32 | Int64);
        IntegerField { offset: field.offset, width: field.dtype.width(), signed }
    }

    #[inline(always)]
    fn of(self, row: &[u8]) -> u64 {
        let bytes = &row[self.offset..self.offset + self.width];
        // A load of constant width is one instruction; one of variable width would be a call.
        let value = match *bytes {
            [a] => u64::from(a),
            [a, b] => u64::from(u16::from_le_bytes([a, b])),
            [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => 0,
        };
        if self.signed {
            let unused = 64 - 8 * self.width as u32;
            return ((value << unused).cast_signed() >> unused).cast_unsigned();
        }
        value
    }
}

impl BoardField {
    fn find(fields: &[NpyField]) -> Option<BoardField> {
        let is_exps = |field: &&NpyField| field.name == "exps" && field.dtype == "|u1" && field.values == 16;
        let exps = fields.iter().find(is_exps).map(|field| BoardField::Exps(field.offset));
        exps.or_else(|| IntegerField::find(fields, &[BOARD]).filter(|field| field.width == 8).map(BoardField::Packed))
    }

    #[inline]
    fn is(self, row: &[u8], board: Board) -> bool {
        match self {
            BoardField::Packed(field) => field.of(row) == board.0,
            BoardField::Exps(offset) => row[offset..offset + 16] == board.exps(),
        }
    }
}

impl StepKeys {
    /// Maps the key files at `path`: the file itself, or `steps.npy` or its shards in a folder.
    pub(super) fn open(path: &Path) -> Result<StepKeys> {
        match path.is_dir() {
            true => StepKeys::of_files(&step_files_in(path)?),
            false => StepKeys::of_files(&[path.to_owned()]),
        }
    }

    fn of_files(paths: &[PathBuf]) -> Result<StepKeys> {
        let (mut files, mut num_rows) = (Vec::with_capacity(paths.len()), 0);
        for path in paths {
            let file = KeyFile::open(path, num_rows)?;
            num_rows += file.num_rows;
            files.push(file);
        }
        Ok(StepKeys { files, num_rows })
    }

    /// Returns the keys in packed rows of these integer fields: `run_id`, a step index, and `board` or none.
    pub(super) fn of_rows(bytes: Vec<u8>, fields: &[ExtraField]) -> Result<StepKeys> {
        let find = |is: &dyn Fn(&str) -> bool| fields.iter().find(|field| is(&field.name)).map(IntegerField::of_field);
        let (run_id, step) = (find(&|name| name == "run_id"), find(&|name| STEPS.contains(&name)));
        let (Some(run_id), Some(step)) = (run_id, step) else {
            return Err(Error::argument("rows", "columns run_id and step_index", "none"));
        };
        let board = find(&|name| name == BOARD).map(BoardField::Packed);
        let stride = fields.iter().map(ExtraField::width).sum::<usize>();
        let num_rows = (bytes.len() / stride) as u64;
        let (path, bytes) = (None, FileBytes::Held(bytes));
        let file = KeyFile { path, bytes, start: 0, stride, run_id, step, board, first_row: 0, num_rows };
        Ok(StepKeys { files: vec![file], num_rows })
    }

    pub(super) fn num_rows(&self) -> u64 {
        self.num_rows
    }

    /// Returns each file with the number of its keys.
    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, u64)> {
        self.files.iter().map(|file| (file.path.as_deref().unwrap_or(Path::new("")), file.num_rows))
    }

    /// Returns the file of the first key; `None` for keys in memory.
    pub(super) fn path(&self) -> Option<&Path> {
        self.files.first()?.path.as_deref()
    }

    /// Returns the name of the keys in messages.
    pub(super) fn name(&self) -> String {
        self.path().map_or_else(|| "the attached rows".to_owned(), |path| path.display().to_string())
    }

    /// Returns the key of a row, or `None` after the last row.
    #[inline]
    pub(super) fn get(&self, row: u64) -> Option<StepKey> {
        self.row(row).map(|(file, row)| file.key(row))
    }

    /// Returns whether a row has this board. Rows without a board field match every board.
    #[inline]
    pub(super) fn is_of(&self, row: u64, board: Board) -> bool {
        self.row(row).is_some_and(|(file, row)| file.board.is_none_or(|field| field.is(row, board)))
    }

    #[inline]
    fn row(&self, row: u64) -> Option<(&KeyFile, &[u8])> {
        let file = match &self.files[..] {
            [only] => only,
            files => files.get(files.partition_point(|file| file.first_row + file.num_rows <= row))?,
        };
        let place = row - file.first_row;
        (place < file.num_rows).then(|| (file, file.row(place as usize)))
    }

    /// Returns the spans in row order.
    fn spans(&self, cancel: &CancellationToken) -> Result<Vec<KeySpan>> {
        let mut spans: Vec<KeySpan> = Vec::new();
        // The span that may continue. It is kept apart from the others, so that it stays in registers.
        let mut open: Option<KeySpan> = None;
        let mut row = 0;
        for file in &self.files {
            for rows in file.rows().chunks(CHUNK * file.stride) {
                cancel.check()?;
                for bytes in rows.chunks_exact(file.stride) {
                    let (run_id, step) = file.key(bytes);
                    match &mut open {
                        Some(last) if last.run_id == run_id && last.last_step < step => {
                            last.last_step = step;
                            last.num_rows += 1;
                        }
                        _ => {
                            let (first_step, last_step) = (step, step);
                            let next = KeySpan { run_id, first_step, last_step, first_row: row, num_rows: 1 };
                            reserve(&mut spans, 1)?;
                            spans.extend(open.replace(next));
                        }
                    }
                    row += 1;
                }
            }
        }
        spans.extend(open);
        Ok(spans)
    }
}

impl KeyFile {
    fn open(path: &Path, first_row: u64) -> Result<KeyFile> {
        let bytes = FileBytes::map(path)?;
        let located = |error: Error| error.of_header().with_path(path);
        let header = NpyHeader::parse(&bytes).map_err(located)?;
        header.check_file_len(bytes.len() as u64).map_err(located)?;
        let run_id = IntegerField::find(&header.fields, &["run_id"]);
        let step = IntegerField::find(&header.fields, &STEPS);
        let (Some(run_id), Some(step)) = (run_id, step) else {
            let name = |field: &NpyField| format!("{} {}×{}", field.name, field.values, field.dtype);
            let found = header.fields.iter().map(name).collect::<Vec<_>>().join(", ");
            return Err(header_error("fields of a key", "integers run_id and step_idx or step_index", found, path));
        };
        let (start, stride, num_rows) = (header.len as usize, header.stride, header.num_rows);
        let board = BoardField::find(&header.fields);
        let path = Some(path.to_owned());
        Ok(KeyFile { path, bytes, start, stride, run_id, step, board, first_row, num_rows })
    }

    fn rows(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    #[inline(always)]
    fn row(&self, place: usize) -> &[u8] {
        &self.rows()[place * self.stride..][..self.stride]
    }

    #[inline(always)]
    fn key(&self, row: &[u8]) -> StepKey {
        (self.run_id.of(row), self.step.of(row))
    }
}

impl<'a> KeyIndex<'a> {
    /// Reads all keys.
    ///
    /// # Errors
    /// [`ErrorKind::Column`] with both rows if two rows have the same step.
    pub(super) fn new(keys: &'a StepKeys, cancel: &CancellationToken) -> Result<KeyIndex<'a>> {
        let mut spans = keys.spans(cancel)?;
        let order = |span: &KeySpan| (span.run_id, span.first_step, span.first_row);
        spans.sort_unstable_by_key(order);
        let overlaps = |pair: &[KeySpan]| pair[0].run_id == pair[1].run_id && pair[1].first_step <= pair[0].last_step;
        if spans.windows(2).any(overlaps) {
            // Two spans interleave, so each row becomes its own span.
            spans = spans.iter().flat_map(|span| span.rows(keys)).collect();
            spans.sort_unstable_by_key(order);
            if let Some([a, b]) = spans.array_windows::<2>().find(|pair| overlaps(&pair[..])) {
                return Err(keys.twice(*a, *b));
            }
        }
        Ok(KeyIndex { keys, spans })
    }

    /// Returns the row of a key. It tries row `next` first, and sets `next` to the row after the result.
    #[inline]
    pub(super) fn find(&self, key: StepKey, next: &mut u64) -> Option<u64> {
        let row = if self.keys.get(*next) == Some(key) { *next } else { self.search(key)? };
        *next = row + 1;
        Some(row)
    }

    fn search(&self, (run_id, step): StepKey) -> Option<u64> {
        let after = self.spans.partition_point(|span| (span.run_id, span.first_step) <= (run_id, step));
        let span = self.spans.get(after.checked_sub(1)?)?;
        if span.run_id != run_id || step > span.last_step {
            return None;
        }
        let (mut first, mut end) = (span.first_row, span.first_row + span.num_rows);
        if span.last_step - span.first_step == span.num_rows - 1 {
            return Some(first + (step - span.first_step));
        }
        while first < end {
            let middle = first + (end - first) / 2;
            let (_, found) = self.keys.get(middle)?;
            match found.cmp(&step) {
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Less => first = middle + 1,
                std::cmp::Ordering::Greater => end = middle,
            }
        }
        None
    }
}

impl KeySpan {
    /// Returns each row as a span.
    fn rows(self, keys: &StepKeys) -> impl Iterator<Item = KeySpan> {
        (self.first_row..self.first_row + self.num_rows).filter_map(move |first_row| {
            let (run_id, step) = keys.get(first_row)?;
            Some(KeySpan { run_id, first_step: step, last_step: step, first_row, num_rows: 1 })
        })
    }
}

impl StepKeys {
    #[cold]
    fn twice(&self, first: KeySpan, second: KeySpan) -> Error {
        let found = format!("run {}, step {} in row {} too", first.run_id, first.first_step, first.first_row);
        ErrorKind::Column {
            path: self.path().map(Path::to_owned),
            column: "run_id".into(),
            row: Some(second.first_row),
            expected: "each step of each run once".into(),
            found,
        }
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::npy::{NpyField, header};
    use proptest::prelude::*;
    use std::collections::HashMap;

    const TYPES: [(&str, usize); 6] = [("|u1", 1), ("<u2", 2), ("<i2", 2), ("<u4", 4), ("<i8", 8), ("<u8", 8)];

    /// Writes keys with one byte before, between and after the fields.
    fn write(path: &Path, keys: &[StepKey], types: (usize, usize), name: &str) {
        let ((run_dtype, run_width), (step_dtype, step_width)) = (TYPES[types.0], TYPES[types.1]);
        let field =
            |name: &str, dtype: &str, offset| NpyField { name: name.into(), dtype: dtype.into(), values: 1, offset };
        let fields = [
            field("a", "|u1", 0),
            field("run_id", run_dtype, 1),
            field("b", "|u1", 1 + run_width),
            field(name, step_dtype, 2 + run_width),
        ];
        let stride = 3 + run_width + step_width;
        let mut bytes = header(&fields, stride, keys.len() as u64, 0).unwrap();
        for (run_id, step) in keys {
            bytes.push(0xaa);
            bytes.extend(&run_id.to_le_bytes()[..run_width]);
            bytes.push(0xbb);
            bytes.extend(&step.to_le_bytes()[..step_width]);
            bytes.push(0xcc);
        }
        std::fs::write(path, bytes).unwrap();
    }

    proptest! {
        #[test]
        fn finds_the_row_of_every_key(
            runs in prop::collection::btree_map(0u64..100, prop::collection::btree_set(0u64..120, 0..40), 0..8),
            order in prop::sample::select(vec!["as they are", "runs the other way", "by step", "any"]),
            types in (0usize..6, 0usize..6),
            parts in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
            asked in prop::collection::vec((0u64..110, 0u64..130), 0..60),
        ) {
            let mut keys: Vec<StepKey> = runs.iter().flat_map(|(run, steps)| steps.iter().map(|step| (*run, *step))).collect();
            match order {
                "runs the other way" => keys.sort_by_key(|&(run, step)| (std::cmp::Reverse(run), step)),
                "by step" => keys.sort_by_key(|&(run, step)| (step, run)),
                "any" => keys.sort_by_key(|&(run, step)| blake3::hash(&[run as u8, step as u8]).as_bytes()[..8].to_vec()),
                _ => {}
            }
            let folder = tempfile::tempdir().unwrap();
            let mut cuts: Vec<usize> = parts.iter().map(|part| part.index(keys.len() + 1)).chain([0, keys.len()]).collect();
            cuts.sort_unstable();
            let files: Vec<PathBuf> = (0..cuts.len() - 1).map(|k| folder.path().join(format!("{k}.npy"))).collect();
            for (file, cut) in files.iter().zip(cuts.windows(2)) {
                write(file, &keys[cut[0]..cut[1]], types, if types.0 == 0 { "step_idx" } else { "step_index" });
            }
            let mapped = StepKeys::of_files(&files).unwrap();
            prop_assert_eq!(mapped.num_rows(), keys.len() as u64);
            let all: Vec<Option<StepKey>> = (0..=keys.len() as u64).map(|row| mapped.get(row)).collect();
            prop_assert_eq!(all, keys.iter().copied().map(Some).chain([None]).collect::<Vec<_>>());
            let index = KeyIndex::new(&mapped, CancellationToken::never()).unwrap();
            let places: HashMap<StepKey, u64> = keys.iter().copied().zip(0..).collect();
            let mut next = 0;
            for key in asked.iter().chain(&keys) {
                prop_assert_eq!(index.find(*key, &mut next), places.get(key).copied());
            }
        }

        #[test]
        fn duplicate_steps_are_rejected(
            runs in prop::collection::btree_map(0u64..20, 1u64..20, 1..6),
            from in any::<prop::sample::Index>(),
            to in any::<prop::sample::Index>(),
        ) {
            let mut keys: Vec<StepKey> = runs.iter().flat_map(|(run, len)| (0..*len).map(|step| (*run, step))).collect();
            let key = keys[from.index(keys.len())];
            keys.insert(to.index(keys.len() + 1), key);
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("steps.npy");
            write(&file, &keys, (3, 3), "step_idx");
            let mapped = StepKeys::open(&file).unwrap();
            let error = KeyIndex::new(&mapped, CancellationToken::never()).err().expect("refused").to_string();
            let rows: Vec<usize> = (0..keys.len()).filter(|&row| keys[row] == key).collect();
            let message = format!(
                "column run_id, row {}: expected each step of each run once, found run {}, step {} in row {} too",
                rows[1], key.0, key.1, rows[0]
            );
            prop_assert!(error.contains(&message), "{} in {}", message, error);
        }
    }

    #[test]
    fn negative_keys_match_no_row() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("steps.npy");
        write(&file, &[(u64::MAX, 0), (0, u64::MAX)], (4, 2), "step_idx");
        let keys = StepKeys::open(&file).unwrap();
        assert_eq!((keys.get(0), keys.get(1)), (Some((u64::MAX, 0)), Some((0, u64::MAX))));
    }

    #[test]
    fn keys_need_both_fields_as_integers() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("steps.npy");
        for (name, dtype, values) in
            [("step", "<u4", 1), ("step_idx", "<f4", 1), ("step_idx", ">u4", 1), ("step_idx", "<u4", 2)]
        {
            let fields = [("run_id", "<u8", 1, 0), (name, dtype, values, 8)];
            let fields = fields.map(|(name, dtype, values, offset)| NpyField {
                name: name.into(),
                dtype: dtype.into(),
                values,
                offset,
            });
            std::fs::write(&file, header(&fields, 8 + 4 * values, 0, 0).unwrap()).unwrap();
            let error = StepKeys::open(&file).err().expect("refused");
            assert!(matches!(error.kind(), ErrorKind::Header { .. }));
            let message = format!(
                "fields of a key: expected integers run_id and step_idx or step_index, found run_id 1×<u8, {name}"
            );
            assert!(error.to_string().contains(&message), "{error}");
        }
    }
}
