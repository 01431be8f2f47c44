//! The digests and games of an archive's runs, for finding duplicates and twins. Only the first half of each digest is
//! kept.
//!
//! ```text
//! | magic "A2DIGEST" (8) | next_run_id u64 | count u64 | commit_crc u32 | keys, 16 bytes each, ascending | crc32c u32 |
//! ```
//!
//! `_log/<n>.digests` holds the keys of the runs below `next_run_id`: their digests and their games (u128). All numbers
//! are little-endian. The last number is the CRC32C of all bytes before it. `commit_crc` is the checksum in the trailer
//! of version `n`. The digests of later runs are read from the files of `runs`.

use super::commit::Operation;
use super::log::Log;
use super::log_names::{LogNames, digests_path};
use super::parquet_reader::{not_parquet, read_columns};
use super::problem::damaged;
use super::snapshot::Snapshot;
use super::storage::Storage;
use super::table_name::TableName;
use crate::error::Result;
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

const MAGIC: &[u8; 8] = b"A2DIGEST";
const HEADER_LEN: usize = 28;

/// The set of digests and games. It takes 34 to 68 bytes of memory per run.
#[derive(Default)]
pub(super) struct Digests(HashSet<u128, BuildHasherDefault<AsItIs>>);

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

/// The digests of one version's runs, kept by one ingest for the next.
#[derive(Default)]
pub(super) struct KeptDigests(Mutex<Option<Kept>>);

struct Kept {
    base: DigestsBase,
    digests: Digests,
}

/// The version of the archive whose runs have some digests.
#[derive(Clone, Debug)]
pub(super) struct DigestsBase {
    version: u64,
    crc: String,
    next_run_id: u64,
}

impl DigestsBase {
    pub(super) fn of(snapshot: &Snapshot) -> DigestsBase {
        let (version, crc) = (snapshot.newest.version, snapshot.newest_crc.clone());
        DigestsBase { version, crc, next_run_id: snapshot.newest.next_run_id }
    }
}

impl KeptDigests {
    /// The largest number of runs whose digests are kept, in at most 136 MiB. In a larger archive, each ingest
    /// reads the digests again.
    const MAX_RUNS: usize = 1 << 21;

    /// Takes the kept digests and the run ids that they cover, if they belong to this version of the archive or
    /// an earlier one.
    fn take(&self, log: &Log, snapshot: &Snapshot) -> Result<Option<(Digests, u64)>> {
        let Some(Kept { base: kept, digests }) = self.slot().take() else { return Ok(None) };
        // A repair may have lost runs. These can be ingested again.
        let mut since = snapshot.history.iter().filter(|info| info.version >= kept.version);
        if since.any(|info| info.operation == Operation::Repair) {
            return Ok(None);
        }
        let newest = snapshot.newest.version;
        let fits = match kept.version == newest {
            true => kept.crc == snapshot.newest_crc,
            false => kept.version < newest && log.has_crc(kept.version, &kept.crc)?,
        };
        Ok(fits.then_some((digests, kept.next_run_id)))
    }

    /// Keeps the digests of a version's runs.
    pub(super) fn keep(&self, base: DigestsBase, digests: Digests) {
        if digests.len() <= 2 * Self::MAX_RUNS {
            *self.slot() = Some(Kept { base, digests });
        }
    }

    fn slot(&self) -> MutexGuard<'_, Option<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Digests {
    /// Returns the digests of a version's runs. Uses the kept digests, or else the newest usable file of
    /// digests. Reads the digests of newer runs from `runs`.
    pub(super) fn of(storage: &Storage, log: &Log, snapshot: &Snapshot, kept: &KeptDigests) -> Result<Digests> {
        let (mut digests, next_run_id) = match kept.take(log, snapshot)? {
            Some(kept) => kept,
            None => Digests::read_newest(storage, log, snapshot)?,
        };
        for file in snapshot.files(TableName::Runs).filter(|file| u64::from(file.last_run_id) >= next_run_id) {
            read_columns(storage, file, &["digest", "game"], |batch| {
                let column = batch.column(0).as_fixed_size_binary_opt().filter(|column| column.value_length() == 32);
                let column = column.ok_or_else(|| not_parquet(storage, file, "a digest column of another type"))?;
                digests.0.extend(column.iter().flatten().map(short));
                let games = batch.column(1).as_primitive_opt::<Int64Type>();
                let games = games.ok_or_else(|| not_parquet(storage, file, "a column of games of another type"))?;
                digests.0.extend(games.iter().flatten().map(key_of_game));
                Ok(())
            })?;
        }
        Ok(digests)
    }

