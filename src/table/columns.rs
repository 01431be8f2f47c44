//! The columns that a gather fills, through pointers that are checked once.

use super::batch::{BatchSchema, Source};
use crate::step::Step;
use smallvec::SmallVec;
use std::marker::PhantomData;
use std::ptr::null_mut;

/// The memory of each column of a schema, in schema order. Each has room for one value per index.
pub(crate) type Columns<'a> = SmallVec<[&'a mut [u8]; 16]>;

/// The integer types of tokens.
pub(super) trait Token: bytemuck::Pod {
    fn of_exps(exps: [u8; 16]) -> [Self; 16];
}

impl Token for u8 {
    #[inline(always)]
    fn of_exps(exps: [u8; 16]) -> [u8; 16] {
        exps
    }
}

// The compiler vectorizes a loop over indices. It turns `array::map` into calls, and iterators into single-byte
// code.
impl Token for i32 {
    #[inline(always)]
    #[allow(clippy::needless_range_loop)]
    fn of_exps(exps: [u8; 16]) -> [i32; 16] {
        let mut tokens = [0; 16];
        for cell in 0..16 {
            tokens[cell] = i32::from(exps[cell]);
        }
        tokens
    }
}

impl Token for i64 {
    #[inline(always)]
    #[allow(clippy::needless_range_loop)]
    fn of_exps(exps: [u8; 16]) -> [i64; 16] {
        let mut tokens = [0; 16];
        for cell in 0..16 {
            tokens[cell] = i64::from(exps[cell]);
        }
        tokens
    }
}

/// Pointers to the columns that are computed from a [`Step`], each with room for all rows; null if not
/// requested.
pub(super) struct StepColumns<'a, T> {
    tokens: *mut [T; 16],
    ev_values: *mut [f32; 4],
    legal_bools: *mut [u8; 4],
    board: *mut u64,
    run_id: *mut u32,
    step_index: *mut u16,
    chosen: *mut u8,
    ev_legal: *mut u8,
    /// Borrows the columns.
    columns: PhantomData<&'a mut [u8]>,
}

impl<'a, T: Token> StepColumns<'a, T> {
    pub(super) fn new(schema: &BatchSchema, columns: &'a mut Columns<'_>, num_rows: usize) -> Self {
        const BOARD: usize = std::mem::offset_of!(Step, board);
        const EV_VALUES: usize = std::mem::offset_of!(Step, ev_values);
        const RUN_ID: usize = std::mem::offset_of!(Step, run_id);
        const STEP_INDEX: usize = std::mem::offset_of!(Step, step_index);
        const CHOSEN: usize = std::mem::offset_of!(Step, chosen);
        const EV_LEGAL: usize = std::mem::offset_of!(Step, ev_legal);
        let mut out = StepColumns {
            tokens: null_mut(),
            ev_values: null_mut(),
            legal_bools: null_mut(),
            board: null_mut(),
            run_id: null_mut(),
            step_index: null_mut(),
            chosen: null_mut(),
            ev_legal: null_mut(),
            columns: PhantomData,
        };
        for (spec, column) in schema.columns.iter().zip(columns.iter_mut()) {
            assert!(column.len() >= num_rows * spec.width(), "room for every row");
            let bytes = column.as_mut_ptr();
            match spec.source {
                Source::Tokens => {
                    assert!(spec.width() == size_of::<[T; 16]>(), "tokens of this type");
                    out.tokens = bytes.cast();
                }
                Source::LegalBools => out.legal_bools = bytes.cast(),
                Source::Copy(BOARD) => out.board = bytes.cast(),
                Source::Copy(EV_VALUES) => out.ev_values = bytes.cast(),
                Source::Copy(RUN_ID) => out.run_id = bytes.cast(),
                Source::Copy(STEP_INDEX) => out.step_index = bytes.cast(),
                Source::Copy(CHOSEN) => out.chosen = bytes,
                Source::Copy(EV_LEGAL) => out.ev_legal = bytes,
                Source::Copy(_) | Source::Attached(_) => {}
            }
        }
        out
    }

    /// Whether all step columns of a batch are present. The mask as a number is not one of them.
    pub(super) fn has_all(&self) -> bool {
        !(self.tokens.is_null()
            || self.ev_values.is_null()
            || self.legal_bools.is_null()
            || self.board.is_null()
            || self.run_id.is_null()
            || self.step_index.is_null()
            || self.chosen.is_null())
    }

    /// Writes one row's values to the columns.
    ///
    /// # Safety
    /// * `i` is below the number of rows that `new` was given.
    /// * With `ALL`, `has_all` is true.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) unsafe fn put<const ALL: bool>(&self, i: usize, step: &Step) {
        // SAFETY: a non-null pointer leads to room for more than `i` values of its type, borrowed for as long
        // as `self` lives. The writes do not need an aligned column.
        unsafe {
            if ALL || !self.tokens.is_null() {
                self.tokens.add(i).write_unaligned(T::of_exps(step.board.exps()));
            }
            if ALL || !self.ev_values.is_null() {
                self.ev_values.add(i).write_unaligned(step.ev_values);
            }
            if ALL || !self.legal_bools.is_null() {
                // Moves each bit of the mask to the low bit of its byte.
                let bools = (u32::from(step.ev_legal) * 0x0020_4081) & 0x0101_0101;
                self.legal_bools.add(i).write(bools.to_le_bytes());
            }
            if ALL || !self.board.is_null() {
                self.board.add(i).write_unaligned(step.board.0);
            }
            if ALL || !self.run_id.is_null() {
                self.run_id.add(i).write_unaligned(step.run_id);
            }
            if ALL || !self.step_index.is_null() {
                self.step_index.add(i).write_unaligned(step.step_index);
            }
            if ALL || !self.chosen.is_null() {
                self.chosen.add(i).write(step.chosen);
            }
            if !ALL && !self.ev_legal.is_null() {
                self.ev_legal.add(i).write(step.ev_legal);
            }
        }
    }
}
