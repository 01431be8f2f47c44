//! Repairing archives with damaged or missing commits.
//!
//! A lost commit that a checkpoint covers is rebuilt (`chain.rs`), and the rebuilt commit replaces it. All other
//! commits stay unchanged.
//!
//! If no checkpoint covers a lost commit, the archive continues from the version before it. A new commit replaces the
//! lost one, and adds everything that the sound commits after it added. Its next run id is above every id in any data
//! file, so no id is given out twice. The later commits are then set aside as `_log/<n>.json.damaged`.
//!
//! After each step the archive either shows the damage or is repaired, and the next repair can continue from there:
//!
//! 1. Each file that will be replaced gets a second name (`.damaged`). It keeps its first name.
//! 2. The new commit is published durably, in one step. It lists the files that it replaces (`Commit::replaces`), so
//!    the next repair sets them aside and ignores their content. The oldest of these commits does not follow the new
//!    one, so the archive still shows the damage.
//! 3. Rebuilt commits are published, each in one step. Every repair rebuilds the same commits.
//! 4. The replaced files are set aside: checkpoints first, then commits, the newest first. When the oldest commit is
//!    gone, the archive is repaired.

use super::TableName;
use super::chain::Chain;
use super::checkpoint::{Checkpoint, Names};
use super::commit::{Commit, DataFile, Operation, Replaced};
use super::digests::Digests;
use super::log::{Log, Snapshot, commit_path};
use super::read::run_ids;
use super::storage::Storage;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::{Progress, check};
use crate::publish::Published;
use bytes::Bytes;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// What the names of files that were set aside contain.
pub(super) const ASIDE: &str = ".damaged";

/// One step of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[derive(serde::Serialize)]
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
#[derive(serde::Serialize)]
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
    let names = log.names()?;
    if names.commits.is_empty() && names.checkpoints.is_empty() {
        log.replay(None)?;
    }
    let _lock = match dry_run {
        true => None,
        false => storage.lock(Log::LOCK, Duration::from_secs(60), progress)?,
    };
    let names = log.settled_names()?;
    let mut chain = Chain::read(storage, &log, &names)?;
    if let Some(error) = unreadable(&mut chain) {
        return Err(error);
    }
    let version = chain.version();
    let mut plan = Plan { storage, steps: Vec::new(), aside: Vec::new(), publish: Vec::new() };
    let mut shortcuts = Shortcuts::new(storage, &names, &chain)?;
    let Some(sound) = chain.replay(|link, state| shortcuts.check(link.commit.version, state)) else {
        return Err(log.replay(None).err().unwrap_or_else(|| log.gone(1, "a commit")));
    };
    let successor = Successor::plan(storage, &names, &chain, &sound)?;
    if successor.as_ref().is_some_and(|successor| successor.loses_runs) {
        shortcuts.drop_digests();
    }

    for (path, reason) in shortcuts.bad {
        plan.set_aside(path, reason, None)?;
    }
    let goes_on = successor.as_ref().map(|successor| successor.to_string());
    for (&number, commit) in chain.rest.iter().rev() {
        let reason = match commit {
            Ok(_) => "it follows on damage; the files that it added are taken over".into(),
            Err(error) => error.message(),
        };
        plan.set_aside(commit_path(number), reason, goes_on.as_deref().filter(|_| number == version + 1))?;
    }
    for path in &chain.leftovers {
        plan.set_aside(path.clone(), "an earlier repair has replaced it".into(), None)?;
    }
    for link in &chain.links {
        if let Some((error, bytes)) = &link.rebuilt {
            let action = format!("rebuilt from the checkpoint of version {}", chain.anchor);
            plan.replace(commit_path(link.commit.version), &action, error.message(), bytes.clone())?;
        }
    }
    if let Some(successor) = successor {
        let mut commit = successor.commit;
        let path = commit_path(version + 1);
        let replaced = plan.aside.iter().filter(|(file, ..)| *file > path);
        commit.replaces = replaced.map(|(path, _, bytes)| Replaced::new(path, bytes)).collect();
        let bytes = commit.to_bytes()?;
        if !chain.rest.contains_key(&(version + 1)) {
            let action = format!("written: {}", goes_on.unwrap_or_default());
            plan.steps.push(Repair { path: path.clone(), action, reason: "it is missing".into() });
        }
        // The new commit is published first.
        plan.publish.insert(0, (path, bytes));
    }
    // Checkpoints first, then commits, the newest first.
    plan.aside.sort_by(|(a, ..), (b, ..)| is_commit(a).cmp(&is_commit(b)).then_with(|| b.cmp(a)));
    if !dry_run {
        // From here on the repair cannot be cancelled.
        check(progress)?;
        // Runs even without steps: an interrupted repair may have done the last step without making it durable.
        plan.carry_out(&sound)?;
    }
    let done = !dry_run && !plan.steps.is_empty();
    Ok(RepairReport { version, steps: plan.steps, done })
}

