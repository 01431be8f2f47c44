//! Monotonicity and smoothness of a board, as in Matt Overlan's 2048-AI (<https://github.com/ov3y/2048-AI>,
//! `js/grid.js`: `monotonicity2` and `smoothness`), in exponents. Both results are the same for symmetric boards.

use super::packed::Board;
use super::tables::{self, measure};
use super::wide::WideBoard;

/// The sums of [`measure`] over the four rows, and over the four columns.
pub(crate) struct Features([u32; 2]);

impl Board {
    #[inline(always)]
    pub(crate) fn features(self) -> Features {
        let tables = tables::get();
        Features([tables.features(self), tables.features(self.transpose())])
    }
}

impl WideBoard {
    pub(crate) fn features(self) -> Features {
        let exps = self.exps();
        let sum = |along: usize, across: usize| {
            (0..4).map(|line| measure(std::array::from_fn(|i| exps[line * across + i * along]))).sum()
        };
        Features([sum(1, 4), sum(4, 1)])
    }
}

impl Features {
    #[inline(always)]
    pub(crate) fn monotonicity(self) -> i32 {
        // The direction with the smaller sum counts.
        let smaller = |sum: u32| (sum & 0xff).min(sum >> 8 & 0xff);
        -(smaller(self.0[0]) + smaller(self.0[1])).cast_signed()
    }

    #[inline(always)]
    pub(crate) fn smoothness(self) -> i32 {
        -((self.0[0] >> 16) + (self.0[1] >> 16)).cast_signed()
    }
}
