//! One copy of a table for many processes.
//!
//! A table's rows begin as this process's own memory. When another process is to have them, they move, piece by piece
//! and without changing their address, into a sealed memory file (`memfd_create(2)`), so that there never are two copies.
//! Every process of the same user maps that file through `/proc/<pid>/fd/<fd>` while one that holds it lives. It has no
//! name in any folder, so when the last process ends, however it ends, its memory is free.
//!
//! The file holds the rows from byte 0, then what [`file`](super::file) appends to saved rows.

use super::StepTable;
use super::attached::AttachedColumn;
use super::file::open_regular;
#[cfg(not(target_os = "linux"))]
use super::memory::FrozenRegion;
use super::memory::{Backing, FileIdentity};
use super::values;
use crate::error::{Error, ErrorKind, Location, Result};
use crate::random;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{PoisonError, TryLockError};

/// A memory file that holds a table's rows.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) file: File,
    /// Tells this file from one that got the same number later.
    pub(super) token: String,
}

/// How another process of the same user on the same machine finds a table: small, and serializable.
///
/// It stays good as long as a process that holds the table lives, or as long as the file that it is mapped from stays as
/// it is.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TableHandle {
    place: Place,
    fingerprint: super::Fingerprint,
    /// The fingerprint of all rows, those that a view does not show too.
    whole: super::Fingerprint,
    /// The attached columns, in their order.
    attached: Vec<AttachedFiles>,
    /// Of a view, its rows.
    #[serde(skip)]
    selection: Option<Vec<u64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum Place {
    Memory { process: u32, fd: i32, token: String },
    File(FileIdentity),
}

/// What an attached column is made of.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct AttachedFiles {
    name: String,
    values: FileIdentity,
    keys: Vec<FileIdentity>,
}

