//! The rows of a call that need the mask of tiles of 65,536.
//!
//! Almost no board has such a tile. So each kernel first computes all rows without the mask, and then corrects the rows
//! that need the mask.

use super::arguments::{ArgumentKind, Arguments, array};
use crate::board::{Move, Symmetry, WideBoard, has_two_of_15};
use crate::error::Result;
use arrow::array::{ArrayRef, ArrowPrimitiveType};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::UInt16Type;

/// A row that needs its mask: its position, its board and its second argument.
pub(super) struct Row {
    pub(super) at: usize,
    pub(super) board: WideBoard,
    pub(super) number: u8,
}

/// Returns the move with this number.
#[inline(always)]
pub(super) fn direction(number: u8) -> Move {
    Move::from_index(number).unwrap_or(Move::Up)
}

/// Returns the symmetry with this number, 0 to 7.
#[inline(always)]
pub(super) fn symmetry(number: u8) -> Symmetry {
    Symmetry::ALL[usize::from(number & 7)]
}

/// Returns the second argument of each row if it is a number, such as a move, else 0.
pub(super) fn second(arguments: &Arguments<'_>) -> Result<ScalarBuffer<u8>> {
    match arguments.kind(1) {
        Some(ArgumentKind::Number(_)) => arguments.numbers(1),
        _ => Ok(vec![0; arguments.num_rows()].into()),
    }
}

/// Returns the rows to correct: those with a mask, and those with two tiles of 32,768, which merge only where a mask
/// can hold the result. There are none in a call without masks. The boards are the first argument.
pub(super) fn rows(arguments: &Arguments<'_>) -> Result<Vec<Row>> {
    let Some(first) = arguments.first_mask() else { return Ok(Vec::new()) };
    let (boards, masks) = (arguments.boards(0)?, arguments.masks(first)?);
    let next_masks = arguments.kind(first + 1).map(|_| arguments.masks(first + 1)).transpose()?;
    let needs = |at: usize| {
        masks[at] != 0 || has_two_of_15(boards[at].into()) || next_masks.as_ref().is_some_and(|next| next[at] != 0)
    };
    if !(0..boards.len()).any(needs) {
        return Ok(Vec::new());
    }
    let numbers = second(arguments)?;
    let nulls = arguments.nulls();
    let is_valid = |at: &usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*at));
    let row = |at: usize| {
        let board = arguments.wide_board(first, boards[at], masks[at])?;
        Ok(Row { at, board, number: numbers[at] })
    };
    (0..boards.len()).filter(|&at| needs(at)).filter(is_valid).map(row).collect()
}

/// Returns numbers that were computed without masks, after correcting the rows that need their mask.
pub(super) fn corrected<T: ArrowPrimitiveType>(
    arguments: &Arguments<'_>,
    mut values: Vec<T::Native>,
    value: impl Fn(&Row) -> T::Native,
) -> Result<ArrayRef> {
    rows(arguments)?.iter().for_each(|row| values[row.at] = value(row));
    Ok(array::<T>(values, arguments.nulls()))
}

/// Returns the masks of boards that a function makes from boards.
fn masks(arguments: &Arguments<'_>, made: impl Fn(&Row) -> WideBoard) -> Result<ArrayRef> {
    corrected::<UInt16Type>(arguments, vec![0; arguments.num_rows()], |row| made(row).tile_65536_mask())
}

pub(super) fn afterstate_mask(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    masks(arguments, |row| row.board.slide(direction(row.number)))
}

pub(super) fn transform_mask(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    masks(arguments, |row| row.board.transform(symmetry(row.number)))
}

pub(super) fn canonical_mask(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    masks(arguments, |row| row.board.canonical())
}
