//! Rows at any indices → columns, in one pass over memory.
//!
//! A row that is not in the cache costs a trip to memory, and a core can have many of those under way: so rows are asked
//! for long before they are read, first into the second-level cache, which keeps more requests in flight than the first,
//! and then, shortly before, into the first. A row's values go straight to their columns. That costs less than the next
//! row takes to arrive, so a batch of all columns is as fast as a copy of the bare rows.
//!
//! [`naive`] does the same, value by value, and the tests compare the two.

use super::batch::{BatchSchema, ColumnSpec, Source};
use super::layout::ElementType;
use super::symmetry::SymmetryKey;
use crate::step::{STEP_SIZE, Step};
use smallvec::SmallVec;

/// Rows under way to the second-level cache. From 64 to 256 all is equally fast.
const FAR: usize = 128;
/// Rows under way to the first-level cache, which has room for some sixteen requests.
const NEAR: usize = 16;
/// Rows after which the extra columns follow, while their lines are in the cache: no more than lie between `FAR` and the
/// end of the first-level cache.
const BLOCK: usize = 64;
/// Rows from which a second thread pays: waking it takes as long as gathering thousands.
const PARALLEL: usize = 1 << 15;
/// The most threads of one gather: memory serves no more at full speed.
const MAX_THREADS: usize = 8;

/// Rows of equal size, one after the other.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) stride: usize,
}

/// The memory of each column of a schema, in its order, for as many rows as there are indices.
pub(super) type Columns<'a> = SmallVec<[&'a mut [u8]; 16]>;

/// How rows are turned: the key of the symmetries, and what numbers each row under it.
pub(super) type Turns<'a> = Option<(SymmetryKey, &'a [u64])>;

/// Fills columns with the rows at `indices`, each turned as `symmetries` says.
///
/// # Panics
/// When an index is not a row's, or a column shorter than the indices: the caller has checked both.
pub(super) fn gather(
    rows: Rows<'_>,
    indices: &[u64],
    schema: &BatchSchema,
    columns: Columns<'_>,
    symmetries: Turns<'_>,
) {
    let num_threads = (indices.len() / PARALLEL).min(MAX_THREADS);
    // To ask for the number of cores costs several calls into the system.
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if num_threads < 2 || cores() < 2 {
        return gather_part(rows, indices, schema, columns, symmetries);
    }
    let num_threads = num_threads.min(cores());
    let part = indices.len().div_ceil(num_threads);
    std::thread::scope(|scope| {
        let mut rest = columns;
        for (k, indices) in indices.chunks(part).enumerate() {
            let symmetries = symmetries.map(|(key, ids)| (key, &ids[k * part..][..indices.len()]));
            let mut columns = Columns::new();
            for (column, spec) in rest.iter_mut().zip(&schema.columns) {
                let (first, after) = std::mem::take(column).split_at_mut(indices.len() * spec.width());
                columns.push(first);
                *column = after;
            }
            scope.spawn(move || gather_part(rows, indices, schema, columns, symmetries));
        }
    });
}

/// Copies whole rows.
pub(super) fn gather_rows(rows: Rows<'_>, indices: &[u64], out: &mut [u8]) {
    for &index in indices.iter().take(FAR) {
        rows.prefetch::<FAR_HINT>(index);
    }
    for (k, (&index, out)) in indices.iter().zip(out.chunks_exact_mut(rows.stride)).enumerate() {
        rows.prefetch_after(indices, k);
        let row = rows.at(index);
        match (row.first_chunk::<STEP_SIZE>(), out.first_chunk_mut::<STEP_SIZE>()) {
            // A copy of known size is two instructions, one of any size a call.
            (Some(row), Some(out)) if rows.stride == STEP_SIZE => *out = *row,
            _ => out.copy_from_slice(row),
        }
    }
}

