//! The mapping that holds a table's rows.
//!
//! Address space is reserved for the most that may come and costs nothing until it is written; at the end the rest is
//! given back and the mapping made read-only. Pages of 2 MiB are asked for, since a random row otherwise costs a walk of
//! the page tables on top of its cache line; where the system has none, all works as well, only slower.
//!
//! Saved rows are mapped from their file instead. Batches are short-lived and use [`Zeroed`] heap memory.

use super::share::Shared;
use crate::error::{Error, ErrorKind, Result};
use crate::machine::available_bytes;
use crate::process::ProcessId;
use memmap2::{Mmap, MmapMut, MmapOptions};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Mutex;

/// The size of the large pages that are asked for.
pub(super) const HUGE_PAGE: usize = 2 << 20;

/// Zeroed memory that is being filled.
pub(super) struct Region {
    map: MmapMut,
    /// Where in the mapping the first large page begins.
    start: usize,
}

/// Memory that no longer changes.
pub(super) struct FrozenRegion {
    map: Mmap,
    start: usize,
    len: usize,
    pub(super) backing: Backing,
}

/// What lies behind a mapping.
pub(super) enum Backing {
    /// The private memory of this process, until another process asks for it.
    Private(ProcessId, Mutex<Option<Shared>>),
    /// Memory that processes share.
    Shared(Shared),
    /// A file, as it was when it was mapped.
    File(FileIdentity),
}

/// Tells a file from one that took its place.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct FileIdentity {
    pub(super) path: PathBuf,
    pub(super) num_bytes: u64,
    pub(super) modified_ns: u128,
    pub(super) inode: u64,
}

impl FileIdentity {
    pub(super) fn of(path: &Path, file: &File) -> Result<FileIdentity> {
        use std::os::unix::fs::MetadataExt;
        let metadata = file.metadata().map_err(|error| Error::io(path, error))?;
        let modified = metadata.modified().map_err(|error| Error::io(path, error))?;
        let modified_ns = modified.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
        Ok(FileIdentity { path: path.into(), num_bytes: metadata.len(), modified_ns, inode: metadata.ino() })
    }

    /// Refuses another file that is where this was.
    pub(super) fn check(&self, what: &'static str, found: &FileIdentity) -> Result<()> {
        if self == found {
            return Ok(());
        }
        let name = |file: &FileIdentity| {
            format!("{} bytes, inode {}, modified at {} ns", file.num_bytes, file.inode, file.modified_ns)
        };
        Err(ErrorKind::Damaged { path: self.path.clone(), what, expected: name(self), found: name(found) }.into())
    }
}

impl Region {
    pub(super) fn reserve(num_bytes: u64) -> Result<Region> {
        let too_large = || Error::from(ErrorKind::MemoryLimit { needed: num_bytes, limit: isize::MAX as u64 });
        let len = usize::try_from(num_bytes).ok().and_then(|len| len.checked_add(HUGE_PAGE)).ok_or_else(too_large)?;
        let map = MmapOptions::new().len(len).no_reserve_swap().map_anon().map_err(|error| match error.kind() {
            std::io::ErrorKind::OutOfMemory => ErrorKind::OutOfMemory { needed: num_bytes }.into(),
            _ => Error::from(error),
        })?;
        let start = map.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE);
        #[cfg(target_os = "linux")]
        {
            // Refused where the kernel has no huge pages, which is as good as it gets there.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        Ok(Region { map, start })
    }

    /// Reserves as much memory as possible, up to the given bytes, if the needed size is unknown. The process's address
    /// space limit can be far below the system's memory.
    pub(super) fn reserve_up_to(num_bytes: u64) -> Result<(Region, u64)> {
        const LEAST: u64 = 1 << 24;
        let mut reserved = num_bytes;
        loop {
            match Region::reserve(reserved) {
                Err(error) if reserved > LEAST && matches!(error.kind(), ErrorKind::OutOfMemory { .. }) => {
                    reserved = (reserved / 2).max(LEAST);
                }
                region => return region.map(|region| (region, reserved)),
            }
        }
    }

    /// At least the reserved bytes.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        self.map.get_mut(self.start..).unwrap_or_default()
    }

    /// Gives back what lies behind `len` and makes the rest read-only.
    pub(super) fn freeze(mut self, len: usize) -> Result<FrozenRegion> {
        self.truncate(self.start + len.max(1))?;
        let backing = Backing::Private(ProcessId::current(), Mutex::new(None));
        Ok(FrozenRegion { start: self.start, map: self.map.make_read_only()?, len, backing })
    }

    #[cfg(target_os = "linux")]
    #[allow(unsafe_code)]
    fn truncate(&mut self, len: usize) -> Result<()> {
        if len < self.map.len() {
            // SAFETY: the mapping is anonymous, so no file can be shorter than it, and `&mut self` shows that nothing
            // borrows from it.
            unsafe { self.map.remap(len, memmap2::RemapOptions::new()) }?;
        }
        Ok(())
    }

    /// Elsewhere the address space stays reserved; what was not written takes no memory.
    #[cfg(not(target_os = "linux"))]
    fn truncate(&mut self, _: usize) -> Result<()> {
        Ok(())
    }
}

