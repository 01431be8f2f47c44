//! What there is to know of an SQLite file before SQLite sees it.

use crate::error::{Error, Result};
use crate::format::shards::header_error;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What changes when a file does.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) len: u64,
    modified: Option<SystemTime>,
    pub(super) has_log: bool,
}

const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// The header of the file, and of the root of the schema behind it.
const HEADER_LEN: usize = 108;
/// The kind of a page that holds rows rather than further pages.
const LEAF: u8 = 0x0d;

/// What the file is at the moment, and whether it is one whose changes go to a log.
pub(super) fn examine(path: &Path) -> Result<(Stamp, bool)> {
    let io = |source| Error::io(path, source);
    let metadata = std::fs::metadata(path).map_err(io)?;
    if !metadata.is_file() {
        return Err(io(io::Error::new(io::ErrorKind::InvalidInput, "not a file")));
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
        // SQLite holds the whole schema in memory, at many times its size in the file.
        Some(&kind) if kind != LEAF && !has_log => {
            return refuse("schema", "one that fits in a page", format!("a page of kind {kind}"));
        }
        Some(_) => {}
        None => return refuse("length of the file", "a database", format!("{} bytes", header.len())),
    }
    // SQLite takes what is missing for zeros; while a journal or a log stands, it is not the header that tells.
    let is_written = has_log || std::fs::metadata(beside(path, "-journal")).is_ok_and(|journal| journal.len() > 0);
    let expected = file_len(&header).filter(|&expected| expected > metadata.len() && !is_written);
    if let Some(expected) = expected {
        return refuse("length of the file", &format!("{expected} bytes"), format!("{} bytes", metadata.len()));
    }
    let is_wal = header.get(18..20).is_some_and(|versions| versions.contains(&2));
    Ok((Stamp { len: metadata.len(), modified: metadata.modified().ok(), has_log }, is_wal))
}

/// The size that the file's header says it has, where that is up to date.
fn file_len(header: &[u8]) -> Option<u64> {
    let u32_at = |at: usize| header.get(at..)?.first_chunk().map(|bytes| u64::from(u32::from_be_bytes(*bytes)));
    let page_size = match u16::from_be_bytes(*header.get(16..)?.first_chunk()?) {
        1 => 1 << 16,
        size => u64::from(size),
    };
    (u32_at(24)? == u32_at(92)?).then_some(page_size * u32_at(28)?)
}

/// The path as a URI that says that the file does not change.
pub(super) fn uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri += &format!("%{byte:02X}");
        }
    }
    uri + "?immutable=1"
}

/// The name of a file that SQLite keeps beside another.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}
