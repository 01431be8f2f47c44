//! A board with tiles up to 65,536.

use super::direction::Move;
use super::packed::Board;
use super::symmetry::Symmetry;
use super::text;
use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// A board with tiles up to 65,536: a [`Board`], and a mask of the cells that hold 65,536.
///
/// A nibble cannot hold the exponent 16. Such a cell has the nibble 15, and its bit in the mask is set: bit `i` for
/// cell `i`, where cell 0 is at the top left. Every [`Board`] is a `WideBoard` with an empty mask.
///
/// Unlike on a [`Board`], two tiles of 32,768 merge. Two tiles of 65,536 do not.
///
/// ```
/// use a2store::Move;
/// use a2store::board::WideBoard;
/// let board: WideBoard = "32768 32768 . 2 / . . . . / . . . . / . . . .".parse()?;
/// let after = board.slide(Move::Left);
/// assert_eq!(after.to_string(), "65536 2 . . / . . . . / . . . . / . . . .");
/// assert_eq!((after.board().0 >> 60, after.tile_65536_mask()), (15, 1));
/// assert_eq!((board.reward(Move::Left), after.max_exp()), (65_536, 16));
/// # Ok::<(), a2store::Error>(())
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WideBoard {
    board: Board,
    mask: u16,
}

/// The exponent of the largest tile.
const MAX_EXP: u8 = 16;

impl WideBoard {
    /// Returns the board with these nibbles and this mask.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if the mask marks a cell whose nibble is not 15.
    pub fn new(board: Board, tile_65536_mask: u16) -> Result<WideBoard> {
        let exps = board.exps();
        match (0..16).find(|&cell| tile_65536_mask >> cell & 1 == 1 && exps[cell] != 15) {
            Some(cell) => {
                Err(Error::argument("tile_65536_mask", "only cells with the exponent 15", format!("cell {cell}")))
            }
            None => Ok(WideBoard { board, mask: tile_65536_mask }),
        }
    }

    /// Returns the board with the parts of another board.
    #[inline]
    pub(crate) const fn of_parts(board: Board, mask: u16) -> WideBoard {
        WideBoard { board, mask }
    }

    /// Returns the board with these sixteen exponents, in row-major order.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if an exponent is above 16.
    pub fn from_exps(exps: [u8; 16]) -> Result<WideBoard> {
        match exps.into_iter().find(|&exp| exp > MAX_EXP) {
            Some(exp) => Err(Error::argument("exponent", "0..=16", exp)),
            None => Ok(WideBoard::of_exps(exps)),
        }
    }

    /// Returns the board with these exponents. None of them is above 16.
    fn of_exps(exps: [u8; 16]) -> WideBoard {
        let nibbles = exps.iter().fold(0, |board, &exp| board << 4 | u64::from(exp.min(15)));
        let mask = (0..16).filter(|&cell| exps[cell] >= MAX_EXP).fold(0, |mask, cell| mask | 1 << cell);
        WideBoard { board: Board(nibbles), mask }
    }

    /// Returns the sixteen exponents in row-major order, each 0 to 16.
    #[must_use]
    pub fn exps(self) -> [u8; 16] {
        let mut exps = self.board.exps();
        for (cell, exp) in exps.iter_mut().enumerate() {
            *exp += (self.mask >> cell & 1) as u8;
        }
        exps
    }

    /// Returns the nibbles. They are 15 for both 32,768 and 65,536.
    #[must_use]
    #[inline(always)]
    pub const fn board(self) -> Board {
        self.board
    }

    /// Returns the mask of the cells that hold 65,536.
    #[must_use]
    #[inline(always)]
    pub const fn tile_65536_mask(self) -> u16 {
        self.mask
    }

    /// Returns the board, if it has no tile of 65,536.
    #[must_use]
    #[inline(always)]
    pub fn narrow(self) -> Option<Board> {
        (self.mask == 0).then_some(self.board)
    }

    /// Returns the largest exponent; 0 for the empty board.
    #[must_use]
    pub const fn max_exp(self) -> u8 {
        if self.mask == 0 { self.board.max_exp() } else { MAX_EXP }
    }

    /// Returns the largest tile, 2 to 65536; 0 for the empty board.
    #[must_use]
    pub const fn highest_tile(self) -> u32 {
        if self.mask == 0 { self.board.highest_tile() } else { 1 << MAX_EXP }
    }

    /// Returns the number of empty cells, 0 to 16.
    #[must_use]
    pub const fn num_empty(self) -> u32 {
        self.board.num_empty()
    }

    /// Returns the sum of the tiles.
    #[must_use]
    pub fn tile_sum(self) -> u32 {
        self.board.tile_sum() + (self.mask.count_ones() << 15)
    }

    /// Returns the score, as [`Board::score`].
    #[must_use]
    pub fn score(self) -> u64 {
        // (16 - 1) * 2^16, less the (15 - 1) * 2^15 that the nibble counts.
        self.board.score() + u64::from(self.mask.count_ones()) * ((15 << 16) - (14 << 15))
    }

