//! Independent draws of rows, uniform or in proportion to their weights, in constant time per draw.
//!
//! Weighted draws use the alias method (Walker 1977, Vose 1991). It has one bucket per row, all of equal share. A
//! bucket belongs to its row up to a threshold, and to one other row above it. A draw picks a bucket and then one of
//! its two rows. Two sweeps over the weights fill the buckets without further memory (Hübschle-Schneider and
//! Sanders, *Parallel Weighted Random Sampling*, ESA 2019, section 3.1).

use crate::error::{Error, Result};
use crate::loader::orders::extra_column::{check_at, extra_column};
use crate::system::cancellation::CancellationToken;
use crate::system::machine::reserve;
use crate::system::random::mix;
use crate::table::StepTable;

/// Independent random words, one per position: SplitMix64, see [`mix`]. Its state is a counter, so any position can be
/// computed directly.
#[derive(Clone, Copy, Debug)]
pub(in crate::loader) struct Draws(u64);

impl Draws {
    pub(in crate::loader) fn new(seed: u64, epoch: u64) -> Draws {
        let mut hasher = blake3::Hasher::new_derive_key("a2store 2026 loader draws");
        hasher.update(&seed.to_le_bytes()).update(&epoch.to_le_bytes());
        let mut key = [0; 8];
        hasher.finalize_xof().fill(&mut key);
        Draws(u64::from_le_bytes(key))
    }

