//! The digests and games of an archive's runs, for finding duplicates and twins. Only the first half of each digest is
//! kept.
//!
//! An ingest reads them from the files of `runs`. An open archive keeps them, so that its next ingest reads only new
//! files.

use crate::archive::manifest::Manifest;
use crate::archive::manifest::data_file::DataFile;
use crate::archive::parquet::reader::row_groups;
use crate::archive::schema::schema_of_columns;
use crate::archive::storage::Storage;
use crate::archive::table_name::TableName;
use crate::error::Result;
use crate::system::process::lock;
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use std::collections::HashSet;
use std::sync::Mutex;

/// A set of the keys of digests and games. It takes 34 to 68 bytes of memory per run.
pub(in crate::archive) type Digests = HashSet<u128>;

/// The digests that one ingest kept for the next ingest.
#[derive(Default)]
pub(in crate::archive) struct KeptDigests(Mutex<Option<DigestsOfFiles>>);

struct DigestsOfFiles {
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
    fn take(&self, manifest: &Manifest) -> Option<DigestsOfFiles> {
        let paths = manifest.paths();
        lock(&self.0).take().filter(|kept| kept.paths.iter().all(|path| paths.contains(path.as_str())))
    }

    /// Keeps the digests of a version's runs.
    pub(in crate::archive) fn keep(&self, manifest: &Manifest, digests: Digests) {
        if digests.len() <= 2 * Self::MAX_RUNS {
            let paths = manifest.files(TableName::Runs).map(|file| file.path.clone()).collect();
            *lock(&self.0) = Some(DigestsOfFiles { paths, digests });
        }
    }
}

/// Returns the digests of a version's runs. Reads those that were not kept.
pub(super) fn digests_of(storage: &Storage, manifest: &Manifest, kept: &KeptDigests) -> Result<Digests> {
    let (paths, mut digests) = kept.take(manifest).map(|kept| (kept.paths, kept.digests)).unwrap_or_default();
    let files = manifest.files(TableName::Runs).filter(|file| !paths.contains(&file.path));
    read_digests(storage, files, &mut digests)?;
    Ok(digests)
}

/// Adds the digests and games of files of `runs`.
pub(super) fn read_digests<'a>(
    storage: &'a Storage,
    files: impl Iterator<Item = &'a DataFile>,
    digests: &mut Digests,
) -> Result<()> {
    for batch in row_groups(storage, files, &schema_of_columns(TableName::Runs, &["digest", "game"])) {
        let batch = batch?;
        digests.extend(batch.column(0).as_fixed_size_binary().iter().flatten().map(short));
        digests.extend(batch.column(1).as_primitive::<Int64Type>().iter().flatten().map(key_of_game));
    }
    Ok(())
}

/// Returns the key of a digest: its first 16 bytes. The runs of one archive are too few for two of them to be equal by
/// chance.
pub(super) fn short(digest: impl AsRef<[u8]>) -> u128 {
    let digest = digest.as_ref();
    u128::from_le_bytes(std::array::from_fn(|i| digest.get(i).copied().unwrap_or_default()))
}

/// Returns the key of a game.
pub(super) fn key_of_game(game: i64) -> u128 {
    u128::from(game.unsigned_abs())
}
