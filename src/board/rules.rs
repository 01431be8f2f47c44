//! The rules of the game: slides, rewards, legality and spawns.

use super::direction::Move;
use super::packed::Board;
use super::tables;

impl Board {
    /// Returns the board after sliding, before a tile spawns. If the move is illegal, returns the same board.
    #[must_use]
    #[inline]
    pub fn slide(self, direction: Move) -> Board {
        let tables = tables::get();
        match direction {
            Move::Left => tables.slide_left(self),
            Move::Right => tables.slide_right(self),
            Move::Up => tables.slide_left(self.transpose()).transpose(),
            Move::Down => tables.slide_right(self.transpose()).transpose(),
        }
    }

    /// Returns the four boards after sliding up, down, left and right.
    ///
    /// This is cheaper than four calls of [`slide`](Board::slide), because up and down share a transposition.
    #[must_use]
    pub fn slides(self) -> [Board; 4] {
        let tables = tables::get();
        let columns = self.transpose();
        [
            tables.slide_left(columns).transpose(),
            tables.slide_right(columns).transpose(),
            tables.slide_left(self),
            tables.slide_right(self),
        ]
    }

    /// Returns the reward of a move: the sum of the tiles that its merges create.
    #[must_use]
    #[inline]
    pub fn reward(self, direction: Move) -> u32 {
        let rows = match direction {
            Move::Left | Move::Right => self,
            Move::Up | Move::Down => self.transpose(),
        };
        // Both directions merge the same pairs of tiles.
        tables::get().reward(rows)
    }

    /// Returns the board after sliding and the reward, with one pass over the lines.
    #[must_use]
    #[inline]
    pub(crate) fn slide_with_reward(self, direction: Move) -> (Board, u32) {
        // Both choices compile to code without branches, because moves are unpredictable.
        let is_column = (direction as u8) < 2;
        let lines = if is_column { self.transpose() } else { self };
        let (slid, reward) = tables::get().slide_with_reward(lines, direction as u8 & 1 == 1);
        (if is_column { slid.transpose() } else { slid }, reward)
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
