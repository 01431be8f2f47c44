//! The keys (run and step) of an array's rows, and an index from a key to its row.
//!
//! The keys come from NumPy files, and are in memory, eight bytes each. The index takes four bytes per row.

use crate::board::Board;
use crate::error::{Error, Result};
use crate::format::npy::{NpyField, NpyHeader};
use crate::format::{header_error, map_file, step_files_in};
use crate::system::cancellation::CancellationToken;
use crate::system::machine::reserve;
use crate::system::workers;
use crate::table::rows::element::ElementType;
use rayon::prelude::*;
use std::path::{Path, PathBuf};

/// A step as one number: its run id above its step index.
pub(in crate::table) type StepKey = u64;

/// The key of rows whose run id or step index is no uint32. Such rows belong to no row of a table.
const NO_KEY: StepKey = u64::MAX;

/// The keys of an array's rows.
#[derive(Default)]
pub(in crate::table) struct StepKeys {
    keys: Vec<StepKey>,
    /// The board of each row; fewer if not all rows have one.
    boards: Vec<u64>,
    /// The files, and the number of keys in each.
    files: Vec<(PathBuf, u64)>,
}

/// An index from keys to rows.
pub(in crate::table) struct KeyIndex<'a> {
    keys: &'a [StepKey],
    /// The rows that have a key, ordered by it.
    rows: Vec<u32>,
}

/// Keys that are read between two cancellation checks.
const CHUNK: usize = 1 << 20;

/// Returns the key of a run and a step.
#[inline]
pub(in crate::table) fn key_of(run_id: Option<u32>, step: Option<u32>) -> StepKey {
    run_id.zip(step).map_or(NO_KEY, |(run_id, step)| u64::from(run_id) << 32 | u64::from(step))
}

impl StepKeys {
    /// Reads the keys at `path`: of the file itself, or of `steps.npy` or its shards in a folder.
    pub(in crate::table) fn open(path: &Path, cancel: &CancellationToken) -> Result<StepKeys> {
        let paths = if path.is_dir() { step_files_in(path)? } else { vec![path.to_owned()] };
        let mut keys = StepKeys::default();
        paths.into_iter().try_for_each(|path| keys.read(path, cancel))?;
        Ok(keys)
    }

    /// Appends the keys of a file.
    fn read(&mut self, path: PathBuf, cancel: &CancellationToken) -> Result<()> {
        let bytes = map_file(&path)?;
        let located = |error: Error| error.of_header().with_path(&path);
        let header = NpyHeader::parse(&bytes).map_err(located)?;
        header.check_file_len(bytes.len() as u64).map_err(located)?;
        let integers = |field: &NpyField| {
            let dtype = ElementType::of_numpy(&field.dtype).filter(|dtype| dtype.arrow().is_integer())?;
            (field.values == 1).then_some((dtype, field.offset))
        };
        let find = |names: &[&str]| header.fields.iter().find(|field| names.contains(&&*field.name));
        let run_id = find(&["run_id"]).and_then(integers);
        let step = find(&["step_idx", "step_index"]).and_then(integers);
        let (Some(run_id), Some(step)) = (run_id, step) else {
            let found = NpyField::shown(&header.fields);
            return Err(header_error("fields of a key", "integers run_id and step_idx or step_index", found, &path));
        };
        let exps = find(&["exps"]).filter(|field| (&*field.dtype, field.values) == ("|u1", 16));
        let packed = find(&["board"]).and_then(integers).filter(|(dtype, _)| dtype.width() == 8);
        if find(&["exps", "board"]).is_some() && exps.is_none() && packed.is_none() {
            let found = NpyField::shown(&header.fields);
            return Err(header_error("board of a key", "exps of |u1 (16,), or board of <u8 or <i8", found, &path));
        }
        let rows = bytes.get(header.len as usize..).unwrap_or_default();
        for rows in rows.chunks(CHUNK * header.stride) {
            cancel.check()?;
            reserve(&mut self.keys, rows.len() / header.stride)?;
            let rows = rows.chunks_exact(header.stride);
            let part =
                |row: &[u8], (dtype, offset): (ElementType, usize)| u32::try_from(dtype.to_key(&row[offset..])).ok();
            self.keys.extend(rows.clone().map(|row| key_of(part(row, run_id), part(row, step))));
            if let Some(field) = exps {
                reserve(&mut self.boards, rows.len())?;
                for row in rows {
                    let exps = &row[field.offset..field.offset + 16];
                    if let Some(wrong) = exps.iter().find(|exp| **exp > 16) {
                        return Err(header_error("exps of a key", "0..=16", wrong.to_string(), &path));
                    }
                    // A tile of 65,536 counts as 32,768 in a packed board.
                    self.boards.push(exps.iter().fold(0, |board, exp| board << 4 | u64::from(*exp.min(&15))));
                }
            } else if let Some((_, offset)) = packed {
                reserve(&mut self.boards, rows.len())?;
                self.boards.extend(rows.map(|row| bytemuck::pod_read_unaligned::<u64>(&row[offset..offset + 8])));
            }
        }
        if !self.boards.is_empty() && self.boards.len() != self.keys.len() {
            let found = "boards in some files".to_owned();
            return Err(header_error("fields of a key", "boards in all files or in none", found, &path));
        }
        self.files.push((path, header.num_rows));
        Ok(())
    }

