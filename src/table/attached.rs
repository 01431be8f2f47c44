//! Attached columns: arrays whose rows belong to the table's steps, such as the embeddings of a session.
//!
//! ```text
//!  rows      0     1     2     3    …      32 bytes each and more, in their own mapping
//!            │     ╲   ╱
//!  places    0      2 1      3      …      none where the array has the table's order, else u32 or u64 a row
//!            │      ╱ ╲
//!  values    0     1     2     3    …      D values each, in a mapping of the file or in memory
//! ```
//!
//! Invariant: each row of the table, or of the view that the column was attached to, has a place. Each place is
//! below the number of the array's rows.

#[cfg(test)]
mod tests;

use super::batch::TokenType;
use super::convert::is_reserved;
use super::gather::prefetch_bytes;
use super::keys::{Index, Key, Keys};
use super::layout::ElementType;
use super::memory::{FileIdentity, FrozenRegion};
use super::values;
use super::{BatchSchema, Pool, StepTable, TAKES_KEPT};
use crate::board::Board;
use crate::error::{Error, ErrorKind, Result};
use crate::machine::filled;
use crate::progress::{Progress, Unit, check};
use crate::step::{STEP_SIZE, Step};
use crate::workers;
use rayon::prelude::*;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// How to attach an array to a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttachOptions {
    /// The steps of the array's rows. This is a `.npy` file of records with integers `run_id` and `step_idx` or
    /// `step_index`, or a folder with `steps.npy` or its shards. `None` = the folder of the array.
    pub steps: Option<PathBuf>,
    /// Whether to read the array into memory instead of mapping it.
    pub in_memory: bool,
    /// The memory limit for an array that is read, in bytes; `None` = the memory that the system has available.
    pub memory_limit: Option<u64>,
}

impl AttachOptions {
    /// Sets the file or folder of the keys.
    #[must_use]
    pub fn with_steps(mut self, steps: impl Into<PathBuf>) -> Self {
        self.steps = Some(steps.into());
        self
    }

    /// Sets whether to read the array into memory instead of mapping it.
    #[must_use]
    pub fn with_in_memory(mut self, in_memory: bool) -> Self {
        self.in_memory = in_memory;
        self
    }

    /// Sets the memory limit for an array that is read, in bytes.
    #[must_use]
    pub fn with_memory_limit(mut self, memory_limit: u64) -> Self {
        self.memory_limit = Some(memory_limit);
        self
    }
}

/// A column of a table whose values lie in an array beside the rows; see [`StepTable::attach`].
#[derive(Clone)]
pub struct AttachedColumn {
    name: Arc<str>,
    dtype: ElementType,
    values_per_row: usize,
    /// All values, row after row of the array.
    values: Arc<FrozenRegion>,
    places: Places,
    /// The identities of the array's file and of the key files, at the time of opening.
    file: Arc<FileIdentity>,
    keys: Arc<[FileIdentity]>,
}

/// The row of the array that belongs to each row of the table.
#[derive(Clone)]
enum Places {
    /// The table's row plus this number, modulo 2^64.
    Shifted(u64),
    /// A list of places. Its first entry belongs to this row of the table.
    Narrow(u64, Arc<Vec<u32>>),
    /// As above, for arrays with more rows than a u32 counts.
    Wide(u64, Arc<Vec<u64>>),
}

/// Rows that are aligned together.
const CHUNK: u64 = 1 << 16;
/// The prefetch distance of places, in rows.
const PLACES_AHEAD: usize = 64;
/// The prefetch distance of values, in bytes.
const BYTES_AHEAD: usize = 4096;
/// The maximum prefetched bytes of one row's values. The hardware prefetcher fetches the rest.
const MAX_PREFETCH: usize = 512;

impl AttachedColumn {
    /// The column's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of the values.
    #[must_use]
    pub fn dtype(&self) -> ElementType {
        self.dtype
    }

    /// The number of values per row.
    #[must_use]
    pub fn values_per_row(&self) -> usize {
        self.values_per_row
    }

