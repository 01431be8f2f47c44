//! A keyed permutation of `0..n`. It is computed, or stored if `n` is small.
//!
//! Below 65,536 values the permutation is stored, with two bytes per value. The Fisher–Yates algorithm shuffles
//! it with 32-bit random words of keyed BLAKE3, so all orders are nearly equally likely.
//!
//! Larger permutations store only their keys. Any position can be mapped directly, so an epoch begins, seeks and
//! resumes in constant time. The construction is the generalized Feistel cipher with cycle walking of Black and
//! Rogaway, *Ciphers with Arbitrary Finite Domains* (CT-RSA 2002):
//!
//! * The domain is `a × b` with `a = ⌈√n⌉` and `b = ⌈n / a⌉`: a number `x` is the pair `(x mod a, ⌊x / a⌋)`.
//! * A round maps `(l, r)` to `(r, (l + F(r)) mod m)`, where `m` is `a` and `b` in turn. It is a bijection for any `F`.
//! * At most `a - 1` of the `a × b` numbers are not below `n`. Such a number is mapped again until it is below `n`. On
//!   average this costs less than `1 / b` of a mapping.
//!
//! `F` is a keyed 32-bit integer hash: multiply-xorshift with the constants that Chris Wellons found by search
//! (`lowbias32` of hash-prospector), scaled to the modulus by multiplication. This is for shuffling, not for secrecy.
//!
//! If `a` and `b` are odd, each round is an even permutation of the grid, and so is the result. So odd squares `n`
//! only have even orders. Detecting the parity of an order takes all of its values.

use crate::error::{Error, Result};
use crate::system::machine::filled;
use std::sync::Arc;

/// A permutation of `0..n`, one for each `(n, seed, epoch)`, the same on every machine.
///
/// ```
/// use a2store::loader::Permutation;
/// let permutation = Permutation::new(1_000_000_000, 7, 0)?;
/// let first = permutation.get(0).unwrap();
/// assert!(first < 1_000_000_000);
/// assert_ne!(Permutation::new(1_000_000_000, 7, 1)?.get(0), Some(first));
/// assert_eq!(permutation.get(1_000_000_000), None);
/// # Ok::<(), a2store::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Permutation {
    /// The length of the domain.
    pub(in crate::loader) n: u64,
    /// The moduli of the left and the right half.
    a: u32,
    b: u32,
    keys: [u32; ROUNDS],
    /// All values, if `n` is small.
    stored: Option<Arc<[u16]>>,
}

const ROUNDS: usize = 8;
/// Permutations of fewer values than this are stored. With so few values, round functions would make some
/// orders more frequent than others, and half of all orders impossible.
const FEW: u64 = 1 << 16;
/// The maximum length. The halves and their products fit their integer types up to here.
const MAX_LEN: u64 = 1 << 62;
/// The number of positions that are mapped together. With this many, the compiler keeps the loops and
/// vectorizes them.
const LANES: usize = 64;

