//! Reading rows from NumPy files: `steps.npy`, or its numbered shards as one sequence of rows.

use super::mapped::FileBytes;
use super::npy::{NpyField, NpyHeader};
use crate::error::{Error, ErrorKind, Result};
use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The file name of an unsharded dataset.
pub(super) const SINGLE: &str = "steps.npy";
/// The file name of the metadata of a dataset or a session.
pub(super) const METADATA: &str = "metadata.db";

/// A row of a NumPy file. Its alignment is 1, so that rows may start at any offset.
pub(super) trait NpyRow: bytemuck::Pod {
    /// The name, type and number of values of each field.
    const FIELDS: &'static [(&'static str, &'static str, usize)];

    /// Returns the fields with their offsets. A row with padding overrides this.
    fn fields() -> Vec<NpyField> {
        NpyField::packed(Self::FIELDS)
    }
}

/// The naming of shards, such as `steps-00000.npy`.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShardNumbering {
    pub(super) digits: usize,
    pub(super) first: u64,
}

impl ShardNumbering {
    pub(super) fn name(self, number: u64) -> String {
        format!("steps-{number:0digits$}.npy", digits = self.digits)
    }
}

/// All rows of a folder, memory-mapped.
#[derive(Debug)]
pub(super) struct RowShards<R> {
    shards: Vec<RowShard>,
    num_rows: u64,
    rows: PhantomData<fn() -> R>,
}

#[derive(Debug)]
struct RowShard {
    path: PathBuf,
    bytes: FileBytes,
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
    if has_single {
        if let Some((_, path)) = shards.first() {
            let found = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            return refuse(&format!("{single} or shards of it, not both"), format!("{found} too"));
        }
        return Ok(vec![folder.join(single)]);
    }
    match shards.first() {
        None => return refuse(&format!("{single} or shards of it"), "neither".into()),
        Some((2.., path)) => {
            let found = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            return refuse("shards numbered from 0 or 1", found);
        }
        Some(_) => {}
    }
    for pair in shards.windows(2) {
        if let [(number, _), (next, path)] = pair
            && number.checked_add(1) != Some(*next)
        {
            let found = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            return refuse(&format!("shard {} after shard {number}", number.saturating_add(1)), found);
        }
    }
    Ok(shards.into_iter().map(|(_, path)| path).collect())
}

impl<R: NpyRow> RowShards<R> {
    pub(super) fn open(files: Vec<PathBuf>) -> Result<RowShards<R>> {
        const { assert!(align_of::<R>() == 1) };
        let fields = R::fields();
        let (mut shards, mut num_rows) = (Vec::with_capacity(files.len()), 0_u64);
        for path in files {
            let bytes = FileBytes::map(&path)?;
            let located = |error: Error| error.of_header().with_path(&path);
            let header = NpyHeader::parse(&bytes).map_err(located)?;
            if header.fields != fields || header.stride != size_of::<R>() {
                let error = Error::decode(10, "fields of a row", NpyField::shown(&fields), header.shown());
                return Err(located(error));
            }
            header.check_file_len(bytes.len() as u64).map_err(located)?;
            let first_row = num_rows;
            // This cannot overflow, because each row takes bytes of a mapped file.
            num_rows += header.num_rows;
            shards.push(RowShard {
                path,
                bytes,
                header_len: header.len as usize,
                first_row,
                num_rows: header.num_rows,
            });
        }
        Ok(RowShards { shards, num_rows, rows: PhantomData })
    }

    pub(super) fn num_rows(&self) -> u64 {
        self.num_rows
    }

    /// Returns the rows, one slice per shard.
    pub(super) fn slices(&self) -> impl Iterator<Item = &[R]> {
        self.shards.iter().map(RowShard::rows)
    }

    /// Returns the number of rows in the largest shard.
    pub(super) fn max_shard_rows(&self) -> u64 {
        self.shards.iter().map(|shard| shard.num_rows).max().unwrap_or(0)
    }

    /// Returns whether all rows are in one `steps.npy`.
    pub(super) fn is_single(&self) -> bool {
        self.shards.iter().all(|shard| shard.path.ends_with(SINGLE))
    }

