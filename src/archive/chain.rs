//! The chain of commits from version 1 on. It ends before a lost commit that cannot be rebuilt
//! (`lost_commits.rs`).

use super::commit::{Commit, Replaced};
use super::log::{Log, check_link};
use super::log_names::{LogNames, checkpoint_path, commit_path, digests_path};
use super::lost_commits::{CommitRebuilder, Commits, newest_sound_checkpoint};
use super::problem::damaged;
use super::snapshot::Snapshot;
use super::storage::Storage;
use crate::error::{Error, Result};
use std::collections::{BTreeSet, HashSet};

/// The readable and rebuilt commits of an archive.
pub(super) struct Chain {
    /// The commits of versions 1, 2, … without a gap.
    pub(super) links: Vec<Link>,
    /// The version of the checkpoint that lost commits were rebuilt from; 0 = no checkpoint.
    pub(super) anchor: u64,
    /// The commit files outside the chain, with their content if it is readable.
    pub(super) rest: Commits,
    /// Files of the log that a repair replaced but did not set aside, because it was interrupted.
    pub(super) leftovers: BTreeSet<String>,
    /// The error of an unreadable checkpoint that is not damaged. Such a checkpoint may cover lost commits.
    pub(super) unread: Option<Error>,
}

/// A commit of the chain.
pub(super) struct Link {
    pub(super) commit: Commit,
    /// The checksum that the next commit has as its `parent`.
    pub(super) crc: String,
    /// If the commit was lost: the reason, and the bytes that replace its file.
    pub(super) rebuilt: Option<(Error, Vec<u8>)>,
}

impl Chain {
    /// Reads every commit. If a commit cannot be read for a reason other than damage, its entry holds that
    /// error too.
    pub(super) fn read(storage: &Storage, log: &Log, names: &LogNames) -> Result<Chain> {
        let (mut commits, leftovers) = read_commits(storage, names)?;
        let mut unread = None;
        let anchor = newest_sound_checkpoint(storage, names, &commits, &leftovers).unwrap_or_else(|error| {
            unread = Some(error);
            None
        });
        let rebuilder = match &anchor {
            Some(anchor) => Some(CommitRebuilder::new(storage, anchor, &commits)?),
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
                            Err((damaged(&path, "archive_id", expected, found), Some((commit, crc))))
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
                    // The rest contains only files that exist.
                    if names.commits.binary_search(&number).is_ok() && !leftovers.contains(&commit_path(number)) {
                        commits.insert(number, read.ok_or(error));
                    }
                    break;
                }
            };
            state = Some(Snapshot::after(state.take(), link.commit.clone(), link.crc.clone()));
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
            let now = Snapshot::after(state.take(), link.commit.clone(), link.crc.clone());
            each(link, &now);
            state = Some(now);
        }
        state.map(Snapshot::sort)
    }
}

/// Returns every commit, and the names of the log files that a commit replaces.
fn read_commits(storage: &Storage, names: &LogNames) -> Result<(Commits, BTreeSet<String>)> {
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
    let shortcuts = names.checkpoints.iter().map(|&version| checkpoint_path(version));
    for path in shortcuts.chain(names.digests.iter().map(|&version| digests_path(version))) {
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