    pub(in crate::table) fn num_rows(&self) -> u64 {
        self.keys.len() as u64
    }

    /// Returns each file with the number of its keys.
    pub(in crate::table) fn files(&self) -> &[(PathBuf, u64)] {
        &self.files
    }

    /// Returns the file of the first key.
    pub(in crate::table) fn path(&self) -> &Path {
        self.files.first().map_or(Path::new(""), |(path, _)| path.as_path())
    }

    /// Returns whether a row has this board. Rows without boards match every board.
    #[inline]
    pub(in crate::table) fn is_of(&self, row: usize, board: Board) -> bool {
        self.boards.len() != self.keys.len() || self.boards[row] == board.0
    }

    /// Returns an index of the keys.
    ///
    /// # Errors
    /// [`ErrorKind::Column`](crate::ErrorKind::Column) with both rows if two rows have the same step;
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub(in crate::table) fn index(&self, cancel: &CancellationToken) -> Result<KeyIndex<'_>> {
        let keys = &self.keys[..];
        let mut rows: Vec<u32> = Vec::new();
        reserve(&mut rows, keys.len())?;
        rows.extend((0..).zip(keys).filter(|(_, key)| **key != NO_KEY).map(|(row, _)| row));
        cancel.check()?;
        workers::shared()?.install(|| rows.par_sort_unstable_by_key(|&row| (keys[row as usize], row)));
        cancel.check()?;
        if let Some([first, second]) = rows.array_windows().find(|[a, b]| keys[*a as usize] == keys[*b as usize]) {
            let key = keys[*first as usize];
            let found = format!("run {}, step {} in row {first} too", key >> 32, key as u32);
            let error = Error::column("run_id", Some(u64::from(*second)), "each step of each run once", found);
            return Err(error.with_path(self.path()));
        }
        Ok(KeyIndex { keys, rows })
    }
}

