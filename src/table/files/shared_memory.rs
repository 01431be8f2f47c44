//! Moving memory into a memory file (`memfd_create(2)`) that processes share, and mapping such a file.

use crate::error::Result;
use crate::table::rows::memory::{Backing, FrozenRegion, HUGE_PAGE};
use memmap2::{Mmap, MmapOptions};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Moves a region's bytes into a sealed memory file, maps the file in their place, and appends a footer.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub(in crate::table) fn move_to_file(region: &FrozenRegion, footer: &[u8]) -> Result<File> {
    use std::os::fd::FromRawFd;
    use std::os::unix::fs::FileExt;

    /// The size of the pieces in bytes: the most memory that exists twice.
    const PIECE: usize = 32 << 20;

    // SAFETY: the name is a C string, and the call only creates a descriptor.
    let fd = unsafe { libc::memfd_create(c"a2store-table".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: the descriptor is new, so nothing else owns it.
    let file = unsafe { File::from_raw_fd(fd) };
    // A second, read-only descriptor. A mapping through it does not prevent sealing the file.
    let read_only = File::open(format!("/proc/self/fd/{fd}"))?;
    let bytes = region.bytes();
    for start in (0..bytes.len()).step_by(PIECE) {
        let piece = &bytes[start..bytes.len().min(start + PIECE)];
        file.write_all_at(piece, start as u64)?;
        // SAFETY: the pages of the piece belong to the region's mapping. The piece begins at a page,
        // because a piece is a multiple of the page size and the region begins at a large page. No other
        // bytes lie after its end. The call replaces the pages at once by the same bytes, read-only as
        // before, so no reader sees a difference. The kernel can fail after it unmapped the old pages only
        // if it lacks memory itself. A reader of the piece then ends with SIGSEGV.
        unsafe { map_at(piece.as_ptr(), piece.len(), &read_only, start)? };
        // This requests large pages for the file, regardless of the system's setting for shared memory. Small
        // pages remain if no large ones are free or the kernel does not know the advice (before Linux 6.1).
        // SAFETY: the call moves the pages and does not change their content.
        unsafe { libc::madvise(piece.as_ptr().cast_mut().cast(), piece.len(), libc::MADV_COLLAPSE) };
    }
    // A reader of the last page may see the footer behind the rows, where no row is.
    file.write_all_at(footer, bytes.len() as u64)?;
    // SAFETY: sealing restricts the descriptor and does not touch memory.
    let sealed = unsafe {
        libc::fcntl(
            fd,
            libc::F_ADD_SEALS,
            libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE | libc::F_SEAL_SEAL,
        )
    };
    if sealed < 0 {
        return Err(io::Error::last_os_error().into());
    }
    Ok(file)
}

/// Returns an error: this system has no memory files that can be sealed.
#[cfg(not(target_os = "linux"))]
pub(in crate::table) fn move_to_file(_: &FrozenRegion, _: &[u8]) -> Result<File> {
    let message = "this system cannot share a table in memory; save the table, and map the file in each process";
    Err(io::Error::new(io::ErrorKind::Unsupported, message).into())
}

/// Maps the first `len` bytes of a shared memory file at an address where large pages fit.
#[allow(unsafe_code)]
pub(in crate::table) fn map_shared(file: File, len: usize) -> Result<FrozenRegion> {
    let map: Mmap = MmapOptions::new().len(len + HUGE_PAGE).no_reserve_swap().map_anon()?.make_read_only()?;
    let start = map.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE);
    if len > 0 {
        // SAFETY: the range lies in the new mapping, which nothing reads yet, and begins at a page.
        unsafe { map_at(map.as_ptr().wrapping_add(start), len, &file, 0)? };
    }
    Ok(FrozenRegion::new(map, start, len, Backing::Shared(file)))
}

/// Maps `len` bytes of a file from `offset` on at `address`.
///
/// # Safety
/// `address` begins a page. All pages of the range belong to a mapping of the caller. Nothing depends on
/// these pages having bytes other than the file's.
#[allow(unsafe_code)]
unsafe fn map_at(address: *const u8, len: usize, file: &File, offset: usize) -> io::Result<()> {
    let address: *mut libc::c_void = address.cast_mut().cast();
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: the caller guarantees it.
    let map = unsafe { libc::mmap(address, len, libc::PROT_READ, flags, file.as_raw_fd(), offset as libc::off_t) };
    if map == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Returns whether a file can no longer change or shrink.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub(in crate::table) fn is_sealed(file: &File) -> bool {
    let needed = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    // SAFETY: the call only reads the seals of the descriptor.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & needed == needed
}

#[cfg(not(target_os = "linux"))]
pub(in crate::table) fn is_sealed(_: &File) -> bool {
    false
}
