//! a2run2, version 2: one run per file (`*.a2run2`), in the [postcard] wire format, without magic and checksum.
//!
//! ```text
//!  RunV2    = meta, varint number of steps, steps …, varint final_board
//!  meta     = varint steps, varint start_unix_s, f32 elapsed_s, varint max_score, varint highest_tile,
//!             0 | 1, varint length, UTF-8 engine
//!  step     = varint pre_board, varint chosen (0..=3, UDLR), 0 | 1, branch × 4
//!  branch   = 0, f32 value (legal) | 1 (illegal)
//! ```
//!
//! A varint is an unsigned LEB128 number. An f32 takes four little-endian bytes.
//!
//! [postcard]: https://postcard.jamesmunns.com/wire-format

use crate::board::{Board, Move};
use crate::error::Result;
use crate::format::files::bytes::{ByteReader, put_varint};
use crate::run::{Branches, Run, RunMeta};

/// The shortest step in bytes: one byte each for the board, the move and the absent branches.
const MIN_STEP_LEN: usize = 3;

pub(in crate::format) fn decode(bytes: &[u8]) -> Result<Run> {
    let mut reader = ByteReader::new(bytes);
    let (num_steps, meta) = read_meta(&mut reader)?;
    let num_steps = num_steps as usize;
    let mut steps = Run::builder(num_steps);
    for step in 0..num_steps {
        if let Some(window) = reader.window()
            && let Some((board, chosen, branches, len)) = usual_step(window)
        {
            reader.skip(len);
            steps.push(board, chosen, branches);
            continue;
        }
        reader.step = Some(step as u64);
        let board = Board(reader.varint_u64("board")?);
        let before = reader.offset();
        let index = reader.varint_u32("move")?;
        let Some(chosen) = u8::try_from(index).ok().and_then(Move::from_index) else {
            return Err(reader.error(reader.offset() - before, "move", "0..=3", index));
        };
        let has_branches = option_tag(&mut reader, "branches", "0 (none) or 1 (four follow)")?;
        let branches = if has_branches { Some(branches(&mut reader)?) } else { None };
        steps.push(board, chosen, branches);
    }
    reader.step = None;
    let final_board = Board(reader.varint_u64("final board")?);
    if reader.remaining() > 0 {
        let found = format!("{} more bytes", reader.remaining());
        return Err(reader.error(0, "end of the run", "the end of the file", found));
    }
    steps.finish(meta, final_board)
}

/// Returns whether a file with this prefix may be an a2run2: its metadata must be complete and consistent. Runs
/// without steps do not count, because a prefix of zeros would decode as one.
pub(in crate::format) fn begins(prefix: &[u8]) -> bool {
    let mut reader = ByteReader::new(prefix);
    // An engine name that is longer than the prefix fails here.
    let Ok((declared, meta)) = account(&mut reader) else { return false };
    let Ok(num_steps) = reader.varint_u64("number of steps") else { return false };
    meta.highest_tile <= 1 << 17
        && num_steps == u64::from(declared)
        && num_steps > 0
        && reader.varint_u64("board").and_then(|_| reader.u8("move")).is_ok_and(|chosen| chosen <= 3)
}

/// Reads everything before the steps. Checks that the remaining bytes can hold the steps before the caller
/// allocates memory for them.
pub(in crate::format) fn read_meta(reader: &mut ByteReader<'_>) -> Result<(u32, RunMeta)> {
    let (declared, meta) = account(reader)?;
    let before = reader.offset();
    let num_steps = reader.varint_u64("number of steps")?;
    let back = reader.offset() - before;
    if num_steps != u64::from(declared) {
        return Err(reader.error(back, "number of steps", format!("{declared} as in meta.steps"), num_steps));
    }
    let most = reader.remaining() / MIN_STEP_LEN;
    if num_steps as usize > most {
        let expected = format!("at most {most} in the bytes before the end");
        return Err(reader.error(back, "number of steps", expected, num_steps));
    }
    Ok((declared, meta))
}