/// The same as [`gather`], as simply as it can be said.
#[cfg(test)]
pub(super) fn naive(
    rows: Rows<'_>,
    indices: &[u64],
    schema: &BatchSchema,
    columns: Columns<'_>,
    symmetries: Turns<'_>,
) {
    for (spec, column) in schema.columns.iter().zip(columns) {
        for (k, (&index, out)) in indices.iter().zip(column.chunks_exact_mut(spec.width())).enumerate() {
            let row = rows.at(index);
            let mut step: Step = bytemuck::pod_read_unaligned(&row[..STEP_SIZE]);
            if let Some((key, ids)) = symmetries {
                step = super::symmetry::naive(key.symmetry_of(ids[k]), step);
            }
            let value: Vec<u8> = match spec.source {
                Source::Tokens => {
                    let cells = (0..16).map(|cell| step.board.0 >> (60 - 4 * cell) & 15);
                    let wide = cells.flat_map(|exp| exp.to_le_bytes().into_iter().take(spec.dtype.width()));
                    wide.collect()
                }
                Source::LegalBools => (0..4).map(|bit| step.ev_legal >> bit & 1).collect(),
                Source::Copy(offset) if offset < STEP_SIZE => {
                    bytemuck::bytes_of(&step)[offset..offset + spec.width()].to_vec()
                }
                Source::Copy(offset) => row[offset..offset + spec.width()].to_vec(),
            };
            out.copy_from_slice(&value);
        }
    }
}

fn gather_part(
    rows: Rows<'_>,
    indices: &[u64],
    schema: &BatchSchema,
    columns: Columns<'_>,
    symmetries: Turns<'_>,
) {
    // Which integers the tokens are, and whether to turn, is settled outside of the loop over rows.
    let unturned = (SymmetryKey::NONE, indices);
    match (schema.tokens(), symmetries) {
        (ElementType::Int32, None) => dispatch::<i32, false>(rows, indices, schema, columns, unturned),
        (ElementType::Int64, None) => dispatch::<i64, false>(rows, indices, schema, columns, unturned),
        (_, None) => dispatch::<u8, false>(rows, indices, schema, columns, unturned),
        (ElementType::Int32, Some(turns)) => dispatch::<i32, true>(rows, indices, schema, columns, turns),
        (ElementType::Int64, Some(turns)) => dispatch::<i64, true>(rows, indices, schema, columns, turns),
        (_, Some(turns)) => dispatch::<u8, true>(rows, indices, schema, columns, turns),
    }
}

