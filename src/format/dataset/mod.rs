//! NumPy datasets: a folder with the steps of many runs in `steps.npy` and their metadata in `metadata.db`.
//!
//! ```text
//!  steps.npy, or shards of it: steps-00000.npy, steps-00001.npy, …
//!  0       8      9          10          26       30           32
//!  | board | move | ev_legal | ev_values | run_id | step_index |      NumPy's header, then rows of 32 bytes
//!  | u64   | u8   | u8       | f32 × 4   | u32    | u16        |
//!
//!  metadata.db   SQLite: runs(id, first_step_idx, num_steps, max_score, highest_tile, engine, start_time, elapsed_s)
//!  manifest.json optional: version = 1, num_steps, num_runs, created (Unix seconds), crc32c { file: "8 hex digits" }
//! ```
//!
//! **Rows of a run**: `first_step_idx` and `num_steps` give them. All rows of a run have the same `run_id`. It
//! may differ from `runs.id` if the field's tool appended to the dataset. An interrupted writer may leave rows
//! behind those of the last run ([`Dataset::num_stray_rows`]).
//!
//! **Values**: illegal branches hold 0.0. The chosen branch holds exactly 1.0, regardless of its value. A step
//! without branches has an empty mask and values of 0.0.
//!
//! An empty mask is therefore read as no branches. A mask of only the chosen move is too, if the rules allow
//! another move: the field's tools write steps without branches in that form elsewhere.
//!
//! **Omitted**: the final board, unknown moves, seeds, and an elapsed time that is NaN. An empty engine name and
//! an absent one are both written as empty and read as absent.

mod manifest;
mod metadata;
mod reader;
mod writer;

#[cfg(test)]
mod tests;

pub use reader::Dataset;
pub(super) use reader::FORMAT;
pub use writer::{DatasetOptions, DatasetWriter};

use super::npy::NpyHeader;
use super::packdat::has_branches;
use super::rows::StepRow;
use super::shards::{NpyRow, Numbering};
use crate::board::{Board, Move};
use crate::error::{Error, Result};
use crate::run::{Branches, RunStep};
use std::mem::offset_of;

const METADATA: &str = "metadata.db";
const NUMBERING: Numbering = Numbering { digits: 5, first: 0 };

/// One step in 32 bytes, in the layout of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, packed)]
struct Row {
    board: Board,
    chosen: u8,
    ev_legal: u8,
    ev_values: [f32; 4],
    run_id: u32,
    step_index: u16,
}

const ROW_LEN: usize = size_of::<Row>();

const _: () = {
    assert!(cfg!(target_endian = "little"));
    assert!(size_of::<Row>() == 32);
    assert!(align_of::<Row>() == 1);
    assert!(offset_of!(Row, board) == 0);
    assert!(offset_of!(Row, chosen) == 8);
    assert!(offset_of!(Row, ev_legal) == 9);
    assert!(offset_of!(Row, ev_values) == 10);
    assert!(offset_of!(Row, run_id) == 26);
    assert!(offset_of!(Row, step_index) == 30);
};

/// Returns whether an array with this header has the rows of a dataset.
pub(super) fn has_rows(header: &NpyHeader) -> bool {
    header.has_fields(Row::FIELDS)
}

impl NpyRow for Row {
    const FIELDS: &'static [(&'static str, &'static str, usize)] = &[
        ("board", "<u8", 1),
        ("move", "|u1", 1),
        ("ev_legal", "|u1", 1),
        ("ev_values", "<f4", 4),
        ("run_id", "<u4", 1),
        ("step_index", "<u2", 1),
    ];
}

impl StepRow for Row {
    fn from_step(run_id: u64, step: &RunStep) -> Result<Row> {
        let run_id = u32::try_from(run_id).map_err(|_| Error::argument("run_id", "at most 4294967295", run_id))?;
        let step_index = u16::try_from(step.index)
            .map_err(|_| Error::argument("step_index", "at most 65535 in a dataset", step.index))?;
        let Some(chosen) = step.chosen else {
            return Err(Error::argument(
                "run",
                "a run without unknown moves",
                format!("an unknown move at step {}", step.index),
            ));
        };
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
        Ok(Row { board: step.board, chosen: chosen as u8, ev_legal, ev_values, run_id, step_index })
    }

    fn to_step(&self) -> Result<RunStep> {
        let Some(chosen) = Move::from_index(self.chosen) else {
            return Err(Error::decode(offset_of!(Row, chosen) as u64, "move", "0..=3", self.chosen));
        };
        if self.ev_legal > 15 {
            return Err(Error::decode(offset_of!(Row, ev_legal) as u64, "ev_legal", "0..=15", self.ev_legal));
        }
        let board = self.board;
        let branches = has_branches(board, chosen, self.ev_legal)
            .then_some(Branches { values: self.ev_values, legal: self.ev_legal });
        Ok(RunStep { index: u32::from(self.step_index), board, chosen: Some(chosen), branches })
    }
}