impl FrozenRegion {
    /// `len` bytes of a mapping from `start` on.
    #[cfg(target_os = "linux")]
    pub(super) fn new(map: Mmap, start: usize, len: usize, backing: Backing) -> FrozenRegion {
        FrozenRegion { map, start, len, backing }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.map.get(self.start..self.start + self.len).unwrap_or_default()
    }

    /// Maps `len` bytes of a file on disk from `offset` on. They must not change as long as the mapping lives; a file that is
    /// cut short meanwhile ends the process when the missing part is read (SIGBUS), as with any mapped file.
    #[allow(unsafe_code)]
    pub(super) fn of_file(file: &File, offset: u64, len: usize, identity: FileIdentity) -> Result<FrozenRegion> {
        let with_path = |error: std::io::Error| Error::io(&identity.path, error);
        let end = offset.checked_add(len as u64);
        let size = identity.num_bytes;
        if end.is_none_or(|end| end > size) {
            let error = std::io::Error::new(std::io::ErrorKind::UnexpectedEof, format!("rows end beyond byte {size}"));
            return Err(with_path(error));
        }
        if len == 0 {
            let map = MmapOptions::new().len(1).map_anon()?.make_read_only()?;
            return Ok(FrozenRegion { map, start: 0, len: 0, backing: Backing::File(identity) });
        }
        // SAFETY: that no one writes to the file while it is mapped is asked of the caller of `StepTable::load`; what is
        // read from it is plain numbers, any bits of which are valid.
        let map = unsafe { MmapOptions::new().offset(offset).len(len).map(file) }.map_err(with_path)?;
        Ok(FrozenRegion { map, start: 0, len, backing: Backing::File(identity) })
    }

    /// Brings a mapped file's pages into memory and into the page tables, where they fit, so that reading never waits.
    pub(super) fn populate(&self) {
        #[cfg(target_os = "linux")]
        if available_bytes().is_none_or(|available| (self.len as u64) < available / 2) {
            // Advice: where the kernel does not know it, pages come when they are read.
            let _ = self.map.advise(memmap2::Advice::PopulateRead);
        }
    }

    /// Says that bytes will be read soon, or that they will not be for long; for mapped files.
    #[cfg(unix)]
    pub(super) fn advise(&self, bytes: std::ops::Range<usize>, soon: bool) {
        use memmap2::{Advice, UncheckedAdvice};
        let end = bytes.end.min(self.len);
        if !matches!(self.backing, Backing::File(_)) || bytes.start >= end {
            return;
        }
        let (start, len) = (self.start + bytes.start, end - bytes.start);
        if soon {
            let _ = self.map.advise_range(Advice::WillNeed, start, len);
        } else {
            #[allow(unsafe_code)]
            // SAFETY: the mapping is one of a file and read-only, so pages that are dropped come back from the file.
            let _ = unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, len) };
        }
    }

    pub(super) fn path(&self) -> Option<&Path> {
        match &self.backing {
            Backing::File(identity) => Some(&identity.path),
            _ => None,
        }
    }
}

/// Zeroed heap memory, which the system provides when it is first written.
pub(super) struct Zeroed {
    /// The allocation; the bytes begin in it at a multiple of [`Zeroed::ALIGN`].
    allocation: NonNull<u8>,
    layout: Layout,
    start: usize,
}

// SAFETY: the allocation belongs to this value alone, and is written through `&mut` only.
#[allow(unsafe_code)]
unsafe impl Send for Zeroed {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Zeroed {}

#[allow(unsafe_code)]
impl Zeroed {
    /// The alignment of the bytes.
    pub(super) const ALIGN: usize = 64;

    /// # Errors
    /// [`ErrorKind::OutOfMemory`].
    pub(super) fn new(len: usize) -> Result<Zeroed> {
        let failed = || Error::from(ErrorKind::OutOfMemory { needed: len as u64 });
        // With a larger alignment, the allocator would write the zeros itself and so touch all pages.
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

    /// The first byte. Only the exclusive owner of this value may write through the pointer.
    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.allocation.as_ptr().wrapping_add(self.start)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: `start` is at most `ALIGN`, so `len` bytes follow it in the allocation, and all of them are
        // initialized.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len()) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` shows that nothing else borrows them.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.len()) }
    }
}

impl Drop for Zeroed {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) }
    }
}

impl AsRef<[u8]> for Zeroed {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}