/// Runs the code that was compiled for the widest registers this processor has. NEON is part of every AArch64, so there
/// the portable code uses it.
fn dispatch<T: Token, const TURN: bool>(
    rows: Rows<'_>,
    indices: &[u64],
    schema: &BatchSchema,
    columns: Columns<'_>,
    turns: (SymmetryKey, &[u64]),
) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            #[allow(unsafe_code)]
            // SAFETY: the processor has all features that the function asks for, as AVX-512 implies AVX2.
            return unsafe { gather_avx512::<T, TURN>(rows, indices, schema, columns, turns) };
        }
        if is_x86_feature_detected!("avx2") {
            #[allow(unsafe_code)]
            // SAFETY: the processor has AVX2, which is all that the function asks for.
            return unsafe { gather_avx2::<T, TURN>(rows, indices, schema, columns, turns) };
        }
    }
    gather_blocks::<T, TURN>(rows, indices, schema, columns, turns);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn gather_avx2<T: Token, const TURN: bool>(
    rows: Rows<'_>,
    indices: &[u64],
    schema: &BatchSchema,
    columns: Columns<'_>,
    turns: (SymmetryKey, &[u64]),
) {
    gather_blocks::<T, TURN>(rows, indices, schema, columns, turns);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,avx512f,avx512bw")]
fn gather_avx512<T: Token, const TURN: bool>(
    rows: Rows<'_>,
    indices: &[u64],
    schema: &BatchSchema,
    columns: Columns<'_>,
    turns: (SymmetryKey, &[u64]),
) {
    gather_blocks::<T, TURN>(rows, indices, schema, columns, turns);
}

#[inline(always)]
fn gather_blocks<T: Token, const TURN: bool>(
    rows: Rows<'_>,
    indices: &[u64],
    schema: &BatchSchema,
    mut columns: Columns<'_>,
    turns: (SymmetryKey, &[u64]),
) {
    for &index in indices.iter().take(FAR) {
        rows.prefetch::<FAR_HINT>(index);
    }
    for (block, chunk) in indices.chunks(BLOCK).enumerate() {
        let first = block * BLOCK;
        let mut out = StepColumns::<T>::of_rows(schema, &mut columns, first, chunk.len());
        let ids = if TURN { &turns.1[first..][..chunk.len()] } else { &[] };
        for (i, &index) in chunk.iter().enumerate() {
            rows.prefetch_after(indices, first + i);
            let mut step: Step = bytemuck::pod_read_unaligned(&rows.at(index)[..STEP_SIZE]);
            if TURN {
                step = turns.0.turn(ids[i], step);
            }
            out.put(i, &step);
        }
        if schema.has_extras() {
            for (spec, column) in schema.columns.iter().zip(&mut columns) {
                let out = &mut column[first * spec.width()..][..chunk.len() * spec.width()];
                copy_extra(rows, chunk, spec, out);
            }
        }
    }
}

impl<'a> Rows<'a> {
    #[inline(always)]
    fn at(self, index: u64) -> &'a [u8] {
        &self.bytes[index as usize * self.stride..][..self.stride]
    }

    /// Asks for the rows that come some places after the one at `k`.
    #[inline(always)]
    fn prefetch_after(self, indices: &[u64], k: usize) {
        if let Some(&index) = indices.get(k + FAR) {
            self.prefetch::<FAR_HINT>(index);
        }
        if let Some(&index) = indices.get(k + NEAR) {
            self.prefetch::<NEAR_HINT>(index);
        }
    }

    /// Asks for a row's cache lines.
    #[inline(always)]
    fn prefetch<const HINT: i32>(self, index: u64) {
        let row = self.bytes.as_ptr().wrapping_add(index as usize * self.stride);
        prefetch_line::<HINT>(row);
        if self.stride > STEP_SIZE {
            prefetch_line::<HINT>(row.wrapping_add(self.stride - 1));
        }
    }
}

#[cfg(target_arch = "x86_64")]
const FAR_HINT: i32 = std::arch::x86_64::_MM_HINT_T1;
#[cfg(target_arch = "x86_64")]
const NEAR_HINT: i32 = std::arch::x86_64::_MM_HINT_T0;
#[cfg(not(target_arch = "x86_64"))]
const FAR_HINT: i32 = 2;
#[cfg(not(target_arch = "x86_64"))]
const NEAR_HINT: i32 = 1;

/// Asks for the cache line of a slice's element.
#[inline(always)]
pub(crate) fn prefetch<T>(slice: &[T], index: usize) {
    prefetch_line::<NEAR_HINT>(slice.as_ptr().wrapping_add(index).cast());
}

#[inline(always)]
#[allow(unsafe_code)]
fn prefetch_line<const HINT: i32>(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64, and a prefetch reads nothing that the program could see, wherever it points.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<HINT>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch reads nothing that the program could see, wherever it points, and changes no register.
    unsafe {
        match HINT {
            FAR_HINT => std::arch::asm!("prfm pldl2keep, [{}]", in(reg) address, options(nostack, preserves_flags)),
            _ => std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags)),
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// The integers that tokens may be.
trait Token: bytemuck::Pod {
    fn of_exp(exp: u8) -> Self;
}

impl Token for u8 {
    #[inline(always)]
    fn of_exp(exp: u8) -> u8 {
        exp
    }
}

impl Token for i32 {
    #[inline(always)]
    fn of_exp(exp: u8) -> i32 {
        i32::from(exp)
    }
}

impl Token for i64 {
    #[inline(always)]
    fn of_exp(exp: u8) -> i64 {
        i64::from(exp)
    }
}

/// The columns of some rows that come out of a [`Step`]. One that is not asked for is empty, and what is put there is
/// dropped.
struct StepColumns<'a, T> {
    tokens: &'a mut [[T; 16]],
    chosen: &'a mut [u8],
    ev_values: &'a mut [[u8; 16]],
    legal_bools: &'a mut [[u8; 4]],
    ev_legal: &'a mut [u8],
    run_id: &'a mut [[u8; 4]],
    step_index: &'a mut [[u8; 2]],
    board: &'a mut [[u8; 8]],
}

