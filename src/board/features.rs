//! Monotonicity and smoothness of a board, as in Matt Overlan's 2048-AI (<https://github.com/ov3y/2048-AI>,
//! `js/grid.js`: `monotonicity2` and `smoothness`), in exponents. Both results are the same for symmetric boards.

use super::packed::Board;
use super::tables;
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

/// Returns the falls, rises and differences of a line in the lowest three bytes, each summed over consecutive tiles,
/// across empty cells. The sums of four lines fit in the same bytes. An empty cell at an end counts as 0 for falls and
/// rises, but not for differences.
pub(super) fn measure(line: [u8; 4]) -> u32 {
    let line = line.map(u32::from);
    let (mut falls, mut rises, mut differences) = (0, 0, 0);
    let mut last = line[0];
    for (cell, &next) in line.iter().enumerate().skip(1) {
        if next == 0 && cell < 3 {
            continue;
        }
        falls += last.saturating_sub(next);
        rises += next.saturating_sub(last);
        if last > 0 && next > 0 {
            differences += last.abs_diff(next);
        }
        last = next;
    }
    differences << 16 | rises << 8 | falls
}
