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
        // SAFETY: the mapping is read-only and private to this value. Every reader that maps a file requires that its
        // caller does not change the file. No system call can guarantee this.
        unsafe { Mmap::map(&file) }.map(FileBytes::Mapped).map_err(io)
    }
}

/// Opens a regular file. Rejects a pipe, because reading it could block.
pub(crate) fn open_file(path: &Path) -> Result<File> {
    let io = |source| Error::io(path, source);
    let metadata = std::fs::metadata(path).map_err(io)?;
    if metadata.is_dir() {
        return Err(io(io::Error::from_raw_os_error(libc::EISDIR)));
    }
    if !metadata.is_file() {
        return Err(io(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
    }
    File::open(path).map_err(io)
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
