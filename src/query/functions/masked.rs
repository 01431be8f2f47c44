//! Kernels of functions of boards with tiles of 65,536.
//!
//! Almost no board has such a tile. So each kernel first computes all rows without the mask, and then corrects the rows
//! that need the mask.

use super::arguments::{ArgumentKind, Arguments, arrow_error};
use super::composite;
use super::features;
use super::function::Kernel;
use super::kernels::{self, array};
use super::returns::{exps_field, spawn_fields};
use crate::board::{Move, Symmetry, WideBoard, has_two_of_15};
use crate::error::Result;
use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, FixedSizeListArray, StringArray, StructArray,
    UInt8Array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use std::sync::Arc;

/// The rows that a kernel corrects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Correct {
    /// Rows whose mask is not 0.
    Masked,
    /// Also rows with two tiles of 32,768, which merge only where a mask can hold the result.
    MaskedOrMerging,
}

/// A row that needs its mask: its position, its board and its second argument.
struct Row {
    at: usize,
    board: WideBoard,
    number: u8,
}

impl Row {
    fn direction(&self) -> Move {
        Move::from_index(self.number).unwrap_or(Move::Up)
    }

    fn symmetry(&self) -> Symmetry {
        Symmetry::from_index(self.number).unwrap_or(Symmetry::Identity)
    }
}

/// Returns the rows to correct. Their boards are the first argument.
fn rows(arguments: &Arguments<'_>, correct: Correct) -> Result<Vec<Row>> {
    let (boards, masks) = (arguments.boards(0)?, arguments.masks(arguments.first_mask())?);
    let numbers = match arguments.kind(1) {
        Some(ArgumentKind::Move | ArgumentKind::Symmetry | ArgumentKind::Cell) => Some(arguments.numbers(1)?),
        _ => None,
    };
    let needs = |at: usize| masks[at] != 0 || correct == Correct::MaskedOrMerging && has_two_of_15(boards[at].into());
    if !(0..boards.len()).any(needs) {
        return Ok(Vec::new());
    }
    let nulls = arguments.nulls();
    let is_valid = |at: &usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*at));
    let row = |at: usize| {
        let board = arguments.wide_board(arguments.first_mask(), boards[at], masks[at])?;
        Ok(Row { at, board, number: numbers.as_ref().map_or(0, |numbers| numbers[at]) })
    };
    (0..boards.len()).filter(|&at| needs(at)).filter(is_valid).map(row).collect()
}

/// Corrects the numbers that a kernel computed without masks.
fn numbers<T: ArrowPrimitiveType>(
    arguments: &Arguments<'_>,
    kernel: Kernel,
    correct: Correct,
    value: impl Fn(&Row) -> T::Native,
) -> Result<ArrayRef> {
    let (plain, rows) = (kernel(arguments)?, rows(arguments, correct)?);
    if rows.is_empty() {
        return Ok(plain);
    }
    let mut values = plain.as_primitive::<T>().values().to_vec();
    rows.iter().for_each(|row| values[row.at] = value(row));
    Ok(array::<T>(values, plain.nulls().cloned()))
}

pub(super) fn tile(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let tile = |row: &Row| match row.board.exps()[usize::from(row.number & 15)] {
        0 => 0,
        exp => 1 << exp,
    };
    numbers::<UInt32Type>(arguments, kernels::tile, Correct::Masked, tile)
}

pub(super) fn max_tile(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    numbers::<UInt32Type>(arguments, kernels::max_tile, Correct::Masked, |row| row.board.highest_tile())
}

pub(super) fn empty_cells(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    numbers::<UInt8Type>(arguments, kernels::empty_cells, Correct::Masked, |row| row.board.num_empty() as u8)
}

pub(super) fn tile_sum(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    numbers::<UInt32Type>(arguments, kernels::tile_sum, Correct::Masked, |row| row.board.tile_sum())
}

pub(super) fn board_score(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    numbers::<Int64Type>(arguments, kernels::board_score, Correct::Masked, |row| row.board.score().cast_signed())
}

pub(super) fn legal_moves(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let legal = |row: &Row| row.board.legal_moves();
    numbers::<UInt8Type>(arguments, kernels::legal_moves, Correct::MaskedOrMerging, legal)
}

pub(super) fn num_legal(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let count = |row: &Row| row.board.legal_moves().count_ones() as u8;
    numbers::<UInt8Type>(arguments, kernels::num_legal, Correct::MaskedOrMerging, count)
}

pub(super) fn is_terminal(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let (plain, rows) = (kernels::is_terminal(arguments)?, rows(arguments, Correct::MaskedOrMerging)?);
    let mut terminal: Vec<bool> = plain.as_boolean().values().iter().collect();
    rows.iter().for_each(|row| terminal[row.at] = row.board.is_terminal());
    Ok(Arc::new(BooleanArray::new(BooleanBuffer::from(terminal), plain.nulls().cloned())))
}

pub(super) fn afterstate(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let slid = |row: &Row| row.board.slide(row.direction()).board().0;
    numbers::<UInt64Type>(arguments, kernels::afterstate, Correct::MaskedOrMerging, slid)
}

pub(super) fn reward(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let reward = |row: &Row| row.board.reward(row.direction());
    numbers::<UInt32Type>(arguments, kernels::reward, Correct::MaskedOrMerging, reward)
}

pub(super) fn transform(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let turned = |row: &Row| row.board.transform(row.symmetry()).board().0;
    numbers::<UInt64Type>(arguments, kernels::transform, Correct::Masked, turned)
}

