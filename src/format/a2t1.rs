//! A2T1, version 1: one run per file (`*.bin`), little-endian, with a checksum.
//!
//! ```text
//!  0     4  5  6       10            18         22         30            34          36
//!  | A2T1 | 1 | 0 | steps | start_unix_s | elapsed_s | max_score | highest_tile | engine_len | engine …
//!  | 4    | u8| u8| u32   | u64          | f32       | u64       | u32          | u16        | UTF-8
//!
//!  … | states: u64 × (steps + 1) | moves: u8 × steps | CRC32C of all before: u32 |
//! ```
//!
//! The sixth byte is the byte order, 0 for little-endian. The states are the board before each move, then the
//! final board.

use crate::board::{Board, Move};
use crate::error::{Error, Result};
use crate::format::files::bytes::{ByteReader, check_crc};
use crate::run::{Run, RunMeta};

pub(in crate::format) const MAGIC: &[u8; 4] = b"A2T1";
const VERSION: u8 = 1;
const LITTLE_ENDIAN: u8 = 0;
const CRC_LEN: usize = 4;

pub(in crate::format) fn decode(bytes: &[u8]) -> Result<Run> {
    let mut reader = ByteReader::new(bytes);
    let (num_steps, meta) = read_meta(&mut reader)?;
    let num_steps = num_steps as usize;
    let covered = &bytes[..bytes.len() - CRC_LEN];
    let states = reader.take(8 * num_steps, "states")?.as_chunks::<8>().0;
    let final_board = Board(reader.u64("final state")?);
    let moves_offset = reader.offset();
    let moves = reader.take(num_steps, "moves")?;
    let stored = reader.u32("checksum")?;
    check_crc(covered.len() as u64, "the run", stored, covered)?;
    if let Some(step) = moves.iter().position(|&index| index > 3) {
        let error = Error::decode((moves_offset + step) as u64, "move", "0..=3", moves[step]);
        return Err(error.located(|location| location.step = Some(step as u64)));
    }
    let boards: Vec<Board> = states.iter().map(|&state| Board(u64::from_le_bytes(state))).collect();
    let moves: Vec<Move> = moves.iter().map(|&index| Move::ALL[usize::from(index & 3)]).collect();
    let mut steps = Run::builder(num_steps);
    steps.extend(&boards, &moves);
    steps.finish(meta, final_board)
}

/// Reads everything before the steps, and checks the length of the file. Does not verify the checksum.
pub(in crate::format) fn read_meta(reader: &mut ByteReader<'_>) -> Result<(u32, RunMeta)> {
    let magic = reader.array::<4>("magic")?;
    if magic != *MAGIC {
        return Err(reader.error(4, "magic", "A2T1", format_args!("{}", magic.escape_ascii())));
    }
    let version = reader.u8("version")?;
    if version != VERSION {
        return Err(reader.error(1, "version", "1", version));
    }
    let endianness = reader.u8("endianness")?;
    if endianness != LITTLE_ENDIAN {
        return Err(reader.error(1, "endianness", "0 (little)", endianness));
    }
    let num_steps = reader.u32("number of steps")?;
    let start_unix_s = reader.u64("start time")?;
    let elapsed_s = reader.f32("elapsed time")?;
    let max_score = reader.u64("max_score")?;
    let highest_tile = reader.u32("highest_tile")?;
    let engine_len = reader.u16("length of engine")?;
    let engine = reader.utf8(usize::from(engine_len), "engine")?;
    let engine = (!engine.is_empty()).then(|| engine.to_owned());

    // Check this before memory is allocated for the steps.
    let expected = 9 * u64::from(num_steps) + 8 + CRC_LEN as u64;
    if reader.remaining() as u64 != expected {
        let expected = format!("{expected} bytes for {num_steps} steps and a checksum");
        return Err(reader.error(0, "length of the file", expected, format_args!("{} bytes", reader.remaining())));
    }
    let meta = RunMeta { start_unix_s, elapsed_s, max_score, highest_tile, engine, ..RunMeta::default() };
    Ok((num_steps, meta))
}

pub(in crate::format) fn encode(run: &Run) -> Result<Vec<u8>> {
    let final_board = run.whole()?;
    let meta = run.meta();
    let engine = meta.engine.as_deref().unwrap_or_default();
    let engine_len = u16::try_from(engine.len()).map_err(|_| {
        Error::argument("engine", "at most 65535 bytes in A2T1", format_args!("{} bytes", engine.len()))
    })?;
    let mut out = Vec::with_capacity(36 + engine.len() + 9 * run.num_steps() + 12);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&[VERSION, LITTLE_ENDIAN]);
    out.extend_from_slice(&(run.num_steps() as u32).to_le_bytes());
    out.extend_from_slice(&meta.start_unix_s.to_le_bytes());
    out.extend_from_slice(&meta.elapsed_s.to_le_bytes());
    out.extend_from_slice(&meta.max_score.to_le_bytes());
    out.extend_from_slice(&meta.highest_tile.to_le_bytes());
    out.extend_from_slice(&engine_len.to_le_bytes());
    out.extend_from_slice(engine.as_bytes());
    for board in run.boards().iter().chain([&final_board]) {
        out.extend_from_slice(&board.0.to_le_bytes());
    }
    out.extend(run.moves().iter().map(|&direction| direction as u8));
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    Ok(out)
}