impl StepTable {
    /// What another process needs to have this table too, without a copy. The first call moves the rows into shared
    /// memory, at about the speed of a copy, in place: references to them stay good.
    ///
    /// Attached columns are not shared by way of memory: the other process maps their files and aligns them again.
    ///
    /// A process that was forked has its parent's tables anyway, and needs no handle.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] where the system has no sealed memory files, as outside of Linux.
    pub fn handle(&self) -> Result<TableHandle> {
        let place = match &self.rows.backing {
            Backing::File(identity) => Place::File(identity.clone()),
            Backing::Shared(shared) => shared.place(),
            Backing::Private(owner, slot) => {
                let mut slot = match slot.try_lock() {
                    Ok(slot) => slot,
                    Err(TryLockError::Poisoned(slot)) => slot.into_inner(),
                    // The thread that holds it is in the process that this one was forked from, and never gives it back.
                    Err(TryLockError::WouldBlock) if !owner.is_current() => {
                        let message = "a table that another thread was sharing when this process was forked";
                        return Err(std::io::Error::new(std::io::ErrorKind::WouldBlock, message).into());
                    }
                    Err(TryLockError::WouldBlock) => slot.lock().unwrap_or_else(PoisonError::into_inner),
                };
                match &*slot {
                    Some(shared) => shared.place(),
                    None => {
                        let token = format!("{:016x}", random::seed()?);
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

    /// The table that a handle leads to. No row is read or copied: this takes a few milliseconds at most, for the list of
    /// runs that the table knows, and of a table with attached columns as long as attaching them, mapped, took.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when no process that holds the table is left, or the file is gone;
    /// [`ErrorKind::Damaged`] when something else is in its place.
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
    /// The handle as bytes: the length of a JSON object as u32, the object, and of a view the first row and the length of
    /// each range as u64, all little-endian.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let json = serde_json::to_vec(&(self, self.selection.is_some())).unwrap_or_default();
        let mut bytes = (json.len() as u32).to_le_bytes().to_vec();
        bytes.extend(json);
        bytes.extend(self.selection.iter().flatten().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    /// What [`to_bytes`](TableHandle::to_bytes) made.
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
            let (expected, found) = ("what another a2store made".into(), format!("{} other bytes", bytes.len()));
            ErrorKind::Decode { location, what, expected, found }.into()
        })
    }
}

fn gone(path: &std::path::Path, process: u32, error: &std::io::Error) -> Error {
    let message = format!(
        "process {process} no longer shares the table: it has ended, dropped it, or is another user's ({error})"
    );
    Error::io(path, std::io::Error::new(error.kind(), message))
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

    /// Rows that move at a time: the most memory that is taken twice.
    const PIECE: usize = 32 << 20;

    /// Moves a region's bytes into a sealed memory file that is mapped in their place, and appends a footer behind them.
    #[allow(unsafe_code)]
    pub(super) fn move_to_file(region: &FrozenRegion, footer: &[u8]) -> Result<File> {
        // SAFETY: the name is a C string, and the call does nothing but make a descriptor.
        let fd = unsafe { libc::memfd_create(c"a2store-table".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(io::Error::last_os_error().into());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let file = unsafe { File::from_raw_fd(fd) };
        // A second, read-only descriptor: mappings through it do not keep the file from being sealed.
        let read_only = File::open(format!("/proc/self/fd/{fd}"))?;
        let bytes = region.bytes();
        for start in (0..bytes.len()).step_by(PIECE) {
            let piece = &bytes[start..bytes.len().min(start + PIECE)];
            file.write_all_at(piece, start as u64)?;
            // SAFETY: the pages from the piece's start to the end of its last page belong to the region's mapping, as
            // it begins at a page (a piece is a multiple of the page size, and the region's start one of the large page)
            // and no other bytes lie behind its end. They are replaced at once, by the same bytes, read-only as before,
            // so that no reader can tell. Should the kernel fail when it has already taken the old pages away, which
            // it can only for want of memory of its own, a reader of the piece is ended by SIGSEGV.
            unsafe { map_at(piece.as_ptr(), piece.len(), &read_only, start)? };
            // Large pages for the file, whatever the system's setting for shared memory; where the kernel has none to
            // give, or does not know the advice (before 6.1), small ones do.
            // SAFETY: this moves the pages' content and changes none of it.
            unsafe { libc::madvise(piece.as_ptr().cast_mut().cast(), piece.len(), libc::MADV_COLLAPSE) };
        }
        let pages = bytes.len().next_multiple_of(page_size());
        file.write_all_at(footer, pages as u64)?;
        // SAFETY: sealing changes what may be done with the descriptor, and no memory.
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

    /// Maps the first `len` bytes of a shared memory file, where large pages fit.
    #[allow(unsafe_code)]
    pub(in super::super) fn map_shared(shared: Shared, len: usize) -> Result<FrozenRegion> {
        let map: Mmap = MmapOptions::new().len(len + HUGE_PAGE).no_reserve_swap().map_anon()?.make_read_only()?;
        let start = map.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE);
        if len > 0 {
            // SAFETY: the range lies in the mapping that was just made, which nobody reads yet, at a page's start.
            unsafe { map_at(map.as_ptr().wrapping_add(start), len, &shared.file, 0)? };
        }
        Ok(FrozenRegion::new(map, start, len, Backing::Shared(shared)))
    }

    /// # Safety
    /// The pages of `len` bytes from `address`, which begins one, belong to a mapping of the caller's, and nobody depends
    /// on other bytes being there than the file's.
    #[allow(unsafe_code)]
    unsafe fn map_at(address: *const u8, len: usize, file: &File, offset: usize) -> io::Result<()> {
        let address: *mut libc::c_void = address.cast_mut().cast();
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: as the caller promises.
        let map = unsafe { libc::mmap(address, len, libc::PROT_READ, flags, file.as_raw_fd(), offset as libc::off_t) };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Whether a file can neither change nor shrink any more.
    #[allow(unsafe_code)]
    pub(in super::super) fn is_sealed(file: &File) -> bool {
        let needed = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
        // SAFETY: the call asks about the descriptor, and changes nothing.
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
