//! Transactions: one change to an archive under a lock, retried if a writer on another machine commits first.

use super::Manifest;
use super::versions::{LOCK, VERSIONS_FOLDER, Versions};
use crate::archive::storage::Storage;
use crate::archive::storage::lock::{Backoff, Lock};
use crate::cancellation::CancellationToken;
use crate::error::{ErrorKind, Result};
use std::time::Duration;
use tracing::warn;

/// The default for the longest wait for other writers of this machine.
pub(in crate::archive) const DEFAULT_WAIT: Duration = Duration::from_secs(600);

/// The result of a transaction.
pub(in crate::archive) struct TransactionOutcome<T> {
    /// The contents of the archive after the transaction.
    pub(in crate::archive) manifest: Manifest,
    /// The value that the last attempt returned.
    pub(in crate::archive) value: T,
    /// The lock among the writers of this machine.
    pub(in crate::archive) lock: Option<Lock>,
}

/// The number of attempts. The pauses between attempts grow.
const ATTEMPTS: usize = 40;

/// Builds the next version on the newest one and publishes it. If another writer commits first, tries again on its
/// version. `seen` is a version that the caller has read: the newest one must not be older.
///
/// The data files of a losing version are removed. No other version can name them, because their names contain
/// the id of the transaction.
pub(in crate::archive) fn transact<T>(
    storage: &Storage,
    seen: &Manifest,
    wait: Duration,
    cancel: &CancellationToken,
    mut attempt: impl FnMut(&Manifest) -> Result<(Option<Manifest>, T)>,
) -> Result<TransactionOutcome<T>> {
    let versions = Versions::new(storage);
    // A folder that is not an archive must not get a lock file.
    if storage.is_local() && !storage.path(VERSIONS_FOLDER).is_dir() {
        versions.list()?;
    }
    let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(2));
    for attempts in 1..=ATTEMPTS {
        cancel.check()?;
        let lock = storage.lock(LOCK, wait, cancel)?;
        let newest = versions.newest_durable(seen)?;
        let (next, value) = attempt(&newest)?;
        let Some(next) = next else {
            return Ok(TransactionOutcome { manifest: newest, value, lock });
        };
        if let Err(error) = cancel.check() {
            discard(storage, &versions, &next);
            return Err(error);
        }
        if let Some(manifest) = versions.publish(next.clone())? {
            return Ok(TransactionOutcome { manifest, value, lock });
        }
        warn!(
            target: "a2store::retry",
            archive = %storage.root().display(),
            version = next.version,
            attempts,
            "another writer committed this version first"
        );
        drop(lock);
        discard(storage, &versions, &next);
        backoff.sleep();
    }
    let what = format!("other writers committed first, {ATTEMPTS} times");
    Err(ErrorKind::Conflict { path: storage.root().to_path_buf(), what }.into())
}

/// Removes the data files of a version that was certainly not published, unless a `restore` has adopted them meanwhile.
/// `expire` removes those that cannot be removed here.
fn discard(storage: &Storage, versions: &Versions, manifest: &Manifest) {
    let Ok(newest) = versions.newest() else { return };
    let listed = newest.paths();
    for path in manifest.own_paths().filter(|path| !listed.contains(path)) {
        storage.remove(path).ok();
    }
}
