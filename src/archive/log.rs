//! The commit log: the contents of an archive at each version.
//!
//! Version `n` is the file `_log/<n in 20 digits>.json`, in the format of `commit.rs`. A writer publishes a
//! commit by creating the file of the next number, which fails if the file exists. So one of two concurrent writers
//! succeeds, and the other detects that it lost.
//!
//! A version holds the files that commits up to it added and did not remove. With a checkpoint
//! (`checkpoint.rs`), a reader need not read the log from the beginning.

use super::checkpoint::Checkpoint;
use super::checksummed_json::check_seal;
use super::commit::Commit;
use super::last_checkpoint::{first_listed, names_from};
use super::log_names::{LOG_FOLDER, LogNames, commit_path};
use super::problem::damaged;
use super::snapshot::Snapshot;
use super::storage::Storage;
use crate::error::{Error, ErrorKind, Result};
use crate::publish::Published;
use bytes::Bytes;
use std::ops::RangeInclusive;
use std::path::Path;
use tracing::info;

/// The log of an archive.
#[derive(Clone, Debug)]
pub(super) struct Log {
    storage: Storage,
}

/// The maximum number of listings when files vanish between listing and reading, because versions expire.
const ATTEMPTS: usize = 5;

/// The maximum number of commits that are read instead of a later checkpoint. Usually, about this many commits at
/// most follow a checkpoint.
const MAX_COMMITS: u64 = 256;

impl Log {
    pub(super) fn new(storage: &Storage) -> Log {
        Log { storage: storage.clone() }
    }

    /// Publishes a commit and returns the new contents. Returns `None` if another commit has the same number:
    /// then this one was not published.
    ///
    /// # Errors
    /// After [`ErrorKind::Unconfirmed`], the commit may have been published; the log shows it later. After any
    /// other error, it was not published.
    pub(super) fn append(&self, snapshot: Option<Snapshot>, commit: &Commit) -> Result<Option<Snapshot>> {
        let path = commit_path(commit.version);
        let unconfirmed = |error: Error| -> Error {
            let (path, version) = (self.storage.path(&path), commit.version);
            ErrorKind::Unconfirmed { path, version, reason: error.to_string() }.into()
        };
        let bytes = commit.to_bytes()?;
        let outcome = self.storage.put_new(&path, bytes.clone());
        // Read the log, because the response alone can mislead: if a request was retried, the name may be taken by
        // this very commit.
        let standing = match self.storage.read(&path) {
            Ok(standing) => standing,
            Err(error) => return Err(unconfirmed(outcome.err().unwrap_or(error))),
        };
        let ours = match &standing {
            None => false,
            Some(standing) if *standing == bytes => true,
            Some(standing) => match Commit::from_bytes(standing, &self.storage.path(&path)) {
                Ok((standing, _)) => standing.txn == commit.txn,
                Err(error) => return Err(unconfirmed(error)),
            },
        };
        let committed = || {
            let crc = check_seal(&bytes, &self.storage.path(&path))?;
            info!(
                target: "a2store::commit",
                archive = %self.storage.root().display(),
                version = commit.version,
                operation = commit.operation.name(),
                added_files = commit.add.len(),
                removed_files = commit.remove.len(),
                runs = commit.num_runs,
                steps = commit.num_steps,
                "published a version"
            );
            Ok(Some(Snapshot::after(snapshot, commit.clone(), crc).sort()))
        };
        match outcome {
            Ok(_) if ours => committed(),
            Ok(Published::Taken) => Ok(None),
            Ok(Published::New) => {
                let found = if standing.is_some() { "another commit" } else { "no file" };
                Err(damaged(&self.storage.path(&path), "commit", "the commit just published", found))
            }
            // In an object store, a visible commit is durable. In a folder, a crash may still remove its name.
            Err(error) if ours && self.storage.is_local() => Err(unconfirmed(error)),
            Err(_) if ours => committed(),
            Err(_) if standing.is_some() => Ok(None),
            // An object store may still receive the request.
            Err(error) if !self.storage.is_local() => Err(unconfirmed(error)),
            Err(error) => Err(error),
        }
    }

    /// Returns the contents of the archive at its newest version, and makes that version durable, so that a
    /// writer can build on it.
    pub(super) fn replay_durable(&self, base: Option<&Snapshot>) -> Result<Snapshot> {
        let snapshot = self.replay_from(base)?;
        self.storage.sync(&commit_path(snapshot.newest.version))?;
        self.storage.sync(LOG_FOLDER)?;
        Ok(snapshot)
    }

    /// Returns the contents of the archive at its newest version. If `base` is an earlier version of this log,
    /// reads only the commits from `base` on.
    ///
    /// In any unexpected case, calls [`replay`](Self::replay), which reports it.
    pub(super) fn replay_from(&self, base: Option<&Snapshot>) -> Result<Snapshot> {
        match base.map(|base| self.try_replay_from(base)) {
            Some(Ok(Some(snapshot))) => Ok(snapshot),
            _ => self.replay(None),
        }
    }

