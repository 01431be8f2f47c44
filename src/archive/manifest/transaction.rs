//! Transactions: one change to an archive, tried again if another writer commits first.

use super::Manifest;
use super::data_file::DataFile;
use super::versions::{Publication, Versions};
use crate::archive::storage::{Guard, Storage};
use crate::error::{ErrorKind, Result};
use crate::system::cancellation::CancellationToken;
use chrono::DateTime;
use std::collections::HashSet;
use std::time::{Duration, SystemTime};
use tracing::warn;

/// How long a transaction waits for other writers, and how often it is tried.
#[derive(Clone, Copy, Debug)]
pub(in crate::archive) struct Patience {
    /// The longest wait for other writers of this machine.
    pub(in crate::archive) wait: Duration,
    /// The number of attempts. All but the last end because another writer commits first.
    pub(in crate::archive) attempts: usize,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { wait: Duration::from_secs(600), attempts: 40 }
    }
}

/// The result of a transaction.
pub(in crate::archive) struct TransactionOutcome<T> {
    /// The contents of the archive after the transaction.
    pub(in crate::archive) manifest: Manifest,
    /// The value that the last preparation returned.
    pub(in crate::archive) value: T,
    /// The lock among the writers of this machine.
    pub(in crate::archive) lock: Option<Guard>,
}

/// After this time since the newest version was read, another writer has probably committed, so it is read again.
const FRESH: Duration = Duration::from_secs(1);
/// The number of times that it is read again for this reason.
const MAX_STALE: usize = 5;

/// The largest difference between the clocks of writers and of the storage.
const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);

/// A change that was prepared for a version, and whose data files are written.
struct Prepared<T> {
    /// The time before the first data file was written.
    begun: SystemTime,
    /// The first version that the change may have become.
    first_try: u64,
    base: Manifest,
    next: Manifest,
    value: T,
}

/// What an attempt holds when it ends.
struct Held<T> {
    prepared: Option<Prepared<T>>,
    lock: Option<Guard>,
}

/// Prepares the next version on the newest one and publishes it.
///
/// If another writer commits first, the change is moved to its version, with the same data files, unless [`rebased`] or
/// `holds` says no. `holds` gets the version that the change was prepared for, the newest one, and the value. Otherwise
/// the files are removed, and the change is prepared again. No other version can list these files, because their names
/// contain the id of the transaction.
///
/// `seen` is a version that the caller has read: the newest one must not be older.
pub(in crate::archive) fn transact<T>(
    storage: &Storage,
    seen: &Manifest,
    patience: Patience,
    cancel: &CancellationToken,
    prepare: impl FnMut(&Manifest) -> Result<(Option<Manifest>, T)>,
    holds: impl FnMut(&Manifest, &Manifest, &mut T) -> Result<bool>,
) -> Result<TransactionOutcome<T>> {
    let mut held = Held { prepared: None, lock: None };
    let outcome = attempt(storage, seen, patience, cancel, prepare, holds, &mut held);
    storage.queue.leave();
    // In a folder, without the lock, a `restore` could adopt these files before they are removed.
    if let Err(error) = &outcome
        && !matches!(error.kind(), ErrorKind::Unconfirmed { .. })
        && (held.lock.is_some() || storage.is_remote())
    {
        discard(storage, held.prepared.take());
    }
    outcome
}

/// Attempts to publish a change. After an error, `held` has the change that was not published, and the lock.
fn attempt<T>(
    storage: &Storage,
    seen: &Manifest,
    patience: Patience,
    cancel: &CancellationToken,
    mut prepare: impl FnMut(&Manifest) -> Result<(Option<Manifest>, T)>,
    mut holds: impl FnMut(&Manifest, &Manifest, &mut T) -> Result<bool>,
    held: &mut Held<T>,
) -> Result<TransactionOutcome<T>> {
    let Held { prepared, lock } = held;
    let versions = Versions::new(storage);
    let (mut attempts, mut num_stale) = (0, 0);
    while attempts < patience.attempts {
        cancel.check()?;
        *lock = None;
        *lock = versions.lock(patience.wait, cancel)?;
        let newest = versions.newest()?;
        versions.check_follows(&newest, seen)?;
        versions.make_durable(newest.version)?;
        let read_at = storage.now();
        let num_others = prepared.as_ref().map(|change| newest.version - change.base.version);
        let next_run_id = newest.next_run_id;
        let mut moved = prepared.as_ref().and_then(|change| rebased(change, &newest));
        if moved.is_some()
            && let Some(change) = &mut *prepared
        {
            let outcome = holds(&change.base, &newest, &mut change.value);
            if unless_gone(&versions, &newest, outcome)? != Some(true) {
                moved = None;
            }
        }
        match (prepared.take(), moved) {
            (Some(change), Some(next)) => *prepared = Some(Prepared { base: newest, next, ..change }),
            (earlier, _) => {
                attempts += usize::from(earlier.is_some());
                discard(storage, earlier);
                let outcome = prepare(&newest);
                let Some((next, value)) = unless_gone(&versions, &newest, outcome)? else {
                    attempts += 1;
                    continue;
                };
                let Some(next) = next else {
                    return Ok(TransactionOutcome { manifest: newest, value, lock: lock.take() });
                };
                *prepared = Some(Prepared { begun: read_at, first_try: next.version, base: newest, next, value });
            }
        }
        if lock.is_none() {
            let num_before = storage.queue.num_before(next_run_id);
            if num_before > 0 && num_others != Some(0) {
                storage.queue.pause_for(num_before, &**storage, cancel)?;
                continue;
            }
            let age = storage.now().duration_since(read_at).unwrap_or_default();
            if age > FRESH && num_stale < MAX_STALE {
                num_stale += 1;
                continue;
            }
        }
        cancel.check()?;
        let Some(change) = prepared.take() else { continue };
        match versions.publish(change.next.clone()) {
            Ok(Publication::New(manifest)) => {
                return Ok(TransactionOutcome { manifest: *manifest, value: change.value, lock: lock.take() });
            }
            Ok(Publication::Taken) => *prepared = Some(change),
            // A tag or a later version may list its files.
            Ok(Publication::Late) => {}
            Err(error) => {
                *prepared = Some(change);
                return Err(error);
            }
        }
        (attempts, num_stale) = (attempts + 1, 0);
        warn!(
            target: "a2store::retry",
            archive = %storage.root().display(),
            attempts,
            "another writer committed first"
        );
        *lock = None;
        storage.queue.pause_after(attempts, &**storage, cancel)?;
    }
    let what = format!("other writers committed first; attempts: {attempts}");
    Err(ErrorKind::Conflict { path: storage.root().to_path_buf(), what }.into())
}

