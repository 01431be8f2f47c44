//! The place of read-only memory, with which another process maps it.

use crate::error::{Error, Result};
use crate::format::{open_file, open_regular};
use crate::table::files::shared_memory::{is_sealed, map_shared, move_to_file};
use crate::table::rows::memory::{Backing, FileIdentity, FrozenRegion};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{PoisonError, TryLockError};

/// The place of read-only memory: bytes of a file, or of a memory file that a process holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::table) struct RegionLocation {
    /// The file. A memory file has the path `/proc/<process>/fd/<descriptor>`.
    file: FileIdentity,
    offset: u64,
    len: u64,
    pub(in crate::table) is_memory: bool,
}

impl FrozenRegion {
    /// Returns the region's place. The first call moves private memory into a memory file, in place, and appends
    /// `footer`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if the system has no sealed memory files.
    pub(in crate::table) fn location(&self, footer: impl FnOnce() -> Result<Vec<u8>>) -> Result<RegionLocation> {
        let len = self.bytes().len() as u64;
        let of_memory = |file: &File| {
            let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
            Ok(RegionLocation { file: FileIdentity::of(&path, file)?, offset: 0, len, is_memory: true })
        };
        let (owner, slot) = match &self.backing {
            Backing::File(file, offset) => {
                return Ok(RegionLocation { file: file.clone(), offset: *offset, len, is_memory: false });
            }
            Backing::Shared(file) => return of_memory(file),
            Backing::Private(owner, slot) => (owner, slot),
        };
        let mut slot = match slot.try_lock() {
            Ok(slot) => slot,
            Err(TryLockError::Poisoned(slot)) => slot.into_inner(),
            // The thread that holds the lock exists only in the parent process and never releases it in this process.
            Err(TryLockError::WouldBlock) if !owner.is_current() => {
                let message = "this process was forked while another thread was sharing the table";
                return Err(io::Error::new(io::ErrorKind::WouldBlock, message).into());
            }
            Err(TryLockError::WouldBlock) => slot.lock().unwrap_or_else(PoisonError::into_inner),
        };
        match &*slot {
            Some(file) => of_memory(file),
            None => of_memory(slot.insert(move_to_file(self, &footer()?)?)),
        }
    }
}

impl RegionLocation {
    pub(in crate::table) fn path(&self) -> &PathBuf {
        &self.file.path
    }

    /// Opens the file.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if the file is missing, or its process no longer holds the memory;
    /// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) if another file is in its place.
    pub(in crate::table) fn open(&self) -> Result<File> {
        let file = match self.is_memory {
            true => open_regular(self.path()).map_err(|error| self.gone(&error))?,
            false => open_file(self.path())?,
        };
        let found = FileIdentity::of(self.path(), &file)?;
        if found != self.file {
            let text = |file: &FileIdentity| {
                format!("{} bytes, inode {}, modified at {} ns", file.num_bytes, file.inode, file.modified_ns)
            };
            return Err(Error::damaged(self.path(), "the file of a shared table", text(&self.file), text(&found)));
        }
        if self.is_memory && !is_sealed(&file) {
            return Err(Error::damaged(self.path(), "table", "sealed memory", "a file that may change"));
        }
        Ok(file)
    }

    /// Maps the bytes.
    pub(in crate::table) fn map(&self) -> Result<FrozenRegion> {
        let file = self.open()?;
        let len = usize::try_from(self.len).ok().filter(|len| *len as u64 <= self.file.num_bytes);
        let len = len.ok_or_else(|| {
            let (expected, found) = (format!("at most {} bytes", self.file.num_bytes), format!("{} bytes", self.len));
            Error::damaged(self.path(), "handle of a table", expected, found)
        })?;
        match self.is_memory {
            true => map_shared(file, len),
            false => FrozenRegion::of_file(&file, self.offset, len, self.file.clone()),
        }
    }

    fn gone(&self, error: &io::Error) -> Error {
        let message = format!(
            "no process shares the table any more: its process ended, dropped the table, or belongs to another user \
             ({error})"
        );
        Error::io(self.path(), io::Error::new(error.kind(), message))
    }
}
