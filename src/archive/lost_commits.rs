//! Lost commits, rebuilt from a checkpoint.
//!
//! A sound checkpoint of version n has one history line for each version up to n, and the files of version n.
//! These are enough to rebuild a damaged or missing commit before it. The history line has the commit's
//! numbers. The commit's files are those that no other commit added or removed.
//!
//! A rebuilt commit keeps the checksum that the next commit expects (`Commit::stands_for`), so all other
//! commits stay unchanged.

use super::checkpoint::Checkpoint;
use super::checksummed_json::check_seal;
use super::commit::{Commit, CommitInfo, Operation};
use super::data_file::DataFile;
use super::log_names::{LogNames, checkpoint_path, commit_path};
use super::parquet_footer::measure;
use super::snapshot::Snapshot;
use super::storage::Storage;
use super::table_name::TableName;
use crate::error::{ErrorKind, Result};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The commits by version. A readable commit comes with the checksum that the next commit has as its `parent`, any
/// other with its error.
pub(super) type Commits = BTreeMap<u64, Result<(Commit, String)>>;

/// Returns the newest sound checkpoint that belongs to these commits.
pub(super) fn newest_sound_checkpoint(
    storage: &Storage,
    names: &LogNames,
    commits: &Commits,
    leftovers: &BTreeSet<String>,
) -> Result<Option<Snapshot>> {
    for &version in names.checkpoints.iter().rev().filter(|&&version| !leftovers.contains(&checkpoint_path(version))) {
        let checkpoint = unless_damaged(Checkpoint::read(storage, version))?.flatten().map(Checkpoint::into_snapshot);
        if let Some(checkpoint) = checkpoint.filter(|checkpoint| is_of(checkpoint, commits)) {
            return Ok(Some(checkpoint));
        }
    }
    Ok(None)
}

/// Returns `None` for damage. An I/O error and a newer schema are not damage.
fn unless_damaged<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), ErrorKind::Damaged { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether a checkpoint belongs to the same archive as these commits: its history names their
/// transactions. Ignores commits that do not follow on the commit before them.
fn is_of(checkpoint: &Snapshot, commits: &Commits) -> bool {
    let newest = &checkpoint.newest;
    let history = &checkpoint.history;
    let complete = history.len() as u64 == newest.version
        && history.iter().zip(1..).all(|(line, version)| line.version == version)
        && history.last().is_some_and(|line| line.txn == newest.txn);
    let mut readable = commits.values().flatten().peekable();
    let mut known = readable.peek().is_none();
    let fits = complete
        && commits.range(1..=newest.version).all(|(&number, commit)| {
            let Ok((commit, crc)) = commit else { return true };
            if history.get(number as usize - 1).is_some_and(|line| line.txn == commit.txn) {
                known = true;
                return number != newest.version || *crc == checkpoint.newest_crc;
            }
            let follows = match number {
                1 => commit.archive_id == newest.archive_id,
                _ => commits
                    .get(&(number - 1))
                    .and_then(|before| before.as_ref().ok())
                    .is_some_and(|(_, crc)| commit.parent.as_ref() == Some(crc)),
            };
            !follows
        });
    fits && known
}

/// A rebuilder of the lost commits that a checkpoint covers.
pub(super) struct CommitRebuilder<'a> {
    storage: &'a Storage,
    /// The contents of the archive at the checkpoint's version.
    pub(super) anchor: &'a Snapshot,
    /// The paths that sound commits up to the checkpoint added, and those that they removed.
    added: HashSet<String>,
    removed: HashSet<String>,
    /// The paths of the checkpoint's files.
    kept: HashSet<&'a str>,
}