/// Whether a file of the log is a commit, not a checkpoint.
fn is_commit(path: &str) -> bool {
    path.bytes().filter(|&byte| byte == b'.').count() == 1 && path.ends_with(".json")
}

/// An error other than damage: a repair cannot fix a newer schema or an I/O error.
fn unreadable(chain: &mut Chain) -> Option<Error> {
    if chain.unread.is_some() {
        return chain.unread.take();
    }
    let is_damage = |error: &Error| matches!(error.kind(), ErrorKind::Damaged { .. });
    if let Some(at) =
        chain.links.iter().position(|link| link.rebuilt.as_ref().is_some_and(|(error, _)| !is_damage(error)))
    {
        return chain.links[at].rebuilt.take().map(|(error, _)| error);
    }
    let number = chain.rest.iter().find(|(_, commit)| commit.as_ref().is_err_and(|error| !is_damage(error)));
    let number = *number?.0;
    chain.rest.remove(&number)?.err()
}

/// The planned changes of a repair.
struct Plan<'a> {
    storage: &'a Storage,
    steps: Vec<Repair>,
    /// Files that lose their name, in this order: each with its new name and its content.
    aside: Vec<(String, Aside, Bytes)>,
    /// Commits to publish, in this order.
    publish: Vec<(String, Vec<u8>)>,
}

/// The new name of a file that is set aside.
#[derive(Clone)]
struct Aside {
    name: String,
    /// Whether an earlier repair has created it.
    is_there: bool,
}

impl Plan<'_> {
    /// Plans to set a file aside; `replacement` names the file that replaces it.
    fn set_aside(&mut self, path: String, reason: String, replacement: Option<&str>) -> Result<()> {
        let Some((aside, bytes)) = self.aside_of(&path)? else { return Ok(()) };
        let action = match replacement {
            Some(replacement) => format!("set aside as {}, and replaced by {replacement}", aside.name),
            None => format!("set aside as {}", aside.name),
        };
        self.steps.push(Repair { path: path.clone(), action, reason });
        self.aside.push((path, aside, bytes));
        Ok(())
    }

    /// Plans to replace a lost commit with a rebuilt one.
    fn replace(&mut self, path: String, action: &str, reason: String, bytes: Vec<u8>) -> Result<()> {
        let action = match self.aside_of(&path)? {
            Some((aside, old)) => {
                let action = format!("set aside as {}, and {action}", aside.name);
                self.aside.push((path.clone(), aside, old));
                action
            }
            None => action.to_owned(),
        };
        self.steps.push(Repair { path: path.clone(), action, reason });
        self.publish.push((path, bytes));
        Ok(())
    }

    /// A new name that is free or already has the same content, and the content.
    fn aside_of(&self, path: &str) -> Result<Option<(Aside, Bytes)>> {
        let Some(bytes) = self.storage.read(path)? else { return Ok(None) };
        let mut name = format!("{path}{ASIDE}");
        let mut attempt = 1;
        let is_there = loop {
            match self.storage.read(&name)? {
                None => break false,
                Some(there) if there == bytes => break true,
                Some(_) => {
                    attempt += 1;
                    name = format!("{path}{ASIDE}.{attempt}");
                }
            }
        };
        Ok(Some((Aside { name, is_there }, bytes)))
    }

    fn carry_out(&self, sound: &Snapshot) -> Result<()> {
        // Makes the log durable first, because the repair builds on it.
        let newest = commit_path(sound.newest.version);
        if !self.publish.iter().any(|(path, _)| *path == newest) {
            self.storage.sync(&newest)?;
        }
        self.storage.sync(Log::FOLDER)?;
        let is_published = |path: &str| self.publish.iter().any(|(published, _)| published == path);
        for (path, aside, _) in self.aside.iter().filter(|(path, aside, _)| is_published(path) && !aside.is_there) {
            self.storage.copy(path, &aside.name)?;
        }
        for (path, bytes) in &self.publish {
            let is_taken = self.aside.iter().any(|(aside, ..)| aside == path);
            if is_taken {
                self.storage.replace(path, bytes.clone())?;
            } else if self.storage.put_new(path, bytes.clone())? == Published::Taken
                && self.storage.read(path)?.is_none_or(|found| found != *bytes)
            {
                let what = format!("another process published {path} during the repair");
                return Err(ErrorKind::Conflict { path: self.storage.root().to_path_buf(), what }.into());
            }
        }
        for (path, aside, bytes) in self.aside.iter().filter(|(path, ..)| !is_published(path)) {
            if !aside.is_there {
                self.storage.copy(path, &aside.name)?;
            }
            // Removes only the file that was read: a concurrent repair, and a writer after it, may have replaced it.
            if self.storage.read(path)?.is_some_and(|found| found == *bytes) {
                self.storage.remove(path)?;
            }
        }
        self.storage.sync(Log::FOLDER)
    }
}

