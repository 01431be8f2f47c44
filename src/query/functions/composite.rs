//! Functions of boards that return lists, structs or text.

use super::arguments::{Arguments, array, arrow_error};
use super::kernels::{slides, tile_of};
use super::loops::{map, zip};
use super::masked::{Row, rows};
use crate::board::Board;
use crate::error::{Error, Result};
use arrow::array::{ArrayRef, FixedSizeListArray, StringArray, StructArray, UInt8Array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, UInt8Type, UInt32Type};
use std::sync::Arc;

fn exps_item() -> FieldRef {
    Arc::new(Field::new("item", DataType::UInt8, false))
}

pub(super) fn exps_type() -> DataType {
    DataType::FixedSizeList(exps_item(), 16)
}

pub(super) fn exps(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let mut cells: Vec<[u8; 16]> = map(&arguments.boards(0)?, |board| Board(board).exps());
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
    let slid = slides(&boards, &moves);
    let spawned = zip(&slid, &next, |slid, next| slid ^ next);
    let mut cells = map(&spawned, |spawned| 15 - (spawned.trailing_zeros() as u8 / 4).min(15));
    let mut tiles = map(&spawned, |spawned| tile_of(spawned >> (spawned.trailing_zeros() & 60) & 15));
    let is_legal = zip(&slid, &boards, |slid, board| slid != board);
    let is_spawn = zip(&slid, &next, |slid, next| Board(slid).spawns_into(Board(next)));
    let mut valid = zip(&is_legal, &is_spawn, |legal, spawn| legal & spawn);
    if let Some(first) = arguments.first_mask() {
        let next_masks = arguments.masks(first + 1)?;
        for row in rows(arguments)? {
            let Row { at, board, .. } = row;
            let next = arguments.wide_board(first + 1, next[at], next_masks[at])?;
            let after = board.slide(row.direction());
            valid[at] = after != board && after.spawns_into(next);
            let spawned = after.exps().into_iter().zip(next.exps()).position(|(before, now)| before != now);
            if let Some(cell) = spawned.filter(|_| valid[at]) {
                (cells[at], tiles[at]) = (cell as u8, 1 << next.exps()[cell]);
            }
        }
    }
    let nulls = NullBuffer::union(arguments.nulls().as_ref(), Some(&NullBuffer::from(valid)));
    let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
    let columns = vec![array::<UInt8Type>(cells, nulls.clone()), array::<UInt32Type>(tiles, nulls.clone())];
    Ok(Arc::new(StructArray::try_new(spawn_fields(), columns, nulls).map_err(arrow_error)?))
}

pub(super) fn board_text(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    const ROW: &str = " / ";
    let (within, at_end) = (words(" "), words(ROW));
    let boards = arguments.boards(0)?;
    let mut texts = TextBuilder::with_capacity(boards.len(), 48);
    // The longest text has 101 bytes. The rest is room for the padding of the last word.
    let mut text = [0; 128];
    let mut masked = rows(arguments)?.into_iter().peekable();
    for (at, &board) in boards.iter().enumerate() {
        if let Some(row) = masked.next_if(|row| row.at == at) {
            texts.push(row.board.to_string().as_bytes());
            continue;
        }
        let (exps, mut end) = (Board(board).exps(), 0);
        for cell in 0..16 {
            let words = if cell % 4 < 3 { &within } else { &at_end };
            let (word, len) = &words[usize::from(exps[cell] & 15)];
            // Copies all eight bytes, because a copy of constant size is one instruction. The next word
            // overwrites the padding.
            text[end..end + 8].copy_from_slice(word);
            end += len;
        }
        texts.push(&text[..end - ROW.len()]);
    }
    texts.finish(arguments.nulls())
}

/// Returns the text of each tile with the divider that follows it, padded to eight bytes, and its length.
fn words(divider: &str) -> [([u8; 8], usize); 16] {
    std::array::from_fn(|exp| {
        let tile = if exp == 0 { ".".to_owned() } else { (1 << exp).to_string() } + divider;
        let mut word = [0; 8];
        word[..tile.len()].copy_from_slice(tile.as_bytes());
        (word, tile.len())
    })
}

pub(super) fn phase_of(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let names: [&str; 17] = std::array::from_fn(|exp| arguments.phases().of_max_exp(exp as u8).name());
    let exps = arguments.numbers(0)?;
    let mut texts = TextBuilder::with_capacity(exps.len(), 5);
    for &exp in &exps[..] {
        texts.push(names[usize::from(exp.min(16))].as_bytes());
    }
    texts.finish(arguments.nulls())
}

/// A builder of a string array.
struct TextBuilder {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl TextBuilder {
    fn with_capacity(num_rows: usize, usual_len: usize) -> TextBuilder {
        let mut ends = Vec::with_capacity(num_rows + 1);
        ends.push(0);
        TextBuilder { bytes: Vec::with_capacity(num_rows.saturating_mul(usual_len)), ends }
    }

    fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    fn finish(self, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        if i32::try_from(self.bytes.len()).is_err() {
            let (rows, bytes) = (self.ends.len() - 1, self.bytes.len());
            return Err(Error::query(format!(
                "{rows} rows of text: expected at most {} bytes, found {bytes}",
                i32::MAX
            )));
        }
        let offsets = OffsetBuffer::new(self.ends.iter().map(|&end| end as i32).collect());
        Ok(Arc::new(StringArray::try_new(offsets, self.bytes.into(), nulls).map_err(arrow_error)?))
    }
}
