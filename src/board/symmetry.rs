//! The eight symmetries of the square, on boards and on moves.

use super::direction::Move;
use super::packed::Board;

/// A symmetry of the square. Rotations are clockwise.
///
/// [`Board::transform`] moves the tiles and [`Symmetry::apply_to_move`] maps the direction, so that slides and
/// symmetries commute: `board.slide(m).transform(s) == board.transform(s).slide(s.apply_to_move(m))`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Symmetry {
    /// 0: no change.
    Identity = 0,
    /// 1: rotation by 90°.
    Turn90 = 1,
    /// 2: rotation by 180°.
    Turn180 = 2,
    /// 3: rotation by 270°.
    Turn270 = 3,
    /// 4: left and right swapped.
    FlipColumns = 4,
    /// 5: top and bottom swapped.
    FlipRows = 5,
    /// 6: mirrored in the main diagonal.
    Transpose = 6,
    /// 7: mirrored in the other diagonal.
    AntiTranspose = 7,
}

impl Symmetry {
    /// The eight symmetries in the order of their numbers.
    pub const ALL: [Symmetry; 8] = {
        use Symmetry::*;
        [Identity, Turn90, Turn180, Turn270, FlipColumns, FlipRows, Transpose, AntiTranspose]
    };

    /// Applies the symmetry with this number. It has no branches, which is fast if the number changes all the time.
    #[inline(always)]
    pub(crate) const fn apply_index(index: u8, board: Board) -> Board {
        #[inline(always)]
        const fn choose(part: u32, yes: Board, no: Board) -> Board {
            let mask = (part as u64).wrapping_neg();
            Board((yes.0 & mask) | (no.0 & !mask))
        }
        let [transpose, columns, rows] = Symmetry::parts(index);
        let board = choose(transpose, board.transpose(), board);
        let board = choose(columns, flip_columns(board), board);
        choose(rows, flip_rows(board), board)
    }

    /// Returns the parts of the symmetry with this number, each 0 or 1: a transposition, then a flip of the
    /// columns, then a flip of the rows.
    #[inline(always)]
    pub(crate) const fn parts(index: u8) -> [u32; 3] {
        const TRANSPOSED: u32 = 0b1100_1010;
        const COLUMNS: u32 = 0b1001_0110;
        const ROWS: u32 = 0b1010_1100;
        let index = index & 7;
        [TRANSPOSED >> index & 1, COLUMNS >> index & 1, ROWS >> index & 1]
    }

    /// Returns the direction after the symmetry.
    #[must_use]
    #[inline(always)]
    pub const fn apply_to_move(self, direction: Move) -> Move {
        Move::ALL[Symmetry::apply_index_to_move(self as u8, direction as u8) as usize]
    }

    /// Applies the symmetry with this number to the move with this number, 0 to 3. It has no branches.
    #[inline(always)]
    pub(crate) const fn apply_index_to_move(index: u8, direction: u8) -> u8 {
        let [transpose, columns, rows] = Symmetry::parts(index);
        // A transposition exchanges up with left and down with right. A flip exchanges the two directions of its axis.
        let turned = direction as u32 & 3 ^ transpose << 1;
        let is_horizontal = turned >> 1;
        (turned ^ (columns & is_horizontal | rows & !is_horizontal)) as u8
    }
}

impl Board {
    /// Returns the board under one of the eight symmetries of the square.
    #[must_use]
    #[inline(always)]
    pub const fn transform(self, symmetry: Symmetry) -> Board {
        Symmetry::apply_index(symmetry as u8, self)
    }

    /// Returns the smallest of the eight symmetric boards. Symmetric positions have the same canonical board.
    #[must_use]
    #[inline(always)]
    pub const fn canonical(self) -> Board {
        #[inline(always)]
        const fn smaller(a: u64, b: u64) -> u64 {
            if a < b { a } else { b }
        }
        /// Returns the smallest of the boards with rows and columns flipped or not.
        #[inline(always)]
        const fn smallest(board: Board) -> u64 {
            let flipped = flip_columns(board);
            smaller(smaller(board.0, flip_rows(board).0), smaller(flipped.0, flip_rows(flipped).0))
        }
        // The eight boards are the board and its transpose, each with rows and columns flipped or not.
        Board(smaller(smallest(self), smallest(self.transpose())))
    }
}

#[inline(always)]
const fn flip_rows(board: Board) -> Board {
    let x = board.0.rotate_left(32);
    Board((x >> 16 & 0x0000_ffff_0000_ffff) | (x & 0x0000_ffff_0000_ffff) << 16)
}

#[inline(always)]
const fn flip_columns(board: Board) -> Board {
    let x = board.0;
    let x = (x >> 8 & 0x00ff_00ff_00ff_00ff) | (x & 0x00ff_00ff_00ff_00ff) << 8;
    Board((x >> 4 & 0x0f0f_0f0f_0f0f_0f0f) | (x & 0x0f0f_0f0f_0f0f_0f0f) << 4)
}
