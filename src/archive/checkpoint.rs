//! Checkpoints: the contents of one version in one file, so that readers need not read every commit since the
//! first.
//!
//! `_log/<n>.checkpoint.json` holds version `n`'s commit, its files and one line for each earlier commit. It
//! has the same trailer as a commit. `_log/<n>.digests` lists the runs of version `n` for writers
//! (`digests.rs`).
//!
//! Both only repeat commits and data files, and can be deleted at any time. The two newest of each are kept.

use super::commit::{Commit, CommitInfo, DataFile, Sealed, damaged, seal, unseal};
use super::digests::Digests;
use super::log::{Log, Snapshot, version_of};
use super::storage::Storage;
use crate::error::Result;
use serde::{Deserialize, Serialize};

/// The versions of the files in the log's folder, in ascending order.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) commits: Vec<u64>,
    pub(super) checkpoints: Vec<u64>,
    pub(super) digests: Vec<u64>,
}

/// The content of a checkpoint's file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    schema_version: u32,
    /// The checksum in the trailer of the version's commit.
    commit_crc32c: String,
    /// The version's commit, without the files that it added and removed.
    commit: Commit,
    files: Vec<DataFile>,
    history: Vec<CommitInfo>,
}

impl Sealed for Checkpoint {
    fn schema_version(&self) -> u32 {
        self.schema_version
    }
}

impl Names {
    pub(super) fn new(names: &[String]) -> Names {
        let versions = |suffix| {
            let mut versions: Vec<u64> = names.iter().filter_map(|name| version_of(name, suffix)).collect();
            versions.sort_unstable();
            versions
        };
        Names {
            commits: versions(".json"),
            checkpoints: versions(Checkpoint::SUFFIX),
            digests: versions(Digests::SUFFIX),
        }
    }

    /// Returns the first version in a range that has no commit.
    pub(super) fn first_missing(&self, first: u64, last: u64) -> Option<u64> {
        let start = self.commits.partition_point(|&version| version < first);
        let mut expected = first;
        for &version in &self.commits[start..] {
            if version != expected || version >= last {
                break;
            }
            expected += 1;
        }
        let found = self.commits.binary_search(&expected).is_ok();
        (first <= last && !(found && expected == last)).then_some(expected)
    }

    pub(super) fn newest_commit(&self) -> Option<u64> {
        self.commits.last().copied()
    }

    /// Returns the version of the newest digests up to a version; 0 = none.
    pub(super) fn newest_digests(&self, version: u64) -> u64 {
        let after = self.digests.partition_point(|&of| of <= version);
        self.digests[..after].last().copied().unwrap_or(0)
    }

    /// Returns the newest version of any checkpoint or file of digests. A commit of that version has existed.
    pub(super) fn newest_shortcut(&self) -> Option<u64> {
        self.checkpoints.last().max(self.digests.last()).copied()
    }

    /// Returns whether every version of any file has a commit.
    pub(super) fn is_complete(&self) -> bool {
        let newest = self.newest_commit().max(self.newest_shortcut());
        self.commits.first() == Some(&1) && newest == Some(self.commits.len() as u64)
    }
}

impl Checkpoint {
    pub(super) const SUFFIX: &str = ".checkpoint.json";

    pub(super) fn path(version: u64) -> String {
        format!("{}/{version:020}{}", Log::FOLDER, Checkpoint::SUFFIX)
    }

    /// Reads the checkpoint of a version; returns `None` if there is no such file.
    pub(super) fn read(storage: &Storage, version: u64) -> Result<Option<Checkpoint>> {
        let path = Checkpoint::path(version);
        let Some(bytes) = storage.read(&path)? else { return Ok(None) };
        let (checkpoint, _): (Checkpoint, _) = unseal(&bytes, &storage.path(&path))?;
        if checkpoint.commit.version != version {
            let found = checkpoint.commit.version.to_string();
            return Err(damaged(&storage.path(&path), "version", version.to_string(), found));
        }
        checkpoint.commit.check(&storage.path(&path))?;
        Ok(Some(checkpoint))
    }

