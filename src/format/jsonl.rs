//! Runs as JSON Lines, in the shapes of the field's older tool and in compact ones. Written only.
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
//! Branches are in UDLR order. In the plain shape the value of the chosen one is 1.0 if it is above 1 - 10^-6, and a step
//! without branches has the chosen one legal at 1.0 and no other. In the compact shape values are as they are stored, `null` is
//! an illegal branch, and a step without branches has four. What is no finite number is `null` too.

use crate::board::{Board, Move};
use crate::error::Result;
use crate::run::Run;
use std::ops::Range;

/// How runs become lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JsonlOptions {
    /// A line per step, rather than per run.
    pub by_step: bool,
    /// Numbers and nulls in place of objects and lists of exponents.
    pub compact: bool,
    /// Decode and format on more than one thread.
    pub parallel: bool,
    /// Threads, if more than one; `None` = one per core.
    pub workers: Option<usize>,
}

/// From here on the value of a chosen branch is written as 1.0.
const BEST: f32 = 1.0 - 1e-6;

/// The exponents of two cells, each with a comma behind it, and how many bytes that is, by the byte that holds them.
static CELL_PAIRS: [([u8; 8], u8); 256] = cell_pairs();

/// The name that a run has in lines: made of its file's checksum and its index.
pub(crate) fn run_uuid(crc32c: u32, run_index: u64) -> String {
    format!("a2r-{crc32c:08x}-{run_index:08x}")
}

/// Appends a whole run as a line.
///
/// Fails for a run that is not a whole game.
pub(crate) fn put_run(out: &mut Vec<u8>, run: &Run, run_index: u64, run_uuid: &str, compact: bool) -> Result<()> {
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

/// Appends some of a run's steps, a line each. `null` is a move that is not known.
pub(crate) fn put_steps(
    out: &mut Vec<u8>,
    run: &Run,
    steps: Range<usize>,
    run_index: u64,
    run_uuid: &str,
    compact: bool,
) {
    let mut begin = Vec::new();
    put(&mut begin, b"{\"run_idx\":", run_index);
    put(&mut begin, b",\"run_uuid\":", run_uuid);
    begin.extend_from_slice(b",\"step_idx\":");
    out.reserve(steps.len() * (begin.len() + if compact { 120 } else { 240 }));
    for step in steps {
        let Some(step) = run.step(step) else { break };
        put(out, &begin, step.index);
        if compact {
            put(out, b",\"pre_board\":", step.board.0);
        } else {
            out.extend_from_slice(b",\"pre_board\":[");
            put_exponents(out, step.board);
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
            match (compact, value) {
                (true, Some(value)) => put(out, b"", value),
                (true, None) => out.extend_from_slice(b"null"),
                (false, Some(value)) if is_chosen && value > BEST => put_branch(out, b"{\"legal\":true,\"value\":1.0}"),
                (false, Some(value)) => {
                    put(out, b"{\"legal\":true,\"value\":", value);
                    out.push(b'}');
                }
                (false, None) if is_chosen && step.branches.is_none() => {
                    put_branch(out, b"{\"legal\":true,\"value\":1.0}");
                }
                (false, None) => put_branch(out, b"{\"legal\":false,\"value\":0.0}"),
            }
        }
        out.extend_from_slice(b"]}\n");
    }
}

fn put_branch<const N: usize>(out: &mut Vec<u8>, branch: &[u8; N]) {
    out.extend_from_slice(branch);
}

/// Appends a value as JSON behind what precedes it.
#[inline]
fn put(out: &mut Vec<u8>, before: &[u8], value: impl serde::Serialize) {
    out.extend_from_slice(before);
    // Neither these types nor a vector in memory can fail.
    let _ = serde_json::to_writer(out, &value);
}

fn put_exponents(out: &mut Vec<u8>, board: Board) {
    let mut text = [0; 8 * 8];
    let mut len = 0;
    for pair in board.0.to_be_bytes() {
        let (pair, pair_len) = CELL_PAIRS[usize::from(pair)];
        if let Some(room) = text.get_mut(len..len + pair.len()) {
            // What is past the end is overwritten by the next.
            room.copy_from_slice(&pair);
        }
        len += usize::from(pair_len);
    }
    // No comma behind the last.
    out.extend_from_slice(text.get(..len - 1).unwrap_or_default());
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

const fn cell_pairs() -> [([u8; 8], u8); 256] {
    let mut pairs = [([0; 8], 0); 256];
    let mut byte = 0;
    while byte < 256 {
        let exponents = [byte as u8 >> 4, byte as u8 & 15];
        let (mut text, mut len) = ([0; 8], 0);
        let mut cell = 0;
        while cell < 2 {
            if exponents[cell] >= 10 {
                text[len] = b'1';
                len += 1;
            }
            text[len] = b'0' + exponents[cell] % 10;
            text[len + 1] = b',';
            len += 2;
            cell += 1;
        }
        pairs[byte] = (text, len as u8);
        byte += 1;
    }
    pairs
}

#[cfg(test)]
mod tests;