pub(super) fn canonical(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    numbers::<UInt64Type>(arguments, kernels::canonical, Correct::Masked, |row| row.board.canonical().board().0)
}

/// Returns the symmetries that make a board canonical, in order.
fn to_canonical(board: WideBoard) -> impl Iterator<Item = Symmetry> {
    let canonical = board.canonical();
    Symmetry::ALL.into_iter().filter(move |&symmetry| board.transform(symmetry) == canonical)
}

pub(super) fn canonical_symmetry(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let first = |row: &Row| to_canonical(row.board).next().map_or(0, |symmetry| symmetry as u8);
    numbers::<UInt8Type>(arguments, kernels::canonical_symmetry, Correct::Masked, first)
}

pub(super) fn canonical_move(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let least = |row: &Row| {
        let images = to_canonical(row.board).map(|symmetry| symmetry.apply_to_move(row.direction()) as u8);
        images.min().unwrap_or_default()
    };
    numbers::<UInt8Type>(arguments, kernels::canonical_move, Correct::Masked, least)
}

pub(super) fn monotonicity(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let value = |row: &Row| features::measured(row.board.exps()).0;
    numbers::<Int32Type>(arguments, features::monotonicity, Correct::Masked, value)
}

pub(super) fn smoothness(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let value = |row: &Row| features::measured(row.board.exps()).1;
    numbers::<Int32Type>(arguments, features::smoothness, Correct::Masked, value)
}

/// Returns the masks of boards that a function makes from boards.
fn masks(arguments: &Arguments<'_>, correct: Correct, made: impl Fn(&Row) -> WideBoard) -> Result<ArrayRef> {
    let mut values = vec![0; arguments.num_rows()];
    for row in rows(arguments, correct)? {
        values[row.at] = made(&row).tile_65536_mask();
    }
    Ok(array::<UInt16Type>(values, arguments.nulls()))
}

pub(super) fn afterstate_mask(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    masks(arguments, Correct::MaskedOrMerging, |row| row.board.slide(row.direction()))
}

pub(super) fn transform_mask(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    masks(arguments, Correct::Masked, |row| row.board.transform(row.symmetry()))
}

pub(super) fn canonical_mask(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    masks(arguments, Correct::Masked, |row| row.board.canonical())
}

pub(super) fn exps(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let (plain, rows) = (composite::exps(arguments)?, rows(arguments, Correct::Masked)?);
    if rows.is_empty() {
        return Ok(plain);
    }
    let mut cells = plain.as_fixed_size_list().values().as_primitive::<UInt8Type>().values().to_vec();
    rows.iter().for_each(|row| cells[16 * row.at..][..16].copy_from_slice(&row.board.exps()));
    let cells = Arc::new(UInt8Array::from(cells));
    let lists = FixedSizeListArray::try_new(exps_field(), 16, cells, plain.nulls().cloned());
    Ok(Arc::new(lists.map_err(arrow_error)?))
}

pub(super) fn board_text(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let (plain, rows) = (composite::board_text(arguments)?, rows(arguments, Correct::Masked)?);
    if rows.is_empty() {
        return Ok(plain);
    }
    let mut rows = rows.iter().peekable();
    let texts = plain.as_string::<i32>().iter().enumerate().map(|(at, text)| match rows.next_if(|row| row.at == at) {
        Some(row) => Some(row.board.to_string()),
        None => text.map(str::to_owned),
    });
    Ok(Arc::new(texts.collect::<StringArray>()))
}

pub(super) fn spawn(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let (plain, mut slid) = (composite::spawn(arguments)?, rows(arguments, Correct::MaskedOrMerging)?);
    let index = arguments.first_mask() + 1;
    let (next, next_masks) = (arguments.boards(2)?, arguments.masks(index)?);
    // If only the next board has such a tile, no tile can have spawned.
    let nulls = arguments.nulls();
    let is_valid = |at: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(at));
    let known: Vec<usize> = slid.iter().map(|row| row.at).collect();
    let only_next = (0..next.len()).filter(|&at| next_masks[at] != 0 && is_valid(at));
    let (boards, moves) = (arguments.boards(0)?, arguments.numbers(1)?);
    let only_next = only_next.filter(|at| known.binary_search(at).is_err());
    slid.extend(only_next.map(|at| Row { at, board: crate::board::Board(boards[at]).into(), number: moves[at] }));
    if slid.is_empty() {
        return Ok(plain);
    }
    let plain = plain.as_struct();
    let mut cells = plain.column(0).as_primitive::<UInt8Type>().values().to_vec();
    let mut tiles = plain.column(1).as_primitive::<UInt32Type>().values().to_vec();
    let mut valid: Vec<bool> = (0..plain.len()).map(|at| plain.is_valid(at)).collect();
    for row in &slid {
        let next = arguments.wide_board(index, next[row.at], next_masks[row.at])?;
        let after = row.board.slide(row.direction());
        valid[row.at] = after != row.board && after.spawns_into(next);
        let spawned = after.exps().into_iter().zip(next.exps()).position(|(before, now)| before != now);
        if let Some(cell) = spawned.filter(|_| valid[row.at]) {
            (cells[row.at], tiles[row.at]) = (cell as u8, 1 << next.exps()[cell]);
        }
    }
    let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
    let columns = vec![array::<UInt8Type>(cells, nulls.clone()), array::<UInt32Type>(tiles, nulls.clone())];
    Ok(Arc::new(StructArray::try_new(spawn_fields(), columns, nulls).map_err(arrow_error)?))
}
