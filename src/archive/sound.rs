//! A memory of the data files that this process has compared with their commits, so that each file is compared
//! once.
//!
//! Parquet files of an archive have no page checksums, so a flipped bit in a page may decode to other values. A
//! commit has the CRC32C of every file that it adds.
//!
//! Invariant: this process has read each remembered file to its end, and found the length and checksum of its
//! commit. Since then, the file system has recorded no change of the file.

use super::commit::DataFile;
use super::read::open_sound;
use super::storage::Storage;
use crate::error::Result;
use crate::process::PerProcess;
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The maximum number of remembered files, in at most 9 MiB. At the limit, all are forgotten and compared
/// again.
const MAX_FILES: usize = 1 << 18;

/// A key of a file: the hash of its path, its entry in the commit and its last change.
type Key = [u8; 16];

/// Returns whether this process has compared the file with its commit since the last change of the file.
pub(super) fn is_sound(storage: &Storage, file: &DataFile) -> Result<bool> {
    Ok(known()?.contains(&key(storage, file)))
}

/// Compares a file with its commit, unless this process has done so since the last change of the file.
///
/// # Errors
/// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) with the file's name.
/// [`ErrorKind::Io`](crate::ErrorKind::Io).
pub(super) fn check_once(storage: &Storage, file: &DataFile) -> Result<()> {
    // Computed before the read, so that a change during the read is noticed.
    let key = key(storage, file);
    if known()?.contains(&key) {
        return Ok(());
    }
    open_sound(storage, file)?;
    let mut known = known()?;
    if known.len() >= MAX_FILES {
        known.clear();
    }
    known.insert(key);
    Ok(())
}

fn known() -> Result<MutexGuard<'static, HashSet<Key>>> {
    static KNOWN: PerProcess<Mutex<HashSet<Key>>> = PerProcess::new();
    Ok(KNOWN.get_or_make(|| Ok(Mutex::default()))?.lock().unwrap_or_else(PoisonError::into_inner))
}

fn key(storage: &Storage, file: &DataFile) -> Key {
    let mut hasher = blake3::Hasher::new();
    for part in [storage.root().as_os_str().as_encoded_bytes(), file.path.as_bytes(), file.crc32c.as_bytes()] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.update(&file.num_bytes.to_le_bytes());
    for number in storage.last_change(&file.path) {
        hasher.update(&number.to_le_bytes());
    }
    let hash = hasher.finalize();
    std::array::from_fn(|i| hash.as_bytes()[i])
}
