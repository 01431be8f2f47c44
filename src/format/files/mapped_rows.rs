//! Reading rows from NumPy files: `steps.npy`, or its numbered shards as one sequence of rows.

use crate::error::{Error, Result};
use crate::format::files::mapped::{header_error, map_file};
use crate::format::files::npy::{NpyField, NpyHeader};
use memmap2::Mmap;
use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The file name of an unsharded dataset.
pub(in crate::format) const SINGLE: &str = "steps.npy";
/// The file name of the metadata of a dataset or a session.
pub(in crate::format) const METADATA: &str = "metadata.db";

// Rows are read and written in memory as the files have them: little-endian and without padding.
const _: () = assert!(cfg!(target_endian = "little"));

/// The fields of a row, and its size in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::format) struct RowFields {
    pub(in crate::format) fields: Vec<NpyField>,
    pub(in crate::format) stride: usize,
}

impl RowFields {
    /// Returns rows without gaps from the name, type and number of values of each field.
    pub(in crate::format) fn packed(fields: &[(&str, &str, usize)]) -> RowFields {
        let fields = NpyField::packed(fields);
        let stride = fields.last().map_or(0, |last| last.offset + last.num_bytes().unwrap_or(0));
        RowFields { fields, stride }
    }

    /// Returns whether an array with this header has these rows.
    pub(in crate::format) fn are_of(&self, header: &NpyHeader) -> bool {
        header.fields == self.fields && header.stride == self.stride
    }
}

/// The naming of shards, such as `steps-00000.npy`.
#[derive(Clone, Copy, Debug)]
pub(in crate::format) struct FileNumbering {
    pub(in crate::format) digits: usize,
    pub(in crate::format) first: u64,
}

impl FileNumbering {
    pub(in crate::format) fn name(self, number: u64) -> String {
        format!("steps-{number:0digits$}.npy", digits = self.digits)
    }
}

/// All rows of a folder, memory-mapped.
#[derive(Debug)]
pub(in crate::format) struct MappedRows {
    shards: Vec<MappedFile>,
    num_rows: u64,
    stride: usize,
}

#[derive(Debug)]
struct MappedFile {
    path: PathBuf,
    bytes: Mmap,
    header_len: usize,
    first_row: u64,
    num_rows: u64,
}

/// Returns the row files of a folder in order: `steps.npy`, or its shards. Shards must be numbered from 0 or 1
/// without a gap.
pub(crate) fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    numbered_files(folder, "steps", "rows of the steps")
}

/// Returns the files with this stem, as [`files_in`] does for `steps`. Errors name the files `what`.
pub(crate) fn numbered_files(folder: &Path, stem: &str, what: &'static str) -> Result<Vec<PathBuf>> {
    let single = format!("{stem}.npy");
    let io = |source| Error::io(folder, source);
    let mut shards = Vec::new();
    let mut has_single = false;
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let Some(name) = name.to_str() else { continue };
        has_single |= name == single;
        let rest = name.strip_prefix(stem).and_then(|rest| rest.strip_prefix('-'));
        let digits = rest.and_then(|rest| rest.strip_suffix(".npy"));
        if let Some(digits) = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
            && let Ok(number) = digits.parse::<u64>()
        {
            shards.push((number, folder.join(name)));
        }
    }
    shards.sort_unstable();
    let refuse = |expected: &str, found: String| Err(header_error(what, expected, found, folder));
    let name_of = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if has_single {
        if let Some((_, path)) = shards.first() {
            return refuse(&format!("{single} or shards of it, not both"), format!("{} too", name_of(path)));
        }
        return Ok(vec![folder.join(single)]);
    }
    match shards.first() {
        None => return refuse(&format!("{single} or shards of it"), "neither".into()),
        Some((2.., path)) => return refuse("shards numbered from 0 or 1", name_of(path)),
        Some(_) => {}
    }
    for pair in shards.windows(2) {
        if let [(number, _), (next, path)] = pair
            && number.checked_add(1) != Some(*next)
        {
            return refuse(&format!("shard {} after shard {number}", number.saturating_add(1)), name_of(path));
        }
    }
    Ok(shards.into_iter().map(|(_, path)| path).collect())
}

