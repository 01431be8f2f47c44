//! The packed board: its cells, tiles and score.

use crate::error::{Error, Result};

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

impl Board {
    /// Returns the board with these sixteen exponents, in row-major order.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if an exponent is above 15.
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
    #[inline(always)]
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

    /// Returns the largest exponent; 0 for the empty board.
    #[must_use]
    #[inline(always)]
    pub const fn max_exp(self) -> u8 {
        // Spread the nibbles to bytes. Then fold the top half onto the bottom half, and keep the larger of each pair.
        // Bit 7 of `(a | 0x80) - b` stays set if a >= b, because no byte borrows from its neighbour.
        #[inline(always)]
        const fn larger(a: u64, b: u64) -> u64 {
            let at_least = (((a | 0x8080_8080_8080_8080) - b) >> 7) & 0x0101_0101_0101_0101;
            let keep_a = (at_least << 8) - at_least;
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
    #[inline(always)]
    pub const fn highest_tile(self) -> u32 {
        match self.max_exp() {
            0 => 0,
            exp => 1 << exp,
        }
    }

    /// Returns the number of empty cells, 0 to 16.
    #[must_use]
    #[inline(always)]
    pub const fn num_empty(self) -> u32 {
        // Set the low bit of each nibble to the OR of its four bits.
        let x = self.0 | self.0 >> 2;
        let x = (x | x >> 1) & 0x1111_1111_1111_1111;
        16 - x.count_ones()
    }

    /// Returns the sum of the tiles.
    #[must_use]
    #[inline(always)]
    pub fn tile_sum(self) -> u32 {
        // An empty cell has no tile of 1.
        self.sum(|exp| 1 << exp & !1)
    }

    /// Returns the score that engines write into `max_score`: the sum over tiles `2^k` of `(k - 1) * 2^k`.
    ///
    /// This is the sum of the merge rewards if every spawned tile is a 2. Each spawned 4 adds 4 to the score without a
    /// [`reward`](Board::reward).
    #[must_use]
    #[inline(always)]
    pub fn score(self) -> u64 {
        // Sixteen tiles of 32,768 sum to 7 million.
        self.sum(|exp| u32::from(exp.saturating_sub(1)) << exp).into()
    }

    /// Returns the sum of a value of each exponent. The compiler vectorizes the loop, but not `Iterator::sum`.
    #[inline(always)]
    fn sum(self, value: impl Fn(u8) -> u32) -> u32 {
        let mut sum = 0;
        for exp in self.exps() {
            sum += value(exp);
        }
        sum
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
