//! Monotonicity and smoothness of a board, as in Matt Overlan's 2048-AI
//! (<https://github.com/ov3y/2048-AI>, `js/grid.js`: `monotonicity2` and `smoothness`), in exponents.
//!
//! Both are put together from what each row and each column says alone, and there are 65,536 of these: 192 KiB of
//! tables, built once in about a millisecond. No symmetry of the square changes either.

use super::arguments::Arguments;
use super::kernels::of_boards;
use crate::board::Board;
use crate::error::Result;
use arrow::array::ArrayRef;
use arrow::datatypes::Int32Type;
use std::sync::LazyLock;

const ROWS: usize = 1 << 16;

static TABLES: LazyLock<Tables> = LazyLock::new(Tables::build);

/// By row, from left to right. A row falls by at most 30, as does it rise, so sums over four stay within a byte.
struct Tables {
    /// By how much exponents fall, in the low byte, and rise, in the high one.
    slopes: Box<[u16; ROWS]>,
    /// By how much neighbours differ.
    differences: Box<[u8; ROWS]>,
}

/// Builds the tables, unless they are there. Should a process fork while a thread builds them, its child would wait for
/// that thread for ever.
#[cfg(feature = "python")]
pub(crate) fn build_tables() {
    LazyLock::force(&TABLES);
}

pub(super) fn monotonicity(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let slopes = &*TABLES.slopes;
    // Of the two ways along an axis, the one that disturbs the order least counts.
    let axis = |board| {
        let sum = of_rows(board, |row| slopes[row]);
        i32::from(sum & 0xff).min(i32::from(sum >> 8))
    };
    of_boards::<Int32Type>(arguments, |board| -axis(board) - axis(Board(board).transpose().0))
}

pub(super) fn smoothness(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let differences = &*TABLES.differences;
    let axis = |board| i32::from(of_rows(board, |row| differences[row].into()));
    of_boards::<Int32Type>(arguments, |board| -axis(board) - axis(Board(board).transpose().0))
}

#[inline(always)]
fn of_rows(board: u64, f: impl Fn(usize) -> u16) -> u16 {
    let row = |shift: u32| f((board >> shift) as usize & 0xffff);
    row(0) + row(16) + row(32) + row(48)
}

impl Tables {
    fn build() -> Tables {
        let mut tables =
            Tables { slopes: bytemuck::allocation::zeroed_box(), differences: bytemuck::allocation::zeroed_box() };
        for row in 0..ROWS {
            let (falls, rises, differences) = measure([row >> 12, row >> 8 & 15, row >> 4 & 15, row & 15]);
            tables.slopes[row] = (rises << 8 | falls) as u16;
            tables.differences[row] = differences as u8;
        }
        tables
    }
}

/// Falls, rises and differences of a row, each between a tile and the next one, over the empty cells between them. An
/// empty cell at an end is a 0 that the slope goes up from or down to, but no neighbour.
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
