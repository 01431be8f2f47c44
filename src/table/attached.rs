//! Attached columns: values of a table's rows that lie in an array beside the rows.
//!
//! ```text
//!  rows      0     1     2     3    …      32 bytes each and more, in their own mapping
//!            │     ╲   ╱
//!  places    0      2 1      3      …      u32 a row
//!            │      ╱ ╲
//!  values    0     1     2     3    …      D values each, in a mapping of the file
//! ```
//!
//! Invariant: each row of the table, or of the view that the column was attached to, has a place. Each place is
//! below the number of the array's rows.

use super::batch_schema::{ColumnSource, ColumnSpec};
use super::element::ElementType;
use super::memory::FrozenRegion;
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
    /// The row of the array for each row of the mapping, u32 each. Rows that the view does not show have
    /// [`NO_PLACE`].
    pub(super) places: Arc<FrozenRegion>,
}

/// The values of one file of an array.
pub(super) struct ValueShard {
    /// The number of the file's first row in the array.
    pub(super) first_row: u64,
    pub(super) values: FrozenRegion,
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
        let places: &[u32] = bytemuck::cast_slice(self.places.bytes());
        for (&index, out) in indices.iter().zip(out.chunks_exact_mut(width)) {
            let place = u64::from(places[index as usize]);
            let shard = &self.values[self.values.partition_point(|shard| shard.first_row <= place) - 1];
            out.copy_from_slice(&shard.values.bytes()[(place - shard.first_row) as usize * width..][..width]);
        }
    }
}
