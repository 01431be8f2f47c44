//! Record batches → rows.
//!
//! | column | type (others are cast) | default if the query lacks it |
//! | --- | --- | --- |
//! | `board` | uint64 | an error |
//! | `move` | uint8, 0 to 3 | 255 |
//! | `ev_up`, `ev_down`, `ev_left`, `ev_right` | float32 | null |
//! | `ev_legal` | uint8, 0 to 15 | the rules' mask for the board |
//! | `run_id` | uint32 | 0 |
//! | `step_index` | uint32 | 0 |
//! | `tile_65536_mask` | uint16 | 0 |
//!
//! A column `tile_65536_mask` becomes an extra column of the rows if a value in it is not 0, and `step_index` if a
//! value exceeds 65,535.
//!
//! A null `move` or `ev_legal` gets the same default. A null among the four values becomes 0.0, as for an
//! illegal branch. If all four are null, the step has no values and gets four NaNs. A null in an extra column
//! is NaN if the column holds floats, -1 if it holds categories, and an error otherwise. A fixed-size list becomes
//! consecutive values; a null list counts as a list of nulls.

use crate::board::{Board, WideBoard};
use crate::error::{Error, ErrorKind, Result};
use crate::format::npy::MAX_STRIDE;
use crate::step::{NO_MOVE, STEP_SIZE, Step};
use crate::system::casts::checked_cast;
use crate::table::materialize::materialize_options::ChosenEv;
use crate::table::rows::categories::{Categories, Recoding, is_categorical};
use crate::table::rows::element::ElementType;
use crate::table::rows::layout::{ExtraField, RowLayout};
use crate::table::rows::step_column::{STEP_INDEX, TILE_MASK, is_reserved};
use crate::table::rows::wide::{Attempt, MAX_STEP_INDEX};
use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float32Type, Schema, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use std::ops::Range;
use std::sync::Arc;

/// Writes batches of one schema as rows.
#[derive(Debug)]
pub(in crate::table) struct RowWriter<'a> {
    attempt: &'a Attempt,
    pub(in crate::table) layout: RowLayout,
    chosen_ev: ChosenEv,
    board: usize,
    chosen: Option<usize>,
    evs: [Option<usize>; 4],
    ev_legal: Option<usize>,
    pub(in crate::table) run_id: Option<usize>,
    step_index: Option<usize>,
    /// The column of masks of the cells with 65,536, if the query has one.
    mask: Option<usize>,
    extras: Vec<usize>,
    /// The categories of each extra column that holds strings.
    categories: Vec<Categories>,
}

/// Rows that are written together: the number of bits in a validity word.
const CHUNK: usize = 64;

