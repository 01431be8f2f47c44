//! Runs as JSON Lines, in the layout of an older 2048 tool or in a compact one. Write-only.
//!
//! ```text
//!  per run           {"run_idx":0,"steps":2,"start_unix_s":0,"elapsed_s":1.5,"max_score":4,"highest_tile":4,
//!                     "final_board":…,"states":[three boards],"moves":["UP","LEFT"]}
//!  per step          {"run_idx":0,"run_uuid":"a2r-0a1b2c3d-00000000","step_idx":0,"pre_board":[16 exponents],"chosen":"UP",
//!                     "branches":[{"legal":true,"value":1.0},{"legal":false,"value":0.0},…]}
//!  per run, compact  the same, with "run_uuid" and "engine" behind "run_idx"
//!  per step, compact {"run_idx":0,"run_uuid":"a2r-0a1b2c3d-00000000","step_idx":0,"pre_board":…,"chosen":"UP",
//!                     "branches":[1.0,null,0.25,0.0]}
//! ```
//!
//! Branches are in UDLR order. A value that is not finite is `null`.
//!
//! The plain layout writes 1.0 for the value of the chosen branch if it exceeds 1 - 10^-6. A step without
//! branches has one legal branch there, the chosen one, with value 1.0.
//!
//! The compact layout writes values as they are stored. `null` is an illegal branch, and a step without branches
//! has four.

use crate::board::{Board, Move};
use crate::error::Result;
use crate::run::Run;
use derive_setters::Setters;

/// Options for writing JSON Lines.
///
/// Set fields with the `with_*` methods: `JsonlOptions::default().with_by_step(true)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct JsonlOptions {
    /// Writes one line per step instead of one per run.
    pub by_step: bool,
    /// Writes numbers and nulls instead of objects and lists of exponents.
    pub compact: bool,
    /// Number of threads; `None` = one per core.
    pub workers: Option<usize>,
}

/// The plain layout writes a chosen value above this as 1.0.
pub(crate) const BEST: f32 = 1.0 - 1e-6;

/// Returns a run as one line, or as one line per step. `crc32c` is the checksum of the run's file.
///
/// Returns an error for a line of a run that is not a whole game, and for a step with a tile of 65,536.
pub(crate) fn lines_of(run: &Run, run_index: u64, crc32c: u32, by_step: bool, compact: bool) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let run_uuid = format!("a2r-{crc32c:08x}-{run_index:08x}");
    if by_step {
        put_steps(&mut out, run, run_index, &run_uuid, compact)?;
    } else {
        put_run(&mut out, run, run_index, &run_uuid, compact)?;
    }
    Ok(out)
}

/// Appends a whole run as one line.
fn put_run(out: &mut Vec<u8>, run: &Run, run_index: u64, run_uuid: &str, compact: bool) -> Result<()> {
    let final_board = run.whole()?;
    let meta = run.meta();
    out.reserve(200 + 30 * run.num_steps());
    put(out, b"{\"run_idx\":", run_index);
    if compact {
        put(out, b",\"run_uuid\":", run_uuid);
        put(out, b",\"engine\":", &meta.engine);
    }
    put(out, b",\"steps\":", run.num_steps());
    put(out, b",\"start_unix_s\":", meta.start_unix_s);
    put(out, b",\"elapsed_s\":", meta.elapsed_s);
    put(out, b",\"max_score\":", meta.max_score);
    put(out, b",\"highest_tile\":", meta.highest_tile);
    put(out, b",\"final_board\":", final_board.0);
    let mut before: &[u8] = b",\"states\":[";
    for board in run.boards().iter().chain([&final_board]) {
        put(out, before, board.0);
        before = b",";
    }
    out.extend_from_slice(b"],\"moves\":[");
    for (step, &direction) in run.moves().iter().enumerate() {
        if step > 0 {
            out.push(b',');
        }
        out.extend_from_slice(name(Some(direction)));
    }
    out.extend_from_slice(b"]}\n");
    Ok(())
}

/// Appends the steps of a run, one line each. An unknown move is written as `null`.
fn put_steps(out: &mut Vec<u8>, run: &Run, run_index: u64, run_uuid: &str, compact: bool) -> Result<()> {
    let mut begin = Vec::new();
    put(&mut begin, b"{\"run_idx\":", run_index);
    put(&mut begin, b",\"run_uuid\":", run_uuid);
    begin.extend_from_slice(b",\"step_idx\":");
    out.reserve(run.num_steps() * (begin.len() + if compact { 120 } else { 240 }));
    for step in run.steps() {
        let board = step.narrow_board()?;
        put(out, &begin, step.index);
        if compact {
            put(out, b",\"pre_board\":", board.0);
        } else {
            out.extend_from_slice(b",\"pre_board\":[");
            put_exponents(out, board);
            out.push(b']');
        }
        out.extend_from_slice(b",\"chosen\":");
        out.extend_from_slice(name(step.chosen));
        out.extend_from_slice(b",\"branches\":[");
        for direction in Move::ALL {
            if direction != Move::Up {
                out.push(b',');
            }
            let is_chosen = step.chosen == Some(direction);
            let value = match step.branches {
                Some(branches) if branches.legal & direction.bit() != 0 => Some(branches.values[direction as usize]),
                _ => None,
            };
            let is_best = is_chosen && value.map_or(step.branches.is_none(), |value| value > BEST);
            match (compact, value) {
                (true, Some(value)) => put(out, b"", value),
                (true, None) => out.extend_from_slice(b"null"),
                (false, _) if is_best => out.extend_from_slice(b"{\"legal\":true,\"value\":1.0}"),
                (false, Some(value)) => {
                    put(out, b"{\"legal\":true,\"value\":", value);
                    out.push(b'}');
                }
                (false, None) => out.extend_from_slice(b"{\"legal\":false,\"value\":0.0}"),
            }
        }
        out.extend_from_slice(b"]}\n");
    }
    Ok(())
}

/// Appends `before`, then a value as JSON.
#[inline]
fn put(out: &mut Vec<u8>, before: &[u8], value: impl serde::Serialize) {
    out.extend_from_slice(before);
    // Serialising these types into memory cannot fail.
    let _ = serde_json::to_writer(out, &value);
}

fn put_exponents(out: &mut Vec<u8>, board: Board) {
    for cell in 0..16 {
        let exp = (board.0 >> (60 - 4 * cell)) as u8 & 15;
        if cell > 0 {
            out.push(b',');
        }
        if exp >= 10 {
            out.push(b'1');
        }
        out.push(b'0' + exp % 10);
    }
}

fn name(direction: Option<Move>) -> &'static [u8] {
    match direction {
        Some(Move::Up) => b"\"UP\"",
        Some(Move::Down) => b"\"DOWN\"",
        Some(Move::Left) => b"\"LEFT\"",
        Some(Move::Right) => b"\"RIGHT\"",
        None => b"null",
    }
}

#[cfg(test)]
mod tests;