impl<'a> CommitRebuilder<'a> {
    pub(super) fn new(storage: &'a Storage, anchor: &'a Snapshot, commits: &Commits) -> Result<CommitRebuilder<'a>> {
        let (mut added, mut removed) = (HashSet::new(), HashSet::new());
        for (number, commit) in commits.range(1..=anchor.newest.version) {
            if let Some((commit, _)) = own(anchor, *number, commit) {
                added.extend(commit.add.iter().map(|file| file.path.clone()));
                removed.extend(commit.remove.iter().cloned());
            }
        }
        let kept = anchor.files.iter().map(|file| file.path.as_str()).collect();
        Ok(CommitRebuilder { storage, anchor, added, removed, kept })
    }

    /// Rebuilds a version's commit from the versions before it. Returns the commit, the checksum that the next commit
    /// has as its `parent`, and the bytes of its file.
    pub(super) fn rebuild(
        &self,
        number: u64,
        before: Option<&Snapshot>,
        later: &Commits,
    ) -> Result<(Commit, String, Vec<u8>)> {
        let newest = &self.anchor.newest;
        let following =
            (number < newest.version).then(|| own(self.anchor, number + 1, later.get(&(number + 1))?)).flatten();
        let line = &self.anchor.history[number as usize - 1];
        let at_checkpoint = number == newest.version;
        let first_version = match (before, following) {
            _ if at_checkpoint => newest.first_version,
            (_, Some((next, _))) if line.operation == Operation::Expire => next.first_version,
            (Some(before), _) => before.newest.first_version,
            (None, _) => 1,
        };
        let mut commit = Commit {
            version: number,
            parent: before.map(|before| before.newest_crc.clone()),
            txn: line.txn.clone(),
            time: line.time.clone(),
            operation: line.operation,
            first_version: first_version.clamp(1, number),
            next_run_id: line.next_run_id,
            num_runs: line.num_runs,
            num_steps: line.num_steps,
            add: self.added_by(line)?,
            remove: self.removed_by(line, before),
            stands_for: None,
            line: None,
            replaces: Vec::new(),
            ..newest.clone()
        };
        commit.line = Some(line.clone()).filter(|line| *line != commit.info());
        // The checksum that the other commits record for this commit.
        let known = match following {
            _ if at_checkpoint => Some(self.anchor.newest_crc.clone()),
            Some((next, _)) => next.parent.clone(),
            None => {
                let checkpoint = unless_damaged(Checkpoint::read(self.storage, number))?.flatten();
                checkpoint.map(|checkpoint| checkpoint.crc().to_owned())
            }
        };
        let bytes = commit.to_bytes()?;
        let crc = check_seal(&bytes, &self.storage.path(&commit_path(number)))?;
        if known.as_ref().is_none_or(|known| *known == crc) {
            // The bytes equal those of the lost file.
            return Ok((commit, crc, bytes));
        }
        commit.stands_for.clone_from(&known);
        let bytes = commit.to_bytes()?;
        Ok((commit, known.unwrap_or_default(), bytes))
    }

    /// Returns the files that a lost commit added. These are files of the checkpoint that no other commit added, and
    /// existing files that were removed before the checkpoint.
    fn added_by(&self, line: &CommitInfo) -> Result<Vec<DataFile>> {
        let files = self.anchor.files.iter().filter(|file| !self.added.contains(&file.path));
        let mut files: Vec<DataFile> = files.filter(|file| self.version_of(file) == line.version).cloned().collect();
        let is_complete = files.len() as u64 == line.added_files;
        for table in TableName::ALL.into_iter().filter(|_| !is_complete) {
            for name in self.storage.names(table.name())?.unwrap_or_default() {
                let path = format!("{table}/{name}");
                if is_named_for(&name, &line.txn)
                    && !self.kept.contains(path.as_str())
                    && !self.added.contains(&path)
                    && let Some(file) = measure(self.storage, table, &path)?
                {
                    files.push(file);
                }
            }
        }
        // The operation adds them in this order.
        files.sort_by_cached_key(|file| {
            let model = file.model.clone();
            match line.operation {
                Operation::Compact => (file.table as u8, model, file.first_run_id),
                Operation::Repair => (0, None, file.first_run_id),
                _ => (u8::from(file.table == TableName::Runs), model, file.first_run_id),
            }
        });
        Ok(files)
    }

    /// Returns the files that a lost commit removed: earlier files that the checkpoint lacks and that no sound
    /// commit removed.
    fn removed_by(&self, line: &CommitInfo, before: Option<&Snapshot>) -> Vec<String> {
        let Some(before) = before.filter(|_| line.removed_files > 0) else { return Vec::new() };
        let before = before.clone().sort();
        let files = TableName::ALL.into_iter().flat_map(|table| before.files(table));
        let gone = files.filter(|file| !self.kept.contains(file.path.as_str()) && !self.removed.contains(&file.path));
        gone.map(|file| file.path.clone()).collect()
    }

    /// Returns the version that added a file: the version of the transaction in its name, or else the version
    /// of its last run.
    fn version_of(&self, file: &DataFile) -> u64 {
        let history = &self.anchor.history;
        let name = file.path.rsplit('/').next().unwrap_or_default();
        let named = history.iter().find(|line| is_named_for(name, &line.txn));
        let given = || history.iter().find(|line| line.next_run_id > u64::from(file.last_run_id));
        named.or_else(given).map_or(0, |line| line.version)
    }
}

/// Returns a commit if it is readable and the checkpoint's history names it.
fn own<'c>(anchor: &Snapshot, number: u64, commit: &'c Result<(Commit, String)>) -> Option<&'c (Commit, String)> {
    let line = anchor.history.get((number as usize).checked_sub(1)?)?;
    commit.as_ref().ok().filter(|(commit, _)| commit.txn == line.txn)
}

/// Returns whether a data file's name contains the transaction's id.
fn is_named_for(name: &str, txn: &str) -> bool {
    let stem = name.strip_suffix(".parquet").filter(|stem| stem.len() == 32);
    matches!((stem.and_then(|stem| stem.get(16..)), txn.get(..16)), (Some(half), Some(txn)) if half == txn)
}
