//! One change to an archive: alone on this machine, tried again when a writer elsewhere was faster.

use super::checkpoint::{self, Checkpoint};
use super::commit::Commit;
use super::digests::Digests;
use super::log::{Log, Snapshot};
use super::storage::{Backoff, Lock, Storage};
use crate::error::{ErrorKind, Result};
use crate::progress::{Progress, check};
use std::time::Duration;

/// How long writers wait for others of their machine, unless told otherwise.
pub(super) const DEFAULT_WAIT: Duration = Duration::from_secs(600);

/// How a transaction ended.
pub(super) struct Outcome<T> {
    /// What the archive holds now.
    pub(super) snapshot: Snapshot,
    /// What the last attempt gave.
    pub(super) value: T,
    /// Whether there was anything to commit.
    pub(super) committed: bool,
    /// Other writers of this machine wait until this is dropped.
    pub(super) lock: Option<Lock>,
}

/// Attempts that lose to other writers before this one gives up. Each pause is longer than the one before.
const ATTEMPTS: usize = 40;

/// Makes a commit from what the archive holds, and again from what it holds then if another was published first.
///
/// The data files that a losing commit names are removed: no other can name them, as their names are the transaction's
/// own.
pub(super) fn transact<T>(
    storage: &Storage,
    wait: Duration,
    progress: &dyn Progress,
    attempt: impl FnMut(&Log, &Snapshot) -> Result<(Option<Commit>, T)>,
) -> Result<Outcome<T>> {
    transact_from(storage, None, wait, progress, attempt)
}

/// As [`transact`], but reuses the content of `base`, an earlier version.
pub(super) fn transact_from<T>(
    storage: &Storage,
    base: Option<&Snapshot>,
    wait: Duration,
    progress: &dyn Progress,
    mut attempt: impl FnMut(&Log, &Snapshot) -> Result<(Option<Commit>, T)>,
) -> Result<Outcome<T>> {
    let log = Log::new(storage);
    // What is no archive is not to get a lock.
    if storage.is_local() && !storage.path(Log::FOLDER).is_dir() {
        log.names()?;
    }
    let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(2));
    for _ in 0..ATTEMPTS {
        check(progress)?;
        let lock = storage.lock(Log::LOCK, wait, progress)?;
        let snapshot = log.replay_durable(base)?;
        let (commit, value) = attempt(&log, &snapshot)?;
        let Some(commit) = commit else {
            return Ok(Outcome { snapshot, value, committed: false, lock });
        };
        if let Err(error) = check(progress) {
            discard(storage, &commit);
            return Err(error);
        }
        if let Some(snapshot) = log.append(Some(snapshot), &commit)? {
            return Ok(Outcome { snapshot, value, committed: true, lock });
        }
        drop(lock);
        discard(storage, &commit);
        backoff.sleep();
    }
    let what = format!("other writers committed first, {ATTEMPTS} times");
    Err(ErrorKind::Conflict { path: storage.root().to_path_buf(), what }.into())
}

/// Removes the data files of a commit that certainly never took place. What cannot be removed is left to `expire`.
fn discard(storage: &Storage, commit: &Commit) {
    for file in &commit.add {
        storage.remove(&file.path).ok();
    }
}

/// Writes a checkpoint and digests when they are due. Errors are ignored: the commit is already durable, and these
/// files only make later reads faster.
pub(super) fn checkpoint(storage: &Storage, snapshot: &Snapshot, digests: &Digests) {
    let due = (checkpoint::is_due(snapshot), checkpoint::are_digests_due(snapshot, digests));
    write(storage, snapshot, due.0, Some(digests).filter(|_| due.1)).ok();
}

pub(super) fn write_checkpoint(storage: &Storage, snapshot: &Snapshot) -> Result<()> {
    write(storage, snapshot, true, None)
}

fn write(storage: &Storage, snapshot: &Snapshot, is_checkpoint: bool, digests: Option<&Digests>) -> Result<()> {
    if let Some(digests) = digests {
        digests.write(storage, snapshot)?;
    }
    if is_checkpoint {
        Checkpoint::write(storage, snapshot)?;
    }
    match is_checkpoint || digests.is_some() {
        true => checkpoint::prune(storage, &Log::new(storage)),
        false => Ok(()),
    }
}
