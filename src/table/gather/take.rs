//! The gather kernels: rows at any indices → columns, in one pass over memory.
//!
//! A row that is not in the cache must be loaded from memory, and a core can have many such loads in flight. The
//! kernels therefore prefetch rows long before they read them. The values of a row go straight to their columns. This
//! takes less time than the arrival of the next row. So if rows are not in the cache, a batch of all columns is as fast
//! as a copy of the bare rows.
//!
//! The tests compare the kernels with a function that copies value by value.

use crate::board::{Board, WideBoard};
use crate::step::{STEP_SIZE, Step};
use crate::system::process::lock;
use crate::system::registers::{Level, Loop};
use crate::system::workers;
use crate::table::columns::attached::AttachedColumn;
use crate::table::gather::batch_schema::{BatchSchema, ColumnBuffers, ColumnSource, ColumnSpec};
use crate::table::gather::column_pointers::{ColumnPointers, Token};
use crate::table::gather::prefetch::prefetch_line;
use crate::table::gather::symmetry::{self, SymmetryKey};
use crate::table::rows::element::ElementType;
use crate::table::rows::step_column::StepColumn;
use crate::table::rows::threads::cores;
use smallvec::SmallVec;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Mutex;

/// The prefetch distance in rows.
const AHEAD: usize = 128;
/// The number of boards that are turned together.
const BLOCK: usize = symmetry::BLOCK;
/// The number of rows whose extra columns are copied together, a multiple of `BLOCK`. The lines of that many rows,
/// 128 KiB, are still in the second-level cache.
const SECTION: usize = 2048;
/// The number of rows per thread. Waking a thread takes as long as gathering thousands of rows.
const PARALLEL: usize = 1 << 15;
/// The number of bytes per thread, for wide columns.
const PARALLEL_BYTES: usize = 8 << 20;
/// The maximum number of threads of one gather. Memory serves no more at full speed.
const MAX_THREADS: usize = 8;

/// Rows of equal size, one after the other, and the attached columns.
#[derive(Clone, Copy)]
pub(in crate::table) struct TableRows<'a> {
    pub(in crate::table) bytes: &'a [u8],
    pub(in crate::table) stride: usize,
    pub(in crate::table) attached: &'a [AttachedColumn],
}

/// The symmetries that turn the rows: their key, and each row's number under the key.
pub(in crate::table) type RowSymmetries<'a> = Option<(SymmetryKey, &'a [u64])>;

/// The rows that one thread gathers. The caller has checked the indices.
#[derive(Clone, Copy)]
struct GatherPart<'a> {
    rows: TableRows<'a>,
    indices: &'a [u64],
    schema: &'a BatchSchema,
    /// The key of the symmetries, and each row's number under the key.
    turns: (SymmetryKey, &'a [u64]),
}

/// Fills columns with the rows at `indices`, turned by `symmetries`.
///
/// # Panics
/// If an index is out of bounds or a column is too short. The caller has checked both.
pub(in crate::table) fn gather(
    rows: TableRows<'_>,
    indices: &[u64],
    schema: &BatchSchema,
    columns: ColumnBuffers<'_>,
    symmetries: RowSymmetries<'_>,
) {
    let num_bytes = if schema.has_attached { indices.len() * schema.width() } else { 0 };
    let num_threads = (indices.len() / PARALLEL).max(num_bytes / PARALLEL_BYTES).min(MAX_THREADS);
    // Querying the number of cores costs several system calls, so a small gather does not do it.
    if num_threads < 2 || cores() < 2 {
        return gather_part(Level::widest(), rows, indices, schema, columns, symmetries);
    }
    let num_threads = num_threads.min(cores());
    let part = indices.len().div_ceil(num_threads);
    let mut rest = columns;
    let parts = indices.chunks(part).enumerate().map(|(k, indices)| {
        let symmetries = symmetries.map(|(key, ids)| (key, &ids[k * part..][..indices.len()]));
        (indices, schema.split_front(&mut rest, indices.len()), symmetries)
    });
    let parts = Mutex::new(parts.collect::<SmallVec<[_; MAX_THREADS]>>());
    let next = || lock(&parts).pop();
    workers::side_by_side(num_threads, || {
        while let Some((indices, columns, symmetries)) = next() {
            gather_part(Level::widest(), rows, indices, schema, columns, symmetries);
        }
    });
}

pub(in crate::table) fn gather_part(
    level: Level,
    rows: TableRows<'_>,
    indices: &[u64],
    schema: &BatchSchema,
    columns: ColumnBuffers<'_>,
    symmetries: RowSymmetries<'_>,
) {
    rows.check(indices);
    if let Some((_, ids)) = symmetries {
        assert!(ids.len() == indices.len(), "a number for every row");
    }
    // Choose the type of tokens, and whether to turn boards, once here instead of in the loop over rows.
    let part = GatherPart { rows, indices, schema, turns: symmetries.unwrap_or((SymmetryKey::NONE, indices)) };
    match (schema.tokens, symmetries.is_some()) {
        (ElementType::Int32, false) => shape::<i32, false>(level, part, columns),
        (ElementType::Int64, false) => shape::<i64, false>(level, part, columns),
        (_, false) => shape::<u8, false>(level, part, columns),
        (ElementType::Int32, true) => shape::<i32, true>(level, part, columns),
        (ElementType::Int64, true) => shape::<i64, true>(level, part, columns),
        (_, true) => shape::<u8, true>(level, part, columns),
    }
}

