//! The row of a dataset: one step in 32 bytes.

use crate::board::{Board, Move};
use crate::error::{Error, Result};
use crate::format::npy::NpyHeader;
use crate::format::rows::{has_branches, known_move};
use crate::format::shards::{RowFields, ShardNumbering};
use crate::run::{Branches, RunStep};
use std::mem::offset_of;

pub(super) const NUMBERING: ShardNumbering = ShardNumbering { digits: 5, first: 0 };

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

const _: () = {
    assert!(cfg!(target_endian = "little"));
    assert!(size_of::<DatasetRow>() == 32);
    assert!(align_of::<DatasetRow>() == 1);
    assert!(offset_of!(DatasetRow, board) == 0);
    assert!(offset_of!(DatasetRow, chosen) == 8);
    assert!(offset_of!(DatasetRow, ev_legal) == 9);
    assert!(offset_of!(DatasetRow, ev_values) == 10);
    assert!(offset_of!(DatasetRow, run_id) == 26);
    assert!(offset_of!(DatasetRow, step_index) == 30);
};

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
        let step_index = step.index as u16;
        let chosen = known_move(step)?;
        let (mut ev_values, mut ev_legal) = ([0.0; 4], 0);
        if let Some(Branches { values, legal }) = step.branches {
            ev_legal = legal;
            for direction in Move::ALL {
                if legal & direction.bit() != 0 {
                    let value = values[direction as usize];
                    ev_values[direction as usize] = if direction == chosen { 1.0 } else { value };
                }
            }
        }
        Ok(DatasetRow { board: step.narrow_board()?, chosen: chosen as u8, ev_legal, ev_values, run_id, step_index })
    }

    /// Returns the step in the row at a place of its run. A row stores the lowest 16 bits of the step's index. Other
    /// stored indices are returned as they are.
    #[inline]
    pub(super) fn to_step(self, place: usize) -> Result<RunStep> {
        let Some(chosen) = Move::from_index(self.chosen) else {
            return Err(Error::decode(offset_of!(DatasetRow, chosen) as u64, "move", "0..=3", self.chosen));
        };
        if self.ev_legal > 15 {
            return Err(Error::decode(offset_of!(DatasetRow, ev_legal) as u64, "ev_legal", "0..=15", self.ev_legal));
        }
        let board = self.board;
        let branches = has_branches(board, chosen, self.ev_legal)
            .then_some(Branches { values: self.ev_values, legal: self.ev_legal });
        let index = if self.step_index == place as u16 { place as u32 } else { u32::from(self.step_index) };
        Ok(RunStep { index, board: board.into(), chosen: Some(chosen), branches })
    }
}
