//! The heap memory of batches: aligned, and zeroed without touching its pages.

use crate::error::{ErrorKind, Result};

/// Zeroed heap memory. The system provides each page on the first write.
pub(in crate::table) struct Zeroed {
    /// The allocation. With a larger alignment than a word's, the allocator would write the zeros itself and touch all
    /// pages.
    words: Vec<u64>,
    /// The word at which the bytes begin, at a multiple of [`Zeroed::ALIGN`].
    start: usize,
    len: usize,
}

impl Zeroed {
    /// The alignment of the bytes.
    pub(in crate::table) const ALIGN: usize = 64;

    /// Allocates `len` bytes.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`].
    pub(in crate::table) fn new(len: usize) -> Result<Zeroed> {
        let padding = Zeroed::ALIGN / size_of::<u64>();
        let words: Vec<u64> = bytemuck::try_zeroed_vec(len.div_ceil(size_of::<u64>()) + padding)
            .map_err(|()| ErrorKind::OutOfMemory { needed: len as u64 })?;
        let start = words.as_ptr().align_offset(Zeroed::ALIGN).min(padding);
        Ok(Zeroed { words, start, len })
    }

    /// Returns a pointer to the first byte. Only the exclusive owner of this value may write through the pointer.
    pub(in crate::table) fn as_ptr(&self) -> *const u8 {
        self.words.as_ptr().wrapping_add(self.start).cast()
    }

    pub(in crate::table) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words[self.start..])[..self.len]
    }

    pub(in crate::table) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words[self.start..])[..self.len]
    }
}

impl AsRef<[u8]> for Zeroed {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}