/// Selects the code for all step columns, which is the usual case, or for some of them.
fn shape<T: Token, const TURN: bool>(level: Level, part: GatherPart<'_>, columns: ColumnBuffers<'_>) {
    match part.schema.has_all_of_step {
        true => level.run(Gather::<T, TURN, true>(part, columns, PhantomData)),
        false => level.run(Gather::<T, TURN, false>(part, columns, PhantomData)),
    }
}

/// The gather of a part, with tokens of type `T`.
struct Gather<'a, 'b, T, const TURN: bool, const ALL: bool>(GatherPart<'a>, ColumnBuffers<'b>, PhantomData<T>);

impl<T: Token, const TURN: bool, const ALL: bool> Loop for Gather<'_, '_, T, TURN, ALL> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        gather_blocks::<T, TURN, ALL>(self.0, self.1);
    }
}

/// Gathers the rows of a part.
#[inline(always)]
fn gather_blocks<T: Token, const TURN: bool, const ALL: bool>(part: GatherPart<'_>, mut columns: ColumnBuffers<'_>) {
    let GatherPart { rows, indices, schema, turns } = part;
    if let Some(steps) = rows.bare_steps().filter(|_| ALL && !TURN && !schema.has_more_than_steps()) {
        return gather_steps(steps, indices, &ColumnPointers::<T>::new(schema, &mut columns, indices.len()));
    }
    for &index in indices.iter().take(AHEAD) {
        rows.prefetch(index);
    }
    for start in (0..indices.len()).step_by(SECTION) {
        let end = indices.len().min(start + SECTION);
        let out = ColumnPointers::<T>::new(schema, &mut columns, indices.len());
        assert!(!ALL || out.has_all(), "a schema of all columns has them");
        for first in (start..end).step_by(BLOCK) {
            let chunk = &indices[first..end.min(first + BLOCK)];
            let (mut boards, mut symmetries) = ([Board(0); BLOCK], [0; BLOCK]);
            if TURN {
                let mut ids = [0; BLOCK];
                ids[..chunk.len()].copy_from_slice(&turns.1[first..][..chunk.len()]);
                for k in 0..chunk.len() {
                    boards[k] = rows.step(chunk[k]).board;
                }
                turns.0.turn_boards(&ids, &mut boards, &mut symmetries);
            }
            for (i, &index) in chunk.iter().enumerate() {
                rows.prefetch_after(indices, first + i);
                let mut step = rows.step(index);
                if TURN {
                    symmetry::turn(symmetries[i], boards[i], &mut step);
                }
                #[allow(unsafe_code)]
                // SAFETY: every column has room for one value per index, and `has_all` was asserted for `ALL`.
                unsafe {
                    out.put::<ALL>(first + i, &step);
                }
            }
        }
        if schema.has_extras {
            for (spec, column) in schema.columns.iter().zip(&mut columns) {
                let out = &mut column[start * spec.width()..end * spec.width()];
                copy_extra(rows, &indices[start..end], spec, out);
            }
        }
        if let Some(offset) = schema.mask_offset {
            put_masks::<T>(rows, indices, start..end, schema, offset, &mut columns, TURN.then_some(turns));
        }
        if schema.has_attached {
            for (spec, column) in schema.columns.iter().zip(&mut columns) {
                if let ColumnSource::Attached(number) = spec.source {
                    let out = &mut column[start * spec.width()..end * spec.width()];
                    rows.attached[number].gather(indices, start..end, out);
                }
            }
        }
    }
}

/// Gathers all columns of a step from rows without other columns, which is the usual case, at indices that the caller
/// has checked.
#[inline(always)]
fn gather_steps<T: Token>(steps: &[Step], indices: &[u64], out: &ColumnPointers<'_, T>) {
    assert!(out.has_all() && out.num_rows() >= indices.len(), "columns for every value");
    let prefetch = |index: u64| prefetch_line(steps.as_ptr().wrapping_add(index as usize).cast());
    indices.iter().take(AHEAD).for_each(|&index| prefetch(index));
    #[allow(unsafe_code)]
    // SAFETY: the caller checked every index against `steps.len()`. The assertion above checked the columns and their
    // room. `i` is below `indices.len()`.
    let put = |i: usize, index: u64| unsafe { out.put::<true>(i, steps.get_unchecked(index as usize)) };
    for (i, ahead) in indices.windows(AHEAD + 1).enumerate() {
        prefetch(ahead[AHEAD]);
        put(i, ahead[0]);
    }
    for (i, &index) in indices.iter().enumerate().skip(indices.len().saturating_sub(AHEAD)) {
        put(i, index);
    }
}