/// Checkpoints and digests. They only repeat commits and data files, so bad ones are set aside.
struct Shortcuts<'a> {
    storage: &'a Storage,
    names: &'a Names,
    /// The reason for each file that is set aside.
    bad: BTreeMap<String, String>,
}

impl<'a> Shortcuts<'a> {
    /// Finds files that cannot be read, or that are of versions after the chain.
    fn new(storage: &'a Storage, names: &'a Names, chain: &Chain) -> Result<Shortcuts<'a>> {
        let mut bad = BTreeMap::new();
        let checkpoints = names.checkpoints.iter().map(|&of| (of, Checkpoint::path(of)));
        let digests = names.digests.iter().map(|&of| (of, Digests::path(of)));
        for (of, path) in checkpoints.chain(digests).filter(|(_, path)| !chain.leftovers.contains(path)) {
            let read = match path.ends_with(Digests::SUFFIX) {
                false => Checkpoint::read(storage, of).map(|_| ()),
                true => Digests::read(storage, of).map(|_| ()),
            };
            match read {
                Err(error) if !matches!(error.kind(), ErrorKind::Damaged { .. }) => return Err(error),
                Err(error) => drop(bad.insert(path, error.message())),
                Ok(()) if of > chain.version() => drop(bad.insert(path, format!("version {of} is replaced"))),
                Ok(()) => {}
            }
        }
        Ok(Shortcuts { storage, names, bad })
    }

    /// Finds files that differ from the commits.
    fn check(&mut self, version: u64, state: &Snapshot) {
        if self.names.checkpoints.binary_search(&version).is_ok()
            && let Ok(Some(checkpoint)) = Checkpoint::read(self.storage, version)
            && let Some(part) = checkpoint.difference(&state.clone().sort())
        {
            self.bad.insert(
                Checkpoint::path(version),
                format!("{part}: expected what the commits say, found other values"),
            );
        }
        if self.names.digests.binary_search(&version).is_ok()
            && let Ok(Some((_, next_run_id, crc))) = Digests::read(self.storage, version)
            && (next_run_id, &crc) != (state.newest.next_run_id, &state.newest_crc)
        {
            self.bad.insert(Digests::path(version), "it is of another commit".into());
        }
    }

    /// Digests of lost runs would keep these runs from being ingested again.
    fn drop_digests(&mut self) {
        for &version in &self.names.digests {
            self.bad.entry(Digests::path(version)).or_insert_with(|| "some of its runs are lost".into());
        }
    }
}

/// The commit that continues the last sound version with all known changes of later versions.
struct Successor {
    commit: Commit,
    /// The number of runs that it adds to the last sound version.
    taken_over: u64,
    /// Whether it lacks runs of the last sound version.
    loses_runs: bool,
}