    /// Sets `out` to the words at the positions from `start` on.
    pub(in crate::loader) fn fill(self, start: u64, out: &mut [u64]) {
        for (slot, position) in out.iter_mut().zip(start..) {
            *slot = mix(self.0.wrapping_add(position.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        }
    }
}

/// Returns a number below `n` from all bits of `word`.
#[inline(always)]
pub(in crate::loader) fn scale(word: u64, n: u64) -> u64 {
    ((u128::from(word) * u128::from(n)) >> 64) as u64
}

/// The buckets of all rows, eight bytes each.
#[derive(Debug)]
pub(in crate::loader) struct AliasTable {
    buckets: Vec<Bucket>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// The own row's share of the bucket in units of 2^-32. The rest belongs to the other row.
    threshold: u32,
    other: u32,
}

/// The prefetch distance, in buckets.
const AHEAD: usize = 32;

impl AliasTable {
    /// Reads the weights in a table's column: finite numbers of at least 0, with a positive sum.
    pub(in crate::loader) fn new(table: &StepTable, column: &str, cancel: &CancellationToken) -> Result<AliasTable> {
        let extra = extra_column(table, "weights", column)?;
        if extra.categories.is_some() {
            return Err(Error::argument("weights", "a column of numbers", format!("{column}, a column of strings")));
        }
        let num_rows = table.num_rows();
        if num_rows > u64::from(u32::MAX) {
            return Err(Error::argument("weights", format!("a table of at most {} rows", u32::MAX), num_rows));
        }
        let dtype = extra.dtype;
        let weights = || table.extra_bytes(extra).map(move |bytes| dtype.to_f64(bytes));
        let (mut sum, mut correction) = (0.0, 0.0);
        for (row, weight) in (0..).zip(weights()) {
            check_at(row, cancel)?;
            if !(0.0..f64::INFINITY).contains(&weight) {
                return Err(Error::column(column, Some(row), "a finite weight of at least 0", weight));
            }
            // Kahan summation is accurate enough for a billion rows.
            let term: f64 = weight - correction;
            let next = sum + term;
            correction = (next - sum) - term;
            sum = next;
        }
        if num_rows > 0 && !(sum > 0.0 && sum.is_finite()) {
            return Err(Error::column(column, None, "weights of a positive, finite sum", sum));
        }
        let mean = sum / num_rows.max(1) as f64;
        if num_rows > 0 && !mean.is_normal() {
            // Subnormal numbers have too few digits for a division.
            let expected = format!("weights of a mean of at least {:e}", f64::MIN_POSITIVE);
            return Err(Error::column(column, None, expected, format_args!("{mean:e}")));
        }
        AliasTable::of_weights(num_rows as usize, mean, weights, cancel)
    }

    /// Returns the table of `len` weights of at least 0 whose mean is `mean`.
    fn of_weights<W: Iterator<Item = f64>>(
        len: usize,
        mean: f64,
        weights: impl Fn() -> W,
        cancel: &CancellationToken,
    ) -> Result<AliasTable> {
        // By default a row keeps its whole bucket.
        let mut buckets = Vec::new();
        reserve(&mut buckets, len)?;
        buckets.extend((0..len as u32).map(|row| Bucket { threshold: u32::MAX, other: row }));
        let share = |weight: f64| (weight / mean * 2_f64.powi(32)) as u32;
        let mut light = weights().zip(0..).filter(|(weight, _)| *weight <= mean);
        let mut heavy = weights().zip(0..).filter(|(weight, _)| *weight > mean);
        let mut current: Option<(f64, u32)> = heavy.next();
        let mut count = 0;
        while let Some((rest, row)) = current {
            count += 1;
            check_at(count, cancel)?;
            if rest > mean {
                // The heavy row fills up the bucket of a light one.
                let Some((weight, lighter)) = light.next() else {
                    break;
                };
                buckets[lighter as usize] = Bucket { threshold: share(weight), other: row };
                current = Some((rest + weight - mean, row));
            } else {
                // The rest is less than its own bucket, so the next heavy row fills that bucket up.
                let next: Option<(f64, u32)> = heavy.next();
                if let Some((weight, heavier)) = next {
                    buckets[row as usize] = Bucket { threshold: share(rest), other: heavier };
                    current = Some((weight + rest - mean, heavier));
                } else {
                    current = None;
                }
            }
        }
        // Rounding may leave light rows over. A row of weight zero must still never be drawn.
        for (weight, row) in light {
            if weight == 0.0 {
                let other = current.map_or_else(|| buckets.len() as u32 - 1, |(_, row)| row);
                buckets[row as usize] = Bucket { threshold: 0, other };
            }
        }
        Ok(AliasTable { buckets })
    }

    /// Draws the rows at the positions from `start` on.
    pub(in crate::loader) fn fill(&self, draws: Draws, start: u64, out: &mut [u64]) {
        draws.fill(start, out);
        let bucket = |word: u64| scale(word, self.buckets.len() as u64) as usize;
        for k in 0..out.len() {
            if let Some(&word) = out.get(k + AHEAD) {
                crate::table::prefetch(&self.buckets, bucket(word));
            }
            let at = bucket(out[k]);
            let Bucket { threshold, other } = self.buckets[at];
            // The low bits hardly affected the choice of the bucket.
            out[k] = if (out[k] as u32) < threshold { at as u64 } else { u64::from(other) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the share of each row, summed over the buckets.
    fn shares(table: &AliasTable) -> Vec<f64> {
        let mut shares = vec![0.0; table.buckets.len()];
        for (row, bucket) in table.buckets.iter().enumerate() {
            // 2^32 - 1 stands for a whole bucket.
            let own = f64::from(bucket.threshold) / 2_f64.powi(32);
            shares[row] += own;
            shares[bucket.other as usize] += 1.0 - own;
        }
        shares
    }

    proptest! {
        #[test]
        fn every_row_has_its_share(weights in prop::collection::vec(prop_oneof![Just(0.0), 0.0..1.0, 0.0..1e6], 1..300)) {
            let sum: f64 = weights.iter().sum();
            prop_assume!(sum > 0.0);
            let mean = sum / weights.len() as f64;
            let never = CancellationToken::never();
            let table = AliasTable::of_weights(weights.len(), mean, || weights.iter().copied(), never).unwrap();
            for ((row, share), weight) in shares(&table).into_iter().enumerate().zip(&weights) {
                let expected = weight / mean;
                prop_assert!((share - expected).abs() < 1e-6 * weights.len() as f64, "row {row}: {share}, not {expected}");
                prop_assert!(*weight > 0.0 || share < 1e-9 * weights.len() as f64);
            }
        }
    }

    #[test]
    fn equal_weights_keep_their_buckets() {
        let table =
            AliasTable::of_weights(1000, 0.1, || std::iter::repeat_n(0.1, 1000), CancellationToken::never()).unwrap();
        assert!(table.buckets.iter().zip(0..).all(|(bucket, row)| bucket.other == row));
    }
}
