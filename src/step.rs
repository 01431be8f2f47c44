//! The row of a [`StepTable`](crate::StepTable): one step in 32 bytes.
//!
//! ```text
//!  0        8                        24       28    30     31     32
//!  | board  | up | down | left | right | run_id | step | move | mask |
//!  | u64    | f32 × 4                  | u32    | u16  | u8   | u8   |
//! ```
//!
//! Two rows fill a cache line of 64 bytes and no row crosses one, so reading a random row fetches exactly one line.

use crate::board::Board;
use std::mem::offset_of;

/// One step of a run: the board, the chosen move, and the engine's values of the four moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Step {
    /// The board before the move.
    pub board: Board,
    /// The values of up, down, left and right: 0.0 if the move is illegal, four NaNs if the engine recorded none.
    pub ev_values: [f32; 4],
    /// The id of the run in the archive.
    pub run_id: u32,
    /// The index of the step in its run, from 0.
    pub step_index: u16,
    /// The chosen move, 0 to 3 in the order UDLR. It is a number so that any 32 bytes are a valid `Step`.
    pub chosen: u8,
    /// The legality mask: bit 0 is up, bit 3 is right.
    pub ev_legal: u8,
}

/// The fields of a row for NumPy and Arrow: name, offset in bytes, NumPy type, number of values.
pub(crate) const FIELDS: [StepField; 6] = [
    StepField { name: "board", offset: offset_of!(Step, board), numpy: "<u8", values: 1 },
    StepField { name: "ev_values", offset: offset_of!(Step, ev_values), numpy: "<f4", values: 4 },
    StepField { name: "run_id", offset: offset_of!(Step, run_id), numpy: "<u4", values: 1 },
    StepField { name: "step_index", offset: offset_of!(Step, step_index), numpy: "<u2", values: 1 },
    StepField { name: "move", offset: offset_of!(Step, chosen), numpy: "|u1", values: 1 },
    StepField { name: "ev_legal", offset: offset_of!(Step, ev_legal), numpy: "|u1", values: 1 },
];

#[derive(Clone, Copy, Debug)]
pub(crate) struct StepField {
    pub(crate) name: &'static str,
    pub(crate) offset: usize,
    pub(crate) numpy: &'static str,
    pub(crate) values: usize,
}

/// The [`chosen`](Step::chosen) move of a step that has none.
pub(crate) const NO_MOVE: u8 = 255;

/// The size of a row without extra columns, in bytes.
pub(crate) const STEP_SIZE: usize = size_of::<Step>();

const _: () = {
    assert!(size_of::<Step>() == 32);
    assert!(align_of::<Step>() == 8);
    assert!(offset_of!(Step, board) == 0);
    assert!(offset_of!(Step, ev_values) == 8);
    assert!(offset_of!(Step, run_id) == 24);
    assert!(offset_of!(Step, step_index) == 28);
    assert!(offset_of!(Step, chosen) == 30);
    assert!(offset_of!(Step, ev_legal) == 31);
};