impl Successor {
    /// Returns `None` if nothing after the last sound version could be lost.
    fn plan(storage: &Storage, names: &Names, chain: &Chain, sound: &Snapshot) -> Result<Option<Successor>> {
        let version = chain.version();
        let shortcuts = names.checkpoints.iter().map(|&of| (of, Checkpoint::path(of)));
        let shortcuts = shortcuts.chain(names.digests.iter().map(|&of| (of, Digests::path(of))));
        let follows = chain.rest.keys().any(|&number| number > version)
            || shortcuts.into_iter().any(|(of, path)| of > version && !chain.leftovers.contains(&path));
        // If the newest commit was lost, later commits may have been lost without a trace.
        let lost_newest = chain.links.last().is_some_and(|link| link.rebuilt.is_some());
        if !follows && !lost_newest {
            return Ok(None);
        }
        let mut commit = sound.next(Operation::Repair);
        let mut state = sound.clone();
        for (later, crc) in chain.rest.range(version + 1..).filter_map(|(_, commit)| commit.as_ref().ok()) {
            if later.archive_id == sound.newest.archive_id {
                commit.first_version = commit.first_version.max(later.first_version.min(commit.version));
                state.apply(later.clone(), crc.clone());
            }
        }
        let next_run_id = state.newest.next_run_id.max(sound.newest.next_run_id);
        let there = DataFiles::list(storage)?;
        let named =
            chain.links.iter().map(|link| &link.commit).chain(chain.rest.values().flatten().map(|(commit, _)| commit));
        let named: HashSet<&str> = named.flat_map(|commit| &commit.add).map(|file| file.path.as_str()).collect();
        commit.next_run_id = there.next_run_id(storage, &named, next_run_id)?;
        if !follows && commit.next_run_id == next_run_id {
            return Ok(None);
        }
        // Two files of one table with the same ids would duplicate runs.
        let mut files: Vec<DataFile> = Vec::new();
        state.files.sort_by_key(|file| file.first_run_id);
        for file in state.files {
            let overlaps = |other: &&DataFile| other.table == file.table && other.last_run_id >= file.first_run_id;
            if files.iter().rev().find(|other| other.table == file.table).filter(overlaps).is_none()
                && there.0.contains_key(&file.path)
            {
                files.push(file);
            }
        }
        let before: HashSet<&str> = sound.files.iter().map(|file| file.path.as_str()).collect();
        let after: HashSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
        let rows = |table| files.iter().filter(|file| file.table == table).map(|file| file.num_rows).sum();
        (commit.num_runs, commit.num_steps) = (rows(TableName::Runs), rows(TableName::Steps));
        let taken_over = commit.num_runs.saturating_sub(sound.newest.num_runs);
        let loses_runs = commit.num_runs < sound.newest.num_runs
            || sound.files(TableName::Runs).any(|file| !there.0.contains_key(&file.path));
        commit.remove =
            sound.files.iter().filter(|f| !after.contains(f.path.as_str())).map(|f| f.path.clone()).collect();
        commit.add = files.iter().filter(|file| !before.contains(file.path.as_str())).cloned().collect();
        Ok(Some(Successor { commit, taken_over, loses_runs }))
    }
}

impl std::fmt::Display for Successor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (version, runs) = (self.commit.version - 1, self.taken_over);
        write!(f, "a commit that goes on from version {version}, with {runs} runs that could be taken over")
    }
}

/// The existing data files, with their lengths.
struct DataFiles(BTreeMap<String, u64>);

impl DataFiles {
    fn list(storage: &Storage) -> Result<DataFiles> {
        let mut files = BTreeMap::new();
        for table in TableName::ALL {
            for entry in storage.list(table.name())?.unwrap_or_default() {
                if entry.name.ends_with(".parquet") {
                    files.insert(format!("{table}/{}", entry.name), entry.num_bytes);
                }
            }
        }
        Ok(DataFiles(files))
    }

    /// An id above all ids that any file shows. Commits give the ids of the files that they name.
    fn next_run_id(&self, storage: &Storage, named: &HashSet<&str>, known: u64) -> Result<u64> {
        let mut next = known;
        for (path, &num_bytes) in self.0.iter().filter(|(path, _)| !named.contains(path.as_str())) {
            match run_ids(storage, path, num_bytes) {
                Ok(ids) => next = ids.map_or(next, |(_, last)| next.max(u64::from(last) + 1)),
                // A damaged file, or a file of another program, has no ids that a reader could have seen.
                Err(error) if matches!(error.kind(), ErrorKind::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(next)
    }
}
