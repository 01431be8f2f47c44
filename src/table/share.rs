//! One copy of a table for many processes.
//!
//! A table's rows begin as private memory of one process. For other processes, they move into a sealed memory
//! file (`memfd_create(2)`). They move in pieces and keep their address, so there are never two copies. Every
//! process of the same user can map the file through `/proc/<pid>/fd/<fd>` while a process that holds it lives.
//! The file has no name in any folder, so the system frees its memory when the last process ends.
//!
//! The file holds the rows from byte 0 on, then the footer of a saved table; see [`file`](super::file).

use super::StepTable;
use super::attached::AttachedColumn;
use super::file::open_regular;
#[cfg(not(target_os = "linux"))]
use super::memory::FrozenRegion;
use super::memory::{Backing, FileIdentity};
use super::values;
use crate::error::{Error, ErrorKind, Location, Result};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{PoisonError, TryLockError};

/// A memory file that holds a table's rows.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) file: File,
    /// Distinguishes this file from a later one with the same descriptor.
    pub(super) token: String,
}

/// A small, serializable handle by which another process of the same user on the same machine opens a table.
///
/// It is valid while a process that holds the table lives, or while the mapped file stays unchanged.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TableHandle {
    place: Place,
    fingerprint: super::Fingerprint,
    /// The fingerprint of all rows, including those that a view does not show.
    whole: super::Fingerprint,
    /// The attached columns, in their order.
    attached: Vec<AttachedFiles>,
    /// The rows of a view.
    #[serde(skip)]
    selection: Option<Vec<u64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum Place {
    Memory { process: u32, fd: i32, token: String },
    File(FileIdentity),
}

/// The files of an attached column.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct AttachedFiles {
    name: String,
    values: FileIdentity,
    keys: Vec<FileIdentity>,
}

impl StepTable {
    /// Returns a handle with which another process opens this table without a copy. The first call moves the
    /// rows into shared memory in place, at about the speed of a copy. References to the rows stay valid.
    ///
    /// Attached columns do not move into shared memory. The other process maps their files and aligns them
    /// again.
    ///
    /// A forked process already has its parent's tables and needs no handle.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the system has no sealed memory files, as outside of Linux.
    pub fn handle(&self) -> Result<TableHandle> {
        let place = match &self.rows.backing {
            Backing::File(identity) => Place::File(identity.clone()),
            Backing::Shared(shared) => shared.place(),
            Backing::Private(owner, slot) => {
                let mut slot = match slot.try_lock() {
                    Ok(slot) => slot,
                    Err(TryLockError::Poisoned(slot)) => slot.into_inner(),
                    // The thread that holds the lock exists only in the parent process and never releases it in
                    // this one.
                    Err(TryLockError::WouldBlock) if *owner != std::process::id() => {
                        let message = "this process was forked while another thread was sharing the table";
                        return Err(std::io::Error::new(std::io::ErrorKind::WouldBlock, message).into());
                    }
                    Err(TryLockError::WouldBlock) => slot.lock().unwrap_or_else(PoisonError::into_inner),
                };
                match &*slot {
                    Some(shared) => shared.place(),
                    None => {
                        let token = random_token()?;
                        let footer = self.footer_of_memory(&token)?;
                        slot.insert(Shared { file: move_to_file(&self.rows, &footer)?, token }).place()
                    }
                }
            }
        };
        let selection = self.selection.as_ref().map(|selection| selection.to_words());
        let (fingerprint, whole) = (self.fingerprint().clone(), super::Fingerprint::clone(&self.whole_fingerprint));
        let files = |column: &AttachedColumn| {
            let (values, keys) = column.identities();
            AttachedFiles { name: column.name().to_owned(), values: values.clone(), keys: keys.to_vec() }
        };
        let attached = self.attached.iter().map(files).collect();
        Ok(TableHandle { place, fingerprint, whole, attached, selection })
    }

    /// Opens the table of a handle. It neither reads nor copies rows. It takes a few milliseconds at most, for
    /// the table's list of runs. With attached columns, it takes as long as attaching and mapping them.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if no process holds the table any more, or the file is missing; [`ErrorKind::Damaged`]
    /// if something else is in its place.
    pub fn from_handle(handle: &TableHandle) -> Result<StepTable> {
        let whole = match &handle.place {
            Place::File(expected) => {
                let table = StepTable::map(&expected.path, Some(&handle.whole))?;
                if let Backing::File(found) = &table.rows.backing {
                    expected.check("the file of a shared table", found)?;
                }
                table
            }
            Place::Memory { process, fd, token } => {
                let path = PathBuf::from(format!("/proc/{process}/fd/{fd}"));
                let file = open_regular(&path).map_err(|error| gone(&path, *process, &error))?;
                StepTable::of_shared(Shared { file, token: token.clone() }, &path)?
            }
        };
        let mut table = match &handle.selection {
            None => whole,
            Some(words) => whole.with_selection(words, handle.fingerprint.clone())?,
        };
        for AttachedFiles { name, values, keys } in &handle.attached {
            let key_files: Vec<PathBuf> = keys.iter().map(|file| file.path.clone()).collect();
            let column = table.column(name, values::File::open(&values.path)?, &key_files, None, &())?;
            let found = column.identities();
            for (expected, found) in keys.iter().zip(found.1).chain([(values, found.0)]) {
                expected.check("a file of an attached column", found)?;
            }
            table = table.with_column(column)?;
        }
        Ok(table)
    }
}