impl KeyIndex<'_> {
    /// Returns the row of a key. It tries row `next` first, and sets `next` to the row after the result.
    #[inline]
    pub(in crate::table) fn find(&self, key: StepKey, next: &mut usize) -> Option<usize> {
        let row = if self.keys.get(*next) == Some(&key) { *next } else { self.search(key)? };
        *next = row + 1;
        Some(row)
    }

    fn search(&self, key: StepKey) -> Option<usize> {
        let place = self.rows.binary_search_by_key(&key, |&row| self.keys[row as usize]).ok()?;
        Some(self.rows[place] as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::npy::header;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const TYPES: [(&str, usize); 6] = [("|u1", 1), ("<u2", 2), ("<i2", 2), ("<u4", 4), ("<i8", 8), ("<u8", 8)];

    /// Writes keys with one byte before, between and after the fields.
    fn write(path: &Path, keys: &[(u64, u64)], types: (usize, usize), name: &str) {
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
            let mut keys: Vec<(u64, u64)> = runs.iter().flat_map(|(run, steps)| steps.iter().map(|step| (*run, *step))).collect();
            match order {
                "runs the other way" => keys.sort_by_key(|&(run, step)| (std::cmp::Reverse(run), step)),
                "by step" => keys.sort_by_key(|&(run, step)| (step, run)),
                "any" => keys.sort_by_key(|&(run, step)| blake3::hash(&[run as u8, step as u8]).as_bytes()[..8].to_vec()),
                _ => {}
            }
            let folder = tempfile::tempdir().unwrap();
            let mut cuts: Vec<usize> = parts.iter().map(|part| part.index(keys.len() + 1)).chain([0, keys.len()]).collect();
            cuts.sort_unstable();
            let mut found = StepKeys::default();
            for (k, cut) in cuts.windows(2).enumerate() {
                let file = folder.path().join(format!("{k}.npy"));
                write(&file, &keys[cut[0]..cut[1]], types, if types.0 == 0 { "step_idx" } else { "step_index" });
                found.read(file, CancellationToken::never()).unwrap();
            }
            let packed = |&(run, step): &(u64, u64)| key_of(Some(run as u32), Some(step as u32));
            prop_assert_eq!(&found.keys, &keys.iter().map(packed).collect::<Vec<_>>());
            let index = found.index(CancellationToken::never()).unwrap();
            let places: HashMap<(u64, u64), usize> = keys.iter().copied().zip(0..).collect();
            let mut next = 0;
            for key in asked.iter().chain(&keys) {
                prop_assert_eq!(index.find(packed(key), &mut next), places.get(key).copied());
            }
        }

        #[test]
        fn duplicate_steps_are_rejected(
            runs in prop::collection::btree_map(0u64..20, 1u64..20, 1..6),
            from in any::<prop::sample::Index>(),
            to in any::<prop::sample::Index>(),
        ) {
            let mut keys: Vec<(u64, u64)> = runs.iter().flat_map(|(run, len)| (0..*len).map(|step| (*run, step))).collect();
            let key = keys[from.index(keys.len())];
            keys.insert(to.index(keys.len() + 1), key);
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("steps.npy");
            write(&file, &keys, (3, 3), "step_idx");
            let keys_of_file = StepKeys::open(&file, CancellationToken::never()).unwrap();
            let error = keys_of_file.index(CancellationToken::never()).err().expect("refused").to_string();
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
        write(&file, &[(u64::MAX, 0), (0, u64::MAX), (7, 7)], (4, 2), "step_idx");
        let keys = StepKeys::open(&file, CancellationToken::never()).unwrap();
        assert_eq!(keys.keys, [NO_KEY, NO_KEY, key_of(Some(7), Some(7))]);
        let index = keys.index(CancellationToken::never()).unwrap();
        assert_eq!(index.search(key_of(Some(7), Some(7))), Some(2));
        assert_eq!(index.search(key_of(Some(0), Some(u32::MAX))), None);
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
            let error = StepKeys::open(&file, CancellationToken::never()).err().expect("refused");
            assert!(matches!(error.kind(), ErrorKind::Header { .. }));
            let message = format!(
                "fields of a key: expected integers run_id and step_idx or step_index, found run_id 1×<u8, {name}"
            );
            assert!(error.to_string().contains(&message), "{error}");
        }
    }

    #[test]
    fn boards_of_another_type_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("steps.npy");
        for (name, dtype, values, is_valid) in [
            ("board", "<u8", 1, true),
            ("board", "<i8", 1, true),
            ("exps", "|u1", 16, true),
            ("board", ">u8", 1, false),
            ("board", "<u4", 1, false),
            ("exps", "<i8", 16, false),
        ] {
            let fields = [("run_id", "<u4", 1, 0), ("step_index", "<u4", 1, 4), (name, dtype, values, 8)];
            let fields = fields.map(|(name, dtype, values, offset)| NpyField {
                name: name.into(),
                dtype: dtype.into(),
                values,
                offset,
            });
            std::fs::write(&file, header(&fields, 8 + 8 * values, 0, 0).unwrap()).unwrap();
            let opened = StepKeys::open(&file, CancellationToken::never());
            assert_eq!(opened.is_ok(), is_valid, "{name} of {dtype}");
            assert!(opened.err().is_none_or(|error| error.to_string().contains("board of a key")));
        }
    }
}
