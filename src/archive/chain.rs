//! The chain of commits from version 1 on, with lost commits rebuilt from a checkpoint.
//!
//! A sound checkpoint of version n has one history line for each version up to n, and the files of version n. These
//! are enough to rebuild a damaged or missing commit before it. The history line has the commit's numbers. The
//! commit's files are those that no other commit added or removed.
//!
//! A rebuilt commit keeps the checksum that the next commit expects (`Commit::stands_for`), so all other
//! commits stay unchanged. The chain ends before a lost commit that no checkpoint covers.

use super::TableName;
use super::checkpoint::{Checkpoint, Names};
use super::commit::{Commit, CommitInfo, DataFile, Operation, Replaced, check_seal};
use super::digests::Digests;
use super::log::{Log, Snapshot, check_link, commit_path};
use super::read::measure;
use super::storage::Storage;
use crate::error::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The readable and rebuilt commits of an archive.
pub(super) struct Chain {
    /// The commits of versions 1, 2, … without a gap.
    pub(super) links: Vec<Link>,
    /// The version of the checkpoint that lost commits were rebuilt from; 0 = no checkpoint.
    pub(super) anchor: u64,
    /// The commit files outside the chain, with their content if it is readable.
    pub(super) rest: BTreeMap<u64, Result<(Commit, String)>>,
    /// Files of the log that a repair replaced but did not set aside, because it was interrupted.
    pub(super) leftovers: BTreeSet<String>,
    /// The error of an unreadable checkpoint that is not damaged. Such a checkpoint may cover lost commits.
    pub(super) unread: Option<Error>,
}

/// A commit of the chain.
pub(super) struct Link {
    pub(super) commit: Commit,
    /// The checksum by which the next commit names it.
    pub(super) crc: String,
    /// If the commit was lost: the reason, and the bytes that replace its file.
    pub(super) rebuilt: Option<(Error, Vec<u8>)>,
}

type Commits = BTreeMap<u64, Result<(Commit, String)>>;

impl Chain {
    /// Reads every commit. If a commit cannot be read for a reason other than damage, its entry holds that
    /// error too.
    pub(super) fn read(storage: &Storage, log: &Log, names: &Names) -> Result<Chain> {
        let (mut commits, leftovers) = read_commits(storage, names)?;
        let mut unread = None;
        let anchor = anchor(storage, names, &commits, &leftovers).unwrap_or_else(|error| {
            unread = Some(error);
            None
        });
        let rebuilder = match &anchor {
            Some(anchor) => Some(Rebuilder::new(storage, anchor, &commits)?),
            None => None,
        };
        let mut links: Vec<Link> = Vec::new();
        let mut state: Option<Snapshot> = None;
        for number in 1.. {
            let parent = state.as_ref().map(|state| state.newest_crc.clone());
            let found = match commits.remove(&number) {
                Some(Ok((commit, crc))) => {
                    let path = storage.path(&commit_path(number));
                    let archive_id = anchor.as_ref().map_or(&commit.archive_id, |anchor| &anchor.newest.archive_id);
                    match check_link(&commit, number, parent.clone(), &path) {
                        Ok(()) if number > 1 || commit.archive_id == *archive_id => Ok((commit, crc)),
                        Ok(()) => {
                            let (expected, found) = (archive_id.clone(), commit.archive_id.clone());
                            Err((super::commit::damaged(&path, "archive_id", expected, found), Some((commit, crc))))
                        }
                        Err(error) => Err((error, Some((commit, crc)))),
                    }
                }
                Some(Err(error)) => Err((error, None)),
                None => Err((log.gone(number, "a commit"), None)),
            };
            let link = match (found, &rebuilder) {
                (Ok((commit, crc)), _) => Link { commit, crc, rebuilt: None },
                (Err((error, _)), Some(rebuilder)) if number <= rebuilder.anchor.newest.version => {
                    let (commit, crc, bytes) = rebuilder.rebuild(number, state.as_ref(), &commits)?;
                    Link { commit, crc, rebuilt: Some((error, bytes)) }
                }
                (Err((error, read)), _) => {
                    // A missing file is not part of the rest.
                    if names.commits.binary_search(&number).is_ok() && !leftovers.contains(&commit_path(number)) {
                        commits.insert(number, read.ok_or(error));
                    }
                    break;
                }
            };
            state = Some(match state.take() {
                Some(mut state) => {
                    state.apply(link.commit.clone(), link.crc.clone());
                    state
                }
                None => Snapshot::first(link.commit.clone(), link.crc.clone()),
            });
            links.push(link);
        }
        let anchor = anchor.map_or(0, |anchor| anchor.newest.version);
        Ok(Chain { links, anchor, rest: commits, leftovers, unread })
    }

    /// Returns the last version of the chain; 0 if the chain is empty.
    pub(super) fn version(&self) -> u64 {
        self.links.len() as u64
    }

    /// Calls `each` with the contents of the archive at each version, in order. Returns the last contents.
    pub(super) fn replay(&self, mut each: impl FnMut(&Link, &Snapshot)) -> Option<Snapshot> {
        let mut state: Option<Snapshot> = None;
        for link in &self.links {
            let (commit, crc) = (link.commit.clone(), link.crc.clone());
            let now = match state.take() {
                Some(mut state) => {
                    state.apply(commit, crc);
                    state
                }
                None => Snapshot::first(commit, crc),
            };
            each(link, &now);
            state = Some(now);
        }
        state.map(Snapshot::sort)
    }
}

