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

use super::batch_schema::{ColumnSource, ColumnSpec};
use super::element::ElementType;
use super::memory::FrozenRegion;
use std::ops::Range;
use std::sync::Arc;

/// A column of a table whose values lie in an array beside the rows; see
/// [`StepTable::attach`](crate::StepTable::attach).
#[derive(Clone)]
pub struct AttachedColumn {
    pub(super) name: Arc<str>,
    pub(super) dtype: ElementType,
    pub(super) values_per_row: usize,
    /// All values, row after row of the array. There is at least one shard.
    pub(super) values: Arc<[ValueShard]>,
    pub(super) places: Places,
}

/// The values of one file of an array.
pub(super) struct ValueShard {
    /// The number of the file's first row in the array.
    pub(super) first_row: u64,
    pub(super) values: FrozenRegion,
}

/// The row of the array that belongs to each row of the table.
#[derive(Clone)]
pub(super) enum Places {
    /// The table's row plus this number, modulo 2^64.
    Shifted(u64),
    /// A list of places, u32 each. Its first entry belongs to this row of the table. Rows without a place have
    /// [`NO_PLACE`].
    Listed(u64, Arc<FrozenRegion>),
}

/// The place of a row that the view does not show.
pub(super) const NO_PLACE: u32 = u32::MAX;

impl AttachedColumn {
    /// Returns the column's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the type of the values.
    #[must_use]
    pub fn dtype(&self) -> ElementType {
        self.dtype
    }

    /// Returns the number of values per row.
    #[must_use]
    pub fn values_per_row(&self) -> usize {
        self.values_per_row
    }

    /// Returns the column's memory in bytes: four bytes per row of the table, unless the array has the table's order.
    /// The values are mapped from their files.
    #[cfg(test)]
    pub(super) fn num_bytes(&self) -> u64 {
        match &self.places {
            Places::Shifted(_) => 0,
            Places::Listed(_, places) => places.bytes().len() as u64,
        }
    }

    /// Returns whether each of these rows of the table has values.
    pub(super) fn covers(&self, rows: Range<u64>) -> bool {
        let Some(num_values) = self.num_values() else { return false };
        if rows.is_empty() {
            return true;
        }
        match &self.places {
            Places::Shifted(by) => {
                let (first, last) = (rows.start.wrapping_add(*by), (rows.end - 1).wrapping_add(*by));
                first <= last && last < num_values
            }
            Places::Listed(first, places) => {
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
    pub(super) fn specs(columns: &[AttachedColumn]) -> Vec<ColumnSpec> {
        let spec = |(index, column): (usize, &AttachedColumn)| {
            ColumnSpec::new(&column.name, column.dtype, column.values_per_row, ColumnSource::Attached(index))
        };
        columns.iter().enumerate().map(spec).collect()
    }

    /// Bytes per row.
    fn width(&self) -> usize {
        self.values_per_row * self.dtype.width()
    }

    /// Copies the values of the table's rows at `indices` to `out`.
    ///
    /// # Panics
    /// If an index is out of bounds or outside of the view that the column was attached to.
    pub(super) fn gather(&self, indices: &[u64], out: &mut [u8]) {
        let width = self.width();
        for (&index, out) in indices.iter().zip(out.chunks_exact_mut(width)) {
            let place = self.place(index);
            let shard = &self.values[self.values.partition_point(|shard| shard.first_row <= place) - 1];
            out.copy_from_slice(&shard.values.bytes()[(place - shard.first_row) as usize * width..][..width]);
        }
    }

    /// Returns the row of the array that belongs to a row of the table.
    fn place(&self, index: u64) -> u64 {
        match &self.places {
            Places::Shifted(by) => index.wrapping_add(*by),
            Places::Listed(first, places) => {
                bytemuck::cast_slice::<u8, u32>(places.bytes())[(index - first) as usize].into()
            }
        }
    }
}
