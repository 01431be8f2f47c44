//! The loops of all kernels, which compute one value per row.
//!
//! They index slices of equal length. The compiler calls iterator adapters instead of inlining them, unless it
//! compiles the whole crate as one unit. Loops are also compiled for wider registers, where arithmetic is two to ten
//! times faster.

/// Computes a value of each pair.
#[inline(always)]
pub(super) fn zip<A: Copy, B: Copy, U: Copy + Default>(a: &[A], b: &[B], f: impl Fn(A, B) -> U) -> Vec<U> {
    let len = a.len().min(b.len());
    let mut results = vec![U::default(); len];
    wide(|| zip_into(&a[..len], &b[..len], f, &mut results));
    results
}

#[inline(always)]
fn zip_into<A: Copy, B: Copy, U>(a: &[A], b: &[B], f: impl Fn(A, B) -> U, results: &mut [U]) {
    let len = results.len();
    let (a, b) = (&a[..len], &b[..len]);
    for i in 0..len {
        results[i] = f(a[i], b[i]);
    }
}

/// Runs a loop that is compiled for the widest registers of the processor. Every AArch64 has NEON, so there the
/// portable code uses it.
#[inline(always)]
pub(super) fn wide<R>(run: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        let has_avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        #[allow(unsafe_code)]
        // SAFETY: the processor has every feature that the called function enables.
        return unsafe { if has_avx512 { in_avx512(run) } else { in_avx2(run) } };
    }
    run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn in_avx2<R>(run: impl FnOnce() -> R) -> R {
    run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
fn in_avx512<R>(run: impl FnOnce() -> R) -> R {
    run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_widths_agree() {
        let boards: Vec<u64> = (0..1000_u64).map(|k| k.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let mix = |a: u64, b: u64| (a.min(b) ^ a << 5) as u32;
        let expected: Vec<u32> = boards.iter().map(|&board| mix(board, !board)).collect();
        let others: Vec<u64> = boards.iter().map(|board| !board).collect();
        let narrow = || {
            let mut results = vec![0; boards.len()];
            zip_into(&boards, &others, mix, &mut results);
            results
        };
        assert_eq!(zip(&boards, &others, mix), expected);
        assert_eq!(narrow(), expected);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            #[allow(unsafe_code)]
            // SAFETY: the processor has AVX2.
            let found = unsafe { in_avx2(narrow) };
            assert_eq!(found, expected);
        }
        assert_eq!(zip(&boards, &others[..7], mix), expected[..7]);
    }
}
