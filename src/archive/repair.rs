//! Repairing archives with damaged or missing commits.
//!
//! A lost commit that a checkpoint covers is rebuilt (`lost_commits.rs`), and the rebuilt commit replaces it.
//! All other commits stay unchanged.
//!
//! If no checkpoint covers a lost commit, the archive continues from the version before it. A new commit
//! replaces the lost one, and adds everything that the sound commits after it added. Its next run id is above
//! every id in any data file, so no id is assigned twice. The later commits are then set aside as
//! `_log/<n>.json.damaged`.
//!
//! After each step the archive either shows the damage or is repaired, and the next repair can continue from
//! there:
//!
//! 1. Each file that will be replaced gets a second name (`.damaged`). It keeps its first name.
//! 2. The new commit is published durably, in one step. It lists the files that it replaces
//!    (`Commit::replaces`), so the next repair sets them aside and ignores their content. The oldest of these
//!    commits does not follow the new one, so the archive still shows the damage.
//! 3. Rebuilt commits are published, each in one step. Every repair rebuilds the same commits.
//! 4. The replaced files are set aside: checkpoints first, then commits, the newest first. When the oldest
//!    commit is gone, the archive is repaired.

use super::chain::Chain;
use super::checkpoint::Checkpoint;
use super::commit::Replaced;
use super::digests::Digests;
use super::log::Log;
use super::log_names::{DIGESTS_SUFFIX, LOG_LOCK, LogNames, checkpoint_path, commit_path, digests_path};
use super::repair_plan::{Repair, RepairPlan};
use super::repair_successor::Successor;
use super::snapshot::Snapshot;
use super::storage::Storage;
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::time::Duration;

/// The result of a repair or of a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct RepairReport {
    /// The last sound version, from which the archive continues.
    pub version: u64,
    /// The steps in order. Empty if the archive has no damage that a repair can fix.
    pub steps: Vec<Repair>,
    /// Whether the steps were carried out.
    pub done: bool,
}

pub(super) fn repair(storage: &Storage, dry_run: bool, cancel: &CancellationToken) -> Result<RepairReport> {
    let log = Log::new(storage);
    // A folder that is not an archive must not get a lock file.
    let names = log.names()?;
    if names.commits.is_empty() && names.checkpoints.is_empty() {
        log.replay(None)?;
    }
    let _lock = match dry_run {
        true => None,
        false => storage.lock(LOG_LOCK, Duration::from_secs(60), cancel)?,
    };
    let names = log.settled_names()?;
    let mut chain = Chain::read(storage, &log, &names)?;
    if let Some(error) = unreadable(&mut chain) {
        return Err(error);
    }
    let version = chain.version();
    let mut plan = RepairPlan::new(storage);
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
            Ok(_) => "it follows a damaged version; its added files are taken over".into(),
            Err(error) => error.message(),
        };
        plan.set_aside(commit_path(number), reason, goes_on.as_deref().filter(|_| number == version + 1))?;
    }
    for path in &chain.leftovers {
        plan.set_aside(path.clone(), "an earlier repair replaced it".into(), None)?;
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
        cancel.check()?;
        // Runs even without steps, because an interrupted repair may have done the last step without making it
        // durable.
        plan.carry_out(&sound)?;
    }
    let done = !dry_run && !plan.steps.is_empty();
    Ok(RepairReport { version, steps: plan.steps, done })
}

/// Returns whether a file of the log is a commit, not a checkpoint.
fn is_commit(path: &str) -> bool {
    path.bytes().filter(|&byte| byte == b'.').count() == 1 && path.ends_with(".json")
}

/// Returns an error other than damage. A repair cannot fix a newer schema or an I/O error.
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

/// Checkpoints and digests, with the reasons to set some aside. They only repeat commits and data files.
struct Shortcuts<'a> {
    storage: &'a Storage,
    names: &'a LogNames,
    /// The reason for each file that is set aside.
    bad: BTreeMap<String, String>,
}

impl<'a> Shortcuts<'a> {
    /// Finds files that cannot be read, or that are of versions after the chain.
    fn new(storage: &'a Storage, names: &'a LogNames, chain: &Chain) -> Result<Shortcuts<'a>> {
        let mut bad = BTreeMap::new();
        let checkpoints = names.checkpoints.iter().map(|&of| (of, checkpoint_path(of)));
        let digests = names.digests.iter().map(|&of| (of, digests_path(of)));
        for (of, path) in checkpoints.chain(digests).filter(|(_, path)| !chain.leftovers.contains(path)) {
            let read = match path.ends_with(DIGESTS_SUFFIX) {
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
            self.bad
                .insert(checkpoint_path(version), format!("{part}: expected the values of the commits, found others"));
        }
        if self.names.digests.binary_search(&version).is_ok()
            && let Ok(Some((_, next_run_id, crc))) = Digests::read(self.storage, version)
            && (next_run_id, &crc) != (state.newest.next_run_id, &state.newest_crc)
        {
            self.bad.insert(digests_path(version), "it belongs to another commit".into());
        }
    }

    /// Sets aside all digests, because digests of lost runs would keep these runs from being ingested again.
    fn drop_digests(&mut self) {
        for &version in &self.names.digests {
            self.bad.entry(digests_path(version)).or_insert_with(|| "some of its runs are lost".into());
        }
    }
}
