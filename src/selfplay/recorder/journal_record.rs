//! The format of a journal file.
//!
//! ```text
//!  journal-000001.bin, …      one per flush; the last one is open
//!  0          8             12            13
//!  | A2JOURN1 | sample_rate | with_evs u8 | 0 × 3 |      then records, each:
//!  | u8 × 8   | u32         |
//!
//!  0     8     12  16
//!  | len | crc | 0 | game: 56 bytes | rows, as in memory: 9 or 25 bytes each |     crc: CRC32C of the `len` bytes after it
//!  | u64 | u32 |   |
//! ```

use super::ended_game::EndedGame;
use super::game_rows::GameRows;
use crate::board::Board;

pub(super) const HEADER_LEN: usize = 16;
pub(super) const FRAME_LEN: usize = 16;
const HAS_SEED: u32 = 1;
const HAS_FINAL: u32 = 2;
const HAS_LAST: u32 = 4;

/// The head of a record: a game without its rows.
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct RecordHead {
    id: u64,
    seed: u64,
    final_board: u64,
    last: u64,
    start_unix_s: u64,
    num_steps: u32,
    num_rows: u32,
    elapsed_s: f32,
    flags: u32,
}

const _: () = assert!(size_of::<RecordHead>() == 56);

pub(super) fn head_of(game: &EndedGame) -> RecordHead {
    let flag = |flag, is_set| if is_set { flag } else { 0 };
    RecordHead {
        id: game.id,
        seed: game.seed.unwrap_or(0),
        final_board: game.final_board.unwrap_or_default().0,
        last: game.last.unwrap_or_default().0,
        start_unix_s: game.start_unix_s,
        num_steps: game.num_steps,
        num_rows: game.rows.len(),
        elapsed_s: game.elapsed_s,
        flags: flag(HAS_SEED, game.seed.is_some())
            | flag(HAS_FINAL, game.final_board.is_some())
            | flag(HAS_LAST, game.last.is_some()),
    }
}

/// Decodes a record. Returns `None` if it is invalid.
pub(super) fn game_of(record: &[u8], sample_rate: u32, with_evs: bool) -> Option<EndedGame> {
    let (head, rows) = record.split_at_checked(size_of::<RecordHead>())?;
    let head: RecordHead = bytemuck::pod_read_unaligned(head);
    let rows = GameRows::from_bytes(rows, with_evs).filter(|rows| rows.len() == head.num_rows)?;
    let has = |flag| head.flags & flag != 0;
    Some(EndedGame {
        id: head.id,
        seed: has(HAS_SEED).then_some(head.seed),
        num_steps: head.num_steps,
        sample_rate,
        last: has(HAS_LAST).then_some(Board(head.last)),
        final_board: has(HAS_FINAL).then_some(Board(head.final_board)),
        start_unix_s: head.start_unix_s,
        elapsed_s: head.elapsed_s,
        rows,
    })
}
