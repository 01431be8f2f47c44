//! What the queries of a process know of an archive's files: footers and page indexes, and the runs of recent versions.
//!
//! Data files never change under their names, so nothing here grows old; what is not used for long makes room.

use super::run_index::RunIndex;
use crate::error::Result;
use crate::process::PerProcess;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::execution::cache::default_cache::DefaultCache;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Archives that are remembered.
const MAX_ARCHIVES: usize = 16;
/// Versions of an archive whose runs are remembered.
const MAX_VERSIONS: usize = 4;
/// Bytes of footers and page indexes of an archive: about 100 KiB a file of 16M steps.
pub(super) const METADATA_BYTES: usize = 256 << 20;

/// Names the content of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VersionKey {
    pub(super) version: u64,
    /// Of the newest commit, which through its parents is that of all.
    pub(super) crc: String,
}

/// What is known of one archive.
pub(super) struct Cached {
    metadata: Arc<FileMetadataCache>,
    run_indexes: Mutex<Vec<(VersionKey, Arc<RunIndex>)>>,
}

/// An archive's place and name, and what is known of it.
type Known = (PathBuf, String, Arc<Cached>);

/// What is known of the archive in this place, whose name among all archives is `id`.
pub(super) fn of_archive(place: &Path, id: &str) -> Result<Arc<Cached>> {
    static ALL: PerProcess<Mutex<Vec<Known>>> = PerProcess::new();
    let mut all = ALL.get_or_make(|| Ok(Mutex::default()))?.lock().unwrap_or_else(PoisonError::into_inner);
    let found = all.iter().position(|(path, of, _)| path == place && of == id);
    let entry = match found {
        Some(i) => all.remove(i),
        None => {
            let metadata = Arc::new(DefaultCache::new(METADATA_BYTES).with_name("footers"));
            (place.to_path_buf(), id.to_owned(), Arc::new(Cached { metadata, run_indexes: Mutex::default() }))
        }
    };
    let cached = Arc::clone(&entry.2);
    all.insert(0, entry);
    all.truncate(MAX_ARCHIVES);
    Ok(cached)
}

impl Cached {
    pub(super) fn metadata(&self) -> Arc<FileMetadataCache> {
        Arc::clone(&self.metadata)
    }

    pub(super) fn run_index(&self, version: &VersionKey) -> Option<Arc<RunIndex>> {
        let indexes = self.run_indexes.lock().unwrap_or_else(PoisonError::into_inner);
        indexes.iter().find(|(key, _)| key == version).map(|(_, index)| Arc::clone(index))
    }

    pub(super) fn keep_run_index(&self, version: &VersionKey, index: &Arc<RunIndex>) {
        let mut indexes = self.run_indexes.lock().unwrap_or_else(PoisonError::into_inner);
        indexes.retain(|(key, _)| key != version);
        indexes.insert(0, (version.clone(), Arc::clone(index)));
        indexes.truncate(MAX_VERSIONS);
    }
}