    /// The file of the values.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Whether the values are mapped from the file instead of being in memory.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.values.path().is_some()
    }

    /// The column's memory in bytes. Values that were read count. Places count four or eight bytes per row of
    /// the table, unless the array has the table's order.
    #[must_use]
    pub fn num_bytes(&self) -> u64 {
        let values = if self.is_mapped() { 0 } else { self.values.bytes().len() };
        let places = match &self.places {
            Places::Shifted(_) => 0,
            Places::Narrow(_, places) => size_of_val(&places[..]),
            Places::Wide(_, places) => size_of_val(&places[..]),
        };
        (values + places) as u64
    }

    pub(super) fn identities(&self) -> (&FileIdentity, &[FileIdentity]) {
        (&self.file, &self.keys)
    }

    /// Bytes per row.
    fn width(&self) -> usize {
        self.values_per_row * self.dtype.width()
    }

    /// Copies the values of the table's rows at `indices[range]` to `out`.
    ///
    /// # Panics
    /// If an index is out of bounds or outside of the view that the column was attached to.
    pub(super) fn gather(&self, indices: &[u64], range: Range<usize>, out: &mut [u8]) {
        match &self.places {
            Places::Shifted(by) => self.copy(indices, range, out, |_| (), |index| index.wrapping_add(*by)),
            Places::Narrow(first, places) => {
                let place = |index: u64| (index - first) as usize;
                let ahead = |index: u64| prefetch_bytes(places.as_ptr().wrapping_add(place(index)).cast());
                self.copy(indices, range, out, ahead, |index| u64::from(places[place(index)]));
            }
            Places::Wide(first, places) => {
                let place = |index: u64| (index - first) as usize;
                let ahead = |index: u64| prefetch_bytes(places.as_ptr().wrapping_add(place(index)).cast());
                self.copy(indices, range, out, ahead, |index| places[place(index)]);
            }
        }
    }

    #[inline(always)]
    fn copy(
        &self,
        indices: &[u64],
        range: Range<usize>,
        out: &mut [u8],
        prefetch_place: impl Fn(u64),
        place: impl Fn(u64) -> u64,
    ) {
        let (bytes, width) = (self.values.bytes(), self.width());
        let ahead = (BYTES_AHEAD / width).clamp(4, 16);
        let prefetch = |index: u64| {
            let row = bytes.as_ptr().wrapping_add((place(index) as usize).wrapping_mul(width));
            (0..width.min(MAX_PREFETCH)).step_by(64).for_each(|at| prefetch_bytes(row.wrapping_add(at)));
        };
        if range.start == 0 {
            indices.iter().take(PLACES_AHEAD).for_each(|&index| prefetch_place(index));
            indices.iter().take(ahead).for_each(|&index| prefetch(index));
        }
        for (k, out) in range.zip(out.chunks_exact_mut(width)) {
            if let Some(&index) = indices.get(k + PLACES_AHEAD) {
                prefetch_place(index);
            }
            if let Some(&index) = indices.get(k + ahead) {
                prefetch(index);
            }
            out.copy_from_slice(&bytes[place(indices[k]) as usize * width..][..width]);
        }
    }

    /// Advises the system that mapped values of some rows will be read soon, or not for long.
    pub(super) fn advise(&self, rows: Range<u64>, soon: bool) {
        if !self.is_mapped() {
            return;
        }
        let width = self.width() as u64;
        let advise =
            |rows: Range<u64>| self.values.advise((rows.start * width) as usize..(rows.end * width) as usize, soon);
        let listed: &mut dyn Iterator<Item = u64> = match &self.places {
            Places::Shifted(by) => return advise(rows.start.wrapping_add(*by)..rows.end.wrapping_add(*by)),
            Places::Narrow(first, places) => {
                let places = places.iter().skip(rows.start.saturating_sub(*first) as usize);
                &mut places
                    .take((rows.end - rows.start) as usize)
                    .filter(|&&row| row != u32::MAX)
                    .map(|&row| row.into())
            }
            Places::Wide(first, places) => {
                let places = places.iter().skip(rows.start.saturating_sub(*first) as usize).copied();
                &mut places.take((rows.end - rows.start) as usize).filter(|&row| row != u64::MAX)
            }
        };
        // Adjacent rows usually have adjacent values.
        let mut open: Option<Range<u64>> = None;
        for row in listed {
            match &mut open {
                Some(range) if range.end == row => range.end += 1,
                _ => open.replace(row..row + 1).into_iter().for_each(advise),
            }
        }
        open.into_iter().for_each(advise);
    }
}

