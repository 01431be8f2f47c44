//! Checkpoints: the contents of one version in one file, so that readers need not read every commit since the
//! first.
//!
//! `_log/<n>.checkpoint.json` holds version `n`'s commit, its files and one line for each earlier commit. It
//! has the same trailer as a commit. `_log/<n>.digests` lists the runs of version `n` for writers
//! (`digests.rs`).
//!
//! Both only repeat commits and data files, and can be deleted at any time. The two newest of each are kept.

use super::checksummed_json::{Sealed, seal, unseal};
use super::commit::{Commit, CommitInfo};
use super::data_file::DataFile;
use super::log_names::checkpoint_path;
use super::problem::damaged;
use super::snapshot::Snapshot;
use super::storage::Storage;
use crate::error::Result;
use serde::{Deserialize, Serialize};

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

impl Checkpoint {
    /// Reads the checkpoint of a version; returns `None` if there is no such file.
    pub(super) fn read(storage: &Storage, version: u64) -> Result<Option<Checkpoint>> {
        let path = checkpoint_path(version);
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
        storage.put_new(&checkpoint_path(snapshot.newest.version), seal(&checkpoint)?).map(|_| ())
    }

    /// Returns the checksum of this version's commit that the next commit has as its `parent`.
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