impl MappedRows {
    /// Opens the files. All must have the first of these layouts that the first file has.
    pub(in crate::format) fn open(files: Vec<PathBuf>, layouts: &[RowFields]) -> Result<MappedRows> {
        let mut layouts = layouts;
        let (mut shards, mut num_rows) = (Vec::with_capacity(files.len()), 0_u64);
        for path in files {
            let bytes = map_file(&path)?;
            let located = |error: Error| error.of_header().with_path(&path);
            let header = NpyHeader::parse(&bytes).map_err(located)?;
            let Some(layout) = layouts.iter().find(|layout| layout.are_of(&header)) else {
                let expected = layouts.first().map_or(String::new(), |layout| NpyField::shown(&layout.fields));
                return Err(located(Error::decode(10, "fields of a row", expected, header.shown())));
            };
            layouts = std::slice::from_ref(layout);
            header.check_file_len(bytes.len() as u64).map_err(located)?;
            let first_row = num_rows;
            // This cannot overflow, because each row takes bytes of a mapped file.
            num_rows += header.num_rows;
            let (header_len, num_rows) = (header.len as usize, header.num_rows);
            shards.push(MappedFile { path, bytes, header_len, first_row, num_rows });
        }
        Ok(MappedRows { shards, num_rows, stride: layouts.first().map_or(1, |layout| layout.stride) })
    }

    pub(in crate::format) fn num_rows(&self) -> u64 {
        self.num_rows
    }

    /// Returns the size of a row in bytes.
    pub(in crate::format) fn stride(&self) -> usize {
        self.stride
    }

    /// Returns all rows in order.
    pub(in crate::format) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.shards.iter().flat_map(|shard| shard.rows().chunks_exact(self.stride))
    }

    /// Returns the path, the first row and the number of rows of each file.
    pub(in crate::format) fn parts(&self) -> impl Iterator<Item = (&Path, u64, u64)> {
        self.shards.iter().map(|shard| (shard.path.as_path(), shard.first_row, shard.num_rows))
    }

    /// Returns the path and the bytes of each file.
    pub(in crate::format) fn files(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.shards.iter().map(|shard| (shard.path.as_path(), &shard.bytes[..]))
    }

    /// Returns the bytes of a range of rows, or `None` if it exceeds the rows. Copies rows only if the range spans
    /// several shards.
    pub(in crate::format) fn rows(&self, range: Range<u64>) -> Option<Cow<'_, [u8]>> {
        if range.start > range.end || range.end > self.num_rows {
            return None;
        }
        let part = |shard: &MappedFile| {
            let from = range.start.max(shard.first_row) - shard.first_row;
            let to = range.end.min(shard.first_row + shard.num_rows) - shard.first_row;
            from as usize * self.stride..to as usize * self.stride
        };
        let spanned = self.shards.iter().skip(self.place_of(range.start));
        let spanned = spanned.take_while(|shard| shard.first_row < range.end);
        let parts = spanned.map(|shard| shard.rows().get(part(shard))).collect::<Option<Vec<&[u8]>>>()?;
        Some(match parts.as_slice() {
            &[part] => Cow::Borrowed(part),
            _ => Cow::Owned(parts.concat()),
        })
    }

    /// Returns the bytes of a row, or `None` after the last row.
    #[inline]
    pub(in crate::format) fn row(&self, number: u64) -> Option<&[u8]> {
        let shard = self.shards.get(self.place_of(number))?;
        let start = (number - shard.first_row) as usize * self.stride;
        shard.rows().get(start..start + self.stride)
    }

    /// Returns the file of a row, and the byte offset of the row in it.
    pub(in crate::format) fn place(&self, row: u64) -> Option<(&Path, u64)> {
        let shard = self.shards.get(self.place_of(row))?;
        Some((&shard.path, shard.header_len as u64 + (row - shard.first_row) * self.stride as u64))
    }

    /// Returns the place of the shard that holds a row; the number of shards after the last row.
    #[inline]
    fn place_of(&self, row: u64) -> usize {
        self.shards.partition_point(|shard| shard.first_row + shard.num_rows <= row)
    }

    /// Adds the run, the file and the offset in the file to an error about a run's rows. The error's offset counts
    /// from the run's first row, and `number` returns the number of the run's n-th row.
    #[cold]
    pub(in crate::format) fn in_run(&self, error: Error, run: u64, number: impl FnOnce(u64) -> u64) -> Error {
        error.located(|location| {
            let (offset, stride) = (location.offset.unwrap_or_default(), self.stride as u64);
            location.run = Some(run);
            if let Some((path, start)) = self.place(number(offset / stride)) {
                location.offset = Some(start + offset % stride);
                location.path = Some(path.to_owned());
            }
        })
    }
}

impl MappedFile {
    fn rows(&self) -> &[u8] {
        // `open` checked that the file ends with the last row.
        self.bytes.get(self.header_len..).unwrap_or_default()
    }
}

/// Returns the part of a row at an offset. Rows have alignment 1, and a layout of [`MappedRows::open`] has room for it.
#[inline]
pub(in crate::format) fn part_of<T: bytemuck::Pod>(row: &[u8], offset: usize) -> &T {
    const { assert!(align_of::<T>() == 1) };
    bytemuck::from_bytes(&row[offset..offset + size_of::<T>()])
}
