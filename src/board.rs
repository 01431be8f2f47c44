//! The packed 4×4 board: rules, lookup tables, symmetries.
//!
//! ```text
//!   bit 63                                                             bit 0
//!    | c0 | c1 | c2 | c3 | c4 | c5 | … | c12 | c13 | c14 | c15 |     16 nibbles
//!
//!    c0  c1  c2  c3        a nibble is an exponent: 0 is empty, k is the tile 2^k,
//!    c4  c5  c6  c7        15 (32768) is the largest and never merges
//!    c8  c9  c10 c11
//!    c12 c13 c14 c15
//! ```
//!
//! A row of four nibbles has 65,536 values, so a table lookup slides a row, and four lookups slide a board. Moves
//! up and down transpose the board first. Tests check every operation against a naive implementation over cells.

mod symmetry;
mod tables;

pub use symmetry::Symmetry;

use crate::error::{Error, ErrorKind, Location, Result};
use std::fmt;
use std::str::FromStr;

/// A 4×4 board of 2048: sixteen 4-bit exponents in a `u64`, with cell 0 (top left) in the top nibble.
///
/// Every `u64` is a valid board, so the conversion costs nothing and cannot fail.
///
/// ```
/// use a2store::{Board, Move};
/// let board: Board = "2 2 . . / . 4 4 . / . . . . / . . . .".parse()?;
/// assert_eq!(board.slide(Move::Left).to_string(), "4 . . . / 8 . . . / . . . . / . . . .");
/// assert_eq!(board.reward(Move::Left), 12);
/// # Ok::<(), a2store::Error>(())
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct Board(pub u64);

/// A direction to slide in, numbered in the order UDLR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, bytemuck::NoUninit)]
#[repr(u8)]
pub enum Move {
    /// 0
    Up = 0,
    /// 1
    Down = 1,
    /// 2
    Left = 2,
    /// 3
    Right = 3,
}

impl Move {
    /// The four moves in the order of their numbers.
    pub const ALL: [Move; 4] = [Move::Up, Move::Down, Move::Left, Move::Right];

    /// Returns the move with this number; `None` above 3.
    #[must_use]
    #[inline]
    pub const fn from_index(index: u8) -> Option<Move> {
        match index {
            0 => Some(Move::Up),
            1 => Some(Move::Down),
            2 => Some(Move::Left),
            3 => Some(Move::Right),
            _ => None,
        }
    }

    /// Returns the numbers of moves.
    pub(crate) fn as_bytes(moves: &[Move]) -> &[u8] {
        bytemuck::cast_slice(moves)
    }

    /// Returns the move's bit in a legality mask: bit 0 is up, bit 3 is right.
    #[must_use]
    #[inline]
    pub const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// Returns `"up"`, `"down"`, `"left"` or `"right"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["up", "down", "left", "right"][self as usize]
    }
}

/// Builds the lookup tables unless they exist.
#[cfg(feature = "python")]
pub(crate) fn build_tables() {
    tables::build();
}

impl Board {
    /// Returns the board with these sixteen exponents, in row-major order.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if an exponent is above 15.
    pub fn from_exps(exps: [u8; 16]) -> Result<Board> {
        let mut board = 0;
        for exp in exps {
            if exp > 15 {
                return Err(Error::argument("exponent", "0..=15", exp));
            }
            board = board << 4 | u64::from(exp);
        }
        Ok(Board(board))
    }

