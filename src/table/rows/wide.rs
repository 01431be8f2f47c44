//! Columns that rows have only if a game of the table needs them, and filling rows again once a game needs them.
//!
//! | column | type | needed for |
//! | --- | --- | --- |
//! | `tile_65536_mask` | uint16 | boards with a tile of 65,536 |
//! | `step_index` | uint32 | steps above 65,535; it replaces the field of this name, which is then at most 65,535 |

use crate::error::{Error, Result};
use crate::run::Run;
use crate::step::{STEP_SIZE, Step};
use crate::system::process::lock;
use crate::table::rows::element::ElementType;
use crate::table::rows::layout::{ExtraField, RowLayout};
use crate::table::rows::step_column::{STEP_INDEX, TILE_MASK};
use std::sync::{Mutex, PoisonError};

/// The largest step index that a [`Step`](crate::Step) holds.
pub(in crate::table) const MAX_STEP_INDEX: u32 = u16::MAX as u32;

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

    /// Calls `attempt` with rows that have these columns. If it fails because the rows lack a column, adds the column and
    /// tries again. Few tables need a second attempt. If the rows lack no column, returns the error.
    pub(in crate::table) fn or_more<T>(mut self, mut attempt: impl FnMut(&Attempt) -> Result<T>) -> Result<T> {
        loop {
            let rows = Attempt { columns: self, lacking: Mutex::default() };
            let result = attempt(&rows);
            let lacking = rows.lacking.into_inner().unwrap_or_else(PoisonError::into_inner);
            if result.is_ok() || lacking == WideColumns::default() {
                return result;
            }
            self.masks |= lacking.masks;
            self.step_indices |= lacking.step_indices;
        }
    }
}

/// One attempt to fill rows: the wide columns that they have, and those that they turn out to lack. Threads share it.
#[derive(Debug, Default)]
pub(in crate::table) struct Attempt {
    pub(in crate::table) columns: WideColumns,
    lacking: Mutex<WideColumns>,
}

impl Attempt {
    /// Ends the attempt with an error if a row needs a mask and the rows have none.
    pub(in crate::table) fn check_mask(&self, needs_mask: bool) -> Result<()> {
        if self.columns.masks || !needs_mask {
            return Ok(());
        }
        lock(&self.lacking).masks = true;
        Err(Error::column(TILE_MASK, None, "0", "a tile of 65536"))
    }

    /// Ends the attempt with an error if the largest step index needs a column and the rows have none.
    pub(in crate::table) fn check_step_index(&self, largest: u32) -> Result<()> {
        if self.columns.step_indices || largest <= MAX_STEP_INDEX {
            return Ok(());
        }
        lock(&self.lacking).step_indices = true;
        Err(Error::column(STEP_INDEX, None, "0..=65535", largest))
    }

    /// Checks that the rows of a run need no other columns.
    pub(in crate::table) fn check(&self, run: &Run) -> Result<()> {
        self.check_mask(run.tile_65536_masks().is_some())?;
        self.check_step_index(run.last_step().map_or(0, |step| step.index))
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
