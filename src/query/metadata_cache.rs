//! Per-process cache of archive metadata: footers, page indexes, and the run indexes of open versions.
//!
//! Data files are immutable, so entries stay valid. When a query opens a version, the cache drops everything that
//! belongs to no open version. These are footers of replaced or expired files, and run indexes of closed versions.

use super::run_index::RunIndex;
use crate::archive::{Archive, Snapshot, TableName};
use crate::error::Result;
use crate::process::PerProcess;
use datafusion::execution::cache::Cache;
use datafusion::execution::cache::cache_manager::{CachedFileMetadataEntry, FileMetadataCache};
use datafusion::execution::cache::default_cache::DefaultCache;
use object_store::path::Path as StorePath;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The maximum number of archives in the cache.
const MAX_ARCHIVES: usize = 16;
/// The maximum number of versions of one archive whose run indexes are kept.
const MAX_VERSIONS: usize = 4;
/// The maximum number of bytes of footers and page indexes, for one archive and for all archives together. A small
/// file takes about 30 KiB, and a file of 16M steps takes 100 KiB.
pub(super) const METADATA_BYTES: usize = 256 << 20;

/// The cached metadata of one archive.
pub(super) struct ArchiveCache {
    metadata: Arc<DefaultCache<StorePath, CachedFileMetadataEntry>>,
    versions: Mutex<Versions>,
}

#[derive(Default)]
struct Versions {
    /// The versions that queries use. Handles, queries and results keep their versions open.
    open: Vec<Weak<Snapshot>>,
    /// Run indexes, newest first, each with the version's number and the checksum of its commit.
    run_indexes: Vec<(u64, String, Arc<RunIndex>)>,
}

/// An archive with its cached metadata.
struct CacheEntry {
    place: PathBuf,
    id: String,
    /// Whether files are compared with their commits. Metadata of unchecked files serves only queries without
    /// checksums.
    checksums: bool,
    cached: Arc<ArchiveCache>,
}

/// Returns the cached metadata of an archive.
pub(super) fn of_archive(archive: &Archive) -> Result<Arc<ArchiveCache>> {
    static ALL: PerProcess<Mutex<Vec<CacheEntry>>> = PerProcess::new();
    let mut all = ALL.get_or_make(|| Ok(Mutex::default()))?.lock().unwrap_or_else(PoisonError::into_inner);
    let is_it = |known: &CacheEntry| {
        known.place == archive.path() && known.id == archive.id() && known.checksums == archive.has_checksums()
    };
    let known = match all.iter().position(is_it) {
        Some(i) => all.remove(i),
        None => CacheEntry {
            place: archive.path().to_path_buf(),
            id: archive.id().to_owned(),
            checksums: archive.has_checksums(),
            cached: Arc::new(ArchiveCache {
                metadata: Arc::new(DefaultCache::new(METADATA_BYTES).with_name("footers")),
                versions: Mutex::default(),
            }),
        },
    };
    let cached = Arc::clone(&known.cached);
    all.insert(0, known);
    drop_oldest(&mut all, METADATA_BYTES);
    Ok(cached)
}

/// Drops the least recently used archives until their number and the bytes of their footers are within the
/// limits.
fn drop_oldest(all: &mut Vec<CacheEntry>, max_bytes: usize) {
    let mut num_bytes = 0;
    let fits = |known: &&CacheEntry| {
        num_bytes += known.cached.metadata.memory_used();
        num_bytes <= max_bytes
    };
    let fitting = all.iter().take(MAX_ARCHIVES).take_while(fits).count();
    all.truncate(fitting.max(1));
}

impl ArchiveCache {
    pub(super) fn metadata(&self) -> Arc<FileMetadataCache> {
        Arc::clone(&self.metadata) as Arc<FileMetadataCache>
    }

    /// Records that a query uses a version, and drops everything that belongs to no open version.
    pub(super) fn open(&self, snapshot: &Arc<Snapshot>) {
        let mut versions = self.versions();
        if versions.open.iter().any(|open| std::ptr::eq(open.as_ptr(), Arc::as_ptr(snapshot))) {
            return;
        }
        versions.open.push(Arc::downgrade(snapshot));
        versions.open.retain(|open| open.strong_count() > 0);
        let open: Vec<Arc<Snapshot>> = versions.open.iter().filter_map(Weak::upgrade).collect();
        versions.run_indexes.retain(|(version, crc, _)| open.iter().any(|open| is_of(open, *version, crc)));
        let files = open.iter().flat_map(|open| TableName::ALL.map(|table| open.files(table))).flatten();
        let named: HashSet<&str> = files.map(|file| file.path.as_str()).collect();
        for path in self.metadata.list_entries().into_keys().filter(|path| !named.contains(path.as_ref())) {
            self.metadata.remove(&path);
        }
    }

