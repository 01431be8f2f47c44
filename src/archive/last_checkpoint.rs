//! The pointer to the newest checkpoint and digests, from which an object store lists the log.
//!
//! `_log/_last_checkpoint` is a JSON object with the versions of the newest checkpoint and of the newest digests. An
//! object store lists 1,000 names per request in their order. With the pointer, it lists only the names from these
//! versions on. The pointer may be outdated, damaged or missing: then the reader lists the whole log.

use super::log_names::{LOG_FOLDER, LogNames};
use super::storage::Storage;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

const PATH: &str = "_log/_last_checkpoint";

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct LastCheckpoint {
    checkpoint: u64,
    digests: u64,
}

/// Returns the first version that a listing needs; `None` to list the whole log.
pub(super) fn first_listed(storage: &Storage) -> Result<Option<u64>> {
    // A folder is listed at once.
    if storage.is_local() {
        return Ok(None);
    }
    let bytes = storage.read(PATH)?;
    let pointer = bytes.and_then(|bytes| serde_json::from_slice::<LastCheckpoint>(&bytes).ok());
    Ok(pointer.map(|pointer| pointer.checkpoint.min(pointer.digests)))
}

/// Points to the newest checkpoint and digests, if there are both.
pub(super) fn point_to_newest(storage: &Storage, names: &LogNames) -> Result<()> {
    let (Some(&checkpoint), Some(&digests)) = (names.checkpoints.last(), names.digests.last()) else { return Ok(()) };
    if storage.is_local() {
        return Ok(());
    }
    storage.replace(PATH, serde_json::to_vec(&LastCheckpoint { checkpoint, digests }).map_err(Error::other)?)
}

/// Lists the files of the log from a version on; `None` if there is no log.
pub(super) fn names_from(storage: &Storage, version: u64) -> Result<Option<LogNames>> {
    let names = storage.names_from(LOG_FOLDER, &format!("{version:020}"))?;
    Ok(names.map(|names| LogNames::new(&names)))
}
