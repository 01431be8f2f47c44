//! Monotonicity and smoothness of a board, as in Matt Overlan's 2048-AI (<https://github.com/ov3y/2048-AI>,
//! `js/grid.js`: `monotonicity2` and `smoothness`), in exponents.
//!
//! Both combine one value for each row and each column. There are 65,536 different rows, so tables hold their values.
//! The tables take 192 KiB and are built once, in about a millisecond. Both results are the same for symmetric
//! boards.

use super::arguments::Arguments;
use super::kernels::of_boards;
use crate::board::Board;
use crate::error::Result;
use arrow::array::ArrayRef;
use arrow::datatypes::Int32Type;
use std::sync::LazyLock;

const ROWS: usize = 1 << 16;

static TABLES: LazyLock<FeatureTables> = LazyLock::new(FeatureTables::build);

/// Values of each row, read from left to right. A row falls and rises by at most 30, so a sum of four rows fits
/// a byte.
struct FeatureTables {
    /// The sum of the falls of exponents in the low byte, and the sum of the rises in the high byte.
    slopes: Box<[u16; ROWS]>,
    /// The sum of the differences of neighbors.
    differences: Box<[u8; ROWS]>,
}

/// Builds the tables if they do not exist yet. Call it before a fork: if a process forks while a thread builds
/// them, the child waits forever for that thread.
#[cfg(feature = "python")]
pub(crate) fn build_tables() {
    LazyLock::force(&TABLES);
}

pub(super) fn monotonicity(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let slopes = &*TABLES.slopes;
    // The direction with the smaller sum counts.
    let axis = |board| {
        let sum = of_rows(board, |row| slopes[row]);
        i32::from(sum & 0xff).min(i32::from(sum >> 8))
    };
    let value = |board| -axis(board) - axis(Board(board).transpose().0);
    of_boards::<Int32Type>(arguments, value, |row| measured(row.board.exps()).0)
}

pub(super) fn smoothness(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let differences = &*TABLES.differences;
    let axis = |board| i32::from(of_rows(board, |row| differences[row].into()));
    let value = |board| -axis(board) - axis(Board(board).transpose().0);
    of_boards::<Int32Type>(arguments, value, |row| measured(row.board.exps()).1)
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

#[inline(always)]
fn of_rows(board: u64, f: impl Fn(usize) -> u16) -> u16 {
    let row = |shift: u32| f((board >> shift) as usize & 0xffff);
    row(0) + row(16) + row(32) + row(48)
}

impl FeatureTables {
    fn build() -> FeatureTables {
        let mut tables = FeatureTables {
            slopes: bytemuck::allocation::zeroed_box(),
            differences: bytemuck::allocation::zeroed_box(),
        };
        for row in 0..ROWS {
            let (falls, rises, differences) = measure([row >> 12, row >> 8 & 15, row >> 4 & 15, row & 15]);
            tables.slopes[row] = (rises << 8 | falls) as u16;
            tables.differences[row] = differences as u8;
        }
        tables
    }
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
