//! The loops of all kernels, which compute one value per row.
//!
//! They index slices of equal length. The compiler calls iterator adapters instead of inlining them, unless it
//! compiles the whole crate as one unit. Loops for arithmetic are also compiled for wider registers, where they are two
//! to ten times faster. Lookups in tables become slower there, because the compiler uses gather instructions.

/// A loop that [`wide`] runs. If `run` is not inlined, the loop is not compiled for wider registers.
pub(super) trait Loop {
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

/// Runs a loop that is compiled for the registers that every processor of its kind has.
pub(super) fn narrow<L: Loop>(rows: L) -> L::Output {
    rows.run()
}

/// Runs a loop that is compiled for the widest registers of the processor. Every AArch64 has NEON, so there the
/// portable code uses it.
#[inline(always)]
pub(super) fn wide<L: Loop>(rows: L) -> L::Output {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        let has_avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        #[allow(unsafe_code)]
        // SAFETY: the processor has every feature that the called function enables.
        return unsafe { if has_avx512 { in_avx512(rows) } else { in_avx2(rows) } };
    }
    rows.run()
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
    fn all_widths_agree() {
        let boards: Vec<u64> = (0..1000_u64).map(|k| k.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let expected = narrow(Mix(&boards));
        assert_eq!(wide(Mix(&boards)), expected);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            #[allow(unsafe_code)]
            // SAFETY: the processor has AVX2.
            let found = unsafe { in_avx2(Mix(&boards)) };
            assert_eq!(found, expected);
        }
    }
}