    /// Reads the newest usable file of digests, and the number of run ids that it covers.
    fn read_newest(storage: &Storage, log: &Log, snapshot: &Snapshot) -> Result<(Digests, u64)> {
        let recent =
            log.recent_names()?.map(|names| Digests::read_listed(storage, log, &names, snapshot)).transpose()?;
        match recent.flatten() {
            Some(found) => Ok(found),
            None => Ok(Digests::read_listed(storage, log, &log.names()?, snapshot)?.unwrap_or_default()),
        }
    }

    fn read_listed(
        storage: &Storage,
        log: &Log,
        names: &LogNames,
        snapshot: &Snapshot,
    ) -> Result<Option<(Digests, u64)>> {
        for &version in names.digests.iter().rev().filter(|&&version| version <= snapshot.newest.version) {
            // A damaged file of digests is skipped: it only repeats `runs`.
            if let Ok(Some((digests, next_run_id, commit_crc))) = Digests::read(storage, version)
                && log.has_crc(version, &commit_crc)?
            {
                return Ok(Some((digests, next_run_id)));
            }
        }
        Ok(None)
    }

    /// Publishes the digests of a version's runs.
    pub(super) fn write(&self, storage: &Storage, snapshot: &Snapshot) -> Result<()> {
        let mut sorted: Vec<u128> = self.0.iter().copied().collect();
        sorted.sort_unstable();
        let mut bytes = Vec::with_capacity(HEADER_LEN + sorted.len() * 16 + 4);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&snapshot.newest.next_run_id.to_le_bytes());
        bytes.extend_from_slice(&(sorted.len() as u64).to_le_bytes());
        let commit_crc = u32::from_str_radix(&snapshot.newest_crc, 16).unwrap_or_default();
        bytes.extend_from_slice(&commit_crc.to_le_bytes());
        bytes.extend(sorted.iter().flat_map(|digest| digest.to_le_bytes()));
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        storage.put_new(&digests_path(snapshot.newest.version), bytes).map(|_| ())
    }

    /// Reads a version's file of digests; returns `None` if there is no such file. Also returns the run ids that it
    /// covers, and the checksum of the version's commit.
    pub(super) fn read(storage: &Storage, version: u64) -> Result<Option<(Digests, u64, String)>> {
        let path = digests_path(version);
        let Some(bytes) = storage.read(&path)? else { return Ok(None) };
        Digests::from_bytes(&bytes, &storage.path(&path)).map(Some)
    }

    fn from_bytes(bytes: &[u8], path: &Path) -> Result<(Digests, u64, String)> {
        let parsed = Digests::parse(bytes);
        parsed.ok_or_else(|| damaged(path, "digests", "a valid header and checksum", "invalid ones"))
    }

    fn parse(bytes: &[u8]) -> Option<(Digests, u64, String)> {
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        let (header, digests) = body.split_first_chunk::<HEADER_LEN>()?;
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| header[at + i]));
        let (chunks, rest) = digests.as_chunks::<16>();
        let fits = crc32c::crc32c(body) == u32::from_le_bytes(*crc)
            && header.starts_with(MAGIC)
            && rest.is_empty()
            && number(16) == chunks.len() as u64;
        let commit_crc = u32::from_le_bytes(std::array::from_fn(|i| header[24 + i]));
        let digests = || Digests(chunks.iter().map(|digest| u128::from_le_bytes(*digest)).collect());
        fits.then(|| (digests(), number(8), format!("{commit_crc:08x}")))
    }

    pub(super) fn insert(&mut self, digest: &[u8; 32]) {
        self.0.insert(short(digest));
    }

    pub(super) fn insert_game(&mut self, game: i64) {
        self.0.insert(key_of_game(game));
    }

    pub(super) fn contains_game(&self, game: i64) -> bool {
        self.0.contains(&key_of_game(game))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn contains(&self, digest: &[u8; 32]) -> bool {
        self.0.contains(&short(digest))
    }
}

/// Returns the first 16 bytes of a digest. The runs of one archive are too few for two of them to be equal by
/// chance.
fn short(digest: impl AsRef<[u8]>) -> u128 {
    let digest = digest.as_ref();
    u128::from_le_bytes(std::array::from_fn(|i| digest.get(i).copied().unwrap_or_default()))
}

fn key_of_game(game: i64) -> u128 {
    u128::from(game.unsigned_abs())
}
