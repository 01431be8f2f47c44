//! The rows of a session: one board in 28 bytes, or in 29 bytes with its move.

use crate::board::{Move, WideBoard};
use crate::error::{Error, Result};
use crate::format::npy::NpyHeader;
use crate::format::rows::{StepRow, known_move};
use crate::format::shards::{NpyRow, ShardNumbering};
use crate::run::RunStep;
use std::mem::offset_of;

pub(super) const NUMBERING: ShardNumbering = ShardNumbering { digits: 6, first: 1 };

/// One board in 28 bytes, in the layout of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, packed)]
pub(super) struct BoardRow {
    pub(super) run_id: u64,
    pub(super) step_idx: u32,
    pub(super) exps: [u8; 16],
}

/// One board and its move in 29 bytes, in the layout of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, packed)]
pub(super) struct ActionRow {
    pub(super) row: BoardRow,
    pub(super) action: u8,
}

const _: () = {
    assert!(cfg!(target_endian = "little"));
    assert!(size_of::<BoardRow>() == 28);
    assert!(align_of::<BoardRow>() == 1);
    assert!(offset_of!(BoardRow, run_id) == 0);
    assert!(offset_of!(BoardRow, step_idx) == 8);
    assert!(offset_of!(BoardRow, exps) == 12);
    assert!(size_of::<ActionRow>() == 29);
    assert!(align_of::<ActionRow>() == 1);
    assert!(offset_of!(ActionRow, row) == 0);
    assert!(offset_of!(ActionRow, action) == 28);
};

/// A row that holds the id of its run and the index of its step in it.
pub(in crate::format) trait OfRun: NpyRow + StepRow {
    fn run_id(&self) -> u64;

    fn step_idx(&self) -> u32;
}

/// Returns whether an array with this header has the rows of a session.
pub(in crate::format) fn has_rows(header: &NpyHeader) -> bool {
    header.has_fields(BoardRow::FIELDS) || header.has_fields(ActionRow::FIELDS)
}

impl NpyRow for BoardRow {
    const FIELDS: &'static [(&'static str, &'static str, usize)] =
        &[("run_id", "<u8", 1), ("step_idx", "<u4", 1), ("exps", "|u1", 16)];
}

impl NpyRow for ActionRow {
    const FIELDS: &'static [(&'static str, &'static str, usize)] =
        &[("run_id", "<u8", 1), ("step_idx", "<u4", 1), ("exps", "|u1", 16), ("action", "|u1", 1)];
}

impl OfRun for BoardRow {
    #[inline]
    fn run_id(&self) -> u64 {
        self.run_id
    }

    #[inline]
    fn step_idx(&self) -> u32 {
        self.step_idx
    }
}

impl OfRun for ActionRow {
    #[inline]
    fn run_id(&self) -> u64 {
        self.row.run_id
    }

    #[inline]
    fn step_idx(&self) -> u32 {
        self.row.step_idx
    }
}

impl StepRow for BoardRow {
    fn from_step(run_id: u64, step: &RunStep) -> Result<BoardRow> {
        Ok(BoardRow { run_id, step_idx: step.index, exps: step.board.exps() })
    }

    fn to_step(&self) -> Result<RunStep> {
        let exps = self.exps;
        let board = WideBoard::from_exps(exps).map_err(|_| {
            let cell = exps.iter().position(|&exp| exp > 16).unwrap_or_default();
            let offset = offset_of!(BoardRow, exps) + cell;
            Error::decode(offset as u64, "exponent", "0..=16, the range of a board", exps[cell])
        })?;
        Ok(RunStep { index: self.step_idx, board, chosen: None, branches: None })
    }
}

impl StepRow for ActionRow {
    fn from_step(run_id: u64, step: &RunStep) -> Result<ActionRow> {
        let action = known_move(step)? as u8;
        Ok(ActionRow { row: BoardRow::from_step(run_id, step)?, action })
    }

    fn to_step(&self) -> Result<RunStep> {
        let step = self.row.to_step()?;
        match Move::from_index(self.action) {
            Some(chosen) => Ok(RunStep { chosen: Some(chosen), ..step }),
            None => Err(Error::decode(offset_of!(ActionRow, action) as u64, "action", "0..=3", self.action)),
        }
    }
}
