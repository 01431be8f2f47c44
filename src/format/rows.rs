//! The mapping between the steps of runs and rows.

use crate::board::{Board, Move};
use crate::error::{Error, Result};
use crate::run::{Branches, Run, RunMeta, RunStep};

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

/// Checks that a run has all its steps.
pub(in crate::format) fn check_whole(run: &Run) -> Result<()> {
    match run.step_indices() {
        None => Ok(()),
        Some(_) => Err(Error::argument("run", "a run with all its steps", "a sampled run")),
    }
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
/// row has no branches if its mask is empty, or has only the chosen move although the rules allow another move.
#[inline(always)]
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
