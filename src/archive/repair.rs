//! Going on from the last sound version, when the commits after it are damaged.
//!
//! The damaged commits are set aside as `_log/<n>.json.damaged`, newest first; the oldest of them is replaced, in one
//! step, by a commit that changes nothing but the next run id: above every id in any data file, so that the ids which the
//! damaged commits gave out are not given out again.

use super::TableName;
use super::checkpoint::Checkpoint;
use super::commit::{DataFile, Operation};
use super::digests::Digests;
use super::log::{Log, Snapshot, commit_path};
use super::read::run_ids;
use super::storage::Storage;
use crate::error::{Error, ErrorKind, Result};
use std::time::Duration;

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

pub(super) fn repair(storage: &Storage, dry_run: bool) -> Result<RepairReport> {
    let log = Log::new(storage);
    let names = log.names()?;
    let newest = names.newest_commit().unwrap_or_default();
    let _lock = match dry_run {
        true => None,
        false => storage.lock(Log::LOCK, Duration::from_secs(60), &())?,
    };
    let (sound, reasons) = last_sound(&log, newest)?;
    let version = sound.newest.version;
    let mut report = RepairReport { version, steps: Vec::new(), done: false };

    // Checkpoints and digests only repeat what commits say: those of commits that go go with them.
    for (versions, path) in
        [(&names.checkpoints, Checkpoint::path as fn(u64) -> String), (&names.digests, Digests::path)]
    {
        for &of in versions.iter().rev() {
            let reason = match of > version {
                true => "it belongs to a damaged commit".to_owned(),
                false => match check_shortcut(storage, &path(of)) {
                    Err(error) if of != sound.newest.first_version => error.message(),
                    _ => continue,
                },
            };
            report.steps.push(Repair { path: path(of), action: format!("set aside as {}", aside(&path(of))), reason });
        }
    }
    for (of, reason) in reasons {
        let path = commit_path(of);
        let action = match of == version + 1 {
            true => {
                format!("set aside as {}, and replaced by a commit that follows on version {version}", aside(&path))
            }
            false => format!("set aside as {}", aside(&path)),
        };
        report.steps.push(Repair { path, action, reason });
    }
    if dry_run || report.steps.is_empty() {
        return Ok(report);
    }
    let replaced = commit_path(version + 1);
    for step in report.steps.iter().filter(|step| step.path != replaced) {
        storage.set_aside(&step.path, &aside(&step.path))?;
    }
    if newest > version {
        let mut commit = sound.next(Operation::Repair);
        commit.next_run_id = next_run_id(storage, &sound)?;
        storage.copy(&replaced, &aside(&replaced))?;
        storage.replace(&replaced, commit.to_bytes()?)?;
    }
    report.done = true;
    Ok(report)
}

fn aside(path: &str) -> String {
    format!("{path}.damaged")
}

/// The newest version that can be read, and the commits after it with what is wrong about them, newest first.
fn last_sound(log: &Log, newest: u64) -> Result<(Snapshot, Vec<(u64, String)>)> {
    let mut reasons = Vec::new();
    for version in (1..=newest).rev() {
        match log.replay(if version == newest { None } else { Some(version) }) {
            Ok(snapshot) => return Ok((snapshot, reasons)),
            Err(error) if matches!(error.kind(), ErrorKind::Damaged { .. }) => {
                reasons.push((version, error.message()));
                if version == 1 {
                    return Err(error);
                }
            }
            // Neither a newer schema nor a disk that does not answer is damage.
            Err(error) => return Err(error),
        }
    }
    let path = log.names().map(|_| commit_path(newest))?;
    Err(Error::from(std::io::Error::other(format!("{path}: no version can be read"))))
}

/// Whether a checkpoint or a file of digests is what it should be.
fn check_shortcut(storage: &Storage, path: &str) -> Result<()> {
    let Some(bytes) = storage.read(path)? else { return Ok(()) };
    match path.ends_with(Digests::SUFFIX) {
        true => Digests::from_bytes(&bytes, &storage.path(path)).map(|_| ()),
        false => super::commit::check_seal(&bytes, &storage.path(path)).map(|_| ()),
    }
}

/// An id above all that were ever given out, as far as any file tells.
fn next_run_id(storage: &Storage, sound: &Snapshot) -> Result<u64> {
    let mut next = sound.newest.next_run_id;
    for table in TableName::ALL {
        for entry in storage.list(table.name())?.unwrap_or_default() {
            if !entry.name.ends_with(".parquet") {
                continue;
            }
            let path = format!("{}/{}", table.name(), entry.name);
            let file = DataFile {
                table,
                path,
                num_rows: 0,
                num_bytes: entry.num_bytes,
                crc32c: String::new(),
                first_run_id: 0,
                last_run_id: 0,
            };
            // A file that cannot be read has no ids that anybody could have seen.
            if let Ok(Some((_, last))) = run_ids(storage, &file) {
                next = next.max(u64::from(last) + 1);
            }
        }
    }
    Ok(next)
}