impl StepTable {
    /// Returns this table with one more column, whose values lie in a `.npy` file of `[rows, D]` numbers.
    /// Batches, takes and [`column_reader`](StepTable::column_reader) have the column with D values per row,
    /// gathered in the same pass. Views and loaders of the returned table have it too. The tables share the
    /// rows. The row layout, the fingerprint, saved files ([`save`](StepTable::save)) and loader states do not
    /// include the column.
    ///
    /// A row gets the values of its step. The key file names the step of each array row by `run_id` and step
    /// index. By default the key file is `steps.npy` beside the array. If the array has the table's rows
    /// contiguously and in the same order, the column takes no memory. Otherwise it takes four bytes per row of
    /// the table, or eight if the array has 2^32 - 1 rows or more. The array may have additional rows.
    ///
    /// The elements are floats of 2, 4 or 8 bytes, integers, or **bfloat16**, which NumPy lacks. A bfloat16
    /// array has type `<u2`, and its description says so in `dtype_bits` or `dtype`. The description is a JSON
    /// object beside the array: `embeddings.json` for `embeddings.bf16.npy`. Its `D` and its type must match
    /// the array.
    ///
    /// A mapped file must not change while it is in use. Board symmetries cannot turn an attached column, so a
    /// loader rejects the combination.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if the name is taken; [`ErrorKind::Header`] if a file is not such an array, the
    /// numbers of rows differ, or the description does not match; [`ErrorKind::Column`] if the array lacks the
    /// step of a table row or has a step twice; [`ErrorKind::MemoryLimit`]; [`ErrorKind::Io`];
    /// [`ErrorKind::Cancelled`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use a2store::{AttachOptions, FromSessionOptions, StepTable};
    /// let table = StepTable::from_session("selfplay/1", &FromSessionOptions::default(), &())?;
    /// let path = "selfplay/1/embeddings.bf16.npy";
    /// let table = table.attach("embedding", path, &AttachOptions::default(), &())?;
    /// let batch = table.take(&[5, 0])?;
    /// assert_eq!(batch.column("embedding").unwrap().dtype, a2store::ElementType::BFloat16);
    /// # Ok::<(), a2store::Error>(())
    /// ```
    pub fn attach(
        &self,
        name: &str,
        path: impl AsRef<Path>,
        options: &AttachOptions,
        progress: &dyn Progress,
    ) -> Result<StepTable> {
        let is_taken = is_reserved(name)
            || self.layout.extra(name).is_some()
            || self.attached.iter().any(|column| column.name() == name);
        if is_taken || name.is_empty() {
            return Err(Error::argument("name", "an unused column name", format!("{name:?}")));
        }
        let absolute = |path: &Path| std::path::absolute(path).map_err(|error| Error::io(path, error));
        let path = absolute(path.as_ref())?;
        let steps = match &options.steps {
            Some(steps) => absolute(steps)?,
            None => super::file::parent(&path).to_owned(),
        };
        let limit = options.in_memory.then_some(options.memory_limit);
        // The array is opened first, so that a missing array is reported before an error of the folder beside
        // it.
        let file = values::File::open(&path)?;
        let column = self.column(name, file, &Keys::files(&steps)?, limit, progress);
        progress.end();
        self.with_column(column?)
    }

    /// The attached columns, in the order of attachment.
    #[must_use]
    pub fn attached(&self) -> &[AttachedColumn] {
        &self.attached
    }

    /// Aligns an array with this table by its key files. A `limit` means that the values are read into memory
    /// instead of being mapped; the inner `None` stands for the available memory.
    pub(super) fn column(
        &self,
        name: &str,
        file: values::File,
        key_files: &[PathBuf],
        limit: Option<Option<u64>>,
        progress: &dyn Progress,
    ) -> Result<AttachedColumn> {
        let keys = Keys::open(key_files)?;
        file.check_rows(keys.num_rows(), keys.path())?;
        progress.begin("attach", Unit::Rows, self.num_rows());
        let places = self.places(name, file.path(), &keys, progress)?;
        let values = match limit {
            None => file.map()?,
            Some(limit) => {
                progress.begin("read", Unit::Bytes, file.num_bytes());
                file.read(limit, progress)?
            }
        };
        Ok(AttachedColumn {
            name: name.into(),
            dtype: file.dtype(),
            values_per_row: file.values_per_row(),
            values: Arc::new(values),
            places,
            keys: keys.identities().cloned().collect(),
            file: Arc::new(file.into_identity()),
        })
    }

    pub(super) fn with_column(&self, column: AttachedColumn) -> Result<StepTable> {
        let attached: Arc<[AttachedColumn]> = self.attached.iter().cloned().chain([column]).collect();
        let batch = BatchSchema::new(&self.layout, &attached, TokenType::UInt8, None)?;
        let pool = Arc::new(Mutex::new(Pool::new(TAKES_KEPT)));
        Ok(StepTable { attached, batch: Arc::new(batch), pool, ..self.clone() })
    }

