//! Attached columns: values of a table's rows that lie in an array beside the rows.
//!
//! ```text
//!  rows      0     1     2     3    …      32 bytes each and more, in their own mapping
//!            │     ╲   ╱
//!  places    0      2 1      3      …      none where the array has the table's order, else u32 a row
//!            │      ╱ ╲
//!  values    0     1     2     3    …      D values each, in a mapping of the file
//! ```
//!
//! Invariant: each row of the table, or of the view that the column was attached to, has a place. Each place is
//! below the number of the array's rows.

use crate::table::gather::batch_schema::{ColumnSource, ColumnSpec};
use crate::table::gather::prefetch::prefetch_line;
use crate::table::rows::element::ElementType;
use crate::table::rows::memory::FrozenRegion;
use std::ops::Range;
use std::sync::Arc;

/// A column of a table whose values lie in an array beside the rows; see
/// [`StepTable::attach`](crate::StepTable::attach).
#[derive(Clone)]
pub struct AttachedColumn {
    pub(in crate::table) name: Arc<str>,
    pub(in crate::table) dtype: ElementType,
    pub(in crate::table) values_per_row: usize,
    /// All values, row after row of the array. There is at least one shard.
    pub(in crate::table) values: Arc<[ValueFile]>,
    pub(in crate::table) places: RowPlaces,
}

/// The values of one file of an array.
pub(in crate::table) struct ValueFile {
    /// The number of the file's first row in the array.
    pub(in crate::table) first_row: u64,
    pub(in crate::table) values: FrozenRegion,
}

/// The row of the array that belongs to each row of the table.
#[derive(Clone)]
pub(in crate::table) enum RowPlaces {
    /// The table's row plus this number, modulo 2^64.
    Shifted(u64),
    /// A list of places, u32 each. Its first entry belongs to this row of the table. Rows without a place have
    /// [`NO_PLACE`].
    Listed(u64, Arc<FrozenRegion>),
}

/// The place of a row that the view does not show.
pub(in crate::table) const NO_PLACE: u32 = u32::MAX;

/// The prefetch distance of places, in rows.
const PLACES_AHEAD: usize = 64;
/// The prefetch distance of values, in bytes.
const BYTES_AHEAD: usize = 4096;
/// The maximum prefetched bytes of one row's values. The hardware prefetcher fetches the rest.
const MAX_PREFETCH: usize = 512;

impl AttachedColumn {
    /// Returns the column's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether each of these rows of the table has values.
    pub(in crate::table) fn covers(&self, rows: Range<u64>) -> bool {
        let Some(num_values) = self.num_values() else { return false };
        if rows.is_empty() {
            return true;
        }
        match &self.places {
            RowPlaces::Shifted(by) => {
                let (first, last) = (rows.start.wrapping_add(*by), (rows.end - 1).wrapping_add(*by));
                first <= last && last < num_values
            }
            RowPlaces::Listed(first, places) => {
                let Ok(places) = bytemuck::try_cast_slice::<u8, u32>(places.bytes()) else { return false };
                let is_long = rows.start >= *first && rows.end - *first <= places.len() as u64;
                is_long && places.iter().all(|&place| u64::from(place) < num_values || place == NO_PLACE)
            }
        }
    }

    /// Returns the number of rows of the values, if they are whole and follow each other.
    fn num_values(&self) -> Option<u64> {
        let width = self.width();
        self.values.iter().try_fold(0, |num_rows, shard| {
            let len = shard.values.bytes().len();
            (shard.first_row == num_rows && width > 0 && len % width == 0).then(|| num_rows + (len / width) as u64)
        })
    }

    /// Returns the descriptions of a table's attached columns for the schema of its batches.
    pub(in crate::table) fn specs(columns: &[AttachedColumn]) -> Vec<ColumnSpec> {
        let spec = |(index, column): (usize, &AttachedColumn)| {
            ColumnSpec::new(&column.name, column.dtype, column.values_per_row, ColumnSource::Attached(index))
        };
        columns.iter().enumerate().map(spec).collect()
    }

    /// Bytes per row.
    fn width(&self) -> usize {
        self.values_per_row * self.dtype.width()
    }

    /// Copies the values of the table's rows at `indices[range]` to `out`.
    ///
    /// # Panics
    /// If an index is out of bounds or outside of the view that the column was attached to.
    pub(in crate::table) fn gather(&self, indices: &[u64], range: Range<usize>, out: &mut [u8]) {
        match &self.places {
            RowPlaces::Shifted(by) => self.copy(indices, range, out, |_| (), |index| index.wrapping_add(*by)),
            RowPlaces::Listed(first, places) => {
                let places: &[u32] = bytemuck::cast_slice(places.bytes());
                let place = |index: u64| (index - first) as usize;
                let ahead = |index: u64| prefetch_line(places.as_ptr().wrapping_add(place(index)).cast());
                self.copy(indices, range, out, ahead, |index| u64::from(places[place(index)]));
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
        match &self.values[..] {
            [only] => {
                let bytes = only.values.bytes();
                self.copy_from(indices, range, out, prefetch_place, |index| (bytes, place(index)));
            }
            shards => self.copy_from(indices, range, out, prefetch_place, |index| {
                let row = place(index);
                let shard = &shards[shards.partition_point(|shard| shard.first_row <= row) - 1];
                (shard.values.bytes(), row - shard.first_row)
            }),
        }
    }

    /// Copies values. `place` returns the bytes of a file and the row in it.
    #[inline(always)]
    fn copy_from<'a>(
        &self,
        indices: &[u64],
        range: Range<usize>,
        out: &mut [u8],
        prefetch_place: impl Fn(u64),
        place: impl Fn(u64) -> (&'a [u8], u64),
    ) {
        let width = self.width();
        let ahead = (BYTES_AHEAD / width).clamp(4, 16);
        let prefetch = |index: u64| {
            let (bytes, row) = place(index);
            let row = bytes.as_ptr().wrapping_add((row as usize).wrapping_mul(width));
            (0..width.min(MAX_PREFETCH)).step_by(64).for_each(|at| prefetch_line(row.wrapping_add(at)));
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
            let (bytes, row) = place(indices[k]);
            out.copy_from_slice(&bytes[row as usize * width..][..width]);
        }
    }

    /// Advises the system that mapped values of some rows will be read soon, or not for long.
    pub(in crate::table) fn advise(&self, rows: Range<u64>, soon: bool) {
        let width = self.width() as u64;
        let advise = |rows: Range<u64>| {
            for (k, ValueFile { first_row, values }) in self.values.iter().enumerate() {
                let end = self.values.get(k + 1).map_or(u64::MAX, |next| next.first_row);
                let own = rows.start.max(*first_row)..rows.end.min(end);
                if own.start < own.end {
                    let (start, end) = (own.start - first_row, own.end - first_row);
                    values.advise((start * width) as usize..(end * width) as usize, soon);
                }
            }
        };
        match &self.places {
            RowPlaces::Shifted(by) => advise(rows.start.wrapping_add(*by)..rows.end.wrapping_add(*by)),
            RowPlaces::Listed(first, places) => {
                let places: &[u32] = bytemuck::cast_slice(places.bytes());
                let places = &places[rows.start.saturating_sub(*first) as usize..];
                let places = &places[..places.len().min((rows.end - rows.start) as usize)];
                // Adjacent rows usually have adjacent values.
                for run in places.chunk_by(|a, b| a.checked_add(1) == Some(*b)).filter(|run| run[0] != NO_PLACE) {
                    advise(run[0].into()..u64::from(run[0]) + run.len() as u64);
                }
            }
        }
    }
}