impl Permutation {
    /// Returns the permutation of `0..n` for an epoch of a seed. From 65,536 values on it takes constant time
    /// and memory. Below that it takes at most 128 KiB, which clones share.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if `n` exceeds 2^62, and
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory) if the allocation fails.
    pub fn new(n: u64, seed: u64, epoch: u64) -> Result<Permutation> {
        Permutation::keyed(n, &[seed, epoch])
    }

    /// Returns the permutation of `0..n` for a key of any length.
    pub(in crate::loader) fn keyed(n: u64, key: &[u64]) -> Result<Permutation> {
        Error::check_range("n", 0..=MAX_LEN, n)?;
        let root = n.isqrt();
        let a = (root + u64::from(root * root < n)).max(1);
        let b = n.div_ceil(a).max(1);
        let mut hasher = blake3::Hasher::new_derive_key("a2store 2026 loader permutation");
        for part in std::iter::once(&n).chain(key) {
            hasher.update(&part.to_le_bytes());
        }
        let mut random = hasher.finalize_xof();
        if n < FEW {
            let stored = Some(shuffled(n as u16, &mut random)?.into());
            return Ok(Permutation { n, a: a as u32, b: b as u32, keys: [0; ROUNDS], stored });
        }
        let mut words = [[0; 4]; ROUNDS];
        random.fill(words.as_flattened_mut());
        let keys = words.map(u32::from_le_bytes);
        // `n` is at most 2^62, so `a` is at most 2^31, and `b` at most `a`.
        Ok(Permutation { n, a: a as u32, b: b as u32, keys, stored: None })
    }

    /// Returns the value at a position; `None` from `n` on.
    #[must_use]
    pub fn get(&self, position: u64) -> Option<u64> {
        let mut out = [0];
        (position < self.n).then(|| {
            self.fill(position, &mut out);
            out[0]
        })
    }

    /// Sets `out` to the values at the positions from `start` on.
    ///
    /// # Panics
    /// If the positions reach beyond `n`.
    pub fn fill(&self, start: u64, out: &mut [u64]) {
        let end = start.checked_add(out.len() as u64);
        assert!(end.is_some_and(|end| end <= self.n), "positions beyond the end of the permutation");
        if let Some(stored) = &self.stored {
            out.iter_mut().zip(&stored[start as usize..]).for_each(|(out, &value)| *out = value.into());
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            #[allow(unsafe_code)]
            // SAFETY: the processor has AVX2, the only feature that the function needs.
            return unsafe { fill_avx2(self, start, out) };
        }
        self.fill_blocks(start, out);
    }

    #[inline(always)]
    fn fill_blocks(&self, start: u64, out: &mut [u64]) {
        let a = u64::from(self.a);
        let (mut left, mut right) = ((start % a) as u32, (start / a) as u32);
        let (mut lefts, mut rights) = ([0; LANES], [0; LANES]);
        for out in out.chunks_mut(LANES) {
            for (l, r) in lefts.iter_mut().zip(&mut rights) {
                (*l, *r) = (left, right);
                left += 1;
                if left == self.a {
                    (left, right) = (0, right + 1);
                }
            }
            self.rounds(&mut lefts, &mut rights);
            for ((out, &l), &r) in out.iter_mut().zip(&lefts).zip(&rights) {
                *out = u64::from(r) * a + u64::from(l);
            }
            for out in out.iter_mut().filter(|out| **out >= self.n) {
                *out = self.walk(*out);
            }
        }
    }

    /// Maps a number outside of `0..n` until it is inside.
    #[cold]
    fn walk(&self, mut x: u64) -> u64 {
        let a = u64::from(self.a);
        while x >= self.n {
            let (mut left, mut right) = ([(x % a) as u32], [(x / a) as u32]);
            self.rounds(&mut left, &mut right);
            x = u64::from(right[0]) * a + u64::from(left[0]);
        }
        x
    }

    #[inline(always)]
    fn rounds<const N: usize>(&self, left: &mut [u32; N], right: &mut [u32; N]) {
        // Rounds come in pairs, so each half ends on its original side, and nothing is swapped.
        for keys in self.keys.as_chunks::<2>().0 {
            for lane in 0..N {
                left[lane] = add_mod(left[lane], scale(hash(right[lane] ^ keys[0]), self.a), self.a);
            }
            for lane in 0..N {
                right[lane] = add_mod(right[lane], scale(hash(left[lane] ^ keys[1]), self.b), self.b);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn fill_avx2(permutation: &Permutation, start: u64, out: &mut [u64]) {
    permutation.fill_blocks(start, out);
}

/// Returns the values below `n` in an order that the random words determine.
fn shuffled(n: u16, random: &mut blake3::OutputReader) -> Result<Vec<u16>> {
    // The number of words drawn at once, which fit the buffer.
    const WORDS: usize = 512;
    let mut values = filled(usize::from(n), 0)?;
    let mut bytes = [0; 4 * WORDS];
    for first in (0..values.len()).step_by(WORDS) {
        random.fill(&mut bytes);
        let last = values.len().min(first + WORDS);
        for (k, word) in (first..last).zip(bytes.as_chunks::<4>().0) {
            // This is the inside-out shuffle: a new value takes a random place, and the previous value of that
            // place moves to the end. With 32-bit draws, the probabilities of two places differ by at most 1 in
            // 65,536.
            let place = scale(u32::from_le_bytes(*word), k as u32 + 1) as usize;
            values[k] = values[place];
            values[place] = k as u16;
        }
    }
    Ok(values)
}

/// Returns the hash `lowbias32`.
#[inline(always)]
fn hash(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x7feb_352d);
    x ^= x >> 15;
    x = x.wrapping_mul(0x846c_a68b);
    x ^ x >> 16
}

/// Returns a number below `m` from all bits of `x`.
#[inline(always)]
fn scale(x: u32, m: u32) -> u32 {
    ((u64::from(x) * u64::from(m)) >> 32) as u32
}

/// Returns `x + y` modulo `m`. Both are below `m`, which is at most 2^31.
#[inline(always)]
fn add_mod(x: u32, y: u32, m: u32) -> u32 {
    let sum = x + y;
    // If the sum is below `m`, the difference wraps around to a larger number.
    sum.min(sum.wrapping_sub(m))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(n: u64, seed: u64, epoch: u64) -> Vec<u64> {
        let mut out = vec![0; n as usize];
        Permutation::new(n, seed, epoch).unwrap().fill(0, &mut out);
        out
    }

    #[test]
    fn is_a_bijection_for_every_small_length() {
        for n in (0..300).chain([1000, 4095, 4096, 4097, 65_535, 65_536, 65_537, 999_983]) {
            let mut values = all(n, n ^ 5, 3);
            values.sort_unstable();
            assert!(values.iter().copied().eq(0..n), "{n}");
        }
    }

    #[test]
    fn maps_the_same_from_any_start() {
        for n in [10_007, 100_003] {
            let values = all(n, 1, 2);
            let permutation = Permutation::new(n, 1, 2).unwrap();
            for start in [0, 1, 15, 16, 17, 5_000, n - 1] {
                for len in [0, 1, 7, 16, 33] {
                    let len = len.min((n - start) as usize);
                    let mut out = vec![0; len];
                    permutation.fill(start, &mut out);
                    assert_eq!(out, values[start as usize..][..len]);
                }
                assert_eq!(permutation.get(start), Some(values[start as usize]));
            }
            assert_eq!(permutation.get(n), None);
        }
    }

    #[test]
    fn is_the_same_on_every_processor() {
        for n in [65_536, 1 << 20, 10_000_000_007] {
            let permutation = Permutation::new(n, 3, 4).unwrap();
            let (mut best, mut portable) = (vec![0; 1000.min(n as usize)], vec![0; 1000.min(n as usize)]);
            permutation.fill(n - best.len() as u64, &mut best);
            permutation.fill_blocks(n - portable.len() as u64, &mut portable);
            assert_eq!(best, portable);
        }
    }

    /// The values are part of the format of a loader's state: resumed training must meet the same order.
    #[test]
    fn values_are_pinned() {
        let permutation = Permutation::new(1_000_000_007, 42, 9).unwrap();
        let mut out = [0; 4];
        permutation.fill(123_456_789, &mut out);
        assert_eq!(out, [48_699_733, 70_026_639, 822_614_514, 221_204_434]);
    }

    /// The same for stored permutations. It also fixes how words are drawn.
    #[test]
    fn stored_permutations_follow_the_random_words() {
        for n in [0, 1, 2, 9, 511, 512, 513, 1025, 65_535] {
            let mut hasher = blake3::Hasher::new_derive_key("a2store 2026 loader permutation");
            for part in [n, 6_u64, 7] {
                hasher.update(&part.to_le_bytes());
            }
            let mut random = hasher.finalize_xof();
            let mut values = Vec::new();
            for k in 0..n {
                let mut word = [0; 4];
                random.fill(&mut word);
                let place = (u64::from(u32::from_le_bytes(word)) * (k + 1)) >> 32;
                values.push(k);
                values.swap(place as usize, k as usize);
            }
            assert_eq!(all(n, 6, 7), values, "{n}");
        }
    }

    #[test]
    fn reaches_the_largest_lengths() {
        for n in [MAX_LEN, MAX_LEN - 1, (1 << 40) + 12345] {
            let permutation = Permutation::new(n, 0, 0).unwrap();
            let mut out = [0; 100];
            permutation.fill(n - 100, &mut out);
            assert!(out.iter().all(|&x| x < n));
            let distinct: std::collections::HashSet<_> = out.iter().collect();
            assert_eq!(distinct.len(), 100);
        }
        assert!(Permutation::new(MAX_LEN + 1, 0, 0).is_err());
    }

    /// χ² of positions against values in 16 × 16 cells, over seeds and epochs; five standard deviations either
    /// way.
    #[test]
    fn positions_and_values_are_independent() {
        for (seed, epoch) in [(0, 0), (0, 1), (1, 0), (u64::MAX, 12)] {
            let n = 1 << 16;
            let mut counts = [[0f64; 16]; 16];
            for (position, value) in all(n, seed, epoch).into_iter().enumerate() {
                counts[position >> 12][value as usize >> 12] += 1.0;
            }
            let expected = n as f64 / 256.0;
            let chi2: f64 = counts.iter().flatten().map(|count| (count - expected).powi(2) / expected).sum();
            // A permutation fixes the margins, which leaves 15 × 15 degrees of freedom: 225 ± 21.
            assert!((120.0..330.0).contains(&chi2), "seed {seed}, epoch {epoch}: {chi2}");
        }
    }

    #[test]
    fn epochs_and_seeds_agree_as_rarely_as_chance() {
        let n = 100_000;
        let first = all(n, 3, 0);
        for (seed, epoch) in [(3, 1), (4, 0), (4, 1)] {
            let same = first.iter().zip(all(n, seed, epoch)).filter(|(a, b)| **a == *b).count();
            // Poisson with mean 1.
            assert!(same < 10, "{same}");
        }
    }
}