    /// Finds the array's row for each row of the table or view.
    fn places(&self, name: &str, path: &Path, keys: &Keys, progress: &dyn Progress) -> Result<Places> {
        let ranges = self.ranges();
        let (Some(first), Some(end)) = (ranges.first().map(|range| range.start), ranges.last().map(|range| range.end))
        else {
            return Ok(Places::Shifted(0));
        };
        // The index also rejects duplicate steps, even if the array has the table's order.
        let index = Index::new(keys, progress)?;
        let missing = |row: u64| {
            let before = ranges.iter().take_while(|range| range.start <= row);
            let position = before.map(|range| range.end.min(row) - range.start).sum();
            let (run_id, step) = self.key(row);
            let keys = keys.path().display();
            let found = match index.find((run_id, step), &mut 0) {
                Some(place) => format!("another board in row {place} of {keys}"),
                None => format!("none in {keys}"),
            };
            let expected = format!("a row of run {run_id}, step {step}");
            let (path, column) = (Some(path.to_owned()), name.to_owned());
            ErrorKind::Column { path, column, row: Some(position), expected, found }.into()
        };
        let start = index.find(self.key(first), &mut 0).ok_or_else(|| missing(first))?;
        let by = start.wrapping_sub(first);
        let is_shifted = |row: u64| {
            let place = row.wrapping_add(by);
            keys.get(place) == Some(self.key(row)) && keys.is_of(place, self.board(row))
        };
        let chunks =
            (first..end).step_by(CHUNK as usize).map(|start| start..end.min(start + CHUNK)).collect::<Vec<_>>();
        let threads = workers::shared()?;
        let all_shifted = threads.install(|| {
            chunks.par_iter().all(|chunk| !progress.is_cancelled() && within(&ranges, chunk).flatten().all(is_shifted))
        });
        check(progress)?;
        if all_shifted {
            return Ok(Places::Shifted(by));
        }
        match u32::try_from(keys.num_rows()) {
            // The last number stands for no place.
            Ok(_) => {
                let search = Search { keys, index: &index, missing: &missing };
                let places = self.listed(&chunks, &ranges, &search, u32::MAX, |row| row as u32, progress)?;
                Ok(Places::Narrow(first, places))
            }
            Err(_) => {
                let search = Search { keys, index: &index, missing: &missing };
                let places = self.listed(&chunks, &ranges, &search, u64::MAX, |row| row, progress)?;
                Ok(Places::Wide(first, places))
            }
        }
    }

    /// Returns the place of each row from the first chunk's start to the last one's end. Rows that the view
    /// does not show get `none`.
    fn listed<T: Copy + Send>(
        &self,
        chunks: &[Range<u64>],
        ranges: &[Range<u64>],
        search: &Search<'_>,
        none: T,
        place: impl Fn(u64) -> T + Sync,
        progress: &dyn Progress,
    ) -> Result<Arc<Vec<T>>> {
        let len = chunks.iter().map(|chunk| chunk.end - chunk.start).sum::<u64>() as usize;
        let mut places = filled(len, none)?;
        let (keys, index) = (search.keys, search.index);
        let fill = |(chunk, slots): (&Range<u64>, &mut [T])| {
            if progress.is_cancelled() {
                return None;
            }
            let mut next = 0;
            for row in within(ranges, chunk).flatten() {
                match index.find(self.key(row), &mut next) {
                    Some(found) if keys.is_of(found, self.board(row)) => {
                        slots[(row - chunk.start) as usize] = place(found);
                    }
                    _ => return Some(row),
                }
            }
            progress.advance(chunk.end - chunk.start);
            None
        };
        let first_missing = workers::shared()?
            .install(|| chunks.par_iter().zip(places.par_chunks_mut(CHUNK as usize)).filter_map(fill).min());
        check(progress)?;
        first_missing.map_or(Ok(Arc::new(places)), |row| Err((search.missing)(row)))
    }

    /// The ranges of the mapping's rows that this table or view shows.
    fn ranges(&self) -> Vec<Range<u64>> {
        match &self.selection {
            None if self.is_empty() => Vec::new(),
            None => std::iter::once(0..self.num_all_rows()).collect(),
            Some(selection) => selection.ranges().collect(),
        }
    }

    /// The key of a row of the mapping.
    #[inline]
    fn key(&self, row: u64) -> Key {
        let step = self.step_at(row);
        (step.run_id.into(), step.step_index.into())
    }

    #[inline]
    fn board(&self, row: u64) -> Board {
        self.step_at(row).board
    }

    #[inline]
    fn step_at(&self, row: u64) -> Step {
        bytemuck::pod_read_unaligned(&self.all_rows().at(row)[..STEP_SIZE])
    }
}

/// The keys and the index to search, and the error for a missing row.
struct Search<'a> {
    keys: &'a Keys,
    index: &'a Index<'a>,
    missing: &'a (dyn Fn(u64) -> Error + Sync),
}

/// The parts of ascending ranges that lie in a chunk.
fn within(ranges: &[Range<u64>], chunk: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let (start, end) = (chunk.start, chunk.end);
    let from = ranges.partition_point(|range| range.end <= start);
    let touched = ranges[from..].iter().take_while(move |range| range.start < end);
    touched.map(move |range| range.start.max(start)..range.end.min(end))
}
