//! The mapping between the steps of runs and rows.

use crate::board::{Board, Move};
use crate::error::{Error, Result};
use crate::run::{Branches, Run, RunMeta, RunStep};
use crate::step::{NO_MOVE, Step};

/// Builds a run from its decoded rows, in order. A row has `stride` bytes.
///
/// Returns the first error, with the step and the offset from the first row. Step indices must ascend.
pub(in crate::format) fn rebuild(
    rows: impl ExactSizeIterator<Item = Result<RunStep>>,
    stride: usize,
    meta: RunMeta,
) -> Result<Run> {
    let mut steps = Run::builder(rows.len());
    for (place, step) in rows.enumerate() {
        let pushed = step.and_then(|step| {
            let out_of_order = |_| Error::decode(0, "step index", "an index above the previous one", step.index);
            steps.push_step(step).map_err(out_of_order)
        });
        pushed.map_err(|error| {
            error.located(|location| {
                location.step = Some(place as u64);
                location.offset = Some(location.offset.unwrap_or_default() + (place * stride) as u64);
            })
        })?;
    }
    steps.finish(meta, None)
}

/// Returns the move of a step, its mask, and the values of its legal moves, as rows without exact values of chosen
/// moves hold them: with 1 for the chosen move, and with an empty mask for a step without branches.
#[inline]
pub(in crate::format) fn row_branches(step: &RunStep) -> Result<(Move, u8, [f32; 4])> {
    let chosen = known_move(step)?;
    let Branches { mut values, legal } = step.branches.unwrap_or(Branches { values: [0.0; 4], legal: 0 });
    for direction in Move::ALL {
        if legal & direction.bit() == 0 {
            values[direction as usize] = 0.0;
        } else if direction == chosen {
            values[direction as usize] = 1.0;
        }
    }
    Ok((chosen, legal, values))
}

/// Returns the step in such a row. `fields` are the name of the mask, and the offsets of move and mask in the row. A
/// row has no branches if its mask is empty, or has only the chosen move although the rules allow another one.
#[inline]
pub(in crate::format) fn row_step(
    index: u32,
    board: Board,
    (chosen, legal): (u8, u8),
    values: [f32; 4],
    (mask, move_at, mask_at): (&'static str, usize, usize),
) -> Result<RunStep> {
    let Some(chosen) = Move::from_index(chosen) else {
        return Err(Error::decode(move_at as u64, "move", "0..=3", chosen));
    };
    if legal > 15 {
        return Err(Error::decode(mask_at as u64, mask, "0..=15", legal));
    }
    let has_branches = legal != 0 && (legal != chosen.bit() || board.legal_moves() & !legal == 0);
    let branches = has_branches.then_some(Branches { values, legal });
    Ok(RunStep { index, board: board.into(), chosen: Some(chosen), branches })
}

/// Returns the move of a step, for rows that cannot store an unknown move.
#[inline]
pub(in crate::format) fn known_move(step: &RunStep) -> Result<Move> {
    let found = || format!("an unknown move at step {}", step.index);
    step.chosen.ok_or_else(|| Error::argument("run", "a run without unknown moves", found()))
}

/// A step with all that a [`Step`] cannot hold. The [`Step`] has the board's nibbles, and an index of at most 65,535.
#[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct WideStep {
    pub(crate) step: Step,
    pub(crate) step_index: u32,
    pub(crate) tile_65536_mask: u16,
    padding: [u8; 2],
}

impl WideStep {
    /// Returns the row of a step of the run with this id.
    #[inline]
    pub(crate) fn from_step(run_id: u64, step: &RunStep) -> Result<WideStep> {
        let index = step.index.min(u32::from(u16::MAX));
        let narrow = RunStep { board: step.board.board().into(), index, ..*step };
        let mut row = WideStep {
            step: Step::from_step(run_id, &narrow)?,
            step_index: step.index,
            tile_65536_mask: step.board.tile_65536_mask(),
            padding: [0; 2],
        };
        if step.branches.is_none() && row.tile_65536_mask != 0 {
            row.step.ev_legal = step.board.legal_moves();
        }
        Ok(row)
    }
}

impl Step {
    /// Returns the row of a step of the run with this id.
    #[inline]
    pub(crate) fn from_step(run_id: u64, step: &RunStep) -> Result<Step> {
        let run_id = u32::try_from(run_id).map_err(|_| Error::argument("run_id", "at most 4294967295", run_id))?;
        let step_index = u16::try_from(step.index)
            .map_err(|_| Error::argument("step_index", "at most 65535 in a row", step.index))?;
        let board = step.narrow_board()?;
        let (ev_values, ev_legal) = match step.branches {
            Some(Branches { values, legal }) => (values, legal),
            None => ([f32::NAN; 4], board.legal_moves()),
        };
        let chosen = step.chosen.map_or(NO_MOVE, |chosen| chosen as u8);
        Ok(Step { board, ev_values, run_id, step_index, chosen, ev_legal })
    }
}
