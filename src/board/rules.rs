//! The rules of the game: slides, rewards, legality and spawns.

use super::direction::Move;
use super::packed::Board;
use super::tables;

impl Board {
    /// Returns the board after sliding, before a tile spawns. If the move is illegal, returns the same board.
    #[must_use]
    #[inline]
    pub fn slide(self, direction: Move) -> Board {
        tables::get().slide(self.transpose_for(direction), direction as u8 & 1 == 1).transpose_for(direction)
    }

    /// Returns the four boards after sliding up, down, left and right.
    ///
    /// This is cheaper than four calls of [`slide`](Board::slide), because up and down share a transposition.
    #[must_use]
    pub fn slides(self) -> [Board; 4] {
        let tables = tables::get();
        let columns = self.transpose();
        [
            tables.slide(columns, false).transpose(),
            tables.slide(columns, true).transpose(),
            tables.slide(self, false),
            tables.slide(self, true),
        ]
    }

    /// Returns the reward of a move: the sum of the tiles that its merges create.
    #[must_use]
    #[inline]
    pub fn reward(self, direction: Move) -> u32 {
        // Both directions merge the same pairs of tiles.
        tables::get().reward(self.transpose_for(direction))
    }

    /// Transposes the board for a move up or down. It has no branches, because moves are unpredictable.
    #[inline(always)]
    fn transpose_for(self, direction: Move) -> Board {
        let is_horizontal = u64::from(direction as u8 >> 1);
        Board(self.0 ^ (self.0 ^ self.transpose().0) & is_horizontal.wrapping_sub(1))
    }

    /// Returns the legality mask: bit 0 is up, bit 3 is right. A move is legal if it changes the board.
    #[must_use]
    #[inline]
    pub fn legal_moves(self) -> u8 {
        let tables = tables::get();
        // In the mask of a row, bit 2 is left and bit 3 is right. In the mask of a column they are up and down.
        tables.legal_rows(self) | tables.legal_rows(self.transpose()) >> 2
    }

    /// Returns whether no move is legal.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        self.legal_moves() == 0
    }

    /// Returns whether `next` is this board with exactly one empty cell turned into a 2 or a 4.
    #[must_use]
    #[inline]
    pub const fn spawns_into(self, next: Board) -> bool {
        let spawned = self.0 ^ next.0;
        if spawned == 0 {
            return false;
        }
        let shift = spawned.trailing_zeros() & !3;
        matches!(spawned >> shift, 1 | 2) && (self.0 >> shift) & 15 == 0
    }
}
