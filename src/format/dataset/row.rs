//! The row of a dataset: one step in 32 bytes.

use crate::board::Board;
use crate::error::Result;
use crate::format::files::mapped_rows::{FileNumbering, RowFields};
use crate::format::files::npy::NpyHeader;
use crate::format::rows::{row_branches, row_step};
use crate::run::RunStep;
use std::mem::offset_of;

pub(super) const NUMBERING: FileNumbering = FileNumbering { digits: 5, first: 0 };

/// One step in 32 bytes, in the layout of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, packed)]
pub(super) struct DatasetRow {
    pub(super) board: Board,
    pub(super) chosen: u8,
    pub(super) ev_legal: u8,
    pub(super) ev_values: [f32; 4],
    pub(super) run_id: u32,
    pub(super) step_index: u16,
}

pub(super) const ROW_LEN: usize = size_of::<DatasetRow>();

const _: () = assert!(size_of::<DatasetRow>() == 32);

/// Returns the layout of the rows.
pub(super) fn fields() -> RowFields {
    RowFields::packed(&[
        ("board", "<u8", 1),
        ("move", "|u1", 1),
        ("ev_legal", "|u1", 1),
        ("ev_values", "<f4", 4),
        ("run_id", "<u4", 1),
        ("step_index", "<u2", 1),
    ])
}

/// Returns whether an array with this header has the rows of a dataset.
pub(in crate::format) fn has_rows(header: &NpyHeader) -> bool {
    fields().are_of(header)
}

impl DatasetRow {
    #[inline]
    pub(super) fn from_step(run_id: u32, step: &RunStep) -> Result<DatasetRow> {
        let (chosen, ev_legal, ev_values) = row_branches(step)?;
        let (board, chosen, step_index) = (step.narrow_board()?, chosen as u8, step.index as u16);
        Ok(DatasetRow { board, chosen, ev_legal, ev_values, run_id, step_index })
    }

    /// Returns the step in the row at a place of its run. A row stores the lowest 16 bits of the step's index. Other
    /// stored indices are returned as they are.
    #[inline]
    pub(super) fn to_step(self, place: usize) -> Result<RunStep> {
        let index = if self.step_index == place as u16 { place as u32 } else { u32::from(self.step_index) };
        let fields = ("ev_legal", offset_of!(DatasetRow, chosen), offset_of!(DatasetRow, ev_legal));
        row_step(index, self.board, (self.chosen, self.ev_legal), self.ev_values, fields)
    }
}