/// Reads the metadata: the number of steps in its first field, then the rest.
fn account(reader: &mut ByteReader<'_>) -> Result<(u32, RunMeta)> {
    let declared = reader.varint_u32("meta.steps")?;
    let start_unix_s = reader.varint_u64("start time")?;
    let elapsed_s = reader.f32("elapsed time")?;
    let max_score = reader.varint_u64("max_score")?;
    let highest_tile = reader.varint_u32("highest_tile")?;
    let engine = match option_tag(reader, "engine", "0 (none) or 1 (its name follows)")? {
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
    let meta = RunMeta { start_unix_s, elapsed_s, max_score, highest_tile, engine, ..RunMeta::default() };
    Ok((declared, meta))
}

/// The longest step in its shortest encoding: a board, a move, a tag and four legal branches.
const MAX_STEP_LEN: usize = 10 + 1 + 1 + 4 * 5;

/// Decodes a step in its shortest encoding and returns its length. `None` means that the slow path must read the
/// step.
#[inline]
fn usual_step(window: &[u8; MAX_STEP_LEN]) -> Option<(Board, Move, Option<Branches>, usize)> {
    let byte = |at: usize| window[at % MAX_STEP_LEN];
    let mut board = 0;
    let mut at = 0;
    loop {
        let next = byte(at);
        // The tenth byte of a u64 holds one bit.
        if at == 9 && next > 1 {
            return None;
        }
        board |= u64::from(next & 0x7f) << (7 * at);
        at += 1;
        if next < 0x80 {
            if next == 0 && at > 1 {
                return None;
            }
            break;
        }
    }
    let chosen = Move::from_index(byte(at))?;
    let tag = byte(at + 1);
    at += 2;
    if tag == 0 {
        return Some((Board(board), chosen, None, at));
    }
    if tag != 1 {
        return None;
    }
    let (mut values, mut legal) = ([0.0; 4], 0);
    for (direction, value) in values.iter_mut().enumerate() {
        match byte(at) {
            0 => {
                *value = f32::from_le_bytes([byte(at + 1), byte(at + 2), byte(at + 3), byte(at + 4)]);
                legal |= 1 << direction;
                at += 5;
            }
            1 => at += 1,
            _ => return None,
        }
    }
    Some((Board(board), chosen, Some(Branches { values, legal }), at))
}

fn option_tag(reader: &mut ByteReader<'_>, what: &'static str, expected: &str) -> Result<bool> {
    match reader.u8(what)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(reader.error(1, what, expected, other)),
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

pub(in crate::format) fn encode(run: &Run) -> Result<Vec<u8>> {
    let run = &*run.normalized();
    let final_board = run.whole()?;
    let meta = run.meta();
    let engine_len = meta.engine.as_deref().map_or(0, str::len);
    // 12 bytes hold a board, a move and a tag; 20 more hold values. The last step is copied with up to
    // `MAX_STEP_LEN` spare bytes.
    let with_values = run.has_evs().iter().filter(|&&has| has).count();
    let mut out = Vec::with_capacity(64 + engine_len + MAX_STEP_LEN + 12 * run.num_steps() + 20 * with_values);
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
    let (boards, moves, has_evs) = (run.boards(), run.moves(), run.has_evs());
    let (ev_values, ev_legal) = (run.ev_values(), run.ev_legal());
    let mut step = [0; MAX_STEP_LEN];
    for i in 0..boards.len() {
        let mut at = 0;
        let mut put = |byte: u8| {
            step[at % MAX_STEP_LEN] = byte;
            at += 1;
        };
        let mut rest = boards[i].0;
        while rest >= 0x80 {
            put(rest as u8 | 0x80);
            rest >>= 7;
        }
        put(rest as u8);
        put(moves[i] as u8);
        put(u8::from(has_evs[i]));
        if has_evs[i] {
            for (direction, value) in ev_values[i].iter().enumerate() {
                if ev_legal[i] >> direction & 1 == 1 {
                    put(0);
                    let bytes = value.to_le_bytes();
                    put(bytes[0]);
                    put(bytes[1]);
                    put(bytes[2]);
                    put(bytes[3]);
                } else {
                    put(1);
                }
            }
        }
        // A copy of fixed length takes few instructions. The excess is truncated.
        let len = out.len() + at;
        out.extend_from_slice(&step);
        out.truncate(len);
    }
    put_varint(&mut out, final_board.0);
    Ok(out)
}
