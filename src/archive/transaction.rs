//! Transactions: one change to an archive under a lock, retried if a writer on another machine commits first.

use super::commit::Commit;
use super::lock::{Backoff, Lock};
use super::log::Log;
use super::log_names::{LOG_FOLDER, LOG_LOCK};
use super::snapshot::Snapshot;
use super::storage::Storage;
use crate::cancellation::CancellationToken;
use crate::error::{ErrorKind, Result};
use std::time::Duration;
use tracing::warn;

/// The default for the longest wait for other writers of this machine.
pub(super) const DEFAULT_WAIT: Duration = Duration::from_secs(600);

/// The result of a transaction.
pub(super) struct TransactionOutcome<T> {
    /// The contents of the archive after the transaction.
    pub(super) snapshot: Snapshot,
    /// The value that the last attempt returned.
    pub(super) value: T,
    /// Whether a commit was published.
    pub(super) committed: bool,
    /// The lock among the writers of this machine.
    pub(super) lock: Option<Lock>,
}

/// The number of attempts. The pauses between attempts grow.
const ATTEMPTS: usize = 40;

/// Builds a commit on the newest version and publishes it. If another writer commits first, tries again on its
/// version.
///
/// The data files of a losing commit are removed. No other commit can name them, because their names contain
/// the id of the transaction.
pub(super) fn transact<T>(
    storage: &Storage,
    wait: Duration,
    cancel: &CancellationToken,
    attempt: impl FnMut(&Log, &Snapshot) -> Result<(Option<Commit>, T)>,
) -> Result<TransactionOutcome<T>> {
    transact_from(storage, None, wait, cancel, attempt)
}

/// Runs a transaction like [`transact`], but reads only the commits after `base`, an earlier version.
pub(super) fn transact_from<T>(
    storage: &Storage,
    base: Option<&Snapshot>,
    wait: Duration,
    cancel: &CancellationToken,
    mut attempt: impl FnMut(&Log, &Snapshot) -> Result<(Option<Commit>, T)>,
) -> Result<TransactionOutcome<T>> {
    let log = Log::new(storage);
    // A folder that is not an archive must not get a lock file.
    if storage.is_local() && !storage.path(LOG_FOLDER).is_dir() {
        log.names()?;
    }
    let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(2));
    let mut read: Option<Snapshot> = None;
    for attempts in 1..=ATTEMPTS {
        cancel.check()?;
        let lock = storage.lock(LOG_LOCK, wait, cancel)?;
        let snapshot = log.replay_durable(read.as_ref().or(base))?;
        let (commit, value) = attempt(&log, &snapshot)?;
        let Some(commit) = commit else {
            return Ok(TransactionOutcome { snapshot, value, committed: false, lock });
        };
        if let Err(error) = cancel.check() {
            discard(storage, &commit);
            return Err(error);
        }
        // Under a lock, no writer of this machine can win the race.
        read = lock.is_none().then(|| snapshot.clone());
        if let Some(snapshot) = log.append(Some(snapshot), &commit)? {
            return Ok(TransactionOutcome { snapshot, value, committed: true, lock });
        }
        warn!(
            target: "a2store::retry",
            archive = %storage.root().display(),
            version = commit.version,
            attempts,
            "another writer committed this version first"
        );
        drop(lock);
        discard(storage, &commit);
        backoff.sleep();
    }
    let what = format!("other writers committed first, {ATTEMPTS} times");
    Err(ErrorKind::Conflict { path: storage.root().to_path_buf(), what }.into())
}

/// Removes the data files of a commit that was certainly not published. `expire` removes those that cannot be
/// removed here.
fn discard(storage: &Storage, commit: &Commit) {
    for file in &commit.add {
        storage.remove(&file.path).ok();
    }
}
