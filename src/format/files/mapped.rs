//! Memory-mapped files, and small JSON files.

// The compiler cannot rule out that another process changes a mapped file.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use crate::system::publish::Staged;
use memmap2::{Mmap, MmapMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// Maps a file into memory. The file must not be modified or truncated while it is mapped. The system kills a process
/// that reads past the new end.
pub(crate) fn map_file(path: &Path) -> Result<Mmap> {
    let file = open_file(path)?;
    // SAFETY: the mapping is read-only and private to this value. Every reader that maps a file requires that its
    // caller does not change the file. No system call can guarantee this.
    unsafe { Mmap::map(&file) }.map_err(|source| Error::io(path, source))
}

/// Copies bytes into memory, for a reader that otherwise maps a file.
pub(in crate::format) fn map_bytes(bytes: &[u8]) -> Result<Mmap> {
    let mut copy = MmapMut::map_anon(bytes.len())?;
    copy.copy_from_slice(bytes);
    Ok(copy.make_read_only()?)
}

/// Returns a header error about a file or folder as a whole.
#[cold]
pub(crate) fn header_error(what: &'static str, expected: impl Into<String>, found: String, path: &Path) -> Error {
    Error::decode(None, what, expected, found).with_path(path).of_header()
}

/// Reads a JSON file of at most `max_len` bytes; `None` if it does not exist. Errors name its content `what`, which must
/// be `expected`.
pub(crate) fn read_json<T: DeserializeOwned>(
    path: &Path,
    max_len: u64,
    what: &'static str,
    expected: &str,
) -> Result<Option<T>> {
    if path.metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let mut text = Vec::new();
    let read = open_file(path)?.take(max_len + 1).read_to_end(&mut text);
    read.map_err(|source| Error::io(path, source))?;
    if text.len() as u64 > max_len {
        return Err(header_error(what, format!("at most {max_len} bytes"), "more".into(), path));
    }
    let value = serde_json::from_slice(&text).map_err(|error| header_error(what, expected, error.to_string(), path))?;
    Ok(Some(value))
}

/// Writes a value to a JSON file in a folder.
pub(in crate::format) fn write_json(folder: &Path, name: &str, value: &impl Serialize) -> Result<()> {
    let path = folder.join(name);
    let mut staged = Staged::new(folder)?;
    let written = serde_json::to_writer_pretty(&mut staged, value).map_err(io::Error::from);
    written.and_then(|()| staged.write_all(b"\n")).map_err(|source| Error::io(&path, source))?;
    staged.replace(&path)
}

/// Opens a regular file. Rejects a pipe, because reading it could block.
pub(crate) fn open_file(path: &Path) -> Result<File> {
    open_regular(path).map_err(|source| Error::io(path, source))
}

/// Opens a file as [`open_file`] does. The error has no path.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let check = |metadata: std::fs::Metadata| {
        if metadata.is_dir() {
            return Err(io::Error::from_raw_os_error(libc::EISDIR));
        }
        match metadata.is_file() {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
        }
    };
    check(std::fs::metadata(path)?)?;
    // The path may lead to a pipe by now, and opening a pipe would block without this flag.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    check(file.metadata()?)?;
    Ok(file)
}
