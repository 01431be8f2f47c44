//! Prefetching cache lines before they are read.

/// The hint for the second-level cache.
#[cfg(target_arch = "x86_64")]
pub(in crate::table) const FAR_HINT: i32 = std::arch::x86_64::_MM_HINT_T1;
/// The hint for the first-level cache.
#[cfg(target_arch = "x86_64")]
pub(in crate::table) const NEAR_HINT: i32 = std::arch::x86_64::_MM_HINT_T0;
/// The hint for the second-level cache.
#[cfg(not(target_arch = "x86_64"))]
pub(in crate::table) const FAR_HINT: i32 = 2;
/// The hint for the first-level cache.
#[cfg(not(target_arch = "x86_64"))]
pub(in crate::table) const NEAR_HINT: i32 = 1;

/// Prefetches the cache line of a slice's element.
#[inline(always)]
pub(crate) fn prefetch<T>(slice: &[T], index: usize) {
    prefetch_line::<NEAR_HINT>(slice.as_ptr().wrapping_add(index).cast());
}

/// Prefetches the cache line of an address, which need not be valid.
#[inline(always)]
pub(in crate::table) fn prefetch_bytes(address: *const u8) {
    prefetch_line::<NEAR_HINT>(address);
}

/// Prefetches the cache line of an address, which need not be valid, into the cache that `HINT` names.
#[inline(always)]
#[allow(unsafe_code)]
pub(in crate::table) fn prefetch_line<const HINT: i32>(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64, and a prefetch of any address has no visible effect.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<HINT>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch of any address has no visible effect and changes no register.
    unsafe {
        match HINT {
            FAR_HINT => std::arch::asm!("prfm pldl2keep, [{}]", in(reg) address, options(nostack, preserves_flags)),
            _ => std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags)),
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