impl<'a> RowWriter<'a> {
    /// Finds the columns of a query's result. The rows get the attempt's wide columns too.
    pub(in crate::table) fn new(
        schema: &Schema,
        extras: &[String],
        chosen_ev: ChosenEv,
        attempt: &'a Attempt,
    ) -> Result<RowWriter<'a>> {
        let mut fields = Vec::new();
        let mut extra_columns = Vec::new();
        for (i, name) in extras.iter().enumerate() {
            let column = find(schema, name)?.ok_or_else(|| absent(name, "an extra column of that name", schema))?;
            if extras[..i].contains(name) {
                return Err(Error::argument("extra", "each column once", name));
            }
            if is_reserved(name) || name.is_empty() {
                return Err(Error::argument("extra", "a named column that is not in every row", format!("{name:?}")));
            }
            let dtype = schema.field(column).data_type();
            let ((dtype, values_per_row), categories) = match is_categorical(dtype) {
                _ if name == TILE_MASK => ((ElementType::UInt16, 1), None),
                true => ((ElementType::Int16, 1), Some([].into())),
                false => (ElementType::of_arrow(name, dtype)?, None),
            };
            fields.push(ExtraField { categories, ..ExtraField::new(name, dtype, values_per_row) });
            extra_columns.push(column);
        }
        for field in attempt.columns.fields().filter(|field| !extras.contains(&field.name)) {
            extra_columns
                .push(find(schema, &field.name)?.ok_or_else(|| absent(&field.name, "a column of that name", schema))?);
            fields.push(field);
        }
        let coded = fields.iter().filter(|field| field.categories.is_some());
        let categories = coded.map(|_| Categories::default()).collect();
        let layout = RowLayout::new(fields);
        if layout.stride() >= MAX_STRIDE {
            return Err(Error::argument("extra", format!("rows of less than {MAX_STRIDE} bytes"), layout.stride()));
        }
        let ev = |name: &str| find(schema, name);
        Ok(RowWriter {
            attempt,
            categories,
            layout,
            chosen_ev,
            board: find(schema, "board")?.ok_or_else(|| absent("board", "a column of boards", schema))?,
            chosen: find(schema, "move")?,
            evs: [ev("ev_up")?, ev("ev_down")?, ev("ev_left")?, ev("ev_right")?],
            ev_legal: find(schema, "ev_legal")?,
            run_id: find(schema, "run_id")?,
            step_index: find(schema, STEP_INDEX)?,
            mask: find(schema, TILE_MASK)?,
            extras: extra_columns,
        })
    }

    /// Adds categories of columns in ascending order, so that their codes are those of all categories.
    pub(in crate::table) fn preset_categories(&self, columns: &[(String, Vec<String>)]) -> Result<()> {
        let coded = self.layout.extras().iter().filter(|extra| extra.categories.is_some());
        for (extra, categories) in coded.zip(&self.categories) {
            let preset = columns.iter().find(|(name, _)| *name == extra.name);
            preset.map_or(Ok(()), |(_, texts)| categories.preset(&extra.name, texts))?;
        }
        Ok(())
    }

    /// Returns the columns of the query that the rows need.
    pub(in crate::table) fn columns(&self) -> Vec<usize> {
        let named = [Some(self.board), self.chosen, self.ev_legal, self.run_id, self.step_index, self.mask];
        let mut columns: Vec<usize> = named.into_iter().chain(self.evs).flatten().collect();
        columns.extend(&self.extras);
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// Returns the layout with all categories, and the recoding of the rows to its codes.
    pub(in crate::table) fn recoding(&self) -> (RowLayout, Recoding) {
        Recoding::new(&self.layout, &self.categories)
    }

    /// Writes the batch to `rows`, which has room for exactly its rows.
    ///
    /// # Errors
    /// [`ErrorKind::Column`](crate::ErrorKind::Column), whose row counts from the start of the batch.
    pub(in crate::table) fn write(&self, batch: &RecordBatch, rows: &mut [u8]) -> Result<()> {
        let board = column::<UInt64Type>(batch, Some(self.board))?;
        let chosen = column::<UInt8Type>(batch, self.chosen)?;
        let ev_legal = column::<UInt8Type>(batch, self.ev_legal)?;
        let run_id = column::<UInt32Type>(batch, self.run_id)?;
        let step_index = column::<UInt32Type>(batch, self.step_index)?;
        let [up, down, left, right] = self.evs.map(|index| column::<Float32Type>(batch, index));
        let evs = [up?, down?, left?, right?];
        let Some(boards) = board.without_nulls("board")? else { return Ok(()) };
        run_id.without_nulls("run_id")?;
        let step_indices = step_index.without_nulls("step_index")?.unwrap_or_default();
        if self.layout.extra(STEP_INDEX).is_none() {
            let too_large = first(step_indices, |index| index > MAX_STEP_INDEX);
            self.attempt.check_step_index(too_large.map_or(0, |(_, index)| index))?;
        }
        if let Some((row, value)) = chosen.first(|value| value > 3 && value != NO_MOVE) {
            return Err(Error::column("move", Some(row), "0..=3, or 255 for none", value));
        }
        if let Some((row, value)) = ev_legal.first(|value| value > 15) {
            return Err(Error::column("ev_legal", Some(row), "0..=15", value));
        }
        let masks = self.masks(batch, boards)?;
        let valid = evs.each_ref().map(|column| column.valid_bits(batch.num_rows()));
        let (mut chosen_buffer, mut legal_buffer) = ([0; CHUNK], [0; CHUNK]);
        let (mut run_id_buffer, mut step_index_buffer) = ([0; CHUNK], [0; CHUNK]);
        let mut value_buffers = [[0.0; CHUNK]; 4];
        let (stride, mut steps) = (self.layout.stride(), [Step::default(); CHUNK]);
        let chunks = rows.chunks_mut(stride * CHUNK).zip(boards.chunks(CHUNK)).enumerate();
        for (chunk, (rows, boards)) in chunks {
            let at = chunk * CHUNK..chunk * CHUNK + boards.len();
            let chosen = chosen.values_or(NO_MOVE, at.clone(), &mut chosen_buffer);
            let run_ids = run_id.values_or(0, at.clone(), &mut run_id_buffer);
            let step_indices = step_index.values_or(0, at.clone(), &mut step_index_buffer);
            // No valid mask has all bits, so this value stands for none.
            let legal = ev_legal.values_or(u8::MAX, at.clone(), &mut legal_buffer);
            let [b0, b1, b2, b3] = &mut value_buffers;
            let values = [
                evs[0].values_or(0.0, at.clone(), b0),
                evs[1].values_or(0.0, at.clone(), b1),
                evs[2].values_or(0.0, at.clone(), b2),
                evs[3].values_or(0.0, at, b3),
            ];
            let valid = [valid[0][chunk], valid[1][chunk], valid[2][chunk], valid[3][chunk]];
            let any = valid[0] | valid[1] | valid[2] | valid[3];
            // One loop a column keeps the loops short, and the steps stay in the cache.
            let steps = &mut steps[..boards.len()];
            steps.iter_mut().zip(boards).for_each(|(step, &board)| step.board = Board(board));
            steps.iter_mut().zip(run_ids).for_each(|(step, &run_id)| step.run_id = run_id);
            let indices = step_indices.iter().map(|&index| index.min(MAX_STEP_INDEX) as u16);
            steps.iter_mut().zip(indices).for_each(|(step, index)| step.step_index = index);
            steps.iter_mut().zip(chosen).for_each(|(step, &chosen)| step.chosen = chosen);
            steps.iter_mut().zip(legal).for_each(|(step, &legal)| step.ev_legal = legal);
            for (branch, (values, valid)) in values.into_iter().zip(valid).enumerate() {
                for (row, (step, &value)) in steps.iter_mut().zip(values).enumerate() {
                    let none = if any >> row & 1 == 1 { 0.0 } else { f32::NAN };
                    step.ev_values[branch] = if valid >> row & 1 == 1 { value } else { none };
                }
            }
            if self.chosen_ev == ChosenEv::One {
                for (row, step) in steps.iter_mut().enumerate() {
                    if any >> row & 1 == 1
                        && let Some(value) = step.ev_values.get_mut(usize::from(step.chosen))
                    {
                        *value = 1.0;
                    }
                }
            }
            for (row, step) in steps.iter_mut().enumerate() {
                if step.ev_legal == u8::MAX {
                    let mask = masks.as_ref().map_or(0, |masks| masks[chunk * CHUNK + row]);
                    // Two tiles of 32,768 merge only where a mask can hold the result.
                    step.ev_legal = match self.mask {
                        None => step.board.legal_moves(),
                        Some(_) => WideBoard::of_parts(step.board, mask).legal_moves(),
                    };
                }
            }
            for (bytes, step) in rows.chunks_exact_mut(stride).zip(steps) {
                if let Some(bytes) = bytes.first_chunk_mut::<STEP_SIZE>() {
                    *bytes = bytemuck::cast(*step);
                }
            }
        }
        let mut categories = self.categories.iter();
        for (extra, &index) in self.layout.extras().iter().zip(&self.extras) {
            match extra.categories.as_ref().and_then(|_| categories.next()) {
                _ if extra.name == TILE_MASK => {
                    for (row, bytes) in rows.chunks_exact_mut(stride).enumerate() {
                        let mask = masks.as_ref().map_or(0, |masks| masks[row]);
                        bytes[extra.offset..][..2].copy_from_slice(&mask.to_le_bytes());
                    }
                }
                // The column may have another type in the query.
                _ if extra.name == STEP_INDEX => {
                    for (row, index) in rows.chunks_exact_mut(stride).zip(step_indices) {
                        row[extra.offset..][..4].copy_from_slice(&index.to_le_bytes());
                    }
                }
                None => write_values(batch.column(index), extra, stride, rows)?,
                Some(categories) => {
                    let codes = categories.encode(&extra.name, batch.column(index))?;
                    for (row, code) in rows.chunks_exact_mut(stride).zip(codes) {
                        row[extra.offset..][..2].copy_from_slice(&code.to_le_bytes());
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the masks of the rows; `None` if all are 0. A null is 0.
    fn masks(&self, batch: &RecordBatch, boards: &[u64]) -> Result<Option<Vec<u16>>> {
        let column = column::<UInt16Type>(batch, self.mask)?;
        if column.first(|mask| mask != 0).is_none() {
            return Ok(None);
        }
        if self.layout.extra(TILE_MASK).is_none() {
            self.attempt.check_mask(true)?;
        }
        let masks = column.0.iter().flatten().map(Option::unwrap_or_default).collect::<Vec<u16>>();
        let wrong = |(board, mask): (&u64, &u16)| WideBoard::new(Board(*board), *mask).is_err();
        match boards.iter().zip(&masks).position(wrong) {
            Some(row) => Err(Error::column(TILE_MASK, Some(row as u64), "cells with the exponent 15", masks[row])),
            None => Ok(Some(masks)),
        }
    }
}

/// Writes an array as a column of rows of `stride` bytes.
pub(in crate::table) fn write_values(
    array: &ArrayRef,
    extra: &ExtraField,
    stride: usize,
    rows: &mut [u8],
) -> Result<()> {
    /// Returns the place of each value, row after row.
    fn slots<'a>(rows: &'a mut [u8], stride: usize, extra: &ExtraField) -> impl Iterator<Item = &'a mut [u8]> {
        let (range, width) = (extra.offset..extra.offset + extra.width(), extra.dtype.width());
        rows.chunks_exact_mut(stride).flat_map(move |row| row[range.clone()].chunks_exact_mut(width))
    }
    let (width, len) = (extra.dtype.width(), extra.values_per_row);
    let (values, nulls) = match array.as_fixed_size_list_opt() {
        None => (Arc::clone(array), array.nulls().cloned()),
        Some(lists) => {
            let nulls = lists.nulls().map(|nulls| nulls.expand(len));
            (Arc::clone(lists.values()), NullBuffer::union(nulls.as_ref(), lists.values().nulls()))
        }
    };
    if extra.dtype == ElementType::Bool {
        for (slot, value) in slots(rows, stride, extra).zip(values.as_boolean().values()) {
            slot[0] = u8::from(value);
        }
    } else {
        let data = values.to_data();
        let start = data.offset() * width;
        let values = data.buffers().first().and_then(|buffer| buffer.as_slice().get(start..)).unwrap_or_default();
        let range = extra.offset..extra.offset + extra.width();
        for (row, values) in rows.chunks_exact_mut(stride).zip(values.chunks_exact(extra.width())) {
            row[range.clone()].copy_from_slice(values);
        }
    }
    let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) else { return Ok(()) };
    let nan: &[u8] = match extra.dtype {
        ElementType::Float16 => &0x7e00_u16.to_le_bytes(),
        ElementType::Float32 => &f32::NAN.to_le_bytes(),
        ElementType::Float64 => &f64::NAN.to_le_bytes(),
        _ => {
            let row = nulls.iter().position(|valid| !valid).map(|value| (value / len) as u64);
            return Err(Error::column(&extra.name, row, "a value", "NULL"));
        }
    };
    for (slot, valid) in slots(rows, stride, extra).zip(&nulls) {
        if !valid {
            slot.copy_from_slice(nan);
        }
    }
    Ok(())
}

/// Converts the row of an error from a row of a part to a row of the whole.
pub(in crate::table) fn at_row(error: Error, first_row: u64) -> Error {
    match error.into_kind() {
        ErrorKind::Column { path, column, row: Some(row), expected, found } => {
            ErrorKind::Column { path, column, row: Some(row + first_row), expected, found }.into()
        }
        other => other.into(),
    }
}

/// A column of the batch in the type of its row field, if present.
struct InputColumn<T: ArrowPrimitiveType>(Option<PrimitiveArray<T>>);

impl<T: ArrowPrimitiveType> InputColumn<T> {
    /// Returns the values of some rows. Nulls, or all rows of a missing column, get the default.
    #[inline]
    fn values_or<'a>(
        &'a self,
        default: T::Native,
        rows: Range<usize>,
        buffer: &'a mut [T::Native; CHUNK],
    ) -> &'a [T::Native] {
        let Some(array) = &self.0 else {
            buffer.fill(default);
            return &buffer[..rows.len()];
        };
        // The caller checks the nulls of float columns itself.
        if array.null_count() == 0 || T::DATA_TYPE.is_floating() {
            return &array.values()[rows];
        }
        for (slot, row) in buffer.iter_mut().zip(rows.clone()) {
            *slot = if array.is_valid(row) { array.values()[row] } else { default };
        }
        &buffer[..rows.len()]
    }

    /// Returns one bit per row that is set if the row has a value, 64 rows per word.
    fn valid_bits(&self, num_rows: usize) -> Vec<u64> {
        let num_words = num_rows.div_ceil(CHUNK);
        match self.0.as_ref().map(|array| array.nulls()) {
            None => vec![0; num_words],
            Some(None) => vec![u64::MAX; num_words],
            Some(Some(nulls)) => nulls.inner().bit_chunks().iter_padded().take(num_words).collect(),
        }
    }

    /// Returns the first row whose value satisfies `so`, and the value.
    fn first(&self, so: impl Fn(T::Native) -> bool) -> Option<(u64, T::Native)> {
        let array = self.0.as_ref()?;
        match array.null_count() {
            0 => first(array.values(), so),
            _ => (0..).zip(array).find_map(|(row, value)| value.filter(|&v| so(v)).map(|v| (row, v))),
        }
    }

    fn without_nulls(&self, name: &str) -> Result<Option<&[T::Native]>> {
        let Some(array) = &self.0 else { return Ok(None) };
        if array.null_count() > 0 {
            let row = (0..).zip(array).find(|(_, value)| value.is_none()).map(|(row, _)| row);
            return Err(Error::column(name, row, "a value", "NULL"));
        }
        Ok(Some(array.values()))
    }
}