    /// Returns the sixteen exponents in row-major order.
    #[must_use]
    #[inline]
    pub fn exps(self) -> [u8; 16] {
        // The bytes in the order of the cells, two cells per byte.
        let pairs = self.0.swap_bytes();
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{
                _mm_and_si128, _mm_cvtsi64_si128, _mm_set1_epi8, _mm_srli_epi64, _mm_unpacklo_epi8,
            };
            // The compiler does not turn shifts and masks into these instructions, and its code is much slower.
            #[allow(unsafe_code)]
            // SAFETY: SSE2 is part of x86-64.
            return bytemuck::cast(unsafe {
                let (pairs, low) = (_mm_cvtsi64_si128(pairs as i64), _mm_set1_epi8(15));
                let first = _mm_and_si128(_mm_srli_epi64::<4>(pairs), low);
                _mm_unpacklo_epi8(first, _mm_and_si128(pairs, low))
            });
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let pairs = pairs.to_le_bytes();
            std::array::from_fn(|cell| if cell % 2 == 0 { pairs[cell / 2] >> 4 } else { pairs[cell / 2] & 15 })
        }
    }

    /// Returns the exponent in a cell. Cells are numbered 0 to 15 in row-major order; others return `None`.
    #[must_use]
    pub const fn exp(self, cell: u8) -> Option<u8> {
        if cell > 15 { None } else { Some((self.0 >> (4 * (15 - cell)) & 15) as u8) }
    }

    /// Returns the largest exponent; 0 for the empty board.
    #[must_use]
    #[inline]
    pub const fn max_exp(self) -> u8 {
        // Spread the nibbles to bytes. Then fold the top half onto the bottom half, and keep the larger of each pair.
        // Bit 7 of `(a | 0x80) - b` stays set if a >= b, because no byte borrows from its neighbour.
        const fn larger(a: u64, b: u64) -> u64 {
            let at_least = (((a | 0x8080_8080_8080_8080) - b) >> 7) & 0x0101_0101_0101_0101;
            let keep_a = at_least * 0xff;
            (a & keep_a) | (b & !keep_a)
        }
        let mut max = larger(self.0 & 0x0f0f_0f0f_0f0f_0f0f, self.0 >> 4 & 0x0f0f_0f0f_0f0f_0f0f);
        max = larger(max, max >> 32);
        max = larger(max, max >> 16);
        max = larger(max, max >> 8);
        (max & 15) as u8
    }

    /// Returns the largest tile, 2 to 32768; 0 for the empty board.
    #[must_use]
    pub const fn highest_tile(self) -> u32 {
        match self.max_exp() {
            0 => 0,
            exp => 1 << exp,
        }
    }

    /// Returns the number of empty cells, 0 to 16.
    #[must_use]
    pub const fn num_empty(self) -> u32 {
        // Set the low bit of each nibble to the OR of its four bits.
        let x = self.0 | self.0 >> 2;
        let x = (x | x >> 1) & 0x1111_1111_1111_1111;
        16 - x.count_ones()
    }

    /// Returns the sum of the tiles.
    #[must_use]
    pub fn tile_sum(self) -> u32 {
        self.exps().iter().map(|&exp| if exp == 0 { 0 } else { 1 << exp }).sum()
    }

    /// Returns the score that engines write into `max_score`: the sum over tiles `2^k` of `(k - 1) * 2^k`.
    ///
    /// This is the sum of the merge rewards if every spawned tile is a 2. Each spawned 4 adds 4 to the score without a
    /// [`reward`](Board::reward).
    #[must_use]
    pub fn score(self) -> u64 {
        self.exps().iter().map(|&exp| u64::from(exp.saturating_sub(1)) << exp).sum()
    }

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

    /// The four boards after sliding up, down, left and right.
    ///
    /// Cheaper than four calls of [`slide`](Board::slide), as up and down share a transpose.
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

    /// Returns the board mirrored in its main diagonal: rows become columns.
    #[must_use]
    #[inline(always)]
    pub const fn transpose(self) -> Board {
        // Swap the off-diagonal nibbles of each 2×2 block, then the off-diagonal 2×2 blocks.
        let x = self.0;
        let swap = (x ^ x >> 12) & 0x0000_f0f0_0000_f0f0;
        let x = x ^ swap ^ swap << 12;
        let swap = (x ^ x >> 24) & 0x0000_0000_ff00_ff00;
        Board(x ^ swap ^ swap << 24)
    }

    /// Returns the board under one of the eight symmetries of the square.
    #[must_use]
    pub const fn transform(self, symmetry: Symmetry) -> Board {
        symmetry.apply(self)
    }

    /// Returns the smallest of the eight symmetric boards. Symmetric positions have the same canonical board.
    #[must_use]
    pub fn canonical(self) -> Board {
        Symmetry::ALL.into_iter().map(|symmetry| symmetry.apply(self)).min().unwrap_or(self)
    }
}

impl fmt::Display for Board {
    /// Writes rows separated by `/`, tiles by spaces, and an empty cell as `.`; `{:#}` writes one row per line, in
    /// columns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (cell, exp) in self.exps().into_iter().enumerate() {
            match (cell, cell % 4) {
                (0, _) => {}
                (_, 0) if f.alternate() => writeln!(f)?,
                (_, 0) => write!(f, " / ")?,
                _ => write!(f, " ")?,
            }
            let width = if f.alternate() { 5 } else { 0 };
            match exp {
                0 => write!(f, "{:>width$}", ".")?,
                _ => write!(f, "{:>width$}", 1u32 << exp)?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Board({:#018x}: {self})", self.0)
    }
}

impl FromStr for Board {
    type Err = Error;

    /// Reads the format of `Display`: sixteen tiles, `0` or `.` for an empty cell, separated by `/` and white space.
    fn from_str(text: &str) -> Result<Board> {
        let mut exps = [0; 16];
        let mut cells = 0;
        for word in text.split(|c: char| c.is_whitespace() || c == '/').filter(|word| !word.is_empty()) {
            let exp = match word {
                "." | "0" => 0,
                _ => match word.parse::<u32>() {
                    Ok(tile) if tile.is_power_of_two() && (2..=32768).contains(&tile) => tile.trailing_zeros() as u8,
                    _ => return Err(text_error("tile", "a power of two in 2..=32768, or .", word)),
                },
            };
            if let Some(slot) = exps.get_mut(cells) {
                *slot = exp;
            }
            cells += 1;
        }
        if cells != 16 {
            return Err(text_error("board", "16 tiles", &cells.to_string()));
        }
        Board::from_exps(exps)
    }
}

fn text_error(what: &'static str, expected: &str, found: &str) -> Error {
    ErrorKind::Decode { location: Location::default(), what, expected: expected.into(), found: found.into() }.into()
}

impl From<u64> for Board {
    fn from(board: u64) -> Board {
        Board(board)
    }
}

impl From<Board> for u64 {
    fn from(board: Board) -> u64 {
        board.0
    }
}

#[cfg(test)]
mod naive;
#[cfg(test)]
mod tests;