/// Returns an outcome; `None` for the error of a version that has expired since it was read, so that its files are gone.
fn unless_gone<T>(versions: &Versions, version: &Manifest, outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Err(error) if matches!(error.kind(), ErrorKind::Damaged { .. }) => match versions.open(Some(version.version)) {
            Err(gone) if matches!(gone.kind(), ErrorKind::VersionNotFound { .. }) => Ok(None),
            found => Err(found.err().unwrap_or(error)),
        },
        outcome => outcome.map(Some),
    }
}

/// Returns a change as a change to a later version. Returns `None`
/// - if it has no new files, so that it can be prepared again at no cost,
/// - if an expiry may have removed its files: it has swept since `base`, or the change may have been published and
///   have expired,
/// - if a file that it removes is gone, or
/// - if a file that came meanwhile has run ids among those of a new file.
fn rebased<T>(prepared: &Prepared<T>, newest: &Manifest) -> Option<Manifest> {
    let Prepared { begun, first_try, base, next, .. } = prepared;
    let (before, after, current) = (base.paths(), next.paths(), newest.paths());
    let removed: HashSet<String> = before.difference(&after).map(|&path| path.to_owned()).collect();
    let added: Vec<DataFile> = next.files.iter().filter(|file| !before.contains(&*file.path)).cloned().collect();
    let mut others = newest.files.iter().filter(|file| !before.contains(&*file.path));
    let is_free = others.all(|other| added.iter().all(|file| file.is_apart_from(other)));
    let cutoff = newest.unlisted_before.as_deref().and_then(|time| DateTime::parse_from_rfc3339(time).ok());
    let has_swept = newest.unlisted_before != base.unlisted_before;
    let is_young = !has_swept || cutoff.is_none_or(|cutoff| SystemTime::from(cutoff) + CLOCK_SKEW < *begun);
    if *first_try < newest.first_version
        || added.is_empty()
        || !is_free
        || !is_young
        || !removed.iter().all(|path| current.contains(&**path))
    {
        return None;
    }
    let mut moved = newest.next(next.operation);
    moved.txn.clone_from(&next.txn);
    moved.next_run_id = next.next_run_id.max(newest.next_run_id);
    moved.replace(&removed, added);
    Some(moved)
}

/// Removes the data files of a change that was not published, unless a `restore` has adopted them meanwhile. `expire`
/// removes those that cannot be removed here.
fn discard<T>(storage: &Storage, change: Option<Prepared<T>>) {
    let Some(change) = change else { return };
    let Ok(newest) = Versions::new(storage).newest() else { return };
    if change.first_try < newest.first_version {
        // The change may have been published and have expired before its writer saw the answer. Later versions may list
        // its files.
        return;
    }
    let listed = newest.paths();
    for path in change.next.own_paths().filter(|path| !listed.contains(path)) {
        storage.remove(path).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{Archive, CompactOptions, ExpireOptions, IngestOptions, Phases};
    use crate::format::tests::samples::game;
    use crate::format::{RunFormat, encode_run};

    #[test]
    fn the_files_of_a_change_stay_if_its_version_may_have_expired() {
        let (folder, cancel) = (tempfile::tempdir().unwrap(), CancellationToken::never());
        let path = folder.path().join("games.a2");
        let mut archive = Archive::create(&path, Phases::default()).unwrap();
        let ingest = |archive: &mut Archive, seed: u64| {
            let run = folder.path().join("run");
            std::fs::write(&run, encode_run(&game(seed, 3), RunFormat::A2run2).unwrap()).unwrap();
            archive.ingest([&run], &IngestOptions::default(), &(), cancel).unwrap();
        };
        ingest(&mut archive, 1);
        let next = (*archive.manifest).clone();
        ingest(&mut archive, 2);
        archive.tag("kept", None).unwrap();
        archive.compact(&CompactOptions::default(), &(), cancel).unwrap();
        archive.expire(&ExpireOptions::default().with_older_than(Duration::ZERO), cancel).unwrap();
        discard(
            &archive.storage,
            Some(Prepared { begun: SystemTime::now(), first_try: 2, base: next.clone(), next, value: () }),
        );
        let report = Archive::verify(&path, None, &archive.storage_options(), &(), cancel).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
}