    /// Publishes the checkpoint of a version, unless it exists already.
    pub(super) fn write(storage: &Storage, snapshot: &Snapshot) -> Result<()> {
        let commit = Commit { add: Vec::new(), remove: Vec::new(), ..snapshot.newest.clone() };
        let checkpoint = Checkpoint {
            schema_version: commit.schema_version,
            commit_crc32c: snapshot.newest_crc.clone(),
            files: snapshot.files.clone(),
            history: snapshot.history.clone(),
            commit,
        };
        storage.put_new(&Checkpoint::path(snapshot.newest.version), seal(&checkpoint)?).map(|_| ())
    }

    /// Returns the checksum by which the next commit names this version's commit.
    pub(super) fn crc(&self) -> &str {
        &self.commit_crc32c
    }

    /// Returns the first part that differs from the commits.
    pub(super) fn difference(&self, expected: &Snapshot) -> Option<&'static str> {
        let plain = |commit: &Commit| Commit { add: Vec::new(), remove: Vec::new(), ..commit.clone() };
        if self.commit_crc32c != expected.newest_crc || plain(&self.commit) != plain(&expected.newest) {
            Some("commit of the checkpoint")
        } else if self.files != expected.files {
            Some("files of the checkpoint")
        } else {
            (self.history != expected.history).then_some("history of the checkpoint")
        }
    }

    pub(super) fn into_snapshot(self) -> Snapshot {
        Snapshot {
            checkpoint: self.commit.version,
            digests: 0,
            newest: self.commit,
            newest_crc: self.commit_crc32c,
            files: self.files,
            history: self.history,
        }
    }
}

/// Returns whether enough commits follow the last checkpoint that a new checkpoint saves time.
///
/// The distance grows with the log, so the total size of all checkpoints stays proportional to the log.
pub(super) fn is_due(snapshot: &Snapshot) -> bool {
    let version = snapshot.newest.version;
    version - snapshot.checkpoint >= (version / 16).clamp(16, 256)
}

/// Decides like [`is_due`], but for digests. Without digests, a writer reads a file of `runs` for each later
/// commit, which takes longer than the commit itself. Digests take at most 64 KiB per commit.
pub(super) fn are_digests_due(snapshot: &Snapshot, digests: &Digests) -> bool {
    snapshot.newest.version - snapshot.digests >= (digests.len() as u64 / 4096).clamp(16, 256)
}

/// Removes all but the newest checkpoints and digests.
pub(super) fn prune(storage: &Storage, log: &Log) -> Result<()> {
    const KEPT: usize = 2;
    let names = log.names()?;
    let older = |versions: &[u64]| versions[..versions.len().saturating_sub(KEPT)].to_vec();
    for version in older(&names.checkpoints) {
        storage.remove(&Checkpoint::path(version))?;
    }
    for version in older(&names.digests) {
        storage.remove(&Digests::path(version))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Phases;

    #[test]
    fn digests_come_more_rarely_the_more_runs_there_are() {
        let mut digests = Digests::default();
        let mut snapshot = Snapshot::first(Commit::first(Phases::default()), String::new());
        for (num_runs, distance) in [(0_u32, 16), (80_000, 19), (200_000, 48)] {
            for run in 0..num_runs {
                let mut digest = [0; 32];
                digest[..4].copy_from_slice(&run.to_le_bytes());
                digests.insert(&digest);
            }
            // At these versions, checkpoints are 125 versions apart.
            (snapshot.newest.version, snapshot.digests) = (2_000 + distance - 1, 2_000);
            assert!(!are_digests_due(&snapshot, &digests), "{num_runs} runs");
            snapshot.newest.version += 1;
            assert!(are_digests_due(&snapshot, &digests), "{num_runs} runs");
        }
    }

    #[test]
    fn the_newest_digests_up_to_a_version() {
        let digests = vec![16, 32, 48];
        let names = Names { digests, ..Names::default() };
        assert_eq!([15, 16, 40, 48, 50].map(|version| names.newest_digests(version)), [0, 16, 32, 48, 48]);
    }
}
