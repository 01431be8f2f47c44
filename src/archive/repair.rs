//! Going on from the last sound version, when commits after it are damaged or missing.
//!
//! What can still be known of the versions after it is kept: the newest sound checkpoint among them has all of its version,
//! and sound commits after the gap say what they added and removed. The oldest of these commits is replaced, in one step,
//! by one that leads from the last sound version to all of that; then the others are set aside as
//! `_log/<n>.json.damaged`, where a copy of the oldest is already. The new commit's next run id is above every id in any
//! data file, so that those which damaged commits gave out are not given out again.

use super::TableName;
use super::checkpoint::{Checkpoint, Names};
use super::commit::{Commit, DataFile, Operation};
use super::digests::Digests;
use super::log::{Log, Snapshot, commit_path};
use super::read::run_ids;
use super::storage::Storage;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::{Progress, check};
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

/// What the names of files that were set aside contain.
pub(super) const ASIDE: &str = ".damaged";

/// One step of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repair {
    /// The file, relative to the archive.
    pub path: String,
    /// What happens to it.
    pub action: String,
    /// Why.
    pub reason: String,
}

/// What a repair did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// The last sound version, from which the archive goes on.
    pub version: u64,
    /// In their order; none if nothing is damaged that a repair could mend.
    pub steps: Vec<Repair>,
    /// Whether the steps were taken.
    pub done: bool,
}

pub(super) fn repair(storage: &Storage, dry_run: bool, progress: &dyn Progress) -> Result<RepairReport> {
    let log = Log::new(storage);
    // What is no archive is not to get a lock.
    log.names()?;
    let _lock = match dry_run {
        true => None,
        false => storage.lock(Log::LOCK, Duration::from_secs(60), progress)?,
    };
    let names = log.names()?;
    let sound = last_sound(&log, &names)?;
    let version = sound.newest.version;
    let mut report = RepairReport { version, steps: Vec::new(), done: false };
    let numbers: BTreeSet<u64> =
        names.commits.iter().chain(&names.checkpoints).copied().filter(|&number| number > version).collect();
    let commit = match numbers.is_empty() {
        true => None,
        false => Some(successor(storage, &log, &names, &sound)?),
    };

    // What is set aside, and under which name.
    let mut renamed: Vec<(String, String)> = Vec::new();
    // Checkpoints and digests only repeat what commits say: those of commits that go, go with them.
    let checkpoints = names.checkpoints.iter().rev().map(|&of| (of, Checkpoint::path(of)));
    let digests = names.digests.iter().rev().map(|&of| (of, Digests::path(of)));
    for (of, path) in checkpoints.chain(digests) {
        let reason = match of > version {
            true => format!("version {of} is replaced"),
            false => match check_shortcut(storage, of, &path) {
                Err(error) => error.message(),
                Ok(()) => continue,
            },
        };
        let aside = free_name(storage, &path)?;
        report.steps.push(Repair { path: path.clone(), action: format!("set aside as {aside}"), reason });
        renamed.push((path, aside));
    }
    let replacement = commit.as_ref().map(|commit| {
        let runs = commit.num_runs.saturating_sub(sound.newest.num_runs);
        format!("a commit that goes on from version {version}, with {runs} runs that could be taken over")
    });
    for &number in names.commits.iter().rev().filter(|&&number| number > version) {
        let path = commit_path(number);
        let reason = match log.commit(number) {
            Ok(_) => "it follows on damage; the files that it added are taken over".into(),
            Err(error) => error.message(),
        };
        let aside = free_name(storage, &path)?;
        let action = match &replacement {
            Some(replacement) if number == version + 1 => {
                format!("set aside as {aside}, and replaced by {replacement}")
            }
            _ => format!("set aside as {aside}"),
        };
        report.steps.push(Repair { path: path.clone(), action, reason });
        renamed.push((path, aside));
    }
    if let Some(replacement) = replacement
        && !names.commits.contains(&(version + 1))
    {
        let (path, reason) = (commit_path(version + 1), "it is missing".into());
        report.steps.push(Repair { path, action: format!("written: {replacement}"), reason });
    }
    if dry_run || report.steps.is_empty() {
        return Ok(report);
    }
    // From here on it goes through to its end.
    check(progress)?;
    let replaced = commit_path(version + 1);
    for (path, aside) in &renamed {
        match *path == replaced {
            true => storage.copy(path, aside)?,
            false => storage.set_aside(path, aside)?,
        }
    }
    if let Some(commit) = commit {
        storage.replace(&replaced, commit.to_bytes()?)?;
    }
    report.done = true;
    Ok(report)
}

