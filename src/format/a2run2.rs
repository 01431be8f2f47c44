//! a2run2, version 2: one run per file (`*.a2run2`), in the [postcard] wire format, with neither magic nor checksum.
//!
//! ```text
//!  RunV2    = meta, varint number of steps, steps …, varint final_board
//!  meta     = varint steps, varint start_unix_s, f32 elapsed_s, varint max_score, varint highest_tile,
//!             0 | 1, varint length, UTF-8 engine
//!  step     = varint pre_board, varint chosen (0..=3, UDLR), 0 | 1, branch × 4
//!  branch   = 0, f32 value (legal) | 1 (illegal)
//! ```
//!
//! A varint is an unsigned LEB128 number, an f32 four little-endian bytes.
//!
//! [postcard]: https://postcard.jamesmunns.com/wire-format

use super::bytes::{ByteReader, put_varint};
use crate::board::{Board, Move};
use crate::error::Result;
use crate::run::{Branches, Run, RunMeta};

/// The fewest bytes that a step takes: one each for board, move and the absence of branches.
const MIN_STEP_LEN: usize = 3;

pub(super) fn decode(bytes: &[u8]) -> Result<Run> {
    let mut reader = ByteReader::new(bytes);
    let declared = reader.varint_u32("meta.steps")?;
    let start_unix_s = reader.varint_u64("start time")?;
    let elapsed_s = reader.f32("elapsed time")?;
    let max_score = reader.varint_u64("max_score")?;
    let highest_tile = reader.varint_u32("highest_tile")?;
    let engine = match option_tag(&mut reader, "presence of engine")? {
        true => {
            let before = reader.offset();
            let len = reader.varint_u64("length of engine")?;
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            if len > reader.remaining() {
                let back = reader.offset() - before;
                let expected = format!("at most {} bytes before the end", reader.remaining());
                return Err(reader.error(back, "length of engine", expected, len));
            }
            Some(reader.utf8(len, "engine")?.to_owned())
        }
        false => None,
    };

    let before = reader.offset();
    let num_steps = reader.varint_u64("number of steps")?;
    let back = reader.offset() - before;
    if num_steps != u64::from(declared) {
        return Err(reader.error(back, "number of steps", format!("{declared} as in meta.steps"), num_steps));
    }
    let num_steps = num_steps as usize;
    let most = reader.remaining() / MIN_STEP_LEN;
    if num_steps > most {
        let expected = format!("at most {most} in the bytes before the end");
        return Err(reader.error(back, "number of steps", expected, num_steps));
    }
    let mut steps = Run::builder(num_steps);
    for step in 0..num_steps {
        reader.enter_step(Some(step as u64));
        let board = Board(reader.varint_u64("board")?);
        let before = reader.offset();
        let index = reader.varint_u32("move")?;
        let Some(chosen) = u8::try_from(index).ok().and_then(Move::from_index) else {
            return Err(reader.error(reader.offset() - before, "move", "0..=3", index));
        };
        let branches =
            if option_tag(&mut reader, "presence of branches")? { Some(branches(&mut reader)?) } else { None };
        steps.push(board, chosen, branches);
    }
    reader.enter_step(None);
    let final_board = Board(reader.varint_u64("final board")?);
    if reader.remaining() > 0 {
        return Err(reader.error(
            0,
            "end of the run",
            "the end of the file",
            format_args!("{} more bytes", reader.remaining()),
        ));
    }
    steps.finish(RunMeta { start_unix_s, elapsed_s, max_score, highest_tile, engine }, final_board)
}

fn option_tag(reader: &mut ByteReader<'_>, what: &'static str) -> Result<bool> {
    match reader.u8(what)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(reader.error(1, what, "0 or 1", other)),
    }
}

fn branches(reader: &mut ByteReader<'_>) -> Result<Branches> {
    let mut values = [0.0; 4];
    let mut legal = 0;
    for direction in Move::ALL {
        let before = reader.offset();
        match reader.varint_u32("branch")? {
            0 => {
                values[direction as usize] = reader.f32("value of a branch")?;
                legal |= direction.bit();
            }
            1 => {}
            other => {
                let back = reader.offset() - before;
                return Err(reader.error(back, "branch", "0 (legal) or 1 (illegal)", other));
            }
        }
    }
    Ok(Branches { values, legal })
}

pub(super) fn encode(run: &Run) -> Vec<u8> {
    let meta = run.meta();
    let engine_len = meta.engine.as_deref().map_or(0, str::len);
    // The usual size of a step is 28 bytes; 32 spares most runs a reallocation.
    let mut out = Vec::with_capacity(64 + engine_len + 32 * run.num_steps());
    put_varint(&mut out, run.num_steps() as u64);
    put_varint(&mut out, meta.start_unix_s);
    out.extend_from_slice(&meta.elapsed_s.to_le_bytes());
    put_varint(&mut out, meta.max_score);
    put_varint(&mut out, u64::from(meta.highest_tile));
    match &meta.engine {
        None => out.push(0),
        Some(engine) => {
            out.push(1);
            put_varint(&mut out, engine.len() as u64);
            out.extend_from_slice(engine.as_bytes());
        }
    }
    put_varint(&mut out, run.num_steps() as u64);
    for (step, (board, &chosen)) in run.boards().iter().zip(run.moves()).enumerate() {
        put_varint(&mut out, board.0);
        out.push(chosen as u8);
        let Some(Branches { values, legal }) = run.branches(step) else {
            out.push(0);
            continue;
        };
        out.push(1);
        for direction in Move::ALL {
            if legal & direction.bit() != 0 {
                out.push(0);
                out.extend_from_slice(&values[direction as usize].to_le_bytes());
            } else {
                out.push(1);
            }
        }
    }
    put_varint(&mut out, run.final_board().0);
    out
}
