//! Rows at any indices → columns, in one pass over memory.
//!
//! A row that is not in the cache costs a trip to memory, and a core can have many of those under way: so rows are asked
//! for `AHEAD` before they are read. They are copied, a block at a time, into a buffer that stays in the first-level
//! cache, and the block is transposed from there, column by column.

use super::StepTable;
use super::batch::{Arena, BatchSchema, ColumnSpec, Source};
use super::layout::ElementType;
use crate::board::Board;
use crate::step::{STEP_SIZE, Step};
use std::mem::offset_of;

/// Rows whose cache lines are under way. Between 16 and 32 all is equally fast; cores keep fewer lines in flight.
const AHEAD: usize = 24;
/// Rows that are transposed together: 2 KiB, with their columns well within 32 KiB of cache.
const BLOCK: usize = 64;

/// Fills an arena's columns. The caller has checked that every index is a row's and that the arena has room.
pub(super) fn gather(table: &StepTable, indices: &[u64], schema: &BatchSchema, arena: &mut Arena) {
    let rows = table.rows();
    let stride = table.layout().stride();
    let mut scratch = std::mem::take(&mut arena.scratch);
    scratch.resize(BLOCK * stride, 0);
    for &index in indices.iter().take(AHEAD) {
        prefetch(rows, index as usize * stride);
    }
    for (block, chunk) in indices.chunks(BLOCK).enumerate() {
        let first = block * BLOCK;
        let ahead = indices.get(first + AHEAD..).unwrap_or_default();
        let ahead = ahead.iter().map(|&index| index as usize * stride).chain(std::iter::repeat(usize::MAX));
        // A row of the usual size is copied as two vector registers; any other size is a call.
        match stride {
            STEP_SIZE => copy_rows(chunk, ahead, rows, &mut scratch, |row| {
                row.first_chunk::<STEP_SIZE>().copied().unwrap_or([0; STEP_SIZE])
            }),
            _ => {
                for ((&index, ahead), out) in chunk.iter().zip(ahead).zip(scratch.chunks_exact_mut(stride)) {
                    prefetch(rows, ahead);
                    let start = index as usize * stride;
                    out.copy_from_slice(&rows[start..start + stride]);
                }
            }
        }
        let block_rows = &scratch[..chunk.len() * stride];
        for (index, column) in schema.columns.iter().enumerate() {
            let start = arena.offsets[index] + first * column.width();
            let out = &mut arena.bytes_mut()[start..start + chunk.len() * column.width()];
            transpose(block_rows, stride, column, out);
        }
    }
    arena.scratch = scratch;
}

#[inline(always)]
fn copy_rows(
    indices: &[u64],
    ahead: impl Iterator<Item = usize>,
    rows: &[u8],
    scratch: &mut [u8],
    row: impl Fn(&[u8]) -> [u8; STEP_SIZE],
) {
    let (out, _) = scratch.as_chunks_mut::<STEP_SIZE>();
    for ((&index, ahead), out) in indices.iter().zip(ahead).zip(out) {
        prefetch(rows, ahead);
        *out = row(&rows[index as usize * STEP_SIZE..]);
    }
}

/// Asks for a row's cache line. An offset behind the end is let pass.
#[inline(always)]
#[allow(unsafe_code)]
fn prefetch(rows: &[u8], offset: usize) {
    #[cfg(target_arch = "x86_64")]
    if offset < rows.len() {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86-64, and a prefetch reads nothing that the program could see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(rows.as_ptr().wrapping_add(offset).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (rows, offset);
}

fn transpose(rows: &[u8], stride: usize, column: &ColumnSpec, out: &mut [u8]) {
    match (column.source, column.dtype) {
        (Source::Tokens, ElementType::Int32) => {
            tokens(rows, stride, out.as_chunks_mut::<64>().0, |exps, out| {
                for (exp, out) in exps.iter().zip(out.as_chunks_mut::<4>().0) {
                    *out = i32::from(*exp).to_ne_bytes();
                }
            });
        }
        (Source::Tokens, ElementType::Int64) => {
            tokens(rows, stride, out.as_chunks_mut::<128>().0, |exps, out| {
                for (exp, out) in exps.iter().zip(out.as_chunks_mut::<8>().0) {
                    *out = i64::from(*exp).to_ne_bytes();
                }
            });
        }
        (Source::Tokens, _) => tokens(rows, stride, out.as_chunks_mut::<16>().0, |exps, out| *out = *exps),
        (Source::LegalBools, _) => {
            for (row, out) in rows.chunks_exact(stride).zip(out.as_chunks_mut::<4>().0) {
                let mask = row[offset_of!(Step, ev_legal)];
                *out = [mask & 1, mask >> 1 & 1, mask >> 2 & 1, mask >> 3 & 1];
            }
        }
        (Source::Copy(offset), _) => match column.width() {
            1 => copy::<1>(rows, stride, offset, out),
            2 => copy::<2>(rows, stride, offset, out),
            4 => copy::<4>(rows, stride, offset, out),
            8 => copy::<8>(rows, stride, offset, out),
            16 => copy::<16>(rows, stride, offset, out),
            width => {
                for (row, out) in rows.chunks_exact(stride).zip(out.chunks_exact_mut(width)) {
                    out.copy_from_slice(&row[offset..offset + width]);
                }
            }
        },
    }
}

#[inline(always)]
fn tokens<const N: usize>(rows: &[u8], stride: usize, out: &mut [[u8; N]], write: impl Fn(&[u8; 16], &mut [u8; N])) {
    for (row, out) in rows.chunks_exact(stride).zip(out) {
        let board = row.first_chunk().map_or(0, |board| u64::from_ne_bytes(*board));
        write(&Board(board).exps(), out);
    }
}

#[inline(always)]
fn copy<const N: usize>(rows: &[u8], stride: usize, offset: usize, out: &mut [u8]) {
    for (row, out) in rows.chunks_exact(stride).zip(out.as_chunks_mut::<N>().0) {
        if let Some(value) = row[offset..].first_chunk::<N>() {
            *out = *value;
        }
    }
}