impl<'a, T: Token> StepColumns<'a, T> {
    #[inline(always)]
    fn of_rows(schema: &BatchSchema, columns: &'a mut Columns<'_>, first: usize, len: usize) -> Self {
        const BOARD: usize = std::mem::offset_of!(Step, board);
        const EV_VALUES: usize = std::mem::offset_of!(Step, ev_values);
        const RUN_ID: usize = std::mem::offset_of!(Step, run_id);
        const STEP_INDEX: usize = std::mem::offset_of!(Step, step_index);
        const CHOSEN: usize = std::mem::offset_of!(Step, chosen);
        const EV_LEGAL: usize = std::mem::offset_of!(Step, ev_legal);
        let mut out = StepColumns {
            tokens: &mut [],
            chosen: &mut [],
            ev_values: &mut [],
            legal_bools: &mut [],
            ev_legal: &mut [],
            run_id: &mut [],
            step_index: &mut [],
            board: &mut [],
        };
        for (spec, column) in schema.columns.iter().zip(columns.iter_mut()) {
            let bytes = &mut column[first * spec.width()..][..len * spec.width()];
            match spec.source {
                Source::Tokens => out.tokens = bytemuck::cast_slice_mut(bytes),
                Source::LegalBools => out.legal_bools = bytes.as_chunks_mut().0,
                Source::Copy(BOARD) => out.board = bytes.as_chunks_mut().0,
                Source::Copy(EV_VALUES) => out.ev_values = bytes.as_chunks_mut().0,
                Source::Copy(RUN_ID) => out.run_id = bytes.as_chunks_mut().0,
                Source::Copy(STEP_INDEX) => out.step_index = bytes.as_chunks_mut().0,
                Source::Copy(CHOSEN) => out.chosen = bytes,
                Source::Copy(EV_LEGAL) => out.ev_legal = bytes,
                Source::Copy(_) => {}
            }
        }
        out
    }

    #[inline(always)]
    fn put(&mut self, i: usize, step: &Step) {
        if let Some(slot) = self.tokens.get_mut(i) {
            *slot = step.board.exps().map(T::of_exp);
        }
        if let Some(slot) = self.ev_values.get_mut(i) {
            *slot = bytemuck::cast(step.ev_values);
        }
        if let Some(slot) = self.legal_bools.get_mut(i) {
            // Each bit of the mask to the low bit of its byte.
            *slot = ((u32::from(step.ev_legal) * 0x0020_4081) & 0x0101_0101).to_le_bytes();
        }
        if let Some(slot) = self.board.get_mut(i) {
            *slot = step.board.0.to_ne_bytes();
        }
        if let Some(slot) = self.run_id.get_mut(i) {
            *slot = step.run_id.to_ne_bytes();
        }
        if let Some(slot) = self.step_index.get_mut(i) {
            *slot = step.step_index.to_ne_bytes();
        }
        if let Some(slot) = self.chosen.get_mut(i) {
            *slot = step.chosen;
        }
        if let Some(slot) = self.ev_legal.get_mut(i) {
            *slot = step.ev_legal;
        }
    }
}

/// An extra column comes straight from the rows, whose lines the cache still has.
#[inline(always)]
fn copy_extra(rows: Rows<'_>, indices: &[u64], spec: &ColumnSpec, out: &mut [u8]) {
    let Source::Copy(offset @ STEP_SIZE..) = spec.source else {
        return;
    };
    match spec.width() {
        1 => copy::<1>(rows, indices, offset, out),
        2 => copy::<2>(rows, indices, offset, out),
        4 => copy::<4>(rows, indices, offset, out),
        _ => copy::<8>(rows, indices, offset, out),
    }
}

#[inline(always)]
fn copy<const N: usize>(rows: Rows<'_>, indices: &[u64], offset: usize, out: &mut [u8]) {
    for (&index, out) in indices.iter().zip(out.as_chunks_mut::<N>().0) {
        out.copy_from_slice(&rows.at(index)[offset..][..N]);
    }
}
