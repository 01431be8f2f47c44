//! Checks of an SQLite file before SQLite opens it.

use crate::error::{Error, Result};
use crate::format::files::mapped::header_error;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The state of a file, which differs after a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) len: u64,
    modified: Option<SystemTime>,
}

pub(in crate::format) const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// The length of the file header plus the page header of the schema's root page.
const HEADER_LEN: usize = 108;
/// The page type of a leaf page, which holds rows.
const LEAF: u8 = 0x0d;

/// Checks the header of the file. Returns the state of the file.
pub(super) fn examine(path: &Path) -> Result<Stamp> {
    let io = |source| Error::io(path, source);
    let metadata = std::fs::metadata(path).map_err(io)?;
    if !metadata.is_file() {
        let kind = if metadata.is_dir() { io::ErrorKind::IsADirectory } else { io::ErrorKind::InvalidInput };
        return Err(io(io::Error::new(kind, "not a file")));
    }
    let mut header = Vec::with_capacity(HEADER_LEN);
    File::open(path).and_then(|file| file.take(HEADER_LEN as u64).read_to_end(&mut header)).map_err(io)?;
    let refuse = |what, expected: &str, found| Err(header_error(what, expected, found, path));
    if !header.starts_with(MAGIC) {
        let found = header.get(..16).unwrap_or(&header).escape_ascii().to_string();
        return refuse("magic", "SQLite format 3", found);
    }
    let has_log = std::fs::metadata(beside(path, "-wal")).is_ok_and(|log| log.len() > 0);
    match header.get(100) {
        // SQLite keeps the whole schema in memory, at many times its size in the file.
        Some(&kind) if kind != LEAF && !has_log => {
            return refuse("schema", "one that fits in a page", format!("a page of kind {kind}"));
        }
        Some(_) => {}
        None => return refuse("length of the file", "a database", format!("{} bytes", header.len())),
    }
    // SQLite reads missing bytes as zeros. A journal or log means that the header may be out of date.
    let is_written = has_log || std::fs::metadata(beside(path, "-journal")).is_ok_and(|journal| journal.len() > 0);
    let expected = file_len(&header).filter(|&expected| expected > metadata.len() && !is_written);
    if let Some(expected) = expected {
        return refuse("length of the file", &format!("{expected} bytes"), format!("{} bytes", metadata.len()));
    }
    Ok(Stamp { len: metadata.len(), modified: metadata.modified().ok() })
}

/// Returns the file size that the header declares, if it is up to date.
fn file_len(header: &[u8]) -> Option<u64> {
    let u32_at = |at: usize| header.get(at..)?.first_chunk().map(|bytes| u64::from(u32::from_be_bytes(*bytes)));
    let page_size = match u16::from_be_bytes(*header.get(16..)?.first_chunk()?) {
        1 => 1 << 16,
        size => u64::from(size),
    };
    (u32_at(24)? == u32_at(92)?).then_some(page_size * u32_at(28)?)
}

/// Returns the path of a file that SQLite keeps beside another.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}
