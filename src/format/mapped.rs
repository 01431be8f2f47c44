//! The bytes of a file, mapped into memory or held in it.

// A mapped file is memory that the compiler cannot know to stand still.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use memmap2::Mmap;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

/// Bytes of a file. A mapped file must not be changed or made shorter while it is read: the system ends a process that
/// touches what is no longer there.
#[derive(Debug)]
pub(crate) enum FileBytes {
    Mapped(Mmap),
    Held(Vec<u8>),
}

impl FileBytes {
    /// Maps a file; an empty one is held, since nothing of it can be mapped.
    pub(crate) fn map(path: &Path) -> Result<FileBytes> {
        let io = |source| Error::io(path, source);
        let file = open_file(path)?;
        if file.metadata().map_err(io)?.len() == 0 {
            return Ok(FileBytes::Held(Vec::new()));
        }
        // SAFETY: the mapping is read-only and private to this value; that the file stands still is asked of the caller of
        // every reader that maps, as no system offers a way to make sure of it.
        unsafe { Mmap::map(&file) }.map(FileBytes::Mapped).map_err(io)
    }
}

/// Opens a file, and nothing else: a pipe would be waited for.
pub(crate) fn open_file(path: &Path) -> Result<File> {
    let io = |source| Error::io(path, source);
    let metadata = std::fs::metadata(path).map_err(io)?;
    if metadata.is_dir() {
        return Err(io(io::Error::from_raw_os_error(libc::EISDIR)));
    }
    if !metadata.is_file() {
        return Err(io(io::Error::new(io::ErrorKind::InvalidInput, "neither a file nor a folder")));
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
