//! The rows of a session: one board in 28 bytes, and in a 29th byte its move.

use crate::board::{Move, WideBoard};
use crate::error::{Error, Result};
use crate::format::files::mapped_rows::{FileNumbering, RowFields, part_of};
use crate::format::files::npy::NpyHeader;
use crate::format::rows::known_move;
use crate::run::RunStep;
use std::mem::offset_of;

pub(super) const NUMBERING: FileNumbering = FileNumbering { digits: 6, first: 1 };

/// The board of a step in 28 bytes, in the layout of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, packed)]
pub(super) struct BoardRow {
    run_id: u64,
    step_idx: u32,
    exps: [u8; 16],
}

const _: () = assert!(size_of::<BoardRow>() == 28);

/// The offset of the move in a row that has one.
const ACTION: usize = size_of::<BoardRow>();

const FIELDS: [(&str, &str, usize); 4] =
    [("run_id", "<u8", 1), ("step_idx", "<u4", 1), ("exps", "|u1", 16), ("action", "|u1", 1)];

/// Returns the layout of rows with or without moves.
pub(super) fn fields(with_action: bool) -> RowFields {
    RowFields::packed(&FIELDS[..if with_action { 4 } else { 3 }])
}

/// Returns whether rows of this size have moves.
pub(super) fn has_action(stride: usize) -> bool {
    stride > ACTION
}

/// Returns whether an array with this header has the rows of a session.
pub(in crate::format) fn has_rows(header: &NpyHeader) -> bool {
    [false, true].into_iter().any(|with_action| fields(with_action).are_of(header))
}

/// Returns the id of the run and the index of the step in a row.
pub(super) fn key(row: &[u8]) -> (u64, u32) {
    let &BoardRow { run_id, step_idx, .. } = part_of(row, 0);
    (run_id, step_idx)
}

/// Appends the row of a step. Rows with moves need a known one.
pub(super) fn put_step(rows: &mut Vec<u8>, run_id: u64, step: &RunStep, with_action: bool) -> Result<()> {
    let action = if with_action { Some(known_move(step)? as u8) } else { None };
    let row = BoardRow { run_id, step_idx: step.index, exps: step.board.exps() };
    rows.extend_from_slice(bytemuck::bytes_of(&row));
    rows.extend(action);
    Ok(())
}

/// Returns the step in a row.
pub(super) fn to_step(row: &[u8]) -> Result<RunStep> {
    let &BoardRow { step_idx, exps, .. } = part_of(row, 0);
    let board = WideBoard::from_exps(exps).map_err(|_| {
        let cell = exps.iter().position(|&exp| exp > 16).unwrap_or_default();
        let offset = offset_of!(BoardRow, exps) + cell;
        Error::decode(offset as u64, "exponent", "0..=16, the range of a board", exps[cell])
    })?;
    let known =
        |&action: &u8| Move::from_index(action).ok_or_else(|| Error::decode(ACTION as u64, "action", "0..=3", action));
    Ok(RunStep { index: step_idx, board, chosen: row.get(ACTION).map(known).transpose()?, branches: None })
}
