//! Expiry: dropping old versions, and removing the files that no remaining version needs.
//!
//! First a commit drops the versions, then their files are removed. An interrupted `expire` is continued by the
//! next one.
//!
//! The commits themselves stay, so that no version number becomes free again. Otherwise a writer that was
//! suspended for long could publish a commit under an old number, which no reader would see.

use super::checkpoint_writer::write_checkpoint;
use super::commit::{CommitInfo, Operation};
use super::listing::ListedFile;
use super::log::Log;
use super::log_names::{ASIDE, LOG_FOLDER};
use super::snapshot::Snapshot;
use super::storage::Storage;
use super::table_name::TableName;
use super::transaction::{DEFAULT_WAIT, TransactionOutcome, transact};
use crate::cancellation::CancellationToken;
use crate::error::Result;
use crate::publish::Staged;
use chrono::DateTime;
use derive_setters::Setters;
use std::collections::HashSet;
use std::time::{Duration, SystemTime};

/// Options of [`Archive::expire`](super::Archive::expire).
///
/// Set fields with the `with_*` methods: `ExpireOptions::default().with_dry_run(true)`.
#[derive(Clone, Debug, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct ExpireOptions {
    /// Versions that were replaced longer ago than this expire. The newest version never expires.
    pub older_than: Duration,
    /// The minimum age of unreferenced files that are removed, counted from their last change.
    ///
    /// Interrupted writers leave such files, but they may also belong to a writer elsewhere that has not
    /// committed yet. All unreferenced files are kept while the log holds commits that a repair has set aside
    /// (`_log/*.damaged*`). They may hold the only data of these commits.
    pub grace: Duration,
    /// Only reports what would be removed.
    pub dry_run: bool,
}

impl Default for ExpireOptions {
    /// Returns thirty days for `older_than`, and one day for `grace`.
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        ExpireOptions { older_than: 30 * DAY, grace: DAY, dry_run: false }
    }
}

/// The result of an expiry or of a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[derive(serde::Serialize)]
pub struct ExpireReport {
    /// The oldest version that can still be opened.
    pub first_version: u64,
    /// The number of versions that expired.
    pub num_versions: u64,
    /// The number of removed data files.
    pub num_files: u64,
    /// The total size of the removed data files.
    pub num_bytes: u64,
    /// All removed files, relative to the archive: data files, and temporary files of interrupted writers.
    pub paths: Vec<String>,
}

pub(super) fn expire(
    storage: &Storage,
    options: &ExpireOptions,
    cancel: &CancellationToken,
) -> Result<(ExpireReport, Snapshot)> {
    let now = SystemTime::now();
    let log = Log::new(storage);
    let report_of = |snapshot: &Snapshot| {
        let first_version = first_kept(snapshot, now, options.older_than);
        let num_versions = first_version - snapshot.newest.first_version;
        ExpireReport { first_version, num_versions, ..ExpireReport::default() }
    };
    let sweep = Sweep { storage, log: &log, options, now };
    if options.dry_run {
        // A dry run changes nothing, so it needs no lock.
        let snapshot = log.replay(None)?;
        let mut report = report_of(&snapshot);
        sweep.find(&snapshot, &mut report, cancel)?;
        return Ok((report, snapshot));
    }
    let outcome = transact(storage, DEFAULT_WAIT, cancel, |_, snapshot| {
        let report = report_of(snapshot);
        if report.num_versions == 0 {
            return Ok((None, report));
        }
        let mut commit = snapshot.next(Operation::Expire);
        commit.first_version = report.first_version;
        Ok((Some(commit), report))
    })?;
    // The lock is held until the end.
    let TransactionOutcome { snapshot, value: mut report, committed, lock } = outcome;
    if committed {
        // A checkpoint makes the remaining versions readable without the commits of the expired ones. A failure
        // is harmless, because these commits stay.
        write_checkpoint(storage, &snapshot).ok();
    }
    sweep.find(&snapshot, &mut report, cancel)?;
    for path in &report.paths {
        cancel.check()?;
        storage.remove(path)?;
    }
    drop(lock);
    Ok((report, snapshot))
}

/// Returns the oldest version that was still the newest at `now - older_than`.
fn first_kept(snapshot: &Snapshot, now: SystemTime, older_than: Duration) -> u64 {
    let first_version = snapshot.newest.first_version;
    let Some(cutoff) = now.checked_sub(older_than) else { return first_version };
    let made_before = |commit: &&CommitInfo| {
        DateTime::parse_from_rfc3339(&commit.time).is_ok_and(|time| SystemTime::from(time) <= cutoff)
    };
    // A version is replaced when the next one is made, so one version was the newest at the cutoff.
    let newest_then = snapshot.history.iter().rev().find(made_before);
    newest_then.map_or(first_version, |commit| commit.version.max(first_version))
}

struct Sweep<'a> {
    storage: &'a Storage,
    log: &'a Log,
    options: &'a ExpireOptions,
    now: SystemTime,
}

impl Sweep<'_> {
    /// Adds to a report all files that can be removed.
    fn find(&self, snapshot: &Snapshot, report: &mut ExpireReport, cancel: &CancellationToken) -> Result<()> {
        let first = self.log.replay(Some(report.first_version))?;
        let mut kept: HashSet<String> = first.files.into_iter().map(|file| file.path).collect();
        for commit in self.log.commits(report.first_version + 1..=snapshot.newest.version)? {
            kept.extend(commit?.add.into_iter().map(|file| file.path));
        }
        // The expired commits are read only if an unreferenced file exists.
        let mut given_up: Option<HashSet<String>> = None;
        let log = self.storage.list(LOG_FOLDER)?.unwrap_or_default();
        let repaired = log.iter().any(|entry| entry.name.contains(ASIDE));
        for table in TableName::ALL {
            for entry in self.storage.list(table.name())?.unwrap_or_default() {
                cancel.check()?;
                let path = format!("{table}/{}", entry.name);
                if entry.name.ends_with(".parquet") && !kept.contains(&path) {
                    let given_up = given_up.get_or_insert_with(|| {
                        // If such a commit is damaged, the age of its files decides.
                        let commits = self.log.commits(1..=report.first_version).into_iter().flatten().flatten();
                        commits.flat_map(|commit| commit.add).map(|file| file.path).collect()
                    });
                    if given_up.contains(&path) || (self.is_old(&entry) && !repaired) {
                        report.num_files += 1;
                        report.num_bytes += entry.num_bytes;
                        report.paths.push(path);
                    }
                } else if self.is_leftover(&entry) {
                    report.paths.push(path);
                }
            }
        }
        let leftovers = log.iter().filter(|entry| self.is_leftover(entry));
        report.paths.extend(leftovers.map(|entry| format!("{}/{}", LOG_FOLDER, entry.name)));
        Ok(())
    }

    /// Returns whether the file is an old temporary file of a writer.
    fn is_leftover(&self, entry: &ListedFile) -> bool {
        let (prefix, suffix) = Staged::AFFIXES;
        entry.name.starts_with(prefix) && entry.name.ends_with(suffix) && self.is_old(entry)
    }

    fn is_old(&self, entry: &ListedFile) -> bool {
        self.now.duration_since(entry.modified).is_ok_and(|age| age >= self.options.grace)
    }
}