    /// Returns `None` if the log does not lead from `base` to its newest version, or if a checkpoint is the
    /// shorter way.
    fn try_replay_from(&self, base: &Snapshot) -> Result<Option<Snapshot>> {
        let names = names_from(&self.storage, base.newest.version)?.ok_or_else(|| self.missing())?;
        let (first, checkpoint) = (base.newest.version, names.checkpoints.last().copied().unwrap_or(0));
        let shortcut = names.newest_shortcut().unwrap_or(0);
        let Some(newest) = names.newest_commit().filter(|&newest| newest >= first.max(shortcut)) else {
            return Ok(None);
        };
        if checkpoint > first + MAX_COMMITS || names.first_missing(first, newest).is_some() {
            return Ok(None);
        }
        let mut snapshot = base.clone();
        // The distance to the next checkpoint counts from the newest one.
        snapshot.checkpoint = snapshot.checkpoint.max(checkpoint);
        snapshot.digests = snapshot.digests.max(names.newest_digests(newest));
        let paths = (first..=newest).map(commit_path).collect();
        for (number, bytes) in (first..=newest).zip(self.storage.read_all(paths)?) {
            let Some(bytes) = bytes? else { return Ok(None) };
            let path = self.storage.path(&commit_path(number));
            let (commit, crc) = Commit::from_bytes(&bytes, &path)?;
            if number == first {
                if crc != base.newest_crc {
                    return Ok(None);
                }
                continue;
            }
            check_link(&commit, number, Some(snapshot.newest_crc.clone()), &path)?;
            snapshot.apply(commit, crc);
        }
        Ok(Some(snapshot.sort()))
    }

    /// Returns the contents of the archive at a version, or at the newest.
    pub(super) fn replay(&self, version: Option<u64>) -> Result<Snapshot> {
        let mut attempt = 1;
        loop {
            match self.try_replay(version) {
                Ok(Some(snapshot)) => return Ok(snapshot),
                Err(error) if attempt == ATTEMPTS || !is_gone(&error) => return Err(error),
                Ok(None) | Err(_) => attempt += 1,
            }
        }
    }

    /// Returns `None` if files have vanished since they were listed.
    fn try_replay(&self, version: Option<u64>) -> Result<Option<Snapshot>> {
        if version.is_none()
            && let Some(names) = self.recent_names()?
            && let Some(snapshot) = self.replay_names(&names, None, true)?
        {
            return Ok(Some(snapshot));
        }
        self.replay_names(&self.names()?, version, false)
    }

    /// Lists the files of the log from the newest checkpoint and digests on. Returns `None` if this listing is not
    /// enough.
    pub(super) fn recent_names(&self) -> Result<Option<LogNames>> {
        let Some(first) = first_listed(&self.storage)? else { return Ok(None) };
        let names = names_from(&self.storage, first)?;
        Ok(names.filter(|names| {
            let newest = names.newest_commit().unwrap_or(0);
            let checkpoint = names.checkpoints.iter().rev().find(|&&version| version <= newest);
            checkpoint.is_some_and(|&version| names.first_missing(version, newest).is_none())
        }))
    }

    /// Returns the contents according to a listing. A partial one lacks early versions.
    fn replay_names(&self, names: &LogNames, version: Option<u64>, is_partial: bool) -> Result<Option<Snapshot>> {
        let newest = names.newest_commit().ok_or_else(|| self.missing())?;
        if let Some(later) = names.newest_shortcut()
            && version.is_none()
            && later > newest
        {
            return Err(self.gone(later, "the commit of its checkpoint"));
        }
        let target = version.unwrap_or(newest);
        if let Some(version) = version {
            // The commits of expired versions are still in the log, but their files may be gone. If the newest
            // commit is damaged, no file of the versions that it dropped has been removed yet.
            let oldest = self.commit(newest).map_or(1, |(commit, _)| commit.first_version);
            if !(oldest..=newest).contains(&version) {
                let path = self.storage.root().to_path_buf();
                return Err(ErrorKind::VersionNotFound { path, version, oldest, newest }.into());
            }
        }
        let mut snapshot = self.base(names, target)?;
        if is_partial && snapshot.is_none() {
            // The listed checkpoints are damaged, so the commits before them are needed.
            return Ok(None);
        }
        let first = snapshot.as_ref().map_or(1, |snapshot| snapshot.newest.version + 1);
        if first > target && target == newest {
            // The checkpoint has the whole version. The newest commit is read only to report damage to it.
            self.commit(target).map_err(|error| self.hint(error, target, newest))?;
        }
        if let Some(missing) = names.first_missing(first, target) {
            return Err(self.gone(missing, "a commit, because later ones exist"));
        }
        let paths = (first..=target).map(commit_path).collect();
        for (number, bytes) in (first..=target).zip(self.storage.read_all(paths)?) {
            let bytes = bytes?.ok_or_else(|| self.gone(number, "a commit, because later ones exist"))?;
            let path = self.storage.path(&commit_path(number));
            let (commit, crc) = Commit::from_bytes(&bytes, &path).map_err(|error| self.hint(error, number, newest))?;
            let parent = snapshot.as_ref().map(|snapshot| snapshot.newest_crc.clone());
            check_link(&commit, number, parent, &path).map_err(|error| self.hint(error, number, newest))?;
            snapshot = Some(Snapshot::after(snapshot.take(), commit, crc));
        }
        let digests = names.newest_digests(target);
        Ok(snapshot.map(|snapshot| Snapshot { digests, ..snapshot.sort() }))
    }

