//! Loops that are compiled for several widths of registers.
//!
//! Loops for arithmetic are faster in wider registers. Lookups in tables become slower there, because the compiler uses
//! gather instructions.

use smallvec::SmallVec;

/// The instruction set of compiled code. A value exists only if the processor has the instructions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level(Instructions);

#[derive(Clone, Copy, Debug)]
enum Instructions {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// A loop that [`Level::run`] runs. If `run` is not inlined, the loop is not compiled for wider registers. The compiler
/// inlines a method with `#[inline(always)]`, but may call the body of a closure.
pub(crate) trait Loop {
    type Output;

    fn run(self) -> Self::Output;
}

impl<R, F: FnOnce() -> R> Loop for F {
    type Output = R;

    #[inline(always)]
    fn run(self) -> R {
        self()
    }
}

impl Level {
    /// The target's baseline: SSE2 on x86-64, NEON on AArch64.
    pub(crate) const PORTABLE: Level = Level(Instructions::Portable);

    /// Returns the levels that this processor has, the widest last.
    pub(crate) fn all() -> SmallVec<[Level; 3]> {
        #[cfg(target_arch = "x86_64")]
        let has_avx2 = is_x86_feature_detected!("avx2");
        let levels = [
            (Instructions::Portable, true),
            #[cfg(target_arch = "x86_64")]
            (Instructions::Avx2, has_avx2),
            #[cfg(target_arch = "x86_64")]
            (
                Instructions::Avx512,
                has_avx2
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl"),
            ),
        ];
        levels.into_iter().filter(|(_, is_available)| *is_available).map(|(level, _)| Level(level)).collect()
    }

    /// Returns the level with the widest registers that this processor has.
    pub(crate) fn widest() -> Level {
        Level::all().last().copied().unwrap_or(Level::PORTABLE)
    }

    /// Runs a loop that is compiled for this level.
    #[inline(always)]
    pub(crate) fn run<L: Loop>(self, rows: L) -> L::Output {
        #[cfg(target_arch = "x86_64")]
        #[allow(unsafe_code)]
        match self.0 {
            // SAFETY: the level exists, so the processor has all features that the function needs.
            Instructions::Avx512 => return unsafe { in_avx512(rows) },
            // SAFETY: as above.
            Instructions::Avx2 => return unsafe { in_avx2(rows) },
            Instructions::Portable => {}
        }
        rows.run()
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn in_avx2<L: Loop>(rows: L) -> L::Output {
    rows.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
fn in_avx512<L: Loop>(rows: L) -> L::Output {
    rows.run()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Mix<'a>(&'a [u64]);

    impl Loop for Mix<'_> {
        type Output = Vec<u32>;

        #[inline(always)]
        fn run(self) -> Vec<u32> {
            self.0.iter().map(|&board| (board.min(!board) ^ board << 5) as u32).collect()
        }
    }

    #[test]
    fn all_levels_agree() {
        let boards: Vec<u64> = (0..1000_u64).map(|k| k.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let expected = Mix(&boards).run();
        for level in Level::all() {
            assert_eq!(level.run(Mix(&boards)), expected, "{level:?}");
        }
    }
}