/// Returns every commit, and the names of the log files that a commit replaces.
fn read_commits(storage: &Storage, names: &Names) -> Result<(Commits, BTreeSet<String>)> {
    let files = storage.read_all(names.commits.iter().copied().map(commit_path).collect())?;
    let mut commits = Commits::new();
    let mut contents: Vec<Replaced> = Vec::new();
    let mut replaced: HashSet<Replaced> = HashSet::new();
    for (&number, file) in names.commits.iter().zip(files) {
        let path = commit_path(number);
        let read = match file {
            Ok(Some(bytes)) => {
                contents.push(Replaced::new(&path, &bytes));
                Commit::from_bytes(&bytes, &storage.path(&path))
            }
            // The file was set aside after the listing.
            Ok(None) => continue,
            Err(error) => Err(error),
        };
        if let Ok((commit, _)) = &read {
            replaced.extend(commit.replaces.iter().cloned());
        }
        commits.insert(number, read);
    }
    let shortcuts = names.checkpoints.iter().map(|&version| Checkpoint::path(version));
    for path in shortcuts.chain(names.digests.iter().map(|&version| Digests::path(version))) {
        if replaced.iter().any(|file| file.path == path)
            && let Some(bytes) = storage.read(&path)?
        {
            contents.push(Replaced::new(&path, &bytes));
        }
    }
    contents.retain(|file| replaced.contains(file));
    let leftovers: BTreeSet<String> = contents.into_iter().map(|file| file.path).collect();
    commits.retain(|&number, _| !leftovers.contains(&commit_path(number)));
    Ok((commits, leftovers))
}

/// Returns the newest sound checkpoint that belongs to these commits.
fn anchor(
    storage: &Storage,
    names: &Names,
    commits: &Commits,
    leftovers: &BTreeSet<String>,
) -> Result<Option<Snapshot>> {
    for &version in names.checkpoints.iter().rev().filter(|&&version| !leftovers.contains(&Checkpoint::path(version))) {
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

struct Rebuilder<'a> {
    storage: &'a Storage,
    /// The contents of the archive at the checkpoint's version.
    anchor: &'a Snapshot,
    /// The paths that sound commits up to the checkpoint added, and those that they removed.
    added: HashSet<String>,
    removed: HashSet<String>,
    /// The paths of the checkpoint's files.
    kept: HashSet<&'a str>,
}

impl<'a> Rebuilder<'a> {
    fn new(storage: &'a Storage, anchor: &'a Snapshot, commits: &Commits) -> Result<Rebuilder<'a>> {
        let (mut added, mut removed) = (HashSet::new(), HashSet::new());
        for (number, commit) in commits.range(1..=anchor.newest.version) {
            if let Some((commit, _)) = own(anchor, *number, commit) {
                added.extend(commit.add.iter().map(|file| file.path.clone()));
                removed.extend(commit.remove.iter().cloned());
            }
        }
        let kept = anchor.files.iter().map(|file| file.path.as_str()).collect();
        Ok(Rebuilder { storage, anchor, added, removed, kept })
    }

    /// Rebuilds a version's commit from the versions before it. Returns the commit, the checksum by which the
    /// next commit names it, and the bytes of its file.
    fn rebuild(&self, number: u64, before: Option<&Snapshot>, later: &Commits) -> Result<(Commit, String, Vec<u8>)> {
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
        // The checksum by which other commits know it.
        let known = match following {
            _ if at_checkpoint => Some(self.anchor.newest_crc.clone()),
            Some((next, _)) => next.parent.clone(),
            None => {
                let checkpoint = unless_damaged(Checkpoint::read(self.storage, number))?.flatten();
                checkpoint.map(|checkpoint| checkpoint.crc().to_owned())
            }
        };
        let versions = [Some(newest), following.map(|(next, _)| next), before.map(|before| &before.newest)];
        let versions: BTreeSet<u32> = versions.into_iter().flatten().map(|commit| commit.schema_version).collect();
        let mut sealed = None;
        for schema_version in versions.into_iter().rev() {
            commit.schema_version = schema_version;
            let bytes = commit.to_bytes()?;
            let crc = check_seal(&bytes, &self.storage.path(&commit_path(number)))?;
            if known.as_ref().is_none_or(|known| *known == crc) {
                // The bytes equal those of the lost file.
                return Ok((commit, crc, bytes));
            }
            sealed.get_or_insert(schema_version);
        }
        commit.schema_version = sealed.unwrap_or(newest.schema_version);
        commit.stands_for.clone_from(&known);
        let bytes = commit.to_bytes()?;
        Ok((commit, known.unwrap_or_default(), bytes))
    }

    /// Returns the files that a lost commit added: files of the checkpoint that no other commit added, and
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
        // In the order in which the operation adds them.
        files.sort_by_key(|file| match line.operation {
            Operation::Compact => (file.table == TableName::Steps, file.first_run_id),
            Operation::Repair => (false, file.first_run_id),
            _ => (file.table == TableName::Runs, file.first_run_id),
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
