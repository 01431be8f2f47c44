//! The columns that a gather fills from steps, through pointers that are checked once.

use crate::step::Step;
use crate::table::gather::batch_schema::{BatchSchema, ColumnBuffers, ColumnSource, ColumnSpec};
use crate::table::rows::step_column::StepColumn;
use bytemuck::Zeroable;
use std::marker::PhantomData;

/// The integer types of tokens.
pub(in crate::table) trait Token: bytemuck::Pod + From<u8> {
    #[inline(always)]
    fn of_exps(exps: [u8; 16]) -> [Self; 16] {
        // The compiler vectorizes a loop over indices. It turns `array::map` into calls, and iterators into single-byte
        // code.
        let mut tokens = [Self::zeroed(); 16];
        for cell in 0..16 {
            tokens[cell] = Self::from(exps[cell]);
        }
        tokens
    }
}

impl Token for u8 {}
impl Token for i32 {}
impl Token for i64 {}

/// Pointers to the columns that are computed from a [`Step`], each with room for all rows; null if not
/// requested.
#[derive(Zeroable)]
pub(in crate::table) struct ColumnPointers<'a, T> {
    tokens: *mut [T; 16],
    ev_values: *mut [f32; 4],
    ev_legal: *mut [u8; 4],
    board: *mut u64,
    run_id: *mut u32,
    step_index: *mut u16,
    chosen: *mut u8,
    ev_legal_mask: *mut u8,
    num_rows: usize,
    /// Borrows the columns.
    columns: PhantomData<&'a mut [u8]>,
}

impl<'a, T: Token> ColumnPointers<'a, T> {
    pub(in crate::table) fn new(schema: &BatchSchema, columns: &'a mut ColumnBuffers<'_>, num_rows: usize) -> Self {
        // A zeroed pointer is null.
        let mut out = ColumnPointers { num_rows, ..ColumnPointers::zeroed() };
        for (spec, column) in schema.columns.iter().zip(columns.iter_mut()) {
            assert!(column.len() >= num_rows * spec.width(), "room for every row");
            let bytes = column.as_mut_ptr();
            let ColumnSource::Step(step_column) = spec.source else { continue };
            match step_column {
                StepColumn::Tokens => out.tokens = pointer(spec, bytes),
                StepColumn::Move => out.chosen = pointer(spec, bytes),
                StepColumn::EvValues => out.ev_values = pointer(spec, bytes),
                StepColumn::EvLegal => out.ev_legal = pointer(spec, bytes),
                StepColumn::RunId => out.run_id = pointer(spec, bytes),
                StepColumn::StepIndex => out.step_index = pointer(spec, bytes),
                StepColumn::Board => out.board = pointer(spec, bytes),
                StepColumn::EvLegalMask => out.ev_legal_mask = pointer(spec, bytes),
            }
        }
        out
    }

    /// Returns the number of rows that each column has at least room for.
    pub(in crate::table) fn num_rows(&self) -> usize {
        self.num_rows
    }

    /// Returns whether all step columns of a batch are present. The mask as a number is not one of them.
    #[inline(always)]
    pub(in crate::table) fn has_all(&self) -> bool {
        // Every field is named, so that the compiler reports a new one.
        let ColumnPointers {
            tokens,
            ev_values,
            ev_legal,
            board,
            run_id,
            step_index,
            chosen,
            ev_legal_mask: _,
            num_rows: _,
            columns: _,
        } = self;
        !(tokens.is_null()
            || ev_values.is_null()
            || ev_legal.is_null()
            || board.is_null()
            || run_id.is_null()
            || step_index.is_null()
            || chosen.is_null())
    }

    /// Writes one row's values to the columns.
    ///
    /// # Safety
    /// * `i` is below the number of rows that `new` was given.
    /// * With `ALL`, `has_all` is true.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(in crate::table) unsafe fn put<const ALL: bool>(&self, i: usize, step: &Step) {
        // Every field is named, so that the compiler reports a new one that is not written.
        let &ColumnPointers {
            tokens,
            ev_values,
            ev_legal,
            board,
            run_id,
            step_index,
            chosen,
            ev_legal_mask,
            num_rows: _,
            columns: _,
        } = self;
        // SAFETY: a non-null pointer leads to room for more than `i` values of its type, borrowed for as long
        // as `self` lives. The writes do not need an aligned column.
        unsafe {
            if ALL || !tokens.is_null() {
                tokens.add(i).write_unaligned(T::of_exps(step.board.exps()));
            }
            if ALL || !ev_values.is_null() {
                ev_values.add(i).write_unaligned(step.ev_values);
            }
            if ALL || !ev_legal.is_null() {
                // Moves each bit of the mask to the low bit of its byte.
                let bools = (u32::from(step.ev_legal) * 0x0020_4081) & 0x0101_0101;
                ev_legal.add(i).write(bools.to_le_bytes());
            }
            if ALL || !board.is_null() {
                board.add(i).write_unaligned(step.board.0);
            }
            if ALL || !run_id.is_null() {
                run_id.add(i).write_unaligned(step.run_id);
            }
            if ALL || !step_index.is_null() {
                step_index.add(i).write_unaligned(step.step_index);
            }
            if ALL || !chosen.is_null() {
                chosen.add(i).write(step.chosen);
            }
            if !ALL && !ev_legal_mask.is_null() {
                ev_legal_mask.add(i).write(step.ev_legal);
            }
        }
    }
}

/// Returns a pointer to values of this Rust type. A value must have the column's width.
fn pointer<V>(spec: &ColumnSpec, bytes: *mut u8) -> *mut V {
    assert!(spec.width() == size_of::<V>(), "{}: values of another size", spec.name);
    bytes.cast()
}