    /// Returns the board after sliding, before a tile spawns. If the move is illegal, returns the same board.
    #[must_use]
    pub fn slide(self, direction: Move) -> WideBoard {
        self.slide_with_reward(direction).0
    }

    /// Returns the reward of a move: the sum of the tiles that its merges create.
    #[must_use]
    pub fn reward(self, direction: Move) -> u32 {
        self.slide_with_reward(direction).1
    }

    fn slide_with_reward(self, direction: Move) -> (WideBoard, u32) {
        // Without two tiles of 32,768 or more, the rules of a `Board` hold.
        if self.mask == 0 && !has_two_of_15(self.board) {
            return (self.board.slide(direction).into(), self.board.reward(direction));
        }
        let (exps, mut slid, mut reward) = (self.exps(), [0; 16], 0);
        for line in 0..4 {
            // The cells of the line, from the wall that the tiles slide to.
            let cells: [usize; 4] = std::array::from_fn(|i| match direction {
                Move::Up => 4 * i + line,
                Move::Down => 4 * (3 - i) + line,
                Move::Left => 4 * line + i,
                Move::Right => 4 * line + 3 - i,
            });
            let (mut free, mut may_merge) = (0, false);
            for exp in cells.map(|cell| exps[cell]).into_iter().filter(|&exp| exp > 0) {
                if may_merge && slid[cells[free - 1]] == exp && exp < MAX_EXP {
                    slid[cells[free - 1]] += 1;
                    reward += 2 << exp;
                    may_merge = false;
                } else {
                    slid[cells[free]] = exp;
                    free += 1;
                    may_merge = true;
                }
            }
        }
        (WideBoard::of_exps(slid), reward)
    }

    /// Returns the legality mask: bit 0 is up, bit 3 is right. A move is legal if it changes the board.
    #[must_use]
    pub fn legal_moves(self) -> u8 {
        if self.mask == 0 && !has_two_of_15(self.board) {
            return self.board.legal_moves();
        }
        let is_legal = |direction: &Move| self.slide(*direction) != self;
        Move::ALL.into_iter().filter(is_legal).fold(0, |mask, direction| mask | direction.bit())
    }

    /// Returns whether no move is legal.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        self.legal_moves() == 0
    }

    /// Returns whether `next` is this board with exactly one empty cell turned into a 2 or a 4.
    #[must_use]
    pub const fn spawns_into(self, next: WideBoard) -> bool {
        self.mask == next.mask && self.board.spawns_into(next.board)
    }

    /// Returns the board under one of the eight symmetries of the square.
    #[must_use]
    pub fn transform(self, symmetry: Symmetry) -> WideBoard {
        let marks = (0..16).fold(0, |marks, cell| marks << 4 | u64::from(self.mask >> cell & 1));
        let marks = Board(marks).transform(symmetry).exps();
        let mask = (0..16).fold(0, |mask, cell| mask | u16::from(marks[cell]) << cell);
        WideBoard { board: self.board.transform(symmetry), mask }
    }

    /// Returns the smallest of the eight symmetric boards: the one with the smallest nibbles, and among equal
    /// nibbles the one with the smallest mask. Symmetric positions have the same canonical board.
    #[must_use]
    pub fn canonical(self) -> WideBoard {
        Symmetry::ALL.into_iter().map(|symmetry| self.transform(symmetry)).min().unwrap_or(self)
    }
}

/// Returns whether at least two nibbles are 15. Only then can two tiles of 32,768 merge.
#[inline]
pub(crate) const fn has_two_of_15(board: Board) -> bool {
    let pairs = board.0 & board.0 >> 1;
    let full = pairs & pairs >> 2 & 0x1111_1111_1111_1111;
    full & full.wrapping_sub(1) != 0
}

impl From<Board> for WideBoard {
    #[inline(always)]
    fn from(board: Board) -> WideBoard {
        WideBoard { board, mask: 0 }
    }
}

/// A known board, where `None` stands for an unknown one.
impl From<Board> for Option<WideBoard> {
    fn from(board: Board) -> Option<WideBoard> {
        Some(board.into())
    }
}

impl PartialEq<Board> for WideBoard {
    fn eq(&self, other: &Board) -> bool {
        *self == WideBoard::from(*other)
    }
}

impl fmt::Display for WideBoard {
    /// Writes the board as [`Board`] does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::format(self.exps(), f)
    }
}

impl fmt::Debug for WideBoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WideBoard({:#018x}, {:#06x}: {self})", self.board.0, self.mask)
    }
}

impl FromStr for WideBoard {
    type Err = Error;

    /// Reads the format of `Display`, as [`Board`] does, with tiles up to 65536.
    fn from_str(text: &str) -> Result<WideBoard> {
        text::parse(text, 1 << MAX_EXP).map(WideBoard::of_exps)
    }
}
