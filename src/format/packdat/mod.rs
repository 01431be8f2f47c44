//! pack.dat: all steps of many runs in one file, little-endian, with quantised values and a checksum over everything.
//!
//! ```text
//!  0      4             8          12          20                28
//!  | 2048 | version = 1 | num_runs | num_steps | metadata_offset | rows, 32 × num_steps | runs … | CRC32C |
//!  | 4    | u32         | u32      | u64       | u64             |                      |        | u32    |
//!
//!  row
//!  0       8        12             16     17        18        26        32
//!  | board | run_id | index_in_run | move | ev_mask | ev_q    | padding |
//!  | u64   | u32    | u32          | u8   | u8      | u16 × 4 | 0 × 6   |
//!
//!  run
//!  0    4                8           12          20             24           26
//!  | id | first_step_idx | num_steps | max_score | highest_tile | engine_len | engine | start_time | elapsed_s |
//!  | u32| u32            | u32       | u64       | u32          | u16        | UTF-8  | u64        | f32       |
//! ```
//!
//! `metadata_offset` is the end of the rows. Runs are numbered from 0 in order. Each row holds its run and its
//! index in it, so two runs cannot share a row. Rows that belong to no run are ignored.
//!
//! **Values** are stored as `round(value × 65535)`, rounded half away from zero in single precision, and read as
//! `q / 65535`. The chosen move always has 65535, illegal moves have 0. A step without branches has an empty mask
//! and values of 0.
//!
//! An empty mask is therefore read as no branches. A mask of only the chosen move is too, if the rules allow
//! another move: the field's tools write steps without branches in that form elsewhere.
//!
//! **Omitted**: the final board, missing steps of a sampled run, unknown moves, seeds, and the difference between
//! an empty and an absent engine name.

mod reader;
mod writer;

#[cfg(test)]
mod tests;

pub(super) use reader::FORMAT;
pub use reader::PackDat;
pub use writer::PackDatWriter;

use super::rows::StepRow;
use crate::board::{Board, Move};
use crate::error::{Error, Result};
use crate::run::{Branches, RunStep};
use std::mem::offset_of;

const MAGIC: &[u8; 4] = b"2048";
const VERSION: u32 = 1;
const HEADER_LEN: usize = 28;
const CRC_LEN: usize = 4;
/// The length of a run's metadata in bytes without an engine name.
const MIN_RUN_LEN: usize = 38;

/// One step in 32 bytes, in the layout of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, packed)]
struct Row {
    board: Board,
    run_id: u32,
    index_in_run: u32,
    chosen: u8,
    ev_mask: u8,
    ev_q: [u16; 4],
    padding: [u8; 6],
}

const ROW_LEN: usize = size_of::<Row>();

const _: () = {
    assert!(cfg!(target_endian = "little"));
    assert!(size_of::<Row>() == 32);
    assert!(align_of::<Row>() == 1);
    assert!(offset_of!(Row, board) == 0);
    assert!(offset_of!(Row, run_id) == 8);
    assert!(offset_of!(Row, index_in_run) == 12);
    assert!(offset_of!(Row, chosen) == 16);
    assert!(offset_of!(Row, ev_mask) == 17);
    assert!(offset_of!(Row, ev_q) == 18);
    assert!(offset_of!(Row, padding) == 26);
};

/// The quantised value of 1.0.
const ONE: u16 = u16::MAX;

impl StepRow for Row {
    fn from_step(run_id: u64, step: &RunStep) -> Result<Row> {
        let run_id = u32::try_from(run_id).map_err(|_| Error::argument("run_id", "at most 4294967295", run_id))?;
        let Some(chosen) = step.chosen else {
            return Err(Error::argument(
                "run",
                "a run without unknown moves",
                format!("an unknown move at step {}", step.index),
            ));
        };
        let (mut ev_q, mut ev_mask) = ([0; 4], 0);
        if let Some(Branches { values, legal }) = step.branches {
            ev_mask = legal;
            for direction in Move::ALL {
                if legal & direction.bit() != 0 {
                    // The cast saturates and turns NaN into 0.
                    let quantised = (values[direction as usize] * f32::from(ONE)).round() as u16;
                    ev_q[direction as usize] = if direction == chosen { ONE } else { quantised };
                }
            }
        }
        let (board, index_in_run, chosen) = (step.board, step.index, chosen as u8);
        Ok(Row { board, run_id, index_in_run, chosen, ev_mask, ev_q, padding: [0; 6] })
    }

    fn to_step(&self) -> Result<RunStep> {
        let Some(chosen) = Move::from_index(self.chosen) else {
            return Err(Error::decode(offset_of!(Row, chosen) as u64, "move", "0..=3", self.chosen));
        };
        if self.ev_mask > 15 {
            return Err(Error::decode(offset_of!(Row, ev_mask) as u64, "ev_mask", "0..=15", self.ev_mask));
        }
        let (board, ev_q) = (self.board, self.ev_q);
        let branches = has_branches(board, chosen, self.ev_mask)
            .then(|| Branches { values: ev_q.map(|q| f32::from(q) / f32::from(ONE)), legal: self.ev_mask });
        Ok(RunStep { index: self.index_in_run, board, chosen: Some(chosen), branches })
    }
}

/// Returns whether a row with this mask is read as a step with branches. Excludes an empty mask, and a mask of
/// only the chosen move if the rules allow another move.
#[inline]
pub(super) fn has_branches(board: Board, chosen: Move, mask: u8) -> bool {
    mask != 0 && (mask != chosen.bit() || board.legal_moves() & !mask == 0)
}