fn first<T: Copy>(values: &[T], so: impl Fn(T) -> bool) -> Option<(u64, T)> {
    // Most batches have no such value. The compiler vectorizes a loop that cannot end early.
    if !values.iter().fold(false, |any, &value| any | so(value)) {
        return None;
    }
    (0..).zip(values.iter().copied()).find(|&(_, value)| so(value))
}

/// Returns a column, cast to the type of its row field. A value that does not fit is an error; nothing wraps.
fn column<T: ArrowPrimitiveType>(batch: &RecordBatch, index: Option<usize>) -> Result<InputColumn<T>> {
    let Some(index) = index else { return Ok(InputColumn(None)) };
    let array = batch.column(index);
    if let Some(array) = array.as_primitive_opt::<T>() {
        return Ok(InputColumn(Some(array.clone())));
    }
    let schema = batch.schema();
    let name = schema.field(index).name();
    if !casts(array.data_type(), &T::DATA_TYPE) {
        return Err(Error::column(name, None, T::DATA_TYPE.to_string(), array.data_type()));
    }
    match checked_cast(array, &T::DATA_TYPE, false) {
        Ok(cast) => Ok(InputColumn(Some(cast.as_primitive::<T>().clone()))),
        Err(error) => {
            // A lenient cast, which gives null for a value that does not fit, finds the row.
            let row = checked_cast(array, &T::DATA_TYPE, true)
                .ok()
                .and_then(|cast| (0..cast.len()).find(|&row| cast.is_null(row) && array.is_valid(row)));
            Err(Error::column(name, row.map(|row| row as u64), format!("values of {}", T::DATA_TYPE), error))
        }
    }
}

/// Returns whether values of type `from` can be cast to `to`, if they are in range. Floats are not cast to integers.
fn casts(from: &DataType, to: &DataType) -> bool {
    match from {
        DataType::Dictionary(_, values) => casts(values, to),
        DataType::Null => true,
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale <= 0 || to.is_floating(),
        from => from.is_integer() || (from.is_floating() && to.is_floating()),
    }
}

fn find(schema: &Schema, name: &str) -> Result<Option<usize>> {
    let mut columns = schema.fields().iter().enumerate().filter(|(_, field)| field.name() == name);
    let first = columns.next().map(|(index, _)| index);
    if columns.next().is_some() {
        return Err(Error::column(name, None, "one column of that name", "several"));
    }
    Ok(first)
}

fn absent(name: &str, expected: &str, schema: &Schema) -> Error {
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    Error::column(name, None, expected, format!("the columns {}", names.join(", ")))
}
