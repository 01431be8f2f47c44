//! Functions of boards that return lists, structs or text.

use super::arguments::{Arguments, arrow_error};
use super::masked::{Row, direction, rows};
use crate::board::{Board, write_board};
use crate::error::{Error, Result};
use arrow::array::{Array, ArrayRef, FixedSizeListArray, StringBuilder, StructArray, UInt8Array, UInt32Array};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use std::fmt::Write;
use std::sync::Arc;

fn exps_item() -> FieldRef {
    Arc::new(Field::new("item", DataType::UInt8, false))
}

pub(super) fn exps_type() -> DataType {
    DataType::FixedSizeList(exps_item(), 16)
}

pub(super) fn exps(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let mut cells: Vec<[u8; 16]> = arguments.boards(0)?.iter().map(|&board| Board(board).exps()).collect();
    rows(arguments)?.iter().for_each(|row| cells[row.at] = row.board.exps());
    let cells = UInt8Array::from(bytemuck::allocation::cast_vec::<[u8; 16], u8>(cells));
    let lists = FixedSizeListArray::try_new(exps_item(), 16, Arc::new(cells), arguments.nulls());
    Ok(Arc::new(lists.map_err(arrow_error)?))
}

/// Returns the fields of a spawn. They are nullable, because a reader that extracts a field may ignore the nulls of the
/// struct.
fn spawn_fields() -> Fields {
    Fields::from(vec![Field::new("cell", DataType::UInt8, true), Field::new("tile", DataType::UInt32, true)])
}

pub(super) fn spawn_type() -> DataType {
    DataType::Struct(spawn_fields())
}

pub(super) fn spawn(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let (boards, moves, next) = (arguments.boards(0)?, arguments.numbers(1)?, arguments.boards(2)?);
    let nulls = arguments.nulls();
    let is_valid = |at: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(at));
    let mut spawns: Vec<Option<(u8, u32)>> = (0..boards.len())
        .map(|at| {
            let board = Board(boards[at]);
            let after = board.slide(direction(moves[at]));
            (is_valid(at) && after != board).then(|| new_tile(after, Board(next[at]))).flatten()
        })
        .collect();
    if let Some(first) = arguments.first_mask() {
        let next_masks = arguments.masks(first + 1)?;
        for Row { at, board, number } in rows(arguments)? {
            let next = arguments.wide_board(first + 1, next[at], next_masks[at])?;
            let after = board.slide(direction(number));
            let is_spawn = after != board && after.spawns_into(next);
            spawns[at] = is_spawn.then(|| new_tile(after.board(), next.board())).flatten();
        }
    }
    let cells: UInt8Array = spawns.iter().map(|spawn| spawn.map(|(cell, _)| cell)).collect();
    let tiles: UInt32Array = spawns.iter().map(|spawn| spawn.map(|(_, tile)| tile)).collect();
    let nulls = cells.nulls().cloned();
    let columns: Vec<ArrayRef> = vec![Arc::new(cells), Arc::new(tiles)];
    Ok(Arc::new(StructArray::try_new(spawn_fields(), columns, nulls).map_err(arrow_error)?))
}

/// Returns the cell and the tile that turn one board into the next.
#[inline(always)]
fn new_tile(before: Board, next: Board) -> Option<(u8, u32)> {
    let (spawned, position) = (before.0 ^ next.0, (before.0 ^ next.0).trailing_zeros() / 4);
    before.spawns_into(next).then(|| (15 - position as u8, 1 << (spawned >> (4 * position))))
}

pub(super) fn board_text(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let boards = arguments.boards(0)?;
    let mut masked = rows(arguments)?.into_iter().peekable();
    texts(arguments, |at, out| {
        let exps = masked.next_if(|row| row.at == at).map_or_else(|| Board(boards[at]).exps(), |row| row.board.exps());
        write_board(exps, out)
    })
}

pub(super) fn phase_of(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let exps = arguments.numbers(0)?;
    texts(arguments, |at, out| out.write_str(arguments.phases.of_max_exp(exps[at]).name()))
}

/// Returns a text for each row without nulls. `write` is called for these rows in order.
fn texts(
    arguments: &Arguments<'_>,
    mut write: impl FnMut(usize, &mut StringBuilder) -> std::fmt::Result,
) -> Result<ArrayRef> {
    /// The largest number of rows whose texts surely fit. The longest text has 101 bytes.
    const MAX_ROWS: usize = i32::MAX as usize / 101;
    let (num_rows, nulls) = (arguments.num_rows(), arguments.nulls());
    if num_rows > MAX_ROWS {
        return Err(Error::query(format!("texts: expected at most {MAX_ROWS} rows, found {num_rows}")));
    }
    let mut texts = StringBuilder::with_capacity(num_rows, 48 * num_rows);
    for at in 0..num_rows {
        match nulls.as_ref().is_none_or(|nulls| nulls.is_valid(at)) {
            true => {
                write(at, &mut texts).map_err(|error| Error::query(error.to_string()))?;
                texts.append_value("");
            }
            false => texts.append_null(),
        }
    }
    Ok(Arc::new(texts.finish()))
}
