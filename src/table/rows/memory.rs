//! The mapping that holds a table's rows.
//!
//! A table reserves address space for the largest possible result, which costs nothing until it is written. At
//! the end it makes the mapping read-only. On Linux, it also returns the unused rest, and requests pages of 2 MiB,
//! because a random row otherwise costs a walk of the page tables in addition to its cache line. Without large
//! pages everything works, but slower.
//!
//! Saved rows are mapped from their file instead. Batches are short-lived and use
//! [`Zeroed`](crate::table::rows::zeroed::Zeroed) heap memory.

use crate::error::{Error, ErrorKind, Result};
use crate::system::machine::available_bytes;
use crate::system::process::ProcessId;
use memmap2::{Mmap, MmapMut, MmapOptions};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The size of the requested large pages, in bytes.
pub(in crate::table) const HUGE_PAGE: usize = 2 << 20;

/// Zeroed memory that is being filled.
pub(in crate::table) struct Region {
    map: MmapMut,
    /// The offset of the first large page in the mapping.
    start: usize,
}

/// Read-only memory.
pub(in crate::table) struct FrozenRegion {
    map: Mmap,
    start: usize,
    len: usize,
    pub(in crate::table) backing: Backing,
}

/// The storage behind a mapping.
pub(in crate::table) enum Backing {
    /// Memory of the process with this id, and the memory file that it moved to once another process needed it.
    Private(ProcessId, Mutex<Option<File>>),
    /// A memory file that processes share.
    Shared(File),
    /// A file, its identity at the time of mapping, and the offset of the first byte.
    File(FileIdentity, u64),
}

/// The identity of a file. A file that replaces it has another identity.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(in crate::table) struct FileIdentity {
    pub(in crate::table) path: PathBuf,
    pub(in crate::table) num_bytes: u64,
    pub(in crate::table) modified_ns: u128,
    pub(in crate::table) inode: u64,
}

/// Returns the limit of a table's memory in bytes: the given one, or else the memory that the system has available.
pub(in crate::table) fn memory_limit(limit: Option<u64>) -> u64 {
    limit.or_else(available_bytes).unwrap_or(u64::MAX)
}

/// Checks that rows fit a memory limit.
///
/// # Errors
/// [`ErrorKind::MemoryLimit`] if `needed` exceeds the limit, or is `u64::MAX`, which stands for an overflow.
pub(in crate::table) fn check_memory(needed: u64, limit: u64) -> Result<()> {
    match needed > limit || needed == u64::MAX {
        true => Err(ErrorKind::MemoryLimit { needed, limit }.into()),
        false => Ok(()),
    }
}

impl FileIdentity {
    pub(in crate::table) fn of(path: &Path, file: &File) -> Result<FileIdentity> {
        let metadata = file.metadata().map_err(|error| Error::io(path, error))?;
        let modified = metadata.modified().map_err(|error| Error::io(path, error))?;
        let modified_ns = modified.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
        Ok(FileIdentity { path: path.into(), num_bytes: metadata.len(), modified_ns, inode: metadata.ino() })
    }
}

