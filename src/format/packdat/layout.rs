//! The fixed parts of pack.dat: its constants, and its row with one step in 32 bytes.

use crate::board::Board;
use crate::error::Result;
use crate::format::rows::{row_branches, row_step};
use crate::run::RunStep;
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

const _: () = assert!(size_of::<PackDatRow>() == 32);

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
        let (chosen, ev_mask, values) = row_branches(step)?;
        let (board, index_in_run, ev_q) = (step.narrow_board()?, step.index, values.map(quantised));
        Ok(PackDatRow { board, run_id, index_in_run, chosen: chosen as u8, ev_mask, ev_q, padding: [0; 6] })
    }

    #[inline]
    pub(super) fn to_step(self) -> Result<RunStep> {
        let ev_q = self.ev_q;
        let values = ev_q.map(|q| f32::from(q) / f32::from(ONE));
        let fields = ("ev_mask", offset_of!(PackDatRow, chosen), offset_of!(PackDatRow, ev_mask));
        row_step(self.index_in_run, self.board, (self.chosen, self.ev_mask), values, fields)
    }
}