impl TableHandle {
    /// Returns the handle as bytes: the length of a JSON object as u32, the object, and for a view the first
    /// row and the length of each range as u64. All numbers are little-endian.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let json = serde_json::to_vec(&(self, self.selection.is_some())).unwrap_or_default();
        let mut bytes = (json.len() as u32).to_le_bytes().to_vec();
        bytes.extend(json);
        bytes.extend(self.selection.iter().flatten().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    /// Parses the result of [`to_bytes`](TableHandle::to_bytes).
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Result<TableHandle> {
        let parse = || -> Option<TableHandle> {
            let (len, rest) = bytes.split_first_chunk()?;
            let (json, words) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            let (handle, is_view): (TableHandle, bool) = serde_json::from_slice(json).ok()?;
            let (words, odd) = words.as_chunks();
            let words: Vec<u64> = words.iter().copied().map(u64::from_le_bytes).collect();
            (odd.is_empty() && (is_view || words.is_empty()))
                .then(|| TableHandle { selection: is_view.then_some(words), ..handle })
        };
        parse().ok_or_else(|| {
            let (location, what) = (Location::default(), "handle of a table");
            let (expected, found) = ("output of TableHandle::to_bytes".into(), format!("{} other bytes", bytes.len()));
            ErrorKind::Decode { location, what, expected, found }.into()
        })
    }
}

fn gone(path: &std::path::Path, process: u32, error: &std::io::Error) -> Error {
    let message = format!(
        "process {process} no longer shares the table: it ended, dropped the table, or belongs to another user ({error})"
    );
    Error::io(path, std::io::Error::new(error.kind(), message))
}

fn random_token() -> Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| Error::from(std::io::Error::other(error)))?;
    Ok(format!("{:016x}", u64::from_le_bytes(bytes)))
}

impl Shared {
    #[cfg(unix)]
    fn place(&self) -> Place {
        use std::os::fd::AsRawFd;
        Place::Memory { process: std::process::id(), fd: self.file.as_raw_fd(), token: self.token.clone() }
    }

    #[cfg(not(unix))]
    fn place(&self) -> Place {
        Place::Memory { process: std::process::id(), fd: -1, token: self.token.clone() }
    }
}

#[cfg(target_os = "linux")]
use linux::move_to_file;
#[cfg(target_os = "linux")]
pub(super) use linux::{is_sealed, map_shared, page_size};

#[cfg(target_os = "linux")]
mod linux {
    use super::super::memory::{Backing, FrozenRegion, HUGE_PAGE};
    use super::Shared;
    use crate::error::Result;
    use memmap2::{Mmap, MmapOptions};
    use std::fs::File;
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::fs::FileExt;

    /// The size of the pieces in bytes: the most memory that exists twice.
    const PIECE: usize = 32 << 20;

    /// Moves a region's bytes into a sealed memory file, maps the file in their place, and appends a footer.
    #[allow(unsafe_code)]
    pub(super) fn move_to_file(region: &FrozenRegion, footer: &[u8]) -> Result<File> {
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
            // This requests large pages for the file, whatever the system's setting for shared memory. Small
            // pages remain if no large ones are free or the kernel does not know the advice (before Linux 6.1).
            // SAFETY: the call moves the pages and does not change their content.
            unsafe { libc::madvise(piece.as_ptr().cast_mut().cast(), piece.len(), libc::MADV_COLLAPSE) };
        }
        let pages = bytes.len().next_multiple_of(page_size());
        file.write_all_at(footer, pages as u64)?;
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

    /// Maps the first `len` bytes of a shared memory file at an address where large pages fit.
    #[allow(unsafe_code)]
    pub(in super::super) fn map_shared(shared: Shared, len: usize) -> Result<FrozenRegion> {
        let map: Mmap = MmapOptions::new().len(len + HUGE_PAGE).no_reserve_swap().map_anon()?.make_read_only()?;
        let start = map.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE);
        if len > 0 {
            // SAFETY: the range lies in the new mapping, which nothing reads yet, and begins at a page.
            unsafe { map_at(map.as_ptr().wrapping_add(start), len, &shared.file, 0)? };
        }
        Ok(FrozenRegion::new(map, start, len, Backing::Shared(shared)))
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

    /// Whether a file can no longer change or shrink.
    #[allow(unsafe_code)]
    pub(in super::super) fn is_sealed(file: &File) -> bool {
        let needed = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
        // SAFETY: the call only reads the seals of the descriptor.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        seals >= 0 && seals & needed == needed
    }

    #[allow(unsafe_code)]
    pub(in super::super) fn page_size() -> usize {
        // SAFETY: the call reads a constant of the system.
        usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
    }
}

#[cfg(not(target_os = "linux"))]
fn move_to_file(_: &FrozenRegion, _: &[u8]) -> Result<File> {
    Err(std::io::Error::from(std::io::ErrorKind::Unsupported).into())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn map_shared(_: Shared, _: usize) -> Result<FrozenRegion> {
    Err(std::io::Error::from(std::io::ErrorKind::Unsupported).into())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_sealed(_: &File) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
pub(super) fn page_size() -> usize {
    4096
}
