//! The digests and games of an archive's runs, for finding duplicates and twins. Only the first half of each digest is
//! kept.
//!
//! An ingest reads them from the files of `runs`. An open archive keeps them, so that its next ingest reads only new
//! files.

use crate::archive::manifest::Manifest;
use crate::archive::manifest::data_file::DataFile;
use crate::archive::parquet::reader::read_columns;
use crate::archive::storage::Storage;
use crate::archive::table_name::TableName;
use crate::error::Result;
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The set of digests and games. It takes 34 to 68 bytes of memory per run.
#[derive(Default)]
pub(in crate::archive) struct Digests(HashSet<u128, BuildHasherDefault<AsItIs>>);

/// A hasher that returns the first bytes of its input: digests are random already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, bytes: &[u8]) {
        let first: [u8; 8] = std::array::from_fn(|i| bytes.get(i).copied().unwrap_or_default());
        self.0 = u64::from_le_bytes(first);
    }

    fn write_u128(&mut self, digest: u128) {
        self.0 = digest as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The digests that one ingest kept for the next.
#[derive(Default)]
pub(in crate::archive) struct KeptDigests(Mutex<Option<Kept>>);

struct Kept {
    /// The files of `runs` that have these digests.
    paths: HashSet<String>,
    digests: Digests,
}

impl KeptDigests {
    /// The largest number of runs whose digests are kept, in at most 136 MiB. In a larger archive, each ingest
    /// reads the digests again.
    const MAX_RUNS: usize = 1 << 21;

    /// Takes the kept digests, if the version still has all files that they were read from. Otherwise some of these
    /// runs may be gone.
    fn take(&self, manifest: &Manifest) -> Option<Kept> {
        let paths = manifest.paths();
        self.slot().take().filter(|kept| kept.paths.iter().all(|path| paths.contains(path.as_str())))
    }

    /// Keeps the digests of a version's runs.
    pub(in crate::archive) fn keep(&self, manifest: &Manifest, digests: Digests) {
        if digests.0.len() <= 2 * Self::MAX_RUNS {
            let paths = manifest.files(TableName::Runs).map(|file| file.path.clone()).collect();
            *self.slot() = Some(Kept { paths, digests });
        }
    }

    fn slot(&self) -> MutexGuard<'_, Option<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Digests {
    /// Returns the digests of a version's runs. Reads those that were not kept.
    pub(in crate::archive) fn of(storage: &Storage, manifest: &Manifest, kept: &KeptDigests) -> Result<Digests> {
        let (paths, mut digests) = kept.take(manifest).map(|kept| (kept.paths, kept.digests)).unwrap_or_default();
        for file in manifest.files(TableName::Runs).filter(|file| !paths.contains(&file.path)) {
            digests.read(storage, file)?;
        }
        Ok(digests)
    }

    /// Adds the digests of a file of `runs`.
    pub(in crate::archive) fn read(&mut self, storage: &Storage, file: &DataFile) -> Result<()> {
        read_columns(storage, file, &["digest", "game"], |batch| {
            self.0.extend(batch.column(0).as_fixed_size_binary().iter().flatten().map(short));
            self.0.extend(batch.column(1).as_primitive::<Int64Type>().iter().flatten().map(key_of_game));
            Ok(())
        })
    }

    /// Adds the digests and games of another set.
    pub(in crate::archive) fn extend(&mut self, other: Digests) {
        self.0.extend(other.0);
    }

    pub(in crate::archive) fn insert(&mut self, digest: &[u8; 32]) {
        self.0.insert(short(digest));
    }

    pub(in crate::archive) fn insert_game(&mut self, game: i64) {
        self.0.insert(key_of_game(game));
    }

    pub(in crate::archive) fn contains_game(&self, game: i64) -> bool {
        self.0.contains(&key_of_game(game))
    }

    pub(in crate::archive) fn contains(&self, digest: &[u8; 32]) -> bool {
        self.contains_short(short(digest))
    }

    pub(in crate::archive) fn contains_short(&self, digest: u128) -> bool {
        self.0.contains(&digest)
    }
}

/// Returns the first 16 bytes of a digest. The runs of one archive are too few for two of them to be equal by
/// chance.
pub(super) fn short(digest: impl AsRef<[u8]>) -> u128 {
    let digest = digest.as_ref();
    u128::from_le_bytes(std::array::from_fn(|i| digest.get(i).copied().unwrap_or_default()))
}

fn key_of_game(game: i64) -> u128 {
    u128::from(game.unsigned_abs())
}
