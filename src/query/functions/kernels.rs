//! Functions of boards that return a number or a board.
//!
//! Loops run over plain slices and compute null slots too, because every uint64 is a valid board.

use super::arguments::{Arguments, array};
use super::loops::zip;
use super::masked::{corrected, direction, rows, second, symmetry};
use crate::board::{Board, Symmetry, WideBoard};
use crate::error::Result;
use arrow::array::{ArrayRef, ArrowPrimitiveType, BooleanArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{Int64Type, UInt8Type, UInt32Type, UInt64Type};
use std::sync::Arc;

/// Computes a value of each board and its second argument: by the rules of a [`WideBoard`] in rows that need their mask,
/// else by those of a [`Board`].
macro_rules! of_boards {
    ($type:ty, $arguments:expr, |$board:ident, $number:pat_param| $value:expr) => {
        $crate::query::functions::kernels::of_each_board::<$type>(
            $arguments,
            |$board: $crate::board::Board, $number: u8| $value,
            |$board: $crate::board::WideBoard, $number: u8| $value,
        )
    };
}
pub(super) use of_boards;

#[inline(always)]
pub(super) fn of_each_board<T: ArrowPrimitiveType>(
    arguments: &Arguments<'_>,
    value: impl Fn(Board, u8) -> T::Native,
    masked: impl Fn(WideBoard, u8) -> T::Native,
) -> Result<ArrayRef> {
    let values = zip(&arguments.boards(0)?, &second(arguments)?, |board, number| value(Board(board), number));
    corrected::<T>(arguments, values, |row| masked(row.board, row.number))
}

pub(super) fn tile(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    // An empty cell has no tile of 1.
    of_boards!(UInt32Type, arguments, |board, cell| 1 << board.exps()[usize::from(cell & 15)] & !1)
}

pub(super) fn max_tile(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(UInt32Type, arguments, |board, _| board.highest_tile())
}

pub(super) fn empty_cells(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(UInt8Type, arguments, |board, _| board.num_empty() as u8)
}

pub(super) fn tile_sum(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(UInt32Type, arguments, |board, _| board.tile_sum())
}

pub(super) fn board_score(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(Int64Type, arguments, |board, _| board.score().cast_signed())
}

pub(super) fn legal_moves(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(UInt8Type, arguments, |board, _| board.legal_moves())
}

pub(super) fn num_legal(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(UInt8Type, arguments, |board, _| board.legal_moves().count_ones() as u8)
}

pub(super) fn is_terminal(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let mut terminal: Vec<bool> = arguments.boards(0)?.iter().map(|&board| Board(board).is_terminal()).collect();
    rows(arguments)?.iter().for_each(|row| terminal[row.at] = row.board.is_terminal());
    Ok(Arc::new(BooleanArray::new(BooleanBuffer::from(terminal), arguments.nulls())))
}

pub(super) fn afterstate(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(UInt64Type, arguments, |board, number| nibbles(board.slide(direction(number))))
}

pub(super) fn reward(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(UInt32Type, arguments, |board, number| board.reward(direction(number)))
}

pub(super) fn transform(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(UInt64Type, arguments, |board, number| nibbles(board.transform(symmetry(number))))
}

pub(super) fn transform_move(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let turned = zip(&arguments.numbers(0)?, &arguments.numbers(1)?, |moved, turn| {
        symmetry(turn).apply_to_move(direction(moved)) as u8
    });
    Ok(array::<UInt8Type>(turned, arguments.nulls()))
}

pub(super) fn canonical(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(UInt64Type, arguments, |board, _| nibbles(board.canonical()))
}

pub(super) fn canonical_symmetry(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(UInt8Type, arguments, |board, _| {
        let canonical = board.canonical();
        let mut first = Symmetry::Identity;
        // The loop runs in descending order, so that the first symmetry wins.
        for symmetry in Symmetry::ALL.into_iter().rev() {
            first = if board.transform(symmetry) == canonical { symmetry } else { first };
        }
        first as u8
    })
}

pub(super) fn canonical_move(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(UInt8Type, arguments, |board, number| {
        let canonical = board.canonical();
        let mut least = 3;
        for symmetry in Symmetry::ALL {
            let turned = symmetry.apply_to_move(direction(number)) as u8;
            least = if board.transform(symmetry) == canonical { turned.min(least) } else { least };
        }
        least
    })
}

/// Returns the nibbles of a board.
#[inline(always)]
fn nibbles(board: impl Into<WideBoard>) -> u64 {
    board.into().board().0
}
