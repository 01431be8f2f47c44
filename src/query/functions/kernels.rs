//! Functions of boards that return a number or a board.
//!
//! Loops run over plain slices and compute null slots too, because every uint64 is a valid board.

use super::arguments::{Arguments, array};
use super::masked::{corrected, direction, rows, second, symmetry};
use crate::board::{Board, Symmetry, WideBoard};
use crate::error::Result;
use crate::system::registers::{Level, Loop};
use arrow::array::{ArrayRef, ArrowPrimitiveType, BooleanArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{Int32Type, Int64Type, UInt8Type, UInt32Type, UInt64Type};
use std::sync::Arc;

/// Computes a value of each board and its second argument: by the rules of a [`WideBoard`] in rows that need their mask,
/// else by those of a [`Board`]. The loop runs at [`Level::widest`] for arithmetic, and at [`Level::PORTABLE`] for
/// lookups in tables, which wider registers slow down.
macro_rules! of_boards {
    ($level:expr, $type:ty, $arguments:expr, |$board:ident, $number:pat_param| $value:expr) => {{
        type Value = <$type as ArrowPrimitiveType>::Native;
        struct Rows<'a>(&'a [u64], &'a [u8]);
        // The compiler may call closures and iterator adapters instead of inlining them, so the loop indexes slices.
        impl Loop for Rows<'_> {
            type Output = Vec<Value>;

            #[inline(always)]
            fn run(self) -> Vec<Value> {
                let len = self.0.len().min(self.1.len());
                let mut values = vec![Value::default(); len];
                let (boards, numbers, out) = (&self.0[..len], &self.1[..len], &mut values[..len]);
                for i in 0..len {
                    let ($board, $number) = (Board(boards[i]), numbers[i]);
                    out[i] = $value;
                }
                values
            }
        }
        fn masked($board: WideBoard, $number: u8) -> Value {
            $value
        }
        let values = $level.run(Rows(&$arguments.boards(0)?, &second($arguments)?));
        corrected::<$type>($arguments, values, |row| masked(row.board, row.number))
    }};
}

pub(super) fn tile(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    // An empty cell has no tile of 1.
    of_boards!(Level::widest(), UInt32Type, arguments, |board, cell| 1 << board.exps()[usize::from(cell & 15)] & !1)
}

pub(super) fn max_tile(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(Level::widest(), UInt32Type, arguments, |board, _| board.highest_tile())
}

pub(super) fn empty_cells(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(Level::widest(), UInt8Type, arguments, |board, _| board.num_empty() as u8)
}

pub(super) fn tile_sum(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(Level::widest(), UInt32Type, arguments, |board, _| board.tile_sum())
}

pub(super) fn board_score(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(Level::widest(), Int64Type, arguments, |board, _| board.score().cast_signed())
}

pub(super) fn monotonicity(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(Level::PORTABLE, Int32Type, arguments, |board, _| board.features().monotonicity())
}

pub(super) fn smoothness(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(Level::PORTABLE, Int32Type, arguments, |board, _| board.features().smoothness())
}

pub(super) fn legal_moves(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(Level::PORTABLE, UInt8Type, arguments, |board, _| board.legal_moves())
}

pub(super) fn num_legal(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(Level::PORTABLE, UInt8Type, arguments, |board, _| board.legal_moves().count_ones() as u8)
}

pub(super) fn is_terminal(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let mut terminal: Vec<bool> = arguments.boards(0)?.iter().map(|&board| Board(board).is_terminal()).collect();
    rows(arguments)?.iter().for_each(|row| terminal[row.at] = row.board.is_terminal());
    Ok(Arc::new(BooleanArray::new(BooleanBuffer::from(terminal), arguments.nulls())))
}

pub(super) fn afterstate(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(Level::PORTABLE, UInt64Type, arguments, |board, number| nibbles(board.slide(direction(number))))
}

pub(super) fn reward(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(Level::PORTABLE, UInt32Type, arguments, |board, number| board.reward(direction(number)))
}

pub(super) fn transform(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(Level::widest(), UInt64Type, arguments, |board, number| nibbles(board.transform(symmetry(number))))
}

pub(super) fn transform_move(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let (moves, symmetries) = (arguments.numbers(0)?, arguments.numbers(1)?);
    let turned = moves.iter().zip(&symmetries[..]).map(|(&moved, &turn)| Symmetry::apply_index_to_move(turn, moved));
    Ok(array::<UInt8Type>(turned.collect(), arguments.nulls()))
}

pub(super) fn canonical(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(Level::widest(), UInt64Type, arguments, |board, _| nibbles(board.canonical()))
}

pub(super) fn canonical_symmetry(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(Level::widest(), UInt8Type, arguments, |board, _| {
        let canonical = board.canonical();
        let mut first = 0;
        // The loop runs in descending order, so that the first symmetry wins.
        for index in 0..8 {
            let symmetry = Symmetry::ALL[7 - index];
            first = if board.transform(symmetry) == canonical { symmetry as u8 } else { first };
        }
        first
    })
}

pub(super) fn canonical_move(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    of_boards!(Level::widest(), UInt8Type, arguments, |board, number| {
        let canonical = board.canonical();
        let mut least = 3;
        for index in 0..8 {
            let symmetry = Symmetry::ALL[index];
            let turned = Symmetry::apply_index_to_move(symmetry as u8, number);
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