/// Returns whether all indices are below `len`. `len` must be below 2^63.
pub(in crate::table) fn are_below(indices: &[u64], len: u64) -> bool {
    // For an index below 2^63, the top bit of `last - index` is set exactly if the index exceeds `last`. A larger index
    // has its own top bit set. SSE2 and AVX2 lack unsigned comparisons of 64 bits.
    let last = len.wrapping_sub(1);
    let signs = indices.iter().fold(0, |signs, &index| signs | index | last.wrapping_sub(index));
    signs >> 63 == 0
}

impl<'a> TableRows<'a> {
    /// # Panics
    /// If an index is out of bounds. One pass over the indices is cheaper than a check per row in the loop.
    fn check(self, indices: &[u64]) {
        assert!(are_below(indices, (self.bytes.len() / self.stride) as u64), "indices of rows");
    }

    /// Returns the rows as steps, if they have no other columns.
    fn bare_steps(self) -> Option<&'a [Step]> {
        bytemuck::try_cast_slice(self.bytes).ok().filter(|_| self.stride == STEP_SIZE)
    }

    pub(in crate::table) fn at(self, index: u64) -> &'a [u8] {
        &self.bytes[index as usize * self.stride..][..self.stride]
    }

    #[inline(always)]
    fn pointer(self, index: u64) -> *const u8 {
        self.bytes.as_ptr().wrapping_add(index as usize * self.stride)
    }

    /// Reads the step at an index that was checked.
    #[inline(always)]
    fn step(self, index: u64) -> Step {
        debug_assert!((index as usize) < self.bytes.len() / self.stride);
        #[allow(unsafe_code)]
        // SAFETY: every caller has checked the index, a row is at least as large as a step, and any bytes are a
        // valid step.
        unsafe {
            self.pointer(index).cast::<Step>().read_unaligned()
        }
    }

    /// Prefetches the row `AHEAD` places after place `k`.
    #[inline(always)]
    fn prefetch_after(self, indices: &[u64], k: usize) {
        if let Some(&index) = indices.get(k + AHEAD) {
            self.prefetch(index);
        }
    }

    /// Prefetches a row's cache lines.
    #[inline(always)]
    fn prefetch(self, index: u64) {
        let row = self.pointer(index);
        prefetch_line(row);
        if self.stride > STEP_SIZE {
            prefetch_line(row.wrapping_add(self.stride - 1));
        }
    }
}

/// Corrects the rows that have a tile of 65,536: their tokens, and their masks if the rows are turned.
#[inline(never)]
fn put_masks<T: Token>(
    rows: TableRows<'_>,
    indices: &[u64],
    places: Range<usize>,
    schema: &BatchSchema,
    offset: usize,
    columns: &mut ColumnBuffers<'_>,
    turns: Option<(SymmetryKey, &[u64])>,
) {
    for place in places {
        let mask: u16 = bytemuck::pod_read_unaligned(&rows.at(indices[place])[offset..][..2]);
        // A mask that does not fit its board has no effect.
        let board = rows.step(indices[place]).board;
        let Some(board) = WideBoard::new(board, mask).ok().filter(|_| mask != 0) else { continue };
        let board = turns.map_or(board, |(key, ids)| board.transform(key.symmetry_of(ids[place])));
        for (spec, column) in schema.columns.iter().zip(columns.iter_mut()) {
            let out = &mut column[place * spec.width()..][..spec.width()];
            match spec.source {
                ColumnSource::Step(StepColumn::Tokens) => {
                    out.copy_from_slice(bytemuck::cast_slice(&T::of_exps(board.exps())));
                }
                ColumnSource::Extra(at) if at == offset => {
                    out.copy_from_slice(bytemuck::bytes_of(&board.tile_65536_mask()));
                }
                _ => {}
            }
        }
    }
}

/// Copies an extra column from rows that are still in the cache.
#[inline(always)]
fn copy_extra(rows: TableRows<'_>, indices: &[u64], spec: &ColumnSpec, out: &mut [u8]) {
    let ColumnSource::Extra(offset) = spec.source else { return };
    match spec.width() {
        1 => copy::<1>(rows, indices, offset, out),
        2 => copy::<2>(rows, indices, offset, out),
        4 => copy::<4>(rows, indices, offset, out),
        8 => copy::<8>(rows, indices, offset, out),
        16 => copy::<16>(rows, indices, offset, out),
        width => {
            for (&index, out) in indices.iter().zip(out.chunks_exact_mut(width)) {
                out.copy_from_slice(&rows.at(index)[offset..][..width]);
            }
        }
    }
}

#[inline(always)]
fn copy<const N: usize>(rows: TableRows<'_>, indices: &[u64], offset: usize, out: &mut [u8]) {
    for (&index, out) in indices.iter().zip(out.as_chunks_mut::<N>().0) {
        out.copy_from_slice(&rows.at(index)[offset..][..N]);
    }
}
