//! The heap memory of batches: aligned, and zeroed without touching its pages.

use crate::error::{Error, ErrorKind, Result};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Zeroed heap memory. The system provides each page on the first write.
pub(super) struct Zeroed {
    /// The allocation. The bytes begin in it at a multiple of [`Zeroed::ALIGN`].
    allocation: NonNull<u8>,
    layout: Layout,
    start: usize,
}

// SAFETY: this value alone owns the allocation and writes to it only through `&mut`.
#[allow(unsafe_code)]
unsafe impl Send for Zeroed {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Zeroed {}

#[allow(unsafe_code)]
impl Zeroed {
    /// The alignment of the bytes.
    pub(super) const ALIGN: usize = 64;

    /// Allocates `len` bytes.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`].
    pub(super) fn new(len: usize) -> Result<Zeroed> {
        let failed = || Error::from(ErrorKind::OutOfMemory { needed: len as u64 });
        // With a larger alignment, the allocator would write the zeros itself and touch all pages.
        let usual = align_of::<u128>();
        let size = len.checked_add(Zeroed::ALIGN).ok_or_else(failed)?;
        let layout = Layout::from_size_align(size, usual).map_err(|_| failed())?;
        // SAFETY: the size is not zero.
        let allocation = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(failed)?;
        let start = allocation.as_ptr().align_offset(Zeroed::ALIGN).min(Zeroed::ALIGN);
        Ok(Zeroed { allocation, layout, start })
    }

    fn len(&self) -> usize {
        self.layout.size() - Zeroed::ALIGN
    }

    /// Returns a pointer to the first byte. Only the exclusive owner of this value may write through the pointer.
    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.allocation.as_ptr().wrapping_add(self.start)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: `start` is at most `ALIGN`, so at least `len` initialized bytes of the allocation follow it.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len()) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` proves that nothing else borrows them.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.len()) }
    }
}

impl Drop for Zeroed {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: `new` allocated the memory with this layout.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) }
    }
}

impl AsRef<[u8]> for Zeroed {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}
