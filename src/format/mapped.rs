//! The bytes of a file, memory-mapped or owned.

// The compiler cannot rule out that another process changes a mapped file.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use memmap2::Mmap;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

/// The bytes of a file. A mapped file must not be modified or truncated while it is open. The system kills a
/// process that reads past the new end.
#[derive(Debug)]
pub(crate) enum FileBytes {
    Mapped(Mmap),
    Held(Vec<u8>),
}

impl FileBytes {
    /// Maps a file. An empty file gives an empty vector, because it cannot be mapped.
    pub(crate) fn map(path: &Path) -> Result<FileBytes> {
        let io = |source| Error::io(path, source);
        let file = open_file(path)?;
        if file.metadata().map_err(io)?.len() == 0 {
            return Ok(FileBytes::Held(Vec::new()));
        }
        // SAFETY: the mapping is read-only and private to this value. Every reader that maps a file requires of
        // its caller that the file does not change; no system call can guarantee that.
        unsafe { Mmap::map(&file) }.map(FileBytes::Mapped).map_err(io)
    }
}

/// Opens a regular file. Rejects a pipe, because reading it could block.
pub(crate) fn open_file(path: &Path) -> Result<File> {
    open_regular(path).map_err(|source| Error::io(path, source))
}

/// Opens a file as [`open_file`] does. The error has no path.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    File::open(path)
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            FileBytes::Mapped(mapped) => mapped,
            FileBytes::Held(held) => held,
        }
    }
}