    /// Returns the number of the next shard.
    pub(super) fn next_number(&self) -> u64 {
        let stems = self.shards.iter().filter_map(|shard| shard.path.file_stem()?.to_str());
        let numbers = stems.filter_map(|stem| stem.strip_prefix("steps-")?.parse::<u64>().ok());
        numbers.max().map_or(0, |last| last.saturating_add(1))
    }

    /// Returns the path, the first row and the number of rows of each file.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&Path, u64, u64)> {
        self.shards.iter().map(|shard| (shard.path.as_path(), shard.first_row, shard.num_rows))
    }

    /// Returns the path and the bytes of each file.
    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.shards.iter().map(|shard| (shard.path.as_path(), &shard.bytes[..]))
    }

    /// Returns the rows of a range, or `None` if it exceeds the rows. Copies rows only if the range spans several
    /// shards.
    pub(super) fn rows(&self, range: Range<u64>) -> Option<Cow<'_, [R]>> {
        if range.start > range.end || range.end > self.num_rows {
            return None;
        }
        let at = self.shards.partition_point(|shard| shard.first_row + shard.num_rows <= range.start);
        let Some(shard) = self.shards.get(at) else {
            return range.is_empty().then_some(Cow::Borrowed(&[]));
        };
        let part = |shard: &RowShard| {
            let from = range.start.max(shard.first_row) - shard.first_row;
            let to = range.end.min(shard.first_row + shard.num_rows).saturating_sub(shard.first_row);
            from as usize..to as usize
        };
        if range.end <= shard.first_row + shard.num_rows {
            return shard.rows::<R>().get(part(shard)).map(Cow::Borrowed);
        }
        let mut rows = Vec::with_capacity((range.end - range.start) as usize);
        for shard in self.shards.get(at..)? {
            if shard.first_row >= range.end {
                break;
            }
            rows.extend_from_slice(shard.rows::<R>().get(part(shard))?);
        }
        Some(Cow::Owned(rows))
    }

    /// Returns a row, or `None` after the last row.
    #[inline]
    pub(super) fn row(&self, number: u64) -> Option<&R> {
        let shard = match &self.shards[..] {
            [only] => only,
            shards => shards.get(shards.partition_point(|shard| shard.first_row + shard.num_rows <= number))?,
        };
        shard.rows().get((number - shard.first_row) as usize)
    }

    /// Returns the file of a row, and the byte offset of the row in it.
    pub(super) fn place(&self, row: u64) -> Option<(&Path, u64)> {
        let at = self.shards.partition_point(|shard| shard.first_row + shard.num_rows <= row);
        let shard = self.shards.get(at)?;
        let before = row.checked_sub(shard.first_row)?;
        Some((&shard.path, shard.header_len as u64 + before * size_of::<R>() as u64))
    }

    /// Adds the run, the file and the offset in the file to an error about a run's rows. The error's offset counts
    /// from the run's first row, and `number` returns the number of the run's n-th row.
    #[cold]
    pub(super) fn in_run(&self, error: Error, run: u64, number: impl FnOnce(u64) -> u64) -> Error {
        match error.into_kind() {
            ErrorKind::Decode { mut location, what, expected, found } => {
                let (offset, stride) = (location.offset.unwrap_or_default(), size_of::<R>() as u64);
                location.run = Some(run);
                if let Some((path, start)) = self.place(number(offset / stride)) {
                    location.offset = Some(start + offset % stride);
                    location.path = Some(path.to_owned());
                }
                ErrorKind::Decode { location, what, expected, found }.into()
            }
            other => other.into(),
        }
    }
}

impl RowShard {
    fn rows<R: NpyRow>(&self) -> &[R] {
        // `open` checked that the file ends with the last row, and rows have alignment 1.
        bytemuck::cast_slice(self.bytes.get(self.header_len..).unwrap_or_default())
    }
}

/// Returns a header error about a file or folder as a whole.
#[cold]
pub(crate) fn header_error(what: &'static str, expected: impl Into<String>, found: String, path: &Path) -> Error {
    let location = crate::error::Location { path: Some(path.to_owned()), ..Default::default() };
    ErrorKind::Header { location, what, expected: expected.into(), found }.into()
}
