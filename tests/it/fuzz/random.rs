//! The random number generator SplitMix64 (Steele, Lea and Flood 2014).

use std::ops::Range;

#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// Creates the generator of one execution, independent of earlier ones.
    pub(super) fn new(seed: u64, iteration: u64) -> Random {
        let mut random = Random(seed);
        let start = random.next();
        let mut random = Random(start ^ iteration);
        Random(random.next())
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// Returns a range within `0..len`, usually a short one.
    pub(super) fn range(&mut self, len: usize) -> Range<usize> {
        let start = self.below(len);
        let most = match self.below(4) {
            0 => len - start,
            1 => 64,
            _ => 9,
        };
        start..start + self.below(most.min(len - start) + 1)
    }

    /// Returns true with probability `1 / times`.
    pub(super) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
