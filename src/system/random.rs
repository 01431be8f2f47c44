//! Random ids from the system's generator, and a hash of integers.

use crate::system::clock;

#[cfg(test)]
thread_local! {
    static SEED: std::cell::Cell<Option<u64>> = const { std::cell::Cell::new(None) };
}

/// Makes the ids of this thread depend on a seed.
#[cfg(test)]
pub(crate) fn set_seed(seed: u64) {
    SEED.set(Some(seed));
}

/// Returns a unique id: 128 random bits in hexadecimal. Without a random generator, the clock makes the id unique.
#[must_use]
pub fn id() -> String {
    #[cfg(test)]
    if let Some(seed) = SEED.get() {
        SEED.set(Some(mix(seed.wrapping_add(1))));
        return format!("{:016x}{:016x}", mix(seed), mix(!seed));
    }
    let mut bytes = [0; 16];
    if getrandom::fill(&mut bytes).is_err() {
        bytes = u128::from(clock::now().timestamp_micros().unsigned_abs()).to_le_bytes();
    }
    format!("{:032x}", u128::from_le_bytes(bytes))
}

/// Returns a hash of an integer: SplitMix64's finalizer (Steele, Lea and Flood, *Fast Splittable Pseudorandom Number
/// Generators*, OOPSLA 2014) with Stafford's variant 13 of its constants.
#[inline(always)]
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