    pub(super) fn run_index(&self, of: &Snapshot) -> Option<Arc<RunIndex>> {
        let versions = self.versions();
        let found = versions.run_indexes.iter().find(|(version, crc, _)| is_of(of, *version, crc));
        found.map(|(_, _, index)| Arc::clone(index))
    }

    pub(super) fn keep_run_index(&self, of: &Snapshot, index: &Arc<RunIndex>) {
        let indexes = &mut self.versions().run_indexes;
        indexes.retain(|(version, crc, _)| !is_of(of, *version, crc));
        indexes.insert(0, (of.newest().version, of.crc().to_owned(), Arc::clone(index)));
        indexes.truncate(MAX_VERSIONS);
    }

    fn versions(&self) -> MutexGuard<'_, Versions> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether a version has this number and checksum, and therefore this content.
fn is_of(snapshot: &Snapshot, version: u64, crc: &str) -> bool {
    (snapshot.newest().version, snapshot.crc()) == (version, crc)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CancellationToken, CompactOptions, ExpireOptions, IngestOptions, Phases, SimulateOptions, no_params};
    use std::path::Path;
    use std::time::Duration;

    fn never() -> &'static CancellationToken {
        CancellationToken::never()
    }

    /// Adds a run to the archive.
    fn grow(archive: &mut Archive, folder: &Path, seed: u64) {
        let runs = folder.join(format!("runs-{seed}"));
        crate::simulate(&runs, &SimulateOptions { runs: 1, seed, depth: 0, ..Default::default() }, &(), never())
            .unwrap();
        archive.ingest([&runs], &IngestOptions::default(), &(), never()).unwrap();
    }

    /// Runs a query that reads the footers of both tables and the run index.
    fn run_query(archive: &Archive) {
        let query = archive.sql("SELECT board FROM steps WHERE max_score > 1", no_params()).unwrap();
        assert_eq!(query.count().unwrap(), archive.num_steps());
    }

    fn num_indexes(cached: &ArchiveCache) -> usize {
        cached.versions().run_indexes.len()
    }

    #[test]
    fn metadata_of_closed_versions_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Archive::create(folder.path().join("games.a2"), Phases::default()).unwrap();
        grow(&mut writer, folder.path(), 0);
        let mut reader = writer.clone();
        let cached = of_archive(&reader).unwrap();
        for seed in 1..6 {
            grow(&mut writer, folder.path(), seed);
            writer.compact(&CompactOptions::default(), &(), never()).unwrap();
            let now = ExpireOptions { older_than: Duration::ZERO, ..Default::default() };
            writer.expire(&now, never()).unwrap();
            reader.refresh().unwrap();
            run_query(&reader);
            // One file of each table.
            assert_eq!((cached.metadata.len(), num_indexes(&cached)), (2, 1), "after {seed} rounds");
        }

        // A version stays open while another handle or a query uses it.
        let older = reader.clone();
        let query = older.sql("SELECT 1", no_params()).unwrap();
        grow(&mut reader, folder.path(), 6);
        reader.compact(&CompactOptions::default(), &(), never()).unwrap();
        drop(older);
        run_query(&reader);
        assert_eq!((cached.metadata.len(), num_indexes(&cached)), (4, 2));
        drop(query);
        grow(&mut reader, folder.path(), 7);
        run_query(&reader);
        assert_eq!((cached.metadata.len(), num_indexes(&cached)), (4, 1), "two files of each table");
        // The same version, opened again.
        let used = cached.metadata.memory_used();
        run_query(&Archive::open(reader.path()).unwrap());
        assert_eq!((cached.metadata.len(), cached.metadata.memory_used(), num_indexes(&cached)), (4, used, 1));
    }

    #[test]
    fn least_recently_used_archives_are_dropped_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut all = Vec::new();
        for seed in 0..3 {
            let mut archive = Archive::create(folder.path().join(format!("{seed}.a2")), Phases::default()).unwrap();
            grow(&mut archive, folder.path(), seed);
            run_query(&archive);
            let (place, id) = (archive.path().to_path_buf(), archive.id().to_owned());
            let cached = of_archive(&archive).unwrap();
            all.insert(0, CacheEntry { place, id, checksums: true, cached });
        }
        let used: Vec<usize> = all.iter().map(|known| known.cached.metadata.memory_used()).collect();
        assert!(used.iter().all(|&num_bytes| num_bytes > 1000), "{used:?}");
        let newest = all[0].id.clone();
        drop_oldest(&mut all, used.iter().sum());
        assert_eq!(all.len(), 3);
        drop_oldest(&mut all, used.iter().sum::<usize>() - 1);
        assert_eq!(all.len(), 2);
        // The archive in use is never dropped.
        drop_oldest(&mut all, 0);
        assert_eq!((all.len(), &all[0].id), (1, &newest));
    }
}
