//! Per-process cache of archive metadata: footers with page indexes, and run indexes.
//!
//! A data file never changes, and its name is unique among all archives. So entries stay valid, and archives share the
//! cache. Copies of an archive share footers of files with the same size and time, but no run indexes.

use crate::archive::Archive;
use crate::error::Result;
use crate::query::scan::run_index::RunIndex;
use crate::system::process::PerProcess;
use crate::system::process::lock;
use datafusion::execution::cache::cache_manager::{CachedFileMetadataEntry, FileMetadataCache};
use datafusion::execution::cache::default_cache::DefaultCache;
use object_store::path::Path as StorePath;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// The maximum number of run indexes.
const MAX_RUN_INDEXES: usize = 4;
/// The maximum number of bytes of footers and page indexes. A small file takes about 30 KiB, and a file of 16M steps
/// takes 100 KiB.
pub(in crate::query) const METADATA_BYTES: usize = 256 << 20;

pub(in crate::query) struct MetadataCache {
    /// Drops the least recently used footers first.
    footers: Arc<DefaultCache<StorePath, CachedFileMetadataEntry>>,
    /// Run indexes, the most recently used first.
    run_indexes: Mutex<Vec<(VersionKey, Arc<RunIndex>)>>,
}

/// A version: the path of its archive, its transaction and its number.
type VersionKey = (PathBuf, String, u64);

fn key(archive: &Archive) -> VersionKey {
    let manifest = archive.manifest();
    (archive.path().to_owned(), manifest.txn.clone(), manifest.version)
}

impl MetadataCache {
    /// Returns the cache of an archive. Metadata of files that are not compared with their commits has a cache of its
    /// own, so that it serves only queries without checksums.
    pub(in crate::query) fn of_archive(archive: &Archive) -> Result<&'static MetadataCache> {
        static CACHES: [PerProcess<MetadataCache>; 2] = [PerProcess::new(), PerProcess::new()];
        CACHES[usize::from(archive.has_checksums())].get_or_make(|| Ok(MetadataCache::new()))
    }

    fn new() -> MetadataCache {
        MetadataCache { footers: Arc::new(DefaultCache::new(METADATA_BYTES)), run_indexes: Mutex::default() }
    }

    pub(in crate::query) fn footers(&self) -> Arc<FileMetadataCache> {
        Arc::clone(&self.footers) as Arc<FileMetadataCache>
    }

    pub(in crate::query) fn run_index(&self, archive: &Archive) -> Option<Arc<RunIndex>> {
        let (version, mut indexes) = (key(archive), lock(&self.run_indexes));
        let found = indexes.iter().position(|(known, _)| *known == version)?;
        indexes[..=found].rotate_right(1);
        Some(Arc::clone(&indexes[0].1))
    }

    pub(in crate::query) fn keep_run_index(&self, archive: &Archive, index: &Arc<RunIndex>) {
        let (version, mut indexes) = (key(archive), lock(&self.run_indexes));
        // Threads that miss together make the same index.
        indexes.retain(|(known, _)| *known != version);
        indexes.insert(0, (version, Arc::clone(index)));
        indexes.truncate(MAX_RUN_INDEXES);
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
        let mut versions = Vec::new();
        for seed in 0..6 {
            let runs = folder.path().join(format!("runs-{seed}"));
            let never = CancellationToken::never();
            let options = SimulateOptions { runs: 1, seed, depth: 0, ..Default::default() };
            crate::simulate(&runs, &options, &(), never).unwrap();
            archive.ingest([&runs], &IngestOptions::default(), &(), never).unwrap();
            let columns = RunIndex::columns().unwrap();
            let schema = crate::archive::table_schema(crate::archive::TableName::Runs).project(&columns).unwrap();
            let index = RunIndex::new(&RecordBatch::new_empty(Arc::new(schema))).unwrap();
            cache.keep_run_index(&archive, &Arc::new(index));
            versions.push(archive.clone());
        }
        let is_kept: Vec<bool> = versions.iter().map(|version| cache.run_index(version).is_some()).collect();
        assert_eq!(is_kept, [false, false, true, true, true, true]);
        // The same version, opened again.
        assert!(cache.run_index(&Archive::open(archive.path()).unwrap()).is_some());
    }
}
