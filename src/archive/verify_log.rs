//! The verification of the log: every commit, the chain of commits, and the checkpoints.

use super::chain::Chain;
use super::checkpoint::Checkpoint;
use super::commit::Commit;
use super::data_file::DataFile;
use super::log::{Log, check_link};
use super::log_names::{LogNames, checkpoint_path, commit_path};
use super::problem::Problem;
use super::snapshot::Snapshot;
use super::storage::Storage;
use super::table_name::TableName;
use crate::error::Result;
use std::collections::{BTreeMap, HashMap};

/// The result of checking the log.
pub(super) struct LogCheck {
    pub(super) problems: Vec<Problem>,
    /// The newest version that can be determined.
    pub(super) newest: Option<Snapshot>,
    /// The files of all versions that have not expired, by path.
    pub(super) files: BTreeMap<String, DataFile>,
}

impl LogCheck {
    /// Checks every commit and checkpoint.
    pub(super) fn run(storage: &Storage, log: &Log, names: &LogNames) -> Result<LogCheck> {
        let chain = Chain::read(storage, log, names)?;
        let mut problems: Vec<Problem> = Vec::new();
        let mut totals = RunningTotals::default();
        let first_version = chain.links.last().map_or(1, |link| link.commit.first_version);
        let mut incomplete = false;
        let newest = chain.replay(|link, state| {
            let version = link.commit.version;
            let path = commit_path(version);
            let wrong = totals.add(&path, &link.commit);
            problems.extend(link.rebuilt.iter().map(|(error, _)| Problem::of_error(&path, error)));
            let is_stand_in = link.rebuilt.is_some() || link.commit.stands_for.is_some();
            // A rebuilt commit may lack files. These are not reported for the sound commits after it. If its
            // version has expired, they are not reported for the commit itself either.
            if is_stand_in && link.rebuilt.is_none() && version >= first_version || !is_stand_in && !incomplete {
                problems.extend(wrong.iter().cloned());
            }
            incomplete = !wrong.is_empty() && (is_stand_in || incomplete);
            if names.checkpoints.binary_search(&version).is_ok() {
                problems.extend(check_checkpoint(storage, &chain, version, Some(state)));
            }
        });
        problems.extend(check_rest(storage, log, &chain, names));
        let files = kept_files(&chain);
        Ok(LogCheck { problems, newest, files })
    }
}

/// Returns the problems after the end of the chain.
fn check_rest(storage: &Storage, log: &Log, chain: &Chain, names: &LogNames) -> Vec<Problem> {
    let mut problems: Vec<Problem> = Vec::new();
    let mut before = (chain.version(), chain.links.last().map(|link| link.crc.clone()));
    for (&number, commit) in &chain.rest {
        let path = commit_path(number);
        if number == 0 {
            problems.push(Problem::new(&path, "version", "at least 1", number));
            continue;
        }
        if number > before.0 + 1 {
            let (first, found) = (before.0 + 1, format!("none of {} to {}", before.0 + 1, number - 1));
            problems.push(Problem::new(&commit_path(first), "commits", "one for every version", found));
            before.1 = None;
        }
        match commit {
            Ok((commit, crc)) => {
                let parent = before.1.or_else(|| commit.parent.clone().filter(|_| number > 1));
                let link = check_link(commit, number, parent, &storage.path(&path));
                // A commit that breaks the chain is reported once: the next commits are not compared with it.
                before = (number.max(before.0), link.is_ok().then(|| crc.clone()));
                problems.extend(link.err().map(|error| Problem::of_error(&path, &error)));
            }
            Err(error) => {
                problems.push(Problem::of_error(&path, error));
                before = (number.max(before.0), None);
            }
        }
    }
    for &version in names.checkpoints.iter().filter(|&&version| version > chain.version()) {
        problems.extend(check_checkpoint(storage, chain, version, None));
    }
    if let Some(version) = names.newest_shortcut().filter(|&version| version > before.0) {
        problems.push(Problem::of_error(&commit_path(version), &log.gone(version, "the commit of its checkpoint")));
    }
    for path in &chain.leftovers {
        problems.push(Problem::new(
            path,
            "file",
            "no file, because a repair replaced it",
            "a file; `repair` sets it aside",
        ));
    }
    problems
}

