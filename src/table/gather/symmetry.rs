//! The choice of a symmetry for each row, and turning a row by it.
//!
//! The symmetry is a function of seed, epoch and row alone. It is the top three bits of a hash of the row's
//! number under a key ([`mix`]).

use crate::board::{Board, Symmetry};
use crate::step::{NO_MOVE, Step};
use crate::system::random::mix;

/// A key that determines one symmetry for each row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SymmetryKey(u64);

/// The number of boards that are turned together.
pub(in crate::table) const BLOCK: usize = 64;

/// The image of each move under each symmetry; [`NO_MOVE`] stays [`NO_MOVE`].
const MOVES: [[u8; 8]; 8] = {
    let mut moves = [[NO_MOVE; 8]; 8];
    let mut index = 0;
    while index < 8 {
        let mut from = 0;
        while from < 4 {
            moves[index][from as usize] = image(index, from);
            from += 1;
        }
        index += 1;
    }
    moves
};

/// The image of each legality mask under each symmetry.
const MASKS: [[u8; 16]; 8] = {
    let mut masks = [[0; 16]; 8];
    let mut index = 0;
    while index < 8 {
        let mut mask = 0;
        while mask < 16 {
            let mut from = 0;
            while from < 4 {
                if mask >> from & 1 == 1 {
                    masks[index][mask] |= 1 << image(index, from);
                }
                from += 1;
            }
            mask += 1;
        }
        index += 1;
    }
    masks
};

const fn image(symmetry: usize, direction: u8) -> u8 {
    Symmetry::apply_index_to_move(symmetry as u8, direction)
}

impl SymmetryKey {
    /// A placeholder for gathers without symmetries.
    pub(in crate::table) const NONE: SymmetryKey = SymmetryKey(0);

    pub(crate) fn new(seed: u64, epoch: u64) -> SymmetryKey {
        let mut hasher = blake3::Hasher::new_derive_key("a2store 2026 loader symmetries");
        hasher.update(&seed.to_le_bytes()).update(&epoch.to_le_bytes());
        let mut key = [0; 8];
        hasher.finalize_xof().fill(&mut key);
        SymmetryKey(u64::from_le_bytes(key))
    }

    /// Returns the index of a row's symmetry, 0 to 7.
    #[inline(always)]
    fn index_of(self, row: u64) -> usize {
        (mix(row ^ self.0) >> 61) as usize
    }

    pub(in crate::table) fn symmetry_of(self, row: u64) -> Symmetry {
        Symmetry::ALL[self.index_of(row)]
    }

    /// Computes the symmetry index of each row and turns its board. One block fills several vector registers.
    #[inline(always)]
    pub(in crate::table) fn turn_boards(
        self,
        rows: &[u64; BLOCK],
        boards: &mut [Board; BLOCK],
        indices: &mut [u8; BLOCK],
    ) {
        // The compiler vectorizes loops over the indices of fixed-size arrays.
        for k in 0..BLOCK {
            indices[k] = self.index_of(rows[k]) as u8;
        }
        for k in 0..BLOCK {
            boards[k] = Symmetry::apply_index(indices[k], boards[k]);
        }
    }
}

/// Replaces a step's board by its turned `board`, and turns the values, the mask and the move. No move stays no
/// move.
#[inline(always)]
pub(in crate::table) fn turn(index: u8, board: Board, step: &mut Step) {
    step.board = board;
    // The low half of the values is up and down, the high half left and right. A transpose exchanges the
    // halves. A flip of rows exchanges up and down, and a flip of columns left and right.
    let [mut vertical, mut horizontal]: [u64; 2] = bytemuck::cast(step.ev_values);
    let [transpose, columns, rows] = Symmetry::parts(index);
    let exchanged = (vertical ^ horizontal) & u64::from(transpose).wrapping_neg();
    vertical = (vertical ^ exchanged).rotate_left(rows * 32);
    horizontal = (horizontal ^ exchanged).rotate_left(columns * 32);
    step.ev_values = bytemuck::cast([vertical, horizontal]);
    let index = usize::from(index & 7);
    step.ev_legal = MASKS[index][usize::from(step.ev_legal & 15)];
    step.chosen = MOVES[index][usize::from(step.chosen.min(7))];
}
