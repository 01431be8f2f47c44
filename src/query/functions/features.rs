//! Monotonicity and smoothness of a board, as in Matt Overlan's 2048-AI (<https://github.com/ov3y/2048-AI>,
//! `js/grid.js`: `monotonicity2` and `smoothness`), in exponents. Both results are the same for symmetric boards.

use super::arguments::Arguments;
use super::kernels::of_boards;
use crate::error::Result;
use arrow::array::ArrayRef;
use arrow::datatypes::Int32Type;

pub(super) fn monotonicity(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(Int32Type, arguments, |board, _| measured(board.exps()).0)
}

pub(super) fn smoothness(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(Int32Type, arguments, |board, _| measured(board.exps()).1)
}

/// Returns the monotonicity and the smoothness of any sixteen exponents.
fn measured(exps: [u8; 16]) -> (i32, i32) {
    let (mut monotonicity, mut smoothness) = (0, 0);
    for [along, across] in [[1, 4], [4, 1]] {
        let (mut falls, mut rises) = (0, 0);
        for line in 0..4 {
            let cells = std::array::from_fn(|i| usize::from(exps[line * across + i * along]));
            let (of_falls, of_rises, differences) = measure(cells);
            (falls, rises) = (falls + of_falls, rises + of_rises);
            smoothness -= differences as i32;
        }
        monotonicity -= falls.min(rises) as i32;
    }
    (monotonicity, smoothness)
}

/// Returns the falls, rises and differences of a row, each summed over consecutive tiles, across empty cells.
/// An empty cell at an end counts as 0 for falls and rises, but not for differences.
fn measure(row: [usize; 4]) -> (usize, usize, usize) {
    let (mut falls, mut rises, mut differences) = (0, 0, 0);
    let mut last = row[0];
    for (cell, &next) in row.iter().enumerate().skip(1) {
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
    (falls, rises, differences)
}
