//! Tables as NumPy structured arrays: the header of a table's rows, and the conversion of rows with another
//! layout.

use crate::board::WideBoard;
use crate::error::{Error, Result};
use crate::format::npy::{self, NpyField};
use crate::step::{FIELDS, NO_MOVE, STEP_SIZE, Step};
use crate::table::rows::element::ElementType;
use crate::table::rows::layout::{ExtraField, RowLayout};
use crate::table::rows::step_column::{STEP_INDEX, TILE_MASK, is_reserved};

pub(in crate::table) use crate::format::npy::NpyHeader;

/// The alignment of the first row in the file, in bytes: a page.
const ALIGN: usize = 4096;

/// The conversion of rows of another layout to rows of ours.
#[derive(Debug)]
pub(in crate::table) struct Conversion {
    /// The stride of the rows in the file.
    pub(in crate::table) stride: usize,
    out_stride: usize,
    /// The offset in such a row of each field of a [`Step`], in the order of [`FIELDS`].
    fields: [Option<usize>; FIELDS.len()],
    /// The offset of each extra column in the file's row, its offset in our row, and its width.
    extras: Vec<(usize, usize, usize)>,
}

/// Returns the header of a file of rows. Its length does not depend on their number.
pub(in crate::table) fn header(layout: &RowLayout, num_rows: u64) -> Result<Vec<u8>> {
    let fields = fields_of(layout);
    let len = npy::header(&fields, layout.stride(), num_rows, 0)?.len();
    npy::header(&fields, layout.stride(), num_rows, len.next_multiple_of(ALIGN))
}

/// Returns the fields of a row, ordered by offset.
fn fields_of(layout: &RowLayout) -> Vec<NpyField> {
    let field = |(name, dtype, values, offset): (&str, &str, usize, usize)| NpyField {
        name: name.to_owned(),
        dtype: dtype.to_owned(),
        values,
        offset,
    };
    layout.numpy_fields().map(field).collect()
}

impl NpyHeader {
    /// Returns whether rows of this layout have this header.
    pub(in crate::table) fn is_of(&self, layout: &RowLayout) -> bool {
        self.stride == layout.stride() && self.fields == fields_of(layout)
    }

    /// Returns the layout of such rows in memory, and the conversion to it if the file has another layout.
    pub(in crate::table) fn layout(&self) -> Result<(RowLayout, Option<Conversion>)> {
        let mut fields = [None; FIELDS.len()];
        let mut extras = Vec::new();
        for field in &self.fields {
            // Such step indices are an extra column.
            let is_wide_index = (&*field.name, &*field.dtype, field.values) == (STEP_INDEX, "<u4", 1);
            let step_field = FIELDS.iter().position(|own| own.name == field.name && !is_wide_index);
            let column = |expected: String| {
                let found = format!("{} × {}", field.values, field.dtype);
                Error::column(&field.name, None, expected, found)
            };
            if let Some(index) = step_field {
                let own = &FIELDS[index];
                if (own.numpy, own.values) != (&field.dtype, field.values) {
                    return Err(column(format!("{} × {}", own.values, own.numpy)));
                }
                fields[index] = Some(field.offset);
            } else {
                if is_reserved(&field.name) && !is_wide_index {
                    return Err(column("another name, because every batch has a column of this name".into()));
                }
                let dtype = ElementType::of_numpy(&field.dtype).filter(|_| field.values > 0);
                let dtype = dtype.ok_or_else(|| column("little-endian numbers or booleans".into()))?;
                if field.name == TILE_MASK && (dtype, field.values) != (ElementType::UInt16, 1) {
                    return Err(column("a mask of the cells with 65536, <u2".into()));
                }
                extras.push(ExtraField { offset: field.offset, ..ExtraField::new(&field.name, dtype, field.values) });
            }
        }
        if fields[0].is_none() {
            let found = self.fields.iter().map(|field| field.name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(Error::column("board", None, "a field of boards", found));
        }
        let layout = RowLayout::new(extras.clone());
        if self.is_of(&layout) {
            return Ok((layout, None));
        }
        let extras = extras.iter().zip(layout.extras());
        let extras = extras.map(|(there, here)| (there.offset, here.offset, here.width())).collect();
        let out_stride = layout.stride();
        Ok((layout, Some(Conversion { stride: self.stride, out_stride, fields, extras })))
    }
}

impl Conversion {
    /// Converts rows of the file, from row `first_row` on. Missing fields get the same values as missing columns of a
    /// query.
    pub(in crate::table) fn convert(&self, rows: &[u8], out: &mut [u8], first_row: u64) -> Result<()> {
        let pairs = rows.chunks_exact(self.stride).zip(out.chunks_exact_mut(self.out_stride));
        for (k, (row, out)) in pairs.enumerate() {
            let mut step = Step { ev_values: [f32::NAN; 4], chosen: NO_MOVE, ..Step::default() };
            let bytes: &mut [u8; STEP_SIZE] = bytemuck::cast_mut(&mut step);
            for ((field, own), next) in self.fields.iter().zip(&FIELDS).zip(FIELD_ENDS) {
                if let Some(offset) = field {
                    bytes[own.offset..next].copy_from_slice(&row[*offset..][..next - own.offset]);
                }
            }
            if self.fields[EV_LEGAL].is_none() {
                step.ev_legal = step.board.legal_moves();
            }
            check_step(&step, first_row + k as u64)?;
            out[..STEP_SIZE].copy_from_slice(bytemuck::bytes_of(&step));
            for &(from, to, width) in &self.extras {
                out[to..to + width].copy_from_slice(&row[from..from + width]);
            }
        }
        Ok(())
    }
}

/// Returns an error if a row has an invalid move, an invalid mask, or a tile of 65,536 in a cell whose nibble is not
/// 15.
pub(in crate::table) fn check_steps(rows: &[u8], layout: &RowLayout) -> Result<()> {
    let masks = layout.extra(TILE_MASK).map(|extra| extra.offset);
    (0..).zip(rows.chunks_exact(layout.stride())).try_for_each(|(row, bytes)| {
        let step: Step = bytemuck::pod_read_unaligned(&bytes[..STEP_SIZE]);
        if let Some(offset) = masks {
            let mask: u16 = bytemuck::pod_read_unaligned(&bytes[offset..offset + 2]);
            WideBoard::new(step.board, mask)
                .map_err(|_| Error::column(TILE_MASK, Some(row), "cells with the exponent 15", mask))?;
        }
        check_step(&step, row)
    })
}

#[inline]
fn check_step(step: &Step, row: u64) -> Result<()> {
    if step.chosen > 3 && step.chosen != NO_MOVE {
        return Err(Error::column("move", Some(row), "0..=3, or 255 for none", step.chosen));
    }
    if step.ev_legal > 15 {
        return Err(Error::column("ev_legal", Some(row), "0..=15", step.ev_legal));
    }
    Ok(())
}

/// The index of the mask in [`FIELDS`].
const EV_LEGAL: usize = 5;

/// The end offset of each of [`FIELDS`].
const FIELD_ENDS: [usize; FIELDS.len()] = [8, 24, 28, 30, 31, 32];
