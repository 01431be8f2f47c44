//! Rows at any indices → columns, in one pass over memory.
//!
//! A row that is not in the cache costs a trip to memory, and a core can have many of those under way: so rows are asked
//! for `AHEAD` before they are read. A block of rows is copied into a buffer that stays in the first-level cache, and
//! transposed from there, column by column.

use super::StepTable;
use super::batch::{Arena, BatchSchema, ColumnSpec, Source};
use super::layout::ElementType;
use crate::step::{STEP_SIZE, Step};

/// Rows whose cache lines are under way. Between 16 and 32 all is equally fast; cores keep fewer lines in flight.
const AHEAD: usize = 24;
/// Rows that are transposed together: 2 KiB, which with their columns fit well into 32 KiB of cache.
const BLOCK: usize = 64;

/// Fills an arena's columns. The caller has checked that every index is a row's and that the arena has room.
pub(super) fn gather(table: &StepTable, indices: &[u64], schema: &BatchSchema, arena: &mut Arena) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        #[allow(unsafe_code)]
        // SAFETY: the processor has AVX2, which is all that the function asks for.
        return unsafe { gather_avx2(table, indices, schema, arena) };
    }
    gather_blocks(table, indices, schema, arena);
}

/// The same code, compiled for wider registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn gather_avx2(table: &StepTable, indices: &[u64], schema: &BatchSchema, arena: &mut Arena) {
    gather_blocks(table, indices, schema, arena);
}

#[inline(always)]
fn gather_blocks(table: &StepTable, indices: &[u64], schema: &BatchSchema, arena: &mut Arena) {
    let rows = table.rows();
    let stride = table.layout().stride();
    let mut steps = [<Step as bytemuck::Zeroable>::zeroed(); BLOCK];
    for &index in indices.iter().take(AHEAD) {
        prefetch(rows, index as usize * stride, stride);
    }
    for (block, chunk) in indices.chunks(BLOCK).enumerate() {
        let first = block * BLOCK;
        for (i, (&index, step)) in chunk.iter().zip(&mut steps).enumerate() {
            if let Some(&ahead) = indices.get(first + i + AHEAD) {
                prefetch(rows, ahead as usize * stride, stride);
            }
            let start = index as usize * stride;
            bytemuck::bytes_of_mut(step).copy_from_slice(&rows[start..start + STEP_SIZE]);
        }
        let steps = &steps[..chunk.len()];
        for (index, column) in schema.columns.iter().enumerate() {
            let start = arena.offsets[index] + first * column.width();
            let out = &mut arena.bytes_mut()[start..start + chunk.len() * column.width()];
            match column.source {
                Source::Copy(offset) if offset >= STEP_SIZE => copy_extra(rows, stride, chunk, offset, column, out),
                source => transpose(steps, source, column.dtype, out),
            }
        }
    }
}

/// Asks for a row's cache lines.
#[inline(always)]
#[allow(unsafe_code)]
fn prefetch(rows: &[u8], offset: usize, stride: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let row = rows.as_ptr().wrapping_add(offset);
        // SAFETY: SSE is part of x86-64, and a prefetch reads nothing that the program could see, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(row.cast()) };
        if stride > STEP_SIZE {
            // SAFETY: as above.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(row.wrapping_add(stride - 1).cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (rows, offset, stride);
}

#[inline(always)]
fn transpose(steps: &[Step], source: Source, dtype: ElementType, out: &mut [u8]) {
    const RUN_ID: usize = std::mem::offset_of!(Step, run_id);
    const STEP_INDEX: usize = std::mem::offset_of!(Step, step_index);
    const CHOSEN: usize = std::mem::offset_of!(Step, chosen);
    const EV_LEGAL: usize = std::mem::offset_of!(Step, ev_legal);
    const EV_VALUES: usize = std::mem::offset_of!(Step, ev_values);
    match (source, dtype) {
        (Source::Tokens, ElementType::Int32) => put(steps, out, |step| widen::<4, 64>(step.board.exps())),
        (Source::Tokens, ElementType::Int64) => put(steps, out, |step| widen::<8, 128>(step.board.exps())),
        (Source::Tokens, _) => put(steps, out, |step| step.board.exps()),
        // Each bit of the mask to the low bit of its byte.
        (Source::LegalBools, _) => {
            put(steps, out, |step| ((u32::from(step.ev_legal) * 0x0020_4081) & 0x0101_0101).to_le_bytes());
        }
        (Source::Copy(EV_VALUES), _) => put(steps, out, |step| bytemuck::cast::<[f32; 4], [u8; 16]>(step.ev_values)),
        (Source::Copy(RUN_ID), _) => put(steps, out, |step| step.run_id.to_ne_bytes()),
        (Source::Copy(STEP_INDEX), _) => put(steps, out, |step| step.step_index.to_ne_bytes()),
        (Source::Copy(CHOSEN), _) => put(steps, out, |step| [step.chosen]),
        (Source::Copy(EV_LEGAL), _) => put(steps, out, |step| [step.ev_legal]),
        (Source::Copy(_), _) => put(steps, out, |step| step.board.0.to_ne_bytes()),
    }
}

#[inline(always)]
fn put<const N: usize>(steps: &[Step], out: &mut [u8], value: impl Fn(&Step) -> [u8; N]) {
    for (step, out) in steps.iter().zip(out.as_chunks_mut::<N>().0) {
        *out = value(step);
    }
}

/// Sixteen bytes as sixteen integers of `W` bytes, `N` in all.
#[inline(always)]
fn widen<const W: usize, const N: usize>(exps: [u8; 16]) -> [u8; N] {
    let mut out = [0; N];
    for (exp, out) in exps.into_iter().zip(out.as_chunks_mut::<W>().0) {
        let low = if cfg!(target_endian = "little") { 0 } else { W - 1 };
        out[low] = exp;
    }
    out
}

/// Extra columns come straight from the rows, whose lines the cache still has.
#[inline(always)]
fn copy_extra(rows: &[u8], stride: usize, indices: &[u64], offset: usize, column: &ColumnSpec, out: &mut [u8]) {
    let starts = indices.iter().map(|&index| index as usize * stride + offset);
    match column.width() {
        1 => copy::<1>(rows, starts, out),
        2 => copy::<2>(rows, starts, out),
        4 => copy::<4>(rows, starts, out),
        _ => copy::<8>(rows, starts, out),
    }
}

#[inline(always)]
fn copy<const N: usize>(rows: &[u8], starts: impl Iterator<Item = usize>, out: &mut [u8]) {
    for (start, out) in starts.zip(out.as_chunks_mut::<N>().0) {
        out.copy_from_slice(&rows[start..start + N]);
    }
}
