//! Self-play sessions: a folder with the boards of many runs in `steps.npy` and their metadata in `metadata.db`.
//!
//! ```text
//!  steps.npy, or shards of it: steps-000001.npy, steps-000002.npy, …
//!  0        8          12        28       29
//!  | run_id | step_idx | exps    | action |      NumPy's header, then rows of 28 bytes, or of 29 with the action
//!  | u64    | u32      | u8 × 16 | u8     |
//!
//!  metadata.db   SQLite: runs(id, seed, steps, max_score, highest_tile), session(meta_key, meta_value: JSON)
//! ```
//!
//! The rows of a run are those whose `run_id` equals its `id`. They must be consecutive. The action is the move,
//! 0 to 3.
//!
//! **Without actions** the move of a step is derived by the rules. It is known if the next step of the game is
//! present and exactly one move leads to its board. The last move is never known. Sampled sessions hold only some
//! steps of a game, each with its index.
//!
//! Seeds and ids are stored as two's complement. **Omitted**: the final board, branches, start time, duration,
//! and engines of single runs. A session has one engine, the `tag` of its `model`.

mod growing;
mod metadata;
mod reader;
mod recording;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use growing::{GrowingSession, NewRun};
pub(super) use reader::FORMAT;
pub use reader::Session;
pub(crate) use recording::{JOURNAL_MAGIC, RECORDING, is_unrecorded, journal_name, journal_number};
pub use writer::{SessionOptions, SessionWriter};

use super::npy::NpyHeader;
use super::rows::StepRow;
use super::shards::{NpyRow, Numbering};
use crate::board::{Board, Move};
use crate::error::{Error, Result};
use crate::run::RunStep;
use serde::{Deserialize, Serialize};
use std::mem::offset_of;

const METADATA: &str = "metadata.db";
const NUMBERING: Numbering = Numbering { digits: 6, first: 1 };

/// One board in 28 bytes, in the layout of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, packed)]
struct Row {
    run_id: u64,
    step_idx: u32,
    exps: [u8; 16],
}

/// One board and its move in 29 bytes, in the layout of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, packed)]
struct ActionRow {
    row: Row,
    action: u8,
}

const _: () = {
    assert!(cfg!(target_endian = "little"));
    assert!(size_of::<Row>() == 28);
    assert!(align_of::<Row>() == 1);
    assert!(offset_of!(Row, run_id) == 0);
    assert!(offset_of!(Row, step_idx) == 8);
    assert!(offset_of!(Row, exps) == 12);
    assert!(size_of::<ActionRow>() == 29);
    assert!(align_of::<ActionRow>() == 1);
    assert!(offset_of!(ActionRow, row) == 0);
    assert!(offset_of!(ActionRow, action) == 28);
};

/// The description of a session, as an archive stores it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionInfo {
    /// Whether the rows hold moves.
    pub(crate) has_actions: bool,
    /// The rows of the table `session`, with unparsed values.
    pub(crate) entries: Vec<(String, Option<String>)>,
}

/// A row that holds the id of its run.
trait OfRun: NpyRow {
    fn run_id(&self) -> u64;
}

/// Returns whether an array with this header has the rows of a session.
pub(super) fn has_rows(header: &NpyHeader) -> bool {
    header.has_fields(Row::FIELDS) || header.has_fields(ActionRow::FIELDS)
}

impl NpyRow for Row {
    const FIELDS: &'static [(&'static str, &'static str, usize)] =
        &[("run_id", "<u8", 1), ("step_idx", "<u4", 1), ("exps", "|u1", 16)];
}

impl NpyRow for ActionRow {
    const FIELDS: &'static [(&'static str, &'static str, usize)] =
        &[("run_id", "<u8", 1), ("step_idx", "<u4", 1), ("exps", "|u1", 16), ("action", "|u1", 1)];
}

impl OfRun for Row {
    #[inline]
    fn run_id(&self) -> u64 {
        self.run_id
    }
}

impl OfRun for ActionRow {
    #[inline]
    fn run_id(&self) -> u64 {
        self.row.run_id
    }
}

impl StepRow for Row {
    fn from_step(run_id: u64, step: &RunStep) -> Result<Row> {
        Ok(Row { run_id, step_idx: step.index, exps: step.board.exps() })
    }

    fn to_step(&self) -> Result<RunStep> {
        let exps = self.exps;
        if let Some((cell, exp)) = exps.iter().enumerate().find(|&(_, &exp)| exp > 15) {
            let offset = offset_of!(Row, exps) + cell;
            return Err(Error::decode(offset as u64, "exponent", "0..=15, the range of a board", exp));
        }
        let board = exps.iter().fold(0, |board, &exp| board << 4 | u64::from(exp));
        Ok(RunStep { index: self.step_idx, board: Board(board), chosen: None, branches: None })
    }
}

impl StepRow for ActionRow {
    fn from_step(run_id: u64, step: &RunStep) -> Result<ActionRow> {
        let Some(chosen) = step.chosen else {
            let found = format!("an unknown move at step {}", step.index);
            return Err(Error::argument("run", "a run without unknown moves", found));
        };
        Ok(ActionRow { row: Row::from_step(run_id, step)?, action: chosen as u8 })
    }

    fn to_step(&self) -> Result<RunStep> {
        let step = self.row.to_step()?;
        match Move::from_index(self.action) {
            Some(chosen) => Ok(RunStep { chosen: Some(chosen), ..step }),
            None => Err(Error::decode(offset_of!(ActionRow, action) as u64, "action", "0..=3", self.action)),
        }
    }
}
