//! Columns that rows have only if a game of the table needs them, and filling rows again once a game needs them.
//!
//! | column | type | needed for |
//! | --- | --- | --- |
//! | `tile_65536_mask` | uint16 | boards with a tile of 65,536 |
//! | `step_index` | uint32 | steps above 65,535; it replaces the field of this name, which is then at most 65,535 |

use crate::error::{Error, ErrorKind, Result};
use crate::run::Run;
use crate::step::{STEP_SIZE, Step};
use crate::table::rows::element::ElementType;
use crate::table::rows::layout::{ExtraField, RowLayout};
use crate::table::rows::step_column::{STEP_INDEX, TILE_MASK};

/// The largest step index that a [`Step`](crate::Step) holds.
pub(in crate::table) const MAX_STEP_INDEX: u32 = u16::MAX as u32;

/// The text after `expected` in the error of a row that needs a mask, if the rows have no masks.
pub(in crate::table) const NO_MASKS: &str = "0 in rows without masks";
/// The same text for rows without the column of step indices.
pub(in crate::table) const NO_STEP_INDICES: &str = "0..=65535 in rows without this column";

/// Which of these columns the rows have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::table) struct WideColumns {
    pub(in crate::table) masks: bool,
    pub(in crate::table) step_indices: bool,
}

/// The offsets of these columns in a row.
#[derive(Clone, Copy, Debug)]
pub(in crate::table) struct WideOffsets {
    mask: Option<usize>,
    step_index: Option<usize>,
}

impl WideColumns {
    /// Returns the columns as extra columns of a row.
    pub(in crate::table) fn fields(self) -> impl Iterator<Item = ExtraField> {
        let mask = self.masks.then(|| ExtraField::new(TILE_MASK, ElementType::UInt16, 1));
        mask.into_iter().chain(self.step_indices.then(|| ExtraField::new(STEP_INDEX, ElementType::UInt32, 1)))
    }

    /// Calls `attempt` with these columns. If the error names a column that the rows lack, adds the column and tries again.
    /// Few tables need a second attempt. Any other error is returned.
    pub(in crate::table) fn or_more<T>(self, mut attempt: impl FnMut(WideColumns) -> Result<T>) -> Result<T> {
        let mut columns = self;
        loop {
            let error = match attempt(columns) {
                Ok(written) => return Ok(written),
                Err(error) => error,
            };
            match error.kind() {
                ErrorKind::Column { expected, .. } if expected == NO_MASKS && !columns.masks => columns.masks = true,
                ErrorKind::Column { expected, .. } if expected == NO_STEP_INDICES && !columns.step_indices => {
                    columns.step_indices = true;
                }
                _ => return Err(error),
            }
        }
    }

    /// Checks that the rows of a run need no other columns.
    pub(in crate::table) fn check(self, run: &Run) -> Result<()> {
        if !self.masks && run.tile_65536_masks().is_some() {
            return Err(Error::column(TILE_MASK, None, NO_MASKS, "a tile of 65536"));
        }
        let last = run.last_step().map_or(0, |step| step.index);
        if !self.step_indices && last > MAX_STEP_INDEX {
            return Err(Error::column(STEP_INDEX, None, NO_STEP_INDICES, last));
        }
        Ok(())
    }
}

impl WideOffsets {
    pub(in crate::table) fn of(layout: &RowLayout) -> WideOffsets {
        let offset = |name: &str| layout.extra(name).map(|extra| extra.offset);
        WideOffsets { mask: offset(TILE_MASK), step_index: offset(STEP_INDEX) }
    }

    /// Writes a step to the row's fields, and its mask and index to these columns.
    #[inline]
    pub(in crate::table) fn write(self, step: &Step, tile_65536_mask: u16, step_index: u32, row: &mut [u8]) {
        row[..STEP_SIZE].copy_from_slice(bytemuck::bytes_of(step));
        if let Some(offset) = self.mask {
            row[offset..offset + 2].copy_from_slice(&tile_65536_mask.to_le_bytes());
        }
        if let Some(offset) = self.step_index {
            row[offset..offset + 4].copy_from_slice(&step_index.to_le_bytes());
        }
    }
}
