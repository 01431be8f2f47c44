//! The fixed parts of pack.dat: its constants, and its row with one step in 32 bytes.

use crate::board::{Board, Move};
use crate::error::{Error, Result};
use crate::format::rows::{has_branches, known_move};
use crate::run::{Branches, RunStep};
use std::mem::offset_of;

pub(super) const MAGIC: &[u8; 4] = b"2048";
pub(super) const VERSION: u32 = 1;
/// The first bytes of a file: the magic and the version.
pub(in crate::format) const PREFIX: &[u8; 8] = b"2048\x01\0\0\0";
pub(super) const HEADER_LEN: usize = 28;
pub(super) const CRC_LEN: usize = 4;
/// The length of a run's metadata in bytes without an engine name.
pub(super) const MIN_RUN_LEN: usize = 38;

/// One step in 32 bytes, in the layout of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, packed)]
pub(super) struct PackDatRow {
    pub(super) board: Board,
    pub(super) run_id: u32,
    pub(super) index_in_run: u32,
    pub(super) chosen: u8,
    pub(super) ev_mask: u8,
    pub(super) ev_q: [u16; 4],
    pub(super) padding: [u8; 6],
}

pub(super) const ROW_LEN: usize = size_of::<PackDatRow>();

const _: () = {
    assert!(cfg!(target_endian = "little"));
    assert!(size_of::<PackDatRow>() == 32);
    assert!(align_of::<PackDatRow>() == 1);
    assert!(offset_of!(PackDatRow, board) == 0);
    assert!(offset_of!(PackDatRow, run_id) == 8);
    assert!(offset_of!(PackDatRow, index_in_run) == 12);
    assert!(offset_of!(PackDatRow, chosen) == 16);
    assert!(offset_of!(PackDatRow, ev_mask) == 17);
    assert!(offset_of!(PackDatRow, ev_q) == 18);
    assert!(offset_of!(PackDatRow, padding) == 26);
};

/// The quantised value of 1.0.
const ONE: u16 = u16::MAX;

/// Returns the stored form of a value. As in another writer of this format, NaN and infinities become 0.
fn quantised(value: f32) -> u16 {
    let value = if value.is_finite() { value.clamp(0.0, 1.0) } else { 0.0 };
    // The sum is at most 65535.5, and the cast rounds down.
    (value * f32::from(ONE) + 0.5) as u16
}

impl PackDatRow {
    #[inline]
    pub(super) fn from_step(run_id: u32, step: &RunStep) -> Result<PackDatRow> {
        let chosen = known_move(step)?;
        let (mut ev_q, mut ev_mask) = ([0; 4], 0);
        if let Some(Branches { values, legal }) = step.branches {
            ev_mask = legal;
            for direction in Move::ALL {
                if legal & direction.bit() != 0 {
                    let value = values[direction as usize];
                    ev_q[direction as usize] = if direction == chosen { ONE } else { quantised(value) };
                }
            }
        }
        let (board, index_in_run, chosen) = (step.narrow_board()?, step.index, chosen as u8);
        Ok(PackDatRow { board, run_id, index_in_run, chosen, ev_mask, ev_q, padding: [0; 6] })
    }

    #[inline]
    pub(super) fn to_step(&self) -> Result<RunStep> {
        let Some(chosen) = Move::from_index(self.chosen) else {
            return Err(Error::decode(offset_of!(PackDatRow, chosen) as u64, "move", "0..=3", self.chosen));
        };
        if self.ev_mask > 15 {
            return Err(Error::decode(offset_of!(PackDatRow, ev_mask) as u64, "ev_mask", "0..=15", self.ev_mask));
        }
        let (board, ev_q) = (self.board, self.ev_q);
        let branches = has_branches(board, chosen, self.ev_mask)
            .then(|| Branches { values: ev_q.map(|q| f32::from(q) / f32::from(ONE)), legal: self.ev_mask });
        Ok(RunStep { index: self.index_in_run, board: board.into(), chosen: Some(chosen), branches })
    }
}