/// A name that nothing has yet.
fn free_name(storage: &Storage, path: &str) -> Result<String> {
    let mut name = format!("{path}{ASIDE}");
    let mut attempt = 1;
    while storage.read(&name)?.is_some() {
        attempt += 1;
        name = format!("{path}{ASIDE}.{attempt}");
    }
    Ok(name)
}

/// The newest version that can be read.
fn last_sound(log: &Log, names: &Names) -> Result<Snapshot> {
    let mut newest_error = match log.replay(None) {
        Ok(snapshot) => return Ok(snapshot),
        Err(error) => damage(error)?,
    };
    for &version in names.commits.iter().rev() {
        match log.replay(Some(version)) {
            // The newest version may be whole in a checkpoint while its commit is damaged.
            Ok(snapshot) if log.commit(version).is_ok() => return Ok(snapshot),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::VersionNotFound { .. }) => {}
            Err(error) => newest_error = damage(error)?,
        }
    }
    Err(newest_error)
}

/// Neither a newer schema nor a disk that does not answer is damage.
fn damage(error: Error) -> Result<Error> {
    if matches!(error.kind(), ErrorKind::Damaged { .. }) { Ok(error) } else { Err(error) }
}

/// The commit that leads from the last sound version to all that is known of the versions after it.
fn successor(storage: &Storage, log: &Log, names: &Names, sound: &Snapshot) -> Result<Commit> {
    let mut commit = sound.next(Operation::Repair);
    let mut state = sound.clone();
    for &version in names.checkpoints.iter().rev().filter(|&&version| version > sound.newest.version) {
        if let Ok(Some(checkpoint)) = Checkpoint::read(storage, version)
            && checkpoint.archive_id() == sound.newest.archive_id
        {
            state = checkpoint.into_snapshot();
            break;
        }
    }
    let known = state.newest.version;
    for &version in names.commits.iter().filter(|&&version| version > known) {
        if let Ok((later, crc)) = log.commit(version)
            && later.archive_id == sound.newest.archive_id
        {
            commit.first_version = commit.first_version.max(later.first_version.min(commit.version));
            state.apply(later, crc);
        }
    }
    // Two files of one table with the same ids would be one run twice.
    let mut files: Vec<DataFile> = Vec::new();
    state.files.sort_by_key(|file| file.first_run_id);
    for file in state.files {
        let overlaps = |other: &&DataFile| other.table == file.table && other.last_run_id >= file.first_run_id;
        if files.iter().rev().find(|other| other.table == file.table).filter(overlaps).is_none()
            && storage.open(&file.path)?.is_some()
        {
            files.push(file);
        }
    }
    let before: HashSet<&str> = sound.files.iter().map(|file| file.path.as_str()).collect();
    let after: HashSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let rows = |table| files.iter().filter(|file| file.table == table).map(|file| file.num_rows).sum();
    (commit.num_runs, commit.num_steps) = (rows(TableName::Runs), rows(TableName::Steps));
    commit.remove = sound.files.iter().filter(|f| !after.contains(f.path.as_str())).map(|f| f.path.clone()).collect();
    commit.add = files.iter().filter(|file| !before.contains(file.path.as_str())).cloned().collect();
    commit.next_run_id = next_run_id(storage, state.newest.next_run_id.max(sound.newest.next_run_id))?;
    Ok(commit)
}

/// Whether a checkpoint or a file of digests is what it should be.
fn check_shortcut(storage: &Storage, version: u64, path: &str) -> Result<()> {
    match path.ends_with(Digests::SUFFIX) {
        false => Checkpoint::read(storage, version).map(|_| ()),
        true => match storage.read(path)? {
            Some(bytes) => Digests::from_bytes(&bytes, &storage.path(path)).map(|_| ()),
            None => Ok(()),
        },
    }
}

/// An id above all that were ever given out, as far as any file tells.
fn next_run_id(storage: &Storage, known: u64) -> Result<u64> {
    let mut next = known;
    for table in TableName::ALL {
        for entry in storage.list(table.name())?.unwrap_or_default() {
            // A file that cannot be read, or is not one of ours, has no ids that anybody could have seen.
            if entry.name.ends_with(".parquet")
                && let Ok(Some((_, last))) = run_ids(storage, &format!("{table}/{}", entry.name))
            {
                next = next.max(u64::from(last) + 1);
            }
        }
    }
    Ok(next)
}