impl Region {
    pub(in crate::table) fn reserve(num_bytes: u64) -> Result<Region> {
        let too_large = || Error::from(ErrorKind::MemoryLimit { needed: num_bytes, limit: isize::MAX as u64 });
        let len = usize::try_from(num_bytes).ok().and_then(|len| len.checked_add(HUGE_PAGE)).ok_or_else(too_large)?;
        let map = MmapOptions::new().len(len).no_reserve_swap().map_anon().map_err(|error| match error.kind() {
            std::io::ErrorKind::OutOfMemory => ErrorKind::OutOfMemory { needed: num_bytes }.into(),
            _ => Error::from(error),
        })?;
        let start = map.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE);
        // A kernel without huge pages rejects this, and the rows use pages of usual size.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Region { map, start })
    }

    /// Reserves as much memory as possible, up to the given bytes, for an unknown number of rows. Reserved pages take
    /// no memory. The process's address space limit can be far below the system's memory.
    pub(in crate::table) fn reserve_up_to(num_bytes: u64) -> Result<(Region, u64)> {
        const LEAST: u64 = 1 << 24;
        let mut reserved = num_bytes.min(available_bytes().unwrap_or(1 << 40).max(1 << 30));
        loop {
            match Region::reserve(reserved) {
                Err(error) if reserved > LEAST && matches!(error.kind(), ErrorKind::OutOfMemory { .. }) => {
                    reserved = (reserved / 2).max(LEAST);
                }
                region => return region.map(|region| (region, reserved)),
            }
        }
    }

    /// Returns the memory, at least the reserved bytes.
    pub(in crate::table) fn bytes_mut(&mut self) -> &mut [u8] {
        self.map.get_mut(self.start..).unwrap_or_default()
    }

    /// Releases the memory after the first `len` bytes and makes the rest read-only. Outside of Linux, the unwritten rest
    /// stays reserved: up to 1 TiB of address space, but no memory.
    #[allow(unsafe_code)]
    #[cfg_attr(not(target_os = "linux"), allow(unused_mut))]
    pub(in crate::table) fn freeze(mut self, len: usize) -> Result<FrozenRegion> {
        #[cfg(target_os = "linux")]
        if self.start + len.max(1) < self.map.len() {
            // SAFETY: the mapping is anonymous, so it cannot outgrow a file, and this function owns it, so nothing
            // borrows from it.
            unsafe { self.map.remap(self.start + len.max(1), memmap2::RemapOptions::new()) }?;
        }
        let backing = Backing::Private(ProcessId::current(), Mutex::new(None));
        Ok(FrozenRegion { start: self.start, map: self.map.make_read_only()?, len, backing })
    }
}

impl FrozenRegion {
    /// Returns the `len` bytes of a mapping from `start` on.
    pub(in crate::table) fn new(map: Mmap, start: usize, len: usize, backing: Backing) -> FrozenRegion {
        FrozenRegion { map, start, len, backing }
    }

    pub(in crate::table) fn bytes(&self) -> &[u8] {
        self.map.get(self.start..self.start + self.len).unwrap_or_default()
    }

    /// Maps `len` bytes of a file from `offset` on. They must not change while the mapping lives. If the file
    /// is truncated, reading the missing part ends the process (SIGBUS), as with any mapped file.
    #[allow(unsafe_code)]
    pub(in crate::table) fn of_file(
        file: &File,
        offset: u64,
        len: usize,
        identity: FileIdentity,
    ) -> Result<FrozenRegion> {
        let with_path = |error: std::io::Error| Error::io(&identity.path, error);
        let end = offset.checked_add(len as u64);
        let size = identity.num_bytes;
        if end.is_none_or(|end| end > size) {
            let error = std::io::Error::new(std::io::ErrorKind::UnexpectedEof, format!("rows end beyond byte {size}"));
            return Err(with_path(error));
        }
        // SAFETY: the documentation of `StepTable::load` requires that the file does not change while it is
        // mapped. The rows are plain numbers, for which any bits are valid.
        let map = unsafe { MmapOptions::new().offset(offset).len(len).map(file) }.map_err(with_path)?;
        Ok(FrozenRegion { map, start: 0, len, backing: Backing::File(identity, offset) })
    }

    /// Reads a mapped file into memory and into the page tables if it fits, so that later reads never wait.
    pub(in crate::table) fn populate(&self) {
        #[cfg(target_os = "linux")]
        if available_bytes().is_none_or(|available| (self.len as u64) < available / 2) {
            // This is advice only. A kernel that does not know it reads the pages on first access.
            let _ = self.map.advise(memmap2::Advice::PopulateRead);
        }
    }

    /// Advises the system that bytes of a mapped file will be read soon, or not for long.
    pub(in crate::table) fn advise(&self, bytes: std::ops::Range<usize>, soon: bool) {
        use memmap2::{Advice, UncheckedAdvice};
        let end = bytes.end.min(self.len);
        if !matches!(self.backing, Backing::File(..)) || bytes.start >= end {
            return;
        }
        let (start, len) = (self.start + bytes.start, end - bytes.start);
        if soon {
            let _ = self.map.advise_range(Advice::WillNeed, start, len);
        } else {
            #[allow(unsafe_code)]
            // SAFETY: the mapping is read-only and has a file behind it, so dropped pages are read from the
            // file again.
            let _ = unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, len) };
        }
    }

    pub(in crate::table) fn path(&self) -> Option<&Path> {
        match &self.backing {
            Backing::File(identity, _) => Some(&identity.path),
            _ => None,
        }
    }
}
