//! The steps of a game in memory: nine bytes each, plus sixteen with the engine's values. They are stored in blocks
//! of one size, so that a growing game copies nothing.
//!
//! ```text
//!  0       8                                   9             25
//!  | board | move 0–2 | has values 3 | mask 4–7 | values       |
//!  | u64   | u8, by bits                         | f32 × 4      |
//! ```

use crate::board::{Board, Move};
use crate::run::{Branches, RunStep};

const BLOCK_LEN: usize = 2048;
type Block = Box<[u8; BLOCK_LEN]>;

/// The memory of a block, including the allocator's header and its entry in a growing list.
pub(super) const BLOCK_COST: u64 = BLOCK_LEN as u64 + 48;

const WITHOUT_EVS: usize = 9;
const WITH_EVS: usize = 25;
/// The value for an unknown move.
const NO_MOVE: u8 = 4;
const HAS_EVS: u8 = 8;

/// The kept steps of a game.
#[derive(Clone, Debug, Default)]
pub(super) struct GameRows {
    blocks: Vec<Block>,
    pub(super) len: u32,
    with_evs: bool,
}

impl GameRows {
    pub(super) fn new(with_evs: bool) -> GameRows {
        GameRows { with_evs, ..GameRows::default() }
    }

    /// Returns the memory of the rows, in bytes.
    pub(super) fn ram(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_COST
    }

    #[inline]
    fn stride(&self) -> usize {
        if self.with_evs { WITH_EVS } else { WITHOUT_EVS }
    }

    /// Returns how many blocks are missing for this many more rows.
    #[inline]
    pub(super) fn missing_blocks(&self, rows: usize) -> usize {
        let needed = (self.len as usize).saturating_add(rows).div_ceil(BLOCK_LEN / self.stride());
        needed.saturating_sub(self.blocks.len())
    }

    pub(super) fn add_blocks(&mut self, count: usize) {
        self.blocks.resize_with(self.blocks.len() + count, || Box::new([0; BLOCK_LEN]));
    }

    /// Adds a row. The last block must have room for it.
    #[inline]
    pub(super) fn push(&mut self, board: Board, action: Option<Move>, branches: Option<Branches>) {
        let stride = self.stride();
        let (place, per_block) = (self.len as usize, BLOCK_LEN / stride);
        let block = self.blocks.get_mut(place / per_block);
        let rows = block.and_then(|block| block.get_mut(place % per_block * stride..));
        let Some(slot) = rows.and_then(|rows| rows.get_mut(..stride)) else { return };
        let mut said = action.map_or(NO_MOVE, |action| action as u8);
        slot[..8].copy_from_slice(&board.0.to_le_bytes());
        if let (Some(Branches { values, legal }), Some(slot)) = (branches, slot.get_mut(9..WITH_EVS)) {
            said |= HAS_EVS | legal << 4;
            slot.copy_from_slice(bytemuck::cast_slice(&values));
        }
        slot[8] = said;
        self.len += 1;
    }

    /// Returns the steps. Their indices are multiples of `sample_rate`.
    pub(super) fn steps(&self, sample_rate: u32) -> impl Iterator<Item = RunStep> {
        let rows = self.blocks.iter().flat_map(|block| block.chunks_exact(self.stride()));
        let indices = (0_u32..).step_by(sample_rate as usize);
        rows.take(self.len as usize).zip(indices).map(|(row, index)| step(row, index))
    }
}

#[inline]
fn step(row: &[u8], index: u32) -> RunStep {
    let board = row.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let said = row.get(8).copied().unwrap_or(NO_MOVE);
    let values = row.get(9..WITH_EVS).filter(|_| said & HAS_EVS != 0);
    let branches = values.map(|bytes| Branches { values: bytemuck::pod_read_unaligned(bytes), legal: said >> 4 });
    RunStep { index, board: Board(board).into(), chosen: Move::from_index(said & 7), branches }
}