/// Checks that a checkpoint agrees with the commits.
fn check_checkpoint(storage: &Storage, chain: &Chain, version: u64, state: Option<&Snapshot>) -> Option<Problem> {
    let path = checkpoint_path(version);
    if chain.leftovers.contains(&path) {
        return None;
    }
    match Checkpoint::read(storage, version) {
        Ok(Some(checkpoint)) => {
            let part = checkpoint.difference(&state?.clone().sort())?;
            Some(Problem::new(&path, part, "the values of the commits", "values that differ from them"))
        }
        // The file was pruned after the listing.
        Ok(None) => None,
        Err(error) => Some(Problem::of_error(&path, &error)),
    }
}

/// Returns the files that the remaining versions name, and the files that commits outside the chain name.
pub(super) fn kept_files(chain: &Chain) -> BTreeMap<String, DataFile> {
    let first_version = chain.links.last().map_or(1, |link| link.commit.first_version);
    let mut files: BTreeMap<String, DataFile> = BTreeMap::new();
    let archive_id = chain.links.last().map(|link| &link.commit.archive_id);
    let rest = chain.rest.values().flatten().map(|(commit, _)| commit);
    // The files of another archive's commit are elsewhere.
    let rest = rest.filter(|commit| archive_id.is_none_or(|archive_id| commit.archive_id == *archive_id));
    for commit in chain.links.iter().map(|link| &link.commit).chain(rest) {
        if commit.version <= first_version {
            commit.remove.iter().for_each(|path| drop(files.remove(path)));
        }
        files.extend(commit.add.iter().map(|file| (file.path.clone(), file.clone())));
    }
    files
}

/// The running totals of the commits.
#[derive(Default)]
struct RunningTotals {
    /// The first and the previous commit.
    first: Option<Commit>,
    last: Option<Commit>,
    num_rows: HashMap<TableName, i128>,
    /// The number of rows of each current file.
    files: HashMap<String, (TableName, i128)>,
}

impl RunningTotals {
    /// Adds a commit and returns the problems of its totals. Compares the totals with the files that were added
    /// and removed, so that one wrong commit does not make later ones look wrong.
    fn add(&mut self, path: &str, commit: &Commit) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut expect = |what: &str, expected: &dyn ToString, found: &dyn ToString| {
            if expected.to_string() != found.to_string() {
                problems.push(Problem::new(path, what, expected.to_string(), found.to_string()));
            }
        };
        for removed in &commit.remove {
            match self.files.remove(removed) {
                Some((table, num_rows)) => *self.num_rows.entry(table).or_default() -= num_rows,
                None => expect("removed file", &"an existing file", removed),
            }
        }
        for file in &commit.add {
            let num_rows = i128::from(file.num_rows);
            *self.num_rows.entry(file.table).or_default() += num_rows;
            if self.files.insert(file.path.clone(), (file.table, num_rows)).is_some() {
                expect("added file", &"a new file", &file.path);
            }
        }
        let rows = |table| self.num_rows.get(&table).copied().unwrap_or_default();
        expect("num_runs", &rows(TableName::Runs), &commit.num_runs);
        expect("num_steps", &rows(TableName::Steps), &commit.num_steps);
        if let (Some(first), Some(last)) = (&self.first, &self.last) {
            expect("archive_id", &first.archive_id, &commit.archive_id);
            expect("phases", &format!("{:?}", first.phases), &format!("{:?}", commit.phases));
            if commit.next_run_id < last.next_run_id {
                expect("next_run_id", &format!("at least {}", last.next_run_id), &commit.next_run_id);
            }
            if commit.first_version < last.first_version || commit.first_version > commit.version {
                let expected = format!("{}..={}", last.first_version, commit.version);
                expect("first_version", &expected, &commit.first_version);
            }
        }
        let plain = Commit { add: Vec::new(), remove: Vec::new(), replaces: Vec::new(), ..commit.clone() };
        self.first.get_or_insert_with(|| plain.clone());
        self.last = Some(plain);
        problems
    }
}
