//! The commit of a repair that continues the last sound version.

use super::chain::Chain;
use super::commit::{Commit, Operation};
use super::data_file::DataFile;
use super::log_names::{LogNames, checkpoint_path, digests_path};
use super::parquet_footer::run_ids;
use super::snapshot::Snapshot;
use super::storage::Storage;
use super::table_name::TableName;
use crate::error::{ErrorKind, Result};
use std::collections::{BTreeMap, HashSet};
use std::fmt;

/// The commit that continues the last sound version with all known changes of later versions.
pub(super) struct Successor {
    pub(super) commit: Commit,
    /// The number of runs that the commit adds to the last sound version.
    taken_over: u64,
    /// Whether the commit lacks runs of the last sound version.
    pub(super) loses_runs: bool,
}

impl Successor {
    /// Plans the commit. Returns `None` if nothing after the last sound version can have been lost.
    pub(super) fn plan(
        storage: &Storage,
        names: &LogNames,
        chain: &Chain,
        sound: &Snapshot,
    ) -> Result<Option<Successor>> {
        let version = chain.version();
        let shortcuts = names.checkpoints.iter().map(|&of| (of, checkpoint_path(of)));
        let shortcuts = shortcuts.chain(names.digests.iter().map(|&of| (of, digests_path(of))));
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
        let there = ExistingFiles::list(storage)?;
        let named =
            chain.links.iter().map(|link| &link.commit).chain(chain.rest.values().flatten().map(|(commit, _)| commit));
        let named: HashSet<&str> = named.flat_map(|commit| &commit.add).map(|file| file.path.as_str()).collect();
        commit.next_run_id = there.next_run_id(storage, &named, next_run_id)?;
        if !follows && commit.next_run_id == next_run_id {
            return Ok(None);
        }
        // Two files of one table, and of one model, with the same ids would duplicate runs.
        let mut files: Vec<DataFile> = Vec::new();
        state.files.sort_by_key(|file| file.first_run_id);
        for file in state.files {
            let is_beside = |other: &&DataFile| (other.table, &other.model) == (file.table, &file.model);
            let before = files.iter().rev().find(is_beside);
            if before.is_none_or(|before| before.last_run_id < file.first_run_id) && there.0.contains_key(&file.path) {
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

impl fmt::Display for Successor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (version, runs) = (self.commit.version - 1, self.taken_over);
        write!(f, "a commit that continues from version {version} and takes over {runs} runs")
    }
}

/// The existing data files, with their lengths in bytes.
struct ExistingFiles(BTreeMap<String, u64>);

impl ExistingFiles {
    fn list(storage: &Storage) -> Result<ExistingFiles> {
        let mut files = BTreeMap::new();
        for table in TableName::ALL {
            for entry in storage.list(table.name())?.unwrap_or_default() {
                if entry.name.ends_with(".parquet") {
                    files.insert(format!("{table}/{}", entry.name), entry.num_bytes);
                }
            }
        }
        Ok(ExistingFiles(files))
    }

    /// Returns an id above the ids of all existing files. Reads the ids of files that no commit names from
    /// their footers.
    fn next_run_id(&self, storage: &Storage, named: &HashSet<&str>, known: u64) -> Result<u64> {
        let mut next = known;
        for (path, &num_bytes) in self.0.iter().filter(|(path, _)| !named.contains(path.as_str())) {
            match run_ids(storage, path, num_bytes) {
                Ok(ids) => next = ids.map_or(next, |(_, last)| next.max(u64::from(last) + 1)),
                // A damaged file, or a file of another program, has no ids that a reader could have used.
                Err(error) if matches!(error.kind(), ErrorKind::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(next)
    }
}
