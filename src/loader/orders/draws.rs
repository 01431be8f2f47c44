//! Independent draws: random words, and their reduction to a range.

use crate::system::random::mix;

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
