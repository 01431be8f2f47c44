//! Functions of the EVs of the four branches: the gap between the best two, the loss of a move, and the best
//! move.
//!
//! In the loops, an absent branch is NaN, whether its EV was null or NaN.

use super::arguments::{Arguments, array};
use crate::error::Result;
use crate::run::normalize;
use crate::system::registers::Level;
use arrow::array::{Array, ArrayRef, Float32Array};
use arrow::buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{Float32Type, UInt8Type};

pub(super) fn ev_gap(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let rows = vec![(); arguments.num_rows()];
    let gaps = BranchEvs::of(arguments, 0)?.map(&rows, |[a, b, c, d], ()| {
        // Absent branches sort last. The result is NaN if fewer than two branches are present.
        let sunk = |ev: f32| if ev.is_nan() { f32::NEG_INFINITY } else { ev };
        let ((high, low), (other_high, other_low)) = (ordered(sunk(a), sunk(b)), ordered(sunk(c), sunk(d)));
        let (best, next) = ordered(high, other_high);
        let second = larger(next, larger(low, other_low));
        let present = u8::from(!a.is_nan()) + u8::from(!b.is_nan()) + u8::from(!c.is_nan()) + u8::from(!d.is_nan());
        if present < 2 { f32::NAN } else { difference(best, second) }
    });
    Ok(absent_where_nan(gaps, None))
}

pub(super) fn ev_loss(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let moves = arguments.numbers(0)?;
    let losses = BranchEvs::of(arguments, 1)?.map(&moves, |evs, direction| {
        let [up, down, left, right] = evs;
        let chosen = match direction {
            0 => up,
            1 => down,
            2 => left,
            _ => right,
        };
        difference(best(evs).0, chosen)
    });
    Ok(absent_where_nan(losses, arguments.nulls().as_ref()))
}

pub(super) fn best_move(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    /// Marks a row without any EV.
    const NONE: u8 = 4;
    let rows = vec![(); arguments.num_rows()];
    let moves = BranchEvs::of(arguments, 0)?.map(&rows, |evs, ()| {
        let (best, direction) = best(evs);
        if best.is_nan() { NONE } else { direction }
    });
    let nulls = nulls_unless(moves.len(), |row| moves[row] != NONE);
    Ok(array::<UInt8Type>(moves, nulls))
}

/// The EVs of the four branches, in the order of moves.
struct BranchEvs([ScalarBuffer<f32>; 4]);

impl BranchEvs {
    /// Returns the EVs, which begin with the argument `first`. In a call with the flag after them, they are normalized
    /// where it is true.
    fn of(arguments: &Arguments<'_>, first: usize) -> Result<BranchEvs> {
        let branch = |k| arguments.evs(first + k).map(|evs| nan_where_null(&evs));
        let evs = [branch(0)?, branch(1)?, branch(2)?, branch(3)?];
        let raw = if arguments.has_optional() { arguments.flagged(first + 4)? } else { Vec::new() };
        if raw.is_empty() {
            return Ok(BranchEvs(evs));
        }
        let mut columns = evs.map(|ev| ev.to_vec());
        for row in raw {
            let values = normalize(columns.each_ref().map(|column| column[row]));
            columns.iter_mut().zip(values).for_each(|(column, value)| column[row] = value);
        }
        Ok(BranchEvs(columns.map(ScalarBuffer::from)))
    }

    #[inline(always)]
    fn map<T: Copy, U: Copy + Default>(&self, others: &[T], f: impl Fn([f32; 4], T) -> U) -> Vec<U> {
        let mut results = vec![U::default(); others.len()];
        Level::widest().run(|| {
            let len = others.len();
            let [up, down, left, right] = &self.0;
            let (up, down, left, right) = (&up[..len], &down[..len], &left[..len], &right[..len]);
            let out = &mut results[..len];
            for i in 0..len {
                out[i] = f([up[i], down[i], left[i], right[i]], others[i]);
            }
        });
        results
    }
}

/// Returns the largest EV and the first move that has it; NaN if all branches are absent.
#[inline(always)]
fn best(evs: [f32; 4]) -> (f32, u8) {
    let [up, down, left, right] = evs;
    // Every EV is better than NaN.
    let better = |best: (f32, u8), ev, direction| if (ev > best.0) | best.0.is_nan() { (ev, direction) } else { best };
    better(better(better((up, 0), down, 1), left, 2), right, 3)
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

#[inline(always)]
fn ordered(a: f32, b: f32) -> (f32, f32) {
    if a > b { (a, b) } else { (b, a) }
}

/// Returns `a - b`, and 0 for equal infinities.
#[inline(always)]
fn difference(a: f32, b: f32) -> f32 {
    if a == b { 0.0 } else { a - b }
}

fn nan_where_null(evs: &Float32Array) -> ScalarBuffer<f32> {
    let Some(nulls) = evs.nulls().filter(|nulls| nulls.null_count() > 0) else {
        return evs.values().clone();
    };
    let mut values = vec![f32::NAN; evs.len()];
    let words = nulls.inner().bit_chunks();
    for ((chunk, evs), word) in values.chunks_mut(64).zip(evs.values().chunks(64)).zip(words.iter_padded()) {
        // Usually the same branches are present for many rows in a row.
        match word {
            u64::MAX => chunk.copy_from_slice(evs),
            0 => {}
            _ => {
                for (k, (value, &ev)) in chunk.iter_mut().zip(evs).enumerate() {
                    *value = if word >> k & 1 == 1 { ev } else { f32::NAN };
                }
            }
        }
    }
    values.into()
}

fn absent_where_nan(values: Vec<f32>, nulls: Option<&NullBuffer>) -> ArrayRef {
    let present = nulls_unless(values.len(), |row| !values[row].is_nan());
    array::<Float32Type>(values, NullBuffer::union(nulls, present.as_ref()))
}

fn nulls_unless(num_rows: usize, is_present: impl FnMut(usize) -> bool) -> Option<NullBuffer> {
    Some(NullBuffer::new(BooleanBuffer::collect_bool(num_rows, is_present))).filter(|nulls| nulls.null_count() > 0)
}
