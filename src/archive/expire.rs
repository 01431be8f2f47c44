//! Giving up old versions, and removing what no kept version names.
//!
//! First the checkpoint of the oldest kept version is published, then the commit that gives up those before, then their
//! commits go, then their files. Interrupted anywhere, the next `expire` goes on.

use super::TableName;
use super::checkpoint::Checkpoint;
use super::commit::{CommitInfo, Operation};
use super::log::{Log, Snapshot, commit_path};
use super::publish::Staged;
use super::storage::{Entry, Storage};
use super::transaction::{DEFAULT_WAIT, Outcome, transact, write_checkpoint};
use crate::error::Result;
use crate::progress::{Progress, check};
use chrono::DateTime;
use std::collections::HashSet;
use std::time::{Duration, SystemTime};

/// What to give up.
#[derive(Clone, Debug)]
pub struct ExpireOptions {
    /// Versions that were replaced by newer ones longer ago than this. The newest is always kept.
    pub older_than: Duration,
    /// Files that no commit names, as interrupted writers leave them, stay for so long after they were last changed: they
    /// may belong to a writer elsewhere that has yet to commit.
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
pub struct ExpireReport {
    /// The oldest version that can be opened since.
    pub first_version: u64,
    /// Versions that cannot be opened any more.
    pub num_versions: u64,
    /// Data files that were removed.
    pub num_files: u64,
    /// Their bytes.
    pub num_bytes: u64,
    /// Everything that was removed, relative to the archive: data files, commits, leftovers of interrupted writers.
    pub paths: Vec<String>,
}

pub(super) fn expire(
    storage: &Storage,
    options: &ExpireOptions,
    progress: &dyn Progress,
) -> Result<(ExpireReport, Snapshot)> {
    let now = SystemTime::now();
    let outcome = transact(storage, options.wait, progress, |log, snapshot| {
        let before = snapshot.newest.first_version;
        let first_version = first_kept(snapshot, now, options.older_than);
        let report = ExpireReport { first_version, num_versions: first_version - before, ..ExpireReport::default() };
        if first_version == before || options.dry_run {
            return Ok((None, report));
        }
        // What the oldest kept version is read from, once the commits before it are gone.
        Checkpoint::write(storage, &log.replay(Some(first_version))?)?;
        let mut commit = snapshot.next(Operation::Expire);
        commit.first_version = first_version;
        Ok((Some(commit), report))
    })?;
    // The lock is held until the end.
    let Outcome { snapshot, value: mut report, committed, lock } = outcome;
    if committed {
        // Twice is safer: the newest version gets a checkpoint of its own as well.
        write_checkpoint(storage, &snapshot, None)?;
    }
    let sweep = Sweep { storage, log: Log::new(storage), options, now };
    for (path, num_bytes) in sweep.find(&snapshot, report.first_version, progress)? {
        check(progress)?;
        if !options.dry_run {
            storage.remove(&path)?;
        }
        if path.ends_with(".parquet") {
            report.num_files += 1;
            report.num_bytes += num_bytes;
        }
        report.paths.push(path);
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
    log: Log,
    options: &'a ExpireOptions,
    now: SystemTime,
}

impl Sweep<'_> {
    /// What can go, commits before the files that they name, with lengths.
    fn find(&self, snapshot: &Snapshot, first_version: u64, progress: &dyn Progress) -> Result<Vec<(String, u64)>> {
        let mut paths = Vec::new();
        // Commits go only if the first kept version can be read without them.
        let first = self.log.replay(Some(first_version))?;
        let mut given_up = HashSet::new();
        for version in self.log.names()?.commits.into_iter().take_while(|&version| version < first_version) {
            check(progress)?;
            let (commit, _) = self.log.commit(version)?;
            given_up.extend(commit.add.into_iter().map(|file| file.path));
            paths.push((commit_path(version), 0));
        }
        let mut kept: HashSet<String> =
            first.files.into_iter().chain(snapshot.files.iter().cloned()).map(|f| f.path).collect();
        for version in first_version + 1..=snapshot.newest.version {
            kept.extend(self.log.commit(version)?.0.add.into_iter().map(|file| file.path));
        }
        for table in TableName::ALL {
            check(progress)?;
            for entry in self.storage.list(table.name())?.unwrap_or_default() {
                let path = format!("{}/{}", table.name(), entry.name);
                let nobodys = entry.name.ends_with(".parquet") && !kept.contains(&path);
                if nobodys && (given_up.contains(&path) || self.is_old(&entry)) || self.is_leftover(&entry) {
                    paths.push((path, entry.num_bytes));
                }
            }
        }
        let log = self.storage.list(Log::FOLDER)?.unwrap_or_default();
        let leftovers = log.iter().filter(|entry| self.is_leftover(entry));
        paths.extend(leftovers.map(|entry| (format!("{}/{}", Log::FOLDER, entry.name), entry.num_bytes)));
        Ok(paths)
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