    /// Returns the newest usable checkpoint up to a version. Skips damaged ones: they only repeat commits.
    fn base(&self, names: &LogNames, target: u64) -> Result<Option<Snapshot>> {
        for &version in names.checkpoints.iter().rev().filter(|&&version| version <= target) {
            if let Ok(Some(checkpoint)) = Checkpoint::read(&self.storage, version)
                && self.has_crc(version, checkpoint.crc())?
            {
                return Ok(Some(checkpoint.into_snapshot()));
            }
        }
        Ok(None)
    }

    /// Returns whether the next commit names this version by this checksum. Returns true if the version's
    /// commit is missing or damaged.
    pub(super) fn has_crc(&self, version: u64, crc: &str) -> Result<bool> {
        let path = commit_path(version);
        let Some(bytes) = self.storage.read(&path)? else { return Ok(true) };
        // Damage to the commit does not affect a checkpoint that was made before.
        Ok(Commit::from_bytes(&bytes, &self.storage.path(&path)).map_or(true, |(_, found)| found == crc))
    }

    /// Returns a version's commit, and the checksum that the next commit has as its `parent`.
    pub(super) fn commit(&self, version: u64) -> Result<(Commit, String)> {
        let path = commit_path(version);
        let bytes = self.storage.read(&path)?.ok_or_else(|| self.gone(version, "a commit"))?;
        Commit::from_bytes(&bytes, &self.storage.path(&path))
    }

    /// Returns the commits of a range of versions, or the error of each unreadable one.
    pub(super) fn commits(&self, versions: RangeInclusive<u64>) -> Result<Vec<Result<Commit>>> {
        let numbers: Vec<u64> = versions.collect();
        let files = self.storage.read_all(numbers.iter().copied().map(commit_path).collect())?;
        let parse = |(number, file): (u64, Result<Option<Bytes>>)| {
            let bytes = file?.ok_or_else(|| self.gone(number, "a commit"))?;
            Commit::from_bytes(&bytes, &self.storage.path(&commit_path(number))).map(|(commit, _)| commit)
        };
        Ok(numbers.into_iter().zip(files).map(parse).collect())
    }

    /// Lists the files of the log, and lists them again if one seems to be missing. A listing is not atomic: it
    /// can hold a later file without the earlier one.
    pub(super) fn settled_names(&self) -> Result<LogNames> {
        let mut names = self.names()?;
        for _ in 1..ATTEMPTS {
            if names.is_complete() {
                break;
            }
            names = self.names()?;
        }
        Ok(names)
    }

    /// Lists the files of the log.
    pub(super) fn names(&self) -> Result<LogNames> {
        match self.storage.names(LOG_FOLDER)? {
            Some(names) => Ok(LogNames::new(&names)),
            None if !self.storage.is_local() || self.storage.root().is_dir() => Err(self.missing()),
            None => {
                let root = self.storage.root();
                let source = std::fs::metadata(root).err().unwrap_or_else(|| std::io::ErrorKind::NotADirectory.into());
                Err(Error::io(root, source))
            }
        }
    }

    /// Adds a hint to an error about damage to the newest commit.
    fn hint(&self, error: Error, number: u64, newest: u64) -> Error {
        match error.into_kind() {
            ErrorKind::Damaged { path, what, expected, found } if number == newest && number > 1 => {
                let found =
                    format!("{found}; version {} can still be opened, and `repair` continues from it", number - 1);
                ErrorKind::Damaged { path, what, expected, found }.into()
            }
            kind => kind.into(),
        }
    }

    pub(super) fn gone(&self, version: u64, expected: &str) -> Error {
        damaged(&self.storage.path(&commit_path(version)), "commit", expected, "no file")
    }

    fn missing(&self) -> Error {
        let path = self.storage.root().to_path_buf();
        ErrorKind::NotAnArchive { path, missing: "_log/00000000000000000001.json" }.into()
    }
}

/// Returns whether the error is about a missing file.
fn is_gone(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Damaged { found, .. } if found == "no file")
}

/// Checks that a commit has the expected version and parent.
pub(super) fn check_link(commit: &Commit, number: u64, parent: Option<String>, path: &Path) -> Result<()> {
    if commit.version != number {
        return Err(damaged(path, "version", number.to_string(), commit.version.to_string()));
    }
    if commit.parent != parent {
        let name = |parent: Option<String>| parent.unwrap_or_else(|| "none".into());
        return Err(damaged(path, "CRC32C of the commit before", name(parent), name(commit.parent.clone())));
    }
    Ok(())
}
