//! Giving up old versions, and removing what no kept version names.
//!
//! First a commit gives the versions up, then their files go. Interrupted anywhere, the next `expire` goes on. The commits
//! themselves stay: a number that was once taken must never be free again, or a writer who was away for long could
//! publish under it what nobody would ever see.

use super::TableName;
use super::commit::{CommitInfo, Operation};
use super::log::{Log, Snapshot};
use super::repair::ASIDE;
use super::storage::{Entry, Storage};
use super::transaction::{DEFAULT_WAIT, Outcome, transact, write_checkpoint};
use crate::error::Result;
use crate::progress::{Progress, check};
use crate::publish::Staged;
use chrono::DateTime;
use std::collections::HashSet;
use std::time::{Duration, SystemTime};

/// What to give up.
#[derive(Clone, Debug)]
pub struct ExpireOptions {
    /// Versions that were replaced by newer ones longer ago than this. The newest is always kept.
    pub older_than: Duration,
    /// Files that no commit names, as interrupted writers leave them, stay for so long after they were last changed: they
    /// may belong to a writer elsewhere that has yet to commit. While a repair has set commits aside
    /// (`_log/*.damaged*`), such files stay in any case, as they may be all that is left of these.
    pub grace: Duration,
    /// Only say what would go.
    pub dry_run: bool,
    /// How long to wait while another process of this machine writes to the archive, before
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict).
    pub wait: Duration,
}

impl Default for ExpireOptions {
    /// Thirty days, and one day of grace.
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        ExpireOptions { older_than: 30 * DAY, grace: DAY, dry_run: false, wait: DEFAULT_WAIT }
    }
}

/// What was given up, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[derive(serde::Serialize)]
pub struct ExpireReport {
    /// The oldest version that can be opened since.
    pub first_version: u64,
    /// Versions that cannot be opened any more.
    pub num_versions: u64,
    /// Data files that were removed.
    pub num_files: u64,
    /// Their bytes.
    pub num_bytes: u64,
    /// Everything that was removed, relative to the archive: data files, and leftovers of interrupted writers.
    pub paths: Vec<String>,
}

pub(super) fn expire(
    storage: &Storage,
    options: &ExpireOptions,
    progress: &dyn Progress,
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
        // Changes nothing, so it neither waits for others nor keeps them out.
        let snapshot = log.replay(None)?;
        let mut report = report_of(&snapshot);
        sweep.find(&snapshot, &mut report, progress)?;
        return Ok((report, snapshot));
    }
    let outcome = transact(storage, options.wait, progress, |_, snapshot| {
        let report = report_of(snapshot);
        if report.num_versions == 0 {
            return Ok((None, report));
        }
        let mut commit = snapshot.next(Operation::Expire);
        commit.first_version = report.first_version;
        Ok((Some(commit), report))
    })?;
    // The lock is held until the end.
    let Outcome { snapshot, value: mut report, committed, lock } = outcome;
    if committed {
        // Reading what is kept is not to depend on commits of what is not; this may fail, as they stay all the same.
        write_checkpoint(storage, &snapshot).ok();
    }
    sweep.find(&snapshot, &mut report, progress)?;
    for path in &report.paths {
        check(progress)?;
        storage.remove(path)?;
    }
    drop(lock);
    Ok((report, snapshot))
}

/// The oldest version that was still the newest when the time to keep began.
fn first_kept(snapshot: &Snapshot, now: SystemTime, older_than: Duration) -> u64 {
    let first_version = snapshot.newest.first_version;
    let Some(cutoff) = now.checked_sub(older_than) else { return first_version };
    let made_before = |commit: &&CommitInfo| {
        DateTime::parse_from_rfc3339(&commit.time).is_ok_and(|time| SystemTime::from(time) <= cutoff)
    };
    // A version is replaced when the next is made; one of them was the newest at the cutoff.
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
    /// Adds to a report what can go.
    fn find(&self, snapshot: &Snapshot, report: &mut ExpireReport, progress: &dyn Progress) -> Result<()> {
        let first = self.log.replay(Some(report.first_version))?;
        let mut kept: HashSet<String> = first.files.into_iter().map(|file| file.path).collect();
        for commit in self.log.commits(report.first_version + 1..=snapshot.newest.version)? {
            kept.extend(commit?.add.into_iter().map(|file| file.path));
        }
        // Read only if somebody has to know.
        let mut given_up: Option<HashSet<String>> = None;
        let log = self.storage.list(Log::FOLDER)?.unwrap_or_default();
        let repaired = log.iter().any(|entry| entry.name.contains(ASIDE));
        for table in TableName::ALL {
            for entry in self.storage.list(table.name())?.unwrap_or_default() {
                check(progress)?;
                let path = format!("{table}/{}", entry.name);
                if entry.name.ends_with(".parquet") && !kept.contains(&path) {
                    let given_up = given_up.get_or_insert_with(|| {
                        // A damaged commit that was given up says nothing: age decides about its files.
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
        report.paths.extend(leftovers.map(|entry| format!("{}/{}", Log::FOLDER, entry.name)));
        Ok(())
    }

    /// Whether it was staged by a writer that has not touched it for long.
    fn is_leftover(&self, entry: &Entry) -> bool {
        let (prefix, suffix) = Staged::AFFIXES;
        entry.name.starts_with(prefix) && entry.name.ends_with(suffix) && self.is_old(entry)
    }

    fn is_old(&self, entry: &Entry) -> bool {
        self.now.duration_since(entry.modified).is_ok_and(|age| age >= self.options.grace)
    }
}
