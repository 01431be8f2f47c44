//! Per-process cache of archive metadata: footers with page indexes, and run indexes.
//!
//! A data file never changes, and its name is unique among all archives. So entries stay valid, and archives share the
//! cache.

use super::run_index::RunIndex;
use crate::archive::{Archive, Snapshot};
use crate::error::Result;
use crate::process::PerProcess;
use datafusion::execution::cache::cache_manager::{CachedFileMetadataEntry, FileMetadataCache};
use datafusion::execution::cache::default_cache::DefaultCache;
use object_store::path::Path as StorePath;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The maximum number of run indexes.
const MAX_RUN_INDEXES: usize = 4;
/// The maximum number of bytes of footers and page indexes. A small file takes about 30 KiB, and a file of 16M steps
/// takes 100 KiB.
pub(super) const METADATA_BYTES: usize = 256 << 20;

pub(super) struct MetadataCache {
    /// Drops the least recently used footers first.
    footers: Arc<DefaultCache<StorePath, CachedFileMetadataEntry>>,
    /// Run indexes, the most recently used first, each with the transaction and the checksum of its version's commit.
    run_indexes: Mutex<Vec<(String, String, Arc<RunIndex>)>>,
}

impl MetadataCache {
    /// Returns the cache of an archive. Metadata of files that are not compared with their commits has a cache of its
    /// own, so that it serves only queries without checksums.
    pub(super) fn of_archive(archive: &Archive) -> Result<&'static MetadataCache> {
        static CACHES: [PerProcess<MetadataCache>; 2] = [PerProcess::new(), PerProcess::new()];
        CACHES[usize::from(archive.has_checksums())].get_or_make(|| Ok(MetadataCache::new()))
    }

    fn new() -> MetadataCache {
        MetadataCache { footers: Arc::new(DefaultCache::new(METADATA_BYTES)), run_indexes: Mutex::default() }
    }

    pub(super) fn footers(&self) -> Arc<FileMetadataCache> {
        Arc::clone(&self.footers) as Arc<FileMetadataCache>
    }

    pub(super) fn run_index(&self, of: &Snapshot) -> Option<Arc<RunIndex>> {
        let mut indexes = self.run_indexes();
        let found = indexes.iter().position(|(txn, crc, _)| (&of.newest().txn, of.crc()) == (txn, crc))?;
        indexes[..=found].rotate_right(1);
        Some(Arc::clone(&indexes[0].2))
    }

    pub(super) fn keep_run_index(&self, of: &Snapshot, index: &Arc<RunIndex>) {
        let mut indexes = self.run_indexes();
        // Threads that miss together make the same index.
        indexes.retain(|(txn, crc, _)| (&of.newest().txn, of.crc()) != (txn, crc));
        indexes.insert(0, (of.newest().txn.clone(), of.crc().to_owned(), Arc::clone(index)));
        indexes.truncate(MAX_RUN_INDEXES);
    }

    fn run_indexes(&self) -> MutexGuard<'_, Vec<(String, String, Arc<RunIndex>)>> {
        self.run_indexes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CancellationToken, IngestOptions, Phases, SimulateOptions};
    use arrow::array::RecordBatch;

    #[test]
    fn the_newest_run_indexes_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut archive = Archive::create(folder.path().join("games.a2"), Phases::default()).unwrap();
        let cache = MetadataCache::new();
        let mut snapshots = Vec::new();
        for seed in 0..6 {
            let runs = folder.path().join(format!("runs-{seed}"));
            let never = CancellationToken::never();
            let options = SimulateOptions { runs: 1, seed, depth: 0, ..Default::default() };
            crate::simulate(&runs, &options, &(), never).unwrap();
            archive.ingest([&runs], &IngestOptions::default(), &(), never).unwrap();
            let columns = RunIndex::columns().unwrap();
            let schema = crate::archive::table_schema(crate::archive::TableName::Runs).project(&columns).unwrap();
            let index = RunIndex::new(&RecordBatch::new_empty(Arc::new(schema))).unwrap();
            cache.keep_run_index(archive.snapshot(), &Arc::new(index));
            snapshots.push(Arc::clone(archive.snapshot()));
        }
        let is_kept: Vec<bool> = snapshots.iter().map(|snapshot| cache.run_index(snapshot).is_some()).collect();
        assert_eq!(is_kept, [false, false, true, true, true, true]);
        // The same version, opened again.
        assert!(cache.run_index(Archive::open(archive.path()).unwrap().snapshot()).is_some());
    }
}
